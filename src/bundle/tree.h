#ifndef AGX_BUNDLE_TREE_H
#define AGX_BUNDLE_TREE_H
/*
 * Files and directories below a place of ours: making, copying, walking, removing. Paths are absolute, or relative to the
 * working directory. What is walked is our own staging or the user's project, nothing from a sandbox.
 */
#include "base/buf.h"
#include "bundle/why.h"

#include <sys/stat.h>

/* Joined with a slash; the caller's to free, NULL without memory. */
char *agx_tree_join(const char *a, const char *b);
/* The directory and the missing ones above it, 0755. */
int agx_tree_make(const char *path, agx_why *why);
/* The directories above `path`. */
int agx_tree_make_parents(const char *path, agx_why *why);
/* The whole tree, whatever the modes in it; missing is fine. */
int agx_tree_remove(const char *path, agx_why *why);
/* A file, or a symbolic link as such; the parents are made. The mode becomes 0755 or 0644, as the owner may execute it. */
int agx_tree_copy(const char *from, const char *to, agx_why *why);
/* A directory and all that is in it. */
int agx_tree_copy_all(const char *from, const char *to, agx_why *why);
/* A whole file with these bytes. */
int agx_tree_write(const char *path, agx_view bytes, mode_t mode, agx_why *why);
/* Appends a file's bytes. Larger than the buffer: told. */
int agx_tree_read(const char *path, agx_buf *out, agx_why *why);

typedef struct agx_tree_entry {
        const char *path;     /* as walked */
        const char *relative; /* to the walk's root; "" is the root */
        const char *name;
        const struct stat *st;
} agx_tree_entry;

enum { AGX_TREE_SKIP = 2 }; /* from a visitor: not below this directory */

/*
 * Calls `visit` for every entry below `path`, directories before what they hold, names in the order of their bytes. Links
 * are not followed. A visitor gives 0, AGX_TREE_SKIP, or an error that ends the walk; it may remove the entry it is given.
 */
typedef int (*agx_tree_visit)(const agx_tree_entry *entry, void *user, agx_why *why);
int agx_tree_walk(const char *path, agx_tree_visit visit, void *user, agx_why *why);

#endif
