/* The type ClientCore: a client session (client/session.h) under the running asyncio loop.
 *
 * It is bound to the loop of its first call. A later call from another loop rebinds it, provided the old one has ended
 * or stands still: connections are begun anew, calls still in flight fail. */
#include "client.h"

#include "proto/limits.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
        GATHERED_MAX = 16,     /* calls that are sent together */
        GATHERED_US_MAX = 300, /* tasks that take longer, in all, are not worth waiting for */
};

static pid_t this_process; /* the number of this process */

static void look_where(void)
{
        this_process = getpid();
}

pid_t client_here(void)
{
        return this_process;
}

static client_core *core_of(PyObject *self)
{
        return (client_core *)self;
}

static uint64_t now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t client_now(void)
{
        return now_us() / 1000;
}

/* ---- the timer ---- */

static void disarm(client_core *core)
{
        PyObject *r = NULL;

        if (!core->timer)
                return;
        if (!core->loop_is_dead)
                r = PyObject_CallMethodObjArgs(core->timer, core->s_cancel, NULL);
        if (!r)
                PyErr_Clear();
        Py_XDECREF(r);
        Py_CLEAR(core->timer);
}

/* Sees to it that on_timer comes in time. One that comes early costs less than one that is always moved. */
static void arm(client_core *core)
{
        uint64_t when = agx_client_timer(core->client), now;
        PyObject *method, *delay;

        if (when == UINT64_MAX || core->loop_is_dead || !core->loop || (core->timer && core->timer_ms <= when))
                return;
        disarm(core);
        now = client_now();
        method = PyObject_GetAttr(core->loop, core->s_call_later);
        delay = PyFloat_FromDouble(when > now ? (double)(when - now) / 1000.0 : 0.0);
        if (method && delay)
                core->timer = PyObject_CallMethodObjArgs(core->empty, core->s_run, method, delay, core->on_timer, NULL);
        if (!core->timer)
                PyErr_WriteUnraisable(core->loop);
        core->timer_ms = when;
        Py_XDECREF(method);
        Py_XDECREF(delay);
}

/* ---- wishes and finished calls ---- */

static bool carry_out(client_core *core, agx_client_wish wish)
{
        switch (wish.kind) {
        case AGX_CLIENT_WISH_NONE:
                return false;
        case AGX_CLIENT_WISH_OPEN:
                client_link_open(core, wish.conn);
                break;
        case AGX_CLIENT_WISH_WRITE:
                client_link_write(core, wish.conn);
                break;
        case AGX_CLIENT_WISH_CLOSE:
                client_link_close(core, wish.conn);
                break;
        }
        return true;
}

static int hand_out(client_core *core, agx_client_call *call, bool direct)
{
        client_pending *p = agx_client_call_user(call);
        int r;

        (void)core;
        Py_INCREF((PyObject *)p);
        client_pending_deliver(p, call);
        r = client_pending_wake(p, direct);
        Py_DECREF((PyObject *)p);
        return r;
}

/* A call that has something to be handed out: items, or its end, which comes after all of them. */
static agx_client_call *next_call(client_core *core, bool *items)
{
        agx_client_call *call = agx_client_next_streaming(core->client);

        *items = call != NULL;
        return call ? call : agx_client_next_done(core->client);
}

void client_carry_out(client_core *core)
{
        while (carry_out(core, agx_client_next_wish(core->client)))
                ;
}

/* Hands out what has come, `most` at once; returns whether there was something. */
static bool hand_out_some(client_core *core, bool direct, unsigned most, PyObject *caught[3])
{
        unsigned n = 0;

        for (; n < most; ++n) {
                bool items = false;
                agx_client_call *call = next_call(core, &items);

                if (!call)
                        break;
                if ((items ? client_items_hand_out : hand_out)(core, call, direct) < 0) {
                        for (int i = 0; i < 3; ++i)
                                Py_CLEAR(caught[i]);
                        PyErr_Fetch(&caught[0], &caught[1], &caught[2]);
                }
        }
        return n > 0;
}

/* What resumed tasks ask for is sent after they have run: after the first one, so that the peer has work, then after twice
 * as many each time. One that takes long holds up those before it only once. */
static unsigned next_most(unsigned most, uint64_t begun_us)
{
        if (now_us() - begun_us > GATHERED_US_MAX)
                return 1;
        return most < GATHERED_MAX ? 2 * most : most;
}

