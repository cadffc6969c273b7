/* agentix build: the words around bundle/build.h. */
#include "bundle/build.h"
#include "bundle/run.h"
#include "cli/commands.h"
#include "cli/trouble.h"
#include "wire/json.h"

#include <stddef.h>

enum { JSON_MAX = 64 << 10 };

typedef struct options {
        const char *path;
        const char *name;
        const char *output;
        const char *platform;
        int zstd;
        bool dry_run;
        bool fresh;
        agx_strv uv_args;
        agx_strv nix_args;
        const char *engine;
        const char *image;
        agx_strv engine_args;
        agx_strv engine_run_args;
} options;

static const agx_opt opts[] = {
        {.kind = AGX_OPT_ARG_MAYBE,
         .name = "PATH",
         .help = "directory of the project (.)",
         .offset = offsetof(options, path)},
        {.kind = AGX_OPT_TEXT,
         .name = "name",
         .value = "NAME[:TAG]",
         .offset = offsetof(options, name),
         .setting = AGX_SETTING_BUILD_NAME,
         .help = "name and tag (the project's name without agentix-, its version)"},
        {.kind = AGX_OPT_TEXT,
         .letter = 'o',
         .name = "output",
         .value = "PATH",
         .offset = offsetof(options, output),
         .setting = AGX_SETTING_BUILD_OUTPUT,
         .help = "where the tar goes; compressed if it ends in .zst (dist/NAME-TAG-PLATFORM.bundle.tar)"},
        {.kind = AGX_OPT_SWITCH,
         .name = "zstd",
         .offset = offsetof(options, zstd),
         .setting = AGX_SETTING_BUILD_ZSTD,
         .help = "compress: make a .bundle.tar.zst"},
        {.kind = AGX_OPT_TEXT,
         .name = "platform",
         .value = "PLATFORM",
         .offset = offsetof(options, platform),
         .setting = AGX_SETTING_BUILD_PLATFORM,
         .help = "linux/amd64 or linux/arm64 (the machine's own)"},
        {.kind = AGX_OPT_FLAG,
         .name = "dry-run",
         .offset = offsetof(options, dry_run),
         .help = "only stage the project's files in build/NAME and say what would be built"},
        {.kind = AGX_OPT_FLAG,
         .name = "fresh",
         .offset = offsetof(options, fresh),
         .help = "build even if nothing has changed since the last time"},
        {.kind = AGX_OPT_LIST,
         .name = "uv-arg",
         .value = "ARG",
         .offset = offsetof(options, uv_args),
         .setting = AGX_SETTING_BUILD_UV_ARGS,
         .help = "further argument for `uv sync`; may be repeated"},
        {.kind = AGX_OPT_LIST,
         .name = "nix-arg",
         .value = "ARG",
         .offset = offsetof(options, nix_args),
         .setting = AGX_SETTING_BUILD_NIX_ARGS,
         .help = "further argument for `nix-build`; may be repeated"},
        {.kind = AGX_OPT_TEXT,
         .name = "container-engine",
         .value = "ENGINE",
         .offset = offsetof(options, engine),
         .setting = AGX_SETTING_BUILD_ENGINE,
         .help = "build inside a container of this engine, e.g. docker"},
        {.kind = AGX_OPT_TEXT,
         .name = "container-image",
         .value = "IMAGE",
         .offset = offsetof(options, image),
         .setting = AGX_SETTING_BUILD_IMAGE,
         .help = "image it runs (python:3.N-slim); for another platform one that has agentix"},
        {.kind = AGX_OPT_LIST,
         .name = "container-arg",
         .value = "ARG",
         .offset = offsetof(options, engine_args),
         .setting = AGX_SETTING_BUILD_ENGINE_ARGS,
         .help = "argument of the engine, before `run`; may be repeated"},
        {.kind = AGX_OPT_LIST,
         .name = "container-run-arg",
         .value = "ARG",
         .offset = offsetof(options, engine_run_args),
         .setting = AGX_SETTING_BUILD_RUN_ARGS,
         .help = "argument of its `run`; may be repeated"},
        {0},
};

static void tell(void *user, bool step, const char *text)
{
        agx_cli *cli = user;

        if (!step)
                agx_say_note(&cli->say, "%s", text);
        else if (cli->say.verbose && *text)
                agx_say_detail(&cli->say, "%s", text);
        else
                agx_say_progress(&cli->say, "%s", text);
}

static void put(agx_json_writer *w, const char *key, const char *text)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_string(w, agx_view_str(text));
}

