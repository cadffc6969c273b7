/*
 * Tars that were unpacked before. A file that has the same inode, size, and times of change as when its digest was computed
 * has the same bytes, since nobody but the kernel sets the time of an inode's change; so a bundle that is deployed before
 * every run is not unpacked every time. A tar that was changed within the last moments before it was read is not
 * remembered: its clock might not have ticked between two changes.
 */
#include "bundle/cache_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The format changes with what a digest means. */
enum { SETTLED_S = 2, RECORD_MAX = 256, RECORD_FORMAT = 2 };

static void record_name(const struct stat *st, char name[64])
{
        snprintf(name, 64, ".seen-%llx-%llx", (unsigned long long)st->st_dev, (unsigned long long)st->st_ino);
}

static int describe(const struct stat *st, const char *digest, char text[RECORD_MAX])
{
        return snprintf(text, RECORD_MAX, "%d %lld %lld.%09ld %lld.%09ld %s\n", RECORD_FORMAT, (long long)st->st_size,
                        (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec, (long long)st->st_ctim.tv_sec,
                        st->st_ctim.tv_nsec, digest);
}

static bool read_record(const agx_cache *c, const char *name, char text[RECORD_MAX])
{
        _cleanup_(agx_closep) int fd = openat(c->dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, RECORD_MAX - 1);

        text[n > 0 ? n : 0] = 0;
        return n > 0;
}

/* The digest at the end of a record. */
static bool digest_of(const char *record, char digest[AGX_DIGEST_SIZE])
{
        const char *at = strrchr(record, ' ');

        if (!at || strlen(at + 1) != AGX_DIGEST_SIZE)
                return false;
        memcpy(digest, at + 1, AGX_DIGEST_SIZE - 1);
        digest[AGX_DIGEST_SIZE - 1] = 0;
        return agx_digest_is(agx_view_str(digest));
}

bool agx_cache_seen(const agx_cache *c, const struct stat *tar, char digest[AGX_DIGEST_SIZE])
{
        char name[64], record[RECORD_MAX], expected[RECORD_MAX];

        record_name(tar, name);
        if (!read_record(c, name, record) || !digest_of(record, digest))
                return false;
        describe(tar, digest, expected);
        return !strcmp(record, expected);
}

void agx_cache_see(const agx_cache *c, const struct stat *before, const struct stat *after, time_t began,
                   const char *digest)
{
        _cleanup_(agx_closep) int fd = -1;
        char name[64], temp[32], record[RECORD_MAX], same[RECORD_MAX];
        int n = describe(before, digest, record);

        describe(after, digest, same);
        if (strcmp(record, same) != 0 || before->st_mtim.tv_sec + SETTLED_S > began ||
            before->st_ctim.tv_sec + SETTLED_S > began || agx_cache_temp_name(temp))
                return;
        fd = openat(c->dir, temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        record_name(before, name);
        if (fd >= 0 && (write(fd, record, (size_t)n) != n || renameat(c->dir, temp, c->dir, name) < 0))
                (void)unlinkat(c->dir, temp, 0);
}

void agx_cache_forget(const agx_cache *c, const char *name)
{
        char record[RECORD_MAX], digest[AGX_DIGEST_SIZE], entry[AGX_DIGEST_SIZE];

        if (strncmp(name, ".seen-", 6) != 0)
                return;
        if (read_record(c, name, record) && digest_of(record, digest)) {
                snprintf(entry, sizeof(entry), "sha256-%s", digest + 7);
                if (!faccessat(c->dir, entry, F_OK, AT_SYMLINK_NOFOLLOW))
                        return;
        }
        (void)unlinkat(c->dir, name, 0);
}
