#ifndef AGX_CLIENT_HTTPCONN_H
#define AGX_CLIENT_HTTPCONN_H
/*
 * One HTTP/1.1 connection as a client uses it: a request out, its reply in, and again.
 *
 * A request is put into `out` by its author, with what is large left where it is (`tail`, borrowed until it is sent or
 * dropped). agx_httpconn_pending() shows what is still to be written. Bytes that came are handed over wherever they
 * lie; to spare large bodies a copy, ask agx_httpconn_place() where to read to. Informational replies are passed over,
 * a bounded number of them. A body is gathered as it comes, never above the bound of agx_httpconn_begin(); with
 * agx_httpconn_discard() it is counted and thrown away.
 *
 * It knows no time and no calls. After AGX_HTTPCONN_E_BROKEN or a negative result only deinit is left.
 */
#include "base/buf.h"
#include "wire/http1.h"

enum {
        AGX_HTTPCONN_E_REPLY = 1, /* the reply is complete: .status, .body, agx_httpconn_field() */
        AGX_HTTPCONN_E_SWITCHED,  /* a 101 that was asked for is complete: .rest is no HTTP any more */
        AGX_HTTPCONN_E_BROKEN     /* the peer does not keep to HTTP, or says something unasked: .why */
};

typedef struct agx_httpconn {
        agx_http1 *parser;
        agx_buf out;
        agx_view tail;
        agx_buf body;
        const agx_http1_head *head; /* of the reply, from its head on */
        unsigned status;            /* of the reply; 0 before its head came */
        uint64_t left;              /* bytes of a body of known length that have not come */
        unsigned interim;           /* informational replies to this request */
        bool awaiting;              /* a request was begun and its reply is not complete */
        bool written;               /* a byte of the request has been written */
        bool touched;               /* a byte of the reply has come */
        bool discard;
        bool switching; /* the request asks for a 101; the caller's to set after agx_httpconn_begin() */
        agx_view rest;  /* with E_SWITCHED; lies in the input */
        bool reusable;  /* after a complete reply: another request may follow */
        const char *why;
} agx_httpconn;

#define AGX_HTTPCONN_NULL ((agx_httpconn){.out = {.max = 0}})

/* 0 or -ENOMEM. */
int agx_httpconn_init(agx_httpconn *c);
void agx_httpconn_deinit(agx_httpconn *c);
AGX_DEFINE_CLEANUP(agx_httpconn, agx_httpconn_deinit)

/* Begins a request: the caller then fills `out` and sets `tail`. `body_max`: largest body of its reply. */
void agx_httpconn_begin(agx_httpconn *c, size_t body_max);
/* Takes back a request of which nothing was written. */
void agx_httpconn_revoke(agx_httpconn *c);
/* The reply's body is of no interest any more. */
void agx_httpconn_discard(agx_httpconn *c);

/* What is to be written: up to two segments, valid until the next verb; gives how many. */
size_t agx_httpconn_pending(const agx_httpconn *c, agx_view segments[2]);
void agx_httpconn_sent(agx_httpconn *c, size_t n);
/* Whether the whole request has been written. */
bool agx_httpconn_flushed(const agx_httpconn *c);

/* A place for the next bytes of a large body, or 0 bytes: read into memory of your own. */
agx_view agx_httpconn_place(agx_httpconn *c);
/* 0: more is needed; or one of the conditions above; or -ENOMEM. Takes all of `in`. */
int agx_httpconn_input(agx_httpconn *c, agx_view in);
/* The peer has closed: AGX_HTTPCONN_E_REPLY if that ended a body delimited so, else AGX_HTTPCONN_E_BROKEN. */
int agx_httpconn_eof(agx_httpconn *c);
/* A field of the complete reply, absent if missing or repeated. Lives until the next request begins. */
agx_view agx_httpconn_field(const agx_httpconn *c, agx_view name);

#endif
