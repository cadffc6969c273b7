/* The deframer: frames that come whole, and one at a time in pieces between them. */
#include "proto/deframer.h"
#include "proto/limits.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void assert_view(agx_view got, agx_view expected)
{
        assert_int_equal(got.p == NULL, expected.p == NULL);
        assert_true(agx_view_eq(got, expected));
}

/* ---- frames that come whole ---- */

static void test_in_place(void **state)
{
        static const char bytes[] = "\x03\0\0\0abc\0\0\0\0\x02\0\0\0de\x05\0\0\0f";
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view in = agx_view_of(bytes, sizeof(bytes) - 1), payload;

        (void)state;
        agx_deframer_init(&d, 5);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_ptr_equal(payload.p, bytes + 4);
        assert_int_equal(payload.n, 3);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_non_null(payload.p);
        assert_int_equal(payload.n, 0);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_ptr_equal(payload.p, bytes + 15);
        assert_null(d.partial.data);
        assert_true(agx_deframer_idle(&d));
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_false(agx_deframer_idle(&d)); /* an end here is in the middle of a frame */
        in = AGX_VIEW("ghij\x01\0\0");
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_view(payload, AGX_VIEW("fghij"));
        assert_true(agx_deframer_idle(&d));
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_false(agx_deframer_idle(&d));
        in = AGX_VIEW("\0z");
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_view(payload, AGX_VIEW("z"));
}

/* Too large is known from the header alone, at any cut, and stays so. */
static void test_too_large(void **state)
{
        static const agx_view headers[] = {AGX_VIEW("\x01\0\0\x10"), AGX_VIEW("\xff\xff\xff\xff")};

        (void)state;
        for (size_t i = 0; i < 2; ++i) {
                for (size_t cut = 0; cut <= 4; ++cut) {
                        _cleanup_(agx_deframer_deinitp) agx_deframer d;
                        agx_view in = agx_view_first(headers[i], cut), payload;

                        agx_deframer_init(&d, AGX_MAX_MESSAGE);
                        assert_int_equal(agx_deframer_next(&d, &in, &payload),
                                         cut < 4 ? AGX_FRAME_E_MORE : AGX_FRAME_E_TOO_LARGE);
                        in = agx_view_from(headers[i], cut);
                        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_TOO_LARGE);
                        in = AGX_VIEW("\0\0\0\0");
                        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_TOO_LARGE);
                        assert_false(agx_deframer_idle(&d));
                }
        }
}

/* A frame that lies there whole is too large all the same. */
static void test_too_large_in_place(void **state)
{
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view in = AGX_VIEW("\x05\0\0\0abcde\x06\0\0\0abcdef"), payload;

        (void)state;
        agx_deframer_init(&d, 5);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_TOO_LARGE);
}

static void test_room_follows_bytes(void **state)
{
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view in = AGX_VIEW("\0\0\0\x10"
                               "0123456789"),
                 payload;

        (void)state;
        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_true(d.partial.cap <= 1024);
}

/* What is read into the place a deframer gives is the same frame, and the next one begins behind it. */
static void test_place(void **state)
{
        enum { N = 3 * (1 << 20) + 77 };
        _cleanup_(agx_buf_deinitp) agx_buf stream = AGX_BUF_NULL(2 * N);
        uint8_t header[4] = {N & 0xff, N >> 8 & 0xff, N >> 16 & 0xff, N >> 24}, small[] = {1, 0, 0, 0, 0x80};
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view rest, payload, in;
        size_t placed = 0, step = 1;
        int r = AGX_FRAME_E_MORE;

        (void)state;
        assert_int_equal(agx_buf_append(&stream, header, 4), 0);
        for (size_t i = 0; i < N; ++i)
                assert_int_equal(agx_buf_append(&stream, &(uint8_t){(uint8_t)(i * 13 + i / 997)}, 1), 0);
        assert_int_equal(agx_buf_append(&stream, small, sizeof(small)), 0);
        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        for (rest = agx_buf_view(&stream); r == AGX_FRAME_E_MORE;) {
                char *place;
                size_t n;

                step = step * 7 % 400009 + 1;
                if (agx_deframer_place(&d, &place, &n)) {
                        n = n < step ? n : step;
                        assert_true(n <= rest.n - sizeof(small)); /* never into the next frame */
                        memcpy(place, rest.p, n);
                        in = agx_view_of(place, n);
                        placed += n;
                } else {
                        in = agx_view_of(rest.p, step < rest.n ? step : rest.n);
                }
                rest = agx_view_from(rest, in.n);
                r = agx_deframer_next(&d, &in, &payload);
        }
        assert_int_equal(r, 0);
        assert_int_equal(in.n, 0);
        assert_true(placed > N / 2);
        assert_int_equal(payload.n, N);
        assert_memory_equal(payload.p, stream.data + 4, N);
        assert_false(agx_deframer_place(&d, &(char *){NULL}, &(size_t){0}));
        in = rest;
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_int_equal(payload.n, 1);
        assert_true(agx_deframer_idle(&d));
}

