/*
 * The session's face: what the shell calls. Each verb that reports something ends with agx_pool_pump(), so that what
 * became possible is wished for before the shell looks.
 */
#include "client/session.h"
#include "base/err.h"
#include "client/state.h"

#include <stdio.h>

enum { SPARE_CALLS_MAX = 64 };

/* ---- lifecycle ---- */

static void init_lists(agx_client *c)
{
        agx_list *const lists[] = {&c->resend,      &c->queue,      &c->paused,  &c->unanswered, &c->settled,
                                   &c->deadlines,   &c->done,       &c->to_open, &c->opening,    &c->idle,
                                   &c->busy,        &c->draining,   &c->closing, &c->writes,     &c->lanes_open,
                                   &c->link_resend, &c->link_queue, &c->unasked, &c->asked,      &c->streaming,
                                   &c->credits,     &c->spaces,     &c->events,  &c->carriers,   &c->spares,
                                   &c->refused,     &c->spare_calls};

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
                agx_list_init(lists[i]);
}

static void init_scalars(agx_client *c, const agx_client_config *config)
{
        c->config = *config;
        c->config.host = c->config.prefix = c->config.headers = c->config.token = AGX_VIEW_NULL;
        for (size_t i = 0; i < AGX_CLIENT_SESSION_BYTES; ++i)
                snprintf(c->name + 2 * i, 3, "%02x", config->session[i]);
        memcpy(c->secret, config->seed, sizeof(c->secret));
        c->random = agx_siphash(c->secret, AGX_VIEW("jitter"));
        c->random |= 1; /* xorshift stays at zero */
        c->side_ms = UINT64_MAX;
        agx_buf_init(&c->call_head, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->long_head, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->fast_head, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->link_path, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->link_fields, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->cancels, AGX_CLIENT_CANCELS_KEPT * sizeof(agx_client_cancel));
        agx_buf_init(&c->unconfirmed, AGX_CLIENT_CANCELS_KEPT * sizeof(agx_client_cancel));
        agx_buf_init(&c->said, AGX_CLIENT_ACKS_SAID * sizeof(uint64_t));
        agx_buf_init(&c->health_head, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->token, AGX_HTTP_HEAD_MAX);
        agx_buf_init(&c->scratch, AGX_CLIENT_OUT_MAX);
}

int agx_client_new(agx_client **clientp, const agx_client_config *config)
{
        _cleanup_(agx_client_freep) agx_client *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return agx_trace(-ENOMEM);
        init_lists(c);
        init_scalars(c, config);
        r = config->token.p ? agx_buf_append_view(&c->token, config->token) : 0;
        if (!r)
                r = agx_request_heads(c, config);
        if (r)
                return r > 0 ? -EINVAL : r;
        *clientp = c;
        c = NULL;
        return 0;
}

static void empty_call(agx_client_call *call)
{
        agx_flow_deinit(call);
        agx_buf_deinit(&call->body);
        agx_landing_drop(&call->land);
        agx_buf_deinit(&call->whole);
}

static void free_call(agx_client_call *call)
{
        empty_call(call);
        free(call);
}

/* Many calls at once come and go by the dozen, which is more than a C library keeps at hand. */
static void free_call_later(agx_client *c, agx_client_call *call)
{
        if (c->n_spare_calls >= SPARE_CALLS_MAX) {
                free_call(call);
                return;
        }
        empty_call(call);
        ++c->n_spare_calls;
        agx_list_push_back(&c->spare_calls, &call->link);
}

static void free_conn(agx_client_conn *conn)
{
        agx_list_unlink(&conn->link);
        agx_list_unlink(&conn->write);
        agx_fast_free(conn->fast);
        if (conn->call)
                free_call(conn->call);
        agx_httpconn_deinit(&conn->http);
        agx_landing_drop(&conn->land);
        agx_buf_deinit(&conn->acks);
        free(conn);
}

