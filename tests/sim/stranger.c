/*
 * A stranger speaks the wire by hand. As a session of its own it makes calls under ids of a foreign form, repeats them, and
 * meddles with the ids of others. Under a host's name it repeats POSTs that have arrived before, as a network that delivers
 * twice would, or a host that is not ours. What it is told goes to the judge.
 */
#include "sim.h"

#include "client/siolink.h"
#include "proto/callmsg.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>

struct sim_stranger {
        sim *s;
        uint32_t index; /* among hosts */
        sim_timer act;
        sim_wire *wire;
        agx_siolink *link;
        uint64_t instance; /* that the link leads to */
        uint64_t numbers, acts;
        agx_list posts;
        bool rests;
};

/* A repeated POST. */
typedef struct post {
        agx_list node;
        sim_stranger *from;
        sim_wire *wire;
        sim_job *job;
        agx_http1 *parser;
        agx_buf out, body;
        unsigned status;
} post;

static uint64_t now_of(const sim_stranger *x)
{
        return sim_now(x->s);
}

static bool is_mine(const sim_stranger *x, const sim_job *job)
{
        return job->host == x->index && job->counter && !job->over && job->instance == x->instance;
}

/* ---- the link ---- */

static void drop(sim_stranger *x)
{
        if (x->wire)
                sim_wire_host_close(x->wire);
        x->wire = NULL;
        if (x->link)
                agx_siolink_free(x->link);
        x->link = NULL;
}

static void write_link(sim_stranger *x)
{
        agx_view segments[2];
        size_t n = 1;

        while (x->link && n) {
                if (agx_siolink_flush(x->link)) {
                        drop(x);
                        return;
                }
                n = agx_siolink_pending(x->link, AGX_SIOLINK_WS, segments) ? sim_wire_host_write(x->wire, segments[0])
                                                                           : 0;
                if (n)
                        agx_siolink_sent(x->link, AGX_SIOLINK_WS, n);
        }
}

static void say(sim_stranger *x, agx_rpc_kind kind, uint32_t host, uint64_t counter, const sim_job *job)
{
        _cleanup_(agx_buf_deinitp) agx_buf payload = AGX_BUF_NULL(1 << 16);
        agx_mp_writer w = agx_mp_writer_on(&payload);
        char arguments[8] = "ARGS", text[64];
        agx_view id = sim_id_write(x->s, host, counter, text);
        agx_rpc_event event = {.kind = kind, .callable = AGX_VIEW("m::f"), .arguments = agx_view_of(arguments, 8)};

        if (job)
                memcpy(arguments + 4, &job->key, 4);
        if (kind != AGX_RPC_RESUME)
                event.call_id = id;
        agx_rpc_event_put(&w, &event, &id, 1);
        if (agx_mp_writer_end(&w))
                abort();
        if (agx_siolink_send(x->link, kind, agx_buf_view(&payload), AGX_VIEW_NULL, NULL) < 0)
                abort();
        write_link(x);
}

static void hear(sim_stranger *x, const agx_rpc_event *rpc)
{
        sim_job *job = sim_job_with(x->s, rpc->call_id);
        sim_outcome outcome = rpc->kind == AGX_RPC_RESULT ? SIM_VALUE : sim_outcome_of_fault(&rpc->fault);
        uint64_t digest = rpc->kind == AGX_RPC_RESULT ? sim_digest(rpc->value) : 0;

        if (!job) {
                sim_judge_blame(x->s->judge, 0, "a stranger was told of a call of nobody's");
                return;
        }
        if (job->host == x->index && (job->over || job->instance != x->instance))
                return; /* told again, as it had asked again */
        if (rpc->kind == AGX_RPC_ERROR && agx_fault_is_not_taken(&rpc->fault))
                return; /* of that sending; it asks once more later */
        sim_note_key(x->s, SIM_HEARD, job->key, x->index, job->counter, outcome, digest);
        if (job->host != x->index || (!x->rests && sim_once_in(&x->s->clock, 3)))
                return; /* it asks once more later */
        job->over = true;
        sim_note(x->s, SIM_REPEATED, job, 0, 0); /* from now on it may be gone */
        say(x, AGX_RPC_ACK, job->host, job->counter, NULL);
}

static void on_data(sim_wire *wire, void *user, agx_view in)
{
        sim_stranger *x = user;
        agx_siolink_event event;

        (void)wire;
        while (x->link) {
                if (agx_siolink_input(x->link, AGX_SIOLINK_WS, &in, now_of(x), &event)) {
                        drop(x);
                        return;
                }
                if (event.kind == AGX_SIOLINK_MORE)
                        break;
                if (event.kind == AGX_SIOLINK_GOT)
                        hear(x, &event.rpc);
        }
        write_link(x);
}

static void on_room(sim_wire *wire, void *user)
{
        (void)wire;
        write_link(user);
}

static void on_ended(sim_wire *wire, void *user, const char *why)
{
        (void)wire;
        (void)why;
        drop(user);
}

static const sim_end stranger_end = {.data = on_data, .room = on_room, .ended = on_ended};

