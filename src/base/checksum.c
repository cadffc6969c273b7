/*
 * Vectors of the compiler's own, so that every processor gets what it can do; a block is read by memcpy, as it may lie
 * anywhere. The mixing is that of a multiplicative hash: it need not be good, as the sums are what tells.
 */
#include "base/checksum.h"

#include <string.h>

enum { BLOCK = 32 };

typedef uint64_t pair __attribute__((vector_size(16)));

/* Of a pair of 64 bits in each block the lower and the upper words. */
typedef struct lanes {
        pair low, low_sums, high, high_sums;
} lanes;

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the words are read as they lie"
#endif

static inline void take(lanes *l, const char *at)
{
        pair w;

        memcpy(&w, at, sizeof(w));
        l->low += w & 0xffffffffu;
        l->low_sums += l->low;
        l->high += w >> 32;
        l->high_sums += l->high;
}

static uint64_t mixed(uint64_t hash, uint64_t value)
{
        hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
        return hash ^ (hash >> 29);
}

static uint64_t mixed_lanes(uint64_t hash, const lanes *l)
{
        for (int i = 0; i < 2; i++) {
                hash = mixed(hash, l->low[i]);
                hash = mixed(hash, l->low_sums[i]);
                hash = mixed(hash, l->high[i]);
                hash = mixed(hash, l->high_sums[i]);
        }
        return hash;
}

uint64_t agx_checksum(agx_view data)
{
        uint64_t hash = mixed(0, data.n);
        char last[BLOCK] = {0};
        lanes first = {.low = {0}}, second = {.low = {0}}; /* of each block the first half, and the second */
        size_t n = data.n;

        for (const char *p = data.p; n >= BLOCK; p += BLOCK, n -= BLOCK) {
                take(&first, p);
                take(&second, p + BLOCK / 2);
        }
        if (n) {
                memcpy(last, data.p + data.n - n, n);
                take(&first, last);
                take(&second, last + BLOCK / 2);
        }
        return mixed_lanes(mixed_lanes(hash, &first), &second);
}
