/*
 * The short way of a call: look up a target that is known and still what it was, decode the arguments, call it, encode
 * the value, answer; all of it without a frame of Python but the target's. What does not fit (an unknown target, an
 * exception, a value that may be awaitable) is given to `rest`, which goes on from there.
 *
 * The interpreter is taken once per call: an answer is sent in the same stretch without it in which the next frame is read.
 */
#include "channel.h"
#include "scalars.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

enum { FEW = 4 }; /* arguments of a target, as most have */

/* ---- helpers ---- */

/* Else nobody would ever answer the call. */
static void end_without_memory(void)
{
        static const char words[] =
                "agentix worker: no memory is left to answer a call; RLIMIT_AS may bound it. The worker ends\n";
        ssize_t n = write(2, words, sizeof(words) - 1);

        (void)n;
        _exit(1);
}

void agx_channel_leave_to_rest(agx_channel *self, agx_ext_call *call, const char *stage, PyObject *what)
{
        PyObject *r, *object = what ? what : agx_ext_caught();

        r = PyObject_CallFunction(self->rest, "OsO", (PyObject *)call, stage, object);
        Py_XDECREF(object);
        if (!r && PyErr_ExceptionMatches(PyExc_MemoryError))
                end_without_memory();
        if (!r)
                PyErr_WriteUnraisable(self->rest);
        Py_XDECREF(r);
}

/* Its types are never awaitable. Containers may hold what is not, but the await would be on themselves. */
static bool is_plain(PyObject *value)
{
        return value == Py_None || PyLong_CheckExact(value) || PyBool_Check(value) || PyFloat_CheckExact(value) ||
               PyUnicode_CheckExact(value) || PyBytes_CheckExact(value) || PyList_CheckExact(value) ||
               PyTuple_CheckExact(value) || PyDict_CheckExact(value);
}

static void flush_stream(agx_channel *self, PyObject *name)
{
        PyObject *stream = Py_XNewRef(PyDict_GetItemWithError(self->sys_dict, name)), *r;

        if (!stream)
                return;
        r = PyObject_CallMethodObjArgs(stream, self->s_flush, NULL);
        if (!r)
                PyErr_Clear(); /* closed or replaced by user code */
        Py_XDECREF(r);
        Py_DECREF(stream);
}

/* ---- the steps ---- */

/* The function of a target if its name still stands for what it did last time and it is async or not; borrowed, or NULL. */
static PyObject *known_function(agx_channel *self, PyObject *target, PyObject *is_async)
{
        PyObject *known = PyDict_GetItemWithError(self->targets, target), *namespace, *module, *function;

        if (!known || !PyTuple_Check(known) || PyTuple_Size(known) != 5 || PyTuple_GetItem(known, 4) != is_async)
                return NULL;
        namespace = PyTuple_GetItem(known, 1);
        function = PyTuple_GetItem(known, 3);
        module = PyDict_GetItemWithError(PyImport_GetModuleDict(), PyTuple_GetItem(known, 0));
        if (!module || !PyModule_Check(module) || PyModule_GetDict(module) != namespace ||
            PyDict_GetItemWithError(namespace, PyTuple_GetItem(known, 2)) != function)
                return NULL;
        return function;
}

PyObject *agx_channel_async_function(agx_channel *self, PyObject *call)
{
        PyObject *function = known_function(self, ((agx_ext_call *)call)->target, Py_True);

        if (!function)
                PyErr_Clear();
        return function;
}

/* (args, kwargs) as the host pickles them; anything else is for Python to make sense of. */
static bool has_usual_shape(PyObject *loaded)
{
        return PyTuple_CheckExact(loaded) && PyTuple_Size(loaded) == 2 &&
               PyTuple_CheckExact(PyTuple_GetItem(loaded, 0)) && PyDict_CheckExact(PyTuple_GetItem(loaded, 1));
}

PyObject *agx_channel_context(agx_channel *self, agx_ext_call *call)
{
        PyObject *token = PyObject_CallFunctionObjArgs(self->set_current, call->id, NULL);
        PyObject *context = token ? PyObject_CallNoArgs(self->copy_context) : NULL;

        Py_XDECREF(token);
        return context;
}

/* context.run(function, *args), of few arguments: without a method and a tuple that are made for it. */
static PyObject *run_few(agx_channel *self, agx_ext_call *call, PyObject *context, PyObject *function, PyObject *args)
{
        PyObject *few[FEW + 1] = {NULL}, *value;
        Py_ssize_t n = PyTuple_Size(args);

        for (Py_ssize_t i = 0; i < n; ++i)
                few[i] = PyTuple_GetItem(args, i); /* the first NULL ends them */
        if (!agx_ext_call_enter(call))
                return NULL;
        value = PyObject_CallMethodObjArgs(context, self->s_run, function, few[0], few[1], few[2], few[3], NULL);
        agx_ext_call_leave(call);
        return value;
}

