/* The pickle opcode reader: how each of the 256 bytes is classified, what arguments are read as, what is refused, and
 * that nothing behind the data is ever touched: every input ends at an unreadable page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/guard.h"
#include "wire/pickle.h"

#define BYTES(literal) (literal), sizeof(literal) - 1

static const agx_pickle_limits LIMITS = {.int_bytes = 16, .int_digits = 24};

/* --- classification ----------------------------------------------------------------------------------------------- */

/* Every opcode of the protocols 0 to 5 as the documentation of Python's pickletools lists them. */
static const struct {
        uint8_t code;
        const char *name;
        agx_pickle_kind kind;
} opcodes[] = {
        {'I', "INT", AGX_PICKLE_INT},
        {'J', "BININT", AGX_PICKLE_INT},
        {'K', "BININT1", AGX_PICKLE_INT},
        {'M', "BININT2", AGX_PICKLE_INT},
        {'L', "LONG", AGX_PICKLE_INT},
        {0x8a, "LONG1", AGX_PICKLE_BIG_BINARY},
        {0x8b, "LONG4", AGX_PICKLE_BIG_BINARY},
        {'S', "STRING", AGX_PICKLE_OLD_QUOTED},
        {'T', "BINSTRING", AGX_PICKLE_OLD_TEXT},
        {'U', "SHORT_BINSTRING", AGX_PICKLE_OLD_TEXT},
        {'B', "BINBYTES", AGX_PICKLE_BYTES},
        {'C', "SHORT_BINBYTES", AGX_PICKLE_BYTES},
        {0x8e, "BINBYTES8", AGX_PICKLE_BYTES},
        {0x96, "BYTEARRAY8", AGX_PICKLE_BYTEARRAY},
        {0x97, "NEXT_BUFFER", AGX_PICKLE_BUFFER},
        {0x98, "READONLY_BUFFER", AGX_PICKLE_BUFFER},
        {'N', "NONE", AGX_PICKLE_NONE},
        {0x88, "NEWTRUE", AGX_PICKLE_TRUE},
        {0x89, "NEWFALSE", AGX_PICKLE_FALSE},
        {'V', "UNICODE", AGX_PICKLE_TEXT_RAW},
        {0x8c, "SHORT_BINUNICODE", AGX_PICKLE_TEXT},
        {'X', "BINUNICODE", AGX_PICKLE_TEXT},
        {0x8d, "BINUNICODE8", AGX_PICKLE_TEXT},
        {'F', "FLOAT", AGX_PICKLE_FLOAT_TEXT},
        {'G', "BINFLOAT", AGX_PICKLE_FLOAT},
        {']', "EMPTY_LIST", AGX_PICKLE_EMPTY_LIST},
        {'a', "APPEND", AGX_PICKLE_APPEND},
        {'e', "APPENDS", AGX_PICKLE_APPENDS},
        {'l', "LIST", AGX_PICKLE_LIST},
        {')', "EMPTY_TUPLE", AGX_PICKLE_EMPTY_TUPLE},
        {'t', "TUPLE", AGX_PICKLE_TUPLE},
        {0x85, "TUPLE1", AGX_PICKLE_TUPLE1},
        {0x86, "TUPLE2", AGX_PICKLE_TUPLE2},
        {0x87, "TUPLE3", AGX_PICKLE_TUPLE3},
        {'}', "EMPTY_DICT", AGX_PICKLE_EMPTY_DICT},
        {'d', "DICT", AGX_PICKLE_DICT},
        {'s', "SETITEM", AGX_PICKLE_SETITEM},
        {'u', "SETITEMS", AGX_PICKLE_SETITEMS},
        {0x8f, "EMPTY_SET", AGX_PICKLE_EMPTY_SET},
        {0x90, "ADDITEMS", AGX_PICKLE_ADDITEMS},
        {0x91, "FROZENSET", AGX_PICKLE_FROZENSET},
        {'0', "POP", AGX_PICKLE_POP},
        {'2', "DUP", AGX_PICKLE_DUP},
        {'(', "MARK", AGX_PICKLE_MARK},
        {'1', "POP_MARK", AGX_PICKLE_POP_MARK},
        {'g', "GET", AGX_PICKLE_GET},
        {'h', "BINGET", AGX_PICKLE_GET},
        {'j', "LONG_BINGET", AGX_PICKLE_GET},
        {'p', "PUT", AGX_PICKLE_PUT},
        {'q', "BINPUT", AGX_PICKLE_PUT},
        {'r', "LONG_BINPUT", AGX_PICKLE_PUT},
        {0x94, "MEMOIZE", AGX_PICKLE_MEMOIZE},
        {0x82, "EXT1", AGX_PICKLE_EXT},
        {0x83, "EXT2", AGX_PICKLE_EXT},
        {0x84, "EXT4", AGX_PICKLE_EXT},
        {'c', "GLOBAL", AGX_PICKLE_GLOBAL},
        {0x93, "STACK_GLOBAL", AGX_PICKLE_STACK_GLOBAL},
        {'R', "REDUCE", AGX_PICKLE_REDUCE},
        {'b', "BUILD", AGX_PICKLE_BUILD},
        {'i', "INST", AGX_PICKLE_INST},
        {'o', "OBJ", AGX_PICKLE_OBJ},
        {0x81, "NEWOBJ", AGX_PICKLE_NEWOBJ},
        {0x92, "NEWOBJ_EX", AGX_PICKLE_NEWOBJ_EX},
        {0x80, "PROTO", AGX_PICKLE_PROTO},
        {'.', "STOP", AGX_PICKLE_STOP},
        {0x95, "FRAME", AGX_PICKLE_FRAME},
        {'P', "PERSID", AGX_PICKLE_PERSID},
        {'Q', "BINPERSID", AGX_PICKLE_PERSID},
};

