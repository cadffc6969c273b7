#ifndef AGX_BUNDLE_STAGE_H
#define AGX_BUNDLE_STAGE_H
/*
 * Where a bundle comes into being: a directory of its own in the build cache, locked as long as it is in use, so that the
 * next build can remove what a killed one left. And the programs of this machine that a build drives.
 *
 *     <dir>/tree/nix   what becomes the bundle
 *     <dir>/src        the copy of the user's files
 *     <dir>/root       mount point of the jail
 */
#include "base/strv.h"
#include "bundle/run.h"

typedef struct agx_tools {
        char *python;  /* the interpreter of this installation of agentix, for agentix._project */
        char *runtime; /* agentix-runtime of this installation */
        char *uv;
        char *patchelf; /* 0.19 or newer */
        char *busybox;  /* static */
        char *bash;
        char *npm; /* may be NULL: only some bundles need it */
} agx_tools;

/* Finds them beside this executable and on PATH; told which is missing and how to get it. `all`: also what only a real build needs. */
int agx_tools_find(agx_tools *t, bool all, agx_why *why);
/* Only looks for them; NULL is what there is not. */
void agx_tools_locate(agx_tools *t);
void agx_tools_deinit(agx_tools *t);
AGX_DEFINE_CLEANUP(agx_tools, agx_tools_deinit)

typedef struct agx_stage {
        char *cache; /* the build cache: layers, states, stages */
        char *dir;
        char *tree; /* <dir>/tree */
        char *nix;  /* <dir>/tree/nix */
        char *src;
        char *root;
        int lock;
        int use; /* of the whole cache, see build_cache.h */
} agx_stage;

#define AGX_STAGE_NULL ((agx_stage){.lock = -1, .use = -1})

/* The build cache's directory, made: $AGENTIX_BUILD_CACHE_DIR, $XDG_CACHE_HOME/agentix/build, ~/.cache/agentix/build, or a private one in $TMPDIR. */
int agx_stage_cache(char **cache, agx_why *why);
/* Where the first of these is, whether there or not; the caller's to free, NULL without a home. */
char *agx_stage_cache_where(void);
/* A fresh stage; what dead builds left is removed. */
int agx_stage_open(agx_stage *s, agx_why *why);
/* Removes it. */
void agx_stage_close(agx_stage *s);
AGX_DEFINE_CLEANUP(agx_stage, agx_stage_close)

/* Runs a program in the jail over the stage's tree; an exit status other than 0 is told as "<doing> failed". */
int agx_stage_run(const agx_stage *s, agx_run run, agx_jail_kind kind, const char *doing, agx_why *why);

#endif
