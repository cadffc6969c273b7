/* The byte queue: order, ceiling, sliding and growing, printing, lack of memory; and a long random walk beside a model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/err.h"
#include "support/oom.h"

static void assert_sane(const agx_buf *b)
{
        assert_true(b->head + b->len <= b->cap);
        assert_true(b->len <= b->max);
        assert_int_equal(b->data != NULL, b->cap != 0);
}

static void assert_holds(const agx_buf *b, const char *text)
{
        agx_view v = agx_buf_view(b);

        assert_sane(b);
        assert_int_equal(v.n, strlen(text));
        assert_memory_equal(v.p, text, v.n);
}

static void test_queue(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(100);

        (void)state;
        assert_holds(&b, "");
        assert_non_null(agx_buf_view(&b).p);
        assert_int_equal(agx_buf_append(&b, "hello ", 6), 0);
        assert_int_equal(agx_buf_append_view(&b, AGX_VIEW("world")), 0);
        assert_int_equal(agx_buf_append(&b, NULL, 0), 0);
        assert_holds(&b, "hello world");
        agx_buf_consume(&b, 6);
        assert_holds(&b, "world");
        agx_buf_truncate(&b, 9);
        assert_holds(&b, "world");
        agx_buf_truncate(&b, 3);
        assert_holds(&b, "wor");
        agx_buf_consume(&b, 3);
        assert_holds(&b, "");
        agx_buf_clear(&b);
        assert_holds(&b, "");
}

static void test_ceiling(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(5);
        uint8_t *place;

        (void)state;
        assert_int_equal(agx_buf_append(&b, "hello!", 6), AGX_BUF_E_FULL);
        assert_holds(&b, "");
        assert_int_equal(agx_buf_append(&b, "hell", 4), 0);
        assert_int_equal(agx_buf_append(&b, "o!", 2), AGX_BUF_E_FULL);
        assert_holds(&b, "hell");
        assert_int_equal(agx_buf_append(&b, "o", 1), 0);
        assert_int_equal(agx_buf_append(&b, "!", 1), AGX_BUF_E_FULL);
        assert_int_equal(agx_buf_reserve(&b, SIZE_MAX, &place), AGX_BUF_E_FULL);
        agx_buf_consume(&b, 2); /* what was consumed no longer counts */
        assert_int_equal(agx_buf_append(&b, "12", 2), 0);
        assert_holds(&b, "llo12");
}

static void test_reserve(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(1000);
        uint8_t *place = NULL;

        (void)state;
        assert_int_equal(agx_buf_append(&b, "a", 1), 0);
        assert_int_equal(agx_buf_reserve(&b, 500, &place), 0);
        assert_holds(&b, "a"); /* nothing added before the commit */
        memset(place, 'b', 500);
        agx_buf_commit(&b, 2);
        assert_holds(&b, "abb");
        assert_int_equal(agx_buf_reserve(&b, 0, &place), 0);
        agx_buf_commit(&b, 0);
        assert_holds(&b, "abb");
}

static void test_print(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(1000);
        _cleanup_(agx_buf_deinitp) agx_buf small = AGX_BUF_NULL(3);

        (void)state;
        assert_int_equal(agx_buf_printf(&b, "%d %s", 7, "x"), 0);
        assert_holds(&b, "7 x");
        assert_int_equal(agx_buf_printf(&b, "%*d", 300, 7), 0); /* more than the scratch space */
        assert_int_equal(b.len, 303);
        assert_int_equal(b.data[b.head + 302], '7');
        assert_int_equal(agx_buf_printf(&b, "%*d", 900, 7), AGX_BUF_E_FULL);
        assert_int_equal(b.len, 303);
        assert_int_equal(agx_buf_printf(&small, "abcd"), AGX_BUF_E_FULL);
        assert_int_equal(agx_buf_printf(&small, "abc"), 0);
        assert_holds(&small, "abc");
}

