/*
 * The short way of a call to an async target, on the loop that has read it: an asyncio task whose coroutine is an AsyncCall,
 * which runs the target's and answers the call when that ends, with no Python frame but the target's. The task takes its first
 * step here and now: most have no second one.
 *
 * What does not fit is left to Python, as in serve.c, before anything is begun. If the value needs more than an answer, a
 * stream for one, rest() gives a coroutine with which the AsyncCall goes on.
 */
#include "channel.h"

typedef struct async_call {
        PyObject_HEAD
        agx_channel *channel;
        agx_ext_call *call;
        PyObject *
                inner; /* the target's coroutine, or one that goes on from its value; NULL: the call has been answered */
        bool goes_on;  /* `inner` is not the target's any more */
        bool running;
} async_call;

/* ---- how it goes on ---- */

static void over(async_call *a)
{
        Py_CLEAR(a->inner);
        Py_CLEAR(a->call); /* which may hold the task, and so this */
}

/* The target raised, whatever it is: nothing of it may reach the loop. */
static void raised(async_call *a)
{
        agx_ext_call *call = (agx_ext_call *)Py_NewRef((PyObject *)a->call);

        agx_channel_leave_to_rest(a->channel, call, "raised", NULL);
        Py_DECREF((PyObject *)call);
        over(a);
}

/* The target returned; takes the value over. */
static void returned(async_call *a, PyObject *value)
{
        PyObject *next = agx_channel_finish_async(a->channel, a->call, value);

        Py_DECREF(value);
        if (!next) {
                over(a);
        } else {
                Py_DECREF(a->inner);
                a->inner = next;
                a->goes_on = true;
        }
}

/* Says for interrupts whether a target is what runs. */
static void set_stepping(async_call *a, int by)
{
        if (!a->goes_on)
                a->channel->stepping += (unsigned)by;
}

static PySendResult send_inner(async_call *a, PyObject *value, PyObject **result)
{
        PySendResult r;

        set_stepping(a, 1);
        r = PyIter_Send(a->inner, value, result);
        set_stepping(a, -1);
        return r;
}

/* What a step came to; it ends with None, as nobody looks at what this task returns. */
static PySendResult go_on(async_call *a, PySendResult r, PyObject **result)
{
        while (r != PYGEN_NEXT) {
                if (r == PYGEN_RETURN)
                        returned(a, *result);
                else
                        raised(a);
                if (!a->inner) {
                        *result = Py_NewRef(Py_None);
                        return PYGEN_RETURN;
                }
                r = send_inner(a, Py_None, result);
        }
        return r;
}

static bool is_steppable(const async_call *a)
{
        if (a->running)
                PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        else if (!a->inner)
                PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return !a->running && a->inner;
}

static PySendResult async_send(PyObject *self, PyObject *value, PyObject **result)
{
        async_call *a = (async_call *)self;
        PySendResult r;

        *result = NULL;
        if (!is_steppable(a))
                return PYGEN_ERROR;
        a->running = true;
        r = go_on(a, send_inner(a, value, result), result);
        a->running = false;
        return r;
}

/* Of a coroutine's method: what it comes to as a step. */
static PySendResult outcome(PyObject *yielded, PyObject **result)
{
        PyObject *stop;

        *result = yielded;
        if (yielded)
                return PYGEN_NEXT;
        if (!PyErr_ExceptionMatches(PyExc_StopIteration))
                return PYGEN_ERROR;
        stop = agx_ext_caught();
        *result = PyObject_GetAttrString(stop, "value");
        Py_DECREF(stop);
        return *result ? PYGEN_RETURN : PYGEN_ERROR;
}

static PyObject *throw_inner(async_call *a, PyObject *args)
{
        PyObject *method = PyObject_GetAttrString(a->inner, "throw"), *yielded;

        set_stepping(a, 1);
        yielded = method ? PyObject_CallObject(method, args) : NULL;
        set_stepping(a, -1);
        Py_XDECREF(method);
        return yielded;
}

