/*
 * Children: the kernel lists them; where it does not, the parent numbers in /proc serve. A child that is killed hands its
 * own children to us, so a caller that goes on until there is none reaches everybody, one level a round.
 *
 * Everybody: one walk over /proc gives pairs of process and parent; whoever has a marked parent is marked, until that changes
 * nothing. Numbers may be used anew between the walk and the signal, but not so soon, and only processes that had us as
 * ancestor a moment ago are signalled.
 */
#include "io/tree.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

enum { TREE_PROCESSES = 16384 }; /* that one walk tells apart; the next walk finds the others */

typedef struct entry {
        pid_t pid, parent;
        bool below;
} entry;

/* Kills the children the kernel lists; -1: it lists none. */
static int kill_listed(void)
{
        char path[64];
        FILE *file;
        int pid, n = 0;

        snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
        file = fopen(path, "re");
        if (!file)
                return -1;
        while (fscanf(file, "%d", &pid) == 1) {
                kill(pid, SIGKILL);
                n++;
        }
        fclose(file);
        return n;
}

/* What stands in `path`/stat behind the name: a process's state and parent. */
static bool read_stat(int dir, const char *path, char *state, int *parent)
{
        char text[512];
        const char *after;
        ssize_t n;
        _cleanup_(agx_closep) int fd = openat(dir, path, O_RDONLY | O_CLOEXEC);

        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return false;
        text[n] = 0;
        after = strrchr(text, ')'); /* the name before it may hold anything */
        return after && sscanf(after, ") %c %d", state, parent) == 2;
}

static pid_t parent_of(int proc, const char *pid)
{
        char path[64], state;
        int parent;

        snprintf(path, sizeof(path), "%.20s/stat", pid);
        return read_stat(proc, path, &state, &parent) ? parent : 0;
}

bool agx_tree_is_stopped(pid_t pid)
{
        char path[64], state;
        int parent;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        return read_stat(AT_FDCWD, path, &state, &parent) && (state == 'T' || state == 't');
}

/* Every process but us, with its parent. */
static size_t walk(entry *list, size_t max)
{
        struct dirent *item;
        DIR *proc = opendir("/proc");
        size_t n = 0;

        while (proc && n < max && (item = readdir(proc))) {
                pid_t pid = (pid_t)strtol(item->d_name, NULL, 10);

                if (pid > 0 && pid != getpid())
                        list[n++] = (entry){.pid = pid, .parent = parent_of(dirfd(proc), item->d_name)};
        }
        if (proc)
                closedir(proc);
        return n;
}

static bool is_marked(const entry *list, size_t n, pid_t pid)
{
        for (size_t i = 0; i < n; i++)
                if (list[i].pid == pid)
                        return list[i].below;
        return false;
}

/* Marks whoever has us or a marked one as parent; whether that was anybody. */
static bool mark(entry *list, size_t n)
{
        bool some = false;

        for (size_t i = 0; i < n; i++) {
                if (list[i].below || (list[i].parent != getpid() && !is_marked(list, n, list[i].parent)))
                        continue;
                list[i].below = true;
                some = true;
        }
        return some;
}

static int kill_marked(const entry *list, size_t n)
{
        int killed = 0;

        for (size_t i = 0; i < n; i++) {
                if (!list[i].below)
                        continue;
                kill(list[i].pid, SIGKILL);
                killed++;
        }
        return killed;
}

int agx_tree_kill_below(void)
{
        _cleanup_(agx_freep) entry *list = calloc(TREE_PROCESSES, sizeof(*list));
        size_t n = list ? walk(list, TREE_PROCESSES) : 0;

        while (n && mark(list, n))
                ;
        return n ? kill_marked(list, n) : 0;
}

static int kill_found(void)
{
        _cleanup_(agx_freep) entry *list = calloc(TREE_PROCESSES, sizeof(*list));
        size_t n = list ? walk(list, TREE_PROCESSES) : 0;

        for (size_t i = 0; i < n; i++)
                list[i].below = list[i].parent == getpid();
        return n ? kill_marked(list, n) : 0;
}

int agx_tree_kill_children(void)
{
        int n = kill_listed();

        return n < 0 ? kill_found() : n;
}
