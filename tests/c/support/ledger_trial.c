/*
 * One function per operation; each reads what it needs, runs both sides and compares. The first disagreement stops the
 * run. Names come from small sets and counters from a slowly moving range, so that repeats, foreign eyes, windows that
 * move and sessions that make room all happen often.
 */
#include "support/ledger_trial.h"
#include "support/ledger_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_WORKERS = 3, N_SESSIONS = 12, ARMED_EVERY = 8 };

typedef struct run {
        ledger_trial *trial;
        agx_ledger *ledger;
        ledger_model model;
        agx_view rest;
        uint64_t now;
        bool armed;
        const char *wrong;
        /* Ids that were ever accepted: a table of hashes. */
        uint64_t *ran;
        size_t n_ran, room_ran;
} run;

static uint8_t take(run *r)
{
        uint8_t byte = 0;

        if (r->rest.n) {
                byte = (uint8_t)r->rest.p[0];
                r->rest = agx_view_from(r->rest, 1);
        }
        return byte;
}

static void check(run *r, bool ok, const char *what, const char *session, const char *id)
{
        if (ok || r->wrong)
                return;
        r->wrong = what;
        snprintf(r->trial->where, sizeof(r->trial->where), "%s: operation %zu, session \"%s\", id \"%s\"", what,
                 r->trial->operations, session, id);
}

/* ---- names ---- */

static void pick_session(run *r, char session[MODEL_NAME])
{
        static const char *const odd[] = {"", "a-1", "a", "a-"};
        unsigned n = take(r) % (N_SESSIONS + 4);

        if (n < 4)
                snprintf(session, MODEL_NAME, "%s", odd[n]);
        else
                snprintf(session, MODEL_NAME, "s%u", n);
}

static uint64_t pick_counter(run *r)
{
        uint64_t base = r->trial->operations / 200;
        unsigned byte = take(r);

        if (byte == 255)
                return UINT64_MAX - take(r) % 4;
        if (byte >= 250)
                return base + 20 + 8u * take(r);
        return base + byte % 24;
}

/* Mostly an id of the session itself, else another's, or one of no form of ours. */
static void pick_id(run *r, const char *session, char id[MODEL_ID])
{
        static const char *const odd[] = {"-1", "1", "s5", "s5-", "s5-01", "s5-+1", "s5-18446744073709551616", "s5-1x"};
        unsigned byte = take(r), kind = byte % 16;
        char other[MODEL_NAME];

        if (kind < 11 && session[0]) {
                snprintf(id, MODEL_ID, "%s-%llu", session, (unsigned long long)pick_counter(r));
        } else if (kind < 13) {
                pick_session(r, other);
                snprintf(id, MODEL_ID, "%s-%llu", other, (unsigned long long)pick_counter(r));
        } else if (kind == 13) {
                snprintf(id, MODEL_ID, "%s", odd[take(r) % 8]);
        } else {
                snprintf(id, MODEL_ID, "foreign %llu", (unsigned long long)pick_counter(r));
        }
}

/* Half of the time an id that both tables hold, if there is one. */
static void pick_known_id(run *r, char session[MODEL_NAME], char id[MODEL_ID])
{
        const model_call *call;

        pick_session(r, session);
        if (take(r) % 2 || !r->model.n_calls) {
                pick_id(r, session, id);
                return;
        }
        call = &r->model.calls[take(r) % r->model.n_calls];
        snprintf(id, MODEL_ID, "%s", call->id);
        if (take(r) % 4)
                snprintf(session, MODEL_NAME, "%s", call->owner);
}

static model_call *pick_call(run *r)
{
        return r->model.n_calls ? &r->model.calls[take(r) % r->model.n_calls] : NULL;
}

/* An absent view for "". */
static agx_view name_of(const char *session)
{
        return session[0] ? agx_view_str(session) : AGX_VIEW_NULL;
}

/* ---- out of memory ---- */

static void arm(run *r)
{
        unsigned byte = r->trial->oom_arm ? take(r) : 1;

        r->armed = byte % ARMED_EVERY == 0;
        if (r->armed)
                r->trial->oom_arm(1 + byte / ARMED_EVERY % 4);
}

/* Whether the operation failed for want of memory, which it may only if it was made to. */
static bool failed(run *r, int result, const char *session, const char *id)
{
        bool fired = r->armed && r->trial->oom_disarm();

        r->armed = false;
        check(r, result == 0 || (result == -ENOMEM && fired), "a failure without cause", session, id);
        r->trial->failures += result != 0;
        return result != 0;
}

/* ---- comparing ---- */

/* The payload of a call says whose it is. */
static void payload_of(const model_call *call, char text[MODEL_ID + 8])
{
        snprintf(text, MODEL_ID + 8, "%s %s", call->ok ? "value" : "fault", call->id);
}

