/*
 * agentix._core.Brain: a provider's brain for the asyncio shell in agentix/provider/_drive.py.
 *
 * next() gives the wish of the moment as a dict with only the keys that it has; event() reports what came of it. The
 * constructors uv_venv() and uv_sandbox() take keywords named as the fields of the config structs in provider/uv.h.
 */
#include "state.h"

#include "base/err.h"
#include "provider/uv.h"

typedef struct brain_object {
        PyObject_HEAD
        agx_brain *brain;
} brain_object;

static const char *const wish_names[] = {
        [AGX_WISH_WAIT] = "wait", [AGX_WISH_RUN] = "run",   [AGX_WISH_START] = "start",   [AGX_WISH_SIGNAL] = "signal",
        [AGX_WISH_DONE] = "done", [AGX_WISH_GONE] = "gone", [AGX_WISH_FAILED] = "failed",
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

static PyObject *wish_dict(const agx_wish *wish)
{
        PyObject *dict = PyDict_New();

        if (!dict)
                return NULL;
        if (put(dict, "kind", PyUnicode_FromString(wish_names[wish->kind])) || put_list(dict, "argv", wish->argv) ||
            put_list(dict, "env", wish->env) || put_path(dict, "cwd", wish->cwd) ||
            put_path(dict, "path", wish->path) || put_path(dict, "url", wish->url) ||
            put_path(dict, "token_file", wish->token_file) || put_path(dict, "message", wish->message) ||
            put(dict, "signal", PyLong_FromLong(wish->signal)) ||
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

/* Takes `brain` over. `error`: what making it gave. */
static PyObject *wrap(PyObject *module, agx_brain *brain, int error)
{
        PyObject *type;
        brain_object *self;

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

/* "O&" converter: str, bytes or os.PathLike into a view of the bytes object kept in `held`; None stays absent. */
typedef struct held_view {
        PyObject *held;
        agx_view view;
} held_view;

static int as_view(PyObject *object, void *out)
{
        held_view *into = out;
        char *text;
        Py_ssize_t n;

        if (!object) {
                Py_CLEAR(into->held);
                return 1;
        }
        if (object == Py_None)
                return 1;
        if (!PyUnicode_FSConverter(object, &into->held) || PyBytes_AsStringAndSize(into->held, &text, &n))
                return 0;
        into->view = agx_view_of(text, (size_t)n);
        return Py_CLEANUP_SUPPORTED;
}

/* "O&" converter: a sequence of str into a vector. */
static int as_strv(PyObject *object, void *out)
{
        agx_strv *into = out;
        Py_ssize_t n = object ? PySequence_Size(object) : 0;

        if (!object) {
                agx_strv_deinit(into);
                return 1;
        }
        for (Py_ssize_t i = 0; i < n; ++i) {
                held_view item = {0};
                PyObject *element = PySequence_GetItem(object, i);

                if (!element || !as_view(element, &item)) {
                        Py_XDECREF(element);
                        return 0;
                }
                agx_strv_add(into, item.view);
                Py_CLEAR(item.held);
                Py_DECREF(element);
        }
        if (n < 0)
                return 0;
        if (agx_strv_end(into)) {
                PyErr_SetString(PyExc_ValueError, "a setting holds a NUL character");
                return 0;
        }
        return Py_CLEANUP_SUPPORTED;
}

PyDoc_STRVAR(uv_venv_doc,
             "uv_venv(*, uv, venv, python, project, install, index_url, extra_index_url, constraints, own, env)\n"
             "--\n\nThe brain that makes a virtual environment.");

static PyObject *uv_venv(PyObject *module, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"uv",          "venv", "python", "project", "install", "index_url", "extra_index_url",
                                "constraints", "own",  "env",    NULL};
        held_view uv = {0}, venv = {0}, python = {0}, project = {0}, index_url = {0}, constraints = {0};
        agx_strv install = {0}, extra = {0}, own = {0}, env = {0};
        agx_uv_venv_config config;
        agx_brain *brain = NULL;
        PyObject *made;
        int r;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O&O&O&O&O&O&O&O&O&O&:uv_venv", names, as_view, &uv, as_view,
                                         &venv, as_view, &python, as_view, &project, as_strv, &install, as_view,
                                         &index_url, as_strv, &extra, as_view, &constraints, as_strv, &own, as_strv,
                                         &env))
                return NULL;
        config = (agx_uv_venv_config){uv.view,        venv.view, python.view,      project.view, &install,
                                      index_url.view, &extra,    constraints.view, &own,         &env};
        r = agx_uv_venv_new(&brain, &config);
        made = wrap(module, brain, r);
        for (size_t i = 0; i < 6; ++i)
                Py_XDECREF((held_view *[]){&uv, &venv, &python, &project, &index_url, &constraints}[i]->held);
        for (size_t i = 0; i < 4; ++i)
                agx_strv_deinit((agx_strv *[]){&install, &extra, &own, &env}[i]);
        return made;
}

PyDoc_STRVAR(uv_sandbox_doc,
             "uv_sandbox(*, runtime, python, dir, cwd, token_file, socket, host, ready, lease, host_env, config_env)\n"
             "--\n\nThe brain that starts one runtime server; ready and lease in seconds.");

static PyObject *uv_sandbox(PyObject *module, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"runtime", "python", "dir",   "cwd",      "token_file", "socket",
                                "host",    "ready",  "lease", "host_env", "config_env", NULL};
        held_view runtime = {0}, python = {0}, dir = {0}, cwd = {0}, token_file = {0}, socket = {0}, host = {0};
        agx_strv host_env = {0}, config_env = {0};
        agx_uv_sandbox_config config;
        agx_brain *brain = NULL;
        double ready, lease;
        PyObject *made;
        int r;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "$O&O&O&O&O&O&O&ddO&O&:uv_sandbox", names, as_view, &runtime,
                                         as_view, &python, as_view, &dir, as_view, &cwd, as_view, &token_file, as_view,
                                         &socket, as_view, &host, &ready, &lease, as_strv, &host_env, as_strv,
                                         &config_env))
                return NULL;
        config = (agx_uv_sandbox_config){
                runtime.view,    python.view, dir.view,    cwd.view,
                token_file.view, socket.view, host.view,   (uint64_t)(ready * 1000),
                lease,           &host_env,   &config_env,
        };
        r = agx_uv_sandbox_new(&brain, &config);
        made = wrap(module, brain, r);
        for (size_t i = 0; i < 7; ++i)
                Py_XDECREF((held_view *[]){&runtime, &python, &dir, &cwd, &token_file, &socket, &host}[i]->held);
        agx_strv_deinit(&host_env);
        agx_strv_deinit(&config_env);
        return made;
}

static PyMethodDef provider_functions[] = {
        {"uv_venv", (PyCFunction)(void (*)(void))uv_venv, METH_VARARGS | METH_KEYWORDS, uv_venv_doc},
        {"uv_sandbox", (PyCFunction)(void (*)(void))uv_sandbox, METH_VARARGS | METH_KEYWORDS, uv_sandbox_doc},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_provider(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &brain_spec, NULL);
        int r;

        if (!type)
                return -1;
        r = PyModule_AddObjectRef(module, "Brain", type);
        Py_DECREF(type);
        return r ? r : PyModule_AddFunctions(module, provider_functions);
}
