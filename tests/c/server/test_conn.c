/*
 * The connection brain: for each row a request and what must come of it, fed whole, byte by byte and at every cut. What
 * happened is written down as text: responses as "[status fields|body]", submitted calls as "<id callable arguments>".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "proto/proof.h"
#include "server/conn.h"
#include "support/guard.h"
#include "support/oom.h"
#include "wire/base64url.h"

#define BODY                                                                                                           \
        "\x83\xa7"                                                                                                     \
        "call_id\xa3"                                                                                                  \
        "s-1\xa8"                                                                                                      \
        "callable\xa3"                                                                                                 \
        "m::\xa9"                                                                                                      \
        "arguments\xc4\x02"                                                                                            \
        "AB"
#define BODY_N "40"
#define MSGPACK "Content-Type: application/msgpack\r\n"
#define HOST "Host: localhost\r\n"
#define SIO(method, query) method " /socket.io/?" query " HTTP/1.1\r\n" HOST
#define CALL "POST /call HTTP/1.1\r\n" HOST MSGPACK

typedef struct row {
        const char *name;
        const char *token; /* NULL: none is set */
        const char *input;
        size_t input_n; /* 0: a text */
        const char *expected;
} row;

enum { OUT_MAX = 1 << 20, LOG_MAX = 1 << 20 };

typedef struct rig {
        agx_site site;
        agx_buf out;
        agx_buf log;
        agx_buf rest; /* input that waits for an answer */
        agx_conn conn;
        bool closed;
        uint64_t now;
} rig;

static void rig_open(rig *r, const char *token)
{
        memset(r, 0, sizeof(*r));
        agx_auth_init(&r->site.auth);
        r->site.version = AGX_VIEW("1.2.3");
        r->site.instance = AGX_VIEW("cafe");
        if (token)
                assert_int_equal(agx_auth_set_token(&r->site.auth, agx_view_str(token)), 0);
        assert_int_equal(agx_auth_set_hosts(&r->site.auth, AGX_VIEW("box.example")), 0);
        assert_int_equal(agx_auth_set_origins(&r->site.auth, AGX_VIEW("http://app.example")), 0);
        r->out = AGX_BUF_NULL(OUT_MAX);
        r->log = AGX_BUF_NULL(LOG_MAX);
        r->rest = AGX_BUF_NULL(OUT_MAX);
        r->now = 1000;
        assert_int_equal(agx_conn_init(&r->conn, &r->site, &r->out, r->now), 0);
}

static void rig_close(rig *r)
{
        agx_conn_deinit(&r->conn);
        agx_conn_deinit(&r->conn);
        agx_auth_deinit(&r->site.auth);
        agx_buf_deinit(&r->out);
        agx_buf_deinit(&r->log);
        agx_buf_deinit(&r->rest);
}

static void log_submit(rig *r)
{
        const agx_call_request *q = &r->conn.request;

        agx_buf_printf(&r->log, "<%.*s %.*s %.*s", (int)q->call_id.n, q->call_id.p, (int)q->callable.n,
                       q->callable.p ? q->callable.p : "", (int)q->arguments.n, q->arguments.p ? q->arguments.p : "");
        if (r->conn.session.p)
                agx_buf_printf(&r->log, " session=%.*s", (int)r->conn.session.n, r->conn.session.p);
        agx_buf_printf(&r->log, " wait=%llu>", (unsigned long long)r->conn.wait_ms);
}

static void log_sio(rig *r)
{
        const agx_conn_sio *q = &r->conn.sio;

        agx_buf_printf(&r->log, "<%s %s sid=%.*s %.*s>", q->post ? "POST" : "GET",
                       q->websocket ? "websocket" : "polling", (int)q->sid.n, q->sid.p ? q->sid.p : "", (int)q->body.n,
                       q->body.p ? q->body.p : "");
}

static void answer(rig *r)
{
        if (r->conn.route == AGX_ROUTE_CONDUIT) {
                assert_int_equal(agx_conn_reply_unavailable(&r->conn, r->now), 0);
                return;
        }
        if (r->conn.route == AGX_ROUTE_SIO)
                assert_int_equal(agx_conn_reply_payload(&r->conn, r->now, 2), 0);
        else
                assert_int_equal(agx_conn_reply_result(&r->conn, r->now, true, 2), 0);
        assert_int_equal(agx_buf_append(&r->out, "OK", 2), 0);
}

