/*
 * Reading lies over a WebSocket that gives its messages piece by piece: the first bytes of each are gathered into the
 * head, the rest is passed on as it comes.
 *
 * Writing makes one frame at a time, as long as little is ready. A frame with few bytes is copied into `out` behind those
 * before it; of one with many only the head goes there, and its bytes are shown where they lie, as the second segment. They
 * are the only ones we look at later than in agx_fast_pending(): if their value is withdrawn meanwhile, they are copied.
 *
 * All bytes ever made are counted, and all that are gone: a value is written when the latter count has passed its end.
 */
#include "proto/fast.h"
#include "base/err.h"
#include "base/map.h"
#include "proto/limits.h"
#include "wire/ws.h"

#include <endian.h>

enum {
        HEAD = 8,
        HEAD_FIRST = HEAD + 4,
        HEAD_LONG = HEAD_FIRST + 8,
        INLINE_MAX = 16 * 1024, /* bytes of a frame that are copied */
        OUT_LOW = 64 * 1024,    /* bytes that are ready before another frame is made */
};
enum { FIRST = 1, LAST = 2 };

struct agx_fast {
        agx_ws *ws;
        const char *reason;

        /* the frame being read */
        uint8_t head[HEAD_LONG];
        size_t n_head;
        agx_fast_piece piece; /* what its head says; .first until a piece was given */
        uint8_t flags;
        bool headed; /* the head is complete */
        int over;    /* the condition that ended it */

        /* writing */
        agx_list lanes[AGX_FAST_LANES];
        agx_list held;      /* large values that have to wait before they begin */
        uint64_t under_way; /* bytes of large ones that are on their lane */
        agx_list framed;    /* no frame is to be made of them any more, in the order of their ends */
        agx_buf resets;     /* streams, 4 bytes each */
        agx_buf out;
        agx_view large; /* after `out` */
        agx_fast_value *large_of;
        agx_buf rescued; /* what `large` is, once its value has been withdrawn */
        uint8_t lead[HEAD_LONG + INLINE_MAX];
        uint32_t going; /* the stream of a large value that goes on, or 0 */
        uint8_t between[AGX_WS_HEAD_MAX + HEAD];
        uint64_t made, gone;
        int error;
        bool masked;
        bool client;
        uint64_t secret[2], drawn;
};

int agx_fast_new(agx_fast **fastp, bool client, bool masked, const uint8_t seed[16])
{
        static const agx_ws_bounds bounds = {.message_max = AGX_FAST_FRAME_MAX,
                                             .fragments_max = AGX_FAST_FRAGMENTS_MAX,
                                             .frame_out = AGX_FAST_FRAME_MAX,
                                             .pieces = true};
        agx_fast *f = calloc(1, sizeof(*f));

        if (!f || agx_ws_new(&f->ws, client ? AGX_WS_CLIENT : AGX_WS_SERVER, &bounds)) {
                free(f);
                return agx_trace(-ENOMEM);
        }
        for (size_t i = 0; i < AGX_FAST_LANES; ++i)
                agx_list_init(&f->lanes[i]);
        agx_list_init(&f->held);
        agx_list_init(&f->framed);
        f->out = AGX_BUF_NULL(OUT_LOW + HEAD_LONG + INLINE_MAX + 2 * AGX_WS_HEAD_MAX + AGX_FAST_FRAME_MAX);
        f->resets = AGX_BUF_NULL(AGX_FAST_STREAMS_MAX * sizeof(uint32_t));
        f->rescued = AGX_BUF_NULL(AGX_FAST_FRAME_MAX);
        f->client = client;
        f->masked = client && masked;
        memcpy(f->secret, seed, sizeof(f->secret));
        *fastp = f;
        return 0;
}

void agx_fast_free(agx_fast *f)
{
        if (!f)
                return;
        for (size_t i = 0; i < AGX_FAST_LANES; ++i)
                agx_list_foreach_safe(node, &f->lanes[i]) agx_list_unlink(node);
        agx_list_foreach_safe(node, &f->held) agx_list_unlink(node);
        agx_list_foreach_safe(node, &f->framed) agx_list_unlink(node);
        agx_ws_free(f->ws);
        agx_buf_deinit(&f->out);
        agx_buf_deinit(&f->resets);
        agx_buf_deinit(&f->rescued);
        free(f);
}

const char *agx_fast_reason(const agx_fast *f)
{
        return f->reason ? f->reason : "it does not keep to the wire";
}

/* ---- reading ---- */

static int broken(agx_fast *f, const char *why)
{
        f->reason = why;
        agx_ws_close(f->ws, AGX_WS_PROTOCOL, agx_view_str(why));
        return f->over = AGX_FAST_E_BROKEN;
}

