/*
 * The server's whole Socket.IO side against hostile peers and a worker that says anything: HTTP connections, sessions over
 * long-polling and WebSockets, the move between them, /rpc and the table of calls, put together as their shell does.
 *
 * Steps, a byte each: what happens and on which connection; some are followed by a length and so many bytes: raw, as the
 * body of a request that is otherwise well made, or as a frame. Whatever comes, brains are used as their contracts say,
 * and nothing is left at the end.
 */
#include "proto/limits.h"
#include "server/sio_conn.h"
#include "wire/ws.h"

#include <stdio.h>
#include <stdlib.h>

enum { CONNS = 6, SESSIONS = 4, OUT_MAX = 1 << 24, WORKER = 7 };
enum { STEP_RAW, STEP_OPEN, STEP_POLL, STEP_POST, STEP_FRAME, STEP_CLOSE, STEP_TIME, STEP_WORKER };

typedef struct peer peer;

typedef struct session {
        bool used;
        agx_sio_conn conn;
        peer *poller, *socket;
} session;

struct peer {
        bool open;
        agx_conn conn;
        agx_buf out, rest;
        agx_ws *ws;
        bool framed;
        session *session;
};

typedef struct world {
        agx_site site;
        agx_calls calls;
        agx_rpc rpc;
        agx_buf worker_out;
        peer peers[CONNS];
        session sessions[SESSIONS];
        uint64_t now, seq;
        uint8_t made;
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

static agx_view take(agx_view *in, size_t n)
{
        agx_view taken = agx_view_first(*in, n);

        *in = agx_view_from(*in, taken.n);
        return taken;
}

static size_t take_byte(agx_view *in)
{
        agx_view v = take(in, 1);

        return v.n ? (uint8_t)v.p[0] : 0;
}

static agx_view take_bytes(agx_view *in)
{
        size_t low = take_byte(in);

        return take(in, low | take_byte(in) << 8);
}

/* ---- connections ---- */

static void close_peer(peer *p)
{
        session *s = p->session;

        if (!p->open)
                return;
        if (s && s->poller == p) {
                s->poller = NULL;
                agx_eio_poll_lost(s->conn.eio);
        }
        if (s && s->socket == p) {
                s->socket = NULL;
                agx_eio_ws_lost(s->conn.eio);
        }
        p->session = NULL;
        p->open = false;
        if (p->ws)
                agx_ws_free(p->ws);
        p->ws = NULL;
        agx_conn_deinit(&p->conn);
        agx_buf_deinit(&p->out);
        agx_buf_deinit(&p->rest);
}

static void open_peer(world *w, peer *p)
{
        if (p->open)
                return;
        *p = (peer){.open = true, .out = AGX_BUF_NULL(OUT_MAX), .rest = AGX_BUF_NULL(OUT_MAX)};
        need(!agx_conn_init(&p->conn, &w->site, &p->out, w->now));
}

static void answer(world *w, peer *p, agx_view body)
{
        need(!agx_conn_reply_payload(&p->conn, w->now, body.n));
        need(!agx_buf_append_view(&p->out, body));
}

static void refuse(world *w, peer *p, const char *words)
{
        need(!agx_conn_reply_refusal(&p->conn, w->now, 400, words));
}

/* ---- sessions ---- */

static void end_session(world *w, session *s)
{
        peer *poller = s->poller, *socket = s->socket;

        s->poller = s->socket = NULL;
        if (poller) {
                poller->session = NULL;
                answer(w, poller, AGX_VIEW("1"));
        }
        if (socket)
                close_peer(socket); /* before what eio showed to it is freed */
        agx_sio_conn_deinit(&s->conn);
        s->used = false;
}

static void pump_socket(world *w, session *s)
{
        peer *p = s->socket;
        agx_eio_frame frame;

        while (p && !agx_eio_is_closed(s->conn.eio)) {
                int r = agx_ws_pull(p->ws, NULL, &p->out);

                agx_buf_clear(&p->out);
                if (p->framed && !agx_ws_sending(p->ws)) {
                        p->framed = false;
                        agx_eio_ws_sent(s->conn.eio);
                }
                if (r != AGX_WS_IDLE)
                        continue;
                agx_sio_conn_fill(&s->conn, w->now);
                if (!agx_eio_ws_next(s->conn.eio, &frame) || agx_ws_send(p->ws, !frame.binary, frame.head, frame.body))
                        return;
                p->framed = true;
        }
}

static void pump_poller(world *w, session *s)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(OUT_MAX);
        peer *p = s->poller;

        if (!p || agx_eio_is_closed(s->conn.eio) || !agx_eio_payload_due(s->conn.eio))
                return;
        need(!agx_eio_payload_write(s->conn.eio, &body));
        if (!s->socket)
                agx_sio_conn_reap(&s->conn);
        s->poller = NULL;
        p->session = NULL;
        answer(w, p, agx_buf_view(&body));
}

