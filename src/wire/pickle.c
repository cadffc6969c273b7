/*
 * Pickle opcode reader.
 *
 * One table says for each byte which kind of request it is, in which form its argument is written and what it is
 * called. agx_pickle_next() reads the byte, looks it up and hands over to the reader of that form; a form reader takes
 * bytes only through take() or take_line(), the two places that compare with the end. Neither of them adds to a
 * position before it has compared, so no length, however large, can wrap round.
 *
 * Frames (protocol 4) are a promise by the writer that an opcode and its argument do not cross a frame's end. The
 * reader holds the writer to it, as it costs nothing: end moves to the frame's end and back.
 */
#include <string.h>

#include "wire/pickle.h"

/* How an argument is written. */
typedef enum form {
        FORM_NONE = 0,
        FORM_PROTO,
        FORM_FRAME,
        FORM_STOP,
        FORM_INT_U1,
        FORM_INT_U2,
        FORM_INT_I4,
        FORM_BIG_1,
        FORM_BIG_4,
        FORM_FLOAT_8,
        FORM_VIEW_1,
        FORM_VIEW_4,
        FORM_VIEW_I4,
        FORM_VIEW_8,
        FORM_INDEX_1,
        FORM_INDEX_4,
        FORM_INDEX_LINE,
        FORM_INT_LINE,
        FORM_LONG_LINE,
        FORM_FLOAT_LINE,
        FORM_TEXT_LINE,
        FORM_QUOTED_LINE,
        FORM_TWO_LINES,
        FORM_REFUSED,
} form;

typedef struct opcode {
        const char *name;
        uint8_t kind;
        uint8_t form;
} opcode;

#define OP(code, label, what, how) [code] = {.name = label, .kind = AGX_PICKLE_##what, .form = FORM_##how}

