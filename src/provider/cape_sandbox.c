/*
 * One sandbox of the `cape` backend: one request, from `run` to `cancel`.
 *
 * The program only hands a request to a controller, so a call of it that was killed may have left one. Hence `run` is said
 * once and never again, and a cancelled one is let go on to its end: what it prints is the only name by which the request
 * can be cancelled. Every id that it printed is, whatever else was wrong.
 *
 * Where the runtime listens stands in the workload's log, and in a shared directory if there is one, as logs may lag or be
 * lost. The state of the request is asked between: one that is over has no endpoint any more. Errors of the asking are
 * nothing, unless they go on.
 */
#include "provider/cape.h"

#include "base/buf.h"
#include "base/err.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/cape_words.h"
#include "provider/process.h"
#include "provider/text.h"

#include <stdio.h>

enum state {
        STATE_RUN,
        STATE_RUNNING,
        STATE_ABANDONED, /* cancelled; the run goes on to its end */
        STATE_STATUS,
        STATE_LOGS,
        STATE_META,
        STATE_PAUSE, /* before the state is asked again */
        STATE_PROBE,
        STATE_LAST_LOGS, /* of a request that is over, for the message */
        STATE_LIVE,
        STATE_CANCEL,
        STATE_CANCELLING,
        STATE_AGAIN, /* before another `cancel` */
        STATE_GONE,
        STATE_FAILED
};

typedef struct cape_sandbox {
        agx_brain brain;
        enum state state;
        enum state after;    /* what follows the cancellation: GONE or FAILED */
        const char *reason;  /* of the cancellation */
        bool asked;          /* the call of this state is under way */
        bool found;          /* the marker */
        bool noted;          /* the request, where a later process finds it if this one is killed */
        unsigned failures;   /* of status, in a row */
        unsigned cancels;    /* of this request, that failed */
        size_t next_request; /* index into requests: which is to be cancelled */
        uint64_t deadline_ms;
        uint64_t pause_ms;

        agx_cape_config config; /* views and vectors of it point into the copies below */
        agx_strv words;
        agx_strv host_env, extra_binds, config_env, env, argv, requests;
        agx_buf environ_file;
        agx_wish_file files[2], note_file;
        char *dir, *token_file, *script, *url, *message, *meta_token, *meta_environ, *meta_endpoint;
        char *note_path, *note;
        char *over; /* how the request ended, while its output is fetched */
} cape_sandbox;

static cape_sandbox *self_of(agx_brain *brain)
{
        return (cape_sandbox *)(void *)brain;
}

static void sandbox_free(agx_brain *brain)
{
        cape_sandbox *self = self_of(brain);
        agx_strv *vectors[] = {&self->words, &self->host_env, &self->extra_binds, &self->config_env,
                               &self->env,   &self->argv,     &self->requests};
        char *texts[] = {self->dir,     self->token_file, self->script,       self->url,
                         self->message, self->meta_token, self->meta_environ, self->meta_endpoint,
                         self->over,    self->note_path,  self->note};

        for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); ++i)
                agx_strv_deinit(vectors[i]);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
                free(texts[i]);
        agx_buf_deinit(&self->environ_file);
        free(self);
}

static agx_view request_of(const cape_sandbox *self)
{
        return self->requests.count ? agx_view_str(self->requests.items[0]) : AGX_VIEW_NULL;
}

/* ---- wishes ---- */

static void wish_call(cape_sandbox *self, agx_wish *wish)
{
        wish->kind = self->asked ? AGX_WISH_WAIT : AGX_WISH_RUN;
        wish->argv = &self->argv;
        wish->env = &self->host_env;
        wish->timeout_ms = AGX_CAPE_CALL_MS;
        self->asked = true;
}

static void wish_run(cape_sandbox *self, agx_wish *wish)
{
        wish_call(self, wish);
        wish->files = self->files;
        wish->file_count = self->config.meta.p ? 2 : 0;
        self->state = STATE_RUNNING;
}

