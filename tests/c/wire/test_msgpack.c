/* msgpack: the reader against tables, against msgpack-c's own unpacker on random values, and at its bounds; the writer
 * read back, at its ceiling and without memory. Inputs lie flush against an unreadable page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <msgpack.h>

#include "base/err.h"
#include "support/guard.h"
#include "support/oom.h"
#include "wire/msgpack.h"

typedef struct row {
        agx_view in;
        const char *want;
} row;

#define ROW(literal, want_)                                                                                            \
        {                                                                                                              \
                .in = {"" literal, sizeof(literal) - 1}, .want = (want_)                                               \
        }

/* ---- tokens as text ---- */

static void say_bytes(agx_buf *log, const char *kind, agx_view v)
{
        assert_int_equal(agx_buf_printf(log, "%s(", kind), 0);
        for (size_t i = 0; i < v.n && i < 40; ++i)
                assert_int_equal(agx_buf_printf(log, "%02x", (unsigned char)v.p[i]), 0);
        assert_int_equal(agx_buf_printf(log, ":%zu)", v.n), 0);
}

static void say_double(agx_buf *log, double d)
{
        uint64_t bits;

        memcpy(&bits, &d, sizeof(bits));
        assert_int_equal(agx_buf_printf(log, "float(%016llx)", (unsigned long long)bits), 0);
}

static void say(agx_buf *log, agx_mp_token t)
{
        int r = 0;

        switch (t.kind) {
        case AGX_MP_END:
                r = agx_buf_printf(log, "end");
                break;
        case AGX_MP_ERROR:
                r = agx_buf_printf(log, "error");
                break;
        case AGX_MP_NIL:
                r = agx_buf_printf(log, "nil ");
                break;
        case AGX_MP_BOOL:
                r = agx_buf_printf(log, t.b ? "true " : "false ");
                break;
        case AGX_MP_INT:
                r = agx_buf_printf(log, "int(%lld) ", (long long)t.i);
                break;
        case AGX_MP_UINT:
                r = agx_buf_printf(log, "uint(%llu) ", (unsigned long long)t.u);
                break;
        case AGX_MP_FLOAT:
                say_double(log, t.d);
                r = agx_buf_printf(log, " ");
                break;
        case AGX_MP_STR:
                say_bytes(log, "str", t.v);
                r = agx_buf_printf(log, " ");
                break;
        case AGX_MP_BIN:
                say_bytes(log, "bin", t.v);
                r = agx_buf_printf(log, " ");
                break;
        case AGX_MP_ARRAY:
                r = agx_buf_printf(log, "array(%zu) ", t.count);
                break;
        case AGX_MP_MAP:
                r = agx_buf_printf(log, "map(%zu) ", t.count);
                break;
        case AGX_MP_EXT:
                r = agx_buf_printf(log, "ext%d", t.ext_type);
                say_bytes(log, "", t.v);
                r = r ? r : agx_buf_printf(log, " ");
                break;
        }
        assert_int_equal(r, 0);
}

/* All tokens up to the end or an error. */
static void say_all(agx_buf *log, agx_view bytes)
{
        uint8_t *guarded = agx_guard_new(bytes.p, bytes.n);
        agx_mp_reader reader = agx_mp_reader_on(agx_view_of(guarded, bytes.n));
        agx_mp_token t;

        do {
                t = agx_mp_next(&reader);
                say(log, t);
        } while (t.kind != AGX_MP_END && t.kind != AGX_MP_ERROR);
        assert_int_equal(t.kind == AGX_MP_ERROR, reader.error != NULL);
        assert_int_equal(agx_mp_done(&reader), t.kind == AGX_MP_END);
        assert_int_equal(agx_mp_next(&reader).kind, t.kind); /* sticky */
        agx_guard_free(guarded, bytes.n);
}

