/* Engine.IO: packets and payloads as tables; sessions of both roles at their rules and on a virtual clock; both of them
 * against each other over pretended transports with random delays: nothing is lost, doubled or out of order, whatever
 * the moment of the move; lack of memory at every allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/guard.h"
#include "support/oom.h"
#include "wire/eio.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static const agx_eio_bounds bounds = {
        .message_max = 1000,
        .queue_max = 5000,
        .queue_packets = 100,
        .payload_packets = 16,
        .interval_ms = 25000,
        .timeout_ms = 20000,
        .upgrade_ms = 10000,
        .upgrade = true,
};

static void put(agx_buf *b, agx_view v)
{
        assert_int_equal(agx_buf_append_view(b, v), 0);
}

static void assert_text(agx_buf *b, const char *want)
{
        put(b, AGX_VIEW("\0"));
        assert_string_equal((const char *)b->data + b->head, want);
        agx_buf_clear(b);
}

/* ---- packets ---- */

/* A payload as text: type, whether binary, data; each packet in brackets, '!' for what is malformed. */
static void say_payload(agx_buf *log, agx_view in)
{
        uint8_t *guarded = agx_guard_new(in.p, in.n);
        agx_view rest = agx_view_of(guarded, in.n);
        agx_eio_packet packet;

        while (rest.p) {
                _cleanup_(agx_buf_deinitp) agx_buf bytes = AGX_BUF_NULL(1000);

                if (!agx_eio_packet_split(&rest, &packet) ||
                    (packet.binary && agx_eio_base64_read(packet.data, &bytes))) {
                        put(log, AGX_VIEW("!"));
                        break;
                }
                if (packet.binary)
                        packet.data = agx_buf_view(&bytes);
                assert_int_equal(agx_buf_printf(log, "[%d%s", packet.type, packet.binary ? "b" : ""), 0);
                put(log, packet.data);
                put(log, AGX_VIEW("]"));
        }
        agx_guard_free(guarded, in.n);
}

typedef struct row {
        agx_view in;
        const char *want;
} row;

#define ROW(literal, want_)                                                                                            \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .want = (want_)                                               \
        }

static void test_payloads(void **state)
{
        static const row rows[] = {
                ROW("2", "[2]"),
                ROW("4hello\x1e"
                    "bAQI=\x1e"
                    "3",
                    "[4hello][4b\x01\x02][3]"),
                ROW("bAAEC", "[4b"), /* ends at the NUL */
                ROW("b", "[4b]"),
                ROW("bYQ==", "[4ba]"),
                ROW("4\xe2\x82\xac", "[4\xe2\x82\xac]"),
                ROW("0{}\x1e"
                    "6",
                    "[0{}][6]"),
                ROW("", "!"),
                ROW("7", "!"),
                ROW("8", "!"),
                ROW("9", "!"),
                ROW("/", "!"),
                ROW("\x1e", "!"),
                ROW("2\x1e", "[2]!"),
                ROW("2\x1e\x1e"
                    "2",
                    "[2]!"),
                ROW("4\xff", "!"),
                ROW("4\xe2\x82\x1e"
                    "2",
                    "!"),
                ROW("bYQ=", "!"),
                ROW("bYQ", "!"),
                ROW("bY", "!"),
                ROW("bYQ==YQ==", "!"),
                ROW("b====", "!"),
                ROW("bY===", "!"),
                ROW("bYR==", "!"), /* bits left over */
                ROW("bYWJ=", "!"),
                ROW("bYW_j", "!"),
                ROW("bYW J", "!"),
                ROW("bYWJ\n", "!"),
                ROW("b=YWJ", "!"),
                ROW("bYWJj\n\n\n\n", "!"),
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(1000);

                say_payload(&log, rows[i].in);
                assert_text(&log, rows[i].want);
        }
}

static void test_packet_written(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(18);

        (void)state;
        assert_int_equal(agx_eio_packet_put(&out, AGX_EIO_MESSAGE, false, AGX_VIEW("he"), AGX_VIEW("llo")), 0);
        assert_int_equal(agx_eio_packet_put(&out, AGX_EIO_PING, false, AGX_VIEW_NULL, AGX_VIEW_NULL), 0);
        assert_int_equal(agx_eio_packet_put(&out, AGX_EIO_MESSAGE, true, AGX_VIEW("\1"), AGX_VIEW("\2\3\4\5\6\7")),
                         AGX_BUF_E_FULL);
        assert_int_equal(agx_eio_packet_put(&out, AGX_EIO_MESSAGE, true, AGX_VIEW("\1"), AGX_VIEW("\2\3\4")), 0);
        out.max = 100;
        assert_text(&out, "4hello\x1e"
                          "2\x1e"
                          "bAQIDBA==");
        for (size_t n = 0; n < 50; ++n)
                for (size_t cut = 0; cut <= n; ++cut) {
                        uint8_t bytes[50] = {0};
                        _cleanup_(agx_buf_deinitp) agx_buf again = AGX_BUF_NULL(60);

                        for (size_t i = 0; i < n; ++i)
                                bytes[i] = (uint8_t)(i * 37 + n);
                        agx_buf_clear(&out);
                        assert_int_equal(agx_eio_packet_put(&out, AGX_EIO_MESSAGE, true, agx_view_of(bytes, cut),
                                                            agx_view_of(bytes + cut, n - cut)),
                                         0);
                        assert_int_equal(out.len, agx_eio_packet_size(true, n));
                        assert_int_equal(agx_eio_base64_read(agx_view_from(agx_buf_view(&out), 1), &again), 0);
                        assert_true(agx_view_eq(agx_buf_view(&again), agx_view_of(bytes, n)));
                }
}

