/* A client's beginning and end: what it is made of options and looked up once, and how it is let go. */
#include "client.h"

#include "landed.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

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
                .land = &agx_landed_memory,
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
        core->process = client_here();
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

PyObject *client_core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
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

int client_core_traverse(PyObject *self, visitproc visit, void *arg)
{
        client_core *core = (client_core *)self;

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

int client_core_clear(PyObject *self)
{
        client_core *core = (client_core *)self;

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

void client_core_dealloc(PyObject *self)
{
        client_core *core = (client_core *)self;
        PyTypeObject *type = Py_TYPE(self);
        freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

        PyObject_GC_UnTrack(self);
        client_core_clear(self);
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
