/* The road /rpc: which events come of which, on which link, and which never do. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "server/rpc.h"
#include "support/oom.h"

static const uint8_t seed[16] = {1, 2, 3};

enum { LINKS = 4 };

/* A POST that waits, as far as this road sees it. */
typedef struct post {
        agx_waiter waiter;
        agx_call *delivered, *forgotten;
} post;

typedef struct rig {
        agx_calls calls;
        agx_rpc rpc;
        agx_rpc_link links[LINKS];
        agx_rpc_link *replaced;
        agx_buf out, payload, said;
        agx_calls_worker worker;
        bool ready; /* the worker */
        uint64_t now;
        agx_rpc_outcome outcome;
        agx_rpc_event heard;
        post post;
} rig;

static void post_deliver(agx_waiter *waiter, agx_call *call)
{
        agx_container_of(waiter, post, waiter)->delivered = call;
}

static void post_forget(agx_waiter *waiter, agx_call *call)
{
        agx_container_of(waiter, post, waiter)->forgotten = call;
}

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        assert_int_equal(agx_calls_init(&r->calls, seed), 0);
        agx_rpc_init(&r->rpc, &r->calls, seed);
        r->out = AGX_BUF_NULL(1 << 20);
        r->payload = AGX_BUF_NULL(1 << 24);
        r->said = AGX_BUF_NULL(1 << 24);
        r->worker = (agx_calls_worker){7, &r->out, 0, NULL};
        r->ready = true;
        r->post.waiter = (agx_waiter){.deliver = post_deliver, .forget = post_forget};
}

static void rig_close(rig *r)
{
        agx_rpc_deinit(&r->rpc);
        agx_calls_deinit(&r->calls);
        agx_buf_deinit(&r->out);
        agx_buf_deinit(&r->payload);
        agx_buf_deinit(&r->said);
}

static agx_rpc_link *join(rig *r, int link, const char *session)
{
        assert_int_equal(agx_rpc_attach(&r->rpc, &r->links[link], agx_view_str(session), &r->replaced), 0);
        return &r->links[link];
}

/* ---- what hosts say ---- */

static int try_event(rig *r, agx_rpc_link *link, const agx_rpc_event *event, const agx_view *ids, size_t n)
{
        bool before = agx_oom_pause(true);
        agx_mp_writer w = agx_mp_writer_on(&r->payload);

        agx_buf_clear(&r->payload);
        agx_rpc_event_put(&w, event, ids, n);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        return agx_rpc_take(link, agx_rpc_kind_text(event->kind), agx_buf_view(&r->payload), r->now,
                            r->ready ? &r->worker : NULL, &r->outcome);
}

static agx_rpc_todo event(rig *r, agx_rpc_link *link, const agx_rpc_event *event, const agx_view *ids, size_t n)
{
        assert_int_equal(try_event(r, link, event, ids, n), 0);
        return r->outcome.todo;
}

static agx_rpc_event call_event(const char *id)
{
        return (agx_rpc_event){.kind = AGX_RPC_CALL,
                               .call_id = agx_view_str(id),
                               .callable = AGX_VIEW("m::f"),
                               .arguments = AGX_VIEW("ARGS")};
}

static agx_rpc_todo call(rig *r, agx_rpc_link *link, const char *id)
{
        agx_rpc_event e = call_event(id);

        return event(r, link, &e, NULL, 0);
}

static agx_rpc_todo cancel(rig *r, agx_rpc_link *link, const char *id)
{
        return event(r, link, &(agx_rpc_event){.kind = AGX_RPC_CANCEL, .call_id = agx_view_str(id)}, NULL, 0);
}

static void ack(rig *r, agx_rpc_link *link, const char *id)
{
        assert_int_equal(event(r, link, &(agx_rpc_event){.kind = AGX_RPC_ACK, .call_id = agx_view_str(id)}, NULL, 0),
                         AGX_RPC_TODO_NOTHING);
}

static void resume(rig *r, agx_rpc_link *link, const char *const *ids, size_t n)
{
        agx_view views[16];

        for (size_t i = 0; i < n; i++)
                views[i] = agx_view_str(ids[i]);
        assert_int_equal(event(r, link, &(agx_rpc_event){.kind = AGX_RPC_RESUME}, views, n), AGX_RPC_TODO_NOTHING);
}

static agx_rpc_todo raw(rig *r, agx_rpc_link *link, const char *name, agx_view payload)
{
        assert_int_equal(agx_rpc_take(link, agx_view_str(name), payload, r->now, &r->worker, &r->outcome), 0);
        return r->outcome.todo;
}

/* ---- what calls come to ---- */

static void deliver(rig *r, agx_call *call)
{
        agx_waiter *waiter = call->waiter ? call->waiter : &r->rpc.waiter;

        waiter->deliver(waiter, call);
}

static void finish_with(rig *r, const char *id, agx_view value)
{
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = agx_view_str(id), .value = value};
        const char *odd;
        agx_call *call = agx_calls_frame(&r->calls, r->worker.number, &frame, &odd);

        assert_non_null(call);
        deliver(r, call);
}

static void finish(rig *r, const char *id)
{
        finish_with(r, id, AGX_VIEW("VALUE"));
}

