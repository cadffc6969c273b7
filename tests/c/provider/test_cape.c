/* The cape brains, driven without a program: from `run` to `cancel`, and what its answers may say. */
#include "base/err.h"
#include "proto/limits.h"
#include "provider/cape.h"
#include "provider/cape_words.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

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

static agx_wish expect_call(agx_brain *brain, const char *verb)
{
        agx_wish wish = expect(brain, AGX_WISH_RUN);

        assert_string_equal(wish.argv->items[0], "/usr/bin/cape");
        assert_string_equal(wish.argv->items[1], verb);
        return wish;
}

static const char *after(const agx_wish *wish, const char *option)
{
        for (size_t i = 0; i + 1 < wish->argv->count; ++i)
                if (!strcmp(wish->argv->items[i], option))
                        return wish->argv->items[i + 1];
        return NULL;
}

static size_t times(const agx_wish *wish, const char *item)
{
        size_t found = 0;

        for (size_t i = 0; i < wish->argv->count; ++i)
                found += !strcmp(wish->argv->items[i], item);
        return found;
}

typedef struct fixture {
        agx_cape_config config;
        agx_strv host_env, binds, env;
} fixture;

static int setup(void **state)
{
        fixture *f = test_calloc(1, sizeof(*f));

        agx_strv_add_str(&f->host_env, "CAPE_TOKEN=t");
        agx_strv_add_str(&f->binds, "/data:/data:ro");
        agx_strv_add_str(&f->env, "A=x\ny");
        agx_strv_add_str(&f->env, "AGENTIX_TOKEN_FILE=/mine");
        f->config = (agx_cape_config){
                .binary = AGX_VIEW("/usr/bin/cape"),
                .host_env = &f->host_env,
                .id = AGX_VIEW("cape-0123456789ab"),
                .dir = AGX_VIEW("/tmp/a/cape-0123456789ab"),
                .token = AGX_VIEW("secret"),
                .controller_url = AGX_VIEW("https://c.example"),
                .pool = AGX_VIEW("gpus"),
                .user = AGX_VIEW("me"),
                .image = AGX_VIEW("alpine"),
                .gpus = AGX_VIEW("1"),
                .isolation_policy = AGX_VIEW("default"),
                .max_duration = AGX_VIEW("14400"),
                .bundle = AGX_VIEW("/bundles/b"),
                .extra_binds = &f->binds,
                .workspace_root = AGX_VIEW("/work it's"),
                .url_template = AGX_VIEW("http://{host}:{port}/x"),
                .port = AGX_VIEW("8710"),
                .config_env = &f->env,
                .lease_s = 900,
                .ready_ms = 60000,
                .failure_limit = 2,
        };
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        fixture *f = *state;

        agx_strv_deinit(&f->host_env);
        agx_strv_deinit(&f->binds);
        agx_strv_deinit(&f->env);
        test_free(f);
        return 0;
}

static agx_brain *make(const fixture *f)
{
        agx_brain *brain = NULL;
        const char *bad = NULL;

        assert_int_equal(agx_cape_sandbox_new(&brain, &f->config, &bad), 0);
        return brain;
}

/* As far as the request's id. */
static agx_brain *submitted(const fixture *f)
{
        agx_brain *brain = make(f);

        expect_call(brain, "run");
        event(brain, AGX_EVENT_EXITED, 0, "a word\nreq-123456\n");
        return brain;
}

static void answer_status(agx_brain *brain, const char *json)
{
        agx_wish wish = expect_call(brain, "status");

        assert_int_equal(times(&wish, "req-123456"), 1);
        event(brain, AGX_EVENT_EXITED, 0, json);
}

