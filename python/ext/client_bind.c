/* The loop and the process that a client belongs to.
 *
 * It is bound to the loop of its first call. A later call from another loop rebinds it, provided the old one has ended
 * or stands still: connections are begun anew, calls still in flight fail. In a forked child it is of no use. */
#include "client.h"

#include <pthread.h>
#include <unistd.h>

static pid_t this_process; /* the number of this process */

static void look_where(void)
{
        this_process = getpid();
}

pid_t client_here(void)
{
        return this_process;
}

/* Once a process: a second module is that of a subinterpreter. */
int client_watch_forks(void)
{
        if (this_process)
                return 0;
        look_where();
        if (pthread_atfork(NULL, NULL, look_where) == 0)
                return 0;
        PyErr_NoMemory();
        return -1;
}

int client_ask_loop(PyObject *loop, PyObject *method)
{
        PyObject *r = PyObject_CallMethodObjArgs(loop, method, NULL);
        int yes = r ? PyObject_IsTrue(r) : -1;

        Py_XDECREF(r);
        return yes;
}

int client_let_go(client_core *core, const char *why)
{
        agx_client_shutdown(core->client, why, client_now());
        if (client_process(core, false) < 0)
                PyErr_Clear();
        client_disarm(core);
        return 0;
}

static int rebind(client_core *core, PyObject *loop)
{
        if (core->loop) {
                int closed = client_ask_loop(core->loop, core->s_is_closed);
                int running = closed == 0 ? client_ask_loop(core->loop, core->s_is_running) : 0;

                if (closed < 0 || running < 0)
                        return -1;
                if (running) {
                        PyErr_SetString(PyExc_RuntimeError, "this RuntimeClient is in use by another event loop");
                        return -1;
                }
                core->loop_is_dead = closed;
                client_let_go(core, "the event loop that the call was made on has ended");
        }
        core->loop_is_dead = false;
        Py_CLEAR(core->loop);
        core->loop = Py_NewRef(loop);
        client_wait_bind(core);
        return 0;
}

/* Two processes that number calls alike would get each other's values. */
static bool is_forked(const client_core *core)
{
        if (core->process == this_process)
                return false;
        PyErr_SetString(PyExc_RuntimeError,
                        "this RuntimeClient was made before this process was forked, and belongs to "
                        "the process that made it: make one in here");
        return true;
}

int client_bind(client_core *core)
{
        PyObject *loop;
        int r;

        if (is_forked(core))
                return -1;
        if (core->resuming && core->resumer == PyThread_get_thread_ident())
                return 0; /* the loop has called us */
        loop = PyObject_CallNoArgs(core->get_loop);
        r = !loop ? -1 : loop == core->loop ? 0 : rebind(core, loop);
        Py_XDECREF(loop);
        return r;
}
