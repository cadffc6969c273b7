/*
 * Between frames `partial` gathers the next header, and the payload behind it or the head of a piece. The bytes of a piece
 * are counted down by `to_come`, those of their frame by `missing`. A frame that is diverted is one in pieces from there
 * on, whatever it was: what is left of it is one piece.
 */
#include "proto/deframer.h"
#include "base/err.h"
#include "proto/limits.h"

enum { HEADER = 4, HEAD = 8, HEAD_LONG = 20, PLACE_BYTES = 1 << 20, PLACE_MIN = 16 << 10 };
enum { KIND = 4, FIRST = 1, LAST = 2, LANE = 2 };
enum { GO_ON = -1000000 }; /* of the verbs below: what was read gives nothing yet */
#define IN_PIECES 0x80000000U

void agx_deframer_init(agx_deframer *d, size_t max)
{
        *d = (agx_deframer){.max = max};
        agx_buf_init(&d->partial, max + HEADER);
        agx_buf_init(&d->pieces, max);
}

void agx_deframer_deinit(agx_deframer *d)
{
        agx_buf_deinit(&d->partial);
        agx_buf_deinit(&d->pieces);
        d->given = NULL;
}

static uint64_t get(const void *bytes, size_t n)
{
        const uint8_t *p = bytes;
        uint64_t value = 0;

        for (size_t i = n; i > 0; --i)
                value = value << 8 | p[i - 1];
        return value;
}

static void put(uint8_t *to, size_t n, uint64_t value)
{
        for (size_t i = 0; i < n; ++i, value >>= 8)
                to[i] = (uint8_t)value;
}

static void forget_given(agx_deframer *d)
{
        if (d->given)
                agx_buf_clear(d->given);
        d->given = NULL;
}

/* Moves bytes from the input to the buffer, which are there already if they were read to where agx_deframer_place() said. */
static int move(agx_buf *to, agx_view *in, size_t n)
{
        agx_view part = agx_view_first(*in, n);
        int r = 0;

        if (agx_buf_ends_at(to, part))
                agx_buf_commit(to, part.n);
        else
                r = agx_buf_append_view(to, part);
        if (r)
                return agx_trace(r < 0 ? r : -EOVERFLOW); /* the ceiling was checked: cannot be full */
        *in = agx_view_from(*in, part.n);
        return 0;
}

/* AGX_FRAME_E_MORE while `partial` holds less than `want`. */
static int gather(agx_deframer *d, agx_view *in, size_t want)
{
        int r = d->partial.len < want ? move(&d->partial, in, want - d->partial.len) : 0;

        if (r)
                return r;
        return d->partial.len < want ? AGX_FRAME_E_MORE : 0;
}

/* ---- pieces ---- */

static const uint8_t *gathered(const agx_deframer *d)
{
        return d->partial.data + d->partial.head + HEADER;
}

static int begin_frame(agx_deframer *d, uint32_t stream, uint64_t total)
{
        if (!stream || d->stream)
                return AGX_FRAME_E_MALFORMED;
        if (total > d->max)
                return AGX_FRAME_E_TOO_LARGE;
        d->stream = stream;
        d->missing = total;
        d->number = ++d->begun;
        agx_buf_expect(&d->pieces, total);
        return 0;
}

/* The head of a piece, of which `n` bytes are head and payload. */
static int read_head(agx_deframer *d, agx_view *in, size_t n)
{
        int r = n < HEAD ? AGX_FRAME_E_MALFORMED : gather(d, in, HEADER + HEAD);
        uint8_t flags = r ? 0 : gathered(d)[1];
        size_t head = (flags & (FIRST | LAST)) == FIRST ? HEAD_LONG : HEAD;
        uint32_t stream;

        if (!r && n >= head)
                r = gather(d, in, HEADER + head);
        if (r || n < head)
                return r ? r : AGX_FRAME_E_MALFORMED;
        stream = (uint32_t)get(gathered(d) + 4, 4);
        if (gathered(d)[0] != KIND || flags & ~(FIRST | LAST) || get(gathered(d) + 2, 2) != LANE)
                return AGX_FRAME_E_MALFORMED;
        if (flags & FIRST)
                r = begin_frame(d, stream, head == HEAD ? n - head : get(gathered(d) + 12, 8));
        if (r)
                return r;
        d->to_come = n - head;
        d->in_piece = true;
        agx_buf_clear(&d->partial);
        if (d->stream != stream || d->to_come > d->missing || (flags & LAST) != (d->to_come == d->missing ? LAST : 0) ||
            (!d->to_come && d->missing))
                return AGX_FRAME_E_MALFORMED;
        return GO_ON;
}

/* What has come of the piece at hand. */
static int take_piece(agx_deframer *d, agx_view *in, agx_view *payload)
{
        size_t n = in->n < d->to_come ? in->n : d->to_come;
        bool diverted = d->diverted;
        int r = 0;

        if (!n && d->to_come)
                return AGX_FRAME_E_MORE;
        *payload = agx_view_first(*in, n);
        if (diverted)
                *in = agx_view_from(*in, n);
        else
                r = move(&d->pieces, in, n);
        if (r)
                return r;
        d->to_come -= n;
        d->missing -= n;
        d->in_piece = d->to_come > 0;
        if (!d->missing) {
                d->stream = 0;
                d->diverted = false;
        }
        if (diverted)
                return AGX_FRAME_E_PART;
        if (d->missing)
                return GO_ON;
        *payload = agx_buf_view(&d->pieces);
        d->given = &d->pieces;
        return 0;
}