static const opcode OPCODES[256] = {
        OP('(', "MARK", MARK, NONE),
        OP('.', "STOP", STOP, STOP),
        OP('0', "POP", POP, NONE),
        OP('1', "POP_MARK", POP_MARK, NONE),
        OP('2', "DUP", DUP, NONE),
        OP('F', "FLOAT", FLOAT_TEXT, FLOAT_LINE),
        OP('I', "INT", INT, INT_LINE),
        OP('J', "BININT", INT, INT_I4),
        OP('K', "BININT1", INT, INT_U1),
        OP('L', "LONG", INT, LONG_LINE),
        OP('M', "BININT2", INT, INT_U2),
        OP('N', "NONE", NONE, NONE),
        OP('P', "PERSID", PERSID, REFUSED),
        OP('Q', "BINPERSID", PERSID, REFUSED),
        OP('R', "REDUCE", REDUCE, NONE),
        OP('S', "STRING", OLD_QUOTED, QUOTED_LINE),
        OP('T', "BINSTRING", OLD_TEXT, VIEW_I4),
        OP('U', "SHORT_BINSTRING", OLD_TEXT, VIEW_1),
        OP('V', "UNICODE", TEXT_RAW, TEXT_LINE),
        OP('X', "BINUNICODE", TEXT, VIEW_4),
        OP('a', "APPEND", APPEND, NONE),
        OP('b', "BUILD", BUILD, NONE),
        OP('c', "GLOBAL", GLOBAL, TWO_LINES),
        OP('d', "DICT", DICT, NONE),
        OP('}', "EMPTY_DICT", EMPTY_DICT, NONE),
        OP('e', "APPENDS", APPENDS, NONE),
        OP('g', "GET", GET, INDEX_LINE),
        OP('h', "BINGET", GET, INDEX_1),
        OP('i', "INST", INST, REFUSED),
        OP('j', "LONG_BINGET", GET, INDEX_4),
        OP('l', "LIST", LIST, NONE),
        OP(']', "EMPTY_LIST", EMPTY_LIST, NONE),
        OP('o', "OBJ", OBJ, REFUSED),
        OP('p', "PUT", PUT, INDEX_LINE),
        OP('q', "BINPUT", PUT, INDEX_1),
        OP('r', "LONG_BINPUT", PUT, INDEX_4),
        OP('s', "SETITEM", SETITEM, NONE),
        OP('t', "TUPLE", TUPLE, NONE),
        OP(')', "EMPTY_TUPLE", EMPTY_TUPLE, NONE),
        OP('u', "SETITEMS", SETITEMS, NONE),
        OP('G', "BINFLOAT", FLOAT, FLOAT_8),
        /* protocol 2 */
        OP(0x80, "PROTO", PROTO, PROTO),
        OP(0x81, "NEWOBJ", NEWOBJ, NONE),
        OP(0x82, "EXT1", EXT, REFUSED),
        OP(0x83, "EXT2", EXT, REFUSED),
        OP(0x84, "EXT4", EXT, REFUSED),
        OP(0x85, "TUPLE1", TUPLE1, NONE),
        OP(0x86, "TUPLE2", TUPLE2, NONE),
        OP(0x87, "TUPLE3", TUPLE3, NONE),
        OP(0x88, "NEWTRUE", TRUE, NONE),
        OP(0x89, "NEWFALSE", FALSE, NONE),
        OP(0x8a, "LONG1", BIG_BINARY, BIG_1),
        OP(0x8b, "LONG4", BIG_BINARY, BIG_4),
        /* protocol 3 */
        OP('B', "BINBYTES", BYTES, VIEW_4),
        OP('C', "SHORT_BINBYTES", BYTES, VIEW_1),
        /* protocol 4 */
        OP(0x8c, "SHORT_BINUNICODE", TEXT, VIEW_1),
        OP(0x8d, "BINUNICODE8", TEXT, VIEW_8),
        OP(0x8e, "BINBYTES8", BYTES, VIEW_8),
        OP(0x8f, "EMPTY_SET", EMPTY_SET, NONE),
        OP(0x90, "ADDITEMS", ADDITEMS, NONE),
        OP(0x91, "FROZENSET", FROZENSET, NONE),
        OP(0x92, "NEWOBJ_EX", NEWOBJ_EX, NONE),
        OP(0x93, "STACK_GLOBAL", STACK_GLOBAL, NONE),
        OP(0x94, "MEMOIZE", MEMOIZE, NONE),
        OP(0x95, "FRAME", FRAME, FRAME),
        /* protocol 5 */
        OP(0x96, "BYTEARRAY8", BYTEARRAY, VIEW_8),
        OP(0x97, "NEXT_BUFFER", BUFFER, REFUSED),
        OP(0x98, "READONLY_BUFFER", BUFFER, REFUSED),
};

/* Characters of a float literal; the names are compared whole. */
static const char *const FLOAT_NAMES[] = {"nan", "-nan", "inf", "-inf"};

enum {
        INDEX_DIGITS_MAX = 10, /* more than any index a real stream can reach */
        SMALL_DIGITS_MAX = 18, /* decimal digits that fit an int64_t whatever they are */
        FLOAT_CHARS_MAX = 64,  /* repr() of a float needs 24 */
};

/* --- bytes ------------------------------------------------------------------------------------------------------ */

static inline int take(agx_pickle *p, uint64_t n, const uint8_t **out)
{
        if (n > p->end - p->pos)
                return AGX_PICKLE_E_TRUNCATED;
        *out = p->data + p->pos;
        p->pos += (size_t)n;
        return 0;
}

/* A line without its newline. */
static int take_line(agx_pickle *p, agx_view *line)
{
        const uint8_t *start = p->data + p->pos;
        const uint8_t *nl = p->end > p->pos ? memchr(start, '\n', p->end - p->pos) : NULL;
        if (!nl)
                return AGX_PICKLE_E_TRUNCATED;
        *line = agx_view_of(start, (size_t)(nl - start));
        p->pos += line->n + 1;
        return 0;
}

static uint64_t little_endian(const uint8_t *b, size_t n)
{
        uint64_t v = 0;
        while (n > 0)
                v = v << 8 | b[--n];
        return v;
}

