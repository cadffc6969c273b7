/*
 * A host: a client session with a shell that does with each wish what python/ext/client.c does, and a user who starts
 * calls, loses patience with some, and writes down what he gets.
 */
#include "sim.h"

#include "proto/limits.h"

#include <stdlib.h>

struct sim_host {
        sim *s;
        uint32_t index;
        agx_client *client;
        sim_timer tick, arrival;
        agx_client_call *connecting;
        uint32_t open;
        bool connected, working;
        agx_list ties;
};

/* A connection, as the shell keeps it. */
typedef struct tie {
        agx_list node;
        sim_host *host;
        agx_client_conn *conn;
        sim_wire *wire; /* NULL: not open yet */
        sim_timer opening;
} tie;

static void work(sim_host *h);

static uint64_t now_of(const sim_host *h)
{
        return sim_now(h->s);
}

/* ---- writing and reading ---- */

static void write_tie(tie *l)
{
        agx_view segments[2];
        size_t n;

        while (l->wire && agx_client_conn_pending(l->conn, segments)) {
                n = sim_wire_host_write(l->wire, segments[0]);
                if (!n)
                        return; /* the rest when there is room */
                agx_client_conn_sent(l->conn, n);
        }
}

static void on_data(sim_wire *wire, void *user, agx_view in)
{
        tie *l = user;
        sim_host *h = l->host;

        (void)wire;
        while (in.n && l->wire) {
                agx_view place = agx_client_conn_place(l->conn), part = in;

                if (place.n) {
                        part = agx_view_of(place.p, in.n < place.n ? in.n : place.n);
                        memcpy((char *)(uintptr_t)place.p, in.p, part.n);
                }
                agx_client_input(h->client, l->conn, part, now_of(h));
                in = agx_view_from(in, part.n);
        }
        work(h);
}

static void on_room(sim_wire *wire, void *user)
{
        tie *l = user;

        (void)wire;
        write_tie(l);
        work(l->host);
}

static void on_ended(sim_wire *wire, void *user, const char *why)
{
        tie *l = user;
        sim_host *h = l->host;

        (void)wire;
        agx_client_ended(h->client, l->conn, why, now_of(h));
        work(h);
}

static const sim_end host_end = {.data = on_data, .room = on_room, .ended = on_ended};

/* ---- wishes ---- */

static void on_opening(sim_timer *t)
{
        tie *l = agx_container_of(t, tie, opening);
        sim_host *h = l->host;
        uint8_t nonce[AGX_CLIENT_NONCE_BYTES];

        l->wire = sim_may_connect(h->s) ? sim_box_accept(h->s->box, &host_end, l) : NULL;
        if (!l->wire) {
                agx_client_open_failed(h->client, l->conn, "refused", now_of(h));
        } else {
                sim_fill(&h->s->clock, nonce, sizeof(nonce));
                agx_client_opened(h->client, l->conn, nonce, now_of(h));
        }
        work(h);
}

static void open_tie(sim_host *h, agx_client_conn *conn)
{
        sim_clock *c = &h->s->clock;
        tie *l = sim_alloc(sizeof(*l));
        uint64_t takes = sim_between(c, h->s->net.low_ms, h->s->net.high_ms);

        l->host = h;
        l->conn = conn;
        l->opening.fire = on_opening;
        agx_list_push_back(&h->ties, &l->node);
        agx_client_conn_set_user(conn, l);
        if (!h->s->well && sim_once_in(c, h->s->plan.refuse_one_in))
                takes = sim_draw(c, 2) ? UINT32_MAX : takes + sim_skewed(c, 12000); /* its packets are lost */
        sim_timer_set(c, &l->opening, now_of(h) + takes);
}

static void close_tie(sim_host *h, agx_client_conn *conn)
{
        tie *l = agx_client_conn_user(conn);

        if (l) {
                sim_timer_stop(&h->s->clock, &l->opening);
                if (l->wire)
                        sim_wire_host_close(l->wire);
                agx_list_unlink(&l->node);
        }
        agx_client_conn_free(h->client, conn);
        free(l);
}

static void carry_out_wishes(sim_host *h)
{
        for (;;) {
                agx_client_wish wish = agx_client_next_wish(h->client);

                switch (wish.kind) {
                case AGX_CLIENT_WISH_NONE:
                        return;
                case AGX_CLIENT_WISH_OPEN:
                        open_tie(h, wish.conn);
                        break;
                case AGX_CLIENT_WISH_WRITE:
                        write_tie(agx_client_conn_user(wish.conn));
                        break;
                case AGX_CLIENT_WISH_CLOSE:
                        close_tie(h, wish.conn);
                        break;
                }
        }
}

/* ---- outcomes ---- */

static sim_outcome outcome_of(const agx_client_result *r)
{
        switch (r->outcome) {
        case AGX_CLIENT_VALUE:
                return SIM_VALUE;
        case AGX_CLIENT_FAULT:
                return sim_outcome_of_fault(&r->fault);
        case AGX_CLIENT_UNREACHABLE:
                return strstr(r->why, "whether the call has run is unknown") ? SIM_UNKNOWN : SIM_UNREACHED;
        case AGX_CLIENT_DEADLINE:
                return SIM_DEADLINE;
        default:
                return SIM_OTHER;
        }
}