/* Moves responses from `out` into the log; heads are shortened to status and telling fields. */
static void log_responses(rig *r)
{
        static const char *const telling[] = {"Connection", "Preference-Applied", "Location", "Allow",
                                              "WWW-Authenticate"};
        agx_view all = agx_buf_view(&r->out);

        while (all.n) {
                const char *end = memmem(all.p, all.n, "\r\n\r\n", 4);
                agx_view head = agx_view_of(all.p, (size_t)(end - all.p)), line;
                size_t body = 0;

                assert_non_null(end);
                all = agx_view_from(all, head.n + 4);
                agx_view_split(&head, '\n', &line);
                agx_buf_printf(&r->log, "[%.3s", line.p + 9);
                while (agx_view_split(&head, '\n', &line)) {
                        agx_view value = line, name;

                        agx_view_split(&value, ':', &name);
                        value = agx_view_trim(
                                agx_view_of(value.p, value.n - (value.n && value.p[value.n - 1] == '\r')));
                        if (agx_view_eq(name, AGX_VIEW("Content-Length")))
                                body = (size_t)strtoul(value.p, NULL, 10);
                        for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++)
                                if (agx_view_eq(name, agx_view_str(telling[i])))
                                        agx_buf_printf(&r->log, " %.*s=%.*s", (int)name.n, name.p, (int)value.n,
                                                       value.p);
                }
                body = body < all.n ? body : all.n; /* of a HEAD request: none */
                agx_buf_append_view(&r->log, AGX_VIEW("|"));
                for (size_t i = 0; i < body; i++)
                        if (all.p[i] >= ' ' && all.p[i] < 0x7f)
                                agx_buf_append(&r->log, all.p + i, 1);
                agx_buf_append_view(&r->log, AGX_VIEW("]"));
                all = agx_view_from(all, body);
        }
        agx_buf_clear(&r->out);
}

/* Feeds what waits and then `bytes`; a submitted call is answered with the value "OK" when all input is in. */
static void feed(rig *r, const char *bytes, size_t n)
{
        uint8_t *guarded;
        agx_view in;
        agx_conn_wish wish = AGX_CONN_NONE;
        size_t all;

        if (r->closed)
                return;
        assert_int_equal(agx_buf_append(&r->rest, bytes, n), 0);
        all = r->rest.len;
        guarded = agx_guard_new(r->rest.data ? r->rest.data + r->rest.head : (const uint8_t *)"", all);
        in = agx_view_of(guarded, all);
        while (wish != AGX_CONN_INPUT && wish != AGX_CONN_CLOSE) {
                assert_int_equal(agx_conn_next(&r->conn, r->now, &in, &wish), 0);
                if (wish == AGX_CONN_SUBMIT) {
                        log_responses(r);
                        log_submit(r);
                }
                if (wish == AGX_CONN_SIO) {
                        log_responses(r);
                        log_sio(r);
                }
                if (wish == AGX_CONN_CONDUIT) {
                        log_responses(r);
                        agx_buf_printf(&r->log, "<conduit %.*s>", (int)r->conn.conduit.n, r->conn.conduit.p);
                }
                if (wish == AGX_CONN_WAIT)
                        answer(r);
        }
        agx_buf_consume(&r->rest, all - in.n);
        log_responses(r);
        if (wish == AGX_CONN_CLOSE) {
                r->closed = true;
                agx_buf_append_view(&r->log, AGX_VIEW("close"));
        }
        agx_guard_free(guarded, all);
}

#define NAME "0123456789abcdef0123456789abcdef"
#define CONDUIT(query) "GET /conduit" query " HTTP/1.1\r\n" HOST
#define TO_CONDUIT "Connection: Upgrade\r\nUpgrade: agentix-conduit\r\n"

