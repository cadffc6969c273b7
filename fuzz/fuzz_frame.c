/* Any bytes as a worker's stream: no crash, no over-read, the same payloads whole, in two pieces and byte by byte. A
 * payload that is a frame is written and read again and must come out the same. The first byte of the input says where
 * the two pieces part; the rest is also taken as one payload. */
#include "proto/frame.h"

#include <stdlib.h>

enum { MAX = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok)
{
        if (!ok)
                abort();
}

static void same(agx_view a, agx_view b)
{
        need((a.p == NULL) == (b.p == NULL) && agx_view_eq(a, b));
}

static void same_frame(const agx_frame *a, const agx_frame *b)
{
        need(a->kind == b->kind && a->has_stream == b->has_stream && a->stream == b->stream && a->seq == b->seq &&
             a->n == b->n);
        need(a->proc == b->proc && a->fd == b->fd && a->has_stdin == b->has_stdin && a->limit == b->limit &&
             a->timeout == b->timeout && a->code == b->code && a->signal == b->signal && a->out == b->out &&
             a->err == b->err);
        same(a->path, b->path);
        same(a->argv, b->argv);
        same(a->env, b->env);
        same(a->cwd, b->cwd);
        same(a->cause, b->cause);
        same(a->call_id, b->call_id);
        same(a->callable, b->callable);
        same(a->arguments, b->arguments);
        same(a->context, b->context);
        same(a->value, b->value);
        same(a->namespace_, b->namespace_);
        same(a->event, b->event);
        same(a->data, b->data);
        same(a->fault.type, b->fault.type);
        same(a->fault.message, b->fault.message);
        same(a->fault.traceback, b->fault.traceback);
        same(a->fault.reason, b->fault.reason);
        need(a->fault.cancelled == b->fault.cancelled && a->fault.has_returncode == b->fault.has_returncode &&
             a->fault.returncode == b->fault.returncode);
}

static agx_view tail_of(const agx_frame *frame)
{
        if (frame->arguments.p)
                return frame->arguments;
        return frame->value.p ? frame->value : frame->data;
}

static void one_payload(agx_view payload)
{
        agx_buf whole = AGX_BUF_NULL(1 << 24), parts = AGX_BUF_NULL(1 << 24);
        agx_frame frame, again;

        if (agx_frame_parse(payload, &frame) == 0 && frame.kind != AGX_FRAME_UNKNOWN) {
                need(agx_frame_put(&whole, &frame) == 0);
                need(agx_frame_parse(agx_view_from(agx_buf_view(&whole), 4), &again) == 0);
                same_frame(&frame, &again);
                need(agx_frame_put_head(&parts, &frame) == 0);
                need(agx_buf_append_view(&parts, tail_of(&frame)) == 0);
                same(agx_buf_view(&whole), agx_buf_view(&parts));
        }
        agx_buf_deinit(&whole);
        agx_buf_deinit(&parts);
}

/* Logs what the deframer makes of a stream that comes in pieces: first one of `first` bytes, then ones of `step`. */
static void deframe(agx_buf *log, agx_view stream, size_t first, size_t step)
{
        agx_deframer d;
        int r = 0;

        agx_deframer_init(&d, MAX);
        for (size_t n = first; stream.n && r != AGX_FRAME_E_TOO_LARGE && r != AGX_FRAME_E_MALFORMED; n = step) {
                agx_view piece = agx_view_first(stream, n), payload;

                stream = agx_view_from(stream, piece.n);
                while ((r = agx_deframer_next(&d, &piece, &payload)) == 0)
                        need(agx_buf_printf(log, "%zu:", payload.n) == 0 && agx_buf_append_view(log, payload) == 0);
                need(r == AGX_FRAME_E_TOO_LARGE || r == AGX_FRAME_E_MALFORMED || (r == AGX_FRAME_E_MORE && !piece.n));
        }
        need(agx_buf_printf(log, "%d %d", r, agx_deframer_idle(&d)) == 0);
        agx_deframer_deinit(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_buf logs[3] = {AGX_BUF_NULL(1 << 24), AGX_BUF_NULL(1 << 24), AGX_BUF_NULL(1 << 24)};
        agx_view in, payload;
        agx_deframer d;

        if (size < 2 || size > 100000)
                return 0;
        in = agx_view_of(data + 1, size - 1);
        deframe(&logs[0], in, in.n, in.n);
        deframe(&logs[1], in, 1 + data[0] % in.n, in.n);
        deframe(&logs[2], in, 1, 1);
        for (int i = 1; i < 3; ++i)
                same(agx_buf_view(&logs[0]), agx_buf_view(&logs[i]));
        for (int i = 0; i < 3; ++i)
                agx_buf_deinit(&logs[i]);
        one_payload(in);
        agx_deframer_init(&d, MAX);
        while (agx_deframer_next(&d, &in, &payload) == 0)
                one_payload(payload);
        agx_deframer_deinit(&d);
        return 0;
}
