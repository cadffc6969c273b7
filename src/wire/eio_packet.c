/*
 * Base64 goes through nettle. It passes over blanks and line ends, which have no place here, so the number of bytes that
 * came out is compared with the number that had to. Encoding runs over two views as one text: nettle keeps what is left
 * of a group of three between them.
 */
#include "wire/eio_packet.h"
#include "base/err.h"
#include "base/utf8.h"

#include <nettle/base64.h>

static const char separator = '\x1e';

static bool read_type(agx_view text, agx_eio_packet *packet)
{
        if (!text.n || text.p[0] < '0' || text.p[0] > '0' + AGX_EIO_NOOP)
                return false;
        *packet = (agx_eio_packet){.type = (agx_eio_type)(text.p[0] - '0'), .data = agx_view_from(text, 1)};
        return true;
}

bool agx_eio_packet_read(agx_view text, agx_eio_packet *packet)
{
        return read_type(text, packet);
}

bool agx_eio_packet_split(agx_view *payload, agx_eio_packet *packet)
{
        agx_view text;

        if (!agx_view_split(payload, separator, &text))
                return false;
        if (text.n && text.p[0] == 'b') {
                *packet = (agx_eio_packet){.type = AGX_EIO_MESSAGE, .binary = true, .data = agx_view_from(text, 1)};
                return true;
        }
        return read_type(text, packet) && agx_utf8_valid(packet->data);
}

int agx_eio_base64_read(agx_view text, agx_buf *out)
{
        struct base64_decode_ctx ctx;
        size_t want = text.n / 4 * 3, got;
        uint8_t *at;
        int r;

        if (text.n % 4)
                return AGX_EIO_E_BASE64;
        if (!text.n)
                return 0;
        want -= (size_t)(text.p[text.n - 1] == '=') + (text.p[text.n - 2] == '=');
        r = agx_buf_reserve(out, BASE64_DECODE_LENGTH(text.n), &at);
        if (r)
                return r;
        base64_decode_init(&ctx);
        got = BASE64_DECODE_LENGTH(text.n);
        if (!base64_decode_update(&ctx, &got, at, text.n, text.p) || !base64_decode_final(&ctx) || got != want)
                return AGX_EIO_E_BASE64;
        agx_buf_commit(out, got);
        return 0;
}

size_t agx_eio_packet_size(bool binary, size_t n)
{
        return 1 + (binary ? BASE64_ENCODE_RAW_LENGTH(n) : n);
}

static char *put_base64(char *at, agx_view head, agx_view body)
{
        struct base64_encode_ctx ctx;

        base64_encode_init(&ctx);
        at += base64_encode_update(&ctx, at, head.n, (const uint8_t *)head.p);
        at += base64_encode_update(&ctx, at, body.n, (const uint8_t *)body.p);
        return at + base64_encode_final(&ctx, at);
}

static char *put_bytes(char *at, agx_view v)
{
        if (v.n)
                memcpy(at, v.p, v.n);
        return at + v.n;
}

int agx_eio_packet_put(agx_buf *out, agx_eio_type type, bool binary, agx_view head, agx_view body)
{
        size_t n = (out->len != 0) + agx_eio_packet_size(binary, head.n + body.n);
        uint8_t *place;
        char *at;
        int r = agx_buf_reserve(out, n, &place);

        if (r)
                return r;
        at = (char *)place;
        if (out->len)
                *at++ = separator;
        *at++ = binary ? 'b' : (char)('0' + type);
        if (binary)
                put_base64(at, head, body);
        else
                put_bytes(put_bytes(at, head), body);
        agx_buf_commit(out, n);
        return 0;
}
