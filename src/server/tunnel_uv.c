/*
 * A connection reads ahead a little while its request is with the host, and so notices that the client leaves; that is
 * the end of the exchange. The next request waits until the reply before it has gone out whole: only then does the host
 * forget that one.
 *
 * What belongs to one tunnel is freed when the last of its handles is closed.
 */
#include "server/tunnel_uv.h"
#include "base/err.h"
#include "server/tunnel_conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { ODD_TOLD = 20, AWAY_TICKS = 3, LINGER_MS = 2000 };

typedef struct tunnel {
        agx_server *server;
        agx_tunnel *tunnel; /* NULL: it is closed */
        agx_listener listener;
        agx_deadline away;
        agx_list connections;
        size_t n;
        unsigned open; /* handles of its own */
        char place[AGX_TUNNEL_READ];
} tunnel;

typedef struct connection {
        agx_list node;
        tunnel *of;
        agx_stream stream;
        agx_deadline deadline;
        agx_tunnel_conn conn;
        agx_exchange exchange;
        agx_buf ahead;
        bool feeding;
        bool ending; /* nothing more is read but to be dropped */
        size_t last_queued;
        unsigned open;
} connection;

static void pump(connection *c);
static void close_tunnel(tunnel *t);

static uint64_t now_of(const tunnel *t)
{
        return agx_loop_now(&t->server->loop);
}

/* Its host may have something to hear. */
static void wake(tunnel *t)
{
        if (!t->tunnel || !t->tunnel->port)
                return;
        agx_hub_tunnel_touch(agx_container_of(t->tunnel->port, agx_hub_port, tunnel));
        agx_server_wake(t->server);
}

/* ---- the end of a connection ---- */

static void tunnel_part_closed(tunnel *t)
{
        if (!t->open && !t->n)
                free(t);
}

static void part_closed(connection *c)
{
        tunnel *t = c->of;

        if (--c->open)
                return;
        agx_list_unlink(&c->node);
        agx_tunnel_conn_deinit(&c->conn);
        agx_buf_deinit(&c->ahead);
        free(c);
        t->n--;
        agx_listener_resume(&t->listener);
        tunnel_part_closed(t);
}

static void on_closed(agx_stream *stream)
{
        part_closed(agx_container_of(stream, connection, stream));
}

static void on_deadline_closed(agx_deadline *d)
{
        part_closed(agx_container_of(d, connection, deadline));
}

static void over(connection *c)
{
        agx_exchange_over(&c->exchange);
        wake(c->of);
}

static void drop(connection *c)
{
        if (agx_stream_closing(&c->stream))
                return;
        c->ending = true;
        over(c);
        agx_stream_close(&c->stream);
        agx_deadline_close(&c->deadline, on_deadline_closed);
}

/* Out with what is written, then the end. */
static void finish(connection *c)
{
        if (c->ending)
                return;
        c->ending = true;
        over(c);
        agx_buf_deinit(&c->ahead);
        if (!agx_stream_queued(&c->stream)) {
                drop(c);
                return;
        }
        agx_stream_shutdown(&c->stream);
        agx_stream_touch(&c->stream);
        agx_deadline_set(&c->deadline, now_of(c->of) + LINGER_MS);
        agx_stream_read(&c->stream);
}

/* ---- replies ---- */

/* All that came from the host has left for the client. */
static void taken(connection *c)
{
        if (c->ending || !c->exchange.tunnel)
                return;
        if (c->exchange.ended)
                agx_exchange_over(&c->exchange);
        else
                agx_exchange_taken(&c->exchange);
        wake(c->of);
}

/* After anything was written. `r`: of writing it. */
static void wrote(connection *c, int r)
{
        if (r) {
                drop(c);
                return;
        }
        agx_stream_touch(&c->stream);
        if (c->conn.state == AGX_TUNNEL_CONN_CLOSING)
                finish(c);
        else if (!agx_stream_queued(&c->stream))
                taken(c);
        if (!c->ending)
                agx_deadline_set(&c->deadline, agx_tunnel_conn_deadline(&c->conn));
}

