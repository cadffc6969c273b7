/* The server without its sockets: does what server/server_uv.c does with what its parts come to, and keeps its journal. */
#include "box.h"

#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>

static const agx_fault gone = {.type = {"WorkerDied", 10}, .message = {"the server is shutting down", 27}};

enum { LAST_WORDS_MS = 200 };

/* ---- the journal ---- */

void sim_box_note_call(sim_box *box, sim_fact fact, const agx_call *call)
{
        sim_job *job = sim_job_with(box->s, agx_call_id(call));

        if (job)
                sim_note(box->s, fact, job, 0, 0);
}

static sim_outcome outcome_of(const agx_call *call)
{
        agx_mp_reader r = agx_mp_reader_on(agx_buf_view(&call->payload));
        agx_fault fault;

        if (call->ok)
                return SIM_VALUE;
        return agx_fault_get(&r, &fault) ? sim_outcome_of_fault(&fault) : SIM_OTHER;
}

/* An end, from wherever it came. */
static void note_closed(sim_box *box, const agx_call *call)
{
        sim_job *job = sim_job_with(box->s, agx_call_id(call));

        if (job)
                sim_note(box->s, SIM_CLOSED, job, outcome_of(call),
                         call->ok ? sim_digest(agx_buf_view(&call->payload)) : 0);
}

static void note_accepted(sim_box *box, agx_view id, agx_view arguments)
{
        sim_job *job = sim_job_of(box->s, arguments);
        uint64_t counter;
        uint32_t host;

        if (!job || !sim_id_read(box->s, id, &host, &counter)) {
                sim_judge_blame(box->s->judge, 0, "a call with arguments or an id of nobody's");
                return;
        }
        sim_job_number(box->s, job, counter);
        job->accepted = true;
        sim_note_key(box->s, SIM_ACCEPTED, job->key, host, counter, 0, 0);
}

void sim_box_note_request(sim_box *box, agx_view session, const agx_call_request *request, agx_submit verdict)
{
        (void)session;
        if (verdict == AGX_SUBMIT_STARTED || verdict == AGX_SUBMIT_HELD)
                note_accepted(box, request->call_id, request->arguments);
}

/* What an event says it wants, before the road takes it. */
static bool note_cancel(sim_box *box, const agx_rpc_link *link, agx_view name, agx_view payload, agx_rpc_event *event)
{
        const char *why;
        uint64_t counter;
        uint32_t host;
        sim_job *job;

        if (!agx_rpc_event_get(agx_rpc_kind_of(name), payload, event, &why))
                return false;
        if (event->kind != AGX_RPC_CANCEL || !sim_id_read(box->s, event->call_id, &host, &counter) ||
            !agx_view_eq(link->by_session.key, sim_session(box->s, host)))
                return true;
        job = sim_job_numbered(box->s, host, counter);
        if (job)
                sim_note(box->s, SIM_CANCEL, job, agx_rpc_grace_ms(event), 0);
        else if (host < box->s->plan.n_hosts) /* what strangers call theirs is not of a session's own form */
                sim_note_key(box->s, SIM_CANCEL, 0, host, counter, agx_rpc_grace_ms(event), 0);
        return true;
}

static void note_evictions(sim_box *box, uint64_t before)
{
        uint64_t now = agx_ledger_count(box->calls.ledger).evicted;
        sim_job *job = now > before ? sim_job_with(box->s, agx_ledger_last_evicted(box->calls.ledger)) : NULL;

        if (job)
                sim_note(box->s, SIM_EVICTED, job, 0, 0);
        if (now - before > 1)
                sim_note_key(box->s, SIM_EVICTED, 0, 0, 0, now - before - 1, 0);
}

/* ---- calls ---- */

bool sim_box_worker(sim_box *box, agx_calls_worker *worker)
{
        sim_worker *w = sim_crew_ready(box->crew);

        if (!w)
                return false;
        *worker = (agx_calls_worker){w->number, &w->out, sim_worker_queued(w), w->reads_pieces ? &w->bulk : NULL};
        return true;
}

void sim_box_worker_fed(sim_box *box)
{
        sim_worker *w = sim_crew_ready(box->crew);

        w->worked = true;
        sim_worker_touch(w);
}

