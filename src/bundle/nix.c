/*
 * nix-build prints the output paths, nix-store their closure. Store paths are copied whole; links into them are absolute,
 * as in the store itself. Two outputs may share directories but no file.
 */
#include "bundle/nix.h"
#include "base/err.h"
#include "bundle/tree.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PATHS_MAX = 16 << 20 };

typedef struct nix {
        const agx_nix_job *job;
        char *build, *query; /* the programs */
        char *store;         /* in the cache, to be seen as /nix; NULL: the machine's own */
        agx_jail jail;
        agx_jail_bind bind;
} nix;

static void nix_deinit(nix *n)
{
        free(n->build);
        free(n->query);
        free(n->store);
}

AGX_DEFINE_CLEANUP(nix, nix_deinit)

static int nix_init(nix *n, const agx_nix_job *job, const char *label, agx_why *why)
{
        *n = (nix){.job = job, .build = agx_run_find("nix-build"), .query = agx_run_find("nix-store")};
        if (!n->build || !n->query) {
                agx_why_set(why, "nix", "%s needs Nix, and nix-build was not found on PATH", label);
                return agx_why_hint(why, "install Nix; on Debian: apt install nix-bin");
        }
        if (!access("/nix/store", F_OK))
                return 0;
        n->store = agx_tree_join(job->stage->cache, "nix");
        n->bind = (agx_jail_bind){job->stage->src, job->place};
        n->jail = (agx_jail){
                .kind = AGX_JAIL_MACHINE, .root = job->stage->root, .nix = n->store, .binds = &n->bind, .n_binds = 1};
        return n->store ? agx_tree_make(n->store, why) : agx_trace(-ENOMEM);
}

/* A store of ours has no build users, and no sandbox, which would need root. */
static void add_options(const nix *n, agx_strv *argv)
{
        static const char *const ours[] = {"--option", "build-users-group", "", "--option", "sandbox", "false"};

        for (size_t i = 0; n->store && i < sizeof(ours) / sizeof(ours[0]); i++)
                agx_strv_add_str(argv, ours[i]);
}

static int go(const nix *n, const agx_strv *argv, agx_buf *out, const char *label, agx_why *why)
{
        agx_run run = {.argv = argv->items, .out = out, .quiet = n->job->quiet, .jail = n->store ? &n->jail : NULL};
        int status, r = agx_strv_end(argv);

        if (!r)
                r = agx_run_wait(&run, &status, why);
        if (r || !status)
                return r;
        why->exit_code = status;
        return agx_why_set(why, "nix", "%s: %s exited with code %d", label, argv->items[0], status);
}

static int build(const nix *n, const char *label, const char *file, agx_buf *out, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;

        agx_strv_add_str(&argv, n->build);
        agx_strv_addf(&argv, "--no-out-link");
        add_options(n, &argv);
        for (size_t i = 0; i < n->job->args->count; i++)
                agx_strv_add_str(&argv, n->job->args->items[i]);
        if (*file == '/')
                agx_strv_add_str(&argv, file);
        else
                agx_strv_addf(&argv, "%s/%s", n->store ? n->job->place : n->job->stage->src, file);
        return go(n, &argv, out, label, why);
}

static int closure_of(const nix *n, const char *label, const agx_buf *outputs, agx_buf *closure, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        agx_view rest = agx_buf_view(outputs), line;

        agx_strv_add_str(&argv, n->query);
        add_options(n, &argv);
        agx_strv_addf(&argv, "--query");
        agx_strv_addf(&argv, "--requisites");
        while (agx_view_split(&rest, '\n', &line))
                if (line.n)
                        agx_strv_add(&argv, line);
        return go(n, &argv, closure, label, why);
}

/* The name of a store path, "" if it is none. */
static const char *name_in_store(const char *path)
{
        return strncmp(path, "/nix/store/", 11) || strchr(path + 11, '/') || path[11] == '.' ? "" : path + 11;
}

