/* Socket.IO: packets as a table of what they are or why not; the writing side read back; connections of both roles, alone
 * and against each other; hostile announcements; lack of memory at every allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/oom.h"
#include "support/sio_log.h"
#include "wire/sio.h"

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static const agx_sio_bounds bounds = {
        .packet_max = 400,
        .attachments_max = 3,
        .namespace_max = 20,
        .event_max = 20,
        .depth_max = 8,
        .namespaces_max = 4,
        .acks_max = 2,
};
static const uint8_t seed[16] = "sixteen bytes...";

static void put(agx_buf *b, agx_view v)
{
        assert_int_equal(agx_buf_append_view(b, v), 0);
}

static void assert_text(agx_buf *b, const char *want)
{
        size_t max = b->max;

        b->max = SIZE_MAX;
        put(b, AGX_VIEW("\0"));
        b->max = max;
        assert_string_equal((const char *)b->data + b->head, want);
        agx_buf_clear(b);
}

typedef struct row {
        const char *in, *want;
} row;

static void check(const row *rows, size_t n)
{
        for (size_t i = 0; i < n; ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(100000);

                agx_sio_log(&log, &bounds, agx_view_str(rows[i].in));
                put(&log, AGX_VIEW("\0"));
                if (strcmp((const char *)log.data + log.head, rows[i].want) != 0)
                        fail_msg("%s\ngives  %s\nwanted %s", rows[i].in, log.data + log.head, rows[i].want);
        }
}

#define PH0 "{\"_placeholder\":true,\"num\":0}"
#define PH1 "{\"_placeholder\":true,\"num\":1}"
#define PH2 "{\"num\":2,\"_placeholder\":true}"

static void test_packets(void **state)
{
        static const row rows[] = {
                {"0", "{connect /}"},
                {"0/admin,", "{connect /admin}"},
                {"0/admin", "{connect /admin}"},
                {"0/admin,{\"token\":\"x\"}", "{connect /admin ({\"token\":\"x\"})}"},
                {"0{\"sid\":\"a\"}", "{connect / ({\"sid\":\"a\"})}"},
                {"0/,{}", "{connect / ({})}"},
                {"1", "{disconnect /}"},
                {"1/admin,", "{disconnect /admin}"},
                {"2[\"e\"]", "{event / e}"},
                {"2[\"e\",1,{\"a\":[ ]} ,null]", "{event / e (1) ({\"a\":[ ]}) (null)}"},
                {"2/rpc,[\"call\",\"x\"]", "{event /rpc call (\"x\")}"},
                {"2/rpc,12[\"call\"]", "{event /rpc 12 call}"},
                {"20[\"e\"]", "{event / 0 e}"},
                {"29007199254740991[\"e\"]", "{event / 9007199254740991 e}"},
                {"2[\"a\\u0062\\n\"]", "{event / ab\n}"},
                {"2[\"e\"," PH0 "]", "{event / e (" PH0 ")}"}, /* nothing was announced: a value like any other */
                {"3/rpc,7[]", "{ack /rpc 7}"},
                {"30[1,\"b\"]", "{ack / 0 (1) (\"b\")}"},
                {"4/rpc,{\"message\":\"no\"}", "{connect_error /rpc ({\"message\":\"no\"})}"},
                {"4\"no\"", "{connect_error / (\"no\")}"},
                {"4/rpc,", "{connect_error /rpc}"},
                {"51-/rpc,[\"call\"," PH0 "]\n~bytes", "+{event /rpc call (~bytes)}"},
                {"51-[\"e\"," PH0 "]\n~", "+{event / e (~)}"},
                {"52-/rpc,3[\"e\"," PH1 ",\"x\"," PH0 "]\n~AA\n~B", "++{event /rpc 3 e (~B) (\"x\") (~AA)}"},
                {"53-[\"e\"," PH0 "," PH1 "," PH2 "]\n~a\n~bb\n~ccc", "+++{event / e (~a) (~bb) (~ccc)}"},
                {"51-[\"e\",{\"x\":[" PH0 "]}]\n~a", "+{event / e ({\"x\":[" PH0 "]})}"},
                {"51-/,[\"e\\n\"," PH0 "]\n~a", "+{event / e\n (~a)}"},
                {"61-/rpc,4[" PH0 "]\n~a", "+{ack /rpc 4 (~a)}"},
                {"51-[\"e\",{\"_placeholder\":false,\"num\":0}," PH0 "]\n~a",
                 "+{event / e ({\"_placeholder\":false,\"num\":0}) (~a)}"},
                {"2[\"e\"]\n51-[\"f\"," PH0 "]\n~a\n2[\"g\"]", "{event / e}+{event / f (~a)}{event / g}"},
        };

        (void)state;
        check(rows, COUNT(rows));
}