/* ---- one session ---- */

static agx_eio *new_eio(agx_eio_role role, agx_eio_transport transport)
{
        agx_eio *e = NULL;

        assert_int_equal(agx_eio_new(&e, role, &bounds, role == AGX_EIO_SERVER ? AGX_VIEW("sid-1") : AGX_VIEW_NULL,
                                     transport, 1000),
                         0);
        return e;
}

static int send_text(agx_eio *e, const char *text)
{
        return agx_eio_send(e, &(agx_eio_message){.head = agx_view_str(text)}, 1);
}

/* What a payload makes of a session, as text. */
static int take(agx_eio *e, const char *payload, agx_buf *log)
{
        agx_view in = agx_view_str(payload);
        agx_eio_event event;
        int r = 0;

        while (in.p && !r) {
                r = agx_eio_payload_read(e, &in, 2000, &event);
                if (!r && event.kind == AGX_EIO_GOT && log)
                        assert_int_equal(agx_buf_printf(log, "[%s%.*s]", event.binary ? "b" : "", (int)event.data.n,
                                                        event.data.p),
                                         0);
                if (!r && event.kind == AGX_EIO_CLOSED && log)
                        put(log, AGX_VIEW("closed"));
                if (event.kind == AGX_EIO_CLOSED)
                        break;
        }
        return r;
}

static int take_ws(agx_eio *e, const char *text, agx_eio_kind *kind)
{
        agx_eio_event event;
        int r = agx_eio_ws_read(e, false, agx_view_str(text), 2000, &event);

        if (kind)
                *kind = event.kind;
        return r;
}

static void assert_payload(agx_eio *e, const char *want)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(2000);

        assert_true(agx_eio_payload_due(e));
        assert_int_equal(agx_eio_payload_write(e, &body), 0);
        assert_text(&body, want);
}

static void assert_frame(agx_eio *e, const char *want)
{
        _cleanup_(agx_buf_deinitp) agx_buf got = AGX_BUF_NULL(2000);
        agx_eio_frame frame, again;

        assert_true(agx_eio_ws_next(e, &frame));
        assert_true(agx_eio_ws_next(e, &again));
        assert_ptr_equal(frame.head.p, again.head.p);
        put(&got, frame.binary ? AGX_VIEW("b") : AGX_VIEW(""));
        put(&got, frame.head);
        put(&got, frame.body);
        assert_text(&got, want);
        agx_eio_ws_sent(e);
}

#define HELLO "0{\"sid\":\"abc\",\"upgrades\":[],\"pingInterval\":25000,\"pingTimeout\":20000,\"maxPayload\":100}"

static void test_server_opening(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *poll = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        _cleanup_(agx_eio_freep) agx_eio *ws = new_eio(AGX_EIO_SERVER, AGX_EIO_WEBSOCKET);
        agx_eio_frame frame;

        (void)state;
        assert_false(agx_eio_payload_due(poll));
        assert_int_equal(agx_eio_poll(poll), 0);
        assert_payload(poll, "0{\"sid\":\"sid-1\",\"upgrades\":[\"websocket\"],\"pingInterval\":25000,"
                             "\"pingTimeout\":20000,\"maxPayload\":1000}");
        assert_int_equal(agx_eio_poll(poll), 0);
        assert_false(agx_eio_payload_due(poll));
        assert_int_equal(send_text(poll, "hi"), 0);
        assert_payload(poll, "4hi");
        assert_false(agx_eio_ws_next(ws, &frame)); /* not open yet */
        assert_int_equal(agx_eio_ws_opened(ws, 0), 0);
        assert_int_equal(agx_eio_ws_opened(ws, 0), AGX_EIO_E_TRANSPORT);
        assert_frame(ws, "0{\"sid\":\"sid-1\",\"upgrades\":[],\"pingInterval\":25000,\"pingTimeout\":20000,"
                         "\"maxPayload\":1000}");
        assert_false(agx_eio_ws_next(ws, &frame));
        assert_int_equal(agx_eio_poll(ws), AGX_EIO_E_TRANSPORT);
        assert_int_equal(take(ws, "4x", NULL), AGX_EIO_E_TRANSPORT);
        assert_false(agx_eio_is_closed(ws));
        agx_eio_ws_lost(ws);
        assert_true(agx_eio_is_closed(ws));
}

