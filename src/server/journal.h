#ifndef AGX_SERVER_JOURNAL_H
#define AGX_SERVER_JOURNAL_H
/*
 * A reliable stream from the sandbox to its hosts: /log is one, /trace another. Items get consecutive numbers from 1 on
 * and are kept until every host that reads has acknowledged them, but at most so many and so many bytes: then the oldest
 * goes, and whoever had not been told of it hears how many were lost. The numbers are the server's, so they go on when a
 * worker is replaced, and a host that comes back names the last one it has.
 *
 * A brain: bytes in, batches out. An item is one msgpack value, which is not looked into.
 *
 *     agx_journal_append()   an item came
 *     agx_journal_attach()   a host reads from now on
 *     agx_journal_ready()    whether it may be told something now
 *     agx_journal_next()     a batch, as the argument of an event: {seq, lost, items: [...]}
 *     agx_journal_ack()      it has dealt with everything up to a number
 */
#include "base/buf.h"
#include "base/list.h"
#include "proto/limits.h"

typedef struct agx_journal_item agx_journal_item;

typedef struct agx_journal {
        agx_journal_item **ring; /* of `cap` slots, a power of two; a NULL was lost for want of memory */
        size_t cap, n;
        size_t bytes, items_max;
        uint64_t first; /* the number of the oldest one kept, or of the next one */
        uint64_t acked; /* the highest one that any host has dealt with */
        agx_list readers;
} agx_journal;

typedef struct agx_journal_reader {
        agx_list link;
        agx_journal *journal; /* NULL: attached to none */
        uint64_t next;        /* to be told */
        uint64_t acked;
        uint64_t lost;   /* of those before `next`, since the last batch */
        uint64_t window; /* items in flight; 0: it does not acknowledge, what was sent counts as dealt with */
} agx_journal_reader;

void agx_journal_init(agx_journal *j, size_t items_max);
/* Readers are detached. */
void agx_journal_deinit(agx_journal *j);
/* Copies the item. One that is too large, or for which there is no memory, has a number and is lost. */
void agx_journal_append(agx_journal *j, agx_view item);
/* The number of the newest item; 0: none yet. */
uint64_t agx_journal_last(const agx_journal *j);

/* `after`: the last number it has, or UINT64_MAX for one that has none: it begins behind what others acknowledged. */
void agx_journal_attach(agx_journal *j, agx_journal_reader *r, uint64_t window, uint64_t after);
/* Safe twice, and on a zeroed reader. */
void agx_journal_detach(agx_journal_reader *r);
void agx_journal_ack(agx_journal_reader *r, uint64_t seq);
bool agx_journal_ready(const agx_journal_reader *r);
/* Appends the next batch to `out`. 0, AGX_BUF_E_FULL or -ENOMEM (nothing is said then). Only if it is ready. */
int agx_journal_next(agx_journal_reader *r, agx_buf *out);

#endif