static const row rows[] = {
        /* conduits */
        {"a conduit", NULL, CONDUIT("?name=" NAME) TO_CONDUIT "\r\n", 0,
         "<conduit " NAME ">[503 Connection=close|Service Unavailable]close"},
        {"a conduit with its token", "secret",
         CONDUIT("?name=" NAME) "Authorization: Bearer secret\r\n" TO_CONDUIT "\r\n", 0,
         "<conduit " NAME ">[503 Connection=close|Service Unavailable]close"},
        {"a conduit without its token", "secret", CONDUIT("?name=" NAME) TO_CONDUIT "\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"a conduit for a stranger's page", NULL,
         CONDUIT("?name=" NAME) "Origin: http://evil.example\r\n" TO_CONDUIT "\r\n", 0,
         "[403 Connection=close|this Origin is not allowed]close"},
        {"a conduit under another name of the server", NULL,
         "GET /conduit?name=" NAME " HTTP/1.1\r\nHost: evil.example\r\n" TO_CONDUIT "\r\n", 0,
         "[403 Connection=close|this Host is not allowed]close"},
        {"a conduit without an upgrade", NULL, CONDUIT("?name=" NAME) "\r\n", 0,
         "[400|an Upgrade to agentix-conduit was expected]"},
        {"an upgrade to something else", NULL,
         CONDUIT("?name=" NAME) "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 0,
         "[400 Connection=close|an Upgrade to agentix-conduit was expected]close"},
        {"a conduit without a name", NULL, CONDUIT("") TO_CONDUIT "\r\n", 0,
         "[400 Connection=close|a conduit has a name, and no body]close"},
        {"a conduit with a strange name", NULL, CONDUIT("?name=0123456789abcdef0123456789abcdeF") TO_CONDUIT "\r\n", 0,
         "[400 Connection=close|a conduit has a name, and no body]close"},
        {"a conduit by POST", NULL, "POST /conduit?name=" NAME " HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0,
         "[405 Allow=GET|Method Not Allowed]"},

        /* /health */
        {"health", NULL, "GET /health HTTP/1.1\r\n" HOST "\r\n", 0,
         "[200|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}]"},
        {"health with a query", NULL, "GET /health?x=1 HTTP/1.1\r\n" HOST "\r\n", 0,
         "[200|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}]"},
        {"health, absolute form", NULL, "GET http://localhost/health HTTP/1.1\r\n" HOST "\r\n", 0,
         "[200|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}]"},
        {"health by HEAD", NULL, "HEAD /health HTTP/1.1\r\n" HOST "\r\n", 0, "[200|]"},
        {"health with a body", NULL,
         "GET /health HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET /x HTTP/1.1\r\n" HOST "\r\n", 0,
         "[200|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}][404|Not Found]"},
        {"health asked to close", NULL, "GET /health HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n", 0,
         "[200 Connection=close|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}]close"},
        {"HTTP/1.0 closes", NULL, "GET /nothing HTTP/1.0\r\n\r\n", 0, "[404 Connection=close|Not Found]close"},
        {"HTTP/1.0 may keep", NULL, "GET /nothing HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0,
         "[404 Connection=keep-alive|Not Found]"},
        {"an upgrade is not honoured", NULL,
         "GET /nothing HTTP/1.1\r\n" HOST "Connection: upgrade\r\nUpgrade: h2c\r\n\r\nrest", 0,
         "[404 Connection=close|Not Found]close"},

        /* calls */
        {"a call", NULL, CALL "Content-Length: " BODY_N "\r\n\r\n" BODY, 0,
         "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"a chunked call", NULL,
         CALL "Transfer-Encoding: chunked\r\n\r\n10;a=b\r\n\x83\xa7"
              "call_id\xa3"
              "s-1\xa8"
              "ca\r\n18\r\nllable\xa3"
              "m::\xa9"
              "arguments\xc4\x02"
              "AB\r\n0\r\nTrailer: x\r\n\r\n",
         0, "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"preferences and session", NULL,
         CALL "Prefer: respond-async, wait=0.25\r\nAgentix-Session: abc\r\nContent-Length: " BODY_N "\r\n\r\n" BODY, 0,
         "<s-1 m:: AB session=abc wait=250>[200 Preference-Applied=wait=0.25|okvalueOK]"},
        {"content type with parameters", NULL,
         "POST /call HTTP/1.1\r\n" HOST "Content-Type: Application/MsgPack; v=1\r\nContent-Length: " BODY_N
         "\r\n\r\n" BODY,
         0, "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"expect", NULL, CALL "Expect: 100-continue\r\nContent-Length: " BODY_N "\r\n\r\n" BODY, 0,
         "[100|]<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"pipelined", NULL,
         CALL "Content-Length: " BODY_N "\r\n\r\n" BODY "GET /x HTTP/1.1\r\n" HOST "\r\n" CALL "Content-Length: " BODY_N
              "\r\n\r\n" BODY,
         0,
         "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK][404|Not Found]"
         "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"neither callable nor arguments", NULL,
         CALL "Content-Length: 13\r\n\r\n\x81\xa7"
              "call_id\xa3"
              "s-1",
         0, "<s-1   wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},

        /* refused bodies */
        {"an empty body", NULL, CALL "Content-Length: 0\r\n\r\n", 0, NULL},
        {"not a map", NULL, CALL "Content-Length: 1\r\n\r\n\x90", 0, NULL},
        {"a byte too many", NULL, CALL "Content-Length: 41\r\n\r\n" BODY "x", 0, NULL},
        {"an id that is not a str", NULL,
         CALL "Content-Length: 13\r\n\r\n\x81\xa7"
              "call_id\xc4\x02"
              "s1",
         0, NULL},
        {"an empty id", NULL,
         CALL "Content-Length: 10\r\n\r\n\x81\xa7"
              "call_id\xa0",
         0, NULL},
        {"invalid UTF-8", NULL,
         CALL "Content-Length: 11\r\n\r\n\x81\xa7"
              "call_id\xa1\xff",
         0, NULL},
        {"a deep nest", NULL,
         CALL "Content-Length: 100\r\n\r\n"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91"
              "\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91\x91",
         0, NULL},

        /* refused requests */
        {"another type", NULL,
         "POST /call HTTP/1.1\r\n" HOST
         "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\nabGET /x HTTP/1.1\r\n" HOST "\r\n",
         0, "[415|the content type must be application/msgpack][404|Not Found]"},
        {"no type", NULL, "POST /call HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0,
         "[415|the content type must be application/msgpack]"},
        /* /socket.io/ */
        {"a poll", NULL, SIO("GET", "EIO=4&transport=polling") "\r\n", 0, "<GET polling sid= >[200|OK]"},
        {"a poll of a session", NULL, SIO("GET", "transport=polling&EIO=4&sid=ab&t=1") "\r\n", 0,
         "<GET polling sid=ab >[200|OK]"},
        {"a payload", NULL,
         SIO("POST", "EIO=4&transport=polling&sid=ab") "Content-Length: 3\r\n\r\n40/GET /x HTTP/1.1\r\n" HOST "\r\n", 0,
         "<POST polling sid=ab 40/>[200|OK][404|Not Found]"},
        {"a payload in chunks", NULL,
         SIO("POST",
             "EIO=4&transport=polling&sid=ab") "Transfer-Encoding: chunked\r\n\r\n2\r\n40\r\n1\r\n/\r\n0\r\n\r\n",
         0, "<POST polling sid=ab 40/>[200|OK]"},
        {"another Engine.IO", NULL, SIO("GET", "EIO=3&transport=polling") "\r\n", 0, "[400|only EIO=4 is spoken here]"},
        {"no query", NULL, "GET /socket.io/ HTTP/1.1\r\n" HOST "\r\n", 0, "[400|only EIO=4 is spoken here]"},
        {"another transport", NULL, SIO("GET", "EIO=4&transport=pigeon") "\r\n", 0, "[400|an unknown transport]"},
        {"a payload for nobody", NULL, SIO("POST", "EIO=4&transport=polling") "Content-Length: 0\r\n\r\n", 0,
         "[400|a POST without a session]"},
        {"another method for Socket.IO", NULL, SIO("PUT", "EIO=4&transport=polling") "\r\n", 0,
         "[405 Allow=GET, POST|Method Not Allowed]"},
        {"Socket.IO without a token", "t0k", SIO("GET", "EIO=4&transport=polling") "\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"another method", NULL, "GET /call HTTP/1.1\r\n" HOST "\r\n", 0, "[405 Allow=POST|Method Not Allowed]"},
        {"health by POST", NULL, "POST /health HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0,
         "[405 Allow=GET, HEAD|Method Not Allowed]"},
        {"a call's own path", NULL, "GET /call/s-1 HTTP/1.1\r\n" HOST "\r\n", 0, "[404|Not Found]"},
        {"an old path", NULL, "POST /_remote HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", 0, "[404|Not Found]"},
        {"a large body to nowhere", NULL, "POST /x HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n", 0,
         "[404 Connection=close|Not Found]close"},
        {"a chunked body to nowhere", NULL, "POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 0,
         "[404 Connection=close|Not Found]close"},
        {"one who waits for 100 at nowhere", NULL,
         "POST /x HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", 0,
         "[404 Connection=close|Not Found]close"},
        {"another expectation", NULL, CALL "Expect: 200-ok\r\nContent-Length: 0\r\n\r\n", 0,
         "[417|Expectation Failed]"},
        {"a large body to health", NULL, "GET /health HTTP/1.1\r\n" HOST "Content-Length: 100000\r\n\r\n", 0,
         "[413 Connection=close|Content Too Large]close"},
        {"a bad session", NULL, CALL "Agentix-Session: a b\r\nContent-Length: 0\r\n\r\n", 0,
         "[400|a malformed Agentix-Session]"},
        {"two sessions", NULL, CALL "Agentix-Session: a\r\nAgentix-Session: b\r\nContent-Length: 0\r\n\r\n", 0,
         "[400|a malformed Agentix-Session]"},

        /* framing */
        {"two framings", NULL,
         CALL "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n16\r\nGET /health HTTP/1.1\r\n\r\n\r\n0\r\n\r\n",
         0, NULL},
        {"too large", NULL, CALL "Content-Length: 268435457\r\n\r\n", 0, NULL},
        {"an odd version", NULL, "GET / HTTP/2.0\r\n" HOST "\r\n", 0, NULL},
        {"not HTTP", NULL, "\x16\x03\x01\x02", 0, NULL},
        {"no host", NULL, "GET /health HTTP/1.1\r\n\r\n", 0, NULL},

        /* Host and Origin */
        {"a foreign host", NULL, "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 0,
         "[403|this Host is not allowed]"},
        {"a foreign host, absolute form", NULL, "GET http://evil.example/health HTTP/1.1\r\n" HOST "\r\n", 0,
         "[403|this Host is not allowed]"},
        {"a listed host", NULL, "GET /x HTTP/1.1\r\nHost: box.example:80\r\n\r\n", 0, "[404|Not Found]"},
        {"a foreign origin", NULL, "GET /health HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n", 0,
         "[403|this Origin is not allowed]"},
        {"no particular origin", NULL, "GET /health HTTP/1.1\r\n" HOST "Origin: null\r\n\r\n", 0,
         "[403|this Origin is not allowed]"},
        {"a listed origin", NULL, "GET /x HTTP/1.1\r\n" HOST "Origin: http://app.example\r\n\r\n", 0,
         "[404|Not Found]"},
        {"two origins", NULL,
         "GET /x HTTP/1.1\r\n" HOST "Origin: http://app.example\r\nOrigin: http://app.example\r\n\r\n", 0,
         "[403|this Origin is not allowed]"},

        /* the token */
        {"health needs none", "t0k", "GET /health HTTP/1.1\r\n" HOST "\r\n", 0,
         "[200|{\"status\": \"ok\", \"version\": \"1.2.3\", \"instance\": \"cafe\"}]"},
        {"a call needs one", "t0k", CALL "Content-Length: " BODY_N "\r\n\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"100-continue needs one", "t0k", CALL "Expect: 100-continue\r\nContent-Length: " BODY_N "\r\n\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"a wrong one", "t0k", CALL "Authorization: Bearer t0l\r\nContent-Length: " BODY_N "\r\n\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"two of them", "t0k",
         CALL "Authorization: Bearer t0k\r\nAuthorization: Bearer t0k\r\nContent-Length: 0\r\n\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"unknown paths need one", "t0k", "GET /x HTTP/1.1\r\n" HOST "\r\n", 0,
         "[401 Connection=close WWW-Authenticate=Bearer|a token is needed]close"},
        {"the right one", "t0k", CALL "Authorization: Bearer t0k\r\nContent-Length: " BODY_N "\r\n\r\n" BODY, 0,
         "<s-1 m:: AB wait=1000>[200 Preference-Applied=wait=1|okvalueOK]"},
        {"with it any host will do", "t0k",
         "GET /x HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer t0k\r\n\r\n", 0, "[404|Not Found]"},
        {"but not any origin", "t0k",
         "GET /x HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\nAuthorization: Bearer t0k\r\n\r\n", 0,
         "[403|this Origin is not allowed]"},
        {"a foreign host comes before the token", "t0k", "GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n", 0,
         "[403|this Host is not allowed]"},
};

/* What rows without an expectation must give: one refusal with the status of their kind, and nothing else. */
static void assert_refused(const row *given, const agx_buf *log)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(LOG_MAX);
        const char *all;
        bool large = strstr(given->input, "Content-Length: 268435457"), framing = strstr(given->input, "chunked");
        bool ok;

        assert_int_equal(agx_buf_append(&text, log->data + log->head, log->len), 0);
        assert_int_equal(agx_buf_append(&text, "", 1), 0);
        all = (const char *)text.data + text.head;
        if (large)
                ok = strstr(all, "[413 Connection=close") == all && strstr(all, "]close");
        else if (strstr(given->input, "HTTP/2.0"))
                ok = strstr(all, "[505 Connection=close") == all && strstr(all, "]close");
        else if (framing || strncmp(given->input, "POST", 4) != 0)
                ok = strstr(all, "[400 Connection=close") == all && strstr(all, "]close") && !strstr(all, "200");
        else
                ok = strstr(all, "[400|") == all && strstr(all, "BadRequest") && !strstr(all, "close");
        if (!ok)
                fail_msg("%s: %s", given->name, all);
}

static void check(const row *given, rig *r)
{
        size_t n = given->expected ? strlen(given->expected) : 0;

        if (!given->expected)
                assert_refused(given, &r->log);
        else if (r->log.len != n || memcmp(r->log.data + r->log.head, given->expected, n) != 0)
                fail_msg("%s: %.*s", given->name, (int)r->log.len, (const char *)r->log.data + r->log.head);
}

static void rows_hold_at_every_split(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                size_t n = rows[i].input_n ? rows[i].input_n : strlen(rows[i].input);

                for (size_t cut = 0; cut <= n; cut++) {
                        rig r;

                        rig_open(&r, rows[i].token);
                        feed(&r, rows[i].input, cut);
                        feed(&r, rows[i].input + cut, n - cut);
                        check(&rows[i], &r);
                        rig_close(&r);
                }
                for (size_t step = 1; step < 3; step++) {
                        rig r;

                        rig_open(&r, rows[i].token);
                        for (size_t at = 0; at < n; at += step)
                                feed(&r, rows[i].input + at, at + step < n ? step : n - at);
                        check(&rows[i], &r);
                        rig_close(&r);
                }
        }
}

