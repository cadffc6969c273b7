/*
 * A request goes to the host as soon as its head is there, with as much of its body as came along: a small request is one
 * event. An answer that begins before the request has ended ends the connection, since the rest of the request would
 * have to be read for nobody.
 */
#include "server/tunnel_conn.h"
#include "base/err.h"
#include "wire/json.h"

#include <stdio.h>

static const agx_view json_type = {"application/json", 16};

int agx_tunnel_conn_init(agx_tunnel_conn *c, const agx_tunnel *t, agx_buf *out, uint64_t now)
{
        static const agx_http1_bounds bounds = {.head_max = AGX_HTTP_HEAD_MAX,
                                                .headers_max = AGX_HTTP_HEADERS_MAX,
                                                .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                                .trailer_max = AGX_HTTP_TRAILER_MAX,
                                                .body_max = UINT64_MAX / 2};

        *c = (agx_tunnel_conn){.tunnel = t,
                               .out = out,
                               .gathered = AGX_BUF_NULL(AGX_TUNNEL_CHUNK),
                               .deadline = now + AGX_HTTP_FIRST_MS};
        return agx_http1_new(&c->parser, AGX_HTTP1_SERVER, &bounds);
}

void agx_tunnel_conn_deinit(agx_tunnel_conn *c)
{
        agx_http1_free(c->parser);
        c->parser = NULL;
        agx_buf_deinit(&c->gathered);
}

/* ---- time ---- */

void agx_tunnel_conn_moved(agx_tunnel_conn *c, uint64_t now, bool full)
{
        uint64_t window = c->tunnel->window_ms;

        c->full = full;
        if (!agx_tunnel_conn_busy(c))
                return;
        if (c->state == AGX_TUNNEL_CONN_ASKING && !full && window > AGX_TUNNEL_BODY_MS)
                window = AGX_TUNNEL_BODY_MS;
        c->deadline = now + window;
}

/* ---- writing ---- */

static int put_connection(agx_tunnel_conn *c)
{
        if (c->close)
                return agx_http1_put_field(c->out, AGX_VIEW("Connection"), AGX_VIEW("close"));
        if (c->keep)
                return agx_http1_put_field(c->out, AGX_VIEW("Connection"), AGX_VIEW("keep-alive"));
        return 0;
}

/* The reply is written: what comes next on this connection. */
static void answered(agx_tunnel_conn *c, uint64_t now)
{
        bool complete = c->state == AGX_TUNNEL_CONN_ASKED;

        c->state = c->close || !complete ? AGX_TUNNEL_CONN_CLOSING : AGX_TUNNEL_CONN_IDLE;
        c->replying = false;
        c->deadline = now + AGX_HTTP_IDLE_MS;
}

/* Fields that belong to one connection, and those that are set here. */
static bool is_ours(agx_view name)
{
        static const agx_view names[] = {
                {"connection", 10}, {"keep-alive", 10}, {"transfer-encoding", 17}, {"content-length", 14}, {"te", 2},
                {"trailer", 7},     {"upgrade", 7},     {"proxy-connection", 16}};

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); ++i)
                if (agx_view_ieq(names[i], name))
                        return true;
        return false;
}

static bool is_token(agx_view name)
{
        for (size_t i = 0; i < name.n; ++i) {
                unsigned char ch = (unsigned char)name.p[i];

                if (ch <= ' ' || ch >= 0x7f || memchr("\"(),/:;<=>?@[\\]{}", ch, 17))
                        return false;
        }
        return name.n > 0;
}

static int put_headers(agx_tunnel_conn *c, const agx_tunnel_reply *reply)
{
        agx_view rest = reply->headers, name, value;
        int r = 0;

        while ((!r || r == -EINVAL) && agx_tunnel_next_header(&rest, &name, &value))
                if (is_token(name) && !is_ours(name) &&
                    !(reply->media_type.n && agx_view_ieq(name, AGX_VIEW("content-type"))))
                        r = agx_http1_put_field(c->out, name, value); /* one with an end of line in it is left out */
        return r == -EINVAL ? 0 : r;
}

static int put_framing(agx_tunnel_conn *c, const agx_tunnel_reply *reply, bool whole)
{
        bool never = reply->status == 204 || reply->status == 304;

        c->bodiless = c->head_only || never;
        c->chunked = !whole && !c->bodiless && c->http11;
        c->close |= !whole && !c->bodiless && !c->http11;
        if (c->chunked)
                return agx_http1_put_field(c->out, AGX_VIEW("Transfer-Encoding"), AGX_VIEW("chunked"));
        return whole && !never ? agx_http1_put_length(c->out, reply->body.n) : 0;
}

