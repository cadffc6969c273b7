/*
 * Who reads next: leader/follower turn-taking among a worker's threads.
 *
 * One thread at a time leads: it alone reads frames. When it has got a call it either passes the lead on before it runs it, or,
 * if that target has been quick before, keeps the lead, so that a stream of short calls costs no wake-up of another
 * thread. A watcher takes the lead from a keeper that has been busy for a millisecond; it ticks only while calls come.
 *
 * The thread of an event loop leads by other verbs, which never wait: it is given the lead, watches the descriptor in its own
 * way and says when it goes back to that. The watcher takes the lead from a loop that lets frames lie, and from one that has
 * had nothing to read for a while: it may be stuck when the next one comes.
 *
 * None of these verbs needs the interpreter lock; the ones that may wait must be called without it.
 */
#ifndef AGX_EXT_TURNS_H
#define AGX_EXT_TURNS_H

#include "base/view.h"

#include <pthread.h>

enum { AGX_TURNS_SLOTS = 512 };

/* How long a target's calls took of late. */
typedef struct agx_turns_cost {
        uint64_t target; /* hash of its name */
        uint64_t ns;     /* moving average; 0: never measured */
} agx_turns_cost;

typedef struct agx_turns {
        pthread_mutex_t lock;
        pthread_cond_t lead_free;
        pthread_cond_t watch;
        pthread_t watcher;
        bool watcher_runs;
        bool watcher_sleeps;
        bool stop;
        int fd;              /* what is read */
        bool taken;          /* somebody leads */
        bool given;          /* to a loop, which does not know it yet */
        bool loop_waits;     /* a loop leads and waits for the descriptor */
        uint64_t turn;       /* which leadership this is; a leader whose number is not this one has lost it */
        uint64_t busy_since; /* ns, monotonic: the leader keeps the lead and runs a call; 0: it reads */
        uint64_t kept;       /* calls run so far by a leader that kept the lead */
        agx_turns_cost costs[AGX_TURNS_SLOTS];
} agx_turns;

void agx_turns_init(agx_turns *t, int fd);
/* Stops the watcher; no other thread may be in a verb. */
void agx_turns_deinit(agx_turns *t);

/* Returns when the calling thread leads: at once if it still does (then false). Ends the measure of its last call. */
bool agx_turns_take(agx_turns *t);
/* The leader has read something that is no call, or the end: it gives up the lead. */
void agx_turns_leave(agx_turns *t);
/* The leader has read a call of `target` and will run it now: it keeps the lead or passes it on. */
void agx_turns_begin(agx_turns *t, agx_view target);
/* Whether the calling thread, after such a call, still leads. */
bool agx_turns_leads(agx_turns *t);

/* The leader gives the lead to a loop's thread, which has to accept() it soon. False: it keeps it, since nobody can watch. */
bool agx_turns_give(agx_turns *t);
/* Both: whether the calling thread leads now. accept() comes after give(), and is followed by running that call, the lead
 * kept; resume() comes at every turn, and is followed by reading. */
bool agx_turns_accept(agx_turns *t);
bool agx_turns_resume(agx_turns *t);
/* It has read a frame and will deal with it now, keeping the lead; or it will wait until something is sent. */
void agx_turns_keep(agx_turns *t);
/* It has read everything and waits for the descriptor. */
void agx_turns_wait(agx_turns *t);

#endif
