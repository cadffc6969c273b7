/* agentix bundle: look at bundles, as files and in the cache of deployed ones, and clean that up. */
#include "cli/bundle_verbs.h"
#include "cli/commands.h"

static const agx_command *const children[] = {&agx_bundle_inspect, &agx_bundle_verify, &agx_bundle_list,
                                              &agx_bundle_rm,      &agx_bundle_prune,  NULL};

const agx_command agx_command_bundle = {
        .name = "bundle",
        .summary = "Look at bundles and clean up deployed ones",
        .children = children,
};
