/*
 * Calls by id in one map; each call also stands in the list of its state, where age orders it. Running calls are spread
 * over a few lists by worker, so that the calls of one dying worker are found without walking past another's. Results
 * that expire stand in a second list; all expire after the same time, so appending keeps it in order.
 *
 * A new id is recorded as the last step of an offer, after everything that can fail. Retiring never fails: room in the
 * ring of foreign ids is reserved when such a call is accepted.
 */
#include "server/ledger.h"
#include "base/err.h"
#include "proto/limits.h"
#include "server/sessions.h"

#include <stdlib.h>

enum { RUNNING_LISTS = 16 };

struct agx_ledger {
        agx_ledger_bounds bounds;
        agx_map calls;
        agx_sessions sessions;
        agx_idring foreign;
        agx_list accepted;
        agx_list running[RUNNING_LISTS];
        agx_list retained;
        agx_list expiring;
        size_t n_open;
        size_t n_foreign; /* calls that will go into the ring */
        size_t n_retained, retained_bytes;
        size_t n_kept, kept_bytes;
        size_t item_bytes; /* of open calls */
        uint64_t evicted;
        size_t last_evicted_n;
        char last_evicted[AGX_MAX_CALL_ID];
};

const agx_ledger_bounds agx_ledger_bounds_default = {
        .calls_max = AGX_LEDGER_CALLS_MAX,
        .kept_max = AGX_LEDGER_KEPT_MAX,
        .kept_bytes = AGX_LEDGER_KEPT_BYTES,
        .item_bytes = AGX_LEDGER_ITEM_BYTES,
        .inline_ms = AGX_LEDGER_INLINE_MS,
        .window = AGX_LEDGER_WINDOW,
        .sessions_max = AGX_LEDGER_SESSIONS_MAX,
        .forgotten_max = AGX_LEDGER_FORGOTTEN_MAX,
        .foreign_max = AGX_LEDGER_FOREIGN_MAX,
};

/* ---- helpers ---- */

static agx_call *find(const agx_ledger *l, agx_view id)
{
        agx_map_node *node = agx_map_find(&l->calls, id);

        return node ? agx_container_of(node, agx_call, by_id) : NULL;
}

static bool is_open(const agx_call *call)
{
        return call->state != AGX_CALL_RETAINED;
}

static agx_list *running_list(agx_ledger *l, uint64_t worker)
{
        return &l->running[worker % RUNNING_LISTS];
}

/* The id has run or may have. */
static bool is_retired(const agx_ledger *l, agx_view id)
{
        return agx_sessions_seen(&l->sessions, id) || agx_idring_find(&l->foreign, id, NULL);
}

/* Whether the id belongs into the window of the session that offers it. */
static bool is_own(agx_view session, agx_view id, uint64_t *number)
{
        agx_view name;

        return session.n && agx_sessions_split(id, &name, number) && agx_view_eq(name, session);
}

static void set_list(agx_call *call, agx_list *list)
{
        agx_list_unlink(&call->in_order);
        agx_list_push_back(list, &call->in_order);
}

static void free_call(agx_call *call)
{
        agx_list_unlink(&call->in_order);
        agx_list_unlink(&call->by_expiry);
        agx_buf_deinit(&call->payload);
        agx_items_deinit(&call->items);
        free(call);
}

/* Takes a RETAINED call off the table; its id stays known. */
static void retire(agx_ledger *l, agx_call *call)
{
        --l->n_retained;
        l->retained_bytes -= call->bytes;
        if (call->kept) {
                --l->n_kept;
                l->kept_bytes -= call->bytes;
        }
        if (call->foreign) {
                --l->n_foreign;
                agx_idring_add(&l->foreign, agx_call_id(call), 0);
        }
        if (call->session)
                agx_sessions_release(&l->sessions, call->session);
        agx_map_remove(&l->calls, &call->by_id);
        free_call(call);
}

/* The same on behalf of a host, which must wait while the server still delivers the result. */
static void retire_or_mark(agx_ledger *l, agx_call *call)
{
        if (call->kept)
                retire(l, call);
        else
                call->dropped = true;
}

static void evict(agx_ledger *l, agx_call *call)
{
        agx_view id = agx_view_first(agx_call_id(call), sizeof(l->last_evicted));

        memcpy(l->last_evicted, id.p, id.n);
        l->last_evicted_n = id.n;
        ++l->evicted;
        retire(l, call);
}

