/*
 * libarchive with one format, one filter and our own reading. Sparse members are of no use in a bundle and would have a
 * few bytes stand for many, so they count as a kind of file we do not take.
 */
#include "bundle/archive.h"

#include "base/err.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>

enum { CHUNK = 256 << 10 };

static la_ssize_t on_read(struct archive *reader, void *user, const void **bytes)
{
        agx_archive *a = user;
        ssize_t n;

        do
                n = read(a->fd, a->chunk, CHUNK);
        while (n < 0 && errno == EINTR);
        if (n < 0) {
                archive_set_error(reader, errno, "%s", strerror(errno));
                return -1;
        }
        a->packed += (uint64_t)n;
        *bytes = a->chunk;
        return n;
}

/* What libarchive says, for people. */
static int tell(const agx_archive *a, agx_why *why)
{
        const char *text = archive_error_string(a->reader);

        if (archive_errno(a->reader) == ENOMEM)
                return agx_trace(-ENOMEM);
        return agx_why_set(why, "bundle", "not a readable bundle tar: %s", text ? text : "unknown error");
}

int agx_archive_init(agx_archive *a, int fd, const agx_archive_limits *limits, agx_why *why)
{
        *a = (agx_archive){.fd = fd, .limits = *limits};
        a->chunk = malloc(CHUNK);
        a->reader = archive_read_new();
        if (!a->chunk || !a->reader)
                return agx_trace(-ENOMEM);
        if (archive_read_support_format_tar(a->reader) != ARCHIVE_OK ||
            archive_read_support_filter_zstd(a->reader) != ARCHIVE_OK)
                return tell(a, why);
        if (archive_read_open(a->reader, a, NULL, on_read, NULL) != ARCHIVE_OK)
                return tell(a, why);
        return 0;
}

void agx_archive_deinit(agx_archive *a)
{
        if (a->reader)
                archive_read_free(a->reader);
        free(a->chunk);
        *a = (agx_archive){.fd = -1};
}

static int check_bounds(const agx_archive *a, agx_why *why)
{
        uint64_t out = (uint64_t)archive_filter_bytes(a->reader, 0);

        if (out > a->limits.bytes)
                return agx_why_set(why, "bundle", "the archive unpacks to more than %llu bytes",
                                   (unsigned long long)a->limits.bytes);
        if (out > a->limits.ratio_free && out / a->limits.ratio > a->packed)
                return agx_why_set(why, "bundle", "the archive unpacks to more than %u times its size",
                                   a->limits.ratio);
        return 0;
}

static agx_member_type type_of(struct archive_entry *entry)
{
        if (archive_entry_hardlink(entry) || archive_entry_hardlink_utf8(entry))
                return AGX_MEMBER_HARDLINK;
        if (archive_entry_sparse_count(entry) > 0)
                return AGX_MEMBER_OTHER;
        switch (archive_entry_filetype(entry)) {
        case AE_IFREG:
                return AGX_MEMBER_FILE;
        case AE_IFDIR:
                return AGX_MEMBER_DIRECTORY;
        case AE_IFLNK:
                return AGX_MEMBER_SYMLINK;
        default:
                return AGX_MEMBER_OTHER;
        }
}

/* Names as bytes. A name that does not fit the process's character set is still there in UTF-8. */
static agx_view name_of(const char *bytes, const char *utf8)
{
        return agx_view_str(bytes ? bytes : utf8 ? utf8 : "");
}

int agx_archive_next(agx_archive *a, agx_member *member, agx_why *why)
{
        struct archive_entry *entry;
        int r = archive_read_next_header(a->reader, &entry);
        int64_t size;

        if (r == ARCHIVE_EOF)
                return AGX_ARCHIVE_E_END;
        if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
                return tell(a, why);
        size = archive_entry_size(entry);
        *member = (agx_member){
                .type = type_of(entry),
                .name = name_of(archive_entry_pathname(entry), archive_entry_pathname_utf8(entry)),
                .mode = archive_entry_perm(entry),
                .size = size > 0 ? (uint64_t)size : 0,
        };
        if (member->type == AGX_MEMBER_HARDLINK)
                member->link = name_of(archive_entry_hardlink(entry), archive_entry_hardlink_utf8(entry));
        else if (member->type == AGX_MEMBER_SYMLINK)
                member->link = name_of(archive_entry_symlink(entry), archive_entry_symlink_utf8(entry));
        return check_bounds(a, why);
}

int agx_archive_read(agx_archive *a, agx_view *bytes, agx_why *why)
{
        const void *data;
        size_t n;
        la_int64_t offset;
        int r = archive_read_data_block(a->reader, &data, &n, &offset);

        if (r == ARCHIVE_EOF)
                return AGX_ARCHIVE_E_END;
        if (r != ARCHIVE_OK)
                return tell(a, why);
        *bytes = agx_view_of(data, n);
        return check_bounds(a, why);
}

uint64_t agx_archive_packed(const agx_archive *a)
{
        return a->packed;
}
