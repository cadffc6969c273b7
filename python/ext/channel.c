/*
 * agentix._core.Channel: the worker's end of its private pair of descriptors.
 *
 * Frames are read by whichever thread leads (turns.h); the others wait in C without the interpreter. Before the lead
 * is passed on, a frame is turned into objects, and a call is entered into the table of calls: so a cancel, whoever
 * reads it, finds the call that came before it. Neither the lead nor the socket is waited for with the interpreter held.
 *
 * Reading never waits until the server takes answers: the leader sends what goes out at once (out.h) and waits for both
 * directions while there is a rest; who has to wait for more than that does not lead, or is watched (turns.h) and loses
 * the lead. So answers to calls that were read together are sent together, and whoever becomes the leader next sends
 * what the last one left.
 */
#include "channel.h"

#include "proto/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <structmember.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef agx_channel channel;

/* ---- sending ---- */

/* Sends a whole frame; the caller does not lead, or may lose the lead meanwhile. */
static int send_now(channel *self, agx_view head, agx_view value, agx_view tail)
{
        return agx_out_send(&self->out, self->fd, head, value, tail);
}

static int flush(channel *self, bool *rest)
{
        return agx_out_flush(&self->out, self->fd, rest);
}

/* Until there is something to read, or nothing left to send. */
static int flush_or_read(channel *self)
{
        struct pollfd p = {.fd = self->fd, .events = POLLIN | POLLOUT};
        bool rest = true;
        int r = 0;

        while (!r && rest) {
                p.revents = 0;
                if (poll(&p, 1, -1) < 0 && errno != EINTR)
                        return -errno;
                if (p.revents & POLLOUT)
                        r = flush(self, &rest);
                if (p.revents & ~POLLOUT)
                        break;
        }
        return r;
}

/* Sends an answer that was made here, or puts it off if this thread leads and will flush: a loop only does so soon if it
 * has read more calls already. The lead must not be taken away while it is put where only the next leader looks; it may
 * be while one is sent, which can last. */
static int reply_in_turn(channel *self, agx_buf *reply, bool in_loop)
{
        bool leads = agx_turns_resume(&self->turns);
        bool waits = leads && (self->in.n || self->next.n || !in_loop) && agx_out_put(&self->out, agx_buf_view(reply));
        int r = 0;

        if (leads)
                agx_turns_keep(&self->turns);
        if (!waits)
                r = send_now(self, agx_buf_view(reply), AGX_VIEW_NULL, AGX_VIEW_NULL);
        agx_buf_clear(reply);
        return r;
}

/* ---- receiving ---- */

/* What next_payload() and next_frame() came to; failure() has the words. */
enum {
        GOT_PAYLOAD,
        GOT_END,
        GOT_TRUNCATED,
        GOT_TOO_LARGE,
        GOT_MALFORMED,
        GOT_NOTHING,
        GOT_BLOCKED,
        GOT_HANDED,
        GOT_ERRNO
};

/* Where to read to: the place of large bytes, or that of a long frame, and then where all frames come. */
static size_t places(channel *self, struct iovec to[2])
{
        size_t n = agx_deframer_diverts(&self->deframer);
        char *at;

        if (!n && agx_deframer_place(&self->deframer, &at, &n))
                to[0] = (struct iovec){at, n};
        else if (!n || !agx_land_place(&self->land, n, &to[0]))
                to[0].iov_len = 0;
        to[1] = (struct iovec){self->bytes, to[0].iov_len ? CHANNEL_READ_BEHIND : CHANNEL_READ};
        return to[0].iov_len;
}

static int read_more(channel *self, int flags)
{
        struct iovec to[2];
        size_t placed = places(self, to), first;
        struct msghdr message = {.msg_iov = placed ? to : to + 1, .msg_iovlen = placed ? 2 : 1};
        ssize_t n;

        do
                n = recvmsg(self->fd, &message, flags);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return GOT_NOTHING;
        if (n < 0 && errno != ECONNRESET)
                return GOT_ERRNO;
        if (n <= 0)
                return agx_deframer_idle(&self->deframer) ? GOT_END : GOT_TRUNCATED;
        first = (size_t)n < placed ? (size_t)n : placed;
        self->in = agx_view_of(to[0].iov_base, first);
        self->next = agx_view_of(self->bytes, (size_t)n - first);
        return GOT_PAYLOAD;
}