/* ---- frames ---- */

/* The whole frame at the front of the input, in place. False: it is not whole. */
static bool take_whole(const agx_deframer *d, agx_view *in, agx_view *payload)
{
        size_t n;

        if (d->partial.len || in->n < HEADER)
                return false;
        n = get(in->p, HEADER);
        if (n > d->max || in->n - HEADER < n)
                return false;
        *payload = agx_view_of(in->p + HEADER, n);
        *in = agx_view_from(*in, HEADER + n);
        return true;
}

static size_t announced(const agx_deframer *d)
{
        return get(d->partial.data + d->partial.head, HEADER);
}

static int take_frame(agx_deframer *d, agx_view *in, agx_view *payload)
{
        size_t n;
        int r;

        if (take_whole(d, in, payload))
                return 0;
        r = gather(d, in, HEADER);
        if (r)
                return r;
        n = announced(d);
        if ((n & ~(size_t)IN_PIECES) > (n & IN_PIECES ? AGX_FAST_FRAME_MAX : d->max))
                return AGX_FRAME_E_TOO_LARGE;
        if (n & IN_PIECES)
                return read_head(d, in, n & ~(size_t)IN_PIECES);
        d->begun += d->partial.len == HEADER;
        agx_buf_expect(&d->partial, HEADER + n);
        r = gather(d, in, HEADER + n);
        if (r)
                return r;
        *payload = agx_view_from(agx_buf_view(&d->partial), HEADER);
        d->given = &d->partial;
        return 0;
}

int agx_deframer_next(agx_deframer *d, agx_view *in, agx_view *payload)
{
        int r = d->over ? d->over : GO_ON;

        forget_given(d);
        while (r == GO_ON)
                r = d->in_piece ? take_piece(d, in, payload) : take_frame(d, in, payload);
        if (r == AGX_FRAME_E_TOO_LARGE || r == AGX_FRAME_E_MALFORMED)
                d->over = r;
        return r;
}

/* Whether `partial` holds the beginning of a frame that comes whole. */
static bool has_begun(const agx_deframer *d)
{
        return !d->given && d->partial.len >= HEADER && !(announced(d) & IN_PIECES);
}

bool agx_deframer_place(agx_deframer *d, char **place, size_t *n)
{
        agx_buf *to = d->in_piece ? &d->pieces : &d->partial;
        uint8_t *at;

        if (d->in_piece)
                *n = d->diverted ? 0 : d->to_come;
        else
                *n = has_begun(d) && d->partial.len >= PLACE_BYTES ? HEADER + announced(d) - d->partial.len : 0;
        if (*n > PLACE_BYTES)
                *n = PLACE_BYTES;
        if (*n < PLACE_MIN || agx_buf_reserve(to, *n, &at))
                return false;
        *place = (char *)at;
        return true;
}

agx_buf *agx_deframer_backing(agx_deframer *d, agx_view payload)
{
        const char *start = d->given ? (const char *)d->given->data : NULL;

        return start && payload.p >= start && payload.p < start + d->given->cap ? d->given : NULL;
}

bool agx_deframer_idle(const agx_deframer *d)
{
        return (d->given == &d->partial || !d->partial.len) && !d->stream && !d->over;
}

/* ---- frames that go elsewhere ---- */

bool agx_deframer_begun(const agx_deframer *d, agx_view *begun, uint64_t *total, unsigned *number)
{
        *number = d->stream ? d->number : d->begun;
        if (d->stream) {
                *begun = agx_buf_view(&d->pieces);
                *total = d->pieces.len + d->missing;
                return !d->diverted;
        }
        if (!has_begun(d))
                return false;
        *begun = agx_view_from(agx_buf_view(&d->partial), HEADER);
        *total = announced(d);
        return true;
}

void agx_deframer_divert(agx_deframer *d)
{
        d->diverted = true;
        agx_buf_clear(&d->pieces);
        if (d->stream)
                return;
        d->stream = 1;
        d->missing = d->to_come = HEADER + announced(d) - d->partial.len;
        d->in_piece = true;
        agx_buf_clear(&d->partial);
}

/* ---- sending ---- */

size_t agx_piece_head(uint8_t head[AGX_PIECE_HEAD_MAX], uint32_t stream, uint64_t total, uint64_t done, size_t *n)
{
        bool first = !done, last = total - done <= AGX_FAST_FRAME_MAX - HEAD;
        size_t length = first && !last ? HEAD_LONG : HEAD;
        uint64_t rest = AGX_FAST_FRAME_MAX - length;

        *n = (size_t)(total - done < rest ? total - done : rest);
        put(head, HEADER, IN_PIECES | (length + *n));
        head[HEADER] = KIND;
        head[HEADER + 1] = (uint8_t)((first ? FIRST : 0) | (last ? LAST : 0));
        put(head + HEADER + 2, 2, LANE);
        put(head + HEADER + 4, 4, stream);
        if (length == HEAD_LONG) {
                put(head + HEADER + HEAD, 4, 0);
                put(head + HEADER + HEAD + 4, 8, total);
        }
        return HEADER + length;
}