enum { N_OPCODES = sizeof opcodes / sizeof *opcodes };

static void test_every_byte_is_classified(void **state)
{
        size_t known = 0;
        (void)state;
        for (int code = 0; code < 256; code++) {
                bool listed = false;
                for (size_t i = 0; i < N_OPCODES; i++) {
                        if (opcodes[i].code != code)
                                continue;
                        listed = true;
                        assert_string_equal(agx_pickle_opcode_name((uint8_t)code), opcodes[i].name);
                        assert_int_equal(agx_pickle_opcode_kind((uint8_t)code), opcodes[i].kind);
                }
                known += listed;
                if (!listed) {
                        assert_null(agx_pickle_opcode_name((uint8_t)code));
                        assert_int_equal(agx_pickle_opcode_kind((uint8_t)code), AGX_PICKLE_UNKNOWN);
                }
        }
        assert_int_equal(known, 68);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* Reads from a guarded copy until the first error, which it returns; `last` is the last opcode before it. */
static int read_all(const void *data, size_t size, agx_pickle_op *last, size_t *err_pos)
{
        uint8_t *copy = agx_guard_new(data, size);
        agx_pickle reader;
        agx_pickle_op op;
        int r;

        assert_non_null(copy);
        agx_pickle_init(&reader, copy, size, LIMITS);
        while ((r = agx_pickle_next(&reader, &op)) == 0) {
                assert_true(op.pos < reader.pos && reader.pos <= size);
                if (last && op.kind != AGX_PICKLE_STOP)
                        *last = op;
        }
        assert_int_equal(agx_pickle_next(&reader, &op), r);
        if (err_pos)
                *err_pos = agx_pickle_err_pos(&reader);
        agx_guard_free(copy, size);
        return r;
}

static const struct {
        const char *data;
        size_t size;
        agx_pickle_kind kind;
        int64_t i;
} integers[] = {
        {BYTES("K\x00."), AGX_PICKLE_INT, 0},
        {BYTES("K\xff."), AGX_PICKLE_INT, 255},
        {BYTES("M\x01\xff."), AGX_PICKLE_INT, 65281},
        {BYTES("J\xff\xff\xff\xff."), AGX_PICKLE_INT, -1},
        {BYTES("J\x00\x00\x00\x80."), AGX_PICKLE_INT, INT32_MIN},
        {BYTES("J\xff\xff\xff\x7f."), AGX_PICKLE_INT, INT32_MAX},
        {BYTES("\x8a\x00."), AGX_PICKLE_INT, 0},
        {BYTES("\x8a\x01\xff."), AGX_PICKLE_INT, -1},
        {BYTES("\x8a\x02\xff\x00."), AGX_PICKLE_INT, 255},
        {BYTES("\x8a\x07\xff\xff\xff\xff\xff\xff\x80."), AGX_PICKLE_INT, -0x7f000000000001},
        {BYTES("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f."), AGX_PICKLE_INT, INT64_MAX},
        {BYTES("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80."), AGX_PICKLE_INT, INT64_MIN},
        {BYTES("\x8b\x01\x00\x00\x00\x80."), AGX_PICKLE_INT, -128},
        {BYTES("I0\n."), AGX_PICKLE_INT, 0},
        {BYTES("I-12\n."), AGX_PICKLE_INT, -12},
        {BYTES("I007\n."), AGX_PICKLE_INT, 7},
        {BYTES("I999999999999999999\n."), AGX_PICKLE_INT, 999999999999999999},
        {BYTES("L-999999999999999999L\n."), AGX_PICKLE_INT, -999999999999999999},
        {BYTES("L5\n."), AGX_PICKLE_INT, 5},
        {BYTES("I01\n."), AGX_PICKLE_TRUE, 0},
        {BYTES("I00\n."), AGX_PICKLE_FALSE, 0},
        {BYTES("L01L\n."), AGX_PICKLE_INT, 1},
};

static void test_integers(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
                agx_pickle_op op = {0};
                assert_int_equal(read_all(integers[i].data, integers[i].size, &op, NULL), AGX_PICKLE_E_STOPPED);
                assert_int_equal(op.kind, integers[i].kind);
                if (op.kind == AGX_PICKLE_INT)
                        assert_true(op.i == integers[i].i);
        }
}

