/* Between requests, ledger and worker: what each request becomes, what ends a call, and what it is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "server/calls.h"
#include "support/oom.h"

static const uint8_t seed[16] = {1, 2, 3};

typedef struct rig {
        agx_calls calls;
        agx_buf out;
        agx_bulk bulk;
        agx_calls_worker worker;
        agx_submit verdict;
        agx_call *call;
        agx_fault fault;
} rig;

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        assert_int_equal(agx_calls_init(&r->calls, seed), 0);
        r->out = AGX_BUF_NULL(1 << 20);
        agx_bulk_init(&r->bulk);
        r->worker = (agx_calls_worker){7, &r->out, 0, NULL};
}

static void rig_close(rig *r)
{
        agx_calls_deinit(&r->calls);
        agx_calls_deinit(&r->calls);
        agx_buf_deinit(&r->out);
        agx_bulk_deinit(&r->bulk);
        agx_bulk_deinit(&r->bulk);
}

static agx_call_request request_of(const char *id)
{
        return (agx_call_request){.call_id = agx_view_str(id),
                                  .callable = AGX_VIEW("m::f"),
                                  .arguments = AGX_VIEW("ARGS")};
}

static agx_submit submit(rig *r, const char *id, bool ready)
{
        agx_call_request request = request_of(id);

        assert_int_equal(agx_calls_submit(&r->calls, &request, AGX_VIEW("s"), 0, ready ? &r->worker : NULL, &r->verdict,
                                          &r->call, &r->fault),
                         0);
        return r->verdict;
}

static uint8_t byte_at(size_t i)
{
        return (uint8_t)(i * 31 + i / 251);
}

static void assert_filled(agx_view v)
{
        for (size_t i = 0; i < v.n; i++)
                assert_int_equal((uint8_t)v.p[i], byte_at(i));
}

/* The next frame in `out` must be a call with this id. */
static void assert_sent(rig *r, const char *id)
{
        agx_view in = agx_buf_view(&r->out), payload;
        size_t before = in.n;
        agx_deframer d;
        agx_frame frame;

        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_int_equal(agx_frame_parse(payload, &frame), 0);
        assert_int_equal(frame.kind, AGX_FRAME_CALL);
        assert_true(agx_view_eq(frame.call_id, agx_view_str(id)));
        assert_true(agx_view_eq(frame.callable, AGX_VIEW("m::f")));
        if (frame.arguments.n > 4)
                assert_filled(frame.arguments);
        else
                assert_true(agx_view_eq(frame.arguments, AGX_VIEW("ARGS")));
        agx_buf_consume(&r->out, before - in.n);
        agx_deframer_deinit(&d);
}

static void assert_ended(const agx_call *call, agx_fault_type type, const char *words)
{
        agx_mp_reader reader;
        agx_fault fault;

        assert_non_null(call);
        assert_int_equal(call->state, AGX_CALL_RETAINED); /* NOLINT(clang-analyzer-core.NullDereference): as asserted */
        assert_false(call->ok);
        reader = agx_mp_reader_on(agx_buf_view(&call->payload));
        assert_true(agx_fault_get(&reader, &fault));
        assert_true(agx_view_eq(fault.type, agx_fault_type_text(type)));
        if (words)
                assert_true(agx_view_eq(fault.message, agx_view_str(words)));
}

static agx_frame result_of(const char *id)
{
        return (agx_frame){.kind = AGX_FRAME_RESULT, .call_id = agx_view_str(id), .value = AGX_VIEW("VALUE")};
}

static void a_call_goes_to_a_ready_worker(void **state)
{
        agx_frame result = result_of("s-1");
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_STARTED);
        assert_sent(&r, "s-1");
        assert_int_equal(r.call->state, AGX_CALL_RUNNING);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_OPEN);
        assert_int_equal(r.out.len, 0);
        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &result, &odd), r.call);
        assert_true(r.call->ok);
        assert_memory_equal(r.call->payload.data, "VALUE", 5);
        agx_ledger_keep(r.calls.ledger, r.call);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_ENDED);
        assert_int_equal(r.out.len, 0);
        rig_close(&r);
}

