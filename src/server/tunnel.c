/*
 * Tunnels, and the questions of hosts that open, attach and close them. An event is taken for what its name says: one of these
 * questions, or else an answer to the exchange it names.
 *
 * Who speaks: a port first says its small answers; then its tunnels are asked in their order, and within one each exchange
 * with something to say (they stand in `due`) says one thing in turn. So no large request holds up another of its tunnel.
 */
#include "server/tunnel.h"
#include "base/err.h"
#include "server/tunnel_parts.h"

#include <stdlib.h>

static agx_exchange *exchange_of(agx_list *node)
{
        return agx_container_of(node, agx_exchange, node);
}

/* ---- lifecycle ---- */

void agx_tunnels_init(agx_tunnels *a, const uint8_t seed[16])
{
        *a = (agx_tunnels){.said = AGX_BUF_NULL(AGX_TUNNEL_SMALL_MAX)};
        agx_list_init(&a->all);
        agx_map_init(&a->exchanges, seed);
}

void agx_tunnels_deinit(agx_tunnels *a)
{
        agx_tunnels_forget_said(a);
        agx_buf_deinit(&a->said);
        agx_map_deinit(&a->exchanges);
}

static agx_tunnel *tunnel_new(agx_tunnels *a)
{
        agx_tunnel *t = calloc(1, sizeof(*t));

        if (!t)
                return NULL;
        t->all = a;
        t->paths = AGX_BUF_NULL(AGX_TUNNEL_PATHS_MAX * (AGX_TUNNEL_PATH_MAX + 1));
        agx_list_init(&t->of_port);
        agx_list_init(&t->due);
        agx_list_init(&t->exchanges);
        agx_list_push_back(&a->all, &t->node);
        a->n++;
        return t;
}

void agx_tunnel_free(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->exchanges) agx_exchange_over(exchange_of(node));
        agx_list_unlink(&t->of_port);
        agx_list_unlink(&t->node);
        t->all->n--;
        agx_buf_deinit(&t->paths);
        free(t);
}

static agx_tunnel *find(const agx_tunnels *a, uint64_t id)
{
        for (agx_list *node = a->all.next; node != &a->all; node = node->next)
                if (agx_container_of(node, agx_tunnel, node)->id == id)
                        return agx_container_of(node, agx_tunnel, node);
        return NULL;
}

/* ---- saying ---- */

/* An exchange of the tunnel that has something to say, taken out of `due`, or NULL. */
static agx_exchange *next_due(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->due)
        {
                agx_exchange *x = agx_container_of(node, agx_exchange, due);

                agx_list_unlink(node);
                if (agx_exchange_is_due(x))
                        return x;
        }
        return NULL;
}

int agx_tunnels_say(agx_tunnels *a, agx_tunnel_port *p, agx_tunnel_saying *saying)
{
        agx_tunnels_forget_said(a);
        if (!p->tunnels.next)
                return AGX_TUNNEL_E_NONE;
        if (!agx_list_empty(&p->answers))
                return agx_tunnel_port_say(p, a, saying);
        agx_list_foreach_safe(node, &p->tunnels)
        {
                agx_exchange *x = next_due(agx_container_of(node, agx_tunnel, of_port));
                int r;

                if (!x)
                        continue;
                r = agx_exchange_say(x, a, saying);
                if (agx_exchange_is_due(x))
                        agx_exchange_want_say(x);
                return r;
        }
        return AGX_TUNNEL_E_NONE;
}

/* ---- open ---- */

static bool path_ok(agx_view path)
{
        if (!path.n || path.p[0] != '/' || path.n > AGX_TUNNEL_PATH_MAX)
                return false;
        for (size_t i = 0; i < path.n; ++i)
                if (path.p[i] <= ' ' || path.p[i] == 0x7f || path.p[i] == '?' || path.p[i] == '#')
                        return false;
        return true;
}

/* NULL, or what is wrong; *r is -ENOMEM if that is it. */
static const char *take_paths(agx_tunnel *t, const agx_tunnel_question *q, int *r)
{
        agx_mp_reader reader = agx_mp_reader_on(q->paths);

        if (!q->n_paths || q->n_paths > AGX_TUNNEL_PATHS_MAX)
                return "a tunnel has between 1 and 256 paths";
        for (size_t i = 0; i < q->n_paths && !*r; ++i) {
                agx_view path = agx_mp_next(&reader).v;

                if (!path_ok(path))
                        return "a path begins with / and has up to 240 visible characters, without ? and #";
                *r = agx_buf_append_view(&t->paths, path);
                if (!*r)
                        *r = agx_buf_append(&t->paths, "", 1);
        }
        return NULL;
}

agx_view agx_tunnel_path(const agx_tunnel *t, agx_view path)
{
        agx_view rest = agx_buf_view(&t->paths), one;

        while (rest.n && agx_view_split(&rest, '\0', &one))
                if (agx_view_eq(one, path))
                        return one;
        return AGX_VIEW_NULL;
}

static int refuse(agx_tunnel_port *p, agx_view event, const agx_tunnel_words *w, const char *why)
{
        return agx_tunnel_port_error(p, event, w->request_id, "ValueError", why);
}

