/* A shell of agx_supervisor and agx_retiree: does what worker/supervisor_uv.c does, with workers of worker.c. */
#include "box.h"

#include <stdlib.h>

struct sim_crew {
        sim_box *box;
        agx_supervisor brain;
        sim_worker *worker;
        agx_list retired;
        uint64_t spawned;
        sim_timer deadline;
        bool stopped, closed;
};

static void carry_out(sim_crew *c, unsigned wishes);

static uint64_t now_of(const sim_crew *c)
{
        return sim_now(c->box->s);
}

static agx_fault fault_of(agx_fault_type type, const char *words, const sim_worker *w)
{
        return (agx_fault){.type = agx_fault_type_text(type),
                           .message = agx_view_str(words),
                           .has_returncode = w != NULL,
                           .returncode = w ? w->status : 0};
}

static void set_deadline(sim_crew *c)
{
        uint64_t next = agx_supervisor_deadline(&c->brain);

        agx_list_foreach_safe(node, &c->retired)
        {
                uint64_t at = agx_retiree_deadline(&agx_container_of(node, sim_worker, node)->retiree);

                next = at < next ? at : next;
        }
        sim_timer_set(&c->box->s->clock, &c->deadline, next);
}

/* ---- what a worker says ---- */

void sim_crew_on_frame(sim_crew *c, sim_worker *w, const agx_frame *frame)
{
        if (!w->retired && frame->kind == AGX_FRAME_READY && c->brain.state == AGX_SUPERVISOR_BOOTING) {
                agx_supervisor_ready(&c->brain);
                carry_out(c, 0);
                sim_box_on_ready(c->box);
        } else if (!w->retired && frame->kind == AGX_FRAME_BOOT_ERROR) {
                carry_out(c, agx_supervisor_boot_error(&c->brain));
        } else {
                sim_box_on_frame(c->box, w->number, frame);
        }
}

void sim_crew_on_misbehaved(sim_crew *c, sim_worker *w)
{
        if (w == c->worker)
                carry_out(c, agx_supervisor_misbehaved(&c->brain));
        else
                sim_worker_kill(w);
}

void sim_crew_on_died(sim_crew *c, sim_worker *w)
{
        agx_fault fault = fault_of(AGX_FAULT_WORKER_DIED, "the worker died", w);
        bool retired = w->retired, worked = w->worked;

        if (!retired)
                c->worker = NULL;
        sim_box_on_died(c->box, w->number, &fault);
        if (retired) {
                sim_worker_release(w);
                carry_out(c, 0);
                return;
        }
        carry_out(c, agx_supervisor_died(&c->brain, now_of(c), worked));
        sim_worker_release(w);
}

/* ---- wishes ---- */

static void send_shutdown(sim_worker *w)
{
        agx_frame frame = {.kind = AGX_FRAME_SHUTDOWN};

        if (!agx_frame_put(sim_worker_last(w), &frame))
                sim_worker_touch(w);
}

static void treat(sim_worker *w, unsigned wishes)
{
        if (wishes & AGX_SUPERVISOR_SHUTDOWN)
                send_shutdown(w);
        if (wishes & AGX_SUPERVISOR_TERMINATE)
                sim_worker_terminate(w);
        if (wishes & AGX_SUPERVISOR_KILL)
                sim_worker_kill(w);
}

static void fail_waiting(sim_crew *c)
{
        agx_fault fault = fault_of(AGX_FAULT_WORKER_BOOT, "the worker did not start", NULL);

        sim_box_on_unavailable(c->box, &fault);
}

static void carry_out(sim_crew *c, unsigned wishes)
{
        if (wishes & AGX_SUPERVISOR_SPAWN && !c->closed) {
                if (sim_once_in(&c->box->s->clock, c->box->s->well ? 0 : c->box->s->plan.boot_trouble_one_in)) {
                        wishes |= agx_supervisor_died(&c->brain, now_of(c), false); /* no process to be had */
                } else {
                        c->worker = sim_worker_spawn(c, ++c->spawned);
                        agx_supervisor_spawned(&c->brain, now_of(c));
                }
        }
        if (wishes & AGX_SUPERVISOR_FAIL)
                fail_waiting(c);
        if (c->worker)
                treat(c->worker, wishes);
        if (c->closed)
                return;
        set_deadline(c);
        if (!c->stopped && c->brain.state == AGX_SUPERVISOR_STOPPED && agx_list_empty(&c->retired)) {
                c->stopped = true;
                sim_box_on_crew_stopped(c->box);
        }
}

