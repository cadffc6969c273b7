/*
 * Every event goes to the brain, and the wishes that come back are carried out in one place; a retired worker has a
 * brain of its own. To the brain a spare does not exist: a start that takes it is one that is over soon, and if the spare
 * turns out to be of no use, another process stands in for it before anybody is told. A death makes two things:
 * a fault for the calls that ran there, and, if it was at boot, the text that later tells waiting calls why there is
 * no worker.
 */
#include "worker/supervisor_uv.h"
#include "proto/limits.h"

#include <stdio.h>

static void carry_out(agx_supervisor_uv *s, unsigned wishes);
static unsigned spawn_fresh(agx_supervisor_uv *s);

static void say(agx_supervisor_uv *s, const agx_buf *text)
{
        agx_view rest = agx_buf_view(text), line;

        if (rest.n && agx_view_split(&rest, '\n', &line)) /* the output below it has been passed on already */
                s->ops->note(s->user, line);
}

/* ---- words ---- */

static void add_tail(agx_buf *text, const agx_worker *w)
{
        size_t before = text->len;

        if (agx_buf_append_view(text, AGX_VIEW("\nlast output:\n")))
                return;
        if (agx_tail_text(&w->tail, AGX_OUTPUT_TAIL_SHOWN, text) || text->len == before + 14)
                agx_buf_truncate(text, before);
}

static agx_fault fault_of(agx_fault_type type, const agx_buf *message, const agx_worker *w)
{
        return (agx_fault){.type = agx_fault_type_text(type),
                           .message = agx_buf_view(message),
                           .has_returncode = w != NULL,
                           .returncode = w ? agx_death_returncode(&w->death) : 0};
}

/* Without memory for more, the words are few. */
static void describe(agx_buf *text, const char *what, const agx_worker *w)
{
        if (agx_buf_append_view(text, agx_view_str(what)) || agx_death_describe(&w->death, text))
                return;
        add_tail(text, w);
}

static void keep_boot_words(agx_supervisor_uv *s, const agx_worker *w)
{
        if (s->boot_says) {
                add_tail(&s->boot_message, w);
                return;
        }
        agx_buf_clear(&s->boot_message);
        agx_buf_clear(&s->boot_traceback);
        describe(&s->boot_message, "the worker did not start: ", w);
}

static void keep_boot_error(agx_supervisor_uv *s, const agx_fault *fault)
{
        agx_buf_clear(&s->boot_message);
        agx_buf_clear(&s->boot_traceback);
        s->boot_says = !agx_buf_printf(&s->boot_message, "the worker did not start: %.*s: %.*s", (int)fault->type.n,
                                       fault->type.p, (int)fault->message.n, fault->message.p);
        if (fault->traceback.p && agx_buf_append_view(&s->boot_traceback, fault->traceback))
                agx_buf_clear(&s->boot_traceback);
}

static void fail_waiting(agx_supervisor_uv *s)
{
        agx_fault fault = fault_of(AGX_FAULT_WORKER_BOOT, &s->boot_message, NULL);

        if (s->boot_traceback.len)
                fault.traceback = agx_buf_view(&s->boot_traceback);
        s->ops->unavailable(s->user, &fault);
}

/* ---- what a worker says ---- */

static void on_ready(agx_supervisor_uv *s, agx_worker *w, const agx_frame *frame)
{
        w->waking = false;
        w->reads_pieces = agx_frame_has_feature(frame, AGX_VIEW(AGX_FEATURE_PIECES));
        if (frame->n == 1 && s->config.spares)
                agx_spare_offered(&s->spares);
        agx_supervisor_ready(&s->brain);
        carry_out(s, 0);
        s->ops->ready(s->user, w->number);
}

static void note_answer(agx_supervisor_uv *s)
{
        uint64_t before = agx_spare_deadline(&s->spares);

        agx_spare_answered(&s->spares, agx_loop_now(s->loop));
        if (agx_spare_deadline(&s->spares) != before)
                carry_out(s, 0);
}

static void on_frame(agx_worker *w, const agx_frame *frame)
{
        agx_supervisor_uv *s = w->user;

        if (w == s->spare) {
                agx_worker_kill(w, "it spoke before its turn");
        } else if (!w->retired && frame->kind == AGX_FRAME_READY && s->brain.state == AGX_SUPERVISOR_BOOTING) {
                on_ready(s, w, frame);
        } else if (w->waking && frame->kind == AGX_FRAME_BOOT_ERROR) {
                agx_worker_kill(w, "it could not take another worker's place");
        } else if (!w->retired && frame->kind == AGX_FRAME_BOOT_ERROR) {
                keep_boot_error(s, &frame->fault);
                carry_out(s, agx_supervisor_boot_error(&s->brain));
        } else {
                s->ops->frame(s->user, w->number, frame);
                if (frame->kind == AGX_FRAME_RESULT || frame->kind == AGX_FRAME_ERROR)
                        note_answer(s);
        }
}

