/* agentix bundle rm, prune: what is in the cache goes. */
#include "cli/bundle_target.h"
#include "cli/bundle_verbs.h"
#include "cli/json_field.h"
#include "cli/trouble.h"
#include "cli/unpacking.h"

/* ---- rm ---- */

typedef struct rm_values {
        agx_strv bundles;
        const char *cache_dir;
} rm_values;

static const agx_opt rm_opts[] = {
        {AGX_OPT_REST, .name = "BUNDLE", .help = "a deployed directory, or a digest (its beginning)",
         .offset = offsetof(rm_values, bundles), .needed = true},
        AGX_CACHE_DIR_OPT(rm_values),
        {.kind = AGX_OPT_END},
};

static int remove_one(agx_cli *cli, const char *text, const char *cache_dir)
{
        _cleanup_(agx_bundle_target_deinitp) agx_bundle_target t = {.cache = AGX_CACHE_NULL};
        agx_why why = AGX_WHY_NULL;
        int r = agx_bundle_target_init(&t, text, cache_dir, &why);

        if (!r && t.tar)
                r = agx_why_set(&why, "usage", "%s is a file; only deployed bundles are removed", text);
        if (!r)
                r = agx_cache_remove(&t.cache, t.entry, &why);
        if (r == AGX_CACHE_E_NONE)
                r = agx_bundle_not_found(&why, text);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        agx_say_note(&cli->say, "removed %s", t.entry);
        return AGX_EXIT_OK;
}

static int run_rm(agx_cli *cli, void *values)
{
        const rm_values *v = values;
        int code = AGX_EXIT_OK;

        for (size_t i = 0; i < v->bundles.count; i++) {
                int one = remove_one(cli, v->bundles.items[i], v->cache_dir);

                code = code ? code : one;
        }
        return code;
}

const agx_command agx_bundle_rm = {
        .name = "rm",
        .summary = "Remove bundles from the cache",
        .text = "Containers that run from such a bundle lose their files; agentix ps lists what runs.\n",
        .opts = rm_opts,
        .size = sizeof(rm_values),
        .format = true,
        .run = run_rm,
};

/* ---- prune ---- */

typedef struct prune_values {
        bool all;
        bool force;
        const char *cache_dir;
} prune_values;

static const agx_opt prune_opts[] = {
        {AGX_OPT_FLAG, .name = "all", .help = "remove every bundle, too", .offset = offsetof(prune_values, all)},
        {AGX_OPT_FLAG, 'f', "force", .help = "with --all: do it", .offset = offsetof(prune_values, force)},
        AGX_CACHE_DIR_OPT(prune_values),
        {.kind = AGX_OPT_END},
};

static int report_pruned(agx_cli *cli, unsigned leftovers, unsigned bundles)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);
        agx_json_writer w = agx_json_writer_on(&out);

        agx_say_note(&cli->say, "removed %u bundles and %u leftovers of interrupted deploys", bundles, leftovers);
        if (!cli->say.json)
                return AGX_EXIT_OK;
        agx_json_put_object(&w);
        agx_json_field_u64(&w, "bundles", bundles);
        agx_json_field_u64(&w, "leftovers", leftovers);
        agx_json_put_object_end(&w);
        agx_say_data_json(&cli->say, &out);
        return AGX_EXIT_OK;
}

static int run_prune(agx_cli *cli, void *values)
{
        _cleanup_(agx_cache_closep) agx_cache c = AGX_CACHE_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv names = AGX_STRV_NULL;
        const prune_values *v = values;
        agx_why why = AGX_WHY_NULL;
        unsigned leftovers = 0, bundles = 0;
        int r;

        if (v->all && !v->force)
                return agx_say_error(&cli->say, &(agx_complaint){"usage", "add --force to do it", AGX_EXIT_USAGE},
                                     "--all removes every deployed bundle");
        r = agx_cli_open_cache(&c, v->cache_dir, false, &why);
        if (!r)
                r = agx_cache_sweep(&c, &leftovers, &why);
        if (!r && v->all)
                r = agx_cache_list(&c, &names, &why);
        for (; !r && bundles < names.count; bundles++)
                r = agx_cache_remove(&c, names.items[bundles], &why);
        if (r && r != AGX_CACHE_E_NONE)
                return agx_cli_trouble(cli, r, &why);
        return report_pruned(cli, leftovers, bundles);
}

const agx_command agx_bundle_prune = {
        .name = "prune",
        .summary = "Remove what interrupted deploys left, and with --all every bundle",
        .opts = prune_opts,
        .size = sizeof(prune_values),
        .format = true,
        .run = run_prune,
};
