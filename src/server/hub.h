#ifndef AGX_SERVER_HUB_H
#define AGX_SERVER_HUB_H
/*
 * Side channels: between the namespaces that workers open and the hosts that have joined them, and the reliable streams
 * /log and /trace (journal.h), and tunnels on /abridge (tunnel.h). A brain: frames and events in, frames and events out; it knows no plugin.
 *
 * A namespace exists as soon as a worker opens it or a host joins it. Events wait for whoever is not there yet: a
 * worker's for the first host that joins, a host's for the first worker that opens; bounded, the oldest goes first. An
 * event of a worker goes to every host that has joined, one of a host to the newest worker that has opened; the answer to
 * a request (":result", ":error") to every worker that has, since a retired one may have asked.
 *
 *     agx_hub_frame()        sio_open or sio_emit from a worker; after an open: agx_hub_next_held()
 *     agx_hub_join(), _leave(), agx_hub_detach()   of a connection, whose end here is its port
 *     agx_hub_take()         an event of a host: the outcome says what is left for the shell to do
 *     agx_hub_due()          a port that has something to say, to be said with agx_hub_next() as far as its peer takes it
 *     agx_hub_flow()         whether workers are to be told to pause, or to go on
 *
 * Who emits faster than hosts read is told to pause; what comes all the same replaces older events.
 */
#include "base/map.h"
#include "proto/frame.h"
#include "server/journal.h"
#include "server/tunnel.h"

enum { AGX_HUB_STREAMS = 2, AGX_HUB_WORKERS_MAX = 16 };
typedef enum agx_hub_stream { AGX_HUB_LOG, AGX_HUB_TRACE } agx_hub_stream;

typedef struct agx_hub {
        agx_map spaces;
        size_t n_open; /* opened by workers, ever, and still known */
        agx_list due;
        agx_list given;                /* what agx_hub_next_held() gave last */
        agx_list flushing;             /* ports that asked for all there is */
        size_t waiting, waiting_bytes; /* events in the queues of ports */
        bool stopped;
        agx_view instance;
        agx_journal streams[AGX_HUB_STREAMS];
        agx_tunnels tunnels;
        const char *warning; /* static words for the log, once each; take it and set it to NULL */
        unsigned warned;
} agx_hub;

typedef struct agx_hub_port {
        agx_hub *hub; /* NULL: none, or detached */
        agx_list due, flushing;
        agx_list queue;
        size_t n, bytes;
        uint64_t window, in_flight; /* events it may be told ahead of what it has taken; 0: as many as go */
        agx_list members;
        agx_journal_reader readers[AGX_HUB_STREAMS];
        struct agx_hub_flush {
                bool asked, due;
                uint64_t token, seq;
        } flushes[AGX_HUB_STREAMS];
        agx_buf said; /* what the last saying lies in */
        void *last;
        agx_tunnel_port tunnel; /* its end of /abridge */
        bool tunnel_joined, tunnel_turn;
} agx_hub_port;

enum {
        AGX_HUB_E_FULL = 1, /* join: too many namespaces */
        AGX_HUB_E_NONE      /* next: nothing to say for now */
};

/* `seed`: 16 random bytes; `instance`: as long as the hub; `items`: what each stream keeps. */
void agx_hub_init(agx_hub *h, const uint8_t seed[16], agx_view instance, const size_t items[AGX_HUB_STREAMS]);
/* Detaches the ports that are left. */
void agx_hub_deinit(agx_hub *h);

/* ---- workers ---- */

/* Whether the frame is one of ours; `*odd` gets static words if it was passed over. 0 or -ENOMEM: it is lost. */
int agx_hub_frame(agx_hub *h, uint64_t worker, const agx_frame *frame, const char **odd);
/* An event that was held for a namespace this worker has opened; false: no more. Its views live until the next call. */
bool agx_hub_next_held(agx_hub *h, uint64_t worker, agx_frame *frame);
void agx_hub_worker_died(agx_hub *h, uint64_t worker);
/* Whether workers are to hear something new: `*go` says which. */
bool agx_hub_flow(agx_hub *h, bool *go);

/* ---- hosts ---- */

void agx_hub_port_init(agx_hub_port *p, agx_hub *h);
/* Leaves everything. Safe twice, and on a zeroed port. */
void agx_hub_detach(agx_hub_port *p);
/* `json`: what the host says when it joins; of a stream {window?, after?, instance?}, and of /log {events?}. 0, AGX_HUB_E_FULL or -ENOMEM. */
int agx_hub_join(agx_hub_port *p, agx_view nsp, agx_view json);
void agx_hub_leave(agx_hub_port *p, agx_view nsp);

typedef enum agx_hub_todo {
        AGX_HUB_TODO_NOTHING,
        AGX_HUB_TODO_SEND,   /* a frame `sio_inbound` to each of .workers */
        AGX_HUB_TODO_FLUSH,  /* gather what the sandbox has written so far, soon; then agx_hub_flushed() */
        AGX_HUB_TODO_TUNNEL, /* an event on /abridge: give it to the port's tunnels */
        AGX_HUB_TODO_NOTE    /* the event was passed over; .why, static words, is for the log */
} agx_hub_todo;

typedef struct agx_hub_outcome {
        agx_hub_todo todo;
        uint64_t workers[AGX_HUB_WORKERS_MAX];
        size_t n_workers;
        const char *why;
} agx_hub_outcome;

/* `payload`: msgpack. 0 or -ENOMEM. */
int agx_hub_take(agx_hub_port *p, agx_view nsp, agx_view event, agx_view payload, agx_hub_outcome *outcome);
/* The port may have got something to say on /abridge. */
void agx_hub_tunnel_touch(agx_hub_port *p);
/* For all that asked. */
void agx_hub_flushed(agx_hub *h);

typedef struct agx_hub_saying {
        agx_view nsp, event;
        agx_view data;
} agx_hub_saying;

/* 0, AGX_HUB_E_NONE or -ENOMEM. Views live until the port's next verb. */
int agx_hub_next(agx_hub_port *p, agx_hub_saying *saying);
/* A port that has got something to say since it was last asked for, or NULL. */
agx_hub_port *agx_hub_due(agx_hub *h);

/* ---- streams ---- */

/* An item of the server's own. */
void agx_hub_append(agx_hub *h, agx_hub_stream stream, agx_view item);

#endif
