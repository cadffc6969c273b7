/* WebSocket frames: tables for both roles, each row whole, byte by byte and at every cut; the writing side, alone and
 * against the reading side with random sizes, masks and cuts; floods; lack of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/oom.h"
#include "support/ws_log.h"

typedef struct row {
        agx_view in;
        const char *want;
} row;

#define ROW(literal, want_)                                                                                            \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .want = (want_)                                               \
        }

/* A mask that changes nothing, so that frames of a client can be read. */
#define M "\0\0\0\0"

static const agx_ws_feed server = {.role = AGX_WS_SERVER,
                                   .bounds = {.message_max = 70000, .fragments_max = 4, .frame_out = 100}};
static const agx_ws_feed client = {.role = AGX_WS_CLIENT,
                                   .bounds = {.message_max = 70000, .fragments_max = 4, .frame_out = 100}};

static bool gives(const agx_ws_feed *feed, const row *r, size_t first, size_t step)
{
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);
        agx_view got;

        agx_ws_log(&log, feed, r->in, first, step);
        got = agx_buf_view(&log);
        if (agx_view_eq(got, agx_view_str(r->want)))
                return true;
        print_error("wanted: %s\ngot:    %.*s\nfed %zu, then %zu at a time\n\n", r->want, (int)got.n, got.p, first,
                    step);
        return false;
}

static bool row_holds(const agx_ws_feed *feed, const row *r)
{
        if (!gives(feed, r, r->in.n, r->in.n) || !gives(feed, r, 1, 1))
                return false;
        for (size_t cut = 1; cut < r->in.n; cut += r->in.n / 500 + 1)
                if (!gives(feed, r, cut, r->in.n))
                        return false;
        return true;
}

static void check(const agx_ws_feed *feed, const row *rows, size_t n)
{
        size_t wrong = 0;

        for (size_t i = 0; i < n; ++i)
                wrong += !row_holds(feed, &rows[i]);
        assert_int_equal(wrong, 0);
}

#define CHECK(feed, rows) check(feed, rows, sizeof(rows) / sizeof((rows)[0]))

/* ---- reading ---- */

static void test_messages(void **state)
{
        static const row rows[] = {
                ROW("", ""),
                ROW("\x81\x85" M "hello", "T[hello]"),
                ROW("\x82\x85" M "he\0lo", "B[he\\x00lo]"),
                ROW("\x81\x80" M, "T[]"),
                ROW("\x82\x80" M, "B[]"),
                ROW("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "T[Hello]"), /* the RFC's own example */
                ROW("\x01\x83" M "Hel\x80\x82" M "lo", "T[Hello]"),
                ROW("\x02\x80" M "\x00\x81" M "x\x80\x80" M, "B[x]"),
                ROW("\x81\x81" M "a\x81\x81" M "b\x82\x81" M "c", "T[a]T[b]B[c]"),
                ROW("\x81\x83" M "\xe2\x82\xac", "T[\\xe2\\x82\\xac]"),
                ROW("\x01\x81" M "\xe2\x00\x81" M "\x82\x80\x81" M "\xac", "T[\\xe2\\x82\\xac]"),
                /* control frames pass between fragments */
                ROW("\x01\x81" M "a\x89\x82" M "hi\x80\x81" M "b", "P[hi]<8a026869>T[ab]"),
                ROW("\x02\x80" M "\x8a\x81" M "z\x80\x80" M, "p[z]B[]"),
                ROW("\x89\x80" M "\x89\x81" M "1", "P[]<8a00>P[1]<8a0131>"),
                ROW("\x82\xfe\x00\x7e" M "0123456789012345678901234567890123456789012345678901234567890123456789"
                    "01234567890123456789012345678901234567890123456789012345",
                    "B[#126:373854f1]"),
        };

        (void)state;
        CHECK(&server, rows);
}

static void test_server_messages_to_client(void **state)
{
        static const row rows[] = {
                ROW("\x81\x05hello", "T[hello]"),
                ROW("\x01\x03Hel\x80\x02lo", "T[Hello]"),
                ROW("\x82\x00", "B[]"),
                ROW("\x01\x01"
                    "a\x89\x02hi\x80\x01"
                    "b",
                    "P[hi]<8a82000000006869>T[ab]"),
                ROW("\x81\x03\xe2\x82\xac\x82\x01x", "T[\\xe2\\x82\\xac]B[x]"),
                ROW("\x88\x05\x03\xe9"
                    "bye\x81\x01x",
                    "C1001[bye]<88820000000003e9>"),
                ROW("\x81\x81" M "a",
                    "!1002(a frame of a server with a mask)<88a10000000003ea61206672616d65206f66206120"
                    "7365727665722077697468206120"
                    "6d61736b>"),
        };

        (void)state;
        CHECK(&client, rows);
}

/* Only the verdict: the close frame that follows is the same for all, see test_close_frames(). */
static void check_errors(const agx_ws_feed *feed, const row *rows, size_t n)
{
        for (size_t i = 0; i < n; ++i)
                for (size_t cut = 1; cut <= rows[i].in.n; ++cut) {
                        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);
                        agx_view got;

                        agx_ws_log(&log, feed, rows[i].in, cut, cut);
                        got = agx_buf_view(&log);
                        got.n = got.n && memchr(got.p, '<', got.n)
                                        ? (size_t)((const char *)memchr(got.p, '<', got.n) - got.p)
                                        : got.n;
                        if (!agx_view_eq(got, agx_view_str(rows[i].want)))
                                fail_msg("row %zu, cut %zu: %.*s, not %s", i, cut, (int)got.n, got.p, rows[i].want);
                }
}

