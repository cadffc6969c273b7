/* Programs run to their end: what is kept of what they say, how long they may take, what they leave behind. */
#include "bundle/program.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

static int shell(const char *script, agx_program_spec spec, agx_program *p)
{
        char sh[] = "sh", c[] = "-c", *text = strdup(script);
        int r;

        spec.argv = (char *[]){sh, c, text, NULL};
        r = agx_program_run(p, &spec);
        free(text);
        return r;
}

static bool says(const agx_buf *b, const char *text)
{
        return agx_view_eq(agx_buf_view(b), agx_view_str(text));
}

static void keeps_each_stream(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};
        agx_program_spec spec = {.keep = 8, .answer = true, .input = AGX_VIEW("fed")};

        (void)state;
        assert_int_equal(shell("cat; echo 0123456789 >&2; echo yes >&3; exit 7", spec, &p), 0);
        assert_int_equal(agx_program_code(&p), 7);
        assert_true(says(&p.out, "fed") && !p.out_cut);
        assert_true(says(&p.err, "01234567") && p.err_cut);
        assert_true(says(&p.answer, "yes\n"));
        agx_program_deinit(&p);
        spec.keep_err = 4;
        assert_int_equal(shell("echo 0123456789 >&2; kill -9 $$", spec, &p), 0);
        assert_int_equal(agx_program_code(&p), 137);
        assert_true(says(&p.err, "789\n") && p.err_cut);
}

static void has_no_descriptors_but_its_own(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};

        (void)state;
        assert_int_equal(shell("for n in 3 4 5 6 7 8 9 10 11 12 13 14 15; do test -e /proc/$$/fd/$n && echo $n; done",
                               (agx_program_spec){.keep = 64}, &p),
                         0);
        assert_true(says(&p.out, ""));
}

static void kills_what_takes_too_long(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};

        (void)state;
        assert_int_equal(shell("exec sleep 60", (agx_program_spec){.keep = 64, .timeout_ms = 50}, &p), 0);
        assert_true(p.timed_out);
        assert_int_equal(agx_program_code(&p), 137);
}

static void kills_what_says_too_much(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};

        (void)state;
        assert_int_equal(shell("exec yes", (agx_program_spec){.keep = 64, .strict = true}, &p), 0);
        assert_true(p.out_cut);
        assert_int_equal(p.out.len, 64);
        assert_int_equal(agx_program_code(&p), 137);
}

static void does_not_wait_for_what_it_leaves(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};
        time_t began = time(NULL);

        (void)state;
        assert_int_equal(shell("sleep 5 & echo $!", (agx_program_spec){.keep = 64}, &p), 0);
        assert_true(time(NULL) - began < 4);
        assert_true(p.out.len > 1);
        agx_program_deinit(&p);
        assert_int_equal(shell("exit 3", (agx_program_spec){0}, &p), 0);
        assert_int_equal(agx_program_code(&p), 3);
}

static void tells_what_cannot_be_started(void **state)
{
        _cleanup_(agx_program_deinitp) agx_program p = {0};
        char gone[] = "/nonexistent/program", unknown[] = "agx-no-such-program", directory[] = "/tmp";

        (void)state;
        assert_int_equal(agx_program_run(&p, &(agx_program_spec){.argv = (char *[]){gone, NULL}}),
                         AGX_PROGRAM_E_NOT_FOUND);
        assert_string_equal(p.step, "starting it");
        assert_int_equal(agx_program_run(&p, &(agx_program_spec){.argv = (char *[]){unknown, NULL}}),
                         AGX_PROGRAM_E_NOT_FOUND);
        assert_int_equal(agx_program_run(&p, &(agx_program_spec){.argv = (char *[]){directory, NULL}}), -EACCES);
        assert_int_equal(shell("true", (agx_program_spec){.cwd = "/nonexistent"}, &p), AGX_PROGRAM_E_NOT_FOUND);
        assert_string_equal(p.step, "entering its directory");
        assert_null(agx_program_find(unknown));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(keeps_each_stream),
                cmocka_unit_test(has_no_descriptors_but_its_own),
                cmocka_unit_test(kills_what_takes_too_long),
                cmocka_unit_test(kills_what_says_too_much),
                cmocka_unit_test(does_not_wait_for_what_it_leaves),
                cmocka_unit_test(tells_what_cannot_be_started),
        };

        signal(SIGPIPE, SIG_IGN); /* as the command does: a program may end before it has been fed */
        return cmocka_run_group_tests(tests, NULL, NULL);
}
