/*
 * Faults planted into the very objects, by way of the linker (--wrap): each must be found, by the right words, within so
 * many calls. And the same program without a fault must find none.
 *
 * usage: sim_plants            all of them
 *        sim_plants NAME       one, with what the judge prints
 */
#include "sim.h"

#include "client/state.h"

#include <inttypes.h>
#include <stdlib.h>

enum { CALLS_MAX = 60000, RUN = 150, CLEAN_RUNS = 40 };

static int planted; /* index of the row below, from 1 */
static unsigned long tosses;

/* Now and then, and the same way each time. */
static bool toss(unsigned one_in)
{
        return ++tosses % one_in == 0;
}

typedef enum plant {
        NONE,
        RUNS_TWICE,
        FORGETS_IDS,
        LOSES_RESULTS,
        ANSWERS_STRANGERS,
        STRANGERS_CANCEL,
        ALTERS_VALUES,
        SWALLOWS_CANCELS,
        CONFIRMS_EARLY,
        MISSES_DEATHS,
        RESENDS_TO_OTHERS,
        NEVER_ACKNOWLEDGES,
        FORGETS_CANCELS,
        SKIPS_AN_ITEM,
        LOSES_AN_ITEM,
        TELLS_ITEMS_TWICE,
        PLANTS
} plant;

static const struct {
        const char *name, *words[4];
} plants[PLANTS] = {
        [RUNS_TWICE] = {"runs-twice", {"run twice"}},
        [FORGETS_IDS] = {"forgets-ids", {"run twice", "accepted twice", "accepted after its", "never began"}},
        [LOSES_RESULTS] = {"loses-results", {"a result was lost", "result was lost"}},
        [ANSWERS_STRANGERS] = {"answers-strangers", {"another session"}},
        [STRANGERS_CANCEL] = {"strangers-cancel", {"nobody who may", "result was lost"}},
        [ALTERS_VALUES] = {"alters-values", {"not the bytes"}},
        [SWALLOWS_CANCELS] = {"swallows-cancels", {"open", "not answered"}},
        [CONFIRMS_EARLY] = {"confirms-early", {"never began, but it had", "never would", "side effect after"}},
        [MISSES_DEATHS] = {"misses-deaths", {"open", "without an outcome", "not answered"}},
        [RESENDS_TO_OTHERS] = {"resends-to-others", {"two instances", "run twice"}},
        [NEVER_ACKNOWLEDGES] = {"never-acknowledges", {"kept at the server"}},
        [FORGETS_CANCELS] = {"forgets-cancels", {"accepted after its cancel"}},
        [SKIPS_AN_ITEM] = {"skips-an-item",
                           {"result was lost", "before its items had come"}}, /* the client sees that one is missing */
        [LOSES_AN_ITEM] = {"loses-an-item", {"some are missing", "before its items had come", "not come to an end"}},
        [TELLS_ITEMS_TWICE] = {"tells-items-twice", {"not in order"}},
};

/* ---- the wraps ---- */

int __real_agx_frame_put(agx_buf *out, const agx_frame *frame);
int __wrap_agx_frame_put(agx_buf *out, const agx_frame *frame);
int __wrap_agx_frame_put(agx_buf *out, const agx_frame *frame)
{
        int r = __real_agx_frame_put(out, frame);

        if (!r && planted == RUNS_TWICE && frame->kind == AGX_FRAME_CALL && toss(500))
                return __real_agx_frame_put(out, frame);
        return r;
}

typedef struct agx_sessions agx_sessions;
bool __real_agx_sessions_seen(const agx_sessions *s, agx_view id);
bool __wrap_agx_sessions_seen(const agx_sessions *s, agx_view id);
bool __wrap_agx_sessions_seen(const agx_sessions *s, agx_view id)
{
        return __real_agx_sessions_seen(s, id) && !(planted == FORGETS_IDS && toss(20));
}