static void a_large_value_is_taken_over_and_a_small_one_copied(void **state)
{
        enum { LARGE = 1 << 20 };
        static char bytes[LARGE + 20];
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        for (size_t n = 100; n <= LARGE; n = n < LARGE ? LARGE : LARGE + 1) {
                agx_buf backing = AGX_BUF_NULL(2 * LARGE);
                agx_frame result = result_of(n == 100 ? "s-1" : "s-2");
                const uint8_t *lay;

                submit(&r, n == 100 ? "s-1" : "s-2", true);
                memset(bytes, (int)n % 7 + 1, sizeof(bytes));
                assert_int_equal(agx_buf_append(&backing, bytes, n + 20), 0);
                lay = backing.data;
                result.value = agx_view_of(backing.data + 15, n);
                result.backing = &backing;
                assert_ptr_equal(agx_calls_frame(&r.calls, 7, &result, &odd), r.call);
                assert_int_equal(r.call->payload.len, n);
                assert_memory_equal(r.call->payload.data + r.call->payload.head, bytes, n);
                assert_int_equal(r.call->payload.data == lay, n == LARGE);
                assert_int_equal(backing.data == NULL, n == LARGE);
                agx_ledger_keep(r.calls.ledger, r.call);
                agx_buf_deinit(&backing);
        }
        rig_close(&r);
}

static void calls_wait_for_a_worker_in_order(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(submit(&r, "s-1", false), AGX_SUBMIT_HELD);
        assert_int_equal(r.call->state, AGX_CALL_ACCEPTED);
        assert_int_equal(submit(&r, "s-2", false), AGX_SUBMIT_HELD);
        assert_int_equal(submit(&r, "s-1", false), AGX_SUBMIT_OPEN);
        assert_null(agx_calls_worker_died(&r.calls, 7, &(agx_fault){0})); /* they did not run there */
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_sent(&r, "s-1");
        assert_sent(&r, "s-2");
        assert_int_equal(r.out.len, 0);
        assert_int_equal(r.calls.held_bytes, 0);
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        rig_close(&r);
}

static void waiting_calls_fail_without_a_worker(void **state)
{
        agx_fault why = {.type = AGX_VIEW("WorkerBootError"), .message = AGX_VIEW("no luck")};
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", false);
        submit(&r, "s-2", false);
        for (int i = 0; i < 2; i++) {
                agx_call *call = agx_calls_unavailable(&r.calls, &why);

                assert_ended(call, AGX_FAULT_WORKER_BOOT, "no luck");
                agx_ledger_keep(r.calls.ledger, call);
        }
        assert_null(agx_calls_unavailable(&r.calls, &why));
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_ENDED); /* and it is not run later */
        rig_close(&r);
}

static void a_death_ends_what_ran_there_and_nothing_else(void **state)
{
        agx_fault why = {.type = AGX_VIEW("WorkerDied"),
                         .message = AGX_VIEW("signal 9"),
                         .has_returncode = true,
                         .returncode = -9};
        agx_call *other;
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", true);
        submit(&r, "s-2", true);
        r.worker.number = 8;
        submit(&r, "s-3", true);
        other = r.call;
        for (int i = 0; i < 2; i++) {
                agx_call *call = agx_calls_worker_died(&r.calls, 7, &why);

                assert_ended(call, AGX_FAULT_WORKER_DIED, "signal 9");
                agx_ledger_keep(r.calls.ledger, call);
        }
        assert_null(agx_calls_worker_died(&r.calls, 7, &why));
        assert_int_equal(other->state, AGX_CALL_RUNNING);
        rig_close(&r);
}

