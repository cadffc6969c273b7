/* What came from a runtime becomes objects. Small values are copied, large ones keep the buffer they came in. */
#include "client.h"

typedef struct body {
        PyObject_HEAD
        agx_buf buf;
        agx_view value;
} body;

static int body_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
        body *b = (body *)self;

        return PyBuffer_FillInfo(view, self, (void *)b->value.p, (Py_ssize_t)b->value.n, 1, flags);
}

static void body_dealloc(PyObject *self)
{
        PyTypeObject *type = Py_TYPE(self);

        agx_buf_deinit(&((body *)self)->buf);
        PyObject_Free(self);
        Py_DECREF(type);
}

static PyType_Slot body_slots[] = {
        {Py_tp_dealloc, (void *)body_dealloc},
        {Py_bf_getbuffer, (void *)body_getbuffer},
        {0, NULL},
};

static PyType_Spec body_spec = {
        .name = "agentix._core.Body",
        .basicsize = sizeof(body),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = body_slots,
};

PyObject *client_body_type(PyObject *module)
{
        return PyType_FromModuleAndSpec(module, &body_spec, NULL);
}

PyObject *client_value_take(client_core *core, agx_buf *bytes, agx_view value)
{
        body *b;
        PyObject *view;

        if (value.n <= CLIENT_SCRATCH)
                return PyBytes_FromStringAndSize(value.p, (Py_ssize_t)value.n);
        b = PyObject_New(body, (PyTypeObject *)core->body_type);
        if (!b)
                return NULL;
        b->buf = *bytes;
        *bytes = AGX_BUF_NULL(0);
        b->value = value;
        view = PyMemoryView_FromObject((PyObject *)b);
        Py_DECREF((PyObject *)b);
        return view;
}
