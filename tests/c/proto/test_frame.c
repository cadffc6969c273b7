/* Worker frames. */
#include "proto/frame.h"
#include "proto/limits.h"
#include "support/guard.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void assert_view(agx_view got, agx_view expected)
{
        assert_int_equal(got.p == NULL, expected.p == NULL);
        assert_true(agx_view_eq(got, expected));
}

#define FAULT                                                                                                          \
        {                                                                                                              \
                .type = AGX_VIEW("E"), .message = AGX_VIEW("m"), .traceback = AGX_VIEW("t")                            \
        }

/* One of each kind and some variants. */
static const agx_frame frames[] = {
        {.kind = AGX_FRAME_CALL,
         .call_id = AGX_VIEW("s-1"),
         .callable = AGX_VIEW("m::f"),
         .arguments = AGX_VIEW("\x80.")},
        {.kind = AGX_FRAME_CALL,
         .call_id = AGX_VIEW("s-2"),
         .callable = AGX_VIEW("m::f"),
         .arguments = AGX_VIEW(""),
         .context = AGX_VIEW("c"),
         .has_stream = true,
         .stream = 16},
        {.kind = AGX_FRAME_CANCEL, .call_id = AGX_VIEW("s-1")},
        {.kind = AGX_FRAME_CREDIT, .call_id = AGX_VIEW("s-1"), .n = UINT64_MAX},
        {.kind = AGX_FRAME_SHUTDOWN},
        {.kind = AGX_FRAME_CONDUIT},
        {.kind = AGX_FRAME_SIO_INBOUND, .namespace_ = AGX_VIEW("/n"), .event = AGX_VIEW("e"), .data = AGX_VIEW("d")},
        {.kind = AGX_FRAME_READY},
        {.kind = AGX_FRAME_READY,
         .n = 1,
         .features = AGX_VIEW("\x92\xa3x/2\xa8"
                              "frames/1")},
        {.kind = AGX_FRAME_BOOT_ERROR, .fault = FAULT},
        {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("s-1"), .value = AGX_VIEW("value")},
        {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("s-1"), .value = AGX_VIEW("")},
        {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("s-1")},
        {.kind = AGX_FRAME_ERROR, .call_id = AGX_VIEW("s-1"), .fault = FAULT},
        {.kind = AGX_FRAME_ITEM, .call_id = AGX_VIEW("s-1"), .seq = 70000, .value = AGX_VIEW("item")},
        {.kind = AGX_FRAME_SIO_OPEN, .namespace_ = AGX_VIEW("/n")},
        {.kind = AGX_FRAME_SIO_EMIT, .namespace_ = AGX_VIEW("/n"), .event = AGX_VIEW("e"), .data = AGX_VIEW("")},
        {.kind = AGX_FRAME_PROC_START,
         .proc = 1,
         .call_id = AGX_VIEW("s-1"),
         .path = AGX_VIEW("/bin/sh"),
         .argv = AGX_VIEW("sh\0-c\0true\0"),
         .env = AGX_VIEW("A=1\0"),
         .cwd = AGX_VIEW("/"),
         .has_stdin = 1,
         .n = 65536,
         .limit = UINT64_MAX,
         .timeout = 1500},
        {.kind = AGX_FRAME_PROC_START,
         .proc = UINT64_MAX,
         .path = AGX_VIEW("/bin/sh"),
         .argv = AGX_VIEW("sh\0"),
         .env = AGX_VIEW(""),
         .cwd = AGX_VIEW("/tmp")},
        {.kind = AGX_FRAME_PROC_IN, .proc = 2, .data = AGX_VIEW("input")},
        {.kind = AGX_FRAME_PROC_CREDIT, .proc = 2, .n = 4096},
        {.kind = AGX_FRAME_PROC_SIGNAL, .proc = 2, .n = 15},
        {.kind = AGX_FRAME_PROC_END, .proc = 2},
        {.kind = AGX_FRAME_PROC_OUT, .proc = 2, .fd = 2, .data = AGX_VIEW("output")},
        {.kind = AGX_FRAME_PROC_EXIT, .proc = 2, .code = 3, .out = 70000, .err = 1, .cause = AGX_VIEW("exited")},
        {.kind = AGX_FRAME_PROC_EXIT, .proc = 2, .signal = 9, .cause = AGX_VIEW("timeout")},
        {.kind = AGX_FRAME_PROC_ERROR, .proc = 2, .code = 2, .fault = FAULT},
};

