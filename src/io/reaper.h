#ifndef AGX_IO_REAPER_H
#define AGX_IO_REAPER_H
/*
 * The one place that waits for children nobody in particular waits for. As process 1 of a container, or as child
 * subreaper, the server inherits every orphan below it: those are reaped on SIGCHLD; children started through
 * agx_child are left to their owners, who wait by pid.
 *
 * It is a table of the process, like the children themselves: one reaper per process, owned by the loop it was
 * started on. agx_reaper_know() and _forget() are agx_child's.
 */
#include "io/child.h"

/* Becomes child subreaper and starts to reap. 0 or a negative errno. */
int agx_reaper_start(agx_loop *l);
void agx_reaper_stop(void);
void agx_reaper_know(agx_child *c);
void agx_reaper_forget(agx_child *c);

/* SIGKILLs every descendant until none is left or `ms` have passed, reaping on the way; blocks for at most that long. Known
 * children too: call it last. Returns whether none is left. */
bool agx_reaper_kill_descendants(unsigned ms);

#endif
