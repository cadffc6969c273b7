#ifndef AGX_SERVER_FAST_UV_H
#define AGX_SERVER_FAST_UV_H
/*
 * The shell of the fast wire: an accepted connection after its upgrade. Calls come and go by its streams; what is to go
 * out is pulled from the brain as far as the peer takes it.
 */
#include "server/http_uv.h"

/* The brain of the HTTP connection has a request for it: the 101. 0 or a negative error: close the connection. */
int agx_fast_road_begin(agx_http *h);
void agx_fast_road_feed(agx_http *h, agx_view in);
bool agx_fast_road_place(agx_http *h, char **place, size_t *n);
/* All that was queued has gone out. */
void agx_fast_road_drained(agx_http *h);
void agx_fast_road_tick(agx_http *h);
/* The server drains: it ends once nothing is asked any more. */
void agx_fast_road_drain(agx_http *h);
/* The connection is going away; calls go on without it. */
void agx_fast_road_lost(agx_http *h);
void agx_fast_road_free(agx_http *h);

#endif
