/*
 * Input goes to the brain at once unless an answer is outstanding or the peer does not take what it has been sent; then
 * it waits in `ahead`, and when much waits reading stops. After the last answer the write side is ended and what still comes
 * is read and dropped for a moment: closing at once would reset the connection under the answer.
 *
 * A connection that becomes a conduit is not read any more once that is asked for; when the 101 is out its descriptor is
 * given to the worker and closed here.
 *
 * A result is written from the ledger's own copy. As long as it is on its way the call stays ours (`settling`): all
 * written, it counts as answered; the connection lost, it is kept.
 */
#include "server/http_uv.h"
#include "base/err.h"
#include "proto/limits.h"
#include "server/fast_uv.h"
#include "server/server_uv.h"
#include "server/sio_uv.h"
#include "server/submit_uv.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void feed(agx_http *h, agx_view *in);
static void pump(agx_http *h);

static uint64_t now_of(agx_http *h)
{
        return agx_loop_now(&h->server->loop);
}

/* What comes is not HTTP any more. */
static bool is_upgraded(const agx_http *h)
{
        return h->ws || h->fast;
}

static agx_ledger *ledger_of(agx_http *h)
{
        return h->server->calls.ledger;
}

/* ---- the end of a connection ---- */

static void settle(agx_http *h, bool written)
{
        agx_call *call = h->settling;

        if (!call)
                return;
        h->settling = NULL;
        call->waiter = NULL;
        if (written)
                agx_ledger_answered(ledger_of(h), call, now_of(h));
        else
                agx_server_deliver(h->server, call); /* to its session's link, or it is kept */
        agx_server_ledger_touched(h->server);
}

static void abandon(agx_http *h)
{
        settle(h, false);
        if (h->call)
                h->call->waiter = NULL;
        h->call = NULL;
        agx_sio_lost(h);
        agx_fast_road_lost(h);
}

static void part_closed(agx_http *h)
{
        agx_server *server = h->server;

        if (--h->open)
                return;
        agx_list_unlink(&h->node);
        agx_conn_deinit(&h->conn);
        agx_buf_deinit(&h->ahead);
        agx_ws_free(h->ws);
        agx_fast_road_free(h);
        free(h);
        agx_server_connection_closed(server);
}

static void on_deadline_closed(agx_deadline *d)
{
        part_closed(agx_container_of(d, agx_http, deadline));
}

void agx_http_close(agx_http *h)
{
        if (agx_stream_closing(&h->stream))
                return;
        abandon(h);
        if (h->counted)
                agx_server_authorized(h->server, -1);
        h->counted = false;
        agx_stream_close(&h->stream);
        agx_deadline_close(&h->deadline, on_deadline_closed);
}

/* The brain is done: out with what is written, then the end. */
static void finish(agx_http *h);
void agx_http_finish(agx_http *h)
{
        finish(h);
}

static void finish(agx_http *h)
{
        if (h->ending)
                return;
        h->ending = true;
        agx_buf_deinit(&h->ahead);
        if (!agx_stream_queued(&h->stream)) {
                agx_http_close(h);
                return;
        }
        agx_stream_shutdown(&h->stream);
        agx_deadline_set(&h->deadline, now_of(h) + AGX_HTTP_IDLE_MS);
        agx_stream_read(&h->stream);
}

void agx_http_drain(agx_http *h)
{
        if (h->ending || h->call || h->running || h->session)
                return;
        if (h->fast) {
                agx_fast_road_drain(h);
                return;
        }
        h->conn.state = AGX_CONN_CLOSING;
        finish(h);
}

/* ---- calls ---- */

static void failed(agx_http *h)
{
        agx_http_close(h);
}

/* Writes the outcome of `call`, which the brain has asked for. `kept`: the ledger may drop it any moment. */
static void write_outcome(agx_http *h, agx_call *call, bool kept)
{
        bool done = false;
        int r;

        settle(h, true); /* an earlier result lies before this one in the queue */
        if (!call->ok && !call->payload.len) {
                r = agx_conn_reply_unavailable(&h->conn, now_of(h));
        } else {
                r = agx_conn_reply_result(&h->conn, now_of(h), call->ok, call->payload.len);
                if (!r)
                        r = agx_stream_send(&h->stream, agx_buf_view(&call->payload), &done);
        }
        h->settling = call;
        call->waiter = &h->waiter;
        if (done || kept)
                settle(h, true);
        if (r)
                failed(h);
}

