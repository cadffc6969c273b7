/* One Socket.IO connection: joining, events in, results out, and how it ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/sio_conn.h"
#include "support/oom.h"

static const uint8_t noise[AGX_SIO_CONN_RANDOM] = {1, 2, 3};
static const agx_site site = {.instance = {"in57ance", 8}};

typedef struct rig {
        agx_calls calls;
        agx_rpc rpc;
        agx_sio_conn a, b;
        agx_sio_conn_said said;
        agx_buf worker_out, payload, heard; /* heard: the messages that went out, one a line; bytes as "<n>" */
        agx_calls_worker worker;
} rig;

static int try_open(rig *r)
{
        int e;

        memset(r, 0, sizeof(*r));
        r->worker_out = r->payload = r->heard = AGX_BUF_NULL(1 << 22);
        r->worker = (agx_calls_worker){7, &r->worker_out, 0, NULL};
        e = agx_calls_init(&r->calls, noise);
        if (e)
                return e;
        agx_rpc_init(&r->rpc, &r->calls, noise);
        e = agx_sio_conn_init(&r->a, &site, &r->rpc, noise, AGX_EIO_WEBSOCKET, 0);
        if (!e)
                e = agx_sio_conn_init(&r->b, &site, &r->rpc, noise, AGX_EIO_WEBSOCKET, 0);
        if (!e) {
                assert_int_equal(agx_eio_ws_opened(r->a.eio, 0), 0);
                assert_int_equal(agx_eio_ws_opened(r->b.eio, 0), 0);
        }
        return e;
}

static void rig_open(rig *r)
{
        assert_int_equal(try_open(r), 0);
}

static void rig_close(rig *r)
{
        agx_sio_conn_deinit(&r->a);
        agx_sio_conn_deinit(&r->b);
        if (r->rpc.calls)
                agx_rpc_deinit(&r->rpc);
        agx_calls_deinit(&r->calls);
        agx_buf_deinit(&r->worker_out);
        agx_buf_deinit(&r->payload);
        agx_buf_deinit(&r->heard);
}

/* What has gone out since the last time. */
static const char *heard(rig *r, agx_sio_conn *c)
{
        agx_eio_frame frame;

        agx_buf_clear(&r->heard);
        agx_sio_conn_fill(c, 0);
        while (agx_eio_ws_next(c->eio, &frame)) {
                if (frame.binary)
                        assert_int_equal(agx_buf_printf(&r->heard, "<%zu>\n", frame.head.n + frame.body.n), 0);
                else
                        assert_int_equal(agx_buf_printf(&r->heard, "%.*s%.*s\n", (int)frame.head.n, frame.head.p,
                                                        (int)frame.body.n, frame.body.p),
                                         0);
                agx_eio_ws_sent(c->eio);
                agx_sio_conn_fill(c, 0);
        }
        assert_int_equal(agx_buf_append(&r->heard, "", 1), 0);
        return (const char *)r->heard.data + r->heard.head;
}

static agx_sio_conn_said_kind say(rig *r, agx_sio_conn *c, const char *text)
{
        agx_sio_conn_read(c, false, agx_view_str(text), &r->said);
        return r->said.kind;
}

/* An event on /rpc, taken by the road. */
static void event(rig *r, agx_sio_conn *c, const agx_rpc_event *event, const agx_view *ids, size_t n)
{
        agx_mp_writer w = agx_mp_writer_on(&r->payload);
        bool before = agx_oom_pause(true);
        agx_rpc_outcome outcome;
        char text[128];

        agx_buf_clear(&r->payload);
        agx_rpc_event_put(&w, event, ids, n);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        snprintf(text, sizeof(text), "51-/rpc,[\"%s\",{\"_placeholder\":true,\"num\":0}]",
                 agx_rpc_kind_text(event->kind).p);
        say(r, c, text);
        agx_sio_conn_read(c, true, agx_buf_view(&r->payload), &r->said);
        if (r->said.kind == AGX_SIO_SAID_EVENT)
                agx_sio_conn_taken(c, agx_rpc_take(&c->link, r->said.name, r->said.payload, 0, &r->worker, &outcome));
}

