/*
 * agentix._core.Conduit: the opening of a conduit, for the asyncio shell in agentix/_conduit.py.
 *
 * next() takes what came and says what is to be done: ("send", bytes), ("more", None), ("open", None),
 * ("refused", status) or ("broken", why). And the checksum of what is sent through one.
 */
#include "state.h"

#include "base/checksum.h"
#include "base/err.h"
#include "client/conduit.h"
#include "proto/limits.h"

typedef struct conduit_object {
        PyObject_HEAD
        agx_conduit conduit;
} conduit_object;

PyDoc_STRVAR(next_doc, "next(data: bytes, /) -> tuple\n--\n\nTakes what came, and says what is to be done.");

static PyObject *conduit_next(conduit_object *self, PyObject *args)
{
        agx_conduit *c = &self->conduit;
        const char *data;
        Py_ssize_t n;
        PyObject *wish;
        agx_view out;
        int r;

        if (!PyArg_ParseTuple(args, "y#:next", &data, &n))
                return NULL;
        r = agx_conduit_input(c, agx_view_of(data, (size_t)n));
        if (r < 0)
                return PyErr_NoMemory();
        if (r == AGX_CONDUIT_E_OPEN)
                return Py_BuildValue("(sO)", "open", Py_None);
        if (r == AGX_CONDUIT_E_REFUSED)
                return Py_BuildValue("(sI)", "refused", c->status);
        if (r)
                return Py_BuildValue("(ss)", "broken", c->why);
        out = agx_conduit_pending(c);
        wish = out.n ? Py_BuildValue("(sy#)", "send", out.p, (Py_ssize_t)out.n)
                     : Py_BuildValue("(sO)", "more", Py_None);
        agx_conduit_sent(c, out.n);
        return wish;
}

static PyObject *conduit_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"host", "prefix", "headers", "token", "secure", "name", "nonce", NULL};
        const char *host, *prefix, *headers, *token, *name, *nonce;
        Py_ssize_t host_n, prefix_n, headers_n, token_n, name_n, nonce_n;
        agx_client_config config;
        conduit_object *self;
        int secure, r;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "s#s#y#z#ps#y#:Conduit", names, &host, &host_n, &prefix,
                                         &prefix_n, &headers, &headers_n, &token, &token_n, &secure, &name, &name_n,
                                         &nonce, &nonce_n))
                return NULL;
        if (nonce_n != AGX_CLIENT_NONCE_BYTES || name_n != AGX_CONDUIT_NAME)
                return PyErr_Format(PyExc_ValueError, "a nonce or a name of another length");
        self = (conduit_object *)PyType_GenericAlloc(type, 0);
        if (!self)
                return NULL;
        config = (agx_client_config){.host = agx_view_of(host, (size_t)host_n),
                                     .prefix = agx_view_of(prefix, (size_t)prefix_n),
                                     .headers = agx_view_of(headers, (size_t)headers_n),
                                     .token = token ? agx_view_of(token, (size_t)token_n) : AGX_VIEW_NULL,
                                     .secure = secure != 0};
        r = agx_conduit_init(&self->conduit, &config, agx_view_of(name, (size_t)name_n), (const uint8_t *)nonce);
        if (!r)
                return (PyObject *)self;
        Py_DECREF(self);
        return r == -EINVAL ? PyErr_Format(PyExc_ValueError, "a text that cannot be sent") : PyErr_NoMemory();
}

static void conduit_dealloc(conduit_object *self)
{
        PyTypeObject *type = Py_TYPE((PyObject *)self);

        agx_conduit_deinit(&self->conduit);
        PyObject_Free(self);
        Py_DECREF(type);
}

static PyMethodDef conduit_methods[] = {
        {"next", (PyCFunction)(void (*)(void))conduit_next, METH_VARARGS, next_doc},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot conduit_slots[] = {
        {Py_tp_new, (void *)conduit_new},
        {Py_tp_dealloc, (void *)conduit_dealloc},
        {Py_tp_methods, conduit_methods},
        {Py_tp_doc, (void *)"Conduit(*, host, prefix, headers, token, secure, name, nonce)\n--\n\nThe opening of a "
                            "conduit: a connection that the server gives to its worker."},
        {0, NULL},
};

static PyType_Spec conduit_spec = {
        .name = "agentix._core.Conduit",
        .basicsize = sizeof(conduit_object),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = conduit_slots,
};

PyDoc_STRVAR(checksum_doc, "checksum(data, /) -> int\n--\n\nA quick checksum of 64 bits (src/base/checksum.h), beside "
                           "other threads.");

static PyObject *checksum(PyObject *module, PyObject *args)
{
        Py_buffer data;
        uint64_t sum;

        (void)module;
        if (!PyArg_ParseTuple(args, "y*:checksum", &data))
                return NULL;
        Py_BEGIN_ALLOW_THREADS;
        sum = agx_checksum(agx_view_of(data.buf, (size_t)data.len));
        Py_END_ALLOW_THREADS;
        PyBuffer_Release(&data);
        return PyLong_FromUnsignedLongLong(sum);
}

static PyMethodDef conduit_functions[] = {
        {"checksum", checksum, METH_VARARGS, checksum_doc},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_conduit(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &conduit_spec, NULL);
        int r = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;

        Py_XDECREF(type);
        return r ? r : PyModule_AddFunctions(module, conduit_functions);
}
