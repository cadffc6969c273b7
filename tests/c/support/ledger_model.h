#ifndef AGX_TEST_LEDGER_MODEL_H
#define AGX_TEST_LEDGER_MODEL_H
/*
 * What the ledger should do, written the slow way: arrays, linear search, lists of every id ever seen. No window, no
 * hash, no list shared with the ledger. Texts are terminated and short. A session "" is none.
 */
#include "server/ledger.h"

enum { MODEL_ID = 48, MODEL_NAME = 16 };

typedef struct model_call {
        char id[MODEL_ID];
        char owner[MODEL_NAME]; /* "": anonymous */
        agx_call_state state;
        bool foreign, cancelled, kept, dropped, ok;
        uint64_t worker;
        size_t bytes;
        uint64_t since;    /* stamp of entering the state */
        uint64_t expires;  /* UINT64_MAX: never */
        uint64_t answered; /* stamp of the last answer */
        agx_call *real;    /* the ledger's entry */
} model_call;

typedef struct model_session {
        char name[MODEL_NAME];
        uint64_t floor; /* numbers up to it count as seen */
        uint64_t *seen;
        size_t n_seen;
        uint64_t used; /* stamp */
} model_session;

typedef struct model_forgotten {
        char name[MODEL_NAME];
        uint64_t newest;
} model_forgotten;

typedef struct ledger_model {
        agx_ledger_bounds bounds;
        model_call *calls;
        size_t n_calls;
        model_session *sessions;
        size_t n_sessions;
        char (*foreign)[MODEL_ID];
        size_t n_foreign;
        model_forgotten *forgotten;
        size_t n_forgotten;
        uint64_t stamp;
        uint64_t evicted;
        char last_evicted[MODEL_ID];
} ledger_model;

void ledger_model_init(ledger_model *m, const agx_ledger_bounds *bounds);
void ledger_model_deinit(ledger_model *m);

/* The session was heard of; happens even when the verb then fails. */
void ledger_model_touch(ledger_model *m, const char *session);
model_call *ledger_model_find(ledger_model *m, const char *id);
/* The verbs of the ledger. Pointers live until the next verb. */
agx_offer ledger_model_offer(ledger_model *m, const char *session, const char *id, model_call **call);
void ledger_model_start(ledger_model *m, model_call *call, uint64_t worker);
void ledger_model_finish(ledger_model *m, model_call *call, bool ok, size_t bytes);
void ledger_model_answered(ledger_model *m, model_call *call, uint64_t now);
void ledger_model_keep(ledger_model *m, model_call *call);
agx_resume ledger_model_resume(ledger_model *m, const char *session, const char *id, model_call **call);
void ledger_model_ack(ledger_model *m, const char *session, const char *id);
model_call *ledger_model_cancel(ledger_model *m, const char *session, const char *id);
uint64_t ledger_model_tick(ledger_model *m, uint64_t now);
/* The oldest call in a state; of running ones, in that worker. */
model_call *ledger_model_oldest(ledger_model *m, agx_call_state state, uint64_t worker);
agx_ledger_counts ledger_model_count(const ledger_model *m);

#endif
