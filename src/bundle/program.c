/*
 * fork and exec, since the process is small and has one thread, and a child must be bound to our life before it runs
 * anything. A pipe that closes on exec tells why exec was never come to. The end is what the pidfd says; then what lies
 * in the pipes is taken and they are closed, whoever else may still hold them.
 */
#include "bundle/program.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Pipes that are read from, and the one that is written to. */
enum { OUT, ERR, ANSWER, EXEC, READ, IN = READ, PIPES };

/* What the child says when it does not come to exec. */
typedef struct report {
        int error;
        const char *step; /* valid in parent and child alike: same image */
        bool jail;
} report;

typedef struct job {
        const agx_program_spec *spec;
        agx_program *run;
        char *path;
        int ours[PIPES], theirs[PIPES];
        agx_view input; /* what is still to be fed */
        pid_t pid;
        int pidfd;
        report failed;
} job;

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

char *agx_program_find(const char *name)
{
        const char *path = getenv("PATH");
        agx_view rest = agx_view_str(path ? path : "/usr/local/bin:/usr/bin:/bin"), part;

        if (strchr(name, '/'))
                return access(name, X_OK) ? NULL : strdup(name);
        while (agx_view_split(&rest, ':', &part)) {
                char full[PATH_MAX];
                struct stat st;

                if (!part.n || snprintf(full, sizeof(full), "%.*s/%s", (int)part.n, part.p, name) >= (int)sizeof(full))
                        continue;
                if (!access(full, X_OK) && !stat(full, &st) && S_ISREG(st.st_mode))
                        return strdup(full);
        }
        return NULL;
}

/* ---- pipes ---- */

static void close_all(job *j)
{
        for (int i = 0; i < PIPES; i++) {
                agx_closep(&j->ours[i]);
                agx_closep(&j->theirs[i]);
        }
        agx_closep(&j->pidfd);
}

static bool wanted(const agx_program_spec *spec, int pipe)
{
        return pipe == EXEC || (pipe == OUT && !spec->pass_out) || (pipe == ERR && !spec->pass_err) ||
               (pipe == ANSWER && spec->answer) || (pipe == IN && spec->input.p);
}

static int open_pipe(job *j, int i)
{
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return -errno;
        j->ours[i] = fds[i == IN];
        /* Out of the way of 0 to 3, which the child fills. */
        j->theirs[i] = fcntl(fds[i != IN], F_DUPFD_CLOEXEC, 10);
        close(fds[i != IN]);
        return j->theirs[i] < 0 ? -errno : 0;
}

static int open_pipes(job *j)
{
        int r = 0;

        for (int i = 0; !r && i < PIPES; i++)
                if (wanted(j->spec, i))
                        r = open_pipe(j, i);
        if (!r && j->ours[IN] >= 0)
                r = fcntl(j->ours[IN], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
        return r;
}

/* ---- the child ---- */

static _Noreturn void give_up(const job *j, int error, const char *step, bool jail)
{
        report r = {.error = error, .step = step, .jail = jail};
        ssize_t n = write(j->theirs[EXEC], &r, sizeof(r));

        (void)n;
        _exit(127);
}

static void set_streams(const job *j)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        int passed = j->spec->quiet ? null : STDERR_FILENO;
        int in = j->theirs[IN] >= 0 ? j->theirs[IN] : null, out = j->theirs[OUT] >= 0 ? j->theirs[OUT] : passed,
            err = j->theirs[ERR] >= 0 ? j->theirs[ERR] : passed;

        if (null < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 ||
            (j->theirs[ANSWER] >= 0 && dup2(j->theirs[ANSWER], 3) < 0))
                give_up(j, errno, "opening its streams", false);
        /* What we were started with is not the program's; on kernels that lack the call it stays. */
        (void)syscall(SYS_close_range, j->theirs[ANSWER] >= 0 ? 4u : 3u, ~0u, CLOSE_RANGE_CLOEXEC);
}

/* Everything between fork and exec. What our parent has us ignore stays ignored, but for what we do ourselves. */
static _Noreturn void be_child(const job *j, pid_t parent)
{
        const agx_program_spec *spec = j->spec;
        const char *step = "starting it";
        sigset_t none;
        int r;

        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                give_up(j, errno, "binding it to our life", false);
        if (getppid() != parent)
                _exit(127);
        set_streams(j);
        r = spec->jail ? agx_jail_enter(spec->jail, &step) : 0;
        if (r)
                give_up(j, -r, step, true);
        if (spec->cwd && chdir(spec->cwd))
                give_up(j, errno, "entering its directory", false);
        execve(j->path ? j->path : spec->argv[0], spec->argv, spec->envp ? spec->envp : environ);
        give_up(j, errno, "starting it", false);
}

static int start(job *j)
{
        pid_t parent = getpid();

        j->path = agx_program_find(j->spec->argv[0]);
        if (!j->path && !strchr(j->spec->argv[0], '/')) {
                j->failed = (report){ENOENT, "starting it", false};
                return AGX_PROGRAM_E_NOT_FOUND;
        }
        j->pid = fork();
        if (j->pid < 0)
                return -errno;
        if (!j->pid)
                be_child(j, parent);
        if (j->spec->started)
                j->spec->started(j->pid);
        for (int i = 0; i < PIPES; i++)
                agx_closep(&j->theirs[i]);
        j->pidfd = (int)syscall(SYS_pidfd_open, j->pid, 0);
        return 0;
}

