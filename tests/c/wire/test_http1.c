/* The parser as an object: its bounds at their edges, its lifetimes, its errors, lookups, and running out of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/http1_rows.h"
#include "support/oom.h"

#define HEAD "POST / HTTP/1.1\r\nHost: a\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"

static agx_buf text; /* an input that a test builds */

static int clear_text(void **state)
{
        (void)state;
        agx_buf_deinit(&text);
        text = AGX_BUF_NULL(SIZE_MAX);
        return 0;
}

static void put(const char *words)
{
        assert_int_equal(agx_buf_append_view(&text, agx_view_str(words)), 0);
}

static void put_many(const char *words, size_t times)
{
        while (times--)
                put(words);
}

static void check(const agx_http1_bounds *bounds, const char *want)
{
        agx_http1_feed feed = {.role = AGX_HTTP1_SERVER, .bounds = *bounds};
        agx_http1_row row = {.in = agx_buf_view(&text), .want = want};

        assert_int_equal(agx_http1_rows_check(&feed, &row, 1), 0);
        clear_text(NULL);
}

static void test_head_bound(void **state)
{
        agx_http1_bounds bounds = agx_http1_test_bounds;
        static const char head[] = "GET / HTTP/1.1\r\nHost: a\r\nX: yz\r\n\r\n";

        (void)state;
        bounds.head_max = sizeof(head) - 1;
        put(head), put(head);
        check(&bounds, "{GET /}.{GET /}.");
        bounds.head_max -= 1;
        put(head);
        check(&bounds, "!431");
        bounds.head_max = 200;
        put("GET /"), put_many("a", 1000), put(" HTTP/1.1\r\n");
        check(&bounds, "!431");
        put("GET / HTTP/1.1\r\n"), put_many("a", 1000), put(": b\r\n");
        check(&bounds, "!431");
        put("GET / HTTP/1.1\r\nX: "), put_many("a", 1000), put("\r\n");
        check(&bounds, "!431");
        put("GET / HTTP/1.1\r\n"), put_many("X: y\r\n", 1000);
        check(&bounds, "!431");
        put_many("\r\n", 1000);
        check(&bounds, "!431");
        put_many("\r\n", 99), put("GET / HTTP/1.1\r\n");
        check(&bounds, "!431");
}

static void test_field_count(void **state)
{
        (void)state;
        put("GET / HTTP/1.1\r\nHost: a\r\n"), put_many("X: y\r\n", 99), put("\r\n");
        check(&agx_http1_test_bounds, "{GET /}.");
        put("GET / HTTP/1.1\r\nHost: a\r\n"), put_many("X: y\r\n", 100), put("\r\n");
        check(&agx_http1_test_bounds, "!431");
        put("GET / HTTP/1.1\r\nHost: a\r\n"), put_many("X: y\r\n", 99), put("X y: z\r\n\r\n");
        check(&agx_http1_test_bounds, "!400");
        put(CHUNKED "0\r\n"), put_many("X: y\r\n", 200), put("\r\n");
        check(&agx_http1_test_bounds, "{POST /}.");
}

static void test_a_long_head_moves_its_views(void **state)
{
        agx_http1_feed feed = {.role = AGX_HTTP1_SERVER, .fields = true, .bounds = agx_http1_test_bounds};
        _cleanup_(agx_buf_deinitp) agx_buf want = AGX_BUF_NULL(SIZE_MAX);
        agx_http1_row row;

        (void)state;
        put("GET /here HTTP/1.1\r\nHost: a\r\n");
        assert_int_equal(agx_buf_printf(&want, "{GET /here Host=a|"), 0);
        for (int i = 0; i < 90; ++i) {
                assert_int_equal(agx_buf_printf(&text, "Name-%d: value-%d-%0*d\r\n", i, i, 20 + i, 0), 0);
                assert_int_equal(agx_buf_printf(&want, "Name-%d=value-%d-%0*d|", i, i, 20 + i, 0), 0);
        }
        put("\r\n");
        assert_int_equal(agx_buf_append(&want, "}.", 3), 0);
        row = (agx_http1_row){.in = agx_buf_view(&text), .want = agx_buf_view(&want).p};
        assert_int_equal(agx_http1_rows_check(&feed, &row, 1), 0);
}

