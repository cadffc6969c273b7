/* The type ClientCore: a client session (client/session.h) under the running asyncio loop. Here is what the loop and
 * what Python call, and no more: see client.h for the rest. */
#include "client.h"

#include "landed.h"

static client_core *core_of(PyObject *self)
{
        return (client_core *)self;
}

static PyObject *processed(client_core *core, bool direct)
{
        return client_process(core, direct) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- what the loop calls ---- */

static client_link *link_arg(client_core *core, PyObject *serial)
{
        uint64_t n = PyLong_AsUnsignedLongLong(serial);

        if (n == (uint64_t)-1 && PyErr_Occurred()) {
                PyErr_Clear();
                return NULL;
        }
        return client_link_of(core, n);
}

static PyObject *core_readable(PyObject *self, PyObject *serial)
{
        client_core *core = core_of(self);
        client_link *link = link_arg(core, serial);

        if (link && link->fd >= 0)
                client_link_read(core, link);
        return processed(core, true);
}

static PyObject *core_writable(PyObject *self, PyObject *serial)
{
        client_core *core = core_of(self);
        client_link *link = link_arg(core, serial);

        if (link && link->fd >= 0)
                client_link_writable(core, link);
        return processed(core, true);
}

/* A loop that was blocked for long may call us before it looks at what has come: so look first. */
static PyObject *core_timer(PyObject *self, PyObject *ignored)
{
        client_core *core = core_of(self);

        (void)ignored;
        Py_CLEAR(core->timer);
        client_links_read(core, true);
        agx_client_tick(core->client, client_now());
        return processed(core, true);
}

/* ---- what Python calls ---- */

static PyObject *core_health(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return client_ask(core_of(self), agx_client_ask_health);
}

static PyObject *core_connect(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return client_ask(core_of(self), agx_client_connect);
}

static PyObject *core_close(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        const char *why;

        if (!PyArg_ParseTuple(args, "s:close", &why))
                return NULL;
        if (core->loop) {
                int closed = client_ask_loop(core->loop, core->s_is_closed);

                if (closed < 0)
                        return NULL;
                core->loop_is_dead = closed;
        }
        client_let_go(core, why);
        return Py_NewRef(Py_None);
}

/* opened(serial, descriptor or transport): takes a descriptor over. */
static PyObject *core_opened(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        unsigned long long serial;
        PyObject *what;
        client_link *link;
        int fd = -1;

        if (!PyArg_ParseTuple(args, "KO:opened", &serial, &what))
                return NULL;
        if (PyLong_Check(what) && (fd = (int)PyLong_AsLong(what)) < 0)
                return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "not a descriptor");
        link = client_link_of(core, serial);
        if (!link)
                return Py_NewRef(Py_False); /* it was given up meanwhile: the caller closes it */
        client_link_opened(core, link, fd, fd < 0 ? what : NULL);
        return client_process(core, false) < 0 ? NULL : Py_NewRef(Py_True);
}

/* lost(serial, why | None): it could not be opened, or has ended. */
static PyObject *core_lost(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        unsigned long long serial;
        const char *why;
        client_link *link;

        if (!PyArg_ParseTuple(args, "Kz:lost", &serial, &why))
                return NULL;
        link = client_link_of(core, serial);
        if (link)
                agx_client_ended(core->client, link->conn, why, client_now());
        return processed(core, false);
}

/* feed(serial, data): bytes came from a transport. */
static PyObject *core_feed(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        unsigned long long serial;
        Py_buffer data;
        client_link *link;

        if (!PyArg_ParseTuple(args, "Ky*:feed", &serial, &data))
                return NULL;
        link = client_link_of(core, serial);
        if (link)
                agx_client_input(core->client, link->conn, agx_view_of(data.buf, (size_t)data.len), client_now());
        PyBuffer_Release(&data);
        return processed(core, true);
}

/* pause(serial, paused): the transport's buffer is full, or has room again. */
static PyObject *core_pause(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        unsigned long long serial;
        int paused;
        client_link *link;

        if (!PyArg_ParseTuple(args, "Kp:pause", &serial, &paused))
                return NULL;
        link = client_link_of(core, serial);
        if (link) {
                link->paused = paused;
                if (!paused)
                        client_link_write(core, link->conn);
        }
        return processed(core, false);
}

static PyObject *core_counts(PyObject *self, PyObject *ignored)
{
        agx_client_counts counts = agx_client_count(core_of(self)->client);
        size_t pending = 0;

        (void)ignored;
        for (client_pending *p = core_of(self)->pending; p; p = p->next)
                ++pending;
        return Py_BuildValue("{snsnsnsnsnsnsnsnsNsn}", "linked", (Py_ssize_t)counts.linked, "cancels",
                             (Py_ssize_t)counts.cancels, "pending", (Py_ssize_t)pending, "waiting",
                             (Py_ssize_t)counts.waiting, "pausing", (Py_ssize_t)counts.pausing, "connections",
                             (Py_ssize_t)counts.connections, "acks", (Py_ssize_t)counts.acks, "joined",
                             (Py_ssize_t)counts.joined, "absent", PyBool_FromLong(counts.absent), "failures",
                             (Py_ssize_t)counts.failures);
}

