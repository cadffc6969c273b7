/*
 * Reading frames: one function for each state, each taking what it needs of the input. Everything that can be known to
 * be wrong is said at the byte that makes it so: the flags at the first byte, mask and short length at the second, the
 * size of a message as soon as its frame's length is complete, text at the first byte that cannot be.
 *
 * A message is joined in one buffer, each byte copied and unmasked once. Only a frame that is the whole message, is not
 * masked and lies whole in the input is shown in place. A message in pieces is never joined: a piece lies in the input, or, unmasked,
 * in the same buffer.
 */
#include "base/err.h"
#include "base/utf8.h"
#include "wire/ws_state.h"

enum { PIECE_MAX = 64 * 1024 };

typedef enum step {
        STEP_MORE,  /* needs more input */
        STEP_AGAIN, /* the state has changed, go on */
        STEP_EVENT, /* *event says it */
        STEP_FAIL   /* ws->error says it */
} step;

typedef step (*step_fn)(agx_ws *ws, agx_view *in, agx_ws_event *event);

static step fail(agx_ws *ws, int error)
{
        ws->error = error;
        agx_ws_close(ws, agx_ws_error_code(error), agx_view_str(agx_ws_error_text(error)));
        return STEP_FAIL;
}

static bool is_control(const agx_ws *ws)
{
        return ws->opcode >= AGX_WS_OP_CLOSE;
}

static uint8_t take_byte(agx_view *in)
{
        uint8_t byte = (uint8_t)in->p[0];

        *in = agx_view_from(*in, 1);
        return byte;
}

/* Moves bytes of the input into `to` until it holds `n`; whether it does. */
static bool gather(agx_view *in, uint8_t *to, uint8_t *have, uint8_t n)
{
        while (*have < n && in->n)
                to[(*have)++] = take_byte(in);
        return *have == n;
}

/* ---- heads ---- */

static int wrong_opcode(const agx_ws *ws)
{
        if (ws->opcode > AGX_WS_OP_PONG || (ws->opcode > AGX_WS_OP_BINARY && ws->opcode < AGX_WS_OP_CLOSE))
                return AGX_WS_E_OPCODE;
        if (is_control(ws))
                return ws->fin ? 0 : AGX_WS_E_CONTROL_CUT;
        if (ws->opcode == AGX_WS_OP_CONTINUATION)
                return ws->in_message ? 0 : AGX_WS_E_NOT_BEGUN;
        return ws->in_message ? AGX_WS_E_NOT_ENDED : 0;
}

static void begin_message(agx_ws *ws)
{
        ws->in_message = true;
        ws->text = ws->opcode == AGX_WS_OP_TEXT;
        ws->fragments = 0;
        ws->utf8 = (agx_utf8_run){0};
        ws->given = 0;
}

static bool in_pieces(const agx_ws *ws)
{
        return ws->bounds.pieces && !ws->text && !is_control(ws);
}

/* Bytes of the message that were taken. */
static uint64_t taken(const agx_ws *ws)
{
        return in_pieces(ws) ? ws->given : ws->message.len;
}

static step read_flags(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        uint8_t byte;
        int error;

        (void)event;
        if (!in->n)
                return STEP_MORE;
        byte = take_byte(in);
        if (byte & 0x70)
                return fail(ws, AGX_WS_E_RESERVED);
        ws->fin = byte & 0x80;
        ws->opcode = byte & 0x0f;
        error = wrong_opcode(ws);
        if (error)
                return fail(ws, error);
        if (ws->opcode == AGX_WS_OP_TEXT || ws->opcode == AGX_WS_OP_BINARY)
                begin_message(ws);
        if (!is_control(ws) && ++ws->fragments > ws->bounds.fragments_max)
                return fail(ws, AGX_WS_E_FRAGMENTS);
        ws->state = AGX_WS_STATE_LENGTH;
        return STEP_AGAIN;
}

/* The length is known: holds it against the bound and goes on to the mask or the payload. */
static step end_length(agx_ws *ws)
{
        if (!is_control(ws) && ws->left > ws->bounds.message_max - taken(ws))
                return fail(ws, AGX_WS_E_MESSAGE_SIZE);
        ws->n_mask = ws->mask_at = 0;
        ws->n_control = 0;
        ws->state = ws->masked ? AGX_WS_STATE_MASK : is_control(ws) ? AGX_WS_STATE_CONTROL : AGX_WS_STATE_DATA;
        return STEP_AGAIN;
}

