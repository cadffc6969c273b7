#ifndef AGX_IO_RELAY_H
#define AGX_IO_RELAY_H
/*
 * Whole lines to a descriptor that others may share and that may be slow, without ever blocking on it: the descriptor is
 * polled before each small write, what does not go waits in a bounded buffer, and lines beyond that are dropped and
 * counted; once there is room again a line says how many. The descriptor's flags are left alone.
 */
#include "base/buf.h"
#include "io/deadline.h"

typedef struct agx_relay {
        int fd;
        agx_loop *loop;
        agx_flush flush;
        agx_deadline retry;
        agx_buf waiting;
        uint64_t dropped; /* lines since the last one that went */
        uint64_t dropped_total;
        bool gone; /* the descriptor takes nothing any more */
} agx_relay;

void agx_relay_init(agx_relay *r, agx_loop *l, int fd, size_t max);
/* One line, without its newline. Takes it whole, or drops it. */
void agx_relay_line(agx_relay *r, agx_view prefix, agx_view line);
/* Writes what can be written now and closes the timer; what then waits is lost. The descriptor stays open. */
void agx_relay_close(agx_relay *r);

#endif
