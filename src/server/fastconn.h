#ifndef AGX_SERVER_FASTCONN_H
#define AGX_SERVER_FASTCONN_H
/*
 * A connection of the fast wire as a brain: many requests at once, each on a stream of its own, answered in any order.
 *
 *     agx_fastconn_next()   as long as there is input; does what its wish says
 *     agx_fastconn_submitted()  and then exactly one agx_fastconn_reply_* for each AGX_FASTCONN_SUBMIT
 *     agx_fastconn_late()   streams whose caller's patience is over, when agx_fastconn_deadline() has passed
 *     agx_fast_pending()    of .fast: what is to be written
 *     agx_fastconn_next_gone()  streams whose reply has been taken, or that were reset: free them
 *
 * A reply's payload is borrowed until then, unless it is to be copied. Times are monotonic milliseconds.
 */
#include "proto/callmsg.h"
#include "proto/fast.h"
#include "proto/limits.h"
#include "server/calls.h"
#include "server/gather.h"

typedef struct agx_fastconn agx_fastconn;

typedef struct agx_fast_stream {
        uint32_t id;
        bool asked;          /* its request is complete */
        bool replied;        /* what still comes of it is dropped */
        const char *crowded; /* likewise: there was no room for it, in words; it is told so when it is complete */
        uint64_t wait_ms;
        agx_call_request request; /* at SUBMIT; lives as long as the input */
        agx_fastconn *conn;
        /* the shell's */
        void *user;
        agx_waiter waiter;
        agx_call *call;     /* what it waits for */
        agx_call *settling; /* its result is being written */
        agx_list gone;      /* in a list of the shell's, once it is out of the table */
        /* private */
        agx_list late;
        uint64_t deadline;
        agx_buf body;
        size_t gathered; /* bytes of it that count, also when the shell has taken it over */
        agx_buf head;
        agx_fast_value value;
} agx_fast_stream;

struct agx_fastconn {
        agx_fast *fast;
        size_t n_streams;
        size_t n_asked;                                 /* of them, requests that are complete */
        size_t gathered;                                /* bytes of those that are not, and of those being submitted */
        size_t gather_max;                              /* AGX_FAST_GATHER_BYTES; a test may lower it */
        agx_gather *shared;                             /* of all connections; the shell's to set, or NULL */
        agx_fast_stream *streams[AGX_FAST_STREAMS_MAX]; /* by id, modulo their number */
        agx_list late;
        uint64_t heard; /* when something came last */
        char session[AGX_MAX_SESSION];
        size_t n_session;
        const char *why;
};

typedef enum agx_fastconn_wish {
        AGX_FASTCONN_INPUT,  /* all input is used */
        AGX_FASTCONN_SUBMIT, /* *stream has a request: reply at once or later */
        AGX_FASTCONN_CLOSE   /* send what is pending, then close */
} agx_fastconn_wish;

/* `session` is copied. 0 or -ENOMEM. */
int agx_fastconn_init(agx_fastconn *c, agx_view session, const uint8_t seed[16], uint64_t now);
/* Frees all streams; the shell has let their calls go. */
void agx_fastconn_deinit(agx_fastconn *c);
agx_view agx_fastconn_session(const agx_fastconn *c);

/* 0, or a negative error: close without a word. */
int agx_fastconn_next(agx_fastconn *c, uint64_t now, agx_view *in, agx_fastconn_wish *wish, agx_fast_stream **stream);
/* A place for the next bytes of a large body, or for the head of its next frame. */
bool agx_fastconn_place(agx_fastconn *c, char **place, size_t *n);
uint64_t agx_fastconn_deadline(const agx_fastconn *c);
/* The next stream that is to be told 202, or NULL. */
agx_fast_stream *agx_fastconn_late(agx_fastconn *c, uint64_t now);
/* Nothing is asked, and nothing came for too long. */
bool agx_fastconn_is_idle(const agx_fastconn *c, uint64_t now);

/* The request is not looked at any more. */
void agx_fastconn_submitted(agx_fast_stream *s);

/* Each 0 or -ENOMEM. */
int agx_fastconn_reply_result(agx_fast_stream *s, bool ok, agx_view payload, bool copy);
int agx_fastconn_reply_fault(agx_fast_stream *s, const agx_fault *fault);
int agx_fastconn_reply_accepted(agx_fast_stream *s, agx_view call_id);
int agx_fastconn_reply_unavailable(agx_fast_stream *s);
/* The payload is somebody else's from now on: nothing more of the reply is sent, and its caller is told so. The stream is
 * over: free it. */
void agx_fastconn_take_back(agx_fast_stream *s);

/* A stream whose reply has been taken whole, or NULL. It is the shell's now, to be freed. */
agx_fast_stream *agx_fastconn_next_gone(agx_fastconn *c, uint64_t now);
void agx_fastconn_free(agx_fast_stream *s);

#endif
