/* UTF-8 in pieces: against the whole-text validator for every cut of a table and for random bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "base/utf8_run.h"

static const agx_view texts[] = {
        {"", 0},
        {"plain ascii, longer than a word", 31},
        {"\xc3\xa9", 2},
        {"\xe2\x82\xac and \xf0\x9f\x98\x80", 12},
        {"\xf4\x8f\xbf\xbf", 4},
        {"\xf4\x90\x80\x80", 4}, /* above U+10FFFF */
        {"\xed\xa0\x80", 3},     /* a surrogate */
        {"\xc0\xaf", 2},         /* overlong */
        {"\xe0\x80\xaf", 3},     /* overlong */
        {"\xf0\x80\x80\xaf", 4}, /* overlong */
        {"\x80", 1},             /* a tail without a lead */
        {"\xff", 1},
        {"12345678\xc3(12345678", 18}, /* a lead without its tail */
        {"\xe2\x82", 2},               /* cut short */
        {"\xf0\x9f\x98", 3},
};

/* How many bytes of `v` may stand, fed in two pieces; all of them and more to come counts as all of them. */
static bool feed(agx_view v, size_t cut, bool *whole)
{
        agx_utf8_run u = {0};
        bool good = agx_utf8_run_feed(&u, agx_view_first(v, cut)) && agx_utf8_run_feed(&u, agx_view_from(v, cut));

        *whole = good && agx_utf8_run_whole(&u);
        return good;
}

static void test_table(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
                for (size_t cut = 0; cut <= texts[i].n; ++cut) {
                        bool whole;

                        feed(texts[i], cut, &whole);
                        assert_int_equal(whole, agx_utf8_valid(texts[i]));
                }
}

/* The first impossible byte is told at once. */
static void test_early(void **state)
{
        bool whole;

        (void)state;
        assert_false(feed(AGX_VIEW("\xe0\x80"), 1, &whole));
        assert_false(feed(AGX_VIEW("\xed\xa0"), 1, &whole));
        assert_false(feed(AGX_VIEW("\xf4\x90"), 1, &whole));
        assert_false(feed(AGX_VIEW("\xf5"), 0, &whole));
        assert_true(feed(AGX_VIEW("\xf4\x8f"), 1, &whole));
        assert_false(whole);
}

static void test_random(void **state)
{
        static const char pool[] = "ab\x80\x8f\x90\x9f\xa0\xbf\xc2\xe0\xe1\xed\xee\xf0\xf1\xf4";
        char text[24];

        (void)state;
        srand(1);
        for (int round = 0; round < 200000; ++round) {
                size_t n = (size_t)rand() % sizeof(text);
                bool whole;

                for (size_t i = 0; i < n; ++i)
                        text[i] = pool[(size_t)rand() % (sizeof(pool) - 1)];
                feed(agx_view_of(text, n), n ? (size_t)rand() % n : 0, &whole);
                assert_int_equal(whole, agx_utf8_valid(agx_view_of(text, n)));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_table),
                cmocka_unit_test(test_early),
                cmocka_unit_test(test_random),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
