/*
 * What a reply means for the call it answers. Only a 200 (or the 400 of a call that could not be read) is an outcome;
 * a 202 is a promise; some statuses say that the road is bad and are treated like a lost connection; the rest say that
 * there is no runtime for us at the other end. A call that the server had no room for is nobody's yet.
 */
#include "client/state.h"
#include "proto/callmsg.h"

#include <stdio.h>

typedef enum verdict { VERDICT_OUTCOME, VERDICT_ACCEPTED, VERDICT_LARGE, VERDICT_AGAIN, VERDICT_NO } verdict;

static verdict judge(unsigned status)
{
        switch (status) {
        case 200:
        case 400:
                return VERDICT_OUTCOME;
        case 202:
                return VERDICT_ACCEPTED;
        case 413:
                return VERDICT_LARGE;
        case 408:
        case 425:
        case 429:
        case 500:
        case 502:
        case 503:
        case 504:
                return VERDICT_AGAIN;
        default:
                return VERDICT_NO;
        }
}

static void say_status(const agx_client *c, unsigned status, char why[AGX_CLIENT_WHY_MAX])
{
        const char *words = status != 401  ? agx_http1_phrase(status)
                            : c->token.len ? "it refused the token"
                                           : "it asks for a token and none was given";

        snprintf(why, AGX_CLIENT_WHY_MAX, "the server answered %u (%s)", status, words);
}

/* Only this reason allows a second sending; another one, or none, counts as dropped. */
static bool never_seen(const agx_fault *fault)
{
        return agx_view_eq(fault->type, agx_fault_type_text(AGX_FAULT_RESULT_UNAVAILABLE)) && fault->reason.p &&
               agx_view_eq(fault->reason, AGX_VIEW("never_seen"));
}

static void ask_anew(agx_client *c, agx_client_call *call, uint64_t now_ms)
{
        agx_calls_unlink(c, call);
        call->in_doubt = true; /* of another sending than this one it says nothing */
        agx_calls_unsettle(c, call);
        agx_calls_pause(c, call, now_ms + AGX_CLIENT_POLL_MIN_MS);
}

static void on_outcome(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        agx_call_reply reply;

        if (agx_landing_is_open(&conn->land) || !agx_call_reply_get(agx_buf_view(&conn->http.body), false, &reply)) {
                agx_pool_broken(c, conn, "its reply is malformed", now_ms);
                return;
        }
        if (!reply.ok && never_seen(&reply.fault) && call->reasks++ < AGX_CLIENT_REASKS_MAX) {
                ask_anew(c, call, now_ms);
                return;
        }
        if (!reply.ok && agx_fault_is_not_taken(&reply.fault)) {
                agx_calls_refused(c, call, now_ms);
                return;
        }
        call->body = conn->http.body; /* the views of the reply point into it */
        agx_buf_init(&conn->http.body, call->body.max);
        if (conn->land.looked) {
                call->land = conn->land;
                conn->land = (agx_landing){.memory = NULL};
        }
        call->result.value = reply.value;
        call->result.fault = reply.fault;
        agx_calls_ack(c, call->counter);
        agx_calls_finish(c, call, reply.ok ? AGX_CLIENT_VALUE : AGX_CLIENT_FAULT);
}

static uint64_t poll_pause(agx_client_call *call)
{
        uint64_t pause = AGX_CLIENT_POLL_MIN_MS;

        for (unsigned i = 0; i < call->polls && pause < AGX_CLIENT_POLL_MAX_MS; ++i)
                pause += pause / 2;
        ++call->polls;
        return pause < AGX_CLIENT_POLL_MAX_MS ? pause : AGX_CLIENT_POLL_MAX_MS;
}

static void on_accepted(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        agx_call_reply reply;

        if (agx_landing_is_open(&conn->land) || !agx_call_reply_get(agx_buf_view(&conn->http.body), true, &reply)) {
                agx_pool_broken(c, conn, "its reply is malformed", now_ms);
                return;
        }
        agx_calls_unlink(c, call);
        agx_calls_settle(c, call);
        if (agx_road_is_open(c))
                agx_road_await(c, call);
        else
                agx_calls_pause(c, call, now_ms + poll_pause(call));
}

