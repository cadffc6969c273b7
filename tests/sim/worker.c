/*
 * A worker's process. A call frame begins a task; its target writes a line when it begins, perhaps one while it runs, and
 * one when it ends; then its outcome goes into the pipe. A kill stops all of that at once, and what is in the pipe by then is
 * still read by the server, which hears of the death a little later.
 */
#include "box.h"

#include <stdlib.h>

enum { CHANNEL = 32768 };

typedef enum task_state { TASK_TO_BEGIN, TASK_RUNNING, TASK_TO_END } task_state;

typedef struct task {
        agx_list node;
        sim_worker *worker;
        sim_job *job;
        uint32_t host;
        uint64_t counter, run, ends_at;
        uint64_t credit;
        uint32_t given; /* items */
        bool began, touched, cancelled, streams;
        sim_timer step;
        size_t n_id;
        char id[AGX_MAX_CALL_ID];
} task;

static sim_clock *clock_of(const sim_worker *w)
{
        return &w->s->clock;
}

static uint64_t now_of(const sim_worker *w)
{
        return sim_now(w->s);
}

/* ---- death ---- */

static void free_task(task *t)
{
        sim_timer_stop(clock_of(t->worker), &t->step);
        agx_list_unlink(&t->node);
        free(t);
}

/* The process is gone from now on. */
static void die(sim_worker *w, int status)
{
        if (w->dead)
                return;
        w->dead = true;
        w->status = status;
        ++w->s->deaths;
        agx_list_foreach_safe(node, &w->tasks) free_task(agx_container_of(node, task, node));
        sim_timer_stop(clock_of(w), &w->boot);
        sim_timer_stop(clock_of(w), &w->death);
        sim_note_key(w->s, SIM_WORKER_DEAD, 0, 0, 0, 0, w->serial);
        w->down.torn = true;
        while (w->said.len && !sim_once_in(clock_of(w), 4)) { /* what write() had taken is in the pipe */
                size_t n = sim_pipe_write(&w->up, agx_buf_view(&w->said));

                agx_buf_consume(&w->said, n);
                if (!n)
                        break;
        }
        if (w->crew)
                sim_timer_set(clock_of(w), &w->noticed, now_of(w) + sim_draw(clock_of(w), 4));
        else
                sim_flush_later(w->s, &w->talk); /* frees it */
}

static void on_noticed(sim_timer *t)
{
        sim_worker *w = agx_container_of(t, sim_worker, noticed);

        if (!w->crew)
                return;
        sim_pipe_drain(&w->up);
        if (w->crew) {
                w->told = true;
                sim_crew_on_died(w->crew, w);
        }
}

static void on_death(sim_timer *t)
{
        sim_worker *w = agx_container_of(t, sim_worker, death);

        die(w, w->status);
}

static void die_soon(sim_worker *w, int status, uint64_t ms)
{
        if (w->dead || (w->death.place && w->death.at <= now_of(w) + ms))
                return;
        w->status = status;
        sim_timer_set(clock_of(w), &w->death, now_of(w) + ms);
}

void sim_worker_kill(sim_worker *w)
{
        die_soon(w, -9, sim_draw(clock_of(w), 3));
}

void sim_worker_terminate(sim_worker *w)
{
        if (!sim_once_in(clock_of(w), 3))
                die_soon(w, -15, sim_draw(clock_of(w), 50));
}

/* ---- what it says ---- */

static void talk(sim_flush *f)
{
        sim_worker *w = agx_container_of(f, sim_worker, talk);

        if (w->dead && !w->crew) {
                sim_worker_free(w);
                return;
        }
        if (!w->dead)
                agx_buf_consume(&w->said, sim_pipe_write(&w->up, agx_buf_view(&w->said)));
}