static PyObject *stepped(PySendResult r, PyObject *result)
{
        if (r == PYGEN_RETURN) {
                Py_DECREF(result);
                PyErr_SetNone(PyExc_StopIteration);
                return NULL;
        }
        return result;
}

static PyObject *async_throw(PyObject *self, PyObject *args)
{
        async_call *a = (async_call *)self;
        PyObject *result;
        PySendResult r;

        if (!is_steppable(a))
                return NULL;
        a->running = true;
        r = outcome(throw_inner(a, args), &result);
        r = go_on(a, r, &result);
        a->running = false;
        return stepped(r, result);
}

static PyObject *async_send_method(PyObject *self, PyObject *value)
{
        PyObject *result;
        PySendResult r = async_send(self, value, &result);

        return stepped(r, result);
}

static PyObject *async_next(PyObject *self)
{
        return async_send_method(self, Py_None);
}

static PyObject *async_close(PyObject *self, PyObject *unused)
{
        async_call *a = (async_call *)self;
        PyObject *r;

        (void)unused;
        if (!a->inner || !is_steppable(a))
                return a->running ? NULL : Py_NewRef(Py_None);
        a->running = true;
        r = PyObject_CallMethod(a->inner, "close", NULL);
        if (r)
                PyErr_SetNone(PyExc_GeneratorExit);
        Py_XDECREF(r);
        raised(a);
        a->running = false;
        Py_RETURN_NONE;
}

/* ---- the task ---- */

/* As of the target's coroutine: for those that look at tasks. */
static PyObject *async_attribute(PyObject *self, void *name)
{
        async_call *a = (async_call *)self;

        return a->inner ? PyObject_GetAttrString(a->inner, name) : Py_NewRef(Py_None);
}

static PyObject *async_name(PyObject *self, void *unused)
{
        async_call *a = (async_call *)self;

        (void)unused;
        return Py_NewRef(a->call ? a->call->target : Py_None);
}

static PyObject *async_running(PyObject *self, void *unused)
{
        (void)unused;
        return PyBool_FromLong(((async_call *)self)->running);
}

/* Before 3.12 a task asks its loop for its first step. Meanwhile that is asked here, and takes what is meant for it. */
PyObject *agx_channel_catch(agx_channel *self, PyObject *args, PyObject *kwargs)
{
        PyObject *context = kwargs ? PyDict_GetItemWithError(kwargs, self->s_context) : NULL;

        if (!self->first_step && context && context == self->first_context && PyTuple_Size(args) == 1) {
                self->first_step = Py_NewRef(PyTuple_GetItem(args, 0));
                Py_RETURN_NONE;
        }
        return PyErr_Occurred() || !self->call_soon ? NULL : PyObject_Call(self->call_soon, args, kwargs);
}

static PyObject *make_task(agx_channel *self, PyObject *coroutine, PyObject *context)
{
        PyObject *type = PyObject_GetAttr(self->asyncio, self->s_Task), *args = PyTuple_Pack(1, coroutine),
                 *task = NULL;

        if (type && args && PyDict_SetItem(self->task_options, self->s_context, context) == 0) {
                task = PyObject_Call(type, args, self->task_options);
                PyDict_SetItem(self->task_options, self->s_context, Py_None);
        }
        Py_XDECREF(type);
        Py_XDECREF(args);
        return task;
}

/* Makes the task and has it take its first step. */
static PyObject *begin_task(agx_channel *self, PyObject *coroutine, PyObject *context)
{
        PyObject *task, *step, *r = NULL;

        if (self->steps_eagerly)
                return make_task(self, coroutine, context);
        if (PyObject_SetAttr(self->loop, self->s_call_soon, self->catcher))
                return NULL;
        self->first_context = context;
        task = make_task(self, coroutine, context);
        self->first_context = NULL;
        step = self->first_step;
        self->first_step = NULL;
        if (PyObject_DelAttr(self->loop, self->s_call_soon))
                PyErr_WriteUnraisable(self->loop);
        if (task && step)
                r = PyObject_CallMethodObjArgs(context, self->s_run, step, NULL);
        else if (task)
                PyErr_SetString(PyExc_RuntimeError, "the task did not ask for its first step");
        if (!r)
                Py_CLEAR(task);
        Py_XDECREF(step);
        Py_XDECREF(r);
        return task;
}

