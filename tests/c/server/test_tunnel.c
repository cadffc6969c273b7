/* Tunnels: what a host may ask, what an exchange says and hears, what is said again after a broken link, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/tunnel.h"
#include "support/oom.h"
#include "wire/msgpack.h"

static const uint8_t seed[16] = {4, 5, 6};

typedef struct rig {
        agx_tunnels all;
        agx_tunnel_port port;
        agx_tunnel *tunnel;
        agx_exchange x;
        agx_buf payload;
        agx_tunnel_outcome o;
        agx_http1_head head;
} rig;

static const agx_http1_field fields[] = {{{"X-A", 3}, {"1", 1}}};

static void rig_init(rig *r)
{
        memset(r, 0, sizeof(*r));
        agx_tunnels_init(&r->all, seed);
        agx_tunnel_port_init(&r->port);
        agx_exchange_init(&r->x);
        r->payload = AGX_BUF_NULL(1 << 20);
        r->head = (agx_http1_head){.method = AGX_VIEW("POST"), .fields = fields, .n_fields = 1};
}

static void rig_close(rig *r)
{
        if (r->tunnel)
                agx_tunnel_free(r->tunnel);
        agx_tunnel_port_detach(&r->port);
        agx_tunnel_port_detach(&r->port);
        agx_tunnels_deinit(&r->all);
        agx_buf_deinit(&r->payload);
}

/* ---- a host's events ---- */

static agx_mp_writer begin(rig *r, size_t pairs)
{
        agx_mp_writer w;

        agx_buf_clear(&r->payload);
        w = agx_mp_writer_on(&r->payload);
        agx_mp_put_map(&w, pairs);
        return w;
}

static void put_uint(agx_mp_writer *w, const char *key, uint64_t u)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_uint(w, u);
}

static void put_str(agx_mp_writer *w, const char *key, const char *text)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_str(w, agx_view_str(text));
}

static int send(rig *r, const char *name)
{
        return agx_tunnels_take(&r->all, &r->port, agx_view_str(name), agx_buf_view(&r->payload), &r->o);
}

static int ask_open(rig *r, const char *path, uint64_t window)
{
        agx_mp_writer w = begin(r, 2);

        put_str(&w, "request_id", "q1");
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_map(&w, 2);
        agx_mp_put_str(&w, AGX_VIEW("paths"));
        agx_mp_put_array(&w, path ? 1 : 0);
        if (path)
                agx_mp_put_str(&w, agx_view_str(path));
        put_uint(&w, "window", window);
        return send(r, "open");
}

static void rig_open(rig *r)
{
        rig_init(r);
        assert_int_equal(ask_open(r, "/m", 1000), 0);
        assert_int_equal(r->o.todo, AGX_TUNNEL_TODO_LISTEN);
        r->tunnel = r->o.tunnel;
        assert_int_equal(r->tunnel->window_ms, 1000);
        assert_int_equal(agx_tunnel_opened(r->tunnel, r->o.request_id, 4711), 0);
}

static int attach(rig *r, uint64_t tunnel, const uint64_t *live, size_t n)
{
        agx_mp_writer w = begin(r, 2);

        put_str(&w, "request_id", "q2");
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_map(&w, 2);
        put_uint(&w, "tunnel", tunnel);
        agx_mp_put_str(&w, AGX_VIEW("live"));
        agx_mp_put_array(&w, n);
        for (size_t i = 0; i < n; ++i)
                agx_mp_put_uint(&w, live[i]);
        return send(r, "attach");
}

static void chunk(rig *r, uint64_t id, uint64_t seq, const char *data, bool last)
{
        agx_mp_writer w = begin(r, 4);

        put_uint(&w, "request_id", id);
        put_uint(&w, "seq", seq);
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_bin(&w, agx_view_str(data));
        agx_mp_put_str(&w, AGX_VIEW("last"));
        agx_mp_put_bool(&w, last);
        assert_int_equal(send(r, "chunk"), 0);
}

