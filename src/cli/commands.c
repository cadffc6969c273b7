/* The table of commands, in the order of the help. */
#include "cli/commands.h"

/* One a line, so that two additions meet in no merge. */
/* clang-format off */
const agx_command *const agx_commands[] = {
        &agx_command_build,
        &agx_command_deploy,
        &agx_command_bundle,
        &agx_command_cache,
        &agx_command_plugin,
        &agx_command_ps,
        &agx_command_rm,
        &agx_command_prune,
        &agx_command_doctor,
        &agx_command_config,
        &agx_command_completion,
        &agx_command_version,
        NULL,
};