static void test_errors(void **state)
{
        static const row rows[] = {
                ROW("\x81\x05hello", "!1002(a frame of a client without a mask)"),
                ROW("\xc1\x80" M, "!1002(a reserved bit is set)"),
                ROW("\xa1\x80" M, "!1002(a reserved bit is set)"),
                ROW("\x91\x80" M, "!1002(a reserved bit is set)"),
                ROW("\xc9\x80" M, "!1002(a reserved bit is set)"),
                ROW("\x83\x80" M, "!1002(an unknown opcode)"),
                ROW("\x87\x80" M, "!1002(an unknown opcode)"),
                ROW("\x8b\x80" M, "!1002(an unknown opcode)"),
                ROW("\x8f\x80" M, "!1002(an unknown opcode)"),
                ROW("\x89\xfe\x00\x7e" M, "!1002(a control frame of more than 125 bytes)"),
                ROW("\x88\xff\x00\x00\x00\x00\x00\x00\x00\x01" M, "!1002(a control frame of more than 125 bytes)"),
                ROW("\x09\x80" M, "!1002(a control frame in fragments)"),
                ROW("\x08\x80" M, "!1002(a control frame in fragments)"),
                ROW("\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00" M, "!1002(a length with its top bit set)"),
                ROW("\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" M, "!1002(a length with its top bit set)"),
                ROW("\x82\xff\x00\x00\x00\x00\x00\x00\x00\x02" M "xx", "!1002(a length not in its shortest form)"),
                ROW("\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff" M "xx", "!1002(a length not in its shortest form)"),
                ROW("\x82\xfe\x00\x7d" M "xx", "!1002(a length not in its shortest form)"),
                ROW("\x80\x81" M "x", "!1002(a continuation of nothing)"),
                ROW("\x00\x81" M "x", "!1002(a continuation of nothing)"),
                ROW("\x01\x81" M "x\x81\x81" M "y", "!1002(a message inside another)"),
                ROW("\x01\x81" M "x\x02\x81" M "y", "!1002(a message inside another)"),
                ROW("\x81\x82" M "a\xff", "!1007(a text message that is not UTF-8)"),
                ROW("\x81\x83" M "\xed\xa0\x80", "!1007(a text message that is not UTF-8)"),
                ROW("\x81\x82" M "\xe2\x82", "!1007(a text message that is not UTF-8)"),
                ROW("\x01\x82" M "\xe2\x82\x80\x81" M "x", "!1007(a text message that is not UTF-8)"),
                ROW("\x01\x81" M "\xe2\x80\x80" M, "!1007(a text message that is not UTF-8)"),
                /* the text is wrong before the frame is whole */
                ROW("\x81\xfe\x01\x00" M "\xf4\x90", "!1007(a text message that is not UTF-8)"),
                /* announced, not one byte of it here */
                ROW("\x82\xff\x00\x00\x01\x00\x00\x00\x00\x00", "!1009(a message above the limit)"),
                ROW("\x82\xff\x00\x00\x00\x00\x00\x01\x11\x71", "!1009(a message above the limit)"),
                ROW("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", "!1009(a message above the limit)"),
                ROW("\x02\x81" M "x\x80\xff\x7f\xff\xff\xff\xff\xff\xff\xff", "!1009(a message above the limit)"),
                ROW("\x02\x80" M "\x00\x80" M "\x00\x80" M "\x00\x80" M "\x00\x80" M,
                    "!1009(a message in too many fragments)"),
                ROW("\x88\x81" M "x", "!1002(a close of one byte)"),
                ROW("\x88\x84" M "\x03\xe8\xc3(", "!1007(a close reason that is not UTF-8)"),
                ROW("\x88\x83" M "\x03\xe8\xc3", "!1007(a close reason that is not UTF-8)"),
        };

        (void)state;
        check_errors(&server, rows, sizeof(rows) / sizeof(rows[0]));
}