static void forget_old(sim_stranger *x)
{
        x->instance = x->s->instances;
        for (uint32_t key = 1; key < x->s->next_job; ++key) {
                sim_job *job = &x->s->jobs[key];

                if (job->host == x->index && job->instance != x->instance && job->instance)
                        job->over = true;
        }
}

static void put_fields(const sim *s, char fields[256])
{
        snprintf(fields, 256, "Host: 127.0.0.1:1\r\n%s%s%s", s->plan.token ? "Authorization: Bearer " : "",
                 s->plan.token ? sim_token : "", s->plan.token ? "\r\n" : "");
}

static void open_link(sim_stranger *x)
{
        uint8_t seed[AGX_SIOLINK_SEED_BYTES];
        agx_siolink_config config;
        char fields[256];

        if (!sim_may_connect(x->s))
                return;
        x->wire = sim_box_accept(x->s->box, &stranger_end, x);
        if (!x->wire)
                return;
        forget_old(x);
        put_fields(x->s, fields);
        config = (agx_siolink_config){.path = AGX_VIEW("/socket.io/"),
                                      .fields = agx_view_str(fields),
                                      .session = sim_session(x->s, x->index)};
        sim_fill(&x->s->clock, seed, sizeof(seed));
        if (agx_siolink_new(&x->link, &config, seed, now_of(x)) ||
            agx_siolink_begin(x->link, AGX_SIOLINK_WS, now_of(x)))
                abort();
        write_link(x);
}

/* ---- repeats ---- */

static void end_post(post *p)
{
        sim_wire_host_close(p->wire);
        agx_list_unlink(&p->node);
        agx_http1_free(p->parser);
        agx_buf_deinit(&p->out);
        agx_buf_deinit(&p->body);
        free(p);
}

static void write_post(post *p)
{
        if (p->out.len)
                agx_buf_consume(&p->out, sim_wire_host_write(p->wire, agx_buf_view(&p->out)));
}

static void hear_post(post *p)
{
        agx_call_reply reply;
        sim_outcome outcome;

        if (p->status == 202 || p->status >= 500)
                return;
        if (p->status != 200 || !agx_call_reply_get(agx_buf_view(&p->body), false, &reply)) {
                sim_judge_blame(p->from->s->judge, 0, "a repeated POST was answered with nonsense");
                return;
        }
        if (!reply.ok && agx_fault_is_not_taken(&reply.fault))
                return;
        outcome = reply.ok ? SIM_VALUE : sim_outcome_of_fault(&reply.fault);
        sim_note_key(p->from->s, SIM_HEARD, p->job->key, p->job->host, p->job->counter, outcome,
                     reply.ok ? sim_digest(reply.value) : 0);
}

static void on_post_data(sim_wire *wire, void *user, agx_view in)
{
        post *p = user;
        agx_http1_event event;

        (void)wire;
        do {
                if (agx_http1_next(p->parser, &in, &event)) {
                        sim_judge_blame(p->from->s->judge, 0, "an answer to a POST is not HTTP");
                        end_post(p);
                        return;
                }
                if (event.kind == AGX_HTTP1_HEAD) {
                        p->status = event.head->status;
                } else if (event.kind == AGX_HTTP1_BODY) {
                        agx_buf_append_view(&p->body, event.body);
                } else if (event.kind == AGX_HTTP1_END) {
                        hear_post(p);
                        end_post(p);
                        return;
                }
        } while (event.kind != AGX_HTTP1_MORE);
}

static void on_post_room(sim_wire *wire, void *user)
{
        (void)wire;
        write_post(user);
}

static void on_post_ended(sim_wire *wire, void *user, const char *why)
{
        (void)wire;
        (void)why;
        end_post(user);
}

static const sim_end post_end = {.data = on_post_data, .room = on_post_room, .ended = on_post_ended};

static void put_post(post *p)
{
        sim *s = p->from->s;
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(1 << 16);
        agx_mp_writer w = agx_mp_writer_on(&body);
        char arguments[8] = "ARGS", id[64], head[600], fields[256];
        agx_view session = sim_session(s, p->job->host);
        agx_call_request request = {.call_id = sim_id_write(s, p->job->host, p->job->counter, id),
                                    .callable = AGX_VIEW("m::f"),
                                    .arguments = agx_view_of(arguments, 8)};

        memcpy(arguments + 4, &p->job->key, 4);
        agx_call_request_put(&w, &request, NULL, 0);
        if (agx_mp_writer_end(&w))
                abort();
        put_fields(s, fields);
        snprintf(head, sizeof(head),
                 "POST /call HTTP/1.1\r\n%sAgentix-Session: %.*s\r\nPrefer: wait=%u\r\n"
                 "Content-Type: application/msgpack\r\nContent-Length: %zu\r\n\r\n",
                 fields, (int)session.n, session.p, (unsigned)sim_draw(&s->clock, 3), body.len);
        agx_buf_append_view(&p->out, agx_view_str(head));
        agx_buf_append_view(&p->out, agx_buf_view(&body));
}

