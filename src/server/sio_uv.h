#ifndef AGX_SERVER_SIO_UV_H
#define AGX_SERVER_SIO_UV_H
/*
 * The shell of Socket.IO sessions: which HTTP connections carry each of them, a GET that waits for its answer and a
 * WebSocket, and what their events ask of the server. A session outlives any of its connections while it is polled, and
 * ends by itself otherwise.
 *
 * What came in is worked on at once; what is to go out goes at the end of the loop's turn.
 */
#include "server/http_uv.h"
#include "server/sio_conn.h"
#include "wire/ws.h"

typedef struct agx_sio_session {
        agx_map_node by_sid;
        agx_server *server;
        agx_sio_conn conn;
        agx_http *poller; /* its GET waits */
        agx_http *socket;
        agx_deadline deadline;
        agx_flush flush;
        bool ended;
} agx_sio_session;

/* ---- for HTTP connections ---- */

/* The brain has a request for us: it is answered now or later. 0 or a negative error: close the connection. */
int agx_sio_request(agx_http *h);
/* Bytes for a WebSocket. */
void agx_sio_feed(agx_http *h, agx_view in);
/* All that was queued for a WebSocket has gone out. */
void agx_sio_drained(agx_http *h);
/* The connection is going away. */
void agx_sio_lost(agx_http *h);

/* ---- for the server ---- */

/* A link has got something to say. */
void agx_sio_speak(agx_rpc_link *link);
void agx_sio_speak_aside(agx_hub_port *port);
/* Says goodbye on all sessions: the server is about to end. */
void agx_sio_drain(agx_server *s);
/* Ends all sessions at once, and closes their handles. */
void agx_sio_close_all(agx_server *s);

#endif
