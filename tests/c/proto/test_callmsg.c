/* The bodies of /call. */
#include "proto/callmsg.h"
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

#define ID                                                                                                             \
        "\xa7"                                                                                                         \
        "call_id\xa2s1"
#define CALLABLE                                                                                                       \
        "\xa8"                                                                                                         \
        "callable\xa3"                                                                                                 \
        "a:b"
#define ARGUMENTS                                                                                                      \
        "\xa9"                                                                                                         \
        "arguments\xc4\x02\x80."

static void test_request_good(void **state)
{
        static const char body[] = "\x86" ID CALLABLE ARGUMENTS "\xa7"
                                   "context\xc4\x01"
                                   "c\xa6stream\x10\xa4"
                                   "acks\x92\xa1x\xa1y";
        agx_call_request request;
        const char *why = NULL;
        agx_call_acks acks;
        agx_view id;

        (void)state;
        assert_true(agx_call_request_get(agx_view_of(body, sizeof(body) - 1), &request, &why));
        assert_null(why);
        assert_view(request.call_id, AGX_VIEW("s1"));
        assert_view(request.callable, AGX_VIEW("a:b"));
        assert_view(request.arguments, AGX_VIEW("\x80."));
        assert_view(request.context, AGX_VIEW("c"));
        assert_true(request.has_stream);
        assert_int_equal(request.stream, 16);
        acks = agx_call_acks_of(request.acks);
        assert_true(agx_call_acks_next(&acks, &id));
        assert_view(id, AGX_VIEW("x"));
        assert_true(agx_call_acks_next(&acks, &id));
        assert_view(id, AGX_VIEW("y"));
        assert_false(agx_call_acks_next(&acks, &id));
        assert_false(agx_call_acks_next(&acks, &id));
}

/* What is missing or of another type where that is the call's own affair; nil counts as missing. */
static void test_request_lax(void **state)
{
        static const struct {
                agx_view body;
                bool callable, arguments;
        } rows[] = {
                {AGX_VIEW("\x81" ID), false, false},
                {AGX_VIEW("\x82" ID CALLABLE), true, false},
                {AGX_VIEW("\x82" ID ARGUMENTS), false, true},
                {AGX_VIEW("\x83" ID "\xa8"
                          "callable\xc4\x01"
                          "a" ARGUMENTS),
                 false, true}, /* bin for str */
                {AGX_VIEW("\x83" ID CALLABLE "\xa9"
                          "arguments\xa1x"),
                 true, false}, /* str for bin */
                {AGX_VIEW("\x83" ID "\xa8"
                          "callable\x92\x01\x80" ARGUMENTS),
                 false, true},
                {AGX_VIEW("\x83" ID "\xa8"
                          "callable\xc0" ARGUMENTS),
                 false, true},
                {AGX_VIEW("\x86" ID CALLABLE ARGUMENTS "\xa7"
                          "context\xc0\xa6stream\xc0\xa4"
                          "acks\xc0"),
                 true, true},
                {AGX_VIEW("\x84"
                          "\xa5other\x81\x01\x02" ID CALLABLE ARGUMENTS),
                 true, true},
                {AGX_VIEW("\x84"
                          "\x01\xa1z" ID CALLABLE ARGUMENTS),
                 true, true},
                {AGX_VIEW("\x84"
                          "\xc4\x07"
                          "call_id\xa1z" ID CALLABLE ARGUMENTS),
                 true, true},
        };
        agx_call_request request;
        const char *why;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                assert_true(agx_call_request_get(rows[i].body, &request, &why));
                assert_view(request.call_id, AGX_VIEW("s1"));
                assert_int_equal(request.callable.p != NULL, rows[i].callable);
                assert_int_equal(request.arguments.p != NULL, rows[i].arguments);
                assert_null(request.context.p);
                assert_null(request.acks.p);
                assert_false(request.has_stream);
        }
}

