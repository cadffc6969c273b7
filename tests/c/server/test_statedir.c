/* A server's own directory: whose it must be, who may hold it, and that nothing of it stays, nor anything outside of it goes. */
#include "base/err.h"
#include "server/statedir_uv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct rig {
        char root[64];
        char dir[128];
        agx_statedir state;
} rig;

static char *at(const rig *r, const char *name)
{
        static char path[4][256];
        static unsigned turn;
        char *out = path[turn++ % 4];

        snprintf(out, sizeof(path[0]), "%s/%s", r->dir, name);
        return out;
}

static void put(const char *path)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        assert_true(fd >= 0);
        close(fd);
}

static int setup(void **state)
{
        rig *r = calloc(1, sizeof(*r));

        snprintf(r->root, sizeof(r->root), "/tmp/agx-statedir-XXXXXX");
        assert_non_null(mkdtemp(r->root));
        snprintf(r->dir, sizeof(r->dir), "%s/uv-1", r->root);
        *state = r;
        return 0;
}

static int teardown(void **state)
{
        rig *r = *state;
        int gone = rmdir(r->root);

        free(r);
        return gone; /* a test that leaves something behind has failed */
}

static void it_is_made_and_goes(void **state)
{
        rig *r = *state;

        assert_int_equal(agx_statedir_init(&r->state, r->dir), 0);
        assert_int_equal(access(at(r, "lock"), F_OK), 0);
        agx_statedir_remove(&r->state);
        assert_int_equal(access(r->dir, F_OK), -1);
        agx_statedir_remove(&r->state);
        agx_statedir_deinit(&r->state);
}

static void a_second_server_is_refused(void **state)
{
        rig *r = *state;
        agx_statedir second;

        assert_int_equal(agx_statedir_init(&r->state, r->dir), 0);
        assert_int_equal(agx_statedir_init(&second, r->dir), AGX_STATEDIR_E_LOCKED);
        agx_statedir_deinit(&second);
        agx_statedir_remove(&r->state);
}

static void a_directory_that_others_can_read_is_refused(void **state)
{
        rig *r = *state;

        assert_int_equal(mkdir(r->dir, 0700), 0);
        assert_int_equal(chmod(r->dir, 0750), 0);
        assert_int_equal(agx_statedir_init(&r->state, r->dir), AGX_STATEDIR_E_FOREIGN);
        agx_statedir_deinit(&r->state);
        assert_int_equal(rmdir(r->dir), 0);
}

static void a_directory_in_other_use_is_refused_and_stays(void **state)
{
        rig *r = *state;

        assert_int_equal(mkdir(r->dir, 0700), 0);
        put(at(r, "token"));
        put(at(r, ".profile"));
        assert_int_equal(agx_statedir_init(&r->state, r->dir), AGX_STATEDIR_E_USED);
        agx_statedir_deinit(&r->state);
        assert_int_equal(unlink(at(r, ".profile")), 0);
        assert_int_equal(agx_statedir_init(&r->state, r->dir), 0);
        agx_statedir_remove(&r->state);
}

static void a_link_is_refused(void **state)
{
        rig *r = *state;

        assert_int_equal(symlink("/tmp", r->dir), 0);
        assert_int_equal(agx_statedir_init(&r->state, r->dir), AGX_STATEDIR_E_FOREIGN);
        agx_statedir_deinit(&r->state);
        assert_int_equal(unlink(r->dir), 0);
}

static void what_the_sandbox_left_goes_and_nothing_else(void **state)
{
        rig *r = *state;
        char outside[128], file[160];

        snprintf(outside, sizeof(outside), "%s/outside", r->root);
        snprintf(file, sizeof(file), "%s/precious", outside);
        assert_int_equal(mkdir(outside, 0755), 0);
        put(file);
        assert_int_equal(agx_statedir_init(&r->state, r->dir), 0);
        assert_int_equal(mkdir(at(r, "work"), 0700), 0);
        assert_int_equal(mkdir(at(r, "work/deep"), 0700), 0);
        put(at(r, "work/deep/file"));
        assert_int_equal(symlink(outside, at(r, "work/link")), 0);
        assert_int_equal(symlink("..", at(r, "work/deep/up")), 0);
        assert_int_equal(chmod(at(r, "work/deep"), 0), 0);
        agx_statedir_remove(&r->state);
        assert_int_equal(access(r->dir, F_OK), -1);
        assert_int_equal(access(file, F_OK), 0);
        assert_int_equal(unlink(file), 0);
        assert_int_equal(rmdir(outside), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(it_is_made_and_goes, setup, teardown),
                cmocka_unit_test_setup_teardown(a_second_server_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(a_directory_that_others_can_read_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(a_directory_in_other_use_is_refused_and_stays, setup, teardown),
                cmocka_unit_test_setup_teardown(a_link_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(what_the_sandbox_left_goes_and_nothing_else, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
