/*
 * Settings in files. There is no TOML parser for C that is kept well, so Python is asked; but starting it costs more than
 * all else that a short command does, so a pyproject.toml is first looked through for what could begin our table.
 */
#include "cli/settings.h"

#include "base/err.h"
#include "bundle/records.h"
#include "bundle/stage.h"
#include "cli/nearest.h"
#include "wire/json.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FILE_LOOKED_AT_MAX = 1 << 20, TEXT_MAX = 64 << 10 };

#define PROJECT_FILE "pyproject.toml"

/* ---- where they are ---- */

static bool is_file(const char *path)
{
        struct stat st;

        return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* The pyproject.toml in a directory, or the nearest above it; NULL: none. */
static char *find_project(const char *place)
{
        char path[PATH_MAX + sizeof("/" PROJECT_FILE)];
        char *end;

        if (!realpath(place ? place : ".", path))
                return NULL;
        for (;;) {
                end = path + strlen(path);
                memcpy(end, "/" PROJECT_FILE, sizeof("/" PROJECT_FILE));
                if (is_file(path))
                        return strdup(path);
                *end = 0;
                end = strrchr(path, '/');
                if (!end)
                        return NULL;
                *end = 0;
        }
}

static char *find_users(void)
{
        const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        char *path = NULL;
        int n = -1;

        if (xdg && *xdg == '/')
                n = asprintf(&path, "%s/agentix/config.toml", xdg);
        else if (home && *home == '/')
                n = asprintf(&path, "%s/.config/agentix/config.toml", home);
        if (n < 0)
                return NULL;
        if (is_file(path))
                return path;
        free(path);
        return NULL;
}

/* ---- whether a project's file can have our table ---- */

static bool is_blank_or_quote(char c)
{
        return c == ' ' || c == '\t' || c == '"' || c == '\'';
}

/* The word at `at` is a key of its own: behind the beginning of a line or what parts keys, before what ends one. */
static bool is_key(agx_view text, size_t at, size_t n)
{
        size_t before = at, after = at + n;

        while (before && is_blank_or_quote(text.p[before - 1]))
                before--;
        while (after < text.n && is_blank_or_quote(text.p[after]))
                after++;
        if (before && !strchr("\n.{,[", text.p[before - 1]))
                return false;
        if (after == text.n || !strchr(".]=", text.p[after]))
                return false;
        return text.p[after] != '=' || after + 1 == text.n || text.p[after + 1] != '=';
}

/* May be wrong only by saying yes. Keys can have escapes in them, though nobody does that. */
static bool may_have_table(agx_view text)
{
        static const char name[] = "agentix";
        const char *found = text.p;

        if (memmem(text.p, text.n, "\\u", 2) || memmem(text.p, text.n, "\\U", 2))
                return true;
        while ((found = memmem(found, text.n - (size_t)(found - text.p), name, sizeof(name) - 1))) {
                if (is_key(text, (size_t)(found - text.p), sizeof(name) - 1))
                        return true;
                found++;
        }
        return false;
}

static bool is_worth_reading(const char *path)
{
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(FILE_LOOKED_AT_MAX);
        uint8_t *room;
        ssize_t n = 1;

        while (fd >= 0 && n > 0) {
                if (agx_buf_reserve(&text, 16 << 10, &room))
                        return true;
                n = read(fd, room, 16 << 10);
                if (n > 0)
                        agx_buf_commit(&text, (size_t)n);
        }
        return fd < 0 || n < 0 || (text.len && may_have_table(agx_buf_view(&text)));
}

/* ---- what they say ---- */

typedef struct reading {
        agx_settings *to;
        const char *file; /* as in to->project or to->user */
        agx_origin origin;
        agx_why *why;
} reading;

static bool is_project(const reading *r)
{
        return r->origin == AGX_ORIGIN_PROJECT;
}

/* Puts the file, its table and the key in front of what is wrong. */
static int blame(const reading *r, const char *key)
{
        agx_why *why = r->why;
        const char *dot = strrchr(key, '.');

        if (is_project(r) && dot)
                agx_why_wrap(why, "%s: [tool.agentix.%.*s] %s", r->file, (int)(dot - key), key, dot + 1);
        else if (is_project(r))
                agx_why_wrap(why, "%s: [tool.agentix]%s%s", r->file, *key ? " " : "", key);
        else
                agx_why_wrap(why, "%s: %s", r->file, key);
        return AGX_WHY_E_TOLD;
}

static agx_setting_id find(const char *key)
{
        for (agx_setting_id id = 1; id < AGX_SETTING_COUNT; id++)
                if (!strcmp(agx_settings_table[id].key, key))
                        return id;
        return AGX_SETTING_NONE;
}

static bool is_table(const char *key)
{
        size_t n = strlen(key);

        for (agx_setting_id id = 1; id < AGX_SETTING_COUNT; id++)
                if (!strncmp(agx_settings_table[id].key, key, n) && agx_settings_table[id].key[n] == '.')
                        return true;
        return !n;
}

static int unknown(const reading *r, const char *key)
{
        const char *nearest = NULL;
        size_t least = SIZE_MAX;

        for (agx_setting_id id = 1; id < AGX_SETTING_COUNT; id++) {
                agx_view candidate = agx_view_str(agx_settings_table[id].key);
                size_t distance = agx_nearest_distance(agx_view_str(key), candidate);

                if (distance < least && agx_nearest_resembles(agx_view_str(key), candidate)) {
                        nearest = candidate.p;
                        least = distance;
                }
        }
        agx_why_set(r->why, "settings", "there is no such setting");
        if (nearest)
                agx_why_hint(r->why, "did you mean '%s'?", nearest);
        else
                agx_why_hint(r->why, "agentix config show lists all settings");
        return blame(r, key);
}

/* "a string" */
static const char *said_kind(agx_json_kind kind)
{
        switch (kind) {
        case AGX_JSON_STRING:
                return "a string";
        case AGX_JSON_BOOL:
                return "a boolean";
        case AGX_JSON_NUMBER:
                return "a number";
        case AGX_JSON_ARRAY:
                return "an array";
        case AGX_JSON_OBJECT:
                return "a table";
        default:
                return "something else";
        }
}

static int wrong_type(const reading *r, const char *key, const char *wanted, agx_json_kind kind)
{
        agx_why_set(r->why, "settings", "it must be %s, not %s", wanted, said_kind(kind));
        return blame(r, key);
}

/* A path as the file means it: below home, or beside the file. */
static int add_path(const reading *r, const char *text, agx_strv *items)
{
        const char *home = getenv("HOME");
        int dir = (int)(strrchr(r->file, '/') - r->file);

        if (!strncmp(text, "~/", 2) && home)
                agx_strv_addf(items, "%s%s", home, text + 1);
        else if (*text == '/' || !*text)
                agx_strv_add_str(items, text);
        else
                agx_strv_addf(items, "%.*s/%s", dir, r->file, text);
        return 0;
}

static int add_text(const reading *r, agx_setting_id id, const agx_json_token *token, agx_strv *items)
{
        const agx_setting *setting = &agx_settings_table[id];
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(TEXT_MAX);
        _cleanup_(agx_freep) char *copy = NULL;
        int e = agx_json_text(token, &text);

        if (e == AGX_BUF_E_FULL)
                return agx_why_set(r->why, "settings", "it is too long");
        if (e)
                return e;
        copy = agx_strv_dup(agx_buf_view(&text));
        if (!copy)
                return agx_trace(-ENOMEM);
        if (strlen(copy) != text.len) {
                agx_strv_add(items, agx_buf_view(&text)); /* refuses it */
                return 0;
        }
        if (setting->kind == AGX_SETTING_PROGRAM && is_project(r) && strchr(copy, '/')) {
                agx_why_hint(r->why, "name a program on PATH, or set it in the environment or in "
                                     "~/.config/agentix/config.toml");
                return agx_why_set(r->why, "settings", "a project may not choose a program by its path");
        }
        if (setting->kind == AGX_SETTING_PATH || (setting->kind == AGX_SETTING_PROGRAM && strchr(copy, '/')))
                return add_path(r, copy, items);
        agx_strv_add_str(items, copy);
        return 0;
}

static int add_list(const reading *r, const char *key, agx_setting_id id, agx_json_reader *json, agx_strv *items)
{
        agx_json_token token;

        while ((token = agx_json_next(json)).kind == AGX_JSON_STRING) {
                int e = add_text(r, id, &token, items);

                if (e)
                        return e == AGX_WHY_E_TOLD ? blame(r, key) : e;
        }
        return token.kind == AGX_JSON_ARRAY_END ? 0 : wrong_type(r, key, "an array of strings", token.kind);
}

static int add_value(const reading *r, const char *key, agx_setting_id id, const char *value, agx_strv *items)
{
        static const char *const wanted[] = {"a string", "a string", "a string", "true or false",
                                             "an array of strings"};
        static const agx_json_kind kinds[] = {AGX_JSON_STRING, AGX_JSON_STRING, AGX_JSON_STRING, AGX_JSON_BOOL,
                                              AGX_JSON_ARRAY};
        agx_setting_kind kind = agx_settings_table[id].kind;
        agx_json_reader json = agx_json_reader_on(agx_view_str(value), 2);
        agx_json_token token = agx_json_next(&json);
        int e;

        if (token.kind != kinds[kind])
                return wrong_type(r, key, wanted[kind], token.kind);
        if (kind == AGX_SETTING_LIST)
                return add_list(r, key, id, &json, items);
        if (kind == AGX_SETTING_SWITCH) {
                agx_strv_add_str(items, token.b ? "true" : "false");
                return 0;
        }
        e = add_text(r, id, &token, items);
        return e == AGX_WHY_E_TOLD ? blame(r, key) : e;
}

/* A table without anything in it comes as a value. */
static int check_table(const reading *r, const char *key, const char *value)
{
        agx_json_reader json = agx_json_reader_on(agx_view_str(value), 1);
        agx_json_kind kind = agx_json_next(&json).kind;

        return kind == AGX_JSON_OBJECT ? 0 : wrong_type(r, key, "a table", kind);
}

/* What a project says there is no setting: a build reads it, and judges it. */
static bool is_of_build(const char *key)
{
        return !strcmp(key, "npm") || !strncmp(key, "npm.", 4);
}

static int take(const reading *r, const char *key, const char *value)
{
        _cleanup_(agx_strv_deinitp) agx_strv items = AGX_STRV_NULL;
        agx_setting_id id = find(key);
        unsigned by = is_project(r) ? AGX_SETTING_BY_PROJECT : AGX_SETTING_BY_USER;
        int e;

        if (is_project(r) && is_of_build(key))
                return 0;
        if (!id)
                return is_table(key) ? check_table(r, key, value) : unknown(r, key);
        if (!(agx_settings_table[id].by & by)) {
                agx_why_set(r->why, "settings", "it may not be set here");
                agx_why_hint(r->why, is_project(r) ? "set it in the environment or in ~/.config/agentix/config.toml"
                                                   : "it belongs into a project's pyproject.toml, [tool.agentix]");
                return blame(r, key);
        }
        e = add_value(r, key, id, value, &items);
        if (e)
                return e;
        e = agx_settings_take(r->to, id, &items, r->origin, r->file, r->why);
        return e == AGX_WHY_E_TOLD ? blame(r, key) : e;
}

/* Keys of settings come behind a `=`, so that none is taken for a record of the helper's own. */
static int take_records(agx_settings *s, agx_records *records, agx_why *why)
{
        reading r = {.to = s, .why = why};
        const char *key, *value;
        int e = 0;

        while (!e && agx_records_next(records, &key, &value)) {
                if (*key == '=') {
                        e = take(&r, key + 1, value);
                        continue;
                }
                r.origin = s->project && !strcmp(value, s->project) ? AGX_ORIGIN_PROJECT : AGX_ORIGIN_USER;
                r.file = r.origin == AGX_ORIGIN_PROJECT ? s->project : s->user;
        }
        return e;
}

static int ask(agx_settings *s, agx_records *records, agx_why *why)
{
        _cleanup_(agx_tools_deinitp) agx_tools tools = {0};
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        int r;

        agx_tools_locate(&tools);
        if (!tools.python) {
                agx_why_set(why, "settings", "%s cannot be read: that takes Python, and there is none",
                            s->user ? s->user : s->project);
                return agx_why_hint(why, "run agentix from the environment it is installed in, or set AGENTIX_PYTHON");
        }
        agx_strv_add_str(&argv, tools.python);
        agx_strv_addf(&argv, "-I");
        agx_strv_addf(&argv, "-m");
        agx_strv_addf(&argv, "agentix._settings");
        if (s->user)
                agx_strv_add_str(&argv, s->user);
        if (s->project)
                agx_strv_add_str(&argv, s->project);
        r = agx_strv_end(&argv);
        if (!r)
                r = agx_records_ask(records, argv.items, why);
        if (r == AGX_WHY_E_TOLD && !strcmp(why->kind, "project"))
                why->kind = "settings";
        return r;
}

int agx_settings_read_files(agx_settings *s, const char *place, agx_why *why)
{
        _cleanup_(agx_records_deinitp) agx_records records = AGX_RECORDS_NULL;
        int r;

        s->user = find_users();
        s->project = find_project(place);
        if (s->project && !is_worth_reading(s->project)) {
                free(s->project);
                s->project = NULL;
        }
        if (!s->user && !s->project)
                return 0;
        r = ask(s, &records, why);
        return r ? r : take_records(s, &records, why);
}
