#ifndef AGX_CLIENT_SESSION_H
#define AGX_CLIENT_SESSION_H
/*
 * A client session: the host's end of one runtime. It owns the table of calls, their ids, the pool of connections, and
 * every decision about them: what is sent where, what is asked again, what is given up.
 *
 * Sans-IO. The shell reports what happened (connections opened, bytes, ends, time) and carries out wishes:
 *
 *     OPEN   open a connection to the runtime; report agx_client_opened() or agx_client_open_failed()
 *     WRITE  agx_client_conn_pending() gives something: write it now, and go on when the socket can take more
 *     CLOSE  the connection is over: close it (if it was ever opened), then agx_client_conn_free()
 *
 * and takes finished calls from agx_client_next_done(). After every verb: wishes, finished calls, agx_client_timer().
 * No verb calls back, so the shell may start new calls while it handles a finished one.
 *
 * Rules kept here (wire.md, sections 1, 3 and 6):
 *  - Every connection first asks GET /health, without the token. With a token, over anything but https, the answer must
 *    prove that the server knows it; else the connection is dropped and the calls that wait end as UNREACHABLE.
 *  - There are two roads. A call begins by POST, which waits for `http_sync_ms`; if its result has not come by then, or
 *    the connection is lost, it is awaited on the link, which is opened for the first call that needs it. Without
 *    `http_sync_ms` every call goes over the link.
 *  - Every new link begins with the ids that are awaited. What the server never saw is sent again, in rising order, what
 *    it dropped fails, and so does what another instance may have begun.
 *  - Where the server offers the fast wire, one connection carries all POSTs; what is said here of a connection that waits for
 *    a reply holds for a stream of it. Where it does not, a POST takes a connection of its own.
 *  - A server that offers no Socket.IO is asked again by POST instead: after a loss, and with growing pauses after a 202;
 *    the arguments are not sent a second time.
 *  - A call that ends here before it has ended there (abandoned, or its deadline passed) is cancelled over the link.
 *  - A call that may be a stream is offered credit; its items come on the link, in order, and a new link brings anew those
 *    that were not consumed. Credit is given, and so consumption told, in lots of half of what was offered first.
 *  - Ids are `<session>-<counter>`, numbered as they are first sent; new ones wait while one that the server has not
 *    answered, with a 202 or an outcome, is AGX_LEDGER_WINDOW - 1 behind, or so many are under way. Consumed results are acknowledged in later requests.
 */
#include "base/list.h"
#include "client/health.h"
#include "client/httpconn.h"
#include "client/landing.h"
#include "proto/fault.h"

enum { AGX_CLIENT_SESSION_BYTES = 16, AGX_CLIENT_NONCE_BYTES = 32, AGX_CLIENT_WHY_MAX = 160 };

typedef struct agx_client agx_client;
typedef struct agx_client_call agx_client_call;
typedef struct agx_client_conn agx_client_conn;

typedef struct agx_client_config {
        agx_view host;   /* the Host field */
        agx_view prefix; /* of every path, without a slash at its end; may be empty */
        agx_view
                headers; /* further fields as they go onto the wire, each "name: value\r\n", already checked; may be empty */
        agx_view token;      /* absent: none */
        bool secure;         /* https: the certificate is the proof */
        uint64_t timeout_ms; /* per HTTP request, > 0 */
        bool reconnect;
        unsigned attempts; /* to reconnect in a row, and per call to ask again; 0: no limit */
        uint64_t delay_ms; /* before the second attempt; doubles */
        uint64_t delay_max_ms;
        unsigned jitter;                           /* percent by which delays vary, 0..100 */
        uint8_t session[AGX_CLIENT_SESSION_BYTES]; /* random */
        uint8_t seed[16];                          /* random and secret: jitter, WebSocket masks */
        bool fast;                                 /* whether the fast wire may be asked for */
        bool masked;                               /* whether frames on it are masked: see agx_fast_new() */
        bool link;                                 /* whether the second road may be taken */
        uint64_t http_sync_ms; /* with `link`: how long a POST waits for a result; UINT64_MAX: no POST */
        size_t reply_bytes;    /* bytes of replies that are not whole; 0: AGX_CLIENT_REPLY_BYTES */
        const agx_landing_memory
                *land;     /* for large bytes of replies, outlives the session; NULL: they are gathered as all is */
        uint64_t grace_ms; /* how long a cancelled target may take to end */
} agx_client_config;

/* All texts are copied. 0, -ENOMEM, or -EINVAL for a CR, LF or NUL where it cannot be. */
int agx_client_new(agx_client **client, const agx_client_config *config);
/* Frees connections and the calls that were not taken, too; the shell has closed its descriptors and freed what it took.
 * Forgets the token. */
void agx_client_free(agx_client *client);
AGX_DEFINE_CLEANUP_POINTER(agx_client, agx_client_free)

/* ---- calls ---- */