/* ---- listening ---- */

/* Keeps what fits; `cut` remembers that something did not. */
static void keep_first(agx_buf *b, bool *cut, const char *bytes, size_t n)
{
        size_t room = b->max - b->len;

        if (n > room) {
                *cut = true;
                n = room;
        }
        if (n && agx_buf_append(b, bytes, n))
                *cut = true;
}

/* The oldest bytes make room. */
static void keep_last(agx_buf *b, bool *cut, const char *bytes, size_t n)
{
        size_t skip = n > b->max ? n - b->max : 0, room = b->max - b->len;

        if (n > room)
                *cut = true;
        if (n - skip > room)
                agx_buf_consume(b, n - skip - room);
        if (n - skip && agx_buf_append(b, bytes + skip, n - skip))
                *cut = true;
}

static void take(job *j, int pipe, const char *bytes, size_t n)
{
        agx_program *run = j->run;

        switch (pipe) {
        case OUT:
                keep_first(&run->out, &run->out_cut, bytes, n);
                if (run->out_cut && j->spec->strict)
                        kill(j->pid, SIGKILL);
                return;
        case ERR:
                (j->spec->keep_err ? keep_last : keep_first)(&run->err, &run->err_cut, bytes, n);
                return;
        case ANSWER:
                keep_first(&run->answer, &run->answer_cut, bytes, n);
                return;
        default:
                if (n == sizeof(j->failed))
                        memcpy(&j->failed, bytes, n);
        }
}

/* False when the pipe has ended, or has nothing more for now. */
static bool drain_once(job *j, int pipe)
{
        char bytes[64 << 10];
        ssize_t n = read(j->ours[pipe], bytes, sizeof(bytes));

        if (n > 0)
                take(j, pipe, bytes, (size_t)n);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return n > 0;
        agx_closep(&j->ours[pipe]);
        return false;
}

static void drain_rest(job *j)
{
        for (int i = 0; i < READ; i++) {
                if (j->ours[i] < 0)
                        continue;
                fcntl(j->ours[i], F_SETFL, O_NONBLOCK);
                for (int turns = 0; turns < 64 && drain_once(j, i); turns++)
                        ;
        }
}

static void feed(job *j)
{
        ssize_t n = j->input.n ? write(j->ours[IN], j->input.p, j->input.n) : 0;

        if (n < 0 && errno != EINTR && errno != EAGAIN)
                n = (ssize_t)j->input.n; /* it does not want to hear more */
        if (n > 0)
                j->input = agx_view_from(j->input, (size_t)n);
        if (!j->input.n)
                agx_closep(&j->ours[IN]);
}

static bool any_open(const job *j)
{
        for (int i = 0; i < READ; i++)
                if (j->ours[i] >= 0)
                        return true;
        return false;
}

static int time_left(const job *j, uint64_t end)
{
        uint64_t now = now_ms();

        if (!j->spec->timeout_ms || j->run->timed_out)
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
                        fds[i] = (struct pollfd){.fd = j->ours[i], .events = i == IN ? POLLOUT : POLLIN};
                fds[PIPES] = (struct pollfd){.fd = j->pidfd, .events = POLLIN};
                n = poll(fds, PIPES + 1, time_left(j, end));
                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n == 0) {
                        j->run->timed_out = true;
                        kill(j->pid, SIGKILL);
                }
                if (n > 0 && fds[IN].revents)
                        feed(j);
                for (int i = 0; n > 0 && i < READ; i++)
                        if (fds[i].revents)
                                (void)drain_once(j, i);
                if (n > 0 && fds[PIPES].revents)
                        break;
        }
        return 0;
}

static int reap(job *j)
{
        int r = 0;

        while (!r && waitpid(j->pid, &j->run->status, 0) < 0)
                if (errno != EINTR)
                        r = -errno;
        if (j->spec->started)
                j->spec->started(0);
        return r;
}

static int attend(job *j)
{
        int r = listen_to(j);

        if (r)
                kill(j->pid, SIGKILL);
        else
                drain_rest(j);
        return reap(j) ? -ECHILD : r;
}

/* ---- the contract ---- */

int agx_program_run(agx_program *r, const agx_program_spec *spec)
{
        job j = {.spec = spec, .run = r, .input = spec->input, .pid = -1, .pidfd = -1};
        int e;

        *r = (agx_program){.out = AGX_BUF_NULL(spec->keep),
                           .err = AGX_BUF_NULL(spec->keep_err ? spec->keep_err : spec->keep),
                           .answer = AGX_BUF_NULL(spec->keep)};
        for (int i = 0; i < PIPES; i++)
                j.ours[i] = j.theirs[i] = -1;
        e = open_pipes(&j);
        if (!e)
                e = start(&j);
        if (!e)
                e = attend(&j);
        close_all(&j);
        free(j.path);
        r->step = j.failed.step;
        r->jail = j.failed.jail;
        if (!e && j.failed.error)
                e = j.failed.error == ENOENT || j.failed.error == ENOTDIR ? AGX_PROGRAM_E_NOT_FOUND : -j.failed.error;
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