static void start(agx_channel *self, agx_ext_call *call, PyObject *coroutine, PyObject *context)
{
        async_call *a = (async_call *)PyType_GenericAlloc((PyTypeObject *)self->async_type, 0);
        PyObject *task;

        if (!a) {
                agx_channel_leave_to_rest(self, call, "raised", NULL);
                return;
        }
        a->channel = (agx_channel *)Py_NewRef((PyObject *)self);
        a->call = (agx_ext_call *)Py_NewRef((PyObject *)call);
        a->inner = Py_NewRef(coroutine);
        task = begin_task(self, (PyObject *)a, context);
        if (!task && a->inner)
                raised(a);
        else if (!task)
                PyErr_WriteUnraisable(self->loop);
        else if (a->inner)
                agx_ext_call_set_task(call, task);
        Py_XDECREF(task);
        Py_DECREF((PyObject *)a);
}

/* ---- beginning ---- */

/* What user code has put in the place of the loop's call_soon() is asked for each first step, and stays. */
static bool has_plain_call_soon(agx_channel *self)
{
        int own = self->steps_eagerly ? 0 : PyDict_Contains(self->loop_dict, self->s_call_soon);

        if (own < 0)
                PyErr_Clear();
        return own == 0;
}

/* Whether the loop makes tasks in the usual way. */
static bool makes_plain_tasks(agx_channel *self)
{
        PyObject *factory = PyObject_CallMethodObjArgs(self->loop, self->s_get_task_factory, NULL);

        if (!factory)
                PyErr_Clear();
        Py_XDECREF(factory);
        return factory == Py_None;
}

/* A function makes a coroutine and runs nothing yet, hence needs no context for it. */
static void call_function(agx_channel *self, agx_ext_call *call, PyObject *function, PyObject *loaded)
{
        PyObject *context = agx_channel_context(self, call), *kwargs = PyTuple_GetItem(loaded, 1), *coroutine = NULL;

        if (context)
                coroutine = PyObject_Call(function, PyTuple_GetItem(loaded, 0), PyDict_Size(kwargs) ? kwargs : NULL);
        if (coroutine)
                start(self, call, coroutine, context);
        else
                agx_channel_leave_to_rest(self, call, "raised", NULL);
        Py_XDECREF(context);
        Py_XDECREF(coroutine);
}

bool agx_channel_begin_async(agx_channel *self, agx_ext_call *call, PyObject *function)
{
        PyObject *loaded;

        if (!self->loop || call->cancelled || call->context != Py_None ||
            (PyObject *)Py_TYPE(function) != self->function_type || !has_plain_call_soon(self) ||
            !makes_plain_tasks(self))
                return false;
        Py_INCREF(function);
        loaded = agx_channel_load(self, call);
        if (loaded)
                call_function(self, call, function, loaded);
        Py_XDECREF(loaded);
        Py_DECREF(function);
        return true;
}

/* ---- life ---- */

const char agx_channel_use_loop_doc[] =
        "use_loop(loop: asyncio.AbstractEventLoop)\n--\n\n"
        "Async targets run on this loop: serve() may give ('lead', call), and poll() begins calls there.";

/* Not on every loop that user code may choose can it be seen what a task asks for. */
static bool can_begin_on(agx_channel *self, PyObject *loop)
{
        if (self->steps_eagerly)
                return PyDict_SetItemString(self->task_options, "eager_start", Py_True) == 0;
        self->loop_dict = PyObject_GetAttrString(loop, "__dict__");
        if (!self->loop_dict || PyDict_Contains(self->loop_dict, self->s_call_soon) != 0)
                return false;
        return PyObject_SetAttr(loop, self->s_call_soon, self->catcher) == 0 &&
               PyObject_DelAttr(loop, self->s_call_soon) == 0;
}