/* A print that just fits needs no room for a terminator that is not kept. */
static void test_print_to_the_brim(void **state)
{
        (void)state;
        for (int n = 250; n < 260; ++n) {
                _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL((size_t)n);

                assert_int_equal(agx_buf_printf(&b, "%0*d", n, 0), 0);
                assert_int_equal(b.len, n);
        }
}

static void test_memory_goes_back(void **state)
{
        static const char big[100000];
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(SIZE_MAX);

        (void)state;
        assert_int_equal(agx_buf_append(&b, big, sizeof(big)), 0);
        agx_buf_consume(&b, sizeof(big));
        assert_int_equal(b.cap, 0);
        assert_int_equal(b.max, SIZE_MAX);
        assert_int_equal(agx_buf_append(&b, big, 10), 0);
        agx_buf_clear(&b);
        assert_true(b.cap > 0); /* a small one is kept */
        agx_buf_deinit(&b);
        agx_buf_deinit(&b);
        agx_buf_init(&b, 7);
        assert_int_equal(b.max, 7);
}

static uint64_t seed = 4711;

static size_t random_below(size_t n)
{
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return (size_t)(seed >> 33) % n;
}

/* A queue of consecutive byte values: whatever is appended, consumed and cut off, they stay consecutive. */
static void test_random_walk(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(3000);
        uint8_t first = 0, chunk[700];
        size_t len = 0;

        (void)state;
        for (int i = 0; i < 20000; ++i) {
                size_t n = random_below(sizeof(chunk));

                if (random_below(2)) {
                        for (size_t k = 0; k < n; ++k)
                                chunk[k] = (uint8_t)(first + len + k);
                        assert_int_equal(agx_buf_append(&b, chunk, n), len + n > 3000 ? AGX_BUF_E_FULL : 0);
                        len += len + n > 3000 ? 0 : n;
                } else if (random_below(4)) {
                        n = n < len ? n : len;
                        agx_buf_consume(&b, n);
                        first = (uint8_t)(first + n);
                        len -= n;
                } else {
                        agx_buf_truncate(&b, n);
                        len = n < len ? n : len;
                }
                assert_sane(&b);
                assert_int_equal(b.len, len);
                for (size_t k = 0; k < len; ++k)
                        assert_int_equal(b.data[b.head + k], (uint8_t)(first + k));
                assert_true(b.cap <= 8192); /* sliding, not growing for ever */
        }
}

/* A long queue that is drained a little and filled a little: were it moved each time, this would take minutes. */
static void test_a_long_queue_is_not_moved_each_time(void **state)
{
        enum { LONG = 8 << 20 };
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(LONG + 1);
        uint8_t *place;

        (void)state;
        assert_int_equal(agx_buf_reserve(&b, LONG, &place), 0);
        memset(place, 1, LONG);
        agx_buf_commit(&b, LONG);
        for (int i = 0; i < 1000000; ++i) {
                agx_buf_consume(&b, 1);
                assert_int_equal(agx_buf_append(&b, "x", 1), 0);
        }
        assert_int_equal(b.len, LONG);
        assert_true(b.cap <= 4 * (size_t)LONG);
}

/* Bytes read to where reserve() said are known by where they lie; those of a neighbour in memory begin at that very place if
 * the buffer is full. */
static void test_what_was_read_in_place(void **state)
{
        uint8_t memory[16] = {0};
        const agx_buf b = {.data = memory, .head = 2, .len = 3, .cap = 8, .max = 8};

        (void)state;
        assert_true(agx_buf_ends_at(&b, agx_view_of(memory + 5, 3)));
        assert_false(agx_buf_ends_at(&b, agx_view_of(memory + 5, 4)));
        assert_false(agx_buf_ends_at(&b, agx_view_of(memory + 6, 1)));
        assert_false(
                agx_buf_ends_at(&(agx_buf){.data = memory, .len = 8, .cap = 8, .max = 8}, agx_view_of(memory + 8, 8)));
}

