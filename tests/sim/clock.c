/* A binary heap whose elements know their places, so that a timer is moved without a search. */
#include "clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *sim_alloc(size_t n)
{
        void *p = calloc(1, n);

        if (!p) {
                fprintf(stderr, "sim: out of memory\n");
                abort();
        }
        return p;
}

static uint64_t mix(uint64_t x)
{
        x += 0x9e3779b97f4a7c15;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
        x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
        return x ^ (x >> 31);
}

void sim_clock_init(sim_clock *c, uint64_t seed)
{
        *c = (sim_clock){.now = 1000, .random = mix(seed)};
}

void sim_clock_deinit(sim_clock *c)
{
        free(c->heap);
        c->heap = NULL;
        c->n = c->cap = 0;
}

/* ---- the heap ---- */

static bool before(const sim_timer *a, const sim_timer *b)
{
        return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void put(sim_clock *c, size_t place, sim_timer *t)
{
        c->heap[place - 1] = t;
        t->place = place;
}

static void rise(sim_clock *c, sim_timer *t)
{
        size_t place = t->place;

        for (; place > 1 && before(t, c->heap[place / 2 - 1]); place /= 2)
                put(c, place, c->heap[place / 2 - 1]);
        put(c, place, t);
}

static void sink(sim_clock *c, sim_timer *t)
{
        size_t place = t->place;

        for (size_t child; (child = 2 * place) <= c->n; place = child) {
                if (child < c->n && before(c->heap[child], c->heap[child - 1]))
                        ++child;
                if (!before(c->heap[child - 1], t))
                        break;
                put(c, place, c->heap[child - 1]);
        }
        put(c, place, t);
}

static void take_out(sim_clock *c, sim_timer *t)
{
        sim_timer *last = c->heap[--c->n];
        size_t place = t->place;

        t->place = 0;
        if (last == t)
                return;
        put(c, place, last);
        rise(c, last);
        sink(c, last);
}

static void grow(sim_clock *c)
{
        size_t cap = c->cap ? 2 * c->cap : 64;
        sim_timer **heap = sim_alloc(cap * sizeof(sim_timer *));

        if (c->n)
                memcpy(heap, c->heap, c->n * sizeof(sim_timer *));
        free(c->heap);
        c->heap = heap;
        c->cap = cap;
}

void sim_timer_set(sim_clock *c, sim_timer *t, uint64_t at)
{
        if (t->place && t->at == at)
                return;
        if (t->place)
                take_out(c, t);
        if (at == UINT64_MAX)
                return;
        if (c->n == c->cap)
                grow(c);
        t->at = at;
        t->order = ++c->orders;
        put(c, ++c->n, t);
        rise(c, t);
}

bool sim_clock_step(sim_clock *c, uint64_t until)
{
        sim_timer *t = c->n ? c->heap[0] : NULL;

        if (!t || t->at > until)
                return false;
        take_out(c, t);
        if (t->at > c->now)
                c->now = t->at;
        ++c->steps;
        t->fire(t);
        return true;
}

/* ---- chance ---- */

uint64_t sim_draw64(sim_clock *c)
{
        c->random += 0x9e3779b97f4a7c15;
        return mix(c->random);
}

uint64_t sim_skewed(sim_clock *c, uint64_t max)
{
        uint64_t bits = 0;

        while (max >> bits && bits < 63)
                ++bits;
        return sim_draw(c, (UINT64_C(1) << sim_draw(c, bits + 1))) % (max + 1);
}

void sim_fill(sim_clock *c, void *to, size_t n)
{
        for (size_t i = 0; i < n; ++i)
                ((uint8_t *)to)[i] = (uint8_t)sim_draw64(c);
}
