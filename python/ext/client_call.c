/* The type RemoteCall: what remote() returns. A coroutine, as far as anybody can tell, that is not one of the interpreter's:
 * awaiting it begins the call, waits for its Pending, and makes the value, with no Python frame of ours on the way.
 *
 * A value that is long to make is made by a coroutine of the shell's, on which the call then goes on. */
#include "client.h"

#include "scalars.h"

#define QUALNAME "RuntimeClient.remote"

typedef enum call_state {
        STATE_NEW,     /* nothing has been sent */
        STATE_WAITING, /* for `awaited`, a Pending */
        STATE_LOADING, /* `awaited`, a coroutine, makes the value */
        STATE_OVER,
} call_state;

typedef struct remote_call {
        PyObject_HEAD
        client_core *core;
        PyObject *fn, *name, *arguments, *context;
        PyObject *origin; /* where it was made, if that is tracked; else NULL */
        PyObject *awaited;
        call_state state;
        bool running;
} remote_call;

static remote_call *call_of(PyObject *self)
{
        return (remote_call *)self;
}

/* ---- making one ---- */

/* The name of a target: most have been called before. New reference. */
static PyObject *name_of(client_core *core, PyObject *fn)
{
        PyObject *name = PyDict_GetItemWithError(core->known, fn);

        if (name)
                return Py_NewRef(name);
        PyErr_Clear(); /* what cannot be hashed is nothing that is remembered */
        return PyObject_CallFunctionObjArgs(core->resolve, fn, NULL);
}

static PyObject *pickled(client_core *core, PyObject *args, PyObject *kwargs)
{
        PyObject *bytes = agx_scalars_dump_call_parts(args, kwargs), *both, *protocol;

        if (bytes)
                return bytes;
        both = PyTuple_Pack(2, args, kwargs);
        protocol = PyLong_FromLong(5);
        if (both && protocol)
                bytes = PyObject_CallFunctionObjArgs(core->dumps, both, protocol, NULL);
        Py_XDECREF(both);
        Py_XDECREF(protocol);
        if (bytes && !PyBytes_Check(bytes)) {
                PyErr_SetString(PyExc_TypeError, "dumps() gave no bytes");
                Py_CLEAR(bytes);
        }
        return bytes;
}

/* What goes along of the caller's context: NULL without an exception for nothing. */
static int capture(client_core *core, PyObject **context)
{
        PyObject *carried = PyDict_Size(core->carriers) ? PyObject_CallNoArgs(core->capture) : Py_NewRef(Py_None);

        *context = carried == Py_None ? NULL : carried;
        if (carried == Py_None)
                Py_DECREF(carried);
        return carried ? 0 : -1;
}

/* As for coroutines: sys.set_coroutine_origin_tracking_depth() says how many frames are noted, by default none. */
static int note_origin(client_core *core, PyObject **origin)
{
        PyObject *depth = PyObject_CallNoArgs(core->origin_depth);
        int wanted = depth ? PyObject_IsTrue(depth) : -1;

        *origin = wanted > 0 ? PyObject_CallMethodObjArgs(core->shell, core->s_origin, depth, NULL) : NULL;
        Py_XDECREF(depth);
        return wanted < 0 || (wanted > 0 && !*origin) ? -1 : 0;
}

static int fill(remote_call *c, PyObject *fn, PyObject *args, PyObject *kwargs)
{
        client_core *core = c->core;

        c->fn = Py_NewRef(fn);
        c->name = name_of(core, fn);
        c->arguments = c->name ? pickled(core, args, kwargs) : NULL;
        if (!c->arguments || capture(core, &c->context) < 0 || note_origin(core, &c->origin) < 0)
                return -1;
        c->state = STATE_NEW;
        return 0;
}

