#ifndef AGX_SERVER_SERVER_UV_H
#define AGX_SERVER_SERVER_UV_H
/*
 * The runtime server: a listener, its connections, the calls, the supervised workers, and the reasons to end: a signal,
 * the host's lifeline, the lease.
 */
#include "io/loop.h"
#include "io/relay.h"
#include "server/calls.h"
#include "server/config.h"
#include "server/conn.h"
#include "server/hub.h"
#include "server/listener_uv.h"
#include "server/logfile_uv.h"
#include "server/rpc.h"
#include "worker/procs_uv.h"
#include "worker/supervisor_uv.h"

typedef struct agx_server agx_server;

struct agx_server {
        agx_loop loop;
        agx_relay log;
        const agx_config *config;
        agx_site site;
        agx_gather gather;
        char instance[33];
        agx_calls calls;
        agx_rpc rpc;
        agx_hub hub;
        agx_logfiles logfiles;
        agx_buf log_item, log_context;
        uint64_t log_context_of; /* the worker's number; 0: the server's own */
        agx_flush flushing;      /* gathers output for hosts that asked for it */
        agx_map sio_sessions;    /* by sid */
        agx_flush links;         /* lets those speak that have something to say */
        agx_supervisor_uv supervisor;
        agx_procs procs;
        agx_listener listener;
        agx_list connections;
        size_t n_connections;
        size_t n_authorized;
        agx_deadline lease;
        agx_deadline ledger_tick;
        agx_deadline graces; /* of cancelled calls */
        agx_deadline drain;
        agx_deadline rest; /* after large values: memory is given back */
        uv_signal_t signals[4];
        agx_stream lifeline;
        bool has_lifeline;
        bool supervisor_stopped;
        uint64_t evicted_told, eviction_note_ms; /* how many; when the next may be told */
        bool stray_told;                         /* of events on namespaces that nobody serves */
        uint64_t odd_told;                       /* frames of workers and events of hosts that fitted nothing */
        /* For the shell that attaches links: pull what this one has to say, with agx_rpc_next(). */
        void (*speak)(agx_rpc_link *link);
        void (*speak_aside)(agx_hub_port *port);
};

/* Runs a server to its end. 0, or a negative error after writing `failed <reason>` where the host reads it. */
int agx_server_run(agx_server *s, const agx_config *config, char *const *env, const char *version);

/* ---- for its connections ---- */

/* The worker to submit to, or false: none is ready. */
bool agx_server_worker(agx_server *s, agx_calls_worker *worker);
/* A frame was put into the worker's buffer, or among its large ones. */
void agx_server_worker_fed(agx_server *s);
/* An event came on a link. 0, or else the link is to be closed. */
int agx_server_event(agx_server *s, agx_rpc_link *link, agx_view name, agx_view payload);
/* Links and ports that have something to say are heard at the end of the turn. */
void agx_server_wake(agx_server *s);
/* Ended calls go to their waiters. */
void agx_server_deliver(agx_server *s, agx_call *call);
/* The ledger has something with an expiry. */
void agx_server_ledger_touched(agx_server *s);
void agx_server_authorized(agx_server *s, int change);
void agx_server_connection_closed(agx_server *s);
void agx_server_note(agx_server *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
