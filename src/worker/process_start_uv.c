/*
 * The descriptors first, the keeper over one end of each, then our streams over the other. Until the streams lie over them
 * the descriptors are this file's, and whatever fails closes what is left of them; the process itself is in its list from
 * the beginning, so that a failure is told and undone as any later one is.
 *
 * That the program runs is not known here: the keeper says so, or why not.
 */
#include "base/cleanup.h"
#include "proto/limits.h"
#include "worker/process_uv.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OOM_SCORE_ADD = 500, KEEPER_ARGS = 7 /* before the program's own */ };

/* ---- descriptors ---- */

/* Of each pair the keeper gets one end. */
typedef struct fds {
        int control[2], in[2], out[2], err[2];
} fds;

#define FDS_NULL ((fds){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}})

static void close_fds(fds *f)
{
        int *all = f->control;

        for (size_t i = 0; i < sizeof(*f) / sizeof(int); i++)
                agx_closep(&all[i]);
}

static int open_fds(fds *f, bool with_in)
{
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->control) || pipe2(f->out, O_CLOEXEC) ||
            pipe2(f->err, O_CLOEXEC) || (with_in && pipe2(f->in, O_CLOEXEC)))
                return -errno;
        return 0;
}

static int lay(agx_stream *s, int *fd)
{
        int mine = *fd;

        *fd = -1;
        return agx_stream_open(s, mine);
}

static int open_streams(agx_process *p, fds *f)
{
        int r = lay(&p->control, &f->control[0]);

        if (!r)
                r = lay(&p->out[0].stream, &f->out[0]);
        if (!r)
                r = lay(&p->out[1].stream, &f->err[0]);
        if (!r && p->in.inited)
                r = lay(&p->in.stream, &f->in[1]);
        return r ? r : agx_stream_read(&p->control);
}

/* ---- texts ---- */

static int copy_text(agx_buf *b, agx_view text, size_t max)
{
        agx_buf_init(b, max);
        if (memchr(text.p, 0, text.n))
                return -EINVAL;
        if (agx_buf_append_view(b, text) || agx_buf_append(b, "", 1))
                return text.n >= max ? -ENAMETOOLONG : -ENOMEM;
        return 0;
}

static int copy_texts(agx_process *p, const agx_frame *frame)
{
        int r = copy_text(&p->path, frame->path, PATH_MAX);

        if (!r)
                r = copy_text(&p->directory, frame->cwd, PATH_MAX);
        if (!r && frame->call_id.p)
                r = copy_text(&p->call_id, frame->call_id, AGX_MAX_CALL_ID + 1);
        return r;
}

/* "NAME" NUL "NAME" NUL as a NULL-terminated array, after `n` free places; its strings lie in `text`. NULL: no memory. */
static char **strings_of(agx_view text, size_t n)
{
        size_t count = 0;
        char **all;

        for (size_t i = 0; i < text.n; i++)
                count += !text.p[i];
        all = calloc(n + count + 1, sizeof(*all));
        for (size_t i = n, at = 0; all && i < n + count; i++) {
                all[i] = (char *)(uintptr_t)(text.p + at);
                at += strlen(all[i]) + 1;
        }
        return all;
}

/* ---- the keeper ---- */

static int spawn(agx_process *p, const agx_frame *frame, const fds *f)
{
        _cleanup_(agx_freep) char **argv = strings_of(frame->argv, KEEPER_ARGS);
        _cleanup_(agx_freep) char **envp = strings_of(frame->env, 0);
        char group[sizeof(p->group) + 8], oom[16], kill_ms[24];
        const char *own[KEEPER_ARGS] = {AGX_KEEPER_NAME,
                                        group,
                                        oom,
                                        kill_ms,
                                        "--",
                                        agx_process_text(&p->path),
                                        agx_process_text(&p->directory)};

        if (!argv || !envp)
                return -ENOMEM;
        snprintf(group, sizeof(group), "group=%s", p->group);
        snprintf(oom, sizeof(oom), "oom=%d", OOM_SCORE_ADD);
        snprintf(kill_ms, sizeof(kill_ms), "kill_ms=%d", AGX_PROC_KILL_MS);
        memcpy(argv, own, sizeof(own));
        return agx_child_spawn(&p->keeper, p->procs->loop,
                               &(agx_child_spec){.path = "/proc/self/exe",
                                                 .argv = argv,
                                                 .envp = envp,
                                                 .fds = {f->in[0], f->out[1], f->err[1], f->control[1], f->out[0],
                                                         f->err[0]},
                                                 .core_limit = p->procs->core_limit,
                                                 .nofile_limit = p->procs->nofile_limit},
                               agx_process_keeper_exited);
}

/* ---- verb ---- */

void agx_process_start(agx_procs *procs, agx_worker *w, const agx_frame *frame)
{
        agx_process *p = agx_process_new(procs, w->number, frame);
        _cleanup_(close_fds) fds f = FDS_NULL;
        int r;

        if (!p) {
                agx_process_refuse(w, frame->proc, ENOMEM, "cannot start a process: out of memory");
                return;
        }
        r = open_fds(&f, frame->has_stdin != 0);
        if (!r)
                r = copy_texts(p, frame);
        if (!r)
                r = spawn(p, frame, &f);
        if (!r) {
                p->open++;
                r = open_streams(p, &f);
        }
        if (r)
                agx_process_fail(p, -r, "cannot start %.*s: %s", (int)agx_view_first(frame->path, 800).n, frame->path.p,
                                 agx_process_why(-r));
        else
                agx_process_carry_out(p, AGX_PROC_READ);
}
