/*
 * Large bytes of a reply are received into an object, which grows as they come. A bytes object that nobody has seen yet may be made
 * larger, by a function that is documented and older than any Python we run on, but is not declared to extensions for many
 * versions. So it is looked up, and without it no bytes land. An object's room follows what has come, so one that is
 * whole is as long as was announced, and never has to be made shorter.
 *
 * A Body is a value that is large: what is left of its pickle, and the object. The restricted loader knows it; to everybody
 * else it is a buffer with the pickle as it was sent, put together when it is asked for.
 */
#include "landed.h"

#include "large.h"

#include "base/huge.h"

#include <dlfcn.h>
#include <string.h>

typedef struct body {
        PyObject_HEAD
        agx_buf buf;
        agx_view value;
        agx_client_landed landed;
        PyObject *joined; /* bytes: the pickle as it came, once it was asked for */
} body;

/* ---- large bytes ---- */

static int (*resize_of_bytes)(PyObject **bytes, Py_ssize_t n); /* NULL: there is none */

static void find_functions(void)
{
        void *found = dlsym(RTLD_DEFAULT, "_PyBytes_Resize");

        memcpy(&resize_of_bytes, &found, sizeof(resize_of_bytes));
}

/* A mapping that is named as a whole, the zero behind the bytes included, can be moved as one. */
static void *resize_bytes(PyObject *bytes, size_t n, char **data)
{
        if (!resize_of_bytes)
                return NULL;
        if (!bytes)
                bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
        else
                resize_of_bytes(&bytes, (Py_ssize_t)n);
        if (!bytes) {
                PyErr_Clear();
                return NULL;
        }
        *data = PyBytes_AsString(bytes);
        agx_huge(*data, n + 1);
        return bytes;
}

static void *resize_bytearray(PyObject *array, size_t n, char **data)
{
        if (!array)
                array = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)n);
        else if (PyByteArray_Resize(array, (Py_ssize_t)n) < 0)
                Py_CLEAR(array);
        if (!array) {
                PyErr_Clear();
                return NULL;
        }
        *data = PyByteArray_AsString(array);
        agx_huge(*data, n + 1);
        return array;
}

static void *resize(void *object, agx_landing_kind kind, size_t n, char **data)
{
        if (n > PY_SSIZE_T_MAX) {
                Py_XDECREF((PyObject *)object);
                return NULL;
        }
        return kind == AGX_LANDING_BYTES ? resize_bytes(object, n, data) : resize_bytearray(object, n, data);
}

static void drop(void *object)
{
        Py_DECREF((PyObject *)object);
}

const agx_landing_memory agx_landed_memory = {.resize = resize, .drop = drop};

static agx_view bytes_of(PyObject *object)
{
        if (PyBytes_CheckExact(object))
                return agx_view_of(PyBytes_AsString(object), (size_t)PyBytes_Size(object));
        return agx_view_of(PyByteArray_AsString(object), (size_t)PyByteArray_Size(object));
}

/* ---- Body ---- */

static PyObject *join(const body *b)
{
        const agx_client_landed *l = &b->landed;
        agx_view before = agx_view_first(b->value, l->at), after = agx_view_from(b->value, l->at + 1);
        agx_view large = bytes_of(l->object);
        PyObject *pickle = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(before.n + l->n_head + large.n + after.n));
        char *to = pickle ? PyBytes_AsString(pickle) : NULL;

        if (!to)
                return NULL;
        memcpy(to, before.p, before.n);
        to += before.n;
        memcpy(to, l->head, l->n_head);
        to += l->n_head;
        agx_ext_copy(to, large);
        memcpy(to + large.n, after.p, after.n);
        return pickle;
}

static int body_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
        body *b = (body *)self;
        agx_view v = b->value;

        if (b->landed.object) {
                if (!b->joined)
                        b->joined = join(b);
                if (!b->joined)
                        return -1;
                v = bytes_of(b->joined);
        }
        return PyBuffer_FillInfo(view, self, (void *)(uintptr_t)v.p, (Py_ssize_t)v.n, 1, flags);
}

/* Of what takes time to load. */
static Py_ssize_t body_length(PyObject *self)
{
        return (Py_ssize_t)((body *)self)->value.n;
}

static void body_dealloc(PyObject *self)
{
        PyTypeObject *type = Py_TYPE(self);
        body *b = (body *)self;

        agx_buf_deinit(&b->buf);
        Py_XDECREF((PyObject *)b->landed.object);
        Py_XDECREF(b->joined);
        PyObject_Free(self);
        Py_DECREF(type);
}

bool agx_landed_parts(PyObject *value, agx_unpickle_landed *parts)
{
        const body *b = (const body *)value;

        if (PyType_GetSlot(Py_TYPE(value), Py_tp_dealloc) != (void *)body_dealloc || !b->landed.object)
                return false;
        *parts = (agx_unpickle_landed){.pickle = b->value,
                                       .object = b->landed.object,
                                       .at = b->landed.at,
                                       .code = b->landed.head[0],
                                       .more = b->landed.n_head - 1 + b->landed.size};
        return true;
}

static PyType_Slot body_slots[] = {
        {Py_tp_dealloc, (void *)body_dealloc},
        {Py_bf_getbuffer, (void *)body_getbuffer},
        {Py_sq_length, (void *)body_length},
        {0, NULL},
};

static PyType_Spec body_spec = {
        .name = "agentix._core.Body",
        .basicsize = sizeof(body),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = body_slots,
};

PyObject *agx_landed_type(PyObject *module)
{
        find_functions();
        return PyType_FromModuleAndSpec(module, &body_spec, NULL);
}

PyObject *agx_landed_body(PyObject *type, agx_buf *bytes, agx_view value, const agx_client_landed *landed)
{
        body *b = PyObject_New(body, (PyTypeObject *)type);

        if (!b) {
                if (landed)
                        drop(landed->object);
                return NULL;
        }
        b->buf = *bytes;
        *bytes = AGX_BUF_NULL(0);
        b->value = value;
        b->landed = landed ? *landed : (agx_client_landed){.object = NULL};
        b->joined = NULL;
        return (PyObject *)b;
}