static void an_outcome_counts_only_from_the_worker_that_runs_the_call(void **state)
{
        agx_frame result = result_of("s-1"), item = {.kind = AGX_FRAME_ITEM, .call_id = AGX_VIEW("s-1")};
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        assert_null(agx_calls_frame(&r.calls, 7, &result, &odd)); /* unknown */
        assert_non_null(odd);
        submit(&r, "s-1", false);
        assert_null(agx_calls_frame(&r.calls, 7, &result, &odd)); /* not started */
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_null(agx_calls_frame(&r.calls, 6, &result, &odd)); /* not there */
        assert_null(agx_calls_frame(&r.calls, 7, &item, &odd));   /* not an outcome */
        assert_non_null(odd);
        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &result, &odd), r.call);
        assert_null(odd);
        assert_null(agx_calls_frame(&r.calls, 7, &result, &odd)); /* twice */
        assert_non_null(odd);
        rig_close(&r);
}

static void what_lacks_a_field_ends_as_a_key_error(void **state)
{
        agx_call_request request = request_of("s-1");
        rig r;

        (void)state;
        rig_open(&r);
        request.callable = AGX_VIEW_NULL;
        agx_calls_submit(&r.calls, &request, AGX_VIEW("s"), 0, &r.worker, &r.verdict, &r.call, &r.fault);
        assert_int_equal(r.verdict, AGX_SUBMIT_ENDED);
        assert_ended(r.call, AGX_FAULT_KEY_ERROR, "'callable'");
        request = request_of("s-2");
        request.arguments = AGX_VIEW_NULL;
        agx_calls_submit(&r.calls, &request, AGX_VIEW("s"), 0, NULL, &r.verdict, &r.call, &r.fault);
        assert_ended(r.call, AGX_FAULT_KEY_ERROR, "'arguments'");
        assert_int_equal(r.out.len, 0);
        rig_close(&r);
}

/* Nothing is noted of a call that is not taken: it may come again. Repeats of others, and what is no call, need no room. */
static void what_a_full_queue_refuses_may_come_again(void **state)
{
        agx_call_request request = request_of("s-9");
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_STARTED);
        agx_buf_clear(&r.out);
        r.worker.queued = AGX_WORKER_QUEUE_BYTES;
        assert_int_equal(submit(&r, "s-2", true), AGX_SUBMIT_FAULT);
        assert_null(r.call);
        assert_true(agx_fault_is_not_taken(&r.fault));
        assert_int_equal(submit(&r, "s-3", true), AGX_SUBMIT_FAULT);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_OPEN);
        request.callable = AGX_VIEW_NULL;
        agx_calls_submit(&r.calls, &request, AGX_VIEW("s"), 0, &r.worker, &r.verdict, &r.call, &r.fault);
        assert_ended(r.call, AGX_FAULT_KEY_ERROR, NULL);
        assert_int_equal(agx_ledger_count(r.calls.ledger).open, 1);
        r.worker.queued = 0;
        assert_int_equal(submit(&r, "s-3", true), AGX_SUBMIT_STARTED);
        assert_int_equal(submit(&r, "s-2", true), AGX_SUBMIT_STARTED);
        assert_sent(&r, "s-3");
        assert_sent(&r, "s-2");
        assert_int_equal(submit(&r, "s-2", true), AGX_SUBMIT_OPEN);
        rig_close(&r);
}

/* One that a cancel overtook while it was refused never runs. */
static void what_was_refused_and_cancelled_does_not_come_again(void **state)
{
        agx_cancel verdict;
        rig r;

        (void)state;
        rig_open(&r);
        r.worker.queued = AGX_WORKER_QUEUE_BYTES;
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_FAULT);
        assert_int_equal(agx_calls_cancel(&r.calls, AGX_VIEW("s"), AGX_VIEW("s-1"), 0, 0, &verdict, &r.call), 0);
        assert_int_equal(verdict, AGX_CANCEL_NOTHING);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_FAULT);
        assert_true(agx_view_eq(r.fault.reason, AGX_VIEW("dropped")));
        r.worker.queued = 0;
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_FAULT);
        assert_int_equal(r.out.len, 0);
        rig_close(&r);
}