static void head(rig *r, const char *name, uint64_t id, uint64_t seq, uint64_t status)
{
        agx_mp_writer w = begin(r, 3);

        put_uint(&w, "request_id", id);
        put_uint(&w, "seq", seq);
        agx_mp_put_str(&w, AGX_VIEW("value"));
        agx_mp_put_map(&w, 4);
        put_uint(&w, "status_code", status);
        put_str(&w, "media_type", "text/plain");
        put_str(&w, "body", "hi");
        agx_mp_put_str(&w, AGX_VIEW("headers"));
        agx_mp_put_map(&w, 1);
        put_str(&w, "x-b", "2");
        assert_int_equal(send(r, name), 0);
}

static void ack(rig *r, uint64_t id, uint64_t seq)
{
        agx_mp_writer w = begin(r, 2);

        put_uint(&w, "request_id", id);
        put_uint(&w, "seq", seq);
        assert_int_equal(send(r, "ack"), 0);
}

/* ---- what is said ---- */

/* The event's name, and the last uint that its payload names by `key`. */
static void assert_says(rig *r, const char *event, const char *key, uint64_t value)
{
        agx_tunnel_saying said;
        agx_mp_reader reader;
        agx_mp_token t = {.kind = AGX_MP_NIL};

        if (!event) {
                assert_int_equal(agx_tunnels_say(&r->all, &r->port, &said), AGX_TUNNEL_E_NONE);
                return;
        }
        assert_int_equal(agx_tunnels_say(&r->all, &r->port, &said), 0);
        assert_int_equal(said.event.n, strlen(event));
        assert_memory_equal(said.event.p, event, said.event.n);
        reader = agx_mp_reader_on(said.data);
        assert_true(agx_mp_skip(&reader, 8));
        assert_true(agx_mp_done(&reader));
        if (!key)
                return;
        reader = agx_mp_reader_on(said.data);
        while (t.kind != AGX_MP_END && !(t.kind == AGX_MP_STR && agx_view_eq(t.v, agx_view_str(key)))) {
                t = agx_mp_next(&reader);
                assert_int_not_equal(t.kind, AGX_MP_ERROR);
        }
        t = agx_mp_next(&reader);
        assert_int_equal(t.kind, AGX_MP_UINT);
        assert_int_equal(t.u, value);
}

static void ask(rig *r, const char *body, bool last)
{
        assert_int_equal(agx_exchange_begin(&r->x, r->tunnel, agx_tunnel_path(r->tunnel, AGX_VIEW("/m")), &r->head,
                                            AGX_VIEW("a=b"), agx_view_str(body), last),
                         0);
}

static void a_host_opens_and_closes(void **state)
{
        rig r;
        agx_mp_writer w;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", "port", 4711);
        assert_says(&r, NULL, NULL, 0);
        assert_true(agx_tunnel_path(r.tunnel, AGX_VIEW("/m")).p != NULL);
        assert_null(agx_tunnel_path(r.tunnel, AGX_VIEW("/")).p);
        assert_null(agx_tunnel_path(r.tunnel, AGX_VIEW("/m/")).p);
        w = begin(&r, 2);
        put_uint(&w, "request_id", 9);
        agx_mp_put_str(&w, AGX_VIEW("data"));
        agx_mp_put_map(&w, 1);
        put_uint(&w, "tunnel", r.tunnel->id);
        assert_int_equal(send(&r, "close"), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_CLOSE);
        assert_ptr_equal(r.o.tunnel, r.tunnel);
        assert_says(&r, "close:result", "request_id", 9);
        rig_close(&r);
}

static void what_cannot_be_opened_is_refused(void **state)
{
        static const char *const paths[] = {NULL, "", "m", "/a b", "/a?b", "/a#b"};
        agx_tunnel *tunnels[AGX_TUNNELS_MAX];
        rig r;

        (void)state;
        rig_init(&r);
        for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); ++i) {
                assert_int_equal(ask_open(&r, paths[i], 1), 0);
                assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
                assert_says(&r, "open:error", NULL, 0);
        }
        assert_int_equal(ask_open(&r, "/m", 0), 0);
        assert_says(&r, "open:error", NULL, 0);
        for (size_t i = 0; i < AGX_TUNNELS_MAX; ++i) {
                assert_int_equal(ask_open(&r, "/m", UINT64_MAX), 0);
                tunnels[i] = r.o.tunnel;
                assert_int_equal(tunnels[i]->window_ms, AGX_TUNNEL_WINDOW_MAX_MS);
        }
        assert_int_equal(ask_open(&r, "/m", 1), 0);
        assert_says(&r, "open:error", NULL, 0);
        agx_tunnel_failed(tunnels[0], AGX_VIEW("\x01"), "no port");
        assert_says(&r, "open:error", "request_id", 1);
        for (size_t i = 1; i < AGX_TUNNELS_MAX; ++i)
                agx_tunnel_free(tunnels[i]);
        agx_buf_clear(&r.payload);
        agx_buf_append_view(&r.payload, AGX_VIEW("\xc1"));
        assert_int_equal(send(&r, "open"), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTE);
        rig_close(&r);
}

