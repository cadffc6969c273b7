/* Side channels of a client: what Python names, says and hears on them. Events are handed to the shell as they come; what
 * it does with them must be little, since calls wait behind it. */
#include "client.h"

#include <errno.h>

static PyObject *text_of(agx_view v)
{
        return PyUnicode_DecodeUTF8(v.p ? v.p : "", (Py_ssize_t)v.n, "replace");
}

static void hear(client_core *core, const agx_client_event *e)
{
        PyObject *nsp = text_of(e->nsp), *name = text_of(e->name), *method = NULL, *r = NULL;

        if (nsp && name)
                method = PyObject_GetAttr(core->shell, core->s_hear);
        if (method)
                r = PyObject_CallFunction(method, "iOOy#nKK", (int)e->kind, nsp, name, e->payload.p,
                                          (Py_ssize_t)e->payload.n, (Py_ssize_t)e->skip, (unsigned long long)e->last,
                                          (unsigned long long)e->lost);
        if (!r)
                PyErr_WriteUnraisable(core->shell);
        Py_XDECREF(r);
        Py_XDECREF(method);
        Py_XDECREF(nsp);
        Py_XDECREF(name);
}

void client_side_hand_out(client_core *core)
{
        agx_client_event *e;

        while (core->shell && (e = agx_client_next_event(core->client))) {
                hear(core, e);
                agx_client_event_free(e);
        }
}

static PyObject *outcome(client_core *core, int r)
{
        if (r == -ENOMEM)
                return PyErr_NoMemory();
        if (r < 0)
                return PyErr_Format(PyExc_ValueError, "no such side channel, or one that cannot be");
        if (client_process(core, false) < 0)
                return NULL;
        return PyLong_FromLong(r);
}

PyObject *client_side_instance(PyObject *self, void *closure)
{
        (void)closure;
        return text_of(agx_client_linked_instance(((client_core *)self)->client));
}

PyObject *client_side_join(PyObject *self, PyObject *args)
{
        client_core *core = (client_core *)self;
        const char *nsp;
        Py_ssize_t n;
        int stream;

        if (!PyArg_ParseTuple(args, "s#p:join", &nsp, &n, &stream))
                return NULL;
        return outcome(core, agx_client_join(core->client, agx_view_of(nsp, (size_t)n), stream, client_now()));
}

PyObject *client_side_emit(PyObject *self, PyObject *args)
{
        client_core *core = (client_core *)self;
        const char *nsp, *name;
        Py_ssize_t n_nsp, n_name;
        Py_buffer payload;
        int r;

        if (!PyArg_ParseTuple(args, "s#s#y*:emit", &nsp, &n_nsp, &name, &n_name, &payload))
                return NULL;
        r = agx_client_emit(core->client, agx_view_of(nsp, (size_t)n_nsp), agx_view_of(name, (size_t)n_name),
                            agx_view_of(payload.buf, (size_t)payload.len), client_now());
        PyBuffer_Release(&payload);
        return outcome(core, r);
}

PyObject *client_side_dealt(PyObject *self, PyObject *args)
{
        client_core *core = (client_core *)self;
        unsigned long long seq;
        const char *nsp;
        Py_ssize_t n;

        if (!PyArg_ParseTuple(args, "s#K:dealt", &nsp, &n, &seq))
                return NULL;
        agx_client_dealt(core->client, agx_view_of(nsp, (size_t)n), seq, client_now());
        return outcome(core, 0);
}

PyObject *client_side_taken(PyObject *self, PyObject *number)
{
        client_core *core = (client_core *)self;
        size_t n = PyLong_AsSize_t(number);

        if (n == (size_t)-1 && PyErr_Occurred())
                return NULL;
        agx_client_taken(core->client, n, client_now());
        return outcome(core, 0);
}

PyObject *client_side_hurry(PyObject *self, PyObject *ignored)
{
        client_core *core = (client_core *)self;

        (void)ignored;
        agx_client_hurry(core->client, client_now());
        return outcome(core, 0);
}

PyObject *client_side_need_link(PyObject *self, PyObject *needed)
{
        client_core *core = (client_core *)self;
        int on = PyObject_IsTrue(needed);

        if (on < 0)
                return NULL;
        agx_client_need_link(core->client, on != 0, client_now());
        return outcome(core, 0);
}

PyObject *client_side_joined(PyObject *self, PyObject *nsp)
{
        client_core *core = (client_core *)self;
        Py_ssize_t n;
        const char *text = PyUnicode_AsUTF8AndSize(nsp, &n);

        if (!text)
                return NULL;
        return PyLong_FromLong(agx_client_is_joined(core->client, agx_view_of(text, (size_t)n)));
}
