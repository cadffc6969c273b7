/*
 * Plain blocking file work. Copies go by copy_file_range, which shares blocks where the file system can. A staging
 * directory may hold directories without write permission (Nix makes such), so removing gives itself the right first.
 */
#include "bundle/tree.h"
#include "base/cleanup.h"
#include "base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

char *agx_tree_join(const char *a, const char *b)
{
        char *out = NULL;

        return asprintf(&out, "%s%s%s", a, *b ? "/" : "", b) < 0 ? NULL : out;
}

int agx_tree_make_parents(const char *path, agx_why *why)
{
        _cleanup_(agx_freep) char *part = strdup(path);

        if (!part)
                return agx_trace(-ENOMEM);
        for (char *p = part + 1; *p; p++) {
                if (*p != '/')
                        continue;
                *p = 0;
                if (mkdir(part, 0755) && errno != EEXIST)
                        return agx_why_errno(why, errno, "directory %s could not be made", part);
                *p = '/';
        }
        return 0;
}

int agx_tree_make(const char *path, agx_why *why)
{
        int r = agx_tree_make_parents(path, why);

        if (!r && mkdir(path, 0755) && errno != EEXIST)
                r = agx_why_errno(why, errno, "directory %s could not be made", path);
        return r;
}

/* ---- walking ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int no_dots(const struct dirent *entry)
{
        return strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
}

typedef struct names {
        struct dirent **items;
        int n;
} names;

static void names_deinit(names *list)
{
        for (int i = 0; i < list->n; i++)
                free(list->items[i]);
        free(list->items);
        *list = (names){0};
}

AGX_DEFINE_CLEANUP(names, names_deinit)

static int walk(const char *path, size_t root, agx_tree_visit visit, void *user, agx_why *why)
{
        _cleanup_(names_deinitp) names list = {0};
        int r = 0;

        list.n = scandir(path, &list.items, no_dots, by_name);
        if (list.n < 0) {
                list.n = 0;
                return agx_why_errno(why, errno, "directory %s could not be read", path);
        }
        for (int i = 0; !r && i < list.n; i++) {
                _cleanup_(agx_freep) char *full = agx_tree_join(path, list.items[i]->d_name);
                struct stat st;

                if (!full)
                        return agx_trace(-ENOMEM);
                if (lstat(full, &st))
                        return agx_why_errno(why, errno, "%s could not be looked at", full);
                r = visit(&(agx_tree_entry){full, full + root, list.items[i]->d_name, &st}, user, why);
                if (!r && S_ISDIR(st.st_mode))
                        r = walk(full, root, visit, user, why);
                if (r == AGX_TREE_SKIP)
                        r = 0;
        }
        return r;
}

int agx_tree_walk(const char *path, agx_tree_visit visit, void *user, agx_why *why)
{
        return walk(path, strlen(path) + 1, visit, user, why);
}

/* ---- removing ---- */

static int remove_below(const char *path, agx_why *why)
{
        _cleanup_(names_deinitp) names list = {0};
        int r = 0;

        (void)chmod(path, 0700);
        list.n = scandir(path, &list.items, no_dots, NULL);
        if (list.n < 0) {
                list.n = 0;
                return agx_why_errno(why, errno, "directory %s could not be read", path);
        }
        for (int i = 0; !r && i < list.n; i++) {
                _cleanup_(agx_freep) char *full = agx_tree_join(path, list.items[i]->d_name);

                r = full ? agx_tree_remove(full, why) : agx_trace(-ENOMEM);
        }
        return r;
}

int agx_tree_remove(const char *path, agx_why *why)
{
        struct stat st;
        int r;

        if (lstat(path, &st))
                return errno == ENOENT ? 0 : agx_why_errno(why, errno, "%s could not be looked at", path);
        if (!S_ISDIR(st.st_mode))
                return unlink(path) ? agx_why_errno(why, errno, "%s could not be removed", path) : 0;
        r = remove_below(path, why);
        return !r && rmdir(path) ? agx_why_errno(why, errno, "%s could not be removed", path) : r;
}

