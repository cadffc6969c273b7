/* Two mappings in one: pages for the bytes, then one page nobody may touch. The bytes are moved to
 * the end of the first part, so the start of the mapping follows from pointer and length. */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/guard.h"

static size_t page_size(void)
{
        return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t room_for(size_t size)
{
        size_t page = page_size();
        return (size + page - 1) / page * page;
}

uint8_t *agx_guard_new(const void *data, size_t size)
{
        size_t room = room_for(size), page = page_size();
        uint8_t *base = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
                return NULL;
        if (mprotect(base + room, page, PROT_NONE) != 0) {
                munmap(base, room + page);
                return NULL;
        }
        if (size > 0)
                memcpy(base + room - size, data, size);
        return base + room - size;
}

void agx_guard_free(uint8_t *data, size_t size)
{
        if (data == NULL)
                return;
        size_t room = room_for(size);
        munmap(data + size - room, room + page_size());
}