/* What a target raises cannot be taken for a refusal, after which it would be run again. */
static void an_error_of_a_target_has_no_reason(void **state)
{
        agx_frame frame = {
                .kind = AGX_FRAME_ERROR,
                .call_id = AGX_VIEW("s-1"),
                .fault = {.type = AGX_VIEW("Busy"), .message = AGX_VIEW("m"), .reason = AGX_FAULT_NOT_TAKEN}};
        agx_mp_reader reader;
        agx_fault fault;
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_STARTED);
        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &frame, &odd), r.call);
        reader = agx_mp_reader_on(agx_buf_view(&r.call->payload));
        assert_true(agx_fault_get(&reader, &fault));
        assert_true(agx_view_eq(fault.type, AGX_VIEW("Busy")));
        assert_null(fault.reason.p);
        rig_close(&r);
}

static agx_submit submit_large(rig *r, const char *id, agx_view arguments)
{
        agx_call_request request = request_of(id);

        request.arguments = arguments;
        assert_int_equal(agx_calls_submit(&r->calls, &request, AGX_VIEW("s"), 0, &r->worker, &r->verdict, &r->call,
                                          &r->fault),
                         0);
        return r->verdict;
}

/* While much is on its way to the worker calls are held, in their order; those that are cancelled are dropped with all
 * their bytes, so that the queue is not full of them. */
static void what_was_cancelled_takes_no_room(void **state)
{
        static char large[900 << 10];
        const agx_view arguments = agx_view_of(large, sizeof(large));
        agx_cancel verdict;
        size_t one;
        rig r;

        (void)state;
        rig_open(&r);
        r.worker.queued = AGX_WORKER_QUEUE_BYTES - sizeof(large) * 5 / 2;
        assert_int_equal(submit_large(&r, "s-1", arguments), AGX_SUBMIT_HELD);
        one = r.calls.held_bytes;
        assert_true(one > sizeof(large));
        assert_int_equal(submit_large(&r, "s-2", arguments), AGX_SUBMIT_HELD);
        assert_int_equal(submit_large(&r, "s-3", arguments), AGX_SUBMIT_FAULT);
        assert_true(agx_fault_is_not_taken(&r.fault));
        assert_int_equal(submit(&r, "s-4", true), AGX_SUBMIT_HELD);
        assert_int_equal(agx_calls_cancel(&r.calls, AGX_VIEW("s"), AGX_VIEW("s-1"), 0, 0, &verdict, &r.call), 0);
        assert_int_equal(verdict, AGX_CANCEL_ENDED);
        agx_ledger_keep(r.calls.ledger, r.call);
        assert_true(r.calls.held_bytes < one + 1000);
        assert_int_equal(submit_large(&r, "s-5", arguments), AGX_SUBMIT_HELD);
        assert_int_equal(r.out.len, 0);
        assert_null(agx_calls_start_held(&r.calls, &r.worker)); /* not yet */
        assert_int_equal(r.out.len, 0);
        r.worker.queued = AGX_WORKER_FED_BYTES - 1;
        assert_null(agx_calls_start_held(&r.calls, &r.worker)); /* and then one, and no large one */
        assert_sent(&r, "s-4");
        assert_int_equal(r.out.len, 0);
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_int_equal(r.out.len, one);
        agx_buf_clear(&r.out);
        assert_int_equal(agx_calls_cancel(&r.calls, AGX_VIEW("s"), AGX_VIEW("s-5"), 0, 0, &verdict, &r.call), 0);
        assert_int_equal(verdict, AGX_CANCEL_ENDED);
        agx_ledger_keep(r.calls.ledger, r.call);
        assert_int_equal(r.calls.held_bytes, 0);
        r.worker.queued = 0;
        assert_int_equal(submit(&r, "s-6", true), AGX_SUBMIT_STARTED);
        assert_sent(&r, "s-6");
        rig_close(&r);
}

