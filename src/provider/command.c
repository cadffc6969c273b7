/*
 * Once over it stays so: an event that comes late is passed over. What makes one command unlike another stands in its kind;
 * here is only what is alike, the order of things and who is to blame.
 */
#include "provider/command.h"

#include "base/err.h"
#include "provider/text.h"

#include <stdio.h>

static agx_command *self_of(agx_brain *brain)
{
        return (agx_command *)(void *)brain;
}

/* ---- ends ---- */

int agx_command_done(agx_command *self, agx_view answer)
{
        self->message = agx_strv_dup(answer);
        self->end = AGX_WISH_DONE;
        return self->message ? 0 : agx_trace(-ENOMEM);
}

int agx_command_gone(agx_command *self)
{
        self->end = AGX_WISH_GONE;
        return 0;
}

int agx_command_fail(agx_command *self, const char *what, agx_view detail)
{
        self->end = AGX_WISH_FAILED;
        return agx_text_failure(&self->message, self->kind->doing, what, detail);
}

/* `who`, and what it did not do. */
static int blame(agx_command *self, const char *who, const char *what, agx_view detail)
{
        char words[96];

        snprintf(words, sizeof(words), "%s %s", who, what);
        return agx_command_fail(self, words, detail);
}

/* ---- the brain ---- */

static void command_next(agx_brain *brain, agx_wish *wish)
{
        agx_command *self = self_of(brain);

        wish->kind = self->end == AGX_WISH_RUN && self->asked ? AGX_WISH_WAIT : self->end;
        wish->timeout_ms = self->kind->timeout_ms;
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->message = self->message;
        self->asked = true;
}

static int on_exited(agx_command *self, const agx_event *event)
{
        const agx_command_kind *kind = self->kind;
        char what[64];

        if (event->code && kind->is_unknown && kind->is_unknown(event->text))
                return agx_command_gone(self);
        if (event->code) {
                agx_text_exit(what, sizeof(what), event->code);
                return agx_command_fail(self, what, event->text);
        }
        return kind->read ? kind->read(self, event->text) : agx_command_gone(self);
}

static int command_event(agx_brain *brain, const agx_event *event)
{
        agx_command *self = self_of(brain);

        if (self->end != AGX_WISH_RUN)
                return 0;
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return blame(self, self->kind->not_started, "could not be started", event->text);
        case AGX_EVENT_TIMER:
                return blame(self, self->kind->not_answering, "did not answer in time", event->text);
        case AGX_EVENT_CANCEL:
                return self->kind->goes_on ? 0 : agx_command_fail(self, "cancelled", AGX_VIEW(""));
        default:
                return 0;
        }
}

static void command_free(agx_brain *brain)
{
        agx_command *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        free(self->subject);
        free(self->message);
        free(self);
}

static const agx_brain_ops command_ops = {"command", command_next, command_event, command_free};

int agx_command_new(agx_brain **brain, const agx_command_kind *kind, agx_strv *argv, const agx_strv *env,
                    agx_view subject)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        agx_command *self = calloc(1, sizeof(*self));
        int r;

        if (!self) {
                agx_strv_deinit(argv);
                return agx_trace(-ENOMEM);
        }
        self->brain.ops = &command_ops;
        made = &self->brain;
        self->kind = kind;
        self->end = AGX_WISH_RUN;
        self->argv = *argv;
        *argv = AGX_STRV_NULL;
        agx_strv_add_all(&self->env, env);
        self->subject = agx_strv_dup(subject);
        r = agx_strv_end(&self->argv);
        r = r ? r : agx_strv_end(&self->env);
        r = r || self->subject ? r : -ENOMEM;
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
