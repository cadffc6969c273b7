/* The reliable stream: numbers, acknowledgements, windows, holes, and readers that come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/journal.h"
#include "support/oom.h"
#include "wire/msgpack.h"

/* One item: the msgpack of a small number. */
static void add(agx_journal *j, uint64_t first, uint64_t last)
{
        for (uint64_t i = first; i <= last; ++i) {
                char byte = (char)(i & 0x7f);

                agx_journal_append(j, agx_view_of(&byte, 1));
        }
}

typedef struct told {
        uint64_t seq, lost;
        size_t n;
} told;

static told hear(agx_journal_reader *r)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 22);
        agx_mp_reader reader;
        told t = {0};

        assert_true(agx_journal_ready(r));
        assert_int_equal(agx_journal_next(r, &out), 0);
        reader = agx_mp_reader_on(agx_buf_view(&out));
        assert_int_equal(agx_mp_next(&reader).count, 3);
        agx_mp_next(&reader);
        t.seq = agx_mp_next(&reader).u;
        agx_mp_next(&reader);
        t.lost = agx_mp_next(&reader).u;
        agx_mp_next(&reader);
        t.n = agx_mp_next(&reader).count;
        for (size_t i = 0; i < t.n; ++i)
                assert_int_equal(agx_mp_next(&reader).u, (t.seq + i) & 0x7f);
        assert_true(agx_mp_done(&reader));
        return t;
}

static void assert_told(agx_journal_reader *r, uint64_t seq, size_t n, uint64_t lost)
{
        told t = hear(r);

        assert_int_equal(t.seq, seq);
        assert_int_equal(t.n, n);
        assert_int_equal(t.lost, lost);
}

static void items_come_in_order_and_stay_until_acknowledged(void **state)
{
        agx_journal_reader a, b;
        agx_journal j;

        (void)state;
        agx_journal_init(&j, 100);
        add(&j, 1, 10);
        agx_journal_attach(&j, &a, 1000, UINT64_MAX);
        assert_told(&a, 1, 10, 0);
        assert_false(agx_journal_ready(&a));
        agx_journal_ack(&a, 4);
        assert_int_equal(j.n, 6);
        agx_journal_detach(&a);
        agx_journal_attach(&j, &b, 1000, 7); /* it has more than it said */
        assert_told(&b, 8, 3, 0);
        agx_journal_ack(&b, 999); /* no further than it was told */
        assert_int_equal(j.n, 0);
        add(&j, 11, 11);
        assert_told(&b, 11, 1, 0);
        agx_journal_deinit(&j);
        agx_journal_detach(&b);
}

static void the_oldest_go_and_are_counted(void **state)
{
        agx_journal_reader a;
        agx_journal j;

        (void)state;
        agx_journal_init(&j, 8);
        agx_journal_attach(&j, &a, 100, UINT64_MAX);
        add(&j, 1, 20);
        assert_told(&a, 13, 8, 12);
        add(&j, 21, 40);
        assert_false(agx_journal_ready(&a)); /* a hole: first what was told is to be acknowledged */
        agx_journal_ack(&a, 20);
        assert_told(&a, 33, 8, 12);
        agx_journal_deinit(&j);
}

static void a_window_bounds_what_is_in_flight(void **state)
{
        agx_journal_reader a, b;
        agx_journal j;

        (void)state;
        agx_journal_init(&j, 1000);
        agx_journal_attach(&j, &a, 4, UINT64_MAX);
        agx_journal_attach(&j, &b, 0, UINT64_MAX);
        add(&j, 1, 10);
        assert_told(&a, 1, 4, 0);
        assert_false(agx_journal_ready(&a));
        assert_told(&b, 1, 10, 0);
        assert_int_equal(j.n, 10);
        agx_journal_ack(&a, 3);
        assert_told(&a, 5, 3, 0);
        assert_int_equal(j.n, 7);
        agx_journal_deinit(&j);
}

static void batches_are_bounded(void **state)
{
        agx_journal_reader a;
        agx_journal j;

        (void)state;
        agx_journal_init(&j, 10000);
        agx_journal_attach(&j, &a, 0, UINT64_MAX);
        add(&j, 1, 600);
        assert_told(&a, 1, AGX_STREAM_BATCH_ITEMS, 0);
        assert_told(&a, 257, AGX_STREAM_BATCH_ITEMS, 0);
        assert_told(&a, 513, 88, 0);
        assert_int_equal(j.n, 0);
        agx_journal_deinit(&j);
}

static void bytes_are_bounded(void **state)
{
        size_t n = AGX_STREAM_ITEM_MAX / 2;
        char *item = calloc(1, AGX_STREAM_ITEM_MAX + 1);
        agx_journal_reader a;
        agx_journal j;

        (void)state;
        assert_non_null(item);
        agx_journal_init(&j, 10000);
        agx_journal_attach(&j, &a, 0, UINT64_MAX);
        for (int i = 0; i < 100; ++i)
                agx_journal_append(&j, agx_view_of(item, n));
        assert_true(j.bytes <= AGX_STREAM_BYTES);
        agx_journal_append(&j, agx_view_of(item, AGX_STREAM_ITEM_MAX + 1));
        assert_int_equal(agx_journal_last(&j), 101);
        free(item);
        agx_journal_deinit(&j);
}

static void what_was_acknowledged_by_others_is_not_a_loss(void **state)
{
        agx_journal_reader a, b;
        agx_journal j;

        (void)state;
        agx_journal_init(&j, 100);
        agx_journal_attach(&j, &a, 10, UINT64_MAX);
        add(&j, 1, 5);
        hear(&a);
        agx_journal_ack(&a, 5);
        agx_journal_attach(&j, &b, 10, UINT64_MAX);
        assert_false(agx_journal_ready(&b));
        add(&j, 6, 6);
        assert_told(&b, 6, 1, 0);
        agx_journal_deinit(&j);
}

static void without_memory_numbers_go_on(void **state)
{
        size_t failing = 0;

        (void)state;
        do {
                agx_journal_reader a;
                agx_journal j;
                uint64_t lost = 0, items = 0;
                bool before;

                agx_journal_init(&j, 100);
                agx_journal_attach(&j, &a, 0, UINT64_MAX);
                agx_oom_arm(++failing);
                add(&j, 1, 70);
                before = agx_oom_pause(true);
                assert_int_equal(agx_journal_last(&j), 70);
                while (agx_journal_ready(&a)) {
                        told t = hear(&a);

                        lost += t.lost;
                        items += t.n;
                }
                assert_int_equal(a.next, 71);
                assert_int_equal(items + lost + a.lost, 70);
                agx_journal_deinit(&j);
                agx_oom_pause(before);
        } while (agx_oom_disarm());
        assert_true(failing > 70);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(items_come_in_order_and_stay_until_acknowledged),
                cmocka_unit_test(the_oldest_go_and_are_counted),
                cmocka_unit_test(a_window_bounds_what_is_in_flight),
                cmocka_unit_test(batches_are_bounded),
                cmocka_unit_test(bytes_are_bounded),
                cmocka_unit_test(what_was_acknowledged_by_others_is_not_a_loss),
                cmocka_unit_test(without_memory_numbers_go_on),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
