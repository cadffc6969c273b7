#ifndef AGX_CLI_BUNDLE_VERBS_H
#define AGX_CLI_BUNDLE_VERBS_H
/* The commands below `agentix bundle`. */
#include "cli/command.h"

extern const agx_command agx_bundle_inspect;
extern const agx_command agx_bundle_verify;
extern const agx_command agx_bundle_list;
extern const agx_command agx_bundle_rm;
extern const agx_command agx_bundle_prune;

#endif
