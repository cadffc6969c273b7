#ifndef AGX_BUNDLE_STATE_H
#define AGX_BUNDLE_STATE_H
/*
 * What a build was made from, kept in the build cache beside the name of its tar, so that building again without a change
 * costs a look at the files. Files count by path, mode, size, times and inode, as for make; that a tar is the one that was
 * made is judged likewise.
 */
#include "base/strv.h"
#include "bundle/digest.h"
#include "bundle/why.h"

typedef struct agx_state_inputs {
        const char *const *words; /* up to a NULL */
        const char *const *files; /* looked at, not read; up to a NULL */
        const agx_strv *lists[4];
        const char *root;
        const agx_strv *tree; /* relative to root */
} agx_state_inputs;

/* One digest of all inputs, and of the environment variables and settings that uv goes by. */
int agx_state_sum(const agx_state_inputs *in, char sum[AGX_DIGEST_SIZE], agx_why *why);
/* Whether `output` is still what was built from inputs with that sum; then also its digest and size. */
bool agx_state_is(const char *output, const char *sum, char digest[AGX_DIGEST_SIZE], uint64_t *size);
/* Remembers; what cannot be remembered is built again. */
void agx_state_keep(const char *output, const char *sum, const char *digest);

#endif
