/*
 * The second road: when there is a link, and what becomes of calls when it ends. What is said on it is in road_say.c, what is
 * heard in road_hear.c.
 *
 * A call that the server may have is awaited: `unasked` until this link has asked for it, `asked` from then on. When a
 * link ends, all of them are unasked again, except those that were not sent whole, which nobody has seen. So after every
 * loss the next link begins with one `resume` of what is awaited, whatever happened before.
 *
 * A cancel counts as delivered once its call's end is heard; until then it is said anew on each new link, and asked about.
 * If no link can be had for cancels alone, they wait until the server is heard of again.
 */
#include "base/err.h"
#include "client/road_parts.h"

#include <stdio.h>

enum { LONELY_FAILURES = 12 }; /* a link wanted for cancels alone is not tried any more after so many, for now */

bool agx_road_is_open(const agx_client *c)
{
        return c->config.link && !c->link_absent;
}

bool agx_road_is_joined(const agx_client *c)
{
        return c->link && agx_siolink_joined(c->link);
}

/* ---- calls ---- */

void agx_road_await(agx_client *c, agx_client_call *call)
{
        bool told = call->told && call->told == c->link_serial && agx_road_is_joined(c) && call->accepted;

        call->state = CALL_LINKED;
        ++c->n_linked;
        agx_calls_insert(told ? &c->asked : &c->unasked, call);
}

bool agx_road_abandon(agx_client *c, agx_client_call *call)
{
        agx_client_conn *conn = call->conn;

        if (call->sending)
                return true; /* its arguments must not be looked at any more */
        if (!call->counter || !call->generation || call->state == CALL_DONE || call->state == CALL_TAKEN)
                return false;
        if (call->state == CALL_SENT) {
                if (!agx_pool_has_sent(conn))
                        return false;
                conn->cancelled = true;
        }
        agx_road_cancel(c, call->counter, call->generation);
        return false;
}

/* Calls that no link can serve go the way they would have gone without one. */
static void turn_back(agx_client *c, agx_list *list, uint64_t now_ms)
{
        char why[AGX_CLIENT_WHY_MAX];

        agx_list_foreach_safe(node, list)
        {
                agx_client_call *call = call_of(node);

                if (call->refused) {
                        snprintf(why, sizeof(why), "the server answered %u (%s)", call->refused,
                                 agx_http1_phrase(call->refused));
                        agx_calls_unreachable(c, call, why);
                        continue;
                }
                agx_calls_unlink(c, call);
                call->by_link = false;
                call->sending = false;
                if (call->accepted)
                        agx_calls_pause(c, call, now_ms + AGX_CLIENT_POLL_MIN_MS);
                else
                        agx_calls_queue(c, call);
        }
}

static void is_absent(agx_client *c, uint64_t now_ms)
{
        c->link_absent = true;
        c->link_failures = 0;
        agx_road_forget_cancels(c);
        turn_back(c, &c->unasked, now_ms);
        turn_back(c, &c->asked, now_ms);
        turn_back(c, &c->link_resend, now_ms);
        turn_back(c, &c->link_queue, now_ms);
}

void agx_road_fail(agx_client *c, const char *why)
{
        agx_list *const lists[] = {&c->unasked, &c->asked, &c->link_resend, &c->link_queue};

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
                agx_list_foreach_safe(node, lists[i]) agx_calls_unreachable(c, call_of(node), why);
        agx_road_forget_cancels(c);
        c->link_failures = 0;
        c->link_reopen_ms = 0;
        c->acks_due = false;
}

static bool has_calls(const agx_client *c)
{
        return !agx_list_empty(&c->unasked) || !agx_list_empty(&c->asked) || !agx_list_empty(&c->link_resend) ||
               (!agx_list_empty(&c->link_queue) && !agx_calls_held(c));
}

/* ---- losing ---- */

static void ask_all_again(agx_client *c)
{
        agx_road_cancel_again(c);
        c->acks_due = c->acks_due || c->said.len;
        agx_calls_ack_again(c, &c->said);
        agx_list_foreach_safe(node, &c->asked)
        {
                agx_client_call *call = call_of(node);

                agx_calls_unlink(c, call);
                call->in_doubt = call->in_doubt || !call->sending;
                call->by_link = call->sending;
                if (call->sending)
                        agx_calls_queue(c, call);
                else
                        agx_road_await(c, call);
                call->sending = false;
        }
}

size_t agx_road_lanes(const agx_client *c)
{
        size_t n = 0;

        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i)
                n += c->lanes[i] != NULL;
        return n;
}

