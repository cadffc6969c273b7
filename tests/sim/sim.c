/*
 * A run: trouble while calls are made; then the network is well, what would never end is abandoned, the last
 * acknowledgements are sent, and every table has to be empty.
 */
#include "box.h"

#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>

const char sim_token[] = "a-token-of-the-simulator";

enum { STILL_MAX = 2000000, STEPS_PER_CALL = 20000, LOOK_EVERY = 512, ACKNOWLEDGING_CALLS = 40 };

/* ---- turns ---- */

void sim_flush_init(sim_flush *f, void (*run)(sim_flush *self))
{
        agx_list_init(&f->node);
        f->run = run;
}

void sim_flush_later(sim *s, sim_flush *f)
{
        if (agx_list_empty(&f->node))
                agx_list_push_back(&s->flushes, &f->node);
}

void sim_end_turn(sim *s)
{
        agx_list *first;

        while ((first = agx_list_first(&s->flushes))) {
                sim_flush *f = agx_container_of(first, sim_flush, node);

                agx_list_unlink(first);
                f->run(f);
        }
        sim_net_sweep(&s->net);
}

/* ---- the journal ---- */

void sim_note_key(sim *s, sim_fact fact, uint32_t key, uint32_t host, uint64_t counter, uint64_t a, uint64_t b)
{
        sim_judge_note(s->judge, &(sim_record){.at = sim_now(s),
                                               .step = s->clock.steps,
                                               .fact = fact,
                                               .key = key,
                                               .host = host,
                                               .counter = counter,
                                               .a = a,
                                               .b = b});
}

void sim_note(sim *s, sim_fact fact, const sim_job *job, uint64_t a, uint64_t b)
{
        sim_note_key(s, fact, job->key, job->host, job->counter, a, b);
}

/* ---- names ---- */

uint64_t sim_digest(agx_view bytes)
{
        uint64_t h = 0xcbf29ce484222325, word;

        for (; bytes.n >= sizeof(word); bytes = agx_view_from(bytes, sizeof(word))) {
                memcpy(&word, bytes.p, sizeof(word));
                h = (h ^ word) * 0x9e3779b97f4a7c15;
                h ^= h >> 29;
        }
        for (size_t i = 0; i < bytes.n; ++i)
                h = (h ^ (uint8_t)bytes.p[i]) * 0x100000001b3;
        return h ? h : 1;
}

sim_job *sim_job_of(sim *s, agx_view arguments)
{
        uint32_t key;

        if (arguments.n < 8 || memcmp(arguments.p, "ARGS", 4) != 0)
                return NULL;
        memcpy(&key, arguments.p + 4, 4);
        return key && key < s->next_job ? &s->jobs[key] : NULL;
}

static const char *const sessions[] = {
        "00112233445566778899aabbccddee00",
        "00112233445566778899aabbccddee01",
        "00112233445566778899aabbccddee02",
        "00112233445566778899aabbccddee03",
};
static const char *const strangers[] = {"stranger0", "stranger1"};

agx_view sim_session(const sim *s, uint32_t host)
{
        return agx_view_str(host < s->plan.n_hosts ? sessions[host] : strangers[host - s->plan.n_hosts]);
}

agx_view sim_id_write(const sim *s, uint32_t host, uint64_t counter, char id[64])
{
        agx_view session = sim_session(s, host);
        int n = host < s->plan.n_hosts
                        ? snprintf(id, 64, "%.*s-%llu", (int)session.n, session.p, (unsigned long long)counter)
                        : snprintf(id, 64, "q%u.%llu", host, (unsigned long long)counter);

        return agx_view_of(id, (size_t)n);
}

bool sim_id_read(const sim *s, agx_view id, uint32_t *host, uint64_t *counter)
{
        size_t n = strlen(sessions[0]);

        if (id.n > 3 && id.p[0] == 'q' && id.p[2] == '.') {
                *host = (uint32_t)(id.p[1] - '0');
                return *host < s->plan.n_hosts + s->plan.n_strangers &&
                       agx_view_u64(agx_view_from(id, 3), UINT64_MAX, counter);
        }
        if (id.n < n + 2 || memcmp(id.p, sessions[0], n - 1) != 0 || id.p[n] != '-')
                return false;
        *host = (uint32_t)(id.p[n - 1] - '0');
        return *host < s->plan.n_hosts && agx_view_u64(agx_view_from(id, n + 1), UINT64_MAX, counter);
}

sim_job *sim_job_numbered(sim *s, uint32_t host, uint64_t counter)
{
        uint32_t key = counter <= s->plan.calls + s->plan.spare ? s->numbered[host][counter] : 0;

        return key ? &s->jobs[key] : NULL;
}

