#ifndef AGX_BUNDLE_BUILD_CACHE_H
#define AGX_BUNDLE_BUILD_CACHE_H
/*
 * What builds keep in their cache, looked at and removed as a whole: interpreters made ready (`python-<hex>`), what tars were
 * made from (`state-<hex>`), archives of npm packages (`npm-<hex>.tgz`), a Nix store (`nix`), and stages of builds that are
 * gone (`stage-<random>`). Whatever else lies
 * there is not ours. A build holds the cache together with others; who cleans it holds it alone.
 */
#include "bundle/why.h"

typedef struct agx_build_cache_use {
        uint64_t bytes; /* on disk */
        unsigned interpreters, records, stages, stores, packages;
} agx_build_cache_use;

/*
 * Opens and locks the cache: *lock is to be closed. Together: waits while somebody cleans. Alone: told with kind "busy" if
 * a build runs.
 */
int agx_build_cache_hold(const char *cache, bool alone, int *lock, agx_why *why);
/* Sums up what is there; a cache that is not there holds nothing. Builds may run meanwhile. */
int agx_build_cache_measure(const char *cache, agx_build_cache_use *use, agx_why *why);
/* Removes what is there, `use` says what that was. Interrupted at any moment it leaves no half of anything under a name that a build looks for. */
int agx_build_cache_clean(const char *cache, agx_build_cache_use *use, agx_why *why);

#endif