static void test_floats(void **state)
{
        agx_pickle_op op = {0};
        (void)state;
        assert_int_equal(read_all(BYTES("G\x3f\xf8\0\0\0\0\0\0."), &op, NULL), AGX_PICKLE_E_STOPPED);
        assert_int_equal(op.kind, AGX_PICKLE_FLOAT);
        assert_true(op.f == 1.5);
        assert_int_equal(read_all(BYTES("G\x80\0\0\0\0\0\0\0."), &op, NULL), AGX_PICKLE_E_STOPPED);
        assert_true(op.f == 0.0 && 1 / op.f < 0);
}

static const struct {
        const char *data;
        size_t size;
        agx_pickle_kind kind;
        size_t at, length; /* of the first view */
} views[] = {
        {BYTES("C\x00."), AGX_PICKLE_BYTES, 2, 0},
        {BYTES("C\x03"
               "abc."),
         AGX_PICKLE_BYTES, 2, 3},
        {BYTES("B\x03\0\0\0"
               "abc."),
         AGX_PICKLE_BYTES, 5, 3},
        {BYTES("\x8e\x03\0\0\0\0\0\0\0"
               "abc."),
         AGX_PICKLE_BYTES, 9, 3},
        {BYTES("\x96\x03\0\0\0\0\0\0\0"
               "abc."),
         AGX_PICKLE_BYTEARRAY, 9, 3},
        {BYTES("\x8c\x03"
               "abc."),
         AGX_PICKLE_TEXT, 2, 3},
        {BYTES("X\x03\0\0\0"
               "abc."),
         AGX_PICKLE_TEXT, 5, 3},
        {BYTES("\x8d\x03\0\0\0\0\0\0\0"
               "abc."),
         AGX_PICKLE_TEXT, 9, 3},
        {BYTES("U\x03"
               "abc."),
         AGX_PICKLE_OLD_TEXT, 2, 3},
        {BYTES("T\x03\0\0\0"
               "abc."),
         AGX_PICKLE_OLD_TEXT, 5, 3},
        {BYTES("Vabc\n."), AGX_PICKLE_TEXT_RAW, 1, 3},
        {BYTES("V\n."), AGX_PICKLE_TEXT_RAW, 1, 0},
        {BYTES("S'abc'\n."), AGX_PICKLE_OLD_QUOTED, 2, 3},
        {BYTES("S\"\"\n."), AGX_PICKLE_OLD_QUOTED, 2, 0},
        {BYTES("F1e-5\n."), AGX_PICKLE_FLOAT_TEXT, 1, 4},
        {BYTES("F-inf\n."), AGX_PICKLE_FLOAT_TEXT, 1, 4},
        {BYTES("cab\nc\n."), AGX_PICKLE_GLOBAL, 1, 2},
        {BYTES("\x8a\x09"
               "aaaaaaaaa."),
         AGX_PICKLE_BIG_BINARY, 2, 9},
        {BYTES("\x8b\x10\0\0\0"
               "aaaaaaaaaaaaaaaa."),
         AGX_PICKLE_BIG_BINARY, 5, 16},
        {BYTES("I-1234567890123456789\n."), AGX_PICKLE_BIG_TEXT, 1, 20},
        {BYTES("L123456789012345678901234L\n."), AGX_PICKLE_BIG_TEXT, 1, 24},
};

