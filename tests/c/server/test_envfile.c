/* Variables from a file: values with ends of lines arrive whole, and what is no list is refused. */
#include "server/envfile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void test_values_arrive_whole(void **state)
{
        (void)state;
        setenv("AGX_T1", "old", 1);
        assert_int_equal(agx_envfile_apply(AGX_VIEW("AGX_T1=a\nAGX_T2=evil\0AGX_T3=\0AGX_T4=x=y\0")), 0);
        assert_string_equal(getenv("AGX_T1"), "a\nAGX_T2=evil");
        assert_null(getenv("AGX_T2"));
        assert_string_equal(getenv("AGX_T3"), "");
        assert_string_equal(getenv("AGX_T4"), "x=y");
        assert_int_equal(agx_envfile_apply(AGX_VIEW("")), 0);
}

static void test_what_is_no_list(void **state)
{
        (void)state;
        assert_int_equal(agx_envfile_apply(AGX_VIEW("A=no end")), -EINVAL);
        assert_int_equal(agx_envfile_apply(AGX_VIEW("no equals sign\0")), -EINVAL);
        assert_int_equal(agx_envfile_apply(AGX_VIEW("=no name\0")), -EINVAL);
        assert_int_equal(agx_envfile_apply(AGX_VIEW("\0")), -EINVAL);
}

static void test_the_file_is_read_and_not_named_any_more(void **state)
{
        char path[] = "/tmp/agx-env-XXXXXX";
        int fd = mkstemp(path);

        (void)state;
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "AGX_T5=\n\0", 9), 9);
        close(fd);
        setenv("AGENTIX_ENV_FILE", path, 1);
        assert_int_equal(agx_envfile_load(), 0);
        assert_string_equal(getenv("AGX_T5"), "\n");
        assert_null(getenv("AGENTIX_ENV_FILE"));
        assert_int_equal(agx_envfile_load(), 0);
        unlink(path);
        setenv("AGENTIX_ENV_FILE", path, 1);
        assert_int_equal(agx_envfile_load(), -ENOENT);
        unsetenv("AGENTIX_ENV_FILE");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values_arrive_whole),
                cmocka_unit_test(test_what_is_no_list),
                cmocka_unit_test(test_the_file_is_read_and_not_named_any_more),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