static void wipe(agx_buf *b)
{
        if (b->data)
                explicit_bzero(b->data, b->cap);
        agx_buf_deinit(b);
}

void agx_client_free(agx_client *c)
{
        agx_list *const calls[] = {&c->resend,      &c->queue,      &c->paused,  &c->refused, &c->done,
                                   &c->link_resend, &c->link_queue, &c->unasked, &c->asked};
        agx_list *const conns[] = {&c->carriers, &c->to_open,    &c->opening, &c->idle,   &c->busy,
                                   &c->draining, &c->lanes_open, &c->spares,  &c->closing};

        if (c->link)
                agx_siolink_free(c->link);
        for (size_t i = 0; i < sizeof(conns) / sizeof(conns[0]); ++i)
                agx_list_foreach_safe(node, conns[i]) free_conn(agx_container_of(node, agx_client_conn, link));
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); ++i)
                agx_list_foreach_safe(node, calls[i]) free_call(agx_container_of(node, agx_client_call, link));
        agx_list_foreach_safe(node, &c->spare_calls) free(agx_container_of(node, agx_client_call, link));
        agx_side_free(c);
        wipe(&c->token);
        wipe(&c->call_head);
        wipe(&c->long_head);
        wipe(&c->link_fields);
        wipe(&c->fast_head);
        agx_buf_deinit(&c->link_path);
        agx_buf_deinit(&c->cancels);
        agx_buf_deinit(&c->unconfirmed);
        agx_buf_deinit(&c->said);
        agx_buf_deinit(&c->health_head);
        agx_buf_deinit(&c->scratch);
        free(c);
}

/* ---- calls ---- */

int agx_client_start(agx_client *c, agx_view callable, agx_view arguments, agx_view context, uint64_t deadline_ms,
                     void *user, uint64_t now_ms, agx_client_call **callp)
{
        return agx_client_start_stream(c, callable, arguments, context, 0, deadline_ms, user, now_ms, callp);
}

/* NOLINTNEXTLINE(readability-function-size): what a call is made of, handed on by name */
int agx_client_start_stream(agx_client *c, agx_view callable, agx_view arguments, agx_view context, uint64_t window,
                            uint64_t deadline_ms, void *user, uint64_t now_ms, agx_client_call **callp)
{
        const agx_view parts[3] = {AGX_VIEW_NULL, arguments, AGX_VIEW_NULL};

        return agx_client_start_parts(c, callable, parts, context, window, deadline_ms, user, now_ms, callp);
}

/* NOLINTNEXTLINE(readability-function-size): what a call is made of, handed on by name */
int agx_client_start_parts(agx_client *c, agx_view callable, const agx_view arguments[3], agx_view context,
                           uint64_t window, uint64_t deadline_ms, void *user, uint64_t now_ms, agx_client_call **callp)
{
        agx_client_call *call;
        int r;

        r = agx_calls_new(c, CALL_RUN, c->config.http_sync_ms == UINT64_MAX && agx_road_is_open(c), user, &call);
        if (r)
                return r;
        call->callable = callable;
        call->before = arguments[0];
        call->arguments = arguments[1];
        call->after = arguments[2];
        call->context = context;
        call->window = window;
        call->allowed_ms = deadline_ms;
        if (c->connected)
                agx_calls_start_clock(c, call, now_ms);
        c->side_tired = false;
        agx_pool_pump(c, now_ms);
        *callp = call;
        return 0;
}

static int ask(agx_client *c, call_kind kind, void *user, uint64_t now_ms, agx_client_call **callp)
{
        int r;

        r = agx_calls_new(c, kind, false, user, callp);
        if (!r)
                agx_pool_pump(c, now_ms);
        return r;
}

int agx_client_ask_health(agx_client *c, void *user, uint64_t now_ms, agx_client_call **call)
{
        return ask(c, CALL_HEALTH, user, now_ms, call);
}