static void test_client_opening(void **state)
{
        static const struct {
                const char *hello;
                int want;
        } rows[] = {
                {HELLO, 0},
                {"0{\"x\":{\"y\":[1]},\"sid\":\"a-_.~9\",\"upgrades\":[\"websocket\"],\"pingInterval\":0,"
                 "\"pingTimeout\":1}",
                 0},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a b\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a&b\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\\u0062\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":7,\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[1],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":{},\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":25001,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":20001}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":-1,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":1.5,\"pingTimeout\":1}", 1},
                {"0{\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1,\"maxPayload\":0}", 1},
                {"0{\"sid\":\"a\",\"sid\":\"a\",\"upgrades\":[],\"pingInterval\":1,\"pingTimeout\":1}", 1},
                {HELLO "x", 1},
                {"0[]", 1},
                {"0", 1},
                {"4x", 1},
                {"2", 1},
                {"6", 1},
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); ++i) {
                _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_CLIENT, AGX_EIO_POLLING);

                assert_int_equal(send_text(e, "early"), AGX_EIO_E_CLOSED);
                assert_true(agx_eio_poll_due(e));
                assert_int_equal(agx_eio_poll(e), 0);
                assert_false(agx_eio_poll_due(e));
                if (take(e, rows[i].hello, NULL) != rows[i].want)
                        fail_msg("%s", rows[i].hello);
                assert_int_equal(agx_eio_is_closed(e), rows[i].want != 0);
                assert_int_equal(agx_eio_poll_due(e), !rows[i].want);
                assert_int_equal(agx_eio_ws_wanted(e), i == 1);
        }
}

static void test_server_reads(void **state)
{
        static const struct {
                const char *in, *want;
                int r;
        } rows[] = {
                {"4a\x1e"
                 "4b\x1e"
                 "bQUI=",
                 "[a][b][bAB]", 0},
                {"3\x1e"
                 "6\x1e"
                 "4x",
                 "[x]", 0},
                {"1", "closed", 0},
                {"4x\x1e"
                 "1\x1e"
                 "4y",
                 "[x]closed", 0},
                {"2", "", AGX_EIO_E_BAD}, /* servers ping */
                {"0{}", "", AGX_EIO_E_BAD},
                {"5", "", AGX_EIO_E_BAD},
                {"2probe", "", AGX_EIO_E_BAD},
                {"4a\x1e"
                 "7",
                 "[a]", AGX_EIO_E_BAD},
                {"", "", AGX_EIO_E_BAD},
                {"b!!!!", "", AGX_EIO_E_BAD},
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); ++i) {
                _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(1000);

                assert_int_equal(take(e, rows[i].in, &log), rows[i].r);
                assert_text(&log, rows[i].want);
                assert_int_equal(agx_eio_is_closed(e), rows[i].r || strstr(rows[i].want, "closed"));
                if (agx_eio_is_closed(e)) {
                        assert_int_equal(take(e, "4x", NULL), AGX_EIO_E_CLOSED);
                        assert_int_equal(agx_eio_poll(e), AGX_EIO_E_CLOSED);
                        assert_int_equal(send_text(e, "x"), AGX_EIO_E_CLOSED);
                        assert_int_equal(agx_eio_timer(e), UINT64_MAX);
                }
        }
}

static void test_client_reads(void **state)
{
        static const char *const refused[] = {HELLO, "3", "3probe", "5", "9", "bAA", ""};
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(1000);

        (void)state;
        for (size_t i = 0; i <= COUNT(refused); ++i) {
                _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_CLIENT, AGX_EIO_POLLING);

                assert_int_equal(agx_eio_poll(e), 0);
                assert_int_equal(take(e, HELLO, NULL), 0);
                assert_true(agx_view_eq(agx_eio_sid(e), AGX_VIEW("abc")));
                assert_int_equal(agx_eio_poll(e), 0);
                if (i < COUNT(refused)) {
                        assert_int_equal(take(e, refused[i], NULL), AGX_EIO_E_BAD);
                        assert_true(agx_eio_is_closed(e));
                        continue;
                }
                assert_int_equal(take(e,
                                      "2\x1e"
                                      "4m\x1e"
                                      "2\x1e"
                                      "6",
                                      &log),
                                 0);
                assert_text(&log, "[m]");
                assert_payload(e, "3"); /* one answer is enough */
                assert_false(agx_eio_payload_due(e));
                assert_int_equal(send_text(e, "x"), 0);
                assert_false(agx_eio_payload_due(e)); /* one POST at a time */
                agx_eio_posted(e);
                assert_payload(e, "4x");
        }
}