void sim_box_touched(sim_box *box)
{
        agx_ledger_counts counts = agx_ledger_count(box->calls.ledger);

        if (!box->ledger_tick.place && counts.retained)
                sim_timer_set(&box->s->clock, &box->ledger_tick, sim_now(box->s) + AGX_LEDGER_INLINE_MS);
        note_evictions(box, box->evicted_told);
        box->evicted_told = counts.evicted;
}

static void on_ledger_tick(sim_timer *t)
{
        sim_box *box = agx_container_of(t, sim_box, ledger_tick);

        sim_timer_set(&box->s->clock, t, agx_ledger_tick(box->calls.ledger, sim_now(box->s)));
}

static void wake_links(sim_box *box)
{
        if (!agx_list_empty(&box->rpc.due))
                sim_flush_later(box->s, &box->links);
}

static void let_links_speak(sim_flush *f)
{
        sim_box *box = agx_container_of(f, sim_box, links);
        agx_rpc_link *link;

        while ((link = agx_rpc_due(&box->rpc)))
                sim_lobby_speak(link);
        sim_box_touched(box);
}

void sim_box_deliver(sim_box *box, agx_call *call)
{
        agx_waiter *waiter = call->waiter ? call->waiter : &box->rpc.waiter;

        waiter->deliver(waiter, call);
        wake_links(box);
        sim_box_touched(box);
}

static void close_and_deliver(sim_box *box, agx_call *call)
{
        note_closed(box, call);
        sim_box_deliver(box, call);
}

/* ---- events ---- */

void sim_box_on_unavailable(sim_box *box, const agx_fault *fault)
{
        agx_call *call;

        while ((call = agx_calls_unavailable(&box->calls, fault)))
                close_and_deliver(box, call);
}

void sim_box_wanted(sim_box *box)
{
        if (box->site.draining)
                sim_box_on_unavailable(box, &gone);
        else
                sim_crew_wanted(box->crew);
}

static void pass_cancel_on(sim_box *box, const agx_call *call)
{
        sim_worker *w = sim_crew_find(box->crew, call->worker);

        if (w && !agx_calls_put_cancel(sim_worker_behind(w, call), call))
                sim_worker_touch(w);
        sim_timer_set(&box->s->clock, &box->graces, agx_calls_deadline(&box->calls));
}

static void pass_credit_on(sim_box *box, const agx_call *call, uint64_t n)
{
        sim_worker *w = sim_crew_find(box->crew, call->worker);

        if (w && !agx_calls_put_credit(sim_worker_behind(w, call), call, n))
                sim_worker_touch(w);
}

static void on_graces(sim_timer *t)
{
        sim_box *box = agx_container_of(t, sim_box, graces);
        uint64_t worker;

        while ((worker = agx_calls_overdue(&box->calls, sim_now(box->s)))) {
                agx_calls_load load = agx_calls_load_of(&box->calls, worker);

                sim_crew_retire(box->crew, worker, load.running, load.overdue);
        }
        sim_timer_set(&box->s->clock, t, agx_calls_deadline(&box->calls));
}

int sim_box_event(sim_box *box, agx_rpc_link *link, agx_view name, agx_view payload)
{
        agx_calls_worker worker;
        bool ready = sim_box_worker(box, &worker);
        agx_rpc_outcome outcome;
        agx_rpc_event event;
        bool known = note_cancel(box, link, name, payload, &event);
        int r = agx_rpc_take(link, name, payload, sim_now(box->s), ready ? &worker : NULL, &outcome);

        if (r)
                return r;
        if (known && (outcome.todo == AGX_RPC_TODO_SEND || outcome.todo == AGX_RPC_TODO_WORKER))
                note_accepted(box, event.call_id, event.arguments);
        switch (outcome.todo) {
        case AGX_RPC_TODO_NOTHING:
        case AGX_RPC_TODO_NOTE:
                break;
        case AGX_RPC_TODO_SEND:
                sim_box_worker_fed(box);
                break;
        case AGX_RPC_TODO_WORKER:
                sim_box_wanted(box);
                break;
        case AGX_RPC_TODO_CANCEL:
                pass_cancel_on(box, outcome.call);
                break;
        case AGX_RPC_TODO_CREDIT:
                pass_credit_on(box, outcome.call, outcome.credit);
                break;
        case AGX_RPC_TODO_DELIVER:
                close_and_deliver(box, outcome.call);
                break;
        }
        wake_links(box);
        sim_box_touched(box);
        return 0;
}

