/*
 * A link over long-polling, and its move to a WebSocket: what is asked on which connection, word by word; what survives a
 * cut at any byte, a lack of memory at any allocation, a server that closes connections, one that refuses the move.
 */
#include "peer.h"

/* How the server takes requests for Socket.IO. */
static struct {
        unsigned ws_status;    /* to who begins by a WebSocket */
        unsigned probe_status; /* to who would move to one; 0: welcome */
        unsigned poll_status;  /* to who begins by long-polling; 0: welcome */
        bool offer;            /* the move */
        bool silent;           /* to who would move */
        bool closes;           /* the connection after each answer but /health's */
        end *waiting;          /* the GET that is to be answered */
        size_t gets, posts, sockets;
        char heard[4096]; /* bodies of POSTs, one a line */
} say;

static void reply(server *s, end *e, unsigned status, agx_view body)
{
        char head[64];

        snprintf(head, sizeof(head), "%u Status%s", status, say.closes ? "\r\nConnection: close" : "");
        answer(&s->f, e, head, body);
}

static void take_post(server *s, end *e)
{
        peer *p = s->polled;
        agx_view body = agx_buf_view(&e->body);

        if (strlen(say.heard) + body.n + 2 < sizeof(say.heard)) {
                strncat(say.heard, body.p, body.n);
                strncat(say.heard, "\n", 2);
        }
        if (p->joined)
                s->link = e;
        while (body.p) {
                agx_eio_event eio;
                agx_sio_event sio;

                assert_int_equal(agx_eio_payload_read(p->eio, &body, s->f.now, &eio), 0);
                if (eio.kind != AGX_EIO_GOT)
                        continue;
                assert_int_equal(agx_sio_read(p->sio, eio.binary, eio.data, &sio), 0);
                on_sio(s, e, &sio);
        }
        ++say.posts;
        reply(s, e, 200, AGX_VIEW("ok"));
}

/* One that moved belongs to its WebSocket. */
static void forget_session(server *s)
{
        bool moved = false;

        for (size_t i = 0; i < s->f.n_ends; ++i)
                moved = moved || (s->polled && s->f.ends[i].peer == s->polled);
        if (!moved)
                free_peer(s->polled);
        s->polled = NULL;
}

/* The socket that was to be moved to may be gone meanwhile. */
static void look_after_socket(server *s)
{
        for (size_t i = 0; i < s->f.n_ends; ++i) {
                end *e = &s->f.ends[i];

                if (!s->polled || e->peer != s->polled || e->conn || agx_eio_over(s->polled->eio) != AGX_EIO_POLLING)
                        continue;
                agx_eio_ws_lost(s->polled->eio);
                agx_ws_free(s->polled->ws);
                s->polled->ws = NULL;
                agx_buf_clear(&s->polled->outbox);
                e->peer = NULL;
        }
}

static void take_get(server *s, end *e)
{
        if (!strcmp(e->target, "/socket.io/?EIO=4&transport=polling")) {
                forget_session(s);
                s->polled = new_peer(s, AGX_EIO_POLLING, say.offer);
                say.waiting = NULL;
        } else {
                assert_string_equal(e->target, "/socket.io/?EIO=4&transport=polling&sid=sid");
        }
        if (say.waiting && say.waiting->conn && say.waiting->asked)
                fail_msg("two polls at once");
        if (agx_eio_poll(s->polled->eio)) { /* the one before was cut */
                reply(s, e, 400, AGX_VIEW(""));
                return;
        }
        ++say.gets;
        say.waiting = e;
}

static bool take_socket(server *s, end *e)
{
        bool probing = !strcmp(e->target, "/socket.io/?EIO=4&transport=websocket&sid=sid");

        if (!probing)
                assert_string_equal(e->target, "/socket.io/?EIO=4&transport=websocket");
        if (probing && say.silent)
                return false;
        if (!probing || say.probe_status) {
                reply(s, e, probing ? say.probe_status : say.ws_status, AGX_VIEW("no"));
                return true;
        }
        ++say.sockets;
        open_socket(s, e, s->polled);
        return true;
}

static bool answer_poll(server *s)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        end *e = say.waiting;

        if (!e || !e->conn || !e->asked || !agx_eio_payload_due(s->polled->eio))
                return false;
        assert_int_equal(agx_eio_payload_write(s->polled->eio, &body), 0);
        say.waiting = NULL;
        reply(s, e, 200, agx_buf_view(&body));
        return true;
}

