#ifndef AGX_BASE_CHECKSUM_H
#define AGX_BASE_CHECKSUM_H
/*
 * A checksum of bulk data on its way: against what breaks, not against who lies. It runs as fast as memory is read, which
 * a CRC without special instructions does not. The bytes are taken as little-endian 32-bit words, the last one filled
 * up with zeros, word i in lane i mod 8; a lane has the sum of its words and the sum of these sums, both mod 2^64; lanes
 * and length are then mixed. In up to 2 MiB whatever changes one or two words of a lane is noticed, as no sum wraps.
 */
#include "base/view.h"

#include <stdint.h>

uint64_t agx_checksum(agx_view data);

#endif
