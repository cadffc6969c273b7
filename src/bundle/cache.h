#ifndef AGX_BUNDLE_CACHE_H
#define AGX_BUNDLE_CACHE_H
/*
 * The cache of deployed bundles: a directory of ours with one entry `sha256-<hex>` for each one, `nix` and
 * `manifest.json` in it. The name is computed from what was unpacked; nothing an archive says has a part in it.
 *
 * An entry appears whole or not at all: it is unpacked in a private directory beside the entries, brought to disk, and
 * renamed. Until then it is called `.tmp-<hex>` and held by a lock that dies with its process, so that the next deploy
 * knows which ones a killed process left, and removes them. Two deploys of one bundle do not disturb each other; whoever
 * comes second finds the entry there and leaves it alone.
 *
 * The directory itself must belong to us, be nobody else's to write to, and not be a link.
 */
#include "bundle/digest.h"
#include "bundle/unpack.h"

typedef struct agx_cache {
        char *path; /* absolute */
        int dir;
} agx_cache;

#define AGX_CACHE_NULL ((agx_cache){.dir = -1})

enum { AGX_CACHE_E_NONE = 2 };

/*
 * Where the cache lies: `chosen` if not NULL, else $AGENTIX_BUNDLE_CACHE_DIR, else agentix/bundles in $XDG_CACHE_HOME or
 * ~/.cache. The caller's to free; NULL without memory or without a home.
 */
char *agx_cache_where(const char *chosen);
/* Opens it, making what is missing if `make`; else a missing one is AGX_CACHE_E_NONE. */
int agx_cache_open(agx_cache *c, const char *path, bool make, agx_why *why);
void agx_cache_close(agx_cache *c);
AGX_DEFINE_CLEANUP(agx_cache, agx_cache_close)

typedef struct agx_deployed {
        char *path;                   /* of the entry */
        char digest[AGX_DIGEST_SIZE]; /* computed */
        bool fresh;                   /* it was not there before */
        agx_unpacked unpacked;        /* its manifest is the one of this archive */
} agx_deployed;

void agx_deployed_deinit(agx_deployed *d);
AGX_DEFINE_CLEANUP(agx_deployed, agx_deployed_deinit)

/* Makes an entry of the bundle in the file `tar`. `*d` is to be deinitialised whatever comes back. */
int agx_cache_deploy(agx_cache *c, const char *tar, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
                     agx_deployed *d, agx_why *why);
/* Unpacks it likewise, computes its digest, and removes it again. */
int agx_cache_try(agx_cache *c, const char *tar, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
                  agx_deployed *d, agx_why *why);

/* "sha256-<64 hex>" for an entry's name: what follows `sha256:` in its digest. */
bool agx_cache_is_entry(const char *name);
/* The names of all entries, sorted. */
int agx_cache_list(const agx_cache *c, agx_strv *names, agx_why *why);
/* The manifest of an entry. AGX_CACHE_E_NONE: no such entry. */
int agx_cache_manifest(const agx_cache *c, const char *name, agx_manifest *m, agx_why *why);
/* The digest of an entry as it is now. AGX_CACHE_E_NONE: no such entry. */
int agx_cache_digest(const agx_cache *c, const char *name, char digest[AGX_DIGEST_SIZE], agx_why *why);
/* Bytes on disk of an entry. */
int agx_cache_size(const agx_cache *c, const char *name, uint64_t *bytes, agx_why *why);
/* Removes an entry; first it stops being one, so that a kill leaves no half. AGX_CACHE_E_NONE: no such entry. */
int agx_cache_remove(agx_cache *c, const char *name, agx_why *why);
/* Removes what killed processes left; `*n` (or NULL) counts. */
int agx_cache_sweep(agx_cache *c, unsigned *n, agx_why *why);

#endif
