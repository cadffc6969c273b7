/* The client session on two roads, against a whole scripted server: what is sent where, and what survives which loss. */
#include "peer.h"

static const agx_client_result *done(server *s, agx_client_call *call)
{
        settle(s);
        return ended(&s->f, call);
}

static void assert_is_value(server *s, agx_client_call *call, const char *value)
{
        settle(s);
        assert_value(&s->f, call, value);
}

static agx_client_call *call_with(server *s, const char *argument)
{
        return start_with(&s->f, agx_view_str(argument), UINT64_MAX);
}

static void cut_link(server *s)
{
        assert_non_null(link_of(s));
        drop(&s->f, link_of(s));
}

/* ---- which road ---- */

static void test_short_call_needs_no_link(void **state)
{
        agx_client_config config = link_config(250);
        server s;

        (void)state;
        open_server(&s, &config);
        s.at_once = true;
        assert_is_value(&s, call_with(&s, "one"), "one");
        assert_string_equal(s.f.ends[0].prefer, "respond-async, wait=0.25");
        assert_is_value(&s, call_with(&s, "two"), "two");
        assert_int_equal(s.f.n_ends, 1);
        assert_int_equal(s.links, 0);
        close_server(&s);
}

static void test_long_call_is_awaited_on_the_link(void **state)
{
        for (size_t cut = 0; cut < 3; ++cut) {
                agx_client_config config = link_config(250);
                agx_client_call *call;
                server s;

                (void)state;
                open_server(&s, &config);
                s.f.cut = cut;
                call = call_with(&s, "one");
                settle(&s);
                assert_int_equal(s.links, 1);
                assert_string_equal(s.link->target, "/socket.io/?EIO=4&transport=websocket");
                assert_int_equal(s.resumed, 1);
                assert_null(agx_client_next_done(s.f.client));
                end_call(&s, &s.calls[0]);
                assert_is_value(&s, call, "one");
                settle(&s);
                assert_int_equal(s.acked, 1);
                assert_true(s.calls[0].gone);

                call = call_with(&s, "two"); /* the link is there: it is not even asked */
                settle(&s);
                assert_int_equal(s.links, 1);
                assert_int_equal(s.resumed, 1);
                end_call(&s, &s.calls[1]);
                assert_is_value(&s, call, "two");
                assert_int_equal(s.calls_sent, 0);
                close_server(&s);
        }
}

static void test_without_http_everything_goes_over_the_link(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        server s;

        (void)state;
        open_server(&s, &config);
        s.at_once = true;
        for (int i = 0; i < 5; ++i)
                assert_is_value(&s, call_with(&s, "x"), "x");
        assert_int_equal(s.f.calls_asked, 0);
        assert_int_equal(s.calls_sent, 5);
        assert_int_equal(s.f.n_ends, 1);
        settle(&s);
        assert_int_equal(s.acked, 5);
        close_server(&s);
}

static void test_token_goes_with_the_link_after_the_proof(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        config.token = AGX_VIEW("secret");
        open_server(&s, &config);
        s.f.token = "secret";
        s.f.prove = true;
        s.at_once = true;
        assert_is_value(&s, call_with(&s, "x"), "x");
        assert_int_equal(s.f.health_asked, 1);
        assert_true(s.f.ends[0].token);
        close_server(&s);

        open_server(&s, &config); /* a squatter */
        call = call_with(&s, "x");
        settle(&s);
        assert_unreachable(&s.f, call, "did not prove");
        assert_false(s.f.ends[0].wrote_token);
        close_server(&s);
}

static void test_no_socketio_is_asked_by_post(void **state)
{
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *call;
                server s;

                (void)state;
                open_server(&s, &config);
                s.no_link = true;
                call = call_with(&s, "x");
                settle(&s);
                end_call(&s, &s.calls[0]);
                let_pass(&s, 20);
                assert_is_value(&s, call, "x");
                s.at_once = true;
                assert_is_value(&s, call_with(&s, "y"), "y");
                assert_int_equal(s.links, 0);
                assert_int_equal(s.calls[0].runs, 1);
                close_server(&s);
        }
}

static void test_failing_posts_fall_back_to_the_link(void **state)
{
        static const unsigned statuses[] = {500, 503, 404, 405, 400};

        (void)state;
        for (size_t i = 0; i < 4; ++i) {
                agx_client_config config = link_config(100);
                server s;

                open_server(&s, &config);
                s.no_post = statuses[i];
                s.at_once = true;
                assert_is_value(&s, call_with(&s, "x"), "x");
                assert_int_equal(s.calls_sent, 1);
                close_server(&s);
        }
}

static void test_neither_road(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        s.no_post = 404;
        s.no_link = true;
        call = call_with(&s, "x");
        settle(&s);
        assert_unreachable(&s.f, call, "404");
        s.no_post = 401;
        call = call_with(&s, "x");
        settle(&s);
        assert_unreachable(&s.f, call, "401");
        close_server(&s);
}

/* ---- losses ---- */

