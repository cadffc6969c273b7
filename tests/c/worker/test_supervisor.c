/* The life of workers on a fake clock: what the brain wishes after each event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/supervisor.h"

#define FAIL_WAITING AGX_SUPERVISOR_FAIL
#define SPAWN AGX_SUPERVISOR_SPAWN
#define SHUTDOWN AGX_SUPERVISOR_SHUTDOWN
#define TERMINATE AGX_SUPERVISOR_TERMINATE
#define KILL AGX_SUPERVISOR_KILL
#define DONE AGX_SUPERVISOR_DONE

static agx_supervisor started(uint64_t now)
{
        agx_supervisor s;

        agx_supervisor_init(&s);
        assert_int_equal(agx_supervisor_start(&s), SPAWN);
        agx_supervisor_spawned(&s, now);
        return s;
}

static agx_supervisor ready(uint64_t now)
{
        agx_supervisor s = started(now);

        agx_supervisor_ready(&s);
        assert_int_equal(s.state, AGX_SUPERVISOR_READY);
        assert_true(agx_supervisor_deadline(&s) == UINT64_MAX);
        return s;
}

static void a_worker_that_had_a_life_is_replaced_at_once(void **state)
{
        agx_supervisor s = ready(1000);

        (void)state;
        assert_int_equal(agx_supervisor_died(&s, 1000 + AGX_WORKER_HEALTHY_MS, false), SPAWN);
        agx_supervisor_spawned(&s, 3000);
        agx_supervisor_ready(&s);
        assert_int_equal(agx_supervisor_died(&s, 3001, true), SPAWN); /* it was given a call */
}

static void crashing_calls_never_break_the_worker(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        for (uint64_t i = 1; i < 100; i++) {
                assert_int_equal(agx_supervisor_died(&s, i, true), SPAWN);
                agx_supervisor_spawned(&s, i);
                agx_supervisor_ready(&s);
        }
}

static void deaths_at_boot_back_off_and_then_are_an_error(void **state)
{
        static const uint64_t pauses[] = {20, 40, 80, 160};
        agx_supervisor s = started(0);
        uint64_t now = 0;

        (void)state;
        for (size_t i = 0; i < AGX_WORKER_BOOT_DEATHS - 1; i++) {
                assert_int_equal(agx_supervisor_died(&s, now, false), 0);
                assert_int_equal(s.state, AGX_SUPERVISOR_BACKOFF);
                assert_int_equal(agx_supervisor_deadline(&s) - now, pauses[i]);
                assert_int_equal(agx_supervisor_tick(&s, now + pauses[i] - 1), 0);
                now += pauses[i];
                assert_int_equal(agx_supervisor_tick(&s, now), SPAWN);
                agx_supervisor_spawned(&s, now);
        }
        assert_int_equal(agx_supervisor_died(&s, now, false), FAIL_WAITING);
        assert_int_equal(s.state, AGX_SUPERVISOR_BROKEN);
}

static void deaths_far_apart_only_back_off(void **state)
{
        agx_supervisor s = started(0);
        uint64_t now = 0;

        (void)state;
        for (size_t i = 0; i < 30; i++) {
                now += AGX_WORKER_BOOT_WINDOW_MS / 2;
                assert_int_equal(agx_supervisor_died(&s, now, false), 0);
                now = agx_supervisor_deadline(&s);
                assert_int_equal(agx_supervisor_tick(&s, now), SPAWN);
                agx_supervisor_spawned(&s, now);
        }
        assert_int_equal(agx_supervisor_died(&s, now, false), 0);
        assert_int_equal(agx_supervisor_deadline(&s) - now, AGX_WORKER_BACKOFF_MAX_MS);
}

static void a_short_idle_life_counts_as_a_death_at_boot(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        assert_int_equal(agx_supervisor_died(&s, AGX_WORKER_HEALTHY_MS - 1, false), 0);
        assert_int_equal(s.state, AGX_SUPERVISOR_BACKOFF);
}

static void a_broken_worker_is_tried_again_when_wanted_later(void **state)
{
        agx_supervisor s = started(0);

        (void)state;
        assert_int_equal(agx_supervisor_boot_error(&s), KILL);
        assert_int_equal(agx_supervisor_boot_error(&s), 0);
        assert_int_equal(agx_supervisor_wanted(&s, 0), 0); /* it is dying: the call waits for the verdict */
        assert_int_equal(agx_supervisor_died(&s, 10, false), FAIL_WAITING);
        assert_int_equal(agx_supervisor_wanted(&s, 11), FAIL_WAITING);
        assert_int_equal(agx_supervisor_wanted(&s, 10 + AGX_WORKER_BACKOFF_MAX_MS), SPAWN);
        agx_supervisor_spawned(&s, 5000);
        assert_int_equal(agx_supervisor_wanted(&s, 5000), 0);
        agx_supervisor_ready(&s);
        assert_int_equal(s.state, AGX_SUPERVISOR_READY);
}

static void a_silent_boot_ends_after_its_time(void **state)
{
        agx_supervisor s = started(100);

        (void)state;
        assert_int_equal(agx_supervisor_deadline(&s), 100 + AGX_WORKER_BOOT_MS);
        assert_int_equal(agx_supervisor_tick(&s, 99 + AGX_WORKER_BOOT_MS), 0);
        assert_int_equal(agx_supervisor_tick(&s, 100 + AGX_WORKER_BOOT_MS), KILL);
        agx_supervisor_ready(&s); /* too late */
        assert_int_equal(s.state, AGX_SUPERVISOR_DYING);
        assert_int_equal(agx_supervisor_died(&s, 20000, false), FAIL_WAITING);
}