static void finish_error(rig *r, const char *id, const char *type, bool cancelled)
{
        agx_frame frame = {.kind = AGX_FRAME_ERROR,
                           .call_id = agx_view_str(id),
                           .fault = {.type = agx_view_str(type), .message = AGX_VIEW("m"), .cancelled = cancelled}};
        const char *odd;
        agx_call *call = agx_calls_frame(&r->calls, r->worker.number, &frame, &odd);

        assert_non_null(call);
        deliver(r, call);
}

/* How often calls were sent to the worker. */
static size_t sent(rig *r)
{
        agx_view in = agx_buf_view(&r->out), payload;
        agx_deframer d;
        size_t n = 0;

        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        while (!agx_deframer_next(&d, &in, &payload)) {
                agx_frame frame;

                assert_int_equal(agx_frame_parse(payload, &frame), 0);
                n += frame.kind == AGX_FRAME_CALL;
        }
        agx_deframer_deinit(&d);
        return n;
}

/* ---- what links say ---- */

/* The next event on the link, in r->heard. */
static bool next(rig *r, agx_rpc_link *link)
{
        agx_rpc_saying saying;
        const char *why;
        int got = agx_rpc_next(link, r->now, &saying);

        if (got == AGX_RPC_E_NONE)
                return false;
        assert_int_equal(got, 0);
        agx_buf_clear(&r->said);
        assert_int_equal(agx_buf_append_view(&r->said, saying.head), 0);
        assert_int_equal(agx_buf_append_view(&r->said, saying.body), 0);
        assert_true(agx_rpc_event_get(agx_rpc_kind_of(saying.name), agx_buf_view(&r->said), &r->heard, &why));
        return true;
}

static void assert_quiet(rig *r, agx_rpc_link *link)
{
        assert_false(next(r, link));
        assert_int_equal(agx_rpc_queued(link), 0);
}

static void assert_result(rig *r, agx_rpc_link *link, const char *id)
{
        assert_true(next(r, link));
        assert_int_equal(r->heard.kind, AGX_RPC_RESULT);
        assert_true(agx_view_eq(r->heard.call_id, agx_view_str(id)));
        assert_true(agx_view_eq(r->heard.value, AGX_VIEW("VALUE")));
}

static void assert_error(rig *r, agx_rpc_link *link, const char *id, const char *type)
{
        assert_true(next(r, link));
        assert_int_equal(r->heard.kind, AGX_RPC_ERROR);
        assert_true(agx_view_eq(r->heard.call_id, agx_view_str(id)));
        assert_true(agx_view_eq(r->heard.fault.type, agx_view_str(type)));
}

static void assert_unavailable(rig *r, agx_rpc_link *link, const char *id, const char *reason)
{
        assert_error(r, link, id, "ResultUnavailable");
        assert_true(agx_view_eq(r->heard.fault.reason, agx_view_str(reason)));
}

/* ---- streams ---- */

static agx_rpc_todo stream_call(rig *r, agx_rpc_link *link, const char *id)
{
        agx_rpc_event e = call_event(id);

        e.has_stream = true;
        e.stream = 8;
        return event(r, link, &e, NULL, 0);
}

static agx_call *try_item(rig *r, const char *id, uint64_t seq, agx_view value, bool *ended)
{
        agx_frame frame = {.kind = AGX_FRAME_ITEM, .call_id = agx_view_str(id), .seq = seq, .value = value};
        const char *odd;
        agx_call *call = agx_calls_item(&r->calls, r->worker.number, &frame, ended, &odd);

        assert_int_equal(!call, odd != NULL);
        return call;
}

static void item(rig *r, const char *id, uint64_t seq, const char *value)
{
        bool ended;
        agx_call *call = try_item(r, id, seq, agx_view_str(value), &ended);

        assert_non_null(call);
        assert_false(ended);
        agx_rpc_streams(&r->rpc, call);
}

static agx_rpc_todo credit(rig *r, agx_rpc_link *link, const char *id, uint64_t n)
{
        return event(r, link, &(agx_rpc_event){.kind = AGX_RPC_CREDIT, .call_id = agx_view_str(id), .n = n}, NULL, 0);
}

static void assert_item(rig *r, agx_rpc_link *link, const char *id, uint64_t seq, const char *value)
{
        assert_true(next(r, link));
        assert_int_equal(r->heard.kind, AGX_RPC_ITEM);
        assert_true(agx_view_eq(r->heard.call_id, agx_view_str(id)));
        assert_int_equal(r->heard.seq, seq);
        assert_true(agx_view_eq(r->heard.value, agx_view_str(value)));
}

static void items_are_told_before_the_end(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        assert_int_equal(stream_call(&r, a, "s-1"), AGX_RPC_TODO_SEND);
        item(&r, "s-1", 0, "a");
        assert_ptr_equal(agx_rpc_due(&r.rpc), a);
        assert_item(&r, a, "s-1", 0, "a");
        assert_quiet(&r, a);
        item(&r, "s-1", 1, "b");
        item(&r, "s-1", 2, "c");
        finish(&r, "s-1");
        assert_item(&r, a, "s-1", 1, "b");
        assert_item(&r, a, "s-1", 2, "c");
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        ack(&r, a, "s-1");
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained_bytes, 0);
        rig_close(&r);
}

