/* The ledger: the promises one by one, then everything at random beside a slow model of it. */
#include "proto/limits.h"
#include "server/ledger.h"
#include "support/ledger_trial.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static const uint8_t seed[16] = "fifteen letters";
static const agx_ledger_bounds small = {
        .calls_max = 3,
        .kept_max = 2,
        .kept_bytes = 100,
        .inline_ms = 50,
        .window = 8,
        .sessions_max = 2,
        .forgotten_max = 2,
        .foreign_max = 3,
};

static agx_ledger *ledger_of(const agx_ledger_bounds *bounds)
{
        agx_ledger *l;

        assert_int_equal(agx_ledger_new_bounded(&l, seed, bounds), 0);
        return l;
}

static agx_offer offer(agx_ledger *l, const char *session, const char *id, agx_call **call)
{
        agx_offer verdict;

        assert_int_equal(agx_ledger_offer(l, agx_view_str(session), agx_view_str(id), 0, &verdict, call), 0);
        assert_int_equal(*call != NULL,
                         verdict == AGX_OFFER_NEW || verdict == AGX_OFFER_OPEN || verdict == AGX_OFFER_RETAINED);
        return verdict;
}

static agx_resume resume(agx_ledger *l, const char *session, const char *id)
{
        agx_resume answer;
        agx_call *call;

        assert_int_equal(agx_ledger_resume(l, agx_view_str(session), agx_view_str(id), 0, &answer, &call), 0);
        assert_int_equal(call != NULL, answer == AGX_RESUME_OPEN || answer == AGX_RESUME_REPLAY);
        return answer;
}

static void finish(agx_ledger *l, agx_call *call, const char *value)
{
        agx_buf payload = AGX_BUF_NULL(4096);

        assert_int_equal(agx_buf_append_view(&payload, agx_view_str(value)), 0);
        agx_ledger_finish(l, call, true, &payload);
}

static agx_call *cancel(agx_ledger *l, const char *session, const char *id)
{
        agx_call *call;

        assert_int_equal(
                agx_ledger_cancel(l, *session ? agx_view_str(session) : AGX_VIEW_NULL, agx_view_str(id), &call), 0);
        return call;
}

/* Accepts, runs and ends a call; the caller settles it. */
static agx_call *ended(agx_ledger *l, const char *session, const char *id, const char *value)
{
        agx_call *call;

        assert_int_equal(offer(l, session, id, &call), AGX_OFFER_NEW);
        agx_ledger_start(l, call, 1);
        finish(l, call, value);
        return call;
}

static void assert_value(const agx_call *call, const char *value)
{
        assert_int_equal(call->state, AGX_CALL_RETAINED);
        assert_true(call->ok && agx_view_eq(agx_buf_view(&call->payload), agx_view_str(value)));
}

static void test_one_life(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call, *again;

        (void)state;
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_NEVER_SEEN);
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW);
        assert_ptr_equal(agx_ledger_accepted(l), call);
        assert_int_equal(offer(l, "s", "s-1", &again), AGX_OFFER_OPEN);
        assert_ptr_equal(again, call);
        agx_ledger_start(l, call, 7);
        assert_null(agx_ledger_accepted(l));
        assert_ptr_equal(agx_ledger_running_in(l, 7), call);
        assert_null(agx_ledger_running_in(l, 8));
        assert_null(agx_ledger_running_in(l, 7 + 16));
        assert_ptr_equal(agx_ledger_open(l, AGX_VIEW("s-1")), call);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_OPEN);
        finish(l, call, "value");
        assert_null(agx_ledger_open(l, AGX_VIEW("s-1")));
        assert_value(call, "value");
        agx_ledger_keep(l, call);
        assert_int_equal(offer(l, "s", "s-1", &again), AGX_OFFER_RETAINED);
        assert_value(again, "value");
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-1"));
        assert_int_equal(offer(l, "s", "s-1", &again), AGX_OFFER_RETIRED);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_DROPPED);
        assert_int_equal(agx_ledger_count(l).retained, 0);
        assert_int_equal(agx_ledger_count(l).retained_bytes, 0);
}

