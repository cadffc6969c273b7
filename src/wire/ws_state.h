#ifndef AGX_WIRE_WS_STATE_H
#define AGX_WIRE_WS_STATE_H
/* What the three files of ws share; nobody else includes it. */
#include "base/utf8_run.h"
#include "wire/ws.h"

typedef enum agx_ws_state {
        AGX_WS_STATE_FLAGS,  /* before a frame's first byte */
        AGX_WS_STATE_LENGTH, /* before its second byte */
        AGX_WS_STATE_WIDE,   /* in a length of two or eight bytes */
        AGX_WS_STATE_MASK,   /* in the mask */
        AGX_WS_STATE_DATA,   /* in the payload of a message */
        AGX_WS_STATE_CONTROL /* in the payload of a control frame */
} agx_ws_state;

enum {
        AGX_WS_OP_CONTINUATION = 0,
        AGX_WS_OP_TEXT = 1,
        AGX_WS_OP_BINARY = 2,
        AGX_WS_OP_CLOSE = 8,
        AGX_WS_OP_PING = 9,
        AGX_WS_OP_PONG = 10
};

/* A control frame that waits to be pulled. */
typedef struct agx_ws_note {
        bool pending;
        uint8_t n;
        uint8_t data[AGX_WS_CONTROL_MAX];
} agx_ws_note;

struct agx_ws {
        agx_ws_role role;
        agx_ws_bounds bounds;
        int error;

        /* the frame being read */
        agx_ws_state state;
        uint8_t opcode;
        bool fin;
        bool masked;
        uint8_t number[8]; /* the bytes of a wide length so far */
        uint8_t n_number;
        uint8_t width; /* of them, how many there will be */
        uint8_t mask[4];
        uint8_t n_mask;  /* bytes of the mask so far; then 4 */
        uint8_t mask_at; /* which of them is next */
        uint64_t left;   /* bytes of payload to come */

        /* the message being joined */
        bool in_message;
        bool text;
        bool told; /* the event has been given: the memory is free at the next verb */
        size_t fragments;
        uint64_t given; /* bytes of a message in pieces */
        agx_utf8_run utf8;
        agx_buf message;

        uint8_t control[AGX_WS_CONTROL_MAX];
        size_t n_control;

        /* writing */
        bool sending;
        bool begun; /* its first frame is out */
        uint8_t sending_op;
        agx_view head, body;
        agx_ws_note ping, pong, close;
        agx_ws_note shown; /* the control frame last given by agx_ws_next_frame() */
        bool close_sent;
        bool close_received;
};

/* XORs `n` bytes from `from` to `to` (which may be the same) with the mask, beginning with its byte `at`. */
void agx_ws_mask(uint8_t *to, const uint8_t *from, size_t n, const uint8_t mask[4], size_t at);
void agx_ws_note_set(agx_ws_note *note, agx_view data);

#endif
