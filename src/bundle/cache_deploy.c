/*
 * From a tar to an entry: unpack into a private directory, compute what it is, bring it to disk, rename. The one moment at
 * which processes could meet, the renaming, is under a lock on `.lock`; it is never held while anything long is done.
 */
#include "bundle/cache_dir.h"

#include "base/err.h"
#include "bundle/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

void agx_deployed_deinit(agx_deployed *d)
{
        free(d->path);
        d->path = NULL;
        agx_unpacked_deinit(&d->unpacked);
}

/* ---- the tar ---- */

static int open_tar(const char *tar, int *fd, struct stat *st, agx_why *why)
{
        *fd = open(tar, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (*fd < 0)
                return agx_why_errno(why, errno, "cannot open the bundle %s", tar);
        if (fstat(*fd, st) < 0)
                return agx_why_errno(why, errno, "cannot look at the bundle %s", tar);
        if (!S_ISREG(st->st_mode))
                return agx_why_set(why, "bundle", "it is %s, not a bundle tar",
                                   S_ISDIR(st->st_mode) ? "a directory" : "not a file");
        return 0;
}

/* ---- committing ---- */

static int lock(const agx_cache *c, int *fd, agx_why *why)
{
        *fd = openat(c->dir, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (*fd < 0)
                return agx_why_errno(why, errno, "cannot open %s/.lock", c->path);
        while (flock(*fd, LOCK_EX) < 0)
                if (errno != EINTR)
                        return agx_why_errno(why, errno, "cannot lock %s/.lock", c->path);
        return 0;
}

static bool bootstrapped(const agx_cache *c, const char *entry)
{
        char path[AGX_DIGEST_SIZE + 64];
        struct stat st;

        snprintf(path, sizeof(path), "%s/nix/runtime/bootstrap.sh", entry);
        return !fstatat(c->dir, path, &st, AT_SYMLINK_NOFOLLOW);
}

/* Takes away what has the entry's name and is not one, so that it does not stand in the way. */
static int put_aside(const agx_cache *c, const char *entry, char aside[32])
{
        int r = agx_cache_temp_name(aside);

        if (!r && renameat(c->dir, entry, c->dir, aside) < 0)
                r = -errno;
        return r;
}

/* Everything is on disk before the name is, and the name before we say so. */
static int rename_in(const agx_cache *c, agx_cache_temp *t, const char *entry)
{
        if (fchmod(t->fd, 0755) < 0 || syncfs(t->fd) < 0)
                return -errno;
        if (renameat(c->dir, t->name, c->dir, entry) < 0)
                return -errno;
        agx_closep(&t->fd);
        return fsync(c->dir) < 0 ? -errno : 0;
}

static int commit(const agx_cache *c, agx_cache_temp *t, const char *entry, bool *fresh, agx_why *why)
{
        _cleanup_(agx_closep) int held = -1;
        _cleanup_(agx_closep) int there = -1;
        char aside[32] = "";
        int r = lock(c, &held, why);

        *fresh = false;
        if (r)
                return r;
        r = agx_cache_open_entry(c, entry, &there, why);
        if (!r && bootstrapped(c, entry))
                return 0;
        if (r && r != AGX_CACHE_E_NONE)
                return r;
        r = there >= 0 ? put_aside(c, entry, aside) : 0;
        if (!r)
                r = rename_in(c, t, entry);
        if (*aside)
                (void)agx_walk_remove(c->dir, aside);
        *fresh = !r;
        return r ? agx_why_errno(why, r, "cannot put the bundle into the cache %s", c->path) : 0;
}

/* ---- deploying ---- */

static int fill(agx_cache *c, int fd, agx_cache_temp *t, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
                agx_deployed *d, agx_why *why)
{
        int r = agx_cache_temp_make(c, t, why);

        if (!r)
                r = agx_unpack(&d->unpacked, fd, t->fd, limits, hooks, why);
        if (!r)
                r = agx_cache_bundle_digest(t->fd, &d->unpacked.manifest, "the bundle", d->digest, why);
        if (!r && hooks->stop && hooks->stop(hooks->user))
                r = agx_why_set(why, "signal", "interrupted");
        return r;
}

static int name_result(agx_cache *c, const char *entry, agx_deployed *d)
{
        if (asprintf(&d->path, "%s/%s", c->path, entry) >= 0)
                return 0;
        d->path = NULL;
        return agx_trace(-ENOMEM);
}

/* A tar that was unpacked before and whose entry is there. */
static bool deploy_again(agx_cache *c, int fd, const struct stat *tar, const agx_unpack_limits *limits, agx_deployed *d)
{
        agx_why unused = AGX_WHY_NULL;
        char entry[AGX_DIGEST_SIZE];

        if (!agx_cache_seen(c, tar, d->digest))
                return false;
        snprintf(entry, sizeof(entry), "sha256-%s", d->digest + 7);
        if (bootstrapped(c, entry) && !agx_unpack_manifest(&d->unpacked, fd, limits, &unused) &&
            !name_result(c, entry, d))
                return true;
        agx_deployed_deinit(d);
        *d = (agx_deployed){0};
        return false;
}

static int deploy_new(agx_cache *c, int fd, const struct stat *tar, bool keep, const agx_unpack_limits *limits,
                      const agx_unpack_hooks *hooks, agx_deployed *d, agx_why *why)
{
        agx_cache_temp t = AGX_CACHE_TEMP_NULL;
        time_t began = time(NULL);
        char entry[AGX_DIGEST_SIZE];
        struct stat after;
        int r = agx_cache_sweep(c, NULL, why);

        if (!r)
                r = lseek(fd, 0, SEEK_SET) < 0 ? agx_why_errno(why, errno, "cannot read the bundle") : 0;
        if (!r)
                r = fill(c, fd, &t, limits, hooks, d, why);
        if (!r && keep) {
                snprintf(entry, sizeof(entry), "sha256-%s", d->digest + 7);
                r = commit(c, &t, entry, &d->fresh, why);
                if (!r)
                        r = name_result(c, entry, d);
                /* What was warned of is to be warned of again. */
                if (!r && !d->unpacked.omitted && !fstat(fd, &after))
                        agx_cache_see(c, tar, &after, began, d->digest);
        }
        agx_cache_temp_remove(c, &t);
        return r;
}

static int deploy(agx_cache *c, const char *tar, bool keep, const agx_unpack_limits *limits,
                  const agx_unpack_hooks *hooks, agx_deployed *d, agx_why *why)
{
        _cleanup_(agx_closep) int fd = -1;
        struct stat st;
        int r;

        *d = (agx_deployed){0};
        r = open_tar(tar, &fd, &st, why);
        if (!r && keep && deploy_again(c, fd, &st, limits, d))
                return 0;
        if (!r)
                r = deploy_new(c, fd, &st, keep, limits, hooks, d, why);
        if (r == AGX_WHY_E_TOLD && !strcmp(why->kind, "bundle") && fd >= 0)
                agx_why_wrap(why, "%s", tar);
        return r;
}

int agx_cache_deploy(agx_cache *c, const char *tar, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
                     agx_deployed *d, agx_why *why)
{
        return deploy(c, tar, true, limits, hooks, d, why);
}

int agx_cache_try(agx_cache *c, const char *tar, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
                  agx_deployed *d, agx_why *why)
{
        return deploy(c, tar, false, limits, hooks, d, why);
}

/* ---- removing ---- */

int agx_cache_remove(agx_cache *c, const char *name, agx_why *why)
{
        _cleanup_(agx_closep) int held = -1;
        _cleanup_(agx_closep) int there = -1;
        char aside[32];
        int r = lock(c, &held, why);

        if (!r)
                r = agx_cache_open_entry(c, name, &there, why);
        if (r)
                return r;
        r = flock(there, LOCK_EX | LOCK_NB) < 0 ? -errno : put_aside(c, name, aside);
        agx_closep(&held);
        if (!r)
                r = agx_walk_remove(c->dir, aside);
        return r ? agx_why_errno(why, r, "cannot remove %s/%s", c->path, name) : 0;
}

int agx_cache_sweep(agx_cache *c, unsigned *n, agx_why *why)
{
        int fd = openat(c->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;
        unsigned swept = 0;

        if (!dir) {
                int error = errno;

                agx_closep(&fd);
                return agx_why_errno(why, error, "cannot read the bundle cache %s", c->path);
        }
        while ((entry = readdir(dir)) != NULL) {
                swept += agx_cache_is_temp(entry->d_name) && agx_cache_temp_sweep(c, entry->d_name);
                agx_cache_forget(c, entry->d_name);
        }
        closedir(dir);
        if (n)
                *n = swept;
        return 0;
}