/* remote(fn, args: tuple, kwargs: dict) of ClientCore. */
PyObject *client_call_make(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
        client_core *core = (client_core *)self;
        PyTypeObject *type = (PyTypeObject *)core->call_type;
        allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        remote_call *c;

        if (n != 3 || !PyTuple_CheckExact(args[1]) || !PyDict_CheckExact(args[2])) {
                PyErr_SetString(PyExc_TypeError, "remote(fn, args: tuple, kwargs: dict)");
                return NULL;
        }
        c = (remote_call *)alloc(type, 0);
        if (!c)
                return NULL;
        c->core = (client_core *)Py_NewRef(self);
        c->state = STATE_OVER;
        if (fill(c, args[0], args[1], args[2]) < 0)
                Py_CLEAR(c);
        return (PyObject *)c;
}

/* ---- going on ---- */

static void over(remote_call *c)
{
        c->state = STATE_OVER;
        Py_CLEAR(c->awaited);
        Py_CLEAR(c->fn);
        Py_CLEAR(c->arguments);
        Py_CLEAR(c->context);
        Py_CLEAR(c->origin);
}

static PySendResult load_on(remote_call *c, PyObject *value, PyObject **result)
{
        PySendResult r;

        c->running = true;
        r = PyIter_Send(c->awaited, value, result);
        c->running = false;
        if (r != PYGEN_NEXT)
                over(c);
        return r;
}

/* Whether it takes so long to make an object of it that the loop should go on meanwhile. */
static bool is_large(const remote_call *c, PyObject *value)
{
        return (PyBytes_CheckExact(value) || PyMemoryView_Check(value) ||
                (PyObject *)Py_TYPE(value) == c->core->body_type) &&
               PyObject_Size(value) > c->core->load_here;
}