/* All that the worker is sent, its buffer first. */
static void send_bulk(rig *r)
{
        agx_view body;
        int error;

        while (agx_bulk_next(&r->bulk, &r->out, &body, &error)) {
                assert_int_equal(agx_buf_append_view(&r->out, body), 0);
                assert_int_equal(agx_bulk_sent(&r->bulk, &r->out), 0);
        }
        assert_int_equal(error, 0);
}

static agx_submit submit_in(rig *r, const char *id, agx_buf *backing)
{
        agx_call_request request = request_of(id);

        request.arguments = agx_buf_view(backing);
        request.backing = backing;
        assert_int_equal(agx_calls_submit(&r->calls, &request, AGX_VIEW("s"), 0, &r->worker, &r->verdict, &r->call,
                                          &r->fault),
                         0);
        return r->verdict;
}

static void fill(agx_buf *buf, size_t n)
{
        uint8_t *place;

        *buf = AGX_BUF_NULL(SIZE_MAX);
        assert_int_equal(agx_buf_reserve(buf, n, &place), 0);
        for (size_t i = 0; i < n; i++)
                place[i] = byte_at(i);
        agx_buf_commit(buf, n);
}

static void large_arguments_are_left_where_they_lie(void **state)
{
        agx_buf backing;
        const uint8_t *lies;
        rig r;

        (void)state;
        rig_open(&r);
        r.worker.bulk = &r.bulk;
        fill(&backing, 200000);
        lies = backing.data;
        assert_int_equal(submit_in(&r, "s-1", &backing), AGX_SUBMIT_STARTED);
        assert_null(backing.data);
        assert_int_equal(r.out.len, 0);
        assert_ptr_equal(agx_container_of(r.bulk.middle.next, agx_bulk_frame, node)->body.data, lies);
        send_bulk(&r);
        assert_sent(&r, "s-1");
        fill(&backing, 60000); /* small ones are not */
        assert_int_equal(submit_in(&r, "s-2", &backing), AGX_SUBMIT_STARTED);
        assert_int_equal(backing.len, 60000);
        assert_true(agx_bulk_empty(&r.bulk));
        assert_sent(&r, "s-2");
        agx_buf_deinit(&backing);
        rig_close(&r);
}

/* While a large call is on its way, others of its size are held and small ones are not; without a worker all are, and
 * each kind starts in its order. */
static void small_calls_do_not_wait_for_large_ones(void **state)
{
        agx_buf backing;
        rig r;

        (void)state;
        rig_open(&r);
        r.out.max = 64 << 20;
        r.worker.bulk = &r.bulk;
        fill(&backing, 5 << 20);
        assert_int_equal(submit_in(&r, "s-1", &backing), AGX_SUBMIT_STARTED);
        fill(&backing, 5 << 20);
        assert_int_equal(submit_in(&r, "s-2", &backing), AGX_SUBMIT_HELD);
        assert_null(backing.data);
        assert_true(r.calls.held_bytes > 5 << 20);
        assert_int_equal(submit(&r, "s-3", true), AGX_SUBMIT_STARTED);
        fill(&backing, 100000);
        assert_int_equal(submit_in(&r, "s-4", &backing), AGX_SUBMIT_STARTED);
        assert_sent(&r, "s-3");
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_true(agx_calls_any_held(&r.calls));
        send_bulk(&r);
        assert_sent(&r, "s-4");
        assert_sent(&r, "s-1");
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_int_equal(r.calls.held_bytes, 0);
        send_bulk(&r);
        assert_sent(&r, "s-2");
        assert_int_equal(r.out.len, 0);
        fill(&backing, 5 << 20); /* for a worker that is not there yet, and then reads no pieces */
        r.worker.queued = AGX_WORKER_FED_BYTES;
        r.bulk.large_bytes = AGX_WORKER_FED_BYTES;
        assert_int_equal(submit_in(&r, "s-5", &backing), AGX_SUBMIT_HELD);
        assert_int_equal(submit(&r, "s-6", true), AGX_SUBMIT_HELD);
        r.bulk.large_bytes = 0;
        r.worker = (agx_calls_worker){8, &r.out, 0, NULL};
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_sent(&r, "s-6");
        assert_sent(&r, "s-5");
        assert_int_equal(r.calls.held_bytes, 0);
        rig_close(&r);
}

