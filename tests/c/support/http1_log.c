/* A loop around agx_http1_next() that writes down what it sees. Failures of the log itself end the process: a test
 * without its log is no test. */
#include "support/http1_log.h"
#include "base/err.h"
#include "base/map.h"
#include "support/guard.h"

#include <stdlib.h>

enum { BODY_SHOWN = 64 };

const agx_http1_bounds agx_http1_test_bounds = {
        .head_max = 32 << 10,
        .headers_max = 100,
        .chunk_line_max = 4 << 10,
        .trailer_max = 8 << 10,
        .body_max = 1 << 20,
};

typedef struct logger {
        const agx_http1_feed *feed;
        agx_buf *log;
        agx_buf body;
        bool in_body;
        bool failed;
} logger;

static void must(int r)
{
        if (r)
                abort();
}

static void say(logger *l, agx_view text)
{
        must(agx_buf_append_view(l->log, text));
}

/* Bytes that are not visible ASCII as \xNN; so are the log's own brackets. */
static void say_escaped(logger *l, agx_view text)
{
        for (size_t i = 0; i < text.n; ++i) {
                char c = text.p[i];

                if (c >= ' ' && c < 0x7f && !strchr("{}[]\\", c))
                        must(agx_buf_append(l->log, &c, 1));
                else
                        must(agx_buf_printf(l->log, "\\x%02x", (unsigned char)c));
        }
}

static void end_body(logger *l)
{
        agx_view body = agx_buf_view(&l->body);

        if (!l->in_body)
                return;
        l->in_body = false;
        say(l, AGX_VIEW("["));
        if (body.n <= BODY_SHOWN)
                say_escaped(l, body);
        else
                must(agx_buf_printf(l->log, "#%zu:%08x", body.n,
                                    (unsigned)agx_siphash((const uint64_t[2]){1, 2}, body)));
        say(l, AGX_VIEW("]"));
        agx_buf_clear(&l->body);
}

static void say_fields(logger *l, const agx_http1_head *head)
{
        say(l, AGX_VIEW(" "));
        for (size_t i = 0; i < head->n_fields; ++i) {
                say_escaped(l, head->fields[i].name);
                say(l, AGX_VIEW("="));
                say_escaped(l, head->fields[i].value);
                say(l, AGX_VIEW("|"));
        }
}

static void say_head(logger *l, const agx_http1_head *head)
{
        say(l, AGX_VIEW("{"));
        if (l->feed->role == AGX_HTTP1_SERVER) {
                say_escaped(l, head->method);
                say(l, AGX_VIEW(" "));
                say_escaped(l, head->target);
        } else {
                must(agx_buf_printf(l->log, "%u", head->status));
        }
        if (!head->http11)
                say(l, AGX_VIEW(" 1.0"));
        if (!head->keep_alive)
                say(l, AGX_VIEW(" close"));
        if (head->expect_continue)
                say(l, AGX_VIEW(" expect"));
        if (head->upgrade)
                say(l, AGX_VIEW(" upgrade"));
        if (l->feed->fields)
                say_fields(l, head);
        say(l, AGX_VIEW("}"));
}

static void say_error(logger *l, int error)
{
        static const char *const texts[] = {
                [AGX_HTTP1_E_BAD] = "!400",
                [AGX_HTTP1_E_HEAD_SIZE] = "!431",
                [AGX_HTTP1_E_BODY_SIZE] = "!413",
                [AGX_HTTP1_E_VERSION] = "!505",
        };

        l->failed = true;
        end_body(l);
        say(l, agx_view_str(error == -ENOMEM ? "!mem" : error > 0 ? texts[error] : "!?"));
}

/* True as long as there may be more events in the same input. */
static bool say_event(logger *l, const agx_http1_event *event)
{
        if (event->kind == AGX_HTTP1_MORE)
                return false;
        if (event->kind == AGX_HTTP1_BODY) {
                if (!event->body.n)
                        say(l, AGX_VIEW("(an empty body event)"));
                l->in_body = true;
                must(agx_buf_append_view(&l->body, event->body));
                return true;
        }
        end_body(l);
        if (event->kind == AGX_HTTP1_HEAD)
                say_head(l, event->head);
        else
                say(l, AGX_VIEW("."));
        return true;
}

static void feed_piece(logger *l, agx_http1 *parser, agx_view in)
{
        agx_http1_event event;
        int r;

        do {
                if (l->feed->no_body)
                        agx_http1_expect_no_body(parser);
                r = agx_http1_next(parser, &in, &event);
                if (r)
                        say_error(l, r);
        } while (!r && say_event(l, &event));
        if (!r && in.n)
                say(l, AGX_VIEW("(input left over)"));
}

static void feed_eof(logger *l, agx_http1 *parser)
{
        agx_http1_event event;
        int r = agx_http1_eof(parser, &event);

        if (r) {
                end_body(l);
                say(l, AGX_VIEW("!eof"));
        } else {
                say_event(l, &event);
        }
}

void agx_http1_log(agx_buf *log, const agx_http1_feed *feed, agx_view data, size_t first, size_t step)
{
        logger l = {.feed = feed, .log = log, .body = AGX_BUF_NULL(SIZE_MAX)};
        _cleanup_(agx_http1_freep) agx_http1 *parser = NULL;
        uint8_t *arena = agx_guard_new(data.p, data.n);
        char *end = (char *)arena + data.n;
        size_t piece = first, last = 0;
        int r = agx_http1_new(&parser, feed->role, &feed->bounds);

        if (!arena)
                abort();
        if (r)
                say_error(&l, r);
        for (size_t at = 0; at < data.n && !l.failed; at += piece, last = piece, piece = step) {
                if (piece > data.n - at)
                        piece = data.n - at;
                memset(end - last, 0xaa, last);
                memcpy(end - piece, data.p + at, piece);
                feed_piece(&l, parser, agx_view_of(end - piece, piece));
        }
        if (!l.failed)
                feed_eof(&l, parser);
        agx_buf_deinit(&l.body);
        agx_guard_free(arena, data.n);
}
