#ifndef AGX_TEST_WS_LOG_H
#define AGX_TEST_WS_LOG_H
/*
 * What the WebSocket reader makes of some bytes, and what it wants written, as one line of text. The bytes are fed in
 * pieces of a chosen size, each flush against an unreadable page and overwritten by the next.
 *
 *     T[hello] B[hello]  a message; a long one is counted: [#length:hash]
 *     M[hello]           a binary message in pieces, at its end
 *     P[x] p[x]          a ping, a pong
 *     C1000[bye]         a close
 *     <8a0178>           a frame pulled after the event before it, in hexadecimal (a client's mask is all zero)
 *     !1002(words)       an error; !mem for lack of memory
 */
#include "wire/ws.h"

typedef struct agx_ws_feed {
        agx_ws_role role;
        agx_ws_bounds bounds;
        bool (*pause)(bool pause); /* NULL, or agx_oom_pause(): the log's own memory is not to fail */
} agx_ws_feed;

/* Feeds `data`: first a piece of `first` bytes, then pieces of `step` bytes. The text is added to `log`. */
void agx_ws_log(agx_buf *log, const agx_ws_feed *feed, agx_view data, size_t first, size_t step);

#endif
