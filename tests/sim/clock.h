#ifndef AGX_SIM_CLOCK_H
#define AGX_SIM_CLOCK_H
/*
 * Virtual time: timers in a heap, in order of time and, at the same time, of setting. Nothing else makes anything happen
 * in a simulation, and all chance comes from one generator, so a seed says all of a run.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sim_timer sim_timer;
struct sim_timer {
        void (*fire)(sim_timer *self);
        uint64_t at, order;
        size_t place; /* in the heap, from 1; 0: not set */
};

typedef struct sim_clock {
        uint64_t now, orders, steps;
        sim_timer **heap;
        size_t n, cap;
        uint64_t random;
} sim_clock;

void sim_clock_init(sim_clock *c, uint64_t seed);
void sim_clock_deinit(sim_clock *c);
/* Sets or moves. UINT64_MAX: stops it. */
void sim_timer_set(sim_clock *c, sim_timer *t, uint64_t at);
static inline void sim_timer_stop(sim_clock *c, sim_timer *t)
{
        sim_timer_set(c, t, UINT64_MAX);
}
/* Fires the next timer; false: none at or before `until`. */
bool sim_clock_step(sim_clock *c, uint64_t until);

uint64_t sim_draw64(sim_clock *c);
/* 0 to n - 1. */
static inline uint64_t sim_draw(sim_clock *c, uint64_t n)
{
        return n > 1 ? sim_draw64(c) % n : 0;
}
static inline uint64_t sim_between(sim_clock *c, uint64_t low, uint64_t high)
{
        return low + sim_draw(c, high - low + 1);
}
/* True once in `n`; never for 0. */
static inline bool sim_once_in(sim_clock *c, uint64_t n)
{
        return n && sim_draw(c, n) == 0;
}
/* Small mostly, up to `max` rarely. */
uint64_t sim_skewed(sim_clock *c, uint64_t max);
void sim_fill(sim_clock *c, void *to, size_t n);

/* Of a simulation there is no failing for want of memory: it ends the program. */
void *sim_alloc(size_t n);

#endif