static void on_deadline(sim_timer *t)
{
        sim_crew *c = agx_container_of(t, sim_crew, deadline);
        uint64_t now = now_of(c);

        agx_list_foreach_safe(node, &c->retired)
        {
                sim_worker *w = agx_container_of(node, sim_worker, node);

                treat(w, agx_retiree_tick(&w->retiree, now));
        }
        carry_out(c, agx_supervisor_tick(&c->brain, now));
}

/* ---- verbs ---- */

sim_crew *sim_crew_new(sim_box *box)
{
        sim_crew *c = sim_alloc(sizeof(*c));

        c->box = box;
        c->deadline.fire = on_deadline;
        agx_list_init(&c->retired);
        agx_supervisor_init(&c->brain);
        carry_out(c, agx_supervisor_start(&c->brain));
        return c;
}

void sim_crew_wanted(sim_crew *c)
{
        carry_out(c, agx_supervisor_wanted(&c->brain, now_of(c)));
}

sim_worker *sim_crew_ready(const sim_crew *c)
{
        return c->brain.state == AGX_SUPERVISOR_READY ? c->worker : NULL;
}

sim_worker *sim_crew_find(const sim_crew *c, uint64_t number)
{
        if (c->worker && c->worker->number == number)
                return c->worker;
        agx_list_foreach_safe(node, &c->retired)
        {
                sim_worker *w = agx_container_of(node, sim_worker, node);

                if (w->number == number)
                        return w;
        }
        return NULL;
}

static void make_room(sim_crew *c)
{
        sim_worker *oldest = NULL;
        size_t n = 0;

        agx_list_foreach_safe(node, &c->retired)
        {
                sim_worker *w = agx_container_of(node, sim_worker, node);

                if (w->retiree.state == AGX_RETIREE_KILLED)
                        continue;
                oldest = oldest ? oldest : w;
                n++;
        }
        if (n > AGX_WORKER_RETIRED_MAX)
                treat(oldest, agx_retiree_make_room(&oldest->retiree));
}

void sim_crew_load(sim_crew *c, uint64_t worker, size_t running, size_t overdue)
{
        sim_worker *w = agx_list_empty(&c->retired) ? NULL : sim_crew_find(c, worker);

        if (!w || !w->retired)
                return;
        treat(w, agx_retiree_load(&w->retiree, now_of(c), running, overdue));
        set_deadline(c);
}

void sim_crew_retire(sim_crew *c, uint64_t worker, size_t running, size_t overdue)
{
        sim_worker *w = c->worker;
        unsigned wishes = w && w->number == worker ? agx_supervisor_retire(&c->brain) : 0;

        if (wishes) {
                c->worker = NULL;
                w->retired = true;
                agx_retiree_init(&w->retiree, now_of(c));
                agx_list_push_back(&c->retired, &w->node);
        }
        sim_crew_load(c, worker, running, overdue);
        if (!wishes)
                return;
        make_room(c);
        carry_out(c, wishes);
}

void sim_crew_stop(sim_crew *c)
{
        agx_list_foreach_safe(node, &c->retired)
        {
                sim_worker *w = agx_container_of(node, sim_worker, node);

                treat(w, agx_retiree_stop(&w->retiree, now_of(c)));
        }
        carry_out(c, agx_supervisor_stop(&c->brain, now_of(c)));
}

void sim_crew_free(sim_crew *c)
{
        c->closed = true;
        agx_list_foreach_safe(node, &c->retired) sim_worker_release(agx_container_of(node, sim_worker, node));
        if (c->worker)
                sim_worker_release(c->worker);
        sim_timer_stop(&c->box->s->clock, &c->deadline);
        free(c);
}

void sim_crew_kill_one(sim_crew *c)
{
        sim_worker *w = c->worker;

        if (!agx_list_empty(&c->retired) && sim_once_in(&c->box->s->clock, 2))
                w = agx_container_of(c->retired.next, sim_worker, node);
        if (w)
                sim_worker_kill(w);
}

bool sim_crew_is_quiet(const sim_crew *c)
{
        return agx_list_empty(&c->retired);
}

sim_box *sim_crew_box(const sim_crew *c)
{
        return c->box;
}
