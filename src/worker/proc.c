/*
 * Two clocks and one count decide when the end of a process is told. Its output usually ends with it, and then it is told
 * at once. What it left behind may hold the output open: then it is told when a moment has passed, or too much came. While
 * output waits for credit that moment does not pass, since what waits was written before.
 *
 * A process that was killed is told when its keeper has confirmed that nobody is left. All that can be in the pipes
 * then was written before, and is passed on as credit comes.
 */
#include "worker/proc.h"
#include "proto/limits.h"

void agx_proc_init(agx_proc *p, uint64_t now, uint64_t credit, uint64_t limit, uint64_t timeout_ms)
{
        *p = (agx_proc){.credit = credit,
                        .limit = limit,
                        .open = {true, true},
                        .deadline = UINT64_MAX,
                        .timeout_at = timeout_ms && timeout_ms < UINT64_MAX - now ? now + timeout_ms : UINT64_MAX};
}

agx_view agx_proc_cause_text(agx_proc_cause cause)
{
        static const agx_view texts[] = {
                [AGX_PROC_EXITED] = {"exited", 6},
                [AGX_PROC_TIMEOUT] = {"timeout", 7},
                [AGX_PROC_ASKED] = {"ended", 5},
                [AGX_PROC_CANCELLED] = {"cancelled", 9},
                [AGX_PROC_CALL_ENDED] = {"call_ended", 10},
                [AGX_PROC_LOST] = {"lost", 4},
        };

        return texts[cause];
}

static unsigned tell(agx_proc *p)
{
        if (p->state == AGX_PROC_ENDED)
                return 0;
        p->state = AGX_PROC_ENDED;
        p->deadline = p->timeout_at = UINT64_MAX;
        return AGX_PROC_TELL;
}

static bool is_over(const agx_proc *p)
{
        return !p->open[0] && !p->open[1] && (p->state == AGX_PROC_LINGERING || p->state == AGX_PROC_DRAINING);
}

/* Something of it may be read, and only credit is missing. */
static bool is_starved(const agx_proc *p)
{
        return !p->credit && ((p->open[0] && p->seen[0] < p->limit) || (p->open[1] && p->seen[1] < p->limit));
}

/* ---- output ---- */

size_t agx_proc_want(const agx_proc *p, int i, size_t most)
{
        if (!p->open[i] || p->state == AGX_PROC_ENDED)
                return 0;
        if (p->seen[i] >= p->limit)
                return most; /* to be dropped */
        return p->credit < most ? (size_t)p->credit : most;
}

unsigned agx_proc_read(agx_proc *p, int i, size_t n, size_t *pass)
{
        uint64_t room = p->seen[i] < p->limit ? p->limit - p->seen[i] : 0;

        *pass = n < room ? n : (size_t)room;
        p->seen[i] += n;
        p->credit -= *pass < p->credit ? *pass : p->credit;
        if (p->state != AGX_PROC_LINGERING)
                return AGX_PROC_READ;
        p->late += n;
        return p->late > AGX_PROC_LINGER_BYTES ? tell(p) : AGX_PROC_READ;
}

unsigned agx_proc_eof(agx_proc *p, int i)
{
        p->open[i] = false;
        return is_over(p) ? tell(p) : 0;
}

unsigned agx_proc_dry(agx_proc *p, int i)
{
        return p->state == AGX_PROC_DRAINING ? agx_proc_eof(p, i) : 0;
}

unsigned agx_proc_credit(agx_proc *p, uint64_t now, uint64_t n)
{
        bool starved = is_starved(p);

        p->credit = n < UINT64_MAX - p->credit ? p->credit + n : UINT64_MAX;
        if (starved && p->credit && p->state == AGX_PROC_LINGERING)
                p->deadline = now + AGX_PROC_LINGER_MS;
        return AGX_PROC_READ;
}

/* ---- ends ---- */

unsigned agx_proc_exited(agx_proc *p, uint64_t now, int status)
{
        p->exited = true;
        p->status = status;
        if (p->state != AGX_PROC_RUNNING)
                return 0;
        p->state = AGX_PROC_LINGERING;
        p->timeout_at = UINT64_MAX;
        p->deadline = now + AGX_PROC_LINGER_MS;
        return is_over(p) ? tell(p) : AGX_PROC_READ;
}

unsigned agx_proc_alone(agx_proc *p)
{
        if (p->alone || p->state == AGX_PROC_ENDED)
                return 0;
        p->alone = true;
        if (!p->exited && p->state == AGX_PROC_RUNNING)
                p->cause = AGX_PROC_LOST;
        p->state = AGX_PROC_DRAINING;
        p->deadline = p->timeout_at = UINT64_MAX;
        return is_over(p) ? tell(p) : AGX_PROC_READ;
}

unsigned agx_proc_end(agx_proc *p, uint64_t now, agx_proc_cause cause)
{
        if (p->state != AGX_PROC_RUNNING && p->state != AGX_PROC_LINGERING)
                return 0;
        if (!p->exited)
                p->cause = cause;
        p->timeout_at = UINT64_MAX;
        if (p->alone)
                return tell(p);
        p->state = AGX_PROC_ENDING;
        p->force_at = now + AGX_PROC_KEEPER_MS;
        p->deadline = now + AGX_PROC_ROUSE_MS;
        return AGX_PROC_KILL | AGX_PROC_READ;
}

/* The keeper has not answered; what it is at can take as long as that. */
static unsigned rouse(agx_proc *p, uint64_t now)
{
        p->deadline = p->force_at < now + AGX_PROC_ROUSE_MS ? p->force_at : now + AGX_PROC_ROUSE_MS;
        return AGX_PROC_ROUSE;
}

unsigned agx_proc_tick(agx_proc *p, uint64_t now)
{
        if (p->timeout_at <= now)
                return agx_proc_end(p, now, AGX_PROC_TIMEOUT);
        if (p->deadline > now)
                return 0;
        p->deadline = UINT64_MAX;
        if (p->state == AGX_PROC_LINGERING)
                return is_starved(p) ? 0 : tell(p);
        if (p->state != AGX_PROC_ENDING)
                return 0;
        if (now < p->force_at)
                return rouse(p, now);
        if (p->forced)
                return agx_proc_alone(p); /* not even that helps: it waits in the kernel */
        p->forced = true;
        p->force_at = p->deadline = now + AGX_PROC_KEEPER_MS;
        return AGX_PROC_FORCE;
}