/* The next payload of what was read; else AGX_FRAME_E_MORE, or as agx_deframer_next(). */
static int cut(channel *self, agx_view *payload)
{
        for (;;) {
                int r = agx_deframer_next(&self->deframer, &self->in, payload);

                if (r == AGX_FRAME_E_PART) {
                        agx_land_put(&self->land, *payload);
                        if (agx_land_is_whole(&self->land, payload))
                                return 0;
                } else if (r == AGX_FRAME_E_MORE && self->next.n) {
                        self->in = self->next;
                        self->next.n = 0;
                } else {
                        if (r == AGX_FRAME_E_MORE)
                                agx_land_begin(&self->land, &self->deframer);
                        return r;
                }
        }
}

static int next_payload(channel *self, agx_view *payload)
{
        bool flushed = false, rest = false;

        for (;;) {
                int r = cut(self, payload);

                if (!r)
                        return GOT_PAYLOAD;
                if (r == AGX_FRAME_E_TOO_LARGE)
                        return GOT_TOO_LARGE;
                if (r == AGX_FRAME_E_MALFORMED)
                        return GOT_MALFORMED;
                if (r == AGX_FRAME_E_MORE && !flushed) { /* nobody waits for an answer while we wait for a call */
                        r = flush(self, &rest);
                        if (!r && rest)
                                r = flush_or_read(self);
                        flushed = true;
                } else if (r == AGX_FRAME_E_MORE) {
                        r = read_more(self, 0);
                        if (r != GOT_PAYLOAD)
                                return r;
                        flushed = false;
                }
                if (r < 0) {
                        errno = -r;
                        return GOT_ERRNO;
                }
        }
}

/* The name of a target; calls tend to have the one that the last call had. */
static PyObject *target_name(channel *self, agx_view name)
{
        Py_ssize_t size = 0;
        const char *last = self->last_target ? PyUnicode_AsUTF8AndSize(self->last_target, &size) : NULL;

        if (!last || (size_t)size != name.n || memcmp(last, name.p, name.n) != 0) {
                PyErr_Clear();
                Py_XDECREF(self->last_target);
                self->last_target = agx_ext_call_text(name);
        }
        return self->last_target;
}

/* Its arguments have been received apart from the frame. */
static bool take_landed(channel *self, agx_ext_call *call)
{
        PyObject *arguments = agx_land_take(&self->land);

        if (!arguments)
                return false;
        Py_DECREF(call->arguments);
        call->arguments = arguments;
        return true;
}

/* A call that is in the table. */
static PyObject *enter_call(channel *self, const agx_frame *frame)
{
        PyObject *target = target_name(self, frame->callable);
        PyObject *call = target ? agx_ext_call_new(self->call_type, frame, target) : NULL;
        agx_view whole;

        if (call && agx_land_is_whole(&self->land, &whole) && !take_landed(self, (agx_ext_call *)call))
                Py_CLEAR(call);
        if (call && PyDict_SetItem(self->calls, ((agx_ext_call *)call)->id, call))
                Py_CLEAR(call);
        return call;
}

static PyObject *pair(const char *kind, agx_view name)
{
        return name.p ? Py_BuildValue("(ss#)", kind, name.p, (Py_ssize_t)name.n) : Py_BuildValue("(sO)", kind, Py_None);
}

static PyObject *put_into_inbox(channel *self, const agx_frame *frame)
{
        PyObject *added, *event;

        if (!self->inbox)
                return pair("unknown", frame->type_text);
        event = Py_BuildValue("(s#s#y#)", frame->namespace_.p, (Py_ssize_t)frame->namespace_.n, frame->event.p,
                              (Py_ssize_t)frame->event.n, frame->data.p, (Py_ssize_t)frame->data.n);
        added = event ? PyObject_CallMethod(self->inbox, "append", "(O)", event) : NULL;
        Py_XDECREF(event);
        if (!added)
                return NULL;
        Py_DECREF(added);
        return pair("sio_inbound", AGX_VIEW_NULL);
}

