/*
 * A tunnel's HTTP side: for each row a request and what must come of it, fed whole, byte by byte and at every cut. What goes to
 * the host is written down as "<path?query body>", and answered with its own body.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/tunnel_conn.h"
#include "support/guard.h"

#define HOST "Host: evil.example\r\n"
#define JSON "Content-Type: application/json\r\n"

typedef struct row {
        const char *name;
        const char *input;
        const char *asked;
        const char *answer; /* what the output begins with; ends with, behind a '~' */
        bool closed;
} row;

enum { OUT_MAX = 1 << 20 };

typedef struct rig {
        agx_tunnel tunnel;
        agx_tunnel_conn conn;
        agx_buf out, asked, body;
        bool closed, streamed, hold;
} rig;

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        r->tunnel.window_ms = 5000;
        r->tunnel.paths = AGX_BUF_NULL(100);
        assert_int_equal(agx_buf_append(&r->tunnel.paths, "/m\0/n", 6), 0);
        r->out = r->asked = r->body = AGX_BUF_NULL(OUT_MAX);
        assert_int_equal(agx_tunnel_conn_init(&r->conn, &r->tunnel, &r->out, 0), 0);
}

static void rig_close(rig *r)
{
        agx_tunnel_conn_deinit(&r->conn);
        agx_buf_deinit(&r->out);
        agx_buf_deinit(&r->asked);
        agx_buf_deinit(&r->body);
        agx_buf_deinit(&r->tunnel.paths);
}

static void answer(rig *r)
{
        agx_tunnel_reply reply = {.status = 200, .media_type = AGX_VIEW("text/plain"), .body = agx_buf_view(&r->body)};

        assert_int_equal(agx_buf_append_view(&r->asked, agx_buf_view(&r->body)), 0);
        assert_int_equal(agx_buf_append_view(&r->asked, AGX_VIEW(">")), 0);
        if (!r->hold)
                assert_int_equal(agx_tunnel_conn_reply(&r->conn, 0, &reply, !r->streamed), 0);
        if (r->streamed && !r->hold) {
                assert_int_equal(agx_tunnel_conn_piece(&r->conn, 0, reply.body, false), 0);
                assert_int_equal(agx_tunnel_conn_piece(&r->conn, 0, AGX_VIEW(""), true), 0);
        }
        agx_buf_clear(&r->body);
}

static void feed(rig *r, agx_view in)
{
        agx_tunnel_conn_event e;

        do {
                assert_int_equal(agx_tunnel_conn_next(&r->conn, 0, &in, &e), 0);
                if (e.kind == AGX_TUNNEL_CONN_ASK)
                        assert_int_equal(agx_buf_printf(&r->asked, "<%.*s %.*s?%.*s ", (int)e.head->method.n,
                                                        e.head->method.p, (int)e.path.n, e.path.p, (int)e.query.n,
                                                        e.query.p),
                                         0);
                if (e.kind == AGX_TUNNEL_CONN_ASK || e.kind == AGX_TUNNEL_CONN_BODY) {
                        assert_int_equal(agx_buf_append_view(&r->body, e.body), 0);
                        if (e.last)
                                answer(r);
                }
                r->closed |= e.kind == AGX_TUNNEL_CONN_CLOSE;
        } while (e.kind == AGX_TUNNEL_CONN_ASK || e.kind == AGX_TUNNEL_CONN_BODY);
}

static bool ends_with(agx_view text, const char *end)
{
        size_t n = strlen(end);

        return text.n >= n && !memcmp(text.p + text.n - n, end, n);
}

