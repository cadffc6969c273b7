/*
 * Four brains of the wire in a row: HTTP until the 101, then WebSocket, Engine.IO and Socket.IO, each fed with what the
 * one before gives. A message of the peer is moved into memory of ours before it is read, so that the value in it, which
 * may be large, can go to the caller without another copy.
 *
 * Masks, the request's key and the seed of a table are drawn from one secret by a keyed hash of a counter.
 */
#include "client/siolink.h"
#include "base/err.h"
#include "base/map.h"
#include "proto/limits.h"
#include "wire/eio.h"
#include "wire/sio.h"
#include "wire/ws.h"
#include "wire/ws_handshake.h"

#include <stdio.h>
#include <stdlib.h>

enum { OUT_LOW = 64 * 1024, FRAME_OUT = 256 * 1024, TEXT_MAX = 256, DEPTH_MAX = 16, ATTACHMENTS = 4 };

typedef enum link_state { LINK_ASKED, LINK_OPENING, LINK_JOINING, LINK_JOINED } link_state;

struct agx_siolink {
        link_state state;
        agx_http1 *http;
        agx_ws_opening opening;
        agx_ws *ws;
        agx_eio *eio;
        agx_sio *sio;
        bool framed; /* a message of eio's is under way in ws */
        unsigned interim, status;
        agx_buf out;
        agx_buf text;
        agx_buf message; /* the peer's, that is being read */
        char session[AGX_MAX_SESSION + 1];
        uint64_t key[2], drawn;
        char why[AGX_SIOLINK_WHY_MAX];
};

static const agx_view rpc = {"/rpc", 4};

static int broken(agx_siolink *l, const char *why)
{
        snprintf(l->why, sizeof(l->why), "%s", why);
        return AGX_SIOLINK_E_BROKEN;
}

/* ---- randomness ---- */

static void draw(agx_siolink *l, uint8_t *to, size_t n)
{
        for (size_t done = 0; done < n;) {
                uint64_t drawn = agx_siphash(l->key, agx_view_of(&l->drawn, sizeof(l->drawn)));
                size_t part = n - done < sizeof(drawn) ? n - done : sizeof(drawn);

                memcpy(to + done, &drawn, part);
                ++l->drawn;
                done += part;
        }
}

/* ---- lifecycle ---- */

static int make(agx_siolink *l)
{
        static const agx_http1_bounds http = {.head_max = AGX_HTTP_HEAD_MAX,
                                              .headers_max = AGX_HTTP_HEADERS_MAX,
                                              .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                              .trailer_max = AGX_HTTP_TRAILER_MAX,
                                              .body_max = AGX_MAX_MESSAGE};
        static const agx_sio_bounds sio = {.packet_max = AGX_MAX_MESSAGE,
                                           .attachments_max = ATTACHMENTS,
                                           .namespace_max = TEXT_MAX,
                                           .event_max = TEXT_MAX,
                                           .depth_max = DEPTH_MAX,
                                           .namespaces_max = 1,
                                           .acks_max = 1};
        uint8_t seed[16];
        int r;

        draw(l, seed, sizeof(seed));
        r = agx_http1_new(&l->http, AGX_HTTP1_CLIENT, &http);
        return r ? r : agx_sio_new(&l->sio, AGX_SIO_CLIENT, &sio, seed);
}

static int put_request(agx_siolink *l, agx_view head)
{
        uint8_t nonce[AGX_WS_NONCE_BYTES];
        int r;

        draw(l, nonce, sizeof(nonce));
        l->opening = agx_ws_opening_on(nonce);
        r = agx_buf_append_view(&l->out, head);
        if (!r)
                r = agx_ws_put_request_fields(&l->out, &l->opening, NULL, 0);
        if (!r)
                r = agx_http1_put_end(&l->out);
        return r > 0 ? -EINVAL : r;
}

int agx_siolink_new(agx_siolink **linkp, agx_view head, agx_view session, const uint8_t seed[AGX_SIOLINK_SEED_BYTES])
{
        _cleanup_(agx_siolink_freep) agx_siolink *l = NULL;
        int r;

        if (session.n > AGX_MAX_SESSION)
                return agx_trace(-EINVAL);
        l = calloc(1, sizeof(*l));
        if (!l)
                return agx_trace(-ENOMEM);
        l->out.max = AGX_CLIENT_OUT_MAX;
        l->text.max = TEXT_MAX;
        l->message.max = AGX_MAX_MESSAGE;
        if (session.n)
                memcpy(l->session, session.p, session.n);
        memcpy(l->key, seed, sizeof(l->key));
        r = make(l);
        if (!r)
                r = put_request(l, head);
        if (r)
                return r;
        *linkp = l;
        l = NULL;
        return 0;
}

