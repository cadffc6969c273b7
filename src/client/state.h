#ifndef AGX_CLIENT_STATE_H
#define AGX_CLIENT_STATE_H
/*
 * Inside the client room only: what a session is made of, and the verbs its files have for each other.
 *
 *     session.c  lifecycle, what the shell sees, time
 *     calls.c    the table of calls: queues, endings, pauses
 *     pool.c     connections: opening, proving, idle, growing, closing
 *     request.c  what is posted      reply.c  what came back
 *     road.c     the link: when there is one      road_say.c  what is said on it      road_hear.c  what is heard
 *     fast.c     the fast wire: one connection for many calls, where the server offers it
 *     landing.c  large bytes of a reply that came by it, in memory of the shell's
 *     flow.c     the items of calls that are streams
 *     side.c     side channels on it
 *
 * A call that is not taken by the shell is in one place: `resend` or `queue` (WAITING for a POST), `link_resend` or
 * `link_queue` (WAITING for the link), `paused`, `refused`, its connection (SENT), `unasked` or `asked` (LINKED), `done`.
 * A connection is in one list: to_open, opening, idle, busy, draining, lanes_open, carriers, spares or closing.
 *
 * A stream of the fast wire is a connection, too, as far as its call is concerned: one that is carried by another, costs
 * nothing to open and is never seen by the shell.
 */
#include "base/list.h"
#include "base/map.h"
#include "client/landing.h"
#include "client/session.h"
#include "client/siolink.h"
#include "proto/fast.h"
#include "proto/limits.h"
#include "wire/ws_handshake.h"

enum { AGX_CLIENT_ID_MAX = 2 * AGX_CLIENT_SESSION_BYTES + 1 + 20 };

typedef enum call_kind { CALL_RUN, CALL_HEALTH, CALL_CONNECT } call_kind;
typedef enum call_state {
        CALL_WAITING,
        CALL_PAUSED,
        CALL_REFUSED, /* the server had no room for it */
        CALL_SENT,
        CALL_LINKED,
        CALL_DONE,
        CALL_TAKEN
} call_state;

struct agx_client_call {
        agx_list link;       /* of the place it is in */
        agx_list unanswered; /* sent at least once and not done, in the order of counters; or settled */
        agx_list deadline;
        call_kind kind;
        call_state state;
        agx_view callable;
        agx_view arguments;
        agx_view before, after; /* what goes with them: parts of one run of bytes, of which the ends are small */
        agx_buf whole;          /* that run, where it had to be put together */
        agx_view context;
        void *user;
        uint64_t counter;      /* of its id; 0: never sent */
        uint32_t generation;   /* of the instance it was sent to; 0: none */
        bool accepted;         /* that instance has answered 202: it needs no arguments again */
        bool by_link;          /* WAITING: it waits for the link */
        bool sending;          /* LINKED: the link borrows its arguments, it is not sent whole */
        unsigned refused;      /* the status by which its POST was refused */
        uint32_t told;         /* SENT: the link on which its end would be told, or 0 */
        unsigned losses;       /* connections lost under it */
        bool in_doubt;         /* what was once sent of it nobody has answered: it may come yet, whatever is said now */
        bool trying;           /* it was REFUSED and is on its way again */
        unsigned tries;        /* how often it was */
        unsigned polls;        /* 202s in a row */
        unsigned reasks;       /* never_seen answers */
        uint32_t reasked_on;   /* the link that gave the last of them */
        unsigned reasks_there; /* and how many it gave */
        uint64_t allowed_ms;   /* UINT64_MAX: no deadline */
        uint64_t deadline_ms;  /* once the clock runs */
        uint64_t pause_ms;     /* PAUSED: until then */
        agx_client_conn *conn; /* SENT */
        agx_buf body;
        agx_landing land; /* what is not in it */
        agx_client_result result;
        /* a stream */
        uint64_t window;    /* credit offered; 0: it takes no items */
        agx_list items;     /* come, not taken by the shell */
        agx_list news;      /* in `streaming`: some are */
        agx_list crediting; /* in `credits`: some credit is to be said */
        uint64_t seen;      /* the number of the next item that is new */
        uint64_t consumed;  /* items, ever */
        uint64_t credited;  /* of these the server knows, as far as is known on this link */
        size_t uncredited;  /* bytes consumed since credit was said last */
        uint32_t synced;    /* the link on which `credited` holds */
};