static void streams_take_turns(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        stream_call(&r, a, "s-1");
        call(&r, a, "s-2");
        stream_call(&r, a, "s-3");
        item(&r, "s-1", 0, "a");
        item(&r, "s-1", 1, "b");
        finish(&r, "s-2");
        item(&r, "s-3", 0, "x");
        assert_item(&r, a, "s-1", 0, "a");
        assert_result(&r, a, "s-2");
        assert_item(&r, a, "s-3", 0, "x");
        assert_item(&r, a, "s-1", 1, "b");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_new_link_hears_what_was_not_consumed(void **state)
{
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        stream_call(&r, a, "s-1");
        for (int i = 0; i < 4; i++)
                item(&r, "s-1", (uint64_t)i, "v");
        for (int i = 0; i < 3; i++)
                assert_item(&r, a, "s-1", (uint64_t)i, "v");
        assert_int_equal(credit(&r, a, "s-1", 2), AGX_RPC_TODO_CREDIT);
        assert_int_equal(r.outcome.credit, 2);
        b = join(&r, 1, "s");
        item(&r, "s-1", 4, "v"); /* before it has asked for anything */
        resume(&r, b, (const char *const[]){"s-1"}, 1);
        for (int i = 2; i < 5; i++)
                assert_item(&r, b, "s-1", (uint64_t)i, "v");
        assert_quiet(&r, b);
        finish(&r, "s-1");
        assert_result(&r, b, "s-1");
        /* Lost again, with its end. */
        a = join(&r, 0, "s");
        resume(&r, a, (const char *const[]){"s-1"}, 1);
        for (int i = 2; i < 5; i++)
                assert_item(&r, a, "s-1", (uint64_t)i, "v");
        assert_result(&r, a, "s-1");
        assert_int_equal(credit(&r, a, "s-1", 3), AGX_RPC_TODO_NOTHING); /* it has ended */
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained_bytes, 5);
        ack(&r, a, "s-1");
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained_bytes, 0);
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_post_is_let_go_when_its_call_streams(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        stream_call(&r, a, "s-1");
        agx_ledger_open(r.calls.ledger, AGX_VIEW("s-1"))->waiter = &r.post.waiter;
        item(&r, "s-1", 0, "a");
        assert_non_null(r.post.forgotten);
        assert_item(&r, a, "s-1", 0, "a");
        rig_close(&r);
}

static void items_and_credit_that_fit_nothing(void **state)
{
        agx_rpc_link *a, *b;
        bool ended;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        b = join(&r, 1, "t");
        call(&r, a, "s-1");
        stream_call(&r, a, "s-2");
        assert_null(try_item(&r, "s-1", 0, AGX_VIEW("v"), &ended)); /* its host takes no stream */
        assert_null(try_item(&r, "s-2", 1, AGX_VIEW("v"), &ended)); /* out of order */
        assert_null(try_item(&r, "s-3", 0, AGX_VIEW("v"), &ended));
        assert_int_equal(credit(&r, b, "s-2", 1), AGX_RPC_TODO_NOTHING); /* another's */
        assert_int_equal(credit(&r, a, "s-1", 1), AGX_RPC_TODO_NOTHING);
        assert_int_equal(credit(&r, a, "s-9", 1), AGX_RPC_TODO_NOTHING);
        item(&r, "s-2", 0, "v");
        finish(&r, "s-2");
        assert_null(try_item(&r, "s-2", 1, AGX_VIEW("v"), &ended)); /* over */
        rig_close(&r);
}

static void too_much_that_nobody_consumes_ends_the_stream(void **state)
{
        agx_ledger_bounds bounds = agx_ledger_bounds_default;
        agx_rpc_link *a;
        agx_call *call;
        bool ended;
        rig r;

        (void)state;
        rig_open(&r);
        agx_ledger_free(r.calls.ledger);
        bounds.item_bytes = 10;
        assert_int_equal(agx_ledger_new_bounded(&r.calls.ledger, seed, &bounds), 0);
        a = join(&r, 0, "s");
        stream_call(&r, a, "s-1");
        item(&r, "s-1", 0, "123456");
        assert_item(&r, a, "s-1", 0, "123456");
        credit(&r, a, "s-1", 1);
        item(&r, "s-1", 1, "1234567890");
        call = try_item(&r, "s-1", 2, AGX_VIEW("1"), &ended);
        assert_non_null(call);
        assert_true(ended);
        deliver(&r, call);
        assert_item(&r, a, "s-1", 1, "1234567890");
        assert_error(&r, a, "s-1", "Busy");
        assert_int_equal(agx_ledger_count(r.calls.ledger).item_bytes, 0);
        rig_close(&r);
}

/* ---- calls ---- */