void agx_road_end(agx_client *c, uint64_t now_ms)
{
        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i)
                if (c->lanes[i])
                        agx_pool_close(c, c->lanes[i]);
        if (c->link)
                agx_siolink_free(c->link);
        c->link = NULL;
        agx_side_lost(c);
        c->link_generation = 0;
        ask_all_again(c);
        c->link_reopen_ms = now_ms;
}

void agx_road_drop(agx_client *c, uint64_t now_ms)
{
        agx_road_end(c, now_ms);
}

static bool gives_up(const agx_client *c)
{
        return !c->connected || !c->config.reconnect || (c->config.attempts && c->link_failures > c->config.attempts);
}

/* The link is over, for a reason that the next one may not have. `reason` may be the link's own words. */
void agx_road_lose(agx_client *c, const char *reason, uint64_t now_ms)
{
        uint64_t joined_ms = agx_road_is_joined(c) ? c->link_since_ms : 0;
        char why[AGX_CLIENT_WHY_MAX], text[AGX_CLIENT_WHY_MAX];

        snprintf(why, sizeof(why), "%s", reason);
        agx_road_end(c, now_ms);
        if (joined_ms && now_ms - joined_ms >= AGX_CLIENT_LINK_STEADY_MS)
                c->link_failures = 0;
        ++c->link_failures;
        if (gives_up(c)) {
                snprintf(text, sizeof(text), "%s%.100s", joined_ms ? "the connection was lost: " : "", why);
                agx_side_rest(c, now_ms);
                agx_road_fail(c, text);
                return;
        }
        c->link_resting = !has_calls(c) && c->link_failures >= LONELY_FAILURES;
        c->side_tired = c->side_tired || (!has_calls(c) && c->link_failures >= AGX_CLIENT_SIDE_FAILURES);
        if (joined_ms && c->link_failures == 1)
                c->link_reopen_ms = now_ms;
        else
                c->link_reopen_ms = now_ms + agx_calls_backoff(c, c->link_failures);
}

void agx_road_lane_lost(agx_client *c, agx_siolink_lane lane, const char *why, uint64_t now_ms)
{
        if (c->link && agx_siolink_lost(c->link, lane))
                agx_road_lose(c, why, now_ms);
}

static void is_denied(agx_client *c, unsigned status, uint64_t now_ms)
{
        char why[AGX_CLIENT_WHY_MAX];

        agx_road_end(c, now_ms);
        snprintf(why, sizeof(why), "the server answered %u (%s)", status,
                 status != 401  ? agx_http1_phrase(status)
                 : c->token.len ? "it refused the token"
                                : "it asks for a token and none was given");
        agx_side_rest(c, now_ms);
        agx_road_fail(c, why);
}

/* What a negative result or a condition of the link means for it. A server, or whatever stands before it, that refuses
 * one way of beginning for now is asked the other way next. */
void agx_road_trouble(agx_client *c, int r, uint64_t now_ms)
{
        switch (r) {
        case AGX_SIOLINK_E_ABSENT:
                agx_road_end(c, now_ms);
                is_absent(c, now_ms);
                break;
        case AGX_SIOLINK_E_DENIED:
                is_denied(c, agx_siolink_status(c->link), now_ms);
                break;
        case AGX_SIOLINK_E_POLLING:
                agx_road_end(c, now_ms);
                c->link_polling = true;
                break;
        default:
                if (agx_siolink_status(c->link) && !agx_siolink_joined(c->link))
                        c->link_polling = !c->link_polling;
                agx_road_lose(c, r < 0 ? "out of memory" : agx_siolink_why(c->link), now_ms);
        }
}

/* ---- beginning ---- */

static void open_link(agx_client *c, uint64_t now_ms)
{
        agx_siolink_config config = {.path = agx_buf_view(&c->link_path),
                                     .fields = agx_buf_view(&c->link_fields),
                                     .session = agx_client_session_name(c),
                                     .polling = c->link_polling};
        uint8_t seed[AGX_SIOLINK_SEED_BYTES];

        agx_siphash_draw(c->secret, &c->drawn, seed, sizeof(seed));
        if (agx_siolink_new(&c->link, &config, seed, now_ms))
                agx_road_lose(c, "out of memory", now_ms);
}

void agx_road_begin(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        if (!c->link_generation) {
                c->link_generation = conn->generation;
                c->link_since_ms = now_ms;
        }
        if (conn->generation != c->link_generation) {
                agx_road_lose(c, "another instance answers", now_ms);
                return;
        }
        conn->sio = c->link;
        agx_pool_move(c, conn, CONN_LANE, now_ms);
        if (agx_siolink_begin(c->link, conn->lane, now_ms))
                agx_road_lose(c, "out of memory", now_ms);
}

