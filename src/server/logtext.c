/* A text without anything to escape, which is nearly every one, is copied in one piece. */
#include "server/logtext.h"
#include "base/utf8.h"
#include "proto/fields.h"
#include "proto/limits.h"

#include <stdio.h>
#include <time.h>

static const agx_view replacement = {"\xef\xbf\xbd", 3};

/* ---- text ---- */

/* Length of the character at the front, 0 if what stands there is none. */
static size_t character(agx_view v)
{
        for (size_t n = 1; n <= 4 && n <= v.n; n++)
                if (agx_utf8_valid(agx_view_first(v, n)))
                        return n;
        return 0;
}

static bool is_plain(agx_view v)
{
        for (size_t i = 0; i < v.n; i++) {
                unsigned char c = (unsigned char)v.p[i];

                if (c < 0x20 || c >= 0x7f)
                        return false;
        }
        return true;
}

static int put_character(agx_buf *out, agx_view v, size_t n)
{
        const unsigned char *c = (const unsigned char *)v.p;

        if (n == 0 || (n == 1 && (c[0] < 0x20 || c[0] == 0x7f)))
                return agx_buf_printf(out, "\\x%02x", c[0]);
        if (n == 2 && c[0] == 0xc2 && c[1] < 0xa0)
                return agx_buf_printf(out, "\\x%02x", c[1]);
        if (n == 3 && c[0] == 0xe2 && c[1] == 0x80 && (c[2] == 0xa8 || c[2] == 0xa9))
                return agx_buf_printf(out, "\\u20%02x", c[2] - 0x80);
        return agx_buf_append(out, v.p, n);
}

static int put_escaped(agx_buf *out, agx_view v)
{
        int r = 0;

        if (is_plain(v))
                return agx_buf_append_view(out, v);
        while (!r && v.n) {
                size_t n = character(v);

                r = put_character(out, v, n);
                v = agx_view_from(v, n ? n : 1);
        }
        return r;
}

/* As UTF-8, whatever it was. */
static int put_valid(agx_buf *out, agx_view v)
{
        int r = 0;

        while (!r && v.n) {
                size_t n = agx_utf8_prefix(v);

                r = n ? agx_buf_append(out, v.p, n) : agx_buf_append_view(out, replacement);
                v = agx_view_from(v, n ? n : 1);
        }
        return r;
}

/* ---- records ---- */

static void put_pair(agx_mp_writer *w, const char *key, agx_view value)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_str(w, value);
}

static void put_map(agx_mp_writer *w, const agx_log_line *line, agx_view text)
{
        bool server = !line->fd;
        agx_view stream = line->fd == 2 ? AGX_VIEW("stderr") : AGX_VIEW("stdout");

        agx_mp_put_map(w, server ? 6 : 8);
        put_pair(w, "name",
                 server          ? AGX_VIEW("agentix.sandbox.runtime")
                 : line->fd == 2 ? AGX_VIEW("agentix.sandbox.stderr")
                                 : AGX_VIEW("agentix.sandbox.stdout"));
        put_pair(w, "level", server ? AGX_VIEW("WARNING") : AGX_VIEW("INFO"));
        agx_mp_put_str(w, AGX_VIEW("levelno"));
        agx_mp_put_uint(w, server ? 30 : 20);
        put_pair(w, "message", text);
        agx_mp_put_str(w, AGX_VIEW("created"));
        agx_mp_put_float(w, line->created);
        put_pair(w, "agentix_context", line->context);
        if (server)
                return;
        put_pair(w, "module", AGX_VIEW("stdio"));
        agx_mp_put_str(w, AGX_VIEW("extras"));
        agx_mp_put_map(w, 2);
        put_pair(w, "agentix_stream", stream);
        put_pair(w, "worker_id", line->worker_id);
}

int agx_log_put_record(agx_buf *out, const agx_log_line *line)
{
        _cleanup_(agx_buf_deinitp) agx_buf valid = AGX_BUF_NULL(4 * (size_t)AGX_OUTPUT_LINE);
        agx_mp_writer w = agx_mp_writer_on(out);
        agx_view text = line->text;

        if (!agx_utf8_valid(text)) {
                int r = put_valid(&valid, text);

                if (r)
                        return r;
                text = agx_buf_view(&valid);
        }
        put_map(&w, line, text);
        return agx_mp_writer_end(&w);
}

/* ---- lines ---- */

