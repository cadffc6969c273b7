#ifndef AGX_SERVER_TUNNEL_UV_H
#define AGX_SERVER_TUNNEL_UV_H
/*
 * The shell of tunnels: a listener on 127.0.0.1 for each, its connections, and what the host says on /abridge.
 */
#include "server/server_uv.h"

/* An event on /abridge. 0 or -ENOMEM: the host's connection is to be closed. */
int agx_tunnel_uv_event(agx_server *s, agx_hub_port *port, agx_view name, agx_view payload);
/* At the server's end. */
void agx_tunnel_uv_close_all(agx_server *s);

#endif