static void pump_all(world *w)
{
        while (agx_rpc_due(&w->rpc))
                ;
        for (size_t i = 0; i < SESSIONS; ++i) {
                session *s = &w->sessions[i];

                if (!s->used)
                        continue;
                if (!agx_eio_is_closed(s->conn.eio)) {
                        agx_sio_conn_fill(&s->conn, w->now);
                        pump_poller(w, s);
                        pump_socket(w, s);
                }
                if (agx_eio_is_closed(s->conn.eio))
                        end_session(w, s);
        }
        agx_buf_clear(&w->worker_out);
}

/* ---- calls ---- */

static void deliver(world *w, agx_call *call)
{
        agx_waiter *waiter = call->waiter ? call->waiter : &w->rpc.waiter;

        waiter->deliver(waiter, call);
}

static void on_event(world *w, session *s, const agx_sio_conn_said *said)
{
        agx_calls_worker worker = {WORKER, &w->worker_out, 0, NULL};
        agx_rpc_outcome outcome;
        int r = agx_rpc_take(&s->conn.link, said->name, said->payload, w->now, &worker, &outcome);

        if (!r && outcome.todo == AGX_RPC_TODO_DELIVER)
                deliver(w, outcome.call);
        else if (!r && outcome.todo == AGX_RPC_TODO_CANCEL)
                need(!agx_calls_put_cancel(&w->worker_out, outcome.call));
        else if (!r && outcome.todo == AGX_RPC_TODO_CREDIT)
                need(!agx_calls_put_credit(&w->worker_out, outcome.call, outcome.credit));
        agx_sio_conn_taken(&s->conn, r);
}

static void on_message(world *w, session *s, const agx_eio_event *message)
{
        agx_sio_conn_said said;

        agx_sio_conn_read(&s->conn, message->binary, message->data, &said);
        if (said.kind == AGX_SIO_SAID_EVENT)
                on_event(w, s, &said);
        for (size_t i = 0; said.kind == AGX_SIO_SAID_REPLACES && i < SESSIONS; ++i)
                if (w->sessions[i].used && &w->sessions[i].conn.link == said.replaced)
                        agx_eio_lost(w->sessions[i].conn.eio, "replaced");
}

/* ---- requests ---- */

static session *make_session(world *w, agx_eio_transport transport)
{
        uint8_t random[AGX_SIO_CONN_RANDOM];

        for (size_t i = 0; i < SESSIONS; ++i) {
                session *s = &w->sessions[i];

                if (s->used)
                        continue;
                memset(random, ++w->made, sizeof(random));
                *s = (session){.used = true};
                need(!agx_sio_conn_init(&s->conn, &w->site, &w->rpc, random, transport, w->now));
                return s;
        }
        return NULL;
}

static session *find_session(world *w, agx_view sid)
{
        for (size_t i = 0; i < SESSIONS; ++i)
                if (w->sessions[i].used && !agx_eio_is_closed(w->sessions[i].conn.eio) &&
                    agx_view_eq(agx_eio_sid(w->sessions[i].conn.eio), sid))
                        return &w->sessions[i];
        return NULL;
}

static void on_post(world *w, peer *p, session *s)
{
        agx_view in = p->conn.sio.body;
        agx_eio_event event;
        int r = 0;

        while (in.p && !r) {
                r = agx_eio_payload_read(s->conn.eio, &in, w->now, &event);
                if (!r && event.kind == AGX_EIO_GOT)
                        on_message(w, s, &event);
        }
        if (r || s->conn.broken)
                refuse(w, p, "no");
        else
                answer(w, p, AGX_VIEW("ok"));
}

static void on_upgrade(world *w, peer *p, session *s)
{
        static const agx_ws_bounds bounds = {.message_max = OUT_MAX, .fragments_max = 1000, .frame_out = 1000};

        if (agx_eio_ws_opened(s->conn.eio, w->now)) {
                refuse(w, p, "no WebSocket now");
                return;
        }
        need(!agx_ws_new(&p->ws, AGX_WS_SERVER, &bounds));
        need(!agx_conn_reply_upgrade(&p->conn));
        p->session = s;
        s->socket = p;
}

