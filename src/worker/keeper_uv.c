/*
 * One loop over a descriptor for signals, the control socket and, once it is left, the two pipes. All signals are blocked
 * and read as data, so nothing interrupts it. The death of the server is told by a SIGTERM that the kernel sends, and by
 * the end of the control socket.
 *
 * The program is forked with its own end of the world put right: signals, session, directory, group. It dies with the
 * keeper at the kernel's hand, should somebody kill that.
 */
#include "worker/keeper_uv.h"
#include "base/cleanup.h"
#include "io/group.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum {
        CONTROL = 3,
        PIPES = 4,
        KILL_MS = 5000,
        DROP_BYTES = 16 << 10,
        OOM_SCORE_MAX = 1000,
        EAGER_ROUNDS = 50, /* of a kill, before there are pauses between them */
        DEEP_EVERY = 8     /* each so many rounds the whole tree is signalled, not its first level alone */
};

typedef struct keeper {
        const char *program, *directory, *group_name;
        char **argv;
        long oom_score;
        unsigned kill_ms;
        agx_group group;
        pid_t pid;   /* the program; 0: it has been reaped */
        int signals; /* a signalfd */
        bool left;   /* nobody listens, and the control socket is closed */
} keeper;

static void say(keeper *k, agx_keeper_kind kind, agx_keeper_stage stage, int value)
{
        agx_keeper_word word = {.kind = (uint16_t)kind, .stage = (uint16_t)stage, .value = value};

        if (!k->left && send(CONTROL, &word, sizeof(word), MSG_NOSIGNAL) < 0)
                errno = 0; /* the end of the socket will be read too */
}

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- the program ---- */

/* As the worker: rather this than the server when memory runs out. */
static void raise_oom_score(long add)
{
        char text[16] = {0};
        _cleanup_(agx_closep) int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
        long score;
        int n;

        if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
                return;
        score = strtol(text, NULL, 10) + add;
        n = snprintf(text, sizeof(text), "%ld", score < OOM_SCORE_MAX ? score : OOM_SCORE_MAX);
        if (write(fd, text, (size_t)n) < 0)
                errno = 0; /* it then stays as it was */
}

static _Noreturn void give_up(int tell, agx_keeper_stage stage)
{
        int words[2] = {(int)stage, errno};

        if (write(tell, words, sizeof(words)) < 0)
                errno = 0;
        _exit(127);
}

static _Noreturn void become(keeper *k, int tell, pid_t parent)
{
        sigset_t none;

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != parent)
                _exit(127);
        setsid();
        if (k->oom_score)
                raise_oom_score(k->oom_score);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        if (chdir(k->directory))
                give_up(tell, AGX_KEEPER_CHDIR);
        syscall(SYS_close_range, CONTROL, ~0U, CLOSE_RANGE_CLOEXEC);
        execv(k->program, k->argv);
        give_up(tell, AGX_KEEPER_EXEC);
}

static bool fail(keeper *k, agx_keeper_stage stage, int error)
{
        say(k, AGX_KEEPER_FAILED, stage, error);
        return false;
}

/* Waits until the program runs, or until it has said why it cannot. */
static bool hear(keeper *k, int told)
{
        int words[2];
        ssize_t n;

        do
                n = read(told, words, sizeof(words));
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof(words))
                return true;
        waitpid(k->pid, NULL, 0);
        return fail(k, (agx_keeper_stage)words[0], words[1]);
}

static bool start(keeper *k)
{
        int ends[2];
        pid_t parent = getpid();
        bool runs;

        if (pipe2(ends, O_CLOEXEC))
                return fail(k, AGX_KEEPER_FORK, errno);
        agx_group_make(&k->group, k->group_name);
        k->pid = agx_group_fork(&k->group);
        if (!k->pid)
                become(k, ends[1], parent);
        close(ends[1]);
        runs = k->pid > 0 ? hear(k, ends[0]) : fail(k, AGX_KEEPER_FORK, errno);
        close(ends[0]);
        return runs;
}

/* ---- its end ---- */

/* Reaps whoever is dead; whether anybody is left. */
static bool reap(keeper *k)
{
        for (;;) {
                int status;
                pid_t pid = waitpid(-1, &status, WNOHANG);

                if (pid < 0 && errno == EINTR)
                        continue;
                if (pid <= 0)
                        return !pid;
                if (pid != k->pid)
                        continue;
                k->pid = 0;
                say(k, AGX_KEEPER_EXITED, 0, status);
        }
}

