/*
 * Tunnels on links that break at any moment: the server's brain, agents that come, go and lose patience, a host as the wire
 * page has it (section 5), and beside them a judge, which knows only what went upstream and what each agent was given.
 *
 * Each run is drawn from its seed. Events lie on a link in order until somebody takes them; a cut loses those that lie
 * there, and either side may notice it late. In the end nothing breaks any more, and everything must come to its end. The
 * same storm with a fault planted into the host must be found out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/tunnel.h"
#include "wire/msgpack.h"

enum {
        REQUESTS = 10,
        STEPS = 500,
        STEPS_MAX = 20000, /* until all has come to its end, once nothing breaks any more */
        RUNS = 600,
        PLANT_RUNS = 400,
        BODY_MAX = 200000,
        SMALL_MAX = 3000
};

typedef enum fault {
        NONE,
        SENDS_AGAIN_WHAT_IT_HAS,   /* a request that is said again is a new one */
        SENDS_AGAIN_ON_A_NEW_LINK, /* what had no answer yet is tried once more */
        TAKES_REPEATS,             /* of pieces of a request */
        SKIPS_A_RECORD,            /* of a reply, on a new link */
        PLANTS
} fault;

typedef enum ending { OPEN, ANSWERED, FAILED, BROKEN_OFF, OUT_OF_TIME, LEFT } ending;

typedef struct event {
        agx_list node;
        char name[64];
        size_t n;
        char bytes[];
} event;

/* What one request is, and what came of it. */
typedef struct request {
        agx_exchange x;
        size_t size, sent;             /* of its body */
        size_t reply, step;            /* bytes of its reply, and of a piece; step 0: whole */
        bool fails, begun, held, told; /* told: a piece waits for the client to take it */
        size_t got;
        ending end;
        unsigned upstream, ends;
} request;

/* What the host knows of it. */
typedef struct held {
        bool live;
        uint64_t id, next;
        size_t heard, read_since;
        bool complete, answers;
        uint64_t seq, first, said, told; /* records of the reply: the next, the first one kept, those said and told */
        bool over;                       /* all were made */
} held;

typedef struct storm {
        uint64_t random;
        fault plant;
        const char *verdict;
        agx_tunnels all;
        agx_tunnel_port ports[2];
        unsigned port;
        bool up, attached, stale; /* stale: the server has not noticed that the other port's link is gone */
        agx_tunnel *tunnel;
        agx_list to_host, to_server;
        request requests[REQUESTS];
        held held[REQUESTS];
        uint64_t newest;
        agx_buf payload;
        char bytes[BODY_MAX];
} storm;

/* ---- chance ---- */

static uint64_t draw(storm *s, uint64_t below)
{
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        return s->random % below;
}

static bool toss(storm *s, uint64_t one_in)
{
        return !draw(s, one_in);
}

/* ---- the judge ---- */

static void complain(storm *s, const char *verdict)
{
        if (!s->verdict)
                s->verdict = verdict;
}

/* The byte at `at` of a body, or of a reply. */
static char byte_of(size_t index, size_t at, bool reply)
{
        return (char)(at * 31 + at / 251 + index * 7 + (reply ? 101 : 0));
}

static agx_view bytes_of(storm *s, size_t index, size_t from, size_t n, bool reply)
{
        for (size_t i = 0; i < n; ++i)
                s->bytes[i] = byte_of(index, from + i, reply);
        return agx_view_of(s->bytes, n);
}

static bool is_right(size_t index, size_t from, agx_view v, bool reply)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] != byte_of(index, from + i, reply))
                        return false;
        return true;
}

static void judge_upstream(storm *s, request *r)
{
        if (++r->upstream > 1)
                complain(s, "sent upstream twice");
}

static void judge_end(storm *s, request *r, ending end)
{
        r->end = end;
        if (++r->ends > 1)
                complain(s, "a request ended twice");
        if (end == ANSWERED && r->upstream != 1)
                complain(s, "answered, but never sent upstream");
        if (end == ANSWERED && r->got != r->reply)
                complain(s, "an answer that is not whole");
        if ((end == ANSWERED) == r->fails && end < OUT_OF_TIME && r->upstream && end != BROKEN_OFF)
                complain(s, "not the outcome that its handler had");
}

