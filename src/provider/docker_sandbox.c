/*
 * One sandbox of a container engine, from `run` to `rm`.
 *
 * The engine's client only hands requests to a daemon, so a client that was killed may have left a container that comes
 * to life later. Hence a cancelled `run` is let go on to its end, which is near once the image is there; one that is
 * pulling is killed, since no container exists before the pull is over; and after any kill `rm` is said twice, with a
 * pause between. Whatever happens, the last wish before the end is `rm`, unless the name turned out to be another's.
 *
 * Readiness is what the runtime itself says to somebody who knows its token. Between such probes the container is looked
 * at, so that one that has ended is told at once, with its last output.
 */
#include "provider/docker.h"

#include "base/buf.h"
#include "base/err.h"
#include "oci/engine.h"
#include "oci/envfile.h"
#include "oci/labels.h"
#include "oci/run.h"
#include "oci/word.h"
#include "proto/limits.h"
#include "provider/process.h"
#include "provider/text.h"

#include <stdio.h>

enum state {
        STATE_RUN,
        STATE_RUNNING,
        STATE_ABANDONED, /* cancelled; the run may end by itself */
        STATE_PAUSE,     /* before another try */
        STATE_PROBE,
        STATE_LOOK,
        STATE_LOGS,
        STATE_LIVE,
        STATE_REMOVE,
        STATE_REMOVING,
        STATE_SETTLE, /* before the second rm */
        STATE_GONE,
        STATE_FAILED
};

typedef struct docker_sandbox {
        agx_brain brain;
        enum state state;
        enum state after; /* what follows the removal: RUN, GONE or FAILED */
        bool unsure;      /* a run was killed: its container may yet come */
        bool keep;        /* on FAILED: the directory stays, since the container may */
        unsigned retries;
        size_t port;          /* index into ports */
        uint64_t deadline_ms; /* 0: not yet set */
        bool probed;

        agx_docker_config config; /* views and vectors of it point into the copies below */
        agx_strv words;           /* the texts of `config` */
        agx_strv host_env, ports, cap_add, run_args, config_env, labels;
        agx_strv argv;
        agx_buf env_lines, env_rest;
        agx_wish_file files[2];
        agx_oci_run run;
        char *dir, *token_file, *env_file, *rest_file, *socket_dir;
        char *url;
        char *message;
        char *ended; /* how the container ended, while its output is fetched */
} docker_sandbox;

static docker_sandbox *self_of(agx_brain *brain)
{
        return (docker_sandbox *)(void *)brain;
}

static void sandbox_free(agx_brain *brain)
{
        docker_sandbox *self = self_of(brain);
        agx_strv *vectors[] = {&self->words,    &self->host_env,   &self->ports,  &self->cap_add,
                               &self->run_args, &self->config_env, &self->labels, &self->argv};
        char *texts[] = {self->dir,        self->token_file, self->env_file, self->rest_file,
                         self->socket_dir, self->url,        self->message,  self->ended};

        for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); ++i)
                agx_strv_deinit(vectors[i]);
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i)
                free(texts[i]);
        agx_buf_deinit(&self->env_lines);
        agx_buf_deinit(&self->env_rest);
        free(self);
}

static bool is_network(const docker_sandbox *self, const char *name)
{
        return agx_view_eq(self->config.network, agx_view_str(name));
}

/* ---- the environment in the container ---- */

static void add_user_env(agx_strv *env, const agx_strv *config_env)
{
        for (size_t i = 0; i < config_env->count; ++i) {
                agx_view rest = agx_view_str(config_env->items[i]), name;

                if (agx_view_split(&rest, '=', &name) && rest.p && !agx_process_owns(name))
                        agx_strv_set(env, name, rest);
        }
}

static void set_default(agx_strv *env, agx_view name, agx_view value)
{
        if (!agx_strv_get(env, name).p)
                agx_strv_set(env, name, value);
}

static bool is_loopback_name(agx_view host)
{
        return agx_view_starts(host, AGX_VIEW("127.")) || agx_view_eq(host, AGX_VIEW("::1"));
}

static bool is_wildcard(agx_view host)
{
        return !host.n || agx_view_eq(host, AGX_VIEW("0.0.0.0")) || agx_view_eq(host, AGX_VIEW("::"));
}

