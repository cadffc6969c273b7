/* The apptainer brains, driven without processes: argv and environment slot by slot, and every way to an end. */
#include "base/err.h"
#include "provider/apptainer.h"

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

static bool has_variable(const agx_wish_file *file, const char *entry)
{
        for (const char *p = file->content.p; p < file->content.p + file->content.n; p += strlen(p) + 1)
                if (!strcmp(p, entry))
                        return true;
        return false;
}

/* ---- sandboxes ---- */

static agx_apptainer_config plain(void)
{
        return (agx_apptainer_config){
                .binary = AGX_VIEW("/usr/bin/apptainer"),
                .host_env = &none,
                .flags = &none,
                .dir = AGX_VIEW("/run/agx/apptainer-1"),
                .nix = AGX_VIEW("/cache/b/nix"),
                .image = AGX_VIEW("/cache/i.sif"),
                .config_env = &none,
                .ready_ms = 1000,
        };
}

static agx_brain *new_sandbox(const agx_apptainer_config *config)
{
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_apptainer_sandbox_new(&brain, config, &bad), 0);
        assert_null(bad);
        return brain;
}

static void test_a_life(void **state)
{
        static const char *const argv[] = {"/usr/bin/apptainer",
                                           "exec",
                                           "--userns",
                                           "--cleanenv",
                                           "--cpus",
                                           "1.5",
                                           "--memory",
                                           "1024",
                                           "--nv",
                                           "--bind",
                                           "/cache/b/nix:/nix:ro",
                                           "--bind",
                                           "/run/agx/apptainer-1/token:/run/agentix/token:ro",
                                           "--bind",
                                           "/run/agx/apptainer-1/environ:/run/agentix/environ:ro",
                                           "--bind",
                                           "/run/agx/apptainer-1/socket:/run/agentix/socket:rw",
                                           "/cache/i.sif",
                                           "/nix/runtime/bootstrap.sh",
                                           NULL};
        static const char *const env[] = {"HOME=/h", "APPTAINERENV_PATH=/x",
                                          "APPTAINERENV_AGENTIX_ENV_FILE=/run/agentix/environ", NULL};
        agx_strv host = AGX_STRV_NULL, flags = AGX_STRV_NULL, user = AGX_STRV_NULL;
        agx_apptainer_config config = plain();
        agx_brain *brain;
        agx_wish wish;

        (void)state;
        agx_strv_add_str(&host, "HOME=/h");
        agx_strv_add_str(&host, "APPTAINERENV_LEAK=1");
        agx_strv_add_str(&host, "SINGULARITYENV_LEAK=1");
        agx_strv_add_str(&flags, "--userns");
        agx_strv_add_str(&flags, "--cleanenv");
        agx_strv_add_str(&user, "A=x\nB=y");
        agx_strv_add_str(&user, "PATH=/x");
        agx_strv_add_str(&user, "AGENTIX_TOKEN_FILE=/mine");
        config.host_env = &host;
        config.flags = &flags;
        config.config_env = &user;
        config.cpus = AGX_VIEW("1.5");
        config.memory = AGX_VIEW("1024");
        config.gpu = true;
        config.lease_s = 900;
        brain = new_sandbox(&config);

        wish = expect(brain, AGX_WISH_START);
        assert_true(wish.bare);
        expect_items(wish.argv, argv);
        expect_items(wish.env, env);
        assert_string_equal(wish.cwd, "/");
        assert_int_equal(wish.file_count, 1);
        assert_string_equal(wish.files[0].path, "/run/agx/apptainer-1/environ");
        assert_true(has_variable(&wish.files[0], "A=x\nB=y"));
        assert_true(has_variable(&wish.files[0], "AGENTIX_TOKEN_FILE=/run/agentix/token"));
        assert_true(has_variable(&wish.files[0], "AGENTIX_BIND_SOCKET=/run/agentix/socket/s"));
        assert_true(has_variable(&wish.files[0], "AGENTIX_LEASE=900.000"));
        assert_false(has_variable(&wish.files[0], "AGENTIX_TOKEN_FILE=/mine"));
        assert_false(has_variable(&wish.files[0], "PATH=/x"));

        wish = expect(brain, AGX_WISH_PROBE);
        assert_string_equal(wish.url, "http+unix://%2Frun%2Fagx%2Fapptainer-1%2Fsocket%2Fs");
        assert_string_equal(wish.token_file, "/run/agx/apptainer-1/token");
        assert_int_equal(wish.timeout_ms, 1000);
        event(brain, AGX_EVENT_READY, 0, "instance");
        wish = expect(brain, AGX_WISH_DONE);
        assert_string_equal(wish.url, "http+unix://%2Frun%2Fagx%2Fapptainer-1%2Fsocket%2Fs");
        event(brain, AGX_EVENT_DELETE, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGTERM);
        event(brain, AGX_EVENT_TIMER, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGKILL);
        event(brain, AGX_EVENT_EXITED, -SIGKILL, "");
        assert_string_equal(expect(brain, AGX_WISH_GONE).path, "/run/agx/apptainer-1");
        agx_brain_free(brain);
        agx_strv_deinit(&host);
        agx_strv_deinit(&flags);
        agx_strv_deinit(&user);
}

