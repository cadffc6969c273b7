/* The trace hook sees fatal errors with their place, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

static int seen, line_seen;
static const char *function_seen;

static void hook(int error, const char *file, int line, const char *function)
{
        assert_non_null(file);
        seen = error;
        line_seen = line;
        function_seen = function;
}

static int fails(int error)
{
        return agx_trace(error);
}

static void test_hook(void **state)
{
        (void)state;
        assert_int_equal(fails(-ENOMEM), -ENOMEM); /* without a hook */
        agx_trace_install(hook);
        assert_int_equal(fails(0), 0);
        assert_int_equal(fails(3), 3);
        assert_int_equal(seen, 0);
        assert_int_equal(fails(-EPROTO), -EPROTO);
        assert_int_equal(seen, -EPROTO);
        assert_true(line_seen > 0);
        assert_string_equal(function_seen, "fails");
        agx_trace_install(NULL);
        seen = 0;
        assert_int_equal(fails(-EPROTO), -EPROTO);
        assert_int_equal(seen, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hook),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
