/* Faults: round trips, cuts, what is refused. */
#include "base/utf8.h"
#include "proto/fault.h"
#include "proto/limits.h"
#include "support/guard.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static int put(agx_buf *out, const agx_fault *fault)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_fault_put(&w, fault);
        return agx_mp_writer_end(&w);
}

/* Reads bytes that must be one whole fault. */
static bool get(agx_view bytes, agx_fault *fault)
{
        agx_mp_reader r = agx_mp_reader_on(bytes);

        return agx_fault_get(&r, fault) && agx_mp_done(&r);
}

static void assert_view(agx_view got, agx_view expected)
{
        assert_int_equal(got.p == NULL, expected.p == NULL);
        assert_true(agx_view_eq(got, expected));
}

static void assert_round_trip(const agx_fault *fault)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        agx_fault got;

        assert_int_equal(put(&out, fault), 0);
        assert_true(get(agx_buf_view(&out), &got));
        assert_view(got.type, fault->type);
        assert_view(got.message, fault->message);
        assert_view(got.traceback, fault->traceback);
        assert_view(got.reason, fault->reason);
        assert_int_equal(got.cancelled, fault->cancelled);
        assert_int_equal(got.has_returncode, fault->has_returncode);
        assert_int_equal(got.returncode, fault->returncode);
}

static void test_round_trip(void **state)
{
        const agx_fault faults[] = {
                {.type = AGX_VIEW("ValueError"), .message = AGX_VIEW("no")},
                {.type = AGX_VIEW(""), .message = AGX_VIEW("")},
                {.type = AGX_VIEW("WorkerDied"),
                 .message = AGX_VIEW("signal 9"),
                 .has_returncode = true,
                 .returncode = -9},
                {.type = AGX_VIEW("WorkerDied"), .message = AGX_VIEW("7"), .has_returncode = true, .returncode = 7},
                {.type = AGX_VIEW("X"), .message = AGX_VIEW("y"), .has_returncode = true, .returncode = INT64_MIN},
                {.type = AGX_VIEW("X"), .message = AGX_VIEW("y"), .has_returncode = true, .returncode = INT64_MAX},
                {.type = AGX_VIEW("Cancelled"),
                 .message = AGX_VIEW("c"),
                 .traceback = AGX_VIEW("at\n"),
                 .cancelled = true},
                {.type = AGX_VIEW("ResultUnavailable"), .message = AGX_VIEW("x"), .reason = AGX_VIEW("never_seen")},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); ++i)
                assert_round_trip(&faults[i]);
}

/* The exact bytes, once: others read them too. */
static void test_bytes(void **state)
{
        static const char expected[] = "\x86\xa4type\xa1T\xa7message\xa1m\xa9traceback\xc0\xa9"
                                       "cancelled\xc2\xaareturncode\xf7\xa6reason\xa7"
                                       "dropped";
        agx_fault fault = {.type = AGX_VIEW("T"),
                           .message = AGX_VIEW("m"),
                           .has_returncode = true,
                           .returncode = -9,
                           .reason = AGX_VIEW("dropped")};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

        (void)state;
        assert_int_equal(put(&out, &fault), 0);
        assert_view(agx_buf_view(&out), agx_view_of(expected, sizeof(expected) - 1));
}

#define M "\xa7message\xa1m"
#define T "\xa4type\xa1t"

static const agx_view good[] = {
        AGX_VIEW("\x82" T M),
        AGX_VIEW("\x82" M T),
        AGX_VIEW("\x85" T M "\xa9traceback\xc0\xaareturncode\xc0\xa6reason\xc0"),
        AGX_VIEW("\x83" T M "\xa5other\x93\x01\x02\xa1x"),
        AGX_VIEW("\x84" T M "\xa5other\x01\xa5other\x02"), /* an unknown key twice */
        AGX_VIEW("\x83" T M "\x05\xc0"),                   /* keys that are not str */
        AGX_VIEW("\x83" T M "\xc4\x04type\x01"),
        AGX_VIEW("\x83" T M "\x92\x01\x80\x80"),
        AGX_VIEW("\x83" T M "\xaareturncode\xd0\x05"), /* 5 in a signed byte */
};

