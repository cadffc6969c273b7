/*
 * Members of an archive against the rules. The input is lines "<type><name>\t<link>\n". Whatever comes, an accepted path is
 * normalised and below nix, its parents are directories that were accepted, and it was not there before.
 */
#include "bundle/members.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define insist(condition)                                                                                              \
        do {                                                                                                           \
                if (!(condition))                                                                                      \
                        abort();                                                                                       \
        } while (0)

static agx_member_type type_of(char c)
{
        switch (c) {
        case 'd':
                return AGX_MEMBER_DIRECTORY;
        case 'l':
                return AGX_MEMBER_SYMLINK;
        case 'h':
                return AGX_MEMBER_HARDLINK;
        case 'o':
                return AGX_MEMBER_OTHER;
        default:
                return AGX_MEMBER_FILE;
        }
}

static void check_path(agx_view path)
{
        agx_view rest = path;
        agx_view name;

        insist(agx_view_eq(path, AGX_VIEW("nix")) || agx_view_starts(path, AGX_VIEW("nix/")));
        while (agx_view_split(&rest, '/', &name))
                insist(name.n && !agx_view_eq(name, AGX_VIEW(".")) && !agx_view_eq(name, AGX_VIEW("..")) &&
                       !memchr(name.p, 0, name.n));
}

static void check_verdict(const agx_member *member, const agx_verdict *v)
{
        if (v->kind == AGX_VERDICT_TAKE || v->kind == AGX_VERDICT_OMIT)
                check_path(v->path);
        if (v->kind == AGX_VERDICT_TAKE && member->type == AGX_MEMBER_HARDLINK)
                check_path(v->link);
        insist(v->kind != AGX_VERDICT_TAKE || !(v->mode & ~0777u));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const agx_members_limits limits = {.bytes = 1 << 20, .count = 1 << 10, .depth = 20};
        static const uint8_t seed[16];
        agx_view rest = agx_view_of(data, size);
        agx_view line;
        agx_members m;
        agx_verdict v;
        int r = 0;

        agx_members_init(&m, &limits, seed);
        while (!r && agx_view_split(&rest, '\n', &line)) {
                agx_member member = {.type = type_of(line.n ? line.p[0] : 0), .mode = 07777, .size = line.n};

                line = line.n ? agx_view_from(line, 1) : line;
                (void)agx_view_split(&line, '\t', &member.name);
                member.link = line.p ? line : AGX_VIEW("");
                r = agx_members_judge(&m, &member, &v);
                insist(r >= 0);
                if (!r)
                        check_verdict(&member, &v);
                else
                        insist(agx_members_why(r));
        }
        while (agx_members_finish(&m, &v))
                check_path(v.path);
        agx_members_deinit(&m);
        return 0;
}
