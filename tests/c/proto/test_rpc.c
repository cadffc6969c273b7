/* The payloads of the events on /rpc. */
#include "proto/limits.h"
#include "proto/rpc.h"
#include "support/guard.h"
#include "support/oom.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ID                                                                                                             \
        "\xa7"                                                                                                         \
        "call_id\xa2s1"
#define IDS                                                                                                            \
        "\xa8"                                                                                                         \
        "call_ids\x92\xa1x\xa1y"
#define CALLABLE                                                                                                       \
        "\xa8"                                                                                                         \
        "callable\xa3"                                                                                                 \
        "a:b"
#define ARGUMENTS                                                                                                      \
        "\xa9"                                                                                                         \
        "arguments\xc4\x02\x80."
#define CONTEXT                                                                                                        \
        "\xa7"                                                                                                         \
        "context\xc4\x01"                                                                                              \
        "c"
#define STREAM "\xa6stream\x10"
#define GRACE "\xa5grace"
#define VALUE "\xa5value\xc4\x01v"
#define ERROR                                                                                                          \
        "\xa5"                                                                                                         \
        "error\x82\xa4type\xa1t\xa7message\xa1m"
#define TWO_AND_A_HALF "\xcb\x40\x04\x00\x00\x00\x00\x00\x00"

static void assert_view(agx_view got, agx_view expected)
{
        assert_int_equal(got.p == NULL, expected.p == NULL);
        assert_true(agx_view_eq(got, expected));
}

static size_t count(agx_view ids)
{
        agx_call_acks walk = agx_call_acks_of(ids);
        size_t n = 0;

        for (agx_view id; agx_call_acks_next(&walk, &id);)
                ++n;
        return n;
}

static void names(void **state)
{
        (void)state;
        assert_int_equal(agx_rpc_kind_of(AGX_VIEW("call")), AGX_RPC_CALL);
        assert_int_equal(agx_rpc_kind_of(AGX_VIEW("call:result")), AGX_RPC_RESULT);
        assert_int_equal(agx_rpc_kind_of(AGX_VIEW("call:")), AGX_RPC_UNKNOWN);
        assert_int_equal(agx_rpc_kind_of(AGX_VIEW("")), AGX_RPC_UNKNOWN);
        assert_int_equal(agx_rpc_kind_of(AGX_VIEW_NULL), AGX_RPC_UNKNOWN);
        assert_null(agx_rpc_kind_text(AGX_RPC_UNKNOWN).p);
        for (int kind = AGX_RPC_CALL; kind <= AGX_RPC_ITEM; ++kind)
                assert_int_equal(agx_rpc_kind_of(agx_rpc_kind_text((agx_rpc_kind)kind)), kind);
}

/* ---- what is understood ---- */

enum {
        HAS_ID = 1,
        HAS_IDS = 2,
        HAS_CALLABLE = 4,
        HAS_ARGUMENTS = 8,
        HAS_CONTEXT = 16,
        HAS_STREAM = 32,
        HAS_GRACE = 64
};

