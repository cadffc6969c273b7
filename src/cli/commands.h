#ifndef AGX_CLI_COMMANDS_H
#define AGX_CLI_COMMANDS_H
/* Every command, one a file. */
#include "cli/command.h"

extern const agx_command agx_command_build;
extern const agx_command agx_command_deploy;
extern const agx_command agx_command_bundle;
extern const agx_command agx_command_cache;
extern const agx_command agx_command_plugin;
extern const agx_command agx_command_ps;
extern const agx_command agx_command_rm;
extern const agx_command agx_command_prune;
extern const agx_command agx_command_doctor;
extern const agx_command agx_command_config;
extern const agx_command agx_command_completion;
extern const agx_command agx_command_version;

#endif