static void on_drained(agx_worker *w)
{
        agx_supervisor_uv *s = w->user;

        if (s->ops->drained && agx_supervisor_uv_ready(s) == w)
                s->ops->drained(s->user);
}

static void let_go(agx_supervisor_uv *s, agx_worker *w)
{
        agx_list_unlink(&w->node);
        agx_list_push_back(&s->released, &w->node);
        agx_worker_release(w);
}

static void on_retired_died(agx_supervisor_uv *s, agx_worker *w)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE);
        agx_fault fault;

        describe(&text, "the worker died: ", w);
        fault = fault_of(AGX_FAULT_WORKER_DIED, &text, w);
        if (w->retiree.state != AGX_RETIREE_LEAVING)
                say(s, &text);
        s->ops->died(s->user, w->number, &fault);
        let_go(s, w);
        carry_out(s, 0);
}

static void on_spare_died(agx_supervisor_uv *s, agx_worker *w)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE);

        s->spare = NULL;
        if (s->spares.state == AGX_SPARE_THERE) {
                describe(&text, "a spare worker died: ", w);
                say(s, &text);
        }
        agx_spare_died(&s->spares, agx_loop_now(s->loop));
        let_go(s, w);
        carry_out(s, 0);
}

/* It was of no use, for one reason or another, which is nothing that a call should hear of. */
static void on_waking_died(agx_supervisor_uv *s, agx_worker *w)
{
        s->worker = NULL;
        let_go(s, w);
        carry_out(s, spawn_fresh(s));
}

static void on_died(agx_worker *w)
{
        agx_supervisor_uv *s = w->user;
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE);
        bool at_boot = s->brain.at_boot, stopping = s->brain.state == AGX_SUPERVISOR_STOPPING;
        agx_fault fault;

        if (w == s->spare) {
                on_spare_died(s, w);
                return;
        }
        if (w->retired) {
                on_retired_died(s, w);
                return;
        }
        if (w->waking && s->brain.state == AGX_SUPERVISOR_BOOTING) {
                on_waking_died(s, w);
                return;
        }
        if (stopping && !w->death.fault)
                w->death.fault = "the server was shutting down";
        describe(&text, "the worker died: ", w);
        fault = fault_of(AGX_FAULT_WORKER_DIED, &text, w);
        if (at_boot)
                keep_boot_words(s, w);
        if (!stopping)
                say(s, at_boot ? &s->boot_message : &text);
        s->worker = NULL;
        s->boot_says = false;
        s->ops->died(s->user, w->number, &fault);
        carry_out(s, agx_supervisor_died(&s->brain, agx_loop_now(s->loop), w->worked));
        let_go(s, w);
}

static void on_note(agx_worker *w, agx_view line)
{
        agx_supervisor_uv *s = w->user;

        s->ops->note(s->user, line);
}

static void on_line(agx_worker *w, int fd, const agx_output_line *line)
{
        agx_supervisor_uv *s = w->user;

        if (s->ops->line)
                s->ops->line(s->user, w, fd, line);
}

static const agx_worker_ops worker_ops = {
        .frame = on_frame, .drained = on_drained, .died = on_died, .note = on_note, .line = on_line};

/* ---- wishes ---- */

static unsigned spawn_fresh(agx_supervisor_uv *s)
{
        uint64_t now = agx_loop_now(s->loop);
        int r = agx_worker_spawn(&s->worker, s->loop, s->relay, &s->config, ++s->spawned, false, &worker_ops, s);

        if (!r) {
                agx_supervisor_spawned(&s->brain, now);
                return 0;
        }
        s->worker = NULL;
        agx_buf_clear(&s->boot_message);
        agx_buf_clear(&s->boot_traceback);
        if (agx_buf_printf(&s->boot_message, "the worker did not start: %s", strerrordesc_np(-r)))
                agx_buf_clear(&s->boot_message);
        say(s, &s->boot_message);
        return agx_supervisor_died(&s->brain, now, false);
}

/* Waking one may show that it is dead, which is heard like any death; then there is none. */
static bool take_spare(agx_supervisor_uv *s)
{
        agx_worker *w = s->spare;

        if (!w) {
                agx_spare_missed(&s->spares);
                return false;
        }
        if (agx_worker_wake(w)) {
                if (s->spare)
                        agx_worker_kill(w, "it could not be woken");
                return false;
        }
        s->spare = NULL;
        s->worker = w;
        w->waking = true;
        s->wake_by = agx_loop_now(s->loop) + AGX_WORKER_SPARE_WAKE_MS;
        agx_spare_taken(&s->spares);
        agx_supervisor_spawned(&s->brain, agx_loop_now(s->loop));
        return true;
}

