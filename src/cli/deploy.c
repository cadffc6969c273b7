/*
 * agentix deploy: which backends there are. Nobody can take the name `list`, or those of the three that are built in, unless the
 * distribution that claims them is their own.
 */
#include "cli/commands.h"
#include "cli/deploy_backends.h"
#include "cli/json_field.h"
#include "cli/plugins.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 16 << 20 };

/* ---- which there are ---- */

typedef struct backend {
        const char *name;
        const char *dist;
        const char *version;
        const char *summary; /* NULL: no deploy subcommand */
        const char *error;   /* NULL: fine */
} backend;

typedef int (*backend_visit)(const backend *b, void *user);

static const agx_command *const built_in[] = {&agx_deploy_docker, &agx_deploy_podman, &agx_deploy_apptainer};

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

static const agx_command *const children[] = {&agx_deploy_docker, &agx_deploy_podman, &agx_deploy_apptainer, &list,
                                              NULL};

const agx_command agx_command_deploy = {
        .name = "deploy",
        .summary = "Bring a bundle to where a backend can start it",
        .examples = "  agentix deploy docker dist/x.bundle.tar\n"
                    "  agentix deploy list\n",
        .children = children,
        .find = agx_deploy_find,
        .more = more_help,
};
