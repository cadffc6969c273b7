/*
 * Start: token, calls, listener, worker, then the ready line. The worker is spawned before the line is written, so that its
 * interpreter boots while the host connects. SIGUSR1 asks for a line about the tables on standard error.
 *
 * End: whatever the reason, the same steps. No new connections and no new calls; the worker is asked to stop, then made
 * to; its calls end and are answered; then the loop stops, what the worker left behind is killed, and the process exits.
 */
#include "server/server_uv.h"
#include "base/cleanup.h"
#include "io/reaper.h"
#include "proto/limits.h"
#include "server/http_uv.h"
#include "server/hub_uv.h"
#include "server/sio_uv.h"
#include "server/tunnel_uv.h"

#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

static const agx_fault gone = {.type = {"WorkerDied", 10}, .message = {"the server is shutting down", 27}};

enum { LAST_WORDS_MS = 200, REST_MS = 1000, LARGE_BYTES = 64 << 10, ODD_FRAMES_TOLD = 20, ID_TOLD = 80 };

void agx_server_note(agx_server *s, const char *format, ...)
{
        char text[512];
        va_list ap;
        int n;

        va_start(ap, format);
        n = vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        if (n > 0)
                agx_relay_line(&s->log, AGX_VIEW("agentix-runtime: "),
                               agx_view_of(text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1));
}

/* ---- calls ---- */

bool agx_server_worker(agx_server *s, agx_calls_worker *worker)
{
        agx_worker *w = agx_supervisor_uv_ready(&s->supervisor);

        if (!w)
                return false;
        *worker = (agx_calls_worker){w->number, agx_stream_out(&w->channel), agx_stream_queued(&w->channel),
                                     w->reads_pieces ? &w->bulk : NULL};
        return true;
}

/* While large values come their memory is kept for the next ones (base/buf.h). At rest all goes back: the allocator, too, keeps
 * some, and would not see by itself, between many small pieces, that it is all free. */
static void on_rest(agx_deadline *d)
{
        (void)d;
        agx_buf_keep(0);
#ifdef __GLIBC__
        malloc_trim(0);
#endif
}

static void note_large(agx_server *s, size_t n)
{
        if (n < LARGE_BYTES)
                return;
        agx_buf_keep(AGX_SERVER_SPARE_BYTES);
        agx_deadline_set(&s->rest, agx_loop_now(&s->loop) + REST_MS);
}

void agx_server_worker_fed(agx_server *s)
{
        agx_worker *w = agx_supervisor_uv_ready(&s->supervisor);

        if (!w)
                return;
        note_large(s, agx_stream_queued(&w->channel) + agx_bulk_bytes(&w->bulk));
        w->worked = true;
        agx_worker_touch(w);
}

/* Hosts choose ids, and lines of a log are read on terminals. */
static void note_eviction(agx_server *s, uint64_t evicted)
{
        agx_view id = agx_view_first(agx_ledger_last_evicted(s->calls.ledger), ID_TOLD);
        uint64_t now = agx_loop_now(&s->loop);
        char text[ID_TOLD + 1] = "";

        if (now < s->eviction_note_ms)
                return;
        for (size_t i = 0; i < id.n; i++)
                text[i] = id.p[i] > ' ' && id.p[i] < 0x7f ? id.p[i] : '?';
        agx_server_note(s, "results that nobody acknowledged are dropped, the oldest first: %s%s (%" PRIu64 " so far)",
                        text, id.n == ID_TOLD ? "..." : "", evicted);
        s->evicted_told = evicted;
        s->eviction_note_ms = now + AGX_EVICTION_NOTE_MS;
}

void agx_server_ledger_touched(agx_server *s)
{
        agx_ledger_counts counts = agx_ledger_count(s->calls.ledger);

        if (s->ledger_tick.at == UINT64_MAX && counts.retained)
                agx_deadline_set(&s->ledger_tick, agx_loop_now(&s->loop) + AGX_LEDGER_INLINE_MS);
        if (counts.evicted != s->evicted_told)
                note_eviction(s, counts.evicted);
}

