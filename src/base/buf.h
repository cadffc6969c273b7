#ifndef AGX_BASE_BUF_H
#define AGX_BASE_BUF_H
/*
 * A growable byte queue with a ceiling: bytes are appended at the end and consumed from the front.
 *
 * Invariants: the unread bytes are data[head .. head + len); head + len <= cap, and cap is at most 256 or four times `max`.
 * `data` may move with every append; views into it die with the next verb that is not const. Appending beyond `max`
 * unread bytes changes nothing and returns AGX_BUF_E_FULL. Growth follows the bytes that came, never an announced
 * length; an emptied buffer above 64 KiB gives its memory back.
 *
 * A process of one thread may keep the memory of large buffers that were freed, for those to come: fresh pages cost more
 * than what is done with them. Kept memory is there already, so an announced length may have it.
 */
#include "base/cleanup.h"
#include "base/view.h"

enum { AGX_BUF_E_FULL = 1 };

typedef struct agx_buf {
        uint8_t *data;
        size_t head;
        size_t len;
        size_t cap;
        size_t max;
} agx_buf;

/* An empty buffer that may hold `max_` bytes. Needs no memory until the first append. */
#define AGX_BUF_NULL(max_) ((agx_buf){.max = (max_)})

void agx_buf_init(agx_buf *b, size_t max);
void agx_buf_deinit(agx_buf *b);
AGX_DEFINE_CLEANUP(agx_buf, agx_buf_deinit)

/* Appends; 0, AGX_BUF_E_FULL, or -ENOMEM (nothing appended). */
int agx_buf_append(agx_buf *b, const void *p, size_t n);
/* Makes room for `n` more bytes and gives the place to write them; commit what was written. Same errors. */
int agx_buf_reserve(agx_buf *b, size_t n, uint8_t **place);
void agx_buf_commit(agx_buf *b, size_t n);
/* Drops the first `n` unread bytes. */
void agx_buf_consume(agx_buf *b, size_t n);
/* Drops the unread bytes beyond the first `n`: undoes appends. */
void agx_buf_truncate(agx_buf *b, size_t n);
void agx_buf_clear(agx_buf *b);
/* `n` bytes have been announced: the buffer moves to kept memory of that size, if there is any. Nothing is allocated. */
void agx_buf_expect(agx_buf *b, size_t n);
/* How much is kept from now on; what is more goes at once. It begins with 0, and stays so where there are threads. */
void agx_buf_keep(size_t max);
/* printf into the buffer; the same errors. */
int agx_buf_printf(agx_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline agx_view agx_buf_view(const agx_buf *b)
{
        return b->len ? agx_view_of(b->data + b->head, b->len) : agx_view_of("", 0);
}

/* Whether `v` lies right behind the unread bytes: it was read to where agx_buf_reserve() said, and is only to be committed.
 * What begins where a full buffer's memory ends is somebody else's. */
static inline bool agx_buf_ends_at(const agx_buf *b, agx_view v)
{
        size_t end = b->head + b->len;

        return b->data && (const uint8_t *)v.p == b->data + end && v.n <= b->cap - end;
}

static inline int agx_buf_append_view(agx_buf *b, agx_view v)
{
        return agx_buf_append(b, v.p, v.n);
}

#endif
