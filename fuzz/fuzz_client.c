/*
 * A whole client session against a hostile server: the input says what the shell and the server do, step by step.
 *
 * The first byte chooses the session (a token or none, https or not, reconnection or not, one road or two), the second
 * into what pieces bytes are cut. Then steps: one byte says which, and on which connection or call; a feeding step is
 * followed by a 16-bit length and that many bytes. Whatever comes, the token leaves only after a proof,
 * which no input can contain, and every call ends at most once, and has ended after the shutdown.
 */
#include "client/session.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CONNS = 8, CALLS = 16, WORK_MAX = 64 };
enum { STEP_FEED, STEP_EOF, STEP_ERROR, STEP_TIME, STEP_CALL, STEP_ABANDON, STEP_HEALTH, STEP_STALL };

#define TOKEN "token-of-the-fuzzer"

typedef struct run {
        agx_client *client;
        agx_client_conn *conns[CONNS];
        agx_client_call *calls[CALLS];
        uint64_t now;
        size_t cut;
        bool secret;  /* the token must not be seen */
        bool stalled; /* the socket takes nothing */
} run;

static void must(bool condition)
{
        if (!condition)
                __builtin_trap();
}

static void check_secret(const run *r, agx_view v)
{
        if (r->secret && v.n)
                must(!memmem(v.p, v.n, TOKEN, sizeof(TOKEN) - 1));
}

static void forget_call(run *r, const agx_client_call *call)
{
        for (size_t i = 0; i < CALLS; ++i)
                if (r->calls[i] == call)
                        r->calls[i] = NULL;
}

static void take_done(run *r)
{
        agx_client_call *call;

        while ((call = agx_client_next_done(r->client))) {
                const agx_client_result *result = agx_client_call_result(call);
                volatile size_t sum = result->value.n + result->fault.type.n + result->fault.message.n;

                (void)sum;
                must(result->outcome != AGX_CLIENT_PENDING);
                forget_call(r, call);
                agx_client_call_free(r->client, call, r->now);
        }
}

static void do_open(run *r, agx_client_conn *conn)
{
        static const uint8_t nonce[AGX_CLIENT_NONCE_BYTES] = {1};

        for (size_t i = 0; i < CONNS; ++i) {
                if (!r->conns[i]) {
                        r->conns[i] = conn;
                        agx_client_opened(r->client, conn, nonce, r->now);
                        return;
                }
        }
        agx_client_open_failed(r->client, conn, "too many", r->now);
}

static void do_write(run *r, agx_client_conn *conn)
{
        agx_view segments[2];

        while (!r->stalled && agx_client_conn_pending(conn, segments)) {
                check_secret(r, segments[0]);
                agx_client_conn_sent(conn, segments[0].n);
        }
}

static void do_close(run *r, agx_client_conn *conn)
{
        for (size_t i = 0; i < CONNS; ++i)
                if (r->conns[i] == conn)
                        r->conns[i] = NULL;
        agx_client_conn_free(r->client, conn);
}

/* Bounded: a session that never comes to rest is a failure. */
static void work(run *r)
{
        for (int i = 0; i < WORK_MAX * CONNS; ++i) {
                agx_client_wish wish = agx_client_next_wish(r->client);

                if (wish.kind == AGX_CLIENT_WISH_NONE) {
                        take_done(r);
                        return;
                }
                if (wish.kind == AGX_CLIENT_WISH_OPEN)
                        do_open(r, wish.conn);
                else if (wish.kind == AGX_CLIENT_WISH_WRITE)
                        do_write(r, wish.conn);
                else
                        do_close(r, wish.conn);
        }
        must(false);
}

static void feed(run *r, size_t at, agx_view bytes)
{
        while (bytes.n && r->conns[at]) {
                agx_client_conn *conn = r->conns[at];
                size_t n = r->cut && r->cut < bytes.n ? r->cut : bytes.n;
                agx_view place = agx_client_conn_place(conn);

                if (place.n) {
                        n = n < place.n ? n : place.n;
                        memcpy((void *)(uintptr_t)place.p, bytes.p, n);
                        agx_client_input(r->client, conn, agx_view_of(place.p, n), r->now);
                } else {
                        agx_client_input(r->client, conn, agx_view_first(bytes, n), r->now);
                }
                bytes = agx_view_from(bytes, n);
                work(r);
        }
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

static void start(run *r, size_t at, bool health)
{
        agx_client_call **call = &r->calls[at];

        if (*call)
                return;
        if (health)
                agx_client_ask_health(r->client, NULL, r->now, call);
        else
                agx_client_start(r->client, AGX_VIEW("m::f"), AGX_VIEW("arguments"), AGX_VIEW_NULL,
                                 at & 1 ? 3000 : UINT64_MAX, NULL, r->now, call);
}

static void abandon(run *r, size_t at)
{
        agx_client_call *call = r->calls[at];

        r->calls[at] = NULL;
        if (call)
                agx_client_call_free(r->client, call, r->now);
}

static void step(run *r, agx_view *in)
{
        size_t byte = take_byte(in), which = byte & 7, at = byte >> 3;
        agx_client_conn *conn = r->conns[at % CONNS];
        size_t low;

        switch (which) {
        case STEP_FEED:
                low = take_byte(in);
                feed(r, at % CONNS, take(in, low | take_byte(in) << 8));
                break;
        case STEP_EOF:
        case STEP_ERROR:
                if (conn)
                        agx_client_ended(r->client, conn, which == STEP_EOF ? NULL : "reset", r->now);
                break;
        case STEP_TIME:
                r->now += (uint64_t)1 << (at & 15);
                agx_client_tick(r->client, r->now);
                break;
        case STEP_CALL:
                start(r, at % CALLS, false);
                break;
        case STEP_ABANDON:
                abandon(r, at % CALLS);
                break;
        case STEP_HEALTH:
                start(r, at % CALLS, true);
                break;
        case STEP_STALL:
                r->stalled = !r->stalled;
                break;
        default:
                break;
        }
        work(r);
}

static agx_client_config config_of(size_t choice)
{
        return (agx_client_config){
                .host = AGX_VIEW("h"),
                .prefix = AGX_VIEW(""),
                .headers = AGX_VIEW(""),
                .token = choice & 1 ? AGX_VIEW(TOKEN) : AGX_VIEW_NULL,
                .secure = choice & 2,
                .timeout_ms = 2000,
                .reconnect = !(choice & 4),
                .attempts = 3,
                .delay_ms = 10,
                .delay_max_ms = 100,
                .jitter = 50,
                .link = choice & 8,
                .http_sync_ms = choice & 16 ? UINT64_MAX : 100,
        };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view in = agx_view_of(data, size);
        size_t choice = take_byte(&in);
        agx_client_config config = config_of(choice);
        run r = {.now = 1000, .cut = take_byte(&in), .secret = (choice & 3) == 1};

        if (agx_client_new(&r.client, &config))
                return 0;
        while (in.n)
                step(&r, &in);
        r.stalled = false;
        agx_client_shutdown(r.client, "over", r.now);
        work(&r);
        for (size_t i = 0; i < CALLS; ++i)
                must(!r.calls[i]);
        must(agx_client_timer(r.client) == UINT64_MAX);
        agx_client_free(r.client);
        return 0;
}
