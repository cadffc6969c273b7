/* agentix config show: every setting, its value, and where that came from. */
#include "bundle/cache.h"
#include "bundle/names.h"
#include "bundle/stage.h"
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/plugins.h"
#include "cli/redact.h"

#include <stdlib.h>

enum { LIST_MAX = 1 << 20 };

typedef struct values {
        const char *path;
} values;

static const agx_opt opts[] = {
        {AGX_OPT_ARG_MAYBE, .name = "PATH", .help = "directory of the project whose settings count (.)",
         .offset = offsetof(values, path)},
        {.kind = AGX_OPT_END},
};

/* ---- what holds if nobody says otherwise ---- */

/* Whatever is read to be shown as a default. */
typedef struct defaults {
        agx_plugins plugins;
        agx_tools tools;
        char *cache, *build_cache;
} defaults;

static int defaults_init(defaults *d)
{
        *d = (defaults){.cache = agx_cache_where(NULL), .build_cache = agx_stage_cache_where()};
        agx_tools_locate(&d->tools);
        return agx_plugins_init(&d->plugins);
}

static void defaults_deinit(defaults *d)
{
        agx_plugins_deinit(&d->plugins);
        agx_tools_deinit(&d->tools);
        free(d->cache);
        free(d->build_cache);
}

AGX_DEFINE_CLEANUP(defaults, defaults_deinit)

static const char *default_text(const defaults *d, agx_setting_id id)
{
        switch (id) {
        case AGX_SETTING_COLOR:
                return "auto";
        case AGX_SETTING_FORMAT:
                return "text";
        case AGX_SETTING_QUIET:
        case AGX_SETTING_VERBOSE:
        case AGX_SETTING_BUILD_ZSTD:
                return "false";
        case AGX_SETTING_CACHE_DIR:
                return d->cache;
        case AGX_SETTING_BUILD_CACHE_DIR:
                return d->build_cache;
        case AGX_SETTING_BUILD_PLATFORM:
                return agx_names_own_platform();
        case AGX_SETTING_PYTHON:
                return d->plugins.python;
        case AGX_SETTING_RUNTIME:
                return d->tools.runtime;
        case AGX_SETTING_UV:
                return d->tools.uv;
        case AGX_SETTING_PATCHELF:
                return d->tools.patchelf;
        case AGX_SETTING_BUSYBOX:
                return d->tools.busybox;
        case AGX_SETTING_BASH:
                return d->tools.bash;
        default:
                return NULL;
        }
}

static int add_python_path(const defaults *d, agx_strv *items)
{
        _cleanup_(agx_buf_deinitp) agx_buf path = AGX_BUF_NULL(LIST_MAX);
        int r = 0;

        for (size_t i = 0; !r && i < d->plugins.path.count; i++)
                r = agx_buf_printf(&path, i ? ":%s" : "%s", d->plugins.path.items[i]);
        if (!r && path.len)
                agx_strv_add(items, agx_buf_view(&path));
        return r ? -ENOMEM : 0;
}

static int add_default(const defaults *d, agx_setting_id id, agx_strv *items)
{
        const char *text = default_text(d, id);

        if (id == AGX_SETTING_PYTHON_PATH)
                return add_python_path(d, items);
        if (text)
                agx_strv_add_str(items, text);
        return agx_strv_end(items);
}

/* ---- showing ---- */

static const char *const origins[] = {
        [AGX_ORIGIN_DEFAULT] = "default",         [AGX_ORIGIN_USER] = "user", [AGX_ORIGIN_PROJECT] = "project",
        [AGX_ORIGIN_ENVIRONMENT] = "environment", [AGX_ORIGIN_LINE] = "flag",
};