static void test_strangers(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        static const char *const others[] = {"t", ""};
        agx_call *call, *none;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW);
        for (size_t i = 0; i < 2; ++i) {
                assert_int_equal(offer(l, others[i], "s-1", &none), AGX_OFFER_RETIRED);
                assert_int_equal(resume(l, others[i], "s-1"), AGX_RESUME_DROPPED);
                assert_null(cancel(l, others[i], "s-1"));
        }
        assert_false(call->cancelled);
        finish(l, call, "secret");
        agx_ledger_keep(l, call);
        for (size_t i = 0; i < 2; ++i) {
                assert_int_equal(offer(l, others[i], "s-1", &none), AGX_OFFER_RETIRED);
                assert_int_equal(resume(l, others[i], "s-1"), AGX_RESUME_DROPPED);
                agx_ledger_ack(l, agx_view_str(others[i]), AGX_VIEW("s-1"));
                assert_null(cancel(l, others[i], "s-1"));
        }
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-1"));
        for (size_t i = 0; i < 2; ++i) {
                assert_int_equal(offer(l, others[i], "s-1", &none), AGX_OFFER_RETIRED);
                assert_int_equal(resume(l, others[i], "s-1"), AGX_RESUME_DROPPED);
        }
}

/* An id that bears another session's name may be anybody's; whoever is first has it, and it runs once. */
static void test_id_in_another_name(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call, *none;

        (void)state;
        agx_ledger_answered(l, ended(l, "", "s-1", "v"), 0);
        assert_int_equal(offer(l, "s", "s-1", &none), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "t", "s-2", &call), AGX_OFFER_NEW);
        assert_int_equal(offer(l, "s", "s-2", &none), AGX_OFFER_RETIRED);
        finish(l, call, "v");
        agx_ledger_keep(l, call);
        agx_ledger_ack(l, AGX_VIEW("t"), AGX_VIEW("s-2"));
        assert_int_equal(offer(l, "s", "s-2", &none), AGX_OFFER_RETIRED);
        agx_ledger_answered(l, ended(l, "s", "s-3", "v"), 0);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-3"));
        assert_int_equal(offer(l, "t", "s-3", &none), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "", "s-3", &none), AGX_OFFER_RETIRED);
}

static void test_anonymous(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call, *none;

        (void)state;
        assert_int_equal(offer(l, "", "x", &call), AGX_OFFER_NEW);
        assert_true(call->anonymous);
        assert_int_equal(offer(l, "", "x", &none), AGX_OFFER_OPEN);
        /* The first session that resumes it has it from then on. */
        assert_int_equal(resume(l, "s", "x"), AGX_RESUME_OPEN);
        assert_false(call->anonymous);
        assert_int_equal(resume(l, "t", "x"), AGX_RESUME_DROPPED);
        assert_int_equal(offer(l, "", "x", &none), AGX_OFFER_RETIRED);
        assert_ptr_equal(cancel(l, "s", "x"), call);
        finish(l, call, "v");
        agx_ledger_answered(l, call, 0);
        assert_int_equal(resume(l, "s", "x"), AGX_RESUME_REPLAY); /* it has a session now: kept for a repeat */
        /* Without one it is gone once it was answered, and kept if it could not be. */
        agx_ledger_answered(l, ended(l, "", "y", "v"), 0);
        assert_int_equal(offer(l, "", "y", &none), AGX_OFFER_RETIRED);
        agx_ledger_keep(l, ended(l, "", "z", "v"));
        assert_int_equal(offer(l, "", "z", &none), AGX_OFFER_RETAINED);
        assert_int_equal(resume(l, "u", "z"), AGX_RESUME_REPLAY);
        assert_int_equal(resume(l, "s", "z"), AGX_RESUME_DROPPED);
        /* An unknown name is nobody's match. */
        assert_int_equal(offer(l, "", "w", &call), AGX_OFFER_NEW);
        assert_null(cancel(l, "nobody", "w"));
        assert_ptr_equal(cancel(l, "", "w"), call);
}

static void test_cancel(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call, *none;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW);
        assert_ptr_equal(cancel(l, "s", "s-1"), call);
        assert_null(cancel(l, "s", "s-1"));
        assert_int_equal(offer(l, "s", "s-1", &none), AGX_OFFER_OPEN);
        finish(l, call, "too late");
        agx_ledger_keep(l, call);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
        assert_null(cancel(l, "s", "s-1")); /* drops the result */
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_DROPPED);
}

