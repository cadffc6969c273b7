/*
 * A client on the fast wire against the other end of that wire: what it does with replies that it may not have, because they
 * come before the call or because all replies together are too much for it.
 */
#include "fast_rig.h"

#include "client/state.h"

enum { KIB = 1024, REPLY = 700 * KIB };

static char zeros[REPLY];

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
