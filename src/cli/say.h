#ifndef AGX_CLI_SAY_H
#define AGX_CLI_SAY_H
/*
 * How a command speaks. Data goes to standard output; everything else, help that nobody asked for included, to standard
 * error. With `json` standard output carries one JSON object or JSON lines, and standard error an error as
 *
 *     {"error": {"kind": ..., "message": ..., "hint": ... or null, "exit_code": N}}
 *
 * on a line of its own; notes are dropped and warnings are objects too. Texts that may hold foreign bytes (names from an
 * archive, what a child wrote) are printed with control bytes escaped: nobody chooses the state of a user's terminal.
 */
#include "base/buf.h"

#include <stdio.h>

typedef enum agx_exit {
        AGX_EXIT_OK = 0,
        AGX_EXIT_FAILURE = 1,
        AGX_EXIT_USAGE = 2,
        AGX_EXIT_NOT_FOUND = 3, /* a named thing does not exist: sandbox, cached bundle */
        AGX_EXIT_BACKEND = 4,   /* a backend is missing or does not answer */
        AGX_EXIT_TIMEOUT = 124,
        AGX_EXIT_SIGNAL = 128 /* plus the signal's number */
} agx_exit;

/* Bytes of one message; longer ones are cut. */
enum { AGX_SAY_MAX = 16 << 10 };

typedef struct agx_say {
        FILE *out;
        FILE *err;
        bool json;
        bool quiet;
        bool verbose;
        bool color_out, color_err;
        bool progress;  /* standard error is a terminal that can redraw a line */
        bool line_open; /* a progress line is on it */
} agx_say;

/* Reads the terminal and the environment (NO_COLOR, CLICOLOR_FORCE, TERM). `color`: "auto", "always", "never" or NULL. */
void agx_say_init(agx_say *s, FILE *out, FILE *err);
void agx_say_set_color(agx_say *s, const char *color);

/* Data: to standard output, as it is. */
void agx_say_data(agx_say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text from somewhere else as data: control bytes escaped. */
void agx_say_data_view(agx_say *s, agx_view text);
/* A JSON document as data, with a line end. */
void agx_say_data_json(agx_say *s, const agx_buf *json);
/* For people, one line on standard error; not with --quiet, nor with json. */
void agx_say_note(agx_say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Only with --verbose. */
void agx_say_detail(agx_say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void agx_say_warn(agx_say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* One redrawn line on a terminal; an empty text takes it away. */
void agx_say_progress(agx_say *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct agx_complaint {
        const char *kind; /* one word for programs: "usage", "not_found", "backend", "bundle", ... */
        const char *hint; /* what to do, or NULL */
        int exit_code;
} agx_complaint;

/* Says what went wrong; gives back complaint->exit_code, for `return agx_say_error(...)`. */
int agx_say_error(agx_say *s, const agx_complaint *complaint, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
int agx_say_no_memory(agx_say *s);
/* Everything written must have arrived: `code`, or AGX_EXIT_FAILURE with a complaint about standard output. */
int agx_say_end(agx_say *s, int code);

/* Appends `text` with control bytes and malformed UTF-8 as \xNN. Errors are those of agx_buf_append. */
int agx_say_escape(agx_buf *out, agx_view text);

#endif
