/*
 * The fast wire's brain of a connection, with the other end of the wire as its peer: requests in one frame and in several,
 * refusals, replies in any order, streams that are reset, late, taken back or in the place of another.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "server/fastconn.h"
#include "support/oom.h"
#include "wire/ws.h"

enum { KIB = 1024, LARGE = 600 * KIB, REPLIES = 64 };

static char *large; /* LARGE bytes */
static const uint8_t seed[16] = {1};

typedef struct reply {
        uint32_t stream;
        unsigned status; /* 0: the stream was reset */
        agx_buf body;
        bool whole;
} reply;

typedef struct rig {
        agx_fastconn conn;
        agx_fast *peer;
        reply replies[REPLIES]; /* in the order of their beginnings */
        size_t n_replies;
        agx_fast_stream *asked; /* by the last feed */
        agx_fastconn_wish wish;
        uint64_t now;
        size_t step; /* bytes at a time */
        bool closed; /* the peer heard that it is over */
} rig;

static int set_up(void **state)
{
        (void)state;
        large = malloc(LARGE);
        for (size_t i = 0; large && i < LARGE; ++i)
                large[i] = (char)(i * 7 + i / 1000);
        return large ? 0 : -1;
}

static int tear_down(void **state)
{
        (void)state;
        free(large);
        return 0;
}

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        r->now = 1000;
        r->step = SIZE_MAX;
        assert_int_equal(agx_fastconn_init(&r->conn, AGX_VIEW("some-session"), seed, r->now), 0);
        assert_int_equal(agx_fast_new(&r->peer, true, true, seed), 0);
        assert_true(agx_view_eq(agx_fastconn_session(&r->conn), AGX_VIEW("some-session")));
}

static void rig_close(rig *r)
{
        agx_fastconn_deinit(&r->conn);
        agx_fast_free(r->peer);
        for (size_t i = 0; i < r->n_replies; ++i)
                agx_buf_deinit(&r->replies[i].body);
}

/* ---- what the peer hears ---- */

static reply *reply_of(rig *r, const agx_fast_piece *piece)
{
        reply *last = &r->replies[r->n_replies];

        for (size_t i = r->n_replies; !piece->first && i > 0; --i)
                if (r->replies[i - 1].stream == piece->stream && !r->replies[i - 1].whole)
                        return &r->replies[i - 1];
        assert_true(piece->first);
        assert_true(r->n_replies < REPLIES);
        *last = (reply){.stream = piece->stream, .status = piece->word, .body = AGX_BUF_NULL(SIZE_MAX)};
        ++r->n_replies;
        return last;
}

static void hear(rig *r, agx_view in)
{
        agx_fast_piece piece;
        int v;

        while (!(v = agx_fast_next(r->peer, &in, &piece))) {
                reply *to = reply_of(r, &piece);

                assert_true(piece.kind == AGX_FAST_REPLY || (piece.kind == AGX_FAST_RESET && !piece.word));
                assert_int_equal(agx_buf_append_view(&to->body, piece.data), 0);
                to->whole = piece.last;
        }
        assert_true(v == AGX_FAST_E_MORE || v == AGX_FAST_E_CLOSED);
        r->closed |= v == AGX_FAST_E_CLOSED;
}

/* Lets at most `max` bytes out to the peer, and frees what is gone then. */
static void let_out(rig *r, size_t max)
{
        agx_view segments[2];
        agx_fast_stream *s;
        int n = 1;

        while (max && n > 0) {
                size_t sent = 0;

                n = agx_fast_pending(r->conn.fast, segments);
                assert_in_range(n, 0, 2);
                for (int i = 0; i < n; ++i) {
                        agx_view some = agx_view_first(segments[i], max - sent);

                        hear(r, some);
                        sent += some.n;
                }
                agx_fast_sent(r->conn.fast, sent);
                max -= sent;
                while ((s = agx_fastconn_next_gone(&r->conn, r->now)))
                        agx_fastconn_free(s);
        }
}

static void check_reply(rig *r, size_t i, uint32_t stream, unsigned status)
{
        assert_true(i < r->n_replies);
        assert_int_equal(r->replies[i].stream, stream);
        assert_int_equal(r->replies[i].status, status);
        assert_true(r->replies[i].whole);
}

/* ---- what it says ---- */

