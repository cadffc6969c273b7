/*
 * One sandbox of the `uv` backend: a runtime server that tells by itself when it listens (process.h). The only leftovers
 * can be those of a killed server, and the shell sweeps them by their lock.
 */
#include "provider/uv.h"

#include "provider/process.h"

#include <stdio.h>

/* The host's environment is not the sandbox's: only what a program needs to run at all crosses by itself. */
static bool crosses(const char *entry)
{
        static const char *const names[] = {"PATH=",   "HOME=", "LANG=", "LANGUAGE=",
                                            "TMPDIR=", "TZ=",   "USER=", "LOGNAME="};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (strncmp(entry, names[i], strlen(names[i])) == 0)
                        return true;
        return strncmp(entry, "LC_", 3) == 0;
}

static void add_user_env(agx_strv *env, const agx_strv *config_env)
{
        for (size_t i = 0; i < config_env->count; ++i) {
                agx_view rest = agx_view_str(config_env->items[i]), name;

                if (agx_view_split(&rest, '=', &name) && rest.p && !agx_process_owns(name) &&
                    !agx_view_eq(name, AGX_VIEW("AGENTIX_BIND_HOST")))
                        agx_strv_set(env, name, rest);
        }
}

static void build_env(agx_strv *env, const agx_uv_sandbox_config *config)
{
        char logs[4096];
        int n = snprintf(logs, sizeof(logs), "%.*s/log", (int)config->dir.n, config->dir.p);

        for (size_t i = 0; i < config->host_env->count; ++i)
                if (crosses(config->host_env->items[i]))
                        agx_strv_add_str(env, config->host_env->items[i]);
        if ((size_t)n < sizeof(logs)) /* its own, which goes with it, unless the user names another */
                agx_strv_set(env, AGX_VIEW("AGENTIX_LOG_DIR"), agx_view_of(logs, (size_t)n));
        agx_strv_set(env, AGX_VIEW("AGENTIX_UPLOAD_ROOT"), config->cwd); /* likewise */
        add_user_env(env, config->config_env);
        agx_strv_set(env, AGX_VIEW("AGENTIX_TOKEN_FILE"), config->token_file);
        if (config->socket.p) {
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_SOCKET"), config->socket);
        } else {
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_HOST"), config->host);
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_PORT"), AGX_VIEW("0"));
        }
        agx_process_set_lease(env, config->lease_s);
}

static void build_argv(agx_strv *argv, const agx_uv_sandbox_config *config)
{
        agx_strv_add(argv, config->runtime);
        agx_strv_add(argv, AGX_VIEW("--python"));
        agx_strv_add(argv, config->python);
        agx_strv_add(argv, AGX_VIEW("--state-dir"));
        agx_strv_add(argv, config->dir);
}

int agx_uv_sandbox_new(agx_brain **brain, const agx_uv_sandbox_config *config)
{
        _cleanup_(agx_process_plan_deinitp) agx_process_plan plan = {
                .subject = "the runtime server",
                .dir = config->dir,
                .cwd = config->cwd,
                .token_file = config->token_file,
                .ready_ms = config->ready_ms,
        };

        build_argv(&plan.argv, config);
        build_env(&plan.env, config);
        return agx_process_new(brain, &plan);
}
