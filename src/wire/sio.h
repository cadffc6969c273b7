#ifndef AGX_WIRE_SIO_H
#define AGX_WIRE_SIO_H
/*
 * One Socket.IO v5 connection, for both roles, over the messages of an Engine.IO session: which namespaces are joined, and
 * which answers are awaited. What is to be sent is appended to a buffer of the caller's as one text; the bytes of its
 * binary arguments follow as binary messages.
 *
 * Server: CONNECT asks to join a namespace; answer it, now or later, with agx_sio_accept() or agx_sio_refuse().
 * Client: agx_sio_connect() asks; CONNECTED or REFUSED answers.
 *
 * Events and answers of a namespace that is not joined are dropped without a word: one side may have left while the
 * other still spoke. A wrong packet is final: the connection is to be closed.
 */
#include "base/map.h"
#include "wire/sio_packet.h"

typedef enum agx_sio_role { AGX_SIO_SERVER, AGX_SIO_CLIENT } agx_sio_role;

typedef enum agx_sio_kind {
        AGX_SIO_NOTHING,
        AGX_SIO_JOIN,      /* server: .data is an object or absent */
        AGX_SIO_CROWDED,   /* server: it would be one namespace too many; refuse it with agx_sio_put_connect_error() */
        AGX_SIO_CONNECTED, /* client: .data is the server's object */
        AGX_SIO_REFUSED,   /* client: .data is whatever the server says, or absent */
        AGX_SIO_LEFT,      /* the peer left the namespace */
        AGX_SIO_GOT,       /* an event: .name, agx_sio_args_on() */
        AGX_SIO_ANSWERED   /* the answer to an event of ours: .id */
} agx_sio_kind;

typedef struct agx_sio_event {
        agx_sio_kind kind;
        agx_sio_packet packet;
} agx_sio_event;

/* What the verbs return besides 0 and -ENOMEM, above AGX_BUF_E_FULL and those of agx_sio_packet_read(). */
enum {
        AGX_SIO_E_STATE = 3, /* the namespace is not in the state for it */
        AGX_SIO_E_FULL       /* too many namespaces, or answers awaited */
};

typedef struct agx_sio agx_sio;

/* `seed`: 16 random bytes. */
int agx_sio_new(agx_sio **sio, agx_sio_role role, const agx_sio_bounds *bounds, const uint8_t seed[16]);
void agx_sio_free(agx_sio *sio);
AGX_DEFINE_CLEANUP_POINTER(agx_sio, agx_sio_free)

/* One message. Views in *event live until the next one, and may lie in this one. 0, AGX_SIO_E_BAD or -ENOMEM. */
int agx_sio_read(agx_sio *sio, bool binary, agx_view message, agx_sio_event *event);
/* Bytes of attachments of a packet that is not whole yet. */
size_t agx_sio_gathered(const agx_sio *sio);
/* A few words on AGX_SIO_E_BAD, static. */
const char *agx_sio_reason(const agx_sio *sio);

/* Each of the following appends a text, and changes nothing if it cannot. Besides those above: AGX_BUF_E_FULL, -EINVAL. */

/* Client; `json` is an object or absent. */
int agx_sio_connect(agx_sio *sio, agx_view nsp, agx_view json, agx_buf *out);
/* Server; `json` is an object with "sid". */
int agx_sio_accept(agx_sio *sio, agx_view nsp, agx_view json, agx_buf *out);
int agx_sio_refuse(agx_sio *sio, agx_view nsp, agx_view message, agx_buf *out);
/* Both. */
int agx_sio_leave(agx_sio *sio, agx_view nsp, agx_buf *out);
/* `id` not NULL: an answer is wanted, and *id will tell it. */
int agx_sio_emit(agx_sio *sio, agx_view nsp, agx_view name, const agx_sio_arg *args, size_t n, uint64_t *id,
                 agx_buf *out);
int agx_sio_answer(agx_sio *sio, agx_view nsp, uint64_t id, const agx_sio_arg *args, size_t n, agx_buf *out);

bool agx_sio_joined(const agx_sio *sio, agx_view nsp);
/* Namespaces joined or asked for. */
size_t agx_sio_namespaces(const agx_sio *sio);

#endif