static void repeat(sim_stranger *x, sim_job *job)
{
        static const agx_http1_bounds bounds = {.head_max = AGX_HTTP_HEAD_MAX,
                                                .headers_max = AGX_HTTP_HEADERS_MAX,
                                                .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                                .trailer_max = AGX_HTTP_TRAILER_MAX,
                                                .body_max = AGX_MAX_MESSAGE};
        post *p;

        if (job->instance != x->s->instances || !sim_may_connect(x->s))
                return; /* another instance must not be sent what this one had */
        p = sim_alloc(sizeof(*p));
        p->wire = sim_box_accept(x->s->box, &post_end, p);
        if (!p->wire) {
                free(p);
                return;
        }
        p->from = x;
        p->job = job;
        p->out = p->body = AGX_BUF_NULL(1u << 26);
        if (agx_http1_new(&p->parser, AGX_HTTP1_CLIENT, &bounds))
                abort();
        agx_list_push_back(&x->posts, &p->node);
        ++x->s->repeats;
        sim_note(x->s, SIM_REPEATED, job, 0, 0);
        put_post(p);
        write_post(p);
}

/* ---- acting ---- */

/* Any call that the server has taken. */
static sim_job *some_job(sim_stranger *x)
{
        uint32_t n = x->s->next_job - 1;
        sim_job *job = n ? &x->s->jobs[n - sim_skewed(&x->s->clock, n - 1)] : NULL;

        return job && job->counter && job->accepted ? job : NULL;
}

static void call_or_repeat(sim_stranger *x)
{
        sim_job *job = some_job(x);

        if (job && job->host == x->index) { /* its own, once more */
                if (is_mine(x, job))
                        say(x, AGX_RPC_CALL, x->index, job->counter, job);
                return;
        }
        job = sim_job_next(x->s, x->index, false);
        if (!job)
                return;
        sim_note(x->s, SIM_STARTED, job, UINT64_MAX, 0);
        sim_job_number(x->s, job, ++x->numbers);
        job->instance = x->instance;
        say(x, AGX_RPC_CALL, x->index, job->counter, job);
}

static void meddle(sim_stranger *x)
{
        static const agx_rpc_kind kinds[] = {AGX_RPC_CANCEL, AGX_RPC_RESUME, AGX_RPC_ACK, AGX_RPC_CALL, AGX_RPC_RESUME};
        agx_rpc_kind kind = kinds[sim_draw(&x->s->clock, 5)];
        sim_job *job = some_job(x);

        if (!job || job->instance != x->instance)
                return;
        if (job->host == x->index && (kind == AGX_RPC_ACK || job->over))
                return; /* one's own is acknowledged when it is heard */
        say(x, kind, job->host, job->counter, job);
}

static void on_act(sim_timer *t)
{
        sim_stranger *x = agx_container_of(t, sim_stranger, act);
        sim_clock *c = &x->s->clock;
        sim_job *job = some_job(x);

        if (++x->acts <= x->s->plan.calls / 2) /* on a long run it has seen enough some time */
                sim_timer_set(c, t, c->now + 1 + sim_draw(c, 2 * x->s->plan.gap_ms + 40));
        if (job && job->host < x->s->plan.n_hosts && sim_once_in(c, x->s->plan.repeat_one_in))
                repeat(x, job);
        else if (!x->link)
                open_link(x);
        else if (agx_siolink_joined(x->link) && sim_once_in(c, 2))
                call_or_repeat(x);
        else if (agx_siolink_joined(x->link))
                meddle(x);
        if (x->link && sim_once_in(c, 200))
                drop(x);
}

/* ---- the whole ---- */

void sim_stranger_new(sim *s, uint32_t index)
{
        sim_stranger *x = sim_alloc(sizeof(*x));

        s->strangers[index] = x;
        x->s = s;
        x->index = s->plan.n_hosts + index;
        x->act.fire = on_act;
        agx_list_init(&x->posts);
        sim_timer_set(&s->clock, &x->act, s->clock.now + 1);
}

void sim_stranger_rest(sim_stranger *x)
{
        x->rests = true;
        sim_timer_stop(&x->s->clock, &x->act);
        if (!x->link)
                open_link(x);
        if (!x->link || !agx_siolink_joined(x->link))
                return;
        for (uint32_t key = 1; key < x->s->next_job; ++key) {
                sim_job *job = &x->s->jobs[key];

                if (is_mine(x, job)) {
                        say(x, AGX_RPC_CANCEL, x->index, job->counter, NULL);
                        say(x, AGX_RPC_RESUME, x->index, job->counter, NULL);
                } else if (job->host == x->index && job->instance == x->instance) {
                        say(x, AGX_RPC_ACK, x->index, job->counter, NULL); /* the first may be lost */
                }
        }
}

bool sim_stranger_idle(const sim_stranger *x)
{
        for (uint32_t key = 1; key < x->s->next_job; ++key)
                if (x->s->jobs[key].host == x->index && x->s->jobs[key].instance == x->s->instances &&
                    !x->s->jobs[key].over)
                        return false;
        return true;
}

void sim_stranger_free(sim_stranger *x)
{
        sim_timer_stop(&x->s->clock, &x->act);
        drop(x);
        agx_list_foreach_safe(node, &x->posts) end_post(agx_container_of(node, post, node));
        free(x);
}