static void test_out_of_memory(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf b = AGX_BUF_NULL(10000);
        int r;

        (void)state;
        agx_oom_arm(1);
        r = agx_buf_append(&b, "x", 1);
        assert_true(agx_oom_disarm());
        assert_int_equal(r, -ENOMEM);
        assert_holds(&b, "");
        assert_int_equal(agx_buf_append(&b, "kept", 4), 0);
        agx_oom_arm(1);
        r = agx_buf_printf(&b, "%*d", 5000, 1);
        assert_true(agx_oom_disarm());
        assert_int_equal(r, -ENOMEM);
        assert_holds(&b, "kept");
}

static void fill(agx_buf *b, size_t n)
{
        uint8_t *place;

        assert_int_equal(agx_buf_append(b, "first", 5), 0);
        while (b->len < n) {
                assert_int_equal(agx_buf_reserve(b, 1000, &place), 0);
                memset(place, 'x', 1000);
                agx_buf_commit(b, 1000);
                assert_sane(b);
        }
}

static void test_memory_is_kept(void **state)
{
        const size_t large = 1 << 20;
        agx_buf a = AGX_BUF_NULL(1 << 30), b = AGX_BUF_NULL(1 << 30), small = AGX_BUF_NULL(1 << 30);
        uint8_t *was;

        (void)state;
        agx_buf_keep(2 * large);
        fill(&a, large * 3 / 4);
        was = a.data;
        agx_buf_deinit(&a);
        assert_int_equal(agx_buf_append(&b, "some", 4), 0);
        agx_buf_expect(&b, large * 4); /* there is none of that size */
        assert_ptr_not_equal(b.data, was);
        agx_buf_expect(&b, large * 2 / 3);
        assert_ptr_equal(b.data, was);
        assert_holds(&b, "some");
        assert_sane(&b);
        agx_buf_expect(&small, 1000); /* nor is a small one given a large place */
        assert_null(small.data);
        agx_buf_deinit(&b);
        fill(&a, large * 3 / 4); /* who does not announce it comes there by growing */
        assert_ptr_equal(a.data, was);
        assert_memory_equal(agx_buf_view(&a).p, "firstxxx", 8);
        agx_buf_deinit(&a);
        b = AGX_BUF_NULL(10); /* a ceiling counts whatever was announced */
        agx_buf_expect(&b, large);
        assert_null(b.data);
        agx_buf_keep(0);
}

/* However many are freed, the youngest stay, and no more than was allowed. LeakSanitizer sees to it that the rest goes. */
static void test_kept_memory_is_bounded(void **state)
{
        enum { N = 40 };
        agx_buf many[N], one = AGX_BUF_NULL(1 << 30);

        (void)state;
        agx_buf_keep(SIZE_MAX);
        for (int round = 0; round < 2; ++round) {
                for (size_t i = 0; i < N; ++i) {
                        many[i] = AGX_BUF_NULL(1 << 30);
                        fill(&many[i], (size_t)200000 << i % 4);
                }
                for (size_t i = 0; i < N; ++i)
                        agx_buf_deinit(&many[i]);
                agx_buf_keep(1 << 20);
        }
        fill(&one, 4 << 20);
        agx_buf_deinit(&one); /* larger than all that may be kept */
        agx_buf_expect(&one, 3 << 20);
        assert_null(one.data);
        agx_buf_keep(0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_queue),
                cmocka_unit_test(test_ceiling),
                cmocka_unit_test(test_reserve),
                cmocka_unit_test(test_print),
                cmocka_unit_test(test_print_to_the_brim),
                cmocka_unit_test(test_memory_goes_back),
                cmocka_unit_test(test_random_walk),
                cmocka_unit_test(test_a_long_queue_is_not_moved_each_time),
                cmocka_unit_test(test_what_was_read_in_place),
                cmocka_unit_test(test_out_of_memory),
                cmocka_unit_test(test_memory_is_kept),
                cmocka_unit_test(test_kept_memory_is_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
