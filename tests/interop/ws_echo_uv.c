/*
 * A WebSocket echo for conformance suites, as thin as a shell over the brain can be:
 *
 *     ws_echo_uv serve PORT                echoes on 127.0.0.1:PORT until SIGTERM; port 0 takes a free one and prints it
 *     ws_echo_uv run PORT                  asks 127.0.0.1:PORT how many cases it has (/getCaseCount), runs each of them
 *                                          (/runCase?case=N&agent=agentix) and has the report written (/updateReports)
 *
 * Only for tests: it waits for nobody's back-pressure and ends the program when memory does.
 */
#include "base/err.h"
#include "base/list.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <uv.h>

enum { READ_BYTES = 64 * 1024 };

static const agx_http1_bounds http_bounds = {
        .head_max = 32 << 10, .headers_max = 100, .chunk_line_max = 4096, .trailer_max = 4096, .body_max = 0};
static const agx_ws_bounds ws_bounds = {.message_max = 64u << 20, .fragments_max = 1 << 17, .frame_out = 256 << 10};

typedef struct conn conn;

typedef struct echo {
        uv_loop_t loop;
        uv_tcp_t listener;
        uv_signal_t signal;
        int port;
        bool serving;
        unsigned cases; /* run: how many there are */
        unsigned next;  /* and which comes next; 0: they are being counted */
        char place[READ_BYTES];
} echo;

struct conn {
        echo *echo;
        uv_tcp_t tcp;
        uv_connect_t connect;
        uv_shutdown_t shutdown;
        agx_http1 *http;
        agx_ws *ws; /* NULL until the opening is over */
        agx_ws_opening opening;
        agx_buf out;
        bool head; /* the peer's head has been judged */
        bool over; /* nothing more is read */
};

typedef struct writing {
        uv_write_t write;
        agx_buf bytes;
} writing;

static void must(int r, const char *what)
{
        if (r) {
                fprintf(stderr, "ws_echo_uv: %s: %d\n", what, r);
                exit(1);
        }
}

static void next_case(echo *e);

/* ---- connections ---- */

static conn *conn_new(echo *e)
{
        conn *c = calloc(1, sizeof(*c));

        must(!c, "memory");
        c->echo = e;
        c->out = AGX_BUF_NULL(SIZE_MAX);
        must(agx_http1_new(&c->http, e->serving ? AGX_HTTP1_SERVER : AGX_HTTP1_CLIENT, &http_bounds), "memory");
        must(uv_tcp_init(&e->loop, &c->tcp), "tcp");
        return c;
}

static void on_closed(uv_handle_t *handle)
{
        conn *c = agx_container_of(handle, conn, tcp);
        echo *e = c->echo;

        agx_http1_free(c->http);
        agx_ws_free(c->ws);
        agx_buf_deinit(&c->out);
        free(c);
        if (!e->serving)
                next_case(e);
}

static void conn_close(conn *c)
{
        if (!uv_is_closing((uv_handle_t *)&c->tcp))
                uv_close((uv_handle_t *)&c->tcp, on_closed);
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

        if (!c->out.len)
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

/* Ends our side; the peer's end closes the connection. */
static void finish(conn *c)
{
        flush(c);
        if (!c->over)
                uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, on_shut);
        c->over = true;
}

/* ---- the protocol ---- */

static void pull(conn *c)
{
        uint8_t mask[4];
        int r;

        do {
                must(!c->echo->serving && getrandom(mask, sizeof(mask), 0) != sizeof(mask), "random");
                r = agx_ws_pull(c->ws, c->echo->serving ? NULL : mask, &c->out);
        } while (!r);
        must(r != AGX_WS_IDLE, "pull");
}

static void on_message(conn *c, const agx_ws_event *event)
{
        uint64_t cases;

        if (!c->echo->serving && !c->echo->next) {
                if (agx_view_u64(event->data, 10000, &cases))
                        c->echo->cases = (unsigned)cases;
                return;
        }
        agx_ws_send(c->ws, event->kind == AGX_WS_TEXT, event->data, AGX_VIEW_NULL);
}

static void feed_ws(conn *c, agx_view in)
{
        agx_ws_event event;
        int r;

        do {
                r = agx_ws_next(c->ws, &in, &event);
                if (!r && (event.kind == AGX_WS_TEXT || event.kind == AGX_WS_BINARY))
                        on_message(c, &event);
                pull(c);
        } while (!r && event.kind != AGX_WS_MORE);
        flush(c);
        if (agx_ws_done(c->ws))
                finish(c);
}

/* The peer's head is complete: 0 once frames may follow. */
static int judge(conn *c, const agx_http1_head *head)
{
        agx_ws_request request;
        agx_view protocol;
        const char *reason;
        int r;

        if (!c->echo->serving)
                return agx_ws_check_reply(head, &c->opening, NULL, 0, &protocol, &reason);
        r = agx_ws_check_request(head, NULL, 0, &request);
        if (r) {
                must(agx_http1_put_status(&c->out, 400) || agx_http1_put_length(&c->out, 0) ||
                             agx_http1_put_end(&c->out),
                     "memory");
                return r;
        }
        must(agx_ws_put_reply(&c->out, &request), "memory");
        flush(c);
        return 0;
}

