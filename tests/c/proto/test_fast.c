/*
 * The fast wire, two ends against each other and one end against bytes: values of every size where something changes, in
 * either direction, masked or not, by all cuts; whose turn it is; what is taken back; what does not keep to the wire; lack
 * of memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <sys/mman.h>

#include <cmocka.h>

#include "base/err.h"
#include "proto/fast.h"
#include "proto/limits.h"
#include "support/guard.h"
#include "support/oom.h"
#include "wire/ws.h"

enum { KIB = 1024, BIG = 3 << 20, HEAD = 8, STREAMS = 16 };

static const uint8_t seed[16] = "0123456789abcdef";
static char pattern[BIG + 1]; /* bytes that tell where they are from */

static int set_up(void **state)
{
        (void)state;
        for (uint32_t i = 0; i < sizeof(pattern); ++i)
                pattern[i] = (char)((i * 2654435761u) >> 24);
        return 0;
}

static agx_view bytes_of(size_t n)
{
        return agx_view_of(pattern, n);
}

static void put(agx_buf *to, agx_view v)
{
        assert_int_equal(agx_buf_append_view(to, v), 0);
}

static agx_fast *end_new(bool client, bool masked)
{
        agx_fast *f = NULL;

        assert_int_equal(agx_fast_new(&f, client, masked, seed), 0);
        return f;
}

static agx_fast_value value(uint32_t stream, agx_view a, agx_view b)
{
        return (agx_fast_value){
                .kind = AGX_FAST_CALL, .stream = stream, .word = stream * 1000 + 7, .parts = {a, b}, .owner = NULL};
}

/* ---- writing ---- */

/* Takes at most `max` bytes of what is pending; gives how many there were. */
static size_t pull(agx_fast *f, agx_buf *to, size_t max)
{
        agx_view segments[2];
        size_t n = 0;
        int k = agx_fast_pending(f, segments);

        assert_in_range(k, 0, 2);
        for (int i = 0; i < k && n < max; ++i) {
                agx_view some = agx_view_first(segments[i], max - n);

                put(to, some);
                n += some.n;
        }
        agx_fast_sent(f, n);
        return n;
}

static void pull_all(agx_fast *f, agx_buf *to)
{
        while (pull(f, to, SIZE_MAX))
                ;
}

/* ---- reading ---- */

typedef struct heard {
        agx_buf bytes[STREAMS];
        uint32_t word[STREAMS];
        uint64_t size[STREAMS];
        bool begun[STREAMS], ended[STREAMS], reset[STREAMS];
        char order[4096]; /* a letter for each frame: a stream's small letter, large in its last; '-' for a reset */
        size_t n_order;
        int verdict; /* of the last agx_fast_next() */
} heard;

static void heard_init(heard *h)
{
        memset(h, 0, sizeof(*h));
        for (size_t i = 0; i < STREAMS; ++i)
                h->bytes[i] = AGX_BUF_NULL(SIZE_MAX);
}

static void heard_deinit(heard *h)
{
        for (size_t i = 0; i < STREAMS; ++i)
                agx_buf_deinit(&h->bytes[i]);
}

static void note(heard *h, char c)
{
        if (h->n_order + 1 < sizeof(h->order))
                h->order[h->n_order++] = c;
}

static void hear_piece(heard *h, const agx_fast_piece *p)
{
        assert_in_range(p->stream, 1, STREAMS - 1);
        if (p->kind == AGX_FAST_RESET) {
                assert_true(p->first && p->last && !p->data.n);
                h->reset[p->stream] = true;
                note(h, '-');
                return;
        }
        assert_int_equal(p->first, !h->begun[p->stream]);
        assert_false(h->ended[p->stream]);
        if (p->first) {
                h->begun[p->stream] = true;
                h->word[p->stream] = p->word;
                h->size[p->stream] = p->size;
        }
        put(&h->bytes[p->stream], p->data);
        h->ended[p->stream] = p->last;
}

/* Feeds `in`, flush against memory that cannot be read. */
static void hear(heard *h, agx_fast *f, agx_view in)
{
        uint8_t *copy = agx_guard_new(in.p, in.n);
        agx_view rest = agx_view_of(copy, in.n);
        agx_fast_piece piece;

        assert_non_null(copy);
        while (!(h->verdict = agx_fast_next(f, &rest, &piece)))
                hear_piece(h, &piece);
        assert_true(h->verdict != AGX_FAST_E_MORE || !rest.n);
        agx_guard_free(copy, in.n);
}

