/*
 * The parts of a process each have a handle or two: the keeper, its control socket, the input pipe, two output pipes, a
 * deadline. `open` counts them; the memory goes when the last is closed. Wishes of the brain are carried out in one place,
 * in this order: kill, then tell, or else read and wait.
 *
 * That a process is over is known at once (`over`), long before its memory goes, since its last frame may be said from
 * within any of its callbacks; so whoever goes on after a verb asks for it.
 */
#include "worker/process_uv.h"
#include "proto/limits.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

/* ---- to the worker ---- */

static void send_to(agx_worker *w, const agx_frame *frame)
{
        if (!agx_frame_put(agx_stream_out(&w->channel), frame))
                agx_stream_touch(&w->channel);
        else
                agx_worker_kill(w, "there was no memory for a frame to it");
}

agx_worker *agx_process_worker(const agx_process *p)
{
        return p->worker ? agx_supervisor_uv_find(p->procs->workers, p->worker) : NULL;
}

void agx_process_send(agx_process *p, const agx_frame *frame)
{
        agx_worker *w = agx_process_worker(p);

        if (w && !p->over)
                send_to(w, frame);
}

void agx_process_refuse(agx_worker *w, uint64_t number, int error, const char *text)
{
        const char *name = strerrorname_np(error);
        agx_frame frame = {.kind = AGX_FRAME_PROC_ERROR, .proc = number, .code = (uint64_t)error};

        frame.fault.type = agx_view_str(name ? name : "EINVAL");
        frame.fault.message = agx_view_str(text);
        send_to(w, &frame);
}

const char *agx_process_why(int error)
{
        const char *why = strerrordesc_np(error);

        return why ? why : "unknown error";
}

/* ---- lifecycle ---- */

static void on_deadline(agx_deadline *d)
{
        agx_process *p = agx_container_of(d, agx_process, deadline);

        agx_process_carry_out(p, agx_proc_tick(&p->brain, agx_process_now(p)) | AGX_PROC_READ);
}

agx_process *agx_process_new(agx_procs *procs, uint64_t worker, const agx_frame *frame)
{
        agx_process *p;

        if (!procs->bytes)
                procs->bytes = malloc(AGX_PROC_OUT_BYTES);
        p = procs->bytes ? calloc(1, sizeof(*p)) : NULL;
        if (!p)
                return NULL;
        p->procs = procs;
        p->worker = worker;
        p->number = frame->proc;
        p->retry_at = UINT64_MAX;
        snprintf(p->group, sizeof(p->group), "%s%" PRIu64, procs->name, ++procs->started);
        agx_proc_init(&p->brain, agx_process_now(p), frame->n, frame->limit, frame->timeout);
        agx_deadline_init(&p->deadline, procs->loop, on_deadline);
        p->open++;
        agx_process_init_control(p);
        agx_process_init_pipes(p, frame->has_stdin != 0);
        agx_list_push_back(&procs->running, &p->node);
        procs->n++;
        return p;
}

void agx_process_part_closed(agx_process *p)
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
        agx_process_part_closed(agx_container_of(d, agx_process, deadline));
}

static void keeper_closed(agx_child *c)
{
        agx_process_part_closed(agx_container_of(c, agx_process, keeper));
}

void agx_process_dispose(agx_process *p, bool leave)
{
        p->over = true;
        agx_list_unlink(&p->node);
        p->procs->n--;
        if (leave)
                agx_process_say(p, AGX_KEEPER_LEAVE, 0);
        agx_stream_close(&p->control);
        agx_process_close_pipes(p);
        agx_deadline_close(&p->deadline, deadline_closed);
        if (p->keeper.pid <= 0)
                return;
        if (leave)
                agx_child_leave(&p->keeper, keeper_closed);
        else
                agx_child_close(&p->keeper, keeper_closed);
}

void agx_process_fail(agx_process *p, int error, const char *format, ...)
{
        char text[1024];
        agx_worker *w = agx_process_worker(p);
        va_list ap;

        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (w && !p->over)
                agx_process_refuse(w, p->number, error, text);
        agx_process_dispose(p, false);
}

/* ---- what the brain wishes ---- */

/* Its last frame, and its end. */
static void tell(agx_process *p)
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
        agx_process_send(p, &frame);
        agx_process_dispose(p, true);
}

void agx_process_carry_out(agx_process *p, unsigned wishes)
{
        uint64_t at;

        if (p->over)
                return;
        if (wishes & AGX_PROC_KILL)
                agx_process_say(p, AGX_KEEPER_KILL, 0);
        if (wishes & (AGX_PROC_KILL | AGX_PROC_ROUSE))
                agx_process_rouse(p);
        if (p->over)
                return;
        if (wishes & AGX_PROC_FORCE)
                agx_process_force(p);
        if (wishes & AGX_PROC_TELL) {
                tell(p);
                return;
        }
        p->retry_at = UINT64_MAX;
        if (wishes & AGX_PROC_READ)
                agx_process_direct(p);
        if (p->over)
                return;
        at = agx_proc_deadline(&p->brain);
        agx_deadline_set(&p->deadline, p->retry_at < at ? p->retry_at : at);
}

/* ---- what the worker asks for ---- */

void agx_process_credit(agx_process *p, uint64_t n)
{
        agx_process_carry_out(p, agx_proc_credit(&p->brain, agx_process_now(p), n));
}

void agx_process_signal(agx_process *p, int signal)
{
        agx_process_say(p, AGX_KEEPER_SIGNAL, signal);
}

void agx_process_end(agx_process *p, agx_proc_cause cause)
{
        agx_process_carry_out(p, agx_proc_end(&p->brain, agx_process_now(p), cause));
}

void agx_process_orphan(agx_process *p)
{
        p->worker = 0;
        p->brain.limit = 0; /* nobody hears it: what comes is dropped */
        agx_process_carry_out(p, agx_proc_end(&p->brain, agx_process_now(p), AGX_PROC_ASKED) | AGX_PROC_READ);
}
