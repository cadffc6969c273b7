/* Lines out of bytes at every split, over-long lines in pieces, and the readable tail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/limits.h"
#include "support/guard.h"
#include "support/oom.h"
#include "worker/output.h"

/* Each line, `~` before a continuing one, `+` after a cut one, `|` at its end. */
static void note(agx_buf *log, const agx_output_line *line)
{
        assert_int_equal(agx_buf_printf(log, "%s%.*s%s|", line->continues ? "~" : "", (int)line->text.n, line->text.p,
                                        line->cut ? "+" : ""),
                         0);
}

static void take(agx_output *o, const char *bytes, size_t n, agx_buf *log)
{
        uint8_t *guarded = agx_guard_new(bytes, n);
        agx_view in = agx_view_of(guarded, n);
        agx_output_line line;

        while (agx_output_next(o, &in, &line))
                note(log, &line);
        assert_int_equal(in.n, 0);
        agx_guard_free(guarded, n);
}

static void assert_log(const agx_buf *log, const char *expected)
{
        assert_int_equal(log->len, strlen(expected));
        assert_memory_equal(agx_buf_view(log).p, expected, log->len);
}

static void every_split_gives_the_same_lines(void **state)
{
        static const char text[] = "one\n\ntwo\nthree\xe2\x82\xac\nfour";
        size_t n = sizeof(text) - 1;

        (void)state;
        for (size_t cut = 0; cut <= n; cut++) {
                for (size_t step = 1; step < 4; step++) {
                        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(4096);
                        agx_output_line line;
                        agx_output o;

                        agx_output_init(&o);
                        take(&o, text, cut, &log);
                        for (size_t at = cut; at < n; at += step)
                                take(&o, text + at, at + step < n ? step : n - at, &log);
                        assert_true(agx_output_flush(&o, &line));
                        note(&log, &line);
                        assert_false(agx_output_flush(&o, &line));
                        assert_log(&log, "one||two|three\xe2\x82\xac|four+|");
                        assert_int_equal(o.bytes, n);
                        assert_int_equal(o.lines, 5);
                        agx_output_deinit(&o);
                }
        }
}

static void after_a_flush_the_line_continues(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf log = AGX_BUF_NULL(4096);
        agx_output_line line;
        agx_output o;

        (void)state;
        agx_output_init(&o);
        take(&o, "password: ", 10, &log);
        assert_true(agx_output_flush(&o, &line));
        note(&log, &line);
        take(&o, "ok\nnext\n", 8, &log);
        assert_log(&log, "password: +|~ok|next|");
        agx_output_deinit(&o);
}

static void an_endless_line_comes_in_pieces(void **state)
{
        size_t n = AGX_OUTPUT_LINE * 3 + 10;
        char *text = malloc(n);

        (void)state;
        memset(text, 'x', n);
        for (size_t step = 1000; step <= n; step = step < n ? (step * 7 > n ? n : step * 7) : n + 1) {
                size_t total = 0, pieces = 0;
                agx_output_line line;
                agx_output o;

                agx_output_init(&o);
                for (size_t at = 0; at < n; at += step) {
                        agx_view in = agx_view_of(text + at, at + step < n ? step : n - at);

                        while (agx_output_next(&o, &in, &line)) {
                                assert_int_equal(line.text.n, AGX_OUTPUT_LINE);
                                assert_true(line.cut);
                                assert_int_equal(line.continues, pieces > 0);
                                total += line.text.n;
                                pieces++;
                        }
                }
                assert_true(agx_output_flush(&o, &line));
                assert_int_equal(total + line.text.n, n);
                assert_int_equal(pieces, 3);
                agx_output_deinit(&o);
        }
        free(text);
}

static void without_memory_text_goes_out_all_the_same(void **state)
{
        agx_view in = AGX_VIEW("no newline");
        agx_output_line line;
        agx_output o;

        (void)state;
        agx_output_init(&o);
        agx_oom_arm(1);
        assert_true(agx_output_next(&o, &in, &line));
        assert_true(agx_oom_disarm());
        assert_true(agx_view_eq(line.text, AGX_VIEW("no newline")));
        assert_true(line.cut);
        assert_int_equal(in.n, 0);
        agx_output_deinit(&o);
}

/* ---- the tail ---- */

static void assert_tail(const agx_tail *t, size_t max, const char *expected)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1 << 20);

        assert_int_equal(agx_tail_text(t, max, &text), 0);
        assert_log(&text, expected);
}

static void the_tail_is_readable(void **state)
{
        static const char odd[] = "ok\ttab\n\x1b]0;title\a \xe2\x82\xac \xe2\x82 \xff \0 end\n\n";
        agx_tail t;

        (void)state;
        agx_tail_init(&t);
        assert_tail(&t, 100, "");
        agx_tail_write(&t, agx_view_of(odd, sizeof(odd) - 1));
        assert_tail(&t, 100,
                    "ok\ttab\n\\x1b]0;title\\x07 \xe2\x82\xac \xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd \\x00 end");
        agx_tail_clear(&t);
        assert_tail(&t, 100, "");
        agx_tail_deinit(&t);
        agx_tail_deinit(&t);
}

static void the_tail_starts_at_a_line(void **state)
{
        agx_tail t;

        (void)state;
        agx_tail_init(&t);
        agx_tail_write(&t, AGX_VIEW("first line\nsecond\nthird"));
        assert_tail(&t, 100, "first line\nsecond\nthird");
        assert_tail(&t, 15, "second\nthird");
        assert_tail(&t, 11, "third");
        assert_tail(&t, 3, "ird"); /* a part of a line, where there is no whole one */
        assert_tail(&t, 0, "");
        agx_tail_deinit(&t);
}

static void the_tail_keeps_only_the_last(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1 << 20);
        size_t n = AGX_OUTPUT_TAIL * 2 + 777;
        char *much = malloc(n);
        agx_tail t;

        (void)state;
        for (size_t i = 0; i < n; i++)
                much[i] = (char)('a' + i % 26);
        agx_tail_init(&t);
        for (size_t step = 1; step < n; step = step * 5 + 1) {
                agx_tail_clear(&t);
                for (size_t at = 0; at < n; at += step)
                        agx_tail_write(&t, agx_view_of(much + at, at + step < n ? step : n - at));
                agx_buf_clear(&text);
                assert_int_equal(agx_tail_text(&t, AGX_OUTPUT_TAIL * 2, &text), 0);
                assert_int_equal(text.len, AGX_OUTPUT_TAIL);
                assert_memory_equal(text.data + text.head, much + n - AGX_OUTPUT_TAIL, AGX_OUTPUT_TAIL);
        }
        agx_tail_deinit(&t);
        free(much);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_split_gives_the_same_lines),
                cmocka_unit_test(after_a_flush_the_line_continues),
                cmocka_unit_test(an_endless_line_comes_in_pieces),
                cmocka_unit_test(without_memory_text_goes_out_all_the_same),
                cmocka_unit_test(the_tail_is_readable),
                cmocka_unit_test(the_tail_starts_at_a_line),
                cmocka_unit_test(the_tail_keeps_only_the_last),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