/* The order of frames, as whole messages of `wire` that our client wrote without a mask or our server. */
static void note_frames(heard *h, agx_view wire, bool client)
{
        agx_ws_bounds bounds = {.message_max = AGX_FAST_FRAME_MAX, .fragments_max = 1, .frame_out = 1};
        _cleanup_(agx_ws_freep) agx_ws *ws = NULL;
        agx_ws_event e;

        assert_int_equal(agx_ws_new(&ws, client ? AGX_WS_SERVER : AGX_WS_CLIENT, &bounds), 0);
        for (;;) {
                assert_int_equal(agx_ws_next(ws, &wire, &e), 0);
                if (e.kind == AGX_WS_MORE)
                        return;
                if (e.kind == AGX_WS_PONG)
                        note(h, '!');
                else if (e.kind == AGX_WS_CLOSE)
                        note(h, '.');
                else if (e.data.p[0] == AGX_FAST_RESET)
                        note(h, '-');
                else
                        note(h, (char)((e.data.p[1] & 2 ? 'A' : 'a') + e.data.p[4] - 1));
        }
}

/* ---- values ---- */

static const size_t sizes[] = {0,
                               1,
                               125,
                               126,
                               16 * KIB - 1,
                               16 * KIB,
                               16 * KIB + 1,
                               64 * KIB - 1,
                               64 * KIB,
                               64 * KIB + 1,
                               256 * KIB - 21,
                               256 * KIB - 20,
                               256 * KIB - 19,
                               256 * KIB - 1,
                               256 * KIB,
                               256 * KIB + 1,
                               BIG};
enum { N_SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void check_value(const heard *h, uint32_t stream, size_t n)
{
        assert_true(h->ended[stream]);
        assert_int_equal(h->word[stream], stream * 1000 + 7);
        assert_true(!h->size[stream] || h->size[stream] == n);
        assert_true(agx_view_eq(agx_buf_view(&h->bytes[stream]), bytes_of(n)));
}

static void send_one(bool client, bool masked, size_t n, size_t at, size_t step)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(client, masked), *b = end_new(!client, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        size_t end = (n - at) % 3 ? 0 : (n - at) / 1000; /* sometimes a third part */
        agx_fast_value v = value(3, bytes_of(at), agx_view_from(bytes_of(n - end), at));
        heard h;

        v.parts[2] = agx_view_from(bytes_of(n), n - end);
        heard_init(&h);
        agx_fast_send(a, &v);
        assert_true(agx_fast_holds(&v));
        while (pull(a, &wire, step)) {
                hear(&h, b, agx_buf_view(&wire));
                assert_int_equal(h.verdict, AGX_FAST_E_MORE);
                agx_buf_clear(&wire);
        }
        assert_ptr_equal(agx_fast_next_written(a), &v);
        assert_null(agx_fast_next_written(a));
        assert_false(agx_fast_holds(&v));
        check_value(&h, 3, n);
        heard_deinit(&h);
}

/* Every size, its two parts meeting anywhere, in one run and by cuts. */
static void test_sizes(void **state)
{
        static const bool ends[][2] = {{false, false}, {true, false}, {true, true}};

        (void)state;
        srand(1);
        for (size_t e = 0; e < 3; ++e)
                for (size_t i = 0; i < N_SIZES; ++i) {
                        size_t n = sizes[i];

                        send_one(ends[e][0], ends[e][1], n, 0, SIZE_MAX);
                        send_one(ends[e][0], ends[e][1], n, n, 65536);
                        send_one(ends[e][0], ends[e][1], n, n / 2, 7777);
                        send_one(ends[e][0], ends[e][1], n, n < 1 ? n : 1, 100000);
                        send_one(ends[e][0], ends[e][1], n, n ? (size_t)rand() % n : 0, 1 + (size_t)rand() % 300000);
                        if (n > 16 * KIB) /* a first part that is just copied, or just not */
                                send_one(ends[e][0], ends[e][1], n, 16 * KIB, 50000),
                                        send_one(ends[e][0], ends[e][1], n, 16 * KIB + 1, 50000);
                }
}

/* A few values of some frames, by every small cut: what is heard is the same. */
static void test_cuts(void **state)
{
        (void)state;
        for (int masked = 0; masked < 2; ++masked) {
                agx_fast_value v[4] = {value(1, bytes_of(0), bytes_of(0)), value(2, bytes_of(1), bytes_of(0)),
                                       value(4, bytes_of(130), agx_view_from(bytes_of(140), 130)),
                                       value(5, bytes_of(30), agx_view_from(bytes_of(70 * KIB), 30))};
                _cleanup_(agx_fast_freep) agx_fast *a = end_new(true, masked);
                _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);

                for (size_t i = 0; i < 4; ++i)
                        agx_fast_send(a, &v[i]);
                agx_fast_reset(a, 3);
                pull_all(a, &wire);
                for (size_t cut = 1; cut < 600; ++cut) {
                        _cleanup_(agx_fast_freep) agx_fast *b = end_new(false, false);
                        size_t step = cut < 24 ? cut : SIZE_MAX; /* again and again, or once */
                        agx_view in = agx_buf_view(&wire);
                        heard h;

                        heard_init(&h);
                        if (cut < 24)
                                in = agx_view_first(in, cut < 3 ? in.n : 3000);
                        for (size_t n = cut; in.n; n = step) {
                                hear(&h, b, agx_view_first(in, n));
                                in = agx_view_from(in, n < in.n ? n : in.n);
                        }
                        assert_true(h.reset[3]);
                        check_value(&h, 1, 0);
                        check_value(&h, 2, 1);
                        check_value(&h, 4, 140);
                        if (cut < 3 || cut >= 24)
                                check_value(&h, 5, 70 * KIB);
                        heard_deinit(&h);
                }
        }
}