static void one_event_each_way(void **state)
{
        agx_view headers, name, value;
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "{}", true);
        assert_says(&r, "/m", "request_id", 1);
        assert_says(&r, NULL, NULL, 0);
        head(&r, "/m:result", 1, 0, 503);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_WHOLE);
        assert_ptr_equal(r.o.exchange, &r.x);
        assert_int_equal(r.o.reply.status, 503);
        assert_true(agx_view_eq(r.o.reply.body, AGX_VIEW("hi")));
        headers = r.o.reply.headers;
        assert_true(agx_tunnel_next_header(&headers, &name, &value));
        assert_true(agx_view_eq(name, AGX_VIEW("x-b")) && agx_view_eq(value, AGX_VIEW("2")));
        assert_false(agx_tunnel_next_header(&headers, &name, &value));
        head(&r, "/m:result", 1, 0, 200); /* a repeat */
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        assert_true(r.x.ended);
        agx_exchange_over(&r.x);
        agx_exchange_over(&r.x);
        assert_says(&r, "gone", "request_id", 1);
        head(&r, "/m:result", 1, 0, 200); /* of one that is over */
        assert_says(&r, "gone", "request_id", 1);
        rig_close(&r);
}

static void what_the_host_was_not_told_of_is_not_gone(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        agx_exchange_over(&r.x);
        assert_says(&r, NULL, NULL, 0);
        rig_close(&r);
}

static void streams_in_turn(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        assert_says(&r, "/m", NULL, 0);
        chunk(&r, 1, 0, "early", false);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        head(&r, "head", 1, 0, 200);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_HEAD);
        chunk(&r, 1, 2, "ahead", false);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        chunk(&r, 1, 1, "one", false);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_BODY);
        assert_true(agx_view_eq(r.o.reply.body, AGX_VIEW("one")));
        chunk(&r, 1, 1, "one", false);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        chunk(&r, 1, 2, "", true);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_BODY);
        assert_true(r.o.last && r.x.ended);
        chunk(&r, 1, 3, "late", false);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        rig_close(&r);
}

static void an_error_ends_it(void **state)
{
        agx_mp_writer w;
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        assert_says(&r, "/m", NULL, 0);
        w = begin(&r, 2);
        put_uint(&w, "request_id", 1);
        agx_mp_put_str(&w, AGX_VIEW("error"));
        agx_mp_put_map(&w, 3);
        put_str(&w, "type", "AbridgeError");
        put_str(&w, "message", "slow down");
        put_uint(&w, "status_code", 429);
        assert_int_equal(send(&r, "/m:error"), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_ERROR);
        assert_int_equal(r.o.reply.status, 429);
        assert_true(agx_view_eq(r.o.reply.body, AGX_VIEW("slow down")));
        rig_close(&r);
}