static void test_views(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
                agx_pickle reader;
                agx_pickle_op op;
                agx_pickle_init(&reader, views[i].data, views[i].size, LIMITS);
                assert_int_equal(agx_pickle_next(&reader, &op), 0);
                assert_int_equal(op.kind, views[i].kind);
                assert_ptr_equal(op.view[0].p, views[i].data + views[i].at);
                assert_int_equal(op.view[0].n, views[i].length);
                assert_int_equal(agx_pickle_next(&reader, &op), 0);
                assert_int_equal(op.kind, AGX_PICKLE_STOP);
        }
}

static void test_a_global_has_two_views(void **state)
{
        agx_pickle reader;
        agx_pickle_op op;
        (void)state;
        agx_pickle_init(&reader, BYTES("cos.path\njoin\n."), LIMITS);
        assert_int_equal(agx_pickle_next(&reader, &op), 0);
        assert_true(agx_view_eq(op.view[0], AGX_VIEW("os.path")));
        assert_true(agx_view_eq(op.view[1], AGX_VIEW("join")));
}

static void test_indexes(void **state)
{
        static const struct {
                const char *data;
                size_t size;
                agx_pickle_kind kind;
                uint64_t u;
        } rows[] = {
                {BYTES("g12\n."), AGX_PICKLE_GET, 12},
                {BYTES("p0\n."), AGX_PICKLE_PUT, 0},
                {BYTES("p9999999999\n."), AGX_PICKLE_PUT, 9999999999},
                {BYTES("h\xff."), AGX_PICKLE_GET, 255},
                {BYTES("q\x01."), AGX_PICKLE_PUT, 1},
                {BYTES("j\xff\xff\xff\xff."), AGX_PICKLE_GET, UINT32_MAX},
                {BYTES("r\x00\x01\x00\x00."), AGX_PICKLE_PUT, 256},
        };
        (void)state;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                agx_pickle_op op = {0};
                assert_int_equal(read_all(rows[i].data, rows[i].size, &op, NULL), AGX_PICKLE_E_STOPPED);
                assert_int_equal(op.kind, rows[i].kind);
                assert_true(op.u == rows[i].u);
        }
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

