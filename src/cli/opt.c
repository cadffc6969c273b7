/*
 * A small parser over option tables. It keeps no state but a cursor over argv, so that a command's own options and those
 * common to all can stand in two tables and be read in one pass.
 */
#include "cli/opt.h"

#include <errno.h>
#include <string.h>

typedef struct cursor {
        const agx_opt_set *sets;
        char *const *argv;
        int argc;
        int at;
        unsigned positional; /* how many came */
        bool lax;
        agx_opt_fault *fault;
} cursor;

static bool is_positional(agx_opt_kind kind)
{
        return kind == AGX_OPT_ARG || kind == AGX_OPT_ARG_MAYBE || kind == AGX_OPT_REST;
}

bool agx_opt_is_bare(const agx_opt *opt)
{
        return opt->kind == AGX_OPT_FLAG || opt->kind == AGX_OPT_SWITCH;
}

static void *place_of(const agx_opt_set *set, const agx_opt *opt)
{
        return (char *)set->values + opt->offset;
}

#define complain(c, ...)                                                                                               \
        ((c)->lax ? 0 : (snprintf((c)->fault->text, sizeof((c)->fault->text), __VA_ARGS__), (int)AGX_OPT_E_USAGE))

static bool allowed(const agx_opt *opt, const char *value)
{
        agx_view rest = agx_view_str(opt->choices);
        agx_view choice;

        while (opt->choices && agx_view_split(&rest, '|', &choice))
                if (agx_view_eq(choice, agx_view_str(value)))
                        return true;
        return !opt->choices;
}

static int put(cursor *c, const agx_opt_set *set, const agx_opt *opt, const char *value)
{
        void *place = place_of(set, opt);

        if (!allowed(opt, value))
                return complain(c, "invalid value '%s' for '%s%s': choose one of %s", value,
                                is_positional(opt->kind) ? "" : "--", opt->name, opt->choices);
        switch (opt->kind) {
        case AGX_OPT_FLAG:
                *(bool *)place = true;
                return 0;
        case AGX_OPT_SWITCH:
                *(int *)place = 1;
                return 0;
        case AGX_OPT_LIST:
        case AGX_OPT_REST:
                agx_strv_add_str(place, value);
                return agx_strv_end(place);
        default:
                *(const char **)place = value;
                return 0;
        }
}

static const agx_opt *find_long(const cursor *c, agx_view name, const agx_opt_set **set)
{
        for (*set = c->sets; (*set)->table; (*set)++)
                for (const agx_opt *opt = (*set)->table; opt->kind; opt++)
                        if (!is_positional(opt->kind) && agx_view_eq(agx_view_str(opt->name), name))
                                return opt;
        return NULL;
}

static const agx_opt *find_letter(const cursor *c, char letter, const agx_opt_set **set)
{
        for (*set = c->sets; (*set)->table; (*set)++)
                for (const agx_opt *opt = (*set)->table; opt->kind; opt++)
                        if (!is_positional(opt->kind) && opt->letter == letter)
                                return opt;
        return NULL;
}

/* The value of an option that needs one: what follows `=`, or the next argument. */
static int put_value(cursor *c, const agx_opt_set *set, const agx_opt *opt, const char *attached)
{
        if (agx_opt_is_bare(opt))
                return attached ? complain(c, "'--%s' takes no value", opt->name) : put(c, set, opt, NULL);
        if (!attached && c->at == c->argc)
                return complain(c, "'--%s' needs a value", opt->name);
        return put(c, set, opt, attached ? attached : c->argv[c->at++]);
}

/* `--no-NAME` of a switch. */
static bool switch_off(const cursor *c, agx_view name)
{
        const agx_opt_set *set;
        const agx_opt *opt;

        if (!agx_view_starts(name, AGX_VIEW("no-")))
                return false;
        opt = find_long(c, agx_view_from(name, 3), &set);
        if (!opt || opt->kind != AGX_OPT_SWITCH)
                return false;
        *(int *)place_of(set, opt) = -1;
        return true;
}

static int read_long(cursor *c, const char *arg)
{
        const char *equals = strchr(arg, '=');
        agx_view name = agx_view_of(arg + 2, equals ? (size_t)(equals - arg - 2) : strlen(arg + 2));
        const agx_opt_set *set;
        const agx_opt *opt = find_long(c, name, &set);

        if (!opt && !equals && switch_off(c, name))
                return 0;
        if (!opt)
                return complain(c, "no such option '--%.*s'", (int)name.n, name.p);
        return put_value(c, set, opt, equals ? equals + 1 : NULL);
}

