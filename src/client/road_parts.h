#ifndef AGX_CLIENT_ROAD_PARTS_H
#define AGX_CLIENT_ROAD_PARTS_H
/*
 * What the files of the second road need of each other: road.c has its links, road_say.c what is said on one, road_hear.c
 * what is heard. For everybody else state.h has it.
 */
#include "client/state.h"
#include "proto/rpc.h"

static inline agx_client_call *call_of(agx_list *node)
{
        return agx_container_of(node, agx_client_call, link);
}

static inline agx_client_call *first_of(const agx_list *list)
{
        agx_list *node = agx_list_first(list);

        return node ? call_of(node) : NULL;
}

/* road.c */
/* The link is over, for a reason that the next one may not have. `reason` may be the link's own words. */
void agx_road_lose(agx_client *c, const char *reason, uint64_t now_ms);
/* Sees to a negative result or a condition of the link. */
void agx_road_trouble(agx_client *c, int r, uint64_t now_ms);

/* road_say.c */
/* Something was heard of a call that nobody here knows any more. */
void agx_road_confirm_cancel(agx_client *c, uint64_t counter);
/* The next link says all that are not confirmed anew. */
void agx_road_cancel_again(agx_client *c);
void agx_road_forget_cancels(agx_client *c);
/* Says what waits to be said; 0, or a condition of the link. */
int agx_road_say_all(agx_client *c);

#endif