static const struct {
        const char *data;
        size_t size;
        int err;
        size_t pos;
} errors[] = {
        {BYTES(""), AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("N"), AGX_PICKLE_E_TRUNCATED, 1},
        {BYTES("N.."), AGX_PICKLE_E_TRAILING, 1},
        {BYTES("N.N."), AGX_PICKLE_E_TRAILING, 1},
        {BYTES("NN\x99."), AGX_PICKLE_E_OPCODE, 2},
        {BYTES("\0."), AGX_PICKLE_E_OPCODE, 0},
        {BYTES("\x80\x06N."), AGX_PICKLE_E_PROTOCOL, 0},
        {BYTES("\x80\xffN."), AGX_PICKLE_E_PROTOCOL, 0},
        {BYTES("N\x80\x02."), AGX_PICKLE_E_PROTOCOL, 1},
        {BYTES("\x80\x02\x80\x02N."), AGX_PICKLE_E_PROTOCOL, 2},
        {BYTES("C\x02"
               "a"),
         AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("B\xff\xff\xff\xff"
               "a."),
         AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("\x8e\xff\xff\xff\xff\xff\xff\xff\xff"
               "a."),
         AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("\x8d\xf7\xff\xff\xff\xff\xff\xff\xff"
               "a."),
         AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("T\xff\xff\xff\xff"
               "a."),
         AGX_PICKLE_E_LENGTH, 0},
        {BYTES("\x8b\xff\xff\xff\xff"
               "a."),
         AGX_PICKLE_E_LENGTH, 0},
        {BYTES("\x8b\xff\xff\xff\x7f"
               "a."),
         AGX_PICKLE_E_DIGITS, 0},
        {BYTES("\x8a\x11"
               "aaaaaaaaaaaaaaaaa."),
         AGX_PICKLE_E_DIGITS, 0},
        {BYTES("I1234567890123456789012345\n."), AGX_PICKLE_E_DIGITS, 0},
        {BYTES("I\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I-\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I--1\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I+1\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I1 \n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I1L\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("L\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("LL\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("I1\0\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("F\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("F1\0\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("Fnan()\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("Finfinity\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("F1,5\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("g\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("g-1\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("g12345678901\n."), AGX_PICKLE_E_NUMBER, 0},
        {BYTES("g1"), AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("Sabc\n."), AGX_PICKLE_E_QUOTES, 0},
        {BYTES("S'\n."), AGX_PICKLE_E_QUOTES, 0},
        {BYTES("S'abc\"\n."), AGX_PICKLE_E_QUOTES, 0},
        {BYTES("S\n."), AGX_PICKLE_E_QUOTES, 0},
        {BYTES("ca\nb"), AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("\x95\x02\0\0\0\0\0\0\0N"), AGX_PICKLE_E_FRAME, 0},
        {BYTES("\x95\xff\xff\xff\xff\xff\xff\xff\xffN."), AGX_PICKLE_E_FRAME, 0},
        {BYTES("\x95\x0b\0\0\0\0\0\0\0\x95\x02\0\0\0\0\0\0\0N."), AGX_PICKLE_E_FRAME, 9},
        {BYTES("\x95\x02\0\0\0\0\0\0\0\x8c\x01"
               "a."),
         AGX_PICKLE_E_TRUNCATED, 9},
        {BYTES("\x95\x03\0\0\0\0\0\0\0Vab\n."), AGX_PICKLE_E_TRUNCATED, 9},
        {BYTES("\x95\x01\0\0\0\0\0\0"), AGX_PICKLE_E_TRUNCATED, 0},
        {BYTES("\x95\x03\0\0\0\0\0\0\0N.N."), AGX_PICKLE_E_TRAILING, 10},
};

static void test_errors_say_what_and_where(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
                size_t pos = 0;
                int r = read_all(errors[i].data, errors[i].size, NULL, &pos);
                if (r != errors[i].err || pos != errors[i].pos)
                        print_message("row %zu: %s at %zu\n", i, agx_pickle_strerror(r), pos);
                assert_int_equal(r, errors[i].err);
                assert_int_equal(pos, errors[i].pos);
        }
}

static void test_every_error_has_words(void **state)
{
        (void)state;
        for (int i = 0; i <= AGX_PICKLE_E_STOPPED; i++)
                for (int j = 0; j < i; j++)
                        assert_string_not_equal(agx_pickle_strerror(i), agx_pickle_strerror(j));
        assert_string_equal(agx_pickle_strerror(-1), agx_pickle_strerror(AGX_PICKLE_E_STOPPED + 1));
}

/* --- frames, cuts ------------------------------------------------------------------------------------------------- */

static void test_frames_are_followed(void **state)
{
        agx_pickle_op op = {0};
        (void)state;
        assert_int_equal(read_all(BYTES("\x80\x04\x95\x02\0\0\0\0\0\0\0N."), &op, NULL), AGX_PICKLE_E_STOPPED);
        assert_int_equal(op.kind, AGX_PICKLE_NONE);
        /* Two frames, something between them, an empty one, something behind. */
        assert_int_equal(read_all(BYTES("\x80\x04\x95\x01\0\0\0\0\0\0\0NC\x01x\x95\0\0\0\0\0\0\0\0"
                                        "\x95\x02\0\0\0\0\0\0\0K\x05."),
                                  &op, NULL),
                         AGX_PICKLE_E_STOPPED);
        assert_int_equal(op.kind, AGX_PICKLE_INT);
        assert_int_equal(op.i, 5);
}

/* One opcode of every form. */
static const char SAMPLE[] = "\x80\x04\x95\x06\0\0\0\0\0\0\0\x8c\x04"
                             "abcd(I12\nL5L\nF1.5\nVx\nS'y'\ncm\nn\np1\ng1\n"
                             "K\x01M\x01\0J\1\0\0\0\x8a\x01\x05\x8b\x01\0\0\0\x05G\0\0\0\0\0\0\0\0C\x01z"
                             "B\x01\0\0\0zX\x01\0\0\0zU\x01zT\x01\0\0\0z\x8d\x01\0\0\0\0\0\0\0z\x8e\x01\0\0\0\0\0\0\0z"
                             "\x96\x01\0\0\0\0\0\0\0zq\1h\1r\1\0\0\0j\1\0\0\0\x94\x93Rb\x81\x92t.";

static void test_every_cut_is_an_error(void **state)
{
        const size_t size = sizeof SAMPLE - 1;
        (void)state;
        assert_int_equal(read_all(SAMPLE, size, NULL, NULL), AGX_PICKLE_E_STOPPED);
        for (size_t cut = 0; cut < size; cut++) {
                size_t pos;
                int r = read_all(SAMPLE, cut, NULL, &pos);
                assert_true(r == AGX_PICKLE_E_TRUNCATED || r == AGX_PICKLE_E_FRAME);
                assert_true(pos <= cut);
        }
}

/* Every byte followed by nothing, and by each of a few lengths that promise too much. */
static void test_no_byte_is_read_past_the_end(void **state)
{
        (void)state;
        for (int code = 0; code < 256; code++)
                for (int fill = 0; fill < 256; fill += 51)
                        for (size_t size = 1; size < 14; size++) {
                                uint8_t data[16];
                                memset(data, fill, sizeof data);
                                data[0] = (uint8_t)code;
                                assert_true(read_all(data, size, NULL, NULL) > 0);
                        }
}

/* The shortcut for integers makes of a stream what the reader makes of it, wherever the stream or its frame ends. */
static void test_integers_in_a_row(void **state)
{
        static const char INTS[] = "\x80\x04\x95\x16\0\0\0\0\0\0\0K\xffM\x34\x12J\xfe\xff\xff\xffJ\1\2\3\4"
                                   "NK\1K\2K\3K\4M\1\2M\xff\xffJ\0\0\0\x80K\5K\6K\7"
                                   "\x8a\5\1\2\3\4\x85\x8a\x08\1\2\3\4\5\6\7\x88\x8a\1\xff\x8a\0K\0\0\0\0"
                                   "\x8a\x09\1\2\3\4\5\6\7\x88\x99\x8a\x10\1\2\3\4\5\6\7\x88\x99\1\2\3\4\5\6\7"
                                   "K\1K\1K\1.";
        const size_t size = sizeof INTS - 1;
        (void)state;
        for (size_t cut = 0; cut <= size; cut++) {
                agx_pickle one, two;
                agx_pickle_op a = {0}, b = {0};
                int r, n_short = 0;
                agx_pickle_init(&one, INTS, cut, LIMITS);
                agx_pickle_init(&two, INTS, cut, LIMITS);
                do {
                        r = agx_pickle_next(&one, &a);
                        if (agx_pickle_next_int(&two, &b))
                                n_short++;
                        else
                                assert_int_equal(agx_pickle_next(&two, &b), r);
                        assert_int_equal(one.pos, two.pos);
                        if (r)
                                break;
                        assert_int_equal(a.kind, b.kind);
                        assert_int_equal(a.code, b.code);
                        assert_int_equal(a.pos, b.pos);
                        if (a.kind == AGX_PICKLE_INT)
                                assert_int_equal(a.i, b.i);
                        else if (a.kind == AGX_PICKLE_BIG_BINARY)
                                assert_true(a.view[0].p == b.view[0].p && a.view[0].n == b.view[0].n);
                } while (true);
                if (cut == size)
                        assert_true(n_short >= 14);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_byte_is_classified),
                cmocka_unit_test(test_integers),
                cmocka_unit_test(test_floats),
                cmocka_unit_test(test_views),
                cmocka_unit_test(test_a_global_has_two_views),
                cmocka_unit_test(test_indexes),
                cmocka_unit_test(test_errors_say_what_and_where),
                cmocka_unit_test(test_every_error_has_words),
                cmocka_unit_test(test_frames_are_followed),
                cmocka_unit_test(test_every_cut_is_an_error),
                cmocka_unit_test(test_no_byte_is_read_past_the_end),
                cmocka_unit_test(test_integers_in_a_row),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