static void enforce_bounds(agx_ledger *l)
{
        agx_list_foreach_safe(node, &l->retained)
        {
                agx_call *call = agx_container_of(node, agx_call, in_order);

                if (l->n_kept <= l->bounds.kept_max && l->kept_bytes <= l->bounds.kept_bytes)
                        return;
                if (call->kept)
                        evict(l, call);
        }
}

static void set_kept(agx_ledger *l, agx_call *call, uint64_t expires_ms)
{
        if (!call->kept) {
                call->kept = true;
                ++l->n_kept;
                l->kept_bytes += call->bytes;
        }
        call->expires_ms = expires_ms;
        agx_list_unlink(&call->by_expiry);
        if (expires_ms != UINT64_MAX)
                agx_list_push_back(&l->expiring, &call->by_expiry);
        enforce_bounds(l);
}

agx_view agx_call_session(const agx_call *call)
{
        return call->session ? call->session->by_name.key : AGX_VIEW_NULL;
}

/* ---- lifecycle ---- */

int agx_ledger_new(agx_ledger **ledger, const uint8_t seed[16])
{
        return agx_ledger_new_bounded(ledger, seed, &agx_ledger_bounds_default);
}

int agx_ledger_new_bounded(agx_ledger **ledger, const uint8_t seed[16], const agx_ledger_bounds *bounds)
{
        agx_ledger *l = calloc(1, sizeof(*l));

        if (!l)
                return agx_trace(-ENOMEM);
        l->bounds = *bounds;
        agx_map_init(&l->calls, seed);
        agx_sessions_init(&l->sessions, seed, bounds->sessions_max, bounds->forgotten_max, bounds->window);
        agx_idring_init(&l->foreign, l->calls.seed, bounds->foreign_max);
        agx_list_init(&l->accepted);
        for (size_t i = 0; i < RUNNING_LISTS; ++i)
                agx_list_init(&l->running[i]);
        agx_list_init(&l->retained);
        agx_list_init(&l->expiring);
        *ledger = l;
        return 0;
}

void agx_ledger_free(agx_ledger *l)
{
        agx_map_node *node;

        if (!l)
                return;
        while ((node = agx_map_any(&l->calls))) {
                agx_map_remove(&l->calls, node);
                free_call(agx_container_of(node, agx_call, by_id));
        }
        agx_map_deinit(&l->calls);
        agx_sessions_deinit(&l->sessions);
        agx_idring_deinit(&l->foreign);
        free(l);
}

/* ---- a call or a repeat of one ---- */

static agx_call *make_call(agx_view session, agx_view id)
{
        agx_call *call = calloc(1, sizeof(*call) + id.n);

        if (!call)
                return NULL;
        memcpy(call + 1, id.p, id.n);
        call->by_id.key = agx_view_of(call + 1, id.n);
        call->state = AGX_CALL_ACCEPTED;
        call->anonymous = !session.n;
        call->expires_ms = UINT64_MAX;
        agx_list_init(&call->in_order);
        agx_list_init(&call->by_expiry);
        agx_list_init(&call->by_grace);
        agx_items_init(&call->items);
        return call;
}

/* Everything that can fail in accepting a call, and nothing that shows when it did. */
static int prepare(agx_ledger *l, agx_view session, agx_call *call)
{
        int r = 0;

        if (call->foreign)
                r = agx_idring_reserve(&l->foreign, l->foreign.count + l->n_foreign + 1);
        if (!r)
                r = agx_map_insert(&l->calls, &call->by_id);
        if (r || !session.n)
                return r;
        r = agx_sessions_make(&l->sessions, session, &call->session);
        if (r)
                agx_map_remove(&l->calls, &call->by_id);
        return r;
}

static int accept_call(agx_ledger *l, agx_view session, agx_view id, agx_call **ret)
{
        agx_call *call = make_call(session, id);
        uint64_t number = 0;
        int r;

        if (!call)
                return agx_trace(-ENOMEM);
        call->foreign = !is_own(session, id, &number);
        r = prepare(l, session, call);
        if (r) {
                free(call);
                return r;
        }
        if (call->session)
                agx_sessions_hold(&l->sessions, call->session);
        if (call->foreign)
                ++l->n_foreign;
        else
                agx_idwindow_add(&call->session->window, number);
        agx_list_push_back(&l->accepted, &call->in_order);
        ++l->n_open;
        *ret = call;
        return 0;
}