typedef enum conn_state {
        CONN_TO_OPEN, /* the wish has not been taken */
        CONN_OPENING, /* the shell is at it */
        CONN_PROVING, /* /health has been asked */
        CONN_IDLE,
        CONN_BUSY,
        CONN_DRAINING, /* the call was abandoned, the reply is still to come */
        CONN_ASKING,   /* for the fast wire */
        CONN_CARRIER,  /* of the fast wire */
        CONN_SPARE,    /* a stream without a call */
        CONN_LANE,     /* a lane of the link, from its first request on */
        CONN_CLOSING   /* a CLOSE wish; then only agx_client_conn_free() */
} conn_state;

struct agx_client_conn {
        agx_list link;
        agx_list write; /* a WRITE wish */
        conn_state state;
        agx_httpconn http;
        uint8_t nonce[AGX_CLIENT_NONCE_BYTES];
        uint32_t generation;
        uint64_t since_ms; /* in this state */
        agx_client_call *call;
        agx_buf acks;     /* what its request acknowledges, as counters */
        uint64_t drained; /* DRAINING: counter to acknowledge */
        bool cancelled;   /* DRAINING: and to cancel, if it runs */
        bool is_lane;     /* made to be one of the link's */
        unsigned lane;
        agx_siolink *sio;          /* LANE: the link, borrowed */
        bool to_carry;             /* made to be the carrier */
        agx_fast *fast;            /* CARRIER */
        struct agx_client *client; /* CARRIER: whose */
        size_t n_carried;          /* CARRIER: streams that wait for a reply */
        bool heard;                /* CARRIER: a reply has come on it */
        agx_ws_opening opening;    /* ASKING */
        agx_client_conn *carrier;  /* of a stream */
        uint32_t stream;           /* its number; 0: none yet */
        agx_view after;            /* likewise, behind http.tail */
        agx_landing land;          /* what of its reply is not in http.body */
        agx_fast_value value;      /* its request */
        void *user;
};

