/* Words that resemble each other. */
#include "cli/nearest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static size_t distance(const char *a, const char *b)
{
        return agx_nearest_distance(agx_view_str(a), agx_view_str(b));
}

static void counts_changes(void **state)
{
        (void)state;
        assert_int_equal(distance("", ""), 0);
        assert_int_equal(distance("", "abc"), 3);
        assert_int_equal(distance("abc", ""), 3);
        assert_int_equal(distance("kitten", "sitting"), 3);
        assert_int_equal(distance("bundel", "bundle"), 1);
        assert_int_equal(distance("zstd", "zst"), 1);
        assert_int_equal(distance("ab", "ba"), 1);
        assert_int_equal(distance("build.zstd", "build.zstd"), 0);
}

static void gives_up_on_long_words(void **state)
{
        char longest[AGX_NEAREST_MAX + 2];

        (void)state;
        memset(longest, 'a', sizeof(longest));
        assert_int_equal(agx_nearest_distance(agx_view_of(longest, AGX_NEAREST_MAX), AGX_VIEW("a")),
                         AGX_NEAREST_MAX - 1);
        assert_true(agx_nearest_distance(agx_view_of(longest, AGX_NEAREST_MAX + 1), AGX_VIEW("a")) == SIZE_MAX);
        assert_false(agx_nearest_resembles(agx_view_of(longest, AGX_NEAREST_MAX + 1), AGX_VIEW("a")));
}

static void asks_only_where_it_is_likely(void **state)
{
        (void)state;
        assert_true(agx_nearest_resembles(AGX_VIEW("plattform"), AGX_VIEW("platform")));
        assert_true(agx_nearest_resembles(AGX_VIEW("uw"), AGX_VIEW("uv")));
        assert_false(agx_nearest_resembles(AGX_VIEW("whatever"), AGX_VIEW("verbose")));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(counts_changes),
                cmocka_unit_test(gives_up_on_long_words),
                cmocka_unit_test(asks_only_where_it_is_likely),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
