/*
 * One pass over the field value with a cursor. A preference is `name [= word] *( ; parameter )`; a word is a token or a
 * quoted string, so a comma or semicolon counts only outside quotes. Whatever breaks that form ends at the next comma.
 */
#include "wire/prefer.h"

typedef struct preference {
        agx_view name;
        agx_view word; /* without its quotes; absent if there is none */
        bool readable;
} preference;

static void skip_blanks(agx_view *in)
{
        while (in->n && (in->p[0] == ' ' || in->p[0] == '\t'))
                *in = agx_view_from(*in, 1);
}

static bool is_token_char(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("!#$%&'*+-.^_`|~", c));
}

static agx_view take_token(agx_view *in)
{
        size_t n = 0;
        agx_view token;

        while (n < in->n && is_token_char(in->p[n]))
                ++n;
        token = agx_view_of(in->p, n);
        *in = agx_view_from(*in, n);
        return token;
}

/* The inside of a quoted string, backslashes left in place; absent if it does not end. */
static agx_view take_quoted(agx_view *in)
{
        agx_view inside;

        for (size_t n = 1; n < in->n; ++n) {
                if (in->p[n] == '\\') {
                        ++n;
                } else if (in->p[n] == '"') {
                        inside = agx_view_of(in->p + 1, n - 1);
                        *in = agx_view_from(*in, n + 1);
                        return inside;
                }
        }
        *in = agx_view_from(*in, in->n);
        return AGX_VIEW_NULL;
}

/* `name [= word]`, a preference or a parameter of one. */
static preference take_pair(agx_view *in)
{
        preference p = {.name = take_token(in)};

        p.readable = p.name.n > 0;
        skip_blanks(in);
        if (!in->n || in->p[0] != '=')
                return p;
        *in = agx_view_from(*in, 1);
        skip_blanks(in);
        p.word = in->n && in->p[0] == '"' ? take_quoted(in) : take_token(in);
        p.readable = p.readable && p.word.p;
        skip_blanks(in);
        return p;
}

/* One element of the list, its parameters and the comma behind it included. */
static preference take_preference(agx_view *in)
{
        preference p;

        skip_blanks(in);
        p = take_pair(in);
        while (in->n && in->p[0] != ',') {
                bool parameter = in->p[0] == ';';

                if (in->p[0] == '"')
                        take_quoted(in);
                else
                        *in = agx_view_from(*in, 1);
                skip_blanks(in);
                if (parameter && in->n && is_token_char(in->p[0]))
                        take_pair(in);
                p.readable = p.readable && parameter;
        }
        if (in->n)
                *in = agx_view_from(*in, 1);
        return p;
}

static bool is_digits(agx_view v)
{
        for (size_t i = 0; i < v.n; ++i)
                if (v.p[i] < '0' || v.p[i] > '9')
                        return false;
        return v.n > 0;
}

/* The first three of the digits behind the point; an absent view is none. */
static uint64_t thousandths(agx_view digits)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < 3; ++i)
                sum = sum * 10 + (digits.p && i < digits.n ? (uint64_t)(digits.p[i] - '0') : 0);
        return sum;
}

/* "12", "0.25": milliseconds, cut below them, at most `max_ms`. */
static bool parse_seconds(agx_view text, uint64_t max_ms, uint64_t *ms)
{
        agx_view whole, rest = text;
        uint64_t seconds;

        if (!agx_view_split(&rest, '.', &whole) || !is_digits(whole) || (rest.p && !is_digits(rest)))
                return false;
        if (!agx_view_u64(whole, max_ms / 1000, &seconds) || thousandths(rest) > max_ms - seconds * 1000)
                *ms = max_ms;
        else
                *ms = seconds * 1000 + thousandths(rest);
        return true;
}

agx_prefer agx_prefer_parse(agx_view value, uint64_t max_ms)
{
        agx_prefer prefer = {0};
        bool seen_async = false, seen_wait = false;

        while (value.n) {
                preference p = take_preference(&value);

                if (agx_view_ieq(p.name, AGX_VIEW("respond-async")) && !seen_async) {
                        seen_async = true;
                        prefer.respond_async = p.readable && !p.word.n;
                } else if (agx_view_ieq(p.name, AGX_VIEW("wait")) && !seen_wait) {
                        seen_wait = true;
                        prefer.has_wait = p.readable && parse_seconds(p.word, max_ms, &prefer.wait_ms);
                }
        }
        return prefer;
}

int agx_prefer_put_wait(agx_buf *out, uint64_t wait_ms)
{
        unsigned fraction = (unsigned)(wait_ms % 1000);
        int digits = 3;

        if (!fraction)
                return agx_buf_printf(out, "wait=%llu", (unsigned long long)(wait_ms / 1000));
        for (; fraction % 10 == 0; --digits)
                fraction /= 10;
        return agx_buf_printf(out, "wait=%llu.%0*u", (unsigned long long)(wait_ms / 1000), digits, fraction);
}
