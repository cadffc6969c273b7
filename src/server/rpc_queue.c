/*
 * Entries of three kinds: the id of a call whose end is to be told, a fault that was decided when its event came, and a
 * resume's list of ids. The first are in a map too, so that an id is in the queue once. A list is walked only as far as
 * its link's peer takes the answers, in the bytes it came in.
 */
#include "server/rpc_queue.h"
#include "base/err.h"
#include "proto/limits.h"

#include <stdlib.h>

enum { HEAD_MAX = AGX_MAX_CALL_ID + 8192 };

typedef enum entry_kind { ENTRY_ANSWER, ENTRY_FAULT, ENTRY_LIST } entry_kind;

typedef struct entry {
        agx_list node;
        entry_kind kind;
        agx_map_node by_id; /* ANSWER */
        agx_fault fault;    /* FAULT; texts static */
        agx_call_acks walk; /* LIST */
        size_t n;
        bool again;   /* ANSWER: more is to be said of it */
        char bytes[]; /* the id; the array */
} entry;

static agx_view bytes_of(const entry *e)
{
        return agx_view_of(e->bytes, e->n);
}

/* ---- the queue ---- */

void agx_rpc_queue_touch(agx_rpc_link *link)
{
        agx_list_unlink(&link->due);
        agx_list_push_back(&link->rpc->due, &link->due);
}

static entry *make_entry(agx_rpc_link *link, entry_kind kind, agx_view bytes)
{
        entry *e = calloc(1, sizeof(*e) + bytes.n);

        if (!e)
                return NULL;
        e->kind = kind;
        e->n = bytes.n;
        if (bytes.n)
                memcpy(e->bytes, bytes.p, bytes.n);
        agx_list_push_back(&link->queue, &e->node);
        link->n_queued++;
        agx_rpc_queue_touch(link);
        return e;
}

static void free_entry(agx_rpc_link *link, entry *e)
{
        if (e->by_id.key.p)
                agx_map_remove(&link->queued, &e->by_id);
        agx_list_unlink(&e->node);
        link->n_queued--;
        free(e);
}

void agx_rpc_queue_init(agx_rpc_link *link)
{
        agx_list_init(&link->due);
        agx_list_init(&link->queue);
        agx_map_init(&link->queued, link->rpc->seed);
        link->head = AGX_BUF_NULL(HEAD_MAX);
}

void agx_rpc_queue_deinit(agx_rpc_link *link)
{
        agx_list_unlink(&link->due);
        agx_list_foreach_safe(node, &link->queue)
        {
                free_entry(link, agx_container_of(node, entry, node));
        }
        agx_map_deinit(&link->queued);
        agx_buf_deinit(&link->head);
}

bool agx_rpc_queue_has_answer(const agx_rpc_link *link, agx_view id)
{
        return agx_map_find(&link->queued, id) != NULL;
}

void agx_rpc_queue_drop_answer(agx_rpc_link *link, agx_view id)
{
        agx_map_node *node = agx_map_find(&link->queued, id);

        if (node)
                free_entry(link, agx_container_of(node, entry, by_id));
}

int agx_rpc_queue_answer(agx_rpc_link *link, agx_view id)
{
        entry *e;
        int r;

        if (agx_rpc_queue_has_answer(link, id))
                return 0;
        e = make_entry(link, ENTRY_ANSWER, id);
        if (!e)
                return agx_trace(-ENOMEM);
        e->by_id.key = bytes_of(e);
        r = agx_map_insert(&link->queued, &e->by_id);
        if (!r)
                return 0;
        e->by_id.key = AGX_VIEW_NULL;
        free_entry(link, e);
        return r;
}

int agx_rpc_queue_fault(agx_rpc_link *link, agx_view id, const agx_fault *fault)
{
        entry *e = make_entry(link, ENTRY_FAULT, id);

        if (!e)
                return agx_trace(-ENOMEM);
        e->fault = *fault;
        return 0;
}

int agx_rpc_queue_words(agx_rpc_link *link, agx_view id, agx_fault_type type, const char *words)
{
        return agx_rpc_queue_fault(link, id,
                                   &(agx_fault){.type = agx_fault_type_text(type), .message = agx_view_str(words)});
}

int agx_rpc_queue_list(agx_rpc_link *link, agx_view ids)
{
        entry *e = make_entry(link, ENTRY_LIST, ids);

        if (!e)
                return agx_trace(-ENOMEM);
        e->walk = agx_call_acks_of(bytes_of(e));
        return 0;
}

/* ---- what is said ---- */

agx_rpc_link *agx_rpc_due(agx_rpc *rpc)
{
        agx_list *first = agx_list_first(&rpc->due);

        if (!first)
                return NULL;
        agx_list_unlink(first);
        return agx_container_of(first, agx_rpc_link, due);
}

static int said(agx_rpc_link *link, const agx_mp_writer *w, agx_rpc_kind kind, agx_view body, agx_rpc_saying *saying)
{
        if (agx_mp_writer_end(w))
                return agx_trace(-ENOMEM);
        *saying = (agx_rpc_saying){agx_rpc_kind_text(kind), agx_buf_view(&link->head), body};
        return 0;
}

static agx_mp_writer begin(agx_rpc_link *link)
{
        agx_buf_clear(&link->head);
        return agx_mp_writer_on(&link->head);
}

static int say_fault(agx_rpc_link *link, agx_view id, const agx_fault *fault, agx_rpc_saying *saying)
{
        agx_mp_writer w = begin(link);

        agx_rpc_event_put(&w, &(agx_rpc_event){.kind = AGX_RPC_ERROR, .call_id = id, .fault = *fault}, NULL, 0);
        return said(link, &w, AGX_RPC_ERROR, AGX_VIEW(""), saying);
}