/* ---- time ---- */

static void feed_text(rig *r, const char *text)
{
        feed(r, text, strlen(text));
}

static void assert_tick(rig *r, uint64_t at, agx_conn_wish wish, const char *log)
{
        agx_conn_wish got;

        assert_int_equal(agx_conn_deadline(&r->conn), at);
        assert_int_equal(agx_conn_tick(&r->conn, at - 1, &got), 0);
        assert_int_equal(got, AGX_CONN_NONE);
        assert_int_equal(agx_conn_tick(&r->conn, at, &got), 0);
        assert_int_equal(got, wish);
        agx_buf_clear(&r->log);
        log_responses(r);
        assert_int_equal(r->log.len, strlen(log));
        assert_memory_equal(r->log.data ? r->log.data + r->log.head : (const uint8_t *)"", log, r->log.len);
}

static void a_silent_connection_is_closed_without_a_word(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        assert_tick(&r, 1000 + AGX_HTTP_FIRST_MS, AGX_CONN_CLOSE, "");
        rig_close(&r);
}

static void a_slow_head_does_not_move_its_deadline(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        r.now = 5000;
        feed_text(&r, "GET /health HTTP/1.1\r\n");
        r.now = 9000;
        feed_text(&r, HOST);
        assert_tick(&r, 1000 + AGX_HTTP_FIRST_MS, AGX_CONN_CLOSE, "[408 Connection=close|Request Timeout]");
        rig_close(&r);
}

