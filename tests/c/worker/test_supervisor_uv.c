/* Several workers at once, as real processes: one that takes calls, and those that were retired. A shell script stands for
 * the interpreter; it says that it is ready and lives until it is sent anything, or, if it is stubborn, until it is killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/reaper.h"
#include "worker/supervisor_uv.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PATIENCE_MS = 60000, DEATHS = 16 };

#define READY "printf '\\014\\000\\000\\000\\201\\244type\\245ready' >&3\n"

static const char obliging[] = "#!/bin/sh\n" READY "dd bs=1 count=1 <&3 >/dev/null 2>&1\n";
static const char stubborn[] = "#!/bin/sh\ntrap '' TERM\n" READY "while :; do sleep 1; done\n";

/* Answers once, so that a spare is wanted; as a spare it waits for a word first. */
#define WAIT "case $3 in *True*) [ \"$(dd bs=8 count=1 <&4 2>/dev/null)\" = wake ] || exit 1;; esac\n"
#define READY_TO_SHARE "printf '\\017\\000\\000\\000\\202\\244type\\245ready\\241n\\001' >&3\n"
#define ANSWER "printf '\\027\\000\\000\\000\\202\\244type\\246result\\247call_id\\241x' >&3\n"
#define LIVE "dd bs=1 count=1 <&3 >/dev/null 2>&1\n"

static const char sharing[] = "#!/bin/sh\n" WAIT READY_TO_SHARE ANSWER LIVE;
static const char useless[] =
        "#!/bin/sh\ncase $3 in *True*) dd bs=8 count=1 <&4 >/dev/null 2>&1; exit 0;; esac\n" READY_TO_SHARE ANSWER LIVE;
static const char gone_early[] = "#!/bin/sh\ncase $3 in *True*) exit 3;; esac\n" READY_TO_SHARE ANSWER LIVE;
static const char talkative[] = "#!/bin/sh\n" READY_TO_SHARE ANSWER LIVE;

typedef struct death {
        uint64_t worker;
        int64_t returncode;
        char message[200];
} death;

typedef struct rig {
        agx_loop loop;
        agx_relay relay;
        agx_deadline patience;
        agx_supervisor_uv supervisor;
        char path[64];
        int null;
        uint64_t ready; /* the worker that was ready last */
        death deaths[DEATHS];
        size_t n_deaths;
        size_t stopped;
} rig;

static void on_ready(void *user, uint64_t worker)
{
        ((rig *)user)->ready = worker;
}

static void on_frame(void *user, uint64_t worker, const agx_frame *frame)
{
        (void)user;
        (void)worker;
        assert_int_equal(frame->kind, AGX_FRAME_RESULT);
}

static void on_died(void *user, uint64_t worker, const agx_fault *fault)
{
        rig *r = user;
        death *d = &r->deaths[r->n_deaths++];

        assert_in_range(r->n_deaths, 1, DEATHS);
        *d = (death){.worker = worker, .returncode = fault->returncode};
        snprintf(d->message, sizeof(d->message), "%.*s", (int)fault->message.n, fault->message.p);
}

static void on_unavailable(void *user, const agx_fault *fault)
{
        (void)user;
        (void)fault;
}

static void on_stopped(void *user)
{
        ((rig *)user)->stopped++;
}

static void on_note(void *user, agx_view line)
{
        (void)user;
        (void)line;
}

static void on_patience(agx_deadline *d)
{
        (void)d;
        fail_msg("it did not happen in time");
}