sim_job *sim_job_with(sim *s, agx_view id)
{
        uint64_t counter;
        uint32_t host;

        return sim_id_read(s, id, &host, &counter) ? sim_job_numbered(s, host, counter) : NULL;
}

void sim_job_number(sim *s, sim_job *job, uint64_t counter)
{
        job->counter = counter;
        if (s->box)
                job->instance = s->instances;
        if (counter <= s->plan.calls + s->plan.spare)
                s->numbered[job->host][counter] = job->key;
}

void sim_value_put(agx_buf *out, const sim_job *job, uint64_t run)
{
        uint8_t *place;

        if (agx_buf_reserve(out, SIM_VALUE_HEAD + job->size, &place))
                abort();
        memset(place, (int)(run & 0xff), SIM_VALUE_HEAD + job->size);
        memcpy(place, &job->key, sizeof(job->key));
        memcpy(place + 4, &run, sizeof(run));
        memcpy(place + 12, &job->size, 8);
        agx_buf_commit(out, SIM_VALUE_HEAD + job->size);
}

void sim_item_put(agx_buf *out, const sim_job *job, uint64_t run, uint64_t seq)
{
        const uint64_t words[] = {seq, run, job->key};

        if (agx_buf_append(out, words, sizeof(words)))
                abort();
        for (size_t left = job->size; left; left -= left < 100 ? left : 100)
                if (agx_buf_append(out,
                                   "0123456789012345678901234567890123456789012345678901234567890123456789"
                                   "012345678901234567890123456789",
                                   left < 100 ? left : 100))
                        abort();
}

uint64_t sim_item_number(agx_view value)
{
        uint64_t seq = UINT64_MAX;

        if (value.n >= sizeof(seq))
                memcpy(&seq, value.p, sizeof(seq));
        return seq;
}

static bool is(const agx_fault *fault, agx_fault_type type)
{
        return agx_view_eq(fault->type, agx_fault_type_text(type));
}

static sim_outcome unavailable(const agx_fault *fault)
{
        if (agx_view_eq(fault->reason, AGX_VIEW("never_seen")))
                return SIM_NOT_BEGUN;
        if (agx_view_eq(fault->message,
                        AGX_VIEW("the runtime was restarted before it had room for the call, which has not run")))
                return SIM_NOT_BEGUN;
        return agx_view_eq(fault->reason, AGX_VIEW("instance_changed")) ? SIM_INSTANCE_CHANGED : SIM_DROPPED;
}

sim_outcome sim_outcome_of_fault(const agx_fault *fault)
{
        if (agx_view_eq(fault->type, AGX_VIEW("Boom")))
                return SIM_RAISED;
        if (is(fault, AGX_FAULT_CANCELLED))
                return agx_view_eq(fault->message, AGX_VIEW("the remote call was cancelled before it had begun"))
                               ? SIM_CANCELLED_EARLY
                               : SIM_CANCELLED;
        if (is(fault, AGX_FAULT_WORKER_DIED))
                return SIM_WORKER_DIED;
        if (is(fault, AGX_FAULT_WORKER_BOOT) || is(fault, AGX_FAULT_BUSY) || is(fault, AGX_FAULT_FRAME_TOO_LARGE))
                return SIM_NOT_BEGUN;
        return is(fault, AGX_FAULT_RESULT_UNAVAILABLE) ? unavailable(fault) : SIM_OTHER;
}

/* ---- jobs ---- */

static void draw_end(sim *s, sim_job *job)
{
        sim_clock *c = &s->clock;

        switch (sim_draw(c, 4)) {
        case 0:
                job->end = SIM_RAISES;
                break;
        case 1:
                job->end = SIM_KILLS_WORKER;
                job->when = (sim_when_killed)sim_draw(c, SIM_IN_RESULT + 1);
                break;
        case 2:
                if (job->host < s->plan.n_hosts && !s->steady[job->host])
                        break; /* nobody would ever end it */
                job->end = SIM_NEVER_ENDS;
                job->patience_ms = sim_skewed(c, 20000);
                break;
        default:
                break;
        }
        if (s->plan.calm && job->end != SIM_RAISES) {
                job->end = SIM_RETURNS;
                job->patience_ms = UINT64_MAX;
        }
}

