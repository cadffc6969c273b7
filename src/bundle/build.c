/*
 * First everything is found out that can be wrong with the request, then the inputs are summed up: if the tar of the same
 * inputs is still there, that was it. Otherwise a stage is opened and the steps run over it, one after the other; whatever
 * happens, the stage is removed, and the tar appears only when all is well.
 */
#include "bundle/build.h"
#include "base/err.h"
#include "bundle/checks.h"
#include "bundle/closure.h"
#include "bundle/context.h"
#include "bundle/digest.h"
#include "bundle/engine.h"
#include "bundle/interpreter.h"
#include "bundle/manifest.h"
#include "bundle/names.h"
#include "bundle/nix.h"
#include "bundle/npm.h"
#include "bundle/records.h"
#include "bundle/runtime.h"
#include "bundle/sbom.h"
#include "bundle/state.h"
#include "bundle/tarball.h"
#include "bundle/tree.h"
#include "bundle/venv.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

typedef struct job {
        const agx_build_request *request;
        agx_build_result *result;
        agx_tools tools;
        agx_context context;
        agx_records about; /* what agentix._project says */
        agx_interpreter python;
        agx_stage stage;
        agx_strv own, changed, missing, closures;
        agx_npm_list npm;
        char *place; /* of the sources in the jail */
        unsigned minor;
        bool own_platform;
        agx_why *why;
} job;

static void job_deinit(job *j)
{
        agx_tools_deinit(&j->tools);
        agx_context_deinit(&j->context);
        agx_records_deinit(&j->about);
        agx_interpreter_deinit(&j->python);
        agx_stage_close(&j->stage);
        agx_strv_deinit(&j->own);
        agx_strv_deinit(&j->changed);
        agx_strv_deinit(&j->missing);
        agx_strv_deinit(&j->closures);
        agx_npm_list_deinit(&j->npm);
        free(j->place);
}

AGX_DEFINE_CLEANUP(job, job_deinit)

void agx_build_result_deinit(agx_build_result *r)
{
        free(r->name);
        free(r->tag);
        free(r->output);
        free(r->context);
        free(r->subpath);
        free(r->python);
        free(r->staged);
        agx_strv_deinit(&r->npm);
        *r = (agx_build_result){0};
}

__attribute__((format(printf, 3, 4))) static void tell(const job *j, bool step, const char *format, ...)
{
        char text[1024];
        va_list args;

        va_start(args, format);
        vsnprintf(text, sizeof(text), format, args);
        va_end(args);
        if (j->request->tell)
                j->request->tell(j->request->user, step, text);
}

/* ---- what is asked for ---- */

static int check_project(job *j)
{
        _cleanup_(agx_freep) char *toml = agx_tree_join(j->request->path, "pyproject.toml");
        struct stat st;

        if (!toml)
                return agx_trace(-ENOMEM);
        if (stat(j->request->path, &st) || !S_ISDIR(st.st_mode))
                return agx_why_set(j->why, "project", "%s is not a directory", j->request->path);
        if (stat(toml, &st) || !S_ISREG(st.st_mode)) {
                agx_why_set(j->why, "project", "missing pyproject.toml in %s", j->request->path);
                return agx_why_hint(j->why, "name the directory of a Python project, or make one with `uv init`");
        }
        return 0;
}

static int choose_platform(job *j)
{
        const char *own = agx_names_own_platform();

        j->result->platform = j->request->platform ? agx_names_platform(j->request->platform) : own;
        if (!j->result->platform) {
                j->why->exit_code = 2;
                return agx_why_set(j->why, "usage", "unknown platform '%s': choose linux/amd64 or linux/arm64",
                                   j->request->platform ? j->request->platform : "of this machine");
        }
        j->own_platform = own && !strcmp(own, j->result->platform);
        if (j->request->dry_run || j->request->engine || j->own_platform)
                return 0;
        agx_why_set(j->why, "platform", "this machine cannot build for %s", j->result->platform);
        return agx_why_hint(j->why, "build inside an engine that runs that platform: --container-engine docker");
}

static int describe(job *j)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        const char *key, *value;
        int r;

        agx_strv_add_str(&argv, j->tools.python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._project");
        agx_strv_addf(&argv, "describe");
        agx_strv_addf(&argv, "%s/%s", j->context.root, strcmp(j->context.subpath, ".") ? j->context.subpath : "");
        agx_strv_add_str(&argv, j->context.root);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_records_ask(&j->about, argv.items, j->why);
        while (!r && agx_records_next(&j->about, &key, &value))
                if (!strcmp(key, "own"))
                        agx_strv_add_str(&j->own, value);
                else
                        r = agx_npm_list_take(&j->npm, j->result->platform, key, value);
        return r ? r : agx_strv_end(&j->own);
}

