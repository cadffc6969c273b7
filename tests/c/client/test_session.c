/*
 * The client session against a scripted server, on a virtual clock. The fixture is the shell: it carries out wishes,
 * parses what is written as a strict server would, and answers as the test says, in pieces of any size. Everything that
 * was written on any connection is recorded, so that a test can say what must never be sent.
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
        bool wrote_token;
} end;

typedef struct fixture {
        agx_client *client;
        end ends[CONNS];
        size_t n_ends, n_open;
        const char *instance;
        const char *token;
        bool prove;
        bool auto_health;
        size_t cut; /* bytes per read; 0: all at once */
        uint64_t now;
        size_t health_asked, calls_asked;
        const char *refuse_open;
} fixture;

/* ---- the shell and the server ---- */

static end *end_of(fixture *f, agx_client_conn *conn)
{
        for (size_t i = 0; i < f->n_ends; ++i)
                if (f->ends[i].conn == conn)
                        return &f->ends[i];
        return NULL;
}

static void copy(char *to, size_t size, agx_view v)
{
        assert_true(v.n < size);
        if (v.n)
                memcpy(to, v.p, v.n);
        to[v.n] = '\0';
}

static void read_call(fixture *f, end *e)
{
        agx_call_request request;
        agx_call_acks acks;
        const char *why;
        agx_view id;

        assert_true(agx_call_request_get(agx_buf_view(&e->body), &request, &why));
        copy(e->call_id, sizeof(e->call_id), request.call_id);
        e->arguments = request.arguments.n;
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

static void on_head(end *e, const agx_http1_head *head)
{
        e->health = agx_view_eq(head->target, AGX_VIEW("/health"));
        e->token = agx_http1_field_get(head, AGX_VIEW("Authorization"), NULL).p != NULL;
        e->wrote_token = e->wrote_token || e->token;
        assert_true(agx_http1_field_get(head, AGX_VIEW("Host"), NULL).n > 0);
        if (e->health) {
                assert_true(agx_view_eq(head->method, AGX_VIEW("GET")));
                copy(e->nonce, sizeof(e->nonce), agx_http1_field_get(head, AGX_VIEW("Agentix-Challenge"), NULL));
                return;
        }
        assert_true(agx_view_eq(head->method, AGX_VIEW("POST")) && agx_view_eq(head->target, AGX_VIEW("/call")));
        assert_int_equal(agx_http1_field_get(head, AGX_VIEW("Agentix-Session"), NULL).n, 32);
        assert_true(agx_view_eq(agx_http1_field_get(head, AGX_VIEW("Content-Type"), NULL),
                                AGX_VIEW("application/msgpack")));
        copy(e->prefer, sizeof(e->prefer), agx_http1_field_get(head, AGX_VIEW("Prefer"), NULL));
}

static void serve_bytes(fixture *f, end *e, agx_view in)
{
        agx_http1_event event;

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
                        else
                                read_call(f, e);
                }
                agx_oom_pause(before);
        } while (event.kind != AGX_HTTP1_MORE);
}

/* Gives bytes to the client as a shell would, to its place if it offers one. */
static void give(fixture *f, end *e, agx_view bytes)
{
        while (bytes.n && e->conn) {
                size_t n = f->cut && f->cut < bytes.n ? f->cut : bytes.n;
                agx_view place = agx_httpconn_place(agx_client_conn_http(e->conn));

                if (place.n) {
                        n = n < place.n ? n : place.n;
                        memcpy((char *)(uintptr_t)place.p, bytes.p, n);
                        agx_client_input(f->client, e->conn, agx_view_of(place.p, n), f->now);
                } else {
                        agx_client_input(f->client, e->conn, agx_view_first(bytes, n), f->now);
                }
                bytes = agx_view_from(bytes, n);
        }
}

static void answer(fixture *f, end *e, const char *head, agx_view body)
{
        char text[1024];
        int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n", head, body.n);

        assert_true(n > 0 && (size_t)n < sizeof(text));
        e->asked = false;
        give(f, e, agx_view_of(text, (size_t)n));
        give(f, e, body);
}

