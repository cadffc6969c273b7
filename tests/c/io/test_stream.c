/* Streams over real socket pairs: one write per turn, back-pressure, order, both ends; and the relay that never blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "io/deadline.h"
#include "io/relay.h"
#include "io/stream.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OUT_MAX = 64 << 20 };

typedef struct rig {
        agx_loop loop;
        agx_stream stream;
        int peer;
        agx_buf got;
        unsigned reads, drained, ended, closed;
        int end_error;
} rig;

static rig *rig_of(agx_stream *s)
{
        return agx_container_of(s, rig, stream);
}

static void on_data(agx_stream *s, agx_view in)
{
        rig_of(s)->reads++;
        assert_int_equal(agx_buf_append_view(&rig_of(s)->got, in), 0);
}

static void on_ended(agx_stream *s, int error)
{
        rig_of(s)->ended++;
        rig_of(s)->end_error = error;
}

static void on_drained(agx_stream *s)
{
        rig_of(s)->drained++;
}

static void on_closed(agx_stream *s)
{
        rig_of(s)->closed++;
}

static const agx_stream_ops ops = {.data = on_data, .ended = on_ended, .drained = on_drained, .closed = on_closed};

static void rig_open(rig *r)
{
        int pair[2];

        memset(r, 0, sizeof(*r));
        r->got = AGX_BUF_NULL(OUT_MAX);
        assert_int_equal(agx_loop_init(&r->loop), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        fcntl(pair[1], F_SETFL, O_NONBLOCK);
        r->peer = pair[1];
        agx_stream_init_pipe(&r->stream, &r->loop, OUT_MAX, &ops);
        assert_int_equal(agx_stream_open(&r->stream, pair[0]), 0);
        assert_int_equal(agx_stream_read(&r->stream), 0);
}

static void rig_close(rig *r)
{
        agx_stream_close(&r->stream);
        agx_stream_close(&r->stream);
        agx_loop_deinit(&r->loop);
        assert_int_equal(r->closed, 1);
        agx_buf_deinit(&r->got);
        if (r->peer >= 0)
                close(r->peer);
}

static void turn(rig *r)
{
        uv_run(&r->loop.uv, UV_RUN_NOWAIT);
}

static void writes_of_a_turn_are_one(void **state)
{
        char text[64];
        rig r;

        (void)state;
        rig_open(&r);
        for (int i = 0; i < 3; i++) {
                agx_buf_append(agx_stream_out(&r.stream), "abc", 3);
                agx_stream_touch(&r.stream);
        }
        assert_int_equal(agx_stream_queued(&r.stream), 9);
        assert_true(recv(r.peer, text, sizeof(text), 0) < 0);
        turn(&r);
        assert_int_equal(recv(r.peer, text, sizeof(text), 0), 9);
        assert_int_equal(agx_stream_queued(&r.stream), 0);
        assert_int_equal(r.drained, 1);
        rig_close(&r);
}

/* Sends `n` bytes in mixed ways against a reader of `bite` bytes a turn, and checks every byte. */
static void pump(rig *r, size_t n, size_t bite)
{
        char *all = malloc(n), *back = malloc(n);
        size_t at = 0, got = 0;
        bool done;

        for (size_t i = 0; i < n; i++)
                all[i] = (char)(i * 31 + i / 251);
        for (size_t step = 1; got < n; step = step * 3 % 100003 + 1) {
                size_t part = step < n - at ? step : n - at;
                ssize_t m;

                if (part && step % 5 == 3 && !agx_stream_writing(&r->stream)) {
                        unsigned before = r->drained;

                        agx_stream_lend(&r->stream, agx_view_of(all + at, part));
                        assert_true(agx_stream_writing(&r->stream));
                        assert_int_equal(r->drained, before); /* in a later turn */
                } else if (part && step % 7 == 4) {
                        assert_int_equal(agx_stream_send_part(&r->stream, agx_view_of(all + at, part), 100, &part), 0);
                } else if (part && step % 2) {
                        assert_int_equal(agx_stream_send(&r->stream, agx_view_of(all + at, part), &done), 0);
                } else if (part) {
                        assert_int_equal(agx_buf_append(agx_stream_out(&r->stream), all + at, part), 0);
                        agx_stream_touch(&r->stream);
                }
                at += part;
                turn(r);
                m = recv(r->peer, back + got, bite < n - got ? bite : n - got, 0);
                got += m > 0 ? (size_t)m : 0;
        }
        assert_memory_equal(all, back, n);
        turn(r);
        assert_int_equal(agx_stream_queued(&r->stream), 0);
        free(all);
        free(back);
}