static const struct {
        agx_view body;
        const char *why;
} bad[] = {
        {AGX_VIEW(""), "empty"},
        {AGX_VIEW("\xc0"), "not a map"},
        {AGX_VIEW("\x91\x80"), "not a map"},
        {AGX_VIEW("{\"call_id\": \"x\"}"), "not a map"},
        {AGX_VIEW("\x80"), "missing call_id"},
        {AGX_VIEW("\x82" CALLABLE ARGUMENTS), "missing call_id"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xc0"),
         "missing call_id"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xa0"),
         "call_id is empty"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xff"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\x07"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xc4\x02s1"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xd4\x01\x00"),
         "call_id is not a str"},
        {AGX_VIEW("\x81\xa7"
                  "call_id\xa2\xc3("),
         NULL},
        {AGX_VIEW("\x81\xa7"
                  "call_id"),
         "cut short"},
        {AGX_VIEW("\x82" ID ID), "call_id occurs twice"},
        {AGX_VIEW("\x83" ID CALLABLE CALLABLE), "callable occurs twice"},
        {AGX_VIEW("\x82" ID "\xa7"
                  "context\xa1x"),
         "context is not a bin"},
        {AGX_VIEW("\x82" ID "\xa6stream\xff"), "stream is not a non-negative int"},
        {AGX_VIEW("\x82" ID "\xa6stream\xc3"), "stream is not a non-negative int"},
        {AGX_VIEW("\x82" ID "\xa4"
                  "acks\xa1x"),
         "acks is not an array"},
        {AGX_VIEW("\x82" ID "\xa4"
                  "acks\x80"),
         "acks is not an array"},
        {AGX_VIEW("\x83" ID CALLABLE ARGUMENTS "\x00"), "bytes after the map"},
        {AGX_VIEW("\x82" ID CALLABLE ARGUMENTS), "bytes after the map"},
        {AGX_VIEW("\x82" ID "\xa1x\xc1"), NULL},
        {AGX_VIEW("\xde\xff\xff" ID), NULL},
};

static void test_request_bad(void **state)
{
        agx_call_request request;
        const char *why;

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
                uint8_t *bytes = agx_guard_new(bad[i].body.p, bad[i].body.n);

                why = NULL;
                assert_false(agx_call_request_get(agx_view_of(bytes, bad[i].body.n), &request, &why));
                assert_non_null(why);
                if (bad[i].why)
                        assert_string_equal(why, bad[i].why);
                agx_guard_free(bytes, bad[i].body.n);
        }
}

/* No beginning of a body is a body, and none reads past its end. */
static void test_request_cut(void **state)
{
        static const char body[] = "\x86" ID CALLABLE ARGUMENTS "\xa7"
                                   "context\xc4\x01"
                                   "c\xa6stream\x10\xa4"
                                   "acks\x92\xa1x\xa1y";
        agx_call_request request;
        const char *why;

        (void)state;
        for (size_t n = 0; n < sizeof(body); ++n) {
                uint8_t *bytes = agx_guard_new(body, n);

                assert_int_equal(agx_call_request_get(agx_view_of(bytes, n), &request, &why), n == sizeof(body) - 1);
                agx_guard_free(bytes, n);
        }
}

static void put_id_of(agx_buf *out, const char *key, size_t n)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1 << 21);
        agx_mp_writer w = agx_mp_writer_on(out);

        while (text.len < n)
                assert_int_equal(agx_buf_append(&text, "i", 1), 0);
        agx_mp_put_str(&w, agx_view_str(key));
        agx_mp_put_str(&w, agx_buf_view(&text));
        assert_int_equal(agx_mp_writer_end(&w), 0);
}

static void test_request_lengths(void **state)
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
        agx_call_request request;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 22);
                const char *why = NULL;

                assert_int_equal(agx_buf_append(&out, "\x82", 1), 0);
                put_id_of(&out, "call_id", rows[i].id);
                put_id_of(&out, "callable", rows[i].callable);
                assert_int_equal(agx_call_request_get(agx_buf_view(&out), &request, &why), rows[i].why == NULL);
                if (rows[i].why)
                        assert_string_equal(why, rows[i].why);
        }
}

static void put_acks(agx_buf *out, size_t n)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 2);
        agx_mp_put_str(&w, AGX_VIEW("call_id"));
        agx_mp_put_str(&w, AGX_VIEW("s1"));
        agx_mp_put_str(&w, AGX_VIEW("acks"));
        agx_mp_put_array(&w, n);
        for (size_t i = 0; i < n; ++i)
                agx_mp_put_str(&w, AGX_VIEW("s0"));
        assert_int_equal(agx_mp_writer_end(&w), 0);
}

static size_t count_acks(agx_view acks)
{
        agx_call_acks walk = agx_call_acks_of(acks);
        size_t n = 0;

        for (agx_view id; agx_call_acks_next(&walk, &id);)
                ++n;
        return n;
}

