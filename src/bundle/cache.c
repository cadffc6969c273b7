/*
 * Opening the cache and looking at what is in it. Everything below the directory is reached from its descriptor, so that
 * nobody can put another one in its place afterwards.
 */
#include "bundle/cache.h"

#include "base/err.h"
#include "bundle/cache_dir.h"
#include "bundle/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { PATH_CEILING = 4000 };

static const char *variable(const char *name)
{
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

static char *join(const char *a, const char *b)
{
        char *path;

        return asprintf(&path, "%s/%s", a, b) < 0 ? NULL : path;
}

/* An absolute path without a slash at its end. */
static char *absolute(const char *path)
{
        _cleanup_(agx_freep) char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
        char *whole;
        size_t n;

        if (path[0] != '/' && !here)
                return NULL;
        whole = here ? join(here, path) : strdup(path);
        for (n = whole ? strlen(whole) : 0; n > 1 && whole[n - 1] == '/'; n--)
                whole[n - 1] = 0;
        return whole;
}

char *agx_cache_where(const char *chosen)
{
        const char *xdg = variable("XDG_CACHE_HOME");

        if (!chosen)
                chosen = variable("AGENTIX_BUNDLE_CACHE_DIR");
        if (chosen)
                return absolute(chosen);
        if (xdg && xdg[0] == '/')
                return join(xdg, "agentix/bundles");
        return variable("HOME") ? join(variable("HOME"), ".cache/agentix/bundles") : NULL;
}

/* ---- opening ---- */

/* Makes the directories above the last component, as private as it itself. */
static int make_parents(char *path)
{
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                int r;

                *slash = 0;
                r = mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
                *slash = '/';
                if (r)
                        return r;
        }
        return 0;
}

static int check_owner(const agx_cache *c, agx_why *why)
{
        struct stat st;

        if (fstat(c->dir, &st) < 0)
                return agx_why_errno(why, errno, "cannot look at the bundle cache %s", c->path);
        if (st.st_uid != geteuid()) {
                (void)agx_why_hint(why, "use another directory with --bundle-cache-dir");
                return agx_why_set(why, "cache", "the bundle cache %s belongs to another user (uid %u)", c->path,
                                   (unsigned)st.st_uid);
        }
        if (st.st_mode & 022) {
                (void)agx_why_hint(why, "chmod go-w %s", c->path);
                return agx_why_set(why, "cache", "the bundle cache %s can be written to by others", c->path);
        }
        return 0;
}

