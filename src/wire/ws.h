#ifndef AGX_WIRE_WS_H
#define AGX_WIRE_WS_H
/*
 * WebSocket (RFC 6455) after the handshake, for both roles: bytes in, whole messages and control frames out as events;
 * messages in, frames out. No extension is spoken, so reserved bits are errors.
 *
 * Reading. Feed bytes with agx_ws_next(): it takes what it needs off the front of `*in` and gives one event at a time,
 * until AGX_WS_MORE says that the input is used up. A message is given whole, however many frames it came in; its
 * length is held against the bound when a frame announces it, and its memory follows the bytes that came. Text is
 * checked as it comes. Pings are answered, closes echoed, by frames that wait for agx_ws_pull(). An error is final: a
 * close frame with its code waits to be pulled, and nothing more is read. Events and verdict depend on the bytes
 * alone, never on how they were cut.
 *
 * Writing. One message is under way at a time, given by agx_ws_send() and borrowed until agx_ws_sending() is false. Each
 * agx_ws_pull() gives the next frame: control frames first, then at most bounds.frame_out bytes of the message. While
 * the output is stuck only the newest ping is answered, as the RFC allows: so what a peer can make us hold is bounded.
 *
 * Lifetimes: what an event shows lives until the next agx_ws_next(), and may lie in the input.
 */
#include "base/buf.h"

typedef enum agx_ws_role { AGX_WS_SERVER, AGX_WS_CLIENT } agx_ws_role;

typedef struct agx_ws_bounds {
        size_t message_max;   /* bytes of one incoming message */
        size_t fragments_max; /* frames of one incoming message */
        size_t frame_out;     /* bytes of payload in one outgoing frame, > 0 */
        bool pieces;          /* incoming binary messages are given piece by piece, as they come */
} agx_ws_bounds;

typedef enum agx_ws_kind {
        AGX_WS_MORE, /* all input used, nothing to report */
        AGX_WS_TEXT,
        AGX_WS_BINARY,
        AGX_WS_PIECE, /* of a binary message, if bounds.pieces: never joined, maybe empty; .last ends it */
        AGX_WS_PING,  /* its answer waits to be pulled */
        AGX_WS_PONG,
        AGX_WS_CLOSE /* the peer sends nothing more; what comes all the same is dropped */
} agx_ws_kind;

typedef struct agx_ws_event {
        agx_ws_kind kind;
        agx_view data; /* the message, the control frame's payload, or the reason of a close */
        uint16_t code; /* CLOSE: why; AGX_WS_NO_CODE if it did not say */
        bool last;     /* PIECE */
} agx_ws_event;

enum {
        AGX_WS_NORMAL = 1000,
        AGX_WS_GOING_AWAY = 1001,
        AGX_WS_PROTOCOL = 1002,
        AGX_WS_NO_CODE = 1005, /* never sent */
        AGX_WS_NOT_TEXT = 1007,
        AGX_WS_POLICY = 1008,
        AGX_WS_TOO_BIG = 1009,
        AGX_WS_INTERNAL = 1011
};

/* What agx_ws_next() returns besides 0 and -ENOMEM: name, close code, text. */
#define AGX_WS_ERRORS(X)                                                                                               \
        X(RESERVED, AGX_WS_PROTOCOL, "a reserved bit is set")                                                          \
        X(OPCODE, AGX_WS_PROTOCOL, "an unknown opcode")                                                                \
        X(UNMASKED, AGX_WS_PROTOCOL, "a frame of a client without a mask")                                             \
        X(MASKED, AGX_WS_PROTOCOL, "a frame of a server with a mask")                                                  \
        X(CONTROL_SIZE, AGX_WS_PROTOCOL, "a control frame of more than 125 bytes")                                     \
        X(CONTROL_CUT, AGX_WS_PROTOCOL, "a control frame in fragments")                                                \
        X(LENGTH_FORM, AGX_WS_PROTOCOL, "a length not in its shortest form")                                           \
        X(LENGTH_SIGN, AGX_WS_PROTOCOL, "a length with its top bit set")                                               \
        X(NOT_BEGUN, AGX_WS_PROTOCOL, "a continuation of nothing")                                                     \
        X(NOT_ENDED, AGX_WS_PROTOCOL, "a message inside another")                                                      \
        X(CLOSE_SIZE, AGX_WS_PROTOCOL, "a close of one byte")                                                          \
        X(CLOSE_CODE, AGX_WS_PROTOCOL, "a close code that may not be sent")                                            \
        X(CLOSE_TEXT, AGX_WS_NOT_TEXT, "a close reason that is not UTF-8")                                             \
        X(TEXT, AGX_WS_NOT_TEXT, "a text message that is not UTF-8")                                                   \
        X(MESSAGE_SIZE, AGX_WS_TOO_BIG, "a message above the limit")                                                   \
        X(FRAGMENTS, AGX_WS_TOO_BIG, "a message in too many fragments")