/* Whoever waits for an answer is told at once, whichever way it cannot be read; behind a head it is broken off. */
static void an_answer_that_cannot_be_read_ends_it(void **state)
{
        static const uint64_t statuses[] = {0, 99, 199, 600, 1000};
        agx_mp_writer w;
        rig r;

        (void)state;
        for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); ++i) {
                rig_open(&r);
                assert_says(&r, "open:result", NULL, 0);
                ask(&r, "", true);
                assert_says(&r, "/m", NULL, 0);
                head(&r, "/m:result", 1, 0, statuses[i]);
                assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_ERROR);
                assert_int_equal(r.o.reply.status, 502);
                assert_true(r.o.last && r.o.why && r.x.ended);
                head(&r, "/m:result", 1, 1, 200); /* too late */
                assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
                rig_close(&r);
        }
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        assert_says(&r, "/m", NULL, 0);
        head(&r, "head", 1, 1, 99); /* ahead of its turn: of a link that broke */
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTE);
        head(&r, "head", 1, 0, 200);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_HEAD);
        w = begin(&r, 2);
        put_uint(&w, "request_id", 1);
        put_uint(&w, "seq", 1);
        assert_int_equal(send(&r, "chunk"), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_ERROR);
        rig_close(&r);
}

/* A body has a bound; ack makes room, and an answer says that the beginning has come. */
static void credit_bounds_a_body(void **state)
{
        static char piece[AGX_TUNNEL_CHUNK];
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "x", false);
        assert_says(&r, "/m", NULL, 0);
        for (int i = 0; !agx_exchange_full(&r.x); ++i) {
                assert_int_equal(agx_exchange_more(&r.x, agx_view_of(piece, sizeof(piece)), false), 0);
                assert_true(i < 3);
        }
        ack(&r, 1, 2); /* of more than was said */
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_READ);
        assert_true(agx_exchange_full(&r.x));
        assert_says(&r, "chunk", "seq", 1);
        assert_says(&r, "chunk", "seq", 2);
        ack(&r, 1, 2);
        assert_false(agx_exchange_full(&r.x));
        assert_int_equal(agx_exchange_more(&r.x, AGX_VIEW(""), true), 0);
        assert_says(&r, "chunk", "seq", 3);
        assert_true(r.x.up_ended);
        rig_close(&r);
}

static void acks_come_once_much_was_taken(void **state)
{
        char piece[AGX_TUNNEL_CREDIT / 8 + 1];
        rig r;

        (void)state;
        memset(piece, 'x', sizeof(piece));
        piece[sizeof(piece) - 1] = '\0';
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        assert_says(&r, "/m", NULL, 0);
        head(&r, "head", 1, 0, 200);
        chunk(&r, 1, 1, piece, false);
        agx_exchange_taken(&r.x);
        assert_says(&r, NULL, NULL, 0);
        chunk(&r, 1, 2, piece, false);
        agx_exchange_taken(&r.x);
        assert_says(&r, "ack", "seq", 3);
        assert_says(&r, NULL, NULL, 0);
        rig_close(&r);
}

static void a_new_link_hears_it_again(void **state)
{
        uint64_t live[] = {1, 77};
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "x", false);
        assert_int_equal(agx_exchange_more(&r.x, AGX_VIEW("y"), true), 0);
        assert_says(&r, "/m", NULL, 0);
        assert_says(&r, "chunk", "seq", 1);
        agx_tunnel_port_detach(&r.port);
        assert_null(r.tunnel->port);
        assert_false(agx_tunnel_port_pending(&r.port));
        assert_int_equal(attach(&r, r.tunnel->id, live, 2), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_LOST);
        assert_null(agx_tunnel_next_lost(r.tunnel));
        assert_true(agx_tunnel_port_pending(&r.port));
        assert_says(&r, "attach:result", "port", 4711);
        assert_says(&r, "gone", "request_id", 77);
        assert_says(&r, "/m", "request_id", 1);
        assert_says(&r, "chunk", "seq", 1);
        head(&r, "head", 1, 0, 200);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_HEAD);
        agx_exchange_taken(&r.x);
        agx_tunnel_port_detach(&r.port);
        assert_int_equal(attach(&r, r.tunnel->id, live, 1), 0);
        assert_says(&r, "attach:result", NULL, 0);
        assert_says(&r, "ack", "seq", 1); /* what was taken is said again */
        assert_says(&r, "chunk", "seq", 1);
        assert_says(&r, NULL, NULL, 0);
        rig_close(&r);
}

