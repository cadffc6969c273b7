/*
 * A shell of agx_conn: does with each wish what server/http_uv.c does, over a wire of the simulator. What differs is the
 * stream: bytes go into the wire's pipe at the end of the turn, as far as its window takes them.
 */
#include "box.h"

#include "proto/limits.h"

#include <stdlib.h>

enum { READ_BYTES = 256 * 1024 };

static void pump(sim_door *d);

static uint64_t now_of(const sim_door *d)
{
        return sim_now(d->box->s);
}

static agx_ledger *ledger_of(const sim_door *d)
{
        return d->box->calls.ledger;
}

static void set_deadline(sim_door *d, uint64_t at)
{
        sim_timer_set(&d->box->s->clock, &d->deadline, at);
}

/* ---- the stream ---- */

static void on_drained(sim_door *d);

static void write_out(sim_door *d)
{
        size_t n = d->out.len ? sim_wire_box_write(d->wire, agx_buf_view(&d->out)) : 0;

        d->wrote = d->wrote || n;
        agx_buf_consume(&d->out, n);
}

static void on_flush(sim_flush *f)
{
        sim_door *d = agx_container_of(f, sim_door, flush);

        if (d->closed)
                return;
        write_out(d);
        if (d->out.len)
                return;
        if (d->shut) {
                d->shut = false;
                sim_wire_box_end(d->wire);
        }
        if (d->wrote) {
                d->wrote = false;
                on_drained(d);
        }
}

void sim_door_touch(sim_door *d)
{
        if (!d->closed)
                sim_flush_later(d->box->s, &d->flush);
}

int sim_door_send(sim_door *d, agx_view body, bool *done)
{
        int r = agx_buf_append_view(&d->out, body);

        if (r)
                return r;
        write_out(d);
        sim_door_touch(d);
        *done = !d->out.len;
        return 0;
}

void sim_door_read(sim_door *d, bool on)
{
        sim_pipe_read(&d->wire->up, on);
}

/* ---- the end of a connection ---- */

static void settle(sim_door *d, bool written)
{
        agx_call *call = d->settling;

        if (!call)
                return;
        d->settling = NULL;
        call->waiter = NULL;
        if (written) {
                sim_box_note_call(d->box, SIM_ANSWERED, call);
                agx_ledger_answered(ledger_of(d), call, now_of(d));
        } else {
                sim_box_deliver(d->box, call); /* to its session's link, or it is kept */
        }
        sim_box_touched(d->box);
}

static void abandon(sim_door *d)
{
        settle(d, false);
        if (d->call)
                d->call->waiter = NULL;
        d->call = NULL;
        sim_lobby_lost(d);
        sim_fast_lost(d);
}

static void on_gone(sim_flush *f)
{
        sim_door *d = agx_container_of(f, sim_door, flush);
        sim_box *box = d->box;

        agx_list_unlink(&d->node);
        agx_conn_deinit(&d->conn);
        agx_buf_deinit(&d->ahead);
        agx_buf_deinit(&d->out);
        if (d->ws)
                agx_ws_free(d->ws);
        sim_fast_free(d);
        free(d);
        sim_box_door_closed(box);
}

void sim_door_close(sim_door *d)
{
        if (d->closed)
                return;
        abandon(d);
        d->closed = true;
        set_deadline(d, UINT64_MAX);
        sim_wire_box_close(d->wire);
        sim_flush_cancel(&d->flush);
        d->flush.run = on_gone; /* at the end of the turn, as handles do */
        sim_flush_later(d->box->s, &d->flush);
}

void sim_door_finish(sim_door *d)
{
        if (d->ending)
                return;
        d->ending = true;
        agx_buf_deinit(&d->ahead);
        if (!d->out.len) {
                sim_door_close(d);
                return;
        }
        d->shut = true;
        set_deadline(d, now_of(d) + AGX_HTTP_IDLE_MS);
        sim_door_touch(d);
        sim_door_read(d, true);
}

void sim_door_drain(sim_door *d)
{
        if (d->ending || d->call || d->running || d->lobby)
                return;
        if (d->fast) {
                sim_fast_drain(d);
                return;
        }
        d->conn.state = AGX_CONN_CLOSING;
        sim_door_finish(d);
}

/* ---- calls ---- */

static void write_outcome(sim_door *d, agx_call *call, bool kept)
{
        bool done = false;
        int r;

        settle(d, true);
        if (!call->ok && !call->payload.len) {
                r = agx_conn_reply_unavailable(&d->conn, now_of(d));
        } else {
                r = agx_conn_reply_result(&d->conn, now_of(d), call->ok, call->payload.len);
                if (!r)
                        r = sim_door_send(d, agx_buf_view(&call->payload), &done);
        }
        d->settling = call;
        call->waiter = &d->waiter;
        if (done || kept)
                settle(d, true);
        if (r)
                sim_door_close(d);
}