static void a_later_head_has_its_own_time(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        feed_text(&r, "GET /x HTTP/1.1\r\n" HOST "\r\n");
        assert_int_equal(agx_conn_deadline(&r.conn), 1000 + AGX_HTTP_IDLE_MS);
        r.now = 50000;
        feed_text(&r, "G");
        r.now = 51000;
        feed_text(&r, "ET ");
        assert_tick(&r, 50000 + AGX_HTTP_HEAD_MS, AGX_CONN_CLOSE, "[408 Connection=close|Request Timeout]");
        rig_close(&r);
}

static void an_idle_connection_is_closed(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        feed_text(&r, "GET /x HTTP/1.1\r\n" HOST "\r\n");
        assert_tick(&r, 1000 + AGX_HTTP_IDLE_MS, AGX_CONN_CLOSE, "");
        rig_close(&r);
}

static void idle_is_counted_from_the_last_byte_sent(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        agx_conn_drained(&r.conn, 9000); /* nothing was sent yet */
        assert_int_equal(agx_conn_deadline(&r.conn), 1000 + AGX_HTTP_FIRST_MS);
        feed_text(&r, "GET /x HTTP/1.1\r\n" HOST "\r\n");
        agx_conn_drained(&r.conn, 60000);
        assert_tick(&r, 60000 + AGX_HTTP_IDLE_MS, AGX_CONN_CLOSE, "");
        rig_close(&r);
}

