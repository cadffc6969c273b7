/*
 * The parts of a process, each with a handle or two: the keeper, its control socket, the input pipe, two output pipes, a
 * deadline. `open` counts them; the memory goes when the last is closed. Wishes of the brain are carried out in one place.
 *
 * Output is read only as far as the brain wants it, by the loop or, when something has happened, at once (pump): so
 * a process that has ended is told in the same turn. A worker that does not take its frames holds up reading, not the loop.
 */
#include "worker/procs_uv.h"
#include "base/cleanup.h"
#include "io/group.h"
#include "io/tree.h"
#include "proto/limits.h"
#include "worker/keeper_uv.h"
#include "worker/proc.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OOM_SCORE_ADD = 500, GROUP_NAME = 64, CONTROL_BYTES = 4096 };

typedef struct process process;

typedef struct pipe_end {
        agx_stream stream;
        process *owner;
        bool inited;
} pipe_end;

struct process {
        agx_list node;
        agx_procs *procs;
        uint64_t worker; /* 0: it is dead, nobody is to be told */
        uint64_t number; /* the worker's name for it */
        agx_buf call_id;
        agx_buf path, directory;
        agx_proc brain;
        agx_child keeper;
        agx_stream control;
        agx_buf words; /* the beginning of one that has not come whole */
        pipe_end out[2];
        pipe_end in;
        size_t in_flight; /* bytes of input that no credit was given for */
        bool in_ends;
        bool started; /* its program runs, or ran */
        bool over;    /* the last frame was sent */
        pid_t pid;    /* the program's; 0: not known, or dead */
        agx_deadline deadline;
        uint64_t retry_at; /* the worker's queue was too long */
        unsigned open;
        char group[GROUP_NAME];
};

static void carry_out(process *p, unsigned wishes);

/* ---- to the worker ---- */

static agx_worker *worker_of(const process *p)
{
        return p->worker ? agx_supervisor_uv_find(p->procs->workers, p->worker) : NULL;
}

static void send_to(agx_worker *w, const agx_frame *frame)
{
        if (!agx_frame_put(agx_stream_out(&w->channel), frame))
                agx_stream_touch(&w->channel);
        else
                agx_worker_kill(w, "there was no memory for a frame to it");
}

static void send_frame(process *p, const agx_frame *frame)
{
        agx_worker *w = worker_of(p);

        if (w && !p->over)
                send_to(w, frame);
}

static void give_in_credit(process *p, size_t n)
{
        if (n)
                send_frame(p, &(agx_frame){.kind = AGX_FRAME_PROC_CREDIT, .proc = p->number, .n = n});
}

static void refuse(agx_worker *w, uint64_t number, int error, const char *text)
{
        const char *name = strerrorname_np(error);
        agx_frame frame = {.kind = AGX_FRAME_PROC_ERROR, .proc = number, .code = (uint64_t)error};

        frame.fault.type = agx_view_str(name ? name : "EINVAL");
        frame.fault.message = agx_view_str(text);
        send_to(w, &frame);
}

/* ---- the end of the object ---- */

static void part_closed(process *p)
{
        if (--p->open)
                return;
        agx_buf_deinit(&p->call_id);
        agx_buf_deinit(&p->words);
        agx_buf_deinit(&p->path);
        agx_buf_deinit(&p->directory);
        free(p);
}

static void deadline_closed(agx_deadline *d)
{
        part_closed(agx_container_of(d, process, deadline));
}

static void keeper_closed(agx_child *c)
{
        part_closed(agx_container_of(c, process, keeper));
}

static void control_closed(agx_stream *s)
{
        part_closed(agx_container_of(s, process, control));
}

static process *owner_of(agx_stream *s)
{
        return agx_container_of(s, pipe_end, stream)->owner;
}

static void pipe_closed(agx_stream *s)
{
        part_closed(owner_of(s));
}

static void close_pipe(pipe_end *e)
{
        if (e->inited)
                agx_stream_close(&e->stream);
}

