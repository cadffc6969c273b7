#ifndef AGX_BASE_MAP_H
#define AGX_BASE_MAP_H
/*
 * An intrusive hash table from byte strings to objects. The object embeds an agx_map_node and owns the key bytes that
 * node.key points to; they must not change while it is in the table. Hashing is SipHash-2-4 under a key given at init,
 * so that a hostile peer cannot choose collisions. The table grows with its load; it never shrinks below 16 slots.
 */
#include "base/view.h"

typedef struct agx_map_node {
        struct agx_map_node *next;
        uint64_t hash;
        agx_view key;
} agx_map_node;

typedef struct agx_map {
        agx_map_node **slots;
        size_t mask;
        size_t count;
        uint64_t seed[2];
} agx_map;

/* `seed`: 16 random bytes. No memory is taken before the first insert. */
void agx_map_init(agx_map *m, const uint8_t seed[16]);
/* Frees the table, not the objects. */
void agx_map_deinit(agx_map *m);
agx_map_node *agx_map_find(const agx_map *m, agx_view key);
/* Inserts under node->key, which must not be present. 0 or -ENOMEM. */
int agx_map_insert(agx_map *m, agx_map_node *node);
/* Removes a node that is in the table. */
void agx_map_remove(agx_map *m, agx_map_node *node);
/* Any node, or NULL when empty: for tearing a table down. */
agx_map_node *agx_map_any(const agx_map *m);
/* SipHash-2-4 of `v`. */
uint64_t agx_siphash(const uint64_t seed[2], agx_view v);
/* `n` bytes that nobody foretells who does not know `secret`: hashes of a counter, which moves on. */
void agx_siphash_draw(const uint64_t secret[2], uint64_t *counter, void *to, size_t n);

#endif