static void test_a_whole_life(void **state)
{
        agx_brain *brain = make(*state);
        agx_wish wish = expect_call(brain, "run");

        assert_string_equal(after(&wish, "--task-id"), "cape-0123456789ab");
        assert_string_equal(after(&wish, "--session-key"), "agentix-cape-0123456789ab");
        assert_string_equal(after(&wish, "--bind"), "/bundles/b:/nix:ro");
        assert_int_equal(times(&wish, "/data:/data:ro"), 1);
        assert_int_equal(times(&wish, "A=x\ny"), 1);
        assert_int_equal(times(&wish, "AGENTIX_TOKEN_FILE=/mine"), 0);
        assert_int_equal(times(&wish, "AGENTIX_TOKEN_FILE=/work it's/cape-0123456789ab/token"), 1);
        assert_int_equal(times(&wish, "--cpu-cores") + times(&wish, "--workspace") + times(&wish, "--cwd"), 0);
        assert_non_null(strstr(wish.argv->items[wish.argv->count - 1], "'/work it'\\''s'/cape-0123456789ab"));
        assert_string_equal(wish.argv->items[wish.argv->count - 4], "--");
        assert_int_equal(wish.file_count, 0);
        event(brain, AGX_EVENT_EXITED, 0, "req-123456\r\n");
        answer_status(brain, "{\"state\": \"queued\", \"more\": [1, {}]}");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        answer_status(brain, "warning: slow\n{\n \"request_id\": \"req-123456\",\n \"state\": \"running\"\n}\n");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "AGENTIX_ENDPOINT h\nAGENTIX_ENDPOINT node.example 8710\n");
        wish = expect(brain, AGX_WISH_PROBE);
        assert_string_equal(wish.url, "http://node.example:8710/x");
        event(brain, AGX_EVENT_TIMER, 0, "refused");
        answer_status(brain, "{\"state\": \"running\"}");
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_READY, 0, "instance");
        wish = expect(brain, AGX_WISH_DONE);
        assert_string_equal(wish.path, "req-123456");
        event(brain, AGX_EVENT_DELETE, 0, "");
        wish = expect_call(brain, "cancel");
        assert_string_equal(after(&wish, "--reason"), "agentix_delete");
        event(brain, AGX_EVENT_EXITED, 1, "{\"status\": 404}");
        expect(brain, AGX_WISH_GONE);
        agx_brain_free(brain);
}

static void test_a_shared_directory(void **state)
{
        fixture *f = *state;
        agx_brain *brain;
        agx_wish wish;

        f->config.meta = AGX_VIEW("/shared/cape-0123456789ab");
        brain = make(f);
        wish = expect_call(brain, "run");
        assert_int_equal(wish.file_count, 2);
        assert_string_equal(wish.files[0].path, "/shared/cape-0123456789ab/token");
        assert_int_equal(wish.files[0].mode, 0600);
        assert_true(agx_view_eq(wish.files[1].content, AGX_VIEW("A=x\ny\0")));
        for (size_t i = 0; i < wish.argv->count; ++i)
                assert_null(strstr(wish.argv->items[i], "secret"));
        event(brain, AGX_EVENT_EXITED, 0, "req-123456");
        answer_status(brain, "{\"state\":\"running\"}");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 1, "no logs yet");
        wish = expect(brain, AGX_WISH_RUN);
        assert_string_equal(wish.argv->items[1], "/shared/cape-0123456789ab/endpoint");
        event(brain, AGX_EVENT_EXITED, 0, "AGENTIX_ENDPOINT n1 8710\n");
        assert_string_equal(expect(brain, AGX_WISH_PROBE).url, "http://n1:8710/x");
        agx_brain_free(brain);
}

static void test_requests_that_are_none(void **state)
{
        const char *const answers[] = {"", "req-12345", "req-12345x", "the id is req-123456"};

        for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); ++i) {
                agx_brain *brain = make(*state);

                expect_call(brain, "run");
                event(brain, AGX_EVENT_EXITED, 0, answers[i]);
                assert_non_null(strstr(expect(brain, AGX_WISH_FAILED).message, "named no request"));
                agx_brain_free(brain);
        }
}

/* Each that was named is cancelled, also by a run that failed. */
static void test_more_than_one_request(void **state)
{
        for (int code = 0; code < 2; ++code) {
                agx_brain *brain = make(*state);
                agx_wish wish;

                expect_call(brain, "run");
                event(brain, AGX_EVENT_EXITED, code, "req-123456\nreq-123456\nreq-654321\n");
                wish = expect_call(brain, "cancel");
                assert_int_equal(times(&wish, "req-123456"), 1);
                assert_string_equal(after(&wish, "--reason"), "agentix_create_failed");
                event(brain, AGX_EVENT_EXITED, 0, "");
                wish = expect_call(brain, "cancel");
                assert_int_equal(times(&wish, "req-654321"), 1);
                event(brain, AGX_EVENT_EXITED, 0, "");
                expect(brain, AGX_WISH_FAILED);
                agx_brain_free(brain);
        }
}

