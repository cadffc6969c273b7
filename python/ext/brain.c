/*
 * agentix._core.Brain: a provider's brain for the asyncio shell in agentix/provider/_drive.py.
 *
 * next() gives the wish of the moment as a dict with only the keys that it has; event() reports what came of it.
 */
#include "brain.h"

#include "base/err.h"

#include <math.h>
#include <time.h>

typedef struct brain_object {
        PyObject_HEAD
        agx_brain *brain;
} brain_object;

static const char *const wish_names[] = {
        [AGX_WISH_WAIT] = "wait",   [AGX_WISH_RUN] = "run",   [AGX_WISH_START] = "start", [AGX_WISH_SIGNAL] = "signal",
        [AGX_WISH_PROBE] = "probe", [AGX_WISH_DONE] = "done", [AGX_WISH_GONE] = "gone",   [AGX_WISH_FAILED] = "failed",
};

static const char *const event_names[] = {
        [AGX_EVENT_EXITED] = "exited", [AGX_EVENT_SPAWN_FAILED] = "spawn_failed",
        [AGX_EVENT_READY] = "ready",   [AGX_EVENT_TIMER] = "timer",
        [AGX_EVENT_DELETE] = "delete", [AGX_EVENT_CANCEL] = "cancel",
};

enum { EVENT_COUNT = sizeof(event_names) / sizeof(event_names[0]) };

/* ---- wishes ---- */

/* Steals `value`, which may be NULL after an error. */
static int put(PyObject *dict, const char *key, PyObject *value)
{
        int r = value ? PyDict_SetItemString(dict, key, value) : -1;

        Py_XDECREF(value);
        return r;
}

static int put_path(PyObject *dict, const char *key, const char *text)
{
        return text ? put(dict, key, PyUnicode_DecodeFSDefault(text)) : 0;
}

static int put_list(PyObject *dict, const char *key, const agx_strv *items)
{
        PyObject *list;

        if (!items)
                return 0;
        list = PyList_New((Py_ssize_t)items->count);
        for (size_t i = 0; list && i < items->count; ++i) {
                PyObject *item = PyUnicode_DecodeFSDefault(items->items[i]);

                if (!item || PyList_SetItem(list, (Py_ssize_t)i, item))
                        Py_CLEAR(list);
        }
        return put(dict, key, list);
}

/* [(path, mode, content), ...] */
static int put_files(PyObject *dict, const agx_wish *wish)
{
        PyObject *list;

        if (!wish->file_count)
                return 0;
        list = PyList_New((Py_ssize_t)wish->file_count);
        for (size_t i = 0; list && i < wish->file_count; ++i) {
                const agx_wish_file *file = &wish->files[i];
                PyObject *item = Py_BuildValue("(NIy#)", PyUnicode_DecodeFSDefault(file->path), file->mode,
                                               file->content.p, (Py_ssize_t)file->content.n);

                if (!item || PyList_SetItem(list, (Py_ssize_t)i, item))
                        Py_CLEAR(list);
        }
        return put(dict, "files", list);
}

static PyObject *wish_dict(const agx_wish *wish)
{
        PyObject *dict = PyDict_New();

        if (!dict)
                return NULL;
        if (put(dict, "kind", PyUnicode_FromString(wish_names[wish->kind])) || put_list(dict, "argv", wish->argv) ||
            put_list(dict, "env", wish->env) || put_files(dict, wish) || put_path(dict, "cwd", wish->cwd) ||
            put_path(dict, "path", wish->path) || put_path(dict, "url", wish->url) ||
            put_path(dict, "token_file", wish->token_file) || put_path(dict, "message", wish->message) ||
            put(dict, "signal", PyLong_FromLong(wish->signal)) || put(dict, "bare", PyBool_FromLong(wish->bare)) ||
            put(dict, "timeout", PyFloat_FromDouble((double)wish->timeout_ms / 1000)))
                Py_CLEAR(dict);
        return dict;
}

PyDoc_STRVAR(next_doc, "next() -> dict\n--\n\nThe wish of the moment: kind, and what belongs to it.");

static PyObject *brain_next(brain_object *self, PyObject *unused)
{
        agx_wish wish;

        (void)unused;
        agx_brain_next(self->brain, &wish);
        return wish_dict(&wish);
}

PyDoc_STRVAR(event_doc, "event(kind: str, code: int = 0, text: bytes = b'')\n--\n\nReports what came of a wish.");