/* ---- copying ---- */

static int pump(int from, int to)
{
        char chunk[64 << 10];
        ssize_t n;

        while ((n = copy_file_range(from, NULL, to, NULL, 1u << 30, 0)) > 0)
                ;
        if (!n)
                return 0;
        while ((n = read(from, chunk, sizeof(chunk))) > 0)
                if (write(to, chunk, (size_t)n) != n)
                        return agx_trace(errno ? -errno : -EIO);
        return n < 0 ? agx_trace(-errno) : 0;
}

static int copy_link(const char *from, const char *to, agx_why *why)
{
        char target[PATH_MAX];
        ssize_t n = readlink(from, target, sizeof(target) - 1);

        if (n < 0)
                return agx_why_errno(why, errno, "link %s could not be read", from);
        target[n] = 0;
        return symlink(target, to) ? agx_why_errno(why, errno, "link %s could not be made", to) : 0;
}

int agx_tree_copy(const char *from, const char *to, agx_why *why)
{
        _cleanup_(agx_closep) int in = -1, out = -1;
        struct stat st;
        int r = agx_tree_make_parents(to, why);

        if (r)
                return r;
        if (lstat(from, &st))
                return agx_why_errno(why, errno, "%s could not be copied", from);
        if (S_ISLNK(st.st_mode))
                return copy_link(from, to, why);
        if (!S_ISREG(st.st_mode))
                return agx_why_set(why, "file", "%s is neither a file nor a link", from);
        in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (in < 0 || out < 0)
                return agx_why_errno(why, errno, "%s could not be copied to %s", from, to);
        r = pump(in, out);
        if (r || fchmod(out, st.st_mode & S_IXUSR ? 0755 : 0644))
                return agx_why_errno(why, r ? r : errno, "%s could not be copied to %s", from, to);
        return 0;
}

static int copy_visited(const agx_tree_entry *entry, void *user, agx_why *why)
{
        _cleanup_(agx_freep) char *to = agx_tree_join(user, entry->relative);

        if (!to)
                return agx_trace(-ENOMEM);
        if (!S_ISDIR(entry->st->st_mode))
                return agx_tree_copy(entry->path, to, why);
        return mkdir(to, 0755) && errno != EEXIST ? agx_why_errno(why, errno, "directory %s could not be made", to) : 0;
}

int agx_tree_copy_all(const char *from, const char *to, agx_why *why)
{
        _cleanup_(agx_freep) char *there = strdup(to);
        int r = there ? agx_tree_make(there, why) : agx_trace(-ENOMEM);

        return r ? r : agx_tree_walk(from, copy_visited, there, why);
}

int agx_tree_write(const char *path, agx_view bytes, mode_t mode, agx_why *why)
{
        _cleanup_(agx_closep) int fd = -1;
        int r = agx_tree_make_parents(path, why);

        if (r)
                return r;
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return agx_why_errno(why, errno, "%s could not be written", path);
        while (bytes.n) {
                ssize_t n = write(fd, bytes.p, bytes.n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return agx_why_errno(why, errno, "%s could not be written", path);
                bytes = agx_view_from(bytes, (size_t)n);
        }
        return fchmod(fd, mode) ? agx_why_errno(why, errno, "%s could not be written", path) : 0;
}

int agx_tree_read(const char *path, agx_buf *out, agx_why *why)
{
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        char chunk[64 << 10];
        ssize_t n;

        if (fd < 0)
                return agx_why_errno(why, errno, "%s could not be read", path);
        while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return agx_why_errno(why, errno, "%s could not be read", path);
                if (agx_buf_append(out, chunk, (size_t)n))
                        return agx_why_set(why, "file", "%s is too large", path);
        }
        return 0;
}
