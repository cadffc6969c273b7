#ifndef AGX_PROTO_FAST_H
#define AGX_PROTO_FAST_H
/*
 * The fast wire after its handshake, for both ends: one connection that carries many requests and replies at once.
 *
 * Each WebSocket message is one frame: a head of 8 bytes (kind, flags, lane, stream), in a value's first frame 4 more that
 * belong to the kind, and 8 more with its size if it needs several frames; then bytes of the value. Lanes are served in
 * their order, and within a lane values take turns, one frame each: nothing waits behind a large value.
 *
 * Reading. Feed bytes with agx_fast_next(): it takes what it needs off the front of `*in` and gives one piece at a time as it
 * came, never a whole value: who wants one gathers it. Intermediaries may cut messages into other WebSocket frames. An
 * error is final: a close waits to be written.
 *
 * Writing. Values are sent from where they lie: agx_fast_send() borrows one until agx_fast_next_written() gives it back or it
 * is withdrawn. agx_fast_pending() shows what is to be written now; small values are gathered into one run of bytes, large
 * ones lie in the second segment. At most one frame of a value is under way. So that what the peer has to gather stays
 * bounded, large values begin only as long as those that have not ended are AGX_FAST_UNDER_WAY bytes at most.
 *
 * It knows no time and no calls.
 */
#include "base/buf.h"
#include "base/list.h"

#define AGX_FAST_PROTOCOL "agentix.1"

typedef enum agx_fast_kind {
        AGX_FAST_CALL = 1, /* the body of a POST /call; .word: how many milliseconds its reply may take */
        AGX_FAST_REPLY,    /* the body of its reply; .word: the status */
        AGX_FAST_RESET     /* what was sent of the stream is void; no value */
} agx_fast_kind;

typedef enum agx_fast_lane {
        AGX_FAST_CONTROL,
        AGX_FAST_SMALL,
        AGX_FAST_BULK,
        AGX_FAST_SIDE,
        AGX_FAST_LANES
} agx_fast_lane;

/* ---- reading ---- */

typedef struct agx_fast_piece {
        agx_fast_kind kind;
        uint32_t stream;
        uint32_t word; /* of the value, as its first frame said */
        uint64_t size; /* likewise; what was announced is not what comes */
        bool first;    /* the value begins */
        bool last;     /* it ends */
        agx_view data; /* lives until the next verb, and may lie in the input */
} agx_fast_piece;

enum {
        AGX_FAST_E_MORE = 1, /* all input is used */
        AGX_FAST_E_CLOSED,   /* the peer has said that it ends; final */
        AGX_FAST_E_BROKEN    /* it does not keep to the wire; agx_fast_reason() */
};

/* ---- writing ---- */

/* Embedded in its owner, zeroed, and filled in by him but for what is below the line. */
typedef struct agx_fast_value {
        agx_fast_kind kind;
        uint32_t stream;
        uint32_t word;
        agx_view parts[3]; /* one after the other */
        void *owner;
        /* ---- */
        agx_list node;
        uint64_t done; /* bytes of it that are framed */
        uint64_t end;  /* where its last byte stands in all that was ever written */
        bool begun;
        bool framed;
        bool counted; /* among those under way */
} agx_fast_value;

typedef struct agx_fast agx_fast;

/* `masked`: frames of this client are masked, as they must be wherever a stranger's proxy may stand between. 0 or -ENOMEM. */
int agx_fast_new(agx_fast **fast, bool client, bool masked, const uint8_t seed[16]);
void agx_fast_free(agx_fast *fast);
AGX_DEFINE_CLEANUP_POINTER(agx_fast, agx_fast_free)

/* 0 with a piece, one of the conditions above, or -ENOMEM. */
int agx_fast_next(agx_fast *fast, agx_view *in, agx_fast_piece *piece);
/* A few words on what is wrong, static. */
const char *agx_fast_reason(const agx_fast *fast);
/* The stream whose value goes on with the next bytes, at least `*n` of them, if nothing has to be looked at on their way:
 * they may be read to a place of their own and given to agx_fast_next() as input like any other. 0: none. */
uint32_t agx_fast_goes_on(agx_fast *fast, size_t *n);
/* Where the head of the next frame is to be read to, when such a value goes on behind it: what comes in one read with a head
 * has to be copied. 0 bytes: anywhere. */
agx_view agx_fast_between(agx_fast *fast);

void agx_fast_send(agx_fast *fast, agx_fast_value *value);
/* Takes a value back, in whatever state: nothing of it is looked at any more. If some of it was sent, the peer is told. */
void agx_fast_withdraw(agx_fast *fast, agx_fast_value *value);
/* Tells the peer that nothing more comes on a stream. */
void agx_fast_reset(agx_fast *fast, uint32_t stream);
/* Whether all bytes of a value are written, which its owner has sent and not withdrawn. */
bool agx_fast_is_written(const agx_fast *fast, const agx_fast_value *value);
/* Whether a value is waiting or under way. */
bool agx_fast_holds(const agx_fast_value *value);
/* Says goodbye after what is under way; `code` is a WebSocket's. */
void agx_fast_close(agx_fast *fast, uint16_t code);

/* What is to be written: up to two segments, valid until the next verb; gives how many. -ENOMEM: nothing can be written. */
int agx_fast_pending(agx_fast *fast, agx_view segments[2]);
void agx_fast_sent(agx_fast *fast, size_t n);
/* A value of which all bytes are written, or NULL. */
agx_fast_value *agx_fast_next_written(agx_fast *fast);

#endif
