/*
 * Everything here runs in a child that has not yet executed anything, and allocates nothing it would have to free.
 *
 * Root needs no user namespace, unless it is root only by name, as in most containers; then the user namespace is tried.
 * Inside a user namespace only whole trees may be bound (MS_REC): the kernel does not let us see what a mount of its owner
 * covers. The identity is mapped to itself, so files keep their owner and the programs started lose the capabilities.
 */
#include "bundle/jail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int write_text(const char *path, const char *text)
{
        _cleanup_(agx_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

static int new_user(uid_t uid, gid_t gid)
{
        char map[64];
        int r;

        if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
                return -errno;
        (void)write_text("/proc/self/setgroups", "deny");
        snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)gid, (unsigned)gid);
        r = write_text("/proc/self/gid_map", map);
        snprintf(map, sizeof(map), "%u %u 1\n", (unsigned)uid, (unsigned)uid);
        return r ? r : write_text("/proc/self/uid_map", map);
}

static int new_namespace(void)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();

        if (uid == 0 && unshare(CLONE_NEWNS) == 0)
                return 0;
        return new_user(uid, gid);
}

/* Binds `from` to `to`, whose kind is that of `from`. */
static int bind_entry(const char *from, const char *to)
{
        struct stat st;

        if (stat(from, &st))
                return -errno;
        if (S_ISDIR(st.st_mode)) {
                if (mkdir(to, 0755) && errno != EEXIST)
                        return -errno;
        } else {
                int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

                if (fd < 0)
                        return -errno;
                close(fd);
        }
        return mount(from, to, NULL, MS_BIND | MS_REC, NULL) ? -errno : 0;
}

static int mirror(const char *root, const char *name)
{
        char from[PATH_MAX], to[PATH_MAX], target[PATH_MAX];
        struct stat st;
        ssize_t n;

        if (snprintf(from, sizeof(from), "/%s", name) >= (int)sizeof(from) ||
            snprintf(to, sizeof(to), "%s/%s", root, name) >= (int)sizeof(to))
                return -ENAMETOOLONG;
        if (lstat(from, &st))
                return 0; /* gone, or not for us to see */
        if (!S_ISLNK(st.st_mode))
                return bind_entry(from, to);
        n = readlink(from, target, sizeof(target) - 1);
        if (n < 0)
                return -errno;
        target[n] = 0;
        return symlink(target, to) ? -errno : 0;
}

static int mirror_all(const char *root)
{
        DIR *dir = opendir("/");
        struct dirent *entry;
        int r = 0;

        if (!dir)
                return -errno;
        while (!r && (entry = readdir(dir)))
                if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, "nix"))
                        r = mirror(root, entry->d_name);
        closedir(dir);
        return r;
}

static int make_parents(char *path, size_t from)
{
        for (size_t i = from; path[i]; i++)
                if (path[i] == '/' && i > from) {
                        path[i] = 0;
                        if (mkdir(path, 0755) && errno != EEXIST)
                                return -errno;
                        path[i] = '/';
                }
        return 0;
}

static int bind_extra(const agx_jail *jail, const agx_jail_bind *extra)
{
        char to[PATH_MAX];
        int r;

        if (snprintf(to, sizeof(to), "%s%s", jail->root, extra->to) >= (int)sizeof(to))
                return -ENAMETOOLONG;
        r = make_parents(to, strlen(jail->root) + 1);
        return r ? r : bind_entry(extra->from, to);
}

static int fill(const agx_jail *jail)
{
        char to[PATH_MAX];
        int r;

        if (jail->kind == AGX_JAIL_MACHINE)
                r = mirror_all(jail->root);
        else
                r = mirror(jail->root, "proc") ? -errno : mirror(jail->root, "dev");
        if (!r && snprintf(to, sizeof(to), "%s/nix", jail->root) >= (int)sizeof(to))
                r = -ENAMETOOLONG;
        if (!r)
                r = bind_entry(jail->nix, to);
        for (size_t i = 0; !r && i < jail->n_binds; i++)
                r = bind_extra(jail, &jail->binds[i]);
        return r;
}

/* Where the root is an initial ramdisk it cannot be pivoted; then a chroot must do. */
static int change_root(const char *root)
{
        if (chdir(root))
                return -errno;
        if (syscall(SYS_pivot_root, ".", ".") == 0) {
                if (umount2(".", MNT_DETACH))
                        return -errno;
        } else if (chroot(".")) {
                return -errno;
        }
        return chdir("/") ? -errno : 0;
}

int agx_jail_enter(const agx_jail *jail, const char **step)
{
        int r;

        if (jail->kind == AGX_JAIL_NONE)
                return 0;
        *step = "making a mount namespace";
        r = new_namespace();
        if (r)
                return r;
        *step = "mounting a private root";
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("tmpfs", jail->root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m"))
                return -errno;
        *step = "filling the private root";
        r = fill(jail);
        if (r)
                return r;
        *step = "changing the root";
        return change_root(jail->root);
}

bool agx_jail_forbidden(int error)
{
        switch (error < 0 ? -error : error) {
        case EPERM:
        case EACCES:
        case ENOSPC: /* user.max_user_namespaces is 0 */
        case EUSERS:
        case ENOSYS:
        case EINVAL:
                return true;
        default:
                return false;
        }
}
