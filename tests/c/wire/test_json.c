/* JSON: the reader against tables of what the grammar takes and refuses, at its bounds and at every cut; the writer read
 * back, at its ceiling and without memory. Inputs lie flush against an unreadable page. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/guard.h"
#include "support/oom.h"
#include "wire/json.h"

typedef struct row {
        agx_view in;
        const char *want;
} row;

#define ROW(literal, want_)                                                                                            \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .want = (want_)                                               \
        }
#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static void put(agx_buf *b, agx_view v)
{
        assert_int_equal(agx_buf_append_view(b, v), 0);
}

/* ---- tokens as text ---- */

static void say(agx_buf *log, const agx_json_token *t)
{
        static const char *const marks[] = {
                [AGX_JSON_END] = ".",     [AGX_JSON_ERROR] = "!",       [AGX_JSON_NULL] = "null ",
                [AGX_JSON_BOOL] = "",     [AGX_JSON_NUMBER] = "#",      [AGX_JSON_STRING] = "'",
                [AGX_JSON_KEY] = "k'",    [AGX_JSON_ARRAY] = "[ ",      [AGX_JSON_ARRAY_END] = "] ",
                [AGX_JSON_OBJECT] = "{ ", [AGX_JSON_OBJECT_END] = "} ",
        };

        put(log, agx_view_str(marks[t->kind]));
        if (t->kind == AGX_JSON_BOOL)
                put(log, agx_view_str(t->b ? "true " : "false "));
        if (t->kind == AGX_JSON_NUMBER)
                assert_int_equal(agx_buf_printf(log, "%.*s ", (int)t->v.n, t->v.p), 0);
        if (t->kind == AGX_JSON_STRING || t->kind == AGX_JSON_KEY) {
                assert_int_equal(agx_json_text(t, log), 0);
                put(log, AGX_VIEW("' "));
        }
}

/* All tokens up to the end or an error. */
static void say_all(agx_buf *log, agx_view in, unsigned depth)
{
        uint8_t *guarded = agx_guard_new(in.p, in.n);
        agx_json_reader r = agx_json_reader_on(agx_view_of(guarded, in.n), depth);
        agx_json_token t;

        do {
                t = agx_json_next(&r);
                say(log, &t);
        } while (t.kind != AGX_JSON_END && t.kind != AGX_JSON_ERROR);
        assert_int_equal(t.kind == AGX_JSON_ERROR, r.error != NULL);
        assert_int_equal(agx_json_next(&r).kind, t.kind); /* sticky */
        assert_int_equal(agx_json_done(&r), t.kind == AGX_JSON_END);
        agx_guard_free(guarded, in.n);
}

static bool accepted(agx_view in, unsigned depth)
{
        uint8_t *guarded = agx_guard_new(in.p, in.n);
        agx_json_reader walked = agx_json_reader_on(agx_view_of(guarded, in.n), depth), skipped = walked;
        agx_json_kind kind;
        bool whole;

        do
                kind = agx_json_next(&walked).kind;
        while (kind != AGX_JSON_END && kind != AGX_JSON_ERROR);
        whole = agx_json_skip(&skipped).p && agx_json_done(&skipped);
        assert_int_equal(whole, kind == AGX_JSON_END); /* both ways of reading agree */
        agx_guard_free(guarded, in.n);
        return whole;
}