static void on_deliver(agx_waiter *waiter, agx_call *call)
{
        agx_http *h = agx_container_of(waiter, agx_http, waiter);

        h->call = NULL;
        write_outcome(h, call, false);
        pump(h);
}

static int accepted(agx_http *h, agx_view id)
{
        return agx_conn_reply_accepted(&h->conn, now_of(h), id);
}

/* Somebody else is told what comes of the call. Who waits for it here gets his 202; what he sent behind it is looked at
 * once that is out. */
static void on_forget(agx_waiter *waiter, agx_call *call)
{
        agx_http *h = agx_container_of(waiter, agx_http, waiter);

        if (h->settling == call)
                h->settling = NULL;
        if (h->call != call)
                return;
        h->call = NULL;
        if (accepted(h, agx_call_id(call)))
                failed(h);
        else
                agx_stream_touch(&h->stream);
}

/* The brain's patience is over, or there never was any. */
static int let_go(agx_http *h)
{
        agx_call *call = h->call;

        h->call = NULL;
        call->waiter = NULL;
        return accepted(h, agx_call_id(call));
}

static int submit(agx_http *h)
{
        agx_submission given = {
                .request = &h->conn.request, .session = h->conn.session, .waiter = &h->waiter, .waits = &h->call};
        agx_fault fault;
        agx_call *call;

        switch (agx_submit_uv(h->server, &given, &call, &fault)) {
        case AGX_SUBMITTED_WAITS:
                return h->call && !h->conn.wait_ms ? let_go(h) : 0;
        case AGX_SUBMITTED_ACCEPTED:
                return accepted(h, agx_call_id(call));
        case AGX_SUBMITTED_ENDED:
                write_outcome(h, call, call->kept);
                return 0;
        case AGX_SUBMITTED_FAULT:
                return agx_conn_reply_fault(&h->conn, now_of(h), &fault);
        case AGX_SUBMITTED_NO_MEMORY:
                break;
        }
        return agx_conn_reply_unavailable(&h->conn, now_of(h));
}

/* ---- input ---- */

/* The peer asks without taking its answers. */
static bool must_wait(agx_http *h)
{
        bool wait = agx_stream_queued(&h->stream) > AGX_HTTP_OUT;

        if (wait && !h->paused_at)
                h->paused_at = now_of(h);
        if (!wait && h->paused_at) {
                agx_conn_forgive(&h->conn, now_of(h) - h->paused_at);
                h->paused_at = 0;
        }
        return wait;
}

static void count(agx_http *h)
{
        if (h->counted || !h->conn.authorized)
                return;
        h->counted = true;
        agx_server_authorized(h->server, 1);
}

/* ---- conduits ---- */

/* Nothing is read from here on: what comes is the worker's. */
static int begin_leaving(agx_http *h)
{
        agx_worker *w = agx_supervisor_uv_ready(&h->server->supervisor);

        if (!w || w->conduits < 0)
                return agx_conn_reply_unavailable(&h->conn, now_of(h));
        memcpy(h->conduit, h->conn.conduit.p, sizeof(h->conduit));
        h->leaving = true;
        agx_stream_pause(&h->stream);
        return agx_conn_reply_conduit(&h->conn, now_of(h));
}

/* The worker has it from now on, or nobody: then the host sees it close. */
static void leave(agx_http *h)
{
        agx_worker *w = agx_supervisor_uv_ready(&h->server->supervisor);
        int fd;

        if (w && !uv_fileno(&h->stream.uv.handle, &fd))
                agx_worker_hand(w, agx_view_of(h->conduit, sizeof(h->conduit)), fd);
        agx_http_close(h);
}