static void acknowledgements_come_first(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf acks = AGX_BUF_NULL(100);
        agx_mp_writer w = agx_mp_writer_on(&acks);
        agx_frame result = result_of("s-1");
        agx_call_request request = request_of("s-1");
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", true);
        agx_ledger_keep(r.calls.ledger, agx_calls_frame(&r.calls, 7, &result, &odd));
        agx_mp_put_array(&w, 1);
        agx_mp_put_str(&w, AGX_VIEW("s-1"));
        request.acks = agx_buf_view(&acks);
        assert_int_equal(
                agx_calls_submit(&r.calls, &request, AGX_VIEW("s"), 0, &r.worker, &r.verdict, &r.call, &r.fault), 0);
        assert_int_equal(r.verdict, AGX_SUBMIT_FAULT);
        assert_true(agx_view_eq(r.fault.type, AGX_VIEW("ResultUnavailable")));
        assert_true(agx_view_eq(r.fault.reason, AGX_VIEW("dropped")));
        rig_close(&r);
}

/* ---- cancelling ---- */

static agx_cancel cancel(rig *r, const char *id, uint64_t grace, uint64_t now)
{
        agx_cancel verdict;

        assert_int_equal(agx_calls_cancel(&r->calls, AGX_VIEW("s"), agx_view_str(id), grace, now, &verdict, &r->call),
                         0);
        return verdict;
}

static agx_call *call_of(rig *r, const char *id)
{
        return agx_ledger_open(r->calls.ledger, agx_view_str(id));
}

static void a_call_that_waits_is_cancelled_at_once_and_never_runs(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", false);
        submit(&r, "s-2", false);
        submit(&r, "s-3", false);
        assert_int_equal(cancel(&r, "s-2", 5000, 0), AGX_CANCEL_ENDED);
        assert_ended(r.call, AGX_FAULT_CANCELLED, NULL);
        agx_ledger_keep(r.calls.ledger, r.call);
        assert_true(agx_calls_deadline(&r.calls) == UINT64_MAX);
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_sent(&r, "s-1");
        assert_sent(&r, "s-3");
        assert_int_equal(r.out.len, 0);
        assert_int_equal(r.calls.held_bytes, 0);
        assert_int_equal(submit(&r, "s-2", true), AGX_SUBMIT_ENDED);
        assert_int_equal(r.out.len, 0);
        rig_close(&r);
}

static void a_stray_cancel_means_nothing(void **state)
{
        agx_frame result = result_of("s-1");
        agx_cancel verdict;
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(cancel(&r, "s-9", 0, 0), AGX_CANCEL_NOTHING); /* it has not come */
        assert_null(r.call);
        assert_int_equal(submit(&r, "s-9", true), AGX_SUBMIT_FAULT); /* and never runs when it does */
        assert_true(agx_view_eq(r.fault.reason, AGX_VIEW("dropped")));
        assert_int_equal(r.out.len, 0);
        submit(&r, "s-1", true);
        assert_int_equal(agx_calls_cancel(&r.calls, AGX_VIEW("t"), AGX_VIEW("s-1"), 0, 0, &verdict, &r.call), 0);
        assert_int_equal(verdict, AGX_CANCEL_NOTHING);
        assert_int_equal(cancel(&r, "s-1", 100, 0), AGX_CANCEL_RUNNING);
        assert_int_equal(cancel(&r, "s-1", 0, 0), AGX_CANCEL_NOTHING); /* twice */
        assert_true(agx_calls_deadline(&r.calls) == 100);
        agx_ledger_keep(r.calls.ledger, agx_calls_frame(&r.calls, 7, &result, &odd));
        assert_true(agx_calls_deadline(&r.calls) == UINT64_MAX);
        assert_int_equal(cancel(&r, "s-1", 0, 0), AGX_CANCEL_NOTHING); /* ended: its result goes */
        assert_int_equal(submit(&r, "s-1", true), AGX_SUBMIT_FAULT);
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 0);
        rig_close(&r);
}

