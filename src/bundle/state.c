/* One small file for each output path: sum, digest, and the stat of the tar, as text. */
#include "bundle/state.h"
#include "base/buf.h"
#include "base/err.h"
#include "bundle/stage.h"
#include "bundle/tree.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { STATE_FORMAT = 1, TEXT_MAX = 512 << 20, STATE_MAX = 1024 };

extern char **environ;

/* ---- summing up ---- */

static int add_stat(agx_buf *text, const char *shown, const char *path, bool must)
{
        struct stat st;

        if (stat(path, &st) && lstat(path, &st))
                return must ? -errno : agx_buf_printf(text, "%s -\n", shown);
        return agx_buf_printf(text, "%s %o %lld %lld.%09ld %lld.%09ld %llu\n", shown, (unsigned)st.st_mode,
                              (long long)st.st_size, (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
                              (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec, (unsigned long long)st.st_ino);
}

static int add_settings(agx_buf *text)
{
        const char *home = getenv("HOME"), *xdg = getenv("XDG_CONFIG_HOME");
        char path[PATH_MAX];
        int r = 0;

        for (size_t i = 0; !r && environ[i]; i++)
                if (!strncmp(environ[i], "UV_", 3))
                        r = agx_buf_printf(text, "%s\n", environ[i]);
        snprintf(path, sizeof(path), "%s%s/uv/uv.toml", xdg ? xdg : home ? home : "", xdg ? "" : "/.config");
        return r ? r : add_stat(text, "uv.toml", path, false);
}

static int add_tree(const agx_state_inputs *in, agx_buf *text, agx_why *why)
{
        int r = 0;

        for (size_t i = 0; !r && i < in->tree->count; i++) {
                _cleanup_(agx_freep) char *path = agx_tree_join(in->root, in->tree->items[i]);
                struct stat st;

                if (!path)
                        return agx_trace(-ENOMEM);
                if (lstat(path, &st))
                        return agx_why_errno(why, errno, "%s could not be looked at", path);
                r = agx_buf_printf(text, "%s %o %lld %lld.%09ld %lld.%09ld %llu\n", in->tree->items[i],
                                   (unsigned)st.st_mode, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                                   st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec,
                                   (unsigned long long)st.st_ino);
        }
        return r;
}

int agx_state_sum(const agx_state_inputs *in, char sum[AGX_DIGEST_SIZE], agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(TEXT_MAX);
        int r = agx_buf_printf(&text, "%d %s\n", STATE_FORMAT, in->root);

        for (size_t i = 0; !r && in->words[i]; i++)
                r = agx_buf_printf(&text, "%s\n", in->words[i]);
        for (size_t i = 0; !r && in->files[i]; i++)
                r = add_stat(&text, in->files[i], in->files[i], false);
        for (size_t k = 0; !r && k < 4; k++)
                for (size_t i = 0; !r && i < in->lists[k]->count; i++)
                        r = agx_buf_printf(&text, "%zu %s\n", k, in->lists[k]->items[i]);
        if (!r)
                r = add_settings(&text);
        if (!r)
                r = add_tree(in, &text, why);
        if (r)
                return r == AGX_WHY_E_TOLD && why->text[0] ? r : agx_trace(-ENOMEM);
        agx_digest_bytes(agx_buf_view(&text), sum);
        return 0;
}

/* ---- remembering ---- */

static char *path_for(const char *output)
{
        _cleanup_(agx_freep) char *real = realpath(output, NULL), *cache = NULL;
        agx_why ignored = AGX_WHY_NULL;
        char digest[AGX_DIGEST_SIZE], *path;

        if (!real || agx_stage_cache(&cache, &ignored))
                return NULL;
        agx_digest_bytes(agx_view_str(real), digest);
        return asprintf(&path, "%s/state-%.24s", cache, digest + 7) < 0 ? NULL : path;
}

static int put_state(agx_buf *text, const char *output, const char *sum, const char *digest)
{
        int r = agx_buf_printf(text, "%s\n%s\n", sum, digest);

        return r ? r : add_stat(text, "tar", output, true);
}

bool agx_state_is(const char *output, const char *sum, char digest[AGX_DIGEST_SIZE], uint64_t *size)
{
        _cleanup_(agx_freep) char *path = path_for(output);
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(STATE_MAX), now = AGX_BUF_NULL(STATE_MAX);
        agx_why ignored = AGX_WHY_NULL;
        agx_view rest, line;
        struct stat st;

        if (!path || agx_tree_read(path, &text, &ignored) || stat(output, &st))
                return false;
        rest = agx_buf_view(&text);
        if (!agx_view_split(&rest, '\n', &line))
                return false;
        if (!agx_view_split(&rest, '\n', &line) || !agx_digest_is(line))
                return false;
        memcpy(digest, line.p, line.n);
        digest[line.n] = 0;
        *size = (uint64_t)st.st_size;
        if (!put_state(&now, output, sum, digest) && agx_view_eq(agx_buf_view(&text), agx_buf_view(&now)))
                return true;
        digest[0] = 0;
        return false;
}

void agx_state_keep(const char *output, const char *sum, const char *digest)
{
        _cleanup_(agx_freep) char *path = path_for(output);
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(STATE_MAX);
        agx_why ignored = AGX_WHY_NULL;

        if (path && !put_state(&text, output, sum, digest))
                (void)agx_tree_write(path, agx_buf_view(&text), 0644, &ignored);
}
