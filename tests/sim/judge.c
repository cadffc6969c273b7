/*
 * One row a call. A record is a rule or two about its row; the first rule that is broken stays the verdict, and the
 * records up to then are what is printed.
 */
#include "judge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL = 16384, VERDICT_MAX = 200, ITEMS = 64 };

typedef struct row {
        uint64_t started_at, deadline_at, ended_at, allowed;
        uint64_t digest; /* of what the target returned */
        uint64_t cancel_due;
        uint64_t answered_at;
        uint64_t run, worker;
        sim_outcome outcome, closed_as;
        uint32_t host, instance; /* that accepted it first */
        uint64_t *items;         /* digests of what was given */
        uint64_t window;
        uint32_t gave, got;
        bool started, ended, abandoned, ran, returned, raised, worker_dead, accepted, closed, cancel, answered, evicted,
                repeated, quiet; /* quiet: no line of its target may come any more */
} row;

struct sim_judge {
        sim_rules rules;
        row *rows;
        uint32_t **keys;    /* by host, by counter */
        uint32_t **cancels; /* likewise: by which instance its cancel was heard, from 1 */
        uint32_t instance;
        uint32_t culprit;
        uint64_t loose; /* evictions of calls unknown */
        sim_record tail[TAIL];
        uint64_t records, digest;
        uint64_t facts[SIM_RESTARTED + 1], outcomes[SIM_OUTCOMES];
        char verdict[VERDICT_MAX];
};

static const char *const fact_texts[] = {[SIM_GOT] = "host: got an item",       [SIM_GAVE] = "target: gave an item",
                                         [SIM_STARTED] = "host: started",       [SIM_CLOCKED] = "host: deadline counts",
                                         [SIM_ENDED] = "host: ended",           [SIM_ABANDONED] = "host: abandoned",
                                         [SIM_HEARD] = "stranger: heard",       [SIM_RAN] = "target: began",
                                         [SIM_TOUCHED] = "target: side effect", [SIM_RETURNED] = "target: returned",
                                         [SIM_WORKER_DEAD] = "worker: dead",    [SIM_ACCEPTED] = "table: accepted",
                                         [SIM_CANCEL] = "table: cancel",        [SIM_CLOSED] = "table: closed",
                                         [SIM_ANSWERED] = "table: answered",    [SIM_EVICTED] = "table: evicted",
                                         [SIM_REPEATED] = "table: repeated",    [SIM_TABLE] = "table: counts",
                                         [SIM_RESTARTED] = "server: restarted"};
static const char *const outcome_texts[] = {"value",       "raised",    "cancelled", "cancelled early",
                                            "worker died", "not begun", "dropped",   "instance changed",
                                            "unreached",   "unknown",   "deadline",  "other"};

sim_judge *sim_judge_new(const sim_rules *rules)
{
        sim_judge *j = calloc(1, sizeof(*j));
        uint32_t n = rules->n_hosts + rules->n_strangers;

        if (!j || !(j->rows = calloc(rules->calls + 1u, sizeof(row))) || !(j->keys = calloc(n, sizeof(uint32_t *))) ||
            !(j->cancels = calloc(n, sizeof(uint32_t *))))
                abort();
        j->rules = *rules;
        for (uint32_t i = 0; i < n; ++i)
                if (!(j->keys[i] = calloc(rules->calls + 2u, sizeof(uint32_t))) ||
                    !(j->cancels[i] = calloc(rules->calls + 2u, sizeof(uint32_t))))
                        abort();
        return j;
}

void sim_judge_free(sim_judge *j)
{
        for (uint32_t i = 0; i < j->rules.n_hosts + j->rules.n_strangers; ++i) {
                free(j->keys[i]);
                free(j->cancels[i]);
        }
        for (uint32_t key = 0; key <= j->rules.calls; ++key)
                free(j->rows[key].items);
        free(j->keys);
        free(j->cancels);
        free(j->rows);
        free(j);
}

static void blame(sim_judge *j, uint32_t key, const char *what)
{
        if (j->verdict[0])
                return;
        j->culprit = key;
        snprintf(j->verdict, sizeof(j->verdict), "%s", what);
}

/* ---- hosts ---- */

static void on_started(sim_judge *j, row *c, const sim_record *r)
{
        if (c->started)
                blame(j, r->key, "a key was used twice: the simulator is wrong");
        c->started = true;
        c->started_at = r->at;
        c->allowed = r->a;
        c->deadline_at = UINT64_MAX;
        c->cancel_due = UINT64_MAX;
        c->host = r->host;
        c->window = r->b;
}

