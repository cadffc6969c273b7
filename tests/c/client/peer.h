#ifndef AGX_TEST_CLIENT_PEER_H
#define AGX_TEST_CLIENT_PEER_H
/*
 * The server's end of a link, and a whole server behind both roads: a table of calls that keeps the promises of wire.md,
 * section 3, in the plainest way, and counts how often each was begun. What it answers waits in an outbox until
 * serve(): so a test may act between an event and its answer.
 */
#include "shell.h"

#include "proto/rpc.h"
#include "wire/eio.h"
#include "wire/sio.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

enum { SERVED = 512 };

typedef struct peer {
        agx_ws *ws;
        agx_eio *eio;
        agx_sio *sio;
        agx_buf outbox;
        bool joined;
        char session[64];
} peer;

typedef struct server server;

typedef struct served {
        char id[64];
        char argument[32];
        int instance;
        int runs;
        bool running, kept, gone, cancelled;
        int cancels;
        end *post; /* that still waits */
} served;

struct server {
        fixture f;
        served calls[SERVED];
        size_t n_calls;
        int instance;     /* calls of an earlier one are not known any more */
        end *link;        /* that joined last */
        bool no_link;     /* GET /socket.io is 404 */
        bool no_auto;     /* what is upgraded is the test's to answer */
        unsigned no_post; /* a status for every POST, 0: none */
        bool hold;        /* POSTs are held, else answered 202 */
        bool at_once;     /* calls end as they begin */
        size_t refusals;  /* calls that there is no room for before one is taken again */
        size_t resumes, resumed, calls_sent, acked, links, refused;
        size_t refuse_upgrade;
        size_t credits; /* events */
        uint64_t credit;
        bool (*sio_request)(server *s, end *e); /* answers requests for Socket.IO itself; whether anything happened */
        peer *polled;                           /* a session over long-polling: see test_polling.c */
};

static inline server *server_of(fixture *f)
{
        return (server *)(void *)f;
}

static inline served *find(server *s, agx_view id)
{
        for (size_t i = 0; i < s->n_calls; ++i)
                if (s->calls[i].instance == s->instance && agx_view_eq(agx_view_str(s->calls[i].id), id))
                        return &s->calls[i];
        return NULL;
}

/* ---- saying ---- */

/* Over long-polling what is said waits in eio. */
static inline void pull(peer *p)
{
        agx_eio_frame frame;

        while (p->ws) {
                if (!agx_ws_sending(p->ws) && agx_eio_ws_next(p->eio, &frame)) {
                        assert_int_equal(agx_ws_send(p->ws, !frame.binary, frame.head, frame.body), 0);
                        while (agx_ws_pull(p->ws, NULL, &p->outbox) == 0)
                                ;
                        agx_eio_ws_sent(p->eio);
                } else if (agx_ws_pull(p->ws, NULL, &p->outbox) == AGX_WS_IDLE) {
                        return;
                }
        }
}

static inline peer *peer_of(server *s, const end *e)
{
        return e->peer ? e->peer : s->polled;
}

static inline void say_text(peer *p, agx_buf *text)
{
        agx_eio_message m = {.head = agx_buf_view(text)};

        assert_int_equal(agx_eio_send(p->eio, &m, 1), 0);
        pull(p);
}

static inline void emit(server *s, end *e, const char *name, agx_view payload)
{
        peer *p = peer_of(s, e);
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1000);
        agx_sio_arg arg = {.binary = true};
        agx_eio_message messages[2] = {{.binary = false}, {.binary = true, .head = payload}};
        bool before = agx_oom_pause(true);

        assert_int_equal(agx_sio_emit(p->sio, AGX_VIEW("/rpc"), agx_view_str(name), &arg, 1, NULL, &text), 0);
        messages[0].head = agx_buf_view(&text);
        assert_int_equal(agx_eio_send(p->eio, messages, 2), 0);
        pull(p);
        agx_oom_pause(before);
}

static inline void emit_rpc(server *s, end *e, const agx_rpc_event *event)
{
        _cleanup_(agx_buf_deinitp) agx_buf payload = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&payload);
        bool before = agx_oom_pause(true);
        agx_view name = agx_rpc_kind_text(event->kind);
        char text[32];

        agx_rpc_event_put(&w, event, NULL, 0);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        copy(text, sizeof(text), name);
        emit(s, e, text, agx_buf_view(&payload));
        agx_oom_pause(before);
}

