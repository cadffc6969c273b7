/*
 * Hosts speak only through events, as they are on the wire. A worker is a number; what runs in it is asked of the ledger. Its
 * life after a cancel is the retiree's, as in the server. The checker's facts are arrays, indexed by id and link.
 */
#include "support/rpc_trial.h"
#include "proto/limits.h"
#include "server/rpc_queue.h"
#include "worker/retiree.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_IDS = 64, N_LINKS = 5, N_POSTS = 4, N_WORKERS = 6, TEXT = 16 };

/* What is known of an id. */
typedef struct fact {
        char id[TEXT];
        unsigned sent; /* to a worker */
        bool ended;
        bool forbidden;     /* its cancel came before it */
        uint64_t grace_at;  /* since a cancel was passed on */
        char outcome[TEXT]; /* "value", or the fault's type; "" while none was told */
        bool owed[N_LINKS];
        uint64_t expected[N_LINKS]; /* the next item on it; UINT64_MAX: none came yet */
        unsigned asked[N_LINKS];    /* how many tellings there may be, at most, where hosts are not polite */
} fact;

typedef struct line {
        agx_rpc_link real;
        bool attached;
} line;

typedef struct post {
        agx_waiter waiter;
        struct run *run;
        agx_call *waits_for;
        agx_call *writing;
} post;

typedef struct worker {
        uint64_t number; /* 0: none */
        bool retired;
        agx_retiree retiree;
} worker;

typedef struct run {
        rpc_trial *trial;
        agx_view rest;
        uint64_t now;
        agx_calls calls;
        agx_rpc rpc;
        agx_buf out, payload;
        fact facts[N_IDS];
        line links[N_LINKS];
        post posts[N_POSTS];
        worker workers[N_WORKERS];
        uint64_t spawned;
        uint64_t graces_over; /* when graces were looked at last */
        size_t steps;
        const char *wrong;
} run;

static uint8_t take(run *r)
{
        uint8_t byte = 0;

        if (r->rest.n) {
                byte = (uint8_t)r->rest.p[0];
                r->rest = agx_view_from(r->rest, 1);
        }
        return byte;
}

static void check(run *r, bool ok, const char *what, const fact *f)
{
        if (ok || r->wrong)
                return;
        r->wrong = what;
        snprintf(r->trial->where, sizeof(r->trial->where), "%s: operation %zu, id %s", what, r->trial->operations,
                 f ? f->id : "none");
}

static fact *fact_of(run *r, agx_view id)
{
        for (size_t i = 0; i < N_IDS; i++)
                if (agx_view_eq(agx_view_str(r->facts[i].id), id))
                        return &r->facts[i];
        check(r, false, "an id that nobody used", NULL);
        return &r->facts[0];
}

/* A few ids at a time see much; the few move on slowly. An old one comes up now and then. */
static fact *pick_fact(run *r)
{
        unsigned byte = take(r);
        size_t base = r->steps / 40;

        return &r->facts[byte < 240 ? (base + byte % 10) % N_IDS : byte % N_IDS];
}

