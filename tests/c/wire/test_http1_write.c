/* Writing heads: the exact bytes, what is refused, all or nothing at a ceiling, and that our own parser reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"
#include "support/http1_log.h"
#include "support/oom.h"

static int put_response(agx_buf *out)
{
        int r = agx_http1_put_status(out, 404);

        r = r ? r : agx_http1_put_field(out, AGX_VIEW("Content-Type"), AGX_VIEW("text/plain"));
        r = r ? r : agx_http1_put_field(out, AGX_VIEW("X-Empty"), AGX_VIEW(""));
        r = r ? r : agx_http1_put_length(out, 2);
        r = r ? r : agx_http1_put_end(out);
        return r ? r : agx_buf_append(out, "no", 2);
}

static const char response[] = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nX-Empty: \r\n"
                               "Content-Length: 2\r\n\r\nno";

static void test_response(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(1000);
        agx_http1_feed feed = {.role = AGX_HTTP1_CLIENT, .fields = true, .bounds = agx_http1_test_bounds};

        (void)state;
        assert_int_equal(put_response(&out), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), agx_view_str(response)));
        agx_http1_log(&log, &feed, agx_buf_view(&out), 1, 1);
        assert_true(agx_view_eq(agx_buf_view(&log),
                                AGX_VIEW("{404 Content-Type=text/plain|X-Empty=|Content-Length=2|}[no].")));
}

static void test_request(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        (void)state;
        assert_int_equal(agx_http1_put_request(&out, AGX_VIEW("POST"), AGX_VIEW("/call?x=1")), 0);
        assert_int_equal(agx_http1_put_length(&out, UINT64_MAX), 0);
        assert_int_equal(agx_http1_put_length(&out, 0), 0);
        assert_int_equal(agx_http1_put_end(&out), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("POST /call?x=1 HTTP/1.1\r\n"
                                                             "Content-Length: 18446744073709551615\r\n"
                                                             "Content-Length: 0\r\n\r\n")));
}

static void test_refused(void **state)
{
        static const agx_view bad_values[] = {
                {"a\r\nX: y", 7}, {"a\n", 2}, {"\r", 1}, {"a\0b", 3}, {"\n", 1},
        };
        static const agx_view bad_names[] = {
                {"", 0}, {"a b", 3}, {"a:", 2}, {"a\r", 2}, {"a\n", 2}, {"a\0", 2}, {"\xc3\xa4", 2}, {"a\"", 2},
        };
        static const agx_view bad_targets[] = {
                {"", 0}, {"/a b", 4}, {"/\r\n", 3}, {"/\0", 2}, {"/\xc3\xa4", 3}, {"/\t", 2},
        };
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);

        (void)state;
        for (size_t i = 0; i < sizeof(bad_values) / sizeof(bad_values[0]); ++i)
                assert_int_equal(agx_http1_put_field(&out, AGX_VIEW("X"), bad_values[i]), -EINVAL);
        for (size_t i = 0; i < sizeof(bad_names) / sizeof(bad_names[0]); ++i) {
                assert_int_equal(agx_http1_put_field(&out, bad_names[i], AGX_VIEW("y")), -EINVAL);
                assert_int_equal(agx_http1_put_request(&out, bad_names[i], AGX_VIEW("/")), -EINVAL);
        }
        for (size_t i = 0; i < sizeof(bad_targets) / sizeof(bad_targets[0]); ++i)
                assert_int_equal(agx_http1_put_request(&out, AGX_VIEW("GET"), bad_targets[i]), -EINVAL);
        assert_int_equal(agx_http1_put_status(&out, 99), -EINVAL);
        assert_int_equal(agx_http1_put_status(&out, 1000), -EINVAL);
        assert_int_equal(out.len, 0);
}

static void test_phrases(void **state)
{
        (void)state;
        assert_string_equal(agx_http1_phrase(200), "OK");
        assert_string_equal(agx_http1_phrase(202), "Accepted");
        assert_string_equal(agx_http1_phrase(505), "HTTP Version Not Supported");
        assert_string_equal(agx_http1_phrase(299), "Unknown");
        assert_string_equal(agx_http1_phrase(0), "Unknown");
}

/* Below its full size a buffer holds whole lines only. */
static void test_full(void **state)
{
        (void)state;
        for (size_t max = 0; max < sizeof(response) - 1; ++max) {
                _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(max);
                agx_view got;

                assert_int_equal(put_response(&out), AGX_BUF_E_FULL);
                got = agx_buf_view(&out);
                assert_true(!got.n || got.p[got.n - 1] == '\n');
                assert_true(agx_view_starts(agx_view_str(response), got));
        }
}

static void test_out_of_memory(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1000);
        int r;

        (void)state;
        agx_oom_arm(1);
        r = put_response(&out);
        assert_true(agx_oom_disarm());
        assert_int_equal(r, -ENOMEM);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_response), cmocka_unit_test(test_request), cmocka_unit_test(test_refused),
                cmocka_unit_test(test_phrases),  cmocka_unit_test(test_full),    cmocka_unit_test(test_out_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
