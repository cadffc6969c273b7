/* Any bytes as the fast wire: no crash, no over-read, and the same pieces whole, in two parts and byte by byte,
 * for both ends; then the connection's brain on the same bytes, where each request is answered by what its id says.
 *
 * The first byte says which end reads and how its bytes are made: those of a fuzzer seldom are WebSocket frames, so with a
 * bit set the input is cut into frames here, each led by a byte with its length. The second says where the two parts part. */
#include <stdint.h>
#include <stdlib.h>

#include "proto/fast.h"
#include "server/fastconn.h"

enum { AS_CLIENT = 1, FRAMED = 2, MASKED = 4, PLACES = 8 };

static const uint8_t seed[16] = {3};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
        if (!holds)
                abort();
}

static void add(agx_buf *to, const void *p, size_t n)
{
        must(agx_buf_append(to, p, n) == 0);
}

/* ---- the bytes ---- */

static void add_frame(agx_buf *to, agx_view payload, unsigned how)
{
        bool masked = !(how & AS_CLIENT);
        uint8_t head[] = {0x82, (uint8_t)(payload.n | (masked ? 0x80 : 0))}, mask[4] = {0};

        if (how & MASKED)
                mask[1] = 0x55;
        add(to, head, sizeof(head));
        if (masked)
                add(to, mask, sizeof(mask));
        for (size_t i = 0; i < payload.n; ++i) {
                char c = (char)(payload.p[i] ^ (masked ? mask[i & 3] : 0));

                add(to, &c, 1);
        }
}

static void make(agx_buf *to, agx_view in, unsigned how)
{
        while (how & FRAMED && in.n) {
                size_t n = (uint8_t)in.p[0] & 0x7f;
                agx_view payload = agx_view_first(agx_view_from(in, 1), n < 126 ? n : 125);

                add_frame(to, payload, how);
                in = agx_view_from(in, 1 + payload.n);
        }
        add(to, in.p, in.n);
}

/* ---- reading ---- */

static void write_out(agx_buf *log, agx_fast *f)
{
        agx_view segments[2];
        int n;

        while ((n = agx_fast_pending(f, segments)) > 0) {
                size_t sent = 0;

                for (int i = 0; i < n; ++i) {
                        add(log, segments[i].p, segments[i].n);
                        sent += segments[i].n;
                }
                agx_fast_sent(f, sent);
        }
        must(n == 0);
}

/* Pieces are written down as if their frame had come in one. */
static void write_piece(agx_buf *log, const agx_fast_piece *p, uint32_t *last)
{
        must(p->stream && p->kind >= AGX_FAST_CALL && p->kind <= AGX_FAST_RESET);
        if (p->first || *last != p->stream)
                must(agx_buf_printf(log, "<%d %u %u %llu>", p->kind, p->stream, p->word, (unsigned long long)p->size) ==
                     0);
        add(log, p->data.p, p->data.n);
        if (p->last)
                add(log, "|", 1);
        *last = p->stream;
}

/* False once it is over. Answers are not compared: of pings that come at once only the newest is
 * answered. */
static bool read_some(agx_buf *log, agx_buf *answers, agx_fast *f, agx_view in, uint32_t *last)
{
        agx_fast_piece piece;
        uint32_t goes_on;
        size_t n;
        int r;

        while (!(r = agx_fast_next(f, &in, &piece))) {
                goes_on = agx_fast_goes_on(f, &n);
                must(!goes_on || (goes_on == piece.stream && n));
                write_piece(log, &piece, last);
                write_out(answers, f);
        }
        must(r > 0);
        if (r == AGX_FAST_E_BROKEN)
                must(agx_buf_printf(log, "!%s", agx_fast_reason(f)) == 0);
        must(r != AGX_FAST_E_MORE || !in.n);
        write_out(answers, f);
        return r == AGX_FAST_E_MORE;
}

static void read_all(agx_buf *log, bool client, agx_view in, size_t first, size_t step)
{
        agx_buf answers = AGX_BUF_NULL(SIZE_MAX);
        agx_fast *f;
        uint32_t last = 0;

        must(agx_fast_new(&f, client, false, seed) == 0);
        for (size_t n = first; in.n; n = step) {
                agx_view some = agx_view_first(in, n);
                uint8_t *own = malloc(some.n); /* whose end is seen */

                memcpy(own, some.p, some.n);
                in = agx_view_from(in, some.n);
                if (!read_some(log, &answers, f, agx_view_of(own, some.n), &last))
                        in = AGX_VIEW("");
                free(own);
        }
        agx_buf_deinit(&answers);
        agx_fast_free(f);
}

