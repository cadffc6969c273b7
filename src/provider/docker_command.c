/* What can be asked of an engine or ordered. The words of its answers are read here, so that the shell gets plain lines. */
#include "provider/docker.h"

#include "base/buf.h"
#include "base/err.h"
#include "oci/engine.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/command.h"

enum { ANSWER_MAX = 256 * 1024 };

static bool is_unknown(agx_view output)
{
        return agx_oci_trouble_of(output) == AGX_OCI_TROUBLE_NO_CONTAINER;
}

/* `r`: of writing the answer. */
static int answer(agx_command *self, const agx_buf *text, int r)
{
        return r ? agx_trace(-ENOMEM) : agx_command_done(self, agx_buf_view(text));
}

static int read_look(agx_command *self, agx_view output)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);
        agx_oci_state state;

        if (!agx_oci_state_read(output, &state))
                return agx_command_fail(self, "the engine gave no state", output);
        if (!state.sandbox.n) /* a container of that name, but not one of ours */
                return agx_command_gone(self);
        return answer(self, &text,
                      agx_buf_printf(&text, "%.*s %.*s %.*s", (int)state.status.n, state.status.p, (int)state.id.n,
                                     state.id.p, (int)state.sandbox.n, state.sandbox.p));
}

static const char *word_of(const agx_oci_row *row)
{
        if (row->running)
                return "running";
        return row->exited ? "exited" : "other";
}

static int read_list(agx_command *self, agx_view output)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);
        agx_oci_row row;
        int r = 0;

        while (!r && agx_oci_list_next(&output, &row))
                if (agx_oci_name(row.name))
                        r = agx_buf_printf(&text, "%.*s\t%s\t%.*s\n", (int)row.name.n, row.name.p, word_of(&row),
                                           (int)row.host.n, row.host.p);
        return answer(self, &text, r);
}

static const char client[] = "the engine's client", engine_itself[] = "the engine";

static const agx_command_kind kinds[] = {
        [AGX_DOCKER_LOOK] = {.doing = "looking for the container",
                             .not_started = client,
                             .not_answering = engine_itself,
                             .timeout_ms = AGX_ENGINE_ASK_MS,
                             .is_unknown = is_unknown,
                             .read = read_look},
        [AGX_DOCKER_LIST] = {.doing = "listing the sandboxes",
                             .not_started = client,
                             .not_answering = engine_itself,
                             .timeout_ms = AGX_ENGINE_ASK_MS,
                             .read = read_list},
        [AGX_DOCKER_REMOVE] = {.doing = "removing the container",
                               .not_started = client,
                               .not_answering = engine_itself,
                               .timeout_ms = AGX_ENGINE_REMOVE_MS,
                               .goes_on = true,
                               .is_unknown = is_unknown},
};

int agx_docker_command_new(agx_brain **brain, agx_docker_command command, agx_view engine, const agx_strv *host_env,
                           agx_view name, const char **bad)
{
        agx_strv argv = AGX_STRV_NULL;

        *bad = !agx_oci_word(engine) ? "engine" : command != AGX_DOCKER_LIST && !agx_oci_name(name) ? "name" : NULL;
        if (*bad)
                return AGX_DOCKER_E_SETTING;
        if (command == AGX_DOCKER_LOOK)
                agx_oci_look_argv(&argv, engine, name);
        else if (command == AGX_DOCKER_LIST)
                agx_oci_list_argv(&argv, engine);
        else
                agx_oci_remove_argv(&argv, engine, name);
        return agx_command_new(brain, &kinds[command], &argv, host_env, name);
}