static void test_malformed(void **state)
{
        static const row rows[] = {
                {"", "!"},
                {"7", "!"},
                {"9", "!"},
                {"x", "!"},
                {"-1", "!"},
                {"0[]", "!"},
                {"0\"x\"", "!"},
                {"0null", "!"},
                {"01", "!"},
                {"01{}", "!"},
                {"0{}x", "!"},
                {"0admin", "!"},
                {"1{}", "!"},
                {"1/a,5", "!"},
                {"2", "!"},
                {"2[]", "!"},
                {"2{}", "!"},
                {"2\"e\"", "!"},
                {"2[1]", "!"},
                {"2[null]", "!"},
                {"2[\"e\"", "!"},
                {"2[\"e\",]", "!"},
                {"2[\"e\"]]", "!"},
                {"2[\"e\"][]", "!"},
                {"2[\"connect\"]", "!"},
                {"2[\"connect_error\"]", "!"},
                {"2[\"disconnect\"]", "!"},
                {"2[\"disconnecting\"]", "!"},
                {"2[\"newListener\"]", "!"},
                {"2[\"remove\\u004cistener\"]", "!"},
                {"2/rpc", "!"},
                {"2/rpc,", "!"},
                {"2/rpc[\"e\"]", "!"},
                {"2/a\tb,[\"e\"]", "!"},
                {"2/aaaaaaaaaaaaaaaaaaa,[\"e\"]", "{event /aaaaaaaaaaaaaaaaaaa e}"},
                {"2/aaaaaaaaaaaaaaaaaaaa,[\"e\"]", "!"},
                {"2[\"eeeeeeeeeeeeeeeeeeee\"]", "{event / eeeeeeeeeeeeeeeeeeee}"},
                {"2[\"eeeeeeeeeeeeeeeeeeeee\"]", "!"},
                {"2[\"eeeeeeeeeeeeeeeeeeeee\\n\"]", "!"},
                {"2007[\"e\"]", "!"},
                {"2-1[\"e\"]", "!"},
                {"21.0[\"e\"]", "!"},
                {"29007199254740992[\"e\"]", "!"},
                {"2999999999999999999999999999999[\"e\"]", "!"},
                {"2[\"e\",[[[[[[[1]]]]]]]]", "{event / e ([[[[[[[1]]]]]]])}"},
                {"2[\"e\",[[[[[[[[1]]]]]]]]]", "!"},
                {"3[]", "!"},
                {"3/rpc,[]", "!"},
                {"37", "!"},
                {"37{}", "!"},
                {"41\"no\"", "!"},
                {"4{", "!"},
                /* attachments */
                {"5[\"e\"," PH0 "]", "!"},
                {"5-[\"e\"," PH0 "]", "!"},
                {"50-[\"e\"]", "!"},
                {"5007-[\"e\"]", "!"},
                {"501-[\"e\"," PH0 "]", "!"},
                {"51e3-[\"e\"]", "!"},
                {"5+1-[\"e\"," PH0 "]", "!"},
                {"54-[\"e\"," PH0 "]", "!"},
                {"51000000-[\"e\"," PH0 "]", "!"},
                {"5999999999999999999999999999999-[\"e\"," PH0 "]", "!"},
                {"51[\"e\"," PH0 "]", "!"},
                {"51-[\"e\"]", "!"},
                {"52-[\"e\"," PH0 "]", "!"},
                {"51-[\"e\"," PH0 "," PH1 "]", "!"},
                {"51-[\"e\"," PH1 "]", "!"},
                {"52-[\"e\"," PH0 "," PH0 "]", "!"},
                {"51-[\"e\"," PH0 ",{\"_placeholder\":true}]", "!"},
                {"51-[\"e\",{\"_placeholder\":true,\"num\":-0}]", "!"},
                {"51-[\"e\",{\"_placeholder\":true,\"num\":0.0}]", "!"},
                {"51-[\"e\",{\"_placeholder\":true,\"num\":\"0\"}]", "!"},
                {"51-[\"e\",{\"_placeholder\":1,\"num\":0}]", "!"},
                {"51-[\"e\",{\"_placeholder\":true,\"num\":64}]", "!"},
                {"51-[\"e\",{\"_placeholder\":true,\"num\":18446744073709551616}]", "!"},
                {"61-[" PH0 "]", "!"},
                {"~x", "!"},
                {"2[\"e\"]\n~x", "{event / e}!"},
                {"51-[\"e\"," PH0 "]\n2[\"f\"]", "+!"},
                {"52-[\"e\"," PH0 "," PH1 "]\n~a\n1", "++!"},
                {"51-[\"e\"," PH0 "]\n~a\n~b", "+{event / e (~a)}!"},
                {"7\n2[\"e\"]", "!"},
        };

        (void)state;
        check(rows, COUNT(rows));
}

