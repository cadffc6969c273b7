/* The opening of a conduit against answers of all kinds, at every split: when it is open, and who is told the token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "client/conduit.h"
#include "proto/limits.h"
#include "proto/proof.h"
#include "support/oom.h"

#define NAME "0123456789abcdef0123456789abcdef"
#define TOKEN "a-secret"
#define INSTANCE "cafe"
#define HEALTH "{\"status\": \"ok\", \"version\": \"1\", \"instance\": \"" INSTANCE "\"}"
#define SWITCHED "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: agentix-conduit\r\n\r\n"

static const uint8_t nonce[AGX_CLIENT_NONCE_BYTES] = {1, 2, 3};

typedef struct rig {
        agx_conduit conduit;
        char said[4096];
        size_t n;
} rig;

static void listen(rig *r)
{
        agx_view out = agx_conduit_pending(&r->conduit);

        assert_true(r->n + out.n < sizeof(r->said));
        if (out.n)
                memcpy(r->said + r->n, out.p, out.n);
        r->n += out.n;
        r->said[r->n] = '\0';
        agx_conduit_sent(&r->conduit, out.n);
}

static void rig_open(rig *r, const char *token, bool secure)
{
        agx_client_config config = {.host = AGX_VIEW("box:1"),
                                    .prefix = AGX_VIEW("/p"),
                                    .headers = AGX_VIEW("X: y\r\n"),
                                    .token = token ? agx_view_str(token) : AGX_VIEW_NULL,
                                    .secure = secure};

        *r = (rig){.n = 0};
        assert_int_equal(agx_conduit_init(&r->conduit, &config, AGX_VIEW(NAME), nonce), 0);
        listen(r);
}

static void rig_close(rig *r)
{
        agx_conduit_deinit(&r->conduit);
        agx_conduit_deinit(&r->conduit);
}

/* Gives an answer in two parts; what came of it. */
static int give(rig *r, const char *text, size_t cut)
{
        agx_view in = agx_view_str(text), first = agx_view_first(in, cut);
        int result = agx_conduit_input(&r->conduit, first);

        if (!result && cut < in.n)
                result = agx_conduit_input(&r->conduit, agx_view_from(in, cut));
        if (result >= 0)
                listen(r);
        return result;
}

static void health(char *text, size_t size, const char *token)
{
        char proof[AGX_PROOF_CHARS + 1] = "";

        if (token)
                agx_proof_make(agx_view_str(token), nonce, AGX_VIEW(INSTANCE), proof);
        snprintf(text, size, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n%s%s%s\r\n" HEALTH, sizeof(HEALTH) - 1,
                 token ? "Agentix-Proof: " : "", proof, token ? "\r\n" : "");
}

static void it_opens_at_every_split(void **state)
{
        static const char *const tokens[] = {NULL, TOKEN};
        char text[512];

        (void)state;
        for (size_t i = 0; i < 2; i++) {
                health(text, sizeof(text), tokens[i]);
                for (size_t cut = 0; cut <= strlen(text); cut++) {
                        rig r;

                        rig_open(&r, tokens[i], false);
                        assert_non_null(strstr(r.said, "GET /p/health HTTP/1.1\r\n"));
                        assert_null(strstr(r.said, TOKEN));
                        assert_null(strstr(r.said, "/conduit"));
                        assert_int_equal(give(&r, text, cut), 0);
                        assert_non_null(strstr(r.said, "GET /p/conduit?name=" NAME " HTTP/1.1\r\n"));
                        assert_non_null(strstr(r.said, "\r\nHost: box:1\r\n"));
                        assert_non_null(strstr(r.said, "X: y\r\n"));
                        assert_non_null(strstr(r.said, "\r\nUpgrade: agentix-conduit\r\n"));
                        assert_int_equal(strstr(r.said, "Authorization: Bearer " TOKEN "\r\n") != NULL, i);
                        assert_int_equal(give(&r, SWITCHED, cut % sizeof(SWITCHED)), AGX_CONDUIT_E_OPEN);
                        rig_close(&r);
                }
        }
}

