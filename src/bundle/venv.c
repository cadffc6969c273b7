/*
 * uv runs in the jail, so the environment is made at the very path at which it will be used, and nothing in it needs to be
 * relocated. The copy of the context lies at a path that says what is in it: uv keeps wheels of local projects by their
 * path, so equal sources share one and different ones never do.
 */
#include "bundle/venv.h"
#include "base/err.h"
#include "bundle/records.h"
#include "bundle/tree.h"

#include <stdio.h>

extern char **environ;

/* ---- uv ---- */

static const char *const dropped[] = {
        "PYTHONPATH",       "PYTHONHOME",          "PYTHONSTARTUP",
        "VIRTUAL_ENV",      "CONDA_PREFIX",        "UV_PROJECT_ENVIRONMENT",
        "UV_PYTHON",        "UV_FROZEN",           "UV_LOCKED",
        "UV_NO_SYNC",       "UV_LINK_MODE",        "UV_COMPILE_BYTECODE",
        "UV_PROJECT",       "UV_WORKING_DIR",      "UV_DEV",
        "UV_NO_EDITABLE",   "LD_PRELOAD",          "LD_LIBRARY_PATH",
        "UV_SYSTEM_PYTHON", "UV_PYTHON_DOWNLOADS", "__PYVENV_LAUNCHER__",
};

static bool is_dropped(agx_view variable)
{
        agx_view name;

        agx_view_split(&variable, '=', &name);
        for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
                if (agx_view_eq(name, agx_view_str(dropped[i])))
                        return true;
        return false;
}

static int make_env(agx_strv *env)
{
        for (size_t i = 0; environ[i]; i++)
                if (!is_dropped(agx_view_str(environ[i])))
                        agx_strv_add_str(env, environ[i]);
        agx_strv_set(env, AGX_VIEW("VIRTUAL_ENV"), AGX_VIEW(AGX_VENV));
        agx_strv_set(env, AGX_VIEW("UV_PYTHON_DOWNLOADS"), AGX_VIEW("never"));
        /* The closure is rewritten in place: a hard link would lead into uv's cache. */
        agx_strv_set(env, AGX_VIEW("UV_LINK_MODE"), AGX_VIEW("copy"));
        return agx_strv_end(env);
}

typedef struct uv_run {
        agx_strv argv, env;
        char *cwd;
} uv_run;

static void uv_deinit(uv_run *u)
{
        agx_strv_deinit(&u->argv);
        agx_strv_deinit(&u->env);
        free(u->cwd);
        *u = (uv_run){0};
}

AGX_DEFINE_CLEANUP(uv_run, uv_deinit)

static int uv_init(uv_run *u, const agx_venv_plan *p)
{
        *u = (uv_run){0};
        agx_strv_add_str(&u->argv, p->tools->uv);
        if (p->quiet)
                agx_strv_addf(&u->argv, "--quiet");
        if (asprintf(&u->cwd, "%s/%s", p->place, p->subpath) < 0) {
                u->cwd = NULL;
                return agx_trace(-ENOMEM);
        }
        return make_env(&u->env);
}

static int uv_go(uv_run *u, const agx_venv_plan *p, agx_buf *said, int *status, agx_why *why)
{
        _cleanup_(agx_freep) char *include = NULL, *there = NULL;
        agx_jail jail = {.kind = AGX_JAIL_MACHINE, .root = p->stage->root, .nix = p->stage->nix};
        agx_jail_bind binds[2] = {{p->stage->src, p->place}};
        int r = agx_strv_end(&u->argv);

        jail.binds = binds;
        jail.n_binds = 1;
        if (asprintf(&there, AGX_INTERPRETER_HOME "/include/python3.%u", p->python->minor) < 0 ||
            asprintf(&include, "%s" AGX_INTERPRETER_HOME "/include", p->stage->tree) < 0)
                return agx_trace(-ENOMEM);
        if (!r && !access(p->python->include, X_OK))
                binds[jail.n_binds++] = (agx_jail_bind){p->python->include, there};
        if (!r)
                r = agx_run_wait(
                        &(agx_run){
                                .argv = u->argv.items, .env = u->env.items, .cwd = u->cwd, .jail = &jail, .err = said},
                        status, why);
        /* The mount point of the headers, which source distributions are compiled with and a bundle does not need. */
        return r ? r : agx_tree_remove(include, why);
}

static int check_lock(const agx_venv_plan *p, agx_why *why)
{
        _cleanup_(uv_deinitp) uv_run u;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(8192);
        int status, r = uv_init(&u, p);

        agx_strv_addf(&u.argv, "lock");
        agx_strv_addf(&u.argv, "--check");
        agx_strv_addf(&u.argv, "--python");
        agx_strv_addf(&u.argv, AGX_INTERPRETER_HOME "/bin/python3.%u", p->python->minor);
        if (!r)
                r = uv_go(&u, p, &said, &status, why);
        if (r || !status)
                return r;
        if (!memmem(agx_buf_view(&said).p, said.len, "needs to be updated", 19) &&
            !memmem(agx_buf_view(&said).p, said.len, "requires-python", 15))
                return agx_why_set(why, "lock", "uv.lock could not be checked: %.*s", (int)said.len,
                                   agx_buf_view(&said).p);
        agx_why_set(why, "lock", "uv.lock is out of date: it does not match pyproject.toml");
        return agx_why_hint(why, "run `uv lock` in the project, then build again");
}

static int failed(const char *what, const char *program, int status, agx_why *why)
{
        why->exit_code = status;
        return agx_why_set(why, "uv", "%s %s exited with code %d", program, what, status);
}