static bool skips(agx_view bytes, size_t depth)
{
        uint8_t *guarded = agx_guard_new(bytes.p, bytes.n);
        agx_mp_reader reader = agx_mp_reader_on(agx_view_of(guarded, bytes.n));
        bool whole = agx_mp_skip(&reader, depth);

        assert_int_equal(whole, reader.error == NULL);
        whole = whole && agx_mp_done(&reader);
        agx_guard_free(guarded, bytes.n);
        return whole;
}

static void check(const row *rows, size_t n)
{
        for (size_t i = 0; i < n; ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(100000);

                say_all(&log, rows[i].in);
                assert_int_equal(agx_buf_append(&log, "", 1), 0);
                assert_string_equal(agx_buf_view(&log).p, rows[i].want);
        }
}

#define CHECK(rows) check(rows, sizeof(rows) / sizeof((rows)[0]))

/* ---- reading ---- */

static void test_numbers(void **state)
{
        static const row rows[] = {
                ROW("", "end"),
                ROW("\x00", "uint(0) end"),
                ROW("\x7f", "uint(127) end"),
                ROW("\xff", "int(-1) end"),
                ROW("\xe0", "int(-32) end"),
                ROW("\xcc\xff", "uint(255) end"),
                ROW("\xcc\x01", "uint(1) end"), /* longer than needed is allowed */
                ROW("\xcd\x01\x02", "uint(258) end"),
                ROW("\xce\xff\xff\xff\xff", "uint(4294967295) end"),
                ROW("\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "uint(18446744073709551615) end"),
                ROW("\xd0\x80", "int(-128) end"),
                ROW("\xd0\x7f", "uint(127) end"),
                ROW("\xd0\xff", "int(-1) end"),
                ROW("\xd1\xff\xff", "int(-1) end"),
                ROW("\xd1\x80\x00", "int(-32768) end"),
                ROW("\xd2\x80\x00\x00\x00", "int(-2147483648) end"),
                ROW("\xd2\x00\x00\x00\x05", "uint(5) end"),
                ROW("\xd3\x80\x00\x00\x00\x00\x00\x00\x00", "int(-9223372036854775808) end"),
                ROW("\xd3\x7f\xff\xff\xff\xff\xff\xff\xff", "uint(9223372036854775807) end"),
                ROW("\xca\x3f\x80\x00\x00", "float(3ff0000000000000) end"),
                ROW("\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00", "float(3ff0000000000000) end"),
                ROW("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00", "float(7ff8000000000000) end"),
                ROW("\xc0\xc2\xc3", "nil false true end"),
                ROW("\xcc", "error"),
                ROW("\xcd\x01", "error"),
                ROW("\xce\x01\x02\x03", "error"),
                ROW("\xcf\x01\x02\x03\x04\x05\x06\x07", "error"),
                ROW("\xd0", "error"),
                ROW("\xd3\x01\x02\x03\x04\x05\x06\x07", "error"),
                ROW("\xca\x01\x02\x03", "error"),
                ROW("\xcb\x01", "error"),
                ROW("\xc1", "error"),
        };

        (void)state;
        CHECK(rows);
}

static void test_bytes(void **state)
{
        static const row rows[] = {
                ROW("\xa0", "str(:0) end"),
                ROW("\xa2hi", "str(6869:2) end"),
                ROW("\xd9\x02hi", "str(6869:2) end"),
                ROW("\xda\x00\x02hi", "str(6869:2) end"),
                ROW("\xdb\x00\x00\x00\x02hi", "str(6869:2) end"),
                ROW("\xc4\x00", "bin(:0) end"),
                ROW("\xc4\x02\xff\x00", "bin(ff00:2) end"),
                ROW("\xc5\x00\x02\xff\x00", "bin(ff00:2) end"),
                ROW("\xc6\x00\x00\x00\x02\xff\x00", "bin(ff00:2) end"),
                ROW("\xd4\x05z", "ext5(7a:1) end"),
                ROW("\xd5\xffzz", "ext-1(7a7a:2) end"),
                ROW("\xd6\x01zzzz", "ext1(7a7a7a7a:4) end"),
                ROW("\xd7\x01zzzzzzzz", "ext1(7a7a7a7a7a7a7a7a:8) end"),
                ROW("\xd8\x01zzzzzzzzzzzzzzzz", "ext1(7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a:16) end"),
                ROW("\xc7\x00\x01", "ext1(:0) end"),
                ROW("\xc7\x03\x80xyz", "ext-128(78797a:3) end"),
                ROW("\xc8\x00\x01\x02x", "ext2(78:1) end"),
                ROW("\xc9\x00\x00\x00\x01\x02x", "ext2(78:1) end"),
                ROW("\xa2h", "error"),
                ROW("\xd9\x02h", "error"),
                ROW("\xd9", "error"),
                ROW("\xda\x01", "error"),
                ROW("\xdb\xff\xff\xff\xffhi", "error"),
                ROW("\xc4\x02\xff", "error"),
                ROW("\xc6\xff\xff\xff\xffhi", "error"),
                ROW("\xc7\x01\x01", "error"),
                ROW("\xc7\x00", "error"),
                ROW("\xd4\x05", "error"),
                ROW("\xd8\x01zzzzzzzzzzzzzzz", "error"),
                ROW("\xc9\xff\xff\xff\xff\x01", "error"),
                ROW("\xa1\xff", "error"),         /* not UTF-8 */
                ROW("\xa2\xc0\x80", "error"),     /* overlong */
                ROW("\xa3\xed\xa0\x80", "error"), /* a surrogate */
                ROW("\xa1\xc3", "error"),         /* cut */
                ROW("\xa2\xc3\xa4", "str(c3a4:2) end"),
                ROW("\xa1\x00", "str(00:1) end"),
        };

        (void)state;
        CHECK(rows);
}

static void test_containers(void **state)
{
        static const row rows[] = {
                ROW("\x90", "array(0) end"),
                ROW("\x80", "map(0) end"),
                ROW("\x92\x01\x02", "array(2) uint(1) uint(2) end"),
                ROW("\x81\xa1k\xc4\x01v", "map(1) str(6b:1) bin(76:1) end"),
                ROW("\xdc\x00\x01\xc0", "array(1) nil end"),
                ROW("\xdd\x00\x00\x00\x01\xc0", "array(1) nil end"),
                ROW("\xde\x00\x01\xc0\xc0", "map(1) nil nil end"),
                ROW("\xdf\x00\x00\x00\x01\xc0\xc0", "map(1) nil nil end"),
                ROW("\x92\x01", "error"),
                ROW("\x81\x01", "error"),
                ROW("\xdc\x00", "error"),
                ROW("\xdd\xff\xff\xff\xff\xc0\xc0\xc0", "error"),
                ROW("\xdf\xff\xff\xff\xff\xc0\xc0\xc0", "error"),
                ROW("\xdf\x80\x00\x00\x00\xc0\xc0", "error"), /* times two it would not fit 32 bits */
                ROW("\xde\x00\x02\xc0\xc0\xc0", "error"),
        };

        (void)state;
        CHECK(rows);
}

static void test_skip(void **state)
{
        (void)state;
        assert_true(skips(AGX_VIEW("\x01"), 0));
        assert_true(skips(AGX_VIEW("\x90"), 1));
        assert_false(skips(AGX_VIEW("\x90"), 0));
        assert_true(skips(AGX_VIEW("\x93\x91\xc0\x80\xc2"), 2));
        assert_false(skips(AGX_VIEW("\x93\x91\xc0\x80\xc2"), 1));
        assert_true(skips(AGX_VIEW("\x82\x01\x92\x02\x03\x04\x81\x05\x06"), 2));
        assert_false(skips(AGX_VIEW(""), 9));
        assert_false(skips(AGX_VIEW("\x92\x01"), 9));
        assert_false(skips(AGX_VIEW("\x01\x02"), 9)); /* bytes behind the value */
        assert_false(skips(AGX_VIEW("\x91\xc1"), 9));
        assert_false(skips(AGX_VIEW("\x92\x91\x91\x01"), 9));
}

/* Nesting costs neither stack nor time beyond the bytes. */
static void test_deep_nesting(void **state)
{
        enum { DEEP = 100000 };
        static char bytes[DEEP + 1];

        (void)state;
        memset(bytes, '\x91', DEEP);
        bytes[DEEP] = '\x00';
        assert_false(skips(agx_view_of(bytes, DEEP + 1), 64));
        assert_false(skips(agx_view_of(bytes, DEEP + 1), SIZE_MAX));
        assert_true(skips(agx_view_of(bytes + DEEP - 64, 65), 64));
        assert_false(skips(agx_view_of(bytes + DEEP - 65, 66), 64));
        assert_true(skips(agx_view_of(bytes + DEEP - AGX_MP_DEPTH_MAX, AGX_MP_DEPTH_MAX + 1), SIZE_MAX));
        memset(bytes, '\x81', DEEP);
        assert_false(skips(agx_view_of(bytes, DEEP), 64));
}

/* ---- against msgpack-c ---- */

static uint64_t seed = 88172645463325252u;

static uint64_t random64(void)
{
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return seed;
}

/* Numbers of every size, small ones often. */
static uint64_t random_sized(void)
{
        return random64() >> (random64() % 64);
}

static void pack_bytes(msgpack_packer *pk)
{
        static char bytes[70000];
        size_t n = random64() % 400 ? random64() % 300 : 66000;
        uint64_t kind = random64() % 3;

        memset(bytes, kind ? 'a' : '\xff', n);
        if (kind == 0)
                msgpack_pack_bin_with_body(pk, bytes, n);
        else if (kind == 1)
                msgpack_pack_str_with_body(pk, bytes, n);
        else
                msgpack_pack_ext_with_body(pk, bytes, n % 20, (int8_t)random64());
}

static void pack_scalar(msgpack_packer *pk)
{
        switch (random64() % 7) {
        case 0:
                msgpack_pack_uint64(pk, random_sized());
                break;
        case 1:
                msgpack_pack_int64(pk, -(int64_t)(random_sized() >> 1) - 1);
                break;
        case 2:
                msgpack_pack_double(pk, (double)(int64_t)random64() / 3);
                break;
        case 3:
                msgpack_pack_float(pk, (float)(int32_t)random64() / 3);
                break;
        case 4:
                random64() % 2 ? msgpack_pack_true(pk) : msgpack_pack_false(pk);
                break;
        case 5:
                msgpack_pack_nil(pk);
                break;
        default:
                pack_bytes(pk);
        }
}

static void pack_value(msgpack_packer *pk, unsigned depth)
{
        uint64_t n = random64() % 100 ? random64() % 6 : random64() % 40;

        if (depth == 0 || random64() % 3 == 0) {
                pack_scalar(pk);
        } else if (random64() % 2) {
                msgpack_pack_array(pk, n);
                while (n--)
                        pack_value(pk, depth - 1);
        } else {
                msgpack_pack_map(pk, n);
                for (n *= 2; n; --n)
                        pack_value(pk, depth - 1);
        }
}

static agx_mp_token token_of(const msgpack_object *o)
{
        switch (o->type) {
        case MSGPACK_OBJECT_NIL:
                return (agx_mp_token){.kind = AGX_MP_NIL};
        case MSGPACK_OBJECT_BOOLEAN:
                return (agx_mp_token){.kind = AGX_MP_BOOL, .b = o->via.boolean};
        case MSGPACK_OBJECT_POSITIVE_INTEGER:
                return (agx_mp_token){.kind = AGX_MP_UINT, .u = o->via.u64};
        case MSGPACK_OBJECT_NEGATIVE_INTEGER:
                return (agx_mp_token){.kind = AGX_MP_INT, .i = o->via.i64};
        case MSGPACK_OBJECT_FLOAT32:
        case MSGPACK_OBJECT_FLOAT64:
                return (agx_mp_token){.kind = AGX_MP_FLOAT, .d = o->via.f64};
        case MSGPACK_OBJECT_STR:
                return (agx_mp_token){.kind = AGX_MP_STR, .v = agx_view_of(o->via.str.ptr, o->via.str.size)};
        case MSGPACK_OBJECT_BIN:
                return (agx_mp_token){.kind = AGX_MP_BIN, .v = agx_view_of(o->via.bin.ptr, o->via.bin.size)};
        case MSGPACK_OBJECT_EXT:
                return (agx_mp_token){.kind = AGX_MP_EXT,
                                      .ext_type = o->via.ext.type,
                                      .v = agx_view_of(o->via.ext.ptr, o->via.ext.size)};
        case MSGPACK_OBJECT_ARRAY:
                return (agx_mp_token){.kind = AGX_MP_ARRAY, .count = o->via.array.size};
        case MSGPACK_OBJECT_MAP:
                return (agx_mp_token){.kind = AGX_MP_MAP, .count = o->via.map.size};
        default:
                return (agx_mp_token){.kind = AGX_MP_ERROR};
        }
}

static void say_object(agx_buf *log, const msgpack_object *o)
{
        say(log, token_of(o));
        for (size_t i = 0; o->type == MSGPACK_OBJECT_ARRAY && i < o->via.array.size; ++i)
                say_object(log, &o->via.array.ptr[i]);
        for (size_t i = 0; o->type == MSGPACK_OBJECT_MAP && i < o->via.map.size; ++i) {
                say_object(log, &o->via.map.ptr[i].key);
                say_object(log, &o->via.map.ptr[i].val);
        }
}

/* One random value: both readers say the same, and no proper beginning of it passes. */
static void compare_one(void)
{
        _cleanup_(agx_buf_deinitp) agx_buf ours = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_buf_deinitp) agx_buf theirs = AGX_BUF_NULL(SIZE_MAX);
        msgpack_sbuffer bytes;
        msgpack_packer pk;
        msgpack_unpacked result;
        agx_view view;

        msgpack_sbuffer_init(&bytes);
        msgpack_packer_init(&pk, &bytes, msgpack_sbuffer_write);
        pack_value(&pk, 6);
        view = agx_view_of(bytes.data, bytes.size);
        msgpack_unpacked_init(&result);
        assert_int_equal(msgpack_unpack_next(&result, bytes.data, bytes.size, NULL), MSGPACK_UNPACK_SUCCESS);
        say_object(&theirs, &result.data);
        assert_int_equal(agx_buf_printf(&theirs, "end"), 0);
        say_all(&ours, view);
        assert_true(agx_view_eq(agx_buf_view(&ours), agx_buf_view(&theirs)));
        assert_true(skips(view, 6));
        for (size_t cut = 0; cut < view.n; cut += 1 + view.n / 20)
                assert_false(skips(agx_view_first(view, cut), 6));
        msgpack_unpacked_destroy(&result);
        msgpack_sbuffer_destroy(&bytes);
}

