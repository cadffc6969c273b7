/* base64url: RFC 4648's own values, every length back and forth, and what must not decode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/guard.h"
#include "wire/base64url.h"

static void test_known_values(void **state)
{
        static const char *const rows[][2] = {
                {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},          {"foo", "Zm9v"},
                {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}, {"\xfb\xff\xbf", "-_-_"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_view bytes = agx_view_str(rows[i][0]), text = agx_view_str(rows[i][1]);
                char out[16] = {0};
                uint8_t back[16];

                assert_int_equal(AGX_BASE64URL_LENGTH(bytes.n), text.n);
                agx_base64url_encode(bytes, out);
                assert_string_equal(out, text.p);
                assert_true(agx_base64url_decode(text, back, bytes.n));
                assert_memory_equal(back, bytes.p, bytes.n);
        }
}

/* Exactly the announced number of characters and of bytes is written: both ends lie against an unreadable page. */
static void test_every_length(void **state)
{
        (void)state;
        for (size_t n = 0; n <= 66; ++n) {
                uint8_t bytes[66];
                uint8_t *text, *back;

                for (size_t i = 0; i < n; ++i)
                        bytes[i] = (uint8_t)(i * 37 + n);
                text = agx_guard_new((char[100]){0}, AGX_BASE64URL_LENGTH(n));
                back = agx_guard_new((char[100]){0}, n);
                agx_base64url_encode(agx_view_of(bytes, n), (char *)text);
                assert_true(agx_base64url_decode(agx_view_of(text, AGX_BASE64URL_LENGTH(n)), back, n));
                assert_memory_equal(back, bytes, n);
                agx_guard_free(text, AGX_BASE64URL_LENGTH(n));
                agx_guard_free(back, n);
        }
}

static void test_refused(void **state)
{
        static const struct {
                const char *text;
                size_t n;
        } rows[] = {
                {"Zg==", 1}, {"Zg=", 1},     {"Z", 1},      {"Zm", 2},   {"Zg", 2},      {"Zg", 0},   {"Zm9v", 4},
                {"Zh", 1}, /* bits left over that are not 0 */
                {"Zm9", 2},  {"Zm 9v", 3},   {"Zm\n9v", 3}, {" Zm9", 3}, {"Zm9 ", 3},    {"Zm9=", 3}, {"Zm9+", 3},
                {"Zm9/", 3}, {"Zm9\xff", 3}, {"=", 0},      {"", 1},     {"Zm9vZm9", 6}, {"====", 3}, {"Z g", 2},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                uint8_t out[16];

                assert_false(agx_base64url_decode(agx_view_str(rows[i].text), out, rows[i].n));
        }
        assert_false(agx_base64url_decode(AGX_VIEW("Zm9\0"), (uint8_t[4]){0}, 3));
        assert_false(agx_base64url_decode(AGX_VIEW("Zm9v"), (uint8_t[4]){0}, SIZE_MAX));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_known_values),
                cmocka_unit_test(test_every_length),
                cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
