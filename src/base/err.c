/* The trace hook: the only global of the library, set once at start-up by whoever owns the process. */
#include "base/err.h"

static agx_trace_hook trace_hook;

void agx_trace_install(agx_trace_hook hook)
{
        trace_hook = hook;
}

int agx_trace_at(int error, const char *file, int line, const char *function)
{
        if (error < 0 && trace_hook)
                trace_hook(error, file, line, function);
        return error;
}