/* The token is no better on the other road; anything else may be a matter of this one. */
static void on_refusal(agx_client *c, agx_client_conn *conn, agx_client_call *call, const char *why)
{
        unsigned status = conn->http.status;

        if (status == 401 || status == 403 || !agx_road_is_open(c)) {
                agx_calls_unreachable(c, call, why);
                return;
        }
        agx_calls_unlink(c, call);
        call->refused = status;
        agx_road_await(c, call);
}

/* What it says is of use only where the reply is none. */
static void on_no_reply(agx_client *c, agx_client_conn *conn, agx_client_call *call, bool again, uint64_t now_ms)
{
        char why[AGX_CLIENT_WHY_MAX];

        say_status(c, conn->http.status, why);
        if (again)
                agx_calls_lost(c, call, why, now_ms);
        else
                on_refusal(c, conn, call, why);
}

static void on_call_reply(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        switch (judge(conn->http.status)) {
        case VERDICT_OUTCOME:
                on_outcome(c, conn, call, now_ms);
                break;
        case VERDICT_ACCEPTED:
                on_accepted(c, conn, call, now_ms);
                break;
        case VERDICT_AGAIN:
                on_no_reply(c, conn, call, true, now_ms);
                break;
        case VERDICT_NO:
                on_no_reply(c, conn, call, false, now_ms);
                break;
        case VERDICT_LARGE:
                agx_calls_fault(c, call, AGX_FAULT_FRAME_TOO_LARGE, "the call is larger than the runtime takes", NULL);
                break;
        }
}

static void on_health_reply(agx_client *c, agx_client_conn *conn, agx_client_call *call, uint64_t now_ms)
{
        char why[AGX_CLIENT_WHY_MAX];

        if (conn->http.status != 200) {
                say_status(c, conn->http.status, why);
                agx_calls_unreachable(c, call, why);
        } else if (!agx_health_read(agx_buf_view(&conn->http.body), &call->result.health)) {
                agx_pool_broken(c, conn, "its answer to GET /health is not an Agentix runtime's", now_ms);
        } else {
                call->body = conn->http.body;
                agx_buf_init(&conn->http.body, call->body.max);
                agx_calls_finish(c, call, AGX_CLIENT_HEALTH);
        }
}

/* ---- how much there may be ---- */

static size_t gathered_now(const agx_client *c)
{
        size_t n = 0;

        agx_list_foreach_safe(node, &c->busy)
        {
                const agx_client_conn *conn = agx_container_of(node, agx_client_conn, link);

                n += conn->http.body.len + conn->land.got;
        }
        return n;
}

/* What leaves is not subtracted where it does: that is done, for all at once, when they seem to be too many. */
bool agx_reply_fits(agx_client *c, size_t n)
{
        size_t max = c->config.reply_bytes ? c->config.reply_bytes : AGX_CLIENT_REPLY_BYTES;

        c->gathered += n;
        if (c->gathered > max)
                c->gathered = gathered_now(c);
        return c->gathered <= max;
}

void agx_reply_drop(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        agx_calls_fault(c, conn->call, AGX_FAULT_BUSY,
                        "the replies that come to this client at once have more than 1 GiB together "
                        "(AGX_CLIENT_REPLY_BYTES), so this one was dropped: ask for fewer large values at a time",
                        NULL);
        agx_pool_abandon(c, conn, now_ms);
}

/* ---- reading ---- */

void agx_reply_read(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        agx_client_call *call = conn->call;

        if (conn->state == CONN_PROVING) {
                agx_pool_proved(c, conn, now_ms);
                return;
        }
        if (judge(conn->http.status) == VERDICT_OUTCOME || judge(conn->http.status) == VERDICT_ACCEPTED)
                agx_buf_clear(&conn->acks);
        else
                agx_calls_ack_again(c, &conn->acks);
        if (conn->state == CONN_DRAINING && conn->drained && conn->http.status == 200)
                agx_calls_ack(c, conn->drained);
        if (conn->state == CONN_DRAINING && conn->cancelled && conn->http.status == 202)
                agx_road_cancel(c, conn->drained, conn->generation); /* the first may have come before the call */
        if (call && call->kind == CALL_RUN)
                on_call_reply(c, conn, call, now_ms);
        else if (call)
                on_health_reply(c, conn, call, now_ms);
        if (conn->state != CONN_CLOSING)
                agx_pool_release(c, conn, now_ms);
}
