/*
 * Engine.IO and Socket.IO in a row, fed with what the lanes bring, in whatever way it travels. A message of the peer is
 * moved into memory of ours before it is read, so that the value in it, which may be large, can go to the caller without
 * another copy.
 *
 * Masks, the request's key and the seed of a table are drawn from one secret by a keyed hash of a counter.
 */
#include "base/err.h"
#include "base/map.h"
#include "client/siolink_state.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME_MAX_ = AGX_SIO_NAME_MAX, TEXT_MAX = 1024, DEPTH_MAX = 16, ATTACHMENTS = 4, TARGET_MAX = AGX_HTTP_HEAD_MAX };

static const agx_view rpc = {"/rpc", 4};

int agx_siolink_broken(agx_siolink *l, const char *why)
{
        snprintf(l->why, sizeof(l->why), "%s", why);
        return AGX_SIOLINK_E_BROKEN;
}

bool agx_siolink_is_passing(unsigned status)
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

/* ---- randomness ---- */

void agx_siolink_draw(agx_siolink *l, uint8_t *to, size_t n)
{
        agx_siphash_draw(l->key, &l->drawn, to, n);
}

/* ---- lifecycle ---- */

static int make(agx_siolink *l, uint64_t now_ms)
{
        static const agx_eio_bounds eio = {.message_max = AGX_MAX_MESSAGE,
                                           .queue_max = AGX_CLIENT_LINK_BYTES,
                                           .queue_packets = AGX_CLIENT_LINK_PACKETS,
                                           .payload_packets = AGX_SIO_PAYLOAD_PACKETS,
                                           .interval_ms = AGX_CLIENT_HEARTBEAT_MAX_MS,
                                           .timeout_ms = AGX_CLIENT_HEARTBEAT_MAX_MS,
                                           .upgrade_ms = AGX_CLIENT_OPEN_MS,
                                           .upgrade = true};
        static const agx_sio_bounds sio = {.packet_max = AGX_MAX_MESSAGE,
                                           .attachments_max = ATTACHMENTS,
                                           .namespace_max = NAME_MAX_,
                                           .event_max = NAME_MAX_,
                                           .depth_max = DEPTH_MAX,
                                           .namespaces_max = AGX_SIO_NAMESPACES_MAX,
                                           .acks_max = 1};
        uint8_t seed[16];
        int r;

        agx_siolink_draw(l, seed, sizeof(seed));
        r = agx_eio_new(&l->eio, AGX_EIO_CLIENT, &eio, AGX_VIEW_NULL,
                        l->config.polling ? AGX_EIO_POLLING : AGX_EIO_WEBSOCKET, now_ms);
        return r ? r : agx_sio_new(&l->sio, AGX_SIO_CLIENT, &sio, seed);
}

int agx_siolink_new(agx_siolink **linkp, const agx_siolink_config *config, const uint8_t seed[AGX_SIOLINK_SEED_BYTES],
                    uint64_t now_ms)
{
        _cleanup_(agx_siolink_freep) agx_siolink *l = NULL;
        int r;

        if (config->session.n > AGX_MAX_SESSION)
                return agx_trace(-EINVAL);
        l = calloc(1, sizeof(*l));
        if (!l)
                return agx_trace(-ENOMEM);
        l->config = *config;
        l->config.session = AGX_VIEW_NULL;
        l->socket.out.max = AGX_CLIENT_OUT_MAX;
        l->posted.max = AGX_MAX_MESSAGE;
        l->text.max = TEXT_MAX;
        l->message.max = AGX_MAX_MESSAGE;
        if (config->session.n)
                memcpy(l->session, config->session.p, config->session.n);
        memcpy(l->key, seed, sizeof(l->key));
        r = make(l, now_ms);
        if (r)
                return r;
        *linkp = l;
        l = NULL;
        return 0;
}

void agx_siolink_free(agx_siolink *l)
{
        agx_siolink_ws_end(l); /* it may hold what eio shows to it */
        agx_siolink_poll_end(l, AGX_SIOLINK_GET);
        agx_siolink_poll_end(l, AGX_SIOLINK_POST);
        if (l->eio)
                agx_eio_free(l->eio);
        if (l->sio)
                agx_sio_free(l->sio);
        agx_buf_deinit(&l->posted);
        agx_buf_deinit(&l->text);
        agx_buf_deinit(&l->message);
        explicit_bzero(l->key, sizeof(l->key));
        free(l);
}

/* ---- requests ---- */

int agx_siolink_put_head(const agx_siolink *l, agx_view method, const char *transport, agx_buf *out)
{
        _cleanup_(agx_buf_deinitp) agx_buf target = AGX_BUF_NULL(TARGET_MAX);
        agx_view sid = agx_eio_sid(l->eio);
        int r;

        r = agx_buf_append_view(&target, l->config.path);
        if (!r)
                r = agx_buf_printf(&target, "?EIO=4&transport=%s%s%.*s", transport, sid.n ? "&sid=" : "", (int)sid.n,
                                   sid.p);
        if (!r)
                r = agx_http1_put_request(out, method, agx_buf_view(&target));
        return r ? r : agx_buf_append_view(out, l->config.fields);
}

