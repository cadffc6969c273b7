#ifndef AGX_SERVER_TUNNEL_H
#define AGX_SERVER_TUNNEL_H
/*
 * Tunnels: HTTP exchanges of the sandbox, carried over the namespace /abridge to the host that has opened the tunnel. A
 * brain without HTTP: requests in, events for the host out; events of the host in, replies out (docs/reference/wire.md,
 * section 5).
 *
 *     agx_tunnels_take()     an event of a host; the outcome says what is left for the shell to do
 *     agx_exchange_begin()   a request; then _more() with its body, and _over() when its client needs it no longer
 *     agx_exchange_taken()   all of the reply that came so far has left for the client
 *     agx_tunnels_say()      what a port has to say next; asked as far as its peer takes it
 *
 * What a host has not consumed is kept and said again after it has attached anew, up to a bound that the shell keeps by
 * not reading from who is agx_exchange_full(). */
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "proto/limits.h"
#include "wire/http1.h"

/* A host's end, part of its connection's port in the hub. */
typedef struct agx_tunnel_port {
        agx_list tunnels;
        agx_list answers;
        size_t n_answers;
} agx_tunnel_port;

typedef struct agx_tunnels {
        agx_list all;
        size_t n;
        agx_map exchanges; /* by id */
        uint64_t last_tunnel, last_exchange;
        agx_buf said; /* what the last saying lies in */
        void *last;   /* an answer that was said last */
} agx_tunnels;

typedef struct agx_tunnel {
        agx_list node;    /* in .all */
        agx_list of_port; /* unlinked: its host is away */
        agx_tunnels *all;
        agx_tunnel_port *port;
        agx_list due;       /* exchanges with something to say */
        agx_list exchanges; /* all of them, in the order they began */
        agx_buf paths;      /* each ended by a NUL */
        uint64_t id;
        uint64_t window_ms;
        unsigned away;   /* the shell counts here while it has no port */
        unsigned number; /* the TCP port */
        void *shell;
} agx_tunnel;

/* One exchange, embedded in the shell's connection. */
typedef struct agx_exchange {
        agx_map_node by_id;
        agx_list node; /* in the tunnel's exchanges */
        agx_list due;
        agx_tunnel *tunnel; /* NULL: none is under way */
        agx_view path;      /* in the tunnel */
        uint64_t id;
        agx_list up;            /* records that the host has not consumed, in order */
        agx_list *unsaid;       /* the first of them that this link has not been told */
        size_t up_bytes;        /* of them */
        uint64_t up_seq;        /* of the next one */
        uint64_t up_said;       /* those below were said, on this link or before */
        uint64_t down_seq;      /* of the next one from the host */
        uint64_t down_taken;    /* the client has taken those below */
        uint64_t down_acked;    /* what the host was told to be consumed */
        size_t down_bytes;      /* that came since */
        bool up_ended, replied; /* the request is complete; the reply has begun */
        bool ended;             /* the host has said all it had to */
        bool known;             /* the host was told of it */
        bool ack_due;
} agx_exchange;

/* Whether this is the namespace of tunnels. */
static inline bool agx_tunnels_namespace(agx_view nsp)
{
        return agx_view_eq(nsp, AGX_VIEW("/abridge"));
}

/* `seed`: 16 random bytes. */
void agx_tunnels_init(agx_tunnels *a, const uint8_t seed[16]);
/* The shell has closed every tunnel. */
void agx_tunnels_deinit(agx_tunnels *a);
void agx_tunnel_port_init(agx_tunnel_port *p);
/* The connection is gone: its tunnels wait for another. Safe twice, and on a zeroed port. */
void agx_tunnel_port_detach(agx_tunnel_port *p);
bool agx_tunnel_port_pending(const agx_tunnel_port *p);

/* ---- a host's events ---- */

typedef struct agx_tunnel_reply {
        unsigned status;
        agx_view media_type; /* absent: none */
        agx_view headers; /* msgpack, a map or an array of pairs, checked; absent: none. See agx_tunnel_next_header() */
        agx_view body;
        agx_view error_type; /* of an error */
} agx_tunnel_reply;