void __real_agx_ledger_keep(agx_ledger *l, agx_call *call);
void __wrap_agx_ledger_keep(agx_ledger *l, agx_call *call);
void __wrap_agx_ledger_keep(agx_ledger *l, agx_call *call)
{
        agx_view id = agx_call_id(call), session = agx_call_session(call);
        char id_copy[AGX_MAX_CALL_ID], session_copy[AGX_MAX_SESSION];
        bool lose = planted == LOSES_RESULTS && toss(50);

        memcpy(id_copy, id.p, id.n);
        if (session.n)
                memcpy(session_copy, session.p, session.n);
        __real_agx_ledger_keep(l, call);
        if (lose)
                agx_ledger_ack(l, agx_view_of(session_copy, session.n), agx_view_of(id_copy, id.n));
}

static const char *const hosts[] = {"00112233445566778899aabbccddee00", "00112233445566778899aabbccddee01",
                                    "00112233445566778899aabbccddee02"};

int __real_agx_ledger_resume(agx_ledger *l, agx_view session, agx_view id, uint64_t now_ms, agx_resume *answer,
                             agx_call **call);
int __wrap_agx_ledger_resume(agx_ledger *l, agx_view session, agx_view id, uint64_t now_ms, agx_resume *answer,
                             agx_call **call);
int __wrap_agx_ledger_resume(agx_ledger *l, agx_view session, agx_view id, uint64_t now_ms, agx_resume *answer,
                             agx_call **call)
{
        int r = __real_agx_ledger_resume(l, session, id, now_ms, answer, call);

        for (size_t i = 0; i < 3 && planted == ANSWERS_STRANGERS && !r && *answer == AGX_RESUME_DROPPED; ++i)
                r = __real_agx_ledger_resume(l, agx_view_str(hosts[i]), id, now_ms, answer, call);
        return r;
}

int __real_agx_ledger_cancel(agx_ledger *l, agx_view session, agx_view id, agx_call **call);
int __wrap_agx_ledger_cancel(agx_ledger *l, agx_view session, agx_view id, agx_call **call);
int __wrap_agx_ledger_cancel(agx_ledger *l, agx_view session, agx_view id, agx_call **call)
{
        agx_resume known;
        int r;

        *call = NULL;
        if (planted == FORGETS_CANCELS && !__real_agx_ledger_resume(l, session, id, 0, &known, call) &&
            known == AGX_RESUME_NEVER_SEEN)
                return 0;
        r = __real_agx_ledger_cancel(l, session, id, call);
        for (size_t i = 0; i < 3 && planted == STRANGERS_CANCEL && !r && !*call; ++i)
                r = __real_agx_ledger_cancel(l, agx_view_str(hosts[i]), id, call);
        if (*call && planted == SWALLOWS_CANCELS && toss(2))
                *call = NULL;
        if (*call && planted == CONFIRMS_EARLY && toss(10))
                (*call)->state = AGX_CALL_ACCEPTED;
        return r;
}

void __real_agx_ledger_finish(agx_ledger *l, agx_call *call, bool ok, agx_buf *payload);
void __wrap_agx_ledger_finish(agx_ledger *l, agx_call *call, bool ok, agx_buf *payload);
void __wrap_agx_ledger_finish(agx_ledger *l, agx_call *call, bool ok, agx_buf *payload)
{
        if (ok && payload->len && planted == ALTERS_VALUES && toss(1000))
                payload->data[payload->head + payload->len - 1] ^= 1;
        __real_agx_ledger_finish(l, call, ok, payload);
}

agx_call *__real_agx_calls_worker_died(agx_calls *c, uint64_t worker, const agx_fault *fault);
agx_call *__wrap_agx_calls_worker_died(agx_calls *c, uint64_t worker, const agx_fault *fault);
agx_call *__wrap_agx_calls_worker_died(agx_calls *c, uint64_t worker, const agx_fault *fault)
{
        return planted == MISSES_DEATHS && toss(10) ? NULL : __real_agx_calls_worker_died(c, worker, fault);
}

