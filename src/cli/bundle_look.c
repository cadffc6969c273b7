/* agentix bundle inspect, verify, list: what bundles say of themselves, and whether it is true. */
#include "cli/bundle_target.h"
#include "cli/bundle_verbs.h"
#include "cli/json_field.h"
#include "cli/limits.h"
#include "cli/size.h"
#include "cli/trouble.h"
#include "cli/unpacking.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 16 << 20 };

/* ---- inspect ---- */

typedef struct one_values {
        const char *bundle;
        const char *cache_dir;
} one_values;

static const agx_opt one_opts[] = {
        {AGX_OPT_ARG, .name = "BUNDLE", .help = "a bundle tar, a deployed directory, or a digest (its beginning)",
         .offset = offsetof(one_values, bundle)},
        AGX_CACHE_DIR_OPT(one_values),
        {.kind = AGX_OPT_END},
};

static int read_tar_manifest(const char *tar, agx_unpacked *u, agx_why *why)
{
        _cleanup_(agx_closep) int fd = open(tar, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        agx_unpack_limits limits = agx_cli_unpack_limits();

        return fd < 0 ? agx_why_errno(why, errno, "cannot open the bundle %s", tar)
                      : agx_unpack_manifest(u, fd, &limits, why);
}

static void put_env(agx_json_writer *w, const char *key, const agx_strv *env)
{
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_object(w);
        for (size_t i = 0; i < env->count; i++) {
                agx_view value = agx_view_str(env->items[i]);
                agx_view name;

                agx_view_split(&value, '=', &name);
                agx_json_put_key(w, name);
                agx_json_put_string(w, value);
        }
        agx_json_put_object_end(w);
}

static void say_pair(agx_cli *cli, const char *key, const char *value)
{
        agx_say_data(&cli->say, "%s -> ", key);
        agx_say_data_view(&cli->say, agx_view_str(value));
        agx_say_data(&cli->say, "\n");
}

static int show_manifest(agx_cli *cli, const char *path, const agx_manifest *m)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);

        if (!cli->say.json) {
                say_pair(cli, "path", path);
                say_pair(cli, "name", m->name);
                say_pair(cli, "tag", m->tag);
                say_pair(cli, "platform", m->platform);
                say_pair(cli, "digest", m->digest);
                say_pair(cli, "entrypoint", m->entrypoint);
                return AGX_EXIT_OK;
        }
        agx_json_put_object(&w);
        agx_json_field(&w, "path", path);
        agx_json_field(&w, "name", m->name);
        agx_json_field(&w, "tag", m->tag);
        agx_json_field(&w, "platform", m->platform);
        agx_json_field(&w, "nix_system", m->nix_system);
        agx_json_field(&w, "digest", m->digest);
        agx_json_field(&w, "entrypoint", m->entrypoint);
        put_env(&w, "runtime_env", &m->runtime_env);
        put_env(&w, "agentix_added_env", &m->agentix_added_env);
        agx_json_put_object_end(&w);
        if (agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, &out);
        return AGX_EXIT_OK;
}

static int run_inspect(agx_cli *cli, void *values)
{
        _cleanup_(agx_bundle_target_deinitp) agx_bundle_target t = {.cache = AGX_CACHE_NULL};
        _cleanup_(agx_unpacked_deinitp) agx_unpacked u = {0};
        _cleanup_(agx_freep) char *path = NULL;
        const one_values *v = values;
        agx_why why = AGX_WHY_NULL;
        int r = agx_bundle_target_init(&t, v->bundle, v->cache_dir, &why);

        if (!r)
                r = t.tar ? read_tar_manifest(v->bundle, &u, &why)
                          : agx_cache_manifest(&t.cache, t.entry, &u.manifest, &why);
        if (r == AGX_CACHE_E_NONE)
                return agx_cli_trouble(cli, agx_bundle_not_found(&why, v->bundle), &why);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (t.tar)
                path = strdup(v->bundle);
        else if (asprintf(&path, "%s/%s", t.cache.path, t.entry) < 0)
                path = NULL;
        /* What a manifest says of itself is a claim; the name of an entry was computed. */
        if (path && !t.tar)
                memcpy(u.manifest.digest + 7, t.entry + 7, AGX_DIGEST_SIZE - 8);
        return path ? show_manifest(cli, path, &u.manifest) : agx_say_no_memory(&cli->say);
}

const agx_command agx_bundle_inspect = {
        .name = "inspect",
        .summary = "Show a bundle's manifest",
        .examples = "  agentix bundle inspect dist/x.bundle.tar\n"
                    "  agentix bundle inspect 5f2c9a\n",
        .opts = one_opts,
        .size = sizeof(one_values),
        .format = true,
        .run = run_inspect,
};

/* ---- verify ---- */

static int show_verdict(agx_cli *cli, const char *path, const char *expected, const char *computed)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        bool ok = !strcmp(expected, computed);

        if (cli->say.json) {
                agx_json_put_object(&w);
                agx_json_field(&w, "path", path);
                agx_json_field(&w, "expected", expected);
                agx_json_field(&w, "computed", computed);
                agx_json_field_bool(&w, "ok", ok);
                agx_json_put_object_end(&w);
                if (agx_json_writer_end(&w))
                        return agx_say_no_memory(&cli->say);
                agx_say_data_json(&cli->say, &out);
        } else if (ok) {
                agx_say_data(&cli->say, "%s  ok\n", computed);
        }
        if (ok)
                return AGX_EXIT_OK;
        return agx_say_error(&cli->say, &(agx_complaint){"digest", NULL, AGX_EXIT_FAILURE},
                             "%s should be %s, but its content is %s", path, expected, computed);
}

