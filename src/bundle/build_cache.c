/* An entry goes by another name first, one under which the next build would sweep it away too. */
#include "bundle/build_cache.h"

#include "base/cleanup.h"
#include "base/err.h"
#include "bundle/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

int agx_build_cache_hold(const char *cache, bool alone, int *lock, agx_why *why)
{
        _cleanup_(agx_freep) char *path = agx_tree_join(cache, "in-use");
        int r;

        if (!path)
                return agx_trace(-ENOMEM);
        *lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (*lock < 0)
                return agx_why_errno(why, errno, "%s could not be made", path);
        do
                r = flock(*lock, alone ? LOCK_EX | LOCK_NB : LOCK_SH);
        while (r && errno == EINTR && alone);
        if (!r)
                return 0;
        if (errno == EWOULDBLOCK) {
                agx_why_set(why, "busy", "a build is at work in %s", cache);
                return agx_why_hint(why, "try again when it has ended");
        }
        return agx_why_errno(why, errno, "%s could not be locked", path);
}

/* The counter for an entry of that name; NULL: it is not ours. */
static unsigned *counter_of(agx_build_cache_use *use, const char *name)
{
        if (!strncmp(name, "python-", 7))
                return &use->interpreters;
        if (!strncmp(name, "state-", 6))
                return &use->records;
        if (!strncmp(name, "stage-", 6))
                return &use->stages;
        if (!strncmp(name, "npm-", 4))
                return &use->packages;
        return strcmp(name, "nix") ? NULL : &use->stores;
}

static int add_size(const agx_tree_entry *entry, void *user, agx_why *why)
{
        (void)why;
        *(uint64_t *)user += (uint64_t)entry->st->st_blocks * 512;
        return 0;
}

static int measure_entry(const char *path, uint64_t *bytes)
{
        agx_why ignored = AGX_WHY_NULL; /* what vanishes meanwhile takes up no room */
        struct stat st;
        int r;

        if (lstat(path, &st))
                return 0;
        *bytes += (uint64_t)st.st_blocks * 512;
        r = S_ISDIR(st.st_mode) ? agx_tree_walk(path, add_size, bytes, &ignored) : 0;
        return r < 0 ? r : 0;
}

typedef int (*entry_visit)(const char *cache, const char *path, const char *name, agx_build_cache_use *use,
                           agx_why *why);

static int each_entry(const char *cache, entry_visit visit, agx_build_cache_use *use, agx_why *why)
{
        DIR *dir = opendir(cache);
        struct dirent *entry;
        int r = 0;

        *use = (agx_build_cache_use){0};
        if (!dir)
                return errno == ENOENT ? 0 : agx_why_errno(why, errno, "%s could not be read", cache);
        while (!r && (entry = readdir(dir))) {
                _cleanup_(agx_freep) char *path = NULL;

                if (!counter_of(use, entry->d_name))
                        continue;
                path = agx_tree_join(cache, entry->d_name);
                r = path ? visit(cache, path, entry->d_name, use, why) : agx_trace(-ENOMEM);
        }
        closedir(dir);
        return r;
}

static int count(const char *cache, const char *path, const char *name, agx_build_cache_use *use, agx_why *why)
{
        (void)cache;
        (void)why;
        ++*counter_of(use, name);
        return measure_entry(path, &use->bytes);
}

int agx_build_cache_measure(const char *cache, agx_build_cache_use *use, agx_why *why)
{
        return each_entry(cache, count, use, why);
}

static int drop(const char *cache, const char *path, const char *name, agx_build_cache_use *use, agx_why *why)
{
        _cleanup_(agx_freep) char *gone = NULL;
        uint64_t bytes = 0;
        int r = measure_entry(path, &bytes);

        if (r || access(path, F_OK)) /* a directory that is read while names change may name what has gone */
                return r;
        if (!strncmp(name, "stage-gone-", 11))
                gone = strdup(path);
        else if (asprintf(&gone, "%s/stage-gone-%s", cache, name) < 0)
                gone = NULL;
        if (!gone)
                return agx_trace(-ENOMEM);
        if (strcmp(gone, path) != 0) {
                r = agx_tree_remove(gone, why); /* of an earlier one that was interrupted */
                if (!r && rename(path, gone))
                        r = agx_why_errno(why, errno, "%s could not be removed", path);
        }
        if (!r)
                r = agx_tree_remove(gone, why);
        if (r)
                return r;
        ++*counter_of(use, name);
        use->bytes += bytes;
        return 0;
}

int agx_build_cache_clean(const char *cache, agx_build_cache_use *use, agx_why *why)
{
        _cleanup_(agx_closep) int lock = -1;
        int r;

        *use = (agx_build_cache_use){0};
        if (access(cache, F_OK))
                return 0;
        r = agx_build_cache_hold(cache, true, &lock, why);
        return r ? r : each_entry(cache, drop, use, why);
}
