/*
 * An exchange keeps its records for the host, encoded, until they are consumed; `unsaid` is the first that this link has not
 * heard, so a new link hears all of them again by setting it back. Records are numbered from 0; number 0 begins the exchange.
 *
 * The host numbers what it says likewise. Only the next one in turn is taken: any other was seen before, or is said
 * again when its turn has come. Whatever a host answers, it has consumed the beginning.
 */
#include "base/err.h"
#include "server/tunnel_parts.h"

#include <stdlib.h>

enum { BEGIN_MAX = AGX_TUNNEL_CHUNK + AGX_HTTP_HEAD_MAX * 2 + 4096, ID_BYTES = 8, UNREADABLE = 502 };

typedef struct record {
        agx_list node;
        uint64_t seq;
        size_t body; /* bytes of a body in it */
        agx_buf payload;
} record;

static record *record_of(agx_list *node)
{
        return agx_container_of(node, record, node);
}

/* The record behind that one, or NULL. */
static agx_list *after(const agx_exchange *x, const agx_list *node)
{
        return node->next == &x->up ? NULL : node->next;
}

static record *record_new(void)
{
        record *rec = calloc(1, sizeof(*rec));

        if (rec)
                rec->payload = AGX_BUF_NULL(BEGIN_MAX);
        return rec;
}

static void record_free(record *r)
{
        agx_list_unlink(&r->node);
        agx_buf_deinit(&r->payload);
        free(r);
}

static agx_view key_of(const uint64_t *id)
{
        return agx_view_of(id, ID_BYTES);
}

agx_exchange *agx_exchange_find(const agx_tunnels *a, uint64_t id)
{
        agx_map_node *node = agx_map_find(&a->exchanges, key_of(&id));

        return node ? agx_container_of(node, agx_exchange, by_id) : NULL;
}

/* ---- the request ---- */

void agx_exchange_init(agx_exchange *x)
{
        *x = (agx_exchange){.id = 0};
        agx_list_init(&x->node);
        agx_list_init(&x->due);
        agx_list_init(&x->up);
}

/* Takes over the record, whose payload was written with the outcome `r`. */
static int keep(agx_exchange *x, record *rec, int r, size_t body, bool last)
{
        if (r) {
                agx_buf_deinit(&rec->payload);
                free(rec);
                return agx_trace(r < 0 ? r : -EMSGSIZE);
        }
        rec->body = body;
        rec->seq = x->up_seq++;
        agx_list_push_back(&x->up, &rec->node);
        if (!x->unsaid)
                x->unsaid = &rec->node;
        x->up_bytes += body;
        x->up_ended = last;
        agx_exchange_want_say(x);
        return 0;
}

int agx_exchange_begin(agx_exchange *x, agx_tunnel *t, agx_view path, const agx_http1_head *head, agx_view query,
                       agx_view body, bool last)
{
        record *rec = record_new();
        int r;

        if (!rec)
                return agx_trace(-ENOMEM);
        agx_exchange_init(x);
        x->id = ++t->all->last_exchange;
        x->path = path;
        x->by_id.key = key_of(&x->id);
        r = agx_map_insert(&t->all->exchanges, &x->by_id);
        if (r)
                return keep(x, rec, r, 0, false);
        x->tunnel = t;
        agx_list_push_back(&t->exchanges, &x->node);
        r = agx_tunnel_put_begin(&rec->payload, t->id, x->id, path, head, query, body, last);
        r = keep(x, rec, r, body.n, last);
        if (r)
                agx_exchange_over(x);
        return r;
}

int agx_exchange_more(agx_exchange *x, agx_view body, bool last)
{
        record *rec = record_new();

        if (!rec)
                return agx_trace(-ENOMEM);
        return keep(x, rec, agx_tunnel_put_chunk(&rec->payload, x->id, x->up_seq, body, last), body.n, last);
}

/* A host that has attached anew may know of records that this link has not heard yet. */
static void drop_consumed(agx_exchange *x, uint64_t below)
{
        if (below > x->up_said)
                below = x->up_said;
        agx_list_foreach_safe(node, &x->up)
        {
                record *rec = record_of(node);

                if (rec->seq >= below)
                        return;
                if (x->unsaid == node)
                        x->unsaid = after(x, node);
                x->up_bytes -= rec->body;
                record_free(rec);
        }
}

void agx_exchange_over(agx_exchange *x)
{
        agx_tunnel *t = x->tunnel;

        if (!t)
                return;
        x->tunnel = NULL;
        agx_map_remove(&t->all->exchanges, &x->by_id);
        agx_list_unlink(&x->node);
        agx_list_unlink(&x->due);
        agx_list_foreach_safe(node, &x->up) record_free(record_of(node));
        x->unsaid = NULL;
        x->up_bytes = 0;
        if (x->known && t->port)
                agx_tunnel_port_gone(t->port, x->id); /* if it fails, the host is told when it next speaks of it */
}

/* ---- saying ---- */

void agx_exchange_want_say(agx_exchange *x)
{
        if (x->tunnel && agx_list_empty(&x->due))
                agx_list_push_back(&x->tunnel->due, &x->due);
}