static void a_running_call_is_cancelled_by_its_worker(void **state)
{
        agx_frame said = {.kind = AGX_FRAME_ERROR,
                          .call_id = AGX_VIEW("s-1"),
                          .fault = {.type = AGX_VIEW("Cancelled"), .message = AGX_VIEW("gone"), .cancelled = true}};
        agx_view in, payload;
        const char *odd;
        agx_deframer d;
        agx_frame frame;
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", true);
        agx_buf_clear(&r.out);
        assert_int_equal(cancel(&r, "s-1", 5000, 10), AGX_CANCEL_RUNNING);
        assert_int_equal(r.call->worker, 7);
        assert_int_equal(agx_calls_put_cancel(&r.out, r.call), 0);
        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        in = agx_buf_view(&r.out);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_int_equal(agx_frame_parse(payload, &frame), 0);
        assert_int_equal(frame.kind, AGX_FRAME_CANCEL);
        assert_true(agx_view_eq(frame.call_id, AGX_VIEW("s-1")));
        agx_deframer_deinit(&d);
        assert_true(agx_calls_deadline(&r.calls) == 5010);
        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &said, &odd), r.call);
        assert_ended(r.call, AGX_FAULT_CANCELLED, "gone");
        assert_true(agx_calls_deadline(&r.calls) == UINT64_MAX);
        assert_int_equal(agx_calls_overdue(&r.calls, 6000), 0);
        rig_close(&r);
}

static void graces_end_in_order(void **state)
{
        static const uint64_t graces[] = {300, 100, 200, 100, 300, 0};
        static const uint64_t ends[] = {0, 100, 100, 200, 300, 300};
        uint64_t now = 0;
        rig r;

        (void)state;
        rig_open(&r);
        for (size_t i = 0; i < 6; i++) {
                char id[8] = {'s', '-', (char)('1' + i)};

                r.worker.number = 10 + i;
                submit(&r, id, true);
                assert_int_equal(cancel(&r, id, graces[i], 0), AGX_CANCEL_RUNNING);
        }
        for (size_t i = 0; i < 6; i++) {
                uint64_t worker;

                assert_true(agx_calls_deadline(&r.calls) == ends[i] || now == ends[i]);
                now = ends[i];
                worker = agx_calls_overdue(&r.calls, now);
                assert_in_range(worker, 10, 15);
                assert_int_equal(graces[worker - 10], now);
        }
        assert_int_equal(agx_calls_overdue(&r.calls, 1000), 0);
        assert_true(agx_calls_deadline(&r.calls) == UINT64_MAX);
        rig_close(&r);
}

/* What a call that outran its grace does to its worker's tally, and how it ends when the worker does. */
static void an_overdue_call_ends_as_cancelled_with_its_worker(void **state)
{
        agx_fault why = {.type = AGX_VIEW("WorkerDied"), .message = AGX_VIEW("signal 9")};
        agx_calls_load load;
        agx_call *stuck, *patient, *other;
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", true);
        submit(&r, "s-2", true);
        submit(&r, "s-3", true);
        stuck = call_of(&r, "s-1");
        patient = call_of(&r, "s-2");
        other = call_of(&r, "s-3");
        cancel(&r, "s-1", 100, 0);
        cancel(&r, "s-2", 9000, 0);
        assert_int_equal(agx_calls_overdue(&r.calls, 99), 0);
        assert_int_equal(agx_calls_overdue(&r.calls, 100), 7);
        assert_int_equal(agx_calls_overdue(&r.calls, 100), 0); /* told once */
        load = agx_calls_load_of(&r.calls, 7);
        assert_int_equal(load.running, 3);
        assert_int_equal(load.overdue, 1);
        for (int i = 0; i < 3; i++) {
                agx_call *call = agx_calls_worker_died(&r.calls, 7, &why);

                if (call == stuck)
                        assert_ended(call, AGX_FAULT_CANCELLED, NULL);
                else
                        assert_ended(call, AGX_FAULT_WORKER_DIED, "signal 9");
                assert_true(call == stuck || call == patient || call == other);
                agx_ledger_keep(r.calls.ledger, call);
        }
        assert_null(agx_calls_worker_died(&r.calls, 7, &why));
        assert_int_equal(agx_calls_load_of(&r.calls, 7).running, 0);
        assert_true(agx_list_empty(&r.calls.workers));
        assert_true(agx_calls_deadline(&r.calls) == UINT64_MAX);
        rig_close(&r);
}