static int say_unavailable(agx_rpc_link *link, agx_view id, const char *words, agx_view reason, agx_rpc_saying *saying)
{
        return say_fault(link, id,
                         &(agx_fault){.type = agx_fault_type_text(AGX_FAULT_RESULT_UNAVAILABLE),
                                      .message = agx_view_str(words),
                                      .reason = reason},
                         saying);
}

static int say_outcome(agx_rpc_link *link, const agx_call *call, agx_rpc_saying *saying)
{
        agx_view id = agx_call_id(call), body = agx_buf_view(&call->payload);
        agx_mp_writer w = begin(link);

        if (!call->ok && !body.n)
                return say_unavailable(link, id, "there was no memory to keep the result", AGX_VIEW("dropped"), saying);
        if (call->ok)
                agx_rpc_event_put_head(&w, &(agx_rpc_event){.kind = AGX_RPC_RESULT, .call_id = id, .value = body});
        else
                agx_rpc_event_put_fault_head(&w, id);
        return said(link, &w, call->ok ? AGX_RPC_RESULT : AGX_RPC_ERROR, body, saying);
}

static int say_item(agx_rpc_link *link, agx_call *call, agx_rpc_saying *saying)
{
        agx_rpc_event event = {.kind = AGX_RPC_ITEM, .call_id = agx_call_id(call)};
        agx_mp_writer w = begin(link);

        event.value = agx_items_tell(&call->items, &event.seq);
        agx_rpc_event_put_head(&w, &event);
        return said(link, &w, AGX_RPC_ITEM, event.value, saying);
}

/* Whether an item is to be told before anything else; a new link is told all that are kept. */
static bool has_item(const agx_rpc_link *link, agx_call *call)
{
        if (call->told_by != link->number)
                agx_items_rewind(&call->items);
        call->told_by = link->number;
        return agx_items_more(&call->items);
}

/* 0, AGX_RPC_E_NONE: it has not ended, or -ENOMEM. `*again`: an item was said, and more may follow. */
static int answer(agx_rpc_link *link, agx_view id, uint64_t now, bool *again, agx_rpc_saying *saying)
{
        agx_resume verdict;
        agx_call *call;
        int r = agx_ledger_resume(agx_rpc_ledger(link), agx_rpc_session(link), id, now, &verdict, &call);

        if (!r && verdict == AGX_RESUME_REPLAY && !call->kept) {
                agx_rpc_take_over(call);
                agx_ledger_keep(agx_rpc_ledger(link), call); /* which may make it go, for want of room */
                r = agx_ledger_resume(agx_rpc_ledger(link), agx_rpc_session(link), id, now, &verdict, &call);
        }
        if (r)
                return r;
        if (!call && verdict == AGX_RESUME_NEVER_SEEN)
                return say_unavailable(link, id, "no call with this id has come here", AGX_VIEW("never_seen"), saying);
        if (!call)
                return say_unavailable(link, id,
                                       "the call has ended, or was cancelled before it came, and no result is kept",
                                       AGX_VIEW("dropped"), saying);
        if (has_item(link, call)) {
                agx_rpc_take_over(call);
                *again = true;
                return say_item(link, call, saying);
        }
        if (verdict == AGX_RESUME_REPLAY)
                return say_outcome(link, call, saying);
        agx_rpc_take_over(call);
        return AGX_RPC_E_NONE;
}

/* The next id of a list that has something to be said of it. What is queued as well is said in its turn. */
static int answer_list(agx_rpc_link *link, entry *e, uint64_t now, agx_rpc_saying *saying)
{
        int r = AGX_RPC_E_NONE;
        bool again = false;
        agx_view id;

        while (r == AGX_RPC_E_NONE && agx_call_acks_next(&e->walk, &id)) {
                if (id.n && id.n <= AGX_MAX_CALL_ID && !agx_rpc_queue_has_answer(link, id))
                        r = answer(link, id, now, &again, saying);
                if (!r && again && agx_rpc_queue_answer(link, id))
                        return agx_trace(-ENOMEM);
        }
        return r;
}

static int say_entry(agx_rpc_link *link, entry *e, uint64_t now, agx_rpc_saying *saying)
{
        switch (e->kind) {
        case ENTRY_ANSWER:
                e->again = false;
                return answer(link, bytes_of(e), now, &e->again, saying);
        case ENTRY_FAULT:
                return say_fault(link, bytes_of(e), &e->fault, saying);
        case ENTRY_LIST:
                return answer_list(link, e, now, saying);
        }
        return AGX_RPC_E_NONE;
}

/* Streams take turns with whatever else is to be said. */
static void put_last(agx_rpc_link *link, entry *e)
{
        agx_list_unlink(&e->node);
        agx_list_push_back(&link->queue, &e->node);
}

int agx_rpc_next(agx_rpc_link *link, uint64_t now, agx_rpc_saying *saying)
{
        if (!link->rpc)
                return AGX_RPC_E_GONE;
        if (link->failed)
                return agx_trace(-ENOMEM);
        agx_list_foreach_safe(node, &link->queue)
        {
                entry *e = agx_container_of(node, entry, node);
                int r = say_entry(link, e, now, saying);

                if (!r && e->again)
                        put_last(link, e);
                else if (r || e->kind != ENTRY_LIST || !e->walk.left)
                        free_entry(link, e);
                if (r != AGX_RPC_E_NONE)
                        return r;
        }
        return AGX_RPC_E_NONE;
}
