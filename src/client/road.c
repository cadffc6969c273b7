/*
 * The second road: when there is a link, what is said on it and what is heard.
 *
 * A call that the server may have is awaited: `unasked` until this link has asked for it, `asked` from then on. When a
 * link ends, all of them are unasked again, except those that were not sent whole, which nobody has seen. So after every
 * loss the next link begins with one `resume` of what is awaited, whatever happened before.
 *
 * A cancel counts as delivered once its call's end is heard; until then it is said anew on each new link, and asked about.
 * If no link can be had for cancels alone, they wait until the server is heard of again.
 *
 * A result is taken in whatever state its call is here: a call that is being sent again, or whose POST still waits, has
 * been run all the same. Whatever is heard is acknowledged, wanted or not.
 */
#include "base/err.h"
#include "client/state.h"
#include "proto/rpc.h"

#include <stdio.h>

enum { LONELY_FAILURES = 12 }; /* a link wanted for cancels alone is not tried any more after so many, for now */

static agx_client_call *call_of(agx_list *node)
{
        return agx_container_of(node, agx_client_call, link);
}

static agx_client_call *first_of(const agx_list *list)
{
        agx_list *node = agx_list_first(list);

        return node ? call_of(node) : NULL;
}

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

/* The oldest makes room; without memory it is lost, and its call goes on. */
static void note_cancel(agx_buf *notes, const agx_client_cancel *note)
{
        if (agx_buf_append(notes, note, sizeof(*note)) == AGX_BUF_E_FULL) {
                agx_buf_consume(notes, sizeof(*note));
                agx_buf_append(notes, note, sizeof(*note));
        }
}

static agx_client_cancel first_cancel(const agx_buf *notes)
{
        agx_client_cancel note;

        memcpy(&note, agx_buf_view(notes).p, sizeof(note));
        return note;
}

void agx_road_cancel(agx_client *c, uint64_t counter, uint32_t generation)
{
        c->link_resting = false;
        if (agx_road_is_open(c))
                note_cancel(&c->cancels, &(agx_client_cancel){.counter = counter, .generation = generation});
}

/* Something was heard of a call that nobody here knows any more. */
static void confirm_cancel(agx_client *c, uint64_t counter)
{
        for (size_t n = c->unconfirmed.len / sizeof(agx_client_cancel); n; --n) {
                agx_client_cancel note = first_cancel(&c->unconfirmed);

                agx_buf_consume(&c->unconfirmed, sizeof(note));
                if (note.counter != counter)
                        note_cancel(&c->unconfirmed, &note);
        }
}

static void say_cancels_again(agx_client *c)
{
        while (c->unconfirmed.len) {
                agx_client_cancel note = first_cancel(&c->unconfirmed);

                agx_buf_consume(&c->unconfirmed, sizeof(note));
                note.said = true;
                note_cancel(&c->cancels, &note);
        }
}

static void forget_cancels(agx_client *c)
{
        agx_buf_clear(&c->cancels);
        agx_buf_clear(&c->unconfirmed);
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
        forget_cancels(c);
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
        forget_cancels(c);
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
        say_cancels_again(c);
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
static void lose(agx_client *c, const char *reason, uint64_t now_ms)
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
                lose(c, why, now_ms);
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
static void trouble(agx_client *c, int r, uint64_t now_ms)
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
                lose(c, r < 0 ? "out of memory" : agx_siolink_why(c->link), now_ms);
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
                lose(c, "out of memory", now_ms);
}

void agx_road_begin(agx_client *c, agx_client_conn *conn, uint64_t now_ms)
{
        if (!c->link_generation) {
                c->link_generation = conn->generation;
                c->link_since_ms = now_ms;
        }
        if (conn->generation != c->link_generation) {
                lose(c, "another instance answers", now_ms);
                return;
        }
        conn->sio = c->link;
        agx_pool_move(c, conn, CONN_LANE, now_ms);
        if (agx_siolink_begin(c->link, conn->lane, now_ms))
                lose(c, "out of memory", now_ms);
}

/* A link with an earlier instance may look alive for minutes: nothing that is said on it is heard by this one. */
void agx_road_learned(agx_client *c, uint64_t now_ms)
{
        if (c->link && c->link_generation && c->link_generation != c->generation)
                agx_road_end(c, now_ms);
}

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
                lose(c, "another instance answered than the one that had proved itself", now_ms);
                return;
        }
        c->link_since_ms = now_ms;
        ++c->link_serial;
        fail_other_instances(c, &c->unasked);
        fail_other_instances(c, &c->link_resend);
        r = agx_side_begin(c);
        if (r)
                trouble(c, r, now_ms);
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
                lose(c, call ? "an outcome of what was not sent" : "it did not understand us", now_ms);
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
                confirm_cancel(c, counter);
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
                        trouble(c, r, now_ms);
                else if (event.kind == AGX_SIOLINK_JOINED)
                        on_joined(c, event.instance, now_ms);
                else if (event.kind == AGX_SIOLINK_GOT)
                        on_rpc(c, &event.rpc, now_ms);
                else if (event.kind != AGX_SIOLINK_MORE && agx_side_heard(c, &event))
                        lose(c, "out of memory", now_ms);
        } while (!r && conn->state != CONN_CLOSING && event.kind != AGX_SIOLINK_MORE);
}

