/*
 * pump() is all of the output: from the road into Engine.IO, from there into a waiting GET or, frame by frame, into a
 * WebSocket, as far as its peer takes them. It runs from the loop's list of flushes, never inside of what made it
 * necessary, so a session may end in it without anybody holding on to it. A session that is closed is not pumped but
 * ended, the WebSocket first: it may hold what eio has shown to it.
 */
#include "server/sio_uv.h"
#include "base/err.h"
#include "proto/limits.h"
#include "server/hub_uv.h"
#include "server/server_uv.h"

#include <sys/random.h>

static void pump(agx_flush *flush);

static uint64_t now_of(const agx_sio_session *s)
{
        return agx_loop_now(&s->server->loop);
}

static void touch(agx_sio_session *s)
{
        if (!s->ended)
                agx_loop_flush_later(&s->server->loop, &s->flush);
}

/* ---- sessions ---- */

static void set_deadline(agx_sio_session *s)
{
        agx_deadline_set(&s->deadline, agx_sio_conn_timer(&s->conn));
}

static void on_deadline(agx_deadline *d)
{
        agx_sio_session *s = agx_container_of(d, agx_sio_session, deadline);

        if (agx_sio_conn_tick(&s->conn, now_of(s)) == AGX_EIO_PROBE_ENDED && s->socket)
                agx_http_close(s->socket);
        touch(s);
        set_deadline(s);
}

static void on_deadline_closed(agx_deadline *d)
{
        free(agx_container_of(d, agx_sio_session, deadline));
}

static agx_sio_session *find(agx_server *server, agx_view sid)
{
        agx_map_node *node = agx_map_find(&server->sio_sessions, sid);

        return node ? agx_container_of(node, agx_sio_session, by_sid) : NULL;
}

/* 0; 503; or a negative error. */
static int make(agx_server *server, agx_eio_transport transport, agx_sio_session **session)
{
        uint8_t random[AGX_SIO_CONN_RANDOM];
        agx_sio_session *s;
        int r;

        if (server->sio_sessions.count >= AGX_SIO_SESSIONS_MAX)
                return 503;
        if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
                return agx_trace(-EIO);
        s = calloc(1, sizeof(*s));
        if (!s)
                return agx_trace(-ENOMEM);
        s->server = server;
        r = agx_sio_conn_init(&s->conn, &server->site, &server->rpc, random, transport, agx_loop_now(&server->loop));
        if (!r) {
                s->by_sid.key = agx_eio_sid(s->conn.eio);
                r = agx_map_insert(&server->sio_sessions, &s->by_sid);
        }
        if (r) {
                agx_sio_conn_deinit(&s->conn);
                free(s);
                return r;
        }
        agx_sio_conn_serve(&s->conn, &server->hub);
        agx_flush_init(&s->flush, pump);
        agx_deadline_init(&s->deadline, &server->loop, on_deadline);
        set_deadline(s);
        *session = s;
        return 0;
}

/* ---- the end ---- */

static void answer(agx_http *h, agx_view body)
{
        bool done = false;
        int r = agx_conn_reply_payload(&h->conn, agx_loop_now(&h->server->loop), body.n);

        if (!r)
                r = agx_stream_send(&h->stream, body, &done);
        if (r)
                agx_http_close(h);
}

/* Who waits is told that it is over: as an error, or by a close packet. */
static void end_poller(agx_sio_session *s)
{
        agx_http *h = s->poller;

        if (!h)
                return;
        s->poller = NULL;
        h->session = NULL;
        if (!s->conn.broken)
                answer(h, AGX_VIEW("1"));
        else if (agx_conn_reply_refusal(&h->conn, now_of(s), 400, agx_eio_reason(s->conn.eio)))
                agx_http_close(h);
        agx_http_pump(h);
}

/* Sends what the WebSocket itself still has to say, then ends the connection. */
static void finish_socket(agx_http *h)
{
        agx_buf *out = agx_stream_out(&h->stream);
        int r;

        do
                r = agx_ws_pull(h->ws, NULL, out);
        while (!r);
        if (r == AGX_WS_IDLE)
                agx_http_finish(h);
        else
                agx_http_close(h);
}

static void end_socket(agx_sio_session *s)
{
        agx_http *h = s->socket;

        if (!h)
                return;
        s->socket = NULL;
        h->session = NULL;
        agx_ws_close(h->ws, s->conn.broken ? AGX_WS_POLICY : AGX_WS_NORMAL, agx_view_str(agx_eio_reason(s->conn.eio)));
        finish_socket(h);
}

/* The session's Engine.IO is closed. */
static void end(agx_sio_session *s)
{
        if (s->ended)
                return;
        s->ended = true;
        agx_flush_cancel(&s->flush);
        agx_map_remove(&s->server->sio_sessions, &s->by_sid);
        end_poller(s);
        end_socket(s);
        agx_sio_conn_deinit(&s->conn);
        agx_deadline_close(&s->deadline, on_deadline_closed);
}

/* ---- out ---- */

