/*
 * Lifecycle, names of errors, masking, and the close: the first close that is asked for, by the caller, by the peer's
 * close or by an error, is the one that is sent. Reading is in ws_read.c, writing in ws_write.c.
 */
#include "base/err.h"
#include "wire/ws_state.h"

typedef struct error_row {
        uint16_t code;
        const char *text;
} error_row;

#define ERROR_ROW(name, code, text) {code, text},
static const error_row errors[] = {{AGX_WS_NORMAL, "no error"}, AGX_WS_ERRORS(ERROR_ROW)};
#undef ERROR_ROW

static bool is_named(int error)
{
        return error >= 0 && (size_t)error < sizeof(errors) / sizeof(errors[0]);
}

uint16_t agx_ws_error_code(int error)
{
        return is_named(error) ? errors[error].code : AGX_WS_INTERNAL;
}

const char *agx_ws_error_text(int error)
{
        return is_named(error) ? errors[error].text : "out of memory";
}

int agx_ws_new(agx_ws **ws, agx_ws_role role, const agx_ws_bounds *bounds)
{
        agx_ws *w;

        if (!bounds->frame_out)
                return agx_trace(-EINVAL);
        w = calloc(1, sizeof(*w));
        if (!w)
                return agx_trace(-ENOMEM);
        w->role = role;
        w->bounds = *bounds;
        w->message = AGX_BUF_NULL(bounds->message_max);
        *ws = w;
        return 0;
}

void agx_ws_free(agx_ws *ws)
{
        if (!ws)
                return;
        agx_buf_deinit(&ws->message);
        free(ws);
}

void agx_ws_mask(uint8_t *to, const uint8_t *from, size_t n, const uint8_t mask[4], size_t at)
{
        uint8_t turned[8];
        uint64_t wide, word;
        size_t i = 0;

        for (size_t k = 0; k < sizeof(turned); ++k)
                turned[k] = mask[(at + k) & 3];
        memcpy(&wide, turned, sizeof(wide));
        for (; n - i >= sizeof(word); i += sizeof(word)) {
                memcpy(&word, from + i, sizeof(word));
                word ^= wide;
                memcpy(to + i, &word, sizeof(word));
        }
        for (; i < n; ++i)
                to[i] = from[i] ^ turned[i & 7];
}

void agx_ws_note_set(agx_ws_note *note, agx_view data)
{
        note->pending = true;
        note->n = (uint8_t)data.n;
        if (data.n)
                memcpy(note->data, data.p, data.n);
}

/* How much of a reason fits behind the code without cutting a character. */
static size_t reason_length(agx_view reason)
{
        size_t n = AGX_WS_CONTROL_MAX - 2;

        if (reason.n <= n)
                return reason.n;
        while (n && ((unsigned char)reason.p[n] & 0xc0) == 0x80)
                --n;
        return n;
}

void agx_ws_close(agx_ws *ws, uint16_t code, agx_view reason)
{
        uint8_t data[AGX_WS_CONTROL_MAX] = {(uint8_t)(code >> 8), (uint8_t)code};
        size_t n = reason_length(reason);

        if (ws->close.pending || ws->close_sent)
                return;
        if (n)
                memcpy(data + 2, reason.p, n);
        agx_ws_note_set(&ws->close, agx_view_of(data, code == AGX_WS_NO_CODE ? 0 : n + 2));
}

bool agx_ws_done(const agx_ws *ws)
{
        return ws->close_sent && (ws->close_received || ws->error);
}
