/* A shell of agx_fastconn: does with each wish what server/fast_uv.c does, on a door that was upgraded. */
#include "box.h"

#include "proto/limits.h"

#include <stdlib.h>

struct sim_fast {
        agx_fastconn conn;
        agx_list settling;
        bool feeding, lost;
};

static void pump(sim_door *d);

static uint64_t now_of(const sim_door *d)
{
        return sim_now(d->box->s);
}

static sim_door *door_of(agx_waiter *waiter, agx_fast_stream **s)
{
        *s = agx_container_of(waiter, agx_fast_stream, waiter);
        return (*s)->user;
}

/* ---- the end of a reply ---- */

static void settle(sim_door *d, agx_fast_stream *s, bool written)
{
        agx_call *call = s->settling;

        s->settling = NULL;
        if (call) {
                call->waiter = NULL;
                if (written) {
                        sim_box_note_call(d->box, SIM_ANSWERED, call);
                        agx_ledger_answered(d->box->calls.ledger, call, now_of(d));
                } else {
                        sim_box_deliver(d->box, call);
                }
        }
        agx_fastconn_free(s);
}

static void settle_all(sim_door *d, bool written)
{
        agx_list *node;

        while ((node = agx_list_first(&d->fast->settling)))
                settle(d, agx_container_of(node, agx_fast_stream, gone), written);
        sim_box_touched(d->box);
}

/* ---- calls ---- */

static int put_outcome(agx_fast_stream *s, const agx_call *call, bool copy)
{
        if (!call->ok && !call->payload.len)
                return agx_fastconn_reply_unavailable(s);
        return agx_fastconn_reply_result(s, call->ok, agx_buf_view(&call->payload), copy);
}

static int write_outcome(sim_door *d, agx_fast_stream *s, agx_call *call, bool kept)
{
        int r = put_outcome(s, call, kept);

        s->settling = kept ? NULL : call;
        call->waiter = kept ? NULL : &s->waiter;
        if (!kept)
                return r;
        sim_box_note_call(d->box, SIM_ANSWERED, call);
        agx_ledger_answered(d->box->calls.ledger, call, now_of(d));
        sim_box_touched(d->box);
        return r;
}

static void on_deliver(agx_waiter *waiter, agx_call *call)
{
        agx_fast_stream *s;
        sim_door *d = door_of(waiter, &s);

        s->call = NULL;
        if (write_outcome(d, s, call, false))
                sim_door_close(d);
        else
                pump(d);
}

static int accepted(agx_fast_stream *s, const agx_call *call)
{
        return agx_fastconn_reply_accepted(s, agx_call_id(call));
}

static void on_forget(agx_waiter *waiter, agx_call *call)
{
        agx_fast_stream *s;
        sim_door *d = door_of(waiter, &s);
        bool queued = s->settling == call && agx_list_empty(&s->gone);

        if (s->settling == call)
                s->settling = NULL;
        if (queued) {
                agx_fastconn_take_back(s);
                agx_fastconn_free(s);
        } else if (s->call == call) {
                s->call = NULL;
                if (accepted(s, call)) {
                        sim_door_close(d);
                        return;
                }
        }
        pump(d);
}

static int let_go(agx_fast_stream *s)
{
        agx_call *call = s->call;

        s->call = NULL;
        call->waiter = NULL;
        return accepted(s, call);
}

static void wait_for(agx_fast_stream *s, agx_call *call)
{
        call->waiter = &s->waiter;
        s->call = call;
}

static int answer_ended(sim_door *d, agx_fast_stream *s, agx_call *call)
{
        agx_waiter *other = call->waiter;

        if (other)
                other->forget(other, call);
        return write_outcome(d, s, call, call->kept);
}

static int act(sim_door *d, agx_fast_stream *s, agx_submit verdict, agx_call *call, const agx_fault *fault)
{
        switch (verdict) {
        case AGX_SUBMIT_STARTED:
                wait_for(s, call);
                sim_box_worker_fed(d->box);
                break;
        case AGX_SUBMIT_HELD:
                wait_for(s, call);
                sim_crew_wanted(d->box->crew);
                break;
        case AGX_SUBMIT_OPEN:
                return accepted(s, call);
        case AGX_SUBMIT_ENDED:
                return call->items.next ? accepted(s, call) : answer_ended(d, s, call);
        case AGX_SUBMIT_FAULT:
                return agx_fastconn_reply_fault(s, fault);
        }
        return s->call && !s->wait_ms ? let_go(s) : 0;
}

static int submit(sim_door *d, agx_fast_stream *s)
{
        agx_view session = agx_fastconn_session(&d->fast->conn);
        agx_calls_worker worker;
        bool ready = sim_box_worker(d->box, &worker);
        agx_submit verdict;
        agx_fault fault;
        agx_call *call;
        int r = agx_calls_submit(&d->box->calls, &s->request, session, now_of(d), ready ? &worker : NULL, &verdict,
                                 &call, &fault);

        if (!r)
                sim_box_note_request(d->box, session, &s->request, verdict);
        agx_fastconn_submitted(s);
        return r ? agx_fastconn_reply_unavailable(s) : act(d, s, verdict, call, &fault);
}

