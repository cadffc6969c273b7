/* The opening of a WebSocket: whole heads through the HTTP/1.1 reader into both judges, as tables; what is written read
 * back; every allocation of the reply failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/oom.h"
#include "wire/ws_handshake.h"

static const agx_http1_bounds bounds = {
        .head_max = 4096, .headers_max = 50, .chunk_line_max = 100, .trailer_max = 100, .body_max = 100};

/* The head of a message; it lives as the parser does. */
static const agx_http1_head *parse(agx_http1 **parser, agx_http1_role role, agx_view text)
{
        agx_http1_event event;

        assert_int_equal(agx_http1_new(parser, role, &bounds), 0);
        assert_int_equal(agx_http1_next(*parser, &text, &event), 0);
        assert_int_equal(event.kind, AGX_HTTP1_HEAD);
        return event.head;
}

static bool is(agx_view v, const char *text)
{
        return v.p && text ? agx_view_eq(v, agx_view_str(text)) : !v.p && !text;
}

static void put(agx_buf *b, agx_view v)
{
        assert_int_equal(agx_buf_append_view(b, v), 0);
}

static const agx_view ours[] = {{"agentix.1", 9}, {"chat", 4}};

#define KEY "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
#define UPGRADE "Upgrade: websocket\r\nConnection: Upgrade\r\n"
#define VERSION "Sec-WebSocket-Version: 13\r\n"

typedef struct row {
        const char *line, *fields;
        int error;
        const char *protocol; /* NULL: none */
} row;

static const row requests[] = {
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY, 0, NULL},
        {"GET /x HTTP/1.1", "upgrade: WebSocket\r\nCONNECTION: keep-alive , uPGRADE\r\n" VERSION KEY, 0, NULL},
        {"GET /x HTTP/1.1", "Upgrade: h2c, websocket\r\nConnection: Upgrade\r\n" VERSION KEY, 0, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Content-Length: 0\r\n", 0, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Extensions: permessage-deflate\r\n", 0, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: chat\r\n", 0, "chat"},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: chat, agentix.1\r\n", 0, "agentix.1"},
        {"GET /x HTTP/1.1",
         UPGRADE VERSION KEY "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: x ,agentix.1\r\n", 0,
         "agentix.1"},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: Chat, soap\r\n", 0, NULL},
        {"GET /x HTTP/1.1", "", AGX_WS_HANDSHAKE_E_UPGRADE, NULL},
        {"GET /x HTTP/1.1", "Upgrade: websocket\r\n" VERSION KEY, AGX_WS_HANDSHAKE_E_UPGRADE, NULL},
        {"GET /x HTTP/1.1", "Connection: Upgrade\r\n" VERSION KEY, AGX_WS_HANDSHAKE_E_UPGRADE, NULL},
        {"GET /x HTTP/1.1", "Upgrade: websocket2\r\nConnection: Upgrade\r\n" VERSION KEY, AGX_WS_HANDSHAKE_E_UPGRADE,
         NULL},
        {"POST /x HTTP/1.1", UPGRADE VERSION KEY, AGX_WS_HANDSHAKE_E_METHOD, NULL},
        {"GET /x HTTP/1.0", UPGRADE VERSION KEY, AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Content-Length: 5\r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Transfer-Encoding: chunked\r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE KEY, AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE KEY "Sec-WebSocket-Version: 8\r\n", AGX_WS_HANDSHAKE_E_VERSION, NULL},
        {"GET /x HTTP/1.1", UPGRADE KEY "Sec-WebSocket-Version: 013\r\n", AGX_WS_HANDSHAKE_E_VERSION, NULL},
        {"GET /x HTTP/1.1", UPGRADE KEY VERSION VERSION, AGX_WS_HANDSHAKE_E_VERSION, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION, AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY KEY, AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: \r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=\r\n", AGX_WS_HANDSHAKE_E_BAD,
         NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR==\r\n", AGX_WS_HANDSHAKE_E_BAD,
         NULL}, /* bits left over */
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQQQ\r\n", AGX_WS_HANDSHAKE_E_BAD,
         NULL}, /* 18 bytes */
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZ ==\r\n", AGX_WS_HANDSHAKE_E_BAD,
         NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION "Sec-WebSocket-Key: dGhl-HNhbXBsZSBub25jZQ==\r\n", AGX_WS_HANDSHAKE_E_BAD,
         NULL}, /* another alphabet */
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: \r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: chat,,x\r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
        {"GET /x HTTP/1.1", UPGRADE VERSION KEY "Sec-WebSocket-Protocol: chat{}\r\n", AGX_WS_HANDSHAKE_E_BAD, NULL},
};

static void test_requests(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); ++i) {
                const row *r = &requests[i];
                _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(4096);
                _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
                const agx_http1_head *head;
                agx_ws_request request;

                assert_int_equal(agx_buf_printf(&text, "%s\r\nHost: h\r\n%s\r\n", r->line, r->fields), 0);
                head = parse(&parser, AGX_HTTP1_SERVER, agx_buf_view(&text));
                if (agx_ws_check_request(head, ours, 2, &request) != r->error)
                        fail_msg("%s %s", r->line, r->fields);
                assert_int_equal(request.reason != NULL, r->error != 0);
                assert_true(is(request.protocol, r->protocol));
        }
}