static int take_open(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_view event = AGX_VIEW("open:error");
        agx_tunnel_question q;
        const char *why;
        agx_tunnel *t;
        int r = 0;

        if (!agx_tunnel_question_read(w->asked, &q) || !q.window)
                return refuse(p, event, w, "open asks for paths and a window of at least 1 ms");
        if (a->n >= AGX_TUNNELS_MAX)
                return refuse(p, event, w, "there are too many tunnels into this sandbox; close one");
        t = tunnel_new(a);
        if (!t)
                return agx_trace(-ENOMEM);
        why = take_paths(t, &q, &r);
        if (why || r) {
                agx_tunnel_free(t);
                return r ? agx_trace(-ENOMEM) : refuse(p, event, w, why);
        }
        t->id = ++a->last_tunnel;
        t->window_ms = q.window < AGX_TUNNEL_WINDOW_MAX_MS ? q.window : AGX_TUNNEL_WINDOW_MAX_MS;
        agx_tunnel_port_bind(p, t);
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_LISTEN, .tunnel = t, .request_id = w->request_id};
        return 0;
}

int agx_tunnel_opened(agx_tunnel *t, agx_view request_id, unsigned number)
{
        t->number = number;
        return t->port ? agx_tunnel_port_result(t->port, AGX_VIEW("open:result"), request_id, t) : 0;
}

void agx_tunnel_failed(agx_tunnel *t, agx_view request_id, const char *why)
{
        if (t->port)
                agx_tunnel_port_error(t->port, AGX_VIEW("open:error"), request_id, "OSError", why);
        agx_tunnel_free(t);
}

/* ---- attach ---- */

static int take_attach(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_view event = AGX_VIEW("attach:error");
        agx_tunnel_question q;
        agx_mp_reader live;
        agx_tunnel *t;
        int r;

        if (!agx_tunnel_question_read(w->asked, &q))
                return refuse(p, event, w, "attach asks for a tunnel");
        t = find(a, q.tunnel);
        if (!t)
                return agx_tunnel_port_error(p, event, w->request_id, "KeyError", "there is no such tunnel");
        agx_tunnel_port_bind(p, t);
        agx_list_foreach_safe(node, &t->exchanges) exchange_of(node)->known = false;
        r = agx_tunnel_port_result(p, AGX_VIEW("attach:result"), w->request_id, t);
        live = agx_mp_reader_on(q.live);
        for (size_t i = 0; i < q.n_live && !r; ++i) {
                uint64_t id = agx_mp_next(&live).u;
                agx_exchange *x = agx_exchange_find(a, id);

                if (x && x->tunnel == t)
                        x->known = true;
                else
                        r = agx_tunnel_port_gone(p, id);
        }
        agx_list_foreach_safe(node, &t->exchanges) agx_exchange_begin_anew(exchange_of(node));
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_LOST, .tunnel = t};
        return r;
}

agx_exchange *agx_tunnel_next_lost(agx_tunnel *t)
{
        agx_list_foreach_safe(node, &t->exchanges)
        {
                if (agx_exchange_is_lost(exchange_of(node)))
                        return exchange_of(node);
        }
        return NULL;
}

/* ---- close ---- */

static int take_close(agx_tunnels *a, agx_tunnel_port *p, const agx_tunnel_words *w, agx_tunnel_outcome *outcome)
{
        agx_tunnel_question q;
        agx_tunnel *t;

        if (!agx_tunnel_question_read(w->asked, &q))
                return refuse(p, AGX_VIEW("close:error"), w, "close asks for a tunnel");
        t = find(a, q.tunnel);
        if (t)
                *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_CLOSE, .tunnel = t};
        return agx_tunnel_port_result(p, AGX_VIEW("close:result"), w->request_id, NULL);
}

/* ---- whatever comes ---- */

static int take_answer(agx_tunnels *a, agx_tunnel_port *p, agx_view name, const agx_tunnel_words *w,
                       agx_tunnel_outcome *outcome)
{
        agx_exchange *x = w->has_id ? agx_exchange_find(a, w->id) : NULL;

        if (!w->has_id)
                return agx_tunnel_note(outcome, "an answer of a tunnel's host whose request_id is no number");
        return x ? agx_exchange_answer(x, name, w, outcome) : agx_tunnel_port_gone(p, w->id);
}

int agx_tunnels_take(agx_tunnels *a, agx_tunnel_port *p, agx_view name, agx_view payload, agx_tunnel_outcome *outcome)
{
        agx_tunnel_words w;

        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_NOTHING};
        if (!p->tunnels.next)
                return 0;
        if (!agx_tunnel_words_read(payload, &w))
                return agx_tunnel_note(outcome, "an event for tunnels that cannot be read");
        if (agx_view_eq(name, AGX_VIEW("open")))
                return take_open(a, p, &w, outcome);
        if (agx_view_eq(name, AGX_VIEW("attach")))
                return take_attach(a, p, &w, outcome);
        if (agx_view_eq(name, AGX_VIEW("close")))
                return take_close(a, p, &w, outcome);
        return take_answer(a, p, name, &w, outcome);
}