typedef enum agx_client_outcome {
        AGX_CLIENT_PENDING,
        AGX_CLIENT_VALUE,       /* .value */
        AGX_CLIENT_FAULT,       /* .fault */
        AGX_CLIENT_UNREACHABLE, /* .why */
        AGX_CLIENT_DEADLINE,
        AGX_CLIENT_NO_MEMORY,
        AGX_CLIENT_HEALTH, /* .health */
        AGX_CLIENT_CONNECTED
} agx_client_outcome;

/* Views live as long as the call, or as the body once that was taken. */
typedef struct agx_client_result {
        agx_client_outcome outcome;
        agx_view value;
        agx_fault fault;
        agx_health health;
        char why[AGX_CLIENT_WHY_MAX]; /* a short text, printable, terminated */
} agx_client_result;

/* `callable`, `arguments` and `context` (absent: none) are borrowed until the call is done or freed. `deadline_ms`: how
 * long the call may take once there has been a connection; UINT64_MAX: for ever. `user` is the shell's. 0 or -ENOMEM. */
int agx_client_start(agx_client *client, agx_view callable, agx_view arguments, agx_view context, uint64_t deadline_ms,
                     void *user, uint64_t now_ms, agx_client_call **call);
/* The same for a call that may turn out to be a stream, whose items the host takes `window` at a time; 0: it takes none. */
int agx_client_start_stream(agx_client *client, agx_view callable, agx_view arguments, agx_view context,
                            uint64_t window, uint64_t deadline_ms, void *user, uint64_t now_ms, agx_client_call **call);
/* Likewise, of arguments in three runs of bytes, one after the other, of which the first and the last are small. */
int agx_client_start_parts(agx_client *client, agx_view callable, const agx_view arguments[3], agx_view context,
                           uint64_t window, uint64_t deadline_ms, void *user, uint64_t now_ms, agx_client_call **call);
/* Asks GET /health. Outcomes HEALTH, UNREACHABLE, NO_MEMORY. */
int agx_client_ask_health(agx_client *client, void *user, uint64_t now_ms, agx_client_call **call);
/* Waits for a proven connection. Outcomes CONNECTED, UNREACHABLE, NO_MEMORY. */
int agx_client_connect(agx_client *client, void *user, uint64_t now_ms, agx_client_call **call);

/* The next finished call, or NULL. It is the shell's to free. */
agx_client_call *agx_client_next_done(agx_client *client);
void *agx_client_call_user(const agx_client_call *call);
/* The connection on which its reply is to come, or NULL: it waits for one, or is awaited on the link. */
agx_client_conn *agx_client_call_conn(const agx_client_call *call);
void agx_client_call_set_user(agx_client_call *call, void *user);
const agx_client_result *agx_client_call_result(const agx_client_call *call);
/* Moves out the buffer that the result's views point into. */
void agx_client_call_take_body(agx_client_call *call, agx_buf *body);

/* The large bytes of its value, if they lie by themselves: moved out, before the body is. From now on they are the
 * shell's. */
agx_client_landed agx_client_call_take_landed(agx_client_call *call);

/* ---- streams ---- */

/* A call that has got items since it was last asked about, or NULL. Take them all; they come before the call's end. */
agx_client_call *agx_client_next_streaming(agx_client *client);
/* The next item: `*value` lies in `*body`, which is the shell's. False: no more for now. */
bool agx_client_call_next_item(agx_client *client, agx_client_call *call, agx_buf *body, agx_view *value);
/* `n` items with `bytes` bytes in all were consumed: as many more may come. */
void agx_client_consumed(agx_client *client, agx_client_call *call, uint64_t n, size_t bytes, uint64_t now_ms);

/* Frees a call, finished or not. One that is not is abandoned: nobody waits for it here any more. If it was not sent
 * whole, it never will be; else it is cancelled, if there is a link, and its reply is heard out and acknowledged, or its
 * connection closed. */
void agx_client_call_free(agx_client *client, agx_client_call *call, uint64_t now_ms);

/* ---- side channels ---- */

/* Namespaces of Socket.IO on the link. What is named here is joined on every link, and wants one: right after the first
 * connection, or, if all there are is streams, a moment later. A stream is one of the server's reliable ones: what comes
 * twice is dropped here, and what is missing is counted. */
