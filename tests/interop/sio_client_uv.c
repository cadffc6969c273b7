/*
 * A Socket.IO client on the wire brains, for stock servers to answer:
 *
 *     sio_client_uv PORT polling|websocket|upgrade
 *
 * Joins /echo on 127.0.0.1:PORT, sends 200 events "m" of a number and bytes without a pause, one "big" of some megabytes
 * and one "ask" that wants an answer; the server is to send each event back under its name. After a second and a half
 * of heartbeats it asks once more, leaves, and exits with 0 if everything came, unchanged and in order. Each request
 * takes a connection of its own.
 */
#include "base/err.h"
#include "base/list.h"
#include "wire/eio.h"
#include "wire/sio.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uv.h>

enum { READ_BYTES = 256 * 1024, MESSAGE_MAX = 64 << 20, EVENTS = 200, PAUSE_MS = 1500, GIVE_UP_MS = 40000 };

static const agx_http1_bounds http_bounds = {
        .head_max = 32 << 10, .headers_max = 100, .chunk_line_max = 4096, .trailer_max = 4096, .body_max = MESSAGE_MAX};
static const agx_ws_bounds ws_bounds = {.message_max = MESSAGE_MAX, .fragments_max = 1 << 17, .frame_out = 256 << 10};
static const agx_sio_bounds sio_bounds = {.packet_max = 2u * MESSAGE_MAX,
                                          .attachments_max = 64,
                                          .namespace_max = 200,
                                          .event_max = 200,
                                          .depth_max = 64,
                                          .namespaces_max = 256,
                                          .acks_max = 64};

typedef struct client client;

typedef enum purpose { PURPOSE_GET, PURPOSE_POST, PURPOSE_WS } purpose;

/* One connection: a request and its answer, or the WebSocket. */
typedef struct conn {
        client *client;
        purpose purpose;
        uv_tcp_t tcp;
        uv_connect_t connect;
        agx_http1 *http;
        agx_ws *ws;
        agx_ws_opening opening;
        agx_buf out, body;
} conn;

struct client {
        uv_loop_t loop;
        uv_timer_t clock;
        int port;
        bool leaving;
        agx_eio *eio;
        agx_sio *sio;
        conn *socket;
        size_t sent, got;
        bool big_sent, big_got, asked;
        size_t answers;
        uint64_t pause_until, give_up;
        char *big;
        size_t n_big;
        char place[READ_BYTES];
};

typedef struct writing {
        uv_write_t write;
        agx_buf bytes;
} writing;

static void must(int r, const char *what)
{
        if (r) {
                fprintf(stderr, "sio_client_uv: %s: %d\n", what, r);
                exit(1);
        }
}

static uint64_t now(const client *c)
{
        return uv_now(&c->loop);
}

static void pump(client *c);

/* ---- connections ---- */

static void on_closed(uv_handle_t *handle)
{
        conn *k = agx_container_of(handle, conn, tcp);

        agx_http1_free(k->http);
        agx_ws_free(k->ws);
        agx_buf_deinit(&k->body);
        agx_buf_deinit(&k->out);
        free(k);
}

static void conn_close(conn *k)
{
        if (k->client->socket == k) {
                k->client->socket = NULL;
                agx_eio_ws_lost(k->client->eio);
        }
        if (!uv_is_closing((uv_handle_t *)&k->tcp))
                uv_close((uv_handle_t *)&k->tcp, on_closed);
}

static void on_written(uv_write_t *request, int status)
{
        writing *w = agx_container_of(request, writing, write);

        (void)status;
        agx_buf_deinit(&w->bytes);
        free(w);
}

static void flush(conn *k)
{
        writing *w;
        uv_buf_t bytes;

        if (!k->out.len || uv_is_closing((uv_handle_t *)&k->tcp))
                return;
        w = calloc(1, sizeof(*w));
        if (!w)
                exit(1);
        w->bytes = k->out;
        k->out = AGX_BUF_NULL(SIZE_MAX);
        bytes = uv_buf_init((char *)w->bytes.data + w->bytes.head, (unsigned)w->bytes.len);
        if (uv_write(&w->write, (uv_stream_t *)&k->tcp, &bytes, 1, on_written))
                on_written(&w->write, 0);
}

/* ---- what is said ---- */

static void send_packet(client *c, agx_buf *text, const agx_sio_arg *args, size_t n)
{
        agx_eio_message messages[4] = {{.head = agx_buf_view(text)}};
        size_t count = 1;

        for (size_t i = 0; i < n; ++i)
                if (args[i].binary)
                        messages[count++] = (agx_eio_message){.binary = true, .head = args[i].v};
        must(agx_eio_send(c->eio, messages, count), "send");
        agx_buf_clear(text);
}

