#ifndef AGX_SERVER_HUBQUEUE_H
#define AGX_SERVER_HUBQUEUE_H
/*
 * Events of the hub (hub.h) and queues of them. An event is kept once, whoever waits for it; entries of queues hold
 * references. For the hub alone.
 */
#include "base/list.h"
#include "base/view.h"

#include <stdbool.h>

typedef struct agx_hub_event {
        unsigned refs;
        agx_view nsp, name, data; /* in `bytes` */
        char bytes[];
} agx_hub_event;

typedef struct agx_hub_entry {
        agx_list link;
        agx_hub_event *event;
} agx_hub_entry;

typedef struct agx_hub_queue {
        agx_list list;
        size_t n, bytes;
} agx_hub_queue;

/* A copy, with one reference; NULL: no memory. */
agx_hub_event *agx_hub_event_new(agx_view nsp, agx_view name, agx_view data);
/* NULL is fine. */
void agx_hub_event_unref(agx_hub_event *e);
/* Bytes it counts for. */
size_t agx_hub_event_weight(const agx_hub_event *e);

/* Takes a reference of its own. NULL: no memory. */
agx_hub_entry *agx_hub_entry_new(agx_hub_event *e);
void agx_hub_entry_free(agx_hub_entry *x);

void agx_hub_queue_init(agx_hub_queue *q);
void agx_hub_queue_clear(agx_hub_queue *q);
/* 0 or -ENOMEM. */
int agx_hub_queue_push(agx_hub_queue *q, agx_hub_event *e);
/* The oldest, the caller's to free, or NULL. */
agx_hub_entry *agx_hub_queue_pop(agx_hub_queue *q);
/* Holds it to AGX_HUB_HELD_EVENTS and AGX_HUB_HELD_BYTES. True if the oldest had to go. */
bool agx_hub_queue_hold(agx_hub_queue *q);

#endif
