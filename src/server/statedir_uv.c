/* Everything goes through the directory's own descriptor, so a name swapped underneath us leads nowhere. */
#include "server/statedir_uv.h"
#include "base/cleanup.h"
#include "base/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STATEDIR_DEPTH_MAX = 100 };

/* What a provider may have put there before the server starts. Anything else means that somebody gave us the wrong
 * directory, his home perhaps. */
static const char *const expected[] = {".",    "..",  "token", "socket",       "lock",
                                       "work", "tmp", "host",  "sandbox.json", "sandbox.json.new"};

static bool is_expected(const char *name)
{
        for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
                if (!strcmp(expected[i], name))
                        return true;
        return false;
}

static int check_entries(int fd)
{
        int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        DIR *entries = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;

        if (!entries) {
                r = agx_trace(-errno);
                agx_closep(&copy);
                return r;
        }
        while (!r && (entry = readdir(entries)))
                if (!is_expected(entry->d_name))
                        r = AGX_STATEDIR_E_USED;
        closedir(entries);
        return r;
}

int agx_statedir_init(agx_statedir *d, const char *path)
{
        struct stat info;
        int n, r;

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
        r = check_entries(d->fd);
        if (r)
                return r;
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

static void remove_entries(int fd, dev_t device, int depth);

/* Opens the directory `name` itself, never what a link of that name points to, whatever its mode keeps from us. */
static int open_entry(int fd, const char *name)
{
        _cleanup_(agx_closep) int there = openat(fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        char path[64];

        if (there < 0)
                return -1;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", there);
        chmod(path, 0700);
        return openat(there, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* `name` in the directory `fd`, whatever it is. */
static void remove_entry(int fd, const char *name, dev_t device, int depth)
{
        struct stat info;
        int inner;

        if (!unlinkat(fd, name, 0) || depth >= STATEDIR_DEPTH_MAX)
                return;
        inner = open_entry(fd, name);
        if (inner < 0)
                return;
        if (!fstat(inner, &info) && info.st_dev == device)
                remove_entries(inner, device, depth + 1);
        else
                close(inner);
        unlinkat(fd, name, AT_REMOVEDIR);
}

/* Takes `fd` over. */
static void remove_entries(int fd, dev_t device, int depth)
{
        DIR *entries = fdopendir(fd);
        struct dirent *entry;

        if (!entries) {
                close(fd);
                return;
        }
        while ((entry = readdir(entries)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        remove_entry(fd, entry->d_name, device, depth);
        closedir(entries);
}

void agx_statedir_remove(agx_statedir *d)
{
        struct stat info;
        int fd;

        if (d->fd < 0)
                return;
        fd = fstat(d->fd, &info) ? -1 : fcntl(d->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
                remove_entries(fd, info.st_dev, 0);
        rmdir(d->path);
        agx_statedir_deinit(d);
}