/* At most so many packets in a payload, and at most so many bytes. */
static void test_payload_bounds(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(5000);
        static char big[999];

        (void)state;
        memset(big, 'x', sizeof(big));
        for (int i = 0; i < 40; ++i)
                assert_int_equal(send_text(e, "m"), 0);
        for (int i = 0; i < 3; ++i) {
                size_t packets = 1;

                assert_int_equal(agx_eio_poll(e), 0);
                agx_buf_clear(&body);
                assert_int_equal(agx_eio_payload_write(e, &body), 0);
                for (size_t k = 0; k < body.len; ++k)
                        packets += body.data[k] == 0x1e;
                assert_int_equal(packets, i < 2 ? 16 : 9); /* the opening and forty messages */
        }
        assert_int_equal(agx_eio_send(e, &(agx_eio_message){.head = agx_view_of(big, 999)}, 1), 0);
        assert_int_equal(
                agx_eio_send(e, &(agx_eio_message){.head = AGX_VIEW("0123"), .body = agx_view_of(big, 500)}, 1), 0);
        assert_int_equal(agx_eio_send(e, &(agx_eio_message){.head = agx_view_of(big, 493)}, 1), 0);
        assert_int_equal(agx_eio_send(e, &(agx_eio_message){.binary = true}, 1), 0);
        for (int i = 0; i < 3; ++i) {
                static const size_t want[] = {1000, 505 + 1 + 494, 1};

                assert_int_equal(agx_eio_poll(e), 0);
                agx_buf_clear(&body);
                assert_int_equal(agx_eio_payload_write(e, &body), 0);
                assert_int_equal(body.len, want[i]);
        }
}

static void test_sizes_and_queue(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        _cleanup_(agx_eio_freep) agx_eio *c = new_eio(AGX_EIO_CLIENT, AGX_EIO_WEBSOCKET);
        static char big[1000];
        agx_eio_message binary = {.binary = true, .head = agx_view_of(big, 1), .body = agx_view_of(big, 748)};
        int user[4];

        (void)state;
        assert_int_equal(agx_eio_message_max(e, false), 999);
        assert_int_equal(agx_eio_message_max(e, true), 747);
        assert_int_equal(agx_eio_send(e, &binary, 1), AGX_EIO_E_TOO_LARGE);
        binary.body.n = 746;
        assert_int_equal(agx_eio_send(e, &binary, 1), 0);
        assert_int_equal(agx_eio_send(e, &(agx_eio_message){.body = agx_view_of(big, 1000)}, 1), AGX_EIO_E_TOO_LARGE);
        assert_int_equal(agx_eio_ws_opened(c, 0), 0);
        assert_int_equal(take_ws(c, HELLO, NULL), 0);
        assert_int_equal(agx_eio_message_max(c, true), 100); /* the peer's word */
        assert_int_equal(agx_eio_message_max(c, false), 99);
        /* groups go in whole or not at all */
        for (int i = 0; i < 4; ++i) {
                agx_eio_message pair[2] = {{.head = agx_view_of(big, 700), .user = &user[i]},
                                           {.binary = true, .body = agx_view_of(big, 700)}};

                assert_int_equal(agx_eio_send(e, pair, 2), i < 3 ? 0 : AGX_EIO_E_FULL);
        }
        assert_int_equal(agx_eio_queued(e), 747 + 3 * 1401);
        assert_null(agx_eio_next_done(e));
        agx_eio_lost(e, "enough");
        assert_string_equal(agx_eio_reason(e), "enough");
        for (int i = 0; i < 3; ++i)
                assert_ptr_equal(agx_eio_next_done(e), &user[i]);
        assert_null(agx_eio_next_done(e));
        assert_int_equal(agx_eio_queued(e), 0);
}

/* ---- time ---- */

static void test_server_heartbeat(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_WEBSOCKET);
        agx_eio_event event;

        (void)state;
        assert_int_equal(agx_eio_ws_opened(e, 1000), 0);
        agx_eio_ws_next(e, &(agx_eio_frame){0});
        agx_eio_ws_sent(e);
        assert_int_equal(agx_eio_timer(e), 26000);
        agx_eio_tick(e, 25999, &event);
        assert_false(agx_eio_ws_next(e, &(agx_eio_frame){0}));
        agx_eio_tick(e, 26000, &event);
        assert_int_equal(event.kind, AGX_EIO_NOTHING);
        assert_frame(e, "2");
        assert_int_equal(agx_eio_timer(e), 46000);
        assert_int_equal(agx_eio_ws_read(e, false, AGX_VIEW("3"), 30000, &event), 0);
        assert_int_equal(agx_eio_timer(e), 55000);
        /* messages of the peer do not put off the next ping: it waits for one */
        assert_int_equal(agx_eio_ws_read(e, false, AGX_VIEW("4x"), 50000, &event), 0);
        assert_int_equal(agx_eio_timer(e), 55000);
        agx_eio_tick(e, 55000, &event);
        assert_frame(e, "2");
        /* but they are signs of life */
        assert_int_equal(agx_eio_ws_read(e, true, AGX_VIEW("x"), 74000, &event), 0);
        agx_eio_tick(e, 75000, &event);
        assert_int_equal(event.kind, AGX_EIO_NOTHING);
        agx_eio_tick(e, 99000, &event);
        assert_int_equal(agx_eio_timer(e), 119000);
        agx_eio_tick(e, 119000, &event);
        assert_int_equal(event.kind, AGX_EIO_CLOSED);
        assert_true(agx_eio_is_closed(e));
}

