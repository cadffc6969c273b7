/* The client session where all goes well: calls, the token, the pool of connections; and where memory runs out. */
#include "shell.h"

/* ---- the plain path ---- */

static void test_call_at_every_cut(void **state)
{
        (void)state;
        for (size_t cut = 0; cut < 200; ++cut) {
                fixture f;

                begin(&f);
                f.cut = cut;
                one_call(&f);
                assert_int_equal(f.n_ends, 1);
                assert_int_equal(f.health_asked, 1);
                finish(&f);
        }
}

static void test_connection_is_kept_and_results_are_acknowledged(void **state)
{
        fixture f;
        end *e;

        (void)state;
        begin(&f);
        one_call(&f);
        for (int i = 0; i < 3; ++i) {
                agx_client_call *call = start(&f);

                e = must_ask(&f);
                assert_int_equal(e->n_acks, 1);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, call, "v");
        }
        assert_string_equal(f.ends[0].acks, "000102030405060708090a0b0c0d0e0f-3 ");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_large_values_both_ways(void **state)
{
        size_t n = 3 * 1024 * 1024 + 17;
        char *big = malloc(n);

        (void)state;
        assert_non_null(big);
        for (size_t i = 0; i < n; ++i)
                big[i] = (char)(i * 7);
        for (size_t cut = 0; cut < 100000; cut += 33333) {
                fixture f;
                agx_client_call *call;
                const agx_client_result *result;
                agx_buf body = AGX_BUF_NULL(0);
                end *e;

                begin(&f);
                f.cut = cut;
                call = start_with(&f, agx_view_of(big, n), UINT64_MAX);
                e = must_ask(&f);
                assert_int_equal(e->arguments, n);
                answer_value(&f, e, agx_view_of(big, n));
                result = ended(&f, call);
                assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
                assert_int_equal(result->value.n, n);
                agx_client_call_take_body(call, &body);
                assert_memory_equal(result->value.p, big, n);
                agx_client_call_free(f.client, call, f.now);
                agx_buf_deinit(&body);
                finish(&f);
        }
        free(big);
}

static void test_target_error(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("QuotaError"), .message = AGX_VIEW("u1"), .traceback = AGX_VIEW("File x")};
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "QuotaError", NULL);
        finish(&f);
}

