/* Everything goes through the directory's own descriptor, so a name swapped underneath us leads nowhere. */
#include "server/statedir_uv.h"
#include "base/cleanup.h"
#include "base/err.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const names[] = {"token", "socket", "lock"};

int agx_statedir_init(agx_statedir *d, const char *path)
{
        struct stat info;
        int n;

        *d = (agx_statedir){.fd = -1, .lock = -1};
        n = snprintf(d->path, sizeof(d->path), "%s", path);
        if (n < 0 || (size_t)n >= sizeof(d->path))
                return agx_trace(-ENAMETOOLONG);
        if (mkdir(path, 0700) && errno != EEXIST)
                return agx_trace(-errno);
        d->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (d->fd < 0)
                return errno == ENOTDIR || errno == ELOOP ? AGX_STATEDIR_E_FOREIGN : agx_trace(-errno);
        if (fstat(d->fd, &info) || info.st_uid != geteuid() || (info.st_mode & 0777) != 0700)
                return AGX_STATEDIR_E_FOREIGN;
        d->lock = openat(d->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (d->lock < 0)
                return agx_trace(-errno);
        return flock(d->lock, LOCK_EX | LOCK_NB) ? AGX_STATEDIR_E_LOCKED : 0;
}

void agx_statedir_deinit(agx_statedir *d)
{
        agx_closep(&d->lock);
        agx_closep(&d->fd);
}

void agx_statedir_remove(agx_statedir *d)
{
        if (d->fd < 0)
                return;
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                unlinkat(d->fd, names[i], 0);
        rmdir(d->path);
        agx_statedir_deinit(d);
}
