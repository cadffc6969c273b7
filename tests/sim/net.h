#ifndef AGX_SIM_NET_H
#define AGX_SIM_NET_H
/*
 * Pipes that are slow, tear and stall. A pipe carries bytes one way; a wire is two of them and a connection of a host with
 * the server, with all the ways in which it may end:
 *
 *   - either end closes it: what it sent before arrives, then an end; or a reset that swallows some of it;
 *   - it is cut, after so many bytes or at any time: what is under way is lost, and each end hears of it soon, late or
 *     never, until it is told by sim_wire_notice().
 *
 * Wires are freed once both ends have closed them, at the end of the turn.
 */
#include "base/buf.h"
#include "base/list.h"
#include "clock.h"

typedef struct sim_pipe sim_pipe;
struct sim_pipe {
        sim_clock *clock;
        agx_buf buf;
        sim_timer deliver;
        void (*data)(sim_pipe *self, agx_view in);
        void (*room)(sim_pipe *self);  /* may be NULL: bytes were taken; there is room again */
        void (*ended)(sim_pipe *self); /* may be NULL: all was delivered behind an end */
        size_t window;                 /* bytes that may be under way */
        uint64_t low_ms, high_ms;      /* how long a piece takes */
        size_t piece;                  /* bytes delivered at once, at most; 0: all */
        uint64_t budget;               /* bytes until it tears */
        size_t swallowed;
        bool paused; /* the receiver does not read */
        bool torn;   /* what is written is lost */
        bool fin;    /* the writer has ended */
        bool busy;   /* inside of .data */
};

void sim_pipe_init(sim_pipe *p, sim_clock *c, size_t window, uint64_t low_ms, uint64_t high_ms);
void sim_pipe_deinit(sim_pipe *p);
/* How much of `v` was taken. */
size_t sim_pipe_write(sim_pipe *p, agx_view v);
void sim_pipe_end(sim_pipe *p);
void sim_pipe_read(sim_pipe *p, bool on);
/* Delivers all that is under way now. */
void sim_pipe_drain(sim_pipe *p);

typedef struct sim_wire sim_wire;

typedef struct sim_end {
        void (*data)(sim_wire *wire, void *user, agx_view in);
        void (*room)(sim_wire *wire, void *user);
        void (*ended)(sim_wire *wire, void *user, const char *why); /* NULL: orderly */
} sim_end;

typedef struct sim_net {
        sim_clock *clock;
        agx_list wires, dead;
        size_t n_wires;
        /* what new wires are like */
        uint64_t low_ms, high_ms, notice_ms;
        size_t window, piece, budget;
        unsigned tear_one_in, reset_one_in;
        uint64_t cuts; /* ever */
} sim_net;

struct sim_wire {
        agx_list node;
        sim_net *net;
        sim_pipe up, down; /* from the host, to it */
        const sim_end *host, *box;
        void *host_user, *box_user;
        sim_timer host_notice, box_notice;
        bool host_closed, box_closed, host_told, box_told, cut;
};

void sim_net_init(sim_net *n, sim_clock *c);
/* Frees what is left. */
void sim_net_deinit(sim_net *n);
sim_wire *sim_wire_new(sim_net *n, const sim_end *host, void *host_user, const sim_end *box, void *box_user);
size_t sim_wire_host_write(sim_wire *w, agx_view v);
size_t sim_wire_box_write(sim_wire *w, agx_view v);
void sim_wire_host_close(sim_wire *w);
void sim_wire_box_close(sim_wire *w);
/* The box ends its side only. */
void sim_wire_box_end(sim_wire *w);
void sim_wire_cut(sim_wire *w);
/* Both ends hear of a cut within `ms`. */
void sim_wire_notice(sim_wire *w, uint64_t ms);
/* A random wire that is not cut, or NULL. */
sim_wire *sim_net_any(sim_net *n);
/* Frees wires that nobody holds any more. */
void sim_net_sweep(sim_net *n);

#endif
