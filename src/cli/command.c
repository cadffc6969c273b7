/*
 * From argv to a command: options common to all may stand before it or among its own, children are followed, help is
 * printed whatever else is wrong with the line. A verb nobody knows is looked for on PATH as `agentix-VERB`.
 */
#include "cli/command.h"

#include "cli/settle.h"
#include "cli/trouble.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct common {
        bool help;
        bool version;
        int quiet;
        int verbose;
        const char *color;
        const char *format;
} common;

static const agx_opt format_opts[] = {
        {AGX_OPT_TEXT, .name = "format", .choices = "text|json", .help = "how the result is printed (text)",
         .offset = offsetof(common, format), .setting = AGX_SETTING_FORMAT},
        {.kind = AGX_OPT_END},
};

static const agx_opt common_opts[] = {
        {AGX_OPT_TEXT, .name = "color", .choices = "auto|always|never", .help = "when to use colours (auto)",
         .offset = offsetof(common, color), .setting = AGX_SETTING_COLOR},
        {AGX_OPT_SWITCH, 'q', "quiet", .help = "say only what went wrong", .offset = offsetof(common, quiet),
         .setting = AGX_SETTING_QUIET},
        {AGX_OPT_SWITCH, 'v', "verbose", .help = "say more", .offset = offsetof(common, verbose),
         .setting = AGX_SETTING_VERBOSE},
        {AGX_OPT_FLAG, 'h', "help", .help = "show this", .offset = offsetof(common, help)},
        {.kind = AGX_OPT_END},
};

const agx_opt agx_command_top_options[] = {
        {AGX_OPT_FLAG, 'V', "version", .help = "show the version", .offset = offsetof(common, version)},
        {.kind = AGX_OPT_END},
};

static const agx_opt no_opts[] = {{.kind = AGX_OPT_END}};

/* The path of commands that led here, for usage lines: "agentix", "agentix deploy", ... */
typedef struct trail {
        char text[256];
} trail;

static void trail_add(trail *t, const char *name)
{
        size_t n = strlen(t->text);

        snprintf(t->text + n, sizeof(t->text) - n, n ? " %s" : "%s", name);
}

void agx_command_options(const agx_command *command, agx_opt_set sets[4])
{
        sets[0] = (agx_opt_set){command->opts ? command->opts : no_opts, NULL};
        sets[1] = (agx_opt_set){command->format ? format_opts : no_opts, NULL};
        sets[2] = (agx_opt_set){common_opts, NULL};
        sets[3] = (agx_opt_set){NULL, NULL};
}

/* ---- help ---- */

static void print_children(const agx_command *const *children, FILE *to)
{
        fputs("\nCommands:\n", to);
        for (; *children; children++)
                fprintf(to, "  %-14s%s\n", (*children)->name, (*children)->summary);
}

static void print_help_top(FILE *to)
{
        const agx_opt_set sets[] = {
                {agx_command_top_options, NULL}, {format_opts, NULL}, {common_opts, NULL}, {NULL, NULL}};

        fputs("Run importable Python functions in sandboxes: build bundles, deploy them, look after what runs\n\n"
              "Usage: agentix [OPTIONS] COMMAND [ARGS]...\n",
              to);
        print_children(agx_commands, to);
        agx_opt_print_options(sets, to);
        fputs("\nagentix COMMAND --help tells more. A command that is not in the list is looked for on PATH as\n"
              "agentix-COMMAND.\n",
              to);
}

static void print_help(agx_cli *cli, const agx_command *command, const trail *t, FILE *to)
{
        const agx_opt *own = command->opts ? command->opts : no_opts;
        agx_opt_set sets[4];

        agx_command_options(command, sets);
        fprintf(to, "%s\n\nUsage: %s", command->summary, t->text);
        if (command->children)
                fputs(" [OPTIONS] COMMAND [ARGS]...", to);
        else
                agx_opt_print_usage(own, to);
        fputc('\n', to);
        if (command->text)
                fprintf(to, "\n%s", command->text);
        if (command->children)
                print_children(command->children, to);
        agx_opt_print_arguments(own, to);
        if (command->more)
                command->more(cli, to);
        agx_opt_print_options(sets, to);
        if (command->examples)
                fprintf(to, "\nExamples:\n%s", command->examples);
}

