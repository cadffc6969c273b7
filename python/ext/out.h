/* What a worker sends: whole frames from many threads, in one stream.
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
        pthread_cond_t done;
        bool sending; /* somebody waits until the socket takes what it has; it looks at `waiting` again before it ends */
        unsigned rounds; /* that it has done so since it began to send */
        unsigned queued; /* threads that wait for their turn to send */
        agx_buf waiting; /* whole frames, after a rest of one; goes out before anything else */
} agx_out;

/* `max`: bytes that may wait. */
void agx_out_init(agx_out *o, size_t max);
void agx_out_deinit(agx_out *o);

/* Sends a frame, in up to three pieces, after what waits. May wait for long. 0 or -errno, after which the stream is broken. */
int agx_out_send(agx_out *o, int fd, agx_view head, agx_view value, agx_view tail);
/* For the thread that reads: lets a frame wait until it flushes, which it must do next. False: there is no room. */
bool agx_out_put(agx_out *o, agx_view frame);
/* For the thread that reads: sends what goes out at once. `rest`: something is left, and nobody but the caller sends it.
 * 0 or -errno. */
int agx_out_flush(agx_out *o, int fd, bool *rest);

#endif
