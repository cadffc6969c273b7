#ifndef AGX_WORKER_SUPERVISOR_UV_H
#define AGX_WORKER_SUPERVISOR_UV_H
/*
 * The server's workers: the one that takes calls, whichever process it is just now, a spare that waits to be its
 * successor, and those that were retired and still run what they were given. Carries out what the brains wish, hands
 * frames up and writes the words for a death.
 */
#include "worker/spare.h"
#include "worker/supervisor.h"
#include "worker/worker_uv.h"

typedef struct agx_supervisor_uv_ops {
        void (*ready)(void *user, uint64_t worker);
        void (*drained)(void *user); /* what was on its way to the ready worker has gone out; may be NULL */
        void (*frame)(void *user, uint64_t worker, const agx_frame *frame);
        /* Ends the calls that ran in it. The fault's texts die when it returns. */
        void (*died)(void *user, uint64_t worker, const agx_fault *fault);
        /* Ends the calls that wait for a worker. */
        void (*unavailable)(void *user, const agx_fault *fault);
        void (*stopped)(void *user);
        void (*note)(void *user, agx_view line);
        /* A line of a worker's output; NULL: none is wanted. */
        void (*line)(void *user, const agx_worker *worker, int fd, const agx_output_line *line);
} agx_supervisor_uv_ops;

typedef struct agx_supervisor_uv {
        agx_supervisor brain;
        agx_loop *loop;
        agx_relay *relay;
        agx_worker_config config;
        const agx_supervisor_uv_ops *ops;
        void *user;
        agx_worker *worker; /* that takes calls, or will; NULL: none alive */
        agx_worker *spare;  /* alive, and takes calls if that one dies; or NULL */
        agx_spare spares;   /* when there is one */
        uint64_t wake_by;   /* when the worker, if it was the spare, is ready or of no use */
        agx_list retired;   /* alive, the oldest first */
        agx_list released;  /* dead workers whose output pipes are still open */
        uint64_t spawned;   /* ever */
        agx_deadline deadline;
        agx_buf boot_message; /* why there is no worker */
        agx_buf boot_traceback;
        bool boot_says; /* the worker itself said why */
        bool stopped;   /* and said so */
        bool closed;
} agx_supervisor_uv;

void agx_supervisor_uv_init(agx_supervisor_uv *s, agx_loop *l, agx_relay *relay, const agx_worker_config *config,
                            const agx_supervisor_uv_ops *ops, void *user);
/* Spawns the first worker. */
void agx_supervisor_uv_start(agx_supervisor_uv *s);
/* A call waits for a worker. May call ops->unavailable at once. */
void agx_supervisor_uv_wanted(agx_supervisor_uv *s);
/* The worker that takes calls now, or NULL. Write frames to its .channel and say that it worked. */
agx_worker *agx_supervisor_uv_ready(const agx_supervisor_uv *s);
/* A living worker, retired or not, or NULL: for cancels. */
agx_worker *agx_supervisor_uv_find(const agx_supervisor_uv *s, uint64_t worker);
/* A call in it has outrun its grace: it takes no more calls, another one is started, and it ends once it is empty, if
 * nothing but such calls is left in it, or after a while. `running`: calls in it; `overdue`: those. */
void agx_supervisor_uv_retire(agx_supervisor_uv *s, uint64_t worker, size_t running, size_t overdue);
/* Calls have ended in it. Of interest only if it is retired. */
void agx_supervisor_uv_load(agx_supervisor_uv *s, uint64_t worker, size_t running, size_t overdue);
/* Passes on all that the workers have written so far. */
void agx_supervisor_uv_flush(agx_supervisor_uv *s);
/* Each living worker: the one that takes calls or will, then the retired ones; NULL: no more. Start with NULL. */
agx_worker *agx_supervisor_uv_each(const agx_supervisor_uv *s, const agx_worker *last);
/* Ends the workers, in steps; ops->stopped comes when all are gone, perhaps at once. */
void agx_supervisor_uv_stop(agx_supervisor_uv *s);
/* Kills what is left and closes the handles. No callback comes afterwards. */
void agx_supervisor_uv_close(agx_supervisor_uv *s);

#endif