static void test_deframer_out_of_memory(void **state)
{
        static const char bytes[] = "\x03\0\0\0abc";
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view in = agx_view_of(bytes, 6), payload;

        (void)state;
        agx_deframer_init(&d, 100);
        agx_oom_arm(1);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), -ENOMEM);
        assert_true(agx_oom_disarm());
        assert_int_equal(in.n, 6); /* nothing taken: it may be fed again */
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        in = AGX_VIEW("c");
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_view(payload, AGX_VIEW("abc"));
}

/* ---- frames in pieces ---- */

enum { N_SMALL = 5 };

static void put_whole(agx_buf *out, const char *text)
{
        uint8_t header[4] = {(uint8_t)strlen(text)};

        assert_int_equal(agx_buf_append(out, header, 4), 0);
        assert_int_equal(agx_buf_append(out, text, strlen(text)), 0);
}

static uint8_t byte_at(uint64_t i)
{
        return (uint8_t)(i * 31 + i / 251);
}

/* A payload of `total` bytes as it is sent, a small frame after each piece. Gives how many pieces it were. */
static unsigned put_pieces(agx_buf *out, uint32_t stream, uint64_t total)
{
        uint64_t done = 0;
        unsigned pieces = 0;

        do {
                uint8_t head[AGX_PIECE_HEAD_MAX], *at;
                size_t n, length = agx_piece_head(head, stream, total, done, &n);

                assert_true(length - 4 + n <= AGX_FAST_FRAME_MAX);
                assert_int_equal(agx_buf_append(out, head, length), 0);
                assert_int_equal(agx_buf_reserve(out, n, &at), 0);
                for (size_t i = 0; i < n; ++i)
                        at[i] = byte_at(done + i);
                agx_buf_commit(out, n);
                done += n;
                ++pieces;
                if (done < total)
                        put_whole(out, "small");
        } while (done < total);
        return pieces;
}

typedef struct heard {
        uint64_t large; /* bytes of the large payload, each of which was right */
        unsigned small, large_payloads;
} heard;

static void hear_bytes(heard *h, agx_view bytes)
{
        for (size_t i = 0; i < bytes.n; ++i)
                assert_int_equal((uint8_t)bytes.p[i], byte_at(h->large + i));
        h->large += bytes.n;
}

/* Feeds the stream in steps, to the deframer's place where it gives one. `divert`: once so much has come. */
static void hear(heard *h, agx_deframer *d, agx_view stream, size_t step, size_t divert)
{
        while (stream.n) {
                agx_view in = agx_view_first(stream, step), payload, begun;
                uint64_t total;
                unsigned number;
                char *place;
                size_t n;
                int r;

                if (agx_deframer_place(d, &place, &n)) {
                        in = agx_view_first(stream, n < step ? n : step);
                        memcpy(place, in.p, in.n);
                        stream = agx_view_from(stream, in.n);
                        in.p = place;
                } else {
                        stream = agx_view_from(stream, in.n);
                }
                while ((r = agx_deframer_next(d, &in, &payload)) != AGX_FRAME_E_MORE) {
                        assert_true(r == 0 || r == AGX_FRAME_E_PART);
                        if (r == AGX_FRAME_E_PART) {
                                hear_bytes(h, payload);
                        } else if (agx_view_eq(payload, AGX_VIEW("small"))) {
                                ++h->small;
                        } else {
                                hear_bytes(h, payload);
                                ++h->large_payloads;
                        }
                }
                if (agx_deframer_begun(d, &begun, &total, &number) && total > 5 && begun.n >= divert) {
                        hear_bytes(h, begun);
                        agx_deframer_divert(d);
                }
        }
}