static void answer(const agx_tunnel_outcome *o, uint64_t now)
{
        connection *c = agx_container_of(o->exchange, connection, exchange);
        int r = 0;

        if (c->ending)
                return;
        switch (o->todo) {
        case AGX_TUNNEL_TODO_WHOLE:
        case AGX_TUNNEL_TODO_HEAD:
                r = agx_tunnel_conn_reply(&c->conn, now, &o->reply, o->last);
                break;
        case AGX_TUNNEL_TODO_BODY:
                r = agx_tunnel_conn_piece(&c->conn, now, o->reply.body, o->last);
                break;
        case AGX_TUNNEL_TODO_ERROR:
                r = agx_tunnel_conn_error(&c->conn, now, &o->reply);
                break;
        default:
                break;
        }
        wrote(c, r);
        if (!c->ending)
                pump(c);
}

static void fail(agx_exchange *x, unsigned status, const char *why, uint64_t now)
{
        connection *c = agx_container_of(x, connection, exchange);

        agx_exchange_over(x);
        wrote(c,
              agx_tunnel_conn_error(&c->conn, now, &(agx_tunnel_reply){.status = status, .body = agx_view_str(why)}));
}

/* ---- requests ---- */

static int carry_out(connection *c, const agx_tunnel_conn_event *e)
{
        int r;

        if (e->kind == AGX_TUNNEL_CONN_ASK)
                r = agx_exchange_begin(&c->exchange, c->of->tunnel, e->path, e->head, e->query, e->body, e->last);
        else
                r = agx_exchange_more(&c->exchange, e->body, e->last);
        agx_tunnel_conn_moved(&c->conn, now_of(c->of), agx_exchange_full(&c->exchange));
        return r;
}

/* Whether the input has to wait: for the host to take more, or for the reply before to go out. */
static bool must_wait(const connection *c)
{
        if (!c->exchange.tunnel)
                return false;
        return c->conn.state == AGX_TUNNEL_CONN_ASKING ? agx_exchange_full(&c->exchange) : true;
}

static void feed(connection *c, agx_view *in)
{
        agx_tunnel_conn_event e;

        c->feeding = true;
        while (!c->ending && !must_wait(c)) {
                int r = agx_tunnel_conn_next(&c->conn, now_of(c->of), in, &e);

                if (!r && (e.kind == AGX_TUNNEL_CONN_ASK || e.kind == AGX_TUNNEL_CONN_BODY))
                        r = carry_out(c, &e);
                if (r)
                        drop(c);
                else if (e.kind == AGX_TUNNEL_CONN_CLOSE)
                        finish(c);
                else if (e.kind == AGX_TUNNEL_CONN_MORE || e.kind == AGX_TUNNEL_CONN_WAIT)
                        break;
        }
        c->feeding = false;
        if (c->ending)
                return;
        agx_stream_touch(&c->stream);
        agx_deadline_set(&c->deadline, agx_tunnel_conn_deadline(&c->conn));
        wake(c->of);
}

static void read_or_pause(connection *c)
{
        if (!c->ending && (c->ahead.len >= AGX_TUNNEL_READ || agx_exchange_full(&c->exchange)))
                agx_stream_pause(&c->stream);
        else if (agx_stream_read(&c->stream))
                drop(c);
}

/* Goes on with the input that waited. */
static void pump(connection *c)
{
        if (c->feeding || c->ending)
                return;
        if (c->ahead.len) {
                agx_view all = agx_buf_view(&c->ahead), in = all;

                feed(c, &in);
                if (!c->ending)
                        agx_buf_consume(&c->ahead, all.n - in.n);
        }
        if (!c->ending)
                read_or_pause(c);
}

static void on_data(agx_stream *stream, agx_view in)
{
        connection *c = agx_container_of(stream, connection, stream);

        if (c->ending)
                return;
        if (!c->ahead.len)
                feed(c, &in);
        if (c->ending || agx_stream_closing(stream))
                return;
        if (in.n && agx_buf_append_view(&c->ahead, in))
                drop(c);
        else
                read_or_pause(c);
}

static void on_ended(agx_stream *stream, int error)
{
        connection *c = agx_container_of(stream, connection, stream);

        if (error || !c->ending || !agx_stream_queued(stream))
                drop(c);
}