/* ---- lanes ---- */

static bool is_polling(const agx_siolink *l)
{
        return agx_eio_over(l->eio) == AGX_EIO_POLLING;
}

/* The move to a WebSocket begins when all else stands, so that a proxy that cannot do it costs nothing but the try. */
bool agx_siolink_wants(const agx_siolink *l, agx_siolink_lane lane)
{
        if (l->open[lane])
                return false;
        switch (lane) {
        case AGX_SIOLINK_WS:
                return agx_eio_ws_wanted(l->eio) && (!is_polling(l) || l->state == LINK_JOINED);
        case AGX_SIOLINK_GET:
                return is_polling(l) && !l->poll_ms && agx_eio_poll_due(l->eio);
        default:
                return is_polling(l) && agx_eio_payload_due(l->eio);
        }
}

int agx_siolink_begin(agx_siolink *l, agx_siolink_lane lane, uint64_t now_ms)
{
        l->open[lane] = true;
        return lane == AGX_SIOLINK_WS ? agx_siolink_ws_begin(l, now_ms) : agx_siolink_poll_begin(l, lane);
}

static bool is_spent(const agx_httpconn *http)
{
        return http->head && !http->awaiting && !http->reusable;
}

bool agx_siolink_over(const agx_siolink *l, agx_siolink_lane lane)
{
        if (!l->open[lane])
                return false;
        if (lane == AGX_SIOLINK_WS)
                return l->socket.given_up;
        return !is_polling(l) || (is_spent(&l->polls[lane]) && (lane == AGX_SIOLINK_POST || !l->payload.p));
}

int agx_siolink_lost(agx_siolink *l, agx_siolink_lane lane)
{
        bool over = agx_siolink_over(l, lane), was_open = l->open[lane];
        bool idle = lane == AGX_SIOLINK_POST && was_open && !l->polls[lane].awaiting;

        l->open[lane] = false;
        if (lane == AGX_SIOLINK_WS) {
                bool moving = is_polling(l);

                agx_siolink_ws_end(l);
                agx_eio_ws_lost(l->eio);
                return moving ? 0 : AGX_SIOLINK_E_BROKEN;
        }
        agx_siolink_poll_end(l, lane);
        return over || idle || !is_polling(l) ? 0 : AGX_SIOLINK_E_BROKEN;
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
                return agx_siolink_broken(l, agx_eio_reason(l->eio));
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
                return agx_siolink_broken(l, "no /rpc");
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
                return agx_siolink_broken(l, "a second answer to a join");
        if (!read_instance(json, &event->instance))
                return agx_siolink_broken(l, "a malformed answer to a join");
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
                return agx_siolink_broken(l, "an outcome without bytes");
        if (packet->n_attachments != 1) /* only the last one lies in memory that can be taken */
                return agx_siolink_broken(l, "an outcome with more than one argument of bytes");
        if (!agx_rpc_event_get(kind, arg.v, &event->rpc, &why))
                return agx_siolink_broken(l, "a malformed outcome");
        event->kind = AGX_SIOLINK_GOT;
        return 0;
}

/* What is not bytes, and no bytes at all, says nil: nobody of ours speaks so, and a stranger's word is not worth more. */
static int on_side_event(const agx_sio_packet *packet, agx_siolink_event *event)
{
        agx_sio_args args = agx_sio_args_on(packet);
        agx_sio_arg arg;

        event->kind = AGX_SIOLINK_EVENT;
        event->name = packet->name;
        event->payload = agx_sio_args_next(&args, &arg) && arg.binary ? arg.v : AGX_VIEW("\xc0");
        return 0;
}

/* Whatever it is, it concerns that namespace alone. */
static int on_side(const agx_sio_event *sio, agx_siolink_event *event)
{
        event->nsp = sio->packet.nsp;
        switch (sio->kind) {
        case AGX_SIO_CONNECTED:
                event->kind = AGX_SIOLINK_OPENED;
                return 0;
        case AGX_SIO_REFUSED:
        case AGX_SIO_LEFT:
                event->kind = AGX_SIOLINK_CLOSED;
                return 0;
        case AGX_SIO_GOT:
                return on_side_event(&sio->packet, event);
        default:
                return 0;
        }
}

static int on_message(agx_siolink *l, bool binary, agx_view data, agx_siolink_event *event)
{
        agx_sio_event sio;
        int r = agx_sio_read(l->sio, binary, data, &sio);

        if (r)
                return r < 0 ? r : agx_siolink_broken(l, agx_sio_reason(l->sio));
        if (sio.kind != AGX_SIO_NOTHING && !agx_view_eq(sio.packet.nsp, rpc))
                return on_side(&sio, event);
        switch (sio.kind) {
        case AGX_SIO_CONNECTED:
                return on_joined(l, sio.packet.data, event);
        case AGX_SIO_REFUSED:
                agx_siolink_broken(l, "the server has no /rpc for us");
                return AGX_SIOLINK_E_ABSENT;
        case AGX_SIO_LEFT:
                return agx_siolink_broken(l, "the server closed /rpc");
        case AGX_SIO_GOT:
                return on_event(l, &sio.packet, event);
        default:
                return 0;
        }
}

