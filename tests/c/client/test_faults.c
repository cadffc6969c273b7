/* The client session where the road or the server fails: losses, long calls, deadlines, garbage. */
#include "shell.h"

/* ---- losses ---- */

static void test_dropped_reply_is_asked_again_under_its_id(void **state)
{
        fixture f;
        agx_client_call *call;
        char id[64];
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        memcpy(id, e->call_id, sizeof(id));
        drop(&f, e);
        e = must_ask(&f);
        assert_string_equal(e->call_id, id);
        assert_int_equal(e->arguments, 4);
        answer_value(&f, e, AGX_VIEW("kept"));
        assert_value(&f, call, "kept");
        assert_int_equal(f.n_ends, 2);
        finish(&f);
}

/* Cuts the reply at every byte. */
static void test_reply_cut_anywhere(void **state)
{
        const char *reply = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
                            "\x82\xa2ok\xc3\xa5value\xc4";
        size_t length = strlen(reply); /* short of its body by a byte and more */

        (void)state;
        for (size_t n = 0; n <= length; ++n) {
                fixture f;
                agx_client_call *call;
                end *e;

                begin(&f);
                call = start(&f);
                e = must_ask(&f);
                e->asked = false;
                give(&f, e, agx_view_of(reply, n));
                if (e->conn)
                        drop(&f, e);
                e = must_ask(&f);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, call, "v");
                finish(&f);
        }
}

static void test_idle_close_costs_nothing(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        one_call(&f);
        drop(&f, &f.ends[0]);
        work(&f);
        assert_null(agx_client_next_done(f.client));
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        finish(&f);
}

static void test_another_instance_is_never_asked_again(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        drop(&f, must_ask(&f));
        f.instance = "two";
        f.calls_asked = 0;
        work(&f);
        assert_fault(&f, call, "ResultUnavailable", "instance_changed");
        assert_int_equal(f.calls_asked, 0);
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        finish(&f);
}

static void test_losses_are_bounded(void **state)
{
        fixture f;
        agx_client_call *call;
        size_t asked_times = 0;

        (void)state;
        begin(&f);
        call = start(&f);
        for (int i = 0; i < 100; ++i) {
                end *e;

                work(&f);
                e = asked(&f);
                if (e) {
                        ++asked_times;
                        drop(&f, e);
                }
                pass(&f, 100);
        }
        assert_int_equal(asked_times, 4); /* once and three attempts */
        assert_unreachable(&f, call, "whether the call has run is unknown");
        finish(&f);
}

static void test_no_reconnection(void **state)
{
        agx_client_config config = config_of(NULL);
        fixture f;
        agx_client_call *call;

        (void)state;
        config.reconnect = false;
        begin_with(&f, &config);
        call = start(&f);
        drop(&f, must_ask(&f));
        assert_unreachable(&f, call, "closed");
        finish(&f);
}

static void test_first_connect_fails_at_once(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        assert_unreachable(&f, call, "refused");
        f.refuse_open = NULL;
        one_call(&f);
        finish(&f);
}

static void test_reconnects_with_growing_pauses(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        one_call(&f);
        drop(&f, &f.ends[0]);
        work(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        pass(&f, 99); /* 100, 200, 400 */
        assert_null(agx_client_next_done(f.client));
        pass(&f, 1);
        pass(&f, 200);
        f.refuse_open = NULL;
        pass(&f, 399);
        assert_null(asked(&f));
        pass(&f, 1);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");

        drop(&f, &f.ends[1]);
        work(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        for (int i = 0; i < 8; ++i)
                pass(&f, 100);
        assert_unreachable(&f, call, "refused");
        finish(&f);
}

/* Several connections that fail are one failure, however many calls wait. */
static void test_many_calls_and_no_server(void **state)
{
        enum { N = 50 };
        fixture f;

        (void)state;
        begin(&f);
        for (int i = 0; i < N; ++i)
                start(&f);
        work(&f);
        for (size_t i = 0; i < f.n_ends; ++i)
                drop(&f, &f.ends[i]);
        f.refuse_open = "Connection refused";
        work(&f);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 100);
        pass(&f, 200);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 400);
        for (int i = 0; i < N; ++i) {
                agx_client_call *call = agx_client_next_done(f.client);

                assert_non_null(call);
                assert_int_equal(agx_client_call_result(call)->outcome, AGX_CLIENT_UNREACHABLE);
                agx_client_call_free(f.client, call, f.now);
        }
        finish(&f);
}

