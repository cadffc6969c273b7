/* The out-of-line verbs of views. */
#include "base/view.h"

static unsigned char lower(char c)
{
        unsigned char u = (unsigned char)c;

        return u >= 'A' && u <= 'Z' ? (unsigned char)(u + ('a' - 'A')) : u;
}

bool agx_view_ieq(agx_view a, agx_view b)
{
        if (a.n != b.n)
                return false;
        for (size_t i = 0; i < a.n; ++i)
                if (lower(a.p[i]) != lower(b.p[i]))
                        return false;
        return true;
}

agx_view agx_view_trim(agx_view a)
{
        while (a.n && (a.p[0] == ' ' || a.p[0] == '\t'))
                a = agx_view_from(a, 1);
        while (a.n && (a.p[a.n - 1] == ' ' || a.p[a.n - 1] == '\t'))
                --a.n;
        return a;
}

bool agx_view_split(agx_view *rest, char sep, agx_view *part)
{
        const char *at;

        if (!rest->p)
                return false;
        at = rest->n ? memchr(rest->p, sep, rest->n) : NULL;
        if (!at) {
                *part = *rest;
                *rest = AGX_VIEW_NULL;
                return true;
        }
        *part = agx_view_of(rest->p, (size_t)(at - rest->p));
        *rest = agx_view_from(*rest, part->n + 1);
        return true;
}

bool agx_view_u64(agx_view a, uint64_t max, uint64_t *value)
{
        uint64_t sum = 0;

        if (!a.n)
                return false;
        for (size_t i = 0; i < a.n; ++i) {
                uint64_t digit = (uint64_t)(a.p[i] - '0');

                if (a.p[i] < '0' || a.p[i] > '9' || digit > max || sum > (max - digit) / 10)
                        return false;
                sum = sum * 10 + digit;
        }
        *value = sum;
        return true;
}

bool agx_view_eq_secret(agx_view a, agx_view b)
{
        volatile unsigned char difference = a.n != b.n;
        size_t n = a.n < b.n ? a.n : b.n;

        for (size_t i = 0; i < n; ++i)
                difference |= (unsigned char)(a.p[i] ^ b.p[i]);
        return !difference;
}