static int process(client_core *core, bool direct, bool all)
{
        PyObject *caught[3] = {NULL, NULL, NULL};
        unsigned most = 1;
        bool more;

        Py_INCREF((PyObject *)core);
        do {
                uint64_t begun_us = direct ? now_us() : 0;

                client_carry_out(core);
                client_side_hand_out(core);
                /* A task that is being resumed calls us: the callback that resumed it goes on with the rest. */
                more = (!core->resuming || all) && hand_out_some(core, direct, most, caught);
                if (direct)
                        most = next_most(most, begun_us);
        } while (more);
        arm(core);
        Py_DECREF((PyObject *)core);
        if (caught[0])
                PyErr_Restore(caught[0], caught[1], caught[2]);
        return caught[0] ? -1 : 0;
}

int client_process(client_core *core, bool direct)
{
        return process(core, direct, false);
}

int client_process_all(client_core *core)
{
        return process(core, false, true);
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

/* ---- binding ---- */

static int ask_loop(PyObject *loop, PyObject *method)
{
        PyObject *r = PyObject_CallMethodObjArgs(loop, method, NULL);
        int yes = r ? PyObject_IsTrue(r) : -1;

        Py_XDECREF(r);
        return yes;
}

static int let_go(client_core *core, const char *why)
{
        agx_client_shutdown(core->client, why, client_now());
        if (client_process(core, false) < 0)
                PyErr_Clear();
        disarm(core);
        return 0;
}

static int rebind(client_core *core, PyObject *loop)
{
        if (core->loop) {
                int closed = ask_loop(core->loop, core->s_is_closed);
                int running = closed == 0 ? ask_loop(core->loop, core->s_is_running) : 0;

                if (closed < 0 || running < 0)
                        return -1;
                if (running) {
                        PyErr_SetString(PyExc_RuntimeError, "this RuntimeClient is in use by another event loop");
                        return -1;
                }
                core->loop_is_dead = closed;
                let_go(core, "the event loop that the call was made on has ended");
        }
        core->loop_is_dead = false;
        Py_CLEAR(core->loop);
        core->loop = Py_NewRef(loop);
        client_wait_bind(core);
        return 0;
}

/* Two processes that number calls alike would get each other's values. */
static bool is_forked(const client_core *core)
{
        if (core->process == this_process)
                return false;
        PyErr_SetString(PyExc_RuntimeError,
                        "this RuntimeClient was made before this process was forked, and belongs to "
                        "the process that made it: make one in here");
        return true;
}

static int bind_loop(client_core *core)
{
        PyObject *loop;
        int r;

        if (is_forked(core))
                return -1;
        if (core->resuming && core->resumer == PyThread_get_thread_ident())
                return 0; /* the loop has called us */
        loop = PyObject_CallNoArgs(core->get_loop);
        r = !loop ? -1 : loop == core->loop ? 0 : rebind(core, loop);
        Py_XDECREF(loop);
        return r;
}

/* ---- what Python calls ---- */

static agx_view bytes_view(PyObject *bytes)
{
        char *p;
        Py_ssize_t n;

        if (PyBytes_AsStringAndSize(bytes, &p, &n) < 0)
                return AGX_VIEW_NULL;
        return agx_view_of(p, (size_t)n);
}

/* Before a call is given to a connection: notice those that the server has closed while we did not look. */
static uint64_t look(client_core *core)
{
        uint64_t now = client_now();

        if (now - core->used_ms > CLIENT_IDLE_MS)
                client_links_read(core, false);
        core->used_ms = now;
        return now;
}

/* Whether what is begun here can wait until the task that is being resumed gives way: not if that has begun a task which
 * takes its first step on the spot, and itself goes on. */
static bool is_sent_later(client_core *core)
{
        return core->resuming && core->eager && PyObject_Size(core->eager) == 0;
}

static client_pending *begun(client_core *core, client_pending *p, int r, agx_client_call *call)
{
        if (r < 0) {
                Py_DECREF((PyObject *)p);
                PyErr_NoMemory();
                return NULL;
        }
        client_pending_enter(p, call);
        if (!is_sent_later(core) && client_process(core, false) < 0)
                Py_CLEAR(p);
        return p;
}

static void refuse(client_core *core)
{
        PyObject *error = PyObject_CallMethodObjArgs(core->shell, core->s_refusal, NULL);

        if (error)
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
}

/* What is sent: bytes, or three of them in a tuple. */
static void parts_view(PyObject *arguments, agx_view parts[3])
{
        parts[0] = parts[2] = AGX_VIEW_NULL;
        if (!PyTuple_Check(arguments)) {
                parts[1] = bytes_view(arguments);
                return;
        }
        for (int i = 0; i < 3; ++i)
                parts[i] = bytes_view(PyTuple_GetItem(arguments, i));
}

client_pending *client_start(client_core *core, PyObject *name, PyObject *arguments, PyObject *context)
{
        agx_client_call *call = NULL;
        client_pending *p;
        agx_view parts[3];
        const char *text;
        Py_ssize_t size;
        int r;

        if (core->closed) {
                refuse(core);
                return NULL;
        }
        text = PyUnicode_AsUTF8AndSize(name, &size);
        p = text && bind_loop(core) == 0 ? client_pending_new(core, name, arguments, context) : NULL;
        if (!p)
                return NULL;
        parts_view(arguments, parts);
        r = agx_client_start_parts(core->client, agx_view_of(text, (size_t)size), parts,
                                   context ? bytes_view(context) : AGX_VIEW_NULL, AGX_CLIENT_STREAM_WINDOW,
                                   core->allowed_ms, p, look(core), &call);
        return begun(core, p, r, call);
}

/* What is asked of the runtime without a target: its health, or a connection. */
typedef int (*question)(agx_client *client, void *user, uint64_t now_ms, agx_client_call **call);

static PyObject *ask(client_core *core, question start)
{
        client_pending *p = bind_loop(core) < 0 ? NULL : client_pending_new(core, NULL, NULL, NULL);
        agx_client_call *call = NULL;
        int r;

        if (!p)
                return NULL;
        r = start(core->client, p, client_now(), &call);
        return (PyObject *)begun(core, p, r, call);
}

static PyObject *core_health(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return ask(core_of(self), agx_client_ask_health);
}

static PyObject *core_connect(PyObject *self, PyObject *ignored)
{
        (void)ignored;
        return ask(core_of(self), agx_client_connect);
}

static PyObject *core_close(PyObject *self, PyObject *args)
{
        client_core *core = core_of(self);
        const char *why;

        if (!PyArg_ParseTuple(args, "s:close", &why))
                return NULL;
        if (core->loop) {
                int closed = ask_loop(core->loop, core->s_is_closed);

                if (closed < 0)
                        return NULL;
                core->loop_is_dead = closed;
        }
        let_go(core, why);
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

/* ---- construction ---- */

static int set_unix(client_core *core, const char *path, Py_ssize_t n)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        if (n < 1 || (size_t)n >= sizeof(address.sun_path)) {
                PyErr_SetString(PyExc_ValueError, "the path of a Unix socket has 1 to 107 bytes");
                return -1;
        }
        memcpy(address.sun_path, path, (size_t)n);
        memcpy(core->address.bytes, &address, sizeof(address));
        core->address.size = sizeof(address);
        core->address.family = AF_UNIX;
        return 0;
}

/* A numeric host; anything else is left to the shell. */
static void set_tcp(client_core *core, const char *host, uint16_t port)
{
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

        if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
                memcpy(core->address.bytes, &v4, sizeof(v4));
                core->address.size = sizeof(v4);
                core->address.family = AF_INET;
        } else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
                memcpy(core->address.bytes, &v6, sizeof(v6));
                core->address.size = sizeof(v6);
                core->address.family = AF_INET6;
        }
}

