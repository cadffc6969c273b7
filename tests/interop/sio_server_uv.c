/*
 * A Socket.IO echo on the wire brains, for stock clients to talk to: long-polling, WebSocket and the move between them.
 *
 *     sio_server_uv PORT      listens on 127.0.0.1:PORT (0: a free one, printed) until SIGTERM
 *
 * Any namespace may be joined. Each event comes back under its own name with the same arguments; one that wants an
 * answer gets them in the answer, too. Only for tests: no back-pressure, and the program ends when memory does.
 */
#include "base/err.h"
#include "wire/eio.h"
#include "wire/sio.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uv.h>

enum { READ_BYTES = 256 * 1024, MESSAGE_MAX = 64 << 20, SID_BYTES = 12, ARGS_MAX = 16 };

static const agx_http1_bounds http_bounds = {
        .head_max = 32 << 10, .headers_max = 100, .chunk_line_max = 4096, .trailer_max = 4096, .body_max = MESSAGE_MAX};
static const agx_ws_bounds ws_bounds = {.message_max = MESSAGE_MAX, .fragments_max = 1 << 17, .frame_out = 256 << 10};
static const agx_eio_bounds eio_bounds = {.message_max = MESSAGE_MAX,
                                          .queue_max = 2u * MESSAGE_MAX,
                                          .queue_packets = 10000,
                                          .payload_packets = 16,
                                          .interval_ms = 300,
                                          .timeout_ms = 5000,
                                          .upgrade_ms = 10000,
                                          .upgrade = true};
static const agx_sio_bounds sio_bounds = {.packet_max = 2u * MESSAGE_MAX,
                                          .attachments_max = 64,
                                          .namespace_max = 200,
                                          .event_max = 200,
                                          .depth_max = 64,
                                          .namespaces_max = 256,
                                          .acks_max = 64};

typedef struct conn conn;
typedef struct session session;

typedef struct server {
        uv_loop_t loop;
        uv_tcp_t listener;
        uv_signal_t signal;
        uv_timer_t clock;
        agx_list sessions;
        char place[READ_BYTES];
} server;

struct session {
        agx_list node;
        server *server;
        agx_eio *eio;
        agx_sio *sio;
        conn *poller; /* whose GET waits */
        conn *socket; /* the WebSocket */
};

struct conn {
        server *server;
        session *session;
        uv_tcp_t tcp;
        uv_shutdown_t shutdown;
        agx_http1 *http;
        agx_ws *ws;
        agx_buf body, out;
        agx_view method, target; /* of the request at hand; live as its head does */
        agx_ws_request upgrade;
        bool wants_upgrade, keep_alive, over;
};

typedef struct writing {
        uv_write_t write;
        agx_buf bytes;
} writing;

static void must(int r, const char *what)
{
        if (r) {
                fprintf(stderr, "sio_server_uv: %s: %d\n", what, r);
                exit(1);
        }
}

static uint64_t now(const server *v)
{
        return uv_now(&v->loop);
}

/* ---- connections ---- */

static void session_free(session *s);

static void on_closed(uv_handle_t *handle)
{
        conn *c = agx_container_of(handle, conn, tcp);

        agx_http1_free(c->http);
        agx_ws_free(c->ws);
        agx_buf_deinit(&c->body);
        agx_buf_deinit(&c->out);
        free(c);
}

static void conn_close(conn *c)
{
        session *s = c->session;

        if (uv_is_closing((uv_handle_t *)&c->tcp))
                return;
        uv_close((uv_handle_t *)&c->tcp, on_closed);
        if (s && s->poller == c) {
                s->poller = NULL;
                agx_eio_poll_lost(s->eio);
        }
        if (s && s->socket == c) {
                s->socket = NULL;
                agx_eio_ws_lost(s->eio);
        }
        c->session = NULL;
        if (s && agx_eio_is_closed(s->eio))
                session_free(s);
}

static void on_written(uv_write_t *request, int status)
{
        writing *w = agx_container_of(request, writing, write);

        (void)status;
        agx_buf_deinit(&w->bytes);
        free(w);
}

static void flush(conn *c)
{
        writing *w;
        uv_buf_t bytes;

        if (!c->out.len || uv_is_closing((uv_handle_t *)&c->tcp))
                return;
        w = calloc(1, sizeof(*w));
        if (!w)
                exit(1);
        w->bytes = c->out;
        c->out = AGX_BUF_NULL(SIZE_MAX);
        bytes = uv_buf_init((char *)w->bytes.data + w->bytes.head, (unsigned)w->bytes.len);
        if (uv_write(&w->write, (uv_stream_t *)&c->tcp, &bytes, 1, on_written))
                on_written(&w->write, 0);
}

