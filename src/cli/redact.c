/* It errs on the side of stars. */
#include "cli/redact.h"

#include <string.h>
#include <strings.h>

#define STARS "***"

static bool is_secret_name(agx_view name)
{
        static const char *const words[] = {"token", "passw", "secret", "key", "credential", "auth"};

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
                for (size_t at = 0; at + strlen(words[i]) <= name.n; at++)
                        if (!strncasecmp(name.p + at, words[i], strlen(words[i])))
                                return true;
        return false;
}

/* `user:password` of the first URL in the text; absent: none. */
static agx_view user_part(agx_view text)
{
        const char *scheme = memmem(text.p, text.n, "://", 3);
        agx_view rest, authority;
        const char *at;

        if (!scheme)
                return AGX_VIEW_NULL;
        rest = agx_view_from(text, (size_t)(scheme + 3 - text.p));
        if (!agx_view_split(&rest, '/', &authority))
                return AGX_VIEW_NULL;
        at = memrchr(authority.p, '@', authority.n);
        return at ? agx_view_of(authority.p, (size_t)(at - authority.p)) : AGX_VIEW_NULL;
}

static int put(agx_buf *out, agx_view text)
{
        return text.n ? agx_buf_append(out, text.p, text.n) : 0;
}

/* How much of the word may be seen: up to the first `=` behind a name of a secret. */
static size_t open_part(agx_view word)
{
        agx_view rest = word, name;

        while (agx_view_split(&rest, '=', &name) && rest.p)
                if (is_secret_name(name))
                        return (size_t)(rest.p - word.p);
        return word.n;
}

static int without_user(agx_buf *out, agx_view word)
{
        agx_view user = user_part(word);
        int r = put(out, user.n ? agx_view_of(word.p, (size_t)(user.p - word.p)) : word);

        if (!r && user.n)
                r = put(out, AGX_VIEW(STARS));
        return r || !user.n ? r : put(out, agx_view_from(word, (size_t)(user.p - word.p) + user.n));
}

int agx_redact(agx_buf *out, const agx_strv *words, size_t n)
{
        _cleanup_(agx_buf_deinitp) agx_buf plain = AGX_BUF_NULL(out->max);
        const char *before = n ? words->items[n - 1] : "";
        size_t open;
        int r;

        if (!strncmp(before, "--", 2) && !strchr(before, '=') && is_secret_name(agx_view_str(before)))
                return put(out, AGX_VIEW(STARS));
        r = without_user(&plain, agx_view_str(words->items[n]));
        if (r)
                return r;
        open = open_part(agx_buf_view(&plain));
        r = put(out, agx_view_first(agx_buf_view(&plain), open));
        return r || open == plain.len ? r : put(out, AGX_VIEW(STARS));
}
