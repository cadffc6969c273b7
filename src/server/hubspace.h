#ifndef AGX_SERVER_HUBSPACE_H
#define AGX_SERVER_HUBSPACE_H
/*
 * A namespace of the hub (hub.h): who has opened it, who has joined it, and what waits for either. For the hub alone.
 */
#include "server/hub.h"
#include "server/hubqueue.h"

typedef struct agx_hub_space {
        agx_map_node by_name;
        agx_list members;       /* of ports */
        agx_hub_queue outbound; /* while no host has joined */
        agx_hub_queue inbound;  /* while no worker has opened */
        bool counted;           /* in n_open */
        uint64_t workers[AGX_HUB_WORKERS_MAX];
        size_t n_workers;
        char name[];
} agx_hub_space;

typedef struct agx_hub_member {
        agx_list of_space, of_port;
        agx_hub_space *space;
        agx_hub_port *port;
} agx_hub_member;

/* NULL: there is none. */
agx_hub_space *agx_hub_space_find(const agx_hub *h, agx_view name);
/* The one of that name, made if need be. 0, AGX_HUB_E_FULL or -ENOMEM. */
int agx_hub_space_make(agx_hub *h, agx_view name, agx_hub_space **made);
void agx_hub_space_free(agx_hub *h, agx_hub_space *s);
/* A name that means nothing to anybody is forgotten. */
void agx_hub_space_tidy(agx_hub *h, agx_hub_space *s);
/* Whether this worker has opened it. */
bool agx_hub_space_has(const agx_hub_space *s, uint64_t worker);

/* ---- of hubport.c ---- */

/* The event waits for this host. 0 or -ENOMEM. */
int agx_hub_port_push(agx_hub_port *p, agx_hub_event *e);

/* ---- of hub.c ---- */

enum { AGX_HUB_WARN_HELD = 1, AGX_HUB_WARN_QUEUE = 2, AGX_HUB_WARN_INBOUND = 4 };
/* Says it in the log, once. */
void agx_hub_warn(agx_hub *h, unsigned which, const char *words);

#endif