/* Text and attachments together are bounded, and nothing above the bound is kept. */
static void test_packet_bound(void **state)
{
        static const char text[] = "52-[\"e\"," PH0 "," PH1 "]";
        static char bytes[401];
        size_t left = bounds.packet_max - strlen(text);

        (void)state;
        for (size_t over = 0; over < 4; ++over) {
                _cleanup_(agx_sio_reader_deinitp) agx_sio_reader r;
                agx_sio_packet packet;

                agx_sio_reader_init(&r, &bounds);
                assert_int_equal(agx_sio_packet_read(&r, false, agx_view_str(text), &packet), AGX_SIO_MORE);
                if (over == 1) {
                        assert_int_equal(agx_sio_packet_read(&r, true, agx_view_of(bytes, left + 1), &packet),
                                         AGX_SIO_E_BAD);
                        assert_int_equal(r.bytes.len, 0);
                        continue;
                }
                assert_int_equal(agx_sio_packet_read(&r, true, agx_view_of(bytes, left - 10), &packet), AGX_SIO_MORE);
                assert_int_equal(agx_sio_packet_read(&r, true, agx_view_of(bytes, 10 + (over > 1)), &packet),
                                 over > 1 ? AGX_SIO_E_BAD : 0);
        }
        {
                _cleanup_(agx_sio_reader_deinitp) agx_sio_reader r;
                agx_sio_packet packet;

                agx_sio_reader_init(&r, &bounds);
                assert_int_equal(agx_sio_packet_read(&r, false, agx_view_of(bytes, 401), &packet), AGX_SIO_E_BAD);
                assert_int_equal(agx_sio_packet_read(&r, false, AGX_VIEW("1"), &packet), AGX_SIO_E_BAD); /* final */
        }
}

/* What is announced takes no memory. */
static void test_announced_only(void **state)
{
        agx_sio_bounds wide = bounds;
        agx_sio_packet packet;
        agx_sio_reader r;

        (void)state;
        wide.attachments_max = 1000000; /* held to AGX_SIO_ATTACHMENTS_MAX */
        agx_sio_reader_init(&r, &wide);
        agx_oom_arm(1);
        assert_int_equal(agx_sio_packet_read(&r, false, AGX_VIEW("51000000-[\"e\"]"), &packet), AGX_SIO_E_BAD);
        assert_false(agx_oom_disarm());
        agx_sio_reader_deinit(&r);
        agx_sio_reader_init(&r, &wide);
        assert_int_equal(agx_sio_packet_read(&r, false, AGX_VIEW("565-[\"e\"]"), &packet), AGX_SIO_E_BAD);
        agx_sio_reader_deinit(&r);
}

/* ---- writing ---- */

