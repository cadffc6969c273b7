#ifndef AGX_WORKER_PROCS_UV_H
#define AGX_WORKER_PROCS_UV_H
/*
 * The processes that workers ask for by frames: their start, input, output and end. Each has a keeper (keeper_uv.h), which
 * is the server's child; so they end when they must, whatever the worker is doing, and their end never holds up the loop.
 */
#include "worker/supervisor_uv.h"

typedef struct agx_procs {
        agx_loop *loop;
        agx_supervisor_uv *workers;
        agx_list running;
        size_t n;
        uint64_t started; /* ever */
        char name[32];    /* what the names of their cgroups begin with */
        uint64_t core_limit, nofile_limit;
        char *bytes; /* output is read into it: the loop's buffer may hold the frame that made us read */
        bool closed;
} agx_procs;

/* `instance`: what tells this server from others. */
void agx_procs_init(agx_procs *p, agx_loop *l, agx_supervisor_uv *workers, agx_view instance);
/* Whether a frame is for us. */
bool agx_procs_takes(const agx_frame *frame);
/* A frame from `worker`. `runs`: the call it names runs there and was not cancelled. */
void agx_procs_frame(agx_procs *p, uint64_t worker, const agx_frame *frame, bool runs);
/* A call was cancelled, or has ended: so do its processes. */
void agx_procs_call_over(agx_procs *p, agx_view call_id, bool cancelled);
void agx_procs_worker_died(agx_procs *p, uint64_t worker);
/* Ends all of them. */
void agx_procs_end(agx_procs *p);
/* Closes the handles; what still runs is left to agx_reaper_kill_descendants(), after which call _deinit(). */
void agx_procs_close(agx_procs *p);
/* After the loop has ended. */
void agx_procs_deinit(agx_procs *p);

#endif
