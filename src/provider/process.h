#ifndef AGX_PROVIDER_PROCESS_H
#define AGX_PROVIDER_PROCESS_H
/*
 * The brain of a sandbox that is a process of the host's (brain.h): started, found ready, asked to end, killed.
 *
 *     START -> (READY) DONE -> (DELETE) SIGNAL -> (EXITED) GONE            it tells by itself where it listens
 *     START -> PROBE -> (READY) DONE -> (DELETE) SIGNAL -> (EXITED) GONE   it is asked at a URL
 */
#include "provider/brain.h"

#include "base/buf.h"

typedef struct agx_process_plan {
        const char *subject; /* for error texts: "the runtime server" */
        agx_strv argv;
        agx_strv env;
        agx_buf content; /* of the file that it reads, mode 0444 */
        agx_view file;   /* where that is; absent: there is none */
        agx_view dir;    /* the sandbox's directory, to be removed with it */
        agx_view cwd;
        agx_view token_file;
        agx_view url;      /* where to ask it; absent: its ready line tells */
        uint64_t ready_ms; /* from the start */
} agx_process_plan;

void agx_process_plan_deinit(agx_process_plan *plan);
AGX_DEFINE_CLEANUP(agx_process_plan, agx_process_plan_deinit)

/* Takes the vectors and the content over, whatever comes of it, and copies the rest. 0 or what a vector's end gave. */
int agx_process_new(agx_brain **brain, agx_process_plan *plan);

/* Whether a variable of that name is for the backend to set, whatever the user's environment says. */
bool agx_process_owns(agx_view name);
/* Sets AGENTIX_LEASE, if there is one. */
void agx_process_set_lease(agx_strv *env, double lease_s);

#endif
