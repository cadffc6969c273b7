/*
 * Frames. A payload is walked twice: once for its `type`, wherever it stands, once with the rows of that type, so that
 * a key which is another type's business cannot spoil a frame, nor a future type's fields an old reader. The first walk
 * is short where the type comes first, as in all that we write.
 *
 * The deframer keeps header and payload of an unfinished frame together in one buffer. It takes only the bytes of the
 * frame at hand; what follows stays in the input, where most frames lie whole and are given out in place.
 */
#include "proto/frame.h"
#include "base/err.h"
#include "proto/fields.h"
#include "proto/limits.h"

enum { HEADER = 4, HEAD_SLACK = 256 };

/* In the order they are written: what may be large comes last, so that it may also be sent from where it lies. */
enum {
        TYPE,
        CALL_ID,
        CALLABLE,
        STREAM,
        SEQ,
        CREDIT,
        NAMESPACE,
        EVENT,
        FAULT,
        PROC,
        FD,
        STDIN,
        LIMIT,
        TIMEOUT,
        CODE,
        SIGNAL,
        OUT,
        ERR,
        CAUSE,
        FEATURES,
        PATH,
        CWD,
        ARGV,
        ENV,
        CONTEXT,
        ARGUMENTS,
        VALUE,
        DATA,
        ROWS
};

_Static_assert(ROWS <= 32, "a set of rows is 32 bits");

static const agx_field rows[ROWS] = {
        [TYPE] = AGX_FIELD(agx_frame, type_text, "type", LAX_STR, "a str"),
        [CALL_ID] = AGX_FIELD(agx_frame, call_id, "call_id", STR, "a str"),
        [CALLABLE] = AGX_FIELD(agx_frame, callable, "callable", STR, "a str"),
        [STREAM] = AGX_FIELD(agx_frame, stream, "stream", UINT, "a non-negative int"),
        [SEQ] = AGX_FIELD(agx_frame, seq, "seq", UINT, "a non-negative int"),
        [CREDIT] = AGX_FIELD(agx_frame, n, "n", UINT, "a non-negative int"),
        [NAMESPACE] = AGX_FIELD(agx_frame, namespace_, "namespace", STR, "a str"),
        [EVENT] = AGX_FIELD(agx_frame, event, "event", STR, "a str"),
        [FAULT] = AGX_FIELD(agx_frame, fault, "error", FAULT, "a map"),
        [PROC] = AGX_FIELD(agx_frame, proc, "proc", UINT, "a non-negative int"),
        [FD] = AGX_FIELD(agx_frame, fd, "fd", UINT, "a non-negative int"),
        [STDIN] = AGX_FIELD(agx_frame, has_stdin, "stdin", UINT, "a non-negative int"),
        [LIMIT] = AGX_FIELD(agx_frame, limit, "limit", UINT, "a non-negative int"),
        [TIMEOUT] = AGX_FIELD(agx_frame, timeout, "timeout", UINT, "a non-negative int"),
        [CODE] = AGX_FIELD(agx_frame, code, "code", UINT, "a non-negative int"),
        [SIGNAL] = AGX_FIELD(agx_frame, signal, "signal", UINT, "a non-negative int"),
        [OUT] = AGX_FIELD(agx_frame, out, "out", UINT, "a non-negative int"),
        [ERR] = AGX_FIELD(agx_frame, err, "err", UINT, "a non-negative int"),
        [CAUSE] = AGX_FIELD(agx_frame, cause, "cause", STR, "a str"),
        [FEATURES] = AGX_FIELD(agx_frame, features, "features", ARRAY, "an array"),
        [PATH] = AGX_FIELD(agx_frame, path, "path", BIN, "a bin"),
        [CWD] = AGX_FIELD(agx_frame, cwd, "cwd", BIN, "a bin"),
        [ARGV] = AGX_FIELD(agx_frame, argv, "argv", BIN, "a bin"),
        [ENV] = AGX_FIELD(agx_frame, env, "env", BIN, "a bin"),
        [CONTEXT] = AGX_FIELD(agx_frame, context, "context", BIN, "a bin"),
        [ARGUMENTS] = AGX_FIELD(agx_frame, arguments, "arguments", BIN, "a bin"),
        [VALUE] = AGX_FIELD(agx_frame, value, "value", BIN, "a bin"),
        [DATA] = AGX_FIELD(agx_frame, data, "data", BIN, "a bin"),
};

