#ifndef AGX_SERVER_GATHER_H
#define AGX_SERVER_GATHER_H
/*
 * How many bytes all connections of a server together hold of requests that are not whole yet. Whoever gathers takes what
 * it adds and gives it back when it lets it go; who gets none drops what it has, and says so to its peer once the request
 * is complete. Without one (NULL) there is no bound.
 */
#include "proto/fault.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct agx_gather {
        size_t total, max;
} agx_gather;

#define AGX_GATHER_FULL                                                                                                \
        "the requests that came to this server at once had more than 2 GiB together (AGX_SERVER_GATHER_BYTES), so "    \
        "this "                                                                                                        \
        "one was not taken: send fewer large ones at a time"

static inline bool agx_gather_take(agx_gather *g, size_t n)
{
        if (!g)
                return true;
        if (n > g->max - g->total)
                return false;
        g->total += n;
        return true;
}

static inline void agx_gather_give(agx_gather *g, size_t n)
{
        if (g)
                g->total -= n;
}

static inline agx_fault agx_gather_fault(const char *words)
{
        return (agx_fault){.type = agx_fault_type_text(AGX_FAULT_BUSY),
                           .message = agx_view_str(words),
                           .reason = AGX_FAULT_NOT_TAKEN};
}

#endif
