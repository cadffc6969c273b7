/*
 * One place writes to the two standard streams. A message is built whole in memory, escaped, and written with one call,
 * so that a line of ours is never torn by another process that shares the terminal.
 */
#include "cli/say.h"

#include "base/utf8.h"
#include "wire/json.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool env_set(const char *name)
{
        const char *value = getenv(name);

        return value && *value;
}

static bool dumb_terminal(void)
{
        const char *term = getenv("TERM");

        return !term || !*term || !strcmp(term, "dumb");
}

static bool wants_color(FILE *stream, const char *color)
{
        const char *force = getenv("CLICOLOR_FORCE");

        if (color && !strcmp(color, "always"))
                return true;
        if ((color && !strcmp(color, "never")) || env_set("NO_COLOR"))
                return false;
        if (force && *force && strcmp(force, "0") != 0)
                return true;
        return isatty(fileno(stream)) && !dumb_terminal();
}

void agx_say_init(agx_say *s, FILE *out, FILE *err)
{
        *s = (agx_say){.out = out, .err = err};
        s->progress = isatty(fileno(err)) && !dumb_terminal();
        agx_say_set_color(s, NULL);
}

void agx_say_set_color(agx_say *s, const char *color)
{
        s->color_out = wants_color(s->out, color);
        s->color_err = wants_color(s->err, color);
}

static bool plain_byte(unsigned char c)
{
        return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\t';
}

/* C1 controls arrive as the two bytes C2 80 to C2 9F. */
static bool is_c1(agx_view text)
{
        return text.n >= 2 && (unsigned char)text.p[0] == 0xc2 && (unsigned char)text.p[1] < 0xa0;
}

int agx_say_escape(agx_buf *out, agx_view text)
{
        while (text.n) {
                size_t whole = agx_utf8_prefix(agx_view_first(text, 4));
                size_t n = 1;
                int r;

                if (plain_byte((unsigned char)text.p[0]) && whole && !is_c1(text)) {
                        while (n < whole && ((unsigned char)text.p[n] & 0xc0) == 0x80)
                                n++;
                        r = agx_buf_append(out, text.p, n);
                } else {
                        r = agx_buf_printf(out, "\\x%02x", (unsigned char)text.p[0]);
                }
                if (r)
                        return r;
                text = agx_view_from(text, n);
        }
        return 0;
}

static void close_line(agx_say *s)
{
        if (s->line_open)
                fputs("\r\033[K", s->err);
        s->line_open = false;
}

/* The formatted, cut and escaped text. Out of memory gives an empty one. */
__attribute__((format(printf, 2, 0))) static void make_text(agx_buf *out, const char *format, va_list args)
{
        _cleanup_(agx_freep) char *text = NULL;
        int n = vasprintf(&text, format, args);

        if (n < 0) {
                text = NULL;
                return;
        }
        (void)agx_say_escape(out, agx_view_first(agx_view_of(text, (size_t)n), AGX_SAY_MAX));
}

static void write_err(agx_say *s, const agx_buf *text)
{
        agx_view v = agx_buf_view(text);

        close_line(s);
        fwrite(v.p, 1, v.n, s->err);
        fflush(s->err);
}

/* "word: text\n", the word coloured. */
static void write_labelled(agx_say *s, const char *word, const char *color, const agx_buf *text)
{
        _cleanup_(agx_buf_deinitp) agx_buf line = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        const char *end = s->color_err ? "\033[0m" : "";

        (void)agx_buf_printf(&line, "%s%s%s:%s ", s->color_err ? color : "", s->color_err ? "\033[1m" : "", word, end);
        (void)agx_buf_append_view(&line, agx_buf_view(text));
        (void)agx_buf_append(&line, "\n", 1);
        write_err(s, &line);
}

void agx_say_data(agx_say *s, const char *format, ...)
{
        va_list args;

        close_line(s);
        va_start(args, format);
        vfprintf(s->out, format, args);
        va_end(args);
}

void agx_say_data_view(agx_say *s, agx_view text)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4 * text.n + 1);
        agx_view v;

        (void)agx_say_escape(&out, text);
        v = agx_buf_view(&out);
        close_line(s);
        fwrite(v.p, 1, v.n, s->out);
}

