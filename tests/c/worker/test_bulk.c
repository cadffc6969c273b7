/* Large frames on their way to a worker: what comes of them when all parts are read again, in which order, and what stays behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "proto/frame.h"
#include "proto/limits.h"
#include "worker/bulk.h"

enum { FRAMES_MAX = 64 };

/* Sends part by part and reads what was sent as a worker does. */
typedef struct rig {
        agx_bulk bulk;
        agx_buf out;
        agx_deframer deframer;
        char order[FRAMES_MAX + 1]; /* the first letters of the ids that came */
        size_t n;
} rig;

static void rig_open(rig *r)
{
        memset(r, 0, sizeof(*r));
        r->out = AGX_BUF_NULL(SIZE_MAX);
        agx_bulk_init(&r->bulk);
        agx_deframer_init(&r->deframer, AGX_MAX_MESSAGE);
}

static void rig_close(rig *r)
{
        agx_bulk_deinit(&r->bulk);
        agx_bulk_deinit(&r->bulk);
        agx_buf_deinit(&r->out);
        agx_deframer_deinit(&r->deframer);
}

static char byte_at(size_t i)
{
        return (char)(i * 31 + i / 251);
}

static void push(rig *r, const char *id, size_t n, size_t n_context)
{
        agx_bulk_frame *f = agx_bulk_frame_new(agx_view_str(id));
        char *context = calloc(1, n_context + 1);
        agx_frame frame = {.kind = AGX_FRAME_CALL,
                           .call_id = agx_view_str(id),
                           .callable = AGX_VIEW("m::f"),
                           .context = n_context ? agx_view_of(context, n_context) : AGX_VIEW_NULL};
        uint8_t *place;

        assert_non_null(f);
        assert_int_equal(agx_buf_reserve(&f->body, n, &place), 0);
        for (size_t i = 0; i < n; i++)
                place[i] = (uint8_t)byte_at(i);
        agx_buf_commit(&f->body, n);
        frame.arguments = agx_buf_view(&f->body);
        assert_int_equal(agx_frame_put_head(&f->head, &frame), 0);
        free(context);
        agx_bulk_push(&r->bulk, f);
}

static void came(rig *r, agx_view payload)
{
        agx_frame frame;

        assert_int_equal(agx_frame_parse(payload, &frame), 0);
        assert_in_range(r->n, 0, FRAMES_MAX - 1);
        r->order[r->n++] = frame.kind == AGX_FRAME_CALL     ? frame.call_id.p[0]
                           : frame.kind == AGX_FRAME_CANCEL ? 'x'
                                                            : '.';
        for (size_t i = 0; i < frame.arguments.n; i++)
                assert_int_equal(frame.arguments.p[i], byte_at(i));
}

static void receive(rig *r)
{
        agx_view in = agx_buf_view(&r->out), payload;
        int got;

        while (!(got = agx_deframer_next(&r->deframer, &in, &payload)))
                came(r, payload);
        assert_int_equal(got, AGX_FRAME_E_MORE);
        agx_buf_clear(&r->out);
}

/* False: there is nothing. */
static bool step(rig *r)
{
        agx_view body;
        int error;

        if (!agx_bulk_next(&r->bulk, &r->out, &body, &error)) {
                assert_int_equal(error, 0);
                return false;
        }
        assert_in_range(r->out.len + body.n, 1, AGX_FAST_FRAME_MAX + 1000);
        assert_int_equal(agx_buf_append_view(&r->out, body), 0);
        assert_int_equal(agx_bulk_sent(&r->bulk, &r->out), 0);
        receive(r);
        return true;
}

static size_t steps(rig *r)
{
        size_t n = 0;

        while (step(r))
                n++;
        assert_true(agx_bulk_empty(&r->bulk));
        assert_int_equal(r->bulk.middle_bytes + r->bulk.large_bytes, 0);
        assert_true(agx_deframer_idle(&r->deframer));
        return n;
}