static void say(process *p, agx_keeper_kind kind, int value)
{
        agx_keeper_word word = {.kind = (uint16_t)kind, .value = value};
        int fd;

        if (agx_stream_closing(&p->control) || uv_fileno(&p->control.uv.handle, &fd))
                return;
        if (send(fd, &word, sizeof(word), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EAGAIN)
                agx_child_kill(&p->keeper, SIGTERM, false); /* it does not read: this ends the tree as well */
}

/* Lets go of everything; a keeper that still runs goes on if `leave`. */
static void dispose(process *p, bool leave)
{
        p->over = true;
        agx_list_unlink(&p->node);
        p->procs->n--;
        if (leave)
                say(p, AGX_KEEPER_LEAVE, 0);
        agx_stream_close(&p->control);
        close_pipe(&p->in);
        for (int i = 0; i < 2; i++)
                close_pipe(&p->out[i]);
        agx_deadline_close(&p->deadline, deadline_closed);
        if (p->keeper.pid <= 0)
                return;
        if (leave)
                agx_child_leave(&p->keeper, keeper_closed);
        else
                agx_child_close(&p->keeper, keeper_closed);
}

/* ---- reading ---- */

static void pass_on(process *p, int i, size_t n)
{
        unsigned wishes;
        size_t pass;

        wishes = agx_proc_read(&p->brain, i, n, &pass);
        if (pass)
                send_frame(p, &(agx_frame){.kind = AGX_FRAME_PROC_OUT,
                                           .proc = p->number,
                                           .fd = (uint64_t)i + 1,
                                           .data = agx_view_of(p->procs->bytes, pass)});
        carry_out(p, wishes & ~(unsigned)AGX_PROC_READ);
}

static bool worker_is_behind(process *p)
{
        agx_worker *w = worker_of(p);

        if (!w || agx_stream_queued(&w->channel) <= AGX_PROC_QUEUE_BYTES)
                return false;
        p->retry_at = agx_loop_now(p->procs->loop) + AGX_PROC_QUEUE_MS;
        return true;
}

/* How much of stream `i` may be read now. */
static size_t want(process *p, int i)
{
        size_t n = p->over ? 0 : agx_proc_want(&p->brain, i, AGX_PROC_OUT_BYTES);

        return n && worker_is_behind(p) ? 0 : n;
}

/* Reads what is there, once: no more than a turn of the loop should take. */
static void pump(process *p, int i)
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
                        carry_out(p, agx_proc_dry(&p->brain, i));
                        return;
                }
                if (!got) {
                        agx_stream_close(s);
                        carry_out(p, agx_proc_eof(&p->brain, i));
                        return;
                }
                total += (size_t)got;
                pass_on(p, i, (size_t)got);
        }
}

static void out_place(agx_stream *s, uv_buf_t *place)
{
        process *p = owner_of(s);

        *place = uv_buf_init(p->procs->bytes, (unsigned)want(p, s == &p->out[1].stream));
}

static void out_data(agx_stream *s, agx_view in)
{
        process *p = owner_of(s);

        pass_on(p, s == &p->out[1].stream, in.n);
        carry_out(p, AGX_PROC_READ);
}

static void out_ended(agx_stream *s, int error)
{
        process *p = owner_of(s);
        int i = s == &p->out[1].stream;

        if (error == UV_ENOBUFS) { /* just now nothing was to be read */
                s->ended = s->lost = false;
                carry_out(p, AGX_PROC_READ);
                return;
        }
        agx_stream_close(s);
        carry_out(p, agx_proc_eof(&p->brain, i));
}

static const agx_stream_ops out_ops = {.data = out_data, .ended = out_ended, .closed = pipe_closed, .place = out_place};

/* Reads or pauses, as the brain wants it. */
static void direct(process *p)
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

static void in_data(agx_stream *s, agx_view in)
{
        (void)s;
        (void)in;
}

static void in_drained(agx_stream *s)
{
        process *p = owner_of(s);

        give_in_credit(p, p->in_flight);
        p->in_flight = 0;
        if (p->in_ends)
                agx_stream_close(s);
}

static void in_ended(agx_stream *s, int error)
{
        process *p = owner_of(s);

        (void)error;
        agx_stream_close(s);
        give_in_credit(p, p->in_flight);
        p->in_flight = 0;
}

static const agx_stream_ops in_ops = {.data = in_data, .ended = in_ended, .drained = in_drained, .closed = pipe_closed};

static void take_input(process *p, agx_view data)
{
        agx_stream *s = &p->in.stream;

        if (!p->in.inited || agx_stream_closing(s) || p->in_ends) {
                give_in_credit(p, data.n);
                return;
        }
        if (data.n > AGX_PROC_IN_BYTES - p->in_flight || agx_buf_append_view(agx_stream_out(s), data)) {
                carry_out(p, agx_proc_end(&p->brain, agx_loop_now(p->procs->loop), AGX_PROC_ASKED));
                return;
        }
        p->in_flight += data.n;
        p->in_ends = !data.n;
        if (p->in_ends && !agx_stream_queued(s))
                agx_stream_close(s);
        else
                agx_stream_touch(s);
}

