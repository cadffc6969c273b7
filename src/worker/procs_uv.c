/*
 * A list, and who may be added to it. A frame finds its process by worker and number, as long as that worker lives; a call
 * finds those that were started for it by its id. What a process does with it is its own (process_uv.h): here nothing is
 * read, written or killed.
 *
 * A process that has been told as ended is not in the list any more, though its handles may still be closing; walks over it
 * therefore allow for the one they are at to go.
 */
#include "worker/procs_uv.h"
#include "io/group.h"
#include "proto/limits.h"
#include "worker/process_uv.h"

#include <signal.h>
#include <stdio.h>

static agx_process *process_of(agx_list *node)
{
        return agx_container_of(node, agx_process, node);
}

/* ---- lifecycle ---- */

void agx_procs_init(agx_procs *p, agx_loop *l, agx_supervisor_uv *workers, agx_view instance)
{
        *p = (agx_procs){.loop = l,
                         .workers = workers,
                         .core_limit = workers->config.core_limit,
                         .nofile_limit = workers->config.nofile_limit};
        agx_list_init(&p->running);
        snprintf(p->name, sizeof(p->name), "agentix-%.*s-", (int)agx_view_first(instance, 12).n, instance.p);
}

void agx_procs_close(agx_procs *procs)
{
        procs->closed = true;
        agx_list_foreach_safe(node, &procs->running) agx_process_dispose(process_of(node), true);
}

void agx_procs_deinit(agx_procs *procs)
{
        if (procs->started)
                agx_group_sweep(procs->name);
        free(procs->bytes);
        procs->bytes = NULL;
}

/* ---- frames ---- */

bool agx_procs_takes(const agx_frame *frame)
{
        return frame->kind >= AGX_FRAME_PROC_START && frame->kind <= AGX_FRAME_PROC_END;
}

static agx_process *find(const agx_procs *procs, uint64_t worker, uint64_t number)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                agx_process *p = process_of(node);

                if (p->worker == worker && p->number == number)
                        return p;
        }
        return NULL;
}

/* Each of the strings is ended by a NUL. */
static bool is_well_formed(agx_view strings)
{
        return !strings.n || !strings.p[strings.n - 1];
}

static void start(agx_procs *procs, agx_worker *w, const agx_frame *frame, bool runs)
{
        if (!is_well_formed(frame->argv) || !is_well_formed(frame->env) || !frame->argv.n)
                agx_process_refuse(w, frame->proc, EINVAL,
                                   "cannot start a process: its arguments or variables are malformed");
        else if (frame->argv.n + frame->env.n > AGX_PROC_ARGS_BYTES)
                agx_process_refuse(w, frame->proc, E2BIG,
                                   "cannot start a process: its arguments and variables are too long");
        else if (frame->call_id.p && !runs)
                agx_process_refuse(w, frame->proc, ECANCELED,
                                   "cannot start a process: its call was cancelled, or has ended");
        else if (procs->closed)
                agx_process_refuse(w, frame->proc, ECANCELED, "cannot start a process: the sandbox ends");
        else if (procs->n >= AGX_PROC_MAX)
                agx_process_refuse(w, frame->proc, EAGAIN, "cannot start a process: too many run already");
        else
                agx_process_start(procs, w, frame);
}

void agx_procs_frame(agx_procs *procs, uint64_t worker, const agx_frame *frame, bool runs)
{
        agx_process *p = find(procs, worker, frame->proc);
        agx_worker *w = agx_supervisor_uv_find(procs->workers, worker);

        if (frame->kind == AGX_FRAME_PROC_START) {
                if (w && !p)
                        start(procs, w, frame, runs);
                return;
        }
        if (!p)
                return;
        if (frame->kind == AGX_FRAME_PROC_IN)
                agx_process_input(p, frame->data);
        else if (frame->kind == AGX_FRAME_PROC_CREDIT)
                agx_process_credit(p, frame->n);
        else if (frame->kind == AGX_FRAME_PROC_SIGNAL && frame->n && frame->n < NSIG)
                agx_process_signal(p, (int)frame->n);
        else if (frame->kind == AGX_FRAME_PROC_END)
                agx_process_end(p, AGX_PROC_ASKED);
}

/* ---- ends ---- */

void agx_procs_call_over(agx_procs *procs, agx_view call_id, bool cancelled)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                agx_process *p = process_of(node);
                agx_view own = agx_buf_view(&p->call_id);

                if (own.n && agx_view_eq(agx_view_first(own, own.n - 1), call_id))
                        agx_process_end(p, cancelled ? AGX_PROC_CANCELLED : AGX_PROC_CALL_ENDED);
        }
}

void agx_procs_worker_died(agx_procs *procs, uint64_t worker)
{
        agx_list_foreach_safe(node, &procs->running)
        {
                if (process_of(node)->worker == worker)
                        agx_process_orphan(process_of(node));
        }
}

void agx_procs_end(agx_procs *procs)
{
        procs->closed = true;
        agx_list_foreach_safe(node, &procs->running) agx_process_end(process_of(node), AGX_PROC_ASKED);
}
