#ifndef AGX_SERVER_LEDGER_H
#define AGX_SERVER_LEDGER_H
/*
 * The one table of calls. At-most-once, one outcome each, whose call it is and what is kept for whom: all of it is
 * decided here, whichever road (HTTP, later Socket.IO) a call, a repeat, a resume, an ack or a cancel came by.
 *
 *     offer -> ACCEPTED -> start -> RUNNING -> finish -> RETAINED -> ack | expiry | eviction -> retired (no entry)
 *
 * An entry exists from ACCEPTED to RETAINED; a retired id is remembered without one: ids of our own form,
 * `<session>-<counter>`, by a low-water mark and a 4,096-bit window per session; foreign ids as 16-byte hashes, the
 * last AGX_LEDGER_FOREIGN_MAX of them. A session is a name the host drew; a request without one belongs to the
 * connection it came by, under a name the server makes for it (agx_ledger never sees connections). An empty name counts
 * as none. A call without a session may be repeated, acknowledged and cancelled by whoever has none either.
 *
 * What is forgotten errs to one side: an id that may have run is answered "dropped", never run again. See sessions.h for
 * what is remembered of a session that had to make room.
 *
 * The ledger is a pure brain: no I/O; time comes in as monotonic milliseconds; nothing calls back. An entry pointer
 * lives until the verb that retires it. Between agx_ledger_finish() and the caller's answered() or keep() that is nobody
 * else's: an ack or a cancel that comes then takes effect with that next verb, and eviction passes the call over. After
 * it, any keep() or answered() of another call, or a tick, may retire it: copy what is to be sent, or find it again.
 *
 * Ids and session names come in checked: at most AGX_MAX_CALL_ID and AGX_MAX_SESSION bytes.
 */
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "server/items.h"

typedef struct agx_ledger agx_ledger;

typedef enum agx_call_state { AGX_CALL_ACCEPTED, AGX_CALL_RUNNING, AGX_CALL_RETAINED } agx_call_state;

typedef struct agx_session agx_session; /* private to the ledger: sessions.h */

typedef struct agx_call {
        agx_map_node by_id; /* key: the call id, owned */
        agx_list in_order;  /* of its state: running calls by age, retained ones by age */
        agx_call_state state;
        agx_session *session;
        bool anonymous;      /* came without a session: belongs to its connection, or to the first that resumes it */
        bool cancelled;      /* a cancel was asked for and passed on */
        uint64_t worker;     /* the worker that runs it (RUNNING) */
        uint64_t expires_ms; /* RETAINED: when it goes by itself; UINT64_MAX: only by ack or eviction */
        void *waiter;        /* the server's: who gets the answer as it comes; NULL: nobody just now */
        bool ok;             /* RETAINED: .payload is a value, else an encoded fault map */
        agx_buf payload;     /* RETAINED */
        bool streams;        /* its host can take a stream */
        agx_items items;     /* if it is one: what it gave before it ends, or ended */
        uint64_t told_by;    /* the server's: on which link its items are being told */

        bool kept; /* RETAINED, and answered() or keep() was called: other verbs may retire it */

        /* Private to ledger.c. */
        agx_list by_expiry;
        size_t bytes; /* of payload and items as they came or are left, whatever the server did with the payload since */
        bool foreign; /* retired into the ring of foreign ids, not its session's window */
        bool dropped; /* acknowledged or cancelled before it was kept: goes with answered() or keep() */

        /* Private to calls.c. */
        bool overdue;      /* the grace of its cancel is over */
        void *held;        /* its frame, while it waits for a worker */
        agx_list by_grace; /* while it runs and a cancel's grace counts */
        uint64_t grace_at;
} agx_call;

static inline agx_view agx_call_id(const agx_call *call)
{
        return call->by_id.key;
}

/* The name of the session it belongs to; absent: anonymous. Lives as long as the entry is that session's. */
agx_view agx_call_session(const agx_call *call);

/* The bounds of limits.h. Tests inject smaller ones. */
typedef struct agx_ledger_bounds {
        size_t calls_max;
        size_t kept_max;
        size_t kept_bytes;
        size_t item_bytes;
        uint64_t inline_ms;
        uint32_t window; /* 1 to AGX_LEDGER_WINDOW */
        size_t sessions_max;
        uint32_t forgotten_max;
        uint32_t foreign_max;
} agx_ledger_bounds;

extern const agx_ledger_bounds agx_ledger_bounds_default;

/* `seed`: 16 random bytes for the hash tables. 0 or -ENOMEM. */
int agx_ledger_new(agx_ledger **ledger, const uint8_t seed[16]);
int agx_ledger_new_bounded(agx_ledger **ledger, const uint8_t seed[16], const agx_ledger_bounds *bounds);
void agx_ledger_free(agx_ledger *ledger);
AGX_DEFINE_CLEANUP_POINTER(agx_ledger, agx_ledger_free)

/* ---- a call or a repeat of one ---- */