static const struct good {
        agx_view payload;
        agx_rpc_kind kind;
        unsigned has;
} good[] = {
        {AGX_VIEW("\x85" ID CALLABLE ARGUMENTS CONTEXT STREAM), AGX_RPC_CALL,
         HAS_ID | HAS_CALLABLE | HAS_ARGUMENTS | HAS_CONTEXT | HAS_STREAM},
        {AGX_VIEW("\x83" ARGUMENTS CALLABLE ID), AGX_RPC_CALL, HAS_ID | HAS_CALLABLE | HAS_ARGUMENTS},
        {AGX_VIEW("\x81" ID), AGX_RPC_CALL, HAS_ID},
        /* What is missing or of another type where that is the call's own affair; nil counts as missing. */
        {AGX_VIEW("\x83" ID "\xa8"
                  "callable\xc4\x01"
                  "a" ARGUMENTS),
         AGX_RPC_CALL, HAS_ID | HAS_ARGUMENTS},
        {AGX_VIEW("\x83" ID CALLABLE "\xa9"
                  "arguments\xa1x"),
         AGX_RPC_CALL, HAS_ID | HAS_CALLABLE},
        {AGX_VIEW("\x83" ID "\xa7"
                  "context\xc0\xa6stream\xc0"),
         AGX_RPC_CALL, HAS_ID},
        /* Another event's keys are nobody's business. */
        {AGX_VIEW("\x84" ID GRACE "\xa1x" IDS "\xa5value\x07"), AGX_RPC_CALL, HAS_ID},
        {AGX_VIEW("\x83\xa5other\x81\x01\x02" ID "\x01\xa1z"), AGX_RPC_CALL, HAS_ID},
        {AGX_VIEW("\x81" ID), AGX_RPC_CANCEL, HAS_ID},
        {AGX_VIEW("\x82" GRACE TWO_AND_A_HALF ID), AGX_RPC_CANCEL, HAS_ID | HAS_GRACE},
        {AGX_VIEW("\x82" ID GRACE "\x05"), AGX_RPC_CANCEL, HAS_ID | HAS_GRACE},
        {AGX_VIEW("\x82" ID GRACE "\xc0"), AGX_RPC_CANCEL, HAS_ID},
        {AGX_VIEW("\x82" ID GRACE "\xa1"
                  "5"),
         AGX_RPC_CANCEL, HAS_ID},
        {AGX_VIEW("\x82" ID GRACE "\xff"), AGX_RPC_CANCEL, HAS_ID},
        {AGX_VIEW("\x83" ID GRACE "\x92\x01\x02" CONTEXT), AGX_RPC_CANCEL, HAS_ID},
        {AGX_VIEW("\x81" IDS), AGX_RPC_RESUME, HAS_IDS},
        {AGX_VIEW("\x82" ID IDS), AGX_RPC_RESUME, HAS_IDS},
        {AGX_VIEW("\x81" ID), AGX_RPC_ACK, HAS_ID},
        {AGX_VIEW("\x81" IDS), AGX_RPC_ACK, HAS_IDS},
        {AGX_VIEW("\x82" ID IDS), AGX_RPC_ACK, HAS_ID | HAS_IDS},
        {AGX_VIEW("\x80"), AGX_RPC_ACK, 0},
        {AGX_VIEW("\x81\xa7"
                  "call_id\x07"),
         AGX_RPC_ACK, 0},
        {AGX_VIEW("\x82" ID VALUE), AGX_RPC_RESULT, HAS_ID},
        {AGX_VIEW("\x82" ID ERROR), AGX_RPC_ERROR, HAS_ID},
        {AGX_VIEW("\x81" ID), AGX_RPC_UNKNOWN, 0},
};

static void assert_good(const agx_rpc_event *event, unsigned has)
{
        assert_view(event->call_id, has & HAS_ID ? AGX_VIEW("s1") : AGX_VIEW_NULL);
        assert_int_equal(event->call_ids.p != NULL, (has & HAS_IDS) != 0);
        assert_int_equal(count(event->call_ids), has & HAS_IDS ? 2 : 0);
        assert_view(event->callable, has & HAS_CALLABLE ? AGX_VIEW("a:b") : AGX_VIEW_NULL);
        assert_view(event->arguments, has & HAS_ARGUMENTS ? AGX_VIEW("\x80.") : AGX_VIEW_NULL);
        assert_view(event->context, has & HAS_CONTEXT ? AGX_VIEW("c") : AGX_VIEW_NULL);
        assert_int_equal(event->has_stream, (has & HAS_STREAM) != 0);
        assert_int_equal(event->stream, has & HAS_STREAM ? 16 : 0);
        assert_int_equal(event->has_grace, (has & HAS_GRACE) != 0);
        assert_view(event->value, event->kind == AGX_RPC_RESULT ? AGX_VIEW("v") : AGX_VIEW_NULL);
        assert_view(event->fault.type, event->kind == AGX_RPC_ERROR ? AGX_VIEW("t") : AGX_VIEW_NULL);
}