/* From what came, which is given away, to what was returned. */
static PySendResult load(remote_call *c, PyObject *value, PyObject **result)
{
        client_core *core = c->core;
        char *p;
        Py_ssize_t n;

        *result = NULL;
        if (PyBytes_CheckExact(value) && PyBytes_AsStringAndSize(value, &p, &n) == 0)
                *result = agx_scalars_load(agx_view_of(p, (size_t)n));
        if (!*result && is_large(c, value)) {
                c->awaited = PyObject_CallMethodObjArgs(core->shell, core->s_load_large, value, c->fn, NULL);
                Py_DECREF(value);
                if (!c->awaited) {
                        over(c);
                        return PYGEN_ERROR;
                }
                c->state = STATE_LOADING;
                return load_on(c, Py_None, result);
        }
        if (!*result)
                *result = PyObject_CallMethodObjArgs(core->shell, core->s_load, value, c->fn, NULL);
        Py_DECREF(value);
        over(c);
        return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

static PySendResult wait_on(remote_call *c, PyObject **result)
{
        client_pending *p = (client_pending *)c->awaited;
        PyObject *value;

        if (!p->done) {
                p->blocking = true;
                *result = Py_NewRef(c->awaited);
                return PYGEN_NEXT;
        }
        c->awaited = NULL;
        value = client_pending_take(p);
        Py_DECREF((PyObject *)p);
        if (value)
                return load(c, value, result);
        over(c);
        return PYGEN_ERROR;
}

static PySendResult begin(remote_call *c, PyObject *value, PyObject **result)
{
        client_pending *p;

        if (value && value != Py_None) {
                PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
                return PYGEN_ERROR;
        }
        c->state = STATE_OVER;
        p = client_start(c->core, c->name, c->arguments, c->context);
        if (!p) {
                over(c);
                return PYGEN_ERROR;
        }
        c->awaited = (PyObject *)p;
        c->state = STATE_WAITING;
        if (client_wait(c->core, p) < 0) {
                over(c);
                return PYGEN_ERROR;
        }
        return wait_on(c, result);
}

static PySendResult call_send(PyObject *self, PyObject *value, PyObject **result)
{
        remote_call *c = call_of(self);

        *result = NULL;
        if (c->running) {
                PyErr_SetString(PyExc_ValueError, "coroutine already executing");
                return PYGEN_ERROR;
        }
        switch (c->state) {
        case STATE_NEW:
                return begin(c, value, result);
        case STATE_WAITING:
                return wait_on(c, result);
        case STATE_LOADING:
                return load_on(c, value ? value : Py_None, result);
        case STATE_OVER:
                break;
        }
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
}

static PyObject *call_next(PyObject *self)
{
        PyObject *result;

        return call_send(self, Py_None, &result) == PYGEN_RETURN ? client_stop_with(result) : result;
}

static PyObject *call_send_method(PyObject *self, PyObject *value)
{
        PyObject *result;

        return call_send(self, value, &result) == PYGEN_RETURN ? client_stop_with(result) : result;
}

/* ---- being ended ---- */

/* Raises what throw(type, value=None, traceback=None) of generators is told to. */
static PyObject *throw_it(PyObject *type, PyObject *value, PyObject *traceback)
{
        if (PyExceptionInstance_Check(type)) {
                if (value != Py_None)
                        return PyErr_Format(PyExc_TypeError, "instance exception may not have a separate value");
                value = type;
                type = (PyObject *)Py_TYPE(type);
        }
        PyErr_SetObject(type, value == Py_None ? NULL : value);
        if (traceback != Py_None) {
                PyObject *raised, *error, *old;

                PyErr_Fetch(&raised, &error, &old);
                Py_XDECREF(old);
                PyErr_Restore(raised, error, Py_NewRef(traceback));
        }
        return NULL;
}

/* Leaves the call to itself. 0, or -1 with an exception that ended a task. */
static int leave(remote_call *c)
{
        client_pending *p = (client_pending *)c->awaited;
        int r;

        c->awaited = NULL;
        r = client_pending_leave(p);
        Py_DECREF((PyObject *)p);
        return r;
}

static PyObject *forward(remote_call *c, const char *verb, PyObject *args)
{
        PyObject *method = PyObject_GetAttrString(c->awaited, verb), *r;

        c->running = true;
        r = method ? PyObject_CallObject(method, args) : NULL;
        c->running = false;
        Py_XDECREF(method);
        if (!r)
                over(c);
        return r;
}

static PyObject *call_throw(PyObject *self, PyObject *args)
{
        remote_call *c = call_of(self);
        PyObject *type, *value = Py_None, *traceback = Py_None;

        if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &traceback))
                return NULL;
        if (c->running)
                return PyErr_Format(PyExc_ValueError, "coroutine already executing");
        if (!PyExceptionInstance_Check(type) && !PyExceptionClass_Check(type))
                return PyErr_Format(PyExc_TypeError,
                                    "exceptions must be classes or instances deriving from BaseException, not %R",
                                    (PyObject *)Py_TYPE(type));
        if (c->state == STATE_OVER)
                return PyErr_Format(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        if (c->state == STATE_LOADING)
                return forward(c, "throw", args);
        if (c->state == STATE_WAITING && leave(c) < 0)
                PyErr_Clear();
        over(c);
        return throw_it(type, value, traceback);
}