/* Of what the kernel does not take only a little is copied; then it is said when there is room. */
static void a_part_is_queued(void **state)
{
        static char much[8 << 20];
        size_t taken, got = 0;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_stream_send_part(&r.stream, AGX_VIEW("abc"), 100, &taken), 0);
        assert_int_equal(taken, 3);
        assert_int_equal(agx_stream_queued(&r.stream), 0);
        assert_int_equal(agx_stream_send_part(&r.stream, agx_view_of(much, sizeof(much)), 100, &taken), 0);
        assert_in_range(taken, 101, sizeof(much) - 1);
        assert_int_equal(agx_stream_queued(&r.stream), 100);
        for (r.drained = 0; !r.drained;) {
                ssize_t m;

                turn(&r);
                m = recv(r.peer, much, sizeof(much), 0);
                got += m > 0 ? (size_t)m : 0;
        }
        while (got < taken + 3) {
                ssize_t m = recv(r.peer, much, sizeof(much), 0);

                assert_true(m > 0);
                got += (size_t)m;
        }
        assert_int_equal(got, taken + 3);
        rig_close(&r);
}

static void a_slow_reader_gets_everything_in_order(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        pump(&r, 5 << 20, 7001);
        rig_close(&r);
}

static void a_quick_reader_too(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        pump(&r, 5 << 20, 1 << 20);
        rig_close(&r);
}

/* Nobody takes it: it may be freed when the stream is closed, whether that was lost before or not. */
static void what_was_lent_is_free_with_the_stream(void **state)
{
        enum { MUCH = 8 << 20 };

        (void)state;
        signal(SIGPIPE, SIG_IGN);
        for (int i = 0; i < 4; i++) {
                char *much = malloc(MUCH);
                rig r;

                assert_non_null(much);
                memset(much, 'x', MUCH);
                rig_open(&r);
                if (i % 2) {
                        close(r.peer);
                        r.peer = -1;
                }
                agx_stream_lend(&r.stream, agx_view_of(much, MUCH));
                if (i / 2)
                        for (int turns = 0; turns < 3; turns++)
                                turn(&r);
                rig_close(&r);
                free(much);
        }
}

static void what_is_queued_goes_out_before_the_end(void **state)
{
        char *much = calloc(1, 2 << 20), *back = malloc(2 << 20);
        size_t got = 0;
        ssize_t n = 1;
        rig r;

        (void)state;
        rig_open(&r);
        agx_buf_append(agx_stream_out(&r.stream), much, 2 << 20);
        agx_stream_shutdown(&r.stream);
        while (n) {
                turn(&r);
                n = recv(r.peer, back, 2 << 20, 0);
                got += n > 0 ? (size_t)n : 0;
        }
        assert_int_equal(got, 2 << 20);
        rig_close(&r);
        free(much);
        free(back);
}

static void a_stream_that_is_read_in_pieces_lets_others_have_their_turn(void **state)
{
        enum { PIECE = 4096, PIECES = 12 };
        char text[PIECE * PIECES + 1] = "";
        rig r;

        (void)state;
        rig_open(&r);
        agx_stream_read_pieces(&r.stream, PIECE);
        assert_int_equal(send(r.peer, text, sizeof(text), 0), sizeof(text));
        close(r.peer);
        r.peer = -1;
        for (unsigned i = 1; i <= PIECES; i++) {
                turn(&r);
                assert_int_equal(r.got.len, i * PIECE);
                assert_int_equal(r.ended, 0);
        }
        for (int i = 0; i < 3; i++)
                turn(&r);
        assert_int_equal(r.got.len, sizeof(text));
        assert_int_equal(r.ended, 1);
        assert_int_equal(r.end_error, 0);
        rig_close(&r);
}

static void the_peers_end_is_told_once(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(send(r.peer, "last", 4, 0), 4);
        close(r.peer);
        r.peer = -1;
        for (int i = 0; i < 3; i++)
                turn(&r);
        assert_int_equal(r.got.len, 4);
        assert_int_equal(r.ended, 1);
        assert_int_equal(r.end_error, 0);
        rig_close(&r);
}

