/*
 * A client on the fast wire against the other end of that wire: what it does with replies that it may not have, because they
 * come before the call or because all replies together are too much for it.
 */
#include "shell.h"

#include "client/state.h"
#include "wire/ws.h"

enum { KIB = 1024, REPLY = 700 * KIB };

static const uint8_t seed[16] = "0123456789abcdef";
static char zeros[REPLY];

typedef struct rig rig;

struct rig {
        fixture f;
        agx_fast *fast; /* the server's end */
        end *end;       /* and its connection */
        uint32_t first; /* the stream of the oldest call that was heard of */
        size_t n_begun, n_whole;
        unsigned early; /* the status of a reply to the first piece of the next call; 0: none */
};

static rig *rig_of(fixture *f)
{
        return (rig *)(void *)f;
}

/* ---- the server ---- */

/* Lets out what is pending, at most `max` bytes. */
static void let_out(rig *r, size_t max)
{
        agx_view segments[2];

        while (max && r->end->conn && agx_fast_pending(r->fast, segments) > 0) {
                agx_view some = agx_view_first(segments[0], max);

                give(&r->f, r->end, some);
                agx_fast_sent(r->fast, some.n);
                max -= some.n;
        }
        while (agx_fast_next_written(r->fast))
                ;
}

static agx_fast_value reply_of(uint32_t stream, unsigned status, agx_view head, agx_view tail)
{
        return (agx_fast_value){.kind = AGX_FAST_REPLY, .stream = stream, .word = status, .parts = {head, tail}};
}

/* The whole reply at once. */
static void reply(rig *r, uint32_t stream, unsigned status, agx_view value)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(100);
        agx_mp_writer w = agx_mp_writer_on(&body);
        agx_fast_value v;

        if (status == 200)
                agx_call_reply_put_value_head(&w, value.n);
        v = reply_of(stream, status, agx_buf_view(&body), status == 200 ? value : AGX_VIEW(""));
        agx_fast_send(r->fast, &v);
        let_out(r, SIZE_MAX);
        agx_fast_withdraw(r->fast, &v);
}

static void hear(fixture *f, end *e, agx_view in)
{
        rig *r = rig_of(f);
        agx_fast_piece piece;

        while (e == r->end && e->conn && !agx_fast_next(r->fast, &in, &piece)) {
                if (piece.kind != AGX_FAST_CALL)
                        continue;
                if (piece.first && !r->n_begun++)
                        r->first = piece.stream;
                r->n_whole += piece.last;
                if (piece.first && r->early) {
                        unsigned status = r->early;

                        r->early = 0;
                        reply(r, piece.stream, status, AGX_VIEW("early"));
                }
        }
}

static void accept_fast(rig *r, end *e)
{
        agx_ws_request request = {.key = agx_view_str(e->key), .protocol = AGX_VIEW(AGX_FAST_PROTOCOL)};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        agx_fast_free(r->fast);
        r->fast = NULL;
        assert_int_equal(agx_fast_new(&r->fast, false, false, seed), 0);
        assert_int_equal(agx_ws_put_reply(&out, &request), 0);
        r->end = e;
        e->asked = false;
        e->peer = r->fast;
        r->n_begun = r->n_whole = 0;
        give(&r->f, e, agx_buf_view(&out));
}

/* Carries out all wishes; the fast wire is to be had. */
static void settle(rig *r)
{
        work(&r->f);
        for (size_t i = 0; i < r->f.n_ends; ++i)
                if (r->f.ends[i].conn && r->f.ends[i].asked && r->f.ends[i].upgrade) {
                        accept_fast(r, &r->f.ends[i]);
                        work(&r->f);
                }
}

static void open_rig(rig *r, bool fast, size_t reply_bytes)
{
        agx_client_config config = config_of(NULL);

        memset(r, 0, sizeof(*r));
        config.fast = fast;
        config.reply_bytes = reply_bytes;
        begin_with(&r->f, &config);
        r->f.upgraded = hear;
        r->f.wires = "agentix.1";
}

static void close_rig(rig *r)
{
        finish(&r->f);
        agx_fast_free(r->fast);
}

/* ---- before the call ---- */

/* The server says what became of a call when it has seen but its first frame. */
static void test_early(void **state)
{
        static const unsigned statuses[] = {200, 202, 400};

        (void)state;
        for (size_t i = 0; i < 3; ++i) {
                agx_client_call *call;
                rig r;

                open_rig(&r, true, 0);
                r.early = statuses[i];
                call = start_with(&r.f, agx_view_of(zeros, sizeof(zeros)), UINT64_MAX);
                settle(&r);
                assert_null(agx_client_next_done(r.f.client));
                assert_null(r.f.ends[0].conn);
                assert_ptr_equal(r.end, &r.f.ends[1]); /* asked again, on another connection */
                assert_int_equal(r.n_whole, 1);
                reply(&r, r.first, 200, AGX_VIEW("late"));
                assert_value(&r.f, call, "late");
                close_rig(&r);
        }
}

/* It may say that it will not have it. */
static void test_early_refusal(void **state)
{
        agx_client_call *call, *next;
        rig r;

        (void)state;
        open_rig(&r, true, 0);
        r.early = 413;
        call = start_with(&r.f, agx_view_of(zeros, sizeof(zeros)), UINT64_MAX);
        settle(&r);
        assert_non_null(r.end->conn);
        assert_int_equal(r.n_whole, 0);
        assert_fault(&r.f, call, "FrameTooLarge", NULL);
        r.n_begun = 0;
        next = start(&r.f);
        settle(&r);
        assert_int_equal(r.n_whole, 1);
        reply(&r, r.first, 200, AGX_VIEW("v"));
        assert_value(&r.f, next, "v");
        close_rig(&r);
}

