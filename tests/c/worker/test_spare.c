/* When a spare worker is started, on a fake clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/spare.h"

#define IDLE AGX_WORKER_SPARE_IDLE_MS
#define BUSY AGX_WORKER_SPARE_BUSY_MS
#define HURRY AGX_WORKER_SPARE_HURRY_MS
#define PAUSE AGX_WORKER_SPARE_PAUSE_MIN_MS

static agx_spare wanted(void)
{
        agx_spare s;

        agx_spare_init(&s);
        assert_int_equal(s.state, AGX_SPARE_NONE);
        agx_spare_offered(&s);
        assert_int_equal(s.state, AGX_SPARE_WANTED);
        return s;
}

static agx_spare there(void)
{
        agx_spare s = wanted();

        agx_spare_answered(&s, 0);
        assert_true(agx_spare_tick(&s, IDLE));
        agx_spare_started(&s);
        assert_true(agx_spare_deadline(&s) == UINT64_MAX);
        return s;
}

static void without_an_offer_there_is_none(void **state)
{
        agx_spare s;

        (void)state;
        agx_spare_init(&s);
        agx_spare_answered(&s, 5);
        agx_spare_taken(&s);
        agx_spare_missed(&s);
        agx_spare_died(&s, 5);
        assert_true(agx_spare_deadline(&s) == UINT64_MAX);
        assert_false(agx_spare_tick(&s, UINT64_MAX - 1));
        assert_int_equal(s.state, AGX_SPARE_NONE);
}

static void it_waits_for_the_first_answer_and_a_pause_after_it(void **state)
{
        agx_spare s = wanted();

        (void)state;
        assert_true(agx_spare_deadline(&s) == UINT64_MAX);
        agx_spare_answered(&s, 1000);
        assert_int_equal(agx_spare_deadline(&s), 1000 + IDLE);
        assert_false(agx_spare_tick(&s, 1000 + IDLE - 1));
        agx_spare_answered(&s, 1000 + IDLE - 1);
        assert_false(agx_spare_tick(&s, 1000 + IDLE));
        assert_int_equal(agx_spare_deadline(&s), 1000 + 2 * IDLE);
        assert_true(agx_spare_tick(&s, 1000 + 2 * IDLE));
}

static void one_that_is_always_busy_gets_it_too(void **state)
{
        agx_spare s = wanted();
        uint64_t now = 1000;

        (void)state;
        for (agx_spare_answered(&s, now); !agx_spare_tick(&s, now); agx_spare_answered(&s, ++now))
                assert_in_range(now, 1000, 1000 + BUSY + IDLE);
        assert_true(now >= 1000 + BUSY);
}

static void after_a_death_one_answer_is_enough(void **state)
{
        agx_spare s = there();

        (void)state;
        agx_spare_offered(&s);
        agx_spare_answered(&s, 500);
        assert_int_equal(s.state, AGX_SPARE_THERE);
        agx_spare_taken(&s);
        assert_true(agx_spare_deadline(&s) == UINT64_MAX);
        agx_spare_answered(&s, 1000);
        agx_spare_answered(&s, 1000);
        assert_true(agx_spare_tick(&s, 1000 + HURRY));
        agx_spare_started(&s);

        s = wanted();
        agx_spare_missed(&s);
        agx_spare_answered(&s, 1000);
        assert_true(agx_spare_tick(&s, 1000 + HURRY));
}

static void one_that_dies_is_replaced_ever_later(void **state)
{
        agx_spare s = there();
        uint64_t now = 5000, pause = PAUSE;

        (void)state;
        for (int i = 0; i < 10; i++) {
                agx_spare_died(&s, now);
                agx_spare_answered(&s, now);
                agx_spare_missed(&s);
                assert_int_equal(agx_spare_deadline(&s), now + pause);
                now += pause;
                assert_false(agx_spare_tick(&s, now - 1));
                assert_true(agx_spare_tick(&s, now));
                agx_spare_started(&s);
                pause = pause * 2 < AGX_WORKER_SPARE_PAUSE_MAX_MS ? pause * 2 : AGX_WORKER_SPARE_PAUSE_MAX_MS;
        }
        agx_spare_taken(&s); /* it was good for something */
        agx_spare_answered(&s, now);
        assert_true(agx_spare_tick(&s, now + HURRY));
        agx_spare_started(&s);
        agx_spare_died(&s, now);
        assert_int_equal(agx_spare_deadline(&s), now + PAUSE);
}

static void at_the_end_there_is_none(void **state)
{
        agx_spare s = there();

        (void)state;
        agx_spare_stop(&s);
        agx_spare_died(&s, 1000);
        agx_spare_answered(&s, 1000);
        assert_true(agx_spare_deadline(&s) == UINT64_MAX);
        assert_false(agx_spare_tick(&s, UINT64_MAX - 1));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_an_offer_there_is_none),
                cmocka_unit_test(it_waits_for_the_first_answer_and_a_pause_after_it),
                cmocka_unit_test(one_that_is_always_busy_gets_it_too),
                cmocka_unit_test(after_a_death_one_answer_is_enough),
                cmocka_unit_test(one_that_dies_is_replaced_ever_later),
                cmocka_unit_test(at_the_end_there_is_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