int agx_siolink_on_eio(agx_siolink *l, const agx_eio_event *eio, agx_siolink_event *event)
{
        switch (eio->kind) {
        case AGX_EIO_OPENED:
                return ask_to_join(l);
        case AGX_EIO_GOT:
                return on_message(l, eio->binary, eio->data, event);
        case AGX_EIO_CLOSED:
                return agx_siolink_broken(l, agx_eio_reason(l->eio));
        default:
                return 0;
        }
}

/* A ping or a packet of the protocol's own gives no event: there may be more behind it. */
int agx_siolink_input(agx_siolink *l, agx_siolink_lane lane, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        *event = (agx_siolink_event){.kind = AGX_SIOLINK_MORE};
        switch (lane) {
        case AGX_SIOLINK_WS:
                return agx_siolink_ws_input(l, in, now_ms, event);
        case AGX_SIOLINK_GET:
                return agx_siolink_get_input(l, in, now_ms, event);
        default:
                return agx_siolink_post_input(l, in);
        }
}

/* What came over long-polling was decoded into memory of eio's. */
void agx_siolink_take(agx_siolink *l, agx_buf *message)
{
        if (agx_eio_take(l->eio, message))
                return;
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
                return r < 0 ? r : agx_siolink_broken(l, "an event that cannot be sent");
        return queue(l, head, tail, true, user);
}

int agx_siolink_join(agx_siolink *l, agx_view nsp, agx_view json)
{
        int r;

        if (l->state != LINK_JOINED)
                return AGX_SIOLINK_E_FULL;
        r = agx_sio_connect(l->sio, nsp, json, &l->text);
        if (r)
                return r < 0 && r != -EINVAL ? r : agx_siolink_broken(l, "a namespace that cannot be joined");
        r = queue(l, AGX_VIEW_NULL, AGX_VIEW_NULL, false, NULL);
        return r == AGX_SIOLINK_E_FULL ? agx_siolink_broken(l, "no room for a join") : r;
}

int agx_siolink_emit(agx_siolink *l, agx_view nsp, agx_view name, agx_view payload)
{
        static const agx_sio_arg bytes = {.binary = true};
        int r;

        if (l->state != LINK_JOINED)
                return AGX_SIOLINK_E_FULL;
        r = agx_sio_emit(l->sio, nsp, name, &bytes, 1, NULL, &l->text);
        if (r)
                return r < 0 && r != -EINVAL ? r : AGX_SIOLINK_E_TOO_LARGE;
        return queue(l, payload, AGX_VIEW_NULL, true, NULL);
}

size_t agx_siolink_queued(const agx_siolink *l)
{
        return agx_eio_queued(l->eio);
}

void *agx_siolink_next_done(agx_siolink *l)
{
        return agx_eio_next_done(l->eio);
}

int agx_siolink_flush(agx_siolink *l)
{
        if (!l->failed && l->open[AGX_SIOLINK_WS])
                l->failed = agx_siolink_ws_flush(l);
        if (!l->failed)
                l->failed = agx_siolink_poll_flush(l);
        return l->failed;
}

size_t agx_siolink_pending(const agx_siolink *l, agx_siolink_lane lane, agx_view segments[2])
{
        if (lane != AGX_SIOLINK_WS)
                return agx_httpconn_pending(&l->polls[lane], segments);
        segments[0] = agx_buf_view(&l->socket.out);
        return segments[0].n > 0;
}

void agx_siolink_sent(agx_siolink *l, agx_siolink_lane lane, size_t n)
{
        agx_buf *out = &l->socket.out;

        if (lane != AGX_SIOLINK_WS) {
                agx_httpconn_sent(&l->polls[lane], n);
                return;
        }
        if (!l->socket.ws && n && out->data) /* it may hold the token */
                explicit_bzero(out->data + out->head, n);
        agx_buf_consume(out, n);
}

/* ---- time, state ---- */

/* Whether a WebSocket to move to was asked for and no answer has come. */
static bool awaits_move(const agx_siolink *l)
{
        return l->open[AGX_SIOLINK_WS] && !l->socket.ws && !l->socket.given_up && is_polling(l);
}

uint64_t agx_siolink_timer(const agx_siolink *l)
{
        uint64_t when = l->failed ? 0 : agx_eio_timer(l->eio);

        if (l->poll_ms && l->poll_ms < when)
                when = l->poll_ms;
        return awaits_move(l) && l->socket.answer_by < when ? l->socket.answer_by : when;
}

int agx_siolink_tick(agx_siolink *l, uint64_t now_ms)
{
        agx_eio_event eio;

        if (l->failed)
                return l->failed;
        if (now_ms >= l->poll_ms)
                l->poll_ms = 0;
        agx_eio_tick(l->eio, now_ms, &eio);
        if (eio.kind == AGX_EIO_PROBE_ENDED || (awaits_move(l) && now_ms >= l->socket.answer_by))
                l->socket.given_up = true;
        return eio.kind == AGX_EIO_CLOSED ? agx_siolink_broken(l, agx_eio_reason(l->eio)) : 0;
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