static void test_client_heartbeat(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_CLIENT, AGX_EIO_WEBSOCKET);
        agx_eio_event event;

        (void)state;
        assert_true(agx_eio_ws_wanted(e));
        assert_int_equal(agx_eio_ws_opened(e, 0), 0);
        assert_false(agx_eio_ws_wanted(e));
        assert_int_equal(agx_eio_timer(e), UINT64_MAX);
        assert_int_equal(agx_eio_ws_read(e, false, AGX_VIEW(HELLO), 5000, &event), 0);
        assert_int_equal(event.kind, AGX_EIO_OPENED);
        assert_int_equal(agx_eio_timer(e), 50000);
        assert_int_equal(agx_eio_ws_read(e, false, AGX_VIEW("2"), 30000, &event), 0);
        assert_frame(e, "3");
        assert_int_equal(agx_eio_timer(e), 75000);
        agx_eio_tick(e, 74999, &event);
        assert_int_equal(event.kind, AGX_EIO_NOTHING);
        agx_eio_tick(e, 75000, &event);
        assert_int_equal(event.kind, AGX_EIO_CLOSED);
        assert_string_equal(agx_eio_reason(e), "the peer gave no sign of life");
}

/* ---- the move ---- */

static void test_move_at_server(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        agx_eio_kind kind;

        (void)state;
        assert_int_equal(agx_eio_poll(e), 0);
        agx_eio_payload_write(e, &(agx_buf){.max = 0}); /* no room: nothing is lost */
        assert_true(agx_eio_payload_due(e));
        assert_int_equal(agx_eio_ws_opened(e, 3000), 0);
        assert_int_equal(agx_eio_ws_opened(e, 3000), AGX_EIO_E_TRANSPORT);
        assert_int_equal(take_ws(e, "2probe", &kind), 0);
        assert_int_equal(kind, AGX_EIO_NOTHING);
        assert_frame(e, "3probe");
        agx_eio_poll_lost(e);
        assert_int_equal(agx_eio_poll(e), 0);
        assert_true(agx_eio_payload_due(e));
        {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(1000);

                assert_int_equal(agx_eio_payload_write(e, &body), 0); /* the opening */
        }
        assert_int_equal(agx_eio_poll(e), 0);
        assert_payload(e, "6"); /* the client need not wait to leave */
        assert_int_equal(send_text(e, "a"), 0);
        assert_false(agx_eio_ws_next(e, &(agx_eio_frame){0})); /* not before the upgrade */
        assert_int_equal(agx_eio_poll(e), 0);
        assert_payload(e, "4a");
        assert_int_equal(send_text(e, "b"), 0);
        assert_int_equal(agx_eio_poll(e), 0);
        assert_int_equal(take_ws(e, "5", &kind), 0);
        assert_int_equal(kind, AGX_EIO_UPGRADED);
        assert_int_equal(agx_eio_over(e), AGX_EIO_WEBSOCKET);
        assert_payload(e, "6"); /* the poll that still waited */
        assert_int_equal(agx_eio_poll(e), AGX_EIO_E_TRANSPORT);
        assert_frame(e, "4b");
        assert_int_equal(take_ws(e, "4c", &kind), 0);
        assert_int_equal(kind, AGX_EIO_GOT);
}

static void test_wrong_moves(void **state)
{
        static const char *const wrong[] = {"5", "2", "2prob", "3probe", "4x", "1", "", "x"};
        agx_eio_event event;

        (void)state;
        for (size_t i = 0; i < COUNT(wrong) + 3; ++i) {
                _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);

                assert_int_equal(agx_eio_ws_opened(e, 3000), 0);
                if (i < COUNT(wrong)) {
                        assert_int_equal(take_ws(e, wrong[i], NULL), AGX_EIO_E_PROBE);
                } else if (i == COUNT(wrong)) {
                        assert_int_equal(agx_eio_ws_read(e, true, AGX_VIEW("2probe"), 0, &event), AGX_EIO_E_PROBE);
                } else if (i == COUNT(wrong) + 1) {
                        assert_int_equal(take_ws(e, "2probe", NULL), 0);
                        assert_int_equal(take_ws(e, "2probe", NULL), AGX_EIO_E_PROBE);
                } else {
                        agx_eio_tick(e, 12999, &event);
                        assert_int_equal(event.kind, AGX_EIO_NOTHING);
                        assert_int_equal(agx_eio_timer(e), 13000);
                        agx_eio_tick(e, 13000, &event);
                        assert_int_equal(event.kind, AGX_EIO_PROBE_ENDED);
                }
                assert_false(agx_eio_is_closed(e)); /* the session goes on */
                assert_false(agx_eio_ws_next(e, &(agx_eio_frame){0}));
                assert_int_equal(take_ws(e, "2probe", NULL), AGX_EIO_E_TRANSPORT);
                assert_int_equal(take(e, "4x", NULL), 0);
                assert_int_equal(agx_eio_ws_opened(e, 5000), 0); /* and may try again */
                agx_eio_ws_lost(e);
                assert_false(agx_eio_is_closed(e));
        }
}