static void pump_poller(agx_sio_session *s)
{
        agx_buf body = AGX_BUF_NULL((size_t)AGX_MAX_MESSAGE + AGX_HTTP_OUT);
        agx_http *h = s->poller;

        if (!h || !agx_eio_payload_due(s->conn.eio))
                return;
        if (agx_eio_payload_write(s->conn.eio, &body)) {
                agx_eio_lost(s->conn.eio, "the server is out of memory");
                return;
        }
        if (!s->socket)
                agx_sio_conn_reap(&s->conn);
        s->poller = NULL;
        h->session = NULL;
        answer(h, agx_buf_view(&body));
        agx_buf_deinit(&body);
        agx_http_pump(h);
}

/* One more frame or message, if the peer takes it. False: nothing more to do for now. */
static bool pump_frame(agx_sio_session *s, agx_http *h)
{
        agx_eio_frame frame;
        int r = agx_ws_pull(h->ws, NULL, agx_stream_out(&h->stream));

        if (h->framed && !agx_ws_sending(h->ws)) {
                h->framed = false;
                agx_eio_ws_sent(s->conn.eio);
        }
        if (r == AGX_WS_IDLE) {
                agx_sio_conn_fill(&s->conn, now_of(s));
                if (!agx_eio_ws_next(s->conn.eio, &frame) || agx_ws_send(h->ws, !frame.binary, frame.head, frame.body))
                        return false;
                h->framed = true;
                return true;
        }
        if (r)
                agx_eio_lost(s->conn.eio, "the server is out of memory");
        return !r;
}

static void pump_socket(agx_sio_session *s)
{
        agx_http *h = s->socket;

        if (!h)
                return;
        while (agx_stream_queued(&h->stream) < AGX_SIO_OUT_LOW && pump_frame(s, h))
                ;
        agx_stream_touch(&h->stream);
        if (agx_sio_conn_crowded(&s->conn))
                agx_stream_pause(&h->stream);
        else if (agx_stream_read(&h->stream))
                agx_http_close(h);
}

static void pump(agx_flush *flush)
{
        agx_sio_session *s = agx_container_of(flush, agx_sio_session, flush);

        if (!agx_eio_is_closed(s->conn.eio)) {
                agx_sio_conn_fill(&s->conn, now_of(s));
                pump_poller(s);
                pump_socket(s);
        }
        agx_side_mind(s->server);
        if (agx_eio_is_closed(s->conn.eio))
                end(s);
        else
                set_deadline(s);
}

void agx_sio_speak(agx_rpc_link *link)
{
        touch(agx_container_of(link, agx_sio_session, conn.link));
}

void agx_sio_speak_aside(agx_hub_port *port)
{
        touch(agx_container_of(port, agx_sio_session, conn.port));
}

/* ---- in ---- */

static void close_replaced(agx_rpc_link *link)
{
        agx_sio_session *other = agx_container_of(link, agx_sio_session, conn.link);

        agx_eio_lost(other->conn.eio, "another connection of its session took over");
        touch(other);
}

static void on_message(agx_sio_session *s, const agx_eio_event *message)
{
        agx_server *server = s->server;
        agx_sio_conn_said said;

        agx_sio_conn_read(&s->conn, message->binary, message->data, &said);
        switch (said.kind) {
        case AGX_SIO_SAID_EVENT:
                agx_sio_conn_taken(&s->conn, agx_server_event(server, &s->conn.link, said.name, said.payload));
                break;
        case AGX_SIO_SAID_SIDE:
                agx_sio_conn_taken(&s->conn, agx_side_event(server, &s->conn.port, said.nsp, said.name, said.payload));
                break;
        case AGX_SIO_SAID_STRAY:
                if (!server->stray_told)
                        agx_server_note(server, "events on namespaces that nobody serves are dropped");
                server->stray_told = true;
                break;
        case AGX_SIO_SAID_REPLACES:
                close_replaced(said.replaced);
                break;
        case AGX_SIO_SAID_NOTHING:
                break;
        }
}

/* ---- polling ---- */

static int refuse(agx_http *h, unsigned status, const char *words)
{
        return agx_conn_reply_refusal(&h->conn, agx_loop_now(&h->server->loop), status, words);
}

static int on_get(agx_http *h, agx_sio_session *s)
{
        int r = agx_eio_poll(s->conn.eio);

        touch(s);
        if (r)
                return refuse(h, 400, r == AGX_EIO_E_BAD ? "two polls at once" : "no poll now");
        s->poller = h;
        h->session = s;
        return 0;
}

static int on_post(agx_http *h, agx_sio_session *s)
{
        agx_view in = h->conn.sio.body;
        agx_eio_event event;
        int r = 0;

        while (in.p && !r) {
                r = agx_eio_payload_read(s->conn.eio, &in, now_of(s), &event);
                if (!r && event.kind == AGX_EIO_GOT)
                        on_message(s, &event);
        }
        agx_sio_conn_gathers(&s->conn, 0);
        if (r == AGX_EIO_E_BAD)
                s->conn.broken = true;
        touch(s);
        if (r == AGX_EIO_E_TRANSPORT)
                return refuse(h, 400, "the session has moved to a WebSocket");
        if (r < 0)
                return r;
        if (s->conn.broken)
                return refuse(h, 400, agx_eio_reason(s->conn.eio));
        answer(h, AGX_VIEW("ok"));
        return 0;
}

