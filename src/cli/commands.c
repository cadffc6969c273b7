/* The table of commands, in the order of the help. */
#include "cli/commands.h"

const agx_command *const agx_commands[] = {
        &agx_command_build,
        &agx_command_deploy,
        &agx_command_version,
        NULL,
};