/* No beginning of a payload is one, and none reads past its end. */
static void whole_or_not_at_all(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); ++i) {
                for (size_t n = 0; n <= good[i].payload.n; ++n) {
                        uint8_t *bytes = agx_guard_new(good[i].payload.p, n);
                        const char *why = "unset";
                        agx_rpc_event event;
                        bool whole = n == good[i].payload.n;

                        assert_int_equal(agx_rpc_event_get(good[i].kind, agx_view_of(bytes, n), &event, &why), whole);
                        assert_int_equal(why == NULL, whole);
                        if (whole)
                                assert_good(&event, good[i].has);
                        else
                                assert_null(event.call_id.p);
                        agx_guard_free(bytes, n);
                }
        }
}

/* ---- what is not ---- */

static const struct bad {
        agx_view payload;
        const char *why;
        agx_rpc_kind kind;
        bool id; /* it can be made out all the same */
} bad[] = {
        {AGX_VIEW(""), "empty", AGX_RPC_CALL, false},
        {AGX_VIEW("\xc0"), "not a map", AGX_RPC_CALL, false},
        {AGX_VIEW("{\"call_id\": \"x\"}"), "not a map", AGX_RPC_CALL, false},
        {AGX_VIEW("\x80"), "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x82" CALLABLE ARGUMENTS), "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xc0"),
         "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xa0"),
         "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\x07"),
         "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xc4\x02s1"),
         "missing call_id", AGX_RPC_CALL, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xa2\xc3("),
         NULL, AGX_RPC_CALL, false},
        {AGX_VIEW("\x82" ID ID), "call_id occurs twice", AGX_RPC_CALL, false},
        {AGX_VIEW("\x83" ID CALLABLE CALLABLE), "callable occurs twice", AGX_RPC_CALL, true},
        {AGX_VIEW("\x82\xa7"
                  "context\xa1x" ID),
         "context is not a bin", AGX_RPC_CALL, true},
        {AGX_VIEW("\x82" ID "\xa6stream\xff"), "stream is not a non-negative int", AGX_RPC_CALL, true},
        {AGX_VIEW("\x82\xa6stream\xff" ID), "stream is not a non-negative int", AGX_RPC_CALL, true},
        {AGX_VIEW("\x81" ID "\x00"), "bytes after the map", AGX_RPC_CALL, true},
        {AGX_VIEW("\x82" ID), NULL, AGX_RPC_CALL, false},
        {AGX_VIEW("\x82" ID "\xa1x\xc1"), NULL, AGX_RPC_CALL, false},
        {AGX_VIEW("\xde\xff\xff" ID), NULL, AGX_RPC_CALL, false},
        {AGX_VIEW("\x80"), "missing call_id", AGX_RPC_CANCEL, false},
        {AGX_VIEW("\x83" ID GRACE "\x05" GRACE "\x05"), "grace occurs twice", AGX_RPC_CANCEL, true},
        {AGX_VIEW("\x80"), "missing call_ids", AGX_RPC_RESUME, false},
        {AGX_VIEW("\x81" ID), "missing call_ids", AGX_RPC_RESUME, true},
        {AGX_VIEW("\x81\xa8"
                  "call_ids\xa1x"),
         "call_ids is not an array", AGX_RPC_RESUME, false},
        {AGX_VIEW("\x82" IDS IDS), "call_ids occurs twice", AGX_RPC_RESUME, false},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xa0"),
         "missing call_id", AGX_RPC_ACK, false},
        {AGX_VIEW("\x91\x80"), "not a map", AGX_RPC_ACK, false},
        {AGX_VIEW("\x81" VALUE), "missing call_id", AGX_RPC_RESULT, false},
        {AGX_VIEW("\x82" ID "\xa5value\xa1x"), "value is not a bin", AGX_RPC_RESULT, true},
        {AGX_VIEW("\x81" ID), "missing error", AGX_RPC_ERROR, true},
        {AGX_VIEW("\x81" ID), "missing n", AGX_RPC_CREDIT, true},
        {AGX_VIEW("\x82" ID "\xa1n\xff"), "n is not a non-negative int", AGX_RPC_CREDIT, true},
        {AGX_VIEW("\x82" ID VALUE), "missing seq", AGX_RPC_ITEM, true},
        {AGX_VIEW("\x82" ID "\xa3seq\x07"), "missing value", AGX_RPC_ITEM, true},
        {AGX_VIEW("\x82" ID "\xa5"
                  "error\x80"),
         NULL, AGX_RPC_ERROR, true},
};

