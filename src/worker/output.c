/*
 * A line that lies whole in the input is given in place; only what crosses a read is gathered. The tail is a ring, so
 * that a flood costs one copy per byte and no more; it is made readable only when somebody asks.
 */
#include "worker/output.h"
#include "base/utf8.h"
#include "proto/limits.h"

void agx_output_init(agx_output *o)
{
        *o = (agx_output){.partial = AGX_BUF_NULL(AGX_OUTPUT_LINE + 3)};
}

void agx_output_deinit(agx_output *o)
{
        agx_buf_deinit(&o->partial);
}

static bool give(agx_output *o, agx_view text, bool cut, agx_output_line *line)
{
        *line = (agx_output_line){.text = text, .continues = o->continuing, .cut = cut};
        o->continuing = cut;
        o->lines++;
        return true;
}

/* The gathered part and `more` are one piece now. The buffer is given out and counts as empty from the next verb on. */
static bool give_gathered(agx_output *o, agx_view more, bool cut, agx_output_line *line)
{
        bool lost = agx_buf_append_view(&o->partial, more) != 0; /* no memory: what was gathered goes out */
        agx_view text = agx_buf_view(&o->partial);

        o->partial.len = 0; /* the bytes stay where they are until the next append */
        o->partial.head = 0;
        return give(o, text, cut || lost, line);
}

/* How many bytes the last character lacks; `tail` are the last up to three bytes of a text. */
static size_t missing(const unsigned char *tail, size_t n)
{
        for (size_t k = 1; k <= n; k++) {
                unsigned char c = tail[n - k];
                size_t need = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;

                if ((c & 0xc0) != 0x80)
                        return need > k ? need - k : 0;
        }
        return 0;
}

/* The same for the text that is gathered and the first `n` bytes of `in` behind it. */
static size_t missing_after(const agx_output *o, agx_view in, size_t n)
{
        unsigned char tail[3];
        size_t from_in = n < 3 ? n : 3, from_partial = 3 - from_in;
        agx_view partial = agx_buf_view(&o->partial);

        from_partial = from_partial < partial.n ? from_partial : partial.n;
        if (from_partial)
                memcpy(tail, partial.p + partial.n - from_partial, from_partial);
        if (from_in)
                memcpy(tail + from_partial, in.p + n - from_in, from_in);
        return missing(tail, from_partial + from_in);
}

static void take_held(agx_output *o)
{
        if (o->n_held && !agx_buf_append(&o->partial, o->held, o->n_held))
                o->n_held = 0;
}

/* Takes all of `in` and waits for more; without memory it is given out as it is. */
static bool gather(agx_output *o, agx_view *in, agx_output_line *line)
{
        bool lost = agx_buf_append_view(&o->partial, *in) != 0;

        o->bytes += in->n;
        if (lost)
                give(o, *in, true, line);
        *in = agx_view_from(*in, in->n);
        return lost;
}

bool agx_output_next(agx_output *o, agx_view *in, agx_output_line *line)
{
        size_t room, n, lacking;
        const char *end;
        agx_view piece;

        if (!in->n)
                return false;
        take_held(o);
        room = o->partial.len < AGX_OUTPUT_LINE ? AGX_OUTPUT_LINE - o->partial.len : 0;
        n = in->n < room ? in->n : room;
        end = n ? memchr(in->p, '\n', n) : NULL;
        if (!end && n < room)
                return gather(o, in, line);
        n = end ? (size_t)(end - in->p) : n;
        lacking = end ? 0 : missing_after(o, *in, n);
        for (; lacking && n < in->n && ((unsigned char)in->p[n] & 0xc0) == 0x80; lacking--)
                n++;
        if (lacking && n == in->n)
                return gather(o, in, line);
        piece = agx_view_first(*in, n);
        *in = agx_view_from(*in, end ? n + 1 : n);
        o->bytes += end ? n + 1 : n;
        return o->partial.len ? give_gathered(o, piece, !end, line) : give(o, piece, !end, line);
}

