/* agentix config show: the settings of this command that come from somewhere else than its line, and from where. */
#include "bundle/cache.h"
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/plugins.h"

#include <stdlib.h>

enum { LIST_MAX = 1 << 20 };

static const char *first_set(const char *const *names)
{
        for (; *names; names++) {
                const char *value = getenv(*names);

                if (value && *value)
                        return *names;
        }
        return "default";
}

static void show(agx_cli *cli, agx_json_writer *w, const char *name, const char *value, const char *from)
{
        agx_json_put_object(w);
        agx_json_field(w, "name", name);
        agx_json_field(w, "value", value);
        agx_json_field(w, "from", from);
        agx_json_put_object_end(w);
        if (cli->say.json)
                return;
        agx_say_data(&cli->say, "%s -> ", name);
        agx_say_data_view(&cli->say, agx_view_str(value ? value : "none"));
        agx_say_data(&cli->say, "  (%s)\n", from);
}

static int show_all(agx_cli *cli, agx_json_writer *w)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_buf_deinitp) agx_buf path = AGX_BUF_NULL(LIST_MAX);
        _cleanup_(agx_freep) char *cache = agx_cache_where(NULL);
        int r = agx_plugins_init(&plugins);

        for (size_t i = 0; !r && i < plugins.path.count; i++)
                r = agx_buf_printf(&path, i ? ":%s" : "%s", plugins.path.items[i]);
        if (!r)
                r = agx_buf_append(&path, "", 1);
        if (r)
                return r;
        show(cli, w, "bundle-cache-dir", cache,
             first_set((const char *[]){"AGENTIX_BUNDLE_CACHE_DIR", "XDG_CACHE_HOME", NULL}));
        show(cli, w, "python", plugins.python, first_set((const char *[]){"AGENTIX_PYTHON", NULL}));
        show(cli, w, "python-path", (const char *)path.data + path.head,
             first_set((const char *[]){"AGENTIX_PYTHON_PATH", NULL}));
        show(cli, w, "color", cli->say.color_out ? "on" : "off",
             first_set((const char *[]){"NO_COLOR", "CLICOLOR_FORCE", NULL}));
        return 0;
}

static int run_show(agx_cli *cli, void *unused)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(2 * LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);

        (void)unused;
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("settings"));
        agx_json_put_array(&w);
        if (show_all(cli, &w))
                return agx_say_no_memory(&cli->say);
        agx_json_put_array_end(&w);
        agx_json_put_object_end(&w);
        if (!cli->say.json)
                return AGX_EXIT_OK;
        if (agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, &out);
        return AGX_EXIT_OK;
}

static const agx_command show_command = {
        .name = "show",
        .summary = "Show settings and where each comes from",
        .format = true,
        .run = run_show,
};

static const agx_command *const children[] = {&show_command, NULL};

const agx_command agx_command_config = {
        .name = "config",
        .summary = "Look at settings",
        .children = children,
};