/* A long frame in pieces; this process has nothing to say between them that could not be said behind. */
static void say_in_pieces(sim_worker *w, agx_view payload)
{
        uint8_t head[AGX_PIECE_HEAD_MAX];

        for (size_t done = 0, n; done < payload.n; done += n) {
                size_t n_head = agx_piece_head(head, (uint32_t)w->serial, payload.n, done, &n);

                if (agx_buf_append(&w->said, head, n_head) || agx_buf_append(&w->said, payload.p + done, n))
                        abort();
        }
}

static void say(sim_worker *w, const agx_frame *frame)
{
        _cleanup_(agx_buf_deinitp) agx_buf whole = AGX_BUF_NULL(SIZE_MAX);
        agx_view text;

        if (agx_frame_put(&whole, frame))
                abort();
        text = agx_buf_view(&whole);
        if (w->reads_pieces && text.n > AGX_FAST_FRAME_MAX)
                say_in_pieces(w, agx_view_from(text, 4));
        else if (agx_buf_append_view(&w->said, text))
                abort();
        sim_flush_later(w->s, &w->talk);
}

static void say_value(task *t)
{
        _cleanup_(agx_buf_deinitp) agx_buf value = AGX_BUF_NULL(1u << 24);
        sim_worker *w = t->worker;

        if (!t->streams)
                sim_value_put(&value, t->job, t->run);
        sim_note_key(w->s, SIM_RETURNED, t->job->key, t->host, t->counter, t->run, sim_digest(agx_buf_view(&value)));
        if (t->job->end == SIM_KILLS_WORKER && t->job->when == SIM_AFTER_END) {
                die(w, 7);
                return;
        }
        say(w, &(agx_frame){.kind = AGX_FRAME_RESULT,
                            .call_id = agx_view_of(t->id, t->n_id),
                            .value = t->streams ? AGX_VIEW_NULL : agx_buf_view(&value)});
        if (t->job->end == SIM_KILLS_WORKER) { /* in the midst of writing it */
                agx_buf_truncate(&w->said, (size_t)sim_draw(clock_of(w), w->said.len + 1));
                die(w, 7);
        }
}

static void say_fault(task *t, agx_view type, agx_view message, bool cancelled)
{
        agx_fault fault = {
                .type = type, .message = message, .traceback = AGX_VIEW("at a line"), .cancelled = cancelled};

        say(t->worker, &(agx_frame){.kind = AGX_FRAME_ERROR, .call_id = agx_view_of(t->id, t->n_id), .fault = fault});
}

/* ---- targets ---- */

static void note(task *t, sim_fact fact, uint64_t b)
{
        sim_note_key(t->worker->s, fact, t->job->key, t->host, t->counter, t->run, b);
}

static void end_task(task *t)
{
        sim_worker *w = t->worker;

        if (t->cancelled && t->job->manners != SIM_IGNORES) {
                note(t, SIM_TOUCHED, 0); /* its clean-up */
                say_fault(t, agx_fault_type_text(AGX_FAULT_CANCELLED), AGX_VIEW("the remote call was cancelled"), true);
        } else if (t->job->end == SIM_KILLS_WORKER && t->job->when == SIM_BEFORE_END) {
                die(w, 7); /* and with it the task */
                return;
        } else if (t->job->end == SIM_RAISES) {
                note(t, SIM_RETURNED, 0);
                say_fault(t, AGX_VIEW("Boom"), AGX_VIEW("as told"), false);
        } else {
                say_value(t);
        }
        if (!w->dead)
                free_task(t);
}

static void give_item(task *t)
{
        _cleanup_(agx_buf_deinitp) agx_buf value = AGX_BUF_NULL(1 << 16);
        agx_view v;

        sim_item_put(&value, t->job, t->run, t->given);
        v = agx_buf_view(&value);
        sim_note_key(t->worker->s, SIM_GAVE, t->job->key, t->host, t->counter, t->given, sim_digest(v));
        say(t->worker,
            &(agx_frame){
                    .kind = AGX_FRAME_ITEM, .call_id = agx_view_of(t->id, t->n_id), .seq = t->given++, .value = v});
        --t->credit;
}

