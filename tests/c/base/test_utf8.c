/* UTF-8: a table of edges, and every code point and every pair of lead and second byte by counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "support/guard.h"

static bool valid(agx_view v)
{
        uint8_t *guarded = agx_guard_new(v.p, v.n);
        bool ok = agx_utf8_valid(agx_view_of(guarded, v.n));

        agx_guard_free(guarded, v.n);
        return ok;
}

static void test_edges(void **state)
{
        static const agx_view good[] = {
                {"", 0},
                {"a\0b", 3},
                {"\x7f", 1},
                {"\xc2\x80", 2},
                {"\xdf\xbf", 2},
                {"\xe0\xa0\x80", 3},
                {"\xed\x9f\xbf", 3},
                {"\xee\x80\x80", 3},
                {"\xef\xbf\xbf", 3},
                {"\xf0\x90\x80\x80", 4},
                {"\xf4\x8f\xbf\xbf", 4},
                {"\xe2\x82\xac and \xf0\x9f\x98\x80", 12},
        };
        static const agx_view bad[] = {
                {"\x80", 1},
                {"\xbf", 1},
                {"\xc0\x80", 2},
                {"\xc1\xbf", 2},
                {"\xc2", 1},
                {"\xc2 ", 2},
                {"\xc2\xc2", 2},
                {"\xe0\x80\x80", 3},
                {"\xe0\x9f\xbf", 3},
                {"\xe1\x80", 2},
                {"\xe1\x80 ", 3},
                {"\xed\xa0\x80", 3},
                {"\xed\xbf\xbf", 3},
                {"\xf0\x80\x80\x80", 4},
                {"\xf0\x8f\xbf\xbf", 4},
                {"\xf1\x80\x80", 3},
                {"\xf1\x80\x80 ", 4},
                {"\xf4\x90\x80\x80", 4},
                {"\xf5\x80\x80\x80", 4},
                {"\xf8\x88\x80\x80\x80", 5},
                {"\xfe", 1},
                {"\xff", 1},
                {"fine until \xff", 12},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i)
                assert_true(valid(good[i]));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
                assert_false(valid(bad[i]));
}

/* Of all byte strings of each length, exactly as many are a single character as Unicode has of that length. */
static void test_counts(void **state)
{
        size_t two = 0, three = 0, four = 0;
        char b[4];

        (void)state;
        for (unsigned x = 0xc0; x < 0x100; ++x) {
                for (unsigned y = 0; y < 0x100; ++y) {
                        b[0] = (char)x, b[1] = (char)y;
                        two += agx_utf8_valid(agx_view_of(b, 2));
                        for (unsigned z = 0x40; z < 0x100 && y >= 0x40; ++z) {
                                b[2] = (char)z;
                                three += agx_utf8_valid(agx_view_of(b, 3)) && x >= 0xe0;
                                b[3] = '\x9a';
                                four += agx_utf8_valid(agx_view_of(b, 4)) && x >= 0xf0;
                        }
                }
        }
        assert_int_equal(two, 0x800 - 0x80);
        assert_int_equal(three, 0x10000 - 0x800 - 0x800);
        assert_int_equal(four * 64, 0x110000 - 0x10000);
}

/* Runs of every short length, in which one byte, or one character, at every place is not ASCII. */
static void test_places(void **state)
{
        char b[40];

        (void)state;
        for (size_t n = 0; n <= sizeof(b); ++n) {
                memset(b, 'a', sizeof(b));
                assert_true(valid(agx_view_of(b, n)));
                for (size_t at = 0; at < n; ++at) {
                        b[at] = '\x80';
                        assert_int_equal(agx_utf8_prefix(agx_view_of(b, n)), at);
                        assert_false(valid(agx_view_of(b, n)));
                        b[at] = '\xc3';
                        assert_int_equal(agx_utf8_prefix(agx_view_of(b, n)), at);
                        if (at + 1 < n) {
                                b[at + 1] = '\xa9';
                                assert_true(valid(agx_view_of(b, n)));
                                b[at + 1] = 'a';
                        }
                        b[at] = 'a';
                }
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_edges),
                cmocka_unit_test(test_counts),
                cmocka_unit_test(test_places),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
