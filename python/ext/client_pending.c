/* What a remote call awaits. It follows the protocol by which asyncio's tasks wait for futures that are not theirs
 * (`_asyncio_future_blocking`, `add_done_callback`, `result`, `cancel`), with one difference: when the loop calls us with
 * the reply, the waiting task is resumed then and there instead of being scheduled for the loop's next turn.
 *
 * While in flight it is owned by the core, since a task may be held by nothing but what it waits for. */
#include "client.h"

/* ---- outcomes ---- */

static PyObject *text_of(agx_view v)
{
        return v.p ? PyUnicode_DecodeUTF8(v.p, (Py_ssize_t)v.n, "replace") : Py_NewRef(Py_None);
}

static PyObject *fault_detail(const agx_fault *fault)
{
        PyObject *returncode = fault->has_returncode ? PyLong_FromLongLong(fault->returncode) : Py_NewRef(Py_None);

        return Py_BuildValue("(NNNONN)", text_of(fault->type), text_of(fault->message), text_of(fault->traceback),
                             fault->cancelled ? Py_True : Py_False, returncode, text_of(fault->reason));
}

/* The exception that Python makes of a failure; if making it fails, that failure. */
static PyObject *make_error(client_core *core, const client_pending *p, const char *kind, PyObject *detail)
{
        PyObject *text = detail ? PyUnicode_FromString(kind) : NULL;
        PyObject *name = p->name ? p->name : Py_None, *error = NULL;

        if (text)
                error = PyObject_CallMethodObjArgs(core->shell, core->s_fail, text, name, detail, NULL);
        if (error && !PyExceptionInstance_Check(error)) {
                Py_CLEAR(error);
                PyErr_SetString(PyExc_SystemError, "fail() gave no exception");
        }
        Py_XDECREF(text);
        Py_XDECREF(detail);
        return error;
}

static PyObject *take_value(client_core *core, agx_client_call *call, agx_view value)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(0);
        agx_client_landed landed = agx_client_call_take_landed(call);

        agx_client_call_take_body(call, &body);
        if (landed.object)
                return client_value_landed(core, &landed, &body, value);
        return client_value_take(core, &body, value);
}

static PyObject *value_of(client_core *core, agx_client_call *call, const agx_client_result *result)
{
        switch (result->outcome) {
        case AGX_CLIENT_VALUE:
                return take_value(core, call, result->value);
        case AGX_CLIENT_HEALTH:
                return Py_BuildValue("(NNN)", text_of(result->health.status), text_of(result->health.version),
                                     text_of(result->health.instance));
        case AGX_CLIENT_CONNECTED:
                return Py_NewRef(Py_None);
        default:
                return NULL;
        }
}

static PyObject *error_of(client_core *core, const client_pending *p, const agx_client_result *result)
{
        switch (result->outcome) {
        case AGX_CLIENT_FAULT:
                return make_error(core, p, "fault", fault_detail(&result->fault));
        case AGX_CLIENT_DEADLINE:
                return make_error(core, p, "deadline", Py_NewRef(Py_None));
        case AGX_CLIENT_UNREACHABLE:
                return make_error(core, p, "unreachable", PyUnicode_FromString(result->why));
        default:
                return PyErr_NoMemory();
        }
}

static bool has_value(const agx_client_result *result)
{
        return result->outcome == AGX_CLIENT_VALUE || result->outcome == AGX_CLIENT_HEALTH ||
               result->outcome == AGX_CLIENT_CONNECTED;
}

/* ---- being in flight ---- */

client_pending *client_pending_new(client_core *core, PyObject *name, PyObject *arguments, PyObject *context)
{
        PyTypeObject *type = (PyTypeObject *)core->pending_type;
        allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        client_pending *p = (client_pending *)alloc(type, 0);

        if (!p)
                return NULL;
        p->core = (client_core *)Py_NewRef((PyObject *)core);
        p->name = Py_XNewRef(name);
        p->arguments = Py_XNewRef(arguments);
        p->context = Py_XNewRef(context);
        return p;
}

void client_pending_enter(client_pending *p, agx_client_call *call)
{
        client_core *core = p->core;

        Py_INCREF((PyObject *)p);
        p->call = call;
        p->next = core->pending;
        if (p->next)
                p->next->prev = p;
        core->pending = p;
}

/* Takes it out of flight; the caller still holds it. */
static void take_out(client_pending *p)
{
        client_core *core = p->core;

        if (p->prev)
                p->prev->next = p->next;
        else
                core->pending = p->next;
        if (p->next)
                p->next->prev = p->prev;
        p->prev = p->next = NULL;
        p->call = NULL;
        Py_CLEAR(p->arguments);
        Py_CLEAR(p->context);
        Py_DECREF((PyObject *)p);
}