static int say_ack(agx_exchange *x, agx_buf *said, agx_tunnel_saying *saying)
{
        int r;

        agx_buf_clear(said);
        r = agx_tunnel_put_ack(said, x->id, x->down_acked);
        if (r)
                return r;
        x->ack_due = false;
        *saying = (agx_tunnel_saying){AGX_VIEW("ack"), agx_buf_view(said)};
        return 0;
}

static void say_record(agx_exchange *x, agx_tunnel_saying *saying)
{
        record *rec = record_of(x->unsaid);

        *saying = (agx_tunnel_saying){rec->seq ? AGX_VIEW("chunk") : x->path, agx_buf_view(&rec->payload)};
        x->unsaid = after(x, &rec->node);
        x->known = true;
        if (rec->seq >= x->up_said)
                x->up_said = rec->seq + 1;
}

int agx_exchange_say(agx_exchange *x, agx_tunnels *a, agx_tunnel_saying *saying)
{
        if (x->ack_due)
                return say_ack(x, &a->said, saying);
        say_record(x, saying);
        return 0;
}

void agx_exchange_begin_anew(agx_exchange *x)
{
        x->unsaid = agx_list_first(&x->up);
        agx_list_unlink(&x->due);
        x->down_acked = x->down_taken;
        x->ack_due = x->known && x->down_taken;
        if (agx_exchange_is_due(x))
                agx_exchange_want_say(x);
}

bool agx_exchange_is_lost(const agx_exchange *x)
{
        agx_list *first = agx_list_first(&x->up);

        return !x->known && (x->replied || !first || record_of(first)->seq);
}

/* ---- the reply ---- */

void agx_exchange_taken(agx_exchange *x)
{
        x->down_taken = x->down_seq;
        if (!x->tunnel || x->down_bytes < AGX_TUNNEL_CREDIT / 4)
                return;
        x->down_acked = x->down_seq;
        x->down_bytes = 0;
        x->ack_due = true;
        agx_exchange_want_say(x);
}

/* The next record from the host, and none that was seen or is ahead of its turn. */
static bool in_turn(agx_exchange *x, const agx_tunnel_words *w)
{
        if (x->ended || (w->has_seq && w->seq != x->down_seq))
                return false;
        ++x->down_seq;
        drop_consumed(x, 1);
        return true;
}

/* The exchange ends with it: nobody should wait for more of an answer that cannot be read. */
static int unreadable(agx_exchange *x, const agx_tunnel_words *w, const char *why, agx_tunnel_outcome *outcome)
{
        if (!in_turn(x, w))
                return agx_tunnel_note(outcome, why);
        x->ended = true;
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_ERROR,
                                        .exchange = x,
                                        .reply = {.status = UNREADABLE,
                                                  .body = AGX_VIEW("the host's answer cannot be read")},
                                        .last = true,
                                        .why = why};
        return 0;
}

static int take_ack(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        drop_consumed(x, w->seq);
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_READ, .exchange = x};
        return 0;
}

static int take_reply(agx_exchange *x, const agx_tunnel_words *w, bool whole, agx_tunnel_outcome *outcome)
{
        agx_tunnel_reply reply;

        if (!agx_tunnel_reply_read(w->value, &reply))
                return unreadable(x, w, "a reply of a tunnel's host that cannot be read", outcome);
        if (x->replied || !in_turn(x, w))
                return 0;
        x->replied = true;
        x->ended = whole;
        *outcome = (agx_tunnel_outcome){.todo = whole ? AGX_TUNNEL_TODO_WHOLE : AGX_TUNNEL_TODO_HEAD,
                                        .exchange = x,
                                        .reply = reply,
                                        .last = whole};
        return 0;
}

static int take_chunk(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        if (!w->data.p)
                return unreadable(x, w, "a piece of a reply without bytes", outcome);
        if (!x->replied || !in_turn(x, w))
                return 0;
        x->ended = w->last;
        x->down_bytes += w->data.n;
        *outcome = (agx_tunnel_outcome){
                .todo = AGX_TUNNEL_TODO_BODY, .exchange = x, .reply = {.body = w->data}, .last = w->last};
        return 0;
}

static int take_error(agx_exchange *x, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_tunnel_reply reply;

        if (!agx_tunnel_error_read(w->error, &reply))
                return unreadable(x, w, "an error of a tunnel's host that cannot be read", outcome);
        if (!in_turn(x, w))
                return 0;
        x->ended = true;
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_ERROR, .exchange = x, .reply = reply, .last = true};
        return 0;
}

static bool ends_with(agx_view text, agx_view end)
{
        return text.n >= end.n && agx_view_eq(agx_view_from(text, text.n - end.n), end);
}

int agx_exchange_answer(agx_exchange *x, agx_view name, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        if (agx_view_eq(name, AGX_VIEW("ack")))
                return take_ack(x, w, outcome);
        if (agx_view_eq(name, AGX_VIEW("chunk")))
                return take_chunk(x, w, outcome);
        if (agx_view_eq(name, AGX_VIEW("head")))
                return take_reply(x, w, false, outcome);
        if (ends_with(name, AGX_VIEW(":result")))
                return take_reply(x, w, true, outcome);
        if (ends_with(name, AGX_VIEW(":error")))
                return take_error(x, w, outcome);
        return agx_tunnel_note(outcome, "an event that tunnels do not know");
}
