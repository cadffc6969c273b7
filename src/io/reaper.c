/*
 * Orphans: waitid() with WNOWAIT shows who is dead without taking it, so that a known child's status is never eaten.
 *
 * Descendants: as subreaper we become the parent of whatever loses its own, so killing our direct children again and
 * again reaches everybody, session leaders and double forks included. Where the kernel lists no children, the parent
 * numbers in /proc serve.
 */
#include "io/reaper.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REAPER_PAUSE_MS = 2 };

static struct {
        uv_signal_t signal;
        bool started;
        agx_list known;
} reaper = {.known = {&reaper.known, &reaper.known}};

void agx_reaper_know(agx_child *c)
{
        agx_list_push_back(&reaper.known, &c->node);
}

void agx_reaper_forget(agx_child *c)
{
        if (c->node.next)
                agx_list_unlink(&c->node);
}

static agx_child *known_by_pid(pid_t pid)
{
        agx_list_foreach_safe(node, &reaper.known)
        {
                agx_child *c = agx_container_of(node, agx_child, node);

                if (c->pid == pid)
                        return c;
        }
        return NULL;
}

static void on_sigchld(uv_signal_t *handle, int signum)
{
        (void)handle;
        (void)signum;
        for (;;) {
                siginfo_t info = {0};
                agx_child *c;

                if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || !info.si_pid)
                        return;
                c = known_by_pid(info.si_pid);
                if (c)
                        agx_child_check(c);
                else
                        waitpid(info.si_pid, NULL, WNOHANG);
        }
}

int agx_reaper_start(agx_loop *l)
{
        int r;

        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        r = uv_signal_init(&l->uv, &reaper.signal);
        if (!r)
                r = uv_signal_start(&reaper.signal, on_sigchld, SIGCHLD);
        if (r)
                return agx_trace(r);
        uv_unref((uv_handle_t *)&reaper.signal);
        reaper.started = true;
        return 0;
}

void agx_reaper_stop(void)
{
        if (reaper.started)
                uv_close((uv_handle_t *)&reaper.signal, NULL);
        reaper.started = false;
}

/* ---- the end ---- */

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

static int parent_of(int proc, const char *pid)
{
        char path[64], text[512];
        const char *after;
        int parent = 0;
        ssize_t n;
        _cleanup_(agx_closep) int fd = -1;

        snprintf(path, sizeof(path), "%.20s/stat", pid);
        fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return 0;
        text[n] = 0;
        after = strrchr(text, ')'); /* the name before it may hold anything */
        return after && sscanf(after, ") %*c %d", &parent) == 1 ? parent : 0;
}

static int kill_found(void)
{
        struct dirent *entry;
        DIR *proc = opendir("/proc");
        int n = 0;

        while (proc && (entry = readdir(proc))) {
                int pid = (int)strtol(entry->d_name, NULL, 10);

                if (pid > 0 && parent_of(dirfd(proc), entry->d_name) == (int)getpid()) {
                        kill(pid, SIGKILL);
                        n++;
                }
        }
        if (proc)
                closedir(proc);
        return n;
}

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

bool agx_reaper_kill_descendants(unsigned ms)
{
        uint64_t end = now_ms() + ms;
        struct timespec pause = {.tv_nsec = REAPER_PAUSE_MS * 1000000L};

        for (;;) {
                pid_t r;

                if (getpid() == 1)
                        kill(-1, SIGKILL); /* everybody else in our namespace */
                else if (kill_listed() < 0)
                        kill_found();
                do
                        r = waitpid(-1, NULL, WNOHANG);
                while (r > 0 || (r < 0 && errno == EINTR));
                if (r < 0)
                        return true; /* ECHILD: none left */
                if (now_ms() >= end)
                        return false;
                nanosleep(&pause, NULL);
        }
}
