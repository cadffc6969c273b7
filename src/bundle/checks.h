#ifndef AGX_BUNDLE_CHECKS_H
#define AGX_BUNDLE_CHECKS_H
/* The last steps of a build: what would fail on another machine fails here. */
#include "bundle/stage.h"

/* Every symbolic link stays below /nix and leads somewhere; the entry point is there. Modes become 0755 or 0644. */
int agx_checks_links(const agx_stage *s, agx_why *why);
/*
 * In an empty root, with /nix, /proc and /dev only: bash starts, agentix is imported, and so is every extension module of the
 * interpreter and of the environment. A library that is missing, or mapped from outside /nix, is told. Modules that cannot be
 * imported for a reason of their own are added to `odd`.
 */
int agx_checks_imports(const agx_stage *s, unsigned minor, agx_strv *odd, agx_why *why);

#endif