enum {
        AGX_WS_E_OK_,
#define AGX_WS_ERROR_(name, code, text) AGX_WS_E_##name,
        AGX_WS_ERRORS(AGX_WS_ERROR_)
#undef AGX_WS_ERROR_
};

/* Conditions of the writing verbs, beside AGX_BUF_E_FULL. */
enum {
        AGX_WS_IDLE = 2, /* nothing to write */
        AGX_WS_BUSY,     /* another message is under way */
        AGX_WS_CLOSING   /* the close has been sent or is about to be */
};

enum { AGX_WS_CONTROL_MAX = 125, AGX_WS_HEAD_MAX = 14, AGX_WS_MASK = 4 /* bytes of it */ };

typedef struct agx_ws agx_ws;

int agx_ws_new(agx_ws **ws, agx_ws_role role, const agx_ws_bounds *bounds);
void agx_ws_free(agx_ws *ws);
AGX_DEFINE_CLEANUP_POINTER(agx_ws, agx_ws_free)

int agx_ws_next(agx_ws *ws, agx_view *in, agx_ws_event *event);
/* Bytes of a message that is not whole yet, after AGX_WS_MORE. */
size_t agx_ws_gathered(const agx_ws *ws);
/* Moves the message of `event`, the last one given, into `message` (empty, with a ceiling that fits): without copying if
 * it was joined in memory of ours. Its view stays good as long as `message`. 0 or -ENOMEM. */
int agx_ws_take(agx_ws *ws, agx_ws_event *event, agx_buf *message);
/* How many bytes of a message in pieces come next as they are, with no mask to be taken off: these may be read to any
 * place, if they are then given to agx_ws_next() from there. */
size_t agx_ws_passing(const agx_ws *ws);
/* The close code of an error of agx_ws_next(), and a few words on it, static. */
uint16_t agx_ws_error_code(int error);
const char *agx_ws_error_text(int error);

/* Begins a message that is `head` and then `body`; both are borrowed. Text must be UTF-8: that is the caller's part.
 * 0, AGX_WS_BUSY or AGX_WS_CLOSING. */
int agx_ws_send(agx_ws *ws, bool text, agx_view head, agx_view body);
/* Whether a message is under way; false too once a close has cut it off. */
bool agx_ws_sending(const agx_ws *ws);
/* 0, AGX_WS_CLOSING, or -EINVAL above AGX_WS_CONTROL_MAX. A ping not pulled yet is replaced. */
int agx_ws_ping(agx_ws *ws, agx_view payload);
/* Sends a close before anything else of the message under way; `reason` is cut to what fits. With AGX_WS_NO_CODE the
 * frame is empty. The first close wins. */
void agx_ws_close(agx_ws *ws, uint16_t code, agx_view reason);

typedef struct agx_ws_frame {
        uint8_t head[AGX_WS_HEAD_MAX];
        size_t n_head;
        agx_view parts[2]; /* the payload, not masked yet; lives as the message does, or until the next verb */
} agx_ws_frame;

/* Whether agx_ws_pull() has a frame to give. */
bool agx_ws_pending(const agx_ws *ws);
/* The next frame for who writes from several places at once; it counts as sent. `mask`: four random bytes, new ones for
 * each frame, of a client; NULL of a server. A client must mask the parts before it writes them. 0 or AGX_WS_IDLE. */
int agx_ws_next_frame(agx_ws *ws, const uint8_t mask[4], agx_ws_frame *frame);
/* Appends the next frame, masked as it must be; whole or not at all. 0, AGX_WS_IDLE, AGX_BUF_E_FULL or -ENOMEM. */
int agx_ws_pull(agx_ws *ws, const uint8_t mask[4], agx_buf *out);
/* Our close is out, and the peer's has come or never will: the connection is to be ended, by the server first. */
bool agx_ws_done(const agx_ws *ws);

#endif