enum {
        AGX_CLIENT_E_FULL = 1,  /* join: too many; emit: later */
        AGX_CLIENT_E_TOO_LARGE, /* emit: never */
        AGX_CLIENT_E_ABSENT     /* emit: the server offers no link */
};
/* 0, E_FULL, -ENOMEM, or -EINVAL for a name that is there already, reserved or none. */
int agx_client_join(agx_client *client, agx_view nsp, bool stream, uint64_t now_ms);
/* The payload, msgpack, is copied. 0, E_FULL, E_TOO_LARGE, E_ABSENT, -ENOMEM, or -EINVAL for a namespace not named. */
int agx_client_emit(agx_client *client, agx_view nsp, agx_view name, agx_view payload, uint64_t now_ms);
/* All items of a stream up to this one have been dealt with. */
void agx_client_dealt(agx_client *client, agx_view nsp, uint64_t seq, uint64_t now_ms);
/* So many more of the AGX_CLIENT_EVENTs have been dealt with: the server sends only so many ahead. */
void agx_client_taken(agx_client *client, size_t n, uint64_t now_ms);
/* While this is said there is to be a link, without any call too, however often it has failed. */
void agx_client_need_link(agx_client *client, bool needed, uint64_t now_ms);
/* The link is wanted now. */
void agx_client_hurry(agx_client *client, uint64_t now_ms);
/* 1: this one is joined, on a link that is up; -1: the server of this link does not want it; 0: neither. */
int agx_client_is_joined(const agx_client *client, agx_view nsp);
/* The instance that the link is with, until the client's next verb; empty if that is not known. */
agx_view agx_client_linked_instance(const agx_client *client);

typedef enum agx_client_event_kind {
        AGX_CLIENT_OPENED,
        AGX_CLIENT_CLOSED, /* the link went, or the server does not want it */
        AGX_CLIENT_EVENT,  /* .name, .payload */
        AGX_CLIENT_BATCH /* of a stream: .payload is {items: [...], ...}, of which the first .skip are known already */
} agx_client_event_kind;

typedef struct agx_client_event {
        agx_list link;
        agx_client_event_kind kind;
        agx_view nsp, name, payload;
        size_t skip;
        uint64_t last; /* the number of the last item */
        uint64_t lost; /* items that were dropped before them */
} agx_client_event;

/* The next one, or NULL; it is the shell's to free. Take them all after each verb. */
agx_client_event *agx_client_next_event(agx_client *client);
void agx_client_event_free(agx_client_event *event);

/* ---- wishes ---- */

typedef enum agx_client_wish_kind {
        AGX_CLIENT_WISH_NONE,
        AGX_CLIENT_WISH_OPEN,
        AGX_CLIENT_WISH_WRITE,
        AGX_CLIENT_WISH_CLOSE
} agx_client_wish_kind;

typedef struct agx_client_wish {
        agx_client_wish_kind kind;
        agx_client_conn *conn;
} agx_client_wish;

agx_client_wish agx_client_next_wish(agx_client *client);
/* When agx_client_tick() is to be called, in ms; UINT64_MAX: no need. It may be early, never late. */
uint64_t agx_client_timer(const agx_client *client);

/* ---- what happened ---- */

/* The connection stands; `nonce` is random. */
void agx_client_opened(agx_client *client, agx_client_conn *conn, const uint8_t nonce[AGX_CLIENT_NONCE_BYTES],
                       uint64_t now_ms);
/* It could not be opened; a CLOSE wish follows. */
void agx_client_open_failed(agx_client *client, agx_client_conn *conn, const char *why, uint64_t now_ms);
/* Bytes came. Room for them: agx_client_conn_place(), or memory of the shell's own. */
void agx_client_input(agx_client *client, agx_client_conn *conn, agx_view bytes, uint64_t now_ms);
/* The connection ended, orderly (`why` NULL) or not; a CLOSE wish follows. */
void agx_client_ended(agx_client *client, agx_client_conn *conn, const char *why, uint64_t now_ms);
void agx_client_tick(agx_client *client, uint64_t now_ms);
/* Ends all calls as UNREACHABLE with this text and closes all connections. The session may be used again afterwards. */
void agx_client_shutdown(agx_client *client, const char *why, uint64_t now_ms);

/* ---- connections, as the shell sees them ---- */

/* What is to be written: up to two segments, valid until the next verb; gives how many. */
size_t agx_client_conn_pending(const agx_client_conn *conn, agx_view segments[2]);
void agx_client_conn_sent(agx_client_conn *conn, size_t n);
/* A place for the next bytes of a large body, or 0 bytes: read into memory of your own. */
agx_view agx_client_conn_place(agx_client_conn *conn);
void agx_client_conn_set_user(agx_client_conn *conn, void *user);
void *agx_client_conn_user(const agx_client_conn *conn);
/* Whether a reply is awaited on it: then a shell that was asleep reads before it lets time pass. */
bool agx_client_conn_busy(const agx_client_conn *conn);
/* After the CLOSE wish. */
void agx_client_conn_free(agx_client *client, agx_client_conn *conn);

typedef struct agx_client_counts {
        size_t waiting, pausing, connections, acks; /* calls; calls; ; results to be acknowledged */
        size_t linked, cancels;                     /* calls awaited on the link; cancels not sent yet */
        size_t joined, spaces;                      /* side channels that are joined; all */
        bool absent;                                /* the server offers no link */
        unsigned failures;                          /* to have a connection or a link, in a row */
} agx_client_counts;
agx_client_counts agx_client_count(const agx_client *client);
/* The session's name: 32 hex digits, as long as the client. */
agx_view agx_client_session_name(const agx_client *client);

#endif
