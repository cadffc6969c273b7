/*
 * clone3 gives the pidfd without a race; where a sandbox refuses it, fork and pidfd_open do, and where there is no
 * pidfd at all the reaper's SIGCHLD finds the dead. Between fork and exec only plain system calls are made: the child
 * shares nothing, but it must not touch a lock or the allocator either.
 *
 * All descriptors the child is to keep are first moved above the low numbers, so that putting one in its place cannot
 * overwrite another.
 */
#include "io/child.h"
#include "base/cleanup.h"
#include "io/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILD_FDS = 6, CHILD_FD_FLOOR = 16, OOM_SCORE_MAX = 1000, CHILD_FD_SCAN = 65536 };

/* ---- in the child, between fork and exec ---- */

/* Straight to the kernel: the C library does not let go of the two signals it keeps for itself, yet they may be
 * inherited as ignored. All zeros is the kernel's default action. */
static void child_signals(void)
{
        const uint64_t by_default[4] = {0};
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                syscall(SYS_rt_sigaction, i, by_default, NULL, sizeof(uint64_t));
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child_oom_score(int add)
{
        char text[16] = {0};
        long score = 0;
        ssize_t written;
        int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC), n = 0;

        if (fd < 0)
                return;
        if (read(fd, text, sizeof(text) - 1) > 0)
                score = strtol(text, NULL, 10);
        score = score + add > OOM_SCORE_MAX ? OOM_SCORE_MAX : score + add;
        n = snprintf(text, sizeof(text), "%ld", score);
        written = write(fd, text, (size_t)n);
        (void)written; /* else it stays as it was: no reason not to start */
        close(fd);
}

static void child_limit(__rlimit_resource_t resource, uint64_t soft)
{
        struct rlimit limit;

        if (getrlimit(resource, &limit))
                return;
        limit.rlim_cur = (rlim_t)soft < limit.rlim_max ? (rlim_t)soft : limit.rlim_max;
        setrlimit(resource, &limit);
}

/* Nothing above `keep` survives the exec. */
static void child_close_above(int keep)
{
        if (!syscall(SYS_close_range, keep + 1, ~0U, CLOSE_RANGE_CLOEXEC))
                return;
        for (int fd = keep + 1; fd < CHILD_FD_SCAN; fd++)
                fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static int child_descriptors(const int *fds, int *error_fd)
{
        int high[CHILD_FDS], last = 2, moved = fcntl(*error_fd, F_DUPFD_CLOEXEC, CHILD_FD_FLOOR);

        if (moved < 0)
                return -errno; /* the old one still works, and tells */
        *error_fd = moved;
        while (last + 1 < CHILD_FDS && fds[last + 1] >= 0)
                last++;
        for (int i = 0; i <= last; i++) {
                int fd = fds[i] >= 0 ? fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

                high[i] = fcntl(fd, F_DUPFD_CLOEXEC, CHILD_FD_FLOOR);
                if (high[i] < 0)
                        return -errno;
        }
        for (int i = 0; i <= last; i++)
                if (dup2(high[i], i) < 0)
                        return -errno;
        child_close_above(last);
        return 0;
}

static int child_run(const agx_child_spec *spec, pid_t parent, int *error_fd)
{
        int r;

        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); /* else /proc/self belongs to root; the exec would set it anyway */
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
                return -ECHILD; /* it died before the line above */
        child_signals();
        setsid();
        if (spec->oom_score_add)
                child_oom_score(spec->oom_score_add);
        child_limit(RLIMIT_CORE, spec->core_limit);
        child_limit(RLIMIT_NOFILE, spec->nofile_limit);
        r = child_descriptors(spec->fds, error_fd);
        if (r)
                return r;
        execve(spec->path, spec->argv, spec->envp);
        return -errno;
}

static _Noreturn void child_main(const agx_child_spec *spec, pid_t parent, int error_fd)
{
        int error = -child_run(spec, parent, &error_fd);

        if (write(error_fd, &error, sizeof(error)) < 0)
                error = 0;
        _exit(127);
}

