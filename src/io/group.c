/*
 * Where the groups are is read from /proc/self/cgroup. A container may show the host's path there while only its own
 * group is mounted, so that path is tried first and the mount's root after it.
 *
 * Version 2 has `cgroup.kill`; where that is too new for the kernel, and in version 1, the group is frozen, its members are
 * signalled one by one, and it is let go again.
 */
#include "io/group.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { GROUP_MODE = 0755, GROUP_TEXT = 4096, GROUP_ROOTS = 4 };

typedef struct root {
        int version;
        char dir[AGX_GROUP_PATH];
} root;

static int open_in(const char *dir, const char *name, int flags)
{
        char path[AGX_GROUP_PATH + 64];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        return open(path, flags | O_CLOEXEC);
}

static bool put(const char *dir, const char *name, const char *text)
{
        _cleanup_(agx_closep) int fd = open_in(dir, name, O_WRONLY);

        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool read_text(const char *path, char *text, size_t size)
{
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);

        text[n > 0 ? n : 0] = 0;
        return n > 0;
}

/* The path in the line of /proc/self/cgroup that has `controller` between its colons; false: there is no such line. */
static bool path_of(const char *lines, const char *controller, char *path, size_t size)
{
        size_t n = strlen(controller);

        for (const char *line = lines; line; line = strchr(line, '\n')) {
                const char *first, *second;

                line += *line == '\n';
                first = strchr(line, ':');
                second = first ? strchr(first + 1, ':') : NULL;
                if (!second)
                        return false;
                if ((size_t)(second - first - 1) != n || strncmp(first + 1, controller, n) != 0)
                        continue;
                snprintf(path, size, "%.*s", (int)strcspn(second + 1, "\n"), second + 1);
                return true;
        }
        return false;
}

static bool is_v2(const char *mount)
{
        char path[AGX_GROUP_PATH];

        snprintf(path, sizeof(path), "%s/cgroup.procs", mount);
        return !access(path, F_OK);
}

/* The directories in which a group could be made, the best first; how many. */
static size_t find_roots(root roots[GROUP_ROOTS])
{
        char lines[GROUP_TEXT], path[AGX_GROUP_PATH / 2];
        const char *mount = "/sys/fs/cgroup";
        size_t n = 0;

        if (!read_text("/proc/self/cgroup", lines, sizeof(lines)))
                return 0;
        if (path_of(lines, "", path, sizeof(path))) {
                mount = is_v2(mount) ? mount : "/sys/fs/cgroup/unified";
                roots[n].version = 2;
                snprintf(roots[n++].dir, AGX_GROUP_PATH, "%s%s", mount, strcmp(path, "/") != 0 ? path : "");
                roots[n].version = 2;
                snprintf(roots[n++].dir, AGX_GROUP_PATH, "%s", mount);
        }
        if (path_of(lines, "freezer", path, sizeof(path))) {
                roots[n].version = 1;
                snprintf(roots[n++].dir, AGX_GROUP_PATH, "/sys/fs/cgroup/freezer%s",
                         strcmp(path, "/") != 0 ? path : "");
                roots[n].version = 1;
                snprintf(roots[n++].dir, AGX_GROUP_PATH, "/sys/fs/cgroup/freezer");
        }
        return n;
}

bool agx_group_make(agx_group *g, const char *name)
{
        root roots[GROUP_ROOTS];
        size_t n = *name ? find_roots(roots) : 0;

        for (size_t i = 0; i < n; i++) {
                int used = snprintf(g->dir, sizeof(g->dir), "%s/%s", roots[i].dir, name), door;

                if (used < 0 || (size_t)used >= sizeof(g->dir) || mkdir(g->dir, GROUP_MODE))
                        continue;
                g->version = roots[i].version;
                door = agx_group_door(g);
                if (door >= 0) {
                        close(door);
                        return true;
                }
                agx_group_remove(g); /* a plain directory, or one that nobody may enter */
        }
        g->version = 0;
        return false;
}

bool agx_group_find(agx_group *g, const char *name)
{
        root roots[GROUP_ROOTS];
        size_t n = find_roots(roots);

        for (size_t i = 0; i < n; i++) {
                int used = snprintf(g->dir, sizeof(g->dir), "%s/%s", roots[i].dir, name);

                g->version = roots[i].version;
                if (used > 0 && (size_t)used < sizeof(g->dir) && !access(g->dir, F_OK))
                        return true;
        }
        g->version = 0;
        return false;
}

int agx_group_door(const agx_group *g)
{
        return g->version ? open_in(g->dir, "cgroup.procs", O_WRONLY) : -1;
}

static pid_t fork_into(const agx_group *g)
{
        _cleanup_(agx_closep) int dir = open(g->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)dir};

        return dir < 0 ? -1 : (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

pid_t agx_group_fork(const agx_group *g)
{
        pid_t pid = g->version == 2 ? fork_into(g) : -1;
        int door;

        if (pid >= 0)
                return pid;
        pid = fork();
        door = pid ? -1 : agx_group_door(g);
        if (door >= 0 && write(door, "0", 1) < 0)
                errno = 0; /* then it is found by its parents alone */
        agx_closep(&door);
        return pid;
}

static void freeze(const agx_group *g, bool on)
{
        if (g->version == 2)
                put(g->dir, "cgroup.freeze", on ? "1" : "0");
        else
                put(g->dir, "freezer.state", on ? "FROZEN" : "THAWED");
}

static void kill_members(const agx_group *g)
{
        char path[AGX_GROUP_PATH + 64];
        FILE *file;
        int pid;

        snprintf(path, sizeof(path), "%s/cgroup.procs", g->dir);
        file = fopen(path, "re");
        while (file && fscanf(file, "%d", &pid) == 1)
                kill(pid, SIGKILL);
        if (file)
                fclose(file);
}

void agx_group_kill(const agx_group *g)
{
        if (!g->version || (g->version == 2 && put(g->dir, "cgroup.kill", "1")))
                return;
        freeze(g, true);
        kill_members(g);
        freeze(g, false);
}

void agx_group_remove(agx_group *g)
{
        if (g->version && (!rmdir(g->dir) || errno == ENOENT))
                g->version = 0;
}

void agx_group_sweep(const char *prefix)
{
        root roots[GROUP_ROOTS];
        size_t n = find_roots(roots);

        for (size_t i = 0; i < n; i++) {
                struct dirent *item;
                DIR *dir = opendir(roots[i].dir);

                while (dir && (item = readdir(dir)))
                        if (!strncmp(item->d_name, prefix, strlen(prefix)))
                                unlinkat(dirfd(dir), item->d_name, AT_REMOVEDIR);
                if (dir)
                        closedir(dir);
        }
}
