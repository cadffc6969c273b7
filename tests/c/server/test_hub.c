/* Side channels: who hears what, what waits for whom, how much of it, and what streams say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/hub.h"
#include "support/oom.h"

static const uint8_t seed[16] = {1, 2, 3};
static const size_t items[AGX_HUB_STREAMS] = {100, 100};

typedef struct rig {
        agx_hub hub;
        agx_hub_port a, b;
} rig;

static void rig_open(rig *r)
{
        agx_hub_init(&r->hub, seed, AGX_VIEW("in57ance"), items);
        agx_hub_port_init(&r->a, &r->hub);
        agx_hub_port_init(&r->b, &r->hub);
}

static void rig_close(rig *r)
{
        agx_hub_detach(&r->a);
        agx_hub_detach(&r->b);
        agx_hub_deinit(&r->hub);
}

static const char *frame(rig *r, uint64_t worker, agx_frame_kind kind, const char *nsp, const char *event,
                         agx_view data)
{
        agx_frame f = {.kind = kind, .namespace_ = agx_view_str(nsp), .event = agx_view_str(event), .data = data};
        const char *odd;

        agx_hub_frame(&r->hub, worker, &f, &odd);
        return odd;
}

static void emit(rig *r, const char *nsp, const char *event)
{
        assert_null(frame(r, 1, AGX_FRAME_SIO_EMIT, nsp, event, AGX_VIEW("\xc0")));
}

static int join(agx_hub_port *p, const char *nsp)
{
        return agx_hub_join(p, agx_view_str(nsp), AGX_VIEW_NULL);
}

static void assert_hears(agx_hub_port *p, const char *nsp, const char *event)
{
        agx_hub_saying saying;

        if (!nsp) {
                assert_int_equal(agx_hub_next(p, &saying), AGX_HUB_E_NONE);
                return;
        }
        assert_int_equal(agx_hub_next(p, &saying), 0);
        assert_true(agx_view_eq(saying.nsp, agx_view_str(nsp)));
        assert_true(agx_view_eq(saying.event, agx_view_str(event)));
}

static agx_hub_outcome take(agx_hub_port *p, const char *nsp, const char *event, agx_view payload)
{
        agx_hub_outcome outcome;

        assert_int_equal(agx_hub_take(p, agx_view_str(nsp), agx_view_str(event), payload, &outcome), 0);
        return outcome;
}

static void a_workers_events_go_to_who_has_joined(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(join(&r.a, "/p"), 0);
        assert_int_equal(join(&r.a, "/q"), 0);
        assert_int_equal(join(&r.b, "/p"), 0);
        emit(&r, "/p", "one");
        emit(&r, "/q", "two");
        assert_ptr_equal(agx_hub_due(&r.hub), &r.a);
        assert_ptr_equal(agx_hub_due(&r.hub), &r.b);
        assert_null(agx_hub_due(&r.hub));
        assert_hears(&r.a, "/p", "one");
        assert_hears(&r.a, "/q", "two");
        assert_hears(&r.a, NULL, NULL);
        assert_hears(&r.b, "/p", "one");
        assert_hears(&r.b, NULL, NULL);
        agx_hub_leave(&r.b, AGX_VIEW("/p"));
        emit(&r, "/p", "three");
        assert_hears(&r.b, NULL, NULL);
        assert_hears(&r.a, "/p", "three");
        rig_close(&r);
}

static void events_wait_for_a_host_and_for_the_next_one(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        emit(&r, "/p", "one");
        emit(&r, "/p", "two");
        assert_int_equal(join(&r.a, "/p"), 0);
        assert_hears(&r.a, "/p", "one");
        agx_hub_detach(&r.a); /* "two" was not said */
        assert_int_equal(join(&r.b, "/p"), 0);
        assert_hears(&r.b, "/p", "two");
        assert_hears(&r.b, NULL, NULL);
        rig_close(&r);
}

static void a_hosts_events_wait_for_a_worker(void **state)
{
        agx_hub_outcome outcome;
        agx_frame f;
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(take(&r.a, "/p", "no", AGX_VIEW("\xc0")).todo, AGX_HUB_TODO_NOTE); /* not joined */
        assert_int_equal(join(&r.a, "/p"), 0);
        assert_int_equal(take(&r.a, "/p", "one", AGX_VIEW("\x01")).todo, AGX_HUB_TODO_NOTHING);
        assert_int_equal(take(&r.a, "/p", "two", AGX_VIEW("\x02")).todo, AGX_HUB_TODO_NOTHING);
        assert_false(agx_hub_next_held(&r.hub, 1, &f));
        assert_null(frame(&r, 1, AGX_FRAME_SIO_OPEN, "/p", "", AGX_VIEW("")));
        assert_true(agx_hub_next_held(&r.hub, 1, &f));
        assert_true(agx_view_eq(f.event, AGX_VIEW("one")) && agx_view_eq(f.data, AGX_VIEW("\x01")));
        assert_true(agx_hub_next_held(&r.hub, 1, &f));
        assert_true(agx_view_eq(f.event, AGX_VIEW("two")));
        assert_false(agx_hub_next_held(&r.hub, 1, &f));
        outcome = take(&r.a, "/p", "three", AGX_VIEW("\x03"));
        assert_int_equal(outcome.todo, AGX_HUB_TODO_SEND);
        assert_int_equal(outcome.n_workers, 1);
        assert_int_equal(outcome.workers[0], 1);
        frame(&r, 2, AGX_FRAME_SIO_OPEN, "/p", "", AGX_VIEW("")); /* a newer one; the older is retired */
        assert_int_equal(take(&r.a, "/p", "four", AGX_VIEW("\x03")).workers[0], 2);
        assert_int_equal(take(&r.a, "/p", "ask:result", AGX_VIEW("\x03")).n_workers, 2);
        agx_hub_worker_died(&r.hub, 1);
        agx_hub_worker_died(&r.hub, 2);
        assert_int_equal(take(&r.a, "/p", "five", AGX_VIEW("\x03")).todo, AGX_HUB_TODO_NOTHING);
        rig_close(&r);
}