static void call(rig *r, agx_sio_conn *c, const char *id)
{
        event(r, c,
              &(agx_rpc_event){.kind = AGX_RPC_CALL,
                               .call_id = agx_view_str(id),
                               .callable = AGX_VIEW("m::f"),
                               .arguments = AGX_VIEW("ARGS")},
              NULL, 0);
}

static void resume(rig *r, agx_sio_conn *c, const char *id)
{
        agx_view view = agx_view_str(id);

        event(r, c, &(agx_rpc_event){.kind = AGX_RPC_RESUME}, &view, 1);
}

/* The worker ends a call with `n` bytes. */
static void finish(rig *r, const char *id, size_t n)
{
        bool before = agx_oom_pause(true);
        char *bytes = calloc(1, n);
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = agx_view_str(id), .value = agx_view_of(bytes, n)};
        agx_call *ended;
        const char *odd;

        agx_oom_pause(before);
        ended = agx_calls_frame(&r->calls, 7, &frame, &odd);
        if (ended)
                r->rpc.waiter.deliver(&r->rpc.waiter, ended);
        free(bytes);
}

static void join(rig *r, agx_sio_conn *c, const char *text)
{
        say(r, c, text);
        heard(r, c);
}

/* ---- joining ---- */

static void test_joining_names_the_instance(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_non_null(strstr(heard(&r, &r.a), "\"pingInterval\":25000"));
        assert_int_equal(say(&r, &r.a, "0/rpc,{\"session\":\"s\",\"more\":[1]}"), AGX_SIO_SAID_NOTHING);
        assert_non_null(strstr(heard(&r, &r.a), "\"instance\":\"in57ance\""));
        say(&r, &r.a, "0/log,");
        assert_non_null(strstr(heard(&r, &r.a), "0/log,{\"sid\""));
        rig_close(&r);
}

static void test_what_is_no_session_is_refused(void **state)
{
        static const char *const bad[] = {"{\"session\":1}", "{\"session\":\"\"}", "{\"session\":\"a b\"}",
                                          "{\"session\":\"a\",\"session\":\"b\"}", "{\"session\":{}}"};

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                char text[128];
                rig r;

                rig_open(&r);
                heard(&r, &r.a);
                snprintf(text, sizeof(text), "0/rpc,%s", bad[i]);
                say(&r, &r.a, text);
                assert_non_null(strstr(heard(&r, &r.a), "4/rpc,"));
                assert_false(agx_eio_is_closed(r.a.eio));
                assert_null(r.a.link.rpc);
                rig_close(&r);
        }
}

static void test_the_newer_link_replaces(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/rpc,{\"session\":\"s\"}");
        assert_int_equal(say(&r, &r.b, "0/rpc,{\"session\":\"s\"}"), AGX_SIO_SAID_REPLACES);
        assert_ptr_equal(r.said.replaced, &r.a.link);
        call(&r, &r.a, "late"); /* passed over */
        assert_int_equal(r.worker_out.len, 0);
        assert_false(r.a.broken);
        rig_close(&r);
}

static void test_who_joins_nothing_is_closed(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.b, "0/rpc,");
        assert_int_equal(agx_sio_conn_timer(&r.a), AGX_SIO_JOIN_MS);
        assert_int_equal(agx_sio_conn_tick(&r.a, AGX_SIO_JOIN_MS), AGX_EIO_CLOSED);
        assert_true(agx_eio_is_closed(r.a.eio));
        assert_int_equal(agx_sio_conn_timer(&r.b), AGX_SIO_PING_MS);
        rig_close(&r);
}

static void test_namespaces_are_bounded(void **state)
{
        char text[64];
        rig r;

        (void)state;
        rig_open(&r);
        for (int i = 0; i < AGX_SIO_NAMESPACES_MAX; i++) {
                snprintf(text, sizeof(text), "0/n%d,", i);
                join(&r, &r.a, text);
        }
        say(&r, &r.a, "0/rpc,");
        assert_non_null(strstr(heard(&r, &r.a), "4/rpc,"));
        say(&r, &r.a, "1/n3,");
        say(&r, &r.a, "0/rpc,");
        assert_non_null(strstr(heard(&r, &r.a), "0/rpc,"));
        rig_close(&r);
}

/* ---- events and results ---- */