static void a_lost_peer_is_told_from_the_loop(void **state)
{
        bool done;
        rig r;

        (void)state;
        signal(SIGPIPE, SIG_IGN);
        rig_open(&r);
        agx_stream_pause(&r.stream);
        close(r.peer);
        r.peer = -1;
        assert_int_equal(agx_stream_send(&r.stream, AGX_VIEW("x"), &done), 0);
        assert_false(done);
        assert_int_equal(r.ended, 0);
        for (int i = 0; i < 3; i++)
                turn(&r);
        assert_int_equal(r.ended, 1);
        rig_close(&r);
}

/* It ended its side, and was to have what is queued; then it went away. */
static void a_peer_that_is_lost_after_its_end_is_told(void **state)
{
        static char much[8 << 20];
        bool done;
        rig r;

        (void)state;
        signal(SIGPIPE, SIG_IGN);
        for (int later = 0; later < 2; later++) {
                rig_open(&r);
                if (later)
                        assert_int_equal(agx_stream_send(&r.stream, agx_view_of(much, sizeof(much)), &done), 0);
                shutdown(r.peer, SHUT_WR);
                turn(&r);
                turn(&r);
                assert_int_equal(r.ended, 1);
                assert_int_equal(r.end_error, 0);
                close(r.peer);
                r.peer = -1;
                if (!later)
                        assert_int_equal(agx_stream_send(&r.stream, AGX_VIEW("x"), &done), 0);
                assert_int_equal(r.ended, 1);
                agx_loop_flush(&r.loop); /* what a turn does, if anything else keeps the loop alive */
                for (int i = 0; i < 3; i++)
                        turn(&r);
                assert_int_equal(r.ended, 2);
                assert_true(r.end_error < 0);
                rig_close(&r);
        }
}

static void a_paused_stream_reads_nothing(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        agx_stream_pause(&r.stream);
        assert_int_equal(send(r.peer, "abc", 3, 0), 3);
        turn(&r);
        assert_int_equal(r.got.len, 0);
        agx_stream_drain(&r.stream, 100);
        assert_int_equal(r.got.len, 3);
        assert_int_equal(send(r.peer, "def", 3, 0), 3);
        assert_int_equal(agx_stream_read(&r.stream), 0);
        turn(&r);
        assert_int_equal(r.got.len, 6);
        rig_close(&r);
}

static void the_ceiling_holds(void **state)
{
        bool done;
        rig r;

        (void)state;
        rig_open(&r);
        r.stream.out.max = 1000;
        r.stream.sending.max = 1000;
        while (!agx_stream_send(&r.stream, AGX_VIEW("0123456789"), &done) && done)
                ;
        while (!agx_stream_send(&r.stream, AGX_VIEW("0123456789"), &done))
                assert_true(agx_stream_queued(&r.stream) <= 1000);
        assert_int_equal(agx_stream_queued(&r.stream), 1000);
        rig_close(&r);
}

/* ---- deadlines ---- */

typedef struct bell {
        agx_deadline deadline;
        unsigned rung;
} bell;

static void on_bell(agx_deadline *d)
{
        agx_container_of(d, bell, deadline)->rung++;
        agx_loop_stop(agx_container_of(d->timer.loop, agx_loop, uv));
}

static void a_deadline_moves_both_ways(void **state)
{
        agx_loop loop;
        bell b = {.rung = 0};
        uint64_t start;

        (void)state;
        assert_int_equal(agx_loop_init(&loop), 0);
        agx_deadline_init(&b.deadline, &loop, on_bell);
        start = agx_loop_now(&loop);
        agx_deadline_set(&b.deadline, start + 20);
        agx_deadline_set(&b.deadline, start + 60); /* later: the timer goes off too early and is set anew */
        agx_loop_run(&loop);
        assert_int_equal(b.rung, 1);
        assert_true(agx_loop_now(&loop) - start >= 60);
        agx_deadline_set(&b.deadline, start + 100000);
        agx_deadline_set(&b.deadline, agx_loop_now(&loop) + 10); /* earlier */
        agx_loop_run(&loop);
        assert_int_equal(b.rung, 2);
        assert_true(agx_loop_now(&loop) - start < 5000);
        agx_deadline_set(&b.deadline, agx_loop_now(&loop) + 10);
        agx_deadline_set(&b.deadline, UINT64_MAX);
        agx_loop_run(&loop); /* nothing is left to wait for once the timer has gone off in vain */
        assert_int_equal(b.rung, 2);
        agx_deadline_close(&b.deadline, NULL);
        agx_loop_deinit(&loop);
}

