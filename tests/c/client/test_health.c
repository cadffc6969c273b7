/* The body of GET /health: what is one and what is not, each input flush against an unreadable page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/health.h"
#include "support/guard.h"

static bool reads(const char *text, agx_health *health)
{
        size_t n = strlen(text);
        uint8_t *data = agx_guard_new(text, n);
        bool ok;

        assert_non_null(data);
        ok = agx_health_read(agx_view_of(data, n), health);
        agx_guard_free(data, n);
        return ok;
}

#define BODY "{\"status\": \"ok\", \"version\": \"1.2\", \"instance\": \"abc\"}"

static void test_good(void **state)
{
        static const char *const texts[] = {
                BODY,
                "\r\n\t " BODY " \n",
                "{\"instance\":\"abc\",\"version\":\"1.2\",\"status\":\"ok\"}",
                "{\"status\":\"ok\",\"more\":\"\",\"version\":\"1.2\",\"instance\":\"abc\"}",
        };

        (void)state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
                agx_health health;

                assert_true(reads(texts[i], &health));
                assert_int_equal(health.status.n, 2);
                assert_int_equal(health.version.n, 3);
                assert_int_equal(health.instance.n, 3);
        }
}

static void test_every_prefix_is_refused(void **state)
{
        char text[sizeof(BODY)];
        agx_health health;

        (void)state;
        for (size_t n = 0; n < sizeof(BODY) - 1; ++n) {
                memcpy(text, BODY, n);
                text[n] = '\0';
                assert_false(reads(text, &health));
        }
}

static void test_bad(void **state)
{
        static const char *const texts[] = {
                "[]",
                "{}",
                "null",
                "{,}",
                (BODY ","),
                (BODY BODY),
                "{\"status\":\"ok\",\"version\":\"1\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"a\",}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"a\",\"instance\":\"a\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"a\\u0041\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"a\nb\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"\x7f\"}",
                "{\"status\":\"ok\",\"version\":1,\"instance\":\"a\"}",
                "{\"status\":\"ok\",\"version\":\"1\",\"instance\":{\"a\":\"b\"}}",
                "{status:\"ok\",\"version\":\"1\",\"instance\":\"a\"}",
                "{\"status\":\"ok\" \"version\":\"1\",\"instance\":\"a\"}",
        };

        (void)state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) {
                agx_health health;

                if (reads(texts[i], &health))
                        fail_msg("taken: %s", texts[i]);
        }
}

static void test_long_texts_are_refused(void **state)
{
        char text[512] = "{\"status\":\"ok\",\"version\":\"1\",\"instance\":\"";
        size_t n = strlen(text);
        agx_health health;

        (void)state;
        memset(text + n, 'a', 128);
        memcpy(text + n + 128, "\"}", 3);
        assert_true(reads(text, &health));
        memset(text + n, 'a', 129);
        memcpy(text + n + 129, "\"}", 3);
        assert_false(reads(text, &health));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_good),
                cmocka_unit_test(test_every_prefix_is_refused),
                cmocka_unit_test(test_bad),
                cmocka_unit_test(test_long_texts_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
