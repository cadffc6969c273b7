/*
 * The ledger decides what a request is; here it is only carried out. A call whose outcome cannot be stored for want of
 * memory still ends: as a fault without a payload, which the roads tell as "unavailable".
 *
 * Every end of a call passes through finish(), so the tally of each worker is right. There are few workers at a time: the
 * current one, and those that were retired.
 */
#include "server/calls.h"
#include "base/err.h"
#include "proto/limits.h"

enum { TAKE_OVER_MIN = 64 << 10 };

/* One of the two has the frame. */
typedef struct held {
        agx_list node;
        agx_call *call;
        agx_buf frame;
        agx_bulk_frame *large;
} held;

typedef struct tally {
        agx_list node;
        uint64_t worker;
        agx_calls_load load;
        bool late; /* .overdue has grown since it was asked */
} tally;

int agx_calls_init(agx_calls *c, const uint8_t seed[16])
{
        *c = (agx_calls){.queue_max = AGX_WORKER_QUEUE_BYTES};
        agx_list_init(&c->held);
        agx_list_init(&c->held_large);
        agx_list_init(&c->graces);
        agx_list_init(&c->workers);
        return agx_ledger_new(&c->ledger, seed);
}

static size_t size_of(const held *h)
{
        return h->large ? agx_bulk_frame_size(h->large) : h->frame.len;
}

static void free_held(agx_calls *c, held *h)
{
        h->call->held = NULL;
        agx_list_unlink(&h->node);
        c->held_bytes -= size_of(h);
        agx_bulk_frame_free(h->large);
        agx_buf_deinit(&h->frame);
        free(h);
}

static void free_all_held(agx_calls *c, agx_list *list)
{
        agx_list_foreach_safe(node, list)
        {
                free_held(c, agx_container_of(node, held, node));
        }
}

void agx_calls_deinit(agx_calls *c)
{
        if (!c->ledger)
                return;
        free_all_held(c, &c->held);
        free_all_held(c, &c->held_large);
        agx_list_foreach_safe(node, &c->workers)
        {
                free(agx_container_of(node, tally, node));
        }
        agx_ledger_free(c->ledger);
        c->ledger = NULL;
}

/* ---- what runs where ---- */

static tally *find_tally(const agx_calls *c, uint64_t worker)
{
        agx_list_foreach_safe(node, &c->workers)
        {
                tally *t = agx_container_of(node, tally, node);

                if (t->worker == worker)
                        return t;
        }
        return NULL;
}

/* NULL: no memory. */
static tally *make_tally(agx_calls *c, uint64_t worker)
{
        tally *t = find_tally(c, worker);

        if (t)
                return t;
        t = calloc(1, sizeof(*t));
        if (!t)
                return NULL;
        t->worker = worker;
        agx_list_push_back(&c->workers, &t->node);
        return t;
}

static void drop_tally(agx_calls *c, uint64_t worker)
{
        tally *t = find_tally(c, worker);

        if (!t)
                return;
        agx_list_unlink(&t->node);
        free(t);
}

static void start(agx_calls *c, agx_call *call, tally *t)
{
        agx_ledger_start(c->ledger, call, t->worker);
        t->load.running++;
}

agx_calls_load agx_calls_load_of(const agx_calls *c, uint64_t worker)
{
        tally *t = find_tally(c, worker);

        return t ? t->load : (agx_calls_load){0, 0};
}

/* ---- ends ---- */

/* The one way out for a call. The payload is taken over. */
static agx_call *finish(agx_calls *c, agx_call *call, bool ok, agx_buf *payload)
{
        tally *t = call->state == AGX_CALL_RUNNING ? find_tally(c, call->worker) : NULL;

        if (t) {
                t->load.running--;
                t->load.overdue -= call->overdue;
        }
        if (call->held)
                free_held(c, call->held);
        agx_list_unlink(&call->by_grace);
        agx_ledger_finish(c->ledger, call, ok, payload);
        return call;
}

