/*
 * The hub itself and the workers' half of it; hubport.c is the hosts'. An event of a worker is kept once, whoever waits
 * for it (hubqueue.h).
 */
#include "server/hub.h"
#include "base/err.h"
#include "server/hubspace.h"
#include "server/hubstream.h"

#include <stdlib.h>

void agx_hub_warn(agx_hub *h, unsigned which, const char *words)
{
        if (!(h->warned & which))
                h->warning = words;
        h->warned |= which;
}

/* ---- lifecycle ---- */

void agx_hub_init(agx_hub *h, const uint8_t seed[16], agx_view instance, const size_t items[AGX_HUB_STREAMS])
{
        *h = (agx_hub){.instance = instance};
        agx_map_init(&h->spaces, seed);
        agx_list_init(&h->due);
        agx_list_init(&h->given);
        agx_list_init(&h->flushing);
        agx_tunnels_init(&h->tunnels, seed);
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_init(&h->streams[i], items[i]);
}

static void drop_given(agx_hub *h)
{
        agx_list_foreach_safe(node, &h->given)
        {
                agx_list_unlink(node);
                agx_hub_entry_free(agx_container_of(node, agx_hub_entry, link));
        }
}

void agx_hub_deinit(agx_hub *h)
{
        agx_map_node *node;

        if (!h->given.next)
                return; /* zeroed: it never began */
        drop_given(h);
        while ((node = agx_map_any(&h->spaces))) {
                agx_hub_space *s = agx_container_of(node, agx_hub_space, by_name);

                agx_list_foreach_safe(m, &s->members)
                        agx_hub_detach(agx_container_of(m, agx_hub_member, of_space)->port);
                if (agx_map_any(&h->spaces) == node)
                        agx_hub_space_free(h, s);
        }
        agx_map_deinit(&h->spaces);
        agx_tunnels_deinit(&h->tunnels);
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_deinit(&h->streams[i]);
}

bool agx_hub_flow(agx_hub *h, bool *go)
{
        bool above = h->waiting > AGX_HUB_STOP_EVENTS || h->waiting_bytes > AGX_HUB_STOP_BYTES;
        bool below = h->waiting <= AGX_HUB_STOP_EVENTS / 2 && h->waiting_bytes <= AGX_HUB_STOP_BYTES / 2;

        if (h->stopped ? !below : !above)
                return false;
        *go = h->stopped;
        h->stopped = !h->stopped;
        return true;
}

agx_hub_port *agx_hub_due(agx_hub *h)
{
        agx_list *node = agx_list_first(&h->due);

        if (!node)
                return NULL;
        agx_list_unlink(node);
        return agx_container_of(node, agx_hub_port, due);
}

/* ---- workers ---- */

static bool is_name(agx_view nsp)
{
        return nsp.n && nsp.n <= AGX_SIO_NAME_MAX && nsp.p[0] == '/' && !memchr(nsp.p, ',', nsp.n) &&
               !agx_view_eq(nsp, AGX_VIEW("/rpc")) && !agx_tunnels_namespace(nsp) && agx_hub_stream_of(nsp) < 0;
}

static int open_space(agx_hub *h, uint64_t worker, agx_view nsp, const char **odd)
{
        agx_hub_space *s = agx_hub_space_find(h, nsp);
        int r;

        if (!is_name(nsp)) {
                *odd = "an open of a namespace that cannot be a plugin's";
                return 0;
        }
        if ((!s || !s->counted) && h->n_open >= AGX_HUB_OPEN_MAX) {
                *odd = "an open of one namespace too many";
                return 0;
        }
        r = agx_hub_space_make(h, nsp, &s);
        if (r) {
                *odd = "an open of one namespace too many";
                return r < 0 ? r : 0;
        }
        h->n_open += !s->counted;
        s->counted = true;
        if (!agx_hub_space_has(s, worker) && s->n_workers < AGX_HUB_WORKERS_MAX)
                s->workers[s->n_workers++] = worker;
        return 0;
}

static int emit(agx_hub *h, agx_hub_space *s, const agx_frame *frame)
{
        agx_hub_event *e = agx_hub_event_new(s->by_name.key, frame->event, frame->data);
        int r = 0;

        if (!e)
                return agx_trace(-ENOMEM);
        if (agx_list_empty(&s->members)) {
                r = agx_hub_queue_push(&s->outbound, e);
                if (agx_hub_queue_hold(&s->outbound))
                        agx_hub_warn(h, AGX_HUB_WARN_HELD,
                                     "events of a namespace that no host has joined: the oldest are dropped");
        }
        agx_list_foreach_safe(node, &s->members)
        {
                int one = agx_hub_port_push(agx_container_of(node, agx_hub_member, of_space)->port, e);

                r = r ? r : one;
        }
        agx_hub_event_unref(e);
        return r;
}

static bool is_item(agx_view data)
{
        agx_mp_reader r = agx_mp_reader_on(data);

        return agx_mp_skip(&r, AGX_MAX_NESTING) && agx_mp_done(&r);
}

int agx_hub_frame(agx_hub *h, uint64_t worker, const agx_frame *frame, const char **odd)
{
        int stream = agx_hub_stream_of(frame->namespace_), r;
        agx_hub_space *s;

        *odd = NULL;
        if (frame->kind == AGX_FRAME_SIO_OPEN)
                return open_space(h, worker, frame->namespace_, odd);
        if (stream >= 0) {
                if (is_item(frame->data))
                        agx_hub_append(h, (agx_hub_stream)stream, frame->data);
                else
                        *odd = "an item of a stream that is not one msgpack value";
                return 0;
        }
        if (frame->data.n > AGX_EVENT_MAX) {
                *odd = "an event that is too large";
                return 0;
        }
        r = open_space(h, worker, frame->namespace_, odd); /* who emits has opened */
        s = r || *odd ? NULL : agx_hub_space_find(h, frame->namespace_);
        if (s && frame->event.n && frame->event.n <= AGX_SIO_NAME_MAX)
                return emit(h, s, frame);
        if (!*odd)
                *odd = "an event without a name, or with one that is too long";
        return r;
}

bool agx_hub_next_held(agx_hub *h, uint64_t worker, agx_frame *frame)
{
        drop_given(h);
        for (size_t i = 0; h->spaces.slots && i <= h->spaces.mask; ++i) {
                for (agx_map_node *node = h->spaces.slots[i]; node; node = node->next) {
                        agx_hub_space *s = agx_container_of(node, agx_hub_space, by_name);
                        agx_hub_entry *x = agx_hub_space_has(s, worker) ? agx_hub_queue_pop(&s->inbound) : NULL;

                        if (!x)
                                continue;
                        agx_list_push_back(&h->given, &x->link);
                        *frame = (agx_frame){.kind = AGX_FRAME_SIO_INBOUND,
                                             .namespace_ = x->event->nsp,
                                             .event = x->event->name,
                                             .data = x->event->data};
                        return true;
                }
        }
        return false;
}

void agx_hub_worker_died(agx_hub *h, uint64_t worker)
{
        for (size_t i = 0; h->spaces.slots && i <= h->spaces.mask; ++i) {
                for (agx_map_node *node = h->spaces.slots[i]; node; node = node->next) {
                        agx_hub_space *s = agx_container_of(node, agx_hub_space, by_name);

                        for (size_t k = 0; k < s->n_workers; ++k)
                                if (s->workers[k] == worker)
                                        s->workers[k--] = s->workers[--s->n_workers];
                }
        }
}