static void judge_bytes(storm *s, request *r, agx_view v)
{
        size_t index = (size_t)(r - s->requests);

        if (r->got + v.n > r->reply || !is_right(index, r->got, v, true))
                complain(s, "not the bytes of the reply");
        r->got += v.n;
}

static void judge_body(storm *s, size_t index, held *h, agx_view v, bool last)
{
        request *r = &s->requests[index];

        if (h->heard + v.n > r->size || !is_right(index, h->heard, v, false))
                complain(s, "not the bytes of the request");
        h->heard += v.n;
        if (last && h->heard != r->size)
                complain(s, "a request that is not whole");
}

/* ---- the link ---- */

static void put(agx_list *to, agx_view name, agx_view payload)
{
        event *e = malloc(sizeof(*e) + payload.n);

        assert_non_null(e);
        assert_true(name.n < sizeof(e->name));
        memset(e->name, 0, sizeof(e->name));
        memcpy(e->name, name.p, name.n);
        e->n = payload.n;
        memcpy(e->bytes, payload.p, payload.n);
        agx_list_init(&e->node);
        agx_list_push_back(to, &e->node);
}

static event *take(agx_list *from)
{
        event *e = agx_list_empty(from) ? NULL : agx_container_of(agx_list_first(from), event, node);

        if (e)
                agx_list_unlink(&e->node);
        return e;
}

static void lose_all(agx_list *list)
{
        for (event *e; (e = take(list));)
                free(e);
}

/* ---- msgpack ---- */

static agx_mp_writer begin(storm *s, size_t pairs)
{
        agx_mp_writer w;

        agx_buf_clear(&s->payload);
        w = agx_mp_writer_on(&s->payload);
        agx_mp_put_map(&w, pairs);
        return w;
}

static void put_uint(agx_mp_writer *w, const char *key, uint64_t n)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_uint(w, n);
}

static void put_text(agx_mp_writer *w, const char *key, const char *text)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_str(w, agx_view_str(text));
}

/* What the payload says by this key, at whatever depth; values that are maps are entered. */
static agx_mp_token said(agx_view payload, const char *key)
{
        agx_mp_reader r = agx_mp_reader_on(payload);

        for (;;) {
                agx_mp_token t = agx_mp_next(&r);

                assert_int_not_equal(t.kind, AGX_MP_ERROR);
                if (t.kind == AGX_MP_END)
                        return t;
                if (t.kind == AGX_MP_STR && agx_view_eq(t.v, agx_view_str(key))) {
                        t = agx_mp_next(&r);
                        if (t.kind != AGX_MP_MAP)
                                return t;
                }
        }
}

static void emit(storm *s, const char *name)
{
        if (s->up)
                put(&s->to_server, agx_view_str(name), agx_buf_view(&s->payload));
}

/* ---- the host ---- */

static size_t piece_of(const request *r, uint64_t seq)
{
        size_t from = r->step ? (size_t)(seq - 1) * r->step : 0, n = r->reply - from;

        if (!r->step || !seq)
                return r->step ? 0 : r->reply;
        return n < r->step ? n : r->step;
}

static void say_record(storm *s, size_t index, held *h, uint64_t seq)
{
        request *r = &s->requests[index];
        size_t n = piece_of(r, seq);
        agx_view bytes = bytes_of(s, index, seq && r->step ? (size_t)(seq - 1) * r->step : 0, n, true);
        agx_mp_writer w = begin(s, seq ? 4 : 3);

        put_uint(&w, "request_id", h->id);
        put_uint(&w, "seq", seq);
        if (seq) {
                agx_mp_put_str(&w, AGX_VIEW("data"));
                agx_mp_put_bin(&w, bytes);
                agx_mp_put_str(&w, AGX_VIEW("last"));
                agx_mp_put_bool(&w, (size_t)(seq - 1) * r->step + n >= r->reply);
                emit(s, "chunk");
                return;
        }
        agx_mp_put_str(&w, agx_view_str(r->fails ? "error" : "value"));
        agx_mp_put_map(&w, 2);
        put_uint(&w, "status_code", r->fails ? 429 : 200);
        if (r->fails)
                put_text(&w, "message", "no");
        else
                agx_mp_put_str(&w, AGX_VIEW("body"));
        if (!r->fails)
                agx_mp_put_bin(&w, bytes);
        emit(s, r->fails ? "/m:error" : r->step ? "head" : "/m:result");
}

