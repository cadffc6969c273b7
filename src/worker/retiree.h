#ifndef AGX_WORKER_RETIREE_H
#define AGX_WORKER_RETIREE_H
/*
 * A worker that takes no new calls, since one that was cancelled does not end: a brain that says how long what still
 * runs there may go on, and how the worker ends.
 *
 *     DRAINING --- nothing runs any more, or the server stops ---> LEAVING: shutdown, SIGTERM, SIGKILL
 *         |                                                           |
 *         | nothing runs but calls whose grace is over, or            | dies
 *         | AGX_WORKER_DRAIN_MS have passed, or it must make room     v
 *         +------------------------------------------------------> KILLED
 *
 * Every verb returns wishes, the bits of supervisor.h, to be carried out at once: SHUTDOWN, TERMINATE or KILL. When
 * agx_retiree_deadline() has passed, call agx_retiree_tick(). Times are monotonic milliseconds. Its death ends it,
 * whatever its state.
 */
#include "worker/supervisor.h"

typedef enum agx_retiree_state { AGX_RETIREE_DRAINING, AGX_RETIREE_LEAVING, AGX_RETIREE_KILLED } agx_retiree_state;

typedef struct agx_retiree {
        agx_retiree_state state;
        uint64_t deadline; /* UINT64_MAX: none */
        unsigned step;     /* LEAVING */
} agx_retiree;

void agx_retiree_init(agx_retiree *r, uint64_t now);
static inline uint64_t agx_retiree_deadline(const agx_retiree *r)
{
        return r->deadline;
}

/* How many calls run there, and how many of them have outrun their grace: first after its init, then at each change. */
unsigned agx_retiree_load(agx_retiree *r, uint64_t now, size_t running, size_t overdue);
/* Another one needs its place. */
unsigned agx_retiree_make_room(agx_retiree *r);
unsigned agx_retiree_stop(agx_retiree *r, uint64_t now);
unsigned agx_retiree_tick(agx_retiree *r, uint64_t now);

#endif