static PyObject *run_any(agx_channel *self, agx_ext_call *call, PyObject *context, PyObject *function, PyObject *args,
                         PyObject *kwargs)
{
        PyObject *run = PyObject_GetAttr(context, self->s_run);
        Py_ssize_t n = PyTuple_Size(args);
        PyObject *all = run ? PyTuple_New(n + 1) : NULL, *value = NULL;

        if (all) {
                PyTuple_SetItem(all, 0, Py_NewRef(function));
                for (Py_ssize_t i = 0; i < n; ++i)
                        PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
                value = agx_ext_call_run(call, run, all, kwargs);
        }
        Py_XDECREF(all);
        Py_XDECREF(run);
        return value;
}

/* Calls function(*args, **kwargs) in a context of its own. */
static PyObject *run_target(agx_channel *self, agx_ext_call *call, PyObject *function, PyObject *loaded)
{
        PyObject *args = PyTuple_GetItem(loaded, 0), *kwargs = PyTuple_GetItem(loaded, 1);
        PyObject *context = agx_channel_context(self, call), *value = NULL;

        if (context && !PyDict_Size(kwargs) && PyTuple_Size(args) <= FEW)
                value = run_few(self, call, context, function, args);
        else if (context)
                value = run_any(self, call, context, function, args, PyDict_Size(kwargs) ? kwargs : NULL);
        Py_XDECREF(context);
        return value;
}

/* Takes the call off the table, after which no cancel finds it. False: it is answered, or Python's to answer. */
static bool take_off(agx_channel *self, agx_ext_call *call)
{
        flush_stream(self, self->s_stdout);
        flush_stream(self, self->s_stderr);
        if (self->fd < 0) {
                agx_channel_leave_to_rest(self, call, "forked", Py_NewRef(Py_None));
                return false;
        }
        if (PyDict_GetItemWithError(self->calls, call->id) != (PyObject *)call ||
            PyDict_DelItem(self->calls, call->id)) {
                PyErr_Clear();
                return false;
        }
        if (call->cancelled)
                agx_channel_leave_to_rest(self, call, "cancelled", Py_NewRef(Py_None));
        return !call->cancelled;
}

/* A small value goes into `reply`, a large one is sent from where it lies. */
static void answer(agx_channel *self, agx_ext_call *call, PyObject *pickled, agx_buf *reply)
{
        agx_frame frame = {.kind = AGX_FRAME_RESULT};
        Py_ssize_t n_id, n_value;
        const char *id = PyUnicode_AsUTF8AndSize(call->id, &n_id);
        PyObject *sent;
        char *value;

        if (!id || PyBytes_AsStringAndSize(pickled, &value, &n_value)) {
                agx_channel_leave_to_rest(self, call, "unsent", NULL);
                return;
        }
        frame.call_id = agx_view_of(id, (size_t)n_id);
        frame.value = agx_view_of(value, (size_t)n_value);
        if (n_value <= CHANNEL_GATHER / 2 && !agx_frame_put(reply, &frame))
                return;
        sent = agx_channel_send(self, &frame);
        if (!sent)
                agx_channel_leave_to_rest(self, call, "unsent", NULL);
        Py_XDECREF(sent);
}

/* Large bytes, of which no pickle is made. */
static void answer_apart(agx_channel *self, agx_ext_call *call, const agx_scalars_apart *pickle)
{
        Py_ssize_t n_id;
        const char *id = PyUnicode_AsUTF8AndSize(call->id, &n_id);
        PyObject *sent = id ? agx_channel_send_apart(self, agx_view_of(id, (size_t)n_id), pickle) : NULL;

        if (!sent)
                agx_channel_leave_to_rest(self, call, "unsent", NULL);
        Py_XDECREF(sent);
}

static void finish(agx_channel *self, agx_ext_call *call, PyObject *value, agx_buf *reply)
{
        PyObject *pickled, *error;
        agx_scalars_apart apart;

        if (agx_scalars_dump_apart(value, &apart)) {
                if (take_off(self, call))
                        answer_apart(self, call, &apart);
                return;
        }
        pickled = agx_scalars_dump(value);
        if (!pickled)
                pickled = PyObject_CallFunctionObjArgs(self->dumps, value, self->protocol, NULL);
        if (pickled) {
                if (take_off(self, call))
                        answer(self, call, pickled, reply);
                Py_DECREF(pickled);
                return;
        }
        error = agx_ext_caught();
        agx_channel_leave_to_rest(self, call, "unpicklable", Py_BuildValue("(ON)", value, error));
}