static void a_body_must_keep_its_rate(void **state)
{
        char part[2048];
        rig r;

        (void)state;
        memset(part, 'x', sizeof(part));
        rig_open(&r, NULL);
        r.now = 2000;
        feed_text(&r, CALL "Content-Length: 100000\r\n\r\n");
        assert_int_equal(agx_conn_deadline(&r.conn), 2000 + AGX_HTTP_BODY_GRACE_MS);
        r.now = 11999;
        feed(&r, part, sizeof(part));
        assert_tick(&r, 2000 + AGX_HTTP_BODY_GRACE_MS + 2000, AGX_CONN_CLOSE, "[408 Connection=close|Request Timeout]");
        rig_close(&r);
}

static void time_spent_unread_is_forgiven(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        agx_conn_forgive(&r.conn, 500); /* nothing has begun */
        assert_int_equal(agx_conn_deadline(&r.conn), 1000 + AGX_HTTP_FIRST_MS);
        feed_text(&r, CALL "Content-Length: 100000\r\n\r\n");
        agx_conn_forgive(&r.conn, 5000);
        assert_int_equal(agx_conn_deadline(&r.conn), 6000 + AGX_HTTP_BODY_GRACE_MS);
        feed(&r, "xx", 2);
        assert_tick(&r, 6000 + AGX_HTTP_BODY_GRACE_MS + 1, AGX_CONN_CLOSE, "[408 Connection=close|Request Timeout]");
        rig_close(&r);
}

static void patience_ends_in_202(void **state)
{
        agx_conn_wish wish;
        agx_view in = agx_view_str(CALL "Prefer: wait=2\r\nContent-Length: " BODY_N "\r\n\r\n" BODY);
        rig r;

        (void)state;
        rig_open(&r, NULL);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_SUBMIT);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_WAIT);
        assert_tick(&r, 1000 + 2000, AGX_CONN_LATE, "");
        assert_int_equal(agx_conn_reply_accepted(&r.conn, 3000, AGX_VIEW("a/b \xc3\xa9~")), 0);
        log_responses(&r);
        assert_int_equal(agx_buf_append(&r.log, "", 1), 0);
        assert_non_null(strstr((char *)r.log.data,
                               "[202 Preference-Applied=wait=2 Location=/call/a%2Fb%20%C3%A9~|call_ida/b ~]"));
        in = AGX_VIEW("");
        assert_int_equal(agx_conn_next(&r.conn, 3000, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_INPUT);
        assert_int_equal(agx_conn_deadline(&r.conn), 3000 + AGX_HTTP_IDLE_MS);
        rig_close(&r);
}

/* ---- the rest ---- */

static void the_server_proves_itself(void **state)
{
        uint8_t nonce[AGX_NONCE_BYTES];
        char challenge[AGX_NONCE_CHARS + 1] = "", proof[AGX_PROOF_CHARS + 1] = "", request[256], expected[128];
        rig r;

        (void)state;
        memset(nonce, 7, sizeof(nonce));
        agx_base64url_encode(agx_view_of(nonce, sizeof(nonce)), challenge);
        agx_proof_make(AGX_VIEW("t0k"), nonce, AGX_VIEW("cafe"), proof);
        snprintf(request, sizeof(request), "GET /health HTTP/1.1\r\n" HOST "Agentix-Challenge: %s\r\n\r\n", challenge);
        snprintf(expected, sizeof(expected), "\r\nAgentix-Proof: %s\r\n", proof);
        for (int with_token = 0; with_token < 2; with_token++) {
                agx_view in = agx_view_str(request);
                agx_conn_wish wish;

                rig_open(&r, with_token ? "t0k" : NULL);
                assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
                assert_int_equal(memmem(r.out.data, r.out.len, expected, strlen(expected)) != NULL, with_token);
                assert_int_equal(memmem(r.out.data, r.out.len, "Proof", 5) != NULL, with_token);
                rig_close(&r);
        }
        rig_open(&r, "t0k");
        feed_text(&r, "GET /health HTTP/1.1\r\n" HOST "Agentix-Challenge: short\r\n\r\n");
        assert_memory_equal(r.log.data, "[400|a malformed Agentix-Challenge]", 34);
        rig_close(&r);
}

static void a_draining_server_refuses_calls(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, NULL);
        r.site.draining = true;
        feed_text(&r, CALL "Content-Length: " BODY_N "\r\n\r\n");
        assert_memory_equal(r.log.data, "[503 Connection=close|the server is shutting down]close", r.log.len);
        rig_close(&r);
}