static void test_close_codes(void **state)
{
        static const struct {
                unsigned from, to;
        } good[] = {{1000, 1003}, {1007, 1014}, {3000, 4999}};

        (void)state;
        for (unsigned code = 0; code < 65536; code += code < 5100 ? 1 : 911) {
                char in[] = {'\x88', '\x82', 0, 0, 0, 0, (char)(code >> 8), (char)code};
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);
                bool may = false;
                char want[64];

                for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); ++i)
                        may = may || (code >= good[i].from && code <= good[i].to);
                agx_ws_log(&log, &server, agx_view_of(in, sizeof(in)), sizeof(in), 1);
                snprintf(want, sizeof(want), "C%u[]<8802%04x>", code, code);
                assert_int_equal(may, agx_view_eq(agx_buf_view(&log), agx_view_str(want)));
        }
}

static void test_close_frames(void **state)
{
        static const row rows[] = {
                ROW("\x88\x80" M, "C1005[]<8800>"),
                ROW("\x88\x82" M "\x03\xe8", "C1000[]<880203e8>"),
                ROW("\x88\x85" M "\x03\xe8"
                    "bye",
                    "C1000[bye]<880203e8>"),
                /* what comes after a close is dropped, well formed or not */
                ROW("\x88\x82" M "\x03\xe8\x81\x81" M "x", "C1000[]<880203e8>"),
                ROW("\x88\x82" M "\x03\xe8\xff\xff\xff", "C1000[]<880203e8>"),
                ROW("\x88\x82" M "\x03\xe8\x89\x80" M, "C1000[]<880203e8>"),
                /* a close in the middle of a message */
                ROW("\x01\x81" M "x\x88\x80" M, "C1005[]<8800>"),
                /* an error closes with its code and words, after what was asked for before */
                ROW("\x81\x81" M "x\x89\x80" M "\x83\x80" M "\x81\x81" M "y",
                    "T[x]P[]<8a00>!1002(an unknown opcode)<881303ea616e20756e6b6e6f776e206f70636f6465>"),
        };

        (void)state;
        CHECK(&server, rows);
}

static void put(agx_buf *b, agx_view v)
{
        assert_int_equal(agx_buf_append_view(b, v), 0);
}

/* The largest message and one byte more, in one frame and in two. */
static void test_message_bound(void **state)
{
        static char zeros[70001];
        _cleanup_(agx_buf_deinitp) agx_buf in = AGX_BUF_NULL(SIZE_MAX), log = AGX_BUF_NULL(SIZE_MAX);

        (void)state;
        put(&in, AGX_VIEW("\x82\xff\0\0\0\0\0\x01\x11\x70" M));
        put(&in, agx_view_of(zeros, 70000));
        put(&in, AGX_VIEW("\x02\xff\0\0\0\0\0\x01\x11\x6f" M));
        put(&in, agx_view_of(zeros, 69999));
        put(&in, AGX_VIEW("\x00\x80" M "\x80\x81" M "x\x82\x80" M));
        for (size_t step = 1; step < 70000; step = step * 7 + 3) {
                agx_buf_clear(&log);
                agx_ws_log(&log, &server, agx_buf_view(&in), step, step);
                put(&log, AGX_VIEW("\0"));
                assert_string_equal(agx_buf_view(&log).p, "B[#70000:e7dce3ea]B[#70000:6218752f]B[]");
        }
}

/* ---- writing ---- */

static agx_ws *new_ws(const agx_ws_feed *feed)
{
        agx_ws *ws = NULL;

        assert_int_equal(agx_ws_new(&ws, feed->role, &feed->bounds), 0);
        return ws;
}

static void assert_out(agx_buf *out, agx_view want)
{
        assert_int_equal(out->len, want.n);
        assert_memory_equal(agx_buf_view(out).p, want.p, want.n);
        agx_buf_clear(out);
}

static void test_send_small(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_ws_freep) agx_ws *ws = new_ws(&server), *c = new_ws(&client);

        (void)state;
        assert_int_equal(agx_ws_pull(ws, NULL, &out), AGX_WS_IDLE);
        assert_false(agx_ws_pending(ws));
        assert_int_equal(agx_ws_send(ws, true, AGX_VIEW("4"), AGX_VIEW("hello")), 0);
        assert_int_equal(agx_ws_send(ws, true, AGX_VIEW("x"), AGX_VIEW_NULL), AGX_WS_BUSY);
        assert_true(agx_ws_sending(ws));
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_false(agx_ws_sending(ws));
        assert_out(&out, AGX_VIEW("\x81\x06"
                                  "4hello"));
        assert_int_equal(agx_ws_send(ws, false, AGX_VIEW_NULL, AGX_VIEW_NULL), 0);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_out(&out, AGX_VIEW("\x82\x00"));
        assert_int_equal(agx_ws_send(c, true, AGX_VIEW("He"), AGX_VIEW("llo")), 0);
        assert_int_equal(agx_ws_pull(c, (const uint8_t *)"\x37\xfa\x21\x3d", &out), 0);
        assert_out(&out, AGX_VIEW("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"));
}

