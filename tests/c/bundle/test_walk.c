/* Writing beneath a directory whose insides an enemy has prepared: nothing is written through a link or outside. Both ways of
 * resolving paths, openat2 and one directory at a time, do the same. */
#include "bundle/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

typedef struct scene {
        char path[64];
        int top;  /* holds root and outside */
        int root; /* what may be written to */
} scene;

static void scene_open(scene *s)
{
        snprintf(s->path, sizeof(s->path), "/tmp/agx-walk-XXXXXX");
        assert_non_null(mkdtemp(s->path));
        s->top = open(s->path, O_RDONLY | O_DIRECTORY);
        assert_int_equal(mkdirat(s->top, "root", 0700), 0);
        assert_int_equal(mkdirat(s->top, "outside", 0700), 0);
        s->root = openat(s->top, "root", O_RDONLY | O_DIRECTORY);
        assert_true(s->root >= 0);
}

static void scene_close(scene *s)
{
        close(s->root);
        close(s->top);
        assert_int_equal(agx_walk_remove(AT_FDCWD, s->path), 0);
        assert_int_equal(access(s->path, F_OK), -1);
}

static int create(agx_walk *w, const char *path)
{
        int fd = -1;
        int r = agx_walk_create(w, agx_view_str(path), 0640, &fd);

        if (!r)
                close(fd);
        return r;
}

static mode_t mode_of(const scene *s, const char *path)
{
        struct stat st;

        return fstatat(s->root, path, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_mode;
}

static bool empty_outside(const scene *s)
{
        return unlinkat(s->top, "outside", AT_REMOVEDIR) == 0 && mkdirat(s->top, "outside", 0700) == 0;
}

static void writes(const scene *s, bool stepwise)
{
        _cleanup_(agx_walk_deinitp) agx_walk w;
        char target[32] = "";

        agx_walk_init(&w, s->root, stepwise);
        assert_int_equal(create(&w, "top"), 0);
        assert_int_equal(create(&w, "a/b/c"), 0);
        assert_int_equal(create(&w, "a/b/d"), 0);
        assert_int_equal(mode_of(s, "a/b/c"), S_IFREG | 0640);
        assert_int_equal(mode_of(s, "a/b"), S_IFDIR | 0755);
        assert_int_equal(agx_walk_mkdir(&w, AGX_VIEW("a"), 0711), 0);
        assert_int_equal(mode_of(s, "a"), S_IFDIR | 0711);
        assert_int_equal(agx_walk_mkdir(&w, AGX_VIEW("a/e"), 0777), 0);
        assert_int_equal(mode_of(s, "a/e"), S_IFDIR | 0777);
        assert_int_equal(agx_walk_symlink(&w, AGX_VIEW("a/l"), AGX_VIEW("/nix/x")), 0);
        assert_int_equal(readlinkat(s->root, "a/l", target, sizeof(target)), 6);
        assert_int_equal(agx_walk_link(&w, AGX_VIEW("f/h"), AGX_VIEW("a/b/c")), 0);
        assert_int_equal(mode_of(s, "f/h"), S_IFREG | 0640);
        assert_int_equal(agx_walk_unlink(&w, AGX_VIEW("a/l")), 0);
        assert_int_equal(mode_of(s, "a/l"), 0);
}

static void refuses(const scene *s, bool stepwise)
{
        _cleanup_(agx_walk_deinitp) agx_walk w;
        int r;

        agx_walk_init(&w, s->root, stepwise);
        assert_int_equal(symlinkat("../outside", s->root, "out"), 0);
        assert_int_equal(symlinkat(".", s->root, "in"), 0);
        assert_int_equal(symlinkat("../outside/new", s->root, "dangling"), 0);
        assert_int_equal(symlinkat("/proc/self/root", s->root, "magic"), 0);
        for (size_t i = 0; i < 3; i++) {
                static const char *const ways[] = {"out/x", "in/x", "magic/tmp/agx80"};

                r = create(&w, ways[i]);
                assert_true(r == -ELOOP || r == -ENOTDIR || r == -EXDEV);
                r = agx_walk_mkdir(&w, agx_view_str(ways[i]), 0755);
                assert_true(r == -ELOOP || r == -ENOTDIR || r == -EXDEV);
        }
        assert_int_equal(create(&w, "dangling"), -EEXIST);
        assert_int_equal(create(&w, "out"), -EEXIST);
        assert_int_equal(agx_walk_mkdir(&w, AGX_VIEW("out"), 0777), -ENOTDIR);
        assert_int_equal(agx_walk_symlink(&w, AGX_VIEW("out"), AGX_VIEW("x")), -EEXIST);
        assert_true(agx_walk_link(&w, AGX_VIEW("h"), AGX_VIEW("out/x")) < 0);
        assert_true(create(&w, "../outside/x") < 0);
        assert_true(create(&w, "a/../../outside/x") < 0);
        assert_true(empty_outside(s));
}

/* A directory that was used last and is then replaced is not written to under its name. */
static void keeps_to_what_it_opened(const scene *s, bool stepwise)
{
        _cleanup_(agx_walk_deinitp) agx_walk w;

        agx_walk_init(&w, s->root, stepwise);
        assert_int_equal(create(&w, "kept/a"), 0);
        assert_int_equal(renameat(s->root, "kept", s->root, "moved"), 0);
        assert_int_equal(symlinkat("../outside", s->root, "kept"), 0);
        assert_int_equal(create(&w, "kept/b"), 0);
        assert_int_equal(mode_of(s, "moved/b"), S_IFREG | 0640);
        assert_true(empty_outside(s));
}

static void both(void (*trial)(const scene *s, bool stepwise))
{
        for (int stepwise = 0; stepwise < 2; stepwise++) {
                scene s;

                scene_open(&s);
                trial(&s, stepwise);
                scene_close(&s);
        }
}

static void writes_files(void **state)
{
        (void)state;
        both(writes);
}

static void refuses_links(void **state)
{
        (void)state;
        both(refuses);
}

static void keeps_its_directory(void **state)
{
        (void)state;
        both(keeps_to_what_it_opened);
}

static void removes_without_following(void **state)
{
        scene s;

        (void)state;
        scene_open(&s);
        assert_int_equal(mkdirat(s.root, "d", 0700), 0);
        assert_int_equal(symlinkat("../../outside", s.root, "d/l"), 0);
        assert_int_equal(mkdirat(s.root, "d/closed", 0), 0);
        assert_int_equal(mkdirat(s.top, "outside/kept", 0700), 0);
        assert_int_equal(agx_walk_remove(s.root, "d"), 0);
        assert_int_equal(agx_walk_remove(s.root, "d"), 0);
        assert_int_equal(faccessat(s.top, "outside/kept", F_OK, 0), 0);
        assert_int_equal(mode_of(&s, "d"), 0);
        scene_close(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(writes_files),
                cmocka_unit_test(refuses_links),
                cmocka_unit_test(keeps_its_directory),
                cmocka_unit_test(removes_without_following),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