#define BIT(row) ((uint32_t)1 << (row))

/* What a kind needs, and what it may have besides. A kind that is not listed has no fields. */
static const struct shape {
        uint32_t needs, allows;
} shapes[] = {
        [AGX_FRAME_CALL] = {BIT(CALL_ID) | BIT(CALLABLE) | BIT(ARGUMENTS), BIT(CONTEXT) | BIT(STREAM)},
        [AGX_FRAME_CANCEL] = {BIT(CALL_ID), 0},
        [AGX_FRAME_CREDIT] = {BIT(CALL_ID) | BIT(CREDIT), 0},
        [AGX_FRAME_SIO_FLOW] = {BIT(CREDIT), 0},
        [AGX_FRAME_SIO_INBOUND] = {BIT(NAMESPACE) | BIT(EVENT) | BIT(DATA), 0},
        [AGX_FRAME_READY] = {0, BIT(CREDIT) | BIT(FEATURES)},
        [AGX_FRAME_BOOT_ERROR] = {BIT(FAULT), 0},
        [AGX_FRAME_RESULT] = {BIT(CALL_ID), BIT(VALUE)},
        [AGX_FRAME_ERROR] = {BIT(CALL_ID) | BIT(FAULT), 0},
        [AGX_FRAME_ITEM] = {BIT(CALL_ID) | BIT(SEQ) | BIT(VALUE), 0},
        [AGX_FRAME_SIO_OPEN] = {BIT(NAMESPACE), 0},
        [AGX_FRAME_SIO_EMIT] = {BIT(NAMESPACE) | BIT(EVENT) | BIT(DATA), 0},
        [AGX_FRAME_PROC_START] = {BIT(PROC) | BIT(PATH) | BIT(ARGV) | BIT(ENV) | BIT(CWD) | BIT(STDIN) | BIT(CREDIT) |
                                          BIT(LIMIT) | BIT(TIMEOUT),
                                  BIT(CALL_ID)},
        [AGX_FRAME_PROC_IN] = {BIT(PROC) | BIT(DATA), 0},
        [AGX_FRAME_PROC_CREDIT] = {BIT(PROC) | BIT(CREDIT), 0},
        [AGX_FRAME_PROC_SIGNAL] = {BIT(PROC) | BIT(CREDIT), 0},
        [AGX_FRAME_PROC_END] = {BIT(PROC), 0},
        [AGX_FRAME_PROC_OUT] = {BIT(PROC) | BIT(FD) | BIT(DATA), 0},
        [AGX_FRAME_PROC_EXIT] = {BIT(PROC) | BIT(CODE) | BIT(SIGNAL) | BIT(OUT) | BIT(ERR) | BIT(CAUSE), 0},
        [AGX_FRAME_PROC_ERROR] = {BIT(PROC) | BIT(CODE) | BIT(FAULT), 0},
};

static const agx_view kind_texts[] = {[AGX_FRAME_UNKNOWN] = {NULL, 0},
#define X(name, text) [AGX_FRAME_##name] = {"" text, sizeof(text) - 1},
                                      AGX_FRAME_MAP(X)
#undef X
};

static agx_frame_kind kind_of(agx_view text)
{
        for (size_t kind = AGX_FRAME_UNKNOWN + 1; kind < sizeof(kind_texts) / sizeof(*kind_texts); ++kind)
                if (agx_view_eq(kind_texts[kind], text))
                        return (agx_frame_kind)kind;
        return AGX_FRAME_UNKNOWN;
}