static void a_result_is_sent_the_moment_it_is_there(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_SEND);
        assert_int_equal(sent(&r), 1);
        assert_null(agx_rpc_due(&r.rpc));
        assert_quiet(&r, a);
        finish(&r, "s-1");
        assert_ptr_equal(agx_rpc_due(&r.rpc), a);
        assert_null(agx_rpc_due(&r.rpc));
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 1);
        ack(&r, a, "s-1");
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 0);
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_large_value_lies_where_it_lies(void **state)
{
        agx_rpc_saying saying;
        const agx_call *kept;
        agx_rpc_link *a;
        agx_view large;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        for (size_t i = 0; i < 1 << 20; i++)
                assert_int_equal(agx_buf_append(&r.payload, "v", 1), 0);
        large = agx_buf_view(&r.payload);
        {
                _cleanup_(agx_buf_deinitp) agx_buf value = AGX_BUF_NULL(1 << 21);

                assert_int_equal(agx_buf_append_view(&value, large), 0);
                call(&r, a, "s-1");
                kept = agx_ledger_open(r.calls.ledger, AGX_VIEW("s-1"));
                finish_with(&r, "s-1", agx_buf_view(&value));
        }
        assert_int_equal(agx_rpc_next(a, 0, &saying), 0);
        assert_ptr_equal(saying.body.p, agx_buf_view(&kept->payload).p);
        assert_int_equal(saying.body.n, 1 << 20);
        assert_in_range(saying.head.n, 20, 60);
        rig_close(&r);
}

static void an_error_is_sent_likewise(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        finish_error(&r, "s-1", "ValueError", false);
        assert_error(&r, a, "s-1", "ValueError");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_call_waits_for_a_worker(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        r.ready = false;
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_WORKER);
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_NOTHING);
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        finish(&r, "s-1");
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_repeat_acts_as_a_resume(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_NOTHING);
        assert_quiet(&r, a);
        finish(&r, "s-1");
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_NOTHING); /* it is about to be told anyway */
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        call(&r, a, "s-1");
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        ack(&r, a, "s-1");
        call(&r, a, "s-1");
        assert_unavailable(&r, a, "s-1", "dropped");
        assert_quiet(&r, a);
        assert_int_equal(sent(&r), 1);
        rig_close(&r);
}

static void what_lacks_a_field_is_its_own_failure(void **state)
{
        agx_rpc_event e = call_event("s-1");
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        e.callable = AGX_VIEW_NULL;
        assert_int_equal(event(&r, a, &e, NULL, 0), AGX_RPC_TODO_NOTHING);
        assert_ptr_equal(agx_rpc_due(&r.rpc), a);
        assert_error(&r, a, "s-1", "KeyError");
        assert_quiet(&r, a);
        call(&r, a, "s-1"); /* that was the call's one end */
        assert_error(&r, a, "s-1", "KeyError");
        assert_int_equal(sent(&r), 0);
        rig_close(&r);
}

static void an_end_without_memory_is_told_as_gone(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        {
                agx_call *c = agx_ledger_open(r.calls.ledger, AGX_VIEW("s-1"));
                agx_buf nothing = AGX_BUF_NULL(1);

                agx_ledger_finish(r.calls.ledger, c, false, &nothing);
                deliver(&r, c);
        }
        assert_unavailable(&r, a, "s-1", "dropped");
        rig_close(&r);
}

/* ---- what cannot be understood ---- */

#define ID                                                                                                             \
        "\xa7"                                                                                                         \
        "call_id\xa3s-1"

static void what_asks_is_answered_even_if_it_is_not_understood(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        assert_int_equal(raw(&r, a, "call", AGX_VIEW("\x80")), AGX_RPC_TODO_NOTHING);
        assert_error(&r, a, "", "BadRequest");
        assert_true(agx_view_eq(r.heard.fault.message, AGX_VIEW("missing call_id")));
        raw(&r, a, "call", AGX_VIEW("no msgpack"));
        assert_error(&r, a, "", "BadRequest");
        raw(&r, a, "resume", AGX_VIEW("\x80"));
        assert_error(&r, a, "", "BadRequest");
        raw(&r, a, "call",
            AGX_VIEW("\x82\xa7"
                     "context\x01" ID));
        assert_error(&r, a, "s-1", "BadRequest");
        assert_quiet(&r, a);
        assert_int_equal(call(&r, a, "s-1"), AGX_RPC_TODO_SEND); /* nothing had begun */
        raw(&r, a, "call",
            AGX_VIEW("\x82\xa7"
                     "context\x01" ID)); /* and now it is a repeat: no second end */
        assert_quiet(&r, a);
        finish(&r, "s-1");
        raw(&r, a, "call",
            AGX_VIEW("\x82\xa7"
                     "context\x01" ID));
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void other_events_are_passed_over(void **state)
{
        static const char *const names[] = {"cancel", "ack", "call:result", "call:error", "item", ""};
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
                assert_int_equal(raw(&r, a, names[i], AGX_VIEW("\xc0")), AGX_RPC_TODO_NOTE);
                assert_non_null(r.outcome.why);
        }
        assert_quiet(&r, a);
        rig_close(&r);
}

/* ---- resume, ack ---- */

