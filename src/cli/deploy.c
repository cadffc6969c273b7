/*
 * agentix deploy: docker and podman need a bundle in the cache, and the cache is ours, so they are done here; other
 * backends are asked through Python. Nobody can take the name `list`, or those of the two that are built in, unless the
 * distribution that claims them is their own.
 */
#include "bundle/cache.h"
#include "bundle/names.h"
#include "cli/commands.h"
#include "cli/deployed.h"
#include "cli/json_field.h"
#include "cli/plugins.h"
#include "cli/trouble.h"
#include "cli/unpacking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 16 << 20, ANSWER_MAX = 2 << 20 };

/* ---- docker and podman ---- */

typedef struct values {
        const char *bundle;
        const char *name;
        const char *platform;
        const char *engine;
        const char *cache_dir;
        agx_strv run_args;
} values;

static const agx_opt engine_opts[] = {
        {AGX_OPT_ARG, .name = "BUNDLE", .help = "bundle tar (.tar, .tar.zst), as agentix build makes it",
         .offset = offsetof(values, bundle)},
        {AGX_OPT_TEXT, .name = "name", .value = "NAME", .help = "what to call it (NAME:TAG of the bundle)",
         .offset = offsetof(values, name)},
        {AGX_OPT_TEXT, .name = "platform", .value = "PLATFORM", .help = "fail unless the bundle is for it",
         .offset = offsetof(values, platform)},
        {AGX_OPT_TEXT, .name = "container-engine", .value = "ENGINE", .help = "engine that the hints name",
         .offset = offsetof(values, engine)},
        {AGX_OPT_LIST, .name = "run-arg", .value = "ARG", .help = "argument of `run` in the hints; may be repeated",
         .offset = offsetof(values, run_args)},
        {AGX_OPT_TEXT, .name = "bundle-cache-dir", .value = "DIR",
         .help = "where bundles are kept (~/.cache/agentix/bundles)", .offset = offsetof(values, cache_dir)},
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

static void make_hints(agx_deploy_result *result, const values *v, const char *engine)
{
        _cleanup_(agx_buf_deinitp) agx_buf inspect = AGX_BUF_NULL(LIST_MAX), shell = AGX_BUF_NULL(LIST_MAX),
                                           remove = AGX_BUF_NULL(LIST_MAX), mount = AGX_BUF_NULL(8192);

        append_words(&inspect, (const char *[]){"agentix", "bundle", "inspect", result->bundle, NULL});
        add_hint(result, "inspect", &inspect);
        (void)agx_buf_printf(&mount, "type=bind,source=%s/nix,target=/nix,readonly", result->bundle);
        (void)agx_buf_append(&mount, "", 1);
        append_words(&shell, (const char *[]){engine, "run", "--rm", "-it", "--mount", (const char *)mount.data, NULL});
        for (size_t i = 0; i < v->run_args.count; i++)
                append_words(&shell, (const char *[]){v->run_args.items[i], NULL});
        (void)agx_buf_append(&shell, " IMAGE sh", 9);
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

#define ENGINE_TEXT(engine)                                                                                            \
        "The bundle is unpacked into a cache of this machine, under a name computed from its content; sandboxes of "   \
        "the\n" engine " backend bind-mount it read-only at /nix. A bundle that is there already is left as it is.\n"

static const agx_command docker = {
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

static const agx_command podman = {
        .name = "podman",
        .summary = "Unpack a bundle for containers of podman on this machine",
        .text = ENGINE_TEXT("podman"),
        .examples = "  agentix deploy podman dist/my-project-0.1.0-linux-amd64.bundle.tar\n",
        .opts = engine_opts,
        .size = sizeof(values),
        .format = true,
        .run = deploy_podman,
};

/* ---- other backends ---- */

typedef struct other_values {
        const char *bundle;
        const char *name;
        const char *platform;
} other_values;

static const agx_opt other_opts[] = {
        {AGX_OPT_ARG, .name = "BUNDLE", .help = "bundle tar (.tar, .tar.zst), as agentix build makes it",
         .offset = offsetof(other_values, bundle)},
        {AGX_OPT_TEXT, .name = "name", .value = "NAME", .help = "what to call it",
         .offset = offsetof(other_values, name)},
        {AGX_OPT_TEXT, .name = "platform", .value = "PLATFORM", .help = "platform to deploy for",
         .offset = offsetof(other_values, platform)},
        {.kind = AGX_OPT_END},
};

static int cannot_load(agx_cli *cli, const char *name, const char *why)
{
        return agx_say_error(
                &cli->say, &(agx_complaint){"backend", "agentix plugin list shows what is installed", AGX_EXIT_BACKEND},
                "backend '%s' cannot be loaded: %s", name, why);
}

/* {"ok": false, "error": "Type: message"} */
static bool read_failure(agx_view json, agx_buf *text)
{
        agx_json_reader in = agx_json_reader_on(json, 8);
        agx_json_token token = agx_json_next(&in);

        if (token.kind != AGX_JSON_OBJECT)
                return false;
        while ((token = agx_json_next(&in)).kind == AGX_JSON_KEY) {
                bool error = agx_json_is(&token, AGX_VIEW("error"));

                if (!error) {
                        (void)agx_json_skip(&in);
                        continue;
                }
                token = agx_json_next(&in);
                return token.kind == AGX_JSON_STRING && !agx_json_text(&token, text);
        }
        return false;
}

static int report_answer(agx_cli *cli, const char *name, const agx_buf *answer)
{
        _cleanup_(agx_deploy_result_deinitp) agx_deploy_result result = {0};
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);

        if (read_failure(agx_buf_view(answer), &text))
                return agx_say_error(&cli->say, &(agx_complaint){"backend", NULL, AGX_EXIT_FAILURE},
                                     "backend '%s' could not deploy the bundle: %.*s", name, (int)text.len,
                                     (const char *)text.data + text.head);
        if (!agx_deploy_result_read(&result, agx_buf_view(answer)))
                return agx_say_error(&cli->say, &(agx_complaint){"backend", NULL, AGX_EXIT_FAILURE},
                                     "backend '%s' gave an answer that is none", name);
        return agx_deploy_result_print(cli, &result);
}

static int deploy_other(agx_cli *cli, void *values_)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_buf_deinitp) agx_buf answer = AGX_BUF_NULL(ANSWER_MAX);
        const other_values *v = values_;
        const agx_plugin *plugin;
        char why[1024];
        int r = agx_plugins_init(&plugins);

        plugin = r ? NULL : agx_plugins_find(&plugins, AGX_GROUP_PROVIDERS, cli->child);
        if (!r && access(v->bundle, R_OK) < 0)
                return agx_say_error(&cli->say, &(agx_complaint){"bundle", NULL, AGX_EXIT_FAILURE},
                                     "cannot open the bundle %s: %s", v->bundle, strerror(errno));
        if (plugin && plugin->conflict)
                return cannot_load(cli, cli->child, plugin->conflict);
        if (plugin)
                r = agx_plugins_deploy(&plugins, plugin, v->bundle, v->name, v->platform, &answer, why, sizeof(why));
        if (r == AGX_PLUGINS_E_DIED)
                return cannot_load(cli, cli->child, why);
        return r || !plugin ? agx_say_no_memory(&cli->say) : report_answer(cli, cli->child, &answer);
}

