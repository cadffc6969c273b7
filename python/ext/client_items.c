/* Calls that turn out to be streams. Whoever awaits such a call gets a stream, made by Python, as soon as its first items
 * come; from then on the call goes on under a Pending of the stream's own, which ends as the stream does.
 *
 * The stream is held weakly, so that one that nobody iterates any more is not kept by its own call. */
#include "client.h"

static int add_item(client_core *core, agx_client_call *call, PyObject *list, bool *more)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(0);
        PyObject *item;
        agx_view value;
        int r;

        *more = agx_client_call_next_item(core->client, call, &body, &value);
        if (!*more)
                return 0;
        item = client_value_take(core, &body, value);
        r = item ? PyList_Append(list, item) : -1;
        Py_XDECREF(item);
        return r;
}

/* All that have come, in a list. */
static PyObject *take_items(client_core *core, agx_client_call *call)
{
        PyObject *list = PyList_New(0);
        bool more = true;

        while (list && more)
                if (add_item(core, call, list, &more) < 0)
                        Py_CLEAR(list);
        return list;
}

/* The stream for a call that has none yet; its Pending is flying then, and p has ended with the stream. */
static PyObject *begin_stream(client_core *core, client_pending *p)
{
        client_pending *own = client_pending_new(core, p->name, NULL, NULL);
        PyObject *stream = NULL;

        if (own)
                stream = PyObject_CallMethodObjArgs(core->shell, core->s_stream, (PyObject *)own, NULL);
        if (stream)
                own->stream = PyWeakref_NewRef(stream, NULL);
        if (stream && own->stream)
                client_pending_hand_over(p, own, Py_NewRef(stream));
        else
                Py_CLEAR(stream);
        Py_XDECREF((PyObject *)own);
        return stream;
}

static int put(client_core *core, PyObject *stream, PyObject *items)
{
        PyObject *r = PyObject_CallMethodObjArgs(stream, core->s_put, items, NULL);

        Py_XDECREF(r);
        return r ? 0 : -1;
}

int client_items_hand_out(client_core *core, agx_client_call *call, bool direct)
{
        client_pending *p = agx_client_call_user(call);
        PyObject *items = take_items(core, call), *stream = NULL;
        int r = -1;

        Py_INCREF((PyObject *)p);
        if (items)
                stream = p->stream ? PyObject_CallNoArgs(p->stream) : begin_stream(core, p);
        if (stream)
                r = stream == Py_None ? 0 : put(core, stream, items);
        if (r < 0)
                client_pending_fail(agx_client_call_user(call));
        r = p->done ? client_pending_wake(p, direct) : 0;
        Py_XDECREF(stream);
        Py_XDECREF(items);
        Py_DECREF((PyObject *)p);
        return r;
}

PyObject *client_items_consumed(PyObject *self, PyObject *args)
{
        client_pending *p = (client_pending *)self;
        unsigned long long n, bytes;

        if (!PyArg_ParseTuple(args, "KK:consumed", &n, &bytes))
                return NULL;
        if (!p->call)
                return Py_NewRef(Py_None);
        agx_client_consumed(p->core->client, p->call, n, (size_t)bytes, client_now());
        return client_process(p->core, false) < 0 ? NULL : Py_NewRef(Py_None);
}