static void names_that_are_no_plugins(void **state)
{
        static const char *const bad[] = {"/rpc", "/log", "/trace", "plain", "", "/a,b"};
        char name[32];
        rig r;

        (void)state;
        rig_open(&r);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i)
                assert_non_null(frame(&r, 1, AGX_FRAME_SIO_OPEN, bad[i], "", AGX_VIEW("")));
        assert_non_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/p", "", AGX_VIEW("\xc0")));
        for (int i = 0; i < AGX_HUB_OPEN_MAX - 1; ++i) {
                snprintf(name, sizeof(name), "/n%d", i);
                assert_null(frame(&r, 1, AGX_FRAME_SIO_OPEN, name, "", AGX_VIEW("")));
        }
        assert_non_null(frame(&r, 1, AGX_FRAME_SIO_OPEN, "/more", "", AGX_VIEW("")));
        rig_close(&r);
}

static void what_waits_is_bounded_and_the_oldest_goes(void **state)
{
        agx_hub_saying saying;
        bool go;
        rig r;

        (void)state;
        rig_open(&r);
        for (int i = 0; i < AGX_HUB_HELD_EVENTS + 5; ++i)
                emit(&r, "/p", i < 5 ? "old" : "new");
        assert_non_null(r.hub.warning);
        r.hub.warning = NULL;
        assert_int_equal(join(&r.a, "/p"), 0);
        assert_int_equal(r.a.n, AGX_HUB_HELD_EVENTS);
        assert_hears(&r.a, "/p", "new");
        assert_false(agx_hub_flow(&r.hub, &go));
        for (int i = 0; i < AGX_HUB_QUEUE_EVENTS + 5; ++i)
                emit(&r, "/p", "newer");
        assert_int_equal(r.a.n, AGX_HUB_QUEUE_EVENTS);
        assert_non_null(r.hub.warning);
        assert_true(agx_hub_flow(&r.hub, &go));
        assert_false(go);
        assert_false(agx_hub_flow(&r.hub, &go));
        while (!agx_hub_next(&r.a, &saying))
                ;
        assert_true(agx_hub_flow(&r.hub, &go));
        assert_true(go);
        assert_int_equal(r.hub.waiting, 0);
        assert_int_equal(r.hub.waiting_bytes, 0);
        rig_close(&r);
}

static void the_largest_event_makes_room_for_none(void **state)
{
        char *data = calloc(1, (size_t)AGX_EVENT_MAX + 1);
        agx_hub_saying saying;
        rig r;

        (void)state;
        assert_non_null(data);
        rig_open(&r);
        assert_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/p", "large", agx_view_of(data, AGX_EVENT_MAX)));
        for (int i = 0; i < 100; ++i) /* which push it out neither here, where no host has joined, */
                emit(&r, "/p", "small");
        assert_int_equal(join(&r.a, "/p"), 0);
        assert_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/p", "large", agx_view_of(data, AGX_EVENT_MAX)));
        emit(&r, "/p", "small"); /* nor there */
        assert_null(r.hub.warning);
        assert_int_equal(agx_hub_next(&r.a, &saying), 0);
        assert_int_equal(saying.data.n, AGX_EVENT_MAX);
        for (int i = 0; i < 100; ++i)
                assert_hears(&r.a, "/p", "small");
        assert_int_equal(agx_hub_next(&r.a, &saying), 0);
        assert_int_equal(saying.data.n, AGX_EVENT_MAX);
        assert_hears(&r.a, "/p", "small");
        assert_non_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/p", "more", agx_view_of(data, AGX_EVENT_MAX + 1)));
        assert_hears(&r.a, NULL, NULL);
        free(data);
        rig_close(&r);
}

