/*
 * The hosts' half of the hub: what waits for each connection, what it joins and leaves, what it says and is told. Streams
 * are not queued here: a port asks its journals when there is nothing else to say.
 */
#include "base/err.h"
#include "proto/limits.h"
#include "server/hubspace.h"
#include "server/hubstream.h"

#include <stdlib.h>

/* ---- what ports wait for ---- */

void agx_hub_touch(agx_hub_port *p)
{
        if (p->hub && agx_list_empty(&p->due))
                agx_list_push_back(&p->hub->due, &p->due);
}

static void port_pop(agx_hub_port *p, agx_hub_entry **x)
{
        agx_hub_queue q = {.n = p->n, .bytes = p->bytes};
        agx_list *node = agx_list_first(&p->queue);

        *x = node ? agx_container_of(node, agx_hub_entry, link) : NULL;
        if (!*x)
                return;
        agx_list_unlink(node);
        q.bytes = agx_hub_event_weight((*x)->event);
        p->n--;
        p->bytes -= q.bytes;
        p->hub->waiting--;
        p->hub->waiting_bytes -= q.bytes;
}

int agx_hub_port_push(agx_hub_port *p, agx_hub_event *e)
{
        agx_hub_entry *x = agx_hub_entry_new(e), *old;

        if (!x)
                return agx_trace(-ENOMEM);
        agx_list_push_back(&p->queue, &x->link);
        p->n++;
        p->bytes += agx_hub_event_weight(e);
        p->hub->waiting++;
        p->hub->waiting_bytes += agx_hub_event_weight(e);
        while (p->n > 1 && (p->n > AGX_HUB_QUEUE_EVENTS || p->bytes > AGX_HUB_QUEUE_BYTES)) {
                port_pop(p, &old);
                agx_hub_entry_free(old);
                agx_hub_warn(p->hub, AGX_HUB_WARN_QUEUE, "a host reads its events too slowly: the oldest are dropped");
        }
        agx_hub_touch(p);
        return 0;
}

/* ---- ports ---- */

void agx_hub_port_init(agx_hub_port *p, agx_hub *h)
{
        *p = (agx_hub_port){.hub = h, .said = AGX_BUF_NULL(AGX_STREAM_BATCH_BYTES + AGX_STREAM_ITEM_MAX + 256)};
        agx_list_init(&p->due);
        agx_list_init(&p->flushing);
        agx_list_init(&p->queue);
        agx_list_init(&p->members);
        agx_tunnel_port_init(&p->tunnel);
}

static void drop_last(agx_hub_port *p)
{
        agx_hub_event_unref(p->last);
        p->last = NULL;
}

static void leave(agx_hub_member *m)
{
        agx_hub_space *s = m->space;
        agx_hub *h = m->port->hub;

        agx_list_unlink(&m->of_space);
        agx_list_unlink(&m->of_port);
        free(m);
        agx_hub_space_tidy(h, s);
}

/* What was on its way to the last host that had joined waits for the next one. */
static void give_back(agx_hub_port *p, agx_hub_event *e)
{
        agx_hub_space *s = agx_hub_space_find(p->hub, e->nsp);

        if (s && !agx_list_empty(&s->members) && s->members.next->next == &s->members && s->counted &&
            !agx_hub_queue_push(&s->outbound, e))
                agx_hub_queue_hold(&s->outbound);
}

void agx_hub_detach(agx_hub_port *p)
{
        agx_hub_entry *x;

        if (!p->hub)
                return;
        while (port_pop(p, &x), x) {
                give_back(p, x->event);
                agx_hub_entry_free(x);
        }
        drop_last(p);
        agx_list_foreach_safe(node, &p->members) leave(agx_container_of(node, agx_hub_member, of_port));
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_detach(&p->readers[i]);
        agx_tunnel_port_detach(&p->tunnel);
        agx_list_unlink(&p->due);
        agx_list_unlink(&p->flushing);
        agx_buf_deinit(&p->said);
        p->hub = NULL;
}

static agx_hub_member *membership(const agx_hub_port *p, agx_view nsp)
{
        agx_list_foreach_safe(node, &p->members)
        {
                agx_hub_member *m = agx_container_of(node, agx_hub_member, of_port);

                if (agx_view_eq(m->space->by_name.key, nsp))
                        return m;
        }
        return NULL;
}

int agx_hub_join(agx_hub_port *p, agx_view nsp, agx_view json)
{
        int stream = agx_hub_stream_of(nsp), r;
        agx_hub_member *m;
        agx_hub_space *s;
        agx_hub_entry *x;

        if (!p->hub)
                return 0;
        if (stream >= 0) {
                agx_hub_stream_join(p, stream, json);
                return 0;
        }
        if (agx_tunnels_namespace(nsp)) {
                p->tunnel_joined = true;
                return 0;
        }
        if (membership(p, nsp))
                return 0;
        r = agx_hub_space_make(p->hub, nsp, &s);
        if (r)
                return r;
        m = malloc(sizeof(*m));
        if (!m) {
                agx_hub_space_tidy(p->hub, s);
                return agx_trace(-ENOMEM);
        }
        *m = (agx_hub_member){.space = s, .port = p};
        agx_list_init(&m->of_space);
        agx_list_init(&m->of_port);
        agx_list_push_back(&s->members, &m->of_space);
        agx_list_push_back(&p->members, &m->of_port);
        while (!r && (x = agx_hub_queue_pop(&s->outbound))) {
                r = agx_hub_port_push(p, x->event);
                agx_hub_entry_free(x);
        }
        return r;
}

