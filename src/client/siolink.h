#ifndef AGX_CLIENT_SIOLINK_H
#define AGX_CLIENT_SIOLINK_H
/*
 * The second road: one connection on which `/rpc` is spoken (wire.md, section 5), from the request for a WebSocket on. The
 * connection is open and its server has been proved before; the request carries what it must.
 *
 * Bytes that came go to agx_siolink_input(), which takes what it needs off the front of `*in` and gives one event at a
 * time, until AGX_SIOLINK_MORE. After JOINED, agx_siolink_send() takes events. After every verb that reads, sends or ticks:
 * agx_siolink_flush(), then agx_siolink_pending() is to be written. agx_siolink_next_done() tells of payloads whose bytes
 * are not borrowed any more, agx_siolink_timer() of time.
 *
 * It knows no calls. The peer is not trusted: what it can make us hold is one message and its attachments, each within
 * AGX_MAX_MESSAGE, and anything that is no event of `/rpc` is passed over or ends the link. After a condition or a
 * negative result only free is left.
 *
 * Only a direct WebSocket is spoken. A link over long-polling would begin here, too: the session below (wire/eio) knows how.
 */
#include "base/buf.h"
#include "proto/rpc.h"

enum { AGX_SIOLINK_SEED_BYTES = 16, AGX_SIOLINK_WHY_MAX = 120 };

/* What the verbs return besides 0 and -ENOMEM. */
enum {
        AGX_SIOLINK_E_BROKEN = 1, /* the connection is of no use: agx_siolink_why() */
        AGX_SIOLINK_E_ABSENT,     /* there is no Socket.IO, or no `/rpc`, at the other end */
        AGX_SIOLINK_E_DENIED,     /* 401 or 403: agx_siolink_status() */
        AGX_SIOLINK_E_FULL,       /* send: not now, the queue must drain first */
        AGX_SIOLINK_E_TOO_LARGE   /* send: never */
};

typedef enum agx_siolink_kind {
        AGX_SIOLINK_MORE,   /* all input used, nothing to report */
        AGX_SIOLINK_JOINED, /* .instance, absent if the server did not say */
        AGX_SIOLINK_GOT     /* .rpc: a RESULT, an ERROR or an ITEM */
} agx_siolink_kind;

/* What it shows lives until the next input, or with the message once that was taken. */
typedef struct agx_siolink_event {
        agx_siolink_kind kind;
        agx_view instance;
        agx_rpc_event rpc;
} agx_siolink_event;

typedef struct agx_siolink agx_siolink;

/* `head`: the request's line and fields, up to those that ask for a WebSocket. `session`: plain letters and digits. `seed`:
 * random and secret. 0, -ENOMEM, or -EINVAL for a head that cannot be. */
int agx_siolink_new(agx_siolink **link, agx_view head, agx_view session, const uint8_t seed[AGX_SIOLINK_SEED_BYTES]);
/* Nothing is borrowed afterwards, whether agx_siolink_next_done() told so or not. Memory that may have held a token is
 * wiped. */
void agx_siolink_free(agx_siolink *link);
AGX_DEFINE_CLEANUP_POINTER(agx_siolink, agx_siolink_free)

int agx_siolink_input(agx_siolink *link, agx_view *in, uint64_t now_ms, agx_siolink_event *event);
/* Moves out the memory that the last GOT lies in. */
void agx_siolink_take(agx_siolink *link, agx_buf *message);

/* Queues an event: its payload is `head`, copied, and `tail`, borrowed until `user` comes out of agx_siolink_next_done().
 * 0, E_FULL, E_TOO_LARGE or -ENOMEM; nothing is queued then. */
int agx_siolink_send(agx_siolink *link, agx_rpc_kind kind, agx_view head, agx_view tail, void *user);
void *agx_siolink_next_done(agx_siolink *link);

/* Makes ready what is to be written. 0 or -ENOMEM. */
int agx_siolink_flush(agx_siolink *link);
/* Valid until the next verb that is not const. */
agx_view agx_siolink_pending(const agx_siolink *link);
void agx_siolink_sent(agx_siolink *link, size_t n);

/* When agx_siolink_tick() is to be called; UINT64_MAX: no need. Who was asleep reads first. 0 or E_BROKEN. */
uint64_t agx_siolink_timer(const agx_siolink *link);
int agx_siolink_tick(agx_siolink *link, uint64_t now_ms);

bool agx_siolink_joined(const agx_siolink *link);
const char *agx_siolink_why(const agx_siolink *link);
/* Of the answer to the request; 0: none yet. */
unsigned agx_siolink_status(const agx_siolink *link);

#endif