/* ---- turns ---- */

/* Writes at least so much, to nobody. */
static size_t write_some(agx_fast *f, size_t n)
{
        agx_view segments[2];
        size_t done = 0;
        int k;

        while (done < n && (k = agx_fast_pending(f, segments)) > 0) {
                size_t run = segments[0].n + (k > 1 ? segments[1].n : 0);

                agx_fast_sent(f, run);
                done += run;
        }
        return done;
}

/* A small value passes a large one; two large ones take turns; a small one that comes later is next. */
static void test_lanes(void **state)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(false, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_value big = value(1, bytes_of(700 * KIB), bytes_of(0)),
                       other = value(2, bytes_of(700 * KIB), bytes_of(0)),
                       small = value(3, bytes_of(64 * KIB), bytes_of(0)), late = value(4, bytes_of(1), bytes_of(0));
        heard h;

        (void)state;
        heard_init(&h);
        agx_fast_send(a, &big);
        agx_fast_send(a, &other);
        agx_fast_send(a, &small);
        while (wire.len < 500 * KIB)
                pull(a, &wire, SIZE_MAX);
        agx_fast_send(a, &late);
        pull_all(a, &wire);
        note_frames(&h, agx_buf_view(&wire), false);
        assert_string_equal(h.order, "CabDabAB");
        assert_ptr_equal(agx_fast_next_written(a), &small);
        assert_ptr_equal(agx_fast_next_written(a), &late);
        assert_ptr_equal(agx_fast_next_written(a), &big);
        assert_ptr_equal(agx_fast_next_written(a), &other);
        assert_null(agx_fast_next_written(a));
        heard_deinit(&h);
}