/* Until the first wish, by steps; gives what is left. */
static agx_view feed(rig *r, agx_view in)
{
        r->asked = NULL;
        r->wish = AGX_FASTCONN_INPUT;
        while (in.n && r->wish == AGX_FASTCONN_INPUT) {
                agx_view some = agx_view_first(in, r->step), rest = some;
                char *place;
                size_t n;

                if (agx_fastconn_place(&r->conn, &place, &n)) {
                        some = rest = agx_view_first(some, n);
                        memcpy(place, some.p, some.n);
                        rest.p = place;
                }
                assert_int_equal(agx_fastconn_next(&r->conn, r->now, &rest, &r->wish, &r->asked), 0);
                in = agx_view_from(in, some.n - rest.n);
        }
        return in;
}

/* The bytes of all that the peer has to send. */
static void pull_peer(rig *r, agx_buf *to)
{
        agx_view segments[2];
        int n;

        while ((n = agx_fast_pending(r->peer, segments)) > 0)
                for (int i = 0; i < n; ++i) {
                        assert_int_equal(agx_buf_append_view(to, segments[i]), 0);
                        agx_fast_sent(r->peer, segments[i].n);
                }
        assert_int_equal(n, 0);
        while (agx_fast_next_written(r->peer))
                ;
}

static void put_request(agx_buf *to, const char *id, agx_view arguments)
{
        agx_call_request q = {.call_id = agx_view_str(id), .callable = AGX_VIEW("m::f"), .arguments = arguments};
        agx_mp_writer w = agx_mp_writer_on(to);

        agx_call_request_put(&w, &q, NULL, 0);
        assert_int_equal(agx_mp_writer_end(&w), 0);
}

/* Puts the bytes of a call with such a body into `wire`. */
static void say(rig *r, agx_buf *wire, uint32_t stream, uint32_t wait_ms, agx_view body)
{
        agx_fast_value v = {.kind = AGX_FAST_CALL, .stream = stream, .word = wait_ms, .parts = {body, AGX_VIEW("")}};

        agx_fast_send(r->peer, &v);
        pull_peer(r, wire);
}

static agx_fast_stream *ask(rig *r, uint32_t stream, uint32_t wait_ms, agx_view arguments)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_stream *s;
        char id[16];

        snprintf(id, sizeof(id), "c-%u", stream);
        put_request(&body, id, arguments);
        say(r, &wire, stream, wait_ms, agx_buf_view(&body));
        assert_int_equal(feed(r, agx_buf_view(&wire)).n, 0);
        assert_int_equal(r->wish, AGX_FASTCONN_SUBMIT);
        s = r->asked;
        assert_non_null(s);
        assert_int_equal(s->id, stream); /* NOLINT(clang-analyzer-core.NullDereference): as asserted */
        assert_true(agx_view_eq(s->request.call_id, agx_view_str(id)));
        assert_true(agx_view_eq(s->request.callable, AGX_VIEW("m::f")));
        assert_true(agx_view_eq(s->request.arguments, arguments));
        agx_fastconn_submitted(s);
        return s;
}

static void check_value(const reply *to, agx_view value)
{
        agx_call_reply got;

        assert_true(agx_call_reply_get(agx_buf_view(&to->body), false, &got));
        assert_true(got.ok);
        assert_true(agx_view_eq(got.value, value));
}

/* ---- the tests ---- */

/* Answered in another order than asked, borrowed and copied; their places are free when that is out. */
static void test_calls(void **state)
{
        agx_fast_stream *s[4];
        char value[] = "four";
        rig r;

        (void)state;
        rig_open(&r);
        for (uint32_t i = 0; i < 4; ++i)
                s[i] = ask(&r, 1 + i, 1000, AGX_VIEW("args"));
        assert_int_equal(r.conn.n_streams, 4);
        assert_int_equal(r.conn.n_asked, 4);
        assert_int_equal(agx_fastconn_reply_result(s[2], true, AGX_VIEW("three"), false), 0);
        assert_int_equal(agx_fastconn_reply_result(s[3], true, agx_view_str(value), true), 0);
        memset(value, 0, sizeof(value)); /* it was copied */
        assert_int_equal(agx_fastconn_reply_accepted(s[0], AGX_VIEW("c-1")), 0);
        assert_int_equal(agx_fastconn_reply_unavailable(s[1]), 0);
        assert_int_equal(r.conn.n_streams, 4);
        let_out(&r, SIZE_MAX);
        assert_int_equal(r.conn.n_streams, 0);
        assert_int_equal(r.conn.n_asked, 0);
        check_reply(&r, 0, 3, 200);
        check_value(&r.replies[0], AGX_VIEW("three"));
        check_reply(&r, 1, 4, 200);
        check_value(&r.replies[1], AGX_VIEW("four"));
        check_reply(&r, 2, 1, 202);
        check_reply(&r, 3, 2, 503);
        assert_int_equal(r.replies[3].body.len, 0);
        rig_close(&r);
}

