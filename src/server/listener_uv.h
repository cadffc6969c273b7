#ifndef AGX_SERVER_LISTENER_UV_H
#define AGX_SERVER_LISTENER_UV_H
/*
 * Where connections come from: a literal TCP address or a Unix socket. A Unix socket left behind by a server that is gone is
 * replaced; one that somebody listens on is not. When the server can take no more, connections wait in the kernel.
 */
#include "io/loop.h"

typedef struct agx_listener agx_listener;

struct agx_listener {
        union {
                uv_handle_t handle;
                uv_stream_t stream;
                uv_tcp_t tcp;
                uv_pipe_t pipe;
        } uv;
        bool tcp;
        bool open;
        bool held; /* a connection waits for agx_listener_resume() */
        char url[512];
        /* Accept one with uv_accept(); false: not now. */
        bool (*incoming)(agx_listener *self);
        void (*closed)(
                agx_listener *self); /* may be NULL: the memory is the owner's again; kept by the verbs that open */
};

/* `mode`: permissions of the socket file. 0 or a negative errno; `.url` then says where. */
int agx_listener_open_unix(agx_listener *n, agx_loop *l, const char *path, unsigned mode,
                           bool (*incoming)(agx_listener *self));
int agx_listener_open_tcp(agx_listener *n, agx_loop *l, const char *host, unsigned port,
                          bool (*incoming)(agx_listener *self));
void agx_listener_resume(agx_listener *n);
/* Removes the socket file too. */
void agx_listener_close(agx_listener *n);

#endif
