/* Tokens, hosts and origins as tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "server/auth.h"

static const struct {
        const char *file;
        int result;
        const char *header;
        bool ok;
} tokens[] = {
        {"secret", 0, "Bearer secret", true},
        {"  secret\r\n\n", 0, "Bearer secret", true},
        {"secret", 0, "bearer secret", true}, /* RFC 9110: the scheme's case is free, */
        {"secret", 0, "Bearer   secret ", true},
        {"secret", 0, "Bearer SECRET", false}, /* the token's is not */
        {"secret", 0, "Bearer secre", false},
        {"secret", 0, "Bearer secrets", false},
        {"secret", 0, "Bearer", false},
        {"secret", 0, "Bearer ", false},
        {"secret", 0, "Basic secret", false},
        {"secret", 0, "secret", false},
        {"secret", 0, "Bearer secret extra", false},
        {"secret", 0, "", false},
        {"", AGX_AUTH_E_BAD, "Bearer ", false},
        {" \n", AGX_AUTH_E_BAD, "Bearer ", false},
        {"two words", AGX_AUTH_E_BAD, "Bearer two words", false},
        {"caf\xc3\xa9", AGX_AUTH_E_BAD, "Bearer caf\xc3\xa9", false},
};

static void tokens_are_checked(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
                agx_auth a;

                agx_auth_init(&a);
                assert_int_equal(agx_auth_set_token(&a, agx_view_str(tokens[i].file)), tokens[i].result);
                assert_int_equal(agx_auth_has_token(&a), tokens[i].result == 0);
                if (agx_auth_token_ok(&a, agx_view_str(tokens[i].header)) != tokens[i].ok)
                        fail_msg("row %zu", i);
                assert_false(agx_auth_token_ok(&a, AGX_VIEW_NULL));
                agx_auth_deinit(&a);
                agx_auth_deinit(&a);
        }
}

static void a_token_has_a_limit(void **state)
{
        char text[AGX_TOKEN_MAX + 1];
        agx_auth a;

        (void)state;
        memset(text, 't', sizeof(text));
        agx_auth_init(&a);
        assert_int_equal(agx_auth_set_token(&a, agx_view_of(text, sizeof(text))), AGX_AUTH_E_BAD);
        assert_int_equal(agx_auth_set_token(&a, agx_view_of(text, sizeof(text) - 1)), 0);
        agx_auth_deinit(&a);
}

static void without_a_token_none_is_valid(void **state)
{
        agx_auth a;

        (void)state;
        agx_auth_init(&a);
        assert_false(agx_auth_token_ok(&a, AGX_VIEW("Bearer ")));
        assert_false(agx_auth_token_ok(&a, AGX_VIEW("Bearer x")));
        agx_auth_deinit(&a);
}

static const struct {
        const char *list;
        const char *host;
        bool ok;
} hosts[] = {
        {"", "localhost", true},
        {"", "LOCALHOST:8000", true},
        {"", "localhost.", true},
        {"", "127.0.0.1", true},
        {"", "127.0.0.1:80", true},
        {"", "127.1.2.3:80", true},
        {"", "[::1]", true},
        {"", "[::1]:8000", true},
        {"", "localhost:", true},
        {"", "evil.example", false},
        {"", "localhost.evil.example", false},
        {"", "127.0.0.1.evil.example", false},
        {"", "127.0.0", false},
        {"", "127.0.0.256", false},
        {"", "128.0.0.1", false},
        {"", "2130706433", false},
        {"", "0.0.0.0", false},
        {"", "[::2]", false},
        {"", "[::1", false},
        {"", "[::1]x", false},
        {"", "localhost:80x", false},
        {"", "localhost:65536", false},
        {"", "", false},
        {"", ":80", false},
        {"box.example", "box.example", true},
        {"box.example", "BOX.example:8080", true},
        {"a.example, Box.Example ,c.example", "box.example", true},
        {"a.example b.example\tc.example", "c.example", true},
        {"box.example:8080", "box.example:8080", true},
        {"box.example:8080", "box.example:8081", false},
        {"box.example", "other.example", false},
        {"box.example", "xbox.example", false},
        {"box.example", "box.example,", false},
        {"*", "any.example", true},
        {"*", "", false},
};

static void hosts_are_checked(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
                agx_auth a;

                agx_auth_init(&a);
                assert_int_equal(agx_auth_set_hosts(&a, agx_view_str(hosts[i].list)), 0);
                if (agx_auth_host_ok(&a, agx_view_str(hosts[i].host)) != hosts[i].ok)
                        fail_msg("row %zu: %s", i, hosts[i].host);
                assert_false(agx_auth_host_ok(&a, AGX_VIEW_NULL));
                agx_auth_deinit(&a);
        }
}

static const struct {
        const char *list;
        const char *origin;
        bool ok;
} origins[] = {
        {"", "http://localhost", false},
        {"", "null", false},
        {"", "", false},
        {"http://app.example", "http://app.example", true},
        {"HTTP://App.example", "http://app.example", true},
        {"http://app.example", "https://app.example", false},
        {"http://app.example", "http://app.example:8080", false},
        {"http://app.example", "http://app.example.evil.example", false},
        {"http://a.example,http://b.example", "http://b.example", true},
        {"http://a.example,http://b.example", "http://a.example,http://b.example", false},
        {"null", "null", true},
        {"*", "http://any.example", false},
};

static void origins_are_checked(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++) {
                agx_auth a;

                agx_auth_init(&a);
                assert_int_equal(agx_auth_set_origins(&a, agx_view_str(origins[i].list)), 0);
                if (agx_auth_origin_ok(&a, agx_view_str(origins[i].origin)) != origins[i].ok)
                        fail_msg("row %zu: %s", i, origins[i].origin);
                agx_auth_deinit(&a);
        }
}

static void lists_have_a_limit(void **state)
{
        char text[4 * (AGX_ALLOWED_MAX + 1)];
        agx_auth a;

        (void)state;
        for (size_t i = 0; i < sizeof(text); i++)
                text[i] = i % 4 == 3 ? ',' : 'h';
        agx_auth_init(&a);
        assert_int_equal(agx_auth_set_hosts(&a, agx_view_of(text, sizeof(text) - 4)), 0);
        assert_int_equal(agx_auth_set_hosts(&a, agx_view_of(text, sizeof(text))), AGX_AUTH_E_BAD);
        assert_int_equal(agx_auth_set_hosts(&a, AGX_VIEW_NULL), 0);
        agx_auth_deinit(&a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(tokens_are_checked),
                cmocka_unit_test(a_token_has_a_limit),
                cmocka_unit_test(without_a_token_none_is_valid),
                cmocka_unit_test(hosts_are_checked),
                cmocka_unit_test(origins_are_checked),
                cmocka_unit_test(lists_have_a_limit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