static void add_address(agx_strv *env, const docker_sandbox *self)
{
        agx_view host = self->config.publish_host;

        if (is_network(self, "none")) {
                agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_SOCKET"), AGX_VIEW(AGX_DOCKER_SOCKET_DIR "/s"));
        } else if (is_network(self, "host")) {
                set_default(env, AGX_VIEW("AGENTIX_BIND_HOST"), AGX_VIEW("127.0.0.1"));
        } else {
                set_default(env, AGX_VIEW("AGENTIX_BIND_HOST"), AGX_VIEW("0.0.0.0"));
                if (!is_wildcard(host) && !is_loopback_name(host))
                        set_default(env, AGX_VIEW("AGENTIX_ALLOWED_HOSTS"), host);
        }
        agx_strv_set(env, AGX_VIEW("AGENTIX_BIND_PORT"), agx_view_str(self->ports.items[self->port]));
}

/* The two files, for the port of this try. */
static int build_env(docker_sandbox *self)
{
        _cleanup_(agx_strv_deinitp) agx_strv env = AGX_STRV_NULL;
        int r;

        add_user_env(&env, &self->config_env);
        add_address(&env, self);
        agx_strv_set(&env, AGX_VIEW("AGENTIX_TOKEN_FILE"), AGX_VIEW(AGX_DOCKER_TOKEN));
        agx_process_set_lease(&env, self->config.lease_s);
        agx_buf_clear(&self->env_lines);
        agx_buf_clear(&self->env_rest);
        r = agx_strv_end(&env);
        r = r ? r : agx_oci_env_files(&env, &self->env_lines, &self->env_rest);
        if (!r && self->env_rest.len)
                r = agx_buf_printf(&self->env_lines, "AGENTIX_ENV_FILE=" AGX_DOCKER_ENV "\n");
        self->files[0] = (agx_wish_file){self->env_file, 0600, agx_buf_view(&self->env_lines)};
        self->files[1] = (agx_wish_file){self->rest_file, 0444, agx_buf_view(&self->env_rest)};
        return r > 0 ? agx_trace(-ENOMEM) : r;
}

/* ---- the address on the host ---- */

static agx_view url_host(const docker_sandbox *self)
{
        agx_view host = self->config.publish_host;

        if (is_network(self, "host"))
                host = agx_strv_get(&self->config_env, AGX_VIEW("AGENTIX_BIND_HOST"));
        return is_wildcard(host) ? AGX_VIEW("127.0.0.1") : host;
}

static int unix_url(const docker_sandbox *self, agx_buf *out)
{
        int r = agx_text_unix_url(out, self->socket_dir);

        return r ? r : agx_buf_printf(out, "%%2Fs");
}

static int build_url(docker_sandbox *self)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);
        agx_view host = url_host(self);
        bool v6 = memchr(host.p, ':', host.n) != NULL;
        int r;

        if (is_network(self, "none"))
                r = unix_url(self, &out);
        else
                r = agx_buf_printf(&out, v6 ? "http://[%.*s]:%s" : "http://%.*s:%s", (int)host.n, host.p,
                                   self->ports.items[self->port]);
        r = r ? r : agx_buf_append(&out, "", 1);
        free(self->url);
        self->url = r ? NULL : strdup((const char *)agx_buf_view(&out).p);
        return self->url ? 0 : agx_trace(-ENOMEM);
}

/* ---- wishes: one small function a state ---- */

static void wish_command(docker_sandbox *self, agx_wish *wish, uint64_t timeout_ms)
{
        wish->kind = AGX_WISH_RUN;
        wish->argv = &self->argv;
        wish->env = &self->host_env;
        wish->timeout_ms = timeout_ms;
}

static void wish_run(docker_sandbox *self, agx_wish *wish)
{
        wish_command(self, wish, AGX_ENGINE_RUN_MS);
        wish->files = self->files;
        wish->file_count = self->env_rest.len ? 2 : 1;
        self->state = STATE_RUNNING;
}

static void wish_here(docker_sandbox *self, agx_wish *wish, agx_wish_kind kind)
{
        wish->kind = kind;
        wish->url = self->url;
        wish->token_file = self->token_file;
}