static void draining_closes_after_the_answer(void **state)
{
        agx_conn_wish wish;
        agx_view in = agx_view_str(CALL "Content-Length: " BODY_N "\r\n\r\n" BODY);
        rig r;

        (void)state;
        rig_open(&r, NULL);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        r.site.draining = true;
        assert_int_equal(agx_conn_reply_fault(&r.conn, r.now,
                                              &(agx_fault){.type = AGX_VIEW("WorkerDied"), .message = AGX_VIEW("m")}),
                         0);
        log_responses(&r);
        assert_memory_equal(r.log.data, "[200 Connection=close", 21);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_CLOSE);
        rig_close(&r);
}

static void what_the_lease_counts(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, "t0k");
        assert_false(r.conn.authorized);
        feed_text(&r, "GET /health HTTP/1.1\r\n" HOST "\r\n");
        assert_false(r.conn.authorized);
        feed_text(&r, "GET /health HTTP/1.1\r\n" HOST "Authorization: Bearer t0k\r\n\r\n");
        assert_true(r.conn.authorized);
        rig_close(&r);
}

/* A large body is read into the place the brain gives; the bytes must be the same as when they are given to it. */
static void a_large_body_is_read_in_place(void **state)
{
        enum { N = 3 * 1024 * 1024 + 17 };
        static const char front[] = "\x83\xa7"
                                    "call_id\xa3"
                                    "s-1\xa8"
                                    "callable\xa3"
                                    "m::\xa9"
                                    "arguments\xc6";
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(2 * N);
        uint8_t size[4] = {(uint8_t)(N >> 24), (uint8_t)(N >> 16 & 0xff), (uint8_t)(N >> 8 & 0xff),
                           (uint8_t)(N & 0xff)};
        char head[256];
        agx_view in, rest;
        agx_conn_wish wish;
        bool placed = false;
        rig r;

        (void)state;
        agx_buf_append(&body, front, sizeof(front) - 1);
        agx_buf_append(&body, size, 4);
        for (size_t i = 0; i < N; i++)
                agx_buf_append(&body, &(uint8_t){(uint8_t)(i * 7 + i / 1000)}, 1);
        rig_open(&r, NULL);
        snprintf(head, sizeof(head), CALL "Content-Length: %zu\r\n\r\n", body.len);
        in = agx_view_str(head);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        rest = agx_buf_view(&body);
        while (rest.n) {
                char *place;
                size_t n;

                if (agx_conn_place(&r.conn, &place, &n)) {
                        n = n < 300000 ? n : 300000;
                        assert_true(n <= rest.n);
                        memcpy(place, rest.p, n);
                        in = agx_view_of(place, n);
                        placed = true;
                } else {
                        n = rest.n < 100000 ? rest.n : 100000;
                        in = agx_view_of(rest.p, n);
                }
                rest = agx_view_from(rest, n);
                assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
                assert_int_equal(wish, rest.n ? AGX_CONN_INPUT : AGX_CONN_SUBMIT);
        }
        assert_true(placed);
        assert_int_equal(r.conn.request.arguments.n, N);
        assert_memory_equal(r.conn.request.arguments.p, body.data + body.len - N, N);
        in = AGX_VIEW("");
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_WAIT);
        assert_true(r.conn.body.cap <= 4096); /* not held while the call runs */
        rig_close(&r);
}

