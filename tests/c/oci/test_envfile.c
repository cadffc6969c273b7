/* Which variables an engine's list of lines can carry, and that the others arrive whole by the other way. */
#include "oci/envfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_values_go_where_they_are_safe(void **state)
{
        static const char expected_lines[] = "E=\nQ=a'b\"c $HOME #\nS= led and trailed \nU=\xc3\xa4\n";
        static const char expected_rest[] = "A=x\nB=evil\0K=-----BEGIN\nline\n\0C=ends\r\0N=\xff\xfe";
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(1 << 20), rest = AGX_BUF_NULL(1 << 20);

        (void)state;
        agx_strv_add_str(&env, "A=x\nB=evil");
        agx_strv_add_str(&env, "K=-----BEGIN\nline\n");
        agx_strv_add_str(&env, "E=");
        agx_strv_add_str(&env, "Q=a'b\"c $HOME #");
        agx_strv_add_str(&env, "C=ends\r");
        agx_strv_add_str(&env, "S= led and trailed ");
        agx_strv_add_str(&env, "U=\xc3\xa4");
        agx_strv_add_str(&env, "N=\xff\xfe");
        assert_int_equal(agx_oci_env_files(&env, &lines, &rest), 0);
        assert_int_equal(lines.len, sizeof(expected_lines) - 1);
        assert_memory_equal(agx_buf_view(&lines).p, expected_lines, lines.len);
        assert_int_equal(rest.len, sizeof(expected_rest));
        assert_memory_equal(agx_buf_view(&rest).p, expected_rest, rest.len);
}

static void test_a_long_line_takes_the_other_way(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(1 << 20), rest = AGX_BUF_NULL(1 << 20);
        static char text[40000];

        (void)state;
        memset(text, 'x', sizeof(text) - 1);
        text[1] = '=';
        agx_strv_add_str(&env, text);
        assert_int_equal(agx_oci_env_files(&env, &lines, &rest), 0);
        assert_int_equal(lines.len, 0);
        assert_int_equal(rest.len, sizeof(text));
}

static void test_a_full_buffer_is_said(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(4), rest = AGX_BUF_NULL(4);

        (void)state;
        agx_strv_add_str(&env, "NAME=value");
        assert_int_equal(agx_oci_env_files(&env, &lines, &rest), AGX_BUF_E_FULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values_go_where_they_are_safe),
                cmocka_unit_test(test_a_long_line_takes_the_other_way),
                cmocka_unit_test(test_a_full_buffer_is_said),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