static void wish_probe(docker_sandbox *self, agx_wish *wish)
{
        wish_here(self, wish, AGX_WISH_PROBE);
        wish->timeout_ms = self->probed ? AGX_ENGINE_PROBE_MS : AGX_ENGINE_PROBE_FIRST_MS;
        if (wish->timeout_ms > self->config.ready_ms)
                wish->timeout_ms = self->config.ready_ms;
        self->probed = true;
}

static void wish_end(docker_sandbox *self, agx_wish *wish)
{
        wish->kind = self->state == STATE_GONE ? AGX_WISH_GONE : AGX_WISH_FAILED;
        wish->path = self->keep ? NULL : self->dir;
        wish->message = self->message;
}

static void sandbox_next(agx_brain *brain, agx_wish *wish)
{
        docker_sandbox *self = self_of(brain);

        switch (self->state) {
        case STATE_RUN:
                wish_run(self, wish);
                break;
        case STATE_RUNNING:
                agx_wish_wait(wish, AGX_ENGINE_RUN_MS);
                break;
        case STATE_ABANDONED:
                agx_wish_wait(wish, AGX_ENGINE_ABANDON_MS);
                break;
        case STATE_PAUSE:
                agx_wish_wait(wish, (uint64_t)AGX_ENGINE_RETRY_MS << (self->retries - 1));
                break;
        case STATE_PROBE:
                wish_probe(self, wish);
                break;
        case STATE_LOOK:
        case STATE_LOGS:
                wish_command(self, wish, AGX_ENGINE_ASK_MS);
                break;
        case STATE_LIVE:
                wish_here(self, wish, AGX_WISH_DONE);
                break;
        case STATE_REMOVE:
                wish_command(self, wish, AGX_ENGINE_REMOVE_MS);
                self->state = STATE_REMOVING;
                break;
        case STATE_REMOVING:
                agx_wish_wait(wish, AGX_ENGINE_REMOVE_MS);
                break;
        case STATE_SETTLE:
                agx_wish_wait(wish, AGX_ENGINE_SETTLE_MS);
                break;
        default:
                wish_end(self, wish);
        }
}

/* ---- steps ---- */

static const char starting[] = "starting the sandbox";
static const char removing[] = "removing the sandbox";

static int begin(docker_sandbox *self, enum state state)
{
        agx_strv_deinit(&self->argv);
        self->state = state;
        if (state == STATE_RUN)
                agx_oci_run_argv(&self->argv, &self->run);
        else if (state == STATE_LOOK)
                agx_oci_look_argv(&self->argv, self->config.engine, self->config.id);
        else if (state == STATE_LOGS)
                agx_oci_logs_argv(&self->argv, self->config.engine, self->config.id);
        else
                agx_oci_remove_argv(&self->argv, self->config.engine, self->config.id);
        return agx_strv_end(&self->argv) ? agx_trace(-ENOMEM) : 0;
}

static int begin_run(docker_sandbox *self)
{
        uint64_t port = 0;
        int r;

        agx_view_u64(agx_view_str(self->ports.items[self->port]), 65535, &port);
        self->run.port = is_network(self, "none") || is_network(self, "host") ? 0 : (unsigned)port;
        r = build_env(self);
        r = r ? r : build_url(self);
        self->run.mount_count = 2 + (self->env_rest.len ? 1 : 0) + (is_network(self, "none") ? 1 : 0);
        return r ? r : begin(self, STATE_RUN);
}

static int begin_removal(docker_sandbox *self, enum state after)
{
        self->after = after;
        return begin(self, STATE_REMOVE);
}

static int fail_and_remove(docker_sandbox *self, const char *what, agx_view detail)
{
        int r = begin_removal(self, STATE_FAILED);

        return r ? r : agx_text_failure(&self->message, starting, what, detail);
}

static int fail_at_once(docker_sandbox *self, const char *what, agx_view detail)
{
        self->state = STATE_FAILED;
        return agx_text_failure(&self->message, starting, what, detail);
}

/* ---- events, by state ---- */

