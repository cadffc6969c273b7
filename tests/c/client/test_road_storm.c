/*
 * The client on two roads in a storm: random calls, ends, cuts at any byte, restarts, refusals and cancels. What came of
 * it is judged by the server's own table: no call begun twice, each with one outcome, each value of the call it was
 * asked for, none lost while its server lives, nothing that was abandoned left running.
 */
#include "peer.h"

enum { STORMS = 400, STEPS = 150, CALLS = 120 };

typedef struct storm {
        server s;
        uint64_t random;
        struct {
                agx_client_call *call;
                char argument[16];
                int instance; /* when it was started */
                bool abandoned, ended;
        } calls[CALLS];
        size_t n;
} storm;

static unsigned draw(storm *t, unsigned n)
{
        t->random ^= t->random << 13;
        t->random ^= t->random >> 7;
        t->random ^= t->random << 17;
        return (unsigned)(t->random >> 20) % n;
}

static served *row_of(storm *t, size_t at)
{
        for (size_t i = 0; i < t->s.n_calls; ++i)
                if (strcmp(t->s.calls[i].argument, t->calls[at].argument) == 0)
                        return &t->s.calls[i];
        return NULL;
}

static void judge(storm *t, size_t at, const agx_client_result *result)
{
        const served *row = row_of(t, at);

        assert_false(t->calls[at].ended || t->calls[at].abandoned);
        t->calls[at].ended = true;
        if (result->outcome == AGX_CLIENT_VALUE) {
                assert_non_null(row);
                assert_true(agx_view_eq(result->value, agx_view_str(row->argument)));
                return;
        }
        assert_int_equal(result->outcome, AGX_CLIENT_FAULT);
        assert_true(agx_view_eq(result->fault.reason, AGX_VIEW("instance_changed")));
        assert_true(t->calls[at].instance < t->s.instance);
}

static void take_done(storm *t)
{
        agx_client_call *call;

        while ((call = agx_client_next_done(t->s.f.client))) {
                size_t at = 0;

                while (at < t->n && (t->calls[at].call != call || t->calls[at].ended || t->calls[at].abandoned))
                        ++at;
                assert_true(at < t->n);
                judge(t, at, agx_client_call_result(call));
                agx_client_call_free(t->s.f.client, call, t->s.f.now);
        }
}

static void begin_one(storm *t)
{
        size_t at = t->n;

        if (at == CALLS)
                return;
        snprintf(t->calls[at].argument, sizeof(t->calls[at].argument), "k%zu", at);
        t->calls[at].instance = t->s.instance;
        t->calls[at].call = start_with(&t->s.f, agx_view_str(t->calls[at].argument), UINT64_MAX);
        ++t->n;
}

static void abandon_one(storm *t)
{
        size_t at = t->n ? draw(t, (unsigned)t->n) : 0;

        take_done(t);
        if (at == t->n || t->calls[at].ended || t->calls[at].abandoned)
                return;
        t->calls[at].abandoned = true;
        agx_client_call_free(t->s.f.client, t->calls[at].call, t->s.f.now);
}

static void drop_one(storm *t)
{
        size_t n = t->s.f.n_ends, from = n ? draw(t, (unsigned)n) : 0;

        for (size_t i = 0; i < n; ++i) {
                end *e = &t->s.f.ends[(from + i) % n];

                if (e->conn) {
                        drop(&t->s.f, e);
                        return;
                }
        }
}

static void restart(storm *t)
{
        static const char *const names[] = {"one", "two", "three", "four", "five", "six", "seven", "eight"};

        if (t->s.instance == 7)
                return;
        for (size_t i = 0; i < t->s.f.n_ends; ++i)
                if (t->s.f.ends[i].conn)
                        drop(&t->s.f, &t->s.f.ends[i]);
        t->s.f.instance = names[++t->s.instance];
}

static void end_some(storm *t)
{
        if (t->s.n_calls) {
                served *c = &t->s.calls[draw(t, (unsigned)t->s.n_calls)];

                if (c->instance == t->s.instance)
                        end_call(&t->s, c);
        }
}

static void step(storm *t)
{
        switch (draw(t, 16)) {
        case 0:
        case 1:
        case 2:
        case 3:
                begin_one(t);
                break;
        case 4:
        case 5:
        case 6:
                end_some(t);
                break;
        case 7:
                abandon_one(t);
                break;
        case 8:
                drop_one(t);
                break;
        case 9:
                t->s.f.budget = t->s.f.budget == SIZE_MAX ? draw(t, 1500) : t->s.f.budget;
                break;
        case 10:
                t->s.hold = draw(t, 2);
                break;
        case 11:
                t->s.at_once = draw(t, 3) == 0;
                break;
        case 12:
                t->s.f.refuse_open = draw(t, 4) ? NULL : "Connection refused";
                break;
        case 13:
                if (draw(t, 12) == 0)
                        restart(t);
                break;
        default:
                pass(&t->s.f, draw(t, 200));
        }
        switch (draw(t, 3)) {
        case 0:
                work(&t->s.f); /* written, but not answered */
                break;
        case 1:
                serve(&t->s);
                break;
        default:
                settle(&t->s);
        }
        take_done(t);
}

static void calm(storm *t)
{
        t->s.f.budget = SIZE_MAX;
        t->s.f.refuse_open = NULL;
        t->s.hold = false;
        for (int i = 0; i < 60; ++i) {
                settle(&t->s);
                let_pass(&t->s, 200);
                take_done(t);
        }
        for (size_t i = 0; i < t->n; ++i) { /* first: what was abandoned ends without us */
                served *row = t->calls[i].abandoned ? row_of(t, i) : NULL;

                if (row && row->instance == t->s.instance && row->running)
                        fail_msg("%s was abandoned and runs", row->argument);
        }
        for (size_t i = 0; i < t->s.n_calls; ++i)
                if (t->s.calls[i].instance == t->s.instance)
                        end_call(&t->s, &t->s.calls[i]);
        for (int i = 0; i < 10; ++i) {
                let_pass(&t->s, 200);
                take_done(t);
        }
}

static void one_storm(uint64_t seed)
{
        agx_client_config config = link_config(seed & 1 ? 100 : UINT64_MAX);
        agx_client_counts counts;
        agx_client_call *first;
        storm *t = calloc(1, sizeof(*t));

        assert_non_null(t);
        config.attempts = 0;
        config.timeout_ms = 5000;
        open_server(&t->s, &config);
        t->random = seed * 0x9e3779b97f4a7c15u | 1;
        t->s.f.cut = draw(t, 4) ? 0 : 1 + draw(t, 40);
        assert_int_equal(agx_client_connect(t->s.f.client, NULL, t->s.f.now, &first), 0);
        settle(&t->s);
        assert_ptr_equal(agx_client_next_done(t->s.f.client), first);
        agx_client_call_free(t->s.f.client, first, t->s.f.now);
        for (int i = 0; i < STEPS && t->s.f.n_ends < CONNS - 120; ++i)
                step(t);
        calm(t);
        for (size_t i = 0; i < t->n; ++i)
                if (!t->calls[i].abandoned && !t->calls[i].ended)
                        fail_msg("seed %llu: %s has no outcome", (unsigned long long)seed, t->calls[i].argument);
        counts = agx_client_count(t->s.f.client);
        assert_true(!counts.waiting && !counts.pausing && !counts.linked && !counts.cancels);
        close_server(&t->s);
        free(t);
}

static void test_storms(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= STORMS; ++seed)
                one_storm(seed);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_storms),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
