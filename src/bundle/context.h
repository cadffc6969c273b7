#ifndef AGX_BUNDLE_CONTEXT_H
#define AGX_BUNDLE_CONTEXT_H
/*
 * Which files of the user's go into a build: the git work tree that holds the project, or, outside of git, the project
 * itself.
 *
 * In git: what is tracked or at least not ignored; outside: everything. In both `.git`, `.venv`, `__pycache__` and other
 * caches are left out wherever they are, and `build`, `dist` and `result` at the context's root. Submodules and other git
 * repositories inside are left out, and so are bundles (*.bundle.tar, *.bundle.tar.zst).
 */
#include "base/strv.h"
#include "bundle/why.h"

typedef struct agx_context {
        char *root;         /* absolute, links resolved */
        char *subpath;      /* the project's place in it; "." is the root */
        const char *except; /* as given */
        agx_strv files;     /* relative to the root, sorted; files and links only */
} agx_context;

#define AGX_CONTEXT_NULL ((agx_context){0})

/* Finds the context of the project directory `project`; `root` is it, if not NULL, and holds the project. What is at or below `except`, an absolute path or NULL, is left out. */
int agx_context_find(agx_context *c, const char *project, const char *root, const char *except, agx_why *why);
/* Copies its files below `to`, which is made. */
int agx_context_copy(const agx_context *c, const char *to, agx_why *why);
void agx_context_deinit(agx_context *c);
AGX_DEFINE_CLEANUP(agx_context, agx_context_deinit)

#endif
