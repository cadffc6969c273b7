/* Any bytes as JSON: no crash, no over-read, every view inside the input; a walk over the tokens and a skip agree; what
 * was accepted, written again, reads as the same tokens. */
#include <stdint.h>
#include <stdlib.h>

#include "wire/json.h"

enum { DEPTH = 16 };

static void must(bool holds)
{
        if (!holds)
                abort();
}

/* Writes a STRING or KEY anew from what it says. */
static void copy_text(agx_json_writer *w, const agx_json_token *t)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(SIZE_MAX);

        must(agx_json_text(t, &text) == 0);
        must(agx_json_is(t, agx_buf_view(&text)));
        (t->kind == AGX_JSON_KEY ? agx_json_put_key : agx_json_put_string)(w, agx_buf_view(&text));
}

static void copy(agx_json_writer *w, const agx_json_token *t)
{
        switch (t->kind) {
        case AGX_JSON_NULL:
                agx_json_put_null(w);
                break;
        case AGX_JSON_BOOL:
                agx_json_put_bool(w, t->b);
                break;
        case AGX_JSON_NUMBER:
                agx_json_put_raw(w, t->v);
                break;
        case AGX_JSON_ARRAY:
                agx_json_put_array(w);
                break;
        case AGX_JSON_ARRAY_END:
                agx_json_put_array_end(w);
                break;
        case AGX_JSON_OBJECT:
                agx_json_put_object(w);
                break;
        case AGX_JSON_OBJECT_END:
                agx_json_put_object_end(w);
                break;
        default:
                copy_text(w, t);
        }
}

/* Reads all of `in` and writes it anew; whether it was accepted. */
static bool rewrite(agx_view in, agx_buf *out)
{
        agx_json_reader r = agx_json_reader_on(in, DEPTH);
        agx_json_writer w = agx_json_writer_on(out);
        agx_json_token t;

        for (;;) {
                t = agx_json_next(&r);
                if (t.kind == AGX_JSON_END || t.kind == AGX_JSON_ERROR)
                        break;
                if (t.v.p)
                        must(t.v.p >= in.p && t.v.n <= (size_t)(in.p + in.n - t.v.p));
                copy(&w, &t);
        }
        must((t.kind == AGX_JSON_ERROR) == (r.error != NULL));
        must(agx_json_writer_end(&w) == 0);
        return !r.error;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        _cleanup_(agx_buf_deinitp) agx_buf once = AGX_BUF_NULL(SIZE_MAX), twice = AGX_BUF_NULL(SIZE_MAX);
        agx_view in = agx_view_of(data, size), value;
        agx_json_reader r = agx_json_reader_on(in, DEPTH);
        bool good = rewrite(in, &once);

        value = agx_json_skip(&r);
        must((value.p && agx_json_done(&r)) == good);
        if (!good)
                return 0;
        must(rewrite(agx_buf_view(&once), &twice));
        must(agx_view_eq(agx_buf_view(&once), agx_buf_view(&twice)));
        return 0;
}
