/*
 * Connections. Few are kept, the one used last is used first, and the pool grows only as far as calls that wait need
 * it: up to AGX_CLIENT_IDLE_MAX at once, beyond that in steps, since quick calls are served sooner by the connections
 * there are than by new ones.
 *
 * A connection that could not be opened or did not prove itself is a matter of the whole session while there is no
 * other (agx_client's `failures`); one that is lost under a call is a matter of that call (`losses`).
 */
#include "base/err.h"
#include "client/state.h"
#include "proto/proof.h"

#include <stdio.h>

enum { GROW_QUICK = 8 }; /* new connections per step while calls keep finishing */

static agx_client_conn *conn_of(agx_list *node)
{
        return agx_container_of(node, agx_client_conn, link);
}

static agx_client_conn *first_of(const agx_list *list)
{
        agx_list *node = agx_list_first(list);

        return node ? conn_of(node) : NULL;
}

static agx_list *list_of(agx_client *c, conn_state state)
{
        switch (state) {
        case CONN_TO_OPEN:
                return &c->to_open;
        case CONN_OPENING:
        case CONN_PROVING:
        case CONN_ASKING:
                return &c->opening;
        case CONN_CARRIER:
                return &c->carriers;
        case CONN_SPARE:
                return &c->spares;
        case CONN_IDLE:
                return &c->idle;
        case CONN_BUSY:
                return &c->busy;
        case CONN_DRAINING:
                return &c->draining;
        case CONN_LANE:
                return &c->lanes_open;
        case CONN_CLOSING:
                break;
        }
        return &c->closing;
}

/* Those of the link, the carrier and what it carries are not: the pool grows without regard to them. */
static bool is_counted(const agx_client_conn *conn)
{
        return !conn->is_lane && !conn->to_carry && !conn->carrier;
}

/* Where connections in this state are counted, or NULL. */
static size_t *counter_of(agx_client *c, const agx_client_conn *conn, conn_state state)
{
        if (!is_counted(conn))
                return NULL;
        switch (state) {
        case CONN_TO_OPEN:
        case CONN_OPENING:
        case CONN_PROVING:
                return &c->n_opening;
        case CONN_IDLE:
                return &c->n_idle;
        case CONN_DRAINING:
                return &c->n_draining;
        case CONN_BUSY:
        case CONN_ASKING:
        case CONN_CARRIER:
        case CONN_SPARE:
        case CONN_LANE:
        case CONN_CLOSING:
                break;
        }
        return NULL;
}

/* OPENING to PROVING keeps the place and the time: one limit covers both. */
void agx_pool_move(agx_client *c, agx_client_conn *conn, conn_state state, uint64_t now_ms)
{
        size_t *n;

        if (state == CONN_PROVING) {
                conn->state = state;
                return;
        }
        if ((n = counter_of(c, conn, conn->state)))
                --*n;
        if ((n = counter_of(c, conn, state)))
                ++*n;
        agx_list_unlink(&conn->link);
        agx_list_push_back(list_of(c, state), &conn->link);
        conn->state = state;
        conn->since_ms = now_ms;
}

void agx_pool_close(agx_client *c, agx_client_conn *conn)
{
        if (conn->state == CONN_CLOSING)
                return;
        agx_calls_ack_again(c, &conn->acks);
        conn->call = NULL;
        agx_fastlink_withdraw(c, conn);
        agx_fastlink_leave(c, conn);
        conn->http.tail = conn->after = AGX_VIEW_NULL; /* borrowed from a call that may go any moment */
        agx_buf_clear(&conn->http.out);
        agx_buf_clear(&conn->http.body);
        agx_landing_drop(&conn->land);
        agx_list_unlink(&conn->write);
        agx_pool_move(c, conn, CONN_CLOSING, 0);
        conn->sio = NULL;
        if (conn->is_lane)
                c->lanes[conn->lane] = NULL;
        c->n_carriers -= conn->to_carry;
        c->n_conns -= is_counted(conn);
        if (c->carrier == conn)
                c->carrier = NULL;
}

/* ---- failing ---- */

static bool has_proven(const agx_client *c)
{
        return !agx_list_empty(&c->idle) || !agx_list_empty(&c->busy) || !agx_list_empty(&c->draining) ||
               agx_road_is_joined(c) || agx_fastlink_is_up(c);
}