static void on_ledger_tick(agx_deadline *d)
{
        agx_server *s = agx_container_of(d, agx_server, ledger_tick);

        agx_deadline_set(d, agx_ledger_tick(s->calls.ledger, agx_loop_now(&s->loop)));
}

void agx_server_wake(agx_server *s)
{
        if (!agx_list_empty(&s->rpc.due) || !agx_list_empty(&s->hub.due))
                agx_loop_flush_later(&s->loop, &s->links);
}

static void let_links_speak(agx_flush *f)
{
        agx_server *s = agx_container_of(f, agx_server, links);
        agx_rpc_link *link;
        agx_hub_port *port;

        while ((link = agx_rpc_due(&s->rpc)))
                s->speak(link);
        while ((port = agx_hub_due(&s->hub)))
                s->speak_aside(port);
        agx_server_ledger_touched(s);
}

void agx_server_deliver(agx_server *s, agx_call *call)
{
        agx_waiter *waiter = call->waiter ? call->waiter : &s->rpc.waiter;

        waiter->deliver(waiter, call);
        agx_server_wake(s);
        agx_server_ledger_touched(s);
}

/* ---- events ---- */

static void on_worker_unavailable(void *user, const agx_fault *fault)
{
        agx_server *s = user;
        agx_call *call;

        while ((call = agx_calls_unavailable(&s->calls, fault)))
                agx_server_deliver(s, call);
}

/* Calls wait for a worker; at the end there will be none. */
static void want_worker(agx_server *s)
{
        if (s->site.draining)
                on_worker_unavailable(s, &gone);
        else
                agx_supervisor_uv_wanted(&s->supervisor);
}

static void pass_cancel_on(agx_server *s, const agx_call *call)
{
        agx_worker *w = agx_supervisor_uv_find(&s->supervisor, call->worker);

        if (w && !agx_calls_put_cancel(agx_worker_out_behind(w, agx_call_id(call)), call))
                agx_worker_touch(w);
        agx_procs_call_over(&s->procs, agx_call_id(call), true);
        agx_deadline_set(&s->graces, agx_calls_deadline(&s->calls));
}

static void pass_credit_on(agx_server *s, const agx_call *call, uint64_t n)
{
        agx_worker *w = agx_supervisor_uv_find(&s->supervisor, call->worker);

        if (w && !agx_calls_put_credit(agx_worker_out_behind(w, agx_call_id(call)), call, n))
                agx_worker_touch(w);
}

static void on_graces(agx_deadline *d)
{
        agx_server *s = agx_container_of(d, agx_server, graces);
        uint64_t worker;

        while ((worker = agx_calls_overdue(&s->calls, agx_loop_now(&s->loop)))) {
                agx_calls_load load = agx_calls_load_of(&s->calls, worker);

                agx_supervisor_uv_retire(&s->supervisor, worker, load.running, load.overdue);
        }
        agx_deadline_set(d, agx_calls_deadline(&s->calls));
}

int agx_server_event(agx_server *s, agx_rpc_link *link, agx_view name, agx_view payload)
{
        agx_calls_worker worker;
        bool ready = agx_server_worker(s, &worker);
        agx_rpc_outcome outcome;
        int r = agx_rpc_take(link, name, payload, agx_loop_now(&s->loop), ready ? &worker : NULL, &outcome);

        if (r)
                return r;
        switch (outcome.todo) {
        case AGX_RPC_TODO_NOTHING:
                break;
        case AGX_RPC_TODO_SEND:
                agx_server_worker_fed(s);
                break;
        case AGX_RPC_TODO_WORKER:
                want_worker(s);
                break;
        case AGX_RPC_TODO_CANCEL:
                pass_cancel_on(s, outcome.call);
                break;
        case AGX_RPC_TODO_CREDIT:
                pass_credit_on(s, outcome.call, outcome.credit);
                break;
        case AGX_RPC_TODO_DELIVER:
                agx_server_deliver(s, outcome.call);
                break;
        case AGX_RPC_TODO_NOTE:
                if (s->odd_told++ < ODD_FRAMES_TOLD)
                        agx_server_note(s, "an event of a host was passed over: %s", outcome.why);
                break;
        }
        agx_server_wake(s);
        agx_server_ledger_touched(s);
        return 0;
}