/* `-qv`: letters of flags together; the last may take a value. */
static int read_letters(cursor *c, const char *arg)
{
        for (const char *letter = arg + 1; *letter; letter++) {
                const agx_opt_set *set;
                const agx_opt *opt = find_letter(c, *letter, &set);
                int r;

                if (!opt)
                        return complain(c, "no such option '-%c'", *letter);
                if (!agx_opt_is_bare(opt))
                        return put_value(c, set, opt, letter[1] ? letter + 1 : NULL);
                r = put(c, set, opt, NULL);
                if (r)
                        return r;
        }
        return 0;
}

/* The n-th positional row; a REST row takes all from its place on. */
static const agx_opt *positional(const agx_opt *table, unsigned n)
{
        for (const agx_opt *opt = table; opt->kind; opt++) {
                if (!is_positional(opt->kind))
                        continue;
                if (opt->kind == AGX_OPT_REST || n == 0)
                        return opt;
                n--;
        }
        return NULL;
}

static int read_positional(cursor *c, const char *arg)
{
        const agx_opt *opt = positional(c->sets[0].table, c->positional);

        if (!opt)
                return complain(c, "unexpected argument '%s'", arg);
        c->positional++;
        return put(c, &c->sets[0], opt, arg);
}

static int check_needed(cursor *c)
{
        unsigned n = 0;

        for (const agx_opt *opt = c->sets[0].table; opt->kind; opt++) {
                if (!is_positional(opt->kind))
                        continue;
                if (n++ >= c->positional && (opt->kind == AGX_OPT_ARG || opt->needed))
                        return complain(c, "missing argument '%s'", opt->name);
        }
        return 0;
}

int agx_opt_parse(const agx_opt_set *sets, int argc, char *const *argv, bool lax, agx_opt_fault *fault)
{
        cursor c = {.sets = sets, .argv = argv, .argc = argc, .lax = lax, .fault = fault};
        bool options = true;

        while (c.at < argc) {
                const char *arg = argv[c.at++];
                int r;

                if (options && !strcmp(arg, "--")) {
                        options = false;
                        continue;
                }
                if (options && arg[0] == '-' && arg[1] == '-')
                        r = read_long(&c, arg);
                else if (options && arg[0] == '-' && arg[1])
                        r = read_letters(&c, arg);
                else
                        r = read_positional(&c, arg);
                if (r)
                        return r;
        }
        return check_needed(&c);
}

void agx_opt_free(const agx_opt *table, void *values)
{
        for (const agx_opt *opt = table; opt->kind; opt++)
                if (opt->kind == AGX_OPT_LIST || opt->kind == AGX_OPT_REST)
                        agx_strv_deinit((agx_strv *)(void *)((char *)values + opt->offset));
}

/* ---- help ---- */

void agx_opt_print_usage(const agx_opt *table, FILE *to)
{
        fputs(" [OPTIONS]", to);
        for (const agx_opt *opt = table; opt->kind; opt++) {
                if (opt->kind == AGX_OPT_ARG)
                        fprintf(to, " %s", opt->name);
                else if (opt->kind == AGX_OPT_ARG_MAYBE)
                        fprintf(to, " [%s]", opt->name);
                else if (opt->kind == AGX_OPT_REST)
                        fprintf(to, opt->needed ? " %s..." : " [%s]...", opt->name);
        }
}

/* A left column of this width holds all but long options, whose text begins on the next line. */
enum { COLUMN = 26 };

static void print_row(FILE *to, const char *left, const char *help)
{
        if (strlen(left) < COLUMN)
                fprintf(to, "  %-*s%s\n", COLUMN, left, help);
        else
                fprintf(to, "  %s\n  %-*s%s\n", left, COLUMN, "", help);
}

void agx_opt_print_arguments(const agx_opt *table, FILE *to)
{
        bool first = true;

        for (const agx_opt *opt = table; opt->kind; opt++) {
                if (!is_positional(opt->kind))
                        continue;
                if (first)
                        fputs("\nArguments:\n", to);
                first = false;
                print_row(to, opt->name, opt->help);
        }
}

static void print_option(const agx_opt *opt, FILE *to)
{
        char left[128];
        const char *value = opt->choices ? opt->choices : opt->value;
        bool takes = !agx_opt_is_bare(opt);

        snprintf(left, sizeof(left), "%c%c%c --%s%s%s%s", opt->letter ? '-' : ' ', opt->letter ? opt->letter : ' ',
                 opt->letter ? ',' : ' ', opt->kind == AGX_OPT_SWITCH ? "[no-]" : "", opt->name, takes ? " " : "",
                 takes ? value : "");
        print_row(to, left, opt->help);
}

void agx_opt_print_options(const agx_opt_set *sets, FILE *to)
{
        fputs("\nOptions:\n", to);
        for (const agx_opt_set *set = sets; set->table; set++)
                for (const agx_opt *opt = set->table; opt->kind; opt++)
                        if (!is_positional(opt->kind))
                                print_option(opt, to);
}
