/* Children: their descriptors, signals, session and limits; how they end; what the reaper leaves them and what it takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/child.h"
#include "io/deadline.h"
#include "io/reaper.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 10000 };

typedef struct rig {
        agx_loop loop;
        agx_child child;
        agx_deadline patience;
        bool exited, closed;
        int out[2];
} rig;

static void on_exited(agx_child *c)
{
        rig *r = agx_container_of(c, rig, child);

        r->exited = true;
        agx_loop_stop(&r->loop);
}

static void on_closed(agx_child *c)
{
        agx_container_of(c, rig, child)->closed = true;
}

static void on_patience(agx_deadline *d)
{
        (void)d;
        fail_msg("the child did not end in time");
}

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        assert_int_equal(agx_loop_init(&r->loop), 0);
        agx_deadline_init(&r->patience, &r->loop, on_patience);
        agx_deadline_set(&r->patience, agx_loop_now(&r->loop) + PATIENCE_MS);
        assert_int_equal(pipe2(r->out, O_CLOEXEC), 0);
}

static void rig_close(rig *r)
{
        agx_child_close(&r->child, on_closed);
        agx_deadline_close(&r->patience, NULL);
        agx_loop_deinit(&r->loop);
        assert_true(r->closed);
        close(r->out[0]);
        if (r->out[1] >= 0)
                close(r->out[1]);
}

static void spawn(rig *r, const char *path, const char *script, int extra)
{
        char *argv[] = {(char *)path, "-c", (char *)script, NULL};
        char *envp[] = {"ONLY=this", "PATH=/usr/bin:/bin", NULL};

        assert_int_equal(agx_child_spawn(&r->child, &r->loop,
                                         &(agx_child_spec){.path = path,
                                                           .argv = argv,
                                                           .envp = envp,
                                                           .fds = {-1, r->out[1], r->out[1], extra, -1, -1},
                                                           .oom_score_add = 100,
                                                           .core_limit = 0,
                                                           .nofile_limit = 64},
                                         on_exited),
                         0);
}

static void run(rig *r, const char *script, int extra)
{
        spawn(r, "/bin/sh", script, extra);
        agx_loop_run(&r->loop);
        assert_true(r->exited);
}

/* What it wrote, without the last newline. */
static void assert_wrote(rig *r, const char *expected)
{
        char text[4096] = "";
        ssize_t n;

        close(r->out[1]);
        r->out[1] = -1;
        n = read(r->out[0], text, sizeof(text) - 1);
        if (n > 0 && text[n - 1] == '\n')
                text[n - 1] = 0;
        assert_string_equal(text, expected);
}

static void it_ends_with_its_code(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        run(&r, "exit 7", -1);
        assert_true(WIFEXITED(r.child.status));
        assert_int_equal(WEXITSTATUS(r.child.status), 7);
        assert_int_equal(agx_child_exec_error(&r.child), 0);
        rig_close(&r);
}

static void it_ends_with_its_signal(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        run(&r, "kill -9 $$", -1);
        assert_true(WIFSIGNALED(r.child.status));
        assert_int_equal(WTERMSIG(r.child.status), 9);
        rig_close(&r);
}

static void a_program_that_is_not_there_is_told(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        spawn(&r, "/nonexistent/program", "", -1);
        agx_loop_run(&r.loop);
        assert_int_equal(agx_child_exec_error(&r.child), ENOENT);
        rig_close(&r);
}

static void it_has_exactly_its_descriptors(void **state)
{
        int leak = open("/dev/null", O_RDONLY), high, pair[2];
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        high = fcntl(leak, F_DUPFD, 50);
        assert_true(high >= 50);
        /* the shell's own listing opens one more, and so does its script's redirection */
        run(&r, "ls -l /proc/self/fd | awk '/->/ {print $9}' | tr '\\n' ' '; readlink /proc/self/fd/0", pair[0]);
        assert_wrote(&r, "0 1 2 3 4 /dev/null");
        rig_close(&r);
        close(leak);
        close(high);
        close(pair[0]);
        close(pair[1]);
}

static void it_may_have_no_fourth_descriptor(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        run(&r, "ls /proc/self/fd | tr '\\n' ' '", -1);
        assert_wrote(&r, "0 1 2 3 "); /* 3: the listing's own */
        rig_close(&r);
}

static void it_starts_with_a_clean_slate(void **state)
{
        sigset_t blocked, before;
        rig r;

        (void)state;
        sigemptyset(&blocked);
        sigaddset(&blocked, SIGUSR1);
        sigprocmask(SIG_BLOCK, &blocked, &before);
        signal(SIGPIPE, SIG_IGN);
        rig_open(&r);
        run(&r,
            "grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'; echo \" $ONLY $HOME $(ulimit -n) $(ulimit "
            "-c)\"",
            -1);
        assert_wrote(&r, "SigBlk:0000000000000000SigIgn:0000000000000000 this  64 0");
        rig_close(&r);
        sigprocmask(SIG_SETMASK, &before, NULL);
        signal(SIGPIPE, SIG_DFL);
}

