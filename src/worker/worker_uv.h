#ifndef AGX_WORKER_WORKER_UV_H
#define AGX_WORKER_WORKER_UV_H
/*
 * One worker process: its start, its frames, its output and its death. Made by agx_worker_spawn(), it belongs to whoever
 * spawned it until agx_worker_release(); then it frees itself once the last descriptor is closed. Output of processes
 * that outlive the worker is passed on until they are gone too.
 */
#include "io/child.h"
#include "io/deadline.h"
#include "io/relay.h"
#include "io/stream.h"
#include "proto/frame.h"
#include "worker/bulk.h"
#include "worker/deathcause.h"
#include "worker/output.h"
#include "worker/retiree.h"

typedef struct agx_worker agx_worker;

typedef struct agx_worker_ops {
        void (*frame)(agx_worker *self, const agx_frame *frame); /* views die when it returns */
        void (*drained)(agx_worker *self);                       /* all frames for it are out; NULL: of no interest */
        void (*died)(agx_worker *self);                          /* after its last frames; .death says how */
        void (*note)(agx_worker *self, agx_view line);           /* for the server's log */
        /* A line of its output, or of what it left behind: it may come after its death, and after its release. NULL: none
         * is wanted. `fd`: 1 or 2. */
        void (*line)(agx_worker *self, int fd, const agx_output_line *line);
} agx_worker_ops;

typedef struct agx_worker_config {
        const char *python;   /* absolute path */
        char *const *environ; /* the server's own */
        agx_view box_id;
        uint64_t core_limit; /* soft RLIMIT_CORE for the worker */
        uint64_t nofile_limit;
        bool spares; /* one may wait beside the worker */
} agx_worker_config;

/* One of the two output pipes. */
typedef struct agx_worker_pipe {
        agx_stream stream;
        agx_deadline pause;
        agx_output lines;
        agx_worker *worker;
        unsigned open; /* handles not closed yet */
} agx_worker_pipe;

struct agx_worker {
        agx_list node; /* its owner's, once it is retired or released */
        const agx_worker_ops *ops;
        void *user;
        agx_loop *loop;
        agx_relay *relay;
        uint64_t number; /* as the ledger knows it */
        char id[9];      /* as the worker knows it */
        bool worked;     /* it was given a call */
        bool waking;     /* its owner's: it was a spare and is not ready yet */
        bool retired;    /* likewise, with what stands here: */
        agx_retiree retiree;
        bool released;
        bool gone;     /* dead, and its last words are heard */
        bool hushed;   /* the frame channel is not listened to any more */
        unsigned open; /* parts not closed yet */
        unsigned notes;
        agx_child child;
        agx_stream channel;
        int conduits;        /* connections are handed to it there; -1: none can be */
        bool reads_conduits; /* it has been told that there are some */
        agx_deadline grace;  /* the channel ended: it should be dead by then */
        bool reads_pieces;   /* as its READY said: large calls go by: */
        agx_bulk bulk;
        agx_flush pump;
        agx_deframer deframer;
        agx_worker_pipe pipes[2];
        size_t relayed; /* bytes of output */
        agx_tail tail;
        bool counts_kills;
        uint64_t kills_before;
        agx_death death;
};

/* 0 or a negative errno: nothing was started. A spare does not become ready before agx_worker_wake(). */
int agx_worker_spawn(agx_worker **worker, agx_loop *l, agx_relay *relay, const agx_worker_config *config,
                     uint64_t number, bool spare, const agx_worker_ops *ops, void *user);
/* Lets a spare go on to become ready, as soon as it has come so far. 0 or a negative errno: it cannot be used. */
int agx_worker_wake(agx_worker *w);
/* Something was put into its channel's buffer or its bulk, to be sent at the end of this turn. */
void agx_worker_touch(agx_worker *w);
/* Where to put a frame about a call it was given, and one that ends all: behind what is on its way. */
agx_buf *agx_worker_out_behind(agx_worker *w, agx_view call_id);
agx_buf *agx_worker_out_last(agx_worker *w);
/* Kills it with its group; `why` (static) is named as the cause. NULL keeps an earlier one. */
void agx_worker_kill(agx_worker *w, const char *why);
void agx_worker_terminate(agx_worker *w);
/* Gives it a duplicate of a descriptor, and the name it is expected under. 0 or a negative errno: it did not get it.
 * With the first one it is told to look there. */
int agx_worker_hand(agx_worker *w, agx_view name, int fd);
/* No callback comes any more. A living process is killed. */
void agx_worker_release(agx_worker *w);
/* Passes on all that it has written so far, unfinished lines included. */
void agx_worker_flush(agx_worker *w);
/* Stops listening to what the processes it left behind write. */
void agx_worker_silence(agx_worker *w);

#endif