static void test_states(void **state)
{
        agx_brain *brain = submitted(*state);

        answer_status(brain, "{\"state\": \"Failed\"}");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "boom\n");
        expect_call(brain, "cancel");
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_string_equal(expect(brain, AGX_WISH_FAILED).message,
                            "starting the sandbox failed: the request is Failed\nboom");
        agx_brain_free(brain);

        brain = submitted(*state);
        answer_status(brain, "{\"state\": \"running\", \"request_id\": \"req-999999\"}");
        expect_call(brain, "cancel");
        agx_brain_free(brain);
}

static void test_status_errors(void **state)
{
        agx_brain *brain = submitted(*state);

        for (int i = 0; i < 2; ++i) {
                answer_status(brain, i ? "{}" : "no JSON");
                expect(brain, AGX_WISH_WAIT);
                event(brain, AGX_EVENT_TIMER, 0, "");
        }
        answer_status(brain, "{\"state\": \"running\"}"); /* which forgives them */
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_TIMER, 0, "");
        for (int i = 0; i < 2; ++i) {
                expect(brain, AGX_WISH_WAIT);
                event(brain, AGX_EVENT_TIMER, 0, "");
                expect_call(brain, "status");
                event(brain, AGX_EVENT_EXITED, 1, "oops");
        }
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        expect_call(brain, "status");
        event(brain, AGX_EVENT_TIMER, 0, "");
        expect_call(brain, "cancel");
        agx_brain_free(brain);
}

static void test_time_passes(void **state)
{
        agx_brain *brain = submitted(*state);

        now_ms += 60000;
        answer_status(brain, "{\"state\": \"running\"}");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "");
        expect_call(brain, "cancel");
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_non_null(strstr(expect(brain, AGX_WISH_FAILED).message, "no AGENTIX_ENDPOINT marker after 60.0 s"));
        agx_brain_free(brain);
}

static void test_nobody_answers(void **state)
{
        agx_brain *brain = submitted(*state);

        answer_status(brain, "{\"state\": \"running\"}");
        expect_call(brain, "logs");
        event(brain, AGX_EVENT_EXITED, 0, "AGENTIX_ENDPOINT h 1\n");
        now_ms += 60000;
        expect(brain, AGX_WISH_PROBE);
        event(brain, AGX_EVENT_TIMER, 0, "refused");
        answer_status(brain, "{\"state\": \"running\"}");
        expect_call(brain, "cancel");
        event(brain, AGX_EVENT_EXITED, 0, "");
        assert_non_null(strstr(expect(brain, AGX_WISH_FAILED).message, "its endpoint was not healthy after 60.0 s"));
        agx_brain_free(brain);
}

static void test_cancelled(void **state)
{
        agx_brain *brain = make(*state);
        agx_wish wish;

        expect_call(brain, "run");
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_WAIT); /* it is let go on: only it knows the id */
        event(brain, AGX_EVENT_EXITED, 0, "req-123456\n");
        wish = expect_call(brain, "cancel");
        assert_string_equal(after(&wish, "--reason"), "agentix_create_cancelled");
        for (int i = 0; i < AGX_CAPE_CANCELS; ++i) {
                event(brain, AGX_EVENT_EXITED, 1, "no");
                if (i + 1 < AGX_CAPE_CANCELS) {
                        expect(brain, AGX_WISH_WAIT);
                        event(brain, AGX_EVENT_TIMER, 0, "");
                        expect_call(brain, "cancel");
                }
        }
        assert_non_null(strstr(expect(brain, AGX_WISH_FAILED).message, "cape cancel of req-123456 did not succeed"));
        agx_brain_free(brain);

        brain = make(*state);
        event(brain, AGX_EVENT_CANCEL, 0, "");
        expect(brain, AGX_WISH_FAILED);
        agx_brain_free(brain);
}

/* The request is written down for whoever finds the directory of a killed process, until that has succeeded. */
static void test_the_request_is_noted(void **state)
{
        agx_brain *brain = submitted(*state);
        agx_wish wish = expect_call(brain, "status");

        assert_int_equal(wish.file_count, 1);
        assert_string_equal(wish.files[0].path, "/tmp/a/cape-0123456789ab/request");
        assert_int_equal(wish.files[0].mode, 0600);
        assert_true(agx_view_eq(wish.files[0].content, AGX_VIEW("https://c.example req-123456\n")));
        event(brain, AGX_EVENT_SPAWN_FAILED, 0, "no space");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        wish = expect_call(brain, "status");
        assert_int_equal(wish.file_count, 1);
        event(brain, AGX_EVENT_EXITED, 1, "503");
        expect(brain, AGX_WISH_WAIT);
        event(brain, AGX_EVENT_TIMER, 0, "");
        wish = expect_call(brain, "status");
        assert_int_equal(wish.file_count, 0);
        agx_brain_free(brain);
}

