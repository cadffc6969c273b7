/*
 * The client's second road against a hostile server that has proved itself, accepted the WebSocket and let us join: the
 * input says what it sends from there on, and what the shell does meanwhile. Or it refuses the WebSocket, and all this
 * happens over long-polling, with a move to a WebSocket if the input wants it so.
 *
 * The first byte chooses the session, the second into what pieces bytes are cut. Then steps, a byte each; some are
 * followed by a length and so many bytes: raw, or as a text or binary message in a well-formed frame, or as the answer to
 * the request that waits. Half of the calls take items, some at once, some when time passes. Whatever comes, every call
 * ends at most once and has ended after the shutdown, no more items come than were asked for and none after the end, and
 * nothing that was lent is looked at afterwards.
 */
#include "client/session.h"
#include "wire/ws_handshake.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNS = 8, CALLS = 16, WORK_MAX = 4096, LARGE = 40000 };
enum { STEP_RAW, STEP_TEXT, STEP_BINARY, STEP_TIME, STEP_CALL, STEP_ABANDON, STEP_DROP, STEP_STALL };

typedef struct end {
        agx_client_conn *conn;
        agx_buf request;
        int stage;    /* 0: a head is awaited, 1: the handshake is done, 2: joined; 3: a lane of long-polling */
        bool waiting; /* 3: a GET that is to be answered by a step */
} end;

typedef struct run {
        agx_client *client;
        end ends[CONNS];
        agx_client_call *calls[CALLS];
        char *arguments[CALLS];
        struct {
                uint64_t window, held; /* items that were taken and not consumed */
                size_t bytes;
        } streams[CALLS];
        uint64_t now;
        size_t cut;
        bool stalled;
        bool polling, moves;
        int polls; /* of this session so far */
} run;

static void must(bool condition)
{
        if (!condition)
                __builtin_trap();
}

static void forget(run *r, size_t at)
{
        r->calls[at] = NULL;
        free(r->arguments[at]);
        r->arguments[at] = NULL;
}

static size_t place_of(const run *r, const agx_client_call *call)
{
        for (size_t i = 0; i < CALLS; ++i)
                if (r->calls[i] == call)
                        return i;
        must(false);
        return 0;
}

static void consume(run *r, size_t at)
{
        if (r->calls[at] && r->streams[at].held)
                agx_client_consumed(r->client, r->calls[at], r->streams[at].held, r->streams[at].bytes, r->now);
        r->streams[at].held = r->streams[at].bytes = 0;
}

static void take_items(run *r)
{
        agx_client_call *call;

        while ((call = agx_client_next_streaming(r->client))) {
                agx_buf body = AGX_BUF_NULL(0);
                size_t at = place_of(r, call);
                volatile size_t sum = 0;
                agx_view value;

                while (agx_client_call_next_item(r->client, call, &body, &value)) {
                        (void)sum;
                        for (size_t i = 0; i < value.n; ++i)
                                sum += (uint8_t)value.p[i];
                        must(++r->streams[at].held <= r->streams[at].window);
                        r->streams[at].bytes += value.n;
                        agx_buf_deinit(&body);
                }
                if (at & 1)
                        consume(r, at);
        }
}

static void take_done(run *r)
{
        agx_client_call *call;

        while ((call = agx_client_next_done(r->client))) {
                const agx_client_result *result = agx_client_call_result(call);
                volatile size_t sum = 0;

                (void)sum;
                must(result->outcome != AGX_CLIENT_PENDING);
                for (size_t i = 0; i < result->value.n; ++i)
                        sum += (uint8_t)result->value.p[i];
                for (size_t i = 0; i < result->fault.message.n; ++i)
                        sum += (uint8_t)result->fault.message.p[i];
                for (size_t i = 0; i < CALLS; ++i)
                        if (r->calls[i] == call)
                                forget(r, i);
                agx_client_call_free(r->client, call, r->now);
        }
}

static void give(run *r, end *e, agx_view bytes)
{
        while (bytes.n && e->conn) {
                size_t n = r->cut && r->cut < bytes.n ? r->cut : bytes.n;
                agx_view place = agx_client_conn_place(e->conn);

                if (place.n) {
                        n = n < place.n ? n : place.n;
                        memcpy((void *)(uintptr_t)place.p, bytes.p, n);
                        agx_client_input(r->client, e->conn, agx_view_of(place.p, n), r->now);
                } else {
                        agx_client_input(r->client, e->conn, agx_view_first(bytes, n), r->now);
                }
                bytes = agx_view_from(bytes, n);
        }
}

static void give_frame(run *r, end *e, bool text, agx_view data)
{
        char frame[4 + 65535];

        frame[0] = (char)(text ? 0x81 : 0x82);
        frame[1] = (char)(data.n < 126 ? data.n : 126);
        frame[2] = (char)(data.n >> 8);
        frame[3] = (char)data.n;
        memcpy(frame + (data.n < 126 ? 2 : 4), data.p, data.n);
        give(r, e, agx_view_of(frame, data.n + (data.n < 126 ? 2 : 4)));
}

