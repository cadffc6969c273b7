/*
 * A page in the user's browser can reach us under a name of its own (rebinding), but it cannot choose the Host field
 * then, nor leave Origin out where it matters: so both are checked against short lists. Lists stay text; they are
 * walked per request only when there is no valid token.
 */
#include "server/auth.h"
#include "base/err.h"

#include <string.h>

void agx_auth_init(agx_auth *a)
{
        *a = (agx_auth){.token = AGX_BUF_NULL(AGX_TOKEN_MAX),
                        .hosts = AGX_BUF_NULL(64 << 10),
                        .origins = AGX_BUF_NULL(64 << 10)};
}

void agx_auth_deinit(agx_auth *a)
{
        if (a->token.data)
                explicit_bzero(a->token.data, a->token.cap);
        agx_buf_deinit(&a->token);
        agx_buf_deinit(&a->hosts);
        agx_buf_deinit(&a->origins);
}

static bool is_blank(char c)
{
        return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static agx_view trim_lines(agx_view v)
{
        while (v.n && is_blank(v.p[0]))
                v = agx_view_from(v, 1);
        while (v.n && is_blank(v.p[v.n - 1]))
                v.n--;
        return v;
}

int agx_auth_set_token(agx_auth *a, agx_view text)
{
        text = trim_lines(text);
        if (!text.n || text.n > AGX_TOKEN_MAX)
                return AGX_AUTH_E_BAD;
        for (size_t i = 0; i < text.n; i++)
                if (text.p[i] <= ' ' || text.p[i] >= 0x7f)
                        return AGX_AUTH_E_BAD;
        agx_buf_clear(&a->token);
        return agx_buf_append_view(&a->token, text);
}

/* ---- lists ---- */

static char lower(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

/* Copies the entries, one comma after each, in lower case. */
static int set_list(agx_buf *list, agx_view text)
{
        size_t entries = 0;
        bool inside = false;

        agx_buf_clear(list);
        for (size_t i = 0; i <= text.n; i++) {
                char c = i < text.n ? lower(text.p[i]) : ',';
                bool gap = c == ',' || is_blank(c);
                int r = 0;

                if (!gap || inside)
                        r = agx_buf_append(list, gap ? "," : &c, 1);
                if (r)
                        return r < 0 ? r : AGX_AUTH_E_BAD;
                entries += gap && inside;
                inside = !gap;
        }
        return entries > AGX_ALLOWED_MAX ? AGX_AUTH_E_BAD : 0;
}

int agx_auth_set_hosts(agx_auth *a, agx_view list)
{
        return set_list(&a->hosts, list);
}

int agx_auth_set_origins(agx_auth *a, agx_view list)
{
        return set_list(&a->origins, list);
}

static bool in_list(const agx_buf *list, agx_view entry)
{
        agx_view rest = agx_buf_view(list), one;

        while (entry.n && agx_view_split(&rest, ',', &one))
                if (agx_view_ieq(one, entry))
                        return true;
        return false;
}

/* ---- checks ---- */

bool agx_auth_token_ok(const agx_auth *a, agx_view authorization)
{
        agx_view scheme;

        if (!agx_auth_has_token(a) || !authorization.p || !agx_view_split(&authorization, ' ', &scheme) ||
            !agx_view_ieq(scheme, AGX_VIEW("Bearer")) || !authorization.p)
                return false;
        return agx_view_eq_secret(agx_view_trim(authorization), agx_buf_view(&a->token));
}

/* Splits "name", "name:80", "[::1]:80"; brackets stay with the name. False: neither. */
static bool split_host(agx_view host, agx_view *name)
{
        const char *end;
        agx_view port;
        uint64_t number;

        if (host.n && host.p[0] == '[') {
                end = memchr(host.p, ']', host.n);
                end = end ? end + 1 : NULL;
        } else {
                end = host.n ? memchr(host.p, ':', host.n) : NULL;
                end = end ? end : host.p + host.n;
        }
        if (!end || end == host.p)
                return false;
        *name = agx_view_of(host.p, (size_t)(end - host.p));
        port = agx_view_from(host, name->n);
        if (!agx_view_starts(*name, AGX_VIEW("[")) && name->n > 1 && name->p[name->n - 1] == '.')
                name->n--;
        return !port.n || (port.p[0] == ':' && (port.n == 1 || agx_view_u64(agx_view_from(port, 1), 65535, &number)));
}

/* 127.0.0.0/8, all four parts decimal. */
static bool is_loopback_v4(agx_view name)
{
        agx_view part;
        uint64_t number;
        size_t n = 0;

        while (agx_view_split(&name, '.', &part)) {
                if (part.n > 3 || !agx_view_u64(part, 255, &number) || (!n && number != 127))
                        return false;
                n++;
        }
        return n == 4;
}

static bool is_loopback(agx_view name)
{
        return agx_view_ieq(name, AGX_VIEW("localhost")) || agx_view_eq(name, AGX_VIEW("[::1]")) ||
               is_loopback_v4(name);
}

bool agx_auth_host_ok(const agx_auth *a, agx_view host)
{
        agx_view name;

        if (!host.p || !split_host(host, &name))
                return false;
        return is_loopback(name) || in_list(&a->hosts, name) || in_list(&a->hosts, host) ||
               in_list(&a->hosts, AGX_VIEW("*"));
}

bool agx_auth_origin_ok(const agx_auth *a, agx_view origin)
{
        return in_list(&a->origins, origin);
}
