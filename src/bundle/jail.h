#ifndef AGX_BUNDLE_JAIL_H
#define AGX_BUNDLE_JAIL_H
/*
 * A private view of the machine in which /nix is a directory of ours: a mount namespace (and, for anybody but root, a user
 * namespace) with a tmpfs as its root. The machine's own /nix is not touched and not seen.
 *
 * AGX_JAIL_MACHINE has every entry of the machine's root beside /nix: what runs there is a program of this machine.
 * AGX_JAIL_BARE has /nix, /proc and /dev: what runs there runs from the bundle or not at all.
 */
#include "base/strv.h"

typedef enum agx_jail_kind { AGX_JAIL_NONE, AGX_JAIL_MACHINE, AGX_JAIL_BARE } agx_jail_kind;

typedef struct agx_jail_bind {
        const char *from;
        const char *to; /* absolute; made if it is missing in the new root, must exist below /nix */
} agx_jail_bind;

typedef struct agx_jail {
        agx_jail_kind kind;
        const char *root; /* an empty directory, becomes the mount point; absolute */
        const char *nix;  /* what /nix shall be; absolute */
        const agx_jail_bind *binds;
        size_t n_binds;
} agx_jail;

/*
 * Moves the calling process into the jail: for a child between fork and exec. 0, or a negated errno with `*step` naming
 * what failed (static text). AGX_JAIL_NONE does nothing.
 */
int agx_jail_enter(const agx_jail *jail, const char **step);
/* Whether an errno of agx_jail_enter() means that this machine does not allow it. */
bool agx_jail_forbidden(int error);

#endif
