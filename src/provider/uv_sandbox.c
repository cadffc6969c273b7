/*
 * One sandbox of the `uv` backend: a runtime server that tells by itself when it listens.
 *
 * The server holds the read end of a lifeline: when the host dies, however it dies, the server ends and removes the
 * sandbox's directory. So the only leftovers can be those of a killed server, and the shell sweeps them by their lock.
 */
#include "provider/uv.h"

#include "base/err.h"
#include "provider/text.h"

#include <signal.h>
#include <stdio.h>

enum state {
        STATE_START,
        STATE_STARTING,
        STATE_LIVE,
        STATE_TERM,
        STATE_TERMING,
        STATE_KILL,
        STATE_KILLING,
        STATE_GONE,
        STATE_FAILED
};

/* The server bounds its own shutdown to 5 s; a little more, then it is killed. */
enum { SANDBOX_TERM_MS = 7000 };

typedef struct uv_sandbox {
        agx_brain brain;
        enum state state;
        bool failing; /* ends in FAILED, not in GONE */
        agx_strv argv;
        agx_strv env;
        char *dir;
        char *cwd;
        char *token_file;
        char *url;
        char *message;
        uint64_t ready_ms;
} uv_sandbox;

static uv_sandbox *self_of(agx_brain *brain)
{
        return (uv_sandbox *)(void *)brain;
}

static void sandbox_free(agx_brain *brain)
{
        uv_sandbox *self = self_of(brain);

        agx_strv_deinit(&self->argv);
        agx_strv_deinit(&self->env);
        free(self->dir);
        free(self->cwd);
        free(self->token_file);
        free(self->url);
        free(self->message);
        free(self);
}

/* ---- wishes: one small function a state ---- */

static void wish_start(uv_sandbox *self, agx_wish *wish)
{
        wish->kind = AGX_WISH_START;
        wish->argv = &self->argv;
        wish->env = &self->env;
        wish->cwd = self->cwd;
        wish->timeout_ms = self->ready_ms;
        self->state = STATE_STARTING;
}

static void wish_signal(uv_sandbox *self, agx_wish *wish)
{
        bool term = self->state == STATE_TERM;

        wish->kind = AGX_WISH_SIGNAL;
        wish->signal = term ? SIGTERM : SIGKILL;
        wish->timeout_ms = term ? SANDBOX_TERM_MS : 0;
        self->state = term ? STATE_TERMING : STATE_KILLING;
}

/* After an event that changed nothing; the time starts anew, which is better than none. */
static void wish_wait(uv_sandbox *self, agx_wish *wish)
{
        wish->kind = AGX_WISH_WAIT;
        if (self->state != STATE_KILLING)
                wish->timeout_ms = self->state == STATE_STARTING ? self->ready_ms : SANDBOX_TERM_MS;
}

static void wish_end(uv_sandbox *self, agx_wish *wish)
{
        wish->kind = self->state == STATE_GONE ? AGX_WISH_GONE : AGX_WISH_FAILED;
        wish->path = self->dir;
        wish->message = self->message;
}

static void sandbox_next(agx_brain *brain, agx_wish *wish)
{
        uv_sandbox *self = self_of(brain);

        switch (self->state) {
        case STATE_START:
                wish_start(self, wish);
                break;
        case STATE_LIVE:
                wish->kind = AGX_WISH_DONE;
                wish->url = self->url;
                wish->token_file = self->token_file;
                break;
        case STATE_TERM:
        case STATE_KILL:
                wish_signal(self, wish);
                break;
        case STATE_GONE:
        case STATE_FAILED:
                wish_end(self, wish);
                break;
        default:
                wish_wait(self, wish);
        }
}

/* ---- events ---- */

static const char starting[] = "starting the sandbox";

/* Fails while a process may still run: it is ended first. */
static int fail_running(uv_sandbox *self, const char *what, agx_view detail, bool gently)
{
        self->failing = true;
        self->state = gently ? STATE_TERM : STATE_KILL;
        return agx_text_failure(&self->message, starting, what, detail);
}

static int on_exited(uv_sandbox *self, const agx_event *event)
{
        char what[160], cause[64];

        if (self->state == STATE_STARTING) {
                self->state = STATE_FAILED;
                agx_text_exit(cause, sizeof(cause), event->code);
                snprintf(what, sizeof(what), "the runtime server ended with %s before it was ready", cause);
                return agx_text_failure(&self->message, starting, what, event->text);
        }
        self->state = self->failing ? STATE_FAILED : STATE_GONE;
        return 0;
}

