/*
 * What does not change from call to call is written once, when the session begins: a POST up to its length, a GET up to
 * its challenge. The token is only in the former, so no code path can put it into the latter.
 */
#include "base/err.h"
#include "client/state.h"
#include "proto/proof.h"
#include "wire/base64url.h"
#include "wire/prefer.h"

#include <stdio.h>

int agx_request_put_target(agx_buf *out, agx_view method, agx_view prefix, agx_view path)
{
        _cleanup_(agx_buf_deinitp) agx_buf target = AGX_BUF_NULL(AGX_HTTP_HEAD_MAX);
        int r;

        r = agx_buf_append_view(&target, prefix);
        if (!r)
                r = agx_buf_append_view(&target, path);
        return r ? r : agx_http1_put_request(out, method, agx_buf_view(&target));
}

/* How long the server is asked to wait: less than we do ourselves, so that its 202 comes before we lose patience. */
static uint64_t wait_ms(uint64_t timeout_ms)
{
        uint64_t margin = timeout_ms / 4 < 5000 ? timeout_ms / 4 : 5000;
        uint64_t wait = timeout_ms - margin;

        return wait < AGX_HTTP_WAIT_MAX_S * 1000ull ? wait : AGX_HTTP_WAIT_MAX_S * 1000ull;
}

static int put_prefer(agx_buf *out, uint64_t milliseconds)
{
        _cleanup_(agx_buf_deinitp) agx_buf value = AGX_BUF_NULL(128);
        int r;

        r = agx_buf_append_view(&value, AGX_VIEW("respond-async, "));
        if (!r)
                r = agx_prefer_put_wait(&value, milliseconds);
        return r ? r : agx_http1_put_field(out, AGX_VIEW("Prefer"), agx_buf_view(&value));
}

static int put_token(agx_buf *out, agx_view token)
{
        _cleanup_(agx_buf_deinitp) agx_buf value = AGX_BUF_NULL(AGX_HTTP_HEAD_MAX);
        int r;

        r = agx_buf_append_view(&value, AGX_VIEW("Bearer "));
        if (!r)
                r = agx_buf_append_view(&value, token);
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Authorization"), agx_buf_view(&value));
        if (value.data)
                explicit_bzero(value.data, value.cap);
        return r;
}

int agx_request_put_health(agx_buf *out, const agx_client_config *config)
{
        int r;

        r = agx_request_put_target(out, AGX_VIEW("GET"), config->prefix, AGX_VIEW("/health"));
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Host"), config->host);
        return r ? r : agx_buf_append_view(out, config->headers);
}

static int put_call_head(agx_buf *out, const agx_client_config *config, agx_view session, uint64_t wait)
{
        int r;

        r = agx_request_put_target(out, AGX_VIEW("POST"), config->prefix, AGX_VIEW("/call"));
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Host"), config->host);
        if (!r && config->token.p)
                r = put_token(out, config->token);
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Agentix-Session"), session);
        if (!r)
                r = put_prefer(out, wait);
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Content-Type"), AGX_VIEW("application/msgpack"));
        return r ? r : agx_buf_append_view(out, config->headers);
}

int agx_request_put_fields(agx_buf *out, const agx_client_config *config)
{
        int r;

        r = agx_http1_put_field(out, AGX_VIEW("Host"), config->host);
        if (!r && config->token.p)
                r = put_token(out, config->token);
        return r ? r : agx_buf_append_view(out, config->headers);
}

static int put_fast_head(agx_buf *out, const agx_client_config *config, agx_view session)
{
        int r;

        r = agx_request_put_target(out, AGX_VIEW("GET"), config->prefix, AGX_VIEW("/agentix"));
        if (!r)
                r = agx_http1_put_field(out, AGX_VIEW("Agentix-Session"), session);
        return r ? r : agx_request_put_fields(out, config);
}

int agx_request_heads(agx_client *c, const agx_client_config *config)
{
        uint64_t wait = wait_ms(config->timeout_ms), sync = config->http_sync_ms < wait ? config->http_sync_ms : wait;
        int r;

        c->call_wait_ms = sync;
        c->long_wait_ms = wait;
        r = agx_request_put_health(&c->health_head, config);
        if (!r)
                r = put_call_head(&c->call_head, config, agx_client_session_name(c), sync);
        if (!r)
                r = put_call_head(&c->long_head, config, agx_client_session_name(c), wait);
        if (!r)
                r = put_fast_head(&c->fast_head, config, agx_client_session_name(c));
        if (!r)
                r = agx_buf_append_view(&c->link_path, config->prefix);
        if (!r)
                r = agx_buf_append_view(&c->link_path, AGX_VIEW("/socket.io/"));
        if (!r)
                r = agx_request_put_fields(&c->link_fields, config);
        return r > 0 ? -EINVAL : r; /* no room: texts that long are not meant */
}

static void put_acks(agx_client *c, agx_mp_writer *w, size_t n)
{
        char id[AGX_CLIENT_ID_MAX + 1];

        agx_mp_put_str(w, AGX_VIEW("acks"));
        agx_mp_put_array(w, n);
        for (size_t i = 0; i < n; ++i)
                agx_mp_put_str(w, agx_calls_id(c, c->acks[(c->ack_first + i) % AGX_CLIENT_ACKS_KEPT], id));
}

int agx_request_whole(agx_client_call *call)
{
        size_t n = call->before.n + call->arguments.n + call->after.n;
        int r;

        if (n == call->arguments.n)
                return 0;
        call->whole = AGX_BUF_NULL(n);
        r = agx_buf_append_view(&call->whole, call->before);
        if (!r)
                r = agx_buf_append_view(&call->whole, call->arguments);
        if (!r)
                r = agx_buf_append_view(&call->whole, call->after);
        if (r)
                return agx_trace(-ENOMEM);
        call->arguments = agx_buf_view(&call->whole);
        call->before = call->after = AGX_VIEW_NULL;
        return 0;
}