static void on_deliver(agx_waiter *waiter, agx_call *call)
{
        sim_door *d = agx_container_of(waiter, sim_door, waiter);

        d->call = NULL;
        write_outcome(d, call, false);
        pump(d);
}

static void wait_for(sim_door *d, agx_call *call)
{
        call->waiter = &d->waiter;
        d->call = call;
}

static int accepted(sim_door *d, agx_view id)
{
        return agx_conn_reply_accepted(&d->conn, now_of(d), id);
}

static void on_forget(agx_waiter *waiter, agx_call *call)
{
        sim_door *d = agx_container_of(waiter, sim_door, waiter);

        if (d->settling == call)
                d->settling = NULL;
        if (d->call != call)
                return;
        d->call = NULL;
        if (accepted(d, agx_call_id(call)))
                sim_door_close(d);
        else
                sim_door_touch(d);
}

static int let_go(sim_door *d)
{
        agx_call *call = d->call;

        d->call = NULL;
        call->waiter = NULL;
        return accepted(d, agx_call_id(call));
}

static void answer_ended(sim_door *d, agx_call *call)
{
        agx_waiter *other = call->waiter;

        if (other)
                other->forget(other, call);
        write_outcome(d, call, call->kept);
}

static int submit(sim_door *d)
{
        sim_box *box = d->box;
        agx_calls_worker worker;
        bool ready = sim_box_worker(box, &worker);
        agx_submit verdict;
        agx_fault fault;
        agx_call *call;
        int r = agx_calls_submit(&box->calls, &d->conn.request, d->conn.session, now_of(d), ready ? &worker : NULL,
                                 &verdict, &call, &fault);

        if (r)
                return agx_conn_reply_unavailable(&d->conn, now_of(d));
        sim_box_note_request(box, d->conn.session, &d->conn.request, verdict);
        switch (verdict) {
        case AGX_SUBMIT_STARTED:
                wait_for(d, call);
                sim_box_worker_fed(box);
                break;
        case AGX_SUBMIT_HELD:
                wait_for(d, call);
                sim_crew_wanted(box->crew);
                break;
        case AGX_SUBMIT_OPEN:
                return accepted(d, agx_call_id(call));
        case AGX_SUBMIT_ENDED:
                if (call->items.next) /* a stream's end comes after its items, and those on the link */
                        return accepted(d, agx_call_id(call));
                answer_ended(d, call);
                return 0;
        case AGX_SUBMIT_FAULT:
                return agx_conn_reply_fault(&d->conn, now_of(d), &fault);
        }
        return d->call && !d->conn.wait_ms ? let_go(d) : 0;
}

/* ---- input ---- */

static bool must_wait(sim_door *d)
{
        bool wait = d->out.len > AGX_HTTP_OUT;

        if (wait && !d->paused_at)
                d->paused_at = now_of(d);
        if (!wait && d->paused_at) {
                agx_conn_forgive(&d->conn, now_of(d) - d->paused_at);
                d->paused_at = 0;
        }
        return wait;
}

static bool carry_out(sim_door *d, agx_conn_wish wish)
{
        int r = 0;

        switch (wish) {
        case AGX_CONN_SUBMIT:
                r = submit(d);
                break;
        case AGX_CONN_FAST:
                r = sim_fast_begin(d);
                break;
        case AGX_CONN_SIO:
                r = sim_lobby_request(d);
                break;
        case AGX_CONN_CONDUIT:
                r = agx_conn_reply_unavailable(&d->conn, now_of(d));
                break;
        case AGX_CONN_CLOSE:
                sim_door_finish(d);
                return false;
        case AGX_CONN_LATE:
                if (d->call)
                        r = let_go(d);
                break;
        case AGX_CONN_INPUT:
        case AGX_CONN_WAIT:
        case AGX_CONN_NONE:
                return false;
        }
        if (r)
                sim_door_close(d);
        return !r && !d->closed;
}

static void feed(sim_door *d, agx_view *in)
{
        agx_conn_wish wish;

        d->running = true;
        while (!d->ending && !d->closed && !d->ws && !d->fast && !must_wait(d)) {
                if (agx_conn_next(&d->conn, now_of(d), in, &wish)) {
                        sim_door_close(d);
                        break;
                }
                if (!carry_out(d, wish))
                        break;
        }
        d->running = false;
        if (d->closed)
                return;
        sim_door_touch(d);
        if (!d->ending && !d->fast)
                set_deadline(d, agx_conn_deadline(&d->conn));
}