enum { N_FRAMES = sizeof(frames) / sizeof(*frames) };

static void assert_frame(const agx_frame *got, const agx_frame *expected)
{
        assert_int_equal(got->kind, expected->kind);
        assert_view(got->call_id, expected->call_id);
        assert_view(got->callable, expected->callable);
        assert_view(got->arguments, expected->arguments);
        assert_view(got->context, expected->context);
        assert_view(got->value, expected->value);
        assert_view(got->fault.type, expected->fault.type);
        assert_view(got->fault.message, expected->fault.message);
        assert_view(got->fault.traceback, expected->fault.traceback);
        assert_int_equal(got->has_stream, expected->has_stream);
        assert_int_equal(got->stream, expected->stream);
        assert_int_equal(got->seq, expected->seq);
        assert_int_equal(got->n, expected->n);
        assert_view(got->namespace_, expected->namespace_);
        assert_view(got->event, expected->event);
        assert_view(got->data, expected->data);
        assert_int_equal(got->proc, expected->proc);
        assert_int_equal(got->fd, expected->fd);
        assert_int_equal(got->has_stdin, expected->has_stdin);
        assert_int_equal(got->limit, expected->limit);
        assert_int_equal(got->timeout, expected->timeout);
        assert_view(got->path, expected->path);
        assert_view(got->argv, expected->argv);
        assert_view(got->env, expected->env);
        assert_view(got->cwd, expected->cwd);
        assert_int_equal(got->code, expected->code);
        assert_int_equal(got->signal, expected->signal);
        assert_int_equal(got->out, expected->out);
        assert_int_equal(got->err, expected->err);
        assert_view(got->cause, expected->cause);
        assert_view(got->features, expected->features);
}

static void a_feature_is_found_among_others(void **state)
{
        static const struct {
                agx_view features;
                bool there;
        } rows[] = {
                {AGX_VIEW_NULL, false},
                {AGX_VIEW("\x90"), false},
                {AGX_VIEW("\x91\xa8" AGX_FEATURE_PIECES), true},
                {AGX_VIEW("\x92\xa3x/2\xa8" AGX_FEATURE_PIECES), true},
                {AGX_VIEW("\x91\xa8"
                          "frames/2"),
                 false},
                {AGX_VIEW("\x92\x01\xa8" AGX_FEATURE_PIECES), false}, /* not names */
                {AGX_VIEW("\x92\xa3x/2"), false},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                agx_frame frame = {.kind = AGX_FRAME_READY, .features = rows[i].features};

                assert_int_equal(agx_frame_has_feature(&frame, AGX_VIEW(AGX_FEATURE_PIECES)), rows[i].there);
        }
}

static void put_all(agx_buf *out)
{
        for (size_t i = 0; i < N_FRAMES; ++i)
                assert_int_equal(agx_frame_put(out, &frames[i]), 0);
}

/* Feeds one piece and checks the frames that come out of it against the list. */
static void feed(agx_deframer *d, agx_view in, size_t *next)
{
        agx_view payload;
        agx_frame got;
        int r;

        while ((r = agx_deframer_next(d, &in, &payload)) == 0) {
                assert_true(*next < N_FRAMES);
                assert_int_equal(agx_frame_parse(payload, &got), 0);
                assert_frame(&got, &frames[(*next)++]);
        }
        assert_int_equal(r, AGX_FRAME_E_MORE);
        assert_int_equal(in.n, 0);
}

/* The pieces lie flush against an unreadable page. */
static void feed_guarded(agx_deframer *d, agx_view in, size_t *next)
{
        uint8_t *bytes = agx_guard_new(in.p, in.n);

        feed(d, agx_view_of(bytes, in.n), next);
        agx_guard_free(bytes, in.n);
}

static void test_round_trip_at_every_cut(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

        (void)state;
        put_all(&out);
        for (size_t cut = 0; cut <= out.len; ++cut) {
                _cleanup_(agx_deframer_deinitp) agx_deframer d;
                size_t next = 0;

                agx_deframer_init(&d, AGX_MAX_MESSAGE);
                feed_guarded(&d, agx_view_first(agx_buf_view(&out), cut), &next);
                feed_guarded(&d, agx_view_from(agx_buf_view(&out), cut), &next);
                assert_int_equal(next, N_FRAMES);
                assert_true(agx_deframer_idle(&d));
        }
}