static void on_request(world *w, peer *p)
{
        const agx_conn_sio *sio = &p->conn.sio;
        session *s = sio->sid.p ? find_session(w, sio->sid)
                                : make_session(w, sio->websocket ? AGX_EIO_WEBSOCKET : AGX_EIO_POLLING);

        if (!s) {
                refuse(w, p, "no session");
        } else if (sio->websocket) {
                on_upgrade(w, p, s);
        } else if (sio->post) {
                on_post(w, p, s);
        } else if (agx_eio_poll(s->conn.eio)) {
                refuse(w, p, "no poll now");
        } else {
                s->poller = p;
                p->session = s;
        }
}

/* ---- bytes ---- */

static void read_frames(world *w, peer *p, agx_view *in)
{
        session *s = p->session;
        agx_ws_event ws;
        agx_eio_event event;
        int r = 0;

        while (!r && p->session) {
                r = agx_ws_next(p->ws, in, &ws);
                if (r || ws.kind == AGX_WS_MORE)
                        break;
                if (ws.kind == AGX_WS_TEXT || ws.kind == AGX_WS_BINARY) {
                        r = agx_eio_ws_read(s->conn.eio, ws.kind == AGX_WS_BINARY, ws.data, w->now, &event);
                        if (!r && event.kind == AGX_EIO_GOT)
                                on_message(w, s, &event);
                }
                if (ws.kind == AGX_WS_CLOSE || agx_eio_is_closed(s->conn.eio))
                        r = AGX_EIO_E_CLOSED;
        }
        if (r)
                close_peer(p);
}

/* Takes what it can of what has come. False: it must wait for an answer, or is over. */
static bool read_http(world *w, peer *p, agx_view *in)
{
        agx_conn_wish wish;

        if (agx_conn_next(&p->conn, w->now, in, &wish) || wish == AGX_CONN_CLOSE) {
                close_peer(p);
                return false;
        }
        if (wish == AGX_CONN_SUBMIT)
                need(!agx_conn_reply_accepted(&p->conn, w->now, p->conn.request.call_id));
        if (wish == AGX_CONN_CONDUIT)
                need(!agx_conn_reply_unavailable(&p->conn, w->now));
        if (wish == AGX_CONN_SIO)
                on_request(w, p);
        return wish == AGX_CONN_SUBMIT || wish == AGX_CONN_SIO;
}

/* What a request says lives as long as the input it came in, so the input is not touched before all of it was seen to. */
static void read_peer(world *w, peer *p)
{
        agx_buf bytes = p->rest;
        agx_view in = agx_buf_view(&bytes);

        p->rest = AGX_BUF_NULL(OUT_MAX);
        while (p->open && !p->ws && read_http(w, p, &in))
                ;
        if (p->open && p->ws && in.n)
                read_frames(w, p, &in);
        if (p->open && !p->ws && in.n)
                need(!agx_buf_append_view(&p->rest, in));
        agx_buf_deinit(&bytes);
}

static void feed(world *w, peer *p, agx_view bytes)
{
        open_peer(w, p);
        if (p->rest.len + bytes.n > OUT_MAX / 2)
                return;
        need(!agx_buf_append_view(&p->rest, bytes));
        read_peer(w, p);
        pump_all(w);
        for (size_t i = 0; i < CONNS; ++i)
                if (w->peers[i].open && w->peers[i].rest.len && !w->peers[i].session)
                        read_peer(w, &w->peers[i]);
        pump_all(w);
}

/* ---- steps ---- */

static void request(world *w, peer *p, const char *method, session *s, bool websocket, agx_view body)
{
        static const char upgrade[] = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
        _cleanup_(agx_buf_deinitp) agx_buf all = AGX_BUF_NULL(OUT_MAX);
        agx_view sid = s && s->used ? agx_eio_sid(s->conn.eio) : AGX_VIEW("");

        need(!agx_buf_printf(&all, "%s /socket.io/?EIO=4&transport=%s%s%.*s HTTP/1.1\r\nHost: localhost\r\n%s", method,
                             websocket ? "websocket" : "polling", sid.n ? "&sid=" : "", (int)sid.n, sid.p,
                             websocket ? upgrade : ""));
        need(!agx_buf_printf(&all, "Content-Length: %zu\r\n\r\n", body.n));
        need(!agx_buf_append_view(&all, body));
        feed(w, p, agx_buf_view(&all));
}