/* Two bodies come at once, and there is room for one: the other is read and dropped, and its connection goes on. */
static void a_crowded_server_takes_no_more(void **state)
{
        static const char call[] = "\x83\xa7"
                                   "call_id\xa3"
                                   "s-1\xa8"
                                   "callable\xa3"
                                   "m::\xa9"
                                   "arguments\xc4\x80";
        enum { WHOLE = sizeof(call) - 1 + 128 };
        agx_gather gather = {.max = WHOLE};
        char request[1024], body[WHOLE];
        agx_conn_wish wish;
        agx_view in;
        rig r[2];
        int n;

        (void)state;
        memset(body, 'x', WHOLE);
        memcpy(body, call, sizeof(call) - 1);
        n = snprintf(request, sizeof(request), CALL "Content-Length: %d\r\n\r\n%.*s", WHOLE, WHOLE / 2, body);
        for (int i = 0; i < 2; i++) {
                rig_open(&r[i], NULL);
                r[i].site.gather = &gather;
        }
        for (int i = 0; i < 2; i++) {
                in = agx_view_of(request, (size_t)n);
                assert_int_equal(agx_conn_next(&r[i].conn, 1000, &in, &wish), 0);
                in = agx_view_of(body + WHOLE / 2, 60);
                assert_int_equal(agx_conn_next(&r[i].conn, 1000, &in, &wish), 0);
                assert_int_equal(gather.total, WHOLE / 2 + 60);
        }
        for (int i = 0; i < 2; i++) {
                in = agx_view_of(body + WHOLE / 2 + 60, WHOLE - WHOLE / 2 - 60);
                assert_int_equal(agx_conn_next(&r[i].conn, 1000, &in, &wish), 0);
                assert_int_equal(wish, i ? AGX_CONN_INPUT : AGX_CONN_SUBMIT);
        }
        assert_int_equal(r[0].conn.request.arguments.n, 128);
        assert_null(memmem(agx_buf_view(&r[1].out).p, r[1].out.len, "close", 5));
        assert_non_null(memmem(agx_buf_view(&r[1].out).p, r[1].out.len, "HTTP/1.1 200", 12));
        assert_non_null(memmem(agx_buf_view(&r[1].out).p, r[1].out.len, "not_taken", 9));
        in = AGX_VIEW("");
        assert_int_equal(agx_conn_next(&r[0].conn, 1000, &in, &wish), 0);
        assert_int_equal(gather.total, 0);
        in = agx_view_of(request, (size_t)n); /* once there is room it is taken */
        assert_int_equal(agx_conn_next(&r[1].conn, 1000, &in, &wish), 0);
        in = agx_view_of(body + WHOLE / 2, WHOLE - WHOLE / 2);
        assert_int_equal(agx_conn_next(&r[1].conn, 1000, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_SUBMIT);
        assert_int_equal(gather.total, WHOLE);
        for (int i = 0; i < 2; i++)
                rig_close(&r[i]);
        assert_int_equal(gather.total, 0);
}

static void without_memory_the_connection_fails_cleanly(void **state)
{
        static const char input[] = CALL "Transfer-Encoding: chunked\r\n\r\n10\r\n\x83\xa7"
                                         "call_id\xa3"
                                         "s-1\xa8"
                                         "ca\r\n18\r\nllable\xa3"
                                         "m::\xa9"
                                         "arguments\xc4\x02"
                                         "AB\r\n0\r\n\r\n";
        size_t n = 0;
        int r = 0;

        (void)state;
        do {
                agx_conn_wish wish = AGX_CONN_NONE;
                agx_view in = agx_view_of(input, sizeof(input) - 1);
                rig g;

                agx_oom_arm(++n);
                agx_oom_pause(true);
                memset(&g, 0, sizeof(g));
                agx_auth_init(&g.site.auth);
                g.out = AGX_BUF_NULL(OUT_MAX);
                agx_oom_pause(false);
                r = agx_conn_init(&g.conn, &g.site, &g.out, 0);
                if (!r)
                        r = agx_conn_next(&g.conn, 0, &in, &wish);
                if (!r && wish == AGX_CONN_SUBMIT)
                        r = agx_conn_reply_result(&g.conn, 0, true, 0);
                agx_conn_deinit(&g.conn);
                agx_auth_deinit(&g.site.auth);
                agx_buf_deinit(&g.out);
                assert_true(r <= 0);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 5);
}

/* What follows the request is left alone: it is the WebSocket's. */
static void an_upgrade_leaves_the_rest(void **state)
{
        static const char text[] =
                SIO("GET", "EIO=4&transport=websocket") "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
                                                        "AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\nrest";
        agx_view in = agx_view_of(text, sizeof(text) - 1);
        agx_conn_wish wish;
        rig r;

        (void)state;
        rig_open(&r, NULL);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_SIO);
        assert_true(r.conn.sio.websocket);
        assert_int_equal(agx_conn_reply_upgrade(&r.conn), 0);
        assert_non_null(memmem(r.out.data, r.out.len, "HTTP/1.1 101 ", 13));
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_WAIT);
        assert_true(agx_view_eq(in, AGX_VIEW("rest")));
        assert_true(agx_conn_deadline(&r.conn) == UINT64_MAX);
        rig_close(&r);
}

/* Nothing is taken behind the request, and nothing is said behind the 101. */
static void a_conduit_is_left_alone(void **state)
{
        static const char text[] = CONDUIT("?name=" NAME) TO_CONDUIT "\r\nrest";
        agx_view in = agx_view_of(text, sizeof(text) - 1);
        agx_conn_wish wish;
        rig r;

        (void)state;
        rig_open(&r, NULL);
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_CONDUIT);
        assert_int_equal(agx_conn_reply_conduit(&r.conn, r.now), 0);
        assert_non_null(memmem(r.out.data, r.out.len, "HTTP/1.1 101 ", 13));
        assert_int_equal(agx_conn_next(&r.conn, r.now, &in, &wish), 0);
        assert_int_equal(wish, AGX_CONN_WAIT);
        assert_true(agx_view_eq(in, AGX_VIEW("rest")));
        assert_true(agx_conn_deadline(&r.conn) == r.now + AGX_HTTP_IDLE_MS);
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_conduit_is_left_alone),
                cmocka_unit_test(an_upgrade_leaves_the_rest),
                cmocka_unit_test(rows_hold_at_every_split),
                cmocka_unit_test(a_silent_connection_is_closed_without_a_word),
                cmocka_unit_test(a_slow_head_does_not_move_its_deadline),
                cmocka_unit_test(a_later_head_has_its_own_time),
                cmocka_unit_test(an_idle_connection_is_closed),
                cmocka_unit_test(idle_is_counted_from_the_last_byte_sent),
                cmocka_unit_test(a_body_must_keep_its_rate),
                cmocka_unit_test(time_spent_unread_is_forgiven),
                cmocka_unit_test(patience_ends_in_202),
                cmocka_unit_test(the_server_proves_itself),
                cmocka_unit_test(a_draining_server_refuses_calls),
                cmocka_unit_test(draining_closes_after_the_answer),
                cmocka_unit_test(what_the_lease_counts),
                cmocka_unit_test(a_large_body_is_read_in_place),
                cmocka_unit_test(a_crowded_server_takes_no_more),
                cmocka_unit_test(without_memory_the_connection_fails_cleanly),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
