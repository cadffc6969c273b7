#ifndef AGX_IO_DEADLINE_H
#define AGX_IO_DEADLINE_H
/*
 * A deadline that moves often and fires seldom. Moving it later costs nothing: the timer is left where it is and set
 * anew when it goes off too early. Times are those of agx_loop_now().
 */
#include "io/loop.h"

typedef struct agx_deadline agx_deadline;

struct agx_deadline {
        uv_timer_t timer;
        uint64_t at;    /* UINT64_MAX: none */
        uint64_t armed; /* when the timer goes off; UINT64_MAX: it is stopped */
        void (*expired)(agx_deadline *self);
        void (*closed)(agx_deadline *self);
};

void agx_deadline_init(agx_deadline *d, agx_loop *l, void (*expired)(agx_deadline *self));
/* UINT64_MAX takes it away. A time already past fires in the next turn. */
void agx_deadline_set(agx_deadline *d, uint64_t at);
/* `closed` (may be NULL) is called when the memory is the owner's again. */
void agx_deadline_close(agx_deadline *d, void (*closed)(agx_deadline *self));

#endif
