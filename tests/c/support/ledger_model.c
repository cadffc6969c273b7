/* The slow ledger. Out of memory ends the test program: it is no library. */
#include "support/ledger_model.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- arrays ---- */

static void *more(void *array, size_t n, size_t size)
{
        void *grown = realloc(array, (n + 1) * size);

        if (!grown)
                abort();
        return grown;
}

static void cut_out(void *array, size_t *n, size_t size, size_t at)
{
        char *p = (char *)array + at * size;

        memmove(p, p + size, (*n - at - 1) * size);
        --*n;
}

static void copy_text(char *to, size_t room, const char *from)
{
        snprintf(to, room, "%s", from);
}

/* ---- ids ---- */

/* Whether `id` is `<name>-<counter>`; the counter must print as it was written. */
static bool is_id_of(const char *id, const char *name, uint64_t *number)
{
        char again[MODEL_ID + 32];
        const char *digits = strrchr(id, '-');

        if (!digits || digits[1] < '0' || digits[1] > '9')
                return false;
        *number = strtoull(digits + 1, NULL, 10);
        snprintf(again, sizeof(again), "%s-%llu", name, (unsigned long long)*number);
        return !strcmp(again, id) && ++*number != 0;
}

/* ---- sessions ---- */

static model_session *find_session(ledger_model *m, const char *name)
{
        for (size_t i = 0; i < m->n_sessions; ++i)
                if (!strcmp(m->sessions[i].name, name))
                        return &m->sessions[i];
        return NULL;
}

static size_t calls_of(const ledger_model *m, const char *session)
{
        size_t n = 0;

        for (size_t i = 0; i < m->n_calls; ++i)
                n += !strcmp(m->calls[i].owner, session);
        return n;
}

static uint64_t newest_of(const model_session *s)
{
        uint64_t newest = s->floor;

        for (size_t i = 0; i < s->n_seen; ++i)
                newest = s->seen[i] > newest ? s->seen[i] : newest;
        return newest;
}

static bool session_saw(const ledger_model *m, const model_session *s, uint64_t number)
{
        uint64_t newest = newest_of(s);

        if (number <= s->floor || (newest > number && newest - number >= m->bounds.window))
                return true;
        for (size_t i = 0; i < s->n_seen; ++i)
                if (s->seen[i] == number)
                        return true;
        return false;
}

static void forget(ledger_model *m, size_t at)
{
        model_session *s = &m->sessions[at];
        uint64_t newest = newest_of(s);

        if (newest && m->bounds.forgotten_max) {
                if (m->n_forgotten == m->bounds.forgotten_max)
                        cut_out(m->forgotten, &m->n_forgotten, sizeof(*m->forgotten), 0);
                m->forgotten = more(m->forgotten, m->n_forgotten, sizeof(*m->forgotten));
                copy_text(m->forgotten[m->n_forgotten].name, MODEL_NAME, s->name);
                m->forgotten[m->n_forgotten++].newest = newest;
        }
        free(s->seen);
        cut_out(m->sessions, &m->n_sessions, sizeof(*m->sessions), at);
}

/* While there are too many: the longest unused one without calls goes. */
static void trim(ledger_model *m)
{
        while (m->n_sessions > m->bounds.sessions_max) {
                size_t oldest = m->n_sessions;

                for (size_t i = 0; i < m->n_sessions; ++i)
                        if (!calls_of(m, m->sessions[i].name) &&
                            (oldest == m->n_sessions || m->sessions[i].used < m->sessions[oldest].used))
                                oldest = i;
                if (oldest == m->n_sessions)
                        return;
                forget(m, oldest);
        }
}

void ledger_model_touch(ledger_model *m, const char *session)
{
        model_session *s = find_session(m, session);

        if (s)
                s->used = ++m->stamp;
}

static model_session *make_session(ledger_model *m, const char *name)
{
        model_session *s = find_session(m, name);

        if (s)
                return s;
        m->sessions = more(m->sessions, m->n_sessions, sizeof(*m->sessions));
        s = &m->sessions[m->n_sessions++];
        *s = (model_session){.used = ++m->stamp};
        copy_text(s->name, MODEL_NAME, name);
        for (size_t i = 0; i < m->n_forgotten; ++i) /* the last one counts */
                if (!strcmp(m->forgotten[i].name, name))
                        s->floor = m->forgotten[i].newest;
        return s;
}

/* ---- what was seen ---- */

static bool seen_as_own(ledger_model *m, const char *id)
{
        uint64_t number;
        bool seen = false;

        for (size_t i = 0; i < m->n_sessions; ++i)
                if (is_id_of(id, m->sessions[i].name, &number))
                        return session_saw(m, &m->sessions[i], number);
        for (size_t i = 0; i < m->n_forgotten; ++i)
                if (is_id_of(id, m->forgotten[i].name, &number))
                        seen = number <= m->forgotten[i].newest;
        return seen;
}