static bool on_request(server *s, end *e)
{
        bool before = agx_oom_pause(true), acted = true;

        look_after_socket(s);
        if (e == say.waiting) {
                acted = answer_poll(s);
        } else if (strstr(e->target, "transport=websocket")) {
                acted = take_socket(s, e);
        } else if (say.poll_status && !strstr(e->target, "sid=")) {
                reply(s, e, say.poll_status, AGX_VIEW(""));
        } else if (!s->polled && strstr(e->target, "sid=")) {
                reply(s, e, 400, AGX_VIEW(""));
        } else if (e->posted) {
                take_post(s, e);
        } else {
                take_get(s, e);
        }
        agx_oom_pause(before);
        return acted;
}

static void open_polled(server *s, const agx_client_config *config, bool offer)
{
        memset(&say, 0, sizeof(say));
        say.ws_status = 400;
        say.offer = offer;
        open_server(s, config);
        s->sio_request = on_request;
}

static agx_client_call *call_with(server *s, const char *argument)
{
        return start_with(&s->f, agx_view_str(argument), UINT64_MAX);
}

static void assert_is_value(server *s, agx_client_call *call, const char *value)
{
        settle(s);
        assert_value(&s->f, call, value);
}

/* ---- what is said ---- */

static void test_words(void **state)
{
        static const char join[] = "40/rpc,{\"session\":\"000102030405060708090a0b0c0d0e0f\"}\n";
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        for (s.f.cut = 0; s.f.cut < 2;) {
                size_t cut = s.f.cut;

                open_polled(&s, &config, false);
                s.f.cut = cut;
                call = call_with(&s, "x");
                settle(&s);
                assert_int_equal(s.n_calls, 1);
                assert_memory_equal(say.heard, join, sizeof(join) - 1);
                assert_non_null(strstr(say.heard, "451-/rpc,[\"call\",{\"_placeholder\":true,\"num\":0}]\x1e"
                                                  "b"));
                end_call(&s, &s.calls[0]);
                assert_is_value(&s, call, "x");
                settle(&s);
                assert_non_null(strstr(say.heard, "[\"ack\","));
                assert_int_equal(s.acked, 1);
                assert_int_equal(say.sockets, 0);
                assert_int_equal(agx_client_count(s.f.client).connections, 2);
                close_server(&s);
                s.f.cut = cut + 1;
        }
}

static void test_moves_to_a_websocket(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *first, *second;
        size_t posts;
        server s;

        (void)state;
        open_polled(&s, &config, true);
        first = call_with(&s, "a");
        settle(&s);
        assert_int_equal(say.sockets, 1);
        let_pass(&s, 0);
        assert_int_equal(agx_client_count(s.f.client).connections, 1);
        posts = say.posts;
        second = call_with(&s, "b");
        settle(&s);
        assert_int_equal(s.n_calls, 2);
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, second, "b");
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, first, "a");
        assert_int_equal(say.posts, posts);
        assert_int_equal(s.links, 1);
        /* A cut of it is a cut of the link. */
        first = call_with(&s, "c");
        settle(&s);
        drop(&s.f, link_of(&s));
        settle(&s);
        end_call(&s, &s.calls[2]);
        assert_is_value(&s, first, "c");
        assert_int_equal(s.links, 2);
        assert_int_equal(s.calls[2].runs, 1);
        close_server(&s);
}

static void test_a_refused_move_changes_nothing(void **state)
{
        static const unsigned statuses[] = {400, 404, 500, 200};
        agx_client_config config = link_config(UINT64_MAX);

        (void)state;
        for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); ++i) {
                agx_client_call *call;
                server s;

                open_polled(&s, &config, true);
                say.probe_status = statuses[i];
                call = call_with(&s, "a");
                settle(&s);
                end_call(&s, &s.calls[0]);
                assert_is_value(&s, call, "a");
                assert_int_equal(say.sockets, 0);
                assert_int_equal(s.links, 1);
                assert_int_equal(agx_client_count(s.f.client).connections, 2);
                close_server(&s);
        }
}

static void test_a_silent_move_is_given_up(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_polled(&s, &config, true);
        say.silent = true;
        call = call_with(&s, "a");
        settle(&s);
        assert_int_equal(agx_client_count(s.f.client).connections, 3);
        let_pass(&s, agx_client_timer(s.f.client) - s.f.now);
        assert_int_equal(agx_client_count(s.f.client).connections, 2);
        assert_int_equal(s.links, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "a");
        close_server(&s);
}

/* ---- where it begins ---- */

