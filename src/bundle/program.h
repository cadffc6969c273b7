#ifndef AGX_BUNDLE_PROGRAM_H
#define AGX_BUNDLE_PROGRAM_H
/*
 * A program, run to its end and listened to, by a command that has nothing else to do meanwhile: the one place where the
 * command line starts others. Its output is drained whatever happens, and kept up to a ceiling. It dies with us.
 *
 * The program gets /dev/null or what it is fed as standard input, no descriptors but 0 to 2 and, when asked for, 3: the write end
 * of a pipe for an answer that no printing can disturb. What it leaves running in the background is not waited for.
 */
#include "base/buf.h"
#include "bundle/jail.h"

#include <sys/types.h>

typedef struct agx_program_spec {
        char *const *argv;          /* argv[0] without a slash is looked for on PATH */
        char *const *envp;          /* NULL: our own environment */
        const char *cwd;            /* in the jail; NULL: where we are, or / in a jail */
        const agx_jail *jail;       /* NULL: none */
        agx_view input;             /* what it is fed; absent: nothing */
        uint64_t timeout_ms;        /* 0: none; then it is killed */
        size_t keep;                /* bytes kept of each stream, the first ones */
        size_t keep_err;            /* if not 0: of standard error, the last ones */
        bool pass_out;              /* its standard output goes to our standard error instead of being kept */
        bool pass_err;              /* its standard error goes to ours */
        bool quiet;                 /* what would be passed goes nowhere */
        bool answer;                /* give it descriptor 3 */
        bool strict;                /* more standard output than is kept: it is killed */
        void (*started)(pid_t pid); /* told when it runs, and with 0 when it has ended; or NULL */
} agx_program_spec;

typedef struct agx_program {
        agx_buf out, err, answer;
        bool out_cut, err_cut, answer_cut; /* more came than was kept */
        bool timed_out;
        int status; /* as waitpid gives it */
        /* When it could not be started: at what (static), and whether that was the jail. */
        const char *step;
        bool jail;
} agx_program;

enum { AGX_PROGRAM_E_NOT_FOUND = 1 };

/* Runs it. 0 whatever its exit status, AGX_PROGRAM_E_NOT_FOUND, or a negative errno. Give `r` to agx_program_deinit() always. */
int agx_program_run(agx_program *r, const agx_program_spec *spec);
void agx_program_deinit(agx_program *r);
AGX_DEFINE_CLEANUP(agx_program, agx_program_deinit)

/* 0 to 255: its exit status, 128 + n after signal n, as shells count. */
int agx_program_code(const agx_program *r);
/* A program's path, looked up on PATH; NULL if there is none. The caller's to free. */
char *agx_program_find(const char *name);

#endif
