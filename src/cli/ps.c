/* agentix ps, rm, prune: sandboxes in containers of this machine, found by their labels. */
#include "cli/commands.h"
#include "cli/json_field.h"
#include "cli/sandboxes.h"

#include <string.h>

enum { LIST_MAX = 64 << 20 };

#define ENGINE_OPT(type)                                                                                               \
        {                                                                                                              \
                AGX_OPT_TEXT, .name = "container-engine", .value = "ENGINE",                                           \
                              .help = "ask only this engine (docker and podman)", .offset = offsetof(type, engine),    \
                              .setting = AGX_SETTING_ENGINE                                                            \
        }

#define OF_ENGINES_ONLY                                                                                                \
        "Only docker and podman are asked. What other backends start ends with its host (uv) or by its lease;\n"       \
        "what a killed host left of it, their next provider removes, or the service does (daytona, e2b).\n"

static const char *status_of(const agx_sandbox *s)
{
        return s->running ? "running" : s->exited ? "exited" : "created";
}

static void put_sandbox(agx_json_writer *w, const agx_sandbox *s)
{
        agx_json_put_object(w);
        agx_json_field(w, "sandbox", s->name);
        agx_json_field(w, "engine", s->engine);
        agx_json_field(w, "status", status_of(s));
        agx_json_field_bool(w, "host_alive", s->host_alive);
        agx_json_field(w, "lease", s->lease);
        agx_json_put_object_end(w);
}

static int end_json(agx_cli *cli, agx_json_writer *w)
{
        agx_json_put_array_end(w);
        agx_json_put_object_end(w);
        if (agx_json_writer_end(w))
                return agx_say_no_memory(&cli->say);
        agx_say_data_json(&cli->say, w->out);
        return AGX_EXIT_OK;
}

static void begin_json(agx_json_writer *w, const char *key)
{
        agx_json_put_object(w);
        agx_json_put_key(w, agx_view_str(key));
        agx_json_put_array(w);
}

/* ---- ps ---- */

typedef struct ps_values {
        bool all;
        const char *engine;
} ps_values;

static const agx_opt ps_opts[] = {
        {AGX_OPT_FLAG, 'a', "all", .help = "those that do not run, too", .offset = offsetof(ps_values, all)},
        ENGINE_OPT(ps_values),
        {.kind = AGX_OPT_END},
};

static void print_sandbox(agx_cli *cli, const agx_sandbox *s)
{
        agx_say_data_view(&cli->say, agx_view_str(s->name));
        agx_say_data(&cli->say, "  %s  %s  %s", s->engine, status_of(s), s->host_alive ? "host alive" : "host gone");
        if (*s->lease && strcmp(s->lease, "0") != 0) {
                agx_say_data(&cli->say, "  lease ");
                agx_say_data_view(&cli->say, agx_view_str(s->lease));
                agx_say_data(&cli->say, " s");
        }
        agx_say_data(&cli->say, "\n");
}

static int run_ps(agx_cli *cli, void *values)
{
        _cleanup_(agx_sandboxes_deinitp) agx_sandboxes s = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        const ps_values *v = values;
        int r = agx_sandboxes_init(&s, cli, v->engine);

        if (r)
                return r;
        begin_json(&w, "sandboxes");
        agx_list_foreach_safe(link, &s.list)
        {
                const agx_sandbox *sandbox = agx_container_of(link, agx_sandbox, node);

                if (!sandbox->running && !v->all)
                        continue;
                put_sandbox(&w, sandbox);
                if (!cli->say.json)
                        print_sandbox(cli, sandbox);
        }
        return cli->say.json ? end_json(cli, &w) : AGX_EXIT_OK;
}

const agx_command agx_command_ps = {
        .name = "ps",
        .summary = "List sandboxes in containers of this machine",
        .text = "Rows say the sandbox, its engine, whether it runs, whether the process that started it still does, "
                "and after\n"
                "how long without a host it ends by itself.\n" OF_ENGINES_ONLY,
        .opts = ps_opts,
        .size = sizeof(ps_values),
        .format = true,
        .run = run_ps,
};

/* ---- rm ---- */

typedef struct rm_values {
        agx_strv names;
        bool force;
        const char *engine;
} rm_values;