static void put_value(agx_json_writer *w, agx_setting_kind kind, const agx_strv *shown)
{
        agx_json_put_key(w, AGX_VIEW("value"));
        if (kind == AGX_SETTING_LIST) {
                agx_json_put_array(w);
                for (size_t i = 0; i < shown->count; i++)
                        agx_json_put_string(w, agx_view_str(shown->items[i]));
                agx_json_put_array_end(w);
        } else if (!shown->count) {
                agx_json_put_null(w);
        } else if (kind == AGX_SETTING_SWITCH) {
                agx_json_put_bool(w, !strcmp(shown->items[0], "true"));
        } else {
                agx_json_put_string(w, agx_view_str(shown->items[0]));
        }
}

/* The items as they may be seen. */
static int make_shown(const agx_strv *items, agx_strv *shown)
{
        for (size_t i = 0; i < items->count; i++) {
                _cleanup_(agx_buf_deinitp) agx_buf plain = AGX_BUF_NULL(LIST_MAX), safe = AGX_BUF_NULL(4 * LIST_MAX);

                if (agx_redact(&plain, items, i) || agx_say_escape(&safe, agx_buf_view(&plain)))
                        return -ENOMEM;
                agx_strv_add(shown, safe.len ? agx_buf_view(&safe) : AGX_VIEW(""));
        }
        return agx_strv_end(shown);
}

static void say_one(agx_cli *cli, const char *key, const agx_strv *shown, const char *from)
{
        agx_say_data(&cli->say, "%s ->", key);
        for (size_t i = 0; i < shown->count; i++)
                agx_say_data(&cli->say, " %s", shown->items[i]);
        agx_say_data(&cli->say, "%s  (", shown->count ? "" : " none");
        agx_say_data_view(&cli->say, agx_view_str(from));
        agx_say_data(&cli->say, ")\n");
}

static int show(agx_cli *cli, agx_json_writer *w, agx_setting_id id, const agx_strv *items)
{
        _cleanup_(agx_strv_deinitp) agx_strv shown = AGX_STRV_NULL;
        const agx_setting *setting = &agx_settings_table[id];
        const agx_setting_value *value = &cli->settings.of[id];
        const char *from = value->from ? value->from : origins[value->origin];
        int r = make_shown(items, &shown);

        if (r)
                return r;
        if (!cli->say.json)
                say_one(cli, setting->key, &shown, from);
        agx_json_put_object(w);
        agx_json_field(w, "name", setting->key);
        put_value(w, setting->kind, &shown);
        agx_json_field(w, "source", origins[value->origin]);
        agx_json_field(w, "from", from);
        agx_json_put_object_end(w);
        return 0;
}

static int show_all(agx_cli *cli, agx_json_writer *w)
{
        _cleanup_(defaults_deinitp) defaults d = {0};
        int r = defaults_init(&d);

        for (agx_setting_id id = 1; !r && id < AGX_SETTING_COUNT; id++) {
                _cleanup_(agx_strv_deinitp) agx_strv items = AGX_STRV_NULL;
                bool set = cli->settings.of[id].origin != AGX_ORIGIN_DEFAULT;

                if (!set)
                        r = add_default(&d, id, &items);
                if (!r)
                        r = show(cli, w, id, set ? &cli->settings.of[id].items : &items);
        }
        return r;
}

static int run_show(agx_cli *cli, void *unused)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(64 * LIST_MAX);
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

static const char *project_of(const void *v)
{
        return ((const values *)v)->path;
}

static const agx_command show_command = {
        .name = "show",
        .summary = "Show every setting, its value, and where that comes from",
        .text = "A value comes from the first that has one: the command line, the environment, [tool.agentix] in the\n"
                "project's pyproject.toml, ~/.config/agentix/config.toml. Secrets in arguments are shown as ***.\n",
        .examples = "  agentix config show\n"
                    "  agentix config show path/to/project --format json | jq '.settings[] | select(.source != "
                    "\"default\")'\n",
        .opts = opts,
        .size = sizeof(values),
        .format = true,
        .project = project_of,
        .run = run_show,
};

static const agx_command *const children[] = {&show_command, NULL};

const agx_command agx_command_config = {
        .name = "config",
        .summary = "Look at settings",
        .children = children,
};