static void emit(client *c, const char *name, const agx_sio_arg *args, size_t n, bool ask)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(100000);
        uint64_t id;

        must(agx_sio_emit(c->sio, AGX_VIEW("/echo"), agx_view_str(name), args, n, ask ? &id : NULL, &text), "emit");
        send_packet(c, &text, args, n);
}

static void say_everything(client *c)
{
        agx_sio_arg big = {.binary = true, .v = agx_view_of(c->big, c->n_big)};

        for (; c->sent < EVENTS; ++c->sent) {
                char number[16], bytes[32];
                agx_sio_arg args[2];

                snprintf(number, sizeof(number), "%zu", c->sent);
                snprintf(bytes, sizeof(bytes), "bytes %zu", c->sent);
                args[0] = (agx_sio_arg){.v = agx_view_str(number)};
                args[1] = (agx_sio_arg){.binary = c->sent % 3, .v = c->sent % 3 ? agx_view_str(bytes) : AGX_VIEW("[]")};
                emit(c, "m", args, 2, false);
        }
        emit(c, "big", &big, 1, false);
        emit(c, "ask", NULL, 0, true);
}

/* ---- what is heard ---- */

static bool is_next(const client *c, const agx_sio_packet *packet)
{
        agx_sio_args args = agx_sio_args_on(packet);
        char number[16], bytes[32];
        agx_sio_arg arg;

        snprintf(number, sizeof(number), "%zu", c->got);
        snprintf(bytes, sizeof(bytes), "bytes %zu", c->got);
        if (!agx_sio_args_next(&args, &arg) || !agx_view_eq(arg.v, agx_view_str(number)))
                return false;
        return agx_sio_args_next(&args, &arg) && arg.binary == (c->got % 3 != 0) &&
               agx_view_eq(arg.v, arg.binary ? agx_view_str(bytes) : AGX_VIEW("[]"));
}

static void on_event(client *c, const agx_sio_packet *packet)
{
        if (agx_view_eq(packet->name, AGX_VIEW("m"))) {
                must(!is_next(c, packet), "an echo that differs");
                ++c->got;
        } else if (agx_view_eq(packet->name, AGX_VIEW("big"))) {
                must(packet->n_attachments != 1 || !agx_view_eq(packet->attachments[0], agx_view_of(c->big, c->n_big)),
                     "a big echo that differs");
                c->big_got = true;
        }
}

static void on_message(client *c, bool binary, agx_view message)
{
        agx_sio_event event;

        must(agx_sio_read(c->sio, binary, message, &event), agx_sio_reason(c->sio));
        if (event.kind == AGX_SIO_CONNECTED)
                say_everything(c);
        else if (event.kind == AGX_SIO_GOT)
                on_event(c, &event.packet);
        else if (event.kind == AGX_SIO_ANSWERED)
                ++c->answers;
        else
                must(event.kind != AGX_SIO_NOTHING, "refused");
        if (c->got == EVENTS && c->big_got && c->answers == 1 && !c->pause_until)
                c->pause_until = now(c) + PAUSE_MS;
}

static void on_eio(client *c, const agx_eio_event *event)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1000);

        if (event->kind == AGX_EIO_OPENED) {
                must(agx_sio_connect(c->sio, AGX_VIEW("/echo"), AGX_VIEW("{\"session\":\"s\"}"), &text), "connect");
                send_packet(c, &text, NULL, 0);
        }
        if (event->kind == AGX_EIO_GOT)
                on_message(c, event->binary, event->data);
        must(event->kind == AGX_EIO_CLOSED && !c->leaving, agx_eio_reason(c->eio));
}

/* ---- answers of the server ---- */

static void on_answer(conn *k)
{
        client *c = k->client;
        agx_view in = agx_buf_view(&k->body);
        agx_eio_event event;

        conn_close(k);
        if (k->purpose == PURPOSE_POST) {
                agx_eio_posted(c->eio);
                return;
        }
        while (in.p && !agx_eio_is_closed(c->eio)) {
                must(agx_eio_payload_read(c->eio, &in, now(c), &event), agx_eio_reason(c->eio));
                on_eio(c, &event);
        }
}

static void feed_ws(conn *k, agx_view in)
{
        client *c = k->client;
        agx_eio_event got;
        agx_ws_event event;

        for (;;) {
                must(agx_ws_next(k->ws, &in, &event), "WebSocket");
                if (event.kind == AGX_WS_MORE)
                        return;
                if (event.kind != AGX_WS_TEXT && event.kind != AGX_WS_BINARY)
                        continue;
                must(agx_eio_ws_read(c->eio, event.kind == AGX_WS_BINARY, event.data, now(c), &got),
                     agx_eio_reason(c->eio));
                on_eio(c, &got);
        }
}

