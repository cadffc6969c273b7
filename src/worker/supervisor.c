/*
 * Two questions decide everything after a death: had this worker a life (it became ready, and either was given a call
 * or lasted AGX_WORKER_HEALTHY_MS)? Then the next one comes at once. And is it of any use to go on? Five deaths without
 * a life inside ten seconds say no, and so does a boot_error or a boot that takes for ever: then the calls that wait are
 * told, and a later call may start over.
 */
#include "worker/supervisor.h"

void agx_supervisor_init(agx_supervisor *s)
{
        *s = (agx_supervisor){.state = AGX_SUPERVISOR_DOWN, .deadline = UINT64_MAX};
}

unsigned agx_supervisor_start(agx_supervisor *s)
{
        return s->state == AGX_SUPERVISOR_DOWN ? AGX_SUPERVISOR_SPAWN : 0;
}

void agx_supervisor_spawned(agx_supervisor *s, uint64_t now)
{
        s->state = AGX_SUPERVISOR_BOOTING;
        s->at_boot = true;
        s->hopeless = false;
        s->since = now;
        s->deadline = now + AGX_WORKER_BOOT_MS;
}

void agx_supervisor_ready(agx_supervisor *s)
{
        if (s->state != AGX_SUPERVISOR_BOOTING)
                return;
        s->state = AGX_SUPERVISOR_READY;
        s->at_boot = false;
        s->deadline = UINT64_MAX;
}

static unsigned kill_it(agx_supervisor *s)
{
        s->state = AGX_SUPERVISOR_DYING;
        s->deadline = UINT64_MAX;
        return AGX_SUPERVISOR_KILL;
}

unsigned agx_supervisor_boot_error(agx_supervisor *s)
{
        if (s->state != AGX_SUPERVISOR_BOOTING)
                return 0;
        s->hopeless = true;
        return kill_it(s);
}

unsigned agx_supervisor_misbehaved(agx_supervisor *s)
{
        if (s->state == AGX_SUPERVISOR_STOPPING)
                return AGX_SUPERVISOR_KILL;
        return s->state == AGX_SUPERVISOR_BOOTING || s->state == AGX_SUPERVISOR_READY ? kill_it(s) : 0;
}

unsigned agx_supervisor_retire(agx_supervisor *s)
{
        if (s->state != AGX_SUPERVISOR_READY)
                return 0;
        s->state = AGX_SUPERVISOR_DOWN;
        s->in_row = 0;
        s->n_deaths = 0;
        return AGX_SUPERVISOR_SPAWN;
}

/* ---- after a death ---- */

static bool too_many(agx_supervisor *s, uint64_t now)
{
        uint64_t oldest;

        s->deaths[s->n_deaths++ % AGX_WORKER_BOOT_DEATHS] = now;
        if (s->n_deaths < AGX_WORKER_BOOT_DEATHS)
                return false;
        oldest = s->deaths[s->n_deaths % AGX_WORKER_BOOT_DEATHS];
        return now - oldest <= AGX_WORKER_BOOT_WINDOW_MS;
}

static unsigned give_up(agx_supervisor *s, uint64_t now)
{
        s->state = AGX_SUPERVISOR_BROKEN;
        s->deadline = UINT64_MAX;
        s->retry_at = now + AGX_WORKER_BACKOFF_MAX_MS;
        s->n_deaths = 0;
        return AGX_SUPERVISOR_FAIL;
}

static unsigned back_off(agx_supervisor *s, uint64_t now)
{
        uint64_t pause = AGX_WORKER_BACKOFF_MIN_MS;

        for (unsigned i = 1; i < s->in_row && pause < AGX_WORKER_BACKOFF_MAX_MS; i++)
                pause *= 2;
        s->state = AGX_SUPERVISOR_BACKOFF;
        s->deadline = now + (pause < AGX_WORKER_BACKOFF_MAX_MS ? pause : AGX_WORKER_BACKOFF_MAX_MS);
        return 0;
}

unsigned agx_supervisor_died(agx_supervisor *s, uint64_t now, bool worked)
{
        bool lived = s->state != AGX_SUPERVISOR_DOWN && s->state != AGX_SUPERVISOR_BACKOFF &&
                     s->state != AGX_SUPERVISOR_BROKEN && !s->at_boot &&
                     (worked || now - s->since >= AGX_WORKER_HEALTHY_MS);

        s->deadline = UINT64_MAX;
        if (s->state == AGX_SUPERVISOR_STOPPING || s->state == AGX_SUPERVISOR_STOPPED) {
                s->state = AGX_SUPERVISOR_STOPPED;
                return AGX_SUPERVISOR_DONE;
        }
        if (lived) {
                s->state = AGX_SUPERVISOR_DOWN;
                s->in_row = 0;
                s->n_deaths = 0;
                return AGX_SUPERVISOR_SPAWN;
        }
        s->in_row++;
        if (too_many(s, now) || (s->hopeless && s->at_boot))
                return give_up(s, now);
        return back_off(s, now);
}

unsigned agx_supervisor_wanted(agx_supervisor *s, uint64_t now)
{
        if (s->state == AGX_SUPERVISOR_STOPPED)
                return AGX_SUPERVISOR_FAIL;
        if (s->state != AGX_SUPERVISOR_BROKEN)
                return 0;
        if (now < s->retry_at)
                return AGX_SUPERVISOR_FAIL;
        s->state = AGX_SUPERVISOR_DOWN;
        s->in_row = 0;
        return AGX_SUPERVISOR_SPAWN;
}

/* ---- the end, and time ---- */

unsigned agx_supervisor_stop(agx_supervisor *s, uint64_t now)
{
        bool running = s->state == AGX_SUPERVISOR_BOOTING || s->state == AGX_SUPERVISOR_READY ||
                       s->state == AGX_SUPERVISOR_DYING;

        if (s->state == AGX_SUPERVISOR_STOPPING)
                return 0;
        if (!running) {
                s->state = AGX_SUPERVISOR_STOPPED;
                s->deadline = UINT64_MAX;
                return AGX_SUPERVISOR_DONE;
        }
        s->step = s->state == AGX_SUPERVISOR_READY ? 0 : 1; /* one that boots reads no frames yet */
        s->state = AGX_SUPERVISOR_STOPPING;
        s->deadline = now + AGX_WORKER_SHUTDOWN_MS;
        return s->step ? AGX_SUPERVISOR_TERMINATE : AGX_SUPERVISOR_SHUTDOWN;
}

static unsigned stop_harder(agx_supervisor *s, uint64_t now)
{
        s->deadline = now + AGX_WORKER_SHUTDOWN_MS;
        return s->step++ ? AGX_SUPERVISOR_KILL : AGX_SUPERVISOR_TERMINATE;
}

unsigned agx_supervisor_tick(agx_supervisor *s, uint64_t now)
{
        if (now < s->deadline)
                return 0;
        s->deadline = UINT64_MAX;
        switch (s->state) {
        case AGX_SUPERVISOR_BOOTING:
                s->hopeless = true;
                return kill_it(s);
        case AGX_SUPERVISOR_BACKOFF:
                s->state = AGX_SUPERVISOR_DOWN;
                return AGX_SUPERVISOR_SPAWN;
        case AGX_SUPERVISOR_STOPPING:
                return stop_harder(s, now);
        case AGX_SUPERVISOR_DOWN:
        case AGX_SUPERVISOR_READY:
        case AGX_SUPERVISOR_DYING:
        case AGX_SUPERVISOR_BROKEN:
        case AGX_SUPERVISOR_STOPPED:
                break;
        }
        return 0;
}
