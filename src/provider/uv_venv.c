/*
 * Making the environment, step by step: venv, then install. Each step is a wish; a failed one ends in FAILED with the
 * command's last output, and the shell removes the half-made directory. The constraints file says where our own
 * distributions lie, so that uv asks no index for their names: somebody else may own them there, and an unfit
 * requirement is then an error of the resolver.
 */
#include "provider/uv.h"

#include "base/buf.h"
#include "base/err.h"
#include "provider/text.h"

enum { STEP_VENV, STEP_INSTALL, STEP_DONE, STEP_FAILED };

/* An install can build packages from source; it is bounded all the same, so that a dead index cannot hold a create. */
enum { VENV_STEP_MS = 30 * 60 * 1000 };

typedef struct uv_venv {
        agx_brain brain;
        int step;
        agx_strv make;
        agx_strv install; /* empty: nothing to install */
        agx_strv env;
        char *venv;
        char *message;
} uv_venv;

static const char *const step_words[] = {"making the virtual environment", "installing the project"};

static uv_venv *self_of(agx_brain *brain)
{
        return (uv_venv *)(void *)brain;
}

static void venv_free(agx_brain *brain)
{
        uv_venv *self = self_of(brain);

        agx_strv_deinit(&self->make);
        agx_strv_deinit(&self->install);
        agx_strv_deinit(&self->env);
        free(self->venv);
        free(self->message);
        free(self);
}

static void venv_next(agx_brain *brain, agx_wish *wish)
{
        uv_venv *self = self_of(brain);

        wish->path = self->venv;
        wish->env = &self->env;
        wish->timeout_ms = VENV_STEP_MS;
        switch (self->step) {
        case STEP_VENV:
                wish->kind = AGX_WISH_RUN;
                wish->argv = &self->make;
                break;
        case STEP_INSTALL:
                wish->kind = AGX_WISH_RUN;
                wish->argv = &self->install;
                break;
        case STEP_DONE:
                wish->kind = AGX_WISH_DONE;
                break;
        default:
                wish->kind = AGX_WISH_FAILED;
                wish->message = self->message;
        }
}

static int fail(uv_venv *self, const char *what, agx_view detail)
{
        const char *doing = step_words[self->step];

        self->step = STEP_FAILED;
        return agx_text_failure(&self->message, doing, what, detail);
}

static void advance(uv_venv *self)
{
        ++self->step;
        if (self->step == STEP_INSTALL && !self->install.count)
                ++self->step;
}

static int venv_event(agx_brain *brain, const agx_event *event)
{
        uv_venv *self = self_of(brain);
        char what[64];

        if (self->step >= STEP_DONE)
                return 0;
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                if (event->code) {
                        agx_text_exit(what, sizeof(what), event->code);
                        return fail(self, what, event->text);
                }
                advance(self);
                return 0;
        case AGX_EVENT_SPAWN_FAILED:
                return fail(self, "uv could not be started", event->text);
        case AGX_EVENT_TIMER:
                return fail(self, "no end in 30 minutes", event->text);
        case AGX_EVENT_CANCEL:
                return fail(self, "cancelled", AGX_VIEW(""));
        default:
                return 0;
        }
}

static const agx_brain_ops venv_ops = {"uv venv", venv_next, venv_event, venv_free};

static void build_make(agx_strv *argv, const agx_uv_venv_config *config)
{
        agx_strv_add(argv, config->uv);
        agx_strv_add(argv, AGX_VIEW("venv"));
        agx_strv_add(argv, AGX_VIEW("--no-project"));
        agx_strv_add(argv, AGX_VIEW("--python"));
        agx_strv_add(argv, config->python);
        agx_strv_add(argv, AGX_VIEW("--"));
        agx_strv_add(argv, config->venv);
}

static void add_option(agx_strv *argv, const char *option, agx_view value)
{
        agx_strv_addf(argv, "%s=%.*s", option, (int)value.n, value.p);
}

static void build_install(agx_strv *argv, const agx_uv_venv_config *config)
{
        if (!config->project.p && !config->install->count)
                return;
        agx_strv_add(argv, config->uv);
        agx_strv_add(argv, AGX_VIEW("pip"));
        agx_strv_add(argv, AGX_VIEW("install"));
        agx_strv_addf(argv, "--python=%.*s/bin/python", (int)config->venv.n, config->venv.p);
        if (config->constraints.p)
                add_option(argv, "--constraints", config->constraints);
        for (size_t i = 0; i < config->own->count; ++i)
                add_option(argv, "--no-sources-package", agx_view_str(config->own->items[i]));
        agx_strv_add(argv, AGX_VIEW("--"));
        if (config->project.p)
                agx_strv_add(argv, config->project);
        agx_strv_add_all(argv, config->install);
}

/* Index addresses may hold passwords, so they go by the environment, where only this user can read them. */
static int build_env(agx_strv *env, const agx_uv_venv_config *config)
{
        _cleanup_(agx_buf_deinitp) agx_buf extra = AGX_BUF_NULL(64 * 1024);
        int r = 0;

        agx_strv_add_all(env, config->env);
        if (config->index_url.p)
                agx_strv_set(env, AGX_VIEW("UV_DEFAULT_INDEX"), config->index_url);
        for (size_t i = 0; i < config->extra_index_url->count && !r; ++i)
                r = agx_buf_printf(&extra, "%s%s", i ? " " : "", config->extra_index_url->items[i]);
        if (!r && extra.len)
                agx_strv_set(env, AGX_VIEW("UV_INDEX"), agx_buf_view(&extra));
        return r ? agx_trace(-ENOMEM) : agx_strv_end(env);
}

int agx_uv_venv_new(agx_brain **brain, const agx_uv_venv_config *config)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        uv_venv *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &venv_ops;
        made = &self->brain;
        build_make(&self->make, config);
        build_install(&self->install, config);
        self->venv = agx_strv_dup(config->venv);
        r = !self->venv ? -ENOMEM : agx_strv_end(&self->make);
        r = r ? r : agx_strv_end(&self->install);
        r = r ? r : build_env(&self->env, config);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