static uint64_t now_ms(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static PyObject *brain_event(brain_object *self, PyObject *args)
{
        agx_event event = {0};
        const char *kind, *text = "";
        Py_ssize_t n = 0;
        size_t i = 0;

        if (!PyArg_ParseTuple(args, "s|iy#:event", &kind, &event.code, &text, &n))
                return NULL;
        while (i < EVENT_COUNT && strcmp(event_names[i], kind) != 0)
                ++i;
        if (i == EVENT_COUNT)
                return PyErr_Format(PyExc_ValueError, "no event is called %s", kind);
        event.kind = (agx_event_kind)i;
        event.text = agx_view_of(text, (size_t)n);
        event.now_ms = now_ms();
        if (agx_brain_event(self->brain, &event))
                return PyErr_NoMemory();
        Py_RETURN_NONE;
}

static void brain_dealloc(brain_object *self)
{
        PyTypeObject *type = Py_TYPE((PyObject *)self);

        agx_brain_free(self->brain);
        PyObject_Free(self);
        Py_DECREF(type);
}

static PyMethodDef brain_methods[] = {
        {"next", (PyCFunction)(void (*)(void))brain_next, METH_NOARGS, next_doc},
        {"event", (PyCFunction)(void (*)(void))brain_event, METH_VARARGS, event_doc},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot brain_slots[] = {
        {Py_tp_dealloc, (void *)brain_dealloc},
        {Py_tp_methods, brain_methods},
        {Py_tp_doc, (void *)"A provider's brain: wishes out, events in."},
        {0, NULL},
};

static PyType_Spec brain_spec = {
        .name = "agentix._core.Brain",
        .basicsize = sizeof(brain_object),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = brain_slots,
};

/* ---- making one ---- */

PyObject *agx_ext_wrap_brain(PyObject *module, agx_brain *brain, int error, const char *bad)
{
        PyObject *type;
        brain_object *self;

        if (error > 0)
                return PyErr_Format(PyExc_ValueError, "%s: not a value that a command could take", bad);
        if (error == -EINVAL)
                PyErr_SetString(PyExc_ValueError, "a setting holds a NUL character");
        else if (error)
                PyErr_NoMemory();
        if (error)
                return NULL;
        type = PyObject_GetAttrString(module, "Brain");
        self = type ? (brain_object *)PyType_GenericAlloc((PyTypeObject *)type, 0) : NULL;
        Py_XDECREF(type);
        if (!self) {
                agx_brain_free(brain);
                return NULL;
        }
        self->brain = brain;
        return (PyObject *)self;
}

/* ---- keywords ---- */

static int read_view(PyObject *object, agx_view *view, agx_ext_held *held)
{
        PyObject *bytes = NULL;
        char *text;
        Py_ssize_t n;
        int r;

        if (object == Py_None)
                return 0;
        if (!PyUnicode_FSConverter(object, &bytes) || PyBytes_AsStringAndSize(bytes, &text, &n)) {
                Py_XDECREF(bytes);
                return -1;
        }
        *view = agx_view_of(text, (size_t)n);
        r = PyList_Append(held->texts, bytes); /* which keeps the bytes where they are */
        Py_DECREF(bytes);
        return r;
}

static int read_strv(PyObject *object, const agx_strv **vector, agx_ext_held *held)
{
        agx_strv *into = &held->vectors[held->count++];
        Py_ssize_t n = PySequence_Size(object);

        for (Py_ssize_t i = 0; i < n; ++i) {
                agx_view view = AGX_VIEW_NULL;
                PyObject *element = PySequence_GetItem(object, i);
                int r = element ? read_view(element, &view, held) : -1;

                Py_XDECREF(element);
                if (r)
                        return -1;
                agx_strv_add(into, view);
        }
        if (n < 0)
                return -1;
        if (agx_strv_end(into)) {
                PyErr_SetString(PyExc_ValueError, "a setting holds a NUL character");
                return -1;
        }
        *vector = into;
        return 0;
}

static int read_number(PyObject *object, agx_ext_kind kind, void *place)
{
        double number = PyFloat_AsDouble(object);

        if (PyErr_Occurred())
                return -1;
        if (kind == AGX_EXT_DOUBLE) {
                *(double *)place = number;
                return 0;
        }
        if (!isfinite(number) || number < 0 || number > UINT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "a number is out of range");
                return -1;
        }
        if (kind == AGX_EXT_MS)
                *(uint64_t *)place = (uint64_t)(number * 1000);
        else
                *(unsigned *)place = (unsigned)number;
        return 0;
}

static int read_field(PyObject *object, const agx_ext_field *field, void *config, agx_ext_held *held)
{
        void *place = (char *)config + field->offset;
        int truth;

        switch (field->kind) {
        case AGX_EXT_VIEW:
                return read_view(object, place, held);
        case AGX_EXT_STRV:
                return read_strv(object, place, held);
        case AGX_EXT_BOOL:
                truth = PyObject_IsTrue(object);
                *(bool *)place = truth > 0;
                return truth < 0 ? -1 : 0;
        default:
                return read_number(object, field->kind, place);
        }
}

int agx_ext_read_fields(PyObject *args, PyObject *kwargs, const agx_ext_field *fields, void *config, agx_ext_held *held)
{
        Py_ssize_t given = kwargs ? PyDict_Size(kwargs) : 0, known = 0;

        held->texts = PyList_New(0);
        if (!held->texts)
                return -1;
        for (; fields->name; ++fields, ++known) {
                PyObject *object = kwargs ? PyDict_GetItemString(kwargs, fields->name) : NULL;

                if (!object) {
                        PyErr_Format(PyExc_TypeError, "the keyword %s is missing", fields->name);
                        return -1;
                }
                if (read_field(object, fields, config, held))
                        return -1;
        }
        if (PyTuple_Size(args) || given != known) {
                PyErr_Format(PyExc_TypeError, "%zd keywords were expected, not %zd", known, given);
                return -1;
        }
        return 0;
}

void agx_ext_held_release(agx_ext_held *held)
{
        for (size_t i = 0; i < held->count; ++i)
                agx_strv_deinit(&held->vectors[i]);
        held->count = 0;
        Py_CLEAR(held->texts);
}

int agx_ext_add_brain(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &brain_spec, NULL);
        int r;

        if (!type)
                return -1;
        r = PyModule_AddObjectRef(module, "Brain", type);
        Py_DECREF(type);
        return r;
}