/* Large values begin as others end; one that is taken back makes room; what is less than large waits for none. */
static void test_under_way(void **state)
{
        enum { MIB = 1 << 20, HUGE_N = 200 * MIB };
        void *memory = mmap(NULL, HUGE_N, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(false, false);
        agx_fast_value v[4], middle;

        (void)state;
        assert_ptr_not_equal(memory, MAP_FAILED);
        for (uint32_t i = 0; i < 4; ++i) {
                v[i] = value(1 + i, agx_view_of(memory, HUGE_N), bytes_of(0));
                agx_fast_send(a, &v[i]);
        }
        write_some(a, 10 * MIB);
        assert_true(v[0].begun && v[1].begun && !v[2].begun && !v[3].begun);
        middle = value(5, bytes_of(512 * KIB), bytes_of(0));
        agx_fast_send(a, &middle);
        write_some(a, 10 * MIB);
        assert_true(middle.framed && !v[2].begun);
        agx_fast_withdraw(a, &v[0]);
        write_some(a, 10 * MIB);
        assert_true(v[2].begun && !v[3].begun);
        agx_fast_withdraw(a, &v[3]); /* while it waits */
        agx_fast_send(a, &v[3]);
        while (!v[1].framed)
                write_some(a, 10 * MIB);
        assert_false(agx_fast_is_written(a, &v[2]));
        write_some(a, 10 * MIB);
        assert_true(v[3].begun && agx_fast_is_written(a, &v[1]));
        while (write_some(a, SIZE_MAX / 2))
                ;
        assert_true(agx_fast_is_written(a, &v[2]) && agx_fast_is_written(a, &v[3]));
        while (agx_fast_next_written(a))
                ;
        munmap(memory, HUGE_N);
}

/* A value is written with its last byte, not before; many small ones go in one run, in their order. */
static void test_written(void **state)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(true, true);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_value v[40];
        agx_view segments[2];
        size_t each;

        (void)state;
        for (size_t i = 0; i < 40; ++i) {
                v[i] = value(1 + (uint32_t)i, bytes_of(5), bytes_of(3));
                agx_fast_send(a, &v[i]);
        }
        assert_int_equal(agx_fast_pending(a, segments), 1);
        assert_int_equal(segments[0].n % 40, 0);
        each = segments[0].n / 40;
        for (size_t i = 0; i < 40; ++i) {
                assert_int_equal(pull(a, &wire, each - 1), each - 1);
                assert_null(agx_fast_next_written(a));
                assert_int_equal(pull(a, &wire, 1), 1);
                assert_ptr_equal(agx_fast_next_written(a), &v[i]);
                assert_null(agx_fast_next_written(a));
        }
        assert_int_equal(agx_fast_pending(a, segments), 0);
}

/* ---- what is taken back ---- */

/* Takes a value of `n` bytes back when `after` bytes are written, and spoils its memory. What the peer saw: 'n' nothing,
 * 'r' a part and then that it is void, 'w' the whole. */
static char withdraw_after(size_t n, size_t after, bool looked, bool masked)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(true, masked), *b = end_new(false, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        char *memory = malloc(n + 1);
        agx_fast_value v = value(1, agx_view_of(memory, n), bytes_of(0)), next = value(2, bytes_of(9), bytes_of(0));
        agx_view segments[2];
        heard h;
        char saw;

        assert_non_null(memory);
        memcpy(memory, pattern, n);
        heard_init(&h);
        agx_fast_send(a, &v);
        while (wire.len < after && pull(a, &wire, after - wire.len))
                ;
        if (looked)
                assert_in_range(agx_fast_pending(a, segments), 0, 2);
        agx_fast_withdraw(a, &v);
        assert_false(agx_fast_holds(&v));
        memset(memory, 0xee, n + 1);
        free(memory);
        memset(&v, 0xee, sizeof(v)); /* nor is the value itself looked at */
        agx_fast_send(a, &next);
        pull_all(a, &wire);
        assert_ptr_equal(agx_fast_next_written(a), &next);
        assert_null(agx_fast_next_written(a));
        hear(&h, b, agx_buf_view(&wire));
        assert_int_equal(h.verdict, AGX_FAST_E_MORE);
        check_value(&h, 2, 9);
        saw = h.reset[1] ? 'r' : h.ended[1] ? 'w' : h.begun[1] ? '?' : 'n';
        if (h.ended[1])
                check_value(&h, 1, n);
        assert_true(agx_view_eq(agx_buf_view(&h.bytes[1]), bytes_of(h.bytes[1].len)));
        heard_deinit(&h);
        return saw;
}

static void test_withdraw(void **state)
{
        (void)state;
        for (int masked = 0; masked < 2; ++masked) {
                assert_int_equal(withdraw_after(10, 0, false, masked), 'n');
                assert_int_equal(withdraw_after(10, 0, true, masked), 'w');
                assert_int_equal(withdraw_after(10, 3, false, masked), 'w');
                assert_int_equal(withdraw_after(10, 9999, false, masked), 'w');
                assert_int_equal(withdraw_after(BIG, 0, false, masked), 'n');
                assert_int_equal(withdraw_after(BIG, 0, true, masked), 'r');
                for (size_t after = 1; after < 40; ++after)
                        assert_int_equal(withdraw_after(600 * KIB, after, after & 1, masked), 'r');
                assert_int_equal(withdraw_after(600 * KIB, 256 * KIB, false, masked), 'r');
                assert_int_equal(withdraw_after(600 * KIB, 256 * KIB, true, masked), 'r');
                assert_int_equal(withdraw_after(600 * KIB, 300 * KIB, true, masked), 'r');
                /* its last frame is under way: it comes whole */
                assert_int_equal(withdraw_after(600 * KIB, 590 * KIB, true, masked), 'w');
                assert_int_equal(withdraw_after(600 * KIB, SIZE_MAX, true, masked), 'w');
        }
}