/* ---- WebSocket ---- */

static int make_ws(agx_ws **ws)
{
        static const agx_ws_bounds bounds = {.message_max = AGX_MAX_MESSAGE,
                                             .fragments_max = AGX_SIO_FRAGMENTS_MAX,
                                             .frame_out = AGX_SIO_FRAME_OUT};

        return agx_ws_new(ws, AGX_WS_SERVER, &bounds);
}

static int on_upgrade(agx_http *h, agx_sio_session *s)
{
        int r;

        touch(s);
        if (agx_eio_ws_opened(s->conn.eio, now_of(s)))
                return refuse(h, 400, "no WebSocket now");
        s->socket = h;
        h->session = s;
        r = make_ws(&h->ws);
        if (!r)
                r = agx_conn_reply_upgrade(&h->conn);
        set_deadline(s);
        return r;
}

int agx_sio_request(agx_http *h)
{
        const agx_conn_sio *request = &h->conn.sio;
        agx_sio_session *s = request->sid.p ? find(h->server, request->sid) : NULL;
        int r = 0;

        if (request->sid.p && (!s || agx_eio_is_closed(s->conn.eio)))
                return refuse(h, 400, "no such session");
        if (!s)
                r = make(h->server, request->websocket ? AGX_EIO_WEBSOCKET : AGX_EIO_POLLING, &s);
        if (r)
                return refuse(h, 503, r < 0 ? "out of memory" : "too many sessions");
        if (request->websocket)
                return on_upgrade(h, s);
        return request->post ? on_post(h, s) : on_get(h, s);
}

/* A message of the WebSocket. False: nothing more is to be read from it. */
static bool on_ws_message(agx_http *h, const agx_ws_event *message)
{
        agx_sio_session *s = h->session;
        agx_eio_event event;
        int r = agx_eio_ws_read(s->conn.eio, message->kind == AGX_WS_BINARY, message->data, now_of(s), &event);

        if (!r && event.kind == AGX_EIO_GOT)
                on_message(s, &event);
        if (r == AGX_EIO_E_BAD)
                s->conn.broken = true;
        if (r < 0)
                agx_eio_lost(s->conn.eio, "the server is out of memory");
        if (r == AGX_EIO_E_PROBE)
                agx_ws_close(h->ws, AGX_WS_POLICY, AGX_VIEW("not an upgrade"));
        return !r && !agx_eio_is_closed(s->conn.eio);
}

/* The WebSocket is over, by its own means. */
static void ws_over(agx_http *h)
{
        agx_sio_lost(h);
        finish_socket(h);
}

void agx_sio_feed(agx_http *h, agx_view in)
{
        agx_sio_session *s = h->session;
        agx_ws_event event;
        bool more = s != NULL;
        int r = 0;

        while (more && !r && h->session) {
                r = agx_ws_next(h->ws, &in, &event);
                if (r || event.kind == AGX_WS_MORE)
                        break;
                if (event.kind == AGX_WS_TEXT || event.kind == AGX_WS_BINARY)
                        more = on_ws_message(h, &event);
                if (event.kind == AGX_WS_CLOSE)
                        more = false;
        }
        if (!h->session)
                return;
        agx_sio_conn_gathers(&s->conn, agx_ws_gathered(h->ws));
        if (r || (!more && !agx_eio_is_closed(s->conn.eio)))
                ws_over(h);
        touch(s);
}

void agx_sio_drained(agx_http *h)
{
        if (h->session)
                touch(h->session);
}

void agx_sio_lost(agx_http *h)
{
        agx_sio_session *s = h->session;

        if (!s)
                return;
        h->session = NULL;
        if (s->poller == h) {
                s->poller = NULL;
                agx_eio_poll_lost(s->conn.eio);
        }
        if (s->socket == h) {
                s->socket = NULL;
                agx_eio_ws_lost(s->conn.eio);
        }
        touch(s);
}

/* ---- all of them ---- */

static void each(agx_server *server, void (*verb)(agx_sio_session *s))
{
        agx_list_foreach_safe(node, &server->connections)
        {
                agx_http *h = agx_container_of(node, agx_http, node);

                if (h->session)
                        verb(h->session);
        }
}

static void say_goodbye(agx_sio_session *s)
{
        agx_eio_close(s->conn.eio);
        touch(s);
}

void agx_sio_drain(agx_server *server)
{
        each(server, say_goodbye);
}

void agx_sio_close_all(agx_server *server)
{
        agx_map_node *node;

        while ((node = agx_map_any(&server->sio_sessions)))
                end(agx_container_of(node, agx_sio_session, by_sid));
        agx_map_deinit(&server->sio_sessions);
}