/* Until it was asked once, the file is written anew: only then has it been written for sure. */
static void wish_status(cape_sandbox *self, agx_wish *wish)
{
        wish_call(self, wish);
        wish->files = &self->note_file;
        wish->file_count = self->noted ? 0 : 1;
}

static void wish_here(cape_sandbox *self, agx_wish *wish, agx_wish_kind kind)
{
        wish->kind = kind;
        wish->url = self->url;
        wish->token_file = self->token_file;
        wish->message = self->message;
        wish->path = kind == AGX_WISH_DONE ? self->requests.items[0] : NULL;
        wish->timeout_ms = kind == AGX_WISH_DONE ? 0 : AGX_CAPE_PROBE_MS;
}

static void wish_end(cape_sandbox *self, agx_wish *wish)
{
        wish->kind = self->state == STATE_GONE ? AGX_WISH_GONE : AGX_WISH_FAILED;
        wish->path = self->dir;
        wish->message = self->message;
}

static void sandbox_next(agx_brain *brain, agx_wish *wish)
{
        cape_sandbox *self = self_of(brain);

        switch (self->state) {
        case STATE_RUN:
                wish_run(self, wish);
                break;
        case STATE_RUNNING:
        case STATE_ABANDONED:
                agx_wish_wait(wish, AGX_CAPE_CALL_MS);
                break;
        case STATE_STATUS:
                wish_status(self, wish);
                break;
        case STATE_LOGS:
        case STATE_META:
        case STATE_LAST_LOGS:
                wish_call(self, wish);
                break;
        case STATE_PAUSE:
                agx_wish_wait(wish, self->pause_ms);
                break;
        case STATE_PROBE:
                wish_here(self, wish, AGX_WISH_PROBE);
                break;
        case STATE_LIVE:
                wish_here(self, wish, AGX_WISH_DONE);
                break;
        case STATE_CANCEL:
                wish_call(self, wish);
                self->state = STATE_CANCELLING;
                break;
        case STATE_CANCELLING:
                agx_wish_wait(wish, AGX_CAPE_CALL_MS);
                break;
        case STATE_AGAIN:
                agx_wish_wait(wish, AGX_CAPE_CANCEL_PAUSE_MS);
                break;
        default:
                wish_end(self, wish);
        }
}

/* ---- steps ---- */

static const char starting[] = "starting the sandbox";
static const char deleting[] = "deleting the sandbox";

static int begin(cape_sandbox *self, enum state state)
{
        const agx_cape_config *c = &self->config;

        agx_strv_deinit(&self->argv);
        self->asked = false;
        self->state = state;
        if (state == STATE_RUN)
                agx_cape_run_argv(&self->argv, c, &self->env, self->script);
        else if (state == STATE_STATUS)
                agx_cape_ask_argv(&self->argv, "status", c->binary, c->controller_url, request_of(self));
        else if (state == STATE_LOGS || state == STATE_LAST_LOGS)
                agx_cape_ask_argv(&self->argv, "logs", c->binary, c->controller_url, request_of(self));
        else if (state == STATE_CANCEL)
                agx_cape_cancel_argv(&self->argv, c->binary, c->controller_url,
                                     agx_view_str(self->requests.items[self->next_request]), self->reason);
        else if (state == STATE_META) {
                agx_strv_add_str(&self->argv, "/bin/cat");
                agx_strv_add_str(&self->argv, self->meta_endpoint);
        }
        return agx_strv_end(&self->argv) ? agx_trace(-ENOMEM) : 0;
}

static int begin_cancel(cape_sandbox *self, enum state after, const char *reason)
{
        self->after = after;
        self->reason = reason;
        self->next_request = 0;
        self->cancels = 0;
        if (!self->requests.count) {
                self->state = after;
                return 0;
        }
        return begin(self, STATE_CANCEL);
}

static int fail(cape_sandbox *self, const char *what, agx_view detail)
{
        int r = agx_text_failure(&self->message, starting, what, detail);

        return r ? r : begin_cancel(self, STATE_FAILED, "agentix_create_failed");
}

static int cancelled(cape_sandbox *self)
{
        int r = agx_text_failure(&self->message, starting, "cancelled", AGX_VIEW(""));

        return r ? r : begin_cancel(self, STATE_FAILED, "agentix_create_cancelled");
}

