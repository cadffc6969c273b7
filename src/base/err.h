#ifndef AGX_BASE_ERR_H
#define AGX_BASE_ERR_H
/*
 * How functions report failure.
 *
 *     0   done
 *   < 0   fatal for the object at hand: a negated errno (-ENOMEM, -EPROTO, ...). The caller forwards it untouched and
 *         never looks at which one it is; only the edge of a room turns it into words.
 *   > 0   a condition named by that function's own header (AGX_<OBJECT>_E_<WHAT>). The caller must handle it.
 *
 * Where a fatal error is born or passes by, wrap it in agx_trace(): with a hook installed this gives a C "backtrace";
 * without one it costs a test of one pointer. The library never writes to a descriptor of its own accord.
 */
#include <errno.h>
#include <stddef.h>

typedef void (*agx_trace_hook)(int error, const char *file, int line, const char *function);

/* Installs (or with NULL removes) the process-wide hook. Call it before any thread starts. */
void agx_trace_install(agx_trace_hook hook);

/* Reports `error` to the hook if it is negative; gives it back unchanged. */
int agx_trace_at(int error, const char *file, int line, const char *function);

#ifdef __clang_analyzer__ /* It would not see into err.c that an error stays one. */
#define agx_trace(error) (error)
#else
#define agx_trace(error) agx_trace_at((error), __FILE__, __LINE__, __func__)
#endif

#endif
