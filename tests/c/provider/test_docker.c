/* The docker brains, driven without an engine: every way from RUN to GONE or FAILED, and what each of them leaves. */
#include "base/err.h"
#include "oci/labels.h"
#include "proto/limits.h"
#include "provider/docker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>

static uint64_t now_ms = 1000;

static void event(agx_brain *brain, agx_event_kind kind, int code, const char *text)
{
        agx_event happened = {.kind = kind, .code = code, .text = agx_view_str(text), .now_ms = now_ms};

        assert_int_equal(agx_brain_event(brain, &happened), 0);
}

static agx_wish expect(agx_brain *brain, agx_wish_kind kind)
{
        agx_wish wish;

        agx_brain_next(brain, &wish);
        assert_int_equal(wish.kind, kind);
        return wish;
}

/* A command of the engine, by its first word. */
static agx_wish expect_command(agx_brain *brain, const char *word)
{
        agx_wish wish = expect(brain, AGX_WISH_RUN);

        assert_string_equal(wish.argv->items[0], "/usr/bin/docker");
        assert_string_equal(wish.argv->items[1], word);
        return wish;
}

static const char *after(const agx_wish *wish, const char *option)
{
        for (size_t i = 0; i + 1 < wish->argv->count; ++i)
                if (!strcmp(wish->argv->items[i], option))
                        return wish->argv->items[i + 1];
        return NULL;
}

static bool has(const agx_wish *wish, const char *item)
{
        for (size_t i = 0; i < wish->argv->count; ++i)
                if (!strcmp(wish->argv->items[i], item))
                        return true;
        return false;
}

static const char *file_text(const agx_wish *wish, size_t index)
{
        static char text[4096];

        assert_true(index < wish->file_count);
        assert_true(wish->files[index].content.n < sizeof(text));
        memcpy(text, wish->files[index].content.p, wish->files[index].content.n);
        text[wish->files[index].content.n] = 0;
        return text;
}

typedef struct fixture {
        agx_docker_config config;
        agx_strv host_env, ports, caps, args, env;
} fixture;

static int setup(void **state)
{
        fixture *f = test_calloc(1, sizeof(*f));

        agx_strv_add_str(&f->host_env, "PATH=/bin");
        agx_strv_add_str(&f->ports, "40001");
        agx_strv_add_str(&f->ports, "40002");
        agx_strv_add_str(&f->caps, "CHOWN");
        f->config = (agx_docker_config){
                .engine = AGX_VIEW("/usr/bin/docker"),
                .host_env = &f->host_env,
                .id = AGX_VIEW("agentix-0123abcd"),
                .dir = AGX_VIEW("/tmp/a-0/agentix-0123abcd"),
                .nix = AGX_VIEW("/cache/b/nix"),
                .image = AGX_VIEW("alpine"),
                .publish_host = AGX_VIEW("127.0.0.1"),
                .ports = &f->ports,
                .pull = AGX_VIEW("missing"),
                .cap_add = &f->caps,
                .run_args = &f->args,
                .host_label = AGX_VIEW("boot:1:2"),
                .config_env = &f->env,
                .lease_s = 900,
                .ready_ms = 60000,
                .pids_limit = 4096,
                .no_new_privileges = true,
        };
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        fixture *f = *state;

        agx_strv_deinit(&f->host_env);
        agx_strv_deinit(&f->ports);
        agx_strv_deinit(&f->caps);
        agx_strv_deinit(&f->args);
        agx_strv_deinit(&f->env);
        test_free(f);
        return 0;
}

static agx_brain *new_sandbox(fixture *f)
{
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), 0);
        return brain;
}

/* ---- the good life ---- */

