#ifndef AGX_CLI_DEPLOYED_H
#define AGX_CLI_DEPLOYED_H
/* The result of `agentix deploy`, whichever backend it comes from, and how it is printed. */
#include "base/strv.h"
#include "cli/command.h"

typedef struct agx_deploy_result {
        char *bundle;
        char *platform;    /* NULL: none */
        agx_strv metadata; /* key, value, key, value, ...; printed sorted by key */
        agx_strv hints;    /* label, command line, ...; printed in this order */
} agx_deploy_result;

void agx_deploy_result_deinit(agx_deploy_result *r);
AGX_DEFINE_CLEANUP(agx_deploy_result, agx_deploy_result_deinit)

/* Prints it as text or JSON; gives the exit code. */
int agx_deploy_result_print(agx_cli *cli, agx_deploy_result *r);
/* Reads {"bundle": ..., "platform": ..., "metadata": {...}, "hints": {...}}. False: it is not that. */
bool agx_deploy_result_read(agx_deploy_result *r, agx_view json);

/* Appends a word of a command line, quoted for a shell where it must be. */
int agx_shell_quote(agx_buf *line, const char *word);

#endif