static void test_how_the_beginning_is_refused(void **state)
{
        static const struct {
                unsigned ws, poll;
                bool calls; /* a server without a second road is asked by POST */
        } rows[] = {{404, 0, false}, {410, 0, false}, {400, 404, false}, {501, 405, false}};
        agx_client_config config = link_config(100);

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_client_call *call;
                server s;

                open_polled(&s, &config, false);
                say.ws_status = rows[i].ws;
                say.poll_status = rows[i].poll;
                call = call_with(&s, "a");
                settle(&s);
                let_pass(&s, 1000);
                assert_int_equal(s.links, 0);
                end_call(&s, &s.calls[0]);
                let_pass(&s, 1000);
                assert_is_value(&s, call, "a");
                close_server(&s);
        }
}

static void test_who_is_busy_is_asked_the_other_way(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_polled(&s, &config, false);
        say.ws_status = 503;
        call = call_with(&s, "a");
        settle(&s);
        assert_int_equal(s.links, 0);
        let_pass(&s, 1000);
        assert_int_equal(s.links, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "a");
        close_server(&s);
}

static void test_token_is_refused(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_polled(&s, &config, false);
        say.poll_status = 401;
        call = call_with(&s, "a");
        settle(&s);
        assert_int_equal(ended(&s.f, call)->outcome, AGX_CLIENT_UNREACHABLE);
        assert_non_null(strstr(agx_client_call_result(call)->why, "401"));
        agx_client_call_free(s.f.client, call, s.f.now);
        close_server(&s);
}

/* ---- losses ---- */

static void test_connections_that_close(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *calls[5];
        server s;

        (void)state;
        open_polled(&s, &config, false);
        say.closes = true;
        for (int i = 0; i < 5; ++i) {
                calls[i] = call_with(&s, "a");
                settle(&s);
                end_call(&s, &s.calls[i]);
                assert_is_value(&s, calls[i], "a");
        }
        assert_int_equal(s.links, 1);
        close_server(&s);
}

static void test_a_lost_poll_is_a_lost_link(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_polled(&s, &config, false);
        call = call_with(&s, "a");
        settle(&s);
        drop(&s.f, say.waiting);
        settle(&s);
        assert_int_equal(s.links, 2);
        assert_int_equal(s.resumed, 1);
        end_call(&s, &s.calls[0]);
        assert_is_value(&s, call, "a");
        /* One that waits for nothing is not missed. */
        settle(&s);
        drop(&s.f, s.link);
        settle(&s);
        call = call_with(&s, "b");
        settle(&s);
        end_call(&s, &s.calls[1]);
        assert_is_value(&s, call, "b");
        assert_int_equal(s.links, 2);
        close_server(&s);
}

static void test_large_values(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        static char large[3 << 20];
        agx_client_call *call;
        server s;

        (void)state;
        memset(large, 'x', sizeof(large));
        open_polled(&s, &config, false);
        call = start_with(&s.f, agx_view_of(large, sizeof(large)), UINT64_MAX);
        settle(&s);
        assert_int_equal(s.n_calls, 1);
        {
                agx_rpc_event event = {.kind = AGX_RPC_RESULT,
                                       .call_id = agx_view_str(s.calls[0].id),
                                       .value = agx_view_of(large, sizeof(large))};

                emit_rpc(&s, link_of(&s), &event);
        }
        settle(&s);
        assert_int_equal(ended(&s.f, call)->value.n, sizeof(large));
        assert_memory_equal(agx_client_call_result(call)->value.p, large, sizeof(large));
        agx_client_call_free(s.f.client, call, s.f.now);
        close_server(&s);
}

static void test_hostile_answers_end_the_link_only(void **state)
{
        static const char *const bodies[] = {"",
                                             "9",
                                             "x",
                                             "\x1e",
                                             "4",
                                             "b!",
                                             "0{}",
                                             "42/rpc,[",
                                             "3",
                                             ("2\x1e"
                                              "2\x1e"
                                              "7")};

        (void)state;
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i) {
                agx_client_config config = link_config(UINT64_MAX);
                agx_client_call *call;
                end *e;
                server s;

                open_polled(&s, &config, false);
                call = call_with(&s, "a");
                settle(&s);
                e = say.waiting;
                say.waiting = NULL;
                reply(&s, e, 200, agx_view_str(bodies[i]));
                settle(&s);
                let_pass(&s, 1000);
                if (s.links != 2)
                        fail_msg("row %zu did not end the link", i);
                end_call(&s, &s.calls[0]);
                assert_is_value(&s, call, "a");
                close_server(&s);
        }
}

/* ---- a server that has nothing to say ---- */