static void test_tokens(void **state)
{
        static const row rows[] = {
                ROW("null", "null ."),
                ROW(" true\r\n", "true ."),
                ROW("\tfalse ", "false ."),
                ROW("0", "#0 ."),
                ROW("-0.5e+10", "#-0.5e+10 ."),
                ROW("\"\"", "'' ."),
                ROW("\"a\\n\\u00e9\\ud83d\\ude00\\/\\\"\\\\\"", "'a\n\xc3\xa9\xf0\x9f\x98\x80/\"\\' ."),
                ROW("\"\\b\\f\\r\\t\\u0041\\uFFFF\"", "'\b\f\r\tA\xef\xbf\xbf' ."),
                ROW("[]", "[ ] ."),
                ROW("{}", "{ } ."),
                ROW("[1,[ ] ,{\"a\" : [2 , null]},\"x\"]", "[ #1 [ ] { k'a' [ #2 null ] } 'x' ] ."),
                ROW("{\"a\":{\"b\":1},\"c\":[]}", "{ k'a' { k'b' #1 } k'c' [ ] } ."),
                ROW("[1 2]", "[ #1 !"),
                ROW("[1,]", "[ #1 !"),
                ROW("{\"a\":1,}", "{ k'a' #1 !"),
                ROW("{\"a\" 1}", "{ !"),
                ROW("1 1", "#1 !"),
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(10000);

                say_all(&log, rows[i].in, 10);
                put(&log, AGX_VIEW("\0"));
                assert_string_equal(agx_buf_view(&log).p, rows[i].want);
        }
}

#define TEXT(literal)                                                                                                  \
        {                                                                                                              \
                "" literal, sizeof(literal) - 1                                                                        \
        }

static void test_refused(void **state)
{
        static const agx_view texts[] = {
                TEXT(""),
                TEXT(" "),
                TEXT("nul"),
                TEXT("nulls"),
                TEXT("True"),
                TEXT("NaN"),
                TEXT("Infinity"),
                TEXT("-"),
                TEXT("+1"),
                TEXT(".5"),
                TEXT("1."),
                TEXT("01"),
                TEXT("-01"),
                TEXT("1e"),
                TEXT("1e+"),
                TEXT("0x10"),
                TEXT("1_0"),
                TEXT("--1"),
                TEXT("1\0"),
                TEXT("'a'"),
                TEXT("\""),
                TEXT("\"a"),
                TEXT("\"\\"),
                TEXT("\"\\\""),
                TEXT("\"\\x\""),
                TEXT("\"\\u12\""),
                TEXT("\"\\u123g\""),
                TEXT("\"\\ud800\""),
                TEXT("\"\\ud800x\""),
                TEXT("\"\\ud800\\n\""),
                TEXT("\"\\ud800\\u0041\""),
                TEXT("\"\\udc00\""),
                TEXT("\"\\ud83d\\ud83d\""),
                TEXT("\"\x01\""),
                TEXT("\"\n\""),
                TEXT("\"\0\""),
                TEXT("\"\xff\""),
                TEXT("\"\xed\xa0\x80\""),
                TEXT("\"\xc3\""),
                TEXT("["),
                TEXT("]"),
                TEXT("{"),
                TEXT("}"),
                TEXT("[}"),
                TEXT("{]"),
                TEXT("[,]"),
                TEXT("[,1]"),
                TEXT("[1,,2]"),
                TEXT("{,}"),
                TEXT("{1:2}"),
                TEXT("{a:1}"),
                TEXT("{\"a\"}"),
                TEXT("{\"a\":}"),
                TEXT("{\"a\":1 \"b\":2}"),
                TEXT("{\"a\":1,\"b\"}"),
                TEXT("{:1}"),
                TEXT("[\"a\":1]"),
                TEXT("[]]"),
                TEXT("{}{}"),
                TEXT("[] x"),
                TEXT("// c\n1"),
                TEXT("1/**/"),
                TEXT("\xef\xbb\xbf"
                     "1"),
                TEXT("\x0b"
                     "1"),
                TEXT("\x0c"
                     "1"),
                TEXT("\xc2\xa0"
                     "1"),
                TEXT("[1}"),
                TEXT("{\"a\":1]"),
                TEXT("[true,fals]"),
                TEXT("\"a\"b"),
                TEXT("[\"\\u00\"]"),
        };

        (void)state;
        for (size_t i = 0; i < COUNT(texts); ++i)
                if (accepted(texts[i], 10))
                        fail_msg("accepted: %.*s", (int)texts[i].n, texts[i].p);
}

