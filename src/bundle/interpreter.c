/*
 * The interpreter's own answers (sysconfig) decide what is copied, so that a Debian layout, a pyenv and a standalone build
 * all come out as <home>/bin/python3.N and <home>/lib/python3.N, which is where CPython looks for its library without being
 * told.
 *
 * Byte code is compiled by one process in the order of the names, with a fixed hash seed: marshal writes references by
 * reference count, so the order is part of the result. "Unchecked" because file times do not survive packing.
 */
#include "bundle/interpreter.h"
#include "base/err.h"
#include "bundle/closure.h"
#include "bundle/digest.h"
#include "bundle/records.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

enum { LAYER_FORMAT = 1 };

static const char facts[] =
        "import os, sys, sysconfig as s\n"
        "v = sys.version_info\n"
        "p = {'impl': sys.implementation.name, 'minor': str(v[1]), 'version': '%d.%d.%d' % v[:3], 'base': "
        "sys.base_prefix,\n"
        "     'exe': os.path.realpath(sys.executable), 'stdlib': s.get_path('stdlib'),\n"
        "     'platstdlib': s.get_path('platstdlib'), 'include': s.get_path('include') or '',\n"
        "     'libdir': s.get_config_var('LIBDIR') or ''}\n"
        "b = sys.base_prefix\n"
        "n = 'python%d.%d' % v[:2]\n"
        "if not os.path.exists(os.path.join(p['include'], 'Python.h')): p['include'] = os.path.join(b, 'include', n)\n"
        "sys.stdout.write(''.join('%s\\0%s\\0' % kv for kv in p.items()))\n";

static const char compile_all[] = "import os, py_compile, sys\n"
                                  "mode = py_compile.PycInvalidationMode.UNCHECKED_HASH\n"
                                  "for root in sys.argv[1:]:\n"
                                  "    for path, dirs, files in os.walk(root):\n"
                                  "        dirs.sort()\n"
                                  "        for name in sorted(files):\n"
                                  "            if name.endswith('.py'):\n"
                                  "                try:\n"
                                  "                    py_compile.compile(os.path.join(path, name), doraise=True, "
                                  "quiet=2, invalidation_mode=mode)\n"
                                  "                except Exception:\n"
                                  "                    pass\n";