static void kill_everybody(keeper *k)
{
        const struct timespec pause = {.tv_nsec = 2000000};
        uint64_t end = now_ms() + k->kill_ms;

        for (unsigned round = 1;; round++) {
                agx_group_kill(&k->group);
                if (round % DEEP_EVERY)
                        agx_tree_kill_children();
                else
                        agx_tree_kill_below();
                if (!reap(k))
                        return;
                if (now_ms() >= end) {
                        say(k, AGX_KEEPER_LEFT, 0, 0);
                        return;
                }
                if (round > EAGER_ROUNDS)
                        nanosleep(&pause, NULL);
                else
                        sched_yield();
        }
}

/* ---- the loop ---- */

/* False: it is time to kill everybody. */
static bool take_signal(keeper *k)
{
        struct signalfd_siginfo info;

        while (read(k->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
                if (info.ssi_signo == SIGTERM)
                        return false;
        return true;
}

static bool take_word(keeper *k)
{
        agx_keeper_word word;
        ssize_t n = recv(CONTROL, &word, sizeof(word), MSG_DONTWAIT); /* a word is sent, and so comes, whole */

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return true;
        if (n != (ssize_t)sizeof(word) || word.kind == AGX_KEEPER_KILL)
                return false;
        if (word.kind == AGX_KEEPER_SIGNAL && k->pid > 0)
                kill(-k->pid, word.value);
        if (word.kind == AGX_KEEPER_LEAVE) {
                k->left = true;
                close(CONTROL);
        }
        return true;
}

/* Reads and drops; true while more may come. */
static bool drop(int fd)
{
        char bytes[DROP_BYTES];
        ssize_t n = read(fd, bytes, sizeof(bytes));

        return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static void watch(keeper *k)
{
        struct pollfd p[4] = {{k->signals, POLLIN, 0}, {CONTROL, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
        bool quiet = false;

        while (reap(k)) {
                if (k->left && !quiet) {
                        p[1].fd = -1;
                        p[2].fd = PIPES;
                        p[3].fd = PIPES + 1;
                        quiet = true;
                }
                if (poll(p, 4, -1) < 0)
                        continue;
                if ((p[0].revents && !take_signal(k)) || (p[1].revents && !take_word(k))) {
                        kill_everybody(k);
                        return;
                }
                for (int i = 2; i < 4; i++)
                        if (p[i].revents && !drop(p[i].fd))
                                p[i].fd = -1;
        }
}

static bool take_options(keeper *k, int argc, char **argv)
{
        int i = 1;

        for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
                if (!strncmp(argv[i], "group=", 6))
                        k->group_name = argv[i] + 6;
                else if (!strncmp(argv[i], "oom=", 4))
                        k->oom_score = strtol(argv[i] + 4, NULL, 10);
                else if (!strncmp(argv[i], "kill_ms=", 8))
                        k->kill_ms = (unsigned)strtoul(argv[i] + 8, NULL, 10);
        }
        if (argc - i < 4)
                return false;
        k->program = argv[i + 1];
        k->directory = argv[i + 2];
        k->argv = argv + i + 3;
        return true;
}

/* Signals as data; the server's death as a signal. */
static bool settle(keeper *k)
{
        pid_t parent = getppid();
        sigset_t all;

        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        k->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
        prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        return k->signals >= 0 && getppid() == parent;
}

int agx_keeper_main(int argc, char **argv)
{
        keeper k = {.kill_ms = KILL_MS, .group_name = AGX_KEEPER_NAME};

        if (!take_options(&k, argc, argv) || !settle(&k))
                return 2;
        for (int fd = CONTROL; fd < PIPES + 2; fd++)
                fcntl(fd, F_SETFD, FD_CLOEXEC);
        if (!start(&k)) {
                agx_group_remove(&k.group);
                return 1;
        }
        for (int fd = 0; fd < CONTROL; fd++)
                close(fd);
        say(&k, AGX_KEEPER_STARTED, 0, k.pid);
        fcntl(PIPES, F_SETFL, O_NONBLOCK);
        fcntl(PIPES + 1, F_SETFL, O_NONBLOCK);
        watch(&k);
        agx_group_remove(&k.group);
        return 0;
}