static void test_round_trip_in_pieces(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

        (void)state;
        put_all(&out);
        for (size_t step = 1; step <= 40; ++step) {
                _cleanup_(agx_deframer_deinitp) agx_deframer d;
                agx_view rest = agx_buf_view(&out);
                size_t next = 0;

                agx_deframer_init(&d, AGX_MAX_MESSAGE);
                while (rest.n) {
                        agx_view piece = agx_view_first(rest, step);

                        feed(&d, piece, &next);
                        rest = agx_view_from(rest, piece.n);
                }
                assert_int_equal(next, N_FRAMES);
        }
}

static void test_exact_bytes(void **state)
{
        static const char expected[] = "\x1e\0\0\0\x83\xa4type\xa6result\xa7"
                                       "call_id\xa1x\xa5value\xc0";
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("x")};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

        (void)state;
        assert_int_equal(agx_frame_put(&out, &frame), 0);
        assert_view(agx_buf_view(&out), agx_view_of(expected, sizeof(expected) - 1));
}

/* Head and tail make the whole; kinds without a tail are whole at once. */
static void test_put_head(void **state)
{
        (void)state;
        for (size_t i = 0; i < N_FRAMES; ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf whole = AGX_BUF_NULL(1 << 20), parts = AGX_BUF_NULL(1 << 20);
                agx_view tail = frames[i].arguments.p ? frames[i].arguments
                                : frames[i].value.p   ? frames[i].value
                                                      : frames[i].data;

                assert_int_equal(agx_frame_put(&whole, &frames[i]), 0);
                assert_int_equal(agx_frame_put_head(&parts, &frames[i]), 0);
                assert_int_equal(agx_buf_append_view(&parts, tail), 0);
                assert_view(agx_buf_view(&parts), agx_buf_view(&whole));
        }
}

#define CALL                                                                                                           \
        "\xa4type\xa4"                                                                                                 \
        "call"
#define ID                                                                                                             \
        "\xa7"                                                                                                         \
        "call_id\xa1x"
#define CALLABLE                                                                                                       \
        "\xa8"                                                                                                         \
        "callable\xa1"                                                                                                 \
        "f"
#define ARGUMENTS                                                                                                      \
        "\xa9"                                                                                                         \
        "arguments\xc4\x01"                                                                                            \
        "a"
#define RESULT "\xa4type\xa6result"

static const struct {
        agx_view payload;
        agx_frame_kind kind;
} good[] = {
        {AGX_VIEW(""), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x80"), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x81" ID), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x81\xa4type\xc0"), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x81\xa4type\x07"), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x81\xa4type\xc4\x04"
                  "call"),
         AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x81\xa4type\xa0"), AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x82\xa4type\xa6"
                  "future\xa7"
                  "call_id\x93\x01\x02\x03"),
         AGX_FRAME_UNKNOWN}, /* fields of another kind */
        {AGX_VIEW("\x82\xa7"
                  "call_id\x93\x01\x02\x03\xa4type\xa6"
                  "future"),
         AGX_FRAME_UNKNOWN},
        {AGX_VIEW("\x84" CALL ID CALLABLE ARGUMENTS), AGX_FRAME_CALL},
        {AGX_VIEW("\x84" ARGUMENTS CALLABLE ID CALL), AGX_FRAME_CALL}, /* any order */
        {AGX_VIEW("\x86" CALL ID CALLABLE ARGUMENTS "\xa7"
                  "context\xc0\xa6stream\xc0"),
         AGX_FRAME_CALL},
        {AGX_VIEW("\x85" CALL ID CALLABLE ARGUMENTS "\xa5value\x05"), AGX_FRAME_CALL}, /* not a call's field */
        {AGX_VIEW("\x82" RESULT ID), AGX_FRAME_RESULT},
        {AGX_VIEW("\x83" RESULT ID "\xa5value\xc0"), AGX_FRAME_RESULT},
        {AGX_VIEW("\x82\xa4type\xa5ready\xa8"
                  "features\x91\xa8"
                  "frames/1"),
         AGX_FRAME_READY},
        {AGX_VIEW("\x83" RESULT ID "\x01\x02"), AGX_FRAME_RESULT}, /* an int for a key */
};

