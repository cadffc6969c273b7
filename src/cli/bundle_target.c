/* A file is a bundle of its own; all else is looked for in a cache. */
#include "cli/bundle_target.h"
#include "cli/unpacking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ABBREVIATED_MIN = 6 };

void agx_bundle_target_deinit(agx_bundle_target *t)
{
        agx_cache_close(&t->cache);
        free(t->entry);
        t->entry = NULL;
}

/* "sha256-<hex>", "sha256:<hex>", or the beginning of the hex. */
static bool names_entry(const char *text, const char *entry)
{
        size_t n;

        if (!strncmp(text, "sha256-", 7) || !strncmp(text, "sha256:", 7))
                text += 7;
        n = strlen(text);
        return n >= ABBREVIATED_MIN && !strncmp(text, entry + 7, n);
}

int agx_bundle_not_found(agx_why *why, const char *text)
{
        why->exit_code = AGX_EXIT_NOT_FOUND;
        (void)agx_why_hint(why, "agentix bundle list shows what is in the cache");
        return agx_why_set(why, "not_found", "there is no bundle '%s', neither as a file nor in the cache", text);
}

static int find_entry(agx_bundle_target *t, const char *text, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv names = AGX_STRV_NULL;
        const char *found = NULL;
        int r = agx_cache_list(&t->cache, &names, why);

        for (size_t i = 0; !r && i < names.count; i++) {
                if (!names_entry(text, names.items[i]))
                        continue;
                if (found)
                        return agx_why_set(why, "usage", "'%s' is the beginning of several bundles' digests", text);
                found = names.items[i];
        }
        if (r)
                return r;
        if (!found)
                return agx_bundle_not_found(why, text);
        t->entry = strdup(found);
        return t->entry ? 0 : -ENOMEM;
}

/* A directory is an entry of the cache that it lies in. */
static int take_directory(agx_bundle_target *t, const char *path, agx_why *why)
{
        _cleanup_(agx_freep) char *whole = realpath(path, NULL);
        char *slash = whole ? strrchr(whole, '/') : NULL;

        if (!whole)
                return agx_why_errno(why, errno, "cannot find %s", path);
        if (!agx_cache_is_entry(slash + 1))
                return agx_why_set(why, "bundle", "%s is a directory, but not an entry of a bundle cache", path);
        t->entry = strdup(slash + 1);
        *slash = 0;
        return t->entry ? agx_cache_open(&t->cache, whole, false, why) : -ENOMEM;
}

int agx_bundle_target_init(agx_bundle_target *t, const char *text, const char *cache_dir, agx_why *why)
{
        struct stat st;
        int r;

        *t = (agx_bundle_target){.cache = AGX_CACHE_NULL};
        if (!stat(text, &st) && S_ISDIR(st.st_mode))
                return take_directory(t, text, why);
        t->tar = !stat(text, &st) || strchr(text, '/');
        r = agx_cli_open_cache(&t->cache, cache_dir, t->tar, why);
        if (r == AGX_CACHE_E_NONE)
                return agx_bundle_not_found(why, text);
        return r || t->tar ? r : find_entry(t, text, why);
}