static void test_result_survives_a_lost_link(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *calls[3];
        server s;

        (void)state;
        open_server(&s, &config);
        for (int i = 0; i < 3; ++i)
                calls[i] = call_with(&s, "x");
        settle(&s);
        cut_link(&s);
        end_call(&s, &s.calls[0]);
        settle(&s);
        assert_int_equal(s.links, 2);
        assert_int_equal(s.resumed, 3);
        assert_is_value(&s, calls[0], "x");
        end_call(&s, &s.calls[2]);
        assert_is_value(&s, calls[2], "x");
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, calls[1], "x");
        assert_int_equal(s.n_calls, 3);
        close_server(&s);
}

/* What was acknowledged on a link that was lost is acknowledged again on the next one. */
static void test_lost_acks_are_said_again(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call, *other;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        other = call_with(&s, "y");
        settle(&s);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        settle(&s);
        assert_true(s.calls[0].gone);
        s.calls[0].gone = false; /* as if the event had been lost with the link */
        s.calls[0].kept = true;
        cut_link(&s);
        settle(&s);
        assert_int_equal(s.links, 2);
        assert_true(s.calls[0].gone);
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, other, "y");
        close_server(&s);
}

/* The acknowledgements of a POST that was lost are not lost with it. */
static void test_acks_of_a_lost_post(void **state)
{
        agx_client_config config = link_config(1000);
        agx_client_call *call;
        server s;
        end *e;

        (void)state;
        config.link = false;
        open_server(&s, &config);
        s.at_once = true;
        call = call_with(&s, "x");
        assert_is_value(&s, call, "x");
        call = call_with(&s, "y");
        e = must_ask(&s.f);
        assert_int_equal(e->n_acks, 1);
        drop(&s.f, e);
        e = must_ask(&s.f); /* its second POST carries them again */
        assert_int_equal(e->n_acks, 1);
        assert_string_equal(e->acks, "000102030405060708090a0b0c0d0e0f-1 ");
        assert_is_value(&s, call, "y");
        assert_int_equal(agx_client_count(s.f.client).acks, 1); /* that of y */
        close_server(&s);
}

static void test_lost_post_is_resumed(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x"); /* its request is lost */
        drop(&s.f, must_ask(&s.f));
        settle(&s);
        assert_int_equal(s.n_calls, 1); /* never_seen, sent again */
        assert_int_equal(s.calls_sent, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");

        s.hold = true;
        call = call_with(&s, "y"); /* its reply is lost */
        settle(&s);
        drop(&s.f, s.calls[1].post);
        settle(&s);
        assert_int_equal(s.calls_sent, 1);
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, call, "y");
        close_server(&s);
}

/* A question for its health that is lost is asked again: the link cannot answer it. */
static void test_lost_health_is_asked_again(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *call;
        bool dropped = false;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");

        s.f.auto_health = false;
        assert_int_equal(agx_client_ask_health(s.f.client, NULL, s.f.now, &call), 0);
        work(&s.f);
        for (size_t i = 0; i < s.f.n_ends && !dropped; ++i) {
                dropped = s.f.ends[i].conn && s.f.ends[i].health && s.f.ends[i].asked;
                if (dropped)
                        drop(&s.f, &s.f.ends[i]);
        }
        assert_true(dropped);
        s.f.auto_health = true;
        assert_int_equal(done(&s, call)->outcome, AGX_CLIENT_HEALTH);
        agx_client_call_free(s.f.client, call, s.f.now);
        close_server(&s);
}

static void test_dropped_and_other_instances(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        cut_link(&s);
        s.calls[0].running = false;
        s.calls[0].gone = true;
        settle(&s);
        assert_fault(&s.f, call, "ResultUnavailable", "dropped");

        call = call_with(&s, "y");
        settle(&s);
        cut_link(&s);
        s.f.instance = "two";
        s.n_calls = 0;
        settle(&s);
        assert_fault(&s.f, call, "ResultUnavailable", "instance_changed");
        assert_int_equal(s.n_calls, 0);
        s.at_once = true;
        assert_is_value(&s, call_with(&s, "z"), "z");
        close_server(&s);
}

static void test_no_reconnection_fails_all(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *calls[2];
        server s;

        (void)state;
        config.reconnect = false;
        open_server(&s, &config);
        for (int i = 0; i < 2; ++i)
                calls[i] = call_with(&s, "x");
        settle(&s);
        cut_link(&s);
        settle(&s);
        for (int i = 0; i < 2; ++i)
                assert_unreachable(&s.f, calls[i], "lost");
        assert_int_equal(s.links, 1);
        s.at_once = true;
        assert_is_value(&s, call_with(&s, "y"), "y");
        close_server(&s);
}

static void test_attempts_are_bounded_and_pauses_grow(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        cut_link(&s);
        s.f.refuse_open = "Connection refused";
        settle(&s); /* at once, then after 200 and 400 */
        let_pass(&s, 199);
        assert_null(agx_client_next_done(s.f.client));
        let_pass(&s, 1);
        let_pass(&s, 399);
        assert_null(agx_client_next_done(s.f.client));
        let_pass(&s, 1);
        assert_unreachable(&s.f, call, "refused");
        assert_true(agx_client_timer(s.f.client) == UINT64_MAX);

        s.f.refuse_open = NULL;
        call = call_with(&s, "y");
        settle(&s);
        cut_link(&s);
        s.f.refuse_open = "Connection refused";
        settle(&s);
        s.f.refuse_open = NULL;
        let_pass(&s, 200);
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, call, "y");
        close_server(&s);
}

