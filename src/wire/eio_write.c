/*
 * What goes out: first the protocol's own packets, then the messages in their order, a goodbye behind them. A payload takes
 * as many as it may; a WebSocket is shown one at a time.
 */
#include "base/err.h"
#include "wire/eio_state.h"

/* The notes in the order in which they go out, as packets and as WebSocket messages. */
static const struct {
        unsigned note;
        agx_eio_type type;
        agx_view frame;
} notes[] = {
        {AGX_EIO_NOTE_OPEN, AGX_EIO_OPEN, {"0", 1}},       {AGX_EIO_NOTE_PONG, AGX_EIO_PONG, {"3", 1}},
        {AGX_EIO_NOTE_PING, AGX_EIO_PING, {"2", 1}},       {AGX_EIO_NOTE_CLOSE, AGX_EIO_CLOSE, {"1", 1}},
        {AGX_EIO_NOTE_ASK, AGX_EIO_PING, {"2probe", 6}},   {AGX_EIO_NOTE_ANSWER, AGX_EIO_PONG, {"3probe", 6}},
        {AGX_EIO_NOTE_UPGRADE, AGX_EIO_UPGRADE, {"5", 1}},
};

enum { NOTES = sizeof(notes) / sizeof(notes[0]) };

static const unsigned move_notes = AGX_EIO_NOTE_ASK | AGX_EIO_NOTE_ANSWER | AGX_EIO_NOTE_UPGRADE;

/* The notes that may go out now over the session's own transport. */
static unsigned session_notes(const agx_eio *e)
{
        unsigned all = e->notes & ~move_notes;

        return e->out_packets ? all & ~(unsigned)AGX_EIO_NOTE_CLOSE : all;
}

/* Those that may go out over the WebSocket that is moved to: a client leaves only when no request is under way. */
static unsigned probe_notes(const agx_eio *e)
{
        unsigned all = e->notes & move_notes;

        return e->waiting || e->posting ? all & ~(unsigned)AGX_EIO_NOTE_UPGRADE : all;
}

static size_t first_note(unsigned set)
{
        size_t i = 0;

        while (i < NOTES && !(notes[i].note & set))
                ++i;
        return i;
}

static void note_sent(agx_eio *e, unsigned note)
{
        e->notes &= ~note;
        if (note == AGX_EIO_NOTE_OPEN)
                agx_buf_deinit(&e->hello);
        if (note == AGX_EIO_NOTE_CLOSE)
                agx_eio_end(e, "closed");
        if (note == AGX_EIO_NOTE_UPGRADE) {
                e->transport = AGX_EIO_WEBSOCKET;
                e->probe = AGX_EIO_PROBE_NONE;
                e->upgrade_at = UINT64_MAX;
        }
}

/* ---- WebSocket ---- */

bool agx_eio_ws_wanted(const agx_eio *eio)
{
        if (eio->role == AGX_EIO_SERVER || eio->state == AGX_EIO_STATE_CLOSED)
                return false;
        return eio->probe == AGX_EIO_PROBE_WANTED || (eio->transport == AGX_EIO_WEBSOCKET && !eio->ws);
}

static bool may_probe(const agx_eio *e)
{
        if (e->transport != AGX_EIO_POLLING || e->state != AGX_EIO_STATE_OPEN || e->ws)
                return false;
        return e->role == AGX_EIO_CLIENT ? e->probe == AGX_EIO_PROBE_WANTED : e->bounds.upgrade;
}

int agx_eio_ws_opened(agx_eio *eio, uint64_t now_ms)
{
        if (eio->state == AGX_EIO_STATE_CLOSED)
                return AGX_EIO_E_CLOSED;
        if (eio->transport == AGX_EIO_WEBSOCKET && !eio->ws) {
                eio->ws = true;
                return 0;
        }
        if (!may_probe(eio))
                return AGX_EIO_E_TRANSPORT;
        eio->ws = true;
        eio->probe = AGX_EIO_PROBE_ASKED;
        eio->upgrade_at = now_ms + eio->bounds.upgrade_ms;
        if (eio->role == AGX_EIO_CLIENT)
                eio->notes |= AGX_EIO_NOTE_ASK;
        return 0;
}

void agx_eio_ws_lost(agx_eio *eio)
{
        if (eio->transport == AGX_EIO_WEBSOCKET)
                agx_eio_end(eio, "the WebSocket is gone");
        else
                agx_eio_end_probe(eio);
        eio->ws = false;
}

static void show_note(agx_eio *e, size_t i, agx_eio_frame *frame)
{
        e->shown = notes[i].note;
        *frame = (agx_eio_frame){.head = notes[i].frame, .body = AGX_VIEW("")};
        if (notes[i].note == AGX_EIO_NOTE_OPEN)
                frame->body = agx_buf_view(&e->hello);
}

static void show_item(agx_eio *e, const agx_eio_item *item, agx_eio_frame *frame)
{
        e->shown = 0;
        *frame = (agx_eio_frame){.binary = item->binary,
                                 .head = agx_view_of(item->head, item->n_head),
                                 .body = item->body};
}

