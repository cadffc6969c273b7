/*
 * The manifest's texts stand in one table, which writing, parsing and tearing down go by. The written form has one key a
 * line, in a fixed order, so that equal bundles have equal manifests.
 */
#include "bundle/manifest.h"
#include "base/err.h"
#include "bundle/digest.h"
#include "wire/json.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

enum { DEPTH = 8 };

static const struct {
        const char *key;
        size_t at;
        bool required;
} texts[] = {
        {"name", offsetof(agx_manifest, name), true},         {"tag", offsetof(agx_manifest, tag), true},
        {"platform", offsetof(agx_manifest, platform), true}, {"nix_system", offsetof(agx_manifest, nix_system), false},
        {"digest", offsetof(agx_manifest, digest), true},     {"entrypoint", offsetof(agx_manifest, entrypoint), true},
};

static const struct {
        const char *key;
        size_t at;
        bool always; /* written even if it is empty */
} envs[] = {
        {"runtime_env", offsetof(agx_manifest, runtime_env), true},
        {"agentix_added_env", offsetof(agx_manifest, agentix_added_env), true},
        {"npm", offsetof(agx_manifest, npm), false},
};

static const char *const paths[][2] = {
        {"PATH", "/nix/runtime/venv/bin:/nix/runtime/bin"},
        {"LD_LIBRARY_PATH", "/nix/runtime/lib"},
        {"LIBRARY_PATH", "/nix/runtime/lib"},
        {"CPATH", "/nix/runtime/include"},
        {"C_INCLUDE_PATH", "/nix/runtime/include"},
        {"CPLUS_INCLUDE_PATH", "/nix/runtime/include"},
        {"PKG_CONFIG_PATH", "/nix/runtime/lib/pkgconfig:/nix/runtime/share/pkgconfig"},
        {"CMAKE_PREFIX_PATH", "/nix/runtime"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char **text_at(const agx_manifest *m, size_t i)
{
        return (char **)(void *)((char *)(uintptr_t)m + texts[i].at);
}

static agx_strv *env_at(const agx_manifest *m, size_t i)
{
        return (agx_strv *)(void *)((char *)(uintptr_t)m + envs[i].at);
}

void agx_manifest_deinit(agx_manifest *m)
{
        for (size_t i = 0; i < COUNT(texts); i++)
                free(*text_at(m, i));
        for (size_t i = 0; i < COUNT(envs); i++)
                agx_strv_deinit(env_at(m, i));
        *m = AGX_MANIFEST_NULL;
}

int agx_manifest_set_env(agx_manifest *m)
{
        for (size_t i = 0; i < COUNT(paths); i++) {
                agx_strv_addf(&m->runtime_env, "%s=%s", paths[i][0], paths[i][1]);
                agx_strv_addf(&m->agentix_added_env, "AGENTIX_ADDED_%s=%s", paths[i][0], paths[i][1]);
        }
        return agx_strv_end(&m->runtime_env) ? agx_strv_end(&m->runtime_env) : agx_strv_end(&m->agentix_added_env);
}

/* ---- writing ---- */

/* Strings are written through the writer of wire/json; the lines and the indent are set here. */
static int put_text(agx_buf *out, const char *lead, agx_view key, agx_view value)
{
        agx_json_writer w = agx_json_writer_on(out);
        int r = agx_buf_append_view(out, agx_view_str(lead));

        agx_json_put_string(&w, key);
        if (!r)
                r = agx_json_writer_end(&w);
        if (!r)
                r = agx_buf_append(out, ": ", 2);
        w = agx_json_writer_on(out);
        agx_json_put_string(&w, value);
        return r ? r : agx_json_writer_end(&w);
}

static int put_env(agx_buf *out, const char *key, const agx_strv *env)
{
        int r = agx_buf_printf(out, ",\n  \"%s\": {", key);

        for (size_t i = 0; !r && i < env->count; i++) {
                agx_view value = agx_view_str(env->items[i]), name;

                agx_view_split(&value, '=', &name);
                r = put_text(out, i ? ",\n    " : "\n    ", name, value.p ? value : AGX_VIEW(""));
        }
        return r ? r : agx_buf_append_view(out, env->count ? AGX_VIEW("\n  }") : AGX_VIEW("}"));
}

int agx_manifest_write(const agx_manifest *m, agx_buf *out)
{
        int r = agx_buf_printf(out, "{\n  \"schema_version\": %d,\n  \"format\": \"%s\"", AGX_MANIFEST_VERSION,
                               AGX_MANIFEST_FORMAT);

        for (size_t i = 0; !r && i < COUNT(texts); i++)
                if (*text_at(m, i))
                        r = put_text(out, ",\n  ", agx_view_str(texts[i].key), agx_view_str(*text_at(m, i)));
        for (size_t i = 0; !r && i < COUNT(envs); i++)
                if (envs[i].always || env_at(m, i)->count)
                        r = put_env(out, envs[i].key, env_at(m, i));
        r = r ? r : agx_buf_append_view(out, AGX_VIEW("\n}\n"));
        return r < 0 ? agx_trace(r) : r;
}

/* ---- what counts ---- */

static int put_line(agx_buf *out, const char *key, const char *text)
{
        return agx_buf_printf(out, "m %s %zu:%s\n", key, strlen(text), text);
}

static int compare(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int put_variables(agx_buf *out, const char *key, const agx_strv *env)
{
        _cleanup_(agx_freep) char **sorted = calloc(env->count + 1, sizeof(*sorted));
        int r = sorted ? 0 : agx_trace(-ENOMEM);

        if (r)
                return r;
        for (size_t i = 0; i < env->count; i++)
                sorted[i] = env->items[i];
        qsort(sorted, env->count, sizeof(*sorted), compare);
        for (size_t i = 0; !r && i < env->count; i++)
                r = put_line(out, key, sorted[i]);
        return r;
}

int agx_manifest_lines(const agx_manifest *m, agx_buf *out)
{
        int r = 0;

        for (size_t i = 0; !r && i < COUNT(texts); i++)
                if (*text_at(m, i) && strcmp(texts[i].key, "digest") != 0)
                        r = put_line(out, texts[i].key, *text_at(m, i));
        for (size_t i = 0; !r && i < COUNT(envs); i++)
                r = put_variables(out, envs[i].key, env_at(m, i));
        return r;
}

/* ---- parsing ---- */

typedef struct head {
        bool format, version; /* were there */
        int wrong;            /* a condition to report once the whole is known to be JSON */
} head;

/* A string without a NUL inside, as a C string. */
static int take_text(const agx_json_token *token, char **out)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(AGX_MANIFEST_MAX);

        if (token->kind != AGX_JSON_STRING || *out)
                return AGX_MANIFEST_E_JSON;
        if (agx_json_text(token, &text))
                return agx_trace(-ENOMEM);
        if (text.len && memchr(text.data + text.head, 0, text.len))
                return AGX_MANIFEST_E_JSON;
        *out = agx_strv_dup(agx_buf_view(&text));
        return *out ? 0 : agx_trace(-ENOMEM);
}

static int take_env(agx_json_reader *r, agx_strv *env)
{
        agx_json_token token = agx_json_next(r);

        if (token.kind != AGX_JSON_OBJECT || env->count)
                return AGX_MANIFEST_E_JSON;
        for (token = agx_json_next(r); token.kind == AGX_JSON_KEY; token = agx_json_next(r)) {
                _cleanup_(agx_buf_deinitp) agx_buf name = AGX_BUF_NULL(AGX_MANIFEST_MAX);
                _cleanup_(agx_freep) char *value = NULL;
                int e;

                if (agx_json_text(&token, &name))
                        return agx_trace(-ENOMEM);
                token = agx_json_next(r);
                e = take_text(&token, &value);
                if (e)
                        return e;
                if (!name.len || memchr(name.data + name.head, '=', name.len))
                        return AGX_MANIFEST_E_JSON;
                agx_strv_set(env, agx_buf_view(&name), agx_view_str(value));
        }
        if (token.kind != AGX_JSON_OBJECT_END || agx_strv_end(env) == -EINVAL)
                return AGX_MANIFEST_E_JSON;
        return agx_strv_end(env);
}

static int take_head(head *h, agx_json_reader *r, bool format)
{
        agx_json_token token = agx_json_next(r);
        uint64_t version;

        if (*(format ? &h->format : &h->version))
                return AGX_MANIFEST_E_JSON;
        *(format ? &h->format : &h->version) = true;
        if (format && !(token.kind == AGX_JSON_STRING && agx_json_is(&token, AGX_VIEW(AGX_MANIFEST_FORMAT))))
                h->wrong = AGX_MANIFEST_E_FORMAT;
        if (!format &&
            !(token.kind == AGX_JSON_NUMBER && agx_json_u64(&token, 1 << 20, &version) &&
              version == AGX_MANIFEST_VERSION) &&
            !h->wrong)
                h->wrong = AGX_MANIFEST_E_VERSION;
        return token.kind == AGX_JSON_STRING || token.kind == AGX_JSON_NUMBER ? 0 : AGX_MANIFEST_E_JSON;
}

static int take_member(agx_manifest *m, head *h, agx_json_reader *r, const agx_json_token *key)
{
        for (size_t i = 0; i < COUNT(texts); i++)
                if (agx_json_is(key, agx_view_str(texts[i].key))) {
                        agx_json_token token = agx_json_next(r);

                        return take_text(&token, text_at(m, i));
                }
        for (size_t i = 0; i < COUNT(envs); i++)
                if (agx_json_is(key, agx_view_str(envs[i].key)))
                        return take_env(r, env_at(m, i));
        if (agx_json_is(key, AGX_VIEW("format")) || agx_json_is(key, AGX_VIEW("schema_version")))
                return take_head(h, r, agx_json_is(key, AGX_VIEW("format")));
        return agx_json_skip(r).p ? 0 : AGX_MANIFEST_E_JSON;
}

static int parse(agx_manifest *m, head *h, agx_view json)
{
        agx_json_reader r = agx_json_reader_on(json, DEPTH);
        agx_json_token token = agx_json_next(&r);
        int e = token.kind == AGX_JSON_OBJECT ? 0 : AGX_MANIFEST_E_JSON;

        while (!e) {
                token = agx_json_next(&r);
                if (token.kind != AGX_JSON_KEY)
                        break;
                e = take_member(m, h, &r, &token);
        }
        if (!e && (token.kind != AGX_JSON_OBJECT_END || !agx_json_done(&r)))
                e = AGX_MANIFEST_E_JSON;
        return e;
}

static int judge(const agx_manifest *m, const head *h)
{
        if (!h->format)
                return AGX_MANIFEST_E_FORMAT;
        if (h->wrong)
                return h->wrong;
        if (!h->version)
                return AGX_MANIFEST_E_VERSION;
        for (size_t i = 0; i < COUNT(texts); i++)
                if (texts[i].required && (!*text_at(m, i) || !**text_at(m, i)))
                        return AGX_MANIFEST_E_MISSING;
        return agx_digest_is(agx_view_str(m->digest)) ? 0 : AGX_MANIFEST_E_DIGEST;
}

int agx_manifest_parse(agx_manifest *m, agx_view json)
{
        head h = {0};
        int r;

        *m = AGX_MANIFEST_NULL;
        r = json.n > AGX_MANIFEST_MAX ? AGX_MANIFEST_E_JSON : parse(m, &h, json);
        if (!r)
                r = judge(m, &h);
        if (r)
                agx_manifest_deinit(m);
        return r < 0 ? agx_trace(r) : r;
}

const char *agx_manifest_why(int condition)
{
        switch (condition) {
        case AGX_MANIFEST_E_JSON:
                return "manifest.json is malformed";
        case AGX_MANIFEST_E_FORMAT:
                return "manifest.json does not say format \"" AGX_MANIFEST_FORMAT "\"";
        case AGX_MANIFEST_E_VERSION:
                return "manifest.json has a schema version that this agentix does not know";
        case AGX_MANIFEST_E_MISSING:
                return "manifest.json lacks name, tag, platform, digest or entrypoint";
        case AGX_MANIFEST_E_DIGEST:
                return "manifest.json has a digest that is not sha256:<64 hex digits>";
        default:
                return "manifest.json could not be read";
        }
}
