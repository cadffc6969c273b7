/*
 * A request is judged when its head is there, before any of its body: framing and size by the parser, then Origin, token, Host,
 * route, method, content type. A refusal is written at once. Whether the connection can go on after it depends on how
 * much body would have to be read for nothing.
 *
 * A body that arrives in one read is used where it lies. A large one is read straight into its own buffer, if the shell
 * asks for a place.
 */
#include "server/conn.h"
#include "base/err.h"
#include "proto/fast.h"
#include "proto/limits.h"
#include "proto/proof.h"
#include "server/answer.h"
#include "server/sessions.h"
#include "wire/base64url.h"
#include "wire/prefer.h"

#include <stdio.h>

enum { SMALL_OUT = 4096, PLACE_BYTES = 1 << 20, WAIT_DEFAULT_MS = 1000, BODY_KEEP = 4096 };

#define TYPE_JSON AGX_VIEW("application/json")
#define TYPE_MSGPACK AGX_VIEW("application/msgpack")
#define TYPE_TEXT AGX_VIEW("text/plain; charset=utf-8")

static void give_back(agx_conn *c)
{
        if (c->site)
                agx_gather_give(c->site->gather, c->gathered);
        c->gathered = 0;
}

int agx_conn_init(agx_conn *c, const agx_site *site, agx_buf *out, uint64_t now)
{
        static const agx_http1_bounds bounds = {.head_max = AGX_HTTP_HEAD_MAX,
                                                .headers_max = AGX_HTTP_HEADERS_MAX,
                                                .chunk_line_max = AGX_HTTP_CHUNK_LINE_MAX,
                                                .trailer_max = AGX_HTTP_TRAILER_MAX,
                                                .body_max = AGX_MAX_MESSAGE};

        *c = (agx_conn){.site = site,
                        .out = out,
                        .body = AGX_BUF_NULL(AGX_MAX_MESSAGE),
                        .scratch = AGX_BUF_NULL(AGX_MAX_FAULT_MESSAGE + AGX_MAX_FAULT_TRACEBACK + SMALL_OUT),
                        .deadline = now + AGX_HTTP_FIRST_MS};
        return agx_http1_new(&c->parser, AGX_HTTP1_SERVER, &bounds);
}

void agx_conn_deinit(agx_conn *c)
{
        agx_http1_free(c->parser);
        c->parser = NULL;
        give_back(c);
        agx_buf_deinit(&c->body);
        agx_buf_deinit(&c->scratch);
}

/* ---- writing ---- */

static agx_mp_writer scratch_writer(agx_conn *c)
{
        agx_buf_clear(&c->scratch);
        return agx_mp_writer_on(&c->scratch);
}

static agx_answer answer_of(agx_conn *c, unsigned status, agx_view type, uint64_t length)
{
        c->close |= c->site->draining;
        return (agx_answer){
                .status = status, .type = type, .length = length, .close = c->close, .keep = c->keep && !c->close};
}

static int put_body(agx_conn *c, const agx_answer *a, agx_view body)
{
        int r = agx_answer_put(c->out, a);

        return r || c->head_only ? r : agx_buf_append_view(c->out, body);
}

static void drop_body(agx_conn *c)
{
        c->whole = AGX_VIEW_NULL;
        give_back(c);
        agx_buf_clear(&c->body);
        if (c->body.cap > BODY_KEEP)
                agx_buf_deinit(&c->body);
}

/* The answer is written: what comes next on this connection. */
static void answered(agx_conn *c, uint64_t now)
{
        c->served = true;
        c->session = AGX_VIEW_NULL;
        drop_body(c);
        c->state = c->close ? AGX_CONN_CLOSING : AGX_CONN_IDLE;
        c->deadline = now + AGX_HTTP_IDLE_MS;
}