static void a_stranger_is_not_told_the_token(void **state)
{
        static const char *const wrong[] = {NULL, "another"};
        char text[512];
        rig r;

        (void)state;
        for (size_t i = 0; i < 2; i++) {
                health(text, sizeof(text), wrong[i]);
                rig_open(&r, TOKEN, false);
                assert_int_equal(give(&r, text, 0), AGX_CONDUIT_E_BROKEN);
                assert_non_null(strstr(r.conduit.why, "did not prove"));
                assert_null(strstr(r.said, TOKEN));
                assert_int_equal(agx_conduit_pending(&r.conduit).n, 0);
                rig_close(&r);
        }
        health(text, sizeof(text), NULL); /* the certificate has proved it */
        rig_open(&r, TOKEN, true);
        assert_int_equal(give(&r, text, 0), 0);
        assert_non_null(strstr(r.said, TOKEN));
        rig_close(&r);
}

static void what_is_no_runtime_is_left(void **state)
{
        static const char *const texts[] = {
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                ("HTTP/1.1 200 OK\r\nContent-Length: 52\r\nConnection: close\r\n\r\n" HEALTH),
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
                "SSH-2.0-x\r\n\r\n",
        };
        char text[512];
        rig r;

        (void)state;
        for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
                rig_open(&r, NULL, false);
                assert_int_equal(give(&r, texts[i], 0), AGX_CONDUIT_E_BROKEN);
                assert_null(strstr(r.said, "/conduit"));
                rig_close(&r);
        }
        health(text, sizeof(text), NULL);
        text[strlen(text) + 1] = '\0';
        text[strlen(text)] = 'H'; /* it speaks before it is asked */
        rig_open(&r, NULL, false);
        assert_int_equal(give(&r, text, 0), AGX_CONDUIT_E_BROKEN);
        rig_close(&r);
}

static void answers_to_the_request(void **state)
{
        static const struct {
                const char *text;
                int result;
                unsigned status;
        } rows[] = {
                {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", AGX_CONDUIT_E_REFUSED, 404},
                {"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", AGX_CONDUIT_E_REFUSED, 503},
                {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", AGX_CONDUIT_E_REFUSED, 200},
                {SWITCHED "x", AGX_CONDUIT_E_BROKEN, 101},
                {"what?\r\n\r\n", AGX_CONDUIT_E_BROKEN, 0},
                {"HTTP/1.1 101 S\r\nconnection: x, upgrade\r\nupgrade: Agentix-Conduit\r\n\r\n", AGX_CONDUIT_E_OPEN,
                 101},
                {"HTTP/1.1 101 S\r\n\r\n", AGX_CONDUIT_E_BROKEN, 101},
                {"HTTP/1.1 101 S\r\nConnection: Upgrade\r\n\r\n", AGX_CONDUIT_E_BROKEN, 101},
                {"HTTP/1.1 101 S\r\nUpgrade: agentix-conduit\r\n\r\n", AGX_CONDUIT_E_BROKEN, 101},
                {"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", AGX_CONDUIT_E_BROKEN, 101},
                {"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: agentix-conduit\r\nUpgrade: x\r\n\r\n",
                 AGX_CONDUIT_E_BROKEN, 101},
        };
        char text[512];

        (void)state;
        health(text, sizeof(text), TOKEN);
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                rig r;

                rig_open(&r, TOKEN, false);
                assert_int_equal(give(&r, text, 0), 0);
                assert_int_equal(give(&r, rows[i].text, 0), rows[i].result);
                assert_int_equal(r.conduit.status, rows[i].status);
                rig_close(&r);
        }
}

static void without_memory(void **state)
{
        agx_client_config config = {.host = AGX_VIEW("h"), .token = AGX_VIEW(TOKEN)};
        size_t n = 0;
        bool failed;
        int r;

        (void)state;
        do {
                agx_conduit c;

                agx_oom_arm(++n);
                r = agx_conduit_init(&c, &config, AGX_VIEW(NAME), nonce);
                agx_conduit_deinit(&c);
                failed = agx_oom_disarm();
                assert_int_equal(r, failed ? -ENOMEM : 0);
        } while (failed);
        assert_true(n > 3);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(it_opens_at_every_split),
                cmocka_unit_test(a_stranger_is_not_told_the_token),
                cmocka_unit_test(what_is_no_runtime_is_left),
                cmocka_unit_test(answers_to_the_request),
                cmocka_unit_test(without_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