static void test_fault(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("ValueError"), .message = AGX_VIEW("no")};
        agx_call_reply got;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_fastconn_reply_fault(ask(&r, 9, 0, AGX_VIEW("")), &fault), 0);
        let_out(&r, SIZE_MAX);
        check_reply(&r, 0, 9, 200);
        assert_true(agx_call_reply_get(agx_buf_view(&r.replies[0].body), false, &got));
        assert_true(!got.ok && agx_view_eq(got.fault.type, AGX_VIEW("ValueError")));
        rig_close(&r);
}

/* A request of several frames is gathered, whatever the cuts; others pass it. */
static void test_large(void **state)
{
        static const size_t steps[] = {SIZE_MAX, 100 * KIB, 65536, 20001, 997};

        (void)state;
        for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); ++i) {
                rig r;

                rig_open(&r);
                r.step = steps[i];
                assert_int_equal(agx_fastconn_reply_result(ask(&r, 7, 1000, agx_view_of(large, LARGE)), true,
                                                           AGX_VIEW("v"), false),
                                 0);
                let_out(&r, SIZE_MAX);
                check_reply(&r, 0, 7, 200);
                rig_close(&r);
        }
}

/* With a mask that changes nothing its bytes may be read to where they stay; with another they may not. */
static void test_place(void **state)
{
        (void)state;
        for (int masked = 0; masked < 2; ++masked) {
                _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
                agx_view in;
                char *place;
                size_t n, given = 0;
                rig r;

                rig_open(&r);
                agx_fast_free(r.peer);
                assert_int_equal(agx_fast_new(&r.peer, true, masked, seed), 0);
                put_request(&body, "c", agx_view_of(large, LARGE));
                say(&r, &wire, 5, 0, agx_buf_view(&body));
                in = agx_buf_view(&wire);
                assert_false(agx_fastconn_place(&r.conn, &place, &n));
                for (r.wish = AGX_FASTCONN_INPUT; r.wish == AGX_FASTCONN_INPUT && in.n; in = agx_view_from(in, n)) {
                        if (agx_fastconn_place(&r.conn, &place, &n)) {
                                assert_in_range(n, 16 * KIB, AGX_FAST_FRAME_MAX);
                                ++given;
                        }
                        n = in.n < 1000 ? in.n : 1000;
                        assert_int_equal(feed(&r, agx_view_first(in, n)).n, 0);
                }
                assert_true(masked ? !given : given > 100);
                assert_int_equal(r.wish, AGX_FASTCONN_SUBMIT);
                assert_true(agx_view_eq(r.asked->request.arguments, agx_view_of(large, LARGE)));
                assert_false(agx_fastconn_place(&r.conn, &place, &n));
                rig_close(&r);
        }
}

static void test_bad_request(void **state)
{
        static const agx_view bodies[] = {{"", 0},
                                          {"\xc1", 1},
                                          {"\x80", 1},
                                          {"\x81\xa7"
                                           "call_id\xa0",
                                           10}};

        (void)state;
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
                agx_call_reply got;
                rig r;

                rig_open(&r);
                say(&r, &wire, 6, 0, bodies[i]);
                assert_int_equal(feed(&r, agx_buf_view(&wire)).n, 0);
                assert_int_equal(r.wish, AGX_FASTCONN_INPUT);
                let_out(&r, SIZE_MAX);
                check_reply(&r, 0, 6, 400);
                assert_true(agx_call_reply_get(agx_buf_view(&r.replies[0].body), false, &got));
                assert_true(agx_view_eq(got.fault.type, AGX_VIEW("BadRequest")));
                assert_int_equal(r.conn.n_streams, 0);
                (void)ask(&r, 6, 0, AGX_VIEW("again"));
                rig_close(&r);
        }
}

