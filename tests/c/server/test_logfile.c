/* The logs' files: one after the other, nothing lost between two, and the one that goes is freed bit by bit. */
#include "server/logfile_uv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = AGX_LOG_FILE_BUFFER / 4 };

typedef struct rig {
        char dir[64];
        agx_loop loop;
        uv_timer_t day; /* a loop with nothing to wait for has no turns */
        agx_logfiles logs;
} rig;

static const char *at(const rig *r, const char *end)
{
        static char path[128];

        snprintf(path, sizeof(path), "%s/sandbox-w.log%s", r->dir, end);
        return path;
}

static uint64_t size_of(const char *path)
{
        struct stat info;

        return stat(path, &info) ? 0 : (uint64_t)info.st_size;
}

static uint64_t size_at(int fd)
{
        struct stat info;

        assert_int_equal(fstat(fd, &info), 0);
        return (uint64_t)info.st_size;
}

static void never(uv_timer_t *timer)
{
        (void)timer;
}

static int setup(void **state)
{
        rig *r = calloc(1, sizeof(*r));

        snprintf(r->dir, sizeof(r->dir), "/tmp/agx-logfile-XXXXXX");
        assert_non_null(mkdtemp(r->dir));
        assert_int_equal(agx_loop_init(&r->loop), 0);
        uv_timer_init(&r->loop.uv, &r->day);
        uv_timer_start(&r->day, never, 86400000, 0);
        agx_logfiles_init(&r->logs, &r->loop, r->dir);
        *state = r;
        return 0;
}

static int teardown(void **state)
{
        rig *r = *state;

        agx_logfiles_close(&r->logs);
        uv_close((uv_handle_t *)&r->day, NULL);
        agx_loop_deinit(&r->loop);
        unlink(at(r, ""));
        unlink(at(r, ".1"));
        unlink(at(r, ".kept"));
        assert_int_equal(rmdir(r->dir), 0);
        free(r);
        return 0;
}

/* A turn of the loop in which a chunk is logged. */
static void turn(rig *r)
{
        static const char line[CHUNK] = "x";
        agx_buf *out = agx_logfiles_out(&r->logs, "w");

        assert_non_null(out);
        assert_int_equal(agx_buf_append(out, line, CHUNK), 0);
        uv_run(&r->loop.uv, UV_RUN_NOWAIT);
}

/* Logs until a new file has been begun. */
static void fill(rig *r)
{
        uint64_t before;

        do {
                before = size_of(at(r, ""));
                turn(r);
        } while (size_of(at(r, "")) > before);
}

static void a_full_file_is_kept_once(void **state)
{
        rig *r = *state;

        fill(r);
        assert_int_equal(size_of(at(r, ".1")), AGX_LOG_FILE_BYTES);
        assert_int_equal(size_of(at(r, "")), CHUNK);
        fill(r);
        assert_int_equal(size_of(at(r, ".1")), AGX_LOG_FILE_BYTES);
        assert_int_equal(size_of(at(r, "")), CHUNK);
}

static void the_one_before_shrinks_while_the_newest_grows(void **state)
{
        uint64_t size = AGX_LOG_FILE_BYTES;
        rig *r = *state;
        int fd;

        fill(r);
        fd = open(at(r, ".1"), O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        fill(r);
        for (; size > 2 * CHUNK; size -= 2 * CHUNK) {
                assert_true(size_at(fd) <= size - 2 * CHUNK); /* less, if this took a break */
                turn(r);
        }
        assert_int_equal(r->logs.files[0].replaced, -1);
        assert_int_equal(size_of(at(r, ".1")), AGX_LOG_FILE_BYTES);
        close(fd);
}

/* Output stops when the newest file has just begun: what was replaced goes all the same, bit by bit. */
static void the_one_before_goes_without_output(void **state)
{
        rig *r = *state;
        uint64_t size, before, steps = 0;
        int fd;

        fill(r);
        fd = open(at(r, ".1"), O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        fill(r);
        before = size_at(fd);
        assert_true(before > AGX_LOG_FILE_BYTES / 2);
        while (r->logs.files[0].replaced >= 0) {
                agx_deadline_set(&r->logs.idle, 0); /* as if the time were over */
                uv_run(&r->loop.uv, UV_RUN_NOWAIT);
                size = size_at(fd);
                assert_true(before - size <= AGX_LOG_SHRINK_BYTES);
                before = size;
                assert_true(++steps < 2 * AGX_LOG_FILE_BYTES / AGX_LOG_SHRINK_BYTES);
        }
        assert_true(before <= AGX_LOG_SHRINK_BYTES); /* the last step closes it */
        agx_deadline_set(&r->logs.idle, 0);
        uv_run(&r->loop.uv, UV_RUN_NOWAIT);
        assert_int_equal(r->logs.idle.at, UINT64_MAX); /* and then there is rest */
        assert_int_equal(size_of(at(r, ".1")), AGX_LOG_FILE_BYTES);
        close(fd);
}

static void what_has_another_name_stays_whole(void **state)
{
        char kept[128];
        rig *r = *state;

        fill(r);
        snprintf(kept, sizeof(kept), "%s", at(r, ".kept"));
        assert_int_equal(link(at(r, ".1"), kept), 0);
        fill(r);
        turn(r);
        assert_int_equal(size_of(kept), AGX_LOG_FILE_BYTES);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_full_file_is_kept_once, setup, teardown),
                cmocka_unit_test_setup_teardown(the_one_before_shrinks_while_the_newest_grows, setup, teardown),
                cmocka_unit_test_setup_teardown(the_one_before_goes_without_output, setup, teardown),
                cmocka_unit_test_setup_teardown(what_has_another_name_stays_whole, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