/* One wish of the brain. False: it can do nothing more for now. */
static bool carry_out(agx_http *h, agx_conn_wish wish)
{
        int r = 0;

        switch (wish) {
        case AGX_CONN_SUBMIT:
                r = submit(h);
                break;
        case AGX_CONN_SIO:
                r = agx_sio_request(h);
                break;
        case AGX_CONN_CONDUIT:
                r = begin_leaving(h);
                break;
        case AGX_CONN_FAST:
                r = agx_fast_road_begin(h);
                break;
        case AGX_CONN_CLOSE:
                finish(h);
                return false;
        case AGX_CONN_LATE:
                if (h->call)
                        r = let_go(h);
                break;
        case AGX_CONN_INPUT:
        case AGX_CONN_WAIT:
        case AGX_CONN_NONE:
                return false;
        }
        if (r)
                failed(h);
        return !r && !agx_stream_closing(&h->stream);
}

static void feed(agx_http *h, agx_view *in)
{
        agx_conn_wish wish;

        h->running = true;
        while (!h->ending && !agx_stream_closing(&h->stream) && !is_upgraded(h) && !h->leaving && !must_wait(h)) {
                if (agx_conn_next(&h->conn, now_of(h), in, &wish)) {
                        failed(h);
                        break;
                }
                count(h);
                if (!carry_out(h, wish))
                        break;
        }
        h->running = false;
        if (agx_stream_closing(&h->stream))
                return;
        agx_stream_touch(&h->stream);
        if (!h->ending && !h->fast)
                agx_deadline_set(&h->deadline, agx_conn_deadline(&h->conn));
}

static void read_or_pause(agx_http *h)
{
        if (!h->ending && (h->ahead.len >= AGX_HTTP_AHEAD || must_wait(h)))
                agx_stream_pause(&h->stream);
        else if (agx_stream_read(&h->stream))
                failed(h);
}

static void feed_upgraded(agx_http *h, agx_view in)
{
        if (h->fast)
                agx_fast_road_feed(h, in);
        else
                agx_sio_feed(h, in);
}

/* What waited behind the upgrade is the WebSocket's. */
static void hand_over(agx_http *h)
{
        agx_buf rest = h->ahead;

        h->ahead = AGX_BUF_NULL(0);
        if (rest.len && !agx_stream_closing(&h->stream))
                feed_upgraded(h, agx_buf_view(&rest));
        agx_buf_deinit(&rest);
}

/* Goes on with what waited, if it need not wait any longer. */
static void pump(agx_http *h)
{
        if (h->running || h->ending || is_upgraded(h) || h->leaving || agx_stream_closing(&h->stream))
                return;
        if (h->ahead.len) {
                agx_view rest = agx_buf_view(&h->ahead);
                size_t before = rest.n;

                feed(h, &rest);
                if (h->ahead.len)
                        agx_buf_consume(&h->ahead, before - rest.n);
        } else {
                agx_view none = AGX_VIEW("");

                feed(h, &none);
        }
        if (is_upgraded(h))
                hand_over(h);
        else if (h->leaving && h->ahead.len) /* it did not wait for the 101 */
                failed(h);
        else if (!h->leaving && !agx_stream_closing(&h->stream))
                read_or_pause(h);
}

void agx_http_pump(agx_http *h)
{
        pump(h);
}

static void on_data(agx_stream *stream, agx_view in)
{
        agx_http *h = agx_container_of(stream, agx_http, stream);

        if (h->ending)
                return;
        if (!h->ahead.len && !is_upgraded(h)) {
                feed(h, &in);
                if (h->ending || agx_stream_closing(stream))
                        return;
        }
        if (is_upgraded(h)) {
                feed_upgraded(h, in);
                return;
        }
        if (in.n && (h->leaving || agx_buf_append_view(&h->ahead, in))) /* leaving: it did not wait for the 101 */
                failed(h);
        else if (!h->leaving)
                read_or_pause(h);
}

static void on_place(agx_stream *stream, uv_buf_t *place)
{
        agx_http *h = agx_container_of(stream, agx_http, stream);
        char *at;
        size_t n;

        if (h->ending || h->ws || h->ahead.len)
                return;
        if (h->fast ? agx_fast_road_place(h, &at, &n) : !must_wait(h) && agx_conn_place(&h->conn, &at, &n))
                *place = uv_buf_init(at, (unsigned)n);
}

/* ---- events of the handles ---- */