static void frame(world *w, peer *p, size_t opcode, agx_view data)
{
        char head[8] = {(char)(0x80 | (opcode & 15)), (char)(0x80 | (data.n < 126 ? data.n : 126)), (char)(data.n >> 8),
                        (char)data.n};
        _cleanup_(agx_buf_deinitp) agx_buf all = AGX_BUF_NULL(OUT_MAX);

        if (data.n < 126) /* masked with zeros */
                memset(head + 2, 0, 4);
        else
                memset(head + 4, 0, 4);
        need(!agx_buf_append(&all, head, data.n < 126 ? 6 : 8));
        need(!agx_buf_append_view(&all, data));
        feed(w, p, agx_buf_view(&all));
}

/* The worker says something about the call that the input names. */
static void work(world *w, size_t choice, agx_view id)
{
        agx_frame said = {.call_id = id, .value = AGX_VIEW("value")};
        bool ended = false;
        const char *odd = NULL;
        agx_call *call;

        if (choice & 1) {
                said.kind = AGX_FRAME_ITEM;
                said.seq = choice & 2 ? w->seq++ : 0;
                call = agx_calls_item(&w->calls, WORKER, &said, &ended, &odd);
                if (call && !ended)
                        agx_rpc_streams(&w->rpc, call);
        } else {
                said.kind = AGX_FRAME_RESULT;
                call = agx_calls_frame(&w->calls, WORKER, &said, &odd);
                ended = call != NULL;
        }
        if (call && ended)
                deliver(w, call);
        pump_all(w);
}

static void pass_time(world *w, size_t by)
{
        agx_conn_wish wish;

        w->now += (uint64_t)1 << (by % 20);
        for (size_t i = 0; i < SESSIONS; ++i)
                if (w->sessions[i].used && agx_sio_conn_tick(&w->sessions[i].conn, w->now) == AGX_EIO_PROBE_ENDED &&
                    w->sessions[i].socket)
                        close_peer(w->sessions[i].socket);
        pump_all(w);
        for (size_t i = 0; i < CONNS; ++i) {
                peer *p = &w->peers[i];

                if (p->open && !p->ws && (agx_conn_tick(&p->conn, w->now, &wish) || wish == AGX_CONN_CLOSE))
                        close_peer(p);
        }
        pump_all(w);
}

static void step(world *w, agx_view *in)
{
        size_t byte = take_byte(in), more;
        peer *p = &w->peers[(byte >> 3) % CONNS];

        switch (byte & 7) {
        case STEP_RAW:
                feed(w, p, take_bytes(in));
                break;
        case STEP_OPEN:
                more = take_byte(in);
                request(w, p, "GET", more & 2 ? &w->sessions[more >> 2 & 3] : NULL, more & 1, AGX_VIEW(""));
                break;
        case STEP_POLL:
                request(w, p, "GET", &w->sessions[take_byte(in) & 3], false, AGX_VIEW(""));
                break;
        case STEP_POST:
                more = take_byte(in);
                request(w, p, "POST", &w->sessions[more & 3], false, take_bytes(in));
                break;
        case STEP_FRAME:
                more = take_byte(in);
                frame(w, p, more, take_bytes(in));
                break;
        case STEP_CLOSE:
                close_peer(p);
                pump_all(w);
                break;
        case STEP_TIME:
                pass_time(w, byte >> 3);
                break;
        default:
                more = take_byte(in);
                work(w, byte >> 3, take(in, more & 3));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const uint8_t seed[16] = {1};
        agx_view in = agx_view_of(data, size);
        world *w = calloc(1, sizeof(*w));

        need(w != NULL);
        w->worker_out = AGX_BUF_NULL(OUT_MAX);
        w->site = (agx_site){.version = AGX_VIEW("0"), .instance = AGX_VIEW("i")};
        agx_auth_init(&w->site.auth);
        need(!agx_calls_init(&w->calls, seed));
        agx_rpc_init(&w->rpc, &w->calls, seed);
        while (in.n)
                step(w, &in);
        for (size_t i = 0; i < SESSIONS; ++i)
                if (w->sessions[i].used)
                        agx_eio_lost(w->sessions[i].conn.eio, "over");
        pump_all(w);
        for (size_t i = 0; i < CONNS; ++i)
                close_peer(&w->peers[i]);
        agx_rpc_deinit(&w->rpc);
        agx_calls_deinit(&w->calls);
        agx_auth_deinit(&w->site.auth);
        agx_buf_deinit(&w->worker_out);
        free(w);
        return 0;
}