/* A call that its cancel overtook never runs, and its host may know that it did not. */
static void test_cancel_before_the_call(void **state)
{
        static const char *const others[] = {"t", ""};
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call;

        (void)state;
        for (size_t i = 0; i < 2; ++i) /* who has no say in it */
                assert_null(cancel(l, others[i], "s-7"));
        assert_int_equal(agx_ledger_count(l).sessions, 0);
        assert_int_equal(resume(l, "s", "s-7"), AGX_RESUME_NEVER_SEEN);
        assert_null(cancel(l, "s", "s-7"));
        assert_null(cancel(l, "s", "s-7"));
        assert_int_equal(resume(l, "s", "s-7"), AGX_RESUME_DROPPED);
        assert_int_equal(offer(l, "s", "s-7", &call), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "s", "s-6", &call), AGX_OFFER_NEW); /* its neighbours are not meant */
        assert_int_equal(offer(l, "s", "s-8", &call), AGX_OFFER_NEW);
        assert_int_equal(agx_ledger_count(l).open, 2);
        assert_null(cancel(l, "s", "foreign")); /* has no place to be remembered in */
        assert_int_equal(offer(l, "s", "foreign", &call), AGX_OFFER_NEW);
}

/* What cancels leave behind has the bounds of what calls leave behind. */
static void test_cancels_of_many_sessions(void **state)
{
        agx_ledger_bounds bounds = agx_ledger_bounds_default;
        _cleanup_(agx_ledger_freep) agx_ledger *l = NULL;
        char session[16], id[32];
        agx_call *call;

        (void)state;
        bounds.sessions_max = 10;
        bounds.forgotten_max = 20;
        l = ledger_of(&bounds);
        for (unsigned i = 0; i < 100; ++i) {
                snprintf(session, sizeof(session), "s%u", i);
                snprintf(id, sizeof(id), "s%u-5", i);
                assert_null(cancel(l, session, id));
                assert_true(agx_ledger_count(l).sessions <= 10);
        }
        assert_int_equal(offer(l, "s99", "s99-5", &call), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "s85", "s85-5", &call), AGX_OFFER_RETIRED); /* forgotten, all but its mark */
        assert_int_equal(offer(l, "s85", "s85-6", &call), AGX_OFFER_NEW);
}

/* An ack or a cancel while the server still delivers does not pull the entry away. */
static void test_ack_during_delivery(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);

        (void)state;
        for (int keep = 0; keep < 2; ++keep) {
                const char *id = keep ? "s-1" : "s-2";
                agx_call *call = ended(l, "s", id, "v"), *none;

                agx_ledger_ack(l, AGX_VIEW("s"), agx_view_str(id));
                assert_value(call, "v");
                assert_int_equal(resume(l, "s", id), AGX_RESUME_DROPPED);
                assert_int_equal(offer(l, "s", id, &none), AGX_OFFER_RETIRED);
                if (keep)
                        agx_ledger_keep(l, call);
                else
                        agx_ledger_answered(l, call, 0);
                assert_int_equal(agx_ledger_count(l).retained, 0);
                assert_int_equal(offer(l, "s", id, &none), AGX_OFFER_RETIRED);
        }
}

static void test_ack_of_running(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-1"));
        agx_ledger_start(l, call, 1);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-1"));
        finish(l, call, "v");
        agx_ledger_keep(l, call);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
}

/* The first end counts; verbs in the wrong state change nothing. */
static void test_wrong_states(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW);
        agx_ledger_keep(l, call);
        agx_ledger_answered(l, call, 0);
        assert_int_equal(call->state, AGX_CALL_ACCEPTED);
        agx_ledger_start(l, call, 1);
        agx_ledger_start(l, call, 2);
        assert_ptr_equal(agx_ledger_running_in(l, 1), call);
        finish(l, call, "first");
        finish(l, call, "second");
        agx_ledger_start(l, call, 3);
        assert_value(call, "first");
        assert_int_equal(agx_ledger_count(l).retained_bytes, 5);
}

static void test_worker_dies(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        char id[16];
        agx_call *call;

        (void)state;
        for (int i = 0; i < 100; ++i) {
                snprintf(id, sizeof(id), "s-%d", i);
                assert_int_equal(offer(l, "s", id, &call), AGX_OFFER_NEW);
                if (i < 90)
                        agx_ledger_start(l, call, 1 + 16u * (i % 3u));
        }
        for (int i = 0; (call = agx_ledger_running_in(l, 17)); ++i) {
                snprintf(id, sizeof(id), "s-%d", 3 * i + 1);
                assert_true(agx_view_eq(agx_call_id(call), agx_view_str(id))); /* the oldest first */
                finish(l, call, "WorkerDied");
                agx_ledger_keep(l, call);
        }
        assert_int_equal(agx_ledger_count(l).retained, 30);
        assert_int_equal(agx_ledger_count(l).open, 70);
        assert_true(agx_view_eq(agx_call_id(agx_ledger_accepted(l)), AGX_VIEW("s-90")));
}