/* ---- what the keeper says ---- */

static void tell_error(process *p, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* It was not started, and is over. */
static void tell_error(process *p, int error, const char *format, ...)
{
        char text[1024];
        agx_worker *w = worker_of(p);
        va_list ap;

        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (w && !p->over)
                refuse(w, p->number, error, text);
        dispose(p, false);
}

static const char *text_of(const agx_buf *b)
{
        return (const char *)b->data + b->head;
}

static void tell_failure(process *p, const agx_keeper_word *word)
{
        const char *why = strerrordesc_np(word->value);

        why = why ? why : "unknown error";
        if (word->stage == AGX_KEEPER_CHDIR)
                tell_error(p, word->value, "cannot run %.400s in the directory %.400s: %s", text_of(&p->path),
                           text_of(&p->directory), why);
        else if (word->stage == AGX_KEEPER_EXEC)
                tell_error(p, word->value, "cannot execute %.800s: %s", text_of(&p->path), why);
        else
                tell_error(p, word->value, "cannot make a process for %.800s: %s", text_of(&p->path), why);
}

static void take_word(process *p, const agx_keeper_word *word)
{
        switch ((agx_keeper_kind)word->kind) {
        case AGX_KEEPER_STARTED:
                p->started = true;
                p->pid = word->value;
                break;
        case AGX_KEEPER_FAILED:
                tell_failure(p, word);
                break;
        case AGX_KEEPER_EXITED:
                p->started = true;
                p->pid = 0;
                close_pipe(&p->in);
                carry_out(p, agx_proc_exited(&p->brain, agx_loop_now(p->procs->loop), word->value));
                break;
        case AGX_KEEPER_LEFT:
        case AGX_KEEPER_KILL:
        case AGX_KEEPER_SIGNAL:
        case AGX_KEEPER_LEAVE:
                break;
        }
}

static void control_data(agx_stream *s, agx_view in)
{
        process *p = agx_container_of(s, process, control);

        if (agx_buf_append_view(&p->words, in)) {
                agx_child_kill(&p->keeper, SIGKILL, false); /* that is no keeper of ours */
                return;
        }
        while (p->words.len >= sizeof(agx_keeper_word) && !p->over) {
                agx_keeper_word word;

                memcpy(&word, agx_buf_view(&p->words).p, sizeof(word));
                agx_buf_consume(&p->words, sizeof(word));
                take_word(p, &word);
        }
}

static void control_ended(agx_stream *s, int error)
{
        (void)s; /* the keeper's death is told by the kernel */
        (void)error;
}

static const agx_stream_ops control_ops = {.data = control_data, .ended = control_ended, .closed = control_closed};

/* Whoever the keeper left behind is not known one by one any more, but for its group and the program itself. */
static void kill_rest(process *p)
{
        agx_group group;

        if (agx_group_find(&group, p->group))
                agx_group_kill(&group);
        if (p->pid > 0)
                kill(-p->pid, SIGKILL);
        p->pid = 0;
}

/*
 * A tree may have stopped its keeper, and do so again. One that is stopped reaps nobody, so what we know of its program, once
 * all it has said is read, is true. The keeper is then let go on, since it alone finds those who got away from the group.
 */
static void rouse(process *p)
{
        if (p->keeper.dead || p->keeper.pid <= 0 || !agx_tree_is_stopped(p->keeper.pid))
                return;
        agx_stream_drain(&p->control, CONTROL_BYTES);
        if (p->over)
                return;
        kill_rest(p);
        agx_child_kill(&p->keeper, SIGCONT, false);
}

static void keeper_exited(agx_child *c)
{
        process *p = agx_container_of(c, process, keeper);
        int error = agx_child_exec_error(c);

        agx_stream_drain(&p->control, CONTROL_BYTES);
        if (p->over)
                return;
        if (error || (!p->started && !WIFSIGNALED(c->status))) { /* one that was killed may have started it */
                tell_error(p, error ? error : EAGAIN, "cannot make a process for %.800s: %s", text_of(&p->path),
                           error ? strerrordesc_np(error) : "its keeper has ended");
                return;
        }
        if (WIFSIGNALED(c->status))
                kill_rest(p);
        carry_out(p, agx_proc_alone(&p->brain));
}

/* ---- wishes ---- */

static void tell(process *p)
{
        const agx_proc *b = &p->brain;
        agx_frame frame = {.kind = AGX_FRAME_PROC_EXIT,
                           .proc = p->number,
                           .out = b->seen[0],
                           .err = b->seen[1],
                           .cause = agx_proc_cause_text(b->cause)};

        if (b->exited && WIFEXITED(b->status))
                frame.code = (uint64_t)WEXITSTATUS(b->status);
        else
                frame.signal = (uint64_t)(b->exited && WIFSIGNALED(b->status) ? WTERMSIG(b->status) : SIGKILL);
        send_frame(p, &frame);
        dispose(p, true);
}

static void carry_out(process *p, unsigned wishes)
{
        uint64_t at;

        if (p->over)
                return;
        if (wishes & AGX_PROC_KILL)
                say(p, AGX_KEEPER_KILL, 0);
        if (wishes & (AGX_PROC_KILL | AGX_PROC_ROUSE))
                rouse(p);
        if (p->over)
                return;
        if (wishes & AGX_PROC_FORCE) {
                kill_rest(p);
                agx_child_kill(&p->keeper, SIGKILL, false);
        }
        if (wishes & AGX_PROC_TELL) {
                tell(p);
                return;
        }
        p->retry_at = UINT64_MAX;
        if (wishes & AGX_PROC_READ)
                direct(p);
        if (p->over)
                return;
        at = agx_proc_deadline(&p->brain);
        agx_deadline_set(&p->deadline, p->retry_at < at ? p->retry_at : at);
}

static void on_deadline(agx_deadline *d)
{
        process *p = agx_container_of(d, process, deadline);

        carry_out(p, agx_proc_tick(&p->brain, agx_loop_now(p->procs->loop)) | AGX_PROC_READ);
}

/* ---- start ---- */

typedef struct fds {
        int control[2], in[2], out[2], err[2];
} fds;

static void close_fds(fds *f)
{
        int *all = f->control;

        for (size_t i = 0; i < sizeof(*f) / sizeof(int); i++)
                agx_closep(&all[i]);
}

static int open_fds(fds *f, bool with_in)
{
        *f = (fds){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->control) || pipe2(f->out, O_CLOEXEC) ||
            pipe2(f->err, O_CLOEXEC) || (with_in && pipe2(f->in, O_CLOEXEC)))
                return -errno;
        return 0;
}

