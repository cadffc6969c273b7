/*
 * Writing: everything of a turn lies in `out`. flush() tries it at once; what the kernel does not take becomes
 * `sending` by a swap of the two buffers and is given to libuv, which needs it to stay where it is. Until that write
 * is done, further bytes gather in the other buffer. So nothing is copied twice, and each destination gets one write
 * per turn.
 *
 * Large bytes may be lent: they are the second part of one such write.
 *
 * A failed write is reported as the end of the stream, from the loop and never from inside the verb that wrote:
 * owners need not expect their connection to vanish while they answer it.
 */
#include "io/stream.h"

#include <sys/socket.h>

static void flush(agx_flush *f);
static void on_written(uv_write_t *request, int status);

static void init(agx_stream *s, agx_loop *l, size_t out_max, const agx_stream_ops *ops)
{
        *s = (agx_stream){.loop = l, .ops = ops, .out = AGX_BUF_NULL(out_max), .sending = AGX_BUF_NULL(out_max)};
        agx_flush_init(&s->flush, flush);
}

void agx_stream_init_tcp(agx_stream *s, agx_loop *l, size_t out_max, const agx_stream_ops *ops)
{
        init(s, l, out_max, ops);
        uv_tcp_init(&l->uv, &s->uv.tcp);
}

void agx_stream_init_pipe(agx_stream *s, agx_loop *l, size_t out_max, const agx_stream_ops *ops)
{
        init(s, l, out_max, ops);
        uv_pipe_init(&l->uv, &s->uv.pipe, 0);
}

int agx_stream_open(agx_stream *s, int fd)
{
        int r = uv_pipe_open(&s->uv.pipe, fd);

        if (r)
                close(fd);
        return agx_trace(r);
}

/* ---- reading ---- */

static void on_place(uv_handle_t *handle, size_t suggested, uv_buf_t *place)
{
        agx_stream *s = agx_container_of(handle, agx_stream, uv);

        (void)suggested;
        if (s->sated) { /* libuv asks again when it has filled a place, and takes no place to mean "not now" */
                s->sated = false;
                *place = uv_buf_init(NULL, 0);
                return;
        }
        *place = uv_buf_init(s->loop->read_buffer, AGX_LOOP_READ_BYTES);
        if (s->ops->place)
                s->ops->place(s, place);
        if (s->piece && place->len > s->piece)
                place->len = s->piece;
}

static void end(agx_stream *s, int error)
{
        if (s->lost || (s->ended && !error) || agx_stream_closing(s))
                return;
        s->ended = true;
        s->lost = error != 0;
        agx_stream_pause(s);
        s->ops->ended(s, error);
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *place)
{
        agx_stream *s = agx_container_of(handle, agx_stream, uv);

        if (n > 0) {
                s->sated = s->piece && (size_t)n == place->len;
                s->ops->data(s, agx_view_of(place->base, (size_t)n));
        } else if (n < 0 && n != UV_ENOBUFS) {
                end(s, n == UV_EOF ? 0 : (int)n);
        }
}

int agx_stream_read(agx_stream *s)
{
        int r;

        if (s->reading || s->ended || agx_stream_closing(s))
                return 0;
        r = uv_read_start(&s->uv.stream, on_place, on_read);
        if (r)
                return agx_trace(r);
        s->reading = true;
        return 0;
}

void agx_stream_pause(agx_stream *s)
{
        if (s->reading)
                uv_read_stop(&s->uv.stream);
        s->reading = false;
}

void agx_stream_drain(agx_stream *s, size_t max)
{
        size_t total = 0;
        ssize_t n;
        int fd;

        if (s->ended || uv_fileno(&s->uv.handle, &fd))
                return;
        while (total < max && !s->ended && !agx_stream_closing(s)) {
                n = read(fd, s->loop->read_buffer, AGX_LOOP_READ_BYTES);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return;
                total += (size_t)n;
                s->ops->data(s, agx_view_of(s->loop->read_buffer, (size_t)n));
        }
}

/* ---- writing ---- */

size_t agx_stream_queued(const agx_stream *s)
{
        return s->out.len + (s->writing ? uv_stream_get_write_queue_size(&s->uv.stream) : 0);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
        (void)request;
        (void)status;
}

static void drained(agx_stream *s)
{
        if (s->shut) {
                s->shut = false;
                uv_shutdown(&s->shutdown, &s->uv.stream, on_shutdown);
        }
        if (s->ops->drained)
                s->ops->drained(s);
}

static uv_buf_t part_of(const agx_buf *b)
{
        return (uv_buf_t){.base = (char *)b->data + b->head, .len = b->len};
}

