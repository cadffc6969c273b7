#ifndef AGX_BUNDLE_CLOSURE_H
#define AGX_BUNDLE_CLOSURE_H
/*
 * The ELF closure: every library that something in the tree needs and the tree does not have comes from this machine into
 * /nix/closure/lib, loader and libc first of all, and everything is told to look there.
 *
 * Executables get the closure's loader as their interpreter and a DT_RPATH that ends in the closure; unlike DT_RUNPATH it also
 * holds for the libraries they load. In a library a search path that names a place of the build machine is removed, one with
 * $ORIGIN becomes DT_RPATH, and one without any is left alone. Static executables, those of another libc (musl) or of
 * another machine are left alone too.
 */
#include "base/strv.h"
#include "bundle/why.h"

#define AGX_CLOSURE_LIB "/nix/closure/lib"

typedef struct agx_closure {
        const char *stage;    /* holds the tree "nix"; absolute */
        const char *patchelf; /* the program */
        const agx_strv *dirs; /* of this machine, searched before its usual ones */
        bool spares_tails;    /* leaves programs alone that carry data at their end, which rewriting would move */
        agx_strv changed;     /* out: paths in the stage that were rewritten */
        agx_strv missing;     /* out: "<path> needs <library>", for what this machine does not have */
        agx_strv spared;      /* out: paths of those */
        agx_strv search;      /* private: where this machine keeps libraries */
        agx_strv queue;       /* private: copies that are still to be looked at */
        agx_strv here;        /* private: names of libraries that the walked trees have */
        char *loader;         /* private: path of the loader in the bundle, NULL until the first executable */
} agx_closure;

#define AGX_CLOSURE_NULL ((agx_closure){0})

/* Brings the closure of everything below `root`, a directory in the stage. May be called for one root after another. */
int agx_closure_add(agx_closure *c, const char *root, agx_why *why);
/* Copies a program of this machine to `to`, a path in the stage, with its closure. */
int agx_closure_add_program(agx_closure *c, const char *from, const char *to, agx_why *why);
void agx_closure_deinit(agx_closure *c);
AGX_DEFINE_CLEANUP(agx_closure, agx_closure_deinit)

#endif