/* "ready URL INSTANCE", or "failed REASON". */
static int on_ready(uv_sandbox *self, const agx_event *event)
{
        agx_view rest = event->text, word, url;

        if (self->state != STATE_STARTING)
                return 0;
        if (!agx_view_split(&rest, ' ', &word) || !agx_view_eq(word, AGX_VIEW("ready")) ||
            !agx_view_split(&rest, ' ', &url) || !url.n)
                return fail_running(self, "the runtime server could not listen", event->text, false);
        self->url = agx_strv_dup(url);
        if (!self->url)
                return agx_trace(-ENOMEM);
        self->state = STATE_LIVE;
        return 0;
}

static int on_timer(uv_sandbox *self, const agx_event *event)
{
        char what[96];

        if (self->state == STATE_STARTING) {
                snprintf(what, sizeof(what), "the runtime server was not ready after %.1f s",
                         (double)self->ready_ms / 1000);
                return fail_running(self, what, event->text, false);
        }
        if (self->state == STATE_TERMING)
                self->state = STATE_KILL;
        return 0;
}

static int sandbox_event(agx_brain *brain, const agx_event *event)
{
        uv_sandbox *self = self_of(brain);

        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return on_exited(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                self->state = STATE_FAILED;
                return agx_text_failure(&self->message, starting, "the runtime server could not be started",
                                        event->text);
        case AGX_EVENT_READY:
                return on_ready(self, event);
        case AGX_EVENT_TIMER:
                return on_timer(self, event);
        case AGX_EVENT_DELETE:
                if (self->state == STATE_LIVE)
                        self->state = STATE_TERM;
                return 0;
        case AGX_EVENT_CANCEL:
                if (self->state == STATE_STARTING || self->state == STATE_LIVE)
                        return fail_running(self, "cancelled", AGX_VIEW(""), true);
                if (self->state == STATE_START)
                        self->state = STATE_FAILED;
                return 0;
        default:
                return 0;
        }
}

static const agx_brain_ops sandbox_ops = {"uv", sandbox_next, sandbox_event, sandbox_free};

/* ---- building ---- */

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

/* What this backend says itself, whatever the user's environment says. */
static bool is_reserved(const char *entry)
{
        static const char *const names[] = {"AGENTIX_BIND_HOST=",  "AGENTIX_BIND_PORT=", "AGENTIX_BIND_SOCKET=",
                                            "AGENTIX_TOKEN_FILE=", "AGENTIX_READY_FD=",  "AGENTIX_LIFELINE_FD=",
                                            "AGENTIX_LEASE="};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (strncmp(entry, names[i], strlen(names[i])) == 0)
                        return true;
        return false;
}

static void set_pair(agx_strv *env, const char *entry)
{
        const char *equals = strchr(entry, '=');

        if (equals)
                agx_strv_set(env, agx_view_of(entry, (size_t)(equals - entry)), agx_view_str(equals + 1));
}

static void build_env(agx_strv *env, const agx_uv_sandbox_config *config)
{
        char number[32], logs[4096];
        int n = snprintf(logs, sizeof(logs), "%.*s/log", (int)config->dir.n, config->dir.p);

        for (size_t i = 0; i < config->host_env->count; ++i)
                if (crosses(config->host_env->items[i]))
                        agx_strv_add_str(env, config->host_env->items[i]);
        if ((size_t)n < sizeof(logs)) /* its own, which goes with it, unless the user names another */
                agx_strv_set(env, AGX_VIEW("AGENTIX_LOG_DIR"), agx_view_of(logs, (size_t)n));
        agx_strv_set(env, AGX_VIEW("AGENTIX_UPLOAD_ROOT"), config->cwd); /* likewise */
        for (size_t i = 0; i < config->config_env->count; ++i)
                if (!is_reserved(config->config_env->items[i]))
                        set_pair(env, config->config_env->items[i]);
        agx_strv_set(env, AGX_VIEW("AGENTIX_TOKEN_FILE"), config->token_file);
        if (config->socket.p) {
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_SOCKET"), config->socket);
        } else {
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_HOST"), config->host);
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_PORT"), AGX_VIEW("0"));
        }
        if (config->lease_s > 0) {
                snprintf(number, sizeof(number), "%.3f", config->lease_s);
                agx_strv_set(env, AGX_VIEW("AGENTIX_LEASE"), agx_view_str(number));
        }
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
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        uv_sandbox *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &sandbox_ops;
        made = &self->brain;
        self->ready_ms = config->ready_ms;
        build_argv(&self->argv, config);
        build_env(&self->env, config);
        self->dir = agx_strv_dup(config->dir);
        self->cwd = agx_strv_dup(config->cwd);
        self->token_file = agx_strv_dup(config->token_file);
        r = self->dir && self->cwd && self->token_file ? agx_strv_end(&self->argv) : -ENOMEM;
        r = r ? r : agx_strv_end(&self->env);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