static unsigned spawn(agx_supervisor_uv *s)
{
        return take_spare(s) ? 0 : spawn_fresh(s);
}

static void start_spare(agx_supervisor_uv *s)
{
        if (s->closed || s->spare)
                return;
        agx_spare_started(&s->spares);
        if (!agx_worker_spawn(&s->spare, s->loop, s->relay, &s->config, ++s->spawned, true, &worker_ops, s))
                return;
        s->spare = NULL;
        agx_spare_died(&s->spares, agx_loop_now(s->loop));
}

static void send_shutdown(agx_worker *w)
{
        agx_frame frame = {.kind = AGX_FRAME_SHUTDOWN};

        if (!agx_frame_put(agx_worker_out_last(w), &frame))
                agx_worker_touch(w);
}

/* What is wished of a living worker. `why`: it is killed. */
static void treat(agx_worker *w, unsigned wishes, const char *why)
{
        if (wishes & AGX_SUPERVISOR_SHUTDOWN)
                send_shutdown(w);
        if (wishes & AGX_SUPERVISOR_TERMINATE)
                agx_worker_terminate(w);
        if (wishes & AGX_SUPERVISOR_KILL)
                agx_worker_kill(w, why);
}

static const char *why_killed(const agx_supervisor_uv *s)
{
        if (s->brain.state == AGX_SUPERVISOR_DYING && s->brain.hopeless && !s->boot_says)
                return "it was not ready within 15 seconds and was killed";
        return NULL;
}

static uint64_t next_deadline(const agx_supervisor_uv *s)
{
        uint64_t next = agx_supervisor_deadline(&s->brain), spare = agx_spare_deadline(&s->spares);

        next = spare < next ? spare : next;
        if (s->worker && s->worker->waking)
                next = s->wake_by < next ? s->wake_by : next;
        agx_list_foreach_safe(node, &s->retired)
        {
                uint64_t at = agx_retiree_deadline(&agx_container_of(node, agx_worker, node)->retiree);

                next = at < next ? at : next;
        }
        return next;
}

static void tell_if_stopped(agx_supervisor_uv *s)
{
        if (s->stopped || s->brain.state != AGX_SUPERVISOR_STOPPED || !agx_list_empty(&s->retired) || s->spare)
                return;
        s->stopped = true;
        s->ops->stopped(s->user);
}

static void carry_out(agx_supervisor_uv *s, unsigned wishes)
{
        if (wishes & AGX_SUPERVISOR_SPAWN && !s->closed)
                wishes |= spawn(s);
        if (wishes & AGX_SUPERVISOR_FAIL)
                fail_waiting(s);
        if (s->worker)
                treat(s->worker, wishes, why_killed(s));
        if (s->closed)
                return;
        agx_deadline_set(&s->deadline, next_deadline(s));
        tell_if_stopped(s);
}

static void treat_retired(agx_worker *w, unsigned wishes)
{
        treat(w, wishes, "a call that was cancelled in it did not end, so it was killed");
}

static void on_deadline(agx_deadline *d)
{
        agx_supervisor_uv *s = agx_container_of(d, agx_supervisor_uv, deadline);
        uint64_t now = agx_loop_now(s->loop);

        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker *w = agx_container_of(node, agx_worker, node);

                treat_retired(w, agx_retiree_tick(&w->retiree, now));
        }
        if (agx_spare_tick(&s->spares, now))
                start_spare(s);
        if (s->worker && s->worker->waking && now >= s->wake_by) {
                s->wake_by = UINT64_MAX;
                agx_worker_kill(s->worker, "it did not wake");
        }
        carry_out(s, agx_supervisor_tick(&s->brain, now));
}

/* ---- verbs ---- */

void agx_supervisor_uv_init(agx_supervisor_uv *s, agx_loop *l, agx_relay *relay, const agx_worker_config *config,
                            const agx_supervisor_uv_ops *ops, void *user)
{
        *s = (agx_supervisor_uv){.loop = l,
                                 .relay = relay,
                                 .config = *config,
                                 .ops = ops,
                                 .user = user,
                                 .boot_message = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE * 2),
                                 .boot_traceback = AGX_BUF_NULL(AGX_MAX_FAULT_TRACEBACK)};
        agx_list_init(&s->retired);
        agx_list_init(&s->released);
        agx_supervisor_init(&s->brain);
        agx_spare_init(&s->spares);
        agx_deadline_init(&s->deadline, l, on_deadline);
}