/* ---- running ---- */

static int usage_error(agx_cli *cli, const trail *t, const char *why)
{
        char hint[320];

        snprintf(hint, sizeof(hint), "%s --help shows how it is used", t->text);
        return agx_say_error(&cli->say, &(agx_complaint){"usage", hint, AGX_EXIT_USAGE}, "%s", why);
}

static void apply_common(agx_cli *cli, const common *c)
{
        cli->say.quiet = c->quiet > 0;
        cli->say.verbose = c->verbose > 0;
        if (c->color)
                agx_say_set_color(&cli->say, c->color);
        if (c->format)
                cli->say.json = !strcmp(c->format, "json");
}

/* What the line leaves open comes from elsewhere. The exit code, or 0 to go on. */
static int settle(agx_cli *cli, const agx_command *command, const agx_opt_set *sets, const void *values, common *c)
{
        agx_why why = AGX_WHY_NULL;
        int r;

        if (command->plain)
                return 0;
        r = agx_settings_read(&cli->settings, command->project ? command->project(values) : NULL, &why);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (agx_settle(sets, &cli->settings))
                return agx_say_no_memory(&cli->say);
        apply_common(cli, c);
        return 0;
}

/* `c` has what stood before the command. */
static int run_leaf(agx_cli *cli, const agx_command *command, const trail *t, common *c, int argc, char *const *argv)
{
        const agx_opt *own = command->opts ? command->opts : no_opts;
        _cleanup_(agx_freep) void *values = calloc(1, command->size ? command->size : 1);
        const agx_opt_set sets[] = {{own, values}, {command->format ? format_opts : no_opts, c}, {common_opts, c}, {0}};
        agx_opt_fault fault;
        int r;

        if (!values)
                return agx_say_no_memory(&cli->say);
        if (c->format && !command->format)
                return usage_error(cli, t, "no such option '--format'");
        r = agx_opt_parse(sets, argc, argv, true, &fault);
        apply_common(cli, c);
        if (c->help) {
                print_help(cli, command, t, cli->say.out);
                r = 0;
        } else if (r >= 0) {
                agx_opt_free(own, values);
                memset(values, 0, command->size);
                r = agx_opt_parse(sets, argc, argv, false, &fault);
                if (r == AGX_OPT_E_USAGE)
                        r = usage_error(cli, t, fault.text);
                else if (!r)
                        r = settle(cli, command, sets, values, c);
                if (!r)
                        r = command->run(cli, values);
        }
        agx_opt_free(own, values);
        return r < 0 ? agx_say_no_memory(&cli->say) : r;
}

/* Whether an argument is an option whose value is the next one. */
static bool wants_next(const char *arg)
{
        const agx_opt *tables[] = {format_opts, common_opts};

        for (size_t i = 0; i < 2; i++)
                for (const agx_opt *opt = tables[i]; opt->kind; opt++)
                        if (!agx_opt_is_bare(opt) && !strncmp(arg, "--", 2) && !strcmp(arg + 2, opt->name))
                                return true;
        return false;
}

/* Options before a command's name. Gives the index of the name, argc if there is none, or -1 after a complaint. */
static int read_leading(agx_cli *cli, const agx_opt *extra, const trail *t, int argc, char *const *argv, common *c)
{
        const agx_opt_set sets[] = {{extra, c}, {format_opts, c}, {common_opts, c}, {0}};
        agx_opt_fault fault;
        int at = 0;

        while (at < argc && argv[at][0] == '-' && argv[at][1]) {
                int n = wants_next(argv[at]) && at + 1 < argc ? 2 : 1;

                if (agx_opt_parse(sets, n, argv + at, false, &fault)) {
                        (void)usage_error(cli, t, fault.text);
                        return -1;
                }
                at += n;
        }
        apply_common(cli, c);
        return at;
}

