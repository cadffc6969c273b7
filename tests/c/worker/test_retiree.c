/* How a retired worker drains and ends, on a fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/retiree.h"

#define SHUTDOWN AGX_SUPERVISOR_SHUTDOWN
#define TERMINATE AGX_SUPERVISOR_TERMINATE
#define KILL AGX_SUPERVISOR_KILL

static agx_retiree retired(uint64_t now)
{
        agx_retiree r;

        agx_retiree_init(&r, now);
        assert_int_equal(r.state, AGX_RETIREE_DRAINING);
        return r;
}

static void assert_killed(agx_retiree *r)
{
        assert_int_equal(r->state, AGX_RETIREE_KILLED);
        assert_true(agx_retiree_deadline(r) == UINT64_MAX);
        assert_int_equal(agx_retiree_load(r, 0, 0, 0), 0);
        assert_int_equal(agx_retiree_make_room(r), 0);
        assert_int_equal(agx_retiree_stop(r, 0), 0);
        assert_int_equal(agx_retiree_tick(r, UINT64_MAX - 1), 0);
}

static void a_call_alone_in_its_worker_takes_it_along_at_once(void **state)
{
        agx_retiree r = retired(1000);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 1000, 1, 1), KILL);
        assert_killed(&r);
}

static void other_calls_may_finish_first(void **state)
{
        agx_retiree r = retired(1000);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 1000, 3, 1), 0);
        assert_int_equal(agx_retiree_tick(&r, 5000), 0);
        assert_int_equal(agx_retiree_load(&r, 5000, 2, 1), 0);
        assert_int_equal(agx_retiree_load(&r, 6000, 1, 1), KILL);
        assert_killed(&r);
}

static void two_that_do_not_end_are_no_reason_to_wait(void **state)
{
        agx_retiree r = retired(0);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 0, 2, 1), 0);
        assert_int_equal(agx_retiree_load(&r, 10, 2, 2), KILL);
}

static void but_not_for_ever(void **state)
{
        agx_retiree r = retired(1000);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 1000, 2, 1), 0);
        assert_int_equal(agx_retiree_deadline(&r), 1000 + AGX_WORKER_DRAIN_MS);
        assert_int_equal(agx_retiree_tick(&r, 999 + AGX_WORKER_DRAIN_MS), 0);
        assert_int_equal(agx_retiree_tick(&r, 1000 + AGX_WORKER_DRAIN_MS), KILL);
        assert_killed(&r);
}

static void with_nothing_left_it_is_asked_to_go(void **state)
{
        agx_retiree r = retired(0);
        uint64_t now = 500;

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 0, 2, 1), 0);
        assert_int_equal(agx_retiree_load(&r, now, 0, 0), SHUTDOWN);
        assert_int_equal(r.state, AGX_RETIREE_LEAVING);
        assert_int_equal(agx_retiree_load(&r, now, 0, 0), 0);
        assert_int_equal(agx_retiree_stop(&r, now), 0);
        assert_int_equal(agx_retiree_tick(&r, now + AGX_WORKER_SHUTDOWN_MS - 1), 0);
        now += AGX_WORKER_SHUTDOWN_MS;
        assert_int_equal(agx_retiree_tick(&r, now), TERMINATE);
        assert_int_equal(agx_retiree_tick(&r, now), 0);
        now += AGX_WORKER_SHUTDOWN_MS;
        assert_int_equal(agx_retiree_tick(&r, now), KILL);
        assert_killed(&r);
}

static void it_makes_room_for_another(void **state)
{
        agx_retiree r = retired(0);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 0, 9, 1), 0);
        assert_int_equal(agx_retiree_make_room(&r), KILL);
        assert_killed(&r);
        r = retired(0);
        assert_int_equal(agx_retiree_load(&r, 0, 0, 0), SHUTDOWN);
        assert_int_equal(agx_retiree_make_room(&r), KILL);
        assert_killed(&r);
}

static void the_server_stops(void **state)
{
        agx_retiree r = retired(0);

        (void)state;
        assert_int_equal(agx_retiree_load(&r, 0, 9, 1), 0);
        assert_int_equal(agx_retiree_stop(&r, 70), SHUTDOWN);
        assert_int_equal(agx_retiree_deadline(&r), 70 + AGX_WORKER_SHUTDOWN_MS);
        assert_int_equal(agx_retiree_load(&r, 80, 1, 1), 0); /* it is on its way */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_call_alone_in_its_worker_takes_it_along_at_once),
                cmocka_unit_test(other_calls_may_finish_first),
                cmocka_unit_test(two_that_do_not_end_are_no_reason_to_wait),
                cmocka_unit_test(but_not_for_ever),
                cmocka_unit_test(with_nothing_left_it_is_asked_to_go),
                cmocka_unit_test(it_makes_room_for_another),
                cmocka_unit_test(the_server_stops),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