/* Whether the one who asks may have the call. The first session that asks for an anonymous call gets it. */
static int claim(agx_ledger *l, agx_view session, agx_call *call, bool *mine)
{
        agx_session *taker;
        int r;

        *mine = !session.n ? call->anonymous : call->session && agx_view_eq(call->session->by_name.key, session);
        if (*mine || !call->anonymous)
                return 0;
        r = agx_sessions_make(&l->sessions, session, &taker);
        if (r)
                return r;
        agx_sessions_hold(&l->sessions, taker);
        call->session = taker;
        call->anonymous = false;
        *mine = true;
        return 0;
}

/* The call, if it is there and belongs to the one who asks. Takes nothing over. */
static agx_call *find_mine(agx_ledger *l, agx_view session, agx_view id)
{
        agx_call *call = find(l, id);
        agx_session *asking = session.n ? agx_sessions_use(&l->sessions, session) : NULL;

        if (!call || call->dropped || (session.n && !asking))
                return NULL;
        return call->session == asking ? call : NULL;
}

int agx_ledger_offer(agx_ledger *l, agx_view session, agx_view id, uint64_t now_ms, agx_offer *verdict, agx_call **ret)
{
        agx_call *call = find(l, id);
        bool mine;
        int r;

        (void)now_ms;
        *ret = NULL;
        *verdict = AGX_OFFER_RETIRED;
        if (session.n)
                agx_sessions_use(&l->sessions, session);
        if (call) {
                r = claim(l, session, call, &mine);
                if (r || !mine || call->dropped)
                        return r;
                *verdict = is_open(call) ? AGX_OFFER_OPEN : AGX_OFFER_RETAINED;
                *ret = call;
                return 0;
        }
        if (is_retired(l, id))
                return 0;
        *verdict = l->n_open < l->bounds.calls_max ? AGX_OFFER_NEW : AGX_OFFER_BUSY;
        return *verdict == AGX_OFFER_NEW ? accept_call(l, session, id, ret) : 0;
}

bool agx_ledger_knows(const agx_ledger *l, agx_view id)
{
        return find(l, id) || is_retired(l, id);
}

void agx_ledger_start(agx_ledger *l, agx_call *call, uint64_t worker)
{
        if (call->state != AGX_CALL_ACCEPTED)
                return;
        call->state = AGX_CALL_RUNNING;
        call->worker = worker;
        set_list(call, running_list(l, worker));
}

void agx_ledger_finish(agx_ledger *l, agx_call *call, bool ok, agx_buf *payload)
{
        agx_buf taken = *payload;

        *payload = AGX_BUF_NULL(taken.max);
        if (!is_open(call)) {
                agx_buf_deinit(&taken);
                return;
        }
        call->state = AGX_CALL_RETAINED;
        call->ok = ok;
        call->payload = taken;
        call->bytes = taken.len + call->items.bytes;
        set_list(call, &l->retained);
        --l->n_open;
        ++l->n_retained;
        l->retained_bytes += call->bytes;
        l->item_bytes -= call->items.bytes;
}

void agx_ledger_answered(agx_ledger *l, agx_call *call, uint64_t now_ms)
{
        if (is_open(call))
                return;
        if (call->dropped || call->anonymous)
                retire(l, call);
        else
                set_kept(l, call, now_ms + l->bounds.inline_ms);
}

void agx_ledger_keep(agx_ledger *l, agx_call *call)
{
        if (is_open(call))
                return;
        if (call->dropped)
                retire(l, call);
        else
                set_kept(l, call, UINT64_MAX);
}

/* ---- what hosts ask ---- */

int agx_ledger_resume(agx_ledger *l, agx_view session, agx_view id, uint64_t now_ms, agx_resume *answer, agx_call **ret)
{
        agx_call *call = find(l, id);
        bool mine;
        int r;

        (void)now_ms;
        *ret = NULL;
        *answer = AGX_RESUME_DROPPED;
        if (session.n)
                agx_sessions_use(&l->sessions, session);
        if (!call) {
                if (!is_retired(l, id))
                        *answer = AGX_RESUME_NEVER_SEEN;
                return 0;
        }
        r = claim(l, session, call, &mine);
        if (r || !mine || call->dropped)
                return r;
        *answer = is_open(call) ? AGX_RESUME_OPEN : AGX_RESUME_REPLAY;
        *ret = call;
        return 0;
}

