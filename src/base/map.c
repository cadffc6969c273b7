/*
 * Chained hashing over a power-of-two slot array. Growth relinks the nodes into a larger array; if that allocation
 * fails while the table still works, the insert goes on with longer chains instead of failing.
 */
#include "base/map.h"
#include "base/err.h"

#include <endian.h>
#include <stdlib.h>

enum { MAP_FIRST = 16 };

static uint64_t rotl(uint64_t x, int b)
{
        return x << b | x >> (64 - b);
}

/* Inlined, so that the state stays in registers. */
static inline __attribute__((always_inline)) void sip_round(uint64_t v[4])
{
        v[0] += v[1], v[1] = rotl(v[1], 13), v[1] ^= v[0], v[0] = rotl(v[0], 32);
        v[2] += v[3], v[3] = rotl(v[3], 16), v[3] ^= v[2];
        v[0] += v[3], v[3] = rotl(v[3], 21), v[3] ^= v[0];
        v[2] += v[1], v[1] = rotl(v[1], 17), v[1] ^= v[2], v[2] = rotl(v[2], 32);
}

static uint64_t load_le(const char *p, size_t n)
{
        uint64_t word = 0;

        for (size_t i = 0; i < n; ++i)
                word |= (uint64_t)(unsigned char)p[i] << (8 * i);
        return word;
}

static uint64_t load_word(const char *p)
{
        uint64_t word;

        memcpy(&word, p, sizeof(word));
        return le64toh(word);
}

uint64_t agx_siphash(const uint64_t seed[2], agx_view in)
{
        uint64_t v[4] = {seed[0] ^ 0x736f6d6570736575ULL, seed[1] ^ 0x646f72616e646f6dULL,
                         seed[0] ^ 0x6c7967656e657261ULL, seed[1] ^ 0x7465646279746573ULL};
        uint64_t last = (uint64_t)in.n << 56;

        for (; in.n >= 8; in = agx_view_from(in, 8)) {
                uint64_t word = load_word(in.p);

                v[3] ^= word;
                sip_round(v), sip_round(v);
                v[0] ^= word;
        }
        last |= load_le(in.p, in.n);
        v[3] ^= last;
        sip_round(v), sip_round(v);
        v[0] ^= last;
        v[2] ^= 0xff;
        for (int i = 0; i < 4; ++i)
                sip_round(v);
        return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void agx_siphash_draw(const uint64_t secret[2], uint64_t *counter, void *to, size_t n)
{
        for (size_t done = 0; done < n; ++*counter) {
                uint64_t drawn = agx_siphash(secret, agx_view_of(counter, sizeof(*counter)));
                size_t part = n - done < sizeof(drawn) ? n - done : sizeof(drawn);

                memcpy((uint8_t *)to + done, &drawn, part);
                done += part;
        }
}

static int resize(agx_map *m, size_t size)
{
        agx_map_node **slots = calloc(size, sizeof(*slots));

        if (!slots)
                return agx_trace(-ENOMEM);
        for (size_t i = 0; m->slots && i <= m->mask; ++i) {
                for (agx_map_node *node = m->slots[i], *next; node; node = next) {
                        agx_map_node **slot = &slots[node->hash & (size - 1)];

                        next = node->next;
                        node->next = *slot;
                        *slot = node;
                }
        }
        free(m->slots);
        m->slots = slots;
        m->mask = size - 1;
        return 0;
}

void agx_map_init(agx_map *m, const uint8_t seed[16])
{
        *m = (agx_map){.seed = {load_le((const char *)seed, 8), load_le((const char *)seed + 8, 8)}};
}

void agx_map_deinit(agx_map *m)
{
        free(m->slots);
        m->slots = NULL;
        m->mask = 0;
        m->count = 0;
}

agx_map_node *agx_map_find(const agx_map *m, agx_view key)
{
        uint64_t hash;

        if (!m->count)
                return NULL;
        hash = agx_siphash(m->seed, key);
        for (agx_map_node *node = m->slots[hash & m->mask]; node; node = node->next)
                if (node->hash == hash && agx_view_eq(node->key, key))
                        return node;
        return NULL;
}

int agx_map_insert(agx_map *m, agx_map_node *node)
{
        agx_map_node **slot;

        if (!m->slots || m->count > m->mask) {
                int r = resize(m, m->slots ? (m->mask + 1) * 2 : MAP_FIRST);

                if (!m->slots)
                        return r;
        }
        node->hash = agx_siphash(m->seed, node->key);
        slot = &m->slots[node->hash & m->mask];
        node->next = *slot;
        *slot = node;
        ++m->count;
        return 0;
}

void agx_map_remove(agx_map *m, agx_map_node *node)
{
        for (agx_map_node **at = &m->slots[node->hash & m->mask]; *at; at = &(*at)->next) {
                if (*at == node) {
                        *at = node->next;
                        node->next = NULL;
                        --m->count;
                        return;
                }
        }
}

agx_map_node *agx_map_any(const agx_map *m)
{
        for (size_t i = 0; m->slots && i <= m->mask; ++i)
                if (m->slots[i])
                        return m->slots[i];
        return NULL;
}