/* ---- reading ---- */

static bool read_rows(agx_view payload, uint32_t known, agx_frame *frame, uint32_t *present)
{
        agx_mp_reader r = agx_mp_reader_on(payload);

        return agx_fields_read(&r, (agx_fields){rows, ROWS, known}, AGX_MAX_NESTING, frame, present) && agx_mp_done(&r);
}

/* What the first pair says, if that is the type: all that we write begin so, and need not be gone over twice. */
static agx_frame_kind first_kind(agx_view payload)
{
        agx_mp_reader r = agx_mp_reader_on(payload);
        agx_mp_token t = agx_mp_next(&r);

        if (t.kind != AGX_MP_MAP || !t.count)
                return AGX_FRAME_UNKNOWN;
        t = agx_mp_next(&r);
        if (t.kind != AGX_MP_STR || !agx_view_eq(t.v, rows[TYPE].key))
                return AGX_FRAME_UNKNOWN;
        t = agx_mp_next(&r);
        return t.kind == AGX_MP_STR ? kind_of(t.v) : AGX_FRAME_UNKNOWN;
}

int agx_frame_parse(agx_view payload, agx_frame *frame)
{
        const struct shape *shape;
        uint32_t present;

        *frame = (agx_frame){.kind = AGX_FRAME_UNKNOWN};
        if (!payload.n)
                return 0;
        frame->kind = first_kind(payload);
        if (frame->kind == AGX_FRAME_UNKNOWN) {
                if (!read_rows(payload, BIT(TYPE), frame, &present))
                        return AGX_FRAME_E_MALFORMED;
                frame->kind = kind_of(frame->type_text);
        }
        if (frame->kind == AGX_FRAME_UNKNOWN)
                return 0;
        shape = &shapes[frame->kind];
        if (!read_rows(payload, BIT(TYPE) | shape->needs | shape->allows, frame, &present) || shape->needs & ~present)
                return AGX_FRAME_E_MALFORMED;
        frame->has_stream = (present & BIT(STREAM)) != 0;
        return 0;
}

bool agx_frame_has_feature(const agx_frame *frame, agx_view name)
{
        agx_mp_reader r = agx_mp_reader_on(frame->features);
        agx_mp_token array = agx_mp_next(&r);

        for (size_t i = 0; array.kind == AGX_MP_ARRAY && i < array.count; ++i) {
                agx_mp_token t = agx_mp_next(&r);

                if (t.kind != AGX_MP_STR)
                        return false;
                if (agx_view_eq(t.v, name))
                        return true;
        }
        return false;
}

/* ---- writing ---- */

static bool is_text(size_t row)
{
        return rows[row].kind == AGX_FIELD_STR || rows[row].kind == AGX_FIELD_BIN;
}

/* The member of a text row. */
static agx_view text_of(const agx_frame *frame, size_t row)
{
        return *(const agx_view *)(const void *)((const char *)frame + rows[row].offset);
}

/* The rows to be written: what the kind needs, and what else it may have if the frame gives it. */
static uint32_t rows_of(const agx_frame *frame)
{
        const struct shape *shape = &shapes[frame->kind];
        uint32_t given = shape->needs;

        if (frame->kind == AGX_FRAME_RESULT)
                given |= BIT(VALUE); /* nil stands for none */
        if (frame->context.p)
                given |= shape->allows & BIT(CONTEXT);
        if (frame->has_stream)
                given |= shape->allows & BIT(STREAM);
        if (frame->call_id.p)
                given |= shape->allows & BIT(CALL_ID);
        if (frame->n)
                given |= shape->allows & BIT(CREDIT);
        if (frame->features.p)
                given |= shape->allows & BIT(FEATURES);
        return given;
}

