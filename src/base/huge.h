#ifndef AGX_BASE_HUGE_H
#define AGX_BASE_HUGE_H
/*
 * Memory for large values is touched once, from front to end: by pages of 4 KiB that costs more than what is done with it.
 * agx_huge() asks for large pages where the kernel gives them on request; it is no more than a hint.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

enum { AGX_HUGE_MIN = 4 << 20 };

/* `n` bytes at `p`, just allocated. Whole pages are named, those at the ends too: a mapping that stays in one piece can
 * still be moved as one by realloc(). */
static inline void agx_huge(void *p, size_t n)
{
        uintptr_t from = (uintptr_t)p & ~(uintptr_t)4095, to = ((uintptr_t)p + n + 4095) & ~(uintptr_t)4095;

        if (n >= AGX_HUGE_MIN)
                (void)madvise((void *)from, to - from, MADV_HUGEPAGE);
}

#endif
