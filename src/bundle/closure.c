/*
 * Two passes over a root: the first learns which libraries the tree itself has, for wheels bring libraries that Python code
 * loads by path before anything asks for them by name; the second looks at each object. A library that is brought is looked
 * at like any other, with the search paths that it had where it came from, before they are rewritten.
 *
 * Where this machine keeps libraries is read from ld.so.conf rather than its cache: the format of one is documented.
 */
#include "bundle/closure.h"
#include "base/err.h"
#include "bundle/elf.h"
#include "bundle/run.h"
#include "bundle/tree.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>

enum { CONF_MAX = 1 << 20, PATHS_MAX = 1 << 20, CONF_DEPTH = 8, TAIL_MIN = 4096 };

#if defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
static const char *const usual[] = {
        "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
#else
enum { MACHINE = EM_X86_64 };
static const char *const usual[] = {
        "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"};
#endif

void agx_closure_deinit(agx_closure *c)
{
        agx_strv_deinit(&c->changed);
        agx_strv_deinit(&c->missing);
        agx_strv_deinit(&c->spared);
        agx_strv_deinit(&c->search);
        agx_strv_deinit(&c->queue);
        agx_strv_deinit(&c->here);
        free(c->loader);
        *c = AGX_CLOSURE_NULL;
}

static bool has(const agx_strv *v, agx_view item)
{
        for (size_t i = 0; i < v->count; i++)
                if (agx_view_eq(agx_view_str(v->items[i]), item))
                        return true;
        return false;
}

/* ---- where this machine keeps libraries ---- */

static void read_conf(agx_closure *c, const char *path, unsigned depth);

static void read_included(agx_closure *c, agx_view pattern, unsigned depth)
{
        _cleanup_(agx_freep) char *text = NULL;
        glob_t found = {0};

        if (depth == CONF_DEPTH ||
            asprintf(&text, "%s%.*s", pattern.p[0] == '/' ? "" : "/etc/", (int)pattern.n, pattern.p) < 0)
                return;
        if (!glob(text, 0, NULL, &found))
                for (size_t i = 0; i < found.gl_pathc; i++)
                        read_conf(c, found.gl_pathv[i], depth + 1);
        globfree(&found);
}

static void read_conf(agx_closure *c, const char *path, unsigned depth)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(CONF_MAX);
        agx_why ignored = AGX_WHY_NULL;
        agx_view rest, line;

        if (agx_tree_read(path, &text, &ignored))
                return;
        rest = agx_buf_view(&text);
        while (agx_view_split(&rest, '\n', &line)) {
                agx_view word;

                agx_view_split(&line, '#', &word);
                word = agx_view_trim(word);
                if (agx_view_starts(word, AGX_VIEW("include ")))
                        read_included(c, agx_view_trim(agx_view_from(word, 8)), depth);
                else if (word.n && word.p[0] == '/')
                        agx_strv_add(&c->search, word);
        }
}

static int find_search(agx_closure *c)
{
        if (c->search.count)
                return 0;
        for (size_t i = 0; c->dirs && i < c->dirs->count; i++)
                agx_strv_add_str(&c->search, c->dirs->items[i]);
        read_conf(c, "/etc/ld.so.conf", 0);
        for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
                agx_strv_add_str(&c->search, usual[i]);
        return agx_strv_end(&c->search);
}

/* ---- bringing ---- */

static bool fits(const char *path)
{
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL;
        _cleanup_(agx_freep) char *real = realpath(path, NULL);

        return real && !agx_elf_read(&elf, real) && elf.machine == MACHINE;
}

/* Copies a library of this machine into the closure, under the name it is asked for by. */
static int bring(agx_closure *c, const char *path, const char *name, agx_why *why)
{
        _cleanup_(agx_freep) char *real = realpath(path, NULL), *to = NULL;
        int r;

        if (!real || asprintf(&to, "%s" AGX_CLOSURE_LIB "/%s", c->stage, name) < 0)
                return real ? agx_trace(-ENOMEM) : agx_why_errno(why, errno, "library %s could not be read", path);
        r = agx_tree_copy(real, to, why);
        if (r)
                return r;
        agx_strv_addf(&c->queue, "%s\n%s", to, real);
        return agx_strv_end(&c->queue);
}

static bool in_closure(const agx_closure *c, const char *name)
{
        char path[PATH_MAX];

        return snprintf(path, sizeof(path), "%s" AGX_CLOSURE_LIB "/%s", c->stage, name) < (int)sizeof(path) &&
               !access(path, F_OK);
}