static void test_a_life(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        agx_wish wish = expect_command(brain, "run");

        assert_string_equal(after(&wish, "--name"), "agentix-0123abcd");
        assert_string_equal(after(&wish, "-p"), "127.0.0.1:40001:40001");
        assert_string_equal(after(&wish, "--env-file"), "/tmp/a-0/agentix-0123abcd/env");
        assert_true(has(&wish, AGX_OCI_LABEL_SANDBOX "=agentix-0123abcd"));
        assert_true(has(&wish, AGX_OCI_LABEL_LEASE "=900.000"));
        assert_true(has(&wish, AGX_OCI_LABEL_HOST "=boot:1:2"));
        assert_true(has(&wish, "type=bind,source=/cache/b/nix,destination=/nix,readonly"));
        assert_true(
                has(&wish, "type=bind,source=/tmp/a-0/agentix-0123abcd/token,destination=/run/agentix/token,readonly"));
        assert_null(after(&wish, "--network"));
        assert_int_equal(wish.file_count, 1);
        assert_int_equal(wish.files[0].mode, 0600);
        assert_string_equal(file_text(&wish, 0), "AGENTIX_BIND_HOST=0.0.0.0\nAGENTIX_BIND_PORT=40001\n"
                                                 "AGENTIX_TOKEN_FILE=/run/agentix/token\nAGENTIX_LEASE=900.000\n");
        event(brain, AGX_EVENT_EXITED, 0, "0123\n");
        wish = expect(brain, AGX_WISH_PROBE);
        assert_string_equal(wish.url, "http://127.0.0.1:40001");
        assert_string_equal(wish.token_file, "/tmp/a-0/agentix-0123abcd/token");
        event(brain, AGX_EVENT_READY, 0, "instance");
        wish = expect(brain, AGX_WISH_DONE);
        assert_string_equal(wish.url, "http://127.0.0.1:40001");
        event(brain, AGX_EVENT_DELETE, 0, "");
        wish = expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_GONE);
        assert_string_equal(wish.path, "/tmp/a-0/agentix-0123abcd");
}

static void test_environments(void **state)
{
        fixture *f = *state;
        _cleanup_(agx_brain_freep) agx_brain *brain = NULL;
        agx_wish wish;

        agx_strv_add_str(&f->env, "SECRET=s3cret");
        agx_strv_add_str(&f->env, "KEY=-----BEGIN\nB=evil\n");
        agx_strv_add_str(&f->env, "AGENTIX_TOKEN_FILE=/mine");
        agx_strv_add_str(&f->env, "AGENTIX_LEASE=1");
        brain = new_sandbox(f);
        wish = expect_command(brain, "run");
        assert_int_equal(wish.file_count, 2);
        assert_int_equal(wish.files[1].mode, 0444);
        assert_string_equal(file_text(&wish, 1), "KEY=-----BEGIN\nB=evil\n");
        assert_non_null(strstr(file_text(&wish, 0), "SECRET=s3cret\n"));
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_ENV_FILE=" AGX_DOCKER_ENV "\n"));
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_LEASE=900.000\n"));
        assert_null(strstr(file_text(&wish, 0), "/mine"));
        assert_true(has(
                &wish, "type=bind,source=/tmp/a-0/agentix-0123abcd/environ,destination=/run/agentix/environ,readonly"));
        for (size_t i = 0; i < wish.argv->count; ++i)
                assert_null(strstr(wish.argv->items[i], "s3cret"));
}

static void test_networks(void **state)
{
        fixture *f = *state;
        agx_brain *brain;
        agx_wish wish;

        f->config.network = AGX_VIEW("none");
        brain = new_sandbox(f);
        wish = expect_command(brain, "run");
        assert_string_equal(after(&wish, "--network"), "none");
        assert_null(after(&wish, "-p"));
        assert_true(has(&wish, "type=bind,source=/tmp/a-0/agentix-0123abcd/socket,destination=/run/agentix/socket"));
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_BIND_SOCKET=/run/agentix/socket/s\n"));
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_PROBE).url,
                            "http+unix://%2Ftmp%2Fa-0%2Fagentix-0123abcd%2Fsocket%2Fs");
        agx_brain_free(brain);

        f->config.network = AGX_VIEW("host");
        brain = new_sandbox(f);
        wish = expect_command(brain, "run");
        assert_string_equal(after(&wish, "--network"), "host");
        assert_null(after(&wish, "-p"));
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_BIND_HOST=127.0.0.1\n"));
        agx_brain_free(brain);

        agx_strv_add_str(&f->env, "AGENTIX_BIND_HOST=127.0.0.7");
        brain = new_sandbox(f);
        wish = expect_command(brain, "run");
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_BIND_HOST=127.0.0.7\n"));
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_PROBE).url, "http://127.0.0.7:40001");
        agx_brain_free(brain);
        agx_strv_deinit(&f->env);

        f->config.network = AGX_VIEW("mine");
        f->config.publish_host = AGX_VIEW("box.test");
        brain = new_sandbox(f);
        wish = expect_command(brain, "run");
        assert_string_equal(after(&wish, "-p"), "box.test:40001:40001");
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_ALLOWED_HOSTS=box.test\n"));
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_PROBE).url, "http://box.test:40001");
        agx_brain_free(brain);
}

