/*
 * A result is sent from the ledger's own copy: large ones go from there into the kernel, and when that takes no more a little
 * of what is left is copied, so that we hear when it does. Once all of it is on its way the stream is out of the brain's table and in `settling`: when all that is queued has gone
 * out, its result counts as answered; if the connection is lost before, it is kept.
 */
#include "server/fast_uv.h"
#include "base/err.h"
#include "server/fastconn.h"
#include "server/server_uv.h"
#include "server/submit_uv.h"

#include <sys/random.h>

enum { QUEUED_MIN = 16 << 10 };

struct agx_fast_road {
        agx_fastconn conn;
        agx_list settling; /* streams whose reply is on its way */
        bool feeding;
        bool lost;
        bool held; /* the rest of a large value waits until the stream is drained */
};

static void pump(agx_http *h);

static uint64_t now_of(agx_http *h)
{
        return agx_loop_now(&h->server->loop);
}

static agx_http *http_of(agx_waiter *waiter, agx_fast_stream **s)
{
        *s = agx_container_of(waiter, agx_fast_stream, waiter);
        return (*s)->user;
}

/* ---- the end of a reply ---- */

static void settle(agx_http *h, agx_fast_stream *s, bool written)
{
        agx_call *call = s->settling;

        s->settling = NULL;
        if (call) {
                call->waiter = NULL;
                if (written)
                        agx_ledger_answered(h->server->calls.ledger, call, now_of(h));
                else
                        agx_server_deliver(h->server, call);
        }
        agx_fastconn_free(s);
}

static void settle_all(agx_http *h, bool written)
{
        agx_list *node;
        bool some = !agx_list_empty(&h->fast->settling);

        while ((node = agx_list_first(&h->fast->settling)))
                settle(h, agx_container_of(node, agx_fast_stream, gone), written);
        if (some)
                agx_server_ledger_touched(h->server);
}

/* ---- calls ---- */

static int put_outcome(agx_fast_stream *s, const agx_call *call, bool copy)
{
        if (!call->ok && !call->payload.len)
                return agx_fastconn_reply_unavailable(s);
        return agx_fastconn_reply_result(s, call->ok, agx_buf_view(&call->payload), copy);
}

/* `kept`: the ledger may drop it any moment. */
static int write_outcome(agx_http *h, agx_fast_stream *s, agx_call *call, bool kept)
{
        int r = put_outcome(s, call, kept);

        s->settling = kept ? NULL : call;
        call->waiter = kept ? NULL : &s->waiter;
        if (!kept)
                return r;
        agx_ledger_answered(h->server->calls.ledger, call, now_of(h));
        agx_server_ledger_touched(h->server);
        return r;
}

static void on_deliver(agx_waiter *waiter, agx_call *call)
{
        agx_fast_stream *s;
        agx_http *h = http_of(waiter, &s);

        s->call = NULL;
        if (write_outcome(h, s, call, false))
                agx_http_close(h);
        else
                pump(h);
}

static void on_forget(agx_waiter *waiter, agx_call *call)
{
        agx_fast_stream *s;
        agx_http *h = http_of(waiter, &s);
        bool queued = s->settling == call && agx_list_empty(&s->gone);

        if (s->settling == call)
                s->settling = NULL;
        if (queued) { /* its bytes are somebody else's */
                agx_fastconn_take_back(s);
                agx_fastconn_free(s);
        } else if (s->call == call) {
                s->call = NULL;
                if (agx_fastconn_reply_accepted(s, agx_call_id(call))) {
                        agx_http_close(h);
                        return;
                }
        }
        pump(h);
}

static int let_go(agx_fast_stream *s)
{
        agx_call *call = s->call;

        s->call = NULL;
        call->waiter = NULL;
        return agx_fastconn_reply_accepted(s, agx_call_id(call));
}

static int submit(agx_http *h, agx_fast_stream *s)
{
        agx_submission given = {.request = &s->request,
                                .session = agx_fastconn_session(&h->fast->conn),
                                .waiter = &s->waiter,
                                .waits = &s->call};
        agx_fault fault;
        agx_call *call;
        agx_submitted verdict = agx_submit_uv(h->server, &given, &call, &fault);

        agx_fastconn_submitted(s);
        switch (verdict) {
        case AGX_SUBMITTED_WAITS:
                return s->call && !s->wait_ms ? let_go(s) : 0;
        case AGX_SUBMITTED_ACCEPTED:
                return agx_fastconn_reply_accepted(s, agx_call_id(call));
        case AGX_SUBMITTED_ENDED:
                return write_outcome(h, s, call, call->kept);
        case AGX_SUBMITTED_FAULT:
                return agx_fastconn_reply_fault(s, &fault);
        case AGX_SUBMITTED_NO_MEMORY:
                break;
        }
        return agx_fastconn_reply_unavailable(s);
}

/* ---- out ---- */

static void take_gone(agx_http *h)
{
        agx_fast_stream *s;

        while ((s = agx_fastconn_next_gone(&h->fast->conn, now_of(h))))
                agx_list_push_back(&h->fast->settling, &s->gone);
}

/* Sends all of a small run of bytes, of a large one what can be. How much is dealt with: `*sent` more. */
static int send_run(agx_http *h, agx_view run, bool more, size_t *sent)
{
        size_t taken = run.n;
        int r = more || run.n < AGX_HTTP_OUT ? agx_buf_append_view(agx_stream_out(&h->stream), run)
                                             : agx_stream_send_part(&h->stream, run, QUEUED_MIN, &taken);

        *sent += taken;
        h->fast->held = taken < run.n;
        return r;
}

