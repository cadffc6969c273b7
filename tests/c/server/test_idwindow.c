/* The window of numbers, beside a list of all numbers seen. */
#include "server/idwindow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { N = 400 };

/* Seen: at or below the first mark, in the list, or so far behind the newest that it fell out. */
static bool saw(const uint64_t *list, size_t n, uint64_t mark, uint32_t size, uint64_t number)
{
        for (size_t i = 0; i < n; ++i)
                if (list[i] == number || (list[i] > number && list[i] - number >= size))
                        return true;
        return number <= mark;
}

static void run(uint32_t size, uint64_t mark, uint64_t spread, uint64_t s)
{
        uint64_t list[N], at = mark + 1;
        agx_idwindow w;

        agx_idwindow_init(&w, size, mark);
        for (size_t n = 0; n < N; ++n) {
                s = s * 6364136223846793005u + 1442695040888963407u;
                at += (s >> 40) % 8 == 0 ? (s >> 33) % spread : 0;
                list[n] = at + (s >> 50) % (2 * size + 2);
                assert_int_equal(agx_idwindow_has(&w, list[n]), saw(list, n, mark, size, list[n]));
                agx_idwindow_add(&w, list[n]);
                for (uint64_t k = 0; k < 4 * (uint64_t)size + 4; k += 1 + size / 8)
                        assert_int_equal(agx_idwindow_has(&w, at + k), saw(list, n + 1, mark, size, at + k));
                assert_true(agx_idwindow_has(&w, mark) && agx_idwindow_has(&w, 0));
        }
}

static void test_beside_a_list(void **state)
{
        static const uint32_t sizes[] = {1, 2, 7, 63, 64, 65, 4095, 4096};

        (void)state;
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); ++i) {
                run(sizes[i], 0, sizes[i] + 1, i + 1);
                run(sizes[i], 123456789012345, 3 * (uint64_t)sizes[i], i + 100);
        }
}

static void test_ends_of_the_numbers(void **state)
{
        agx_idwindow w;

        (void)state;
        agx_idwindow_init(&w, AGX_LEDGER_WINDOW, 0);
        assert_true(agx_idwindow_has(&w, 0));
        assert_false(agx_idwindow_has(&w, 1));
        assert_false(agx_idwindow_has(&w, UINT64_MAX));
        agx_idwindow_add(&w, UINT64_MAX);
        assert_true(agx_idwindow_has(&w, UINT64_MAX));
        assert_true(agx_idwindow_has(&w, UINT64_MAX - AGX_LEDGER_WINDOW));
        for (uint64_t n = UINT64_MAX - AGX_LEDGER_WINDOW + 1; n < UINT64_MAX; ++n)
                assert_false(agx_idwindow_has(&w, n));
        agx_idwindow_add(&w, 5); /* below the mark: nothing happens */
        assert_int_equal(w.newest, UINT64_MAX);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_beside_a_list),
                cmocka_unit_test(test_ends_of_the_numbers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