static void answer_health(fixture *f, end *e)
{
        uint8_t nonce[AGX_NONCE_BYTES];
        char proof[AGX_PROOF_CHARS + 1] = "", head[256], body[256];

        assert_true(agx_base64url_decode(agx_view_str(e->nonce), nonce, sizeof(nonce)));
        agx_proof_make(agx_view_str(f->token ? f->token : "wrong"), nonce, agx_view_str(f->instance), proof);
        snprintf(body, sizeof(body), "{\"status\": \"ok\", \"version\": \"9.9\", \"instance\": \"%s\"}", f->instance);
        snprintf(head, sizeof(head), "200 OK\r\nContent-Type: application/json%s%s",
                 f->prove ? "\r\nAgentix-Proof: " : "", f->prove ? proof : "");
        answer(f, e, head, agx_view_str(body));
}

static void answer_value(fixture *f, end *e, agx_view value)
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

static void answer_fault(fixture *f, end *e, const agx_fault *fault)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&body);
        bool before = agx_oom_pause(true);

        agx_call_reply_put_fault(&w, fault);
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        answer(f, e, "200 OK", agx_buf_view(&body));
}

static void answer_accepted(fixture *f, end *e)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(AGX_MAX_MESSAGE);
        agx_mp_writer w = agx_mp_writer_on(&body);
        bool before = agx_oom_pause(true);

        agx_call_reply_put_accepted(&w, agx_view_str(e->call_id));
        assert_int_equal(agx_mp_writer_end(&w), 0);
        agx_oom_pause(before);
        answer(f, e, "202 Accepted\r\nPreference-Applied: wait=1", agx_buf_view(&body));
}

static void drop(fixture *f, end *e)
{
        agx_client_ended(f->client, e->conn, NULL, f->now);
}

static void do_open(fixture *f, agx_client_conn *conn)
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

static void do_write(fixture *f, agx_client_conn *conn)
{
        agx_httpconn *http = agx_client_conn_http(conn);
        agx_view segments[2];
        end *e = end_of(f, conn);

        while (agx_httpconn_pending(http, segments)) {
                size_t n = f->cut && f->cut < segments[0].n ? f->cut : segments[0].n;

                serve_bytes(f, e, agx_view_first(segments[0], n));
                agx_httpconn_sent(http, n);
        }
        if (f->auto_health && e->asked && e->health)
                answer_health(f, e);
}

static void do_close(fixture *f, agx_client_conn *conn)
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
static void work(fixture *f)
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

static void pass(fixture *f, uint64_t ms)
{
        f->now += ms;
        agx_client_tick(f->client, f->now);
        work(f);
}

/* The connection on which a call stands unanswered. */
static end *asked(fixture *f)
{
        for (size_t i = 0; i < f->n_ends; ++i)
                if (f->ends[i].conn && f->ends[i].asked && !f->ends[i].health)
                        return &f->ends[i];
        return NULL;
}

static end *must_ask(fixture *f)
{
        end *e;

        work(f);
        e = asked(f);
        assert_non_null(e);
        return e;
}

static agx_client_config config_of(const char *token)
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

static void begin_with(fixture *f, const agx_client_config *config)
{
        memset(f, 0, sizeof(*f));
        f->instance = "one";
        f->auto_health = true;
        f->now = 1000;
        assert_int_equal(agx_client_new(&f->client, config), 0);
}

static void begin(fixture *f)
{
        agx_client_config config = config_of(NULL);

        begin_with(f, &config);
}

static void finish(fixture *f)
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

static agx_client_call *start_with(fixture *f, agx_view arguments, uint64_t deadline)
{
        agx_client_call *call;

        assert_int_equal(agx_client_start(f->client, AGX_VIEW("m::f"), arguments, AGX_VIEW_NULL, deadline, NULL, f->now,
                                          &call),
                         0);
        return call;
}

static agx_client_call *start(fixture *f)
{
        return start_with(f, AGX_VIEW("args"), UINT64_MAX);
}

static const agx_client_result *ended(fixture *f, agx_client_call *call)
{
        assert_ptr_equal(agx_client_next_done(f->client), call);
        return agx_client_call_result(call);
}

static void assert_value(fixture *f, agx_client_call *call, const char *value)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
        assert_int_equal(result->value.n, strlen(value));
        assert_memory_equal(result->value.p, value, strlen(value));
        agx_client_call_free(f->client, call, f->now);
}

static void assert_unreachable(fixture *f, agx_client_call *call, const char *part)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_UNREACHABLE);
        if (!strstr(result->why, part))
                fail_msg("\"%s\" lacks \"%s\"", result->why, part);
        agx_client_call_free(f->client, call, f->now);
}