/* One run of bytes more, if there is any. */
static bool send_some(agx_http *h)
{
        agx_fast *fast = h->fast->conn.fast;
        agx_view segments[2];
        int n = agx_fast_pending(fast, segments), r = 0;
        size_t sent = 0;

        if (n < 0)
                r = n;
        for (int i = 0; !r && i < n; ++i)
                r = send_run(h, segments[i], i + 1 < n, &sent);
        if (r) {
                agx_http_close(h);
                return false;
        }
        agx_fast_sent(fast, sent);
        take_gone(h);
        return n > 0;
}

/* Whoever does not read is not heard either. */
static bool is_full(const agx_http *h)
{
        return h->fast->held || agx_stream_queued(&h->stream) >= AGX_FAST_OUT_LOW;
}

static void pump(agx_http *h)
{
        if (h->fast->feeding || h->ending || agx_stream_closing(&h->stream))
                return;
        while (!is_full(h) && send_some(h))
                ;
        if (agx_stream_closing(&h->stream))
                return;
        agx_stream_touch(&h->stream);
        if (!agx_stream_queued(&h->stream))
                settle_all(h, true);
        if (is_full(h))
                agx_stream_pause(&h->stream);
        else if (agx_stream_read(&h->stream))
                agx_http_close(h);
        if (h->server->site.draining && !h->fast->conn.n_streams)
                agx_http_finish(h);
        else if (!agx_stream_closing(&h->stream))
                agx_deadline_set(&h->deadline, agx_fastconn_deadline(&h->fast->conn));
}

/* Who has taken all that was queued does read, and is heard in this turn even if there is more for him at once: else a large
 * reply would keep his calls waiting until its end. */
void agx_fast_road_drained(agx_http *h)
{
        h->fast->held = false;
        settle_all(h, true);
        pump(h);
        if (!h->ending && !agx_stream_closing(&h->stream) && agx_stream_read(&h->stream))
                agx_http_close(h);
}

/* ---- in ---- */

static int carry_out(agx_http *h, agx_fastconn_wish wish, agx_fast_stream *s)
{
        if (wish != AGX_FASTCONN_SUBMIT)
                return 0;
        s->user = h;
        s->waiter = (agx_waiter){.deliver = on_deliver, .forget = on_forget};
        return submit(h, s);
}

void agx_fast_road_feed(agx_http *h, agx_view in)
{
        agx_fastconn_wish wish = AGX_FASTCONN_SUBMIT;
        agx_fast_stream *s = NULL;
        int r = 0;

        h->fast->feeding = true;
        while (!r && wish == AGX_FASTCONN_SUBMIT) {
                r = agx_fastconn_next(&h->fast->conn, now_of(h), &in, &wish, &s);
                if (!r)
                        r = carry_out(h, wish, s);
        }
        h->fast->feeding = false;
        if (agx_stream_closing(&h->stream))
                return;
        if (r) {
                agx_http_close(h);
                return;
        }
        pump(h);
        if (wish == AGX_FASTCONN_CLOSE && !agx_stream_closing(&h->stream))
                agx_http_finish(h);
}

bool agx_fast_road_place(agx_http *h, char **place, size_t *n)
{
        return agx_fastconn_place(&h->fast->conn, place, n);
}

void agx_fast_road_tick(agx_http *h)
{
        agx_fast_stream *s;
        int r = 0;

        while (!r && (s = agx_fastconn_late(&h->fast->conn, now_of(h))))
                r = s->call ? let_go(s) : 0;
        if (r)
                agx_http_close(h);
        else if (agx_fastconn_is_idle(&h->fast->conn, now_of(h)))
                agx_http_finish(h);
        else
                pump(h);
}

void agx_fast_road_drain(agx_http *h)
{
        pump(h);
}

/* ---- the beginning and the end ---- */

int agx_fast_road_begin(agx_http *h)
{
        agx_fast_road *road = calloc(1, sizeof(*road));
        uint8_t seed[16] = {0}; /* a server masks nothing */
        int r;

        if (!road)
                return agx_trace(-ENOMEM);
        agx_list_init(&road->settling);
        r = agx_fastconn_init(&road->conn, h->conn.session, seed, now_of(h));
        road->conn.shared = &h->server->gather;
        h->fast = road;
        return r ? r : agx_conn_reply_upgrade(&h->conn);
}

void agx_fast_road_lost(agx_http *h)
{
        agx_fast_road *road = h->fast;

        if (!road || road->lost)
                return;
        road->lost = true;
        for (size_t i = 0; i < AGX_FAST_STREAMS_MAX; ++i) {
                agx_fast_stream *s = road->conn.streams[i];
                agx_call *call = s ? s->settling : NULL;

                if (s && s->call)
                        s->call->waiter = NULL;
                if (s)
                        s->call = s->settling = NULL;
                if (call) {
                        call->waiter = NULL;
                        agx_server_deliver(h->server, call);
                }
        }
        settle_all(h, false);
}

void agx_fast_road_free(agx_http *h)
{
        if (!h->fast)
                return;
        agx_fastconn_deinit(&h->fast->conn);
        free(h->fast);
}
