/* agentix._core.ClientCore: what its files share.
 *
 *     client.c          the type ClientCore: what Python and the loop call
 *     client_life.c     its beginning and its end
 *     client_bind.c     the loop and the process it belongs to
 *     client_turn.c     a turn: wishes carried out, finished calls handed out, the timer
 *     client_start.c    how a call begins
 *     client_links.c    connections: descriptors or transports under the brain's wishes
 *     client_call.c     the type RemoteCall: what remote() returns
 *     client_pending.c  the type Pending: what a call awaits
 *     client_wait.c     waiting for a reply without a turn of the loop
 *     client_value.c    what came becomes objects
 *     client_items.c    calls that turn out to be streams
 *     client_side.c     side channels
 *
 * Everything runs on the thread of the bound event loop, with the interpreter held. */
#ifndef AGX_EXT_CLIENT_H
#define AGX_EXT_CLIENT_H

#include "state.h"

#include <sys/types.h>

#include "client/session.h"

enum {
        CLIENT_SCRATCH = 64 * 1024,
        CLIENT_IDLE_MS = 50 /* after such a pause connections may have ended without our knowing */
};

typedef struct agx_ext_client client_core;
typedef struct agx_ext_pending client_pending;
typedef struct agx_ext_link client_link;

/* A name of each object method we call, interned once. */
#define CLIENT_NAMES(X)                                                                                                \
        X(_debug)                                                                                                      \
        X(_must_cancel)                                                                                                \
        X(_scheduled)                                                                                                  \
        X(_stopping)                                                                                                   \
        X(_when)                                                                                                       \
        X(abort)                                                                                                       \
        X(add_reader)                                                                                                  \
        X(add_writer)                                                                                                  \
        X(call_later)                                                                                                  \
        X(call_soon)                                                                                                   \
        X(cancel)                                                                                                      \
        X(context)                                                                                                     \
        X(fail)                                                                                                        \
        X(hear)                                                                                                        \
        X(inside)                                                                                                      \
        X(is_closed)                                                                                                   \
        X(is_running)                                                                                                  \
        X(items_of)                                                                                                    \
        X(load)                                                                                                        \
        X(load_large)                                                                                                  \
        X(never_awaited)                                                                                               \
        X(open)                                                                                                        \
        X(origin)                                                                                                      \
        X(remove_reader)                                                                                               \
        X(remove_writer)                                                                                               \
        X(put)                                                                                                         \
        X(refusal)                                                                                                     \
        X(run)                                                                                                         \
        X(stream)                                                                                                      \
        X(write)

struct agx_ext_client {
        PyObject_HEAD
        agx_client *client;
        PyObject *shell;                /* Python's: _Shell in agentix/_client.py */
        PyObject *loop;                 /* NULL: none yet */
        PyObject *get_loop;             /* asyncio.get_running_loop */
        PyObject *cancelled_error;      /* asyncio.CancelledError */
        PyObject *copy_context;         /* contextvars.copy_context */
        PyObject *empty;                /* a contextvars.Context: callbacks must not hold a caller's variables */
        PyObject *known, *resolve;      /* names of targets: those that are known, and what finds one */
        PyObject *carriers, *capture;   /* of the ambient context: who has any, and what asks them */
        PyObject *dumps, *origin_depth; /* pickle.dumps, sys.get_coroutine_origin_tracking_depth */
        PyObject *call_type, *pending_type;
        PyObject *body_type;
        PyObject *on_readable, *on_writable, *on_timer;
        PyObject *timer; /* a TimerHandle, or NULL */
        uint64_t timer_ms;
        uint64_t used_ms; /* when it was last called */
#define X(name) PyObject *s_##name;
        CLIENT_NAMES(X)
#undef X
        PyObject *ready, *tasks, *eager; /* of the loop, see client_wait.c; NULL with epoll -1 */
        pid_t process;                   /* that made it */
        int epoll;
        unsigned waits;       /* in the loop's stead, so far */
        bool signals_handled; /* as of the last look */
        client_link **links;  /* by slot; NULL: free */
        size_t n_links;
        uint64_t n_opened;       /* serial numbers given out */
        client_pending *pending; /* those in flight, doubly linked, owned */
        bool resuming;           /* a task is being stepped inside one of our callbacks */
        unsigned long resumer;   /* by this thread */
        bool closed;             /* calls are refused, until it is set otherwise */
        uint64_t allowed_ms;     /* how long a call may take; UINT64_MAX: no bound */
        Py_ssize_t load_here;    /* larger values, in bytes, are loaded in a thread */
        bool loop_is_dead;       /* the bound loop was closed: it must not be called */
        struct {
                int family; /* AF_UNSPEC: the shell opens connections */
                unsigned char bytes[128];
                size_t size;
        } address;
        char scratch[CLIENT_SCRATCH];
};

struct agx_ext_link {
        agx_client_conn *conn; /* NULL: the brain has let go of it */
        uint64_t serial;
        size_t slot;
        int fd;              /* -1: none */
        PyObject *transport; /* NULL: none */
        bool connecting, reading, writing, paused;
};

struct agx_ext_pending {
        PyObject_HEAD
        client_core *core;
        client_pending *prev, *next;          /* in core->pending while in flight */
        agx_client_call *call;                /* NULL: no longer in flight */
        PyObject *name, *arguments, *context; /* what the brain borrows */
        PyObject *value;                      /* the outcome, or: */
        PyObject *error;                      /* an exception */
        PyObject *stream;                     /* a weak reference to what takes its items, or NULL */
        bool done, cancelled, blocking;
        PyObject *callback, *callback_context; /* the first */
        PyObject *callbacks;                   /* further ones: a list of (callback, context), or NULL */
};

