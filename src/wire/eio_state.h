#ifndef AGX_WIRE_EIO_STATE_H
#define AGX_WIRE_EIO_STATE_H
/* What the files of eio share; nobody else includes it. */
#include "wire/eio.h"

typedef enum agx_eio_state {
        AGX_EIO_STATE_OPENING, /* client: the opening has not come yet */
        AGX_EIO_STATE_OPEN,
        AGX_EIO_STATE_CLOSING, /* our goodbye waits to be sent */
        AGX_EIO_STATE_CLOSED
} agx_eio_state;

/* The move from long-polling to a WebSocket. */
typedef enum agx_eio_probe {
        AGX_EIO_PROBE_NONE,
        AGX_EIO_PROBE_WANTED,  /* client: the shell is to open one */
        AGX_EIO_PROBE_ASKED,   /* it is open; "2probe" is to come (server) or was queued (client) */
        AGX_EIO_PROBE_ANSWERED /* "3probe" was queued (server) or has come (client) */
} agx_eio_probe;

/* A message that waits to be sent. */
typedef struct agx_eio_item {
        agx_list node;
        bool binary;
        void *user;
        agx_view body;
        size_t n_head;
        char head[]; /* its first byte is the '4' of a text packet */
} agx_eio_item;

/* Packets of the protocol's own that wait to be sent, at most one of each. */
enum {
        AGX_EIO_NOTE_OPEN = 1 << 0,
        AGX_EIO_NOTE_PONG = 1 << 1,
        AGX_EIO_NOTE_PING = 1 << 2,
        AGX_EIO_NOTE_CLOSE = 1 << 3, /* behind the messages */
        AGX_EIO_NOTE_ASK = 1 << 4,   /* "2probe"; this and the next two only over the WebSocket that is moved to */
        AGX_EIO_NOTE_ANSWER = 1 << 5,
        AGX_EIO_NOTE_UPGRADE = 1 << 6
};

struct agx_eio {
        agx_eio_role role;
        agx_eio_bounds bounds;
        agx_eio_state state;
        agx_eio_transport transport;
        agx_eio_probe probe;
        bool ws;      /* a WebSocket is open */
        bool waiting; /* a GET waits for its answer */
        bool posting; /* client: a POST does */
        unsigned notes;
        const char *why;

        char sid[AGX_EIO_SID_MAX];
        size_t n_sid;
        agx_buf hello;   /* server: the data of the opening */
        agx_buf decoded; /* what was base64 */

        agx_list out;  /* agx_eio_item */
        agx_list done; /* likewise, for agx_eio_next_done() */
        size_t out_bytes;
        size_t out_packets;
        size_t peer_max; /* what the peer takes in one payload */
        unsigned shown;  /* the note that agx_eio_ws_next() gave; 0: the first item, if any */
        bool showing;

        uint64_t interval_ms, timeout_ms;
        uint64_t ping_at;    /* server: the next ping */
        uint64_t deadline;   /* the peer's next sign of life */
        uint64_t upgrade_at; /* the move must be over */
        bool pinged;         /* server: since then nothing was heard */
};

static inline agx_eio_item *agx_eio_first_item(const agx_eio *e)
{
        agx_list *node = agx_list_first(&e->out);

        return node ? agx_container_of(node, agx_eio_item, node) : NULL;
}

/* Ends the session; the first reason stays. */
void agx_eio_end(agx_eio *e, const char *why);
/* The WebSocket that was to be moved to is no more. */
void agx_eio_end_probe(agx_eio *e);
/* The item was sent, or never will be. */
void agx_eio_item_done(agx_eio *e, agx_eio_item *item);
bool agx_eio_sid_is_good(agx_view sid);
/* Reads the opening's data into the session; false: malformed. eio_open.c */
bool agx_eio_open_read(agx_eio *e, agx_view json);
/* Writes it into e->hello. 0 or -ENOMEM. */
int agx_eio_open_write(agx_eio *e);

#endif
