/* Connections. For plain addresses a link is a descriptor of our own: read and written here, watched by the loop only
 * for what cannot be done at once. For everything else Python opens it and hands over a descriptor (a name that had to
 * be resolved) or an asyncio transport (TLS), which then feeds us.
 *
 * A link lives from the brain's OPEN wish to its CLOSE wish. Python refers to it by a serial number that is never used
 * again, so what comes late finds nothing. */
#include "client.h"

#include "proto/limits.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
        READ_PER_TURN = 512 << 10, /* bytes, before who was answered by them goes on, and other events get their turn */
        READS_PER_TURN = 128,      /* likewise */
        WRITE_PER_TURN = 8 << 20,  /* bytes, likewise */
        TRANSPORT_SLICE = 256 << 10, /* given to a transport at once; it copies */
        SLOT_BITS = 16,
};

/* ---- the table ---- */

static size_t free_slot(client_core *core)
{
        size_t slot = 0;

        while (slot < core->n_links && core->links[slot])
                ++slot;
        return slot;
}

static client_link *link_new(client_core *core, agx_client_conn *conn)
{
        size_t slot = free_slot(core);
        client_link *link;

        if (slot == core->n_links) {
                client_link **links = realloc(core->links, (core->n_links + 16) * sizeof(client_link *));

                if (!links)
                        return NULL;
                memset(links + core->n_links, 0, 16 * sizeof(client_link *));
                core->links = links;
                core->n_links += 16;
        }
        link = calloc(1, sizeof(*link));
        if (!link)
                return NULL;
        *link = (client_link){.conn = conn, .slot = slot, .fd = -1};
        link->serial = ++core->n_opened << SLOT_BITS | slot;
        core->links[slot] = link;
        agx_client_conn_set_user(conn, link);
        return link;
}

client_link *client_link_of(client_core *core, uint64_t serial)
{
        size_t slot = serial & ((1u << SLOT_BITS) - 1);
        client_link *link = slot < core->n_links ? core->links[slot] : NULL;

        return link && link->serial == serial ? link : NULL;
}

/* ---- the loop ---- */

/* Calls loop.<method>(fd[, callback, serial]) in an empty context. A loop that refuses says so to the hook for
 * exceptions nobody can catch: there is no caller to tell. */
static void watch(client_core *core, PyObject *method, client_link *link, PyObject *callback)
{
        PyObject *bound, *fd, *serial, *r = NULL;

        if (core->loop_is_dead || !core->loop ||
            core->process != client_here()) /* a fork shares the loop's own descriptor */
                return;
        bound = PyObject_GetAttr(core->loop, method);
        fd = PyLong_FromLong(link->fd);
        serial = PyLong_FromUnsignedLongLong(link->serial);
        if (bound && fd && serial)
                r = PyObject_CallMethodObjArgs(core->empty, core->s_run, bound, fd, callback, callback ? serial : NULL,
                                               NULL);
        if (!r)
                PyErr_WriteUnraisable(core->loop);
        Py_XDECREF(r);
        Py_XDECREF(bound);
        Py_XDECREF(fd);
        Py_XDECREF(serial);
}

static void watch_writes(client_core *core, client_link *link, bool on)
{
        if (link->writing == on)
                return;
        link->writing = on;
        watch(core, on ? core->s_add_writer : core->s_remove_writer, link, on ? core->on_writable : NULL);
}

static void watch_reads(client_core *core, client_link *link, bool on)
{
        if (link->reading == on)
                return;
        link->reading = on;
        watch(core, on ? core->s_add_reader : core->s_remove_reader, link, on ? core->on_readable : NULL);
}

/* ---- opening ---- */

static void ask_shell(client_core *core, client_link *link)
{
        PyObject *serial = PyLong_FromUnsignedLongLong(link->serial), *r = NULL;

        if (serial)
                r = PyObject_CallMethodObjArgs(core->shell, core->s_open, serial, NULL);
        if (!r) {
                PyErr_WriteUnraisable(core->shell);
                agx_client_open_failed(core->client, link->conn, "the connection could not be begun", client_now());
        }
        Py_XDECREF(r);
        Py_XDECREF(serial);
}