static PyObject *core_session(PyObject *self, void *closure)
{
        agx_view name = agx_client_session_name(core_of(self)->client);

        (void)closure;
        return PyUnicode_FromStringAndSize(name.p, (Py_ssize_t)name.n);
}

static PyObject *core_bound(PyObject *self, void *closure)
{
        (void)closure;
        return PyBool_FromLong(core_of(self)->loop != NULL);
}

/* Whether its loop is the one that runs: on another one nothing of it may be touched but what binds it anew, and close(). */
static PyObject *core_here(PyObject *self, void *closure)
{
        PyObject *running = PyObject_CallNoArgs(core_of(self)->get_loop);
        bool here = running && running == core_of(self)->loop;

        (void)closure;
        if (!running)
                PyErr_Clear(); /* none runs */
        Py_XDECREF(running);
        return PyBool_FromLong(here);
}

static PyObject *core_closed(PyObject *self, void *closure)
{
        (void)closure;
        return PyBool_FromLong(core_of(self)->closed);
}

static int core_set_closed(PyObject *self, PyObject *value, void *closure)
{
        int closed = value ? PyObject_IsTrue(value) : 0;

        (void)closure;
        if (closed >= 0)
                core_of(self)->closed = closed;
        return closed < 0 ? -1 : 0;
}

/* ---- the type ---- */

static PyMethodDef core_methods[] = {
        {"remote", (PyCFunction)(void (*)(void))client_call_make, METH_FASTCALL, NULL},
        {"health", core_health, METH_NOARGS, NULL},
        {"connect", core_connect, METH_NOARGS, NULL},
        {"close", core_close, METH_VARARGS, NULL},
        {"opened", core_opened, METH_VARARGS, NULL},
        {"lost", core_lost, METH_VARARGS, NULL},
        {"feed", core_feed, METH_VARARGS, NULL},
        {"pause", core_pause, METH_VARARGS, NULL},
        {"counts", core_counts, METH_NOARGS, NULL},
        {"join", client_side_join, METH_VARARGS, NULL},
        {"emit", client_side_emit, METH_VARARGS, NULL},
        {"dealt", client_side_dealt, METH_VARARGS, NULL},
        {"taken", client_side_taken, METH_O, NULL},
        {"hurry", client_side_hurry, METH_NOARGS, NULL},
        {"need_link", client_side_need_link, METH_O, NULL},
        {"joined", client_side_joined, METH_O, NULL},
        {"_readable", core_readable, METH_O, NULL},
        {"_writable", core_writable, METH_O, NULL},
        {"_timer", core_timer, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static PyGetSetDef core_getset[] = {
        {"bound", core_bound, NULL, NULL, NULL},     {"closed", core_closed, core_set_closed, NULL, NULL},
        {"here", core_here, NULL, NULL, NULL},       {"instance", client_side_instance, NULL, NULL, NULL},
        {"session", core_session, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot core_slots[] = {
        {Py_tp_doc,
         "A client session of one runtime, under the running asyncio loop. Private: see agentix.RuntimeClient."},
        {Py_tp_new, (void *)client_core_new},
        {Py_tp_dealloc, (void *)client_core_dealloc},
        {Py_tp_traverse, (void *)client_core_traverse},
        {Py_tp_clear, (void *)client_core_clear},
        {Py_tp_methods, core_methods},
        {Py_tp_getset, core_getset},
        {0, NULL},
};

static PyType_Spec core_spec = {
        .name = "agentix._core.ClientCore",
        .basicsize = sizeof(client_core),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .slots = core_slots,
};

int agx_ext_add_client(PyObject *module)
{
        PyObject *call = client_call_type(module), *pending = client_pending_type(module),
                 *body = agx_landed_type(module), *core = NULL;
        int r = -1;

        if (call && pending && body && client_watch_forks() == 0)
                core = PyType_FromModuleAndSpec(module, &core_spec, NULL);
        if (core && PyObject_SetAttrString(core, "_call", call) == 0 &&
            PyObject_SetAttrString(core, "_pending", pending) == 0 &&
            PyObject_SetAttrString(core, "_body", body) == 0 && PyModule_AddObjectRef(module, "RemoteCall", call) == 0)
                r = PyModule_AddObjectRef(module, "ClientCore", core);
        Py_XDECREF(call);
        Py_XDECREF(pending);
        Py_XDECREF(body);
        Py_XDECREF(core);
        return r;
}
