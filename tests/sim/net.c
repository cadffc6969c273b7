/*
 * Bytes wait in a pipe until its timer delivers a piece of them. A callback may close the wire it is called from, so
 * nothing is freed before the turn is over, and each delivery looks again at what the callback left.
 */
#include "net.h"

#include <stdlib.h>

enum { SWALLOW = 65536 };

/* ---- pipes ---- */

static void arm(sim_pipe *p)
{
        if (p->torn || p->paused || p->busy || p->deliver.place || (!p->buf.len && !p->fin))
                return;
        sim_timer_set(p->clock, &p->deliver, p->clock->now + sim_between(p->clock, p->low_ms, p->high_ms));
}

static void give(sim_pipe *p, size_t n)
{
        _cleanup_(agx_buf_deinitp) agx_buf piece = AGX_BUF_NULL(SIZE_MAX / 4);

        p->busy = true;
        if (n == p->buf.len) { /* what is written meanwhile goes behind */
                piece = p->buf;
                p->buf = AGX_BUF_NULL(piece.max);
        } else {
                agx_buf_append(&piece, agx_buf_view(&p->buf).p, n);
                agx_buf_consume(&p->buf, n);
        }
        if (p->budget != UINT64_MAX)
                p->budget -= n;
        p->data(p, agx_buf_view(&piece));
        p->busy = false;
}

static void on_deliver(sim_timer *t)
{
        sim_pipe *p = agx_container_of(t, sim_pipe, deliver);
        size_t n = p->buf.len;

        if (p->torn || p->paused)
                return;
        if (!n) {
                if (p->fin && p->ended) {
                        p->fin = false;
                        p->ended(p);
                }
                return;
        }
        if (p->piece && n > p->piece)
                n = (size_t)sim_between(p->clock, 1, p->piece);
        if (n > p->budget)
                n = (size_t)p->budget;
        give(p, n);
        if (!p->torn && p->room)
                p->room(p);
        arm(p);
}

void sim_pipe_init(sim_pipe *p, sim_clock *c, size_t window, uint64_t low_ms, uint64_t high_ms)
{
        *p = (sim_pipe){.clock = c,
                        .buf = AGX_BUF_NULL(SIZE_MAX / 4),
                        .deliver = {.fire = on_deliver},
                        .window = window,
                        .low_ms = low_ms,
                        .high_ms = high_ms,
                        .budget = UINT64_MAX};
}

void sim_pipe_deinit(sim_pipe *p)
{
        sim_timer_stop(p->clock, &p->deliver);
        agx_buf_deinit(&p->buf);
        p->torn = true;
}

size_t sim_pipe_write(sim_pipe *p, agx_view v)
{
        size_t used = p->torn ? p->swallowed : p->buf.len, window = p->torn ? SWALLOW : p->window;
        size_t n = used < window ? window - used : 0;

        n = n < v.n ? n : v.n;
        if (p->torn)
                p->swallowed += n;
        else if (n)
                agx_buf_append(&p->buf, v.p, n);
        arm(p);
        return n;
}

void sim_pipe_end(sim_pipe *p)
{
        p->fin = true;
        arm(p);
}

void sim_pipe_read(sim_pipe *p, bool on)
{
        p->paused = !on;
        if (on)
                arm(p);
}

void sim_pipe_drain(sim_pipe *p)
{
        sim_timer_stop(p->clock, &p->deliver);
        while (p->buf.len && !p->torn && !p->busy)
                give(p, p->buf.len);
}

/* ---- wires ---- */

static sim_wire *wire_of(sim_pipe *p, bool up)
{
        return up ? agx_container_of(p, sim_wire, up) : agx_container_of(p, sim_wire, down);
}

static void tear_if_due(sim_wire *w, const sim_pipe *p)
{
        if (!p->budget && !w->cut)
                sim_wire_cut(w);
}

static void on_up(sim_pipe *p, agx_view in)
{
        sim_wire *w = wire_of(p, true);

        if (!w->box_closed && !w->box_told)
                w->box->data(w, w->box_user, in);
        tear_if_due(w, p);
}

static void on_down(sim_pipe *p, agx_view in)
{
        sim_wire *w = wire_of(p, false);

        if (!w->host_closed && !w->host_told)
                w->host->data(w, w->host_user, in);
        tear_if_due(w, p);
}

static void on_up_room(sim_pipe *p)
{
        sim_wire *w = wire_of(p, true);

        if (!w->host_closed && !w->host_told)
                w->host->room(w, w->host_user);
}

static void on_down_room(sim_pipe *p)
{
        sim_wire *w = wire_of(p, false);

        if (!w->box_closed && !w->box_told)
                w->box->room(w, w->box_user);
}

static void tell_host(sim_wire *w, const char *why)
{
        if (w->host_closed || w->host_told)
                return;
        w->host_told = true;
        w->host->ended(w, w->host_user, why);
}

static void tell_box(sim_wire *w, const char *why)
{
        if (w->box_closed || w->box_told)
                return;
        w->box_told = why != NULL;
        w->box->ended(w, w->box_user, why);
}

static void on_up_ended(sim_pipe *p)
{
        tell_box(wire_of(p, true), NULL);
}

static void on_down_ended(sim_pipe *p)
{
        tell_host(wire_of(p, false), NULL);
}

static void on_host_notice(sim_timer *t)
{
        tell_host(agx_container_of(t, sim_wire, host_notice), "reset");
}

static void on_box_notice(sim_timer *t)
{
        tell_box(agx_container_of(t, sim_wire, box_notice), "reset");
}