void agx_siolink_free(agx_siolink *l)
{
        if (l->http)
                agx_http1_free(l->http);
        if (l->ws)
                agx_ws_free(l->ws); /* it may hold what eio shows to it */
        if (l->eio)
                agx_eio_free(l->eio);
        if (l->sio)
                agx_sio_free(l->sio);
        if (l->out.data)
                explicit_bzero(l->out.data, l->out.cap);
        agx_buf_deinit(&l->out);
        agx_buf_deinit(&l->text);
        agx_buf_deinit(&l->message);
        explicit_bzero(l->key, sizeof(l->key));
        free(l);
}

/* ---- the answer to the request ---- */

static bool is_passing(unsigned status)
{
        switch (status) {
        case 408:
        case 425:
        case 429:
        case 500:
        case 502:
        case 503:
        case 504:
                return true;
        default:
                return false;
        }
}

static int refused(agx_siolink *l, unsigned status)
{
        snprintf(l->why, sizeof(l->why), "the server answered %u (%s) to the request for a WebSocket", status,
                 agx_http1_phrase(status));
        if (status == 401 || status == 403)
                return AGX_SIOLINK_E_DENIED;
        return is_passing(status) ? AGX_SIOLINK_E_BROKEN : AGX_SIOLINK_E_ABSENT;
}

static int switched(agx_siolink *l, uint64_t now_ms)
{
        static const agx_ws_bounds ws = {.message_max = AGX_MAX_MESSAGE,
                                         .fragments_max = AGX_CLIENT_LINK_FRAGMENTS,
                                         .frame_out = FRAME_OUT};
        static const agx_eio_bounds eio = {.message_max = AGX_MAX_MESSAGE,
                                           .queue_max = AGX_CLIENT_LINK_BYTES,
                                           .queue_packets = AGX_CLIENT_LINK_PACKETS,
                                           .payload_packets = 16,
                                           .interval_ms = AGX_CLIENT_HEARTBEAT_MAX_MS,
                                           .timeout_ms = AGX_CLIENT_HEARTBEAT_MAX_MS,
                                           .upgrade_ms = AGX_CLIENT_OPEN_MS};
        int r;

        r = agx_ws_new(&l->ws, AGX_WS_CLIENT, &ws);
        if (!r)
                r = agx_eio_new(&l->eio, AGX_EIO_CLIENT, &eio, AGX_VIEW_NULL, AGX_EIO_WEBSOCKET, now_ms);
        if (!r && agx_eio_ws_opened(l->eio, now_ms))
                return broken(l, "no Engine.IO over a WebSocket");
        l->state = LINK_OPENING;
        return r;
}

static int on_head(agx_siolink *l, const agx_http1_head *head)
{
        const char *reason;
        agx_view protocol;

        l->status = head->status;
        if (head->status == 101)
                return agx_ws_check_reply(head, &l->opening, NULL, 0, &protocol, &reason) ? broken(l, reason) : 0;
        if (head->status >= 200)
                return refused(l, head->status);
        return ++l->interim > AGX_CLIENT_INTERIM_MAX ? broken(l, "too many informational replies") : 0;
}

static int read_answer(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        agx_http1_event http;
        int r;

        (void)event;
        r = agx_http1_next(l->http, in, &http);
        if (r)
                return r < 0 ? r : broken(l, agx_http1_reason(l->http));
        if (http.kind == AGX_HTTP1_HEAD)
                return on_head(l, http.head);
        return http.kind == AGX_HTTP1_END && l->status == 101 ? switched(l, now_ms) : 0;
}

/* ---- joining ---- */

static int queue(agx_siolink *l, agx_view head, agx_view tail, bool binary, void *user)
{
        agx_eio_message messages[2] = {{.head = agx_buf_view(&l->text)},
                                       {.binary = true, .head = head, .body = tail, .user = user}};
        int r = agx_eio_send(l->eio, messages, binary ? 2 : 1);

        agx_buf_clear(&l->text);
        switch (r) {
        case AGX_EIO_E_FULL:
                return AGX_SIOLINK_E_FULL;
        case AGX_EIO_E_TOO_LARGE:
                return AGX_SIOLINK_E_TOO_LARGE;
        case AGX_EIO_E_CLOSED:
        case AGX_EIO_E_BAD:
                return broken(l, agx_eio_reason(l->eio));
        default:
                return r;
        }
}