static void every_resumed_id_is_answered(void **state)
{
        static const char *const ids[] = {"s-5", "s-1", "", "s-2", "t-1", "s-3", "s-4", "foreign"};
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        b = join(&r, 1, "t");
        for (int i = 1; i <= 4; i++) {
                char id[] = {'s', '-', (char)('0' + i), 0};

                call(&r, a, id);
        }
        call(&r, b, "t-1");
        finish(&r, "s-1");
        finish(&r, "s-2");
        finish_error(&r, "s-4", "ValueError", false);
        while (next(&r, a))
                ;
        ack(&r, a, "s-2");
        resume(&r, a, ids, sizeof(ids) / sizeof(*ids));
        assert_unavailable(&r, a, "s-5", "never_seen");
        assert_result(&r, a, "s-1");
        assert_unavailable(&r, a, "s-2", "dropped");
        assert_unavailable(&r, a, "t-1", "dropped"); /* another session's */
        assert_error(&r, a, "s-4", "ValueError");    /* s-3 runs: silence */
        assert_unavailable(&r, a, "foreign", "never_seen");
        assert_quiet(&r, a);
        finish(&r, "s-3");
        assert_result(&r, a, "s-3");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void what_ends_while_a_resume_is_answered_is_told_once(void **state)
{
        static const char *const ids[] = {"s-1", "s-2", "s-3"};
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        call(&r, a, "s-2");
        call(&r, a, "s-3");
        finish(&r, "s-1");
        assert_result(&r, a, "s-1");
        resume(&r, a, ids, 3);
        assert_result(&r, a, "s-1"); /* the peer takes no more for now */
        finish(&r, "s-3");
        finish(&r, "s-2");
        assert_result(&r, a, "s-3");
        assert_result(&r, a, "s-2");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void an_acknowledged_result_is_gone(void **state)
{
        static const char *const ids[] = {"s-1", "s-2"};
        agx_view views[] = {AGX_VIEW("s-1"), AGX_VIEW("s-3"), AGX_VIEW("t-1")};
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        b = join(&r, 1, "t");
        call(&r, a, "s-1");
        call(&r, a, "s-2");
        call(&r, a, "s-3");
        call(&r, b, "t-1");
        finish(&r, "s-1");
        finish(&r, "t-1");
        assert_result(&r, a, "s-1");
        assert_result(&r, b, "t-1");
        event(&r, a, &(agx_rpc_event){.kind = AGX_RPC_ACK, .call_id = AGX_VIEW("s-2")}, views, 3);
        resume(&r, a, ids, 2);
        assert_unavailable(&r, a, "s-1", "dropped");
        assert_quiet(&r, a); /* the ack of a running call changes nothing */
        finish(&r, "s-2");
        finish(&r, "s-3");
        assert_result(&r, a, "s-2");
        assert_result(&r, a, "s-3");
        call(&r, b, "t-1"); /* nor does that of another session's */
        assert_result(&r, b, "t-1");
        rig_close(&r);
}

static void who_acknowledges_has_been_told(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        finish(&r, "s-1");
        ack(&r, a, "s-1"); /* it had the result by another road */
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_result_that_had_to_go_before_it_was_told_is_told_as_gone(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        for (int i = 0; i <= AGX_LEDGER_KEPT_MAX; i++) {
                char id[16];

                snprintf(id, sizeof(id), "s-%d", i);
                call(&r, a, id);
                finish(&r, id);
                agx_buf_clear(&r.out);
        }
        assert_int_equal(agx_rpc_queued(a), AGX_LEDGER_KEPT_MAX + 1);
        assert_unavailable(&r, a, "s-0", "dropped");
        for (int i = 1; i <= AGX_LEDGER_KEPT_MAX; i++) {
                char id[16];

                snprintf(id, sizeof(id), "s-%d", i);
                assert_result(&r, a, id);
        }
        assert_quiet(&r, a);
        rig_close(&r);
}

/* ---- links ---- */

static void names_of_sessions(void **state)
{
        static const char *const bad[] = {"", " ", "a b", "\0011", "\xc3\xa4", "a\x7f"};
        char name[AGX_MAX_SESSION + 1];
        agx_rpc_link link;
        rig r;

        (void)state;
        rig_open(&r);
        memset(name, 'x', sizeof(name));
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
                assert_int_equal(agx_rpc_attach(&r.rpc, &link, agx_view_str(bad[i]), &r.replaced), AGX_RPC_E_SESSION);
        assert_int_equal(agx_rpc_attach(&r.rpc, &link, agx_view_of(name, AGX_MAX_SESSION + 1), &r.replaced),
                         AGX_RPC_E_SESSION);
        agx_rpc_detach(&link);
        assert_int_equal(agx_rpc_attach(&r.rpc, &link, agx_view_of(name, AGX_MAX_SESSION), &r.replaced), 0);
        agx_rpc_detach(&link);
        agx_rpc_detach(&link);
        assert_int_equal(agx_rpc_next(&link, 0, &(agx_rpc_saying){.head = AGX_VIEW("")}), AGX_RPC_E_GONE);
        rig_close(&r);
}

static void a_new_link_takes_over_at_once(void **state)
{
        static const char *const ids[] = {"s-1", "s-2", "s-3"};
        agx_rpc_saying saying;
        agx_rpc_event e = call_event("s-4");
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        assert_null(r.replaced);
        call(&r, a, "s-1");
        call(&r, a, "s-2");
        call(&r, a, "s-3");
        finish(&r, "s-1");
        assert_result(&r, a, "s-1"); /* and was lost on the way */
        finish(&r, "s-2");           /* never left */
        b = join(&r, 1, "s");
        assert_ptr_equal(r.replaced, a);
        assert_int_equal(agx_rpc_next(a, 0, &saying), AGX_RPC_E_GONE);
        assert_int_equal(try_event(&r, a, &e, NULL, 0), AGX_RPC_E_GONE);
        assert_int_equal(sent(&r), 3);
        assert_ptr_not_equal(agx_rpc_due(&r.rpc), a);
        agx_rpc_detach(a); /* its shell notices later: no harm to the new one */
        assert_quiet(&r, b);
        resume(&r, b, ids, 3);
        assert_result(&r, b, "s-1");
        assert_result(&r, b, "s-2");
        assert_quiet(&r, b);
        finish(&r, "s-3");
        assert_result(&r, b, "s-3");
        assert_quiet(&r, b);
        rig_close(&r);
}

static void calls_outlive_their_link(void **state)
{
        static const char *const ids[] = {"s-1"};
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        agx_rpc_detach(a);
        finish(&r, "s-1");
        assert_null(agx_rpc_due(&r.rpc));
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 1);
        a = join(&r, 1, "s");
        assert_null(r.replaced);
        assert_quiet(&r, a); /* nothing is told before it is asked for */
        resume(&r, a, ids, 1);
        assert_result(&r, a, "s-1");
        rig_close(&r);
}

static void a_link_without_a_session_is_its_own(void **state)
{
        static const char *const ids[] = {"x", "y"};
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, NULL);
        b = join(&r, 1, NULL);
        assert_null(r.replaced);
        call(&r, a, "x");
        call(&r, a, "y");
        resume(&r, b, ids, 1);
        assert_unavailable(&r, b, "x", "dropped");
        assert_int_equal(cancel(&r, b, "x"), AGX_RPC_TODO_NOTHING);
        finish(&r, "x");
        assert_quiet(&r, b);
        assert_result(&r, a, "x");
        agx_rpc_detach(a);
        finish(&r, "y"); /* nobody can ask for it any more */
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 1);
        a = join(&r, 2, NULL);
        resume(&r, a, ids, 2);
        assert_unavailable(&r, a, "x", "dropped");
        assert_unavailable(&r, a, "y", "dropped");
        rig_close(&r);
}

