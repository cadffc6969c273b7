/* Any bytes as msgpack: no crash, no over-read, every view inside the input; what agx_mp_skip() accepts, a walk over the
 * tokens passes as well, and msgpack-c's own unpacker ends at the same byte. */
#include <stdint.h>
#include <stdlib.h>

#include <msgpack.h>

#include "wire/msgpack.h"

enum { DEPTH = 16 };

static void must(bool holds)
{
        if (!holds)
                abort();
}

static bool has_view(agx_mp_kind kind)
{
        return kind == AGX_MP_STR || kind == AGX_MP_BIN || kind == AGX_MP_EXT;
}

/* One value by recursion, as a reader of messages would; the depth is bounded by the skip before it. */
static void walk(agx_mp_reader *r, agx_view in)
{
        agx_mp_token t = agx_mp_next(r);
        size_t inside = t.kind == AGX_MP_ARRAY ? t.count : t.kind == AGX_MP_MAP ? 2 * t.count : 0;

        must(t.kind != AGX_MP_END && t.kind != AGX_MP_ERROR);
        must(t.kind != AGX_MP_INT || t.i < 0);
        if (has_view(t.kind))
                must(t.v.p >= in.p && t.v.n <= (size_t)(in.p + in.n - t.v.p));
        while (inside--)
                walk(r, in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view in = agx_view_of(data, size);
        agx_mp_reader skipped = agx_mp_reader_on(in), walked = skipped, tokens = skipped;
        msgpack_unpacked result;
        size_t offset = 0;
        agx_mp_kind kind;

        do
                kind = agx_mp_next(&tokens).kind;
        while (kind != AGX_MP_END && kind != AGX_MP_ERROR);
        must((kind == AGX_MP_ERROR) == (tokens.error != NULL));
        if (!agx_mp_skip(&skipped, DEPTH)) {
                must(skipped.error != NULL);
                return 0;
        }
        walk(&walked, in);
        must(walked.rest.n == skipped.rest.n);
        msgpack_unpacked_init(&result);
        must(msgpack_unpack_next(&result, (const char *)data, size, &offset) == MSGPACK_UNPACK_SUCCESS);
        must(offset == size - skipped.rest.n);
        msgpack_unpacked_destroy(&result);
        return 0;
}