static void test_accepted(void **state)
{
        static const agx_view texts[] = {
                TEXT("-0"),
                TEXT("1E5"),
                TEXT("1.0e-5"),
                TEXT("123456789012345678901234567890"),
                TEXT("\"\x7f\""),
                TEXT("\"\xf4\x8f\xbf\xbf\""),
                TEXT("\"\\u0000\""),
                TEXT("[[],[[]],{}]"),
                TEXT("{\"\":{\"\":[]}}"),
                TEXT("{\"a\":1,\"a\":2}"),
                TEXT(" [ 1 , 2 ] "),
                TEXT("\"\\uDBFF\\uDFFF\""),
        };

        (void)state;
        for (size_t i = 0; i < COUNT(texts); ++i)
                if (!accepted(texts[i], 10))
                        fail_msg("refused: %.*s", (int)texts[i].n, texts[i].p);
}

/* No proper beginning of a text that ends with its last bracket is one itself. */
static void test_cut_short(void **state)
{
        static const agx_view whole =
                TEXT("{\"sid\":\"lv_VI97HAXpY6yYWAAAC\",\"upgrades\":[\"websocket\"],\"pingInterval\":25000,"
                     "\"pingTimeout\":20000,\"maxPayload\":1000000,\"x\":[null,true,-1.5e3,{\"\\u00e9\\n\":{}}]}");

        (void)state;
        assert_true(accepted(whole, 10));
        for (size_t n = 0; n < whole.n; ++n)
                assert_false(accepted(agx_view_first(whole, n), 10));
}

static void test_depth(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1 << 20);

        (void)state;
        for (int i = 0; i < 100; ++i)
                put(&text, i % 2 ? AGX_VIEW("{\"\":") : AGX_VIEW("["));
        put(&text, AGX_VIEW("1"));
        for (int i = 100; i-- > 0;)
                put(&text, i % 2 ? AGX_VIEW("}") : AGX_VIEW("]"));
        assert_false(accepted(agx_buf_view(&text), 1000)); /* AGX_JSON_DEPTH_MAX */
        agx_buf_clear(&text);
        for (int i = 0; i < 64; ++i)
                put(&text, i % 2 ? AGX_VIEW("{\"\":") : AGX_VIEW("["));
        put(&text, AGX_VIEW("[1]"));
        agx_buf_truncate(&text, text.len - 3);
        put(&text, AGX_VIEW("1"));
        for (int i = 64; i-- > 0;)
                put(&text, i % 2 ? AGX_VIEW("}") : AGX_VIEW("]"));
        assert_true(accepted(agx_buf_view(&text), 64));
        assert_true(accepted(agx_buf_view(&text), UINT_MAX));
        assert_false(accepted(agx_buf_view(&text), 63));
        assert_true(accepted(AGX_VIEW("1"), 0));
        assert_false(accepted(AGX_VIEW("[]"), 0));
        agx_buf_clear(&text);
        for (int i = 0; i < 100000; ++i)
                put(&text, AGX_VIEW("["));
        assert_false(accepted(agx_buf_view(&text), 64));
}

/* Raw values, as they are. */
static void test_skip(void **state)
{
        agx_json_reader r = agx_json_reader_on(AGX_VIEW(" [ \"ev\\n\" ,\t{\"a\" : [1, 2]} , 12 ,null]"), 10);
        static const char *const want[] = {"\"ev\\n\"", "{\"a\" : [1, 2]}", "12", "null"};

        (void)state;
        assert_int_equal(agx_json_next(&r).kind, AGX_JSON_ARRAY);
        for (size_t i = 0; i < COUNT(want); ++i)
                assert_true(agx_view_eq(agx_json_skip(&r), agx_view_str(want[i])));
        assert_null(agx_json_skip(&r).p); /* the array's end */
        assert_true(agx_json_done(&r));
        r = agx_json_reader_on(AGX_VIEW("{\"k\" : [\"v\"] }"), 10);
        assert_int_equal(agx_json_next(&r).kind, AGX_JSON_OBJECT);
        assert_int_equal(agx_json_next(&r).kind, AGX_JSON_KEY);
        assert_true(agx_view_eq(agx_json_skip(&r), AGX_VIEW("[\"v\"]")));
        assert_int_equal(agx_json_next(&r).kind, AGX_JSON_OBJECT_END);
        r = agx_json_reader_on(AGX_VIEW("[[1,]"), 10);
        assert_null(agx_json_skip(&r).p);
        assert_non_null(r.error);
}