static void say_kept(storm *s, size_t index, held *h)
{
        for (; s->attached && h->said < h->seq; ++h->said) {
                say_record(s, index, h, h->said);
                if (h->told <= h->said)
                        h->told = h->said + 1;
        }
}

static void acknowledge(storm *s, held *h)
{
        agx_mp_writer w = begin(s, 2);

        h->read_since = 0;
        put_uint(&w, "request_id", h->id);
        put_uint(&w, "seq", h->next);
        if (s->attached)
                emit(s, "ack");
}

/* One more record of a reply, if there is room for it. */
static void answer(storm *s, size_t index, held *h)
{
        request *r = &s->requests[index];
        size_t kept = 0;

        for (uint64_t seq = h->first; seq < h->seq; ++seq)
                kept += piece_of(r, seq);
        if (h->over || (h->first < h->seq && kept + piece_of(r, h->seq) > AGX_TUNNEL_CREDIT))
                return;
        h->over = r->fails || !r->step || (h->seq && (size_t)h->seq * r->step >= r->reply);
        ++h->seq;
        say_kept(s, index, h);
}

static size_t index_of(const storm *s, uint64_t id)
{
        for (size_t i = 0; i < REQUESTS; ++i)
                if (s->held[i].live && s->held[i].id == id)
                        return i;
        return REQUESTS;
}

/* The request's number is its query. */
static void hear_request(storm *s, agx_view payload, uint64_t id)
{
        size_t index = (size_t)(said(payload, "query").v.p[0] - 'a');
        held *h = &s->held[index];
        agx_mp_token body = said(payload, "body");

        assert_true(index < REQUESTS);
        if (index_of(s, id) < REQUESTS && s->plant == SENDS_AGAIN_WHAT_IT_HAS)
                judge_upstream(s, &s->requests[index]);
        if (id <= s->newest)
                return;
        s->newest = id;
        *h = (held){.live = true, .id = id, .next = 1, .complete = said(payload, "last").b};
        judge_upstream(s, &s->requests[index]);
        judge_body(s, index, h, body.v, h->complete);
        h->read_since = body.v.n;
}

static void hear_chunk(storm *s, agx_view payload, size_t index)
{
        held *h = &s->held[index];
        uint64_t seq = said(payload, "seq").u;
        agx_mp_token data = said(payload, "data");

        if (h->complete || (seq != h->next && !(s->plant == TAKES_REPEATS && seq < h->next)))
                return;
        h->next = seq + 1;
        h->complete = said(payload, "last").b;
        judge_body(s, index, h, data.v, h->complete);
        h->read_since += data.v.n;
}

static void go_on(storm *s)
{
        s->attached = true;
        for (size_t i = 0; i < REQUESTS; ++i) {
                held *h = &s->held[i];

                if (!h->live)
                        continue;
                if (s->plant == SENDS_AGAIN_ON_A_NEW_LINK && !h->seq)
                        judge_upstream(s, &s->requests[i]);
                h->said = h->first + (s->plant == SKIPS_A_RECORD && h->first < h->seq);
                if (!h->complete)
                        acknowledge(s, h);
                say_kept(s, i, h);
        }
}

