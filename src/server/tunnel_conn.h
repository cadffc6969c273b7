#ifndef AGX_SERVER_TUNNEL_CONN_H
#define AGX_SERVER_TUNNEL_CONN_H
/*
 * One HTTP connection to a tunnel as a brain: request bytes in; response bytes, events and a deadline out. One request is
 * worked on at a time. What only the tunnel itself can answer it answers: an undeclared path, /_health, a malformed request.
 *
 *     agx_tunnel_conn_next()   as long as there is input
 *     agx_tunnel_conn_reply(), _piece(), _error()   the host's answer to an ASK, which may come before its LAST
 *     agx_tunnel_conn_tick()   when agx_tunnel_conn_deadline() has passed
 *
 * Responses are appended to the buffer given at init. Times are monotonic milliseconds.
 */
#include "server/tunnel.h"

typedef enum agx_tunnel_conn_kind {
        AGX_TUNNEL_CONN_MORE, /* all input is used */
        AGX_TUNNEL_CONN_ASK,  /* a request for the host: .head, .path, .query, and .body as far as it is there */
        AGX_TUNNEL_CONN_BODY, /* .body goes on */
        AGX_TUNNEL_CONN_WAIT, /* a reply is outstanding: keep the rest of the input */
        AGX_TUNNEL_CONN_CLOSE /* send what is in the buffer, then close */
} agx_tunnel_conn_kind;

typedef struct agx_tunnel_conn_event {
        agx_tunnel_conn_kind kind;
        const agx_http1_head *head;
        agx_view path; /* as the tunnel keeps it */
        agx_view query;
        agx_view body;
        bool last; /* of ASK and BODY: the request is complete */
} agx_tunnel_conn_event;

typedef enum agx_tunnel_conn_state {
        AGX_TUNNEL_CONN_IDLE,
        AGX_TUNNEL_CONN_HEAD,   /* a head has begun */
        AGX_TUNNEL_CONN_GATHER, /* the head is there; what is at hand of the body goes along with it */
        AGX_TUNNEL_CONN_ASKING, /* more of the body is to come */
        AGX_TUNNEL_CONN_ASKED,  /* the request is with the host */
        AGX_TUNNEL_CONN_DROP,   /* a body that nobody wants; it has been answered */
        AGX_TUNNEL_CONN_CLOSING
} agx_tunnel_conn_state;

typedef struct agx_tunnel_conn {
        const agx_tunnel *tunnel;
        agx_http1 *parser;
        agx_buf *out;
        agx_tunnel_conn_state state;
        uint64_t deadline;
        const agx_http1_head *head; /* of the request at hand */
        agx_view path, query;
        agx_buf gathered;
        bool full;      /* the request's body is not read for now */
        bool replying;  /* the head of the reply is written */
        bool chunked;   /* so is its body */
        bool bodiless;  /* HEAD, 204, 304 */
        bool head_only; /* HEAD */
        bool close;     /* the connection ends with this request */
        bool http11, keep;
} agx_tunnel_conn;

/* `now`: the moment it was accepted. 0 or -ENOMEM. */
int agx_tunnel_conn_init(agx_tunnel_conn *c, const agx_tunnel *t, agx_buf *out, uint64_t now);
void agx_tunnel_conn_deinit(agx_tunnel_conn *c);

/* Takes from `*in`. Views live as long as the input, the head's up to the next call. 0, or a negative error: close
 * without a word. */
int agx_tunnel_conn_next(agx_tunnel_conn *c, uint64_t now, agx_view *in, agx_tunnel_conn_event *event);
/* Something of the exchange has moved. `full`: the request's body is not read for now. */
void agx_tunnel_conn_moved(agx_tunnel_conn *c, uint64_t now, bool full);
static inline uint64_t agx_tunnel_conn_deadline(const agx_tunnel_conn *c)
{
        return c->deadline;
}
/* The deadline has passed: the exchange is over, and what there is to say is in the buffer. 0 or a negative error. */
int agx_tunnel_conn_tick(agx_tunnel_conn *c, uint64_t now);
/* Whether a request is with the host, or on its way there. */
static inline bool agx_tunnel_conn_busy(const agx_tunnel_conn *c)
{
        return c->state == AGX_TUNNEL_CONN_ASKING || c->state == AGX_TUNNEL_CONN_ASKED;
}

/* `whole`: with all of its body; else _piece() follows. 0 or an error of the buffer. */
int agx_tunnel_conn_reply(agx_tunnel_conn *c, uint64_t now, const agx_tunnel_reply *reply, bool whole);
int agx_tunnel_conn_piece(agx_tunnel_conn *c, uint64_t now, agx_view body, bool last);
/* A JSON error of .status, .error_type (or absent) and .body instead of a reply; one that has begun is broken off. */
int agx_tunnel_conn_error(agx_tunnel_conn *c, uint64_t now, const agx_tunnel_reply *reply);

#endif