static int copy_path(const nix *n, const char *path, agx_why *why)
{
        _cleanup_(agx_freep) char *from = NULL, *to = NULL;
        struct stat st;

        if (!*name_in_store(path))
                return agx_why_set(why, "nix", "nix-store named '%s', which is no path of the store", path);
        if (asprintf(&from, "%s%s", n->store ? n->store : "/nix", path + 4) < 0 ||
            asprintf(&to, "%s%s", n->job->stage->tree, path) < 0)
                return agx_trace(-ENOMEM);
        if (!lstat(to, &st))
                return 0;
        if (lstat(from, &st))
                return agx_why_errno(why, errno, "%s could not be read", from);
        return S_ISDIR(st.st_mode) ? agx_tree_copy_all(from, to, why) : agx_tree_copy(from, to, why);
}

/* ---- joining ---- */

typedef struct joining {
        const agx_stage *stage;
        const char *output; /* "/nix/store/<name>" */
        const char *label;
} joining;

/* A bash from Nix takes the place of ours. */
static bool gives_way(const char *relative, const char *there)
{
        return !strcmp(relative, "bin/bash") && !strcmp(there, "/nix/closure/bin/bash");
}

static int join_file(const joining *j, const char *relative, const char *to, const char *target, agx_why *why)
{
        char there[PATH_MAX] = "";
        ssize_t n;

        if (!symlink(target, to))
                return 0;
        n = errno == EEXIST ? readlink(to, there, sizeof(there) - 1) : -1;
        there[n < 0 ? 0 : n] = 0;
        if (!strcmp(there, target))
                return 0;
        if (gives_way(relative, there) && !unlink(to) && !symlink(target, to))
                return 0;
        agx_why_set(why, "nix", "collision: %s gives %s, which %s has already", j->label, relative,
                    *there ? there : "the bundle itself");
        return agx_why_hint(why, "leave one of them out, or build an environment that decides (pkgs.buildEnv)");
}

static int join_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        const joining *j = user;
        _cleanup_(agx_freep) char *to = NULL, *target = NULL;
        struct stat st;

        if (!strcmp(entry->relative, "nix-support"))
                return AGX_TREE_SKIP;
        if (asprintf(&to, "%s/runtime/%s", j->stage->nix, entry->relative) < 0 ||
            asprintf(&target, "%s/%s", j->output, entry->relative) < 0)
                return agx_trace(-ENOMEM);
        if (!S_ISDIR(entry->st->st_mode))
                return join_file(j, entry->relative, to, target, why);
        if (!mkdir(to, 0755))
                return 0;
        if (lstat(to, &st) || !S_ISDIR(st.st_mode) || !strcmp(entry->relative, "venv"))
                return join_file(j, entry->relative, to, target, why);
        return 0;
}

static int join(const nix *n, const char *label, const char *output, agx_why *why)
{
        _cleanup_(agx_freep) char *from = NULL, *runtime = agx_tree_join(n->job->stage->nix, "runtime");
        joining j = {n->job->stage, output, label};
        struct stat st;
        int r;

        if (!runtime || asprintf(&from, "%s%s", n->job->stage->tree, output) < 0)
                return agx_trace(-ENOMEM);
        r = agx_tree_make(runtime, why);
        if (r)
                return r;
        if (lstat(from, &st) || !S_ISDIR(st.st_mode))
                return agx_why_set(why, "nix", "%s: the output %s is not a directory", label, output);
        return agx_tree_walk(from, join_entry, &j, why);
}

/* ---- the contract ---- */

static int each(const nix *n, const char *label, agx_view lines, bool joined, agx_why *why)
{
        agx_view line;
        int r = 0;

        while (!r && agx_view_split(&lines, '\n', &line)) {
                _cleanup_(agx_freep) char *path = agx_strv_dup(line);

                if (!path)
                        return agx_trace(-ENOMEM);
                if (*path)
                        r = joined ? join(n, label, path, why) : copy_path(n, path, why);
        }
        return r;
}

int agx_nix_add(const agx_nix_job *job, const char *label, const char *file, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf outputs = AGX_BUF_NULL(PATHS_MAX), closure = AGX_BUF_NULL(PATHS_MAX);
        _cleanup_(nix_deinitp) nix n;
        int r = nix_init(&n, job, label, why);

        if (!r)
                r = build(&n, label, file, &outputs, why);
        if (!r && !outputs.len)
                r = agx_why_set(why, "nix", "%s: nix-build gave no output", label);
        if (!r)
                r = closure_of(&n, label, &outputs, &closure, why);
        if (!r)
                r = each(&n, label, agx_buf_view(&closure), false, why);
        return r ? r : each(&n, label, agx_buf_view(&outputs), true, why);
}