/* Side channels alone give a link up after some failures, unless they need it; and a server that is there again has one. */
static void test_a_link_that_is_needed_comes_back(void **state)
{
        for (int needed = 0; needed < 2; ++needed) {
                agx_client_config config = link_config(UINT64_MAX);
                server s;
                int links;

                (void)state;
                open_server(&s, &config); /* two attempts */
                assert_int_equal(agx_client_join(s.f.client, AGX_VIEW("/x"), false, s.f.now), 0);
                s.at_once = true;
                assert_is_value(&s, call_with(&s, "x"), "x");
                agx_client_need_link(s.f.client, needed, s.f.now);
                links = (int)s.links;
                cut_link(&s);
                s.f.refuse_open = "Connection refused";
                for (int i = 0; i < 100; ++i)
                        let_pass(&s, 1000);
                s.f.refuse_open = NULL;
                let_pass(&s, 2 * AGX_CLIENT_SIDE_REST_MS);
                assert_int_equal((int)s.links - links, needed);
                agx_client_need_link(s.f.client, false, s.f.now);
                if (needed)
                        cut_link(&s);
                s.f.refuse_open = "Connection refused";
                for (int i = 0; i < 100; ++i)
                        let_pass(&s, 1000);
                assert_true(agx_client_timer(s.f.client) == UINT64_MAX);
                close_server(&s);
        }
}

static void test_first_link_that_cannot_be_opened(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        s.f.refuse_open = "Connection refused";
        call = call_with(&s, "x");
        settle(&s);
        assert_unreachable(&s.f, call, "refused");
        close_server(&s);
}

static void test_silence_while_joining(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        s.no_auto = true;
        call = call_with(&s, "x");
        settle(&s);
        let_pass(&s, AGX_CLIENT_OPEN_MS);
        s.no_auto = false;
        let_pass(&s, 100);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        close_server(&s);
}

static void test_silent_link_ends_after_its_heartbeat(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        assert_true(agx_client_timer(s.f.client) == s.f.now + 325000);
        let_pass(&s, 325000);
        assert_int_equal(s.links, 2);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        close_server(&s);
}

/* ---- cancelling ---- */

static void test_abandoned_call_is_cancelled(void **state)
{
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                server s;

                (void)state;
                open_server(&s, &config);
                s.hold = true;
                call_with(&s, "other");
                agx_client_call *call = call_with(&s, "x");
                settle(&s);
                assert_int_equal(s.n_calls, 2);
                agx_client_call_free(s.f.client, call, s.f.now);
                settle(&s);
                assert_true(s.calls[1].cancelled && !s.calls[0].cancelled);
                settle(&s);
                assert_true(s.calls[1].gone); /* acknowledged, though nobody waits */
                assert_int_equal(agx_client_count(s.f.client).cancels, 0);
                end_call(&s, &s.calls[0]);
                settle(&s);
                assert_non_null(call = agx_client_next_done(s.f.client));
                agx_client_call_free(s.f.client, call, s.f.now);
                close_server(&s);
        }
}

/* The cancel overtakes the POST: it is said again once that is answered. */
static void test_cancel_that_overtakes(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *first, *call;
        server s;

        (void)state;
        open_server(&s, &config);
        first = call_with(&s, "long");
        settle(&s); /* there is a link now */
        call = call_with(&s, "x");
        work(&s.f); /* written, and not looked at by the server */
        agx_client_call_free(s.f.client, call, s.f.now);
        work(&s.f);
        assert_int_equal(s.n_calls, 1);
        settle(&s);
        assert_int_equal(s.n_calls, 2);
        assert_true(s.calls[1].cancelled);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, first, "long");
        close_server(&s);
}

/* No link can be had for long: the cancel waits, and goes out once the server is heard of again. */
static void test_cancel_survives_an_outage(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *call;
        server s;

        (void)state;
        config.attempts = 0;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        assert_int_equal(s.n_calls, 1);
        s.f.refuse_open = "refused";
        cut_link(&s);
        agx_client_call_free(s.f.client, call, s.f.now);
        for (int i = 0; i < 100; ++i)
                let_pass(&s, 1000);
        assert_int_equal(agx_client_timer(s.f.client), UINT64_MAX); /* an idle client does not ask for ever */
        assert_int_equal(agx_client_count(s.f.client).cancels, 1);
        s.f.refuse_open = NULL;
        s.at_once = true;
        call = call_with(&s, "y");
        assert_is_value(&s, call, "y");
        settle(&s);
        assert_true(s.calls[0].cancelled);
        assert_int_equal(agx_client_count(s.f.client).cancels, 0);
        close_server(&s);
}

