/* Killing is final; leaving is a matter of being asked ever less politely; draining is waiting for either. */
#include "worker/retiree.h"

void agx_retiree_init(agx_retiree *r, uint64_t now)
{
        *r = (agx_retiree){.state = AGX_RETIREE_DRAINING, .deadline = now + AGX_WORKER_DRAIN_MS};
}

static unsigned kill_it(agx_retiree *r)
{
        if (r->state == AGX_RETIREE_KILLED)
                return 0;
        r->state = AGX_RETIREE_KILLED;
        r->deadline = UINT64_MAX;
        return AGX_SUPERVISOR_KILL;
}

static unsigned leave(agx_retiree *r, uint64_t now)
{
        if (r->state != AGX_RETIREE_DRAINING)
                return 0;
        r->state = AGX_RETIREE_LEAVING;
        r->deadline = now + AGX_WORKER_SHUTDOWN_MS;
        return AGX_SUPERVISOR_SHUTDOWN;
}

unsigned agx_retiree_load(agx_retiree *r, uint64_t now, size_t running, size_t overdue)
{
        if (r->state != AGX_RETIREE_DRAINING)
                return 0;
        if (!running)
                return leave(r, now);
        return overdue == running ? kill_it(r) : 0;
}

unsigned agx_retiree_make_room(agx_retiree *r)
{
        return kill_it(r);
}

unsigned agx_retiree_stop(agx_retiree *r, uint64_t now)
{
        return leave(r, now);
}

unsigned agx_retiree_tick(agx_retiree *r, uint64_t now)
{
        if (now < r->deadline)
                return 0;
        if (r->state == AGX_RETIREE_DRAINING || r->step)
                return kill_it(r);
        r->step = 1;
        r->deadline = now + AGX_WORKER_SHUTDOWN_MS;
        return AGX_SUPERVISOR_TERMINATE;
}
