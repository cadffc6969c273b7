#ifndef AGX_BASE_VIEW_H
#define AGX_BASE_VIEW_H
/*
 * A borrowed run of bytes: pointer and length, never terminated, never owned. A view with `p == NULL` is "absent",
 * which differs from an empty one. Who gives out a view says how long it lives.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct agx_view {
        const char *p;
        size_t n;
} agx_view;

#define AGX_VIEW_NULL ((agx_view){NULL, 0})
/* A string literal as a view: AGX_VIEW("call"). */
#define AGX_VIEW(literal) ((agx_view){"" literal, sizeof(literal) - 1})

static inline agx_view agx_view_of(const void *p, size_t n)
{
        return (agx_view){p, n};
}

static inline agx_view agx_view_str(const char *s)
{
        return (agx_view){s, s ? strlen(s) : 0};
}

static inline bool agx_view_eq(agx_view a, agx_view b)
{
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): a view of something does point to it */
        return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool agx_view_starts(agx_view a, agx_view prefix)
{
        return a.n >= prefix.n && (prefix.n == 0 || memcmp(a.p, prefix.p, prefix.n) == 0);
}

/* The view without its first `n` bytes; `n` must not exceed the length. */
static inline agx_view agx_view_from(agx_view a, size_t n)
{
        return (agx_view){n ? a.p + n : a.p, a.n - n};
}

/* The first `n` bytes, or all there are. */
static inline agx_view agx_view_first(agx_view a, size_t n)
{
        return (agx_view){a.p, a.n < n ? a.n : n};
}

/* ASCII case is ignored; other bytes compare exactly. */
bool agx_view_ieq(agx_view a, agx_view b);
/* Without leading and trailing spaces and tabs. */
agx_view agx_view_trim(agx_view a);
/* Splits off the part before the first `sep` (or all of it) from `*rest`; false when `*rest` is used up (absent). */
bool agx_view_split(agx_view *rest, char sep, agx_view *part);
/* Parses an unsigned decimal with no sign, blanks or leading '+'; false if empty, not digits only, or above `max`. */
bool agx_view_u64(agx_view a, uint64_t max, uint64_t *value);
/* Compares in time that depends only on the lengths, for secrets. */
bool agx_view_eq_secret(agx_view a, agx_view b);

#endif