static void on_drained(agx_stream *stream)
{
        connection *c = agx_container_of(stream, connection, stream);

        if (c->ending) {
                if (stream->ended)
                        drop(c);
                return;
        }
        taken(c);
        agx_tunnel_conn_moved(&c->conn, now_of(c->of), c->conn.full);
        agx_deadline_set(&c->deadline, agx_tunnel_conn_deadline(&c->conn));
        pump(c);
}

static void on_place(agx_stream *stream, uv_buf_t *place)
{
        connection *c = agx_container_of(stream, connection, stream);

        *place = uv_buf_init(c->of->place, AGX_TUNNEL_READ);
}

static const agx_stream_ops stream_ops = {
        .data = on_data, .ended = on_ended, .drained = on_drained, .closed = on_closed, .place = on_place};

/* ---- time ---- */

/* While it still takes the reply, however slowly, a client is not timed out. */
static bool makes_progress(connection *c)
{
        size_t queued = agx_stream_queued(&c->stream);
        bool moved = queued && queued != c->last_queued;

        c->last_queued = queued;
        return moved;
}

static void on_deadline(agx_deadline *d)
{
        connection *c = agx_container_of(d, connection, deadline);
        uint64_t now = now_of(c->of);
        int r;

        if (c->ending) {
                if (makes_progress(c))
                        agx_deadline_set(d, now + LINGER_MS);
                else
                        drop(c);
                return;
        }
        if (agx_tunnel_conn_busy(&c->conn) && makes_progress(c)) {
                agx_tunnel_conn_moved(&c->conn, now, c->conn.full);
                agx_deadline_set(d, agx_tunnel_conn_deadline(&c->conn));
                return;
        }
        r = agx_tunnel_conn_tick(&c->conn, now);
        over(c);
        wrote(c, r);
        pump(c);
}

/* ---- the beginning of a connection ---- */

static bool on_incoming(agx_listener *listener)
{
        tunnel *t = agx_container_of(listener, tunnel, listener);
        int fd, on = 1;
        connection *c;

        if (t->n >= AGX_TUNNEL_CONNECTIONS)
                return false;
        c = calloc(1, sizeof(*c));
        if (!c)
                return false;
        if (agx_tunnel_conn_init(&c->conn, t->tunnel, agx_stream_out(&c->stream), now_of(t))) {
                free(c);
                return false;
        }
        c->of = t;
        c->open = 2;
        c->ahead = AGX_BUF_NULL(4 * AGX_TUNNEL_READ);
        agx_exchange_init(&c->exchange);
        agx_stream_init_tcp(&c->stream, &t->server->loop, AGX_EVENT_MAX + 4 * AGX_TUNNEL_CREDIT, &stream_ops);
        agx_deadline_init(&c->deadline, &t->server->loop, on_deadline);
        agx_list_push_back(&t->connections, &c->node);
        t->n++;
        if (uv_accept(&listener->uv.stream, &c->stream.uv.stream) || agx_stream_read(&c->stream)) {
                drop(c);
                return false;
        }
        if (!uv_fileno(&c->stream.uv.handle, &fd))
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        agx_deadline_set(&c->deadline, agx_tunnel_conn_deadline(&c->conn));
        return true;
}

/* ---- tunnels ---- */

static void on_listener_closed(agx_listener *listener)
{
        tunnel *t = agx_container_of(listener, tunnel, listener);

        t->open--;
        tunnel_part_closed(t);
}

static void on_away_closed(agx_deadline *d)
{
        tunnel *t = agx_container_of(d, tunnel, away);

        t->open--;
        tunnel_part_closed(t);
}

static void on_away(agx_deadline *d)
{
        tunnel *t = agx_container_of(d, tunnel, away);

        if (t->tunnel->port)
                t->tunnel->away = 0;
        if (!t->tunnel->port && ++t->tunnel->away > AWAY_TICKS) {
                agx_server_note(t->server, "a tunnel is closed: its host has not come back");
                close_tunnel(t);
                return;
        }
        agx_deadline_set(d, now_of(t) + AGX_TUNNEL_AWAY_MS / AWAY_TICKS);
}

static unsigned port_of(const agx_listener *listener)
{
        struct sockaddr_in address;
        int size = sizeof(address);

        if (uv_tcp_getsockname(&listener->uv.tcp, (struct sockaddr *)&address, &size))
                return 0;
        return ntohs(address.sin_port);
}

