/* An image is fetched under a name of its own and renamed by the shell when it is whole; a registry that hiccups is asked again. */
#include "provider/apptainer.h"

#include "base/err.h"
#include "oci/engine.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/text.h"

#include <stdio.h>

enum state { STATE_RUN, STATE_RUNNING, STATE_PAUSE, STATE_DONE, STATE_FAILED };

typedef struct image {
        agx_brain brain;
        enum state state;
        unsigned retries;
        agx_strv argv;
        agx_strv env;
        char *target;
        char *message;
} image;

static image *self_of(agx_brain *brain)
{
        return (image *)(void *)brain;
}

static void image_free(agx_brain *brain)
{
        image *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        free(self->target);
        free(self->message);
        free(self);
}

static void image_next(agx_brain *brain, agx_wish *wish)
{
        static const agx_wish_kind kinds[] = {
                [STATE_RUN] = AGX_WISH_RUN,   [STATE_RUNNING] = AGX_WISH_WAIT,  [STATE_PAUSE] = AGX_WISH_WAIT,
                [STATE_DONE] = AGX_WISH_DONE, [STATE_FAILED] = AGX_WISH_FAILED,
        };
        image *self = self_of(brain);

        wish->kind = kinds[self->state];
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->path = self->target;
        wish->message = self->message;
        wish->timeout_ms = AGX_ENGINE_RUN_MS;
        if (self->state == STATE_PAUSE)
                wish->timeout_ms = (uint64_t)AGX_ENGINE_RETRY_MS << (self->retries - 1);
        if (self->state == STATE_RUN)
                self->state = STATE_RUNNING;
}

static int fail(image *self, const char *what, agx_view detail)
{
        self->state = STATE_FAILED;
        return agx_text_failure(&self->message, "pulling the image", what, detail);
}

static int on_exited(image *self, const agx_event *event)
{
        char what[64];

        if (self->state != STATE_RUNNING)
                return 0;
        if (!event->code) {
                self->state = STATE_DONE;
                return 0;
        }
        if (self->retries < AGX_ENGINE_RETRIES && agx_oci_trouble_of(event->text) == AGX_OCI_TROUBLE_TRANSIENT) {
                ++self->retries;
                self->state = STATE_PAUSE;
                return 0;
        }
        agx_text_exit(what, sizeof(what), event->code);
        return fail(self, what, event->text);
}

static int image_event(agx_brain *brain, const agx_event *event)
{
        image *self = self_of(brain);

        if (self->state >= STATE_DONE)
                return 0;
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return fail(self, "the program could not be started", event->text);
        case AGX_EVENT_TIMER:
                if (self->state == STATE_PAUSE) {
                        self->state = STATE_RUN;
                        return 0;
                }
                return fail(self, "it took too long", event->text);
        case AGX_EVENT_CANCEL:
                return fail(self, "cancelled", AGX_VIEW(""));
        default:
                return 0;
        }
}

static const agx_brain_ops image_ops = {"apptainer image", image_next, image_event, image_free};

static void build_argv(agx_strv *argv, const agx_apptainer_image *config)
{
        agx_strv_add(argv, config->binary);
        agx_strv_add(argv, AGX_VIEW("pull"));
        if (config->arch.p) {
                agx_strv_add(argv, AGX_VIEW("--arch"));
                agx_strv_add(argv, config->arch);
        }
        agx_strv_add(argv, config->target);
        agx_strv_add(argv, config->source);
}

int agx_apptainer_image_new(agx_brain **brain, const agx_apptainer_image *config, const char **bad)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        image *self;
        int r;

        *bad = !agx_oci_word(config->binary)                     ? "binary"
               : !agx_oci_word(config->source)                   ? "image"
               : config->arch.p && !agx_oci_word(config->arch)   ? "platform"
               : !config->target.n || config->target.p[0] != '/' ? "cache_dir"
                                                                 : NULL;
        if (*bad)
                return AGX_APPTAINER_E_SETTING;
        self = calloc(1, sizeof(*self));
        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &image_ops;
        made = &self->brain;
        build_argv(&self->argv, config);
        agx_strv_add_all(&self->env, config->host_env);
        self->target = agx_strv_dup(config->target);
        r = agx_strv_end(&self->argv);
        r = r ? r : agx_strv_end(&self->env);
        r = r ? r : self->target ? 0 : -ENOMEM;
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
