#ifndef AGX_WIRE_EIO_H
#define AGX_WIRE_EIO_H
/*
 * One Engine.IO v4 session, for both roles: opening, heartbeat, the move from long-polling to WebSocket, messages both
 * ways, the end. Sans-IO: the shell owns the HTTP requests and the WebSocket, and says what happened to them.
 *
 * Over WebSocket (after agx_eio_ws_opened()):
 *     each message that comes        agx_eio_ws_read()
 *     when the socket can take one   agx_eio_ws_next(), send it, agx_eio_ws_sent()
 *     it is gone                     agx_eio_ws_lost()
 *
 * Over long-polling, server:
 *     a GET comes                    agx_eio_poll(); answer it once agx_eio_payload_due(), with agx_eio_payload_write()
 *     it is gone unanswered          agx_eio_poll_lost()
 *     a POST comes                   agx_eio_payload_read() until its body is used up; then answer "ok"
 *   client:
 *     agx_eio_poll_due()             send a GET and say agx_eio_poll(); agx_eio_payload_read() the answer until used up
 *     agx_eio_payload_due()          send agx_eio_payload_write() as a POST; agx_eio_posted() with its answer
 *     a request failed               agx_eio_lost()
 *
 * After every verb: agx_eio_timer(), and agx_eio_next_done() for messages whose bytes are free again. What a read verb
 * shows lives until the next one, and may lie in what was read.
 *
 * Heartbeat: the server pings every interval; any packet of the peer is a sign of life. Who was asleep reads what has
 * come before it calls agx_eio_tick(). Over one transport messages keep their order, and none is lost in the move.
 */
#include "base/list.h"
#include "wire/eio_packet.h"

typedef enum agx_eio_role { AGX_EIO_SERVER, AGX_EIO_CLIENT } agx_eio_role;
typedef enum agx_eio_transport { AGX_EIO_POLLING, AGX_EIO_WEBSOCKET } agx_eio_transport;

enum { AGX_EIO_SID_MAX = 128 };

typedef struct agx_eio_bounds {
        size_t message_max;   /* bytes of one packet as it is encoded, both ways; a server announces it as maxPayload */
        size_t queue_max;     /* bytes of messages that wait to be sent */
        size_t queue_packets; /* and how many of them */
        size_t payload_packets; /* packets in one payload that we write */
        uint64_t interval_ms;   /* server: announced; client: the longest it believes */
        uint64_t timeout_ms;    /* likewise */
        uint64_t upgrade_ms;    /* from the opening of a second transport to its upgrade */
        bool upgrade;           /* server: offer WebSocket to who polls; client: take the offer */
} agx_eio_bounds;

/* What verbs return besides 0 and -ENOMEM. After BAD the session is closed: a server answers 400, whoever has a WebSocket
 * closes it. After PROBE only the WebSocket that was to be moved to is of no use. */
enum {
        AGX_EIO_E_BAD = 1,   /* the peer breaks the protocol */
        AGX_EIO_E_PROBE,     /* it does so on the second transport */
        AGX_EIO_E_TRANSPORT, /* not over this transport, or not now: 400, the session goes on */
        AGX_EIO_E_FULL,      /* the queue is */
        AGX_EIO_E_TOO_LARGE, /* for one packet: see agx_eio_message_max() */
        AGX_EIO_E_CLOSED
};

typedef enum agx_eio_kind {
        AGX_EIO_NOTHING,    /* a packet of the protocol's own */
        AGX_EIO_OPENED,     /* client: agx_eio_sid() is known, messages may be sent */
        AGX_EIO_GOT,        /* a message */
        AGX_EIO_UPGRADED,   /* server: the WebSocket is the session's now; a client sees agx_eio_over() change */
        AGX_EIO_CLOSED,     /* by the peer, or for agx_eio_reason(); nothing more comes */
        AGX_EIO_PROBE_ENDED /* tick: the second transport took too long; close it */
} agx_eio_kind;

typedef struct agx_eio_event {
        agx_eio_kind kind;
        bool binary;
        agx_view data;
} agx_eio_event;

typedef struct agx_eio agx_eio;

/* A server gives the session's name, of letters, digits, '-', '_', '.' and '~', and the transport it began over; the
 * opening waits to be sent there. A client's `sid` is absent. 0, -ENOMEM or -EINVAL. */
int agx_eio_new(agx_eio **eio, agx_eio_role role, const agx_eio_bounds *bounds, agx_view sid,
                agx_eio_transport transport, uint64_t now_ms);