void agx_hub_leave(agx_hub_port *p, agx_view nsp)
{
        int stream = agx_hub_stream_of(nsp);
        agx_hub_member *m = p->hub ? membership(p, nsp) : NULL;

        if (p->hub && stream >= 0)
                agx_journal_detach(&p->readers[stream]);
        if (p->hub && agx_tunnels_namespace(nsp)) {
                p->tunnel_joined = false;
                agx_tunnel_port_detach(&p->tunnel);
        }
        if (m)
                leave(m);
}

/* ---- events of hosts ---- */

static bool ends_with(agx_view text, const char *end)
{
        size_t n = strlen(end);

        return text.n >= n && !memcmp(text.p + text.n - n, end, n);
}

static void choose_workers(const agx_hub_space *s, agx_view name, agx_hub_outcome *outcome)
{
        outcome->todo = AGX_HUB_TODO_SEND;
        if (ends_with(name, ":result") || ends_with(name, ":error")) {
                memcpy(outcome->workers, s->workers, sizeof(s->workers));
                outcome->n_workers = s->n_workers;
                return;
        }
        outcome->n_workers = 1;
        for (size_t i = 0; i < s->n_workers; ++i)
                if (s->workers[i] > outcome->workers[0])
                        outcome->workers[0] = s->workers[i];
}

int agx_hub_take(agx_hub_port *p, agx_view nsp, agx_view name, agx_view payload, agx_hub_outcome *outcome)
{
        int stream = agx_hub_stream_of(nsp), r;
        agx_hub_member *m;
        agx_hub_event *e;

        *outcome = (agx_hub_outcome){.todo = AGX_HUB_TODO_NOTHING};
        if (!p->hub)
                return 0;
        if (stream >= 0) {
                agx_hub_stream_take(p, stream, name, payload, outcome);
                return 0;
        }
        if (p->tunnel_joined && agx_tunnels_namespace(nsp)) {
                outcome->todo = AGX_HUB_TODO_TUNNEL;
                return 0;
        }
        m = membership(p, nsp);
        if (!m || !name.n) {
                *outcome = (agx_hub_outcome){.todo = AGX_HUB_TODO_NOTE, .why = "an event on a namespace not joined"};
                return 0;
        }
        if (m->space->n_workers) {
                choose_workers(m->space, name, outcome);
                return 0;
        }
        e = agx_hub_event_new(nsp, name, payload);
        r = e ? agx_hub_queue_push(&m->space->inbound, e) : agx_trace(-ENOMEM);
        agx_hub_event_unref(e);
        if (!r && agx_hub_queue_hold(&m->space->inbound))
                agx_hub_warn(p->hub, AGX_HUB_WARN_INBOUND,
                             "events for a namespace that no worker has opened: the oldest are dropped");
        return r;
}

/* ---- what ports say ---- */

void agx_hub_tunnel_touch(agx_hub_port *p)
{
        if (agx_tunnel_port_pending(&p->tunnel))
                agx_hub_touch(p);
}

/* 0, AGX_HUB_E_NONE or -ENOMEM. */
static int say_tunnel(agx_hub_port *p, agx_hub_saying *saying)
{
        agx_tunnel_saying said;
        int r = agx_tunnels_say(&p->hub->tunnels, &p->tunnel, &said);

        if (r)
                return r < 0 ? r : AGX_HUB_E_NONE;
        ++p->in_flight;
        *saying = (agx_hub_saying){AGX_VIEW("/abridge"), said.event, said.data};
        return 0;
}

/* Events and tunnels in turn, as far as the host takes them; then what streams have to say. */
int agx_hub_next(agx_hub_port *p, agx_hub_saying *saying)
{
        agx_hub_entry *x = NULL;
        int r;

        if (!p->hub)
                return AGX_HUB_E_NONE;
        drop_last(p);
        agx_buf_clear(&p->said);
        if (p->window && p->in_flight >= p->window)
                return agx_hub_stream_say(p, saying);
        p->tunnel_turn = !p->tunnel_turn;
        if (!p->tunnel_turn)
                port_pop(p, &x);
        if (!x) {
                r = say_tunnel(p, saying);
                if (r != AGX_HUB_E_NONE)
                        return r;
                port_pop(p, &x);
        }
        if (!x)
                return agx_hub_stream_say(p, saying);
        ++p->in_flight;
        p->last = x->event;
        free(x);
        *saying = (agx_hub_saying){((agx_hub_event *)p->last)->nsp, ((agx_hub_event *)p->last)->name,
                                   ((agx_hub_event *)p->last)->data};
        return 0;
}
