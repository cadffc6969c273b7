#ifndef AGX_BASE_UTF8_RUN_H
#define AGX_BASE_UTF8_RUN_H
/*
 * Strict UTF-8 that comes in pieces, cut anywhere. The first byte that cannot be right is noticed when it is fed, not at
 * the end of its character. A zeroed agx_utf8_run stands before a character; nothing is stored but where it stands.
 */
#include "base/view.h"

typedef struct agx_utf8_run {
        uint8_t need;      /* bytes that the character begun still needs */
        uint8_t low, high; /* what the next of them may be */
} agx_utf8_run;

/* False: `v` holds a byte that no well-formed text may have there. The run is of no use afterwards. */
bool agx_utf8_run_feed(agx_utf8_run *u, agx_view v);

/* Whether the text may end here. */
static inline bool agx_utf8_run_whole(const agx_utf8_run *u)
{
        return !u->need;
}

#endif
