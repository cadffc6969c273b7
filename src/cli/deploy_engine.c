/* agentix deploy docker, podman, apptainer: all need a bundle in the cache, and the cache is ours, so they are done here. */
#include "bundle/cache.h"
#include "bundle/names.h"
#include "cli/deploy_backends.h"
#include "cli/deployed.h"
#include "cli/trouble.h"
#include "cli/unpacking.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 16 << 20 };

typedef struct values {
        const char *bundle;
        const char *name;
        const char *platform;
        const char *engine;
        const char *cache_dir;
        agx_strv run_args;
} values;

#define BUNDLE_OPTS                                                                                                    \
        {AGX_OPT_ARG, .name = "BUNDLE", .help = "bundle tar (.tar, .tar.zst), as agentix build makes it",              \
         .offset = offsetof(values, bundle)},                                                                          \
                {AGX_OPT_TEXT, .name = "name", .value = "NAME", .help = "what to call it (NAME:TAG of the bundle)",    \
                 .offset = offsetof(values, name)},                                                                    \
                {AGX_OPT_TEXT, .name = "platform", .value = "PLATFORM", .help = "fail unless the bundle is for it",    \
                 .offset = offsetof(values, platform)},                                                                \
                {AGX_OPT_TEXT,                                                                                         \
                 .name = "bundle-cache-dir",                                                                           \
                 .value = "DIR",                                                                                       \
                 .help = "where bundles are kept (~/.cache/agentix/bundles)",                                          \
                 .offset = offsetof(values, cache_dir),                                                                \
                 .setting = AGX_SETTING_CACHE_DIR},

static const agx_opt apptainer_opts[] = {
        BUNDLE_OPTS{.kind = AGX_OPT_END},
};

static const agx_opt engine_opts[] = {
        BUNDLE_OPTS{AGX_OPT_TEXT, .name = "container-engine", .value = "ENGINE", .help = "engine that the hints name",
                    .offset = offsetof(values, engine)},
        {AGX_OPT_LIST, .name = "run-arg", .value = "ARG", .help = "argument of `run` in the hints; may be repeated",
         .offset = offsetof(values, run_args)},
        {.kind = AGX_OPT_END},
};

/* The platform to report: the bundle's, which must be the one asked for. */
static int choose_platform(const values *v, const agx_manifest *m, agx_why *why)
{
        const char *wish = v->platform ? agx_names_platform(v->platform) : NULL;

        if (v->platform && !wish) {
                why->exit_code = AGX_EXIT_USAGE;
                return agx_why_set(why, "usage", "unknown platform '%s': choose linux/amd64 or linux/arm64",
                                   v->platform);
        }
        if (wish && strcmp(wish, m->platform) != 0) {
                (void)agx_why_hint(why, "agentix build --platform %s makes one for it", wish);
                return agx_why_set(why, "bundle", "the bundle is for %s, not for %s", m->platform, wish);
        }
        return 0;
}

static void add_hint(agx_deploy_result *result, const char *label, const agx_buf *line)
{
        agx_strv_add_str(&result->hints, label);
        agx_strv_add(&result->hints, agx_buf_view(line));
}

static void append_words(agx_buf *line, const char *const *words)
{
        for (; *words; words++) {
                if (line->len)
                        (void)agx_buf_append(line, " ", 1);
                (void)agx_shell_quote(line, *words);
        }
}

static void append_shell(agx_buf *line, const char *bundle, const values *v, const char *engine)
{
        _cleanup_(agx_buf_deinitp) agx_buf mount = AGX_BUF_NULL(8192);
        bool apptainer = !strcmp(engine, "apptainer");

        (void)agx_buf_printf(&mount, apptainer ? "%s/nix:/nix:ro" : "type=bind,source=%s/nix,target=/nix,readonly",
                             bundle);
        (void)agx_buf_append(&mount, "", 1);
        append_words(line, apptainer ? (const char *[]){engine, "shell", "--bind", (const char *)mount.data, NULL}
                                     : (const char *[]){engine, "run", "--rm", "-it", "--mount",
                                                        (const char *)mount.data, NULL});
        for (size_t i = 0; i < v->run_args.count; i++)
                append_words(line, (const char *[]){v->run_args.items[i], NULL});
        (void)agx_buf_printf(line, apptainer ? " IMAGE" : " IMAGE sh");
}