static void test_move_not_offered(void **state)
{
        agx_eio_bounds still = bounds;
        agx_eio *e = NULL;

        (void)state;
        still.upgrade = false;
        assert_int_equal(agx_eio_new(&e, AGX_EIO_SERVER, &still, AGX_VIEW("s"), AGX_EIO_POLLING, 0), 0);
        assert_int_equal(agx_eio_poll(e), 0);
        assert_payload(e, "0{\"sid\":\"s\",\"upgrades\":[],\"pingInterval\":25000,\"pingTimeout\":20000,"
                          "\"maxPayload\":1000}");
        assert_int_equal(agx_eio_ws_opened(e, 0), AGX_EIO_E_TRANSPORT);
        agx_eio_free(e);
        assert_int_equal(agx_eio_new(&e, AGX_EIO_SERVER, &still, AGX_VIEW("a b"), AGX_EIO_POLLING, 0), -EINVAL);
        assert_int_equal(agx_eio_new(&e, AGX_EIO_CLIENT, &still, AGX_VIEW("a"), AGX_EIO_POLLING, 0), -EINVAL);
        still.payload_packets = 0;
        assert_int_equal(agx_eio_new(&e, AGX_EIO_CLIENT, &still, AGX_VIEW_NULL, AGX_EIO_POLLING, 0), -EINVAL);
}

/* A client leaves long-polling only when no request is under way, and stays if it is refused. */
static void test_move_at_client(void **state)
{
        static const char offer[] =
                "0{\"sid\":\"a\",\"upgrades\":[\"websocket\"],\"pingInterval\":1,\"pingTimeout\":1}";
        agx_eio_frame frame;

        (void)state;
        for (int good = 0; good < 2; ++good) {
                _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_CLIENT, AGX_EIO_POLLING);

                assert_int_equal(agx_eio_poll(e), 0);
                assert_int_equal(take(e, offer, NULL), 0);
                assert_true(agx_eio_ws_wanted(e));
                assert_int_equal(agx_eio_poll(e), 0);
                assert_int_equal(send_text(e, "a"), 0);
                assert_payload(e, "4a");
                assert_int_equal(agx_eio_ws_opened(e, 3000), 0);
                assert_false(agx_eio_ws_wanted(e));
                assert_frame(e, "2probe");
                assert_int_equal(take_ws(e, good ? "3probe" : "3", NULL), good ? 0 : AGX_EIO_E_PROBE);
                assert_int_equal(send_text(e, "b"), 0);
                assert_false(agx_eio_ws_next(e, &frame));
                assert_int_equal(take(e, "6", NULL), 0); /* the poll is answered */
                assert_int_equal(agx_eio_poll_due(e), !good);
                assert_false(agx_eio_ws_next(e, &frame)); /* the POST is not */
                agx_eio_posted(e);
                assert_int_equal(agx_eio_payload_due(e), !good);
                if (!good) {
                        assert_payload(e, "4b");
                        assert_false(agx_eio_ws_wanted(e)); /* once is enough */
                        continue;
                }
                assert_frame(e, "5");
                assert_int_equal(agx_eio_over(e), AGX_EIO_WEBSOCKET);
                assert_frame(e, "4b");
                assert_int_equal(take_ws(e, "3probe", NULL), AGX_EIO_E_BAD);
        }
}

/* ---- the end ---- */

static void test_goodbye(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *ws = new_eio(AGX_EIO_SERVER, AGX_EIO_WEBSOCKET);
        _cleanup_(agx_eio_freep) agx_eio *poll = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        _cleanup_(agx_eio_freep) agx_eio *fresh = new_eio(AGX_EIO_CLIENT, AGX_EIO_POLLING);
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(1000);

        (void)state;
        assert_int_equal(agx_eio_ws_opened(ws, 0), 0);
        assert_int_equal(send_text(ws, "last words"), 0);
        agx_eio_close(ws);
        agx_eio_close(ws);
        assert_int_equal(send_text(ws, "x"), AGX_EIO_E_CLOSED);
        agx_eio_ws_next(ws, &(agx_eio_frame){0});
        agx_eio_ws_sent(ws);
        assert_frame(ws, "4last words");
        assert_false(agx_eio_is_closed(ws));
        assert_frame(ws, "1");
        assert_true(agx_eio_is_closed(ws));
        assert_int_equal(agx_eio_poll(poll), 0);
        assert_int_equal(agx_eio_payload_write(poll, &body), 0);
        assert_int_equal(agx_eio_poll(poll), 0);
        assert_int_equal(send_text(poll, "a"), 0);
        agx_eio_close(poll);
        assert_payload(poll, "4a\x1e"
                             "1");
        assert_true(agx_eio_is_closed(poll));
        agx_eio_close(fresh);
        assert_true(agx_eio_is_closed(fresh));
        assert_false(agx_eio_poll_due(fresh));
}