static void assert_fault(fixture *f, agx_client_call *call, const char *type, const char *reason)
{
        const agx_client_result *result = ended(f, call);

        assert_int_equal(result->outcome, AGX_CLIENT_FAULT);
        assert_true(agx_view_eq(result->fault.type, agx_view_str(type)));
        if (reason)
                assert_true(agx_view_eq(result->fault.reason, agx_view_str(reason)));
        agx_client_call_free(f->client, call, f->now);
}

/* ---- the plain path ---- */

static void one_call(fixture *f)
{
        agx_client_call *call = start(f);
        end *e = must_ask(f);

        assert_string_equal(e->call_id, "000102030405060708090a0b0c0d0e0f-1");
        assert_string_equal(e->prefer, "respond-async, wait=0.75");
        assert_int_equal(e->arguments, 4);
        answer_value(f, e, AGX_VIEW("value"));
        assert_value(f, call, "value");
}

static void test_call_at_every_cut(void **state)
{
        (void)state;
        for (size_t cut = 0; cut < 200; ++cut) {
                fixture f;

                begin(&f);
                f.cut = cut;
                one_call(&f);
                assert_int_equal(f.n_ends, 1);
                assert_int_equal(f.health_asked, 1);
                finish(&f);
        }
}

static void test_connection_is_kept_and_results_are_acknowledged(void **state)
{
        fixture f;
        end *e;

        (void)state;
        begin(&f);
        one_call(&f);
        for (int i = 0; i < 3; ++i) {
                agx_client_call *call = start(&f);

                e = must_ask(&f);
                assert_int_equal(e->n_acks, 1);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, call, "v");
        }
        assert_string_equal(f.ends[0].acks, "000102030405060708090a0b0c0d0e0f-3 ");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_large_values_both_ways(void **state)
{
        size_t n = 3 * 1024 * 1024 + 17;
        char *big = malloc(n);

        (void)state;
        assert_non_null(big);
        for (size_t i = 0; i < n; ++i)
                big[i] = (char)(i * 7);
        for (size_t cut = 0; cut < 100000; cut += 33333) {
                fixture f;
                agx_client_call *call;
                const agx_client_result *result;
                agx_buf body = AGX_BUF_NULL(0);
                end *e;

                begin(&f);
                f.cut = cut;
                call = start_with(&f, agx_view_of(big, n), UINT64_MAX);
                e = must_ask(&f);
                assert_int_equal(e->arguments, n);
                answer_value(&f, e, agx_view_of(big, n));
                result = ended(&f, call);
                assert_int_equal(result->outcome, AGX_CLIENT_VALUE);
                assert_int_equal(result->value.n, n);
                agx_client_call_take_body(call, &body);
                assert_memory_equal(result->value.p, big, n);
                agx_client_call_free(f.client, call, f.now);
                agx_buf_deinit(&body);
                finish(&f);
        }
        free(big);
}

static void test_target_error(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("QuotaError"), .message = AGX_VIEW("u1"), .traceback = AGX_VIEW("File x")};
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "QuotaError", NULL);
        finish(&f);
}