/* An entry of a search path with $ORIGIN put in; `origin` is the directory of the object where it came from. */
static bool expand(agx_view entry, agx_view origin, char *out, size_t size)
{
        static const char *const tokens[] = {"$ORIGIN", "${ORIGIN}"};

        for (size_t i = 0; i < 2; i++)
                if (agx_view_starts(entry, agx_view_str(tokens[i]))) {
                        agx_view rest = agx_view_from(entry, strlen(tokens[i]));

                        return snprintf(out, size, "%.*s%.*s", (int)origin.n, origin.p, (int)rest.n, rest.p) <
                               (int)size;
                }
        return snprintf(out, size, "%.*s", (int)entry.n, entry.p) < (int)size;
}

/* Looks a name up along a search path. 1: found and brought or in the tree; 0: not found. */
static int look_along(agx_closure *c, agx_view paths, agx_view origin, const char *name, agx_why *why)
{
        agx_view entry;

        while (agx_view_split(&paths, ':', &entry)) {
                char dir[PATH_MAX], full[PATH_MAX + NAME_MAX + 2];

                if (!entry.n || !expand(entry, origin, dir, sizeof(dir)))
                        continue;
                snprintf(full, sizeof(full), "%s%s/%s", !strncmp(dir, "/nix/", 5) ? c->stage : "", dir, name);
                if (access(full, F_OK))
                        continue;
                if (agx_view_starts(agx_view_str(full), agx_view_str(c->stage)))
                        return 1;
                if (fits(full)) {
                        int r = bring(c, full, name, why);

                        return r ? -r : 1;
                }
        }
        return 0;
}

static int look_on_machine(agx_closure *c, const char *name, agx_why *why)
{
        for (size_t i = 0; i < c->search.count; i++) {
                int found = look_along(c, agx_view_str(c->search.items[i]), AGX_VIEW(""), name, why);

                if (found)
                        return found;
        }
        return 0;
}

/* -AGX_WHY_E_TOLD cannot be told from -EPERM by its sign alone: `look` functions give the negated code of a failure. */
static int satisfy(agx_closure *c, const agx_elf *elf, const char *path, agx_view origin, const char *name,
                   agx_why *why)
{
        int found = 0;

        if (strchr(name, '/'))
                return 0;
        if (elf->runpath || elf->rpath)
                found = look_along(c, agx_view_str(elf->runpath ? elf->runpath : elf->rpath), origin, name, why);
        if (!found && (in_closure(c, name) || has(&c->here, agx_view_str(name))))
                return 0;
        if (!found)
                found = look_on_machine(c, name, why);
        if (found)
                return found < 0 ? -found : 0;
        agx_strv_addf(&c->missing, "%s needs %s", path + strlen(c->stage), name);
        return agx_strv_end(&c->missing);
}

/* ---- rewriting ---- */

static int patch(agx_closure *c, const char *path, const char *const *options, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(2048);
        int status, r;

        agx_strv_add_str(&argv, c->patchelf);
        while (*options)
                agx_strv_add_str(&argv, *options++);
        agx_strv_add_str(&argv, path);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_run_wait(&(agx_run){.argv = argv.items, .err = &said}, &status, why);
        if (r)
                return r;
        if (status)
                return agx_why_set(why, "elf", "patchelf could not rewrite %s: %.*s", path, (int)said.len,
                                   said.len ? (char *)said.data + said.head : "");
        agx_strv_add_str(&c->changed, path);
        return agx_strv_end(&c->changed);
}

/* The entries that hold in the bundle too: those with $ORIGIN, and those below /nix. */
static int keep_paths(agx_view paths, agx_buf *kept)
{
        agx_view entry;
        int r = 0;

        while (!r && agx_view_split(&paths, ':', &entry))
                if (memmem(entry.p, entry.n, "$ORIGIN", 7) || memmem(entry.p, entry.n, "${ORIGIN}", 9) ||
                    agx_view_starts(entry, AGX_VIEW("/nix/")))
                        r = agx_buf_printf(kept, "%s%.*s", kept->len ? ":" : "", (int)entry.n, entry.p);
        return r ? agx_trace(-ENOMEM) : 0;
}

static int bring_loader(agx_closure *c, const char *interp, agx_why *why)
{
        const char *name = strrchr(interp, '/');

        if (c->loader)
                return 0;
        name = name ? name + 1 : interp;
        if (!in_closure(c, name)) {
                int r = bring(c, interp, name, why);

                if (r)
                        return r;
        }
        return asprintf(&c->loader, AGX_CLOSURE_LIB "/%s", name) < 0 ? agx_trace(-ENOMEM) : 0;
}