/* The server was restarted, and nobody has told the old link. */
static void test_link_with_an_earlier_instance(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *old, *call;
        server s;

        (void)state;
        open_server(&s, &config);
        old = call_with(&s, "old");
        settle(&s);
        assert_int_equal(s.links, 1);
        s.instance = 1;
        s.f.instance = "two";
        s.link = NULL; /* it stays open, and nobody is there */
        for (size_t i = 0; i < s.f.n_ends; ++i)
                if (s.f.ends[i].conn && !s.f.ends[i].peer)
                        drop(&s.f, &s.f.ends[i]);
        work(&s.f);
        call = call_with(&s, "x");
        settle(&s);
        agx_client_call_free(s.f.client, call, s.f.now);
        settle(&s);
        let_pass(&s, 1000);
        assert_int_equal(s.links, 2);
        assert_int_equal(s.n_calls, 2);
        assert_true(s.calls[1].cancelled);
        assert_fault(&s.f, old, "ResultUnavailable", "instance_changed");
        close_server(&s);
}

/* The cancel overtakes the POST, whose reply is never heard: the cancel is said again all the same. */
static void test_cancel_of_a_post_that_is_given_up(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *first, *call;
        server s;

        (void)state;
        open_server(&s, &config);
        first = call_with(&s, "long");
        settle(&s); /* there is a link now */
        s.hold = true;
        call = call_with(&s, "x");
        work(&s.f); /* written, and not looked at by the server */
        agx_client_call_free(s.f.client, call, s.f.now);
        work(&s.f);
        settle(&s);
        assert_int_equal(s.n_calls, 2);
        s.calls[1].cancelled = false; /* as if the POST had come after the cancel */
        s.calls[1].running = true;
        s.calls[1].post = NULL;
        s.calls[1].cancels = 0;
        for (size_t i = 0; i < s.f.n_ends; ++i)
                s.f.ends[i].asked = false; /* its reply does not come */
        let_pass(&s, config.timeout_ms + 1);
        assert_int_equal(s.calls[1].cancels, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, first, "long");
        close_server(&s);
}

static void test_call_never_sent_is_taken_back(void **state)
{
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *call;
                server s;

                (void)state;
                open_server(&s, &config);
                call = call_with(&s, "x");
                agx_client_call_free(s.f.client, call, s.f.now);
                settle(&s);
                let_pass(&s, 1000);
                assert_int_equal(s.n_calls, 0);
                close_server(&s);
        }
}

static void test_deadline_cancels(void **state)
{
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *call;
                server s;

                (void)state;
                open_server(&s, &config);
                call = start_with(&s.f, AGX_VIEW("x"), 500);
                settle(&s);
                let_pass(&s, 499);
                assert_null(agx_client_next_done(s.f.client));
                pass(&s.f, 1);
                assert_true(s.calls[0].cancelled); /* before the outcome is taken */
                assert_int_equal(done(&s, call)->outcome, AGX_CLIENT_DEADLINE);
                agx_client_call_free(s.f.client, call, s.f.now);
                settle(&s);
                close_server(&s);
        }
}

/* Its arguments are still being sent from where they lie: the link goes, and the others live. */
static void test_abandoned_while_it_is_sent(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *other, *call;
        char *large = calloc(1, 3 << 20);
        agx_client_wish wish;
        agx_view segments[2];
        server s;

        (void)state;
        assert_non_null(large);
        memset(large, 'a', (3 << 20) - 1);
        open_server(&s, &config);
        other = call_with(&s, "x");
        settle(&s);
        call = call_with(&s, large);
        wish = agx_client_next_wish(s.f.client);
        assert_int_equal(wish.kind, AGX_CLIENT_WISH_WRITE);
        agx_client_conn_pending(wish.conn, segments);
        agx_client_conn_sent(wish.conn, segments[0].n / 2);
        agx_client_call_free(s.f.client, call, s.f.now);
        memset(large, 'b', 3 << 20);
        free(large);
        settle(&s);
        assert_int_equal(s.links, 2);
        assert_int_equal(s.n_calls, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, other, "x");
        close_server(&s);
}

static void test_large_arguments_and_values(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        size_t n = 5 << 20;
        char *large = calloc(1, n + 1);
        agx_rpc_event event = {.kind = AGX_RPC_RESULT, .call_id = AGX_VIEW("000102030405060708090a0b0c0d0e0f-1")};
        const agx_client_result *result;
        agx_client_call *call;
        server s;

        (void)state;
        assert_non_null(large);
        memset(large, 'a', n);
        open_server(&s, &config);
        call = call_with(&s, large);
        settle(&s);
        assert_int_equal(s.n_calls, 1);
        event.value = agx_view_of(large, n);
        emit_rpc(&s, link_of(&s), &event);
        result = done(&s, call);
        assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
        assert_true(agx_view_eq(result->value, event.value));
        agx_client_call_free(s.f.client, call, s.f.now);
        close_server(&s);
        free(large);
}