static void feed_http(conn *c, agx_view in)
{
        agx_http1_event event = {0};
        int r;

        do {
                r = agx_http1_next(c->http, &in, &event);
                if (!r && event.kind == AGX_HTTP1_HEAD)
                        r = judge(c, event.head);
        } while (!r && event.kind != AGX_HTTP1_END && event.kind != AGX_HTTP1_MORE);
        if (r) {
                finish(c);
                return;
        }
        if (event.kind == AGX_HTTP1_MORE)
                return;
        must(agx_ws_new(&c->ws, c->echo->serving ? AGX_WS_SERVER : AGX_WS_CLIENT, &ws_bounds), "memory");
        feed_ws(c, in);
}

static void on_place(uv_handle_t *handle, size_t suggested, uv_buf_t *place)
{
        conn *c = agx_container_of(handle, conn, tcp);

        (void)suggested;
        *place = uv_buf_init(c->echo->place, READ_BYTES);
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

static void conn_start(conn *c)
{
        uv_tcp_nodelay(&c->tcp, 1);
        must(uv_read_start((uv_stream_t *)&c->tcp, on_place, on_read), "read");
}

/* ---- serve ---- */

static void on_connection(uv_stream_t *listener, int status)
{
        echo *e = agx_container_of(listener, echo, listener);
        conn *c;

        if (status)
                return;
        c = conn_new(e);
        if (uv_accept(listener, (uv_stream_t *)&c->tcp))
                conn_close(c);
        else
                conn_start(c);
}

static void on_signal(uv_signal_t *signal, int number)
{
        (void)number;
        uv_stop(signal->loop);
}

static void serve(echo *e)
{
        struct sockaddr_in address;
        int n = sizeof(address);

        must(uv_ip4_addr("127.0.0.1", e->port, &address), "address");
        must(uv_tcp_init(&e->loop, &e->listener), "tcp");
        must(uv_tcp_bind(&e->listener, (struct sockaddr *)&address, 0), "bind");
        must(uv_listen((uv_stream_t *)&e->listener, 128, on_connection), "listen");
        must(uv_tcp_getsockname(&e->listener, (struct sockaddr *)&address, &n), "getsockname");
        must(uv_signal_init(&e->loop, &e->signal), "signal");
        must(uv_signal_start(&e->signal, on_signal, SIGTERM), "signal");
        printf("%d\n", ntohs(address.sin_port));
        fflush(stdout);
}

/* ---- run ---- */

static void put_request(conn *c, const char *target)
{
        uint8_t nonce[AGX_WS_NONCE_BYTES];
        char host[32];

        snprintf(host, sizeof(host), "127.0.0.1:%d", c->echo->port);
        must(getrandom(nonce, sizeof(nonce), 0) != sizeof(nonce), "random");
        c->opening = agx_ws_opening_on(nonce);
        must(agx_http1_put_request(&c->out, AGX_VIEW("GET"), agx_view_str(target)), "request");
        must(agx_http1_put_field(&c->out, AGX_VIEW("Host"), agx_view_str(host)), "request");
        must(agx_ws_put_request_fields(&c->out, &c->opening, NULL, 0), "request");
        must(agx_http1_put_end(&c->out), "request");
}

static void on_connected(uv_connect_t *request, int status)
{
        conn *c = agx_container_of(request, conn, connect);

        must(status, "connect");
        conn_start(c);
        flush(c);
}

static void visit(echo *e, const char *target)
{
        struct sockaddr_in address;
        conn *c = conn_new(e);

        put_request(c, target);
        must(uv_ip4_addr("127.0.0.1", e->port, &address), "address");
        must(uv_tcp_connect(&c->connect, &c->tcp, (struct sockaddr *)&address, on_connected), "connect");
}

static void next_case(echo *e)
{
        char target[64];

        ++e->next;
        if (e->next > e->cases + 1)
                return;
        if (e->next == e->cases + 1)
                snprintf(target, sizeof(target), "/updateReports?agent=agentix");
        else
                snprintf(target, sizeof(target), "/runCase?case=%u&agent=agentix", e->next);
        visit(e, target);
}

int main(int argc, char **argv)
{
        static echo e;
        uint64_t port;

        if (argc != 3 || !agx_view_u64(agx_view_str(argv[2]), 65535, &port) ||
            (strcmp(argv[1], "serve") != 0 && strcmp(argv[1], "run") != 0)) {
                fprintf(stderr, "usage: ws_echo_uv serve|run PORT\n");
                return 2;
        }
        must(uv_loop_init(&e.loop), "loop");
        e.port = (int)port;
        e.serving = !strcmp(argv[1], "serve");
        if (e.serving)
                serve(&e);
        else
                visit(&e, "/getCaseCount");
        uv_run(&e.loop, UV_RUN_DEFAULT);
        printf("%u cases\n", e.cases);
        return 0;
}
