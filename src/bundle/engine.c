/*
 * The kit is a directory of programs and files of ours, made into an environment by the image's own Python inside the
 * container, so nothing of the image needs to be known. The container may mount (SYS_ADMIN, no seccomp profile), for inside
 * it the build makes the same private namespace as anywhere else.
 */
#include "bundle/engine.h"
#include "base/err.h"
#include "bundle/digest.h"
#include "bundle/records.h"
#include "bundle/tree.h"
#include "oci/engine.h"
#include "wire/json.h"

#include <limits.h>
#include <stdio.h>

enum { ANSWER_MAX = 64 << 10, EXIT_BACKEND = 4 };

extern char **environ;

static const char with_kit[] = "set -e\n"
                               "python3 -m venv --without-pip /tmp/agentix\n"
                               "cp -R /agentix/site/. /tmp/agentix/lib/python3.*/site-packages/\n"
                               "cp /agentix/bin/* /tmp/agentix/bin/\n"
                               "exec /tmp/agentix/bin/agentix \"$@\"\n";
static const char without_kit[] = "exec agentix \"$@\"\n";

/* ---- the kit ---- */

static int copy_program(const char *from, const char *kit, const char *name, agx_why *why)
{
        _cleanup_(agx_freep) char *real = realpath(from, NULL), *to = NULL;

        if (!real)
                return agx_why_errno(why, errno, "%s could not be read", from);
        if (asprintf(&to, "%s/bin/%s", kit, name) < 0)
                return agx_trace(-ENOMEM);
        return agx_tree_copy(real, to, why);
}

static int copy_site(const agx_records *answer, const char *kit, agx_why *why)
{
        agx_records rest = *answer;
        const char *key, *value, *file = NULL;
        int r = 0;

        rest.at = 0;
        while (!r && agx_records_next(&rest, &key, &value)) {
                _cleanup_(agx_freep) char *to = NULL;

                if (!strcmp(key, "file"))
                        file = value;
                if (strcmp(key, "from") || !file)
                        continue;
                if (asprintf(&to, "%s/site/%s", kit, file) < 0)
                        return agx_trace(-ENOMEM);
                r = agx_tree_copy(value, to, why);
        }
        return r;
}

/* Lists of files go along, or the inner build would not know what to take. */
static int make_records(const agx_records *answer, const char *kit, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf record = AGX_BUF_NULL(16 << 20);
        agx_records rest = *answer;
        const char *key, *value;
        int r = 0;

        rest.at = 0;
        while (!r && agx_records_next(&rest, &key, &value)) {
                _cleanup_(agx_freep) char *path = NULL;

                if (!strcmp(key, "file") && agx_buf_printf(&record, "\"%s\",,\n", value))
                        return agx_trace(-ENOMEM);
                if (strcmp(key, "info"))
                        continue;
                if (asprintf(&path, "%s/site/%s/RECORD", kit, value) < 0)
                        return agx_trace(-ENOMEM);
                r = agx_tree_write(path, agx_buf_view(&record), 0644, why);
                agx_buf_clear(&record);
        }
        return r;
}

