/* A file that says it is a bundle: unpacked into nowhere. libarchive reads it, the rules judge it, the manifest is parsed. */
#include "bundle/unpack.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const agx_unpack_limits limits = {
                .archive = {.bytes = 16 << 20, .ratio = 200, .ratio_free = 1 << 20},
                .members = {.bytes = 16 << 20, .count = 1 << 12, .depth = 40},
        };
        static const agx_unpack_hooks hooks;
        agx_unpacked u;
        agx_why why = AGX_WHY_NULL;
        int fd = memfd_create("bundle", MFD_CLOEXEC);

        if (fd < 0 || write(fd, data, size) != (ssize_t)size || lseek(fd, 0, SEEK_SET) < 0) {
                close(fd);
                return 0;
        }
        if (agx_unpack(&u, fd, -1, &limits, &hooks, &why) == AGX_WHY_E_TOLD && !why.text[0])
                __builtin_trap();
        agx_unpacked_deinit(&u);
        close(fd);
        return 0;
}