static void compare_call(run *r, const agx_call *got, const model_call *expected, const char *session, const char *id)
{
        char text[MODEL_ID + 8];

        check(r, (got != NULL) == (expected != NULL), "a call here, none there", session, id);
        if (!got || !expected)
                return;
        check(r, got == expected->real, "another entry", session, id);
        check(r, agx_view_eq(agx_call_id(got), agx_view_str(expected->id)), "another id", session, id);
        check(r, got->state == expected->state, "another state", session, id);
        check(r, got->anonymous == !expected->owner[0], "anonymous or not", session, id);
        check(r, got->cancelled == expected->cancelled, "cancelled or not", session, id);
        if (got->state != AGX_CALL_RETAINED)
                return;
        payload_of(expected, text);
        check(r, got->ok == expected->ok && got->payload.len == expected->bytes, "another outcome", session, id);
        check(r, agx_view_starts(agx_buf_view(&got->payload), agx_view_str(text)), "another payload", session, id);
}

static void compare_heads(run *r)
{
        model_call *accepted = ledger_model_oldest(&r->model, AGX_CALL_ACCEPTED, 0);

        compare_call(r, agx_ledger_accepted(r->ledger), accepted, "accepted", "");
        for (uint64_t worker = 0; worker < N_WORKERS; ++worker)
                compare_call(r, agx_ledger_running_in(r->ledger, 16 * worker),
                             ledger_model_oldest(&r->model, AGX_CALL_RUNNING, 16 * worker), "running", "");
}

static void compare_counts(run *r)
{
        agx_ledger_counts got = agx_ledger_count(r->ledger), expected = ledger_model_count(&r->model);
        agx_view last = agx_ledger_last_evicted(r->ledger);

        check(r, got.open == expected.open, "open calls", "", "");
        check(r, got.retained == expected.retained, "retained calls", "", "");
        check(r, got.retained_bytes == expected.retained_bytes, "retained bytes", "", "");
        check(r, got.sessions == expected.sessions, "sessions", "", "");
        check(r, got.foreign == expected.foreign, "foreign ids", "", "");
        check(r, got.evicted == expected.evicted, "evictions", "", "");
        check(r, agx_view_eq(last, agx_view_str(r->model.last_evicted)), "the last eviction", "", "");
}

/* Notes an accepted id; it must be the first time. */
static void note_run(run *r, const char *session, const char *id)
{
        static const uint64_t seed[2] = {1, 2};
        uint64_t hash = agx_siphash(seed, agx_view_str(id));

        ++r->trial->accepted;
        if (!r->trial->nothing_forgotten)
                return;
        for (size_t i = 0; i < r->n_ran; ++i)
                check(r, r->ran[i] != hash, "an id ran twice", session, id);
        if (r->n_ran == r->room_ran) {
                r->room_ran = r->room_ran ? 2 * r->room_ran : 64;
                r->ran = realloc(r->ran, r->room_ran * sizeof(*r->ran));
        }
        if (r->ran)
                r->ran[r->n_ran++] = hash;
}

/* ---- operations ---- */

static void do_offer(run *r)
{
        char session[MODEL_NAME], id[MODEL_ID];
        agx_offer verdict;
        model_call *expected;
        agx_call *call;
        int result;

        pick_known_id(r, session, id);
        arm(r);
        result = agx_ledger_offer(r->ledger, name_of(session), agx_view_str(id), r->now, &verdict, &call);
        if (failed(r, result, session, id)) {
                ledger_model_touch(&r->model, session);
                return;
        }
        if (verdict == AGX_OFFER_NEW)
                note_run(r, session, id);
        check(r, verdict == ledger_model_offer(&r->model, session, id, &expected), "another verdict", session, id);
        if (expected && verdict == AGX_OFFER_NEW)
                expected->real = call;
        compare_call(r, call, expected, session, id);
}

static void do_start(run *r)
{
        model_call *call = pick_call(r);
        uint64_t worker = 16 * (take(r) % N_WORKERS); /* all in one list */

        if (!call)
                return;
        agx_ledger_start(r->ledger, call->real, worker);
        ledger_model_start(&r->model, call, worker);
}

static void finish(run *r, model_call *call, bool ok, size_t extra)
{
        static const char filler[256];
        agx_buf payload = AGX_BUF_NULL(4096);
        char text[MODEL_ID + 8];

        if (call->state != AGX_CALL_RETAINED)
                call->ok = ok;
        payload_of(call, text);
        if (agx_buf_append_view(&payload, agx_view_str(text)) || agx_buf_append(&payload, filler, extra))
                check(r, false, "out of memory", "", "");
        ledger_model_finish(&r->model, call, ok, payload.len);
        agx_ledger_finish(r->ledger, call->real, ok, &payload);
        check(r, !payload.data && !payload.len, "the payload was not taken", "", call->id);
        compare_call(r, call->real, call, "", call->id);
}