static bool was_seen(ledger_model *m, const char *id)
{
        for (size_t i = 0; i < m->n_foreign; ++i)
                if (!strcmp(m->foreign[i], id))
                        return true;
        return seen_as_own(m, id);
}

static void remember_foreign(ledger_model *m, const char *id)
{
        if (!m->bounds.foreign_max)
                return;
        if (m->n_foreign == m->bounds.foreign_max)
                cut_out(m->foreign, &m->n_foreign, sizeof(*m->foreign), 0);
        m->foreign = more(m->foreign, m->n_foreign, sizeof(*m->foreign));
        copy_text(m->foreign[m->n_foreign++], MODEL_ID, id);
}

/* ---- calls ---- */

model_call *ledger_model_find(ledger_model *m, const char *id)
{
        for (size_t i = 0; i < m->n_calls; ++i)
                if (!strcmp(m->calls[i].id, id))
                        return &m->calls[i];
        return NULL;
}

static void retire(ledger_model *m, model_call *call)
{
        char owner[MODEL_NAME];

        copy_text(owner, sizeof(owner), call->owner);
        if (call->foreign)
                remember_foreign(m, call->id);
        cut_out(m->calls, &m->n_calls, sizeof(*m->calls), (size_t)(call - m->calls));
        if (owner[0] && !calls_of(m, owner))
                ledger_model_touch(m, owner);
        trim(m);
}

static bool too_much_kept(const ledger_model *m)
{
        size_t n = 0, bytes = 0;

        for (size_t i = 0; i < m->n_calls; ++i) {
                n += m->calls[i].kept;
                bytes += m->calls[i].kept ? m->calls[i].bytes : 0;
        }
        return n > m->bounds.kept_max || bytes > m->bounds.kept_bytes;
}

static model_call *oldest_kept(ledger_model *m)
{
        model_call *oldest = NULL;

        for (size_t i = 0; i < m->n_calls; ++i)
                if (m->calls[i].kept && (!oldest || m->calls[i].since < oldest->since))
                        oldest = &m->calls[i];
        return oldest;
}

static void evict(ledger_model *m)
{
        model_call *oldest;

        while (too_much_kept(m) && (oldest = oldest_kept(m))) {
                copy_text(m->last_evicted, MODEL_ID, oldest->id);
                ++m->evicted;
                retire(m, oldest);
        }
}

/* Whether the one who asks may have the call; the first session that asks for an anonymous one gets it. */
static bool claim(ledger_model *m, const char *session, model_call *call)
{
        if (!strcmp(call->owner, session))
                return true;
        if (call->owner[0])
                return false;
        make_session(m, session);
        copy_text(call->owner, MODEL_NAME, session);
        trim(m);
        return true;
}

static model_call *accept_call(ledger_model *m, const char *session, const char *id)
{
        uint64_t number = 0;
        model_call *call;

        m->calls = more(m->calls, m->n_calls, sizeof(*m->calls));
        call = &m->calls[m->n_calls++];
        *call = (model_call){.state = AGX_CALL_ACCEPTED, .since = ++m->stamp, .expires = UINT64_MAX};
        copy_text(call->id, MODEL_ID, id);
        copy_text(call->owner, MODEL_NAME, session);
        call->foreign = !session[0] || !is_id_of(id, session, &number);
        if (session[0]) {
                model_session *s = make_session(m, session);

                if (!call->foreign) {
                        s->seen = more(s->seen, s->n_seen, sizeof(*s->seen));
                        s->seen[s->n_seen++] = number;
                }
                trim(m);
        }
        return call;
}

static size_t n_open(const ledger_model *m)
{
        size_t n = 0;

        for (size_t i = 0; i < m->n_calls; ++i)
                n += m->calls[i].state != AGX_CALL_RETAINED;
        return n;
}

void ledger_model_init(ledger_model *m, const agx_ledger_bounds *bounds)
{
        *m = (ledger_model){.bounds = *bounds};
}

void ledger_model_deinit(ledger_model *m)
{
        for (size_t i = 0; i < m->n_sessions; ++i)
                free(m->sessions[i].seen);
        free(m->sessions);
        free(m->calls);
        free(m->foreign);
        free(m->forgotten);
}

agx_offer ledger_model_offer(ledger_model *m, const char *session, const char *id, model_call **call)
{
        *call = NULL;
        ledger_model_touch(m, session);
        if (ledger_model_find(m, id)) {
                *call = ledger_model_find(m, id);
                if (!claim(m, session, *call) || (*call)->dropped) {
                        *call = NULL;
                        return AGX_OFFER_RETIRED;
                }
                return (*call)->state == AGX_CALL_RETAINED ? AGX_OFFER_RETAINED : AGX_OFFER_OPEN;
        }
        if (was_seen(m, id))
                return AGX_OFFER_RETIRED;
        if (n_open(m) >= m->bounds.calls_max)
                return AGX_OFFER_BUSY;
        *call = accept_call(m, session, id);
        return AGX_OFFER_NEW;
}

