/*
 * agentix completion: scripts for shells, written from the tables that also drive parsing and help. A script knows which
 * words lead to which command, and for each command its children, its options, and the values that an option may have.
 */
#include "cli/commands.h"

#include <string.h>

enum { PATH_MAX_ = 256 };

typedef struct visit {
        FILE *to;
        void (*command)(const struct visit *v, const char *path, const agx_command *command);
} visit;

/* Calls v->command for every command below `children`. */
static void each_command(const visit *v, const char *path, const agx_command *const *children)
{
        for (; *children; children++) {
                char below[PATH_MAX_];

                snprintf(below, sizeof(below), "%s %s", path, (*children)->name);
                v->command(v, below, *children);
                if ((*children)->children)
                        each_command(v, below, (*children)->children);
        }
}

static bool is_option(const agx_opt *opt)
{
        return agx_opt_is_bare(opt) || opt->kind == AGX_OPT_TEXT || opt->kind == AGX_OPT_LIST;
}

static void put_choices(FILE *to, const char *choices)
{
        for (; *choices; choices++)
                fputc(*choices == '|' ? ' ' : *choices, to);
}

/* ---- bash, and zsh through its emulation ---- */

static void bash_path(const visit *v, const char *path, const agx_command *command)
{
        (void)command;
        fprintf(v->to, "        '%s') path=$path\\ $word ;;\n", path);
}

static void bash_words_of(FILE *to, const agx_opt_set *sets)
{
        for (; sets->table; sets++)
                for (const agx_opt *opt = sets->table; opt->kind; opt++)
                        if (is_option(opt))
                                fprintf(to, " --%s", opt->name);
}

static void bash_words(const visit *v, const char *path, const agx_command *command)
{
        agx_opt_set sets[4];

        fprintf(v->to, "    '%s') words='", path);
        for (const agx_command *const *child = command->children; child && *child; child++)
                fprintf(v->to, "%s ", (*child)->name);
        agx_command_options(command, sets);
        bash_words_of(v->to, sets);
        fputs("' ;;\n", v->to);
}

/* What may follow an option that takes a value: its choices, or anything, which the shell completes as a file. */
static void bash_values(const visit *v, const char *path, const agx_command *command)
{
        agx_opt_set sets[4];

        agx_command_options(command, sets);
        for (const agx_opt_set *set = sets; set->table; set++)
                for (const agx_opt *opt = set->table; opt->kind; opt++) {
                        if (opt->kind != AGX_OPT_TEXT && opt->kind != AGX_OPT_LIST)
                                continue;
                        fprintf(v->to, "    '%s --%s') ", path, opt->name);
                        if (!opt->choices) {
                                fputs("return ;;\n", v->to);
                                continue;
                        }
                        fputs("COMPREPLY=($(compgen -W '", v->to);
                        put_choices(v->to, opt->choices);
                        fputs("' -- \"$cur\")); return ;;\n", v->to);
                }
}

static void put_bash(FILE *to)
{
        static const agx_command top = {.name = "agentix", .children = agx_commands, .opts = agx_command_top_options};

        fputs("_agentix() {\n"
              "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} path=agentix words= word i\n"
              "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
              "        word=${COMP_WORDS[i]}\n"
              "        case \"$path $word\" in\n",
              to);
        each_command(&(visit){to, bash_path}, "agentix", agx_commands);
        fputs("        esac\n    done\n    case \"$path $prev\" in\n", to);
        bash_values(&(visit){.to = to}, "agentix", &top);
        each_command(&(visit){to, bash_values}, "agentix", agx_commands);
        fputs("    esac\n    case \"$path\" in\n", to);
        bash_words(&(visit){.to = to}, "agentix", &top);
        each_command(&(visit){to, bash_words}, "agentix", agx_commands);
        fputs("    esac\n"
              "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
              "}\n"
              "complete -o default -F _agentix agentix\n",
              to);
}

static void put_zsh(FILE *to)
{
        fputs("#compdef agentix\nautoload -U +X bashcompinit && bashcompinit\n", to);
        put_bash(to);
}

/* ---- fish ---- */

static void fish_quote(FILE *to, const char *text)
{
        fputc('\'', to);
        for (; *text; text++) {
                if (*text == '\'' || *text == '\\')
                        fputc('\\', to);
                fputc(*text, to);
        }
        fputc('\'', to);
}

static void fish_path(const visit *v, const char *path, const agx_command *command)
{
        (void)command;
        fprintf(v->to, " '%s'", path);
}

static void fish_option(FILE *to, const char *path, const agx_opt *opt)
{
        fprintf(to, "complete -c agentix -n 'test (__agentix_path) = \"%s\"' -l %s", path, opt->name);
        if (opt->letter)
                fprintf(to, " -s %c", opt->letter);
        if (opt->choices) {
                fputs(" -x -a '", to);
                put_choices(to, opt->choices);
                fputc('\'', to);
        } else if (!agx_opt_is_bare(opt)) {
                fputs(" -r", to);
        }
        fputs(" -d ", to);
        fish_quote(to, opt->help);
        fputc('\n', to);
}

static void fish_words(const visit *v, const char *path, const agx_command *command)
{
        agx_opt_set sets[4];

        for (const agx_command *const *child = command->children; child && *child; child++) {
                fprintf(v->to, "complete -c agentix -f -n 'test (__agentix_path) = \"%s\"' -a %s -d ", path,
                        (*child)->name);
                fish_quote(v->to, (*child)->summary);
                fputc('\n', v->to);
        }
        agx_command_options(command, sets);
        for (const agx_opt_set *set = sets; set->table; set++)
                for (const agx_opt *opt = set->table; opt->kind; opt++)
                        if (is_option(opt))
                                fish_option(v->to, path, opt);
}

static void put_fish(FILE *to)
{
        static const agx_command top = {.name = "agentix", .children = agx_commands, .opts = agx_command_top_options};

        fputs("function __agentix_path\n"
              "    set -l path agentix\n"
              "    for word in (commandline -opc)[2..-1]\n"
              "        switch \"$path $word\"\n"
              "            case",
              to);
        each_command(&(visit){to, fish_path}, "agentix", agx_commands);
        fputs("\n                set path \"$path $word\"\n        end\n    end\n    echo $path\nend\n", to);
        fish_words(&(visit){.to = to}, "agentix", &top);
        each_command(&(visit){to, fish_words}, "agentix", agx_commands);
}

/* ---- the command ---- */

typedef struct values {
        const char *shell;
} values;

static const agx_opt opts[] = {
        {AGX_OPT_ARG, .name = "SHELL", .choices = "bash|zsh|fish", .help = "bash, zsh or fish",
         .offset = offsetof(values, shell)},
        {.kind = AGX_OPT_END},
};

static int run(agx_cli *cli, void *v)
{
        const char *shell = ((const values *)v)->shell;

        if (!strcmp(shell, "fish"))
                put_fish(cli->say.out);
        else if (!strcmp(shell, "zsh"))
                put_zsh(cli->say.out);
        else
                put_bash(cli->say.out);
        return AGX_EXIT_OK;
}

const agx_command agx_command_completion = {
        .name = "completion",
        .summary = "Print a completion script for a shell",
        .examples = "  source <(agentix completion bash)\n"
                    "  agentix completion zsh > ~/.zfunc/_agentix\n"
                    "  agentix completion fish > ~/.config/fish/completions/agentix.fish\n",
        .opts = opts,
        .size = sizeof(values),
        .plain = true,
        .run = run,
};
