/* The ring of hashed names. */
#include "server/idring.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const uint64_t seed[2] = {3, 4};

static agx_view name_of(char text[16], uint64_t i)
{
        return agx_view_of(text, (size_t)snprintf(text, 16, "n%llu", (unsigned long long)i));
}

/* After each of many additions exactly the last `max` are there. */
static void run(uint32_t max, uint64_t total)
{
        agx_idring ring;
        uint64_t number;
        char text[16];

        agx_idring_init(&ring, seed, max);
        assert_false(agx_idring_find(&ring, AGX_VIEW("n0"), NULL));
        for (uint64_t i = 0; i < total; ++i) {
                assert_int_equal(agx_idring_reserve(&ring, ring.count + 1), 0);
                agx_idring_add(&ring, name_of(text, i), i);
                assert_int_equal(ring.count, i + 1 < max ? i + 1 : max);
                for (uint64_t k = i < max + 3 ? 0 : i - max - 3; k <= i + 1; ++k) {
                        bool there = k <= i && i - k < max;

                        assert_int_equal(agx_idring_find(&ring, name_of(text, k), &number), there);
                        assert_true(!there || number == k);
                }
        }
        agx_idring_deinit(&ring);
        agx_idring_deinit(&ring);
        assert_int_equal(ring.count, 0);
}

static void test_last_ones_are_there(void **state)
{
        static const uint32_t maxima[] = {1, 2, 3, 63, 64, 65, 200};

        (void)state;
        for (size_t i = 0; i < sizeof(maxima) / sizeof(*maxima); ++i)
                run(maxima[i], 3 * maxima[i] + 5);
}

static void test_nothing(void **state)
{
        agx_idring ring;

        (void)state;
        agx_idring_init(&ring, seed, 0);
        assert_int_equal(agx_idring_reserve(&ring, 10), 0);
        agx_idring_add(&ring, AGX_VIEW("x"), 1);
        assert_false(agx_idring_find(&ring, AGX_VIEW("x"), NULL));
        agx_idring_deinit(&ring);
}

/* Of equal names the newest is found, and when the older goes, it stays. */
static void test_equal_names(void **state)
{
        agx_idring ring;
        uint64_t number;

        (void)state;
        agx_idring_init(&ring, seed, 3);
        assert_int_equal(agx_idring_reserve(&ring, 3), 0);
        agx_idring_add(&ring, AGX_VIEW("x"), 1);
        agx_idring_add(&ring, AGX_VIEW("y"), 2);
        agx_idring_add(&ring, AGX_VIEW("x"), 3);
        assert_true(agx_idring_find(&ring, AGX_VIEW("x"), &number) && number == 3);
        agx_idring_add(&ring, AGX_VIEW("z"), 4);
        assert_true(agx_idring_find(&ring, AGX_VIEW("x"), &number) && number == 3);
        agx_idring_add(&ring, AGX_VIEW("z"), 5);
        agx_idring_add(&ring, AGX_VIEW("z"), 6);
        assert_false(agx_idring_find(&ring, AGX_VIEW("x"), &number));
        agx_idring_deinit(&ring);
}

static void test_unreserved(void **state)
{
        agx_idring ring;

        (void)state;
        agx_idring_init(&ring, seed, 100);
        agx_idring_add(&ring, AGX_VIEW("x"), 1);
        assert_false(agx_idring_find(&ring, AGX_VIEW("x"), NULL));
        agx_idring_deinit(&ring);
}

static void test_out_of_memory(void **state)
{
        agx_idring ring;
        char text[16];

        (void)state;
        agx_idring_init(&ring, seed, 100000);
        for (uint64_t i = 0; i < 300; ++i) {
                for (size_t n = 1;; ++n) {
                        int r;

                        agx_oom_arm(n);
                        r = agx_idring_reserve(&ring, ring.count + 1);
                        if (!agx_oom_disarm())
                                break;
                        assert_int_equal(r, -ENOMEM);
                        for (uint64_t k = 0; k < i; ++k)
                                assert_true(agx_idring_find(&ring, name_of(text, k), NULL));
                }
                agx_idring_add(&ring, name_of(text, i), i);
                assert_true(agx_idring_find(&ring, name_of(text, i), NULL));
        }
        agx_idring_deinit(&ring);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_last_ones_are_there), cmocka_unit_test(test_nothing),
                cmocka_unit_test(test_equal_names),         cmocka_unit_test(test_unreserved),
                cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
