/*
 * The table of calls. A call gets its number when it is first sent, so the order of numbers is the order of sending and
 * a call that never left takes no number. `unanswered` therefore is sorted by itself, and its first element says how
 * far ahead new numbers may run: the server tells apart only so many ids of a session. A call that the server has
 * said to have holds up nobody, however long it runs: it is `settled`, and its id known there until it is acknowledged. So
 * many calls are under way at most all the same, since the server keeps no more results.
 *
 * A server that has no room for a call says so and forgets it. Such calls are kept here and sent again, the oldest first: one,
 * then twice as many as long as they are taken; after one that is refused again there is a pause, which doubles. Such a no is
 * of that one sending: if an earlier one went down with its connection, it may still come, and be taken, so that the
 * call is `in_doubt` until it has an outcome.
 */
#include "base/err.h"
#include "client/state.h"

#include <stdio.h>

enum { TRY_MAX = 64 };

static agx_client_call *memory_for_one(agx_client *c)
{
        agx_list *node = agx_list_first(&c->spare_calls);

        if (!node)
                return malloc(sizeof(agx_client_call));
        --c->n_spare_calls;
        agx_list_unlink(node);
        return agx_container_of(node, agx_client_call, link);
}

int agx_calls_new(agx_client *c, call_kind kind, bool by_link, void *user, agx_client_call **callp)
{
        agx_client_call *call = memory_for_one(c);

        if (!call)
                return agx_trace(-ENOMEM);
        *call = (agx_client_call){.state = CALL_WAITING};
        call->kind = kind;
        call->by_link = by_link;
        call->user = user;
        call->allowed_ms = UINT64_MAX;
        call->deadline_ms = UINT64_MAX;
        agx_list_init(&call->link);
        agx_list_init(&call->unanswered);
        agx_list_init(&call->deadline);
        agx_flow_init(call);
        agx_calls_queue(c, call);
        *callp = call;
        return 0;
}

void agx_calls_tried(agx_client *c, agx_client_call *call)
{
        c->n_trying -= call->trying;
        call->trying = false;
}

/* There was room for it, so there may be for more. */
static void is_taken(agx_client *c, agx_client_call *call)
{
        agx_calls_tried(c, call);
        c->try_pause = AGX_CLIENT_TRY_MIN_MS;
        c->try_max = c->try_max < TRY_MAX / 2 ? 2 * c->try_max : TRY_MAX;
}

/* Puts `call` into `list` before the first that comes after it, looking from the end. */
void agx_calls_insert(agx_list *list, agx_client_call *call)
{
        agx_list *at = list->prev;

        while (at != list && agx_container_of(at, agx_client_call, link)->counter > call->counter)
                at = at->prev;
        agx_list_push_back(at->next, &call->link);
}

void agx_calls_queue(agx_client *c, agx_client_call *call)
{
        call->state = CALL_WAITING;
        *(call->by_link ? &c->n_linked : &c->n_waiting) += 1;
        if (call->counter)
                agx_calls_insert(call->by_link ? &c->link_resend : &c->resend, call);
        else
                agx_list_push_back(call->by_link ? &c->link_queue : &c->queue, &call->link);
}

void agx_calls_pause(agx_client *c, agx_client_call *call, uint64_t until_ms)
{
        agx_list *at = c->paused.prev;

        call->state = CALL_PAUSED;
        call->pause_ms = until_ms;
        ++c->n_paused;
        while (at != &c->paused && agx_container_of(at, agx_client_call, link)->pause_ms > until_ms)
                at = at->prev;
        agx_list_push_back(at->next, &call->link);
}

void agx_calls_unlink(agx_client *c, agx_client_call *call)
{
        if (call->state == CALL_LINKED || (call->state == CALL_WAITING && call->by_link))
                --c->n_linked;
        else if (call->state == CALL_WAITING)
                --c->n_waiting;
        else if (call->state == CALL_PAUSED)
                --c->n_paused;
        else if (call->state == CALL_REFUSED)
                --c->n_refused;
        else if (call->state == CALL_SENT && call->trying)
                is_taken(c, call);
        if (call->conn)
                call->conn->call = NULL;
        call->conn = NULL;
        agx_list_unlink(&call->link);
}

void agx_calls_start_clock(agx_client *c, agx_client_call *call, uint64_t now_ms)
{
        agx_list *at = c->deadlines.prev;

        if (call->allowed_ms == UINT64_MAX || call->deadline_ms != UINT64_MAX)
                return;
        call->deadline_ms = now_ms + call->allowed_ms;
        while (at != &c->deadlines && agx_container_of(at, agx_client_call, deadline)->deadline_ms > call->deadline_ms)
                at = at->prev;
        agx_list_push_back(at->next, &call->deadline);
}

void agx_calls_start_clocks(agx_client *c, uint64_t now_ms)
{
        agx_list_foreach_safe(node, &c->queue)
                agx_calls_start_clock(c, agx_container_of(node, agx_client_call, link), now_ms);
        agx_list_foreach_safe(node, &c->link_queue)
                agx_calls_start_clock(c, agx_container_of(node, agx_client_call, link), now_ms);
}