static uint32_t get32(const uint8_t *p)
{
        uint32_t n;

        memcpy(&n, p, sizeof(n));
        return le32toh(n);
}

static uint64_t get64(const uint8_t *p)
{
        uint64_t n;

        memcpy(&n, p, sizeof(n));
        return le64toh(n);
}

/* How long the head is, as far as can be told. */
static size_t head_length(const agx_fast *f)
{
        if (f->n_head < 2 || !(f->head[1] & FIRST))
                return HEAD;
        return f->head[1] & LAST ? HEAD_FIRST : HEAD_LONG;
}

static int read_head(agx_fast *f)
{
        uint8_t kind = f->head[0], flags = f->head[1];
        unsigned lane = (unsigned)f->head[2] | (unsigned)f->head[3] << 8;

        f->piece = (agx_fast_piece){.kind = kind, .stream = get32(f->head + 4), .first = flags & FIRST};
        f->flags = flags;
        f->headed = true;
        if (kind < AGX_FAST_CALL || kind > AGX_FAST_RESET)
                return broken(f, "a frame of an unknown kind");
        if (flags & ~(FIRST | LAST))
                return broken(f, "a frame with an unknown flag");
        if (lane >= AGX_FAST_LANES)
                return broken(f, "a frame on an unknown lane");
        if (!f->piece.stream)
                return broken(f, "a frame of no stream");
        if (kind == AGX_FAST_RESET && flags != (FIRST | LAST))
                return broken(f, "a reset that is not one frame");
        if (flags & FIRST)
                f->piece.word = get32(f->head + HEAD);
        if (f->n_head == HEAD_LONG)
                f->piece.size = get64(f->head + HEAD_FIRST);
        return 0;
}

/* What came of a frame: takes the head off. 0: *piece is to be given; E_MORE: nothing yet. */
static int take(agx_fast *f, agx_view data, bool end, agx_fast_piece *piece)
{
        while (!f->headed && data.n) {
                f->head[f->n_head++] = (uint8_t)data.p[0];
                data = agx_view_from(data, 1);
                if (f->n_head >= 2 && f->n_head == head_length(f) && read_head(f))
                        return AGX_FAST_E_BROKEN;
        }
        if (!f->headed)
                return end ? broken(f, "a frame that is shorter than its head") : AGX_FAST_E_MORE;
        if (f->piece.kind == AGX_FAST_RESET && data.n)
                return broken(f, "a reset with a value");
        if (!data.n && !end)
                return AGX_FAST_E_MORE;
        *piece = f->piece;
        piece->data = data.n ? data : AGX_VIEW("");
        piece->last = end && f->flags & LAST;
        if (piece->last && piece->stream == f->going)
                f->going = 0;
        f->piece.first = false;
        if (end) {
                f->headed = false;
                f->n_head = 0;
        }
        return 0;
}

int agx_fast_next(agx_fast *f, agx_view *in, agx_fast_piece *piece)
{
        agx_ws_event ws;
        int r = f->over ? f->over : AGX_FAST_E_MORE;

        while (r == AGX_FAST_E_MORE) {
                r = agx_ws_next(f->ws, in, &ws);
                if (r < 0)
                        return r;
                if (r) {
                        f->reason = f->reason ? f->reason : agx_ws_error_text(r);
                        return f->over = AGX_FAST_E_BROKEN;
                }
                if (ws.kind == AGX_WS_MORE)
                        return AGX_FAST_E_MORE;
                if (ws.kind == AGX_WS_CLOSE)
                        return f->over = AGX_FAST_E_CLOSED;
                if (ws.kind == AGX_WS_TEXT)
                        return broken(f, "a message of text");
                r = ws.kind == AGX_WS_PIECE ? take(f, ws.data, ws.last, piece) : AGX_FAST_E_MORE;
        }
        return r;
}

uint32_t agx_fast_goes_on(agx_fast *f, size_t *n)
{
        *n = f->headed ? agx_ws_passing(f->ws) : 0;
        if (*n && !(f->flags & LAST))
                f->going = f->piece.stream;
        return *n ? f->piece.stream : 0;
}

agx_view agx_fast_between(agx_fast *f)
{
        size_t masked = f->client ? 0 : AGX_WS_MASK;

        return f->going && !f->headed && !f->over
                       ? agx_view_of(f->between, AGX_WS_HEAD_MAX - AGX_WS_MASK + masked + HEAD)
                       : AGX_VIEW_NULL;
}

/* ---- what waits to be written ---- */

static uint64_t size_of(const agx_fast_value *v)
{
        return (uint64_t)v->parts[0].n + v->parts[1].n + v->parts[2].n;
}

static agx_fast_lane lane_of(const agx_fast_value *v)
{
        return size_of(v) <= AGX_FAST_SMALL_BYTES ? AGX_FAST_SMALL : AGX_FAST_BULK;
}

