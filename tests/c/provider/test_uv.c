/* The uv brains, driven without processes: every path from START to GONE or FAILED, argv and environment slot by slot. */
#include "base/err.h"
#include "provider/uv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

static const agx_strv none;

static void event(agx_brain *brain, agx_event_kind kind, int code, const char *text)
{
        agx_event happened = {.kind = kind, .code = code, .text = agx_view_str(text)};

        assert_int_equal(agx_brain_event(brain, &happened), 0);
}

static agx_wish expect(agx_brain *brain, agx_wish_kind kind)
{
        agx_wish wish;

        agx_brain_next(brain, &wish);
        assert_int_equal(wish.kind, kind);
        return wish;
}

static void expect_items(const agx_strv *items, const char *const *expected)
{
        size_t n = 0;

        for (; expected[n]; ++n) {
                assert_true(n < items->count);
                assert_string_equal(items->items[n], expected[n]);
        }
        assert_int_equal(items->count, n);
}

/* ---- the environment ---- */

static agx_brain *new_venv(bool with_project)
{
        agx_strv env = AGX_STRV_NULL, own = AGX_STRV_NULL, extra = AGX_STRV_NULL;
        agx_uv_venv_config config = {
                .uv = AGX_VIEW("/bin/uv"),
                .venv = AGX_VIEW("/tmp/v"),
                .python = AGX_VIEW("3.12"),
                .install = &none,
                .extra_index_url = &extra,
                .own = &own,
                .env = &env,
        };
        agx_brain *brain = NULL;

        agx_strv_add(&env, AGX_VIEW("PATH=/bin"));
        agx_strv_add(&own, AGX_VIEW("agentix"));
        agx_strv_add(&extra, AGX_VIEW("https://user:secret@one.test/simple"));
        agx_strv_add(&extra, AGX_VIEW("https://two.test/simple"));
        if (with_project) {
                config.project = AGX_VIEW("/src/my project");
                config.index_url = AGX_VIEW("https://user:secret@main.test/simple");
                config.constraints = AGX_VIEW("/tmp/c.txt");
        }
        assert_int_equal(agx_uv_venv_new(&brain, &config), 0);
        agx_strv_deinit(&env);
        agx_strv_deinit(&own);
        agx_strv_deinit(&extra);
        return brain;
}

static void test_venv_walks_its_steps(void **state)
{
        static const char *const make[] = {"/bin/uv", "venv", "--no-project", "--python", "3.12", "--", "/tmp/v", NULL};
        static const char *const install[] = {"/bin/uv",
                                              "pip",
                                              "install",
                                              "--python=/tmp/v/bin/python",
                                              "--constraints=/tmp/c.txt",
                                              "--no-sources-package=agentix",
                                              "--",
                                              "/src/my project",
                                              NULL};
        _cleanup_(agx_brain_freep) agx_brain *brain = new_venv(true);
        agx_wish wish = expect(brain, AGX_WISH_RUN);

        (void)state;
        expect_items(wish.argv, make);
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_RUN);
        expect_items(wish.argv, install);
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_DONE);
}

static void test_venv_gives_index_passwords_by_environment_only(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_venv(true);
        agx_wish wish = expect(brain, AGX_WISH_RUN);

        (void)state;
        assert_true(agx_view_eq(agx_strv_get(wish.env, AGX_VIEW("UV_DEFAULT_INDEX")),
                                AGX_VIEW("https://user:secret@main.test/simple")));
        assert_true(agx_view_eq(agx_strv_get(wish.env, AGX_VIEW("UV_INDEX")),
                                AGX_VIEW("https://user:secret@one.test/simple https://two.test/simple")));
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_RUN);
        for (size_t i = 0; i < wish.argv->count; ++i)
                assert_null(strstr(wish.argv->items[i], "secret"));
}

static void test_venv_without_a_project_installs_nothing(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_venv(false);

        (void)state;
        expect(brain, AGX_WISH_RUN);
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_DONE);
}