typedef enum agx_tunnel_todo {
        AGX_TUNNEL_TODO_NOTHING,
        AGX_TUNNEL_TODO_LISTEN, /* .tunnel is new: listen, then agx_tunnel_opened() or agx_tunnel_failed() */
        AGX_TUNNEL_TODO_CLOSE,  /* close .tunnel with its connections, then agx_tunnel_free() */
        AGX_TUNNEL_TODO_LOST,   /* again and again: agx_tunnel_next_lost() gives exchanges to be failed with 502 */
        AGX_TUNNEL_TODO_READ,   /* .exchange may have room again */
        AGX_TUNNEL_TODO_WHOLE,  /* .reply is all of the answer to .exchange */
        AGX_TUNNEL_TODO_HEAD,   /* .reply begins it */
        AGX_TUNNEL_TODO_BODY,   /* .reply.body goes on with it; .last */
        AGX_TUNNEL_TODO_ERROR,  /* .reply.status, .error_type and .body, a message: instead of it, or to break it off */
        AGX_TUNNEL_TODO_NOTE    /* the event was passed over; .why, static words, is for the log */
} agx_tunnel_todo;

typedef struct agx_tunnel_outcome {
        agx_tunnel_todo todo;
        agx_tunnel *tunnel;
        agx_exchange *exchange;
        agx_tunnel_reply reply; /* lives as long as the payload */
        bool last;
        agx_view request_id; /* of an `open`, as it was written */
        const char *why; /* of a NOTE, and of an ERROR that stands for what could not be read; NULL: nothing to log */
} agx_tunnel_outcome;

/* 0 or -ENOMEM. */
int agx_tunnels_take(agx_tunnels *a, agx_tunnel_port *p, agx_view name, agx_view payload, agx_tunnel_outcome *outcome);
/* Passes to the next field in `*headers`; false: no more. */
bool agx_tunnel_next_header(agx_view *headers, agx_view *name, agx_view *value);

/* ---- what a port says ---- */

typedef struct agx_tunnel_saying {
        agx_view event;
        agx_view data;
} agx_tunnel_saying;

enum { AGX_TUNNEL_E_NONE = 1 }; /* say: nothing for now */
/* 0, AGX_TUNNEL_E_NONE or -ENOMEM. Views live until the next call. */
int agx_tunnels_say(agx_tunnels *a, agx_tunnel_port *p, agx_tunnel_saying *saying);

/* ---- tunnels ---- */

/* 0 or -ENOMEM. After agx_tunnel_failed() the tunnel is gone. */
int agx_tunnel_opened(agx_tunnel *t, agx_view request_id, unsigned number);
void agx_tunnel_failed(agx_tunnel *t, agx_view request_id, const char *why);
/* Its exchanges are over. */
void agx_tunnel_free(agx_tunnel *t);
/* After AGX_TUNNEL_TODO_LOST: one of which the host knows nothing any more, or NULL. */
agx_exchange *agx_tunnel_next_lost(agx_tunnel *t);
/* The declared path as the tunnel keeps it; absent: it is none. */
agx_view agx_tunnel_path(const agx_tunnel *t, agx_view path);

/* ---- exchanges ---- */

void agx_exchange_init(agx_exchange *x);
/* `path`: of agx_tunnel_path(). 0 or -ENOMEM (nothing began). */
int agx_exchange_begin(agx_exchange *x, agx_tunnel *t, agx_view path, const agx_http1_head *head, agx_view query,
                       agx_view body, bool last);
/* More of the body, at most AGX_TUNNEL_CHUNK. 0 or -ENOMEM. */
int agx_exchange_more(agx_exchange *x, agx_view body, bool last);
static inline bool agx_exchange_full(const agx_exchange *x)
{
        return x->up_bytes >= AGX_TUNNEL_CREDIT;
}
/* The client has taken all that came. */
void agx_exchange_taken(agx_exchange *x);
/* It is over, for whatever reason: the host is told if it knows of it. Safe twice, and on a zeroed one. */
void agx_exchange_over(agx_exchange *x);

#endif
