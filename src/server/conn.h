#ifndef AGX_SERVER_CONN_H
#define AGX_SERVER_CONN_H
/*
 * One HTTP connection as a brain: request bytes in; response bytes, wishes and a deadline out. One request is worked on
 * at a time; pipelined ones wait in the input.
 *
 *     agx_conn_next()   as long as there is input; does what its wish says
 *     agx_conn_tick()   when agx_conn_deadline() has passed
 *     agx_conn_reply_*  exactly one for each AGX_CONN_SUBMIT, AGX_CONN_SIO, AGX_CONN_FAST and AGX_CONN_CONDUIT
 *
 * Responses are appended to the buffer given at init. Times are monotonic milliseconds.
 */
#include "proto/callmsg.h"
#include "server/auth.h"
#include "server/gather.h"
#include "wire/ws_handshake.h"

/* What all connections of a server share. */
typedef struct agx_site {
        agx_auth auth;
        agx_view version;
        agx_view instance;
        agx_gather *gather; /* what all of them gather; NULL: as much as they like */
        bool draining;      /* the server is about to end: calls are refused, connections closed after their answer */
} agx_site;

typedef enum agx_conn_wish {
        AGX_CONN_INPUT,  /* all input is used: come with more */
        AGX_CONN_SUBMIT, /* .request and .session are complete: reply at once or later; they live as long as the input */
        AGX_CONN_SIO, /* .sio is complete, a request of a Socket.IO client: reply at once or later; it lives likewise */
        AGX_CONN_FAST,    /* a request for the fast wire, of .session: reply with agx_conn_reply_upgrade() */
        AGX_CONN_CONDUIT, /* the connection is to become the worker's, under the name .conduit: reply at once */
        AGX_CONN_WAIT,    /* a reply is outstanding: keep the rest of the input */
        AGX_CONN_LATE,    /* agx_conn_tick() only: the caller's patience is over; say agx_conn_reply_accepted() */
        AGX_CONN_NONE,    /* agx_conn_tick() only: nothing was due */
        AGX_CONN_CLOSE    /* send what is in the buffer, then close */
} agx_conn_wish;

typedef enum agx_conn_state {
        AGX_CONN_IDLE,  /* between requests */
        AGX_CONN_HEAD,  /* a head has begun */
        AGX_CONN_BODY,  /* a body that is wanted */
        AGX_CONN_DROP,  /* a body that is not; it has been answered */
        AGX_CONN_ASKED, /* a request is with the server */
        AGX_CONN_CLOSING,
        AGX_CONN_UPGRADED /* what comes is not HTTP any more: it is not given here */
} agx_conn_state;

typedef enum agx_conn_route {
        AGX_ROUTE_HEALTH,
        AGX_ROUTE_CALL,
        AGX_ROUTE_SIO,
        AGX_ROUTE_FAST,
        AGX_ROUTE_CONDUIT
} agx_conn_route;

/* What a request to /socket.io/ asks for. */
typedef struct agx_conn_sio {
        agx_view sid; /* absent: a new session */
        bool websocket;
        bool post;
        agx_view body; /* of a POST */
} agx_conn_sio;

typedef struct agx_conn {
        const agx_site *site;
        agx_http1 *parser;
        agx_buf *out;
        agx_conn_state state;
        bool served;       /* a request has been answered */
        bool authorized;   /* the last request had a valid token, or none is asked for: what the lease counts */
        uint64_t deadline; /* UINT64_MAX: none */

        /* The request at hand. */
        agx_conn_route route;
        bool head_only; /* HEAD */
        bool close;     /* the connection ends with it */
        bool keep;      /* HTTP/1.0 that asked to keep it */
        uint64_t body_since;
        uint64_t body_got;
        uint64_t body_length; /* 0: chunked, or none */
        agx_buf scratch;      /* small bodies of answers */
        agx_buf body;
        size_t gathered; /* bytes of it that count in the site's .gather */
        bool crowded;    /* there was no room for it: the rest is read and dropped */
        agx_view whole;  /* the body, if it lies whole in the input */
        uint64_t wait_ms;
        agx_view session; /* absent: none given */
        bool ours;        /* GET /health has a challenge, so it is a client of ours that asks */
        bool challenged;
        char proof[44];
        agx_call_request request;
        agx_conn_sio sio;
        agx_view conduit;
        agx_ws_request upgrade; /* to a WebSocket */
} agx_conn;

/* 0 or -ENOMEM. `now`: the moment it was accepted. */
int agx_conn_init(agx_conn *c, const agx_site *site, agx_buf *out, uint64_t now);
void agx_conn_deinit(agx_conn *c);

/* Takes from `*in`. 0, or a negative error: close without a word. */
int agx_conn_next(agx_conn *c, uint64_t now, agx_view *in, agx_conn_wish *wish);
static inline uint64_t agx_conn_deadline(const agx_conn *c)
{
        return c->deadline;
}
/* The last answer has gone out only now: the connection is idle since then. */
void agx_conn_drained(agx_conn *c, uint64_t now);
/* The shell has not read for `ms`, because the peer did not take its answers: that time does not count. */
void agx_conn_forgive(agx_conn *c, uint64_t ms);
int agx_conn_tick(agx_conn *c, uint64_t now, agx_conn_wish *wish);
/* A place of its own for the next bytes of a large body, so that they need not be moved: false if it is not in one. What
 * is read there is given to agx_conn_next() as input like any other. */
bool agx_conn_place(agx_conn *c, char **place, size_t *n);

/* ---- replies to a submitted call ---- */

/* Everything but the `payload` bytes of the result, which the caller sends right after: a value, or an encoded fault. */
int agx_conn_reply_result(agx_conn *c, uint64_t now, bool ok, size_t payload);
int agx_conn_reply_fault(agx_conn *c, uint64_t now, const agx_fault *fault);
int agx_conn_reply_accepted(agx_conn *c, uint64_t now, agx_view call_id);
/* 503. */
int agx_conn_reply_unavailable(agx_conn *c, uint64_t now);

/* ---- replies to a request of a Socket.IO client ---- */

/* The head of a 200 whose body of `n` bytes, a payload or "ok", the caller sends right after. */
int agx_conn_reply_payload(agx_conn *c, uint64_t now, size_t n);
/* A status of 400 and above, in plain words. */
int agx_conn_reply_refusal(agx_conn *c, uint64_t now, unsigned status, const char *words);
/* The 101: what follows in the input belongs to the WebSocket. */
int agx_conn_reply_upgrade(agx_conn *c);

/* ---- replies to a request for a conduit ---- */

/* The 101: once it is out, the connection is not HTTP's any more. */
int agx_conn_reply_conduit(agx_conn *c, uint64_t now);

#endif