/* ---- in the parent ---- */

static pid_t fork_with_pidfd(int *pidfd)
{
        struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)pidfd, .exit_signal = SIGCHLD};
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

        if (pid >= 0 || (errno != ENOSYS && errno != EPERM && errno != EINVAL))
                return pid;
        pid = fork();
        if (pid > 0)
                *pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        return pid;
}

/* Forks with every signal blocked, so that none of our handlers runs in the child. */
static int start(agx_child *c, const agx_child_spec *spec, int error_fd)
{
        sigset_t all, before;
        pid_t parent = getpid();

        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &before);
        c->pid = fork_with_pidfd(&c->pidfd);
        if (!c->pid)
                child_main(spec, parent, error_fd);
        sigprocmask(SIG_SETMASK, &before, NULL);
        return c->pid < 0 ? agx_trace(-errno) : 0;
}

static void on_pidfd(uv_poll_t *handle, int status, int events)
{
        (void)status;
        (void)events;
        agx_child_check(agx_container_of(handle, agx_child, watch));
}

static void watch(agx_child *c)
{
        if (c->pidfd < 0 || uv_poll_init(&c->loop->uv, &c->watch, c->pidfd))
                return;
        c->watching = true;
        uv_poll_start(&c->watch, UV_READABLE, on_pidfd);
}

int agx_child_spawn(agx_child *c, agx_loop *l, const agx_child_spec *spec, void (*exited)(agx_child *self))
{
        int ends[2], r;

        *c = (agx_child){.loop = l, .pidfd = -1, .exec_pipe = -1, .exited = exited};
        if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
                return agx_trace(-errno);
        r = start(c, spec, ends[1]);
        close(ends[1]);
        if (r) {
                close(ends[0]);
                return r;
        }
        c->exec_pipe = ends[0];
        agx_reaper_know(c);
        watch(c);
        return 0;
}

void agx_child_kill(agx_child *c, int signal, bool group)
{
        if (c->dead || c->pid <= 0)
                return;
        if (group)
                kill(-c->pid, signal);
        kill(c->pid, signal); /* it is not reaped yet, so the number is still its own */
}

static void stop_watching(agx_child *c)
{
        if (c->watching)
                uv_poll_stop(&c->watch);
}

bool agx_child_check(agx_child *c)
{
        pid_t r;

        if (c->dead)
                return true;
        do
                r = waitpid(c->pid, &c->status, WNOHANG);
        while (r < 0 && errno == EINTR);
        if (!r)
                return false;
        if (r < 0)
                c->status = 0; /* somebody else reaped it: how it ended is not known */
        c->dead = true;
        agx_reaper_forget(c);
        stop_watching(c);
        if (read(c->exec_pipe, &c->exec_error, sizeof(c->exec_error)) != (ssize_t)sizeof(c->exec_error))
                c->exec_error = 0;
        if (!c->closing)
                c->exited(c);
        return true;
}

static void on_closed(uv_handle_t *handle)
{
        agx_child *c = agx_container_of(handle, agx_child, watch);

        agx_closep(&c->pidfd);
        if (c->closed)
                c->closed(c);
}

void agx_child_close(agx_child *c, void (*closed)(agx_child *self))
{
        c->closing = true;
        if (!c->dead && c->pid > 0)
                agx_child_kill(c, SIGKILL, true);
        agx_child_leave(c, closed);
}

void agx_child_leave(agx_child *c, void (*closed)(agx_child *self))
{
        c->closing = true;
        c->closed = closed;
        if (!c->dead && c->pid > 0 && !agx_child_check(c))
                agx_reaper_forget(c);
        agx_closep(&c->exec_pipe);
        if (c->watching) {
                uv_close((uv_handle_t *)&c->watch, on_closed);
                return;
        }
        agx_closep(&c->pidfd);
        if (closed)
                closed(c);
}
