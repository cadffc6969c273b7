/*
 * One connection carries all POSTs, each on a stream. To the rest of the room a stream is a connection that is always there:
 * its request lies in `http.out` and `http.tail` and goes out as a value, its reply is gathered in `http.body`, and then
 * reply.c reads it as it reads any. So losses, deadlines and cancels need not know of it.
 *
 * A stream's number is free again once its reply has come or it was reset; the server sees that in the same order.
 *
 * Only a server that offers it with its health is asked. If it does not switch all the same, because something stands before it,
 * it is not asked again as long as the instance is the same, and the connection it refused on serves for POSTs. A
 * carrier that ends before any reply came counts as refused when it happens time and again.
 */
#include "base/err.h"
#include "client/state.h"
#include "wire/ws.h"

enum { SPARES_MAX = 64, PLACE_MIN = 16 * 1024 };

bool agx_fastlink_is_open(const agx_client *c)
{
        return c->config.fast && !c->fast_absent;
}

bool agx_fastlink_is_up(const agx_client *c)
{
        return c->carrier && c->carrier->state == CONN_CARRIER;
}

/* ---- beginning ---- */

void agx_fastlink_begin(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        uint8_t nonce[AGX_WS_NONCE_BYTES];

        agx_siphash_draw(c->secret, &c->drawn, nonce, sizeof(nonce));
        conn->opening = agx_ws_opening_on(nonce);
        agx_pool_move(c, conn, CONN_ASKING, now_ms);
        if (agx_request_fast(c, conn))
                agx_pool_no_memory(c, conn, now_ms);
        else
                agx_list_push_back(&c->writes, &conn->write);
}

bool agx_fastlink_is_offered(const agx_client_conn *conn)
{
        agx_view wires = agx_httpconn_field(&conn->http, AGX_VIEW("Agentix-Wires")), one;

        while (wires.p && agx_view_split(&wires, ',', &one))
                if (agx_view_eq(agx_view_trim(one), AGX_VIEW(AGX_FAST_PROTOCOL)))
                        return true;
        return false;
}

/* It is a connection for POSTs, like any, if it is still good for that. */
void agx_fastlink_absent(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        c->fast_absent = true;
        c->carrier = NULL;
        agx_pool_move(c, conn, CONN_ASKING, now_ms); /* a state in which nothing is counted, of any connection */
        conn->to_carry = false;
        --c->n_carriers;
        ++c->n_conns;
        agx_pool_release(c, conn, now_ms);
}

static void switched(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        static const agx_view ours[] = {{AGX_FAST_PROTOCOL, sizeof(AGX_FAST_PROTOCOL) - 1}};
        uint8_t seed[16];
        const char *reason;
        agx_view protocol;

        if (agx_ws_check_reply(conn->http.head, &conn->opening, ours, 1, &protocol, &reason) || !protocol.p) {
                agx_pool_broken(c, conn, "it switched to another protocol", now_ms);
                return;
        }
        agx_siphash_draw(c->secret, &c->drawn, seed, sizeof(seed));
        if (agx_fast_new(&conn->fast, true, c->config.masked, seed)) {
                agx_pool_no_memory(c, conn, now_ms);
                return;
        }
        conn->client = c;
        agx_pool_move(c, conn, CONN_CARRIER, now_ms);
}

static void read_answer(agx_client *c, agx_client_conn *conn, agx_view *in, uint64_t now_ms)
{
        int r = agx_httpconn_input(&conn->http, *in);

        *in = AGX_VIEW_NULL;
        if (r < 0) {
                agx_pool_no_memory(c, conn, now_ms);
        } else if (r == AGX_HTTPCONN_E_BROKEN) {
                agx_pool_broken(c, conn, conn->http.why, now_ms);
        } else if (r == AGX_HTTPCONN_E_REPLY) {
                agx_fastlink_absent(c, conn, now_ms);
        } else if (r == AGX_HTTPCONN_E_SWITCHED) {
                *in = conn->http.rest;
                switched(c, conn, now_ms);
        }
}

/* ---- streams ---- */

static agx_client_conn **place_of(agx_client *c, uint32_t stream)
{
        return &c->fast_streams[stream % AGX_FAST_STREAMS_MAX];
}

