/* Any bytes as frames of a client: no crash, no over-read, and the same events and answers whole, in two pieces and byte
 * by byte. The first byte of the input says where the two pieces part. */
#include <stdint.h>
#include <stdlib.h>

#include "support/ws_log.h"

/* Small, so that every bound is met by small inputs. */
static const agx_ws_feed feed = {
        .role = AGX_WS_SERVER,
        .bounds = {.message_max = 300, .fragments_max = 6, .frame_out = 64},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_buf logs[3] = {AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX), AGX_BUF_NULL(SIZE_MAX)};
        agx_view in;

        if (size < 2)
                return 0;
        in = agx_view_of(data + 1, size - 1);
        agx_ws_log(&logs[0], &feed, in, in.n, in.n);
        agx_ws_log(&logs[1], &feed, in, 1 + data[0] % in.n, in.n);
        agx_ws_log(&logs[2], &feed, in, 1, 1);
        for (int i = 1; i < 3; ++i)
                if (!agx_view_eq(agx_buf_view(&logs[0]), agx_buf_view(&logs[i])))
                        abort();
        for (int i = 0; i < 3; ++i)
                agx_buf_deinit(&logs[i]);
        return 0;
}
