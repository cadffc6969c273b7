/*
 * The ring grows with what it holds. A number is an item's place for ever: slot number & (cap - 1).
 *
 * Losing is a matter of the reader: whatever lies before the oldest item kept and has not been said to it.
 */
#include "server/journal.h"
#include "wire/msgpack.h"

#include <stdlib.h>

struct agx_journal_item {
        size_t n;
        char bytes[];
};

enum { RING_MIN = 64, HEAD_SLACK = 64 };

void agx_journal_init(agx_journal *j, size_t items_max)
{
        *j = (agx_journal){.items_max = items_max ? items_max : 1, .first = 1};
        agx_list_init(&j->readers);
}

static agx_journal_item **slot(const agx_journal *j, uint64_t seq)
{
        return &j->ring[seq & (j->cap - 1)];
}

static void drop_first(agx_journal *j)
{
        agx_journal_item **item = slot(j, j->first);

        j->bytes -= *item ? (*item)->n : 0;
        free(*item);
        *item = NULL;
        ++j->first;
        --j->n;
}

void agx_journal_deinit(agx_journal *j)
{
        agx_list_foreach_safe(node, &j->readers) agx_journal_detach(agx_container_of(node, agx_journal_reader, link));
        while (j->n)
                drop_first(j);
        free(j->ring);
        j->ring = NULL;
        j->cap = 0;
}

uint64_t agx_journal_last(const agx_journal *j)
{
        return j->first + j->n - 1;
}

/* Room for one more, by growing or else by letting the oldest go. */
static bool make_room(agx_journal *j)
{
        size_t cap = j->cap ? j->cap * 2 : RING_MIN;
        agx_journal_item **ring;

        if (j->n >= j->items_max)
                drop_first(j);
        if (j->n < j->cap)
                return true;
        ring = calloc(cap, sizeof(*ring));
        if (!ring) {
                if (j->n)
                        drop_first(j);
                return j->cap > 0;
        }
        for (uint64_t seq = j->first; seq < j->first + j->n; ++seq)
                ring[seq & (cap - 1)] = *slot(j, seq);
        free(j->ring);
        j->ring = ring;
        j->cap = cap;
        return true;
}

void agx_journal_append(agx_journal *j, agx_view item)
{
        agx_journal_item *copy = item.n <= AGX_STREAM_ITEM_MAX ? malloc(sizeof(*copy) + item.n) : NULL;

        if (!make_room(j)) {
                free(copy);
                ++j->first; /* nothing is kept: the number is lost at once */
                return;
        }
        if (copy) {
                copy->n = item.n;
                memcpy(copy->bytes, item.p, item.n);
        }
        *slot(j, j->first + j->n) = copy;
        ++j->n;
        j->bytes += copy ? copy->n : 0;
        while (j->bytes > AGX_STREAM_BYTES && j->n > 1)
                drop_first(j);
}

/* ---- readers ---- */

void agx_journal_attach(agx_journal *j, agx_journal_reader *r, uint64_t window, uint64_t after)
{
        uint64_t last = agx_journal_last(j), from = after == UINT64_MAX ? j->acked : after;

        from = from < last ? from : last;
        *r = (agx_journal_reader){.journal = j, .next = from + 1, .acked = from, .window = window};
        agx_list_init(&r->link);
        agx_list_push_back(&j->readers, &r->link);
}

void agx_journal_detach(agx_journal_reader *r)
{
        if (!r->journal)
                return;
        agx_list_unlink(&r->link);
        r->journal = NULL;
}

/* What all readers have dealt with is not needed any more. */
static void release(agx_journal *j)
{
        uint64_t acked = UINT64_MAX;

        agx_list_foreach_safe(node, &j->readers)
        {
                const agx_journal_reader *r = agx_container_of(node, agx_journal_reader, link);

                acked = r->acked < acked ? r->acked : acked;
        }
        while (j->n && j->first <= acked)
                drop_first(j);
}

void agx_journal_ack(agx_journal_reader *r, uint64_t seq)
{
        agx_journal *j = r->journal;

        seq = seq < r->next ? seq : r->next - 1;
        if (seq <= r->acked)
                return;
        r->acked = seq;
        j->acked = seq > j->acked ? seq : j->acked;
        release(j);
}

/* Numbers count as in flight, lost ones too; so a reader that has missed some first acknowledges what it was told before. */
bool agx_journal_ready(const agx_journal_reader *r)
{
        if (!r->journal || r->next > agx_journal_last(r->journal))
                return false;
        if (!r->window)
                return true;
        if (r->next < r->journal->first)
                return r->acked + 1 == r->next;
        return r->next - r->acked <= r->window;
}

/* Passes over what is gone. */
static void skip_lost(agx_journal_reader *r)
{
        const agx_journal *j = r->journal;
        bool idle = r->acked + 1 == r->next;

        if (r->next < j->first) {
                r->lost += j->first - r->next;
                r->next = j->first;
        }
        while (r->next < j->first + j->n && !*slot(j, r->next)) {
                ++r->lost;
                ++r->next;
        }
        if (idle)
                r->acked = r->next - 1;
}

/* How many items go into one batch. */
static size_t count(const agx_journal_reader *r)
{
        const agx_journal *j = r->journal;
        uint64_t end = j->first + j->n;
        size_t n = 0, bytes = 0;

        if (r->window && r->acked + r->window + 1 < end)
                end = r->acked + r->window + 1;
        while (r->next + n < end && n < AGX_STREAM_BATCH_ITEMS && bytes < AGX_STREAM_BATCH_BYTES) {
                const agx_journal_item *item = *slot(j, r->next + n);

                if (!item)
                        break;
                bytes += item->n;
                ++n;
        }
        return n;
}

int agx_journal_next(agx_journal_reader *r, agx_buf *out)
{
        agx_mp_writer w = agx_mp_writer_on(out);
        size_t start = out->len, n;
        int e;

        skip_lost(r);
        n = count(r);
        agx_mp_put_map(&w, 3);
        agx_mp_put_str(&w, AGX_VIEW("seq"));
        agx_mp_put_uint(&w, r->next);
        agx_mp_put_str(&w, AGX_VIEW("lost"));
        agx_mp_put_uint(&w, r->lost);
        agx_mp_put_str(&w, AGX_VIEW("items"));
        agx_mp_put_array(&w, n);
        e = agx_mp_writer_end(&w);
        for (size_t i = 0; !e && i < n; ++i) {
                const agx_journal_item *item = *slot(r->journal, r->next + i);

                e = agx_buf_append(out, item->bytes, item->n);
        }
        if (e) {
                agx_buf_truncate(out, start);
                return e;
        }
        r->lost = 0;
        r->next += n;
        if (!r->window)
                agx_journal_ack(r, r->next - 1);
        return 0;
}