static void test_chunk_line_bound(void **state)
{
        agx_http1_bounds bounds = agx_http1_test_bounds;

        (void)state;
        bounds.chunk_line_max = 10;
        put(CHUNKED "5;ab=cde\r\nhello\r\n5;ab=cde\r\nworld\r\n0;ab=cde\r\n\r\n");
        check(&bounds, "{POST /}[helloworld].");
        put(CHUNKED "5;ab=cdef\r\nhello\r\n0\r\n\r\n");
        check(&bounds, "{POST /}!400");
        put(CHUNKED "0000000000005\r\nhello\r\n0\r\n\r\n");
        check(&bounds, "{POST /}!400");
        put(CHUNKED "5;a=\""), put_many("x", 1 << 20), put("\"\r\nhello\r\n0\r\n\r\n");
        check(&agx_http1_test_bounds, "{POST /}!400");
}

static void test_trailer_bound(void **state)
{
        agx_http1_bounds bounds = agx_http1_test_bounds;

        (void)state;
        bounds.trailer_max = 10;
        put(CHUNKED "0\r\nA: bcde\r\n\r\n");
        check(&bounds, "{POST /}!400");
        put(CHUNKED "0\r\nA: bcd\r\n\r\n");
        check(&bounds, "{POST /}.");
        bounds = agx_http1_test_bounds;
        put(CHUNKED "0\r\n"), put_many("X: y\r\n", 10000), put("\r\n");
        check(&bounds, "{POST /}!400");
}

static void test_body_bound(void **state)
{
        agx_http1_bounds bounds = agx_http1_test_bounds;

        (void)state;
        bounds.body_max = 8;
        put(HEAD "Content-Length: 8\r\n\r\n12345678");
        check(&bounds, "{POST /}[12345678].");
        put(HEAD "Content-Length: 9\r\n\r\n123456789");
        check(&bounds, "!413");
        put(CHUNKED "4\r\n1234\r\n4\r\n5678\r\n0\r\n\r\n");
        check(&bounds, "{POST /}[12345678].");
        put(CHUNKED "4\r\n1234\r\n5\r\n56789\r\n0\r\n\r\n");
        check(&bounds, "{POST /}[1234]!413");
        put(CHUNKED), put_many("1\r\nx\r\n", 9);
        check(&bounds, "{POST /}[xxxxxxxx]!413");
}

/* Memory follows the bytes that came: an announced length costs nothing, whatever it is. */
static void test_an_announced_length_takes_no_memory(void **state)
{
        static const char head[] = HEAD "Content-Length: 18446744073709551615\r\n\r\n";
        agx_http1_bounds bounds = agx_http1_test_bounds;
        agx_view in = agx_view_of(head, sizeof(head) - 1);
        agx_http1_event event;
        agx_http1 *parser;

        (void)state;
        bounds.body_max = UINT64_MAX;
        bounds.head_max = bounds.chunk_line_max = SIZE_MAX;
        assert_int_equal(agx_http1_new(&parser, AGX_HTTP1_SERVER, &bounds), 0);
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_HEAD);
        assert_true(event.head->has_length && event.head->length == UINT64_MAX);
        in = AGX_VIEW("some");
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_BODY);
        assert_int_equal(event.body.n, 4);
        assert_ptr_not_equal(event.body.p, NULL);
        agx_http1_free(parser);
}

static void test_events_one_by_one(void **state)
{
        static const char bytes[] = HEAD "Content-Length: 2\r\n\r\nhiGET / HTTP/1.1\r\nHost: b\r\n\r\n";
        agx_view in = agx_view_of(bytes, sizeof(bytes) - 1);
        const char *second = strstr(bytes, "GET");
        _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
        agx_http1_event event;
        const agx_http1_head *head;

        (void)state;
        assert_int_equal(agx_http1_new(&parser, AGX_HTTP1_SERVER, &agx_http1_test_bounds), 0);
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_HEAD);
        head = event.head;
        assert_true(head->has_length && head->length == 2 && !head->chunked && head->http11 && head->keep_alive);
        assert_int_equal(head->n_fields, 2);
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_BODY);
        assert_ptr_equal(event.body.p, second - 2); /* not copied */
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_END);
        assert_ptr_equal(in.p, second); /* the next request waits */
        assert_true(agx_view_eq(head->fields[0].value, AGX_VIEW("a")));
        assert_int_equal(agx_http1_next(parser, &in, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_HEAD);
        assert_true(agx_view_eq(event.head->fields[0].value, AGX_VIEW("b")));
}