static void what_is_wrong_is_said(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
                uint8_t *bytes = agx_guard_new(bad[i].payload.p, bad[i].payload.n);
                const char *why = NULL;
                agx_rpc_event event;

                assert_false(agx_rpc_event_get(bad[i].kind, agx_view_of(bytes, bad[i].payload.n), &event, &why));
                assert_non_null(why);
                if (bad[i].why)
                        assert_string_equal(why, bad[i].why);
                assert_view(event.call_id, bad[i].id ? AGX_VIEW("s1") : AGX_VIEW_NULL);
                agx_guard_free(bytes, bad[i].payload.n);
        }
}

static void an_error_may_name_no_call(void **state)
{
        const char *why;
        agx_rpc_event event;

        (void)state;
        assert_true(agx_rpc_event_get(AGX_RPC_ERROR,
                                      AGX_VIEW("\x82\xa7"
                                               "call_id\xa0" ERROR),
                                      &event, &why));
        assert_view(event.call_id, AGX_VIEW(""));
}

static void a_result_may_be_nil(void **state)
{
        const char *why;
        agx_rpc_event event;

        (void)state;
        assert_true(agx_rpc_event_get(AGX_RPC_RESULT, AGX_VIEW("\x82" ID "\xa5value\xc0"), &event, &why));
        assert_view(event.value, AGX_VIEW_NULL);
        assert_true(agx_rpc_event_get(AGX_RPC_RESULT, AGX_VIEW("\x81" ID), &event, &why));
        assert_view(event.value, AGX_VIEW_NULL);
}

/* ---- bounds ---- */

static void put_text(agx_buf *out, const char *key, size_t n)
{
        _cleanup_(agx_freep) char *text = malloc(n + 1);
        agx_mp_writer w = agx_mp_writer_on(out);

        assert_non_null(text);
        memset(text, 'i', n);
        agx_mp_put_str(&w, agx_view_str(key));
        agx_mp_put_str(&w, agx_view_of(text, n));
        assert_int_equal(agx_mp_writer_end(&w), 0);
}

static void lengths_are_bounded(void **state)
{
        static const struct {
                size_t id, callable;
                const char *why;
        } rows[] = {
                {1, 1, NULL},
                {AGX_MAX_CALL_ID, AGX_MAX_CALLABLE, NULL},
                {AGX_MAX_CALL_ID + 1, 1, "call_id is too long"},
                {1 << 20, 1, "call_id is too long"},
                {1, AGX_MAX_CALLABLE + 1, "callable is too long"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 22);
                const char *why = NULL;
                agx_rpc_event event;

                assert_int_equal(agx_buf_append(&out, "\x82", 1), 0);
                put_text(&out, "call_id", rows[i].id);
                put_text(&out, "callable", rows[i].callable);
                assert_int_equal(agx_rpc_event_get(AGX_RPC_CALL, agx_buf_view(&out), &event, &why),
                                 rows[i].why == NULL);
                if (rows[i].why)
                        assert_string_equal(why, rows[i].why);
                assert_int_equal(event.call_id.p != NULL, rows[i].id <= AGX_MAX_CALL_ID);
        }
}

static void lists_are_bounded(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

        (void)state;
        for (size_t n = AGX_MAX_EVENT_IDS - 1; n <= AGX_MAX_EVENT_IDS + 1; ++n) {
                agx_mp_writer w = agx_mp_writer_on(&out);
                const char *why = NULL;
                agx_rpc_event event;

                agx_buf_clear(&out);
                agx_mp_put_map(&w, 1);
                agx_mp_put_str(&w, AGX_VIEW("call_ids"));
                agx_mp_put_array(&w, n);
                for (size_t i = 0; i < n; ++i)
                        agx_mp_put_str(&w, AGX_VIEW("x"));
                assert_int_equal(agx_mp_writer_end(&w), 0);
                for (int kind = AGX_RPC_RESUME; kind <= AGX_RPC_ACK; ++kind) {
                        assert_int_equal(agx_rpc_event_get((agx_rpc_kind)kind, agx_buf_view(&out), &event, &why),
                                         n <= AGX_MAX_EVENT_IDS);
                        if (n <= AGX_MAX_EVENT_IDS)
                                assert_int_equal(count(event.call_ids), n);
                        else
                                assert_string_equal(why, "too many call_ids");
                }
        }
}

