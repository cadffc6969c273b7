/*
 * Small answers (to a question, or that an exchange is over) wait in a list of the port. They go when it goes: whoever
 * attaches anew asks anew, and is told then of each exchange it names that is over. A host that does not take them gets no
 * more than AGX_TUNNEL_ANSWERS_MAX.
 *
 * The tunnels of a port outlive it: they are without one until a host attaches.
 */
#include "base/err.h"
#include "server/tunnel_parts.h"

#include <stdlib.h>

typedef struct answer {
        agx_list node;
        agx_view event; /* static */
        agx_buf payload;
} answer;

static void answer_free(answer *x)
{
        if (!x)
                return;
        agx_buf_deinit(&x->payload);
        free(x);
}

/* ---- lifecycle ---- */

void agx_tunnel_port_init(agx_tunnel_port *p)
{
        *p = (agx_tunnel_port){.n_answers = 0};
        agx_list_init(&p->tunnels);
        agx_list_init(&p->answers);
}

void agx_tunnel_port_bind(agx_tunnel_port *p, agx_tunnel *t)
{
        agx_list_unlink(&t->of_port);
        agx_list_push_back(&p->tunnels, &t->of_port);
        t->port = p;
}

static void unbind(agx_tunnel *t)
{
        agx_list_unlink(&t->of_port);
        t->port = NULL;
        t->away = 0;
}

void agx_tunnel_port_detach(agx_tunnel_port *p)
{
        if (!p->tunnels.next)
                return;
        agx_list_foreach_safe(node, &p->tunnels) unbind(agx_container_of(node, agx_tunnel, of_port));
        agx_list_foreach_safe(node, &p->answers)
        {
                agx_list_unlink(node);
                answer_free(agx_container_of(node, answer, node));
        }
        p->n_answers = 0;
}

bool agx_tunnel_port_pending(const agx_tunnel_port *p)
{
        if (!p->tunnels.next)
                return false;
        if (!agx_list_empty(&p->answers))
                return true;
        for (agx_list *node = p->tunnels.next; node != &p->tunnels; node = node->next)
                if (!agx_list_empty(&agx_container_of(node, agx_tunnel, of_port)->due))
                        return true;
        return false;
}

/* ---- small answers ---- */

static answer *answer_new(agx_view event)
{
        answer *x = malloc(sizeof(*x));

        if (!x)
                return NULL;
        x->event = event;
        x->payload = AGX_BUF_NULL(AGX_TUNNEL_SMALL_MAX);
        return x;
}

/* `r`: of writing it. */
static int queue(agx_tunnel_port *p, answer *x, int r)
{
        if (r || p->n_answers >= AGX_TUNNEL_ANSWERS_MAX) {
                answer_free(x);
                return r < 0 ? r : 0;
        }
        agx_list_push_back(&p->answers, &x->node);
        p->n_answers++;
        return 0;
}

int agx_tunnel_port_result(agx_tunnel_port *p, agx_view event, agx_view request_id, const agx_tunnel *t)
{
        answer *x = answer_new(event);

        return x ? queue(p, x, agx_tunnel_put_result(&x->payload, request_id, t)) : agx_trace(-ENOMEM);
}

int agx_tunnel_port_error(agx_tunnel_port *p, agx_view event, agx_view request_id, const char *type,
                          const char *message)
{
        answer *x = answer_new(event);

        return x ? queue(p, x, agx_tunnel_put_error(&x->payload, request_id, type, message)) : agx_trace(-ENOMEM);
}

int agx_tunnel_port_gone(agx_tunnel_port *p, uint64_t id)
{
        answer *x = answer_new(AGX_VIEW("gone"));

        return x ? queue(p, x, agx_tunnel_put_gone(&x->payload, id)) : agx_trace(-ENOMEM);
}

/* ---- saying them ---- */

int agx_tunnel_port_say(agx_tunnel_port *p, agx_tunnels *a, agx_tunnel_saying *saying)
{
        answer *x = agx_container_of(agx_list_first(&p->answers), answer, node);

        agx_list_unlink(&x->node);
        p->n_answers--;
        a->last = x;
        *saying = (agx_tunnel_saying){x->event, agx_buf_view(&x->payload)};
        return 0;
}

void agx_tunnels_forget_said(agx_tunnels *a)
{
        answer_free(a->last);
        a->last = NULL;
}