void agx_calls_number(agx_client *c, agx_client_call *call)
{
        if (call->counter)
                return;
        call->counter = ++c->counter;
        c->numbered[call->counter % AGX_LEDGER_WINDOW] = call;
        agx_list_push_back(&c->unanswered, &call->unanswered);
        ++c->n_numbered;
}

/* Those that were overtaken by a whole window have lost their slot, and are few and settled. */
static agx_client_call *find_settled(const agx_client *c, uint64_t counter)
{
        agx_list_foreach_safe(node, &c->settled)
        {
                agx_client_call *call = agx_container_of(node, agx_client_call, unanswered);

                if (call->counter == counter)
                        return call;
        }
        return NULL;
}

static bool has_slot(const agx_client *c, const agx_client_call *call)
{
        return c->numbered[call->counter % AGX_LEDGER_WINDOW] == call;
}

agx_client_call *agx_calls_find(const agx_client *c, uint64_t counter)
{
        agx_client_call *call = c->numbered[counter % AGX_LEDGER_WINDOW];

        if (!counter)
                return NULL;
        return call && call->counter == counter ? call : find_settled(c, counter);
}

void agx_calls_settle(agx_client *c, agx_client_call *call)
{
        call->accepted = true;
        if (agx_list_empty(&call->unanswered))
                return;
        agx_list_unlink(&call->unanswered);
        agx_list_push_back(&c->settled, &call->unanswered);
}

void agx_calls_unsettle(agx_client *c, agx_client_call *call)
{
        agx_list *at = c->unanswered.prev;

        if (!call->accepted)
                return;
        call->accepted = false;
        if (agx_list_empty(&call->unanswered) || !has_slot(c, call))
                return;
        while (at != &c->unanswered && agx_container_of(at, agx_client_call, unanswered)->counter > call->counter)
                at = at->prev;
        agx_list_unlink(&call->unanswered);
        agx_list_push_back(at->next, &call->unanswered);
}

static void forget_number(agx_client *c, agx_client_call *call)
{
        if (!agx_list_empty(&call->unanswered))
                --c->n_numbered;
        agx_list_unlink(&call->unanswered);
        if (has_slot(c, call))
                c->numbered[call->counter % AGX_LEDGER_WINDOW] = NULL;
}

void agx_calls_forget(agx_client *c, agx_client_call *call)
{
        forget_number(c, call);
        agx_calls_tried(c, call);
        agx_list_unlink(&call->deadline);
        agx_list_unlink(&call->crediting);
}

void agx_calls_unnumber(agx_client *c, agx_client_call *call)
{
        if (!call->counter || call->losses || call->polls || call->reasks || call->tries || call->counter != c->counter)
                return;
        forget_number(c, call);
        call->counter = 0;
        call->generation = 0;
        --c->counter;
}

bool agx_calls_held(const agx_client *c)
{
        agx_list *first = agx_list_first(&c->unanswered);

        if (c->n_numbered >= AGX_LEDGER_WINDOW - 1)
                return true;
        return first &&
               c->counter + 1 - agx_container_of(first, agx_client_call, unanswered)->counter >= AGX_LEDGER_WINDOW - 1;
}

agx_client_call *agx_calls_ready(const agx_client *c)
{
        agx_list *node = agx_list_first(&c->resend);

        if (!node && (node = agx_list_first(&c->queue)) &&
            agx_container_of(node, agx_client_call, link)->kind == CALL_RUN && agx_calls_held(c))
                node = NULL;
        return node ? agx_container_of(node, agx_client_call, link) : NULL;
}

void agx_calls_finish(agx_client *c, agx_client_call *call, agx_client_outcome outcome)
{
        agx_calls_unlink(c, call);
        agx_calls_forget(c, call);
        call->sending = false;
        call->result.outcome = outcome;
        call->state = CALL_DONE;
        agx_list_push_back(&c->done, &call->link);
        ++c->finished;
}

/* Whatever was sent of it, the server has said that it did not take: it waits here, and nowhere else. */
static bool has_not_run(const agx_client_call *call)
{
        return !call->in_doubt && !call->accepted &&
               (call->state == CALL_WAITING || call->state == CALL_PAUSED || call->state == CALL_REFUSED);
}

void agx_calls_unreachable(agx_client *c, agx_client_call *call, const char *why)
{
        const char *unknown = !call->counter      ? ""
                              : has_not_run(call) ? "; the call has not run"
                                                  : "; whether the call has run is unknown";

        snprintf(call->result.why, sizeof(call->result.why), "%.*s%s", (int)(AGX_CLIENT_WHY_MAX - 48), why, unknown);
        agx_calls_finish(c, call, AGX_CLIENT_UNREACHABLE);
}

void agx_calls_fault(agx_client *c, agx_client_call *call, agx_fault_type type, const char *message, const char *reason)
{
        call->result.fault = (agx_fault){
                .type = agx_fault_type_text(type),
                .message = agx_view_str(message),
                .reason = reason ? agx_view_str(reason) : AGX_VIEW_NULL,
        };
        agx_calls_finish(c, call, AGX_CLIENT_FAULT);
}