static int run_failed(docker_sandbox *self, const agx_event *event)
{
        agx_oci_trouble trouble = agx_oci_trouble_of(event->text);
        char what[128], cause[64];

        if (trouble == AGX_OCI_TROUBLE_TRANSIENT && self->retries < AGX_ENGINE_RETRIES) {
                ++self->retries;
                self->state = STATE_PAUSE;
                return 0;
        }
        if (trouble == AGX_OCI_TROUBLE_PORT && self->port + 1 < self->ports.count) {
                ++self->port;
                return begin_removal(self, STATE_RUN);
        }
        agx_text_exit(cause, sizeof(cause), event->code);
        snprintf(what, sizeof(what), "the engine's run ended with %s", cause);
        if (trouble == AGX_OCI_TROUBLE_NAME || trouble == AGX_OCI_TROUBLE_NO_DAEMON)
                return fail_at_once(self, what, event->text);
        return fail_and_remove(self, what, event->text);
}

static int cancel_run(docker_sandbox *self, const agx_event *event)
{
        int r = agx_text_failure(&self->message, starting, "cancelled", AGX_VIEW(""));

        if (r)
                return r;
        if (!agx_oci_is_pulling(event->text)) {
                self->state = STATE_ABANDONED;
                return 0;
        }
        self->unsure = true;
        return begin_removal(self, STATE_FAILED);
}

static int on_running(docker_sandbox *self, const agx_event *event)
{
        switch (event->kind) {
        case AGX_EVENT_EXITED:
                if (event->code)
                        return run_failed(self, event);
                self->deadline_ms = event->now_ms + self->config.ready_ms;
                self->state = STATE_PROBE;
                return 0;
        case AGX_EVENT_SPAWN_FAILED:
                return fail_at_once(self, "the engine's client could not be started", event->text);
        case AGX_EVENT_TIMER:
                self->unsure = true;
                return fail_and_remove(self, "the engine's run came to no end", event->text);
        case AGX_EVENT_CANCEL:
                return cancel_run(self, event);
        default:
                return 0;
        }
}

static int on_abandoned(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_TIMER)
                self->unsure = true;
        else if (event->kind != AGX_EVENT_EXITED)
                return 0;
        return begin_removal(self, STATE_FAILED);
}

static int on_pause(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_CANCEL)
                return fail_at_once(self, "cancelled", AGX_VIEW(""));
        return event->kind == AGX_EVENT_TIMER ? begin_run(self) : 0;
}

static int not_ready(docker_sandbox *self)
{
        char what[96];

        snprintf(what, sizeof(what), "the runtime was not ready after %.1f s", (double)self->config.ready_ms / 1000);
        free(self->ended);
        self->ended = strdup(what);
        return self->ended ? begin(self, STATE_LOGS) : agx_trace(-ENOMEM);
}

static int on_probe(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_CANCEL)
                return fail_and_remove(self, "cancelled", AGX_VIEW(""));
        if (event->kind == AGX_EVENT_READY)
                self->state = STATE_LIVE;
        return event->kind == AGX_EVENT_TIMER ? begin(self, STATE_LOOK) : 0;
}

static bool may_still_start(const agx_oci_state *state)
{
        return state->running || agx_view_eq(state->status, AGX_VIEW("created")) ||
               agx_view_eq(state->status, AGX_VIEW("restarting")) ||
               agx_view_eq(state->status, AGX_VIEW("initialized"));
}

static int on_look(docker_sandbox *self, const agx_event *event)
{
        agx_oci_state state;
        char what[128];

        if (event->kind == AGX_EVENT_CANCEL)
                return fail_and_remove(self, "cancelled", AGX_VIEW(""));
        if (agx_oci_state_read(event->text, &state) && !may_still_start(&state)) {
                snprintf(what, sizeof(what), "the container ended with exit code %d%s before its runtime was ready",
                         state.code, state.oom_killed ? " (out of memory)" : "");
                free(self->ended);
                self->ended = strdup(what);
                return self->ended ? begin(self, STATE_LOGS) : agx_trace(-ENOMEM);
        }
        if (event->kind == AGX_EVENT_EXITED && event->code &&
            agx_oci_trouble_of(event->text) == AGX_OCI_TROUBLE_NO_CONTAINER)
                return fail_at_once(self, "the container was removed before its runtime was ready", AGX_VIEW(""));
        if (event->now_ms >= self->deadline_ms)
                return not_ready(self);
        self->state = STATE_PROBE;
        return 0;
}

static int on_logs(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_CANCEL)
                return fail_and_remove(self, "cancelled", AGX_VIEW(""));
        return fail_and_remove(self, self->ended, event->text);
}