struct agx_client {
        /* what it was told */
        agx_client_config config;            /* scalars only; the texts are in the buffers */
        agx_buf call_head;                   /* a POST up to its length, for a server with a second road */
        agx_buf long_head;                   /* and for one without */
        uint64_t call_wait_ms, long_wait_ms; /* what these ask the server to wait */
        agx_buf fast_head;                   /* a GET that asks for the fast wire, up to what makes it one */
        agx_buf link_path;                   /* of Socket.IO */
        agx_buf link_fields;                 /* of every request for it */
        agx_buf health_head;                 /* a GET up to its challenge */
        agx_buf token;
        char name[2 * AGX_CLIENT_SESSION_BYTES + 1];
        uint64_t random;
        uint64_t secret[2], drawn;
        /* the server */
        char instance[AGX_CLIENT_HEALTH_TEXT + 1];
        uint32_t generation;  /* of that instance; 0: none known */
        uint32_t generations; /* instances that were heard of, ever */
        struct {
                uint64_t name; /* hashed */
                uint32_t generation;
        } instances[AGX_CLIENT_INSTANCES];
        uint64_t learned_ms; /* which instance it is */
        bool connected;      /* there has been a connection */
        /* calls */
        agx_list resend, queue, paused, unanswered, settled, deadlines, done;
        size_t n_waiting, n_paused;
        agx_list refused;                             /* for want of room, by counter */
        size_t n_refused;                             /* of them */
        size_t n_trying;                              /* of those that are on their way again */
        size_t try_max;                               /* how many may be */
        uint64_t try_ms;                              /* not before */
        uint64_t try_pause;                           /* the last one's length */
        size_t n_numbered;                            /* unanswered and settled */
        agx_client_call *numbered[AGX_LEDGER_WINDOW]; /* by counter: no two unanswered ones share a slot */
        uint64_t counter;
        uint64_t acks[AGX_CLIENT_ACKS_KEPT]; /* a ring */
        size_t ack_first, n_acks;
        agx_buf scratch;
        /* connections */
        agx_list to_open, opening, idle, busy, draining, lanes_open, carriers, spares, closing, writes;
        size_t n_conns, n_opening, n_idle, n_draining;
        unsigned failures;  /* to open one, in a row */
        uint64_t reopen_ms; /* not before */
        uint64_t grow_ms;   /* beyond AGX_CLIENT_IDLE_MAX, not before */
        size_t finished;    /* calls since it last grew so */
        /* the fast wire */
        agx_client_conn *carrier; /* from the wish for it to its end, or NULL */
        bool fast_absent;         /* this instance offers none, or something between does not let it pass */
        unsigned fast_failures;   /* connections of it lost in a row before a reply came */
        uint32_t fast_stream;     /* the newest one's number */
        agx_list spare_calls;     /* freed ones, whose memory the next ones take */
        size_t n_spare_calls;
        size_t n_carriers, n_streams, n_spares;
        agx_client_conn *fast_streams[AGX_FAST_STREAMS_MAX]; /* by number, modulo */
        /* streams */
        agx_list streaming, credits;
        size_t item_bytes; /* come, not taken */
        size_t gathered;   /* bytes of replies that are not whole, or more */
        /* the second road */
        agx_list link_resend, link_queue, unasked, asked;
        size_t n_linked;
        agx_siolink *link;                         /* from the wish for it to its end, or NULL */
        agx_client_conn *lanes[AGX_SIOLINK_LANES]; /* its connections */
        uint32_t link_generation; /* of the instance it is with; 0: none of its connections stands yet */
        uint64_t link_since_ms;   /* its first connection stands, or it is joined */
        uint32_t link_serial;     /* of the newest link that was joined */
        bool link_polling;        /* it begins by long-polling */
        bool link_absent;         /* this instance offers none */
        unsigned link_failures;   /* in a row */
        uint64_t link_reopen_ms;  /* not before */
        bool link_resting;        /* it is not opened for cancels alone */
        agx_buf cancels;          /* of agx_client_cancel: to be said */
        agx_buf unconfirmed;      /* likewise: said, and nothing was heard of their calls since */
        agx_buf said;             /* counters: the last ones that were acknowledged on this link */
        bool acks_due;            /* some are of results that came over the link */
        /* side channels */
        agx_list spaces, events;
        size_t n_spaces, n_plugins, n_joined;
        uint32_t side_generation; /* the instance whose streams are being read */
        uint64_t side_ms;         /* when they want the link; UINT64_MAX: not before there has been a connection */
        size_t side_taken;        /* events dealt with that the server has not been told of */
        bool side_tired;          /* not any more, until there is a call again */
        bool side_needed;         /* but as long as this is said */
};

/* calls.c */
int agx_calls_new(agx_client *c, call_kind kind, bool by_link, void *user, agx_client_call **call);
void agx_calls_queue(agx_client *c, agx_client_call *call);
void agx_calls_pause(agx_client *c, agx_client_call *call, uint64_t until_ms);
void agx_calls_unlink(agx_client *c, agx_client_call *call);
void agx_calls_start_clock(agx_client *c, agx_client_call *call, uint64_t now_ms);
void agx_calls_start_clocks(agx_client *c, uint64_t now_ms); /* of all that wait: there is a connection now */
void agx_calls_number(agx_client *c, agx_client_call *call);
void agx_calls_unnumber(agx_client *c, agx_client_call *call); /* it could not be sent: the number is free again */
agx_client_call *agx_calls_find(const agx_client *c, uint64_t counter); /* one that is not done, or NULL */
void agx_calls_settle(agx_client *c, agx_client_call *call);            /* the server has said that it has it */
void agx_calls_unsettle(agx_client *c, agx_client_call *call);          /* and that it has not */
void agx_calls_forget(agx_client *c, agx_client_call *call); /* it is answered, or nobody waits: number, deadline */
bool agx_calls_held(const agx_client *c);                    /* whether a new number would run too far ahead */
agx_client_call *agx_calls_ready(const agx_client *c);       /* the next to be sent, or NULL */
void agx_calls_finish(agx_client *c, agx_client_call *call, agx_client_outcome outcome);
void agx_calls_unreachable(agx_client *c, agx_client_call *call, const char *why);
void agx_calls_fault(agx_client *c, agx_client_call *call, agx_fault_type type, const char *message,
                     const char *reason);