static void test_agrees_with_msgpack_c(void **state)
{
        (void)state;
        for (int i = 0; i < 600; ++i)
                compare_one();
}

/* ---- writing ---- */

static agx_mp_writer write_all(agx_buf *out)
{
        static const char bytes[70000];
        static const size_t lengths[] = {0, 1, 31, 32, 255, 256, 65535, 65536};
        agx_mp_writer w = agx_mp_writer_on(out);

        agx_mp_put_array(&w, 10 + 2 * 8);
        agx_mp_put_nil(&w);
        agx_mp_put_bool(&w, true);
        agx_mp_put_bool(&w, false);
        agx_mp_put_int(&w, -1);
        agx_mp_put_int(&w, INT64_MIN);
        agx_mp_put_int(&w, 300);
        agx_mp_put_uint(&w, 0);
        agx_mp_put_uint(&w, UINT64_MAX);
        agx_mp_put_map(&w, 1);
        agx_mp_put_str(&w, AGX_VIEW("key"));
        agx_mp_put_bin(&w, AGX_VIEW("\xff"));
        agx_mp_put_array(&w, 0);
        for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); ++i) {
                agx_mp_put_str(&w, agx_view_of(bytes, lengths[i]));
                agx_mp_put_bin(&w, agx_view_of(bytes, lengths[i]));
        }
        return w;
}

