#ifndef AGX_CLI_SETTINGS_H
#define AGX_CLI_SETTINGS_H
/*
 * Settings: what a command line need not say each time. A value comes from the first of
 *
 *     the line, the environment, the project's pyproject.toml ([tool.agentix]), ~/.config/agentix/config.toml
 *
 * that has one. A row of an option table names its setting, and gets that value; what is read deeper down is read from the
 * environment, so what a file says of it is put there.
 */
#include "base/strv.h"
#include "bundle/why.h"

typedef enum agx_setting_kind {
        AGX_SETTING_TEXT,
        AGX_SETTING_PATH,    /* in a file: relative to the file, or with ~/ */
        AGX_SETTING_PROGRAM, /* a name to be found on PATH, or likewise a path */
        AGX_SETTING_SWITCH,  /* "true" or "false" */
        AGX_SETTING_LIST,    /* several texts; in the environment words between blanks */
} agx_setting_kind;

typedef enum agx_setting_id {
        AGX_SETTING_NONE,
        AGX_SETTING_COLOR,
        AGX_SETTING_FORMAT,
        AGX_SETTING_QUIET,
        AGX_SETTING_VERBOSE,
        AGX_SETTING_CACHE_DIR,
        AGX_SETTING_BUILD_CACHE_DIR,
        AGX_SETTING_ENGINE,
        AGX_SETTING_NIX,
        AGX_SETTING_BUILD_NAME,
        AGX_SETTING_BUILD_OUTPUT,
        AGX_SETTING_BUILD_PLATFORM,
        AGX_SETTING_BUILD_ZSTD,
        AGX_SETTING_BUILD_UV_ARGS,
        AGX_SETTING_BUILD_NIX_ARGS,
        AGX_SETTING_BUILD_ENGINE,
        AGX_SETTING_BUILD_IMAGE,
        AGX_SETTING_BUILD_ENGINE_ARGS,
        AGX_SETTING_BUILD_RUN_ARGS,
        AGX_SETTING_PYTHON,
        AGX_SETTING_PYTHON_PATH,
        AGX_SETTING_RUNTIME,
        AGX_SETTING_UV,
        AGX_SETTING_PATCHELF,
        AGX_SETTING_BUSYBOX,
        AGX_SETTING_BASH,
        AGX_SETTING_COUNT
} agx_setting_id;

/* Who may set it. */
enum {
        AGX_SETTING_BY_LINE = 1,
        AGX_SETTING_BY_ENVIRONMENT = 2,
        AGX_SETTING_BY_PROJECT = 4,
        AGX_SETTING_BY_USER = 8,
};

typedef struct agx_setting {
        const char *key; /* in files: "bundle-cache-dir", "build.zstd" */
        const char *variable;
        agx_setting_kind kind;
        unsigned by;
        const char *choices; /* "a|b", or NULL */
        bool exported;       /* it is read from the environment, wherever it comes from */
} agx_setting;

extern const agx_setting agx_settings_table[AGX_SETTING_COUNT];

typedef enum agx_origin {
        AGX_ORIGIN_DEFAULT,
        AGX_ORIGIN_USER,
        AGX_ORIGIN_PROJECT,
        AGX_ORIGIN_ENVIRONMENT,
        AGX_ORIGIN_LINE,
} agx_origin;

typedef struct agx_setting_value {
        agx_strv items; /* one, or those of a list */
        agx_origin origin;
        const char *from; /* the variable or file; NULL: the default, or the line */
} agx_setting_value;

typedef struct agx_settings {
        agx_setting_value of[AGX_SETTING_COUNT];
        char *project, *user; /* the files that were read, or NULL */
} agx_settings;

/*
 * Reads environment and files, exports what is exported. `place`: a directory in the project, NULL for where we are; the
 * project's file is the pyproject.toml in it or nearest above it. A build inside a container engine reads no files: whoever started it has.
 * Told with kind "settings" of what cannot be meant: unknown keys, values of the wrong type or that are no choice.
 */
int agx_settings_read(agx_settings *s, const char *place, agx_why *why);
void agx_settings_deinit(agx_settings *s);
AGX_DEFINE_CLEANUP(agx_settings, agx_settings_deinit)

/* The value as text; NULL: it is nowhere set. */
const char *agx_settings_text(const agx_settings *s, agx_setting_id id);
/* 1, -1 or 0: on, off, nowhere set. */
int agx_settings_switch(const agx_settings *s, agx_setting_id id);

/* ---- for settings_file.c ---- */

/*
 * Takes the values that `from`, which comes later than all before it in precedence, gives; they are moved. Told if they do not fit, without saying where
 * they stand.
 */
int agx_settings_take(agx_settings *s, agx_setting_id id, agx_strv *items, agx_origin origin, const char *from,
                      agx_why *why);
/* Reads both files into `s`. */
int agx_settings_read_files(agx_settings *s, const char *place, agx_why *why);

#endif
