/* The manifest: what is written is read again; what is not a manifest of ours is told apart, by its reason. */
#include "bundle/manifest.h"

#include "support/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define HEX2 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
#define REST                                                                                                           \
        "\"name\":\"n\",\"tag\":\"1\",\"platform\":\"linux/amd64\",\"digest\":\"sha256:" HEX                           \
        "\",\"entrypoint\":\"/nix/runtime/bootstrap.sh\"}"

static int parse(const char *json, agx_manifest *m)
{
        size_t n = strlen(json);
        uint8_t *copy = agx_guard_new(json, n);
        int r = agx_manifest_parse(m, agx_view_of(copy, n));

        agx_guard_free(copy, n);
        return r;
}

static void writes_what_it_reads(void **state)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL, back = AGX_MANIFEST_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(AGX_MANIFEST_MAX), again = AGX_BUF_NULL(AGX_MANIFEST_MAX);

        (void)state;
        m.name = agx_strv_dup(AGX_VIEW("caf\xc3\xa9 \"x\""));
        m.tag = agx_strv_dup(AGX_VIEW("0.1.0"));
        m.platform = agx_strv_dup(AGX_VIEW("linux/amd64"));
        m.nix_system = agx_strv_dup(AGX_VIEW("x86_64-linux"));
        m.digest = agx_strv_dup(AGX_VIEW("sha256:" HEX));
        m.entrypoint = agx_strv_dup(AGX_VIEW(AGX_MANIFEST_ENTRYPOINT));
        assert_int_equal(agx_manifest_set_env(&m), 0);
        assert_int_equal(agx_manifest_write(&m, &out), 0);
        assert_null(memmem(agx_buf_view(&out).p, out.len, "npm", 3)); /* nothing is said of what there is not */
        agx_buf_clear(&out);
        agx_strv_addf(&m.npm, "@a/b@1.2.3=sha512-x==");
        assert_int_equal(agx_manifest_write(&m, &out), 0);
        assert_int_equal(agx_manifest_parse(&back, agx_buf_view(&out)), 0);
        assert_string_equal(back.npm.items[0], "@a/b@1.2.3=sha512-x==");
        assert_string_equal(back.name, m.name);
        assert_string_equal(back.nix_system, "x86_64-linux");
        assert_int_equal(back.runtime_env.count, 8);
        assert_string_equal(back.runtime_env.items[0], "PATH=/nix/runtime/venv/bin:/nix/runtime/bin");
        assert_string_equal(back.agentix_added_env.items[7], "AGENTIX_ADDED_CMAKE_PREFIX_PATH=/nix/runtime");
        assert_int_equal(agx_manifest_write(&back, &again), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), agx_buf_view(&again)));
}

static void lines_of(const char *json, agx_buf *out)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;

        assert_int_equal(parse(json, &m), 0);
        assert_int_equal(agx_manifest_lines(&m, out), 0);
}

/* Neither the way it is written, nor the digest it claims, nor keys we do not know. */
static void counts_by_what_it_says(void **state)
{
        static const char *const same[] = {
                "{\"schema_version\":1,\"format\":\"agentix-bundle\",\"runtime_env\":{\"B\":\"2\",\"A\":\"\"}," REST,
                "{\"later\":1,\"runtime_env\":{\"A\":\"\",\"B\":\"\\u0032\"}, "
                "\"format\":\"agentix-bundle\",\"schema_version\":1,"
                "\"entrypoint\":\"/nix/runtime/bootstrap.sh\",\"digest\":\"sha256:" HEX2
                "\",\"platform\":\"linux/amd64\",\"tag\":\"1\",\"name\":\"n\"}",
        };

        (void)state;
        for (size_t i = 0; i < 2; i++) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(AGX_MANIFEST_LINES_MAX);

                lines_of(same[i], &out);
                assert_true(
                        agx_view_eq(agx_buf_view(&out), AGX_VIEW("m name 1:n\nm tag 1:1\nm platform 11:linux/amd64\n"
                                                                 "m entrypoint 25:/nix/runtime/bootstrap.sh\n"
                                                                 "m runtime_env 2:A=\nm runtime_env 3:B=2\n")));
        }
}

static void tells_apart(void **state)
{
        static const struct {
                const char *json;
                int want;
        } rows[] = {
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\"," REST, 0},
                {"{\"format\":\"agentix-bundle\",\"schema_version\":1,\"later\":{\"a\":[1,{}]}," REST, 0},
                {"", AGX_MANIFEST_E_JSON},
                {"[]", AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\"," REST "x", AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"name\":\"twice\"," REST, AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"nix_system\":3," REST, AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"nix_system\":\"a\\u0000b\"," REST,
                 AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"runtime_env\":{\"A\":1}," REST,
                 AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"runtime_env\":{\"A=B\":\"\"}," REST,
                 AGX_MANIFEST_E_JSON},
                {"{\"schema_version\":1," REST, AGX_MANIFEST_E_FORMAT},
                {"{\"schema_version\":2,\"format\":\"other\"," REST, AGX_MANIFEST_E_FORMAT},
                {"{\"schema_version\":2,\"format\":\"agentix-bundle\"," REST, AGX_MANIFEST_E_VERSION},
                {"{\"schema_version\":\"1\",\"format\":\"agentix-bundle\"," REST, AGX_MANIFEST_E_VERSION},
                {"{\"format\":\"agentix-bundle\"," REST, AGX_MANIFEST_E_VERSION},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"name\":\"n\"}", AGX_MANIFEST_E_MISSING},
                {"{\"schema_version\":1,\"format\":\"agentix-bundle\",\"name\":\"n\",\"tag\":\"1\",\"platform\":\"p\","
                 "\"digest\":\"md5:1\",\"entrypoint\":\"e\"}",
                 AGX_MANIFEST_E_DIGEST},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                agx_manifest m;
                int r = parse(rows[i].json, &m);

                if (r != rows[i].want)
                        fail_msg("row %zu: %d, not %d", i, r, rows[i].want);
                agx_manifest_deinit(&m);
        }
}

static void never_reads_beyond(void **state)
{
        static const char whole[] =
                "{\"schema_version\":1,\"format\":\"agentix-bundle\",\"runtime_env\":{\"A\":\"b\"}," REST;

        (void)state;
        for (size_t n = 0; n < sizeof(whole) - 1; n++) {
                uint8_t *copy = agx_guard_new(whole, n);
                agx_manifest m;

                assert_int_equal(agx_manifest_parse(&m, agx_view_of(copy, n)), AGX_MANIFEST_E_JSON);
                agx_guard_free(copy, n);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(writes_what_it_reads),
                cmocka_unit_test(counts_by_what_it_says),
                cmocka_unit_test(tells_apart),
                cmocka_unit_test(never_reads_beyond),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