static void give_reply(run *r, end *e, agx_view body)
{
        char head[64];
        int n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", body.n);

        e->waiting = false;
        agx_buf_clear(&e->request);
        give(r, e, agx_view_of(head, (size_t)n));
        give(r, e, body);
}

/* A whole request of long-polling: the first two GETs are answered as they should be, the others by steps. */
static void answer_polling(run *r, end *e)
{
        static const char opening[] =
                "0{\"sid\":\"s\",\"upgrades\":[\"websocket\"],\"pingInterval\":9,\"pingTimeout\":99}";
        static const char plain[] = "0{\"sid\":\"s\",\"upgrades\":[],\"pingInterval\":9,\"pingTimeout\":99}";
        agx_view in = agx_buf_view(&e->request);

        e->stage = 3;
        if (agx_view_starts(in, AGX_VIEW("POST"))) {
                give_reply(r, e, AGX_VIEW("ok"));
                return;
        }
        if (!memmem(in.p, in.n, "sid=", 4))
                r->polls = 0;
        if (r->polls == 0)
                give_reply(r, e,
                           r->moves ? agx_view_of(opening, sizeof(opening) - 1)
                                    : agx_view_of(plain, sizeof(plain) - 1));
        else if (r->polls == 1)
                give_reply(r, e, AGX_VIEW("40/rpc,{\"sid\":\"x\",\"instance\":\"one\"}"));
        else
                e->waiting = true;
        ++r->polls;
}

/* Whether all of a request is there: no body of a POST ends with an empty line. */
static bool is_whole(agx_view in)
{
        static const char length[] = "Content-Length: ";
        const char *at = memmem(in.p, in.n, length, sizeof(length) - 1), *body = memmem(in.p, in.n, "\r\n\r\n", 4);

        return body && (!at || (size_t)(in.p + in.n - body - 4) >= (size_t)strtoul(at + sizeof(length) - 1, NULL, 10));
}

/* The honest part: answers what was asked, if it has come whole. */
static void answer(run *r, end *e)
{
        static const char key_name[] = "Sec-WebSocket-Key: ";
        static const char health[] = "HTTP/1.1 200 OK\r\nContent-Length: 46\r\n\r\n"
                                     "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"one\"}";
        char accept[AGX_WS_ACCEPT_CHARS], reply[256];
        agx_view in = agx_buf_view(&e->request);
        const char *key;
        int n;

        if (!is_whole(in))
                return;
        if (memmem(in.p, in.n, "transport=polling", 17)) {
                answer_polling(r, e);
                return;
        }
        key = memmem(in.p, in.n, key_name, sizeof(key_name) - 1);
        if (!key) {
                agx_buf_clear(&e->request);
                give(r, e, agx_view_of(health, sizeof(health) - 1));
                return;
        }
        if (r->polling && !memmem(in.p, in.n, "sid=", 4)) {
                agx_buf_clear(&e->request);
                give(r, e, AGX_VIEW("HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"));
                return;
        }
        agx_ws_accept(agx_view_of(key + sizeof(key_name) - 1, AGX_WS_KEY_CHARS), accept);
        n = snprintf(
                reply, sizeof(reply),
                "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %.*s\r\n\r\n",
                (int)sizeof(accept), accept);
        e->stage = r->polling ? 2 : 1;
        give(r, e, agx_view_of(reply, (size_t)n));
        if (e->conn && !r->polling)
                give_frame(r, e, true,
                           AGX_VIEW("0{\"sid\":\"s\",\"upgrades\":[],\"pingInterval\":9,\"pingTimeout\":99}"));
}

static void do_write(run *r, end *e)
{
        agx_view segments[2];

        while (!r->stalled && agx_client_conn_pending(e->conn, segments)) {
                if (!e->stage || e->stage == 3)
                        must(agx_buf_append_view(&e->request, segments[0]) == 0);
                agx_client_conn_sent(e->conn, segments[0].n);
        }
        if (!r->stalled && e->conn && (!e->stage || (e->stage == 3 && !e->waiting && e->request.len)))
                answer(r, e);
        else if (!r->stalled && e->stage == 1) {
                e->stage = 2;
                give_frame(r, e, true, AGX_VIEW("40/rpc,{\"sid\":\"x\",\"instance\":\"one\"}"));
        }
}

static end *end_of(run *r, const agx_client_conn *conn)
{
        for (size_t i = 0; i < CONNS; ++i)
                if (r->ends[i].conn == conn)
                        return &r->ends[i];
        return NULL;
}

static void do_open(run *r, agx_client_conn *conn)
{
        static const uint8_t nonce[AGX_CLIENT_NONCE_BYTES] = {1};
        end *e = end_of(r, NULL);

        if (!e) {
                agx_client_open_failed(r->client, conn, "too many", r->now);
                return;
        }
        agx_buf_clear(&e->request);
        e->conn = conn;
        e->waiting = false;
        e->stage = 0;
        agx_client_opened(r->client, conn, nonce, r->now);
}

