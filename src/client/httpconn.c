/*
 * The parser decides where a reply ends; this object only keeps the books around it. What comes after a reply, or
 * without a request, is never kept for later: a client that asks one question at a time is owed one answer at a time,
 * and anything else would let one reply count for another request.
 *
 * Room for a body follows the bytes that came: it doubles, and is asked for in steps, whatever length was announced.
 */
#include "client/httpconn.h"
#include "base/err.h"
#include "proto/limits.h"

enum {
        PLACE_MIN = 16 * 1024,   /* shorter rests of a body are read with everything else */
        PLACE_STEP = 256 * 1024, /* asked for at once at least */
        PLACE_MAX = 4 * 1024 * 1024
};

int agx_httpconn_init(agx_httpconn *c)
{
        static const agx_http1_bounds bounds = {.head_max = AGX_HTTP_HEAD_MAX,
                                                .headers_max = AGX_HTTP_HEADERS_MAX,
                                                .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                                .trailer_max = AGX_HTTP_TRAILER_MAX,
                                                .body_max = AGX_MAX_MESSAGE};

        *c = AGX_HTTPCONN_NULL;
        agx_buf_init(&c->out, AGX_CLIENT_OUT_MAX);
        return agx_http1_new(&c->parser, AGX_HTTP1_CLIENT, &bounds);
}

void agx_httpconn_deinit(agx_httpconn *c)
{
        if (c->parser)
                agx_http1_free(c->parser);
        agx_buf_deinit(&c->out);
        agx_buf_deinit(&c->body);
        *c = AGX_HTTPCONN_NULL;
}

void agx_httpconn_begin(agx_httpconn *c, size_t body_max)
{
        agx_buf_clear(&c->out);
        agx_buf_clear(&c->body);
        c->body.max = body_max;
        c->tail = AGX_VIEW_NULL;
        c->head = NULL;
        c->status = 0;
        c->left = 0;
        c->interim = 0;
        c->awaiting = true;
        c->written = false;
        c->touched = false;
        c->discard = false;
        c->switching = false;
        c->rest = AGX_VIEW_NULL;
        c->reusable = false;
        c->why = NULL;
}

void agx_httpconn_revoke(agx_httpconn *c)
{
        agx_buf_clear(&c->out);
        c->tail = AGX_VIEW_NULL;
        c->awaiting = false;
        c->reusable = true;
}

void agx_httpconn_discard(agx_httpconn *c)
{
        c->discard = true;
        agx_buf_clear(&c->body);
}

size_t agx_httpconn_pending(const agx_httpconn *c, agx_view segments[2])
{
        size_t n = 0;

        if (c->out.len)
                segments[n++] = agx_buf_view(&c->out);
        if (c->tail.n)
                segments[n++] = c->tail;
        return n;
}

void agx_httpconn_sent(agx_httpconn *c, size_t n)
{
        size_t first = n < c->out.len ? n : c->out.len;

        c->written = c->written || n;
        agx_buf_consume(&c->out, first);
        if (n > first)
                c->tail = agx_view_from(c->tail, n - first);
}

bool agx_httpconn_flushed(const agx_httpconn *c)
{
        return !c->out.len && !c->tail.n;
}

agx_view agx_httpconn_place(agx_httpconn *c)
{
        size_t n = c->body.len < PLACE_STEP ? PLACE_STEP : c->body.len;
        uint8_t *place;

        if (c->discard || c->left < PLACE_MIN)
                return AGX_VIEW_NULL;
        if (n > PLACE_MAX)
                n = PLACE_MAX;
        if (n > c->left)
                n = c->left;
        /* Without memory for it here the bytes come through the caller's, and fail there if they must. */
        return agx_buf_reserve(&c->body, n, &place) ? AGX_VIEW_NULL : agx_view_of(place, n);
}

static int broken(agx_httpconn *c, const char *why)
{
        c->why = why;
        return AGX_HTTPCONN_E_BROKEN;
}

static int on_head(agx_httpconn *c, const agx_http1_head *head)
{
        c->head = head;
        c->status = head->status;
        c->left = head->has_length ? head->length : 0;
        if (head->status == 101 && c->switching)
                return 0;
        if (head->status == 101)
                return broken(c, "switched protocols unasked");
        if (head->status < 200)
                return ++c->interim > AGX_CLIENT_INTERIM_MAX ? broken(c, "too many informational replies") : 0;
        if (head->has_length && head->length > c->body.max)
                return broken(c, "its reply is too large");
        return 0;
}

static int on_body(agx_httpconn *c, agx_view v)
{
        int r;

        c->left -= v.n < c->left ? v.n : c->left;
        if (c->discard)
                return 0;
        if (agx_buf_ends_at(&c->body, v)) {
                agx_buf_commit(&c->body, v.n); /* it was read to where agx_httpconn_place() said */
                return 0;
        }
        r = agx_buf_append_view(&c->body, v);
        return r == AGX_BUF_E_FULL ? broken(c, "its reply is too large") : r;
}

static int on_end(agx_httpconn *c, bool alone)
{
        if (c->status == 101 && c->switching)
                return AGX_HTTPCONN_E_SWITCHED;
        if (c->status < 200)
                return 0;
        c->awaiting = false;
        c->reusable = alone && c->head->keep_alive && agx_httpconn_flushed(c);
        return AGX_HTTPCONN_E_REPLY;
}

static int failed(agx_httpconn *c, int r)
{
        return r < 0 ? r : broken(c, agx_http1_reason(c->parser));
}

static int on_event(agx_httpconn *c, const agx_http1_event *event, bool alone)
{
        switch (event->kind) {
        case AGX_HTTP1_HEAD:
                return on_head(c, event->head);
        case AGX_HTTP1_BODY:
                return on_body(c, event->body);
        case AGX_HTTP1_END:
                return on_end(c, alone);
        case AGX_HTTP1_MORE:
                break;
        }
        return 0;
}

int agx_httpconn_input(agx_httpconn *c, agx_view in)
{
        agx_http1_event event;
        int r;

        if (!in.n)
                return 0;
        if (!c->awaiting)
                return broken(c, "it spoke unasked");
        c->touched = true;
        do {
                r = agx_http1_next(c->parser, &in, &event);
                if (r)
                        return failed(c, r);
                r = on_event(c, &event, !in.n);
        } while (!r && event.kind != AGX_HTTP1_MORE);
        c->rest = in;
        return r;
}

int agx_httpconn_eof(agx_httpconn *c)
{
        agx_http1_event event;

        if (!c->awaiting || !c->status || agx_http1_eof(c->parser, &event) || event.kind != AGX_HTTP1_END)
                return broken(c, "it closed the connection");
        if (on_end(c, true) != AGX_HTTPCONN_E_REPLY)
                return broken(c, "it closed the connection");
        c->reusable = false;
        return AGX_HTTPCONN_E_REPLY;
}

agx_view agx_httpconn_field(const agx_httpconn *c, agx_view name)
{
        return c->head ? agx_http1_field_get(c->head, name, NULL) : AGX_VIEW_NULL;
}
