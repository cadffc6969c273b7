#ifndef AGX_TEST_CLIENT_SHELL_H
#define AGX_TEST_CLIENT_SHELL_H
/*
 * A client session against a scripted server, on a virtual clock. The fixture is the shell: it carries out wishes, parses
 * what is written as a strict server would, and answers as the test says, in pieces of any size (`cut`). The functions
 * are inline so that each test file uses those it needs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/session.h"
#include "proto/callmsg.h"
#include "proto/limits.h"
#include "proto/proof.h"
#include "support/oom.h"
#include "wire/base64url.h"

enum { CONNS = 600, TEXT = 4096 };

typedef struct end {
        agx_client_conn *conn;
        agx_http1 *parser;
        agx_buf body;
        bool health; /* the request that came is GET /health */
        bool asked;  /* a whole request stands and is not answered */
        bool token;  /* it carried Authorization */
        char nonce[64];
        char call_id[64];
        char prefer[64];
        char acks[TEXT];
        size_t n_acks;
        size_t arguments;
        char argument[32]; /* the beginning of them */
        bool wrote_token;
        bool upgrade; /* the request that came is one for a WebSocket */
        char key[32];
        char target[128];
        void *peer;  /* once it is one: see peer.h */
        bool posted; /* the request that came is a POST */
} end;

typedef struct fixture fixture;

struct fixture {
        agx_client *client;
        end ends[CONNS];
        size_t n_ends, n_open;
        const char *instance;
        const char *token;
        const char *wires; /* what /health says it speaks, or NULL */
        bool prove;
        bool auto_health;
        size_t cut; /* bytes per read; 0: all at once */
        uint64_t now;
        size_t health_asked, calls_asked;
        const char *refuse_open;
        void (*upgraded)(fixture *f, end *e, agx_view bytes);
        size_t budget; /* bytes that travel before the connection they are on is cut; SIZE_MAX: all */
};

/* ---- the shell and the server ---- */

static inline end *end_of(fixture *f, agx_client_conn *conn)
{
        for (size_t i = 0; i < f->n_ends; ++i)
                if (f->ends[i].conn == conn)
                        return &f->ends[i];
        return NULL;
}

static inline void copy(char *to, size_t size, agx_view v)
{
        assert_true(v.n < size);
        if (v.n)
                memcpy(to, v.p, v.n);
        to[v.n] = '\0';
}

static inline void read_call(fixture *f, end *e)
{
        agx_call_request request;
        agx_call_acks acks;
        const char *why;
        agx_view id;

        assert_true(agx_call_request_get(agx_buf_view(&e->body), &request, &why));
        copy(e->call_id, sizeof(e->call_id), request.call_id);
        e->arguments = request.arguments.n;
        copy(e->argument, sizeof(e->argument), agx_view_first(request.arguments, 30));
        e->n_acks = 0;
        e->acks[0] = '\0';
        acks = agx_call_acks_of(request.acks);
        while (agx_call_acks_next(&acks, &id)) {
                ++e->n_acks;
                if (strlen(e->acks) + id.n + 2 < sizeof(e->acks)) {
                        strncat(e->acks, id.p, id.n);
                        strncat(e->acks, " ", 2);
                }
        }
        ++f->calls_asked;
}

static inline void on_head(end *e, const agx_http1_head *head)
{
        e->health = agx_view_eq(head->target, AGX_VIEW("/health"));
        e->upgrade = agx_view_starts(head->target, AGX_VIEW("/socket.io/")) ||
                     agx_view_eq(head->target, AGX_VIEW("/agentix"));
        e->posted = agx_view_eq(head->method, AGX_VIEW("POST"));
        e->token = agx_http1_field_get(head, AGX_VIEW("Authorization"), NULL).p != NULL;
        e->wrote_token = e->wrote_token || e->token;
        assert_true(agx_http1_field_get(head, AGX_VIEW("Host"), NULL).n > 0);
        if (e->health) {
                assert_true(agx_view_eq(head->method, AGX_VIEW("GET")));
                copy(e->nonce, sizeof(e->nonce), agx_http1_field_get(head, AGX_VIEW("Agentix-Challenge"), NULL));
                return;
        }
        if (e->upgrade) {
                copy(e->target, sizeof(e->target), head->target);
                copy(e->key, sizeof(e->key), agx_http1_field_get(head, AGX_VIEW("Sec-WebSocket-Key"), NULL));
                return;
        }
        assert_true(agx_view_eq(head->method, AGX_VIEW("POST")) && agx_view_eq(head->target, AGX_VIEW("/call")));
        assert_int_equal(agx_http1_field_get(head, AGX_VIEW("Agentix-Session"), NULL).n, 32);
        assert_true(agx_view_eq(agx_http1_field_get(head, AGX_VIEW("Content-Type"), NULL),
                                AGX_VIEW("application/msgpack")));
        copy(e->prefer, sizeof(e->prefer), agx_http1_field_get(head, AGX_VIEW("Prefer"), NULL));
}