static void test_an_error_is_final(void **state)
{
        _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
        agx_view in = AGX_VIEW("nonsense\r\n");
        agx_http1_event event;

        (void)state;
        assert_int_equal(agx_http1_new(&parser, AGX_HTTP1_SERVER, &agx_http1_test_bounds), 0);
        assert_string_equal(agx_http1_reason(parser), "no error");
        assert_int_equal(agx_http1_next(parser, &in, &event), AGX_HTTP1_E_BAD);
        assert_string_not_equal(agx_http1_reason(parser), "no error");
        in = AGX_VIEW("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_int_equal(agx_http1_next(parser, &in, &event), AGX_HTTP1_E_BAD);
        assert_int_equal(agx_http1_eof(parser, &event), AGX_HTTP1_E_BAD);
}

static void test_reasons(void **state)
{
        static const char *const rows[][2] = {
                {HEAD "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "Duplicate Content-Length"},
                {HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n", "a transfer coding other than chunked"},
                {"GET / HTTP/1.1\r\n\r\n", "no Host"},
                {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "two Host fields"},
                {"GET / HTTP/7.1\r\n", "an HTTP version other than 1.0 and 1.1"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
                agx_view in = agx_view_str(rows[i][0]);
                agx_http1_event event;

                assert_int_equal(agx_http1_new(&parser, AGX_HTTP1_SERVER, &agx_http1_test_bounds), 0);
                assert_true(agx_http1_next(parser, &in, &event) > 0);
                assert_string_equal(agx_http1_reason(parser), rows[i][1]);
        }
}

static void test_lookups(void **state)
{
        static const agx_http1_field fields[] = {
                {{"Accept", 6}, {"a, B ,c", 7}}, {{"X-One", 5}, {"1", 1}}, {{"x-two", 5}, {"", 0}},
                {{"ACCEPT", 6}, {"d", 1}},       {{"X-Two", 5}, {"2", 1}},
        };
        agx_http1_head head = {.fields = fields, .n_fields = 5};
        bool repeated;

        (void)state;
        assert_true(agx_view_eq(agx_http1_field_get(&head, AGX_VIEW("x-ONE"), &repeated), AGX_VIEW("1")));
        assert_false(repeated);
        assert_null(agx_http1_field_get(&head, AGX_VIEW("X-Two"), &repeated).p);
        assert_true(repeated);
        assert_null(agx_http1_field_get(&head, AGX_VIEW("X-Tw"), &repeated).p);
        assert_false(repeated);
        assert_null(agx_http1_field_get(&head, AGX_VIEW("X-Two"), NULL).p);
        assert_true(agx_http1_field_has_token(&head, AGX_VIEW("accept"), AGX_VIEW("b")));
        assert_true(agx_http1_field_has_token(&head, AGX_VIEW("accept"), AGX_VIEW("D")));
        assert_false(agx_http1_field_has_token(&head, AGX_VIEW("accept"), AGX_VIEW("a, b")));
        assert_false(agx_http1_field_has_token(&head, AGX_VIEW("x-two"), AGX_VIEW("x")));
        assert_false(agx_http1_field_has_token(&head, AGX_VIEW("x"), AGX_VIEW("x")));
}

/* Two messages, long enough to make every store grow, fed in small pieces. 0, or the error that came. */
static int parse_all(agx_view bytes)
{
        _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
        agx_http1_event event;
        int r = agx_http1_new(&parser, AGX_HTTP1_SERVER, &agx_http1_test_bounds);

        while (!r && bytes.n) {
                agx_view in = agx_view_first(bytes, 7);

                bytes = agx_view_from(bytes, in.n);
                do
                        r = agx_http1_next(parser, &in, &event);
                while (!r && event.kind != AGX_HTTP1_MORE);
        }
        return r ? r : agx_http1_eof(parser, &event);
}

static void test_out_of_memory(void **state)
{
        size_t failures = 0;
        bool fired;

        (void)state;
        for (int i = 0; i < 2; ++i)
                put(HEAD), put_many("A-Name: a value\r\n", 90), put("Content-Length: 1\r\n\r\nx");
        do {
                int r;

                agx_oom_arm(failures + 1);
                r = parse_all(agx_buf_view(&text));
                fired = agx_oom_disarm();
                assert_int_equal(r, fired ? -ENOMEM : 0);
                failures += fired;
        } while (fired);
        assert_in_range(failures, 5, 12); /* a handful in all: none per field, none per message */
}

#define UNIT(test) cmocka_unit_test_setup_teardown(test, clear_text, clear_text)

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT(test_head_bound),
                UNIT(test_field_count),
                UNIT(test_a_long_head_moves_its_views),
                UNIT(test_chunk_line_bound),
                UNIT(test_trailer_bound),
                UNIT(test_body_bound),
                UNIT(test_an_announced_length_takes_no_memory),
                UNIT(test_events_one_by_one),
                UNIT(test_an_error_is_final),
                UNIT(test_reasons),
                UNIT(test_lookups),
                UNIT(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
