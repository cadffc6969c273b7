/* How much of a process's output is read and passed on, and when its end is told, on a fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "worker/proc.h"

#define KILL AGX_PROC_KILL
#define FORCE AGX_PROC_FORCE
#define TELL AGX_PROC_TELL
#define READ AGX_PROC_READ

enum { CHUNK = 100, EXIT_3 = 3 << 8 };

static agx_proc started(uint64_t credit, uint64_t limit, uint64_t timeout)
{
        agx_proc p;

        agx_proc_init(&p, 1000, credit, limit, timeout);
        assert_int_equal(p.state, AGX_PROC_RUNNING);
        return p;
}

/* Reads `n` bytes of stream `i`, and expects that `pass` of them are passed on. */
static unsigned reads(agx_proc *p, int i, size_t n, size_t pass)
{
        size_t passed;
        unsigned wishes = agx_proc_read(p, i, n, &passed);

        assert_int_equal(passed, pass);
        return wishes;
}

static void assert_over(agx_proc *p)
{
        assert_int_equal(p->state, AGX_PROC_ENDED);
        assert_true(agx_proc_deadline(p) == UINT64_MAX);
        assert_int_equal(agx_proc_want(p, 0, CHUNK), 0);
        assert_int_equal(agx_proc_end(p, 5000, AGX_PROC_ASKED), 0);
        assert_int_equal(agx_proc_alone(p), 0);
        assert_int_equal(agx_proc_tick(p, UINT64_MAX - 1), 0);
        assert_int_equal(agx_proc_exited(p, 5000, 0), 0);
}

static void the_end_is_told_once_both_streams_are_read(void **state)
{
        agx_proc p = started(1000, 1000, 0);

        (void)state;
        assert_int_equal(reads(&p, 0, 10, 10), READ);
        assert_int_equal(agx_proc_exited(&p, 2000, EXIT_3), READ);
        assert_int_equal(reads(&p, 1, 5, 5), READ);
        assert_int_equal(agx_proc_eof(&p, 0), 0);
        assert_int_equal(agx_proc_eof(&p, 1), TELL);
        assert_int_equal(p.status, EXIT_3);
        assert_int_equal(p.cause, AGX_PROC_EXITED);
        assert_int_equal(p.seen[0], 10);
        assert_int_equal(p.seen[1], 5);
        assert_over(&p);
}

static void streams_that_were_closed_before_need_no_moment(void **state)
{
        agx_proc p = started(1000, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_eof(&p, 0), 0);
        assert_int_equal(agx_proc_eof(&p, 1), 0);
        assert_int_equal(agx_proc_exited(&p, 2000, 0), TELL);
        assert_over(&p);
}

static void what_holds_the_output_open_is_waited_for_a_moment(void **state)
{
        agx_proc p = started(1000, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_exited(&p, 2000, 0), READ);
        assert_int_equal(agx_proc_deadline(&p), 2000 + AGX_PROC_LINGER_MS);
        assert_int_equal(reads(&p, 0, 10, 10), READ);
        assert_int_equal(agx_proc_tick(&p, 2000 + AGX_PROC_LINGER_MS - 1), 0);
        assert_int_equal(agx_proc_tick(&p, 2000 + AGX_PROC_LINGER_MS), TELL);
        assert_over(&p);
}

static void what_floods_it_afterwards_is_not_waited_for(void **state)
{
        agx_proc p = started(UINT64_MAX, UINT64_MAX, 0);

        (void)state;
        assert_int_equal(agx_proc_exited(&p, 2000, 0), READ);
        assert_int_equal(reads(&p, 0, AGX_PROC_LINGER_BYTES, AGX_PROC_LINGER_BYTES), READ);
        assert_int_equal(reads(&p, 0, 1, 1), TELL);
        assert_over(&p);
}

static void no_more_is_read_than_there_is_credit(void **state)
{
        agx_proc p = started(150, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), CHUNK);
        assert_int_equal(reads(&p, 0, CHUNK, CHUNK), READ);
        assert_int_equal(agx_proc_want(&p, 1, CHUNK), 50);
        assert_int_equal(reads(&p, 1, 50, 50), READ);
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), 0);
        assert_int_equal(agx_proc_want(&p, 1, CHUNK), 0);
        assert_int_equal(agx_proc_credit(&p, 3000, 7), READ);
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), 7);
        assert_int_equal(agx_proc_credit(&p, 3000, UINT64_MAX), READ);
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), CHUNK);
}

static void the_moment_does_not_pass_while_credit_is_missing(void **state)
{
        agx_proc p = started(0, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_exited(&p, 2000, 0), READ);
        assert_int_equal(agx_proc_tick(&p, 9000), 0);
        assert_true(agx_proc_deadline(&p) == UINT64_MAX);
        assert_int_equal(agx_proc_credit(&p, 10000, 100), READ);
        assert_int_equal(agx_proc_deadline(&p), 10000 + AGX_PROC_LINGER_MS);
        assert_int_equal(agx_proc_tick(&p, 10000 + AGX_PROC_LINGER_MS), TELL);
}

static void beyond_the_limit_output_is_dropped_and_needs_no_credit(void **state)
{
        agx_proc p = started(60, 50, 0);

        (void)state;
        assert_int_equal(reads(&p, 0, 60, 50), READ);
        assert_int_equal(p.credit, 10);
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), CHUNK);
        assert_int_equal(reads(&p, 0, CHUNK, 0), READ);
        assert_int_equal(reads(&p, 1, 10, 10), READ);
        assert_int_equal(agx_proc_want(&p, 1, CHUNK), 0);
        assert_int_equal(agx_proc_want(&p, 0, CHUNK), CHUNK);
        assert_int_equal(p.seen[0], 160);
}