static void test_too_large_to_send(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        /* Never read: the length alone decides. */
        call = start_with(&f, agx_view_of("", (size_t)AGX_MAX_MESSAGE + 1), UINT64_MAX);
        work(&f);
        assert_fault(&f, call, "FrameTooLarge", NULL);
        one_call(&f);
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_health_and_connect(void **state)
{
        fixture f;
        agx_client_call *call;
        const agx_client_result *result;

        (void)state;
        begin(&f);
        assert_int_equal(agx_client_connect(f.client, NULL, f.now, &call), 0);
        work(&f);
        assert_int_equal(ended(&f, call)->outcome, AGX_CLIENT_CONNECTED);
        agx_client_call_free(f.client, call, f.now);
        assert_int_equal(agx_client_ask_health(f.client, NULL, f.now, &call), 0);
        work(&f);
        result = ended(&f, call);
        assert_int_equal(result->outcome, AGX_CLIENT_HEALTH);
        assert_true(agx_view_eq(result->health.version, AGX_VIEW("9.9")));
        assert_true(agx_view_eq(result->health.instance, AGX_VIEW("one")));
        agx_client_call_free(f.client, call, f.now);
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

/* ---- the token ---- */

static void test_token_only_after_the_proof(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;

        (void)state;
        begin_with(&f, &config);
        f.token = "secret";
        f.prove = true;
        one_call(&f);
        assert_true(f.ends[0].token);
        finish(&f);
}

static void squat(bool prove, const char *token)
{
        agx_client_config config = config_of("secret");
        fixture f;
        agx_client_call *call;

        begin_with(&f, &config);
        f.token = token;
        f.prove = prove;
        call = start(&f);
        work(&f);
        assert_unreachable(&f, call, "did not prove");
        assert_false(f.ends[0].wrote_token);
        assert_int_equal(f.calls_asked, 0);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_squatter_gets_no_token(void **state)
{
        (void)state;
        squat(false, NULL);
        squat(true, "another");
        squat(true, "");
}

static void test_secure_needs_no_proof(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;

        (void)state;
        config.secure = true;
        begin_with(&f, &config);
        one_call(&f);
        assert_true(f.ends[0].token);
        finish(&f);
}

static void test_squatter_after_a_loss(void **state)
{
        agx_client_config config = config_of("secret");
        fixture f;
        agx_client_call *call;

        (void)state;
        begin_with(&f, &config);
        f.token = "secret";
        f.prove = true;
        call = start(&f);
        must_ask(&f);
        f.prove = false;
        drop(&f, &f.ends[0]);
        work(&f);
        assert_unreachable(&f, call, "did not prove");
        assert_int_equal(f.n_ends, 2);
        assert_false(f.ends[1].wrote_token);
        finish(&f);
}

static void test_token_refused(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer(&f, must_ask(&f), "401 Unauthorized", AGX_VIEW(""));
        assert_unreachable(&f, call, "401");
        finish(&f);
}

/* ---- losses ---- */

static void test_dropped_reply_is_asked_again_under_its_id(void **state)
{
        fixture f;
        agx_client_call *call;
        char id[64];
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        memcpy(id, e->call_id, sizeof(id));
        drop(&f, e);
        e = must_ask(&f);
        assert_string_equal(e->call_id, id);
        assert_int_equal(e->arguments, 4);
        answer_value(&f, e, AGX_VIEW("kept"));
        assert_value(&f, call, "kept");
        assert_int_equal(f.n_ends, 2);
        finish(&f);
}

/* Cuts the reply at every byte. */
static void test_reply_cut_anywhere(void **state)
{
        const char *reply = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"
                            "\x82\xa2ok\xc3\xa5value\xc4";
        size_t length = strlen(reply); /* short of its body by a byte and more */

        (void)state;
        for (size_t n = 0; n <= length; ++n) {
                fixture f;
                agx_client_call *call;
                end *e;

                begin(&f);
                call = start(&f);
                e = must_ask(&f);
                e->asked = false;
                give(&f, e, agx_view_of(reply, n));
                if (e->conn)
                        drop(&f, e);
                e = must_ask(&f);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, call, "v");
                finish(&f);
        }
}

static void test_idle_close_costs_nothing(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        one_call(&f);
        drop(&f, &f.ends[0]);
        work(&f);
        assert_null(agx_client_next_done(f.client));
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        finish(&f);
}

static void test_another_instance_is_never_asked_again(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        drop(&f, must_ask(&f));
        f.instance = "two";
        f.calls_asked = 0;
        work(&f);
        assert_fault(&f, call, "ResultUnavailable", "instance_changed");
        assert_int_equal(f.calls_asked, 0);
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        finish(&f);
}

static void test_losses_are_bounded(void **state)
{
        fixture f;
        agx_client_call *call;
        size_t asked_times = 0;

        (void)state;
        begin(&f);
        call = start(&f);
        for (int i = 0; i < 100; ++i) {
                end *e;

                work(&f);
                e = asked(&f);
                if (e) {
                        ++asked_times;
                        drop(&f, e);
                }
                pass(&f, 100);
        }
        assert_int_equal(asked_times, 4); /* once and three attempts */
        assert_unreachable(&f, call, "whether the call has run is unknown");
        finish(&f);
}

static void test_no_reconnection(void **state)
{
        agx_client_config config = config_of(NULL);
        fixture f;
        agx_client_call *call;

        (void)state;
        config.reconnect = false;
        begin_with(&f, &config);
        call = start(&f);
        drop(&f, must_ask(&f));
        assert_unreachable(&f, call, "closed");
        finish(&f);
}

static void test_first_connect_fails_at_once(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        assert_unreachable(&f, call, "refused");
        f.refuse_open = NULL;
        one_call(&f);
        finish(&f);
}

static void test_reconnects_with_growing_pauses(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        one_call(&f);
        drop(&f, &f.ends[0]);
        work(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        pass(&f, 99); /* 100, 200, 400 */
        assert_null(agx_client_next_done(f.client));
        pass(&f, 1);
        pass(&f, 200);
        f.refuse_open = NULL;
        pass(&f, 399);
        assert_null(asked(&f));
        pass(&f, 1);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");

        drop(&f, &f.ends[1]);
        work(&f);
        f.refuse_open = "Connection refused";
        call = start(&f);
        work(&f);
        for (int i = 0; i < 8; ++i)
                pass(&f, 100);
        assert_unreachable(&f, call, "refused");
        finish(&f);
}

/* Several connections that fail are one failure, however many calls wait. */
static void test_many_calls_and_no_server(void **state)
{
        enum { N = 50 };
        fixture f;

        (void)state;
        begin(&f);
        for (int i = 0; i < N; ++i)
                start(&f);
        work(&f);
        for (size_t i = 0; i < f.n_ends; ++i)
                drop(&f, &f.ends[i]);
        f.refuse_open = "Connection refused";
        work(&f);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 100);
        pass(&f, 200);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 400);
        for (int i = 0; i < N; ++i) {
                agx_client_call *call = agx_client_next_done(f.client);

                assert_non_null(call);
                assert_int_equal(agx_client_call_result(call)->outcome, AGX_CLIENT_UNREACHABLE);
                agx_client_call_free(f.client, call, f.now);
        }
        finish(&f);
}

/* ---- long calls ---- */

static void test_accepted_is_polled(void **state)
{
        fixture f;
        agx_client_call *call;
        uint64_t longest = 0;
        char id[64];

        (void)state;
        begin(&f);
        call = start(&f);
        answer_accepted(&f, must_ask(&f));
        memcpy(id, f.ends[0].call_id, sizeof(id));
        for (int i = 0; i < 20; ++i) {
                uint64_t pause = 0;

                while (!asked(&f)) {
                        uint64_t due = agx_client_timer(f.client);

                        assert_true(due > f.now && due < f.now + 1000);
                        pause += due - f.now;
                        pass(&f, due - f.now);
                }
                assert_string_equal(asked(&f)->call_id, id);
                assert_int_equal(asked(&f)->arguments, 0); /* it has them */
                assert_true(pause >= 20 && pause <= 500);
                longest = pause > longest ? pause : longest;
                answer_accepted(&f, asked(&f));
        }
        assert_int_equal(longest, 500);
        pass(&f, 500);
        answer_value(&f, must_ask(&f), AGX_VIEW("late"));
        assert_value(&f, call, "late");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_silence_is_a_loss(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        must_ask(&f);
        pass(&f, 999);
        assert_int_equal(f.n_ends, 1);
        pass(&f, 1);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 2);
        finish(&f);
}

static void test_never_seen_is_sent_again_and_dropped_is_not(void **state)
{
        agx_fault fault = {.type = AGX_VIEW("ResultUnavailable"),
                           .message = AGX_VIEW("?"),
                           .reason = AGX_VIEW("never_seen")};
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        answer_fault(&f, must_ask(&f), &fault);
        pass(&f, 20);
        fault.reason = AGX_VIEW("dropped");
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "ResultUnavailable", "dropped");

        fault.reason = AGX_VIEW("never_seen"); /* a server that never says anything else */
        call = start(&f);
        for (int i = 0; i < AGX_CLIENT_REASKS_MAX; ++i) {
                answer_fault(&f, must_ask(&f), &fault);
                pass(&f, 20);
        }
        answer_fault(&f, must_ask(&f), &fault);
        assert_fault(&f, call, "ResultUnavailable", "never_seen");
        finish(&f);
}