static void test_write(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        agx_sio_arg args[] = {{.binary = true, .v = AGX_VIEW("raw")},
                              {.v = AGX_VIEW("{\"a\":1}")},
                              {.binary = true, .v = AGX_VIEW("x")}};
        uint64_t id = 12;

        (void)state;
        assert_int_equal(agx_sio_put_connect(&out, AGX_VIEW("/"), AGX_VIEW_NULL), 0);
        assert_text(&out, "0");
        assert_int_equal(agx_sio_put_connect(&out, AGX_VIEW("/rpc"), AGX_VIEW("{\"sid\":\"x\"}")), 0);
        assert_text(&out, "0/rpc,{\"sid\":\"x\"}");
        assert_int_equal(agx_sio_put_connect_error(&out, AGX_VIEW("/rpc"), AGX_VIEW("a \"b\"")), 0);
        assert_text(&out, "4/rpc,{\"message\":\"a \\\"b\\\"\"}");
        assert_int_equal(agx_sio_put_disconnect(&out, AGX_VIEW("/rpc")), 0);
        assert_text(&out, "1/rpc,");
        assert_int_equal(agx_sio_put_event(&out, AGX_VIEW("/"), NULL, AGX_VIEW("e"), NULL, 0), 0);
        assert_text(&out, "2[\"e\"]");
        assert_int_equal(agx_sio_put_event(&out, AGX_VIEW("/rpc"), &id, AGX_VIEW("e\n"), args + 1, 1), 0);
        assert_text(&out, "2/rpc,12[\"e\\n\",{\"a\":1}]");
        assert_int_equal(agx_sio_put_event(&out, AGX_VIEW("/rpc"), NULL, AGX_VIEW("e"), args, 3), 0);
        assert_text(&out, "52-/rpc,[\"e\"," PH0 ",{\"a\":1}," PH1 "]");
        assert_int_equal(agx_sio_put_ack(&out, AGX_VIEW("/rpc"), 3, args, 1), 0);
        assert_text(&out, "61-/rpc,3[" PH0 "]");
        assert_int_equal(agx_sio_put_ack(&out, AGX_VIEW("/"), 0, NULL, 0), 0);
        assert_text(&out, "30[]");
}

static void test_write_refused(void **state)
{
        static const agx_view names[] = {{"", 0}, {"rpc", 3}, {"/a,b", 4}, {"/a\n", 3}, {"/a\x7f", 3}};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        agx_sio_arg arg = {.binary = true};

        (void)state;
        put(&out, AGX_VIEW("before"));
        for (size_t i = 0; i < COUNT(names); ++i) {
                assert_int_equal(agx_sio_put_connect(&out, names[i], AGX_VIEW_NULL), -EINVAL);
                assert_int_equal(agx_sio_put_event(&out, names[i], NULL, AGX_VIEW("e"), NULL, 0), -EINVAL);
                assert_int_equal(agx_sio_put_ack(&out, names[i], 1, NULL, 0), -EINVAL);
                assert_int_equal(agx_sio_put_connect_error(&out, names[i], AGX_VIEW("e")), -EINVAL);
                assert_int_equal(agx_sio_put_disconnect(&out, names[i]), -EINVAL);
        }
        assert_int_equal(agx_sio_put_event(&out, AGX_VIEW("/"), NULL, AGX_VIEW("\xff"), NULL, 0), -EINVAL);
        for (out.max = 6; out.max < 6 + 45; ++out.max)
                assert_int_equal(agx_sio_put_event(&out, AGX_VIEW("/rpc"), NULL, AGX_VIEW("e"), &arg, 1),
                                 out.max < 6 + strlen("51-/rpc,[\"e\"," PH0 "]") ? AGX_BUF_E_FULL : 0),
                        agx_buf_truncate(&out, 6);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("before")));
}

/* ---- connections ---- */

static agx_sio *new_sio(agx_sio_role role)
{
        agx_sio *sio = NULL;

        assert_int_equal(agx_sio_new(&sio, role, &bounds, seed), 0);
        return sio;
}

static agx_sio_kind get(agx_sio *sio, const char *text)
{
        agx_sio_event event;

        if (agx_sio_read(sio, false, agx_view_str(text), &event)) {
                assert_string_not_equal(agx_sio_reason(sio), "no error");
                return (agx_sio_kind)-1;
        }
        return event.kind;
}

static const agx_sio_kind WRONG = (agx_sio_kind)-1;

