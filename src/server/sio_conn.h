#ifndef AGX_SERVER_SIO_CONN_H
#define AGX_SERVER_SIO_CONN_H
/*
 * One Socket.IO connection as a brain: the Engine.IO session, the namespaces it has joined, and its link of the road
 * `/rpc`. The shell moves payloads and WebSocket messages in and out of `.eio` itself (wire/eio.h); this brain reads the
 * messages that come out of it and puts answers into it.
 *
 *     agx_sio_conn_read()   for each message that eio gives
 *     agx_sio_conn_fill()   when there may be something to say and little waits: puts it into eio
 *     agx_sio_conn_tick()   when agx_sio_conn_timer() has passed
 *
 * A peer that breaks the protocol, or asks much without taking its answers, has its session closed: agx_eio_is_closed()
 * is to be looked at after every verb. Nobody else notices.
 */
#include "server/conn.h"
#include "server/hub.h"
#include "server/rpc.h"
#include "wire/eio.h"
#include "wire/sio.h"

enum { AGX_SIO_CONN_RANDOM = 48, AGX_SIO_CONN_SID = 32 };

typedef struct agx_sio_conn {
        const agx_site *site;
        agx_rpc *rpc;
        agx_eio *eio;
        agx_sio *sio;
        agx_rpc_link link;
        agx_hub_port port;           /* of the side channels; inert until agx_sio_conn_serve() */
        uint64_t join_by;            /* UINT64_MAX: it has joined a namespace */
        agx_buf text;                /* packets and small events on their way into eio */
        agx_buf packed;              /* an argument that came as JSON */
        char name[AGX_SIO_CONN_SID]; /* what a host knows it by, in Socket.IO */
        size_t gathered;             /* bytes of messages that are not whole, as last told */
        bool broken;                 /* closed for what the peer did, not for how it left */
} agx_sio_conn;

/* `random`: for names and seeds. 0 or -ENOMEM; deinit in both cases. */
int agx_sio_conn_init(agx_sio_conn *c, const agx_site *site, agx_rpc *rpc, const uint8_t random[AGX_SIO_CONN_RANDOM],
                      agx_eio_transport transport, uint64_t now);
/* Its namespaces are those of `hub` from now on; without one, events of side channels go nowhere. */
void agx_sio_conn_serve(agx_sio_conn *c, agx_hub *hub);
/* Leaves the road; calls go on. */
void agx_sio_conn_deinit(agx_sio_conn *c);

typedef enum agx_sio_conn_said_kind {
        AGX_SIO_SAID_NOTHING,
        AGX_SIO_SAID_EVENT,   /* .name and .payload for the road: give them to it, then agx_sio_conn_taken() */
        AGX_SIO_SAID_SIDE,    /* an event of a side channel, on .nsp: give it to the hub, then agx_sio_conn_taken() */
        AGX_SIO_SAID_STRAY,   /* an event on a namespace that nobody serves was dropped */
        AGX_SIO_SAID_REPLACES /* it has joined /rpc instead of the connection of .replaced, which is to be closed */
} agx_sio_conn_said_kind;

typedef struct agx_sio_conn_said {
        agx_sio_conn_said_kind kind;
        agx_view nsp;
        agx_view name;
        agx_view payload;
        agx_rpc_link *replaced; /* not attached any more */
} agx_sio_conn_said;

/* One message; views live until the next one. Without memory, too, the session is closed. */
void agx_sio_conn_read(agx_sio_conn *c, bool binary, agx_view message, agx_sio_conn_said *said);
/* When all input was read: the WebSocket holds `n` bytes of a message that is not whole. Where that is too much for the
 * server the session is closed. */
void agx_sio_conn_gathers(agx_sio_conn *c, size_t n);
/* What agx_rpc_take() returned for the event. */
void agx_sio_conn_taken(agx_sio_conn *c, int r);
/* Whether no more should be read for now. */
bool agx_sio_conn_crowded(const agx_sio_conn *c);
void agx_sio_conn_fill(agx_sio_conn *c, uint64_t now);
/* Frees large results that are through. fill() does so too; not while a WebSocket may hold what a closed session showed. */
void agx_sio_conn_reap(agx_sio_conn *c);

uint64_t agx_sio_conn_timer(const agx_sio_conn *c);
/* The verdict is eio's: AGX_EIO_PROBE_ENDED or AGX_EIO_CLOSED are for the shell to see to. */
agx_eio_kind agx_sio_conn_tick(agx_sio_conn *c, uint64_t now);

#endif