/* Without what it takes calls are begun by Python. */
PyObject *agx_channel_use_loop(agx_channel *self, PyObject *loop)
{
        self->has_loop = true;
        self->steps_eagerly = Py_Version >= 0x030C0000;
        self->asyncio = PyImport_ImportModule("asyncio");
        self->function_type = agx_ext_take_from("types", "FunctionType");
        self->call_soon = PyObject_GetAttr(loop, self->s_call_soon);
        self->catcher = PyObject_GetAttrString((PyObject *)self, "_catch");
        self->task_options = Py_BuildValue("{sOsO}", "loop", loop, "context", Py_None);
        if (self->asyncio && self->function_type && self->call_soon && self->catcher && self->task_options &&
            can_begin_on(self, loop))
                self->loop = Py_NewRef(loop);
        PyErr_Clear();
        Py_RETURN_NONE;
}

int agx_channel_traverse_task(agx_channel *self, visitproc visit, void *arg)
{
        Py_VISIT(self->async_type);
        Py_VISIT(self->loop);
        Py_VISIT(self->loop_dict);
        Py_VISIT(self->call_soon);
        Py_VISIT(self->catcher);
        Py_VISIT(self->task_options);
        return 0;
}

void agx_channel_clear_task(agx_channel *self)
{
        Py_CLEAR(self->async_type);
        Py_CLEAR(self->asyncio);
        Py_CLEAR(self->function_type);
        Py_CLEAR(self->loop);
        Py_CLEAR(self->loop_dict);
        Py_CLEAR(self->call_soon);
        Py_CLEAR(self->catcher);
        Py_CLEAR(self->task_options);
}

/* ---- the type ---- */

static int async_traverse(PyObject *self, visitproc visit, void *arg)
{
        async_call *a = (async_call *)self;

        Py_VISIT(Py_TYPE(self));
        Py_VISIT((PyObject *)a->channel);
        Py_VISIT((PyObject *)a->call);
        Py_VISIT(a->inner);
        return 0;
}

static int async_clear(PyObject *self)
{
        over((async_call *)self);
        return 0;
}

static void async_dealloc(PyObject *self)
{
        PyTypeObject *type = Py_TYPE(self);

        PyObject_GC_UnTrack(self);
        async_clear(self);
        Py_XDECREF((PyObject *)((async_call *)self)->channel);
        PyObject_GC_Del(self);
        Py_DECREF(type);
}

static PyMethodDef async_methods[] = {
        {"send", async_send_method, METH_O, NULL},
        {"throw", async_throw, METH_VARARGS, NULL},
        {"close", async_close, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef async_getset[] = {
        {"__name__", async_name, NULL, NULL, NULL},
        {"__qualname__", async_name, NULL, NULL, NULL},
        {"cr_await", async_attribute, NULL, NULL, "cr_await"},
        {"cr_code", async_attribute, NULL, NULL, "cr_code"},
        {"cr_frame", async_attribute, NULL, NULL, "cr_frame"},
        {"cr_running", async_running, NULL, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot async_slots[] = {
        {Py_tp_doc, "The coroutine of a call to an async target: it runs the target's and answers the call."},
        {Py_tp_dealloc, (void *)async_dealloc},
        {Py_tp_traverse, (void *)async_traverse},
        {Py_tp_clear, (void *)async_clear},
        {Py_tp_methods, async_methods},
        {Py_tp_getset, async_getset},
        {Py_tp_iter, (void *)PyObject_SelfIter},
        {Py_tp_iternext, (void *)async_next},
        {Py_am_await, (void *)PyObject_SelfIter},
        {Py_am_send, (void *)async_send},
        {0, NULL},
};

static PyType_Spec async_spec = {
        .name = "agentix._core.AsyncCall",
        .basicsize = sizeof(async_call),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = async_slots,
};

PyObject *agx_channel_async_type(PyObject *module)
{
        return PyType_FromModuleAndSpec(module, &async_spec, NULL);
}
