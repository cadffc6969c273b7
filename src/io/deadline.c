/* See the header: the timer is a lower bound of the deadline, and only moves when the deadline comes nearer. */
#include "io/deadline.h"

static void on_timer(uv_timer_t *handle);

static void arm(agx_deadline *d)
{
        uint64_t now = uv_now(d->timer.loop);

        d->armed = d->at;
        uv_timer_start(&d->timer, on_timer, d->at > now ? d->at - now : 0, 0);
}

static void on_timer(uv_timer_t *handle)
{
        agx_deadline *d = agx_container_of(handle, agx_deadline, timer);

        d->armed = UINT64_MAX;
        if (d->at == UINT64_MAX)
                return;
        if (d->at > uv_now(handle->loop)) {
                arm(d);
                return;
        }
        d->at = UINT64_MAX;
        d->expired(d);
}

void agx_deadline_init(agx_deadline *d, agx_loop *l, void (*expired)(agx_deadline *self))
{
        *d = (agx_deadline){.at = UINT64_MAX, .armed = UINT64_MAX, .expired = expired};
        uv_timer_init(&l->uv, &d->timer);
}

void agx_deadline_set(agx_deadline *d, uint64_t at)
{
        if (uv_is_closing((uv_handle_t *)&d->timer))
                return;
        d->at = at;
        if (at < d->armed)
                arm(d);
}

static void on_closed(uv_handle_t *handle)
{
        agx_deadline *d = agx_container_of(handle, agx_deadline, timer);

        if (d->closed)
                d->closed(d);
}

void agx_deadline_close(agx_deadline *d, void (*closed)(agx_deadline *self))
{
        d->at = UINT64_MAX;
        d->closed = closed;
        uv_close((uv_handle_t *)&d->timer, on_closed);
}
