#ifndef AGX_WORKER_SPARE_H
#define AGX_WORKER_SPARE_H
/*
 * When a spare worker is started: one that has started as any and waits, so that a worker which dies has a successor at
 * once. A brain; it never touches a process.
 *
 *     NONE -- a worker that offers it is ready --> WANTED -- it has answered, and nothing more for a while --> THERE
 *     THERE -- taken --> WANTED, in a hurry: an answer is enough     THERE -- dies --> WANTED, after a pause
 *
 * Nothing is started before the first answer, so that the first call never waits for it, nor for a sandbox that is never
 * called. A worker that is always busy gets one after a while all the same.
 *
 * When agx_spare_deadline() has passed, call agx_spare_tick(); if it says that one is to be started, agx_spare_started()
 * follows. Times are monotonic milliseconds.
 */
#include "proto/limits.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum agx_spare_state { AGX_SPARE_NONE, AGX_SPARE_WANTED, AGX_SPARE_THERE } agx_spare_state;

typedef struct agx_spare {
        agx_spare_state state;
        uint64_t deadline; /* UINT64_MAX: none */
        uint64_t since;    /* WANTED: the first answer */
        uint64_t pause;    /* before the next one, if this one dies */
        bool answered;     /* WANTED: something, since the deadline was set */
        bool hurried;      /* WANTED: a worker has died */
        bool resting;      /* WANTED: a spare has died */
} agx_spare;

void agx_spare_init(agx_spare *s);
static inline uint64_t agx_spare_deadline(const agx_spare *s)
{
        return s->deadline;
}

/* A worker is ready whose like may wait. */
void agx_spare_offered(agx_spare *s);
/* It has answered a call. */
void agx_spare_answered(agx_spare *s, uint64_t now);
bool agx_spare_tick(agx_spare *s, uint64_t now);
void agx_spare_started(agx_spare *s);
/* It could not be started, or is dead, and was not taken. */
void agx_spare_died(agx_spare *s, uint64_t now);
void agx_spare_taken(agx_spare *s);
/* There was none to take. */
void agx_spare_missed(agx_spare *s);
/* The server stops: there will be none. */
void agx_spare_stop(agx_spare *s);

#endif
