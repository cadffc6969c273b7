#ifndef AGX_TEST_CLIENT_FAST_RIG_H
#define AGX_TEST_CLIENT_FAST_RIG_H
/*
 * The fixture of shell.h with the other end of the fast wire behind its connection.
 */
#include "shell.h"

#include "proto/fast.h"
#include "wire/ws_handshake.h"

static const uint8_t seed[16] = "0123456789abcdef";

typedef struct rig rig;

struct rig {
        fixture f;
        agx_fast *fast; /* the server's end */
        end *end;       /* and its connection */
        uint32_t first; /* the stream of the oldest call that was heard of */
        size_t n_begun, n_whole;
        unsigned early; /* the status of a reply to the first piece of the next call; 0: none */
};

static inline rig *rig_of(fixture *f)
{
        return (rig *)(void *)f;
}

/* ---- the server ---- */

/* Lets out what is pending, at most `max` bytes. */
static inline void let_out(rig *r, size_t max)
{
        agx_view segments[2];

        while (max && r->end->conn && agx_fast_pending(r->fast, segments) > 0) {
                agx_view some = agx_view_first(segments[0], max);

                give(&r->f, r->end, some);
                agx_fast_sent(r->fast, some.n);
                max -= some.n;
        }
        while (agx_fast_next_written(r->fast))
                ;
}

static inline agx_fast_value reply_of(uint32_t stream, unsigned status, agx_view head, agx_view tail)
{
        return (agx_fast_value){.kind = AGX_FAST_REPLY, .stream = stream, .word = status, .parts = {head, tail}};
}

/* The whole reply at once. */
static inline void reply(rig *r, uint32_t stream, unsigned status, agx_view value)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(100);
        agx_mp_writer w = agx_mp_writer_on(&body);
        agx_fast_value v;

        if (status == 200)
                agx_call_reply_put_value_head(&w, value.n);
        v = reply_of(stream, status, agx_buf_view(&body), status == 200 ? value : AGX_VIEW(""));
        agx_fast_send(r->fast, &v);
        let_out(r, SIZE_MAX);
        agx_fast_withdraw(r->fast, &v);
}

static inline void hear(fixture *f, end *e, agx_view in)
{
        rig *r = rig_of(f);
        agx_fast_piece piece;

        while (e == r->end && e->conn && !agx_fast_next(r->fast, &in, &piece)) {
                if (piece.kind != AGX_FAST_CALL)
                        continue;
                if (piece.first && !r->n_begun++)
                        r->first = piece.stream;
                r->n_whole += piece.last;
                if (piece.first && r->early) {
                        unsigned status = r->early;

                        r->early = 0;
                        reply(r, piece.stream, status, AGX_VIEW("early"));
                }
        }
}

static inline void accept_fast(rig *r, end *e)
{
        agx_ws_request request = {.key = agx_view_str(e->key), .protocol = AGX_VIEW(AGX_FAST_PROTOCOL)};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        agx_fast_free(r->fast);
        r->fast = NULL;
        assert_int_equal(agx_fast_new(&r->fast, false, false, seed), 0);
        assert_int_equal(agx_ws_put_reply(&out, &request), 0);
        r->end = e;
        e->asked = false;
        e->peer = r->fast;
        r->n_begun = r->n_whole = 0;
        give(&r->f, e, agx_buf_view(&out));
}

/* Carries out all wishes; the fast wire is to be had. */
static inline void settle(rig *r)
{
        work(&r->f);
        for (size_t i = 0; i < r->f.n_ends; ++i)
                if (r->f.ends[i].conn && r->f.ends[i].asked && r->f.ends[i].upgrade) {
                        accept_fast(r, &r->f.ends[i]);
                        work(&r->f);
                }
}

static inline void open_rig_with(rig *r, const agx_client_config *config)
{
        memset(r, 0, sizeof(*r));
        begin_with(&r->f, config);
        r->f.upgraded = hear;
        r->f.wires = "agentix.1";
}

static inline void open_rig(rig *r, bool fast, size_t reply_bytes)
{
        agx_client_config config = config_of(NULL);

        config.fast = fast;
        config.reply_bytes = reply_bytes;
        open_rig_with(r, &config);
}

static inline void close_rig(rig *r)
{
        finish(&r->f);
        agx_fast_free(r->fast);
}

#endif