static void sessions_do_not_see_each_other(void **state)
{
        static const char *const ids[] = {"s-1"};
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        b = join(&r, 1, "t");
        call(&r, a, "s-1");
        call(&r, b, "s-1");
        assert_unavailable(&r, b, "s-1", "dropped");
        resume(&r, b, ids, 1);
        assert_unavailable(&r, b, "s-1", "dropped");
        assert_int_equal(cancel(&r, b, "s-1"), AGX_RPC_TODO_NOTHING);
        finish(&r, "s-1");
        ack(&r, b, "s-1");
        assert_int_equal(cancel(&r, b, "s-1"), AGX_RPC_TODO_NOTHING);
        assert_quiet(&r, b);
        assert_result(&r, a, "s-1");
        resume(&r, a, ids, 1);
        assert_result(&r, a, "s-1");
        assert_int_equal(sent(&r), 1);
        rig_close(&r);
}

/* ---- beside a POST ---- */

/* A call that came by POST; with a waiter if it still waits. */
static agx_call *posted(rig *r, const char *id, const char *session, bool waits)
{
        agx_call_request request = {.call_id = agx_view_str(id),
                                    .callable = AGX_VIEW("m::f"),
                                    .arguments = AGX_VIEW("ARGS")};
        agx_submit verdict;
        agx_fault fault;
        agx_call *call;

        assert_int_equal(agx_calls_submit(&r->calls, &request, agx_view_str(session), 0, &r->worker, &verdict, &call,
                                          &fault),
                         0);
        assert_int_equal(verdict, AGX_SUBMIT_STARTED);
        call->waiter = waits ? &r->post.waiter : NULL;
        return call;
}