static int on_live(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_DELETE)
                return begin_removal(self, STATE_GONE);
        return event->kind == AGX_EVENT_CANCEL ? fail_and_remove(self, "cancelled", AGX_VIEW("")) : 0;
}

static int removal_failed(docker_sandbox *self, const agx_event *event)
{
        char what[160], cause[64];

        self->state = STATE_FAILED;
        self->keep = true;
        if (event->kind == AGX_EVENT_EXITED)
                agx_text_exit(cause, sizeof(cause), event->code);
        else
                snprintf(cause, sizeof(cause), "%s",
                         event->kind == AGX_EVENT_TIMER ? "no answer in time" : "no client");
        snprintf(what, sizeof(what), "the engine's rm: %s; the container may still be there", cause);
        return agx_text_failure_more(&self->message, removing, what, event->text);
}

/* A cancellation that comes while a taken port is tidied up: no other one is tried. */
static int cancel_removing(docker_sandbox *self)
{
        if (self->after != STATE_RUN)
                return 0;
        self->after = STATE_FAILED;
        return agx_text_failure(&self->message, starting, "cancelled", AGX_VIEW(""));
}

static int on_removing(docker_sandbox *self, const agx_event *event)
{
        if (event->kind == AGX_EVENT_CANCEL)
                return cancel_removing(self);
        if (event->kind == AGX_EVENT_DELETE || event->kind == AGX_EVENT_READY)
                return 0;
        if (event->kind != AGX_EVENT_EXITED ||
            (event->code && agx_oci_trouble_of(event->text) != AGX_OCI_TROUBLE_NO_CONTAINER))
                return removal_failed(self, event);
        if (self->unsure) {
                self->unsure = false;
                self->state = STATE_SETTLE;
                return 0;
        }
        if (self->after == STATE_RUN)
                return begin_run(self);
        self->state = self->after;
        return 0;
}

static int sandbox_event(agx_brain *brain, const agx_event *event)
{
        docker_sandbox *self = self_of(brain);

        switch (self->state) {
        case STATE_RUN:
                return event->kind == AGX_EVENT_CANCEL ? fail_at_once(self, "cancelled", AGX_VIEW("")) : 0;
        case STATE_RUNNING:
                return on_running(self, event);
        case STATE_ABANDONED:
                return on_abandoned(self, event);
        case STATE_PAUSE:
                return on_pause(self, event);
        case STATE_PROBE:
                return on_probe(self, event);
        case STATE_LOOK:
                return on_look(self, event);
        case STATE_LOGS:
                return on_logs(self, event);
        case STATE_LIVE:
                return on_live(self, event);
        case STATE_REMOVING:
                return on_removing(self, event);
        case STATE_SETTLE:
                return event->kind == AGX_EVENT_TIMER ? begin(self, STATE_REMOVE) : 0;
        default:
                return 0;
        }
}

static const agx_brain_ops sandbox_ops = {"docker", sandbox_next, sandbox_event, sandbox_free};

/* ---- building ---- */

static int copy_texts(docker_sandbox *self, const agx_docker_config *config)
{
        agx_docker_config *c = &self->config;
        agx_view *texts[] = {&c->engine,       &c->id,   &c->dir,  &c->nix,    &c->image, &c->platform,  &c->network,
                             &c->publish_host, &c->pull, &c->cpus, &c->memory, &c->gpus,  &c->host_label};

        *c = *config;
        return agx_strv_keep(&self->words, texts, sizeof(texts) / sizeof(texts[0]));
}

static int copy_vectors(docker_sandbox *self, const agx_docker_config *config)
{
        agx_strv *copies[] = {&self->host_env, &self->ports, &self->cap_add, &self->run_args, &self->config_env};
        const agx_strv *given[] = {config->host_env, config->ports, config->cap_add, config->run_args,
                                   config->config_env};
        int r = 0;

        for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]) && !r; ++i) {
                agx_strv_add_all(copies[i], given[i]);
                r = agx_strv_end(copies[i]);
        }
        return r;
}

static int build_labels(docker_sandbox *self)
{
        char lease[32];

        snprintf(lease, sizeof(lease), "%.3f", self->config.lease_s > 0 ? self->config.lease_s : 0);
        agx_strv_set(&self->labels, AGX_VIEW(AGX_OCI_LABEL_SANDBOX), self->config.id);
        agx_strv_set(&self->labels, AGX_VIEW(AGX_OCI_LABEL_LEASE), agx_view_str(lease));
        agx_strv_set(&self->labels, AGX_VIEW(AGX_OCI_LABEL_HOST), self->config.host_label);
        return agx_strv_end(&self->labels);
}

