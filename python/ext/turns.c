/*
 * Turn-taking. What a thread remembers between its verbs (which leadership it held, what it runs since when) is
 * thread-local; what all share lies under one lock that is held for a few instructions at a time.
 *
 * Losing the lead is a matter of numbers: whoever takes it away bumps `turn`, and the loser notices at its next take().
 *
 * The watcher's ticks are one wake-up for many calls where these come one after the other. Where they come seldom its ticks
 * grow longer: in a machine full of sandboxes, each called now and then, they would else cost more than the calls.
 */
#include "turns.h"

#include <poll.h>
#include <time.h>

enum {
        QUICK_NS = 100 * 1000,        /* targets below this are run without passing the lead on */
        SAMPLE_MAX_NS = 2 * QUICK_NS, /* so that one call which the scheduler held up does not count as a slow target */
        PATIENCE_NS = 1000 * 1000,    /* a keeper that takes longer loses it */
        TICK_MAX = 8,                 /* of the watcher, in such times of patience, where calls are seldom */
        SELDOM = 4,                   /* in one of them: fewer calls are */
        TICKS_BEFORE_SLEEP = 100,     /* likewise, of a watcher that sees no calls */
        COST_WEIGHT = 4               /* a measure counts for a quarter of the average */
};

/* In the space that the C library keeps for small late-comers: reached without a call. */
static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
        agx_turns *of;
        uint64_t turn;
        uint64_t target;
        uint64_t since; /* ns; 0: no call is being measured */
} mine;

static uint64_t now_ns(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* FNV-1a: a clash only costs a wrong guess, and the names come from the sandbox's own host. */
static uint64_t hash_of(agx_view v)
{
        uint64_t hash = 0xcbf29ce484222325U;

        for (size_t i = 0; i < v.n; ++i)
                hash = (hash ^ (unsigned char)v.p[i]) * 0x100000001b3U;
        return hash;
}

static agx_turns_cost *cost_of(agx_turns *t, uint64_t target)
{
        return &t->costs[target % AGX_TURNS_SLOTS];
}

static void note_cost(agx_turns *t)
{
        agx_turns_cost *cost = cost_of(t, mine.target);
        uint64_t ns;

        if (mine.of != t || !mine.since)
                return;
        ns = now_ns() - mine.since + 1;
        ns = ns < SAMPLE_MAX_NS ? ns : SAMPLE_MAX_NS;
        mine.since = 0;
        if (cost->target != mine.target || !cost->ns)
                *cost = (agx_turns_cost){mine.target, ns};
        else
                cost->ns = cost->ns - cost->ns / COST_WEIGHT + ns / COST_WEIGHT;
}

static bool is_quick(agx_turns *t, uint64_t target)
{
        const agx_turns_cost *cost = cost_of(t, target);

        return cost->target == target && cost->ns && cost->ns < QUICK_NS;
}

static bool leads(const agx_turns *t)
{
        return t->taken && mine.of == t && mine.turn == t->turn;
}

static void free_lead(agx_turns *t)
{
        t->taken = t->given = t->loop_waits = false;
        t->busy_since = 0;
        ++t->turn;
        pthread_cond_signal(&t->lead_free);
}

/* ---- the watcher ---- */

static bool is_readable(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, 0) > 0;
}

/* The next tick, in times of patience, after one of `length` in which so many calls came. */
static unsigned next_tick(const agx_turns *t, unsigned length, uint64_t calls)
{
        if (t->busy_since || t->given || t->loop_waits || calls >= (uint64_t)SELDOM * length)
                return 1;
        return length < TICK_MAX ? 2 * length : length;
}

static void sleep_unlocked(agx_turns *t, unsigned length)
{
        const struct timespec tick = {.tv_nsec = (long)length * PATIENCE_NS};

        pthread_mutex_unlock(&t->lock);
        nanosleep(&tick, NULL);
        pthread_mutex_lock(&t->lock);
}

static void *watch(void *argument)
{
        agx_turns *t = argument;
        uint64_t seen = 0;
        unsigned length = 1, idle = 0, /* of the last tick; how long no call came */
                lying = 0;             /* ticks with a loop that waits and a frame that it does not read */

        pthread_mutex_lock(&t->lock);
        while (!t->stop) {
                idle = t->kept == seen && !t->busy_since ? idle + length : 0;
                length = next_tick(t, length, t->kept - seen);
                seen = t->kept;
                if (t->busy_since && now_ns() - t->busy_since >= PATIENCE_NS)
                        free_lead(t);
                lying = idle && t->loop_waits && is_readable(t->fd) ? lying + 1 : 0;
                if (lying > 1 || (idle > TICKS_BEFORE_SLEEP && t->loop_waits))
                        free_lead(t);
                if (idle > TICKS_BEFORE_SLEEP) {
                        t->watcher_sleeps = true;
                        pthread_cond_wait(&t->watch, &t->lock);
                        t->watcher_sleeps = false;
                        idle = 0;
                        continue;
                }
                sleep_unlocked(t, length);
        }
        pthread_mutex_unlock(&t->lock);
        return NULL;
}