static int deploy_broken(agx_cli *cli, void *unused)
{
        (void)unused;
        return cannot_load(cli, cli->child, cli->trouble);
}

static const agx_command other = {
        .summary = "Deploy a bundle to a backend of another distribution",
        .opts = other_opts,
        .size = sizeof(other_values),
        .format = true,
        .run = deploy_other,
};

static const agx_command broken = {
        .summary = "A backend that cannot be loaded",
        .opts = other_opts,
        .size = sizeof(other_values),
        .format = true,
        .run = deploy_broken,
};

/* A backend from a plugin is a child command if it can deploy; a broken one is one too, and says why. */
static const agx_command *find_other(agx_cli *cli, const char *name)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_probe_deinitp) agx_probe probe = {0};
        const agx_plugin *plugin;

        if (agx_plugins_init(&plugins))
                return NULL;
        plugin = agx_plugins_find(&plugins, AGX_GROUP_PROVIDERS, name);
        if (!plugin || agx_plugins_probe(&plugins, plugin, &probe))
                return NULL;
        if (probe.ok)
                return probe.deploys ? &other : NULL;
        snprintf(cli->trouble, sizeof(cli->trouble), "%s", probe.error);
        return &broken;
}

/* ---- which there are ---- */

typedef struct backend {
        const char *name;
        const char *dist;
        const char *version;
        const char *summary; /* NULL: no deploy subcommand */
        const char *error;   /* NULL: fine */
} backend;

typedef int (*backend_visit)(const backend *b, void *user);

static const agx_command *const built_in[] = {&docker, &podman};

static const agx_command *find_built_in(const char *name)
{
        for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++)
                if (!strcmp(built_in[i]->name, name))
                        return built_in[i];
        return NULL;
}

static int visit_built_in(const agx_plugins *plugins, const agx_command *command, backend_visit visit, void *user)
{
        const agx_plugin *plugin = agx_plugins_find(plugins, AGX_GROUP_PROVIDERS, command->name);
        backend b = {.name = command->name, .dist = "agentix", .version = AGX_VERSION, .summary = command->summary};

        if (plugin) {
                b.dist = plugin->dist;
                b.version = plugin->version;
        }
        return visit(&b, user);
}

