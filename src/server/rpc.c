/*
 * Who a link is, what its events become, and where ends go; what it has to say is in rpc_queue.c.
 *
 * A call that is asked for here while a POST waits for it is taken from the POST: that connection may be dead without
 * anybody knowing, while this one has just spoken.
 *
 * A link without a session gets a name that no client can choose, for it has a control character.
 */
#include "base/err.h"
#include "server/rpc_queue.h"
#include "server/sessions.h"

#include <stdio.h>

enum { OWN_MARK = 1 };

/* ---- links ---- */

static agx_rpc_link *find_link(const agx_rpc *rpc, agx_view session)
{
        agx_map_node *node = session.p ? agx_map_find(&rpc->links, session) : NULL;

        return node ? agx_container_of(node, agx_rpc_link, by_session) : NULL;
}

static agx_view own_name(agx_rpc *rpc, char name[AGX_MAX_SESSION])
{
        int n = snprintf(name, AGX_MAX_SESSION, "%c%llx", OWN_MARK, (unsigned long long)++rpc->named);

        return agx_view_of(name, (size_t)n);
}

static bool is_own_name(agx_view session)
{
        return session.n && session.p[0] == OWN_MARK;
}

int agx_rpc_attach(agx_rpc *rpc, agx_rpc_link *link, agx_view session, agx_rpc_link **replaced)
{
        int r;

        *link = (agx_rpc_link){.rpc = NULL};
        *replaced = NULL;
        if (session.p && !agx_sessions_name_ok(session))
                return AGX_RPC_E_SESSION;
        if (session.p)
                memcpy(link->session, session.p, session.n);
        link->by_session.key = session.p ? agx_view_of(link->session, session.n) : own_name(rpc, link->session);
        *replaced = find_link(rpc, agx_rpc_session(link));
        if (*replaced)
                agx_rpc_detach(*replaced);
        r = agx_map_insert(&rpc->links, &link->by_session);
        if (r)
                return r;
        link->rpc = rpc;
        link->number = ++rpc->numbered;
        agx_rpc_queue_init(link);
        return 0;
}

void agx_rpc_detach(agx_rpc_link *link)
{
        if (!link->rpc)
                return;
        agx_map_remove(&link->rpc->links, &link->by_session);
        agx_rpc_queue_deinit(link);
        link->rpc = NULL;
}

/* ---- ends ---- */

static void tell_of(agx_rpc_link *link, agx_call *call)
{
        if (link && agx_rpc_queue_answer(link, agx_call_id(call))) {
                link->failed = true;
                agx_rpc_queue_touch(link);
        }
}

void agx_rpc_streams(agx_rpc *rpc, agx_call *call)
{
        agx_rpc_take_over(call);
        tell_of(find_link(rpc, agx_call_session(call)), call);
}

/* A call that nobody else waits for has ended. */
static void deliver(agx_waiter *waiter, agx_call *call)
{
        agx_rpc *rpc = agx_container_of(waiter, agx_rpc, waiter);
        agx_view session = agx_call_session(call);
        agx_rpc_link *link = find_link(rpc, session);

        tell_of(link, call);
        if (!link && is_own_name(session)) /* nobody can ever ask for it */
                agx_ledger_ack(rpc->calls->ledger, session, agx_call_id(call));
        agx_ledger_keep(rpc->calls->ledger, call);
}

/* No call.waiter is ever this one. */
static void forget(agx_waiter *waiter, agx_call *call)
{
        (void)waiter;
        (void)call;
}

void agx_rpc_init(agx_rpc *rpc, agx_calls *calls, const uint8_t seed[16])
{
        *rpc = (agx_rpc){.calls = calls, .waiter = {.deliver = deliver, .forget = forget}};
        memcpy(rpc->seed, seed, sizeof(rpc->seed));
        agx_map_init(&rpc->links, seed);
        agx_list_init(&rpc->due);
}

void agx_rpc_deinit(agx_rpc *rpc)
{
        agx_map_node *node;

        while ((node = agx_map_any(&rpc->links)))
                agx_rpc_detach(agx_container_of(node, agx_rpc_link, by_session));
        agx_map_deinit(&rpc->links);
}

/* ---- events in ---- */

/* One event at hand. */
typedef struct taking {
        agx_rpc_link *link;
        const agx_calls_worker *worker;
        uint64_t now;
        agx_rpc_event event;
        agx_rpc_outcome *outcome;
} taking;

static int do_later(taking *t, agx_rpc_todo todo)
{
        t->outcome->todo = todo;
        return 0;
}

