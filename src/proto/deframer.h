#ifndef AGX_PROTO_DEFRAMER_H
#define AGX_PROTO_DEFRAMER_H
/*
 * Cuts a stream of worker frames into payloads.
 *
 * A frame is a length, u32 little-endian, and so many bytes of payload. So that others need not wait behind a long one, one
 * frame at a time may come in pieces instead: each is a length with its highest bit set, and so many bytes, which begin
 * with a head as on the fast wire (kind 4, flags, lane 2, stream; in the first of several also 0 and the size of the payload).
 * Between two pieces whole frames may come.
 *
 * A payload that lies whole in the input is given in place; otherwise its bytes are gathered, and room grows with what
 * came, not with what was announced. A payload's view lives until the next call of any verb, or as long as the input it
 * lies in.
 */
#include "base/buf.h"

enum {
        AGX_FRAME_E_TOO_LARGE = 1, /* announces or would need more than AGX_MAX_MESSAGE; final */
        AGX_FRAME_E_MALFORMED,     /* of a deframer: a piece that cannot stand there; final */
        AGX_FRAME_E_MORE,          /* agx_deframer_next only: all input used */
        AGX_FRAME_E_FULL,          /* agx_frame_put only: the buffer's own ceiling */
        AGX_FRAME_E_PART           /* agx_deframer_next only: some bytes of a frame that was diverted */
};

enum { AGX_PIECE_HEAD_MAX = 24 };

typedef struct agx_deframer {
        agx_buf partial; /* header and payload of an unfinished frame */
        agx_buf pieces;  /* of the payload that comes in pieces, what has come */
        agx_buf *given;  /* which of them holds a payload that was given out, or NULL */
        size_t max;
        size_t to_come;   /* bytes of the piece at hand */
        uint64_t missing; /* bytes of the frame in pieces, with those */
        uint32_t stream;  /* its number; 0: there is none */
        int over;         /* the condition that ended it */
        bool in_piece;    /* its head is read */
        bool diverted;
        unsigned begun;  /* how many frames have begun that may be diverted */
        unsigned number; /* of the one in pieces, among them */
} agx_deframer;

void agx_deframer_init(agx_deframer *d, size_t max);
void agx_deframer_deinit(agx_deframer *d);
AGX_DEFINE_CLEANUP(agx_deframer, agx_deframer_deinit)
/* 0 with a payload, AGX_FRAME_E_PART with bytes, AGX_FRAME_E_MORE, AGX_FRAME_E_TOO_LARGE (before reading the body),
 * AGX_FRAME_E_MALFORMED, -ENOMEM. */
int agx_deframer_next(agx_deframer *d, agx_view *in, agx_view *payload);
/* A place of its own for the next bytes of a large unfinished frame, never beyond its end: false if it is not in one. What
 * is read there is given to agx_deframer_next() as input like any other, and need not be moved. */
bool agx_deframer_place(agx_deframer *d, char **place, size_t *n);
/* Whether a frame in pieces is unfinished and its next piece has not begun: mostly a head comes next, and then there is a place. */
static inline bool agx_deframer_between(const agx_deframer *d)
{
        return d->stream && !d->in_piece;
}
/* The buffer a payload lies in with nothing else but its header, whose memory may be taken over; NULL: it lies elsewhere. */
agx_buf *agx_deframer_backing(agx_deframer *d, agx_view payload);

/* The unfinished frame at hand: what has come of its payload, which lives until the next verb, how many bytes it will have, as it
 * says, and its number among those that were unfinished. */
bool agx_deframer_begun(const agx_deframer *d, agx_view *begun, uint64_t *total, unsigned *number);
/* From now on its bytes are given as they come, AGX_FRAME_E_PART. What has come is forgotten. */
void agx_deframer_divert(agx_deframer *d);
/* How many of the next bytes are certainly such ones. */
static inline size_t agx_deframer_diverts(const agx_deframer *d)
{
        return d->diverted ? d->to_come : 0;
}
/* Whether the stream stands between frames, which is where an orderly end may come. */
bool agx_deframer_idle(const agx_deframer *d);

/* Writes what stands before the next piece of a payload of `total` bytes, of which `done` were sent; `*n`: how many bytes
 * of it follow. Gives the length. */
size_t agx_piece_head(uint8_t head[AGX_PIECE_HEAD_MAX], uint32_t stream, uint64_t total, uint64_t done, size_t *n);

#endif