static void test_acks(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        agx_call_request request;
        const char *why;

        (void)state;
        for (size_t n = AGX_MAX_ACKS - 1; n <= AGX_MAX_ACKS + 1; ++n) {
                agx_buf_clear(&out);
                put_acks(&out, n);
                assert_int_equal(agx_call_request_get(agx_buf_view(&out), &request, &why), n <= AGX_MAX_ACKS);
                if (n <= AGX_MAX_ACKS)
                        assert_int_equal(count_acks(request.acks), n);
        }
        assert_int_equal(count_acks(AGX_VIEW_NULL), 0);
        assert_int_equal(count_acks(AGX_VIEW("\x90")), 0);
        assert_int_equal(count_acks(AGX_VIEW("\xa1x")), 0); /* bytes that nobody checked do no harm */
        assert_int_equal(count_acks(AGX_VIEW("\x93\xa1x\xc1\xa1y")), 1);
        /* What is not a str is passed over, whatever it is. */
        assert_true(agx_call_request_get(AGX_VIEW("\x82" ID "\xa4"
                                                  "acks\x95\x01\xa1x\xc4\x01y\x92\x01\x80\xa1z"),
                                         &request, &why));
        assert_int_equal(count_acks(request.acks), 2);
}

static void test_nesting(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
        static const agx_view starts[] = {AGX_VIEW("\x82" ID "\xa1x"), AGX_VIEW("\x82" ID "\xa4"
                                                                                "acks")};
        agx_call_request request;
        const char *why;

        (void)state;
        for (size_t depth = AGX_MAX_NESTING - 4; depth < AGX_MAX_NESTING + 4; ++depth) {
                for (size_t s = 0; s < 2; ++s) {
                        agx_buf_clear(&out);
                        assert_int_equal(agx_buf_append_view(&out, starts[s]), 0);
                        for (size_t i = 0; i < depth; ++i)
                                assert_int_equal(agx_buf_append(&out, "\x91", 1), 0);
                        assert_int_equal(agx_buf_append(&out, "\xc0", 1), 0);
                        assert_int_equal(agx_call_request_get(agx_buf_view(&out), &request, &why),
                                         depth < AGX_MAX_NESTING);
                }
        }
        /* 100,000 arrays in each other. */
        agx_buf_clear(&out);
        for (size_t i = 0; i < 100000; ++i)
                assert_int_equal(agx_buf_append(&out, "\x91", 1), 0);
        assert_false(agx_call_request_get(agx_buf_view(&out), &request, &why));
}

static int put_request(agx_buf *out, const agx_call_request *request, const agx_view *acks, size_t n_acks)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_call_request_put(&w, request, acks, n_acks);
        return agx_mp_writer_end(&w);
}

static void test_request_round_trip(void **state)
{
        static const agx_view acks[] = {AGX_VIEW("a"), AGX_VIEW("b"), AGX_VIEW("c")};

        (void)state;
        for (unsigned bits = 0; bits < 32; ++bits) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);
                agx_call_request request = {.call_id = AGX_VIEW("id-1")}, got;
                size_t n_acks = bits & 16 ? 3 : 0;
                const char *why;

                if (bits & 1)
                        request.callable = AGX_VIEW("m::f");
                if (bits & 2)
                        request.arguments = AGX_VIEW("\x80\x05.");
                if (bits & 4)
                        request.context = AGX_VIEW("ctx");
                request.has_stream = bits & 8;
                request.stream = bits & 8 ? UINT64_MAX : 0;
                assert_int_equal(put_request(&out, &request, acks, n_acks), 0);
                assert_true(agx_call_request_get(agx_buf_view(&out), &got, &why));
                assert_view(got.call_id, request.call_id);
                assert_view(got.callable, request.callable);
                assert_view(got.arguments, request.arguments);
                assert_view(got.context, request.context);
                assert_int_equal(got.has_stream, request.has_stream);
                assert_int_equal(got.stream, request.stream);
                assert_int_equal(count_acks(got.acks), n_acks);
        }
}

static void test_out_of_memory(void **state)
{
        static const agx_view acks[] = {AGX_VIEW("a")};
        agx_call_request request = {.call_id = AGX_VIEW("id-1"), .arguments = AGX_VIEW("\x80\x05.")};
        size_t n = 0;
        int r;

        (void)state;
        do {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20);

                agx_oom_arm(++n);
                r = put_request(&out, &request, acks, 1);
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 1);
}

