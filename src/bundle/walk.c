/*
 * Members of an archive come directory by directory, so the parent that was opened last is kept: one openat2 a directory,
 * not a member. It is opened as a path only; what is created below it is created by its last name with flags that refuse
 * what exists.
 */
#include "bundle/walk.h"

#include "base/err.h"
#include "base/strv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { PATH_CEILING = 4096 };

void agx_walk_init(agx_walk *w, int root, bool stepwise)
{
        *w = (agx_walk){.root = root, .dir = -1, .stepwise = stepwise};
        agx_buf_init(&w->at, PATH_CEILING);
        agx_buf_init(&w->path, PATH_CEILING);
}

void agx_walk_deinit(agx_walk *w)
{
        agx_closep(&w->dir);
        agx_buf_deinit(&w->at);
        agx_buf_deinit(&w->path);
}

/* The path as a C string; lives until the next call. */
static int terminate(agx_buf *scratch, agx_view path, const char **text)
{
        int r;

        agx_buf_clear(scratch);
        r = agx_buf_append_view(scratch, path);
        if (!r)
                r = agx_buf_append(scratch, "", 1);
        *text = r ? NULL : (const char *)scratch->data + scratch->head;
        return r == AGX_BUF_E_FULL ? -ENAMETOOLONG : r;
}

static int open_beneath(int root, const char *path)
{
        struct open_how how = {
                .flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        };
        long fd = syscall(SYS_openat2, root, path, &how, sizeof(how));

        return fd < 0 ? -errno : (int)fd;
}

/* One directory below another; made if `make` and missing. */
static int step(int dir, const char *name, bool make)
{
        int fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 && errno == ENOENT && make) {
                if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
                        return -errno;
                if (fchmodat(dir, name, 0755, 0) < 0)
                        return -errno;
                fd = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        return fd < 0 ? -errno : fd;
}

static int open_stepwise(agx_walk *w, agx_view path, bool make)
{
        _cleanup_(agx_closep) int dir = dup(w->root);
        agx_view name;

        if (dir < 0)
                return -errno;
        while (agx_view_split(&path, '/', &name)) {
                const char *text;
                int fd = terminate(&w->path, name, &text);

                if (!fd)
                        fd = agx_view_eq(name, AGX_VIEW("..")) ? -EXDEV : step(dir, text, make);
                if (fd < 0)
                        return fd;
                close(dir);
                dir = fd;
        }
        return fcntl(dir, F_DUPFD_CLOEXEC, 3);
}

static int open_dir(agx_walk *w, agx_view path)
{
        const char *text;
        int fd = terminate(&w->path, path, &text);

        if (fd)
                return fd;
        if (!w->stepwise) {
                fd = open_beneath(w->root, text);
                if (fd == -ENOSYS || fd == -EPERM || fd == -E2BIG)
                        w->stepwise = true;
                else if (fd != -ENOENT && fd != -EAGAIN)
                        return fd;
        }
        return open_stepwise(w, path, true);
}

/* Opens the directory that `path` is to lie in, makes it w->dir, and gives the last name. */
static int enter(agx_walk *w, agx_view path, const char **name)
{
        agx_view above = path;
        int fd;

        while (above.n && above.p[above.n - 1] != '/')
                above.n--;
        path = agx_view_from(path, above.n);
        above.n -= above.n > 0;
        if (w->dir < 0 || !agx_view_eq(agx_buf_view(&w->at), above)) {
                fd = above.n ? open_dir(w, above) : fcntl(w->root, F_DUPFD_CLOEXEC, 3);
                if (fd < 0)
                        return fd;
                agx_closep(&w->dir);
                w->dir = fd;
                agx_buf_clear(&w->at);
                if (agx_buf_append_view(&w->at, above)) {
                        agx_closep(&w->dir);
                        return -ENOMEM;
                }
        }
        return terminate(&w->path, path, name);
}

int agx_walk_mkdir(agx_walk *w, agx_view path, mode_t mode)
{
        struct stat st;
        const char *name;
        int r = enter(w, path, &name);

        if (r)
                return r;
        if (mkdirat(w->dir, name, mode) < 0) {
                if (errno != EEXIST)
                        return -errno;
                if (fstatat(w->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return -errno;
                if (!S_ISDIR(st.st_mode))
                        return -ENOTDIR;
        }
        /* Nobody else writes here, and a link in this place would have been refused above. */
        return fchmodat(w->dir, name, mode, 0) < 0 ? -errno : 0;
}

int agx_walk_create(agx_walk *w, agx_view path, mode_t mode, int *fd)
{
        const char *name;
        int r = enter(w, path, &name);

        if (r)
                return r;
        *fd = openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd < 0)
                return -errno;
        if (fchmod(*fd, mode) < 0) {
                r = -errno;
                agx_closep(fd);
        }
        return r;
}

int agx_walk_symlink(agx_walk *w, agx_view path, agx_view target)
{
        _cleanup_(agx_freep) char *to = agx_strv_dup(target);
        const char *name;
        int r = to ? enter(w, path, &name) : -ENOMEM;

        if (r)
                return r;
        return symlinkat(to, w->dir, name) < 0 ? -errno : 0;
}

int agx_walk_link(agx_walk *w, agx_view path, agx_view from)
{
        _cleanup_(agx_closep) int source = -1;
        _cleanup_(agx_freep) char *old = NULL;
        const char *name;
        int r = enter(w, from, &name);

        if (r)
                return r;
        old = strdup(name);
        source = fcntl(w->dir, F_DUPFD_CLOEXEC, 3);
        if (!old || source < 0)
                return old ? -errno : -ENOMEM;
        r = enter(w, path, &name);
        if (r)
                return r;
        return linkat(source, old, w->dir, name, 0) < 0 ? -errno : 0;
}

int agx_walk_unlink(agx_walk *w, agx_view path)
{
        const char *name;
        int r = enter(w, path, &name);

        if (r)
                return r;
        return unlinkat(w->dir, name, 0) < 0 ? -errno : 0;
}

/* ---- removing ---- */

static int remove_below(int dir, unsigned depth);

static int remove_entry(int dir, const char *name, unsigned depth)
{
        _cleanup_(agx_closep) int fd = -1;
        int r;

        if (!unlinkat(dir, name, 0) || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -errno;
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 && errno == EACCES) {
                if (!fchmodat(dir, name, 0700, 0))
                        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (fd < 0)
                return errno == ENOENT ? 0 : -errno;
        (void)fchmod(fd, 0700);
        r = remove_below(fd, depth + 1);
        if (r)
                return r;
        return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* More directories inside one another than any bundle may have: not ours, not touched. */
enum { REMOVE_DEPTH_MAX = 512 };

static int remove_below(int dir, unsigned depth)
{
        int fd = depth > REMOVE_DEPTH_MAX ? -1 : fcntl(dir, F_DUPFD_CLOEXEC, 3);
        DIR *names = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;
        int r = 0;

        if (!names) {
                r = fd < 0 && depth > REMOVE_DEPTH_MAX ? -ELOOP : -errno;
                agx_closep(&fd);
                return r;
        }
        while (!r && (entry = readdir(names)) != NULL)
                if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
                        r = remove_entry(dir, entry->d_name, depth);
        closedir(names);
        return r;
}

int agx_walk_remove(int dir, const char *name)
{
        return agx_trace(remove_entry(dir, name, 0));
}
