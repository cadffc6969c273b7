#ifndef AGX_BUNDLE_DIGEST_H
#define AGX_BUNDLE_DIGEST_H
/*
 * What a bundle is, in one word: a SHA-256 over paths, modes, link targets and bytes of its tree, and over what its manifest
 * says. Times, owners, inode numbers and whether two names are hard links do not count, so a bundle has the same digest
 * staged, packed and unpacked; how the manifest is written does not either, nor the digest that it claims.
 *
 * The tree is walked depth first, the names of a directory in the order of their bytes. Each entry adds a line of text,
 *
 *     d <mode> <length of path>:<path>\n
 *     f <mode> <length of path>:<path> <SHA-256 of the bytes, hex>\n
 *     l <length of path>:<path> <length of target>:<target>\n
 *
 * where the path begins with the tree's own name ("nix/runtime/venv") and the mode is four octal digits of the twelve mode bits.
 * A bundle's tree is followed by the lines of agx_manifest_lines().
 */
#include "base/view.h"

enum {
        AGX_DIGEST_E_KIND = 1, /* neither a directory, a file nor a symbolic link: a fifo, a socket, a device */
        AGX_DIGEST_E_DEEP,     /* directories inside one another beyond AGX_DIGEST_DEPTH_MAX */
        AGX_DIGEST_E_WIDE,     /* one directory holds more than AGX_DIGEST_WIDTH_MAX names */
};

enum {
        AGX_DIGEST_DEPTH_MAX = 128,
        AGX_DIGEST_WIDTH_MAX = 1 << 20,
        AGX_DIGEST_SIZE = sizeof("sha256:") + 64, /* bytes of a digest as text, with its terminator */
};

/*
 * The digest of the directory `name` in `dirfd`, as "sha256:<64 hex digits>". No symbolic link is followed, `name` being one
 * fails with -ELOOP or -ENOTDIR. `more` is text that counts behind it. 0, a condition above, or a negated errno. Nothing may
 * change the tree meanwhile.
 */
int agx_digest_tree(int dirfd, const char *name, agx_view more, char out[AGX_DIGEST_SIZE]);
/* The same of the bytes that are left in a file. */
int agx_digest_fd(int fd, char out[AGX_DIGEST_SIZE]);
/* And of bytes in memory. */
void agx_digest_bytes(agx_view bytes, char out[AGX_DIGEST_SIZE]);
/* Whether `text` has the form of a digest. */
bool agx_digest_is(agx_view text);

#endif