/* Refused before it has all come: the rest is dropped, then the stream's number serves again. */
static void test_too_large(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
        agx_view rest;
        rig r;

        (void)state;
        rig_open(&r);
        put_request(&body, "c", agx_view_of(large, LARGE));
        say(&r, &wire, 8, 0, agx_buf_view(&body));
        assert_int_equal(feed(&r, agx_view_first(agx_buf_view(&wire), 1000)).n, 0);
        r.conn.streams[8]->body.max = 300 * KIB; /* not to send what is too large indeed */
        rest = feed(&r, agx_view_first(agx_view_from(agx_buf_view(&wire), 1000), 400 * KIB));
        assert_int_equal(rest.n, 0);
        assert_int_equal(r.conn.n_streams, 1);
        let_out(&r, SIZE_MAX);
        check_reply(&r, 0, 8, 413);
        assert_int_equal(r.conn.n_streams, 0);
        assert_int_equal(feed(&r, agx_view_from(agx_buf_view(&wire), 1000 + 400 * KIB)).n, 0);
        assert_int_equal(r.wish, AGX_FASTCONN_INPUT);
        assert_int_equal(r.conn.n_streams, 0);
        (void)ask(&r, 8, 0, AGX_VIEW("again"));
        rig_close(&r);
}

/* The first half of a request on each of two connections: the server has room for one and a half. */
static void test_crowded_server(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX);
        agx_buf wire[2] = {AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX)};
        agx_gather gather = {.max = LARGE + LARGE / 4};
        agx_fast_value v[2];
        rig r[2];

        (void)state;
        put_request(&body, "a", agx_view_of(large, LARGE));
        for (int i = 0; i < 2; ++i) {
                rig_open(&r[i]);
                r[i].conn.shared = &gather;
                v[i] = (agx_fast_value){.kind = AGX_FAST_CALL,
                                        .stream = 1,
                                        .parts = {agx_buf_view(&body), AGX_VIEW("")}};
                agx_fast_send(r[i].peer, &v[i]);
                pull_peer(&r[i], &wire[i]);
                feed(&r[i], agx_view_first(agx_buf_view(&wire[i]), 3 * wire[i].len / 4));
                assert_true(gather.total <= gather.max);
        }
        assert_true(r[0].conn.gathered > LARGE / 2);
        assert_int_equal(r[1].conn.gathered, 0);
        assert_int_equal(gather.total, r[0].conn.gathered);
        for (int i = 0; i < 2; ++i) {
                agx_call_reply to;

                feed(&r[i], agx_view_from(agx_buf_view(&wire[i]), 3 * wire[i].len / 4));
                if (r[i].wish == AGX_FASTCONN_SUBMIT) {
                        agx_fastconn_submitted(r[i].asked);
                        assert_int_equal(agx_fastconn_reply_result(r[i].asked, true, AGX_VIEW("v"), false), 0);
                }
                let_out(&r[i], SIZE_MAX);
                check_reply(&r[i], 0, 1, 200);
                assert_true(agx_call_reply_get(agx_buf_view(&r[i].replies[0].body), false, &to));
                assert_int_equal(to.ok, i == 0);
                assert_true(i == 0 || agx_fault_is_not_taken(&to.fault));
        }
        assert_int_equal(gather.total, 0);
        for (int i = 0; i < 2; ++i)
                rig_close(&r[i]);
        agx_buf_deinit(&wire[0]);
        agx_buf_deinit(&wire[1]);
}