/* A stream goes on while it has credit. */
static void set_stream_step(task *t)
{
        sim_clock *c = clock_of(t->worker);

        if (t->credit || t->given == t->job->items)
                sim_timer_set(c, &t->step, now_of(t->worker) + (sim_draw(c, 4) ? 0 : sim_skewed(c, 100)));
}

static void on_stream_step(task *t)
{
        if (t->given == t->job->items) {
                end_task(t);
                return;
        }
        if (t->credit)
                give_item(t);
        set_stream_step(t);
}

static void set_step(task *t)
{
        uint64_t now = now_of(t->worker), half = now + (t->ends_at == UINT64_MAX ? 500 : (t->ends_at - now) / 2);

        if (!t->touched && half < t->ends_at && t->ends_at - now > 1)
                sim_timer_set(clock_of(t->worker), &t->step, half);
        else
                sim_timer_set(clock_of(t->worker), &t->step, t->ends_at);
}

static void begin_task(task *t)
{
        sim_worker *w = t->worker;

        t->began = true;
        t->run = ++w->s->runs;
        note(t, SIM_RAN, w->serial);
        if (t->job->end == SIM_KILLS_WORKER && t->job->when == SIM_AT_BEGIN) {
                die(w, 7);
                return;
        }
        t->ends_at = UINT64_MAX;
        if (t->streams) {
                set_stream_step(t);
                return;
        }
        t->ends_at = t->job->end == SIM_NEVER_ENDS ? UINT64_MAX : now_of(w) + t->job->lasts_ms;
        if (t->ends_at == now_of(w))
                end_task(t);
        else
                set_step(t);
}

static void on_step(sim_timer *timer)
{
        task *t = agx_container_of(timer, task, step);

        if (!t->began) {
                begin_task(t);
        } else if (t->ends_at <= now_of(t->worker)) {
                end_task(t);
        } else if (t->streams && t->ends_at == UINT64_MAX) {
                on_stream_step(t);
        } else {
                t->touched = true;
                note(t, SIM_TOUCHED, 0);
                set_step(t);
        }
}

static void on_call(sim_worker *w, const agx_frame *frame)
{
        sim_job *job = sim_job_of(w->s, frame->arguments);
        task *t;

        if (!job) {
                sim_judge_blame(w->s->judge, 0, "arguments of nobody's arrived at a worker");
                return;
        }
        if (job->end == SIM_KILLS_WORKER && job->when == SIM_AT_RECEIPT) {
                die(w, 7);
                return;
        }
        t = sim_alloc(sizeof(*t));
        t->worker = w;
        t->job = job;
        t->streams = job->items && frame->has_stream;
        t->credit = frame->stream;
        t->step.fire = on_step;
        t->n_id = frame->call_id.n;
        memcpy(t->id, frame->call_id.p, t->n_id);
        if (!sim_id_read(w->s, frame->call_id, &t->host, &t->counter))
                sim_judge_blame(w->s->judge, 0, "an id of nobody's arrived at a worker");
        agx_list_push_back(&w->tasks, &t->node);
        if (job->lasts_ms && sim_once_in(clock_of(w), 4)) /* it waits for a thread */
                sim_timer_set(clock_of(w), &t->step, now_of(w) + sim_draw(clock_of(w), 10));
        else
                begin_task(t);
}

static void cancel_task(task *t)
{
        sim_worker *w = t->worker;

        if (t->cancelled)
                return;
        t->cancelled = true;
        if (!t->began) { /* it ends before its first line */
                say_fault(t, agx_fault_type_text(AGX_FAULT_CANCELLED), AGX_VIEW("the remote call was cancelled"), true);
                free_task(t);
                return;
        }
        if (t->job->manners == SIM_IGNORES)
                return;
        t->ends_at = now_of(w) + (t->job->manners == SIM_ENDS_LATE ? t->job->late_ms : sim_draw(clock_of(w), 3));
        t->touched = true;
        sim_timer_set(clock_of(w), &t->step, t->ends_at);
}

