/* Reference counts are plain: one loop has them all. */
#include "server/hubqueue.h"
#include "base/err.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

static char *put(char *to, agx_view from, agx_view *view)
{
        if (from.n)
                memcpy(to, from.p, from.n);
        *view = agx_view_of(to, from.n);
        return to + from.n;
}

agx_hub_event *agx_hub_event_new(agx_view nsp, agx_view name, agx_view data)
{
        agx_hub_event *e = malloc(sizeof(*e) + nsp.n + name.n + data.n);

        if (!e)
                return NULL;
        e->refs = 1;
        put(put(put(e->bytes, nsp, &e->nsp), name, &e->name), data, &e->data);
        return e;
}

void agx_hub_event_unref(agx_hub_event *e)
{
        if (e && !--e->refs)
                free(e);
}

void agx_hub_entry_free(agx_hub_entry *x)
{
        agx_hub_event_unref(x->event);
        free(x);
}

size_t agx_hub_event_weight(const agx_hub_event *e)
{
        return sizeof(*e) + sizeof(agx_hub_entry) + e->nsp.n + e->name.n + e->data.n;
}

agx_hub_entry *agx_hub_entry_new(agx_hub_event *e)
{
        agx_hub_entry *x = malloc(sizeof(*x));

        if (!x)
                return NULL;
        agx_list_init(&x->link);
        x->event = e;
        ++e->refs;
        return x;
}

agx_hub_entry *agx_hub_queue_pop(agx_hub_queue *q)
{
        agx_list *node = agx_list_first(&q->list);
        agx_hub_entry *x;

        if (!node)
                return NULL;
        x = agx_container_of(node, agx_hub_entry, link);
        agx_list_unlink(node);
        --q->n;
        q->bytes -= agx_hub_event_weight(x->event);
        return x;
}

void agx_hub_queue_clear(agx_hub_queue *q)
{
        agx_hub_entry *x;

        while ((x = agx_hub_queue_pop(q)))
                agx_hub_entry_free(x);
}

void agx_hub_queue_init(agx_hub_queue *q)
{
        *q = (agx_hub_queue){.n = 0};
        agx_list_init(&q->list);
}

int agx_hub_queue_push(agx_hub_queue *q, agx_hub_event *e)
{
        agx_hub_entry *x = agx_hub_entry_new(e);

        if (!x)
                return agx_trace(-ENOMEM);
        agx_list_push_back(&q->list, &x->link);
        ++q->n;
        q->bytes += agx_hub_event_weight(e);
        return 0;
}

bool agx_hub_queue_hold(agx_hub_queue *q)
{
        bool some = false;

        while (q->n > 1 && (q->n > AGX_HUB_HELD_EVENTS || q->bytes > AGX_HUB_HELD_BYTES)) {
                agx_hub_entry_free(agx_hub_queue_pop(q));
                some = true;
        }
        return some;
}