static void on_shut(uv_shutdown_t *request, int status)
{
        (void)request, (void)status;
}

static void finish(conn *c)
{
        flush(c);
        if (!c->over && !uv_is_closing((uv_handle_t *)&c->tcp))
                uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shut);
        c->over = true;
}

static void answer(conn *c, unsigned status, agx_view body)
{
        must(agx_http1_put_status(&c->out, status), "answer");
        must(agx_http1_put_field(&c->out, AGX_VIEW("Content-Type"), AGX_VIEW("text/plain; charset=UTF-8")), "answer");
        must(agx_http1_put_length(&c->out, body.n), "answer");
        must(agx_http1_put_end(&c->out), "answer");
        must(agx_buf_append_view(&c->out, body), "answer");
        if (c->keep_alive)
                flush(c);
        else
                finish(c);
}

/* ---- sessions ---- */

static session *session_new(server *v, agx_eio_transport transport)
{
        static const char hex[] = "0123456789abcdef";
        uint8_t noise[16 + SID_BYTES];
        char sid[2 * SID_BYTES];
        session *s = calloc(1, sizeof(*s));

        must(!s, "memory");
        must(getrandom(noise, sizeof(noise), 0) != sizeof(noise), "random");
        for (size_t i = 0; i < SID_BYTES; ++i) {
                sid[2 * i] = hex[noise[16 + i] >> 4];
                sid[2 * i + 1] = hex[noise[16 + i] & 15];
        }
        s->server = v;
        must(agx_eio_new(&s->eio, AGX_EIO_SERVER, &eio_bounds, agx_view_of(sid, sizeof(sid)), transport, now(v)),
             "memory");
        must(agx_sio_new(&s->sio, AGX_SIO_SERVER, &sio_bounds, noise), "memory");
        agx_list_push_back(&v->sessions, &s->node);
        return s;
}

static session *session_find(server *v, agx_view sid)
{
        agx_list_foreach_safe(node, &v->sessions)
        {
                session *s = agx_container_of(node, session, node);

                if (agx_view_eq(agx_eio_sid(s->eio), sid))
                        return s;
        }
        return NULL;
}

/* The session is closed: its connections go, and then it does. */
static void session_free(session *s)
{
        agx_list_unlink(&s->node);
        if (s->poller)
                s->poller->session = NULL;
        if (s->socket) {
                s->socket->session = NULL;
                finish(s->socket);
        }
        agx_eio_free(s->eio);
        agx_sio_free(s->sio);
        free(s);
}

/* Sends a text and the attachments behind it. */
static void send_packet(session *s, agx_buf *text, const agx_sio_arg *args, size_t n)
{
        agx_eio_message messages[1 + ARGS_MAX] = {{.head = agx_buf_view(text)}};
        size_t count = 1;
        int r;

        for (size_t i = 0; i < n; ++i)
                if (args[i].binary)
                        messages[count++] = (agx_eio_message){.binary = true, .head = args[i].v};
        r = agx_eio_send(s->eio, messages, count);
        if (r)
                fprintf(stderr, "sio_server_uv: not sent: %d\n", r);
        agx_buf_clear(text);
}

static void echo(session *s, const agx_sio_packet *packet)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(MESSAGE_MAX);
        agx_sio_args args = agx_sio_args_on(packet);
        agx_sio_arg list[ARGS_MAX];
        size_t n = 0;

        while (n < ARGS_MAX && agx_sio_args_next(&args, &list[n]))
                ++n;
        if (packet->has_id) {
                must(agx_sio_answer(s->sio, packet->nsp, packet->id, list, n, &text), "answer");
                send_packet(s, &text, list, n);
        }
        must(agx_sio_emit(s->sio, packet->nsp, packet->name, list, n, NULL, &text), "emit");
        send_packet(s, &text, list, n);
}

static void on_message(session *s, bool binary, agx_view message)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(MESSAGE_MAX);
        agx_sio_event event;

        if (agx_sio_read(s->sio, binary, message, &event)) {
                agx_eio_lost(s->eio, agx_sio_reason(s->sio));
                return;
        }
        if (event.kind == AGX_SIO_JOIN) {
                must(agx_sio_accept(s->sio, event.packet.nsp, AGX_VIEW("{\"sid\":\"echo\"}"), &text), "accept");
                send_packet(s, &text, NULL, 0);
        }
        if (event.kind == AGX_SIO_GOT)
                echo(s, &event.packet);
}

