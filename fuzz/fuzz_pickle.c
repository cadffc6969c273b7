/* Any bytes as a pickle: the reader ends, never goes back, gives views that lie inside the input and behind their
 * opcode, and repeats an error for ever. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "wire/pickle.h"

static void must(bool holds)
{
        if (!holds)
                abort();
}

static void check_view(const agx_pickle_op *op, agx_view v, const char *data, size_t size)
{
        must(v.p > data + op->pos && v.n <= size - (size_t)(v.p - data));
}

static void check(const agx_pickle_op *op, const char *data, size_t size, agx_pickle_limits limits)
{
        switch (op->kind) {
        case AGX_PICKLE_BIG_BINARY:
                must(op->view[0].n > 8 && op->view[0].n <= limits.int_bytes);
                check_view(op, op->view[0], data, size);
                break;
        case AGX_PICKLE_BIG_TEXT:
                must(op->view[0].n <= limits.int_digits + 1);
                check_view(op, op->view[0], data, size);
                break;
        case AGX_PICKLE_GLOBAL:
                check_view(op, op->view[1], data, size);
                check_view(op, op->view[0], data, size);
                break;
        case AGX_PICKLE_FLOAT_TEXT:
        case AGX_PICKLE_BYTES:
        case AGX_PICKLE_BYTEARRAY:
        case AGX_PICKLE_TEXT:
        case AGX_PICKLE_TEXT_RAW:
        case AGX_PICKLE_OLD_TEXT:
        case AGX_PICKLE_OLD_QUOTED:
                check_view(op, op->view[0], data, size);
                break;
        default:
                must(op->kind > AGX_PICKLE_UNKNOWN && op->kind < AGX_PICKLE_KINDS && op->kind != AGX_PICKLE_FRAME);
                break;
        }
}

/* The shortcut for integers, where it is one, must come to the same. */
static int next_both_ways(agx_pickle *reader, agx_pickle_op *op)
{
        agx_pickle other = *reader;
        agx_pickle_op quick = {0};
        const bool is_quick = agx_pickle_next_int(&other, &quick);
        int r = agx_pickle_next(reader, op);

        if (!is_quick)
                return r;
        must(r == 0 && other.pos == reader->pos && quick.kind == op->kind);
        must(quick.code == op->code && quick.pos == op->pos);
        if (op->kind == AGX_PICKLE_INT)
                must(quick.i == op->i);
        else
                must(op->kind == AGX_PICKLE_BIG_BINARY && quick.view[0].p == op->view[0].p &&
                     quick.view[0].n == op->view[0].n);
        return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const agx_pickle_limits limits = {.int_bytes = 64, .int_digits = 32};
        agx_pickle reader;
        agx_pickle_op op;
        size_t last = 0;
        int r;

        agx_pickle_init(&reader, data, size, limits);
        while ((r = next_both_ways(&reader, &op)) == 0) {
                must(op.pos >= last && op.pos < size && data[op.pos] == op.code && reader.pos > op.pos);
                must(agx_pickle_opcode_name(op.code) != NULL);
                check(&op, (const char *)data, size, limits);
                must((op.kind == AGX_PICKLE_STOP) == (reader.pos == size && reader.stopped));
                last = reader.pos;
        }
        must(r > 0 && agx_pickle_err_pos(&reader) >= last && agx_pickle_err_pos(&reader) <= size);
        must(agx_pickle_next(&reader, &op) == r);
        return 0;
}