void agx_fast_send(agx_fast *f, agx_fast_value *v)
{
        v->done = v->end = 0;
        v->begun = v->framed = v->counted = false;
        agx_list_push_back(size_of(v) > AGX_FAST_MIDDLE_BYTES ? &f->held : &f->lanes[lane_of(v)], &v->node);
}

/* In their order, and one in any case. */
static void let_begin(agx_fast *f)
{
        agx_list *node;

        while ((node = agx_list_first(&f->held))) {
                agx_fast_value *v = agx_container_of(node, agx_fast_value, node);

                if (f->under_way && f->under_way + size_of(v) > AGX_FAST_UNDER_WAY)
                        return;
                f->under_way += size_of(v);
                v->counted = true;
                agx_list_unlink(node);
                agx_list_push_back(&f->lanes[lane_of(v)], node);
        }
}

/* It is not under way any more. */
static void uncount(agx_fast *f, agx_fast_value *v)
{
        if (v->counted)
                f->under_way -= size_of(v);
        v->counted = false;
}

bool agx_fast_is_written(const agx_fast *f, const agx_fast_value *v)
{
        return v->framed && v->end <= f->gone;
}

bool agx_fast_holds(const agx_fast_value *v)
{
        return v->node.next && !agx_list_empty(&v->node);
}

/* What is under way of a value that goes: the frame has been announced, so its bytes must come. */
static void rescue(agx_fast *f)
{
        agx_buf_clear(&f->rescued);
        if (agx_buf_append_view(&f->rescued, f->large))
                f->error = agx_trace(-ENOMEM);
        f->large = f->error ? AGX_VIEW_NULL : agx_buf_view(&f->rescued);
        f->large_of = NULL;
}

void agx_fast_reset(agx_fast *f, uint32_t stream)
{
        if (agx_buf_append(&f->resets, &stream, sizeof(stream)))
                f->error = agx_trace(-ENOMEM);
}

void agx_fast_withdraw(agx_fast *f, agx_fast_value *v)
{
        if (f->large_of == v)
                rescue(f);
        if (!agx_fast_holds(v))
                return;
        agx_list_unlink(&v->node);
        uncount(f, v);
        if (v->begun && !v->framed)
                agx_fast_reset(f, v->stream);
}

void agx_fast_close(agx_fast *f, uint16_t code)
{
        agx_ws_close(f->ws, code, AGX_VIEW(""));
}

/* ---- frames ---- */

static size_t put_head(uint8_t *to, const agx_fast_value *v, agx_fast_lane lane, uint8_t flags)
{
        uint32_t stream = htole32(v->stream), word = htole32(v->word);
        uint64_t size = htole64(size_of(v));

        to[0] = (uint8_t)v->kind;
        to[1] = flags;
        to[2] = (uint8_t)lane;
        to[3] = 0;
        memcpy(to + 4, &stream, sizeof(stream));
        if (!(flags & FIRST))
                return HEAD;
        memcpy(to + HEAD, &word, sizeof(word));
        if (flags & LAST)
                return HEAD_FIRST;
        memcpy(to + HEAD_FIRST, &size, sizeof(size));
        return HEAD_LONG;
}

static void draw_mask(agx_fast *f, uint8_t mask[4])
{
        memset(mask, 0, 4);
        if (f->masked)
                agx_siphash_draw(f->secret, &f->drawn, mask, 4);
}

/* Puts what the WebSocket gives next into `out`; the body of a frame stays where it is unless it has to be masked. */
static int put_frame(agx_fast *f, agx_view *body)
{
        size_t before = f->out.len;
        agx_ws_frame frame;
        uint8_t mask[4];
        int r;

        draw_mask(f, mask);
        *body = AGX_VIEW_NULL;
        if (f->masked) {
                r = agx_ws_pull(f->ws, mask, &f->out);
        } else {
                r = agx_ws_next_frame(f->ws, f->client ? mask : NULL, &frame);
                if (!r)
                        r = agx_buf_append(&f->out, frame.head, frame.n_head);
                if (!r)
                        r = agx_buf_append_view(&f->out, frame.parts[0]);
                if (!r && frame.parts[1].n)
                        *body = frame.parts[1];
        }
        f->made += f->out.len - before + body->n;
        return r > 0 ? agx_trace(-ENOMEM) : r;
}

/* The bytes of a value that are not framed yet: the next two runs of them. */
static void rest_of(const agx_fast_value *v, agx_view rest[2])
{
        uint64_t done = v->done;
        size_t n = 0;

        rest[0] = rest[1] = AGX_VIEW_NULL;
        for (size_t i = 0; n < 2 && i < sizeof(v->parts) / sizeof(*v->parts); ++i) {
                agx_view part = v->parts[i];
                size_t past = done < part.n ? (size_t)done : part.n;

                done -= past;
                if (past < part.n)
                        rest[n++] = agx_view_from(part, past);
        }
}

