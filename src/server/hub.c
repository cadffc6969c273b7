/*
 * An event of a worker is kept once, whoever waits for it; queues hold references. Streams are not queued here: a port
 * asks its journals when there is nothing else to say.
 */
#include "server/hub.h"
#include "base/err.h"
#include "server/hubstream.h"

#include <stdlib.h>

enum { WARN_HELD = 1, WARN_QUEUE = 2, WARN_INBOUND = 4 };

typedef struct event {
        unsigned refs;
        agx_view nsp, name, data; /* in `bytes` */
        char bytes[];
} event;

typedef struct entry {
        agx_list link;
        event *event;
} entry;

typedef struct queue {
        agx_list list;
        size_t n, bytes;
} queue;

typedef struct space {
        agx_map_node by_name;
        agx_list members; /* of ports */
        queue outbound;   /* while no host has joined */
        queue inbound;    /* while no worker has opened */
        bool counted;     /* in n_open */
        uint64_t workers[AGX_HUB_WORKERS_MAX];
        size_t n_workers;
        char name[];
} space;

typedef struct member {
        agx_list of_space, of_port;
        space *space;
        agx_hub_port *port;
} member;

/* ---- events and queues ---- */

static char *put(char *to, agx_view from, agx_view *view)
{
        if (from.n)
                memcpy(to, from.p, from.n);
        *view = agx_view_of(to, from.n);
        return to + from.n;
}

static event *event_new(agx_view nsp, agx_view name, agx_view data)
{
        event *e = malloc(sizeof(*e) + nsp.n + name.n + data.n);

        if (!e)
                return NULL;
        e->refs = 1;
        put(put(put(e->bytes, nsp, &e->nsp), name, &e->name), data, &e->data);
        return e;
}

static void event_unref(event *e)
{
        if (e && !--e->refs)
                free(e);
}

static void entry_free(entry *x)
{
        event_unref(x->event);
        free(x);
}

static size_t weight(const event *e)
{
        return sizeof(*e) + sizeof(entry) + e->nsp.n + e->name.n + e->data.n;
}

static entry *entry_new(event *e)
{
        entry *x = malloc(sizeof(*x));

        if (!x)
                return NULL;
        agx_list_init(&x->link);
        x->event = e;
        ++e->refs;
        return x;
}

static entry *pop(queue *q)
{
        agx_list *node = agx_list_first(&q->list);
        entry *x;

        if (!node)
                return NULL;
        x = agx_container_of(node, entry, link);
        agx_list_unlink(node);
        --q->n;
        q->bytes -= weight(x->event);
        return x;
}

static void queue_clear(queue *q)
{
        entry *x;

        while ((x = pop(q)))
                entry_free(x);
}

static void queue_init(queue *q)
{
        *q = (queue){.n = 0};
        agx_list_init(&q->list);
}

static int push(queue *q, event *e)
{
        entry *x = entry_new(e);

        if (!x)
                return agx_trace(-ENOMEM);
        agx_list_push_back(&q->list, &x->link);
        ++q->n;
        q->bytes += weight(e);
        return 0;
}

/* True if the oldest had to go. */
static bool hold(queue *q)
{
        bool some = false;

        while (q->n > 1 && (q->n > AGX_HUB_HELD_EVENTS || q->bytes > AGX_HUB_HELD_BYTES)) {
                entry_free(pop(q));
                some = true;
        }
        return some;
}

static void warn(agx_hub *h, unsigned which, const char *words)
{
        if (!(h->warned & which))
                h->warning = words;
        h->warned |= which;
}

/* ---- spaces ---- */

static space *find(const agx_hub *h, agx_view name)
{
        agx_map_node *node = agx_map_find(&h->spaces, name);

        return node ? agx_container_of(node, space, by_name) : NULL;
}

static int make(agx_hub *h, agx_view name, space **made)
{
        space *s = find(h, name);
        int r;

        *made = s;
        if (s)
                return 0;
        if (h->spaces.count >= AGX_HUB_SPACES_MAX)
                return AGX_HUB_E_FULL;
        s = calloc(1, sizeof(*s) + name.n);
        if (!s)
                return agx_trace(-ENOMEM);
        memcpy(s->name, name.p, name.n);
        s->by_name.key = agx_view_of(s->name, name.n);
        agx_list_init(&s->members);
        queue_init(&s->outbound);
        queue_init(&s->inbound);
        r = agx_map_insert(&h->spaces, &s->by_name);
        if (r) {
                free(s);
                return r;
        }
        *made = s;
        return 0;
}

static void space_free(agx_hub *h, space *s)
{
        agx_map_remove(&h->spaces, &s->by_name);
        h->n_open -= s->counted;
        queue_clear(&s->outbound);
        queue_clear(&s->inbound);
        free(s);
}

/* A name that means nothing to anybody is forgotten. */
static void tidy(agx_hub *h, space *s)
{
        if (agx_list_empty(&s->members) && !s->counted && !s->inbound.n)
                space_free(h, s);
}

