/*
 * fork, and pipes read with poll: builds are a matter of a few dozen processes, none of which is worth a loop. The child
 * tells over a close-on-exec pipe why it never came to exec.
 */
#include "bundle/run.h"
#include "base/err.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static volatile sig_atomic_t caught;
static volatile sig_atomic_t child_pid;

typedef struct report {
        int error;
        const char *step; /* valid in parent and child alike: same image */
        bool jail;
} report;

typedef struct pipes {
        int in[2], out[2], err[2], report[2];
} pipes;

static void on_signal(int number)
{
        if (!caught)
                caught = number;
        if (child_pid > 0)
                kill((pid_t)child_pid, SIGTERM);
}

void agx_run_catch_signals(void)
{
        static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction action = {.sa_handler = on_signal};

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                struct sigaction old;

                /* What our parent has us ignore, as nohup does, stays ignored. */
                if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
                        sigaction(numbers[i], &action, NULL);
        }
        signal(SIGPIPE, SIG_IGN);
}

int agx_run_signal(void)
{
        return caught;
}

char *agx_run_find(const char *name)
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

/* ---- the child ---- */

static _Noreturn void give_up(const pipes *p, int error, const char *step, bool jail)
{
        report r = {.error = error, .step = step, .jail = jail};
        ssize_t n = write(p->report[1], &r, sizeof(r));

        _exit(n == sizeof(r) ? 127 : 126);
}

static void set_streams(const agx_run *run, const pipes *p)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0)
                give_up(p, errno, "opening /dev/null", false);
        dup2(p->in[0] >= 0 ? p->in[0] : null, 0);
        if (p->err[1] >= 0 || run->quiet)
                dup2(p->err[1] >= 0 ? p->err[1] : null, 2);
        dup2(p->out[1] >= 0 ? p->out[1] : 2, 1);
}

static _Noreturn void be_child(const agx_run *run, const pipes *p)
{
        const char *step = "starting it";
        char *const *env = run->env ? run->env : environ;
        char *path = agx_run_find(run->argv[0]);
        sigset_t none;
        int r;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        set_streams(run, p);
        r = run->jail ? agx_jail_enter(run->jail, &step) : 0;
        if (r)
                give_up(p, -r, step, true);
        if (run->cwd && chdir(run->cwd))
                give_up(p, errno, "entering its directory", false);
        execve(path ? path : run->argv[0], run->argv, env);
        give_up(p, errno, "starting it", false);
}

/* ---- the parent ---- */

static void close_pipes(pipes *p)
{
        int *all[] = {p->in, p->out, p->err, p->report};

        for (size_t i = 0; i < 4; i++) {
                agx_closep(&all[i][0]);
                agx_closep(&all[i][1]);
        }
}

AGX_DEFINE_CLEANUP(pipes, close_pipes)

static int open_pipes(const agx_run *run, pipes *p)
{
        *p = (pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
        if ((run->input.p && pipe2(p->in, O_CLOEXEC)) || (run->out && pipe2(p->out, O_CLOEXEC)) ||
            (run->err && pipe2(p->err, O_CLOEXEC)) || pipe2(p->report, O_CLOEXEC))
                return agx_trace(-errno);
        return 0;
}

/* Appends; the oldest bytes make room. */
static int append_last(agx_buf *into, const char *bytes, size_t n)
{
        size_t skip = n > into->max ? n - into->max : 0, room = into->max - into->len;

        if (n - skip > room)
                agx_buf_consume(into, n - skip - room);
        return agx_buf_append(into, bytes + skip, n - skip);
}

/* Reads once. 0 at the end, 1 for more, or an error. */
static int drain(int fd, agx_buf *into, bool keep_last)
{
        char chunk[16 << 10];
        ssize_t n = read(fd, chunk, sizeof(chunk));

        if (n < 0)
                return errno == EINTR || errno == EAGAIN ? 1 : agx_trace(-errno);
        if (!n)
                return 0;
        return (keep_last ? append_last(into, chunk, (size_t)n) : agx_buf_append(into, chunk, (size_t)n))
                       ? agx_trace(-EFBIG)
                       : 1;
}

static int feed(int *fd, agx_view *input)
{
        ssize_t n = input->n ? write(*fd, input->p, input->n) : 0;

        if (n < 0 && errno != EINTR && errno != EAGAIN)
                n = (ssize_t)input->n; /* it does not want to hear more */
        if (n > 0)
                *input = agx_view_from(*input, (size_t)n);
        if (!input->n)
                agx_closep(fd);
        return 0;
}

static int talk(const agx_run *run, pipes *p)
{
        agx_view input = run->input;
        int r = 0;

        if (p->in[1] >= 0)
                fcntl(p->in[1], F_SETFL, O_NONBLOCK);
        while (!(r < 0) && (p->out[0] >= 0 || p->err[0] >= 0 || p->in[1] >= 0)) {
                struct pollfd fds[3] = {{p->out[0], POLLIN, 0}, {p->err[0], POLLIN, 0}, {p->in[1], POLLOUT, 0}};

                if (poll(fds, 3, -1) < 0)
                        continue; /* a signal: the child was told and will end */
                if (fds[0].revents && !(r = drain(p->out[0], run->out, false)))
                        agx_closep(&p->out[0]);
                if (!(r < 0) && fds[1].revents && !(r = drain(p->err[0], run->err, true)))
                        agx_closep(&p->err[0]);
                if (!(r < 0) && fds[2].revents)
                        r = feed(&p->in[1], &input);
        }
        return r < 0 ? r : 0;
}

static int wait_for(pid_t pid)
{
        int status;

        while (waitpid(pid, &status, 0) < 0)
                if (errno != EINTR)
                        return 127;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int told(const agx_run *run, const report *r, agx_why *why)
{
        if (!r->jail || !agx_jail_forbidden(r->error))
                return agx_why_errno(why, r->error, "%s: %s", run->argv[0], r->step);
        agx_why_set(why, "namespace",
                    "this machine does not allow the private mount namespace in which a bundle is built (%s: %s)",
                    r->step, strerror(r->error));
        return agx_why_hint(why, "allow unprivileged user namespaces, run as root, or build inside a container engine: "
                                 "--container-engine docker");
}

static int interrupted(agx_why *why)
{
        why->exit_code = 128 + caught;
        return agx_why_set(why, "signal", "interrupted by %s", strsignal(caught));
}

static int judge(const agx_run *run, const pipes *p, int talked, agx_why *why)
{
        report r;

        if (read(p->report[0], &r, sizeof(r)) == sizeof(r))
                return told(run, &r, why);
        if (caught)
                return interrupted(why);
        return talked == -EFBIG ? agx_why_set(why, "output", "%s printed too much", run->argv[0]) : talked;
}

int agx_run_wait(const agx_run *run, int *status, agx_why *why)
{
        _cleanup_(close_pipesp) pipes p;
        int r = open_pipes(run, &p);
        pid_t pid;

        if (r)
                return r;
        if (caught)
                return interrupted(why);
        pid = fork();
        if (pid < 0)
                return agx_why_errno(why, errno, "%s could not be started", run->argv[0]);
        if (!pid)
                be_child(run, &p);
        child_pid = pid;
        agx_closep(&p.in[0]);
        agx_closep(&p.out[1]);
        agx_closep(&p.err[1]);
        agx_closep(&p.report[1]);
        r = talk(run, &p);
        if (r < 0)
                kill(pid, SIGKILL);
        *status = wait_for(pid);
        child_pid = 0;
        return judge(run, &p, r, why);
}
