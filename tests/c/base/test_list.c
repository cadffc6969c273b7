/* The ring: order, unlinking anywhere and twice, walking while unlinking. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/list.h"

typedef struct item {
        int value;
        agx_list link;
} item;

static item *item_of(agx_list *node)
{
        return agx_container_of(node, item, link);
}

static int sum_in_order(agx_list *head)
{
        int digits = 0;

        agx_list_foreach_safe(node, head) digits = digits * 10 + item_of(node)->value;
        return digits;
}

static void test_order(void **state)
{
        agx_list head;
        item items[4] = {{.value = 1}, {.value = 2}, {.value = 3}, {.value = 4}};

        (void)state;
        agx_list_init(&head);
        assert_true(agx_list_empty(&head));
        assert_null(agx_list_first(&head));
        for (int i = 0; i < 4; ++i)
                agx_list_push_back(&head, &items[i].link);
        assert_false(agx_list_empty(&head));
        assert_int_equal(sum_in_order(&head), 1234);
        assert_ptr_equal(item_of(agx_list_first(&head)), &items[0]);
        agx_list_unlink(&items[1].link);
        assert_int_equal(sum_in_order(&head), 134);
        agx_list_unlink(&items[1].link); /* twice is harmless */
        assert_int_equal(sum_in_order(&head), 134);
        agx_list_unlink(&items[3].link);
        agx_list_unlink(&items[0].link);
        assert_int_equal(sum_in_order(&head), 3);
        agx_list_push_back(&head, &items[0].link);
        assert_int_equal(sum_in_order(&head), 31);
}

static void test_unlink_while_walking(void **state)
{
        agx_list head;
        item items[9];

        (void)state;
        agx_list_init(&head);
        for (int i = 0; i < 9; ++i) {
                items[i].value = i + 1;
                agx_list_push_back(&head, &items[i].link);
        }
        agx_list_foreach_safe(node, &head) if (item_of(node)->value % 2) agx_list_unlink(node);
        assert_int_equal(sum_in_order(&head), 2468);
        agx_list_foreach_safe(node, &head) agx_list_unlink(node);
        assert_true(agx_list_empty(&head));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),
                cmocka_unit_test(test_unlink_while_walking),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