static PyObject *frame_object(channel *self, const agx_frame *frame)
{
        switch (frame->kind) {
        case AGX_FRAME_CALL:
                return enter_call(self, frame);
        case AGX_FRAME_CANCEL:
                return pair("cancel", frame->call_id);
        case AGX_FRAME_CREDIT:
                return Py_BuildValue("(s(s#K))", "credit", frame->call_id.p, (Py_ssize_t)frame->call_id.n,
                                     (unsigned long long)frame->n);
        case AGX_FRAME_SHUTDOWN:
                return pair("shutdown", AGX_VIEW_NULL);
        case AGX_FRAME_CONDUIT:
                return pair("conduit", AGX_VIEW_NULL);
        case AGX_FRAME_SIO_INBOUND:
                return put_into_inbox(self, frame);
        case AGX_FRAME_SIO_FLOW:
                return pair("sio_flow", frame->n ? AGX_VIEW("go") : AGX_VIEW("stop"));
        case AGX_FRAME_PROC_OUT:
        case AGX_FRAME_PROC_CREDIT:
        case AGX_FRAME_PROC_EXIT:
        case AGX_FRAME_PROC_ERROR:
                return agx_channel_put_process(self, frame);
        default:
                return pair("unknown", frame->type_text);
        }
}

/* Whether the loop should lead from here on: it got the call before this one as well. */
static bool goes_to_loop(channel *self, const agx_frame *frame, PyObject *object)
{
        if (!self->has_loop || frame->kind != AGX_FRAME_CALL)
                return false;
        self->for_loop = agx_channel_async_function(self, object) ? self->for_loop + 1 : 0;
        return self->for_loop > 1;
}

/* What lies in the channel is used up before the lead is passed on. */
static PyObject *take_frame(channel *self, const agx_frame *frame)
{
        PyObject *object = frame_object(self, frame);

        if (object && goes_to_loop(self, frame, object) && agx_turns_give(&self->turns))
                return Py_BuildValue("(sN)", "lead", object);
        if (object && frame->kind == AGX_FRAME_CALL)
                agx_turns_begin(&self->turns, frame->callable);
        else
                agx_turns_leave(&self->turns);
        return object;
}

static PyObject *failure(int got)
{
        switch (got) {
        case GOT_TRUNCATED:
                PyErr_SetString(PyExc_EOFError, "the server's end closed in the middle of a frame");
                return NULL;
        case GOT_MALFORMED:
                PyErr_SetString(PyExc_ValueError, "a frame from the server is malformed");
                return NULL;
        case GOT_TOO_LARGE:
                return PyErr_Format(PyExc_ValueError, "the server announced a frame above the limit of %u bytes",
                                    AGX_MAX_MESSAGE);
        default:
                return PyErr_SetFromErrno(PyExc_OSError);
        }
}

/* Becomes the leader and reads. Whoever led before may be busy with a call for long: his answers go first. */
static int next_frame(channel *self, agx_frame *frame)
{
        agx_view payload;
        bool rest;
        int got = agx_turns_take(&self->turns) ? flush(self, &rest) : 0;

        if (got) {
                errno = -got;
                return GOT_ERRNO;
        }
        if (self->handed)
                return GOT_HANDED;
        got = next_payload(self, &payload);
        return got == GOT_PAYLOAD && agx_frame_parse(payload, frame) ? GOT_MALFORMED : got;
}

/* The call that a loop has read: as if it had been read here. */
static PyObject *take_handed(channel *self)
{
        PyObject *object = self->handed;
        Py_ssize_t size;
        const char *name = PyUnicode_AsUTF8AndSize(((agx_ext_call *)object)->target, &size);

        self->handed = NULL;
        agx_turns_begin(&self->turns, name ? agx_view_of(name, (size_t)size) : AGX_VIEW(""));
        PyErr_Clear();
        return object;
}