/* Requests that grow side by side: one more than there is room for is dropped, and told so when it is whole. */
static void test_crowded(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        agx_buf body[3];
        agx_fast_value v[3];
        agx_view in;
        rig r;

        (void)state;
        rig_open(&r);
        r.conn.gather_max = 2 * LARGE;
        for (uint32_t i = 0; i < 3; ++i) {
                body[i] = AGX_BUF_NULL(SIZE_MAX);
                put_request(&body[i], i == 0 ? "a" : i == 1 ? "b" : "c", agx_view_of(large, LARGE));
                v[i] = (agx_fast_value){.kind = AGX_FAST_CALL,
                                        .stream = 1 + i,
                                        .parts = {agx_buf_view(&body[i]), AGX_VIEW("")}};
                agx_fast_send(r.peer, &v[i]);
        }
        pull_peer(&r, &wire);
        in = agx_buf_view(&wire);
        for (size_t n = 0; in.n;) {
                in = feed(&r, in);
                if (r.wish != AGX_FASTCONN_SUBMIT)
                        continue;
                assert_in_range(++n, 1, 2);
                assert_true(r.conn.gathered <= 2 * LARGE);
                if (n == 1)
                        agx_buf_deinit(&r.asked->body); /* the shell has taken it over */
                agx_fastconn_submitted(r.asked);
                assert_int_equal(agx_fastconn_reply_result(r.asked, true, AGX_VIEW("v"), false), 0);
        }
        let_out(&r, SIZE_MAX);
        assert_int_equal(r.n_replies, 3);
        for (size_t i = 0, busy = 0; i < 3; ++i) {
                agx_call_reply to;

                check_reply(&r, i, r.replies[i].stream, 200);
                assert_true(agx_call_reply_get(agx_buf_view(&r.replies[i].body), false, &to));
                busy += !to.ok;
                assert_true(to.ok || agx_fault_is_not_taken(&to.fault));
                assert_true(busy <= 1 && (i < 2 || busy == 1));
        }
        assert_int_equal(r.conn.gathered, 0);
        assert_int_equal(r.conn.n_streams, 0);
        assert_int_equal(r.conn.n_asked, 0);
        (void)ask(&r, 8, 0, agx_view_of(large, LARGE));
        for (size_t i = 0; i < 3; ++i)
                agx_buf_deinit(&body[i]);
        rig_close(&r);
}

/* The caller hears the refusal, says that it goes no further, and uses the number at once. */
static void test_early_reply(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_value v = {.kind = AGX_FAST_CALL, .stream = 8};
        agx_view segments[2];
        rig r;

        (void)state;
        rig_open(&r);
        put_request(&body, "c", agx_view_of(large, LARGE));
        v.parts[0] = agx_buf_view(&body);
        agx_fast_send(r.peer, &v);
        assert_int_equal(agx_fast_pending(r.peer, segments), 1);
        assert_int_equal(feed(&r, agx_view_first(segments[0], 1000)).n, 0);
        r.conn.streams[8]->body.max = 100 * KIB;
        assert_int_equal(feed(&r, agx_view_from(segments[0], 1000)).n, 0);
        agx_fast_sent(r.peer, segments[0].n);
        let_out(&r, SIZE_MAX);
        check_reply(&r, 0, 8, 413);
        agx_fast_withdraw(r.peer, &v);
        pull_peer(&r, &wire);
        assert_int_equal(feed(&r, agx_buf_view(&wire)).n, 0);
        assert_int_equal(r.wish, AGX_FASTCONN_INPUT);
        assert_int_equal(agx_fastconn_reply_result(ask(&r, 8, 0, AGX_VIEW("b")), true, AGX_VIEW("v"), false), 0);
        let_out(&r, SIZE_MAX);
        check_reply(&r, 1, 8, 200);
        rig_close(&r);
}

/* A request that is given up half way leaves nothing; one that is complete goes its way. */
static void test_reset(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_stream *s;
        rig r;

        (void)state;
        rig_open(&r);
        put_request(&body, "c", agx_view_of(large, 256 * KIB));
        say(&r, &wire, 4, 0, agx_buf_view(&body));
        s = ask(&r, 5, 0, AGX_VIEW(""));
        /* all but its second frame */
        assert_int_equal(feed(&r, agx_view_first(agx_buf_view(&wire), AGX_FAST_FRAME_MAX + AGX_WS_HEAD_MAX)).n, 0);
        assert_int_equal(r.conn.n_streams, 2);
        agx_buf_clear(&wire);
        agx_fast_reset(r.peer, 4);
        agx_fast_reset(r.peer, 5);
        agx_fast_reset(r.peer, 6);                        /* never heard of */
        agx_fast_reset(r.peer, 4 + AGX_FAST_STREAMS_MAX); /* its place is another's */
        pull_peer(&r, &wire);
        assert_int_equal(feed(&r, agx_buf_view(&wire)).n, 0);
        assert_int_equal(r.wish, AGX_FASTCONN_INPUT);
        assert_int_equal(r.conn.n_streams, 1);
        assert_int_equal(agx_fastconn_reply_result(s, true, AGX_VIEW("v"), false), 0);
        let_out(&r, SIZE_MAX);
        check_reply(&r, 0, 5, 200);
        rig_close(&r);
}

