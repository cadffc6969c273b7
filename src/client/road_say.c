/*
 * What is said on the link, in this order: what is asked for again, cancels, credit, acknowledgements, calls, side channels.
 *
 * Cancels are noted here until they are said, and after that until the end of their call is heard.
 */
#include "base/err.h"
#include "client/road_parts.h"

/* ---- cancels ---- */

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

void agx_road_confirm_cancel(agx_client *c, uint64_t counter)
{
        for (size_t n = c->unconfirmed.len / sizeof(agx_client_cancel); n; --n) {
                agx_client_cancel note = first_cancel(&c->unconfirmed);

                agx_buf_consume(&c->unconfirmed, sizeof(note));
                if (note.counter != counter)
                        note_cancel(&c->unconfirmed, &note);
        }
}

void agx_road_cancel_again(agx_client *c)
{
        while (c->unconfirmed.len) {
                agx_client_cancel note = first_cancel(&c->unconfirmed);

                agx_buf_consume(&c->unconfirmed, sizeof(note));
                note.said = true;
                note_cancel(&c->cancels, &note);
        }
}

void agx_road_forget_cancels(agx_client *c)
{
        agx_buf_clear(&c->cancels);
        agx_buf_clear(&c->unconfirmed);
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

int agx_road_say_all(agx_client *c)
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
