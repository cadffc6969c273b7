/* Prefer (RFC 7240), as a table: the value, and what is understood of it under a ceiling of ten seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/guard.h"
#include "wire/prefer.h"

enum { NO_WAIT = -1 };

static const struct {
        const char *value;
        int async;
        int wait_ms; /* or NO_WAIT */
} rows[] = {
        {"", 0, NO_WAIT},
        {"respond-async", 1, NO_WAIT},
        {"wait=5", 0, 5000},
        {"respond-async, wait=1", 1, 1000},
        {"respond-async,wait=1", 1, 1000},
        {"wait=1,respond-async", 1, 1000},
        {" \trespond-async \t, \twait=1 \t", 1, 1000},
        {"RESPOND-ASYNC, Wait=1", 1, 1000},
        {"wait = 1", 0, 1000}, /* RFC 7240, section 2: blanks around "=" are bad but understood */
        {"wait=\"1\"", 0, 1000},
        {"wait=\"0.5\"", 0, 500},
        {"wait=0", 0, 0},
        {"wait=0.25", 0, 250},
        {"wait=0.001", 0, 1},
        {"wait=0.0009", 0, 0},
        {"wait=1.23456789", 0, 1234},
        {"wait=007", 0, 7000},
        {"wait=10", 0, 10000},
        {"wait=10.001", 0, 10000},
        {"wait=99999999999999999999999999", 0, 10000},
        {"wait=9.9999", 0, 9999},
        {"wait", 0, NO_WAIT},
        {"wait=", 0, NO_WAIT},
        {"wait=\"\"", 0, NO_WAIT},
        {"wait=x", 0, NO_WAIT},
        {"wait=-1", 0, NO_WAIT},
        {"wait=+1", 0, NO_WAIT},
        {"wait=1.", 0, NO_WAIT},
        {"wait=.5", 0, NO_WAIT},
        {"wait=1.2.3", 0, NO_WAIT},
        {"wait=1e3", 0, NO_WAIT},
        {"wait=0x1", 0, NO_WAIT},
        {"wait=1 2", 0, NO_WAIT},
        {"wait=\"1", 0, NO_WAIT},
        {"wait=\" 1\"", 0, NO_WAIT},
        {"wait=\"\\1\"", 0, NO_WAIT},
        {"wait==1", 0, NO_WAIT},
        {"=1, wait=2", 0, 2000},
        {"wait=2, wait=3", 0, 2000},        /* the first one counts, */
        {"wait=x, wait=3", 0, NO_WAIT},     /* readable or not */
        {"respond-async=\"\"", 1, NO_WAIT}, /* an empty value is none */
        {"respond-async=", 1, NO_WAIT},
        {"respond-async=yes", 0, NO_WAIT},
        {"respond-asynch", 0, NO_WAIT},
        {"xrespond-async", 0, NO_WAIT},
        {"respond-async wait=1", 0, NO_WAIT},
        {"return=minimal; foo=\"some, wait=3\", wait=2", 0, 2000},
        {"foo=\"a\\\", wait=9, \", wait=2", 0, 2000},
        {"foo; wait=3, bar", 0, NO_WAIT}, /* a parameter is no preference */
        {"wait=1; foo", 0, 1000},
        {"wait=1;foo=bar;baz=\"q\", respond-async", 1, 1000},
        {"wait=1 ; foo = \"x\" , respond-async", 1, 1000},
        {"wait=1;", 0, 1000},
        {"wait=1;;", 0, 1000},
        {"wait=1 foo", 0, NO_WAIT},
        {",,, wait=1 ,,", 0, 1000},
        {"handling=lenient, wait=100, respond-async", 1, 10000},
        {"\"wait=1\"", 0, NO_WAIT},
        {"\"a, respond-async", 0, NO_WAIT},
        {"\"a, b\", respond-async", 1, NO_WAIT},
        {"@, respond-async", 1, NO_WAIT},
        {"wait=1\xff", 0, NO_WAIT},
        {"\\", 0, NO_WAIT},
        {"a=\"\\", 0, NO_WAIT},
};

static void test_parse(void **state)
{
        size_t wrong = 0;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_view value = agx_view_str(rows[i].value);
                uint8_t *guarded = agx_guard_new(value.p, value.n);
                agx_prefer got = agx_prefer_parse(agx_view_of(guarded, value.n), 10000);
                int wait = got.has_wait ? (int)got.wait_ms : NO_WAIT;

                if (got.respond_async != (rows[i].async != 0) || wait != rows[i].wait_ms) {
                        fprintf(stderr, "%s: async %d, wait %d\n", rows[i].value, got.respond_async, wait);
                        ++wrong;
                }
                agx_guard_free(guarded, value.n);
        }
        assert_int_equal(wrong, 0);
}

static void test_absent(void **state)
{
        agx_prefer got = agx_prefer_parse(AGX_VIEW_NULL, 1000);

        (void)state;
        assert_false(got.respond_async || got.has_wait);
        got = agx_prefer_parse(AGX_VIEW("wait=1\0"), 10000);
        assert_false(got.has_wait);
}

static void test_ceilings(void **state)
{
        (void)state;
        assert_int_equal(agx_prefer_parse(AGX_VIEW("wait=5"), 0).wait_ms, 0);
        assert_int_equal(agx_prefer_parse(AGX_VIEW("wait=5"), 1).wait_ms, 1);
        assert_int_equal(agx_prefer_parse(AGX_VIEW("wait=1.5"), 1400).wait_ms, 1400);
        assert_true(agx_prefer_parse(AGX_VIEW("wait=18446744073709551"), UINT64_MAX).wait_ms == 18446744073709551000u);
        assert_true(agx_prefer_parse(AGX_VIEW("wait=18446744073709551.999"), UINT64_MAX).wait_ms == UINT64_MAX);
        assert_true(agx_prefer_parse(AGX_VIEW("wait=18446744073709552"), UINT64_MAX).wait_ms == UINT64_MAX);
}

static void test_put(void **state)
{
        static const struct {
                uint64_t ms;
                const char *text;
        } puts[] = {
                {0, "wait=0"},      {1000, "wait=1"},       {250, "wait=0.25"},  {1, "wait=0.001"},
                {1500, "wait=1.5"}, {12345, "wait=12.345"}, {1010, "wait=1.01"}, {86400000, "wait=86400"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(puts) / sizeof(puts[0]); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(100);
                agx_prefer back;

                assert_int_equal(agx_prefer_put_wait(&out, puts[i].ms), 0);
                assert_true(agx_view_eq(agx_buf_view(&out), agx_view_str(puts[i].text)));
                back = agx_prefer_parse(agx_buf_view(&out), UINT64_MAX);
                assert_true(back.has_wait && back.wait_ms == puts[i].ms);
        }
        {
                _cleanup_(agx_buf_deinitp) agx_buf small = AGX_BUF_NULL(3);

                assert_int_equal(agx_prefer_put_wait(&small, 1), AGX_BUF_E_FULL);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_parse),
                cmocka_unit_test(test_absent),
                cmocka_unit_test(test_ceilings),
                cmocka_unit_test(test_put),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
