#ifndef AGX_WORKER_ENVIRON_H
#define AGX_WORKER_ENVIRON_H
/*
 * The environment contract between server and worker: the server's own environment in, the worker's out.
 *
 *   - Search paths get entries in front, which are also recorded in AGENTIX_ADDED_<VAR> so that they can be taken out
 *     again for the image's own programs.
 *   - Variables that would bend the worker's interpreter or the image's programs are removed and kept as
 *     AGENTIX_SAVED_<VAR>.
 *   - What only concerns the server is dropped: addresses, token file, lease, inherited descriptors.
 *   - AGENTIX_WORKER_ID and AGENTIX_LOG_CONTEXT name the worker; AGENTIX_WORKER_FEATURES names what the server understands, which
 *     the worker takes out of its environment.
 */
#include "base/view.h"

typedef struct agx_environ {
        char **vars; /* "NAME=value", NULL at the end: as execve takes it; owned */
        size_t n;
        size_t cap;
} agx_environ;

#define AGX_ENVIRON_NULL ((agx_environ){0})

typedef struct agx_environ_facts {
        agx_view python;    /* absolute path of the interpreter */
        agx_view worker_id; /* 8 hex digits, new with every spawn */
        agx_view box_id;    /* the sandbox's name in log contexts */
} agx_environ_facts;

/* Builds a worker's environment. 0 or -ENOMEM. */
int agx_environ_make(agx_environ *e, char *const *parent, const agx_environ_facts *facts);
void agx_environ_deinit(agx_environ *e);
/* The value of `name`, or an absent view; lives as long as the variable. */
agx_view agx_environ_get(const agx_environ *e, agx_view name);

#endif