static inline agx_fault fault_of(const char *type, const char *reason)
{
        return (agx_fault){.type = agx_view_str(type),
                           .message = AGX_VIEW("m"),
                           .cancelled = strcmp(type, "Cancelled") == 0,
                           .reason = agx_view_str(reason)};
}

static inline void emit_fault(server *s, end *e, agx_view id, const char *type, const char *reason)
{
        agx_rpc_event event = {.kind = AGX_RPC_ERROR, .call_id = id, .fault = fault_of(type, reason)};

        emit_rpc(s, e, &event);
}

/* ---- the table ---- */

/* The link of now, or NULL. */
static inline end *link_of(server *s)
{
        peer *p = s->link ? peer_of(s, s->link) : NULL;

        return p && p->joined && (s->link->conn || (p == s->polled && !p->ws)) ? s->link : NULL;
}

static inline void tell(server *s, const served *c)
{
        agx_rpc_event event = {.kind = AGX_RPC_RESULT,
                               .call_id = agx_view_str(c->id),
                               .value = agx_view_str(c->argument)};

        if (!link_of(s))
                return;
        if (c->cancelled)
                emit_fault(s, link_of(s), agx_view_str(c->id), "Cancelled", NULL);
        else
                emit_rpc(s, link_of(s), &event);
}

static inline void unavailable(server *s, agx_view id, const char *reason)
{
        if (link_of(s))
                emit_fault(s, link_of(s), id, "ResultUnavailable", reason);
}

/* A call ends; a POST that still waits comes first. */
static inline void end_call(server *s, served *c)
{
        agx_fault fault = fault_of("Cancelled", NULL);

        if (!c->running)
                return;
        c->running = false;
        c->kept = true;
        if (!c->post || !c->post->conn || !c->post->asked) {
                tell(s, c);
                return;
        }
        if (c->cancelled)
                answer_fault(&s->f, c->post, &fault);
        else
                answer_value(&s->f, c->post, agx_view_str(c->argument));
        c->post = NULL;
}

static inline served *begin_call(server *s, agx_view id, agx_view arguments)
{
        served *c = &s->calls[s->n_calls++];

        assert_true(s->n_calls <= SERVED);
        for (size_t i = 0; i + 1 < s->n_calls; ++i) /* not even by another instance */
                assert_false(agx_view_eq(agx_view_str(s->calls[i].id), id));
        *c = (served){.instance = s->instance, .runs = 1, .running = true};
        copy(c->id, sizeof(c->id), id);
        copy(c->argument, sizeof(c->argument), agx_view_first(arguments, 30));
        return c;
}

/* Whether there is no room for a call that is new. */
static inline bool refuses(server *s)
{
        if (!s->refusals)
                return false;
        --s->refusals;
        ++s->refused;
        return true;
}

static inline void release_post(server *s, served *c)
{
        end *post = c->post;

        c->post = NULL;
        if (post && post->conn && post->asked)
                answer_accepted(&s->f, post);
}

static inline void resume(server *s, agx_view id)
{
        served *c = find(s, id);

        if (!c)
                unavailable(s, id, "never_seen");
        else if (c->running)
                release_post(s, c);
        else if (c->kept)
                tell(s, c);
        else
                unavailable(s, id, "dropped");
}

static inline void drop_kept(served *c)
{
        if (c && c->kept) {
                c->kept = false;
                c->gone = true;
        }
}

static inline void cancel(server *s, const agx_rpc_event *event)
{
        served *c = find(s, event->call_id);

        assert_true(event->has_grace);
        if (!c)
                return;
        ++c->cancels;
        drop_kept(c);
        if (!c->running)
                return;
        release_post(s, c);
        c->cancelled = true;
        end_call(s, c);
}

static inline void on_rpc(server *s, const agx_rpc_event *event)
{
        agx_call_acks ids;
        agx_view id;
        served *c;

        switch (event->kind) {
        case AGX_RPC_CALL:
                ++s->calls_sent;
                c = find(s, event->call_id);
                if (c) {
                        resume(s, event->call_id);
                        break;
                }
                if (refuses(s)) {
                        emit_fault(s, link_of(s), event->call_id, "Busy", "not_taken");
                        break;
                }
                c = begin_call(s, event->call_id, event->arguments);
                if (s->at_once)
                        end_call(s, c);
                break;
        case AGX_RPC_CANCEL:
                cancel(s, event);
                break;
        case AGX_RPC_RESUME:
                ++s->resumes;
                ids = agx_call_acks_of(event->call_ids);
                while (agx_call_acks_next(&ids, &id)) {
                        ++s->resumed;
                        resume(s, id);
                }
                break;
        case AGX_RPC_ACK:
                ids = agx_call_acks_of(event->call_ids);
                while (agx_call_acks_next(&ids, &id)) {
                        ++s->acked;
                        drop_kept(find(s, id));
                }
                break;
        case AGX_RPC_CREDIT:
                ++s->credits;
                s->credit += event->n;
                break;
        default:
                fail_msg("an event that no host sends");
        }
}

