/* Requests: what is accepted, what is refused and with which status. RFC 9112 is meant where a section is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/http1_rows.h"

#define ROW AGX_HTTP1_ROW
#define HOST "Host: a\r\n"
#define GET(fields) "GET / HTTP/1.1\r\n" HOST fields "\r\n"
#define POST(fields) "POST / HTTP/1.1\r\n" HOST fields "\r\n"
#define CHUNKED(body) POST("Transfer-Encoding: chunked\r\n") body
#define REST "GET /next HTTP/1.1\r\n" HOST "\r\n"

static void check_rows(const agx_http1_row *rows, size_t n)
{
        agx_http1_feed feed = {.role = AGX_HTTP1_SERVER, .bounds = agx_http1_test_bounds};

        assert_int_equal(agx_http1_rows_check(&feed, rows, n), 0);
}

#define CHECK(rows) check_rows(rows, sizeof(rows) / sizeof((rows)[0]))

static void test_method(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(GET(""), "{GET /}."),
                ROW("HEAD / HTTP/1.1\r\n" HOST "\r\n", "{HEAD /}."),
                ROW("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "{OPTIONS *}."),
                ROW("DELETE /x HTTP/1.1\r\n" HOST "\r\n", "{DELETE /x}."),
                ROW("PUT /x HTTP/1.1\r\n" HOST "\r\n", "{PUT /x}."),
                ROW("PATCH /x HTTP/1.1\r\n" HOST "\r\n", "{PATCH /x}."),
                ROW("get / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("G\0T / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("FROB / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GETT / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW(" GET / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET\t/ HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("/ HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("SOURCE / ICE/1.0\r\n" HOST "\r\n", "!400"),
                ROW("DESCRIBE rtsp://a/ RTSP/1.0\r\n\r\n", "!400"),
                ROW("DESCRIBE / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "!400"), /* a TLS hello */
                ROW("HTTP/1.1 200 OK\r\n\r\n", "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_target(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("GET /a/b?c=d&e=%20f HTTP/1.1\r\n" HOST "\r\n", "{GET /a/b?c=d&e=%20f}."),
                ROW("GET //x HTTP/1.1\r\n" HOST "\r\n", "{GET //x}."),
                ROW("GET http://a/b HTTP/1.1\r\n" HOST "\r\n", "{GET http://a/b}."),
                ROW("CONNECT a:443 HTTP/1.1\r\n" HOST "\r\n", "{CONNECT a:443 close}."),
                ROW("CONNECT a:443 HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", "!400"),
                ROW("CONNECT a:443 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400"),
                ROW("GET  HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET  / HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /  HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a b HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a\tb HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a\0b HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a\x7f HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /\xc3\xa4 HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a#b HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /a?b#c HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET *x HTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET ?x HTTP/1.1\r\n" HOST "\r\n", "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_version(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("GET / HTTP/1.0\r\n\r\n", "{GET / 1.0 close}."),
                ROW("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "{GET / 1.0}."),
                ROW("GET / HTTP/1.0\r\nConnection: Keep-Alive, x\r\n\r\n", "{GET / 1.0}."),
                ROW("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "{GET / 1.0 close}."),
                ROW("GET / HTTP/2.0\r\n" HOST "\r\n", "!505"),
                ROW("GET / HTTP/0.9\r\n\r\n", "!505"),
                ROW("GET / HTTP/1.2\r\n" HOST "\r\n", "!505"),
                ROW("GET / HTTP/3.1\r\n" HOST "\r\n", "!505"),
                ROW("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "!505"),
                ROW("GET / HTTP/11.1\r\n" HOST "\r\n", "!505"),
                ROW("GET / HTTP/1.10\r\n" HOST "\r\n", "!400"),
                ROW("GET / HTTP/1.1 \r\n" HOST "\r\n", "!400"),
                ROW("GET / http/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET / HTTPS/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET / XTTP/1.1\r\n" HOST "\r\n", "!400"),
                ROW("GET /\r\n" HOST "\r\n", "!400"),
                ROW("GET / \r\n" HOST "\r\n", "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_line_ends(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("\r\n\r\n" GET(""), "{GET /}."), /* section 2.2: empty lines in front are passed over */
                ROW(GET("") "\r\n" GET(""), "{GET /}.{GET /}."),
                ROW(GET("") "\r\n", "{GET /}."),
                ROW("\n" GET(""), "!400"),
                ROW("\r" GET(""), "!400"),
                ROW("\r\r\n" GET(""), "!400"),
                ROW("GET / HTTP/1.1\n" HOST "\r\n", "!400"),
                ROW("GET / HTTP/1.1\r" HOST "\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\r\n" HOST "\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\r\n\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\r\n\rX", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\nHost: a\n\n", "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_field_syntax(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(GET("X: y\r\n"), "{GET /}."),
                ROW(GET("X:y\r\n"), "{GET /}."),
                ROW(GET("X: \t y \t \r\n"), "{GET /}."),
                ROW(GET("X:\r\n"), "{GET /}."),
                ROW(GET("X: \r\n"), "{GET /}."),
                ROW(GET("X: \xc3\xa4\xff\r\n"), "{GET /}."), /* obs-text */
                ROW(GET("X: a\tb c\r\n"), "{GET /}."),
                ROW(GET("!#$%&'*+-.^_`|~0aZ: y\r\n"), "{GET /}."),
                ROW(GET("X : y\r\n"), "!400"), /* section 5.1: a space before the colon */
                ROW(GET("X\t: y\r\n"), "!400"),
                ROW(GET(" X: y\r\n"), "!400"), /* section 5.2: obs-fold */
                ROW(GET("\tX: y\r\n"), "!400"),
                ROW(GET("X: y\r\n z\r\n"), "!400"),
                ROW(GET("X: y\r\n\tz\r\n"), "!400"),
                ROW(GET("X: y\r\n \r\n"), "!400"),
                ROW("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "!400"),
                ROW(GET(": y\r\n"), "!400"),
                ROW(GET("X\r\n"), "!400"),
                ROW(GET("X y: z\r\n"), "!400"),
                ROW(GET("X\0Y: z\r\n"), "!400"),
                ROW(GET("(X): z\r\n"), "!400"),
                ROW(GET("X@Y: z\r\n"), "!400"),
                ROW(GET("X\"Y: z\r\n"), "!400"),
                ROW(GET("\xc3\xa4: z\r\n"), "!400"),
                ROW(GET("X: a\0b\r\n"), "!400"),
                ROW(GET("X: a\x01"
                        "b\r\n"),
                    "!400"),
                ROW(GET("X: a\x7f"
                        "b\r\n"),
                    "!400"),
                ROW(GET("X: a\rb\r\n"), "!400"),
                ROW(GET("X: a\nb: c\r\n"), "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_fields_come_out_whole(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("GET / HTTP/1.1\r\nHost:a\r\nEmpty:\r\nBlank: \t \r\nX-Long:  a, b\t c \r\nx-long: 2\r\n\r\n",
                    "{GET / Host=a|Empty=|Blank=|X-Long=a, b\\x09 c|x-long=2|}."),
                ROW("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT: u\r\n\r\n" GET("A: b\r\n"),
                    "{POST / Host=a|Transfer-Encoding=chunked|}.{GET / Host=a|A=b|}."),
        };
        agx_http1_feed feed = {.role = AGX_HTTP1_SERVER, .fields = true, .bounds = agx_http1_test_bounds};

        (void)state;
        assert_int_equal(agx_http1_rows_check(&feed, rows, 2), 0);
}

static void test_host(void **state)
{
        static const agx_http1_row rows[] = {
                ROW("GET / HTTP/1.1\r\nhOST: a\r\n\r\n", "{GET /}."),
                ROW("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "{GET /}."),
                ROW("GET / HTTP/1.1\r\nHost:\r\n\r\n", "{GET /}."), /* section 3.2: empty when there is no authority */
                ROW("GET / HTTP/1.1\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\n" HOST HOST "\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\n" HOST "host: b\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "!400"),
                ROW("GET / HTTP/1.0\r\n" HOST HOST "\r\n", "!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_connection(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(GET("Connection: close\r\n"), "{GET / close}."),
                ROW(GET("Connection: x, CLOSE ,y\r\n"), "{GET / close}."),
                ROW(GET("Connection: x\r\nConnection: close\r\n"), "{GET / close}."),
                ROW(GET("Connection: closed\r\n"), "{GET /}."),
                ROW(GET("Connection: keep-alive\r\n"), "{GET /}."),
                ROW(GET("Connection: close\r\n") REST, "{GET / close}.!400"),
                ROW(GET("Connection: close\r\n") "\r\n", "{GET / close}.!400"),
                ROW(GET("Connection: upgrade\r\nUpgrade: websocket\r\n"), "{GET / upgrade}."),
                ROW(GET("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"), "{GET / upgrade}."),
                ROW(GET("Upgrade: websocket\r\n"), "{GET /}."),
                ROW(GET("Connection: upgrade\r\n"), "{GET /}."),
                ROW(GET("Connection: upgrade\r\nUpgrade: h2c\r\n") REST, "{GET / upgrade}.{GET /next}."),
                ROW("GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "{GET / 1.0 close}."),
                ROW(POST("Connection: upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n") "ab" REST,
                    "{POST / upgrade}[ab].{GET /next}."),
                ROW(POST("Expect: 100-continue\r\nContent-Length: 1\r\n") "a", "{POST / expect}[a]."),
                ROW(POST("Expect: 100-Continue\r\nContent-Length: 1\r\n") "a", "{POST / expect}[a]."),
                ROW(POST("Expect: other\r\nContent-Length: 1\r\n") "a", "{POST /}[a]."),
                ROW("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na", "{POST / 1.0 close}[a]."),
        };

        (void)state;
        CHECK(rows);
}

static void test_length(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(POST("Content-Length: 5\r\n") "hello", "{POST /}[hello]."),
                ROW(POST("content-length:5 \r\n") "hello", "{POST /}[hello]."),
                ROW(POST("Content-Length: 005\r\n") "hello", "{POST /}[hello]."),
                ROW(POST("Content-Length: 0\r\n") REST, "{POST /}.{GET /next}."),
                ROW(POST("Content-Length: 5\r\n") "hello" REST, "{POST /}[hello].{GET /next}."),
                ROW(POST("") REST, "{POST /}.{GET /next}."),
                ROW(GET("Content-Length: 5\r\n") "hello" REST, "{GET /}[hello].{GET /next}."),
                ROW(POST("Content-Length: 5\r\n") "hell", "{POST /}[hell]!eof"),
                ROW(POST("Content-Length: 5\r\n"), "{POST /}!eof"),
                ROW(POST("Content-Length: 5\r\nContent-Length: 5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5\r\nX: y\r\ncontent-length: 6\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5, 5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5 5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: +5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: -5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: -0\r\n"), "!400"),
                ROW(POST("Content-Length: 0x5\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5.0\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5_0\r\n") "hello", "!400"),
                ROW(POST("Content-Length: 5;a\r\n") "hello", "!400"),
                ROW(POST("Content-Length: \"5\"\r\n") "hello", "!400"),
                ROW(POST("Content-Length:\r\n"), "!400"),
                ROW(POST("Content-Length: \r\n"), "!400"),
                ROW(POST("Content-Length: x\r\n"), "!400"),
                ROW(POST("Content-Length: \xd9\xa5\r\n"), "!400"), /* an Arabic five */
                ROW(POST("Content-Length: 18446744073709551616\r\n"), "!400"),
                ROW(POST("Content-Length: 99999999999999999999999\r\n"), "!400"),
                ROW(POST("Content-Length: 18446744073709551615\r\n"), "!413"),
                ROW(POST("Content-Length: 1048577\r\n"), "!413"),
                ROW(POST("Content-Length: 1048576\r\n"), "{POST /}!eof"),
        };

        (void)state;
        CHECK(rows);
}

static void test_two_framings(void **state)
{
#define HIDDEN "1d\r\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n0\r\n\r\n"
        static const agx_http1_row rows[] = {
                ROW(POST("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked\r\nX: y\r\nContent-Length: 5\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked, identity\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: identity, chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: gzip, chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked, chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked,\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: ,chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked;q=1\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: xchunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunkedx\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: \"chunked\"\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: identity\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: identity\r\nContent-Length: 2\r\n") "ab", "!400"),
                ROW(POST("Transfer-Encoding:\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding:\r\nContent-Length: 2\r\n") "ab", "!400"),
                ROW(POST("Transfer-Encoding: \x0b"
                         "chunked\r\n") HIDDEN,
                    "!400"),
                ROW(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n") HIDDEN, "!400"),
                ROW(POST("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n") HIDDEN, "!400"),
                ROW("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "!400"),
                ROW(POST("Transfer-Encoding: CHUNKED\r\n") "0\r\n\r\n", "{POST /}."),
                ROW(POST("Transfer-Encoding: \t chunked\r\n") "0\r\n\r\n", "{POST /}."),
                ROW(POST("Transfer-Encoding: chunked \r\n") "0\r\n\r\n", "{POST /}."),
                ROW(POST("Transfer-Encoding: chunked \t\r\n") "0\r\n\r\n", "!400"), /* llhttp's own strictness */
                ROW(POST("Transfer_Encoding: chunked\r\n"), "{POST /}."),           /* another name, no framing */
        };

        (void)state;
        CHECK(rows);
}

static void test_chunks(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(CHUNKED("0\r\n\r\n") REST, "{POST /}.{GET /next}."),
                ROW(CHUNKED("5\r\nhello\r\n0\r\n\r\n") REST, "{POST /}[hello].{GET /next}."),
                ROW(CHUNKED("5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n"), "{POST /}[hello!]."),
                ROW(CHUNKED("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n"), "{POST /}[01234567890123456789]."),
                ROW(CHUNKED("0005\r\nhello\r\n000\r\n\r\n"), "{POST /}[hello]."),
                ROW(CHUNKED("2\r\n\r\n\r\n0\r\n\r\n"), "{POST /}[\\x0d\\x0a]."),
                ROW(CHUNKED("5;a=b\r\nhello\r\n0;c\r\n\r\n"), "{POST /}[hello]."),
                ROW(CHUNKED("5;a=\"b;c\"\r\nhello\r\n0\r\n\r\n"), "{POST /}[hello]."),
                ROW(CHUNKED("5;a\r\nhello\r\n0\r\n\r\n"), "{POST /}[hello]."),
                ROW(CHUNKED("0x5\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("-1\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("+5\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5 \r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED(" 5\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5\t\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5 ;a=b\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5_0\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5g\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5.\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED(";a=b\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("fffffffffffffffff\r\nhello"), "{POST /}!400"),
                ROW(CHUNKED("ffffffffffffffff\r\nhello"), "{POST /}!413"),
                ROW(CHUNKED("100000001\r\nhello"), "{POST /}!413"),
                ROW(CHUNKED("100001\r\n"), "{POST /}!413"),
                ROW(CHUNKED("1\r\na\r\n100000\r\n"), "{POST /}[a]!413"),
                ROW(CHUNKED("5\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5\rhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;a=b\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;a\nb=c\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;a=\"b\nc\"\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;a=b\0\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5;a=\x01\r\nhello\r\n0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("5\r\nhello0\r\n\r\n"), "{POST /}[hello]!400"),
                ROW(CHUNKED("5\r\nhello\n0\r\n\r\n"), "{POST /}[hello]!400"),
                ROW(CHUNKED("5\r\nhello\r0\r\n\r\n"), "{POST /}[hello]!400"),
                ROW(CHUNKED("5\r\nhelloXX0\r\n\r\n"), "{POST /}[hello]!400"),
                ROW(CHUNKED("4\r\nhello\r\n0\r\n\r\n"), "{POST /}[hell]!400"),
                ROW(CHUNKED("5\r\nhello\r\n"), "{POST /}[hello]!eof"),
                ROW(CHUNKED("5\r\nhel"), "{POST /}[hel]!eof"),
                ROW(CHUNKED("0\r\n"), "{POST /}!eof"),
                ROW(CHUNKED("0\r\n\r"), "{POST /}!eof"),
                ROW(CHUNKED("0\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\n\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\n\rX"), "{POST /}!400"),
        };

        (void)state;
        CHECK(rows);
}

static void test_trailers(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(CHUNKED("0\r\nX: y\r\nZ: w\r\n\r\n") REST, "{POST /}.{GET /next}."),
                ROW(CHUNKED("1\r\na\r\n0\r\nX:\r\n\r\n") REST, "{POST /}[a].{GET /next}."),
                ROW(CHUNKED("0\r\nX y\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\nX : y\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\nX: y\r\n z\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\nX: \0\r\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\nX: y\n\r\n"), "{POST /}!400"),
                ROW(CHUNKED("0\r\n: y\r\n\r\n"), "{POST /}!400"),
                /* Framing in a trailer must not be believed. */
                ROW(CHUNKED("0\r\nContent-Length: 5\r\n\r\n") REST, "{POST /}!400"),
                ROW(CHUNKED("0\r\nTransfer-Encoding: chunked\r\n\r\n") REST, "{POST /}!400"),
                ROW(CHUNKED("0\r\nConnection: close\r\n\r\n") REST, "{POST /}.{GET /next}."),
                ROW(CHUNKED("0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n") REST, "{POST /}.{GET /next}."),
                ROW(CHUNKED("0\r\nHost: b\r\n\r\n") REST, "{POST /}.{GET /next}."),
        };

        (void)state;
        CHECK(rows);
}

static void test_pipelining(void **state)
{
        static const agx_http1_row rows[] = {
                ROW(GET("") REST GET("A: b\r\n"), "{GET /}.{GET /next}.{GET /}."),
                ROW(POST("Content-Length: 3\r\n") "abc" CHUNKED("3\r\ndef\r\n0\r\n\r\n") REST,
                    "{POST /}[abc].{POST /}[def].{GET /next}."),
                ROW(POST("Content-Length: 3\r\n") "abcX" REST, "{POST /}[abc].!400"),
                ROW(GET("") "GET", "{GET /}.!eof"),
                ROW("", ""),
        };

        (void)state;
        CHECK(rows);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_method),       cmocka_unit_test(test_target),
                cmocka_unit_test(test_version),      cmocka_unit_test(test_line_ends),
                cmocka_unit_test(test_field_syntax), cmocka_unit_test(test_fields_come_out_whole),
                cmocka_unit_test(test_host),         cmocka_unit_test(test_connection),
                cmocka_unit_test(test_length),       cmocka_unit_test(test_two_framings),
                cmocka_unit_test(test_chunks),       cmocka_unit_test(test_trailers),
                cmocka_unit_test(test_pipelining),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
