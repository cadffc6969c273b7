#ifndef AGX_BUNDLE_MEMBERS_H
#define AGX_BUNDLE_MEMBERS_H
/*
 * Which members of a foreign archive may become files: a brain that judges them one by one, in the order in which they
 * come, and remembers the tree that the accepted ones make. It never looks at a file system, so nothing that already lies
 * there can change a verdict; whoever writes the tree guards against that on its own (walk.h).
 *
 *   names         normalised first: "./nix//a/../b" is "nix/b". One that is absolute or ends up above the archive's root is
 *                 unsafe; one that is neither below `nix` nor `manifest.json` does not belong in a bundle.
 *   parents       every directory above a member is a directory of this archive, never a link. One that did not come as a
 *                 member is made.
 *   twice         only a directory may come twice; nothing takes the place of anything else.
 *   symbolic links  are kept if their target lies below /nix, whether written from the root or from the link. Others
 *                 are omitted; what comes at or below the name of one is refused.
 *   hard links    lead to a regular file that came before, by a way that is all directories.
 *   modes         keep their nine bits; a directory's owner may always enter it, a file's owner read it.
 *
 * A link such as `a/../../b`, where `a` may itself be a link, can only be judged when all members are known: see
 * agx_members_finish().
 */
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"

typedef enum agx_member_type {
        AGX_MEMBER_FILE,
        AGX_MEMBER_DIRECTORY,
        AGX_MEMBER_SYMLINK,
        AGX_MEMBER_HARDLINK,
        AGX_MEMBER_OTHER, /* fifo, device, socket, sparse file */
} agx_member_type;

/* One member as the archive has it; views are the caller's. */
typedef struct agx_member {
        agx_member_type type;
        agx_view name;
        agx_view link; /* of a link: its target */
        unsigned mode;
        uint64_t size;
} agx_member;

typedef struct agx_members_limits {
        uint64_t bytes; /* of all files together */
        uint64_t count; /* members, and directories made for them */
        unsigned depth; /* directories inside one another */
} agx_members_limits;

typedef enum agx_verdict_kind {
        AGX_VERDICT_TAKE,     /* make it */
        AGX_VERDICT_MANIFEST, /* it is the manifest */
        AGX_VERDICT_OMIT,     /* a link that leads away: leave it out and say so */
        AGX_VERDICT_PASS,     /* nothing to do: the root itself */
} agx_verdict_kind;

/* Views live until the next call with the same agx_members. */
typedef struct agx_verdict {
        agx_verdict_kind kind;
        agx_view path; /* normalised: "nix/runtime/bin/sh" */
        agx_view link; /* a hard link's target, normalised; a symbolic link's as it came */
        unsigned mode;
} agx_verdict;

enum {
        AGX_MEMBERS_E_UNSAFE = 1,
        AGX_MEMBERS_E_FOREIGN,
        AGX_MEMBERS_E_LINK,
        AGX_MEMBERS_E_MISSING,
        AGX_MEMBERS_E_PARENT,
        AGX_MEMBERS_E_TYPE,
        AGX_MEMBERS_E_TWICE,
        AGX_MEMBERS_E_OMITTED,
        AGX_MEMBERS_E_LONG,
        AGX_MEMBERS_E_DEEP,
        AGX_MEMBERS_E_MANY,
        AGX_MEMBERS_E_BIG,
};

enum {
        AGX_MEMBERS_PATH_MAX = 4000, /* bytes of a normalised name and of a link's target */
        AGX_MEMBERS_NAME_MAX = 255,  /* bytes between two slashes */
};

typedef struct agx_members {
        agx_members_limits limits;
        agx_map map;
        agx_list all;
        agx_list crooked; /* links that wait for agx_members_finish() */
        agx_buf path, link;
        uint64_t bytes, count;
        bool has_manifest;
} agx_members;

/* `seed`: 16 random bytes, so that no archive can choose collisions. */
void agx_members_init(agx_members *m, const agx_members_limits *limits, const uint8_t seed[16]);
/* Once initialised, any number of times. */
void agx_members_deinit(agx_members *m);
AGX_DEFINE_CLEANUP(agx_members, agx_members_deinit)

/* Judges the next member. 0, a condition above, or -ENOMEM. After a condition the archive is to be given up. */
int agx_members_judge(agx_members *m, const agx_member *member, agx_verdict *verdict);
/* After the last member: gives, one a call, the links accepted so far that lead away after all. False: no more. */
bool agx_members_finish(agx_members *m, agx_verdict *verdict);
/* Whether the tree has a file, or a link, of that normalised name. */
bool agx_members_has(const agx_members *m, agx_view path);
/* A condition as words, to stand before the member's name; static. */
const char *agx_members_why(int condition);

#endif