static void hear(storm *s)
{
        event *e = take(&s->to_host);
        agx_view payload;
        uint64_t id;
        size_t index;

        if (!e)
                return;
        payload = agx_view_of(e->bytes, e->n);
        id = said(payload, "request_id").u;
        index = index_of(s, id);
        if (!strcmp(e->name, "open:result") || !strcmp(e->name, "attach:result"))
                go_on(s);
        else if (e->name[0] == '/')
                hear_request(s, payload, id);
        else if (index < REQUESTS && !strcmp(e->name, "chunk"))
                hear_chunk(s, payload, index);
        else if (index < REQUESTS && !strcmp(e->name, "gone"))
                s->held[index].live = false;
        else if (index < REQUESTS && !strcmp(e->name, "ack")) {
                held *h = &s->held[index];
                uint64_t below = said(payload, "seq").u;

                below = below < h->told ? below : h->told;
                h->first = h->first > below ? h->first : below;
        }
        free(e);
}

static void work(storm *s)
{
        size_t index = (size_t)draw(s, REQUESTS);
        held *h = &s->held[index];

        if (!h->live)
                return;
        if (!h->complete && h->read_since >= AGX_TUNNEL_CREDIT / 4)
                acknowledge(s, h);
        h->answers = h->answers || toss(s, h->complete ? 4 : 60);
        if (h->answers)
                answer(s, index, h);
}

/* ---- the server's shell ---- */

static void over(storm *s, request *r, ending end)
{
        agx_exchange_over(&r->x);
        judge_end(s, r, end);
}

static void deal(storm *s, agx_tunnel_outcome *o)
{
        request *r = o->exchange ? agx_container_of(o->exchange, request, x) : NULL;

        switch (o->todo) {
        case AGX_TUNNEL_TODO_WHOLE:
        case AGX_TUNNEL_TODO_HEAD:
        case AGX_TUNNEL_TODO_BODY:
                r->held = true; /* NOLINT(clang-analyzer-core.NullDereference): there is an exchange then */
                r->told = true;
                judge_bytes(s, r, o->reply.body);
                break;
        case AGX_TUNNEL_TODO_ERROR:
                over(s, r, r->held ? BROKEN_OFF : FAILED); /* NOLINT(clang-analyzer-core.NullDereference) */
                break;
        case AGX_TUNNEL_TODO_LOST:
                while ((o->exchange = agx_tunnel_next_lost(o->tunnel))) {
                        r = agx_container_of(o->exchange, request, x);
                        if (s->held[r - s->requests].live)
                                complain(s, "ended as lost, though the host has it");
                        over(s, r, r->held ? BROKEN_OFF : FAILED);
                }
                break;
        case AGX_TUNNEL_TODO_LISTEN:
                s->tunnel = o->tunnel;
                agx_tunnel_opened(o->tunnel, o->request_id, 4711);
                break;
        case AGX_TUNNEL_TODO_NOTE:
                complain(s, o->why);
                break;
        default:
                break;
        }
}

static void serve(storm *s)
{
        event *e = take(&s->to_server);
        agx_tunnel_outcome o;

        if (!e)
                return;
        assert_int_equal(agx_tunnels_take(&s->all, &s->ports[s->port], agx_view_str(e->name),
                                          agx_view_of(e->bytes, e->n), &o),
                         0);
        deal(s, &o);
        free(e);
}

/* A port says something; on a link that is gone, to nobody. */
static void say(storm *s, unsigned port)
{
        agx_tunnel_saying saying;

        if (agx_tunnels_say(&s->all, &s->ports[port], &saying))
                return;
        if (s->up && port == s->port)
                put(&s->to_host, saying.event, saying.data);
}

/* ---- agents ---- */

static void ask(storm *s, size_t index)
{
        static const agx_http1_head head = {.method = {"POST", 4}};
        request *r = &s->requests[index];
        char query = (char)('a' + index);
        size_t n = r->size < 1000 ? r->size : (size_t)draw(s, 1000);

        r->begun = true;
        r->sent = n;
        assert_int_equal(agx_exchange_begin(&r->x, s->tunnel, agx_tunnel_path(s->tunnel, AGX_VIEW("/m")), &head,
                                            agx_view_of(&query, 1), bytes_of(s, index, 0, n, false), n == r->size),
                         0);
}