static agx_client_conn *stream_new(void)
{
        agx_client_conn *conn = calloc(1, sizeof(*conn));

        if (!conn)
                return NULL;
        conn->http.out = AGX_BUF_NULL(AGX_CLIENT_OUT_MAX);
        agx_list_init(&conn->link);
        agx_list_init(&conn->write);
        conn->acks = AGX_BUF_NULL(AGX_CLIENT_ACKS_SENT * sizeof(uint64_t));
        return conn;
}

static agx_client_conn *take_spare(agx_client *c)
{
        agx_list *node = agx_list_first(&c->spares);

        if (!node)
                return stream_new();
        --c->n_spares;
        agx_list_unlink(node);
        return agx_container_of(node, agx_client_conn, link);
}

agx_client_conn *agx_fastlink_stream(agx_client *c, uint64_t now_ms)
{
        agx_client_conn *carrier = c->carrier, *conn;

        if (c->n_streams >= AGX_FAST_STREAMS_MAX || !(conn = take_spare(c)))
                return NULL;
        do
                ++c->fast_stream;
        while (!c->fast_stream || *place_of(c, c->fast_stream));
        conn->stream = c->fast_stream;
        *place_of(c, conn->stream) = conn;
        conn->carrier = carrier;
        conn->generation = carrier->generation;
        conn->state = CONN_SPARE;
        conn->since_ms = now_ms;
        ++carrier->n_carried;
        ++c->n_streams;
        return conn;
}

static void wish_write(agx_client *c, agx_client_conn *carrier)
{
        if (agx_list_empty(&carrier->write))
                agx_list_push_back(&c->writes, &carrier->write);
}

void agx_fastlink_send(agx_client *c, agx_client_conn *conn)
{
        uint64_t wait = agx_road_is_open(c) ? c->call_wait_ms : c->long_wait_ms;

        conn->value = (agx_fast_value){.kind = AGX_FAST_CALL,
                                       .stream = conn->stream,
                                       .word = (uint32_t)wait,
                                       .parts = {agx_buf_view(&conn->http.out), conn->http.tail, conn->after}};
        agx_fast_send(conn->carrier->fast, &conn->value);
        wish_write(c, conn->carrier);
}

void agx_fastlink_withdraw(agx_client *c, agx_client_conn *conn)
{
        if (!conn->carrier || !conn->carrier->fast)
                return;
        agx_fast_withdraw(conn->carrier->fast, &conn->value);
        wish_write(c, conn->carrier); /* it may have to be said */
}

void agx_fastlink_leave(agx_client *c, agx_client_conn *conn)
{
        if (!conn->stream)
                return;
        if (*place_of(c, conn->stream) == conn)
                *place_of(c, conn->stream) = NULL;
        conn->stream = 0;
        --conn->carrier->n_carried;
        --c->n_streams;
}

void agx_fastlink_spare(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        agx_fastlink_withdraw(c, conn);
        agx_fastlink_leave(c, conn);
        conn->carrier->since_ms = now_ms;
        agx_list_unlink(&conn->link);
        agx_buf_clear(&conn->http.out);
        agx_buf_deinit(&conn->http.body);
        agx_landing_drop(&conn->land);
        conn->state = CONN_SPARE;
        agx_list_push_back(c->n_spares < SPARES_MAX ? &c->spares : &c->closing, &conn->link);
        c->n_spares += c->n_spares < SPARES_MAX;
        if (conn->carrier != c->carrier && !conn->carrier->n_carried)
                agx_pool_close(c, conn->carrier);
}

/* A carrier to an earlier instance carries what it has to its end, and nothing new. */
void agx_fastlink_learned(agx_client *c)
{
        agx_client_conn *carrier = c->carrier;

        if (!carrier || carrier->state != CONN_CARRIER || carrier->generation == c->generation)
                return;
        c->carrier = NULL;
        if (!carrier->n_carried)
                agx_pool_close(c, carrier);
}

/* ---- hearing ---- */

/* Who says this has read the call. Others may be said of one that is still on its way, as 413 is. */
static bool is_of_whole_call(unsigned status)
{
        return status == 200 || status == 202 || status == 400;
}

static int gather(agx_client *c, agx_client_conn *conn, const agx_fast_piece *piece)
{
        agx_buf *body = &conn->http.body;
        agx_view data = piece->data;
        int r = agx_landing_take(&conn->land, &data);

        if (!r && agx_buf_ends_at(body, data))
                agx_buf_commit(body, data.n);
        else if (!r)
                r = agx_buf_append_view(body, data);
        if (!r && !piece->last && conn->call && conn->http.status == 200)
                r = agx_landing_look(&conn->land, c->config.land, body);
        return r;
}