static agx_json_token first(agx_view in)
{
        agx_json_reader r = agx_json_reader_on(in, 10);

        return agx_json_next(&r);
}

static bool says(agx_view in, agx_view text)
{
        agx_json_token t = first(in);

        return agx_json_is(&t, text);
}

static void test_is(void **state)
{
        (void)state;
        assert_true(says(AGX_VIEW("\"abc\""), AGX_VIEW("abc")));
        assert_true(says(AGX_VIEW("\"\""), AGX_VIEW("")));
        assert_true(says(AGX_VIEW("\"a\\u0062c\""), AGX_VIEW("abc")));
        assert_true(says(AGX_VIEW("\"\\ud83d\\ude00\""), AGX_VIEW("\xf0\x9f\x98\x80")));
        assert_true(says(AGX_VIEW("\"\\u0000\""), AGX_VIEW("\0")));
        assert_false(says(AGX_VIEW("\"abc\""), AGX_VIEW("abcd")));
        assert_false(says(AGX_VIEW("\"a\\u0062c\""), AGX_VIEW("ab")));
        assert_false(says(AGX_VIEW("\"a\\u0062c\""), AGX_VIEW("abcd")));
        assert_false(says(AGX_VIEW("\"a\\u0062c\""), AGX_VIEW("abx")));
        assert_false(says(AGX_VIEW("12"), AGX_VIEW("12")));
}

static bool is_u64(agx_view in, uint64_t max, uint64_t want)
{
        agx_json_token t = first(in);
        uint64_t got = want + 1;

        return agx_json_u64(&t, max, &got) && got == want;
}

static void test_u64(void **state)
{
        (void)state;
        assert_true(is_u64(AGX_VIEW("0"), 10, 0));
        assert_true(is_u64(AGX_VIEW("18446744073709551615"), UINT64_MAX, UINT64_MAX));
        assert_false(is_u64(AGX_VIEW("18446744073709551616"), UINT64_MAX, 0));
        assert_false(is_u64(AGX_VIEW("11"), 10, 11));
        assert_false(is_u64(AGX_VIEW("-1"), 10, 1));
        assert_false(is_u64(AGX_VIEW("-0"), 10, 0));
        assert_false(is_u64(AGX_VIEW("1.0"), 10, 1));
        assert_false(is_u64(AGX_VIEW("1e0"), 10, 1));
        assert_false(is_u64(AGX_VIEW("\"1\""), 10, 1));
}

/* ---- writing ---- */

static int write_all(agx_buf *out)
{
        agx_json_writer w = agx_json_writer_on(out);

        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("s"));
        agx_json_put_string(&w, AGX_VIEW("a\"b\\c\n\x01\x1f/\xc3\xa9\x7f\b\f\r\t"));
        agx_json_put_key(&w, AGX_VIEW("n"));
        agx_json_put_u64(&w, UINT64_MAX);
        agx_json_put_key(&w, AGX_VIEW("l"));
        agx_json_put_array(&w);
        agx_json_put_u64(&w, 0);
        agx_json_put_bool(&w, true);
        agx_json_put_bool(&w, false);
        agx_json_put_null(&w);
        agx_json_put_array(&w);
        agx_json_put_array_end(&w);
        agx_json_put_object(&w);
        agx_json_put_object_end(&w);
        agx_json_put_raw(&w, AGX_VIEW("[1, 2]"));
        agx_json_put_string(&w, AGX_VIEW(""));
        agx_json_put_array_end(&w);
        agx_json_put_key(&w, AGX_VIEW(""));
        agx_json_put_null(&w);
        agx_json_put_object_end(&w);
        return agx_json_writer_end(&w);
}