static void send_more(storm *s, size_t index)
{
        request *r = &s->requests[index];
        size_t n = 1 + (size_t)draw(s, 30000);

        if (r->sent == r->size || agx_exchange_full(&r->x))
                return;
        n = n < r->size - r->sent ? n : r->size - r->sent;
        assert_int_equal(agx_exchange_more(&r->x, bytes_of(s, index, r->sent, n, false), r->sent + n == r->size), 0);
        r->sent += n;
}

static void act(storm *s, bool calm)
{
        size_t index = (size_t)draw(s, REQUESTS);
        request *r = &s->requests[index];

        if (!r->begun) {
                if (s->tunnel && (calm || toss(s, 10)))
                        ask(s, index);
                return;
        }
        if (r->end)
                return;
        if (!calm && toss(s, 150)) {
                over(s, r, toss(s, 2) ? LEFT : OUT_OF_TIME);
                return;
        }
        send_more(s, index);
        if (r->told && toss(s, 2)) {
                r->told = false;
                agx_exchange_taken(&r->x);
                if (r->x.ended)
                        over(s, r, ANSWERED);
        }
}

/* ---- what breaks ---- */

static void notice(storm *s)
{
        if (s->stale)
                agx_tunnel_port_detach(&s->ports[s->port ^ 1]);
        s->stale = false;
}

static void cut(storm *s)
{
        notice(s);
        lose_all(&s->to_host);
        lose_all(&s->to_server);
        s->up = s->attached = false;
        if (toss(s, 2))
                agx_tunnel_port_detach(&s->ports[s->port]);
}

static void ask_attach(storm *s)
{
        agx_mp_writer w = begin(s, 2);
        size_t n = 0;

        put_text(&w, "request_id", "q");
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_map(&w, 2);
        put_uint(&w, "tunnel", s->tunnel->id);
        agx_mp_put_str(&w, AGX_VIEW("live"));
        for (size_t i = 0; i < REQUESTS; ++i)
                n += s->held[i].live;
        agx_mp_put_array(&w, n);
        for (size_t i = 0; i < REQUESTS; ++i)
                if (s->held[i].live)
                        agx_mp_put_uint(&w, s->held[i].id);
        emit(s, "attach");
}

static void ask_open(storm *s)
{
        agx_mp_writer w = begin(s, 2);

        put_text(&w, "request_id", "q");
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_map(&w, 2);
        agx_mp_put_str(&w, AGX_VIEW("paths"));
        agx_mp_put_array(&w, 1);
        agx_mp_put_str(&w, AGX_VIEW("/m"));
        put_uint(&w, "window", 1000);
        emit(s, "open");
}

/* A new link, on a port of its own; the server may not know yet that the one before is gone. */
static void reconnect(storm *s)
{
        notice(s);
        s->port ^= 1;
        s->stale = true;
        agx_tunnel_port_detach(&s->ports[s->port]);
        agx_tunnel_port_init(&s->ports[s->port]);
        s->up = true;
        if (s->tunnel)
                ask_attach(s);
        else
                ask_open(s);
}

static void step(storm *s, bool calm)
{
        if (!calm && s->up && toss(s, 80))
                cut(s);
        else if (!s->up && toss(s, 6))
                reconnect(s);
        if (s->stale && toss(s, 10))
                notice(s);
        act(s, calm);
        say(s, s->port);
        if (s->stale)
                say(s, s->port ^ 1);
        for (unsigned n = (unsigned)draw(s, 4); n; --n)
                hear(s);
        for (unsigned n = (unsigned)draw(s, 4); n; --n)
                serve(s);
        work(s);
}

/* ---- a run ---- */