/* ---- trying again ---- */

static void test_a_taken_port_is_replaced(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        agx_wish wish;

        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 125, "Bind for 127.0.0.1:40001 failed: port is already allocated.");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect_command(brain, "run");
        assert_string_equal(after(&wish, "-p"), "127.0.0.1:40002:40002");
        assert_non_null(strstr(file_text(&wish, 0), "AGENTIX_BIND_PORT=40002\n"));
        event(brain, AGX_EVENT_EXITED, 125, "Bind for 127.0.0.1:40002 failed: port is already allocated.");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_FAILED);
        assert_non_null(strstr(wish.message, "port is already allocated"));
}

static void test_no_other_port_after_a_cancellation(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 125, "port is already allocated");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

static void test_a_registry_that_hiccups(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        static const uint64_t pauses[] = {2000, 4000, 8000};

        for (size_t i = 0; i < 3; ++i) {
                expect_command(brain, "run");
                event(brain, AGX_EVENT_EXITED, 125, "received unexpected HTTP status: 502 Bad Gateway");
                assert_int_equal(expect(brain, AGX_WISH_WAIT).timeout_ms, pauses[i]);
                event(brain, AGX_EVENT_TIMER, 0, "");
        }
        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 125, "received unexpected HTTP status: 502 Bad Gateway");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 1, "Error: No such container: agentix-0123abcd");
        assert_non_null(strstr(expect(brain, AGX_WISH_FAILED).message, "502 Bad Gateway"));
}

/* ---- failures ---- */

static void test_run_fails(void **state)
{
        static const struct {
                const char *output;
                bool removes;
        } rows[] = {
                {"docker: Error response from daemon: No such image: alpine", true},
                {"docker: Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", false},
                {"Conflict. The container name \"/agentix-0123abcd\" is already in use by container \"00\".", false},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
                agx_wish wish;

                expect_command(brain, "run");
                event(brain, AGX_EVENT_EXITED, 125, rows[i].output);
                if (rows[i].removes) {
                        expect_command(brain, "rm");
                        event(brain, AGX_EVENT_EXITED, 0, "");
                }
                wish = expect(brain, AGX_WISH_FAILED);
                assert_string_equal(wish.path, "/tmp/a-0/agentix-0123abcd");
                assert_non_null(strstr(wish.message, "exit code 125"));
                assert_non_null(strstr(wish.message, rows[i].output));
        }
}

static void test_a_container_that_ends_early(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        agx_wish wish;

        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_TIMER, 0, "refused");
        expect_command(brain, "inspect");
        event(brain, AGX_EVENT_EXITED, 0, "agentix-container\trunning\t0\tfalse\tid\tagentix-0123abcd\n");
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_TIMER, 0, "refused");
        expect_command(brain, "inspect");
        event(brain, AGX_EVENT_EXITED, 0, "agentix-container\texited\t3\tfalse\tid\tagentix-0123abcd\n");
        expect_command(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "boom\x1b\n");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_FAILED);
        assert_string_equal(wish.message,
                            "starting the sandbox failed: the container ended with exit code 3 before its "
                            "runtime was ready\nboom\\x1b");
}

static void test_a_runtime_that_is_never_ready(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        static const char running[] = "agentix-container\trunning\t0\tfalse\tid\tagentix-0123abcd\n";
        agx_wish wish;

        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 0, "");
        for (int i = 0; i < 3; ++i) {
                expect(brain, AGX_WISH_PROBE);
                event(brain, AGX_EVENT_TIMER, 0, "refused");
                expect_command(brain, "inspect");
                now_ms += i == 2 ? 60000 : 1;
                event(brain, i == 1 ? AGX_EVENT_TIMER : AGX_EVENT_EXITED, 0, running);
        }
        expect_command(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "still thinking\n");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        wish = expect(brain, AGX_WISH_FAILED);
        assert_string_equal(wish.message,
                            "starting the sandbox failed: the runtime was not ready after 60.0 s\nstill thinking");
}