static const agx_view written =
        TEXT("{\"s\":\"a\\\"b\\\\c\\n\\u0001\\u001f/\xc3\xa9\x7f\\b\\f\\r\\t\",\"n\":18446744073709551615,"
             "\"l\":[0,true,false,null,[],{},[1, 2],\"\"],\"\":null}");

static void test_write(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        (void)state;
        assert_int_equal(write_all(&out), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), written));
        assert_true(accepted(written, 3));
}

static void test_write_errors(void **state)
{
        size_t n = 0;
        int r;

        (void)state;
        for (size_t max = 0; max < written.n; ++max) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(max);

                assert_int_equal(write_all(&out), AGX_BUF_E_FULL);
        }
        do {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

                agx_oom_arm(++n);
                r = write_all(&out);
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        for (int bad = 0; bad < 2; ++bad) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
                agx_json_writer w = agx_json_writer_on(&out);

                if (bad)
                        agx_json_put_string(&w, AGX_VIEW("\xed\xa0\x80"));
                else
                        agx_json_put_key(&w, AGX_VIEW("\xff"));
                agx_json_put_null(&w);
                assert_int_equal(agx_json_writer_end(&w), -EINVAL);
        }
}

/* Text that does not fit is not half there. */
static void test_text_whole_or_not(void **state)
{
        agx_json_token t = first(AGX_VIEW("\"abc\\ndef\""));
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(8);

        (void)state;
        put(&out, AGX_VIEW("12"));
        assert_int_equal(agx_json_text(&t, &out), AGX_BUF_E_FULL);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("12")));
        agx_buf_clear(&out);
        assert_int_equal(agx_json_text(&t, &out), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("abc\ndef")));
}

/* Every character there is, escaped and back. */
static void test_all_escapes(void **state)
{
        (void)state;
        for (unsigned long c = 0; c <= 0x10ffff; c += c < 0x11000 ? 1 : 257) {
                char text[16];
                agx_json_token t;
                agx_buf out = AGX_BUF_NULL(16);
                int n = c < 0x10000 ? snprintf(text, sizeof(text), "\"\\u%04lx\"", c)
                                    : snprintf(text, sizeof(text), "\"\\u%04lX\\u%04lx\"",
                                               0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));

                t = first(agx_view_of(text, (size_t)n));
                assert_int_equal(t.kind, c >= 0xd800 && c <= 0xdfff ? AGX_JSON_ERROR : AGX_JSON_STRING);
                if (t.kind == AGX_JSON_STRING) {
                        agx_json_writer w = agx_json_writer_on(&out);
                        agx_buf again = AGX_BUF_NULL(16);

                        assert_int_equal(agx_json_text(&t, &again), 0);
                        agx_json_put_string(&w, agx_buf_view(&again));
                        assert_int_equal(agx_json_writer_end(&w), 0);
                        t = first(agx_buf_view(&out));
                        assert_true(agx_json_is(&t, agx_buf_view(&again)));
                        agx_buf_deinit(&again);
                }
                agx_buf_deinit(&out);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_tokens),
                cmocka_unit_test(test_refused),
                cmocka_unit_test(test_accepted),
                cmocka_unit_test(test_cut_short),
                cmocka_unit_test(test_depth),
                cmocka_unit_test(test_skip),
                cmocka_unit_test(test_is),
                cmocka_unit_test(test_u64),
                cmocka_unit_test(test_write),
                cmocka_unit_test(test_write_errors),
                cmocka_unit_test(test_text_whole_or_not),
                cmocka_unit_test(test_all_escapes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
