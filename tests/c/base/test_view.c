/* Views: comparing, cutting, trimming, splitting, numbers. Views lie flush against an unreadable page where a verb walks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/view.h"
#include "support/guard.h"

static void test_make(void **state)
{
        agx_view v = AGX_VIEW("a\0b");

        (void)state;
        assert_int_equal(v.n, 3);
        assert_null(AGX_VIEW_NULL.p);
        assert_int_equal(agx_view_str("abc").n, 3);
        assert_null(agx_view_str(NULL).p);
        assert_int_equal(agx_view_str(NULL).n, 0);
        assert_non_null(AGX_VIEW("").p); /* empty is not absent */
}

static void test_equal(void **state)
{
        (void)state;
        assert_true(agx_view_eq(AGX_VIEW("abc"), agx_view_str("abc")));
        assert_false(agx_view_eq(AGX_VIEW("abc"), AGX_VIEW("abC")));
        assert_false(agx_view_eq(AGX_VIEW("abc"), AGX_VIEW("ab")));
        assert_true(agx_view_eq(AGX_VIEW(""), AGX_VIEW_NULL));
        assert_false(agx_view_eq(AGX_VIEW("a\0b"), AGX_VIEW("a\0c")));
}

static void test_equal_ignoring_case(void **state)
{
        (void)state;
        assert_true(agx_view_ieq(AGX_VIEW("Content-Length"), AGX_VIEW("cONTENT-lENGTH")));
        assert_true(agx_view_ieq(AGX_VIEW("azAZ"), AGX_VIEW("AZaz")));
        assert_false(agx_view_ieq(AGX_VIEW("@"), AGX_VIEW("`"))); /* just outside the letters */
        assert_false(agx_view_ieq(AGX_VIEW("["), AGX_VIEW("{")));
        assert_false(agx_view_ieq(AGX_VIEW("\xc4"), AGX_VIEW("\xe4"))); /* ASCII only */
        assert_false(agx_view_ieq(AGX_VIEW("a"), AGX_VIEW("ab")));
        assert_true(agx_view_ieq(AGX_VIEW_NULL, AGX_VIEW("")));
}

static void test_cut(void **state)
{
        agx_view v = AGX_VIEW("hello");

        (void)state;
        assert_true(agx_view_starts(v, AGX_VIEW("he")));
        assert_true(agx_view_starts(v, AGX_VIEW("")));
        assert_true(agx_view_starts(v, v));
        assert_false(agx_view_starts(v, AGX_VIEW("hello!")));
        assert_false(agx_view_starts(v, AGX_VIEW("el")));
        assert_true(agx_view_starts(AGX_VIEW_NULL, AGX_VIEW_NULL));
        assert_true(agx_view_eq(agx_view_from(v, 2), AGX_VIEW("llo")));
        assert_int_equal(agx_view_from(v, 5).n, 0);
        assert_true(agx_view_eq(agx_view_first(v, 2), AGX_VIEW("he")));
        assert_int_equal(agx_view_first(v, SIZE_MAX).n, 5);
}

static void test_trim(void **state)
{
        static const char *const rows[][2] = {
                {"", ""},           {" ", ""},   {" \t \t", ""}, {"a", "a"},
                {"  a b\t", "a b"}, {"a ", "a"}, {"\ta", "a"},   {"\na\r", "\na\r"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                size_t n = strlen(rows[i][0]);
                uint8_t *guarded = agx_guard_new(rows[i][0], n);

                assert_true(agx_view_eq(agx_view_trim(agx_view_of(guarded, n)), agx_view_str(rows[i][1])));
                agx_guard_free(guarded, n);
        }
}

/* The parts, joined by "|", for a text and a separator ",". */
static void test_split(void **state)
{
        static const char *const rows[][2] = {
                {"", "|"}, {"a", "a|"}, {"a,b", "a|b|"}, {",", "||"}, {"a,", "a||"}, {",a", "|a|"}, {"a,,b", "a||b|"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                char joined[32] = "";
                size_t n = 0;
                agx_view rest = agx_view_str(rows[i][0]), part;

                while (agx_view_split(&rest, ',', &part)) {
                        memcpy(joined + n, part.p, part.n);
                        n += part.n;
                        joined[n++] = '|';
                }
                assert_string_equal(joined, rows[i][1]);
                assert_false(agx_view_split(&rest, ',', &part));
        }
}

static void test_number(void **state)
{
        static const struct {
                const char *text;
                uint64_t max;
                bool ok;
                uint64_t value;
        } rows[] = {
                {"0", 0, true, 0},
                {"1", 0, false, 0},
                {"007", 7, true, 7},
                {"8", 7, false, 0},
                {"10", 9, false, 0},
                {"99", 99, true, 99},
                {"100", 99, false, 0},
                {"18446744073709551615", UINT64_MAX, true, UINT64_MAX},
                {"18446744073709551616", UINT64_MAX, false, 0},
                {"18446744073709551620", UINT64_MAX, false, 0},
                {"184467440737095516150", UINT64_MAX, false, 0},
                {"18446744073709551615", UINT64_MAX - 1, false, 0},
                {"000000000000000000000000000000001", 1, true, 1},
                {"", 9, false, 0},
                {"-1", 9, false, 0},
                {"+1", 9, false, 0},
                {" 1", 9, false, 0},
                {"1 ", 9, false, 0},
                {"0x1", 99, false, 0},
                {"1_0", 99, false, 0},
                {"1.0", 99, false, 0},
                {"/", 99, false, 0},
                {":", 99, false, 0},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                uint64_t value = 0;
                bool ok = agx_view_u64(agx_view_str(rows[i].text), rows[i].max, &value);

                assert_int_equal(ok, rows[i].ok);
                if (ok)
                        assert_true(value == rows[i].value);
        }
        assert_false(agx_view_u64(AGX_VIEW_NULL, 9, &(uint64_t){0}));
}

static void test_equal_secret(void **state)
{
        (void)state;
        assert_true(agx_view_eq_secret(AGX_VIEW("secret"), AGX_VIEW("secret")));
        assert_false(agx_view_eq_secret(AGX_VIEW("secret"), AGX_VIEW("Secret")));
        assert_false(agx_view_eq_secret(AGX_VIEW("secret"), AGX_VIEW("secreT")));
        assert_false(agx_view_eq_secret(AGX_VIEW("secret"), AGX_VIEW("secre")));
        assert_false(agx_view_eq_secret(AGX_VIEW("secret"), AGX_VIEW("")));
        assert_true(agx_view_eq_secret(AGX_VIEW(""), AGX_VIEW_NULL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_make),
                cmocka_unit_test(test_equal),
                cmocka_unit_test(test_equal_ignoring_case),
                cmocka_unit_test(test_cut),
                cmocka_unit_test(test_trim),
                cmocka_unit_test(test_split),
                cmocka_unit_test(test_number),
                cmocka_unit_test(test_equal_secret),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
