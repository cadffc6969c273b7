/*
 * The byte queue. Consuming only moves `head`. When an append would not fit behind the bytes, they slide down if at least
 * as many were consumed as have to move, else the capacity doubles, starting at 256 bytes: so each byte is copied a
 * bounded number of times whatever the order of appends and consumes.
 *
 * Capacities are 256 times a power of two, so a kept one fits or it does not.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/huge.h"

#include <stdarg.h>
#include <stdio.h>

enum { BUF_FIRST = 256, BUF_KEEP = 64 * 1024, SPARE_MIN = 256 * 1024, SPARES = 16 };

/* Looked at by every thread, and written only after agx_buf_keep(), in a process that has one. Not of a thread: that would
 * make the extension need the loader's library. */
static struct {
        struct {
                uint8_t *data;
                size_t cap;
        } of[SPARES]; /* the oldest first */
        size_t n, bytes, max;
} spares;

/* ---- what is kept ---- */

static uint8_t *forget_spare(size_t i)
{
        uint8_t *data = spares.of[i].data;

        spares.bytes -= spares.of[i].cap;
        memmove(spares.of + i, spares.of + i + 1, (--spares.n - i) * sizeof(spares.of[0]));
        return data;
}

void agx_buf_keep(size_t max)
{
        spares.max = max;
        while (spares.bytes > max)
                free(forget_spare(0));
}

static uint8_t *take_spare(size_t cap)
{
        for (size_t i = spares.n; i-- > 0;)
                if (spares.of[i].cap == cap)
                        return forget_spare(i);
        return NULL;
}

static void let_go(uint8_t *data, size_t cap)
{
        if (cap < SPARE_MIN || cap > spares.max) {
                free(data);
                return;
        }
        while (spares.n == SPARES || spares.bytes > spares.max - cap)
                free(forget_spare(0));
        spares.of[spares.n].data = data;
        spares.of[spares.n++].cap = cap;
        spares.bytes += cap;
}

/* ---- room ---- */

static void slide(agx_buf *b)
{
        if (b->head && b->len)
                memmove(b->data, b->data + b->head, b->len);
        b->head = 0;
}

static size_t capacity_for(const agx_buf *b, size_t need)
{
        size_t cap = b->cap ? b->cap : BUF_FIRST;

        while (cap < need)
                cap = cap > SIZE_MAX / 2 ? need : cap * 2;
        return cap;
}

static bool move_to_spare(agx_buf *b, size_t cap)
{
        uint8_t *data = spares.n ? take_spare(cap) : NULL;

        if (!data)
                return false;
        if (b->len)
                memcpy(data, b->data + b->head, b->len);
        let_go(b->data, b->cap);
        b->data = data;
        b->head = 0;
        b->cap = cap;
        return true;
}

void agx_buf_expect(agx_buf *b, size_t n)
{
        if (n > b->cap && n <= b->max && b->len <= BUF_KEEP)
                move_to_spare(b, capacity_for(b, n));
}

static int grow(agx_buf *b, size_t need)
{
        size_t cap = capacity_for(b, need);
        uint8_t *data;

        if (move_to_spare(b, cap))
                return 0;
        slide(b);
        data = realloc(b->data, cap);
        if (!data)
                return agx_trace(-ENOMEM);
        b->data = data;
        b->cap = cap;
        agx_huge(data, cap);
        return 0;
}

void agx_buf_init(agx_buf *b, size_t max)
{
        *b = AGX_BUF_NULL(max);
}

void agx_buf_deinit(agx_buf *b)
{
        let_go(b->data, b->cap);
        *b = AGX_BUF_NULL(b->max);
}

static bool beyond_ceiling(const agx_buf *b, size_t n)
{
        return n > b->max || b->len > b->max - n;
}

/* Room for `n` more bytes, whatever the ceiling says. */
static int make_room(agx_buf *b, size_t n)
{
        if (b->head + b->len + n <= b->cap)
                return 0;
        if (b->len + n > b->cap)
                return grow(b, b->len + n);
        if (b->head < b->len)
                return grow(b, b->cap + 1);
        slide(b);
        return 0;
}

int agx_buf_reserve(agx_buf *b, size_t n, uint8_t **place)
{
        int r;

        if (beyond_ceiling(b, n))
                return AGX_BUF_E_FULL;
        r = make_room(b, n);
        if (!r)
                *place = b->data ? b->data + b->head + b->len : NULL;
        return r;
}

void agx_buf_commit(agx_buf *b, size_t n)
{
        b->len += n;
}

int agx_buf_append(agx_buf *b, const void *p, size_t n)
{
        int r;

        if (!n)
                return 0;
        if (beyond_ceiling(b, n))
                return AGX_BUF_E_FULL;
        r = make_room(b, n);
        if (r)
                return r;
        memcpy(b->data + b->head + b->len, p, n);
        b->len += n;
        return 0;
}

void agx_buf_consume(agx_buf *b, size_t n)
{
        b->head += n;
        b->len -= n;
        if (!b->len)
                agx_buf_clear(b);
}

void agx_buf_truncate(agx_buf *b, size_t n)
{
        if (n < b->len)
                b->len = n;
}

void agx_buf_clear(agx_buf *b)
{
        if (b->cap > BUF_KEEP)
                agx_buf_deinit(b);
        b->head = 0;
        b->len = 0;
}

int agx_buf_printf(agx_buf *b, const char *format, ...)
{
        char small[256];
        va_list ap;
        int n, r;

        va_start(ap, format);
        n = vsnprintf(small, sizeof(small), format, ap);
        va_end(ap);
        if (n < 0)
                return agx_trace(-EINVAL);
        if ((size_t)n < sizeof(small))
                return agx_buf_append(b, small, (size_t)n);
        if (beyond_ceiling(b, (size_t)n))
                return AGX_BUF_E_FULL;
        r = make_room(b, (size_t)n + 1); /* vsnprintf insists on a terminator; it is not kept */
        if (r)
                return r;
        va_start(ap, format);
        vsnprintf((char *)b->data + b->head + b->len, (size_t)n + 1, format, ap);
        va_end(ap);
        b->len += (size_t)n;
        return 0;
}
