#ifndef AGX_WIRE_PREFER_H
#define AGX_WIRE_PREFER_H
/*
 * The Prefer header of RFC 7240, as far as it concerns us: `respond-async` and `wait=<seconds>`. Decimals are allowed,
 * a quoted value too; unknown preferences and parameters are passed over; of a repeated preference the first counts;
 * what cannot be read counts as not given.
 */
#include "base/buf.h"

typedef struct agx_prefer {
        bool respond_async;
        bool has_wait;
        uint64_t wait_ms;
} agx_prefer;

/* `max_ms`: a longer wait is lowered to it. Never fails. */
agx_prefer agx_prefer_parse(agx_view value, uint64_t max_ms);
/* Appends "wait=N": whole seconds without decimals ("1"), else up to three ("0.25"). Errors of agx_buf_append. */
int agx_prefer_put_wait(agx_buf *out, uint64_t wait_ms);

#endif