/* One that waits behind others goes without a trace; one after the other is taken back while their bytes are under way. */
static void test_withdraw_several(void **state)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(false, false), *b = end_new(true, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        char *memory = malloc(BIG);
        agx_fast_value v[5];
        heard h;

        (void)state;
        assert_non_null(memory);
        memcpy(memory, pattern, BIG);
        heard_init(&h);
        for (uint32_t i = 0; i < 5; ++i) {
                v[i] = value(1 + i, agx_view_of(memory, 400 * KIB), bytes_of(0));
                agx_fast_send(a, &v[i]);
        }
        agx_fast_withdraw(a, &v[2]);
        for (size_t i = 0; i < 2; ++i) {
                while (!v[i].begun)
                        pull(a, &wire, 100 * KIB);
                agx_fast_withdraw(a, &v[i]);
                agx_fast_withdraw(a, &v[i]); /* twice is no harm */
        }
        pull(a, &wire, 100 * KIB);
        agx_fast_withdraw(a, &v[3]);
        agx_fast_withdraw(a, &v[4]);
        memset(memory, 0xee, BIG);
        free(memory);
        pull_all(a, &wire);
        assert_null(agx_fast_next_written(a));
        hear(&h, b, agx_buf_view(&wire));
        assert_int_equal(h.verdict, AGX_FAST_E_MORE);
        for (uint32_t i = 1; i <= 5; ++i) {
                assert_true(h.reset[i] == h.begun[i] && !h.ended[i]);
                assert_true(agx_view_eq(agx_buf_view(&h.bytes[i]), bytes_of(h.bytes[i].len)));
        }
        assert_true(h.reset[1] && h.reset[2] && !h.reset[3] && !h.reset[5]);
        heard_deinit(&h);
}

/* ---- control ---- */

static void test_pings(void **state)
{
        agx_fast_value big = value(1, bytes_of(700 * KIB), bytes_of(0));
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(false, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
        heard h;

        (void)state;
        heard_init(&h);
        agx_fast_send(a, &big);
        pull(a, &wire, 100);
        hear(&h, a, AGX_VIEW("\x89\x83\0\0\0\0hey"));
        assert_int_equal(h.verdict, AGX_FAST_E_MORE);
        pull_all(a, &wire);
        note_frames(&h, agx_buf_view(&wire), false);
        assert_string_equal(h.order, "a!aA");
        heard_deinit(&h);
}

/* What is under way goes out, then the close, then nothing. */
static void test_close(void **state)
{
        _cleanup_(agx_fast_freep) agx_fast *a = end_new(true, false), *b = end_new(false, false);
        _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX), back = AGX_BUF_NULL(SIZE_MAX);
        agx_fast_value v = value(1, bytes_of(10), bytes_of(0)), big = value(2, bytes_of(700 * KIB), bytes_of(0)),
                       never = value(3, bytes_of(1), bytes_of(0));
        agx_view segments[2];
        heard h;

        (void)state;
        heard_init(&h);
        agx_fast_send(a, &v);
        agx_fast_send(a, &big);
        assert_int_equal(agx_fast_pending(a, segments), 2);
        agx_fast_close(a, AGX_WS_GOING_AWAY);
        agx_fast_send(a, &never);
        pull_all(a, &wire);
        note_frames(&h, agx_buf_view(&wire), true);
        assert_string_equal(h.order, "Ab.");
        assert_ptr_equal(agx_fast_next_written(a), &v);
        assert_null(agx_fast_next_written(a));
        agx_fast_withdraw(a, &big);
        agx_fast_withdraw(a, &never);
        assert_int_equal(pull(a, &wire, SIZE_MAX), 0);

        hear(&h, b, agx_buf_view(&wire));
        assert_int_equal(h.verdict, AGX_FAST_E_CLOSED);
        hear(&h, b, AGX_VIEW("x")); /* it is final */
        assert_int_equal(h.verdict, AGX_FAST_E_CLOSED);
        check_value(&h, 1, 10);
        pull_all(b, &back); /* its echo */
        assert_true(agx_view_eq(agx_buf_view(&back), AGX_VIEW("\x88\x02\x03\xe9")));
        heard_deinit(&h);
}