static inline int take_number(agx_pickle *p, size_t width, uint64_t *out)
{
        const uint8_t *b;
        int r = take(p, width, &b);
        if (r)
                return r;
        *out = little_endian(b, width);
        return 0;
}

/* A length of @width bytes and then that many bytes. */
static int take_view(agx_pickle *p, size_t width, agx_view *view)
{
        uint64_t n;
        const uint8_t *b;
        int r = take_number(p, width, &n);
        if (r)
                return r;
        r = take(p, n, &b);
        if (r)
                return r;
        *view = agx_view_of(b, (size_t)n);
        return 0;
}

static bool all_digits(agx_view v)
{
        for (size_t i = 0; i < v.n; i++)
                if (v.p[i] < '0' || v.p[i] > '9')
                        return false;
        return v.n > 0;
}

static uint64_t digits_value(agx_view v)
{
        uint64_t value = 0;
        for (size_t i = 0; i < v.n; i++)
                value = value * 10 + (uint64_t)(v.p[i] - '0');
        return value;
}

/* --- one reader per form of argument ---------------------------------------------------------------------------- */

static int read_proto(agx_pickle *p, agx_pickle_op *op)
{
        int r = take_number(p, 1, &op->u);
        if (r)
                return r;
        if (op->pos != 0 || op->u > AGX_PICKLE_PROTOCOL_MAX)
                return AGX_PICKLE_E_PROTOCOL;
        return 0;
}

static int read_frame(agx_pickle *p)
{
        uint64_t n;
        if (p->framed)
                return AGX_PICKLE_E_FRAME;
        int r = take_number(p, 8, &n);
        if (r)
                return r;
        if (n > p->len - p->pos)
                return AGX_PICKLE_E_FRAME;
        p->end = p->pos + (size_t)n;
        p->framed = n > 0;
        return 0;
}

static int read_stop(agx_pickle *p)
{
        if (p->pos != p->len)
                return AGX_PICKLE_E_TRAILING;
        p->stopped = true;
        return 0;
}

static int read_int(agx_pickle *p, agx_pickle_op *op, size_t width)
{
        int r = take_number(p, width, &op->u);
        if (r)
                return r;
        op->i = width == 4 ? (int64_t)(int32_t)(uint32_t)op->u : (int64_t)op->u;
        return 0;
}

/* Up to eight bytes become a plain integer, which is what nearly all of them are. */
static int read_big(agx_pickle *p, agx_pickle_op *op, size_t width)
{
        uint64_t n;
        const uint8_t *b;
        int r = take_number(p, width, &n);
        if (r)
                return r;
        if (width == 4 && n > INT32_MAX)
                return AGX_PICKLE_E_LENGTH;
        if (n > p->limits.int_bytes)
                return AGX_PICKLE_E_DIGITS;
        r = take(p, n, &b);
        if (r)
                return r;
        if (n > 8) {
                op->view[0] = agx_view_of(b, (size_t)n);
                return 0;
        }
        uint64_t v = little_endian(b, (size_t)n);
        if (n > 0 && n < 8 && b[n - 1] & 0x80)
                v |= UINT64_MAX << (8 * n);
        op->kind = AGX_PICKLE_INT;
        op->i = (int64_t)v;
        return 0;
}

static int read_float(agx_pickle *p, agx_pickle_op *op)
{
        const uint8_t *b;
        uint64_t bits = 0;
        int r = take(p, 8, &b);
        if (r)
                return r;
        for (size_t i = 0; i < 8; i++)
                bits = bits << 8 | b[i];
        memcpy(&op->f, &bits, sizeof op->f);
        return 0;
}

static int read_view_signed(agx_pickle *p, agx_pickle_op *op)
{
        if (p->end - p->pos >= 4 && p->data[p->pos + 3] & 0x80)
                return AGX_PICKLE_E_LENGTH;
        return take_view(p, 4, &op->view[0]);
}

static int read_index_line(agx_pickle *p, agx_pickle_op *op)
{
        agx_view line;
        int r = take_line(p, &line);
        if (r)
                return r;
        if (line.n > INDEX_DIGITS_MAX || !all_digits(line))
                return AGX_PICKLE_E_NUMBER;
        op->u = digits_value(line);
        return 0;
}

