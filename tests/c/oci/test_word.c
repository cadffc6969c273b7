/* What may become an argument of an engine, and what may not: cases/T61's values among them. */
#include "oci/word.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct row {
        const char *text;
        bool word, source, name, variable;
} row;

static void test_each_rule(void **state)
{
        static const row rows[] = {
                /* text                       word   source name   variable */
                {"alpine", true, false, true, true},
                {"reg.test:5000/a/b@sha256:00", true, false, false, true},
                {"", false, false, false, false},
                {"-f", false, false, false, false},
                {"--privileged", false, false, false, false},
                {"-v=/:/host", false, false, false, false},
                {" alpine", false, false, false, false},
                {"a b", false, false, false, false},
                {"a\nb", false, false, false, false},
                {"a\tb", false, false, false, false},
                {"a\x7f", false, false, false, false},
                {"/a", true, true, false, true},
                {"/a b", false, true, false, false},
                {"/a:b", true, true, false, true},
                {"/a,readonly=false", true, false, false, false},
                {"/a\"b", true, false, false, true},
                {"/a\nb", false, false, false, false},
                {"a.b_c-1", true, false, true, true},
                {".a", true, false, false, true},
                {"../a", true, false, false, true},
                {"A=B", true, false, false, false},
                {"#A", true, false, false, false},
                {"\xc3\xa4", true, false, false, false},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_view text = agx_view_str(rows[i].text);

                if (agx_oci_word(text) != rows[i].word || agx_oci_source(text) != rows[i].source ||
                    agx_oci_name(text) != rows[i].name || agx_oci_variable(text) != rows[i].variable)
                        fail_msg("row %zu: \"%s\"", i, rows[i].text);
        }
}

static void test_bytes_that_end_a_c_string(void **state)
{
        (void)state;
        assert_false(agx_oci_word(AGX_VIEW("a\0b")));
        assert_false(agx_oci_source(AGX_VIEW("/a\0b")));
        assert_false(agx_oci_name(AGX_VIEW("a\0b")));
        assert_false(agx_oci_variable(AGX_VIEW("a\0b")));
        assert_false(agx_oci_word(AGX_VIEW_NULL));
}

static void test_a_name_has_128_bytes_at_most(void **state)
{
        char text[129];

        (void)state;
        memset(text, 'a', sizeof(text));
        assert_true(agx_oci_name(agx_view_of(text, 128)));
        assert_false(agx_oci_name(agx_view_of(text, 129)));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_each_rule),
                cmocka_unit_test(test_bytes_that_end_a_c_string),
                cmocka_unit_test(test_a_name_has_128_bytes_at_most),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