static void test_replies(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1 << 20), again = AGX_BUF_NULL(1 << 20);
        agx_fault fault = {.type = AGX_VIEW("E"), .message = AGX_VIEW("m"), .has_returncode = true, .returncode = -9};
        agx_mp_writer w = agx_mp_writer_on(&out), v = agx_mp_writer_on(&again);
        agx_call_reply reply;

        (void)state;
        agx_call_reply_put_value_head(&w, 3);
        assert_int_equal(agx_buf_append(&out, "abc", 3), 0);
        assert_true(agx_call_reply_get(agx_buf_view(&out), false, &reply));
        assert_true(reply.ok && !reply.accepted);
        assert_view(reply.value, AGX_VIEW("abc"));
        assert_false(agx_call_reply_get(agx_buf_view(&out), true, &reply));

        agx_buf_clear(&out);
        agx_call_reply_put_fault(&w, &fault);
        assert_true(agx_call_reply_get(agx_buf_view(&out), false, &reply));
        assert_false(reply.ok);
        assert_view(reply.fault.type, fault.type);
        assert_int_equal(reply.fault.returncode, -9);
        agx_call_reply_put_fault_head(&v); /* and the same in two steps */
        agx_fault_put(&v, &fault);
        assert_view(agx_buf_view(&again), agx_buf_view(&out));

        agx_buf_clear(&out);
        agx_call_reply_put_accepted(&w, AGX_VIEW("id"));
        assert_true(agx_call_reply_get(agx_buf_view(&out), true, &reply));
        assert_true(reply.accepted);
        assert_view(reply.call_id, AGX_VIEW("id"));
        assert_false(agx_call_reply_get(agx_buf_view(&out), false, &reply));
        assert_int_equal(agx_mp_writer_end(&w), 0);
}

#define OK "\xa2ok\xc3"
#define NOT_OK "\xa2ok\xc2"
#define VALUE "\xa5value\xc4\x01v"
#define ERROR                                                                                                          \
        "\xa5"                                                                                                         \
        "error\x82\xa4type\xa1t\xa7message\xa1m"

static void test_reply_tables(void **state)
{
        static const agx_view good[] = {
                AGX_VIEW("\x82" OK VALUE),
                AGX_VIEW("\x82" NOT_OK ERROR),
                AGX_VIEW("\x83" OK VALUE "\xa7"
                         "call_id\x01"), /* not this form's key */
                AGX_VIEW("\x83" OK VALUE "\xa5"
                         "extra\xc0"),
        };
        static const agx_view wrong[] = {
                AGX_VIEW(""),
                AGX_VIEW("\x80"),
                AGX_VIEW("\x81" OK),
                AGX_VIEW("\x81" NOT_OK),
                AGX_VIEW("\x81" VALUE),
                AGX_VIEW("\x82" OK ERROR),
                AGX_VIEW("\x82" NOT_OK VALUE),
                AGX_VIEW("\x82" OK "\xa5value\xc0"),
                AGX_VIEW("\x82" OK "\xa5value\xa1v"),
                AGX_VIEW("\x82\xa2ok\x01" VALUE),
                AGX_VIEW("\x83" OK OK VALUE),
                AGX_VIEW("\x83" OK VALUE VALUE),
                AGX_VIEW("\x82" NOT_OK "\xa5"
                         "error\x80"),
                AGX_VIEW("\x82" NOT_OK "\xa5"
                         "error\xa1x"),
                AGX_VIEW("\x82" OK VALUE "\xc0"),
                AGX_VIEW("\x83" OK VALUE),
        };
        agx_call_reply reply;

        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(*good); ++i) {
                for (size_t n = 0; n <= good[i].n; ++n) {
                        uint8_t *bytes = agx_guard_new(good[i].p, n);

                        assert_int_equal(agx_call_reply_get(agx_view_of(bytes, n), false, &reply), n == good[i].n);
                        agx_guard_free(bytes, n);
                }
        }
        for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); ++i)
                assert_false(agx_call_reply_get(wrong[i], false, &reply));
        assert_false(agx_call_reply_get(AGX_VIEW("\x81\xa7"
                                                 "call_id\xc4\x01x"),
                                        true, &reply));
        assert_false(agx_call_reply_get(AGX_VIEW("\x80"), true, &reply));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_request_good),    cmocka_unit_test(test_request_lax),
                cmocka_unit_test(test_request_bad),     cmocka_unit_test(test_request_cut),
                cmocka_unit_test(test_request_lengths), cmocka_unit_test(test_acks),
                cmocka_unit_test(test_nesting),         cmocka_unit_test(test_request_round_trip),
                cmocka_unit_test(test_out_of_memory),   cmocka_unit_test(test_replies),
                cmocka_unit_test(test_reply_tables),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