static agx_call *end_with_fault(agx_calls *c, agx_call *call, const agx_fault *fault)
{
        agx_buf payload = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE + AGX_MAX_FAULT_TRACEBACK + 4096);
        agx_mp_writer w = agx_mp_writer_on(&payload);

        agx_fault_put(&w, fault);
        if (agx_mp_writer_end(&w))
                agx_buf_clear(&payload);
        return finish(c, call, false, &payload);
}

static agx_call *end_with_words(agx_calls *c, agx_call *call, agx_fault_type type, const char *words)
{
        return end_with_fault(c, call, &(agx_fault){.type = agx_fault_type_text(type), .message = agx_view_str(words)});
}

static agx_call *end_as_cancelled(agx_calls *c, agx_call *call, agx_view words)
{
        return end_with_fault(
                c, call,
                &(agx_fault){.type = agx_fault_type_text(AGX_FAULT_CANCELLED), .message = words, .cancelled = true});
}

/* Large bytes that have a buffer to themselves stay where they are; the buffer is ours from then on. */
static bool take_over(agx_buf *payload, agx_buf *backing, agx_view value)
{
        if (!backing || value.n < TAKE_OVER_MIN)
                return false;
        *payload = *backing;
        *backing = AGX_BUF_NULL(payload->max);
        payload->head = (size_t)(value.p - (const char *)payload->data);
        payload->len = value.n;
        return true;
}

static agx_call *end_with_value(agx_calls *c, agx_call *call, const agx_frame *frame)
{
        agx_buf payload = AGX_BUF_NULL(AGX_MAX_MESSAGE);

        if (take_over(&payload, frame->backing, frame->value) || !agx_buf_append_view(&payload, frame->value))
                return finish(c, call, true, &payload);
        agx_buf_deinit(&payload);
        return finish(c, call, false, &payload);
}

/* What a target raised. A reason is ours to give: there is none for a call that has begun. */
static agx_call *end_with_error(agx_calls *c, agx_call *call, agx_fault fault)
{
        fault.reason = AGX_VIEW_NULL;
        return end_with_fault(c, call, &fault);
}

/* ---- begins ---- */

static agx_frame frame_of(const agx_call_request *request)
{
        return (agx_frame){.kind = AGX_FRAME_CALL,
                           .call_id = request->call_id,
                           .callable = request->callable,
                           .arguments = request->arguments,
                           .context = request->context,
                           .has_stream = request->has_stream,
                           .stream = request->stream};
}

static int put_frame(agx_buf *out, const agx_call_request *request)
{
        agx_frame frame = frame_of(request);

        return agx_frame_put(out, &frame);
}

/* The frame of a call whose arguments are large: they stay where they are, if they have a buffer to themselves. */
static int make_large(const agx_call_request *request, agx_bulk_frame **large)
{
        agx_frame frame = frame_of(request);
        agx_bulk_frame *f = agx_bulk_frame_new(request->call_id);
        int r = f ? agx_frame_put_head(&f->head, &frame) : agx_trace(-ENOMEM);

        if (!r && !take_over(&f->body, request->backing, request->arguments))
                r = agx_buf_append_view(&f->body, request->arguments);
        if (r) {
                agx_bulk_frame_free(f);
                return r;
        }
        *large = f;
        return 0;
}

static int feed(const agx_calls_worker *worker, const agx_call_request *request)
{
        agx_bulk_frame *large;
        int r;

        if (!worker->bulk || request->arguments.n < TAKE_OVER_MIN)
                return put_frame(worker->out, request);
        r = make_large(request, &large);
        if (!r)
                agx_bulk_push(worker->bulk, large);
        return r;
}

static int hold(agx_calls *c, agx_call *call, const agx_call_request *request)
{
        held *h = calloc(1, sizeof(*h));
        int r;

        if (!h)
                return agx_trace(-ENOMEM);
        h->frame = AGX_BUF_NULL((size_t)AGX_MAX_MESSAGE + 4);
        r = request->arguments.n < TAKE_OVER_MIN ? put_frame(&h->frame, request) : make_large(request, &h->large);
        if (r) {
                agx_buf_deinit(&h->frame);
                free(h);
                return r;
        }
        h->call = call;
        call->held = h;
        c->held_bytes += size_of(h);
        agx_list_push_back(agx_bulk_in_pieces(request->arguments.n) ? &c->held_large : &c->held, &h->node);
        return 0;
}