void agx_calls_fail_waiting(agx_client *c, const char *why);
void agx_calls_lost(agx_client *c, agx_client_call *call, const char *why, uint64_t now_ms);
void agx_calls_instance_changed(agx_client *c, agx_client_call *call);
void agx_calls_insert(agx_list *list, agx_client_call *call); /* by its counter */
/* The server has no room for it now: it is kept and sent again, under its number. */
void agx_calls_refused(agx_client *c, agx_client_call *call, uint64_t now_ms);
void agx_calls_try(agx_client *c, uint64_t now_ms); /* queues those that may be sent again now */
uint64_t agx_calls_try_timer(const agx_client *c);
void agx_calls_tried(agx_client *c, agx_client_call *call); /* it is not on its way any more */
void agx_calls_ack(agx_client *c, uint64_t counter);
void agx_calls_ack_again(agx_client *c, agx_buf *counters); /* they may not have arrived; empties it */
agx_view agx_calls_id(const agx_client *c, uint64_t counter, char id[AGX_CLIENT_ID_MAX + 1]);
uint64_t agx_calls_backoff(agx_client *c, unsigned nth);

/* road.c */
typedef struct agx_client_cancel {
        uint64_t counter;
        uint32_t generation;
        bool said; /* on a link that was lost: it may have arrived */
} agx_client_cancel;
bool agx_road_is_open(const agx_client *c); /* whether a link may be had */
bool agx_road_is_joined(const agx_client *c);
void agx_road_await(agx_client *c, agx_client_call *call); /* the server may have it: its end is awaited on the link */
void agx_road_begin(agx_client *c, agx_client_conn *conn, uint64_t now_ms); /* a lane's connection is proved */
/* The instance may have become known to be another one. */
void agx_road_learned(agx_client *c, uint64_t now_ms);
/* A lane's connection is gone, or never came. */
void agx_road_lane_lost(agx_client *c, agx_siolink_lane lane, const char *why, uint64_t now_ms);
void agx_road_end(agx_client *c,
                  uint64_t now_ms); /* no link any more; what was awaited on it is to be asked for again */
void agx_road_input(agx_client *c, agx_client_conn *conn, agx_view in, uint64_t now_ms);
void agx_road_fail(agx_client *c, const char *why); /* ends all calls that wait for it or on it */
size_t agx_road_lanes(const agx_client *c);         /* connections of the link */
void agx_road_flush(agx_client_conn *conn);
void agx_road_pump(agx_client *c, uint64_t now_ms);
uint64_t agx_road_timer(const agx_client *c);
void agx_road_tick(agx_client *c, uint64_t now_ms);
void agx_road_cancel(agx_client *c, uint64_t counter, uint32_t generation);
/* side.c */
bool agx_side_wanted(const agx_client *c);          /* whether there is to be a link, from c->side_ms on */
void agx_side_rest(agx_client *c, uint64_t now_ms); /* not any more; if it is needed, not just now */
void agx_side_connected(agx_client *c, uint64_t now_ms);
int agx_side_begin(agx_client *c); /* the link is up: joins; what agx_siolink_join() says */
/* What the link said; 0 or -ENOMEM. */
int agx_side_heard(agx_client *c, const agx_siolink_event *event);
int agx_side_say(agx_client *c); /* what waits; what agx_siolink_emit() says */
void agx_side_lost(agx_client *c);
void agx_side_free(agx_client *c);
/* A call is about to be unlinked before its end: what must be said about it, gives whether the link must go with it. */
bool agx_road_abandon(agx_client *c, agx_client_call *call);
void agx_road_drop(agx_client *c, uint64_t now_ms);

/* flow.c */
void agx_flow_init(agx_client_call *call);
void agx_flow_deinit(agx_client_call *call);
void agx_flow_drop(agx_client *c, agx_client_call *call); /* nobody takes its items any more */
/* An item came on the link. False: it is one that may not come, the call has been ended. */
bool agx_flow_item(agx_client *c, agx_client_call *call, const agx_rpc_event *rpc);
/* How much credit is to be said on this link; 0: none. */
uint64_t agx_flow_credit(const agx_client *c, const agx_client_call *call);
void agx_flow_credited(agx_client_call *call);