static void storm_init(storm *s, uint64_t seed, fault plant)
{
        static const uint8_t key[16] = {7};

        memset(s, 0, offsetof(storm, bytes));
        s->random = (seed + 1) * 0x9e3779b97f4a7c15u;
        s->plant = plant;
        agx_tunnels_init(&s->all, key);
        for (int i = 0; i < 2; ++i)
                agx_tunnel_port_init(&s->ports[i]);
        agx_list_init(&s->to_host);
        agx_list_init(&s->to_server);
        s->payload = AGX_BUF_NULL(1 << 20);
        for (size_t i = 0; i < REQUESTS; ++i) {
                request *r = &s->requests[i];

                agx_exchange_init(&r->x);
                r->size = (size_t)draw(s, toss(s, 3) ? BODY_MAX : SMALL_MAX);
                r->fails = toss(s, 6);
                r->step = r->fails || toss(s, 2) ? 0 : 1 + (size_t)draw(s, 40000);
                r->reply = r->fails ? 0 : 1 + (size_t)draw(s, r->step ? 5 * r->step : SMALL_MAX);
        }
}

static void storm_deinit(storm *s)
{
        lose_all(&s->to_host);
        lose_all(&s->to_server);
        if (s->tunnel)
                agx_tunnel_free(s->tunnel);
        for (int i = 0; i < 2; ++i)
                agx_tunnel_port_detach(&s->ports[i]);
        agx_tunnels_deinit(&s->all);
        agx_buf_deinit(&s->payload);
}

static bool is_over(const storm *s)
{
        for (size_t i = 0; i < REQUESTS; ++i)
                if (!s->requests[i].end || s->held[i].live)
                        return false;
        return true;
}

static void judge_all(storm *s)
{
        for (size_t i = 0; i < REQUESTS; ++i) {
                if (!s->requests[i].end)
                        complain(s, "never answered");
                else if (s->held[i].live)
                        complain(s, "the host is never told that it is over");
        }
}

/* NULL, or what the judge says. */
static const char *run_storm(storm *s, uint64_t seed, fault plant, unsigned *ends)
{
        storm_init(s, seed, plant);
        for (unsigned n = 0; n < STEPS && !s->verdict; ++n)
                step(s, false);
        for (unsigned n = 0; n < STEPS_MAX && !s->verdict && !is_over(s); ++n)
                step(s, true);
        judge_all(s);
        for (size_t i = 0; i < REQUESTS; ++i)
                ++ends[s->requests[i].end];
        storm_deinit(s);
        return s->verdict;
}

static void each_is_sent_once_and_answered_once(void **state)
{
        static storm s;
        unsigned ends[LEFT + 1] = {0};

        (void)state;
        for (uint64_t seed = 0; seed < RUNS; ++seed) {
                const char *verdict = run_storm(&s, seed, NONE, ends);

                if (verdict)
                        fail_msg("seed %llu: %s", (unsigned long long)seed, verdict);
        }
        for (ending end = ANSWERED; end <= LEFT; ++end)
                if (end != BROKEN_OFF)
                        assert_true(ends[end] > RUNS / 100); /* there was some of everything */
}

static void planted_faults_are_found(void **state)
{
        static const char *const words[PLANTS][3] = {
                [SENDS_AGAIN_WHAT_IT_HAS] = {"sent upstream twice"},
                [SENDS_AGAIN_ON_A_NEW_LINK] = {"sent upstream twice"},
                [TAKES_REPEATS] = {"not the bytes of the request", "a request that is not whole"},
                [SKIPS_A_RECORD] = {"never answered", "not the bytes of the reply", "an answer that is not whole"},
        };
        static storm s;

        (void)state;
        for (fault plant = NONE + 1; plant < PLANTS; ++plant) {
                const char *verdict = NULL;
                unsigned ends[LEFT + 1] = {0};
                bool known = false;

                for (uint64_t seed = 0; seed < PLANT_RUNS && !verdict; ++seed)
                        verdict = run_storm(&s, seed, plant, ends);
                for (int i = 0; i < 3 && verdict && words[plant][i]; ++i)
                        known |= !strcmp(verdict, words[plant][i]);
                if (!known)
                        fail_msg("plant %d: %s", (int)plant, verdict ? verdict : "not found");
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_is_sent_once_and_answered_once),
                cmocka_unit_test(planted_faults_are_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
