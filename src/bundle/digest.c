/*
 * One walk with one hash. A directory's names are read and sorted before any of them is looked at; below it the path is a
 * buffer that grows and shrinks with the descent. Every step is taken from the descriptor of the directory, never by a
 * path from the root, so a tree that somebody moves is still the tree that was opened.
 */
#include "bundle/digest.h"
#include "base/buf.h"
#include "base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_CEILING = AGX_DIGEST_DEPTH_MAX * (NAME_MAX + 1) };

typedef struct walk {
        struct sha256_ctx sha;
        agx_buf path;
        unsigned depth;
} walk;

typedef struct names {
        char **items;
        size_t n, cap;
} names;

static void hex_of(struct sha256_ctx *sha, char hex[65])
{
        static const char digits[] = "0123456789abcdef";
        uint8_t raw[SHA256_DIGEST_SIZE];

        sha256_digest(sha, sizeof(raw), raw);
        for (size_t i = 0; i < sizeof(raw); i++) {
                hex[2 * i] = digits[raw[i] >> 4];
                hex[2 * i + 1] = digits[raw[i] & 15];
        }
        hex[64] = 0;
}

static int hash_fd(int fd, char hex[65])
{
        uint8_t chunk[64 << 10];
        struct sha256_ctx sha;
        ssize_t n;

        sha256_init(&sha);
        while ((n = read(fd, chunk, sizeof(chunk))) != 0) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return agx_trace(-errno);
                sha256_update(&sha, (size_t)n, chunk);
        }
        hex_of(&sha, hex);
        return 0;
}

/* ---- a directory's names ---- */

static void names_deinit(names *list)
{
        for (size_t i = 0; i < list->n; i++)
                free(list->items[i]);
        free(list->items);
        *list = (names){0};
}

AGX_DEFINE_CLEANUP(names, names_deinit)

static int names_add(names *list, const char *name)
{
        if (list->n == AGX_DIGEST_WIDTH_MAX)
                return AGX_DIGEST_E_WIDE;
        if (list->n == list->cap) {
                size_t cap = list->cap ? list->cap * 2 : 32;
                char **items = realloc(list->items, cap * sizeof(*items));

                if (!items)
                        return agx_trace(-ENOMEM);
                list->items = items;
                list->cap = cap;
        }
        list->items[list->n] = strdup(name);
        if (!list->items[list->n])
                return agx_trace(-ENOMEM);
        list->n++;
        return 0;
}

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int names_read(names *list, DIR *dir)
{
        struct dirent *entry;
        int r = 0;

        while (!r) {
                errno = 0;
                entry = readdir(dir);
                if (!entry) {
                        r = -errno;
                        break;
                }
                if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
                        r = names_add(list, entry->d_name);
        }
        if (!r && list->n)
                qsort(list->items, list->n, sizeof(*list->items), compare);
        return r < 0 ? agx_trace(r) : r;
}

/* ---- entries ---- */

static void add_text(walk *w, const char *text, size_t n)
{
        sha256_update(&w->sha, n, (const uint8_t *)text);
}

static void add_counted(walk *w, agx_view bytes)
{
        char count[24];

        add_text(w, count, (size_t)snprintf(count, sizeof(count), "%zu:", bytes.n));
        add_text(w, bytes.p, bytes.n);
}

static void add_head(walk *w, char kind, mode_t mode)
{
        char head[16];

        add_text(w, head, (size_t)snprintf(head, sizeof(head), "%c %04o ", kind, (unsigned)mode & 07777));
        add_counted(w, agx_buf_view(&w->path));
}

static int walk_directory(walk *w, int dirfd, const char *name);

static int walk_file(walk *w, int dirfd, const char *name, mode_t mode)
{
        _cleanup_(agx_closep) int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        char hex[65];
        int r;

        if (fd < 0)
                return agx_trace(-errno);
        r = hash_fd(fd, hex);
        if (r)
                return r;
        add_head(w, 'f', mode);
        add_text(w, " ", 1);
        add_text(w, hex, 64);
        add_text(w, "\n", 1);
        return 0;
}

