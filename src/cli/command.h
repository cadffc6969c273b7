#ifndef AGX_CLI_COMMAND_H
#define AGX_CLI_COMMAND_H
/*
 * A command: what it is called, which options it takes, what runs it. One file per command defines one
 * `const agx_command agx_command_<name>`; `commands.c` has the table of them, which is also the order of the help.
 *
 * A command with children does nothing itself: the next argument names the child. Children that are known only at run
 * time (backends from plugins) come from `find` and show up in the help through `more`.
 */
#include "cli/opt.h"
#include "cli/say.h"
#include "cli/settings.h"

typedef struct agx_cli agx_cli;
typedef struct agx_command agx_command;

struct agx_command {
        const char *name;
        const char *summary;  /* a sentence without full stop */
        const char *text;     /* further lines of the help, or NULL */
        const char *examples; /* lines, indented by two, or NULL */
        const agx_opt *opts;  /* NULL: none */
        size_t size;          /* of the struct that `opts` fill */
        bool format;          /* takes --format text|json */
        bool plain;           /* reads no settings: what it does must work whatever files say */
        /* The directory of the project that it is about, whose settings count; NULL: where we are. */
        const char *(*project)(const void *values);
        /* Does it; gives back the exit code. `values`: as filled from `opts`. */
        int (*run)(agx_cli *cli, void *values);
        const agx_command *const *children;                          /* NULL: none */
        const agx_command *(*find)(agx_cli *cli, const char *child); /* or NULL; sets cli->child */
        void (*more)(agx_cli *cli, FILE *to);                        /* prints more help, or NULL */
};

struct agx_cli {
        agx_say say;
        const char *child;  /* the name by which a `find` child was called */
        char trouble[1024]; /* why a `find` child is of no use */
        agx_settings settings;
};

extern const agx_command *const agx_commands[];

/* Every option that a command takes, its own and the common ones, in three tables. Values are not set. */
void agx_command_options(const agx_command *command, agx_opt_set sets[4]);
/* Options of `agentix` itself. */
extern const agx_opt agx_command_top_options[];

/* Does what the command line says; the exit code. */
int agx_command_main(agx_cli *cli, int argc, char *const *argv);

#endif