static void judge(rig *r, const row *t)
{
        agx_view out = agx_buf_view(&r->out), asked = agx_buf_view(&r->asked);
        const char *tail = strchr(t->answer, '~');
        size_t n = tail ? (size_t)(tail - t->answer) : strlen(t->answer);
        bool ok = agx_view_eq(asked, agx_view_str(t->asked)) && out.n >= n && !memcmp(out.p, t->answer, n) &&
                  (!tail || ends_with(out, tail + 1)) && r->closed == t->closed;

        if (!ok)
                print_error("%s:\n%.*s\n---\n%.*s\n(closed: %d)\n", t->name, (int)asked.n, asked.p, (int)out.n, out.p,
                            r->closed);
        assert_true(ok);
}

static const row rows[] = {
        {"get", "GET /m HTTP/1.1\r\n" HOST "\r\n", "<GET /m? >",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n\r\n", false},
        {"query", "DELETE /n?beta=true&x HTTP/1.1\r\n" HOST "\r\n", "<DELETE /n?beta=true&x >", "HTTP/1.1 200 OK",
         false},
        {"absolute", "GET http://h/m?q HTTP/1.1\r\nHost: h\r\n\r\n", "<GET /m?q >", "HTTP/1.1 200 OK", false},
        {"length", "POST /m HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello", "<POST /m? hello>",
         "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello", false},
        {"chunked", "POST /m HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
         "<POST /m? hello>", "HTTP/1.1 200 OK~\r\n\r\nhello", false},
        {"head", "HEAD /m HTTP/1.1\r\n" HOST "\r\n", "<HEAD /m? >", "HTTP/1.1 200 OK~Content-Length: 0\r\n\r\n", false},
        {"pipelined", "GET /m HTTP/1.1\r\n" HOST "\r\nGET /n HTTP/1.1\r\n" HOST "\r\n", "<GET /m? ><GET /n? >",
         "HTTP/1.1 200 OK", false},
        {"close", "GET /m HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", "<GET /m? >",
         "HTTP/1.1 200 OK~Connection: close\r\n\r\n", true},
        {"http/1.0", "GET /m HTTP/1.0\r\n\r\n", "<GET /m? >", "HTTP/1.1 200 OK~Connection: close\r\n\r\n", true},
        {"health", "GET /_health HTTP/1.1\r\n" HOST "\r\n", "",
         "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}", false},
        {"health head", "HEAD /_health HTTP/1.1\r\n" HOST "\r\n", "", "HTTP/1.1 200 OK~Content-Length: 15\r\n\r\n",
         false},
        {"unknown", "GET /x HTTP/1.1\r\n" HOST "\r\nGET /m HTTP/1.1\r\n" HOST "\r\n", "<GET /m? >",
         "HTTP/1.1 404 Not Found\r\n" JSON "Content-Length: ", false},
        {"unknown, its body dropped",
         "POST /x HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n{}GET /m HTTP/1.1\r\n" HOST "\r\n", "<GET /m? >",
         "HTTP/1.1 404 Not Found", false},
        {"unknown, a long body", "POST /x HTTP/1.1\r\n" HOST "Content-Length: 999999\r\n\r\n{}", "",
         "HTTP/1.1 404 Not Found~\"error\":{\"type\":\"not_found_error\",\"message\":\"there is no handler for this "
         "path\"}}",
         true},
        {"a double slash is another path", "GET //m HTTP/1.1\r\n" HOST "\r\n", "", "HTTP/1.1 404", false},
        {"a slash behind is another path", "GET /m/ HTTP/1.1\r\n" HOST "\r\n", "", "HTTP/1.1 404", false},
        {"head of an unknown", "HEAD / HTTP/1.1\r\n" HOST "\r\n", "", "HTTP/1.1 404~\r\n\r\n", false},
        {"a web page", "POST /m HTTP/1.1\r\n" HOST "Origin: http://evil\r\nContent-Length: 0\r\n\r\n", "",
         "HTTP/1.1 403", false},
        {"a web page, reading", "GET /m HTTP/1.1\r\n" HOST "Sec-Fetch-Site: cross-site\r\n\r\n", "", "HTTP/1.1 403",
         false},
        {"continue", "POST /m HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab", "<POST /m? ab>",
         "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", false},
        {"another expectation", "POST /m HTTP/1.1\r\n" HOST "Expect: x\r\nContent-Length: 2\r\n\r\nab", "",
         "HTTP/1.1 417", false},
        {"malformed", "GET\r\n\r\n", "", "HTTP/1.1 400", true},
        {"two framings", "POST /m HTTP/1.1\r\n" HOST "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", "",
         "HTTP/1.1 400", true},
};

static void each_row_at_every_cut(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                size_t n = strlen(rows[i].input);
                uint8_t *text = agx_guard_new(rows[i].input, n);
                rig r;

                for (size_t cut = 0; cut <= n; ++cut) {
                        rig_open(&r);
                        feed(&r, agx_view_of(text, cut));
                        if (!r.closed)
                                feed(&r, agx_view_of(text + cut, n - cut));
                        judge(&r, &rows[i]);
                        rig_close(&r);
                }
                rig_open(&r);
                for (size_t at = 0; at < n && !r.closed; ++at)
                        feed(&r, agx_view_of(text + at, 1));
                judge(&r, &rows[i]);
                rig_close(&r);
                agx_guard_free(text, n);
        }
}

