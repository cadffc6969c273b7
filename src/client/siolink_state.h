#ifndef AGX_CLIENT_SIOLINK_STATE_H
#define AGX_CLIENT_SIOLINK_STATE_H
/*
 * What the files of siolink share; nobody else includes it.
 *
 *     siolink.c       lifecycle, lanes, joining, events
 *     siolink_ws.c    the lane that is a WebSocket
 *     siolink_poll.c  the lanes of long-polling
 */
#include "client/httpconn.h"
#include "client/siolink.h"
#include "proto/limits.h"
#include "wire/eio.h"
#include "wire/sio.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

typedef enum link_state { LINK_OPENING, LINK_JOINING, LINK_JOINED } link_state;

/* From the request for it on. */
typedef struct agx_siolink_socket {
        agx_http1 *http;
        agx_ws_opening opening;
        agx_ws *ws;  /* NULL until the 101 */
        bool framed; /* a message of eio's is under way in ws */
        bool given_up;
        unsigned interim, status;
        uint64_t answer_by; /* for a move */
        agx_buf out;
} agx_siolink_socket;

struct agx_siolink {
        link_state state;
        agx_siolink_config config; /* .session is absent: it lies below */
        char session[AGX_MAX_SESSION + 1];
        agx_eio *eio;
        agx_sio *sio;
        bool open[AGX_SIOLINK_LANES]; /* there is a connection */
        agx_siolink_socket socket;
        agx_httpconn polls[AGX_SIOLINK_LANES]; /* of GET and POST */
        agx_view payload;                      /* what was not read yet of a GET's answer */
        bool news;                             /* it brought a message */
        unsigned empty;                        /* answers in a row that brought none, each soon after the one before */
        uint64_t polled_ms;                    /* when the last one came */
        uint64_t poll_ms;                      /* the next GET not before; 0: at once */
        agx_buf posted;                        /* the body of a POST */
        agx_buf text;
        agx_buf message; /* the WebSocket message that is being read */
        uint64_t key[2], drawn;
        int failed; /* what the flush that could not said */
        unsigned status;
        char why[AGX_SIOLINK_WHY_MAX];
};

/* siolink.c */
int agx_siolink_broken(agx_siolink *l, const char *why); /* AGX_SIOLINK_E_BROKEN */
void agx_siolink_draw(agx_siolink *l, uint8_t *to, size_t n);
bool agx_siolink_is_passing(unsigned status); /* whether asking again later may help */
/* A request's line and the fields of all requests. 0, AGX_BUF_E_FULL or -ENOMEM. */
int agx_siolink_put_head(const agx_siolink *l, agx_view method, const char *transport, agx_buf *out);
int agx_siolink_on_eio(agx_siolink *l, const agx_eio_event *eio, agx_siolink_event *event);

/* siolink_ws.c */
int agx_siolink_ws_begin(agx_siolink *l, uint64_t now_ms);
void agx_siolink_ws_end(agx_siolink *l);
/* What came of `*in`, until there is an event. */
int agx_siolink_ws_input(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event);
int agx_siolink_ws_flush(agx_siolink *l);

/* siolink_poll.c */
int agx_siolink_poll_begin(agx_siolink *l, agx_siolink_lane lane);
void agx_siolink_poll_end(agx_siolink *l, agx_siolink_lane lane);
int agx_siolink_get_input(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event);
int agx_siolink_post_input(agx_siolink *l, agx_view *in);
int agx_siolink_poll_flush(agx_siolink *l);

#endif