/* Fragments of at most frame_out bytes; control frames pass between them; the newest ping is answered. */
static void test_fragments_and_control(void **state)
{
        static char body[251];
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_ws_freep) agx_ws *ws = new_ws(&server);
        agx_view in = AGX_VIEW("\x89\x81" M "1\x89\x81" M "2");
        agx_ws_event event;

        (void)state;
        memset(body, 'b', sizeof(body));
        assert_int_equal(agx_ws_send(ws, false, AGX_VIEW("hd"), agx_view_of(body, sizeof(body))), 0);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_int_equal(out.len, 102);
        assert_memory_equal(out.data, "\x02\x64hdbbb", 7);
        agx_buf_clear(&out);
        while (!agx_ws_next(ws, &in, &event) && event.kind != AGX_WS_MORE)
                assert_int_equal(event.kind, AGX_WS_PING);
        assert_int_equal(agx_ws_ping(ws, AGX_VIEW("mine")), 0);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_out(&out, AGX_VIEW("\x8a\x01"
                                  "2"));
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_out(&out, AGX_VIEW("\x89\x04mine"));
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_int_equal(out.len, 102);
        assert_memory_equal(out.data, "\x00\x64", 2);
        agx_buf_clear(&out);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_int_equal(out.len, 55);
        assert_memory_equal(out.data, "\x80\x35", 2);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), AGX_WS_IDLE);
}

static void test_pull_into_a_full_buffer(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(7);
        _cleanup_(agx_ws_freep) agx_ws *ws = new_ws(&server);

        (void)state;
        assert_int_equal(agx_ws_send(ws, true, AGX_VIEW("hello"), AGX_VIEW("!")), 0);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), AGX_BUF_E_FULL);
        assert_int_equal(out.len, 0);
        out.max = 8;
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_out(&out, AGX_VIEW("\x81\x06hello!"));
}

static void test_closing(void **state)
{
        static char body[200], reason[200];
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_ws_freep) agx_ws *ws = new_ws(&server);
        agx_view in = AGX_VIEW("\x81\x81" M "x\x88\x82" M "\x03\xe8");
        agx_ws_event event;

        (void)state;
        for (size_t i = 0; i + 2 <= sizeof(reason); i += 2)
                memcpy(reason + i, "\xc3\xa9", 2);
        assert_int_equal(agx_ws_send(ws, false, AGX_VIEW_NULL, agx_view_of(body, sizeof(body))), 0);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        agx_buf_clear(&out);
        agx_ws_close(ws, AGX_WS_GOING_AWAY, agx_view_of(reason, sizeof(reason)));
        agx_ws_close(ws, AGX_WS_INTERNAL, AGX_VIEW("too late"));
        assert_int_equal(agx_ws_send(ws, false, AGX_VIEW_NULL, AGX_VIEW_NULL), AGX_WS_CLOSING);
        assert_int_equal(agx_ws_ping(ws, AGX_VIEW_NULL), AGX_WS_CLOSING);
        assert_int_equal(agx_ws_pull(ws, NULL, &out), 0);
        assert_int_equal(out.len, 2 + 2 + 122); /* no half character */
        assert_memory_equal(out.data, "\x88\x7c\x03\xe9\xc3\xa9", 6);
        assert_false(agx_ws_sending(ws));
        assert_false(agx_ws_done(ws));
        assert_int_equal(agx_ws_pull(ws, NULL, &out), AGX_WS_IDLE);
        assert_int_equal(agx_ws_next(ws, &in, &event), 0); /* the peer may still finish what it says */
        assert_int_equal(event.kind, AGX_WS_TEXT);
        assert_int_equal(agx_ws_next(ws, &in, &event), 0);
        assert_int_equal(event.kind, AGX_WS_CLOSE);
        assert_true(agx_ws_done(ws));
        assert_false(agx_ws_pending(ws)); /* one close is enough */
        assert_int_equal(agx_ws_ping(ws, agx_view_of(body, 126)), -EINVAL);
}

