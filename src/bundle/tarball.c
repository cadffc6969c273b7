/*
 * libarchive writes the tar; what it hands out goes to the file, or through zstd with as many threads as there are
 * processors: its output does not depend on their number. Everything is written to one name beside the target, the same
 * for every build of it: what a killed build left there is written over by the next. A lock keeps two builds apart.
 */
#include "bundle/tarball.h"
#include "base/err.h"
#include "bundle/run.h"
#include "bundle/tree.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <zstd.h>

enum { LEVEL = 3, MTIME = 315532800 /* 1980-01-01: zip files in the tree can hold it too */ };

typedef struct packing {
        struct archive *archive;
        ZSTD_CCtx *zstd; /* NULL: plain */
        int fd;
        int error; /* errno of a failed write */
        uint64_t size;
        const char *path;
} packing;

/* ---- below the archive ---- */

static int write_all(packing *p, const void *bytes, size_t n)
{
        const char *at = bytes;

        p->size += n;
        while (n) {
                ssize_t done = write(p->fd, at, n);

                if (done < 0 && errno == EINTR)
                        continue;
                if (done < 0) {
                        p->error = errno;
                        return -1;
                }
                at += done;
                n -= (size_t)done;
        }
        return 0;
}

static int compress(packing *p, const void *bytes, size_t n, ZSTD_EndDirective directive)
{
        char out[64 << 10];
        ZSTD_inBuffer in = {bytes, n, 0};
        size_t left;

        do {
                ZSTD_outBuffer to = {out, sizeof(out), 0};

                left = ZSTD_compressStream2(p->zstd, &to, &in, directive);
                if (ZSTD_isError(left)) {
                        p->error = ENOMEM;
                        return -1;
                }
                if (write_all(p, out, to.pos))
                        return -1;
        } while (directive == ZSTD_e_end ? left > 0 : in.pos < in.size);
        return 0;
}

static la_ssize_t on_write(struct archive *archive, void *user, const void *bytes, size_t n)
{
        packing *p = user;

        if (!(p->zstd ? compress(p, bytes, n, ZSTD_e_continue) : write_all(p, bytes, n)))
                return (la_ssize_t)n;
        archive_set_error(archive, p->error, "%s", strerror(p->error));
        return -1;
}

static int open_archive(packing *p, bool zstd, agx_why *why)
{
        long threads = sysconf(_SC_NPROCESSORS_ONLN);

        p->archive = archive_write_new();
        if (!p->archive)
                return agx_trace(-ENOMEM);
        if (zstd) {
                p->zstd = ZSTD_createCCtx();
                if (!p->zstd)
                        return agx_trace(-ENOMEM);
                ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_compressionLevel, LEVEL);
                ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, 1);
                ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_nbWorkers, threads > 1 ? (int)threads : 1);
        }
        if (archive_write_set_format_pax_restricted(p->archive) ||
            archive_write_set_bytes_in_last_block(p->archive, 1) ||
            archive_write_open(p->archive, p, NULL, on_write, NULL))
                return agx_why_set(why, "tar", "%s", archive_error_string(p->archive));
        return 0;
}

static void packing_deinit(packing *p)
{
        if (p->archive)
                archive_write_free(p->archive);
        if (p->zstd)
                ZSTD_freeCCtx(p->zstd);
        agx_closep(&p->fd);
}

AGX_DEFINE_CLEANUP(packing, packing_deinit)

/* ---- members ---- */

static int failed(packing *p, const char *name, agx_why *why)
{
        return agx_why_set(why, "tar", "%s could not be packed: %s", name, archive_error_string(p->archive));
}

static int put_header(packing *p, const char *name, mode_t type, mode_t mode, int64_t size, const char *target,
                      agx_why *why)
{
        struct archive_entry *e = archive_entry_new();
        int r;

        if (!e)
                return agx_trace(-ENOMEM);
        archive_entry_copy_pathname(e, name);
        archive_entry_set_filetype(e, type);
        archive_entry_set_perm(e, mode);
        archive_entry_set_size(e, size);
        archive_entry_set_mtime(e, MTIME, 0);
        archive_entry_set_uid(e, 0);
        archive_entry_set_gid(e, 0);
        if (target)
                archive_entry_copy_symlink(e, target);
        r = archive_write_header(p->archive, e);
        archive_entry_free(e);
        return r == ARCHIVE_OK || r == ARCHIVE_WARN ? 0 : failed(p, name, why);
}