static void on_clocked(sim_judge *j, row *c, const sim_record *r)
{
        (void)j;
        if (c->deadline_at == UINT64_MAX && c->allowed != UINT64_MAX)
                c->deadline_at = r->at + c->allowed;
}

static void must_be_quiet(sim_judge *j, row *c, uint32_t key, bool never)
{
        c->quiet = true;
        if (never && c->ran)
                blame(j, key, "it was said that the call never began, but it had");
}

static void check_value(sim_judge *j, row *c, uint32_t key, uint64_t digest)
{
        if (!c->ran || !c->returned || c->raised)
                blame(j, key, "a value of a call that did not return one");
        else if (digest != c->digest)
                blame(j, key, "not the bytes that the target returned");
}

/* Rules for an outcome, whoever tells it. */
static void check_outcome(sim_judge *j, row *c, const sim_record *r, uint64_t outcome)
{
        switch (outcome) {
        case SIM_VALUE:
                check_value(j, c, r->key, r->b);
                break;
        case SIM_RAISED:
                if (!c->raised)
                        blame(j, r->key, "an error of a target that did not raise it");
                break;
        case SIM_CANCELLED:
                if (!c->cancel)
                        blame(j, r->key, "cancelled, though nobody who may had asked for it");
                must_be_quiet(j, c, r->key, false);
                break;
        case SIM_CANCELLED_EARLY:
                if (!c->cancel)
                        blame(j, r->key, "cancelled, though nobody who may had asked for it");
                must_be_quiet(j, c, r->key, true);
                break;
        case SIM_WORKER_DIED:
                if (c->ran && !c->worker_dead)
                        blame(j, r->key, "a worker was called dead that lives");
                must_be_quiet(j, c, r->key, false);
                break;
        case SIM_NOT_BEGUN:
        case SIM_UNREACHED:
                must_be_quiet(j, c, r->key, true);
                break;
        case SIM_OTHER:
                blame(j, r->key, "an outcome that cannot be");
                break;
        default:
                break;
        }
}

static bool may_be_dropped(sim_judge *j, row *c, uint64_t now)
{
        if (c->evicted || c->repeated || (c->answered && now >= c->answered_at + j->rules.inline_ms))
                return true;
        if (!j->loose)
                return false;
        --j->loose;
        c->evicted = true; /* whoever asks for it again is told the same */
        return true;
}

/* It may have been sent to an instance that is over: not if the one there is now has it. */
static bool may_have_changed(const sim_judge *j, const row *c)
{
        return j->instance && (!c->accepted || c->instance != j->instance);
}

static void on_ended(sim_judge *j, row *c, const sim_record *r)
{
        if (c->ended || c->abandoned)
                blame(j, r->key, "a second outcome for one call");
        c->ended = true;
        c->ended_at = r->at;
        c->outcome = (sim_outcome)r->a;
        ++j->outcomes[r->a];
        if (r->a != SIM_DEADLINE && c->deadline_at != UINT64_MAX && r->at > c->deadline_at + j->rules.host_slack_ms)
                blame(j, r->key, "an outcome long after the deadline");
        check_outcome(j, c, r, r->a);
        if ((r->a == SIM_VALUE || r->a == SIM_RAISED) && c->got != c->gave)
                blame(j, r->key, "a stream ended before its items had come");
        if (r->a == SIM_DROPPED && !may_be_dropped(j, c, r->at))
                blame(j, r->key, "a result was lost that should have been kept");
        if (r->a == SIM_INSTANCE_CHANGED && !may_have_changed(j, c))
                blame(j, r->key, "a restart was blamed that there was not");
        if (r->a == SIM_DEADLINE && (r->at < c->started_at + c->allowed ||
                                     (c->deadline_at != UINT64_MAX && r->at > c->deadline_at + j->rules.host_slack_ms)))
                blame(j, r->key, "the deadline was not kept");
        if (j->rules.calm && r->a != SIM_VALUE && r->a != SIM_RAISED && r->a != SIM_DEADLINE)
                blame(j, r->key, "a call failed though nothing was wrong");
}

static void on_got(sim_judge *j, row *c, const sim_record *r)
{
        if (c->ended || c->abandoned)
                blame(j, r->key, "an item after the end of its stream");
        else if (r->a != c->got)
                blame(j, r->key, "items of a stream are not in order, or some are missing");
        else if (r->a >= c->gave || c->items[r->a] != r->b)
                blame(j, r->key, "an item that the target did not give");
        ++c->got;
}

