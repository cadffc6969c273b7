#ifndef AGX_WIRE_BASE64URL_H
#define AGX_WIRE_BASE64URL_H
/* base64url without padding (RFC 4648, section 5), over nettle, for short fixed-size values. */
#include "base/view.h"

/* Characters that `n` bytes take. */
#define AGX_BASE64URL_LENGTH(n) (((n)*4 + 2) / 3)

/* Writes AGX_BASE64URL_LENGTH(v.n) characters to `out`, no terminator. */
void agx_base64url_encode(agx_view v, char *out);
/* Decodes exactly `n` bytes; false if `text` is not that, padding and non-canonical last bits included. */
bool agx_base64url_decode(agx_view text, uint8_t *out, size_t n);

#endif