static void script(rig *r, const char *text)
{
        int fd = open(r->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
        close(fd);
}

static void turn(rig *r)
{
        uv_run(&r->loop.uv, UV_RUN_ONCE);
}

static void wait_ready(rig *r, uint64_t worker)
{
        while (r->ready != worker)
                turn(r);
        assert_non_null(agx_supervisor_uv_ready(&r->supervisor));
        assert_int_equal(agx_supervisor_uv_ready(&r->supervisor)->number, worker);
}

static void wait_deaths(rig *r, size_t n)
{
        while (r->n_deaths < n)
                turn(r);
}

static void rig_open(rig *r, const char *text)
{
        static const agx_supervisor_uv_ops ops = {.ready = on_ready,
                                                  .frame = on_frame,
                                                  .died = on_died,
                                                  .unavailable = on_unavailable,
                                                  .stopped = on_stopped,
                                                  .note = on_note};
        static char *environment[] = {"PATH=/usr/bin:/bin", NULL};
        agx_worker_config config = {
                .environ = environment, .box_id = AGX_VIEW("box"), .nofile_limit = 1024, .spares = true};

        memset(r, 0, sizeof(*r));
        snprintf(r->path, sizeof(r->path), "/tmp/agentix-test-%d", (int)getpid());
        script(r, text);
        config.python = r->path;
        r->null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        assert_int_equal(agx_loop_init(&r->loop), 0);
        assert_int_equal(agx_reaper_start(&r->loop), 0);
        agx_relay_init(&r->relay, &r->loop, r->null, 1 << 16);
        agx_deadline_init(&r->patience, &r->loop, on_patience);
        agx_deadline_set(&r->patience, agx_loop_now(&r->loop) + PATIENCE_MS);
        agx_supervisor_uv_init(&r->supervisor, &r->loop, &r->relay, &config, &ops, r);
        agx_supervisor_uv_start(&r->supervisor);
        wait_ready(r, 1);
}

static void rig_close(rig *r)
{
        agx_supervisor_uv_close(&r->supervisor);
        agx_supervisor_uv_close(&r->supervisor);
        agx_deadline_close(&r->patience, NULL);
        agx_relay_close(&r->relay);
        agx_reaper_stop();
        agx_loop_deinit(&r->loop);
        assert_true(agx_reaper_kill_descendants(1000));
        close(r->null);
        unlink(r->path);
}

static void a_retired_worker_drains_beside_its_successor(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, obliging);
        agx_supervisor_uv_retire(&r.supervisor, 1, 2, 1);
        assert_null(agx_supervisor_uv_ready(&r.supervisor));
        wait_ready(&r, 2);
        assert_int_equal(r.n_deaths, 0);
        assert_int_equal(agx_supervisor_uv_find(&r.supervisor, 1)->number, 1);
        assert_int_equal(agx_supervisor_uv_find(&r.supervisor, 2)->number, 2);
        assert_null(agx_supervisor_uv_find(&r.supervisor, 3));
        agx_supervisor_uv_retire(&r.supervisor, 1, 2, 1); /* it is already */
        agx_supervisor_uv_load(&r.supervisor, 2, 0, 0);   /* that one may well be empty */
        assert_non_null(agx_supervisor_uv_ready(&r.supervisor));
        agx_supervisor_uv_load(&r.supervisor, 1, 0, 0); /* and this one need not stay */
        wait_deaths(&r, 1);
        assert_int_equal(r.deaths[0].worker, 1);
        assert_int_equal(r.deaths[0].returncode, 0);
        assert_null(agx_supervisor_uv_find(&r.supervisor, 1));
        assert_int_equal(agx_supervisor_uv_ready(&r.supervisor)->number, 2);
        rig_close(&r);
}

static void with_nothing_but_overdue_calls_it_is_killed_at_once(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, stubborn);
        agx_supervisor_uv_retire(&r.supervisor, 1, 1, 1);
        wait_deaths(&r, 1);
        assert_int_equal(r.deaths[0].worker, 1);
        assert_int_equal(r.deaths[0].returncode, -9);
        assert_non_null(strstr(r.deaths[0].message, "did not end"));
        wait_ready(&r, 2);
        agx_supervisor_uv_retire(&r.supervisor, 2, 2, 1);
        wait_ready(&r, 3);
        agx_supervisor_uv_load(&r.supervisor, 2, 1, 1);
        wait_deaths(&r, 2);
        assert_int_equal(r.deaths[1].worker, 2);
        assert_int_equal(agx_supervisor_uv_ready(&r.supervisor)->number, 3);
        rig_close(&r);
}