static void test_gathered(void **state)
{
        _cleanup_(agx_ws_freep) agx_ws *ws = new_ws(&server);
        agx_view head = AGX_VIEW("head"), body = AGX_VIEW("body");
        agx_ws_frame frame;

        (void)state;
        assert_int_equal(agx_ws_send(ws, false, head, body), 0);
        assert_int_equal(agx_ws_next_frame(ws, NULL, &frame), 0);
        assert_int_equal(frame.n_head, 2);
        assert_memory_equal(frame.head, "\x82\x08", 2);
        assert_ptr_equal(frame.parts[0].p, head.p); /* not copied */
        assert_ptr_equal(frame.parts[1].p, body.p);
        agx_ws_close(ws, AGX_WS_NO_CODE, AGX_VIEW("unsaid"));
        assert_int_equal(agx_ws_next_frame(ws, NULL, &frame), 0);
        assert_int_equal(frame.n_head, 2);
        assert_memory_equal(frame.head, "\x88\x00", 2);
        assert_int_equal(agx_ws_next_frame(ws, NULL, &frame), AGX_WS_IDLE);
}

static void test_bad_bounds(void **state)
{
        const agx_ws_bounds none = {.message_max = 1, .fragments_max = 1};
        agx_ws *ws = NULL;

        (void)state;
        assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &none), -EINVAL);
        agx_ws_free(NULL);
}

/* ---- both together ---- */

/* Sends `n` bytes from one end to the other in pieces of random size; they must come whole. */
static void pass(agx_ws *from, agx_ws *to, bool masked, const uint8_t *bytes, size_t n)
{
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        size_t cut = n ? (size_t)rand() % n : 0, came = 0;
        agx_ws_event event;

        assert_int_equal(agx_ws_send(from, false, agx_view_of(bytes, cut), agx_view_of(bytes + cut, n - cut)), 0);
        while (agx_ws_pending(from)) {
                uint8_t mask[4] = {(uint8_t)rand(), (uint8_t)rand(), (uint8_t)rand(), (uint8_t)rand()};

                assert_int_equal(agx_ws_pull(from, masked ? mask : NULL, &wire), 0);
        }
        while (wire.len) {
                agx_view in = agx_view_first(agx_buf_view(&wire), 1 + (size_t)rand() % 300), rest = in;

                do {
                        assert_int_equal(agx_ws_next(to, &rest, &event), 0);
                        if (event.kind == AGX_WS_MORE)
                                break;
                        assert_int_equal(event.kind, AGX_WS_BINARY);
                        assert_int_equal(event.data.n, n);
                        assert_memory_equal(event.data.p, bytes, n);
                        ++came;
                } while (true);
                agx_buf_consume(&wire, in.n);
        }
        assert_int_equal(came, 1);
}

static void test_random_both_ways(void **state)
{
        const agx_ws_bounds bounds = {.message_max = 200000, .fragments_max = 1 << 20, .frame_out = 777};
        static uint8_t bytes[200000];
        agx_ws *s, *c;

        (void)state;
        srand(7);
        for (size_t i = 0; i < sizeof(bytes); ++i)
                bytes[i] = (uint8_t)rand();
        assert_int_equal(agx_ws_new(&s, AGX_WS_SERVER, &bounds), 0);
        assert_int_equal(agx_ws_new(&c, AGX_WS_CLIENT, &bounds), 0);
        for (int round = 0; round < 60; ++round) {
                size_t n = (size_t)rand() % (round % 4 ? 3000 : sizeof(bytes));

                pass(s, c, false, bytes, n);
                pass(c, s, true, bytes, n);
        }
        agx_ws_free(s);
        agx_ws_free(c);
}

/* ---- floods and memory ---- */

static size_t errors_after(agx_ws *ws, agx_view frame, size_t frames)
{
        agx_ws_event event;

        for (size_t i = 0; i < frames; ++i) {
                agx_view in = frame;

                if (agx_ws_next(ws, &in, &event))
                        return i;
        }
        return frames;
}

static void test_floods(void **state)
{
        const agx_ws_bounds bounds = {.message_max = 1 << 20, .fragments_max = 100000, .frame_out = 100};
        agx_ws_event event;
        agx_ws *ws;

        (void)state;
        /* a million fragments of one byte */
        assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &bounds), 0);
        assert_int_equal(agx_ws_next(ws, &(agx_view){"\x02\x80" M, 6}, &event), 0);
        assert_int_equal(errors_after(ws, AGX_VIEW("\x00\x81" M "x"), 1000000), 99999);
        agx_ws_free(ws);
        /* empty fragments for ever */
        assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &bounds), 0);
        assert_int_equal(agx_ws_next(ws, &(agx_view){"\x01\x80" M, 6}, &event), 0);
        assert_int_equal(errors_after(ws, AGX_VIEW("\x00\x80" M), 1000000), 99999);
        agx_ws_free(ws);
        /* pings that nobody pulls the answers of */
        assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &bounds), 0);
        agx_oom_arm(1);
        assert_int_equal(errors_after(ws, AGX_VIEW("\x89\x81" M "x"), 1000000), 1000000);
        assert_false(agx_oom_disarm()); /* and not one allocation */
        agx_ws_free(ws);
}