static const agx_view bad[] = {
        AGX_VIEW(""),
        AGX_VIEW("\xc0"),
        AGX_VIEW("\x92" T),
        AGX_VIEW("\xa1x"),
        AGX_VIEW("\x80"),
        AGX_VIEW("\x81" T),
        AGX_VIEW("\x81" M),
        AGX_VIEW("\x82\xa4type\xc0" M),                      /* nil is absent */
        AGX_VIEW("\x82\xa4type\xc4\x01t" M),                 /* bin for str */
        AGX_VIEW("\x82" T "\xa7message\x01"),                /* int for str */
        AGX_VIEW("\x82" T "\xa7message\xa1\xff"),            /* not UTF-8 */
        AGX_VIEW("\x83" T M T),                              /* twice */
        AGX_VIEW("\x84" T M "\xa6reason\xc0\xa6reason\xc0"), /* twice, nil both */
        AGX_VIEW("\x83" T M "\xa9traceback\xc2"),
        AGX_VIEW("\x83" T M "\xa9"
                 "cancelled\x01"),
        AGX_VIEW("\x83" T M "\xaareturncode\xca\x3f\x80\x00\x00"),                 /* a float */
        AGX_VIEW("\x83" T M "\xaareturncode\xcf\x80\x00\x00\x00\x00\x00\x00\x00"), /* 2^63 */
        AGX_VIEW("\x83" T M "\xa6reason\x81\x01\x01"),
        AGX_VIEW("\x83" T M),                 /* a pair less than announced */
        AGX_VIEW("\xdf\xff\xff\xff\xff" T M), /* far too many announced */
        AGX_VIEW("\x83" T M "\xa1x\xc1"),     /* a byte msgpack does not use */
};

/* Every table row ends where nothing may be read, and so does every beginning of it. */
static void test_tables(void **state)
{
        agx_fault fault;

        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); ++i) {
                for (size_t n = 0; n <= good[i].n; ++n) {
                        uint8_t *bytes = agx_guard_new(good[i].p, n);

                        assert_int_equal(get(agx_view_of(bytes, n), &fault), n == good[i].n);
                        agx_guard_free(bytes, n);
                }
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
                uint8_t *bytes = agx_guard_new(bad[i].p, bad[i].n);
                agx_mp_reader r = agx_mp_reader_on(agx_view_of(bytes, bad[i].n));

                assert_false(agx_fault_get(&r, &fault));
                assert_non_null(r.error);
                agx_guard_free(bytes, bad[i].n);
        }
}

static void test_nesting(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        agx_fault fault;

        (void)state;
        for (size_t depth = AGX_MAX_NESTING - 4; depth < AGX_MAX_NESTING + 4; ++depth) {
                agx_buf_clear(&out);
                assert_int_equal(agx_buf_append_view(&out, AGX_VIEW("\x83" T M "\xa1x")), 0);
                for (size_t i = 0; i < depth; ++i)
                        assert_int_equal(agx_buf_append(&out, "\x91", 1), 0);
                assert_int_equal(agx_buf_append(&out, "\xc0", 1), 0);
                /* The message around the fault and the fault itself are two of them. */
                assert_int_equal(get(agx_buf_view(&out), &fault), depth <= AGX_MAX_NESTING - 2);
        }
}

/* A text of `n` bytes made of a three-byte character, after `lead` letters. */
static void long_text(agx_buf *text, size_t lead, size_t n)
{
        while (text->len < lead)
                assert_int_equal(agx_buf_append(text, "a", 1), 0);
        while (text->len < n)
                assert_int_equal(agx_buf_append(text, "\xe2\x82\xac", 3), 0);
}

