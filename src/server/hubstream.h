#ifndef AGX_SERVER_HUBSTREAM_H
#define AGX_SERVER_HUBSTREAM_H
/*
 * The part of the hub (hub.h) that knows /log and /trace: what a host says on them, and what a port tells it of their
 * journals. For hub.c alone.
 */
#include "server/hub.h"

/* An agx_hub_stream, or -1. */
int agx_hub_stream_of(agx_view nsp);
/* `json`: what the host says when it joins; what cannot be read counts as not said. */
void agx_hub_stream_join(agx_hub_port *p, int stream, agx_view json);
void agx_hub_stream_take(agx_hub_port *p, int stream, agx_view name, agx_view payload, agx_hub_outcome *outcome);
/* What is to be said next on any stream. 0, AGX_HUB_E_NONE or -ENOMEM. */
int agx_hub_stream_say(agx_hub_port *p, agx_hub_saying *saying);

/* Of hub.c: the port has got something to say. */
void agx_hub_touch(agx_hub_port *p);

#endif
