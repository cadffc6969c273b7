#ifndef AGX_BUNDLE_CACHE_DIR_H
#define AGX_BUNDLE_CACHE_DIR_H
/* What the files of the cache share among themselves. */
#include "bundle/cache.h"

#include <sys/stat.h>
#include <time.h>

/* Opens an entry that is a directory of ours. AGX_CACHE_E_NONE: no such entry. */
int agx_cache_open_entry(const agx_cache *c, const char *name, int *fd, agx_why *why);
/* The digest of a bundle in an open directory whose manifest is `m`; `what` is for words. */
int agx_cache_bundle_digest(int entry, const agx_manifest *m, const char *what, char digest[AGX_DIGEST_SIZE],
                            agx_why *why);

/* A private directory that is not an entry yet, or not any more. Its lock is its descriptor. */
typedef struct agx_cache_temp {
        int fd; /* -1: none */
        char name[32];
} agx_cache_temp;

#define AGX_CACHE_TEMP_NULL ((agx_cache_temp){.fd = -1})

int agx_cache_temp_make(const agx_cache *c, agx_cache_temp *t, agx_why *why);
/* A name of that kind that nobody has. */
int agx_cache_temp_name(char name[32]);
/* Removes it, unless it has become an entry. */
void agx_cache_temp_remove(const agx_cache *c, agx_cache_temp *t);
/* Removes a directory of that kind if nobody holds it. True if it is gone. */
bool agx_cache_temp_sweep(const agx_cache *c, const char *name);
bool agx_cache_is_temp(const char *name);

/* Whether a tar of this description was unpacked before, and into what. */
bool agx_cache_seen(const agx_cache *c, const struct stat *tar, char digest[AGX_DIGEST_SIZE]);
/* Remembers that it was, if it was the same all the while and had settled when the unpacking began. */
void agx_cache_see(const agx_cache *c, const struct stat *before, const struct stat *after, time_t began,
                   const char *digest);
/* Removes what is remembered of an entry that is gone; other names are left alone. */
void agx_cache_forget(const agx_cache *c, const char *name);

#endif