/* ---- the submission ---- */

static int submitted(cape_sandbox *self, const agx_event *event)
{
        char what[96], cause[64];

        agx_cape_requests(event->text, &self->requests);
        if (agx_strv_end(&self->requests))
                return agx_trace(-ENOMEM);
        if (self->state == STATE_ABANDONED)
                return cancelled(self);
        if (event->code) {
                agx_text_exit(cause, sizeof(cause), event->code);
                snprintf(what, sizeof(what), "cape run ended with %s", cause);
                return fail(self, what, event->text);
        }
        if (self->requests.count != 1)
                return fail(self,
                            self->requests.count ? "cape run named more than one request" : "cape run named no request",
                            event->text);
        self->deadline_ms = event->now_ms + self->config.ready_ms;
        if (asprintf(&self->note, "%.*s %s\n", (int)self->config.controller_url.n, self->config.controller_url.p,
                     self->requests.items[0]) < 0) {
                self->note = NULL;
                return agx_trace(-ENOMEM);
        }
        self->note_file = (agx_wish_file){self->note_path, 0600, agx_view_str(self->note)};
        return begin(self, STATE_STATUS);
}

static int on_running(cape_sandbox *self, const agx_event *event)
{
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                return submitted(self, event);
        case AGX_EVENT_SPAWN_FAILED:
                return fail(self, "the cape program could not be started", event->text);
        case AGX_EVENT_TIMER: /* it is killed; what it printed until then is all there is to know */
                agx_cape_requests(event->text, &self->requests);
                return fail(self, "cape run did not come to an end in time; its session may still begin", event->text);
        case AGX_EVENT_CANCEL:
                self->state = STATE_ABANDONED;
                return 0;
        default:
                return 0;
        }
}

/* ---- discovery ---- */

static int look_again(cape_sandbox *self, const agx_event *event)
{
        char what[160];

        if (event->now_ms >= self->deadline_ms) {
                snprintf(what, sizeof(what), "%s after %.1f s",
                         self->found ? "its endpoint was not healthy" : "there was no AGENTIX_ENDPOINT marker",
                         (double)self->config.ready_ms / 1000);
                return fail(self, what, event->text);
        }
        self->state = STATE_PAUSE;
        self->pause_ms = self->pause_ms * 2 < AGX_CAPE_POLL_MS ? self->pause_ms * 2 : AGX_CAPE_POLL_MS;
        return 0;
}

static int status_failed(cape_sandbox *self, const agx_event *event)
{
        if (++self->failures <= self->config.failure_limit)
                return look_again(self, event);
        return fail(self, "cape status failed too often in a row", event->text);
}

static int is_over(cape_sandbox *self, agx_view state)
{
        free(self->over);
        if (asprintf(&self->over, "the request is %.*s", (int)(state.n < 64 ? state.n : 64), state.p) < 0) {
                self->over = NULL;
                return agx_trace(-ENOMEM);
        }
        return begin(self, STATE_LAST_LOGS);
}

static int on_status(cape_sandbox *self, const agx_event *event)
{
        agx_cape_state state;

        self->noted = self->noted || event->kind != AGX_EVENT_SPAWN_FAILED;
        if (event->kind == AGX_EVENT_SPAWN_FAILED || event->kind == AGX_EVENT_TIMER || event->code ||
            !agx_cape_state_read(event->text, request_of(self), &state))
                return status_failed(self, event);
        self->failures = 0;
        if (state.other)
                return fail(self, "cape status speaks of another request", event->text);
        if (state.terminal)
                return is_over(self, state.state);
        if (!self->found)
                return begin(self, STATE_LOGS);
        if (event->now_ms >= self->deadline_ms)
                return look_again(self, event);
        self->state = STATE_PROBE;
        return 0;
}

