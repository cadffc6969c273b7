/* agentix deploy to a backend of another distribution, which is asked through Python. */
#include "cli/deploy_backends.h"
#include "cli/deployed.h"
#include "cli/plugins.h"
#include "wire/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 2 << 20 };

typedef struct other_values {
        const char *bundle;
        const char *name;
        const char *platform;
} other_values;

static const agx_opt other_opts[] = {
        {AGX_OPT_ARG, .name = "BUNDLE", .help = "bundle tar (.tar, .tar.zst), as agentix build makes it",
         .offset = offsetof(other_values, bundle)},
        {AGX_OPT_TEXT, .name = "name", .value = "NAME", .help = "what to call it",
         .offset = offsetof(other_values, name)},
        {AGX_OPT_TEXT, .name = "platform", .value = "PLATFORM", .help = "platform to deploy for",
         .offset = offsetof(other_values, platform)},
        {.kind = AGX_OPT_END},
};

static int cannot_load(agx_cli *cli, const char *name, const char *why)
{
        return agx_say_error(
                &cli->say, &(agx_complaint){"backend", "agentix plugin list shows what is installed", AGX_EXIT_BACKEND},
                "backend '%s' cannot be loaded: %s", name, why);
}

/* {"ok": false, "error": "Type: message"} */
static bool read_failure(agx_view json, agx_buf *text)
{
        agx_json_reader in = agx_json_reader_on(json, 8);
        agx_json_token token = agx_json_next(&in);

        if (token.kind != AGX_JSON_OBJECT)
                return false;
        while ((token = agx_json_next(&in)).kind == AGX_JSON_KEY) {
                bool error = agx_json_is(&token, AGX_VIEW("error"));

                if (!error) {
                        (void)agx_json_skip(&in);
                        continue;
                }
                token = agx_json_next(&in);
                return token.kind == AGX_JSON_STRING && !agx_json_text(&token, text);
        }
        return false;
}

static int report_answer(agx_cli *cli, const char *name, const agx_buf *answer)
{
        _cleanup_(agx_deploy_result_deinitp) agx_deploy_result result = {0};
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);

        if (read_failure(agx_buf_view(answer), &text))
                return agx_say_error(&cli->say, &(agx_complaint){"backend", NULL, AGX_EXIT_FAILURE},
                                     "backend '%s' could not deploy the bundle: %.*s", name, (int)text.len,
                                     (const char *)text.data + text.head);
        if (!agx_deploy_result_read(&result, agx_buf_view(answer)))
                return agx_say_error(&cli->say, &(agx_complaint){"backend", NULL, AGX_EXIT_FAILURE},
                                     "backend '%s' gave an answer that is none", name);
        return agx_deploy_result_print(cli, &result);
}

static int deploy_other(agx_cli *cli, void *values_)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_buf_deinitp) agx_buf answer = AGX_BUF_NULL(ANSWER_MAX);
        const other_values *v = values_;
        const agx_plugin *plugin;
        char why[1024];
        int r = agx_plugins_init(&plugins);

        plugin = r ? NULL : agx_plugins_find(&plugins, AGX_GROUP_PROVIDERS, cli->child);
        if (!r && access(v->bundle, R_OK) < 0)
                return agx_say_error(&cli->say, &(agx_complaint){"bundle", NULL, AGX_EXIT_FAILURE},
                                     "cannot open the bundle %s: %s", v->bundle, strerror(errno));
        if (plugin && plugin->conflict)
                return cannot_load(cli, cli->child, plugin->conflict);
        if (plugin)
                r = agx_plugins_deploy(&plugins, plugin, v->bundle, v->name, v->platform, &answer, why, sizeof(why));
        if (r == AGX_PLUGINS_E_DIED)
                return cannot_load(cli, cli->child, why);
        return r || !plugin ? agx_say_no_memory(&cli->say) : report_answer(cli, cli->child, &answer);
}

static int deploy_broken(agx_cli *cli, void *unused)
{
        (void)unused;
        return cannot_load(cli, cli->child, cli->trouble);
}

static int deploy_without(agx_cli *cli, void *unused)
{
        (void)unused;
        return agx_say_error(
                &cli->say,
                &(agx_complaint){"usage", "its README says what SandboxConfig.bundle is there", AGX_EXIT_USAGE},
                "backend '%s' has no deploy: its bundles are not brought to where it runs by Agentix", cli->child);
}

static const agx_command other = {
        .summary = "Deploy a bundle to a backend of another distribution",
        .opts = other_opts,
        .size = sizeof(other_values),
        .format = true,
        .run = deploy_other,
};

static const agx_command broken = {
        .summary = "A backend that cannot be loaded",
        .opts = other_opts,
        .size = sizeof(other_values),
        .format = true,
        .run = deploy_broken,
};

static const agx_command without = {
        .summary = "A backend that has no deploy",
        .opts = other_opts,
        .size = sizeof(other_values),
        .format = true,
        .run = deploy_without,
};

const agx_command *agx_deploy_find(agx_cli *cli, const char *name)
{
        _cleanup_(agx_plugins_deinitp) agx_plugins plugins = {0};
        _cleanup_(agx_probe_deinitp) agx_probe probe = {0};
        const agx_plugin *plugin;

        if (agx_plugins_init(&plugins))
                return NULL;
        plugin = agx_plugins_find(&plugins, AGX_GROUP_PROVIDERS, name);
        if (!plugin || agx_plugins_probe(&plugins, plugin, &probe))
                return NULL;
        if (probe.ok)
                return probe.deploys ? &other : &without;
        snprintf(cli->trouble, sizeof(cli->trouble), "%s", probe.error);
        return &broken;
}