/* What still waits is not in agx_eio_next_done() any more: after this nothing is borrowed. */
void agx_eio_free(agx_eio *eio);
AGX_DEFINE_CLEANUP_POINTER(agx_eio, agx_eio_free)

agx_view agx_eio_sid(const agx_eio *eio);
agx_eio_transport agx_eio_over(const agx_eio *eio);
bool agx_eio_is_closed(const agx_eio *eio);
/* A few words on why, static. */
const char *agx_eio_reason(const agx_eio *eio);

/* ---- messages out ---- */

/* The largest message, by the transport and the peer's word. */
size_t agx_eio_message_max(const agx_eio *eio, bool binary);

typedef struct agx_eio_message {
        bool binary;
        agx_view head; /* copied */
        agx_view body; /* follows it; borrowed until `user` comes out of agx_eio_next_done() */
        void *user;    /* NULL: nobody needs to hear of it */
} agx_eio_message;

/* Queues messages that belong together, all or none. 0, E_FULL, E_TOO_LARGE, E_CLOSED or -ENOMEM. An empty queue is never
 * full. Text must be UTF-8 without the byte 1E. */
int agx_eio_send(agx_eio *eio, const agx_eio_message *messages, size_t n);
/* The `user` of a message that was sent or dropped; NULL: none. When the session is closed, close the WebSocket first: it
 * may hold what is shown to it. */
void *agx_eio_next_done(agx_eio *eio);
/* Bytes of the messages that wait. */
size_t agx_eio_queued(const agx_eio *eio);
/* Says goodbye behind the queued messages; the session is closed once that is sent. */
void agx_eio_close(agx_eio *eio);
/* Closes at once, for a reason of the shell's: static text. */
void agx_eio_lost(agx_eio *eio, const char *why);

/* ---- WebSocket ---- */

/* Client: whether a WebSocket is wanted now, for a direct start or to move to. */
bool agx_eio_ws_wanted(const agx_eio *eio);
/* One is open: the session's only transport, or one to move to. 0, or E_TRANSPORT: close it. */
int agx_eio_ws_opened(agx_eio *eio, uint64_t now_ms);
/* It is gone: closes the session, or only ends the move. */
void agx_eio_ws_lost(agx_eio *eio);
int agx_eio_ws_read(agx_eio *eio, bool binary, agx_view data, uint64_t now_ms, agx_eio_event *event);

typedef struct agx_eio_frame {
        bool binary;
        agx_view head, body; /* one message; good until agx_eio_ws_sent(), or agx_eio_next_done() of a closed session */
} agx_eio_frame;

/* The next WebSocket message, if there is one; it stays the next one until agx_eio_ws_sent(). */
bool agx_eio_ws_next(agx_eio *eio, agx_eio_frame *frame);
void agx_eio_ws_sent(agx_eio *eio);

/* ---- long-polling ---- */

/* Client: whether a GET is to be sent. */
bool agx_eio_poll_due(const agx_eio *eio);
/* A GET waits for its answer. 0, E_TRANSPORT, E_CLOSED, or E_BAD for a second one at once. */
int agx_eio_poll(agx_eio *eio);
void agx_eio_poll_lost(agx_eio *eio);
/* The next packet of a body that came; *payload becomes absent with the last one. */
int agx_eio_payload_read(agx_eio *eio, agx_view *payload, uint64_t now_ms, agx_eio_event *event);
/* Moves out the memory of the message that was shown last, if it was decoded into memory of the session's; false: not so,
 * it lies in the body or in the WebSocket message. */
bool agx_eio_take(agx_eio *eio, agx_buf *message);
/* Whether there is a body to be sent: the waiting GET's answer, or a POST. */
bool agx_eio_payload_due(const agx_eio *eio);
/* Writes it into `body`, which is empty. 0; AGX_BUF_E_FULL or -ENOMEM: the first packet does not fit, nothing changed. */
int agx_eio_payload_write(agx_eio *eio, agx_buf *body);
/* Client: the POST was answered. */
void agx_eio_posted(agx_eio *eio);

/* ---- time ---- */

/* When agx_eio_tick() is to be called, in ms; UINT64_MAX: no need. */
uint64_t agx_eio_timer(const agx_eio *eio);
void agx_eio_tick(agx_eio *eio, uint64_t now_ms, agx_eio_event *event);

#endif
