/* The checksum beside one that takes a word at a time, at every length and place; and what it must notice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "support/guard.h"

static uint64_t mixed(uint64_t hash, uint64_t value)
{
        hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
        return hash ^ (hash >> 29);
}

static uint64_t naive(const uint8_t *p, size_t n)
{
        uint64_t sum[8] = {0}, sum_of_sums[8] = {0}, hash = mixed(0, n);

        for (size_t at = 0; at < n; at += 32) {
                for (size_t lane = 0; lane < 8; lane++) {
                        for (size_t i = 0; i < 4; i++) {
                                size_t place = at + lane * 4 + i;

                                sum[lane] += place < n ? (uint64_t)p[place] << (8 * i) : 0;
                        }
                        sum_of_sums[lane] += sum[lane];
                }
        }
        for (size_t lane = 0; lane < 8; lane++)
                hash = mixed(mixed(hash, sum[lane]), sum_of_sums[lane]);
        return hash;
}

static void fill(uint8_t *p, size_t n)
{
        uint32_t state = 7;

        for (size_t i = 0; i < n; i++) {
                state = state * 1664525u + 1013904223u;
                p[i] = (uint8_t)(state >> 24);
        }
}

static uint64_t of(const uint8_t *p, size_t n)
{
        return agx_checksum(agx_view_of(p, n));
}

static void as_a_word_at_a_time(void **state)
{
        uint8_t bytes[300];

        (void)state;
        fill(bytes, sizeof(bytes));
        for (size_t from = 0; from < 33; from++) {
                for (size_t n = 0; from + n <= sizeof(bytes); n++) {
                        uint8_t *guarded = agx_guard_new(bytes + from, n);

                        assert_true(of(guarded, n) == naive(bytes + from, n));
                        assert_true(of(bytes + from, n) == naive(bytes + from, n));
                        agx_guard_free(guarded, n);
                }
        }
        assert_true(of(NULL, 0) == naive(NULL, 0));
}

static void every_bit_counts(void **state)
{
        enum { N = 4096 };
        uint8_t bytes[N];
        uint64_t whole;

        (void)state;
        fill(bytes, N);
        whole = of(bytes, N);
        for (size_t bit = 0; bit < (size_t)N * 8; bit++) {
                bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
                assert_true(of(bytes, N) != whole);
                bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        }
        assert_true(of(bytes, N) == whole);
}

static void swap(uint8_t *p, uint8_t *q, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                uint8_t held = p[i];

                p[i] = q[i];
                q[i] = held;
        }
}

static void places_count(void **state)
{
        enum { N = 64 * 1024 };
        uint8_t *bytes = malloc(N);
        uint64_t whole;

        (void)state;
        assert_non_null(bytes);
        fill(bytes, N);
        whole = of(bytes, N);
        for (size_t size = 1; size <= 4096; size *= 2) {
                for (size_t apart = size; apart + size <= N; apart *= 2) {
                        swap(bytes, bytes + apart, size);
                        assert_true(of(bytes, N) != whole);
                        swap(bytes, bytes + apart, size);
                }
        }
        memset(bytes, 0, N);
        for (size_t n = 0; n < 100; n++)
                assert_true(of(bytes, n) != of(bytes, n + 1));
        free(bytes);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(as_a_word_at_a_time),
                cmocka_unit_test(every_bit_counts),
                cmocka_unit_test(places_count),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