static void test_a_removal_that_fails_keeps_the_directory(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);
        agx_wish wish;

        expect_command(brain, "run");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 1, "Error: it sticks");
        wish = expect(brain, AGX_WISH_FAILED);
        assert_null(wish.path);
        assert_string_equal(wish.message,
                            "starting the sandbox failed: cancelled\nremoving the sandbox failed: the "
                            "engine's rm: exit code 1; the container may still be there\nError: it sticks");
}

/* ---- cancelling ---- */

static void test_a_run_that_is_cancelled_may_end_by_itself(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

        expect_command(brain, "run");
        event(brain, AGX_EVENT_CANCEL, 0, "");
        assert_int_equal(expect(brain, AGX_WISH_WAIT).timeout_ms, AGX_ENGINE_ABANDON_MS);
        event(brain, AGX_EVENT_EXITED, 0, "0123\n");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

static void test_a_run_that_does_not_end_is_looked_for_twice(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

        expect_command(brain, "run");
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 1, "Error: No such container: agentix-0123abcd");
        assert_int_equal(expect(brain, AGX_WISH_WAIT).timeout_ms, AGX_ENGINE_SETTLE_MS);
        event(brain, AGX_EVENT_TIMER, 0, "");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

static void test_a_pull_that_is_cancelled_ends_at_once(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

        expect_command(brain, "run");
        event(brain, AGX_EVENT_CANCEL, 0, "Unable to find image 'alpine:latest' locally\n");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        expect_command(brain, "rm");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

static void test_cancelling_later(void **state)
{
        static const char running[] = "agentix-container\texited\t0\tfalse\tid\tagentix-0123abcd\n";

        for (int step = 0; step < 4; ++step) {
                _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

                expect_command(brain, "run");
                event(brain, AGX_EVENT_EXITED, 0, "");
                expect(brain, AGX_WISH_PROBE);
                if (step == 3)
                        event(brain, AGX_EVENT_READY, 0, "");
                if (step == 1 || step == 2) {
                        event(brain, AGX_EVENT_TIMER, 0, "");
                        expect_command(brain, "inspect");
                }
                if (step == 2) {
                        event(brain, AGX_EVENT_EXITED, 0, running);
                        expect_command(brain, "logs");
                }
                event(brain, AGX_EVENT_CANCEL, 0, "");
                expect_command(brain, "rm");
                event(brain, AGX_EVENT_EXITED, 0, "");
                expect(brain, AGX_WISH_FAILED);
        }
}

static void test_cancel_before_the_start(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_sandbox(*state);

        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_FAILED);
}

/* ---- settings ---- */

static void test_bad_settings(void **state)
{
        fixture *f = *state;
        agx_brain *brain = NULL;
        const char *bad = NULL;

        f->config.image = AGX_VIEW("--privileged");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), AGX_DOCKER_E_SETTING);
        assert_string_equal(bad, "image");
        f->config.image = AGX_VIEW("a\0b");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), -EINVAL);
        f->config.image = AGX_VIEW("alpine");
        f->config.engine = AGX_VIEW("docker --host=tcp://x");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), AGX_DOCKER_E_SETTING);
        assert_string_equal(bad, "engine");
        f->config.engine = AGX_VIEW("docker");
        f->config.nix = AGX_VIEW("/a,b");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), AGX_DOCKER_E_SETTING);
        assert_string_equal(bad, "mount");
        f->config.nix = AGX_VIEW("/a");
        agx_strv_add_str(&f->env, "-x=1");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), AGX_DOCKER_E_SETTING);
        assert_string_equal(bad, "env");
        agx_strv_deinit(&f->env);
        agx_strv_add_str(&f->ports, "70000");
        assert_int_equal(agx_docker_sandbox_new(&brain, &f->config, &bad), AGX_DOCKER_E_SETTING);
        assert_string_equal(bad, "port");
        assert_null(brain);
}

