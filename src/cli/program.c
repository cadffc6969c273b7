/*
 * fork and exec, since the process is small and has one thread, and a child must be bound to our life before it runs
 * anything. A pipe that closes on exec carries the errno of a failed exec. The end is what the pidfd says; then what lies
 * in the pipes is taken and they are closed, whoever else may still hold them.
 */
#include "cli/program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

enum { OUT, ERR, ANSWER, EXEC, PIPES };

typedef struct job {
        const agx_program_spec *spec;
        agx_program *run;
        int read[PIPES];
        int write[PIPES];
        pid_t pid;
        int pidfd;
        int exec_error;
} job;

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void close_all(job *j)
{
        for (int i = 0; i < PIPES; i++) {
                agx_closep(&j->read[i]);
                agx_closep(&j->write[i]);
        }
        agx_closep(&j->pidfd);
}

static bool wanted(const agx_program_spec *spec, int pipe)
{
        return pipe == EXEC || (pipe == OUT && !spec->pass_out) || (pipe == ERR && !spec->pass_err) ||
               (pipe == ANSWER && spec->answer);
}

static int open_pipes(job *j)
{
        for (int i = 0; i < PIPES; i++) {
                int fds[2];

                if (!wanted(j->spec, i))
                        continue;
                if (pipe2(fds, O_CLOEXEC) < 0)
                        return -errno;
                j->read[i] = fds[0];
                /* Out of the way of 0 to 3, which the child fills. */
                j->write[i] = fcntl(fds[1], F_DUPFD_CLOEXEC, 10);
                close(fds[1]);
                if (j->write[i] < 0)
                        return -errno;
        }
        return 0;
}

static void reset_signals(void)
{
        sigset_t none;

        for (int i = 1; i < NSIG; i++)
                signal(i, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void child_fails(const job *j, int error)
{
        ssize_t n = write(j->write[EXEC], &error, sizeof(error));

        (void)n;
        _exit(127);
}

/* Everything between fork and exec. */
static _Noreturn void run_child(const job *j, pid_t parent)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        int out = j->write[OUT] >= 0 ? j->write[OUT] : STDERR_FILENO;

        reset_signals();
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || null < 0)
                child_fails(j, errno);
        if (getppid() != parent)
                _exit(127);
        if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || (j->write[ERR] >= 0 && dup2(j->write[ERR], 2) < 0))
                child_fails(j, errno);
        if (j->write[ANSWER] >= 0 && dup2(j->write[ANSWER], 3) < 0)
                child_fails(j, errno);
        if (j->spec->cwd && chdir(j->spec->cwd) < 0)
                child_fails(j, errno);
        execvpe(j->spec->argv[0], j->spec->argv, j->spec->envp ? j->spec->envp : environ);
        child_fails(j, errno);
}

static int start(job *j)
{
        pid_t parent = getpid();

        j->pid = fork();
        if (j->pid < 0)
                return -errno;
        if (!j->pid)
                run_child(j, parent);
        for (int i = 0; i < PIPES; i++)
                agx_closep(&j->write[i]);
        j->pidfd = (int)syscall(SYS_pidfd_open, j->pid, 0);
        return 0;
}

/* Keeps what fits; `cut` remembers that something did not. */
static void keep(agx_buf *b, bool *cut, const char *bytes, size_t n)
{
        size_t room = b->max - b->len;

        if (n > room) {
                *cut = true;
                n = room;
        }
        if (n && agx_buf_append(b, bytes, n))
                *cut = true;
}

static void take(job *j, int pipe, const char *bytes, size_t n)
{
        switch (pipe) {
        case OUT:
                keep(&j->run->out, &j->run->out_cut, bytes, n);
                return;
        case ERR:
                keep(&j->run->err, &j->run->err_cut, bytes, n);
                return;
        case ANSWER:
                keep(&j->run->answer, &j->run->answer_cut, bytes, n);
                return;
        default:
                if (n == sizeof(j->exec_error))
                        memcpy(&j->exec_error, bytes, n);
        }
}

/* False when the pipe has ended. */
static bool drain_once(job *j, int pipe)
{
        char bytes[64 << 10];
        ssize_t n = read(j->read[pipe], bytes, sizeof(bytes));

        if (n > 0)
                take(j, pipe, bytes, (size_t)n);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return n > 0;
        agx_closep(&j->read[pipe]);
        return false;
}

static bool any_open(const job *j)
{
        for (int i = 0; i < PIPES; i++)
                if (j->read[i] >= 0)
                        return true;
        return false;
}

static void drain_rest(job *j)
{
        for (int i = 0; i < PIPES; i++) {
                if (j->read[i] < 0)
                        continue;
                fcntl(j->read[i], F_SETFL, O_NONBLOCK);
                for (int turns = 0; turns < 64 && drain_once(j, i); turns++)
                        ;
        }
}

static int reap(job *j)
{
        while (waitpid(j->pid, &j->run->status, 0) < 0)
                if (errno != EINTR)
                        return -errno;
        return 0;
}

static int time_left(const job *j, uint64_t end)
{
        uint64_t now = now_ms();

        if (!j->spec->timeout_ms)
                return -1;
        return now >= end ? 0 : (int)(end - now > 1u << 30 ? 1u << 30 : end - now);
}

static int listen_to(job *j)
{
        uint64_t end = now_ms() + j->spec->timeout_ms;

        while (j->pidfd >= 0 || any_open(j)) {
                struct pollfd fds[PIPES + 1];
                int n;

                for (int i = 0; i < PIPES; i++)
                        fds[i] = (struct pollfd){.fd = j->read[i], .events = POLLIN};
                fds[PIPES] = (struct pollfd){.fd = j->pidfd, .events = POLLIN};
                n = poll(fds, PIPES + 1, j->run->timed_out ? -1 : time_left(j, end));
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0) {
                        j->run->timed_out = true;
                        kill(j->pid, SIGKILL);
                }
                for (int i = 0; n > 0 && i < PIPES; i++)
                        if (fds[i].revents)
                                (void)drain_once(j, i);
                if (n > 0 && fds[PIPES].revents)
                        break;
        }
        return 0;
}

int agx_program_run(agx_program *r, const agx_program_spec *spec)
{
        job j = {.spec = spec, .run = r, .pid = -1, .pidfd = -1, .read = {-1, -1, -1, -1}, .write = {-1, -1, -1, -1}};
        int e;

        *r = (agx_program){.out = AGX_BUF_NULL(spec->keep),
                           .err = AGX_BUF_NULL(spec->keep),
                           .answer = AGX_BUF_NULL(spec->keep)};
        e = open_pipes(&j);
        if (!e)
                e = start(&j);
        if (!e) {
                e = listen_to(&j);
                if (e)
                        kill(j.pid, SIGKILL);
                else
                        drain_rest(&j);
                e = reap(&j) ? -ECHILD : e;
        }
        close_all(&j);
        if (!e && j.exec_error)
                e = j.exec_error == ENOENT || j.exec_error == ENOTDIR ? AGX_PROGRAM_E_NOT_FOUND : -j.exec_error;
        return e;
}

void agx_program_deinit(agx_program *r)
{
        agx_buf_deinit(&r->out);
        agx_buf_deinit(&r->err);
        agx_buf_deinit(&r->answer);
}

int agx_program_code(const agx_program *r)
{
        return WIFSIGNALED(r->status) ? 128 + WTERMSIG(r->status) : WEXITSTATUS(r->status);
}
