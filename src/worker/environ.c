/*
 * Two passes: the parent's variables are copied, dropped or moved aside one by one; then the tables of search paths and
 * the worker's own names are applied. Lists never hold an entry twice; entries of ours come first, the rest keeps its
 * order. A list that already records an addition (a server inside a worker) keeps that record in front.
 */
#include "worker/environ.h"
#include "base/buf.h"
#include "base/err.h"
#include "proto/frame.h"

enum { VALUE_MAX = 2 << 20 }; /* no execve takes a string longer than this */

static const char *const server_only[] = {
        "AGENTIX_BIND_HOST",     "AGENTIX_BIND_PORT",       "AGENTIX_BIND_SOCKET", "AGENTIX_TOKEN_FILE",
        "AGENTIX_ALLOWED_HOSTS", "AGENTIX_ALLOWED_ORIGINS", "AGENTIX_LEASE",       "AGENTIX_SPARE_WORKERS",
        "AGENTIX_READY_FD",      "AGENTIX_LIFELINE_FD",
};

static const char *const saved_names[] = {"LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "LOCALE_ARCHIVE", "SSL_CERT_FILE"};
static const char *const saved_prefixes[] = {"NIX_", "FONTCONFIG_"};

static const struct {
        const char *name;
        const char *add; /* colon-separated */
} paths[] = {
        {"LD_LIBRARY_PATH", "/nix/runtime/lib"},
        {"LIBRARY_PATH", "/nix/runtime/lib"},
        {"CPATH", "/nix/runtime/include"},
        {"C_INCLUDE_PATH", "/nix/runtime/include"},
        {"CPLUS_INCLUDE_PATH", "/nix/runtime/include"},
        {"PKG_CONFIG_PATH", "/nix/runtime/lib/pkgconfig:/nix/runtime/share/pkgconfig"},
        {"CMAKE_PREFIX_PATH", "/nix/runtime"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the set of variables ---- */

static agx_view name_of(const char *var)
{
        const char *equals = strchr(var, '=');

        return agx_view_of(var, equals ? (size_t)(equals - var) : strlen(var));
}

static char **slot_of(const agx_environ *e, agx_view name)
{
        for (size_t i = 0; i < e->n; i++)
                if (agx_view_eq(name_of(e->vars[i]), name))
                        return &e->vars[i];
        return NULL;
}

agx_view agx_environ_get(const agx_environ *e, agx_view name)
{
        char **slot = slot_of(e, name);

        return slot ? agx_view_str(*slot + name.n + 1) : AGX_VIEW_NULL;
}

static int room(agx_environ *e)
{
        size_t cap = e->cap ? e->cap * 2 : 64;
        char **vars;

        if (e->n + 1 < e->cap)
                return 0;
        vars = realloc(e->vars, cap * sizeof(*vars));
        if (!vars)
                return agx_trace(-ENOMEM);
        e->vars = vars;
        e->cap = cap;
        return 0;
}

/* Sets prefix + name to value, replacing what is there. */
static int put(agx_environ *e, agx_view prefix, agx_view name, agx_view value)
{
        size_t n = prefix.n + name.n;
        char *var = malloc(n + 1 + value.n + 1), **slot;

        if (!var || room(e)) {
                free(var);
                return agx_trace(-ENOMEM);
        }
        if (prefix.n)
                memcpy(var, prefix.p, prefix.n);
        memcpy(var + prefix.n, name.p, name.n);
        var[n] = '=';
        if (value.n)
                memcpy(var + n + 1, value.p, value.n);
        var[n + 1 + value.n] = 0;
        slot = slot_of(e, agx_view_of(var, n));
        if (slot)
                free(*slot);
        else
                slot = &e->vars[e->n++];
        *slot = var;
        e->vars[e->n] = NULL;
        return 0;
}

void agx_environ_deinit(agx_environ *e)
{
        for (size_t i = 0; i < e->n; i++)
                free(e->vars[i]);
        free(e->vars);
        *e = AGX_ENVIRON_NULL;
}

/* ---- lists ---- */

static bool list_has(agx_view list, agx_view entry)
{
        agx_view part;

        while (agx_view_split(&list, ':', &part))
                if (agx_view_eq(part, entry))
                        return true;
        return false;
}

/* Appends the entries of `list` that `out` does not hold yet. */
static int list_append(agx_buf *out, bool *empty, agx_view list)
{
        agx_view part;
        int r = 0;

        while (!r && agx_view_split(&list, ':', &part)) {
                if (!*empty && list_has(agx_buf_view(out), part))
                        continue;
                if (!*empty)
                        r = agx_buf_append(out, ":", 1);
                if (!r)
                        r = agx_buf_append_view(out, part);
                *empty = false;
        }
        return r ? agx_trace(-ENOMEM) : 0;
}

static int put_joined(agx_environ *e, agx_view prefix, agx_view name, agx_view first, agx_view second)
{
        _cleanup_(agx_buf_deinitp) agx_buf joined = AGX_BUF_NULL(VALUE_MAX);
        bool empty = true;
        int r = list_append(&joined, &empty, first);

        if (!r && second.n)
                r = list_append(&joined, &empty, second);
        return r ? r : put(e, prefix, name, agx_buf_view(&joined));
}

static int prepend(agx_environ *e, agx_view name, agx_view add)
{
        char tracking[64] = "AGENTIX_ADDED_";
        size_t n = strlen(tracking);
        agx_view recorded;
        int r;

        memcpy(tracking + n, name.p, name.n); /* the longest name of the table fits */
        recorded = agx_environ_get(e, agx_view_of(tracking, n + name.n));
        r = recorded.n ? put_joined(e, AGX_VIEW("AGENTIX_ADDED_"), name, recorded, add)
                       : put(e, AGX_VIEW("AGENTIX_ADDED_"), name, add);
        return r ? r : put_joined(e, AGX_VIEW(""), name, add, agx_environ_get(e, name));
}

/* ---- the contract ---- */

static bool in_table(const char *const *table, size_t n, agx_view name)
{
        for (size_t i = 0; i < n; i++)
                if (agx_view_eq(agx_view_str(table[i]), name))
                        return true;
        return false;
}

static bool is_saved(agx_view name)
{
        for (size_t i = 0; i < COUNT(saved_prefixes); i++)
                if (agx_view_starts(name, agx_view_str(saved_prefixes[i])))
                        return true;
        return in_table(saved_names, COUNT(saved_names), name);
}

static int copy_plain(agx_environ *e, const char *var)
{
        agx_view name = name_of(var);

        if (!var[name.n] || !name.n || is_saved(name) || in_table(server_only, COUNT(server_only), name))
                return 0;
        return put(e, AGX_VIEW(""), name, agx_view_str(var + name.n + 1));
}

static int move_aside(agx_environ *e, const char *var)
{
        agx_view name = name_of(var);

        return var[name.n] && is_saved(name) ? put(e, AGX_VIEW("AGENTIX_SAVED_"), name, agx_view_str(var + name.n + 1))
                                             : 0;
}

static agx_view directory_of(agx_view path)
{
        size_t n = path.n;

        while (n && path.p[n - 1] != '/')
                n--;
        return agx_view_first(path, n > 1 ? n - 1 : n);
}

static int put_path(agx_environ *e, agx_view python)
{
        _cleanup_(agx_buf_deinitp) agx_buf add = AGX_BUF_NULL(VALUE_MAX);

        if (agx_buf_append_view(&add, directory_of(python)) || agx_buf_append_view(&add, AGX_VIEW(":/nix/runtime/bin")))
                return agx_trace(-ENOMEM);
        return prepend(e, AGX_VIEW("PATH"), agx_buf_view(&add));
}

/* `{id}` is the worker's id; other braces are for the worker, which knows its process. */
static int expand_id(agx_buf *out, agx_view template, agx_view id)
{
        while (template.n) {
                const char *at = memmem(template.p, template.n, "{id}", 4);
                size_t plain = at ? (size_t)(at - template.p) : template.n;

                if (agx_buf_append(out, template.p, plain) || (at && agx_buf_append_view(out, id)))
                        return agx_trace(-ENOMEM);
                template = agx_view_from(template, at ? plain + 4 : plain);
        }
        return 0;
}

static int put_context(agx_environ *e, const agx_environ_facts *facts)
{
        _cleanup_(agx_buf_deinitp) agx_buf context = AGX_BUF_NULL(VALUE_MAX);
        agx_view template = agx_environ_get(e, AGX_VIEW("AGENTIX_WORKER_LOG_CONTEXT"));
        int r = 0;

        if (template.n)
                r = expand_id(&context, template, facts->worker_id);
        else if (agx_buf_printf(&context, "sandbox-%.*s-worker-%.*s", (int)facts->box_id.n, facts->box_id.p,
                                (int)facts->worker_id.n, facts->worker_id.p))
                r = agx_trace(-ENOMEM);
        return r ? r : put(e, AGX_VIEW(""), AGX_VIEW("AGENTIX_LOG_CONTEXT"), agx_buf_view(&context));
}

int agx_environ_make(agx_environ *e, char *const *parent, const agx_environ_facts *facts)
{
        int r = 0;

        *e = AGX_ENVIRON_NULL;
        for (size_t i = 0; !r && parent[i]; i++)
                r = copy_plain(e, parent[i]);
        for (size_t i = 0; !r && parent[i]; i++)
                r = move_aside(e, parent[i]);
        if (!r)
                r = put_path(e, facts->python);
        for (size_t i = 0; !r && i < COUNT(paths); i++)
                r = prepend(e, agx_view_str(paths[i].name), agx_view_str(paths[i].add));
        if (!r)
                r = put(e, AGX_VIEW(""), AGX_VIEW("AGENTIX_WORKER_ID"), facts->worker_id);
        if (!r)
                r = put(e, AGX_VIEW(""), AGX_VIEW("AGENTIX_WORKER_FEATURES"), AGX_VIEW(AGX_FEATURE_PIECES));
        if (!r)
                r = put_context(e, facts);
        if (r)
                agx_environ_deinit(e);
        return r;
}
