/*
 * Writing frames. agx_ws_peek() decides what goes next and encodes its head, advance() counts it as sent; the two verbs
 * are made of them, so that a frame is encoded in one place. The message under way is two views that shrink.
 */
#include "base/err.h"
#include "wire/ws_state.h"

int agx_ws_send(agx_ws *ws, bool text, agx_view head, agx_view body)
{
        if (ws->close.pending || ws->close_sent)
                return AGX_WS_CLOSING;
        if (ws->sending)
                return AGX_WS_BUSY;
        ws->sending = true;
        ws->begun = false;
        ws->sending_op = text ? AGX_WS_OP_TEXT : AGX_WS_OP_BINARY;
        ws->head = head.n ? head : AGX_VIEW("");
        ws->body = body.n ? body : AGX_VIEW("");
        return 0;
}

bool agx_ws_sending(const agx_ws *ws)
{
        return ws->sending;
}

int agx_ws_ping(agx_ws *ws, agx_view payload)
{
        if (payload.n > AGX_WS_CONTROL_MAX)
                return agx_trace(-EINVAL);
        if (ws->close.pending || ws->close_sent)
                return AGX_WS_CLOSING;
        agx_ws_note_set(&ws->ping, payload);
        return 0;
}

bool agx_ws_pending(const agx_ws *ws)
{
        return !ws->close_sent && (ws->pong.pending || ws->ping.pending || ws->close.pending || ws->sending);
}

static size_t encode_length(uint8_t *to, size_t n, uint8_t mask_bit)
{
        size_t width = n < 126 ? 0 : n < 65536 ? 2 : 8;

        to[0] = (uint8_t)(mask_bit | (width == 0 ? n : width == 2 ? 126 : 127));
        for (size_t i = 0; i < width; ++i)
                to[1 + i] = (uint8_t)((uint64_t)n >> (8 * (width - 1 - i)));
        return 1 + width;
}

static void encode_head(agx_ws_frame *frame, uint8_t flags, const uint8_t *mask)
{
        frame->head[0] = flags;
        frame->n_head = 1 + encode_length(frame->head + 1, frame->parts[0].n + frame->parts[1].n, mask ? 0x80 : 0);
        if (mask) {
                memcpy(frame->head + frame->n_head, mask, 4);
                frame->n_head += 4;
        }
}

/* The control frame that goes next: what the peer waits for first, the close last. */
static agx_ws_note *next_note(agx_ws *ws, uint8_t *opcode)
{
        *opcode = ws->pong.pending ? AGX_WS_OP_PONG : ws->ping.pending ? AGX_WS_OP_PING : AGX_WS_OP_CLOSE;
        return ws->pong.pending ? &ws->pong : ws->ping.pending ? &ws->ping : ws->close.pending ? &ws->close : NULL;
}

static void peek_fragment(agx_ws *ws, const uint8_t *mask, agx_ws_frame *frame)
{
        size_t max = ws->bounds.frame_out;
        bool last;

        frame->parts[0] = agx_view_first(ws->head, max);
        frame->parts[1] = agx_view_first(ws->body, max - frame->parts[0].n);
        last = frame->parts[0].n == ws->head.n && frame->parts[1].n == ws->body.n;
        encode_head(frame, (uint8_t)((ws->begun ? AGX_WS_OP_CONTINUATION : ws->sending_op) | (last ? 0x80 : 0)), mask);
}

/* Shows the next frame without sending it; false when there is none. */
static bool peek(agx_ws *ws, const uint8_t *mask, agx_ws_frame *frame)
{
        agx_ws_note *note;
        uint8_t opcode;

        if (!agx_ws_pending(ws))
                return false;
        note = next_note(ws, &opcode);
        if (!note) {
                peek_fragment(ws, mask, frame);
                return true;
        }
        ws->shown = *note;
        frame->parts[0] = agx_view_of(ws->shown.data, ws->shown.n);
        frame->parts[1] = AGX_VIEW("");
        encode_head(frame, 0x80 | opcode, mask);
        return true;
}

static void drop_message(agx_ws *ws)
{
        ws->sending = false;
        ws->head = ws->body = AGX_VIEW("");
}

static void advance(agx_ws *ws, const agx_ws_frame *frame)
{
        uint8_t opcode;
        agx_ws_note *note = next_note(ws, &opcode);

        if (note) {
                note->pending = false;
                ws->close_sent = note == &ws->close;
                if (ws->close_sent)
                        drop_message(ws);
                return;
        }
        ws->begun = true;
        if (frame->head[0] & 0x80) {
                drop_message(ws);
                return;
        }
        ws->head = agx_view_from(ws->head, frame->parts[0].n);
        ws->body = agx_view_from(ws->body, frame->parts[1].n);
}

int agx_ws_next_frame(agx_ws *ws, const uint8_t mask[4], agx_ws_frame *frame)
{
        if (!peek(ws, mask, frame))
                return AGX_WS_IDLE;
        advance(ws, frame);
        return 0;
}

static void put_part(uint8_t **at, agx_view part, const uint8_t *mask, size_t offset)
{
        if (!part.n)
                return;
        if (mask)
                agx_ws_mask(*at, (const uint8_t *)part.p, part.n, mask, offset & 3);
        else
                memcpy(*at, part.p, part.n);
        *at += part.n;
}

int agx_ws_pull(agx_ws *ws, const uint8_t mask[4], agx_buf *out)
{
        agx_ws_frame frame;
        uint8_t *at;
        size_t n;
        int r;

        if (!peek(ws, mask, &frame))
                return AGX_WS_IDLE;
        n = frame.n_head + frame.parts[0].n + frame.parts[1].n;
        r = agx_buf_reserve(out, n, &at);
        if (r)
                return r;
        memcpy(at, frame.head, frame.n_head);
        at += frame.n_head;
        put_part(&at, frame.parts[0], mask, 0);
        put_part(&at, frame.parts[1], mask, frame.parts[0].n);
        agx_buf_commit(out, n);
        advance(ws, &frame);
        return 0;
}
