#ifndef AGX_BUNDLE_WALK_H
#define AGX_BUNDLE_WALK_H
/*
 * Writes beneath one directory and nowhere else. Every path is resolved by the kernel with openat2: beneath the root, no
 * symbolic links, no magic links; where openat2 is missing or forbidden, one directory at a time without following links.
 * The last component is only ever created anew, so an entry that is already there, a link say, is never written through.
 *
 * Paths are normalised and relative ("nix/runtime/bin/sh"), as members.h gives them. Missing parents are made with mode
 * 0755. Modes are set as given, whatever the umask. Errors are negated errno: -ELOOP or -ENOTDIR for a link on the way,
 * -EXDEV for a way out, -EEXIST for a name that is taken.
 */
#include "base/buf.h"

#include <sys/types.h>

typedef struct agx_walk {
        int root;     /* the caller's */
        int dir;      /* the directory used last, or -1 */
        agx_buf at;   /* its path */
        agx_buf path; /* scratch */
        bool stepwise;
} agx_walk;

/* `stepwise`: do without openat2 from the start. */
void agx_walk_init(agx_walk *w, int root, bool stepwise);
void agx_walk_deinit(agx_walk *w);
AGX_DEFINE_CLEANUP(agx_walk, agx_walk_deinit)

/* A directory that is there already keeps its contents and gets the mode. */
int agx_walk_mkdir(agx_walk *w, agx_view path, mode_t mode);
/* A new file, open for writing; the descriptor is the caller's. */
int agx_walk_create(agx_walk *w, agx_view path, mode_t mode, int *fd);
int agx_walk_symlink(agx_walk *w, agx_view path, agx_view target);
/* A second name for the regular file `from`. */
int agx_walk_link(agx_walk *w, agx_view path, agx_view from);
int agx_walk_unlink(agx_walk *w, agx_view path);

/* Removes `name` in `dir`, a tree or a file, without following anything. A missing one is fine. */
int agx_walk_remove(int dir, const char *name);

#endif