static void test_loopback(void **state)
{
        agx_apptainer_config config = plain();
        agx_brain *brain;
        agx_wish wish;

        (void)state;
        config.port = AGX_VIEW("8123");
        brain = new_sandbox(&config);
        wish = expect(brain, AGX_WISH_START);
        assert_true(has_variable(&wish.files[0], "AGENTIX_BIND_HOST=127.0.0.1"));
        assert_true(has_variable(&wish.files[0], "AGENTIX_BIND_PORT=8123"));
        assert_int_equal(wish.argv->count, 10); /* no bind of a socket's directory */
        assert_string_equal(expect(brain, AGX_WISH_PROBE).url, "http://127.0.0.1:8123");
        agx_brain_free(brain);
}

static void expect_failure(agx_brain *brain, const char *message)
{
        agx_wish wish = expect(brain, AGX_WISH_FAILED);

        assert_string_equal(wish.message, message);
        assert_string_equal(wish.path, "/run/agx/apptainer-1");
        agx_brain_free(brain);
}

static void test_it_does_not_start(void **state)
{
        agx_apptainer_config config = plain();
        agx_brain *brain = new_sandbox(&config);

        (void)state;
        expect(brain, AGX_WISH_START);
        event(brain, AGX_EVENT_SPAWN_FAILED, 0, "no such file");
        expect_failure(brain, "starting the sandbox failed: the container could not be started\nno such file");

        brain = new_sandbox(&config);
        expect(brain, AGX_WISH_START);
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_EXITED, 3, "boom");
        expect_failure(brain,
                       "starting the sandbox failed: the container ended with exit code 3 before it was ready\nboom");

        brain = new_sandbox(&config);
        expect(brain, AGX_WISH_START);
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_TIMER, 0, "thinking");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGKILL);
        event(brain, AGX_EVENT_EXITED, -SIGKILL, "");
        expect_failure(brain, "starting the sandbox failed: the container was not ready after 1.0 s\nthinking");

        brain = new_sandbox(&config);
        expect(brain, AGX_WISH_START);
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_CANCEL, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_SIGNAL).signal, SIGTERM);
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect_failure(brain, "starting the sandbox failed: cancelled");
}

static const char *refused(const agx_apptainer_config *config)
{
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_apptainer_sandbox_new(&brain, config, &bad), AGX_APPTAINER_E_SETTING);
        assert_null(brain);
        return bad;
}

static void test_settings_that_cannot_be(void **state)
{
        agx_apptainer_config config = plain();
        agx_strv env = AGX_STRV_NULL;

        (void)state;
        config.nix = AGX_VIEW("/a:b/nix");
        assert_string_equal(refused(&config), "bundle");
        config.nix = AGX_VIEW("/a,b/nix");
        assert_string_equal(refused(&config), "bundle");
        config = plain();
        config.dir = AGX_VIEW("/a:b");
        assert_string_equal(refused(&config), "the directory for sandboxes");
        config = plain();
        config.image = AGX_VIEW("--fakeroot");
        assert_string_equal(refused(&config), "image");
        config = plain();
        config.binary = AGX_VIEW("-x");
        assert_string_equal(refused(&config), "binary");
        config = plain();
        config.port = AGX_VIEW("0");
        assert_string_equal(refused(&config), "port");
        config = plain();
        config.memory = AGX_VIEW("-1");
        assert_string_equal(refused(&config), "resource");
        config = plain();
        agx_strv_add_str(&env, "A B=x");
        config.config_env = &env;
        assert_string_equal(refused(&config), "env");
        agx_strv_deinit(&env);
}

/* ---- images ---- */

static agx_brain *new_image(void)
{
        agx_apptainer_image config = {
                .binary = AGX_VIEW("/usr/bin/apptainer"),
                .host_env = &none,
                .source = AGX_VIEW("docker://busybox"),
                .arch = AGX_VIEW("arm64"),
                .target = AGX_VIEW("/cache/.x.sif"),
        };
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_apptainer_image_new(&brain, &config, &bad), 0);
        return brain;
}

static void test_an_image_is_pulled(void **state)
{
        static const char *const argv[] = {"/usr/bin/apptainer", "pull", "--arch", "arm64", "/cache/.x.sif",
                                           "docker://busybox",   NULL};
        agx_brain *brain = new_image();

        (void)state;
        for (unsigned i = 0; i < 3; ++i) {
                expect_items(expect(brain, AGX_WISH_RUN).argv, argv);
                expect(brain, AGX_WISH_WAIT);
                event(brain, AGX_EVENT_EXITED, 255, "received unexpected HTTP status: 503 Service Unavailable");
                assert_int_equal(expect(brain, AGX_WISH_WAIT).timeout_ms, 2000u << i);
                event(brain, AGX_EVENT_TIMER, 0, "");
        }
        expect(brain, AGX_WISH_RUN);
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_DONE).path, "/cache/.x.sif");
        agx_brain_free(brain);
}

static void test_an_image_that_is_not_there(void **state)
{
        agx_brain *brain = new_image();

        (void)state;
        expect(brain, AGX_WISH_RUN);
        event(brain, AGX_EVENT_EXITED, 255, "manifest unknown");
        assert_string_equal(expect(brain, AGX_WISH_FAILED).message,
                            "pulling the image failed: exit code 255\nmanifest unknown");
        agx_brain_free(brain);

        brain = new_image();
        expect(brain, AGX_WISH_RUN);
        event(brain, AGX_EVENT_CANCEL, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_FAILED).message, "pulling the image failed: cancelled");
        agx_brain_free(brain);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_life),
                cmocka_unit_test(test_loopback),
                cmocka_unit_test(test_it_does_not_start),
                cmocka_unit_test(test_settings_that_cannot_be),
                cmocka_unit_test(test_an_image_is_pulled),
                cmocka_unit_test(test_an_image_that_is_not_there),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