static void on_reply(agx_client *c, agx_client_conn *conn, const agx_fast_piece *piece, uint64_t now_ms)
{
        int r = 0;

        if (piece->first)
                conn->http.status = piece->word;
        if (!conn->http.status) {
                agx_pool_broken(c, conn->carrier, "a reply without its beginning", now_ms);
                return;
        }
        if (piece->first && is_of_whole_call(piece->word) && !agx_fast_is_written(conn->carrier->fast, &conn->value)) {
                agx_pool_broken(c, conn->carrier, "a reply to a call that it does not have yet", now_ms);
                return;
        }
        conn->http.touched = true;
        if (!conn->http.discard)
                r = gather(c, conn, piece);
        if (r > 0) {
                agx_pool_broken(c, conn->carrier, "its reply is too large", now_ms);
        } else if (r) {
                agx_pool_no_memory(c, conn, now_ms);
        } else if (piece->last) {
                conn->http.awaiting = false;
                conn->http.reusable = true;
                conn->carrier->heard = true;
                c->fast_failures = 0;
                agx_reply_read(c, conn, now_ms);
        } else if (conn->call && !agx_reply_fits(c, piece->data.n)) {
                agx_reply_drop(c, conn, now_ms);
        }
}

static void on_piece(agx_client *c, const agx_fast_piece *piece, uint64_t now_ms)
{
        agx_client_conn *conn = *place_of(c, piece->stream);

        if (!conn || conn->stream != piece->stream)
                return; /* it was reset meanwhile */
        if (piece->kind == AGX_FAST_REPLY)
                on_reply(c, conn, piece, now_ms);
        else if (piece->kind == AGX_FAST_RESET)
                agx_pool_broken(c, conn, "the server took its reply back", now_ms);
        else
                agx_pool_broken(c, conn->carrier, "it called us", now_ms);
}

static void read_pieces(agx_client *c, agx_client_conn *conn, agx_view in, uint64_t now_ms)
{
        agx_fast_piece piece;
        int r = 0;

        while (!r && conn->state == CONN_CARRIER) {
                r = agx_fast_next(conn->fast, &in, &piece);
                if (!r)
                        on_piece(c, &piece, now_ms);
        }
        if (conn->state != CONN_CARRIER)
                return;
        if (r < 0)
                agx_pool_no_memory(c, conn, now_ms);
        else if (r == AGX_FAST_E_BROKEN)
                agx_pool_broken(c, conn, agx_fast_reason(conn->fast), now_ms);
        else if (r == AGX_FAST_E_CLOSED)
                agx_pool_broken(c, conn, "it closed the connection", now_ms);
        else
                wish_write(c, conn); /* a pong, maybe */
}

void agx_fastlink_input(agx_client *c, agx_client_conn *conn, agx_view in, uint64_t now_ms)
{
        if (conn->state == CONN_ASKING)
                read_answer(c, conn, &in, now_ms);
        if (conn->state == CONN_CARRIER && in.n)
                read_pieces(c, conn, in, now_ms);
}

agx_view agx_fastlink_place(agx_client_conn *carrier)
{
        size_t n;
        uint32_t stream = agx_fast_goes_on(carrier->fast, &n);
        agx_client_conn *conn = stream ? *place_of(carrier->client, stream) : NULL;
        uint8_t *at;

        if (!stream)
                return agx_fast_between(carrier->fast);
        if (!conn || conn->stream != stream || conn->http.discard || n < PLACE_MIN)
                return AGX_VIEW_NULL;
        if (agx_landing_is_open(&conn->land))
                return agx_landing_place(&conn->land, n);
        return agx_buf_reserve(&conn->http.body, n, &at) ? AGX_VIEW_NULL : agx_view_of(at, n);
}

/* ---- the end ---- */

static void break_streams(agx_client *c, agx_list *list, agx_client_conn *carrier, const char *why, uint64_t now_ms)
{
        agx_list_foreach_safe(node, list)
        {
                agx_client_conn *conn = agx_container_of(node, agx_client_conn, link);

                if (conn->carrier == carrier)
                        agx_pool_broken(c, conn, why, now_ms);
        }
}

/* Its streams are closed by now, or about to be: none of them is sent on. */
void agx_fastlink_lost(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms)
{
        break_streams(c, &c->busy, conn, why, now_ms);
        break_streams(c, &c->draining, conn, why, now_ms);
}