/* What is written is past recall, and so is a call in it: so not too much is. */
static bool has_appetite(const agx_calls_worker *worker, bool large)
{
        size_t middle = worker->bulk ? worker->bulk->middle_bytes : 0;

        if (large && worker->bulk)
                return worker->bulk->large_bytes < AGX_WORKER_FED_BYTES;
        return worker->queued + middle < AGX_WORKER_FED_BYTES;
}

static bool takes_more(const agx_calls *c, const agx_calls_worker *worker, const agx_call_request *request)
{
        bool large = agx_bulk_in_pieces(request->arguments.n);

        return worker && agx_list_empty(large ? &c->held_large : &c->held) && has_appetite(worker, large);
}

static int begin(agx_calls *c, agx_call *call, const agx_call_request *request, const agx_calls_worker *worker)
{
        tally *t;
        int r;

        if (!takes_more(c, worker, request))
                return hold(c, call, request);
        t = make_tally(c, worker->number);
        if (!t)
                return agx_trace(-ENOMEM);
        r = feed(worker, request);
        if (!r)
                start(c, call, t);
        return r;
}

static const char *missing(const agx_call_request *request)
{
        if (!request->callable.p)
                return "'callable'";
        return request->arguments.p ? NULL : "'arguments'";
}

/* A new entry: starts it, or ends it on the spot. */
static agx_submit accept_new(agx_calls *c, agx_call *call, const agx_call_request *request,
                             const agx_calls_worker *worker)
{
        int r;

        call->streams = request->has_stream;
        if (missing(request)) {
                end_with_words(c, call, AGX_FAULT_KEY_ERROR, missing(request));
                return AGX_SUBMIT_ENDED;
        }
        r = begin(c, call, request, worker);
        if (!r)
                return call->held ? AGX_SUBMIT_HELD : AGX_SUBMIT_STARTED;
        if (r == AGX_FRAME_E_TOO_LARGE)
                end_with_words(c, call, AGX_FAULT_FRAME_TOO_LARGE, "the call needs a frame above the limit of 256 MiB");
        else
                end_with_words(c, call, AGX_FAULT_BUSY, "the server is out of memory");
        return AGX_SUBMIT_ENDED;
}

static void take_acks(agx_calls *c, agx_view session, agx_view acks)
{
        agx_call_acks walk = agx_call_acks_of(acks);
        agx_view id;

        while (agx_call_acks_next(&walk, &id))
                agx_ledger_ack(c->ledger, session, id);
}

static size_t on_its_way(const agx_calls_worker *worker)
{
        return worker->queued + (worker->bulk ? agx_bulk_bytes(worker->bulk) : 0);
}

/* Only a call that is new needs room; one that is not whole needs none, and what an empty queue cannot hold is let in: it is
 * too large for a frame, which is said of it there. */
static bool has_room(const agx_calls *c, const agx_call_request *request, const agx_calls_worker *worker)
{
        size_t waiting = c->held_bytes + (worker ? on_its_way(worker) : 0);

        return missing(request) || !waiting || waiting + request->arguments.n <= c->queue_max ||
               agx_ledger_knows(c->ledger, request->call_id);
}

static agx_submit refuse(agx_fault *fault, const char *words)
{
        fault->type = agx_fault_type_text(AGX_FAULT_BUSY);
        fault->message = agx_view_str(words);
        fault->reason = AGX_FAULT_NOT_TAKEN;
        return AGX_SUBMIT_FAULT;
}

