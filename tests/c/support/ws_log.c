/* A loop around agx_ws_next() that writes down what it sees. Failures of the log itself end the process. */
#include "support/ws_log.h"
#include "base/err.h"
#include "base/map.h"
#include "support/guard.h"

#include <stdlib.h>

enum { SHOWN = 64 };

static void must(int r)
{
        if (r)
                abort();
}

/* Bytes that are not visible ASCII as \xNN; so are the log's own brackets. */
static void say_escaped(agx_buf *log, agx_view text)
{
        for (size_t i = 0; i < text.n; ++i) {
                char c = text.p[i];

                if (c >= ' ' && c < 0x7f && !strchr("<>[]\\", c))
                        must(agx_buf_append(log, &c, 1));
                else
                        must(agx_buf_printf(log, "\\x%02x", (unsigned char)c));
        }
}

static void say_data(agx_buf *log, agx_view data)
{
        must(agx_buf_printf(log, "["));
        if (data.n <= SHOWN)
                say_escaped(log, data);
        else
                must(agx_buf_printf(log, "#%zu:%08x", data.n, (unsigned)agx_siphash((const uint64_t[2]){1, 2}, data)));
        must(agx_buf_printf(log, "]"));
}

static void say_error(agx_buf *log, int error)
{
        if (error < 0)
                must(agx_buf_printf(log, error == -ENOMEM ? "!mem" : "!?"));
        else
                must(agx_buf_printf(log, "!%u(%s)", agx_ws_error_code(error), agx_ws_error_text(error)));
}

static void say_event(agx_buf *log, const agx_ws_event *event)
{
        static const char *const names[] = {
                [AGX_WS_TEXT] = "T", [AGX_WS_BINARY] = "B", [AGX_WS_PING] = "P",
                [AGX_WS_PONG] = "p", [AGX_WS_CLOSE] = "C",
        };

        must(agx_buf_printf(log, "%s", names[event->kind]));
        if (event->kind == AGX_WS_CLOSE)
                must(agx_buf_printf(log, "%u", event->code));
        say_data(log, event->data);
}

static void say_frames(agx_buf *log, agx_ws *ws, agx_ws_role role)
{
        static const uint8_t mask[4] = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);

        while (!agx_ws_pull(ws, role == AGX_WS_CLIENT ? mask : NULL, &out)) {
                must(agx_buf_printf(log, "<"));
                for (size_t i = 0; i < out.len; ++i)
                        must(agx_buf_printf(log, "%02x", out.data[out.head + i]));
                must(agx_buf_printf(log, ">"));
                agx_buf_clear(&out);
        }
}

static void say_piece(agx_buf *log, agx_buf *joined, const agx_ws_event *event)
{
        must(agx_buf_append_view(joined, event->data));
        if (!event->last)
                return;
        must(agx_buf_printf(log, "M"));
        say_data(log, agx_buf_view(joined));
        agx_buf_clear(joined);
}

/* False once nothing more can come. */
static bool feed_piece(agx_buf *log, agx_buf *joined, const agx_ws_feed *feed, agx_ws *ws, agx_view in)
{
        agx_ws_event event;
        bool paused = false;
        int r;

        for (;;) {
                r = agx_ws_next(ws, &in, &event);
                paused = feed->pause && feed->pause(true);
                if (r)
                        say_error(log, r);
                else if (event.kind == AGX_WS_PIECE)
                        say_piece(log, joined, &event);
                else if (event.kind != AGX_WS_MORE)
                        say_event(log, &event);
                else if (in.n)
                        must(agx_buf_printf(log, "(input left over)"));
                say_frames(log, ws, feed->role);
                if (feed->pause)
                        feed->pause(paused);
                if (r || event.kind == AGX_WS_MORE)
                        return !r;
        }
}

void agx_ws_log(agx_buf *log, const agx_ws_feed *feed, agx_view data, size_t first, size_t step)
{
        _cleanup_(agx_buf_deinitp) agx_buf joined = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_ws_freep) agx_ws *ws = NULL;
        uint8_t *arena = agx_guard_new(data.p, data.n);
        char *end = (char *)arena + data.n;
        size_t piece = first, last = 0;
        int r = agx_ws_new(&ws, feed->role, &feed->bounds);

        if (!arena)
                abort();
        if (r)
                say_error(log, r);
        for (size_t at = 0; at < data.n && !r; at += piece, last = piece, piece = step) {
                if (piece > data.n - at)
                        piece = data.n - at;
                memset(end - last, 0xaa, last);
                memcpy(end - piece, data.p + at, piece);
                if (!feed_piece(log, &joined, feed, ws, agx_view_of(end - piece, piece)))
                        break;
        }
        agx_guard_free(arena, data.n);
}