static void on_head(conn *k, const agx_http1_head *head)
{
        agx_view protocol;
        const char *reason;

        if (k->purpose != PURPOSE_WS) {
                must(head->status != 200, "status");
                return;
        }
        must(agx_ws_check_reply(head, &k->opening, NULL, 0, &protocol, &reason), "no WebSocket");
        must(agx_ws_new(&k->ws, AGX_WS_CLIENT, &ws_bounds), "memory");
}

static void feed_http(conn *k, agx_view in)
{
        agx_http1_event event = {0};

        do {
                must(agx_http1_next(k->http, &in, &event), "HTTP");
                if (event.kind == AGX_HTTP1_HEAD)
                        on_head(k, event.head);
                if (event.kind == AGX_HTTP1_BODY)
                        must(agx_buf_append_view(&k->body, event.body), "memory");
        } while (event.kind != AGX_HTTP1_MORE && event.kind != AGX_HTTP1_END);
        if (event.kind == AGX_HTTP1_MORE)
                return;
        if (k->purpose != PURPOSE_WS) {
                on_answer(k);
                return;
        }
        k->client->socket = k;
        must(agx_eio_ws_opened(k->client->eio, now(k->client)), "opened");
        feed_ws(k, in);
}

static void on_place(uv_handle_t *handle, size_t suggested, uv_buf_t *place)
{
        conn *k = agx_container_of(handle, conn, tcp);

        (void)suggested;
        *place = uv_buf_init(k->client->place, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *place)
{
        conn *k = agx_container_of(stream, conn, tcp);
        client *c = k->client;
        agx_view in = agx_view_of(place->base, n > 0 ? (size_t)n : 0);

        if (n < 0) {
                must(!c->leaving, "the server closed");
                conn_close(k);
        } else if (n) {
                k->ws ? feed_ws(k, in) : feed_http(k, in);
        }
        pump(c);
}

static void on_connected(uv_connect_t *request, int status)
{
        conn *k = agx_container_of(request, conn, connect);

        must(status, "connect");
        uv_tcp_nodelay(&k->tcp, 1);
        must(uv_read_start((uv_stream_t *)&k->tcp, on_place, on_read), "read");
        flush(k);
}

static void put_ws_fields(conn *k)
{
        uint8_t nonce[AGX_WS_NONCE_BYTES];

        must(getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce), "random");
        k->opening = agx_ws_opening_on(nonce);
        must(agx_ws_put_request_fields(&k->out, &k->opening, NULL, 0), "request");
}

static void put_request(conn *k, agx_view body)
{
        client *c = k->client;
        agx_view sid = agx_eio_sid(c->eio);
        char target[300], host[32];

        snprintf(host, sizeof(host), "127.0.0.1:%d", c->port);
        snprintf(target, sizeof(target), "/socket.io/?EIO=4&transport=%s%s%.*s",
                 k->purpose == PURPOSE_WS ? "websocket" : "polling", sid.n ? "&sid=" : "", (int)sid.n, sid.p);
        must(agx_http1_put_request(&k->out, k->purpose == PURPOSE_POST ? AGX_VIEW("POST") : AGX_VIEW("GET"),
                                   agx_view_str(target)),
             "request");
        must(agx_http1_put_field(&k->out, AGX_VIEW("Host"), agx_view_str(host)), "request");
        if (k->purpose == PURPOSE_WS)
                put_ws_fields(k);
        else
                must(agx_http1_put_field(&k->out, AGX_VIEW("Connection"), AGX_VIEW("close")), "request");
        if (k->purpose == PURPOSE_POST) {
                must(agx_http1_put_field(&k->out, AGX_VIEW("Content-Type"), AGX_VIEW("text/plain;charset=UTF-8")),
                     "request");
                must(agx_http1_put_length(&k->out, body.n), "request");
        }
        must(agx_http1_put_end(&k->out), "request");
        must(agx_buf_append_view(&k->out, body), "request");
}

static void request(client *c, purpose why, agx_view body)
{
        struct sockaddr_in address;
        conn *k = calloc(1, sizeof(*k));

        must(!k, "memory");
        k->client = c;
        k->purpose = why;
        k->out = k->body = AGX_BUF_NULL(SIZE_MAX);
        must(agx_http1_new(&k->http, AGX_HTTP1_CLIENT, &http_bounds), "memory");
        must(uv_tcp_init(&c->loop, &k->tcp), "tcp");
        put_request(k, body);
        must(uv_ip4_addr("127.0.0.1", c->port, &address), "address");
        must(uv_tcp_connect(&k->connect, &k->tcp, (struct sockaddr *)&address, on_connected), "connect");
}

