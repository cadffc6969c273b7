/*
 * What is heard on the link. A result is taken in whatever state its call is here: a call that is being sent again, or whose
 * POST still waits, has been run all the same. Whatever is heard is acknowledged, wanted or not.
 */
#include "client/road_parts.h"

/* ---- joined ---- */

static void fail_other_instances(agx_client *c, agx_list *list)
{
        agx_list_foreach_safe(node, list)
        {
                agx_client_call *call = call_of(node);

                if (call->generation && call->generation != c->link_generation)
                        agx_calls_instance_changed(c, call);
        }
}

static void on_joined(agx_client *c, agx_view instance, uint64_t now_ms)
{
        int r;

        if (instance.p && !agx_view_eq(instance, agx_view_str(c->instance))) {
                agx_road_lose(c, "another instance answered than the one that had proved itself", now_ms);
                return;
        }
        c->link_since_ms = now_ms;
        ++c->link_serial;
        fail_other_instances(c, &c->unasked);
        fail_other_instances(c, &c->link_resend);
        r = agx_side_begin(c);
        if (r)
                agx_road_trouble(c, r, now_ms);
}

/* ---- hearing ---- */

/* The number of an id of ours, or 0. */
static uint64_t counter_of(const agx_client *c, agx_view id)
{
        agx_view ours = agx_client_session_name(c);
        uint64_t counter;

        if (id.n < ours.n + 2 || !agx_view_starts(id, ours) || id.p[ours.n] != '-' || id.p[ours.n + 1] == '0')
                return 0;
        return agx_view_u64(agx_view_from(id, ours.n + 1), UINT64_MAX, &counter) ? counter : 0;
}

static bool is_unavailable(const agx_rpc_event *rpc)
{
        return rpc->kind == AGX_RPC_ERROR &&
               agx_view_eq(rpc->fault.type, agx_fault_type_text(AGX_FAULT_RESULT_UNAVAILABLE));
}

static bool is_never_seen(const agx_rpc_event *rpc)
{
        return is_unavailable(rpc) && rpc->fault.reason.p && agx_view_eq(rpc->fault.reason, AGX_VIEW("never_seen"));
}

/* A server that has never seen what was sent whole breaks its word at some point; one that lost it with a link does not. */
static bool may_send_again(agx_client *c, agx_client_call *call)
{
        if (call->reasked_on != c->link_serial)
                call->reasks_there = 0;
        call->reasked_on = c->link_serial;
        ++call->reasks;
        return call->reasks_there++ < AGX_CLIENT_REASKS_MAX;
}

static void send_again(agx_client *c, agx_client_call *call)
{
        agx_calls_unlink(c, call);
        agx_calls_unsettle(c, call);
        call->by_link = true;
        agx_calls_queue(c, call);
}

static void is_refused(agx_client *c, agx_client_call *call, uint64_t now_ms)
{
        call->by_link = true;
        agx_calls_refused(c, call, now_ms);
}

static void on_outcome(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc, uint64_t now_ms)
{
        agx_client_conn *conn = call->conn;

        agx_buf_init(&call->body, 0);
        agx_siolink_take(c->link, &call->body);
        call->result.value = rpc->value.p ? rpc->value : AGX_VIEW("");
        call->result.fault = rpc->fault;
        c->link_failures = 0;
        agx_calls_finish(c, call, rpc->kind == AGX_RPC_RESULT ? AGX_CLIENT_VALUE : AGX_CLIENT_FAULT);
        if (conn)
                agx_pool_abandon(c, conn, now_ms); /* the POST that was still waiting */
}

static void on_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc, uint64_t now_ms)
{
        agx_client_conn *conn = call->conn;
        uint64_t counter = call->counter;
        uint32_t generation = call->generation;

        c->link_failures = 0;
        if (!call->window || agx_flow_item(c, call, rpc))
                return;
        agx_road_cancel(c, counter, generation);
        if (conn)
                agx_pool_abandon(c, conn, now_ms);
}

static void on_rpc(agx_client *c, const agx_rpc_event *rpc, uint64_t now_ms)
{
        uint64_t counter = counter_of(c, rpc->call_id);
        agx_client_call *call = agx_calls_find(c, counter);

        if (!rpc->call_id.n || (call && call->sending)) {
                agx_road_lose(c, call ? "an outcome of what was not sent" : "it did not understand us", now_ms);
                return;
        }
        if (rpc->kind == AGX_RPC_ITEM) {
                if (call)
                        on_item(c, call, rpc, now_ms);
                return;
        }
        if (call && is_never_seen(rpc)) {
                if (call->state != CALL_LINKED)
                        return;
                if (may_send_again(c, call)) {
                        send_again(c, call);
                        return;
                }
        }
        if (call && rpc->kind == AGX_RPC_ERROR && agx_fault_is_not_taken(&rpc->fault)) {
                if (call->state == CALL_LINKED)
                        is_refused(c, call, now_ms);
                return;
        }
        if (!call)
                agx_road_confirm_cancel(c, counter);
        if (counter && !is_unavailable(rpc)) {
                agx_calls_ack(c, counter);
                c->acks_due = true;
        }
        if (call)
                on_outcome(c, call, rpc, now_ms);
}

void agx_road_input(agx_client *c, agx_client_conn *conn, agx_view in, uint64_t now_ms)
{
        agx_siolink_event event;
        int r;

        do {
                r = agx_siolink_input(conn->sio, conn->lane, &in, now_ms, &event);
                if (r)
                        agx_road_trouble(c, r, now_ms);
                else if (event.kind == AGX_SIOLINK_JOINED)
                        on_joined(c, event.instance, now_ms);
                else if (event.kind == AGX_SIOLINK_GOT)
                        on_rpc(c, &event.rpc, now_ms);
                else if (event.kind != AGX_SIOLINK_MORE && agx_side_heard(c, &event))
                        agx_road_lose(c, "out of memory", now_ms);
        } while (!r && conn->state != CONN_CLOSING && event.kind != AGX_SIOLINK_MORE);
}