void ledger_model_start(ledger_model *m, model_call *call, uint64_t worker)
{
        if (call->state != AGX_CALL_ACCEPTED)
                return;
        call->state = AGX_CALL_RUNNING;
        call->worker = worker;
        call->since = ++m->stamp;
}

void ledger_model_finish(ledger_model *m, model_call *call, bool ok, size_t bytes)
{
        if (call->state == AGX_CALL_RETAINED)
                return;
        call->state = AGX_CALL_RETAINED;
        call->ok = ok;
        call->bytes = bytes;
        call->since = ++m->stamp;
}

void ledger_model_answered(ledger_model *m, model_call *call, uint64_t now)
{
        if (call->state != AGX_CALL_RETAINED)
                return;
        if (call->dropped || !call->owner[0]) {
                retire(m, call);
                return;
        }
        call->kept = true;
        call->expires = now + m->bounds.inline_ms;
        call->answered = ++m->stamp;
        evict(m);
}

void ledger_model_keep(ledger_model *m, model_call *call)
{
        if (call->state != AGX_CALL_RETAINED)
                return;
        if (call->dropped) {
                retire(m, call);
                return;
        }
        call->kept = true;
        call->expires = UINT64_MAX;
        evict(m);
}

agx_resume ledger_model_resume(ledger_model *m, const char *session, const char *id, model_call **call)
{
        ledger_model_touch(m, session);
        *call = ledger_model_find(m, id);
        if (!*call)
                return was_seen(m, id) ? AGX_RESUME_DROPPED : AGX_RESUME_NEVER_SEEN;
        if (!claim(m, session, *call) || (*call)->dropped) {
                *call = NULL;
                return AGX_RESUME_DROPPED;
        }
        return (*call)->state == AGX_CALL_RETAINED ? AGX_RESUME_REPLAY : AGX_RESUME_OPEN;
}

static model_call *find_mine(ledger_model *m, const char *session, const char *id)
{
        model_call *call = ledger_model_find(m, id);

        ledger_model_touch(m, session);
        return call && !call->dropped && !strcmp(call->owner, session) ? call : NULL;
}

static void drop(ledger_model *m, model_call *call)
{
        if (call->kept)
                retire(m, call);
        else
                call->dropped = true;
}

void ledger_model_ack(ledger_model *m, const char *session, const char *id)
{
        model_call *call = find_mine(m, session, id);

        if (call && call->state == AGX_CALL_RETAINED)
                drop(m, call);
}

/* An id of its own form that did not come yet, and now never may. */
static void retire_unborn(ledger_model *m, const char *session, const char *id)
{
        model_session *s;
        uint64_t number;

        if (!session[0] || !is_id_of(id, session, &number) || was_seen(m, id))
                return;
        s = make_session(m, session);
        s->seen = more(s->seen, s->n_seen, sizeof(*s->seen));
        s->seen[s->n_seen++] = number;
        trim(m);
}

model_call *ledger_model_cancel(ledger_model *m, const char *session, const char *id)
{
        model_call *call = find_mine(m, session, id);

        if (!ledger_model_find(m, id))
                retire_unborn(m, session, id);
        if (call && call->state == AGX_CALL_RETAINED) {
                drop(m, call);
                return NULL;
        }
        if (!call || call->cancelled)
                return NULL;
        call->cancelled = true;
        return call;
}

uint64_t ledger_model_tick(ledger_model *m, uint64_t now)
{
        for (;;) {
                model_call *first = NULL;

                for (size_t i = 0; i < m->n_calls; ++i)
                        if (m->calls[i].expires != UINT64_MAX && (!first || m->calls[i].answered < first->answered))
                                first = &m->calls[i];
                if (!first)
                        return UINT64_MAX;
                if (first->expires > now)
                        return first->expires;
                retire(m, first);
        }
}

model_call *ledger_model_oldest(ledger_model *m, agx_call_state state, uint64_t worker)
{
        model_call *oldest = NULL;

        for (size_t i = 0; i < m->n_calls; ++i) {
                model_call *call = &m->calls[i];

                if (call->state == state && (state != AGX_CALL_RUNNING || call->worker == worker) &&
                    (!oldest || call->since < oldest->since))
                        oldest = call;
        }
        return oldest;
}

agx_ledger_counts ledger_model_count(const ledger_model *m)
{
        agx_ledger_counts counts = {.open = n_open(m),
                                    .retained = m->n_calls - n_open(m),
                                    .sessions = m->n_sessions,
                                    .foreign = m->n_foreign,
                                    .evicted = m->evicted};

        for (size_t i = 0; i < m->n_calls; ++i)
                counts.retained_bytes += m->calls[i].bytes;
        return counts;
}