PyObject *agx_channel_receive(channel *self, agx_buf *reply, bool back)
{
        agx_frame frame;
        int got, r = 0;

        Py_BEGIN_ALLOW_THREADS;
        if (reply->len)
                r = reply_in_turn(self, reply, false);
        if (back)
                atomic_fetch_add(&self->idle, 1);
        errno = -r;
        got = r ? GOT_ERRNO : next_frame(self, &frame);
        Py_END_ALLOW_THREADS;
        if (got == GOT_PAYLOAD)
                return take_frame(self, &frame);
        if (got == GOT_HANDED)
                return take_handed(self);
        if (got != GOT_END) /* keeps the lead: another, reading the end, would end the process before this is said */
                return failure(got);
        agx_turns_leave(&self->turns);
        return Py_NewRef(Py_None);
}

void agx_channel_reply(channel *self, agx_buf *reply, bool in_loop)
{
        if (!reply->len)
                return;
        Py_BEGIN_ALLOW_THREADS;
        if (in_loop && self->polling)
                reply_in_turn(self, reply, true);
        else
                send_now(self, agx_buf_view(reply), AGX_VIEW_NULL, AGX_VIEW_NULL);
        agx_buf_clear(reply);
        Py_END_ALLOW_THREADS;
}

/* ---- a loop that leads ---- */

/* As next_payload(), but waits for nothing. */
static int payload_at_hand(channel *self, agx_view *payload)
{
        bool rest = false;
        int r = cut(self, payload), got = GOT_PAYLOAD;

        while (r == AGX_FRAME_E_MORE && got == GOT_PAYLOAD) {
                r = flush(self, &rest);
                if (!r && !rest)
                        got = read_more(self, MSG_DONTWAIT);
                if (!r && !rest && got == GOT_PAYLOAD)
                        r = cut(self, payload);
                if (rest)
                        return GOT_BLOCKED;
        }
        if (r < 0)
                errno = -r;
        if (r < 0)
                return GOT_ERRNO;
        return r == AGX_FRAME_E_TOO_LARGE ? GOT_TOO_LARGE : r == AGX_FRAME_E_MALFORMED ? GOT_MALFORMED : got;
}

/* A call for a thread becomes the next leader's. */
static PyObject *hand_over(channel *self, PyObject *call)
{
        self->for_loop = 0;
        self->polling = false;
        self->handed = call;
        agx_turns_leave(&self->turns);
        Py_RETURN_FALSE;
}

/* Deals with a call: begins it, or gives it as poll() does. NULL: it has been begun. */
static PyObject *polled_call(channel *self, PyObject *call)
{
        PyObject *function = agx_channel_async_function(self, call);

        if (!function)
                return hand_over(self, call);
        agx_turns_keep(&self->turns);
        if (!agx_channel_begin_async(self, (agx_ext_call *)call, function))
                return call;
        Py_DECREF(call);
        return NULL;
}

/* As poll() gives it; NULL without an exception: a call that has been begun. */
static PyObject *polled(channel *self, agx_view payload)
{
        agx_frame frame;
        PyObject *object;

        if (agx_frame_parse(payload, &frame)) {
                agx_turns_leave(&self->turns);
                return failure(GOT_MALFORMED);
        }
        object = frame_object(self, &frame);
        if (object && frame.kind == AGX_FRAME_CALL)
                return polled_call(self, object);
        if (object)
                agx_turns_keep(&self->turns);
        else
                agx_turns_leave(&self->turns);
        return object;
}

PyDoc_STRVAR(accept_doc, "accept() -> bool\n--\n\n"
                         "In the loop's thread, soon after serve() gave ('lead', call) there: whether the loop leads "
                         "now. Then it calls\n"
                         "poll(), and again whenever the descriptor is readable.");

static PyObject *channel_accept(channel *self, PyObject *unused)
{
        (void)unused;
        return PyBool_FromLong(agx_turns_accept(&self->turns));
}

PyDoc_STRVAR(
        poll_doc,
        "poll(again: bool, /) -> Call | tuple[str, str | None] | bool | None\n--\n\n"
        "The next frame, as serve() gives it, but calls of async targets only, and of them those that are not begun\n"
        "here; True: there is none, the descriptor has to be watched; False: the loop does not lead any more; None\n"
        "at the end. The kind of frame ('turn', '') says that other events should get their turn; `again` that they\n"
        "have not had it since the last poll().");

