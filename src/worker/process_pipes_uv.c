/*
 * Output is read only as far as the brain wants it, by the loop or, when something has happened, at once (pump): so
 * a process that has ended is told in the same turn. A worker that does not take its frames holds up reading, not the
 * loop: it is asked again a moment later (`retry_at`).
 *
 * Input is queued as far as the worker has credit, which it gets back when all that was queued is out; a process that does
 * not read it holds up nobody else. What comes for an input that has ended is dropped, and its credit given back.
 */
#include "proto/limits.h"
#include "worker/process_uv.h"

#include <unistd.h>

static agx_process *process_of(agx_stream *s)
{
        return agx_container_of(s, agx_process_pipe, stream)->process;
}

static void pipe_closed(agx_stream *s)
{
        agx_process_part_closed(process_of(s));
}

static void close_pipe(agx_process_pipe *e)
{
        if (e->inited)
                agx_stream_close(&e->stream);
}

/* ---- output ---- */

/* Which of the two: 0 or 1. */
static int index_of(agx_process *p, agx_stream *s)
{
        return s == &p->out[1].stream;
}

static void pass_on(agx_process *p, int i, size_t n)
{
        unsigned wishes;
        size_t pass;

        wishes = agx_proc_read(&p->brain, i, n, &pass);
        if (pass)
                agx_process_send(p, &(agx_frame){.kind = AGX_FRAME_PROC_OUT,
                                                 .proc = p->number,
                                                 .fd = (uint64_t)i + 1,
                                                 .data = agx_view_of(p->procs->bytes, pass)});
        agx_process_carry_out(p, wishes & ~(unsigned)AGX_PROC_READ);
}

static void end_out(agx_process *p, int i)
{
        agx_stream_close(&p->out[i].stream);
        agx_process_carry_out(p, agx_proc_eof(&p->brain, i));
}

static bool worker_is_behind(agx_process *p)
{
        agx_worker *w = agx_process_worker(p);

        if (!w || agx_stream_queued(&w->channel) <= AGX_PROC_QUEUE_BYTES)
                return false;
        p->retry_at = agx_process_now(p) + AGX_PROC_QUEUE_MS;
        return true;
}

/* How much of stream `i` may be read now. */
static size_t want(agx_process *p, int i)
{
        size_t n = p->over ? 0 : agx_proc_want(&p->brain, i, AGX_PROC_OUT_BYTES);

        return n && worker_is_behind(p) ? 0 : n;
}

/* Reads what is there, once: no more than a turn of the loop should take. */
static void pump(agx_process *p, int i)
{
        agx_stream *s = &p->out[i].stream;
        size_t total = 0, n;
        int fd;

        while (total < AGX_PROC_LINGER_BYTES && (n = want(p, i)) && !agx_stream_closing(s) &&
               !uv_fileno(&s->uv.handle, &fd)) {
                ssize_t got = read(fd, p->procs->bytes, n);

                if (got < 0 && errno == EINTR)
                        continue;
                if (got < 0) {
                        agx_process_carry_out(p, agx_proc_dry(&p->brain, i));
                        return;
                }
                if (!got) {
                        end_out(p, i);
                        return;
                }
                total += (size_t)got;
                pass_on(p, i, (size_t)got);
        }
}

static void out_place(agx_stream *s, uv_buf_t *place)
{
        agx_process *p = process_of(s);

        *place = uv_buf_init(p->procs->bytes, (unsigned)want(p, index_of(p, s)));
}

static void out_data(agx_stream *s, agx_view in)
{
        agx_process *p = process_of(s);

        pass_on(p, index_of(p, s), in.n);
        agx_process_carry_out(p, AGX_PROC_READ);
}

static void out_ended(agx_stream *s, int error)
{
        agx_process *p = process_of(s);

        if (error == UV_ENOBUFS) { /* just now nothing was to be read */
                s->ended = s->lost = false;
                agx_process_carry_out(p, AGX_PROC_READ);
                return;
        }
        end_out(p, index_of(p, s));
}

static const agx_stream_ops out_ops = {.data = out_data, .ended = out_ended, .closed = pipe_closed, .place = out_place};

void agx_process_direct(agx_process *p)
{
        for (int i = 0; i < 2 && !p->over; i++) {
                agx_stream *s = &p->out[i].stream;

                if (agx_stream_closing(s))
                        continue;
                if (p->brain.state != AGX_PROC_RUNNING)
                        pump(p, i);
                if (p->over || agx_stream_closing(s))
                        continue;
                if (want(p, i))
                        agx_stream_read(s);
                else
                        agx_stream_pause(s);
        }
}

/* ---- input ---- */

static void give_credit(agx_process *p, size_t n)
{
        if (n)
                agx_process_send(p, &(agx_frame){.kind = AGX_FRAME_PROC_CREDIT, .proc = p->number, .n = n});
}

/* What was queued is out, or lost. */
static void give_all_credit(agx_process *p)
{
        give_credit(p, p->in_flight);
        p->in_flight = 0;
}

static void in_data(agx_stream *s, agx_view in)
{
        (void)s;
        (void)in;
}

static void in_drained(agx_stream *s)
{
        agx_process *p = process_of(s);

        give_all_credit(p);
        if (p->in_ends)
                agx_stream_close(s);
}

static void in_ended(agx_stream *s, int error)
{
        (void)error;
        agx_stream_close(s);
        give_all_credit(process_of(s));
}

static const agx_stream_ops in_ops = {.data = in_data, .ended = in_ended, .drained = in_drained, .closed = pipe_closed};

void agx_process_input(agx_process *p, agx_view data)
{
        agx_stream *s = &p->in.stream;

        if (!p->in.inited || agx_stream_closing(s) || p->in_ends) {
                give_credit(p, data.n);
                return;
        }
        if (data.n > AGX_PROC_IN_BYTES - p->in_flight || agx_buf_append_view(agx_stream_out(s), data)) {
                agx_process_end(p, AGX_PROC_ASKED); /* the worker keeps to no credit, or there is no memory */
                return;
        }
        p->in_flight += data.n;
        p->in_ends = !data.n;
        if (p->in_ends && !agx_stream_queued(s))
                agx_stream_close(s);
        else
                agx_stream_touch(s);
}

/* ---- both ---- */

static void init_pipe(agx_process *p, agx_process_pipe *e, size_t out_max, const agx_stream_ops *ops)
{
        e->process = p;
        e->inited = true;
        agx_stream_init_pipe(&e->stream, p->procs->loop, out_max, ops);
        p->open++;
}

void agx_process_init_pipes(agx_process *p, bool with_in)
{
        for (int i = 0; i < 2; i++)
                init_pipe(p, &p->out[i], 0, &out_ops);
        if (with_in)
                init_pipe(p, &p->in, AGX_PROC_IN_BYTES, &in_ops);
}

void agx_process_close_in(agx_process *p)
{
        close_pipe(&p->in);
}

void agx_process_close_pipes(agx_process *p)
{
        close_pipe(&p->in);
        for (int i = 0; i < 2; i++)
                close_pipe(&p->out[i]);
}
