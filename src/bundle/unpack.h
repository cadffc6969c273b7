#ifndef AGX_BUNDLE_UNPACK_H
#define AGX_BUNDLE_UNPACK_H
/*
 * A bundle tar becomes a tree below an empty directory of ours: archive.h reads, members.h judges, walk.h writes. What is
 * there after an error is for the caller to remove.
 */
#include "bundle/archive.h"
#include "bundle/manifest.h"

/* How long an unpacking goes on and who hears of it; every function may be NULL. */
typedef struct agx_unpack_hooks {
        bool (*stop)(void *user); /* true: give up */
        void (*warn)(void *user, const char *text);
        void (*progress)(void *user, uint64_t packed);
        void *user;
} agx_unpack_hooks;

typedef struct agx_unpack_limits {
        agx_archive_limits archive;
        agx_members_limits members;
} agx_unpack_limits;

typedef struct agx_unpacked {
        agx_buf manifest_bytes; /* as it came */
        agx_manifest manifest;
        uint64_t files, bytes; /* regular files that came, and bytes in them */
        unsigned omitted;      /* links that were left out */
} agx_unpacked;

void agx_unpacked_deinit(agx_unpacked *u);
AGX_DEFINE_CLEANUP(agx_unpacked, agx_unpacked_deinit)

/*
 * Unpacks from `fd` into `root`, which must be an empty directory that nobody else writes to; `manifest.json` is written
 * beside `nix`. With root < 0 nothing is written: the archive is judged and its manifest read. `*u` is to be deinitialised
 * whatever comes back: 0, AGX_WHY_E_TOLD (kinds "bundle", "system", "signal"), or -ENOMEM.
 */
int agx_unpack(agx_unpacked *u, int fd, int root, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
               agx_why *why);
/* Reads only as far as the manifest. */
int agx_unpack_manifest(agx_unpacked *u, int fd, const agx_unpack_limits *limits, agx_why *why);

#endif