/* client_turn.c */
uint64_t client_now(void);
/* Carries out wishes and hands out finished calls. `direct`: called by the loop, with no task running, so tasks may be
 * resumed on the spot. 0, or -1 with an exception that ended a task and must leave the loop. */
int client_process(client_core *core, bool direct);
/* Not `direct`, and of all that have finished, also inside of a task that is being resumed. */
int client_process_all(client_core *core);
/* Wishes alone: what is to be sent, opened and closed. */
void client_carry_out(client_core *core);
void client_disarm(client_core *core);

/* client_bind.c */
/* The number of this process, without asking the kernel. */
pid_t client_here(void);
/* Before client_here() is asked: 0, or -1 with an exception. */
int client_watch_forks(void);
/* To the loop that runs, as it must be for whatever is begun: 0, or -1 with an exception. */
int client_bind(client_core *core);
/* Ends whatever is in flight. */
int client_let_go(client_core *core, const char *why);
/* What `method` of a loop says: 0, 1, or -1 with an exception. */
int client_ask_loop(PyObject *loop, PyObject *method);

/* client_life.c */
PyObject *client_core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
int client_core_traverse(PyObject *self, visitproc visit, void *arg);
int client_core_clear(PyObject *self);
void client_core_dealloc(PyObject *self);

/* client_links.c */
int client_link_open(client_core *core, agx_client_conn *conn);
void client_link_write(client_core *core, agx_client_conn *conn);
void client_link_close(client_core *core, agx_client_conn *conn);
void client_link_read(client_core *core, client_link *link);
/* Reads what has come on those that await a reply (`busy`) or on those that do not: their ends, as a rule. */
void client_links_read(client_core *core, bool busy);
void client_links_free(client_core *core);
client_link *client_link_of(client_core *core, uint64_t serial);
void client_link_opened(client_core *core, client_link *link, int fd, PyObject *transport);
void client_link_writable(client_core *core, client_link *link);

/* client_items.c */
/* Items came: the stream that takes them gets them; a call that has none yet is answered with one. As client_process(). */
int client_items_hand_out(client_core *core, agx_client_call *call, bool direct);
/* consumed(n, bytes) of Pending. */
PyObject *client_items_consumed(PyObject *pending, PyObject *args);

/* client_value.c */
PyObject *client_value_take(client_core *core, agx_buf *body, agx_view value);
/* Likewise of one from which bytes have landed, which are taken over. */
PyObject *client_value_landed(client_core *core, agx_client_landed *landed, agx_buf *body, agx_view value);

/* client_side.c */
void client_side_hand_out(client_core *core);
PyObject *client_side_instance(PyObject *self, void *closure);
PyObject *client_side_join(PyObject *self, PyObject *args);
PyObject *client_side_emit(PyObject *self, PyObject *args);
PyObject *client_side_dealt(PyObject *self, PyObject *args);
PyObject *client_side_taken(PyObject *self, PyObject *number);
PyObject *client_side_hurry(PyObject *self, PyObject *ignored);
PyObject *client_side_need_link(PyObject *self, PyObject *needed);
PyObject *client_side_joined(PyObject *self, PyObject *nsp);

/* client_start.c */
/* Begins a call: its Pending. What it is given must be held until that is done. NULL with an exception. */
client_pending *client_start(client_core *core, PyObject *name, PyObject *arguments, PyObject *context);
/* What is asked of the runtime without a target: its health, or a connection. */
typedef int (*client_question)(agx_client *client, void *user, uint64_t now_ms, agx_client_call **call);
PyObject *client_ask(client_core *core, client_question question);

/* client_wait.c */
/* The loop has become another one, or none. */
void client_wait_bind(client_core *core);
void client_wait_unbind(client_core *core);
/* Waits for the end of a call that was just begun, if the loop would do nothing else. 0, whether it has ended or not, or
 * -1 as client_process(). */
int client_wait(client_core *core, client_pending *pending);

/* client_call.c */
PyObject *client_call_make(PyObject *core, PyObject *const *args, Py_ssize_t n);
PyObject *client_call_type(PyObject *module);

/* client_pending.c */
client_pending *client_pending_new(client_core *core, PyObject *name, PyObject *arguments, PyObject *context);
void client_pending_enter(client_pending *pending, agx_client_call *call);
/* Its call goes on under another; it ends with `value`, which is taken over. */
void client_pending_hand_over(client_pending *pending, client_pending *other, PyObject *value);
/* Its outcome: a new reference, or NULL with the exception. */
PyObject *client_pending_take(client_pending *pending);
/* Nobody waits for it any more: the call is abandoned, if it has not ended. As client_process(). */
int client_pending_leave(client_pending *pending);
/* Raises StopIteration with a value, which is given away: NULL. */
PyObject *client_stop_with(PyObject *value);
/* Ends with the exception that was just raised; the call is abandoned. */
void client_pending_fail(client_pending *pending);
/* The call is done: takes the outcome over. */
void client_pending_deliver(client_pending *pending, agx_client_call *call);
/* Wakes whoever waits; 0, or -1 with an exception, as client_process(). */
int client_pending_wake(client_pending *pending, bool direct);
PyObject *client_pending_type(PyObject *module);

#endif