void agx_say_data_json(agx_say *s, const agx_buf *json)
{
        agx_view v = agx_buf_view(json);

        close_line(s);
        fwrite(v.p, 1, v.n, s->out);
        fputc('\n', s->out);
}

void agx_say_note(agx_say *s, const char *format, ...)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        va_list args;

        if (s->quiet || s->json)
                return;
        va_start(args, format);
        make_text(&text, format, args);
        va_end(args);
        (void)agx_buf_append(&text, "\n", 1);
        write_err(s, &text);
}

void agx_say_detail(agx_say *s, const char *format, ...)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        va_list args;

        if (!s->verbose || s->json)
                return;
        va_start(args, format);
        make_text(&text, format, args);
        va_end(args);
        (void)agx_buf_append(&text, "\n", 1);
        write_err(s, &text);
}

void agx_say_warn(agx_say *s, const char *format, ...)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(16 * AGX_SAY_MAX);
        agx_json_writer w = agx_json_writer_on(&json);
        va_list args;

        va_start(args, format);
        make_text(&text, format, args);
        va_end(args);
        if (!s->json) {
                write_labelled(s, "warning", "\033[33m", &text);
                return;
        }
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("warning"));
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("message"));
        agx_json_put_string(&w, agx_buf_view(&text));
        agx_json_put_object_end(&w);
        agx_json_put_object_end(&w);
        (void)agx_buf_append(&json, "\n", 1);
        write_err(s, &json);
}

void agx_say_progress(agx_say *s, const char *format, ...)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        va_list args;

        if (!s->progress || s->quiet || s->json)
                return;
        va_start(args, format);
        make_text(&text, format, args);
        va_end(args);
        write_err(s, &text);
        s->line_open = text.len > 0;
}

static void write_error_json(agx_say *s, const agx_complaint *complaint, const agx_buf *text)
{
        _cleanup_(agx_buf_deinitp) agx_buf json = AGX_BUF_NULL(16 * AGX_SAY_MAX);
        agx_json_writer w = agx_json_writer_on(&json);

        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("error"));
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("kind"));
        agx_json_put_string(&w, agx_view_str(complaint->kind));
        agx_json_put_key(&w, AGX_VIEW("message"));
        agx_json_put_string(&w, agx_buf_view(text));
        agx_json_put_key(&w, AGX_VIEW("hint"));
        if (complaint->hint)
                agx_json_put_string(&w, agx_view_str(complaint->hint));
        else
                agx_json_put_null(&w);
        agx_json_put_key(&w, AGX_VIEW("exit_code"));
        agx_json_put_u64(&w, (uint64_t)complaint->exit_code);
        agx_json_put_object_end(&w);
        agx_json_put_object_end(&w);
        (void)agx_buf_append(&json, "\n", 1);
        write_err(s, &json);
}

int agx_say_error(agx_say *s, const agx_complaint *complaint, const char *format, ...)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(8 * AGX_SAY_MAX);
        va_list args;

        va_start(args, format);
        make_text(&text, format, args);
        va_end(args);
        fflush(s->out);
        if (s->json) {
                write_error_json(s, complaint, &text);
                return complaint->exit_code;
        }
        write_labelled(s, "error", "\033[31m", &text);
        if (complaint->hint) {
                _cleanup_(agx_buf_deinitp) agx_buf hint = AGX_BUF_NULL(8 * AGX_SAY_MAX);

                (void)agx_say_escape(&hint, agx_view_str(complaint->hint));
                fputc('\n', s->err);
                write_labelled(s, "hint", "\033[36m", &hint);
        }
        return complaint->exit_code;
}

int agx_say_no_memory(agx_say *s)
{
        return agx_say_error(s, &(agx_complaint){.kind = "memory", .exit_code = AGX_EXIT_FAILURE}, "out of memory");
}

int agx_say_end(agx_say *s, int code)
{
        close_line(s);
        fflush(s->err);
        if (!fflush(s->out) && !ferror(s->out))
                return code;
        return agx_say_error(s, &(agx_complaint){.kind = "output", .exit_code = AGX_EXIT_FAILURE},
                             "standard output could not be written: %s", strerror(errno));
}