/* ---- deadlines and abandoning ---- */

static void test_deadline(void **state)
{
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        f.auto_health = false;
        call = start_with(&f, AGX_VIEW("a"), 50);
        work(&f);
        pass(&f, 500); /* the clock does not run before there is a connection */
        assert_null(agx_client_next_done(f.client));
        answer_health(&f, &f.ends[0]);
        e = must_ask(&f);
        pass(&f, 49);
        assert_null(agx_client_next_done(f.client));
        pass(&f, 1);
        assert_int_equal(ended(&f, call)->outcome, AGX_CLIENT_DEADLINE);
        agx_client_call_free(f.client, call, f.now);

        answer_value(&f, e, AGX_VIEW("late")); /* heard out, acknowledged, and the connection is used again */
        assert_null(agx_client_next_done(f.client));
        call = start(&f);
        e = must_ask(&f);
        assert_string_equal(e->acks, "000102030405060708090a0b0c0d0e0f-1 ");
        answer_value(&f, e, AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_abandoned_before_it_was_sent(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        call = start(&f);
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.calls_asked, 0);

        call = start(&f); /* given to the idle connection, nothing written */
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.calls_asked, 0);
        call = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, call, "v");
        assert_int_equal(f.n_ends, 1);
        finish(&f);
}

static void test_abandoned_half_sent(void **state)
{
        fixture f;
        agx_client_call *call;
        agx_client_wish wish;
        agx_view segments[2];

        (void)state;
        begin(&f);
        one_call(&f);
        call = start(&f);
        wish = agx_client_next_wish(f.client);
        assert_int_equal(wish.kind, AGX_CLIENT_WISH_WRITE);
        agx_httpconn_pending(agx_client_conn_http(wish.conn), segments);
        agx_httpconn_sent(agx_client_conn_http(wish.conn), segments[0].n - 1);
        agx_client_call_free(f.client, call, f.now);
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_abandoned_reply_may_not_be_large(void **state)
{
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        agx_client_call_free(f.client, call, f.now);
        give(&f, e, AGX_VIEW("HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\nxx"));
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

/* ---- hostile servers ---- */

static void test_garbage_ends_in_unreachable(void **state)
{
        static const char *const replies[] = {
                "garbage\r\n\r\n",
                "HTTP/2.0 200 OK\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xc1",
                "HTTP/1.1 200 OK\r\nContent-Length: 300000000\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
                "HTTP/1.1 204 No Content\r\n\r\n",
                "HTTP/1.1 301 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 202 Accepted\r\nContent-Length: 1\r\n\r\n\x80",
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
        };

        (void)state;
        for (size_t i = 0; i < sizeof(replies) / sizeof(replies[0]); ++i) {
                fixture f;
                agx_client_call *call;

                begin(&f);
                call = start(&f);
                for (int turn = 0; turn < 50; ++turn) {
                        end *e;

                        work(&f);
                        e = asked(&f);
                        if (e) {
                                e->asked = false;
                                give(&f, e, agx_view_str(replies[i]));
                                if (e->conn)
                                        drop(&f, e);
                        }
                        pass(&f, 100);
                }
                assert_unreachable(&f, call, "");
                assert_true(f.calls_asked <= 4);
                finish(&f);
        }
}

static void test_bad_health_ends_in_unreachable(void **state)
{
        static const char *const bodies[] = {
                "",
                "[]",
                "{}",
                "{\"status\": \"ok\", \"version\": \"1\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\\u0041\"}",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\"} x",
                "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\", \"instance\": \"a\"}",
                "{\"status\": \"ok\", \"version\": 1, \"instance\": \"a\"}"};

        (void)state;
        for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); ++i) {
                fixture f;
                agx_client_call *call;

                begin(&f);
                f.auto_health = false;
                call = start(&f);
                work(&f);
                answer(&f, &f.ends[0], "200 OK", agx_view_str(bodies[i]));
                work(&f);
                assert_unreachable(&f, call, "not an Agentix runtime");
                finish(&f);
        }
}