/* ---- workers ---- */

void sim_box_on_ready(sim_box *box)
{
        agx_calls_worker worker;
        agx_call *call;

        if (!agx_calls_any_held(&box->calls) || !sim_box_worker(box, &worker))
                return;
        while ((call = agx_calls_start_held(&box->calls, &worker)))
                close_and_deliver(box, call);
        sim_box_worker_fed(box);
}

static void end_call(sim_box *box, uint64_t number, agx_call *call)
{
        agx_calls_load load;

        close_and_deliver(box, call);
        load = agx_calls_load_of(&box->calls, number);
        sim_crew_load(box->crew, number, load.running, load.overdue);
}

static void on_item(sim_box *box, uint64_t number, const agx_frame *frame)
{
        const char *odd;
        bool ended;
        agx_call *call = agx_calls_item(&box->calls, number, frame, &ended, &odd);

        if (!call)
                return;
        if (ended) {
                pass_cancel_on(box, call);
                end_call(box, number, call);
        } else {
                agx_rpc_streams(&box->rpc, call);
                wake_links(box);
        }
}

void sim_box_on_frame(sim_box *box, uint64_t number, const agx_frame *frame)
{
        const char *odd;
        agx_call *call;

        if (frame->kind == AGX_FRAME_ITEM) {
                on_item(box, number, frame);
                return;
        }
        call = agx_calls_frame(&box->calls, number, frame, &odd);
        if (call)
                end_call(box, number, call);
}

void sim_box_on_died(sim_box *box, uint64_t number, const agx_fault *fault)
{
        agx_call *call;

        while ((call = agx_calls_worker_died(&box->calls, number, fault)))
                close_and_deliver(box, call);
}

/* ---- the end ---- */

static void stop_if_quiet(sim_box *box)
{
        if (box->crew_stopped && !box->n_doors)
                box->stopped = true;
}

static void drain_doors(sim_box *box)
{
        agx_list_foreach_safe(node, &box->doors) sim_door_drain(agx_container_of(node, sim_door, node));
}

void sim_box_on_crew_stopped(sim_box *box)
{
        box->crew_stopped = true;
        sim_lobby_drain(box);
        drain_doors(box);
        sim_timer_set(&box->s->clock, &box->drain, sim_now(box->s) + LAST_WORDS_MS);
        stop_if_quiet(box);
}

static void on_drain_over(sim_timer *t)
{
        agx_container_of(t, sim_box, drain)->stopped = true;
}

void sim_box_stop(sim_box *box)
{
        if (box->site.draining)
                return;
        box->site.draining = true;
        box->refusing = true;
        sim_timer_set(&box->s->clock, &box->drain, sim_now(box->s) + AGX_SERVER_DRAIN_MS - AGX_SERVER_KILL_MS);
        sim_box_on_unavailable(box, &gone);
        drain_doors(box);
        sim_crew_stop(box->crew);
}

bool sim_box_stopped(const sim_box *box)
{
        return box->stopped;
}

void sim_box_door_closed(sim_box *box)
{
        box->n_doors--;
        stop_if_quiet(box);
}

/* ---- the beginning, and a kill ---- */

sim_wire *sim_box_accept(sim_box *box, const sim_end *host, void *user)
{
        sim_door *d;

        if (box->refusing)
                return NULL;
        d = sim_door_new(box);
        d->wire = sim_wire_new(&box->s->net, host, user, &sim_door_end, d);
        return d->wire;
}

static void make_table(sim_box *box, const uint8_t seed[16])
{
        static const agx_ledger_bounds tight = {.calls_max = 48,
                                                .kept_max = 6,
                                                .kept_bytes = 4096,
                                                .item_bytes = AGX_LEDGER_ITEM_BYTES,
                                                .inline_ms = AGX_LEDGER_INLINE_MS,
                                                .window = AGX_LEDGER_WINDOW,
                                                .sessions_max = 8,
                                                .forgotten_max = 64,
                                                .foreign_max = 4096};

        if (agx_calls_init(&box->calls, seed))
                abort();
        box->kept_max = AGX_LEDGER_KEPT_MAX;
        if (!box->s->plan.tight)
                return;
        agx_ledger_free(box->calls.ledger);
        if (agx_ledger_new_bounded(&box->calls.ledger, seed, &tight))
                abort();
        box->kept_max = tight.kept_max;
        box->calls.queue_max = 2000;
}

