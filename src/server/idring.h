#ifndef AGX_SERVER_IDRING_H
#define AGX_SERVER_IDRING_H
/*
 * The last N names that were put in, each as a 16-byte hash with a number beside it. The oldest makes room.
 *
 * The hash is two SipHashes under keys of this table's own, so nobody outside can make two names collide; should chance
 * do it, a name is believed to be here that is not. Space is taken as it is reserved, so adding never fails:
 * agx_idring_reserve() first. A name put in twice occupies two places; the newer number is found.
 */
#include "base/view.h"

typedef struct agx_idring_entry {
        uint64_t hash[2];
        uint64_t number;
} agx_idring_entry;

typedef struct agx_idring {
        agx_idring_entry *entries;
        uint32_t *next;  /* by entry: the next one of its chain, plus one; 0: none */
        uint32_t *heads; /* by hash: the first entry of the chain, plus one */
        uint32_t mask;   /* of heads */
        uint32_t room;   /* entries there is space for */
        uint32_t max;
        uint32_t count;
        uint32_t at; /* where the next one goes once count == max: the oldest */
        uint64_t seeds[2][2];
} agx_idring;

/* `max` 0: remembers nothing. */
void agx_idring_init(agx_idring *ring, const uint64_t seed[2], uint32_t max);
void agx_idring_deinit(agx_idring *ring);
/* Makes sure that `total` names, or `max` if that is less, can be held. 0 or -ENOMEM; what is held stays. */
int agx_idring_reserve(agx_idring *ring, size_t total);
/* Without a reservation for it, the name is not remembered. */
void agx_idring_add(agx_idring *ring, agx_view name, uint64_t number);
/* `number` may be NULL. */
bool agx_idring_find(const agx_idring *ring, agx_view name, uint64_t *number);

#endif