static void tune(int fd, bool local)
{
        int one = 1, idle = 60, interval = 15, count = 4, room = AGX_SOCKET_BYTES;

        if (local) { /* for TCP the kernel finds the right size by itself */
                setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
                return;
        }
        /* Dead peers are found by the kernel. */
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

void client_link_opened(client_core *core, client_link *link, int fd, PyObject *transport)
{
        uint8_t nonce[AGX_CLIENT_NONCE_BYTES];

        link->connecting = false;
        link->transport = Py_XNewRef(transport);
        link->fd = fd;
        if (fd >= 0) {
                tune(fd, core->address.family == AF_UNIX);
                watch_writes(core, link, false);
                watch_reads(core, link, true);
        }
        if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce)) {
                agx_client_open_failed(core->client, link->conn, "no random bytes", client_now());
                return;
        }
        agx_client_opened(core->client, link->conn, nonce, client_now());
}

static void open_failed(client_core *core, client_link *link, int error)
{
        /* A Unix socket whose queue is full says EAGAIN at once: as good as refused, the brain decides about retries. */
        agx_client_open_failed(core->client, link->conn, strerror(error), client_now());
}

static void connect_here(client_core *core, client_link *link)
{
        const struct sockaddr *address = (const struct sockaddr *)(const void *)core->address.bytes;
        int fd = socket(core->address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), r;

        if (fd < 0) {
                open_failed(core, link, errno);
                return;
        }
        link->fd = fd;
        do
                r = connect(fd, address, (socklen_t)core->address.size);
        while (r < 0 && errno == EINTR);
        if (r == 0) {
                client_link_opened(core, link, fd, NULL);
        } else if (errno == EINPROGRESS) {
                link->connecting = true;
                watch_writes(core, link, true);
        } else {
                open_failed(core, link, errno);
        }
}

int client_link_open(client_core *core, agx_client_conn *conn)
{
        client_link *link = link_new(core, conn);

        if (!link)
                agx_client_open_failed(core->client, conn, "out of memory", client_now());
        else if (core->address.family == AF_UNSPEC)
                ask_shell(core, link);
        else
                connect_here(core, link);
        return 0;
}

static void connected(client_core *core, client_link *link)
{
        int error = 0;
        socklen_t size = sizeof(error);

        link->connecting = false;
        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
                error = errno;
        if (error)
                open_failed(core, link, error);
        else
                client_link_opened(core, link, link->fd, NULL);
}

/* ---- reading ---- */

/* One read into the place the brain prefers. How much came: > 0; 0: nothing for now, or the end, which is reported. */
static ssize_t read_once(client_core *core, client_link *link, bool *full)
{
        agx_view place = agx_client_conn_place(link->conn);
        void *p = place.n ? (void *)(uintptr_t)place.p : core->scratch;
        size_t size = place.n ? place.n : sizeof(core->scratch);
        ssize_t n;

        do
                n = recv(link->fd, p, size, 0);
        while (n < 0 && errno == EINTR);
        *full = n == (ssize_t)size;
        if (n > 0)
                agx_client_input(core->client, link->conn, agx_view_of(p, (size_t)n), client_now());
        else if (n == 0)
                agx_client_ended(core->client, link->conn, NULL, client_now());
        else if (errno != EAGAIN)
                agx_client_ended(core->client, link->conn, strerror(errno), client_now());
        return n > 0 ? n : 0;
}

void client_link_read(client_core *core, client_link *link)
{
        bool full = true;
        ssize_t n, total = 0;

        for (int i = 0; full && total < READ_PER_TURN && i < READS_PER_TURN; ++i) {
                n = read_once(core, link, &full);
                if (!n || !agx_client_conn_busy(link->conn))
                        return;
                total += n;
        }
}

void client_links_read(client_core *core, bool busy)
{
        for (size_t i = 0; i < core->n_links; ++i) {
                client_link *link = core->links[i];

                if (link && link->conn && link->fd >= 0 && !link->connecting &&
                    agx_client_conn_busy(link->conn) == busy)
                        client_link_read(core, link);
        }
}

/* ---- writing ---- */

