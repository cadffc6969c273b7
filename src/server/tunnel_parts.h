#ifndef AGX_SERVER_TUNNEL_PARTS_H
#define AGX_SERVER_TUNNEL_PARTS_H
/*
 * What the three files behind tunnel.h need of each other; for them alone. Each calls those below it only:
 *
 *     tunnel.c            tunnels: their questions, whose turn it is to say something, what an event is for
 *     tunnel_exchange.c   one exchange: its records for the host, the host's answers to it
 *     tunnel_port.c       a host's end: the tunnels it has, the small answers it is owed
 */
#include "server/tunnel.h"
#include "server/tunnel_words.h"

enum { AGX_TUNNEL_SMALL_MAX = 2048 /* bytes of an answer or acknowledgement */ };

/* ---- tunnel_port.c ---- */

/* The tunnel is this host's from now on, whosever it was. */
void agx_tunnel_port_bind(agx_tunnel_port *p, agx_tunnel *t);

/* Each puts a small answer into the queue, or drops it if the host takes none. 0 or -ENOMEM. */
int agx_tunnel_port_result(agx_tunnel_port *p, agx_view event, agx_view request_id, const agx_tunnel *t);
int agx_tunnel_port_error(agx_tunnel_port *p, agx_view event, agx_view request_id, const char *type,
                          const char *message);
int agx_tunnel_port_gone(agx_tunnel_port *p, uint64_t id);

/* The oldest of them, or AGX_TUNNEL_E_NONE. It lies in `a` until agx_tunnels_forget_said(). */
int agx_tunnel_port_say(agx_tunnel_port *p, agx_tunnels *a, agx_tunnel_saying *saying);
void agx_tunnels_forget_said(agx_tunnels *a);

/* ---- tunnel_exchange.c ---- */

agx_exchange *agx_exchange_find(const agx_tunnels *a, uint64_t id);

/* Whether it has something to say; then it stands, or is to stand, in its tunnel's `due`. */
static inline bool agx_exchange_is_due(const agx_exchange *x)
{
        return x->ack_due || x->unsaid;
}
/* Puts it there, at the end. */
void agx_exchange_want_say(agx_exchange *x);
/* The acknowledgement or record that is due. 0 or an error of the buffer. It lives until the next saying from `a`. */
int agx_exchange_say(agx_exchange *x, agx_tunnels *a, agx_tunnel_saying *saying);

/* Its host has attached anew; .known: that has named it. Says again what that has not consumed. */
void agx_exchange_begin_anew(agx_exchange *x);
/* The host does not know it any more, and has consumed its beginning, which so cannot be said again. */
bool agx_exchange_is_lost(const agx_exchange *x);

/* An event of the host for this exchange. 0 or -ENOMEM. */
int agx_exchange_answer(agx_exchange *x, agx_view name, const agx_tunnel_words *w, agx_tunnel_outcome *outcome);

/* An event that is passed over; `why` is static. Returns 0. */
static inline int agx_tunnel_note(agx_tunnel_outcome *outcome, const char *why)
{
        *outcome = (agx_tunnel_outcome){.todo = AGX_TUNNEL_TODO_NOTE, .why = why};
        return 0;
}

#endif