/* What was shown before is shown again. */
static bool show_again(agx_eio *e, agx_eio_frame *frame)
{
        if (e->shown)
                show_note(e, first_note(e->shown), frame);
        else
                show_item(e, agx_eio_first_item(e), frame);
        return true;
}

bool agx_eio_ws_next(agx_eio *eio, agx_eio_frame *frame)
{
        size_t i;

        if (!eio->ws || eio->state == AGX_EIO_STATE_CLOSED)
                return false;
        if (eio->showing)
                return show_again(eio, frame);
        i = first_note(eio->transport == AGX_EIO_WEBSOCKET ? session_notes(eio) : probe_notes(eio));
        if (i < NOTES)
                show_note(eio, i, frame);
        else if (eio->transport == AGX_EIO_WEBSOCKET && eio->out_packets)
                show_item(eio, agx_eio_first_item(eio), frame);
        else
                return false;
        eio->showing = true;
        return true;
}

void agx_eio_ws_sent(agx_eio *eio)
{
        if (!eio->showing)
                return;
        eio->showing = false;
        if (eio->shown)
                note_sent(eio, eio->shown);
        else
                agx_eio_item_done(eio, agx_eio_first_item(eio));
}

/* ---- long-polling ---- */

bool agx_eio_poll_due(const agx_eio *eio)
{
        return eio->role == AGX_EIO_CLIENT && eio->transport == AGX_EIO_POLLING && !eio->waiting &&
               eio->state != AGX_EIO_STATE_CLOSED && eio->probe != AGX_EIO_PROBE_ANSWERED;
}

int agx_eio_poll(agx_eio *eio)
{
        if (eio->state == AGX_EIO_STATE_CLOSED)
                return AGX_EIO_E_CLOSED;
        if (eio->transport != AGX_EIO_POLLING)
                return AGX_EIO_E_TRANSPORT;
        if (eio->waiting) {
                agx_eio_end(eio, "two polls at once");
                return AGX_EIO_E_BAD;
        }
        eio->waiting = true;
        return 0;
}

void agx_eio_poll_lost(agx_eio *eio)
{
        eio->waiting = false;
}

void agx_eio_posted(agx_eio *eio)
{
        eio->posting = false;
}

bool agx_eio_payload_due(const agx_eio *eio)
{
        bool some = session_notes(eio) || eio->out_packets;

        if (eio->role == AGX_EIO_SERVER)
                return eio->waiting && (some || eio->state == AGX_EIO_STATE_CLOSED ||
                                        eio->transport != AGX_EIO_POLLING || eio->probe == AGX_EIO_PROBE_ANSWERED);
        return some && !eio->posting && eio->transport == AGX_EIO_POLLING && eio->probe != AGX_EIO_PROBE_ANSWERED &&
               (eio->state == AGX_EIO_STATE_OPEN || eio->state == AGX_EIO_STATE_CLOSING);
}

static int write_notes(agx_eio *e, agx_buf *body, size_t *count)
{
        int r = 0;

        while (!r && *count < e->bounds.payload_packets) {
                size_t i = first_note(session_notes(e));
                bool opening = i < NOTES && notes[i].note == AGX_EIO_NOTE_OPEN;

                if (i == NOTES)
                        return 0;
                r = agx_eio_packet_put(body, notes[i].type, false, opening ? agx_buf_view(&e->hello) : AGX_VIEW(""),
                                       AGX_VIEW(""));
                if (!r) {
                        note_sent(e, notes[i].note);
                        ++*count;
                }
        }
        return r;
}

/* Whether the payload may still take a packet of an item. */
static bool fits(const agx_eio *e, const agx_eio_item *item, size_t size, size_t count)
{
        size_t max = e->peer_max < e->bounds.message_max ? e->peer_max : e->bounds.message_max;
        size_t n = agx_eio_packet_size(item->binary, item->n_head + item->body.n - !item->binary);

        return !count || (count < e->bounds.payload_packets && size < max && n <= max - size - 1);
}

static int write_items(agx_eio *e, agx_buf *body, size_t *count)
{
        agx_eio_item *item;
        int r = 0;

        while (!r && (item = agx_eio_first_item(e)) && fits(e, item, body->len, *count)) {
                agx_view head = agx_view_of(item->head + !item->binary, item->n_head - !item->binary);

                r = agx_eio_packet_put(body, AGX_EIO_MESSAGE, item->binary, head, item->body);
                if (!r) {
                        agx_eio_item_done(e, item);
                        ++*count;
                }
        }
        return r;
}

int agx_eio_payload_write(agx_eio *eio, agx_buf *body)
{
        size_t count = 0;
        int r = 0;

        if (eio->transport == AGX_EIO_POLLING) {
                r = write_notes(eio, body, &count);
                r = r ? r : write_items(eio, body, &count);
                r = r ? r : write_notes(eio, body, &count); /* a goodbye behind the last message */
        }
        if (r && !count)
                return r;
        if (!count)
                r = agx_eio_packet_put(body, AGX_EIO_NOOP, false, AGX_VIEW(""), AGX_VIEW(""));
        if (r && !count)
                return r;
        if (eio->role == AGX_EIO_SERVER)
                eio->waiting = false;
        else
                eio->posting = true;
        return 0;
}
