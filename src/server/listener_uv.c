/*
 * libuv tells of a waiting connection and leaves it in the kernel's hands until it is accepted; as long as one waits
 * unaccepted, no further ones are reported. That is the whole of the back-pressure here.
 */
#include "server/listener_uv.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void on_connection(uv_stream_t *stream, int status)
{
        agx_listener *n = agx_container_of(stream, agx_listener, uv);

        if (status >= 0)
                n->held = !n->incoming(n);
}

static int start(agx_listener *n, bool (*incoming)(agx_listener *self))
{
        n->incoming = incoming;
        return uv_listen(&n->uv.stream, AGX_SERVER_BACKLOG, on_connection);
}

/* ---- Unix sockets ---- */

static bool is_plain(unsigned char c)
{
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' ||
               c == '_' || c == '~';
}

static void unix_url(agx_listener *n, const char *path)
{
        int at = snprintf(n->url, sizeof(n->url), "http+unix://");

        for (; *path && (size_t)at + 4 < sizeof(n->url); path++) {
                unsigned char c = (unsigned char)*path;

                at += snprintf(n->url + at, sizeof(n->url) - (size_t)at, is_plain(c) ? "%c" : "%%%02X", c);
        }
}

/* Removes a socket that nobody listens on any more. */
static bool remove_stale(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct stat info;
        int fd, r, error;

        if (lstat(path, &info) || !S_ISSOCK(info.st_mode))
                return false;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return false;
        memcpy(address.sun_path, path, strlen(path));
        r = connect(fd, (struct sockaddr *)&address, sizeof(address));
        error = errno;
        close(fd);
        return r && error == ECONNREFUSED && !unlink(path);
}

static int bind_unix(agx_listener *n, const char *path, unsigned mode)
{
        mode_t before = umask(0777 & ~mode);
        int r = uv_pipe_bind(&n->uv.pipe, path);

        if (r == UV_EADDRINUSE && remove_stale(path))
                r = uv_pipe_bind(&n->uv.pipe, path);
        umask(before);
        return r;
}

int agx_listener_open_unix(agx_listener *n, agx_loop *l, const char *path, unsigned mode,
                           bool (*incoming)(agx_listener *self))
{
        int r;

        *n = (agx_listener){.open = true, .closed = n->closed};
        uv_pipe_init(&l->uv, &n->uv.pipe, 0);
        r = strlen(path) < sizeof(((struct sockaddr_un *)NULL)->sun_path) ? bind_unix(n, path, mode) : -ENAMETOOLONG;
        if (!r)
                r = start(n, incoming);
        if (r)
                agx_listener_close(n);
        else
                unix_url(n, path);
        return agx_trace(r);
}

/* ---- TCP ---- */

static int tcp_url(agx_listener *n)
{
        struct sockaddr_storage address;
        int size = sizeof(address), r = uv_tcp_getsockname(&n->uv.tcp, (struct sockaddr *)&address, &size);
        char text[INET6_ADDRSTRLEN] = "";

        if (r)
                return r;
        if (address.ss_family == AF_INET6) {
                const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;

                uv_ip6_name(v6, text, sizeof(text));
                snprintf(n->url, sizeof(n->url), "http://[%s]:%u", text, ntohs(v6->sin6_port));
        } else {
                const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;

                uv_ip4_name(v4, text, sizeof(text));
                snprintf(n->url, sizeof(n->url), "http://%s:%u", text, ntohs(v4->sin_port));
        }
        return 0;
}

int agx_listener_open_tcp(agx_listener *n, agx_loop *l, const char *host, unsigned port,
                          bool (*incoming)(agx_listener *self))
{
        struct sockaddr_storage address = {0};
        int r;

        *n = (agx_listener){.tcp = true, .open = true, .closed = n->closed};
        uv_tcp_init(&l->uv, &n->uv.tcp);
        r = strchr(host, ':') ? uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)&address)
                              : uv_ip4_addr(host, (int)port, (struct sockaddr_in *)&address);
        if (!r)
                r = uv_tcp_bind(&n->uv.tcp, (struct sockaddr *)&address, 0);
        if (!r)
                r = start(n, incoming);
        if (!r)
                r = tcp_url(n);
        if (r)
                agx_listener_close(n);
        return agx_trace(r);
}

void agx_listener_resume(agx_listener *n)
{
        if (n->open && n->held)
                n->held = !n->incoming(n);
}

static void on_closed(uv_handle_t *handle)
{
        agx_listener *n = agx_container_of(handle, agx_listener, uv);

        if (n->closed)
                n->closed(n);
}

void agx_listener_close(agx_listener *n)
{
        if (!n->open)
                return;
        n->open = false;
        uv_close(&n->uv.handle, on_closed); /* libuv unlinks the socket file it has bound */
}
