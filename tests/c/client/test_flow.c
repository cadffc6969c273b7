/* Calls that are streams: items in order and once, credit that is not lost, and a runtime that breaks its word. */
#include "client/state.h"
#include "peer.h"

enum { WINDOW = 8 };

static agx_client_call *stream_call(server *s)
{
        agx_client_call *call;

        assert_int_equal(agx_client_start_stream(s->f.client, AGX_VIEW("m::f"), AGX_VIEW("x"), AGX_VIEW_NULL, WINDOW,
                                                 UINT64_MAX, NULL, s->f.now, &call),
                         0);
        settle(s);
        return call;
}

static void item(server *s, uint64_t seq, const char *value)
{
        agx_rpc_event event = {.kind = AGX_RPC_ITEM,
                               .call_id = agx_view_str(s->calls[0].id),
                               .seq = seq,
                               .value = agx_view_str(value)};

        emit_rpc(s, link_of(s), &event);
}

static void items(server *s, uint64_t from, uint64_t to)
{
        char text[2] = "a";

        for (; from < to; ++from) {
                text[0] = (char)('a' + from % 26);
                item(s, from, text);
        }
        settle(s);
}

/* Takes and consumes what came: items `from` up to `to`. */
static void take(server *s, agx_client_call *call, uint64_t from, uint64_t to)
{
        agx_view value;

        if (from < to) {
                assert_ptr_equal(agx_client_next_streaming(s->f.client), call);
        }
        for (; from < to; ++from) {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(0);
                char text[2] = {(char)('a' + from % 26), 0};

                assert_true(agx_client_call_next_item(s->f.client, call, &body, &value));
                assert_true(agx_view_eq(value, agx_view_str(text)));
                agx_client_consumed(s->f.client, call, 1, 1, s->f.now);
        }
        assert_null(agx_client_next_streaming(s->f.client));
        settle(s);
}

static void end_it(server *s, agx_client_call *call)
{
        end_call(s, &s->calls[0]);
        settle(s);
        assert_value(&s->f, call, "x");
}

static void test_items_come_in_order_and_credit_goes_back(void **state)
{
        for (int post = 0; post < 2; ++post) {
                agx_client_config config = link_config(post ? 100 : UINT64_MAX);
                agx_client_call *call;
                server s;

                (void)state;
                open_server(&s, &config);
                call = stream_call(&s);
                items(&s, 0, 3);
                assert_null(agx_client_next_done(s.f.client));
                take(&s, call, 0, 3);
                assert_int_equal(s.credits, 0);
                items(&s, 3, WINDOW);
                take(&s, call, 3, WINDOW);
                assert_int_equal(s.credits, 1);
                assert_int_equal(s.credit, WINDOW / 2 + 1);
                items(&s, WINDOW, WINDOW + 3);
                end_call(&s, &s.calls[0]);
                settle(&s);
                take(&s, call, WINDOW, WINDOW + 3);
                assert_value(&s.f, call, "x");
                close_server(&s);
        }
}

static void test_a_new_link_says_lost_credit_again(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = stream_call(&s);
        items(&s, 0, 6);
        take(&s, call, 0, 6);
        assert_int_equal(s.credit, 5);
        /* The server never saw that credit, and two items more were on their way when the link was lost. */
        drop(&s.f, link_of(&s));
        settle(&s);
        s.credit = 0;
        items(&s, 0, WINDOW);
        take(&s, call, 6, WINDOW);
        assert_int_equal(s.credit, 6);
        /* This time it did. */
        drop(&s.f, link_of(&s));
        settle(&s);
        s.credit = 0;
        items(&s, 6, 12);
        take(&s, call, WINDOW, 12);
        assert_int_equal(s.credit, 5);
        end_it(&s, call);
        close_server(&s);
}

static void test_bytes_are_credited_too(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        agx_view value;
        server s;

        (void)state;
        open_server(&s, &config);
        call = stream_call(&s);
        items(&s, 0, 1);
        {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(0);

                assert_ptr_equal(agx_client_next_streaming(s.f.client), call);
                assert_true(agx_client_call_next_item(s.f.client, call, &body, &value));
        }
        agx_client_consumed(s.f.client, call, 1, AGX_CLIENT_CREDIT_BYTES, s.f.now);
        settle(&s);
        assert_int_equal(s.credit, 1);
        end_it(&s, call);
        close_server(&s);
}

static void refused(void (*breaks)(server *), const char *part)
{
        agx_client_config config = link_config(UINT64_MAX);
        const agx_client_result *result;
        agx_client_call *call;
        server s;

        open_server(&s, &config);
        call = stream_call(&s);
        breaks(&s);
        settle(&s);
        result = ended(&s.f, call);
        assert_int_equal(result->outcome, AGX_CLIENT_FAULT);
        assert_non_null(memmem(result->fault.message.p, result->fault.message.n, part, strlen(part)));
        assert_int_equal(s.calls[0].cancels, 1);
        agx_client_call_free(s.f.client, call, s.f.now);
        assert_true(agx_road_is_joined(s.f.client)); /* nobody else pays for it */
        close_server(&s);
}

static void leave_a_gap(server *s)
{
        items(s, 0, 1);
        items(s, 2, 3);
}

static void send_too_many(server *s)
{
        items(s, 0, WINDOW + 1);
}

static void test_broken_words(void **state)
{
        (void)state;
        refused(leave_a_gap, "missing");
        refused(send_too_many, "more items than it was asked for");
}

static void test_items_nobody_wants_are_passed_over(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = start_with(&s.f, AGX_VIEW("x"), UINT64_MAX);
        settle(&s);
        items(&s, 0, 5);
        assert_null(agx_client_next_streaming(s.f.client));
        end_it(&s, call);
        items(&s, 5, 6);
        close_server(&s);
}

static void test_abandoned_with_items(void **state)
{
        agx_client_config config = link_config(UINT64_MAX);
        agx_client_call *call;
        server s;

        (void)state;
        open_server(&s, &config);
        call = stream_call(&s);
        items(&s, 0, 3);
        agx_client_call_free(s.f.client, call, s.f.now);
        assert_null(agx_client_next_streaming(s.f.client));
        settle(&s);
        assert_int_equal(s.calls[0].cancels, 1);
        close_server(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_items_come_in_order_and_credit_goes_back),
                cmocka_unit_test(test_a_new_link_says_lost_credit_again),
                cmocka_unit_test(test_bytes_are_credited_too),
                cmocka_unit_test(test_broken_words),
                cmocka_unit_test(test_items_nobody_wants_are_passed_over),
                cmocka_unit_test(test_abandoned_with_items),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