static void it_leads_a_session_and_dies_sooner_when_memory_is_short(void **state)
{
        char expected[64];
        long score = 0;
        FILE *file = fopen("/proc/self/oom_score_adj", "re");
        rig r;

        (void)state;
        assert_non_null(file);
        assert_int_equal(fscanf(file, "%ld", &score), 1);
        fclose(file);
        rig_open(&r);
        run(&r,
            "read a b c d e f g h < /proc/$$/stat; test $e = $$ && test $f = $$ && echo leader; cat "
            "/proc/self/oom_score_adj",
            -1);
        snprintf(expected, sizeof(expected), "leader\n%ld", score + 100 > 1000 ? 1000 : score + 100);
        assert_wrote(&r, expected);
        rig_close(&r);
}

static void a_pipe_held_by_a_grandchild_does_not_hide_its_death(void **state)
{
        uint64_t start;
        rig r;

        (void)state;
        rig_open(&r);
        start = agx_loop_now(&r.loop);
        run(&r, "sleep 5 & exit 3", -1);
        assert_int_equal(WEXITSTATUS(r.child.status), 3);
        assert_true(agx_loop_now(&r.loop) - start < 3000);
        rig_close(&r);
        kill(-r.child.pid, SIGKILL);
}

static void closing_a_living_one_kills_its_group(void **state)
{
        char byte;
        rig r;

        (void)state;
        rig_open(&r);
        spawn(&r, "/bin/sh", "sleep 60 & echo up; wait", -1);
        assert_int_equal(read(r.out[0], &byte, 1), 1);
        rig_close(&r); /* the pipe's last writers are gone, or this would hang in the next line */
        assert_false(r.exited);
}

static void no_pipe_end_is_left_open_by_the_dead(void **state)
{
        char text[16];
        rig r;

        (void)state;
        rig_open(&r);
        spawn(&r, "/bin/sh", "sleep 60 & echo up; wait", -1);
        assert_true(read(r.out[0], text, sizeof(text)) > 0);
        close(r.out[1]);
        r.out[1] = -1;
        agx_child_kill(&r.child, SIGKILL, true);
        assert_int_equal(read(r.out[0], text, sizeof(text)), 0);
        rig_close(&r);
}

/* ---- the reaper ---- */

static bool has_children(void)
{
        siginfo_t info;

        return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

static void orphans_are_reaped_and_children_left_to_their_owners(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_reaper_start(&r.loop), 0);
        run(&r, "(exec sh -c 'sleep 0.1; exit 5') & (exec sh -c 'exit 6') & exit 4", -1);
        assert_int_equal(WEXITSTATUS(r.child.status), 4);
        for (int i = 0; i < 200 && has_children(); i++) {
                uv_run(&r.loop.uv, UV_RUN_NOWAIT);
                usleep(10000);
        }
        assert_false(has_children());
        agx_reaper_stop();
        rig_close(&r);
}

static void descendants_are_killed_to_the_last(void **state)
{
        char byte;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_reaper_start(&r.loop), 0);
        spawn(&r, "/bin/sh",
              "for i in 1 2 3; do setsid sh -c 'trap \"\" TERM; sleep 60 & setsid sleep 60 & wait' & done; sleep 0.2; "
              "echo up; wait",
              -1);
        assert_int_equal(read(r.out[0], &byte, 1), 1);
        close(r.out[1]);
        r.out[1] = -1;
        assert_true(agx_reaper_kill_descendants(5000));
        while (read(r.out[0], &byte, 1) > 0)
                ;
        assert_int_equal(read(r.out[0], &byte, 1), 0); /* nobody holds the pipe */
        agx_reaper_stop();
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_ends_with_its_code),
                cmocka_unit_test(it_ends_with_its_signal),
                cmocka_unit_test(a_program_that_is_not_there_is_told),
                cmocka_unit_test(it_has_exactly_its_descriptors),
                cmocka_unit_test(it_may_have_no_fourth_descriptor),
                cmocka_unit_test(it_starts_with_a_clean_slate),
                cmocka_unit_test(it_leads_a_session_and_dies_sooner_when_memory_is_short),
                cmocka_unit_test(a_pipe_held_by_a_grandchild_does_not_hide_its_death),
                cmocka_unit_test(closing_a_living_one_kills_its_group),
                cmocka_unit_test(no_pipe_end_is_left_open_by_the_dead),
                cmocka_unit_test(orphans_are_reaped_and_children_left_to_their_owners),
                cmocka_unit_test(descendants_are_killed_to_the_last),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