static void on_ended(agx_stream *stream, int error)
{
        agx_http *h = agx_container_of(stream, agx_http, stream);

        h->ended = true;
        if (!error && !h->call && !h->session && !h->fast && agx_stream_queued(stream))
                finish(h); /* it may still read what it asked for */
        else
                agx_http_close(h);
}

static void on_drained(agx_stream *stream)
{
        agx_http *h = agx_container_of(stream, agx_http, stream);

        settle(h, true);
        if (!h->ending && h->leaving) {
                leave(h);
        } else if (!h->ending && h->ws) {
                agx_sio_drained(h);
        } else if (!h->ending && h->fast) {
                agx_fast_road_drained(h);
        } else if (!h->ending) {
                agx_conn_drained(&h->conn, now_of(h));
                pump(h);
        } else if (h->ended) {
                agx_http_close(h);
        } else {
                agx_deadline_set(&h->deadline, now_of(h) + AGX_HTTP_LINGER_MS);
        }
}

static void on_closed(agx_stream *stream)
{
        part_closed(agx_container_of(stream, agx_http, stream));
}

static const agx_stream_ops stream_ops = {
        .data = on_data, .ended = on_ended, .drained = on_drained, .closed = on_closed, .place = on_place};

/* While it still takes an answer, however slowly, a peer is not timed out. */
static bool makes_progress(agx_http *h)
{
        size_t queued = agx_stream_queued(&h->stream);
        bool moved = queued && queued != h->last_queued;

        h->last_queued = queued;
        return moved;
}

static void on_deadline(agx_deadline *d)
{
        agx_http *h = agx_container_of(d, agx_http, deadline);
        agx_conn_wish wish;

        if (makes_progress(h)) {
                agx_deadline_set(d, now_of(h) + AGX_HTTP_IDLE_MS);
                return;
        }
        if (h->fast && !h->ending) {
                agx_fast_road_tick(h);
                return;
        }
        if (h->ending || agx_conn_tick(&h->conn, now_of(h), &wish)) {
                agx_http_close(h);
                return;
        }
        carry_out(h, wish);
        if (wish == AGX_CONN_LATE)
                pump(h);
        else if (!agx_stream_closing(&h->stream) && !h->ending)
                agx_deadline_set(d, agx_conn_deadline(&h->conn));
}

/* ---- the beginning ---- */

static void tune_tcp(agx_http *h)
{
        int fd, on = 1, idle = 30, interval = 10, probes = 3;

        if (uv_fileno(&h->stream.uv.handle, &fd))
                return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* The kernel finds the right size for TCP by itself. */
static void tune_local(agx_http *h)
{
        int fd, n = AGX_SOCKET_BYTES;

        if (!uv_fileno(&h->stream.uv.handle, &fd))
                setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &n, sizeof(n));
}

int agx_http_accept(agx_server *server, uv_stream_t *listener, bool tcp)
{
        agx_http *h = calloc(1, sizeof(*h));
        size_t out_max = (size_t)AGX_MAX_MESSAGE + AGX_HTTP_OUT * 8;
        int r;

        if (!h)
                return agx_trace(-ENOMEM);
        if (agx_conn_init(&h->conn, &server->site, agx_stream_out(&h->stream), agx_loop_now(&server->loop))) {
                free(h);
                return agx_trace(-ENOMEM);
        }
        h->server = server;
        h->open = 2;
        h->waiter = (agx_waiter){.deliver = on_deliver, .forget = on_forget};
        h->ahead = AGX_BUF_NULL(AGX_HTTP_AHEAD + AGX_LOOP_READ_BYTES);
        if (tcp)
                agx_stream_init_tcp(&h->stream, &server->loop, out_max, &stream_ops);
        else
                agx_stream_init_pipe(&h->stream, &server->loop, out_max, &stream_ops);
        agx_deadline_init(&h->deadline, &server->loop, on_deadline);
        agx_list_push_back(&server->connections, &h->node);
        server->n_connections++;
        r = uv_accept(listener, &h->stream.uv.stream);
        if (!r)
                r = agx_stream_read(&h->stream);
        if (r) {
                agx_http_close(h);
                return agx_trace(r);
        }
        if (tcp)
                tune_tcp(h);
        else
                tune_local(h);
        agx_deadline_set(&h->deadline, agx_conn_deadline(&h->conn));
        return 0;
}
