/*
 * The parts of a worker, each with a handle or two: the child, the frame channel, the two output pipes. `open` counts
 * them; the memory goes when the last is closed after the owner's release. Death is told by the child alone; before it
 * is passed on, everything the process still said is read from the channel and the pipes.
 */
#include "worker/worker_uv.h"
#include "base/cleanup.h"
#include "proto/limits.h"
#include "worker/environ.h"
#include "worker/memgroup_uv.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BETWEEN_BYTES = 1024, GRACE_MS = 1000, NOTES_MAX = 20, OOM_SCORE_ADD = 500, CHANNEL_FD = 3 };

static void part_closed(agx_worker *w)
{
        if (--w->open)
                return;
        agx_closep(&w->conduits);
        agx_tail_deinit(&w->tail);
        agx_list_unlink(&w->node);
        free(w);
}

static void note(agx_worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void note(agx_worker *w, const char *format, ...)
{
        char text[256];
        va_list ap;
        int n;

        if (w->released || w->notes++ > NOTES_MAX)
                return;
        va_start(ap, format);
        n = vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        n = n < (int)sizeof(text) ? n : (int)sizeof(text) - 1;
        w->ops->note(w, agx_view_of(text, n < 0 ? 0 : (size_t)n));
}

/* ---- output ---- */

static agx_worker_pipe *pipe_of(agx_stream *s)
{
        return agx_container_of(s, agx_worker_pipe, stream);
}

/* The server's standard error shows how things began; what comes later is in the log. */
static void relay_line(agx_worker *w, agx_view text)
{
        if (w->relayed > AGX_OUTPUT_RELAY)
                return;
        w->relayed += text.n + 1;
        agx_relay_line(w->relay, AGX_VIEW(""), text);
        if (w->relayed > AGX_OUTPUT_RELAY)
                agx_relay_line(w->relay, AGX_VIEW("agentix-runtime: "),
                               AGX_VIEW("further output of this worker is not repeated here"));
}

static void pass_on(agx_worker_pipe *p, const agx_output_line *line)
{
        agx_worker *w = p->worker;

        relay_line(w, line->text);
        if (w->ops->line)
                w->ops->line(w, p == &w->pipes[0] ? 1 : 2, line);
}

static void pipe_data(agx_stream *s, agx_view in)
{
        agx_worker_pipe *p = pipe_of(s);
        agx_output_line line;

        if (!p->worker->gone)
                agx_tail_write(&p->worker->tail, in);
        while (agx_output_next(&p->lines, &in, &line))
                pass_on(p, &line);
        agx_deadline_set(&p->pause, p->lines.partial.len ? agx_loop_now(s->loop) + AGX_OUTPUT_PAUSE_MS : UINT64_MAX);
}

static void pipe_flush(agx_worker_pipe *p)
{
        agx_output_line line;

        if (agx_output_flush(&p->lines, &line))
                pass_on(p, &line);
}

static void pipe_pause(agx_worker_pipe *p)
{
        agx_output_line line;

        if (agx_output_pause(&p->lines, &line))
                pass_on(p, &line);
}

static void pipe_paused(agx_deadline *d)
{
        pipe_pause(agx_container_of(d, agx_worker_pipe, pause));
}

static void pipe_closed(agx_worker_pipe *p)
{
        if (--p->open)
                return;
        agx_output_deinit(&p->lines);
        part_closed(p->worker);
}

static void pipe_stream_closed(agx_stream *s)
{
        pipe_closed(pipe_of(s));
}

static void pipe_pause_closed(agx_deadline *d)
{
        pipe_closed(agx_container_of(d, agx_worker_pipe, pause));
}

static void pipe_close(agx_worker_pipe *p)
{
        if (agx_stream_closing(&p->stream))
                return;
        pipe_flush(p);
        agx_stream_close(&p->stream);
        agx_deadline_close(&p->pause, pipe_pause_closed);
}

static void pipe_ended(agx_stream *s, int error)
{
        (void)error;
        pipe_close(pipe_of(s));
}

static const agx_stream_ops pipe_ops = {.data = pipe_data, .ended = pipe_ended, .closed = pipe_stream_closed};

static void pipe_init(agx_worker *w, agx_worker_pipe *p)
{
        p->worker = w;
        p->open = 2;
        agx_output_init(&p->lines);
        agx_stream_init_pipe(&p->stream, w->loop, 0, &pipe_ops);
        agx_stream_read_pieces(&p->stream, AGX_OUTPUT_READ);
        agx_deadline_init(&p->pause, w->loop, pipe_paused);
        w->open++;
}

/* ---- frames ---- */

static agx_worker *worker_of_channel(agx_stream *s)
{
        return agx_container_of(s, agx_worker, channel);
}

static void hush(agx_worker *w)
{
        w->hushed = true;
        agx_stream_pause(&w->channel);
}

static void take_payload(agx_worker *w, agx_view payload)
{
        agx_frame frame;

        if (agx_frame_parse(payload, &frame)) {
                hush(w);
                agx_worker_kill(w, "it sent a malformed frame");
                return;
        }
        frame.backing = agx_deframer_backing(&w->deframer, payload);
        if (frame.kind == AGX_FRAME_UNKNOWN)
                note(w, "worker %s: a frame of unknown type \"%.*s\" was skipped", w->id,
                     (int)agx_view_first(frame.type_text, 40).n, frame.type_text.p ? frame.type_text.p : "");
        else if (!w->released)
                w->ops->frame(w, &frame);
}

static void channel_data(agx_stream *s, agx_view in)
{
        agx_worker *w = worker_of_channel(s);

        while (!w->hushed) {
                agx_view payload;
                int r = agx_deframer_next(&w->deframer, &in, &payload);

                if (r == AGX_FRAME_E_MORE)
                        return;
                if (!r) {
                        take_payload(w, payload);
                        continue;
                }
                hush(w);
                agx_worker_kill(w, r == AGX_FRAME_E_TOO_LARGE   ? "it sent a frame above the limit"
                                   : r == AGX_FRAME_E_MALFORMED ? "it sent a malformed frame"
                                                                : "there was no memory for its frame");
        }
}

static void channel_place(agx_stream *s, uv_buf_t *place)
{
        agx_worker *w = worker_of_channel(s);
        char *at;
        size_t n;

        if (!w->hushed && agx_deframer_place(&w->deframer, &at, &n))
                *place = uv_buf_init(at, (unsigned)n);
        else if (agx_deframer_between(&w->deframer))
                place->len = BETWEEN_BYTES;
}

static void channel_ended(agx_stream *s, int error)
{
        agx_worker *w = worker_of_channel(s);

        (void)error;
        agx_deadline_set(&w->grace, agx_loop_now(w->loop) + GRACE_MS);
}

/* ---- frames for it ---- */

static void send_failed(agx_worker *w)
{
        agx_worker_kill(w, "there was no memory for its frame"); /* of which part is on its way */
}

/* The next part of a large frame, when nothing else is on its way. It has left when the channel has drained. */
static void pump(agx_flush *f)
{
        agx_worker *w = agx_container_of(f, agx_worker, pump);
        agx_view body;
        int r;

        if (agx_stream_writing(&w->channel) || agx_stream_closing(&w->channel) || w->gone)
                return;
        if (agx_bulk_next(&w->bulk, agx_stream_out(&w->channel), &body, &r))
                agx_stream_lend(&w->channel, body);
        else if (r)
                send_failed(w);
        else
                agx_stream_touch(&w->channel);
}

void agx_worker_touch(agx_worker *w)
{
        if (agx_bulk_empty(&w->bulk))
                agx_stream_touch(&w->channel);
        else if (!agx_stream_closing(&w->channel))
                agx_loop_flush_later(w->loop, &w->pump);
}

agx_buf *agx_worker_out_behind(agx_worker *w, agx_view call_id)
{
        agx_buf *behind = agx_bulk_behind(&w->bulk, call_id);

        return behind ? behind : agx_stream_out(&w->channel);
}

agx_buf *agx_worker_out_last(agx_worker *w)
{
        agx_buf *last = agx_bulk_last(&w->bulk);

        return last ? last : agx_stream_out(&w->channel);
}

static void channel_drained(agx_stream *s)
{
        agx_worker *w = worker_of_channel(s);

        if (w->bulk.at && agx_bulk_sent(&w->bulk, agx_stream_out(s)))
                send_failed(w);
        else if (!agx_bulk_empty(&w->bulk) || agx_stream_out(s)->len)
                agx_worker_touch(w);
        if (!w->released && !w->gone && w->ops->drained)
                w->ops->drained(w);
}

/* What was on its way may be much, and output of what the worker left behind may come for long. */
static void channel_closed(agx_stream *s)
{
        agx_worker *w = worker_of_channel(s);

        agx_bulk_deinit(&w->bulk);
        agx_deframer_deinit(&w->deframer);
        part_closed(w);
}

static const agx_stream_ops channel_ops = {.data = channel_data,
                                           .ended = channel_ended,
                                           .drained = channel_drained,
                                           .closed = channel_closed,
                                           .place = channel_place};

static void grace_over(agx_deadline *d)
{
        agx_worker_kill(agx_container_of(d, agx_worker, grace), "it closed its frame channel");
}

static void grace_closed(agx_deadline *d)
{
        part_closed(agx_container_of(d, agx_worker, grace));
}

/* ---- death ---- */

static bool kills_moved(const agx_worker *w)
{
        uint64_t now;

        return w->counts_kills && agx_memgroup_kills(&now) && now > w->kills_before;
}

static void child_exited(agx_child *c)
{
        agx_worker *w = agx_container_of(c, agx_worker, child);

        agx_stream_drain(&w->channel, AGX_WORKER_DRAIN_BYTES);
        for (size_t i = 0; i < 2; i++)
                agx_stream_drain(&w->pipes[i].stream, AGX_OUTPUT_TAIL * 4);
        w->gone = true;
        w->death.status = c->status;
        w->death.exec_error = agx_child_exec_error(c);
        w->death.oom = kills_moved(w);
        if (!w->released)
                w->ops->died(w);
}

static void child_closed(agx_child *c)
{
        part_closed(agx_container_of(c, agx_worker, child));
}

void agx_worker_kill(agx_worker *w, const char *why)
{
        if (!w->child.dead && why && !w->death.fault)
                w->death.fault = why;
        agx_child_kill(&w->child, SIGKILL, true);
}

void agx_worker_terminate(agx_worker *w)
{
        agx_child_kill(&w->child, SIGTERM, false);
}

/* ---- conduits ---- */

static void tell_of_conduits(agx_worker *w)
{
        agx_frame frame = {.kind = AGX_FRAME_CONDUIT};

        if (w->reads_conduits || agx_frame_put(agx_stream_out(&w->channel), &frame))
                return;
        w->reads_conduits = true;
        agx_stream_touch(&w->channel);
}

int agx_worker_hand(agx_worker *w, agx_view name, int fd)
{
        union {
                struct cmsghdr header;
                char space[CMSG_SPACE(sizeof(int))];
        } control = {.space = {0}};
        struct iovec text = {.iov_base = (void *)(uintptr_t)name.p, .iov_len = name.n};
        struct msghdr message = {.msg_iov = &text,
                                 .msg_iovlen = 1,
                                 .msg_control = control.space,
                                 .msg_controllen = sizeof(control.space)};

        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        if (sendmsg(w->conduits, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
                return -errno;
        tell_of_conduits(w);
        return 0;
}

/* ---- start ---- */

typedef struct fds {
        int channel[2], conduits[2], out[2], err[2];
} fds;

static void close_fds(fds *f)
{
        agx_closep(&f->channel[0]);
        agx_closep(&f->channel[1]);
        agx_closep(&f->conduits[0]);
        agx_closep(&f->conduits[1]);
        agx_closep(&f->out[0]);
        agx_closep(&f->out[1]);
        agx_closep(&f->err[0]);
        agx_closep(&f->err[1]);
}

/* A wish: with more room there are fewer waits for a large value. */
static void widen(int fd)
{
        int n = AGX_SOCKET_BYTES;

        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
}

static int open_fds(fds *f)
{
        *f = (fds){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->channel) ||
            socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, f->conduits) || pipe2(f->out, O_CLOEXEC) ||
            pipe2(f->err, O_CLOEXEC))
                return agx_trace(-errno);
        widen(f->channel[0]);
        widen(f->channel[1]);
        return 0;
}

static int take(int *fd, agx_stream *s)
{
        int mine = *fd;

        *fd = -1;
        return agx_stream_open(s, mine);
}

static int open_streams(agx_worker *w, fds *f)
{
        int r = take(&f->channel[0], &w->channel);

        if (!r)
                r = take(&f->out[0], &w->pipes[0].stream);
        if (!r)
                r = take(&f->err[0], &w->pipes[1].stream);
        w->conduits = f->conduits[0];
        f->conduits[0] = -1;
        if (!r)
                r = agx_stream_read(&w->channel);
        for (size_t i = 0; !r && i < 2; i++)
                r = agx_stream_read(&w->pipes[i].stream);
        return r;
}

static int start_child(agx_worker *w, const agx_worker_config *config, const fds *f, bool spare)
{
        agx_environ_facts facts = {agx_view_str(config->python), agx_view_str(w->id), config->box_id};
        char program[] = "from agentix._worker import main; main(3, 4)", flags[] = "-sP", command[] = "-c";
        char waiting[] = "from agentix._worker import main; main(3, 4, True)";
        char *argv[] = {(char *)(uintptr_t)config->python, flags, command, spare ? waiting : program, NULL};
        agx_environ env;
        int r = agx_environ_make(&env, config->environ, &facts);

        if (r)
                return r;
        r = agx_child_spawn(&w->child, w->loop,
                            &(agx_child_spec){.path = config->python,
                                              .argv = argv,
                                              .envp = env.vars,
                                              .fds = {-1, f->out[1], f->err[1], f->channel[1], f->conduits[1], -1},
                                              .oom_score_add = OOM_SCORE_ADD,
                                              .core_limit = config->core_limit,
                                              .nofile_limit = config->nofile_limit},
                            child_exited);
        agx_environ_deinit(&env);
        if (!r)
                w->open++;
        return r;
}

static void make_id(agx_worker *w)
{
        unsigned char raw[4] = {0};

        if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
                memcpy(raw, &w->number, sizeof(raw));
        snprintf(w->id, sizeof(w->id), "%02x%02x%02x%02x", raw[0], raw[1], raw[2], raw[3]);
}

static void init_parts(agx_worker *w)
{
        make_id(w);
        w->conduits = -1;
        agx_list_init(&w->node);
        agx_deframer_init(&w->deframer, AGX_MAX_MESSAGE);
        agx_tail_init(&w->tail);
        agx_bulk_init(&w->bulk);
        agx_flush_init(&w->pump, pump);
        agx_stream_init_pipe(&w->channel, w->loop, AGX_WORKER_QUEUE_BYTES + AGX_MAX_MESSAGE, &channel_ops);
        agx_deadline_init(&w->grace, w->loop, grace_over);
        w->open += 2;
        for (size_t i = 0; i < 2; i++)
                pipe_init(w, &w->pipes[i]);
        w->counts_kills = agx_memgroup_kills(&w->kills_before);
}

int agx_worker_spawn(agx_worker **worker, agx_loop *l, agx_relay *relay, const agx_worker_config *config,
                     uint64_t number, bool spare, const agx_worker_ops *ops, void *user)
{
        agx_worker *w = calloc(1, sizeof(*w));
        _cleanup_(close_fds) fds f;
        int r = open_fds(&f);

        if (r || !w) {
                free(w);
                return r ? r : agx_trace(-ENOMEM);
        }
        w->ops = ops;
        w->user = user;
        w->loop = l;
        w->relay = relay;
        w->number = number;
        init_parts(w);
        r = start_child(w, config, &f, spare);
        if (!r)
                r = open_streams(w, &f);
        if (r) {
                agx_worker_release(w);
                return r;
        }
        *worker = w;
        return 0;
}

int agx_worker_wake(agx_worker *w)
{
        static const char word[] = "wake";

        if (agx_child_check(&w->child) || w->channel.ended)
                return -ESRCH;
        w->counts_kills = agx_memgroup_kills(&w->kills_before); /* what was killed while it waited is not its affair */
        return send(w->conduits, word, sizeof(word) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}

void agx_worker_release(agx_worker *w)
{
        bool running = w->child.pid > 0;

        w->released = true;
        hush(w);
        for (size_t i = 0; i < 2; i++)
                if (!w->gone || !w->pipes[i].stream.reading)
                        pipe_close(&w->pipes[i]);
        agx_closep(&w->conduits);
        agx_flush_cancel(&w->pump);
        agx_stream_close(&w->channel);
        agx_deadline_close(&w->grace, grace_closed);
        if (running)
                agx_child_close(&w->child, child_closed);
}

void agx_worker_silence(agx_worker *w)
{
        for (size_t i = 0; i < 2; i++)
                pipe_close(&w->pipes[i]);
}

void agx_worker_flush(agx_worker *w)
{
        for (size_t i = 0; i < 2; i++) {
                agx_worker_pipe *p = &w->pipes[i];

                if (agx_stream_closing(&p->stream) || !p->stream.reading)
                        continue;
                agx_stream_drain(&p->stream, AGX_OUTPUT_FLUSH_BYTES);
                if (!agx_stream_closing(&p->stream))
                        pipe_flush(p);
        }
}
