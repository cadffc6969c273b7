/*
 * One sandbox of the `apptainer` backend: `apptainer exec`, whose process lives as long as the sandbox (process.h).
 *
 * The network is the host's, so the runtime listens on a Unix socket in a directory of the user's, or on loopback. Its
 * environment comes by a file that it reads itself, since what becomes of a value on its way through the program's own
 * variables and the image's start scripts is not for us to say; only variables that the bundle's entry script works on
 * have to be there when that runs.
 */
#include "provider/apptainer.h"

#include "base/err.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/process.h"
#include "provider/text.h"

#include <stdio.h>

static const char prefix[] = "APPTAINERENV_";

/* What the host's own variables would put into the container. */
static bool is_injected(const char *entry)
{
        return !strncmp(entry, prefix, strlen(prefix)) || !strncmp(entry, "SINGULARITYENV_", 15);
}

static bool ends_with(agx_view text, agx_view end)
{
        return text.n >= end.n && agx_view_eq(agx_view_from(text, text.n - end.n), end);
}

/* Search paths, and what would bend the bundle's programs out of their way. */
static bool is_for_the_bootstrap(agx_view name)
{
        static const char *const starts[] = {"LD_", "PYTHON", "NIX_", "FONTCONFIG_"};

        for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); ++i)
                if (agx_view_starts(name, agx_view_str(starts[i])))
                        return true;
        return ends_with(name, AGX_VIEW("PATH")) || ends_with(name, AGX_VIEW("_DIRS")) ||
               agx_view_eq(name, AGX_VIEW("SSL_CERT_FILE")) || agx_view_eq(name, AGX_VIEW("LOCALE_ARCHIVE"));
}

/* ---- the environment ---- */

static int append_entry(agx_buf *out, const char *entry)
{
        return agx_buf_append(out, entry, strlen(entry) + 1);
}

static void set_address(agx_strv *own, const agx_apptainer_config *config)
{
        if (config->port.p) {
                agx_strv_set(own, AGX_VIEW("AGENTIX_BIND_HOST"), AGX_VIEW("127.0.0.1"));
                agx_strv_set(own, AGX_VIEW("AGENTIX_BIND_PORT"), config->port);
        } else {
                agx_strv_set(own, AGX_VIEW("AGENTIX_BIND_SOCKET"), AGX_VIEW(AGX_APPTAINER_SOCKET_DIR "/s"));
        }
}

/* The file, user's variables first. */
static int build_file(agx_buf *out, const agx_apptainer_config *config)
{
        _cleanup_(agx_strv_deinitp) agx_strv own = AGX_STRV_NULL;
        int r = 0;

        set_address(&own, config);
        agx_strv_set(&own, AGX_VIEW("AGENTIX_TOKEN_FILE"), AGX_VIEW(AGX_APPTAINER_TOKEN));
        agx_process_set_lease(&own, config->lease_s);
        for (size_t i = 0; i < config->config_env->count && !r; ++i) {
                agx_view rest = agx_view_str(config->config_env->items[i]), name;

                if (agx_view_split(&rest, '=', &name) && !agx_process_owns(name) &&
                    !agx_view_eq(name, AGX_VIEW("AGENTIX_BIND_HOST")) && !is_for_the_bootstrap(name))
                        r = append_entry(out, config->config_env->items[i]);
        }
        r = r ? r : agx_strv_end(&own);
        for (size_t i = 0; i < own.count && !r; ++i)
                r = append_entry(out, own.items[i]);
        return r > 0 ? -ENOMEM : r;
}

/* The environment of the program itself. */
static void build_env(agx_strv *env, const agx_apptainer_config *config)
{
        for (size_t i = 0; i < config->host_env->count; ++i)
                if (!is_injected(config->host_env->items[i]))
                        agx_strv_add_str(env, config->host_env->items[i]);
        for (size_t i = 0; i < config->config_env->count; ++i) {
                agx_view rest = agx_view_str(config->config_env->items[i]), name;

                if (agx_view_split(&rest, '=', &name) && is_for_the_bootstrap(name))
                        agx_strv_addf(env, "%s%s", prefix, config->config_env->items[i]);
        }
        agx_strv_addf(env, "%sAGENTIX_ENV_FILE=" AGX_APPTAINER_ENV, prefix);
}

/* ---- the command ---- */

static void add_bind(agx_strv *argv, agx_view source, const char *below, const char *target, const char *mode)
{
        agx_strv_add(argv, AGX_VIEW("--bind"));
        agx_strv_addf(argv, "%.*s%s:%s:%s", (int)source.n, source.p, below, target, mode);
}

