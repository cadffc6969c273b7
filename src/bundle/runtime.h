#ifndef AGX_BUNDLE_RUNTIME_H
#define AGX_BUNDLE_RUNTIME_H
/*
 * What every bundle has besides Python: bootstrap.sh, agentix-runtime, a static busybox, bash.
 *
 *     /nix/runtime/bootstrap.sh          run by busybox
 *     /nix/runtime/bin/agentix-runtime   static
 *     /nix/runtime/bin/bash              for plugins that run commands in images without one
 *     /nix/closure/bin/{busybox,sh,env}  not on anybody's PATH
 */
#include "bundle/stage.h"

/* Puts the programs into the stage; busybox must be static. */
int agx_runtime_stage(const agx_stage *s, const agx_tools *tools, agx_strv *missing, agx_why *why);

#endif