/* "NAME" NUL "NAME" NUL as a NULL-terminated array, after `n` free places; its strings lie in `text`. NULL: no memory. */
static char **strings_of(agx_view text, size_t n)
{
        size_t count = 0;
        char **all;

        for (size_t i = 0; i < text.n; i++)
                count += !text.p[i];
        all = calloc(n + count + 1, sizeof(*all));
        for (size_t i = n, at = 0; all && i < n + count; i++) {
                all[i] = (char *)(uintptr_t)(text.p + at);
                at += strlen(all[i]) + 1;
        }
        return all;
}

enum { KEEPER_ARGS = 7 }; /* before the program's own */

static int spawn(process *p, const agx_frame *frame, const fds *f)
{
        _cleanup_(agx_freep) char **argv = strings_of(frame->argv, KEEPER_ARGS);
        _cleanup_(agx_freep) char **envp = strings_of(frame->env, 0);
        char group[GROUP_NAME + 8], oom[16], kill_ms[24];
        const char *own[KEEPER_ARGS] = {AGX_KEEPER_NAME,       group, oom, kill_ms, "--", text_of(&p->path),
                                        text_of(&p->directory)};

        if (!argv || !envp)
                return -ENOMEM;
        snprintf(group, sizeof(group), "group=%s", p->group);
        snprintf(oom, sizeof(oom), "oom=%d", OOM_SCORE_ADD);
        snprintf(kill_ms, sizeof(kill_ms), "kill_ms=%d", AGX_PROC_KILL_MS);
        memcpy(argv, own, sizeof(own));
        return agx_child_spawn(&p->keeper, p->procs->loop,
                               &(agx_child_spec){.path = "/proc/self/exe",
                                                 .argv = argv,
                                                 .envp = envp,
                                                 .fds = {f->in[0], f->out[1], f->err[1], f->control[1], f->out[0],
                                                         f->err[0]},
                                                 .core_limit = p->procs->core_limit,
                                                 .nofile_limit = p->procs->nofile_limit},
                               keeper_exited);
}

