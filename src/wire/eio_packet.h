#ifndef AGX_WIRE_EIO_PACKET_H
#define AGX_WIRE_EIO_PACKET_H
/*
 * Packets of Engine.IO v4. Over WebSocket a text message is one packet, its type's digit first, and a binary message is a
 * binary message packet. Over long-polling a payload is packets with a record separator (1E) between them; there a
 * binary message is the letter b and base64. Views lie in what was read.
 */
#include "base/buf.h"

typedef enum agx_eio_type {
        AGX_EIO_OPEN,
        AGX_EIO_CLOSE,
        AGX_EIO_PING,
        AGX_EIO_PONG,
        AGX_EIO_MESSAGE,
        AGX_EIO_UPGRADE,
        AGX_EIO_NOOP
} agx_eio_type;

typedef struct agx_eio_packet {
        agx_eio_type type;
        bool binary; /* a MESSAGE of bytes */
        agx_view data;
} agx_eio_packet;

/* A text message of a WebSocket, which has checked its UTF-8. False: malformed. */
bool agx_eio_packet_read(agx_view text, agx_eio_packet *packet);
/* Splits the first packet off *payload, which becomes absent with the last one. The data of a binary one is still
 * base64. False: malformed, UTF-8 included. */
bool agx_eio_packet_split(agx_view *payload, agx_eio_packet *packet);
/* Appends what a packet of a payload takes: a separator if `out` holds something, then the packet, whose data is `head`
 * and then `body`. All or nothing; errors are those of agx_buf_append. */
int agx_eio_packet_put(agx_buf *out, agx_eio_type type, bool binary, agx_view head, agx_view body);
/* How many bytes that packet takes, separator not counted. */
size_t agx_eio_packet_size(bool binary, size_t n);

/* Appends the bytes that `text` stands for. 0, AGX_EIO_E_BASE64, AGX_BUF_E_FULL or -ENOMEM. */
enum { AGX_EIO_E_BASE64 = 2 };
int agx_eio_base64_read(agx_view text, agx_buf *out);

#endif
