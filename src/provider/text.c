/* Words are made here, at the edge, and nowhere below. */
#include "provider/text.h"

#include "base/buf.h"
#include "base/err.h"

#include <stdio.h>

enum { TEXT_DETAIL_MAX = 8 * 1024 };

void agx_text_exit(char *out, size_t size, int code)
{
        if (code < 0)
                snprintf(out, size, "signal %d (%s)", -code, strsignal(-code));
        else
                snprintf(out, size, "exit code %d", code);
}

static int append_escaped(agx_buf *out, agx_view text)
{
        int r = 0;

        for (size_t i = 0; i < text.n && !r; ++i) {
                unsigned char c = (unsigned char)text.p[i];

                if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
                        r = agx_buf_printf(out, "\\x%02x", c);
                else
                        r = agx_buf_append(out, &text.p[i], 1);
        }
        return r;
}

static agx_view last_part(agx_view text)
{
        while (text.n && (text.p[text.n - 1] == '\n' || text.p[text.n - 1] == ' '))
                --text.n;
        return text.n > TEXT_DETAIL_MAX ? agx_view_from(text, text.n - TEXT_DETAIL_MAX) : text;
}

int agx_text_failure(char **message, const char *doing, const char *what, agx_view detail)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(8 * TEXT_DETAIL_MAX);
        int r = agx_buf_printf(&out, "%s failed: %s", doing, what);

        detail = last_part(detail);
        if (!r && detail.n)
                r = agx_buf_append(&out, "\n", 1);
        if (!r)
                r = append_escaped(&out, detail);
        if (!r)
                r = agx_buf_append(&out, "", 1);
        if (r)
                return agx_trace(-ENOMEM);
        free(*message);
        *message = strdup((const char *)agx_buf_view(&out).p);
        return *message ? 0 : agx_trace(-ENOMEM);
}

int agx_text_failure_more(char **message, const char *doing, const char *what, agx_view detail)
{
        _cleanup_(agx_freep) char *before = *message;
        char *both = NULL;
        int r;

        *message = NULL;
        r = agx_text_failure(message, doing, what, detail);
        if (r || !before)
                return r;
        if (asprintf(&both, "%s\n%s", before, *message) < 0)
                return agx_trace(-ENOMEM);
        free(*message);
        *message = both;
        return 0;
}

int agx_text_unix_url(agx_buf *out, const char *path)
{
        int r = agx_buf_printf(out, "http+unix://");

        for (const char *p = path; *p && !r; ++p) {
                bool plain = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                             *p == '-' || *p == '_' || *p == '.';

                r = agx_buf_printf(out, plain ? "%c" : "%%%02X", (unsigned char)*p);
        }
        return r;
}
