#ifndef AGX_CLI_DEPLOY_BACKENDS_H
#define AGX_CLI_DEPLOY_BACKENDS_H
/* The commands below `agentix deploy`. */
#include "cli/command.h"

extern const agx_command agx_deploy_docker;
extern const agx_command agx_deploy_podman;
extern const agx_command agx_deploy_apptainer;

/* A backend from a plugin is a child command if it can deploy; a broken one is one too, and says why. NULL: there is none. */
const agx_command *agx_deploy_find(agx_cli *cli, const char *name);

#endif