static int read_decimal(const agx_pickle *p, agx_pickle_op *op, agx_view text)
{
        bool negative = text.n > 0 && text.p[0] == '-';
        agx_view digits = agx_view_from(text, negative);
        if (digits.n > p->limits.int_digits)
                return AGX_PICKLE_E_DIGITS;
        if (!all_digits(digits))
                return AGX_PICKLE_E_NUMBER;
        if (digits.n > SMALL_DIGITS_MAX) {
                op->kind = AGX_PICKLE_BIG_TEXT;
                op->view[0] = text;
                return 0;
        }
        int64_t v = (int64_t)digits_value(digits);
        op->i = negative ? -v : v;
        return 0;
}

/* "I01\n" and "I00\n" are how protocols 0 and 1 write True and False. */
static int read_int_line(agx_pickle *p, agx_pickle_op *op)
{
        agx_view line;
        int r = take_line(p, &line);
        if (r)
                return r;
        if (line.n == 2 && line.p[0] == '0' && (line.p[1] == '0' || line.p[1] == '1')) {
                op->kind = line.p[1] == '1' ? AGX_PICKLE_TRUE : AGX_PICKLE_FALSE;
                return 0;
        }
        return read_decimal(p, op, line);
}

static int read_long_line(agx_pickle *p, agx_pickle_op *op)
{
        agx_view line;
        int r = take_line(p, &line);
        if (r)
                return r;
        if (line.n > 0 && line.p[line.n - 1] == 'L')
                line.n--;
        return read_decimal(p, op, line);
}

static bool is_float_text(agx_view v)
{
        for (size_t i = 0; i < sizeof FLOAT_NAMES / sizeof *FLOAT_NAMES; i++)
                if (agx_view_eq(v, agx_view_str(FLOAT_NAMES[i])))
                        return true;
        if (v.n == 0 || v.n > FLOAT_CHARS_MAX)
                return false;
        for (size_t i = 0; i < v.n; i++)
                if ((v.p[i] < '0' || v.p[i] > '9') && !memchr("+-.eE", v.p[i], 5))
                        return false;
        return true;
}

static int read_float_line(agx_pickle *p, agx_pickle_op *op)
{
        int r = take_line(p, &op->view[0]);
        if (r)
                return r;
        return is_float_text(op->view[0]) ? 0 : AGX_PICKLE_E_NUMBER;
}

static int read_quoted_line(agx_pickle *p, agx_pickle_op *op)
{
        agx_view v;
        int r = take_line(p, &v);
        if (r)
                return r;
        if (v.n < 2 || v.p[0] != v.p[v.n - 1] || (v.p[0] != '\'' && v.p[0] != '"'))
                return AGX_PICKLE_E_QUOTES;
        op->view[0] = agx_view_of(v.p + 1, v.n - 2);
        return 0;
}

static int read_two_lines(agx_pickle *p, agx_pickle_op *op)
{
        int r = take_line(p, &op->view[0]);
        if (r)
                return r;
        return take_line(p, &op->view[1]);
}