static PyObject *poll_once(channel *self)
{
        agx_view payload;
        int got;

        self->polling = agx_turns_resume(&self->turns);
        if (!self->polling)
                Py_RETURN_FALSE;
        got = payload_at_hand(self, &payload);
        self->polling = got == GOT_PAYLOAD;
        switch (got) {
        case GOT_PAYLOAD:
                return polled(self, payload);
        case GOT_NOTHING:
                agx_turns_wait(&self->turns);
                Py_RETURN_TRUE;
        case GOT_BLOCKED: /* the server does not take answers: a thread may wait for that */
                agx_turns_leave(&self->turns);
                Py_RETURN_FALSE;
        case GOT_END:
                agx_turns_leave(&self->turns);
                Py_RETURN_NONE;
        default:
                agx_turns_leave(&self->turns);
                return failure(got);
        }
}

static PyObject *channel_poll(channel *self, PyObject *again)
{
        PyObject *frame;

        if (again != Py_True)
                self->polled = 0;
        while (self->polled < CHANNEL_POLLED) {
                ++self->polled;
                frame = poll_once(self);
                if (frame || PyErr_Occurred())
                        return frame;
        }
        return Py_BuildValue("(ss)", "turn", "");
}

/* ---- frames sent ---- */

/* The head of a frame, whose value, of `n` bytes, is sent from elsewhere. False with an exception set. */
static bool put_head(agx_buf *head, const agx_frame *frame, size_t n)
{
        int r = agx_frame_put_head(head, frame);

        if (r == AGX_FRAME_E_TOO_LARGE)
                PyErr_Format(PyExc_OverflowError, "%zu bytes do not fit into a frame of at most %u", n,
                             AGX_MAX_MESSAGE);
        else if (r)
                PyErr_NoMemory();
        return !r;
}

static PyObject *send_parts(channel *self, agx_view head, agx_view value, agx_view tail)
{
        int r;

        Py_BEGIN_ALLOW_THREADS;
        r = send_now(self, head, value, tail);
        Py_END_ALLOW_THREADS;
        if (r) {
                errno = -r;
                return PyErr_SetFromErrno(PyExc_OSError);
        }
        Py_RETURN_NONE;
}

/* Sends a frame: its head from a buffer, its value, if it has one, from where it lies. */
PyObject *agx_channel_send(channel *self, const agx_frame *frame)
{
        _cleanup_(agx_buf_deinitp) agx_buf head = AGX_BUF_NULL(SIZE_MAX);
        bool has_data = frame->kind == AGX_FRAME_SIO_EMIT || frame->kind == AGX_FRAME_PROC_IN;
        agx_view value = has_data ? frame->data : frame->value;

        if (!put_head(&head, frame, value.n))
                return NULL;
        return send_parts(self, agx_buf_view(&head), value, AGX_VIEW_NULL);
}

PyObject *agx_channel_send_apart(channel *self, agx_view call_id, const agx_scalars_apart *pickle)
{
        _cleanup_(agx_buf_deinitp) agx_buf head = AGX_BUF_NULL(SIZE_MAX);
        size_t n = pickle->n_before + pickle->bytes.n + pickle->after.n;
        agx_frame frame = {.kind = AGX_FRAME_RESULT, .call_id = call_id, .value = agx_view_of(pickle->bytes.p, n)};

        if (!put_head(&head, &frame, n))
                return NULL;
        if (agx_buf_append(&head, pickle->before, pickle->n_before))
                return PyErr_NoMemory();
        return send_parts(self, agx_buf_view(&head), pickle->bytes, pickle->after);
}

PyDoc_STRVAR(send_ready_doc,
             "send_ready(spare: bool, /)\n--\n\n"
             "Tell the server that the boot is over, and whether another one like this may wait as a spare.");

static PyObject *channel_send_ready(channel *self, PyObject *spare)
{
        int may = PyObject_IsTrue(spare);

        return may < 0 ? NULL
                       : agx_channel_send(self, &(agx_frame){.kind = AGX_FRAME_READY,
                                                             .n = (uint64_t)may,
                                                             .features = AGX_VIEW("\x91\xa8" AGX_FEATURE_PIECES)});
}