/* Nobody's proxy stands between: see agx_fast_new(). */
static bool is_near(const client_core *core)
{
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;

        memcpy(&v4, core->address.bytes, sizeof(v4));
        memcpy(&v6, core->address.bytes, sizeof(v6));
        return core->address.family == AF_UNIX ||
               (core->address.family == AF_INET && ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) ||
               (core->address.family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr));
}

static int collect(client_core *core)
{
        PyObject *context;

#define X(name)                                                                                                        \
        core->s_##name = PyUnicode_InternFromString(#name);                                                            \
        if (!core->s_##name)                                                                                           \
                return -1;
        CLIENT_NAMES(X)
#undef X
        core->get_loop = agx_ext_take_from("asyncio", "get_running_loop");
        core->cancelled_error = agx_ext_take_from("asyncio", "CancelledError");
        core->copy_context = agx_ext_take_from("contextvars", "copy_context");
        context = agx_ext_take_from("contextvars", "Context");
        core->empty = context ? PyObject_CallNoArgs(context) : NULL;
        Py_XDECREF(context);
        core->on_readable = PyObject_GetAttrString((PyObject *)core, "_readable");
        core->on_writable = PyObject_GetAttrString((PyObject *)core, "_writable");
        core->on_timer = PyObject_GetAttrString((PyObject *)core, "_timer");
        return core->get_loop && core->cancelled_error && core->copy_context && core->empty && core->on_readable &&
                               core->on_writable && core->on_timer
                       ? 0
                       : -1;
}

/* What a call is made with. */
static int collect_calls(client_core *core)
{
        PyObject *callable = agx_ext_take_from("agentix._callable", "RemoteCallable");

        core->known = agx_ext_take_from("agentix._callable", "_known");
        core->resolve = callable ? PyObject_GetAttrString(callable, "_resolve") : NULL;
        core->carriers = agx_ext_take_from("agentix._ambient", "_capture");
        core->capture = agx_ext_take_from("agentix._ambient", "capture");
        core->dumps = agx_ext_take_from("pickle", "dumps");
        core->origin_depth = agx_ext_take_from("sys", "get_coroutine_origin_tracking_depth");
        Py_XDECREF(callable);
        return core->known && core->resolve && core->carriers && core->capture && core->dumps && core->origin_depth
                       ? 0
                       : -1;
}

static int seed(agx_client_config *config)
{
        if (getrandom(config->session, sizeof(config->session), 0) == (ssize_t)sizeof(config->session) &&
            getrandom(config->seed, sizeof(config->seed), 0) == (ssize_t)sizeof(config->seed))
                return 0;
        PyErr_SetString(PyExc_OSError, "no random bytes");
        return -1;
}

static int begin(client_core *core, agx_client_config *config)
{
        int r;

        if (seed(config) < 0)
                return -1;
        r = agx_client_new(&core->client, config);
        if (r == -ENOMEM)
                PyErr_NoMemory();
        else if (r < 0)
                PyErr_SetString(PyExc_ValueError, "a header or the token is too long or has a line break in it");
        return r;
}

typedef struct options {
        PyObject *shell;
        const char *unix_path, *host, *authority, *prefix, *headers, *token;
        Py_ssize_t n_unix_path, n_authority, n_prefix, n_headers, n_token;
        int port, secure, reconnect;
        double timeout, delay, delay_max, jitter, http_sync, grace, deadline;
        unsigned attempts;
        Py_ssize_t load_here;
        int fast;
} options;

static agx_client_config config_of(const options *o)
{
        return (agx_client_config){
                .host = agx_view_of(o->authority, (size_t)o->n_authority),
                .prefix = agx_view_of(o->prefix, (size_t)o->n_prefix),
                .headers = agx_view_of(o->headers, (size_t)o->n_headers),
                .token = o->token ? agx_view_of(o->token, (size_t)o->n_token) : AGX_VIEW_NULL,
                .secure = o->secure,
                .timeout_ms = (uint64_t)(o->timeout * 1000.0 + 0.999),
                .reconnect = o->reconnect,
                .attempts = o->attempts,
                .delay_ms = (uint64_t)(o->delay * 1000.0),
                .delay_max_ms = (uint64_t)(o->delay_max * 1000.0),
                .jitter = (unsigned)(o->jitter * 100.0),
                .link = true,
                .fast = o->fast,
                .http_sync_ms = o->http_sync < 0 ? UINT64_MAX : (uint64_t)o->http_sync,
                .grace_ms = (uint64_t)(o->grace * 1000.0),
        };
}

static int parse(options *o, PyObject *args, PyObject *kwargs)
{
        static char *names[] = {"shell",  "unix_path", "host",    "port",      "authority", "prefix", "headers",
                                "token",  "secure",    "timeout", "reconnect", "attempts",  "delay",  "delay_max",
                                "jitter", "http_sync", "grace",   "deadline",  "load_here", "fast",   NULL};

        if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O$z#zis#s#s#z#pdpIddddddnp:ClientCore", names, &o->shell,
                                         &o->unix_path, &o->n_unix_path, &o->host, &o->port, &o->authority,
                                         &o->n_authority, &o->prefix, &o->n_prefix, &o->headers, &o->n_headers,
                                         &o->token, &o->n_token, &o->secure, &o->timeout, &o->reconnect, &o->attempts,
                                         &o->delay, &o->delay_max, &o->jitter, &o->http_sync, &o->grace, &o->deadline,
                                         &o->load_here, &o->fast))
                return -1;
        if (o->timeout > 0 && o->timeout < 1e9 && o->delay >= 0 && o->delay < 1e9 && o->delay_max >= 0 &&
            o->delay_max < 1e9 && o->jitter >= 0 && o->jitter <= 1 && o->http_sync < 1e12 && o->grace >= 0 &&
            o->grace < 1e9)
                return 0;
        PyErr_SetString(PyExc_ValueError, "a number is out of range");
        return -1;
}

