/* Until the first answer there is no deadline; then there is one as long as a spare is wanted and not there. */
#include "worker/spare.h"

void agx_spare_init(agx_spare *s)
{
        *s = (agx_spare){.state = AGX_SPARE_NONE, .deadline = UINT64_MAX, .pause = AGX_WORKER_SPARE_PAUSE_MIN_MS};
}

static void want(agx_spare *s)
{
        s->state = AGX_SPARE_WANTED;
        s->deadline = UINT64_MAX;
        s->answered = s->resting = false;
}

void agx_spare_offered(agx_spare *s)
{
        if (s->state == AGX_SPARE_NONE)
                want(s);
}

void agx_spare_answered(agx_spare *s, uint64_t now)
{
        if (s->state != AGX_SPARE_WANTED || s->resting)
                return;
        if (s->deadline != UINT64_MAX) {
                s->answered = true;
                return;
        }
        s->since = now;
        s->deadline = now + (s->hurried ? AGX_WORKER_SPARE_HURRY_MS : AGX_WORKER_SPARE_IDLE_MS);
}

bool agx_spare_tick(agx_spare *s, uint64_t now)
{
        if (now < s->deadline)
                return false;
        s->deadline = UINT64_MAX;
        if (s->state != AGX_SPARE_WANTED)
                return false;
        if (s->resting || s->hurried || !s->answered || now - s->since >= AGX_WORKER_SPARE_BUSY_MS)
                return true;
        s->answered = false;
        s->deadline = now + AGX_WORKER_SPARE_IDLE_MS;
        return false;
}

void agx_spare_started(agx_spare *s)
{
        s->state = AGX_SPARE_THERE;
        s->deadline = UINT64_MAX;
        s->hurried = false;
}

void agx_spare_died(agx_spare *s, uint64_t now)
{
        if (s->state == AGX_SPARE_NONE)
                return;
        want(s);
        s->resting = true;
        s->deadline = now + s->pause;
        s->pause = s->pause * 2 < AGX_WORKER_SPARE_PAUSE_MAX_MS ? s->pause * 2 : AGX_WORKER_SPARE_PAUSE_MAX_MS;
}

void agx_spare_taken(agx_spare *s)
{
        if (s->state != AGX_SPARE_THERE)
                return;
        want(s);
        s->hurried = true;
        s->pause = AGX_WORKER_SPARE_PAUSE_MIN_MS;
}

void agx_spare_missed(agx_spare *s)
{
        if (s->state == AGX_SPARE_WANTED)
                s->hurried = true;
}

void agx_spare_stop(agx_spare *s)
{
        agx_spare_init(s);
}