void agx_calls_instance_changed(agx_client *c, agx_client_call *call)
{
        agx_calls_fault(
                c, call, AGX_FAULT_RESULT_UNAVAILABLE,
                has_not_run(call)
                        ? "the runtime was restarted before it had room for the call, which has not run"
                        : "the runtime was restarted while the call was in flight; whether it has run is unknown",
                "instance_changed");
}

void agx_calls_fail_waiting(agx_client *c, const char *why)
{
        agx_list *const lists[] = {&c->resend, &c->queue, &c->paused, &c->refused};

        for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i)
                agx_list_foreach_safe(node, lists[i])
                        agx_calls_unreachable(c, agx_container_of(node, agx_client_call, link), why);
}

uint64_t agx_calls_backoff(agx_client *c, unsigned nth)
{
        uint64_t delay = c->config.delay_ms;

        for (; nth > 1 && delay < c->config.delay_max_ms; --nth)
                delay *= 2;
        if (delay > c->config.delay_max_ms)
                delay = c->config.delay_max_ms;
        c->random ^= c->random << 13; /* xorshift: spread, not secrecy */
        c->random ^= c->random >> 7;
        c->random ^= c->random << 17;
        return delay * (100 - c->config.jitter + c->random % (2 * c->config.jitter + 1)) / 100;
}

void agx_calls_lost(agx_client *c, agx_client_call *call, const char *why, uint64_t now_ms)
{
        agx_calls_unlink(c, call);
        ++call->losses;
        call->in_doubt = true;
        call->polls = 0;
        if (!c->config.reconnect || (c->config.attempts && call->losses > c->config.attempts)) {
                call->state = CALL_TAKEN;
                agx_calls_unreachable(c, call, why);
        } else if (call->kind == CALL_RUN && agx_road_is_open(c)) { /* the link has no word for the others */
                agx_road_await(c, call);
        } else if (call->losses == 1) {
                agx_calls_queue(c, call);
        } else {
                agx_calls_pause(c, call, now_ms + agx_calls_backoff(c, call->losses - 1));
        }
}

/* ---- those that the server has no room for ---- */

static uint64_t longer(uint64_t pause)
{
        return 2 * pause < AGX_CLIENT_TRY_MAX_MS ? 2 * pause : AGX_CLIENT_TRY_MAX_MS;
}

void agx_calls_refused(agx_client *c, agx_client_call *call, uint64_t now_ms)
{
        agx_calls_tried(c, call);
        agx_calls_unlink(c, call);
        call->in_doubt = call->in_doubt || call->accepted; /* it breaks its word */
        agx_calls_unsettle(c, call);
        call->state = CALL_REFUSED;
        agx_calls_insert(&c->refused, call);
        c->try_max = 1;
        if (!c->n_refused++ && !call->tries)
                c->try_pause = AGX_CLIENT_TRY_MIN_MS;
        else if (call->tries && now_ms >= c->try_ms)
                c->try_pause = longer(c->try_pause);
        if (now_ms >= c->try_ms) /* else it was on its way before others were refused */
                c->try_ms = now_ms + c->try_pause;
}

void agx_calls_try(agx_client *c, uint64_t now_ms)
{
        agx_list *node;

        while (now_ms >= c->try_ms && c->n_trying < c->try_max && (node = agx_list_first(&c->refused))) {
                agx_client_call *call = agx_container_of(node, agx_client_call, link);

                agx_calls_unlink(c, call);
                call->trying = true;
                ++call->tries;
                ++c->n_trying;
                call->by_link = call->by_link && agx_road_is_open(c);
                agx_calls_queue(c, call);
        }
}

uint64_t agx_calls_try_timer(const agx_client *c)
{
        return c->n_refused && c->n_trying < c->try_max ? c->try_ms : UINT64_MAX;
}

void agx_calls_ack(agx_client *c, uint64_t counter)
{
        if (c->n_acks == AGX_CLIENT_ACKS_KEPT) { /* the server lets an answered result go by itself */
                c->ack_first = (c->ack_first + 1) % AGX_CLIENT_ACKS_KEPT;
                --c->n_acks;
        }
        c->acks[(c->ack_first + c->n_acks++) % AGX_CLIENT_ACKS_KEPT] = counter;
}

void agx_calls_ack_again(agx_client *c, agx_buf *counters)
{
        uint64_t counter;

        for (; counters->len; agx_buf_consume(counters, sizeof(counter))) {
                memcpy(&counter, agx_buf_view(counters).p, sizeof(counter));
                agx_calls_ack(c, counter);
        }
}

agx_view agx_calls_id(const agx_client *c, uint64_t counter, char id[AGX_CLIENT_ID_MAX + 1])
{
        char digits[AGX_CLIENT_ID_MAX];
        size_t n = strlen(c->name), n_digits = 0;

        memcpy(id, c->name, n);
        id[n++] = '-';
        do
                digits[n_digits++] = (char)('0' + counter % 10);
        while (counter /= 10);
        while (n_digits)
                id[n++] = digits[--n_digits];
        id[n] = 0;
        return agx_view_of(id, n);
}