static void test_cuts(void **state)
{
        (void)state;
        for (size_t lead = 0; lead < 4; ++lead) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4 << 20), text = AGX_BUF_NULL(1 << 20),
                                                   raw = AGX_BUF_NULL(4 << 20);
                agx_mp_writer w = agx_mp_writer_on(&raw);
                agx_fault fault, got;

                long_text(&text, lead, AGX_MAX_FAULT_TRACEBACK + 100);
                fault = (agx_fault){.type = agx_buf_view(&text),
                                    .message = agx_buf_view(&text),
                                    .traceback = agx_buf_view(&text)};
                assert_int_equal(put(&out, &fault), 0);
                assert_true(get(agx_buf_view(&out), &got));
                assert_in_range(got.type.n, AGX_MAX_FAULT_TYPE - 2, AGX_MAX_FAULT_TYPE);
                assert_in_range(got.message.n, AGX_MAX_FAULT_MESSAGE - 2, AGX_MAX_FAULT_MESSAGE);
                assert_in_range(got.traceback.n, AGX_MAX_FAULT_TRACEBACK - 2, AGX_MAX_FAULT_TRACEBACK);
                assert_true(agx_view_starts(agx_buf_view(&text), got.traceback));

                /* A peer that does not cut: the reader does. */
                agx_mp_put_map(&w, 2);
                agx_mp_put_str(&w, AGX_VIEW("type"));
                agx_mp_put_str(&w, agx_buf_view(&text));
                agx_mp_put_str(&w, AGX_VIEW("message"));
                agx_mp_put_str(&w, agx_buf_view(&text));
                assert_int_equal(agx_mp_writer_end(&w), 0);
                assert_true(get(agx_buf_view(&raw), &got));
                assert_in_range(got.type.n, AGX_MAX_FAULT_TYPE - 2, AGX_MAX_FAULT_TYPE);
                assert_in_range(got.message.n, AGX_MAX_FAULT_MESSAGE - 2, AGX_MAX_FAULT_MESSAGE);
                assert_true(agx_utf8_valid(got.message));
        }
}

static void test_mends(void **state)
{
        static const struct {
                agx_view in, out;
        } rows[] = {
                {AGX_VIEW("ok"), AGX_VIEW("ok")},
                {AGX_VIEW("a\xff"
                          "b"),
                 AGX_VIEW("a?b")},
                {AGX_VIEW("\xe2\x82\xac\xe2\x82"), AGX_VIEW("\xe2\x82\xac??")},
                {AGX_VIEW("\xc0\x80"), AGX_VIEW("??")},
                {AGX_VIEW("\xed\xa0\x80z"), AGX_VIEW("???z")},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
                agx_fault fault = {.type = AGX_VIEW("T"), .message = rows[i].in}, got;

                assert_int_equal(put(&out, &fault), 0);
                assert_true(get(agx_buf_view(&out), &got));
                assert_view(got.message, rows[i].out);
        }
}

static void test_out_of_memory(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("T"), .message = AGX_VIEW("m"), .traceback = AGX_VIEW("t")};
        size_t n = 0;
        int r;

        (void)state;
        do {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

                agx_oom_arm(++n);
                r = put(&out, &fault);
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 1);
}

static void test_ceiling(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("T"), .message = AGX_VIEW("m"), .traceback = AGX_VIEW("t")};

        (void)state;
        for (size_t max = 0; max < 60; ++max) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(max);

                assert_int_equal(put(&out, &fault), max < 53 ? AGX_BUF_E_FULL : 0);
        }
}

static void test_type_texts(void **state)
{
        (void)state;
        for (int i = 0; i < AGX_FAULT__COUNT; ++i)
                assert_true(agx_fault_type_text((agx_fault_type)i).n > 3);
        assert_view(agx_fault_type_text(AGX_FAULT_RESULT_UNAVAILABLE), AGX_VIEW("ResultUnavailable"));
        assert_view(agx_fault_type_text(AGX_FAULT_BUSY), AGX_VIEW("Busy"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip), cmocka_unit_test(test_bytes),
                cmocka_unit_test(test_tables),     cmocka_unit_test(test_nesting),
                cmocka_unit_test(test_cuts),       cmocka_unit_test(test_mends),
                cmocka_unit_test(test_ceiling),    cmocka_unit_test(test_out_of_memory),
                cmocka_unit_test(test_type_texts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
