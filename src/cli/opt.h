#ifndef AGX_CLI_OPT_H
#define AGX_CLI_OPT_H
/*
 * Options. One table drives both parsing and help, so that they cannot disagree. A row says where in a struct its value
 * goes; the struct is zeroed before parsing and given to agx_opt_free() afterwards. A table ends with a zeroed row.
 *
 * Options and arguments may be mixed; `--` ends options. An option's value is the next argument, whatever it looks like,
 * or follows `=`. Given twice, the last one counts.
 */
#include "base/strv.h"

#include <stdio.h>

typedef enum agx_opt_kind {
        AGX_OPT_END,
        AGX_OPT_FLAG,      /* bool */
        AGX_OPT_SWITCH,    /* int: 1 for --NAME, -1 for --no-NAME, 0 if the line has neither */
        AGX_OPT_TEXT,      /* const char *: points into argv */
        AGX_OPT_LIST,      /* agx_strv: may be repeated */
        AGX_OPT_ARG,       /* const char *: a positional argument that must be there */
        AGX_OPT_ARG_MAYBE, /* const char *: one that need not */
        AGX_OPT_REST       /* agx_strv: all further positional arguments */
} agx_opt_kind;

typedef struct agx_opt {
        agx_opt_kind kind;
        char letter;         /* short form, or 0 */
        const char *name;    /* long form without dashes; for an argument its name in capitals */
        const char *value;   /* what stands for the value in the help */
        const char *choices; /* "a|b|c": all that the value may be, or NULL */
        const char *help;
        size_t offset;
        bool needed;      /* REST: at least one */
        unsigned setting; /* which one of settings.h gives the value if the line does not; 0: none */
} agx_opt;

/* Where rows of a table put what they read. */
typedef struct agx_opt_set {
        const agx_opt *table;
        void *values;
} agx_opt_set;

enum { AGX_OPT_E_USAGE = 1 };

typedef struct agx_opt_fault {
        char text[512];
} agx_opt_fault;

/*
 * Reads argv[0..argc) into the sets, the first of which has the positional arguments; sets end with a NULL table. 0,
 * AGX_OPT_E_USAGE with the reason in `fault`, or -ENOMEM. With `lax` nothing is complained of and what cannot be read is
 * passed over: to learn whether help was asked for, whatever else is wrong.
 */
int agx_opt_parse(const agx_opt_set *sets, int argc, char *const *argv, bool lax, agx_opt_fault *fault);
void agx_opt_free(const agx_opt *table, void *values);
/* Whether it takes no value. */
bool agx_opt_is_bare(const agx_opt *opt);

/* " [OPTIONS] BUNDLE [NAME]..." */
void agx_opt_print_usage(const agx_opt *table, FILE *to);
/* The rows, arguments and options apart, under headings. */
void agx_opt_print_arguments(const agx_opt *table, FILE *to);
void agx_opt_print_options(const agx_opt_set *sets, FILE *to);

#endif