static void test_venv_says_which_step_failed(void **state)
{
        static const struct {
                int steps_before;
                agx_event_kind kind;
                int code;
                const char *text, *expected;
        } rows[] = {
                {0, AGX_EVENT_EXITED, 2, "no such python\n",
                 "making the virtual environment failed: exit code 2\nno such python"},
                {0, AGX_EVENT_EXITED, -SIGKILL, "", "making the virtual environment failed: signal 9 (Killed)"},
                {0, AGX_EVENT_SPAWN_FAILED, 0, "uv: not found",
                 "making the virtual environment failed: uv could not be started\nuv: not found"},
                {1, AGX_EVENT_EXITED, 1, "\x1b[2Jred\n", "installing the project failed: exit code 1\n\\x1b[2Jred"},
                {1, AGX_EVENT_TIMER, 0, "", "installing the project failed: no end in 30 minutes"},
                {1, AGX_EVENT_CANCEL, 0, "", "installing the project failed: cancelled"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_brain_freep) agx_brain *brain = new_venv(true);

                if (rows[i].steps_before > 0)
                        event(brain, AGX_EVENT_EXITED, 0, "");
                event(brain, rows[i].kind, rows[i].code, rows[i].text);
                assert_string_equal(expect(brain, AGX_WISH_FAILED).message, rows[i].expected);
                event(brain, AGX_EVENT_EXITED, 0, "late");
                assert_string_equal(expect(brain, AGX_WISH_FAILED).path, "/tmp/v");
        }
}

/* ---- the sandbox ---- */

static agx_brain *new_sandbox(bool with_socket)
{
        agx_strv host = AGX_STRV_NULL, user = AGX_STRV_NULL;
        agx_uv_sandbox_config config = {
                .runtime = AGX_VIEW("/bin/agentix-runtime"),
                .python = AGX_VIEW("/v/bin/python"),
                .dir = AGX_VIEW("/run/uv-1"),
                .cwd = AGX_VIEW("/run/uv-1/work"),
                .token_file = AGX_VIEW("/run/uv-1/token"),
                .host = AGX_VIEW("127.0.0.1"),
                .ready_ms = 1500,
                .lease_s = 900,
                .host_env = &host,
                .config_env = &user,
        };
        agx_brain *brain = NULL;

        agx_strv_add(&host, AGX_VIEW("PATH=/usr/bin"));
        agx_strv_add(&host, AGX_VIEW("LC_ALL=C.UTF-8"));
        agx_strv_add(&host, AGX_VIEW("AWS_SECRET_ACCESS_KEY=canary"));
        agx_strv_add(&host, AGX_VIEW("PYTHONPATH=/host"));
        agx_strv_add(&user, AGX_VIEW("PATH=/mine"));
        agx_strv_add(&user, AGX_VIEW("TEXT=two\nlines = 2"));
        agx_strv_add(&user, AGX_VIEW("AGENTIX_TOKEN_FILE=/elsewhere"));
        agx_strv_add(&user, AGX_VIEW("AGENTIX_BIND_HOST=0.0.0.0"));
        agx_strv_add(&user, AGX_VIEW("AGENTIX_LEASE=1e9"));
        if (with_socket)
                config.socket = AGX_VIEW("/run/uv-1/s");
        assert_int_equal(agx_uv_sandbox_new(&brain, &config), 0);
        agx_strv_deinit(&host);
        agx_strv_deinit(&user);
        return brain;
}

static void expect_env(const agx_strv *env, const char *name, const char *value)
{
        agx_view got = agx_strv_get(env, agx_view_str(name));

        if (!value)
                assert_null(got.p);
        else
                assert_true(got.p && agx_view_eq(got, agx_view_str(value)));
}

static void test_sandbox_environment_is_scrubbed(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(true);
        const agx_strv *env = expect(brain, AGX_WISH_START).env;

        (void)state;
        expect_env(env, "PATH", "/mine");
        expect_env(env, "LC_ALL", "C.UTF-8");
        expect_env(env, "TEXT", "two\nlines = 2");
        expect_env(env, "AWS_SECRET_ACCESS_KEY", NULL);
        expect_env(env, "PYTHONPATH", NULL);
        expect_env(env, "AGENTIX_TOKEN_FILE", "/run/uv-1/token");
        expect_env(env, "AGENTIX_BIND_SOCKET", "/run/uv-1/s");
        expect_env(env, "AGENTIX_BIND_PORT", NULL);
        expect_env(env, "AGENTIX_BIND_HOST", NULL);
        expect_env(env, "AGENTIX_LEASE", "900.000");
        expect_env(env, "AGENTIX_LOG_DIR", "/run/uv-1/log");
        expect_env(env, "AGENTIX_UPLOAD_ROOT", "/run/uv-1/work");
}

static void test_sandbox_without_a_socket_takes_any_port(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(false);
        const agx_strv *env = expect(brain, AGX_WISH_START).env;

        (void)state;
        expect_env(env, "AGENTIX_BIND_HOST", "127.0.0.1");
        expect_env(env, "AGENTIX_BIND_PORT", "0");
        expect_env(env, "AGENTIX_BIND_SOCKET", NULL);
}