static const agx_view bad[] = {
        AGX_VIEW("\xc0"),
        AGX_VIEW("\x90"),
        AGX_VIEW("\x01"),
        AGX_VIEW("\xa4type"),
        AGX_VIEW("\x81\xa4type"),
        AGX_VIEW("\x80\x80"),                       /* two maps */
        AGX_VIEW("\x82" RESULT ID "\x00"),          /* a byte after it */
        AGX_VIEW("\x82" RESULT RESULT),             /* twice */
        AGX_VIEW("\x82\xa4type\xa1x\xa4type\xa1x"), /* twice, unknown kind */
        AGX_VIEW("\x83" RESULT ID ID),
        AGX_VIEW("\x81" CALL),
        AGX_VIEW("\x83" CALL ID CALLABLE),
        AGX_VIEW("\x84" CALL ID CALLABLE "\xa9"
                 "arguments\xa1"
                 "a"), /* str for bin */
        AGX_VIEW("\x84" CALL ID "\xa8"
                 "callable\xc4\x01"
                 "f" ARGUMENTS), /* bin for str */
        AGX_VIEW("\x84" CALL "\xa7"
                 "call_id\xc4\x01x" CALLABLE ARGUMENTS),
        AGX_VIEW("\x84" CALL "\xa7"
                 "call_id\x01" CALLABLE ARGUMENTS),
        AGX_VIEW("\x85" CALL ID CALLABLE ARGUMENTS "\xa6stream\xff"), /* negative */
        AGX_VIEW("\x85" CALL ID CALLABLE ARGUMENTS "\xa7"
                 "context\xa1"
                 "c"),
        AGX_VIEW("\x83" RESULT ID "\xa5value\xa1v"),
        AGX_VIEW("\x83" RESULT ID "\xa5value\x80"),
        AGX_VIEW("\x83" RESULT ID "\xa1x\xc1"), /* an unused byte */
        AGX_VIEW("\x82" RESULT "\xa7"
                 "call_id\xa2\xff\xff"),
        AGX_VIEW("\x81\xa4type\xa5"
                 "error"),
        AGX_VIEW("\x83\xa4type\xa5"
                 "error" ID "\xa5"
                 "error\x80"), /* a fault without its texts */
        AGX_VIEW("\xdf\xff\xff\xff\xff\xa4type"),
};

static void test_parse_tables(void **state)
{
        agx_frame frame;

        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); ++i) {
                for (size_t n = 0; n <= good[i].payload.n; ++n) {
                        uint8_t *bytes = agx_guard_new(good[i].payload.p, n);
                        int r = agx_frame_parse(agx_view_of(bytes, n), &frame);

                        assert_int_equal(r, n && n < good[i].payload.n ? AGX_FRAME_E_MALFORMED : 0);
                        if (n == good[i].payload.n)
                                assert_int_equal(frame.kind, good[i].kind);
                        agx_guard_free(bytes, n);
                }
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
                uint8_t *bytes = agx_guard_new(bad[i].p, bad[i].n);

                assert_int_equal(agx_frame_parse(agx_view_of(bytes, bad[i].n), &frame), AGX_FRAME_E_MALFORMED);
                agx_guard_free(bytes, bad[i].n);
        }
        assert_int_equal(agx_frame_parse(AGX_VIEW("\x81\xa4type\xa6"
                                                  "future"),
                                         &frame),
                         0);
        assert_view(frame.type_text, AGX_VIEW("future"));
}

static void test_nesting(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        agx_frame frame;

        (void)state;
        for (size_t depth = AGX_MAX_NESTING - 4; depth < AGX_MAX_NESTING + 4; ++depth) {
                agx_buf_clear(&out);
                assert_int_equal(agx_buf_append_view(&out, AGX_VIEW("\x83" RESULT ID "\xa1x")), 0);
                for (size_t i = 0; i < depth; ++i)
                        assert_int_equal(agx_buf_append(&out, "\x91", 1), 0);
                assert_int_equal(agx_buf_append(&out, "\xc0", 1), 0);
                assert_int_equal(agx_frame_parse(agx_buf_view(&out), &frame),
                                 depth < AGX_MAX_NESTING ? 0 : AGX_FRAME_E_MALFORMED);
        }
        agx_buf_clear(&out);
        for (size_t i = 0; i < 100000; ++i)
                assert_int_equal(agx_buf_append(&out, "\x91", 1), 0);
        assert_int_equal(agx_frame_parse(agx_buf_view(&out), &frame), AGX_FRAME_E_MALFORMED);
}