static int set_up(client_core *core, PyTypeObject *type, const options *o)
{
        agx_client_config config = config_of(o);

        core->shell = Py_NewRef(o->shell);
        core->process = this_process;
        core->epoll = -1;
        core->address.family = AF_UNSPEC;
        if (o->unix_path && set_unix(core, o->unix_path, o->n_unix_path) < 0)
                return -1;
        if (o->host && !o->secure && o->port > 0 && o->port < 65536)
                set_tcp(core, o->host, (uint16_t)o->port);
        config.masked = !o->secure && !is_near(core);
        core->allowed_ms =
                o->deadline < 0 || o->deadline >= 1e12 ? UINT64_MAX : (uint64_t)(o->deadline * 1000.0 + 0.999);
        core->load_here = o->load_here;
        core->call_type = PyObject_GetAttrString((PyObject *)type, "_call");
        core->pending_type = PyObject_GetAttrString((PyObject *)type, "_pending");
        core->body_type = PyObject_GetAttrString((PyObject *)type, "_body");
        if (!core->call_type || !core->pending_type || !core->body_type || collect(core) < 0 || collect_calls(core) < 0)
                return -1;
        return begin(core, &config);
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
        allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
        options o = {.shell = NULL};
        client_core *core;

        if (parse(&o, args, kwargs) < 0)
                return NULL;
        core = (client_core *)alloc(type, 0);
        if (core && set_up(core, type, &o) < 0) {
                Py_DECREF((PyObject *)core);
                core = NULL;
        }
        return (PyObject *)core;
}