/* ---- time and bounds ---- */

static void test_expiry(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call;

        (void)state;
        assert_int_equal(agx_ledger_tick(l, 0), UINT64_MAX);
        agx_ledger_answered(l, ended(l, "s", "s-1", "v"), 1000);
        agx_ledger_answered(l, ended(l, "s", "s-2", "v"), 2000);
        agx_ledger_keep(l, ended(l, "s", "s-3", "v"));
        assert_int_equal(agx_ledger_tick(l, 1000), 1000 + AGX_LEDGER_INLINE_MS);
        assert_int_equal(agx_ledger_tick(l, 999 + AGX_LEDGER_INLINE_MS), 1000 + AGX_LEDGER_INLINE_MS);
        /* Answered once more: its time begins anew. */
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_RETAINED);
        agx_ledger_answered(l, call, 3000);
        assert_int_equal(agx_ledger_tick(l, 1000 + AGX_LEDGER_INLINE_MS), 2000 + AGX_LEDGER_INLINE_MS);
        assert_int_equal(agx_ledger_tick(l, 2000 + AGX_LEDGER_INLINE_MS), 3000 + AGX_LEDGER_INLINE_MS);
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_DROPPED);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
        /* The repeat could not be told: then it stays. */
        agx_ledger_keep(l, call);
        assert_int_equal(agx_ledger_tick(l, UINT64_MAX - 1), UINT64_MAX);
        assert_int_equal(agx_ledger_count(l).retained, 2);
}

static void test_eviction_by_count(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);
        agx_call *delivering;

        (void)state;
        assert_null(agx_ledger_last_evicted(l).p);
        delivering = ended(l, "s", "s-0", "v"); /* oldest, but still the server's */
        agx_ledger_keep(l, ended(l, "s", "s-1", "v"));
        agx_ledger_answered(l, ended(l, "s", "s-2", "v"), 0);
        agx_ledger_keep(l, ended(l, "s", "s-3", "v"));
        assert_int_equal(agx_ledger_count(l).evicted, 1);
        assert_true(agx_view_eq(agx_ledger_last_evicted(l), AGX_VIEW("s-1")));
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_DROPPED);
        assert_value(delivering, "v");
        agx_ledger_keep(l, delivering); /* now it is the oldest */
        assert_true(agx_view_eq(agx_ledger_last_evicted(l), AGX_VIEW("s-0")));
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_REPLAY);
        assert_int_equal(resume(l, "s", "s-3"), AGX_RESUME_REPLAY);
}

static void test_eviction_by_bytes(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);
        char big[102] = {0};

        (void)state;
        memset(big, 'x', 60);
        agx_ledger_keep(l, ended(l, "s", "s-1", big));
        agx_ledger_keep(l, ended(l, "s", "s-2", big));
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_DROPPED);
        assert_int_equal(agx_ledger_count(l).retained_bytes, 60);
        memset(big, 'x', 101); /* larger than all that may be kept: goes itself */
        agx_ledger_keep(l, ended(l, "s", "s-3", big));
        assert_int_equal(agx_ledger_count(l).retained, 0);
        assert_int_equal(agx_ledger_count(l).evicted, 3);
        assert_int_equal(resume(l, "s", "s-3"), AGX_RESUME_DROPPED);
}

static void test_busy(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);
        agx_call *first, *call;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &first), AGX_OFFER_NEW);
        assert_int_equal(offer(l, "s", "s-2", &call), AGX_OFFER_NEW);
        assert_int_equal(offer(l, "", "x", &call), AGX_OFFER_NEW);
        for (int i = 0; i < 3; ++i) {
                assert_int_equal(offer(l, "s", "s-3", &call), AGX_OFFER_BUSY);
                assert_int_equal(offer(l, "new", "new-1", &call), AGX_OFFER_BUSY);
                assert_int_equal(offer(l, "s", "s-1000", &call), AGX_OFFER_BUSY); /* moves no window */
                assert_int_equal(resume(l, "s", "s-3"), AGX_RESUME_NEVER_SEEN);
                assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_OPEN); /* known ones are answered */
        }
        assert_int_equal(agx_ledger_count(l).sessions, 1);
        finish(l, first, "v");
        agx_ledger_keep(l, first);
        assert_int_equal(offer(l, "s", "s-3", &call), AGX_OFFER_NEW);
}

