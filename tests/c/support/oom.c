/* The linker renames: calls to malloc() arrive at __wrap_malloc(), and __real_malloc() is the one of the system or of
 * the sanitizer. */
#include "support/oom.h"

#include <stdlib.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);

static size_t countdown;
static bool fired;
static bool paused;

static bool fails_now(void)
{
        if (paused || !countdown || --countdown)
                return false;
        fired = true;
        return true;
}

void *__wrap_malloc(size_t size)
{
        return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
        return fails_now() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
        return fails_now() ? NULL : __real_realloc(old, size);
}

void agx_oom_arm(size_t nth)
{
        countdown = nth;
        fired = false;
}

bool agx_oom_disarm(void)
{
        countdown = 0;
        return fired;
}

bool agx_oom_pause(bool pause)
{
        bool before = paused;

        paused = pause;
        return before;
}
