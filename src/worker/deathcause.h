#ifndef AGX_WORKER_DEATHCAUSE_H
#define AGX_WORKER_DEATHCAUSE_H
/*
 * How a worker ended, in words and as a returncode. Memory is named as the cause only when the control group's own
 * counter of kills moved, never guessed from signal 9.
 */
#include "base/buf.h"

typedef struct agx_death {
        int status;        /* as waitpid gives it */
        int exec_error;    /* an errno: the program could not be executed */
        bool oom;          /* the counter moved while it ran */
        const char *fault; /* what the server killed it for ("a malformed frame"), or NULL */
} agx_death;

/* Exit code, or minus the signal's number. */
int agx_death_returncode(const agx_death *death);
/* Appends e.g. "signal 9 (SIGKILL), out of memory". Errors of agx_buf_append. */
int agx_death_describe(const agx_death *death, agx_buf *out);

/* The number after `oom_kill` in the text of memory.events (version 2) or memory.oom_control (version 1); false: none. */
bool agx_death_oom_count(agx_view text, uint64_t *count);
/* From the text of /proc/self/cgroup: the path of the group that accounts for memory. `*version` is 1 or 2. False: none. */
bool agx_death_memory_group(agx_view text, agx_view *path, int *version);

#endif
