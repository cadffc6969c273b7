#ifndef AGX_TEST_LEDGER_TRIAL_H
#define AGX_TEST_LEDGER_TRIAL_H
/*
 * The ledger and the model side by side, driven by bytes: each operation takes a few of them. After every operation
 * verdicts, entries, payloads, counts and heads of lists must agree. Besides, and without the model, no id may ever be
 * accepted twice when the bounds are such that nothing is forgotten.
 */
#include "server/ledger.h"

typedef struct ledger_trial {
        agx_ledger_bounds ledger; /* what the ledger is told */
        agx_ledger_bounds model;  /* what the model is told: another figure is a planted bug */
        bool nothing_forgotten;   /* the second check */
        /* Out of memory on command, as in support/oom.h; may be NULL. */
        void (*oom_arm)(size_t nth);
        bool (*oom_disarm)(void);
        /* What happened. */
        size_t operations, accepted, failures;
        char where[160];
} ledger_trial;

/* NULL, or what went wrong first; trial->where says more. */
const char *ledger_trial_run(ledger_trial *trial, agx_view operations);

#endif