static void init_pipe(process *p, pipe_end *e, size_t out_max, const agx_stream_ops *ops)
{
        e->owner = p;
        e->inited = true;
        agx_stream_init_pipe(&e->stream, p->procs->loop, out_max, ops);
        p->open++;
}

static int take(agx_stream *s, int *fd)
{
        int mine = *fd;

        *fd = -1;
        return agx_stream_open(s, mine);
}

static int open_streams(process *p, fds *f)
{
        int r = take(&p->control, &f->control[0]);

        if (!r)
                r = take(&p->out[0].stream, &f->out[0]);
        if (!r)
                r = take(&p->out[1].stream, &f->err[0]);
        if (!r && p->in.inited)
                r = take(&p->in.stream, &f->in[1]);
        return r ? r : agx_stream_read(&p->control);
}

static int copy_text(agx_buf *b, agx_view text, size_t max)
{
        agx_buf_init(b, max);
        if (memchr(text.p, 0, text.n))
                return -EINVAL;
        if (agx_buf_append_view(b, text) || agx_buf_append(b, "", 1))
                return text.n >= max ? -ENAMETOOLONG : -ENOMEM;
        return 0;
}

static int copy_texts(process *p, const agx_frame *frame)
{
        int r = copy_text(&p->path, frame->path, PATH_MAX);

        if (!r)
                r = copy_text(&p->directory, frame->cwd, PATH_MAX);
        if (!r && frame->call_id.p)
                r = copy_text(&p->call_id, frame->call_id, AGX_MAX_CALL_ID + 1);
        return r;
}

/* The object with its handles, of which none watches anything yet. */
static process *make(agx_procs *procs, uint64_t worker, const agx_frame *frame)
{
        process *p;

        if (!procs->bytes)
                procs->bytes = malloc(AGX_PROC_OUT_BYTES);
        p = procs->bytes ? calloc(1, sizeof(*p)) : NULL;
        if (!p)
                return NULL;
        p->procs = procs;
        p->worker = worker;
        p->number = frame->proc;
        p->retry_at = UINT64_MAX;
        agx_buf_init(&p->words, CONTROL_BYTES);
        snprintf(p->group, sizeof(p->group), "%s%" PRIu64, procs->name, ++procs->started);
        agx_proc_init(&p->brain, agx_loop_now(procs->loop), frame->n, frame->limit, frame->timeout);
        agx_deadline_init(&p->deadline, procs->loop, on_deadline);
        agx_stream_init_pipe(&p->control, procs->loop, 0, &control_ops);
        p->open += 2;
        for (int i = 0; i < 2; i++)
                init_pipe(p, &p->out[i], 0, &out_ops);
        if (frame->has_stdin)
                init_pipe(p, &p->in, AGX_PROC_IN_BYTES, &in_ops);
        agx_list_push_back(&procs->running, &p->node);
        procs->n++;
        return p;
}