/* A length is announced and nothing comes: nothing is taken. */
static void test_announced_only(void **state)
{
        const agx_ws_bounds bounds = {.message_max = 256u << 20, .fragments_max = 10, .frame_out = 100};
        agx_view in = AGX_VIEW("\x82\xff\x00\x00\x00\x00\x10\x00\x00\x00" M);
        agx_ws_event event;
        agx_ws *ws;

        (void)state;
        assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &bounds), 0);
        agx_oom_arm(1);
        assert_int_equal(agx_ws_next(ws, &in, &event), 0);
        assert_int_equal(event.kind, AGX_WS_MORE);
        assert_false(agx_oom_disarm());
        agx_ws_free(ws);
}

static void test_take(void **state)
{
        _cleanup_(agx_ws_freep) agx_ws *s = new_ws(&server), *c = new_ws(&client);
        agx_view in = AGX_VIEW("\x02\x82" M "he\x80\x83" M "llo\x82\x81" M "x"), plain = AGX_VIEW("\x82\x03yes");
        agx_buf got = AGX_BUF_NULL(100);
        agx_ws_event event;

        (void)state;
        assert_int_equal(agx_ws_next(s, &in, &event), 0);
        assert_int_equal(agx_ws_take(s, &event, &got), 0);
        assert_true(agx_view_eq(event.data, AGX_VIEW("hello")));
        assert_int_equal(agx_ws_next(s, &in, &event), 0);
        assert_true(agx_view_eq(event.data, AGX_VIEW("x")));
        assert_true(agx_view_eq(agx_buf_view(&got), AGX_VIEW("hello")));
        agx_buf_deinit(&got);
        assert_int_equal(agx_ws_next(c, &plain, &event), 0);
        assert_int_equal(agx_ws_take(c, &event, &got), 0); /* lay in the input */
        assert_true(agx_view_eq(agx_buf_view(&got), AGX_VIEW("yes")));
        agx_oom_arm(1);
        agx_buf_deinit(&got);
        plain = AGX_VIEW("\x82\x03yes");
        assert_int_equal(agx_ws_next(c, &plain, &event), 0);
        assert_int_equal(agx_ws_take(c, &event, &got), -ENOMEM);
        assert_true(agx_oom_disarm());
        agx_buf_deinit(&got);
}

/* Each allocation fails in turn: the reader says so, or nothing was lost. */
static void test_out_of_memory(void **state)
{
        static const row good = ROW("\x01\x83" M "Hel\x80\x82" M "lo\x82\x81" M "x", "T[Hello]B[x]");
        agx_ws_feed feed = server;
        size_t failed = 0;
        bool fired;

        (void)state;
        feed.pause = agx_oom_pause;
        do {
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);

                put(&log, AGX_VIEW("-"));
                agx_oom_arm(failed + 1);
                agx_ws_log(&log, &feed, good.in, 3, 3);
                fired = agx_oom_disarm();
                failed += fired;
                put(&log, AGX_VIEW("\0"));
                assert_string_equal(agx_buf_view(&log).p + 1, !fired ? good.want
                                                              : failed == 1
                                                                      ? "!mem"
                                                                      : "!mem<880f03f36f7574206f66206d656d6f7279>");
        } while (fired);
        assert_int_equal(failed, 2);
}

/* ---- pieces ---- */

static const agx_ws_feed server_pieces = {
        .role = AGX_WS_SERVER, .bounds = {.message_max = 300, .fragments_max = 4, .frame_out = 100, .pieces = true}};
static const agx_ws_feed client_pieces = {
        .role = AGX_WS_CLIENT, .bounds = {.message_max = 300, .fragments_max = 4, .frame_out = 100, .pieces = true}};

