/* One bounded question or order to an engine. The words of an answer are read here, so that the shell gets plain lines. */
#include "provider/docker.h"

#include "base/buf.h"
#include "base/err.h"
#include "oci/engine.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/text.h"

#include <stdio.h>

enum { ANSWER_MAX = 256 * 1024 };

typedef struct docker_command {
        agx_brain brain;
        agx_docker_command command;
        bool asked;
        agx_wish_kind end; /* DONE, GONE or FAILED once it is over; else RUN */
        agx_strv argv;
        agx_strv env;
        char *message;
} docker_command;

static const char *const doing[] = {
        [AGX_DOCKER_LOOK] = "looking for the container",
        [AGX_DOCKER_LIST] = "listing the sandboxes",
        [AGX_DOCKER_REMOVE] = "removing the container",
};

static docker_command *self_of(agx_brain *brain)
{
        return (docker_command *)(void *)brain;
}

static void command_free(agx_brain *brain)
{
        docker_command *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        free(self->message);
        free(self);
}

static void command_next(agx_brain *brain, agx_wish *wish)
{
        docker_command *self = self_of(brain);
        bool remove = self->command == AGX_DOCKER_REMOVE;

        wish->kind = self->end == AGX_WISH_RUN && self->asked ? AGX_WISH_WAIT : self->end;
        wish->timeout_ms = remove ? AGX_ENGINE_REMOVE_MS : AGX_ENGINE_ASK_MS;
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->message = self->message;
        self->asked = true;
}

static int fail(docker_command *self, const char *what, agx_view detail)
{
        self->end = AGX_WISH_FAILED;
        return agx_text_failure(&self->message, doing[self->command], what, detail);
}

static int answer(docker_command *self, agx_buf *text)
{
        int r = agx_buf_append(text, "", 1);

        self->message = r ? NULL : strdup((const char *)agx_buf_view(text).p);
        self->end = AGX_WISH_DONE;
        return self->message ? 0 : agx_trace(-ENOMEM);
}

static int read_look(docker_command *self, agx_view output)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);
        agx_oci_state state;
        int r;

        if (!agx_oci_state_read(output, &state))
                return fail(self, "the engine gave no state", output);
        if (!state.sandbox.n) {
                self->end = AGX_WISH_GONE; /* a container of that name, but not one of ours */
                return 0;
        }
        r = agx_buf_printf(&text, "%.*s %.*s %.*s", (int)state.status.n, state.status.p, (int)state.id.n, state.id.p,
                           (int)state.sandbox.n, state.sandbox.p);
        return r ? agx_trace(-ENOMEM) : answer(self, &text);
}

static int read_list(docker_command *self, agx_view output)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(ANSWER_MAX);
        agx_oci_row row;
        int r = 0;

        while (!r && agx_oci_list_next(&output, &row))
                if (agx_oci_name(row.name))
                        r = agx_buf_printf(&text, "%.*s\t%s\t%.*s\n", (int)row.name.n, row.name.p,
                                           row.running  ? "running"
                                           : row.exited ? "exited"
                                                        : "other",
                                           (int)row.host.n, row.host.p);
        return r ? agx_trace(-ENOMEM) : answer(self, &text);
}

static int on_exited(docker_command *self, const agx_event *event)
{
        char what[64];

        if (event->code && self->command != AGX_DOCKER_LIST &&
            agx_oci_trouble_of(event->text) == AGX_OCI_TROUBLE_NO_CONTAINER) {
                self->end = AGX_WISH_GONE;
                return 0;
        }
        if (event->code) {
                agx_text_exit(what, sizeof(what), event->code);
                return fail(self, what, event->text);
        }
        if (self->command == AGX_DOCKER_LOOK)
                return read_look(self, event->text);
        if (self->command == AGX_DOCKER_LIST)
                return read_list(self, event->text);
        self->end = AGX_WISH_GONE;
        return 0;
}

static int command_event(agx_brain *brain, const agx_event *event)
{
        docker_command *self = self_of(brain);

        if (self->end != AGX_WISH_RUN)
                return 0;
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return fail(self, "the engine's client could not be started", event->text);
        case AGX_EVENT_TIMER:
                return fail(self, "the engine did not answer in time", event->text);
        case AGX_EVENT_CANCEL:
                /* A removal is let go on: what was begun is not left half done. */
                return self->command == AGX_DOCKER_REMOVE ? 0 : fail(self, "cancelled", AGX_VIEW(""));
        default:
                return 0;
        }
}

static const agx_brain_ops command_ops = {"docker command", command_next, command_event, command_free};

int agx_docker_command_new(agx_brain **brain, agx_docker_command command, agx_view engine, const agx_strv *host_env,
                           agx_view name, const char **bad)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        docker_command *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &command_ops;
        made = &self->brain;
        self->command = command;
        self->end = AGX_WISH_RUN;
        *bad = !agx_oci_word(engine) ? "engine" : command != AGX_DOCKER_LIST && !agx_oci_name(name) ? "name" : NULL;
        if (*bad)
                return AGX_DOCKER_E_SETTING;
        if (command == AGX_DOCKER_LOOK)
                agx_oci_look_argv(&self->argv, engine, name);
        else if (command == AGX_DOCKER_LIST)
                agx_oci_list_argv(&self->argv, engine);
        else
                agx_oci_remove_argv(&self->argv, engine, name);
        for (size_t i = 0; i < host_env->count; ++i)
                agx_strv_add_str(&self->env, host_env->items[i]);
        r = agx_strv_end(&self->argv);
        r = r ? r : agx_strv_end(&self->env);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