PyDoc_STRVAR(send_open_doc, "send_open(namespace: str)\n--\n\nOpen a namespace: its events come from now on.");

static PyObject *channel_send_open(channel *self, PyObject *args)
{
        const char *namespace_;
        Py_ssize_t n;

        if (!PyArg_ParseTuple(args, "s#:send_open", &namespace_, &n))
                return NULL;
        return agx_channel_send(self, &(agx_frame){.kind = AGX_FRAME_SIO_OPEN,
                                                   .namespace_ = agx_view_of(namespace_, (size_t)n)});
}

PyDoc_STRVAR(send_emit_doc, "send_emit(namespace: str, event: str, data: bytes)\n--\n\n"
                            "Send an event, msgpack, to the hosts. Raises OverflowError if it does not fit a frame.");

static PyObject *channel_send_emit(channel *self, PyObject *args)
{
        agx_frame frame = {.kind = AGX_FRAME_SIO_EMIT};
        Py_ssize_t n_namespace, n_event;
        const char *namespace_, *event;
        Py_buffer data;
        PyObject *sent;

        if (!PyArg_ParseTuple(args, "s#s#y*:send_emit", &namespace_, &n_namespace, &event, &n_event, &data))
                return NULL;
        frame.namespace_ = agx_view_of(namespace_, (size_t)n_namespace);
        frame.event = agx_view_of(event, (size_t)n_event);
        frame.data = agx_view_of(data.len ? data.buf : "", (size_t)data.len);
        sent = agx_channel_send(self, &frame);
        PyBuffer_Release(&data);
        return sent;
}

PyDoc_STRVAR(send_result_doc,
             "send_result(call_id: str, value: bytes)\n--\n\n"
             "End a call with the pickle of its value. Raises OverflowError if that does not fit a frame.");

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
        sent = agx_channel_send(self, &frame);
        PyBuffer_Release(&value);
        return sent;
}

PyDoc_STRVAR(send_item_doc, "send_item(call_id: str, seq: int, value: bytes)\n--\n\n"
                            "Send the pickle of an item of a stream. Raises OverflowError if it does not fit a frame.");

static PyObject *channel_send_item(channel *self, PyObject *args)
{
        agx_frame frame = {.kind = AGX_FRAME_ITEM};
        unsigned long long seq;
        Py_ssize_t id_length;
        Py_buffer value;
        PyObject *sent;
        const char *id;

        if (!PyArg_ParseTuple(args, "s#Ky*:send_item", &id, &id_length, &seq, &value))
                return NULL;
        frame.call_id = agx_view_of(id, (size_t)id_length);
        frame.seq = seq;
        frame.value = agx_view_of(value.len ? value.buf : "", (size_t)value.len);
        sent = agx_channel_send(self, &frame);
        PyBuffer_Release(&value);
        return sent;
}

PyDoc_STRVAR(send_end_doc, "send_end(call_id: str)\n--\n\nEnd a call that was a stream: a result without a value.");

static PyObject *channel_send_end(channel *self, PyObject *args)
{
        agx_frame frame = {.kind = AGX_FRAME_RESULT};
        Py_ssize_t id_length;
        const char *id;

        if (!PyArg_ParseTuple(args, "s#:send_end", &id, &id_length))
                return NULL;
        frame.call_id = agx_view_of(id, (size_t)id_length);
        return agx_channel_send(self, &frame);
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
        return agx_channel_send(self, &frame);
}

PyDoc_STRVAR(send_error_doc,
             "send_error(call_id: str, type: str, message: str, traceback: str | None, cancelled: bool)\n--\n\n"
             "End a call with an error; texts are cut to their bounds.");

static PyObject *channel_send_error(channel *self, PyObject *args)
{
        return send_fault(self, AGX_FRAME_ERROR, args, "s#s#s#z#p:send_error");
}

PyDoc_STRVAR(send_boot_error_doc,
             "send_boot_error(call_id: str, type: str, message: str, traceback: str | None, cancelled: bool)\n--\n\n"
             "Tell the server that the boot failed; the call id and the flag are not used.");

