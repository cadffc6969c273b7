/*
 * A queue with a cursor. What is consumed is dropped by the verbs that count bytes, add and ack, and so never while it is
 * being sent.
 */
#include "server/items.h"
#include "base/err.h"

#include <stdlib.h>

typedef struct item {
        agx_list node;
        agx_buf value;
} item;

static item *item_of(agx_list *node)
{
        return agx_container_of(node, item, node);
}

static void drop_first(agx_items *items)
{
        item *i = item_of(agx_list_first(&items->kept));

        items->bytes -= i->value.len;
        items->first++;
        if (items->cursor == &i->node) {
                items->cursor = i->node.next;
                items->told++;
        }
        agx_list_unlink(&i->node);
        agx_buf_deinit(&i->value);
        free(i);
}

static void drop_acked(agx_items *items)
{
        while (items->first < items->reached && items->first < items->acked)
                drop_first(items);
}

void agx_items_init(agx_items *items)
{
        *items = (agx_items){.bytes = 0};
        agx_list_init(&items->kept);
        items->cursor = &items->kept;
}

void agx_items_deinit(agx_items *items)
{
        while (items->kept.next && !agx_list_empty(&items->kept))
                drop_first(items);
}

int agx_items_add(agx_items *items, agx_buf *value)
{
        item *i = calloc(1, sizeof(*i));

        if (!i)
                return agx_trace(-ENOMEM);
        drop_acked(items);
        i->value = *value;
        *value = AGX_BUF_NULL(i->value.max);
        agx_list_push_back(&items->kept, &i->node);
        if (!agx_items_more(items))
                items->cursor = &i->node;
        items->next++;
        items->bytes += i->value.len;
        return 0;
}

agx_view agx_items_tell(agx_items *items, uint64_t *seq)
{
        item *i = item_of(items->cursor);

        items->cursor = i->node.next;
        *seq = items->told++;
        if (items->reached < items->told)
                items->reached = items->told;
        return agx_buf_view(&i->value);
}

void agx_items_ack(agx_items *items, uint64_t n)
{
        items->acked = n < UINT64_MAX - items->acked ? items->acked + n : UINT64_MAX;
        drop_acked(items);
}

void agx_items_rewind(agx_items *items)
{
        items->told = items->first;
        items->cursor = items->kept.next;
}