static step read_length(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        uint8_t byte, length;

        (void)event;
        if (!in->n)
                return STEP_MORE;
        byte = take_byte(in);
        length = byte & 0x7f;
        ws->masked = byte & 0x80;
        if (ws->masked != (ws->role == AGX_WS_SERVER))
                return fail(ws, ws->masked ? AGX_WS_E_MASKED : AGX_WS_E_UNMASKED);
        if (is_control(ws) && length > AGX_WS_CONTROL_MAX)
                return fail(ws, AGX_WS_E_CONTROL_SIZE);
        ws->left = length;
        if (length < 126)
                return end_length(ws);
        ws->width = length == 126 ? 2 : 8;
        ws->n_number = 0;
        ws->state = AGX_WS_STATE_WIDE;
        return STEP_AGAIN;
}

static step read_wide(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        uint64_t length = 0;

        (void)event;
        if (!gather(in, ws->number, &ws->n_number, ws->width))
                return ws->width == 8 && ws->n_number && ws->number[0] & 0x80 ? fail(ws, AGX_WS_E_LENGTH_SIGN)
                                                                              : STEP_MORE;
        for (size_t i = 0; i < ws->width; ++i)
                length = length << 8 | ws->number[i];
        if (length >> 63)
                return fail(ws, AGX_WS_E_LENGTH_SIGN);
        if (length < (ws->width == 2 ? 126u : 65536u))
                return fail(ws, AGX_WS_E_LENGTH_FORM);
        ws->left = length;
        return end_length(ws);
}

static step read_mask(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        (void)event;
        if (!gather(in, ws->mask, &ws->n_mask, sizeof(ws->mask)))
                return STEP_MORE;
        ws->state = is_control(ws) ? AGX_WS_STATE_CONTROL : AGX_WS_STATE_DATA;
        return STEP_AGAIN;
}

/* ---- messages ---- */

static step tell_message(agx_ws *ws, agx_view data, agx_ws_event *event)
{
        if (ws->text && !agx_utf8_run_whole(&ws->utf8))
                return fail(ws, AGX_WS_E_TEXT);
        ws->in_message = false;
        ws->told = true;
        *event = (agx_ws_event){.kind = ws->text ? AGX_WS_TEXT : AGX_WS_BINARY, .data = data};
        return STEP_EVENT;
}

static step end_data(agx_ws *ws, agx_ws_event *event)
{
        ws->state = AGX_WS_STATE_FLAGS;
        return ws->fin ? tell_message(ws, agx_buf_view(&ws->message), event) : STEP_AGAIN;
}

/* A whole message in one frame that lies in the input and is not masked. */
static step show_in_place(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        agx_view data = agx_view_first(*in, (size_t)ws->left);

        *in = agx_view_from(*in, data.n);
        ws->left = 0;
        ws->state = AGX_WS_STATE_FLAGS;
        if (ws->text && !agx_utf8_run_feed(&ws->utf8, data))
                return fail(ws, AGX_WS_E_TEXT);
        return tell_message(ws, data, event);
}

/* Appends what there is of the payload, unmasked and checked. */
static int store(agx_ws *ws, agx_view bytes)
{
        uint8_t *at;
        int r = agx_buf_reserve(&ws->message, bytes.n, &at);

        if (r)
                return r < 0 ? r : AGX_WS_E_MESSAGE_SIZE;
        if (ws->masked)
                agx_ws_mask(at, (const uint8_t *)bytes.p, bytes.n, ws->mask, ws->mask_at);
        else
                memcpy(at, bytes.p, bytes.n);
        agx_buf_commit(&ws->message, bytes.n);
        ws->mask_at = (uint8_t)((ws->mask_at + bytes.n) & 3);
        ws->left -= bytes.n;
        return !ws->text || agx_utf8_run_feed(&ws->utf8, agx_view_of(at, bytes.n)) ? 0 : AGX_WS_E_TEXT;
}

/* ---- messages in pieces ---- */

static bool is_plain(const agx_ws *ws)
{
        static const uint8_t none[4];

        return !ws->masked || memcmp(ws->mask, none, sizeof(none)) == 0;
}

size_t agx_ws_passing(const agx_ws *ws)
{
        return ws->state == AGX_WS_STATE_DATA && in_pieces(ws) && is_plain(ws) && !ws->error ? (size_t)ws->left : 0;
}

static step tell_piece(agx_ws *ws, agx_view data, agx_ws_event *event)
{
        if (!ws->left)
                ws->state = AGX_WS_STATE_FLAGS;
        *event = (agx_ws_event){.kind = AGX_WS_PIECE, .data = data, .last = !ws->left && ws->fin};
        ws->told = true;
        if (event->last)
                ws->in_message = false;
        return STEP_EVENT;
}