static void test_settings(void **state)
{
        fixture *f = *state;
        agx_brain *brain = NULL;
        const char *bad = NULL;

        f->config.image = AGX_VIEW("--privileged");
        assert_int_equal(agx_cape_sandbox_new(&brain, &f->config, &bad), AGX_CAPE_E_SETTING);
        assert_string_equal(bad, "image");
        f->config.image = AGX_VIEW("alpine");
        f->config.bundle = AGX_VIEW("/b:/etc");
        assert_int_equal(agx_cape_sandbox_new(&brain, &f->config, &bad), AGX_CAPE_E_SETTING);
        assert_string_equal(bad, "bundle");
        assert_int_equal(agx_cape_command_new(&brain, AGX_CAPE_STATUS, f->config.binary, &f->host_env,
                                              f->config.controller_url, AGX_VIEW("--all"), &bad),
                         AGX_CAPE_E_SETTING);
        assert_null(brain);
}

static void test_markers(void **state)
{
        const char *const none[] = {"",
                                    "AGENTIX_ENDPOINT",
                                    "AGENTIX_ENDPOINT h 1 x",
                                    "AGENTIX_ENDPOINT h 0",
                                    "AGENTIX_ENDPOINT h 70000",
                                    "AGENTIX_ENDPOINT h/../x 1",
                                    "AGENTIX_ENDPOINT h@x 1",
                                    "xAGENTIX_ENDPOINT h 1",
                                    "AGENTIX_ENDPOINT h -1",
                                    "AGENTIX_ENDPOINT  1"};
        agx_view host, port;

        (void)state;
        for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); ++i)
                assert_false(agx_cape_marker(agx_view_str(none[i]), &host, &port));
        assert_true(agx_cape_marker(AGX_VIEW("x\n  AGENTIX_ENDPOINT n-1.x 8710 \r\ny"), &host, &port));
        assert_true(agx_view_eq(host, AGX_VIEW("n-1.x")) && agx_view_eq(port, AGX_VIEW("8710")));
}

static void test_commands(void **state)
{
        fixture *f = *state;
        const char *bad = NULL;
        const struct {
                agx_cape_command command;
                int code;
                const char *text;
                agx_wish_kind end;
                const char *message;
        } rows[] = {
                {AGX_CAPE_STATUS, 0, "{\"state\": \"running\"}", AGX_WISH_DONE, "running"},
                {AGX_CAPE_STATUS, 0, "{\"state\": \"expired\"}", AGX_WISH_DONE, "exited"},
                {AGX_CAPE_STATUS, 0, "what", AGX_WISH_FAILED, NULL},
                {AGX_CAPE_STATUS, 1, "{\"status\":404}", AGX_WISH_GONE, NULL},
                {AGX_CAPE_CANCEL, 0, "", AGX_WISH_GONE, NULL},
                {AGX_CAPE_CANCEL, 1, "{\"status\":500}", AGX_WISH_FAILED, NULL},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_brain *brain = NULL;
                agx_wish wish;

                assert_int_equal(agx_cape_command_new(&brain, rows[i].command, f->config.binary, &f->host_env,
                                                      f->config.controller_url, AGX_VIEW("req-123456"), &bad),
                                 0);
                expect_call(brain, rows[i].command == AGX_CAPE_STATUS ? "status" : "cancel");
                event(brain, AGX_EVENT_EXITED, rows[i].code, rows[i].text);
                wish = expect(brain, rows[i].end);
                if (rows[i].message)
                        assert_string_equal(wish.message, rows[i].message);
                agx_brain_free(brain);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_a_whole_life),
                TEST(test_a_shared_directory),
                TEST(test_requests_that_are_none),
                TEST(test_more_than_one_request),
                TEST(test_states),
                TEST(test_status_errors),
                TEST(test_time_passes),
                TEST(test_nobody_answers),
                TEST(test_cancelled),
                TEST(test_the_request_is_noted),
                TEST(test_settings),
                TEST(test_markers),
                TEST(test_commands),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