static void one_that_breaks_the_protocol_is_killed_and_replaced(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        assert_int_equal(agx_supervisor_misbehaved(&s), KILL);
        assert_int_equal(agx_supervisor_misbehaved(&s), 0);
        assert_int_equal(agx_supervisor_died(&s, 5, true), SPAWN);
}

static void one_that_cannot_be_started_backs_off(void **state)
{
        agx_supervisor s;

        (void)state;
        agx_supervisor_init(&s);
        assert_int_equal(agx_supervisor_start(&s), SPAWN);
        assert_int_equal(agx_supervisor_died(&s, 0, false), 0);
        assert_int_equal(s.state, AGX_SUPERVISOR_BACKOFF);
}

static void a_retired_worker_is_replaced_and_forgotten(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        assert_int_equal(agx_supervisor_retire(&s), SPAWN);
        assert_int_equal(s.state, AGX_SUPERVISOR_DOWN);
        assert_int_equal(agx_supervisor_retire(&s), 0);
        agx_supervisor_spawned(&s, 10);
        assert_int_equal(agx_supervisor_retire(&s), 0); /* one that boots has no calls */
        assert_int_equal(s.state, AGX_SUPERVISOR_BOOTING);
        assert_int_equal(agx_supervisor_died(&s, 20, false), 0); /* a death at boot like any */
        assert_int_equal(s.state, AGX_SUPERVISOR_BACKOFF);
        assert_int_equal(agx_supervisor_retire(&s), 0);
}

static void nothing_is_retired_that_is_about_to_end(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        assert_int_equal(agx_supervisor_misbehaved(&s), KILL);
        assert_int_equal(agx_supervisor_retire(&s), 0);
        assert_int_equal(s.state, AGX_SUPERVISOR_DYING);
        s = ready(0);
        assert_int_equal(agx_supervisor_stop(&s, 1), SHUTDOWN);
        assert_int_equal(agx_supervisor_retire(&s), 0);
        assert_int_equal(s.state, AGX_SUPERVISOR_STOPPING);
}

static void retiring_for_ever_never_breaks_the_worker(void **state)
{
        agx_supervisor s = ready(0);

        (void)state;
        for (uint64_t i = 1; i < 100; i++) {
                assert_int_equal(agx_supervisor_retire(&s), SPAWN);
                agx_supervisor_spawned(&s, i);
                agx_supervisor_ready(&s);
        }
}

static void stopping_gets_harder(void **state)
{
        agx_supervisor s = ready(0);
        uint64_t now = 1000;

        (void)state;
        assert_int_equal(agx_supervisor_stop(&s, now), SHUTDOWN);
        assert_int_equal(agx_supervisor_stop(&s, now), 0);
        assert_int_equal(agx_supervisor_tick(&s, now + AGX_WORKER_SHUTDOWN_MS - 1), 0);
        now += AGX_WORKER_SHUTDOWN_MS;
        assert_int_equal(agx_supervisor_tick(&s, now), TERMINATE);
        now += AGX_WORKER_SHUTDOWN_MS;
        assert_int_equal(agx_supervisor_tick(&s, now), KILL);
        assert_int_equal(agx_supervisor_died(&s, now, true), DONE);
        assert_int_equal(agx_supervisor_wanted(&s, now), FAIL_WAITING);
}

static void stopping_at_boot_does_not_ask_first(void **state)
{
        agx_supervisor s = started(0);

        (void)state;
        assert_int_equal(agx_supervisor_stop(&s, 0), TERMINATE);
        assert_int_equal(agx_supervisor_tick(&s, AGX_WORKER_SHUTDOWN_MS), KILL);
        assert_int_equal(agx_supervisor_died(&s, 5000, false), DONE);
}

static void stopping_without_a_worker_is_done_at_once(void **state)
{
        agx_supervisor s = started(0);

        (void)state;
        assert_int_equal(agx_supervisor_died(&s, 0, false), 0);
        assert_int_equal(agx_supervisor_stop(&s, 1), DONE);
        assert_int_equal(agx_supervisor_tick(&s, 1000), 0); /* the back-off is off */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_worker_that_had_a_life_is_replaced_at_once),
                cmocka_unit_test(crashing_calls_never_break_the_worker),
                cmocka_unit_test(deaths_at_boot_back_off_and_then_are_an_error),
                cmocka_unit_test(deaths_far_apart_only_back_off),
                cmocka_unit_test(a_short_idle_life_counts_as_a_death_at_boot),
                cmocka_unit_test(a_broken_worker_is_tried_again_when_wanted_later),
                cmocka_unit_test(a_silent_boot_ends_after_its_time),
                cmocka_unit_test(one_that_breaks_the_protocol_is_killed_and_replaced),
                cmocka_unit_test(one_that_cannot_be_started_backs_off),
                cmocka_unit_test(a_retired_worker_is_replaced_and_forgotten),
                cmocka_unit_test(nothing_is_retired_that_is_about_to_end),
                cmocka_unit_test(retiring_for_ever_never_breaks_the_worker),
                cmocka_unit_test(stopping_gets_harder),
                cmocka_unit_test(stopping_at_boot_does_not_ask_first),
                cmocka_unit_test(stopping_without_a_worker_is_done_at_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
