/*
 * The only place where the command line starts Python. Each plugin gets an interpreter of its own, whose answer comes on a
 * descriptor that no printing can reach; one that dies has said nothing, and then its last words stand for an answer.
 */
#include "cli/plugins.h"

#include "base/err.h"
#include "bundle/program.h"
#include "wire/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { ANSWER_MAX = 1 << 20, PROBE_MS = 60000 };

extern char **environ;

/* The environment of an interpreter: ours, with the search path that its caller has. */
static int make_environment(agx_strv *env)
{
        const char *path = getenv("AGENTIX_PYTHON_PATH");

        for (char **entry = environ; *entry; entry++)
                agx_strv_add_str(env, *entry);
        if (path && *path)
                agx_strv_set(env, AGX_VIEW("PYTHONPATH"), agx_view_str(path));
        return agx_strv_end(env);
}

static int run_python(const agx_strv *argv, uint64_t timeout_ms, bool pass, agx_program *run)
{
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        agx_program_spec spec = {
                .argv = argv->items,
                .timeout_ms = timeout_ms,
                .keep = ANSWER_MAX,
                .pass_out = pass,
                .pass_err = pass,
                .answer = true,
        };
        int r = agx_strv_end(argv);

        *run = (agx_program){0};
        if (!r)
                r = make_environment(&env);
        spec.envp = env.items;
        return r ? r : agx_program_run(run, &spec);
}

static void start_argv(const agx_plugins *p, const agx_plugin *plugin, const char *verb, agx_strv *argv)
{
        agx_strv_add_str(argv, p->python);
        agx_strv_add_str(argv, "-P"); /* nothing is imported from the directory that we happen to be in */
        agx_strv_add_str(argv, "-m");
        agx_strv_add_str(argv, "agentix._plugins");
        agx_strv_add_str(argv, verb);
        agx_strv_add_str(argv, plugin->group);
        agx_strv_add_str(argv, plugin->name);
        agx_strv_add_str(argv, plugin->value);
}

/* The last line of what was printed, for lack of a better explanation. */
static agx_view last_line(const agx_buf *text)
{
        agx_view v = agx_buf_view(text);
        size_t from;

        while (v.n && (v.p[v.n - 1] == '\n' || v.p[v.n - 1] == ' '))
                v.n--;
        for (from = v.n; from && v.p[from - 1] != '\n';)
                from--;
        return agx_view_first(agx_view_from(v, from), 500);
}

/* Why an interpreter gave no answer. */
static void explain(const agx_plugins *p, int r, const agx_program *run, char *why, size_t size)
{
        agx_view line = last_line(&run->err);

        if (r == AGX_PROGRAM_E_NOT_FOUND)
                snprintf(why, size, "FileNotFoundError: there is no Python interpreter %s", p->python);
        else if (r < 0)
                snprintf(why, size, "OSError: %s cannot be started: %s", p->python, strerror(-r));
        else if (run->timed_out)
                snprintf(why, size, "TimeoutError: the import took longer than %d s", PROBE_MS / 1000);
        else if (agx_program_code(run) > 128)
                snprintf(why, size, "ProcessDied: killed by signal %d while it was imported",
                         agx_program_code(run) - 128);
        else if (line.n)
                snprintf(why, size, "%.*s", (int)line.n, line.p);
        else
                snprintf(why, size, "ProcessDied: exit status %d without an answer", agx_program_code(run));
}

static int take_text(agx_json_reader *in, char **to)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);
        agx_json_token token = agx_json_next(in);

        if (token.kind == AGX_JSON_NULL)
                return 0;
        if (token.kind != AGX_JSON_STRING || agx_json_text(&token, &text) || *to)
                return -EPROTO;
        *to = agx_strv_dup(agx_buf_view(&text));
        return *to ? 0 : -ENOMEM;
}

/* {"ok": bool, "deploys": bool, "summary": text, "error": text or null} */
static int read_probe(agx_probe *probe, agx_view json)
{
        agx_json_reader in = agx_json_reader_on(json, 4);
        agx_json_token token = agx_json_next(&in);
        int r = 0;

        if (token.kind != AGX_JSON_OBJECT)
                return -EPROTO;
        while (!r && (token = agx_json_next(&in)).kind == AGX_JSON_KEY) {
                if (agx_json_is(&token, AGX_VIEW("ok")))
                        probe->ok = agx_json_next(&in).b;
                else if (agx_json_is(&token, AGX_VIEW("deploys")))
                        probe->deploys = agx_json_next(&in).b;
                else if (agx_json_is(&token, AGX_VIEW("summary")))
                        r = take_text(&in, &probe->summary);
                else if (agx_json_is(&token, AGX_VIEW("error")))
                        r = take_text(&in, &probe->error);
                else
                        r = agx_json_skip(&in).p ? 0 : -EPROTO;
        }
        if (r || token.kind != AGX_JSON_OBJECT_END || !agx_json_done(&in))
                return r ? r : -EPROTO;
        return probe->ok ? (probe->summary ? 0 : -EPROTO) : probe->error ? 0 : -EPROTO;
}

static int fail_probe(agx_probe *probe, const char *why)
{
        agx_probe_deinit(probe);
        probe->error = strdup(why);
        return probe->error ? 0 : agx_trace(-ENOMEM);
}

int agx_plugins_probe(const agx_plugins *p, const agx_plugin *plugin, agx_probe *probe)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_program_deinitp) agx_program run = {0};
        char why[1024];
        int r;

        *probe = (agx_probe){0};
        if (plugin->conflict) {
                snprintf(why, sizeof(why), "RegistryConflict: claimed by %.800s; uninstall all but one",
                         plugin->conflict);
                return fail_probe(probe, why);
        }
        start_argv(p, plugin, "probe", &argv);
        r = run_python(&argv, PROBE_MS, false, &run);
        if (r == -ENOMEM)
                return r;
        if (!r && !agx_program_code(&run) && !read_probe(probe, agx_buf_view(&run.answer)))
                return 0;
        explain(p, r, &run, why, sizeof(why));
        return fail_probe(probe, why);
}

void agx_probe_deinit(agx_probe *probe)
{
        free(probe->summary);
        free(probe->error);
        *probe = (agx_probe){0};
}

int agx_plugins_deploy(const agx_plugins *p, const agx_plugin *plugin, const char *bundle, const char *name,
                       const char *platform, agx_buf *answer, char *why, size_t why_size)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        _cleanup_(agx_program_deinitp) agx_program run = {0};
        int r;

        start_argv(p, plugin, "deploy", &argv);
        agx_strv_add_str(&argv, bundle);
        agx_strv_add_str(&argv, name ? name : "");
        agx_strv_add_str(&argv, platform ? platform : "");
        r = run_python(&argv, 0, true, &run);
        if (r == -ENOMEM)
                return r;
        if (r || agx_program_code(&run) || !run.answer.len) {
                explain(p, r, &run, why, why_size);
                return AGX_PLUGINS_E_DIED;
        }
        r = agx_buf_append_view(answer, agx_buf_view(&run.answer));
        return r > 0 ? -ENOMEM : r;
}