static int put_file(packing *p, const agx_tree_entry *entry, agx_why *why)
{
        _cleanup_(agx_closep) int fd = open(entry->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        char chunk[256 << 10];
        ssize_t n;
        int r;

        if (fd < 0)
                return agx_why_errno(why, errno, "%s could not be read", entry->path);
        r = put_header(p, entry->relative, AE_IFREG, entry->st->st_mode & 0777, entry->st->st_size, NULL, why);
        while (!r && (n = read(fd, chunk, sizeof(chunk))) != 0) {
                if (n < 0)
                        return agx_why_errno(why, errno, "%s could not be read", entry->path);
                if (archive_write_data(p->archive, chunk, (size_t)n) != n)
                        r = failed(p, entry->relative, why);
        }
        return r;
}

static int put_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        char target[PATH_MAX];
        ssize_t n;

        if (agx_run_signal())
                return agx_why_set(why, "signal", "interrupted");
        if (S_ISDIR(entry->st->st_mode))
                return put_header(user, entry->relative, AE_IFDIR, entry->st->st_mode & 0777, 0, NULL, why);
        if (S_ISREG(entry->st->st_mode))
                return put_file(user, entry, why);
        n = readlink(entry->path, target, sizeof(target) - 1);
        if (n < 0)
                return agx_why_errno(why, errno, "%s could not be read", entry->path);
        target[n] = 0;
        return put_header(user, entry->relative, AE_IFLNK, 0777, 0, target, why);
}

static int put_manifest(packing *p, agx_view manifest, agx_why *why)
{
        int r = put_header(p, "manifest.json", AE_IFREG, 0644, (int64_t)manifest.n, NULL, why);

        if (!r && archive_write_data(p->archive, manifest.p, manifest.n) != (la_ssize_t)manifest.n)
                r = failed(p, "manifest.json", why);
        return r;
}

static int pack(packing *p, agx_view manifest, const char *tree, bool zstd, agx_why *why)
{
        int r = open_archive(p, zstd, why);

        if (!r)
                r = put_manifest(p, manifest, why);
        if (!r)
                r = agx_tree_walk(tree, put_entry, p, why);
        if (!r && archive_write_close(p->archive))
                r = failed(p, p->path, why);
        if (!r && p->zstd && compress(p, "", 0, ZSTD_e_end))
                r = agx_why_errno(why, p->error, "%s could not be written", p->path);
        return r;
}

/* ---- the file beside the target ---- */

/* Whether `fd` is still the file at `path`: who held its lock before may have given it its final name. */
static bool stands_at(int fd, const char *path)
{
        struct stat mine, there;

        return !fstat(fd, &mine) && !lstat(path, &there) && mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* Locks it, once whoever has the lock lets go; errno, EINTR for a signal that ends the build. */
static int lock_part(int fd)
{
        while (flock(fd, LOCK_EX))
                if (errno != EINTR || agx_run_signal())
                        return errno;
        return 0;
}

/* Opens the file, locked and empty; 0 or errno. Waits for another build that writes it. */
static int open_part(const char *part, int *fd)
{
        int error;

        do {
                agx_closep(fd);
                *fd = open(part, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
                error = *fd < 0 ? errno : lock_part(*fd);
        } while (!error && !stands_at(*fd, part));
        return error ? error : ftruncate(*fd, 0) ? errno : 0;
}

/* ---- the contract ---- */

int agx_tarball_write(const char *path, agx_view manifest, const char *tree, bool zstd, uint64_t *size, agx_why *why)
{
        _cleanup_(packing_deinitp) packing p = {.fd = -1, .path = path};
        _cleanup_(agx_freep) char *part = NULL;
        mode_t mask = umask(022);
        int r;

        umask(mask);
        if (asprintf(&part, "%s.part", path) < 0)
                return agx_trace(-ENOMEM);
        r = agx_tree_make_parents(path, why);
        if (r)
                return r;
        r = open_part(part, &p.fd);
        if (r)
                return agx_why_errno(why, r, "%s could not be written", part);
        r = pack(&p, manifest, tree, zstd, why);
        if (!r && (fchmod(p.fd, 0666 & ~mask) || rename(part, path)))
                r = agx_why_errno(why, errno, "%s could not be written", path);
        if (r)
                unlink(part);
        *size = p.size;
        return r;
}