void agx_ledger_ack(agx_ledger *l, agx_view session, agx_view id)
{
        agx_call *call = find_mine(l, session, id);

        if (call && !is_open(call))
                retire_or_mark(l, call);
}

/* Ids of other forms have no place to be remembered in before they come. */
static int retire_unborn(agx_ledger *l, agx_view session, agx_view id)
{
        agx_session *owner;
        uint64_t number;
        int r;

        if (!is_own(session, id, &number) || is_retired(l, id))
                return 0;
        r = agx_sessions_make(&l->sessions, session, &owner);
        if (r)
                return r;
        agx_idwindow_add(&owner->window, number);
        agx_sessions_hold(&l->sessions, owner); /* and let go of, so that it stands in its place among the unused */
        agx_sessions_release(&l->sessions, owner);
        return 0;
}

int agx_ledger_cancel(agx_ledger *l, agx_view session, agx_view id, agx_call **ret)
{
        agx_call *call = find_mine(l, session, id);

        *ret = NULL;
        if (!call)
                return find(l, id) ? 0 : retire_unborn(l, session, id);
        if (!is_open(call)) {
                retire_or_mark(l, call);
        } else if (!call->cancelled) {
                call->cancelled = true;
                *ret = call;
        }
        return 0;
}

/* What items were dropped, off the sums they count in. */
static void uncount_items(agx_ledger *l, agx_call *call, size_t n)
{
        if (is_open(call)) {
                l->item_bytes -= n;
                return;
        }
        call->bytes -= n;
        l->retained_bytes -= n;
        if (call->kept)
                l->kept_bytes -= n;
}

agx_call *agx_ledger_credit(agx_ledger *l, agx_view session, agx_view id, uint64_t n)
{
        agx_call *call = find_mine(l, session, id);
        size_t before;

        if (!call || !call->streams)
                return NULL;
        before = call->items.bytes;
        agx_items_ack(&call->items, n);
        uncount_items(l, call, before - call->items.bytes);
        return is_open(call) ? call : NULL;
}

/* ---- what the worker's side asks ---- */

int agx_ledger_add_item(agx_ledger *l, agx_call *call, agx_buf *value)
{
        size_t n = value->len, before = call->items.bytes;
        int r;

        if (l->item_bytes > l->bounds.item_bytes || n > l->bounds.item_bytes - l->item_bytes)
                return AGX_LEDGER_E_FULL;
        r = agx_items_add(&call->items, value);
        if (!r)
                l->item_bytes += call->items.bytes - before;
        return r;
}

agx_call *agx_ledger_open(agx_ledger *l, agx_view id)
{
        agx_call *call = find(l, id);

        return call && is_open(call) ? call : NULL;
}

agx_call *agx_ledger_running_in(agx_ledger *l, uint64_t worker)
{
        agx_list_foreach_safe(node, running_list(l, worker))
        {
                agx_call *call = agx_container_of(node, agx_call, in_order);

                if (call->worker == worker)
                        return call;
        }
        return NULL;
}

agx_call *agx_ledger_accepted(agx_ledger *l)
{
        agx_list *first = agx_list_first(&l->accepted);

        return first ? agx_container_of(first, agx_call, in_order) : NULL;
}

/* ---- time and bounds ---- */

uint64_t agx_ledger_tick(agx_ledger *l, uint64_t now_ms)
{
        agx_list *first;

        while ((first = agx_list_first(&l->expiring))) {
                agx_call *call = agx_container_of(first, agx_call, by_expiry);

                if (call->expires_ms > now_ms)
                        return call->expires_ms;
                retire(l, call);
        }
        return UINT64_MAX;
}

agx_ledger_counts agx_ledger_count(const agx_ledger *l)
{
        return (agx_ledger_counts){
                .open = l->n_open,
                .retained = l->n_retained,
                .retained_bytes = l->retained_bytes,
                .item_bytes = l->item_bytes,
                .sessions = l->sessions.by_name.count,
                .foreign = l->foreign.count,
                .evicted = l->evicted,
        };
}

agx_view agx_ledger_last_evicted(const agx_ledger *l)
{
        return l->evicted ? agx_view_of(l->last_evicted, l->last_evicted_n) : AGX_VIEW_NULL;
}
