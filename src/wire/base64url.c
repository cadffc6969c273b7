/*
 * nettle does the work; what it lets pass (blanks, padding, left-over bits) changes the number of bytes or the bits
 * that remain, and both are compared with the one right value.
 */
#include "wire/base64url.h"

#include <nettle/base64.h>

void agx_base64url_encode(agx_view v, char *out)
{
        struct base64_encode_ctx ctx;
        char last[BASE64_ENCODE_FINAL_LENGTH];
        size_t n;

        base64url_encode_init(&ctx);
        n = base64_encode_update(&ctx, out, v.n, (const uint8_t *)v.p);
        if (n < AGX_BASE64URL_LENGTH(v.n)) {
                base64_encode_final(&ctx, last);
                out[n] = last[0]; /* the rest is padding */
        }
}

bool agx_base64url_decode(agx_view text, uint8_t *out, size_t n)
{
        struct base64_decode_ctx ctx;
        size_t got = 0;

        if (n > SIZE_MAX / 4 - 1 || text.n != AGX_BASE64URL_LENGTH(n))
                return false;
        base64url_decode_init(&ctx);
        for (size_t i = 0; i < text.n; ++i) {
                uint8_t byte;
                int r = base64_decode_single(&ctx, &byte, text.p[i]);

                if (r < 0)
                        return false;
                if (r > 0)
                        out[got++] = byte;
        }
        return got == n && !(ctx.word & ((1u << ctx.bits) - 1));
}
