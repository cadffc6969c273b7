/* Names, platforms, output paths and the Python a project asks for. */
#include "bundle/names.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void names_and_tags(void **state)
{
        static const struct {
                const char *wish, *project, *version, *name, *tag; /* name NULL: refused */
        } rows[] = {
                {NULL, "agentix-tool", "1.2", "tool", "1.2"},
                {NULL, "tool", NULL, "tool", "latest"},
                {NULL, "agentix-", "1", "agentix-", "1"},
                {"other", "tool", "1.2", "other", "1.2"},
                {"other", "tool", "", "other", "latest"},
                {"agentix-x", "tool", "1", "agentix-x", "1"},
                {"a:b:c", "tool", "1", "a", "b:c"},
                {"a:", "tool", "1", NULL, NULL},
                {":b", "tool", "1", NULL, NULL},
                {"", "tool", "1", NULL, NULL},
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); i++) {
                _cleanup_(agx_freep) char *name = NULL, *tag = NULL;
                agx_why why = AGX_WHY_NULL;
                int r = agx_names_choose(rows[i].wish, rows[i].project, rows[i].version, &name, &tag, &why);

                assert_int_equal(r, rows[i].name ? 0 : AGX_WHY_E_TOLD);
                if (r)
                        continue;
                assert_string_equal(name, rows[i].name);
                assert_string_equal(tag, rows[i].tag);
        }
}

static void platforms(void **state)
{
        static const char *const none[] = {"", "amd", "linux", "linux/", "linux/386", "LINUX/AMD64", "linux/amd64/v2"};

        (void)state;
        assert_string_equal(agx_names_platform("x86_64"), "linux/amd64");
        assert_string_equal(agx_names_platform("linux/arm64/v8"), "linux/arm64");
        for (size_t i = 0; i < COUNT(none); i++)
                assert_null(agx_names_platform(none[i]));
        assert_string_equal(agx_names_nix_system("linux/amd64"), "x86_64-linux");
        assert_string_equal(agx_names_nix_system("linux/arm64"), "aarch64-linux");
        assert_non_null(agx_names_own_platform());
}

static void outputs(void **state)
{
        static const struct {
                const char *wish;
                bool is_dir, zstd;
                const char *want;
        } rows[] = {
                {NULL, false, false, "dist/a-b-1-linux-amd64.bundle.tar"},
                {NULL, false, true, "dist/a-b-1-linux-amd64.bundle.tar.zst"},
                {"d.d", true, false, "d.d/a-b-1-linux-amd64.bundle.tar"},
                {"x/y", false, false, "x/y/a-b-1-linux-amd64.bundle.tar"},
                {"x/", false, false, "x/a-b-1-linux-amd64.bundle.tar"},
                {"x.d/y", false, false, "x.d/y/a-b-1-linux-amd64.bundle.tar"},
                {"..", true, false, "../a-b-1-linux-amd64.bundle.tar"},
                {".hidden", false, false, ".hidden/a-b-1-linux-amd64.bundle.tar"},
                {"f.tar", false, true, "f.tar"},
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); i++) {
                _cleanup_(agx_freep) char *got =
                        agx_names_output(rows[i].wish, rows[i].is_dir, "a/b", "1", "linux/amd64", rows[i].zstd);

                assert_string_equal(got, rows[i].want);
        }
        assert_true(agx_names_is_zstd("a.tar.zst"));
        assert_false(agx_names_is_zstd("zst"));
}

static void pythons(void **state)
{
        static const struct {
                const char *requires;
                unsigned minor;
        } rows[] = {
                {NULL, 11},
                {"", 11},
                {">=3.11", 11},
                {">= 3.8 , < 4", 11},
                {">3.11", 11},
                {">=3.12", 12},
                {">=3.12.4", 12},
                {"~=3.11", 11},
                {"~=3.12.0", 12},
                {"==3.12.*", 12},
                {"==3.13.1", 13},
                {"===3.12.3", 12},
                {"!=3.11.*", 12},
                {"!=3.11.*,!=3.12.*", 13},
                {"<3.11", 0},
                {"==3.10.*", 0},
                {">=3.14", 0},
                {"<=3.10.99", 0},
                {">=3,<3.12", 11},
                {"nonsense", 11},
                {">=3.12,rubbish", 11},
                {"~=3", 11},
                {">=3.1.2.3.4", 11},
                {"==3.*", 11},
        };

        (void)state;
        for (size_t i = 0; i < COUNT(rows); i++)
                if (agx_names_python_minor(rows[i].requires) != rows[i].minor)
                        fail_msg("%s: %u", rows[i].requires, agx_names_python_minor(rows[i].requires));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(names_and_tags),
                cmocka_unit_test(platforms),
                cmocka_unit_test(outputs),
                cmocka_unit_test(pythons),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