static int make_venv(const agx_venv_plan *p, agx_why *why)
{
        _cleanup_(uv_deinitp) uv_run u;
        _cleanup_(agx_buf_deinitp) agx_buf said = AGX_BUF_NULL(8192);
        int status, r = uv_init(&u, p);

        agx_strv_addf(&u.argv, "venv");
        agx_strv_addf(&u.argv, "--no-project");
        agx_strv_addf(&u.argv, "--prompt");
        agx_strv_addf(&u.argv, "agentix");
        agx_strv_addf(&u.argv, "--python");
        agx_strv_addf(&u.argv, AGX_INTERPRETER_HOME "/bin/python3.%u", p->python->minor);
        agx_strv_addf(&u.argv, AGX_VENV);
        if (!r)
                r = uv_go(&u, p, &said, &status, why);
        if (r || !status)
                return r;
        return agx_why_set(why, "uv", "%s venv exited with code %d: %.*s", p->tools->uv, status, (int)said.len,
                           agx_buf_view(&said).p);
}

static int sync_venv(const agx_venv_plan *p, agx_why *why)
{
        _cleanup_(uv_deinitp) uv_run u;
        int status, r = uv_init(&u, p);

        agx_strv_addf(&u.argv, "sync");
        agx_strv_addf(&u.argv, "--active");
        if (p->lock)
                agx_strv_addf(&u.argv, "--frozen");
        agx_strv_addf(&u.argv, "--no-dev");
        agx_strv_addf(&u.argv, "--no-editable");
        for (size_t i = 0; i < p->own->count; i++) {
                agx_strv_addf(&u.argv, "--no-install-package");
                agx_strv_add_str(&u.argv, p->own->items[i]);
        }
        for (size_t i = 0; i < p->uv_args->count; i++)
                agx_strv_add_str(&u.argv, p->uv_args->items[i]);
        if (!r)
                r = uv_go(&u, p, NULL, &status, why);
        return !r && status ? failed("sync", p->tools->uv, status, why) : r;
}

/* Without a lock ours must not be looked for on an index, where the names may be anybody's. */
static int keep_from_index(const agx_venv_plan *p, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;

        agx_strv_add_str(&argv, p->tools->python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._project");
        agx_strv_addf(&argv, "keep-from-index");
        agx_strv_addf(&argv, "%s/%s/pyproject.toml", p->stage->src, p->subpath);
        return agx_strv_end(&argv) ? agx_strv_end(&argv) : agx_records_ask(&answer, argv.items, why);
}

int agx_venv_sync(const agx_venv_plan *p, agx_why *why)
{
        int r = p->lock ? check_lock(p, why) : keep_from_index(p, why);

        if (!r)
                r = make_venv(p, why);
        return r ? r : sync_venv(p, why);
}

/* ---- our own ---- */

typedef struct own_copy {
        const agx_venv_plan *plan;
        char *site;
        agx_buf record; /* the RECORD of the distribution at hand */
} own_copy;

static int copy_own(own_copy *c, const char *file, const char *from, agx_why *why)
{
        _cleanup_(agx_freep) char *to = agx_tree_join(c->site, file);
        int r = to ? agx_tree_copy(from, to, why) : agx_trace(-ENOMEM);

        if (!r && agx_buf_printf(&c->record, "\"%s\",,\n", file))
                r = agx_trace(-ENOMEM);
        return r;
}

static int end_own(own_copy *c, const char *info, agx_why *why)
{
        _cleanup_(agx_freep) char *path = NULL, *installer = NULL;
        int r;

        if (asprintf(&path, "%s/%s/RECORD", c->site, info) < 0 ||
            asprintf(&installer, "%s/%s/INSTALLER", c->site, info) < 0 ||
            agx_buf_printf(&c->record, "\"%s/INSTALLER\",,\n\"%s/RECORD\",,\n", info, info))
                return agx_trace(-ENOMEM);
        r = agx_tree_write(installer, AGX_VIEW("agentix"), 0644, why);
        if (!r)
                r = agx_tree_write(path, agx_buf_view(&c->record), 0644, why);
        agx_buf_clear(&c->record);
        return r;
}

static int take_own(own_copy *c, agx_records *answer, agx_strv *closures, agx_npm_list *npm, agx_strv *lacking,
                    agx_why *why)
{
        const char *key, *value, *file = NULL;
        int r = 0;

        while (!r && agx_records_next(answer, &key, &value)) {
                if (!strcmp(key, "file"))
                        file = value;
                else if (!strcmp(key, "from") && file)
                        r = copy_own(c, file, value, why);
                else if (!strcmp(key, "info"))
                        r = end_own(c, value, why);
                else if (!strcmp(key, "closure"))
                        agx_strv_add_str(closures, value);
                else if (!strcmp(key, "lacking"))
                        agx_strv_add_str(lacking, value);
                else
                        r = agx_npm_list_take(npm, c->plan->platform, key, value);
        }
        return r ? r : agx_strv_end(closures) ? agx_strv_end(closures) : agx_strv_end(lacking);
}

int agx_venv_add_own(const agx_venv_plan *p, agx_strv *closures, agx_npm_list *npm, agx_strv *lacking, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        own_copy c = {.plan = p, .record = AGX_BUF_NULL(16 << 20)};
        int r;

        if (asprintf(&c.site, "%s" AGX_VENV "/lib/python3.%u/site-packages", p->stage->tree, p->python->minor) < 0)
                return agx_trace(-ENOMEM);
        agx_strv_add_str(&argv, p->tools->python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._project");
        agx_strv_addf(&argv, "own");
        agx_strv_add_str(&argv, c.site);
        agx_strv_addf(&argv, "%s/%s", p->context, p->subpath); /* the copy may be rewritten */
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_records_ask(&answer, argv.items, why);
        if (!r)
                r = take_own(&c, &answer, closures, npm, lacking, why);
        free(c.site);
        agx_buf_deinit(&c.record);
        return r;
}