/* ---- workers ---- */

static void start_held(void *user)
{
        agx_server *s = user;
        agx_calls_worker worker;
        agx_call *call;

        if (!agx_calls_any_held(&s->calls) || !agx_server_worker(s, &worker))
                return;
        while ((call = agx_calls_start_held(&s->calls, &worker)))
                agx_server_deliver(s, call);
        agx_server_worker_fed(s);
}

static void on_worker_ready(void *user, uint64_t number)
{
        agx_side_worker_ready(user, number);
        start_held(user);
}

static void note_odd_frame(agx_server *s, const char *odd)
{
        if (odd && s->odd_told++ < ODD_FRAMES_TOLD)
                agx_server_note(s, "the worker sent %s; it was skipped", odd);
}

static void end_call(agx_server *s, uint64_t number, agx_call *call)
{
        agx_calls_load load;

        agx_procs_call_over(&s->procs, agx_call_id(call), false);
        agx_server_deliver(s, call);
        load = agx_calls_load_of(&s->calls, number);
        agx_supervisor_uv_load(&s->supervisor, number, load.running, load.overdue);
}

static void on_worker_item(agx_server *s, uint64_t number, const agx_frame *frame)
{
        const char *odd;
        bool ended;
        agx_call *call = agx_calls_item(&s->calls, number, frame, &ended, &odd);

        if (!call) {
                note_odd_frame(s, odd);
                return;
        }
        if (ended) {
                pass_cancel_on(s, call);
                end_call(s, number, call);
        } else {
                agx_rpc_streams(&s->rpc, call);
                agx_server_wake(s);
        }
}

static void on_worker_frame(void *user, uint64_t number, const agx_frame *frame)
{
        agx_server *s = user;
        const char *odd;
        agx_call *call;

        note_large(s, frame->value.n);
        if (frame->kind == AGX_FRAME_ITEM) {
                on_worker_item(s, number, frame);
                return;
        }
        if (frame->kind == AGX_FRAME_SIO_OPEN || frame->kind == AGX_FRAME_SIO_EMIT) {
                agx_side_frame(s, number, frame);
                return;
        }
        if (agx_procs_takes(frame)) {
                agx_procs_frame(&s->procs, number, frame,
                                frame->call_id.p && agx_calls_runs(&s->calls, number, frame->call_id));
                return;
        }
        call = agx_calls_frame(&s->calls, number, frame, &odd);
        if (call)
                end_call(s, number, call);
        else
                note_odd_frame(s, odd);
}

static void on_worker_died(void *user, uint64_t number, const agx_fault *fault)
{
        agx_server *s = user;
        agx_call *call;

        agx_procs_worker_died(&s->procs, number);
        while ((call = agx_calls_worker_died(&s->calls, number, fault)))
                agx_server_deliver(s, call);
        agx_hub_worker_died(&s->hub, number);
}

static void on_worker_line(void *user, const agx_worker *worker, int fd, const agx_output_line *line)
{
        agx_side_line(user, worker, fd, line);
}

static void on_worker_note(void *user, agx_view line)
{
        agx_server *s = user;

        agx_relay_line(&s->log, AGX_VIEW("agentix-runtime: "), line);
}

/* ---- the end ---- */

static void stop_if_quiet(agx_server *s)
{
        if (s->supervisor_stopped && !s->n_connections)
                agx_loop_stop(&s->loop);
}

static void drain_connections(agx_server *s)
{
        agx_list_foreach_safe(node, &s->connections)
        {
                agx_http_drain(agx_container_of(node, agx_http, node));
        }
}