static void test_pieces(void **state)
{
        static const row rows[] = {
                ROW("\x82\x85" M "he\0lo", "M[he\\x00lo]"),
                ROW("\x82\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "M[Hello]"),
                ROW("\x82\x80" M, "M[]"),
                ROW("\x82\x80\x01\x02\x03\x04", "M[]"),
                ROW("\x02\x83" M "Hel\x80\x82" M "lo", "M[Hello]"),
                /* one of its frames is masked for all to see, the other is not */
                ROW("\x02\x83\x37\xfa\x21\x3d\x7f\x9f\x4d\x80\x82" M "lo", "M[Hello]"),
                ROW("\x02\x80" M "\x00\x81" M "x\x80\x80" M, "M[x]"),
                ROW("\x82\x81" M "a\x82\x81" M "b", "M[a]M[b]"),
                /* control frames pass between */
                ROW("\x02\x81" M "a\x89\x82" M "hi\x80\x81" M "b", "P[hi]<8a026869>M[ab]"),
                ROW("\x02\x81" M "a\x8a\x81\x01\0\0\0{\x00\x80" M "\x80\x81\x01\0\0\0c", "p[z]M[ab]"),
                ROW("\x02\x81" M "a\x88\x80" M "\x80\x81" M "b", "C1005[]<8800>"),
                /* text stays whole, and is checked */
                ROW("\x81\x85" M "hello", "T[hello]"),
                ROW("\x01\x83" M "Hel\x80\x82" M "lo\x82\x81" M "x\x81\x81" M "y", "T[Hello]M[x]T[y]"),
                ROW("\x81\x85" M "hello", "T[hello]"),
        };

        (void)state;
        CHECK(&server_pieces, rows);
}

static void test_pieces_to_client(void **state)
{
        static const row rows[] = {
                ROW("\x82\x05hello", "M[hello]"),
                ROW("\x82\x00", "M[]"),
                ROW("\x02\x03Hel\x89\x01!\x00\x00\x80\x02lo\x81\x01t", "P[!]<8a810000000021>M[Hello]T[t]"),
        };

        (void)state;
        CHECK(&client_pieces, rows);
}

/* `n` frames that are one message, each of `size` bytes behind a mask, or none. */
static void put_frames(agx_buf *out, size_t n, size_t size, const char *mask)
{
        for (size_t i = 0; i < n; ++i) {
                uint8_t head[] = {(uint8_t)((i ? 0 : 2) | (i + 1 == n ? 0x80 : 0)), (uint8_t)(mask ? 0xfe : 0x7e),
                                  (uint8_t)(size >> 8), (uint8_t)size};

                put(out, agx_view_of(head, sizeof(head)));
                if (mask)
                        put(out, agx_view_of(mask, 4));
                for (size_t j = 0; j < size; ++j) {
                        char c = (char)(i * size + j);

                        c = (char)(c ^ (mask ? mask[j & 3] : 0));
                        put(out, agx_view_of(&c, 1));
                }
        }
}

static agx_view bytes_of_frames(agx_buf *out, size_t n)
{
        for (size_t i = 0; i < n; ++i) {
                char c = (char)i;

                put(out, agx_view_of(&c, 1));
        }
        return agx_buf_view(out);
}

/* The bound holds for all frames of a message, and anew for the next one. */
static void test_pieces_bounds(void **state)
{
        static const char *const masks[] = {M, "\x37\xfa\x21\x3d"};

        (void)state;
        for (size_t i = 0; i < 2; ++i)
                for (int over = 0; over < 2; ++over) {
                        _cleanup_(agx_buf_deinitp) agx_buf in = AGX_BUF_NULL(SIZE_MAX), log = AGX_BUF_NULL(SIZE_MAX);

                        put_frames(&in, 2, 150, masks[i]);
                        put_frames(&in, 2, (size_t)150 + (size_t)over, masks[i]);
                        for (size_t step = 1; step <= in.len; step += step < 20 ? 1 : 37) {
                                agx_buf_clear(&log);
                                agx_ws_log(&log, &server_pieces, agx_buf_view(&in), step, step);
                                put(&log, AGX_VIEW("\0"));
                                assert_memory_equal(agx_buf_view(&log).p, "M[#300:", 7);
                                assert_int_equal(
                                        strstr(agx_buf_view(&log).p, "!1009(a message above the limit)") != NULL, over);
                        }
                }
}

static void test_pieces_too_many(void **state)
{
        static const row rows[] = {
                ROW("\x02\x80" M "\x00\x80" M "\x00\x80" M "\x80\x80" M, "M[]"),
                ROW("\x02\x80" M "\x00\x80" M "\x00\x80" M "\x00\x80" M "\x80\x80" M,
                    "!1009(a message in too many fragments)"),
                ROW("\x02\x80" M "\x82\x80" M, "!1002(a message inside another)"),
                ROW("\x82\x80" M "\x80\x80" M, "M[]!1002(a continuation of nothing)"),
        };

        (void)state;
        check_errors(&server_pieces, rows, 4);
}

/* Feeds all of `in` by random cuts; where bytes pass as they are, from a place of their own. Joins what comes. */
static size_t join_by_passing(agx_ws *ws, agx_view in, agx_buf *joined)
{
        size_t passed = 0;

        while (in.n) {
                size_t pass = agx_ws_passing(ws), n = 1 + (size_t)rand() % 200;
                _cleanup_(agx_buf_deinitp) agx_buf place = AGX_BUF_NULL(SIZE_MAX);
                agx_ws_event event;
                agx_view piece;

                n = pass && n > pass ? pass : n;
                n = n > in.n ? in.n : n;
                put(&place, agx_view_first(in, n));
                in = agx_view_from(in, n);
                piece = agx_buf_view(&place);
                do {
                        assert_int_equal(agx_ws_next(ws, &piece, &event), 0);
                        assert_true(event.kind == AGX_WS_MORE || event.kind == AGX_WS_PIECE);
                        if (event.kind == AGX_WS_PIECE && pass) {
                                assert_ptr_equal(event.data.p, place.data + place.head); /* nothing was moved */
                                assert_int_equal(event.data.n, n);
                                passed += n;
                        }
                        if (event.kind == AGX_WS_PIECE)
                                put(joined, event.data);
                } while (event.kind != AGX_WS_MORE);
        }
        return passed;
}

static void test_passing(void **state)
{
        static const char *const masks[] = {NULL, M, "\x37\xfa\x21\x3d"};

        (void)state;
        srand(8);
        for (size_t round = 0; round < 300; ++round) {
                _cleanup_(agx_buf_deinitp) agx_buf in = AGX_BUF_NULL(SIZE_MAX), want = AGX_BUF_NULL(SIZE_MAX),
                                                   got = AGX_BUF_NULL(SIZE_MAX);
                _cleanup_(agx_ws_freep) agx_ws *ws = NULL;
                const char *mask = masks[round % 3];
                agx_ws_bounds bounds = {.message_max = 1000, .fragments_max = 4, .frame_out = 1, .pieces = true};
                size_t n = 1 + (size_t)rand() % 3, size = 126 + (size_t)rand() % 200, passed;

                assert_int_equal(agx_ws_new(&ws, mask ? AGX_WS_SERVER : AGX_WS_CLIENT, &bounds), 0);
                put_frames(&in, n, size, mask);
                passed = join_by_passing(ws, agx_buf_view(&in), &got);
                assert_true(agx_view_eq(bytes_of_frames(&want, n * size), agx_buf_view(&got)));
                if (mask == masks[2])
                        assert_int_equal(passed, 0);
                assert_int_equal(agx_ws_passing(ws), 0);
        }
}

/* Nothing passes of what is text, control, an error, or of a reader that gives messages whole. */
static void test_nothing_passes(void **state)
{
        static const agx_view heads[] = {{"\x01\x85" M "h", 7}, {"\x89\x85" M "h", 7}, {"\x82\x85\x01\0\0\0h", 7},
                                         {"\x82\x85\0\0", 4},   {"\x82", 1},           {"\x82\x05", 2}};
        agx_ws_event event;

        (void)state;
        for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); ++i) {
                _cleanup_(agx_ws_freep) agx_ws *ws = NULL;
                agx_view in = heads[i];

                assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &server_pieces.bounds), 0);
                (void)agx_ws_next(ws, &in, &event);
                assert_int_equal(agx_ws_passing(ws), 0);
        }
        for (int pieces = 0; pieces < 2; ++pieces) {
                _cleanup_(agx_ws_freep) agx_ws *ws = NULL;
                agx_ws_bounds bounds = server_pieces.bounds;
                agx_view in = AGX_VIEW("\x82\x85" M);

                bounds.pieces = pieces;
                assert_int_equal(agx_ws_new(&ws, AGX_WS_SERVER, &bounds), 0);
                assert_int_equal(agx_ws_next(ws, &in, &event), 0);
                assert_int_equal(agx_ws_passing(ws), pieces ? 5 : 0);
        }
}