static void test_pieces(void **state)
{
        static const uint64_t totals[] = {0,
                                          1,
                                          77,
                                          AGX_FAST_FRAME_MAX - 9,
                                          AGX_FAST_FRAME_MAX - 8,
                                          AGX_FAST_FRAME_MAX,
                                          2 * AGX_FAST_FRAME_MAX,
                                          900001};
        static const size_t steps[] = {7, 4093, 70001, SIZE_MAX};

        (void)state;
        for (size_t i = 0; i < sizeof(totals) / sizeof(*totals); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf stream = AGX_BUF_NULL(1 << 22);
                unsigned pieces = put_pieces(&stream, 9, totals[i]);

                put_pieces(&stream, 10, 3);
                for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); ++k) {
                        _cleanup_(agx_deframer_deinitp) agx_deframer d;
                        heard h = {0};

                        agx_deframer_init(&d, AGX_MAX_MESSAGE);
                        hear(&h, &d, agx_view_first(agx_buf_view(&stream), stream.len - 15), steps[k], SIZE_MAX);
                        assert_int_equal(h.large, totals[i]);
                        assert_int_equal(h.large_payloads, 1);
                        assert_int_equal(h.small, pieces - 1);
                        assert_true(agx_deframer_idle(&d));
                        h.large = 0;
                        hear(&h, &d, agx_view_from(agx_buf_view(&stream), stream.len - 15), steps[k], SIZE_MAX);
                        assert_int_equal(h.large, 3);
                }
        }
}

static void test_a_diverted_frame_comes_in_parts(void **state)
{
        static const size_t steps[] = {7, 4093, 70001};
        enum { TOTAL = 600001 };

        (void)state;
        for (int whole = 0; whole < 2; ++whole) {
                _cleanup_(agx_buf_deinitp) agx_buf stream = AGX_BUF_NULL(1 << 22);
                uint8_t header[4] = {TOTAL & 0xff, TOTAL >> 8 & 0xff, TOTAL >> 16 & 0xff, 0}, *at;

                if (whole) {
                        assert_int_equal(agx_buf_append(&stream, header, 4), 0);
                        assert_int_equal(agx_buf_reserve(&stream, TOTAL, &at), 0);
                        for (size_t i = 0; i < TOTAL; ++i)
                                at[i] = byte_at(i);
                        agx_buf_commit(&stream, TOTAL);
                } else {
                        put_pieces(&stream, 1, TOTAL);
                }
                put_whole(&stream, "small");
                for (size_t k = 0; k < sizeof(steps) / sizeof(*steps); ++k) {
                        _cleanup_(agx_deframer_deinitp) agx_deframer d;
                        heard h = {0};

                        agx_deframer_init(&d, AGX_MAX_MESSAGE);
                        hear(&h, &d, agx_buf_view(&stream), steps[k], 100000);
                        assert_int_equal(h.large, TOTAL);
                        assert_int_equal(h.large_payloads, 0);
                        assert_int_equal(h.small, whole ? 1 : 3);
                        assert_true(agx_deframer_idle(&d));
                }
        }
}