/* ---- what does not keep to the wire ---- */

#define CALL "\x01\x03\x01\0\x05\0\0\0\0\0\0\0"

typedef struct bad {
        agx_view in;
        const char *why;
} bad;

#define BAD(literal, why_)                                                                                             \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .why = (why_)                                                 \
        }

static void test_broken(void **state)
{
        static const bad rows[] = {
                BAD("\x82\x0c\0\x03\x01\0\x05\0\0\0\0\0\0\0", "a frame of an unknown kind"),
                BAD("\x82\x0c\x04\x03\x01\0\x05\0\0\0\0\0\0\0", "a frame of an unknown kind"),
                BAD("\x82\x08\xff\0\x01\0\x05\0\0\0", "a frame of an unknown kind"),
                BAD("\x82\x0c\x01\x07\x01\0\x05\0\0\0\0\0\0\0", "a frame with an unknown flag"),
                BAD("\x82\x0c\x01\x83\x01\0\x05\0\0\0\0\0\0\0", "a frame with an unknown flag"),
                BAD("\x82\x0c\x01\x03\x04\0\x05\0\0\0\0\0\0\0", "a frame on an unknown lane"),
                BAD("\x82\x0c\x01\x03\x01\x01\x05\0\0\0\0\0\0\0", "a frame on an unknown lane"),
                BAD("\x82\x0c\x01\x03\x01\0\0\0\0\0\0\0\0\0", "a frame of no stream"),
                BAD("\x82\0", "a frame that is shorter than its head"),
                BAD("\x82\x01\x01", "a frame that is shorter than its head"),
                BAD("\x82\x07\x01\0\x01\0\x05\0\0", "a frame that is shorter than its head"),
                BAD("\x82\x0b\x01\x03\x01\0\x05\0\0\0\0\0\0", "a frame that is shorter than its head"),
                BAD("\x82\x0c\x01\x01\x01\0\x05\0\0\0\0\0\0\0", "a frame that is shorter than its head"),
                BAD("\x82\x13\x01\x01\x01\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "a frame that is shorter than its head"),
                BAD("\x82\x0d\x03\x03\0\0\x05\0\0\0\0\0\0\0!", "a reset with a value"),
                BAD("\x82\x08\x03\0\0\0\x05\0\0\0", "a reset that is not one frame"),
                BAD("\x82\x08\x03\x02\0\0\x05\0\0\0", "a reset that is not one frame"),
                BAD("\x82\x14\x03\x01\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "a reset that is not one frame"),
                BAD("\x81\x01x", "a message of text"),
                BAD("\x81\0", "a message of text"),
                BAD("\xc2\0", "a reserved bit is set"),
                BAD("\x80\0", "a continuation of nothing"),
                BAD("\x82\x7f\0\0\0\0\0\x04\0\x01", "a message above the limit"),
                BAD("\x82\x8c\0\0\0\0" CALL, "a frame of a server with a mask"),
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                for (size_t cut = 0; cut <= rows[i].in.n; ++cut) {
                        _cleanup_(agx_fast_freep) agx_fast *f = end_new(true, false);
                        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
                        heard h;

                        heard_init(&h);
                        hear(&h, f, AGX_VIEW("\x82\x0e" CALL "ok"));
                        assert_int_equal(h.verdict, AGX_FAST_E_MORE);
                        hear(&h, f, agx_view_first(rows[i].in, cut));
                        if (h.verdict == AGX_FAST_E_MORE)
                                hear(&h, f, agx_view_from(rows[i].in, cut));
                        if (h.verdict != AGX_FAST_E_BROKEN || strcmp(agx_fast_reason(f), rows[i].why) != 0)
                                fail_msg("row %zu, cut %zu: %d, %s, not %s", i, cut, h.verdict, agx_fast_reason(f),
                                         rows[i].why);
                        hear(&h, f, AGX_VIEW("\x82\x0e" CALL "ok")); /* it is final */
                        assert_int_equal(h.verdict, AGX_FAST_E_BROKEN);
                        assert_true(agx_view_eq(agx_buf_view(&h.bytes[5]), AGX_VIEW("ok")));
                        pull_all(f, &out);
                        assert_int_equal(agx_buf_view(&out).p[0], (char)0x88);
                        heard_deinit(&h);
                }
}

/* A frame may come in several of a WebSocket's, empty ones too, its head cut anywhere. */
static void test_fragments(void **state)
{
        static const char whole[] = CALL "hello";

        (void)state;
        for (size_t cut = 0; cut < sizeof(whole); ++cut) {
                _cleanup_(agx_fast_freep) agx_fast *f = end_new(true, false);
                _cleanup_(agx_buf_deinitp) agx_buf in = AGX_BUF_NULL(SIZE_MAX);
                uint8_t first[] = {0x02, (uint8_t)cut}, last[] = {0x80, (uint8_t)(sizeof(whole) - 1 - cut)};
                heard h;

                heard_init(&h);
                put(&in, agx_view_of(first, 2));
                put(&in, agx_view_of(whole, cut));
                put(&in, AGX_VIEW("\0\0\x89\0"));
                put(&in, agx_view_of(last, 2));
                put(&in, agx_view_of(whole + cut, sizeof(whole) - 1 - cut));
                for (size_t i = 0; i < in.len; ++i)
                        hear(&h, f, agx_view_of(agx_buf_view(&in).p + i, 1));
                assert_int_equal(h.verdict, AGX_FAST_E_MORE);
                assert_true(h.ended[5]);
                assert_true(agx_view_eq(agx_buf_view(&h.bytes[5]), AGX_VIEW("hello")));
                heard_deinit(&h);
        }
}

/* Bytes of a value may be read to a place of their own, once its head is there. */
static void test_goes_on(void **state)
{
        _cleanup_(agx_fast_freep) agx_fast *f = end_new(false, false), *m = end_new(false, false);
        char place[100];
        agx_view in = AGX_VIEW("\x82\xe4\0\0\0\0" CALL), at = agx_view_of(place, 60);
        agx_fast_piece piece;
        size_t n;

        (void)state;
        memset(place, 'x', sizeof(place));
        assert_int_equal(agx_fast_goes_on(f, &n), 0);
        assert_int_equal(agx_fast_next(f, &in, &piece), AGX_FAST_E_MORE);
        assert_int_equal(agx_fast_goes_on(f, &n), 5);
        assert_int_equal(n, 88);
        assert_int_equal(agx_fast_next(f, &at, &piece), 0);
        assert_true(piece.first && !piece.last && piece.stream == 5 && piece.data.p == place && piece.data.n == 60);
        assert_int_equal(agx_fast_goes_on(f, &n), 5);
        assert_int_equal(n, 28);
        at = agx_view_of(place + 60, 28);
        assert_int_equal(agx_fast_next(f, &at, &piece), 0);
        assert_true(!piece.first && piece.last && piece.data.p == place + 60);
        assert_int_equal(agx_fast_goes_on(f, &n), 0);
        in = AGX_VIEW("\x82\xe4\x01\0\0\0\0\x03\x01\0\x05\0\0\0\0\0\0\0");
        in = AGX_VIEW("\x82\xe4\x01\x01\x01\x01\0\x02\0\x01\x04\x01\x01\x01\x01\x01\x01\x01"); /* behind a mask */
        assert_int_equal(agx_fast_next(m, &in, &piece), AGX_FAST_E_MORE);
        assert_int_equal(agx_fast_goes_on(m, &n), 0);
}

/* The head of the next frame may be read by itself, as long as a value that goes on behind it was read to a place. */
static void test_between(void **state)
{
        static const char begun[] = "\x82\x16\2\1\2\0\5\0\0\0\xc8\0\0\0\x64\0\0\0\0\0\0";
        static const char other[] = "\x82\x0c\2\3\1\0\6\0\0\0\xc8\0\0";
        static const char last[] = "\x82\x0a\2\2\2\0\5\0\0\0xy";
        _cleanup_(agx_fast_freep) agx_fast *f = end_new(true, false);
        agx_fast_piece piece;
        agx_view in;
        size_t n;

        (void)state;
        for (int placed = 0; placed < 2; ++placed) {
                in = agx_view_of(begun, sizeof(begun));
                assert_int_equal(agx_fast_between(f).n, 0);
                while (!agx_fast_next(f, &in, &piece))
                        ;
                if (placed) {
                        assert_int_equal(agx_fast_goes_on(f, &n), 5);
                        assert_int_equal(n, 2);
                        assert_int_equal(agx_fast_between(f).n, 0);
                }
                in = AGX_VIEW("ab");
                assert_int_equal(agx_fast_next(f, &in, &piece), 0);
                assert_true(!piece.last && piece.data.n == 2);
                assert_int_equal(agx_fast_between(f).n, placed ? 18 : 0);
                in = agx_view_of(other, sizeof(other));
                while (!agx_fast_next(f, &in, &piece))
                        ;
                assert_int_equal(agx_fast_between(f).n, placed ? 18 : 0);
                in = agx_view_of(last, sizeof(last) - 1);
                while (!agx_fast_next(f, &in, &piece))
                        ;
                assert_true(piece.last);
                assert_int_equal(agx_fast_between(f).n, 0);
        }
}

/* ---- lack of memory ---- */

/* Both ends and some traffic. 0, or what failed; the log's own memory does not. */
static int traffic(agx_fast **a, agx_fast **b, agx_buf *wire, heard *h, agx_fast_value *v)
{
        agx_view segments[2], in;
        agx_fast_piece piece;
        int r = agx_fast_new(a, true, true, seed), k = 1;

        r = r ? r : agx_fast_new(b, false, false, seed);
        if (r)
                return r;
        agx_fast_send(*a, &v[0]);
        agx_fast_send(*a, &v[1]);
        agx_fast_reset(*a, 9);
        while (k) {
                k = agx_fast_pending(*a, segments);
                if (k < 0)
                        return k;
                agx_oom_pause(true);
                pull(*a, wire, SIZE_MAX);
                agx_oom_pause(false);
        }
        in = agx_buf_view(wire);
        while (!(r = agx_fast_next(*b, &in, &piece))) {
                agx_oom_pause(true);
                hear_piece(h, &piece);
                agx_oom_pause(false);
        }
        return r == AGX_FAST_E_MORE ? 0 : r;
}

static void test_out_of_memory(void **state)
{
        size_t n = 0;
        bool fired;

        (void)state;
        do {
                _cleanup_(agx_fast_freep) agx_fast *a = NULL, *b = NULL;
                _cleanup_(agx_buf_deinitp) agx_buf wire = AGX_BUF_NULL(SIZE_MAX);
                agx_fast_value v[2] = {value(1, bytes_of(10), bytes_of(5)), value(2, bytes_of(300 * KIB), bytes_of(0))};
                heard h;
                int r;

                heard_init(&h);
                agx_oom_arm(++n);
                r = traffic(&a, &b, &wire, &h, v);
                fired = agx_oom_disarm();
                assert_int_equal(r, fired ? -ENOMEM : 0);
                if (!fired) {
                        assert_true(h.reset[9] && h.ended[1]);
                        check_value(&h, 2, 300 * KIB);
                }
                if (a) {
                        agx_fast_withdraw(a, &v[0]);
                        agx_fast_withdraw(a, &v[1]);
                }
                heard_deinit(&h);
        } while (fired);
        assert_in_range(n, 6, 100);
}

/* What is under way cannot be copied, or a reset not be noted: nothing more is written. */
static void test_out_of_memory_in_withdraw(void **state)
{
        (void)state;
        for (size_t nth = 1; nth <= 2; ++nth) {
                _cleanup_(agx_fast_freep) agx_fast *a = end_new(true, false);
                agx_fast_value v = value(1, bytes_of(BIG), bytes_of(0));
                agx_view segments[2];

                agx_fast_send(a, &v);
                assert_int_equal(agx_fast_pending(a, segments), 2);
                agx_oom_arm(nth);
                agx_fast_withdraw(a, &v);
                assert_true(agx_oom_disarm());
                assert_false(agx_fast_holds(&v));
                assert_int_equal(agx_fast_pending(a, segments), -ENOMEM);
                assert_int_equal(agx_fast_pending(a, segments), -ENOMEM);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sizes),
                cmocka_unit_test(test_cuts),
                cmocka_unit_test(test_lanes),
                cmocka_unit_test(test_under_way),
                cmocka_unit_test(test_written),
                cmocka_unit_test(test_withdraw),
                cmocka_unit_test(test_withdraw_several),
                cmocka_unit_test(test_pings),
                cmocka_unit_test(test_close),
                cmocka_unit_test(test_broken),
                cmocka_unit_test(test_fragments),
                cmocka_unit_test(test_goes_on),
                cmocka_unit_test(test_between),
                cmocka_unit_test(test_out_of_memory),
                cmocka_unit_test(test_out_of_memory_in_withdraw),
        };

        return cmocka_run_group_tests(tests, set_up, NULL);
}