static int put_head(agx_tunnel_conn *c, const agx_tunnel_reply *reply, bool whole)
{
        int r = agx_http1_put_status(c->out, reply->status);

        c->close |= c->state != AGX_TUNNEL_CONN_ASKED; /* the request goes on */
        if (!r && reply->media_type.n)
                r = agx_http1_put_field(c->out, AGX_VIEW("Content-Type"), reply->media_type);
        if (r == -EINVAL)
                r = 0;
        if (!r)
                r = put_headers(c, reply);
        if (!r)
                r = put_framing(c, reply, whole);
        if (!r)
                r = put_connection(c);
        return r ? r : agx_http1_put_end(c->out);
}

int agx_tunnel_conn_reply(agx_tunnel_conn *c, uint64_t now, const agx_tunnel_reply *reply, bool whole)
{
        int r = put_head(c, reply, whole);

        if (!r && whole && !c->bodiless)
                r = agx_buf_append_view(c->out, reply->body);
        c->replying = true;
        if (whole)
                answered(c, now);
        else
                agx_tunnel_conn_moved(c, now, c->full);
        return r;
}

int agx_tunnel_conn_piece(agx_tunnel_conn *c, uint64_t now, agx_view body, bool last)
{
        int r = 0;

        if (body.n && c->chunked)
                r = agx_buf_printf(c->out, "%zx\r\n", body.n);
        if (!r && body.n && !c->bodiless)
                r = agx_buf_append_view(c->out, body);
        if (!r && body.n && c->chunked)
                r = agx_buf_append_view(c->out, AGX_VIEW("\r\n"));
        if (!r && last && c->chunked)
                r = agx_buf_append_view(c->out, AGX_VIEW("0\r\n\r\n"));
        if (last)
                answered(c, now);
        else
                agx_tunnel_conn_moved(c, now, c->full);
        return r;
}

/* ---- errors ---- */

static agx_view type_of(unsigned status)
{
        switch (status) {
        case 401:
                return AGX_VIEW("authentication_error");
        case 403:
                return AGX_VIEW("permission_error");
        case 404:
                return AGX_VIEW("not_found_error");
        case 413:
                return AGX_VIEW("request_too_large");
        case 429:
                return AGX_VIEW("rate_limit_error");
        case 504:
                return AGX_VIEW("timeout_error");
        case 529:
                return AGX_VIEW("overloaded_error");
        default:
                return status < 500 ? AGX_VIEW("invalid_request_error") : AGX_VIEW("api_error");
        }
}

static int put_error_text(agx_buf *out, unsigned status, agx_view type, agx_view message)
{
        agx_json_writer w = agx_json_writer_on(out);

        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("type"));
        agx_json_put_string(&w, AGX_VIEW("error"));
        agx_json_put_key(&w, AGX_VIEW("error"));
        agx_json_put_object(&w);
        agx_json_put_key(&w, AGX_VIEW("type"));
        agx_json_put_string(&w, type.n ? type : type_of(status));
        agx_json_put_key(&w, AGX_VIEW("message"));
        agx_json_put_string(&w, message);
        agx_json_put_object_end(&w);
        agx_json_put_object_end(&w);
        return agx_json_writer_end(&w);
}

static int put_error(agx_tunnel_conn *c, uint64_t now, const agx_tunnel_reply *reply)
{
        _cleanup_(agx_buf_deinit) agx_buf text = AGX_BUF_NULL(AGX_EVENT_MAX * 2);
        agx_tunnel_reply whole = {.status = reply->status, .media_type = json_type, .headers = reply->headers};
        int r = put_error_text(&text, reply->status, reply->error_type, reply->body);

        if (r)
                return r;
        whole.body = agx_buf_view(&text);
        return agx_tunnel_conn_reply(c, now, &whole, true);
}

int agx_tunnel_conn_error(agx_tunnel_conn *c, uint64_t now, const agx_tunnel_reply *reply)
{
        if (!c->replying)
                return put_error(c, now, reply);
        c->state = AGX_TUNNEL_CONN_CLOSING;
        return 0;
}

/* Of the tunnel's own: of a request that no host sees. */
static int refuse(agx_tunnel_conn *c, uint64_t now, unsigned status, const char *why)
{
        return put_error(c, now, &(agx_tunnel_reply){.status = status, .body = agx_view_str(why)});
}

static int refuse_and_close(agx_tunnel_conn *c, uint64_t now, unsigned status, const char *why)
{
        int r = 0;

        c->close = true;
        if (!c->replying)
                r = refuse(c, now, status, why);
        c->state = AGX_TUNNEL_CONN_CLOSING;
        return r;
}