static void a_post_that_waits_gets_its_answer(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        posted(&r, "s-1", "s", true);
        finish(&r, "s-1");
        assert_non_null(r.post.delivered);
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_post_that_was_let_go_is_told_on_the_link(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        posted(&r, "s-1", "s", false);
        posted(&r, "t-1", "t", false);
        finish(&r, "s-1");
        finish(&r, "t-1"); /* that session has no link */
        assert_result(&r, a, "s-1");
        assert_quiet(&r, a);
        a = join(&r, 1, "t");
        resume(&r, a, (const char *const[]){"t-1"}, 1);
        assert_result(&r, a, "t-1");
        rig_close(&r);
}

static void who_asks_on_a_link_takes_the_call_from_the_post(void **state)
{
        static const char *const ids[] = {"s-1", "s-2", "s-3"};
        agx_rpc_link *a;
        agx_call *calls[3];
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        for (int i = 0; i < 3; i++)
                calls[i] = posted(&r, ids[i], "s", true);
        resume(&r, a, ids, 1);
        assert_quiet(&r, a);
        assert_ptr_equal(r.post.forgotten, calls[0]);
        call(&r, a, "s-2");
        assert_ptr_equal(r.post.forgotten, calls[1]);
        assert_int_equal(cancel(&r, a, "s-3"), AGX_RPC_TODO_CANCEL);
        assert_ptr_equal(r.post.forgotten, calls[2]);
        finish(&r, "s-1");
        finish(&r, "s-2");
        finish_error(&r, "s-3", "Cancelled", true);
        assert_null(r.post.delivered);
        assert_result(&r, a, "s-1");
        assert_result(&r, a, "s-2");
        assert_error(&r, a, "s-3", "Cancelled");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_result_that_is_being_written_to_a_post_is_told_too(void **state)
{
        static const char *const ids[] = {"s-1"};
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        posted(&r, "s-1", "s", true);
        finish(&r, "s-1"); /* that connection may be dead */
        resume(&r, a, ids, 1);
        assert_result(&r, a, "s-1");
        assert_ptr_equal(r.post.forgotten, r.post.delivered);
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 1);
        ack(&r, a, "s-1");
        assert_int_equal(agx_ledger_count(r.calls.ledger).retained, 0);
        rig_close(&r);
}

static void a_call_without_a_session_goes_to_the_first_link_that_asks(void **state)
{
        static const char *const ids[] = {"x"};
        agx_rpc_link *a, *b;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, NULL);
        b = join(&r, 1, "t");
        posted(&r, "x", NULL, false);
        resume(&r, a, ids, 1);
        assert_quiet(&r, a);
        resume(&r, b, ids, 1);
        assert_unavailable(&r, b, "x", "dropped");
        finish(&r, "x");
        assert_result(&r, a, "x");
        assert_quiet(&r, b);
        rig_close(&r);
}

/* ---- cancelling ---- */

static void cancelling_in_every_state(void **state)
{
        static const char *const ids[] = {"s-2", "s-3", "s-4"};
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        /* It has not come: it never runs. */
        assert_int_equal(cancel(&r, a, "s-9"), AGX_RPC_TODO_NOTHING);
        assert_quiet(&r, a);
        call(&r, a, "s-9");
        assert_unavailable(&r, a, "s-9", "dropped");
        assert_int_equal(sent(&r), 0);
        /* It waits for a worker. */
        r.ready = false;
        call(&r, a, "s-1");
        assert_int_equal(cancel(&r, a, "s-1"), AGX_RPC_TODO_DELIVER);
        deliver(&r, r.outcome.call);
        assert_error(&r, a, "s-1", "Cancelled");
        assert_true(r.heard.fault.cancelled);
        assert_null(agx_calls_start_held(&r.calls, &r.worker));
        assert_int_equal(sent(&r), 0);
        /* It runs. */
        r.ready = true;
        call(&r, a, "s-2");
        assert_int_equal(cancel(&r, a, "s-2"), AGX_RPC_TODO_CANCEL);
        assert_int_equal(r.outcome.call->worker, 7);
        assert_true(agx_calls_deadline(&r.calls) == AGX_CANCEL_GRACE_MS);
        assert_int_equal(cancel(&r, a, "s-2"), AGX_RPC_TODO_NOTHING); /* twice */
        assert_quiet(&r, a);
        finish_error(&r, "s-2", "Cancelled", true);
        assert_error(&r, a, "s-2", "Cancelled");
        /* It has ended and been told: its result goes, silently. */
        call(&r, a, "s-3");
        finish(&r, "s-3");
        assert_result(&r, a, "s-3");
        assert_int_equal(cancel(&r, a, "s-3"), AGX_RPC_TODO_NOTHING);
        assert_quiet(&r, a);
        /* It has ended and is about to be told. */
        call(&r, a, "s-4");
        finish(&r, "s-4");
        assert_int_equal(cancel(&r, a, "s-4"), AGX_RPC_TODO_NOTHING);
        assert_unavailable(&r, a, "s-4", "dropped");
        assert_quiet(&r, a);
        resume(&r, a, ids, 3);
        assert_error(&r, a, "s-2", "Cancelled");
        assert_unavailable(&r, a, "s-3", "dropped");
        assert_unavailable(&r, a, "s-4", "dropped");
        assert_quiet(&r, a);
        rig_close(&r);
}

static void a_grace_may_be_given(void **state)
{
        agx_rpc_link *a;
        rig r;

        (void)state;
        rig_open(&r);
        r.now = 1000;
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        event(&r, a,
              &(agx_rpc_event){.kind = AGX_RPC_CANCEL, .call_id = AGX_VIEW("s-1"), .has_grace = true, .grace = 0.5},
              NULL, 0);
        assert_true(agx_calls_deadline(&r.calls) == 1500);
        assert_int_equal(agx_calls_overdue(&r.calls, 1500), 7);
        assert_quiet(&r, a);
        deliver(&r, agx_calls_worker_died(&r.calls, 7, &(agx_fault){.type = AGX_VIEW("WorkerDied")}));
        assert_error(&r, a, "s-1", "Cancelled");
        assert_quiet(&r, a);
        rig_close(&r);
}

/* ---- without memory ---- */

