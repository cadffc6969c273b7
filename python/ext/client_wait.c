/* Waiting for a reply without a turn of the loop.
 *
 * When a task awaits the only call that is under way and its loop has nothing else to run, the loop's next turn would be
 * a wait for descriptors and timers that ends with this very reply, and then a walk through the loop's bookkeeping back
 * to the task. So that wait is done here, on the loop's own epoll descriptor and no longer than its next timer allows.
 * Whatever else comes of it - another descriptor (a callback from another thread, a signal and a child's end come as
 * one), a signal handler, time - is left where it is for the loop, to which the task then gives way as ever. Nothing is
 * run late by it, and nothing that would have run before the reply is run after it.
 *
 * It is done on asyncio's own loop only (shell.inside), not in debug mode, which times how long tasks hold the loop up,
 * not in a program that handles signals by which others stop it, and only in a task that is not about to be cancelled
 * and was begun by the loop: one that its creator steps eagerly must come back to him. */
#include "client.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

enum {
        LONGEST_MS = 50, /* in one go; a longer call is waited for by the loop */
        ROUNDS = 64,     /* reads of one reply, likewise */
        LOOK_EVERY = 64, /* waits from one look at what handles signals to the next */
};

void client_wait_unbind(client_core *core)
{
        core->epoll = -1;
        Py_CLEAR(core->ready);
        Py_CLEAR(core->tasks);
        Py_CLEAR(core->eager);
}

void client_wait_bind(client_core *core)
{
        PyObject *inside;

        client_wait_unbind(core);
        inside = PyObject_CallMethodObjArgs(core->shell, core->s_inside, core->loop, NULL);
        if (inside && inside != Py_None &&
            PyArg_ParseTuple(inside, "iOO!O", &core->epoll, &core->ready, &PyDict_Type, &core->tasks, &core->eager)) {
                Py_INCREF(core->ready);
                Py_INCREF(core->tasks);
                Py_INCREF(core->eager);
        } else {
                core->epoll = -1;
                core->ready = core->tasks = core->eager = NULL;
        }
        if (!inside || PyErr_Occurred())
                PyErr_Clear(); /* a loop that looks otherwise than we know it */
        Py_XDECREF(inside);
}

/* What a signal handler raises leaves the loop if it waits in select, and is logged and dropped if it runs a task: so a
 * program that handles a signal by which others stop it is left to wait as ever. SIGINT's exception leaves either way. */
static bool signals_are_unhandled(client_core *core)
{
        static const int looked_at[] = {SIGALRM, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF};

        if (core->waits++ % LOOK_EVERY)
                return !core->signals_handled;
        core->signals_handled = false;
        for (size_t i = 0; i < sizeof(looked_at) / sizeof(looked_at[0]); ++i) {
                struct sigaction action;

                if (sigaction(looked_at[i], NULL, &action) ||
                    (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN))
                        core->signals_handled = true;
        }
        return !core->signals_handled;
}

/* Whether an attribute is False, and not just something like it or missing. */
static bool is_false(PyObject *owner, PyObject *name)
{
        PyObject *value = PyObject_GetAttr(owner, name);

        Py_XDECREF(value);
        return value == Py_False;
}

static bool is_task_at_ease(client_core *core)
{
        PyObject *task = PyDict_GetItemWithError(core->tasks, core->loop);

        return task && is_false(task, core->s__must_cancel);
}

static bool is_loop_at_ease(client_core *core)
{
        return signals_are_unhandled(core) && PyObject_Size(core->ready) == 0 && PyObject_Size(core->eager) == 0 &&
               is_false(core->loop, core->s__stopping) && is_false(core->loop, core->s__debug) && is_task_at_ease(core);
}

static double seconds_now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* When the loop's next timer is due; negative: not to be found out. */
static double due(client_core *core)
{
        PyObject *timers = PyObject_GetAttr(core->loop, core->s__scheduled), *when = NULL;
        double seconds = timers && PyList_CheckExact(timers) ? (double)INFINITY : -1;

        if (seconds > 0 && PyList_Size(timers) > 0) {
                when = PyObject_GetAttr(PyList_GetItem(timers, 0), core->s__when);
                seconds = when ? PyFloat_AsDouble(when) : -1;
        }
        Py_XDECREF(timers);
        Py_XDECREF(when);
        return seconds;
}

/* How long may be waited: whole milliseconds, not beyond the timer. */
static int allowed(client_core *core)
{
        double left = (due(core) - seconds_now()) * 1000;

        return left >= LONGEST_MS ? LONGEST_MS : left >= 1 ? (int)left : 0;
}

/* The connection on which the reply is to come and nothing is left to be written, or NULL. */
static client_link *link_of(const client_pending *p)
{
        agx_client_conn *conn = p->call ? agx_client_call_conn(p->call) : NULL;
        client_link *link = conn ? agx_client_conn_user(conn) : NULL;

        return link && link->fd >= 0 && link->reading && !link->writing && !link->connecting ? link : NULL;
}

/* Waits; true if the loop would find nothing but something to read on `fd`. */
static bool comes_alone(int epoll, int fd, int ms)
{
        struct epoll_event events[2];
        int n;

        Py_BEGIN_ALLOW_THREADS n = epoll_wait(epoll, events, 2, ms);
        Py_END_ALLOW_THREADS return n == 1 && events[0].data.fd == fd && events[0].events == EPOLLIN;
}

static bool is_next(client_core *core, client_link *link)
{
        int ms = is_loop_at_ease(core) ? allowed(core) : 0;

        if (PyErr_Occurred())
                PyErr_Clear(); /* as above */
        return ms > 0 && comes_alone(core->epoll, link->fd, ms);
}

int client_wait(client_core *core, client_pending *p)
{
        for (int i = 0; i < ROUNDS && core->epoll >= 0 && !p->done; ++i) {
                bool alone = core->pending == p && !p->next;
                client_link *link;

                if (alone && core->resuming)
                        client_carry_out(core); /* nobody else asks for anything, so it is sent now */
                link = alone ? link_of(p) : NULL;
                if (!link || !is_next(core, link))
                        return 0;
                client_link_read(core, link);
                if (client_process_all(core) < 0)
                        return -1;
        }
        return 0;
}