/* A call that is not on its way at all, since others are. */
static void test_guessed(void **state)
{
        agx_client_call *call;
        rig r;

        (void)state;
        open_rig(&r, true, 0);
        call = start_with(&r.f, AGX_VIEW("a"), UINT64_MAX);
        settle(&r);
        reply(&r, r.first, 200, AGX_VIEW("v"));
        assert_value(&r.f, call, "v");
        call = start_with(&r.f, AGX_VIEW("a"), UINT64_MAX); /* nothing of it is written yet */
        reply(&r, r.first + 1, 200, AGX_VIEW("guess"));
        assert_int_equal(r.f.n_open, 1);
        work(&r.f);
        assert_null(r.f.ends[0].conn);
        settle(&r);
        assert_null(agx_client_next_done(r.f.client));
        reply(&r, r.first, 200, AGX_VIEW("v"));
        assert_value(&r.f, call, "v");
        close_rig(&r);
}

/* ---- too much of it ---- */

/* Of replies that grow side by side the one with which the sum is too much is dropped; the others come. */
static void test_crowded(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf head = AGX_BUF_NULL(100);
        agx_mp_writer w = agx_mp_writer_on(&head);
        agx_client_call *calls[4], *call;
        agx_fast_value values[4];
        size_t n_values = 0;
        rig r;

        (void)state;
        open_rig(&r, true, 2 * REPLY);
        agx_call_reply_put_value_head(&w, REPLY);
        for (size_t i = 0; i < 4; ++i)
                calls[i] = start(&r.f);
        settle(&r);
        assert_int_equal(r.n_whole, 4);
        for (uint32_t i = 0; i < 4; ++i) {
                values[i] = reply_of(r.first + i, 200, agx_buf_view(&head), agx_view_of(zeros, REPLY));
                agx_fast_send(r.fast, &values[i]);
        }
        let_out(&r, SIZE_MAX);
        for (size_t i = 0; i < 4; ++i) {
                const agx_client_result *result;

                call = agx_client_next_done(r.f.client);
                assert_true(call == calls[0] || call == calls[1] || call == calls[2] || call == calls[3]);
                result = agx_client_call_result(call);
                n_values += result->outcome == AGX_CLIENT_VALUE && result->value.n == REPLY;
                if (result->outcome != AGX_CLIENT_VALUE) {
                        assert_int_equal(result->outcome, AGX_CLIENT_FAULT);
                        assert_true(agx_view_eq(result->fault.type, AGX_VIEW("Busy")));
                        assert_non_null(strstr(result->fault.message.p, "AGX_CLIENT_REPLY_BYTES"));
                }
                agx_client_call_free(r.f.client, call, r.f.now);
        }
        assert_in_range(n_values, 1, 2);
        for (int i = 0; i < 10; ++i) { /* one after another they are not too many */
                call = start(&r.f);
                r.n_begun = 0;
                settle(&r);
                reply(&r, r.first, 200, agx_view_of(zeros, REPLY));
                assert_int_equal(ended(&r.f, call)->outcome, AGX_CLIENT_VALUE);
                agx_client_call_free(r.f.client, call, r.f.now);
        }
        assert_int_equal(r.f.n_open, 1);
        close_rig(&r);
}

/* By POST, on connections of their own. */
static void test_crowded_posts(void **state)
{
        static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n";
        agx_client_call *calls[3];
        end *ends[3];
        rig r;

        (void)state;
        open_rig(&r, false, 2 * REPLY);
        for (size_t i = 0; i < 3; ++i) {
                calls[i] = start(&r.f);
                ends[i] = must_ask(&r.f);
                ends[i]->asked = false;
        }
        for (size_t i = 0; i < 3; ++i) {
                give(&r.f, ends[i], agx_view_str(head));
                give(&r.f, ends[i], agx_view_of(zeros, REPLY));
        }
        assert_fault(&r.f, calls[2], "Busy", NULL);
        assert_null(agx_client_next_done(r.f.client));
        agx_client_call_free(r.f.client, calls[0], r.f.now);
        work(&r.f);
        calls[2] = start(&r.f);
        ends[2] = must_ask(&r.f);
        ends[2]->asked = false;
        give(&r.f, ends[2], agx_view_str(head));
        give(&r.f, ends[2], agx_view_of(zeros, REPLY)); /* the first one's bytes are gone */
        assert_null(agx_client_next_done(r.f.client));
        agx_client_call_free(r.f.client, calls[1], r.f.now);
        agx_client_call_free(r.f.client, calls[2], r.f.now);
        close_rig(&r);
}

/* What nobody reads of a reply is not kept until the connection's next one. */
static void test_idle_holds_nothing(void **state)
{
        agx_client_call *call;
        agx_client_conn *conn;
        rig r;

        (void)state;
        open_rig(&r, false, 0);
        call = start(&r.f);
        answer(&r.f, must_ask(&r.f), "418 No", agx_view_of(zeros, REPLY));
        assert_unreachable(&r.f, call, "418");
        conn = agx_container_of(agx_list_first(&r.f.client->idle), agx_client_conn, link);
        assert_int_equal(conn->http.body.cap, 0);
        close_rig(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_early),         cmocka_unit_test(test_early_refusal),
                cmocka_unit_test(test_guessed),       cmocka_unit_test(test_crowded),
                cmocka_unit_test(test_crowded_posts), cmocka_unit_test(test_idle_holds_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
