/*
 * What comes in. A packet is looked up by its type and our role in a table; what is not in it breaks the protocol. On a
 * WebSocket that is only to be moved to, the few packets of the move are all that may come, and a wrong one ends just
 * the move.
 */
#include "base/err.h"
#include "wire/eio_state.h"

typedef int (*packet_fn)(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event);

static int bad(agx_eio *e, const char *why)
{
        agx_eio_end(e, why);
        return AGX_EIO_E_BAD;
}

/* ---- the session's packets ---- */

static int read_open(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        if (e->state != AGX_EIO_STATE_OPENING)
                return bad(e, "a second opening");
        if (!agx_eio_open_read(e, packet->data))
                return bad(e, "a malformed opening");
        e->state = AGX_EIO_STATE_OPEN;
        event->kind = AGX_EIO_OPENED;
        return 0;
}

static int read_close(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        (void)packet;
        agx_eio_end(e, "the peer closed the session");
        event->kind = AGX_EIO_CLOSED;
        return 0;
}

static int read_ping(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        (void)packet, (void)event;
        e->notes |= AGX_EIO_NOTE_PONG;
        return 0;
}

static int read_message(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        (void)e;
        *event = (agx_eio_event){.kind = AGX_EIO_GOT, .binary = packet->binary, .data = packet->data};
        return 0;
}

/* A pong needs nothing more than to have been heard, a noop not even that. */
static int read_sign(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        (void)e, (void)packet, (void)event;
        return 0;
}

static const packet_fn readers[2][AGX_EIO_NOOP + 1] = {
        [AGX_EIO_SERVER] =
                {
                        [AGX_EIO_CLOSE] = read_close,
                        [AGX_EIO_PONG] = read_sign,
                        [AGX_EIO_MESSAGE] = read_message,
                        [AGX_EIO_NOOP] = read_sign,
                },
        [AGX_EIO_CLIENT] =
                {
                        [AGX_EIO_OPEN] = read_open,
                        [AGX_EIO_CLOSE] = read_close,
                        [AGX_EIO_PING] = read_ping,
                        [AGX_EIO_MESSAGE] = read_message,
                        [AGX_EIO_NOOP] = read_sign,
                },
};

static void heard(agx_eio *e, uint64_t now_ms)
{
        if (e->state != AGX_EIO_STATE_OPEN && e->state != AGX_EIO_STATE_CLOSING)
                return;
        if (e->role == AGX_EIO_CLIENT) {
                e->deadline = now_ms + e->interval_ms + e->timeout_ms;
        } else if (e->pinged) {
                e->pinged = false;
                e->deadline = UINT64_MAX;
                e->ping_at = now_ms + e->interval_ms;
        }
}

static int read_packet(agx_eio *e, const agx_eio_packet *packet, uint64_t now_ms, agx_eio_event *event)
{
        packet_fn read = readers[e->role][packet->type];
        int r;

        if (!read)
                return bad(e, "a packet of a type that the peer may not send");
        if (e->state == AGX_EIO_STATE_OPENING && packet->type != AGX_EIO_OPEN)
                return bad(e, "a packet before the opening");
        r = read(e, packet, event);
        heard(e, now_ms);
        return r;
}

/* ---- the move ---- */

static int bad_probe(agx_eio *e)
{
        agx_eio_end_probe(e);
        return AGX_EIO_E_PROBE;
}

static void move(agx_eio *e)
{
        e->transport = AGX_EIO_WEBSOCKET;
        e->probe = AGX_EIO_PROBE_NONE;
        e->upgrade_at = UINT64_MAX;
}

static int read_probe_at_server(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        if (e->probe == AGX_EIO_PROBE_ASKED && packet->type == AGX_EIO_PING &&
            agx_view_eq(packet->data, AGX_VIEW("probe"))) {
                e->probe = AGX_EIO_PROBE_ANSWERED;
                e->notes |= AGX_EIO_NOTE_ANSWER;
                return 0;
        }
        if (e->probe != AGX_EIO_PROBE_ANSWERED || packet->type != AGX_EIO_UPGRADE || packet->data.n)
                return bad_probe(e);
        move(e);
        event->kind = AGX_EIO_UPGRADED;
        return 0;
}

static int read_probe_at_client(agx_eio *e, const agx_eio_packet *packet)
{
        if (e->probe != AGX_EIO_PROBE_ASKED || packet->type != AGX_EIO_PONG ||
            !agx_view_eq(packet->data, AGX_VIEW("probe")))
                return bad_probe(e);
        e->probe = AGX_EIO_PROBE_ANSWERED;
        e->notes |= AGX_EIO_NOTE_UPGRADE;
        return 0;
}

static int read_probe(agx_eio *e, const agx_eio_packet *packet, agx_eio_event *event)
{
        if (packet->binary)
                return bad_probe(e);
        return e->role == AGX_EIO_SERVER ? read_probe_at_server(e, packet, event) : read_probe_at_client(e, packet);
}

/* ---- verbs ---- */

/* What the verb before showed is over. */
static int begin(agx_eio *e, agx_eio_event *event)
{
        *event = (agx_eio_event){.kind = AGX_EIO_NOTHING};
        agx_buf_clear(&e->decoded);
        return e->state == AGX_EIO_STATE_CLOSED ? AGX_EIO_E_CLOSED : 0;
}

int agx_eio_ws_read(agx_eio *eio, bool binary, agx_view data, uint64_t now_ms, agx_eio_event *event)
{
        agx_eio_packet packet = {.type = AGX_EIO_MESSAGE, .binary = true, .data = data};
        bool probing = eio->transport == AGX_EIO_POLLING;
        int r = begin(eio, event);

        if (r)
                return r;
        if (!eio->ws)
                return AGX_EIO_E_TRANSPORT;
        if (!binary && !agx_eio_packet_read(data, &packet))
                return probing ? bad_probe(eio) : bad(eio, "a malformed packet");
        return probing ? read_probe(eio, &packet, event) : read_packet(eio, &packet, now_ms, event);
}

/* Turns base64 into bytes that live until the next verb. */
static int decode(agx_eio *e, agx_eio_packet *packet)
{
        int r;

        if (!packet->binary)
                return 0;
        r = agx_eio_base64_read(packet->data, &e->decoded);
        packet->data = agx_buf_view(&e->decoded);
        if (r > 0)
                return bad(e, r == AGX_BUF_E_FULL ? "a message above the limit" : "malformed base64");
        return r;
}

bool agx_eio_take(agx_eio *eio, agx_buf *message)
{
        size_t max = eio->decoded.max;

        if (!eio->decoded.len)
                return false;
        agx_buf_deinit(message);
        *message = eio->decoded;
        agx_buf_init(&eio->decoded, max);
        return true;
}

int agx_eio_payload_read(agx_eio *eio, agx_view *payload, uint64_t now_ms, agx_eio_event *event)
{
        agx_eio_packet packet;
        int r = begin(eio, event);

        if (!r && eio->transport != AGX_EIO_POLLING)
                r = AGX_EIO_E_TRANSPORT;
        if (!r && !agx_eio_packet_split(payload, &packet))
                r = bad(eio, "a malformed payload");
        if (!r)
                r = decode(eio, &packet);
        if (!r)
                r = read_packet(eio, &packet, now_ms, event);
        if (r)
                *payload = AGX_VIEW_NULL;
        if (!payload->p && eio->role == AGX_EIO_CLIENT)
                eio->waiting = false;
        return r;
}