static void let_go(sim_job *job)
{
        sim_host *h = job->s->hosts[job->host];

        free((char *)(uintptr_t)job->sent.p); /* at once: who still looks at it is caught */
        job->sent = AGX_VIEW_NULL;
        job->call = NULL;
        job->over = true;
        sim_timer_stop(&job->s->clock, &job->patience);
        sim_timer_stop(&job->s->clock, &job->reader);
        --h->open;
}

static void on_connected(sim_host *h, const agx_client_result *r)
{
        h->connecting = NULL;
        h->connected = r->outcome == AGX_CLIENT_CONNECTED;
        if (!h->connected)
                return;
        for (uint32_t key = 1; key < h->s->next_job; ++key) {
                sim_job *job = &h->s->jobs[key];

                if (job->host == h->index && job->call)
                        sim_note(h->s, SIM_CLOCKED, job, 0, 0);
        }
}

static void take_done(sim_host *h)
{
        agx_client_call *call;

        while ((call = agx_client_next_done(h->client))) {
                const agx_client_result *r = agx_client_call_result(call);
                sim_job *job = agx_client_call_user(call);

                if (!job) {
                        on_connected(h, r);
                } else {
                        job->given_up = outcome_of(r) == SIM_UNKNOWN ||
                                        (r->outcome == AGX_CLIENT_DEADLINE && !h->s->steady[h->index]);
                        sim_note(h->s, SIM_ENDED, job, outcome_of(r),
                                 r->outcome == AGX_CLIENT_VALUE ? sim_digest(r->value) : 0);
                        let_go(job);
                }
                agx_client_call_free(h->client, call, now_of(h));
                carry_out_wishes(h);
        }
}

/* Its user is slow to look at what came. */
static void on_read(sim_timer *t)
{
        sim_job *job = agx_container_of(t, sim_job, reader);
        sim_host *h = job->s->hosts[job->host];
        uint64_t n = job->taken;
        size_t bytes = job->taken_bytes;

        job->taken = job->taken_bytes = 0;
        agx_client_consumed(h->client, job->call, n, bytes, now_of(h));
        work(h);
}

static void take_items(sim_host *h)
{
        agx_client_call *call;

        while ((call = agx_client_next_streaming(h->client))) {
                sim_job *job = agx_client_call_user(call);
                agx_buf body = AGX_BUF_NULL(0);
                agx_view value;

                while (agx_client_call_next_item(h->client, call, &body, &value)) {
                        sim_note(h->s, SIM_GOT, job, sim_item_number(value), sim_digest(value));
                        job->taken++;
                        job->taken_bytes += value.n;
                        agx_buf_deinit(&body);
                }
                if (job->taken && !job->reader.place)
                        sim_timer_set(&h->s->clock, &job->reader,
                                      now_of(h) + (sim_draw(&h->s->clock, 3) ? 0 : sim_skewed(&h->s->clock, 300)));
        }
}

/* What the shell does after every verb. */
static void work(sim_host *h)
{
        if (h->working)
                return;
        h->working = true;
        carry_out_wishes(h);
        take_items(h);
        take_done(h);
        h->working = false;
        sim_timer_set(&h->s->clock, &h->tick, agx_client_timer(h->client));
}

static void on_tick(sim_timer *t)
{
        sim_host *h = agx_container_of(t, sim_host, tick);

        agx_client_tick(h->client, now_of(h));
        work(h);
}

/* ---- the user ---- */

static void abandon(sim_job *job)
{
        sim_host *h = job->s->hosts[job->host];
        agx_client_call *call = job->call;

        job->given_up = !job->s->steady[job->host];
        sim_note(job->s, SIM_ABANDONED, job, 0, 0);
        agx_client_call_free(h->client, call, now_of(h));
        let_go(job);
        work(h);
}

static void on_impatience(sim_timer *t)
{
        abandon(agx_container_of(t, sim_job, patience));
}

static agx_view arguments_of(const sim_job *job)
{
        size_t n = 8 + job->arguments;
        char *p = sim_alloc(n);

        memset(p, (int)(job->key & 0xff), n);
        memcpy(p, "ARGS", 4);
        memcpy(p + 4, &job->key, 4);
        return agx_view_of(p, n);
}

static bool start(sim_host *h, bool plain)
{
        sim_job *job = sim_job_next(h->s, h->index, plain);

        if (!job)
                return false;
        job->sent = arguments_of(job);
        job->patience.fire = on_impatience;
        job->reader.fire = on_read;
        ++h->open;
        sim_note(h->s, SIM_STARTED, job, job->deadline_ms, job->window);
        if (h->connected)
                sim_note(h->s, SIM_CLOCKED, job, 0, 0);
        if (agx_client_start_stream(h->client, AGX_VIEW("m::f"), job->sent, AGX_VIEW_NULL, job->window,
                                    job->deadline_ms, job, now_of(h), &job->call))
                abort();
        if (job->patience_ms != UINT64_MAX)
                sim_timer_set(&h->s->clock, &job->patience, now_of(h) + job->patience_ms);
        work(h);
        return true;
}