static inline void serve_bytes(fixture *f, end *e, agx_view in)
{
        agx_http1_event event;

        if (e->peer) {
                f->upgraded(f, e, in);
                return;
        }
        do {
                bool before = agx_oom_pause(true);

                assert_int_equal(agx_http1_next(e->parser, &in, &event), 0);
                if (event.kind == AGX_HTTP1_HEAD) {
                        agx_buf_clear(&e->body);
                        on_head(e, event.head);
                } else if (event.kind == AGX_HTTP1_BODY) {
                        assert_int_equal(agx_buf_append_view(&e->body, event.body), 0);
                } else if (event.kind == AGX_HTTP1_END) {
                        assert_false(e->asked); /* one question at a time */
                        e->asked = true;
                        if (e->health)
                                ++f->health_asked;
                        else if (!e->upgrade)
                                read_call(f, e);
                }
                agx_oom_pause(before);
        } while (event.kind != AGX_HTTP1_MORE);
}

/* Gives bytes to the client as a shell would, to its place if it offers one. */
static inline void give(fixture *f, end *e, agx_view bytes)
{
        while (bytes.n && e->conn) {
                size_t n = f->cut && f->cut < bytes.n ? f->cut : bytes.n;
                agx_view place = agx_client_conn_place(e->conn);

                n = n < f->budget ? n : f->budget;
                if (!n) {
                        f->budget = SIZE_MAX;
                        agx_client_ended(f->client, e->conn, "reset", f->now);
                        return;
                }
                if (place.n) {
                        n = n < place.n ? n : place.n;
                        memcpy((char *)(uintptr_t)place.p, bytes.p, n);
                        agx_client_input(f->client, e->conn, agx_view_of(place.p, n), f->now);
                } else {
                        agx_client_input(f->client, e->conn, agx_view_first(bytes, n), f->now);
                }
                bytes = agx_view_from(bytes, n);
                f->budget -= f->budget == SIZE_MAX ? 0 : n;
        }
}

static inline void answer(fixture *f, end *e, const char *head, agx_view body)
{
        char text[1024];
        int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", head, body.n);

        assert_true(n > 0 && (size_t)n < sizeof(text));
        e->asked = false;
        give(f, e, agx_view_of(text, (size_t)n));
        give(f, e, body);
}

static inline void answer_health(fixture *f, end *e)
{
        uint8_t nonce[AGX_NONCE_BYTES];
        char proof[AGX_PROOF_CHARS + 1] = "", head[256], body[256];

        assert_true(agx_base64url_decode(agx_view_str(e->nonce), nonce, sizeof(nonce)));
        agx_proof_make(agx_view_str(f->token ? f->token : "wrong"), nonce, agx_view_str(f->instance), proof);
        snprintf(body, sizeof(body), "{\"status\": \"ok\", \"version\": \"9.9\", \"instance\": \"%s\"}", f->instance);
        snprintf(head, sizeof(head), "200 OK\r\nContent-Type: application/json%s%s%s%s",
                 f->prove ? "\r\nAgentix-Proof: " : "", f->prove ? proof : "", f->wires ? "\r\nAgentix-Wires: " : "",
                 f->wires ? f->wires : "");
        answer(f, e, head, agx_view_str(body));
}

static inline void answer_value(fixture *f, end *e, agx_view value)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&body);
        bool before = agx_oom_pause(true);

        agx_call_reply_put_value_head(&w, value.n);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        assert_int_equal(agx_buf_append_view(&body, value), 0);
        agx_oom_pause(before);
        answer(f, e, "200 OK\r\nContent-Type: application/msgpack", agx_buf_view(&body));
}

