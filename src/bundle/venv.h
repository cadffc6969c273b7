#ifndef AGX_BUNDLE_VENV_H
#define AGX_BUNDLE_VENV_H
/*
 * /nix/runtime/venv: what uv installs of the project, our own distributions out of this installation, and none of the traces
 * that differ from one machine or day to the next.
 */
#include "bundle/interpreter.h"
#include "bundle/npm.h"
#include "bundle/stage.h"

#define AGX_VENV "/nix/runtime/venv"

typedef struct agx_venv_plan {
        const agx_stage *stage;
        const agx_tools *tools;
        const agx_interpreter *python;
        const char *place;   /* where the copy of the context is seen in the jail */
        const char *context; /* the user's own files */
        const char *subpath; /* the project in it */
        const char *lock;    /* directory of uv.lock in it; NULL: there is none */
        const agx_strv *own; /* names of our distributions that are installed here */
        const agx_strv *uv_args;
        const char *platform;
        bool quiet;
} agx_venv_plan;

/* Checks the lock, makes the environment and syncs it. What uv prints goes to standard error. */
int agx_venv_sync(const agx_venv_plan *p, agx_why *why);
/*
 * Adds our own distributions. `closures` gets "<name>\t<default.nix>" of plugins, `npm` the packages that project and plugins
 * declare, `lacking` what ours need and the lock has not.
 */
int agx_venv_add_own(const agx_venv_plan *p, agx_strv *closures, agx_npm_list *npm, agx_strv *lacking, agx_why *why);
/* Points the shebangs of all files below a directory of the stage at the bundle's programs. */
int agx_venv_fix_shebangs(const char *root, agx_strv *changed, agx_why *why);
/* Removes traces; points shebangs at the bundle. Paths of rewritten files are added to `changed`. */
int agx_venv_tidy(const agx_stage *s, agx_strv *changed, agx_why *why);
/* Makes every RECORD say what is there: sorted, without what was removed, with new hashes for `changed`. */
int agx_venv_settle_records(const agx_stage *s, unsigned minor, const agx_strv *changed, agx_why *why);

#endif
