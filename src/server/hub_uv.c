/*
 * Gathering output for a host is put off to the end of the turn: the bytes at hand may lie in the loop's one read buffer.
 */
#include "server/hub_uv.h"
#include "server/logtext.h"
#include "server/tunnel_uv.h"

#include <pwd.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { ODD_TOLD = 20, CONTEXT_MAX = 4096, NAME_MAX_ = 256 };

static double wall_clock(void)
{
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- the context of records ---- */

static void fill_names(agx_log_names *names, char host[NAME_MAX_], const agx_worker *w)
{
        const struct passwd *user = getpwuid(geteuid());

        if (gethostname(host, NAME_MAX_))
                host[0] = '\0';
        host[NAME_MAX_ - 1] = '\0';
        *names = (agx_log_names){.uname = agx_view_str(user ? user->pw_name : ""),
                                 .hostname = agx_view_str(host),
                                 .id = agx_view_str(w->id),
                                 .pid = (long)w->child.pid};
}

static agx_view context_of(agx_server *s, const agx_worker *w)
{
        char host[NAME_MAX_];
        agx_log_names names;
        int r;

        if (s->log_context_of == w->number && s->log_context.len)
                return agx_buf_view(&s->log_context);
        agx_buf_clear(&s->log_context);
        s->log_context_of = w->number;
        if (s->config->log_context) {
                fill_names(&names, host, w);
                r = agx_log_expand(&s->log_context, agx_view_str(s->config->log_context), &names);
        } else {
                r = agx_buf_printf(&s->log_context, "sandbox-%.8s-worker-%s", s->instance, w->id);
        }
        return r ? AGX_VIEW("sandbox-worker-") : agx_buf_view(&s->log_context);
}

/* ---- records and lines ---- */

static void append(agx_server *s, const agx_log_line *line)
{
        agx_buf_clear(&s->log_item);
        if (agx_log_put_record(&s->log_item, line))
                agx_buf_clear(&s->log_item);
        agx_hub_append(&s->hub, AGX_HUB_LOG, agx_buf_view(&s->log_item));
        agx_server_wake(s);
}

static void keep_line(agx_server *s, const char *worker_id, const agx_log_line *line)
{
        agx_buf *out = agx_logfiles_out(&s->logfiles, worker_id);
        size_t before = out ? out->len : 0;

        if (out && agx_log_put_line(out, line))
                agx_buf_truncate(out, before);
}

static void keep_record(agx_server *s, const char *worker_id, agx_view record)
{
        agx_buf *out = agx_logfiles_out(&s->logfiles, worker_id);
        size_t before = out ? out->len : 0;

        if (out && agx_log_put_record_lines(out, record))
                agx_buf_truncate(out, before);
}

void agx_side_line(agx_server *s, const agx_worker *w, int fd, const agx_output_line *line)
{
        agx_log_line l = {.created = wall_clock(),
                          .fd = fd,
                          .text = line->text,
                          .worker_id = agx_view_str(w->id),
                          .context = context_of(s, w)};

        keep_line(s, w->id, &l);
        append(s, &l);
}

/* Words of the server's own, for people at both ends. */
static void tell(agx_server *s, const char *words)
{
        char context[64];
        int n = snprintf(context, sizeof(context), "sandbox-%.8s", s->instance);

        agx_server_note(s, "%s", words);
        append(s, &(agx_log_line){.created = wall_clock(),
                                  .text = agx_view_str(words),
                                  .context = agx_view_of(context, (size_t)n)});
}

/* ---- frames ---- */

static void feed(agx_server *s, uint64_t worker, const agx_frame *frame)
{
        agx_worker *w = agx_supervisor_uv_find(&s->supervisor, worker);

        if (!w)
                return;
        if (agx_stream_queued(&w->channel) > AGX_HUB_INBOUND_BYTES ||
            agx_frame_put(agx_stream_out(&w->channel), frame)) {
                if (s->odd_told++ < ODD_TOLD)
                        tell(s, "an event for the worker was dropped: it takes them too slowly");
                return;
        }
        agx_stream_touch(&w->channel);
}

void agx_side_frame(agx_server *s, uint64_t worker, const agx_frame *frame)
{
        const agx_worker *w = agx_supervisor_uv_find(&s->supervisor, worker);
        const char *odd;
        agx_frame held;

        if (agx_hub_frame(&s->hub, worker, frame, &odd))
                odd = "an event for which there was no memory";
        if (odd && s->odd_told++ < ODD_TOLD)
                agx_server_note(s, "the worker sent %s; it was passed over", odd);
        if (!odd && w && frame->kind == AGX_FRAME_SIO_EMIT && agx_view_eq(frame->namespace_, AGX_VIEW("/log")))
                keep_record(s, w->id, frame->data);
        if (frame->kind == AGX_FRAME_SIO_OPEN)
                while (agx_hub_next_held(&s->hub, worker, &held))
                        feed(s, worker, &held);
        agx_side_mind(s);
}

void agx_side_worker_ready(agx_server *s, uint64_t worker)
{
        if (s->hub.stopped)
                feed(s, worker, &(agx_frame){.kind = AGX_FRAME_SIO_FLOW, .n = 0});
}

/* ---- hosts ---- */

int agx_side_event(agx_server *s, agx_hub_port *port, agx_view nsp, agx_view name, agx_view payload)
{
        agx_frame frame = {.kind = AGX_FRAME_SIO_INBOUND, .namespace_ = nsp, .event = name, .data = payload};
        agx_hub_outcome outcome;
        int r = agx_hub_take(port, nsp, name, payload, &outcome);

        if (r)
                return r;
        switch (outcome.todo) {
        case AGX_HUB_TODO_NOTHING:
                break;
        case AGX_HUB_TODO_SEND:
                for (size_t i = 0; i < outcome.n_workers; i++)
                        feed(s, outcome.workers[i], &frame);
                break;
        case AGX_HUB_TODO_FLUSH:
                agx_loop_flush_later(&s->loop, &s->flushing);
                break;
        case AGX_HUB_TODO_TUNNEL:
                r = agx_tunnel_uv_event(s, port, name, payload);
                break;
        case AGX_HUB_TODO_NOTE:
                if (s->odd_told++ < ODD_TOLD)
                        agx_server_note(s, "an event of a host was passed over: %s", outcome.why);
                break;
        }
        agx_side_mind(s);
        return r;
}

static void on_flushing(agx_flush *f)
{
        agx_server *s = agx_container_of(f, agx_server, flushing);

        agx_supervisor_uv_flush(&s->supervisor);
        agx_hub_flushed(&s->hub);
        agx_server_wake(s);
}

/* ---- the state of things ---- */

static void say_trouble(agx_server *s)
{
        char words[256];

        snprintf(words, sizeof(words), "%s: %s (%s); it is tried again", s->logfiles.trouble, s->config->log_dir,
                 strerrordesc_np(s->logfiles.error));
        s->logfiles.trouble = NULL;
        tell(s, words);
}

void agx_side_mind(agx_server *s)
{
        const char *warning = s->hub.warning;
        agx_worker *w = NULL;
        bool go;

        if (agx_hub_flow(&s->hub, &go))
                while ((w = agx_supervisor_uv_each(&s->supervisor, w)))
                        feed(s, w->number, &(agx_frame){.kind = AGX_FRAME_SIO_FLOW, .n = go});
        s->hub.warning = NULL;
        if (warning)
                tell(s, warning);
        if (s->logfiles.trouble)
                say_trouble(s);
        agx_server_wake(s);
}

void agx_side_init(agx_server *s, const uint8_t seed[16])
{
        const size_t items[AGX_HUB_STREAMS] = {s->config->log_items, s->config->trace_items};

        agx_hub_init(&s->hub, seed, s->site.instance, items);
        agx_logfiles_init(&s->logfiles, &s->loop, s->config->log_dir);
        s->log_item = AGX_BUF_NULL(AGX_STREAM_ITEM_MAX);
        s->log_context = AGX_BUF_NULL(CONTEXT_MAX);
        agx_flush_init(&s->flushing, on_flushing);
}

void agx_side_deinit(agx_server *s)
{
        if (s->flushing.flush)
                agx_flush_cancel(&s->flushing);
        agx_hub_deinit(&s->hub);
        agx_buf_deinit(&s->log_item);
        agx_buf_deinit(&s->log_context);
}