/* The peer's goodbye answers the poll that waits. */
static void test_peer_goodbye(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(1000);

        (void)state;
        assert_int_equal(agx_eio_poll(e), 0);
        assert_int_equal(agx_eio_payload_write(e, &body), 0);
        assert_int_equal(agx_eio_poll(e), 0);
        assert_int_equal(take(e, "1", NULL), 0);
        assert_payload(e, "6");
        assert_false(agx_eio_payload_due(e));
}

static void test_two_polls(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);

        (void)state;
        assert_int_equal(agx_eio_poll(e), 0);
        assert_int_equal(agx_eio_poll(e), AGX_EIO_E_BAD);
        assert_true(agx_eio_is_closed(e));
        assert_payload(e, "6");
}

/* ---- both together ---- */

enum { MESSAGES = 120 };

typedef struct letter {
        bool binary;
        char text[40];
        size_t n;
} letter;

/* What travels in one direction over a pretended WebSocket. */
typedef struct pipe_ {
        letter letters[16];
        size_t n;
} pipe_;

typedef struct side {
        agx_eio *eio;
        pipe_ in;
        size_t sent, got;
        bool ws;
} side;

typedef struct world {
        side server, client;
        agx_buf get;  /* the answer on its way to the client */
        agx_buf post; /* the body on its way to the server */
        bool asking, answered, posting, taken;
        bool failed;
        uint64_t now;
} world;

static size_t message_text(char *to, size_t room, size_t i)
{
        return (size_t)snprintf(to, room, "%s%zu", i % 5 ? "message " : "", i);
}

static void must(world *w, int r)
{
        if (r)
                w->failed = true;
}

static void say_next(world *w, side *s)
{
        char text[40];
        size_t n = message_text(text, sizeof(text), s->sent);
        int r;

        if (s->sent == MESSAGES)
                return;
        r = agx_eio_send(s->eio, &(agx_eio_message){.binary = s->sent % 3 == 1, .head = agx_view_of(text, n)}, 1);
        if (!r)
                ++s->sent;
        else if (r < 0)
                w->failed = true;
}

static void expect(world *w, side *s, const agx_eio_event *event)
{
        char text[40];
        size_t n = message_text(text, sizeof(text), s->got);

        if (event->kind != AGX_EIO_GOT)
                return;
        if (event->binary != (s->got % 3 == 1) || !agx_view_eq(event->data, agx_view_of(text, n)))
                w->failed = true;
        ++s->got;
}

static void ws_send(world *w, side *from, side *to)
{
        agx_eio_frame frame;
        letter *l = &to->in.letters[to->in.n];

        if (!from->ws || to->in.n == COUNT(to->in.letters) || !agx_eio_ws_next(from->eio, &frame))
                return;
        l->binary = frame.binary;
        l->n = frame.head.n + frame.body.n;
        if (l->n > sizeof(l->text)) { /* an opening: not over this road */
                w->failed = true;
                return;
        }
        memcpy(l->text, frame.head.p, frame.head.n);
        if (frame.body.n)
                memcpy(l->text + frame.head.n, frame.body.p, frame.body.n);
        ++to->in.n;
        agx_eio_ws_sent(from->eio);
}

static void ws_receive(world *w, side *s)
{
        agx_eio_event event;
        letter l;

        if (!s->in.n)
                return;
        l = s->in.letters[0];
        memmove(s->in.letters, s->in.letters + 1, --s->in.n * sizeof(letter));
        must(w, agx_eio_ws_read(s->eio, l.binary, agx_view_of(l.text, l.n), w->now, &event));
        expect(w, s, &event);
}

static void take_payload(world *w, side *s, agx_buf *body)
{
        agx_view in = agx_buf_view(body);
        agx_eio_event event;

        while (in.p && !w->failed) {
                must(w, agx_eio_payload_read(s->eio, &in, w->now, &event));
                if (!w->failed)
                        expect(w, s, &event);
        }
        agx_buf_clear(body);
}

static void step_get(world *w)
{
        if (!w->asking && agx_eio_poll_due(w->client.eio)) {
                must(w, agx_eio_poll(w->client.eio));
                must(w, agx_eio_poll(w->server.eio));
                w->asking = true;
                w->answered = false;
        } else if (w->asking && !w->answered && agx_eio_payload_due(w->server.eio)) {
                must(w, agx_eio_payload_write(w->server.eio, &w->get));
                w->answered = true;
        } else if (w->asking && w->answered) {
                w->asking = false;
                take_payload(w, &w->client, &w->get);
        }
}

static void step_post(world *w)
{
        if (!w->posting && agx_eio_payload_due(w->client.eio)) {
                must(w, agx_eio_payload_write(w->client.eio, &w->post));
                w->posting = true;
                w->taken = false;
        } else if (w->posting && !w->taken) {
                take_payload(w, &w->server, &w->post);
                w->taken = true;
        } else if (w->posting) {
                w->posting = false;
                agx_eio_posted(w->client.eio);
        }
}

static void step_ws(world *w)
{
        if (!agx_eio_ws_wanted(w->client.eio))
                return;
        must(w, agx_eio_ws_opened(w->client.eio, w->now));
        must(w, agx_eio_ws_opened(w->server.eio, w->now));
        w->client.ws = w->server.ws = true;
}

