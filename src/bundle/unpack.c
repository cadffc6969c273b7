/*
 * The loop over members. A member is judged before anything of it is written; the manifest is kept in memory, since it is
 * read before it is believed, and written last of all.
 */
#include "bundle/unpack.h"

#include "base/err.h"
#include "bundle/walk.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

#define BOOTSTRAP AGX_VIEW("nix/runtime/bootstrap.sh")

typedef struct job {
        agx_unpacked *to;
        agx_archive archive;
        agx_members members;
        agx_walk walk;
        bool writes;
        bool only_manifest;
        const agx_unpack_hooks *hooks;
        agx_why *why;
} job;

void agx_unpacked_deinit(agx_unpacked *u)
{
        agx_buf_deinit(&u->manifest_bytes);
        agx_manifest_deinit(&u->manifest);
}

static int tell_member(job *j, int condition, agx_view name)
{
        return agx_why_set(j->why, "bundle", "%s: %.*s", agx_members_why(condition), (int)agx_view_first(name, 1024).n,
                           name.p ? name.p : "");
}

static int told_write(job *j, int error, agx_view path)
{
        if (!error || error == -ENOMEM)
                return error;
        return agx_why_errno(j->why, error, "cannot write %.*s", (int)agx_view_first(path, 1024).n, path.p);
}

static void warn_omitted(job *j, const agx_verdict *v)
{
        char text[1024];

        j->to->omitted++;
        if (!j->hooks->warn)
                return;
        snprintf(text, sizeof(text), "left out %.*s: the link leads out of /nix, to %.*s",
                 (int)agx_view_first(v->path, 400).n, v->path.p, (int)agx_view_first(v->link, 400).n, v->link.p);
        j->hooks->warn(j->hooks->user, text);
}

/* Told between pieces, so that a large file does not hold up an end. */
static int pause_between(job *j)
{
        if (j->hooks->progress)
                j->hooks->progress(j->hooks->user, agx_archive_packed(&j->archive));
        if (j->hooks->stop && j->hooks->stop(j->hooks->user))
                return agx_why_set(j->why, "signal", "interrupted");
        return 0;
}

/* ---- what becomes of a member ---- */

static int write_all(int fd, agx_view bytes)
{
        while (bytes.n) {
                ssize_t n = write(fd, bytes.p, bytes.n);

                if (n < 0 && errno != EINTR)
                        return -errno;
                bytes = agx_view_from(bytes, n > 0 ? (size_t)n : 0);
        }
        return 0;
}

static int copy_bytes(job *j, int fd, agx_view path, uint64_t size)
{
        uint64_t came = 0;
        agx_view bytes;
        int r;

        while ((r = agx_archive_read(&j->archive, &bytes, j->why)) == 0) {
                came += bytes.n;
                r = fd >= 0 ? told_write(j, write_all(fd, bytes), path) : 0;
                if (!r)
                        r = pause_between(j);
                if (r)
                        return r;
        }
        if (r != AGX_ARCHIVE_E_END)
                return r;
        if (came != size)
                return agx_why_set(j->why, "bundle", "%.*s has another size than the archive says", (int)path.n,
                                   path.p);
        j->to->files++;
        j->to->bytes += came;
        return 0;
}

static int take_file(job *j, const agx_member *member, const agx_verdict *v)
{
        _cleanup_(agx_closep) int fd = -1;
        int r = j->writes ? told_write(j, agx_walk_create(&j->walk, v->path, v->mode, &fd), v->path) : 0;

        return r ? r : copy_bytes(j, fd, v->path, member->size);
}

static int take(job *j, const agx_member *member, const agx_verdict *v)
{
        int r = 0;

        if (member->type == AGX_MEMBER_FILE)
                return take_file(j, member, v);
        if (!j->writes)
                return 0;
        if (member->type == AGX_MEMBER_DIRECTORY)
                r = agx_walk_mkdir(&j->walk, v->path, v->mode);
        else if (member->type == AGX_MEMBER_SYMLINK)
                r = agx_walk_symlink(&j->walk, v->path, v->link);
        else
                r = agx_walk_link(&j->walk, v->path, v->link);
        return told_write(j, r, v->path);
}

