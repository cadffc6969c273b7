/*
 * Tunnels, from both sides. By the first byte: any bytes as what a client sends on one connection, whole and in pieces, which
 * the tunnel answers alike and passes on alike; or any events of a host, among exchanges that are under way, each as a byte
 * for its name, one for its length and its payload.
 */
#include "server/tunnel_conn.h"

#include <stdlib.h>

enum { OUT_MAX = 1 << 24, EXCHANGES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

/* ---- a client ---- */

typedef struct life {
        agx_tunnel tunnel;
        agx_tunnel_conn conn;
        agx_buf out, body, asked;
        bool streamed, closed;
} life;

static void begin(life *l, bool streamed)
{
        *l = (life){.streamed = streamed};
        l->out = l->body = l->asked = l->tunnel.paths = AGX_BUF_NULL(OUT_MAX);
        l->tunnel.window_ms = 1000;
        need(!agx_buf_append(&l->tunnel.paths, "/m\0/", 5));
        need(!agx_tunnel_conn_init(&l->conn, &l->tunnel, &l->out, 0));
}

static void end(life *l)
{
        agx_tunnel_conn_deinit(&l->conn);
        agx_buf_deinit(&l->out);
        agx_buf_deinit(&l->body);
        agx_buf_deinit(&l->asked);
        agx_buf_deinit(&l->tunnel.paths);
}

static void answer(life *l)
{
        agx_tunnel_reply reply = {.status = 200, .media_type = AGX_VIEW("a/b"), .body = agx_buf_view(&l->body)};

        need(!agx_buf_append_view(&l->asked, reply.body));
        need(!agx_buf_append_view(&l->asked, AGX_VIEW("\n")));
        need(!agx_tunnel_conn_reply(&l->conn, 0, &reply, !l->streamed));
        if (l->streamed) {
                need(!agx_tunnel_conn_piece(&l->conn, 0, reply.body, false));
                need(!agx_tunnel_conn_piece(&l->conn, 0, AGX_VIEW(""), true));
        }
        agx_buf_clear(&l->body);
}

static void feed(life *l, agx_view in)
{
        agx_tunnel_conn_event e = {.kind = AGX_TUNNEL_CONN_ASK};

        while (!l->closed && e.kind != AGX_TUNNEL_CONN_MORE) {
                need(!agx_tunnel_conn_next(&l->conn, 0, &in, &e));
                need(e.kind != AGX_TUNNEL_CONN_WAIT);
                l->closed = e.kind == AGX_TUNNEL_CONN_CLOSE;
                if (e.kind == AGX_TUNNEL_CONN_ASK) {
                        need(e.path.n > 0 && e.body.n <= AGX_TUNNEL_CHUNK);
                        need(!agx_buf_append_view(&l->asked, e.query));
                }
                if (e.kind == AGX_TUNNEL_CONN_ASK || e.kind == AGX_TUNNEL_CONN_BODY) {
                        need(!agx_buf_append_view(&l->body, e.body));
                        if (e.last)
                                answer(l);
                }
        }
}

static void client(const uint8_t *data, size_t size)
{
        size_t step = data[0] / 4 + 1u;
        life whole, pieces;

        begin(&whole, data[0] & 2);
        begin(&pieces, data[0] & 2);
        feed(&whole, agx_view_of(data + 1, size - 1));
        for (size_t at = 1; at < size; at += step)
                feed(&pieces, agx_view_of(data + at, at + step < size ? step : size - at));
        need(whole.closed == pieces.closed);
        need(agx_view_eq(agx_buf_view(&whole.asked), agx_buf_view(&pieces.asked)));
        end(&whole);
        end(&pieces);
}

/* ---- a host ---- */

typedef struct host {
        agx_tunnels all;
        agx_tunnel_port port;
        agx_exchange exchanges[EXCHANGES];
        agx_http1_head head;
} host;

static void ask(host *h, agx_tunnel *t)
{
        agx_view path = agx_tunnel_path(t, AGX_VIEW("/m"));

        for (size_t i = 0; i < EXCHANGES && path.p; ++i)
                if (!h->exchanges[i].tunnel) {
                        need(!agx_exchange_begin(&h->exchanges[i], t, path, &h->head, AGX_VIEW(""), AGX_VIEW("b"),
                                                 false));
                        need(!agx_exchange_more(&h->exchanges[i], AGX_VIEW("c"), i % 2));
                }
}

static void close_lost(agx_tunnel *t)
{
        agx_exchange *x;

        while ((x = agx_tunnel_next_lost(t)))
                agx_exchange_over(x);
}

static void react(host *h, const agx_tunnel_outcome *o)
{
        agx_view headers = o->reply.headers, name, value;

        switch (o->todo) {
        case AGX_TUNNEL_TODO_LISTEN:
                need(!agx_tunnel_opened(o->tunnel, o->request_id, 80));
                ask(h, o->tunnel);
                break;
        case AGX_TUNNEL_TODO_CLOSE:
                agx_tunnel_free(o->tunnel);
                break;
        case AGX_TUNNEL_TODO_LOST:
                close_lost(o->tunnel);
                ask(h, o->tunnel);
                break;
        case AGX_TUNNEL_TODO_WHOLE:
        case AGX_TUNNEL_TODO_HEAD:
        case AGX_TUNNEL_TODO_BODY:
        case AGX_TUNNEL_TODO_ERROR:
                while (agx_tunnel_next_header(&headers, &name, &value))
                        need(name.p && value.p);
                agx_exchange_taken(o->exchange);
                if (o->last)
                        agx_exchange_over(o->exchange);
                break;
        default:
                break;
        }
}

static void hear(host *h, uint8_t how)
{
        agx_tunnel_saying said;

        for (unsigned n = how >> 4; n; --n)
                if (agx_tunnels_say(&h->all, &h->port, &said))
                        break;
        if ((how & 15) == 15) {
                agx_tunnel_port_detach(&h->port);
                need(!agx_tunnel_port_pending(&h->port));
        }
}

static void of_host(const uint8_t *data, size_t size)
{
        static const char *const names[] = {"open", "attach",    "close",    "ack", "chunk",
                                            "head", "/m:result", "/m:error", "x"};
        static const uint8_t seed[16] = {1};
        agx_view in = agx_view_of(data + 1, size - 1);
        host h = {.head = {.method = AGX_VIEW("GET")}};

        agx_tunnels_init(&h.all, seed);
        agx_tunnel_port_init(&h.port);
        for (size_t i = 0; i < EXCHANGES; ++i)
                agx_exchange_init(&h.exchanges[i]);
        while (in.n >= 2) {
                uint8_t name = (uint8_t)in.p[0];
                size_t n = (uint8_t)in.p[1];
                agx_tunnel_outcome o;
                agx_view payload;

                in = agx_view_from(in, 2);
                payload = agx_view_first(in, n);
                in = agx_view_from(in, payload.n);
                need(!agx_tunnels_take(&h.all, &h.port, agx_view_str(names[(name & 15) % 9]), payload, &o));
                react(&h, &o);
                hear(&h, name);
        }
        agx_tunnel_port_detach(&h.port);
        agx_list_foreach_safe(node, &h.all.all) agx_tunnel_free(agx_container_of(node, agx_tunnel, node));
        for (size_t i = 0; i < EXCHANGES; ++i)
                need(!h.exchanges[i].tunnel && agx_list_empty(&h.exchanges[i].up));
        agx_tunnels_deinit(&h.all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size < 2)
                return 0;
        if (data[0] & 1)
                client(data, size);
        else
                of_host(data, size);
        return 0;
}