static void draw_job(sim *s, sim_job *job)
{
        static const size_t sizes[] = {40, 9000, 17000, 40000, 70000, 300000};
        sim_clock *c = &s->clock;

        if (sim_once_in(c, s->plan.slow_one_in))
                job->lasts_ms = sim_skewed(c, sim_once_in(c, 20) ? 120000 : 3000);
        if (sim_once_in(c, s->plan.end_one_in))
                draw_end(s, job);
        if (sim_once_in(c, s->plan.cancel_one_in))
                job->patience_ms = sim_skewed(c, 2 * job->lasts_ms + 10);
        if (sim_once_in(c, s->plan.deadline_one_in))
                job->deadline_ms = 1 + sim_skewed(c, 2 * job->lasts_ms + 2000);
        if (sim_once_in(c, s->plan.large_one_in))
                job->size = sizes[sim_draw(c, 6)];
        if (sim_once_in(c, s->plan.large_one_in))
                job->arguments = sizes[sim_draw(c, 6)];
        if (job->host < s->plan.n_hosts && s->steady[job->host] && sim_once_in(c, s->plan.stream_one_in)) {
                job->items = 1 + (uint32_t)sim_skewed(c, 50);
                job->window = 1 + sim_skewed(c, 20);
                job->size = job->size < 3000 ? job->size : 3000;
        }
        if (!s->plan.calm)
                job->manners = (sim_manners)sim_draw(c, SIM_IGNORES + 1);
        job->late_ms = sim_skewed(c, 8000);
}

sim_job *sim_job_next(sim *s, uint32_t host, bool plain)
{
        sim_job *job;

        if (s->next_job > s->plan.calls + (plain ? s->plan.spare : 0))
                return NULL;
        job = &s->jobs[s->next_job];
        *job = (sim_job){.s = s,
                         .key = s->next_job++,
                         .host = host,
                         .size = sim_skewed(&s->clock, 40),
                         .deadline_ms = UINT64_MAX,
                         .patience_ms = UINT64_MAX};
        if (!plain)
                draw_job(s, job);
        return job;
}

/* ---- phases ---- */

static bool step(sim *s, uint64_t until)
{
        uint64_t before = s->clock.now;

        if (sim_judge_verdict(s->judge) || !sim_clock_step(&s->clock, until))
                return false;
        sim_end_turn(s);
        s->still = s->clock.now == before ? s->still + 1 : 0;
        if (s->still > STILL_MAX)
                sim_judge_blame(s->judge, 0, "time stands still");
        if (s->clock.steps > (uint64_t)STEPS_PER_CALL * (s->plan.calls + 100))
                sim_judge_blame(s->judge, 0, "the run does not come to an end");
        if (s->box && s->clock.steps % LOOK_EVERY == 0)
                sim_box_judge(s->box, false);
        return true;
}

static void pass(sim *s, uint64_t ms)
{
        uint64_t until = s->clock.now + ms;

        while (step(s, until))
                ;
        if (!sim_judge_verdict(s->judge))
                s->clock.now = until;
}

static bool hosts_idle(sim *s)
{
        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                if (!sim_host_idle(s->hosts[i]))
                        return false;
        return true;
}

static void wait_for_hosts(sim *s, uint64_t ms)
{
        uint64_t until = s->clock.now + ms;

        while (!hosts_idle(s) && step(s, until))
                ;
}

static void work(sim *s)
{
        while (s->next_job <= s->plan.calls && step(s, UINT64_MAX - 1))
                ;
        pass(s, sim_skewed(&s->clock, 5000));
}

static void heal(sim *s)
{
        s->well = true;
        s->net.tear_one_in = s->net.reset_one_in = 0;
        s->net.piece = 0;
        agx_list_foreach_safe(node, &s->net.wires)
        {
                sim_wire *w = agx_container_of(node, sim_wire, node);

                w->up.budget = w->down.budget = UINT64_MAX;
                w->up.piece = w->down.piece = 0; /* a large call behind which all else waits would take too long */
                sim_wire_notice(w, sim_draw(&s->clock, 1000));
        }
        sim_box_mend(s);
}

static void rest_strangers(sim *s)
{
        for (uint32_t i = 0; i < s->plan.n_strangers; ++i) {
                for (unsigned n = 0; n < 40 && !sim_judge_verdict(s->judge); ++n) {
                        sim_stranger_rest(s->strangers[i]);
                        pass(s, 3000);
                        if (n > 2 && sim_stranger_idle(s->strangers[i]))
                                break;
                }
                if (!sim_judge_verdict(s->judge) && !sim_stranger_idle(s->strangers[i]))
                        sim_judge_blame(s->judge, 0, "a stranger is not answered");
        }
}

/* Each such call that is answered inline leaves an acknowledgement of its own: none may use up what the others need. */
static void acknowledge(sim *s)
{
        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                for (unsigned n = 0; n < ACKNOWLEDGING_CALLS; ++n) {
                        if (sim_judge_verdict(s->judge) || !sim_host_acknowledge(s->hosts[i]))
                                break;
                        wait_for_hosts(s, 60000);
                }
}

static void look_at_tables(sim *s)
{
        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                sim_host_judge(s->hosts[i]);
        sim_box_judge(s->box, true);
        sim_judge_close(s->judge, s->clock.now);
}