/* Whichever allocation fails: the host is told, or the link has to be closed and its host asks again. */
static void without_memory_nobody_waits_for_ever(void **state)
{
        size_t n = 0;
        bool fired;

        (void)state;
        do {
                static const char *const ids[] = {"s-1"};
                agx_rpc_event e = call_event("s-1");
                agx_rpc_saying saying;
                agx_rpc_link *a;
                int got;
                rig r;

                agx_oom_pause(true);
                rig_open(&r);
                a = join(&r, 0, "s");
                agx_oom_arm(++n);
                agx_oom_pause(false);
                got = try_event(&r, a, &e, NULL, 0);
                if (!got && r.outcome.todo == AGX_RPC_TODO_SEND)
                        finish(&r, "s-1");
                if (!got)
                        got = agx_rpc_next(a, 0, &saying);
                fired = agx_oom_disarm();
                assert_true(got == 0 || got == -ENOMEM);
                if (got) {
                        agx_rpc_detach(a);
                        a = join(&r, 1, "s");
                        resume(&r, a, ids, 1);
                        assert_true(next(&r, a));
                }
                assert_quiet(&r, a);
                rig_close(&r);
        } while (fired);
        assert_true(n > 5);
}

static void a_link_without_memory_fails_until_it_is_closed(void **state)
{
        agx_rpc_event e = call_event("s-2");
        agx_rpc_saying saying;
        agx_rpc_link *a;
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("s-1"), .value = AGX_VIEW("VALUE")};
        const char *odd;
        agx_call *ended;
        rig r;

        (void)state;
        rig_open(&r);
        a = join(&r, 0, "s");
        call(&r, a, "s-1");
        ended = agx_calls_frame(&r.calls, 7, &frame, &odd);
        agx_oom_arm(1);
        deliver(&r, ended);
        assert_true(agx_oom_disarm());
        assert_ptr_equal(agx_rpc_due(&r.rpc), a);
        assert_int_equal(agx_rpc_next(a, 0, &saying), -ENOMEM);
        assert_int_equal(try_event(&r, a, &e, NULL, 0), -ENOMEM);
        assert_int_equal(agx_rpc_attach(&r.rpc, &r.links[1], AGX_VIEW("s"), &r.replaced), 0);
        assert_ptr_equal(r.replaced, a);
        resume(&r, &r.links[1], (const char *const[]){"s-1"}, 1);
        assert_result(&r, &r.links[1], "s-1");
        rig_close(&r);
}

static void the_first_link_may_find_no_memory(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        agx_oom_arm(1);
        assert_int_equal(agx_rpc_attach(&r.rpc, &r.links[0], AGX_VIEW("s"), &r.replaced), -ENOMEM);
        assert_true(agx_oom_disarm());
        agx_rpc_detach(&r.links[0]);
        join(&r, 0, "s");
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_result_is_sent_the_moment_it_is_there),
                cmocka_unit_test(a_large_value_lies_where_it_lies),
                cmocka_unit_test(an_error_is_sent_likewise),
                cmocka_unit_test(a_call_waits_for_a_worker),
                cmocka_unit_test(a_repeat_acts_as_a_resume),
                cmocka_unit_test(what_lacks_a_field_is_its_own_failure),
                cmocka_unit_test(an_end_without_memory_is_told_as_gone),
                cmocka_unit_test(what_asks_is_answered_even_if_it_is_not_understood),
                cmocka_unit_test(other_events_are_passed_over),
                cmocka_unit_test(every_resumed_id_is_answered),
                cmocka_unit_test(what_ends_while_a_resume_is_answered_is_told_once),
                cmocka_unit_test(an_acknowledged_result_is_gone),
                cmocka_unit_test(who_acknowledges_has_been_told),
                cmocka_unit_test(a_result_that_had_to_go_before_it_was_told_is_told_as_gone),
                cmocka_unit_test(names_of_sessions),
                cmocka_unit_test(a_new_link_takes_over_at_once),
                cmocka_unit_test(calls_outlive_their_link),
                cmocka_unit_test(a_link_without_a_session_is_its_own),
                cmocka_unit_test(sessions_do_not_see_each_other),
                cmocka_unit_test(a_post_that_waits_gets_its_answer),
                cmocka_unit_test(a_post_that_was_let_go_is_told_on_the_link),
                cmocka_unit_test(who_asks_on_a_link_takes_the_call_from_the_post),
                cmocka_unit_test(a_result_that_is_being_written_to_a_post_is_told_too),
                cmocka_unit_test(a_call_without_a_session_goes_to_the_first_link_that_asks),
                cmocka_unit_test(cancelling_in_every_state),
                cmocka_unit_test(a_grace_may_be_given),
                cmocka_unit_test(items_are_told_before_the_end),
                cmocka_unit_test(streams_take_turns),
                cmocka_unit_test(a_new_link_hears_what_was_not_consumed),
                cmocka_unit_test(a_post_is_let_go_when_its_call_streams),
                cmocka_unit_test(items_and_credit_that_fit_nothing),
                cmocka_unit_test(too_much_that_nobody_consumes_ends_the_stream),
                cmocka_unit_test(without_memory_nobody_waits_for_ever),
                cmocka_unit_test(a_link_without_memory_fails_until_it_is_closed),
                cmocka_unit_test(the_first_link_may_find_no_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
