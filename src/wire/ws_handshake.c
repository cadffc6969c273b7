/*
 * Both ends of the opening. A field that may occur once is refused when it is repeated; lists may be spread over several
 * lines. The key must be what 16 bytes look like in base64, its unused last bits zero.
 */
#include "wire/ws_handshake.h"
#include "base/err.h"

#include <nettle/base64.h>
#include <nettle/sha1.h>

static const agx_view guid = {"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36};

void agx_ws_accept(agx_view key, char accept[AGX_WS_ACCEPT_CHARS])
{
        uint8_t digest[SHA1_DIGEST_SIZE];
        struct sha1_ctx ctx;

        sha1_init(&ctx);
        sha1_update(&ctx, key.n, (const uint8_t *)key.p);
        sha1_update(&ctx, guid.n, (const uint8_t *)guid.p);
        sha1_digest(&ctx, sizeof(digest), digest);
        base64_encode_raw(accept, sizeof(digest), digest);
}

/* ---- subprotocols ---- */

static bool is_token(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] <= ' ' || v.p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", v.p[i]))
                        return false;
        return v.n > 0;
}

static bool list_of_tokens(agx_view list)
{
        agx_view part;

        while (agx_view_split(&list, ',', &part))
                if (!is_token(agx_view_trim(part)))
                        return false;
        return true;
}

/* Subprotocols are compared exactly, unlike other tokens. */
static bool list_has(agx_view list, agx_view token)
{
        agx_view part;

        while (agx_view_split(&list, ',', &part))
                if (agx_view_eq(agx_view_trim(part), token))
                        return true;
        return false;
}

static bool is_offer(const agx_http1_field *field)
{
        return agx_view_ieq(field->name, AGX_VIEW("Sec-WebSocket-Protocol"));
}

static bool offers_are_tokens(const agx_http1_head *head)
{
        for (size_t i = 0; i < head->n_fields; ++i)
                if (is_offer(&head->fields[i]) && !list_of_tokens(head->fields[i].value))
                        return false;
        return true;
}

static bool offered(const agx_http1_head *head, agx_view token)
{
        for (size_t i = 0; i < head->n_fields; ++i)
                if (is_offer(&head->fields[i]) && list_has(head->fields[i].value, token))
                        return true;
        return false;
}

static agx_view choose(const agx_http1_head *head, const agx_view *ours, size_t n_ours)
{
        for (size_t i = 0; i < n_ours; ++i)
                if (offered(head, ours[i]))
                        return ours[i];
        return AGX_VIEW_NULL;
}

/* ---- server ---- */

static int refuse(agx_ws_request *request, int error, const char *reason)
{
        request->reason = reason;
        return error;
}

static bool is_key(agx_view v)
{
        struct base64_decode_ctx ctx;
        uint8_t nonce[BASE64_DECODE_LENGTH(AGX_WS_KEY_CHARS)];
        char again[BASE64_ENCODE_RAW_LENGTH(AGX_WS_NONCE_BYTES)];
        size_t n = sizeof(nonce);

        if (v.n != AGX_WS_KEY_CHARS)
                return false;
        base64_decode_init(&ctx);
        if (!base64_decode_update(&ctx, &n, nonce, v.n, v.p) || n != AGX_WS_NONCE_BYTES)
                return false;
        base64_encode_raw(again, n, nonce);
        return memcmp(again, v.p, v.n) == 0;
}

static bool asks_for_websocket(const agx_http1_head *head)
{
        return agx_http1_field_has_token(head, AGX_VIEW("Upgrade"), AGX_VIEW("websocket")) &&
               agx_http1_field_has_token(head, AGX_VIEW("Connection"), AGX_VIEW("upgrade"));
}

int agx_ws_check_request(const agx_http1_head *head, const agx_view *ours, size_t n_ours, agx_ws_request *request)
{
        agx_view version;
        bool repeated;

        *request = (agx_ws_request){0};
        if (!asks_for_websocket(head))
                return refuse(request, AGX_WS_HANDSHAKE_E_UPGRADE, "not a request for a WebSocket");
        if (!agx_view_eq(head->method, AGX_VIEW("GET")))
                return refuse(request, AGX_WS_HANDSHAKE_E_METHOD, "a WebSocket is asked for by GET");
        if (!head->http11)
                return refuse(request, AGX_WS_HANDSHAKE_E_BAD, "a WebSocket needs HTTP/1.1");
        if (head->chunked || (head->has_length && head->length))
                return refuse(request, AGX_WS_HANDSHAKE_E_BAD, "a request for a WebSocket has no body");
        version = agx_http1_field_get(head, AGX_VIEW("Sec-WebSocket-Version"), &repeated);
        if (!version.p && !repeated)
                return refuse(request, AGX_WS_HANDSHAKE_E_BAD, "no Sec-WebSocket-Version");
        if (!agx_view_eq(version, AGX_VIEW("13")))
                return refuse(request, AGX_WS_HANDSHAKE_E_VERSION, "not version 13 of the WebSocket protocol");
        request->key = agx_http1_field_get(head, AGX_VIEW("Sec-WebSocket-Key"), NULL);
        if (!request->key.p || !is_key(request->key))
                return refuse(request, AGX_WS_HANDSHAKE_E_BAD, "not one well-formed Sec-WebSocket-Key");
        if (!offers_are_tokens(head))
                return refuse(request, AGX_WS_HANDSHAKE_E_BAD, "a malformed Sec-WebSocket-Protocol");
        request->protocol = choose(head, ours, n_ours);
        return 0;
}