/* No more descriptors: the calls share the connections there are. */
static void test_connections_that_cannot_be_opened_beside_one_that_is(void **state)
{
        fixture f;
        agx_client_call *calls[3];

        (void)state;
        begin(&f);
        one_call(&f);
        f.refuse_open = "Too many open files";
        for (int i = 0; i < 3; ++i)
                calls[i] = start(&f);
        for (int i = 0; i < 3; ++i) {
                answer_value(&f, must_ask(&f), AGX_VIEW("v"));
                assert_value(&f, calls[i], "v");
        }
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

/* ---- long calls ---- */

static void test_accepted_is_polled(void **state)
{
        fixture f;
        agx_client_call *call;
        uint64_t longest = 0;
        char id[64];

        (void)state;
        begin(&f);
        call = start(&f);
        answer_accepted(&f, must_ask(&f));
        memcpy(id, f.ends[0].call_id, sizeof(id));
        for (int i = 0; i < 20; ++i) {
                uint64_t pause = 0;

                while (!asked(&f)) {
                        uint64_t due = agx_client_timer(f.client);

                        assert_true(due > f.now && due < f.now + 1000);
                        pause += due - f.now;
                        pass(&f, due - f.now);
                }
                assert_string_equal(asked(&f)->call_id, id);
                assert_int_equal(asked(&f)->arguments, 0); /* it has them */
                assert_true(pause >= 20 && pause <= 500);
                longest = pause > longest ? pause : longest;
                answer_accepted(&f, asked(&f));
        }
        assert_int_equal(longest, 500);
        pass(&f, 500);
        answer_value(&f, must_ask(&f), AGX_VIEW("late"));
        assert_value(&f, call, "late");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_silence_is_a_loss(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        must_ask(&f);
        pass(&f, 999);
        assert_int_equal(f.n_ends, 1);
        pass(&f, 1);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 2);
        finish(&f);
}

static void test_never_seen_is_sent_again_and_dropped_is_not(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("ResultUnavailable"),
                           .message = AGX_VIEW("?"),
                           .reason = AGX_VIEW("never_seen")};
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer_fault(&f, must_ask(&f), &fault);
        pass(&f, 20);
        fault.reason = AGX_VIEW("dropped");
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "ResultUnavailable", "dropped");

        fault.reason = AGX_VIEW("never_seen"); /* a server that never says anything else */
        call = start(&f);
        for (int i = 0; i < AGX_CLIENT_REASKS_MAX; ++i) {
                answer_fault(&f, must_ask(&f), &fault);
                pass(&f, 20);
        }
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "ResultUnavailable", "never_seen");
        finish(&f);
}

/* ---- deadlines and abandoning ---- */

static void test_deadline(void **state)
{
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        f.auto_health = false;
        call = start_with(&f, AGX_VIEW("a"), 50);
        work(&f);
        pass(&f, 500); /* the clock does not run before there is a connection */
        assert_null(agx_client_next_done(f.client));
        answer_health(&f, &f.ends[0]);
        e = must_ask(&f);
        pass(&f, 49);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 1);
        assert_int_equal(ended(&f, call)->outcome, AGX_CLIENT_DEADLINE);
        agx_client_call_free(f.client, call, f.now);

        answer_value(&f, e, AGX_VIEW("late")); /* heard out, acknowledged, and the connection is used again */
        assert_null(agx_client_next_done(f.client));
        call = start(&f);
        e = must_ask(&f);
        assert_string_equal(e->acks, "000102030405060708090a0b0c0d0e0f-1 ");
        answer_value(&f, e, AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_abandoned_before_it_was_sent(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.calls_asked, 0);

        call = start(&f); /* given to the idle connection, nothing written */
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.calls_asked, 0);
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_abandoned_half_sent(void **state)
{
        fixture f;
        agx_client_call *call;
        agx_client_wish wish;
        agx_view segments[2];

        (void)state;
        begin(&f);
        one_call(&f);
        call = start(&f);
        wish = agx_client_next_wish(f.client);
        assert_int_equal(wish.kind, AGX_CLIENT_WISH_WRITE);
        agx_client_conn_pending(wish.conn, segments);
        agx_client_conn_sent(wish.conn, segments[0].n - 1);
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_abandoned_reply_may_not_be_large(void **state)
{
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        agx_client_call_free(f.client, call, f.now);
        give(&f, e, AGX_VIEW("HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\nxx"));
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

/* ---- hostile servers ---- */

static void test_garbage_ends_in_unreachable(void **state)
{
        static const char *const replies[] = {
                "garbage\r\n\r\n",
                "HTTP/2.0 200 OK\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xc1",
                "HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
                "HTTP/1.1 204 No Content\r\n\r\n",
                "HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 202 Accepted\r\nContent-Length: 1\r\n\r\n\x80",
                ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                 "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                 "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"),
        };

        (void)state;
        for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); ++i) {
                fixture f;
                agx_client_call *call;

                begin(&f);
                call = start(&f);
                for (int turn = 0; turn < 50; ++turn) {
                        end *e;

                        work(&f);
                        e = asked(&f);
                        if (e) {
                                e->asked = false;
                                give(&f, e, agx_view_str(replies[i]));
                                if (e->conn)
                                        drop(&f, e);
                        }
                        pass(&f, 100);
                }
                assert_unreachable(&f, call, "");
                assert_true(f.calls_asked <= 4);
                finish(&f);
        }
}