static void add_option(agx_strv *argv, agx_view name, agx_view value)
{
        if (!value.p)
                return;
        agx_strv_add(argv, name);
        agx_strv_add(argv, value);
}

static void build_argv(agx_strv *argv, const agx_apptainer_config *config)
{
        agx_strv_add(argv, config->binary);
        agx_strv_add(argv, AGX_VIEW("exec"));
        agx_strv_add_all(argv, config->flags);
        add_option(argv, AGX_VIEW("--cpus"), config->cpus);
        add_option(argv, AGX_VIEW("--memory"), config->memory);
        if (config->gpu)
                agx_strv_add(argv, AGX_VIEW("--nv"));
        add_bind(argv, config->nix, "", "/nix", "ro");
        add_bind(argv, config->dir, "/token", AGX_APPTAINER_TOKEN, "ro");
        add_bind(argv, config->dir, "/environ", AGX_APPTAINER_ENV, "ro");
        if (!config->port.p)
                add_bind(argv, config->dir, "/socket", AGX_APPTAINER_SOCKET_DIR, "rw");
        agx_strv_add(argv, config->image);
        agx_strv_add(argv, AGX_VIEW(AGX_APPTAINER_BOOTSTRAP));
}

static int build_url(agx_buf *out, const agx_apptainer_config *config)
{
        _cleanup_(agx_strv_deinitp) agx_strv path = AGX_STRV_NULL;
        int r;

        if (config->port.p)
                return agx_buf_printf(out, "http://127.0.0.1:%.*s", (int)config->port.n, config->port.p);
        agx_strv_addf(&path, "%.*s/socket/s", (int)config->dir.n, config->dir.p);
        r = agx_strv_end(&path);
        return r ? r : agx_text_unix_url(out, path.items[0]);
}

/* ---- building ---- */

/* A bind is "source:target:options", and several of them may stand in one word. */
static bool is_source(agx_view text)
{
        return agx_oci_source(text) && !memchr(text.p, ':', text.n);
}

static const char *check(const agx_apptainer_config *config)
{
        uint64_t port;

        if (!agx_oci_word(config->binary))
                return "binary";
        if (!is_source(config->dir))
                return "the directory for sandboxes";
        if (!is_source(config->nix))
                return "bundle";
        if (!config->image.n || config->image.p[0] != '/')
                return "image";
        if ((config->cpus.p && !agx_oci_word(config->cpus)) || (config->memory.p && !agx_oci_word(config->memory)))
                return "resource";
        if (config->port.p && (!agx_view_u64(config->port, 65535, &port) || !port))
                return "port";
        for (size_t i = 0; i < config->config_env->count; ++i) {
                agx_view rest = agx_view_str(config->config_env->items[i]), name;

                if (!agx_view_split(&rest, '=', &name) || !rest.p || !agx_oci_variable(name))
                        return "env";
        }
        return NULL;
}

int agx_apptainer_sandbox_new(agx_brain **brain, const agx_apptainer_config *config, const char **bad)
{
        _cleanup_(agx_buf_deinitp) agx_buf url = AGX_BUF_NULL(4096);
        _cleanup_(agx_strv_deinitp) agx_strv words = AGX_STRV_NULL;
        _cleanup_(agx_process_plan_deinitp) agx_process_plan plan = {
                .subject = "the container",
                .content = AGX_BUF_NULL(AGX_ENGINE_ENV_MAX),
                .dir = config->dir,
                .cwd = AGX_VIEW("/"), /* which is no directory of the host's that would be mounted too */
                .ready_ms = config->ready_ms,
        };
        int r;

        *bad = check(config);
        if (*bad)
                return AGX_APPTAINER_E_SETTING;
        build_argv(&plan.argv, config);
        build_env(&plan.env, config);
        agx_strv_addf(&words, "%.*s/token", (int)config->dir.n, config->dir.p);
        agx_strv_addf(&words, "%.*s/environ", (int)config->dir.n, config->dir.p);
        r = agx_strv_end(&words);
        r = r ? r : build_file(&plan.content, config);
        r = r ? r : build_url(&url, config);
        if (r)
                return agx_trace(r > 0 ? -ENOMEM : r);
        plan.token_file = agx_view_str(words.items[0]);
        plan.file = agx_view_str(words.items[1]);
        plan.url = agx_buf_view(&url);
        return agx_process_new(brain, &plan);
}