static void test_server(void **state)
{
        _cleanup_(agx_sio_freep) agx_sio *s = new_sio(AGX_SIO_SERVER);
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        uint64_t id;

        (void)state;
        assert_int_equal(get(s, "2/rpc,[\"e\"]"), AGX_SIO_NOTHING);
        assert_int_equal(agx_sio_emit(s, AGX_VIEW("/rpc"), AGX_VIEW("e"), NULL, 0, NULL, &out), AGX_SIO_E_STATE);
        assert_int_equal(agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{}"), &out), AGX_SIO_E_STATE);
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("/rpc"), AGX_VIEW("{}"), &out), AGX_SIO_E_STATE);
        assert_int_equal(get(s, "0/rpc,{\"session\":\"s\"}"), AGX_SIO_JOIN);
        assert_int_equal(get(s, "2/rpc,[\"e\"]"), AGX_SIO_NOTHING); /* not yet */
        assert_int_equal(agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{\"sid\":\"x\"}"), &out), 0);
        assert_text(&out, "0/rpc,{\"sid\":\"x\"}");
        assert_true(agx_sio_joined(s, AGX_VIEW("/rpc")));
        assert_int_equal(agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{}"), &out), AGX_SIO_E_STATE);
        assert_int_equal(get(s, "2/rpc,[\"e\"]"), AGX_SIO_GOT);
        assert_int_equal(get(s, "2/log,[\"e\"]"), AGX_SIO_NOTHING);
        /* answers */
        for (uint64_t i = 0; i < 2; ++i) {
                assert_int_equal(agx_sio_emit(s, AGX_VIEW("/rpc"), AGX_VIEW("e"), NULL, 0, &id, &out), 0);
                assert_int_equal(id, i);
        }
        assert_text(&out, "2/rpc,0[\"e\"]2/rpc,1[\"e\"]");
        assert_int_equal(agx_sio_emit(s, AGX_VIEW("/rpc"), AGX_VIEW("e"), NULL, 0, &id, &out), AGX_SIO_E_FULL);
        assert_int_equal(get(s, "3/rpc,0[]"), AGX_SIO_ANSWERED);
        assert_int_equal(get(s, "3/rpc,0[]"), AGX_SIO_NOTHING);
        assert_int_equal(get(s, "3/log,1[]"), AGX_SIO_NOTHING);
        assert_int_equal(agx_sio_emit(s, AGX_VIEW("/rpc"), AGX_VIEW("e"), NULL, 0, &id, &out), 0);
        assert_int_equal(id, 2);
        agx_buf_clear(&out);
        assert_int_equal(agx_sio_answer(s, AGX_VIEW("/rpc"), 9, NULL, 0, &out), 0);
        assert_text(&out, "3/rpc,9[]");
        assert_int_equal(agx_sio_answer(s, AGX_VIEW("/log"), 9, NULL, 0, &out), AGX_SIO_E_STATE);
        /* refusing, leaving, coming back */
        assert_int_equal(get(s, "0/no,"), AGX_SIO_JOIN);
        assert_int_equal(agx_sio_refuse(s, AGX_VIEW("/no"), AGX_VIEW("closed"), &out), 0);
        assert_text(&out, "4/no,{\"message\":\"closed\"}");
        assert_int_equal(agx_sio_refuse(s, AGX_VIEW("/no"), AGX_VIEW("closed"), &out), AGX_SIO_E_STATE);
        assert_int_equal(get(s, "1/rpc,"), AGX_SIO_LEFT);
        assert_int_equal(get(s, "1/rpc,"), AGX_SIO_NOTHING);
        assert_int_equal(get(s, "3/rpc,1[]"), AGX_SIO_NOTHING);
        assert_int_equal(get(s, "0/rpc,"), AGX_SIO_JOIN);
        assert_int_equal(agx_sio_leave(s, AGX_VIEW("/rpc"), &out), 0);
        assert_text(&out, "1/rpc,");
        assert_int_equal(agx_sio_leave(s, AGX_VIEW("/rpc"), &out), AGX_SIO_E_STATE);
        assert_int_equal(agx_sio_namespaces(s), 0);
        assert_int_equal(get(s, "4\"no\""), WRONG);
        assert_int_equal(get(s, "0"), WRONG);
}