static int make_kit(const agx_engine_job *job, const char *kit, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records answer = AGX_RECORDS_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        int r = copy_program("/proc/self/exe", kit, "agentix", why);

        if (!r)
                r = copy_program(job->tools->runtime, kit, "agentix-runtime", why);
        if (!r)
                r = copy_program(job->tools->uv, kit, "uv", why);
        if (!r)
                r = copy_program(job->tools->patchelf, kit, "patchelf", why);
        if (!r)
                r = copy_program(job->tools->busybox, kit, "busybox", why);
        agx_strv_add_str(&argv, job->tools->python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._project");
        agx_strv_addf(&argv, "own");
        agx_strv_addf(&argv, "%s/bin", kit); /* no packages there: what the project itself names */
        agx_strv_addf(&argv, "%s/%s", job->context, job->subpath);
        if (!r)
                r = agx_strv_end(&argv);
        if (!r)
                r = agx_records_ask(&answer, argv.items, why);
        if (!r)
                r = copy_site(&answer, kit, why);
        return r ? r : make_records(&answer, kit, why);
}

/* ---- the run ---- */

static void add_mount(agx_strv *argv, const char *from, const char *to, bool writable)
{
        agx_strv_addf(argv, "--mount");
        agx_strv_addf(argv, "type=bind,source=%s,target=%s%s", from, to, writable ? "" : ",readonly");
}

/* uv's settings by name only: values, which may be secret, stay in the environment. */
static void add_settings(agx_strv *argv)
{
        for (size_t i = 0; environ[i]; i++) {
                agx_view rest = agx_view_str(environ[i]), name;

                agx_view_split(&rest, '=', &name);
                if (!agx_view_starts(name, AGX_VIEW("UV_")) || agx_view_eq(name, AGX_VIEW("UV_CACHE_DIR")))
                        continue;
                agx_strv_addf(argv, "--env");
                agx_strv_add(argv, name);
        }
}

static void add_inner(const agx_engine_job *job, const char *file, agx_strv *argv)
{
        agx_strv_addf(argv, "build");
        agx_strv_addf(argv, "/src/%s", job->subpath);
        agx_strv_addf(argv, "--name=%s:%s", job->name, job->tag);
        agx_strv_addf(argv, "--platform=%s", job->platform);
        agx_strv_addf(argv, "--output=/out/%s", file);
        agx_strv_addf(argv, "--format=json");
        if (job->quiet)
                agx_strv_addf(argv, "--quiet");
        for (size_t i = 0; i < job->uv_args->count; i++)
                agx_strv_addf(argv, "--uv-arg=%s", job->uv_args->items[i]);
        for (size_t i = 0; i < job->nix_args->count; i++)
                agx_strv_addf(argv, "--nix-arg=%s", job->nix_args->items[i]);
}

static int make_argv(const agx_engine_job *job, const char *engine, const char *kit, const char *out, const char *file,
                     agx_strv *argv)
{
        static const char *const rights[] = {"--cap-add",          "SYS_ADMIN",      "--security-opt",
                                             "seccomp=unconfined", "--security-opt", "apparmor=unconfined"};

        agx_strv_add_str(argv, engine);
        for (size_t i = 0; i < job->args->count; i++)
                agx_strv_add_str(argv, job->args->items[i]);
        agx_strv_addf(argv, "run");
        agx_strv_addf(argv, "--rm");
        agx_strv_addf(argv, "--platform=%s", job->platform);
        for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
                agx_strv_add_str(argv, rights[i]);
        add_mount(argv, job->stage->src, "/src", false);
        add_mount(argv, out, "/out", true);
        if (kit)
                add_mount(argv, kit, "/agentix", false);
        agx_strv_addf(argv, "--env");
        agx_strv_addf(argv, "AGENTIX_BUILD_CONTEXT=/src");
        if (job->npm) {
                add_mount(argv, job->npm, "/archives", false);
                agx_strv_addf(argv, "--env");
                agx_strv_addf(argv, "AGENTIX_BUILD_NPM=/archives");
        }
        add_settings(argv);
        for (size_t i = 0; i < job->run_args->count; i++)
                agx_strv_add_str(argv, job->run_args->items[i]);
        agx_strv_addf(argv, "--entrypoint=/bin/sh");
        if (job->image)
                agx_strv_add_str(argv, job->image);
        else
                agx_strv_addf(argv, "python:3.%u-slim", job->minor);
        agx_strv_addf(argv, "-c");
        agx_strv_add_str(argv, kit ? with_kit : without_kit);
        agx_strv_addf(argv, "agentix");
        add_inner(job, file, argv);
        return agx_strv_end(argv);
}

/* The digest in the JSON object that the inner build printed. */
static bool take_digest(const agx_buf *answer, char *digest)
{
        agx_json_reader r = agx_json_reader_on(agx_view_trim(agx_buf_view(answer)), 4);
        agx_json_token token = agx_json_next(&r);

        while ((token = agx_json_next(&r)).kind == AGX_JSON_KEY) {
                bool it = agx_json_is(&token, AGX_VIEW("digest"));
                agx_view raw = agx_json_skip(&r);

                if (it && raw.n == AGX_DIGEST_SIZE + 1 && agx_digest_is(agx_view_of(raw.p + 1, raw.n - 2))) {
                        memcpy(digest, raw.p + 1, AGX_DIGEST_SIZE - 1);
                        digest[AGX_DIGEST_SIZE - 1] = 0;
                        return true;
                }
        }
        return false;
}

static int run(const agx_engine_job *job, const agx_strv *argv, char *digest, agx_why *why)
{
        _cleanup_(agx_buf_deinitp) agx_buf answer = AGX_BUF_NULL(ANSWER_MAX);
        int status, r = agx_run_wait(&(agx_run){.argv = argv->items, .out = &answer}, &status, why);

        if (r)
                return r;
        if (status) {
                why->exit_code = status;
                return agx_why_set(why, "engine", "%s run … exited with code %d", job->engine, status);
        }
        if (!take_digest(&answer, digest))
                return agx_why_set(why, "engine", "the build inside %s gave no digest", job->engine);
        return 0;
}

static int find_engine(const agx_engine_job *job, char **engine, agx_why *why)
{
        const char *path = getenv("PATH");

        if (!agx_oci_find(agx_view_str(job->engine), agx_view_str(path ? path : ""), engine))
                return 0;
        why->exit_code = EXIT_BACKEND;
        agx_why_set(why, "backend", "container engine '%s' not found on PATH", job->engine);
        return agx_why_hint(why, "install it, or name another one with --container-engine");
}

/* ---- whether it can be done ---- */

static int probe_argv(const agx_engine_job *job, const char *engine, agx_strv *argv)
{
        agx_strv_add_str(argv, engine);
        for (size_t i = 0; i < job->args->count; i++)
                agx_strv_add_str(argv, job->args->items[i]);
        agx_strv_addf(argv, "run");
        agx_strv_addf(argv, "--rm");
        agx_strv_addf(argv, "--platform=%s", job->platform);
        for (size_t i = 0; i < job->run_args->count; i++)
                agx_strv_add_str(argv, job->run_args->items[i]);
        agx_strv_addf(argv, "--entrypoint=agentix");
        agx_strv_add_str(argv, job->image);
        agx_strv_addf(argv, "--version");
        return agx_strv_end(argv);
}

/* The last line, but for docker's "Run 'docker run --help' for more information" (or "See ..."). */
static agx_view last_line(const agx_buf *text)
{
        agx_view rest = agx_buf_view(text), line, last = AGX_VIEW_NULL;

        while (text->len && agx_view_split(&rest, '\n', &line)) {
                line = agx_view_trim(line);
                if (line.n && !agx_view_starts(line, AGX_VIEW("Run '")) && !agx_view_starts(line, AGX_VIEW("See '")))
                        last = line;
        }
        return last;
}

static int cannot_run(const agx_engine_job *job, int status, const agx_buf *said, agx_why *why)
{
        agx_view line = last_line(said);
        bool foreign = said->len && memmem(said->data + said->head, said->len, "xec format error", 16);

        why->exit_code = status;
        agx_why_set(why, "platform", "%s run … exited with code %d: it does not run agentix of %s for %s: %.*s",
                    job->engine, status, job->image, job->platform, (int)line.n, line.n ? line.p : "");
        if (foreign)
                return agx_why_hint(why,
                                    "programs of that platform need a machine of its kind, or an emulator where the "
                                    "engine runs (on Debian: apt install qemu-user-static binfmt-support)");
        return agx_why_hint(why, "--container-image names an image for that platform with agentix in it");
}

/* The image says its version of agentix, which takes an image of that platform and a machine that runs it. */
static int probe(const agx_engine_job *job, const char *engine, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(ANSWER_MAX), said = AGX_BUF_NULL(2048);
        int status, r = probe_argv(job, engine, &argv);

        if (!r)
                r = agx_run_wait(&(agx_run){.argv = argv.items, .out = &out, .err = &said}, &status, why);
        return r || !status ? r : cannot_run(job, status, &said, why);
}

int agx_engine_check(const agx_engine_job *job, agx_why *why)
{
        _cleanup_(agx_freep) char *engine = NULL;
        int r = find_engine(job, &engine, why);

        if (r || job->own_platform)
                return r;
        if (job->image)
                return probe(job, engine, why);
        agx_why_set(why, "engine", "a bundle for %s is built in an image that has agentix for it", job->platform);
        return agx_why_hint(why, "name one: --container-image IMAGE");
}

/* ---- the contract ---- */

int agx_engine_build(const agx_engine_job *job, char **bundle, char *digest, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_freep) char *engine = NULL, *kit = agx_tree_join(job->stage->dir, "kit"),
                                  *out = agx_tree_join(job->stage->dir, "out");
        const char *file = job->zstd ? "it.bundle.tar.zst" : "it.bundle.tar";
        int r = kit && out ? find_engine(job, &engine, why) : agx_trace(-ENOMEM);

        if (!r && strpbrk(job->stage->dir, ",\""))
                r = agx_why_set(why, "engine", "%s cannot be mounted: its name has a comma or a quote in it",
                                job->stage->dir);
        if (!r)
                r = agx_tree_make(out, why);
        if (!r && job->own_platform)
                r = make_kit(job, kit, why);
        if (!r)
                r = make_argv(job, engine, job->own_platform ? kit : NULL, out, file, &argv);
        if (!r)
                r = run(job, &argv, digest, why);
        if (r)
                return r;
        *bundle = agx_tree_join(out, file);
        return *bundle ? 0 : agx_trace(-ENOMEM);
}