static void test_window(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call, *old;

        (void)state;
        assert_int_equal(offer(l, "s", "s-1", &old), AGX_OFFER_NEW);
        agx_ledger_answered(l, ended(l, "s", "s-0", "v"), 0); /* counters may begin at 0 */
        agx_ledger_answered(l, ended(l, "s", "s-4096", "v"), 0);
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_NEVER_SEEN);
        agx_ledger_answered(l, ended(l, "s", "s-4097", "v"), 0);
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_NEVER_SEEN); /* 4,095 behind: told apart */
        agx_ledger_answered(l, ended(l, "s", "s-4098", "v"), 0);
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_DROPPED); /* 4,096 behind: no more */
        assert_int_equal(offer(l, "s", "s-2", &call), AGX_OFFER_RETIRED);
        assert_int_equal(resume(l, "s", "s-3"), AGX_RESUME_NEVER_SEEN);
        assert_int_equal(resume(l, "s", "s-4099"), AGX_RESUME_NEVER_SEEN);
        /* A call that runs all the while keeps its entry, however far the window has moved. */
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_OPEN);
        finish(l, old, "late");
        agx_ledger_keep(l, old);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_REPLAY);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-1"));
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_RETIRED);
        /* To the end of the numbers. */
        agx_ledger_answered(l, ended(l, "s", "s-18446744073709551614", "v"), 0);
        assert_int_equal(offer(l, "s", "s-18446744073709551614", &call), AGX_OFFER_RETAINED);
        assert_int_equal(resume(l, "s", "s-18446744073709551613"), AGX_RESUME_NEVER_SEEN);
        assert_int_equal(resume(l, "s", "s-5000"), AGX_RESUME_DROPPED);
        agx_ledger_answered(l, ended(l, "s", "s-18446744073709551615", "v"), 0); /* one too high: a foreign id */
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-18446744073709551615"));
        assert_int_equal(offer(l, "s", "s-18446744073709551615", &call), AGX_OFFER_RETIRED);
        assert_int_equal(agx_ledger_count(l).foreign, 1);
}

static void test_foreign_forms(void **state)
{
        static const char *const ids[] = {"",     "-",    "s",  "s-",   "s-01", "s-+1",
                                          "s- 1", "s-1x", "-1", "s--1", "t-1",  "\xff\n"};
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_call *call;

        (void)state;
        for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); ++i) {
                agx_ledger_answered(l, ended(l, "s", ids[i], "v"), 0);
                agx_ledger_ack(l, AGX_VIEW("s"), agx_view_str(ids[i]));
                assert_int_equal(agx_ledger_count(l).foreign, i + 1);
        }
        for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); ++i)
                assert_int_equal(offer(l, "s", ids[i], &call), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "s", "s-1", &call), AGX_OFFER_NEW); /* none of them was this one */
}

/* The stated limit of the promise for foreign ids. */
static void test_foreign_ring(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);
        static const char *const ids[] = {"a", "b", "c", "d"};
        agx_call *call;

        (void)state;
        for (size_t i = 0; i < 4; ++i)
                agx_ledger_answered(l, ended(l, "", ids[i], "v"), 0);
        for (size_t i = 1; i < 4; ++i)
                assert_int_equal(offer(l, "", ids[i], &call), AGX_OFFER_RETIRED);
        assert_int_equal(resume(l, "", "a"), AGX_RESUME_NEVER_SEEN);
}

