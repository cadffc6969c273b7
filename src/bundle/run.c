/* The words around bundle/program.h, and the signals that end what runs before they end us. */
#include "bundle/run.h"
#include "base/err.h"
#include "bundle/program.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static volatile sig_atomic_t child_pid;

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
        return agx_program_find(name);
}

/* One that came before the program was there to be told is told now. */
static void started(pid_t pid)
{
        child_pid = pid;
        if (pid > 0 && caught)
                kill(pid, SIGTERM);
}

/* ---- words ---- */

static int not_started(const agx_run *run, const agx_program *p, int error, agx_why *why)
{
        if (!p->jail || !agx_jail_forbidden(error))
                return agx_why_errno(why, error, "%s: %s", run->argv[0], p->step);
        agx_why_set(why, "namespace",
                    "this machine does not allow the private mount namespace in which a bundle is built (%s: %s)",
                    p->step, strerror(error));
        return agx_why_hint(why, "allow unprivileged user namespaces, run as root, or build inside a container engine: "
                                 "--container-engine docker");
}

static int interrupted(agx_why *why)
{
        why->exit_code = 128 + caught;
        return agx_why_set(why, "signal", "interrupted by %s", strsignal(caught));
}

static int judge(const agx_run *run, const agx_program *p, int r, agx_why *why)
{
        if (r && p->step)
                return not_started(run, p, r > 0 ? ENOENT : -r, why);
        if (caught)
                return interrupted(why);
        if (r)
                return agx_why_errno(why, r, "%s could not be started", run->argv[0]);
        return p->out_cut ? agx_why_set(why, "output", "%s printed too much", run->argv[0]) : 0;
}

/* What was kept, for who asked for it. */
static int hand_over(agx_buf *to, const agx_buf *from)
{
        return !to || !from->len ? 0 : agx_buf_append_view(to, agx_buf_view(from));
}

int agx_run_wait(const agx_run *run, int *status, agx_why *why)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};
        int r;

        *status = 0;
        if (caught)
                return interrupted(why);
        r = agx_program_run(&p, &(agx_program_spec){.argv = run->argv,
                                                    .envp = run->env,
                                                    .cwd = run->cwd,
                                                    .jail = run->jail,
                                                    .input = run->input,
                                                    .keep = run->out ? run->out->max - run->out->len : 0,
                                                    .keep_err = run->err ? run->err->max - run->err->len : 0,
                                                    .pass_out = !run->out,
                                                    .pass_err = !run->err,
                                                    .quiet = run->quiet,
                                                    .strict = true,
                                                    .started = started});
        r = judge(run, &p, r, why);
        if (!r)
                *status = agx_program_code(&p);
        if (hand_over(run->err, &p.err) || hand_over(run->out, &p.out))
                return agx_trace(-ENOMEM);
        return r;
}
