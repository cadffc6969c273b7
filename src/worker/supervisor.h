#ifndef AGX_WORKER_SUPERVISOR_H
#define AGX_WORKER_SUPERVISOR_H
/*
 * When a worker lives: a brain that hears what happened and says what to do next. It never touches a process.
 *
 *                      spawned          ready
 *     DOWN -> (spawn) ---------> BOOTING -----> READY -------> (dies) -> (spawn) at once, if it had a life
 *                                   |             | stop
 *                                   | dies        v
 *                                   v          STOPPING: shutdown, SIGTERM, SIGKILL -> STOPPED
 *                                BACKOFF -> (spawn)
 *                                   | too many, a boot_error, or too slow
 *                                   v
 *                                BROKEN: waiting calls fail; the next call after a pause tries again
 *
 * A worker that is READY may also be retired: then it is no business of this brain any more (retiree.h), and another one
 * takes its place at once.
 *
 * Every verb that hears something returns wishes, to be carried out at once and in this order. When
 * agx_supervisor_deadline() has passed, call agx_supervisor_tick(). Times are monotonic milliseconds.
 */
#include "proto/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum agx_supervisor_state {
        AGX_SUPERVISOR_DOWN,
        AGX_SUPERVISOR_BOOTING,
        AGX_SUPERVISOR_READY,
        AGX_SUPERVISOR_DYING, /* to be killed, or killed: waits for its death */
        AGX_SUPERVISOR_BACKOFF,
        AGX_SUPERVISOR_BROKEN,
        AGX_SUPERVISOR_STOPPING,
        AGX_SUPERVISOR_STOPPED
} agx_supervisor_state;

/* Wishes, as bits. */
enum {
        AGX_SUPERVISOR_FAIL = 1 << 0,      /* no worker is to be had: end the waiting calls with a WorkerBootError */
        AGX_SUPERVISOR_SPAWN = 1 << 1,     /* start a worker, then _spawned(), or _died() if it cannot be started */
        AGX_SUPERVISOR_SHUTDOWN = 1 << 2,  /* send it a `shutdown` frame */
        AGX_SUPERVISOR_TERMINATE = 1 << 3, /* SIGTERM */
        AGX_SUPERVISOR_KILL = 1 << 4,      /* SIGKILL to its group; _died() will follow */
        AGX_SUPERVISOR_DONE = 1 << 5       /* stopped: nothing runs, nothing will */
};

typedef struct agx_supervisor {
        agx_supervisor_state state;
        bool at_boot;                            /* the worker that is dying never became ready */
        bool hopeless;                           /* and it said so, or was too slow: trying again at once is no use */
        uint64_t since;                          /* spawned */
        uint64_t deadline;                       /* UINT64_MAX: none */
        uint64_t retry_at;                       /* BROKEN: when a call may try again */
        unsigned in_row;                         /* deaths at boot, one after the other */
        unsigned step;                           /* STOPPING */
        uint64_t deaths[AGX_WORKER_BOOT_DEATHS]; /* when the last ones were, a ring */
        size_t n_deaths;
} agx_supervisor;

void agx_supervisor_init(agx_supervisor *s);
static inline uint64_t agx_supervisor_deadline(const agx_supervisor *s)
{
        return s->deadline;
}

/* The first worker, ahead of any call. */
unsigned agx_supervisor_start(agx_supervisor *s);
void agx_supervisor_spawned(agx_supervisor *s, uint64_t now);
void agx_supervisor_ready(agx_supervisor *s);
/* It sent boot_error. */
unsigned agx_supervisor_boot_error(agx_supervisor *s);
/* It broke the protocol. */
unsigned agx_supervisor_misbehaved(agx_supervisor *s);
/* It takes no more calls; nothing that happens to it later is told here. No wish: it was not ready, nothing was done. */
unsigned agx_supervisor_retire(agx_supervisor *s);
/* It is dead, or could not be started. `worked`: it had been given a call. */
unsigned agx_supervisor_died(agx_supervisor *s, uint64_t now, bool worked);
/* A call came that no worker can take just now. */
unsigned agx_supervisor_wanted(agx_supervisor *s, uint64_t now);
unsigned agx_supervisor_stop(agx_supervisor *s, uint64_t now);
unsigned agx_supervisor_tick(agx_supervisor *s, uint64_t now);

#endif