static void give_up(tunnel *t, agx_view request_id, const char *why)
{
        agx_tunnel_failed(t->tunnel, request_id, why);
        t->tunnel = NULL;
}

static int open_tunnel(agx_server *s, agx_tunnel *brain, agx_view request_id)
{
        tunnel *t = calloc(1, sizeof(*t));
        int r;

        if (!t) {
                agx_tunnel_failed(brain, request_id, "the runtime is out of memory");
                return 0;
        }
        t->server = s;
        t->tunnel = brain;
        t->open = 2;
        brain->shell = t;
        agx_list_init(&t->connections);
        agx_deadline_init(&t->away, &s->loop, on_away);
        t->listener.closed = on_listener_closed;
        r = agx_listener_open_tcp(&t->listener, &s->loop, "127.0.0.1", 0, on_incoming);
        if (r) { /* the listener closes itself */
                give_up(t, request_id, strerrordesc_np(-r));
                agx_deadline_close(&t->away, on_away_closed);
                return 0;
        }
        agx_deadline_set(&t->away, agx_loop_now(&s->loop) + AGX_TUNNEL_AWAY_MS / AWAY_TICKS);
        return agx_tunnel_opened(brain, request_id, port_of(&t->listener));
}

static void close_tunnel(tunnel *t)
{
        uint64_t now = now_of(t);

        agx_listener_close(&t->listener);
        agx_deadline_close(&t->away, on_away_closed);
        agx_list_foreach_safe(node, &t->connections)
        {
                connection *c = agx_container_of(node, connection, node);

                if (!c->ending && c->exchange.tunnel && !c->exchange.ended)
                        fail(&c->exchange, 502, "the tunnel was closed", now);
                finish(c);
        }
        agx_tunnel_free(t->tunnel);
        t->tunnel = NULL;
}

void agx_tunnel_uv_close_all(agx_server *s)
{
        if (!s->hub.tunnels.all.next)
                return; /* the start failed before there was a hub */
        agx_list_foreach_safe(node, &s->hub.tunnels.all)
        {
                tunnel *t = agx_container_of(node, agx_tunnel, node)->shell;

                agx_list_foreach_safe(one, &t->connections) drop(agx_container_of(one, connection, node));
                close_tunnel(t);
        }
}

/* ---- the host ---- */

static void fail_lost(agx_tunnel *brain, uint64_t now)
{
        agx_exchange *x;

        while ((x = agx_tunnel_next_lost(brain)))
                fail(x, 502, "the host has lost this request", now);
}

int agx_tunnel_uv_event(agx_server *s, agx_hub_port *port, agx_view name, agx_view payload)
{
        uint64_t now = agx_loop_now(&s->loop);
        agx_tunnel_outcome o;
        int r = agx_tunnels_take(&s->hub.tunnels, &port->tunnel, name, payload, &o);

        if (r)
                return r;
        switch (o.todo) {
        case AGX_TUNNEL_TODO_NOTHING:
                break;
        case AGX_TUNNEL_TODO_LISTEN:
                r = open_tunnel(s, o.tunnel, o.request_id);
                break;
        case AGX_TUNNEL_TODO_CLOSE:
                close_tunnel(o.tunnel->shell);
                break;
        case AGX_TUNNEL_TODO_LOST:
                fail_lost(o.tunnel, now);
                break;
        case AGX_TUNNEL_TODO_READ: {
                connection *c = agx_container_of(o.exchange, connection, exchange);

                if (!c->ending)
                        agx_tunnel_conn_moved(&c->conn, now, agx_exchange_full(o.exchange));
                pump(c);
                break;
        }
        case AGX_TUNNEL_TODO_WHOLE:
        case AGX_TUNNEL_TODO_HEAD:
        case AGX_TUNNEL_TODO_BODY:
        case AGX_TUNNEL_TODO_ERROR:
                answer(&o, now);
                break;
        case AGX_TUNNEL_TODO_NOTE:
                break;
        }
        if (o.why && s->odd_told++ < ODD_TOLD)
                agx_server_note(s, "an event of a host was passed over: %s", o.why);
        agx_hub_tunnel_touch(port);
        agx_server_wake(s);
        return r;
}