static PyObject *channel_send_boot_error(channel *self, PyObject *args)
{
        return send_fault(self, AGX_FRAME_BOOT_ERROR, args, "s#s#s#z#p:send_boot_error");
}

/* ---- life ---- */

PyDoc_STRVAR(disown_doc,
             "disown()\n--\n\n"
             "For a forked child: close its copy of the descriptor, so that the server hears only its worker.");

static PyObject *channel_disown(channel *self, PyObject *unused)
{
        (void)unused;
        if (self->fd >= 0)
                close(self->fd);
        self->fd = -1;
        Py_RETURN_NONE;
}

static bool is_socket(int fd)
{
        struct stat info;

        return fd > 2 && !fstat(fd, &info) && S_ISSOCK(info.st_mode);
}

static int channel_init(channel *self, PyTypeObject *type, int fd, bool pieces)
{
        PyObject *module = PyType_GetModule(type);

        self->fd = -1;
        agx_turns_init(&self->turns, fd);
        agx_out_init(&self->out, CHANNEL_GATHER, pieces);
        agx_deframer_init(&self->deframer, AGX_MAX_MESSAGE);
        agx_land_init(&self->land);
        self->call_type = module ? (PyTypeObject *)PyObject_GetAttrString(module, "Call") : NULL;
        self->async_type = module ? agx_channel_async_type(module) : NULL;
        if (!self->call_type || !self->async_type || agx_channel_init_short(self))
                return -1;
        self->bytes = malloc(CHANNEL_READ);
        if (!self->bytes) {
                PyErr_NoMemory();
                return -1;
        }
        if (!is_socket(fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
                PyErr_Format(PyExc_ValueError, "%d is not a socket above 2", fd);
                return -1;
        }
        self->fd = fd;
        return 0;
}

static PyObject *channel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"fd", "calls", "targets", "rest", "idle_max", "pieces", NULL};
        PyObject *calls, *targets, *rest;
        channel *self;
        int fd, idle_max, pieces;

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iO!O!Oip:Channel", names, &fd, &PyDict_Type, &calls,
                                         &PyDict_Type, &targets, &rest, &idle_max, &pieces))
                return NULL;
        self = (channel *)PyType_GenericAlloc(type, 0);
        if (!self)
                return NULL;
        self->calls = Py_NewRef(calls);
        self->targets = Py_NewRef(targets);
        self->rest = Py_NewRef(rest);
        self->idle_max = idle_max;
        if (channel_init(self, type, fd, pieces != 0))
                Py_CLEAR(self);
        return (PyObject *)self;
}

static int channel_traverse(channel *self, visitproc visit, void *arg)
{
        Py_VISIT(Py_TYPE((PyObject *)self));
        Py_VISIT(self->calls);
        Py_VISIT(self->inbox);
        Py_VISIT(self->processes);
        Py_VISIT(self->call_type);
        return agx_channel_traverse_short(self, visit, arg);
}

static int channel_clear(channel *self)
{
        Py_CLEAR(self->calls);
        Py_CLEAR(self->inbox);
        Py_CLEAR(self->processes);
        Py_CLEAR(self->call_type);
        Py_CLEAR(self->last_target);
        Py_CLEAR(self->handed);
        agx_channel_clear_task(self);
        agx_channel_clear_short(self);
        return 0;
}

static void channel_dealloc(channel *self)
{
        PyTypeObject *type = Py_TYPE((PyObject *)self);

        PyObject_GC_UnTrack(self);
        channel_clear(self);
        agx_land_deinit(&self->land);
        agx_deframer_deinit(&self->deframer);
        free(self->bytes);
        agx_turns_deinit(&self->turns);
        agx_out_deinit(&self->out);
        if (self->fd >= 0)
                close(self->fd);
        PyObject_GC_Del(self);
        Py_DECREF(type);
}