/* A link with an earlier instance may look alive for minutes: nothing that is said on it is heard by this one. */
void agx_road_learned(agx_client *c, uint64_t now_ms)
{
        if (c->link && c->link_generation && c->link_generation != c->generation)
                agx_road_end(c, now_ms);
}

/* ---- writing ---- */

static int flush(agx_siolink *link)
{
        agx_client_call *call;
        int r = agx_siolink_flush(link);

        while ((call = agx_siolink_next_done(link)))
                call->sending = false;
        return r;
}

/* What goes wrong is told again at the next flush or tick. */
void agx_road_flush(agx_client_conn *conn)
{
        flush(conn->sio);
}

static void close_lanes(agx_client *c)
{
        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i) {
                agx_client_conn *conn = c->lanes[i];

                if (conn && conn->state == CONN_LANE && agx_siolink_over(c->link, conn->lane)) {
                        agx_pool_close(c, conn);
                        agx_siolink_lost(c->link, (agx_siolink_lane)i);
                }
        }
}

static int open_lanes(agx_client *c, uint64_t now_ms)
{
        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i)
                if (!c->lanes[i] && agx_siolink_wants(c->link, (agx_siolink_lane)i) &&
                    agx_pool_open(c, (agx_siolink_lane)i, now_ms))
                        return -ENOMEM;
        return 0;
}

static void wish_writes(agx_client *c)
{
        agx_view segments[2];

        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i) {
                agx_client_conn *conn = c->lanes[i];

                if (conn && conn->state == CONN_LANE && agx_list_empty(&conn->write) &&
                    agx_siolink_pending(c->link, conn->lane, segments))
                        agx_list_push_back(&c->writes, &conn->write);
        }
}

static void work_lanes(agx_client *c, uint64_t now_ms)
{
        int r = flush(c->link);

        if (r) {
                agx_road_trouble(c, r, now_ms);
                return;
        }
        close_lanes(c);
        if (open_lanes(c, now_ms))
                agx_road_lose(c, "out of memory", now_ms);
        else
                wish_writes(c);
}

/* From when on there is to be a link; UINT64_MAX: there need be none. */
static uint64_t wanted_from(const agx_client *c)
{
        if (!agx_road_is_open(c))
                return UINT64_MAX;
        if (has_calls(c) || (c->cancels.len && !c->link_resting))
                return c->link_reopen_ms;
        if (!agx_side_wanted(c))
                return UINT64_MAX;
        return c->side_ms > c->link_reopen_ms ? c->side_ms : c->link_reopen_ms;
}

void agx_road_pump(agx_client *c, uint64_t now_ms)
{
        int r = 0;

        if (!c->link && now_ms >= wanted_from(c))
                open_link(c, now_ms);
        if (!c->link)
                return;
        if (agx_road_is_joined(c))
                r = agx_road_say_all(c);
        if (r && r != AGX_SIOLINK_E_FULL)
                agx_road_trouble(c, r, now_ms);
        else
                work_lanes(c, now_ms);
}

/* ---- time ---- */

/* What became so while bytes were written: the shell's verbs for that tell the session nothing. */
static bool has_lanes_to_see_to(const agx_client *c)
{
        for (size_t i = 0; i < AGX_SIOLINK_LANES; ++i)
                if (c->lanes[i] ? agx_siolink_over(c->link, (agx_siolink_lane)i)
                                : agx_siolink_wants(c->link, (agx_siolink_lane)i))
                        return true;
        return false;
}

uint64_t agx_road_timer(const agx_client *c)
{
        uint64_t when;

        if (!c->link)
                return wanted_from(c);
        when = has_lanes_to_see_to(c) ? 0 : agx_siolink_timer(c->link);
        if (agx_siolink_joined(c->link) ||
            !c->link_generation) /* pool.c looks after a connection that is being opened */
                return when;
        return when < c->link_since_ms + AGX_CLIENT_OPEN_MS ? when : c->link_since_ms + AGX_CLIENT_OPEN_MS;
}

void agx_road_tick(agx_client *c, uint64_t now_ms)
{
        int r;

        if (!c->link || !c->link_generation)
                return;
        if (!agx_siolink_joined(c->link) && now_ms >= c->link_since_ms + AGX_CLIENT_OPEN_MS) {
                agx_road_lose(c, "no answer in time", now_ms);
                return;
        }
        r = agx_siolink_tick(c->link, now_ms);
        if (r)
                agx_road_trouble(c, r, now_ms);
}
