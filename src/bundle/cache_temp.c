/*
 * Directories that are not entries. Each is locked by whoever fills or empties it; a lock nobody holds means that its
 * process was killed. Between making one and locking it another process may take it for such a leftover, so the maker
 * looks again once it has the lock.
 */
#include "bundle/cache_dir.h"

#include "base/err.h"
#include "bundle/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

bool agx_cache_is_temp(const char *name)
{
        return !strncmp(name, ".tmp-", 5);
}

int agx_cache_temp_name(char name[32])
{
        unsigned char raw[8];
        size_t n = 0;

        if (getrandom(raw, sizeof(raw), 0) != sizeof(raw))
                return -errno;
        n += (size_t)snprintf(name, 32, ".tmp-");
        for (size_t i = 0; i < sizeof(raw); i++)
                n += (size_t)snprintf(name + n, 32 - n, "%02x", raw[i]);
        return 0;
}

/* Whether the name still leads to the directory behind the descriptor. */
static bool still_there(const agx_cache *c, const char *name, int fd)
{
        struct stat by_fd, by_name;

        return !fstat(fd, &by_fd) && !fstatat(c->dir, name, &by_name, AT_SYMLINK_NOFOLLOW) &&
               by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev;
}

static int lock_new(const agx_cache *c, agx_cache_temp *t)
{
        t->fd = openat(c->dir, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (t->fd < 0)
                return errno == ENOENT ? -EAGAIN : -errno;
        if (!flock(t->fd, LOCK_EX | LOCK_NB) && still_there(c, t->name, t->fd))
                return 0;
        agx_closep(&t->fd);
        return -EAGAIN;
}

int agx_cache_temp_make(const agx_cache *c, agx_cache_temp *t, agx_why *why)
{
        int r = -EAGAIN;

        *t = AGX_CACHE_TEMP_NULL;
        for (int tries = 0; r == -EAGAIN && tries < 100; tries++) {
                r = agx_cache_temp_name(t->name);
                if (!r && mkdirat(c->dir, t->name, 0700) < 0)
                        r = errno == EEXIST ? -EAGAIN : -errno;
                if (!r)
                        r = lock_new(c, t);
        }
        return r ? agx_why_errno(why, r, "cannot make a directory in the bundle cache %s", c->path) : 0;
}

void agx_cache_temp_remove(const agx_cache *c, agx_cache_temp *t)
{
        if (t->fd >= 0)
                (void)agx_walk_remove(c->dir, t->name);
        agx_closep(&t->fd);
}

bool agx_cache_temp_sweep(const agx_cache *c, const char *name)
{
        _cleanup_(agx_closep) int fd = openat(c->dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return errno == ENOTDIR && !agx_walk_remove(c->dir, name);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0 || !still_there(c, name, fd))
                return false;
        return !agx_walk_remove(c->dir, name);
}