static task *find(sim_worker *w, agx_view id)
{
        agx_list_foreach_safe(node, &w->tasks)
        {
                task *t = agx_container_of(node, task, node);

                if (agx_view_eq(agx_view_of(t->id, t->n_id), id))
                        return t;
        }
        return NULL;
}

static void on_cancel(sim_worker *w, agx_view id)
{
        task *t = find(w, id);

        if (t)
                cancel_task(t);
}

static void on_credit(sim_worker *w, agx_view id, uint64_t n)
{
        task *t = find(w, id);

        if (!t)
                return;
        t->credit += n;
        if (t->began && t->streams && t->ends_at == UINT64_MAX && !t->step.place)
                set_stream_step(t);
}

/* ---- what it reads ---- */

static void on_down(sim_pipe *p, agx_view in)
{
        sim_worker *w = agx_container_of(p, sim_worker, down);
        agx_frame frame;
        agx_view payload;

        while (!w->dead && !agx_deframer_next(&w->its, &in, &payload)) {
                if (agx_frame_parse(payload, &frame))
                        sim_judge_blame(w->s->judge, 0, "a malformed frame arrived at a worker");
                else if (frame.kind == AGX_FRAME_CALL)
                        on_call(w, &frame);
                else if (frame.kind == AGX_FRAME_CANCEL)
                        on_cancel(w, frame.call_id);
                else if (frame.kind == AGX_FRAME_CREDIT)
                        on_credit(w, frame.call_id, frame.n);
                else if (frame.kind == AGX_FRAME_SHUTDOWN)
                        die_soon(w, 0, sim_draw(clock_of(w), 30));
        }
}

static void on_boot(sim_timer *t)
{
        sim_worker *w = agx_container_of(t, sim_worker, boot);

        if (!w->boots_badly) {
                w->booted = true;
                say(w, &(agx_frame){.kind = AGX_FRAME_READY});
                sim_pipe_read(&w->down, true);
                return;
        }
        switch (sim_draw(clock_of(w), 3)) {
        case 0:
                say(w, &(agx_frame){.kind = AGX_FRAME_BOOT_ERROR,
                                    .fault = {.type = AGX_VIEW("ImportError"), .message = AGX_VIEW("as told")}});
                break;
        case 1:
                die(w, -11);
                break;
        default: /* it hangs */
                break;
        }
}

/* ---- the server's end ---- */

static bool put_next_part(sim_worker *w)
{
        agx_view body;
        int r = w->bulk.at ? agx_bulk_sent(&w->bulk, &w->out) : 0;

        if (!r && !w->out.len && agx_bulk_next(&w->bulk, &w->out, &body, &r))
                r = agx_buf_append_view(&w->out, body);
        if (r)
                abort();
        return w->out.len > 0;
}

static void flush_out(sim_flush *f)
{
        sim_worker *w = agx_container_of(f, sim_worker, flush);

        if (!w->crew)
                return;
        do
                agx_buf_consume(&w->out, sim_pipe_write(&w->down, agx_buf_view(&w->out)));
        while (!w->out.len && put_next_part(w));
        if (!w->out.len && sim_crew_ready(w->crew) == w)
                sim_box_on_ready(sim_crew_box(w->crew));
}

static void on_down_room(sim_pipe *p)
{
        sim_worker *w = agx_container_of(p, sim_worker, down);

        if (w->crew && w->out.len)
                sim_flush_later(w->s, &w->flush);
}

static void on_up_room(sim_pipe *p)
{
        sim_worker *w = agx_container_of(p, sim_worker, up);

        if (w->said.len && !w->dead)
                sim_flush_later(w->s, &w->talk);
}