/* And its call with it. */
static void leave(client_pending *p)
{
        agx_client_call *call = p->call;

        if (!call)
                return;
        agx_client_call_free(p->core->client, call, client_now());
        take_out(p);
}

void client_pending_fail(client_pending *p)
{
        p->error = agx_ext_caught();
        p->done = true;
        leave(p);
}

void client_pending_hand_over(client_pending *p, client_pending *other, PyObject *value)
{
        agx_client_call_set_user(p->call, other);
        client_pending_enter(other, p->call);
        other->arguments = p->arguments;
        other->context = p->context;
        p->arguments = p->context = NULL;
        p->value = value;
        p->done = true;
        take_out(p);
}

void client_pending_deliver(client_pending *p, agx_client_call *call)
{
        const agx_client_result *result = agx_client_call_result(call);

        if (has_value(result))
                p->value = value_of(p->core, call, result);
        else
                p->error = error_of(p->core, p, result);
        if (!p->value && !p->error)
                p->error = agx_ext_caught();
        p->done = true;
        leave(p);
}

static int call_soon(client_pending *p, PyObject *callback, PyObject *context)
{
        client_core *core = p->core;
        PyObject *method, *args, *kwargs, *r = NULL;

        if (core->loop_is_dead || !core->loop)
                return 0;
        method = PyObject_GetAttr(core->loop, core->s_call_soon);
        args = PyTuple_Pack(2, callback, (PyObject *)p);
        kwargs = PyDict_New();
        if (method && args && kwargs && PyDict_SetItem(kwargs, core->s_context, context) == 0)
                r = PyObject_Call(method, args, kwargs);
        Py_XDECREF(method);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        Py_XDECREF(r);
        return r ? 0 : -1;
}

static int wake_one(client_pending *p, PyObject *callback, PyObject *context, bool direct)
{
        client_core *core = p->core;
        PyObject *r;

        if (!direct || core->resuming)
                return call_soon(p, callback, context);
        core->resuming = true;
        core->resumer = PyThread_get_thread_ident();
        r = PyObject_CallMethodObjArgs(context, core->s_run, callback, (PyObject *)p, NULL);
        core->resuming = false;
        Py_XDECREF(r);
        return r ? 0 : -1;
}

int client_pending_wake(client_pending *p, bool direct)
{
        PyObject *callback = p->callback, *context = p->callback_context, *more = p->callbacks;
        int r = 0;

        p->callback = p->callback_context = p->callbacks = NULL;
        if (callback)
                r = wake_one(p, callback, context, direct);
        for (Py_ssize_t i = 0; more && i < PyList_Size(more); ++i) {
                PyObject *pair = PyList_GetItem(more, i);

                if (wake_one(p, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1), false) < 0)
                        r = -1;
        }
        Py_XDECREF(callback);
        Py_XDECREF(context);
        Py_XDECREF(more);
        return r;
}

/* ---- what tasks ask ---- */

static PyObject *raise_outcome(client_pending *p)
{
        if (p->cancelled)
                PyErr_SetObject(p->core->cancelled_error, p->error);
        else
                PyErr_SetObject((PyObject *)Py_TYPE(p->error), p->error);
        return NULL;
}

/* For a cancelled one `error` is the message, or NULL. */
static PyObject *pending_result(PyObject *self, PyObject *ignored)
{
        client_pending *p = (client_pending *)self;

        (void)ignored;
        if (p->value)
                return Py_NewRef(p->value);
        if (p->done)
                return raise_outcome(p);
        PyErr_SetString(PyExc_RuntimeError, "the remote call has not ended");
        return NULL;
}

PyObject *client_pending_take(client_pending *p)
{
        return pending_result((PyObject *)p, NULL);
}

static PyObject *pending_exception(PyObject *self, PyObject *ignored)
{
        client_pending *p = (client_pending *)self;

        if (p->done && !p->cancelled)
                return Py_NewRef(p->error ? p->error : Py_None);
        return pending_result(self, ignored);
}

static PyObject *pending_done(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return PyBool_FromLong(((client_pending *)self)->done);
}

static PyObject *pending_cancelled(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return PyBool_FromLong(((client_pending *)self)->cancelled);
}

static PyObject *pending_get_loop(PyObject *self, PyObject *ignored)
{
        PyObject *loop = ((client_pending *)self)->core->loop;

        (void)ignored;
        return Py_NewRef(loop ? loop : Py_None);
}

