/* agentix cache dir, size, clean: what lies in the home directory on our account. */
#include "bundle/cache.h"
#include "bundle/build_cache.h"
#include "bundle/stage.h"
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/size.h"
#include "cli/trouble.h"
#include "cli/unpacking.h"

#include <stdlib.h>

enum { JSON_MAX = 64 << 10 };

typedef struct values {
        const char *cache_dir;
        bool dry_run;
} values;

typedef struct places {
        char *bundles, *build;
} places;

static void places_deinit(places *p)
{
        free(p->bundles);
        free(p->build);
}

AGX_DEFINE_CLEANUP(places, places_deinit)

static int find_places(places *p, const values *v, agx_why *why)
{
        *p = (places){agx_cache_where(v->cache_dir), agx_stage_cache_where()};
        if (p->bundles && p->build)
                return 0;
        (void)agx_why_hint(why, "set HOME");
        return agx_why_set(why, "cache", "there is no home directory for caches");
}

static int end_json(agx_cli *cli, agx_json_writer *w)
{
        agx_json_put_object_end(w);
        if (agx_json_writer_end(w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, w->out);
        return AGX_EXIT_OK;
}

static const agx_opt opts[] = {
        {AGX_OPT_TEXT, .name = "bundle-cache-dir", .value = "DIR",
         .help = "where bundles are kept (~/.cache/agentix/bundles)", .offset = offsetof(values, cache_dir),
         .setting = AGX_SETTING_CACHE_DIR},
        {.kind = AGX_OPT_END},
};

/* ---- dir ---- */

static int run_dir(agx_cli *cli, void *v)
{
        _cleanup_(places_deinitp) places p = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(JSON_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        agx_why why = AGX_WHY_NULL;
        int r = find_places(&p, v, &why);

        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (cli->say.json) {
                agx_json_put_object(&w);
                agx_json_field(&w, "bundles", p.bundles);
                agx_json_field(&w, "build", p.build);
                return end_json(cli, &w);
        }
        agx_say_data(&cli->say, "bundles -> ");
        agx_say_data_view(&cli->say, agx_view_str(p.bundles));
        agx_say_data(&cli->say, "\nbuild -> ");
        agx_say_data_view(&cli->say, agx_view_str(p.build));
        agx_say_data(&cli->say, "\n");
        return AGX_EXIT_OK;
}

static const agx_command dir_command = {
        .name = "dir",
        .summary = "Say where the caches are",
        .opts = opts,
        .size = sizeof(values),
        .format = true,
        .run = run_dir,
};

/* ---- size ---- */

static int measure_bundles(const values *v, unsigned *count, uint64_t *bytes, agx_why *why)
{
        _cleanup_(agx_cache_closep) agx_cache c = AGX_CACHE_NULL;
        _cleanup_(agx_strv_deinitp) agx_strv names = AGX_STRV_NULL;
        int r = agx_cli_open_cache(&c, v->cache_dir, false, why);

        if (!r)
                r = agx_cache_list(&c, &names, why);
        for (size_t i = 0; !r && i < names.count; i++) {
                uint64_t one = 0;

                r = agx_cache_size(&c, names.items[i], &one, why);
                *bytes += one;
        }
        *count = (unsigned)names.count;
        return r == AGX_CACHE_E_NONE ? 0 : r;
}

static void put_use(agx_json_writer *w, const agx_build_cache_use *use)
{
        agx_json_field_u64(w, "bytes", use->bytes);
        agx_json_field_u64(w, "interpreters", use->interpreters);
        agx_json_field_u64(w, "records", use->records);
        agx_json_field_u64(w, "stages", use->stages);
        agx_json_field_u64(w, "nix_stores", use->stores);
        agx_json_field_u64(w, "npm_packages", use->packages);
}

static void say_use(agx_cli *cli, const agx_build_cache_use *use)
{
        agx_say_data(&cli->say, "%u interpreters, %u records of builds, %u stages, %u Nix stores, %u npm packages",
                     use->interpreters, use->records, use->stages, use->stores, use->packages);
}

static int run_size(agx_cli *cli, void *v)
{
        _cleanup_(places_deinitp) places p = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(JSON_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        agx_build_cache_use use;
        agx_why why = AGX_WHY_NULL;
        unsigned bundles = 0;
        uint64_t bytes = 0;
        char text[AGX_SIZE_TEXT];
        int r = find_places(&p, v, &why);

        if (!r)
                r = measure_bundles(v, &bundles, &bytes, &why);
        if (!r)
                r = agx_build_cache_measure(p.build, &use, &why);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (cli->say.json) {
                agx_json_put_object(&w);
                agx_json_put_key(&w, AGX_VIEW("bundles"));
                agx_json_put_object(&w);
                agx_json_field(&w, "path", p.bundles);
                agx_json_field_u64(&w, "bytes", bytes);
                agx_json_field_u64(&w, "bundles", bundles);
                agx_json_put_object_end(&w);
                agx_json_put_key(&w, AGX_VIEW("build"));
                agx_json_put_object(&w);
                agx_json_field(&w, "path", p.build);
                put_use(&w, &use);
                agx_json_put_object_end(&w);
                return end_json(cli, &w);
        }
        agx_size_text(bytes, text);
        agx_say_data(&cli->say, "bundles -> %s  (%u bundles)\n", text, bundles);
        agx_size_text(use.bytes, text);
        agx_say_data(&cli->say, "build -> %s  (", text);
        say_use(cli, &use);
        agx_say_data(&cli->say, ")\n");
        return AGX_EXIT_OK;
}

static const agx_command size_command = {
        .name = "size",
        .summary = "Say how much the caches hold",
        .opts = opts,
        .size = sizeof(values),
        .format = true,
        .run = run_size,
};

/* ---- clean ---- */

static const agx_opt clean_opts[] = {
        {AGX_OPT_FLAG, .name = "dry-run", .help = "only say what would be freed", .offset = offsetof(values, dry_run)},
        {.kind = AGX_OPT_END},
};

static int run_clean(agx_cli *cli, void *v)
{
        _cleanup_(places_deinitp) places p = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(JSON_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        const values *o = v;
        agx_build_cache_use use;
        agx_why why = AGX_WHY_NULL;
        char text[AGX_SIZE_TEXT];
        int r = find_places(&p, o, &why);

        if (!r)
                r = o->dry_run ? agx_build_cache_measure(p.build, &use, &why)
                               : agx_build_cache_clean(p.build, &use, &why);
        if (r)
                return agx_cli_trouble(cli, r, &why);
        if (cli->say.json) {
                agx_json_put_object(&w);
                agx_json_field(&w, "path", p.build);
                agx_json_field_bool(&w, "dry_run", o->dry_run);
                put_use(&w, &use);
                return end_json(cli, &w);
        }
        agx_size_text(use.bytes, text);
        agx_say_data(&cli->say, "%s -> %s  (", o->dry_run ? "would free" : "freed", text);
        say_use(cli, &use);
        agx_say_data(&cli->say, ")\n");
        return AGX_EXIT_OK;
}

static const agx_command clean_command = {
        .name = "clean",
        .summary = "Empty the cache of builds; the next one takes longer",
        .text = "Bundles that were built or deployed are not touched; agentix bundle prune removes those in the "
                "cache.\n",
        .opts = clean_opts,
        .size = sizeof(values),
        .format = true,
        .run = run_clean,
};

static const agx_command *const children[] = {&dir_command, &size_command, &clean_command, NULL};

const agx_command agx_command_cache = {
        .name = "cache",
        .summary = "Look at the caches of this user, and empty that of builds",
        .children = children,
};