int agx_calls_submit(agx_calls *c, const agx_call_request *request, agx_view session, uint64_t now,
                     const agx_calls_worker *worker, agx_submit *verdict, agx_call **call, agx_fault *fault)
{
        agx_offer offer;
        int r;

        if (request->acks.p)
                take_acks(c, session, request->acks);
        *fault = (agx_fault){0};
        *call = NULL;
        if (!has_room(c, request, worker)) {
                *verdict = refuse(fault,
                                  "more than 512 MiB would wait for the worker (AGX_WORKER_QUEUE_BYTES), so the call "
                                  "was not taken: send it again later, or fewer large ones at a time");
                return 0;
        }
        r = agx_ledger_offer(c->ledger, session, request->call_id, now, &offer, call);
        if (r)
                return r;
        switch (offer) {
        case AGX_OFFER_NEW:
                *verdict = accept_new(c, *call, request, worker);
                break;
        case AGX_OFFER_OPEN:
                *verdict = AGX_SUBMIT_OPEN;
                break;
        case AGX_OFFER_RETAINED:
                *verdict = AGX_SUBMIT_ENDED;
                break;
        case AGX_OFFER_RETIRED:
                *verdict = AGX_SUBMIT_FAULT;
                fault->type = agx_fault_type_text(AGX_FAULT_RESULT_UNAVAILABLE);
                fault->message = AGX_VIEW("the call has ended, or was cancelled before it came, and no result is kept");
                fault->reason = AGX_VIEW("dropped");
                break;
        case AGX_OFFER_BUSY:
                *verdict = refuse(fault, "too many calls are open, so this one was not taken: send it again later");
                break;
        }
        return 0;
}

static int move_frame(const agx_calls_worker *worker, held *h)
{
        size_t before = worker->out->len;
        int r;

        if (h->large && worker->bulk) {
                agx_bulk_push(worker->bulk, h->large);
                h->large = NULL;
                return 0;
        }
        if (!h->large)
                return agx_buf_append_view(worker->out, agx_buf_view(&h->frame));
        r = agx_buf_append_view(worker->out, agx_buf_view(&h->large->head));
        if (!r)
                r = agx_buf_append_view(worker->out, agx_buf_view(&h->large->body));
        if (r)
                agx_buf_truncate(worker->out, before);
        return r;
}

static agx_call *start_one(agx_calls *c, held *h, const agx_calls_worker *worker)
{
        agx_call *call = h->call;
        tally *t = make_tally(c, worker->number);
        size_t n = size_of(h);

        if (!t || move_frame(worker, h))
                return end_with_words(c, call, AGX_FAULT_BUSY, "the server is out of memory");
        c->held_bytes -= n - size_of(h);
        free_held(c, h);
        start(c, call, t);
        return NULL;
}

agx_call *agx_calls_start_held(agx_calls *c, const agx_calls_worker *worker)
{
        agx_list *lists[] = {&c->held, &c->held_large};
        agx_calls_worker now = *worker;
        size_t before = worker->out->len;
        agx_call *failed = NULL;

        for (size_t i = 0; i < 2; i++)
                while (!failed && !agx_list_empty(lists[i]) && has_appetite(&now, i == 1)) {
                        failed = start_one(c, agx_container_of(agx_list_first(lists[i]), held, node), worker);
                        now.queued = worker->queued + worker->out->len - before;
                }
        return failed;
}

/* ---- from the worker ---- */

static bool runs_in(const agx_call *call, uint64_t worker)
{
        return call && call->state == AGX_CALL_RUNNING && call->worker == worker;
}

bool agx_calls_runs(const agx_calls *c, uint64_t worker, agx_view call_id)
{
        const agx_call *call = agx_ledger_open(c->ledger, call_id);

        return runs_in(call, worker) && !call->cancelled;
}

agx_call *agx_calls_frame(agx_calls *c, uint64_t worker, const agx_frame *frame, const char **odd)
{
        agx_call *call;

        *odd = NULL;
        if (frame->kind != AGX_FRAME_RESULT && frame->kind != AGX_FRAME_ERROR) {
                *odd = "a frame that is not a worker's to send";
                return NULL;
        }
        call = agx_ledger_open(c->ledger, frame->call_id);
        if (!runs_in(call, worker)) {
                *odd = "the outcome of a call that does not run there";
                return NULL;
        }
        return frame->kind == AGX_FRAME_RESULT ? end_with_value(c, call, frame) : end_with_error(c, call, frame->fault);
}