static void test_error_names(void **state)
{
        (void)state;
        assert_int_equal(agx_ws_error_code(AGX_WS_E_FRAGMENTS), AGX_WS_TOO_BIG);
        assert_int_equal(agx_ws_error_code(-ENOMEM), AGX_WS_INTERNAL);
        assert_int_equal(agx_ws_error_code(12345), AGX_WS_INTERNAL);
        assert_string_equal(agx_ws_error_text(-ENOMEM), "out of memory");
        assert_string_equal(agx_ws_error_text(0), "no error");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_messages),
                cmocka_unit_test(test_server_messages_to_client),
                cmocka_unit_test(test_errors),
                cmocka_unit_test(test_close_codes),
                cmocka_unit_test(test_close_frames),
                cmocka_unit_test(test_message_bound),
                cmocka_unit_test(test_send_small),
                cmocka_unit_test(test_fragments_and_control),
                cmocka_unit_test(test_pull_into_a_full_buffer),
                cmocka_unit_test(test_closing),
                cmocka_unit_test(test_gathered),
                cmocka_unit_test(test_bad_bounds),
                cmocka_unit_test(test_random_both_ways),
                cmocka_unit_test(test_floods),
                cmocka_unit_test(test_announced_only),
                cmocka_unit_test(test_take),
                cmocka_unit_test(test_out_of_memory),
                cmocka_unit_test(test_pieces),
                cmocka_unit_test(test_pieces_to_client),
                cmocka_unit_test(test_pieces_bounds),
                cmocka_unit_test(test_pieces_too_many),
                cmocka_unit_test(test_passing),
                cmocka_unit_test(test_nothing_passes),
                cmocka_unit_test(test_error_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