static void on_worker_stopped(void *user)
{
        agx_server *s = user;

        s->supervisor_stopped = true;
        agx_sio_drain(s);
        drain_connections(s);
        agx_deadline_set(&s->drain, agx_loop_now(&s->loop) + LAST_WORDS_MS);
        stop_if_quiet(s);
}

static void on_drain_over(agx_deadline *d)
{
        agx_loop_stop(&agx_container_of(d, agx_server, drain)->loop);
}

static void stop(agx_server *s, const char *why)
{
        if (s->site.draining)
                return;
        s->site.draining = true;
        agx_server_note(s, "stopping: %s", why);
        agx_listener_close(&s->listener);
        agx_deadline_set(&s->drain, agx_loop_now(&s->loop) + AGX_SERVER_DRAIN_MS - AGX_SERVER_KILL_MS);
        on_worker_unavailable(s, &gone);
        drain_connections(s);
        agx_procs_end(&s->procs);
        agx_supervisor_uv_stop(&s->supervisor);
}

/* How full the tables are, for whoever may send this process a signal. */
static void say_state(agx_server *s)
{
        agx_ledger_counts n = agx_ledger_count(s->calls.ledger);

        agx_server_note(s,
                        "state: calls: %zu open, %zu bytes held for a worker, %zu retained with %zu bytes, %" PRIu64
                        " dropped; sessions: %zu; connections: %zu",
                        n.open, s->calls.held_bytes, n.retained, n.retained_bytes, n.evicted, n.sessions,
                        s->n_connections);
}

static void on_signal(uv_signal_t *handle, int number)
{
        if (number == SIGUSR1)
                say_state(handle->data);
        else
                stop(handle->data, number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP");
}

static void on_lease_over(agx_deadline *d)
{
        stop(agx_container_of(d, agx_server, lease), "the lease is over");
}

static void on_lifeline_data(agx_stream *stream, agx_view in)
{
        (void)stream;
        (void)in;
}

static void on_lifeline_ended(agx_stream *stream, int error)
{
        (void)error;
        stop(agx_container_of(stream, agx_server, lifeline), "the host is gone");
}

static void on_lifeline_closed(agx_stream *stream)
{
        (void)stream;
}

/* ---- connections ---- */

static bool on_incoming(agx_listener *listener)
{
        agx_server *s = agx_container_of(listener, agx_server, listener);

        if (s->n_connections >= AGX_MAX_CONNECTIONS)
                return false;
        return !agx_http_accept(s, &listener->uv.stream, listener->tcp);
}

void agx_server_authorized(agx_server *s, int change)
{
        s->n_authorized += (size_t)change;
        if (s->config->lease_ms != UINT64_MAX)
                agx_deadline_set(&s->lease,
                                 s->n_authorized ? UINT64_MAX : agx_loop_now(&s->loop) + s->config->lease_ms);
}

void agx_server_connection_closed(agx_server *s)
{
        s->n_connections--;
        agx_listener_resume(&s->listener);
        stop_if_quiet(s);
}

/* ---- the beginning ---- */

static int failed(const agx_config *config, const char *what, int error)
{
        const char *why = error < 0 ? strerrordesc_np(-error) : "unusable";

        fprintf(stderr, "agentix-runtime: error: %s: %s\n", what, why);
        if (config->ready_fd >= 0)
                dprintf(config->ready_fd, "failed %s: %s\n", what, why);
        return -1;
}

static int read_token(agx_auth *auth, const char *path)
{
        char text[AGX_TOKEN_MAX + 64];
        _cleanup_(agx_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        size_t n = 0;
        ssize_t got;
        int r;

        if (fd < 0)
                return -errno;
        do {
                got = read(fd, text + n, sizeof(text) - n);
                n += got > 0 ? (size_t)got : 0;
        } while (got > 0 && n < sizeof(text));
        r = got < 0 ? -errno : agx_auth_set_token(auth, agx_view_of(text, n));
        explicit_bzero(text, sizeof(text));
        return r;
}

static int init_auth(agx_server *s)
{
        const agx_config *c = s->config;
        int r = c->token_file ? read_token(&s->site.auth, c->token_file) : 0;

        unsetenv("AGENTIX_TOKEN_FILE");
        if (r)
                return failed(c, "the token file", r);
        r = agx_auth_set_hosts(&s->site.auth, agx_view_str(c->allowed_hosts));
        if (r)
                return failed(c, "AGENTIX_ALLOWED_HOSTS", r);
        r = agx_auth_set_origins(&s->site.auth, agx_view_str(c->allowed_origins));
        return r ? failed(c, "AGENTIX_ALLOWED_ORIGINS", r) : 0;
}

static int init_random(agx_server *s)
{
        unsigned char raw[16], seed[16], links_seed[16];
        int r;

        if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw) ||
            getrandom(links_seed, sizeof(links_seed), 0) != (ssize_t)sizeof(links_seed) ||
            getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
                return failed(s->config, "random numbers", -errno);
        for (size_t i = 0; i < sizeof(raw); i++)
                snprintf(s->instance + 2 * i, 3, "%02x", raw[i]);
        s->site.instance = agx_view_str(s->instance);
        agx_rpc_init(&s->rpc, &s->calls, links_seed);
        agx_side_init(s, links_seed);
        agx_map_init(&s->sio_sessions, seed);
        r = agx_calls_init(&s->calls, seed);
        return r ? failed(s->config, "the table of calls", r) : 0;
}

static int listen_on(agx_server *s)
{
        const agx_config *c = s->config;
        /* With a token the socket may be open to other users: the host's and the box's may differ. */
        unsigned mode = agx_auth_has_token(&s->site.auth) ? 0666 : 0600;
        int r = c->bind_socket ? agx_listener_open_unix(&s->listener, &s->loop, c->bind_socket, mode, on_incoming)
                               : agx_listener_open_tcp(&s->listener, &s->loop, c->bind_host, c->bind_port, on_incoming);
        char what[256];

        if (!r)
                return 0;
        if (c->bind_socket)
                snprintf(what, sizeof(what), "cannot listen on %.200s", c->bind_socket);
        else
                snprintf(what, sizeof(what), "cannot listen on %.64s port %u", c->bind_host, c->bind_port);
        return failed(c, what, r);
}

static void watch_signals(agx_server *s)
{
        static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                uv_signal_init(&s->loop.uv, &s->signals[i]);
                s->signals[i].data = s;
                uv_signal_start(&s->signals[i], on_signal, numbers[i]);
        }
}

