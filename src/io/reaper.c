/*
 * Orphans: waitid() with WNOWAIT shows who is dead without taking it, so that a known child's status is never eaten.
 *
 * Descendants: as subreaper we become the parent of whatever loses its own, so killing our direct children again and
 * again reaches everybody, session leaders and double forks included. Where the kernel lists no children, the parent
 * numbers in /proc serve.
 */
#include "io/reaper.h"
#include "io/tree.h"

#include <errno.h>
#include <signal.h>
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
                else
                        agx_tree_kill_children();
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