static void read_or_pause(sim_door *d)
{
        sim_door_read(d, d->ending || (d->ahead.len < AGX_HTTP_AHEAD && !must_wait(d)));
}

static void feed_upgraded(sim_door *d, agx_view in)
{
        if (d->fast)
                sim_fast_feed(d, in);
        else
                sim_lobby_feed(d, in);
}

static void hand_over(sim_door *d)
{
        agx_buf rest = d->ahead;

        d->ahead = AGX_BUF_NULL(0);
        if (rest.len && !d->closed)
                feed_upgraded(d, agx_buf_view(&rest));
        agx_buf_deinit(&rest);
}

static void pump(sim_door *d)
{
        if (d->running || d->ending || d->ws || d->fast || d->closed)
                return;
        if (d->ahead.len) {
                agx_view rest = agx_buf_view(&d->ahead);
                size_t before = rest.n;

                feed(d, &rest);
                if (d->ahead.len)
                        agx_buf_consume(&d->ahead, before - rest.n);
        } else {
                agx_view none = AGX_VIEW("");

                feed(d, &none);
        }
        if (d->ws || d->fast)
                hand_over(d);
        else if (!d->closed)
                read_or_pause(d);
}

void sim_door_pump(sim_door *d)
{
        pump(d);
}

static void on_data(sim_wire *wire, void *user, agx_view in)
{
        sim_door *d = user;

        (void)wire;
        if (d->ending || d->closed)
                return;
        if (!d->ahead.len && !d->ws && !d->fast) {
                feed(d, &in);
                if (d->ending || d->closed)
                        return;
        }
        if (d->ws || d->fast) {
                feed_upgraded(d, in);
                return;
        }
        if (in.n && agx_buf_append_view(&d->ahead, in))
                sim_door_close(d);
        else
                read_or_pause(d);
}

/* ---- events of the wire ---- */

static void on_ended(sim_wire *wire, void *user, const char *why)
{
        sim_door *d = user;

        (void)wire;
        if (d->closed)
                return;
        d->ended = true;
        if (!why && !d->call && !d->lobby && !d->fast && d->out.len)
                sim_door_finish(d);
        else
                sim_door_close(d);
}

static void on_room(sim_wire *wire, void *user)
{
        sim_door *d = user;

        (void)wire;
        if (d->out.len)
                sim_door_touch(d);
}

const sim_end sim_door_end = {.data = on_data, .room = on_room, .ended = on_ended};

static void on_drained(sim_door *d)
{
        settle(d, true);
        if (!d->ending && d->ws) {
                sim_lobby_drained(d);
        } else if (!d->ending && d->fast) {
                sim_fast_drained(d);
        } else if (!d->ending) {
                agx_conn_drained(&d->conn, now_of(d));
                pump(d);
        } else if (d->ended) {
                sim_door_close(d);
        } else {
                set_deadline(d, now_of(d) + AGX_HTTP_LINGER_MS);
        }
}

static bool makes_progress(sim_door *d)
{
        bool moved = d->out.len && d->out.len != d->last_queued;

        d->last_queued = d->out.len;
        return moved;
}

static void on_deadline(sim_timer *t)
{
        sim_door *d = agx_container_of(t, sim_door, deadline);
        agx_conn_wish wish;

        if (makes_progress(d)) {
                set_deadline(d, now_of(d) + AGX_HTTP_IDLE_MS);
                return;
        }
        if (d->fast && !d->ending) {
                sim_fast_tick(d);
                return;
        }
        if (d->ending || agx_conn_tick(&d->conn, now_of(d), &wish)) {
                sim_door_close(d);
                return;
        }
        carry_out(d, wish);
        if (wish == AGX_CONN_LATE)
                pump(d);
        else if (!d->closed && !d->ending)
                set_deadline(d, agx_conn_deadline(&d->conn));
}

/* ---- the beginning ---- */

sim_door *sim_door_new(sim_box *box)
{
        sim_door *d = sim_alloc(sizeof(*d));

        d->box = box;
        d->deadline.fire = on_deadline;
        d->out = AGX_BUF_NULL((size_t)AGX_MAX_MESSAGE + AGX_HTTP_OUT * 8);
        d->ahead = AGX_BUF_NULL(AGX_HTTP_AHEAD + READ_BYTES);
        d->waiter = (agx_waiter){.deliver = on_deliver, .forget = on_forget};
        sim_flush_init(&d->flush, on_flush);
        if (agx_conn_init(&d->conn, &box->site, &d->out, now_of(d)))
                abort();
        agx_list_push_back(&box->doors, &d->node);
        box->n_doors++;
        set_deadline(d, agx_conn_deadline(&d->conn));
        return d;
}