static int watch_lifeline(agx_server *s)
{
        static const agx_stream_ops ops = {.data = on_lifeline_data,
                                           .ended = on_lifeline_ended,
                                           .closed = on_lifeline_closed};
        int r;

        if (s->config->lifeline_fd < 0)
                return 0;
        agx_stream_init_pipe(&s->lifeline, &s->loop, 0, &ops);
        s->has_lifeline = true;
        r = agx_stream_open(&s->lifeline, s->config->lifeline_fd);
        if (!r)
                r = agx_stream_read(&s->lifeline);
        return r ? failed(s->config, "AGENTIX_LIFELINE_FD", r) : 0;
}

static void start_worker(agx_server *s, char *const *env)
{
        static const agx_supervisor_uv_ops ops = {.ready = on_worker_ready,
                                                  .drained = start_held,
                                                  .frame = on_worker_frame,
                                                  .died = on_worker_died,
                                                  .unavailable = on_worker_unavailable,
                                                  .stopped = on_worker_stopped,
                                                  .note = on_worker_note,
                                                  .line = on_worker_line};
        agx_worker_config config = {.python = s->config->python,
                                    .environ = env,
                                    .box_id = agx_view_of(s->instance, 8),
                                    .core_limit = s->config->core_limit,
                                    .nofile_limit = s->config->nofile_limit,
                                    .spares = s->config->spares > 0};

        agx_supervisor_uv_init(&s->supervisor, &s->loop, &s->log, &config, &ops, s);
        agx_procs_init(&s->procs, &s->loop, &s->supervisor, s->site.instance);
        agx_supervisor_uv_start(&s->supervisor);
}