static ssize_t send_some(client_link *link, const agx_view segments[2], size_t n)
{
        struct iovec parts[2];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = n};
        ssize_t sent;

        for (size_t i = 0; i < n; ++i)
                parts[i] = (struct iovec){(void *)(uintptr_t)segments[i].p, segments[i].n};
        do
                sent = sendmsg(link->fd, &message, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        return sent;
}

/* The peer takes no more: what it said before (an early refusal) still counts. */
static void write_failed(client_core *core, client_link *link, int error)
{
        watch_writes(core, link, false);
        client_link_read(core, link);
        if (agx_client_conn_busy(link->conn))
                agx_client_ended(core->client, link->conn, strerror(error), client_now());
}

static void write_descriptor(client_core *core, client_link *link)
{
        agx_view segments[2];
        size_t n, total = 0;

        while ((n = agx_client_conn_pending(link->conn, segments)) && total < WRITE_PER_TURN) {
                ssize_t sent = send_some(link, segments, n);

                if (sent < 0 && errno == EAGAIN)
                        break;
                if (sent < 0) {
                        write_failed(core, link, errno);
                        return;
                }
                agx_client_conn_sent(link->conn, (size_t)sent);
                total += (size_t)sent;
        }
        watch_writes(core, link, n > 0);
}

static void write_transport(client_core *core, client_link *link)
{
        agx_view segments[2];

        while (!link->paused && agx_client_conn_pending(link->conn, segments)) {
                agx_view slice = agx_view_first(segments[0], TRANSPORT_SLICE);
                PyObject *data = PyBytes_FromStringAndSize(slice.p, (Py_ssize_t)slice.n), *r = NULL;

                agx_client_conn_sent(link->conn, slice.n);
                if (data)
                        r = PyObject_CallMethodObjArgs(link->transport, core->s_write, data, NULL);
                Py_XDECREF(data);
                if (!r) {
                        PyErr_Clear();
                        agx_client_ended(core->client, link->conn, "the transport failed", client_now());
                        return;
                }
                Py_DECREF(r);
        }
}

void client_link_write(client_core *core, agx_client_conn *conn)
{
        client_link *link = agx_client_conn_user(conn);

        if (core->process != client_here()) /* what a forked child finds unsent is its parent's to send */
                return;
        if (link->transport)
                write_transport(core, link);
        else if (link->fd >= 0)
                write_descriptor(core, link);
}

void client_link_writable(client_core *core, client_link *link)
{
        if (link->connecting)
                connected(core, link);
        else
                client_link_write(core, link->conn);
}

/* ---- closing ---- */

static void cancel_shell(client_core *core, client_link *link)
{
        PyObject *serial = PyLong_FromUnsignedLongLong(link->serial), *r = NULL;

        if (serial)
                r = PyObject_CallMethodObjArgs(core->shell, core->s_cancel, serial, NULL);
        if (!r)
                PyErr_WriteUnraisable(core->shell);
        Py_XDECREF(r);
        Py_XDECREF(serial);
}

static void abort_transport(client_core *core, client_link *link)
{
        PyObject *r = NULL;

        if (!core->loop_is_dead)
                r = PyObject_CallMethodObjArgs(link->transport, core->s_abort, NULL);
        if (!r)
                PyErr_Clear();
        Py_XDECREF(r);
        Py_CLEAR(link->transport);
}

static void link_free(client_core *core, client_link *link)
{
        core->links[link->slot] = NULL;
        if (link->fd >= 0) {
                watch_writes(core, link, false);
                watch_reads(core, link, false);
                close(link->fd);
        } else if (link->transport) {
                abort_transport(core, link);
        } else if (core->shell) {
                cancel_shell(core, link);
        }
        free(link);
}

void client_link_close(client_core *core, agx_client_conn *conn)
{
        client_link *link = agx_client_conn_user(conn);

        agx_client_conn_free(core->client, conn);
        if (link) {
                link->conn = NULL;
                link_free(core, link);
        }
}

void client_links_free(client_core *core)
{
        for (size_t i = 0; i < core->n_links; ++i)
                if (core->links[i])
                        link_free(core, core->links[i]);
        free(core->links);
        core->links = NULL;
        core->n_links = 0;
}
