/* What a stream has given: told in order, kept until it is consumed. */
#include "server/items.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void add(agx_items *items, const char *text)
{
        agx_buf value = AGX_BUF_NULL(64);

        assert_int_equal(agx_buf_append_view(&value, agx_view_str(text)), 0);
        assert_int_equal(agx_items_add(items, &value), 0);
        assert_int_equal(value.len, 0);
}

static void assert_told(agx_items *items, uint64_t seq, const char *text)
{
        uint64_t got;

        assert_true(agx_items_more(items));
        assert_true(agx_view_eq(agx_items_tell(items, &got), agx_view_str(text)));
        assert_int_equal(got, seq);
}

static void they_are_told_in_order_and_kept(void **state)
{
        agx_items items;

        (void)state;
        agx_items_init(&items);
        assert_false(agx_items_more(&items));
        add(&items, "a");
        add(&items, "bb");
        assert_told(&items, 0, "a");
        assert_told(&items, 1, "bb");
        assert_false(agx_items_more(&items));
        assert_int_equal(items.bytes, 3);
        add(&items, "c");
        assert_told(&items, 2, "c");
        agx_items_rewind(&items);
        assert_told(&items, 0, "a");
        agx_items_ack(&items, 1);
        assert_int_equal(items.bytes, 3);
        agx_items_rewind(&items);
        assert_told(&items, 1, "bb");
        assert_told(&items, 2, "c");
        agx_items_ack(&items, 2);
        assert_int_equal(items.bytes, 0);
        agx_items_rewind(&items);
        assert_false(agx_items_more(&items));
        add(&items, "d");
        assert_told(&items, 3, "d");
        agx_items_deinit(&items);
        agx_items_deinit(&items);
}

static void what_was_told_before_and_is_consumed_is_not_told_again(void **state)
{
        agx_items items;

        (void)state;
        agx_items_init(&items);
        for (int i = 0; i < 5; i++)
                add(&items, "v");
        for (int i = 0; i < 4; i++)
                assert_told(&items, (uint64_t)i, "v");
        agx_items_ack(&items, 1);
        agx_items_rewind(&items);
        assert_told(&items, 1, "v");
        agx_items_ack(&items, 3); /* of the four that were told on the link before */
        assert_int_equal(items.first, 4);
        agx_items_rewind(&items);
        assert_told(&items, 4, "v");
        assert_false(agx_items_more(&items));
        agx_items_deinit(&items);
}

static void what_was_not_told_is_not_dropped(void **state)
{
        agx_items items;

        (void)state;
        agx_items_init(&items);
        agx_items_ack(&items, 2); /* ahead */
        agx_items_ack(&items, UINT64_MAX);
        add(&items, "a");
        add(&items, "b");
        assert_int_equal(items.bytes, 2);
        assert_told(&items, 0, "a");
        assert_int_equal(items.bytes, 2); /* its bytes are being sent */
        add(&items, "c");
        assert_int_equal(items.bytes, 2);
        assert_told(&items, 1, "b");
        assert_told(&items, 2, "c");
        agx_items_deinit(&items);
}

static void without_memory_nothing_is_lost(void **state)
{
        agx_buf value = AGX_BUF_NULL(64);
        agx_items items;

        (void)state;
        agx_items_init(&items);
        assert_int_equal(agx_buf_append_view(&value, AGX_VIEW("a")), 0);
        agx_oom_arm(1);
        assert_int_equal(agx_items_add(&items, &value), -ENOMEM);
        assert_true(agx_oom_disarm());
        assert_int_equal(value.len, 1);
        assert_false(agx_items_more(&items));
        agx_buf_deinit(&value);
        agx_items_deinit(&items);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(they_are_told_in_order_and_kept),
                cmocka_unit_test(what_was_told_before_and_is_consumed_is_not_told_again),
                cmocka_unit_test(what_was_not_told_is_not_dropped),
                cmocka_unit_test(without_memory_nothing_is_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