/* Mostly the first one; absent now and then. */
static agx_view pick_session(run *r)
{
        static const agx_view names[8] = {{"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"a", 1}, {"b", 1}, {"c", 1}};

        return names[take(r) % 8];
}

/* Mostly ids of the sessions' own form; which session asks for which is chance. */
static void name_ids(run *r)
{
        static const char *const forms[4] = {"a-", "a-", "b-", "foreign"};

        for (unsigned i = 0; i < N_IDS; i++) {
                r->facts[i].grace_at = UINT64_MAX;
                snprintf(r->facts[i].id, TEXT, "%s%u", forms[i % 4], i);
        }
}

/* ---- workers ---- */

static worker *current(run *r)
{
        for (size_t i = 0; i < N_WORKERS; i++)
                if (r->workers[i].number && !r->workers[i].retired)
                        return &r->workers[i];
        return NULL;
}

static agx_call *running(run *r, uint64_t number, size_t nth)
{
        for (size_t i = 0; i < N_IDS; i++) {
                agx_call *call = agx_ledger_open(r->calls.ledger, agx_view_str(r->facts[(i + nth) % N_IDS].id));

                if (call && call->state == AGX_CALL_RUNNING && call->worker == number)
                        return call;
        }
        return NULL;
}

/* What was sent to workers since the last look. */
static void look_at_frames(run *r)
{
        agx_view in = agx_buf_view(&r->out), payload;
        agx_deframer d;
        agx_frame frame;

        agx_deframer_init(&d, AGX_MAX_MESSAGE);
        while (!agx_deframer_next(&d, &in, &payload)) {
                fact *f;

                check(r, !agx_frame_parse(payload, &frame), "a frame that cannot be read", NULL);
                f = fact_of(r, frame.call_id);
                if (frame.kind != AGX_FRAME_CALL)
                        continue;
                check(r, ++f->sent == 1, "an id ran twice", f);
                check(r, !f->ended, "an id ran after its end", f);
                check(r, !f->forbidden, "an id ran after its cancel", f);
                r->trial->runs++;
        }
        agx_deframer_deinit(&d);
        agx_buf_clear(&r->out);
}

/* The call has ended: whoever waits for it gets it, else its session's link owes it. */
static void deliver(run *r, agx_call *call)
{
        fact *f = fact_of(r, agx_call_id(call));
        agx_view session = agx_call_session(call);
        agx_waiter *waiter = call->waiter;

        check(r, !f->ended, "a call ended twice", f);
        f->ended = true;
        if (waiter) {
                waiter->deliver(waiter, call);
                return;
        }
        for (size_t i = 0; i < N_LINKS; i++)
                if (r->links[i].attached && agx_view_eq(agx_rpc_session(&r->links[i].real), session)) {
                        f->owed[i] = true;
                        f->asked[i]++;
                }
        r->rpc.waiter.deliver(&r->rpc.waiter, call);
}

static void retiree_wishes(run *r, worker *w, unsigned wishes);

static void look_at_load(run *r, uint64_t number)
{
        for (size_t i = 0; i < N_WORKERS; i++) {
                worker *w = &r->workers[i];
                agx_calls_load load = agx_calls_load_of(&r->calls, number);

                if (w->number == number && w->retired)
                        retiree_wishes(r, w, agx_retiree_load(&w->retiree, r->now, load.running, load.overdue));
        }
}

static void die(run *r, worker *w)
{
        static const agx_fault fault = {.type = {"WorkerDied", 10}, .message = {"it died", 7}};
        uint64_t number = w->number;
        agx_call *call;

        *w = (worker){0};
        while ((call = agx_calls_worker_died(&r->calls, number, &fault))) {
                fact *f = fact_of(r, agx_call_id(call));

                check(r, !f->outcome[0], "told before its end", f);
                snprintf(f->outcome, TEXT, "%s", f->grace_at <= r->graces_over ? "Cancelled" : "WorkerDied");
                deliver(r, call);
        }
}

static void retiree_wishes(run *r, worker *w, unsigned wishes)
{
        if (wishes & (AGX_SUPERVISOR_KILL | AGX_SUPERVISOR_SHUTDOWN))
                die(r, w);
}

static bool spawn(run *r)
{
        for (size_t i = 0; i < N_WORKERS; i++) {
                worker *w = &r->workers[i];
                agx_calls_worker there;
                agx_call *call;

                if (w->number)
                        continue;
                *w = (worker){.number = ++r->spawned};
                there = (agx_calls_worker){w->number, &r->out, 0, NULL};
                while ((call = agx_calls_start_held(&r->calls, &there)))
                        deliver(r, call);
                return true;
        }
        return false;
}

static void retire(run *r, uint64_t number)
{
        for (size_t i = 0; i < N_WORKERS; i++) {
                worker *w = &r->workers[i];

                if (w->number != number || w->retired)
                        continue;
                w->retired = true;
                agx_retiree_init(&w->retiree, r->now);
        }
        look_at_load(r, number);
        for (size_t i = 0; i < N_WORKERS && !current(r) && !spawn(r); i++)
                if (r->workers[i].retired)
                        die(r, &r->workers[i]);
}

/* A retired worker is there for calls that may still run, and for those only; the current one holds none that may not. */
static void nobody_lives_for_nothing(run *r)
{
        for (size_t i = 0; i < N_WORKERS; i++) {
                const worker *w = &r->workers[i];
                size_t may = 0, must_not = 0;

                for (size_t n = 0; w->number && n < N_IDS; n++) {
                        const agx_call *call = agx_ledger_open(r->calls.ledger, agx_view_str(r->facts[n].id));

                        if (!call || call->state != AGX_CALL_RUNNING || call->worker != w->number)
                                continue;
                        may += r->facts[n].grace_at > r->now;
                        must_not += r->facts[n].grace_at <= r->now;
                }
                check(r, !w->retired || may, "a retired worker lives for nothing", NULL);
                check(r, !w->number || w->retired || !must_not, "a worker that should be retired", NULL);
        }
}

static void pass_time(run *r, uint64_t ms)
{
        uint64_t number;

        r->now += ms;
        r->graces_over = r->now;
        agx_ledger_tick(r->calls.ledger, r->now);
        while ((number = agx_calls_overdue(&r->calls, r->now)))
                retire(r, number);
        for (size_t i = 0; i < N_WORKERS; i++)
                if (r->workers[i].number && r->workers[i].retired)
                        retiree_wishes(r, &r->workers[i], agx_retiree_tick(&r->workers[i].retiree, r->now));
        nobody_lives_for_nothing(r);
}

/* A worker says how a call ended. */
static void say_end(run *r, agx_call *call)
{
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = agx_call_id(call)};
        uint64_t number = call->worker;
        const char *odd;

        frame.value = frame.call_id;
        if (call->cancelled) {
                frame.kind = AGX_FRAME_ERROR;
                frame.fault = (agx_fault){.type = AGX_VIEW("Cancelled"), .message = AGX_VIEW("m"), .cancelled = true};
        }
        call = agx_calls_frame(&r->calls, number, &frame, &odd);
        check(r, call != NULL, "an end that did not count", NULL);
        if (call)
                deliver(r, call);
        look_at_load(r, number);
}

/* ---- POSTs ---- */

static void post_deliver(agx_waiter *waiter, agx_call *call)
{
        post *p = agx_container_of(waiter, post, waiter);

        check(p->run, p->waits_for == call, "a POST got what it does not wait for", fact_of(p->run, agx_call_id(call)));
        p->waits_for = NULL;
        p->writing = call;
}

static void post_forget(agx_waiter *waiter, agx_call *call)
{
        post *p = agx_container_of(waiter, post, waiter);

        check(p->run, p->waits_for == call || p->writing == call, "a POST was to forget what it does not know",
              fact_of(p->run, agx_call_id(call)));
        p->waits_for = p->writing = NULL;
}

static void settle(run *r, post *p, bool written)
{
        agx_call *call = p->writing;

        if (!call)
                return;
        p->writing = NULL;
        call->waiter = NULL;
        if (written)
                agx_ledger_answered(r->calls.ledger, call, r->now);
        else
                agx_ledger_keep(r->calls.ledger, call);
}

/* Its client has its 202, or has gone. */
static void let_go(post *p)
{
        if (p->waits_for)
                p->waits_for->waiter = NULL;
        p->waits_for = NULL;
}

static agx_calls_worker *ready(run *r, agx_calls_worker *place)
{
        worker *w = current(r);

        if (!w)
                return NULL;
        *place = (agx_calls_worker){w->number, &r->out, 0, NULL};
        return place;
}

static void do_post(run *r)
{
        post *p = &r->posts[take(r) % N_POSTS];
        fact *f = pick_fact(r);
        agx_call_request request = {.call_id = agx_view_str(f->id),
                                    .callable = AGX_VIEW("m::f"),
                                    .arguments = AGX_VIEW("A")};
        agx_calls_worker place;
        agx_submit verdict;
        agx_fault fault;
        agx_call *call;

        settle(r, p, take(r) % 2);
        let_go(p);
        if (agx_calls_submit(&r->calls, &request, pick_session(r), r->now, ready(r, &place), &verdict, &call, &fault))
                return;
        look_at_frames(r);
        if (verdict == AGX_SUBMIT_STARTED || verdict == AGX_SUBMIT_HELD) {
                call->waiter = &p->waiter;
                p->waits_for = call;
        } else if (verdict == AGX_SUBMIT_ENDED) {
                agx_rpc_take_over(call);
                call->waiter = &p->waiter;
                p->writing = call;
                if (call->kept)
                        settle(r, p, true);
        }
}

static void do_post_end(run *r)
{
        post *p = &r->posts[take(r) % N_POSTS];

        if (take(r) % 2)
                settle(r, p, take(r) % 2);
        else
                let_go(p);
}

/* ---- hosts ---- */

static void forget_link(run *r, size_t n)
{
        r->links[n].attached = false;
        for (size_t i = 0; i < N_IDS; i++) {
                r->facts[i].owed[n] = false;
                r->facts[i].asked[n] = 0;
                r->facts[i].expected[n] = UINT64_MAX;
        }
}

static void attach(run *r, size_t n, agx_view session)
{
        agx_rpc_link *replaced;

        agx_rpc_detach(&r->links[n].real);
        forget_link(r, n);
        if (agx_rpc_attach(&r->rpc, &r->links[n].real, session, &replaced))
                return;
        r->links[n].attached = true;
        if (replaced)
                forget_link(r, (size_t)(agx_container_of(replaced, line, real) - r->links));
}

static void do_attach(run *r)
{
        size_t n = take(r) % N_LINKS;

        if (take(r) % 8 == 0)
                attach(r, n, pick_session(r));
}

static void do_detach(run *r)
{
        size_t n = take(r) % N_LINKS;

        if (take(r) % 8)
                return;
        agx_rpc_detach(&r->links[n].real);
        forget_link(r, n);
}

static void say(run *r, size_t n, const agx_rpc_event *event, const agx_view *ids, size_t n_ids)
{
        agx_mp_writer w = agx_mp_writer_on(&r->payload);
        agx_calls_worker place;
        agx_rpc_outcome outcome;

        agx_buf_clear(&r->payload);
        agx_rpc_event_put(&w, event, ids, n_ids);
        check(r,
              !agx_rpc_take(&r->links[n].real, agx_rpc_kind_text(event->kind), agx_buf_view(&r->payload), r->now,
                            ready(r, &place), &outcome),
              "an event was not taken", NULL);
        look_at_frames(r);
        if (outcome.todo == AGX_RPC_TODO_DELIVER)
                deliver(r, outcome.call);
        if (outcome.todo == AGX_RPC_TODO_CANCEL) {
                agx_calls_put_cancel(&r->out, outcome.call);
                fact_of(r, agx_call_id(outcome.call))->grace_at = r->now + agx_rpc_grace_ms(event);
        }
        look_at_frames(r);
}

/* Whether this host may ask; then it is owed an answer. Of a stream whose items are about to be told it hears anyway. */
static bool ask(run *r, fact *f, size_t n)
{
        if (r->trial->polite && (f->owed[n] || agx_rpc_queue_has_answer(&r->links[n].real, agx_view_str(f->id))))
                return false;
        f->owed[n] = true;
        f->asked[n]++;
        return true;
}

static bool pick_link(run *r, size_t *n)
{
        *n = take(r) % N_LINKS;
        return r->links[*n].attached;
}

static void do_call(run *r)
{
        fact *f = pick_fact(r);
        agx_rpc_event event = {.kind = AGX_RPC_CALL, .call_id = agx_view_str(f->id), .callable = AGX_VIEW("m::f")};
        size_t n;

        if (!pick_link(r, &n) || !ask(r, f, n))
                return;
        if (take(r) % 8)
                event.arguments = AGX_VIEW("A");
        event.has_stream = take(r) % 2;
        event.stream = 4;
        say(r, n, &event, NULL, 0);
}

static void do_resume(run *r)
{
        agx_view ids[8];
        size_t n, n_ids = 0;

        if (!pick_link(r, &n))
                return;
        for (size_t i = take(r) % 8; i > 0; i--) {
                fact *f = pick_fact(r);

                if (ask(r, f, n))
                        ids[n_ids++] = agx_view_str(f->id);
        }
        say(r, n, &(agx_rpc_event){.kind = AGX_RPC_RESUME}, ids, n_ids);
}

static void do_ack(run *r)
{
        fact *f = pick_fact(r);
        size_t n;

        if (!pick_link(r, &n) || (f->owed[n] && r->trial->polite))
                return;
        say(r, n, &(agx_rpc_event){.kind = AGX_RPC_ACK, .call_id = agx_view_str(f->id)}, NULL, 0);
        if (!agx_ledger_open(r->calls.ledger, agx_view_str(f->id)))
                f->owed[n] = false; /* who acknowledges has been told */
}

/* Half of the time one that runs, if there is one. */
static fact *pick_running(run *r)
{
        worker *w = &r->workers[take(r) % N_WORKERS];
        agx_call *call = w->number && take(r) % 2 ? running(r, w->number, take(r)) : NULL;

        return call ? fact_of(r, agx_call_id(call)) : pick_fact(r);
}

static bool is_own(agx_view session, const fact *f)
{
        agx_view id = agx_view_str(f->id);

        return agx_view_starts(id, session) && id.n > session.n && id.p[session.n] == '-';
}

static void do_cancel(run *r)
{
        fact *f = pick_running(r);
        size_t n;

        if (!pick_link(r, &n))
                return;
        if (!f->sent && !agx_ledger_open(r->calls.ledger, agx_view_str(f->id)) &&
            is_own(agx_rpc_session(&r->links[n].real), f))
                f->forbidden = true;
        say(r, n,
            &(agx_rpc_event){
                    .kind = AGX_RPC_CANCEL, .call_id = agx_view_str(f->id), .has_grace = true, .grace = take(r) / 64.0},
            NULL, 0);
        pass_time(r, 0); /* a grace may be over at once */
}

static void do_credit(run *r)
{
        fact *f = pick_running(r);
        size_t n;

        if (pick_link(r, &n))
                say(r, n, &(agx_rpc_event){.kind = AGX_RPC_CREDIT, .call_id = agx_view_str(f->id), .n = take(r) % 4},
                    NULL, 0);
}

/* ---- what hosts are told ---- */

/* It says that there is none, or none yet. */
static bool is_no_end(const agx_rpc_event *event)
{
        return event->kind == AGX_RPC_ERROR && (agx_view_eq(event->fault.type, AGX_VIEW("ResultUnavailable")) ||
                                                agx_view_eq(event->fault.type, AGX_VIEW("Busy")));
}

static void judge_outcome(run *r, fact *f, const agx_rpc_event *event)
{
        agx_view told = event->kind == AGX_RPC_RESULT ? AGX_VIEW("value") : agx_view_first(event->fault.type, TEXT - 1);
        agx_call *call = agx_ledger_open(r->calls.ledger, agx_view_str(f->id));

        check(r, !call, "the end of a call that has not ended", f);
        if (agx_view_eq(told, AGX_VIEW("KeyError")) && !f->sent)
                f->ended = true; /* on the spot */
        check(r, f->ended, "the end of a call that nobody ended", f);
        if (event->kind == AGX_RPC_RESULT)
                check(r, agx_view_eq(event->value, event->call_id), "another call's value", f);
        check(r, !f->outcome[0] || agx_view_eq(agx_view_str(f->outcome), told), "two outcomes", f);
        memcpy(f->outcome, told.p, told.n);
        r->trial->outcomes++;
}

/* Items come in order, none twice on one link; a new one begins with those that were not consumed. */
static void judge_item(run *r, size_t n, fact *f, const agx_rpc_event *event)
{
        uint64_t expected = f->expected[n] == UINT64_MAX ? 0 : f->expected[n];
        agx_resume answer;
        agx_call *call;

        check(r,
              !agx_ledger_resume(r->calls.ledger, agx_rpc_session(&r->links[n].real), event->call_id, r->now, &answer,
                                 &call),
              "no memory", f);
        check(r, call != NULL, "an item of another session's call, or after its end was dropped", f);
        if (!call)
                return;
        if (expected < call->items.first)
                expected = call->items.first;
        check(r, event->seq == expected && event->seq < call->items.next, "not the next item", f);
        check(r, agx_view_eq(event->value, event->call_id), "another call's item", f);
        f->expected[n] = event->seq + 1;
        r->trial->items++;
}

/* An end comes after all items that were not consumed. */
static void judge_items_told(run *r, size_t n, fact *f)
{
        agx_resume answer;
        agx_call *call;

        if (!agx_ledger_resume(r->calls.ledger, agx_rpc_session(&r->links[n].real), agx_view_str(f->id), r->now,
                               &answer, &call) &&
            call && call->items.first < call->items.next)
                check(r, f->expected[n] == call->items.next, "an end before all items were told", f);
}

static void judge(run *r, size_t n, const agx_rpc_event *event)
{
        fact *f = fact_of(r, event->call_id);
        bool unavailable = is_no_end(event);

        if (event->kind == AGX_RPC_ITEM) {
                judge_item(r, n, f, event);
                return;
        }
        if (!unavailable)
                judge_items_told(r, n, f);
        if (r->trial->polite)
                check(r, f->owed[n], "told though nothing was owed", f);
        else
                check(r, f->owed[n] || f->asked[n], "told though nothing was owed", f);
        f->asked[n] -= f->asked[n] > 0;
        f->owed[n] = false;
        if (!unavailable) {
                judge_outcome(r, f, event);
        } else {
                check(r, !agx_view_eq(event->fault.reason, AGX_VIEW("never_seen")) || !f->sent, "forgotten", f);
                r->trial->gone++;
        }
}

/* The owner is looked at while the entry is there: right before it is told. */
static void judge_owner(run *r, size_t n, const agx_rpc_event *event)
{
        agx_resume answer;
        agx_call *call;
        agx_view session = agx_rpc_session(&r->links[n].real);

        if (is_no_end(event) || event->kind == AGX_RPC_ITEM)
                return;
        check(r, !agx_ledger_resume(r->calls.ledger, session, event->call_id, r->now, &answer, &call), "no memory",
              NULL);
        check(r, answer == AGX_RESUME_REPLAY && agx_view_eq(agx_call_session(call), session), "another session's end",
              fact_of(r, event->call_id));
}

static bool pull(run *r, size_t n)
{
        agx_buf whole = AGX_BUF_NULL(1 << 20);
        agx_rpc_saying saying;
        agx_rpc_event event;
        const char *why;
        bool some = !agx_rpc_next(&r->links[n].real, r->now, &saying);

        if (some) {
                agx_buf_append_view(&whole, saying.head);
                agx_buf_append_view(&whole, saying.body);
                check(r, agx_rpc_event_get(agx_rpc_kind_of(saying.name), agx_buf_view(&whole), &event, &why),
                      "what is said cannot be read", NULL);
                judge_owner(r, n, &event);
                judge(r, n, &event);
                if (r->trial->stutter && take(r) % 16 == 0)
                        agx_rpc_queue_answer(&r->links[n].real, event.call_id);
        }
        agx_buf_deinit(&whole);
        return some && !r->wrong;
}

static void do_pull(run *r)
{
        size_t n;

        if (pick_link(r, &n))
                for (size_t i = take(r) % 6; i > 0 && pull(r, n);)
                        i--;
}

/* ---- chance ---- */

/* A worker gives an item: of a call that can be a stream. */
static void give_item(run *r)
{
        worker *w = &r->workers[take(r) % N_WORKERS];
        agx_call *call = w->number ? running(r, w->number, take(r)) : NULL;
        agx_frame frame = {.kind = AGX_FRAME_ITEM};
        uint64_t number;
        const char *odd;
        bool ended;

        if (!call)
                return;
        number = call->worker;
        frame.call_id = frame.value = agx_call_id(call);
        frame.seq = call->items.next;
        if (!call->streams) {
                check(r, !agx_calls_item(&r->calls, number, &frame, &ended, &odd), "an item of no stream counted",
                      NULL);
                return;
        }
        call = agx_calls_item(&r->calls, number, &frame, &ended, &odd);
        check(r, call != NULL, "an item did not count", NULL);
        if (!call)
                return;
        if (ended) {
                deliver(r, call);
                look_at_load(r, number);
        } else {
                agx_rpc_streams(&r->rpc, call);
        }
}

static void do_items(run *r)
{
        for (size_t i = 1 + take(r) % 6; i > 0; i--)
                give_item(r);
}

static void do_end(run *r)
{
        worker *w = &r->workers[take(r) % N_WORKERS];
        agx_call *call = w->number ? running(r, w->number, take(r)) : NULL;

        if (call)
                say_end(r, call);
}

static void do_ends(run *r)
{
        for (size_t i = take(r) % 8; i > 0; i--) {
                worker *w = current(r);
                agx_call *call = w ? running(r, w->number, take(r)) : NULL;

                if (call)
                        say_end(r, call);
        }
}

static void do_spawn(run *r)
{
        if (!current(r))
                spawn(r);
}

static void do_death(run *r)
{
        worker *w = &r->workers[take(r) % N_WORKERS];

        if (w->number && take(r) % 2)
                die(r, w);
}

static void do_time(run *r)
{
        pass_time(r, take(r) * (uint64_t)50);
}

static void do_long_time(run *r)
{
        pass_time(r, take(r) % 8 ? 100 : AGX_WORKER_DRAIN_MS);
}

typedef void (*operation)(run *r);

/* By how often. */
static const operation operations[40] = {
        do_call, do_call,  do_call,   do_call,   do_call,  do_call,  do_call,   do_resume, do_resume,   do_resume,
        do_ack,  do_ack,   do_cancel, do_cancel, do_post,  do_post,  do_post,   do_pull,   do_pull,     do_pull,
        do_pull, do_end,   do_ends,   do_ends,   do_spawn, do_spawn, do_attach, do_detach, do_post_end, do_post_end,
        do_time, do_death, do_items,  do_items,  do_items, do_items, do_credit, do_credit, do_pull,     do_items,
};

static void step(run *r)
{
        uint8_t byte = take(r);

        r->trial->operations++;
        r->steps++;
        if (byte == 255)
                do_long_time(r);
        else
                operations[byte % 40](r);
        look_at_frames(r);
}

/* Every call ends, everything is told. */
static void let_all_end(run *r)
{
        for (size_t i = 0; i < N_POSTS; i++) {
                settle(r, &r->posts[i], true);
                let_go(&r->posts[i]);
        }
        do_spawn(r);
        look_at_frames(r);
        for (size_t i = 0; i < N_WORKERS; i++)
                if (r->workers[i].number)
                        die(r, &r->workers[i]);
        for (size_t i = 0; i < N_LINKS; i++)
                while (r->links[i].attached && pull(r, i))
                        ;
}

static void nothing_is_left(run *r)
{
        check(r, agx_ledger_count(r->calls.ledger).open == 0, "a call is open", NULL);
        check(r, agx_calls_deadline(&r->calls) == UINT64_MAX, "a grace counts", NULL);
        check(r, agx_list_empty(&r->calls.workers), "a tally is left", NULL);
        check(r, r->calls.held_bytes == 0, "a frame is held", NULL);
        for (size_t i = 0; i < N_IDS; i++)
                for (size_t n = 0; n < N_LINKS; n++)
                        check(r, !r->facts[i].owed[n], "owed and never told", &r->facts[i]);
}

static int open_run(run *r)
{
        static const uint8_t seed[16] = "0123456789abcde";

        if (agx_calls_init(&r->calls, seed))
                return -1;
        agx_ledger_free(r->calls.ledger);
        if (agx_ledger_new_bounded(&r->calls.ledger, seed, &r->trial->bounds))
                return -1;
        agx_rpc_init(&r->rpc, &r->calls, seed);
        r->out = AGX_BUF_NULL(1 << 20);
        r->payload = AGX_BUF_NULL(1 << 20);
        name_ids(r);
        attach(r, 0, AGX_VIEW("a"));
        attach(r, 1, AGX_VIEW("b"));
        attach(r, 2, AGX_VIEW_NULL);
        for (size_t i = 0; i < N_POSTS; i++) {
                r->posts[i].waiter = (agx_waiter){.deliver = post_deliver, .forget = post_forget};
                r->posts[i].run = r;
        }
        return 0;
}

const char *rpc_trial_run(rpc_trial *trial, agx_view bytes)
{
        run *r = calloc(1, sizeof(*r));
        const char *wrong = "no memory";

        if (r) {
                r->trial = trial;
                r->rest = bytes;
        }
        if (r && !open_run(r)) {
                while (r->rest.n && !r->wrong)
                        step(r);
                if (!r->wrong)
                        let_all_end(r);
                if (!r->wrong)
                        nothing_is_left(r);
                wrong = r->wrong;
                agx_rpc_deinit(&r->rpc);
                agx_calls_deinit(&r->calls);
                agx_buf_deinit(&r->out);
                agx_buf_deinit(&r->payload);
        }
        free(r);
        return wrong;
}