static int take_manifest(job *j)
{
        agx_view bytes;
        int r;

        while ((r = agx_archive_read(&j->archive, &bytes, j->why)) == 0) {
                r = agx_buf_append_view(&j->to->manifest_bytes, bytes);
                if (r == AGX_BUF_E_FULL)
                        return agx_why_set(j->why, "bundle", "not a bundle: manifest.json is too large");
                if (r)
                        return r;
        }
        if (r != AGX_ARCHIVE_E_END)
                return r;
        r = agx_manifest_parse(&j->to->manifest, agx_buf_view(&j->to->manifest_bytes));
        return r > 0 ? agx_why_set(j->why, "bundle", "not a bundle: %s", agx_manifest_why(r)) : r;
}

static int take_next(job *j)
{
        agx_member member;
        agx_verdict v;
        int r = agx_archive_next(&j->archive, &member, j->why);

        if (!r)
                r = pause_between(j);
        if (r)
                return r;
        r = agx_members_judge(&j->members, &member, &v);
        if (r)
                return r > 0 ? tell_member(j, r, member.name) : r;
        switch (v.kind) {
        case AGX_VERDICT_MANIFEST:
                return take_manifest(j);
        case AGX_VERDICT_OMIT:
                warn_omitted(j, &v);
                return 0;
        case AGX_VERDICT_TAKE:
                return take(j, &member, &v);
        default:
                return 0;
        }
}

/* ---- the end ---- */

static int omit_crooked(job *j)
{
        agx_verdict v;

        while (agx_members_finish(&j->members, &v)) {
                int r = j->writes ? told_write(j, agx_walk_unlink(&j->walk, v.path), v.path) : 0;

                if (r)
                        return r;
                warn_omitted(j, &v);
        }
        return 0;
}

static int finish(job *j)
{
        _cleanup_(agx_closep) int fd = -1;
        int r = omit_crooked(j);

        if (r)
                return r;
        if (!j->members.has_manifest)
                return agx_why_set(j->why, "bundle", "not a bundle: it has no manifest.json");
        if (!agx_members_has(&j->members, BOOTSTRAP))
                return agx_why_set(j->why, "bundle", "not a bundle: it has no nix/runtime/bootstrap.sh");
        if (!j->writes)
                return 0;
        r = agx_walk_create(&j->walk, AGX_VIEW("manifest.json"), 0644, &fd);
        if (!r)
                r = write_all(fd, agx_buf_view(&j->to->manifest_bytes));
        return told_write(j, r, AGX_VIEW("manifest.json"));
}

static int run(job *j, int fd, const agx_unpack_limits *limits)
{
        int r = agx_archive_init(&j->archive, fd, &limits->archive, j->why);

        while (!r && !(j->only_manifest && j->members.has_manifest))
                r = take_next(j);
        if (j->only_manifest && r == AGX_ARCHIVE_E_END)
                return agx_why_set(j->why, "bundle", "not a bundle: it has no manifest.json");
        return r == AGX_ARCHIVE_E_END ? finish(j) : r;
}

static int unpack(job *j, int fd, int root, const agx_unpack_limits *limits)
{
        uint8_t seed[16];
        int r;

        *j->to = (agx_unpacked){.manifest_bytes = AGX_BUF_NULL(AGX_MANIFEST_MAX)};
        j->writes = root >= 0;
        if (getrandom(seed, sizeof(seed), 0) != sizeof(seed))
                return agx_trace(-errno);
        agx_members_init(&j->members, &limits->members, seed);
        agx_walk_init(&j->walk, root, false);
        r = run(j, fd, limits);
        agx_walk_deinit(&j->walk);
        agx_members_deinit(&j->members);
        agx_archive_deinit(&j->archive);
        return r;
}

int agx_unpack(agx_unpacked *u, int fd, int root, const agx_unpack_limits *limits, const agx_unpack_hooks *hooks,
               agx_why *why)
{
        return unpack(&(job){.to = u, .hooks = hooks, .why = why}, fd, root, limits);
}

int agx_unpack_manifest(agx_unpacked *u, int fd, const agx_unpack_limits *limits, agx_why *why)
{
        static const agx_unpack_hooks none;

        return unpack(&(job){.to = u, .hooks = &none, .why = why, .only_manifest = true}, fd, -1, limits);
}
