/* agentix._core.Channel: what its files share.
 *
 *     channel.c  the type Channel: frames read and written, whose turn it is
 *     channel_procs.c  the frames about processes
 *     serve.c    the short way of a call: from its frame to its answer without a Python frame of ours
 *     task.c     the same of an async one, on the loop
 */
#ifndef AGX_EXT_CHANNEL_H
#define AGX_EXT_CHANNEL_H

#include "call.h"
#include "land.h"
#include "out.h"
#include "turns.h"

#include <stdatomic.h>

enum {
        CHANNEL_READ = 64 * 1024,
        CHANNEL_READ_BEHIND = 1024, /* what has a place: rather little, for mostly more that has one follows */
        CHANNEL_GATHER =
                16 * 1024,   /* bytes of answers that may wait; values above half of it are sent from where they lie */
        CHANNEL_POLLED = 64, /* frames that the loop reads before other events get their turn */
};

/* A name of each object attribute we use, interned once. */
#define CHANNEL_NAMES(X)                                                                                               \
        X(Task)                                                                                                        \
        X(call_soon)                                                                                                   \
        X(context)                                                                                                     \
        X(flush)                                                                                                       \
        X(get_task_factory)                                                                                            \
        X(run)                                                                                                         \
        X(stderr)                                                                                                      \
        X(stdout)

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
        agx_land land; /* the call that is being received, if it has large bytes */
        agx_view in;   /* read, not yet cut into frames */
        agx_view next; /* what was read behind it; lies in `bytes` */
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
        PyObject *sys_dict;    /* of the module sys */
#define X(name) PyObject *s_##name;
        CHANNEL_NAMES(X)
#undef X

        /* ---- the short way of async calls; the loop's own, but for the first ---- */
        PyObject *async_type;
        PyObject *loop;      /* NULL: none, or one for which Python begins the calls */
        PyObject *loop_dict; /* the loop's own attributes, if its call_soon() is looked after */
        PyObject *asyncio, *function_type;
        PyObject *task_options;        /* a dict: what asyncio.Task is called with */
        PyObject *call_soon, *catcher; /* the loop's, and what stands in for it while a task is made */
        PyObject *first_context;       /* of the task that is being made, borrowed; NULL: none is */
        PyObject *first_step;          /* what it asked for */
        bool steps_eagerly;            /* tasks can take their first step when they are made */
        unsigned stepping;             /* targets that are being stepped just now: more than one if they nest loops */
        unsigned polled;               /* frames that the loop has read in this turn */
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
/* Sends a RESULT whose value is that pickle, of an object that somebody holds. Likewise. */
PyObject *agx_channel_send_apart(agx_channel *self, agx_view call_id, const agx_scalars_apart *pickle);

/* channel_procs.c */

/* A frame about a process, into `processes`: the frame object, which says that there is something. */
PyObject *agx_channel_put_process(agx_channel *self, const agx_frame *frame);
PyObject *agx_channel_start_process(agx_channel *self, PyObject *args);
PyObject *agx_channel_send_process(agx_channel *self, PyObject *args);
extern const char agx_channel_start_process_doc[], agx_channel_send_process_doc[];

/* serve.c */

/* The function of a call whose target is known, still what it was, and async: borrowed, or NULL. */
PyObject *agx_channel_async_function(agx_channel *self, PyObject *call);
/* Gives the call to Python's rest(); takes `what` over, which may be NULL: then it is the exception just raised. */
void agx_channel_leave_to_rest(agx_channel *self, agx_ext_call *call, const char *stage, PyObject *what);
/* (args, kwargs) of a call; NULL: it is Python's by now. */
PyObject *agx_channel_load(agx_channel *self, agx_ext_call *call);
/* A context of its own. NULL with an exception set. */
PyObject *agx_channel_context(agx_channel *self, agx_ext_call *call);
/* Ends a call, in the loop's thread, with what its async target returned; NULL, or the coroutine by which it goes on. */
PyObject *agx_channel_finish_async(agx_channel *self, agx_ext_call *call, PyObject *value);
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

/* task.c */

/* Begins a call that the loop has read. False, and nothing done, if it does not fit the short way. */
bool agx_channel_begin_async(agx_channel *self, agx_ext_call *call, PyObject *function);
PyObject *agx_channel_use_loop(agx_channel *self, PyObject *loop);
extern const char agx_channel_use_loop_doc[];
/* call_soon() of a loop on which a task is being made. */
PyObject *agx_channel_catch(agx_channel *self, PyObject *args, PyObject *kwargs);
PyObject *agx_channel_async_type(PyObject *module);
int agx_channel_traverse_task(agx_channel *self, visitproc visit, void *arg);
void agx_channel_clear_task(agx_channel *self);

#endif
