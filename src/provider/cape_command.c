/* One bounded question or order about a request that somebody submitted. */
#include "provider/cape.h"

#include "base/err.h"
#include "proto/limits.h"
#include "provider/cape_words.h"
#include "provider/text.h"

#include <stdio.h>

typedef struct cape_command {
        agx_brain brain;
        agx_cape_command command;
        bool asked;
        agx_wish_kind end; /* DONE, GONE or FAILED once it is over; else RUN */
        agx_strv argv;
        agx_strv env;
        char *request;
        char *message;
} cape_command;

static const char *const doing[] = {
        [AGX_CAPE_STATUS] = "asking for the request",
        [AGX_CAPE_CANCEL] = "cancelling the request",
};

static cape_command *self_of(agx_brain *brain)
{
        return (cape_command *)(void *)brain;
}

static void command_free(agx_brain *brain)
{
        cape_command *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        free(self->request);
        free(self->message);
        free(self);
}

static void command_next(agx_brain *brain, agx_wish *wish)
{
        cape_command *self = self_of(brain);

        wish->kind = self->end == AGX_WISH_RUN && self->asked ? AGX_WISH_WAIT : self->end;
        wish->timeout_ms = AGX_CAPE_CALL_MS;
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->message = self->message;
        self->asked = true;
}

static int fail(cape_command *self, const char *what, agx_view detail)
{
        self->end = AGX_WISH_FAILED;
        return agx_text_failure(&self->message, doing[self->command], what, detail);
}

static int on_state(cape_command *self, agx_view output)
{
        agx_cape_state state;

        if (!agx_cape_state_read(output, agx_view_str(self->request), &state) || state.other)
                return fail(self, "the answer has no state of it", output);
        self->message = strdup(state.terminal ? "exited" : "running");
        self->end = AGX_WISH_DONE;
        return self->message ? 0 : agx_trace(-ENOMEM);
}

static int on_exited(cape_command *self, const agx_event *event)
{
        char what[64];

        if (event->code && agx_cape_is_unknown(event->text)) {
                self->end = AGX_WISH_GONE;
                return 0;
        }
        if (event->code) {
                agx_text_exit(what, sizeof(what), event->code);
                return fail(self, what, event->text);
        }
        if (self->command == AGX_CAPE_STATUS)
                return on_state(self, event->text);
        self->end = AGX_WISH_GONE;
        return 0;
}

static int command_event(agx_brain *brain, const agx_event *event)
{
        cape_command *self = self_of(brain);

        if (self->end != AGX_WISH_RUN)
                return 0;
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return fail(self, "the cape program could not be started", event->text);
        case AGX_EVENT_TIMER:
                return fail(self, "the cape program did not answer in time", event->text);
        case AGX_EVENT_CANCEL:
                /* A cancellation of the request is let go on: what was begun is not left half done. */
                return self->command == AGX_CAPE_CANCEL ? 0 : fail(self, "cancelled", AGX_VIEW(""));
        default:
                return 0;
        }
}

static const agx_brain_ops command_ops = {"cape command", command_next, command_event, command_free};

int agx_cape_command_new(agx_brain **brain, agx_cape_command command, agx_view binary, const agx_strv *host_env,
                         agx_view controller_url, agx_view request, const char **bad)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        cape_command *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &command_ops;
        made = &self->brain;
        self->command = command;
        self->end = AGX_WISH_RUN;
        *bad = agx_cape_is_request(request) ? NULL : "request";
        if (*bad)
                return AGX_CAPE_E_SETTING;
        if (command == AGX_CAPE_STATUS)
                agx_cape_ask_argv(&self->argv, "status", binary, controller_url, request);
        else
                agx_cape_cancel_argv(&self->argv, binary, controller_url, request, "agentix_delete");
        for (size_t i = 0; i < host_env->count; ++i)
                agx_strv_add_str(&self->env, host_env->items[i]);
        self->request = agx_strv_dup(request);
        r = agx_strv_end(&self->argv);
        r = r ? r : agx_strv_end(&self->env);
        r = r || self->request ? r : -ENOMEM;
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
