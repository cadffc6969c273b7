/*
 * The byte queue. Consuming only moves `head`. When an append would not fit behind the bytes, they slide down if at least
 * as many were consumed as have to move, else the capacity doubles, starting at 256 bytes: so each byte is copied a
 * bounded number of times whatever the order of appends and consumes.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/huge.h"

#include <stdarg.h>
#include <stdio.h>

enum { BUF_FIRST = 256, BUF_KEEP = 64 * 1024 };

static void slide(agx_buf *b)
{
        if (b->head && b->len)
                memmove(b->data, b->data + b->head, b->len);
        b->head = 0;
}

static int grow(agx_buf *b, size_t need)
{
        size_t cap = b->cap ? b->cap : BUF_FIRST;
        uint8_t *data;

        while (cap < need)
                cap = cap > SIZE_MAX / 2 ? need : cap * 2;
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
        free(b->data);
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