/* ---- saying ---- */

static agx_mp_writer scratch(agx_client *c)
{
        agx_buf_clear(&c->scratch);
        return agx_mp_writer_on(&c->scratch);
}

/* 0, or what agx_siolink_send() says; AGX_SIOLINK_E_TOO_LARGE too if it does not fit into our own memory. */
static int say(agx_client *c, agx_rpc_kind kind, const agx_mp_writer *w, agx_view tail, void *user)
{
        int r = agx_mp_writer_end(w);

        if (r)
                return r < 0 ? r : AGX_SIOLINK_E_TOO_LARGE;
        return agx_siolink_send(c->link, kind, agx_buf_view(&c->scratch), tail, user);
}

/* {call_ids: [...]} with ids that are given one after the other. */
static void put_ids_head(agx_mp_writer *w, size_t n)
{
        agx_mp_put_map(w, 1);
        agx_mp_put_str(w, AGX_VIEW("call_ids"));
        agx_mp_put_array(w, n);
}

static size_t count(const agx_list *list, size_t max)
{
        size_t n = 0;

        for (const agx_list *node = list->next; node != list && n < max; node = node->next)
                ++n;
        return n;
}

static int say_resume(agx_client *c)
{
        while (!agx_list_empty(&c->unasked)) {
                size_t n = count(&c->unasked, AGX_CLIENT_IDS_SENT);
                agx_list *node = c->unasked.next;
                agx_mp_writer w = scratch(c);
                char id[AGX_CLIENT_ID_MAX + 1];
                int r;

                put_ids_head(&w, n);
                for (size_t i = 0; i < n; ++i, node = node->next)
                        agx_mp_put_str(&w, agx_calls_id(c, call_of(node)->counter, id));
                r = say(c, AGX_RPC_RESUME, &w, AGX_VIEW_NULL, NULL);
                if (r)
                        return r;
                for (size_t i = 0; i < n; ++i) {
                        node = c->unasked.next;
                        agx_list_unlink(node);
                        agx_list_push_back(&c->asked, node);
                }
        }
        return 0;
}

static int say_cancel(agx_client *c, const agx_client_cancel *note)
{
        char id[AGX_CLIENT_ID_MAX + 1];
        agx_rpc_event event = {.kind = AGX_RPC_CANCEL,
                               .call_id = agx_calls_id(c, note->counter, id),
                               .has_grace = true,
                               .grace = (double)c->config.grace_ms / 1000.0};
        agx_mp_writer w = scratch(c);
        int r;

        agx_rpc_event_put(&w, &event, NULL, 0);
        r = say(c, AGX_RPC_CANCEL, &w, AGX_VIEW_NULL, NULL);
        if (r || !note->said)
                return r;
        event = (agx_rpc_event){.kind = AGX_RPC_RESUME};
        w = scratch(c);
        agx_rpc_event_put(&w, &event, &(agx_view){id, strlen(id)}, 1);
        return say(c, AGX_RPC_RESUME, &w, AGX_VIEW_NULL, NULL);
}

static int say_cancels(agx_client *c)
{
        while (c->cancels.len) {
                agx_client_cancel note = first_cancel(&c->cancels);

                if (note.generation == c->link_generation) {
                        int r = say_cancel(c, &note);

                        if (r)
                                return r;
                        note_cancel(&c->unconfirmed, &note);
                }
                agx_buf_consume(&c->cancels, sizeof(note));
        }
        return 0;
}

/* The first `n` acks have been said. Of those said long ago none is lost that matters: the oldest make room. */
static void note_acks_said(agx_client *c, size_t n)
{
        for (; n; --n) {
                uint64_t *counter = &c->acks[c->ack_first];

                if (agx_buf_append(&c->said, counter, sizeof(*counter)) == AGX_BUF_E_FULL) {
                        agx_buf_consume(&c->said, sizeof(*counter));
                        agx_buf_append(&c->said, counter, sizeof(*counter));
                }
                c->ack_first = (c->ack_first + 1) % AGX_CLIENT_ACKS_KEPT;
                --c->n_acks;
        }
}