/* A refusal in plain words. */
static int put_refusal(agx_conn *c, unsigned status, const char *words, agx_view allow)
{
        char text[160];
        int n = snprintf(text, sizeof(text), "%s\n", words ? words : agx_http1_phrase(status));
        agx_view body = agx_view_of(text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
        agx_answer a = answer_of(c, status, TYPE_TEXT, body.n);

        a.allow = allow;
        return put_body(c, &a, body);
}

static int refuse_and_close(agx_conn *c, unsigned status, const char *words)
{
        c->close = true;
        c->state = AGX_CONN_CLOSING;
        return put_refusal(c, status, words, AGX_VIEW_NULL);
}

static int put_bad_request(agx_conn *c, const char *why)
{
        agx_mp_writer w = scratch_writer(c);
        agx_fault fault = {.type = agx_fault_type_text(AGX_FAULT_BAD_REQUEST), .message = agx_view_str(why)};
        agx_answer a;
        int r;

        agx_call_reply_put_fault(&w, &fault);
        r = agx_mp_writer_end(&w);
        if (r)
                return r;
        a = answer_of(c, 400, TYPE_MSGPACK, c->scratch.len);
        return put_body(c, &a, agx_buf_view(&c->scratch));
}

static int put_health(agx_conn *c)
{
        char text[256];
        int n = snprintf(text, sizeof(text), "{\"status\": \"ok\", \"version\": \"%.*s\", \"instance\": \"%.*s\"}",
                         (int)c->site->version.n, c->site->version.p, (int)c->site->instance.n, c->site->instance.p);
        agx_answer a = answer_of(c, 200, TYPE_JSON, (uint64_t)n);

        if (c->challenged)
                a.proof = agx_view_of(c->proof, AGX_PROOF_CHARS);
        if (c->ours)
                a.wires = AGX_VIEW(AGX_FAST_PROTOCOL);
        return put_body(c, &a, agx_view_of(text, (size_t)n));
}

/* ---- judging a head ---- */

static bool has_body(const agx_http1_head *head)
{
        return head->chunked || (head->has_length && head->length);
}

typedef struct verdict {
        unsigned status; /* 0: welcome */
        const char *words;
        agx_view allow;
} verdict;

static const struct {
        agx_view path;
        agx_view allow;
        agx_conn_route route;
        bool open; /* without a token too */
} routes[] = {
        {{"/health", 7}, {"GET, HEAD", 9}, AGX_ROUTE_HEALTH, true},
        {{"/call", 5}, {"POST", 4}, AGX_ROUTE_CALL, false},
        {{"/socket.io/", 11}, {"GET, POST", 9}, AGX_ROUTE_SIO, false},
        {{"/conduit", 8}, {"GET", 3}, AGX_ROUTE_CONDUIT, false},
        {{"/agentix", 8}, {"GET", 3}, AGX_ROUTE_FAST, false},
};

enum { N_ROUTES = sizeof(routes) / sizeof(routes[0]) };

/* Splits "http://host/path?query" or "/path?query". */
static agx_view path_of(agx_view target, agx_view *host)
{
        agx_view scheme = AGX_VIEW("http://"), path;
        const char *slash;

        if (agx_view_ieq(agx_view_first(target, scheme.n), scheme)) {
                target = agx_view_from(target, scheme.n);
                slash = target.n ? memchr(target.p, '/', target.n) : NULL;
                *host = slash ? agx_view_of(target.p, (size_t)(slash - target.p)) : target;
                target = slash ? agx_view_from(target, host->n) : AGX_VIEW("/");
        }
        return agx_view_split(&target, '?', &path) ? path : target;
}

static size_t route_of(agx_view path)
{
        size_t i = 0;

        while (i < N_ROUTES && !agx_view_eq(routes[i].path, path))
                i++;
        return i;
}

static bool method_allowed(size_t route, agx_view method)
{
        agx_view list = routes[route].allow, one;

        while (agx_view_split(&list, ',', &one))
                if (agx_view_eq(agx_view_trim(one), method))
                        return true;
        return false;
}

static bool session_ok(const agx_http1_head *head, agx_view *session)
{
        bool repeated;

        *session = agx_http1_field_get(head, AGX_VIEW("Agentix-Session"), &repeated);
        return !repeated && (!session->p || agx_sessions_name_ok(*session));
}

static bool is_msgpack(const agx_http1_head *head)
{
        agx_view value = agx_http1_field_get(head, AGX_VIEW("Content-Type"), NULL), type;

        return value.p && agx_view_split(&value, ';', &type) && agx_view_ieq(agx_view_trim(type), TYPE_MSGPACK);
}

static verdict judge_call(agx_conn *c, const agx_http1_head *head)
{
        agx_prefer prefer;

        if (!is_msgpack(head))
                return (verdict){415, "the content type must be application/msgpack", AGX_VIEW_NULL};
        if (!session_ok(head, &c->session))
                return (verdict){400, "a malformed Agentix-Session", AGX_VIEW_NULL};
        if (c->site->draining)
                return (verdict){503, "the server is shutting down", AGX_VIEW_NULL};
        prefer = agx_prefer_parse(agx_http1_field_get(head, AGX_VIEW("Prefer"), NULL), AGX_HTTP_WAIT_MAX_S * 1000ull);
        c->wait_ms = prefer.has_wait ? prefer.wait_ms : WAIT_DEFAULT_MS;
        return (verdict){0};
}

static verdict judge_health(agx_conn *c, const agx_http1_head *head)
{
        agx_view challenge = agx_http1_field_get(head, AGX_VIEW("Agentix-Challenge"), NULL);
        uint8_t nonce[AGX_NONCE_BYTES];

        if (challenge.p && !agx_base64url_decode(challenge, nonce, sizeof(nonce)))
                return (verdict){400, "a malformed Agentix-Challenge", AGX_VIEW_NULL};
        c->ours = challenge.p;
        c->challenged = challenge.p && agx_auth_has_token(&c->site->auth);
        if (c->challenged)
                agx_proof_make(agx_buf_view(&c->site->auth.token), nonce, c->site->instance, c->proof);
        return (verdict){0};
}

/* The value of a query's parameter; absent if there is none. */
static agx_view parameter(agx_view target, agx_view name)
{
        agx_view part, key;

        if (!agx_view_split(&target, '?', &part))
                return AGX_VIEW_NULL;
        while (agx_view_split(&target, '&', &part))
                if (agx_view_split(&part, '=', &key) && agx_view_eq(key, name))
                        return part.p ? part : AGX_VIEW("");
        return AGX_VIEW_NULL;
}

static verdict judge_upgrade(agx_conn *c, const agx_http1_head *head)
{
        if (agx_ws_check_request(head, NULL, 0, &c->upgrade))
                return (verdict){400, c->upgrade.reason, AGX_VIEW_NULL};
        return (verdict){0};
}

static verdict judge_fast(agx_conn *c, const agx_http1_head *head)
{
        static const agx_view ours[] = {{AGX_FAST_PROTOCOL, sizeof(AGX_FAST_PROTOCOL) - 1}};

        if (agx_ws_check_request(head, ours, 1, &c->upgrade))
                return (verdict){400, c->upgrade.reason, AGX_VIEW_NULL};
        if (!c->upgrade.protocol.p)
                return (verdict){400, "the subprotocol must be " AGX_FAST_PROTOCOL, AGX_VIEW_NULL};
        if (!session_ok(head, &c->session) || !c->session.p)
                return (verdict){400, "a missing or malformed Agentix-Session", AGX_VIEW_NULL};
        if (c->site->draining)
                return (verdict){503, "the server is shutting down", AGX_VIEW_NULL};
        return (verdict){0};
}

static verdict judge_sio(agx_conn *c, const agx_http1_head *head)
{
        agx_view transport = parameter(head->target, AGX_VIEW("transport"));

        c->sio = (agx_conn_sio){.sid = parameter(head->target, AGX_VIEW("sid")),
                                .websocket = agx_view_eq(transport, AGX_VIEW("websocket")),
                                .post = agx_view_eq(head->method, AGX_VIEW("POST"))};
        if (!agx_view_eq(parameter(head->target, AGX_VIEW("EIO")), AGX_VIEW("4")))
                return (verdict){400, "only EIO=4 is spoken here", AGX_VIEW_NULL};
        if (!c->sio.websocket && !agx_view_eq(transport, AGX_VIEW("polling")))
                return (verdict){400, "an unknown transport", AGX_VIEW_NULL};
        if (c->sio.post && !c->sio.sid.p)
                return (verdict){400, "a POST without a session", AGX_VIEW_NULL};
        if (c->site->draining && !c->sio.sid.p)
                return (verdict){503, "the server is shutting down", AGX_VIEW_NULL};
        return c->sio.websocket ? judge_upgrade(c, head) : (verdict){0};
}

static bool conduit_name_ok(agx_view name)
{
        if (name.n != AGX_CONDUIT_NAME)
                return false;
        for (size_t i = 0; i < name.n; i++)
                if (!(name.p[i] >= '0' && name.p[i] <= '9') && !(name.p[i] >= 'a' && name.p[i] <= 'f'))
                        return false;
        return true;
}

static verdict judge_conduit(agx_conn *c, const agx_http1_head *head)
{
        bool repeated;
        agx_view protocol = agx_http1_field_get(head, AGX_VIEW("Upgrade"), &repeated);

        c->conduit = parameter(head->target, AGX_VIEW("name"));
        if (!head->upgrade || repeated || !agx_view_ieq(agx_view_trim(protocol), AGX_VIEW("agentix-conduit")))
                return (verdict){400, "an Upgrade to agentix-conduit was expected", AGX_VIEW_NULL};
        if (!conduit_name_ok(c->conduit) || has_body(head))
                return (verdict){400, "a conduit has a name, and no body", AGX_VIEW_NULL};
        if (c->site->draining)
                return (verdict){503, "the server is shutting down", AGX_VIEW_NULL};
        return (verdict){0};
}

/* Whether the body of the request at hand is used; otherwise there should be none. */
static bool takes_body(const agx_conn *c)
{
        return c->route == AGX_ROUTE_CALL || (c->route == AGX_ROUTE_SIO && c->sio.post);
}

static verdict judge(agx_conn *c, const agx_http1_head *head)
{
        const agx_auth *auth = &c->site->auth;
        agx_view host = agx_http1_field_get(head, AGX_VIEW("Host"), NULL);
        agx_view path = path_of(head->target, &host);
        bool repeated, token = agx_auth_token_ok(auth, agx_http1_field_get(head, AGX_VIEW("Authorization"), NULL));
        agx_view origin = agx_http1_field_get(head, AGX_VIEW("Origin"), &repeated);
        size_t route = route_of(path);

        c->head_only = agx_view_eq(head->method, AGX_VIEW("HEAD"));
        c->authorized = false;
        if (repeated || (origin.p && !agx_auth_origin_ok(auth, origin)))
                return (verdict){403, "this Origin is not allowed", AGX_VIEW_NULL};
        if (!token && host.p && !agx_auth_host_ok(auth, host))
                return (verdict){403, "this Host is not allowed", AGX_VIEW_NULL};
        if (!token && agx_auth_has_token(auth) &&
            (route == N_ROUTES || !routes[route].open || !method_allowed(route, head->method)))
                return (verdict){401, "a token is needed", AGX_VIEW_NULL};
        c->authorized = token || !agx_auth_has_token(auth);
        if (route == N_ROUTES)
                return (verdict){404, NULL, AGX_VIEW_NULL};
        if (!method_allowed(route, head->method))
                return (verdict){405, NULL, routes[route].allow};
        c->route = routes[route].route;
        if (c->route == AGX_ROUTE_SIO)
                return judge_sio(c, head);
        if (c->route == AGX_ROUTE_CONDUIT)
                return judge_conduit(c, head);
        if (c->route == AGX_ROUTE_FAST)
                return judge_fast(c, head);
        return c->route == AGX_ROUTE_CALL ? judge_call(c, head) : judge_health(c, head);
}

static bool expects_else(const agx_http1_head *head)
{
        bool repeated;
        agx_view expect = agx_http1_field_get(head, AGX_VIEW("Expect"), &repeated);

        return repeated || (expect.p && head->http11 && !head->expect_continue);
}

/* ---- events ---- */

/* Whether the rest of a refused request is worth reading. */
static bool worth_reading(const agx_http1_head *head, unsigned status)
{
        return status != 401 && !head->expect_continue && !head->chunked &&
               (!head->has_length || head->length <= AGX_HTTP_DROP);
}

static int on_head(agx_conn *c, uint64_t now, const agx_http1_head *head)
{
        verdict v;

        c->close = !head->keep_alive || head->upgrade || c->site->draining;
        c->keep = !c->close && !head->http11;
        c->ours = c->challenged = c->crowded = false;
        c->body_since = now;
        c->body_got = 0;
        c->body_length = head->chunked ? 0 : head->length;
        v = judge(c, head);
        if (!v.status && expects_else(head))
                v = (verdict){417, NULL, AGX_VIEW_NULL};
        if (!v.status && !takes_body(c) && !worth_reading(head, 0))
                v = (verdict){413, NULL, AGX_VIEW_NULL};
        c->deadline = has_body(head) ? now + AGX_HTTP_BODY_GRACE_MS : c->deadline;
        if (!v.status) {
                c->state = AGX_CONN_BODY;
                return head->expect_continue && has_body(head)
                               ? agx_buf_append_view(c->out, AGX_VIEW("HTTP/1.1 100 Continue\r\n\r\n"))
                               : 0;
        }
        if (!worth_reading(head, v.status))
                c->close = true;
        c->state = c->close ? AGX_CONN_CLOSING : AGX_CONN_DROP;
        return put_refusal(c, v.status, v.words, v.allow);
}

static void count_body(agx_conn *c, size_t n)
{
        c->body_got += n;
        c->deadline = c->body_since + AGX_HTTP_BODY_GRACE_MS + c->body_got * 1000 / AGX_HTTP_BODY_RATE;
}

static bool has_room(agx_conn *c, size_t n)
{
        if (!c->crowded && !agx_gather_take(c->site->gather, n)) {
                c->crowded = true;
                drop_body(c);
        }
        c->gathered += c->crowded ? 0 : n;
        return !c->crowded;
}

static int on_body(agx_conn *c, agx_view part)
{
        count_body(c, part.n);
        if (c->state != AGX_CONN_BODY || !takes_body(c))
                return 0;
        if (!c->body.len && !c->crowded && part.n == c->body_length) {
                c->whole = part;
                return 0;
        }
        if (!has_room(c, part.n))
                return 0;
        if (agx_buf_ends_at(&c->body, part)) {
                agx_buf_commit(&c->body, part.n);
                return 0;
        }
        return agx_buf_append_view(&c->body, part);
}

static int ask(agx_conn *c, uint64_t deadline, agx_conn_wish what, agx_conn_wish *wish)
{
        c->state = AGX_CONN_ASKED;
        c->deadline = deadline;
        *wish = what;
        return 0;
}

/* Only a call can be told so in its own words. */
static int refuse_crowded(agx_conn *c, uint64_t now)
{
        agx_fault fault = agx_gather_fault(AGX_GATHER_FULL);

        return c->route == AGX_ROUTE_CALL
                       ? agx_conn_reply_fault(c, now, &fault)
                       : agx_conn_reply_refusal(c, now, 503, "too much comes to this server at once");
}

static int on_end(agx_conn *c, uint64_t now, agx_conn_wish *wish)
{
        agx_view body = c->whole.p ? c->whole : agx_buf_view(&c->body);
        const char *why;
        int r;

        if (c->state == AGX_CONN_BODY && c->crowded)
                return refuse_crowded(c, now);
        if (c->state == AGX_CONN_BODY && c->route == AGX_ROUTE_SIO) {
                c->sio.body = body;
                return ask(c, UINT64_MAX, AGX_CONN_SIO, wish);
        }
        if (c->state == AGX_CONN_BODY && c->route == AGX_ROUTE_CONDUIT)
                return ask(c, UINT64_MAX, AGX_CONN_CONDUIT, wish);
        if (c->state == AGX_CONN_BODY && c->route == AGX_ROUTE_FAST)
                return ask(c, UINT64_MAX, AGX_CONN_FAST, wish);
        if (c->state == AGX_CONN_BODY && c->route == AGX_ROUTE_CALL) {
                if (agx_call_request_get(body, &c->request, &why))
                        return ask(c, now + c->wait_ms, AGX_CONN_SUBMIT, wish);
                r = put_bad_request(c, why ? why : "malformed");
        } else {
                r = c->state == AGX_CONN_BODY ? put_health(c) : 0;
        }
        answered(c, now);
        return r;
}

static int on_error(agx_conn *c, int error)
{
        switch (error) {
        case AGX_HTTP1_E_HEAD_SIZE:
                return refuse_and_close(c, 431, agx_http1_reason(c->parser));
        case AGX_HTTP1_E_BODY_SIZE:
                return refuse_and_close(c, 413, agx_http1_reason(c->parser));
        case AGX_HTTP1_E_VERSION:
                return refuse_and_close(c, 505, agx_http1_reason(c->parser));
        default:
                return refuse_and_close(c, 400, agx_http1_reason(c->parser));
        }
}

/* All input is used; a body that lay whole in it must stay. */
static int hold(agx_conn *c)
{
        agx_view whole = c->whole;

        c->whole = AGX_VIEW_NULL;
        return whole.p && has_room(c, whole.n) ? agx_buf_append_view(&c->body, whole) : 0;
}

/* One event; *wish is AGX_CONN_NONE if there is more to do. */
static int step(agx_conn *c, uint64_t now, agx_view *in, agx_conn_wish *wish)
{
        agx_http1_event ev = {.kind = AGX_HTTP1_MORE};
        int r = agx_http1_next(c->parser, in, &ev);

        if (r)
                return r < 0 ? r : on_error(c, r);
        switch (ev.kind) {
        case AGX_HTTP1_HEAD:
                return on_head(c, now, ev.head);
        case AGX_HTTP1_BODY:
                return on_body(c, ev.body);
        case AGX_HTTP1_END:
                return on_end(c, now, wish);
        case AGX_HTTP1_MORE:
                break;
        }
        *wish = AGX_CONN_INPUT;
        return hold(c);
}

static void begin_head(agx_conn *c, uint64_t now)
{
        c->state = AGX_CONN_HEAD;
        c->head_only = false;
        c->close = false;
        c->keep = false;
        if (c->served)
                c->deadline = now + AGX_HTTP_HEAD_MS; /* the first one has had its time since the accept */
}

int agx_conn_next(agx_conn *c, uint64_t now, agx_view *in, agx_conn_wish *wish)
{
        int r = 0;

        *wish = AGX_CONN_NONE;
        while (!r && *wish == AGX_CONN_NONE) {
                if (c->state == AGX_CONN_CLOSING)
                        *wish = AGX_CONN_CLOSE;
                else if (c->state == AGX_CONN_UPGRADED)
                        *wish = AGX_CONN_WAIT;
                else if (c->state == AGX_CONN_ASKED) {
                        drop_body(c); /* the server has taken what it needs */
                        *wish = AGX_CONN_WAIT;
                } else if (c->state == AGX_CONN_IDLE && !in->n)
                        *wish = AGX_CONN_INPUT;
                else {
                        if (c->state == AGX_CONN_IDLE)
                                begin_head(c, now);
                        r = step(c, now, in, wish);
                }
        }
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

void agx_conn_drained(agx_conn *c, uint64_t now)
{
        if (c->state == AGX_CONN_IDLE && c->served)
                c->deadline = now + AGX_HTTP_IDLE_MS;
}

void agx_conn_forgive(agx_conn *c, uint64_t ms)
{
        if (c->state != AGX_CONN_HEAD && c->state != AGX_CONN_BODY && c->state != AGX_CONN_DROP)
                return;
        c->deadline += ms;
        c->body_since += ms;
}

int agx_conn_tick(agx_conn *c, uint64_t now, agx_conn_wish *wish)
{
        int r = 0;

        *wish = AGX_CONN_NONE;
        if (now < c->deadline)
                return 0;
        c->deadline = UINT64_MAX;
        if (c->state == AGX_CONN_ASKED) {
                *wish = AGX_CONN_LATE;
                return 0;
        }
        if (c->state == AGX_CONN_HEAD || c->state == AGX_CONN_BODY)
                r = refuse_and_close(c, 408, NULL);
        c->state = AGX_CONN_CLOSING;
        *wish = AGX_CONN_CLOSE;
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

/* Never beyond the end of the body: what follows it must not lie in the body's buffer. */
bool agx_conn_place(agx_conn *c, char **place, size_t *n)
{
        uint64_t left = c->body_length > c->body_got ? c->body_length - c->body_got : 0;
        uint8_t *at;

        *n = left < PLACE_BYTES ? (size_t)left : PLACE_BYTES;
        if (c->state != AGX_CONN_BODY || !takes_body(c) || c->crowded || c->body.len < PLACE_BYTES || !*n ||
            agx_buf_reserve(&c->body, *n, &at))
                return false;
        *place = (char *)at;
        return true;
}

/* ---- replies ---- */

/* What the writer has put into the scratch buffer is the body, or its front: `more` bytes follow from the caller. */
static int reply(agx_conn *c, uint64_t now, const agx_mp_writer *w, agx_answer a, size_t more)
{
        int r = agx_mp_writer_end(w);

        if (!r) {
                a.length = c->scratch.len + more;
                a.has_wait = true;
                a.wait_ms = c->wait_ms;
                r = put_body(c, &a, agx_buf_view(&c->scratch));
        }
        answered(c, now);
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

int agx_conn_reply_result(agx_conn *c, uint64_t now, bool ok, size_t payload)
{
        agx_mp_writer w = scratch_writer(c);

        if (ok)
                agx_call_reply_put_value_head(&w, payload);
        else
                agx_call_reply_put_fault_head(&w);
        return reply(c, now, &w, answer_of(c, 200, TYPE_MSGPACK, 0), payload);
}

int agx_conn_reply_fault(agx_conn *c, uint64_t now, const agx_fault *fault)
{
        agx_mp_writer w = scratch_writer(c);

        agx_call_reply_put_fault(&w, fault);
        return reply(c, now, &w, answer_of(c, 200, TYPE_MSGPACK, 0), 0);
}

int agx_conn_reply_accepted(agx_conn *c, uint64_t now, agx_view call_id)
{
        agx_mp_writer w = scratch_writer(c);
        agx_answer a = answer_of(c, 202, TYPE_MSGPACK, 0);

        a.location = call_id;
        agx_call_reply_put_accepted(&w, call_id);
        return reply(c, now, &w, a, 0);
}

int agx_conn_reply_unavailable(agx_conn *c, uint64_t now)
{
        int r = put_refusal(c, 503, NULL, AGX_VIEW_NULL);

        answered(c, now);
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

int agx_conn_reply_payload(agx_conn *c, uint64_t now, size_t n)
{
        agx_answer a = answer_of(c, 200, TYPE_TEXT, n);
        int r = agx_answer_put(c->out, &a);

        answered(c, now);
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

int agx_conn_reply_refusal(agx_conn *c, uint64_t now, unsigned status, const char *words)
{
        int r = put_refusal(c, status, words, AGX_VIEW_NULL);

        answered(c, now);
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

int agx_conn_reply_upgrade(agx_conn *c)
{
        int r = agx_ws_put_reply(c->out, &c->upgrade);

        drop_body(c);
        c->state = AGX_CONN_UPGRADED;
        c->deadline = UINT64_MAX;
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}

int agx_conn_reply_conduit(agx_conn *c, uint64_t now)
{
        int r = agx_buf_append_view(c->out, AGX_VIEW("HTTP/1.1 101 Switching Protocols\r\n"
                                                     "Connection: Upgrade\r\n"
                                                     "Upgrade: agentix-conduit\r\n\r\n"));

        drop_body(c);
        c->state = AGX_CONN_UPGRADED;
        c->deadline = now + AGX_HTTP_IDLE_MS;
        return r > 0 ? agx_trace(-ENOBUFS) : r;
}
