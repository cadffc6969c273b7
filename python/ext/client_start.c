/* How a call begins: what was asked becomes a call of the brain's and a Pending, and is sent, now or with what the other
 * tasks that are being resumed ask for (client_turn.c). */
#include "client.h"

#include "proto/limits.h"

static agx_view bytes_view(PyObject *bytes)
{
        char *p;
        Py_ssize_t n;

        if (PyBytes_AsStringAndSize(bytes, &p, &n) < 0)
                return AGX_VIEW_NULL;
        return agx_view_of(p, (size_t)n);
}

/* Before a call is given to a connection: notice those that the server has closed while we did not look. */
static uint64_t look(client_core *core)
{
        uint64_t now = client_now();

        if (now - core->used_ms > CLIENT_IDLE_MS)
                client_links_read(core, false);
        core->used_ms = now;
        return now;
}

/* Whether what is begun here can wait until the task that is being resumed gives way: not if that has begun a task which
 * takes its first step on the spot, and itself goes on. */
static bool is_sent_later(client_core *core)
{
        return core->resuming && core->eager && PyObject_Size(core->eager) == 0;
}

static client_pending *begun(client_core *core, client_pending *p, int r, agx_client_call *call)
{
        if (r < 0) {
                Py_DECREF((PyObject *)p);
                PyErr_NoMemory();
                return NULL;
        }
        client_pending_enter(p, call);
        if (!is_sent_later(core) && client_process(core, false) < 0)
                Py_CLEAR(p);
        return p;
}

static void refuse(client_core *core)
{
        PyObject *error = PyObject_CallMethodObjArgs(core->shell, core->s_refusal, NULL);

        if (error)
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
}

/* What is sent: bytes, or three of them in a tuple. */
static void parts_view(PyObject *arguments, agx_view parts[3])
{
        parts[0] = parts[2] = AGX_VIEW_NULL;
        if (!PyTuple_Check(arguments)) {
                parts[1] = bytes_view(arguments);
                return;
        }
        for (int i = 0; i < 3; ++i)
                parts[i] = bytes_view(PyTuple_GetItem(arguments, i));
}

client_pending *client_start(client_core *core, PyObject *name, PyObject *arguments, PyObject *context)
{
        agx_client_call *call = NULL;
        client_pending *p;
        agx_view parts[3];
        const char *text;
        Py_ssize_t size;
        int r;

        if (core->closed) {
                refuse(core);
                return NULL;
        }
        text = PyUnicode_AsUTF8AndSize(name, &size);
        p = text && client_bind(core) == 0 ? client_pending_new(core, name, arguments, context) : NULL;
        if (!p)
                return NULL;
        parts_view(arguments, parts);
        r = agx_client_start_parts(core->client, agx_view_of(text, (size_t)size), parts,
                                   context ? bytes_view(context) : AGX_VIEW_NULL, AGX_CLIENT_STREAM_WINDOW,
                                   core->allowed_ms, p, look(core), &call);
        return begun(core, p, r, call);
}

PyObject *client_ask(client_core *core, client_question question)
{
        client_pending *p = client_bind(core) < 0 ? NULL : client_pending_new(core, NULL, NULL, NULL);
        agx_client_call *call = NULL;
        int r;

        if (!p)
                return NULL;
        r = question(core->client, p, client_now(), &call);
        return (PyObject *)begun(core, p, r, call);
}