static void see_to_connection(sim_host *h)
{
        if (h->connecting || h->connected)
                return;
        if (agx_client_connect(h->client, NULL, now_of(h), &h->connecting))
                abort();
        work(h);
}

static void on_arrival(sim_timer *t)
{
        sim_host *h = agx_container_of(t, sim_host, arrival);
        const sim_plan *plan = &h->s->plan;
        uint64_t n = 1 + sim_skewed(&h->s->clock, plan->at_once - 1);

        see_to_connection(h);
        if (h->open >= plan->open_max) {
                sim_timer_set(&h->s->clock, t, now_of(h) + 1 + sim_draw(&h->s->clock, 20));
                return;
        }
        while (n-- && h->open < plan->open_max)
                if (!start(h, false))
                        return;
        sim_timer_set(&h->s->clock, t, now_of(h) + sim_draw(&h->s->clock, plan->gap_ms + 1));
}

void sim_host_give_up(sim_host *h)
{
        for (uint32_t key = 1; key < h->s->next_job; ++key) {
                sim_job *job = &h->s->jobs[key];

                if (job->host == h->index && job->call)
                        abandon(job);
        }
}

void sim_host_greet(sim_host *h)
{
        start(h, true);
}

bool sim_host_acknowledge(sim_host *h)
{
        return agx_client_count(h->client).acks && start(h, true);
}

/* ---- the whole ---- */

static agx_client_config draw_config(sim_host *h)
{
        static const uint64_t syncs[] = {1, 5, 20, 100, 1000, 1000, 1000, UINT64_MAX};
        sim_clock *c = &h->s->clock;
        agx_client_config config = {
                .host = AGX_VIEW("127.0.0.1:1"),
                .prefix = AGX_VIEW(""),
                .headers = AGX_VIEW(""),
                .token = h->s->plan.token ? agx_view_str(sim_token) : AGX_VIEW_NULL,
                .timeout_ms = sim_draw(c, 3) || h->s->plan.calm ? 300000 : sim_between(c, 500, 5000),
                .reconnect = true,
                .attempts = sim_once_in(c, 6) && !h->s->plan.calm ? 1 + (unsigned)sim_draw(c, 5) : 0,
                .delay_ms = sim_between(c, 20, 1000),
                .delay_max_ms = 5000,
                .jitter = 50,
                .fast = sim_draw(c, 4) > 0,
                .masked = sim_draw(c, 2) > 0,
                .link = !sim_once_in(c, 8),
                .http_sync_ms = syncs[sim_draw(c, sizeof(syncs) / sizeof(syncs[0]))],
                .grace_ms = sim_draw(c, 3) || h->s->plan.calm ? 5000 : sim_draw(c, 300)};
        agx_view session = sim_session(h->s, h->index);

        if (!config.link)
                config.http_sync_ms = 1000;
        if (!h->s->plan.calm && sim_once_in(c, 12))
                config.reconnect = false;
        for (size_t i = 0; i < sizeof(config.session); ++i) {
                char two[3] = {session.p[2 * i], session.p[2 * i + 1], 0};

                config.session[i] = (uint8_t)strtoul(two, NULL, 16);
        }
        sim_fill(c, config.seed, sizeof(config.seed));
        return config;
}

void sim_host_new(sim *s, uint32_t index)
{
        sim_host *h = sim_alloc(sizeof(*h));
        agx_client_config config;

        s->hosts[index] = h;
        h->s = s;
        h->index = index;
        h->tick.fire = on_tick;
        h->arrival.fire = on_arrival;
        agx_list_init(&h->ties);
        config = draw_config(h);
        s->steady[index] = config.reconnect && !config.attempts && config.link;
        if (agx_client_new(&h->client, &config))
                abort();
        sim_timer_set(&s->clock, &h->arrival, s->clock.now + sim_draw(&s->clock, 200));
}

void sim_host_free(sim_host *h)
{
        h->working = true;
        agx_client_shutdown(h->client, "closed", now_of(h));
        carry_out_wishes(h);
        take_done(h);
        sim_timer_stop(&h->s->clock, &h->tick);
        sim_timer_stop(&h->s->clock, &h->arrival);
        if (!agx_list_empty(&h->ties))
                sim_judge_blame(h->s->judge, 0, "connections were left after a shutdown");
        agx_client_free(h->client);
        free(h);
}

bool sim_host_idle(sim_host *h)
{
        agx_client_counts n = agx_client_count(h->client);

        return !h->open && !n.waiting && !n.pausing && !n.linked && !n.cancels && !h->arrival.place;
}

void sim_host_judge(sim_host *h)
{
        if (!sim_host_idle(h))
                sim_judge_blame(h->s->judge, 0, "a client's tables are not empty after everything has ended");
}
