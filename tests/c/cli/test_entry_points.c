/* entry_points.txt and METADATA as packaging tools write them, and as nobody should. */
#include "cli/entry_points.h"

#include "support/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#define V(v) (int)(v).n, (v).p

/* "group|name|value;" for every entry. */
static void read_all(const char *text, char *out, size_t size)
{
        size_t n = strlen(text), used = 0;
        uint8_t *copy = agx_guard_new(text, n);
        agx_entry_points cursor = agx_entry_points_on(agx_view_of(copy, n));
        agx_entry_point e;

        out[0] = 0;
        while (agx_entry_points_next(&cursor, &e))
                used += (size_t)snprintf(out + used, size - used, "%.*s|%.*s|%.*s;", V(e.group), V(e.name), V(e.value));
        agx_guard_free(copy, n);
}

static void reads_entries(void **state)
{
        static const char *const rows[][2] = {
                {"[agentix.provider]\nuv = agentix.provider.uv:UvProvider\n",
                 "agentix.provider|uv|agentix.provider.uv:UvProvider;"},
                {"[a]\nx=m:f\n\n[b]\r\ny = n : g [extra]\r\n", "a|x|m:f;b|y|n : g [extra];"},
                {"# comment\n; other\n[ a ]\n  x  =  m:f  ", "a|x|m:f;"},
                {"x = m:f\n[a]\n", ""},
                {"[a]\nx\n=\nx=\n=m\n", ""},
                {"[a\nx = m:f\n[b]\ny = n:g\n", "b|y|n:g;"},
                {"[]\nx = m\n", "|x|m;"},
                {"[", ""},
                {"", ""},
        };
        char out[512];

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                read_all(rows[i][0], out, sizeof(out));
                assert_string_equal(out, rows[i][1]);
        }
}

static void reads_headers(void **state)
{
        agx_view text =
                AGX_VIEW("Metadata-Version: 2.1\nName: acme\r\nversion:  1.0 \nSummary: x\n\nName: not a header\n");

        (void)state;
        assert_true(agx_view_eq(agx_metadata_get(text, AGX_VIEW("Name")), AGX_VIEW("acme")));
        assert_true(agx_view_eq(agx_metadata_get(text, AGX_VIEW("Version")), AGX_VIEW("1.0")));
        assert_null(agx_metadata_get(text, AGX_VIEW("License")).p);
        assert_null(agx_metadata_get(AGX_VIEW("\nName: x\n"), AGX_VIEW("Name")).p);
}

static void compares_names(void **state)
{
        (void)state;
        assert_true(agx_dist_name_eq(AGX_VIEW("Acme.Tool"), AGX_VIEW("acme-tool")));
        assert_true(agx_dist_name_eq(AGX_VIEW("a__b"), AGX_VIEW("a-b")));
        assert_false(agx_dist_name_eq(AGX_VIEW("ab"), AGX_VIEW("a-b")));
        assert_false(agx_dist_name_eq(AGX_VIEW("a"), AGX_VIEW("a-b")));
        assert_false(agx_dist_name_eq(AGX_VIEW("a"), AGX_VIEW("")));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(reads_entries),
                cmocka_unit_test(reads_headers),
                cmocka_unit_test(compares_names),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
