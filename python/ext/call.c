/*
 * agentix._core.Call: one call in the worker, between its frame and its answer.
 *
 * What makes it more than a record is how it is cancelled. A sync target is interrupted by an exception that another
 * thread sets for its thread, and such an exception may strike at any bytecode. So a target is armed and disarmed
 * here, in C, where no bytecode lies between the target's and the (dis)arming: the exception can strike the target and
 * nothing else, neither the worker's own code nor the next call of that thread. All of it happens with the interpreter
 * held, which is the lock. What a target must do whole or not at all, such as opening a file and noting that it did, it
 * can have disarmed likewise.
 */
#include "call.h"

#include <stddef.h>
#include <structmember.h>

typedef agx_ext_call call;

/* The calls whose targets are run just now, each in a thread of its own. A thread's own variable would do, but in an
 * extension that needs the dynamic linker at every look. */
static agx_list *running_of(PyObject *module)
{
        return &agx_ext_state_of(module)->running;
}

static call *running_here(PyObject *module)
{
        unsigned long thread = PyThread_get_thread_ident();
        agx_list *head = running_of(module);

        for (agx_list *at = head->next; at != head; at = at->next) {
                call *self = agx_container_of(at, call, running);

                if (self->thread == thread)
                        return self;
        }
        return NULL;
}

PyObject *agx_ext_call_text(agx_view v)
{
        return v.p ? PyUnicode_DecodeUTF8(v.p, (Py_ssize_t)v.n, "replace") : Py_NewRef(Py_None);
}

static PyObject *bytes_or_none(agx_view v)
{
        return v.p ? PyBytes_FromStringAndSize(v.p, (Py_ssize_t)v.n) : Py_NewRef(Py_None);
}

PyObject *agx_ext_call_new(PyTypeObject *type, const agx_frame *frame, PyObject *target)
{
        call *self = (call *)PyType_GenericAlloc(type, 0);

        if (!self)
                return NULL;
        self->id = agx_ext_call_text(frame->call_id);
        self->target = Py_NewRef(target);
        self->arguments = bytes_or_none(frame->arguments);
        self->context = bytes_or_none(frame->context);
        self->stream = frame->has_stream ? PyLong_FromUnsignedLongLong(frame->stream) : Py_NewRef(Py_None);
        self->task = Py_NewRef(Py_None);
        if (!self->id || !self->arguments || !self->context || !self->stream)
                Py_CLEAR(self);
        return (PyObject *)self;
}

bool agx_ext_call_enter(call *self)
{
        if (self->cancelled) {
                PyErr_SetNone(self->cancelled);
                return false;
        }
        self->thread = PyThread_get_thread_ident();
        agx_list_push_back(running_of(PyType_GetModule(Py_TYPE((PyObject *)self))), &self->running);
        return true;
}

void agx_ext_call_leave(call *self)
{
        agx_list_unlink(&self->running);
        if (self->cancelled) /* takes back an exception that was set but has not struck yet */
                PyThreadState_SetAsyncExc(self->thread, NULL);
        self->thread = 0;
}

PyObject *agx_ext_call_run(call *self, PyObject *function, PyObject *positional, PyObject *keywords)
{
        PyObject *value;

        if (!agx_ext_call_enter(self))
                return NULL;
        value = PyObject_Call(function, positional, keywords);
        agx_ext_call_leave(self);
        return value;
}

void agx_ext_call_set_task(call *self, PyObject *task)
{
        PyObject *before = self->task;

        self->task = Py_NewRef(task);
        Py_XDECREF(before);
}

/* For whoever disarms does so to clean up, too: what was set before must not strike within either. */
static PyObject *run_disarmed(call *self, PyObject *function, PyObject *args)
{
        unsigned long thread = self->thread;
        PyObject *value;

        if (self->cancelled)
                PyThreadState_SetAsyncExc(thread, NULL);
        self->thread = 0;
        value = PyObject_CallObject(function, args);
        self->thread = thread;
        if (self->cancelled) {
                Py_CLEAR(value);
                PyErr_SetNone(self->cancelled);
        }
        return value;
}

PyDoc_STRVAR(uninterrupted_doc,
             "uninterrupted(function, /, *args) -> object\n--\n\n"
             "Call it; if the call that runs in this thread has been cancelled, that is raised when it has ended.\n\n"
             "For what is short and must be done whole, also in a `finally`.");

