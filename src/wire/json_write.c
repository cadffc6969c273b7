/* Writing JSON: each item puts the comma that parts it from the one before. Strings are copied in runs between the bytes
 * that must be escaped. */
#include "base/err.h"
#include "base/utf8.h"
#include "wire/json.h"

static void append(agx_json_writer *w, agx_view v)
{
        if (!w->error)
                w->error = agx_buf_append_view(w->out, v);
}

/* The comma before an item, and whether the next one needs its own. */
static void item(agx_json_writer *w, bool comma_next)
{
        if (w->comma)
                append(w, AGX_VIEW(","));
        w->comma = comma_next;
}

static size_t plain_run(agx_view v)
{
        size_t n = 0;

        while (n < v.n && v.p[n] != '"' && v.p[n] != '\\' && (unsigned char)v.p[n] >= 0x20)
                ++n;
        return n;
}

static void append_escape(agx_json_writer *w, char c)
{
        static const char hex[] = "0123456789abcdef";
        static const char names[] = "\"\"\\\\\bb\ff\nn\rr\tt";
        char wide[] = {'\\', 'u', '0', '0', hex[(unsigned char)c >> 4], hex[c & 15]};

        for (size_t i = 0; names[i]; i += 2)
                if (names[i] == c) {
                        append(w, agx_view_of((char[]){'\\', names[i + 1]}, 2));
                        return;
                }
        append(w, agx_view_of(wide, sizeof(wide)));
}

static void append_string(agx_json_writer *w, agx_view text)
{
        if (!w->error && !agx_utf8_valid(text))
                w->error = agx_trace(-EINVAL);
        append(w, AGX_VIEW("\""));
        while (text.n && !w->error) {
                size_t n = plain_run(text);

                append(w, agx_view_first(text, n));
                text = agx_view_from(text, n);
                if (text.n) {
                        append_escape(w, text.p[0]);
                        text = agx_view_from(text, 1);
                }
        }
        append(w, AGX_VIEW("\""));
}

agx_json_writer agx_json_writer_on(agx_buf *out)
{
        return (agx_json_writer){.out = out};
}

void agx_json_put_object(agx_json_writer *w)
{
        item(w, false);
        append(w, AGX_VIEW("{"));
}

void agx_json_put_object_end(agx_json_writer *w)
{
        append(w, AGX_VIEW("}"));
        w->comma = true;
}

void agx_json_put_array(agx_json_writer *w)
{
        item(w, false);
        append(w, AGX_VIEW("["));
}

void agx_json_put_array_end(agx_json_writer *w)
{
        append(w, AGX_VIEW("]"));
        w->comma = true;
}

void agx_json_put_key(agx_json_writer *w, agx_view key)
{
        item(w, false);
        append_string(w, key);
        append(w, AGX_VIEW(":"));
}

void agx_json_put_string(agx_json_writer *w, agx_view text)
{
        item(w, true);
        append_string(w, text);
}

void agx_json_put_u64(agx_json_writer *w, uint64_t u)
{
        char digits[20];
        size_t at = sizeof(digits);

        do
                digits[--at] = (char)('0' + u % 10);
        while (u /= 10);
        item(w, true);
        append(w, agx_view_of(digits + at, sizeof(digits) - at));
}

void agx_json_put_bool(agx_json_writer *w, bool b)
{
        item(w, true);
        append(w, b ? AGX_VIEW("true") : AGX_VIEW("false"));
}

void agx_json_put_null(agx_json_writer *w)
{
        item(w, true);
        append(w, AGX_VIEW("null"));
}

void agx_json_put_raw(agx_json_writer *w, agx_view json)
{
        item(w, true);
        append(w, json);
}

int agx_json_writer_end(const agx_json_writer *w)
{
        return w->error;
}