static void say_ready(agx_server *s)
{
        int fd = s->config->ready_fd;

        agx_server_note(s, "%.*s listens on %s", (int)s->site.version.n, s->site.version.p, s->listener.url);
        if (fd < 0)
                return;
        dprintf(fd, "ready %s %s\n", s->listener.url, s->instance);
        close(fd);
}

static int start(agx_server *s, char *const *env)
{
        int r = init_auth(s);

        if (!r)
                r = init_random(s);
        if (!r)
                r = listen_on(s);
        if (!r)
                r = watch_lifeline(s);
        if (r)
                return r;
        r = agx_reaper_start(&s->loop);
        if (r)
                return failed(s->config, "the reaper", r);
        watch_signals(s);
        start_worker(s, env);
        agx_server_authorized(s, 0);
        say_ready(s);
        return 0;
}

static void close_all(agx_server *s, bool started)
{
        agx_listener_close(&s->listener);
        if (started) {
                agx_procs_close(&s->procs);
                agx_supervisor_uv_close(&s->supervisor);
                for (size_t i = 0; i < sizeof(s->signals) / sizeof(s->signals[0]); i++)
                        uv_close((uv_handle_t *)&s->signals[i], NULL);
                agx_reaper_stop();
        }
        agx_list_foreach_safe(node, &s->connections)
        {
                agx_http_close(agx_container_of(node, agx_http, node));
        }
        agx_tunnel_uv_close_all(s);
        agx_sio_close_all(s);
        agx_logfiles_close(&s->logfiles);
        if (s->has_lifeline)
                agx_stream_close(&s->lifeline);
        agx_deadline_close(&s->lease, NULL);
        agx_deadline_close(&s->ledger_tick, NULL);
        agx_deadline_close(&s->graces, NULL);
        agx_deadline_close(&s->drain, NULL);
        agx_deadline_close(&s->rest, NULL);
        agx_relay_close(&s->log);
}

/* The end is bounded: whoever asks for it again must not cut it short, or something would be left behind. */
static void hear_no_signals(void)
{
        sigset_t ends;

        sigemptyset(&ends);
        sigaddset(&ends, SIGTERM);
        sigaddset(&ends, SIGINT);
        sigaddset(&ends, SIGHUP);
        sigprocmask(SIG_BLOCK, &ends, NULL);
}

int agx_server_run(agx_server *s, const agx_config *config, char *const *env, const char *version)
{
        int r;

        *s = (agx_server){.config = config};
        agx_list_init(&s->connections);
        agx_auth_init(&s->site.auth);
        s->site.version = agx_view_str(version);
        s->gather.max = AGX_SERVER_GATHER_BYTES;
        s->site.gather = &s->gather;
        r = agx_loop_init(&s->loop);
        if (r)
                return failed(config, "the event loop", r);
        agx_relay_init(&s->log, &s->loop, STDERR_FILENO, AGX_RELAY_BYTES);
        agx_deadline_init(&s->lease, &s->loop, on_lease_over);
        agx_deadline_init(&s->ledger_tick, &s->loop, on_ledger_tick);
        agx_deadline_init(&s->graces, &s->loop, on_graces);
        agx_flush_init(&s->links, let_links_speak);
        s->speak = agx_sio_speak;
        s->speak_aside = agx_sio_speak_aside;
        agx_deadline_init(&s->drain, &s->loop, on_drain_over);
        agx_deadline_init(&s->rest, &s->loop, on_rest);
        r = start(s, env);
        if (!r)
                agx_loop_run(&s->loop);
        hear_no_signals();
        close_all(s, !r);
        agx_loop_deinit(&s->loop);
        if (!r)
                agx_reaper_kill_descendants(AGX_SERVER_KILL_MS);
        agx_procs_deinit(&s->procs);
        agx_rpc_deinit(&s->rpc);
        agx_side_deinit(s);
        agx_calls_deinit(&s->calls);
        agx_auth_deinit(&s->site.auth);
        return r;
}
