#ifndef AGX_BUNDLE_NIX_H
#define AGX_BUNDLE_NIX_H
/*
 * System dependencies: a default.nix is built with this machine's Nix, its closure goes to /nix/store of the bundle, and what
 * its outputs hold is linked into /nix/runtime/{bin,lib,...}.
 *
 * A Nix that has its store on this machine is used as it is. One without (Debian's nix-bin) gets a store of ours in the build
 * cache, seen as /nix in the jail, so that it needs neither root nor a daemon and the machine gets no /nix.
 */
#include "bundle/stage.h"

typedef struct agx_nix_job {
        const agx_stage *stage;
        const char *place; /* where <stage>/src is seen in the jail */
        const agx_strv *args;
        bool quiet;
} agx_nix_job;

/* Builds `file`, which is a path relative to the copied sources, or absolute. `label` names it in errors. */
int agx_nix_add(const agx_nix_job *job, const char *label, const char *file, agx_why *why);

#endif