static bool is_name(agx_view nsp)
{
        return nsp.n && nsp.n <= AGX_SIO_NAME_MAX && nsp.p[0] == '/' && !memchr(nsp.p, ',', nsp.n) &&
               !agx_view_eq(nsp, AGX_VIEW("/rpc")) && agx_hub_stream_of(nsp) < 0;
}

/* ---- lifecycle ---- */

void agx_hub_init(agx_hub *h, const uint8_t seed[16], agx_view instance, const size_t items[AGX_HUB_STREAMS])
{
        *h = (agx_hub){.instance = instance};
        agx_map_init(&h->spaces, seed);
        agx_list_init(&h->due);
        agx_list_init(&h->given);
        agx_list_init(&h->flushing);
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_init(&h->streams[i], items[i]);
}

static void drop_given(agx_hub *h)
{
        agx_list_foreach_safe(node, &h->given)
        {
                agx_list_unlink(node);
                entry_free(agx_container_of(node, entry, link));
        }
}

void agx_hub_deinit(agx_hub *h)
{
        agx_map_node *node;

        if (!h->given.next)
                return; /* zeroed: it never began */
        drop_given(h);
        while ((node = agx_map_any(&h->spaces))) {
                space *s = agx_container_of(node, space, by_name);

                agx_list_foreach_safe(m, &s->members) agx_hub_detach(agx_container_of(m, member, of_space)->port);
                if (agx_map_any(&h->spaces) == node)
                        space_free(h, s);
        }
        agx_map_deinit(&h->spaces);
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_deinit(&h->streams[i]);
}

/* ---- what ports wait for ---- */

void agx_hub_touch(agx_hub_port *p)
{
        if (p->hub && agx_list_empty(&p->due))
                agx_list_push_back(&p->hub->due, &p->due);
}

static void port_pop(agx_hub_port *p, entry **x)
{
        queue q = {.n = p->n, .bytes = p->bytes};
        agx_list *node = agx_list_first(&p->queue);

        *x = node ? agx_container_of(node, entry, link) : NULL;
        if (!*x)
                return;
        agx_list_unlink(node);
        q.bytes = weight((*x)->event);
        p->n--;
        p->bytes -= q.bytes;
        p->hub->waiting--;
        p->hub->waiting_bytes -= q.bytes;
}

static int port_push(agx_hub_port *p, event *e)
{
        entry *x = entry_new(e), *old;

        if (!x)
                return agx_trace(-ENOMEM);
        agx_list_push_back(&p->queue, &x->link);
        p->n++;
        p->bytes += weight(e);
        p->hub->waiting++;
        p->hub->waiting_bytes += weight(e);
        while (p->n > 1 && (p->n > AGX_HUB_QUEUE_EVENTS || p->bytes > AGX_HUB_QUEUE_BYTES)) {
                port_pop(p, &old);
                entry_free(old);
                warn(p->hub, WARN_QUEUE, "a host reads its events too slowly: the oldest are dropped");
        }
        agx_hub_touch(p);
        return 0;
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

/* ---- workers ---- */

static bool has_opened(const space *s, uint64_t worker)
{
        for (size_t i = 0; i < s->n_workers; ++i)
                if (s->workers[i] == worker)
                        return true;
        return false;
}

static int open_space(agx_hub *h, uint64_t worker, agx_view nsp, const char **odd)
{
        space *s = find(h, nsp);
        int r;

        if (!is_name(nsp)) {
                *odd = "an open of a namespace that cannot be a plugin's";
                return 0;
        }
        if ((!s || !s->counted) && h->n_open >= AGX_HUB_OPEN_MAX) {
                *odd = "an open of one namespace too many";
                return 0;
        }
        r = make(h, nsp, &s);
        if (r) {
                *odd = "an open of one namespace too many";
                return r < 0 ? r : 0;
        }
        h->n_open += !s->counted;
        s->counted = true;
        if (!has_opened(s, worker) && s->n_workers < AGX_HUB_WORKERS_MAX)
                s->workers[s->n_workers++] = worker;
        return 0;
}

static int emit(agx_hub *h, space *s, const agx_frame *frame)
{
        event *e = event_new(s->by_name.key, frame->event, frame->data);
        int r = 0;

        if (!e)
                return agx_trace(-ENOMEM);
        if (agx_list_empty(&s->members)) {
                r = push(&s->outbound, e);
                if (hold(&s->outbound))
                        warn(h, WARN_HELD, "events of a namespace that no host has joined: the oldest are dropped");
        }
        agx_list_foreach_safe(node, &s->members)
        {
                int one = port_push(agx_container_of(node, member, of_space)->port, e);

                r = r ? r : one;
        }
        event_unref(e);
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
        space *s;

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
        s = r || *odd ? NULL : find(h, frame->namespace_);
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
                        space *s = agx_container_of(node, space, by_name);
                        entry *x = has_opened(s, worker) ? pop(&s->inbound) : NULL;

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
                        space *s = agx_container_of(node, space, by_name);

                        for (size_t k = 0; k < s->n_workers; ++k)
                                if (s->workers[k] == worker)
                                        s->workers[k--] = s->workers[--s->n_workers];
                }
        }
}

/* ---- ports ---- */