static void put_npm(agx_json_writer *w, const agx_strv *packages)
{
        agx_json_put_key(w, AGX_VIEW("npm"));
        agx_json_put_array(w);
        for (size_t i = 0; i < packages->count; i++)
                agx_json_put_string(w, agx_view_str(packages->items[i]));
        agx_json_put_array_end(w);
}

static int say_json(agx_cli *cli, const agx_build_result *r)
{
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(JSON_MAX);
        agx_json_writer w = agx_json_writer_on(&json);

        agx_json_put_object(&w);
        put(&w, "bundle", r->output);
        put(&w, "name", r->name);
        put(&w, "tag", r->tag);
        put(&w, "platform", r->platform);
        put(&w, "format", r->zstd ? "tar.zst" : "tar");
        put(&w, "python", r->python);
        put(&w, "context", r->context);
        put(&w, "project", r->subpath);
        if (r->npm.count)
                put_npm(&w, &r->npm);
        if (r->staged) {
                put(&w, "staged", r->staged);
        } else {
                put(&w, "digest", r->digest);
                agx_json_put_key(&w, AGX_VIEW("size"));
                agx_json_put_u64(&w, r->size);
                agx_json_put_key(&w, AGX_VIEW("reused"));
                agx_json_put_bool(&w, r->reused);
        }
        agx_json_put_object_end(&w);
        if (agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, &json);
        return AGX_EXIT_OK;
}

static int say_dry(agx_cli *cli, const agx_build_result *r)
{
        agx_say_data(&cli->say, "bundle -> %s:%s\n", r->name, r->tag);
        agx_say_data(&cli->say, "format -> %s\n", r->zstd ? "tar.zst" : "tar");
        agx_say_data(&cli->say, "output -> %s\n", r->output);
        agx_say_data(&cli->say, "platform -> %s\n", r->platform);
        agx_say_data(&cli->say, "python -> %s\n", r->python);
        agx_say_data(&cli->say, "context root -> %s\n", r->context);
        agx_say_data(&cli->say, "project sub-path -> %s\n", r->subpath);
        for (size_t i = 0; i < r->npm.count; i++)
                agx_say_data(&cli->say, "npm -> %s\n", r->npm.items[i]);
        agx_say_data(&cli->say, "staged -> %s\n", r->staged);
        return AGX_EXIT_OK;
}

static int say_built(agx_cli *cli, const agx_build_result *r)
{
        agx_say_data(&cli->say, "bundle -> %s\n", r->output);
        agx_say_data(&cli->say, "digest -> %s\n", r->digest);
        agx_say_data(&cli->say, "platform -> %s\n", r->platform);
        agx_say_data(&cli->say, "python -> %s\n", r->python);
        agx_say_data(&cli->say, "size -> %.1f MB\n", (double)r->size / 1e6);
        if (r->reused)
                agx_say_note(&cli->say, "nothing has changed: %s is the tar built before", r->output);
        return AGX_EXIT_OK;
}

static const char *project_of(const void *values)
{
        return ((const options *)values)->path;
}

static int run(agx_cli *cli, void *values)
{
        _cleanup_(agx_build_result_deinitp) agx_build_result result = {0};
        options *o = values;
        agx_why why = AGX_WHY_NULL;
        agx_build_request request = {
                .path = o->path ? o->path : ".",
                .name = o->name,
                .output = o->output,
                .platform = o->platform,
                .zstd = o->zstd > 0,
                .dry_run = o->dry_run,
                .fresh = o->fresh,
                .quiet = cli->say.quiet,
                .uv_args = o->uv_args,
                .nix_args = o->nix_args,
                .engine = o->engine,
                .image = o->image,
                .engine_args = o->engine_args,
                .engine_run_args = o->engine_run_args,
                .context = getenv("AGENTIX_BUILD_CONTEXT"), /* set by a build that runs us in a container */
                .tell = tell,
                .user = cli,
        };
        int r;

        agx_run_catch_signals();
        r = agx_build(&request, &result, &why);
        agx_say_progress(&cli->say, "%s", "");
        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (cli->say.json)
                return say_json(cli, &result);
        return result.staged ? say_dry(cli, &result) : say_built(cli, &result);
}

const agx_command agx_command_build = {
        .name = "build",
        .summary = "Build a bundle from a project",
        .text = "Installs the project with uv, in an environment of its own, and packs it with its interpreter and "
                "all\n"
                "libraries, so that it runs in any Linux image. Neither root nor a container engine is needed.\n",
        .examples = "  agentix build\n"
                    "  agentix build path/to/project --name tasks:1.2 --zstd\n"
                    "  agentix build --output /tmp/tasks.bundle.tar --format json | jq -r .digest\n",
        .opts = opts,
        .size = sizeof(options),
        .format = true,
        .project = project_of,
        .run = run,
};