sim_box *sim_box_new(sim *s)
{
        sim_box *box = sim_alloc(sizeof(*box));
        uint8_t seed[16];

        box->s = s;
        snprintf(box->instance, sizeof(box->instance), "%032llx", (unsigned long long)++s->instances);
        box->site.version = AGX_VIEW("9.9");
        box->site.instance = agx_view_str(box->instance);
        agx_auth_init(&box->site.auth);
        if (s->plan.token && agx_auth_set_token(&box->site.auth, agx_view_str(sim_token)))
                abort();
        agx_list_init(&box->doors);
        sim_fill(&s->clock, seed, sizeof(seed));
        agx_rpc_init(&box->rpc, &box->calls, seed);
        agx_map_init(&box->lobbies, seed);
        make_table(box, seed);
        sim_flush_init(&box->links, let_links_speak);
        box->ledger_tick.fire = on_ledger_tick;
        box->graces.fire = on_graces;
        box->drain.fire = on_drain_over;
        box->crew = sim_crew_new(box);
        return box;
}

void sim_box_kill(sim_box *box)
{
        sim *s = box->s;

        sim_end_turn(s);
        sim_crew_free(box->crew);
        agx_list_foreach_safe(node, &box->doors)
        {
                sim_door *d = agx_container_of(node, sim_door, node);

                if (!sim_once_in(&s->clock, 4)) /* else the kernel says so to the host, behind what was sent */
                        sim_wire_cut(d->wire);
                sim_door_close(d);
        }
        sim_lobby_close_all(box);
        sim_end_turn(s);
        sim_flush_cancel(&box->links);
        sim_timer_stop(&s->clock, &box->ledger_tick);
        sim_timer_stop(&s->clock, &box->graces);
        sim_timer_stop(&s->clock, &box->drain);
        agx_rpc_deinit(&box->rpc);
        agx_calls_deinit(&box->calls);
        agx_auth_deinit(&box->site.auth);
        free(box);
}

void sim_box_kill_worker(sim_box *box)
{
        sim_crew_kill_one(box->crew);
}

/* ---- what the judge is shown ---- */

/* A call of which the table says so. */
static uint32_t some_call(sim_box *box, agx_resume wanted)
{
        sim *s = box->s;

        for (uint32_t key = 1; key < s->next_job; ++key) {
                sim_job *job = &s->jobs[key];
                agx_resume answer;
                agx_call *call;
                char id[64];

                if (job->accepted && !job->given_up &&
                    !agx_ledger_resume(box->calls.ledger, sim_session(s, job->host),
                                       sim_id_write(s, job->host, job->counter, id), sim_now(s), &answer, &call) &&
                    answer == wanted)
                        return key;
        }
        return 0;
}

/* Results that may be on their way out, and so are in the table whatever its bound. */
static uint64_t being_written(sim_box *box)
{
        uint64_t n = 2 * (uint64_t)box->n_doors;

        agx_list_foreach_safe(node, &box->doors)
        {
                sim_door *d = agx_container_of(node, sim_door, node);

                n += d->fast ? sim_fast_replies(d) : 0;
        }
        return n;
}

void sim_box_judge(sim_box *box, bool at_end)
{
        agx_ledger_counts counts = agx_ledger_count(box->calls.ledger);
        sim *s = box->s;

        sim_note_key(s, SIM_TABLE, 0, 0, being_written(box), counts.open, counts.retained);
        if (!at_end)
                return;
        if (counts.open)
                sim_judge_blame(s->judge, some_call(box, AGX_RESUME_OPEN),
                                "calls are open at the server after everything has ended");
        if (counts.retained && some_call(box, AGX_RESUME_REPLAY))
                sim_judge_blame(s->judge, some_call(box, AGX_RESUME_REPLAY),
                                "a result is kept at the server that was acknowledged");
        if (agx_calls_any_held(&box->calls) || !agx_list_empty(&box->calls.graces))
                sim_judge_blame(s->judge, 0, "frames are held or graces counted after everything has ended");
        if (!sim_crew_is_quiet(box->crew))
                sim_judge_blame(s->judge, 0, "a retired worker outlived everything");
}