/* A connection did not come about. While others exist or are under way, it is only not one more. */
static void open_failure(agx_client *c, const char *why, uint64_t now_ms)
{
        if (has_proven(c)) {
                c->reopen_ms = now_ms + 1000;
                return;
        }
        if (c->n_opening) {
                c->reopen_ms = now_ms + agx_calls_backoff(c, c->failures + 1); /* the others will tell */
                return;
        }
        ++c->failures;
        if (!c->connected || !c->config.reconnect || (c->config.attempts && c->failures > c->config.attempts)) {
                c->failures = 0;
                agx_calls_fail_waiting(c, why);
        } else {
                c->reopen_ms = now_ms + agx_calls_backoff(c, c->failures);
        }
}

void agx_pool_broken(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms)
{
        agx_client_call *call = conn->call;
        conn_state state = conn->state;
        char text[AGX_CLIENT_WHY_MAX];

        snprintf(text, sizeof(text), "%s", why); /* it may be the link's */
        if (state == CONN_CARRIER)
                agx_fastlink_lost(c, conn, text, now_ms);
        if ((state == CONN_ASKING || (state == CONN_CARRIER && !conn->heard)) &&
            ++c->fast_failures >= AGX_CLIENT_FAST_FAILURES)
                c->fast_absent = true;
        agx_pool_close(c, conn);
        if (conn->is_lane) {
                agx_road_lane_lost(c, conn->lane, text, now_ms);
        } else if (call) {
                call->conn = NULL;
                snprintf(text, sizeof(text), "the connection was lost: %.100s", why);
                agx_calls_lost(c, call, text, now_ms);
        } else if (state == CONN_DRAINING && conn->cancelled) {
                agx_road_cancel(c, conn->drained, conn->generation);
        } else if (state == CONN_TO_OPEN || state == CONN_OPENING || state == CONN_PROVING) {
                open_failure(c, why, now_ms);
        }
}

void agx_pool_no_memory(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        agx_client_call *call = conn->call;

        if (!call) {
                agx_pool_broken(c, conn, "out of memory", now_ms);
                return;
        }
        agx_pool_close(c, conn);
        call->conn = NULL;
        agx_calls_finish(c, call, AGX_CLIENT_NO_MEMORY);
}

/* ---- proving ---- */

static void close_other_instances(agx_client *c)
{
        agx_list_foreach_safe(node, &c->idle) if (conn_of(node)->generation != c->generation)
                agx_pool_close(c, conn_of(node));
}

/* 0: an instance that has not been heard of. */
static uint32_t generation_of(const agx_client *c, uint64_t instance)
{
        for (size_t i = 0; i < AGX_CLIENT_INSTANCES; ++i)
                if (c->instances[i].generation && c->instances[i].name == instance)
                        return c->instances[i].generation;
        return 0;
}

static uint32_t new_generation(agx_client *c, uint64_t instance)
{
        uint32_t generation = ++c->generations;

        c->instances[generation % AGX_CLIENT_INSTANCES].name = instance;
        c->instances[generation % AGX_CLIENT_INSTANCES].generation = generation;
        return generation;
}

/* Notes which server this is. False: one that is known to be over, for its answer was long under way. */
static bool learn(agx_client *c, agx_client_conn *conn, const agx_health *health, uint64_t now_ms)
{
        uint64_t name = agx_siphash(c->secret, health->instance);
        uint32_t known = generation_of(c, name);

        if (!known || known != c->generation) {
                if (known && conn->since_ms < c->learned_ms)
                        return false;
                memcpy(c->instance, health->instance.p, health->instance.n);
                c->instance[health->instance.n] = '\0';
                c->generation = known ? known : new_generation(c, name);
                c->learned_ms = now_ms;
                c->link_absent = false;
                c->link_polling = false;
                c->fast_absent = false;
                c->fast_failures = 0;
                close_other_instances(c);
                agx_fastlink_learned(c);
        }
        conn->generation = c->generation;
        return true;
}

static bool proof_holds(const agx_client *c, const agx_client_conn *conn, const agx_health *health)
{
        agx_view proof = agx_httpconn_field(&conn->http, AGX_VIEW("Agentix-Proof"));

        return proof.p && agx_proof_check(agx_buf_view(&c->token), conn->nonce, health->instance, proof);
}

/* Somebody else answers at this address: what waits must not be sent to it, and asking again makes it no better. */
static void refuse(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        static const char why[] = "the server did not prove that it knows the token; the token was not sent to it";

        agx_pool_close(c, conn);
        if (conn->is_lane)
                agx_road_end(c, now_ms);
        agx_calls_fail_waiting(c, why);
        if (!c->link)
                agx_road_fail(c, why);
}