static int ask_to_join(agx_siolink *l)
{
        char auth[AGX_MAX_SESSION + 32];
        int n = snprintf(auth, sizeof(auth), "{\"session\":\"%s\"}", l->session);
        int r = agx_sio_connect(l->sio, rpc, agx_view_of(auth, (size_t)n), &l->text);

        l->state = LINK_JOINING;
        if (r > 0)
                return broken(l, "no /rpc");
        return r ? r : queue(l, AGX_VIEW_NULL, AGX_VIEW_NULL, false, NULL);
}

/* A text as a stranger gives it: like those of /health. */
static bool is_plain(const agx_json_token *t)
{
        if (t->kind != AGX_JSON_STRING || t->escaped || !t->v.n || t->v.n > AGX_CLIENT_HEALTH_TEXT)
                return false;
        for (size_t i = 0; i < t->v.n; ++i)
                if (t->v.p[i] < ' ' || t->v.p[i] > '~')
                        return false;
        return true;
}

/* Finds {"instance": ...}; false if it is there and is not a plain text, or twice. */
static bool read_instance(agx_view json, agx_view *instance)
{
        agx_json_reader r = agx_json_reader_on(json.p ? json : AGX_VIEW("{}"), DEPTH_MAX);
        agx_json_token t = agx_json_next(&r);

        *instance = AGX_VIEW_NULL;
        if (t.kind != AGX_JSON_OBJECT)
                return false;
        for (t = agx_json_next(&r); t.kind == AGX_JSON_KEY; t = agx_json_next(&r)) {
                if (!agx_json_is(&t, AGX_VIEW("instance"))) {
                        if (!agx_json_skip(&r).p)
                                return false;
                        continue;
                }
                t = agx_json_next(&r);
                if (instance->p || !is_plain(&t))
                        return false;
                *instance = t.v;
        }
        return t.kind == AGX_JSON_OBJECT_END;
}

static int on_joined(agx_siolink *l, agx_view json, agx_siolink_event *event)
{
        if (l->state != LINK_JOINING)
                return broken(l, "a second answer to a join");
        if (!read_instance(json, &event->instance))
                return broken(l, "a malformed answer to a join");
        l->state = LINK_JOINED;
        event->kind = AGX_SIOLINK_JOINED;
        return 0;
}

/* ---- events ---- */

static int on_event(agx_siolink *l, const agx_sio_packet *packet, agx_siolink_event *event)
{
        agx_rpc_kind kind = agx_rpc_kind_of(packet->name);
        agx_sio_args args = agx_sio_args_on(packet);
        const char *why = NULL;
        agx_sio_arg arg;

        if (kind < AGX_RPC_RESULT)
                return 0;
        if (!agx_sio_args_next(&args, &arg) || !arg.binary)
                return broken(l, "an outcome without bytes");
        if (packet->n_attachments != 1) /* only the last one lies in memory that can be taken */
                return broken(l, "an outcome with more than one argument of bytes");
        if (!agx_rpc_event_get(kind, arg.v, &event->rpc, &why))
                return broken(l, "a malformed outcome");
        event->kind = AGX_SIOLINK_GOT;
        return 0;
}

static int on_message(agx_siolink *l, bool binary, agx_view data, agx_siolink_event *event)
{
        agx_sio_event sio;
        int r = agx_sio_read(l->sio, binary, data, &sio);

        if (r)
                return r < 0 ? r : broken(l, agx_sio_reason(l->sio));
        switch (sio.kind) {
        case AGX_SIO_CONNECTED:
                return on_joined(l, sio.packet.data, event);
        case AGX_SIO_REFUSED:
                broken(l, "the server has no /rpc for us");
                return AGX_SIOLINK_E_ABSENT;
        case AGX_SIO_LEFT:
                return broken(l, "the server closed /rpc");
        case AGX_SIO_GOT:
                return on_event(l, &sio.packet, event);
        default:
                return 0;
        }
}

static int on_eio(agx_siolink *l, const agx_eio_event *eio, agx_siolink_event *event)
{
        switch (eio->kind) {
        case AGX_EIO_OPENED:
                return ask_to_join(l);
        case AGX_EIO_GOT:
                return on_message(l, eio->binary, eio->data, event);
        case AGX_EIO_CLOSED:
                return broken(l, agx_eio_reason(l->eio));
        default:
                return 0;
        }
}