const char agx_channel_finish_doc[] =
        "finish(call: Call, value: object) -> bool\n--\n\n"
        "End a call as serve() would; False, and nothing done, if the value is not plain.";

PyObject *agx_channel_finish(agx_channel *self, PyObject *args)
{
        _cleanup_(agx_buf_deinitp) agx_buf reply = AGX_BUF_NULL(CHANNEL_GATHER);
        PyObject *call, *value;

        if (!PyArg_ParseTuple(args, "O!O:finish", self->call_type, &call, &value))
                return NULL;
        if (!is_plain(value))
                Py_RETURN_FALSE;
        finish(self, (agx_ext_call *)call, value, &reply);
        agx_channel_reply(self, &reply, true);
        Py_RETURN_TRUE;
}

PyObject *agx_channel_finish_async(agx_channel *self, agx_ext_call *call, PyObject *value)
{
        _cleanup_(agx_buf_deinitp) agx_buf reply = AGX_BUF_NULL(CHANNEL_GATHER);
        PyObject *next;

        if (is_plain(value)) {
                finish(self, call, value, &reply);
                agx_channel_reply(self, &reply, true);
                return NULL;
        }
        next = PyObject_CallFunction(self->rest, "OsO", (PyObject *)call, "returned", value);
        if (!next)
                PyErr_WriteUnraisable(self->rest);
        if (next != Py_None)
                return next;
        Py_DECREF(next);
        return NULL;
}

static PyObject *load_arguments(agx_channel *self, PyObject *arguments)
{
        PyObject *loaded;
        Py_ssize_t n;
        char *p;

        if (PyTuple_CheckExact(arguments))
                return Py_NewRef(arguments);
        if (PyBytes_AsStringAndSize(arguments, &p, &n))
                return NULL;
        loaded = agx_scalars_load(agx_view_of(p, (size_t)n));
        return loaded ? loaded : PyObject_CallFunctionObjArgs(self->loads, arguments, NULL);
}

PyObject *agx_channel_load(agx_channel *self, agx_ext_call *call)
{
        PyObject *loaded = load_arguments(self, call->arguments);

        if (!loaded) {
                agx_channel_leave_to_rest(self, call, "undecodable", NULL);
                return NULL;
        }
        if (!has_usual_shape(loaded)) {
                agx_channel_leave_to_rest(self, call, "decoded", loaded);
                return NULL;
        }
        Py_DECREF(call->arguments);
        call->arguments = Py_NewRef(Py_None);
        return loaded;
}

static void run_call(agx_channel *self, agx_ext_call *call, PyObject *function, agx_buf *reply)
{
        PyObject *loaded = agx_channel_load(self, call), *value;

        if (!loaded)
                return;
        value = run_target(self, call, function, loaded);
        Py_DECREF(loaded);
        if (!value) {
                agx_channel_leave_to_rest(self, call, "raised", NULL);
        } else if (is_plain(value)) {
                finish(self, call, value, reply);
                Py_DECREF(value);
        } else {
                agx_channel_leave_to_rest(self, call, "value", value);
        }
}

/* ---- serving ---- */

static bool leave(agx_channel *self, bool last)
{
        int idle = atomic_load(&self->idle);

        while (idle > 1 || last)
                if (atomic_compare_exchange_weak(&self->idle, &idle, idle - 1))
                        return true;
        return false;
}

const char agx_channel_enter_doc[] = "enter()\n--\n\nCount one more thread as waiting for a call.";

PyObject *agx_channel_enter(agx_channel *self, PyObject *unused)
{
        (void)unused;
        atomic_fetch_add(&self->idle, 1);
        Py_RETURN_NONE;
}

static bool is_full(agx_channel *self)
{
        return atomic_load(&self->idle) >= self->idle_max;
}

const char agx_channel_is_full_doc[] = "is_full() -> bool\n--\n\nWhether as many threads wait as may wait.";

PyObject *agx_channel_is_full(agx_channel *self, PyObject *unused)
{
        (void)unused;
        return PyBool_FromLong(is_full(self));
}

const char agx_channel_leave_doc[] =
        "leave(*, last: bool = False) -> bool\n--\n\n"
        "Count one less; False, and nothing done, if it would be the last and `last` does not say that it may.";

PyObject *agx_channel_leave(agx_channel *self, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"last", NULL};
        int last = 0;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$p:leave", names, &last))
                return NULL;
        return PyBool_FromLong(leave(self, last));
}

