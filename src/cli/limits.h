#ifndef AGX_CLI_LIMITS_H
#define AGX_CLI_LIMITS_H
/* What a bundle may unpack to: the bounds of proto/limits.h as bundle/ wants them. */
#include "bundle/unpack.h"
#include "proto/limits.h"

static inline agx_unpack_limits agx_cli_unpack_limits(void)
{
        return (agx_unpack_limits){
                .archive = {.bytes = (uint64_t)AGX_BUNDLE_MIB_MAX << 20,
                            .ratio = AGX_BUNDLE_RATIO_MAX,
                            .ratio_free = AGX_BUNDLE_RATIO_FREE},
                .members = {.bytes = (uint64_t)AGX_BUNDLE_MIB_MAX << 20,
                            .count = AGX_BUNDLE_MEMBERS_MAX,
                            .depth = AGX_BUNDLE_DEPTH_MAX},
        };
}

#endif