static void test_server_crowded(void **state)
{
        _cleanup_(agx_sio_freep) agx_sio *s = new_sio(AGX_SIO_SERVER);
        char text[32];

        (void)state;
        for (int i = 0; i < 10; ++i) {
                snprintf(text, sizeof(text), "0/%d,", i);
                assert_int_equal(get(s, text), i < 4 ? AGX_SIO_JOIN : AGX_SIO_CROWDED);
        }
        assert_int_equal(agx_sio_namespaces(s), 4);
        assert_int_equal(get(s, "0/1,"), WRONG);
        assert_string_equal(agx_sio_reason(s), "a namespace asked for twice");
}

static void test_client(void **state)
{
        _cleanup_(agx_sio_freep) agx_sio *s = new_sio(AGX_SIO_CLIENT);
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        (void)state;
        assert_int_equal(get(s, "0/rpc,{\"sid\":\"x\"}"), AGX_SIO_NOTHING); /* left before the answer came */
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("/rpc"), AGX_VIEW("{\"session\":\"s\"}"), &out), 0);
        assert_text(&out, "0/rpc,{\"session\":\"s\"}");
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("/rpc"), AGX_VIEW_NULL, &out), AGX_SIO_E_STATE);
        assert_int_equal(agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{}"), &out), AGX_SIO_E_STATE);
        assert_int_equal(agx_sio_refuse(s, AGX_VIEW("/rpc"), AGX_VIEW("x"), &out), AGX_SIO_E_STATE);
        assert_int_equal(get(s, "2/rpc,[\"e\"]"), AGX_SIO_NOTHING);
        assert_int_equal(agx_sio_emit(s, AGX_VIEW("/rpc"), AGX_VIEW("e"), NULL, 0, NULL, &out), AGX_SIO_E_STATE);
        assert_int_equal(get(s, "0/rpc,{\"sid\":\"x\"}"), AGX_SIO_CONNECTED);
        assert_int_equal(get(s, "2/rpc,[\"e\"]"), AGX_SIO_GOT);
        assert_int_equal(get(s, "4/rpc,\"no\""), AGX_SIO_NOTHING);
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("/log"), AGX_VIEW_NULL, &out), 0);
        assert_int_equal(get(s, "4/log,\"no\""), AGX_SIO_REFUSED);
        assert_int_equal(get(s, "4/log,\"no\""), AGX_SIO_NOTHING);
        assert_int_equal(get(s, "1/rpc,"), AGX_SIO_LEFT);
        for (int i = 0; i < 4; ++i)
                assert_int_equal(agx_sio_connect(s, agx_view_of(&"/1/2/3/4"[2 * i], 2), AGX_VIEW_NULL, &out), 0);
        agx_buf_clear(&out);
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("/5"), AGX_VIEW_NULL, &out), AGX_SIO_E_FULL);
        assert_int_equal(out.len, 0);
        assert_int_equal(agx_sio_connect(s, AGX_VIEW("5"), AGX_VIEW_NULL, &out), -EINVAL);
        assert_int_equal(get(s, "0/1,{\"sid\":\"x\"}"), AGX_SIO_CONNECTED);
        assert_int_equal(get(s, "0/1,{\"sid\":\"x\"}"), WRONG);
}

static void test_client_without_sid(void **state)
{
        _cleanup_(agx_sio_freep) agx_sio *s = new_sio(AGX_SIO_CLIENT);

        (void)state;
        assert_int_equal(get(s, "0"), WRONG); /* an older protocol */
}

/* Sends what `out` holds, and the attachment if there is one, to the other end; logs what it makes of it. */
static void deliver(agx_sio *to, agx_buf *out, const agx_sio_arg *args, size_t n, agx_buf *log)
{
        agx_sio_event event;

        assert_int_equal(agx_sio_read(to, false, agx_buf_view(out), &event), 0);
        for (size_t i = 0; i < n; ++i)
                if (args[i].binary)
                        assert_int_equal(agx_sio_read(to, true, args[i].v, &event), 0);
        if (event.kind == AGX_SIO_NOTHING)
                put(log, AGX_VIEW("nothing"));
        else
                agx_sio_log_packet(log, &event.packet);
        agx_buf_clear(out);
}