/* Around every size where something changes, with heads that are shorter and longer than a piece. */
static void every_size_comes_whole(void **state)
{
        static const size_t sizes[] = {1,
                                       65536,
                                       AGX_FAST_FRAME_MAX - 60,
                                       AGX_FAST_FRAME_MAX,
                                       AGX_FAST_FRAME_MAX + 1,
                                       2 * AGX_FAST_FRAME_MAX - 200,
                                       5 * AGX_FAST_FRAME_MAX + 7};
        static const size_t contexts[] = {0, 100, AGX_FAST_FRAME_MAX - 100, 3 * AGX_FAST_FRAME_MAX};
        rig r;

        (void)state;
        rig_open(&r);
        for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
                for (size_t j = 0; j < sizeof(contexts) / sizeof(*contexts); j++) {
                        if (!agx_bulk_in_pieces(sizes[i]) && j > 1)
                                continue;
                        push(&r, "a", sizes[i], contexts[j]);
                        assert_true(steps(&r) >= (sizes[i] + contexts[j]) / AGX_FAST_FRAME_MAX);
                        assert_int_equal(r.n, 1);
                        r.n = 0;
                }
        for (size_t n = 2 * AGX_FAST_FRAME_MAX - 120; n < 2 * AGX_FAST_FRAME_MAX; n++) {
                push(&r, "a", n, 0);
                assert_in_range(steps(&r), 2, 3);
                r.n = 0;
        }
        rig_close(&r);
}

static void shorter_ones_go_between_and_large_ones_in_their_order(void **state)
{
        rig r;

        (void)state;
        rig_open(&r);
        push(&r, "L", 4 << 20, 0);
        push(&r, "M", 1 << 20, 0);
        assert_true(step(&r));
        push(&r, "a", 100000, 0);
        push(&r, "b", 100000, 0);
        assert_true(step(&r));
        assert_true(step(&r)); /* a piece, since one has gone before it */
        assert_string_equal(r.order, "a");
        steps(&r);
        assert_string_equal(r.order, "abLM");
        rig_close(&r);
}

static void what_is_put_behind_a_frame_follows_it(void **state)
{
        const agx_frame cancel = {.kind = AGX_FRAME_CANCEL, .call_id = AGX_VIEW("a")};
        const agx_frame shutdown = {.kind = AGX_FRAME_SHUTDOWN};
        rig r;

        (void)state;
        rig_open(&r);
        assert_null(agx_bulk_behind(&r.bulk, AGX_VIEW("a")));
        assert_null(agx_bulk_last(&r.bulk));
        push(&r, "a", 1 << 20, 0);
        push(&r, "b", 1 << 20, 0);
        push(&r, "c", 100000, 0);
        assert_null(agx_bulk_behind(&r.bulk, AGX_VIEW("d")));
        assert_non_null(agx_bulk_behind(&r.bulk, AGX_VIEW("c")));
        assert_int_equal(agx_frame_put(agx_bulk_behind(&r.bulk, AGX_VIEW("a")), &cancel), 0);
        assert_int_equal(agx_frame_put(agx_bulk_last(&r.bulk), &shutdown), 0);
        steps(&r);
        receive(&r);
        assert_string_equal(r.order, "caxb.");
        assert_null(agx_bulk_last(&r.bulk));
        rig_close(&r);
}

static void one_part_is_on_its_way_at_a_time(void **state)
{
        agx_view body;
        int error;
        rig r;

        (void)state;
        rig_open(&r);
        assert_false(agx_bulk_next(&r.bulk, &r.out, &body, &error));
        push(&r, "a", 1 << 20, 0);
        assert_true(agx_bulk_next(&r.bulk, &r.out, &body, &error));
        assert_false(agx_bulk_next(&r.bulk, &r.out, &body, &error));
        assert_int_equal(error, 0);
        rig_close(&r); /* and what has not been sent goes with it */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_size_comes_whole),
                cmocka_unit_test(shorter_ones_go_between_and_large_ones_in_their_order),
                cmocka_unit_test(what_is_put_behind_a_frame_follows_it),
                cmocka_unit_test(one_part_is_on_its_way_at_a_time),
        };

        return cmocka_run_group_tests_name("bulk", tests, NULL, NULL);
}
