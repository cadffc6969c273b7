/*
 * The items of calls that are streams. The server keeps each until credit says that it was consumed, and a new link
 * begins with those it kept: so the number of the first item that comes on a link is how many the server knows to be
 * consumed, and what it does not know of is said again from there. Nothing need be remembered of credit that was lost.
 *
 * The other end is not trusted: it may send no more than it was given credit for, in order, and the bytes that wait to be
 * taken have a bound.
 */
#include "base/err.h"
#include "client/state.h"
#include "proto/rpc.h"

typedef struct item {
        agx_list node;
        agx_buf body;
        agx_view value;
} item;

void agx_flow_init(agx_client_call *call)
{
        agx_list_init(&call->items);
        agx_list_init(&call->news);
        agx_list_init(&call->crediting);
}

static void free_item(item *i)
{
        agx_list_unlink(&i->node);
        agx_buf_deinit(&i->body);
        free(i);
}

void agx_flow_deinit(agx_client_call *call)
{
        agx_list_foreach_safe(node, &call->items)
        {
                free_item(agx_container_of(node, item, node));
        }
        agx_list_unlink(&call->news);
        agx_list_unlink(&call->crediting);
}

void agx_flow_drop(agx_client *c, agx_client_call *call)
{
        agx_buf body = AGX_BUF_NULL(0);
        agx_view value;

        while (agx_client_call_next_item(c, call, &body, &value))
                agx_buf_deinit(&body);
        agx_flow_deinit(call);
}

/* ---- items in ---- */

static bool refuse(agx_client *c, agx_client_call *call, const char *why)
{
        agx_calls_fault(c, call, AGX_FAULT_RESULT_UNAVAILABLE, why, "dropped");
        return false;
}

static int keep(agx_client *c, agx_client_call *call, agx_view value)
{
        item *i = calloc(1, sizeof(*i));

        if (!i)
                return agx_trace(-ENOMEM);
        agx_buf_init(&i->body, 0);
        agx_siolink_take(c->link, &i->body);
        i->value = value;
        agx_list_push_back(&call->items, &i->node);
        agx_list_unlink(&call->news);
        agx_list_push_back(&c->streaming, &call->news);
        c->item_bytes += value.n;
        return 0;
}

static uint64_t due(const agx_client_call *call)
{
        uint64_t n = call->consumed > call->credited ? call->consumed - call->credited : 0;

        return n > call->window / 2 || call->uncredited >= AGX_CLIENT_CREDIT_BYTES ? n : 0;
}

static void credit_if_due(agx_client *c, agx_client_call *call)
{
        agx_list_unlink(&call->crediting);
        if (due(call) && call->state != CALL_DONE && call->state != CALL_TAKEN)
                agx_list_push_back(&c->credits, &call->crediting);
}

bool agx_flow_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc)
{
        if (call->synced != c->link_serial && rpc->seq <= call->seen) {
                call->synced = c->link_serial;
                call->credited = rpc->seq;
                credit_if_due(c, call);
        }
        if (rpc->seq < call->seen)
                return true; /* it is here already */
        if (rpc->seq > call->seen)
                return refuse(c, call, "items of the stream are missing");
        if (call->seen - call->consumed >= call->window)
                return refuse(c, call, "the runtime sent more items than it was asked for");
        if (c->item_bytes > AGX_CLIENT_ITEM_BYTES - rpc->value.n)
                return refuse(c, call,
                              "items of streams come faster than they are consumed, and there is no more room");
        if (keep(c, call, rpc->value)) {
                agx_calls_finish(c, call, AGX_CLIENT_NO_MEMORY);
                return false;
        }
        ++call->seen;
        return true;
}

/* ---- items out ---- */

agx_client_call *agx_client_next_streaming(agx_client *c)
{
        agx_list *node = agx_list_first(&c->streaming);

        if (!node)
                return NULL;
        agx_list_unlink(node);
        return agx_container_of(node, agx_client_call, news);
}

bool agx_client_call_next_item(agx_client *c, agx_client_call *call, agx_buf *body, agx_view *value)
{
        agx_list *node = agx_list_first(&call->items);
        item *i;

        if (!node)
                return false;
        i = agx_container_of(node, item, node);
        *body = i->body;
        *value = i->value;
        i->body = AGX_BUF_NULL(0);
        c->item_bytes -= i->value.n;
        free_item(i);
        return true;
}

/* ---- credit ---- */

void agx_client_consumed(agx_client *c, agx_client_call *call, uint64_t n, size_t bytes, uint64_t now_ms)
{
        call->consumed += n;
        call->uncredited += bytes;
        credit_if_due(c, call);
        if (!agx_list_empty(&call->crediting))
                agx_pool_pump(c, now_ms);
}

uint64_t agx_flow_credit(const agx_client *c, const agx_client_call *call)
{
        return call->synced == c->link_serial ? due(call) : 0;
}

void agx_flow_credited(agx_client_call *call)
{
        call->credited = call->consumed;
        call->uncredited = 0;
        agx_list_unlink(&call->crediting);
}
