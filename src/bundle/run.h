#ifndef AGX_BUNDLE_RUN_H
#define AGX_BUNDLE_RUN_H
/*
 * One program, run to its end: uv, git, patchelf, nix, an interpreter. It blocks. What the program writes goes to our standard
 * error, so that standard output stays data, or is caught.
 *
 * SIGINT, SIGTERM and SIGHUP end the program first and are then told as AGX_RUN_E_SIGNAL, after which whoever builds puts
 * away what it has begun; they are caught only after agx_run_catch_signals().
 */
#include "base/buf.h"
#include "bundle/jail.h"
#include "bundle/why.h"

typedef struct agx_run {
        char *const *argv;    /* argv[0] is a path, or a name to be looked up on PATH */
        char *const *env;     /* NULL: ours */
        const char *cwd;      /* in the jail; NULL: ours, or / in a jail */
        const agx_jail *jail; /* NULL: none */
        agx_view input;       /* its standard input; absent: /dev/null */
        agx_buf *out;         /* catches standard output; NULL: to our standard error */
        agx_buf *err;         /* catches standard error, the last of it once full; NULL: to ours */
        bool quiet;           /* nothing to our standard error */
} agx_run;

/*
 * Runs it. 0 with the exit status in *status (128 + n if signal n ended it), or AGX_WHY_E_TOLD: it could not be started, the
 * jail is forbidden here (kind "namespace"), its output is larger than the buffer, or a signal came (kind "signal").
 */
int agx_run_wait(const agx_run *run, int *status, agx_why *why);
/* From now on signals are told, not died of. */
void agx_run_catch_signals(void);
/* The signal that came, or 0. */
int agx_run_signal(void);
/* The program's path, looked up as execvp does; NULL if there is none. The caller's to free. */
char *agx_run_find(const char *name);

#endif