static int walk_link(walk *w, int dirfd, const char *name)
{
        char target[PATH_MAX];
        ssize_t n = readlinkat(dirfd, name, target, sizeof(target));

        if (n < 0)
                return agx_trace(-errno);
        add_text(w, "l ", 2);
        add_counted(w, agx_buf_view(&w->path));
        add_text(w, " ", 1);
        add_counted(w, agx_view_of(target, (size_t)n));
        add_text(w, "\n", 1);
        return 0;
}

static int walk_entry(walk *w, int dirfd, const char *name)
{
        size_t before = w->path.len;
        struct stat st;
        int r;

        if (agx_buf_printf(&w->path, "%s%s", before ? "/" : "", name))
                return agx_trace(-ENAMETOOLONG);
        if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
                r = agx_trace(-errno);
        else if (S_ISDIR(st.st_mode))
                r = walk_directory(w, dirfd, name);
        else if (S_ISREG(st.st_mode))
                r = walk_file(w, dirfd, name, st.st_mode);
        else
                r = S_ISLNK(st.st_mode) ? walk_link(w, dirfd, name) : AGX_DIGEST_E_KIND;
        agx_buf_truncate(&w->path, before);
        return r;
}

static int walk_names(walk *w, DIR *dir)
{
        _cleanup_(names_deinitp) names list = {0};
        struct stat st;
        int r;

        if (fstat(dirfd(dir), &st))
                return agx_trace(-errno);
        add_head(w, 'd', st.st_mode);
        add_text(w, "\n", 1);
        r = names_read(&list, dir);
        for (size_t i = 0; !r && i < list.n; i++)
                r = walk_entry(w, dirfd(dir), list.items[i]);
        return r;
}

static int walk_directory(walk *w, int dirfd, const char *name)
{
        int fd, r;
        DIR *dir;

        if (w->depth == AGX_DIGEST_DEPTH_MAX)
                return AGX_DIGEST_E_DEEP;
        fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return agx_trace(-errno);
        dir = fdopendir(fd);
        if (!dir) {
                close(fd);
                return agx_trace(-ENOMEM);
        }
        w->depth++;
        r = walk_names(w, dir);
        w->depth--;
        closedir(dir);
        return r;
}

/* ---- the contract ---- */

int agx_digest_tree(int dirfd, const char *name, agx_view more, char out[AGX_DIGEST_SIZE])
{
        walk w = {.path = AGX_BUF_NULL(PATH_CEILING)};
        int r;

        sha256_init(&w.sha);
        r = agx_buf_printf(&w.path, "%s", name) ? agx_trace(-ENOMEM) : walk_directory(&w, dirfd, name);
        agx_buf_deinit(&w.path);
        if (r)
                return r;
        if (more.n)
                sha256_update(&w.sha, more.n, (const uint8_t *)more.p);
        memcpy(out, "sha256:", 7);
        hex_of(&w.sha, out + 7);
        return 0;
}

int agx_digest_fd(int fd, char out[AGX_DIGEST_SIZE])
{
        memcpy(out, "sha256:", 7);
        return hash_fd(fd, out + 7);
}

void agx_digest_bytes(agx_view bytes, char out[AGX_DIGEST_SIZE])
{
        struct sha256_ctx sha;

        memcpy(out, "sha256:", 7);
        sha256_init(&sha);
        sha256_update(&sha, bytes.n, (const uint8_t *)bytes.p);
        hex_of(&sha, out + 7);
}

bool agx_digest_is(agx_view text)
{
        if (text.n != AGX_DIGEST_SIZE - 1 || !agx_view_starts(text, AGX_VIEW("sha256:")))
                return false;
        for (size_t i = 7; i < text.n; i++)
                if (!strchr("0123456789abcdef", text.p[i]) || !text.p[i])
                        return false;
        return true;
}