int agx_client_connect(agx_client *c, void *user, uint64_t now_ms, agx_client_call **call)
{
        return ask(c, CALL_CONNECT, user, now_ms, call);
}

agx_client_call *agx_client_next_done(agx_client *c)
{
        agx_list *node = agx_list_first(&c->done);
        agx_client_call *call;

        if (!node)
                return NULL;
        call = agx_container_of(node, agx_client_call, link);
        agx_list_unlink(node);
        call->state = CALL_TAKEN;
        return call;
}

void agx_client_call_set_user(agx_client_call *call, void *user)
{
        call->user = user;
}

void *agx_client_call_user(const agx_client_call *call)
{
        return call->user;
}

agx_client_conn *agx_client_call_conn(const agx_client_call *call)
{
        return call->conn && call->conn->carrier ? call->conn->carrier : call->conn;
}

const agx_client_result *agx_client_call_result(const agx_client_call *call)
{
        return &call->result;
}

void agx_client_call_take_body(agx_client_call *call, agx_buf *body)
{
        agx_buf_deinit(body);
        *body = call->body;
        agx_buf_init(&call->body, 0);
}

/* The body is still there: it is taken after this. */
agx_client_landed agx_client_call_take_landed(agx_client_call *call)
{
        agx_landing *l = &call->land;
        size_t value = (size_t)(call->result.value.p - agx_buf_view(&call->body).p);
        agx_client_landed landed = {.object = NULL};

        if (!l->object)
                return landed;
        landed = (agx_client_landed){.object = l->object, .size = l->size, .at = l->at - value, .n_head = l->n_head};
        memcpy(landed.head, l->head, sizeof(landed.head));
        *l = (agx_landing){.memory = NULL};
        return landed;
}

void agx_client_call_free(agx_client *c, agx_client_call *call, uint64_t now_ms)
{
        agx_client_conn *conn = call->conn;
        bool taken = call->state == CALL_TAKEN, drop = agx_road_abandon(c, call);

        agx_calls_unlink(c, call);
        agx_calls_forget(c, call);
        agx_flow_drop(c, call);
        free_call_later(c, call);
        if (conn)
                agx_pool_abandon(c, conn, now_ms);
        if (drop)
                agx_road_drop(c, now_ms);
        if (!taken) /* else all that its end made possible was wished for when it ended */
                agx_pool_pump(c, now_ms);
}

/* ---- wishes ---- */

/* The shell knows nothing of streams. */
static agx_list *first_to_close(agx_client *c)
{
        agx_list *node;

        while ((node = agx_list_first(&c->closing)) && agx_container_of(node, agx_client_conn, link)->carrier)
                free_conn(agx_container_of(node, agx_client_conn, link));
        return node;
}

agx_client_wish agx_client_next_wish(agx_client *c)
{
        agx_client_wish wish = {AGX_CLIENT_WISH_NONE, NULL};
        agx_list *node;

        if ((node = agx_list_first(&c->writes))) {
                wish = (agx_client_wish){AGX_CLIENT_WISH_WRITE, agx_container_of(node, agx_client_conn, write)};
                agx_list_unlink(node);
        } else if ((node = agx_list_first(&c->to_open))) {
                wish = (agx_client_wish){AGX_CLIENT_WISH_OPEN, agx_container_of(node, agx_client_conn, link)};
                agx_pool_move(c, wish.conn, CONN_OPENING, wish.conn->since_ms);
        } else if ((node = first_to_close(c))) {
                wish = (agx_client_wish){AGX_CLIENT_WISH_CLOSE, agx_container_of(node, agx_client_conn, link)};
                agx_list_unlink(node);
        }
        return wish;
}

