/* Any bytes as a Prefer value: no crash, no over-read, the ceiling holds, what is understood survives being written and
 * read again, and an unknown preference in front changes nothing. */
#include <stdint.h>
#include <stdlib.h>

#include "wire/prefer.h"

enum { MAX_MS = 86400000 };

static void must(bool holds)
{
        if (!holds)
                abort();
}

static bool same(agx_prefer a, agx_prefer b)
{
        return a.respond_async == b.respond_async && a.has_wait == b.has_wait && a.wait_ms == b.wait_ms;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(SIZE_MAX);
        agx_prefer prefer = agx_prefer_parse(agx_view_of(data, size), MAX_MS);

        must(prefer.wait_ms <= MAX_MS && (prefer.has_wait || !prefer.wait_ms));
        must(!agx_prefer_put_wait(&text, prefer.wait_ms));
        must(agx_prefer_parse(agx_buf_view(&text), MAX_MS).wait_ms == prefer.wait_ms);
        agx_buf_clear(&text);
        must(!agx_buf_printf(&text, "other=\"a, \\\"b\"; c, ") && !agx_buf_append(&text, data, size));
        must(same(agx_prefer_parse(agx_buf_view(&text), MAX_MS), prefer));
        return 0;
}