/* Runs a call if it is one for the short way and somebody else can read meanwhile. */
static bool take_short_way(agx_channel *self, PyObject *frame, agx_buf *reply)
{
        agx_ext_call *call = (agx_ext_call *)frame;
        PyObject *function;

        if (Py_TYPE(frame) != self->call_type || call->cancelled || call->context != Py_None)
                return false;
        function = known_function(self, call->target, Py_False);
        if (!function || !leave(self, false)) {
                PyErr_Clear();
                return false;
        }
        Py_INCREF(function);
        run_call(self, call, function, reply);
        Py_DECREF(function);
        return true;
}

static PyObject *serve(agx_channel *self, agx_buf *reply)
{
        bool back = false;

        for (;;) {
                PyObject *frame = agx_channel_receive(self, reply, back);

                if (!frame || !take_short_way(self, frame, reply))
                        return frame;
                Py_DECREF(frame); /* it must not outlive its answer while this thread waits */
                if (self->parked || is_full(self)) {
                        agx_turns_leave(&self->turns);
                        agx_channel_reply(self, reply, false);
                        return Py_BuildValue("(ss)", "return", "");
                }
                back = true;
        }
}

const char agx_channel_serve_doc[] =
        "serve() -> Call | tuple[str, str | None] | None\n--\n\n"
        "The next frame from the server that is Python's to deal with: a call, which is in the table of calls by then; "
        "or\n"
        "(kind, name), where kind is cancel (name: the call's id), shutdown or unknown (name: the type it has); or "
        "None at\n"
        "the end. Raises EOFError inside a frame, ValueError for a malformed or oversized one, OSError otherwise; "
        "nothing\n"
        "can be received after that.\n\n"
        "Calls for which `targets` has what they stand for are run here and answered. What they come to beside a "
        "plain\n"
        "value goes to rest(call, stage, what):\n\n"
        "- undecodable: the exception of decoding the arguments; decoded: arguments that are not (tuple, dict)\n"
        "- raised: the target's exception; value: one that is not of a plain builtin type\n"
        "- returned: such a value of an async target; rest() may return a coroutine by which the call goes on\n"
        "- unpicklable: (value, exception)\n"
        "- and, with the call taken off the table, cancelled; unsent: the exception; forked: this is a forked child\n\n"
        "The kind of frame ('lead', call) gives the lead to a loop (accept()), which also runs the call; ('return', "
        "'') says\n"
        "that a call has been run and this thread is not counted as waiting.";

PyObject *agx_channel_serve(agx_channel *self, PyObject *unused)
{
        _cleanup_(agx_buf_deinitp) agx_buf reply = AGX_BUF_NULL(CHANNEL_GATHER);
        PyObject *frame;

        (void)unused;
        frame = serve(self, &reply);
        return frame;
}

/* ---- life ---- */

static PyObject *take_method(const char *module, const char *object, const char *name)
{
        PyObject *o = agx_ext_take_from(module, object);
        PyObject *method = o ? PyObject_GetAttrString(o, name) : NULL;

        Py_XDECREF(o);
        return method;
}

int agx_channel_init_short(agx_channel *self)
{
#define X(name)                                                                                                        \
        self->s_##name = PyUnicode_InternFromString(#name);                                                            \
        if (!self->s_##name)                                                                                           \
                return -1;
        CHANNEL_NAMES(X)
#undef X
        self->loads = agx_ext_take_from("_pickle", "loads");
        self->dumps = agx_ext_take_from("_pickle", "dumps");
        self->copy_context = agx_ext_take_from("_contextvars", "copy_context");
        self->protocol = PyLong_FromLong(5);
        self->set_current = take_method("agentix._ambient", "current_call", "set");
        self->sys_dict = agx_ext_take_from("sys", "__dict__");
        return self->loads && self->dumps && self->copy_context && self->protocol && self->set_current && self->sys_dict
                       ? 0
                       : -1;
}

int agx_channel_traverse_short(agx_channel *self, visitproc visit, void *arg)
{
        Py_VISIT(self->targets);
        Py_VISIT(self->rest);
        return agx_channel_traverse_task(self, visit, arg);
}

void agx_channel_clear_short(agx_channel *self)
{
        Py_CLEAR(self->targets);
        Py_CLEAR(self->rest);
        Py_CLEAR(self->loads);
        Py_CLEAR(self->dumps);
        Py_CLEAR(self->copy_context);
        Py_CLEAR(self->set_current);
        Py_CLEAR(self->sys_dict);
        Py_CLEAR(self->protocol);
#define X(name) Py_CLEAR(self->s_##name);
        CHANNEL_NAMES(X)
#undef X
}