/* The body but for arguments that are sent from where they lie; these come last. */
static int put_body(agx_client *c, agx_buf *out, const agx_client_call *call, agx_view arguments, size_t around,
                    size_t n_acks, bool apart)
{
        agx_mp_writer w = agx_mp_writer_on(out);
        char id[AGX_CLIENT_ID_MAX + 1];

        agx_mp_put_map(&w, 3u + (call->context.p != NULL) + (call->window > 0) + (n_acks > 0));
        agx_mp_put_str(&w, AGX_VIEW("call_id"));
        agx_mp_put_str(&w, agx_calls_id(c, call->counter, id));
        agx_mp_put_str(&w, AGX_VIEW("callable"));
        agx_mp_put_str(&w, call->callable);
        if (n_acks)
                put_acks(c, &w, n_acks);
        if (call->window) {
                agx_mp_put_str(&w, AGX_VIEW("stream"));
                agx_mp_put_uint(&w, call->window);
        }
        if (call->context.p) {
                agx_mp_put_str(&w, AGX_VIEW("context"));
                agx_mp_put_bin(&w, call->context);
        }
        agx_mp_put_str(&w, AGX_VIEW("arguments"));
        if (apart)
                agx_mp_put_bin_head(&w, arguments.n + around);
        else
                agx_mp_put_bin(&w, arguments);
        return agx_mp_writer_end(&w);
}

/* What was put aside so that its length is known before it. */
static int put_request(agx_client *c, agx_httpconn *http, size_t length)
{
        int r;

        r = agx_buf_append_view(&http->out, agx_buf_view(agx_road_is_open(c) ? &c->call_head : &c->long_head));
        if (!r)
                r = agx_http1_put_length(&http->out, length);
        if (!r)
                r = agx_http1_put_end(&http->out);
        return r ? r : agx_buf_append_view(&http->out, agx_buf_view(&c->scratch));
}

int agx_request_call(agx_client *c, agx_client_conn *conn, agx_client_call *call)
{
        bool in_parts = conn->carrier && call->arguments.n > AGX_CLIENT_INLINE_MAX;
        int r = call->accepted || in_parts ? 0 : agx_request_whole(call);
        agx_view arguments = call->accepted ? AGX_VIEW("") : call->arguments;
        size_t around = call->accepted ? 0 : call->before.n + call->after.n;
        size_t n_acks = c->n_acks < AGX_CLIENT_ACKS_SENT ? c->n_acks : AGX_CLIENT_ACKS_SENT;
        bool apart = arguments.n > AGX_CLIENT_INLINE_MAX;
        agx_httpconn *http = &conn->http;
        agx_buf *body = conn->carrier ? &http->out : &c->scratch; /* a stream says by itself where a body ends */
        size_t length;

        if (r)
                return r;
        if (arguments.n > AGX_MAX_MESSAGE || call->callable.n > AGX_MAX_CALLABLE)
                return AGX_BUF_E_FULL;
        agx_buf_clear(&c->scratch);
        agx_httpconn_begin(http, AGX_MAX_MESSAGE);
        r = put_body(c, body, call, arguments, around, n_acks, apart);
        if (!r && around)
                r = agx_buf_append_view(body, call->before);
        if (r)
                return r;
        conn->after = around ? call->after : AGX_VIEW_NULL;
        length = body->len + conn->after.n + (apart ? arguments.n : 0);
        if (length > AGX_MAX_MESSAGE)
                return AGX_BUF_E_FULL;
        r = conn->carrier ? 0 : put_request(c, http, length);
        if (r)
                return r;
        if (apart)
                http->tail = arguments;
        for (; n_acks; --n_acks) { /* without memory for the note, a lost one is not said again */
                agx_buf_append(&conn->acks, &c->acks[c->ack_first], sizeof(c->acks[0]));
                c->ack_first = (c->ack_first + 1) % AGX_CLIENT_ACKS_KEPT;
                --c->n_acks;
        }
        return 0;
}

int agx_request_health(agx_client *c, agx_client_conn *conn)
{
        char challenge[AGX_NONCE_CHARS];
        agx_httpconn *http = &conn->http;
        int r;

        agx_base64url_encode(agx_view_of(conn->nonce, sizeof(conn->nonce)), challenge);
        agx_httpconn_begin(http, AGX_HEALTH_BODY_MAX);
        r = agx_buf_append_view(&http->out, agx_buf_view(&c->health_head));
        if (!r)
                r = agx_http1_put_field(&http->out, AGX_VIEW("Agentix-Challenge"),
                                        agx_view_of(challenge, sizeof(challenge)));
        /* Once the server has proved itself: the connection then counts for its lease. */
        if (!r && conn->state != CONN_PROVING && c->token.len)
                r = put_token(&http->out, agx_buf_view(&c->token));
        return r ? r : agx_http1_put_end(&http->out);
}

int agx_request_fast(agx_client *c, agx_client_conn *conn)
{
        static const agx_view ours[] = {{AGX_FAST_PROTOCOL, sizeof(AGX_FAST_PROTOCOL) - 1}};
        agx_httpconn *http = &conn->http;
        int r;

        agx_httpconn_begin(http, AGX_HEALTH_BODY_MAX);
        http->switching = true;
        r = agx_buf_append_view(&http->out, agx_buf_view(&c->fast_head));
        if (!r)
                r = agx_ws_put_request_fields(&http->out, &conn->opening, ours, 1);
        return r ? r : agx_http1_put_end(&http->out);
}