static void test_health_that_closes_does_not_loop(void **state)
{
        fixture f;
        agx_client_call *call;

        (void)state;
        begin(&f);
        f.auto_health = false;
        call = start(&f);
        work(&f);
        answer(&f, &f.ends[0], "200 OK\r\nConnection: close",
               AGX_VIEW("{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"a\"}"));
        work(&f);
        assert_unreachable(&f, call, "closes");
        finish(&f);
}

static void test_unasked_bytes_close_the_connection(void **state)
{
        fixture f;

        (void)state;
        begin(&f);
        one_call(&f);
        give(&f, &f.ends[0], AGX_VIEW("HTTP/1.1 200 OK\r\n\r\n"));
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

/* A second reply behind the first must not answer the next call. */
static void test_two_replies_to_one_request(void **state)
{
        const char *twice = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n\x82\xa2ok\xc3\xa5value\xc4\x00"
                            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n\x82\xa2ok\xc3\xa5value\xc4";
        fixture f;
        agx_client_call *call;
        end *e;

        (void)state;
        begin(&f);
        call = start(&f);
        e = must_ask(&f);
        e->asked = false;
        give(&f, e, agx_view_of(twice, 39 + 13 + 20));
        assert_value(&f, call, "");
        work(&f);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

/* ---- the pool ---- */

static void test_many_calls(void **state)
{
        enum { N = 1000 };
        size_t done = 0, most = 0;
        fixture f;

        (void)state;
        begin(&f);
        for (size_t i = 0; i < N; ++i)
                start(&f);
        for (int turn = 0; turn < 5000 && done < N; ++turn) {
                agx_client_call *call;
                end *e;

                work(&f);
                most = f.n_open > most ? f.n_open : most;
                e = asked(&f);
                if (e)
                        answer_value(&f, e, AGX_VIEW("v"));
                while ((call = agx_client_next_done(f.client))) {
                        agx_client_call_free(f.client, call, f.now);
                        ++done;
                }
                if (turn % 20 == 19)
                        pass(&f, 1);
        }
        assert_int_equal(done, N);
        assert_true(most <= 200); /* quick calls do not need a connection each */
        work(&f);
        assert_true(f.n_open <= AGX_CLIENT_IDLE_MAX);
        pass(&f, AGX_CLIENT_IDLE_MS);
        assert_int_equal(f.n_open, 0);
        finish(&f);
}

static void test_slow_calls_get_a_connection_each_up_to_the_bound(void **state)
{
        static fixture f;

        (void)state;
        begin(&f);
        for (size_t i = 0; i < 600; ++i)
                start(&f);
        for (int turn = 0; turn < 100; ++turn) {
                work(&f);
                pass(&f, 5);
        }
        assert_int_equal(f.n_open, AGX_CLIENT_CONNECTIONS_MAX);
        assert_int_equal(f.calls_asked, AGX_CLIENT_CONNECTIONS_MAX);
        finish(&f);
}

static void test_new_numbers_wait_for_an_old_one(void **state)
{
        fixture f;
        agx_client_call *old, *call;
        end *e;

        (void)state;
        begin(&f);
        old = start(&f);
        answer_accepted(&f, must_ask(&f));
        for (int i = 0; i < AGX_LEDGER_WINDOW - 2; ++i) {
                call = start(&f);
                answer_value(&f, must_ask(&f), AGX_VIEW("v"));
                assert_value(&f, call, "v");
        }
        call = start(&f);
        work(&f);
        assert_null(asked(&f));
        pass(&f, 20);
        e = must_ask(&f);
        assert_string_equal(e->call_id, "000102030405060708090a0b0c0d0e0f-1");
        answer_value(&f, e, AGX_VIEW("old"));
        assert_value(&f, old, "old");
        answer_value(&f, must_ask(&f), AGX_VIEW("new"));
        assert_value(&f, call, "new");
        finish(&f);
}

static void test_resent_calls_come_in_rising_order_before_new_ones(void **state)
{
        fixture f;
        agx_client_call *calls[3];

        (void)state;
        begin(&f);
        for (int i = 0; i < 3; ++i)
                calls[i] = start(&f);
        work(&f);
        assert_int_equal(f.calls_asked, 3);
        for (int i = 2; i >= 0; --i)
                drop(&f, &f.ends[i]);
        start(&f);
        f.auto_health = false;
        work(&f);
        answer_health(&f, &f.ends[3]);
        for (int i = 0; i < 3; ++i) {
                char id[64];
                end *e = must_ask(&f);

                snprintf(id, sizeof(id), "000102030405060708090a0b0c0d0e0f-%d", i + 1);
                assert_string_equal(e->call_id, id);
                answer_value(&f, e, AGX_VIEW("v"));
                assert_value(&f, calls[i], "v");
        }
        assert_string_equal(must_ask(&f)->call_id, "000102030405060708090a0b0c0d0e0f-4");
        finish(&f);
}

static void test_shutdown_ends_everything(void **state)
{
        fixture f;
        agx_client_call *sent, *waiting;

        (void)state;
        begin(&f);
        sent = start(&f);
        must_ask(&f);
        f.auto_health = false;
        waiting = start(&f);
        work(&f);
        agx_client_shutdown(f.client, "the client was closed", f.now);
        work(&f);
        assert_unreachable(&f, sent, "closed");
        assert_unreachable(&f, waiting, "closed");
        assert_int_equal(f.n_open, 0);
        f.auto_health = true;
        waiting = start(&f);
        answer_value(&f, must_ask(&f), AGX_VIEW("v"));
        assert_value(&f, waiting, "v");
        finish(&f);
}

/* ---- memory ---- */

/* A whole exchange with a loss in it; only our own verbs allocate while armed. */
static void scenario(fixture *f)
{
        agx_client_call *call = NULL;

        for (int i = 0; i < 3; ++i) {
                end *e;

                if (agx_client_start(f->client, AGX_VIEW("m::f"), AGX_VIEW("a"), AGX_VIEW_NULL, UINT64_MAX, NULL,
                                     f->now, &call))
                        continue;
                work(f);
                e = asked(f);
                if (e && i == 1) {
                        drop(f, e);
                        work(f);
                        e = asked(f);
                }
                if (e)
                        answer_value(f, e, AGX_VIEW("value"));
                for (int turn = 0; turn < 20 && !(call = agx_client_next_done(f->client)); ++turn) {
                        pass(f, 500);
                        if ((e = asked(f)))
                                answer_value(f, e, AGX_VIEW("value"));
                }
                assert_non_null(call);
                agx_client_call_free(f->client, call, f->now);
        }
}

static void test_any_allocation_may_fail(void **state)
{
        size_t n = 0;
        bool failed;

        (void)state;
        do {
                fixture f;

                begin(&f);
                f.cut = 1; /* the fixture's own memory is made in other steps than the client's */
                agx_oom_arm(++n);
                scenario(&f);
                failed = agx_oom_disarm();
                finish(&f);
                assert_true(n < 5000);
        } while (failed);
        assert_true(n > 10);
}

static void test_new_fails_cleanly(void **state)
{
        agx_client_config config = config_of("secret");
        agx_client *client;
        size_t n = 0;
        int r;

        (void)state;
        do {
                agx_oom_arm(++n);
                r = agx_client_new(&client, &config);
                if (agx_oom_disarm())
                        assert_int_equal(r, -ENOMEM);
        } while (r);
        agx_client_free(client);
        config.host = AGX_VIEW("a\r\nb");
        assert_int_equal(agx_client_new(&client, &config), -EINVAL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_call_at_every_cut),
                cmocka_unit_test(test_connection_is_kept_and_results_are_acknowledged),
                cmocka_unit_test(test_large_values_both_ways),
                cmocka_unit_test(test_target_error),
                cmocka_unit_test(test_too_large_to_send),
                cmocka_unit_test(test_health_and_connect),
                cmocka_unit_test(test_token_only_after_the_proof),
                cmocka_unit_test(test_squatter_gets_no_token),
                cmocka_unit_test(test_secure_needs_no_proof),
                cmocka_unit_test(test_squatter_after_a_loss),
                cmocka_unit_test(test_token_refused),
                cmocka_unit_test(test_dropped_reply_is_asked_again_under_its_id),
                cmocka_unit_test(test_reply_cut_anywhere),
                cmocka_unit_test(test_idle_close_costs_nothing),
                cmocka_unit_test(test_another_instance_is_never_asked_again),
                cmocka_unit_test(test_losses_are_bounded),
                cmocka_unit_test(test_no_reconnection),
                cmocka_unit_test(test_first_connect_fails_at_once),
                cmocka_unit_test(test_reconnects_with_growing_pauses),
                cmocka_unit_test(test_many_calls_and_no_server),
                cmocka_unit_test(test_accepted_is_polled),
                cmocka_unit_test(test_silence_is_a_loss),
                cmocka_unit_test(test_never_seen_is_sent_again_and_dropped_is_not),
                cmocka_unit_test(test_deadline),
                cmocka_unit_test(test_abandoned_before_it_was_sent),
                cmocka_unit_test(test_abandoned_half_sent),
                cmocka_unit_test(test_abandoned_reply_may_not_be_large),
                cmocka_unit_test(test_garbage_ends_in_unreachable),
                cmocka_unit_test(test_bad_health_ends_in_unreachable),
                cmocka_unit_test(test_health_that_closes_does_not_loop),
                cmocka_unit_test(test_unasked_bytes_close_the_connection),
                cmocka_unit_test(test_two_replies_to_one_request),
                cmocka_unit_test(test_many_calls),
                cmocka_unit_test(test_slow_calls_get_a_connection_each_up_to_the_bound),
                cmocka_unit_test(test_new_numbers_wait_for_an_old_one),
                cmocka_unit_test(test_resent_calls_come_in_rising_order_before_new_ones),
                cmocka_unit_test(test_shutdown_ends_everything),
                cmocka_unit_test(test_any_allocation_may_fail),
                cmocka_unit_test(test_new_fails_cleanly),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