/* pool.c */
/* `lane`: of the link, or AGX_SIOLINK_LANES: a connection for POSTs, or AGX_POOL_CARRIER. 0 or -ENOMEM. */
enum { AGX_POOL_CARRIER = AGX_SIOLINK_LANES + 1 };
int agx_pool_open(agx_client *c, unsigned lane, uint64_t now_ms);
void agx_pool_pump(agx_client *c, uint64_t now_ms);
void agx_pool_release(agx_client *c, agx_client_conn *conn, uint64_t now_ms); /* its reply is read */
void agx_pool_abandon(agx_client *c, agx_client_conn *conn, uint64_t now_ms); /* its call is no more */
void agx_pool_close(agx_client *c, agx_client_conn *conn);
void agx_pool_broken(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms);
void agx_pool_no_memory(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
void agx_pool_proved(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
void agx_pool_move(agx_client *c, agx_client_conn *conn, conn_state state, uint64_t now_ms);
uint64_t agx_pool_timer(const agx_client *c);
void agx_pool_tick(agx_client *c, uint64_t now_ms);
/* Whether the whole request has been sent or will be, whatever becomes of its call. */
bool agx_pool_has_sent(const agx_client_conn *conn);

/* fast.c */
bool agx_fastlink_is_open(const agx_client *c); /* whether calls may go by it */
bool agx_fastlink_is_up(const agx_client *c);
/* The carrier has proved itself: asks for the fast wire. */
void agx_fastlink_begin(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
/* Whether the server says, with the health it has just told on this connection, that it speaks it. */
bool agx_fastlink_is_offered(const agx_client_conn *conn);
/* It is not to be had: the connection that was to be the carrier is one for POSTs. */
void agx_fastlink_absent(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
void agx_fastlink_input(agx_client *c, agx_client_conn *conn, agx_view in, uint64_t now_ms);
/* A stream for a call, or NULL: all are taken, or there is no memory for it. */
agx_client_conn *agx_fastlink_stream(agx_client *c, uint64_t now_ms);
/* The request in the stream's `http` goes out. */
void agx_fastlink_send(agx_client *c, agx_client_conn *conn);
/* Nothing of a stream's request is looked at any more. */
void agx_fastlink_withdraw(agx_client *c, agx_client_conn *conn);
/* Its number is free. */
void agx_fastlink_leave(agx_client *c, agx_client_conn *conn);
/* The stream has no call any more, and no reply is to come. */
void agx_fastlink_spare(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
/* The instance may have become known to be another one. */
void agx_fastlink_learned(agx_client *c);
/* A place for the next bytes of a large reply, or for the head of its next frame. */
agx_view agx_fastlink_place(agx_client_conn *conn);
/* The carrier is going: so do its streams. */
void agx_fastlink_lost(agx_client *c, agx_client_conn *conn, const char *why, uint64_t now_ms);

/* request.c */
/* A request line whose path lies below the prefix; all of a GET /health but its challenge and its end; Host, token and
 * further fields. Errors of agx_buf_append. */
int agx_request_put_target(agx_buf *out, agx_view method, agx_view prefix, agx_view path);
int agx_request_put_health(agx_buf *out, const agx_client_config *config);
int agx_request_put_fields(agx_buf *out, const agx_client_config *config);
int agx_request_heads(agx_client *c, const agx_client_config *config);
/* 0, AGX_BUF_E_FULL: too large to be sent, -ENOMEM */
int agx_request_call(agx_client *c, agx_client_conn *conn, agx_client_call *call);
/* Puts arguments that are in parts together, for a road that does not take them so. 0 or -ENOMEM. */
int agx_request_whole(agx_client_call *call);
int agx_request_health(agx_client *c, agx_client_conn *conn);
int agx_request_fast(agx_client *c, agx_client_conn *conn);

/* reply.c */
void agx_reply_read(agx_client *c, agx_client_conn *conn, uint64_t now_ms);
/* `n` more bytes of a call's reply were gathered. False: they are too many, with those of all others that are not whole. */
bool agx_reply_fits(agx_client *c, size_t n);
/* Ends a call whose reply cannot be gathered. */
void agx_reply_drop(agx_client *c, agx_client_conn *conn, uint64_t now_ms);

#endif
