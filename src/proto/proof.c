/* One HMAC over a label, the nonce and the instance. The label keeps the token's other uses, now or later, apart. */
#include "proto/proof.h"
#include "wire/base64url.h"

#include <nettle/hmac.h>

static const char label[] = "agentix/1 server";

void agx_proof_make(agx_view token, const uint8_t nonce[AGX_NONCE_BYTES], agx_view instance, char out[AGX_PROOF_CHARS])
{
        struct hmac_sha256_ctx ctx;
        uint8_t digest[SHA256_DIGEST_SIZE];

        hmac_sha256_set_key(&ctx, token.n, (const uint8_t *)token.p);
        hmac_sha256_update(&ctx, sizeof(label) - 1, (const uint8_t *)label);
        hmac_sha256_update(&ctx, AGX_NONCE_BYTES, nonce);
        hmac_sha256_update(&ctx, instance.n, (const uint8_t *)instance.p);
        hmac_sha256_digest(&ctx, sizeof(digest), digest);
        agx_base64url_encode(agx_view_of(digest, sizeof(digest)), out);
        explicit_bzero(&ctx, sizeof(ctx)); /* it holds the key */
}

bool agx_proof_check(agx_view token, const uint8_t nonce[AGX_NONCE_BYTES], agx_view instance, agx_view proof)
{
        char right[AGX_PROOF_CHARS];

        agx_proof_make(token, nonce, instance, right);
        return agx_view_eq_secret(agx_view_of(right, sizeof(right)), proof);
}