static void test_written_is_read_back(void **state)
{
        static const char want[] = "array(26) nil true false int(-1) int(-9223372036854775808) uint(300) uint(0) "
                                   "uint(18446744073709551615) map(1) str(6b6579:3) bin(ff:1) array(0) str(:0) bin(:0) "
                                   "str(00:1) bin(00:1) ";
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(SIZE_MAX);
        agx_mp_writer w = write_all(&out);

        (void)state;
        assert_int_equal(agx_mp_writer_end(&w), 0);
        assert_true(skips(agx_buf_view(&out), 2));
        say_all(&log, agx_buf_view(&out));
        assert_true(agx_view_starts(agx_buf_view(&log), agx_view_of(want, sizeof(want) - 1)));
}

static void test_shortest_forms(void **state)
{
        static const row rows[] = {
                ROW("\x7f", "127"),
                ROW("\xcc\x80", "128"),
                ROW("\xcd\x01\x00", "256"),
                ROW("\xce\x00\x01\x00\x00", "65536"),
                ROW("\xcf\x00\x00\x00\x01\x00\x00\x00\x00", "4294967296"),
                ROW("\xe0", "-32"),
                ROW("\xd0\xdf", "-33"),
                ROW("\xd1\xff\x7f", "-129"),
                ROW("\xd2\xff\xff\x7f\xff", "-32769"),
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(100);
                agx_mp_writer w = agx_mp_writer_on(&out);

                agx_mp_put_int(&w, strtoll(rows[i].want, NULL, 10));
                assert_true(agx_view_eq(agx_buf_view(&out), rows[i].in));
        }
}