/* For the result and the manifest, in the order of the names. */
static int list_npm(const job *j, bool integrity, agx_strv *out)
{
        for (size_t i = 0; i < j->npm.count; i++) {
                const agx_npm_package *p = &j->npm.items[i];

                if (p->wanted)
                        agx_strv_addf(out, "%s@%s%s%s", p->name, p->version, integrity ? "=" : "",
                                      integrity ? p->integrity : "");
        }
        return agx_strv_end(out);
}

static int choose_names(job *j)
{
        agx_build_result *out = j->result;
        struct stat st;
        bool is_dir = j->request->output && !stat(j->request->output, &st) && S_ISDIR(st.st_mode);
        int r = agx_names_choose(j->request->name, agx_records_get(&j->about, "name"),
                                 agx_records_get(&j->about, "version"), &out->name, &out->tag, j->why);

        if (r)
                return r;
        out->output =
                agx_names_output(j->request->output, is_dir, out->name, out->tag, out->platform, j->request->zstd);
        if (!out->output)
                return agx_trace(-ENOMEM);
        out->zstd = agx_names_is_zstd(out->output) || (j->request->zstd && j->request->output);
        return 0;
}

static int choose_python(job *j)
{
        const char *requires = agx_records_get(&j->about, "requires-python");

        j->minor = agx_names_python_minor(requires);
        if (!j->minor) {
                agx_why_set(j->why, "python", "requires-python = \"%s\" allows none of Python 3.11 to 3.13", requires);
                return agx_why_hint(j->why, "bundles are built for Python 3.11, 3.12 and 3.13");
        }
        return asprintf(&j->result->python, "3.%u", j->minor) < 0 ? agx_trace(-ENOMEM) : 0;
}

static int understand(job *j)
{
        _cleanup_(agx_freep) char *cwd = getcwd(NULL, 0), *build = cwd ? agx_tree_join(cwd, "build") : NULL;
        int r = build ? check_project(j) : agx_trace(-ENOMEM);

        if (!r)
                r = choose_platform(j);
        if (!r)
                r = agx_tools_find(&j->tools, !j->request->dry_run && j->own_platform, j->why);
        if (!r)
                r = agx_context_find(&j->context, j->request->path, j->request->context,
                                     j->request->dry_run ? build : NULL, j->why);
        if (!r)
                r = describe(j);
        if (!r)
                r = choose_names(j);
        if (!r)
                r = choose_python(j);
        if (!r)
                r = list_npm(j, false, &j->result->npm);
        if (r)
                return r;
        j->context.except = NULL;
        j->result->context = strdup(j->context.root);
        j->result->subpath = strdup(j->context.subpath);
        return j->result->context && j->result->subpath ? 0 : agx_trace(-ENOMEM);
}

/* ---- a dry run ---- */

static int dry_run(job *j)
{
        _cleanup_(agx_freep) char *name = agx_names_sanitise(j->result->name), *repo = NULL;
        int r;

        if (!name)
                return agx_trace(-ENOMEM);
        if (!strcmp(name, ".") || !strcmp(name, ".."))
                return agx_why_set(j->why, "usage", "a bundle named '%s' would be staged outside of build/",
                                   j->result->name);
        if (asprintf(&j->result->staged, "build/%s", name) < 0 || !(repo = agx_tree_join(j->result->staged, "repo")))
                return agx_trace(-ENOMEM);
        r = agx_tree_remove(j->result->staged, j->why);
        return r ? r : agx_context_copy(&j->context, repo, j->why);
}

/* ---- the steps ---- */

