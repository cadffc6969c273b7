/* What a worker sends: frames from many threads, in one stream. A long one goes in pieces, if the server reads such ones
 * (proto/deframer.h), between which others go; one at a time does.
 *
 * Reading must never wait until the server takes answers, or both wait for ever. So the thread that reads uses put() and
 * flush(), which wait for nothing; what they leave lying goes out when it flushes again, or with the next frame of somebody
 * who may wait. Frames of one thread keep their order. None of these verbs needs the interpreter lock; send() must be
 * called without it. */
#ifndef AGX_EXT_OUT_H
#define AGX_EXT_OUT_H

#include "base/buf.h"

#include <pthread.h>

typedef struct agx_out {
        pthread_mutex_t lock; /* never held while anything is waited for */
        pthread_cond_t done;  /* the next of `queued` may send */
        pthread_cond_t apart; /* of a frame in pieces: the next piece may go, or the next such frame */
        bool sending; /* somebody waits until the socket takes what it has; it looks at `waiting` again before it ends */
        unsigned rounds; /* that it has done so since it began to send */
        unsigned queued; /* threads that wait for their turn to send */
        unsigned served; /* threads that have waited, and have had it */
        bool pieces;     /* the server reads frames in pieces */
        bool in_pieces;  /* somebody sends a frame in pieces, or is about to */
        uint32_t stream; /* its number */
        agx_buf waiting; /* whole frames, after a rest of one; goes out before anything else */
} agx_out;

/* `max`: bytes that may wait. */
void agx_out_init(agx_out *o, size_t max, bool pieces);
void agx_out_deinit(agx_out *o);

/* Sends a frame, which lies in up to three places, after what waits. May wait for long. 0 or -errno, after which the stream is broken. */
int agx_out_send(agx_out *o, int fd, agx_view head, agx_view value, agx_view tail);
/* For the thread that reads: lets a frame wait until it flushes, which it must do next. False: there is no room. */
bool agx_out_put(agx_out *o, agx_view frame);
/* For the thread that reads: sends what goes out at once. `rest`: something is left, and nobody but the caller sends it.
 * 0 or -errno. */
int agx_out_flush(agx_out *o, int fd, bool *rest);

#endif