static int put_answer_fields(agx_buf *out, agx_view accept, agx_view protocol)
{
        int r = agx_http1_put_status(out, 101);

        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Upgrade"), AGX_VIEW("websocket"));
        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Connection"), AGX_VIEW("Upgrade"));
        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Sec-WebSocket-Accept"), accept);
        if (!r && protocol.p)
                r = agx_http1_put_field(out, AGX_VIEW("Sec-WebSocket-Protocol"), protocol);
        return r ? r : agx_http1_put_end(out);
}

int agx_ws_put_reply(agx_buf *out, const agx_ws_request *request)
{
        char accept[AGX_WS_ACCEPT_CHARS];

        agx_ws_accept(request->key, accept);
        return put_answer_fields(out, agx_view_of(accept, sizeof(accept)), request->protocol);
}

/* ---- client ---- */

agx_ws_opening agx_ws_opening_on(const uint8_t nonce[AGX_WS_NONCE_BYTES])
{
        agx_ws_opening opening;

        base64_encode_raw(opening.key, AGX_WS_NONCE_BYTES, nonce);
        return opening;
}

static int put_offers(agx_buf *out, const agx_view *protocols, size_t n)
{
        int r = 0;

        for (size_t i = 0; i < n && !r; ++i)
                r = is_token(protocols[i]) ? agx_http1_put_field(out, AGX_VIEW("Sec-WebSocket-Protocol"), protocols[i])
                                           : agx_trace(-EINVAL);
        return r;
}

int agx_ws_put_request_fields(agx_buf *out, const agx_ws_opening *opening, const agx_view *protocols,
                              size_t n_protocols)
{
        agx_view key = agx_view_of(opening->key, sizeof(opening->key));
        int r = agx_http1_put_field(out, AGX_VIEW("Upgrade"), AGX_VIEW("websocket"));

        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Connection"), AGX_VIEW("Upgrade"));
        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Sec-WebSocket-Version"), AGX_VIEW("13"));
        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Sec-WebSocket-Key"), key);
        return r ? r : put_offers(out, protocols, n_protocols);
}

static bool accepts(const agx_http1_head *head, const agx_ws_opening *opening)
{
        char accept[AGX_WS_ACCEPT_CHARS];

        agx_ws_accept(agx_view_of(opening->key, sizeof(opening->key)), accept);
        return agx_view_eq(agx_http1_field_get(head, AGX_VIEW("Sec-WebSocket-Accept"), NULL),
                           agx_view_of(accept, sizeof(accept)));
}

/* At most one subprotocol, and one that was offered. */
static bool agreed(const agx_http1_head *head, const agx_view *protocols, size_t n, agx_view *protocol)
{
        bool repeated;
        agx_view got = agx_http1_field_get(head, AGX_VIEW("Sec-WebSocket-Protocol"), &repeated);

        *protocol = AGX_VIEW_NULL;
        if (repeated || !got.p)
                return !repeated;
        for (size_t i = 0; i < n; ++i)
                if (agx_view_eq(got, protocols[i]))
                        *protocol = protocols[i];
        return protocol->p != NULL;
}

static bool has_field(const agx_http1_head *head, agx_view name)
{
        bool repeated;
        agx_view value = agx_http1_field_get(head, name, &repeated);

        return value.p || repeated;
}

static const char *wrong_reply(const agx_http1_head *head, const agx_ws_opening *opening)
{
        if (head->status != 101 || !head->http11)
                return "the server did not switch to a WebSocket";
        if (!agx_view_ieq(agx_http1_field_get(head, AGX_VIEW("Upgrade"), NULL), AGX_VIEW("websocket")))
                return "a 101 for something other than a WebSocket";
        if (!agx_http1_field_has_token(head, AGX_VIEW("Connection"), AGX_VIEW("upgrade")))
                return "a 101 without Connection: Upgrade";
        if (!accepts(head, opening))
                return "a wrong Sec-WebSocket-Accept";
        if (has_field(head, AGX_VIEW("Sec-WebSocket-Extensions")))
                return "an extension that was not offered";
        return NULL;
}

int agx_ws_check_reply(const agx_http1_head *head, const agx_ws_opening *opening, const agx_view *protocols,
                       size_t n_protocols, agx_view *protocol, const char **reason)
{
        *protocol = AGX_VIEW_NULL;
        *reason = wrong_reply(head, opening);
        if (!*reason && !agreed(head, protocols, n_protocols, protocol))
                *reason = "a subprotocol that was not offered";
        return *reason ? AGX_WS_HANDSHAKE_E_BAD : 0;
}