static int take_call(taking *t)
{
        agx_view id = t->event.call_id;
        agx_call_request request = {.call_id = id,
                                    .callable = t->event.callable,
                                    .arguments = t->event.arguments,
                                    .context = t->event.context,
                                    .has_stream = t->event.has_stream,
                                    .stream = t->event.stream};
        agx_submit verdict;
        agx_fault fault;
        agx_call *call;

        if (agx_calls_submit(t->link->rpc->calls, &request, agx_rpc_session(t->link), t->now, t->worker, &verdict,
                             &call, &fault))
                return agx_rpc_queue_words(t->link, id, AGX_FAULT_BUSY, "the server is out of memory");
        switch (verdict) {
        case AGX_SUBMIT_STARTED:
                return do_later(t, AGX_RPC_TODO_SEND);
        case AGX_SUBMIT_HELD:
                return do_later(t, AGX_RPC_TODO_WORKER);
        case AGX_SUBMIT_OPEN:
                agx_rpc_take_over(call);
                return call->items.next ? agx_rpc_queue_answer(t->link, id) : 0;
        case AGX_SUBMIT_ENDED:
                if (!call->kept && !call->waiter)
                        agx_ledger_keep(agx_rpc_ledger(t->link), call);
                return agx_rpc_queue_answer(t->link, id);
        case AGX_SUBMIT_FAULT:
                break;
        }
        return agx_rpc_queue_has_answer(t->link, id) ? 0 : agx_rpc_queue_fault(t->link, id, &fault);
}

static int take_cancel(taking *t)
{
        agx_cancel verdict;
        int r = agx_calls_cancel(t->link->rpc->calls, agx_rpc_session(t->link), t->event.call_id,
                                 agx_rpc_grace_ms(&t->event), t->now, &verdict, &t->outcome->call);

        if (r || verdict == AGX_CANCEL_NOTHING)
                return r;
        agx_rpc_take_over(t->outcome->call);
        return do_later(t, verdict == AGX_CANCEL_ENDED ? AGX_RPC_TODO_DELIVER : AGX_RPC_TODO_CANCEL);
}

static int take_credit(taking *t)
{
        agx_call *call = agx_calls_credit(t->link->rpc->calls, agx_rpc_session(t->link), t->event.call_id, t->event.n);

        if (!call)
                return 0;
        t->outcome->call = call;
        t->outcome->credit = t->event.n;
        return do_later(t, AGX_RPC_TODO_CREDIT);
}

static int take_resume(taking *t)
{
        return agx_rpc_queue_list(t->link, t->event.call_ids);
}

/* Who acknowledges an end has been told of it. */
static void ack(agx_rpc_link *link, agx_view id)
{
        agx_ledger_ack(agx_rpc_ledger(link), agx_rpc_session(link), id);
        if (!agx_ledger_open(agx_rpc_ledger(link), id))
                agx_rpc_queue_drop_answer(link, id);
}

static int take_ack(taking *t)
{
        agx_call_acks walk = agx_call_acks_of(t->event.call_ids);
        agx_view id;

        if (t->event.call_id.p)
                ack(t->link, t->event.call_id);
        while (agx_call_acks_next(&walk, &id))
                ack(t->link, id);
        return 0;
}

static int pass_over(taking *t, const char *why)
{
        t->outcome->why = why;
        return do_later(t, AGX_RPC_TODO_NOTE);
}

/* An event that asks for something is answered, somehow, even if it cannot be understood. */
static int unreadable(taking *t, const char *why)
{
        agx_view id = t->event.call_id;
        agx_resume verdict;
        agx_call *call;
        int r;

        if (t->event.kind != AGX_RPC_CALL && t->event.kind != AGX_RPC_RESUME)
                return pass_over(t, why);
        if (t->event.kind == AGX_RPC_RESUME || !id.p)
                return agx_rpc_queue_words(t->link, AGX_VIEW(""), AGX_FAULT_BAD_REQUEST, why);
        r = agx_ledger_resume(agx_rpc_ledger(t->link), agx_rpc_session(t->link), id, t->now, &verdict, &call);
        if (r)
                return r;
        return verdict == AGX_RESUME_NEVER_SEEN ? agx_rpc_queue_words(t->link, id, AGX_FAULT_BAD_REQUEST, why)
                                                : agx_rpc_queue_answer(t->link, id);
}

int agx_rpc_take(agx_rpc_link *link, agx_view name, agx_view payload, uint64_t now, const agx_calls_worker *worker,
                 agx_rpc_outcome *outcome)
{
        static int (*const takers[])(taking *) = {
                [AGX_RPC_CALL] = take_call, [AGX_RPC_CANCEL] = take_cancel, [AGX_RPC_RESUME] = take_resume,
                [AGX_RPC_ACK] = take_ack,   [AGX_RPC_CREDIT] = take_credit,
        };
        agx_rpc_kind kind = agx_rpc_kind_of(name);
        taking t = {.link = link, .worker = worker, .now = now, .outcome = outcome};
        const char *why;

        *outcome = (agx_rpc_outcome){.todo = AGX_RPC_TODO_NOTHING};
        if (!link->rpc)
                return AGX_RPC_E_GONE;
        if (link->failed)
                return agx_trace(-ENOMEM);
        if (kind == AGX_RPC_UNKNOWN || kind >= AGX_RPC_RESULT)
                return pass_over(&t, "an event with a name that is not a host's to use");
        if (!agx_rpc_event_get(kind, payload, &t.event, &why))
                return unreadable(&t, why);
        return takers[kind](&t);
}