void __real_agx_calls_instance_changed(agx_client *c, agx_client_call *call);
void __wrap_agx_calls_instance_changed(agx_client *c, agx_client_call *call);
void __wrap_agx_calls_instance_changed(agx_client *c, agx_client_call *call)
{
        if (planted != RESENDS_TO_OTHERS) {
                __real_agx_calls_instance_changed(c, call);
                return;
        }
        agx_calls_unlink(c, call);
        call->generation = 0;
        call->accepted = false;
        agx_calls_queue(c, call);
}

void __real_agx_calls_ack(agx_client *c, uint64_t counter);
void __wrap_agx_calls_ack(agx_client *c, uint64_t counter);
void __wrap_agx_calls_ack(agx_client *c, uint64_t counter)
{
        if (planted != NEVER_ACKNOWLEDGES || !toss(20))
                __real_agx_calls_ack(c, counter);
}

/* At the server, on a new link. */
void __real_agx_items_rewind(agx_items *items);
void __wrap_agx_items_rewind(agx_items *items);
void __wrap_agx_items_rewind(agx_items *items)
{
        uint64_t seq;

        __real_agx_items_rewind(items);
        if (planted == SKIPS_AN_ITEM && agx_items_more(items))
                agx_items_tell(items, &seq);
}

/* At the client: on a new link that begins with items which came before, these once more, or the first new one never. */
bool __real_agx_flow_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc);
bool __wrap_agx_flow_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc);
bool __wrap_agx_flow_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc)
{
        static const agx_client_call *loses;
        bool again = call->synced != c->link_serial && rpc->seq < call->seen;

        if (again && planted == TELLS_ITEMS_TWICE) {
                call->seen = rpc->seq;
                call->consumed = call->consumed < rpc->seq ? call->consumed : rpc->seq;
        }
        if (again && planted == LOSES_AN_ITEM)
                loses = call;
        if (loses == call && rpc->seq == call->seen) {
                loses = NULL;
                ++call->seen;
        }
        return __real_agx_flow_item(c, call, rpc);
}

/* ---- looking for them ---- */

static bool is_expected(plant p, const char *verdict)
{
        for (size_t i = 0; i < 4; ++i)
                if (plants[p].words[i] && strstr(verdict, plants[p].words[i]))
                        return true;
        return false;
}

static bool find(plant p, FILE *report)
{
        uint64_t calls = 0;
        sim_result r;

        planted = (int)p;
        tosses = 0;
        for (uint64_t seed = 1; calls < CALLS_MAX; ++seed) {
                sim_run(seed, RUN, &r, report);
                calls += r.calls;
                if (!r.verdict)
                        continue;
                printf("%-20s found after %" PRIu64 " calls (seed %" PRIu64 "): %s%s\n", plants[p].name, calls, seed,
                       r.verdict, is_expected(p, r.verdict) ? "" : " -- NOT the words it should be found by");
                return is_expected(p, r.verdict);
        }
        printf("%-20s NOT found in %" PRIu64 " calls\n", plants[p].name, calls);
        return false;
}

static bool is_clean(void)
{
        sim_result r;

        planted = NONE;
        for (uint64_t seed = 1; seed <= CLEAN_RUNS; ++seed) {
                sim_run(seed, RUN, &r, stdout);
                if (r.verdict) {
                        printf("without a plant: %s (seed %" PRIu64 ")\n", r.verdict, seed);
                        return false;
                }
        }
        return true;
}

int main(int argc, char **argv)
{
        bool fine = argc > 1 || is_clean();
        size_t found = 0;

        for (int p = 1; p < PLANTS; ++p) {
                if (argc > 1 && strcmp(argv[1], plants[p].name) != 0)
                        continue;
                ++found;
                fine = find((plant)p, argc > 1 ? stdout : NULL) && fine;
        }
        return fine && found ? 0 : 1;
}