static void what_is_no_id_is_passed_over(void **state)
{
        const char *why;
        agx_rpc_event event;

        (void)state;
        assert_true(agx_rpc_event_get(AGX_RPC_RESUME,
                                      AGX_VIEW("\x81\xa8"
                                               "call_ids\x96\x01\xa1x\xc4\x01y\x92\x01\x80\xa1z\xc0"),
                                      &event, &why));
        assert_int_equal(count(event.call_ids), 2);
}

static void a_grace_is_within_its_bounds(void **state)
{
        static const struct {
                bool given;
                double grace;
                uint64_t ms;
        } rows[] = {
                {false, 0, AGX_CANCEL_GRACE_MS},
                {true, 0, 0},
                {true, 0.25, 250},
                {true, 2, 2000},
                {true, 0.0004, 0},
                {true, 1e300, AGX_CANCEL_GRACE_MAX_MS},
                {true, (double)INFINITY, AGX_CANCEL_GRACE_MAX_MS},
                {true, -1, AGX_CANCEL_GRACE_MS},
                {true, (double)-INFINITY, AGX_CANCEL_GRACE_MS},
                {true, (double)NAN, AGX_CANCEL_GRACE_MS},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 10);
                agx_mp_writer w = agx_mp_writer_on(&out);
                agx_rpc_event event = {.kind = AGX_RPC_CANCEL,
                                       .call_id = AGX_VIEW("s1"),
                                       .has_grace = rows[i].given,
                                       .grace = rows[i].grace};
                const char *why;

                agx_rpc_event_put(&w, &event, NULL, 0);
                assert_int_equal(agx_mp_writer_end(&w), 0);
                assert_true(agx_rpc_event_get(AGX_RPC_CANCEL, agx_buf_view(&out), &event, &why));
                assert_int_equal(agx_rpc_grace_ms(&event), rows[i].ms);
        }
}

/* ---- writing ---- */

static int put(agx_buf *out, const agx_rpc_event *event, const agx_view *ids, size_t n)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_rpc_event_put(&w, event, ids, n);
        return agx_mp_writer_end(&w);
}

static const agx_view two[] = {AGX_VIEW("x"), AGX_VIEW("y")};

/* Each event with each choice of what it may have. */
static agx_rpc_event event_of(agx_rpc_kind kind, unsigned has)
{
        agx_rpc_event event = {.kind = kind};

        if (kind == AGX_RPC_RESUME)
                return event;
        if (kind != AGX_RPC_ACK || has & HAS_ID)
                event.call_id = AGX_VIEW("s1");
        if (kind == AGX_RPC_CALL && has & HAS_CALLABLE)
                event.callable = AGX_VIEW("a:b");
        if (kind == AGX_RPC_CALL && has & HAS_ARGUMENTS)
                event.arguments = AGX_VIEW("\x80.");
        if (kind == AGX_RPC_CALL && has & HAS_CONTEXT)
                event.context = AGX_VIEW("c");
        event.has_stream = kind == AGX_RPC_CALL && has & HAS_STREAM;
        event.stream = event.has_stream ? 16 : 0;
        event.has_grace = kind == AGX_RPC_CANCEL && has & HAS_GRACE;
        event.grace = event.has_grace ? 1.5 : 0;
        if (kind == AGX_RPC_RESULT || kind == AGX_RPC_ITEM)
                event.value = AGX_VIEW("v");
        event.seq = kind == AGX_RPC_ITEM ? 300 : 0;
        event.n = kind == AGX_RPC_CREDIT ? 7 : 0;
        if (kind == AGX_RPC_ERROR)
                event.fault = (agx_fault){.type = AGX_VIEW("t"), .message = AGX_VIEW("m")};
        return event;
}