uint64_t agx_client_timer(const agx_client *c)
{
        agx_list *paused = agx_list_first(&c->paused), *deadline = agx_list_first(&c->deadlines);
        uint64_t when = agx_pool_timer(c), t = agx_road_timer(c);

        if (t < when)
                when = t;
        if ((t = agx_calls_try_timer(c)) < when)
                when = t;
        if (paused && (t = agx_container_of(paused, agx_client_call, link)->pause_ms) < when)
                when = t;
        if (deadline && (t = agx_container_of(deadline, agx_client_call, deadline)->deadline_ms) < when)
                when = t;
        return when;
}

/* ---- what happened ---- */

void agx_client_opened(agx_client *c, agx_client_conn *conn, const uint8_t nonce[AGX_CLIENT_NONCE_BYTES],
                       uint64_t now_ms)
{
        if (conn->state != CONN_OPENING)
                return;
        memcpy(conn->nonce, nonce, sizeof(conn->nonce));
        agx_pool_move(c, conn, CONN_PROVING, now_ms);
        if (agx_request_health(c, conn)) {
                agx_client_open_failed(c, conn, "out of memory", now_ms);
                return;
        }
        agx_list_push_back(&c->writes, &conn->write);
}

void agx_client_open_failed(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms)
{
        agx_client_ended(c, conn, why, now_ms);
}

void agx_client_input(agx_client *c, agx_client_conn *conn, agx_view bytes, uint64_t now_ms)
{
        size_t before = conn->http.body.len;
        int r;

        if (conn->state == CONN_CLOSING)
                return;
        if (conn->state == CONN_LANE) {
                agx_road_input(c, conn, bytes, now_ms);
                agx_pool_pump(c, now_ms);
                return;
        }
        if (conn->state == CONN_ASKING || conn->state == CONN_CARRIER) {
                agx_fastlink_input(c, conn, bytes, now_ms);
                agx_pool_pump(c, now_ms);
                return;
        }
        r = agx_httpconn_input(&conn->http, bytes);
        if (r < 0)
                agx_pool_no_memory(c, conn, now_ms);
        else if (r == AGX_HTTPCONN_E_BROKEN)
                agx_pool_broken(c, conn, conn->http.why, now_ms);
        else if (r == AGX_HTTPCONN_E_REPLY)
                agx_reply_read(c, conn, now_ms);
        else if (conn->state == CONN_DRAINING && conn->http.left > AGX_CLIENT_DRAIN_BODY)
                agx_pool_close(c, conn);
        else if (conn->call && !agx_reply_fits(c, conn->http.body.len - before))
                agx_reply_drop(c, conn, now_ms);
        else
                return;
        agx_pool_pump(c, now_ms);
}

void agx_client_ended(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms)
{
        if (conn->state == CONN_CLOSING)
                return;
        if (conn->state == CONN_LANE || conn->state == CONN_ASKING || conn->state == CONN_CARRIER)
                agx_pool_broken(c, conn, why ? why : "it closed the connection", now_ms);
        else if (!why && agx_httpconn_eof(&conn->http) == AGX_HTTPCONN_E_REPLY)
                agx_reply_read(c, conn, now_ms);
        else
                agx_pool_broken(c, conn, why ? why : conn->http.why, now_ms);
        agx_pool_pump(c, now_ms);
}

static void end_overdue(agx_client *c, uint64_t now_ms)
{
        agx_list *node;

        while ((node = agx_list_first(&c->deadlines))) {
                agx_client_call *call = agx_container_of(node, agx_client_call, deadline);
                agx_client_conn *conn = call->conn;
                bool drop;

                if (call->deadline_ms > now_ms)
                        break;
                drop = agx_road_abandon(c, call);
                agx_calls_finish(c, call, AGX_CLIENT_DEADLINE);
                if (conn)
                        agx_pool_abandon(c, conn, now_ms);
                if (drop)
                        agx_road_drop(c, now_ms);
        }
}

static void end_pauses(agx_client *c, uint64_t now_ms)
{
        agx_list *node;

        while ((node = agx_list_first(&c->paused))) {
                agx_client_call *call = agx_container_of(node, agx_client_call, link);

                if (call->pause_ms > now_ms)
                        break;
                agx_calls_unlink(c, call);
                agx_calls_queue(c, call);
        }
}