static int verify_tar(agx_cli *cli, const agx_bundle_target *t, const char *tar, agx_why *why)
{
        _cleanup_(agx_deployed_deinitp) agx_deployed d = {0};
        agx_cache cache = t->cache;
        int r = agx_cli_unpack(cli, &cache, tar, agx_cache_try, &d, why);

        return r ? agx_cli_trouble(cli, r, why) : show_verdict(cli, tar, d.unpacked.manifest.digest, d.digest);
}

static int run_verify(agx_cli *cli, void *values)
{
        _cleanup_(agx_bundle_target_deinitp) agx_bundle_target t = {.cache = AGX_CACHE_NULL};
        const one_values *v = values;
        agx_why why = AGX_WHY_NULL;
        char expected[AGX_DIGEST_SIZE], computed[AGX_DIGEST_SIZE];
        int r = agx_bundle_target_init(&t, v->bundle, v->cache_dir, &why);

        if (!r && t.tar)
                return verify_tar(cli, &t, v->bundle, &why);
        if (!r)
                r = agx_cache_digest(&t.cache, t.entry, computed, &why);
        if (r == AGX_CACHE_E_NONE)
                r = agx_bundle_not_found(&why, v->bundle);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        snprintf(expected, sizeof(expected), "sha256:%s", t.entry + 7);
        return show_verdict(cli, t.entry, expected, computed);
}

const agx_command agx_bundle_verify = {
        .name = "verify",
        .summary = "Compute a bundle's digest and compare it with what it should be",
        .text = "A tar is held against its manifest, a deployed bundle against its name.\n",
        .opts = one_opts,
        .size = sizeof(one_values),
        .format = true,
        .run = run_verify,
};

/* ---- list ---- */

typedef struct list_values {
        const char *cache_dir;
} list_values;

static const agx_opt list_opts[] = {AGX_CACHE_DIR_OPT(list_values), {.kind = AGX_OPT_END}};

static int list_one(agx_cli *cli, const agx_cache *c, const char *entry, agx_json_writer *w)
{
        _cleanup_(agx_manifest_deinitp) agx_manifest m = AGX_MANIFEST_NULL;
        agx_why why = AGX_WHY_NULL;
        _cleanup_(agx_freep) char *path = NULL;
        uint64_t bytes = 0;
        char size[AGX_SIZE_TEXT], digest[AGX_DIGEST_SIZE];
        int r = agx_cache_manifest(c, entry, &m, &why);

        if (r == -ENOMEM || (!r && agx_cache_size(c, entry, &bytes, &why) == -ENOMEM))
                return -ENOMEM;
        agx_size_text(bytes, size);
        snprintf(digest, sizeof(digest), "sha256:%s", entry + 7);
        if (asprintf(&path, "%s/%s", c->path, entry) < 0)
                path = NULL;
        if (!cli->say.json) {
                agx_say_data(&cli->say, "%.19s  ", entry);
                if (r) {
                        agx_say_data(&cli->say, "ERROR  ");
                        agx_say_data_view(&cli->say, agx_view_str(why.text));
                } else {
                        agx_say_data_view(&cli->say, agx_view_str(m.name));
                        agx_say_data(&cli->say, ":");
                        agx_say_data_view(&cli->say, agx_view_str(m.tag));
                        agx_say_data(&cli->say, "  %s  %s", m.platform, size);
                }
                agx_say_data(&cli->say, "\n");
                return 0;
        }
        agx_json_put_object(w);
        agx_json_field(w, "digest", digest);
        agx_json_field(w, "path", path);
        agx_json_field(w, "name", m.name);
        agx_json_field(w, "tag", m.tag);
        agx_json_field(w, "platform", m.platform);
        agx_json_field_u64(w, "bytes", bytes);
        agx_json_field(w, "error", r ? why.text : NULL);
        agx_json_put_object_end(w);
        return 0;
}

static int run_list(agx_cli *cli, void *values)
{
        _cleanup_(agx_cache_closep) agx_cache c = AGX_CACHE_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv names = AGX_STRV_NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        agx_why why = AGX_WHY_NULL;
        int r = agx_cli_open_cache(&c, ((const list_values *)values)->cache_dir, false, &why);

        if (!r)
                r = agx_cache_list(&c, &names, &why);
        if (r && r != AGX_CACHE_E_NONE)
                return agx_cli_trouble(cli, r, &why);
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("bundles"));
        agx_json_put_array(&w);
        for (size_t i = 0; i < names.count; i++)
                if (list_one(cli, &c, names.items[i], &w))
                        return agx_say_no_memory(&cli->say);
        agx_json_put_array_end(&w);
        agx_json_put_object_end(&w);
        if (!cli->say.json && !names.count)
                agx_say_note(&cli->say, "no bundle is deployed");
        if (!cli->say.json)
                return AGX_EXIT_OK;
        if (agx_json_writer_end(&w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, &out);
        return AGX_EXIT_OK;
}

const agx_command agx_bundle_list = {
        .name = "list",
        .summary = "List the bundles in the cache",
        .opts = list_opts,
        .size = sizeof(list_values),
        .format = true,
        .run = run_list,
};
