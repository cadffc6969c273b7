/*
 * The lane that is a WebSocket: HTTP until the 101, then frames. It is the whole link, or what a link over long-polling
 * moves to; then whatever goes wrong before the move ends only this lane.
 */
#include "base/err.h"
#include "client/siolink_state.h"

#include <stdio.h>

enum { OUT_LOW = 64 * 1024, FRAME_OUT = 256 * 1024 };

static bool is_moving(const agx_siolink *l)
{
        return agx_eio_over(l->eio) == AGX_EIO_POLLING;
}

/* The link is broken, or goes on over long-polling. */
static int failed(agx_siolink *l, const char *why)
{
        if (!is_moving(l))
                return agx_siolink_broken(l, why);
        l->socket.given_up = true;
        return 0;
}

/* ---- the request ---- */

static int put_request(agx_siolink *l)
{
        agx_buf *out = &l->socket.out;
        int r;

        r = agx_siolink_put_head(l, AGX_VIEW("GET"), "websocket", out);
        if (!r)
                r = agx_ws_put_request_fields(out, &l->socket.opening, NULL, 0);
        if (!r)
                r = agx_http1_put_end(out);
        return r > 0 ? -EINVAL : r;
}

int agx_siolink_ws_begin(agx_siolink *l, uint64_t now_ms)
{
        static const agx_http1_bounds http = {.head_max = AGX_HTTP_HEAD_MAX,
                                              .headers_max = AGX_HTTP_HEADERS_MAX,
                                              .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                              .trailer_max = AGX_HTTP_TRAILER_MAX,
                                              .body_max = AGX_MAX_MESSAGE};
        uint8_t nonce[AGX_WS_NONCE_BYTES];
        int r;

        agx_siolink_draw(l, nonce, sizeof(nonce));
        l->socket.opening = agx_ws_opening_on(nonce);
        l->socket.answer_by = now_ms + AGX_CLIENT_OPEN_MS;
        r = agx_http1_new(&l->socket.http, AGX_HTTP1_CLIENT, &http);
        return r ? r : put_request(l);
}

void agx_siolink_ws_end(agx_siolink *l)
{
        agx_siolink_socket *s = &l->socket;

        if (s->http)
                agx_http1_free(s->http);
        if (s->ws)
                agx_ws_free(s->ws);
        if (s->out.data)
                explicit_bzero(s->out.data, s->out.cap);
        agx_buf_deinit(&s->out);
        *s = (agx_siolink_socket){.out.max = AGX_CLIENT_OUT_MAX};
}

/* ---- the answer to the request ---- */

static int refused(agx_siolink *l, unsigned status)
{
        if (is_moving(l))
                return failed(l, "");
        l->status = status;
        snprintf(l->why, sizeof(l->why), "the server answered %u (%s) to the request for a WebSocket", status,
                 agx_http1_phrase(status));
        if (status == 401 || status == 403)
                return AGX_SIOLINK_E_DENIED;
        if (status == 404 || status == 410)
                return AGX_SIOLINK_E_ABSENT;
        return agx_siolink_is_passing(status) ? AGX_SIOLINK_E_BROKEN : AGX_SIOLINK_E_POLLING;
}

static int switched(agx_siolink *l, uint64_t now_ms)
{
        static const agx_ws_bounds ws = {.message_max = AGX_MAX_MESSAGE,
                                         .fragments_max = AGX_CLIENT_LINK_FRAGMENTS,
                                         .frame_out = FRAME_OUT};
        int r = agx_ws_new(&l->socket.ws, AGX_WS_CLIENT, &ws);

        if (!r && agx_eio_ws_opened(l->eio, now_ms))
                return failed(l, "no Engine.IO over a WebSocket");
        return r;
}

static int on_head(agx_siolink *l, const agx_http1_head *head)
{
        const char *reason;
        agx_view protocol;

        l->socket.status = head->status;
        if (head->status == 101)
                return agx_ws_check_reply(head, &l->socket.opening, NULL, 0, &protocol, &reason) ? failed(l, reason)
                                                                                                 : 0;
        if (head->status >= 200)
                return refused(l, head->status);
        return ++l->socket.interim > AGX_CLIENT_INTERIM_MAX ? failed(l, "too many informational replies") : 0;
}

/* To the end of the head: who moves has to speak first, so nothing may follow it. */
static int read_answer(agx_siolink *l, agx_view *in, uint64_t now_ms)
{
        agx_http1_event http;
        int r;

        do {
                r = agx_http1_next(l->socket.http, in, &http);
                if (r)
                        return r < 0 ? r : failed(l, agx_http1_reason(l->socket.http));
                if (http.kind == AGX_HTTP1_HEAD)
                        r = on_head(l, http.head);
                else if (http.kind == AGX_HTTP1_END && l->socket.status == 101)
                        return switched(l, now_ms);
        } while (!r && !l->socket.given_up && http.kind != AGX_HTTP1_MORE);
        return r;
}

/* ---- messages ---- */

static int on_message(agx_siolink *l, agx_ws_event *ws, uint64_t now_ms, agx_siolink_event *event)
{
        agx_eio_event eio;
        int r;

        agx_buf_clear(&l->message);
        r = agx_ws_take(l->socket.ws, ws, &l->message);
        if (r)
                return r;
        r = agx_eio_ws_read(l->eio, ws->kind == AGX_WS_BINARY, ws->data, now_ms, &eio);
        if (r == AGX_EIO_E_PROBE || r == AGX_EIO_E_TRANSPORT)
                return failed(l, "not the answer to a probe");
        if (r)
                return r < 0 ? r : agx_siolink_broken(l, agx_eio_reason(l->eio));
        return agx_siolink_on_eio(l, &eio, event);
}

static int read_frames(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        agx_ws_event ws;
        int r = agx_ws_next(l->socket.ws, in, &ws);

        if (r)
                return r < 0 ? r : failed(l, agx_ws_error_text(r));
        switch (ws.kind) {
        case AGX_WS_TEXT:
        case AGX_WS_BINARY:
                return on_message(l, &ws, now_ms, event);
        case AGX_WS_CLOSE:
                return failed(l, "the server closed the WebSocket");
        default:
                return 0;
        }
}

int agx_siolink_ws_input(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        int r = 0;

        while (in->n && !r && !l->socket.given_up && event->kind == AGX_SIOLINK_MORE)
                r = l->socket.ws ? read_frames(l, in, now_ms, event) : read_answer(l, in, now_ms);
        if (l->socket.given_up)
                *in = AGX_VIEW_NULL;
        return r;
}

/* ---- sending ---- */

static void next_message(agx_siolink *l)
{
        agx_siolink_socket *s = &l->socket;
        agx_eio_frame frame;

        if (s->framed && !agx_ws_sending(s->ws)) {
                agx_eio_ws_sent(l->eio);
                s->framed = false;
        }
        if (!s->framed && agx_eio_ws_next(l->eio, &frame))
                s->framed = agx_ws_send(s->ws, !frame.binary, frame.head, frame.body) == 0;
}

int agx_siolink_ws_flush(agx_siolink *l)
{
        agx_siolink_socket *s = &l->socket;
        uint8_t mask[4];
        int r = 0;

        if (!s->ws || s->given_up)
                return 0;
        next_message(l);
        while (!r && s->out.len < OUT_LOW && agx_ws_pending(s->ws)) {
                agx_siolink_draw(l, mask, sizeof(mask));
                r = agx_ws_pull(s->ws, mask, &s->out);
                next_message(l);
        }
        return r < 0 ? r : 0;
}