static void there_are_never_too_many(void **state)
{
        uint64_t last = AGX_WORKER_RETIRED_MAX + 2;
        rig r;

        (void)state;
        rig_open(&r, stubborn);
        for (uint64_t worker = 1; worker < last; worker++) {
                agx_supervisor_uv_retire(&r.supervisor, worker, 2, 1);
                wait_ready(&r, worker + 1);
        }
        wait_deaths(&r, 1);
        assert_int_equal(r.n_deaths, 1);
        assert_int_equal(r.deaths[0].worker, 1);
        for (uint64_t worker = 2; worker <= last; worker++)
                assert_non_null(agx_supervisor_uv_find(&r.supervisor, worker));
        rig_close(&r);
}

static void the_end_is_the_end_of_all(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, obliging);
        agx_supervisor_uv_retire(&r.supervisor, 1, 2, 1);
        wait_ready(&r, 2);
        agx_supervisor_uv_retire(&r.supervisor, 2, 2, 1);
        wait_ready(&r, 3);
        agx_supervisor_uv_stop(&r.supervisor);
        assert_int_equal(r.stopped, 0);
        while (!r.stopped)
                turn(&r);
        assert_int_equal(r.n_deaths, 3);
        assert_int_equal(r.stopped, 1);
        rig_close(&r);
}

static void a_retired_worker_may_die_by_itself(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, obliging);
        agx_supervisor_uv_retire(&r.supervisor, 1, 2, 1);
        wait_ready(&r, 2);
        agx_child_kill(&agx_supervisor_uv_find(&r.supervisor, 1)->child, 11, true);
        wait_deaths(&r, 1);
        assert_int_equal(r.deaths[0].returncode, -11);
        assert_int_equal(agx_supervisor_uv_ready(&r.supervisor)->number, 2);
        assert_int_equal(r.supervisor.spawned, 2);
        rig_close(&r);
}

/* ---- spares ---- */

static agx_worker *wait_spare(rig *r)
{
        while (!r->supervisor.spare)
                turn(r);
        return r->supervisor.spare;
}

static void wait_no_spare(rig *r)
{
        while (r->supervisor.spare)
                turn(r);
}

static void kill_worker(agx_worker *w)
{
        agx_child_kill(&w->child, 9, true);
}

static void a_spare_succeeds_a_worker_that_dies(void **state)
{
        rig r;
        uint64_t spare;

        (void)state;
        rig_open(&r, sharing);
        for (uint64_t worker = 1; worker < 6; worker = spare) {
                spare = wait_spare(&r)->number;
                assert_int_equal(spare, worker + 1);
                assert_null(agx_supervisor_uv_find(&r.supervisor, spare));
                assert_non_null(agx_supervisor_uv_each(&r.supervisor, NULL));
                assert_null(agx_supervisor_uv_each(&r.supervisor, agx_supervisor_uv_each(&r.supervisor, NULL)));
                agx_supervisor_uv_ready(&r.supervisor)->worked = true;
                kill_worker(agx_supervisor_uv_ready(&r.supervisor));
                wait_ready(&r, spare);
        }
        assert_int_equal(r.n_deaths, 5);
        rig_close(&r);
}

static void a_retired_worker_has_a_spare_for_successor(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, sharing);
        assert_int_equal(wait_spare(&r)->number, 2);
        agx_supervisor_uv_retire(&r.supervisor, 1, 2, 1);
        wait_ready(&r, 2);
        assert_int_equal(wait_spare(&r)->number, 3);
        agx_supervisor_uv_stop(&r.supervisor);
        while (!r.stopped)
                turn(&r);
        assert_null(r.supervisor.spare);
        assert_int_equal(r.n_deaths, 2);
        rig_close(&r);
}