/* ---- out ---- */

static bool send_some(sim_door *d)
{
        agx_fast *fast = d->fast->conn.fast;
        agx_view segments[2];
        int n = agx_fast_pending(fast, segments), r = n < 0 ? n : 0;
        agx_fast_stream *s;
        size_t sent = 0;
        bool done;

        for (int i = 0; !r && i < n; ++i) {
                sent += segments[i].n;
                r = sim_door_send(d, segments[i], &done);
        }
        if (r) {
                sim_door_close(d);
                return false;
        }
        agx_fast_sent(fast, sent);
        while ((s = agx_fastconn_next_gone(&d->fast->conn, now_of(d))))
                agx_list_push_back(&d->fast->settling, &s->gone);
        return n > 0;
}

static void pump(sim_door *d)
{
        if (d->fast->feeding || d->ending || d->closed)
                return;
        while (sim_door_queued(d) < AGX_FAST_OUT_LOW && send_some(d))
                ;
        if (d->closed)
                return;
        if (!sim_door_queued(d))
                settle_all(d, true);
        sim_door_read(d, sim_door_queued(d) < AGX_FAST_OUT_LOW);
        if (d->box->site.draining && !d->fast->conn.n_streams)
                sim_door_finish(d);
        else
                sim_timer_set(&d->box->s->clock, &d->deadline, agx_fastconn_deadline(&d->fast->conn));
}

void sim_fast_drained(sim_door *d)
{
        settle_all(d, true);
        pump(d);
}

/* ---- in ---- */

void sim_fast_feed(sim_door *d, agx_view in)
{
        agx_fastconn_wish wish = AGX_FASTCONN_SUBMIT;
        agx_fast_stream *s = NULL;
        int r = 0;

        d->fast->feeding = true;
        while (!r && wish == AGX_FASTCONN_SUBMIT) {
                r = agx_fastconn_next(&d->fast->conn, now_of(d), &in, &wish, &s);
                if (r || wish != AGX_FASTCONN_SUBMIT)
                        break;
                s->user = d;
                s->waiter = (agx_waiter){.deliver = on_deliver, .forget = on_forget};
                r = submit(d, s);
        }
        d->fast->feeding = false;
        if (d->closed)
                return;
        if (r) {
                sim_door_close(d);
                return;
        }
        pump(d);
        if (wish == AGX_FASTCONN_CLOSE && !d->closed)
                sim_door_finish(d);
}

void sim_fast_tick(sim_door *d)
{
        agx_fast_stream *s;
        int r = 0;

        while (!r && (s = agx_fastconn_late(&d->fast->conn, now_of(d))))
                r = s->call ? let_go(s) : 0;
        if (r)
                sim_door_close(d);
        else if (agx_fastconn_is_idle(&d->fast->conn, now_of(d)))
                sim_door_finish(d);
        else
                pump(d);
}

void sim_fast_drain(sim_door *d)
{
        pump(d);
}

size_t sim_fast_replies(const sim_door *d)
{
        size_t n = d->fast->conn.n_streams;

        for (const agx_list *node = d->fast->settling.next; node != &d->fast->settling; node = node->next)
                ++n;
        return n;
}

/* ---- the beginning and the end ---- */

int sim_fast_begin(sim_door *d)
{
        uint8_t seed[16] = {0};

        if (d->box->s->plan.no_fast) /* as an older server, or a proxy */
                return agx_conn_reply_refusal(&d->conn, now_of(d), 404, "no fast wire here");
        d->fast = sim_alloc(sizeof(*d->fast));
        agx_list_init(&d->fast->settling);
        if (agx_fastconn_init(&d->fast->conn, d->conn.session, seed, now_of(d)))
                abort();
        return agx_conn_reply_upgrade(&d->conn);
}

void sim_fast_lost(sim_door *d)
{
        if (!d->fast || d->fast->lost)
                return;
        d->fast->lost = true;
        for (size_t i = 0; i < AGX_FAST_STREAMS_MAX; ++i) {
                agx_fast_stream *s = d->fast->conn.streams[i];
                agx_call *call = s ? s->settling : NULL;

                if (s && s->call)
                        s->call->waiter = NULL;
                if (s)
                        s->call = s->settling = NULL;
                if (call) {
                        call->waiter = NULL;
                        sim_box_deliver(d->box, call);
                }
        }
        settle_all(d, false);
}

void sim_fast_free(sim_door *d)
{
        if (!d->fast)
                return;
        agx_fastconn_deinit(&d->fast->conn);
        free(d->fast);
}