static const char *const left_out[] = {
        "__pycache__",   "test",     "tests",     "idlelib",       "turtledemo",         "tkinter",
        "site-packages", "_bundled", "turtle.py", "dist-packages", "EXTERNALLY-MANAGED",
};
static const char *const left_out_starts[] = {
        "config-3",    "_tkinter.",           "_test",     "_ctypes_test",
        "_xxtestfuzz", "_xxsubinterpreters_", "xxlimited", "xxsubtype",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

void agx_interpreter_deinit(agx_interpreter *i)
{
        free(i->exe);
        free(i->version);
        free(i->base);
        free(i->stdlib);
        free(i->platstdlib);
        free(i->include);
        free(i->libdir);
        *i = (agx_interpreter){0};
}

/* ---- finding ---- */

static int take_facts(agx_interpreter *i, const agx_records *r, agx_why *why)
{
        const struct {
                const char *key;
                char **slot;
        } rows[] = {{"exe", &i->exe},       {"version", &i->version}, {"base", &i->base},
                    {"stdlib", &i->stdlib}, {"include", &i->include}, {"platstdlib", &i->platstdlib},
                    {"libdir", &i->libdir}};
        const char *minor = agx_records_get(r, "minor"), *impl = agx_records_get(r, "impl");
        uint64_t number;

        if (!impl || strcmp(impl, "cpython") || !minor || !agx_view_u64(agx_view_str(minor), 99, &number))
                return agx_why_set(why, "python", "it is not CPython");
        i->minor = (unsigned)number;
        for (size_t k = 0; k < COUNT(rows); k++) {
                const char *value = agx_records_get(r, rows[k].key);

                *rows[k].slot = strdup(value ? value : "");
                if (!*rows[k].slot)
                        return agx_trace(-ENOMEM);
        }
        return 0;
}

static int ask(agx_interpreter *i, char *exe, unsigned minor, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records r = AGX_RECORDS_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        int e;

        agx_strv_add_str(&argv, exe);
        agx_strv_add_str(&argv, "-I");
        agx_strv_add_str(&argv, "-S");
        agx_strv_add_str(&argv, "-c");
        agx_strv_add_str(&argv, facts);
        e = agx_strv_end(&argv);
        if (!e)
                e = agx_records_ask(&r, argv.items, why);
        if (!e)
                e = take_facts(i, &r, why);
        if (!e && i->minor != minor)
                e = agx_why_set(why, "python", "%s is Python %s", exe, i->version);
        if (e)
                agx_interpreter_deinit(i);
        return e;
}

static int ask_uv(char **exe, const agx_tools *tools, unsigned minor, const char *requires, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(PATH_MAX + 2), said = AGX_BUF_NULL(2048);
        int status, r;

        *exe = NULL;
        agx_strv_add_str(&argv, tools->uv);
        agx_strv_addf(&argv, "python");
        agx_strv_addf(&argv, "find");
        agx_strv_addf(&argv, "--no-python-downloads");
        agx_strv_addf(&argv, "--system");
        agx_strv_addf(&argv, "--no-project");
        agx_strv_addf(&argv, "==3.%u.*%s%s", minor, requires ? "," : "", requires ? requires : "");
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_run_wait(&(agx_run){.argv = argv.items, .cwd = "/", .out = &out, .err = &said}, &status, why);
        if (r || status || out.len < 2)
                return r;
        *exe = agx_strv_dup(agx_view_first(agx_buf_view(&out), out.len - 1));
        return *exe ? 0 : agx_trace(-ENOMEM);
}

/* pyenv's shims answer only for the versions that are switched on; its versions are all there. */
static char *find_pyenv(unsigned minor)
{
        const char *root = getenv("PYENV_ROOT"), *home = getenv("HOME");
        _cleanup_(agx_freep) char *pattern = NULL;
        glob_t found = {0};
        char *exe = NULL;

        if (asprintf(&pattern, "%s%s/versions/3.%u.*/bin/python3.%u",
                     root   ? root
                     : home ? home
                            : "",
                     root ? "" : "/.pyenv", minor, minor) < 0)
                return NULL;
        if (!glob(pattern, 0, NULL, &found) && found.gl_pathc)
                exe = strdup(found.gl_pathv[found.gl_pathc - 1]);
        globfree(&found);
        return exe;
}

int agx_interpreter_find(agx_interpreter *i, const agx_tools *tools, unsigned minor, const char *requires, agx_why *why)
{
        _cleanup_(agx_freep) char *exe = NULL, *pyenv = NULL;
        agx_why ignored = AGX_WHY_NULL;
        int r;

        *i = (agx_interpreter){0};
        r = ask_uv(&exe, tools, minor, requires, why);
        if (r || (exe && !ask(i, exe, minor, &ignored)))
                return r;
        pyenv = find_pyenv(minor);
        if (pyenv && !ask(i, pyenv, minor, &ignored))
                return 0;
        if (agx_run_signal()) {
                *why = ignored;
                return AGX_WHY_E_TOLD;
        }
        agx_why_set(why, "python", "this machine has no usable Python 3.%u%s%s", minor, requires ? " that allows " : "",
                    requires ? requires : "");
        return agx_why_hint(why, "install it; interpreters are taken from the machine, never downloaded");
}

/* ---- the layer ---- */

static bool is_left_out(const char *name)
{
        for (size_t k = 0; k < COUNT(left_out); k++)
                if (!strcmp(name, left_out[k]))
                        return true;
        for (size_t k = 0; k < COUNT(left_out_starts); k++)
                if (!strncmp(name, left_out_starts[k], strlen(left_out_starts[k])))
                        return true;
        return false;
}

typedef struct copying {
        const char *to;
} copying;

/* Links are copied as what they lead to: the standard library of Debian has some into /etc. */
static int copy_entry(const agx_tree_entry *entry, void *user, agx_why *why)
{
        const copying *c = user;
        _cleanup_(agx_freep) char *to = NULL, *real = NULL;

        if (is_left_out(entry->name))
                return AGX_TREE_SKIP;
        if (S_ISDIR(entry->st->st_mode))
                return 0;
        to = agx_tree_join(c->to, entry->relative);
        if (!to)
                return agx_trace(-ENOMEM);
        if (!access(to, F_OK))
                return 0;
        real = realpath(entry->path, NULL);
        return real ? agx_tree_copy(real, to, why) : 0;
}

static int copy_library(const agx_stage *s, const char *from, unsigned minor, agx_why *why)
{
        _cleanup_(agx_freep) char *to = NULL;

        if (asprintf(&to, "%s" AGX_INTERPRETER_HOME "/lib/python3.%u", s->tree, minor) < 0)
                return agx_trace(-ENOMEM);
        return agx_tree_walk(from, copy_entry, &(copying){to}, why);
}

static int link_names(const agx_stage *s, unsigned minor, agx_why *why)
{
        static const char *const names[] = {"python3", "python"};
        char target[32];

        snprintf(target, sizeof(target), "python3.%u", minor);
        for (size_t k = 0; k < COUNT(names); k++) {
                _cleanup_(agx_freep) char *path = NULL;

                if (asprintf(&path, "%s" AGX_INTERPRETER_HOME "/bin/%s", s->tree, names[k]) < 0)
                        return agx_trace(-ENOMEM);
                if (symlink(target, path))
                        return agx_why_errno(why, errno, "link %s could not be made", path);
        }
        return 0;
}

/* Threads that are cancelled load it by name; nothing asks for it in a way that the closure could see. */
static int add_hidden(agx_closure *c, agx_why *why)
{
        static const char *const dirs[] = {"/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64",
                                           "/usr/lib"};
        char from[64], to[PATH_MAX];

        snprintf(to, sizeof(to), "%s" AGX_CLOSURE_LIB "/libgcc_s.so.1", c->stage);
        for (size_t k = 0; k < COUNT(dirs) && access(to, F_OK); k++) {
                snprintf(from, sizeof(from), "%s/libgcc_s.so.1", dirs[k]);
                if (!access(from, F_OK)) {
                        int r = agx_closure_add_program(c, from, to, why);

                        if (r)
                                return r;
                }
        }
        return 0;
}

static int make_closure(const agx_interpreter *i, const agx_stage *s, const agx_tools *tools, agx_strv *missing,
                        agx_why *why)
{
        _cleanup_(agx_closure_deinitp) agx_closure c = AGX_CLOSURE_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv dirs = AGX_STRV_NULL;
        _cleanup_(agx_freep) char *exe = NULL, *root = NULL;
        int r;

        if (asprintf(&exe, "%s" AGX_INTERPRETER_HOME "/bin/python3.%u", s->tree, i->minor) < 0 ||
            asprintf(&root, "%s" AGX_INTERPRETER_HOME "/lib", s->tree) < 0)
                return agx_trace(-ENOMEM);
        agx_strv_add_str(&dirs, i->libdir);
        c.stage = s->tree;
        c.patchelf = tools->patchelf;
        c.dirs = &dirs;
        r = agx_closure_add_program(&c, i->exe, exe, why);
        if (!r)
                r = agx_closure_add(&c, root, why);
        if (!r)
                r = add_hidden(&c, why);
        for (size_t k = 0; !r && k < c.missing.count; k++)
                agx_strv_add_str(missing, c.missing.items[k]);
        return r ? r : agx_strv_end(missing);
}

static int make_layer(const agx_interpreter *i, const agx_stage *s, const agx_tools *tools, agx_strv *missing,
                      agx_why *why)
{
        _cleanup_(agx_freep) char *home = agx_tree_join(s->tree, &AGX_INTERPRETER_HOME[1]);
        _cleanup_(agx_strv_deinitp) agx_strv changed = AGX_STRV_NULL;
        char root[64];
        int r = home ? copy_library(s, i->stdlib, i->minor, why) : agx_trace(-ENOMEM);

        if (!r && strcmp(i->stdlib, i->platstdlib))
                r = copy_library(s, i->platstdlib, i->minor, why);
        if (!r)
                r = agx_venv_fix_shebangs(home, &changed, why);
        if (!r)
                r = make_closure(i, s, tools, missing, why);
        if (!r)
                r = link_names(s, i->minor, why);
        snprintf(root, sizeof(root), AGX_INTERPRETER_HOME "/lib/python3.%u", i->minor);
        return r ? r : agx_interpreter_compile(s, i->minor, (const char *const[]){root, NULL}, why);
}

/* What the layer depends on, as a name for it. */
static int name_layer(const agx_interpreter *i, char name[40], agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(64 << 10);
        const char *const paths[] = {i->exe, i->stdlib, i->libdir};
        char digest[AGX_DIGEST_SIZE];
        int r = agx_buf_printf(&text, "%d %s", LAYER_FORMAT, i->version);

        for (size_t k = 0; !r && k < COUNT(paths); k++) {
                struct stat st = {0};

                if (*paths[k] && stat(paths[k], &st))
                        return agx_why_errno(why, errno, "%s could not be looked at", paths[k]);
                r = agx_buf_printf(&text, "\n%s %lld %lld.%09ld", paths[k], (long long)st.st_size,
                                   (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        }
        if (r)
                return agx_trace(-ENOMEM);
        agx_digest_bytes(agx_buf_view(&text), digest);
        snprintf(name, 40, "python-%.24s", digest + 7);
        return 0;
}

/* Beside its place first, so that the layer is whole or not there. Two builds may do so at once; one of them wins. */
static int keep_layer(const agx_stage *s, const char *layer, agx_why *why)
{
        _cleanup_(agx_freep) char *fresh = agx_tree_join(s->dir, "layer"), *from = agx_tree_join(s->nix, "closure");
        int r = fresh && from ? agx_tree_copy_all(from, fresh, why) : agx_trace(-ENOMEM);

        if (!r && rename(fresh, layer) && errno != EEXIST && errno != ENOTEMPTY)
                r = agx_why_errno(why, errno, "%s could not be kept", layer);
        return r;
}

int agx_interpreter_stage(const agx_interpreter *i, const agx_stage *s, const agx_tools *tools, bool *made,
                          agx_strv *missing, agx_why *why)
{
        _cleanup_(agx_freep) char *layer = NULL, *to = agx_tree_join(s->nix, "closure");
        char name[40];
        int r = to ? name_layer(i, name, why) : agx_trace(-ENOMEM);

        if (r)
                return r;
        layer = agx_tree_join(s->cache, name);
        if (!layer)
                return agx_trace(-ENOMEM);
        *made = access(layer, F_OK) != 0;
        if (!*made)
                return agx_tree_copy_all(layer, to, why);
        r = make_layer(i, s, tools, missing, why);
        return r ? r : keep_layer(s, layer, why);
}

int agx_interpreter_compile(const agx_stage *s, unsigned minor, const char *const *roots, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL, env = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(2048);
        int r;

        agx_strv_addf(&argv, AGX_INTERPRETER_HOME "/bin/python3.%u", minor);
        agx_strv_addf(&argv, "-sSBP");
        agx_strv_addf(&argv, "-Wignore");
        agx_strv_addf(&argv, "-c");
        agx_strv_add_str(&argv, compile_all);
        while (*roots)
                agx_strv_add_str(&argv, *roots++);
        agx_strv_addf(&env, "PYTHONHASHSEED=0");
        r = agx_strv_end(&argv) ? agx_strv_end(&argv) : agx_strv_end(&env);
        if (r)
                return r;
        return agx_stage_run(s, (agx_run){.argv = argv.items, .env = env.items, .err = &said}, AGX_JAIL_BARE,
                             "compiling byte code", why);
}