static void wire_pipe(sim_net *n, sim_pipe *p)
{
        sim_pipe_init(p, n->clock, (size_t)sim_between(n->clock, 1 + n->window / 4, 1 + n->window), n->low_ms,
                      n->high_ms);
        p->piece = n->piece && sim_once_in(n->clock, 3) ? n->piece : 0;
        if (sim_once_in(n->clock, n->tear_one_in))
                p->budget = 1 + sim_skewed(n->clock, n->budget);
}

sim_wire *sim_wire_new(sim_net *n, const sim_end *host, void *host_user, const sim_end *box, void *box_user)
{
        sim_wire *w = sim_alloc(sizeof(*w));

        w->net = n;
        w->host = host;
        w->host_user = host_user;
        w->box = box;
        w->box_user = box_user;
        w->host_notice.fire = on_host_notice;
        w->box_notice.fire = on_box_notice;
        wire_pipe(n, &w->up);
        wire_pipe(n, &w->down);
        w->up.data = on_up;
        w->up.room = on_up_room;
        w->up.ended = on_up_ended;
        w->down.data = on_down;
        w->down.room = on_down_room;
        w->down.ended = on_down_ended;
        agx_list_push_back(&n->wires, &w->node);
        ++n->n_wires;
        return w;
}

size_t sim_wire_host_write(sim_wire *w, agx_view v)
{
        if (w->box_closed && !w->host_notice.place && !w->cut) /* a reset answers what nobody reads */
                sim_timer_set(w->net->clock, &w->host_notice, w->net->clock->now + 2 * w->net->high_ms + 1);
        return sim_pipe_write(&w->up, v);
}

size_t sim_wire_box_write(sim_wire *w, agx_view v)
{
        if (w->host_closed && !w->box_notice.place && !w->cut)
                sim_timer_set(w->net->clock, &w->box_notice, w->net->clock->now + 2 * w->net->high_ms + 1);
        return sim_pipe_write(&w->down, v);
}

static void bury(sim_wire *w)
{
        if (!w->host_closed || !w->box_closed)
                return;
        agx_list_unlink(&w->node);
        agx_list_push_back(&w->net->dead, &w->node);
        --w->net->n_wires;
}

/* An end behind what was sent, or a reset before its end has arrived. */
static void leave(sim_wire *w, sim_pipe *p, sim_timer *notice)
{
        sim_clock *c = w->net->clock;

        if (w->cut)
                return;
        if (!sim_once_in(c, w->net->reset_one_in)) {
                sim_pipe_end(p);
                return;
        }
        agx_buf_truncate(&p->buf, (size_t)sim_draw(c, p->buf.len + 1));
        sim_timer_set(c, notice, c->now + w->net->high_ms + 1);
}

void sim_wire_host_close(sim_wire *w)
{
        if (w->host_closed)
                return;
        w->host_closed = true;
        sim_timer_stop(w->net->clock, &w->host_notice);
        if (!w->box_closed)
                leave(w, &w->up, &w->box_notice);
        bury(w);
}

void sim_wire_box_close(sim_wire *w)
{
        if (w->box_closed)
                return;
        w->box_closed = true;
        sim_timer_stop(w->net->clock, &w->box_notice);
        if (!w->host_closed)
                leave(w, &w->down, &w->host_notice);
        bury(w);
}

void sim_wire_box_end(sim_wire *w)
{
        if (!w->cut)
                sim_pipe_end(&w->down);
}

static uint64_t when_noticed(sim_net *n)
{
        switch (sim_draw(n->clock, 4)) {
        case 0:
                return n->clock->now;
        case 1:
                return n->clock->now + sim_draw(n->clock, 20);
        default:
                return n->clock->now + sim_skewed(n->clock, n->notice_ms);
        }
}

void sim_wire_cut(sim_wire *w)
{
        if (w->cut)
                return;
        w->cut = true;
        ++w->net->cuts;
        w->up.torn = w->down.torn = true;
        sim_timer_set(w->net->clock, &w->host_notice, w->host_closed ? UINT64_MAX : when_noticed(w->net));
        sim_timer_set(w->net->clock, &w->box_notice, w->box_closed ? UINT64_MAX : when_noticed(w->net));
}

static void sooner(sim_wire *w, sim_timer *notice, uint64_t at)
{
        if (notice->place && notice->at > at)
                sim_timer_set(w->net->clock, notice, at);
}

void sim_wire_notice(sim_wire *w, uint64_t ms)
{
        sooner(w, &w->host_notice, w->net->clock->now + ms);
        sooner(w, &w->box_notice, w->net->clock->now + ms);
}

sim_wire *sim_net_any(sim_net *n)
{
        size_t skip = n->n_wires ? (size_t)sim_draw(n->clock, n->n_wires) : 0;

        agx_list_foreach_safe(node, &n->wires)
        {
                sim_wire *w = agx_container_of(node, sim_wire, node);

                if (!skip--)
                        return w->cut ? NULL : w;
        }
        return NULL;
}

/* ---- all of them ---- */

void sim_net_init(sim_net *n, sim_clock *c)
{
        *n = (sim_net){.clock = c, .window = 65536, .notice_ms = 1};
        agx_list_init(&n->wires);
        agx_list_init(&n->dead);
}

static void free_wire(sim_wire *w)
{
        agx_list_unlink(&w->node);
        sim_timer_stop(w->net->clock, &w->host_notice);
        sim_timer_stop(w->net->clock, &w->box_notice);
        sim_pipe_deinit(&w->up);
        sim_pipe_deinit(&w->down);
        free(w);
}

void sim_net_sweep(sim_net *n)
{
        agx_list_foreach_safe(node, &n->dead) free_wire(agx_container_of(node, sim_wire, node));
}

void sim_net_deinit(sim_net *n)
{
        sim_net_sweep(n);
        agx_list_foreach_safe(node, &n->wires) free_wire(agx_container_of(node, sim_wire, node));
        n->n_wires = 0;
}
