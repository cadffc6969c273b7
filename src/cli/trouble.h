#ifndef AGX_CLI_TROUBLE_H
#define AGX_CLI_TROUBLE_H
/* What went wrong below, said as an error of a command; and the signals that end one. */
#include "bundle/why.h"
#include "cli/command.h"

/* From now on SIGINT, SIGTERM and SIGHUP are remembered instead of ending us, so that a command can put away its things. */
void agx_cli_catch_signals(void);
/* For hooks that ask whether to give up. */
bool agx_cli_stopped(void *unused);

/* Says what a function of bundle/ gave back: AGX_WHY_E_TOLD or a negated errno. Gives the exit code. */
int agx_cli_trouble(agx_cli *cli, int r, const agx_why *why);

#endif
