/* JSON arguments as msgpack: each kind of value, placeholders at any depth, what cannot be said. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/msgpack.h"
#include "wire/sio_pack.h"

static const agx_view attachments[] = {{"one", 3}, {"two", 3}};
static const agx_sio_packet packet = {.type = AGX_SIO_EVENT, .attachments = attachments, .n_attachments = 2};

/* What `bytes` say, in a notation of the test's. */
static void show(agx_mp_reader *r, agx_buf *out)
{
        agx_mp_token t = agx_mp_next(r);

        switch (t.kind) {
        case AGX_MP_NIL:
                assert_int_equal(agx_buf_printf(out, "nil "), 0);
                break;
        case AGX_MP_BOOL:
                assert_int_equal(agx_buf_printf(out, t.b ? "true " : "false "), 0);
                break;
        case AGX_MP_INT:
                assert_int_equal(agx_buf_printf(out, "%lld ", (long long)t.i), 0);
                break;
        case AGX_MP_UINT:
                assert_int_equal(agx_buf_printf(out, "%llu ", (unsigned long long)t.u), 0);
                break;
        case AGX_MP_FLOAT:
                assert_int_equal(agx_buf_printf(out, "%gf ", t.d), 0);
                break;
        case AGX_MP_STR:
                assert_int_equal(agx_buf_printf(out, "'%.*s' ", (int)t.v.n, t.v.p), 0);
                break;
        case AGX_MP_BIN:
                assert_int_equal(agx_buf_printf(out, "<%.*s> ", (int)t.v.n, t.v.p), 0);
                break;
        case AGX_MP_ARRAY:
        case AGX_MP_MAP:
                assert_int_equal(agx_buf_printf(out, t.kind == AGX_MP_MAP ? "{ " : "[ "), 0);
                for (size_t n = t.kind == AGX_MP_MAP ? 2 * t.count : t.count; n; --n)
                        show(r, out);
                assert_int_equal(agx_buf_printf(out, t.kind == AGX_MP_MAP ? "} " : "] "), 0);
                break;
        default:
                fail_msg("no such token was to be written");
        }
}

static void check(const agx_sio_packet *p, const char *json, const char *expected)
{
        _cleanup_(agx_buf_deinitp) agx_buf packed = AGX_BUF_NULL(1000), shown = AGX_BUF_NULL(1000);
        agx_mp_reader r;

        assert_int_equal(agx_sio_arg_pack(p, agx_view_str(json), &packed), 0);
        r = agx_mp_reader_on(agx_buf_view(&packed));
        show(&r, &shown);
        assert_true(agx_mp_done(&r));
        assert_int_equal(agx_buf_append(&shown, "", 1), 0);
        assert_string_equal((const char *)shown.data + shown.head, expected);
}

static void test_values(void **state)
{
        static const char *const rows[][2] = {
                {"null", "nil "},
                {"true", "true "},
                {"\"a\\u00e9\\n\"", "'a\xc3\xa9\n' "},
                {"0", "0 "},
                {"-1", "-1 "},
                {"-0", "-0f "},
                {"18446744073709551615", "18446744073709551615 "},
                {"18446744073709551616", "1.84467e+19f "},
                {"-9223372036854775807", "-9223372036854775807 "},
                {"1.5", "1.5f "},
                {"1e3", "1000f "},
                {"[]", "[ ] "},
                {"{}", "{ } "},
                {"[1,[2,{\"a\":[]}],\"\"]", "[ 1 [ 2 { 'a' [ ] } ] '' ] "},
                {"{\"a\":1,\"a\":{\"b\":null}}", "{ 'a' 1 'a' { 'b' nil } } "},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                check(&packet, rows[i][0], rows[i][1]);
}

static void test_placeholders(void **state)
{
        static const agx_sio_packet none = {.type = AGX_SIO_EVENT};

        (void)state;
        check(&packet, "{\"a\":{\"_placeholder\":true,\"num\":1},\"b\":[{\"num\":0,\"_placeholder\":true}]}",
              "{ 'a' <two> 'b' [ <one> ] } ");
        check(&packet, "{\"_placeholder\":false,\"num\":1}", "{ '_placeholder' false 'num' 1 } ");
        check(&packet, "{\"_placeholder\":true}", "{ '_placeholder' true } ");
        check(&none, "{\"_placeholder\":true,\"num\":0}", "{ '_placeholder' true 'num' 0 } ");
}

static void test_what_cannot_be_said(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000), small = AGX_BUF_NULL(8);
        char digits[600];

        (void)state;
        assert_int_equal(agx_sio_arg_pack(&packet, AGX_VIEW("1e999"), &out), AGX_SIO_E_BAD);
        memset(digits, '1', sizeof(digits));
        assert_int_equal(agx_sio_arg_pack(&packet, agx_view_of(digits, sizeof(digits)), &out), AGX_SIO_E_BAD);
        assert_int_equal(agx_sio_arg_pack(&packet, AGX_VIEW("{\"_placeholder\":true,\"num\":2}"), &out), AGX_SIO_E_BAD);
        assert_int_equal(agx_sio_arg_pack(&packet, AGX_VIEW("[1,"), &out), AGX_SIO_E_BAD);
        assert_int_equal(agx_sio_arg_pack(&packet, AGX_VIEW("[\"abcdefgh\"]"), &small), AGX_BUF_E_FULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values),
                cmocka_unit_test(test_placeholders),
                cmocka_unit_test(test_what_cannot_be_said),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
