#ifndef AGX_BUNDLE_INTERPRETER_H
#define AGX_BUNDLE_INTERPRETER_H
/*
 * The bundle's Python: an interpreter of this machine with its standard library and its ELF closure, below /nix/closure. It is
 * a layer, made once for each interpreter and kept in the build cache.
 *
 * Left out of the standard library: tests, IDLE, tkinter, the bundled pip, what is only for building Python's own embedders.
 */
#include "bundle/stage.h"

#define AGX_INTERPRETER_HOME "/nix/closure/python"

typedef struct agx_interpreter {
        char *exe;        /* on this machine, links resolved */
        char *version;    /* "3.11.7" */
        unsigned minor;   /* 11 */
        char *base;       /* sys.base_prefix */
        char *stdlib;     /* absolute */
        char *platstdlib; /* absolute; where lib-dynload is */
        char *include;    /* where Python.h is, or "" */
        char *libdir;     /* where libpython is */
} agx_interpreter;

/* Finds Python 3.<minor> on this machine, one that `requires` allows if it is not NULL. Nothing is downloaded. */
int agx_interpreter_find(agx_interpreter *i, const agx_tools *tools, unsigned minor, const char *requires,
                         agx_why *why);
void agx_interpreter_deinit(agx_interpreter *i);
AGX_DEFINE_CLEANUP(agx_interpreter, agx_interpreter_deinit)

/* Puts the layer into the stage; *made tells that it was not in the cache. Libraries that are missing go to `missing`. */
int agx_interpreter_stage(const agx_interpreter *i, const agx_stage *s, const agx_tools *tools, bool *made,
                          agx_strv *missing, agx_why *why);
/* Compiles all Python files below the roots (paths in the jail) to byte code that is never checked against its source. */
int agx_interpreter_compile(const agx_stage *s, unsigned minor, const char *const *roots, agx_why *why);

#endif