static void a_timeout_kills_and_waits_for_the_keeper(void **state)
{
        agx_proc p = started(1000, 1000, 500);

        (void)state;
        assert_int_equal(agx_proc_deadline(&p), 1500);
        assert_int_equal(agx_proc_tick(&p, 1499), 0);
        assert_int_equal(agx_proc_tick(&p, 1500), KILL | READ);
        assert_int_equal(p.state, AGX_PROC_ENDING);
        assert_int_equal(agx_proc_end(&p, 1500, AGX_PROC_CANCELLED), 0);
        assert_int_equal(reads(&p, 0, 10, 10), READ);
        assert_int_equal(agx_proc_exited(&p, 1510, 9), 0);
        assert_int_equal(agx_proc_eof(&p, 0), 0);
        assert_int_equal(agx_proc_alone(&p), READ);
        assert_int_equal(reads(&p, 1, 10, 10), READ);
        assert_int_equal(agx_proc_dry(&p, 1), TELL);
        assert_int_equal(p.cause, AGX_PROC_TIMEOUT);
        assert_over(&p);
}

static void a_timeout_does_not_count_after_the_end(void **state)
{
        agx_proc p = started(0, 1000, 500);

        (void)state;
        assert_int_equal(agx_proc_exited(&p, 1400, 0), READ);
        assert_int_equal(agx_proc_tick(&p, 1600), 0);
        assert_int_equal(p.state, AGX_PROC_LINGERING);
        assert_int_equal(p.cause, AGX_PROC_EXITED);
}

static void an_end_that_comes_after_the_exit_leaves_the_cause(void **state)
{
        agx_proc p = started(0, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_exited(&p, 1400, EXIT_3), READ);
        assert_int_equal(agx_proc_end(&p, 1500, AGX_PROC_CANCELLED), KILL | READ);
        assert_int_equal(agx_proc_alone(&p), READ);
        assert_int_equal(agx_proc_dry(&p, 0), 0);
        assert_int_equal(agx_proc_dry(&p, 1), TELL);
        assert_int_equal(p.cause, AGX_PROC_EXITED);
        assert_int_equal(p.status, EXIT_3);
}

static void a_keeper_that_does_not_answer_is_killed_and_then_done_without(void **state)
{
        agx_proc p = started(1000, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_end(&p, 2000, AGX_PROC_CANCELLED), KILL | READ);
        for (uint64_t t = AGX_PROC_ROUSE_MS; t < AGX_PROC_KEEPER_MS; t += AGX_PROC_ROUSE_MS) {
                assert_int_equal(agx_proc_deadline(&p), 2000 + t);
                assert_int_equal(agx_proc_tick(&p, 2000 + t - 1), 0);
                assert_int_equal(agx_proc_tick(&p, 2000 + t), AGX_PROC_ROUSE);
        }
        assert_int_equal(agx_proc_deadline(&p), 2000 + AGX_PROC_KEEPER_MS);
        assert_int_equal(agx_proc_tick(&p, 2000 + AGX_PROC_KEEPER_MS), FORCE);
        assert_int_equal(agx_proc_tick(&p, 2000 + AGX_PROC_KEEPER_MS + AGX_PROC_ROUSE_MS), 0);
        assert_int_equal(agx_proc_tick(&p, 2000 + 2 * AGX_PROC_KEEPER_MS), READ);
        assert_int_equal(agx_proc_eof(&p, 0), 0);
        assert_int_equal(agx_proc_eof(&p, 1), TELL);
        assert_int_equal(p.cause, AGX_PROC_CANCELLED);
        assert_over(&p);
}

static void a_keeper_that_was_killed_is_a_loss(void **state)
{
        agx_proc p = started(1000, 1000, 0);

        (void)state;
        assert_int_equal(agx_proc_dry(&p, 0), 0);
        assert_int_equal(agx_proc_alone(&p), READ);
        assert_int_equal(agx_proc_dry(&p, 0), 0);
        assert_int_equal(agx_proc_dry(&p, 1), TELL);
        assert_int_equal(p.cause, AGX_PROC_LOST);
        assert_false(p.exited);
}

static void every_cause_has_a_word(void **state)
{
        (void)state;
        for (agx_proc_cause cause = AGX_PROC_EXITED; cause <= AGX_PROC_LOST; cause++) {
                agx_view text = agx_proc_cause_text(cause);

                assert_true(text.n > 0);
                assert_int_equal(strlen(text.p), text.n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_end_is_told_once_both_streams_are_read),
                cmocka_unit_test(streams_that_were_closed_before_need_no_moment),
                cmocka_unit_test(what_holds_the_output_open_is_waited_for_a_moment),
                cmocka_unit_test(what_floods_it_afterwards_is_not_waited_for),
                cmocka_unit_test(no_more_is_read_than_there_is_credit),
                cmocka_unit_test(the_moment_does_not_pass_while_credit_is_missing),
                cmocka_unit_test(beyond_the_limit_output_is_dropped_and_needs_no_credit),
                cmocka_unit_test(a_timeout_kills_and_waits_for_the_keeper),
                cmocka_unit_test(a_timeout_does_not_count_after_the_end),
                cmocka_unit_test(an_end_that_comes_after_the_exit_leaves_the_cause),
                cmocka_unit_test(a_keeper_that_does_not_answer_is_killed_and_then_done_without),
                cmocka_unit_test(a_keeper_that_was_killed_is_a_loss),
                cmocka_unit_test(every_cause_has_a_word),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