/* What begins, or goes on, as it must not; final. */
static void test_pieces_that_cannot_be(void **state)
{
#define PIECE(n, kind, flags, lane, stream) n "\0\0\x80" kind flags lane "\0" stream "\0\0\0"
#define SIZE(n) "\0\0\0\0" n "\0\0\0\0\0\0\0"
        static const agx_view bad[] = {
                AGX_VIEW(PIECE("\x09", "\1", "\3", "\2", "\1") "a"), /* another kind */
                AGX_VIEW(PIECE("\x09", "\4", "\7", "\2", "\1") "a"), /* another flag */
                AGX_VIEW(PIECE("\x09", "\4", "\3", "\1", "\1") "a"), /* another lane */
                AGX_VIEW(PIECE("\x09", "\4", "\3", "\2", "\0") "a"), /* no stream */
                AGX_VIEW(PIECE("\x09", "\4", "\2", "\2", "\1") "a"), /* an end without a beginning */
                AGX_VIEW(PIECE("\x07", "\4", "\3", "\2", "\1") "a"), /* shorter than its head */
                AGX_VIEW(PIECE("\x13", "\4", "\1", "\2", "\1") SIZE("\5")),
                AGX_VIEW(PIECE("\x14", "\4", "\1", "\2", "\1") SIZE("\5")),       /* without a byte */
                AGX_VIEW(PIECE("\x16", "\4", "\1", "\2", "\1") SIZE("\2") "ab"),  /* all of it, not the last */
                AGX_VIEW(PIECE("\x17", "\4", "\1", "\2", "\1") SIZE("\2") "abc"), /* more than said */
                AGX_VIEW(PIECE("\x15", "\4", "\1", "\2", "\1")
                                 SIZE("\2") "a" PIECE("\x09", "\4", "\0", "\2", "\1") "b"),
                AGX_VIEW(PIECE("\x15", "\4", "\1", "\2", "\1")
                                 SIZE("\3") "a" PIECE("\x09", "\4", "\2", "\2", "\1") "b"),
                AGX_VIEW(PIECE("\x15", "\4", "\1", "\2", "\1")
                                 SIZE("\2") "a" PIECE("\x09", "\4", "\2", "\2", "\2") "b"),
                AGX_VIEW(PIECE("\x15", "\4", "\1", "\2", "\1")
                                 SIZE("\2") "a" PIECE("\x09", "\4", "\3", "\2", "\2") "b"),
        };

        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); ++i) {
                for (size_t step = 1; step < 40; step += 38) {
                        _cleanup_(agx_deframer_deinitp) agx_deframer d;
                        agx_view rest = bad[i], in = AGX_VIEW_NULL, payload;
                        int r = AGX_FRAME_E_MORE;

                        agx_deframer_init(&d, AGX_MAX_MESSAGE);
                        for (; rest.n && r == AGX_FRAME_E_MORE; rest = agx_view_from(rest, step)) {
                                in = agx_view_first(rest, step);
                                r = agx_deframer_next(&d, &in, &payload);
                        }
                        assert_int_equal(r, AGX_FRAME_E_MALFORMED);
                        in = AGX_VIEW("\0\0\0\0");
                        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MALFORMED);
                        assert_false(agx_deframer_idle(&d));
                }
        }
}

static void test_pieces_of_too_much(void **state)
{
        static const agx_view bad[] = {
                AGX_VIEW("\x01\0\x04\x80"),                                       /* a piece above its bound */
                AGX_VIEW(PIECE("\x15", "\4", "\1", "\2", "\1") SIZE("\x65") "a"), /* a payload above it */
        };

        (void)state;
        for (size_t i = 0; i < 2; ++i) {
                _cleanup_(agx_deframer_deinitp) agx_deframer d;
                agx_view in = bad[i], payload;

                agx_deframer_init(&d, 100);
                assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_TOO_LARGE);
        }
}

/* Who has looked at it once need not look again because others begin meanwhile. */
static void test_a_frame_in_pieces_keeps_its_number(void **state)
{
        _cleanup_(agx_deframer_deinitp) agx_deframer d;
        agx_view in = AGX_VIEW(PIECE("\x16", "\4", "\1", "\2", "\1") SIZE("\x05") "ab"), payload, begun;
        unsigned first, number;
        uint64_t total;

        (void)state;
        agx_deframer_init(&d, 100);
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_true(agx_deframer_begun(&d, &begun, &total, &first));
        assert_view(begun, AGX_VIEW("ab"));
        in = AGX_VIEW("\4\0\0\0x"); /* part of another one */
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_true(agx_deframer_begun(&d, &begun, &total, &number));
        assert_int_equal(number, first);
        in = AGX_VIEW("yz." PIECE("\x0b", "\4", "\2", "\2", "\1") "cde");
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_view(payload, AGX_VIEW("xyz."));
        assert_int_equal(agx_deframer_next(&d, &in, &payload), 0);
        assert_view(payload, AGX_VIEW("abcde"));
        in = AGX_VIEW("\4\0\0\0x");
        assert_int_equal(agx_deframer_next(&d, &in, &payload), AGX_FRAME_E_MORE);
        assert_true(agx_deframer_begun(&d, &begun, &total, &number));
        assert_true(number != first);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_in_place),
                cmocka_unit_test(test_too_large),
                cmocka_unit_test(test_too_large_in_place),
                cmocka_unit_test(test_room_follows_bytes),
                cmocka_unit_test(test_place),
                cmocka_unit_test(test_deframer_out_of_memory),
                cmocka_unit_test(test_pieces),
                cmocka_unit_test(test_a_diverted_frame_comes_in_parts),
                cmocka_unit_test(test_pieces_that_cannot_be),
                cmocka_unit_test(test_pieces_of_too_much),
                cmocka_unit_test(test_a_frame_in_pieces_keeps_its_number),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