static int put_time(agx_buf *out, double created)
{
        static _Thread_local time_t last = -1;
        static _Thread_local char text[24];
        time_t second = created >= 0 && created < 4e9 ? (time_t)created : 0;
        unsigned ms = created >= 0 && created < 4e9 ? (unsigned)((created - (double)second) * 1000) : 0;
        struct tm tm;
        char *at;
        uint8_t *place;

        if (second != last && gmtime_r(&second, &tm)) {
                strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S.", &tm);
                last = second;
        }
        if (agx_buf_reserve(out, 25, &place))
                return agx_buf_reserve(out, 25, &place);
        at = (char *)place;
        memcpy(at, text, 20);
        at[20] = (char)('0' + ms / 100 % 10);
        at[21] = (char)('0' + ms / 10 % 10);
        at[22] = (char)('0' + ms % 10);
        at[23] = 'Z';
        at[24] = ' ';
        agx_buf_commit(out, 25);
        return 0;
}

int agx_log_put_line(agx_buf *out, const agx_log_line *line)
{
        int r = put_time(out, line->created);

        if (!r)
                r = agx_buf_append_view(out, line->fd == 2   ? AGX_VIEW("stderr ")
                                             : line->fd == 1 ? AGX_VIEW("stdout ")
                                                             : AGX_VIEW("agentix-runtime "));
        if (!r)
                r = put_escaped(out, line->text);
        return r ? r : agx_buf_append(out, "\n", 1);
}

static int put_text_lines(agx_buf *out, agx_view text, bool first)
{
        agx_view rest = text, line;
        int r = 0;

        while (!r && rest.p && agx_view_split(&rest, '\n', &line)) {
                if (!first)
                        r = agx_buf_append(out, "    ", 4);
                if (!r)
                        r = put_escaped(out, line);
                if (!r)
                        r = agx_buf_append(out, "\n", 1);
                first = false;
        }
        return r;
}

typedef struct record {
        agx_view name, level, message, exc_text, stack_info, line;
        double created;
} record;

int agx_log_put_record_lines(agx_buf *out, agx_view bytes)
{
        static const agx_field rows[] = {
                AGX_FIELD(record, name, "name", LAX_STR, "a str"),
                AGX_FIELD(record, level, "level", LAX_STR, "a str"),
                AGX_FIELD(record, message, "message", LAX_STR, "a str"),
                AGX_FIELD(record, exc_text, "exc_text", LAX_STR, "a str"),
                AGX_FIELD(record, stack_info, "stack_info", LAX_STR, "a str"),
                AGX_FIELD(record, line, "line", LAX_STR, "a str"),
                AGX_FIELD(record, created, "created", LAX_NUMBER, "a number"),
        };
        record x = {.created = 0};
        agx_mp_reader reader = agx_mp_reader_on(bytes);
        uint32_t present;
        int r;

        if (!agx_fields_read(&reader, (agx_fields){rows, 7, 0x7f}, AGX_MAX_NESTING, &x, &present))
                return agx_buf_append_view(out, AGX_VIEW("a record that cannot be read\n"));
        if (x.line.p)
                return put_text_lines(out, x.line, true);
        r = put_time(out, x.created);
        if (!r)
                r = put_escaped(out, x.level);
        if (!r)
                r = agx_buf_append(out, " ", 1);
        if (!r)
                r = put_escaped(out, x.name);
        if (!r)
                r = agx_buf_append(out, " ", 1);
        if (!r)
                r = put_text_lines(out, x.message.p ? x.message : AGX_VIEW(""), true);
        if (!r && !x.message.n)
                r = agx_buf_append(out, "\n", 1);
        if (!r)
                r = put_text_lines(out, x.exc_text, false);
        return r ? r : put_text_lines(out, x.stack_info, false);
}

/* ---- templates ---- */

static int put_name(agx_buf *out, agx_view key, const agx_log_names *names, bool *known)
{
        *known = true;
        if (agx_view_eq(key, AGX_VIEW("id")))
                return agx_buf_append_view(out, names->id);
        if (agx_view_eq(key, AGX_VIEW("uname")))
                return agx_buf_append_view(out, names->uname);
        if (agx_view_eq(key, AGX_VIEW("hostname")))
                return agx_buf_append_view(out, names->hostname);
        if (agx_view_eq(key, AGX_VIEW("pid")))
                return agx_buf_printf(out, "%ld", names->pid);
        *known = false;
        return 0;
}

int agx_log_expand(agx_buf *out, agx_view template, const agx_log_names *names)
{
        int r = 0;

        while (!r && template.n) {
                const char *end = template.p[0] == '{' ? memchr(template.p, '}', template.n) : NULL;
                agx_view key = end ? agx_view_of(template.p + 1, (size_t)(end - template.p) - 1) : AGX_VIEW("");
                bool known = false;

                r = end ? put_name(out, key, names, &known) : 0;
                if (!r && !known)
                        r = agx_buf_append(out, template.p, 1);
                template = agx_view_from(template, known ? key.n + 2 : 1);
        }
        return r;
}