void agx_pool_proved(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        agx_health health;
        char why[AGX_CLIENT_WHY_MAX];

        if (conn->http.status != 200) {
                snprintf(why, sizeof(why), "GET /health was answered with %u (%s)", conn->http.status,
                         agx_http1_phrase(conn->http.status));
                agx_pool_broken(c, conn, why, now_ms);
                return;
        }
        if (!agx_health_read(agx_buf_view(&conn->http.body), &health)) {
                agx_pool_broken(c, conn, "its answer to GET /health is not an Agentix runtime's", now_ms);
                return;
        }
        if (c->token.len && !c->config.secure && !proof_holds(c, conn, &health)) {
                refuse(c, conn, now_ms);
                return;
        }
        if (!conn->http.reusable) {
                agx_pool_broken(c, conn, "it closes every connection after one answer", now_ms);
                return;
        }
        if (!learn(c, conn, &health, now_ms)) {
                agx_pool_broken(c, conn, "an earlier instance of the server answered", now_ms);
                return;
        }
        if (!conn->is_lane)
                agx_road_learned(c, now_ms);
        c->failures = 0;
        c->reopen_ms = 0;
        c->connected = true;
        agx_side_connected(c, now_ms);
        agx_calls_start_clocks(c, now_ms);
        if (conn->is_lane) {
                agx_road_begin(c, conn, now_ms);
                return;
        }
        c->link_resting = false; /* the server is there again */
        if (conn->to_carry && agx_fastlink_is_offered(conn))
                agx_fastlink_begin(c, conn, now_ms);
        else if (conn->to_carry)
                agx_fastlink_absent(c, conn, now_ms);
        else
                agx_pool_release(c, conn, now_ms);
}

/* ---- using ---- */

bool agx_pool_has_sent(const agx_client_conn *conn)
{
        return conn->carrier ? conn->value.framed : conn->http.written && agx_httpconn_flushed(&conn->http);
}

static bool has_begun(const agx_client_conn *conn)
{
        return conn->carrier ? conn->value.begun : conn->http.written;
}

/* Its reply is not heard out. The first cancel may have come before the call: only what is said from now on surely does not. */
static void drop_draining(agx_client *c, agx_client_conn *conn)
{
        if (conn->cancelled)
                agx_road_cancel(c, conn->drained, conn->generation);
        agx_pool_close(c, conn);
}

static agx_client_conn *first_counted(const agx_list *list)
{
        agx_list *node = list->next;

        while (node != list && !is_counted(conn_of(node)))
                node = node->next;
        return node != list ? conn_of(node) : NULL;
}

void agx_pool_release(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        conn->call = NULL;
        agx_buf_clear(&conn->http.body);
        agx_landing_drop(&conn->land);
        if (conn->carrier)
                agx_fastlink_spare(c, conn, now_ms);
        else if (conn->http.reusable && conn->generation == c->generation) /* nobody sends to an earlier instance */
                agx_pool_move(c, conn, CONN_IDLE, now_ms);
        else
                agx_pool_close(c, conn);
}

void agx_pool_abandon(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        conn->call = NULL;
        if (!has_begun(conn)) {
                agx_list_unlink(&conn->write);
                agx_httpconn_revoke(&conn->http);
                agx_calls_ack_again(c, &conn->acks);
                agx_pool_release(c, conn, now_ms);
        } else if (!agx_pool_has_sent(conn)) {
                agx_pool_close(c, conn); /* half a request runs nothing */
        } else {
                agx_fastlink_withdraw(c, conn);
                agx_httpconn_discard(&conn->http);
                agx_landing_drop(&conn->land);
                agx_pool_move(c, conn, CONN_DRAINING, now_ms);
                if (c->n_draining > AGX_CLIENT_DRAINING_MAX)
                        drop_draining(c, first_counted(&c->draining));
        }
}

static agx_client_conn *take_idle(agx_client *c, uint64_t now_ms)
{
        agx_client_conn *conn;

        if (agx_list_empty(&c->idle))
                return NULL;
        conn = conn_of(c->idle.prev);
        if (now_ms - conn->since_ms < AGX_CLIENT_IDLE_MS)
                return conn;
        while ((conn = first_of(&c->idle))) /* the freshest is stale: all are */
                agx_pool_close(c, conn);
        return NULL;
}