static void what_is_written_is_read(void **state)
{
        (void)state;
        for (int kind = AGX_RPC_CALL; kind <= AGX_RPC_ITEM; ++kind) {
                for (unsigned has = 0; has < 128; ++has) {
                        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 12);
                        agx_rpc_event event = event_of((agx_rpc_kind)kind, has), got;
                        size_t n_ids = kind == AGX_RPC_RESUME || (kind == AGX_RPC_ACK && has & HAS_IDS) ? 2 : 0;
                        const char *why;

                        assert_int_equal(put(&out, &event, two, n_ids), 0);
                        assert_true(agx_rpc_event_get(event.kind, agx_buf_view(&out), &got, &why));
                        assert_view(got.call_id, event.call_id);
                        assert_view(got.callable, event.callable);
                        assert_view(got.arguments, event.arguments);
                        assert_view(got.context, event.context);
                        assert_view(got.value, event.value);
                        assert_view(got.fault.type, event.fault.type);
                        assert_int_equal(got.has_stream, event.has_stream);
                        assert_int_equal(got.stream, event.stream);
                        assert_int_equal(got.seq, event.seq);
                        assert_int_equal(got.n, event.n);
                        assert_int_equal(got.has_grace, event.has_grace);
                        assert_true(got.grace >= event.grace && got.grace <= event.grace);
                        assert_int_equal(count(got.call_ids), n_ids);
                }
        }
}

static void a_head_and_its_bytes_are_the_whole(void **state)
{
        static const agx_rpc_kind kinds[] = {AGX_RPC_CALL, AGX_RPC_RESULT};
        _cleanup_(agx_buf_deinitp) agx_buf whole = AGX_BUF_NULL(1 << 12), parts = AGX_BUF_NULL(1 << 12);
        agx_mp_writer w = agx_mp_writer_on(&parts);
        agx_rpc_event event;

        (void)state;
        for (size_t i = 0; i < 2; ++i) {
                agx_buf_clear(&whole);
                agx_buf_clear(&parts);
                event = event_of(kinds[i], ~0u);
                assert_int_equal(put(&whole, &event, NULL, 0), 0);
                agx_rpc_event_put_head(&w, &event);
                assert_int_equal(agx_buf_append_view(&parts, event.arguments.p ? event.arguments : event.value), 0);
                assert_view(agx_buf_view(&parts), agx_buf_view(&whole));
        }
        agx_buf_clear(&whole);
        agx_buf_clear(&parts);
        event = event_of(AGX_RPC_ERROR, 0);
        assert_int_equal(put(&whole, &event, NULL, 0), 0);
        agx_rpc_event_put_fault_head(&w, event.call_id);
        agx_fault_put(&w, &event.fault);
        assert_view(agx_buf_view(&parts), agx_buf_view(&whole));
}

static void an_absent_value_is_nil(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 12);
        agx_rpc_event event = {.kind = AGX_RPC_RESULT, .call_id = AGX_VIEW("s1")};

        (void)state;
        assert_int_equal(put(&out, &event, NULL, 0), 0);
        assert_view(agx_buf_view(&out), AGX_VIEW("\x82" ID "\xa5value\xc0"));
}

static void writing_without_memory_fails(void **state)
{
        agx_rpc_event event = event_of(AGX_RPC_CALL, ~0u);
        size_t n = 0;
        int r;

        (void)state;
        do {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 12);

                agx_oom_arm(++n);
                r = put(&out, &event, NULL, 0);
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names),
                cmocka_unit_test(whole_or_not_at_all),
                cmocka_unit_test(what_is_wrong_is_said),
                cmocka_unit_test(an_error_may_name_no_call),
                cmocka_unit_test(a_result_may_be_nil),
                cmocka_unit_test(lengths_are_bounded),
                cmocka_unit_test(lists_are_bounded),
                cmocka_unit_test(what_is_no_id_is_passed_over),
                cmocka_unit_test(a_grace_is_within_its_bounds),
                cmocka_unit_test(what_is_written_is_read),
                cmocka_unit_test(a_head_and_its_bytes_are_the_whole),
                cmocka_unit_test(an_absent_value_is_nil),
                cmocka_unit_test(writing_without_memory_fails),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
