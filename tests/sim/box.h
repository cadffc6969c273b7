#ifndef AGX_SIM_BOX_H
#define AGX_SIM_BOX_H
/* Inside the box: what its shells know of each other. */
#include "sim.h"

#include "server/fastconn.h"
#include "server/rpc.h"
#include "server/sio_conn.h"
#include "wire/ws.h"
#include "worker/retiree.h"
#include "worker/supervisor.h"

struct sim_box {
        sim *s;
        agx_site site;
        char instance[33];
        agx_calls calls;
        agx_rpc rpc;
        agx_map lobbies; /* by sid */
        sim_flush links;
        sim_crew *crew;
        agx_list doors;
        size_t n_doors;
        sim_timer ledger_tick, graces, drain;
        uint64_t evicted_told;
        bool stopped, crew_stopped, refusing;
        size_t kept_max;
};

bool sim_box_worker(sim_box *box, agx_calls_worker *worker);
void sim_box_worker_fed(sim_box *box);
int sim_box_event(sim_box *box, agx_rpc_link *link, agx_view name, agx_view payload);
void sim_box_deliver(sim_box *box, agx_call *call);
void sim_box_touched(sim_box *box);
void sim_box_wanted(sim_box *box);
void sim_box_door_closed(sim_box *box);
/* Journal. */
void sim_box_note_request(sim_box *box, agx_view session, const agx_call_request *request, agx_submit verdict);
void sim_box_note_call(sim_box *box, sim_fact fact, const agx_call *call);

/* ---- the crew's events ---- */

void sim_box_on_ready(sim_box *box);
void sim_box_on_frame(sim_box *box, uint64_t worker, const agx_frame *frame);
void sim_box_on_died(sim_box *box, uint64_t worker, const agx_fault *fault);
void sim_box_on_unavailable(sim_box *box, const agx_fault *fault);
void sim_box_on_crew_stopped(sim_box *box);

/* ---- the crew ---- */

sim_crew *sim_crew_new(sim_box *box);
sim_box *sim_crew_box(const sim_crew *c);
void sim_crew_wanted(sim_crew *c);
sim_worker *sim_crew_ready(const sim_crew *c);
sim_worker *sim_crew_find(const sim_crew *c, uint64_t number);
void sim_crew_retire(sim_crew *c, uint64_t worker, size_t running, size_t overdue);
void sim_crew_load(sim_crew *c, uint64_t worker, size_t running, size_t overdue);
void sim_crew_stop(sim_crew *c);
/* The server is gone: workers notice by their pipes. */
void sim_crew_free(sim_crew *c);
void sim_crew_kill_one(sim_crew *c);
bool sim_crew_is_quiet(const sim_crew *c);

/* ---- a worker, as the server sees it ---- */

struct sim_worker {
        agx_list node;
        sim *s;
        sim_crew *crew; /* NULL: its server is gone */
        uint64_t number, serial;
        bool retired, worked;
        agx_retiree retiree;
        /* the server's end */
        agx_buf out;
        agx_bulk bulk;
        bool reads_pieces; /* and writes them: every other one does */
        sim_flush flush;
        agx_deframer deframer;
        sim_pipe down, up; /* to the worker, from it */
        /* the process */
        agx_deframer its;
        agx_buf said;
        sim_flush talk;
        agx_list tasks;
        sim_timer boot, death, noticed;
        bool booted, boots_badly, dead, told;
        int status; /* as a return code: negative for a signal */
};

sim_worker *sim_worker_spawn(sim_crew *crew, uint64_t number);
size_t sim_worker_queued(const sim_worker *w);
void sim_worker_touch(sim_worker *w);
/* Where a frame about a call goes, and the last one of all. */
agx_buf *sim_worker_behind(sim_worker *w, const agx_call *call);
agx_buf *sim_worker_last(sim_worker *w);
void sim_worker_kill(sim_worker *w);
void sim_worker_terminate(sim_worker *w);
/* The server does not look at it any more. */
void sim_worker_release(sim_worker *w);
void sim_worker_free(sim_worker *w);

void sim_crew_on_frame(sim_crew *c, sim_worker *w, const agx_frame *frame);
void sim_crew_on_misbehaved(sim_crew *c, sim_worker *w);
void sim_crew_on_died(sim_crew *c, sim_worker *w);

/* ---- doors: HTTP connections ---- */

struct sim_door {
        agx_list node;
        sim_box *box;
        sim_wire *wire;
        sim_timer deadline;
        agx_conn conn;
        agx_buf out, ahead;
        sim_flush flush;
        agx_waiter waiter;
        agx_call *call, *settling;
        sim_lobby *lobby;
        agx_ws *ws;
        struct sim_fast *fast;
        bool framed, running, ending, ended, shut, closed, wrote;
        size_t last_queued;
        uint64_t paused_at;
};

extern const sim_end sim_door_end;
sim_door *sim_door_new(sim_box *box);
void sim_door_close(sim_door *d);
void sim_door_finish(sim_door *d);
void sim_door_pump(sim_door *d);
void sim_door_drain(sim_door *d);
void sim_door_touch(sim_door *d);
void sim_door_read(sim_door *d, bool on);
int sim_door_send(sim_door *d, agx_view body, bool *done);
static inline size_t sim_door_queued(const sim_door *d)
{
        return d->out.len;
}

/* ---- the fast wire, on a door ---- */

typedef struct sim_fast sim_fast;
int sim_fast_begin(sim_door *d);
void sim_fast_feed(sim_door *d, agx_view in);
void sim_fast_drained(sim_door *d);
void sim_fast_tick(sim_door *d);
void sim_fast_drain(sim_door *d);
void sim_fast_lost(sim_door *d);
void sim_fast_free(sim_door *d);
size_t sim_fast_replies(const sim_door *d); /* how many may be on their way */

/* ---- lobbies: Socket.IO sessions ---- */

struct sim_lobby {
        agx_map_node by_sid;
        sim_box *box;
        agx_sio_conn conn;
        sim_door *poller, *socket;
        sim_timer deadline;
        sim_flush flush;
        bool ended;
};

int sim_lobby_request(sim_door *d);
void sim_lobby_feed(sim_door *d, agx_view in);
void sim_lobby_drained(sim_door *d);
void sim_lobby_lost(sim_door *d);
void sim_lobby_speak(agx_rpc_link *link);
void sim_lobby_drain(sim_box *box);
void sim_lobby_close_all(sim_box *box);

#endif
