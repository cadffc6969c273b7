/* The table of sessions on its own; what it means for calls is in test_ledger.c. */
#include "server/sessions.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static const uint8_t seed[16] = "fifteen letters";

static agx_session *make(agx_sessions *s, const char *name)
{
        agx_session *session;

        assert_int_equal(agx_sessions_make(s, agx_view_str(name), &session), 0);
        agx_sessions_hold(s, session);
        return session;
}

static void test_split(void **state)
{
        static const struct {
                const char *id, *name;
                uint64_t number; /* 0: not of this form */
        } rows[] = {
                {"s-0", "s", 1},
                {"s-1", "s", 2},
                {"a-b-12", "a-b", 13},
                {"--7", "-", 8},
                {"-7", "", 8},
                {"s-18446744073709551614", "s", UINT64_MAX},
                {"s-18446744073709551615", NULL, 0},
                {"s-18446744073709551616", NULL, 0},
                {"s-99999999999999999999999", NULL, 0},
                {"s-00", NULL, 0},
                {"s-01", NULL, 0},
                {"s-", NULL, 0},
                {"s", NULL, 0},
                {"", NULL, 0},
                {"s-1 ", NULL, 0},
                {"s- 1", NULL, 0},
                {"s-+1", NULL, 0},
                {"s-1a", NULL, 0},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); ++i) {
                uint64_t number = 0;
                agx_view name;
                bool is = agx_sessions_split(agx_view_str(rows[i].id), &name, &number);

                assert_int_equal(is, rows[i].number != 0);
                if (is) {
                        assert_true(agx_view_eq(name, agx_view_str(rows[i].name)));
                        assert_true(number == rows[i].number);
                }
        }
}

static void test_room(void **state)
{
        agx_sessions s;
        agx_session *a, *b, *c;

        (void)state;
        agx_sessions_init(&s, seed, 2, 10, 8);
        a = make(&s, "a");
        b = make(&s, "b");
        c = make(&s, "c");
        assert_int_equal(s.by_name.count, 3); /* all hold calls */
        agx_sessions_hold(&s, a);
        agx_sessions_release(&s, a);
        assert_int_equal(s.by_name.count, 3);
        agx_idwindow_add(&b->window, 5);
        agx_sessions_release(&s, b);
        assert_int_equal(s.by_name.count, 2);
        assert_null(agx_sessions_use(&s, AGX_VIEW("b")));
        assert_true(agx_sessions_seen(&s, AGX_VIEW("b-4")));
        assert_false(agx_sessions_seen(&s, AGX_VIEW("b-5")));
        b = make(&s, "b"); /* comes back */
        assert_true(agx_sessions_seen(&s, AGX_VIEW("b-4")));
        assert_false(agx_sessions_seen(&s, AGX_VIEW("b-5")));
        agx_sessions_release(&s, a);
        agx_sessions_release(&s, b);
        agx_sessions_release(&s, c);
        agx_sessions_deinit(&s);
}

static void test_out_of_memory(void **state)
{
        agx_sessions s;
        agx_session *session;
        size_t n = 0;
        int r;

        (void)state;
        agx_sessions_init(&s, seed, 2, 10, 8);
        do {
                agx_oom_arm(++n);
                r = agx_sessions_make(&s, AGX_VIEW("a"), &session);
                assert_true(r == 0 || (r == -ENOMEM && !s.by_name.count && !session));
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
        assert_true(n > 3);
        agx_sessions_deinit(&s); /* with a session in it */
}

/* The last thing that can fail, once everything else was there. */
static void test_out_of_memory_at_the_map(void **state)
{
        agx_sessions s;
        agx_session *session;

        (void)state;
        agx_sessions_init(&s, seed, 2, 10, 8);
        assert_int_equal(agx_idring_reserve(&s.forgotten, 10), 0);
        agx_oom_arm(2);
        assert_int_equal(agx_sessions_make(&s, AGX_VIEW("a"), &session), -ENOMEM);
        assert_true(agx_oom_disarm());
        assert_null(session);
        assert_int_equal(s.by_name.count, 0);
        agx_sessions_deinit(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_split),
                cmocka_unit_test(test_room),
                cmocka_unit_test(test_out_of_memory),
                cmocka_unit_test(test_out_of_memory_at_the_map),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
