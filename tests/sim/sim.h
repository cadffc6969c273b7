#ifndef AGX_SIM_SIM_H
#define AGX_SIM_SIM_H
/*
 * One simulation: hosts, strangers, a box with a server and its workers, a network between them, a judge beside them. The
 * parts call each other here and have no other tie; every happening comes from the clock.
 *
 *     host.c      a shell of agx_client, and what its user does
 *     stranger.c  who speaks the wire by hand: other sessions, and repeats
 *     box.c       the server's end of it all: what server_uv.c does, and its kills and stops
 *     door.c      a shell of agx_conn: what http_uv.c does
 *     lobby.c     a shell of agx_sio_conn: what sio_uv.c does
 *     crew.c      a shell of agx_supervisor and agx_retiree: what supervisor_uv.c does
 *     worker.c    a worker's process, its targets and their journal
 *     trouble.c   chance: the plan of a run, and what goes wrong when
 */
#include "judge.h"
#include "net.h"

#include "client/session.h"
#include "server/calls.h"

enum { SIM_HOSTS_MAX = 4, SIM_STRANGERS_MAX = 2, SIM_VALUE_HEAD = 20 };

typedef struct sim sim;
typedef struct sim_box sim_box;
typedef struct sim_crew sim_crew;
typedef struct sim_worker sim_worker;
typedef struct sim_host sim_host;
typedef struct sim_stranger sim_stranger;
typedef struct sim_lobby sim_lobby;
typedef struct sim_door sim_door;

/* What a target does. */
typedef enum sim_end_of_target { SIM_RETURNS, SIM_RAISES, SIM_KILLS_WORKER, SIM_NEVER_ENDS } sim_end_of_target;
typedef enum sim_when_killed {
        SIM_AT_RECEIPT,
        SIM_AT_BEGIN,
        SIM_BEFORE_END,
        SIM_AFTER_END,
        SIM_IN_RESULT
} sim_when_killed;
typedef enum sim_manners { SIM_ENDS_AT_ONCE, SIM_ENDS_LATE, SIM_IGNORES } sim_manners;

typedef struct sim_job {
        sim *s;
        uint32_t key, host;
        uint64_t counter; /* of its id, once it is known; 0: not yet */
        sim_end_of_target end;
        sim_when_killed when;
        sim_manners manners; /* towards a cancel */
        uint64_t lasts_ms, late_ms;
        size_t size;      /* of its value, beyond the head */
        size_t arguments; /* of them, beyond the key */
        uint32_t items;   /* if it is a stream: how many; else 0 */
        uint64_t window;  /* of them its host takes at a time */
        uint64_t taken;   /* and not yet consumed */
        size_t taken_bytes;
        sim_timer reader; /* then they are */
        uint64_t deadline_ms, patience_ms;
        sim_timer patience; /* its user's: then he abandons it */
        agx_client_call *call;
        agx_view sent;     /* its arguments, while they are borrowed */
        uint64_t instance; /* that has accepted it; 0: none */
        bool accepted, over;
        bool given_up; /* its host does not know what came of it, and never will */
} sim_job;

/* What a run is like. */
typedef struct sim_plan {
        uint32_t n_hosts, n_strangers, calls,
                spare; /* `spare`: keys for calls at the end that carry acknowledgements */
        bool calm, token, tight, no_websocket, no_fast;
        uint64_t low_ms, high_ms, notice_ms;
        size_t window, piece, budget;
        unsigned tear_one_in, reset_one_in, refuse_one_in;
        uint64_t trouble_ms; /* mean time between troubles; 0: none */
        unsigned restart_weight, cut_weight, kill_weight;
        uint64_t gap_ms;  /* between arrivals at a host, at most */
        uint32_t at_once; /* calls a host starts together, at most */
        uint32_t open_max;
        unsigned slow_one_in, end_one_in, cancel_one_in, deadline_one_in, large_one_in, stream_one_in;
        unsigned boot_trouble_one_in;
        unsigned repeat_one_in; /* strangers with a host's session: how many of their doings */
} sim_plan;

struct sim {
        sim_clock clock;
        sim_net net;
        sim_plan plan;
        sim_judge *judge;
        agx_list flushes;
        sim_box *box; /* NULL: down */
        uint64_t instances;
        uint64_t runs, workers; /* ever */
        sim_job *jobs;          /* by key */
        uint32_t next_job;
        uint32_t *numbered[SIM_HOSTS_MAX + SIM_STRANGERS_MAX]; /* keys by host, by counter */
        bool steady[SIM_HOSTS_MAX];                            /* hosts whose cancels arrive in the end */
        uint64_t still;                                        /* steps without time passing */
        sim_host *hosts[SIM_HOSTS_MAX];
        sim_stranger *strangers[SIM_STRANGERS_MAX];
        bool well; /* no more trouble is made */
        sim_timer trouble;
        agx_list released; /* workers to be freed at the end of the turn */
        unsigned troubles;
        uint64_t restarts, deaths, repeats, refused;
};

