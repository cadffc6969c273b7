/*
 * Side channels: namespaces that are joined on every link. Of a plugin's, events are passed on as they come, and those of
 * the host wait for the link; what was under way when a link went is lost. A stream's batches have numbers: what has been
 * seen is named when the next link joins, so that nothing comes twice, and a hole is told as a number of lost items.
 */
#include "base/err.h"
#include "client/state.h"
#include "proto/fields.h"

#include <stdio.h>

enum {
        STREAM_WINDOW = 1024,
        EVENTS_WINDOW = 4096,
        EVENTS_TOLD = EVENTS_WINDOW / 8,
        BATCH_DEPTH = AGX_MAX_NESTING,
        SEQ_BITS = 53
};

typedef enum space_state { SPACE_IDLE, SPACE_ASKED, SPACE_JOINED, SPACE_REFUSED } space_state;

typedef struct outgoing {
        agx_list link;
        agx_view name, payload;
        char bytes[];
} outgoing;

typedef struct space {
        agx_list link;
        space_state state;
        bool stream;
        agx_list queue;
        size_t n, bytes;
        uint64_t seen, dealt, told; /* of a stream: received, dealt with, acknowledged */
        agx_view name;
        char text[];
} space;

static space *space_of(agx_list *node)
{
        return agx_container_of(node, space, link);
}

static space *find(const agx_client *c, agx_view name)
{
        for (agx_list *node = c->spaces.next; node != &c->spaces; node = node->next)
                if (agx_view_eq(space_of(node)->name, name))
                        return space_of(node);
        return NULL;
}

/* ---- lifecycle ---- */

static bool is_name(agx_view name)
{
        if (name.n < 2 || name.n > AGX_SIO_NAME_MAX || name.p[0] != '/' || agx_view_eq(name, AGX_VIEW("/rpc")))
                return false;
        return !memchr(name.p, ',', name.n) && !memchr(name.p, '?', name.n);
}

int agx_client_join(agx_client *c, agx_view nsp, bool stream, uint64_t now_ms)
{
        space *s;

        if (!is_name(nsp) || find(c, nsp))
                return -EINVAL;
        if (c->n_spaces >= AGX_CLIENT_SPACES_MAX)
                return AGX_CLIENT_E_FULL;
        s = calloc(1, sizeof(*s) + nsp.n);
        if (!s)
                return agx_trace(-ENOMEM);
        memcpy(s->text, nsp.p, nsp.n);
        s->name = agx_view_of(s->text, nsp.n);
        s->stream = stream;
        agx_list_init(&s->queue);
        agx_list_init(&s->link);
        agx_list_push_back(&c->spaces, &s->link);
        ++c->n_spaces;
        c->n_plugins += !stream;
        agx_pool_pump(c, now_ms);
        return 0;
}

static void drop_first(space *s)
{
        outgoing *o = agx_container_of(agx_list_first(&s->queue), outgoing, link);

        agx_list_unlink(&o->link);
        --s->n;
        s->bytes -= o->payload.n;
        free(o);
}

void agx_side_free(agx_client *c)
{
        agx_client_event *event;

        while ((event = agx_client_next_event(c)))
                agx_client_event_free(event);
        agx_list_foreach_safe(node, &c->spaces)
        {
                space *s = space_of(node);

                while (s->n)
                        drop_first(s);
                agx_list_unlink(node);
                free(s);
        }
}

/* ---- the link ---- */

bool agx_side_wanted(const agx_client *c)
{
        return c->n_spaces && c->connected && (c->side_needed || !c->side_tired);
}

void agx_side_connected(agx_client *c, uint64_t now_ms)
{
        if (c->side_ms == UINT64_MAX)
                c->side_ms = c->n_plugins ? now_ms : now_ms + AGX_CLIENT_SIDE_MS;
}

void agx_client_hurry(agx_client *c, uint64_t now_ms)
{
        c->side_tired = false;
        if (c->connected)
                c->side_ms = now_ms;
        agx_pool_pump(c, now_ms);
}

void agx_client_need_link(agx_client *c, bool needed, uint64_t now_ms)
{
        c->side_needed = needed;
        agx_pool_pump(c, now_ms);
}

void agx_side_rest(agx_client *c, uint64_t now_ms)
{
        c->side_tired = true;
        if (c->side_ms != UINT64_MAX)
                c->side_ms = now_ms + AGX_CLIENT_SIDE_REST_MS;
}

int agx_client_is_joined(const agx_client *c, agx_view nsp)
{
        const space *s = find(c, nsp);

        if (!s || s->state == SPACE_REFUSED)
                return -1;
        return s->state == SPACE_JOINED;
}

agx_view agx_client_linked_instance(const agx_client *c)
{
        return c->link_generation && c->link_generation == c->generation ? agx_view_str(c->instance) : AGX_VIEW("");
}

