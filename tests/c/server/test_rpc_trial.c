/* The road /rpc under chance, judged by a checker that keeps plain facts: support/rpc_trial.h. */
#include "support/rpc_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BYTES = 6000 };

static const agx_ledger_bounds roomy = {.calls_max = 1000,
                                        .kept_max = 1000,
                                        .kept_bytes = 1 << 20,
                                        .item_bytes = 1 << 20,
                                        .inline_ms = 30000,
                                        .window = 4096,
                                        .sessions_max = 1000,
                                        .forgotten_max = 1000,
                                        .foreign_max = 1000};
/* Results go for want of room, before they are told as well. */
static const agx_ledger_bounds tight = {.calls_max = 20,
                                        .kept_max = 4,
                                        .kept_bytes = 40,
                                        .item_bytes = 60,
                                        .inline_ms = 500,
                                        .window = 4096,
                                        .sessions_max = 1000,
                                        .forgotten_max = 1000,
                                        .foreign_max = 1000};

static const char *trial(rpc_trial *t, uint64_t seed)
{
        static uint8_t bytes[BYTES];
        uint64_t x = seed * 0x9e3779b97f4a7c15 + 1;

        for (size_t i = 0; i < BYTES; i++) {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                bytes[i] = (uint8_t)(x >> 32);
        }
        return rpc_trial_run(t, agx_view_of(bytes, BYTES));
}

static void many(const agx_ledger_bounds *bounds, bool polite)
{
        rpc_trial sum = {.bounds = *bounds, .polite = polite};

        for (uint64_t seed = 1; seed <= 200; seed++) {
                const char *wrong = trial(&sum, seed);

                if (wrong)
                        print_error("seed %llu: %s\n", (unsigned long long)seed, sum.where);
                assert_null(wrong);
        }
        assert_in_range(sum.runs, 3000, SIZE_MAX);
        assert_in_range(sum.outcomes, 1000, SIZE_MAX);
        assert_in_range(sum.gone, 1000, SIZE_MAX);
        assert_in_range(sum.items, 200, SIZE_MAX);
}

static void polite_hosts_are_told_exactly_once(void **state)
{
        (void)state;
        many(&roomy, true);
        many(&tight, true);
}

static void other_hosts_are_told_what_is_true(void **state)
{
        (void)state;
        many(&roomy, false);
        many(&tight, false);
}

static void a_planted_stutter_is_found(void **state)
{
        rpc_trial t = {.bounds = roomy, .polite = true, .stutter = true};

        (void)state;
        assert_string_equal(trial(&t, 1), "told though nothing was owed");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(polite_hosts_are_told_exactly_once),
                cmocka_unit_test(other_hosts_are_told_what_is_true),
                cmocka_unit_test(a_planted_stutter_is_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
