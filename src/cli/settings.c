/*
 * The table, and the environment. Sources are read from the lowest to the highest, each taking the place of what was there;
 * what the line says is not known here, and is told by who parsed it.
 *
 * What chooses a program is not a project's to say: a command in somebody else's checkout must not run what lies there
 * before its owner has asked for a build.
 */
#include "cli/settings.h"

#include "base/err.h"
#include "bundle/names.h"

#include <errno.h>
#include <stdlib.h>

#define ANYBODY (AGX_SETTING_BY_LINE | AGX_SETTING_BY_ENVIRONMENT | AGX_SETTING_BY_PROJECT | AGX_SETTING_BY_USER)
#define NOT_THE_LINE (ANYBODY & ~(unsigned)AGX_SETTING_BY_LINE)
#define NOT_PROJECTS (NOT_THE_LINE & ~(unsigned)AGX_SETTING_BY_PROJECT)

/* One a line. */
/* clang-format off */
const agx_setting agx_settings_table[AGX_SETTING_COUNT] = {
        [AGX_SETTING_COLOR] = {"color", "AGENTIX_COLOR", AGX_SETTING_TEXT, ANYBODY, .choices = "auto|always|never"},
        [AGX_SETTING_FORMAT] = {"format", "AGENTIX_FORMAT", AGX_SETTING_TEXT, ANYBODY, .choices = "text|json"},
        [AGX_SETTING_QUIET] = {"quiet", "AGENTIX_QUIET", AGX_SETTING_SWITCH, ANYBODY, .choices = NULL},
        [AGX_SETTING_VERBOSE] = {"verbose", "AGENTIX_VERBOSE", AGX_SETTING_SWITCH, ANYBODY, .choices = NULL},
        [AGX_SETTING_CACHE_DIR] = {"bundle-cache-dir", "AGENTIX_BUNDLE_CACHE_DIR", AGX_SETTING_PATH, ANYBODY, .exported = true},
        [AGX_SETTING_BUILD_CACHE_DIR] = {"build-cache-dir", "AGENTIX_BUILD_CACHE_DIR", AGX_SETTING_PATH, NOT_THE_LINE, .exported = true},
        [AGX_SETTING_ENGINE] = {"container-engine", "AGENTIX_CONTAINER_ENGINE", AGX_SETTING_PROGRAM, ANYBODY, .choices = NULL},
        [AGX_SETTING_NIX] = {"nix", NULL, AGX_SETTING_TEXT, AGX_SETTING_BY_PROJECT, .choices = NULL},
        [AGX_SETTING_BUILD_NAME] = {"build.name", "AGENTIX_BUILD_NAME", AGX_SETTING_TEXT, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_OUTPUT] = {"build.output", "AGENTIX_BUILD_OUTPUT", AGX_SETTING_PATH, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_PLATFORM] = {"build.platform", "AGENTIX_BUILD_PLATFORM", AGX_SETTING_TEXT, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_ZSTD] = {"build.zstd", "AGENTIX_BUILD_ZSTD", AGX_SETTING_SWITCH, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_UV_ARGS] = {"build.uv-args", "AGENTIX_BUILD_UV_ARGS", AGX_SETTING_LIST, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_NIX_ARGS] = {"build.nix-args", "AGENTIX_BUILD_NIX_ARGS", AGX_SETTING_LIST, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_ENGINE] = {"build.container-engine", "AGENTIX_BUILD_CONTAINER_ENGINE", AGX_SETTING_PROGRAM, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_IMAGE] = {"build.container-image", "AGENTIX_BUILD_CONTAINER_IMAGE", AGX_SETTING_TEXT, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_ENGINE_ARGS] = {"build.container-args", "AGENTIX_BUILD_CONTAINER_ARGS", AGX_SETTING_LIST, ANYBODY, .choices = NULL},
        [AGX_SETTING_BUILD_RUN_ARGS] = {"build.container-run-args", "AGENTIX_BUILD_CONTAINER_RUN_ARGS", AGX_SETTING_LIST, ANYBODY, .choices = NULL},
        [AGX_SETTING_PYTHON] = {"python", "AGENTIX_PYTHON", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_PYTHON_PATH] = {"python-path", "AGENTIX_PYTHON_PATH", AGX_SETTING_TEXT, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_RUNTIME] = {"runtime", "AGENTIX_RUNTIME", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_UV] = {"uv", "AGENTIX_UV", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_PATCHELF] = {"patchelf", "AGENTIX_PATCHELF", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_BUSYBOX] = {"busybox", "AGENTIX_BUSYBOX", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
        [AGX_SETTING_BASH] = {"bash", "AGENTIX_BASH", AGX_SETTING_PROGRAM, NOT_PROJECTS, .exported = true},
};
/* clang-format on */

void agx_settings_deinit(agx_settings *s)
{
        for (size_t i = 0; i < AGX_SETTING_COUNT; i++)
                agx_strv_deinit(&s->of[i].items);
        free(s->project);
        free(s->user);
        *s = (agx_settings){0};
}

const char *agx_settings_text(const agx_settings *s, agx_setting_id id)
{
        return s->of[id].items.count ? s->of[id].items.items[0] : NULL;
}

int agx_settings_switch(const agx_settings *s, agx_setting_id id)
{
        const char *text = agx_settings_text(s, id);

        return !text ? 0 : !strcmp(text, "true") ? 1 : -1;
}

static bool is_choice(const char *choices, const char *text)
{
        agx_view rest = agx_view_str(choices), choice;

        while (agx_view_split(&rest, '|', &choice))
                if (agx_view_eq(choice, agx_view_str(text)))
                        return true;
        return false;
}

static int check(agx_setting_id id, const char *text, agx_why *why)
{
        const agx_setting *setting = &agx_settings_table[id];

        if (setting->choices && !is_choice(setting->choices, text))
                return agx_why_set(why, "settings", "'%s' is not one of %s", text, setting->choices);
        if (id == AGX_SETTING_BUILD_PLATFORM && !agx_names_platform(text))
                return agx_why_set(why, "settings", "unknown platform '%s': choose linux/amd64 or linux/arm64", text);
        if (setting->kind != AGX_SETTING_LIST && !*text)
                return agx_why_set(why, "settings", "it is empty");
        return 0;
}

int agx_settings_take(agx_settings *s, agx_setting_id id, agx_strv *items, agx_origin origin, const char *from,
                      agx_why *why)
{
        int r = agx_strv_end(items);

        for (size_t i = 0; !r && i < items->count; i++)
                r = check(id, items->items[i], why);
        if (r == -EINVAL)
                return agx_why_set(why, "settings", "there is a NUL in it");
        if (r)
                return r;
        agx_strv_deinit(&s->of[id].items);
        s->of[id] = (agx_setting_value){*items, origin, from};
        *items = AGX_STRV_NULL;
        return 0;
}

/* ---- the environment ---- */

static const char *set_variable(const char *name)
{
        const char *value = name ? getenv(name) : NULL;

        return value && *value ? value : NULL;
}

/* "true" or "false" for what people write. */
static const char *as_switch(const char *text)
{
        if (is_choice("1|true|yes|on", text))
                return "true";
        return is_choice("0|false|no|off", text) ? "false" : NULL;
}

static int split_value(const agx_setting *setting, const char *value, agx_strv *items, agx_why *why)
{
        if (setting->kind == AGX_SETTING_LIST) {
                agx_view rest = agx_view_str(value), word;

                while (agx_view_split(&rest, ' ', &word))
                        if (agx_view_trim(word).n)
                                agx_strv_add(items, agx_view_trim(word));
                return 0;
        }
        if (setting->kind == AGX_SETTING_SWITCH && !as_switch(value))
                return agx_why_set(why, "settings", "'%s' is neither true nor false", value);
        agx_strv_add_str(items, setting->kind == AGX_SETTING_SWITCH ? as_switch(value) : value);
        return 0;
}

static int take_variable(agx_settings *s, agx_setting_id id, const char *variable, const char *value, agx_why *why)
{
        _cleanup_(agx_strv_deinitp) agx_strv items = AGX_STRV_NULL;
        int r = split_value(&agx_settings_table[id], value, &items, why);

        if (!r)
                r = agx_settings_take(s, id, &items, AGX_ORIGIN_ENVIRONMENT, variable, why);
        if (r == AGX_WHY_E_TOLD)
                agx_why_wrap(why, "%s", variable);
        return r;
}

/* The conventions of all programs stand for the variable of our own. */
static int take_color(agx_settings *s, agx_why *why)
{
        const char *force = set_variable("CLICOLOR_FORCE");

        if (set_variable("NO_COLOR"))
                return take_variable(s, AGX_SETTING_COLOR, "NO_COLOR", "never", why);
        if (force && strcmp(force, "0") != 0)
                return take_variable(s, AGX_SETTING_COLOR, "CLICOLOR_FORCE", "always", why);
        return 0;
}

static int read_environment(agx_settings *s, agx_why *why)
{
        int r = take_color(s, why);

        for (agx_setting_id id = 1; !r && id < AGX_SETTING_COUNT; id++) {
                const char *value = set_variable(agx_settings_table[id].variable);

                if (value)
                        r = take_variable(s, id, agx_settings_table[id].variable, value, why);
        }
        return r;
}

static int export_values(const agx_settings *s)
{
        for (agx_setting_id id = 1; id < AGX_SETTING_COUNT; id++) {
                const agx_setting *setting = &agx_settings_table[id];
                const char *text = agx_settings_text(s, id);

                if (setting->exported && text && s->of[id].origin < AGX_ORIGIN_ENVIRONMENT &&
                    setenv(setting->variable, text, 1))
                        return agx_trace(-errno);
        }
        return 0;
}

int agx_settings_read(agx_settings *s, const char *place, agx_why *why)
{
        int r = 0;

        agx_settings_deinit(s);
        if (!set_variable("AGENTIX_BUILD_CONTEXT"))
                r = agx_settings_read_files(s, place, why);
        if (!r)
                r = read_environment(s, why);
        return r ? r : export_values(s);
}
