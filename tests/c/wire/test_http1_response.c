/* Responses: where they end (RFC 9112, section 6.3), what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/http1_rows.h"

#define ROW AGX_HTTP1_ROW
#define OK(fields) "HTTP/1.1 200 OK\r\n" fields "\r\n"
#define OK2 OK("Content-Length: 2\r\n") "ok"

static const agx_http1_feed feed_normal = {
        .role = AGX_HTTP1_CLIENT,
        .bounds = {.head_max = 4096, .headers_max = 100, .chunk_line_max = 100, .trailer_max = 100, .body_max = 1000},
};

#define CHECK(feed, rows) assert_int_equal(agx_http1_rows_check(feed, rows, sizeof(rows) / sizeof((rows)[0])), 0)

static void test_status_line(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(OK2, "{200}[ok]."),
                ROW("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "{200}."),
                ROW("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "{200}."),
                ROW("HTTP/1.1 299 A \xc3\xa4 phrase\tof words\r\nContent-Length: 0\r\n\r\n", "{299}."),
                ROW("HTTP/1.1 599 x\r\nContent-Length: 0\r\n\r\n", "{599}."),
                ROW("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "{200 1.0 close}[ok]."),
                ROW("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "{200 1.0}[ok]."),
                ROW("HTTP/2.0 200 OK\r\n\r\n", "!505"),
                ROW("HTTP/0.9 200 OK\r\n\r\n", "!505"),
                ROW("HTTP/1.1 20 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 2000 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 099 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 000 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 2x0 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 -20 OK\r\n\r\n", "!400"),
                ROW("HTTP/1.1 200 OK\n\r\n", "!400"),
                ROW("HTTP/1.1 200 O\0K\r\n\r\n", "!400"),
                ROW("HTTP/1.1200 OK\r\n\r\n", "!400"),
                ROW("HTTP 200 OK\r\n\r\n", "!400"),
                ROW("RTSP/1.0 200 OK\r\n\r\n", "!400"),
                ROW("ICE/1.0 200 OK\r\n\r\n", "!400"),
                ROW("ICY 200 OK\r\n\r\n", "!400"),
                ROW("\r\n" OK2, "!400"),
                ROW("\n" OK2, "!400"),
                ROW(" " OK2, "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "!400"),
                ROW("", ""),
                ROW("HTTP/1.1 20", "!eof"),
        };

        (void)state;
        CHECK(&feed_normal, rows);
}

static void test_ends(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(OK2 OK2, "{200}[ok].{200}[ok]."),
                ROW(OK("Content-Length: 0\r\n") OK2, "{200}.{200}[ok]."),
                ROW(OK(""), "{200 close}."),
                ROW(OK("") "to the end\r\n", "{200 close}[to the end\\x0d\\x0a]."),
                ROW(OK("Connection: keep-alive\r\n") "x", "{200 close}[x]."),
                ROW(OK("Content-Length: 5\r\n") "ok", "{200}[ok]!eof"),
                ROW(OK("Transfer-Encoding: chunked\r\n") "2\r\nok\r\n0\r\n\r\n" OK2, "{200}[ok].{200}[ok]."),
                ROW(OK("Transfer-Encoding: chunked\r\n") "2\r\nok\r\n", "{200}[ok]!eof"),
                ROW(OK("Transfer-Encoding: gzip\r\n") "x", "!400"),
                ROW(OK("Transfer-Encoding: chunked, gzip\r\n") "x", "!400"),
                ROW(OK("Transfer-Encoding: chunked \t\r\n") "0\r\n\r\n", "!400"),
                ROW(OK("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n") "ok", "!400"),
                ROW(OK("Content-Length: 2\r\nContent-Length: 2\r\n") "ok", "!400"),
                ROW(OK("Content-Length: 2\r\nContent-Length: 3\r\n") "ok", "!400"),
                ROW(OK("Connection: close\r\nContent-Length: 2\r\n") "ok", "{200 close}[ok]."),
                ROW(OK("Connection: close\r\nContent-Length: 2\r\n") "okX", "{200 close}[ok].!400"),
                ROW(OK("Content-Length: 2\r\n") "okX", "{200}[ok].!400"),
                ROW(OK("Content-Length: 1001\r\n"), "!413"),
                ROW(OK("Transfer-Encoding: chunked\r\n") "3e9\r\n", "{200}!413"),
                ROW(OK("X: a\r\n b\r\n") "x", "!400"),
        };

        (void)state;
        CHECK(&feed_normal, rows);
}

static void test_bodiless(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("HTTP/1.1 100 Continue\r\n\r\n" OK2, "{100}.{200}[ok]."),
                ROW("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK2,
                    "{100}.{103}.{200}[ok]."),
                ROW("HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n" OK2, "{100}.{200}[ok]."),
                ROW("HTTP/1.1 199 x\r\n\r\n" OK2, "{199}.{200}[ok]."),
                ROW("HTTP/1.1 100 Continue\r\nConnection: close\r\n\r\n" OK2, "{100 close}.{200}[ok]."),
                ROW("HTTP/1.1 204 No Content\r\n\r\n" OK2, "{204}.{200}[ok]."),
                ROW("HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n" OK2, "{204}.{200}[ok]."),
                ROW("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n" OK2, "{204}.{200}[ok]."),
                ROW("HTTP/1.1 304 Not Modified\r\nContent-Length: 9000\r\n\r\n" OK2, "{304}.{200}[ok]."),
                ROW("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                    "{101 upgrade}."),
                ROW("HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nok",
                    "{200}[ok]."),
        };
        static const agx_http1_row heads[] = {
                ROW(OK("Content-Length: 9000\r\n") OK("Content-Length: 2\r\n"), "{200}.{200}."),
                ROW(OK("Transfer-Encoding: chunked\r\n") OK(""), "{200}.{200}."),
                ROW(OK("") "x", "{200}.!400"),
        };
        agx_http1_feed feed = feed_normal;

        (void)state;
        CHECK(&feed_normal, rows);
        feed.no_body = true;
        CHECK(&feed, heads);
}

/* The promise "no body" is for the next final response: interim ones do not use it up, and it does not last longer. */
static void test_no_body_is_for_one_response(void **state)
{
        static const char bytes[] = "HTTP/1.1 100 Continue\r\n\r\n" OK("Content-Length: 2\r\n") OK2;
        static const agx_http1_kind want[] = {AGX_HTTP1_HEAD, AGX_HTTP1_END,  AGX_HTTP1_HEAD, AGX_HTTP1_END,
                                              AGX_HTTP1_HEAD, AGX_HTTP1_BODY, AGX_HTTP1_END,  AGX_HTTP1_MORE};
        agx_view in = agx_view_of(bytes, sizeof(bytes) - 1);
        agx_http1_event event;
        agx_http1 *parser;

        (void)state;
        assert_int_equal(agx_http1_new(&parser, AGX_HTTP1_CLIENT, &feed_normal.bounds), 0);
        agx_http1_expect_no_body(parser);
        for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); ++i) {
                assert_int_equal(agx_http1_next(parser, &in, &event), 0);
                assert_int_equal(event.kind, want[i]);
        }
        agx_http1_free(parser);
}

static void test_body_to_the_end_is_bounded(void **state)
{
        agx_http1_feed feed = feed_normal;
        static const agx_http1_row rows[] = {
                ROW(OK("") "12345", "{200 close}[12345]."),
                ROW(OK("") "123456", "{200 close}[12345]!413"),
        };
        (void)state;
        feed.bounds.body_max = 5;
        CHECK(&feed, rows);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_status_line),
                cmocka_unit_test(test_ends),
                cmocka_unit_test(test_bodiless),
                cmocka_unit_test(test_no_body_is_for_one_response),
                cmocka_unit_test(test_body_to_the_end_is_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