/* ---- what goes out ---- */

static void pull(conn *k)
{
        uint8_t mask[4];
        int r;

        do {
                must(getrandom(mask, sizeof(mask), 0) != sizeof(mask), "random");
                r = agx_ws_pull(k->ws, mask, &k->out);
        } while (!r);
        must(r != AGX_WS_IDLE, "pull");
}

static void pump_ws(client *c)
{
        agx_eio_frame frame;

        while (c->socket && agx_eio_ws_next(c->eio, &frame)) {
                must(agx_ws_send(c->socket->ws, !frame.binary, frame.head, frame.body), "WebSocket");
                pull(c->socket);
                agx_eio_ws_sent(c->eio);
        }
        if (!c->socket)
                return;
        if (agx_eio_is_closed(c->eio))
                agx_ws_close(c->socket->ws, AGX_WS_NORMAL, AGX_VIEW_NULL);
        pull(c->socket);
        flush(c->socket);
}

static void pump(client *c)
{
        static bool asked_for_ws;

        if (agx_eio_poll_due(c->eio)) {
                must(agx_eio_poll(c->eio), "poll");
                request(c, PURPOSE_GET, AGX_VIEW(""));
        }
        if (agx_eio_payload_due(c->eio)) {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(2u * MESSAGE_MAX);

                must(agx_eio_payload_write(c->eio, &body), "payload");
                request(c, PURPOSE_POST, agx_buf_view(&body));
        }
        if (agx_eio_ws_wanted(c->eio) && !asked_for_ws) {
                asked_for_ws = true;
                request(c, PURPOSE_WS, AGX_VIEW(""));
        }
        pump_ws(c);
}

static void leave(client *c)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1000);

        printf("ok over %s\n", agx_eio_over(c->eio) == AGX_EIO_WEBSOCKET ? "websocket" : "polling");
        must(agx_sio_leave(c->sio, AGX_VIEW("/echo"), &text), "leave");
        send_packet(c, &text, NULL, 0);
        agx_eio_close(c->eio);
        c->leaving = true;
}

static void on_clock(uv_timer_t *timer)
{
        client *c = agx_container_of(timer, client, clock);
        agx_eio_event event;

        agx_eio_tick(c->eio, now(c), &event);
        on_eio(c, &event);
        must(now(c) > c->give_up, "too slow");
        if (c->pause_until && now(c) > c->pause_until && !c->asked) {
                c->asked = true;
                emit(c, "ask", NULL, 0, true);
        }
        if (c->answers == 2 && !c->leaving)
                leave(c);
        pump(c);
        if (c->leaving && agx_eio_is_closed(c->eio))
                uv_stop(&c->loop);
}

int main(int argc, char **argv)
{
        static client c;
        static const uint8_t seed[16] = {1};
        agx_eio_bounds bounds = {.message_max = MESSAGE_MAX,
                                 .queue_max = 2u * MESSAGE_MAX,
                                 .queue_packets = 10000,
                                 .payload_packets = 16,
                                 .interval_ms = 100000,
                                 .timeout_ms = 1000000,
                                 .upgrade_ms = 10000};
        uint64_t port;
        bool direct;

        if (argc != 3 || !agx_view_u64(agx_view_str(argv[1]), 65535, &port)) {
                fprintf(stderr, "usage: sio_client_uv PORT polling|websocket|upgrade\n");
                return 2;
        }
        direct = !strcmp(argv[2], "websocket");
        bounds.upgrade = !strcmp(argv[2], "upgrade");
        must(uv_loop_init(&c.loop), "loop");
        c.port = (int)port;
        c.n_big = 3000001;
        c.big = malloc(c.n_big);
        must(!c.big, "memory");
        for (size_t i = 0; i < c.n_big; ++i)
                c.big[i] = (char)(i * 7 + i / 1000);
        c.give_up = now(&c) + GIVE_UP_MS;
        must(agx_eio_new(&c.eio, AGX_EIO_CLIENT, &bounds, AGX_VIEW_NULL, direct ? AGX_EIO_WEBSOCKET : AGX_EIO_POLLING,
                         now(&c)),
             "memory");
        must(agx_sio_new(&c.sio, AGX_SIO_CLIENT, &sio_bounds, seed), "memory");
        must(uv_timer_init(&c.loop, &c.clock), "timer");
        must(uv_timer_start(&c.clock, on_clock, 20, 20), "timer");
        pump(&c);
        uv_run(&c.loop, UV_RUN_DEFAULT);
        agx_eio_free(c.eio);
        agx_sio_free(c.sio);
        free(c.big);
        return 0;
}
