/* Lines of the durable file and records of output: what is escaped, how several lines look, templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/logtext.h"
#include "wire/msgpack.h"

static void assert_text(const agx_buf *out, const char *expected)
{
        assert_int_equal(out->len, strlen(expected));
        assert_memory_equal(agx_buf_view(out).p, expected, out->len);
}

static void lines_are_escaped(void **state)
{
        static const struct {
                const char *text, *shown;
        } rows[] = {
                {"", ""},
                {"plain", "plain"},
                {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
                {"\x1b[2J\r\x07\t\x7f", "\\x1b[2J\\x0d\\x07\\x09\\x7f"},
                {"\xc2\x9b", "\\x9b"},
                {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},
                {"\xff a \xe2\x82", "\\xff a \\xe2\\x82"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096), expected = AGX_BUF_NULL(4096);
                agx_log_line line = {.created = 1000000000.25, .fd = 2, .text = agx_view_str(rows[i].text)};

                assert_int_equal(agx_log_put_line(&out, &line), 0);
                assert_int_equal(agx_buf_printf(&expected, "2001-09-09T01:46:40.250Z stderr %s\n%c", rows[i].shown, 0),
                                 0);
                assert_text(&out, (const char *)agx_buf_view(&expected).p);
        }
}

static void put_str(agx_mp_writer *w, const char *key, const char *value)
{
        agx_mp_put_str(w, agx_view_str(key));
        agx_mp_put_str(w, agx_view_str(value));
}

static void records_may_have_several_lines(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf item = AGX_BUF_NULL(4096), out = AGX_BUF_NULL(4096);
        agx_mp_writer w = agx_mp_writer_on(&item);

        (void)state;
        agx_mp_put_map(&w, 5);
        put_str(&w, "name", "a.b");
        put_str(&w, "level", "ERROR");
        put_str(&w, "message", "one\n2001-01-01T00:00:00.000Z forged");
        put_str(&w, "exc_text", "Traceback\n  x\x1b");
        agx_mp_put_str(&w, AGX_VIEW("created"));
        agx_mp_put_float(&w, 0.5);
        assert_int_equal(agx_log_put_record_lines(&out, agx_buf_view(&item)), 0);
        assert_text(&out, "1970-01-01T00:00:00.500Z ERROR a.b one\n    2001-01-01T00:00:00.000Z forged\n"
                          "    Traceback\n      x\\x1b\n");
        agx_buf_clear(&out);
        assert_int_equal(agx_log_put_record_lines(&out, AGX_VIEW("\xc0")), 0);
        assert_text(&out, "a record that cannot be read\n");
}

static void a_record_of_output(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);
        agx_log_line line = {.created = 1,
                             .fd = 1,
                             .text = AGX_VIEW("bad \xff\xe2\x82 text"),
                             .worker_id = AGX_VIEW("0a"),
                             .context = AGX_VIEW("ctx")};
        agx_view v;

        (void)state;
        assert_int_equal(agx_log_put_record(&out, &line), 0);
        v = agx_buf_view(&out);
        assert_non_null(memmem(v.p, v.n, "bad \xef\xbf\xbd\xef\xbf\xbd", 10));
        assert_non_null(memmem(v.p, v.n, "agentix.sandbox.stdout", 22));
}

static void templates(void **state)
{
        static const agx_log_names names = {{"user", 4}, {"host", 4}, {"id7", 3}, 42};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(4096);

        (void)state;
        assert_int_equal(agx_log_expand(&out, AGX_VIEW("{uname}@{hostname}:{pid}/{id} {other} {{id}} {"), &names), 0);
        assert_text(&out, "user@host:42/id7 {other} {id7} {");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines_are_escaped),
                cmocka_unit_test(records_may_have_several_lines),
                cmocka_unit_test(a_record_of_output),
                cmocka_unit_test(templates),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
