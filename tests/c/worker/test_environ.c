/* The environment contract, as rows: the server's variables, and what the worker must see of one of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/oom.h"
#include "worker/environ.h"

enum { VARS_MAX = 8 };

static const agx_environ_facts facts = {{"/venv/bin/python", 16}, {"0a1b2c3d", 8}, {"b0x", 3}};

static const struct {
        const char *given[VARS_MAX];
        const char *name;
        const char *seen; /* NULL: absent */
} rows[] = {
        /* search paths: ours first, no entry twice, recorded */
        {{"PATH=/usr/bin:/bin"}, "PATH", "/venv/bin:/nix/runtime/bin:/usr/bin:/bin"},
        {{"PATH=/usr/bin:/venv/bin:/bin:/usr/bin"}, "PATH", "/venv/bin:/nix/runtime/bin:/usr/bin:/bin"},
        {{"PATH=/usr/bin::/bin"}, "PATH", "/venv/bin:/nix/runtime/bin:/usr/bin::/bin"},
        {{NULL}, "PATH", "/venv/bin:/nix/runtime/bin"},
        {{"PATH="}, "PATH", "/venv/bin:/nix/runtime/bin"},
        {{"PATH=/usr/bin"}, "AGENTIX_ADDED_PATH", "/venv/bin:/nix/runtime/bin"},
        {{"AGENTIX_ADDED_PATH=/old/bin"}, "AGENTIX_ADDED_PATH", "/old/bin:/venv/bin:/nix/runtime/bin"},
        {{"AGENTIX_ADDED_PATH=/venv/bin"}, "AGENTIX_ADDED_PATH", "/venv/bin:/nix/runtime/bin"},
        {{NULL}, "LD_LIBRARY_PATH", "/nix/runtime/lib"},
        {{"LD_LIBRARY_PATH=/opt/lib"}, "LD_LIBRARY_PATH", "/nix/runtime/lib:/opt/lib"},
        {{"LD_LIBRARY_PATH=/opt/lib"}, "AGENTIX_ADDED_LD_LIBRARY_PATH", "/nix/runtime/lib"},
        {{NULL}, "LIBRARY_PATH", "/nix/runtime/lib"},
        {{NULL}, "AGENTIX_ADDED_LIBRARY_PATH", "/nix/runtime/lib"},
        {{"CPATH=/opt/include"}, "CPATH", "/nix/runtime/include:/opt/include"},
        {{NULL}, "C_INCLUDE_PATH", "/nix/runtime/include"},
        {{NULL}, "CPLUS_INCLUDE_PATH", "/nix/runtime/include"},
        {{NULL}, "AGENTIX_ADDED_CPLUS_INCLUDE_PATH", "/nix/runtime/include"},
        {{"PKG_CONFIG_PATH=/p"}, "PKG_CONFIG_PATH", "/nix/runtime/lib/pkgconfig:/nix/runtime/share/pkgconfig:/p"},
        {{NULL}, "AGENTIX_ADDED_PKG_CONFIG_PATH", "/nix/runtime/lib/pkgconfig:/nix/runtime/share/pkgconfig"},
        {{"CMAKE_PREFIX_PATH=/c"}, "CMAKE_PREFIX_PATH", "/nix/runtime:/c"},
        {{NULL}, "AGENTIX_ADDED_CMAKE_PREFIX_PATH", "/nix/runtime"},
        /* removed and kept */
        {{"LD_PRELOAD=/x.so"}, "LD_PRELOAD", NULL},
        {{"LD_PRELOAD=/x.so"}, "AGENTIX_SAVED_LD_PRELOAD", "/x.so"},
        {{"PYTHONPATH=/p"}, "PYTHONPATH", NULL},
        {{"PYTHONPATH=/p"}, "AGENTIX_SAVED_PYTHONPATH", "/p"},
        {{"PYTHONHOME=/h"}, "PYTHONHOME", NULL},
        {{"PYTHONHOME=/h"}, "AGENTIX_SAVED_PYTHONHOME", "/h"},
        {{"LOCALE_ARCHIVE=/l"}, "AGENTIX_SAVED_LOCALE_ARCHIVE", "/l"},
        {{"SSL_CERT_FILE=/c"}, "SSL_CERT_FILE", NULL},
        {{"SSL_CERT_FILE=/c"}, "AGENTIX_SAVED_SSL_CERT_FILE", "/c"},
        {{"NIX_PATH=/n"}, "NIX_PATH", NULL},
        {{"NIX_PATH=/n"}, "AGENTIX_SAVED_NIX_PATH", "/n"},
        {{"FONTCONFIG_FILE=/f"}, "AGENTIX_SAVED_FONTCONFIG_FILE", "/f"},
        {{"NIXON=1"}, "NIXON", "1"},
        {{"LD_PRELOAD=/new", "AGENTIX_SAVED_LD_PRELOAD=/old"}, "AGENTIX_SAVED_LD_PRELOAD", "/new"},
        {{"AGENTIX_SAVED_LD_PRELOAD=/old", "LD_PRELOAD=/new"}, "AGENTIX_SAVED_LD_PRELOAD", "/new"},
        {{"AGENTIX_SAVED_LD_PRELOAD=/old"}, "AGENTIX_SAVED_LD_PRELOAD", "/old"},
        {{"HOME=/root"}, "AGENTIX_SAVED_LD_PRELOAD", NULL},
        /* the server's own business */
        {{"AGENTIX_BIND_HOST=0.0.0.0"}, "AGENTIX_BIND_HOST", NULL},
        {{"AGENTIX_BIND_PORT=1"}, "AGENTIX_BIND_PORT", NULL},
        {{"AGENTIX_BIND_SOCKET=/s"}, "AGENTIX_BIND_SOCKET", NULL},
        {{"AGENTIX_TOKEN_FILE=/t"}, "AGENTIX_TOKEN_FILE", NULL},
        {{"AGENTIX_ALLOWED_HOSTS=h"}, "AGENTIX_ALLOWED_HOSTS", NULL},
        {{"AGENTIX_ALLOWED_ORIGINS=o"}, "AGENTIX_ALLOWED_ORIGINS", NULL},
        {{"AGENTIX_LEASE=1"}, "AGENTIX_LEASE", NULL},
        {{"AGENTIX_SPARE_WORKERS=1"}, "AGENTIX_SPARE_WORKERS", NULL},
        {{"AGENTIX_READY_FD=4"}, "AGENTIX_READY_FD", NULL},
        {{"AGENTIX_LIFELINE_FD=5"}, "AGENTIX_LIFELINE_FD", NULL},
        {{"AGENTIX_LOG_DIR=/log"}, "AGENTIX_LOG_DIR", "/log"},
        /* names and the rest */
        {{"AGENTIX_WORKER_ID=ffffffff"}, "AGENTIX_WORKER_ID", "0a1b2c3d"},
        {{"AGENTIX_LOG_CONTEXT=server"}, "AGENTIX_LOG_CONTEXT", "sandbox-b0x-worker-0a1b2c3d"},
        {{"AGENTIX_WORKER_LOG_CONTEXT=w {id} {pid} {id}"}, "AGENTIX_LOG_CONTEXT", "w 0a1b2c3d {pid} 0a1b2c3d"},
        {{"HOME=/root", "EMPTY=", "=odd", "no equals sign"}, "HOME", "/root"},
        {{"EMPTY="}, "EMPTY", ""},
        {{"EQUALS=a=b=c"}, "EQUALS", "a=b=c"},
};

