#ifndef AGX_SERVER_ITEMS_H
#define AGX_SERVER_ITEMS_H
/*
 * What a call that is a stream has given so far: its items, numbered from 0, each kept until the host has said that it
 * consumed it, and told in order to whichever link the host has now.
 *
 *     first <= told <= next: [first, told) are told and kept, [told, next) are still to be told.
 *
 * A host says how many more it consumed, which is how many more it takes. What it was told before, on an earlier link, it
 * is not told again once it has said so. What it says ahead of what it was ever told counts for what it is told later. Zeroed memory after agx_items_init() only.
 */
#include "base/buf.h"
#include "base/list.h"

typedef struct agx_items {
        agx_list kept;
        agx_list *cursor; /* the next to be told, or the head */
        uint64_t first, told, next;
        uint64_t reached; /* the furthest that was told, on whatever link */
        uint64_t acked;   /* ever */
        size_t bytes;     /* of what is kept */
} agx_items;

void agx_items_init(agx_items *items);
/* Drops everything; safe twice. */
void agx_items_deinit(agx_items *items);

/* Appends the next one; its bytes are taken over. 0 or -ENOMEM. */
int agx_items_add(agx_items *items, agx_buf *value);
static inline bool agx_items_more(const agx_items *items)
{
        return items->told < items->next;
}
/* The next to be told, with its number; lives until the next add or ack. Only if there is one. */
agx_view agx_items_tell(agx_items *items, uint64_t *seq);
/* `n` more were consumed. */
void agx_items_ack(agx_items *items, uint64_t n);
/* There is a new link: what is kept is told again. */
void agx_items_rewind(agx_items *items);

#endif
