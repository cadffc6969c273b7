/* The option table: what is read, what is complained of, and that help shows every row. */
#include "cli/opt.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct values {
        bool flag, other;
        int toggle;
        const char *text, *choice, *arg, *maybe;
        agx_strv list, rest;
} values;

static const agx_opt table[] = {
        {AGX_OPT_FLAG, 'f', "flag", .help = "a flag", .offset = offsetof(values, flag)},
        {AGX_OPT_FLAG, 'o', "other", .help = "another flag", .offset = offsetof(values, other)},
        {AGX_OPT_SWITCH, 's', "toggle", .help = "a switch", .offset = offsetof(values, toggle)},
        {AGX_OPT_TEXT, 't', "text", .value = "TEXT", .help = "a text", .offset = offsetof(values, text)},
        {AGX_OPT_TEXT, .name = "choice", .choices = "a|bc", .help = "a choice", .offset = offsetof(values, choice)},
        {AGX_OPT_LIST, .name = "list", .value = "ITEM", .help = "a list", .offset = offsetof(values, list)},
        {AGX_OPT_ARG, .name = "ARG", .help = "an argument", .offset = offsetof(values, arg)},
        {AGX_OPT_ARG_MAYBE, .name = "MAYBE", .help = "another", .offset = offsetof(values, maybe)},
        {AGX_OPT_REST, .name = "REST", .help = "the rest", .offset = offsetof(values, rest)},
        {.kind = AGX_OPT_END},
};

enum { ARGS = 8 };

static int parse(values *v, char *const *argv, bool lax, agx_opt_fault *fault)
{
        const agx_opt_set sets[] = {{table, v}, {NULL, NULL}};
        int argc = 0;

        while (argv[argc])
                argc++;
        *v = (values){0};
        fault->text[0] = 0;
        return agx_opt_parse(sets, argc, argv, lax, fault);
}

static void reads_all_kinds(void **state)
{
        char *argv[] = {"-fo", "--text",   "--odd", "x", "--list=1", "--list", "--privileged",
                        "y",   "--choice", "bc",    "z", "--",       "-w",     NULL};
        agx_opt_fault fault;
        values v;

        (void)state;
        assert_int_equal(parse(&v, argv, false, &fault), 0);
        assert_true(v.flag && v.other);
        assert_string_equal(v.text, "--odd");
        assert_string_equal(v.choice, "bc");
        assert_string_equal(v.arg, "x");
        assert_string_equal(v.maybe, "y");
        assert_int_equal(v.list.count, 2);
        assert_string_equal(v.list.items[0], "1");
        assert_string_equal(v.list.items[1], "--privileged");
        assert_int_equal(v.rest.count, 2);
        assert_string_equal(v.rest.items[1], "-w");
        agx_opt_free(table, &v);
}

static void complains(void **state)
{
        static const struct {
                char *argv[ARGS];
                const char *fault;
        } rows[] = {
                {{NULL}, "missing argument 'ARG'"},
                {{"-f", NULL}, "missing argument 'ARG'"},
                {{"x", "--nope", NULL}, "no such option '--nope'"},
                {{"x", "--nope=1", NULL}, "no such option '--nope'"},
                {{"x", "-fz", NULL}, "no such option '-z'"},
                {{"x", "--text", NULL}, "'--text' needs a value"},
                {{"x", "-t", NULL}, "'--text' needs a value"},
                {{"x", "--flag=1", NULL}, "'--flag' takes no value"},
                {{"x", "--no-flag", NULL}, "no such option '--no-flag'"},
                {{"x", "--no-toggle=1", NULL}, "no such option '--no-toggle'"},
                {{"x", "--choice", "b", NULL}, "invalid value 'b' for '--choice': choose one of a|bc"},
                {{"x", "--choice=", NULL}, "invalid value '' for '--choice': choose one of a|bc"},
        };
        agx_opt_fault fault;
        values v;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                assert_int_equal(parse(&v, rows[i].argv, false, &fault), AGX_OPT_E_USAGE);
                assert_string_equal(fault.text, rows[i].fault);
                agx_opt_free(table, &v);
        }
}

static void passes_over_faults_when_lax(void **state)
{
        char *argv[] = {"--nope", "--choice", "zz", "-f", NULL};
        agx_opt_fault fault;
        values v;

        (void)state;
        assert_int_equal(parse(&v, argv, true, &fault), 0);
        assert_true(v.flag);
        agx_opt_free(table, &v);
}

static void attached_letters(void **state)
{
        char *argv[] = {"-ftvalue", "-", NULL};
        agx_opt_fault fault;
        values v;

        (void)state;
        assert_int_equal(parse(&v, argv, false, &fault), 0);
        assert_true(v.flag);
        assert_string_equal(v.text, "value");
        assert_string_equal(v.arg, "-");
        agx_opt_free(table, &v);
}

static void switches(void **state)
{
        static const struct {
                char *argv[ARGS];
                int value;
        } rows[] = {
                {{"x", NULL}, 0},
                {{"x", "--toggle", NULL}, 1},
                {{"x", "-fs", NULL}, 1},
                {{"x", "--no-toggle", NULL}, -1},
                {{"x", "-s", "--no-toggle", NULL}, -1},
                {{"x", "--no-toggle", "-s", NULL}, 1},
        };
        agx_opt_fault fault;
        values v;

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                assert_int_equal(parse(&v, rows[i].argv, false, &fault), 0);
                assert_int_equal(v.toggle, rows[i].value);
                agx_opt_free(table, &v);
        }
}

static void help_has_every_row(void **state)
{
        const agx_opt_set sets[] = {{table, NULL}, {NULL, NULL}};
        char *text = NULL;
        size_t size;
        FILE *to = open_memstream(&text, &size);

        (void)state;
        agx_opt_print_usage(table, to);
        agx_opt_print_arguments(table, to);
        agx_opt_print_options(sets, to);
        fclose(to);
        assert_non_null(strstr(text, " [OPTIONS] ARG [MAYBE] [REST]..."));
        for (const agx_opt *opt = table; opt->kind; opt++) {
                assert_non_null(strstr(text, opt->name));
                assert_non_null(strstr(text, opt->help));
        }
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(reads_all_kinds),
                cmocka_unit_test(complains),
                cmocka_unit_test(passes_over_faults_when_lax),
                cmocka_unit_test(attached_letters),
                cmocka_unit_test(switches),
                cmocka_unit_test(help_has_every_row),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