/* Ends it here; the call itself is abandoned (agx_client_call_free()). */
static bool abandon(client_pending *p, PyObject *message)
{
        if (p->done)
                return false;
        p->done = p->cancelled = true;
        p->error = message && message != Py_None ? Py_NewRef(message) : NULL;
        leave(p);
        return true;
}

static PyObject *pending_cancel(PyObject *self, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"msg", NULL};
        client_pending *p = (client_pending *)self;
        PyObject *message = NULL;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:cancel", names, &message))
                return NULL;
        if (!abandon(p, message))
                return Py_NewRef(Py_False);
        if (client_pending_wake(p, false) < 0 || client_process(p->core, false) < 0)
                return NULL;
        return Py_NewRef(Py_True);
}

int client_pending_leave(client_pending *p)
{
        return abandon(p, NULL) ? client_process(p->core, false) : 0;
}

/* The coroutine that waits is being closed. */
static PyObject *pending_close(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return client_pending_leave((client_pending *)self) < 0 ? NULL : Py_NewRef(Py_None);
}

/* Something is thrown into the coroutine that waits: throw(type, value=None, traceback=None) of generators. */
static PyObject *pending_throw(PyObject *self, PyObject *args)
{
        client_pending *p = (client_pending *)self;
        PyObject *type, *value = Py_None, *traceback = NULL;

        if (!PyArg_ParseTuple(args, "O|OO:throw", &type, &value, &traceback))
                return NULL;
        if (client_pending_leave(p) < 0)
                PyErr_Clear();
        if (PyExceptionInstance_Check(type))
                PyErr_SetObject((PyObject *)Py_TYPE(type), type);
        else
                PyErr_SetObject(type, value == Py_None ? NULL : value);
        return NULL;
}

static int add_further(client_pending *p, PyObject *callback, PyObject *context)
{
        PyObject *pair = PyTuple_Pack(2, callback, context);
        int r = -1;

        if (!p->callbacks)
                p->callbacks = PyList_New(0);
        if (pair && p->callbacks)
                r = PyList_Append(p->callbacks, pair);
        Py_XDECREF(pair);
        return r;
}

static int add_callback(client_pending *p, PyObject *callback, PyObject *context)
{
        if (p->done)
                return call_soon(p, callback, context);
        if (p->callback)
                return add_further(p, callback, context);
        p->callback = Py_NewRef(callback);
        p->callback_context = Py_NewRef(context);
        return 0;
}

static PyObject *pending_add_done_callback(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
        client_pending *p = (client_pending *)self;
        Py_ssize_t n_named = kwnames ? PyTuple_Size(kwnames) : 0;
        PyObject *context = NULL;
        int r;

        if (n != 1 || n_named > 1) {
                PyErr_SetString(PyExc_TypeError, "add_done_callback(fn, *, context=None)");
                return NULL;
        }
        if (n_named && args[1] != Py_None)
                context = Py_NewRef(args[1]);
        else
                context = PyObject_CallNoArgs(p->core->copy_context);
        if (!context)
                return NULL;
        r = add_callback(p, args[0], context);
        Py_DECREF(context);
        return r < 0 ? NULL : Py_NewRef(Py_None);
}

/* Removes from the further ones; gives how many, or -1. */
static Py_ssize_t remove_further(client_pending *p, PyObject *callback)
{
        Py_ssize_t removed = 0;

        for (Py_ssize_t i = p->callbacks ? PyList_Size(p->callbacks) : 0; i-- > 0;) {
                int same =
                        PyObject_RichCompareBool(PyTuple_GetItem(PyList_GetItem(p->callbacks, i), 0), callback, Py_EQ);

                if (same < 0 || (same && PyList_SetSlice(p->callbacks, i, i + 1, NULL) < 0))
                        return -1;
                removed += same;
        }
        return removed;
}

static PyObject *pending_remove_done_callback(PyObject *self, PyObject *callback)
{
        client_pending *p = (client_pending *)self;
        Py_ssize_t removed = remove_further(p, callback);
        int same = p->callback && removed >= 0 ? PyObject_RichCompareBool(p->callback, callback, Py_EQ) : 0;

        if (removed < 0 || same < 0)
                return NULL;
        if (same) {
                Py_CLEAR(p->callback);
                Py_CLEAR(p->callback_context);
        }
        return PyLong_FromSsize_t(removed + same);
}

static PyObject *pending_get_blocking(PyObject *self, void *closure)
{
        (void)closure;
        return PyBool_FromLong(((client_pending *)self)->blocking);
}

