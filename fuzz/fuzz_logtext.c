/* Any bytes as output, as a record and as a template: lines of the log file are valid UTF-8 without control characters but
 * their newlines, records are msgpack that reads back, and nothing begins a line but what the server writes there. */
#include "base/utf8.h"
#include "proto/limits.h"
#include "server/logtext.h"
#include "wire/msgpack.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

static void check_lines(const agx_buf *out)
{
        agx_view v = agx_buf_view(out);

        need(agx_utf8_valid(v));
        need(v.n && v.p[v.n - 1] == '\n');
        for (size_t i = 0; i < v.n; ++i) {
                unsigned char c = (unsigned char)v.p[i];

                need(c >= 0x20 || c == '\n');
                need(c != 0x7f);
                need(!(c == 0xc2 && (unsigned char)v.p[i + 1] < 0xa0));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view input = agx_view_of(data, size < AGX_OUTPUT_LINE ? size : AGX_OUTPUT_LINE);
        agx_log_line line = {.created = 1e9, .text = input, .worker_id = AGX_VIEW("w"), .context = AGX_VIEW("c")};
        agx_log_names names = {AGX_VIEW("u"), AGX_VIEW("h"), AGX_VIEW("i"), 7};
        agx_buf out = AGX_BUF_NULL(1 << 24);

        for (int fd = 0; fd < 3; ++fd) {
                agx_mp_reader r;
                agx_view v;

                line.fd = fd;
                agx_buf_clear(&out);
                need(agx_log_put_line(&out, &line) == 0);
                check_lines(&out);
                v = agx_buf_view(&out);
                need(memchr(v.p, '\n', v.n) == v.p + v.n - 1);
                agx_buf_clear(&out);
                need(agx_log_put_record(&out, &line) == 0);
                r = agx_mp_reader_on(agx_buf_view(&out));
                need(agx_mp_skip(&r, 4) && agx_mp_done(&r));
        }
        agx_buf_clear(&out);
        need(agx_log_put_record_lines(&out, input) == 0);
        check_lines(&out);
        agx_buf_clear(&out);
        need(agx_log_expand(&out, input, &names) == 0);
        agx_buf_deinit(&out);
        return 0;
}