static void pull(conn *c)
{
        int r;

        do
                r = agx_ws_pull(c->ws, NULL, &c->out);
        while (!r);
        must(r != AGX_WS_IDLE, "pull");
}

/* Whatever can go out goes out; a closed session ends. */
static void pump(session *s)
{
        agx_eio_frame frame;

        if (s->poller && agx_eio_payload_due(s->eio)) {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(2u * MESSAGE_MAX);
                conn *c = s->poller;

                must(agx_eio_payload_write(s->eio, &body), "payload");
                s->poller = NULL;
                c->session = NULL;
                answer(c, 200, agx_buf_view(&body));
        }
        while (s->socket && agx_eio_ws_next(s->eio, &frame)) {
                if (agx_ws_send(s->socket->ws, !frame.binary, frame.head, frame.body))
                        break;
                pull(s->socket);
                agx_eio_ws_sent(s->eio);
        }
        if (agx_eio_is_closed(s->eio) && s->socket)
                agx_ws_close(s->socket->ws, AGX_WS_NORMAL, AGX_VIEW_NULL);
        if (s->socket) {
                pull(s->socket);
                flush(s->socket);
        }
        if (agx_eio_is_closed(s->eio) && !s->poller)
                session_free(s);
}

/* ---- requests ---- */

static agx_view query(agx_view target, agx_view name)
{
        agx_view part, key;

        if (!agx_view_split(&target, '?', &part))
                return AGX_VIEW_NULL;
        while (agx_view_split(&target, '&', &part))
                if (agx_view_split(&part, '=', &key) && agx_view_eq(key, name))
                        return part;
        return AGX_VIEW_NULL;
}

static void on_get(conn *c, session *s)
{
        s = s ? s : session_new(c->server, AGX_EIO_POLLING);
        if (agx_eio_poll(s->eio)) {
                answer(c, 400, AGX_VIEW("no poll now"));
        } else {
                s->poller = c;
                c->session = s;
        }
        pump(s);
}

static void on_post(conn *c, session *s)
{
        agx_view in = agx_buf_view(&c->body);
        agx_eio_event event;
        int r = 0;

        while (in.p && !r) {
                r = agx_eio_payload_read(s->eio, &in, now(c->server), &event);
                if (!r && event.kind == AGX_EIO_GOT)
                        on_message(s, event.binary, event.data);
        }
        answer(c, r && r != AGX_EIO_E_CLOSED ? 400 : 200, AGX_VIEW("ok"));
        pump(s);
}

static void feed_ws(conn *c, agx_view in);

static void on_upgrade(conn *c, session *s, agx_view rest)
{
        s = s ? s : session_new(c->server, AGX_EIO_WEBSOCKET);
        if (agx_eio_ws_opened(s->eio, now(c->server))) {
                answer(c, 400, AGX_VIEW("no WebSocket now"));
                return;
        }
        must(agx_ws_put_reply(&c->out, &c->upgrade), "reply");
        must(agx_ws_new(&c->ws, AGX_WS_SERVER, &ws_bounds), "memory");
        s->socket = c;
        c->session = s;
        flush(c);
        pump(s);
        if (rest.n && !uv_is_closing((uv_handle_t *)&c->tcp))
                feed_ws(c, rest);
}

/* A request is complete; `rest` is what follows it. */
static void route(conn *c, agx_view rest)
{
        agx_view sid = query(c->target, AGX_VIEW("sid"));
        session *s = sid.p ? session_find(c->server, sid) : NULL;
        bool ours = agx_view_starts(c->target, AGX_VIEW("/socket.io/?")) &&
                    agx_view_eq(query(c->target, AGX_VIEW("EIO")), AGX_VIEW("4"));

        if (!ours || (sid.p && !s))
                answer(c, 400, AGX_VIEW("no such session"));
        else if (c->wants_upgrade)
                on_upgrade(c, s, rest);
        else if (agx_view_eq(c->method, AGX_VIEW("GET")))
                on_get(c, s);
        else if (agx_view_eq(c->method, AGX_VIEW("POST")) && s)
                on_post(c, s);
        else
                answer(c, 400, AGX_VIEW("what?"));
}

static void on_head(conn *c, const agx_http1_head *head)
{
        c->method = head->method;
        c->target = head->target;
        c->keep_alive = head->keep_alive;
        c->wants_upgrade = !agx_ws_check_request(head, NULL, 0, &c->upgrade);
        agx_buf_clear(&c->body);
}

