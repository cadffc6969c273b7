/*
 * Writing heads. Each verb checks its words, reserves the whole line and then copies: a line is appended whole or not
 * at all, and nothing a caller passes can end a line early.
 */
#include "base/err.h"
#include "wire/http1.h"

static const struct {
        unsigned status;
        const char *phrase;
} phrases[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
};

static bool is_token(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] <= ' ' || v.p[i] >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", v.p[i]))
                        return false;
        return v.n > 0;
}

static bool is_value(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] == '\r' || v.p[i] == '\n' || v.p[i] == '\0')
                        return false;
        return true;
}

static bool is_target(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] <= ' ' || v.p[i] >= 0x7f)
                        return false;
        return v.n > 0;
}

/* Appends the parts and a line end, all or nothing. */
static int put_line(agx_buf *out, const agx_view *parts, size_t n_parts)
{
        uint8_t *at;
        size_t n = 2;
        int r;

        for (size_t i = 0; i < n_parts; ++i)
                n += parts[i].n;
        r = agx_buf_reserve(out, n, &at);
        if (r)
                return r;
        for (size_t i = 0; i < n_parts; ++i) {
                if (parts[i].n)
                        memcpy(at, parts[i].p, parts[i].n);
                at += parts[i].n;
        }
        memcpy(at, "\r\n", 2);
        agx_buf_commit(out, n);
        return 0;
}

const char *agx_http1_phrase(unsigned status)
{
        for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); ++i)
                if (phrases[i].status == status)
                        return phrases[i].phrase;
        return "Unknown";
}

int agx_http1_put_status(agx_buf *out, unsigned status)
{
        char code[3] = {(char)('0' + status / 100 % 10), (char)('0' + status / 10 % 10), (char)('0' + status % 10)};

        if (status < 100 || status > 999)
                return agx_trace(-EINVAL);
        return put_line(out,
                        (agx_view[]){AGX_VIEW("HTTP/1.1 "), agx_view_of(code, 3), AGX_VIEW(" "),
                                     agx_view_str(agx_http1_phrase(status))},
                        4);
}

int agx_http1_put_request(agx_buf *out, agx_view method, agx_view target)
{
        if (!is_token(method) || !is_target(target))
                return agx_trace(-EINVAL);
        return put_line(out, (agx_view[]){method, AGX_VIEW(" "), target, AGX_VIEW(" HTTP/1.1")}, 4);
}

int agx_http1_put_field(agx_buf *out, agx_view name, agx_view value)
{
        if (!is_token(name) || !is_value(value))
                return agx_trace(-EINVAL);
        return put_line(out, (agx_view[]){name, AGX_VIEW(": "), value}, 3);
}

int agx_http1_put_length(agx_buf *out, uint64_t length)
{
        char digits[20];
        size_t at = sizeof(digits);

        do
                digits[--at] = (char)('0' + length % 10);
        while (length /= 10);
        return put_line(out, (agx_view[]){AGX_VIEW("Content-Length: "), agx_view_of(digits + at, sizeof(digits) - at)},
                        2);
}

int agx_http1_put_end(agx_buf *out)
{
        return put_line(out, NULL, 0);
}