/* ---- hearing ---- */

static inline void on_sio(server *s, end *e, const agx_sio_event *event)
{
        peer *p = peer_of(s, e);
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1000);
        agx_rpc_event rpc;
        const char *why = NULL;
        char json[200];
        int n;

        if (event->kind == AGX_SIO_JOIN && !agx_view_eq(event->packet.nsp, AGX_VIEW("/rpc"))) {
                assert_int_equal(agx_sio_accept(p->sio, event->packet.nsp, AGX_VIEW("{\"sid\":\"y\"}"), &text), 0);
                say_text(p, &text);
        } else if (event->kind == AGX_SIO_JOIN) {
                assert_true(agx_view_eq(event->packet.data,
                                        AGX_VIEW("{\"session\":\"000102030405060708090a0b0c0d0e0f\"}")));
                n = snprintf(json, sizeof(json), "{\"sid\":\"x\",\"instance\":\"%s\"}", s->f.instance);
                assert_int_equal(agx_sio_accept(p->sio, AGX_VIEW("/rpc"), agx_view_of(json, (size_t)n), &text), 0);
                say_text(p, &text);
                p->joined = true;
                s->link = e;
                ++s->links;
        } else if (event->kind == AGX_SIO_GOT) {
                assert_int_equal(event->packet.n_attachments, 1);
                assert_true(agx_rpc_event_get(agx_rpc_kind_of(event->packet.name), event->packet.attachments[0], &rpc,
                                              &why));
                if (link_of(s) == e)
                        on_rpc(s, &rpc);
        } else {
                assert_int_equal(event->kind, AGX_SIO_NOTHING);
        }
}

static inline void peer_bytes(fixture *f, end *e, agx_view in)
{
        server *s = server_of(f);
        peer *p = e->peer;
        bool before = agx_oom_pause(true);
        agx_ws_event ws;

        for (;;) {
                agx_eio_event eio;
                agx_sio_event sio;

                assert_int_equal(agx_ws_next(p->ws, &in, &ws), 0);
                if (ws.kind == AGX_WS_MORE)
                        break;
                if (ws.kind != AGX_WS_TEXT && ws.kind != AGX_WS_BINARY)
                        continue;
                assert_int_equal(agx_eio_ws_read(p->eio, ws.kind == AGX_WS_BINARY, ws.data, f->now, &eio), 0);
                if (eio.kind == AGX_EIO_UPGRADED)
                        s->link = e;
                if (eio.kind != AGX_EIO_GOT)
                        continue;
                assert_int_equal(agx_sio_read(p->sio, eio.binary, eio.data, &sio), 0);
                on_sio(s, e, &sio);
        }
        pull(p);
        agx_oom_pause(before);
}

static inline peer *new_peer(const server *s, agx_eio_transport transport, bool upgrade)
{
        static const agx_sio_bounds sio = {.packet_max = AGX_MAX_MESSAGE,
                                           .attachments_max = 4,
                                           .namespace_max = 100,
                                           .event_max = 100,
                                           .depth_max = 8,
                                           .namespaces_max = 4,
                                           .acks_max = 4};
        static const uint8_t seed[16] = {1};
        agx_eio_bounds eio = {.message_max = AGX_MAX_MESSAGE,
                              .queue_max = AGX_MAX_MESSAGE,
                              .queue_packets = 10000,
                              .payload_packets = 16,
                              .interval_ms = 25000,
                              .timeout_ms = 300000,
                              .upgrade_ms = 1000,
                              .upgrade = upgrade};
        peer *p = calloc(1, sizeof(*p));

        assert_non_null(p);
        p->outbox = AGX_BUF_NULL(SIZE_MAX / 8);
        assert_int_equal(agx_eio_new(&p->eio, AGX_EIO_SERVER, &eio, AGX_VIEW("sid"), transport, s->f.now), 0);
        assert_int_equal(agx_sio_new(&p->sio, AGX_SIO_SERVER, &sio, seed), 0);
        return p;
}

