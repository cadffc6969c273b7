#ifndef AGX_CLI_BUNDLE_TARGET_H
#define AGX_CLI_BUNDLE_TARGET_H
/* What an argument BUNDLE of `agentix bundle` means. */
#include "bundle/cache.h"
#include "cli/command.h"

#define AGX_CACHE_DIR_OPT(type)                                                                                        \
        {                                                                                                              \
                AGX_OPT_TEXT, .name = "bundle-cache-dir", .value = "DIR",                                              \
                              .help = "where bundles are kept (~/.cache/agentix/bundles)",                             \
                              .offset = offsetof(type, cache_dir), .setting = AGX_SETTING_CACHE_DIR                    \
        }

/* A bundle: a tar, or an entry of a cache. */
typedef struct agx_bundle_target {
        bool tar;
        agx_cache cache; /* for a tar: where it may be tried */
        char *entry;     /* NULL for a tar */
} agx_bundle_target;

/*
 * Finds what `text` names: a file, a directory, "sha256-<hex>", "sha256:<hex>" or the beginning of the hex. 0, or a negative or
 * told error. Give it to agx_bundle_target_deinit() always.
 */
int agx_bundle_target_init(agx_bundle_target *t, const char *text, const char *cache_dir, agx_why *why);
void agx_bundle_target_deinit(agx_bundle_target *t);
AGX_DEFINE_CLEANUP(agx_bundle_target, agx_bundle_target_deinit)

/* Tells that there is no such bundle. */
int agx_bundle_not_found(agx_why *why, const char *text);

#endif
