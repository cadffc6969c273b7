#ifndef AGX_BUNDLE_NAMES_H
#define AGX_BUNDLE_NAMES_H
/* What a bundle is called, for which platform and Python it is made, and where its tar goes. No I/O. */
#include "base/buf.h"
#include "bundle/why.h"

/*
 * Name and tag. `wish` is --name: NULL takes the project's name without "agentix-" in front, and its version; "NAME" takes
 * that version, or "latest" if there is none; "NAME:TAG" is verbatim. An empty side of the colon is refused.
 */
int agx_names_choose(const char *wish, const char *project, const char *version, char **name, char **tag, agx_why *why);
/* "linux/amd64" or "linux/arm64" for any of their spellings; NULL: another one. Static. */
const char *agx_names_platform(const char *text);
/* The platform of this machine; NULL: none we know. */
const char *agx_names_own_platform(void);
/* "x86_64-linux" for "linux/amd64". */
const char *agx_names_nix_system(const char *platform);
/* `text` with everything but letters, digits, '.', '_' and '-' turned into '-'. The caller's to free; NULL without memory. */
char *agx_names_sanitise(const char *text);
/*
 * Where the tar goes. `wish` is --output: NULL is dist/<file name> ; a directory, or a path without a suffix, gets the
 * file name inside; anything else is verbatim. `is_dir`: it is an existing directory. `zstd` asks for ".tar.zst" in a name
 * that we make.
 */
char *agx_names_output(const char *wish, bool is_dir, const char *name, const char *tag, const char *platform,
                       bool zstd);
/* Whether a file of that name is to be compressed: it ends in ".zst". */
bool agx_names_is_zstd(const char *path);

/*
 * The minor version of Python 3 for a `requires-python` (NULL: none): the lowest of 11 to 13 that it allows; 11 if it is
 * missing or cannot be read; 0 if it allows none of them.
 */
unsigned agx_names_python_minor(const char *requires);

#endif