static int on_ws_message(agx_siolink *l, agx_ws_event *ws, uint64_t now_ms, agx_siolink_event *event)
{
        agx_eio_event eio;
        int r;

        agx_buf_clear(&l->message);
        r = agx_ws_take(l->ws, ws, &l->message);
        if (r)
                return r;
        r = agx_eio_ws_read(l->eio, ws->kind == AGX_WS_BINARY, ws->data, now_ms, &eio);
        if (r)
                return r < 0 ? r : broken(l, agx_eio_reason(l->eio));
        return on_eio(l, &eio, event);
}

static int read_ws(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        agx_ws_event ws;
        int r = agx_ws_next(l->ws, in, &ws);

        if (r)
                return r < 0 ? r : broken(l, agx_ws_error_text(r));
        switch (ws.kind) {
        case AGX_WS_TEXT:
        case AGX_WS_BINARY:
                return on_ws_message(l, &ws, now_ms, event);
        case AGX_WS_CLOSE:
                return broken(l, "the server closed the WebSocket");
        default:
                return 0;
        }
}

/* A ping or a packet of the protocol's own gives no event: there may be more behind it. */
int agx_siolink_input(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        int r = 0;

        *event = (agx_siolink_event){.kind = AGX_SIOLINK_MORE};
        while (in->n && !r && event->kind == AGX_SIOLINK_MORE)
                r = l->state == LINK_ASKED ? read_answer(l, in, now_ms, event) : read_ws(l, in, now_ms, event);
        return r;
}

void agx_siolink_take(agx_siolink *l, agx_buf *message)
{
        agx_buf_deinit(message);
        *message = l->message;
        agx_buf_init(&l->message, AGX_MAX_MESSAGE);
}

/* ---- sending ---- */

int agx_siolink_send(agx_siolink *l, agx_rpc_kind kind, agx_view head, agx_view tail, void *user)
{
        static const agx_sio_arg bytes = {.binary = true};
        int r;

        if (l->state != LINK_JOINED)
                return AGX_SIOLINK_E_FULL;
        r = agx_sio_emit(l->sio, rpc, agx_rpc_kind_text(kind), &bytes, 1, NULL, &l->text);
        if (r)
                return r < 0 ? r : broken(l, "an event that cannot be sent");
        return queue(l, head, tail, true, user);
}

void *agx_siolink_next_done(agx_siolink *l)
{
        return l->eio ? agx_eio_next_done(l->eio) : NULL;
}

static void next_message(agx_siolink *l)
{
        agx_eio_frame frame;

        if (l->framed && !agx_ws_sending(l->ws)) {
                agx_eio_ws_sent(l->eio);
                l->framed = false;
        }
        if (!l->framed && agx_eio_ws_next(l->eio, &frame))
                l->framed = agx_ws_send(l->ws, !frame.binary, frame.head, frame.body) == 0;
}

int agx_siolink_flush(agx_siolink *l)
{
        uint8_t mask[4];
        int r = 0;

        if (l->state == LINK_ASKED)
                return 0;
        next_message(l);
        while (!r && l->out.len < OUT_LOW && agx_ws_pending(l->ws)) {
                draw(l, mask, sizeof(mask));
                r = agx_ws_pull(l->ws, mask, &l->out);
                next_message(l);
        }
        return r < 0 ? r : 0;
}

agx_view agx_siolink_pending(const agx_siolink *l)
{
        return agx_buf_view(&l->out);
}

void agx_siolink_sent(agx_siolink *l, size_t n)
{
        if (l->state == LINK_ASKED && n && l->out.data) /* it may hold the token */
                explicit_bzero(l->out.data + l->out.head, n);
        agx_buf_consume(&l->out, n);
}

/* ---- time, state ---- */

uint64_t agx_siolink_timer(const agx_siolink *l)
{
        return l->eio ? agx_eio_timer(l->eio) : UINT64_MAX;
}

int agx_siolink_tick(agx_siolink *l, uint64_t now_ms)
{
        agx_eio_event eio;

        if (!l->eio)
                return 0;
        agx_eio_tick(l->eio, now_ms, &eio);
        return eio.kind == AGX_EIO_CLOSED ? broken(l, agx_eio_reason(l->eio)) : 0;
}

bool agx_siolink_joined(const agx_siolink *l)
{
        return l->state == LINK_JOINED;
}

const char *agx_siolink_why(const agx_siolink *l)
{
        return l->why;
}

unsigned agx_siolink_status(const agx_siolink *l)
{
        return l->status;
}