/* ---- commands ---- */

static agx_brain *new_command(fixture *f, agx_docker_command command)
{
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_docker_command_new(&brain, command, f->config.engine, &f->host_env, f->config.id, &bad),
                         0);
        return brain;
}

static void test_commands(void **state)
{
        static const struct {
                agx_docker_command command;
                agx_event_kind kind;
                int code;
                const char *output;
                agx_wish_kind end;
                const char *message;
        } rows[] = {
                {AGX_DOCKER_LOOK, AGX_EVENT_EXITED, 0, "agentix-container\trunning\t0\tfalse\tid\tagentix-0123abcd\n",
                 AGX_WISH_DONE, "running id agentix-0123abcd"},
                {AGX_DOCKER_LOOK, AGX_EVENT_EXITED, 0, "agentix-container\trunning\t0\tfalse\tid\t\n", AGX_WISH_GONE,
                 NULL},
                {AGX_DOCKER_LOOK, AGX_EVENT_EXITED, 1, "Error: No such container: x", AGX_WISH_GONE, NULL},
                {AGX_DOCKER_LOOK, AGX_EVENT_EXITED, 1, "Cannot connect to the Docker daemon", AGX_WISH_FAILED,
                 "looking for the container failed: exit code 1\nCannot connect to the Docker daemon"},
                {AGX_DOCKER_LOOK, AGX_EVENT_EXITED, 0, "what?", AGX_WISH_FAILED,
                 "looking for the container failed: the engine gave no state\nwhat?"},
                {AGX_DOCKER_LIST, AGX_EVENT_EXITED, 0,
                 "agentix-container\ta\texited\tb:1:2\t0\ta\nagentix-container\t-x\texited\tb:1:2\t0\ta\n",
                 AGX_WISH_DONE, "a\texited\tb:1:2\n"},
                {AGX_DOCKER_LIST, AGX_EVENT_TIMER, 0, "", AGX_WISH_FAILED,
                 "listing the sandboxes failed: the engine did not answer in time"},
                {AGX_DOCKER_REMOVE, AGX_EVENT_EXITED, 0, "", AGX_WISH_GONE, NULL},
                {AGX_DOCKER_REMOVE, AGX_EVENT_EXITED, 1, "Error: no such container", AGX_WISH_GONE, NULL},
                {AGX_DOCKER_REMOVE, AGX_EVENT_SPAWN_FAILED, 0, "docker: gone", AGX_WISH_FAILED,
                 "removing the container failed: the engine's client could not be started\ndocker: gone"},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                _cleanup_(agx_brain_freep) agx_brain *brain = new_command(*state, rows[i].command);
                agx_wish wish;

                expect(brain, AGX_WISH_RUN);
                event(brain, rows[i].kind, rows[i].code, rows[i].output);
                wish = expect(brain, rows[i].end);
                if (rows[i].message)
                        assert_string_equal(wish.message, rows[i].message);
        }
}

static void test_a_removal_is_not_cancelled(void **state)
{
        _cleanup_(agx_brain_freep) agx_brain *brain = new_command(*state, AGX_DOCKER_REMOVE);

        expect(brain, AGX_WISH_RUN);
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_GONE);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_a_life),
                TEST(test_environments),
                TEST(test_networks),
                TEST(test_a_taken_port_is_replaced),
                TEST(test_no_other_port_after_a_cancellation),
                TEST(test_a_registry_that_hiccups),
                TEST(test_run_fails),
                TEST(test_a_container_that_ends_early),
                TEST(test_a_runtime_that_is_never_ready),
                TEST(test_a_removal_that_fails_keeps_the_directory),
                TEST(test_a_run_that_is_cancelled_may_end_by_itself),
                TEST(test_a_run_that_does_not_end_is_looked_for_twice),
                TEST(test_a_pull_that_is_cancelled_ends_at_once),
                TEST(test_cancelling_later),
                TEST(test_cancel_before_the_start),
                TEST(test_bad_settings),
                TEST(test_commands),
                TEST(test_a_removal_is_not_cancelled),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