static int join(agx_client *c, space *s)
{
        char json[128 + AGX_CLIENT_HEALTH_TEXT];
        int n = snprintf(json, sizeof(json), "{\"window\":%d,\"events\":%d,\"after\":%llu,\"instance\":\"%s\"}",
                         STREAM_WINDOW, EVENTS_WINDOW, (unsigned long long)s->seen, c->instance);

        s->state = SPACE_ASKED;
        s->told = s->seen;
        if (s->stream && !s->seen) /* it has none: the server knows where to begin */
                n = snprintf(json, sizeof(json), "{\"window\":%d,\"events\":%d}", STREAM_WINDOW, EVENTS_WINDOW);
        return agx_siolink_join(c->link, s->name, s->stream ? agx_view_of(json, (size_t)n) : AGX_VIEW_NULL);
}

/* Another instance counts anew. */
static void forget_other_instance(agx_client *c)
{
        if (c->side_generation == c->link_generation)
                return;
        c->side_generation = c->link_generation;
        for (agx_list *node = c->spaces.next; node != &c->spaces; node = node->next)
                space_of(node)->seen = space_of(node)->dealt = space_of(node)->told = 0;
}

int agx_side_begin(agx_client *c)
{
        int r = 0;

        forget_other_instance(c);
        c->side_taken = 0;
        for (agx_list *node = c->spaces.next; !r && node != &c->spaces; node = node->next)
                r = join(c, space_of(node));
        return r;
}

/* ---- events for the shell ---- */

static int report(agx_client *c, agx_client_event_kind kind, const space *s, agx_view name, agx_view payload,
                  agx_client_event **reported)
{
        agx_client_event *e = malloc(sizeof(*e) + s->name.n + name.n + payload.n);
        char *at = (char *)(e + 1);

        if (reported)
                *reported = e;
        if (!e)
                return agx_trace(-ENOMEM);
        *e = (agx_client_event){.kind = kind};
        e->nsp = agx_view_of(memcpy(at, s->name.p, s->name.n), s->name.n);
        at += s->name.n;
        e->name = agx_view_of(at, name.n);
        if (name.n)
                memcpy(at, name.p, name.n);
        at += name.n;
        e->payload = agx_view_of(at, payload.n);
        if (payload.n)
                memcpy(at, payload.p, payload.n);
        agx_list_init(&e->link);
        agx_list_push_back(&c->events, &e->link);
        return 0;
}

agx_client_event *agx_client_next_event(agx_client *c)
{
        agx_list *node = agx_list_first(&c->events);

        if (!node)
                return NULL;
        agx_list_unlink(node);
        return agx_container_of(node, agx_client_event, link);
}

void agx_client_event_free(agx_client_event *event)
{
        free(event);
}

static void close_space(agx_client *c, space *s)
{
        bool joined = s->state == SPACE_JOINED;

        s->state = SPACE_IDLE;
        c->n_joined -= joined;
        if (joined)
                report(c, AGX_CLIENT_CLOSED, s, AGX_VIEW(""), AGX_VIEW(""), NULL);
}

void agx_side_lost(agx_client *c)
{
        for (agx_list *node = c->spaces.next; node != &c->spaces; node = node->next)
                close_space(c, space_of(node));
}

/* ---- hearing ---- */

typedef struct batch {
        uint64_t seq, lost;
        agx_view items;
} batch;

static bool read_batch(agx_view payload, batch *b, size_t *n)
{
        static const agx_field rows[] = {AGX_FIELD(batch, seq, "seq", UINT, "a non-negative int"),
                                         AGX_FIELD(batch, lost, "lost", UINT, "a non-negative int"),
                                         AGX_FIELD(batch, items, "items", ARRAY, "an array")};
        agx_mp_reader r = agx_mp_reader_on(payload);
        uint32_t present;

        *b = (batch){.seq = 0};
        if (!agx_fields_read(&r, (agx_fields){rows, 3, 7}, BATCH_DEPTH, b, &present) || !agx_mp_done(&r) || !b->items.p)
                return false;
        r = agx_mp_reader_on(b->items);
        *n = agx_mp_next(&r).count;
        return b->seq && b->seq >> SEQ_BITS == 0;
}

/* A batch that cannot be read is passed over: the sandbox alone has made it so. */
static int on_batch(agx_client *c, space *s, agx_view name, agx_view payload)
{
        agx_client_event *e;
        uint64_t last, next = s->seen + 1;
        size_t n;
        batch b;

        if (!agx_view_eq(name, AGX_VIEW("batch")) || !read_batch(payload, &b, &n))
                return 0;
        last = b.seq + n - 1;
        if (n && last < next)
                return 0;
        if (report(c, AGX_CLIENT_BATCH, s, name, payload, &e))
                return -ENOMEM;
        e->skip = b.seq < next ? (size_t)(next - b.seq) : 0;
        e->lost = !s->seen ? b.lost : b.seq > next ? b.seq - next : 0;
        e->last = last;
        s->seen = last > s->seen ? last : s->seen;
        return 0;
}