/* The row whose bytes may be left to the caller, or ROWS: the last one, if it is a bin. */
static size_t tail_of(const agx_frame *frame, uint32_t given)
{
        for (size_t row = ROWS; row-- > CONTEXT + 1;)
                if (given >> row & 1 && text_of(frame, row).p)
                        return row;
        return ROWS;
}

static void put_encoded(agx_mp_writer *w, agx_view value)
{
        if (!w->error)
                w->error = agx_buf_append_view(w->out, value);
}

static void put_row(agx_mp_writer *w, const agx_frame *frame, size_t row, bool head_only)
{
        const void *place = (const char *)frame + rows[row].offset;

        agx_mp_put_str(w, rows[row].key);
        if (row == FAULT)
                agx_fault_put(w, &frame->fault);
        else if (rows[row].kind == AGX_FIELD_UINT)
                agx_mp_put_uint(w, *(const uint64_t *)place);
        else if (rows[row].kind == AGX_FIELD_STR)
                agx_mp_put_str(w, text_of(frame, row));
        else if (row == FEATURES)
                put_encoded(w, frame->features);
        else if (row == VALUE && !frame->value.p)
                agx_mp_put_nil(w);
        else if (head_only)
                agx_mp_put_bin_head(w, text_of(frame, row).n);
        else
                agx_mp_put_bin(w, text_of(frame, row));
}

static int put_payload(agx_buf *out, const agx_frame *frame, uint32_t given, size_t tail)
{
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_map(&w, 1 + (size_t)__builtin_popcount(given));
        agx_mp_put_str(&w, rows[TYPE].key);
        agx_mp_put_str(&w, kind_texts[frame->kind]);
        for (uint32_t left = given; left; left &= left - 1) {
                size_t row = (size_t)__builtin_ctz(left);

                put_row(&w, frame, row, row == tail);
        }
        return agx_mp_writer_end(&w);
}

/* Header and payload; the bytes of row `tail` are counted but not written. */
static int put_counted(agx_buf *out, const agx_frame *frame, uint32_t given, size_t tail)
{
        static const uint8_t no_header[HEADER];
        size_t start = out->len, n;
        uint8_t *header;
        int r = agx_buf_append(out, no_header, HEADER);

        if (!r)
                r = put_payload(out, frame, given, tail);
        if (r)
                return r < 0 ? r : AGX_FRAME_E_FULL;
        n = out->len - start - HEADER + (tail < ROWS ? text_of(frame, tail).n : 0);
        if (n > AGX_MAX_MESSAGE)
                return AGX_FRAME_E_TOO_LARGE;
        header = out->data + out->head + start;
        for (size_t i = 0; i < HEADER; ++i)
                header[i] = (uint8_t)(n >> (8 * i));
        return 0;
}

static int put(agx_buf *out, const agx_frame *frame, uint32_t given, size_t tail)
{
        size_t start = out->len, room = HEAD_SLACK, bulk = 0;
        uint8_t *place;
        int r;

        for (uint32_t left = given; left; left &= left - 1) {
                size_t row = (size_t)__builtin_ctz(left), n = is_text(row) ? text_of(frame, row).n : 0;

                if (n > AGX_MAX_MESSAGE - bulk)
                        return AGX_FRAME_E_TOO_LARGE;
                bulk += n;
                room += row == tail ? 0 : n;
        }
        /* Room for all of it at once, so that a large value is not copied again when the buffer grows. A mere hint: near
     * the ceiling, where it does not fit, the exact size may. */
        r = agx_buf_reserve(out, room, &place);
        if (r < 0)
                return r;
        r = put_counted(out, frame, given, tail);
        if (r)
                agx_buf_truncate(out, start);
        return r;
}

int agx_frame_put(agx_buf *out, const agx_frame *frame)
{
        return put(out, frame, rows_of(frame), ROWS);
}

int agx_frame_put_head(agx_buf *out, const agx_frame *frame)
{
        uint32_t given = rows_of(frame);

        return put(out, frame, given, tail_of(frame, given));
}
