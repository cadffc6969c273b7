/* A manifest from anybody: parsed; one that is accepted is written and parsed again, says the same, and counts the same. */
#include "bundle/manifest.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const agx_manifest *m)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(16 << 20), lines = AGX_BUF_NULL(AGX_MANIFEST_LINES_MAX),
                                           again = AGX_BUF_NULL(AGX_MANIFEST_LINES_MAX);
        _cleanup_(agx_manifest_deinitp) agx_manifest back = AGX_MANIFEST_NULL;

        if (!m->name || !m->tag || !m->platform || !m->digest || !m->entrypoint)
                abort();
        if (agx_manifest_write(m, &out) || agx_manifest_parse(&back, agx_buf_view(&out)))
                abort();
        if (strcmp(m->name, back.name) != 0 || strcmp(m->digest, back.digest) != 0 ||
            m->runtime_env.count != back.runtime_env.count)
                abort();
        if (agx_manifest_lines(m, &lines) || agx_manifest_lines(&back, &again) ||
            !agx_view_eq(agx_buf_view(&lines), agx_buf_view(&again)))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
        int r = agx_manifest_parse(&m, agx_view_of(data, size));

        if (!r)
                check(&m);
        else if (r > 0 && !agx_manifest_why(r))
                abort();
        return 0;
}
