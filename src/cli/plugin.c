/* agentix plugin list: what is installed on two axes, and whether it can be loaded. It reports; it never fails over it. */
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/plugins.h"

#include <string.h>

enum { LIST_MAX = 16 << 20 };

typedef struct axis {
        const char *group;
        const char *key; /* in JSON */
        const char *heading;
} axis;

static const axis axes[] = {
        {AGX_GROUP_PROVIDERS, "providers", "providers (host-side sandbox backends)"},
        {AGX_GROUP_NIX, "nix", "nix closures (sandbox-side system deps)"},
};

enum { AXES = sizeof(axes) / sizeof(axes[0]) };

static void put_json(agx_json_writer *w, const agx_plugin *plugin, const agx_probe *probe)
{
        agx_json_put_object(w);
        agx_json_field(w, "name", plugin->name);
        agx_json_field(w, "status", probe->ok ? "ok" : "error");
        agx_json_field(w, "source", plugin->conflict ? plugin->conflict : plugin->dist);
        agx_json_field(w, "version", plugin->conflict ? NULL : plugin->version);
        agx_json_field(w, "error", probe->error);
        agx_json_put_object_end(w);
}

static void print_row(agx_cli *cli, const agx_plugin *plugin, const agx_probe *probe)
{
        agx_say_data(&cli->say, "  ");
        agx_say_data_view(&cli->say, agx_view_str(plugin->name));
        if (probe->ok) {
                agx_say_data(&cli->say, "  ok  (%s@%s)\n", plugin->dist, plugin->version);
                return;
        }
        agx_say_data(&cli->say, "  ERROR  ");
        agx_say_data_view(&cli->say, agx_view_str(probe->error));
        agx_say_data(&cli->say, "\n");
}

static int show_axis(agx_cli *cli, const agx_plugins *plugins, const axis *a, agx_json_writer *w)
{
        unsigned n = 0;

        agx_list_foreach_safe(link, &plugins->list)
        {
                const agx_plugin *plugin = agx_container_of(link, agx_plugin, node);
                _cleanup_(agx_probe_deinitp) agx_probe probe = {0};
                int r = strcmp(plugin->group, a->group) ? 1 : agx_plugins_probe(plugins, plugin, &probe);

                if (r < 0)
                        return r;
                if (r)
                        continue;
                n++;
                if (cli->say.json)
                        put_json(w, plugin, &probe);
                else
                        print_row(cli, plugin, &probe);
        }
        if (!n && !cli->say.json)
                agx_say_data(&cli->say, "  none installed\n");
        return 0;
}

static int show_all(agx_cli *cli, const agx_plugins *plugins, agx_json_writer *w)
{
        for (size_t i = 0; i < AXES; i++) {
                int r;

                if (cli->say.json) {
                        agx_json_put_key(w, agx_view_str(axes[i].key));
                        agx_json_put_array(w);
                } else {
                        agx_say_data(&cli->say, "%s%s\n", i ? "\n" : "", axes[i].heading);
                }
                r = show_axis(cli, plugins, &axes[i], w);
                if (r)
                        return r;
                if (cli->say.json)
                        agx_json_put_array_end(w);
        }
        return 0;
}

static void say_nothing_installed(agx_cli *cli)
{
        agx_say_data(
                &cli->say,
                "no Agentix plugins installed\n\n"
                "hint: agentix-provider-docker runs sandboxes in containers: pip install agentix-provider-docker\n"
                "hint: agentix-runtime-basic adds basic system tools to bundles: pip install agentix-runtime-basic\n");
}

static int run_list(agx_cli *cli, void *unused)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        int r = agx_plugins_init(&plugins);

        (void)unused;
        if (!r && !cli->say.json && agx_list_empty(&plugins.list)) {
                say_nothing_installed(cli);
                return AGX_EXIT_OK;
        }
        agx_json_put_object(&w);
        if (!r)
                r = show_all(cli, &plugins, &w);
        agx_json_put_object_end(&w);
        if (r || (cli->say.json && agx_json_writer_end(&w)))
                return agx_say_no_memory(&cli->say);
        if (cli->say.json)
                agx_say_data_json(&cli->say, &out);
        return AGX_EXIT_OK;
}

static const agx_command list = {
        .name = "list",
        .summary = "List installed plugins and whether they can be loaded",
        .format = true,
        .run = run_list,
};

static const agx_command *const children[] = {&list, NULL};

const agx_command agx_command_plugin = {
        .name = "plugin",
        .summary = "Look at installed plugins",
        .children = children,
};