static int open_last(agx_cache *c, agx_why *why)
{
        c->dir = open(c->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (c->dir >= 0)
                return check_owner(c, why);
        if (errno == ENOENT)
                return AGX_CACHE_E_NONE;
        if (errno == ELOOP || errno == ENOTDIR) {
                (void)agx_why_hint(why, "remove it, or use another directory with --bundle-cache-dir");
                return agx_why_set(why, "cache", "the bundle cache %s is not a directory but a link or a file",
                                   c->path);
        }
        return agx_why_errno(why, errno, "cannot open the bundle cache %s", c->path);
}

int agx_cache_open(agx_cache *c, const char *path, bool make, agx_why *why)
{
        int r;

        *c = AGX_CACHE_NULL;
        c->path = absolute(path);
        if (!c->path)
                return agx_trace(-ENOMEM);
        if (strlen(c->path) > PATH_CEILING)
                return agx_why_set(why, "cache", "the path of the bundle cache is too long");
        if (make) {
                r = make_parents(c->path);
                if (!r && mkdir(c->path, 0700) < 0 && errno != EEXIST)
                        r = -errno;
                if (r)
                        return agx_why_errno(why, r, "cannot make the bundle cache %s", c->path);
        }
        return open_last(c, why);
}

void agx_cache_close(agx_cache *c)
{
        free(c->path);
        c->path = NULL;
        agx_closep(&c->dir);
}

/* ---- entries ---- */

bool agx_cache_is_entry(const char *name)
{
        char digest[AGX_DIGEST_SIZE];

        if (strncmp(name, "sha256-", 7) != 0 || strlen(name) != AGX_DIGEST_SIZE - 1)
                return false;
        snprintf(digest, sizeof(digest), "sha256:%s", name + 7);
        return agx_digest_is(agx_view_str(digest));
}

static int by_name(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

int agx_cache_list(const agx_cache *c, agx_strv *names, agx_why *why)
{
        int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;

        if (!dir) {
                int error = errno;

                agx_closep(&fd);
                return agx_why_errno(why, error, "cannot read the bundle cache %s", c->path);
        }
        while ((entry = readdir(dir)) != NULL)
                if (agx_cache_is_entry(entry->d_name))
                        agx_strv_add_str(names, entry->d_name);
        closedir(dir);
        if (names->count)
                qsort(names->items, names->count, sizeof(*names->items), by_name);
        return agx_strv_end(names);
}

int agx_cache_open_entry(const agx_cache *c, const char *name, int *fd, agx_why *why)
{
        struct stat st;

        *fd = agx_cache_is_entry(name) ? openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (*fd < 0)
                return !agx_cache_is_entry(name) || errno == ENOENT
                               ? (int)AGX_CACHE_E_NONE
                               : agx_why_errno(why, errno, "cannot open %s/%s", c->path, name);
        if (fstat(*fd, &st) < 0 || st.st_uid != geteuid())
                return agx_why_set(why, "cache", "%s/%s belongs to another user", c->path, name);
        return 0;
}

int agx_cache_manifest(const agx_cache *c, const char *name, agx_manifest *m, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf bytes = AGX_BUF_NULL(AGX_MANIFEST_MAX);
        _cleanup_(agx_closep) int entry = -1;
        _cleanup_(agx_closep) int fd = -1;
        uint8_t *place;
        ssize_t n = 1;
        int r = agx_cache_open_entry(c, name, &entry, why);

        *m = AGX_MANIFEST_NULL;
        if (r)
                return r;
        fd = openat(entry, "manifest.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
                return agx_why_errno(why, errno, "cannot read %s/%s/manifest.json", c->path, name);
        while (n > 0) {
                r = agx_buf_reserve(&bytes, 4096, &place);
                if (r)
                        return r < 0 ? r : agx_why_set(why, "cache", "%s/%s/manifest.json is too large", c->path, name);
                n = read(fd, place, 4096);
                agx_buf_commit(&bytes, n > 0 ? (size_t)n : 0);
        }
        r = n < 0 ? -errno : agx_manifest_parse(m, agx_buf_view(&bytes));
        if (r > 0)
                return agx_why_set(why, "cache", "%s/%s/manifest.json: %s", c->path, name, agx_manifest_why(r));
        return r;
}

int agx_cache_bundle_digest(int entry, const agx_manifest *m, const char *what, char digest[AGX_DIGEST_SIZE],
                            agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(AGX_MANIFEST_LINES_MAX);
        int r = agx_manifest_lines(m, &lines);

        if (r)
                return r < 0 ? r : agx_why_set(why, "bundle", "the manifest of %s is too large", what);
        r = agx_digest_tree(entry, "nix", agx_buf_view(&lines), digest);
        if (r == AGX_DIGEST_E_KIND)
                return agx_why_set(why, "bundle", "%s holds something that is no file, directory or link", what);
        if (r == AGX_DIGEST_E_DEEP || r == AGX_DIGEST_E_WIDE)
                return agx_why_set(why, "bundle", "%s holds too many directories inside one another, or names in one",
                                   what);
        return r < 0 && r != -ENOMEM ? agx_why_errno(why, r, "cannot compute the digest of %s", what) : r;
}

int agx_cache_digest(const agx_cache *c, const char *name, char digest[AGX_DIGEST_SIZE], agx_why *why)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
        _cleanup_(agx_closep) int entry = -1;
        int r = agx_cache_open_entry(c, name, &entry, why);

        if (!r)
                r = agx_cache_manifest(c, name, &m, why);
        return r ? r : agx_cache_bundle_digest(entry, &m, name, digest, why);
}

/* ---- size ---- */

enum { SIZE_DEPTH_MAX = 256 };

static int size_below(int dir, unsigned depth, uint64_t *bytes)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *names = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;
        int r = names ? 0 : -errno;

        if (!names)
                agx_closep(&fd);
        while (names && !r && (entry = readdir(names)) != NULL) {
                _cleanup_(agx_closep) int child = -1;
                struct stat st;

                if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                        continue;
                if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        continue;
                /* Two names of one file share its blocks. */
                *bytes += (uint64_t)st.st_blocks * 512 / (S_ISDIR(st.st_mode) ? 1 : st.st_nlink ? st.st_nlink : 1);
                if (!S_ISDIR(st.st_mode))
                        continue;
                child = openat(dir, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (child >= 0)
                        r = depth < SIZE_DEPTH_MAX ? size_below(child, depth + 1, bytes) : -ELOOP;
        }
        if (names)
                closedir(names);
        return r;
}

int agx_cache_size(const agx_cache *c, const char *name, uint64_t *bytes, agx_why *why)
{
        _cleanup_(agx_closep) int entry = -1;
        int r = agx_cache_open_entry(c, name, &entry, why);

        *bytes = 0;
        if (r)
                return r;
        r = size_below(entry, 0, bytes);
        return r ? agx_why_errno(why, r, "cannot read %s/%s", c->path, name) : 0;
}