static void rows_hold(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                agx_environ env;
                agx_view value;

                assert_int_equal(agx_environ_make(&env, (char *const *)rows[i].given, &facts), 0);
                assert_null(env.vars[env.n]);
                value = agx_environ_get(&env, agx_view_str(rows[i].name));
                if (!!value.p != !!rows[i].seen || (value.p && !agx_view_eq(value, agx_view_str(rows[i].seen))))
                        fail_msg("row %zu: %s is \"%.*s\", not \"%s\"", i, rows[i].name, (int)value.n,
                                 value.p ? value.p : "", rows[i].seen ? rows[i].seen : "(absent)");
                agx_environ_deinit(&env);
                agx_environ_deinit(&env);
        }
}

static void no_name_occurs_twice(void **state)
{
        char *given[] = {"PATH=/a", "AGENTIX_SAVED_NIX_X=1", "NIX_X=2", "CPATH=/x", NULL};
        agx_environ env;

        (void)state;
        assert_int_equal(agx_environ_make(&env, given, &facts), 0);
        for (size_t i = 0; i < env.n; i++)
                for (size_t j = i + 1; j < env.n; j++) {
                        size_t n = (size_t)(strchr(env.vars[i], '=') - env.vars[i]) + 1;

                        assert_int_not_equal(strncmp(env.vars[i], env.vars[j], n), 0);
                }
        agx_environ_deinit(&env);
}

static void without_memory_nothing_is_left(void **state)
{
        char *given[] = {"PATH=/a:/b", "NIX_X=2", "HOME=/", NULL};
        size_t n = 0;
        agx_environ env;
        int r;

        (void)state;
        do {
                agx_oom_arm(++n);
                r = agx_environ_make(&env, given, &facts);
                if (r)
                        assert_null(env.vars);
                agx_environ_deinit(&env);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 20);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(rows_hold),
                cmocka_unit_test(no_name_occurs_twice),
                cmocka_unit_test(without_memory_nothing_is_left),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