int agx_tunnel_conn_tick(agx_tunnel_conn *c, uint64_t now)
{
        switch (c->state) {
        case AGX_TUNNEL_CONN_HEAD:
                return refuse_and_close(c, now, 408, "the request came too slowly");
        case AGX_TUNNEL_CONN_ASKING:
                if (!c->full && c->tunnel->window_ms > AGX_TUNNEL_BODY_MS)
                        return refuse_and_close(c, now, 408, "the request came too slowly");
                return refuse_and_close(c, now, 504, "the host has not answered in time");
        case AGX_TUNNEL_CONN_ASKED:
                if (!c->replying)
                        return refuse(c, now, 504, "the host has not answered in time");
                c->state = AGX_TUNNEL_CONN_CLOSING;
                return 0;
        default:
                c->state = AGX_TUNNEL_CONN_CLOSING;
                return 0;
        }
}

/* ---- requests ---- */

static int put_health(agx_tunnel_conn *c, uint64_t now)
{
        return agx_tunnel_conn_reply(
                c, now,
                &(agx_tunnel_reply){.status = 200, .media_type = json_type, .body = AGX_VIEW("{\"status\":\"ok\"}")},
                true);
}

/* Splits "/path?query", or the same behind "http://host". */
static agx_view path_of(agx_view target, agx_view *query)
{
        agx_view scheme = AGX_VIEW("http://"), path;
        const char *slash;

        if (agx_view_ieq(agx_view_first(target, scheme.n), scheme)) {
                target = agx_view_from(target, scheme.n);
                slash = target.n ? memchr(target.p, '/', target.n) : NULL;
                target = slash ? agx_view_from(target, (size_t)(slash - target.p)) : AGX_VIEW("/");
        }
        agx_view_split(&target, '?', &path);
        *query = target.p ? target : AGX_VIEW("");
        return path;
}

static bool from_web_page(const agx_http1_head *head)
{
        for (size_t i = 0; i < head->n_fields; ++i)
                if (agx_view_ieq(head->fields[i].name, AGX_VIEW("origin")) ||
                    agx_view_ieq(head->fields[i].name, AGX_VIEW("sec-fetch-site")))
                        return true;
        return false;
}

static bool expects_else(const agx_http1_head *head)
{
        bool repeated;
        agx_view expect = agx_http1_field_get(head, AGX_VIEW("Expect"), &repeated);

        return repeated || (expect.p && head->http11 && !head->expect_continue);
}

static bool has_body(const agx_http1_head *head)
{
        return head->chunked || (head->has_length && head->length);
}

/* Answers a request that the host does not see; the state is that of a complete one while it is written. */
static int answer_here(agx_tunnel_conn *c, uint64_t now, unsigned status, const char *why)
{
        const agx_http1_head *head = c->head;
        bool drop = !head->chunked && !head->expect_continue && head->length <= AGX_HTTP_DROP;
        int r;

        c->close |= has_body(head) && !drop;
        c->state = AGX_TUNNEL_CONN_ASKED;
        r = status == 200 ? put_health(c, now) : refuse(c, now, status, why);
        if (c->state == AGX_TUNNEL_CONN_IDLE)
                c->state = AGX_TUNNEL_CONN_DROP; /* up to the END at least */
        return r;
}

static int on_head(agx_tunnel_conn *c, uint64_t now, const agx_http1_head *head)
{
        agx_view path = path_of(head->target, &c->query);

        c->head = head;
        c->head_only = agx_view_eq(head->method, AGX_VIEW("HEAD"));
        c->close = !head->keep_alive || head->upgrade;
        c->http11 = head->http11;
        c->keep = !head->http11 && head->keep_alive;
        c->replying = c->full = false;
        if (from_web_page(head))
                return answer_here(c, now, 403, "requests of web pages are not answered here");
        if (expects_else(head))
                return answer_here(c, now, 417, "only the expectation 100-continue is known");
        if (agx_view_eq(path, AGX_VIEW("/_health")) && (c->head_only || agx_view_eq(head->method, AGX_VIEW("GET"))))
                return answer_here(c, now, 200, NULL);
        c->path = agx_tunnel_path(c->tunnel, path);
        if (!c->path.p)
                return answer_here(c, now, 404, "there is no handler for this path");
        agx_buf_clear(&c->gathered);
        c->state = AGX_TUNNEL_CONN_GATHER;
        return head->expect_continue && has_body(head)
                       ? agx_buf_append_view(c->out, AGX_VIEW("HTTP/1.1 100 Continue\r\n\r\n"))
                       : 0;
}

static void ask(agx_tunnel_conn *c, uint64_t now, agx_tunnel_conn_event *event, bool last)
{
        *event = (agx_tunnel_conn_event){.kind = AGX_TUNNEL_CONN_ASK,
                                         .head = c->head,
                                         .path = c->path,
                                         .query = c->query,
                                         .body = agx_buf_view(&c->gathered),
                                         .last = last};
        c->state = last ? AGX_TUNNEL_CONN_ASKED : AGX_TUNNEL_CONN_ASKING;
        agx_tunnel_conn_moved(c, now, false);
}

