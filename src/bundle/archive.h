#ifndef AGX_BUNDLE_ARCHIVE_H
#define AGX_BUNDLE_ARCHIVE_H
/*
 * Reads a tar, plain or compressed with zstd, member by member. libarchive knows the format; nothing of it ever touches a
 * file system. The archive is anybody's: what it says is bounded here (bytes that come out, how many come out of how few)
 * and judged elsewhere (members.h).
 */
#include "bundle/members.h"
#include "bundle/why.h"

typedef struct agx_archive_limits {
        uint64_t bytes;      /* of the whole unpacked stream, headers included */
        unsigned ratio;      /* unpacked to packed bytes, */
        uint64_t ratio_free; /* once so many have come out */
} agx_archive_limits;

struct archive;

typedef struct agx_archive {
        struct archive *reader;
        agx_archive_limits limits;
        int fd; /* the caller's */
        uint64_t packed;
        uint8_t *chunk;
} agx_archive;

enum { AGX_ARCHIVE_E_END = 2 };

/* Reads from `fd`, which stays the caller's. Whatever fails, a->... is fit for agx_archive_deinit(). */
int agx_archive_init(agx_archive *a, int fd, const agx_archive_limits *limits, agx_why *why);
void agx_archive_deinit(agx_archive *a);
AGX_DEFINE_CLEANUP(agx_archive, agx_archive_deinit)

/* The next member; its views live until the next call. 0, AGX_ARCHIVE_E_END, AGX_WHY_E_TOLD or a negated errno. */
int agx_archive_next(agx_archive *a, agx_member *member, agx_why *why);
/* The next bytes of the member; they live until the next call. 0, AGX_ARCHIVE_E_END, AGX_WHY_E_TOLD. */
int agx_archive_read(agx_archive *a, agx_view *bytes, agx_why *why);
/* Packed bytes read so far. */
uint64_t agx_archive_packed(const agx_archive *a);

#endif
