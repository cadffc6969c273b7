/*
 * agentix._core.Channel: the worker's end of its private pair of descriptors.
 *
 * Frames are read by whichever thread leads (turns.h); the others wait in C without the interpreter. A frame is turned
 * into Python objects before the next leader may read, so frames are handed out in order. Sending takes a lock of its own;
 * neither is ever waited for with the interpreter held.
 */
#include "state.h"
#include "turns.h"

#include "proto/frame.h"
#include "proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHANNEL_READ = 64 * 1024 };

typedef struct channel {
        PyObject_HEAD
        int fd;
        agx_turns turns;
        pthread_mutex_t sending;
        agx_deframer deframer;
        agx_view in; /* read, not yet cut into frames; lies in `bytes` */
        char *bytes;
} channel;

/* ---- receiving ---- */

/* The next payload: 0; 1 at an orderly end; AGX_FRAME_E_TOO_LARGE + 1 and up are failures named in receive(). */
enum { GOT_PAYLOAD, GOT_END, GOT_TRUNCATED, GOT_TOO_LARGE, GOT_ERRNO };

static int next_payload(channel *self, agx_view *payload)
{
        for (;;) {
                int r = agx_deframer_next(&self->deframer, &self->in, payload);
                ssize_t n;

                if (!r)
                        return GOT_PAYLOAD;
                if (r == AGX_FRAME_E_TOO_LARGE)
                        return GOT_TOO_LARGE;
                if (r < 0) {
                        errno = -r;
                        return GOT_ERRNO;
                }
                do
                        n = read(self->fd, self->bytes, CHANNEL_READ);
                while (n < 0 && errno == EINTR);
                if (n < 0 && errno != ECONNRESET)
                        return GOT_ERRNO;
                if (n <= 0)
                        return agx_deframer_idle(&self->deframer) ? GOT_END : GOT_TRUNCATED;
                self->in = agx_view_of(self->bytes, (size_t)n);
        }
}

static PyObject *text_or_none(agx_view v)
{
        return v.p ? PyUnicode_DecodeUTF8(v.p, (Py_ssize_t)v.n, "replace") : Py_NewRef(Py_None);
}

static PyObject *bytes_or_none(agx_view v)
{
        return v.p ? PyBytes_FromStringAndSize(v.p, (Py_ssize_t)v.n) : Py_NewRef(Py_None);
}

static const char *kind_text(const agx_frame *frame)
{
        switch (frame->kind) {
        case AGX_FRAME_CALL:
                return "call";
        case AGX_FRAME_CANCEL:
                return "cancel";
        case AGX_FRAME_SHUTDOWN:
                return "shutdown";
        default:
                return "unknown";
        }
}

/* (kind, call_id or the unknown type's name, callable, arguments, context) */
static PyObject *frame_tuple(const agx_frame *frame)
{
        const char *kind = kind_text(frame);
        agx_view name = kind[0] == 'u' ? frame->type_text : frame->call_id;

        return Py_BuildValue("(sNNNN)", kind, text_or_none(name), text_or_none(frame->callable),
                             bytes_or_none(frame->arguments), bytes_or_none(frame->context));
}

/* The frame must be turned into objects before the lead is passed on: its bytes lie in the channel. */
static PyObject *payload_tuple(channel *self, agx_view payload)
{
        PyObject *tuple = NULL;
        agx_frame frame;

        if (agx_frame_parse(payload, &frame))
                PyErr_SetString(PyExc_ValueError, "a frame is not a well-formed msgpack map");
        else
                tuple = frame_tuple(&frame);
        if (tuple && frame.kind == AGX_FRAME_CALL)
                agx_turns_begin(&self->turns, frame.callable);
        else
                agx_turns_leave(&self->turns);
        return tuple;
}

PyDoc_STRVAR(receive_doc,
             "receive() -> tuple | None\n--\n\n"
             "The next frame from the server as (kind, call_id, callable, arguments, context); None at its end.\n\n"
             "Blocks without the interpreter lock. Raises EOFError inside a frame, ValueError for a malformed or\n"
             "oversized one, OSError otherwise.");

