/* The rules for a whole head, without the parser in front: it refuses most of this by itself, and must not be the only
 * one that does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/http1_head.h"

enum { FIELDS = 3 };

static const struct {
        const char *fields[FIELDS][2];
        const char *reason; /* NULL: accepted */
} rows[] = {
        {{{"Host", "a"}}, NULL},
        {{{"Host", "a"}, {"content-length", "7"}}, NULL},
        {{{"Host", "a"}, {"TRANSFER-ENCODING", "Chunked"}}, NULL},
        {{{"Content-Length", "7"}}, "no Host"},
        {{{"Host", "a"}, {"Content-Length", "7"}, {"Content-Length", "7"}}, "two lengths"},
        {{{"Host", "a"}, {"Content-Length", ""}}, "a length that is not a number"},
        {{{"Host", "a"}, {"Content-Length", "+7"}}, "a length that is not a number"},
        {{{"Host", "a"}, {"Content-Length", "7 "}}, "a length that is not a number"},
        {{{"Host", "a"}, {"Content-Length", "7,7"}}, "a length that is not a number"},
        {{{"Host", "a"}, {"Content-Length", "18446744073709551616"}}, "a length that is not a number"},
        {{{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Content-Length", "7"}}, "two framings"},
        {{{"Host", "a"}, {"Content-Length", "0"}, {"Transfer-Encoding", "chunked"}}, "two framings"},
        {{{"Host", "a"}, {"Transfer-Encoding", "chunked"}, {"Transfer-Encoding", "chunked"}},
         "two Transfer-Encoding fields"},
        {{{"Host", "a"}, {"Transfer-Encoding", ""}}, "a transfer coding other than chunked"},
        {{{"Host", "a"}, {"Transfer-Encoding", "chunked,"}}, "a transfer coding other than chunked"},
        {{{"Host", "a"}, {"Transfer-Encoding", "gzip, chunked"}}, "a transfer coding other than chunked"},
        {{{"Host", "a"}, {"Transfer-Encoding", "identity"}}, "a transfer coding other than chunked"},
        {{{"Host", "a"}, {"host", "a"}}, "two Host fields"},
        {{{"Host", "a\x80"}}, "a malformed Host"},
};

static void test_requests(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
                agx_http1_field fields[FIELDS];
                agx_http1_head head = {
                        .method = AGX_VIEW("POST"), .target = AGX_VIEW("/"), .http11 = true, .fields = fields};
                const char *reason = NULL;

                for (; head.n_fields < FIELDS && rows[i].fields[head.n_fields][0]; ++head.n_fields)
                        fields[head.n_fields] = (agx_http1_field){agx_view_str(rows[i].fields[head.n_fields][0]),
                                                                  agx_view_str(rows[i].fields[head.n_fields][1])};
                assert_int_equal(agx_http1_judge(&head, AGX_HTTP1_SERVER, &reason),
                                 rows[i].reason ? AGX_HTTP1_E_BAD : 0);
                if (rows[i].reason)
                        assert_string_equal(reason, rows[i].reason);
                else
                        assert_true(head.keep_alive && !reason);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_requests),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