static void test_a_call_and_its_result(void **state)
{
        static const size_t sizes[] = {1, 10000, 20000, 1000000};
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/rpc,");
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                char id[8], bytes[32];
                const char *out;

                snprintf(id, sizeof(id), "c%zu", i);
                call(&r, &r.a, id);
                assert_true(r.worker_out.len > 0);
                assert_string_equal(heard(&r, &r.a), "");
                finish(&r, id, sizes[i]);
                out = heard(&r, &r.a);
                assert_non_null(strstr(out, "451-/rpc,[\"call:result\",{\"_placeholder\":true,\"num\":0}]\n<"));
                snprintf(bytes, sizeof(bytes), "<%zu>",
                         sizes[i] + 18 +
                                 (sizes[i] < 256     ? 2u
                                  : sizes[i] < 65536 ? 3u
                                                     : 5u));
                assert_non_null(strstr(out, bytes));
        }
        rig_close(&r);
}

static void test_results_wait_in_the_ledger(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/rpc,");
        for (int i = 0; i < 8; i++) {
                char id[8];

                snprintf(id, sizeof(id), "c%d", i);
                call(&r, &r.a, id);
                finish(&r, id, 200000);
        }
        agx_sio_conn_fill(&r.a, 0);
        assert_true(agx_eio_queued(r.a.eio) < AGX_SIO_OUT_LOW + 210000);
        assert_int_equal(agx_rpc_queued(&r.a.link), 6);
        heard(&r, &r.a);
        assert_int_equal(agx_rpc_queued(&r.a.link), 0);
        rig_close(&r);
}

static void test_strays(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/log,");
        join(&r, &r.a, "0/rpc,");
        assert_int_equal(say(&r, &r.a, "2/log,[\"x\"]"), AGX_SIO_SAID_STRAY);
        assert_int_equal(say(&r, &r.a, "2/trace,[\"x\"]"), AGX_SIO_SAID_NOTHING); /* not joined */
        assert_int_equal(say(&r, &r.a, "2/rpc,[\"resume\"]"), AGX_SIO_SAID_EVENT);
        assert_int_equal(r.said.payload.n, 0);
        assert_int_equal(say(&r, &r.a, "2/rpc,[\"resume\",1e999]"), AGX_SIO_SAID_EVENT);
        assert_int_equal(r.said.payload.n, 0);
        say(&r, &r.a, "1/rpc,");
        assert_null(r.a.link.rpc);
        assert_int_equal(say(&r, &r.a, "2/rpc,[\"resume\"]"), AGX_SIO_SAID_NOTHING);
        assert_false(agx_eio_is_closed(r.a.eio));
        rig_close(&r);
}

/* The road takes what was said last. */
static void take(rig *r, agx_sio_conn *c)
{
        agx_rpc_outcome outcome;

        assert_int_equal(r->said.kind, AGX_SIO_SAID_EVENT);
        agx_sio_conn_taken(c, agx_rpc_take(&c->link, r->said.name, r->said.payload, 0, &r->worker, &outcome));
}

static void test_plain_json(void **state)
{
        static const char bytes[] = "{\"_placeholder\":true,\"num\":0}";
        char text[200];
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/rpc,");
        snprintf(text, sizeof(text), "51-/rpc,[\"call\",{\"call_id\":\"c\",\"callable\":\"m::f\",\"arguments\":%s}]",
                 bytes);
        say(&r, &r.a, text);
        agx_sio_conn_read(&r.a, true, AGX_VIEW("ARGS"), &r.said);
        take(&r, &r.a);
        assert_non_null(memmem(r.worker_out.data, r.worker_out.len, "ARGS", 4));
        finish(&r, "c", 10);
        assert_non_null(strstr(heard(&r, &r.a), "call:result"));
        say(&r, &r.a, "2/rpc,[\"resume\",{\"call_ids\":[\"c\"]}]");
        take(&r, &r.a);
        assert_non_null(strstr(heard(&r, &r.a), "call:result"));
        say(&r, &r.a, "2/rpc,[\"ack\",{\"call_id\":\"c\"}]");
        take(&r, &r.a);
        say(&r, &r.a, "2/rpc,[\"resume\",{\"call_ids\":[\"c\"]}]");
        take(&r, &r.a);
        assert_non_null(strstr(heard(&r, &r.a), "call:error"));
        say(&r, &r.a, "2/rpc,[\"resume\",7]"); /* not a map */
        take(&r, &r.a);
        assert_non_null(strstr(heard(&r, &r.a), "call:error"));
        rig_close(&r);
}