static int patch_program(agx_closure *c, const agx_elf *elf, const char *path, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf paths = AGX_BUF_NULL(PATHS_MAX);
        const char *old = elf->runpath ? elf->runpath : elf->rpath;
        int r = bring_loader(c, elf->interp, why);

        if (!r && old)
                r = keep_paths(agx_view_str(old), &paths);
        if (r)
                return r;
        if (agx_buf_printf(&paths, "%s" AGX_CLOSURE_LIB "%c", paths.len ? ":" : "", 0))
                return agx_trace(-ENOMEM);
        return patch(c, path,
                     (const char *const[]){"--set-interpreter", c->loader, "--force-rpath", "--set-rpath",
                                           (const char *)paths.data + paths.head, NULL},
                     why);
}

static int patch_library(agx_closure *c, const agx_elf *elf, const char *path, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf paths = AGX_BUF_NULL(PATHS_MAX);
        const char *old = elf->runpath ? elf->runpath : elf->rpath;
        int r = old ? keep_paths(agx_view_str(old), &paths) : 0;

        if (!old || r)
                return r;
        if (!paths.len)
                return patch(c, path, (const char *const[]){"--remove-rpath", NULL}, why);
        if (!elf->runpath && agx_view_eq(agx_buf_view(&paths), agx_view_str(old)))
                return 0;
        if (agx_buf_append(&paths, "", 1))
                return agx_trace(-ENOMEM);
        return patch(c, path,
                     (const char *const[]){"--force-rpath", "--set-rpath", (const char *)paths.data + paths.head, NULL},
                     why);
}

static bool is_foreign(const agx_elf *elf)
{
        return elf->machine != MACHINE || !elf->dynamic || (elf->interp && strstr(elf->interp, "ld-musl"));
}

/* `path` is in the stage; `from` is where it came from on this machine, which $ORIGIN means. */
static int handle(agx_closure *c, const char *path, const char *from, agx_why *why)
{
        _cleanup_(agx_elf_deinitp) agx_elf elf = AGX_ELF_NULL;
        const char *slash = strrchr(from, '/');
        int r = agx_elf_read(&elf, path);

        if (r < 0)
                return agx_why_errno(why, r, "%s could not be read", path);
        if (r || is_foreign(&elf))
                return 0;
        if (c->spares_tails && elf.runnable && elf.tail >= TAIL_MIN) {
                agx_strv_add_str(&c->spared, path + strlen(c->stage));
                return agx_strv_end(&c->spared);
        }
        for (size_t i = 0; !r && i < elf.needed.count; i++)
                r = satisfy(c, &elf, path, agx_view_of(from, (size_t)(slash - from)), elf.needed.items[i], why);
        if (r)
                return r;
        return elf.runnable ? patch_program(c, &elf, path, why) : patch_library(c, &elf, path, why);
}

static int drain(agx_closure *c, agx_why *why)
{
        int r = 0;

        for (size_t i = 0; !r && i < c->queue.count; i++) {
                _cleanup_(agx_freep) char *pair = strdup(c->queue.items[i]);
                char *from = pair ? strchr(pair, '\n') : NULL;

                if (!from)
                        return agx_trace(-ENOMEM);
                *from = 0;
                r = handle(c, pair, from + 1, why);
        }
        agx_strv_deinit(&c->queue);
        return r;
}

/* ---- the contract ---- */

static int learn(const agx_tree_entry *entry, void *user, agx_why *why)
{
        agx_closure *c = user;

        (void)why;
        if (S_ISDIR(entry->st->st_mode) || !strstr(entry->name, ".so"))
                return 0;
        agx_strv_add_str(&c->here, entry->name);
        return agx_strv_end(&c->here);
}

static int visit(const agx_tree_entry *entry, void *user, agx_why *why)
{
        return S_ISREG(entry->st->st_mode) ? handle(user, entry->path, entry->path, why) : 0;
}

int agx_closure_add(agx_closure *c, const char *root, agx_why *why)
{
        int r = find_search(c);

        if (!r)
                r = agx_tree_walk(root, learn, c, why);
        if (!r)
                r = agx_tree_walk(root, visit, c, why);
        return r ? r : drain(c, why);
}

int agx_closure_add_program(agx_closure *c, const char *from, const char *to, agx_why *why)
{
        _cleanup_(agx_freep) char *real = realpath(from, NULL);
        int r = find_search(c);

        if (!real)
                return agx_why_errno(why, errno, "program %s could not be read", from);
        if (!r)
                r = agx_tree_copy(real, to, why);
        if (!r)
                r = handle(c, to, real, why);
        return r ? r : drain(c, why);
}
