/* Command line and variables, as rows: what is read, or the words of the refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/config.h"

enum { ARGS_MAX = 6, VARS_MAX = 4 };

static const struct {
        const char *args[ARGS_MAX];
        const char *vars[VARS_MAX];
        const char *why; /* part of the refusal; NULL: accepted */
} rows[] = {
        {{"--python", "py"}, {NULL}, NULL},
        {{"--python=py"}, {NULL}, NULL},
        {{"--python", "py", "--state-dir", "d"}, {NULL}, NULL},
        {{"--help"}, {NULL}, NULL},
        {{"--version"}, {NULL}, NULL},
        {{NULL}, {NULL}, "--python is needed"},
        {{"--python"}, {NULL}, "incomplete option: --python"},
        {{"--python="}, {NULL}, "--python is needed"},
        {{"--pythonic", "x"}, {NULL}, "unknown or incomplete option: --pythonic"},
        {{"--python", "py", "extra"}, {NULL}, "unknown or incomplete option: extra"},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT=0"}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT=65535"}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT="}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT=65536"}, "AGENTIX_BIND_PORT must be a number from 0 to 65535"},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT=-1"}, "AGENTIX_BIND_PORT"},
        {{"--python", "py"}, {"AGENTIX_BIND_PORT=80 "}, "AGENTIX_BIND_PORT"},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=::1"}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=127.0.0.2"}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=localhost"}, "must be a literal address"},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=0.0.0.0"}, "needs a token"},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=::"}, "needs a token"},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=0.0.0.0", "AGENTIX_TOKEN_FILE=/t"}, NULL},
        {{"--python", "py"}, {"AGENTIX_BIND_HOST=0.0.0.0", "AGENTIX_BIND_SOCKET=/s"}, NULL},
        {{"--python", "py"}, {"AGENTIX_READY_FD=3"}, NULL},
        {{"--python", "py"}, {"AGENTIX_READY_FD=2"}, "AGENTIX_READY_FD must not be a standard descriptor"},
        {{"--python", "py"}, {"AGENTIX_LIFELINE_FD=x"}, "AGENTIX_LIFELINE_FD must be a number"},
        {{"--python", "py"}, {"AGENTIX_LEASE=900"}, NULL},
        {{"--python", "py"}, {"AGENTIX_LEASE=0.25"}, NULL},
        {{"--python", "py"}, {"AGENTIX_LEASE=0"}, "AGENTIX_LEASE must be above zero"},
        {{"--python", "py"}, {"AGENTIX_SPARE_WORKERS=0"}, NULL},
        {{"--python", "py"}, {"AGENTIX_SPARE_WORKERS=2"}, "AGENTIX_SPARE_WORKERS must be a number from 0 to 1"},
        {{"--python", "py"}, {"AGENTIX_LEASE=1."}, "AGENTIX_LEASE must be a number of seconds"},
        {{"--python", "py"}, {"AGENTIX_LEASE=-1"}, "AGENTIX_LEASE"},
        {{"--python", "py"}, {"AGENTIX_LEASE=1e3"}, "AGENTIX_LEASE"},
        {{"--python", "py"}, {"AGENTIX_LEASE=nan"}, "AGENTIX_LEASE"},
};

static const char *get(const char *name, void *user)
{
        const char *const *vars = user;
        size_t n = strlen(name);

        for (size_t i = 0; i < VARS_MAX && vars[i]; i++)
                if (!strncmp(vars[i], name, n) && vars[i][n] == '=')
                        return vars[i] + n + 1;
        return NULL;
}

static bool read_row(const char *const *args, const char *const *vars, agx_config *c, char *why, unsigned size)
{
        char *argv[ARGS_MAX + 2] = {(char *)"agentix-runtime"};
        int argc = 1;

        for (; argc <= ARGS_MAX && args[argc - 1]; argc++)
                argv[argc] = (char *)args[argc - 1];
        return agx_config_read(c, argc, argv, get, (void *)vars, why, size);
}

static void rows_hold(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                char why[256] = "";
                agx_config c;
                bool ok = read_row(rows[i].args, rows[i].vars, &c, why, sizeof(why));

                if (ok != !rows[i].why || (!ok && !strstr(why, rows[i].why)))
                        fail_msg("row %zu: %s", i, why);
        }
}

static void values_arrive(void **state)
{
        static const char *const args[ARGS_MAX] = {"--python=/py", "--state-dir", "/d"};
        static const char *const vars[VARS_MAX] = {"AGENTIX_LEASE=1.5", "AGENTIX_BIND_PORT=81", "AGENTIX_READY_FD=9"};
        static const char *const none[VARS_MAX] = {NULL};
        char why[64];
        agx_config c;

        (void)state;
        assert_true(read_row(args, vars, &c, why, sizeof(why)));
        assert_string_equal(c.python, "/py");
        assert_string_equal(c.state_dir, "/d");
        assert_int_equal(c.lease_ms, 1500);
        assert_int_equal(c.bind_port, 81);
        assert_int_equal(c.ready_fd, 9);
        assert_int_equal(c.lifeline_fd, -1);
        assert_true(read_row(args, none, &c, why, sizeof(why)));
        assert_string_equal(c.bind_host, "127.0.0.1");
        assert_int_equal(c.bind_port, 8000);
        assert_true(c.lease_ms == UINT64_MAX);
        assert_null(c.token_file);
}

static void a_refusal_still_knows_whom_to_tell(void **state)
{
        static const char *const args[ARGS_MAX] = {NULL};
        static const char *const vars[VARS_MAX] = {"AGENTIX_READY_FD=9"};
        char why[64];
        agx_config c;

        (void)state;
        assert_false(read_row(args, vars, &c, why, sizeof(why)));
        assert_int_equal(c.ready_fd, 9);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rows_hold),
                cmocka_unit_test(values_arrive),
                cmocka_unit_test(a_refusal_still_knows_whom_to_tell),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