static step read_piece(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        agx_view bytes = agx_view_first(*in, ws->left < in->n ? (size_t)ws->left : in->n);
        int r;

        if (!in->n && ws->left)
                return STEP_MORE;
        if (!is_plain(ws)) {
                bytes = agx_view_first(bytes, PIECE_MAX);
                r = store(ws, bytes);
                if (r)
                        return fail(ws, r);
        } else {
                ws->left -= bytes.n;
        }
        ws->given += bytes.n;
        *in = agx_view_from(*in, bytes.n);
        return tell_piece(ws, is_plain(ws) ? bytes : agx_buf_view(&ws->message), event);
}

static step read_data(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        agx_view bytes;
        int r;

        if (in_pieces(ws))
                return read_piece(ws, in, event);
        if (!ws->left)
                return end_data(ws, event);
        if (!in->n)
                return STEP_MORE;
        if (!ws->masked && ws->fin && ws->opcode != AGX_WS_OP_CONTINUATION && !ws->message.len && in->n >= ws->left)
                return show_in_place(ws, in, event);
        bytes = agx_view_first(*in, ws->left < in->n ? (size_t)ws->left : in->n);
        r = store(ws, bytes);
        if (r)
                return fail(ws, r);
        *in = agx_view_from(*in, bytes.n);
        return STEP_AGAIN;
}

/* ---- control frames ---- */

static bool code_may_be_sent(unsigned code)
{
        return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}

static step end_close(agx_ws *ws, agx_view data, agx_ws_event *event)
{
        unsigned code = AGX_WS_NO_CODE;
        agx_view reason = AGX_VIEW("");

        if (data.n == 1)
                return fail(ws, AGX_WS_E_CLOSE_SIZE);
        if (data.n) {
                code = (unsigned)ws->control[0] << 8 | ws->control[1];
                reason = agx_view_from(data, 2);
                if (!code_may_be_sent(code))
                        return fail(ws, AGX_WS_E_CLOSE_CODE);
        }
        if (!agx_utf8_valid(reason))
                return fail(ws, AGX_WS_E_CLOSE_TEXT);
        ws->close_received = true;
        agx_ws_close(ws, (uint16_t)code, AGX_VIEW_NULL);
        *event = (agx_ws_event){.kind = AGX_WS_CLOSE, .data = reason, .code = (uint16_t)code};
        return STEP_EVENT;
}

static step end_control(agx_ws *ws, agx_ws_event *event)
{
        agx_view data = agx_view_of(ws->control, ws->n_control);

        ws->state = AGX_WS_STATE_FLAGS;
        if (ws->opcode == AGX_WS_OP_CLOSE)
                return end_close(ws, data, event);
        if (ws->opcode == AGX_WS_OP_PING)
                agx_ws_note_set(&ws->pong, data);
        *event = (agx_ws_event){.kind = ws->opcode == AGX_WS_OP_PING ? AGX_WS_PING : AGX_WS_PONG, .data = data};
        return STEP_EVENT;
}

static step read_control(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        while (ws->left) {
                if (!in->n)
                        return STEP_MORE;
                ws->control[ws->n_control] = take_byte(in);
                if (ws->masked)
                        ws->control[ws->n_control] ^= ws->mask[ws->n_control & 3];
                ++ws->n_control;
                --ws->left;
        }
        return end_control(ws, event);
}

/* ---- the machine ---- */

static const step_fn steps[] = {
        [AGX_WS_STATE_FLAGS] = read_flags, [AGX_WS_STATE_LENGTH] = read_length, [AGX_WS_STATE_WIDE] = read_wide,
        [AGX_WS_STATE_MASK] = read_mask,   [AGX_WS_STATE_DATA] = read_data,     [AGX_WS_STATE_CONTROL] = read_control,
};

int agx_ws_next(agx_ws *ws, agx_view *in, agx_ws_event *event)
{
        step s;

        *event = (agx_ws_event){.kind = AGX_WS_MORE};
        if (ws->told) {
                ws->told = false;
                agx_buf_clear(&ws->message);
        }
        if (ws->error)
                return ws->error;
        if (ws->close_received) {
                *in = AGX_VIEW("");
                return 0;
        }
        do
                s = steps[ws->state](ws, in, event);
        while (s == STEP_AGAIN);
        return s == STEP_FAIL ? agx_trace(ws->error) : 0;
}

size_t agx_ws_gathered(const agx_ws *ws)
{
        return ws->message.len;
}

int agx_ws_take(agx_ws *ws, agx_ws_event *event, agx_buf *message)
{
        size_t max = message->max;
        int r;

        if (!ws->message.len) {
                r = agx_buf_append_view(message, event->data);
                if (r)
                        return r < 0 ? r : agx_trace(-EINVAL);
                event->data = agx_buf_view(message);
                return 0;
        }
        agx_buf_deinit(message);
        *message = ws->message;
        message->max = max;
        ws->message = AGX_BUF_NULL(ws->bounds.message_max);
        return 0;
}