/* Finishing twice is tried as well, on calls that are still the server's. */
static void do_finish(run *r)
{
        model_call *call = pick_call(r);
        uint8_t byte = take(r);

        if (call && !call->kept)
                finish(r, call, byte % 2, byte);
}

static void do_settle(run *r)
{
        model_call *call = pick_call(r);
        bool answered = take(r) % 2;
        agx_call *real;

        if (!call)
                return;
        real = call->real;
        if (answered) {
                ledger_model_answered(&r->model, call, r->now);
                agx_ledger_answered(r->ledger, real, r->now);
        } else {
                ledger_model_keep(&r->model, call);
                agx_ledger_keep(r->ledger, real);
        }
}

static void do_resume(run *r)
{
        char session[MODEL_NAME], id[MODEL_ID];
        model_call *expected;
        agx_resume answer;
        agx_call *call;
        int result;

        pick_known_id(r, session, id);
        arm(r);
        result = agx_ledger_resume(r->ledger, name_of(session), agx_view_str(id), r->now, &answer, &call);
        if (failed(r, result, session, id)) {
                ledger_model_touch(&r->model, session);
                return;
        }
        check(r, answer == ledger_model_resume(&r->model, session, id, &expected), "another answer", session, id);
        compare_call(r, call, expected, session, id);
}

static void do_ack(run *r)
{
        char session[MODEL_NAME], id[MODEL_ID];

        pick_known_id(r, session, id);
        agx_ledger_ack(r->ledger, name_of(session), agx_view_str(id));
        ledger_model_ack(&r->model, session, id);
}

static void do_cancel(run *r)
{
        char session[MODEL_NAME], id[MODEL_ID];
        agx_call *call;
        int result;

        pick_known_id(r, session, id);
        arm(r);
        result = agx_ledger_cancel(r->ledger, name_of(session), agx_view_str(id), &call);
        if (failed(r, result, session, id)) {
                ledger_model_touch(&r->model, session);
                return;
        }
        compare_call(r, call, ledger_model_cancel(&r->model, session, id), session, id);
}

static void do_tick(run *r)
{
        uint64_t next;

        r->now += take(r);
        next = agx_ledger_tick(r->ledger, r->now);
        check(r, next == ledger_model_tick(&r->model, r->now), "another time to come", "", "");
}

static void do_open(run *r)
{
        char session[MODEL_NAME], id[MODEL_ID];
        model_call *expected;

        pick_known_id(r, session, id);
        expected = ledger_model_find(&r->model, id);
        if (expected && expected->state == AGX_CALL_RETAINED)
                expected = NULL;
        compare_call(r, agx_ledger_open(r->ledger, agx_view_str(id)), expected, "open", id);
}

/* A worker dies: every call it holds ends, and none is left. */
static void do_death(run *r)
{
        uint64_t worker = 16 * (take(r) % N_WORKERS);
        model_call *call;

        while ((call = ledger_model_oldest(&r->model, AGX_CALL_RUNNING, worker)) && !r->wrong) {
                compare_call(r, agx_ledger_running_in(r->ledger, worker), call, "death", call->id);
                finish(r, call, false, 9);
                agx_ledger_keep(r->ledger, call->real);
                ledger_model_keep(&r->model, call);
        }
        check(r, !agx_ledger_running_in(r->ledger, worker), "a dead worker's call", "", "");
}

typedef void (*operation)(run *r);

/* By how often. */
static const operation operations[32] = {
        do_offer,  do_offer,  do_offer,  do_offer,  do_offer,  do_offer,  do_offer,  do_offer,
        do_offer,  do_offer,  do_start,  do_start,  do_start,  do_start,  do_start,  do_finish,
        do_finish, do_finish, do_finish, do_finish, do_settle, do_settle, do_settle, do_settle,
        do_settle, do_resume, do_resume, do_ack,    do_ack,    do_cancel, do_tick,   do_open,
};

static void step(run *r)
{
        uint8_t byte = take(r);

        ++r->trial->operations;
        if (byte == 255)
                do_death(r);
        else
                operations[byte % 32](r);
        compare_counts(r);
        compare_heads(r);
}

const char *ledger_trial_run(ledger_trial *trial, agx_view bytes)
{
        static const uint8_t seed[16] = "0123456789abcde";
        run r = {.trial = trial, .rest = bytes};

        if (agx_ledger_new_bounded(&r.ledger, seed, &trial->ledger))
                return "no ledger";
        ledger_model_init(&r.model, &trial->model);
        while (r.rest.n && !r.wrong)
                step(&r);
        agx_ledger_free(r.ledger);
        ledger_model_deinit(&r.model);
        free(r.ran);
        return r.wrong;
}
