#ifndef AGX_WIRE_SIO_PACKET_H
#define AGX_WIRE_SIO_PACKET_H
/*
 * Packets of Socket.IO v5 in the default encoding: a text message, "<type>[<attachments>-][<namespace>,][<id>][<JSON>]",
 * and, if it announces attachments, as many binary messages right behind it.
 *
 * Reading. Give each message to agx_sio_packet_read(). A text that announces attachments is kept until they have come;
 * it must hold exactly one placeholder for each of them, so that a peer cannot announce more than it has written. All
 * bytes of a packet together are bounded. Any error is final for the connection: what follows cannot be told apart.
 *
 * Lifetimes: views in a packet live until the next read, and may lie in the message that was read last.
 */
#include "wire/json.h"

typedef enum agx_sio_type {
        AGX_SIO_CONNECT,
        AGX_SIO_DISCONNECT,
        AGX_SIO_EVENT, /* with attachments or without */
        AGX_SIO_ACK,   /* likewise */
        AGX_SIO_CONNECT_ERROR
} agx_sio_type;

enum { AGX_SIO_ATTACHMENTS_MAX = 64 };

typedef struct agx_sio_bounds {
        size_t packet_max;      /* bytes of a text and its attachments */
        size_t attachments_max; /* of one packet, at most AGX_SIO_ATTACHMENTS_MAX */
        size_t namespace_max;   /* bytes of a namespace */
        size_t event_max;       /* bytes of an event's name */
        unsigned depth_max;     /* of the JSON */
        size_t namespaces_max;  /* sessions: of one connection */
        size_t acks_max;        /* sessions: answers waited for in one namespace */
} agx_sio_bounds;

typedef struct agx_sio_packet {
        agx_sio_type type;
        agx_view nsp; /* "/" if the packet names none */
        bool has_id;  /* EVENT that wants an answer; ACK always */
        uint64_t id;
        agx_view name; /* EVENT */
        agx_view
                data; /* the JSON as it is: EVENT and ACK an array; CONNECT an object or absent; CONNECT_ERROR anything */
        const agx_view *attachments;
        size_t n_attachments;
} agx_sio_packet;

enum {
        AGX_SIO_MORE = 1, /* attachments are to come */
        AGX_SIO_E_BAD     /* malformed, or above a bound */
};

typedef struct agx_sio_reader {
        agx_sio_bounds bounds;
        const char *error; /* a few words, static; NULL while all is well */
        agx_buf text;      /* a packet that waits for attachments */
        agx_buf bytes;     /* attachments but the last one */
        agx_buf name;      /* a name that was written with escapes */
        agx_sio_packet packet;
        size_t announced, came;
        size_t sizes[AGX_SIO_ATTACHMENTS_MAX];
        agx_view views[AGX_SIO_ATTACHMENTS_MAX];
} agx_sio_reader;

void agx_sio_reader_init(agx_sio_reader *r, const agx_sio_bounds *bounds);
void agx_sio_reader_deinit(agx_sio_reader *r);
AGX_DEFINE_CLEANUP(agx_sio_reader, agx_sio_reader_deinit)
/* One message. 0: *packet is complete; AGX_SIO_MORE, AGX_SIO_E_BAD or -ENOMEM. Text must be UTF-8. */
int agx_sio_packet_read(agx_sio_reader *r, bool binary, agx_view message, agx_sio_packet *packet);

/* An argument of an event or answer: bytes, or JSON as it is. */
typedef struct agx_sio_arg {
        bool binary;
        agx_view v;
} agx_sio_arg;

/* Walks the arguments of an EVENT or ACK. One that is a placeholder is given as its attachment; placeholders inside other
 * values stay as they are: the n-th one stands for packet->attachments[n]. */
typedef struct agx_sio_args {
        const agx_sio_packet *packet;
        agx_json_reader json;
} agx_sio_args;

agx_sio_args agx_sio_args_on(const agx_sio_packet *packet);
bool agx_sio_args_next(agx_sio_args *a, agx_sio_arg *arg);

/* Whether a namespace may be written: it begins with a slash and holds no comma and no control character. */
bool agx_sio_namespace_is_good(agx_view nsp);

/* Writing: each appends one text, whole or not at all. After an event or answer the bytes of its binary arguments are to
 * be sent as binary messages, in order. JSON is taken as it is. Errors are those of agx_buf_append, and -EINVAL for a
 * namespace that is not good or a name that is not UTF-8. `id` NULL: no answer is wanted. */
int agx_sio_put_connect(agx_buf *out, agx_view nsp, agx_view json);
int agx_sio_put_connect_error(agx_buf *out, agx_view nsp, agx_view message);
int agx_sio_put_disconnect(agx_buf *out, agx_view nsp);
int agx_sio_put_event(agx_buf *out, agx_view nsp, const uint64_t *id, agx_view name, const agx_sio_arg *args, size_t n);
int agx_sio_put_ack(agx_buf *out, agx_view nsp, uint64_t id, const agx_sio_arg *args, size_t n);

#endif
