#ifndef AGX_PROTO_PROOF_H
#define AGX_PROTO_PROOF_H
/*
 * How a server proves that it knows the sandbox's token before a client sends it anything.
 *
 * The client asks GET /health with `Agentix-Challenge: <32 random bytes, base64url>`; the server's answer carries
 * `Agentix-Proof: base64url(HMAC-SHA256(token, "agentix/1 server" || nonce || instance))`, where nonce is the 32 raw bytes and
 * instance the text in the body.
 */
#include "base/view.h"

enum { AGX_NONCE_BYTES = 32, AGX_NONCE_CHARS = 43, AGX_PROOF_CHARS = 43 };

/* Writes the AGX_PROOF_CHARS characters of the proof. */
void agx_proof_make(agx_view token, const uint8_t nonce[AGX_NONCE_BYTES], agx_view instance, char out[AGX_PROOF_CHARS]);
/* Constant-time. */
bool agx_proof_check(agx_view token, const uint8_t nonce[AGX_NONCE_BYTES], agx_view instance, agx_view proof);

#endif