static void step_time(world *w)
{
        agx_eio_event event;

        w->now += (uint64_t)rand() % 20;
        agx_eio_tick(w->server.eio, w->now, &event);
        w->failed = w->failed || event.kind == AGX_EIO_CLOSED;
        agx_eio_tick(w->client.eio, w->now, &event);
        w->failed = w->failed || event.kind == AGX_EIO_CLOSED;
}

static void step(world *w)
{
        switch (rand() % 10) {
        case 0:
                say_next(w, &w->client);
                break;
        case 1:
                say_next(w, &w->server);
                break;
        case 2:
                step_get(w);
                break;
        case 3:
                step_post(w);
                break;
        case 4:
                ws_send(w, &w->client, &w->server);
                break;
        case 5:
                ws_send(w, &w->server, &w->client);
                break;
        case 6:
                ws_receive(w, &w->client);
                break;
        case 7:
                ws_receive(w, &w->server);
                break;
        case 8:
                if (w->now > 500 || rand() % 4 == 0)
                        step_ws(w);
                break;
        default:
                step_time(w);
        }
}

static void world_init(world *w, bool upgrade)
{
        agx_eio_bounds b = bounds;

        b.upgrade = upgrade;
        b.interval_ms = 100;
        b.timeout_ms = 100000;
        b.upgrade_ms = 1000000;
        *w = (world){.get = AGX_BUF_NULL(10000), .post = AGX_BUF_NULL(10000)};
        must(w, agx_eio_new(&w->server.eio, AGX_EIO_SERVER, &b, AGX_VIEW("sid"), AGX_EIO_POLLING, 0));
        must(w, agx_eio_new(&w->client.eio, AGX_EIO_CLIENT, &b, AGX_VIEW_NULL, AGX_EIO_POLLING, 0));
}

static void world_deinit(world *w)
{
        agx_eio_free(w->server.eio);
        agx_eio_free(w->client.eio);
        agx_buf_deinit(&w->get);
        agx_buf_deinit(&w->post);
}

static bool world_run(world *w, size_t steps)
{
        while (steps-- && !w->failed && (w->server.got < MESSAGES || w->client.got < MESSAGES))
                step(w);
        return !w->failed && w->server.got == MESSAGES && w->client.got == MESSAGES;
}

static void test_both_ways(void **state)
{
        size_t moved = 0;

        (void)state;
        for (unsigned seed = 1; seed <= 300; ++seed) {
                world w;

                srand(seed);
                world_init(&w, seed % 3);
                if (!world_run(&w, 200000))
                        fail_msg("seed %u: server got %zu, client got %zu, at %llu ms: %s, %s", seed, w.server.got,
                                 w.client.got, (unsigned long long)w.now, agx_eio_reason(w.server.eio),
                                 agx_eio_reason(w.client.eio));
                moved += agx_eio_over(w.client.eio) == AGX_EIO_WEBSOCKET;
                world_deinit(&w);
        }
        assert_in_range(moved, 150, 200);
}

/* Each allocation of a whole conversation fails in turn: someone says so, nobody crashes or leaks. */
static void test_out_of_memory(void **state)
{
        size_t n = 0;
        bool fired;

        (void)state;
        do {
                world w;

                srand(5);
                agx_oom_arm(++n);
                world_init(&w, true);
                if (w.server.eio && w.client.eio)
                        world_run(&w, 4000);
                fired = agx_oom_disarm();
                world_deinit(&w);
        } while (fired);
        assert_true(n > 50);
}

static void test_base64_out_of_memory(void **state)
{
        _cleanup_(agx_eio_freep) agx_eio *e = new_eio(AGX_EIO_SERVER, AGX_EIO_POLLING);
        agx_view in = AGX_VIEW("bAAAA");
        agx_eio_event event;

        (void)state;
        agx_oom_arm(1);
        assert_int_equal(agx_eio_payload_read(e, &in, 0, &event), -ENOMEM);
        assert_true(agx_oom_disarm());
        assert_null(in.p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_payloads),         cmocka_unit_test(test_packet_written),
                cmocka_unit_test(test_server_opening),   cmocka_unit_test(test_client_opening),
                cmocka_unit_test(test_server_reads),     cmocka_unit_test(test_client_reads),
                cmocka_unit_test(test_payload_bounds),   cmocka_unit_test(test_sizes_and_queue),
                cmocka_unit_test(test_server_heartbeat), cmocka_unit_test(test_client_heartbeat),
                cmocka_unit_test(test_move_at_server),   cmocka_unit_test(test_wrong_moves),
                cmocka_unit_test(test_move_not_offered), cmocka_unit_test(test_move_at_client),
                cmocka_unit_test(test_goodbye),          cmocka_unit_test(test_peer_goodbye),
                cmocka_unit_test(test_two_polls),        cmocka_unit_test(test_both_ways),
                cmocka_unit_test(test_out_of_memory),    cmocka_unit_test(test_base64_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