static void copy_into(agx_fast *f, size_t *n, agx_view bytes)
{
        if (bytes.n)
                memcpy(f->lead + *n, bytes.p, bytes.n);
        *n += bytes.n;
}

/* How much of `v` goes into its next frame: small runs are copied behind the head, a large one is sent from where it lies. */
static void choose(const agx_fast_value *v, agx_view copied[2], agx_view *sent)
{
        agx_view rest[2];

        rest_of(v, rest);
        copied[0] = copied[1] = *sent = AGX_VIEW_NULL;
        if (rest[0].n > INLINE_MAX) {
                *sent = agx_view_first(rest[0], AGX_FAST_FRAME_MAX - HEAD_LONG);
                return;
        }
        copied[0] = rest[0];
        if (rest[0].n + rest[1].n <= INLINE_MAX)
                copied[1] = rest[1];
        else
                *sent = agx_view_first(rest[1], AGX_FAST_FRAME_MAX - HEAD_LONG - rest[0].n);
}

static int frame_value(agx_fast *f, agx_fast_value *v, agx_fast_lane lane)
{
        agx_view copied[2], sent;
        size_t n;
        int r;

        choose(v, copied, &sent);
        v->framed = v->done + copied[0].n + copied[1].n + sent.n == size_of(v);
        n = put_head(f->lead, v, lane, (uint8_t)((v->begun ? 0 : FIRST) | (v->framed ? LAST : 0)));
        copy_into(f, &n, copied[0]);
        copy_into(f, &n, copied[1]);
        if (agx_ws_send(f->ws, false, agx_view_of(f->lead, n), sent))
                return agx_trace(-EPIPE); /* goodbye has been said */
        r = put_frame(f, &f->large);
        f->large_of = f->large.n ? v : NULL;
        v->done += copied[0].n + copied[1].n + sent.n;
        v->begun = true;
        v->end = f->made;
        if (v->framed)
                uncount(f, v);
        agx_list_unlink(&v->node);
        agx_list_push_back(v->framed ? &f->framed : &f->lanes[lane], &v->node);
        return r;
}

static int frame_reset(agx_fast *f)
{
        agx_fast_value v = {.kind = AGX_FAST_RESET};
        agx_view none;
        size_t n;

        memcpy(&v.stream, agx_buf_view(&f->resets).p, sizeof(v.stream));
        agx_buf_consume(&f->resets, sizeof(v.stream));
        n = put_head(f->lead, &v, AGX_FAST_CONTROL, FIRST | LAST);
        if (agx_ws_send(f->ws, false, agx_view_of(f->lead, n), AGX_VIEW("")))
                return agx_trace(-EPIPE);
        return put_frame(f, &none);
}

/* One more frame. AGX_WS_IDLE: there is none to be made. */
static int frame_next(agx_fast *f)
{
        agx_view none;

        if (agx_ws_pending(f->ws))
                return put_frame(f, &none); /* a pong, or the close */
        if (f->resets.len)
                return frame_reset(f);
        let_begin(f);
        for (size_t i = 0; i < AGX_FAST_LANES; ++i) {
                agx_list *node = agx_list_first(&f->lanes[i]);

                if (node)
                        return frame_value(f, agx_container_of(node, agx_fast_value, node), (agx_fast_lane)i);
        }
        return AGX_WS_IDLE;
}

/* ---- the way out ---- */

int agx_fast_pending(agx_fast *f, agx_view segments[2])
{
        int r = f->error, n = 0;

        while (!r && !f->large.n && f->out.len < OUT_LOW)
                r = frame_next(f);
        if (r < 0 && r != -EPIPE) {
                f->error = r;
                return r;
        }
        if (f->out.len)
                segments[n++] = agx_buf_view(&f->out);
        if (f->large.n)
                segments[n++] = f->large;
        return n;
}

void agx_fast_sent(agx_fast *f, size_t n)
{
        size_t small = n < f->out.len ? n : f->out.len;

        f->gone += n;
        agx_buf_consume(&f->out, small);
        if (n > small)
                f->large = agx_view_from(f->large, n - small);
        if (!f->large.n)
                f->large_of = NULL;
}

agx_fast_value *agx_fast_next_written(agx_fast *f)
{
        agx_list *node = agx_list_first(&f->framed);
        agx_fast_value *v = node ? agx_container_of(node, agx_fast_value, node) : NULL;

        if (!v || v->end > f->gone)
                return NULL;
        agx_list_unlink(node);
        return v;
}