static void test_both(void **state)
{
        _cleanup_(agx_sio_freep) agx_sio *s = new_sio(AGX_SIO_SERVER), *c = new_sio(AGX_SIO_CLIENT);
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000), log = AGX_BUF_NULL(1000);
        agx_sio_arg args[] = {{.binary = true, .v = AGX_VIEW("one")},
                              {.v = AGX_VIEW("[2]")},
                              {.binary = true, .v = AGX_VIEW("")}};
        uint64_t id;

        (void)state;
        assert_int_equal(agx_sio_connect(c, AGX_VIEW("/rpc"), AGX_VIEW("{\"session\":1}"), &out), 0);
        deliver(s, &out, NULL, 0, &log);
        assert_text(&log, "{connect /rpc ({\"session\":1})}");
        assert_int_equal(agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{\"sid\":\"q\"}"), &out), 0);
        deliver(c, &out, NULL, 0, &log);
        assert_text(&log, "{connect /rpc ({\"sid\":\"q\"})}");
        assert_int_equal(agx_sio_emit(c, AGX_VIEW("/rpc"), AGX_VIEW("call"), args, 3, &id, &out), 0);
        deliver(s, &out, args, 3, &log);
        assert_text(&log, "{event /rpc 0 call (~one) ([2]) (~)}");
        assert_int_equal(agx_sio_answer(s, AGX_VIEW("/rpc"), 0, args, 1, &out), 0);
        deliver(c, &out, args, 1, &log);
        assert_text(&log, "{ack /rpc 0 (~one)}");
        assert_int_equal(agx_sio_leave(c, AGX_VIEW("/rpc"), &out), 0);
        deliver(s, &out, NULL, 0, &log);
        assert_text(&log, "{disconnect /rpc}");
        assert_int_equal(agx_sio_namespaces(s) + agx_sio_namespaces(c), 0);
}

/* One conversation; whichever allocation fails, it is told and nothing leaks. */
static int talk(void)
{
        _cleanup_(agx_sio_freep) agx_sio *s = NULL, *c = NULL;
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        agx_sio_arg args[] = {{.binary = true, .v = AGX_VIEW("one")}, {.binary = true, .v = AGX_VIEW("two")}};
        agx_sio_event event;
        uint64_t id;
        int r = agx_sio_new(&s, AGX_SIO_SERVER, &bounds, seed);

        r = r ? r : agx_sio_new(&c, AGX_SIO_CLIENT, &bounds, seed);
        r = r ? r : agx_sio_connect(c, AGX_VIEW("/rpc"), AGX_VIEW_NULL, &out);
        r = r ? r : agx_sio_read(s, false, agx_buf_view(&out), &event);
        agx_buf_deinit(&out);
        r = r ? r : agx_sio_accept(s, AGX_VIEW("/rpc"), AGX_VIEW("{}"), &out);
        r = r ? r : agx_sio_read(c, false, agx_buf_view(&out), &event);
        agx_buf_deinit(&out);
        r = r ? r : agx_sio_emit(c, AGX_VIEW("/rpc"), AGX_VIEW("a\nb"), args, 2, &id, &out);
        r = r ? r : agx_sio_read(s, false, agx_buf_view(&out), &event);
        r = r ? r : agx_sio_read(s, true, args[0].v, &event);
        r = r ? r : agx_sio_read(s, true, args[1].v, &event);
        assert_true(r != 0 || event.kind == AGX_SIO_GOT);
        return r;
}

static void test_out_of_memory(void **state)
{
        size_t n = 0;
        int r;

        (void)state;
        do {
                agx_oom_arm(++n);
                r = talk();
                assert_true(r == 0 || r == -ENOMEM);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 10);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_packets),      cmocka_unit_test(test_malformed),
                cmocka_unit_test(test_packet_bound), cmocka_unit_test(test_announced_only),
                cmocka_unit_test(test_write),        cmocka_unit_test(test_write_refused),
                cmocka_unit_test(test_server),       cmocka_unit_test(test_server_crowded),
                cmocka_unit_test(test_client),       cmocka_unit_test(test_client_without_sid),
                cmocka_unit_test(test_both),         cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