static void make_hints(agx_deploy_result *result, const values *v, const char *engine)
{
        _cleanup_(agx_buf_deinitp) agx_buf inspect = AGX_BUF_NULL(LIST_MAX), shell = AGX_BUF_NULL(LIST_MAX),
                                           remove = AGX_BUF_NULL(LIST_MAX);

        append_words(&inspect, (const char *[]){"agentix", "bundle", "inspect", result->bundle, NULL});
        add_hint(result, "inspect", &inspect);
        append_shell(&shell, result->bundle, v, engine);
        add_hint(result, "look around in a container", &shell);
        append_words(&remove, (const char *[]){"rm", "-rf", result->bundle, NULL});
        add_hint(result, "remove", &remove);
}

static int report(agx_cli *cli, const values *v, const char *engine, const agx_cache *cache, agx_deployed *d)
{
        _cleanup_(agx_deploy_result_deinitp) agx_deploy_result result = {0};
        const agx_manifest *m = &d->unpacked.manifest;

        if (strcmp(m->digest, d->digest) != 0)
                agx_say_warn(&cli->say, "the manifest says the digest is %s, but what was unpacked is %s", m->digest,
                             d->digest);
        if (!d->fresh)
                agx_say_detail(&cli->say, "it was in the cache already");
        result.bundle = strdup(d->path);
        result.platform = strdup(m->platform);
        if (!result.bundle || !result.platform)
                return agx_say_no_memory(&cli->say);
        agx_strv_add_str(&result.metadata, "cache");
        agx_strv_add_str(&result.metadata, cache->path);
        agx_strv_add_str(&result.metadata, "name");
        if (v->name)
                agx_strv_add_str(&result.metadata, v->name);
        else
                agx_strv_addf(&result.metadata, "%s:%s", m->name, m->tag);
        make_hints(&result, v, engine);
        return agx_deploy_result_print(cli, &result);
}

static int deploy_engine(agx_cli *cli, values *v, const char *engine)
{
        _cleanup_(agx_cache_closep) agx_cache cache = AGX_CACHE_NULL;
        _cleanup_(agx_deployed_deinitp) agx_deployed d = {0};
        agx_why why = AGX_WHY_NULL;
        int r = agx_cli_open_cache(&cache, v->cache_dir, true, &why);

        if (!r)
                r = agx_cli_unpack(cli, &cache, v->bundle, agx_cache_deploy, &d, &why);
        if (!r)
                r = choose_platform(v, &d.unpacked.manifest, &why);
        return r ? agx_cli_trouble(cli, r, &why) : report(cli, v, v->engine ? v->engine : engine, &cache, &d);
}

static int deploy_docker(agx_cli *cli, void *v)
{
        return deploy_engine(cli, v, "docker");
}

static int deploy_podman(agx_cli *cli, void *v)
{
        return deploy_engine(cli, v, "podman");
}

static int deploy_apptainer(agx_cli *cli, void *v)
{
        return deploy_engine(cli, v, "apptainer");
}

#define ENGINE_TEXT(engine)                                                                                            \
        "The bundle is unpacked into a cache of this machine, under a name computed from its content; sandboxes of "   \
        "the\n" engine " backend bind-mount it read-only at /nix. A bundle that is there already is left as it is.\n"

const agx_command agx_deploy_docker = {
        .name = "docker",
        .summary = "Unpack a bundle for containers of docker on this machine",
        .text = ENGINE_TEXT("docker"),
        .examples = "  agentix deploy docker dist/my-project-0.1.0-linux-amd64.bundle.tar\n"
                    "  BUNDLE=$(agentix deploy docker dist/x.bundle.tar --format json | jq -r .bundle)\n",
        .opts = engine_opts,
        .size = sizeof(values),
        .format = true,
        .run = deploy_docker,
};

const agx_command agx_deploy_podman = {
        .name = "podman",
        .summary = "Unpack a bundle for containers of podman on this machine",
        .text = ENGINE_TEXT("podman"),
        .examples = "  agentix deploy podman dist/my-project-0.1.0-linux-amd64.bundle.tar\n",
        .opts = engine_opts,
        .size = sizeof(values),
        .format = true,
        .run = deploy_podman,
};

const agx_command agx_deploy_apptainer = {
        .name = "apptainer",
        .summary = "Unpack a bundle for sandboxes of Apptainer on this machine",
        .text = ENGINE_TEXT("apptainer"),
        .examples = "  agentix deploy apptainer dist/my-project-0.1.0-linux-amd64.bundle.tar\n",
        .opts = apptainer_opts,
        .size = sizeof(values),
        .format = true,
        .run = deploy_apptainer,
};