static int read_argument(agx_pickle *p, agx_pickle_op *op, form how)
{
        switch (how) {
        case FORM_NONE:
        case FORM_REFUSED:
                return 0;
        case FORM_PROTO:
                return read_proto(p, op);
        case FORM_FRAME:
                return read_frame(p);
        case FORM_STOP:
                return read_stop(p);
        case FORM_INT_U1:
                return read_int(p, op, 1);
        case FORM_INT_U2:
                return read_int(p, op, 2);
        case FORM_INT_I4:
                return read_int(p, op, 4);
        case FORM_BIG_1:
                return read_big(p, op, 1);
        case FORM_BIG_4:
                return read_big(p, op, 4);
        case FORM_FLOAT_8:
                return read_float(p, op);
        case FORM_VIEW_1:
                return take_view(p, 1, &op->view[0]);
        case FORM_VIEW_4:
                return take_view(p, 4, &op->view[0]);
        case FORM_VIEW_I4:
                return read_view_signed(p, op);
        case FORM_VIEW_8:
                return take_view(p, 8, &op->view[0]);
        case FORM_INDEX_1:
                return take_number(p, 1, &op->u);
        case FORM_INDEX_4:
                return take_number(p, 4, &op->u);
        case FORM_INDEX_LINE:
                return read_index_line(p, op);
        case FORM_INT_LINE:
                return read_int_line(p, op);
        case FORM_LONG_LINE:
                return read_long_line(p, op);
        case FORM_FLOAT_LINE:
                return read_float_line(p, op);
        case FORM_TEXT_LINE:
                return take_line(p, &op->view[0]);
        case FORM_QUOTED_LINE:
                return read_quoted_line(p, op);
        case FORM_TWO_LINES:
                return read_two_lines(p, op);
        }
        return AGX_PICKLE_E_OPCODE;
}

/* --- verbs ------------------------------------------------------------------------------------------------------ */

void agx_pickle_init(agx_pickle *p, const void *data, size_t len, agx_pickle_limits limits)
{
        *p = (agx_pickle){.data = data, .len = len, .end = len, .limits = limits};
}

/* Keeps the error, and leaves nothing to read, so that at_end() will find it. */
static int fail(agx_pickle *p, size_t pos, int err)
{
        p->err = err;
        p->err_pos = pos;
        p->end = p->pos;
        return err;
}

/* Nothing is left before the end: an error, the end of a frame, or of everything. */
static int at_end(agx_pickle *p)
{
        if (p->err)
                return p->err;
        if (p->stopped)
                return fail(p, p->pos, AGX_PICKLE_E_STOPPED);
        p->end = p->len;
        p->framed = false;
        return p->pos == p->end ? fail(p, p->pos, AGX_PICKLE_E_TRUNCATED) : 0;
}

int agx_pickle_next(agx_pickle *p, agx_pickle_op *op)
{
        do {
                int r = 0;
                op->pos = p->pos;
                if (p->pos == p->end)
                        r = at_end(p);
                if (r)
                        return r;
                op->code = p->data[p->pos++];
                const opcode *o = &OPCODES[op->code];
                op->kind = (agx_pickle_kind)o->kind;
                if (o->kind == AGX_PICKLE_UNKNOWN)
                        return fail(p, op->pos, AGX_PICKLE_E_OPCODE);
                if (o->form != FORM_NONE)
                        r = read_argument(p, op, (form)o->form);
                if (r)
                        return fail(p, op->pos, r);
        } while (op->kind == AGX_PICKLE_FRAME);
        return 0;
}

size_t agx_pickle_err_pos(const agx_pickle *p)
{
        return p->err_pos;
}

const char *agx_pickle_strerror(int err)
{
        static const char *const TEXT[] = {
                [0] = "no error",
                [AGX_PICKLE_E_TRUNCATED] = "the data ends too early",
                [AGX_PICKLE_E_OPCODE] = "unknown opcode",
                [AGX_PICKLE_E_PROTOCOL] = "unsupported or misplaced protocol number",
                [AGX_PICKLE_E_FRAME] = "a frame that does not fit",
                [AGX_PICKLE_E_LENGTH] = "a negative length",
                [AGX_PICKLE_E_NUMBER] = "text that is not a number",
                [AGX_PICKLE_E_DIGITS] = "an integer with too many digits",
                [AGX_PICKLE_E_QUOTES] = "a string without matching quotes",
                [AGX_PICKLE_E_TRAILING] = "bytes after the end",
                [AGX_PICKLE_E_STOPPED] = "read past the end",
        };
        if (err < 0 || (size_t)err >= sizeof TEXT / sizeof *TEXT)
                return "unknown error";
        return TEXT[err];
}

const char *agx_pickle_opcode_name(uint8_t code)
{
        return OPCODES[code].name;
}

agx_pickle_kind agx_pickle_opcode_kind(uint8_t code)
{
        return (agx_pickle_kind)OPCODES[code].kind;
}