static void on_abandoned(sim_judge *j, row *c, const sim_record *r)
{
        if (c->ended)
                blame(j, r->key, "abandoned after its end: the simulator is wrong");
        c->abandoned = true;
}

static void on_heard(sim_judge *j, row *c, const sim_record *r)
{
        if (c->host != r->host && r->a != SIM_DROPPED && r->a != SIM_NOT_BEGUN)
                blame(j, r->key, "an answer went to another session");
        else if (r->a == SIM_DROPPED && c->host == r->host && !c->cancel && !c->ended && !may_be_dropped(j, c, r->at))
                blame(j, r->key, "a stranger's result was lost that should have been kept");
        else if (c->host == r->host)
                check_outcome(j, c, r, r->a);
}

/* ---- targets ---- */

static void on_ran(sim_judge *j, row *c, const sim_record *r)
{
        uint32_t *by_id = r->counter <= j->rules.calls ? &j->keys[r->host][r->counter] : NULL;

        if (c->ran)
                blame(j, r->key, "a call was run twice");
        else if (c->quiet)
                blame(j, r->key, "a call began after its end, or though it was said that it never would");
        if (!by_id || (*by_id && *by_id != r->key))
                blame(j, r->key, "an id was run for two calls");
        else
                *by_id = r->key;
        c->ran = true;
        c->run = r->a;
        c->worker = r->b;
}

static void on_touched(sim_judge *j, row *c, const sim_record *r)
{
        if (!c->ran || c->run != r->a)
                blame(j, r->key, "a line of a run that did not begin: the simulator is wrong");
        if (c->quiet)
                blame(j, r->key, "a side effect after the end that was told");
}

static void on_returned(sim_judge *j, row *c, const sim_record *r)
{
        on_touched(j, c, r);
        c->returned = true;
        c->raised = r->b == 0;
        c->digest = r->b;
}

static void on_gave(sim_judge *j, row *c, const sim_record *r)
{
        if (c->quiet)
                blame(j, r->key, "an item after the end that was told");
        if (!c->items && !(c->items = calloc(ITEMS, sizeof(uint64_t))))
                abort();
        if (!c->ran || r->a != c->gave || r->a >= ITEMS)
                blame(j, r->key, "an item of no run: the simulator is wrong");
        else
                c->items[c->gave++] = r->b;
        if (c->window && c->gave > c->got + c->window)
                blame(j, r->key, "more items than its host had credit for");
}

static void on_worker_dead(sim_judge *j, const sim_record *r)
{
        for (uint32_t key = 1; key <= j->rules.calls; ++key) {
                row *c = &j->rows[key];

                if (c->ran && c->worker == r->b)
                        c->worker_dead = true;
        }
}

/* ---- the table ---- */

static void on_accepted(sim_judge *j, row *c, const sim_record *r)
{
        if (c->accepted && c->instance == j->instance)
                blame(j, r->key, "accepted twice");
        else if (c->accepted)
                blame(j, r->key, "sent to two instances");
        if (c->quiet)
                blame(j, r->key, "accepted after its end");
        if (r->counter <= j->rules.calls && j->cancels[r->host][r->counter] == j->instance + 1)
                blame(j, r->key, "accepted after its cancel");
        c->accepted = true;
        c->instance = j->instance;
}

static void on_cancel(sim_judge *j, row *c, const sim_record *r)
{
        (void)j;
        c->cancel = true;
        if (c->cancel_due == UINT64_MAX)
                c->cancel_due = r->at + r->a + j->rules.box_slack_ms;
}

/* The table has not had the call yet: from now on it must not take it. */
static void on_early_cancel(sim_judge *j, const sim_record *r)
{
        if (r->counter <= j->rules.calls)
                j->cancels[r->host][r->counter] = j->instance + 1;
}

static void on_closed(sim_judge *j, row *c, const sim_record *r)
{
        if (c->closed)
                blame(j, r->key, "the table closed a call twice");
        if (!c->accepted)
                blame(j, r->key, "the table closed a call that it had not accepted");
        c->closed = true;
        c->closed_as = (sim_outcome)r->a;
        check_outcome(j, c, r, r->a);
        if (r->at > c->cancel_due)
                blame(j, r->key, "a cancelled call stayed open for too long");
}

static void on_answered(sim_judge *j, row *c, const sim_record *r)
{
        (void)j;
        c->answered = true;
        c->answered_at = r->at;
}

static void on_table(sim_judge *j, const sim_record *r)
{
        if (r->a > j->rules.open_max || r->b > j->rules.kept_max + r->counter)
                blame(j, 0, "the table has outgrown its bound");
}

/* ---- all of them ---- */