/* What a forgotten session ran is not run again; what it had not run yet, it may run. */
static void test_forgotten_session(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);
        agx_call *call;

        (void)state;
        for (int i = 1; i <= 3; i += 2) {
                char id[8];

                snprintf(id, sizeof(id), "s-%d", i);
                agx_ledger_answered(l, ended(l, "s", id, "v"), 0);
                agx_ledger_ack(l, AGX_VIEW("s"), agx_view_str(id));
        }
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_NEVER_SEEN);
        agx_ledger_keep(l, ended(l, "t", "t-1", "v"));
        agx_ledger_keep(l, ended(l, "u", "u-1", "v")); /* "s" has to go */
        assert_int_equal(agx_ledger_count(l).sessions, 2);
        assert_int_equal(resume(l, "s", "s-1"), AGX_RESUME_DROPPED);
        assert_int_equal(resume(l, "s", "s-2"), AGX_RESUME_DROPPED); /* nobody knows any more: the safe answer */
        assert_int_equal(resume(l, "s", "s-4"), AGX_RESUME_NEVER_SEEN);
        assert_int_equal(offer(l, "s", "s-3", &call), AGX_OFFER_RETIRED);
        assert_int_equal(offer(l, "s", "s-4", &call), AGX_OFFER_NEW);
        assert_int_equal(offer(l, "s", "s-2", &call), AGX_OFFER_RETIRED);
        assert_int_equal(agx_ledger_count(l).sessions, 3); /* all hold calls: none can go */
}

/* The last used ones stay. */
static void test_unused_order(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&small);

        (void)state;
        agx_ledger_answered(l, ended(l, "s", "s-1", "v"), 0);
        agx_ledger_answered(l, ended(l, "t", "t-1", "v"), 0);
        agx_ledger_tick(l, 1000);
        agx_ledger_ack(l, AGX_VIEW("s"), AGX_VIEW("s-9")); /* "s" is used */
        agx_ledger_answered(l, ended(l, "u", "u-1", "v"), 0);
        assert_int_equal(resume(l, "s", "s-0"), AGX_RESUME_NEVER_SEEN); /* still known exactly */
        assert_int_equal(resume(l, "t", "t-0"), AGX_RESUME_DROPPED);
}

/* ---- out of memory ---- */

/* A failed offer or resume leaves everything as it was, at every allocation. */
static void test_offer_out_of_memory(void **state)
{
        static const struct {
                const char *session, *id;
        } rows[] = {{"s", "s-1"}, {"", "x"}, {"s", "foreign"}, {"u", "u-9000"}};

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                agx_view session = agx_view_str(rows[i].session), id = agx_view_str(rows[i].id);
                _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
                agx_offer verdict;
                agx_call *call;
                size_t n = 0;
                int r;

                do {
                        agx_oom_arm(++n);
                        r = agx_ledger_offer(l, session, id, 0, &verdict, &call);
                        if (!agx_oom_disarm())
                                break;
                        assert_int_equal(r, -ENOMEM);
                        assert_null(call);
                        assert_int_equal(agx_ledger_count(l).open + agx_ledger_count(l).sessions, 0);
                        assert_null(agx_ledger_accepted(l));
                        assert_int_equal(resume(l, rows[i].session, rows[i].id), AGX_RESUME_NEVER_SEEN);
                } while (n < 20);
                assert_int_equal(r, 0);
                assert_int_equal(verdict, AGX_OFFER_NEW);
                assert_in_range(n, 3, 12);
        }
}

static void test_takeover_out_of_memory(void **state)
{
        _cleanup_(agx_ledger_freep) agx_ledger *l = ledger_of(&agx_ledger_bounds_default);
        agx_resume answer;
        agx_call *call, *got;
        size_t n = 0;
        int r;

        (void)state;
        assert_int_equal(offer(l, "", "x", &call), AGX_OFFER_NEW);
        do {
                agx_oom_arm(++n);
                r = agx_ledger_resume(l, AGX_VIEW("s"), AGX_VIEW("x"), 0, &answer, &got);
                if (!agx_oom_disarm())
                        break;
                assert_int_equal(r, -ENOMEM);
                assert_true(call->anonymous);
                assert_int_equal(agx_ledger_count(l).sessions, 0);
        } while (n < 20);
        assert_int_equal(answer, AGX_RESUME_OPEN);
        assert_ptr_equal(got, call);
        assert_false(call->anonymous);
}

static void test_new_out_of_memory(void **state)
{
        agx_ledger *l = NULL;

        (void)state;
        agx_oom_arm(1);
        assert_int_equal(agx_ledger_new(&l, seed), -ENOMEM);
        assert_true(agx_oom_disarm());
        agx_ledger_free(l);
        assert_int_equal(agx_ledger_new(&l, seed), 0);
        agx_ledger_free(l);
}

/* ---- beside the model ---- */

static uint64_t random_next(uint64_t *s)
{
        *s ^= *s << 13;
        *s ^= *s >> 7;
        *s ^= *s << 17;
        return *s;
}

