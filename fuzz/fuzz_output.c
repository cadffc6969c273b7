/*
 * Any bytes as a worker's output: the lines together are what was written, whatever the split, and the tail is valid
 * UTF-8 without control bytes.
 */
#include "base/utf8.h"
#include "proto/limits.h"
#include "worker/output.h"

#include <stdlib.h>

enum { OUT_MAX = 1 << 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

static void put(agx_buf *out, const agx_output_line *line)
{
        need(line->text.n <= AGX_OUTPUT_LINE + 3);
        need(!memchr(line->text.p ? line->text.p : "", '\n', line->text.n));
        need(!agx_buf_append_view(out, line->text));
        if (!line->cut)
                need(!agx_buf_append(out, "\n", 1));
}

static void lines_of(agx_view all, size_t step, agx_buf *out)
{
        agx_output_line line;
        agx_output o;

        agx_output_init(&o);
        while (all.n) {
                agx_view in = agx_view_first(all, step);

                all = agx_view_from(all, in.n);
                while (agx_output_next(&o, &in, &line))
                        put(out, &line);
        }
        while (agx_output_flush(&o, &line))
                put(out, &line);
        agx_output_deinit(&o);
}

static void check_tail(agx_view all, size_t max)
{
        agx_buf text = AGX_BUF_NULL(OUT_MAX);
        agx_view shown;
        agx_tail t;

        agx_tail_init(&t);
        agx_tail_write(&t, all);
        need(!agx_tail_text(&t, max, &text));
        shown = agx_buf_view(&text);
        need(agx_utf8_valid(shown));
        for (size_t i = 0; i < shown.n; i++)
                need((unsigned char)shown.p[i] >= ' ' || shown.p[i] == '\n' || shown.p[i] == '\t');
        agx_tail_deinit(&t);
        agx_buf_deinit(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_buf out = AGX_BUF_NULL(OUT_MAX);
        agx_view all;

        if (!size)
                return 0;
        all = agx_view_of(data + 1, size - 1);
        lines_of(all, data[0] + 1u, &out);
        need(agx_view_eq(agx_buf_view(&out), all));
        check_tail(all, data[0] * 16u);
        agx_buf_deinit(&out);
        return 0;
}