/* "{host}" and "{port}" of the template are replaced. */
static int build_url(cape_sandbox *self, agx_view host, agx_view port)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);
        agx_view rest = self->config.url_template;
        int r = 0;

        while (rest.n && !r) {
                if (agx_view_starts(rest, AGX_VIEW("{host}")) || agx_view_starts(rest, AGX_VIEW("{port}"))) {
                        agx_view value = rest.p[1] == 'h' ? host : port;

                        r = agx_buf_append(&out, value.p, value.n);
                        rest = agx_view_from(rest, 6);
                } else {
                        r = agx_buf_append(&out, rest.p, 1);
                        rest = agx_view_from(rest, 1);
                }
        }
        r = r ? r : agx_buf_append(&out, "", 1);
        free(self->url);
        self->url = r ? NULL : strdup((const char *)agx_buf_view(&out).p);
        return self->url ? 0 : agx_trace(-ENOMEM);
}

/* Logs, or the shared directory. That they cannot be had says nothing. */
static int on_marker(cape_sandbox *self, const agx_event *event)
{
        agx_view host, port;
        int r;

        if (event->kind == AGX_EVENT_EXITED && !event->code && agx_cape_marker(event->text, &host, &port)) {
                self->found = true;
                self->deadline_ms = event->now_ms + self->config.ready_ms;
                r = build_url(self, host, port);
                self->state = STATE_PROBE;
                return r;
        }
        if (self->state == STATE_LOGS && self->config.meta.p)
                return begin(self, STATE_META);
        return look_again(self, event);
}

static int on_probe(cape_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_READY)
                self->state = STATE_LIVE;
        return event->kind == AGX_EVENT_TIMER ? begin(self, STATE_STATUS) : 0;
}

static int on_last_logs(cape_sandbox *self, const agx_event *event)
{
        bool said = event->kind == AGX_EVENT_EXITED && !event->code;

        return fail(self, self->over, said ? event->text : AGX_VIEW("its output cannot be had"));
}

/* ---- the end ---- */

static int cancel_failed(cape_sandbox *self, const agx_event *event)
{
        char what[160];
        int r;

        if (++self->cancels < AGX_CAPE_CANCELS) {
                self->state = STATE_AGAIN;
                return 0;
        }
        snprintf(what, sizeof(what), "cape cancel of %s did not succeed; it may go on to the end of its time",
                 self->requests.items[self->next_request]);
        if (self->after == STATE_GONE) {
                self->state = STATE_LIVE;
                free(self->message);
                self->message = NULL;
                return agx_text_failure(&self->message, deleting, what, event->text);
        }
        r = agx_text_failure_more(&self->message, deleting, what, event->text);
        self->state = self->after;
        return r;
}

static int on_cancelling(cape_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_CANCEL || event->kind == AGX_EVENT_DELETE)
                return 0;
        if (event->kind != AGX_EVENT_EXITED || (event->code && !agx_cape_is_unknown(event->text)))
                return cancel_failed(self, event);
        self->cancels = 0;
        if (++self->next_request < self->requests.count)
                return begin(self, STATE_CANCEL);
        self->state = self->after;
        return 0;
}

static int on_live(cape_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_DELETE)
                return begin_cancel(self, STATE_GONE, "agentix_delete");
        return event->kind == AGX_EVENT_CANCEL ? cancelled(self) : 0;
}

/* Where the request is there and its runtime is not yet. */
static int on_way(cape_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_DELETE)
                return 0;
        switch (self->state) {
        case STATE_STATUS:
                return on_status(self, event);
        case STATE_LOGS:
        case STATE_META:
                return on_marker(self, event);
        case STATE_PAUSE:
                return event->kind == AGX_EVENT_TIMER ? begin(self, STATE_STATUS) : 0;
        case STATE_PROBE:
                return on_probe(self, event);
        default:
                return on_last_logs(self, event);
        }
}