static void assert_out(rig *r, const char *text)
{
        agx_view out = agx_buf_view(&r->out);

        if (!agx_view_eq(out, agx_view_str(text)))
                print_error("%.*s\n", (int)out.n, out.p);
        assert_true(agx_view_eq(out, agx_view_str(text)));
        agx_buf_clear(&r->out);
}

static void streams_are_chunked(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        r.streamed = true;
        feed(&r, AGX_VIEW("POST /m HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nab"));
        assert_out(&r, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
                       "2\r\nab\r\n0\r\n\r\n");
        feed(&r, AGX_VIEW("HEAD /m HTTP/1.1\r\n" HOST "\r\n"));
        assert_out(&r, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
        feed(&r, AGX_VIEW("POST /m HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab"));
        assert_out(&r, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nab");
        assert_int_equal(r.conn.state, AGX_TUNNEL_CONN_CLOSING);
        rig_close(&r);
}

static void headers_of_the_connection_are_not_the_hosts(void **state)
{
        agx_tunnel_reply reply = {.status = 204,
                                  .media_type = AGX_VIEW(""),
                                  .headers = AGX_VIEW("\xa1"
                                                      "A\xa1"
                                                      "b\xaa"
                                                      "connection\xa1x\xa3x y\xa1z\xa2"
                                                      "xx\xa3"
                                                      "a\r\nb")};
        rig r;

        (void)state;
        /* a map's items: A: b, connection: x, "x y": z, and a value with an end of line in it */
        reply.headers = AGX_VIEW("\xa1"
                                 "A"
                                 "\xa1"
                                 "b"
                                 "\xaa"
                                 "connection"
                                 "\xa1"
                                 "x"
                                 "\xa3"
                                 "x y"
                                 "\xa1"
                                 "z"
                                 "\xa2"
                                 "xx"
                                 "\xa4"
                                 "a\r\nb");
        rig_open(&r);
        r.hold = true;
        feed(&r, AGX_VIEW("GET /m HTTP/1.1\r\n" HOST "\r\n"));
        assert_int_equal(agx_tunnel_conn_reply(&r.conn, 0, &reply, true), 0);
        assert_out(&r, "HTTP/1.1 204 No Content\r\nA: b\r\n\r\n");
        rig_close(&r);
}

static void time_runs_out(void **state)
{
        agx_tunnel_reply reply = {.status = 200, .media_type = AGX_VIEW("text/plain")};
        agx_tunnel_conn_event e;
        agx_view none = AGX_VIEW("");
        rig r;

        (void)state;
        rig_open(&r);
        r.hold = true;
        feed(&r, AGX_VIEW("GET /m HTTP/1.1\r\n" HOST "\r\n"));
        assert_int_equal(agx_tunnel_conn_deadline(&r.conn), 5000);
        assert_int_equal(agx_tunnel_conn_tick(&r.conn, 5000), 0);
        assert_memory_equal(agx_buf_view(&r.out).p, "HTTP/1.1 504", 12);
        assert_int_equal(r.conn.state, AGX_TUNNEL_CONN_IDLE);
        agx_buf_clear(&r.out);
        feed(&r, AGX_VIEW("GET /m HTTP/1.1\r\n" HOST "\r\n"));
        assert_int_equal(agx_tunnel_conn_reply(&r.conn, 100, &reply, false), 0);
        assert_int_equal(agx_tunnel_conn_deadline(&r.conn), 5100);
        assert_int_equal(agx_tunnel_conn_piece(&r.conn, 2000, AGX_VIEW("x"), false), 0);
        assert_int_equal(agx_tunnel_conn_deadline(&r.conn), 7000);
        agx_buf_clear(&r.out);
        assert_int_equal(agx_tunnel_conn_tick(&r.conn, 7000), 0);
        assert_out(&r, "");
        assert_int_equal(agx_tunnel_conn_next(&r.conn, 7000, &none, &e), 0);
        assert_int_equal(e.kind, AGX_TUNNEL_CONN_CLOSE);
        rig_close(&r);

        rig_open(&r);
        feed(&r, AGX_VIEW("GET /m HT"));
        assert_int_equal(agx_tunnel_conn_deadline(&r.conn), AGX_HTTP_HEAD_MS);
        assert_int_equal(agx_tunnel_conn_tick(&r.conn, AGX_HTTP_HEAD_MS), 0);
        assert_memory_equal(agx_buf_view(&r.out).p, "HTTP/1.1 408", 12);
        assert_int_equal(r.conn.state, AGX_TUNNEL_CONN_CLOSING);
        rig_close(&r);
}

/* The answer may come while the request still does; then the connection ends with it. */
static void an_answer_may_come_early(void **state)
{
        agx_tunnel_reply reply = {.status = 413, .media_type = AGX_VIEW("text/plain"), .body = AGX_VIEW("no")};
        rig r;

        (void)state;
        rig_open(&r);
        r.hold = true;
        feed(&r, AGX_VIEW("POST /m HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nab"));
        assert_int_equal(r.conn.state, AGX_TUNNEL_CONN_ASKING);
        assert_int_equal(agx_tunnel_conn_reply(&r.conn, 0, &reply, true), 0);
        assert_out(&r, "HTTP/1.1 413 Content Too Large\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n"
                       "Connection: close\r\n\r\nno");
        assert_int_equal(r.conn.state, AGX_TUNNEL_CONN_CLOSING);
        rig_close(&r);
}

static void a_large_body_comes_in_pieces(void **state)
{
        static char body[300000];
        agx_tunnel_conn_event e;
        size_t got = 0, pieces = 0;
        agx_buf all = AGX_BUF_NULL(1 << 20);
        agx_view in;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_buf_printf(&all, "POST /m HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", sizeof(body)),
                         0);
        assert_int_equal(agx_buf_append(&all, body, sizeof(body)), 0);
        in = agx_buf_view(&all);
        do {
                assert_int_equal(agx_tunnel_conn_next(&r.conn, 0, &in, &e), 0);
                assert_true(e.body.n <= AGX_TUNNEL_CHUNK);
                got += e.body.n;
                ++pieces;
        } while (!e.last);
        assert_int_equal(got, sizeof(body));
        assert_true(pieces > 4);
        agx_buf_deinit(&all);
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_row_at_every_cut),
                cmocka_unit_test(streams_are_chunked),
                cmocka_unit_test(headers_of_the_connection_are_not_the_hosts),
                cmocka_unit_test(time_runs_out),
                cmocka_unit_test(an_answer_may_come_early),
                cmocka_unit_test(a_large_body_comes_in_pieces),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