static void start(agx_procs *procs, agx_worker *w, const agx_frame *frame)
{
        process *p = make(procs, w->number, frame);
        _cleanup_(close_fds) fds f;
        int r = p ? open_fds(&f, frame->has_stdin != 0) : -ENOMEM;

        if (!p) {
                f = (fds){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
                refuse(w, frame->proc, ENOMEM, "cannot start a process: out of memory");
                return;
        }
        if (!r)
                r = copy_texts(p, frame);
        if (!r)
                r = spawn(p, frame, &f);
        if (!r) {
                p->open++;
                r = open_streams(p, &f);
        }
        if (r)
                tell_error(p, -r, "cannot start %.*s: %s", (int)agx_view_first(frame->path, 800).n, frame->path.p,
                           strerrordesc_np(-r) ? strerrordesc_np(-r) : "unknown error");
        else
                carry_out(p, AGX_PROC_READ);
}

static bool is_well_formed(agx_view strings)
{
        return !strings.n || !strings.p[strings.n - 1];
}

static void on_start(agx_procs *procs, agx_worker *w, const agx_frame *frame, bool runs)
{
        if (!is_well_formed(frame->argv) || !is_well_formed(frame->env) || !frame->argv.n)
                refuse(w, frame->proc, EINVAL, "cannot start a process: its arguments or variables are malformed");
        else if (frame->argv.n + frame->env.n > AGX_PROC_ARGS_BYTES)
                refuse(w, frame->proc, E2BIG, "cannot start a process: its arguments and variables are too long");
        else if (frame->call_id.p && !runs)
                refuse(w, frame->proc, ECANCELED, "cannot start a process: its call was cancelled, or has ended");
        else if (procs->closed)
                refuse(w, frame->proc, ECANCELED, "cannot start a process: the sandbox ends");
        else if (procs->n >= AGX_PROC_MAX)
                refuse(w, frame->proc, EAGAIN, "cannot start a process: too many run already");
        else
                start(procs, w, frame);
}

/* ---- verbs ---- */

void agx_procs_init(agx_procs *p, agx_loop *l, agx_supervisor_uv *workers, agx_view instance)
{
        *p = (agx_procs){.loop = l,
                         .workers = workers,
                         .core_limit = workers->config.core_limit,
                         .nofile_limit = workers->config.nofile_limit};
        agx_list_init(&p->running);
        snprintf(p->name, sizeof(p->name), "agentix-%.*s-", (int)agx_view_first(instance, 12).n, instance.p);
}

bool agx_procs_takes(const agx_frame *frame)
{
        return frame->kind >= AGX_FRAME_PROC_START && frame->kind <= AGX_FRAME_PROC_END;
}

static process *find(const agx_procs *procs, uint64_t worker, uint64_t number)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                process *p = agx_container_of(node, process, node);

                if (p->worker == worker && p->number == number)
                        return p;
        }
        return NULL;
}

void agx_procs_frame(agx_procs *procs, uint64_t worker, const agx_frame *frame, bool runs)
{
        process *p = find(procs, worker, frame->proc);
        agx_worker *w = agx_supervisor_uv_find(procs->workers, worker);
        uint64_t now = agx_loop_now(procs->loop);

        if (frame->kind == AGX_FRAME_PROC_START) {
                if (w && !p)
                        on_start(procs, w, frame, runs);
                return;
        }
        if (!p)
                return;
        if (frame->kind == AGX_FRAME_PROC_IN)
                take_input(p, frame->data);
        else if (frame->kind == AGX_FRAME_PROC_CREDIT)
                carry_out(p, agx_proc_credit(&p->brain, now, frame->n));
        else if (frame->kind == AGX_FRAME_PROC_SIGNAL && frame->n && frame->n < NSIG)
                say(p, AGX_KEEPER_SIGNAL, (int)frame->n);
        else if (frame->kind == AGX_FRAME_PROC_END)
                carry_out(p, agx_proc_end(&p->brain, now, AGX_PROC_ASKED));
}

void agx_procs_call_over(agx_procs *procs, agx_view call_id, bool cancelled)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                process *p = agx_container_of(node, process, node);
                agx_view own = agx_buf_view(&p->call_id);

                if (own.n && agx_view_eq(agx_view_first(own, own.n - 1), call_id))
                        carry_out(p, agx_proc_end(&p->brain, agx_loop_now(procs->loop),
                                                  cancelled ? AGX_PROC_CANCELLED : AGX_PROC_CALL_ENDED));
        }
}

/* `worker` 0: whosever. */
static void end_of(agx_procs *procs, uint64_t worker)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                process *p = agx_container_of(node, process, node);

                if (worker && p->worker != worker)
                        continue;
                p->worker = 0;
                p->brain.limit = 0; /* nobody hears it: what comes is dropped */
                carry_out(p, agx_proc_end(&p->brain, agx_loop_now(procs->loop), AGX_PROC_ASKED) | AGX_PROC_READ);
        }
}

void agx_procs_worker_died(agx_procs *procs, uint64_t worker)
{
        end_of(procs, worker);
}

void agx_procs_end(agx_procs *procs)
{
        procs->closed = true;
        agx_list_foreach_safe(node, &procs->running)
        {
                process *p = agx_container_of(node, process, node);

                carry_out(p, agx_proc_end(&p->brain, agx_loop_now(procs->loop), AGX_PROC_ASKED));
        }
}

void agx_procs_close(agx_procs *procs)
{
        procs->closed = true;
        agx_list_foreach_safe(node, &procs->running)
        {
                dispose(agx_container_of(node, process, node), true);
        }
}

void agx_procs_deinit(agx_procs *procs)
{
        if (procs->started)
                agx_group_sweep(procs->name);
        free(procs->bytes);
        procs->bytes = NULL;
}