static const agx_command *find_child(const agx_command *const *children, const char *name)
{
        for (; *children; children++)
                if (!strcmp((*children)->name, name))
                        return *children;
        return NULL;
}

static int no_such_command(agx_cli *cli, const trail *t, const char *name)
{
        char why[320];

        snprintf(why, sizeof(why), "No such command '%.200s'", name);
        return usage_error(cli, t, why);
}

static int run_command(agx_cli *cli, const agx_command *command, trail *t, common *c, int argc, char *const *argv)
{
        const agx_command *child;
        int at;

        trail_add(t, command->name ? command->name : cli->child);
        if (!command->children)
                return run_leaf(cli, command, t, c, argc, argv);
        at = read_leading(cli, no_opts, t, argc, argv, c);
        if (at < 0)
                return AGX_EXIT_USAGE;
        if (c->help || at == argc) {
                print_help(cli, command, t, c->help ? cli->say.out : cli->say.err);
                return c->help ? AGX_EXIT_OK : AGX_EXIT_USAGE;
        }
        child = find_child(command->children, argv[at]);
        if (!child && command->find) {
                cli->child = argv[at];
                child = command->find(cli, argv[at]);
        }
        return child ? run_command(cli, child, t, c, argc - at - 1, argv + at + 1) : no_such_command(cli, t, argv[at]);
}

/* What stood before the verb, for a program that has not seen it. */
static void export_common(const common *c)
{
        if (c->color)
                (void)setenv("AGENTIX_COLOR", c->color, 1);
        if (c->format)
                (void)setenv("AGENTIX_FORMAT", c->format, 1);
        if (c->quiet)
                (void)setenv("AGENTIX_QUIET", c->quiet > 0 ? "1" : "0", 1);
        if (c->verbose)
                (void)setenv("AGENTIX_VERBOSE", c->verbose > 0 ? "1" : "0", 1);
}

/* `agentix-VERB` on PATH takes over the process; comes back only if there is none. */
static void try_external(const char *verb, char *const *argv, const common *c)
{
        _cleanup_(agx_strv_deinitp) agx_strv line = AGX_STRV_NULL;

        if (strchr(verb, '/'))
                return;
        agx_strv_addf(&line, "agentix-%s", verb);
        for (char *const *arg = argv + 1; *arg; arg++)
                agx_strv_add_str(&line, *arg);
        if (agx_strv_end(&line))
                return;
        export_common(c);
        execvp(line.items[0], line.items);
}

/* An error in the line itself is told in the form that the line, or else the environment, asks for. */
static bool asks_for_json(int argc, char *const *argv)
{
        const char *format = getenv("AGENTIX_FORMAT");

        for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
                if (!strncmp(argv[i], "--format=", 9))
                        format = argv[i] + 9;
                else if (!strcmp(argv[i], "--format") && i + 1 < argc)
                        format = argv[i + 1];
        }
        return format && !strcmp(format, "json");
}

int agx_command_main(agx_cli *cli, int argc, char *const *argv)
{
        trail t = {"agentix"};
        common c = {0};
        const agx_command *command;
        int at;

        cli->say.json = asks_for_json(argc, argv);
        at = read_leading(cli, agx_command_top_options, &t, argc, argv, &c);
        if (at < 0)
                return AGX_EXIT_USAGE;
        if (c.version && !c.help) {
                agx_say_data(&cli->say, "agentix %s\n", AGX_VERSION);
                return AGX_EXIT_OK;
        }
        if (c.help || at == argc) {
                print_help_top(c.help ? cli->say.out : cli->say.err);
                return c.help ? AGX_EXIT_OK : AGX_EXIT_USAGE;
        }
        command = find_child(agx_commands, argv[at]);
        if (command)
                return run_command(cli, command, &t, &c, argc - at - 1, argv + at + 1);
        try_external(argv[at], argv + at, &c);
        return no_such_command(cli, &t, argv[at]);
}