static int sandbox_event(agx_brain *brain, const agx_event *event)
{
        cape_sandbox *self = self_of(brain);

        switch (self->state) {
        case STATE_RUN:
                return event->kind == AGX_EVENT_CANCEL ? cancelled(self) : 0;
        case STATE_RUNNING:
                return on_running(self, event);
        case STATE_ABANDONED:
                return event->kind == AGX_EVENT_EXITED || event->kind == AGX_EVENT_TIMER ? submitted(self, event) : 0;
        case STATE_LIVE:
                return on_live(self, event);
        case STATE_CANCELLING:
                return on_cancelling(self, event);
        case STATE_AGAIN:
                return event->kind == AGX_EVENT_TIMER ? begin(self, STATE_CANCEL) : 0;
        case STATE_CANCEL:
        case STATE_GONE:
        case STATE_FAILED:
                return 0;
        default:
                return event->kind == AGX_EVENT_CANCEL ? cancelled(self) : on_way(self, event);
        }
}

static const agx_brain_ops sandbox_ops = {"cape", sandbox_next, sandbox_event, sandbox_free};

/* ---- building ---- */

static bool is_reserved(agx_view name)
{
        static const char *const names[] = {"AGENTIX_BIND_HOST",  "AGENTIX_BIND_PORT", "AGENTIX_BIND_SOCKET",
                                            "AGENTIX_TOKEN_FILE", "AGENTIX_ENV_FILE",  "AGENTIX_LEASE",
                                            "AGENTIX_CAPE_SECRET"};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (agx_view_eq(name, agx_view_str(names[i])))
                        return true;
        return false;
}

/* To the workload's environment, or, with a shared directory, to a file in it. */
static int add_user_env(cape_sandbox *self)
{
        int r = 0;

        for (size_t i = 0; i < self->config_env.count && !r; ++i) {
                agx_view entry = agx_view_str(self->config_env.items[i]), rest = entry, name;

                if (!agx_view_split(&rest, '=', &name) || !rest.p || is_reserved(name))
                        continue;
                if (self->config.meta.p)
                        r = agx_buf_append(&self->environ_file, entry.p, entry.n + 1);
                else
                        agx_strv_set(&self->env, name, rest);
        }
        return r ? agx_trace(-ENOMEM) : 0;
}

static int build_env(cape_sandbox *self)
{
        const agx_cape_config *c = &self->config;

        agx_strv_set(&self->env, AGX_VIEW("AGENTIX_BIND_HOST"), AGX_VIEW("0.0.0.0"));
        agx_strv_set(&self->env, AGX_VIEW("AGENTIX_BIND_PORT"), c->port);
        if (c->meta.p) {
                agx_strv_set(&self->env, AGX_VIEW("AGENTIX_TOKEN_FILE"), agx_view_str(self->meta_token));
                agx_strv_set(&self->env, AGX_VIEW("AGENTIX_ENV_FILE"), agx_view_str(self->meta_environ));
        } else {
                agx_strv_addf(&self->env, "AGENTIX_TOKEN_FILE=%.*s/%.*s/token", (int)c->workspace_root.n,
                              c->workspace_root.p, (int)c->id.n, c->id.p);
                agx_strv_set(&self->env, AGX_VIEW("AGENTIX_CAPE_SECRET"), c->token);
        }
        agx_process_set_lease(&self->env, c->lease_s);
        self->files[0] = (agx_wish_file){self->meta_token, 0600, c->token};
        return add_user_env(self);
}

static int copy_texts(cape_sandbox *self, const agx_cape_config *config)
{
        agx_cape_config *c = &self->config;
        agx_view *texts[] = {&c->binary,
                             &c->id,
                             &c->dir,
                             &c->token,
                             &c->controller_url,
                             &c->pool,
                             &c->user,
                             &c->image,
                             &c->gpus,
                             &c->cpu_cores,
                             &c->memory_gb,
                             &c->bundle,
                             &c->max_duration,
                             &c->isolation_policy,
                             &c->runtime_adapter,
                             &c->port,
                             &c->url_template,
                             &c->workspace_root,
                             &c->meta};

        *c = *config;
        return agx_strv_keep(&self->words, texts, sizeof(texts) / sizeof(texts[0]));
}

static int copy_vectors(cape_sandbox *self, const agx_cape_config *config)
{
        agx_strv *copies[] = {&self->host_env, &self->extra_binds, &self->config_env};
        const agx_strv *given[] = {config->host_env, config->extra_binds, config->config_env};
        int r = 0;

        for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]) && !r; ++i) {
                agx_strv_add_all(copies[i], given[i]);
                r = agx_strv_end(copies[i]);
        }
        self->config.extra_binds = &self->extra_binds;
        return r;
}