static const char *trial(ledger_trial *t, uint64_t s, size_t n_bytes)
{
        uint8_t *bytes = malloc(n_bytes);
        const char *wrong;

        assert_non_null(bytes);
        s = s * 0x9e3779b97f4a7c15u + 1;
        for (size_t i = 0; i < n_bytes; ++i)
                bytes[i] = (uint8_t)(random_next(&s) >> 32);
        wrong = ledger_trial_run(t, agx_view_of(bytes, n_bytes));
        free(bytes);
        if (wrong)
                print_message("%s\n", t->where);
        return wrong;
}

static const agx_ledger_bounds roomy = {
        .calls_max = 24,
        .kept_max = 12,
        .kept_bytes = 2000,
        .inline_ms = 300,
        .window = 16,
        .sessions_max = 5,
        .forgotten_max = 1000000,
        .foreign_max = 1000000,
};

static const agx_ledger_bounds tight = {
        .calls_max = 6,
        .kept_max = 4,
        .kept_bytes = 300,
        .inline_ms = 100,
        .window = 5,
        .sessions_max = 3,
        .forgotten_max = 4,
        .foreign_max = 10,
};

static void test_beside_the_model(void **state)
{
        static const agx_ledger_bounds nothing = {.calls_max = 8, .inline_ms = 10, .window = 1, .sessions_max = 1};
        const agx_ledger_bounds *all[] = {&roomy, &tight, &nothing};
        size_t operations = 0;

        (void)state;
        for (uint64_t s = 1; s <= 6; ++s) {
                const agx_ledger_bounds *bounds = all[s % 3];
                ledger_trial t = {.ledger = *bounds,
                                  .model = *bounds,
                                  .nothing_forgotten = bounds == &roomy,
                                  .oom_arm = agx_oom_arm,
                                  .oom_disarm = agx_oom_disarm};

                assert_null(trial(&t, s, 300000));
                assert_true(t.accepted > t.operations / 200);
                assert_true(t.failures > 20);
                operations += t.operations;
        }
        assert_true(operations > 200000);
}

/* Bugs put in on purpose: the ledger remembers less than it was told. Each must be found, by both checks. */
static void test_planted_bugs_are_found(void **state)
{
        (void)state;
        for (int bug = 0; bug < 6; ++bug) {
                ledger_trial t = {.ledger = roomy, .model = roomy, .nothing_forgotten = true};

                if (bug == 0)
                        t.ledger.foreign_max = 5; /* foreign ids run again */
                else if (bug == 1)
                        t.ledger.forgotten_max = 0; /* forgotten sessions' ids run again */
                else if (bug == 2)
                        t.ledger.window -= 1;
                else if (bug == 3)
                        t.ledger.kept_max += 1;
                else if (bug == 4)
                        t.ledger.inline_ms += 1;
                else
                        t.ledger.sessions_max -= 1;
                assert_non_null(trial(&t, 1, 300000));
                if (bug > 1)
                        continue;
                /* Without the model's help: it makes the same mistake. */
                t = (ledger_trial){.ledger = t.ledger, .model = t.ledger, .nothing_forgotten = true};
                assert_string_equal(trial(&t, 1, 300000), "an id ran twice");
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_one_life),
                cmocka_unit_test(test_strangers),
                cmocka_unit_test(test_id_in_another_name),
                cmocka_unit_test(test_anonymous),
                cmocka_unit_test(test_cancel),
                cmocka_unit_test(test_cancel_before_the_call),
                cmocka_unit_test(test_cancels_of_many_sessions),
                cmocka_unit_test(test_ack_during_delivery),
                cmocka_unit_test(test_ack_of_running),
                cmocka_unit_test(test_wrong_states),
                cmocka_unit_test(test_worker_dies),
                cmocka_unit_test(test_expiry),
                cmocka_unit_test(test_eviction_by_count),
                cmocka_unit_test(test_eviction_by_bytes),
                cmocka_unit_test(test_busy),
                cmocka_unit_test(test_window),
                cmocka_unit_test(test_foreign_forms),
                cmocka_unit_test(test_foreign_ring),
                cmocka_unit_test(test_forgotten_session),
                cmocka_unit_test(test_unused_order),
                cmocka_unit_test(test_offer_out_of_memory),
                cmocka_unit_test(test_takeover_out_of_memory),
                cmocka_unit_test(test_new_out_of_memory),
                cmocka_unit_test(test_beside_the_model),
                cmocka_unit_test(test_planted_bugs_are_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