void agx_supervisor_uv_start(agx_supervisor_uv *s)
{
        carry_out(s, agx_supervisor_start(&s->brain));
}

void agx_supervisor_uv_wanted(agx_supervisor_uv *s)
{
        carry_out(s, agx_supervisor_wanted(&s->brain, agx_loop_now(s->loop)));
}

agx_worker *agx_supervisor_uv_ready(const agx_supervisor_uv *s)
{
        agx_worker *w = s->worker;

        /* A channel that has ended tells of a death before the death itself is seen: what is given then is lost. */
        return s->brain.state == AGX_SUPERVISOR_READY && w && !w->channel.ended ? w : NULL;
}

agx_worker *agx_supervisor_uv_find(const agx_supervisor_uv *s, uint64_t worker)
{
        if (s->worker && s->worker->number == worker)
                return s->worker;
        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker *w = agx_container_of(node, agx_worker, node);

                if (w->number == worker)
                        return w;
        }
        return NULL;
}

/* Not too many are alive beside the one that works. */
static void make_room(agx_supervisor_uv *s)
{
        agx_worker *oldest = NULL;
        size_t n = 0;

        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker *w = agx_container_of(node, agx_worker, node);

                if (w->retiree.state == AGX_RETIREE_KILLED)
                        continue;
                oldest = oldest ? oldest : w;
                n++;
        }
        if (n > AGX_WORKER_RETIRED_MAX)
                treat_retired(oldest, agx_retiree_make_room(&oldest->retiree));
}

void agx_supervisor_uv_load(agx_supervisor_uv *s, uint64_t worker, size_t running, size_t overdue)
{
        agx_worker *w = agx_list_empty(&s->retired) ? NULL : agx_supervisor_uv_find(s, worker);

        if (!w || !w->retired)
                return;
        treat_retired(w, agx_retiree_load(&w->retiree, agx_loop_now(s->loop), running, overdue));
        agx_deadline_set(&s->deadline, next_deadline(s));
}

void agx_supervisor_uv_retire(agx_supervisor_uv *s, uint64_t worker, size_t running, size_t overdue)
{
        agx_worker *w = s->worker;
        unsigned wishes = w && w->number == worker ? agx_supervisor_retire(&s->brain) : 0;

        if (wishes) {
                s->worker = NULL;
                w->retired = true;
                agx_retiree_init(&w->retiree, agx_loop_now(s->loop));
                agx_list_push_back(&s->retired, &w->node);
        }
        agx_supervisor_uv_load(s, worker, running, overdue);
        if (!wishes)
                return;
        make_room(s);
        carry_out(s, wishes);
}

void agx_supervisor_uv_flush(agx_supervisor_uv *s)
{
        if (s->worker)
                agx_worker_flush(s->worker);
        if (s->spare)
                agx_worker_flush(s->spare);
        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker_flush(agx_container_of(node, agx_worker, node));
        }
        agx_list_foreach_safe(node, &s->released)
        {
                agx_worker_flush(agx_container_of(node, agx_worker, node));
        }
}

agx_worker *agx_supervisor_uv_each(const agx_supervisor_uv *s, const agx_worker *last)
{
        agx_list *next;

        if (!last && s->worker)
                return s->worker;
        next = !last || last == s->worker ? s->retired.next : last->node.next;
        return next == &s->retired ? NULL : agx_container_of(next, agx_worker, node);
}

void agx_supervisor_uv_stop(agx_supervisor_uv *s)
{
        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker *w = agx_container_of(node, agx_worker, node);

                treat_retired(w, agx_retiree_stop(&w->retiree, agx_loop_now(s->loop)));
        }
        agx_spare_stop(&s->spares);
        if (s->spare)
                agx_worker_kill(s->spare, NULL);
        carry_out(s, agx_supervisor_stop(&s->brain, agx_loop_now(s->loop)));
}

void agx_supervisor_uv_close(agx_supervisor_uv *s)
{
        if (s->closed)
                return;
        s->closed = true;
        agx_list_foreach_safe(node, &s->released)
        {
                agx_worker_silence(agx_container_of(node, agx_worker, node));
        }
        agx_list_foreach_safe(node, &s->retired)
        {
                agx_worker_release(agx_container_of(node, agx_worker, node));
        }
        if (s->worker)
                agx_worker_release(s->worker);
        if (s->spare)
                agx_worker_release(s->spare);
        s->worker = s->spare = NULL;
        agx_deadline_close(&s->deadline, NULL);
        agx_buf_deinit(&s->boot_message);
        agx_buf_deinit(&s->boot_traceback);
}