/* A link lost in the middle of arguments: nobody has seen them, so they are sent again without a question. */
static void test_lost_while_it_is_sent(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        size_t n = 3 << 20;
        char *large = calloc(1, n + 1);
        agx_client_call *call;
        server s;

        (void)state;
        assert_non_null(large);
        memset(large, 'a', n);
        open_server(&s, &config);
        s.at_once = true;
        s.f.budget = 1 << 20;
        call = call_with(&s, large);
        settle(&s);
        assert_int_equal(s.links, 2);
        assert_int_equal(s.resumed, 0);
        assert_is_value(&s, call, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        assert_int_equal(s.n_calls, 1);
        close_server(&s);
        free(large);
}

/* ---- races ---- */

/* The result comes over the link while the POST has not been answered. */
static void test_result_overtakes_the_202(void **state)
{
        agx_client_config config = link_config(100);
        agx_client_call *first, *call;
        server s;
        end *post;

        (void)state;
        open_server(&s, &config);
        first = call_with(&s, "long");
        settle(&s);
        s.hold = true;
        call = call_with(&s, "x");
        settle(&s);
        post = s.calls[1].post;
        s.calls[1].post = NULL;
        post->asked = false; /* serve() must not look at it */
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, call, "x");
        answer_accepted(&s.f, post);
        settle(&s);
        assert_true(s.calls[1].gone);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, first, "long");
        close_server(&s);
}

static void test_lost_with_every_link(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        config.attempts = 0;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        for (int i = 0; i < 3 * AGX_CLIENT_REASKS_MAX; ++i) {
                cut_link(&s);
                s.n_calls = 0; /* it came to the server and was lost there, with the link */
                for (int turns = 0; turns < 100 && !s.n_calls; ++turns)
                        let_pass(&s, 1000);
                assert_int_equal(s.n_calls, 1);
        }
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        close_server(&s);
}

static void test_never_seen_for_ever(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        for (int i = 0; i <= AGX_CLIENT_REASKS_MAX; ++i) {
                unavailable(&s, AGX_VIEW("000102030405060708090a0b0c0d0e0f-1"), "never_seen");
                settle(&s);
        }
        assert_fault(&s.f, call, "ResultUnavailable", "never_seen");
        close_server(&s);
}

/* ---- no room ---- */

static void test_refused_calls_are_sent_again(void **state)
{
        static const char *const arguments[] = {"a", "b", "c", "d", "e", "f"};

        (void)state;
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *calls[6];
                server s;

                open_server(&s, &config);
                s.at_once = true;
                s.refusals = 9;
                for (int i = 0; i < 6; ++i)
                        calls[i] = call_with(&s, arguments[i]);
                settle(&s);
                assert_int_equal(s.refused, 6);
                assert_int_equal(agx_client_count(s.f.client).pausing, 6);
                assert_null(agx_client_next_done(s.f.client));
                for (int turn = 0; turn < 200 && s.n_calls < 6; ++turn)
                        let_pass(&s, 10);
                assert_int_equal(s.refused, 9);
                settle(&s);
                for (int i = 0; i < 6; ++i) { /* each under its own id; on one connection in their order, too */
                        const char *number = strrchr(s.calls[i].id, '-') + 1;

                        assert_int_equal(number[0] - '1', s.calls[i].argument[0] - 'a');
                        assert_true(sync || number[0] == '1' + i);
                }
                for (size_t n = 0; n < 6; ++n) {
                        agx_client_call *call = agx_client_next_done(s.f.client);
                        size_t i = 0;

                        for (assert_non_null(call); calls[i] != call; ++i)
                                assert_true(i < 5);
                        assert_int_equal(agx_client_call_result(call)->outcome, AGX_CLIENT_VALUE);
                        assert_true(agx_view_eq(agx_client_call_result(call)->value, agx_view_str(arguments[i])));
                        agx_client_call_free(s.f.client, call, s.f.now);
                }
                assert_int_equal(agx_client_count(s.f.client).pausing, 0);
                close_server(&s);
        }
}

/* The pauses double up to a bound, one call at a time asks, and the first that is taken lets the others follow at once. */
static void test_a_full_server_is_asked_less_and_less(void **state)
{
        agx_client_config config = link_config(100);
        size_t before = 0, most = 0;
        server s;

        (void)state;
        open_server(&s, &config);
        s.at_once = true;
        s.refusals = SIZE_MAX;
        for (int i = 0; i < 40; ++i)
                start_with(&s.f, AGX_VIEW("x"), UINT64_MAX);
        settle(&s);
        before = s.refused;
        for (int second = 0; second < 60; ++second) {
                size_t at = s.refused;

                for (int i = 0; i < 100; ++i)
                        let_pass(&s, 10);
                most = s.refused - at > most ? s.refused - at : most;
        }
        assert_in_range(before, 40, 40);
        assert_in_range(most, 3, 8);                 /* in its first second */
        assert_in_range(s.refused - before, 58, 68); /* about one in each other */
        s.refusals = 0;
        for (int i = 0; i < 110; ++i)
                let_pass(&s, 10);
        assert_int_equal(s.n_calls, 40);
        close_server(&s);
}

