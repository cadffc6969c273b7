#ifndef AGX_TEST_RPC_TRIAL_H
#define AGX_TEST_RPC_TRIAL_H
/*
 * The road /rpc under hosts, POSTs, workers and a clock that are driven by bytes, and a checker that keeps a few plain facts
 * about each id and judges every event by them:
 *
 *   - an id is sent to a worker at most once, and one that was said to be unknown has not been sent;
 *   - a call has one outcome, and every telling of it is the same;
 *   - an outcome is told to the call's own session, on its last link, and only if it is owed there: because it was asked
 *     for since, or because the call ended;
 *   - items are told in order, on one link each once, and before the end;
 *   - what is owed is told: in the end nothing is.
 *
 * A polite host asks for an id only if nothing is owed; then an id is told exactly as often as it is asked for.
 */
#include "server/rpc.h"

typedef struct rpc_trial {
        agx_ledger_bounds bounds;
        bool polite;
        bool stutter; /* a planted bug: now and then an end is told twice */
        /* What happened. */
        size_t operations, runs, outcomes, gone, items;
        char where[160];
} rpc_trial;

/* Runs until the bytes are used up, then lets everything end. NULL, or what is wrong in a few words; .where tells more. */
const char *rpc_trial_run(rpc_trial *trial, agx_view bytes);

#endif