typedef struct sim_flush {
        agx_list node;
        void (*run)(struct sim_flush *self);
} sim_flush;
void sim_flush_init(sim_flush *f, void (*run)(sim_flush *self));
void sim_flush_later(sim *s, sim_flush *f);
static inline void sim_flush_cancel(sim_flush *f)
{
        agx_list_unlink(&f->node);
}
/* What every shell does at the end of a turn of its loop. */
void sim_end_turn(sim *s);

static inline uint64_t sim_now(const sim *s)
{
        return s->clock.now;
}
void sim_note(sim *s, sim_fact fact, const sim_job *job, uint64_t a, uint64_t b);
void sim_note_key(sim *s, sim_fact fact, uint32_t key, uint32_t host, uint64_t counter, uint64_t a, uint64_t b);

/* ---- names ---- */

uint64_t sim_digest(agx_view bytes); /* never 0 */
/* The job whose arguments these are, or NULL. */
sim_job *sim_job_of(sim *s, agx_view arguments);
/* Takes an id of a host or a stranger apart. */
bool sim_id_read(const sim *s, agx_view id, uint32_t *host, uint64_t *counter);
/* The job that has this id, as far as anybody knows. */
sim_job *sim_job_with(sim *s, agx_view id);
sim_job *sim_job_numbered(sim *s, uint32_t host, uint64_t counter);
void sim_job_number(sim *s, sim_job *job, uint64_t counter);
/* Writes `<session>-<counter>`, or what a stranger calls its own. */
agx_view sim_id_write(const sim *s, uint32_t host, uint64_t counter, char id[64]);
agx_view sim_session(const sim *s, uint32_t host);
/* The value a job's target returns. */
void sim_value_put(agx_buf *out, const sim_job *job, uint64_t run);
void sim_item_put(agx_buf *out, const sim_job *job, uint64_t run, uint64_t seq);
uint64_t sim_item_number(agx_view value);
sim_outcome sim_outcome_of_fault(const agx_fault *fault);
/* Its next job for a host, drawn, or NULL. */
sim_job *sim_job_next(sim *s, uint32_t host, bool plain);

/* ---- parts ---- */

extern const char sim_token[];

sim_box *sim_box_new(sim *s);
/* A kill: everything is gone at once. */
void sim_box_kill(sim_box *box);
void sim_box_stop(sim_box *box);
bool sim_box_stopped(const sim_box *box);
/* A connection is accepted; its wire, from whoever calls. */
sim_wire *sim_box_accept(sim_box *box, const sim_end *host, void *user);
void sim_box_judge(sim_box *box, bool at_end);
void sim_box_kill_worker(sim_box *box);

void sim_host_new(sim *s, uint32_t index);
void sim_host_free(sim_host *h);
/* Whether its client has nothing on its hands. */
bool sim_host_idle(sim_host *h);
/* Abandons what would never end. */
void sim_host_give_up(sim_host *h);
/* One plain call: a client that could not get through for long waits for that. */
void sim_host_greet(sim_host *h);
/* Another call, so that acknowledgements get along. False: none are waiting. */
bool sim_host_acknowledge(sim_host *h);
void sim_host_judge(sim_host *h);

void sim_stranger_new(sim *s, uint32_t index);
void sim_stranger_free(sim_stranger *x);
void sim_stranger_rest(sim_stranger *x);
bool sim_stranger_idle(const sim_stranger *x);

void sim_plan_draw(sim *s, uint64_t seed, uint32_t calls);
void sim_trouble_begin(sim *s);
/* There is a box that serves. */
void sim_box_mend(sim *s);
/* A host may connect now. */
bool sim_may_connect(sim *s);

/* ---- a whole run ---- */

typedef struct sim_result {
        const char *verdict; /* NULL: fine; lives until the next run */
        uint64_t calls, digest, steps, virtual_ms;
        uint64_t facts[SIM_RESTARTED + 1], outcomes[SIM_OUTCOMES];
        uint64_t restarts, deaths, cuts, repeats, refused;
} sim_result;

/* `report`: where a violation is printed, or NULL. */
void sim_run(uint64_t seed, uint32_t calls, sim_result *result, FILE *report);

#endif
