/*
 * Any bytes as what a peer sends on one connection, split where the first bytes say: no crash, no over-read; whole and in
 * pieces the server answers the same, byte for byte, and submits the same calls. Only the words of a last refusal may
 * differ: of several things wrong in one message, the parser names the one it meets first.
 */
#include "proto/limits.h"
#include "server/conn.h"

#include <stdlib.h>

enum { OUT_MAX = 1 << 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

/* One life of a connection; submitted calls are answered at once, in a way that depends on them. */
typedef struct life {
        agx_site site;
        agx_conn conn;
        agx_buf out;
        agx_buf rest;
        bool closed;
} life;

static void begin(life *l, bool token)
{
        *l = (life){.out = AGX_BUF_NULL(OUT_MAX), .rest = AGX_BUF_NULL(OUT_MAX)};
        agx_auth_init(&l->site.auth);
        l->site.version = AGX_VIEW("0");
        l->site.instance = AGX_VIEW("i");
        if (token)
                need(!agx_auth_set_token(&l->site.auth, AGX_VIEW("t")));
        need(!agx_auth_set_hosts(&l->site.auth, AGX_VIEW("h.example")));
        need(!agx_conn_init(&l->conn, &l->site, &l->out, 0));
}

static void end(life *l)
{
        agx_conn_deinit(&l->conn);
        agx_auth_deinit(&l->site.auth);
        agx_buf_deinit(&l->out);
        agx_buf_deinit(&l->rest);
}

static void answer(life *l)
{
        const agx_call_request *r = &l->conn.request;
        agx_fault fault = {.type = AGX_VIEW("T"), .message = r->call_id};

        switch (r->call_id.n % 3) {
        case 0:
                need(!agx_conn_reply_accepted(&l->conn, 0, r->call_id));
                break;
        case 1:
                need(!agx_conn_reply_fault(&l->conn, 0, &fault));
                break;
        default:
                need(!agx_conn_reply_result(&l->conn, 0, true, r->arguments.n));
                need(!agx_buf_append_view(&l->out, r->arguments));
        }
}

/* A request for Socket.IO, in a way that depends on it; after a 101 there is no more HTTP. */
static void answer_sio(life *l)
{
        const agx_conn_sio *sio = &l->conn.sio;

        if (sio->websocket) {
                need(!agx_conn_reply_upgrade(&l->conn));
                l->closed = true;
        } else if (sio->sid.n % 2) {
                need(!agx_conn_reply_refusal(&l->conn, 0, 400, "no such session"));
        } else {
                need(!agx_conn_reply_payload(&l->conn, 0, sio->body.n));
                need(!agx_buf_append_view(&l->out, sio->body));
        }
}

static void feed(life *l, agx_view bytes)
{
        agx_conn_wish wish = AGX_CONN_NONE;
        agx_view in = bytes;

        while (!l->closed && wish != AGX_CONN_INPUT) {
                need(!agx_conn_next(&l->conn, 0, &in, &wish));
                need(wish != AGX_CONN_WAIT);
                l->closed = wish == AGX_CONN_CLOSE;
                if (wish == AGX_CONN_SIO)
                        answer_sio(l);
                if (wish == AGX_CONN_CONDUIT) {
                        need(l->conn.conduit.n == AGX_CONDUIT_NAME);
                        need(!agx_conn_reply_conduit(&l->conn, 0));
                        l->closed = true;
                }
                if (wish == AGX_CONN_SUBMIT) {
                        /* the payload of a result lies in the request: answer before it goes */
                        agx_buf arguments = AGX_BUF_NULL(OUT_MAX);

                        need(!agx_buf_append_view(&arguments, l->conn.request.arguments));
                        if (l->conn.request.arguments.p)
                                l->conn.request.arguments = agx_buf_view(&arguments);
                        answer(l);
                        agx_buf_deinit(&arguments);
                }
        }
}

/* What was answered, a last refusal reduced to its status line. */
static agx_view answers(const life *l)
{
        static const char refusal[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain";
        agx_view all = agx_buf_view(&l->out);
        const char *at = NULL, *next = all.p;
        size_t n = sizeof(refusal) - 1;

        while (l->closed && (next = memmem(next, (size_t)(all.p + all.n - next), refusal, n)))
                at = next++;
        return at ? agx_view_first(all, (size_t)(at - all.p) + n) : all;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        size_t step;
        life whole, pieces;

        if (size < 2)
                return 0;
        step = data[0] % 64 + 1u;
        begin(&whole, data[1] & 1);
        begin(&pieces, data[1] & 1);
        feed(&whole, agx_view_of(data + 2, size - 2));
        for (size_t at = 2; at < size; at += step)
                feed(&pieces, agx_view_of(data + at, at + step < size ? step : size - at));
        need(whole.closed == pieces.closed);
        need(agx_view_eq(answers(&whole), answers(&pieces)));
        end(&whole);
        end(&pieces);
        return 0;
}
