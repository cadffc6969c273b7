#ifndef AGX_CLIENT_SIOLINK_H
#define AGX_CLIENT_SIOLINK_H
/*
 * The second road: one Socket.IO session on which `/rpc` is spoken (wire.md, section 5), from its first request on.
 *
 * It travels on up to three connections, its lanes: a WebSocket, or a GET that waits and POSTs beside it (long-polling), and
 * all three while it moves from the latter to the former. The caller opens a connection for each lane that
 * agx_siolink_wants(), has it prove its server, and says agx_siolink_begin(); a connection that is agx_siolink_over()
 * is to be closed, and one that was closed, or could not be opened, is told of with agx_siolink_lost().
 *
 * Bytes that came go to agx_siolink_input(), which takes what it needs off the front of `*in` and gives one event at a
 * time, until AGX_SIOLINK_MORE. After JOINED, agx_siolink_send() takes events. After every verb that begins, reads, sends or
 * ticks: agx_siolink_flush(), then what is pending on each lane is to be written, and the lanes are to be looked at.
 * agx_siolink_next_done() tells of payloads whose bytes are not borrowed any more, agx_siolink_timer() of time.
 *
 * It knows no calls. The peer is not trusted: what it can make us hold is one message and its attachments, each within
 * AGX_MAX_MESSAGE, and a polling answer of that size, and anything that is no event of `/rpc` is passed over or ends the
 * link. After a condition or a negative result only free is left.
 */
#include "base/buf.h"
#include "proto/rpc.h"

enum { AGX_SIOLINK_SEED_BYTES = 16, AGX_SIOLINK_WHY_MAX = 120 };

typedef enum agx_siolink_lane { AGX_SIOLINK_WS, AGX_SIOLINK_GET, AGX_SIOLINK_POST, AGX_SIOLINK_LANES } agx_siolink_lane;

/* What the verbs return besides 0 and -ENOMEM. */
enum {
        AGX_SIOLINK_E_BROKEN = 1, /* it is of no use any more: agx_siolink_why() */
        AGX_SIOLINK_E_POLLING,    /* no WebSocket is to be had; long-polling may be */
        AGX_SIOLINK_E_ABSENT,     /* there is no Socket.IO, or no `/rpc`, at the other end */
        AGX_SIOLINK_E_DENIED,     /* 401 or 403: agx_siolink_status() */
        AGX_SIOLINK_E_FULL,       /* send: not now, the queue must drain first */
        AGX_SIOLINK_E_TOO_LARGE   /* send: never */
};

typedef enum agx_siolink_kind {
        AGX_SIOLINK_MORE,   /* all input used, nothing to report */
        AGX_SIOLINK_JOINED, /* .instance, absent if the server did not say */
        AGX_SIOLINK_GOT,    /* .rpc: a RESULT, an ERROR or an ITEM */
        AGX_SIOLINK_OPENED, /* a side channel, .nsp, has been joined */
        AGX_SIOLINK_CLOSED, /* or was refused, or left by the server */
        AGX_SIOLINK_EVENT   /* an event on it: .name, .payload */
} agx_siolink_kind;

/* What it shows lives until the next input, or with the message once that was taken. */
typedef struct agx_siolink_event {
        agx_siolink_kind kind;
        agx_view instance;
        agx_rpc_event rpc;
        agx_view nsp, name, payload;
} agx_siolink_event;

typedef struct agx_siolink agx_siolink;

typedef struct agx_siolink_config {
        agx_view path;    /* of Socket.IO, with a slash at its end; borrowed */
        agx_view fields;  /* Host and whatever else every request carries, each with its CRLF; borrowed */
        agx_view session; /* plain letters and digits */
        bool polling;     /* begin by long-polling, not by a WebSocket */
} agx_siolink_config;

/* `seed`: random and secret. 0, -ENOMEM or -EINVAL. */
int agx_siolink_new(agx_siolink **link, const agx_siolink_config *config, const uint8_t seed[AGX_SIOLINK_SEED_BYTES],
                    uint64_t now_ms);
/* Nothing is borrowed afterwards, whether agx_siolink_next_done() told so or not. Memory that may have held a token is
 * wiped. */
void agx_siolink_free(agx_siolink *link);
AGX_DEFINE_CLEANUP_POINTER(agx_siolink, agx_siolink_free)

/* ---- lanes ---- */

/* Whether the lane has no connection and should have one. */
bool agx_siolink_wants(const agx_siolink *link, agx_siolink_lane lane);
/* It has one now. 0, -ENOMEM or -EINVAL. */
int agx_siolink_begin(agx_siolink *link, agx_siolink_lane lane, uint64_t now_ms);
/* Whether its connection is of no use any more. */
bool agx_siolink_over(const agx_siolink *link, agx_siolink_lane lane);
/* The lane has no connection, and if it wanted one, will not get it. 0: the link goes on; or E_BROKEN, why is the
 * caller's to know. */
int agx_siolink_lost(agx_siolink *link, agx_siolink_lane lane);

int agx_siolink_input(agx_siolink *link, agx_siolink_lane lane, agx_view *in, uint64_t now_ms,
                      agx_siolink_event *event);
/* Moves out the memory that the last GOT lies in. */
void agx_siolink_take(agx_siolink *link, agx_buf *message);

/* Makes ready what is to be written. 0, E_BROKEN, -ENOMEM or -EINVAL; what it returned once, it and tick return ever after. */
int agx_siolink_flush(agx_siolink *link);
/* Up to two segments, valid until the next verb that is not const; gives how many. */
size_t agx_siolink_pending(const agx_siolink *link, agx_siolink_lane lane, agx_view segments[2]);
void agx_siolink_sent(agx_siolink *link, agx_siolink_lane lane, size_t n);

/* ---- what is said ---- */

/* Queues an event: its payload is `head`, copied, and `tail`, borrowed until `user` comes out of agx_siolink_next_done().
 * 0, E_FULL, E_TOO_LARGE or -ENOMEM; nothing is queued then. */
int agx_siolink_send(agx_siolink *link, agx_rpc_kind kind, agx_view head, agx_view tail, void *user);
void *agx_siolink_next_done(agx_siolink *link);
/* Side channels, once `/rpc` is joined: asks to join one; `json`, an object, goes along. E_BROKEN or -ENOMEM. */
int agx_siolink_join(agx_siolink *link, agx_view nsp, agx_view json);
/* Queues an event on one that has been joined; the payload, msgpack, is copied. As agx_siolink_send(). */
int agx_siolink_emit(agx_siolink *link, agx_view nsp, agx_view name, agx_view payload);
/* Bytes that wait to be sent. */
size_t agx_siolink_queued(const agx_siolink *link);

/* When agx_siolink_tick() is to be called; UINT64_MAX: no need. Who was asleep reads first. 0, or as flush. */
uint64_t agx_siolink_timer(const agx_siolink *link);
int agx_siolink_tick(agx_siolink *link, uint64_t now_ms);

bool agx_siolink_joined(const agx_siolink *link);
const char *agx_siolink_why(const agx_siolink *link);
/* Of the answer that refused us; 0: none did. */
unsigned agx_siolink_status(const agx_siolink *link);

#endif
