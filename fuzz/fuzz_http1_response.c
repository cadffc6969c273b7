/* Any bytes as responses: no crash, no over-read, and the same events whole, in two pieces and byte by byte. The first
 * byte of the input says where the two pieces part and, from 240 on, that the responses answer HEAD. */
#include <stdint.h>
#include <stdlib.h>

#include "support/http1_log.h"

/* Small, so that every bound is met by small inputs. */
static agx_http1_feed feed = {
        .role = AGX_HTTP1_CLIENT,
        .fields = true,
        .bounds = {.head_max = 500, .headers_max = 8, .chunk_line_max = 40, .trailer_max = 60, .body_max = 300},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_buf logs[3] = {AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX)};
        agx_view in;

        if (size < 2)
                return 0;
        in = agx_view_of(data + 1, size - 1);
        feed.no_body = data[0] >= 0xf0;
        agx_http1_log(&logs[0], &feed, in, in.n, in.n);
        agx_http1_log(&logs[1], &feed, in, 1 + data[0] % in.n, in.n);
        agx_http1_log(&logs[2], &feed, in, 1, 1);
        for (int i = 1; i < 3; ++i)
                if (!agx_view_eq(agx_buf_view(&logs[0]), agx_buf_view(&logs[i])))
                        abort();
        for (int i = 0; i < 3; ++i)
                agx_buf_deinit(&logs[i]);
        return 0;
}