static void test_too_large_to_send(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        /* Never read: the length alone decides. */
        call = start_with(&f, agx_view_of("", (size_t)AGX_MAX_MESSAGE + 1), UINT64_MAX);
        work(&f);
        assert_fault(&f, call, "FrameTooLarge", NULL);
        one_call(&f);
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_health_and_connect(void **state)
{
        fixture f;
        agx_client_call *call;
        const agx_client_result *result;

        (void)state;
        begin(&f);
        assert_int_equal(agx_client_connect(f.client, NULL, f.now, &call), 0);
        work(&f);
        assert_int_equal(ended(&f, call)->outcome, AGX_CLIENT_CONNECTED);
        agx_client_call_free(f.client, call, f.now);
        assert_int_equal(agx_client_ask_health(f.client, NULL, f.now, &call), 0);
        work(&f);
        result = ended(&f, call);
        assert_int_equal(result->outcome, AGX_CLIENT_HEALTH);
        assert_true(agx_view_eq(result->health.version, AGX_VIEW("9.9")));
        assert_true(agx_view_eq(result->health.instance, AGX_VIEW("one")));
        agx_client_call_free(f.client, call, f.now);
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

/* ---- the token ---- */

static void test_token_only_after_the_proof(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;

        (void)state;
        begin_with(&f, &config);
        f.token = "secret";
        f.prove = true;
        one_call(&f);
        assert_true(f.ends[0].token);
        finish(&f);
}

static void squat(bool prove, const char *token)
{
        agx_client_config config = config_of("secret");
        fixture f;
        agx_client_call *call;

        begin_with(&f, &config);
        f.token = token;
        f.prove = prove;
        call = start(&f);
        work(&f);
        assert_unreachable(&f, call, "did not prove");
        assert_false(f.ends[0].wrote_token);
        assert_int_equal(f.calls_asked, 0);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_squatter_gets_no_token(void **state)
{
        (void)state;
        squat(false, NULL);
        squat(true, "another");
        squat(true, "");
}

static void test_secure_needs_no_proof(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;

        (void)state;
        config.secure = true;
        begin_with(&f, &config);
        one_call(&f);
        assert_true(f.ends[0].token);
        finish(&f);
}

static void test_squatter_after_a_loss(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;
        agx_client_call *call;

        (void)state;
        begin_with(&f, &config);
        f.token = "secret";
        f.prove = true;
        call = start(&f);
        must_ask(&f);
        f.prove = false;
        drop(&f, &f.ends[0]);
        work(&f);
        assert_unreachable(&f, call, "did not prove");
        assert_int_equal(f.n_ends, 2);
        assert_false(f.ends[1].wrote_token);
        finish(&f);
}

static void test_token_refused(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer(&f, must_ask(&f), "401 Unauthorized", AGX_VIEW(""));
        assert_unreachable(&f, call, "401");
        finish(&f);
}

/* ---- the pool ---- */

static void test_many_calls(void **state)
{
        enum { N = 1000 };
        size_t done = 0, most = 0;
        fixture f;

        (void)state;
        begin(&f);
        for (size_t i = 0; i < N; ++i)
                start(&f);
        for (int turn = 0; turn < 5000 && done < N; ++turn) {
                agx_client_call *call;
                end *e;

                work(&f);
                most = f.n_open > most ? f.n_open : most;
                e = asked(&f);
                if (e)
                        answer_value(&f, e, AGX_VIEW("v"));
                while ((call = agx_client_next_done(f.client))) {
                        agx_client_call_free(f.client, call, f.now);
                        ++done;
                }
                if (turn % 20 == 19)
                        pass(&f, 1);
        }
        assert_int_equal(done, N);
        assert_true(most <= 200); /* quick calls do not need a connection each */
        work(&f);
        assert_true(f.n_open <= AGX_CLIENT_IDLE_MAX);
        pass(&f, AGX_CLIENT_IDLE_MS);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_slow_calls_get_a_connection_each_up_to_the_bound(void **state)
{
        static fixture f;

        (void)state;
        begin(&f);
        for (size_t i = 0; i < 600; ++i)
                start(&f);
        for (int turn = 0; turn < 100; ++turn) {
                work(&f);
                pass(&f, 5);
        }
        assert_int_equal(f.n_open, AGX_CLIENT_CONNECTIONS_MAX);
        assert_int_equal(f.calls_asked, AGX_CLIENT_CONNECTIONS_MAX);
        finish(&f);
}

/* Calls that come and go beside one that was sent first. */
static void pass_by(fixture *f, int n)
{
        for (int i = 0; i < n; ++i) {
                agx_client_call *call = start(f);

                answer_value(f, must_ask(f), AGX_VIEW("v"));
                assert_value(f, call, "v");
        }
}

static void test_new_numbers_wait_for_an_old_one(void **state)
{
        fixture f;
        agx_client_call *old, *call;
        end *e;

        (void)state;
        begin(&f);
        old = start(&f);
        e = must_ask(&f);
        e->asked = false; /* the server takes its time */
        pass_by(&f, AGX_LEDGER_WINDOW - 2);
        call = start(&f);
        work(&f);
        assert_null(asked(&f));
        e->asked = true;
        answer_value(&f, e, AGX_VIEW("old"));
        assert_value(&f, old, "old");
        answer_value(&f, must_ask(&f), AGX_VIEW("new"));
        assert_value(&f, call, "new");
        finish(&f);
}

static void test_new_numbers_do_not_wait_for_one_the_server_has(void **state)
{
        fixture f;
        agx_client_call *old;
        end *e;

        (void)state;
        begin(&f);
        old = start(&f);
        answer_accepted(&f, must_ask(&f));
        pass_by(&f, 2 * AGX_LEDGER_WINDOW + 3);
        pass(&f, 20);
        e = must_ask(&f);
        assert_string_equal(e->call_id, "000102030405060708090a0b0c0d0e0f-1");
        answer_value(&f, e, AGX_VIEW("old"));
        assert_value(&f, old, "old");
        pass_by(&f, 3);
        finish(&f);
}

static void test_resent_calls_come_in_rising_order_before_new_ones(void **state)
{
        fixture f;
        agx_client_call *calls[3];

        (void)state;
        begin(&f);
        for (int i = 0; i < 3; ++i)
                calls[i] = start(&f);
        work(&f);
        assert_int_equal(f.calls_asked, 3);
        for (int i = 2; i >= 0; --i)
                drop(&f, &f.ends[i]);
        start(&f);
        f.auto_health = false;
        work(&f);
        answer_health(&f, &f.ends[3]);
        for (int i = 0; i < 3; ++i) {
                char id[64];
                end *e = must_ask(&f);

                snprintf(id, sizeof(id), "000102030405060708090a0b0c0d0e0f-%d", i + 1);
                assert_string_equal(e->call_id, id);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, calls[i], "v");
        }
        assert_string_equal(must_ask(&f)->call_id, "000102030405060708090a0b0c0d0e0f-4");
        finish(&f);
}

static void test_shutdown_ends_everything(void **state)
{
        fixture f;
        agx_client_call *sent, *waiting;

        (void)state;
        begin(&f);
        sent = start(&f);
        must_ask(&f);
        f.auto_health = false;
        waiting = start(&f);
        work(&f);
        agx_client_shutdown(f.client, "the client was closed", f.now);
        work(&f);
        assert_unreachable(&f, sent, "closed");
        assert_unreachable(&f, waiting, "closed");
        assert_int_equal(f.n_open, 0);
        f.auto_health = true;
        waiting = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, waiting, "v");
        finish(&f);
}

/* ---- memory ---- */

/* A whole exchange with a loss in it; only our own verbs allocate while armed. */
static void scenario(fixture *f)
{
        agx_client_call *call = NULL;

        for (int i = 0; i < 3; ++i) {
                end *e;

                if (agx_client_start(f->client, AGX_VIEW("m::f"), AGX_VIEW("a"), AGX_VIEW_NULL, UINT64_MAX, NULL,
                                     f->now, &call))
                        continue;
                work(f);
                e = asked(f);
                if (e && i == 1) {
                        drop(f, e);
                        work(f);
                        e = asked(f);
                }
                if (e)
                        answer_value(f, e, AGX_VIEW("value"));
                for (int turn = 0; turn < 20 && !(call = agx_client_next_done(f->client)); ++turn) {
                        pass(f, 500);
                        if ((e = asked(f)))
                                answer_value(f, e, AGX_VIEW("value"));
                }
                assert_non_null(call);
                agx_client_call_free(f->client, call, f->now);
        }
}

static void test_any_allocation_may_fail(void **state)
{
        size_t n = 0;
        bool failed;

        (void)state;
        do {
                fixture f;

                begin(&f);
                f.cut = 1; /* the fixture's own memory is made in other steps than the client's */
                agx_oom_arm(++n);
                scenario(&f);
                failed = agx_oom_disarm();
                finish(&f);
                assert_true(n < 5000);
        } while (failed);
        assert_true(n > 10);
}

static void test_new_fails_cleanly(void **state)
{
        agx_client_config config = config_of("secret");
        agx_client *client;
        size_t n = 0;
        int r;

        (void)state;
        do {
                agx_oom_arm(++n);
                r = agx_client_new(&client, &config);
                if (agx_oom_disarm())
                        assert_int_equal(r, -ENOMEM);
        } while (r);
        agx_client_free(client);
        config.host = AGX_VIEW("a\r\nb");
        assert_int_equal(agx_client_new(&client, &config), -EINVAL);
}

/* A connection that was opened before a restart tells of it after one that was opened later. */
static void test_an_earlier_instance_is_heard_late(void **state)
{
        agx_client_call *calls[3];
        fixture f;

        (void)state;
        begin(&f);
        f.auto_health = false;
        for (int i = 0; i < 3; ++i) {
                calls[i] = start(&f);
                work(&f);
        }
        assert_int_equal(f.n_ends, 3);
        answer_health(&f, &f.ends[0]);
        work(&f);
        pass(&f, 1);
        f.instance = "two";
        answer_health(&f, &f.ends[2]);
        work(&f);
        f.instance = "one";
        answer_health(&f, &f.ends[1]);
        work(&f);
        assert_null(f.ends[1].conn);
        f.instance = "two";
        f.auto_health = true;
        drop(&f, &f.ends[2]); /* its call is not told of a second restart */
        answer_value(&f, &f.ends[0], AGX_VIEW("a"));
        assert_value(&f, calls[0], "a");
        pass(&f, 1000);
        for (int i = 1; i < 3; ++i) {
                answer_value(&f, must_ask(&f), AGX_VIEW("b"));
                assert_value(&f, calls[i], "b");
        }
        finish(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_an_earlier_instance_is_heard_late),
                cmocka_unit_test(test_call_at_every_cut),
                cmocka_unit_test(test_connection_is_kept_and_results_are_acknowledged),
                cmocka_unit_test(test_large_values_both_ways),
                cmocka_unit_test(test_target_error),
                cmocka_unit_test(test_too_large_to_send),
                cmocka_unit_test(test_health_and_connect),
                cmocka_unit_test(test_token_only_after_the_proof),
                cmocka_unit_test(test_squatter_gets_no_token),
                cmocka_unit_test(test_secure_needs_no_proof),
                cmocka_unit_test(test_squatter_after_a_loss),
                cmocka_unit_test(test_token_refused),
                cmocka_unit_test(test_many_calls),
                cmocka_unit_test(test_slow_calls_get_a_connection_each_up_to_the_bound),
                cmocka_unit_test(test_new_numbers_wait_for_an_old_one),
                cmocka_unit_test(test_new_numbers_do_not_wait_for_one_the_server_has),
                cmocka_unit_test(test_resent_calls_come_in_rising_order_before_new_ones),
                cmocka_unit_test(test_shutdown_ends_everything),
                cmocka_unit_test(test_any_allocation_may_fail),
                cmocka_unit_test(test_new_fails_cleanly),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