/* For so many milliseconds each GET is answered at once. Gives how many there were. */
static size_t answers_at_once(server *s, const char *body, uint64_t ms)
{
        size_t before = say.gets;
        uint64_t until = s->f.now + ms;

        while (s->f.now < until) {
                for (int i = 0; i < 3 && say.waiting; ++i) {
                        end *e = say.waiting;

                        say.waiting = NULL;
                        agx_eio_poll_lost(s->polled->eio);
                        reply(s, e, 200, agx_view_str(body));
                        settle(s);
                }
                let_pass(s, 1);
        }
        return say.gets - before;
}

static void test_empty_answers_are_not_asked_for_at_network_speed(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call, *other;
        size_t n;
        server s;

        (void)state;
        open_polled(&s, &config, false);
        call = call_with(&s, "a");
        settle(&s);
        n = answers_at_once(&s, "6", 10000);
        assert_in_range(n, 10, 10 * (AGX_CLIENT_EMPTY_POLLS + 2));
        /* What we have to say does not wait, nor does more of a server that has something to say. */
        other = call_with(&s, "b");
        settle(&s);
        assert_int_equal(s.n_calls, 2);
        end_call(&s, &s.calls[0]);
        end_call(&s, &s.calls[1]);
        let_pass(&s, AGX_CLIENT_EMPTY_PAUSE_MS);
        assert_is_value(&s, call, "a");
        assert_is_value(&s, other, "b");
        assert_int_equal(s.links, 1);
        close_server(&s);
}

/* ---- every cut, every allocation ---- */

static void scenario(server *s, size_t budget, bool offer)
{
        static const char *const arguments[] = {"a", "b"};
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *calls[2];
        size_t n_done = 0;

        open_polled(s, &config, offer);
        s->f.budget = budget;
        for (int i = 0; i < 2; ++i)
                calls[i] = call_with(s, arguments[i]);
        for (int turn = 0; turn < 50 && n_done < 2; ++turn) {
                agx_client_call *call;

                settle(s);
                for (size_t i = 0; i < s->n_calls && turn > 1; ++i)
                        end_call(s, &s->calls[i]);
                settle(s);
                while ((call = agx_client_next_done(s->f.client))) {
                        const agx_client_result *result = agx_client_call_result(call);

                        ++n_done;
                        if (result->outcome != AGX_CLIENT_UNREACHABLE || s->n_calls) {
                                assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
                                assert_true(agx_view_eq(result->value, agx_view_str(arguments[call == calls[1]])));
                        }
                        agx_client_call_free(s->f.client, call, s->f.now);
                }
                let_pass(s, 500);
        }
        assert_int_equal(n_done, 2);
        for (size_t i = 0; i < s->n_calls; ++i)
                assert_int_equal(s->calls[i].runs, 1);
        assert_true(s->n_calls == 2 || !s->n_calls);
}

static void test_cut_at_every_byte(void **state)
{
        (void)state;
        for (int offer = 0; offer < 2; ++offer) {
                size_t budget = 0;
                bool cut;

                do {
                        server s;

                        scenario(&s, budget, offer);
                        cut = s.f.budget == SIZE_MAX;
                        close_server(&s);
                        ++budget;
                        assert_true(budget < 20000);
                } while (cut || budget == 1);
                assert_true(budget > 1000);
        }
}

static void test_any_allocation_may_fail(void **state)
{
        (void)state;
        for (int offer = 0; offer < 2; ++offer) {
                size_t n = 0;
                bool failed;

                do {
                        agx_client_config config = link_config(UINT64_MAX);
                        agx_client_call *call = NULL, *ready = NULL;
                        server s;

                        open_polled(&s, &config, offer);
                        agx_oom_arm(++n);
                        if (!agx_client_start(s.f.client, AGX_VIEW("m::f"), AGX_VIEW("x"), AGX_VIEW_NULL, UINT64_MAX,
                                              NULL, s.f.now, &call)) {
                                for (int turn = 0; turn < 40 && !ready; ++turn) {
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
                cmocka_unit_test(test_words),
                cmocka_unit_test(test_moves_to_a_websocket),
                cmocka_unit_test(test_a_refused_move_changes_nothing),
                cmocka_unit_test(test_a_silent_move_is_given_up),
                cmocka_unit_test(test_how_the_beginning_is_refused),
                cmocka_unit_test(test_who_is_busy_is_asked_the_other_way),
                cmocka_unit_test(test_token_is_refused),
                cmocka_unit_test(test_connections_that_close),
                cmocka_unit_test(test_a_lost_poll_is_a_lost_link),
                cmocka_unit_test(test_large_values),
                cmocka_unit_test(test_hostile_answers_end_the_link_only),
                cmocka_unit_test(test_empty_answers_are_not_asked_for_at_network_speed),
                cmocka_unit_test(test_cut_at_every_byte),
                cmocka_unit_test(test_any_allocation_may_fail),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
