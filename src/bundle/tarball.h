#ifndef AGX_BUNDLE_TARBALL_H
#define AGX_BUNDLE_TARBALL_H
/*
 * Writing a bundle: manifest.json first, then the tree in the order of the names; no owners, no times, so that equal trees
 * make equal files. The format is POSIX (pax), with extended headers only where a name needs them.
 */
#include "base/buf.h"
#include "bundle/why.h"

/*
 * Packs `manifest` and the directory "nix" in `tree` into `path`, as zstd if asked for. The file appears whole or not at
 * all; its size goes to *size.
 */
int agx_tarball_write(const char *path, agx_view manifest, const char *tree, bool zstd, uint64_t *size, agx_why *why);

#endif
