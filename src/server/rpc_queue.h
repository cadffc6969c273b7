#ifndef AGX_SERVER_RPC_QUEUE_H
#define AGX_SERVER_RPC_QUEUE_H
/*
 * What a link has to say: private to rpc.c and rpc_queue.c. The verbs that add return 0 or -ENOMEM.
 */
#include "server/rpc.h"

void agx_rpc_queue_init(agx_rpc_link *link);
void agx_rpc_queue_deinit(agx_rpc_link *link);

/* The end of this call, when it is this entry's turn; nothing is added if it is in the queue already. */
int agx_rpc_queue_answer(agx_rpc_link *link, agx_view id);
bool agx_rpc_queue_has_answer(const agx_rpc_link *link, agx_view id);
/* It need not be said any more. */
void agx_rpc_queue_drop_answer(agx_rpc_link *link, agx_view id);
/* The ends of these calls, a msgpack array, as far as they have ended by then. */
int agx_rpc_queue_list(agx_rpc_link *link, agx_view ids);
/* A fault whose texts are static. */
int agx_rpc_queue_fault(agx_rpc_link *link, agx_view id, const agx_fault *fault);
int agx_rpc_queue_words(agx_rpc_link *link, agx_view id, agx_fault_type type, const char *words);

/* The link is to be looked at, though nothing was added. */
void agx_rpc_queue_touch(agx_rpc_link *link);

/* ---- what both files need ---- */

static inline agx_view agx_rpc_session(const agx_rpc_link *link)
{
        return link->by_session.key;
}

static inline agx_ledger *agx_rpc_ledger(const agx_rpc_link *link)
{
        return link->rpc->calls->ledger;
}

/* Whoever waited for the call does not any more; what it comes to is told here. */
static inline void agx_rpc_take_over(agx_call *call)
{
        agx_waiter *other = call->waiter;

        call->waiter = NULL;
        if (other)
                other->forget(other, call);
}

#endif
