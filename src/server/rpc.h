#ifndef AGX_SERVER_RPC_H
#define AGX_SERVER_RPC_H
/*
 * The road `/rpc`: calls as events, over whatever carries events. A brain over calls.h and the ledger.
 *
 * A link is one connection that has joined the namespace, under the name of its session or under one of its own. Of each
 * session the link that joined last is the one that counts; the one before is replaced, and its shell closes it. A link
 * holds no calls: an end is looked up by the call's session when it comes, so calls outlive every link.
 *
 *     agx_rpc_attach()   it joins
 *     agx_rpc_take()     an event came: the outcome says what is left for the shell to do
 *     agx_rpc_streams()  a call has another item
 *     agx_rpc_due()      after anything that may have ended calls: a link that has something to say
 *     agx_rpc_next()     what it says, piece by piece, as far as its peer takes it
 *     agx_rpc_detach()   it left, or was lost
 *
 * What a link has to say is a list of ids; what is said of each is decided when it is said. So results wait in the ledger
 * under its bounds, and one that had to go in between is told as gone. The list itself is bounded by the calls that are
 * open, if the shell takes no more events from a link while agx_rpc_queued() is not small.
 *
 * rpc.waiter waits for every call that nobody else waits for: the shell gives each ended call to call->waiter, or to
 * this one if that is NULL.
 *
 * Without memory a link is closed (a negative error): its host joins again and resumes what it waits for. Times are
 * monotonic milliseconds.
 */
#include "base/map.h"
#include "proto/limits.h"
#include "proto/rpc.h"
#include "server/calls.h"

typedef struct agx_rpc {
        agx_calls *calls;
        agx_waiter waiter;
        agx_map links; /* by session */
        agx_list due;
        uint8_t seed[16];
        uint64_t named;    /* links that got a session of their own, ever */
        uint64_t numbered; /* links, ever */
} agx_rpc;

typedef struct agx_rpc_link {
        agx_rpc *rpc; /* NULL: not attached, or no more */
        agx_map_node by_session;
        agx_list due;
        agx_list queue;
        agx_map queued; /* the answers in it, by id */
        size_t n_queued;
        agx_buf head;    /* of what was said last */
        uint64_t number; /* among all links, from 1 */
        bool failed;     /* there was no memory for something it had to say */
        char session[AGX_MAX_SESSION];
} agx_rpc_link;

enum {
        AGX_RPC_E_SESSION = 1, /* attach: no name for a session */
        AGX_RPC_E_GONE,        /* take, next: replaced or detached, close it */
        AGX_RPC_E_NONE         /* next: nothing to say for now */
};

/* `seed`: 16 random bytes for the hash tables. */
void agx_rpc_init(agx_rpc *rpc, agx_calls *calls, const uint8_t seed[16]);
/* Detaches the links that are left. */
void agx_rpc_deinit(agx_rpc *rpc);

/* Initialises and attaches; the link must not move while it is attached. `session` absent: one of its own. `*replaced`
 * (or NULL) is the link that it took over from, detached already. 0, AGX_RPC_E_SESSION or -ENOMEM. */
int agx_rpc_attach(agx_rpc *rpc, agx_rpc_link *link, agx_view session, agx_rpc_link **replaced);
/* Its calls go on, and what they come to is kept. Safe twice, and on a zeroed link. */
void agx_rpc_detach(agx_rpc_link *link);

typedef enum agx_rpc_todo {
        AGX_RPC_TODO_NOTHING,
        AGX_RPC_TODO_SEND,    /* a frame is in worker->out */
        AGX_RPC_TODO_WORKER,  /* a call waits for a worker: there must be one */
        AGX_RPC_TODO_CANCEL,  /* .call runs: agx_calls_put_cancel() for its worker, and mind agx_calls_deadline() */
        AGX_RPC_TODO_CREDIT,  /* .call runs: agx_calls_put_credit() of .credit for its worker */
        AGX_RPC_TODO_DELIVER, /* .call has ended */
        AGX_RPC_TODO_NOTE     /* the event was passed over; .why, static words, is for the log */
} agx_rpc_todo;

typedef struct agx_rpc_outcome {
        agx_rpc_todo todo;
        agx_call *call;
        uint64_t credit;
        const char *why;
} agx_rpc_outcome;

/* `payload`: the one argument, msgpack. `worker` NULL: none is ready. 0, AGX_RPC_E_GONE or -ENOMEM. */
int agx_rpc_take(agx_rpc_link *link, agx_view name, agx_view payload, uint64_t now, const agx_calls_worker *worker,
                 agx_rpc_outcome *outcome);

/* A call that is a stream has another item: whoever waited for it otherwise is told that it goes on here. */
void agx_rpc_streams(agx_rpc *rpc, agx_call *call);

/* A link that has got something to say since it was last asked for, or NULL. */
agx_rpc_link *agx_rpc_due(agx_rpc *rpc);
/* How many entries its list has. */
static inline size_t agx_rpc_queued(const agx_rpc_link *link)
{
        return link->n_queued;
}

typedef struct agx_rpc_saying {
        agx_view name; /* of the event; static */
        agx_view head; /* its argument's first bytes; live until the link's next verb */
        agx_view body; /* and its other ones, where they lie: until the next verb on the ledger, calls or road */
} agx_rpc_saying;

/* 0, AGX_RPC_E_NONE, AGX_RPC_E_GONE or -ENOMEM. */
int agx_rpc_next(agx_rpc_link *link, uint64_t now, agx_rpc_saying *saying);

#endif