static void remember(sim_judge *j, const sim_record *r)
{
        const uint64_t words[] = {r->at, r->fact, r->key, r->host, r->counter, r->a, r->b};

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); ++i)
                j->digest = (j->digest ^ words[i]) * 0x100000001b3 + (j->digest >> 47);
        j->tail[j->records++ % TAIL] = *r;
        ++j->facts[r->fact];
}

void sim_judge_note(sim_judge *j, const sim_record *r)
{
        static void (*const rules[])(sim_judge *, row *, const sim_record *) = {
                [SIM_STARTED] = on_started,   [SIM_CLOCKED] = on_clocked,
                [SIM_ENDED] = on_ended,       [SIM_ABANDONED] = on_abandoned,
                [SIM_HEARD] = on_heard,       [SIM_RAN] = on_ran,
                [SIM_TOUCHED] = on_touched,   [SIM_RETURNED] = on_returned,
                [SIM_ACCEPTED] = on_accepted, [SIM_GOT] = on_got,
                [SIM_GAVE] = on_gave,         [SIM_CANCEL] = on_cancel,
                [SIM_CLOSED] = on_closed,     [SIM_ANSWERED] = on_answered};

        if (j->verdict[0])
                return;
        remember(j, r);
        if (r->key > j->rules.calls)
                blame(j, 0, "an answer with the key of no call");
        else if (r->fact == SIM_WORKER_DEAD)
                on_worker_dead(j, r);
        else if (r->fact == SIM_TABLE)
                on_table(j, r);
        else if (r->fact == SIM_RESTARTED)
                ++j->instance;
        else if (r->key && r->fact == SIM_EVICTED)
                j->rows[r->key].evicted = true;
        else if (r->fact == SIM_EVICTED)
                j->loose += r->a;
        else if (r->key && r->fact == SIM_REPEATED)
                j->rows[r->key].repeated = true;
        else if (r->fact == SIM_CANCEL && !r->key)
                on_early_cancel(j, r);
        else if (r->key && rules[r->fact])
                rules[r->fact](j, &j->rows[r->key], r);
}

void sim_judge_close(sim_judge *j, uint64_t now)
{
        for (uint32_t key = 1; key <= j->rules.calls; ++key) {
                row *c = &j->rows[key];

                if (c->started && c->host < j->rules.n_hosts && !c->ended && !c->abandoned)
                        blame(j, key, "a call without an outcome");
                if (c->accepted && !c->closed && c->instance == j->instance)
                        blame(j, key, "a call that is open for ever at the server");
                if (c->accepted && !c->closed && c->instance == j->instance && now > c->cancel_due)
                        blame(j, key, "a cancelled call stayed open for too long");
        }
}

void sim_judge_blame(sim_judge *j, uint32_t key, const char *what)
{
        blame(j, key, what);
}

const char *sim_judge_verdict(const sim_judge *j)
{
        return j->verdict[0] ? j->verdict : NULL;
}

uint64_t sim_judge_digest(const sim_judge *j)
{
        return j->digest;
}

uint64_t sim_judge_count(const sim_judge *j, sim_fact fact)
{
        return j->facts[fact];
}

uint64_t sim_judge_outcomes(const sim_judge *j, sim_outcome outcome)
{
        return j->outcomes[outcome];
}

/* ---- showing ---- */

static bool tells_outcome(sim_fact fact)
{
        return fact == SIM_ENDED || fact == SIM_HEARD || fact == SIM_CLOSED;
}

static void print_record(const sim_record *r, FILE *to)
{
        fprintf(to, "%8" PRIu64 " ms  step %-8" PRIu64 " call %-5u host %u #%-5" PRIu64 " %-22s ", r->at, r->step,
                r->key, r->host, r->counter, fact_texts[r->fact]);
        if (tells_outcome(r->fact) && r->a < SIM_OUTCOMES)
                fprintf(to, "%s, digest %" PRIx64 "\n", outcome_texts[r->a], r->b);
        else
                fprintf(to, "%" PRIu64 " %" PRIx64 "\n", r->a, r->b);
}

void sim_judge_print(const sim_judge *j, FILE *to)
{
        uint64_t first = j->records > TAIL ? j->records - TAIL : 0;

        fprintf(to, "verdict: %s (call %u)\n", j->verdict[0] ? j->verdict : "none", j->culprit);
        for (uint64_t i = first; i < j->records; ++i) {
                const sim_record *r = &j->tail[i % TAIL];

                if ((j->culprit && r->key == j->culprit) || i + 40 >= j->records || r->fact == SIM_RESTARTED)
                        print_record(r, to);
        }
}
