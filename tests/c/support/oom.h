#ifndef AGX_TEST_OOM_H
#define AGX_TEST_OOM_H
/*
 * Memory that runs out on command. Every malloc, calloc and realloc of a test executable goes through here (the linker's
 * --wrap), so a test can count allocations and let a chosen one fail. One thread only while armed.
 *
 * A sweep lets the first allocation fail, then the second, and so on, until a run meets no failure any more:
 *
 *     do { agx_oom_arm(++n); r = run(); } while (agx_oom_disarm());
 */
#include <stdbool.h>
#include <stddef.h>

/* From now on the `nth` allocation fails (1: the next one), that one only. */
void agx_oom_arm(size_t nth);
/* Back to normal; true if an allocation was made to fail since agx_oom_arm(). */
bool agx_oom_disarm(void);
/* While paused, allocations neither count nor fail: for what a test itself needs in between. Gives what was before. */
bool agx_oom_pause(bool pause);

#endif