static void test_reply(void **state)
{
        static const agx_view plain = {"HTTP/1.1 101 Switching Protocols\r\n"
                                       "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                       "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                                       129};
        agx_ws_request request = {.key = AGX_VIEW("dGhlIHNhbXBsZSBub25jZQ==")};
        agx_buf out = AGX_BUF_NULL(4096);
        size_t n = 0;
        int r;

        (void)state;
        do {
                agx_buf_deinit(&out);
                agx_oom_arm(++n);
                r = agx_ws_put_reply(&out, &request);
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(agx_view_eq(agx_buf_view(&out), plain)); /* the RFC's own example */
        out.max = out.len;
        assert_int_equal(agx_ws_put_reply(&out, &request), AGX_BUF_E_FULL);
        agx_buf_deinit(&out);
}

/* ---- client ---- */

#define ACCEPT "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"

static const row replies[] = {
        {"101 Switching Protocols", UPGRADE ACCEPT, 0, NULL},
        {"101 whatever", "upgrade: WEBSOCKET\r\nconnection: x, upgrade\r\n" ACCEPT, 0, NULL},
        {"101 S", UPGRADE ACCEPT "Sec-WebSocket-Protocol: chat\r\n", 0, "chat"},
        {"200 OK", UPGRADE ACCEPT, 1, NULL},
        {"400 Bad Request", "Content-Length: 0\r\n", 1, NULL},
        {"101 S", "Connection: Upgrade\r\n" ACCEPT, 1, NULL},
        {"101 S", "Upgrade: websocket\r\n" ACCEPT, 1, NULL},
        {"101 S", "Upgrade: websocket, h2c\r\nConnection: Upgrade\r\n" ACCEPT, 1, NULL},
        {"101 S", UPGRADE, 1, NULL},
        {"101 S", UPGRADE "Sec-WebSocket-Accept: S3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n", 1, NULL},
        {"101 S", UPGRADE "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo\r\n", 1, NULL},
        {"101 S", UPGRADE ACCEPT ACCEPT, 1, NULL},
        {"101 S", UPGRADE ACCEPT "Sec-WebSocket-Extensions: permessage-deflate\r\n", 1, NULL},
        {"101 S", UPGRADE ACCEPT "Sec-WebSocket-Extensions: a\r\nSec-WebSocket-Extensions: b\r\n", 1, NULL},
        {"101 S", UPGRADE ACCEPT "Sec-WebSocket-Protocol: soap\r\n", 1, NULL},
        {"101 S", UPGRADE ACCEPT "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: chat\r\n", 1, NULL},
};

static void test_replies(void **state)
{
        agx_ws_opening opening = agx_ws_opening_on((const uint8_t *)"the sample nonce");

        (void)state;
        for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); ++i) {
                const row *r = &replies[i];
                _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(4096);
                _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
                const agx_http1_head *head;
                agx_view protocol;
                const char *reason;

                assert_int_equal(agx_buf_printf(&text, "HTTP/1.1 %s\r\n%s\r\n", r->line, r->fields), 0);
                head = parse(&parser, AGX_HTTP1_CLIENT, agx_buf_view(&text));
                if (agx_ws_check_reply(head, &opening, ours, 2, &protocol, &reason) != r->error)
                        fail_msg("%s %s", r->line, r->fields);
                assert_int_equal(reason != NULL, r->error != 0);
                assert_true(is(protocol, r->protocol));
        }
}

/* What the client asks the server grants, and the client sees it. */
static void test_both(void **state)
{
        agx_ws_opening opening = agx_ws_opening_on((const uint8_t *)"0123456789abcdef");
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);
        _cleanup_(agx_http1_freep) agx_http1 *at_server = NULL, *at_client = NULL;
        const agx_http1_head *head;
        agx_ws_request request;
        agx_view protocol;
        const char *reason;

        (void)state;
        assert_int_equal(agx_http1_put_request(&out, AGX_VIEW("GET"), AGX_VIEW("/agentix")), 0);
        put(&out, AGX_VIEW("Host: h\r\n"));
        assert_int_equal(agx_ws_put_request_fields(&out, &opening, ours, 2), 0);
        assert_int_equal(agx_http1_put_end(&out), 0);
        head = parse(&at_server, AGX_HTTP1_SERVER, agx_buf_view(&out));
        assert_true(head->upgrade);
        assert_int_equal(agx_ws_check_request(head, ours + 1, 1, &request), 0);
        agx_buf_clear(&out);
        assert_int_equal(agx_ws_put_reply(&out, &request), 0);
        head = parse(&at_client, AGX_HTTP1_CLIENT, agx_buf_view(&out));
        assert_int_equal(agx_ws_check_reply(head, &opening, ours, 2, &protocol, &reason), 0);
        assert_true(agx_view_eq(protocol, AGX_VIEW("chat")));
        assert_int_equal(agx_ws_put_request_fields(&out, &opening, &(agx_view){"a b", 3}, 1), -EINVAL);
        opening = agx_ws_opening_on((const uint8_t *)"0123456789abcdeX");
        assert_int_equal(agx_ws_check_reply(head, &opening, ours, 2, &protocol, &reason), AGX_WS_HANDSHAKE_E_BAD);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_requests),
                cmocka_unit_test(test_reply),
                cmocka_unit_test(test_replies),
                cmocka_unit_test(test_both),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
