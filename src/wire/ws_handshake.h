#ifndef AGX_WIRE_WS_HANDSHAKE_H
#define AGX_WIRE_WS_HANDSHAKE_H
/*
 * The opening of a WebSocket (RFC 6455, section 4), over heads that agx_http1 has read, for both roles. No extension is
 * offered or accepted; of the subprotocols at most one is agreed upon. What else a request must satisfy (path, Origin,
 * authorization) is the caller's to judge.
 */
#include "wire/http1.h"

enum { AGX_WS_NONCE_BYTES = 16, AGX_WS_KEY_CHARS = 24, AGX_WS_ACCEPT_CHARS = 28 };

/* ---- server ---- */

/* What agx_ws_check_request() returns besides 0; each maps to a status. */
enum {
        AGX_WS_HANDSHAKE_E_BAD = 1, /* 400 */
        AGX_WS_HANDSHAKE_E_METHOD,  /* 405 */
        AGX_WS_HANDSHAKE_E_UPGRADE, /* 426: not a request for a WebSocket at all */
        AGX_WS_HANDSHAKE_E_VERSION  /* 426 with "Sec-WebSocket-Version: 13" */
};

typedef struct agx_ws_request {
        agx_view key; /* as sent; lives as the head does */
        agx_view protocol;
        const char *reason; /* a few words on an error, static */
} agx_ws_request;

/* Judges a request; `ours` are the subprotocols we speak, in order of preference. request->protocol is the first of them
 * that was offered, or absent: then it is the caller's to refuse, if it cannot do without. */
int agx_ws_check_request(const agx_http1_head *head, const agx_view *ours, size_t n_ours, agx_ws_request *request);
/* The whole 101. Errors are those of agx_buf_append. */
int agx_ws_put_reply(agx_buf *out, const agx_ws_request *request);

/* ---- client ---- */

typedef struct agx_ws_opening {
        char key[AGX_WS_KEY_CHARS];
} agx_ws_opening;

agx_ws_opening agx_ws_opening_on(const uint8_t nonce[AGX_WS_NONCE_BYTES]);
/* The fields that make a GET a request for a WebSocket; `protocols` may be none. The caller puts the request line, Host
 * and whatever else before or after them. Errors are those of agx_http1_put_field. */
int agx_ws_put_request_fields(agx_buf *out, const agx_ws_opening *opening, const agx_view *protocols,
                              size_t n_protocols);
/* Judges the answer to it: 0, or AGX_WS_HANDSHAKE_E_BAD with *reason; head->status tells what the server made of it.
 * *protocol is one of `protocols`, or absent. */
int agx_ws_check_reply(const agx_http1_head *head, const agx_ws_opening *opening, const agx_view *protocols,
                       size_t n_protocols, agx_view *protocol, const char **reason);

/* Sec-WebSocket-Accept for a key. */
void agx_ws_accept(agx_view key, char accept[AGX_WS_ACCEPT_CHARS]);

#endif