agx_call *agx_calls_item(agx_calls *c, uint64_t worker, const agx_frame *frame, bool *ended, const char **odd)
{
        agx_call *call = agx_ledger_open(c->ledger, frame->call_id);
        agx_buf value = AGX_BUF_NULL(AGX_MAX_MESSAGE);

        *odd = NULL;
        *ended = false;
        if (!runs_in(call, worker) || !call->streams || frame->seq != call->items.next) {
                *odd = "an item that no call waits for";
                return NULL;
        }
        if ((!take_over(&value, frame->backing, frame->value) && agx_buf_append_view(&value, frame->value)) ||
            agx_ledger_add_item(c->ledger, call, &value))
                *ended = true;
        agx_buf_deinit(&value);
        if (*ended)
                end_with_words(c, call, AGX_FAULT_BUSY, "too many bytes of items wait for hosts to consume them");
        return call;
}

agx_call *agx_calls_credit(agx_calls *c, agx_view session, agx_view id, uint64_t n)
{
        agx_call *call = agx_ledger_credit(c->ledger, session, id, n);

        return call && call->state == AGX_CALL_RUNNING ? call : NULL;
}

int agx_calls_put_credit(agx_buf *out, const agx_call *call, uint64_t n)
{
        return agx_frame_put(out, &(agx_frame){.kind = AGX_FRAME_CREDIT, .call_id = agx_call_id(call), .n = n});
}

agx_call *agx_calls_worker_died(agx_calls *c, uint64_t worker, const agx_fault *fault)
{
        agx_call *call = agx_ledger_running_in(c->ledger, worker);

        if (!call) {
                drop_tally(c, worker);
                return NULL;
        }
        if (call->overdue)
                return end_as_cancelled(c, call, AGX_VIEW("the remote call was cancelled, and its worker was killed"));
        return end_with_fault(c, call, fault);
}

agx_call *agx_calls_unavailable(agx_calls *c, const agx_fault *fault)
{
        agx_list *node = agx_list_first(agx_list_empty(&c->held) ? &c->held_large : &c->held);

        return node ? end_with_fault(c, agx_container_of(node, held, node)->call, fault) : NULL;
}

/* ---- cancelling ---- */

/* In order of time. Graces are mostly alike, so that the place is mostly the last. */
static void count_grace(agx_calls *c, agx_call *call, uint64_t at)
{
        agx_list *after = c->graces.prev;

        while (after != &c->graces && agx_container_of(after, agx_call, by_grace)->grace_at > at)
                after = after->prev;
        call->grace_at = at;
        agx_list_push_back(after->next, &call->by_grace); /* that is, before the one that follows */
}

int agx_calls_cancel(agx_calls *c, agx_view session, agx_view id, uint64_t grace_ms, uint64_t now, agx_cancel *verdict,
                     agx_call **call)
{
        int r = agx_ledger_cancel(c->ledger, session, id, call);

        *verdict = AGX_CANCEL_NOTHING;
        if (r || !*call)
                return r;
        if ((*call)->state == AGX_CALL_ACCEPTED) {
                end_as_cancelled(c, *call, AGX_VIEW("the remote call was cancelled before it had begun"));
                *verdict = AGX_CANCEL_ENDED;
                return 0;
        }
        count_grace(c, *call, now + grace_ms);
        *verdict = AGX_CANCEL_RUNNING;
        return 0;
}

int agx_calls_put_cancel(agx_buf *out, const agx_call *call)
{
        return agx_frame_put(out, &(agx_frame){.kind = AGX_FRAME_CANCEL, .call_id = agx_call_id(call)});
}

uint64_t agx_calls_deadline(const agx_calls *c)
{
        agx_list *first = agx_list_first(&c->graces);

        return first ? agx_container_of(first, agx_call, by_grace)->grace_at : UINT64_MAX;
}

static void mark_overdue(agx_calls *c, agx_call *call)
{
        tally *t = find_tally(c, call->worker);

        agx_list_unlink(&call->by_grace);
        call->overdue = true;
        t->load.overdue++;
        t->late = true;
}

uint64_t agx_calls_overdue(agx_calls *c, uint64_t now)
{
        while (agx_calls_deadline(c) <= now)
                mark_overdue(c, agx_container_of(agx_list_first(&c->graces), agx_call, by_grace));
        agx_list_foreach_safe(node, &c->workers)
        {
                tally *t = agx_container_of(node, tally, node);

                if (t->late) {
                        t->late = false;
                        return t->worker;
                }
        }
        return 0;
}