/* ---- the relay ---- */

static void a_relay_drops_and_counts_what_nobody_reads(void **state)
{
        char line[1000], *back = malloc(4 << 20);
        size_t lines = 0, got = 0;
        int ends[2];
        agx_loop loop;
        agx_relay relay;
        agx_deadline life;
        ssize_t n;

        (void)state;
        assert_int_equal(agx_loop_init(&loop), 0);
        agx_deadline_init(&life, &loop, on_bell); /* a relay alone does not keep a loop running */
        agx_deadline_set(&life, agx_loop_now(&loop) + 1000000);
        assert_int_equal(pipe(ends), 0); /* blocking at both ends */
        memset(line, 'x', sizeof(line));
        agx_relay_init(&relay, &loop, ends[1], 100000);
        for (int i = 0; i < 1000; i++) {
                agx_relay_line(&relay, AGX_VIEW("> "), agx_view_of(line, sizeof(line)));
                uv_run(&loop.uv, UV_RUN_NOWAIT);
        }
        assert_true(relay.dropped_total > 700);
        assert_true(relay.waiting.len <= 100000);
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        for (int i = 0; i < 100; i++) {
                while ((n = read(ends[0], back + got, 4096)) > 0)
                        got += (size_t)n;
                usleep(1000);
                uv_run(&loop.uv, UV_RUN_NOWAIT);
        }
        assert_int_equal(relay.waiting.len, 0);
        assert_int_equal(relay.dropped, 0);
        back[got] = 0;
        for (size_t i = 0; i < got; i++)
                lines += back[i] == '\n';
        assert_int_equal(lines, 1000 - relay.dropped_total + 1);
        assert_non_null(strstr(back, " lines of output dropped"));
        agx_relay_close(&relay);
        agx_deadline_close(&life, NULL);
        agx_loop_deinit(&loop);
        close(ends[0]);
        close(ends[1]);
        free(back);
}

static void a_relay_gives_up_on_a_closed_pipe(void **state)
{
        int ends[2];
        agx_loop loop;
        agx_relay relay;
        agx_deadline life;

        (void)state;
        signal(SIGPIPE, SIG_IGN);
        assert_int_equal(agx_loop_init(&loop), 0);
        assert_int_equal(pipe(ends), 0);
        agx_deadline_init(&life, &loop, on_bell);
        agx_deadline_set(&life, agx_loop_now(&loop) + 1000000);
        close(ends[0]);
        agx_relay_init(&relay, &loop, ends[1], 1000);
        agx_relay_line(&relay, AGX_VIEW(""), AGX_VIEW("x"));
        uv_run(&loop.uv, UV_RUN_NOWAIT);
        assert_true(relay.gone);
        assert_int_equal(relay.waiting.len, 0);
        agx_relay_line(&relay, AGX_VIEW(""), AGX_VIEW("x"));
        assert_int_equal(relay.waiting.len, 0);
        agx_relay_close(&relay);
        agx_deadline_close(&life, NULL);
        agx_loop_deinit(&loop);
        close(ends[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(writes_of_a_turn_are_one),
                cmocka_unit_test(a_part_is_queued),
                cmocka_unit_test(a_slow_reader_gets_everything_in_order),
                cmocka_unit_test(a_quick_reader_too),
                cmocka_unit_test(what_was_lent_is_free_with_the_stream),
                cmocka_unit_test(what_is_queued_goes_out_before_the_end),
                cmocka_unit_test(a_stream_that_is_read_in_pieces_lets_others_have_their_turn),
                cmocka_unit_test(the_peers_end_is_told_once),
                cmocka_unit_test(a_lost_peer_is_told_from_the_loop),
                cmocka_unit_test(a_peer_that_is_lost_after_its_end_is_told),
                cmocka_unit_test(a_paused_stream_reads_nothing),
                cmocka_unit_test(the_ceiling_holds),
                cmocka_unit_test(a_deadline_moves_both_ways),
                cmocka_unit_test(a_relay_drops_and_counts_what_nobody_reads),
                cmocka_unit_test(a_relay_gives_up_on_a_closed_pipe),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