static int stage_sources(job *j)
{
        _cleanup_(agx_closep) int dir = -1;
        char digest[AGX_DIGEST_SIZE];
        int r;

        tell(j, true, "copying %zu files", j->context.files.count);
        r = agx_context_copy(&j->context, j->stage.src, j->why);
        if (r)
                return r;
        dir = open(j->stage.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = dir < 0 ? -errno : agx_digest_tree(dir, "src", AGX_VIEW_NULL, digest);
        if (r)
                return agx_why_errno(j->why, r < 0 ? r : EINVAL, "%s could not be read", j->stage.src);
        return asprintf(&j->place, "/agentix-build/%.32s", digest + 7) < 0 ? agx_trace(-ENOMEM) : 0;
}

static int stage_python(job *j)
{
        bool made = false;
        int r;

        tell(j, true, "bringing Python %s", j->python.version);
        r = agx_interpreter_stage(&j->python, &j->stage, &j->tools, &made, &j->missing, j->why);
        return r ? r : agx_runtime_stage(&j->stage, &j->tools, &j->missing, j->why);
}

static int stage_venv(job *j)
{
        _cleanup_(agx_strv_deinitp) agx_strv lacking = AGX_STRV_NULL;
        agx_venv_plan plan = {.stage = &j->stage,
                              .tools = &j->tools,
                              .python = &j->python,
                              .place = j->place,
                              .context = j->context.root,
                              .subpath = j->context.subpath,
                              .lock = agx_records_get(&j->about, "lock"),
                              .own = &j->own,
                              .uv_args = &j->request->uv_args,
                              .platform = j->result->platform,
                              .quiet = j->request->quiet};
        int r;

        if (!plan.lock)
                tell(j, false, "no uv.lock: the newest versions that fit are taken");
        tell(j, true, "installing the project with uv");
        r = agx_venv_sync(&plan, j->why);
        if (!r)
                r = agx_venv_add_own(&plan, &j->closures, &j->npm, &lacking, j->why);
        for (size_t i = 0; !r && i < lacking.count; i++)
                tell(j, false, "warning: %s, which the project does not bring", lacking.items[i]);
        return r ? r : agx_venv_tidy(&j->stage, &j->changed, j->why);
}

static int stage_nix(job *j)
{
        agx_nix_job nix = {&j->stage, j->place, &j->request->nix_args, j->request->quiet};
        const char *file = agx_records_get(&j->about, "nix");
        int r = 0;

        if (file) {
                _cleanup_(agx_freep) char *path = NULL;

                if (asprintf(&path, "%s/%s", j->context.subpath, file) < 0)
                        return agx_trace(-ENOMEM);
                tell(j, true, "building %s with Nix", file);
                r = agx_nix_add(&nix, file, path, j->why);
        }
        for (size_t i = 0; !r && i < j->closures.count; i++) {
                _cleanup_(agx_freep) char *label = strdup(j->closures.items[i]);
                char *path = label ? strchr(label, '\t') : NULL;

                if (!path)
                        return agx_trace(-ENOMEM);
                *path++ = 0;
                tell(j, true, "building the Nix closure '%s'", label);
                r = agx_nix_add(&nix, label, path, j->why);
        }
        return r;
}

static void tell_fetch(void *user, const char *name, const char *version)
{
        tell(user, true, "fetching %s@%s with npm", name, version);
}

static agx_npm_job npm_job(job *j)
{
        const char *offer = getenv("AGENTIX_BUILD_NPM"); /* set by a build that runs us in a container */

        return (agx_npm_job){.stage = &j->stage,
                             .tools = &j->tools,
                             .cwd = j->request->path,
                             .offer = offer && *offer ? offer : NULL,
                             .tell = tell_fetch,
                             .user = j};
}

/* First those that the project names, which is quick to say whether they can be had; then those of what it depends on. */
static int fetch_npm(job *j)
{
        agx_npm_job npm = npm_job(j);

        if (j->npm.count)
                tell(j, true, "unpacking npm packages");
        return agx_npm_unpack(&npm, &j->npm, j->why);
}

static int stage_npm(job *j)
{
        agx_npm_job npm = npm_job(j);
        int r = fetch_npm(j);

        return r ? r : agx_npm_link(&npm, &j->npm, &j->changed, j->why);
}

static int close_over(job *j)
{
        _cleanup_(agx_closure_deinitp) agx_closure c = AGX_CLOSURE_NULL;
        _cleanup_(agx_freep) char *venv = agx_tree_join(j->stage.tree, &AGX_VENV[1]),
                                  *npm = agx_tree_join(j->stage.tree, &AGX_NPM_MODULES[1]);
        int r;

        tell(j, true, "bringing libraries");
        c.stage = j->stage.tree;
        c.patchelf = j->tools.patchelf;
        r = venv && npm ? agx_closure_add(&c, venv, j->why) : agx_trace(-ENOMEM);
        c.spares_tails = true;
        if (!r && !access(npm, F_OK))
                r = agx_closure_add(&c, npm, j->why);
        for (size_t i = 0; !r && i < c.spared.count; i++)
                tell(j, false,
                     "warning: %s carries data at its end and is left as it is: it runs where the image has its loader",
                     c.spared.items[i]);
        for (size_t i = 0; !r && i < c.changed.count; i++)
                agx_strv_add_str(&j->changed, c.changed.items[i]);
        for (size_t i = 0; !r && i < c.missing.count; i++)
                agx_strv_add_str(&j->missing, c.missing.items[i]);
        for (size_t i = 0; !r && i < j->missing.count; i++)
                tell(j, false, "warning: %s, which this machine does not have", j->missing.items[i]);
        return r ? r : agx_venv_settle_records(&j->stage, j->minor, &j->changed, j->why);
}

static int compile_and_check(job *j)
{
        _cleanup_(agx_strv_deinitp) agx_strv odd = AGX_STRV_NULL;
        char site[64];
        int r;

        tell(j, true, "compiling byte code");
        snprintf(site, sizeof(site), AGX_VENV "/lib/python3.%u/site-packages", j->minor);
        r = agx_interpreter_compile(&j->stage, j->minor, (const char *const[]){site, NULL}, j->why);
        if (r)
                return r;
        tell(j, true, "importing extension modules in an empty root");
        r = agx_checks_imports(&j->stage, j->minor, &odd, j->why);
        for (size_t i = 0; !r && i < odd.count; i++)
                tell(j, true, "not imported: %s", odd.items[i]);
        if (!r)
                r = agx_sbom_write(&j->stage, j->result->name, j->result->tag, j->python.version, &j->npm, j->why);
        return r ? r : agx_checks_links(&j->stage, j->why);
}

static int make_manifest(const job *j, agx_manifest *m)
{
        int r = agx_manifest_set_env(m);

        if (!r)
                r = list_npm(j, true, &m->npm);
        m->name = strdup(j->result->name);
        m->tag = strdup(j->result->tag);
        m->platform = strdup(j->result->platform);
        m->nix_system = strdup(agx_names_nix_system(j->result->platform));
        m->entrypoint = strdup(AGX_MANIFEST_ENTRYPOINT);
        return r || !m->name || !m->tag || !m->platform || !m->nix_system || !m->entrypoint ? agx_trace(-ENOMEM) : 0;
}

static int compute_digest(job *j, const agx_manifest *m)
{
        _cleanup_(agx_buf_deinitp) agx_buf lines = AGX_BUF_NULL(AGX_MANIFEST_LINES_MAX);
        _cleanup_(agx_closep) int dir = open(j->stage.tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = dir < 0 ? -errno : agx_manifest_lines(m, &lines);

        if (!r)
                r = agx_digest_tree(dir, "nix", agx_buf_view(&lines), j->result->digest);
        return r ? agx_why_errno(j->why, r < 0 ? r : EINVAL, "the digest of %s could not be computed", j->stage.tree)
                 : 0;
}

static int pack(job *j)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(AGX_MANIFEST_MAX);
        int r = make_manifest(j, &m);

        tell(j, true, "computing the digest");
        if (!r)
                r = compute_digest(j, &m);
        if (r)
                return r;
        m.digest = strdup(j->result->digest);
        r = m.digest ? agx_manifest_write(&m, &json) : agx_trace(-ENOMEM);
        if (r)
                return r == -EINVAL ? agx_why_set(j->why, "usage", "the bundle's name is not UTF-8") : r;
        tell(j, true, "packing %s", j->result->output);
        return agx_tarball_write(j->result->output, agx_buf_view(&json), j->stage.tree, j->result->zstd,
                                 &j->result->size, j->why);
}

static int run_steps(job *j)
{
        static int (*const steps[])(job *) = {fetch_npm, stage_sources, stage_python,      stage_venv, stage_nix,
                                              stage_npm, close_over,    compile_and_check, pack};
        int r = agx_stage_open(&j->stage, j->why);

        for (size_t i = 0; !r && i < sizeof(steps) / sizeof(steps[0]); i++)
                r = steps[i](j);
        tell(j, true, "%s", "");
        return r;
}

/* The tar is made in the stage by whoever the container runs as, and copied: it is to be ours. */
static int take_bundle(job *j, const char *bundle)
{
        _cleanup_(agx_freep) char *fresh = NULL;
        struct stat st;
        int r;

        if (asprintf(&fresh, "%s.%u", j->result->output, (unsigned)getpid()) < 0)
                return agx_trace(-ENOMEM);
        r = agx_tree_remove(fresh, j->why);
        if (!r)
                r = agx_tree_copy(bundle, fresh, j->why);
        if (!r && (stat(fresh, &st) || rename(fresh, j->result->output)))
                r = agx_why_errno(j->why, errno, "%s could not be written", j->result->output);
        if (r)
                unlink(fresh);
        else
                j->result->size = (uint64_t)st.st_size;
        return r;
}

/* The image need not have npm, nor what it takes to reach the registry. */
static int gather_npm(job *j, agx_engine_job *inside)
{
        agx_npm_job npm = npm_job(j);

        if (!j->result->npm.count)
                return 0;
        inside->npm = agx_tree_join(j->stage.dir, "archives");
        return inside->npm ? agx_npm_gather(&npm, &j->npm, inside->npm, j->why) : agx_trace(-ENOMEM);
}

static int run_engine(job *j)
{
        const agx_build_request *q = j->request;
        _cleanup_(agx_freep) char *bundle = NULL;
        agx_engine_job inside = {.stage = &j->stage,
                                 .tools = &j->tools,
                                 .engine = q->engine,
                                 .image = q->image,
                                 .args = &q->engine_args,
                                 .run_args = &q->engine_run_args,
                                 .uv_args = &q->uv_args,
                                 .nix_args = &q->nix_args,
                                 .context = j->context.root,
                                 .subpath = j->context.subpath,
                                 .name = j->result->name,
                                 .tag = j->result->tag,
                                 .platform = j->result->platform,
                                 .minor = j->minor,
                                 .own_platform = j->own_platform,
                                 .zstd = j->result->zstd,
                                 .quiet = q->quiet};
        int r;

        tell(j, true, "building inside %s", q->engine);
        r = agx_engine_check(&inside, j->why);
        if (!r)
                r = agx_stage_open(&j->stage, j->why);
        if (!r)
                r = agx_context_copy(&j->context, j->stage.src, j->why);
        if (!r)
                r = gather_npm(j, &inside);
        if (!r)
                r = agx_engine_build(&inside, &bundle, j->result->digest, j->why);
        free(inside.npm);
        return r ? r : take_bundle(j, bundle);
}

/* ---- the whole ---- */

static int sum_up(job *j, char sum[AGX_DIGEST_SIZE])
{
        const agx_build_request *q = j->request;
        const char *stamp = agx_records_get(&j->about, "stamp");
        const char *const files[] = {"/proc/self/exe", j->tools.runtime, j->tools.uv,   j->tools.patchelf,
                                     j->tools.busybox, j->tools.bash,    j->python.exe, NULL};
        const char *const words[] = {q->engine ? q->engine : "",
                                     q->image ? q->image : "",
                                     j->result->name,
                                     j->result->tag,
                                     j->result->platform,
                                     j->result->zstd ? "zstd" : "tar",
                                     j->context.subpath,
                                     j->python.version ? j->python.version : "",
                                     stamp ? stamp : "",
                                     NULL};

        return agx_state_sum(&(agx_state_inputs){.words = words,
                                                 .files = files,
                                                 .lists = {&q->uv_args, &q->nix_args, &q->engine_args,
                                                           &q->engine_run_args},
                                                 .root = j->context.root,
                                                 .tree = &j->context.files},
                             sum, j->why);
}

static int find_python(job *j)
{
        int r = agx_interpreter_find(&j->python, &j->tools, j->minor, agx_records_get(&j->about, "requires-python"),
                                     j->why);

        if (r)
                return r;
        free(j->result->python);
        j->result->python = strdup(j->python.version);
        return j->result->python ? 0 : agx_trace(-ENOMEM);
}

static int real_build(job *j)
{
        char sum[AGX_DIGEST_SIZE];
        int r = j->request->engine ? 0 : find_python(j);

        if (!r)
                r = sum_up(j, sum);
        if (r)
                return r;
        if (!j->request->fresh && agx_state_is(j->result->output, sum, j->result->digest, &j->result->size)) {
                j->result->reused = true;
                return 0;
        }
        r = j->request->engine ? run_engine(j) : run_steps(j);
        if (!r)
                agx_state_keep(j->result->output, sum, j->result->digest);
        return r;
}

int agx_build(const agx_build_request *request, agx_build_result *result, agx_why *why)
{
        _cleanup_(job_deinitp) job j = {
                .request = request, .result = result, .stage = AGX_STAGE_NULL, .about = AGX_RECORDS_NULL, .why = why};
        int r;

        *result = (agx_build_result){0};
        r = understand(&j);
        if (!r)
                r = request->dry_run ? dry_run(&j) : real_build(&j);
        if (r)
                agx_build_result_deinit(result);
        return r;
}