static int build_paths(cape_sandbox *self)
{
        const struct {
                char **path;
                agx_view directory;
                const char *name;
        } rows[] = {
                {&self->dir, self->config.dir, ""},
                {&self->token_file, self->config.dir, "/token"},
                {&self->note_path, self->config.dir, "/request"},
                {&self->meta_token, self->config.meta, "/token"},
                {&self->meta_environ, self->config.meta, "/environ"},
                {&self->meta_endpoint, self->config.meta, "/endpoint"},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                if (asprintf(rows[i].path, "%.*s%s", (int)rows[i].directory.n,
                             rows[i].directory.p ? rows[i].directory.p : "", rows[i].name) < 0) {
                        *rows[i].path = NULL;
                        return -ENOMEM;
                }
        return 0;
}

static bool is_path(agx_view path)
{
        return path.n && path.p[0] == '/' && !memchr(path.p, ':', path.n) && !memchr(path.p, ',', path.n) &&
               !memchr(path.p, '\n', path.n);
}

static bool is_word_or_absent(agx_view text)
{
        return !text.p || agx_oci_word(text);
}

/* The name of the first setting that is none, or NULL. */
static const char *check(const cape_sandbox *self)
{
        const agx_cape_config *c = &self->config;
        const struct {
                const char *name;
                bool fine;
        } rows[] = {
                {"binary", agx_oci_word(c->binary)},
                {"id", agx_oci_name(c->id)},
                {"controller_url", agx_oci_word(c->controller_url)},
                {"pool", agx_oci_word(c->pool)},
                {"user", agx_oci_word(c->user)},
                {"image", agx_oci_word(c->image)},
                {"gpus", agx_oci_word(c->gpus)},
                {"cpu_cores", is_word_or_absent(c->cpu_cores)},
                {"memory_gb", is_word_or_absent(c->memory_gb)},
                {"isolation_policy", agx_oci_word(c->isolation_policy)},
                {"runtime_adapter", is_word_or_absent(c->runtime_adapter)},
                {"max_duration", agx_oci_word(c->max_duration)},
                {"bundle", is_path(c->bundle)},
                {"workspace_root", is_path(c->workspace_root)},
                {"meta", !c->meta.p || is_path(c->meta)},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                if (!rows[i].fine)
                        return rows[i].name;
        for (size_t i = 0; i < self->extra_binds.count; ++i)
                if (!agx_oci_word(agx_view_str(self->extra_binds.items[i])))
                        return "extra_binds";
        return NULL;
}

static int build(cape_sandbox *self, const agx_cape_config *config)
{
        _cleanup_(agx_buf_deinitp) agx_buf script = AGX_BUF_NULL(AGX_CAPE_SCRIPT_MAX);
        int r = copy_texts(self, config);

        r = r ? r : copy_vectors(self, config);
        r = r ? r : build_paths(self);
        r = r ? r : build_env(self);
        r = r ? r : agx_strv_end(&self->env);
        r = r ? r : agx_cape_script(&script, &self->config);
        if (r)
                return r < 0 ? r : -ENOMEM;
        self->files[1] = (agx_wish_file){self->meta_environ, 0600, agx_buf_view(&self->environ_file)};
        self->script = strdup((const char *)agx_buf_view(&script).p);
        return self->script ? 0 : -ENOMEM;
}

int agx_cape_sandbox_new(agx_brain **brain, const agx_cape_config *config, const char **bad)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        cape_sandbox *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &sandbox_ops;
        made = &self->brain;
        self->pause_ms = AGX_CAPE_POLL_FIRST_MS;
        agx_buf_init(&self->environ_file, AGX_ENGINE_ENV_MAX);
        r = build(self, config);
        if (r)
                return agx_trace(r);
        *bad = check(self);
        if (*bad)
                return AGX_CAPE_E_SETTING;
        r = begin(self, STATE_RUN);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