static void sent(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        agx_calls_unlink(c, call);
        call->state = CALL_SENT;
        call->conn = conn;
        conn->call = call;
        conn->drained = call->counter;
        conn->cancelled = false;
        call->told = agx_road_is_joined(c) ? c->link_serial : 0;
        agx_pool_move(c, conn, CONN_BUSY, now_ms);
        if (conn->carrier)
                agx_fastlink_send(c, conn);
        else
                agx_list_push_back(&c->writes, &conn->write);
}

static void unsent(agx_client *c, agx_client_conn *conn, agx_client_call *call, int r)
{
        agx_httpconn_revoke(&conn->http);
        agx_calls_unnumber(c, call);
        if (r < 0)
                agx_calls_finish(c, call, AGX_CLIENT_NO_MEMORY);
        else
                agx_calls_fault(c, call, AGX_FAULT_FRAME_TOO_LARGE, "the call is larger than a message may be", NULL);
}

static void post(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        int r;

        if (call->kind == CALL_HEALTH) {
                r = agx_request_health(c, conn);
        } else {
                agx_calls_number(c, call);
                call->generation = conn->generation;
                r = agx_request_call(c, conn, call);
        }
        if (r)
                unsent(c, conn, call, r);
        else
                sent(c, conn, call, now_ms);
}

/* Gives a waiting call to an idle connection, or ends it. */
static void assign(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        if (call->kind == CALL_CONNECT)
                agx_calls_finish(c, call, AGX_CLIENT_CONNECTED);
        else if (call->kind == CALL_RUN && call->generation && call->generation != conn->generation)
                agx_calls_instance_changed(c, call);
        else
                post(c, conn, call, now_ms);
        if (conn->carrier && !conn->call)
                agx_fastlink_spare(c, conn, now_ms);
}

/* A call for its health asks the server itself. */
static bool goes_fast(const agx_client *c, const agx_client_call *call)
{
        return call->kind != CALL_HEALTH && agx_fastlink_is_open(c);
}

static agx_client_conn *take_free(agx_client *c, const agx_client_call *call, uint64_t now_ms)
{
        if (!goes_fast(c, call))
                return take_idle(c, now_ms);
        if (agx_fastlink_is_up(c) && !c->carrier->n_carried && now_ms - c->carrier->since_ms >= AGX_CLIENT_IDLE_MS)
                agx_pool_close(c, c->carrier);
        return agx_fastlink_is_up(c) ? agx_fastlink_stream(c, now_ms) : NULL;
}

/* ---- growing ---- */

static size_t at_most(size_t a, size_t b)
{
        return a < b ? a : b;
}

/* How many connections to open now. */
static size_t wanted(agx_client *c, uint64_t now_ms)
{
        const agx_client_call *ready = agx_calls_ready(c);
        size_t n = agx_fastlink_is_open(c) ? 1 : c->n_waiting;

        if (!ready || goes_fast(c, ready) || n <= c->n_opening || now_ms < c->reopen_ms ||
            c->n_opening >= AGX_CLIENT_OPENING_MAX)
                return 0;
        n = at_most(n - c->n_opening, AGX_CLIENT_OPENING_MAX - c->n_opening);
        if (c->n_conns < AGX_CLIENT_IDLE_MAX) {
                c->grow_ms = now_ms + AGX_CLIENT_GROW_MS;
                return at_most(n, AGX_CLIENT_IDLE_MAX - c->n_conns);
        }
        if (now_ms < c->grow_ms)
                return 0;
        if (c->n_conns >= AGX_CLIENT_CONNECTIONS_MAX && c->n_draining)
                drop_draining(c, first_counted(&c->draining));
        n = at_most(n, AGX_CLIENT_CONNECTIONS_MAX - c->n_conns);
        n = c->finished ? at_most(n, GROW_QUICK) : n;
        c->finished = 0;
        c->grow_ms = now_ms + AGX_CLIENT_GROW_MS;
        return n;
}

int agx_pool_open(agx_client *c, unsigned lane, uint64_t now_ms)
{
        agx_client_conn *conn = calloc(1, sizeof(*conn));

        if (!conn || agx_httpconn_init(&conn->http)) {
                free(conn);
                return agx_trace(-ENOMEM);
        }
        agx_list_init(&conn->link);
        agx_list_init(&conn->write);
        agx_buf_init(&conn->acks, AGX_CLIENT_ACKS_SENT * sizeof(uint64_t));
        conn->state = CONN_TO_OPEN;
        conn->since_ms = now_ms;
        agx_list_push_back(&c->to_open, &conn->link);
        conn->lane = lane;
        conn->is_lane = lane < AGX_SIOLINK_LANES;
        conn->to_carry = lane == AGX_POOL_CARRIER;
        if (conn->is_lane) {
                c->lanes[lane] = conn;
                return 0;
        }
        if (conn->to_carry) {
                c->carrier = conn;
                ++c->n_carriers;
                return 0;
        }
        ++c->n_opening;
        ++c->n_conns;
        return 0;
}

