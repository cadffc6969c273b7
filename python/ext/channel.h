/* agentix._core.Channel: what its files share.
 *
 *     channel.c  the type Channel: frames read and written, whose turn it is
 *     channel_procs.c  the frames about processes
 *     serve.c    the short way of a call: from its frame to its answer without a Python frame of ours
 */
#ifndef AGX_EXT_CHANNEL_H
#define AGX_EXT_CHANNEL_H

#include "call.h"
#include "out.h"
#include "turns.h"

#include <stdatomic.h>

enum {
        CHANNEL_READ = 64 * 1024,
        CHANNEL_GATHER =
                16 * 1024, /* bytes of answers that may wait; values above half of it are sent from where they lie */
};

/* A name of each object attribute we use, interned once. */
#define CHANNEL_NAMES(X)                                                                                               \
        X(flush)                                                                                                       \
        X(run)

typedef struct agx_channel {
        PyObject_HEAD
        int fd;          /* -1 in a forked child */
        PyObject *calls; /* id -> Call: those read and not yet answered */
        PyObject *inbox; /* its append() gets the events of side channels, in their order; NULL: they are passed over */
        PyObject *processes; /* likewise for what is heard of processes */
        PyTypeObject *call_type;
        agx_turns turns;
        agx_out out;
        agx_deframer deframer;
        agx_view in; /* read, not yet cut into frames; lies in `bytes` */
        char *bytes;
        PyObject *last_target; /* str: the name that the last call had */
        PyObject *handed;  /* a call that the loop has read and a thread has to run: the next leader's frame, or NULL */
        bool polling;      /* the loop's thread leads and goes on reading; its own */
        bool has_loop;     /* there is a loop that takes the lead */
        unsigned for_loop; /* calls for it that were read in a row */

        /* ---- the short way; with the interpreter held ---- */
        PyObject *targets; /* name -> (module, namespace, attribute, function, is async) */
        PyObject *rest;    /* rest(call, stage, what): Python's part of a call that does not go all the way here */
        atomic_int idle;   /* threads that wait for a call: who sends an answer is not one of them */
        int idle_max;      /* a thread that would be one more goes back to Python */
        bool parked;       /* calls wait for a thread: whoever is done goes back to Python */
        PyObject *loads, *dumps, *copy_context, *protocol;
        PyObject *set_current; /* tells the context of a call its id */
#define X(name) PyObject *s_##name;
        CHANNEL_NAMES(X)
#undef X
} agx_channel;

/* channel.c */

/* The next frame as receive() gives it. `reply`: an answer that has to go out first; it is emptied, and sent at the latest
 * before anything is waited for. `back`: after that this thread counts as idle again. New reference, or NULL with an
 * exception set. */
PyObject *agx_channel_receive(agx_channel *self, agx_buf *reply, bool back);
/* Sends it now, or with the next ones if the caller is the loop and goes on reading. Where that fails, so will the next read. */
void agx_channel_reply(agx_channel *self, agx_buf *reply, bool in_loop);
/* Sends a frame and what waited before it. NULL with an exception set. */
PyObject *agx_channel_send(agx_channel *self, const agx_frame *frame);

/* channel_procs.c */

/* A frame about a process, into `processes`: the frame object, which says that there is something. */
PyObject *agx_channel_put_process(agx_channel *self, const agx_frame *frame);
PyObject *agx_channel_start_process(agx_channel *self, PyObject *args);
PyObject *agx_channel_send_process(agx_channel *self, PyObject *args);
extern const char agx_channel_start_process_doc[], agx_channel_send_process_doc[];

/* serve.c */

/* Whether a call's target is known and still what it was, and async. */
bool agx_channel_is_async(agx_channel *self, PyObject *call);
PyObject *agx_channel_finish(agx_channel *self, PyObject *args);
int agx_channel_init_short(agx_channel *self);
int agx_channel_traverse_short(agx_channel *self, visitproc visit, void *arg);
void agx_channel_clear_short(agx_channel *self);
PyObject *agx_channel_serve(agx_channel *self, PyObject *unused);
PyObject *agx_channel_enter(agx_channel *self, PyObject *unused);
PyObject *agx_channel_is_full(agx_channel *self, PyObject *unused);
PyObject *agx_channel_leave(agx_channel *self, PyObject *args, PyObject *kwargs);
extern const char agx_channel_finish_doc[], agx_channel_serve_doc[], agx_channel_enter_doc[], agx_channel_leave_doc[],
        agx_channel_is_full_doc[];

#endif
