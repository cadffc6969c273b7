/* What can be asked or ordered about a request that somebody submitted. */
#include "provider/cape.h"

#include "proto/limits.h"
#include "provider/cape_words.h"
#include "provider/command.h"

static int read_state(agx_command *self, agx_view output)
{
        agx_cape_state state;

        if (!agx_cape_state_read(output, agx_view_str(self->subject), &state) || state.other)
                return agx_command_fail(self, "the answer has no state of it", output);
        return agx_command_done(self, state.terminal ? AGX_VIEW("exited") : AGX_VIEW("running"));
}

static const char program[] = "the cape program";

static const agx_command_kind kinds[] = {
        [AGX_CAPE_STATUS] = {.doing = "asking for the request",
                             .not_started = program,
                             .not_answering = program,
                             .timeout_ms = AGX_CAPE_CALL_MS,
                             .is_unknown = agx_cape_is_unknown,
                             .read = read_state},
        [AGX_CAPE_CANCEL] = {.doing = "cancelling the request",
                             .not_started = program,
                             .not_answering = program,
                             .timeout_ms = AGX_CAPE_CALL_MS,
                             .goes_on = true,
                             .is_unknown = agx_cape_is_unknown},
};

int agx_cape_command_new(agx_brain **brain, agx_cape_command command, agx_view binary, const agx_strv *host_env,
                         agx_view controller_url, agx_view request, const char **bad)
{
        agx_strv argv = AGX_STRV_NULL;

        *bad = agx_cape_is_request(request) ? NULL : "request";
        if (*bad)
                return AGX_CAPE_E_SETTING;
        if (command == AGX_CAPE_STATUS)
                agx_cape_ask_argv(&argv, "status", binary, controller_url, request);
        else
                agx_cape_cancel_argv(&argv, binary, controller_url, request, "agentix_delete");
        return agx_command_new(brain, &kinds[command], &argv, host_env, request);
}
