#ifndef AGX_WORKER_PROC_H
#define AGX_WORKER_PROC_H
/*
 * One process that a worker asked for: a brain that says how much of its output may be read, what is passed on, when
 * it has to end, and when that is told.
 *
 *     RUNNING ---- it ends by itself ----> LINGERING: output that is there or comes within a moment is passed on
 *        |                                     |                                        |
 *        | timeout, agx_proc_end()             | both streams are read                  v
 *        v                                     v                                      ENDED
 *     ENDING: everybody is killed ---- the keeper is gone ----> DRAINING: what is in the pipes is passed on
 *
 * Verbs return wishes, to be carried out at once. When agx_proc_deadline() has passed, call agx_proc_tick(). Times are
 * monotonic milliseconds.
 */
#include "base/view.h"

typedef enum agx_proc_state {
        AGX_PROC_RUNNING,
        AGX_PROC_LINGERING,
        AGX_PROC_ENDING,
        AGX_PROC_DRAINING,
        AGX_PROC_ENDED
} agx_proc_state;

typedef enum agx_proc_cause {
        AGX_PROC_EXITED,     /* by itself, or by a signal of others */
        AGX_PROC_TIMEOUT,    /* it ran for too long */
        AGX_PROC_ASKED,      /* the worker wished it */
        AGX_PROC_CANCELLED,  /* its call was cancelled */
        AGX_PROC_CALL_ENDED, /* its call ended otherwise */
        AGX_PROC_LOST        /* how it ended is not known */
} agx_proc_cause;

/* Wishes, as bits. */
enum {
        AGX_PROC_KILL = 1 << 0,  /* tell the keeper to kill everybody */
        AGX_PROC_FORCE = 1 << 1, /* it does not answer: kill it, and what can be found of the rest */
        AGX_PROC_TELL = 1 << 2,  /* tell how it ended; the brain is done */
        AGX_PROC_READ = 1 << 3,  /* agx_proc_want() may have changed */
        AGX_PROC_ROUSE =
                1 << 4 /* it has not answered yet: should it be stopped, let it go on, and kill who can be found */
};

typedef struct agx_proc {
        agx_proc_state state;
        agx_proc_cause cause;
        uint64_t credit;  /* bytes of output that may be passed on */
        uint64_t limit;   /* and of each stream at all */
        uint64_t seen[2]; /* bytes read of each */
        bool open[2];     /* its end was not read */
        bool exited;      /* .status is known */
        bool alone;       /* its keeper is gone */
        bool forced;      /* the keeper was to be killed */
        int status;       /* as waitpid gives it */
        uint64_t late;    /* bytes read since its end */
        uint64_t timeout_at;
        uint64_t force_at; /* while it is ending */
        uint64_t deadline; /* of its state */
} agx_proc;

/* `timeout_ms` 0: none. */
void agx_proc_init(agx_proc *p, uint64_t now, uint64_t credit, uint64_t limit, uint64_t timeout_ms);
static inline uint64_t agx_proc_deadline(const agx_proc *p)
{
        return p->timeout_at < p->deadline ? p->timeout_at : p->deadline;
}

/* How many bytes of stream `i` (0 or 1) may be read now, at most `most`; 0: it is not to be read. */
size_t agx_proc_want(const agx_proc *p, int i, size_t most);
/* They were read. `*pass`: how many of them, from the first, are passed on. */
unsigned agx_proc_read(agx_proc *p, int i, size_t n, size_t *pass);
/* The stream is at its end; told before the keeper's death if it is known. */
unsigned agx_proc_eof(agx_proc *p, int i);
unsigned agx_proc_credit(agx_proc *p, uint64_t now, uint64_t n);
/* There is nothing in stream `i` just now. */
unsigned agx_proc_dry(agx_proc *p, int i);
/* The program itself has ended. */
unsigned agx_proc_exited(agx_proc *p, uint64_t now, int status);
/* The keeper is gone, and with it everybody, or nobody knows. */
unsigned agx_proc_alone(agx_proc *p);
/* It has to end. */
unsigned agx_proc_end(agx_proc *p, uint64_t now, agx_proc_cause cause);
unsigned agx_proc_tick(agx_proc *p, uint64_t now);
/* Its word for the wire. */
agx_view agx_proc_cause_text(agx_proc_cause cause);

#endif
