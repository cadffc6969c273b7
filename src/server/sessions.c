/*
 * A map by name and a list of those that hold no calls. Room in `forgotten` is reserved when a session is made, so
 * forgetting one, which happens where nobody could handle an error, never fails.
 */
#include "server/sessions.h"
#include "base/err.h"
#include "proto/limits.h"

#include <stdlib.h>

void agx_sessions_init(agx_sessions *s, const uint8_t seed[16], size_t max, uint32_t forgotten_max, uint32_t window)
{
        *s = (agx_sessions){.max = max, .window = window};
        agx_map_init(&s->by_name, seed);
        agx_list_init(&s->unused);
        agx_idring_init(&s->forgotten, s->by_name.seed, forgotten_max);
}

static void drop(agx_sessions *s, agx_session *session)
{
        agx_map_remove(&s->by_name, &session->by_name);
        agx_list_unlink(&session->unused);
        if (s->last == session)
                s->last = NULL;
        free(session);
}

void agx_sessions_deinit(agx_sessions *s)
{
        agx_map_node *node;

        while ((node = agx_map_any(&s->by_name)))
                drop(s, agx_container_of(node, agx_session, by_name));
        agx_map_deinit(&s->by_name);
        agx_idring_deinit(&s->forgotten);
}

static agx_session *find(const agx_sessions *s, agx_view name)
{
        agx_map_node *node;

        if (s->last && agx_view_eq(s->last->by_name.key, name))
                return s->last;
        node = agx_map_find(&s->by_name, name);
        return node ? agx_container_of(node, agx_session, by_name) : NULL;
}

static void trim(agx_sessions *s)
{
        while (s->by_name.count > s->max && !agx_list_empty(&s->unused)) {
                agx_session *session = agx_container_of(agx_list_first(&s->unused), agx_session, unused);

                if (session->window.newest)
                        agx_idring_add(&s->forgotten, session->by_name.key, session->window.newest);
                drop(s, session);
        }
}

agx_session *agx_sessions_use(agx_sessions *s, agx_view name)
{
        agx_session *session = find(s, name);

        if (session && !session->calls) {
                agx_list_unlink(&session->unused);
                agx_list_push_back(&s->unused, &session->unused);
        }
        if (session)
                s->last = session;
        return session;
}

int agx_sessions_make(agx_sessions *s, agx_view name, agx_session **ret)
{
        agx_session *session = agx_sessions_use(s, name);
        uint64_t mark = 0;
        int r;

        *ret = session;
        if (session)
                return 0;
        r = agx_idring_reserve(&s->forgotten, s->forgotten.count + s->by_name.count + 1);
        if (r)
                return r;
        session = calloc(1, sizeof(*session) + name.n);
        if (!session)
                return agx_trace(-ENOMEM);
        memcpy(session + 1, name.p, name.n);
        session->by_name.key = agx_view_of(session + 1, name.n);
        agx_idring_find(&s->forgotten, name, &mark);
        agx_idwindow_init(&session->window, s->window, mark);
        r = agx_map_insert(&s->by_name, &session->by_name);
        if (r) {
                free(session);
                return r;
        }
        agx_list_init(&session->unused);
        agx_list_push_back(&s->unused, &session->unused);
        *ret = session;
        return 0;
}

void agx_sessions_hold(agx_sessions *s, agx_session *session)
{
        if (!session->calls++)
                agx_list_unlink(&session->unused);
        trim(s);
}

void agx_sessions_release(agx_sessions *s, agx_session *session)
{
        if (--session->calls)
                return;
        agx_list_push_back(&s->unused, &session->unused);
        trim(s);
}

bool agx_sessions_name_ok(agx_view name)
{
        for (size_t i = 0; i < name.n; i++)
                if (name.p[i] <= ' ' || name.p[i] >= 0x7f)
                        return false;
        return name.n && name.n <= AGX_MAX_SESSION;
}

bool agx_sessions_split(agx_view id, agx_view *name, uint64_t *number)
{
        size_t dash = id.n;
        agx_view digits;

        while (dash && id.p[dash - 1] != '-')
                --dash;
        if (!dash)
                return false;
        digits = agx_view_from(id, dash);
        if (!agx_view_u64(digits, UINT64_MAX - 1, number) || (digits.n > 1 && digits.p[0] == '0'))
                return false;
        ++*number;
        *name = agx_view_first(id, dash - 1);
        return true;
}

bool agx_sessions_seen(const agx_sessions *s, agx_view id)
{
        const agx_session *session;
        uint64_t number, newest;
        agx_view name;

        if (!agx_sessions_split(id, &name, &number))
                return false;
        session = find(s, name);
        if (session)
                return agx_idwindow_has(&session->window, number);
        return agx_idring_find(&s->forgotten, name, &newest) && number <= newest;
}