/* ---- the brain ---- */

static void free_gone(agx_fastconn *c)
{
        agx_fast_stream *s;

        while ((s = agx_fastconn_next_gone(c, 0)))
                agx_fastconn_free(s);
}

/* Now, later, or taken back at once: as the last byte of its id says. */
static void answer(agx_fast_stream *s, uint32_t *held)
{
        agx_view id = s->request.call_id;
        uint8_t how = (uint8_t)id.p[id.n - 1] & 3;

        must(id.n > 0);
        agx_fastconn_submitted(s);
        if (how == 0) {
                must(agx_fastconn_reply_result(s, true, AGX_VIEW("value"), true) == 0);
        } else if (how == 1) {
                must(agx_fastconn_reply_result(s, false, AGX_VIEW("\x80"), false) == 0);
                agx_fastconn_take_back(s);
                agx_fastconn_free(s);
        } else {
                ++*held;
        }
}

static bool feed_brain(agx_fastconn *c, agx_view in, uint64_t now, uint32_t *held)
{
        agx_fast_stream *s = NULL;
        agx_fastconn_wish wish;

        do {
                must(agx_fastconn_next(c, now, &in, &wish, &s) == 0);
                if (wish == AGX_FASTCONN_SUBMIT)
                        answer(s, held);
        } while (wish == AGX_FASTCONN_SUBMIT);
        return wish == AGX_FASTCONN_INPUT;
}

static void brain(agx_view in, size_t step, bool places, agx_buf *log)
{
        agx_fastconn *c = calloc(1, sizeof(*c));
        agx_fast_stream *s;
        uint32_t held = 0;
        uint64_t now = 0;
        bool goes_on = true;

        must(c && agx_fastconn_init(c, AGX_VIEW("session"), seed, 0) == 0);
        for (size_t n; in.n && goes_on; in = agx_view_from(in, n)) {
                agx_view some = agx_view_first(in, step);
                uint8_t *own = NULL;
                char *place;

                n = some.n;
                if (places && agx_fastconn_place(c, &place, &n)) {
                        n = n < some.n ? n : some.n;
                        memcpy(place, some.p, n);
                        some = agx_view_of(place, n);
                } else {
                        n = some.n;
                        own = malloc(n);
                        memcpy(own, some.p, n);
                        some = agx_view_of(own, n);
                }
                goes_on = feed_brain(c, some, ++now, &held);
                free(own);
                write_out(log, c->fast);
                free_gone(c);
        }
        while ((s = agx_fastconn_late(c, UINT64_MAX))) {
                must(agx_fastconn_reply_accepted(s, AGX_VIEW("id")) == 0);
                --held;
        }
        must(held == 0);
        write_out(log, c->fast);
        free_gone(c);
        must(!goes_on || c->n_asked == 0);
        agx_fastconn_deinit(c);
        free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_buf logs[3] = {AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX)};
        agx_buf bytes = AGX_BUF_NULL(SIZE_MAX);
        agx_view in;

        if (size < 3)
                return 0;
        make(&bytes, agx_view_of(data + 2, size - 2), data[0]);
        in = agx_buf_view(&bytes);
        read_all(&logs[0], data[0] & AS_CLIENT, in, in.n, in.n);
        read_all(&logs[1], data[0] & AS_CLIENT, in, 1 + data[1] % (in.n ? in.n : 1), in.n);
        read_all(&logs[2], data[0] & AS_CLIENT, in, 1, 1);
        for (int i = 1; i < 3; ++i)
                must(agx_view_eq(agx_buf_view(&logs[0]), agx_buf_view(&logs[i])));
        for (int i = 0; i < 2; ++i)
                agx_buf_clear(&logs[i]);
        brain(in, in.n, data[0] & PLACES, &logs[0]);
        brain(in, 1 + data[1] % 40, data[0] & PLACES, &logs[1]);
        for (int i = 0; i < 3; ++i)
                agx_buf_deinit(&logs[i]);
        agx_buf_deinit(&bytes);
        return 0;
}