static int core_traverse(PyObject *self, visitproc visit, void *arg)
{
        client_core *core = core_of(self);

        Py_VISIT(Py_TYPE(self));
        Py_VISIT(core->shell);
        Py_VISIT(core->loop);
        Py_VISIT(core->ready);
        Py_VISIT(core->empty);
        Py_VISIT(core->on_readable);
        Py_VISIT(core->on_writable);
        Py_VISIT(core->on_timer);
        Py_VISIT(core->timer);
        for (client_pending *p = core->pending; p; p = p->next)
                Py_VISIT((PyObject *)p);
        return 0;
}

/* Calls in flight when nobody is left: their pendings are let go, the connections close with the core. */
static void drop_pending(client_core *core)
{
        while (core->pending) {
                client_pending *p = core->pending;

                core->pending = p->next;
                if (p->next)
                        p->next->prev = NULL;
                p->prev = p->next = NULL;
                agx_client_call_free(core->client, p->call, client_now());
                p->call = NULL;
                p->done = p->cancelled = true;
                Py_DECREF((PyObject *)p);
        }
}

static int core_clear(PyObject *self)
{
        client_core *core = core_of(self);

        drop_pending(core);
        Py_CLEAR(core->shell);
        Py_CLEAR(core->loop);
        client_wait_unbind(core);
        Py_CLEAR(core->on_readable);
        Py_CLEAR(core->on_writable);
        Py_CLEAR(core->on_timer);
        Py_CLEAR(core->timer);
        return 0;
}

static void core_dealloc(PyObject *self)
{
        client_core *core = core_of(self);
        PyTypeObject *type = Py_TYPE(self);
        freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

        PyObject_GC_UnTrack(self);
        core_clear(self);
        core->loop_is_dead = true;
        client_links_free(core);
        if (core->client)
                agx_client_free(core->client);
        Py_CLEAR(core->empty);
        Py_CLEAR(core->get_loop);
        Py_CLEAR(core->cancelled_error);
        Py_CLEAR(core->copy_context);
        Py_CLEAR(core->known);
        Py_CLEAR(core->resolve);
        Py_CLEAR(core->carriers);
        Py_CLEAR(core->capture);
        Py_CLEAR(core->dumps);
        Py_CLEAR(core->origin_depth);
        Py_CLEAR(core->call_type);
        Py_CLEAR(core->pending_type);
        Py_CLEAR(core->body_type);
#define X(name) Py_CLEAR(core->s_##name);
        CLIENT_NAMES(X)
#undef X
        release(self);
        Py_DECREF(type);
}

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
        {Py_tp_new, (void *)core_new},
        {Py_tp_dealloc, (void *)core_dealloc},
        {Py_tp_traverse, (void *)core_traverse},
        {Py_tp_clear, (void *)core_clear},
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

/* Once a process: a second module is that of a subinterpreter. */
static int watch_forks(void)
{
        if (this_process)
                return 0;
        look_where();
        if (pthread_atfork(NULL, NULL, look_where) == 0)
                return 0;
        PyErr_NoMemory();
        return -1;
}

int agx_ext_add_client(PyObject *module)
{
        PyObject *call = client_call_type(module), *pending = client_pending_type(module),
                 *body = client_body_type(module), *core = NULL;
        int r = -1;

        if (call && pending && body && watch_forks() == 0)
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