static void without_an_offer_or_a_wish_there_is_none(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, obliging);
        assert_true(agx_spare_deadline(&r.supervisor.spares) == UINT64_MAX);
        assert_int_equal(r.supervisor.spares.state, AGX_SPARE_NONE);
        rig_close(&r);
}

/* Whichever way it fails, another one comes in its place, and nothing is told of it. */
static void a_spare_that_does_not_wake_is_replaced(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, useless);
        assert_int_equal(wait_spare(&r)->number, 2);
        agx_supervisor_uv_ready(&r.supervisor)->worked = true;
        kill_worker(agx_supervisor_uv_ready(&r.supervisor));
        wait_ready(&r, 3);
        assert_int_equal(r.n_deaths, 1);
        assert_int_equal(r.deaths[0].worker, 1);
        rig_close(&r);
}

static void killed_together_they_are_replaced_by_one(void **state)
{
        rig r;

        (void)state;
        for (int order = 0; order < 2; order++) {
                rig_open(&r, sharing);
                assert_int_equal(wait_spare(&r)->number, 2);
                agx_supervisor_uv_ready(&r.supervisor)->worked = true;
                kill_worker(order ? r.supervisor.spare : r.supervisor.worker);
                kill_worker(order ? r.supervisor.worker : r.supervisor.spare);
                wait_ready(&r, 3);
                assert_int_equal(r.n_deaths, 1);
                rig_close(&r);
        }
}

static void a_spare_that_dies_is_not_replaced_at_once(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, gone_early);
        wait_spare(&r);
        wait_no_spare(&r);
        assert_true(agx_spare_deadline(&r.supervisor.spares) != UINT64_MAX);
        assert_true(r.supervisor.spares.resting);
        assert_int_equal(r.n_deaths, 0);
        agx_supervisor_uv_ready(&r.supervisor)->worked = true;
        kill_worker(agx_supervisor_uv_ready(&r.supervisor));
        wait_ready(&r, 3);
        rig_close(&r);
}

static void a_spare_that_does_not_wait_is_killed(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, talkative);
        wait_spare(&r);
        wait_no_spare(&r);
        assert_int_equal(agx_supervisor_uv_ready(&r.supervisor)->number, 1);
        assert_int_equal(r.n_deaths, 0);
        rig_close(&r);
}

static void at_the_end_a_spare_ends_too(void **state)
{
        rig r;

        (void)state;
        rig_open(&r, sharing);
        wait_spare(&r);
        agx_supervisor_uv_stop(&r.supervisor);
        while (!r.stopped)
                turn(&r);
        assert_null(r.supervisor.spare);
        assert_int_equal(r.n_deaths, 1);
        rig_close(&r);
        rig_open(&r, sharing);
        wait_spare(&r);
        rig_close(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_retired_worker_drains_beside_its_successor),
                cmocka_unit_test(with_nothing_but_overdue_calls_it_is_killed_at_once),
                cmocka_unit_test(there_are_never_too_many),
                cmocka_unit_test(the_end_is_the_end_of_all),
                cmocka_unit_test(a_retired_worker_may_die_by_itself),
                cmocka_unit_test(a_spare_succeeds_a_worker_that_dies),
                cmocka_unit_test(a_retired_worker_has_a_spare_for_successor),
                cmocka_unit_test(without_an_offer_or_a_wish_there_is_none),
                cmocka_unit_test(a_spare_that_does_not_wake_is_replaced),
                cmocka_unit_test(killed_together_they_are_replaced_by_one),
                cmocka_unit_test(a_spare_that_dies_is_not_replaced_at_once),
                cmocka_unit_test(a_spare_that_does_not_wait_is_killed),
                cmocka_unit_test(at_the_end_a_spare_ends_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