static void do_close(run *r, agx_client_conn *conn)
{
        end *e = end_of(r, conn);

        if (e)
                e->conn = NULL;
        agx_client_conn_free(r->client, conn);
}

static void work(run *r)
{
        for (int i = 0; i < WORK_MAX; ++i) {
                agx_client_wish wish = agx_client_next_wish(r->client);

                if (wish.kind == AGX_CLIENT_WISH_NONE) {
                        take_items(r);
                        take_done(r);
                        return;
                }
                if (wish.kind == AGX_CLIENT_WISH_OPEN)
                        do_open(r, wish.conn);
                else if (wish.kind == AGX_CLIENT_WISH_WRITE)
                        do_write(r, end_of(r, wish.conn));
                else
                        do_close(r, wish.conn);
        }
        must(false);
}

static agx_view take(agx_view *in, size_t n)
{
        agx_view taken = agx_view_first(*in, n);

        *in = agx_view_from(*in, taken.n);
        return taken;
}

static size_t take_byte(agx_view *in)
{
        agx_view v = take(in, 1);

        return v.n ? (uint8_t)v.p[0] : 0;
}

static void start(run *r, size_t at)
{
        size_t n = at & 2 ? LARGE : 10;

        if (r->calls[at])
                return;
        r->arguments[at] = malloc(n);
        must(r->arguments[at]);
        memset(r->arguments[at], 'a', n);
        r->streams[at].window = at & 8 ? 1 + (at & 7) : 0;
        r->streams[at].held = r->streams[at].bytes = 0;
        if (agx_client_start_stream(r->client, AGX_VIEW("m::f"), agx_view_of(r->arguments[at], n), AGX_VIEW_NULL,
                                    r->streams[at].window, at & 1 ? 3000 : UINT64_MAX, NULL, r->now, &r->calls[at]))
                forget(r, at);
}

static void abandon(run *r, size_t at)
{
        if (!r->calls[at])
                return;
        agx_client_call_free(r->client, r->calls[at], r->now);
        forget(r, at);
}

/* An end that hears what the server says: the first there is, or the last. */
static end *joined(run *r, bool last)
{
        end *found = NULL;

        for (size_t i = 0; i < CONNS && (last || !found); ++i)
                if (r->ends[i].conn && (r->ends[i].stage == 2 || r->ends[i].waiting))
                        found = &r->ends[i];
        return found;
}

static void say(run *r, size_t which, bool last, agx_view *in)
{
        size_t low = take_byte(in), n = low | take_byte(in) << 8;
        agx_view data = take(in, n);
        end *e = joined(r, last);

        if (!e)
                return;
        if (which == STEP_RAW)
                give(r, e, data);
        else if (e->waiting)
                give_reply(r, e, data);
        else
                give_frame(r, e, which == STEP_TEXT, data);
}

static void step(run *r, agx_view *in)
{
        size_t byte = take_byte(in), which = byte & 7, at = byte >> 3;
        end *e = joined(r, at & 1);

        switch (which) {
        case STEP_RAW:
        case STEP_TEXT:
        case STEP_BINARY:
                say(r, which, at & 1, in);
                break;
        case STEP_TIME:
                r->now += (uint64_t)1 << (at & 15);
                agx_client_tick(r->client, r->now);
                for (size_t i = 0; i < CALLS; ++i)
                        consume(r, i);
                break;
        case STEP_CALL:
                start(r, at % CALLS);
                break;
        case STEP_ABANDON:
                abandon(r, at % CALLS);
                break;
        case STEP_DROP:
                if (e)
                        agx_client_ended(r->client, e->conn, "reset", r->now);
                break;
        default:
                r->stalled = !r->stalled;
                break;
        }
        work(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view in = agx_view_of(data, size);
        size_t choice = take_byte(&in);
        agx_client_config config = {.host = AGX_VIEW("h"),
                                    .prefix = AGX_VIEW(""),
                                    .headers = AGX_VIEW(""),
                                    .timeout_ms = 2000,
                                    .reconnect = !(choice & 1),
                                    .attempts = 3,
                                    .delay_ms = 10,
                                    .delay_max_ms = 100,
                                    .link = true,
                                    .http_sync_ms = UINT64_MAX,
                                    .grace_ms = 5000};
        run r = {.now = 1000, .cut = take_byte(&in), .polling = choice & 2, .moves = choice & 4};

        if (agx_client_new(&r.client, &config))
                return 0;
        for (size_t i = 0; i < CONNS; ++i)
                r.ends[i].request = AGX_BUF_NULL(1 << 20);
        while (in.n)
                step(&r, &in);
        r.stalled = false;
        agx_client_shutdown(r.client, "over", r.now);
        work(&r);
        for (size_t i = 0; i < CALLS; ++i)
                must(!r.calls[i]);
        must(agx_client_timer(r.client) == UINT64_MAX);
        agx_client_free(r.client);
        for (size_t i = 0; i < CONNS; ++i)
                agx_buf_deinit(&r.ends[i].request);
        return 0;
}