static void test_place_of_another(void **state)
{
        static const uint32_t others[] = {5, 5 + AGX_FAST_STREAMS_MAX};

        (void)state;
        for (size_t i = 0; i < 2; ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
                rig r;

                rig_open(&r);
                (void)ask(&r, 5, 0, AGX_VIEW(""));
                say(&r, &wire, others[i], 0, AGX_VIEW("x"));
                (void)feed(&r, agx_buf_view(&wire));
                assert_int_equal(r.wish, AGX_FASTCONN_CLOSE);
                assert_string_equal(r.conn.why, "a stream in the place of another");
                let_out(&r, SIZE_MAX);
                assert_true(r.closed);
                rig_close(&r);
        }
}

static void test_broken(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        (void)ask(&r, 5, 0, AGX_VIEW(""));
        (void)feed(&r, AGX_VIEW("\x81\x81\0\0\0\0x"));
        assert_int_equal(r.wish, AGX_FASTCONN_CLOSE);
        assert_string_equal(r.conn.why, "a message of text");
        let_out(&r, SIZE_MAX);
        assert_true(r.closed);
        rig_close(&r);

        rig_open(&r);
        (void)feed(&r, AGX_VIEW("\x88\x80\0\0\0\0"));
        assert_int_equal(r.wish, AGX_FASTCONN_CLOSE);
        assert_null(r.conn.why);
        rig_close(&r);
}

/* Those whose patience is over first come first, whenever they were asked. */
static void test_late(void **state)
{
        agx_fast_stream *s[3];
        rig r;

        (void)state;
        rig_open(&r);
        s[0] = ask(&r, 1, 3000, AGX_VIEW(""));
        s[1] = ask(&r, 2, 1000, AGX_VIEW(""));
        s[2] = ask(&r, 3, UINT32_MAX, AGX_VIEW(""));
        assert_int_equal(s[2]->wait_ms, AGX_HTTP_WAIT_MAX_S * UINT64_C(1000));
        assert_int_equal(agx_fastconn_deadline(&r.conn), 2000);
        assert_null(agx_fastconn_late(&r.conn, 1999));
        assert_ptr_equal(agx_fastconn_late(&r.conn, 2000), s[1]);
        assert_null(agx_fastconn_late(&r.conn, 3999));
        assert_int_equal(agx_fastconn_reply_accepted(s[1], AGX_VIEW("c-2")), 0);
        assert_int_equal(agx_fastconn_deadline(&r.conn), 4000);
        assert_int_equal(agx_fastconn_reply_result(s[0], true, AGX_VIEW("v"), false), 0); /* just in time */
        assert_null(agx_fastconn_late(&r.conn, 4000));
        let_out(&r, SIZE_MAX);
        check_reply(&r, 0, 2, 202);
        check_reply(&r, 1, 1, 200);
        assert_int_equal(agx_fastconn_deadline(&r.conn), 1000 + AGX_HTTP_WAIT_MAX_S * UINT64_C(1000));
        rig_close(&r);
}

static void test_idle(void **state)
{
        agx_fast_stream *s;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_fastconn_deadline(&r.conn), 1000 + AGX_HTTP_IDLE_MS);
        assert_false(agx_fastconn_is_idle(&r.conn, 999 + AGX_HTTP_IDLE_MS));
        assert_true(agx_fastconn_is_idle(&r.conn, 1000 + AGX_HTTP_IDLE_MS));
        r.now = 5000;
        s = ask(&r, 1, 1000 * AGX_HTTP_IDLE_MS, AGX_VIEW(""));
        assert_false(agx_fastconn_is_idle(&r.conn, UINT64_MAX)); /* it waits for us */
        r.now = 9000;
        assert_int_equal(agx_fastconn_reply_result(s, true, AGX_VIEW("v"), false), 0);
        let_out(&r, SIZE_MAX);
        assert_int_equal(agx_fastconn_deadline(&r.conn), 9000 + AGX_HTTP_IDLE_MS);
        r.now = 10000;
        (void)feed(&r, AGX_VIEW("\x82\x8c\0\0\0\0\x01\x01\x01")); /* half a request is no request */
        assert_int_equal(agx_fastconn_deadline(&r.conn), 10000 + AGX_HTTP_IDLE_MS);
        assert_true(agx_fastconn_is_idle(&r.conn, 10000 + AGX_HTTP_IDLE_MS));
        rig_close(&r);
}