static void settle(sim *s)
{
        heal(s);
        wait_for_hosts(s, 150000);
        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                sim_host_give_up(s->hosts[i]);
        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                sim_host_greet(s->hosts[i]);
        pass(s, 5000 + AGX_WORKER_DRAIN_MS + 15000);
        wait_for_hosts(s, 150000);
        rest_strangers(s);
        acknowledge(s);
        pass(s, AGX_LEDGER_INLINE_MS + 35000);
        if (!sim_judge_verdict(s->judge))
                look_at_tables(s);
}

static void take_down(sim *s)
{
        bool fine = !sim_judge_verdict(s->judge);

        for (uint32_t i = 0; i < s->plan.n_hosts; ++i)
                sim_host_free(s->hosts[i]);
        for (uint32_t i = 0; i < s->plan.n_strangers; ++i)
                sim_stranger_free(s->strangers[i]);
        if (fine)
                pass(s, 10000);
        if (fine && s->box && s->box->n_doors)
                sim_judge_blame(s->judge, 0, "the server keeps connections that nobody holds");
        if (fine)
                pass(s, 2 * AGX_SIO_PING_MS + AGX_SIO_TIMEOUT_MS); /* one that polled may come back so long */
        if (fine && s->box && s->box->lobbies.count)
                sim_judge_blame(s->judge, 0, "the server keeps sessions that nobody holds");
        if (s->box)
                sim_box_kill(s->box);
        s->box = NULL;
        agx_list_foreach_safe(node, &s->released) sim_worker_free(agx_container_of(node, sim_worker, node));
        sim_end_turn(s);
        sim_net_deinit(&s->net);
}

/* ---- a whole run ---- */

static void begin(sim *s, uint64_t seed, uint32_t calls)
{
        sim_plan *p = &s->plan;

        sim_clock_init(&s->clock, seed);
        sim_net_init(&s->net, &s->clock);
        agx_list_init(&s->flushes);
        agx_list_init(&s->released);
        sim_plan_draw(s, seed, calls);
        s->next_job = 1;
        s->jobs = sim_alloc((p->calls + p->spare + 2u) * sizeof(sim_job));
        for (uint32_t i = 0; i < p->n_hosts + p->n_strangers; ++i)
                s->numbered[i] = sim_alloc((p->calls + p->spare + 2u) * sizeof(uint32_t));
        s->judge = sim_judge_new(&(sim_rules){.n_hosts = p->n_hosts,
                                              .n_strangers = p->n_strangers,
                                              .calls = p->calls + p->spare,
                                              .kept_max = p->tight ? 6 : AGX_LEDGER_KEPT_MAX,
                                              .open_max = p->tight ? 48 : AGX_LEDGER_CALLS_MAX,
                                              .inline_ms = AGX_LEDGER_INLINE_MS,
                                              .host_slack_ms = 5000,
                                              .box_slack_ms = AGX_WORKER_DRAIN_MS + 5000,
                                              .calm = p->calm});
        s->box = sim_box_new(s);
        for (uint32_t i = 0; i < p->n_hosts; ++i)
                sim_host_new(s, i);
        for (uint32_t i = 0; i < p->n_strangers; ++i)
                sim_stranger_new(s, i);
        sim_trouble_begin(s);
}

static void end(sim *s)
{
        take_down(s);
        for (uint32_t i = 0; i < s->plan.n_hosts + s->plan.n_strangers; ++i)
                free(s->numbered[i]);
        free(s->jobs);
        sim_clock_deinit(&s->clock);
}

void sim_run(uint64_t seed, uint32_t calls, sim_result *result, FILE *report)
{
        static char verdict[256];
        sim *s = sim_alloc(sizeof(*s));

        begin(s, seed, calls);
        work(s);
        if (!sim_judge_verdict(s->judge))
                settle(s);
        *result = (sim_result){.calls = s->next_job - 1u, .steps = s->clock.steps, .virtual_ms = s->clock.now};
        end(s);
        result->digest = sim_judge_digest(s->judge);
        result->restarts = s->restarts;
        result->deaths = s->deaths;
        result->cuts = s->net.cuts;
        result->repeats = s->repeats;
        result->refused = s->refused;
        for (size_t i = 0; i <= SIM_RESTARTED; ++i)
                result->facts[i] = sim_judge_count(s->judge, (sim_fact)i);
        for (size_t i = 0; i < SIM_OUTCOMES; ++i)
                result->outcomes[i] = sim_judge_outcomes(s->judge, (sim_outcome)i);
        if (sim_judge_verdict(s->judge)) {
                snprintf(verdict, sizeof(verdict), "%s", sim_judge_verdict(s->judge));
                result->verdict = verdict;
                if (report) {
                        fprintf(report, "violation: seed %llu, step %llu, %u calls\n", (unsigned long long)seed,
                                (unsigned long long)result->steps, calls);
                        sim_judge_print(s->judge, report);
                }
        }
        sim_judge_free(s->judge);
        free(s);
}
