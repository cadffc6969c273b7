#ifndef AGX_SERVER_HUB_UV_H
#define AGX_SERVER_HUB_UV_H
/*
 * The shell of side channels: frames of workers and events of hosts pass through the hub; what workers write and log goes
 * to /log and into the durable files.
 */
#include "server/server_uv.h"

void agx_side_init(agx_server *s, const uint8_t seed[16]);
void agx_side_deinit(agx_server *s);

/* `sio_open` or `sio_emit`. */
void agx_side_frame(agx_server *s, uint64_t worker, const agx_frame *frame);
void agx_side_worker_ready(agx_server *s, uint64_t worker);
void agx_side_line(agx_server *s, const agx_worker *worker, int fd, const agx_output_line *line);
/* 0 or -ENOMEM: the connection is to be closed. */
int agx_side_event(agx_server *s, agx_hub_port *port, agx_view nsp, agx_view name, agx_view payload);
/* After anything that may have filled or emptied queues: workers are told, hosts are warned. */
void agx_side_mind(agx_server *s);

#endif