/* True if somebody watches: without a watcher the lead must not be kept. */
static bool ensure_watcher(agx_turns *t)
{
        if (!t->watcher_runs)
                t->watcher_runs = pthread_create(&t->watcher, NULL, watch, t) == 0;
        else if (t->watcher_sleeps)
                pthread_cond_signal(&t->watch);
        return t->watcher_runs;
}

/* The leader does something that may last. */
static void begin_watched(agx_turns *t, uint64_t now)
{
        t->busy_since = now;
        ++t->kept;
}

/* ---- lifecycle and verbs ---- */

void agx_turns_init(agx_turns *t, int fd)
{
        *t = (agx_turns){.fd = fd};
        pthread_mutex_init(&t->lock, NULL);
        pthread_cond_init(&t->lead_free, NULL);
        pthread_cond_init(&t->watch, NULL);
}

void agx_turns_deinit(agx_turns *t)
{
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->watch);
        pthread_mutex_unlock(&t->lock);
        if (t->watcher_runs)
                pthread_join(t->watcher, NULL);
        pthread_cond_destroy(&t->watch);
        pthread_cond_destroy(&t->lead_free);
        pthread_mutex_destroy(&t->lock);
}

bool agx_turns_take(agx_turns *t)
{
        bool kept;

        pthread_mutex_lock(&t->lock);
        note_cost(t);
        kept = leads(t);
        if (kept) {
                t->busy_since = 0;
        } else {
                while (t->taken)
                        pthread_cond_wait(&t->lead_free, &t->lock);
                t->taken = true;
                mine.of = t;
                mine.turn = ++t->turn;
        }
        pthread_mutex_unlock(&t->lock);
        return !kept;
}

void agx_turns_leave(agx_turns *t)
{
        pthread_mutex_lock(&t->lock);
        if (leads(t))
                free_lead(t);
        pthread_mutex_unlock(&t->lock);
}

void agx_turns_begin(agx_turns *t, agx_view target)
{
        mine.target = hash_of(target);
        mine.since = now_ns();
        pthread_mutex_lock(&t->lock);
        if (is_quick(t, mine.target) && ensure_watcher(t)) {
                begin_watched(t, mine.since);
        } else {
                free_lead(t);
        }
        pthread_mutex_unlock(&t->lock);
}

bool agx_turns_leads(agx_turns *t)
{
        bool yes;

        pthread_mutex_lock(&t->lock);
        yes = leads(t);
        pthread_mutex_unlock(&t->lock);
        return yes;
}

/* ---- a loop's thread ---- */

bool agx_turns_give(agx_turns *t)
{
        bool given;

        pthread_mutex_lock(&t->lock);
        given = ensure_watcher(t);
        if (given) {
                ++t->turn;
                t->given = true;
                t->busy_since = now_ns();
        }
        pthread_mutex_unlock(&t->lock);
        return given;
}

bool agx_turns_accept(agx_turns *t)
{
        bool accepted;

        pthread_mutex_lock(&t->lock);
        accepted = t->given;
        if (accepted) {
                t->given = false;
                mine.of = t;
                mine.turn = t->turn;
                begin_watched(t, now_ns());
        }
        pthread_mutex_unlock(&t->lock);
        return accepted;
}

bool agx_turns_resume(agx_turns *t)
{
        bool yes;

        pthread_mutex_lock(&t->lock);
        yes = leads(t);
        if (yes) {
                t->busy_since = 0;
                t->loop_waits = false;
        }
        pthread_mutex_unlock(&t->lock);
        return yes;
}

void agx_turns_keep(agx_turns *t)
{
        pthread_mutex_lock(&t->lock);
        if (leads(t)) {
                ensure_watcher(t);
                begin_watched(t, now_ns());
        }
        pthread_mutex_unlock(&t->lock);
}

void agx_turns_wait(agx_turns *t)
{
        pthread_mutex_lock(&t->lock);
        if (leads(t)) {
                ensure_watcher(t);
                t->busy_since = 0;
                t->loop_waits = true;
        }
        pthread_mutex_unlock(&t->lock);
}
