#ifndef AGX_WORKER_BULK_H
#define AGX_WORKER_BULK_H
/*
 * Large CALL frames on their way to a worker that reads frames in pieces (proto/deframer.h), so that a small one never waits
 * for a large one to be over. A brain: it says what is to be sent next, whenever the channel has nothing else.
 *
 * Frames of at most AGX_FAST_FRAME_MAX go whole and before longer ones, of which one at a time goes piece by piece: after a
 * frame that went before it, one piece of the long one has its turn. What must not overtake a frame waits behind it.
 */
#include "base/buf.h"
#include "base/list.h"

/* Heads of long frames are short; what comes behind the last piece is a cancel or a few credits. */
typedef struct agx_bulk_frame {
        agx_list node;
        agx_buf id;     /* of its call */
        agx_buf head;   /* as agx_frame_put_head() writes it */
        agx_buf body;   /* the rest */
        agx_buf behind; /* whole frames about that call */
        size_t sent;    /* of the payload */
} agx_bulk_frame;

typedef struct agx_bulk {
        agx_list middle;
        agx_list large;
        size_t middle_bytes; /* that have not been sent, and likewise: */
        size_t large_bytes;
        agx_buf last; /* whole frames, behind everything */
        uint32_t stream;
        bool went_before;   /* the last one was not large */
        agx_bulk_frame *at; /* part of which is being sent, or NULL */
        size_t n;           /* bytes of its payload in that */
} agx_bulk;

/* NULL: no memory. Fill in `head` and `body`. */
agx_bulk_frame *agx_bulk_frame_new(agx_view id);
void agx_bulk_frame_free(agx_bulk_frame *f);
size_t agx_bulk_frame_size(const agx_bulk_frame *f);
/* Whether frames with a body of so many bytes go in pieces. */
bool agx_bulk_in_pieces(size_t body);

void agx_bulk_init(agx_bulk *b);
void agx_bulk_deinit(agx_bulk *b);
/* Takes the frame over. */
void agx_bulk_push(agx_bulk *b, agx_bulk_frame *f);
/* Bytes that have not been sent. */
static inline size_t agx_bulk_bytes(const agx_bulk *b)
{
        return b->middle_bytes + b->large_bytes;
}
static inline bool agx_bulk_empty(const agx_bulk *b)
{
        return agx_list_empty(&b->middle) && agx_list_empty(&b->large);
}

/* Appends to `out` what comes next, but for the bytes in `*body`, which are to follow right behind and lie still until
 * agx_bulk_sent(). False: there is nothing, or no memory (`*r` < 0, after which the stream is broken). */
bool agx_bulk_next(agx_bulk *b, agx_buf *out, agx_view *body, int *r);
/* It has left. What was put behind a frame that is over goes to `out`. 0 or -ENOMEM. */
int agx_bulk_sent(agx_bulk *b, agx_buf *out);

/* Where to put frames about a call, or the last ones of all; NULL: nothing is here that they could overtake. */
agx_buf *agx_bulk_behind(agx_bulk *b, agx_view id);
agx_buf *agx_bulk_last(agx_bulk *b);

#endif