/* ---- putting ---- */

/* The limit holds to the byte. The value's bytes are never touched here. */
static void test_put_too_large(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = AGX_VIEW("x"), .value = {"", 1 << 20}};
        size_t overhead;

        (void)state;
        assert_int_equal(agx_frame_put_head(&out, &frame), 0);
        overhead = out.len - 4;
        frame.value.n = AGX_MAX_MESSAGE - overhead;
        assert_int_equal(agx_frame_put_head(&out, &frame), 0);
        assert_int_equal(out.len, 2 * (overhead + 4));
        for (size_t more = 1; more < overhead + 3; ++more) {
                frame.value.n = AGX_MAX_MESSAGE - overhead + more;
                assert_int_equal(agx_frame_put_head(&out, &frame), AGX_FRAME_E_TOO_LARGE);
                assert_int_equal(out.len, 2 * (overhead + 4));
        }
        frame.value.n = AGX_MAX_MESSAGE + 1;
        assert_int_equal(agx_frame_put(&out, &frame), AGX_FRAME_E_TOO_LARGE);
        frame.value.n = SIZE_MAX;
        assert_int_equal(agx_frame_put(&out, &frame), AGX_FRAME_E_TOO_LARGE);
        assert_int_equal(out.len, 2 * (overhead + 4));
}

/* A large value meets one allocation, so nothing of it is ever moved. */
static void test_put_copies_once(void **state)
{
        static char big[1 << 20];
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4 << 20);
        agx_frame frame = {.kind = AGX_FRAME_CALL, .call_id = AGX_VIEW("x"), .callable = AGX_VIEW("f")};

        (void)state;
        frame.arguments = frame.context = agx_view_of(big, sizeof(big));
        agx_oom_arm(2);
        assert_int_equal(agx_frame_put(&out, &frame), 0);
        assert_false(agx_oom_disarm());
}

static void test_put_full(void **state)
{
        (void)state;
        for (size_t i = 0; i < N_FRAMES; ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf whole = AGX_BUF_NULL(1 << 20);

                assert_int_equal(agx_frame_put(&whole, &frames[i]), 0);
                for (size_t max = 2; max <= whole.len + 2; ++max) {
                        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(max);
                        bool fits = whole.len + 2 <= max;

                        assert_int_equal(agx_buf_append(&out, "ab", 2), 0);
                        assert_int_equal(agx_frame_put(&out, &frames[i]), fits ? 0 : AGX_FRAME_E_FULL);
                        assert_int_equal(out.len, fits ? whole.len + 2 : 2);
                        assert_memory_equal(out.data + out.head, "ab", 2);
                }
        }
}

static void test_put_out_of_memory(void **state)
{
        (void)state;
        for (size_t i = 0; i < N_FRAMES; ++i) {
                size_t n = 0;
                int r;

                do {
                        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

                        assert_int_equal(agx_buf_append(&out, "ab", 2), 0);
                        agx_oom_arm(++n);
                        r = agx_frame_put(&out, &frames[i]);
                        assert_true(r == 0 || r == -ENOMEM);
                        assert_true(r == 0 || (out.len == 2 && !memcmp(out.data + out.head, "ab", 2)));
                } while (agx_oom_disarm());
                assert_int_equal(r, 0);
                assert_true(n > 1);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_feature_is_found_among_others),
                cmocka_unit_test(test_round_trip_at_every_cut),
                cmocka_unit_test(test_round_trip_in_pieces),
                cmocka_unit_test(test_exact_bytes),
                cmocka_unit_test(test_put_head),
                cmocka_unit_test(test_parse_tables),
                cmocka_unit_test(test_nesting),
                cmocka_unit_test(test_put_too_large),
                cmocka_unit_test(test_put_copies_once),
                cmocka_unit_test(test_put_full),
                cmocka_unit_test(test_put_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