/* Gives the rest of `out`, and what was lent to us, to libuv. */
static int send_later(agx_stream *s)
{
        agx_buf rest = s->out;
        uv_buf_t parts[2];
        unsigned n = 0;
        int r;

        s->out = s->sending;
        s->sending = rest;
        s->writing = true;
        if (s->sending.len)
                parts[n++] = part_of(&s->sending);
        if (s->lent.n)
                parts[n++] = (uv_buf_t){.base = (char *)(uintptr_t)s->lent.p, .len = s->lent.n};
        r = uv_write(&s->write, &s->uv.stream, parts, n, on_written);
        if (r)
                s->writing = false;
        return r;
}

/* Tries `out`, then `body`, in one write; consumes what went. Negative: the connection is lost. */
static int try_now(agx_stream *s, agx_view *body)
{
        uv_buf_t parts[2];
        unsigned n = 0;
        size_t taken;
        int r;

        if (s->out.len)
                parts[n++] = part_of(&s->out);
        if (body->n)
                parts[n++] = (uv_buf_t){.base = (char *)(uintptr_t)body->p, .len = body->n};
        r = n ? uv_try_write(&s->uv.stream, parts, n) : 0;
        if (r == UV_EAGAIN)
                return 0;
        if (r < 0)
                return r;
        taken = (size_t)r < s->out.len ? (size_t)r : s->out.len;
        agx_buf_consume(&s->out, taken);
        *body = agx_view_from(*body, (size_t)r - taken);
        return 0;
}

/* Reports a lost connection through the loop: reading finds the same error, unless it has found the peer's end before. */
static void lose(agx_stream *s)
{
        agx_buf_clear(&s->out);
        s->doomed = s->ended || agx_stream_read(s);
        if (s->doomed)
                agx_loop_flush_later(s->loop, &s->flush);
}

static void on_written(uv_write_t *request, int status)
{
        agx_stream *s = agx_container_of(request, agx_stream, write);

        s->writing = false;
        agx_buf_clear(&s->sending);
        s->lent = AGX_VIEW_NULL;
        if (agx_stream_closing(s))
                return;
        if (status)
                end(s, status);
        else
                flush(&s->flush);
}

static void flush(agx_flush *f)
{
        agx_stream *s = agx_container_of(f, agx_stream, flush);
        agx_view none = AGX_VIEW_NULL;
        int r = 0;

        if (s->writing || agx_stream_closing(s))
                return;
        if (s->doomed) {
                end(s, -EPIPE);
                return;
        }
        if (s->out.len)
                r = try_now(s, &none);
        if (!r && s->out.len)
                r = send_later(s);
        if (r < 0)
                end(s, r);
        else if (!s->writing)
                drained(s);
}

void agx_stream_touch(agx_stream *s)
{
        if ((s->out.len || s->shut) && !agx_stream_closing(s))
                agx_loop_flush_later(s->loop, &s->flush);
}

int agx_stream_send_part(agx_stream *s, agx_view body, size_t least, size_t *taken)
{
        size_t all = body.n;
        agx_view queued;
        int r;

        *taken = all;
        if (agx_stream_closing(s))
                return 0;
        if (!s->writing && try_now(s, &body) < 0) {
                lose(s);
                return 0;
        }
        queued = agx_view_first(body, least);
        *taken = all - body.n + queued.n;
        r = agx_buf_append_view(&s->out, queued);
        agx_stream_touch(s);
        return r;
}

int agx_stream_send(agx_stream *s, agx_view body, bool *done)
{
        int r;

        *done = false;
        if (agx_stream_closing(s))
                return 0;
        if (!s->writing) {
                r = try_now(s, &body);
                if (r < 0) {
                        lose(s);
                        return 0;
                }
        }
        *done = !s->writing && !s->out.len && !body.n;
        r = agx_buf_append_view(&s->out, body);
        agx_stream_touch(s);
        return r;
}

void agx_stream_lend(agx_stream *s, agx_view body)
{
        int r;

        s->lent = body;
        r = send_later(s);
        if (r >= 0)
                return;
        s->lent = AGX_VIEW_NULL;
        lose(s);
}

void agx_stream_shutdown(agx_stream *s)
{
        s->shut = true;
        agx_stream_touch(s);
}

static void on_closed(uv_handle_t *handle)
{
        agx_stream *s = agx_container_of(handle, agx_stream, uv);

        agx_buf_deinit(&s->out);
        agx_buf_deinit(&s->sending);
        s->ops->closed(s);
}

void agx_stream_close(agx_stream *s)
{
        if (agx_stream_closing(s))
                return;
        agx_flush_cancel(&s->flush);
        s->reading = false;
        uv_close(&s->uv.handle, on_closed);
}
