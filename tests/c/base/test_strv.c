/* Vectors of strings: argv and environments as they are built, judged once at the end. */
#include "base/err.h"
#include "base/strv.h"
#include "support/oom.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void test_items_are_owned_and_terminated(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv v = AGX_STRV_NULL;
        char text[] = "one";

        (void)state;
        agx_strv_add_str(&v, text);
        text[0] = 'X';
        for (int i = 0; i < 40; ++i)
                agx_strv_addf(&v, "item %d", i);
        agx_strv_add(&v, AGX_VIEW_NULL);
        assert_int_equal(agx_strv_end(&v), 0);
        assert_int_equal(v.count, 42);
        assert_string_equal(v.items[0], "one");
        assert_string_equal(v.items[40], "item 39");
        assert_string_equal(v.items[41], "");
        assert_null(v.items[42]);
}

static void test_set_replaces_only_its_own_name(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv v = AGX_STRV_NULL;

        (void)state;
        agx_strv_add_str(&v, "PATHS=x");
        agx_strv_add_str(&v, "PATH=old");
        agx_strv_add_str(&v, "Z=");
        agx_strv_set(&v, AGX_VIEW("PATH"), AGX_VIEW("new=\n2"));
        assert_int_equal(agx_strv_end(&v), 0);
        assert_int_equal(v.count, 3);
        assert_true(agx_view_eq(agx_strv_get(&v, AGX_VIEW("PATH")), AGX_VIEW("new=\n2")));
        assert_true(agx_view_eq(agx_strv_get(&v, AGX_VIEW("PATHS")), AGX_VIEW("x")));
        assert_true(agx_view_eq(agx_strv_get(&v, AGX_VIEW("Z")), AGX_VIEW("")));
        assert_null(agx_strv_get(&v, AGX_VIEW("PAT")).p);
        agx_strv_set(&v, AGX_VIEW("Z"), AGX_VIEW("last"));
        assert_true(agx_view_eq(agx_strv_get(&v, AGX_VIEW("Z")), AGX_VIEW("last")));
        assert_null(v.items[3]);
}

static void test_what_a_command_would_misread_is_refused(void **state)
{
        static const agx_view bad_names[] = {{"", 0}, {"A=B", 3}, {"A\0B", 3}};

        (void)state;
        for (size_t i = 0; i < 3; ++i) {
                _cleanup_(agx_strv_deinitp) agx_strv v = AGX_STRV_NULL;

                agx_strv_set(&v, bad_names[i], AGX_VIEW("x"));
                assert_int_equal(agx_strv_end(&v), -EINVAL);
        }
        _cleanup_(agx_strv_deinitp) agx_strv v = AGX_STRV_NULL;

        agx_strv_add(&v, AGX_VIEW("a\0b"));
        agx_strv_add_str(&v, "never added: the error is sticky");
        assert_int_equal(agx_strv_end(&v), -EINVAL);
        assert_int_equal(v.count, 0);
}

static void test_what_is_kept_is_seen_where_it_stays(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv v = AGX_STRV_NULL, other = AGX_STRV_NULL;
        char text[] = "text";
        agx_view a = agx_view_str(text), b = AGX_VIEW_NULL, c = AGX_VIEW(""), bad = {"a\0b", 3};
        agx_view *views[] = {&a, &b, &c}, *bad_views[] = {&bad};
        const char *before;

        (void)state;
        agx_strv_add_str(&v, "before them");
        assert_int_equal(agx_strv_keep(&v, views, 3), 0);
        text[0] = 'X';
        assert_int_equal(v.count, 4);
        for (int i = 0; i < 40; ++i) /* the array moves, the strings do not */
                agx_strv_addf(&v, "%d", i);
        assert_true(agx_view_eq(a, AGX_VIEW("text")));
        assert_ptr_equal(a.p, v.items[1]);
        assert_null(b.p);
        assert_ptr_equal(c.p, v.items[3]);
        agx_strv_add_all(&other, &v);
        agx_strv_add_all(&other, NULL);
        assert_int_equal(other.count, v.count);
        assert_string_equal(other.items[43], "39");
        before = bad.p;
        assert_int_equal(agx_strv_keep(&other, bad_views, 1), -EINVAL);
        assert_ptr_equal(bad.p, before);
}

static void build(agx_strv *v)
{
        for (int i = 0; i < 20; ++i)
                agx_strv_addf(v, "N%d=%d", i, i);
        agx_strv_set(v, AGX_VIEW("N3"), AGX_VIEW("three"));
        agx_strv_set(v, AGX_VIEW("new"), AGX_VIEW("one"));
}

static void test_failing_memory_is_told_at_the_end(void **state)
{
        size_t n = 0;
        bool failed;

        (void)state;
        do {
                agx_strv v = AGX_STRV_NULL;

                agx_oom_arm(++n);
                build(&v);
                failed = agx_oom_disarm();
                assert_int_equal(agx_strv_end(&v), failed ? -ENOMEM : 0);
                if (!failed)
                        assert_int_equal(v.count, 21);
                agx_strv_deinit(&v);
        } while (failed);
        assert_true(n > 4);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_items_are_owned_and_terminated),
                cmocka_unit_test(test_set_replaces_only_its_own_name),
                cmocka_unit_test(test_what_a_command_would_misread_is_refused),
                cmocka_unit_test(test_what_is_kept_is_seen_where_it_stays),
                cmocka_unit_test(test_failing_memory_is_told_at_the_end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
