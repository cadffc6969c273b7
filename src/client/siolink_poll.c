/*
 * The lanes of long-polling: one GET after the other that waits for what the server has to say, and one POST after the
 * other with what we have, on a connection each. A server that closes connections between requests only makes the lane
 * want another; one that is lost under a request breaks the link, since nobody knows what has arrived.
 *
 * A server that answers every GET at once with nothing would keep us asking as fast as the network goes: after some such
 * answers there is a pause. One that is quiet answers late, when it has to ping.
 */
#include "base/err.h"
#include "client/siolink_state.h"

#include <stdio.h>

enum { POST_REPLY_MAX = 4096 };

/* ---- lifecycle ---- */

int agx_siolink_poll_begin(agx_siolink *l, agx_siolink_lane lane)
{
        return agx_httpconn_init(&l->polls[lane]);
}

static void wipe(agx_buf *b)
{
        if (b->data)
                explicit_bzero(b->data, b->cap);
}

void agx_siolink_poll_end(agx_siolink *l, agx_siolink_lane lane)
{
        if (lane == AGX_SIOLINK_GET)
                l->payload = AGX_VIEW_NULL;
        wipe(&l->polls[lane].out);
        agx_httpconn_deinit(&l->polls[lane]);
}

/* ---- hearing ---- */

/* A refusal of the first request tells what there is at the other end; later on, only that the session is no more. */
static int refused(agx_siolink *l, unsigned status)
{
        l->status = status;
        snprintf(l->why, sizeof(l->why), "the server answered %u (%s) to a request of long-polling", status,
                 agx_http1_phrase(status));
        if (status == 401 || status == 403)
                return AGX_SIOLINK_E_DENIED;
        if (l->state == LINK_OPENING && !agx_siolink_is_passing(status))
                return AGX_SIOLINK_E_ABSENT;
        return AGX_SIOLINK_E_BROKEN;
}

/* 0: more is needed, or the reply is there: .awaiting is false. */
static int read_reply(agx_siolink *l, agx_siolink_lane lane, agx_view *in)
{
        agx_httpconn *http = &l->polls[lane];
        int r = agx_httpconn_input(http, *in);

        *in = AGX_VIEW_NULL;
        if (r == AGX_HTTPCONN_E_BROKEN)
                return agx_siolink_broken(l, http->why);
        if (r == AGX_HTTPCONN_E_REPLY)
                return http->status == 200 ? 0 : refused(l, http->status);
        return r;
}

/* The next packet of a GET's answer. */
static int read_packet(agx_siolink *l, uint64_t now_ms, agx_siolink_event *event)
{
        agx_eio_event eio;
        int r = agx_eio_payload_read(l->eio, &l->payload, now_ms, &eio);

        if (r)
                return r < 0 ? r : agx_siolink_broken(l, agx_eio_reason(l->eio));
        l->news = l->news || eio.kind == AGX_EIO_GOT || eio.kind == AGX_EIO_OPENED;
        return agx_siolink_on_eio(l, &eio, event);
}

/* A GET's answer is read. */
static void pause_if_idle(agx_siolink *l, uint64_t now_ms)
{
        l->empty = l->news || now_ms - l->polled_ms >= AGX_CLIENT_EMPTY_PAUSE_MS ? 0 : l->empty + 1;
        if (l->empty >= AGX_CLIENT_EMPTY_POLLS)
                l->poll_ms = now_ms + AGX_CLIENT_EMPTY_PAUSE_MS;
        l->polled_ms = now_ms;
        l->news = false;
}

int agx_siolink_get_input(agx_siolink *l, agx_view *in, uint64_t now_ms, agx_siolink_event *event)
{
        agx_httpconn *http = &l->polls[AGX_SIOLINK_GET];
        int r = 0;

        if (!l->payload.p && in->n) {
                r = read_reply(l, AGX_SIOLINK_GET, in);
                if (r || http->awaiting)
                        return r;
                l->payload = agx_buf_view(&http->body);
        }
        if (!l->payload.p)
                return 0;
        while (!r && l->payload.p && event->kind == AGX_SIOLINK_MORE)
                r = read_packet(l, now_ms, event);
        if (!r && !l->payload.p)
                pause_if_idle(l, now_ms);
        return r;
}

int agx_siolink_post_input(agx_siolink *l, agx_view *in)
{
        int r = in->n ? read_reply(l, AGX_SIOLINK_POST, in) : 0;

        if (!r && !l->polls[AGX_SIOLINK_POST].awaiting)
                agx_eio_posted(l->eio);
        return r;
}

/* ---- saying ---- */

static bool is_free(const agx_siolink *l, agx_siolink_lane lane)
{
        const agx_httpconn *http = &l->polls[lane];

        return l->open[lane] && !http->awaiting && (!http->head || http->reusable);
}

static int get(agx_siolink *l)
{
        agx_httpconn *http = &l->polls[AGX_SIOLINK_GET];
        int r;

        if (agx_eio_poll(l->eio))
                return agx_siolink_broken(l, agx_eio_reason(l->eio));
        agx_httpconn_begin(http, AGX_MAX_MESSAGE);
        r = agx_siolink_put_head(l, AGX_VIEW("GET"), "polling", &http->out);
        if (!r)
                r = agx_http1_put_end(&http->out);
        return r > 0 ? -EINVAL : r;
}

static int post(agx_siolink *l)
{
        agx_httpconn *http = &l->polls[AGX_SIOLINK_POST];
        int r;

        agx_buf_clear(&l->posted);
        r = agx_eio_payload_write(l->eio, &l->posted);
        if (r)
                return r < 0 ? r : agx_siolink_broken(l, "a packet that no payload holds");
        agx_httpconn_begin(http, POST_REPLY_MAX);
        r = agx_siolink_put_head(l, AGX_VIEW("POST"), "polling", &http->out);
        if (!r)
                r = agx_http1_put_field(&http->out, AGX_VIEW("Content-Type"), AGX_VIEW("text/plain;charset=UTF-8"));
        if (!r)
                r = agx_http1_put_length(&http->out, l->posted.len);
        if (!r)
                r = agx_http1_put_end(&http->out);
        if (!r)
                http->tail = agx_buf_view(&l->posted);
        return r > 0 ? -EINVAL : r;
}

int agx_siolink_poll_flush(agx_siolink *l)
{
        int r = 0;

        if (is_free(l, AGX_SIOLINK_GET) && !l->payload.p && !l->poll_ms && agx_eio_poll_due(l->eio))
                r = get(l);
        if (!r && is_free(l, AGX_SIOLINK_POST) && agx_eio_payload_due(l->eio))
                r = post(l);
        return r;
}
