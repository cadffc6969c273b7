#ifndef AGX_TEST_HTTP1_LOG_H
#define AGX_TEST_HTTP1_LOG_H
/*
 * What the HTTP/1.1 parser makes of some bytes, as one line of text, so that a test can state it and two runs can be
 * compared. The bytes are fed in pieces of a chosen size, each flush against an unreadable page and overwritten by the
 * next: a view that outlives its promise shows. At the end of the bytes the peer is taken to close.
 *
 *     {POST /call}       a request's head; {200} a response's. Then, where they apply, the words
 *                        1.0, close (not kept alive), expect, upgrade
 *     [hello]            the body, however many pieces it came in; a long one is counted: [#length:hash]
 *     .                  the end of the message
 *     !400 !431 !413 !505  an error, by the status it stands for; !mem for lack of memory
 *     !eof               the peer closed inside a message
 *     Name=value|        the fields, inside the head, if asked for
 */
#include "wire/http1.h"

typedef struct agx_http1_feed {
        agx_http1_role role;
        bool no_body; /* every response answers a HEAD */
        bool fields;  /* show them */
        agx_http1_bounds bounds;
} agx_http1_feed;

/* The bounds the product uses, with a body of at most 1 MiB. */
extern const agx_http1_bounds agx_http1_test_bounds;

/* Feeds `data`: first a piece of `first` bytes, then pieces of `step` bytes. The text is added to `log`. */
void agx_http1_log(agx_buf *log, const agx_http1_feed *feed, agx_view data, size_t first, size_t step);

#endif