static int build_paths(docker_sandbox *self)
{
        const struct {
                char **path;
                const char *name;
        } rows[] = {
                {&self->token_file, "/token"},  {&self->env_file, "/env"}, {&self->rest_file, "/environ"},
                {&self->socket_dir, "/socket"}, {&self->dir, ""},
        };

        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                if (asprintf(rows[i].path, "%.*s%s", (int)self->config.dir.n, self->config.dir.p, rows[i].name) < 0) {
                        *rows[i].path = NULL;
                        return -ENOMEM;
                }
        return 0;
}

/* The order of the mounts matters to begin_run(): those that may be left out come last. */
static void build_mounts(docker_sandbox *self)
{
        agx_oci_mount rest = {agx_view_str(self->rest_file), AGX_DOCKER_ENV, false};
        agx_oci_mount socket = {agx_view_str(self->socket_dir), AGX_DOCKER_SOCKET_DIR, true};

        self->run.mounts[0] = (agx_oci_mount){self->config.nix, "/nix", false};
        self->run.mounts[1] = (agx_oci_mount){agx_view_str(self->token_file), AGX_DOCKER_TOKEN, false};
        self->run.mounts[2] = is_network(self, "none") ? socket : rest;
        self->run.mounts[3] = rest;
}

static void build_run(docker_sandbox *self)
{
        const agx_docker_config *c = &self->config;

        self->run = (agx_oci_run){
                .engine = c->engine,
                .name = c->id,
                .image = c->image,
                .platform = c->platform,
                .entrypoint = AGX_DOCKER_BOOTSTRAP,
                .network = c->network,
                .publish_host = c->publish_host,
                .pull = c->pull,
                .cpus = c->cpus,
                .memory = c->memory,
                .gpus = c->gpus,
                .env_file = agx_view_str(self->env_file),
                .labels = &self->labels,
                .cap_add = &self->cap_add,
                .extra = &self->run_args,
                .pids_limit = c->pids_limit,
                .no_new_privileges = c->no_new_privileges,
                .read_only = c->read_only,
                .host_proxies = !agx_oci_is_podman(c->engine),
        };
        build_mounts(self);
        self->run.mount_count = AGX_OCI_MOUNTS_MAX;
}

/* The name of the first setting that is none, or NULL. */
static const char *check(const docker_sandbox *self)
{
        uint64_t port;

        if (!agx_oci_word(self->config.engine))
                return "engine";
        for (size_t i = 0; i < self->ports.count; ++i)
                if (!agx_view_u64(agx_view_str(self->ports.items[i]), 65535, &port) || !port)
                        return "port";
        if (!self->ports.count)
                return "port";
        for (size_t i = 0; i < self->config_env.count; ++i) {
                agx_view rest = agx_view_str(self->config_env.items[i]), name;

                if (!agx_view_split(&rest, '=', &name) || !rest.p || !agx_oci_variable(name))
                        return "env";
        }
        return agx_oci_run_check(&self->run);
}

int agx_docker_sandbox_new(agx_brain **brain, const agx_docker_config *config, const char **bad)
{
        _cleanup_(agx_brain_freep) agx_brain *made = NULL;
        docker_sandbox *self = calloc(1, sizeof(*self));
        int r;

        if (!self)
                return agx_trace(-ENOMEM);
        self->brain.ops = &sandbox_ops;
        made = &self->brain;
        agx_buf_init(&self->env_lines, AGX_ENGINE_ENV_MAX);
        agx_buf_init(&self->env_rest, AGX_ENGINE_ENV_MAX);
        r = copy_texts(self, config);
        r = r ? r : copy_vectors(self, config);
        r = r ? r : build_labels(self);
        r = r ? r : build_paths(self);
        if (r)
                return agx_trace(r);
        build_run(self);
        *bad = check(self);
        if (*bad)
                return AGX_DOCKER_E_SETTING;
        r = begin_run(self);
        if (r)
                return agx_trace(r);
        *brain = made;
        made = NULL;
        return 0;
}
