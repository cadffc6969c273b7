#ifndef AGX_SERVER_CALLS_H
#define AGX_SERVER_CALLS_H
/*
 * Between the roads that calls come by and the worker that runs them: a request becomes an entry of the ledger and a
 * frame; a frame, a death or the lack of a worker ends entries. A brain: frames are appended to buffers, ended calls are
 * given back one by one, and the shell delivers each to its waiter.
 *
 * Until a worker is ready, and while much is on its way to it, frames are held here, the oldest of either kind first, and their calls stay
 * ACCEPTED: nothing of them can have run, and those that are cancelled leave nothing behind. When they are too many bytes, new
 * calls are not taken: no entry is made of them, and their hosts may offer them again.
 *
 * A cancel ends such a call at once. One that runs ends when its worker says so; if that takes longer than the grace,
 * agx_calls_overdue() names the worker, which is then to be retired. Several workers may hold calls; each has a number
 * above 0, never used again.
 */
#include "proto/callmsg.h"
#include "proto/frame.h"
#include "server/ledger.h"
#include "worker/bulk.h"

/* Who gets a call's answer as it comes: what agx_call.waiter points to. Each road brings its own. */
typedef struct agx_waiter agx_waiter;
struct agx_waiter {
        /* The call has ended: answer, then tell the ledger how (agx_ledger_answered or agx_ledger_keep). */
        void (*deliver)(agx_waiter *self, agx_call *call);
        /* Somebody else sees to the call from now on. */
        void (*forget)(agx_waiter *self, agx_call *call);
};

typedef struct agx_calls {
        agx_ledger *ledger;
        agx_list held;       /* and those that go in pieces: */
        agx_list held_large; /* they never keep the others waiting */
        size_t held_bytes;
        size_t queue_max; /* AGX_WORKER_QUEUE_BYTES; a test may lower it */
        agx_list graces;  /* cancelled calls that run, by the end of their grace */
        agx_list workers; /* what runs where */
} agx_calls;

/* A worker that takes frames now. */
typedef struct agx_calls_worker {
        uint64_t number;
        agx_buf *out;
        size_t queued;  /* bytes on their way to it, without: */
        agx_bulk *bulk; /* where large frames go; NULL: it does not read frames in pieces */
} agx_calls_worker;

typedef enum agx_submit {
        AGX_SUBMIT_STARTED, /* new: its frame is in worker->out, or ->bulk; it ends later */
        AGX_SUBMIT_HELD,    /* new: waits for a worker, or its turn; it ends later */
        AGX_SUBMIT_OPEN,    /* a repeat of one that has not ended */
        AGX_SUBMIT_ENDED,   /* the result is in *call: deliver it */
        AGX_SUBMIT_FAULT    /* no entry; *fault is the answer, its texts static */
} agx_submit;

int agx_calls_init(agx_calls *c, const uint8_t seed[16]);
void agx_calls_deinit(agx_calls *c);

/* Takes a request with its acknowledgements, and its backing if its arguments are large. `worker` NULL: none is ready. 0 or -ENOMEM (nothing was begun). */
int agx_calls_submit(agx_calls *c, const agx_call_request *request, agx_view session, uint64_t now,
                     const agx_calls_worker *worker, agx_submit *verdict, agx_call **call, agx_fault *fault);
/* Starts what was held, as far as `worker` takes it now: there is one, or what was on its way to it has gone out. Gives back a
 * call that could not be (for want of memory) to be delivered; call until NULL. */
agx_call *agx_calls_start_held(agx_calls *c, const agx_calls_worker *worker);

static inline bool agx_calls_any_held(const agx_calls *c)
{
        return !agx_list_empty(&c->held) || !agx_list_empty(&c->held_large);
}

/* Whether the call runs in `worker` and nobody has cancelled it. */
bool agx_calls_runs(const agx_calls *c, uint64_t worker, agx_view call_id);
/* A frame from `worker`: the call it ended, or NULL. `*odd` (may be set only with NULL): static words on a frame that fits nothing. */
agx_call *agx_calls_frame(agx_calls *c, uint64_t worker, const agx_frame *frame, const char **odd);
/* An ITEM from `worker`: the call that has more to be told now, or NULL (then `*odd` may be set). `*ended`: it has ended
 * instead, because too much waits for hosts to consume it: tell the worker (agx_calls_put_cancel) and deliver it. */
agx_call *agx_calls_item(agx_calls *c, uint64_t worker, const agx_frame *frame, bool *ended, const char **odd);
/* A host consumed `n` more items: the call whose worker is to be told (agx_calls_put_credit), or NULL. */
agx_call *agx_calls_credit(agx_calls *c, agx_view session, agx_view id, uint64_t n);
/* Errors of agx_frame_put. */
int agx_calls_put_credit(agx_buf *out, const agx_call *call, uint64_t n);

/* Each gives one ended call at a time, NULL when there are no more. A call whose grace was over ends as cancelled. */
agx_call *agx_calls_worker_died(agx_calls *c, uint64_t worker, const agx_fault *fault);
agx_call *agx_calls_unavailable(agx_calls *c, const agx_fault *fault);

/* ---- cancelling ---- */

typedef enum agx_cancel {
        AGX_CANCEL_NOTHING, /* no such call, it was cancelled before, or it has ended: then its result is dropped */
        AGX_CANCEL_ENDED,   /* it waited for a worker: deliver it */
        AGX_CANCEL_RUNNING  /* put the frame into the buffer of call->worker; from now on its grace counts */
} agx_cancel;

/* `*call`: NULL with AGX_CANCEL_NOTHING. 0 or -ENOMEM: that a call which has yet to come must not run could not be noted. */
int agx_calls_cancel(agx_calls *c, agx_view session, agx_view id, uint64_t grace_ms, uint64_t now, agx_cancel *verdict,
                     agx_call **call);
/* Tells the worker. Errors of agx_frame_put; the grace counts all the same. */
int agx_calls_put_cancel(agx_buf *out, const agx_call *call);

/* When the next grace is over; UINT64_MAX: none counts. */
uint64_t agx_calls_deadline(const agx_calls *c);
/* A worker in which calls have outrun their grace since it was last asked; 0: no more. */
uint64_t agx_calls_overdue(agx_calls *c, uint64_t now);

typedef struct agx_calls_load {
        size_t running;
        size_t overdue; /* of them */
} agx_calls_load;
agx_calls_load agx_calls_load_of(const agx_calls *c, uint64_t worker);

#endif
