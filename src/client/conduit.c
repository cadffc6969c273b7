/*
 * Two exchanges on one connection. The first goes by httpconn, which refuses every byte too many, so the second begins
 * at the first byte of its answer and has a parser of its own. The request with the token lies apart until the proof is
 * there: what is in `out` can be sent to anybody.
 */
#include "client/conduit.h"
#include "base/err.h"
#include "client/state.h"
#include "proto/proof.h"
#include "wire/base64url.h"

static int put_health(agx_conduit *c, const agx_client_config *config)
{
        char challenge[AGX_NONCE_CHARS];
        int r;

        agx_base64url_encode(agx_view_of(c->nonce, sizeof(c->nonce)), challenge);
        r = agx_request_put_health(&c->out, config);
        if (!r)
                r = agx_http1_put_field(&c->out, AGX_VIEW("Agentix-Challenge"),
                                        agx_view_of(challenge, sizeof(challenge)));
        return r ? r : agx_http1_put_end(&c->out);
}

static int put_request(agx_conduit *c, const agx_client_config *config, agx_view name)
{
        _cleanup_(agx_buf_deinitp) agx_buf path = AGX_BUF_NULL(64 + AGX_CONDUIT_NAME);
        int r;

        r = agx_buf_append_view(&path, AGX_VIEW("/conduit?name="));
        if (!r)
                r = agx_buf_append_view(&path, name);
        if (!r)
                r = agx_request_put_target(&c->request, AGX_VIEW("GET"), config->prefix, agx_buf_view(&path));
        if (!r)
                r = agx_request_put_fields(&c->request, config);
        if (!r)
                r = agx_http1_put_field(&c->request, AGX_VIEW("Connection"), AGX_VIEW("Upgrade"));
        if (!r)
                r = agx_http1_put_field(&c->request, AGX_VIEW("Upgrade"), AGX_VIEW("agentix-conduit"));
        return r ? r : agx_http1_put_end(&c->request);
}

int agx_conduit_init(agx_conduit *c, const agx_client_config *config, agx_view name,
                     const uint8_t nonce[AGX_CLIENT_NONCE_BYTES])
{
        static const agx_http1_bounds bounds = {.head_max = AGX_HTTP_HEAD_MAX,
                                                .headers_max = AGX_HTTP_HEADERS_MAX,
                                                .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                                .trailer_max = AGX_HTTP_TRAILER_MAX,
                                                .body_max = AGX_HEALTH_BODY_MAX};
        int r;

        *c = (agx_conduit){.out = AGX_BUF_NULL(AGX_CLIENT_OUT_MAX),
                           .request = AGX_BUF_NULL(AGX_CLIENT_OUT_MAX),
                           .token = AGX_BUF_NULL(AGX_TOKEN_MAX)};
        memcpy(c->nonce, nonce, sizeof(c->nonce));
        r = agx_httpconn_init(&c->health);
        if (!r)
                r = agx_http1_new(&c->parser, AGX_HTTP1_CLIENT, &bounds);
        if (!r && config->token.n && !config->secure)
                r = agx_buf_append_view(&c->token, config->token);
        if (!r)
                r = put_request(c, config, name);
        if (!r)
                r = put_health(c, config);
        agx_httpconn_begin(&c->health, AGX_HEALTH_BODY_MAX);
        return r > 0 ? -EINVAL : r;
}

static void forget(agx_buf *b)
{
        if (b->data)
                explicit_bzero(b->data, b->cap);
        agx_buf_deinit(b);
}

void agx_conduit_deinit(agx_conduit *c)
{
        agx_httpconn_deinit(&c->health);
        if (c->parser)
                agx_http1_free(c->parser);
        forget(&c->out);
        forget(&c->request);
        forget(&c->token);
        *c = AGX_CONDUIT_NULL;
}

agx_view agx_conduit_pending(const agx_conduit *c)
{
        return agx_buf_view(&c->out);
}

void agx_conduit_sent(agx_conduit *c, size_t n)
{
        agx_buf_consume(&c->out, n);
}

static int broken(agx_conduit *c, const char *why)
{
        c->why = why;
        return AGX_CONDUIT_E_BROKEN;
}

/* Who answers /health may be told the token, or nobody is. */
static int proved(agx_conduit *c)
{
        agx_view proof = agx_httpconn_field(&c->health, AGX_VIEW("Agentix-Proof"));
        agx_health health;

        if (c->health.status != 200 || !agx_health_read(agx_buf_view(&c->health.body), &health))
                return broken(c, "its answer to GET /health is not an Agentix runtime's");
        if (c->token.len && (!proof.p || !agx_proof_check(agx_buf_view(&c->token), c->nonce, health.instance, proof)))
                return broken(c, "the server did not prove that it knows the token; the token was not sent to it");
        if (!c->health.reusable || c->out.len)
                return broken(c, "it closes every connection after one answer");
        c->asked = true;
        return agx_buf_append_view(&c->out, agx_buf_view(&c->request));
}

static int health_input(agx_conduit *c, agx_view in)
{
        int r = agx_httpconn_input(&c->health, in);

        if (r == AGX_HTTPCONN_E_BROKEN)
                return broken(c, c->health.why);
        return r == AGX_HTTPCONN_E_REPLY ? proved(c) : r;
}

/* Behind anybody else's 101 is another protocol, or none. */
static bool switches_to_conduit(const agx_http1_head *head)
{
        agx_view protocol = agx_view_trim(agx_http1_field_get(head, AGX_VIEW("Upgrade"), NULL));

        return agx_view_ieq(protocol, AGX_VIEW("agentix-conduit")) &&
               agx_http1_field_has_token(head, AGX_VIEW("Connection"), AGX_VIEW("upgrade"));
}

static int answer_input(agx_conduit *c, agx_view in)
{
        agx_http1_event event;

        do {
                int r = agx_http1_next(c->parser, &in, &event);

                if (r)
                        return r < 0 ? r : broken(c, agx_http1_reason(c->parser));
                if (event.kind == AGX_HTTP1_HEAD) {
                        c->status = event.head->status;
                        if (c->status != 101)
                                return AGX_CONDUIT_E_REFUSED;
                        if (!switches_to_conduit(event.head))
                                return broken(c, "its 101 does not say that the connection is a conduit now");
                }
                if (event.kind == AGX_HTTP1_END)
                        return in.n ? broken(c, "it spoke unasked") : AGX_CONDUIT_E_OPEN;
        } while (event.kind != AGX_HTTP1_MORE);
        return 0;
}

int agx_conduit_input(agx_conduit *c, agx_view in)
{
        if (!in.n)
                return 0;
        return c->asked ? answer_input(c, in) : health_input(c, in);
}