static void on_up(sim_pipe *p, agx_view in)
{
        sim_worker *w = agx_container_of(p, sim_worker, up);
        agx_frame frame;
        agx_view payload;

        while (w->crew && !agx_deframer_next(&w->deframer, &in, &payload)) {
                if (agx_frame_parse(payload, &frame)) {
                        sim_judge_blame(w->s->judge, 0, "a worker's frame is malformed");
                        return;
                }
                sim_crew_on_frame(w->crew, w, &frame);
        }
}

size_t sim_worker_queued(const sim_worker *w)
{
        return w->out.len;
}

agx_buf *sim_worker_behind(sim_worker *w, const agx_call *call)
{
        agx_buf *behind = agx_bulk_behind(&w->bulk, agx_call_id(call));

        return behind ? behind : &w->out;
}

agx_buf *sim_worker_last(sim_worker *w)
{
        agx_buf *last = agx_bulk_last(&w->bulk);

        return last ? last : &w->out;
}

void sim_worker_touch(sim_worker *w)
{
        sim_flush_later(w->s, &w->flush);
}

/* ---- beginning and end ---- */

sim_worker *sim_worker_spawn(sim_crew *crew, uint64_t number)
{
        sim_box *box = sim_crew_box(crew);
        sim_worker *w = sim_alloc(sizeof(*w));
        sim *s = box->s;

        w->s = s;
        w->crew = crew;
        w->number = number;
        w->serial = ++s->workers;
        agx_list_init(&w->node);
        agx_list_init(&w->tasks);
        w->out = AGX_BUF_NULL(AGX_WORKER_QUEUE_BYTES + AGX_MAX_MESSAGE);
        w->said = AGX_BUF_NULL(AGX_WORKER_QUEUE_BYTES);
        agx_bulk_init(&w->bulk);
        w->reads_pieces = w->serial % 2;
        agx_deframer_init(&w->deframer, AGX_MAX_MESSAGE);
        agx_deframer_init(&w->its, AGX_MAX_MESSAGE);
        sim_flush_init(&w->flush, flush_out);
        sim_flush_init(&w->talk, talk);
        sim_pipe_init(&w->down, &s->clock, CHANNEL, 0, sim_once_in(&s->clock, 4) ? 2 : 0);
        sim_pipe_init(&w->up, &s->clock, CHANNEL, 0, sim_once_in(&s->clock, 4) ? 2 : 0);
        w->down.data = on_down;
        w->down.room = on_down_room;
        w->down.paused = true;
        w->up.data = on_up;
        w->up.room = on_up_room;
        w->boot.fire = on_boot;
        w->death.fire = on_death;
        w->noticed.fire = on_noticed;
        w->boots_badly = !s->well && sim_once_in(&s->clock, s->plan.boot_trouble_one_in);
        sim_timer_set(&s->clock, &w->boot, s->clock.now + sim_between(&s->clock, 1, 60));
        return w;
}

void sim_worker_release(sim_worker *w)
{
        agx_list_unlink(&w->node);
        w->crew = NULL;
        sim_timer_stop(clock_of(w), &w->noticed);
        agx_list_push_back(&w->s->released, &w->node);
        if (w->dead)
                sim_flush_later(w->s, &w->talk);
        else /* its pipe ends: it leaves when it looks */
                die_soon(w, 0, sim_draw(clock_of(w), 20));
}

void sim_worker_free(sim_worker *w)
{
        agx_list_foreach_safe(node, &w->tasks) free_task(agx_container_of(node, task, node));
        sim_timer_stop(clock_of(w), &w->boot);
        sim_timer_stop(clock_of(w), &w->death);
        sim_timer_stop(clock_of(w), &w->noticed);
        sim_flush_cancel(&w->flush);
        sim_flush_cancel(&w->talk);
        agx_list_unlink(&w->node);
        agx_deframer_deinit(&w->deframer);
        agx_deframer_deinit(&w->its);
        agx_buf_deinit(&w->out);
        agx_buf_deinit(&w->said);
        agx_bulk_deinit(&w->bulk);
        sim_pipe_deinit(&w->down);
        sim_pipe_deinit(&w->up);
        free(w);
}