static PyObject *channel_receive(channel *self, PyObject *unused)
{
        agx_view payload;
        PyObject *frame;
        int got;

        (void)unused;
        Py_BEGIN_ALLOW_THREADS;
        agx_turns_take(&self->turns);
        got = next_payload(self, &payload);
        Py_END_ALLOW_THREADS;
        switch (got) {
        case GOT_PAYLOAD:
                return payload_tuple(self, payload);
        case GOT_END:
                frame = Py_NewRef(Py_None);
                break;
        case GOT_TRUNCATED:
                PyErr_SetString(PyExc_EOFError, "the server's end closed in the middle of a frame");
                frame = NULL;
                break;
        case GOT_TOO_LARGE:
                PyErr_Format(PyExc_ValueError, "the server announced a frame above the limit of %u bytes",
                             AGX_MAX_MESSAGE);
                frame = NULL;
                break;
        default:
                frame = PyErr_SetFromErrno(PyExc_OSError);
                break;
        }
        agx_turns_leave(&self->turns);
        return frame;
}

/* ---- sending ---- */

static int write_all(int fd, agx_view v)
{
        while (v.n) {
                ssize_t n = write(fd, v.p, v.n);

                if (n < 0 && errno != EINTR)
                        return -errno;
                if (n > 0)
                        v = agx_view_from(v, (size_t)n);
        }
        return 0;
}

/* Writes a frame: its head from a buffer, its value, if it has one, from where it lies. */
static PyObject *send_frame(channel *self, const agx_frame *frame)
{
        _cleanup_(agx_buf_deinitp) agx_buf head = AGX_BUF_NULL(SIZE_MAX);
        agx_view value = frame->value.p ? frame->value : AGX_VIEW("");
        int r = agx_frame_put_head(&head, frame);

        if (r == AGX_FRAME_E_TOO_LARGE) {
                PyErr_Format(PyExc_OverflowError, "%zu bytes do not fit into a frame of at most %u", value.n,
                             AGX_MAX_MESSAGE);
                return NULL;
        }
        if (r)
                return PyErr_NoMemory();
        if (value.n && value.n <= 16 * 1024 && !agx_buf_append_view(&head, value))
                value = AGX_VIEW("");
        Py_BEGIN_ALLOW_THREADS;
        pthread_mutex_lock(&self->sending);
        r = write_all(self->fd, agx_buf_view(&head));
        if (!r)
                r = write_all(self->fd, value);
        pthread_mutex_unlock(&self->sending);
        Py_END_ALLOW_THREADS;
        if (r) {
                errno = -r;
                return PyErr_SetFromErrno(PyExc_OSError);
        }
        Py_RETURN_NONE;
}

PyDoc_STRVAR(send_ready_doc, "send_ready()\n--\n\nTells the server that the boot is over.");

static PyObject *channel_send_ready(channel *self, PyObject *unused)
{
        (void)unused;
        return send_frame(self, &(agx_frame){.kind = AGX_FRAME_READY});
}

PyDoc_STRVAR(send_result_doc,
             "send_result(call_id: str, value: bytes)\n--\n\n"
             "Ends a call with the pickle of its value. Raises OverflowError if that does not fit a frame.");

static PyObject *channel_send_result(channel *self, PyObject *args)
{
        agx_frame frame = {.kind = AGX_FRAME_RESULT};
        Py_ssize_t id_length;
        Py_buffer value;
        PyObject *sent;
        const char *id;

        if (!PyArg_ParseTuple(args, "s#y*:send_result", &id, &id_length, &value))
                return NULL;
        frame.call_id = agx_view_of(id, (size_t)id_length);
        frame.value = agx_view_of(value.len ? value.buf : "", (size_t)value.len);
        sent = send_frame(self, &frame);
        PyBuffer_Release(&value);
        return sent;
}