static void open_carrier(agx_client *c, uint64_t now_ms)
{
        const agx_client_call *ready = agx_calls_ready(c);

        if (!c->carrier && ready && goes_fast(c, ready) && now_ms >= c->reopen_ms &&
            agx_pool_open(c, AGX_POOL_CARRIER, now_ms))
                open_failure(c, "out of memory", now_ms);
}

static void grow(agx_client *c, uint64_t now_ms)
{
        open_carrier(c, now_ms);
        for (size_t n = wanted(c, now_ms); n; --n) {
                if (agx_pool_open(c, AGX_SIOLINK_LANES, now_ms)) {
                        open_failure(c, "out of memory", now_ms);
                        return;
                }
        }
}

void agx_pool_pump(agx_client *c, uint64_t now_ms)
{
        agx_client_call *call;
        agx_client_conn *conn;

        agx_calls_try(c, now_ms);
        while ((call = agx_calls_ready(c)) && (conn = take_free(c, call, now_ms)))
                assign(c, conn, call, now_ms);
        while (c->n_idle > AGX_CLIENT_IDLE_MAX)
                agx_pool_close(c, first_of(&c->idle));
        grow(c, now_ms);
        agx_road_pump(c, now_ms);
}

/* ---- time ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
        return a < b ? a : b;
}

static uint64_t open_limit(const agx_client *c)
{
        return earlier(c->config.timeout_ms, AGX_CLIENT_OPEN_MS);
}

/* When the oldest connection of a list has been there for `limit`. */
static uint64_t due(const agx_list *list, uint64_t limit)
{
        const agx_client_conn *conn = first_of(list);

        return conn ? conn->since_ms + limit : UINT64_MAX;
}

static uint64_t growth_due(const agx_client *c)
{
        const agx_client_call *ready = agx_calls_ready(c);

        if (ready && goes_fast(c, ready))
                return c->carrier ? UINT64_MAX : c->reopen_ms;
        if (!ready || c->n_opening >= AGX_CLIENT_OPENING_MAX || c->n_waiting <= c->n_opening)
                return UINT64_MAX;
        if (c->n_conns >= AGX_CLIENT_CONNECTIONS_MAX && !c->n_draining)
                return UINT64_MAX;
        return c->reopen_ms > c->grow_ms ? c->reopen_ms : c->grow_ms;
}

uint64_t agx_pool_timer(const agx_client *c)
{
        uint64_t when = due(&c->opening, open_limit(c));

        when = earlier(when, due(&c->busy, c->config.timeout_ms));
        when = earlier(when, due(&c->draining, c->config.timeout_ms));
        when = earlier(when, due(&c->idle, AGX_CLIENT_IDLE_MS));
        if (agx_fastlink_is_up(c) && !c->carrier->n_carried)
                when = earlier(when, c->carrier->since_ms + AGX_CLIENT_IDLE_MS);
        return earlier(when, growth_due(c));
}

void agx_pool_tick(agx_client *c, uint64_t now_ms)
{
        agx_client_conn *conn;

        while ((conn = first_of(&c->opening)) && conn->since_ms + open_limit(c) <= now_ms) {
                c->fast_absent = c->fast_absent || conn->state == CONN_ASKING; /* something swallows it */
                agx_pool_broken(c, conn, "no answer in time", now_ms);
        }
        while ((conn = first_of(&c->busy)) && conn->since_ms + c->config.timeout_ms <= now_ms)
                agx_pool_broken(c, conn->carrier ? conn->carrier : conn, "no answer in time", now_ms);
        while ((conn = first_of(&c->draining)) && conn->since_ms + c->config.timeout_ms <= now_ms) {
                if (conn->carrier)
                        agx_pool_broken(c, conn->carrier, "no answer in time", now_ms);
                else
                        drop_draining(c, conn);
        }
        conn = agx_fastlink_is_up(c) ? c->carrier : NULL;
        if (conn && !conn->n_carried && conn->since_ms + AGX_CLIENT_IDLE_MS <= now_ms)
                agx_pool_close(c, conn);
        while ((conn = first_of(&c->idle)) && conn->since_ms + AGX_CLIENT_IDLE_MS <= now_ms)
                agx_pool_close(c, conn);
}
