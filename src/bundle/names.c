/*
 * requires-python is judged by trial: each patch release of each minor version is held against every clause. That is a few
 * hundred comparisons, and spares the algebra of intervals with holes.
 */
#include "bundle/names.h"
#include "base/err.h"
#include "base/strv.h"

#include <ctype.h>
#include <stdio.h>
#include <sys/utsname.h>

enum { MINOR_MIN = 11, MINOR_MAX = 13, PATCH_MAX = 99 };

int agx_names_choose(const char *wish, const char *project, const char *version, char **name, char **tag, agx_why *why)
{
        const char *colon = wish ? strchr(wish, ':') : NULL;
        agx_view own = agx_view_str(project), tags = agx_view_str(version && *version ? version : "latest");

        if (agx_view_starts(own, AGX_VIEW("agentix-")) && own.n > 8)
                own = agx_view_from(own, 8);
        if (wish)
                own = agx_view_of(wish, colon ? (size_t)(colon - wish) : strlen(wish));
        if (colon)
                tags = agx_view_str(colon + 1);
        if (!own.n || !tags.n)
                return agx_why_set(why, "usage", "invalid name '%s': NAME or NAME:TAG, neither side empty",
                                   wish ? wish : "");
        *name = agx_strv_dup(own);
        *tag = agx_strv_dup(tags);
        return *name && *tag ? 0 : agx_trace(-ENOMEM);
}

static const struct {
        const char *spelling;
        const char *platform;
} platforms[] = {
        {"linux/amd64", "linux/amd64"},  {"amd64", "linux/amd64"},          {"x86_64", "linux/amd64"},
        {"linux/x86_64", "linux/amd64"}, {"linux/arm64", "linux/arm64"},    {"arm64", "linux/arm64"},
        {"aarch64", "linux/arm64"},      {"linux/arm64/v8", "linux/arm64"}, {"linux/aarch64", "linux/arm64"},
};

const char *agx_names_platform(const char *text)
{
        for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++)
                if (!strcmp(text, platforms[i].spelling))
                        return platforms[i].platform;
        return NULL;
}

const char *agx_names_own_platform(void)
{
        struct utsname u;

        return uname(&u) ? NULL : agx_names_platform(u.machine);
}

const char *agx_names_nix_system(const char *platform)
{
        return strcmp(platform, "linux/arm64") ? "x86_64-linux" : "aarch64-linux";
}

static bool is_plain(char c)
{
        return isalnum((unsigned char)c) || c == '.' || c == '_' || c == '-';
}

char *agx_names_sanitise(const char *text)
{
        char *out = strdup(text);

        for (char *p = out; p && *p; p++)
                if (!is_plain(*p))
                        *p = '-';
        return out;
}

bool agx_names_is_zstd(const char *path)
{
        size_t n = strlen(path);

        return n >= 4 && !strcmp(path + n - 4, ".zst");
}

static bool has_suffix(const char *path)
{
        const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');

        return dot && dot != base && dot[1];
}

char *agx_names_output(const char *wish, bool is_dir, const char *name, const char *tag, const char *platform,
                       bool zstd)
{
        _cleanup_(agx_freep) char *n = agx_names_sanitise(name), *t = agx_names_sanitise(tag),
                                  *p = agx_names_sanitise(platform);
        char *out = NULL;
        size_t length = wish ? strlen(wish) : 0;

        if (!n || !t || !p)
                return NULL;
        if (length && !is_dir && wish[length - 1] != '/' && has_suffix(wish))
                return strdup(wish);
        if (asprintf(&out, "%s%s%s-%s-%s.bundle.tar%s", length ? wish : "dist",
                     length && wish[length - 1] == '/' ? "" : "/", n, t, p, zstd ? ".zst" : "") < 0)
                return NULL;
        return out;
}

/* ---- requires-python ---- */

typedef struct version {
        long part[3];
        unsigned n;
        bool any; /* ".*" behind it */
} version;

static bool read_version(agx_view text, version *v)
{
        agx_view part;

        *v = (version){0};
        while (agx_view_split(&text, '.', &part)) {
                uint64_t number;

                if (agx_view_eq(part, AGX_VIEW("*")) && v->n && !text.p) {
                        v->any = true;
                        return true;
                }
                if (!agx_view_u64(part, 100000, &number))
                        return false;
                if (v->n < 3)
                        v->part[v->n++] = (long)number;
        }
        return v->n > 0;
}

/* Compares the first `n` parts; parts that are not given are 0. */
static int compare(const long *a, const version *b, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                if (a[i] != b->part[i])
                        return a[i] < b->part[i] ? -1 : 1;
        return 0;
}

static const char *const operators[] = {"~=", "===", "==", "!=", "<=", ">=", "<", ">"};

/* Whether `candidate` is within the clause; -1: it cannot be read. */
static int allows(agx_view clause, const long candidate[3])
{
        const char *op = NULL;
        version v;
        int c;

        for (size_t i = 0; !op && i < sizeof(operators) / sizeof(operators[0]); i++)
                if (agx_view_starts(clause, agx_view_str(operators[i])))
                        op = operators[i];
        if (!op || !read_version(agx_view_trim(agx_view_from(clause, strlen(op))), &v))
                return -1;
        c = compare(candidate, &v, v.any ? v.n : 3);
        if (!strcmp(op, "~="))
                return v.n < 2 || v.any ? -1 : c >= 0 && !compare(candidate, &v, v.n - 1);
        if (!strcmp(op, "==") || !strcmp(op, "==="))
                return c == 0;
        if (!strcmp(op, "!="))
                return c != 0;
        if (!strcmp(op, "<="))
                return c <= 0;
        if (!strcmp(op, ">="))
                return c >= 0;
        return !strcmp(op, "<") ? c < 0 : c > 0;
}

/* 1, 0, or -1 as above. */
static int allows_all(agx_view clauses, const long candidate[3])
{
        agx_view clause;
        int all = 1;

        while (agx_view_split(&clauses, ',', &clause)) {
                int one = allows(agx_view_trim(clause), candidate);

                if (one < 0)
                        return -1;
                all = all && one;
        }
        return all;
}

unsigned agx_names_python_minor(const char *requires)
{
        agx_view clauses = requires ? agx_view_trim(agx_view_str(requires)) : AGX_VIEW("");

        if (!clauses.n)
                return MINOR_MIN;
        for (long minor = MINOR_MIN; minor <= MINOR_MAX; minor++)
                for (long patch = 0; patch <= PATCH_MAX; patch++) {
                        int r = allows_all(clauses, (const long[3]){3, minor, patch});

                        if (r)
                                return r < 0 ? MINOR_MIN : (unsigned)minor;
                }
        return 0;
}
