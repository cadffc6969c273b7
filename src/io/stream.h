#ifndef AGX_IO_STREAM_H
#define AGX_IO_STREAM_H
/*
 * A connected TCP socket, Unix socket or pipe, read through the loop's shared buffer and written once per loop turn.
 *
 *   - Bytes read are given to ops->data in place; the view dies when it returns.
 *   - Bytes written are appended to `out` and go out at the end of the turn: first tried at once, the rest when the
 *     peer takes it. Those under way lie in `sending`, which does not move; new ones gather in `out` meanwhile.
 *   - Back-pressure is the owner's: agx_stream_queued() says how much waits, ops->drained comes when nothing does any
 *     more, agx_stream_pause() stops reading.
 *
 * After ops->ended no data comes, and what is queued may still go out if the error is 0. A stream is closed with
 * agx_stream_close(); its memory is the owner's again in ops->closed. No callback but that one comes afterwards.
 */
#include "base/buf.h"
#include "io/loop.h"

typedef struct agx_stream agx_stream;

typedef struct agx_stream_ops {
        void (*data)(agx_stream *self, agx_view in);
        /* 0: the peer ended its side; < 0: the connection is lost. Each at most once, and nothing after a loss. */
        void (*ended)(agx_stream *self, int error);
        void (*drained)(agx_stream *self); /* all that was queued is out; may be NULL */
        void (*closed)(agx_stream *self);
        /* May be NULL. Gives another place than the shared buffer to read into, or leaves `*place` alone. */
        void (*place)(agx_stream *self, uv_buf_t *place);
} agx_stream_ops;

struct agx_stream {
        union {
                uv_handle_t handle;
                uv_stream_t stream;
                uv_tcp_t tcp;
                uv_pipe_t pipe;
        } uv;
        agx_loop *loop;
        const agx_stream_ops *ops;
        agx_flush flush;
        agx_buf out;
        agx_buf sending;
        agx_view lent; /* follows `sending` in the same write */
        uv_write_t write;
        uv_shutdown_t shutdown;
        size_t piece; /* bytes that are read in one turn of the loop; 0: as many as there are */
        bool writing;
        bool reading;
        bool sated; /* a piece has been read in this turn */
        bool ended;
        bool lost;
        bool doomed; /* it is lost, and that is still to be told */
        bool shut;   /* the write side is to be ended once everything is out */
};

/* Each prepares an unconnected stream; `out_max` bounds the bytes waiting in it. */
void agx_stream_init_tcp(agx_stream *s, agx_loop *l, size_t out_max, const agx_stream_ops *ops);
void agx_stream_init_pipe(agx_stream *s, agx_loop *l, size_t out_max, const agx_stream_ops *ops);
/* Lays a pipe stream over a descriptor and takes it over, even on failure. 0 or a negative errno. */
int agx_stream_open(agx_stream *s, int fd);

int agx_stream_read(agx_stream *s);
/* From now on at most `bytes` are read in a turn, so that a peer who never stops cannot hold up the others for long. */
static inline void agx_stream_read_pieces(agx_stream *s, size_t bytes)
{
        s->piece = bytes;
}
void agx_stream_pause(agx_stream *s);
/* Reads once, now, whatever is there, up to `max` bytes, into ops->data: for the last words of a process that is gone. */
void agx_stream_drain(agx_stream *s, size_t max);

/* The buffer to append to. Call agx_stream_touch() after appending; it asks for nothing if there is nothing to send. */
static inline agx_buf *agx_stream_out(agx_stream *s)
{
        return &s->out;
}
void agx_stream_touch(agx_stream *s);
/* Sends what is queued and then `body` without copying what the kernel takes at once. 0, AGX_BUF_E_FULL or -ENOMEM
 * (the connection should be closed). `*done`: all of it left. */
int agx_stream_send(agx_stream *s, agx_view body, bool *done);
/* Likewise, but when the kernel does not take all, at most `least` bytes of the rest are copied: `*taken` bytes of `body` are
 * dealt with, and ops->drained says when it is time for more. */
int agx_stream_send_part(agx_stream *s, agx_view body, size_t least, size_t *taken);
/* Sends what is queued and then `body`, from where it lies: it must lie still until ops->drained or ops->closed. Part of it goes at
 * once, but ops->drained comes in a later turn. Only when nothing is being sent (agx_stream_writing). */
void agx_stream_lend(agx_stream *s, agx_view body);
static inline bool agx_stream_writing(const agx_stream *s)
{
        return s->writing;
}
/* Ends the write side after what is queued. */
void agx_stream_shutdown(agx_stream *s);
size_t agx_stream_queued(const agx_stream *s);

void agx_stream_close(agx_stream *s);
static inline bool agx_stream_closing(const agx_stream *s)
{
        return uv_is_closing(&s->uv.handle) != 0;
}

#endif