static void a_window_holds_events_back_until_they_are_taken(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        assert_int_equal(agx_hub_join(&r.a, AGX_VIEW("/log"), AGX_VIEW("{\"events\":2}")), 0);
        assert_int_equal(join(&r.a, "/p"), 0);
        for (int i = 0; i < 3; ++i)
                emit(&r, "/p", "e");
        assert_hears(&r.a, "/p", "e");
        assert_hears(&r.a, "/p", "e");
        assert_hears(&r.a, NULL, NULL);
        take(&r.a, "/log", "taken", AGX_VIEW("\x81\xa1n\x02"));
        assert_hears(&r.a, "/p", "e");
        rig_close(&r);
}

static void streams_are_told_acknowledged_and_flushed(void **state)
{
        agx_hub_saying saying;
        rig r;

        (void)state;
        rig_open(&r);
        assert_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/log", "record", AGX_VIEW("\x80")));
        assert_non_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/log", "record", AGX_VIEW("\x80\x80")));
        assert_non_null(frame(&r, 1, AGX_FRAME_SIO_EMIT, "/log", "record", AGX_VIEW("\x91")));
        assert_int_equal(take(&r.a, "/log", "flush", AGX_VIEW("\x80")).todo, AGX_HUB_TODO_NOTE); /* not joined */
        assert_int_equal(agx_hub_join(&r.a, AGX_VIEW("/log"), AGX_VIEW("{\"window\":10,\"after\":9}")), 0);
        assert_hears(&r.a, "/log", "batch");
        assert_int_equal(take(&r.a, "/log", "ack", AGX_VIEW("\x81\xa3seq\x01")).todo, AGX_HUB_TODO_NOTHING);
        assert_int_equal(r.hub.streams[AGX_HUB_LOG].n, 0);
        assert_int_equal(take(&r.a, "/log", "flush", AGX_VIEW("\x81\xa5token\x07")).todo, AGX_HUB_TODO_FLUSH);
        assert_hears(&r.a, NULL, NULL);
        agx_hub_flushed(&r.hub);
        assert_ptr_equal(agx_hub_due(&r.hub), &r.a);
        assert_int_equal(agx_hub_next(&r.a, &saying), 0);
        assert_true(agx_view_eq(saying.event, AGX_VIEW("flushed")));
        assert_true(agx_view_eq(saying.data, AGX_VIEW("\x82\xa5token\x07\xa3seq\x01")));
        assert_int_equal(take(&r.a, "/log", "flush", AGX_VIEW("\xc0")).todo, AGX_HUB_TODO_NOTE);
        rig_close(&r);
}

static void who_comes_back_to_this_instance_goes_on(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        frame(&r, 1, AGX_FRAME_SIO_EMIT, "/trace", "", AGX_VIEW("\x80"));
        frame(&r, 1, AGX_FRAME_SIO_EMIT, "/trace", "", AGX_VIEW("\x80"));
        agx_hub_join(&r.a, AGX_VIEW("/trace"), AGX_VIEW("{\"after\":2,\"instance\":\"in57ance\"}"));
        assert_hears(&r.a, NULL, NULL);
        agx_hub_join(&r.b, AGX_VIEW("/trace"), AGX_VIEW("{\"after\":2,\"instance\":\"other\"}"));
        assert_hears(&r.b, "/trace", "batch");
        rig_close(&r);
}

static void whole_life(rig *r)
{
        agx_hub_outcome outcome;
        agx_hub_saying saying;
        agx_frame f;

        rig_open(r);
        frame(r, 1, AGX_FRAME_SIO_EMIT, "/p", "one", AGX_VIEW("\xc0"));
        join(&r->a, "/p");
        join(&r->a, "/q");
        join(&r->a, "/log");
        frame(r, 1, AGX_FRAME_SIO_EMIT, "/p", "two", AGX_VIEW("\xc0"));
        agx_hub_take(&r->a, AGX_VIEW("/q"), AGX_VIEW("x"), AGX_VIEW("\xc0"), &outcome);
        frame(r, 1, AGX_FRAME_SIO_OPEN, "/q", "", AGX_VIEW(""));
        agx_hub_next_held(&r->hub, 1, &f);
        frame(r, 1, AGX_FRAME_SIO_EMIT, "/log", "", AGX_VIEW("\x80"));
        for (int i = 0; i < 4; ++i)
                agx_hub_next(&r->a, &saying);
        rig_close(r);
}

static void memory_fails_anywhere(void **state)
{
        size_t n = 0;
        rig r;

        (void)state;
        do {
                agx_oom_arm(++n);
                whole_life(&r);
        } while (agx_oom_disarm());
        assert_true(n > 10);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_workers_events_go_to_who_has_joined),
                cmocka_unit_test(events_wait_for_a_host_and_for_the_next_one),
                cmocka_unit_test(a_hosts_events_wait_for_a_worker),
                cmocka_unit_test(names_that_are_no_plugins),
                cmocka_unit_test(what_waits_is_bounded_and_the_oldest_goes),
                cmocka_unit_test(the_largest_event_makes_room_for_none),
                cmocka_unit_test(a_window_holds_events_back_until_they_are_taken),
                cmocka_unit_test(streams_are_told_acknowledged_and_flushed),
                cmocka_unit_test(who_comes_back_to_this_instance_goes_on),
                cmocka_unit_test(memory_fails_anywhere),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