static void test_a_refused_call_may_be_given_up(void **state)
{
        (void)state;
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *late, *left;
                server s;

                open_server(&s, &config);
                s.refusals = SIZE_MAX;
                late = start_with(&s.f, AGX_VIEW("x"), 500);
                left = call_with(&s, "y");
                settle(&s);
                assert_int_equal(s.refused, 2);
                agx_client_call_free(s.f.client, left, s.f.now);
                for (int i = 0; i < 50; ++i)
                        let_pass(&s, 10);
                assert_int_equal(done(&s, late)->outcome, AGX_CLIENT_DEADLINE);
                agx_client_call_free(s.f.client, late, s.f.now);
                s.refusals = 0;
                s.at_once = true;
                assert_is_value(&s, call_with(&s, "z"), "z");
                let_pass(&s, 5000);
                assert_int_equal(s.n_calls, 1);
                close_server(&s);
        }
}

static const char id_1[] = "000102030405060708090a0b0c0d0e0f-1";

static void restart(server *s)
{
        for (size_t i = 0; i < s->f.n_ends; ++i)
                if (s->f.ends[i].conn)
                        drop(&s->f, &s->f.ends[i]);
        s->instance = 1;
        s->f.instance = "two";
}

static void assert_says(server *s, agx_client_call *call, const char *type, const char *words)
{
        const agx_client_result *r;

        for (int i = 0; i < 50; ++i)
                let_pass(s, 100);
        r = ended(&s->f, call);
        if (type) {
                assert_true(agx_view_eq(r->fault.type, agx_view_str(type)));
                assert_non_null(memmem(r->fault.message.p, r->fault.message.n, words, strlen(words)));
        } else {
                assert_int_equal(r->outcome, AGX_CLIENT_UNREACHABLE);
                assert_non_null(strstr(r->why, words));
        }
        agx_client_call_free(s->f.client, call, s->f.now);
}

/* It waits here and nowhere else: what ends it says so. */
static void test_a_refused_call_has_not_run(void **state)
{
        (void)state;
        for (int sync = 0; sync < 2; ++sync) {
                agx_client_config config = link_config(sync ? 100 : UINT64_MAX);
                agx_client_call *call;
                server s;

                open_server(&s, &config);
                s.refusals = SIZE_MAX;
                call = call_with(&s, "x");
                settle(&s);
                restart(&s);
                assert_says(&s, call, "ResultUnavailable", "which has not run");
                call = call_with(&s, "y");
                settle(&s);
                agx_client_shutdown(s.f.client, "the client was closed", s.f.now);
                assert_says(&s, call, NULL, "the client was closed; the call has not run");
                assert_int_equal(s.n_calls, 0);
                close_server(&s);
        }
}

/* An earlier sending went down with its connection: nobody knows what will become of it. */
static void lose_and_refuse(server *s)
{
        s->no_auto = false;
        work(&s->f);
        drop(&s->f, must_ask(&s->f));
        s->refusals = SIZE_MAX;
        settle(s);
        assert_true(s->refused > 0);
}

static void test_a_refused_call_of_which_more_is_under_way(void **state)
{
        (void)state;
        for (int link = 0; link < 2; ++link) {
                agx_client_config config = link_config(100);
                agx_client_call *call;
                server s;

                config.link = link;
                open_server(&s, &config);
                call = call_with(&s, "x");
                lose_and_refuse(&s);
                agx_client_shutdown(s.f.client, "the client was closed", s.f.now);
                assert_says(&s, call, NULL, "whether the call has run is unknown");
                s.refusals = 0;
                s.at_once = true;
                assert_is_value(&s, call_with(&s, "y"), "y");
                s.at_once = false;
                call = call_with(&s, "z");
                lose_and_refuse(&s);
                restart(&s);
                assert_says(&s, call, "ResultUnavailable", "whether it has run is unknown");
                close_server(&s);
        }
}

/* What was delayed comes after the no, and is taken: the same id, so it runs once, and its value is the call's. */
static void test_a_delayed_call_is_taken_after_a_refusal(void **state)
{
        (void)state;
        for (int link = 0; link < 2; ++link) {
                agx_client_config config = link_config(100);
                agx_client_call *call;
                server s;

                config.link = link;
                open_server(&s, &config);
                call = call_with(&s, "x");
                lose_and_refuse(&s);
                end_call(&s, begin_call(&s, agx_view_str(id_1), AGX_VIEW("x")));
                for (int i = 0; i < 50; ++i)
                        let_pass(&s, 100);
                assert_is_value(&s, call, "x");
                assert_int_equal(s.n_calls, 1);
                close_server(&s);
        }
}

/* Only the one reason allows it: what has begun may be as busy as it likes. */
static void test_other_busy_calls_fail(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        emit_fault(&s, link_of(&s), AGX_VIEW("000102030405060708090a0b0c0d0e0f-1"), "Busy", NULL);
        settle(&s);
        assert_fault(&s.f, call, "Busy", NULL);
        close_server(&s);
}