/* A reply whose bytes go is not sent, or no further: the peer is told. */
static void test_take_back(void **state)
{
        (void)state;
        for (int begun = 0; begun < 2; ++begun) {
                char *bytes = malloc(LARGE);
                agx_fast_stream *s;
                rig r;

                assert_non_null(bytes);
                memcpy(bytes, large, LARGE);
                rig_open(&r);
                s = ask(&r, 3, 0, AGX_VIEW(""));
                assert_int_equal(agx_fastconn_reply_result(s, true, agx_view_of(bytes, LARGE), false), 0);
                if (begun)
                        let_out(&r, 100 * KIB);
                agx_fastconn_take_back(s);
                agx_fastconn_free(s);
                memset(bytes, 0xee, LARGE);
                free(bytes);
                assert_int_equal(r.conn.n_streams, 0);
                s = ask(&r, 4, 0, AGX_VIEW(""));
                assert_int_equal(agx_fastconn_reply_result(s, true, AGX_VIEW("v"), false), 0);
                let_out(&r, SIZE_MAX);
                assert_int_equal(r.n_replies, 2 + begun);
                if (begun) { /* what came of it is its own */
                        assert_false(r.replies[0].whole);
                        assert_non_null(memmem(agx_buf_view(&r.replies[0].body).p, r.replies[0].body.len, large,
                                               r.replies[0].body.len - 100));
                }
                check_reply(&r, (size_t)begun, 3, 0);
                check_reply(&r, (size_t)begun + 1, 4, 200);
                (void)ask(&r, 3, 0, AGX_VIEW("again"));
                rig_close(&r);
        }
}

/* Each allocation fails in turn, on the way in and out. */
static int ask_and_reply(rig *r, agx_view in)
{
        agx_fast_stream *s = NULL;
        agx_fastconn_wish wish;
        int e = agx_fastconn_init(&r->conn, AGX_VIEW("s"), seed, 0);

        while (!e && in.n && !s)
                e = agx_fastconn_next(&r->conn, 0, &in, &wish, &s);
        if (e || !s)
                return e;
        agx_fastconn_submitted(s);
        e = agx_fastconn_reply_result(s, true, AGX_VIEW("value"), true);
        if (!e) {
                agx_view segments[2];

                e = agx_fast_pending(r->conn.fast, segments);
        }
        return e < 0 ? e : 0;
}

static void test_out_of_memory(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(SIZE_MAX), wire = AGX_BUF_NULL(SIZE_MAX);
        size_t n = 0;
        bool fired;
        rig r;

        (void)state;
        rig_open(&r);
        put_request(&body, "c", agx_view_of(large, 300 * KIB));
        say(&r, &wire, 4, 0, agx_buf_view(&body));
        agx_fastconn_deinit(&r.conn);
        do {
                int e;

                agx_oom_arm(++n);
                e = ask_and_reply(&r, agx_buf_view(&wire));
                fired = agx_oom_disarm();
                assert_int_equal(e, fired ? -ENOMEM : 0);
                if (r.conn.fast)
                        agx_fastconn_deinit(&r.conn);
        } while (fired);
        assert_in_range(n, 5, 100);
        assert_int_equal(agx_fastconn_init(&r.conn, AGX_VIEW("s"), seed, 0), 0);
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_calls),
                cmocka_unit_test(test_fault),
                cmocka_unit_test(test_large),
                cmocka_unit_test(test_place),
                cmocka_unit_test(test_bad_request),
                cmocka_unit_test(test_too_large),
                cmocka_unit_test(test_crowded),
                cmocka_unit_test(test_crowded_server),
                cmocka_unit_test(test_early_reply),
                cmocka_unit_test(test_reset),
                cmocka_unit_test(test_place_of_another),
                cmocka_unit_test(test_broken),
                cmocka_unit_test(test_late),
                cmocka_unit_test(test_idle),
                cmocka_unit_test(test_take_back),
                cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, set_up, tear_down);
}