static int pending_set_blocking(PyObject *self, PyObject *value, void *closure)
{
        int blocking = value ? PyObject_IsTrue(value) : 0;

        (void)closure;
        if (blocking >= 0)
                ((client_pending *)self)->blocking = blocking;
        return blocking < 0 ? -1 : 0;
}

/* ---- awaiting ---- */

static PySendResult pending_send(PyObject *self, PyObject *value, PyObject **result)
{
        client_pending *p = (client_pending *)self;

        (void)value;
        if (p->done) {
                *result = pending_result(self, NULL);
                return *result ? PYGEN_RETURN : PYGEN_ERROR;
        }
        p->blocking = true;
        *result = Py_NewRef(self);
        return PYGEN_NEXT;
}

PyObject *client_stop_with(PyObject *value)
{
        PyObject *stop =
                PyObject_CallFunctionObjArgs(PyExc_StopIteration, value, NULL); /* a tuple must not be unpacked */

        Py_DECREF(value);
        if (stop)
                PyErr_SetObject(PyExc_StopIteration, stop);
        Py_XDECREF(stop);
        return NULL;
}

static PyObject *pending_next(PyObject *self)
{
        PyObject *result;

        return pending_send(self, NULL, &result) == PYGEN_RETURN ? client_stop_with(result) : result;
}

/* ---- the type ---- */

static int pending_traverse(PyObject *self, visitproc visit, void *arg)
{
        client_pending *p = (client_pending *)self;

        Py_VISIT(Py_TYPE(self));
        Py_VISIT((PyObject *)p->core);
        Py_VISIT(p->name);
        Py_VISIT(p->arguments);
        Py_VISIT(p->context);
        Py_VISIT(p->value);
        Py_VISIT(p->error);
        Py_VISIT(p->callback);
        Py_VISIT(p->callback_context);
        Py_VISIT(p->callbacks);
        return 0;
}

static int pending_clear(PyObject *self)
{
        client_pending *p = (client_pending *)self;

        Py_CLEAR(p->value);
        Py_CLEAR(p->error);
        Py_CLEAR(p->callback);
        Py_CLEAR(p->callback_context);
        Py_CLEAR(p->callbacks);
        return 0;
}

static void pending_dealloc(PyObject *self)
{
        client_pending *p = (client_pending *)self;
        PyTypeObject *type = Py_TYPE(self);
        freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

        PyObject_GC_UnTrack(self); /* in flight it is owned by the core: here it is not */
        pending_clear(self);
        Py_CLEAR(p->stream);
        Py_CLEAR(p->name);
        Py_CLEAR(p->arguments);
        Py_CLEAR(p->context);
        Py_DECREF((PyObject *)p->core);
        release(self);
        Py_DECREF(type);
}

static PyMethodDef pending_methods[] = {
        {"result", pending_result, METH_NOARGS, NULL},
        {"exception", pending_exception, METH_NOARGS, NULL},
        {"done", pending_done, METH_NOARGS, NULL},
        {"cancelled", pending_cancelled, METH_NOARGS, NULL},
        {"get_loop", pending_get_loop, METH_NOARGS, NULL},
        {"cancel", (PyCFunction)(void (*)(void))pending_cancel, METH_VARARGS | METH_KEYWORDS, NULL},
        {"close", pending_close, METH_NOARGS, NULL},
        {"throw", pending_throw, METH_VARARGS, NULL},
        {"consumed", client_items_consumed, METH_VARARGS, NULL},
        {"add_done_callback", (PyCFunction)(void (*)(void))pending_add_done_callback, METH_FASTCALL | METH_KEYWORDS,
         NULL},
        {"remove_done_callback", pending_remove_done_callback, METH_O, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef pending_getset[] = {
        {"_asyncio_future_blocking", pending_get_blocking, pending_set_blocking, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot pending_slots[] = {
        {Py_tp_doc, "A remote call under way, to be awaited once."},
        {Py_tp_dealloc, (void *)pending_dealloc},
        {Py_tp_traverse, (void *)pending_traverse},
        {Py_tp_clear, (void *)pending_clear},
        {Py_tp_methods, pending_methods},
        {Py_tp_getset, pending_getset},
        {Py_tp_iter, (void *)PyObject_SelfIter},
        {Py_tp_iternext, (void *)pending_next},
        {Py_am_await, (void *)PyObject_SelfIter},
        {Py_am_send, (void *)pending_send},
        {0, NULL},
};

static PyType_Spec pending_spec = {
        .name = "agentix._core.Pending",
        .basicsize = sizeof(client_pending),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = pending_slots,
};

PyObject *client_pending_type(PyObject *module)
{
        return PyType_FromModuleAndSpec(module, &pending_spec, NULL);
}