static int say_acks(agx_client *c)
{
        while (c->acks_due && c->n_acks) {
                size_t n = c->n_acks < AGX_CLIENT_IDS_SENT ? c->n_acks : AGX_CLIENT_IDS_SENT;
                agx_mp_writer w = scratch(c);
                char id[AGX_CLIENT_ID_MAX + 1];
                int r;

                put_ids_head(&w, n);
                for (size_t i = 0; i < n; ++i)
                        agx_mp_put_str(&w, agx_calls_id(c, c->acks[(c->ack_first + i) % AGX_CLIENT_ACKS_KEPT], id));
                r = say(c, AGX_RPC_ACK, &w, AGX_VIEW_NULL, NULL);
                if (r)
                        return r;
                note_acks_said(c, n);
        }
        c->acks_due = false;
        return 0;
}

static int say_credits(agx_client *c)
{
        agx_list_foreach_safe(node, &c->credits)
        {
                agx_client_call *call = agx_container_of(node, agx_client_call, crediting);
                char id[AGX_CLIENT_ID_MAX + 1];
                agx_rpc_event event = {.kind = AGX_RPC_CREDIT,
                                       .call_id = agx_calls_id(c, call->counter, id),
                                       .n = agx_flow_credit(c, call)};
                agx_mp_writer w = scratch(c);
                int r;

                if (!event.n)
                        continue;
                agx_rpc_event_put(&w, &event, NULL, 0);
                r = say(c, AGX_RPC_CREDIT, &w, AGX_VIEW_NULL, NULL);
                if (r)
                        return r;
                agx_flow_credited(call);
        }
        return 0;
}

static int put_call(agx_client *c, agx_client_call *call)
{
        int r = agx_request_whole(call);
        bool apart = call->arguments.n > AGX_CLIENT_INLINE_MAX;
        char id[AGX_CLIENT_ID_MAX + 1];
        agx_mp_writer w = scratch(c);
        agx_rpc_event event = {.kind = AGX_RPC_CALL,
                               .call_id = agx_calls_id(c, call->counter, id),
                               .callable = call->callable,
                               .arguments = call->arguments,
                               .context = call->context,
                               .has_stream = call->window > 0,
                               .stream = call->window};

        if (r)
                return r;
        if (call->arguments.n > AGX_MAX_MESSAGE || call->callable.n > AGX_MAX_CALLABLE)
                return AGX_SIOLINK_E_TOO_LARGE;
        if (apart)
                agx_rpc_event_put_head(&w, &event);
        else
                agx_rpc_event_put(&w, &event, NULL, 0);
        r = say(c, AGX_RPC_CALL, &w, apart ? call->arguments : AGX_VIEW_NULL, apart ? call : NULL);
        if (!r)
                call->sending = apart;
        return r;
}

/* Sends a call that waits for the link, or ends it. Not 0: the link takes no more for now, or is broken. */
static int say_call(agx_client *c, agx_client_call *call)
{
        int r;

        if (call->generation && call->generation != c->link_generation) {
                agx_calls_instance_changed(c, call);
                return 0;
        }
        agx_calls_number(c, call);
        call->generation = c->link_generation;
        r = put_call(c, call);
        if (!r) {
                agx_calls_unlink(c, call);
                call->state = CALL_LINKED;
                ++c->n_linked;
                agx_list_push_back(&c->asked, &call->link);
                agx_calls_tried(c, call);
                return 0;
        }
        agx_calls_unnumber(c, call);
        if (r == AGX_SIOLINK_E_TOO_LARGE) {
                agx_calls_fault(c, call, AGX_FAULT_FRAME_TOO_LARGE, "the call is larger than a message may be", NULL);
                return 0;
        }
        if (r < 0) {
                agx_calls_finish(c, call, AGX_CLIENT_NO_MEMORY);
                return 0;
        }
        return r;
}

static int say_calls(agx_client *c)
{
        agx_client_call *call;
        int r = 0;

        while (!r && ((call = first_of(&c->link_resend)) || (call = first_of(&c->link_queue)))) {
                if (!call->counter && agx_calls_held(c))
                        break;
                r = say_call(c, call);
        }
        return r;
}

static int say_all(agx_client *c)
{
        int r;

        r = say_resume(c);
        if (!r)
                r = say_cancels(c);
        if (!r)
                r = say_credits(c);
        if (!r)
                r = say_acks(c);
        if (!r)
                r = say_calls(c);
        return r ? r : agx_side_say(c);
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
                trouble(c, r, now_ms);
                return;
        }
        close_lanes(c);
        if (open_lanes(c, now_ms))
                lose(c, "out of memory", now_ms);
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
                r = say_all(c);
        if (r && r != AGX_SIOLINK_E_FULL)
                trouble(c, r, now_ms);
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
                lose(c, "no answer in time", now_ms);
                return;
        }
        r = agx_siolink_tick(c->link, now_ms);
        if (r)
                trouble(c, r, now_ms);
}
