#ifndef AGX_SERVER_HTTP_UV_H
#define AGX_SERVER_HTTP_UV_H
/*
 * The shell of one accepted connection: a stream, a deadline and the connection brain, and the waiter of the call that
 * the brain has submitted. It frees itself when its handles are closed.
 */
#include "io/deadline.h"
#include "io/stream.h"
#include "server/calls.h"
#include "server/conn.h"

typedef struct agx_server agx_server;
typedef struct agx_sio_session agx_sio_session;
typedef struct agx_ws agx_ws;
typedef struct agx_fast_road agx_fast_road;

typedef struct agx_http {
        agx_list node; /* in the server's list */
        agx_server *server;
        agx_stream stream;
        agx_deadline deadline;
        agx_conn conn;
        agx_buf ahead; /* input that waits for the answer before it */
        agx_waiter waiter;
        agx_call *call;           /* what it waits for */
        agx_call *settling;       /* its result is being written */
        agx_sio_session *session; /* whose GET waits here, or whose WebSocket this is */
        agx_ws *ws;               /* since the upgrade to Socket.IO's WebSocket */
        agx_fast_road *fast;      /* since the upgrade to the fast wire */
        bool framed;              /* a message of the session is under way in it */
        bool running;             /* the brain is being fed: no second feeding inside */
        bool ending;              /* nothing more is read but to be dropped */
        bool ended;               /* the peer has ended its side */
        bool counted;             /* as authorized, for the lease */
        bool leaving;             /* its descriptor becomes the worker's once the 101 is out, under the name */
        char conduit[AGX_CONDUIT_NAME];
        size_t last_queued;
        uint64_t paused_at; /* since when the peer takes no answers; 0: it does */
        unsigned open;      /* handles not closed yet */
} agx_http;

/* Accepts a connection from `listener` (TCP or Unix socket). 0 or a negative errno: none was accepted. */
int agx_http_accept(agx_server *server, uv_stream_t *listener, bool tcp);
void agx_http_close(agx_http *h);
/* Out with what is written, then the end. */
void agx_http_finish(agx_http *h);
/* It has been answered: goes on with what waited. */
void agx_http_pump(agx_http *h);
/* The server drains: closes it unless it waits for an answer or still writes one. */
void agx_http_drain(agx_http *h);

#endif