static PyObject *uninterrupted(PyObject *module, PyObject *args)
{
        PyObject *function, *rest, *value;
        Py_ssize_t n = PyTuple_Size(args);
        call *self = running_here(module);

        if (n < 1) {
                PyErr_SetString(PyExc_TypeError, "uninterrupted() needs a function");
                return NULL;
        }
        function = PyTuple_GetItem(args, 0);
        rest = PyTuple_GetSlice(args, 1, n);
        if (!rest)
                return NULL;
        value = self ? run_disarmed(self, function, rest) : PyObject_CallObject(function, rest);
        Py_DECREF(rest);
        return value;
}

PyDoc_STRVAR(run_doc, "run(function, args: tuple, kwargs: dict) -> object\n--\n\n"
                      "Call it in this thread; until it returns, and no longer, cancel() can interrupt it.\n\n"
                      "Raises the exception of cancel() at once if that came first.");

static PyObject *call_run(call *self, PyObject *args)
{
        PyObject *function, *positional, *keywords;

        if (!PyArg_ParseTuple(args, "OO!O!:run", &function, &PyTuple_Type, &positional, &PyDict_Type, &keywords))
                return NULL;
        return agx_ext_call_run(self, function, positional, keywords);
}

PyDoc_STRVAR(cancel_doc,
             "cancel(exception: type[BaseException]) -> bool\n--\n\n"
             "Mark the call as cancelled and raise `exception` in its target, if run() runs it just now.\n\n"
             "False if the call was cancelled before.");

static PyObject *call_cancel(call *self, PyObject *exception)
{
        if (self->cancelled)
                Py_RETURN_FALSE;
        self->cancelled = Py_NewRef(exception);
        if (self->thread)
                PyThreadState_SetAsyncExc(self->thread, exception);
        Py_RETURN_TRUE;
}

static PyObject *call_get_cancelled(call *self, void *unused)
{
        (void)unused;
        return PyBool_FromLong(self->cancelled != NULL);
}

static int call_traverse(call *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->task);
        Py_VISIT(self->cancelled);
        return 0;
}

static int call_clear(call *self)
{
        Py_CLEAR(self->id);
        Py_CLEAR(self->target);
        Py_CLEAR(self->arguments);
        Py_CLEAR(self->context);
        Py_CLEAR(self->stream);
        Py_CLEAR(self->task);
        Py_CLEAR(self->cancelled);
        return 0;
}

static void call_dealloc(call *self)
{
        PyTypeObject *type = Py_TYPE((PyObject *)self);

        PyObject_GC_UnTrack(self);
        call_clear(self);
        PyObject_GC_Del(self);
        Py_DECREF(type);
}

static PyMemberDef call_members[] = {
        {"id", T_OBJECT, offsetof(call, id), READONLY, "str"},
        {"target", T_OBJECT, offsetof(call, target), READONLY, "str: module::qualname"},
        {"arguments", T_OBJECT, offsetof(call, arguments), 0,
         "bytes, their pickle; or (args, kwargs) if they came decoded; or None when they are used"},
        {"context", T_OBJECT, offsetof(call, context), READONLY, "bytes | None"},
        {"stream", T_OBJECT, offsetof(call, stream), READONLY, "int, the items that may be sent, or None: no stream"},
        {"task", T_OBJECT, offsetof(call, task), 0, "the asyncio task of an async target, or None"},
        {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef call_getters[] = {
        {"cancelled", (getter)(void (*)(void))call_get_cancelled, NULL, "bool", NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef call_methods[] = {
        {"run", (PyCFunction)(void (*)(void))call_run, METH_VARARGS, run_doc},
        {"cancel", (PyCFunction)(void (*)(void))call_cancel, METH_O, cancel_doc},
        {NULL, NULL, 0, NULL},
};

static PyType_Slot call_slots[] = {
        {Py_tp_dealloc, (void *)call_dealloc},
        {Py_tp_traverse, (void *)call_traverse},
        {Py_tp_clear, (void *)call_clear},
        {Py_tp_members, call_members},
        {Py_tp_getset, call_getters},
        {Py_tp_methods, call_methods},
        {Py_tp_doc, (void *)"One call in the worker, between its frame and its answer."},
        {0, NULL},
};

static PyType_Spec call_spec = {
        .name = "agentix._core.Call",
        .basicsize = sizeof(call),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = call_slots,
};

static PyMethodDef call_functions[] = {
        {"uninterrupted", uninterrupted, METH_VARARGS, uninterrupted_doc},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_call(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &call_spec, NULL);
        int r;

        if (!type)
                return -1;
        agx_list_init(running_of(module));
        r = PyModule_AddObjectRef(module, "Call", type);
        Py_DECREF(type);
        return r < 0 ? r : PyModule_AddFunctions(module, call_functions);
}