static void test_sandbox_lives_and_is_deleted(void **state)
{
        static const char *const argv[] = {"/bin/agentix-runtime", "--python",  "/v/bin/python",
                                           "--state-dir",          "/run/uv-1", NULL};
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(true);
        agx_wish wish = expect(brain, AGX_WISH_START);

        (void)state;
        expect_items(wish.argv, argv);
        assert_int_equal(wish.timeout_ms, 1500);
        event(brain, AGX_EVENT_READY, 0, "ready http+unix://%2Frun%2Fuv-1%2Fs 0123");
        wish = expect(brain, AGX_WISH_DONE);
        assert_string_equal(wish.url, "http+unix://%2Frun%2Fuv-1%2Fs");
        assert_string_equal(wish.token_file, "/run/uv-1/token");
        event(brain, AGX_EVENT_DELETE, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGTERM);
        event(brain, AGX_EVENT_CANCEL, 0, ""); /* passed over, and so is a late READY: the time to end stays bounded */
        event(brain, AGX_EVENT_READY, 0, "ready http+unix://x 0123");
        assert_int_equal(expect(brain, AGX_WISH_WAIT).timeout_ms, 7000);
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_GONE).path, "/run/uv-1");
}

static void test_sandbox_that_ignores_the_first_signal_is_killed(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(true);

        (void)state;
        expect(brain, AGX_WISH_START);
        event(brain, AGX_EVENT_READY, 0, "ready http+unix://x 0123");
        event(brain, AGX_EVENT_DELETE, 0, "");
        expect(brain, AGX_WISH_SIGNAL);
        event(brain, AGX_EVENT_TIMER, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGKILL);
        event(brain, AGX_EVENT_EXITED, -SIGKILL, "");
        expect(brain, AGX_WISH_GONE);
}

static void test_sandbox_failures_hold_the_last_output(void **state)
{
        static const struct {
                agx_event_kind kind;
                int code;
                const char *text, *expected;
                bool still_runs;
        } rows[] = {
                {AGX_EVENT_EXITED, 3, "boom\n",
                 "starting the sandbox failed: the runtime server ended with exit code 3 before it was ready\nboom",
                 false},
                {AGX_EVENT_SPAWN_FAILED, 0, "no such file",
                 "starting the sandbox failed: the runtime server could not be started\nno such file", false},
                {AGX_EVENT_READY, 0, "failed address in use",
                 "starting the sandbox failed: the runtime server could not listen\nfailed address in use", true},
                {AGX_EVENT_TIMER, 0, "", "starting the sandbox failed: the runtime server was not ready after 1.5 s",
                 true},
                {AGX_EVENT_CANCEL, 0, "", "starting the sandbox failed: cancelled", true},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(true);

                expect(brain, AGX_WISH_START);
                event(brain, rows[i].kind, rows[i].code, rows[i].text);
                if (rows[i].still_runs) {
                        expect(brain, AGX_WISH_SIGNAL);
                        event(brain, AGX_EVENT_EXITED, 0, "");
                }
                assert_string_equal(expect(brain, AGX_WISH_FAILED).message, rows[i].expected);
                assert_string_equal(expect(brain, AGX_WISH_FAILED).path, "/run/uv-1");
        }
}

static void test_cancel_before_the_start_spawns_nothing(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(true);

        (void)state;
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

static void test_a_nul_in_a_setting_is_refused(void **state)
{
        agx_uv_sandbox_config config = {
                .runtime = AGX_VIEW("/bin/agentix-runtime"),
                .python = AGX_VIEW("/v\0/bin/python"),
                .host_env = &none,
                .config_env = &none,
        };
        agx_brain *brain = NULL;

        (void)state;
        assert_int_equal(agx_uv_sandbox_new(&brain, &config), -EINVAL);
        assert_null(brain);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_venv_walks_its_steps),
                cmocka_unit_test(test_venv_gives_index_passwords_by_environment_only),
                cmocka_unit_test(test_venv_without_a_project_installs_nothing),
                cmocka_unit_test(test_venv_says_which_step_failed),
                cmocka_unit_test(test_sandbox_environment_is_scrubbed),
                cmocka_unit_test(test_sandbox_without_a_socket_takes_any_port),
                cmocka_unit_test(test_sandbox_lives_and_is_deleted),
                cmocka_unit_test(test_sandbox_that_ignores_the_first_signal_is_killed),
                cmocka_unit_test(test_sandbox_failures_hold_the_last_output),
                cmocka_unit_test(test_cancel_before_the_start_spawns_nothing),
                cmocka_unit_test(test_a_nul_in_a_setting_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