static PyObject *send_fault(channel *self, agx_frame_kind kind, PyObject *args, const char *format)
{
        agx_frame frame = {.kind = kind};
        const char *id, *type, *message, *traceback;
        Py_ssize_t n_id, n_type, n_message, n_traceback;
        int cancelled;

        if (!PyArg_ParseTuple(args, format, &id, &n_id, &type, &n_type, &message, &n_message, &traceback, &n_traceback,
                              &cancelled))
                return NULL;
        frame.call_id = agx_view_of(id, (size_t)n_id);
        frame.fault = (agx_fault){
                .type = agx_view_of(type, (size_t)n_type),
                .message = agx_view_of(message, (size_t)n_message),
                .traceback = traceback ? agx_view_of(traceback, (size_t)n_traceback) : AGX_VIEW_NULL,
                .cancelled = cancelled != 0,
        };
        return send_frame(self, &frame);
}

PyDoc_STRVAR(send_error_doc,
             "send_error(call_id: str, type: str, message: str, traceback: str | None, cancelled: bool)\n--\n\n"
             "Ends a call with an error; texts are cut to their bounds.");

static PyObject *channel_send_error(channel *self, PyObject *args)
{
        return send_fault(self, AGX_FRAME_ERROR, args, "s#s#s#z#p:send_error");
}

PyDoc_STRVAR(send_boot_error_doc,
             "send_boot_error(call_id: str, type: str, message: str, traceback: str | None, cancelled: bool)\n--\n\n"
             "Tells the server that the boot failed; the call id and the flag are not used.");

static PyObject *channel_send_boot_error(channel *self, PyObject *args)
{
        return send_fault(self, AGX_FRAME_BOOT_ERROR, args, "s#s#s#z#p:send_boot_error");
}

/* ---- life ---- */

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"fd", NULL};
        channel *self;
        int fd;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:Channel", names, &fd))
                return NULL;
        if (fd <= 2 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
                PyErr_Format(PyExc_ValueError, "%d is not an open descriptor above 2", fd);
                return NULL;
        }
        self = (channel *)PyType_GenericAlloc(type, 0);
        if (!self)
                return NULL;
        self->fd = fd;
        agx_turns_init(&self->turns);
        pthread_mutex_init(&self->sending, NULL);
        agx_deframer_init(&self->deframer, AGX_MAX_MESSAGE);
        self->bytes = malloc(CHANNEL_READ);
        if (!self->bytes) {
                Py_DECREF(self);
                return PyErr_NoMemory();
        }
        return (PyObject *)self;
}

static void channel_dealloc(channel *self)
{
        PyTypeObject *type = Py_TYPE((PyObject *)self);

        agx_deframer_deinit(&self->deframer);
        free(self->bytes);
        agx_turns_deinit(&self->turns);
        pthread_mutex_destroy(&self->sending);
        close(self->fd);
        PyObject_Free(self);
        Py_DECREF(type);
}

static PyMethodDef channel_methods[] = {
        {"receive", (PyCFunction)(void (*)(void))channel_receive, METH_NOARGS, receive_doc},
        {"send_ready", (PyCFunction)(void (*)(void))channel_send_ready, METH_NOARGS, send_ready_doc},
        {"send_result", (PyCFunction)(void (*)(void))channel_send_result, METH_VARARGS, send_result_doc},
        {"send_error", (PyCFunction)(void (*)(void))channel_send_error, METH_VARARGS, send_error_doc},
        {"send_boot_error", (PyCFunction)(void (*)(void))channel_send_boot_error, METH_VARARGS, send_boot_error_doc},
        {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
        channel_doc,
        "Channel(fd: int)\n--\n\nThe worker's end of its private descriptor, which it takes over and closes on exec.");

static PyType_Slot channel_slots[] = {
        {Py_tp_new, (void *)channel_new},
        {Py_tp_dealloc, (void *)channel_dealloc},
        {Py_tp_methods, channel_methods},
        {Py_tp_doc, (void *)channel_doc},
        {0, NULL},
};

static PyType_Spec channel_spec = {
        .name = "agentix._core.Channel",
        .basicsize = sizeof(channel),
        .flags = Py_TPFLAGS_DEFAULT,
        .slots = channel_slots,
};

int agx_ext_add_channel(PyObject *module)
{
        PyObject *type = PyType_FromModuleAndSpec(module, &channel_spec, NULL);
        int r;

        if (!type)
                return -1;
        r = PyModule_AddObjectRef(module, "Channel", type);
        Py_DECREF(type);
        return r;
}