static void test_bin_head(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(100);
        agx_mp_writer w = agx_mp_writer_on(&out);

        (void)state;
        agx_mp_put_bin_head(&w, 70000);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("\xc6\x00\x01\x11\x70")));
        agx_mp_put_bin_head(&w, (size_t)UINT32_MAX + 1);
        assert_int_equal(agx_mp_writer_end(&w), AGX_BUF_E_FULL);
}

/* At every ceiling below the whole the writer says "full", and says it to the end. */
static void test_full(void **state)
{
        (void)state;
        for (size_t max = 0; max < 200; ++max) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(max);
                agx_mp_writer w = write_all(&out);

                assert_int_equal(agx_mp_writer_end(&w), AGX_BUF_E_FULL);
                agx_mp_put_nil(&w);
                assert_int_equal(agx_mp_writer_end(&w), AGX_BUF_E_FULL);
                assert_true(out.len <= max);
        }
}

static void test_out_of_memory(void **state)
{
        size_t n = 0;
        bool fired;

        (void)state;
        do {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
                agx_mp_writer w;

                agx_oom_arm(++n);
                w = write_all(&out);
                fired = agx_oom_disarm();
                assert_int_equal(agx_mp_writer_end(&w), fired ? -ENOMEM : 0);
        } while (fired);
        assert_true(n > 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_numbers),
                cmocka_unit_test(test_bytes),
                cmocka_unit_test(test_containers),
                cmocka_unit_test(test_skip),
                cmocka_unit_test(test_deep_nesting),
                cmocka_unit_test(test_agrees_with_msgpack_c),
                cmocka_unit_test(test_written_is_read_back),
                cmocka_unit_test(test_shortest_forms),
                cmocka_unit_test(test_bin_head),
                cmocka_unit_test(test_full),
                cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