static inline void answer_fault(fixture *f, end *e, const agx_fault *fault)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&body);
        bool before = agx_oom_pause(true);

        agx_call_reply_put_fault(&w, fault);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        answer(f, e, "200 OK", agx_buf_view(&body));
}

static inline void answer_accepted(fixture *f, end *e)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&body);
        bool before = agx_oom_pause(true);

        agx_call_reply_put_accepted(&w, agx_view_str(e->call_id));
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        answer(f, e, "202 Accepted\r\nPreference-Applied: wait=1", agx_buf_view(&body));
}

static inline void drop(fixture *f, end *e)
{
        agx_client_ended(f->client, e->conn, NULL, f->now);
}

static inline void do_open(fixture *f, agx_client_conn *conn)
{
        static const agx_http1_bounds bounds = {.head_max = 65536,
                                                .headers_max = 100,
                                                .chunk_line_max = 100,
                                                .trailer_max = 100,
                                                .body_max = AGX_MAX_MESSAGE};
        uint8_t nonce[AGX_CLIENT_NONCE_BYTES];
        bool before;
        end *e;

        if (f->refuse_open) {
                agx_client_open_failed(f->client, conn, f->refuse_open, f->now);
                return;
        }
        assert_true(f->n_ends < CONNS);
        e = &f->ends[f->n_ends++];
        *e = (end){.conn = conn, .body = AGX_BUF_NULL(AGX_MAX_MESSAGE)};
        before = agx_oom_pause(true);
        assert_int_equal(agx_http1_new(&e->parser, AGX_HTTP1_SERVER, &bounds), 0);
        agx_oom_pause(before);
        ++f->n_open;
        memset(nonce, (int)f->n_ends, sizeof(nonce));
        agx_client_opened(f->client, conn, nonce, f->now);
}

static inline void do_write(fixture *f, agx_client_conn *conn)
{
        agx_view segments[2];
        end *e = end_of(f, conn);

        while (agx_client_conn_pending(conn, segments)) {
                size_t n = f->cut && f->cut < segments[0].n ? f->cut : segments[0].n;

                n = n < f->budget ? n : f->budget;
                if (!n) {
                        f->budget = SIZE_MAX;
                        agx_client_ended(f->client, conn, "reset", f->now);
                        return;
                }
                f->budget -= f->budget == SIZE_MAX ? 0 : n;
                {
                        _cleanup_(agx_buf_deinitp) agx_buf sent = AGX_BUF_NULL(AGX_MAX_MESSAGE);
                        bool before = agx_oom_pause(true);

                        assert_int_equal(agx_buf_append(&sent, segments[0].p, n),
                                         0); /* the server may answer at once */
                        agx_oom_pause(before);
                        agx_client_conn_sent(conn, n);
                        serve_bytes(f, e, agx_buf_view(&sent));
                }
        }
        if (f->auto_health && e->asked && e->health)
                answer_health(f, e);
}

static inline void do_close(fixture *f, agx_client_conn *conn)
{
        end *e = end_of(f, conn);

        if (e) {
                --f->n_open;
                e->conn = NULL;
                e->asked = false;
        }
        agx_client_conn_free(f->client, conn);
}

/* Carries out all wishes there are. */
static inline void work(fixture *f)
{
        for (;;) {
                agx_client_wish wish = agx_client_next_wish(f->client);

                if (wish.kind == AGX_CLIENT_WISH_NONE)
                        return;
                if (wish.kind == AGX_CLIENT_WISH_OPEN)
                        do_open(f, wish.conn);
                else if (wish.kind == AGX_CLIENT_WISH_WRITE)
                        do_write(f, wish.conn);
                else
                        do_close(f, wish.conn);
        }
}

static inline void pass(fixture *f, uint64_t ms)
{
        f->now += ms;
        agx_client_tick(f->client, f->now);
        work(f);
}

/* The connection on which a call stands unanswered. */
static inline end *asked(fixture *f)
{
        for (size_t i = 0; i < f->n_ends; ++i)
                if (f->ends[i].conn && f->ends[i].asked && !f->ends[i].health && !f->ends[i].upgrade)
                        return &f->ends[i];
        return NULL;
}

static inline end *must_ask(fixture *f)
{
        end *e;

        work(f);
        e = asked(f);
        assert_non_null(e);
        return e;
}