static int visit_plugin(const agx_plugins *plugins, const agx_plugin *plugin, backend_visit visit, void *user)
{
        _cleanup_(agx_probe_deinitp) agx_probe probe = {0};
        backend b = {.name = plugin->name, .dist = plugin->dist, .version = plugin->version};
        int r = agx_plugins_probe(plugins, plugin, &probe);

        if (r)
                return r;
        b.error = probe.error;
        b.summary = probe.ok && probe.deploys ? probe.summary : NULL;
        return visit(&b, user);
}

/* The built-in ones first, then those of plugins by name. */
static int each_backend(backend_visit visit, void *user)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        int r = agx_plugins_init(&plugins);

        for (size_t i = 0; !r && i < sizeof(built_in) / sizeof(built_in[0]); i++)
                r = visit_built_in(&plugins, built_in[i], visit, user);
        if (r)
                return r;
        agx_list_foreach_safe(link, &plugins.list)
        {
                const agx_plugin *plugin = agx_container_of(link, agx_plugin, node);

                if (strcmp(plugin->group, AGX_GROUP_PROVIDERS) || find_built_in(plugin->name))
                        continue;
                r = visit_plugin(&plugins, plugin, visit, user);
                if (r)
                        return r;
        }
        return 0;
}

/* ---- list ---- */

typedef struct listing {
        agx_cli *cli;
        agx_json_writer json;
        agx_strv without; /* name, dist@version, ... */
} listing;

static int list_one(const backend *b, void *user)
{
        listing *l = user;

        if (!b->summary && !b->error) {
                agx_strv_add_str(&l->without, b->name);
                agx_strv_addf(&l->without, "%s@%s", b->dist, b->version);
                return agx_strv_end(&l->without);
        }
        if (l->cli->say.json) {
                agx_json_put_object(&l->json);
                agx_json_field(&l->json, "name", b->name);
                agx_json_field(&l->json, "source", b->dist);
                agx_json_field(&l->json, "version", b->version);
                agx_json_field(&l->json, "summary", b->summary ? b->summary : "");
                if (b->error)
                        agx_json_field(&l->json, "error", b->error);
                agx_json_put_object_end(&l->json);
                return 0;
        }
        agx_say_data_view(&l->cli->say, agx_view_str(b->name));
        agx_say_data(&l->cli->say, "  %s@%s  %s", b->dist, b->version, b->error ? "ERROR  " : "");
        agx_say_data_view(&l->cli->say, agx_view_str(b->error ? b->error : b->summary));
        agx_say_data(&l->cli->say, "\n");
        return 0;
}

static int finish_json(listing *l, agx_buf *out)
{
        agx_json_put_array_end(&l->json);
        agx_json_put_key(&l->json, AGX_VIEW("providers_without_deploy"));
        agx_json_put_array(&l->json);
        for (size_t i = 0; i < l->without.count; i += 2)
                agx_json_put_string(&l->json, agx_view_str(l->without.items[i]));
        agx_json_put_array_end(&l->json);
        agx_json_put_object_end(&l->json);
        if (agx_json_writer_end(&l->json))
                return agx_say_no_memory(&l->cli->say);
        agx_say_data_json(&l->cli->say, out);
        return AGX_EXIT_OK;
}

static int run_list(agx_cli *cli, void *unused)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        listing l = {.cli = cli, .json = agx_json_writer_on(&out)};
        int r;

        (void)unused;
        agx_json_put_object(&l.json);
        agx_json_put_key(&l.json, AGX_VIEW("deploy"));
        agx_json_put_array(&l.json);
        r = each_backend(list_one, &l);
        if (r)
                r = agx_say_no_memory(&cli->say);
        else if (cli->say.json)
                r = finish_json(&l, &out);
        else if (l.without.count)
                agx_say_data(&cli->say, "\ninstalled providers without a deploy subcommand\n");
        for (size_t i = 0; !r && !cli->say.json && i < l.without.count; i += 2)
                agx_say_data(&cli->say, "  %s  %s\n", l.without.items[i], l.without.items[i + 1]);
        agx_strv_deinit(&l.without);
        return r;
}

static const agx_command list = {
        .name = "list",
        .summary = "List the backends that bundles can be deployed to",
        .format = true,
        .run = run_list,
};

/* ---- help ---- */

static int help_one(const backend *b, void *user)
{
        FILE *to = user;

        if (find_built_in(b->name) || (!b->summary && !b->error))
                return 0;
        fprintf(to, "  %-14s%s%s (%s@%s)\n", b->name, b->error ? "ERROR  " : "", b->error ? b->error : b->summary,
                b->dist, b->version);
        return 0;
}

static void more_help(agx_cli *cli, FILE *to)
{
        (void)cli;
        (void)each_backend(help_one, to);
}

static const agx_command *const children[] = {&docker, &podman, &list, NULL};

const agx_command agx_command_deploy = {
        .name = "deploy",
        .summary = "Bring a bundle to where a backend can start it",
        .examples = "  agentix deploy docker dist/x.bundle.tar\n"
                    "  agentix deploy list\n",
        .children = children,
        .find = find_other,
        .more = more_help,
};