static void an_overdue_call_may_still_end_by_itself(void **state)
{
        agx_frame result = result_of("s-1");
        agx_calls_load load;
        const char *odd;
        rig r;

        (void)state;
        rig_open(&r);
        submit(&r, "s-1", true);
        submit(&r, "s-2", true);
        cancel(&r, "s-1", 0, 5);
        assert_int_equal(agx_calls_overdue(&r.calls, 5), 7);
        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &result, &odd), r.call);
        load = agx_calls_load_of(&r.calls, 7);
        assert_int_equal(load.running, 1);
        assert_int_equal(load.overdue, 0);
        rig_close(&r);
}

/* Whichever allocation fails, a call that was accepted ends, and one that was not leaves no trace. */
static void without_memory_only_that_call_is_lost(void **state)
{
        size_t n = 0;

        (void)state;
        do {
                agx_frame result = result_of("s-1");
                agx_call_request request = request_of("s-1");
                const char *odd;
                rig r;
                int got;

                agx_oom_pause(true);
                rig_open(&r);
                agx_oom_arm(++n);
                agx_oom_pause(false);
                got = agx_calls_submit(&r.calls, &request, AGX_VIEW("s"), 0, &r.worker, &r.verdict, &r.call, &r.fault);
                assert_true(got <= 0);
                if (!got && r.verdict == AGX_SUBMIT_STARTED)
                        assert_ptr_equal(agx_calls_frame(&r.calls, 7, &result, &odd), r.call);
                if (!got)
                        assert_int_equal(r.call->state, AGX_CALL_RETAINED);
                else
                        assert_int_equal(agx_ledger_count(r.calls.ledger).open, 0);
                rig_close(&r);
        } while (agx_oom_disarm());
        assert_true(n > 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_call_goes_to_a_ready_worker),
                cmocka_unit_test(a_large_value_is_taken_over_and_a_small_one_copied),
                cmocka_unit_test(calls_wait_for_a_worker_in_order),
                cmocka_unit_test(waiting_calls_fail_without_a_worker),
                cmocka_unit_test(a_death_ends_what_ran_there_and_nothing_else),
                cmocka_unit_test(an_outcome_counts_only_from_the_worker_that_runs_the_call),
                cmocka_unit_test(what_lacks_a_field_ends_as_a_key_error),
                cmocka_unit_test(what_a_full_queue_refuses_may_come_again),
                cmocka_unit_test(what_was_refused_and_cancelled_does_not_come_again),
                cmocka_unit_test(an_error_of_a_target_has_no_reason),
                cmocka_unit_test(what_was_cancelled_takes_no_room),
                cmocka_unit_test(large_arguments_are_left_where_they_lie),
                cmocka_unit_test(small_calls_do_not_wait_for_large_ones),
                cmocka_unit_test(acknowledgements_come_first),
                cmocka_unit_test(a_call_that_waits_is_cancelled_at_once_and_never_runs),
                cmocka_unit_test(a_stray_cancel_means_nothing),
                cmocka_unit_test(a_running_call_is_cancelled_by_its_worker),
                cmocka_unit_test(graces_end_in_order),
                cmocka_unit_test(an_overdue_call_ends_as_cancelled_with_its_worker),
                cmocka_unit_test(an_overdue_call_may_still_end_by_itself),
                cmocka_unit_test(without_memory_only_that_call_is_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
