#ifndef AGX_IO_LOOP_H
#define AGX_IO_LOOP_H
/*
 * One libuv loop with the two things every shell on it shares: a read buffer, and the list of what has to be flushed
 * before the loop sleeps again. What is written during a turn is gathered per destination and goes out in one write at
 * the end of the turn.
 *
 * The read buffer belongs to whoever is in a read callback, until that callback returns.
 */
#include "base/err.h"
#include "base/list.h"
#include "base/view.h"

#include <uv.h>

enum { AGX_LOOP_READ_BYTES = 256 * 1024 };

/* Something with bytes to write at the end of the turn. `node` is unlinked before `flush` is called. */
typedef struct agx_flush {
        agx_list node;
        void (*flush)(struct agx_flush *self);
} agx_flush;

typedef struct agx_loop {
        uv_loop_t uv;
        uv_prepare_t before_sleep; /* after timers, before the loop sleeps */
        uv_check_t after_poll;     /* after descriptors were served */
        agx_list dirty;
        char *read_buffer;
} agx_loop;

/* 0 or a negative errno; on failure nothing is left behind. */
int agx_loop_init(agx_loop *l);
/* Runs until nothing is active or agx_loop_stop(). */
void agx_loop_run(agx_loop *l);
void agx_loop_stop(agx_loop *l);
/* Closes the loop's own handles, runs it until every handle is closed, frees it. Handles of others must be closing. */
void agx_loop_deinit(agx_loop *l);

/* Asks for `f->flush` at the end of this turn; asking twice is harmless. Initialise with agx_flush_init(). */
void agx_loop_flush_later(agx_loop *l, agx_flush *f);
void agx_flush_init(agx_flush *f, void (*flush)(agx_flush *self));
/* Takes back a request; harmless when there is none. */
void agx_flush_cancel(agx_flush *f);
/* Flushes everything now. */
void agx_loop_flush(agx_loop *l);

/* Monotonic milliseconds, as of the start of this turn. */
static inline uint64_t agx_loop_now(agx_loop *l)
{
        return uv_now(&l->uv);
}

#endif