static void test_outcomes_of_strangers_are_passed_over(void **state)
{
        static const char *const ids[] = {"x",
                                          "000102030405060708090a0b0c0d0e0f-2",
                                          "000102030405060708090a0b0c0d0e0f-",
                                          "000102030405060708090a0b0c0d0e0f-01",
                                          "f00102030405060708090a0b0c0d0e0f-1",
                                          "000102030405060708090a0b0c0d0e0f-99999999999999999999999"};
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); ++i) {
                agx_rpc_event event = {.kind = AGX_RPC_RESULT, .call_id = agx_view_str(ids[i]), .value = AGX_VIEW("v")};

                emit_rpc(&s, link_of(&s), &event);
                emit(&s, link_of(&s), "other", AGX_VIEW("?"));
        }
        settle(&s);
        assert_null(agx_client_next_done(s.f.client));
        assert_int_equal(s.links, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        close_server(&s);
}

static void test_hostile_events_end_the_link_only(void **state)
{
        static const char *const raw[] = {
                "\x81\x0f"
                "451000000-/rpc,[", /* attachments without end */
                "\x81\x12"
                "450-/rpc,[\"a\",{}]xx", /* none, and bytes behind */
                "\x81\x1b"
                "451-/rpc,[\"a\",\"none here\"]x",
                "\x81\x02"
                "47", /* no such packet */
                "\x81\x01"
                "9", /* nor in Engine.IO */
                "\x81\x01"
                "0", /* a second opening */
                "\x81\x01"
                "1", /* goodbye */
                "\x82\x03"
                "abc", /* an attachment of nothing */
                "\x81\x08"
                "41/rpc,x",
                "\x81\x07"
                "41/rpc,",
                "\x81\x7f\x00\x00\x00\x00\xff\xff\xff\xff",
                "\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
                "\xc1\x00",
                "\x88\x02\x03\xe8",
        };

        (void)state;
        for (size_t i = 0; i < sizeof(raw) / sizeof(raw[0]); ++i) {
                static const size_t lengths[] = {17, 20, 29, 4, 3, 3, 3, 5, 10, 9, 10, 10, 2, 4};
                agx_client_config config = link_config(UINT64_MAX);
                agx_client_call *call;
                server s;

                open_server(&s, &config);
                call = call_with(&s, "x");
                settle(&s);
                give(&s.f, link_of(&s), agx_view_of(raw[i], lengths[i]));
                settle(&s);
                let_pass(&s, 1000);
                if (s.links != 2)
                        fail_msg("row %zu did not end the link", i);
                end_call(&s, &s.calls[0]);
                assert_is_value(&s, call, "x");
                close_server(&s);
        }
}

/* The value would lie in memory of the link's. */
static void test_outcome_of_two_attachments(void **state)
{
        static const char bytes[] = "\x82\xa7"
                                    "call_id\xd9\x22"
                                    "000102030405060708090a0b0c0d0e0f-1\xa5"
                                    "value\xc4\x01v";
        static const char text[] = "452-/rpc,[\"call:result\",{\"_placeholder\":true,\"num\":0},"
                                   "{\"_placeholder\":true,\"num\":1}]";
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        char frame[200];
        server s;

        (void)state;
        open_server(&s, &config);
        call = call_with(&s, "x");
        settle(&s);
        snprintf(frame, sizeof(frame), "\x81%c%s", (char)(sizeof(text) - 1), text);
        give(&s.f, link_of(&s), agx_view_str(frame));
        for (int i = 0; i < 2 && link_of(&s); ++i) {
                char head[2] = {(char)0x82, (char)(sizeof(bytes) - 1)};

                give(&s.f, link_of(&s), agx_view_of(head, sizeof(head)));
                give(&s.f, link_of(&s), agx_view_of(bytes, sizeof(bytes) - 1));
        }
        settle(&s);
        let_pass(&s, 1000);
        assert_int_equal(s.links, 2);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "x");
        close_server(&s);
}

/* ---- every cut ---- */

/* One value per call and one run at most, wherever a connection is cut; gives how many bytes the scenario takes. */
static void scenario(server *s, size_t budget, uint64_t sync)
{
        static const char *const arguments[] = {"a", "b", "c"};
        agx_client_config config = link_config(sync);
        agx_client_call *calls[3];
        size_t n_done = 0;

        open_server(s, &config);
        s->refusals = 2;
        s->f.budget = budget;
        for (int i = 0; i < 3; ++i)
                calls[i] = call_with(s, arguments[i]);
        for (int turn = 0; turn < 50 && n_done < 3; ++turn) {
                agx_client_call *call;

                settle(s);
                for (size_t i = 0; i < s->n_calls && turn > 1; ++i)
                        end_call(s, &s->calls[i]);
                settle(s);
                while ((call = agx_client_next_done(s->f.client))) {
                        const agx_client_result *result = agx_client_call_result(call);

                        ++n_done;
                        if (result->outcome == AGX_CLIENT_UNREACHABLE && !s->n_calls) {
                                agx_client_call_free(s->f.client, call, s->f.now);
                                continue; /* there never was a connection */
                        }
                        assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
                        for (int i = 0; i < 3; ++i)
                                if (calls[i] == call)
                                        assert_true(agx_view_eq(result->value, agx_view_str(arguments[i])));
                        agx_client_call_free(s->f.client, call, s->f.now);
                }
                let_pass(s, 100);
        }
        assert_int_equal(n_done, 3);
        assert_true(s->n_calls == 3 || !s->n_calls); /* the table would hold a second run as another row */
        for (size_t i = 0; i < s->n_calls; ++i)
                assert_int_equal(s->calls[i].runs, 1);
        assert_int_equal(agx_client_count(s->f.client).linked, 0);
}