void agx_hub_port_init(agx_hub_port *p, agx_hub *h)
{
        *p = (agx_hub_port){.hub = h, .said = AGX_BUF_NULL(AGX_STREAM_BATCH_BYTES + AGX_STREAM_ITEM_MAX + 256)};
        agx_list_init(&p->due);
        agx_list_init(&p->flushing);
        agx_list_init(&p->queue);
        agx_list_init(&p->members);
}

static void drop_last(agx_hub_port *p)
{
        event_unref(p->last);
        p->last = NULL;
}

static void leave(member *m)
{
        space *s = m->space;
        agx_hub *h = m->port->hub;

        agx_list_unlink(&m->of_space);
        agx_list_unlink(&m->of_port);
        free(m);
        tidy(h, s);
}

/* What was on its way to the last host that had joined waits for the next one. */
static void give_back(agx_hub_port *p, event *e)
{
        space *s = find(p->hub, e->nsp);

        if (s && !agx_list_empty(&s->members) && s->members.next->next == &s->members && s->counted &&
            !push(&s->outbound, e))
                hold(&s->outbound);
}

void agx_hub_detach(agx_hub_port *p)
{
        entry *x;

        if (!p->hub)
                return;
        while (port_pop(p, &x), x) {
                give_back(p, x->event);
                entry_free(x);
        }
        drop_last(p);
        agx_list_foreach_safe(node, &p->members) leave(agx_container_of(node, member, of_port));
        for (size_t i = 0; i < AGX_HUB_STREAMS; ++i)
                agx_journal_detach(&p->readers[i]);
        agx_list_unlink(&p->due);
        agx_list_unlink(&p->flushing);
        agx_buf_deinit(&p->said);
        p->hub = NULL;
}

static member *membership(const agx_hub_port *p, agx_view nsp)
{
        agx_list_foreach_safe(node, &p->members)
        {
                member *m = agx_container_of(node, member, of_port);

                if (agx_view_eq(m->space->by_name.key, nsp))
                        return m;
        }
        return NULL;
}

int agx_hub_join(agx_hub_port *p, agx_view nsp, agx_view json)
{
        int stream = agx_hub_stream_of(nsp), r;
        member *m;
        space *s;
        entry *x;

        if (!p->hub)
                return 0;
        if (stream >= 0) {
                agx_hub_stream_join(p, stream, json);
                return 0;
        }
        if (membership(p, nsp))
                return 0;
        r = make(p->hub, nsp, &s);
        if (r)
                return r;
        m = malloc(sizeof(*m));
        if (!m) {
                tidy(p->hub, s);
                return agx_trace(-ENOMEM);
        }
        *m = (member){.space = s, .port = p};
        agx_list_init(&m->of_space);
        agx_list_init(&m->of_port);
        agx_list_push_back(&s->members, &m->of_space);
        agx_list_push_back(&p->members, &m->of_port);
        while (!r && (x = pop(&s->outbound))) {
                r = port_push(p, x->event);
                entry_free(x);
        }
        return r;
}

void agx_hub_leave(agx_hub_port *p, agx_view nsp)
{
        int stream = agx_hub_stream_of(nsp);
        member *m = p->hub ? membership(p, nsp) : NULL;

        if (p->hub && stream >= 0)
                agx_journal_detach(&p->readers[stream]);
        if (m)
                leave(m);
}

/* ---- events of hosts ---- */

static bool ends_with(agx_view text, const char *end)
{
        size_t n = strlen(end);

        return text.n >= n && !memcmp(text.p + text.n - n, end, n);
}

static void choose_workers(const space *s, agx_view name, agx_hub_outcome *outcome)
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
        member *m;
        event *e;

        *outcome = (agx_hub_outcome){.todo = AGX_HUB_TODO_NOTHING};
        if (!p->hub)
                return 0;
        if (stream >= 0) {
                agx_hub_stream_take(p, stream, name, payload, outcome);
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
        e = event_new(nsp, name, payload);
        r = e ? push(&m->space->inbound, e) : agx_trace(-ENOMEM);
        event_unref(e);
        if (!r && hold(&m->space->inbound))
                warn(p->hub, WARN_INBOUND, "events for a namespace that no worker has opened: the oldest are dropped");
        return r;
}

/* ---- what ports say ---- */

int agx_hub_next(agx_hub_port *p, agx_hub_saying *saying)
{
        entry *x = NULL;

        if (!p->hub)
                return AGX_HUB_E_NONE;
        drop_last(p);
        agx_buf_clear(&p->said);
        if (!p->window || p->in_flight < p->window)
                port_pop(p, &x);
        if (!x)
                return agx_hub_stream_say(p, saying);
        ++p->in_flight;
        p->last = x->event;
        free(x);
        *saying = (agx_hub_saying){((event *)p->last)->nsp, ((event *)p->last)->name, ((event *)p->last)->data};
        return 0;
}

agx_hub_port *agx_hub_due(agx_hub *h)
{
        agx_list *node = agx_list_first(&h->due);

        if (!node)
                return NULL;
        agx_list_unlink(node);
        return agx_container_of(node, agx_hub_port, due);
}