typedef enum agx_offer {
        AGX_OFFER_NEW,      /* *call is ACCEPTED and the caller must start it or finish it with a fault */
        AGX_OFFER_OPEN,     /* known, accepted or running: *call */
        AGX_OFFER_RETAINED, /* known, finished, its result is here: *call */
        AGX_OFFER_RETIRED, /* known, finished, result gone; or the id is another session's: ResultUnavailable, "dropped" */
        AGX_OFFER_BUSY     /* AGX_LEDGER_CALLS_MAX calls are open: nothing was recorded, the id may be offered again */
} agx_offer;

/* `session` absent: anonymous. A session that repeats the id of an anonymous call takes it over, as by resume. 0 or
 * -ENOMEM (nothing recorded). */
int agx_ledger_offer(agx_ledger *ledger, agx_view session, agx_view id, uint64_t now_ms, agx_offer *verdict,
                     agx_call **call);
/* Whether an offer of this id would be that of a repeat: it is in the table, or retired. */
bool agx_ledger_knows(const agx_ledger *ledger, agx_view id);
/* ACCEPTED -> RUNNING in `worker`. A call in another state is left alone. */
void agx_ledger_start(agx_ledger *ledger, agx_call *call, uint64_t worker);
/* An open call ends. `payload` is taken over (moved out). The call becomes RETAINED, without expiry, whatever the
 * bounds: the caller then delivers it to call->waiter, if any, and says how with one of the next two verbs.
 * A call that is not open any more keeps its first outcome; the payload is freed. */
void agx_ledger_finish(agx_ledger *ledger, agx_call *call, bool ok, agx_buf *payload);
/* The result was written to a client as the answer of its own request: with a session it is kept
 * AGX_LEDGER_INLINE_MS for a repeat; an anonymous one is retired now. The pointer may be dead afterwards. A repeat that
 * was answered from a retained call may be reported likewise: its time begins anew. */
void agx_ledger_answered(agx_ledger *ledger, agx_call *call, uint64_t now_ms);
/* Nobody could be told: it is kept until ack or eviction (anonymous ones too). Bounds are enforced by dropping the oldest
 * RETAINED calls, which may be this one. */
void agx_ledger_keep(agx_ledger *ledger, agx_call *call);

/* ---- what hosts ask ---- */

typedef enum agx_resume {
        AGX_RESUME_OPEN,       /* still accepted or running: stay silent, the answer will come */
        AGX_RESUME_REPLAY,     /* *call holds the result */
        AGX_RESUME_NEVER_SEEN, /* ResultUnavailable, reason never_seen: it may be sent again */
        AGX_RESUME_DROPPED     /* ResultUnavailable, reason dropped: retired, or another session's */
} agx_resume;
/* `*call` is NULL unless it is open or to be replayed. An anonymous call is taken over by the session that resumes it.
 * 0 or -ENOMEM. */
int agx_ledger_resume(agx_ledger *ledger, agx_view session, agx_view id, uint64_t now_ms, agx_resume *answer,
                      agx_call **call);
/* Retires a RETAINED call of that session; anything else is passed over, running ids included. */
void agx_ledger_ack(agx_ledger *ledger, agx_view session, agx_view id);
/* `*call`: the one to be cancelled, or NULL: unknown, another session's, or finished (then its retained result is
 * dropped). A second cancel gives NULL too. A call that is still ACCEPTED is given as well: the caller finishes it at
 * once. An id of the session's own form that has not come yet is retired: a call that its cancel overtook never runs.
 * 0 or -ENOMEM (nothing was recorded). */
int agx_ledger_cancel(agx_ledger *ledger, agx_view session, agx_view id, agx_call **call);

/* `n` more items of a stream were consumed. The call if it is open, to be passed on to its worker; else NULL. */
agx_call *agx_ledger_credit(agx_ledger *ledger, agx_view session, agx_view id, uint64_t n);

/* ---- what the worker's side asks ---- */

/* An open call that is a stream gives its next item, whose bytes are taken over. 0, AGX_LEDGER_E_FULL: the items that
 * hosts have yet to consume are AGX_LEDGER_ITEM_BYTES already, or -ENOMEM. */
enum { AGX_LEDGER_E_FULL = 1 };
int agx_ledger_add_item(agx_ledger *ledger, agx_call *call, agx_buf *value);

/* The open call with this id, or NULL. */
agx_call *agx_ledger_open(agx_ledger *ledger, agx_view id);
/* Some call RUNNING in `worker`, the oldest first, or NULL: call it and finish each until none is left. */
agx_call *agx_ledger_running_in(agx_ledger *ledger, uint64_t worker);
/* Some ACCEPTED call, the oldest first, or NULL. */
agx_call *agx_ledger_accepted(agx_ledger *ledger);

/* ---- time and bounds ---- */

/* Retires what has expired; gives when to come next (UINT64_MAX: no need). */
uint64_t agx_ledger_tick(agx_ledger *ledger, uint64_t now_ms);

typedef struct agx_ledger_counts {
        size_t open, retained, retained_bytes, sessions, foreign;
        size_t item_bytes; /* of calls that are open */
        uint64_t evicted;  /* results dropped for want of room, ever: the server warns when it moves */
} agx_ledger_counts;
agx_ledger_counts agx_ledger_count(const agx_ledger *ledger);
/* The id whose result was dropped for want of room last; lives until the next verb. Absent: none yet. */
agx_view agx_ledger_last_evicted(const agx_ledger *ledger);

#endif