static void feed_http(conn *c, agx_view in)
{
        agx_http1_event event = {0};

        do {
                if (agx_http1_next(c->http, &in, &event)) {
                        finish(c);
                        return;
                }
                if (event.kind == AGX_HTTP1_HEAD)
                        on_head(c, event.head);
                if (event.kind == AGX_HTTP1_BODY)
                        must(agx_buf_append_view(&c->body, event.body), "memory");
                if (event.kind == AGX_HTTP1_END)
                        route(c, in);
        } while (event.kind != AGX_HTTP1_MORE && !c->ws && !c->over);
}

static void feed_ws(conn *c, agx_view in)
{
        session *s = c->session;
        agx_eio_event got;
        agx_ws_event event;
        int r;

        do {
                r = agx_ws_next(c->ws, &in, &event);
                if (!r && s && (event.kind == AGX_WS_TEXT || event.kind == AGX_WS_BINARY)) {
                        r = agx_eio_ws_read(s->eio, event.kind == AGX_WS_BINARY, event.data, now(c->server), &got);
                        if (!r && got.kind == AGX_EIO_GOT)
                                on_message(s, got.binary, got.data);
                }
        } while (!r && event.kind != AGX_WS_MORE);
        pull(c);
        flush(c);
        if (s)
                pump(s);
        if (r || agx_ws_done(c->ws))
                finish(c);
}

static void on_place(uv_handle_t *handle, size_t suggested, uv_buf_t *place)
{
        conn *c = agx_container_of(handle, conn, tcp);

        (void)suggested;
        *place = uv_buf_init(c->server->place, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *place)
{
        conn *c = agx_container_of(stream, conn, tcp);
        agx_view in = agx_view_of(place->base, n > 0 ? (size_t)n : 0);

        if (n < 0)
                conn_close(c);
        else if (n && !c->over)
                c->ws ? feed_ws(c, in) : feed_http(c, in);
}

static void on_connection(uv_stream_t *listener, int status)
{
        server *v = agx_container_of(listener, server, listener);
        conn *c;

        if (status)
                return;
        c = calloc(1, sizeof(*c));
        must(!c, "memory");
        c->server = v;
        c->out = c->body = AGX_BUF_NULL(SIZE_MAX);
        must(agx_http1_new(&c->http, AGX_HTTP1_SERVER, &http_bounds), "memory");
        must(uv_tcp_init(&v->loop, &c->tcp), "tcp");
        if (uv_accept(listener, (uv_stream_t *)&c->tcp)) {
                conn_close(c);
                return;
        }
        uv_tcp_nodelay(&c->tcp, 1);
        must(uv_read_start((uv_stream_t *)&c->tcp, on_place, on_read), "read");
}

static void on_clock(uv_timer_t *timer)
{
        server *v = agx_container_of(timer, server, clock);

        agx_list_foreach_safe(node, &v->sessions)
        {
                session *s = agx_container_of(node, session, node);
                agx_eio_event event;

                agx_eio_tick(s->eio, now(v), &event);
                if (event.kind == AGX_EIO_PROBE_ENDED && s->socket)
                        conn_close(s->socket);
                pump(s);
        }
}

static void on_signal(uv_signal_t *signal, int number)
{
        (void)number;
        uv_stop(signal->loop);
}

int main(int argc, char **argv)
{
        static server v;
        struct sockaddr_in address;
        int n = sizeof(address);
        uint64_t port;

        if (argc != 2 || !agx_view_u64(agx_view_str(argv[1]), 65535, &port)) {
                fprintf(stderr, "usage: sio_server_uv PORT\n");
                return 2;
        }
        agx_list_init(&v.sessions);
        must(uv_loop_init(&v.loop), "loop");
        must(uv_ip4_addr("127.0.0.1", (int)port, &address), "address");
        must(uv_tcp_init(&v.loop, &v.listener), "tcp");
        must(uv_tcp_bind(&v.listener, (struct sockaddr *)&address, 0), "bind");
        must(uv_listen((uv_stream_t *)&v.listener, 128, on_connection), "listen");
        must(uv_tcp_getsockname(&v.listener, (struct sockaddr *)&address, &n), "getsockname");
        must(uv_signal_init(&v.loop, &v.signal), "signal");
        must(uv_signal_start(&v.signal, on_signal, SIGTERM), "signal");
        must(uv_timer_init(&v.loop, &v.clock), "timer");
        must(uv_timer_start(&v.clock, on_clock, 50, 50), "timer");
        printf("%d\n", ntohs(address.sin_port));
        fflush(stdout);
        uv_run(&v.loop, UV_RUN_DEFAULT);
        return 0;
}
