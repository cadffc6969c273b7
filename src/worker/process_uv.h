#ifndef AGX_WORKER_PROCESS_UV_H
#define AGX_WORKER_PROCESS_UV_H
/*
 * One process of a worker, as the loop has it: a brain (proc.h), and around it the handles that do what it wishes. For
 * procs_uv.c, which holds all processes, and for the four files that are one process:
 *
 *     process_start_uv.c     a frame becomes descriptors, a keeper and a process
 *     process_pipes_uv.c     its output to the worker, the worker's input to it
 *     process_keeper_uv.c    words from and to the keeper that stands between (keeper_uv.h), and the keeper's death
 *     process_uv.c           the object: what the worker asks for, what the brain wishes, its end
 *
 * Whatever happens is told to the brain first; its wishes then go through agx_process_carry_out(), and only there does a
 * process come to its end. So after any verb that returns nothing `over` may be true: then nothing more is to be done with
 * it. A process reads the fields of its list and takes itself out of it; it calls no verb of procs_uv.h.
 */
#include "worker/keeper_uv.h"
#include "worker/proc.h"
#include "worker/procs_uv.h"

typedef struct agx_process agx_process;

typedef struct agx_process_pipe {
        agx_stream stream;
        agx_process *process;
        bool inited;
} agx_process_pipe;

/* Its memory goes when the last of its handles is closed. */
struct agx_process {
        agx_list node; /* in .procs */
        agx_procs *procs;
        uint64_t worker; /* 0: it is dead, nobody is to be told */
        uint64_t number; /* the worker's name for it */
        agx_buf call_id; /* this and the next two end with a NUL */
        agx_buf path, directory;
        agx_proc brain;
        agx_child keeper;
        agx_stream control;      /* to the keeper */
        agx_buf words;           /* the beginning of one that has not come whole */
        agx_process_pipe out[2]; /* what it writes to 1 and 2 */
        agx_process_pipe in;     /* not inited: it has none */
        size_t in_flight;        /* bytes of input that no credit was given for */
        bool in_ends;
        bool started; /* its program runs, or ran */
        bool over;    /* the last frame was sent; only handles that close are left */
        pid_t pid;    /* the program's; 0: not known, or dead */
        agx_deadline deadline;
        uint64_t retry_at; /* the worker's queue was too long */
        unsigned open;     /* handles not closed yet */
        char group[64];    /* the name of its cgroup */
};

/* ---- for its list ---- */

/* Starts what the frame asks for, or tells the worker why not. */
void agx_process_start(agx_procs *procs, agx_worker *w, const agx_frame *frame);
/* Tells the worker that its process `number` is not started, for an errno and in words. */
void agx_process_refuse(agx_worker *w, uint64_t number, int error, const char *text);
/* Bytes for its standard input; none: that ends. */
void agx_process_input(agx_process *p, agx_view data);
/* The worker takes so many more bytes of output. */
void agx_process_credit(agx_process *p, uint64_t n);
/* To the program's group. */
void agx_process_signal(agx_process *p, int signal);
/* It has to end; the worker is told when it has. */
void agx_process_end(agx_process *p, agx_proc_cause cause);
/* Its worker is dead: it ends, and nobody is told. */
void agx_process_orphan(agx_process *p);
/* Lets go of everything. A keeper that still runs goes on without us if `leave`, and is killed if not. */
void agx_process_dispose(agx_process *p, bool leave);

/* ---- within it: process_uv.c ---- */

/* The object in its list, with its handles, of which none watches anything yet. NULL: no memory. */
agx_process *agx_process_new(agx_procs *procs, uint64_t worker, const agx_frame *frame);
/* It was not started after all: tells so, and is over. */
void agx_process_fail(agx_process *p, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Wishes of the brain (AGX_PROC_*). */
void agx_process_carry_out(agx_process *p, unsigned wishes);
/* The worker, or NULL if it is dead. */
agx_worker *agx_process_worker(const agx_process *p);
/* To the worker, as long as there is something to tell it. */
void agx_process_send(agx_process *p, const agx_frame *frame);
/* From the `closed` of each handle. */
void agx_process_part_closed(agx_process *p);

static inline uint64_t agx_process_now(const agx_process *p)
{
        return agx_loop_now(p->procs->loop);
}

/* What stands in .path, .directory and .call_id. */
static inline const char *agx_process_text(const agx_buf *b)
{
        return (const char *)b->data + b->head;
}

/* Words for an errno. */
const char *agx_process_why(int error);

/* ---- within it: process_pipes_uv.c ---- */

void agx_process_init_pipes(agx_process *p, bool with_in);
/* Reads or pauses, as the brain wants it. */
void agx_process_direct(agx_process *p);
void agx_process_close_in(agx_process *p);
void agx_process_close_pipes(agx_process *p);

/* ---- within it: process_keeper_uv.c ---- */

void agx_process_init_control(agx_process *p);
/* One word, which a keeper that is gone does not hear. */
void agx_process_say(agx_process *p, agx_keeper_kind kind, int value);
/* Should the tree have stopped its keeper: kills who is known, and lets the keeper go on. */
void agx_process_rouse(agx_process *p);
/* The keeper does not answer: kills it, and who is known of the rest. */
void agx_process_force(agx_process *p);
/* For agx_child_spawn(). */
void agx_process_keeper_exited(agx_child *keeper);

#endif
