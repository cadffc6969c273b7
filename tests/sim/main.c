/* sim [--seed N] [--calls N] [--run N] [--once] [--progress]: runs of --run calls each, from --seed on, until --calls. */
#include "sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

typedef struct options {
        uint64_t seed, calls;
        uint32_t run;
        bool once, progress;
} options;

static const char usage[] = "usage: sim [--seed N] [--calls N] [--run N] [--once] [--progress]\n"
                            "  --seed N      the first run's seed (1)\n"
                            "  --calls N     calls altogether (100000)\n"
                            "  --run N       calls of one run (300)\n"
                            "  --once        one run, that of --seed, twice, and whether both were alike\n"
                            "  --progress    a line every few seconds\n";

static double seconds(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void add(sim_result *sum, const sim_result *r)
{
        sum->calls += r->calls;
        sum->steps += r->steps;
        sum->virtual_ms += r->virtual_ms;
        sum->digest = sum->digest * 31 + r->digest;
        sum->restarts += r->restarts;
        sum->deaths += r->deaths;
        sum->cuts += r->cuts;
        sum->repeats += r->repeats;
        sum->refused += r->refused;
        for (size_t i = 0; i <= SIM_RESTARTED; ++i)
                sum->facts[i] += r->facts[i];
        for (size_t i = 0; i < SIM_OUTCOMES; ++i)
                sum->outcomes[i] += r->outcomes[i];
}

static void print_sum(const sim_result *s)
{
        static const char *const names[] = {"value",       "raised",    "cancelled", "cancelled early",
                                            "worker died", "not begun", "dropped",   "instance changed",
                                            "unreached",   "unknown",   "deadline",  "other"};

        printf("%" PRIu64 " calls, %" PRIu64 " steps, %.0f hours of virtual time; cut connections %" PRIu64
               ", refused %" PRIu64 ", restarts %" PRIu64 ", worker deaths %" PRIu64 ", repeats %" PRIu64 "\n",
               s->calls, s->steps, (double)s->virtual_ms / 3.6e6, s->cuts, s->refused, s->restarts, s->deaths,
               s->repeats);
        printf("targets run %" PRIu64 ", abandoned %" PRIu64 ", cancels arrived %" PRIu64 ", evicted %" PRIu64
               ", told to strangers %" PRIu64 ", items of streams %" PRIu64 "\noutcomes:",
               s->facts[SIM_RAN], s->facts[SIM_ABANDONED], s->facts[SIM_CANCEL], s->facts[SIM_EVICTED],
               s->facts[SIM_HEARD], s->facts[SIM_GOT]);
        for (size_t i = 0; i < SIM_OUTCOMES; ++i)
                printf("%s %s %" PRIu64, i ? "," : "", names[i], s->outcomes[i]);
        printf("\ndigest %016" PRIx64 "\n", s->digest);
}

static int run_once(const options *o)
{
        sim_result first, second;

        sim_run(o->seed, o->run, &first, stdout);
        sim_run(o->seed, o->run, &second, NULL);
        print_sum(&first);
        if (first.digest != second.digest || first.steps != second.steps) {
                printf("two runs of one seed differ\n");
                return 1;
        }
        return first.verdict != NULL;
}

static int run_all(const options *o)
{
        sim_result sum = {.verdict = NULL}, r;
        double began = seconds(), told = began;
        uint64_t seed = o->seed;

        for (; sum.calls < o->calls; ++seed) {
                sim_run(seed, o->run, &r, stdout);
                add(&sum, &r);
                if (r.verdict) {
                        printf("replay: sim --seed %" PRIu64 " --run %u --once\n", seed, o->run);
                        return 1;
                }
                if (o->progress && seconds() - told > 10) {
                        told = seconds();
                        printf("seed %" PRIu64 ": %" PRIu64 " calls in %.0f s\n", seed, sum.calls, told - began);
                        fflush(stdout);
                }
        }
        print_sum(&sum);
        printf("0 violations in seeds %" PRIu64 " to %" PRIu64 ", %.1f s\n", o->seed, seed - 1, seconds() - began);
        return 0;
}

static bool read_number(const char *text, uint64_t *n)
{
        char *end = NULL;

        *n = text ? strtoull(text, &end, 10) : 0;
        return text && *text && !*end;
}

static bool read_options(options *o, int argc, char **argv)
{
        for (int i = 1; i < argc; ++i) {
                const char *value = i + 1 < argc ? argv[i + 1] : NULL;
                uint64_t n = 0;
                bool given = read_number(value, &n);

                if (!strcmp(argv[i], "--once")) {
                        o->once = true;
                } else if (!strcmp(argv[i], "--progress")) {
                        o->progress = true;
                } else if (given && !strcmp(argv[i], "--seed")) {
                        o->seed = n;
                        ++i;
                } else if (given && !strcmp(argv[i], "--calls")) {
                        o->calls = n;
                        ++i;
                } else if (given && !strcmp(argv[i], "--run") && n && n <= 60000) {
                        o->run = (uint32_t)n;
                        ++i;
                } else {
                        return false;
                }
        }
        return true;
}

int main(int argc, char **argv)
{
        options o = {.seed = 1, .calls = 100000, .run = 300};

        if (!read_options(&o, argc, argv)) {
                fputs(usage, stderr);
                return 2;
        }
        return o.once ? run_once(&o) : run_all(&o);
}