static void test_garbage_closes(void **state)
{
        static const char *const bad[] = {"", "7", "2/rpc,[", "2/rpc,{}", "51000000-/rpc,[\"x\"]", "50-/rpc,[\"x\"]",
                                          "/"};

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                rig r;

                rig_open(&r);
                join(&r, &r.a, "0/rpc,");
                join(&r, &r.b, "0/rpc,");
                say(&r, &r.a, bad[i]);
                assert_true(agx_eio_is_closed(r.a.eio));
                assert_true(r.a.broken);
                assert_null(r.a.link.rpc);
                resume(&r, &r.b, "unknown");
                assert_non_null(strstr(heard(&r, &r.b), "call:error"));
                rig_close(&r);
        }
}

static void test_who_only_asks_is_closed(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        join(&r, &r.a, "0/rpc,");
        for (unsigned i = 0; i <= AGX_SIO_ANSWERS_LOW; i++)
                resume(&r, &r.a, "unknown");
        assert_true(agx_sio_conn_crowded(&r.a));
        for (unsigned i = 0; i < AGX_SIO_ANSWERS_MAX && !agx_eio_is_closed(r.a.eio); i++)
                resume(&r, &r.a, "unknown");
        assert_true(agx_eio_is_closed(r.a.eio));
        rig_close(&r);
}

/* ---- memory ---- */

/* Whatever fails, nothing leaks, and the session is either whole or closed. */
static void whole_life(rig *r)
{
        if (!try_open(r)) {
                say(r, &r->a, "0/rpc,{\"session\":\"s\"}");
                if (r->a.link.rpc) {
                        call(r, &r->a, "c");
                        finish(r, "c", 50000);
                        resume(r, &r->a, "unknown");
                }
                agx_sio_conn_fill(&r->a, 0);
                say(r, &r->b, "0/rpc,{\"session\":\"s\"}");
                if (!agx_eio_is_closed(r->b.eio))
                        assert_non_null(r->b.link.rpc);
        }
        rig_close(r);
}

static void test_without_memory(void **state)
{
        size_t n = 0;
        rig r;

        (void)state;
        do {
                agx_oom_arm(++n);
                whole_life(&r);
        } while (agx_oom_disarm());
        assert_true(n > 20);
}

/* Messages that are not whole: the connection that has the last of them is closed, others go on. */
static void test_crowded_server(void **state)
{
        agx_gather gather = {.max = 1000};
        agx_site crowded = {.instance = {"in57ance", 8}, .gather = &gather};
        rig r;

        (void)state;
        rig_open(&r);
        r.a.site = r.b.site = &crowded;
        agx_sio_conn_gathers(&r.a, 600);
        agx_sio_conn_gathers(&r.b, 400);
        assert_int_equal(gather.total, 1000);
        agx_sio_conn_gathers(&r.a, 100);
        agx_sio_conn_gathers(&r.b, 900);
        assert_int_equal(gather.total, 1000);
        assert_false(agx_eio_is_closed(r.b.eio));
        agx_sio_conn_gathers(&r.a, 101);
        assert_true(agx_eio_is_closed(r.a.eio));
        assert_false(agx_eio_is_closed(r.b.eio));
        rig_close(&r);
        assert_int_equal(gather.total, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_crowded_server),
                cmocka_unit_test(test_joining_names_the_instance),
                cmocka_unit_test(test_what_is_no_session_is_refused),
                cmocka_unit_test(test_the_newer_link_replaces),
                cmocka_unit_test(test_who_joins_nothing_is_closed),
                cmocka_unit_test(test_namespaces_are_bounded),
                cmocka_unit_test(test_a_call_and_its_result),
                cmocka_unit_test(test_results_wait_in_the_ledger),
                cmocka_unit_test(test_strays),
                cmocka_unit_test(test_plain_json),
                cmocka_unit_test(test_garbage_closes),
                cmocka_unit_test(test_who_only_asks_is_closed),
                cmocka_unit_test(test_without_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