static inline agx_client_config config_of(const char *token)
{
        agx_client_config config = {.host = AGX_VIEW("127.0.0.1:1"),
                                    .prefix = AGX_VIEW(""),
                                    .headers = AGX_VIEW("X-Extra: yes\r\n"),
                                    .token = token ? agx_view_str(token) : AGX_VIEW_NULL,
                                    .timeout_ms = 1000,
                                    .reconnect = true,
                                    .attempts = 3,
                                    .delay_ms = 100,
                                    .delay_max_ms = 400,
                                    .jitter = 0};

        for (size_t i = 0; i < sizeof(config.session); ++i)
                config.session[i] = (uint8_t)i;
        return config;
}

static inline void begin_with(fixture *f, const agx_client_config *config)
{
        memset(f, 0, sizeof(*f));
        f->instance = "one";
        f->auto_health = true;
        f->now = 1000;
        f->budget = SIZE_MAX;
        assert_int_equal(agx_client_new(&f->client, config), 0);
}

static inline void begin(fixture *f)
{
        agx_client_config config = config_of(NULL);

        begin_with(f, &config);
}

static inline void finish(fixture *f)
{
        agx_client_call *call;

        agx_client_shutdown(f->client, "closed", f->now);
        work(f);
        while ((call = agx_client_next_done(f->client)))
                agx_client_call_free(f->client, call, f->now);
        assert_int_equal(agx_client_count(f->client).connections, 0);
        assert_int_equal(agx_client_count(f->client).waiting, 0);
        assert_int_equal(f->n_open, 0);
        for (size_t i = 0; i < f->n_ends; ++i) {
                agx_http1_free(f->ends[i].parser);
                agx_buf_deinit(&f->ends[i].body);
        }
        agx_client_free(f->client);
}

static inline agx_client_call *start_with(fixture *f, agx_view arguments, uint64_t deadline)
{
        size_t cut = arguments.n > 40 && arguments.n <= AGX_MAX_MESSAGE ? 17 : 0; /* bytes on either side of the rest */
        agx_view parts[3] = {AGX_VIEW_NULL, arguments, AGX_VIEW_NULL};
        agx_client_call *call;

        if (cut) {
                parts[0] = agx_view_first(arguments, cut);
                parts[1] = agx_view_of(arguments.p + cut, arguments.n - 2 * cut);
                parts[2] = agx_view_from(arguments, arguments.n - cut);
        }
        assert_int_equal(agx_client_start_parts(f->client, AGX_VIEW("m::f"), parts, AGX_VIEW_NULL, 0, deadline, NULL,
                                                f->now, &call),
                         0);
        return call;
}

static inline agx_client_call *start(fixture *f)
{
        return start_with(f, AGX_VIEW("args"), UINT64_MAX);
}

static inline const agx_client_result *ended(fixture *f, agx_client_call *call)
{
        assert_ptr_equal(agx_client_next_done(f->client), call);
        return agx_client_call_result(call);
}

static inline void assert_value(fixture *f, agx_client_call *call, const char *value)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
        assert_int_equal(result->value.n, strlen(value));
        assert_memory_equal(result->value.p, value, strlen(value));
        agx_client_call_free(f->client, call, f->now);
}

static inline void assert_unreachable(fixture *f, agx_client_call *call, const char *part)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_UNREACHABLE);
        if (!strstr(result->why, part))
                fail_msg("\"%s\" lacks \"%s\"", result->why, part);
        agx_client_call_free(f->client, call, f->now);
}

static inline void assert_fault(fixture *f, agx_client_call *call, const char *type, const char *reason)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_FAULT);
        assert_true(agx_view_eq(result->fault.type, agx_view_str(type)));
        if (reason)
                assert_true(agx_view_eq(result->fault.reason, agx_view_str(reason)));
        agx_client_call_free(f->client, call, f->now);
}

static inline void one_call(fixture *f)
{
        agx_client_call *call = start(f);
        end *e = must_ask(f);

        assert_string_equal(e->call_id, "000102030405060708090a0b0c0d0e0f-1");
        assert_string_equal(e->prefer, "respond-async, wait=0.75");
        assert_int_equal(e->arguments, 4);
        answer_value(f, e, AGX_VIEW("value"));
        assert_value(f, call, "value");
}

#endif
