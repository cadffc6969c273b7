/*
 * The plan of a run is drawn from its seed: some runs are calm, some have slow or narrow networks, some have everything at
 * once. Trouble comes at random times until the last call has been started and a while later.
 */
#include "box.h"

enum { TROUBLES_MAX = 60 }; /* of a run: later ones would only repeat what was seen */

static uint64_t pick(sim_clock *c, const uint64_t *of, size_t n)
{
        return of[sim_draw(c, n)];
}

#define PICK(c, ...)                                                                                                   \
        pick(c, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void draw_network(sim_plan *p, sim_clock *c)
{
        p->low_ms = 0;
        p->high_ms = PICK(c, 0, 0, 1, 5, 50);
        p->window = (size_t)PICK(c, 65536, 65536, 65536, 2000, 200);
        p->piece = (size_t)PICK(c, 0, 0, 0, 1, 50, 1000);
        if (p->high_ms > 1 && (p->piece == 1 || p->window < 1000))
                p->high_ms = 1; /* else a head would take longer than it may */
}

static void draw_trouble(sim_plan *p, sim_clock *c)
{
        p->tear_one_in = (unsigned)PICK(c, 0, 20, 5, 2);
        p->budget = (size_t)PICK(c, 300, 2000, 30000);
        p->reset_one_in = (unsigned)PICK(c, 0, 3, 10);
        p->refuse_one_in = (unsigned)PICK(c, 0, 20, 5);
        p->notice_ms = PICK(c, 1, 100, 5000, 200000);
        p->trouble_ms = PICK(c, 0, 50, 500, 5000);
        p->restart_weight = (unsigned)PICK(c, 0, 0, 1, 3);
        p->cut_weight = (unsigned)PICK(c, 0, 4, 8);
        p->kill_weight = (unsigned)PICK(c, 0, 0, 1, 4);
        p->boot_trouble_one_in = (unsigned)PICK(c, 0, 0, 10, 3);
        p->repeat_one_in = (unsigned)PICK(c, 0, 0, 3);
        p->tight = sim_once_in(c, 5);
        p->n_strangers = (uint32_t)PICK(c, 0, 0, 1, 2);
}

static void draw_work(sim_plan *p, sim_clock *c)
{
        p->gap_ms = PICK(c, 0, 2, 30, 300);
        p->at_once = (uint32_t)PICK(c, 1, 4, 40);
        p->open_max = (uint32_t)PICK(c, 1, 8, 64, 400);
        p->slow_one_in = (unsigned)PICK(c, 0, 30, 6, 2);
        p->end_one_in = (unsigned)PICK(c, 0, 20, 6);
        p->cancel_one_in = (unsigned)PICK(c, 0, 20, 4);
        p->deadline_one_in = (unsigned)PICK(c, 0, 20, 5);
        p->stream_one_in = (unsigned)PICK(c, 0, 20, 4, 2);
        p->large_one_in = (unsigned)PICK(c, 0, 0, 200, 40);
}

void sim_plan_draw(sim *s, uint64_t seed, uint32_t calls)
{
        sim_clock *c = &s->clock;
        sim_plan *p = &s->plan;

        (void)seed;
        *p = (sim_plan){.calls = calls, .n_hosts = 1 + (uint32_t)sim_draw(c, 3), .token = sim_draw(c, 4) == 0};
        p->calm = sim_once_in(c, 8);
        p->no_websocket = sim_once_in(c, 6);
        p->no_fast = sim_once_in(c, 6);
        p->spare = 60 * p->n_hosts;
        draw_network(p, c);
        draw_work(p, c);
        if (p->piece == 1 || (p->window < 65536 && p->high_ms > 1))
                p->large_one_in = 0; /* a host of little patience would send it again for ever */
        if (!p->calm)
                draw_trouble(p, c);
        else
                p->notice_ms = 1;
        s->net.low_ms = p->low_ms;
        s->net.high_ms = p->high_ms;
        s->net.window = p->window;
        s->net.piece = p->piece;
        s->net.budget = p->budget;
        s->net.tear_one_in = p->tear_one_in;
        s->net.reset_one_in = p->reset_one_in;
        s->net.notice_ms = p->notice_ms;
}

bool sim_may_connect(sim *s)
{
        if (!s->box || (!s->well && sim_once_in(&s->clock, s->plan.refuse_one_in))) {
                ++s->refused;
                return false;
        }
        return true;
}

/* ---- a happening ---- */

static void cut_one(sim *s)
{
        sim_wire *w = sim_net_any(&s->net);

        if (w)
                sim_wire_cut(w);
}

static void come_back(sim *s)
{
        s->box = sim_box_new(s);
        sim_note_key(s, SIM_RESTARTED, 0, 0, 0, 0, 0);
        ++s->restarts;
}

void sim_box_mend(sim *s)
{
        if (s->box && s->box->site.draining) {
                sim_box_kill(s->box);
                s->box = NULL;
        }
        if (!s->box)
                come_back(s);
}

static void restart(sim *s)
{
        if (s->box && (sim_box_stopped(s->box) || !sim_once_in(&s->clock, 3))) {
                sim_box_kill(s->box);
                s->box = NULL;
                if (sim_once_in(&s->clock, 2))
                        come_back(s);
        } else if (s->box) {
                sim_box_stop(s->box);
        } else {
                come_back(s);
        }
}

static void happen(sim *s)
{
        const sim_plan *p = &s->plan;
        uint64_t n = sim_draw(&s->clock, p->cut_weight + p->restart_weight + p->kill_weight);

        if (n < p->cut_weight)
                cut_one(s);
        else if (n < p->cut_weight + p->restart_weight)
                restart(s);
        else if (p->kill_weight && s->box)
                sim_box_kill_worker(s->box);
}

static void on_trouble(sim_timer *t)
{
        sim *s = agx_container_of(t, sim, trouble);

        if (s->well)
                return;
        if (++s->troubles > TROUBLES_MAX) {
                sim_box_mend(s);
                return;
        }
        happen(s);
        sim_timer_set(&s->clock, t, s->clock.now + 1 + sim_draw(&s->clock, 2 * s->plan.trouble_ms));
}

void sim_trouble_begin(sim *s)
{
        s->trouble.fire = on_trouble;
        if (s->plan.trouble_ms)
                sim_timer_set(&s->clock, &s->trouble, s->clock.now + 1 + sim_draw(&s->clock, 2 * s->plan.trouble_ms));
}