static void test_bad_health_ends_in_unreachable(void **state)
{
        static const char *const bodies[] = {
                "",
                "[]",
                "{}",
                "{\"status\": \"ok\", \"version\": \"1\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\\u0041\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\"} x",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\", \"instance\": \"a\"}",
                "{\"status\": \"ok\", \"version\": 1, \"instance\": \"a\"}"};

        (void)state;
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i) {
                fixture f;
                agx_client_call *call;

                begin(&f);
                f.auto_health = false;
                call = start(&f);
                work(&f);
                answer(&f, &f.ends[0], "200 OK", agx_view_str(bodies[i]));
                work(&f);
                assert_unreachable(&f, call, "not an Agentix runtime");
                finish(&f);
        }
}

static void test_health_that_closes_does_not_loop(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        f.auto_health = false;
        call = start(&f);
        work(&f);
        answer(&f, &f.ends[0], "200 OK\r\nConnection: close",
               AGX_VIEW("{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\"}"));
        work(&f);
        assert_unreachable(&f, call, "closes");
        finish(&f);
}

static void test_unasked_bytes_close_the_connection(void **state)
{
        fixture f;

        (void)state;
        begin(&f);
        one_call(&f);
        give(&f, &f.ends[0], AGX_VIEW("HTTP/1.1 200 OK\r\n\r\n"));
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

/* A second reply behind the first must not answer the next call. */
static void test_two_replies_to_one_request(void **state)
{
        const char *twice = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n\x82\xa2ok\xc3\xa5value\xc4\x00"
                            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n\x82\xa2ok\xc3\xa5value\xc4";
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        e->asked = false;
        give(&f, e, agx_view_of(twice, 39 + 13 + 20));
        assert_value(&f, call, "");
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_dropped_reply_is_asked_again_under_its_id),
                cmocka_unit_test(test_reply_cut_anywhere),
                cmocka_unit_test(test_idle_close_costs_nothing),
                cmocka_unit_test(test_another_instance_is_never_asked_again),
                cmocka_unit_test(test_losses_are_bounded),
                cmocka_unit_test(test_no_reconnection),
                cmocka_unit_test(test_first_connect_fails_at_once),
                cmocka_unit_test(test_reconnects_with_growing_pauses),
                cmocka_unit_test(test_many_calls_and_no_server),
                cmocka_unit_test(test_connections_that_cannot_be_opened_beside_one_that_is),
                cmocka_unit_test(test_accepted_is_polled),
                cmocka_unit_test(test_silence_is_a_loss),
                cmocka_unit_test(test_never_seen_is_sent_again_and_dropped_is_not),
                cmocka_unit_test(test_deadline),
                cmocka_unit_test(test_abandoned_before_it_was_sent),
                cmocka_unit_test(test_abandoned_half_sent),
                cmocka_unit_test(test_abandoned_reply_may_not_be_large),
                cmocka_unit_test(test_garbage_ends_in_unreachable),
                cmocka_unit_test(test_bad_health_ends_in_unreachable),
                cmocka_unit_test(test_health_that_closes_does_not_loop),
                cmocka_unit_test(test_unasked_bytes_close_the_connection),
                cmocka_unit_test(test_two_replies_to_one_request),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