/* What a host has consumed before the link broke it may say before it has heard it again. */
static void an_ack_may_overtake_what_is_said_again(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "x", false);
        assert_int_equal(agx_exchange_more(&r.x, AGX_VIEW("y"), false), 0);
        assert_int_equal(agx_exchange_more(&r.x, AGX_VIEW("z"), false), 0);
        assert_says(&r, "/m", NULL, 0);
        assert_says(&r, "chunk", "seq", 1);
        agx_tunnel_port_detach(&r.port);
        assert_int_equal(attach(&r, r.tunnel->id, &r.x.id, 1), 0);
        assert_says(&r, "attach:result", NULL, 0);
        ack(&r, 1, 9); /* of more than was ever said */
        assert_int_equal(r.x.up_bytes, 1);
        assert_says(&r, "chunk", "seq", 2);
        ack(&r, 1, 3);
        assert_int_equal(r.x.up_bytes, 0);
        agx_tunnel_port_detach(&r.port);
        assert_int_equal(attach(&r, r.tunnel->id, &r.x.id, 1), 0);
        assert_says(&r, "attach:result", NULL, 0);
        assert_says(&r, NULL, NULL, 0);
        rig_close(&r);
}

static void what_the_host_has_lost_is_named(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_says(&r, "open:result", NULL, 0);
        ask(&r, "", true);
        assert_says(&r, "/m", NULL, 0);
        head(&r, "head", 1, 0, 200);
        agx_tunnel_port_detach(&r.port);
        assert_int_equal(attach(&r, r.tunnel->id, NULL, 0), 0);
        assert_ptr_equal(agx_tunnel_next_lost(r.tunnel), &r.x);
        agx_exchange_over(&r.x);
        assert_null(agx_tunnel_next_lost(r.tunnel));
        assert_int_equal(attach(&r, 99, NULL, 0), 0);
        assert_int_equal(r.o.todo, AGX_TUNNEL_TODO_NOTHING);
        assert_says(&r, "attach:result", NULL, 0);
        assert_says(&r, "attach:error", NULL, 0);
        rig_close(&r);
}

static int trial(void)
{
        agx_http1_head request = {.method = AGX_VIEW("POST"), .fields = fields, .n_fields = 1};
        agx_tunnel_saying said;
        bool before;
        rig r;
        int e;

        before = agx_oom_pause(true);
        rig_init(&r);
        agx_buf_reserve(&r.payload, 4096, &(uint8_t *){NULL});
        agx_oom_pause(before);
        e = ask_open(&r, "/m", 1000);
        if (!e && r.o.todo == AGX_TUNNEL_TODO_LISTEN) {
                r.tunnel = r.o.tunnel;
                e = agx_tunnel_opened(r.tunnel, r.o.request_id, 1);
        }
        if (!e)
                e = agx_exchange_begin(&r.x, r.tunnel, agx_tunnel_path(r.tunnel, AGX_VIEW("/m")), &request,
                                       AGX_VIEW(""), AGX_VIEW("b"), false);
        if (!e)
                e = agx_exchange_more(&r.x, AGX_VIEW("c"), true);
        while (!e)
                e = agx_tunnels_say(&r.all, &r.port, &said);
        if (e == AGX_TUNNEL_E_NONE)
                e = attach(&r, r.tunnel->id, &r.x.id, 1);
        rig_close(&r);
        return e;
}

static void memory_may_run_out(void **state)
{
        size_t n = 0;
        int e;

        (void)state;
        do {
                agx_oom_arm(++n);
                e = trial();
                assert_true(e <= 0);
        } while (agx_oom_disarm());
        assert_int_equal(e, 0);
        assert_true(n > 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_host_opens_and_closes),
                cmocka_unit_test(what_cannot_be_opened_is_refused),
                cmocka_unit_test(one_event_each_way),
                cmocka_unit_test(what_the_host_was_not_told_of_is_not_gone),
                cmocka_unit_test(streams_in_turn),
                cmocka_unit_test(an_error_ends_it),
                cmocka_unit_test(an_answer_that_cannot_be_read_ends_it),
                cmocka_unit_test(credit_bounds_a_body),
                cmocka_unit_test(acks_come_once_much_was_taken),
                cmocka_unit_test(a_new_link_hears_it_again),
                cmocka_unit_test(an_ack_may_overtake_what_is_said_again),
                cmocka_unit_test(what_the_host_has_lost_is_named),
                cmocka_unit_test(memory_may_run_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