static int on_bad(agx_tunnel_conn *c, uint64_t now, int error)
{
        static const unsigned statuses[] = {[AGX_HTTP1_E_BAD] = 400,
                                            [AGX_HTTP1_E_HEAD_SIZE] = 431,
                                            [AGX_HTTP1_E_BODY_SIZE] = 413,
                                            [AGX_HTTP1_E_VERSION] = 505};

        if (c->state == AGX_TUNNEL_CONN_IDLE || c->state == AGX_TUNNEL_CONN_HEAD)
                c->head_only = c->keep = c->replying = false;
        if (c->state == AGX_TUNNEL_CONN_DROP) {
                c->state = AGX_TUNNEL_CONN_CLOSING;
                return 0;
        }
        return refuse_and_close(c, now, statuses[error], agx_http1_reason(c->parser));
}

/* A piece of the body, or its end, by state. True: the event is for the shell. */
static bool on_body(agx_tunnel_conn *c, uint64_t now, agx_view body, bool last, agx_tunnel_conn_event *event)
{
        switch (c->state) {
        case AGX_TUNNEL_CONN_GATHER:
                if (last) {
                        ask(c, now, event, true);
                        return true;
                }
                if (c->gathered.len <= AGX_TUNNEL_CHUNK - AGX_TUNNEL_READ)
                        return false;
                ask(c, now, event, false); /* another piece might not go along any more */
                return true;
        case AGX_TUNNEL_CONN_ASKING:
                c->state = last ? AGX_TUNNEL_CONN_ASKED : AGX_TUNNEL_CONN_ASKING;
                *event = (agx_tunnel_conn_event){.kind = AGX_TUNNEL_CONN_BODY, .body = body, .last = last};
                agx_tunnel_conn_moved(c, now, false);
                return true;
        case AGX_TUNNEL_CONN_DROP:
                if (last)
                        c->state = AGX_TUNNEL_CONN_IDLE;
                return false;
        default:
                return false;
        }
}

static bool stopped(const agx_tunnel_conn *c, agx_tunnel_conn_event *event)
{
        if (c->state == AGX_TUNNEL_CONN_CLOSING)
                event->kind = AGX_TUNNEL_CONN_CLOSE;
        else if (c->state == AGX_TUNNEL_CONN_ASKED)
                event->kind = AGX_TUNNEL_CONN_WAIT;
        else
                return false;
        return true;
}

/* One event of the parser, out of a bounded piece of the input: no body it gives is larger. */
static int parse(agx_tunnel_conn *c, uint64_t now, agx_view *in, agx_http1_event *e)
{
        agx_view piece = agx_view_first(*in, AGX_TUNNEL_READ);
        size_t n = piece.n;
        int r;

        if (c->state == AGX_TUNNEL_CONN_IDLE && n) {
                c->state = AGX_TUNNEL_CONN_HEAD;
                c->deadline = now + AGX_HTTP_HEAD_MS;
        }
        r = agx_http1_next(c->parser, &piece, e);
        *in = agx_view_from(*in, n - piece.n);
        return r;
}

/* `*given`: the event is for the shell. */
static int on_event(agx_tunnel_conn *c, uint64_t now, const agx_http1_event *e, agx_tunnel_conn_event *event,
                    bool *given)
{
        int r = 0;

        switch (e->kind) {
        case AGX_HTTP1_MORE:
                return 0;
        case AGX_HTTP1_HEAD:
                return on_head(c, now, e->head);
        case AGX_HTTP1_BODY:
                if (c->state == AGX_TUNNEL_CONN_GATHER)
                        r = agx_buf_append_view(&c->gathered, e->body);
                *given = !r && on_body(c, now, e->body, false, event);
                return r;
        case AGX_HTTP1_END:
                *given = on_body(c, now, AGX_VIEW(""), true, event);
                return 0;
        }
        return 0;
}

int agx_tunnel_conn_next(agx_tunnel_conn *c, uint64_t now, agx_view *in, agx_tunnel_conn_event *event)
{
        agx_http1_event e;
        bool given = false;
        int r = 0;

        *event = (agx_tunnel_conn_event){.kind = AGX_TUNNEL_CONN_MORE};
        while (!r && !given && !stopped(c, event)) {
                r = parse(c, now, in, &e);
                if (!r && e.kind == AGX_HTTP1_MORE && !in->n) {
                        if (c->state == AGX_TUNNEL_CONN_GATHER)
                                ask(c, now, event, false);
                        return 0;
                }
                r = r > 0 ? on_bad(c, now, r) : r ? r : on_event(c, now, &e, event, &given);
        }
        return agx_trace(r);
}