bool agx_output_pause(agx_output *o, agx_output_line *line)
{
        agx_view all;
        size_t n = 0;

        take_held(o);
        all = agx_buf_view(&o->partial);
        if (missing_after(o, AGX_VIEW(""), 0))
                while (n < 3 && n < all.n && n < sizeof(o->held)) {
                        n++;
                        if (((unsigned char)all.p[all.n - n] & 0xc0) != 0x80)
                                break;
                }
        if (n == all.n)
                return false;
        o->n_held = n;
        memcpy(o->held, all.p + all.n - n, n);
        agx_buf_truncate(&o->partial, all.n - n);
        return give_gathered(o, AGX_VIEW(""), true, line);
}

bool agx_output_flush(agx_output *o, agx_output_line *line)
{
        take_held(o);
        if (!o->partial.len)
                return false;
        return give_gathered(o, AGX_VIEW(""), true, line);
}

/* ---- the tail ---- */

void agx_tail_init(agx_tail *t)
{
        *t = (agx_tail){0};
}

void agx_tail_deinit(agx_tail *t)
{
        free(t->ring);
        *t = (agx_tail){0};
}

void agx_tail_clear(agx_tail *t)
{
        t->total = 0;
}

void agx_tail_write(agx_tail *t, agx_view bytes)
{
        if (!t->ring)
                t->ring = malloc(AGX_OUTPUT_TAIL);
        if (!t->ring)
                return;
        if (bytes.n > AGX_OUTPUT_TAIL) {
                t->total += bytes.n - AGX_OUTPUT_TAIL;
                bytes = agx_view_from(bytes, bytes.n - AGX_OUTPUT_TAIL);
        }
        while (bytes.n) {
                size_t at = (size_t)(t->total % AGX_OUTPUT_TAIL), n = AGX_OUTPUT_TAIL - at;

                n = n < bytes.n ? n : bytes.n;
                memcpy(t->ring + at, bytes.p, n);
                t->total += n;
                bytes = agx_view_from(bytes, n);
        }
}

static int collect(const agx_tail *t, size_t max, agx_buf *out)
{
        size_t n = t->total < AGX_OUTPUT_TAIL ? (size_t)t->total : AGX_OUTPUT_TAIL, at, first;
        int r;

        n = n < max ? n : max;
        at = (size_t)((t->total - n) % AGX_OUTPUT_TAIL);
        first = AGX_OUTPUT_TAIL - at < n ? AGX_OUTPUT_TAIL - at : n;
        r = n ? agx_buf_append(out, t->ring + at, first) : 0;
        return r || first == n ? r : agx_buf_append(out, t->ring, n - first);
}

/* Length of the character at the front, 0 if what stands there is none. */
static size_t character(agx_view v)
{
        for (size_t n = 1; n <= 4 && n <= v.n; n++)
                if (agx_utf8_valid(agx_view_first(v, n)))
                        return n;
        return 0;
}

static int append_readable(agx_buf *out, agx_view v)
{
        size_t n = character(v);
        unsigned char c = (unsigned char)v.p[0];

        if (!n)
                return agx_buf_append(out, "\xef\xbf\xbd", 3);
        if (n == 1 && (c < 0x20 || c == 0x7f) && c != '\n' && c != '\t')
                return agx_buf_printf(out, "\\x%02x", c);
        return agx_buf_append(out, v.p, n);
}

int agx_tail_text(const agx_tail *t, size_t max, agx_buf *out)
{
        _cleanup_(agx_buf_deinitp) agx_buf raw = AGX_BUF_NULL(AGX_OUTPUT_TAIL);
        agx_view rest;
        int r = collect(t, max, &raw);

        rest = agx_buf_view(&raw);
        if (!r && t->total > rest.n) {
                const char *line = memchr(rest.p, '\n', rest.n);

                if (line && line + 1 < rest.p + rest.n)
                        rest = agx_view_from(rest, (size_t)(line + 1 - rest.p));
        }
        while (rest.n && rest.p[rest.n - 1] == '\n')
                rest.n--;
        while (!r && rest.n) {
                size_t n = character(rest);

                r = append_readable(out, rest);
                rest = agx_view_from(rest, n ? n : 1);
        }
        return r;
}