static const agx_opt rm_opts[] = {
        {AGX_OPT_REST, .name = "SANDBOX", .help = "ids, as agentix ps shows them", .offset = offsetof(rm_values, names),
         .needed = true},
        {AGX_OPT_FLAG, 'f', "force", .help = "even if it runs", .offset = offsetof(rm_values, force)},
        ENGINE_OPT(rm_values),
        {.kind = AGX_OPT_END},
};

static int remove_one(agx_cli *cli, const agx_sandboxes *s, const char *name, bool force)
{
        const agx_sandbox *sandbox = agx_sandboxes_find(s, name);

        if (!sandbox)
                return agx_say_error(&cli->say,
                                     &(agx_complaint){"not_found", "agentix ps --all lists what there is",
                                                      AGX_EXIT_NOT_FOUND},
                                     "there is no sandbox '%s'", name);
        if (sandbox->running && !force)
                return agx_say_error(&cli->say, &(agx_complaint){"running", "add --force to end it", AGX_EXIT_FAILURE},
                                     "sandbox '%s' is running", name);
        return agx_sandbox_remove(cli, sandbox);
}

static int run_rm(agx_cli *cli, void *values)
{
        _cleanup_(agx_sandboxes_deinitp) agx_sandboxes s = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        const rm_values *v = values;
        int code = agx_sandboxes_init(&s, cli, v->engine);

        if (code)
                return code;
        begin_json(&w, "removed");
        for (size_t i = 0; i < v->names.count; i++) {
                int one = remove_one(cli, &s, v->names.items[i], v->force);

                code = code ? code : one;
                if (one)
                        continue;
                agx_json_put_string(&w, agx_view_str(v->names.items[i]));
                if (!cli->say.json)
                        agx_say_data(&cli->say, "%s\n", v->names.items[i]);
        }
        if (cli->say.json && !code)
                return end_json(cli, &w);
        return code;
}

const agx_command agx_command_rm = {
        .name = "rm",
        .summary = "Remove sandboxes",
        .text = OF_ENGINES_ONLY,
        .opts = rm_opts,
        .size = sizeof(rm_values),
        .format = true,
        .run = run_rm,
};

/* ---- prune ---- */

typedef struct prune_values {
        bool force;
        bool dry_run;
        const char *engine;
} prune_values;

static const agx_opt prune_opts[] = {
        {AGX_OPT_FLAG, 'f', "force", .help = "running ones whose host is gone, too",
         .offset = offsetof(prune_values, force)},
        {AGX_OPT_FLAG, .name = "dry-run", .help = "only say which", .offset = offsetof(prune_values, dry_run)},
        ENGINE_OPT(prune_values),
        {.kind = AGX_OPT_END},
};

/* What has never run may be about to, as long as its host lives. */
static bool is_leftover(const agx_sandbox *s, bool force)
{
        return s->exited || (!s->host_alive && (force || !s->running));
}

static int run_prune(agx_cli *cli, void *values)
{
        _cleanup_(agx_sandboxes_deinitp) agx_sandboxes s = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(LIST_MAX);
        agx_json_writer w = agx_json_writer_on(&out);
        const prune_values *v = values;
        int code = agx_sandboxes_init(&s, cli, v->engine);

        if (code)
                return code;
        begin_json(&w, "removed");
        agx_list_foreach_safe(link, &s.list)
        {
                const agx_sandbox *sandbox = agx_container_of(link, agx_sandbox, node);
                int one;

                if (!is_leftover(sandbox, v->force))
                        continue;
                one = v->dry_run ? AGX_EXIT_OK : agx_sandbox_remove(cli, sandbox);
                code = code ? code : one;
                if (one)
                        continue;
                agx_json_put_string(&w, agx_view_str(sandbox->name));
                if (!cli->say.json) {
                        agx_say_data_view(&cli->say, agx_view_str(sandbox->name));
                        agx_say_data(&cli->say, "\n");
                }
        }
        if (cli->say.json && !code)
                return end_json(cli, &w);
        return code;
}

const agx_command agx_command_prune = {
        .name = "prune",
        .summary = "Remove sandboxes that have ended or lost their host",
        .text = "A sandbox whose host was killed ends by its lease; this is for those without one, and for what is "
                "left of\n"
                "them. Whether a host lives cannot be seen from another pid namespace: hence --force for running "
                "ones.\n" OF_ENGINES_ONLY,
        .opts = prune_opts,
        .size = sizeof(prune_values),
        .format = true,
        .run = run_prune,
};