int agx_side_heard(agx_client *c, const agx_siolink_event *event)
{
        space *s = find(c, event->nsp);

        if (!s)
                return 0;
        switch (event->kind) {
        case AGX_SIOLINK_OPENED:
                c->n_joined += s->state != SPACE_JOINED;
                s->state = SPACE_JOINED;
                return report(c, AGX_CLIENT_OPENED, s, AGX_VIEW(""), AGX_VIEW(""), NULL);
        case AGX_SIOLINK_CLOSED:
                close_space(c, s);
                s->state = SPACE_REFUSED;
                return 0;
        case AGX_SIOLINK_EVENT:
                if (s->stream && !agx_view_eq(event->name, AGX_VIEW("flushed")))
                        return on_batch(c, s, event->name, event->payload);
                return report(c, AGX_CLIENT_EVENT, s, event->name, event->payload, NULL);
        default:
                return 0;
        }
}

/* ---- saying ---- */

/* {<key>: <number>} */
static int say_number(agx_client *c, const space *s, const char *name, const char *key, uint64_t number)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(64);
        agx_mp_writer w = agx_mp_writer_on(&out);
        int r;

        agx_mp_put_map(&w, 1);
        agx_mp_put_str(&w, agx_view_str(key));
        agx_mp_put_uint(&w, number);
        r = agx_mp_writer_end(&w);
        return r ? r : agx_siolink_emit(c->link, s->name, agx_view_str(name), agx_buf_view(&out));
}

static int say_dealt(agx_client *c, space *s)
{
        int r;

        if (c->side_taken >= EVENTS_TOLD && agx_view_eq(s->name, AGX_VIEW("/log"))) {
                r = say_number(c, s, "taken", "n", c->side_taken);
                if (r)
                        return r;
                c->side_taken = 0;
        }
        if (s->dealt <= s->told)
                return 0;
        r = say_number(c, s, "ack", "seq", s->dealt);
        if (!r)
                s->told = s->dealt;
        return r;
}

static int say_queue(agx_client *c, space *s)
{
        int r = 0;

        while (!r && s->n) {
                const outgoing *o = agx_container_of(agx_list_first(&s->queue), outgoing, link);

                r = agx_siolink_emit(c->link, s->name, o->name, o->payload);
                if (r == AGX_SIOLINK_E_TOO_LARGE)
                        r = 0; /* of this transport; it cannot be said */
                if (!r)
                        drop_first(s);
        }
        return r;
}

int agx_side_say(agx_client *c)
{
        int r = 0;

        for (agx_list *node = c->spaces.next; !r && node != &c->spaces; node = node->next) {
                space *s = space_of(node);

                if (s->state != SPACE_JOINED)
                        continue;
                r = s->stream ? say_dealt(c, s) : 0;
                if (!r)
                        r = say_queue(c, s);
        }
        return r;
}

static int enqueue(space *s, agx_view name, agx_view payload)
{
        outgoing *o;

        if (s->n && (s->n >= AGX_CLIENT_SIDE_EVENTS || s->bytes + payload.n > AGX_CLIENT_SIDE_BYTES))
                return AGX_CLIENT_E_FULL;
        o = malloc(sizeof(*o) + name.n + payload.n);
        if (!o)
                return agx_trace(-ENOMEM);
        agx_list_init(&o->link);
        o->name = agx_view_of(memcpy(o->bytes, name.p, name.n), name.n);
        o->payload = agx_view_of(o->bytes + name.n, payload.n);
        if (payload.n)
                memcpy(o->bytes + name.n, payload.p, payload.n);
        agx_list_push_back(&s->queue, &o->link);
        ++s->n;
        s->bytes += payload.n;
        return 0;
}

int agx_client_emit(agx_client *c, agx_view nsp, agx_view name, agx_view payload, uint64_t now_ms)
{
        space *s = find(c, nsp);
        int r;

        if (!s || !name.n)
                return -EINVAL;
        if (name.n > AGX_SIO_NAME_MAX || payload.n > AGX_EVENT_MAX)
                return AGX_CLIENT_E_TOO_LARGE;
        if (!agx_road_is_open(c))
                return AGX_CLIENT_E_ABSENT;
        c->side_tired = false;
        r = enqueue(s, name, payload);
        agx_pool_pump(c, now_ms);
        return r;
}

void agx_client_dealt(agx_client *c, agx_view nsp, uint64_t seq, uint64_t now_ms)
{
        space *s = find(c, nsp);

        if (!s || seq <= s->dealt || seq > s->seen)
                return;
        s->dealt = seq;
        agx_pool_pump(c, now_ms);
}

void agx_client_taken(agx_client *c, size_t n, uint64_t now_ms)
{
        c->side_taken += n;
        if (c->side_taken >= EVENTS_TOLD)
                agx_pool_pump(c, now_ms);
}
