/* Any bytes as an ELF object and as a manifest: no crash, no over-read; a manifest that is accepted reads again as written. */
#include <stdint.h>
#include <stdlib.h>

#include "bundle/elf.h"
#include "bundle/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
        if (!holds)
                abort();
}

static void manifest(agx_view text)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(8 * AGX_MANIFEST_MAX);
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL, again = AGX_MANIFEST_NULL;

        if (agx_manifest_parse(&m, text))
                return;
        must(agx_manifest_write(&m, &out) == 0);
        must(out.len > AGX_MANIFEST_MAX || agx_manifest_parse(&again, agx_buf_view(&out)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL;

        (void)agx_elf_parse(&elf, data, size);
        manifest(agx_view_of(data, size));
        return 0;
}