static PyMethodDef channel_methods[] = {
        {"serve", (PyCFunction)(void (*)(void))agx_channel_serve, METH_NOARGS, agx_channel_serve_doc},
        {"enter", (PyCFunction)(void (*)(void))agx_channel_enter, METH_NOARGS, agx_channel_enter_doc},
        {"leave", (PyCFunction)(void (*)(void))agx_channel_leave, METH_VARARGS | METH_KEYWORDS, agx_channel_leave_doc},
        {"accept", (PyCFunction)(void (*)(void))channel_accept, METH_NOARGS, accept_doc},
        {"poll", (PyCFunction)(void (*)(void))channel_poll, METH_O, poll_doc},
        {"use_loop", (PyCFunction)(void (*)(void))agx_channel_use_loop, METH_O, agx_channel_use_loop_doc},
        {"_catch", (PyCFunction)(void (*)(void))agx_channel_catch, METH_VARARGS | METH_KEYWORDS, NULL},
        {"finish", (PyCFunction)(void (*)(void))agx_channel_finish, METH_VARARGS, agx_channel_finish_doc},
        {"is_full", (PyCFunction)(void (*)(void))agx_channel_is_full, METH_NOARGS, agx_channel_is_full_doc},
        {"send_ready", (PyCFunction)(void (*)(void))channel_send_ready, METH_O, send_ready_doc},
        {"send_open", (PyCFunction)(void (*)(void))channel_send_open, METH_VARARGS, send_open_doc},
        {"send_emit", (PyCFunction)(void (*)(void))channel_send_emit, METH_VARARGS, send_emit_doc},
        {"send_result", (PyCFunction)(void (*)(void))channel_send_result, METH_VARARGS, send_result_doc},
        {"send_item", (PyCFunction)(void (*)(void))channel_send_item, METH_VARARGS, send_item_doc},
        {"send_end", (PyCFunction)(void (*)(void))channel_send_end, METH_VARARGS, send_end_doc},
        {"send_error", (PyCFunction)(void (*)(void))channel_send_error, METH_VARARGS, send_error_doc},
        {"send_boot_error", (PyCFunction)(void (*)(void))channel_send_boot_error, METH_VARARGS, send_boot_error_doc},
        {"start_process", (PyCFunction)(void (*)(void))agx_channel_start_process, METH_VARARGS,
         agx_channel_start_process_doc},
        {"send_process", (PyCFunction)(void (*)(void))agx_channel_send_process, METH_VARARGS,
         agx_channel_send_process_doc},
        {"disown", (PyCFunction)(void (*)(void))channel_disown, METH_NOARGS, disown_doc},
        {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(channel_doc,
             "Channel(fd: int, calls: dict, targets: dict, rest: Callable[[Call, str, object], None], idle_max: int,\n"
             "pieces: bool)\n--\n\n"
             "The worker's end of its private pair of sockets, which it takes over and closes on exec. `pieces`: the\n"
             "server reads frames in pieces.\n\n"
             "`calls` gets every call that is received, by its id. `targets` and `rest` are for serve().");

static PyMemberDef channel_members[] = {
        {"fd", T_INT, offsetof(channel, fd), READONLY, "int"},
        {"inbox", T_OBJECT, offsetof(channel, inbox), 0,
         "its append() gets (namespace, event, data) for each event of a side channel, in order"},
        {"processes", T_OBJECT, offsetof(channel, processes), 0,
         "its append() gets (kind, proc, number, what) for each frame about a process, in order"},
        {"stepping", T_UINT, offsetof(channel, stepping), READONLY,
         "int: targets that poll() or a task of its steps just now"},
        {"has_loop", T_BOOL, offsetof(channel, has_loop), 0, "bool: serve() may give ('lead', call)"},
        {"parked", T_BOOL, offsetof(channel, parked), 0, "bool: calls wait for a thread"},
        {NULL, 0, 0, 0, NULL},
};

static PyType_Slot channel_slots[] = {
        {Py_tp_new, (void *)channel_new},           {Py_tp_dealloc, (void *)channel_dealloc},
        {Py_tp_traverse, (void *)channel_traverse}, {Py_tp_clear, (void *)channel_clear},
        {Py_tp_methods, channel_methods},           {Py_tp_members, channel_members},
        {Py_tp_doc, (void *)channel_doc},           {0, NULL},
};

static PyType_Spec channel_spec = {
        .name = "agentix._core.Channel",
        .basicsize = sizeof(channel),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
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
