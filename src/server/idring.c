/*
 * A ring of entries that fills up to `max` and then goes round, and chains through them by hash. New entries go to the
 * front of their chain, so the oldest is always a chain's last and the newest of equal names its first.
 */
#include "server/idring.h"
#include "base/err.h"
#include "base/map.h"

#include <stdlib.h>

enum { RING_FIRST = 64 };

static void hash_of(const agx_idring *ring, agx_view name, uint64_t hash[2])
{
        hash[0] = agx_siphash(ring->seeds[0], name);
        hash[1] = agx_siphash(ring->seeds[1], name);
}

static uint32_t *head_of(const agx_idring *ring, const uint64_t hash[2])
{
        return &ring->heads[hash[0] & ring->mask];
}

void agx_idring_init(agx_idring *ring, const uint64_t seed[2], uint32_t max)
{
        *ring = (agx_idring){.max = max};
        for (int i = 0; i < 4; ++i)
                ring->seeds[i / 2][i % 2] = agx_siphash(seed, agx_view_of(&"abcd"[i], 1));
}

void agx_idring_deinit(agx_idring *ring)
{
        free(ring->entries);
        free(ring->next);
        free(ring->heads);
        ring->entries = NULL;
        ring->next = ring->heads = NULL;
        ring->room = ring->count = ring->mask = ring->at = 0;
}

static void link_entry(agx_idring *ring, uint32_t at)
{
        uint32_t *head = head_of(ring, ring->entries[at].hash);

        ring->next[at] = *head;
        *head = at + 1;
}

static void unlink_entry(agx_idring *ring, uint32_t at)
{
        uint32_t *link = head_of(ring, ring->entries[at].hash);

        while (*link != at + 1)
                link = &ring->next[*link - 1];
        *link = ring->next[at];
}

/* Links all entries anew, oldest first. */
static void relink(agx_idring *ring)
{
        for (uint32_t i = 0; i < ring->count; ++i)
                link_entry(ring, ring->count == ring->max ? (ring->at + i) % ring->max : i);
}

static int grow(agx_idring *ring, uint32_t room)
{
        agx_idring_entry *entries;
        uint32_t *next, *heads;
        uint32_t slots = RING_FIRST;

        while (slots < room)
                slots *= 2;
        entries = realloc(ring->entries, room * sizeof(*entries));
        if (!entries)
                return agx_trace(-ENOMEM);
        ring->entries = entries;
        next = realloc(ring->next, room * sizeof(*next));
        if (!next)
                return agx_trace(-ENOMEM);
        ring->next = next;
        heads = calloc(slots, sizeof(*heads));
        if (!heads)
                return agx_trace(-ENOMEM);
        free(ring->heads);
        ring->heads = heads;
        ring->mask = slots - 1;
        ring->room = room;
        relink(ring);
        return 0;
}

int agx_idring_reserve(agx_idring *ring, size_t total)
{
        uint32_t want = total < ring->max ? (uint32_t)total : ring->max;
        uint32_t room = ring->room ? ring->room : RING_FIRST;

        if (want <= ring->room)
                return 0;
        while (room < want)
                room *= 2;
        return grow(ring, room < ring->max ? room : ring->max);
}

void agx_idring_add(agx_idring *ring, agx_view name, uint64_t number)
{
        uint32_t at = ring->count;

        if (ring->count == ring->max) {
                if (!ring->max)
                        return;
                at = ring->at;
                ring->at = (at + 1) % ring->max;
                unlink_entry(ring, at);
        } else if (ring->count == ring->room) {
                return;
        } else {
                ++ring->count;
        }
        hash_of(ring, name, ring->entries[at].hash);
        ring->entries[at].number = number;
        link_entry(ring, at);
}

bool agx_idring_find(const agx_idring *ring, agx_view name, uint64_t *number)
{
        uint64_t hash[2];

        if (!ring->count)
                return false;
        hash_of(ring, name, hash);
        for (uint32_t i = *head_of(ring, hash); i; i = ring->next[i - 1]) {
                const agx_idring_entry *entry = &ring->entries[i - 1];

                if (entry->hash[0] == hash[0] && entry->hash[1] == hash[1]) {
                        if (number)
                                *number = entry->number;
                        return true;
                }
        }
        return false;
}
