/*
 * agentix._core.Channel: the frames about processes, both ways. What comes is put into `processes`, in order, before the
 * lead is passed on; so whoever hands it out finds it as it was sent.
 */
#include "channel.h"

#include <string.h>

static PyObject *event_of(const agx_frame *frame)
{
        unsigned long long proc = frame->proc;

        switch (frame->kind) {
        case AGX_FRAME_PROC_OUT:
                return Py_BuildValue("(sKKy#)", "out", proc, (unsigned long long)frame->fd, frame->data.p,
                                     (Py_ssize_t)frame->data.n);
        case AGX_FRAME_PROC_CREDIT:
                return Py_BuildValue("(sKKO)", "credit", proc, (unsigned long long)frame->n, Py_None);
        case AGX_FRAME_PROC_ERROR:
                return Py_BuildValue("(sKKN)", "error", proc, (unsigned long long)frame->code,
                                     PyUnicode_DecodeUTF8(frame->fault.message.p, (Py_ssize_t)frame->fault.message.n,
                                                          "replace"));
        default:
                return Py_BuildValue("(sKK(Ks#KK))", "exit", proc, (unsigned long long)frame->code,
                                     (unsigned long long)frame->signal, frame->cause.p, (Py_ssize_t)frame->cause.n,
                                     (unsigned long long)frame->out, (unsigned long long)frame->err);
        }
}

PyObject *agx_channel_put_process(agx_channel *self, const agx_frame *frame)
{
        PyObject *added, *event;

        if (!self->processes)
                return Py_BuildValue("(ss#)", "unknown", frame->type_text.p, (Py_ssize_t)frame->type_text.n);
        event = event_of(frame);
        added = event ? PyObject_CallMethod(self->processes, "append", "(O)", event) : NULL;
        Py_XDECREF(event);
        if (!added)
                return NULL;
        Py_DECREF(added);
        return Py_BuildValue("(sO)", "process", Py_None);
}

const char agx_channel_start_process_doc[] =
        "start_process(proc: int, call_id: str | None, path: bytes, argv: bytes, env: bytes, cwd: bytes,\n"
        "              stdin: bool, credit: int, limit: int, timeout: int)\n--\n\n"
        "Ask the runtime for a process; `argv` and `env` hold strings, each ended by a NUL, `timeout` is in "
        "milliseconds.";

static agx_view view_of(const char *p, Py_ssize_t n)
{
        return agx_view_of(p, (size_t)n);
}

/* A converter of PyArg_ParseTuple: the format K would take what is too large modulo 2**64. */
static int take_uint(PyObject *value, void *to)
{
        unsigned long long n;

        if (!PyLong_Check(value)) {
                PyErr_Format(PyExc_TypeError, "an int was expected, not %.200R", value);
                return 0;
        }
        n = PyLong_AsUnsignedLongLong(value);
        if (n == (unsigned long long)-1 && PyErr_Occurred()) {
                PyErr_Format(PyExc_OverflowError, "%.100R is no number from 0 to 2**64 - 1", value);
                return 0;
        }
        *(unsigned long long *)to = n;
        return 1;
}

PyObject *agx_channel_start_process(agx_channel *self, PyObject *args)
{
        agx_frame frame = {.kind = AGX_FRAME_PROC_START};
        unsigned long long proc, credit, limit, timeout;
        const char *id, *path, *argv, *env, *cwd;
        Py_ssize_t n_id, n_path, n_argv, n_env, n_cwd;
        int has_stdin;

        if (!PyArg_ParseTuple(args, "O&z#y#y#y#y#pO&O&O&:start_process", take_uint, &proc, &id, &n_id, &path, &n_path,
                              &argv, &n_argv, &env, &n_env, &cwd, &n_cwd, &has_stdin, take_uint, &credit, take_uint,
                              &limit, take_uint, &timeout))
                return NULL;
        frame.proc = proc;
        frame.call_id = id ? view_of(id, n_id) : AGX_VIEW_NULL;
        frame.path = view_of(path, n_path);
        frame.argv = view_of(argv, n_argv);
        frame.env = view_of(env, n_env);
        frame.cwd = view_of(cwd, n_cwd);
        frame.has_stdin = has_stdin != 0;
        frame.n = credit;
        frame.limit = limit;
        frame.timeout = timeout;
        return agx_channel_send(self, &frame);
}

const char agx_channel_send_process_doc[] =
        "send_process(verb: str, proc: int, n: int = 0, data: bytes = b'')\n--\n\n"
        "Tell the runtime about a process: 'in' with data, 'credit' and 'signal' with a number, 'end'.";

PyObject *agx_channel_send_process(agx_channel *self, PyObject *args)
{
        static const struct verb {
                const char *name;
                agx_frame_kind kind;
        } verbs[] = {{"in", AGX_FRAME_PROC_IN},
                     {"credit", AGX_FRAME_PROC_CREDIT},
                     {"signal", AGX_FRAME_PROC_SIGNAL},
                     {"end", AGX_FRAME_PROC_END}};
        agx_frame frame = {.kind = AGX_FRAME_UNKNOWN};
        unsigned long long proc, n = 0;
        Py_buffer data = {.buf = NULL};
        PyObject *sent;
        const char *verb;

        if (!PyArg_ParseTuple(args, "sO&|O&y*:send_process", &verb, take_uint, &proc, take_uint, &n, &data))
                return NULL;
        for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
                if (!strcmp(verb, verbs[i].name))
                        frame.kind = verbs[i].kind;
        frame.proc = proc;
        frame.n = n;
        frame.data = agx_view_of(data.len ? data.buf : "", (size_t)data.len);
        sent = frame.kind ? agx_channel_send(self, &frame) : PyErr_Format(PyExc_ValueError, "no such verb: %s", verb);
        if (data.obj)
                PyBuffer_Release(&data);
        return sent;
}
