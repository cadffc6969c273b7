/*
 * Everything is opened relative to the directory's own descriptor. Writing blocks only as long as the page cache does;
 * a directory on a file system that hangs would hang the server, and is not where logs belong.
 */
#include "server/logfile_uv.h"
#include "base/cleanup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void on_flush(agx_flush *f);
static void on_idle(agx_deadline *d);

void agx_logfiles_init(agx_logfiles *l, agx_loop *loop, const char *path)
{
        *l = (agx_logfiles){.loop = loop, .path = path && *path ? path : NULL, .dir = -1};
        agx_flush_init(&l->flush, on_flush);
        agx_deadline_init(&l->idle, loop, on_idle);
        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++) {
                l->files[i].fd = l->files[i].replaced = -1;
                l->files[i].waiting = AGX_BUF_NULL(AGX_LOG_FILE_BUFFER);
        }
}

/* ---- trouble ---- */

static void close_file(agx_logfile *f)
{
        agx_closep(&f->fd);
        agx_closep(&f->replaced);
        agx_buf_clear(&f->waiting);
}

static void give_up(agx_logfiles *l, const char *what, int error)
{
        if (!l->failed) {
                l->trouble = what;
                l->error = error;
        }
        l->failed = true;
        l->retry_ms = agx_loop_now(l->loop) + AGX_LOG_RETRY_MS;
        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++)
                close_file(&l->files[i]);
        agx_closep(&l->dir);
        l->dir = -1;
}

/* ---- opening ---- */

static void make_directories(const char *path)
{
        char part[4096];
        size_t n = strlen(path);

        if (n >= sizeof(part))
                return;
        memcpy(part, path, n + 1);
        for (size_t i = 1; i <= n; i++) {
                if (part[i] != '/' && part[i])
                        continue;
                part[i] = '\0';
                mkdir(part, 0700);
                part[i] = path[i];
        }
}

static bool open_directory(agx_logfiles *l)
{
        struct stat info;

        if (l->dir >= 0)
                return true;
        make_directories(l->path);
        l->dir = open(l->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (l->dir < 0) {
                give_up(l, "the log directory cannot be used", errno);
                return false;
        }
        if (fstat(l->dir, &info) || info.st_uid != geteuid()) {
                give_up(l, "the log directory belongs to somebody else", EACCES);
                return false;
        }
        return true;
}

static bool open_file(agx_logfiles *l, agx_logfile *f)
{
        struct stat info;
        char name[64];

        if (f->fd >= 0)
                return true;
        if (!open_directory(l))
                return false;
        snprintf(name, sizeof(name), "sandbox-%s.log", f->id);
        f->fd = openat(l->dir, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                       0600);
        if (f->fd < 0 || fstat(f->fd, &info)) {
                give_up(l, "the log file cannot be opened", errno);
                return false;
        }
        if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || info.st_nlink != 1) {
                give_up(l, "the log file is not one of ours", EACCES);
                return false;
        }
        f->size = (uint64_t)info.st_size;
        return true;
}

/* ---- one after the other ---- */

/* Whether a file is gone but for our descriptor; one that has another name yet is somebody's, and stays as it is. */
static bool is_gone(int fd, uint64_t *size)
{
        struct stat info;

        if (fstat(fd, &info) || !S_ISREG(info.st_mode) || info.st_nlink)
                return false;
        *size = (uint64_t)info.st_size;
        return true;
}

static void rotate(agx_logfiles *l, agx_logfile *f)
{
        char name[64], old[64];

        snprintf(name, sizeof(name), "sandbox-%s.log", f->id);
        snprintf(old, sizeof(old), "sandbox-%s.log.1", f->id);
        agx_closep(&f->replaced);
        f->replaced = openat(l->dir, old, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        unlinkat(l->dir, old, 0); /* not by the renaming: ext4 would first find a place on the disk for all of `name` */
        if (f->replaced >= 0 && !is_gone(f->replaced, &f->replaced_size))
                agx_closep(&f->replaced);
        if (renameat(l->dir, name, l->dir, old))
                unlinkat(l->dir, name, 0);
        agx_closep(&f->fd);
}

static void shrink_by(agx_logfiles *l, agx_logfile *f, size_t n)
{
        f->replaced_size -= n < f->replaced_size ? n : f->replaced_size;
        if (!f->replaced_size || ftruncate(f->replaced, (off_t)f->replaced_size))
                agx_closep(&f->replaced);
        agx_deadline_set(&l->idle, agx_loop_now(l->loop) + AGX_LOG_SHRINK_MS);
}

/* Twice as fast as the newest file grows, so that nothing of it is left when that one is full. */
static void shrink(agx_logfiles *l, agx_logfile *f, size_t written)
{
        if (f->replaced >= 0)
                shrink_by(l, f, 2 * written);
}

/* Nothing was written for a while: one step of one of them. */
static void on_idle(agx_deadline *d)
{
        agx_logfiles *l = agx_container_of(d, agx_logfiles, idle);

        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++) {
                if (l->files[i].replaced < 0)
                        continue;
                shrink_by(l, &l->files[i], AGX_LOG_SHRINK_BYTES);
                return;
        }
}

/* ---- writing ---- */

static void write_out(agx_logfiles *l, agx_logfile *f)
{
        agx_view rest = agx_buf_view(&f->waiting);

        if (!rest.n)
                return;
        if (f->fd >= 0 && f->size && f->size + rest.n > AGX_LOG_FILE_BYTES)
                rotate(l, f);
        if (!open_file(l, f))
                return;
        while (rest.n) {
                ssize_t n = write(f->fd, rest.p, rest.n);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0) {
                        give_up(l, "the log file cannot be written", n < 0 ? errno : ENOSPC);
                        return;
                }
                rest = agx_view_from(rest, (size_t)n);
                f->size += (size_t)n;
        }
        shrink(l, f, f->waiting.len);
        agx_buf_clear(&f->waiting);
        l->failed = false;
}

static void on_flush(agx_flush *flush)
{
        agx_logfiles *l = agx_container_of(flush, agx_logfiles, flush);

        l->turn++;
        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++)
                write_out(l, &l->files[i]);
}

static agx_logfile *slot_for(agx_logfiles *l, const char *id)
{
        agx_logfile *oldest = &l->files[0];

        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++) {
                agx_logfile *f = &l->files[i];

                if (!strcmp(f->id, id))
                        return f;
                if (f->used < oldest->used)
                        oldest = f;
        }
        write_out(l, oldest);
        close_file(oldest);
        snprintf(oldest->id, sizeof(oldest->id), "%s", id);
        oldest->size = 0;
        return oldest;
}

agx_buf *agx_logfiles_out(agx_logfiles *l, const char *worker_id)
{
        agx_logfile *f;

        if (!l->path || (l->failed && agx_loop_now(l->loop) < l->retry_ms))
                return NULL;
        f = slot_for(l, worker_id);
        f->used = l->turn + 1;
        if (f->waiting.len > AGX_LOG_FILE_BUFFER / 2)
                write_out(l, f);
        agx_loop_flush_later(l->loop, &l->flush);
        return &f->waiting;
}

void agx_logfiles_close(agx_logfiles *l)
{
        if (!l->loop)
                return;
        on_flush(&l->flush);
        agx_flush_cancel(&l->flush);
        agx_deadline_close(&l->idle, NULL);
        for (size_t i = 0; i < AGX_LOG_FILES_OPEN; i++) {
                close_file(&l->files[i]);
                agx_buf_deinit(&l->files[i].waiting);
        }
        agx_closep(&l->dir);
        l->dir = -1;
        l->loop = NULL;
}