static void test_cut_at_every_byte(void **state)
{
        (void)state;
        for (int road = 0; road < 2; ++road) {
                size_t budget = 0;
                bool cut;

                do {
                        server s;

                        scenario(&s, budget, road ? 100 : UINT64_MAX);
                        cut = s.f.budget == SIZE_MAX;
                        close_server(&s);
                        ++budget;
                        assert_true(budget < 20000);
                } while (cut || budget == 1);
                assert_true(budget > 500);
        }
}

/* ---- memory ---- */

static void test_any_allocation_may_fail(void **state)
{
        (void)state;
        for (int road = 0; road < 2; ++road) {
                size_t n = 0;
                bool failed;

                do {
                        agx_client_config config = link_config(road ? 100 : UINT64_MAX);
                        agx_client_call *call = NULL;
                        server s;

                        open_server(&s, &config);
                        s.refusals = 1;
                        agx_oom_arm(++n);
                        if (!agx_client_start(s.f.client, AGX_VIEW("m::f"), AGX_VIEW("x"), AGX_VIEW_NULL, UINT64_MAX,
                                              NULL, s.f.now, &call)) {
                                agx_client_call *ready = NULL;

                                for (int turn = 0; turn < 20 && !ready; ++turn) {
                                        let_pass(&s, 100);
                                        if (turn > 1 && s.n_calls)
                                                end_call(&s, &s.calls[0]);
                                        settle(&s);
                                        ready = agx_client_next_done(s.f.client);
                                }
                                assert_ptr_equal(ready, call);
                                agx_client_call_free(s.f.client, call, s.f.now);
                        }
                        failed = agx_oom_disarm();
                        close_server(&s);
                        assert_true(n < 5000);
                } while (failed);
                assert_true(n > 10);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_short_call_needs_no_link),
                cmocka_unit_test(test_long_call_is_awaited_on_the_link),
                cmocka_unit_test(test_without_http_everything_goes_over_the_link),
                cmocka_unit_test(test_token_goes_with_the_link_after_the_proof),
                cmocka_unit_test(test_no_socketio_is_asked_by_post),
                cmocka_unit_test(test_failing_posts_fall_back_to_the_link),
                cmocka_unit_test(test_neither_road),
                cmocka_unit_test(test_result_survives_a_lost_link),
                cmocka_unit_test(test_lost_acks_are_said_again),
                cmocka_unit_test(test_acks_of_a_lost_post),
                cmocka_unit_test(test_lost_post_is_resumed),
                cmocka_unit_test(test_lost_health_is_asked_again),
                cmocka_unit_test(test_dropped_and_other_instances),
                cmocka_unit_test(test_no_reconnection_fails_all),
                cmocka_unit_test(test_attempts_are_bounded_and_pauses_grow),
                cmocka_unit_test(test_a_link_that_is_needed_comes_back),
                cmocka_unit_test(test_first_link_that_cannot_be_opened),
                cmocka_unit_test(test_silence_while_joining),
                cmocka_unit_test(test_silent_link_ends_after_its_heartbeat),
                cmocka_unit_test(test_abandoned_call_is_cancelled),
                cmocka_unit_test(test_cancel_that_overtakes),
                cmocka_unit_test(test_cancel_of_a_post_that_is_given_up),
                cmocka_unit_test(test_cancel_survives_an_outage),
                cmocka_unit_test(test_link_with_an_earlier_instance),
                cmocka_unit_test(test_call_never_sent_is_taken_back),
                cmocka_unit_test(test_deadline_cancels),
                cmocka_unit_test(test_abandoned_while_it_is_sent),
                cmocka_unit_test(test_large_arguments_and_values),
                cmocka_unit_test(test_lost_while_it_is_sent),
                cmocka_unit_test(test_result_overtakes_the_202),
                cmocka_unit_test(test_lost_with_every_link),
                cmocka_unit_test(test_never_seen_for_ever),
                cmocka_unit_test(test_refused_calls_are_sent_again),
                cmocka_unit_test(test_a_full_server_is_asked_less_and_less),
                cmocka_unit_test(test_a_refused_call_has_not_run),
                cmocka_unit_test(test_a_refused_call_of_which_more_is_under_way),
                cmocka_unit_test(test_a_delayed_call_is_taken_after_a_refusal),
                cmocka_unit_test(test_a_refused_call_may_be_given_up),
                cmocka_unit_test(test_other_busy_calls_fail),
                cmocka_unit_test(test_outcomes_of_strangers_are_passed_over),
                cmocka_unit_test(test_hostile_events_end_the_link_only),
                cmocka_unit_test(test_outcome_of_two_attachments),
                cmocka_unit_test(test_cut_at_every_byte),
                cmocka_unit_test(test_any_allocation_may_fail),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