static inline void free_peer(peer *p)
{
        if (!p)
                return;
        if (p->ws)
                agx_ws_free(p->ws);
        agx_eio_free(p->eio);
        agx_sio_free(p->sio);
        agx_buf_deinit(&p->outbox);
        free(p);
}

/* Answers the request for a WebSocket with 101; what the session has to say waits in the outbox. */
static inline void open_socket(server *s, end *e, peer *p)
{
        static const agx_ws_bounds ws = {.message_max = AGX_MAX_MESSAGE, .fragments_max = 1000, .frame_out = 1000};
        agx_ws_request request = {.key = agx_view_str(e->key)};

        assert_int_equal(agx_ws_new(&p->ws, AGX_WS_SERVER, &ws), 0);
        assert_int_equal(agx_eio_ws_opened(p->eio, s->f.now), 0);
        assert_int_equal(agx_ws_put_reply(&p->outbox, &request), 0);
        pull(p);
        e->peer = p;
        e->asked = false;
}

static inline void accept_upgrade(server *s, end *e)
{
        bool before = agx_oom_pause(true);

        open_socket(s, e, new_peer(s, AGX_EIO_WEBSOCKET, false));
        agx_oom_pause(before);
}

/* ---- acting ---- */

static inline void on_post(server *s, end *e)
{
        served *c = find(s, agx_view_str(e->call_id));
        agx_fault fault = fault_of("ResultUnavailable", "dropped"), full = fault_of("Busy", "not_taken");
        char status[32];

        snprintf(status, sizeof(status), "%u Status", s->no_post);
        if (s->no_post) {
                answer(&s->f, e, status, AGX_VIEW(""));
                return;
        }
        if (!c && refuses(s)) {
                answer_fault(&s->f, e, &full);
        } else if (!c) {
                c = begin_call(s, agx_view_str(e->call_id), agx_view_str(e->argument));
                c->post = e;
                if (s->at_once)
                        end_call(s, c);
                else if (!s->hold)
                        release_post(s, c);
        } else if (c->running) {
                answer_accepted(&s->f, e);
        } else if (c->kept) {
                answer_value(&s->f, e, agx_view_str(c->argument));
        } else {
                answer_fault(&s->f, e, &fault);
        }
}

static inline bool is_held(const server *s, const end *e)
{
        for (size_t i = 0; i < s->n_calls; ++i)
                if (s->calls[i].post == e)
                        return true;
        return false;
}

/* One round: what was asked is answered, what waits is delivered. Whether anything happened. */
static inline bool serve(server *s)
{
        bool acted = false;

        for (size_t i = 0; i < s->f.n_ends; ++i) {
                end *e = &s->f.ends[i];
                peer *p = e->peer;

                if (!e->conn)
                        continue;
                if (e->asked && e->upgrade && s->sio_request) {
                        acted = s->sio_request(s, e) || acted;
                } else if (e->asked && e->upgrade && !s->no_auto) {
                        if (s->no_link)
                                answer(&s->f, e, "404 Not Found", AGX_VIEW(""));
                        else
                                accept_upgrade(s, e);
                        acted = true;
                } else if (e->asked && !e->upgrade && !e->health && !is_held(s, e)) {
                        on_post(s, e);
                        acted = true;
                }
                if (p && p->outbox.len) {
                        agx_buf out = p->outbox;

                        p->outbox = AGX_BUF_NULL(SIZE_MAX / 8);
                        give(&s->f, e, agx_buf_view(&out));
                        agx_buf_deinit(&out);
                        acted = true;
                }
        }
        return acted;
}

static inline void settle(server *s)
{
        int turns = 0;

        do {
                work(&s->f);
                assert_true(++turns < 10000);
        } while (serve(s));
}

static inline void let_pass(server *s, uint64_t ms)
{
        pass(&s->f, ms);
        settle(s);
}

static inline agx_client_config link_config(uint64_t sync_ms)
{
        agx_client_config config = config_of(NULL);

        config.link = true;
        config.http_sync_ms = sync_ms;
        config.grace_ms = 1500;
        return config;
}

static inline void open_server(server *s, const agx_client_config *config)
{
        memset(s, 0, sizeof(*s));
        begin_with(&s->f, config);
        s->f.upgraded = peer_bytes;
}

static inline void close_server(server *s)
{
        finish(&s->f);
        for (size_t i = 0; i < s->f.n_ends; ++i) {
                if (s->f.ends[i].peer != s->polled)
                        free_peer(s->f.ends[i].peer);
        }
        free_peer(s->polled);
}

#endif