void agx_client_tick(agx_client *c, uint64_t now_ms)
{
        end_overdue(c, now_ms);
        end_pauses(c, now_ms);
        agx_pool_tick(c, now_ms);
        agx_road_tick(c, now_ms);
        agx_pool_pump(c, now_ms);
}

void agx_client_shutdown(agx_client *c, const char *why, uint64_t now_ms)
{
        agx_list *const conns[] = {&c->to_open,  &c->opening,    &c->idle,    &c->busy,
                                   &c->draining, &c->lanes_open, &c->carriers};

        agx_road_end(c, now_ms);
        for (size_t i = 0; i < sizeof(conns) / sizeof(conns[0]); ++i) {
                agx_list_foreach_safe(node, conns[i])
                {
                        agx_client_conn *conn = agx_container_of(node, agx_client_conn, link);

                        if (conn->call)
                                agx_calls_unreachable(c, conn->call, why);
                        agx_pool_close(c, conn);
                }
        }
        agx_calls_fail_waiting(c, why);
        agx_road_fail(c, why);
        c->connected = false;
        c->side_ms = UINT64_MAX;
        c->failures = 0;
        c->reopen_ms = 0;
}

/* ---- connections ---- */

size_t agx_client_conn_pending(const agx_client_conn *conn, agx_view segments[2])
{
        int n;

        if (conn->state == CONN_LANE)
                return agx_siolink_pending(conn->sio, conn->lane, segments);
        if (conn->state != CONN_CARRIER)
                return agx_httpconn_pending(&conn->http, segments);
        n = agx_fast_pending(conn->fast, segments);
        return n > 0 ? (size_t)n : 0;
}

void agx_client_conn_sent(agx_client_conn *conn, size_t n)
{
        if (conn->state == CONN_CARRIER) {
                agx_fast_sent(conn->fast, n);
                while (agx_fast_next_written(conn->fast))
                        ;
                return;
        }
        if (conn->state != CONN_LANE) {
                agx_httpconn_sent(&conn->http, n);
                return;
        }
        agx_siolink_sent(conn->sio, conn->lane, n);
        agx_road_flush(conn);
}

agx_view agx_client_conn_place(agx_client_conn *conn)
{
        if (conn->state == CONN_CARRIER)
                return agx_fastlink_place(conn);
        return conn->state == CONN_LANE ? AGX_VIEW_NULL : agx_httpconn_place(&conn->http);
}

void agx_client_conn_set_user(agx_client_conn *conn, void *user)
{
        conn->user = user;
}

void *agx_client_conn_user(const agx_client_conn *conn)
{
        return conn->user;
}

bool agx_client_conn_busy(const agx_client_conn *conn)
{
        return conn->state == CONN_BUSY || conn->state == CONN_PROVING || conn->state == CONN_DRAINING ||
               conn->state == CONN_LANE || conn->state == CONN_ASKING || conn->n_carried;
}

void agx_client_conn_free(agx_client *c, agx_client_conn *conn)
{
        (void)c;
        free_conn(conn);
}

agx_client_counts agx_client_count(const agx_client *c)
{
        return (agx_client_counts){.waiting = c->n_waiting,
                                   .pausing = c->n_paused + c->n_refused,
                                   .connections = c->n_conns + agx_road_lanes(c) + c->n_carriers,
                                   .acks = c->n_acks,
                                   .linked = c->n_linked,
                                   .cancels = c->cancels.len / sizeof(agx_client_cancel),
                                   .joined = c->n_joined,
                                   .spaces = c->n_spaces,
                                   .absent = c->link_absent,
                                   .failures = c->link_failures + c->failures};
}

agx_view agx_client_session_name(const agx_client *c)
{
        return agx_view_of(c->name, sizeof(c->name) - 1);
}
