/*
 * git decides what is ignored; it knows its own rules. It is asked for two things, the root of the work tree and the list of
 * files, and nothing of the repository's configuration that runs programs is used by either.
 */
#include "bundle/context.h"
#include "base/err.h"
#include "bundle/run.h"
#include "bundle/tree.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { LIST_MAX = 256 << 20 };

static const char *const skipped[] = {
        ".git",        ".hg",         ".svn", ".venv", "__pycache__", ".pytest_cache",
        ".mypy_cache", ".ruff_cache", ".tox", ".nox",  ".cache",
};
static const char *const skipped_at_root[] = {"build", "dist", "result"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void agx_context_deinit(agx_context *c)
{
        free(c->root);
        free(c->subpath);
        agx_strv_deinit(&c->files);
        *c = AGX_CONTEXT_NULL;
}

static bool among(const char *const *table, size_t n, agx_view name)
{
        for (size_t i = 0; i < n; i++)
                if (agx_view_eq(name, agx_view_str(table[i])))
                        return true;
        return false;
}

static bool ends(const char *text, const char *end)
{
        size_t n = strlen(text), m = strlen(end);

        return n >= m && !strcmp(text + n - m, end);
}

static bool is_except(const agx_context *c, const char *relative)
{
        size_t root = strlen(c->root), n = c->except ? strlen(c->except) : 0;
        const char *inner = n > root + 1 && !strncmp(c->except, c->root, root) && c->except[root] == '/'
                                    ? c->except + root + 1
                                    : NULL;

        n = inner ? strlen(inner) : 0;
        return inner && !strncmp(relative, inner, n) && (!relative[n] || relative[n] == '/');
}

static bool left_out(const agx_context *c, const char *relative)
{
        agx_view rest = agx_view_str(relative), part;
        bool first = true;

        if (is_except(c, relative) || ends(relative, ".bundle.tar") || ends(relative, ".bundle.tar.zst"))
                return true;
        while (agx_view_split(&rest, '/', &part)) {
                if (among(skipped, COUNT(skipped), part) ||
                    (first && among(skipped_at_root, COUNT(skipped_at_root), part)))
                        return true;
                first = false;
        }
        return false;
}

/* ---- git ---- */

static int ask_git(const char *dir, const char *const *words, agx_buf *out, int *status, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(1024);
        int r;

        agx_strv_addf(&argv, "git");
        agx_strv_addf(&argv, "-C");
        agx_strv_add_str(&argv, dir);
        while (*words)
                agx_strv_add_str(&argv, *words++);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_run_wait(&(agx_run){.argv = argv.items, .out = out, .err = &said}, status, why);
        if (!r && *status && !memmem(agx_buf_view(&said).p, said.len, "not a git repository", 20))
                return agx_why_set(why, "git", "git could not be asked about %s: %.*s", dir, (int)said.len,
                                   said.len ? (char *)said.data + said.head : "");
        return r;
}

/* Whether a `.git` is at `project` or above it: without one git need not be installed. */
static bool has_git(const char *project)
{
        char path[PATH_MAX + 8];
        struct stat st;

        if (snprintf(path, PATH_MAX, "%s", project) >= PATH_MAX)
                return false;
        for (;;) {
                char *slash;

                memcpy(path + strlen(path), "/.git", 6);
                if (!lstat(path, &st))
                        return true;
                path[strlen(path) - 5] = 0;
                slash = strrchr(path, '/');
                if (!slash || !*path)
                        return false;
                *slash = 0;
        }
}

static int add_listed(agx_context *c, const agx_buf *list)
{
        agx_view rest = agx_buf_view(list), name;

        while (agx_view_split(&rest, 0, &name)) {
                _cleanup_(agx_freep) char *relative = agx_strv_dup(name), *full = NULL;
                struct stat st;

                if (!relative || !(full = agx_tree_join(c->root, relative)))
                        return agx_trace(-ENOMEM);
                if (name.n && !left_out(c, relative) && !lstat(full, &st) &&
                    (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode)))
                        agx_strv_add(&c->files, name);
        }
        return agx_strv_end(&c->files);
}

static int list_git(agx_context *c, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf list = AGX_BUF_NULL(LIST_MAX);
        int status, r;

        r = ask_git(c->root,
                    (const char *const[]){"ls-files", "-z", "--cached", "--others", "--exclude-standard", NULL}, &list,
                    &status, why);
        if (!r && status)
                return agx_why_set(why, "git", "git could not list the files of %s", c->root);
        return r ? r : add_listed(c, &list);
}

/* ---- without git ---- */

static int list_plain(const agx_tree_entry *entry, void *user, agx_why *why)
{
        agx_context *c = user;

        (void)why;
        if (left_out(c, entry->relative))
                return S_ISDIR(entry->st->st_mode) ? AGX_TREE_SKIP : 0;
        if (S_ISREG(entry->st->st_mode) || S_ISLNK(entry->st->st_mode))
                agx_strv_add_str(&c->files, entry->relative);
        return agx_strv_end(&c->files);
}

/* ---- the contract ---- */

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, each once: a path in conflict is listed once for each side. */
static void settle(agx_strv *files)
{
        size_t kept = 0;

        if (!files->count)
                return;
        qsort(files->items, files->count, sizeof(*files->items), compare);
        for (size_t i = 0; i < files->count; i++) {
                if (kept && !strcmp(files->items[kept - 1], files->items[i]))
                        free(files->items[i]);
                else
                        files->items[kept++] = files->items[i];
        }
        files->count = kept;
        files->items[kept] = NULL;
}

static int find_root(agx_context *c, const char *project, bool *git, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf top = AGX_BUF_NULL(PATH_MAX + 2);
        int status = 1, r = 0;

        if (has_git(project))
                r = ask_git(project, (const char *const[]){"rev-parse", "--show-toplevel", NULL}, &top, &status, why);
        if (r)
                return r;
        if (!status && top.len && top.data[top.head + top.len - 1] == '\n')
                agx_buf_truncate(&top, top.len - 1);
        *git = !status && top.len;
        c->root = agx_strv_dup(!*git ? agx_view_str(project) : agx_buf_view(&top));
        return c->root ? 0 : agx_trace(-ENOMEM);
}

int agx_context_find(agx_context *c, const char *project, const char *root, const char *except, agx_why *why)
{
        _cleanup_(agx_freep) char *real = realpath(project, NULL);
        bool git = false;
        size_t n;
        int r;

        *c = (agx_context){.except = except};
        if (!real)
                return agx_why_errno(why, errno, "%s could not be read", project);
        if (root)
                r = (c->root = realpath(root, NULL)) ? 0 : agx_why_errno(why, errno, "%s could not be read", root);
        else
                r = find_root(c, real, &git, why);
        if (r)
                return r;
        n = strlen(c->root);
        c->subpath = strdup(!strcmp(real, c->root) || strncmp(real, c->root, n) ? "." : real + n + (n > 1));
        if (!c->subpath)
                return agx_trace(-ENOMEM);
        r = git ? list_git(c, why) : agx_tree_walk(c->root, list_plain, c, why);
        settle(&c->files);
        return r;
}

int agx_context_copy(const agx_context *c, const char *to, agx_why *why)
{
        int r = agx_tree_make(to, why);

        for (size_t i = 0; !r && i < c->files.count; i++) {
                _cleanup_(agx_freep) char *from = agx_tree_join(c->root, c->files.items[i]),
                                          *there = agx_tree_join(to, c->files.items[i]);

                r = from && there ? agx_tree_copy(from, there, why) : agx_trace(-ENOMEM);
        }
        return r;
}