static PyObject *call_close(PyObject *self, PyObject *ignored)
{
        remote_call *c = call_of(self);
        PyObject *r;
        int failed = 0;

        (void)ignored;
        if (c->running)
                return PyErr_Format(PyExc_ValueError, "coroutine already executing");
        if (c->state == STATE_LOADING) {
                r = forward(c, "close", NULL);
                Py_XDECREF(r);
                failed = r ? 0 : -1;
        } else if (c->state == STATE_WAITING) {
                failed = leave(c);
        }
        over(c);
        return failed < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- awaiting ---- */

static PyObject *call_await(PyObject *self)
{
        if (call_of(self)->state == STATE_WAITING || call_of(self)->state == STATE_LOADING)
                return PyErr_Format(PyExc_RuntimeError, "coroutine is being awaited already");
        return Py_NewRef(self);
}

static PyObject *call_aiter(PyObject *self)
{
        client_core *core = call_of(self)->core;

        return PyObject_CallMethodObjArgs(core->shell, core->s_items_of, self, NULL);
}

/* ---- the type ---- */

static PyObject *call_repr(PyObject *self)
{
        remote_call *c = call_of(self);

        return PyUnicode_FromFormat("<RemoteCall of %V at %p>", c->name, "?", (void *)self);
}

static PyObject *call_name(PyObject *self, void *closure)
{
        (void)self;
        return PyUnicode_FromString(closure);
}

static PyObject *call_running(PyObject *self, void *closure)
{
        (void)closure;
        return PyBool_FromLong(call_of(self)->running);
}

static int call_traverse(PyObject *self, visitproc visit, void *arg)
{
        remote_call *c = call_of(self);

        Py_VISIT(Py_TYPE(self));
        Py_VISIT((PyObject *)c->core);
        Py_VISIT(c->fn);
        Py_VISIT(c->name);
        Py_VISIT(c->arguments);
        Py_VISIT(c->context);
        Py_VISIT(c->origin);
        Py_VISIT(c->awaited);
        return 0;
}

/* The core stays: who is freed may still have a call to leave. */
static int call_clear(PyObject *self)
{
        Py_CLEAR(call_of(self)->fn);
        return 0;
}

static void warn(remote_call *c)
{
        client_core *core = c->core;
        int r;

        if (c->origin && core->shell) {
                PyObject *told = PyObject_CallMethodObjArgs(core->shell, core->s_never_awaited, c->origin, NULL);

                r = told ? 0 : -1;
                Py_XDECREF(told);
        } else {
                r = PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '" QUALNAME "' was never awaited");
        }
        if (r < 0)
                PyErr_WriteUnraisable(core->call_type);
}

/* Nobody can await it any more: one that was never begun is complained about, one under way is left. */
static void forgotten(remote_call *c)
{
        PyObject *type, *error, *traceback;

        PyErr_Fetch(&type, &error, &traceback);
        if (c->state == STATE_NEW)
                warn(c);
        else if (c->state == STATE_WAITING && leave(c) < 0)
                PyErr_WriteUnraisable(c->core->call_type);
        PyErr_Restore(type, error, traceback);
}

static void call_dealloc(PyObject *self)
{
        remote_call *c = call_of(self);
        PyTypeObject *type = Py_TYPE(self);
        freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

        PyObject_GC_UnTrack(self);
        forgotten(c);
        over(c);
        Py_CLEAR(c->name);
        Py_DECREF((PyObject *)c->core);
        release(self);
        Py_DECREF(type);
}

static PyMethodDef call_methods[] = {
        {"send", call_send_method, METH_O,
         "send(value, /)\n--\n\nAs of coroutines: go on until there is to be waited."},
        {"throw", call_throw, METH_VARARGS,
         "throw(typ, val=None, tb=None, /)\n--\n\nAs of coroutines: end the call with an exception."},
        {"close", call_close, METH_NOARGS, "close()\n--\n\nAs of coroutines: end the call."},
        {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef call_getset[] = {
        {"__name__", call_name, NULL, NULL, "remote"},
        {"__qualname__", call_name, NULL, NULL, QUALNAME},
        {"cr_running", call_running, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot call_slots[] = {
        {Py_tp_doc, "A remote call that has not begun: await it once, or give it to `asyncio.create_task`, `gather`, "
                    "`wait_for`; iterate over it (`async for`) if the target is a generator."},
        {Py_tp_dealloc, (void *)call_dealloc},
        {Py_tp_traverse, (void *)call_traverse},
        {Py_tp_clear, (void *)call_clear},
        {Py_tp_methods, call_methods},
        {Py_tp_getset, call_getset},
        {Py_tp_repr, (void *)call_repr},
        {Py_tp_iternext, (void *)call_next},
        {Py_am_await, (void *)call_await},
        {Py_am_aiter, (void *)call_aiter},
        {Py_am_send, (void *)call_send},
        {0, NULL},
};

static PyType_Spec call_spec = {
        .name = "agentix._core.RemoteCall",
        .basicsize = sizeof(remote_call),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = call_slots,
};

PyObject *client_call_type(PyObject *module)
{
        return PyType_FromModuleAndSpec(module, &call_spec, NULL);
}
