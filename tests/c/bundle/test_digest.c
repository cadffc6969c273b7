/* The digest of a tree changes with each thing that counts and with nothing else. */
#include "bundle/digest.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <utime.h>

#include <cmocka.h>

typedef struct place {
        char path[64];
        int fd;
} place;

static void write_file(int fd, const char *path, const char *text, mode_t mode)
{
        int file = openat(fd, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

        assert_true(file >= 0);
        assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
        assert_int_equal(fchmod(file, mode), 0);
        close(file);
}

static int setup(void **state)
{
        place *p = calloc(1, sizeof(*p));

        memcpy(p->path, "/tmp/agx-digest-XXXXXX", 23);
        if (!mkdtemp(p->path))
                return -1;
        p->fd = open(p->path, O_RDONLY | O_DIRECTORY);
        assert_int_equal(mkdirat(p->fd, "nix", 0755) | mkdirat(p->fd, "nix/a", 0755), 0);
        assert_int_equal(fchmodat(p->fd, "nix", 0755, 0) | fchmodat(p->fd, "nix/a", 0755, 0), 0);
        write_file(p->fd, "nix/a/file", "bytes", 0644);
        write_file(p->fd, "nix/a.x", "", 0755);
        assert_int_equal(symlinkat("a/file", p->fd, "nix/link"), 0);
        *state = p;
        return 0;
}

static int teardown(void **state)
{
        static const char *const names[] = {"nix/a/file", "nix/a/other", "nix/a.x", "nix/link", "nix/pipe"};
        place *p = *state;

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                unlinkat(p->fd, names[i], 0);
        unlinkat(p->fd, "nix/a", AT_REMOVEDIR);
        unlinkat(p->fd, "nix", AT_REMOVEDIR);
        close(p->fd);
        rmdir(p->path);
        free(p);
        return 0;
}

static void digest(place *p, char out[AGX_DIGEST_SIZE])
{
        assert_int_equal(agx_digest_tree(p->fd, "nix", AGX_VIEW_NULL, out), 0);
        assert_true(agx_digest_is(agx_view_str(out)));
}

static void has_a_fixed_value(void **state)
{
        char got[AGX_DIGEST_SIZE];

        digest(*state, got);
        /* printf 'd 0755 3:nix\nd 0755 5:nix/a\nf 0644 10:nix/a/file HASH\nf 0755 7:nix/a.x HASH\nl 8:nix/link 6:a/file\n' | sha256sum */
        assert_string_equal(got, "sha256:0eaf8eab4d8d9bfa4ccfa87c7cdcbd35f3aab4e743a3835c00dd526ca2934786");
}

static void counts_what_is_added(void **state)
{
        place *p = *state;
        char plain[AGX_DIGEST_SIZE], more[AGX_DIGEST_SIZE];

        digest(p, plain);
        assert_int_equal(agx_digest_tree(p->fd, "nix", AGX_VIEW("m name 1:x\n"), more), 0);
        /* the same lines with that one behind them */
        assert_string_equal(more, "sha256:971afde0c9dd14912eb4c9007efa54e1ab0bc50e59bf18c8085db2d3273e0324");
        assert_string_not_equal(plain, more);
}

static void is_blind_to_times_and_hard_links(void **state)
{
        place *p = *state;
        char before[AGX_DIGEST_SIZE], after[AGX_DIGEST_SIZE], path[96];

        write_file(p->fd, "nix/a/other", "bytes", 0644);
        digest(p, before);
        snprintf(path, sizeof(path), "%s/nix/a/file", p->path);
        assert_int_equal(utime(path, &(struct utimbuf){1, 1}), 0);
        assert_int_equal(unlinkat(p->fd, "nix/a/other", 0), 0);
        assert_int_equal(linkat(p->fd, "nix/a/file", p->fd, "nix/a/other", 0), 0);
        digest(p, after);
        assert_string_equal(before, after);
}

static void sees_what_counts(void **state)
{
        place *p = *state;
        char seen[6][AGX_DIGEST_SIZE];

        digest(p, seen[0]);
        write_file(p->fd, "nix/a/file", "bytez", 0644);
        digest(p, seen[1]);
        write_file(p->fd, "nix/a/file", "bytes", 0755);
        digest(p, seen[2]);
        write_file(p->fd, "nix/a/file", "bytes", 0644);
        assert_int_equal(renameat(p->fd, "nix/a/file", p->fd, "nix/a/other"), 0);
        digest(p, seen[3]);
        assert_int_equal(renameat(p->fd, "nix/a/other", p->fd, "nix/a/file"), 0);
        assert_int_equal(unlinkat(p->fd, "nix/link", 0), 0);
        assert_int_equal(symlinkat("a/gone", p->fd, "nix/link"), 0);
        digest(p, seen[4]);
        assert_int_equal(fchmodat(p->fd, "nix/a", 0700, 0), 0);
        digest(p, seen[5]);
        for (size_t i = 0; i < 6; i++)
                for (size_t j = 0; j < i; j++)
                        assert_string_not_equal(seen[i], seen[j]);
}

static void refuses_what_is_no_part_of_a_bundle(void **state)
{
        place *p = *state;
        char out[AGX_DIGEST_SIZE];

        assert_int_equal(mkfifoat(p->fd, "nix/pipe", 0600), 0);
        assert_int_equal(agx_digest_tree(p->fd, "nix", AGX_VIEW_NULL, out), AGX_DIGEST_E_KIND);
        assert_true(agx_digest_tree(p->fd, "nix/link", AGX_VIEW_NULL, out) < 0);
        assert_int_equal(agx_digest_tree(p->fd, "gone", AGX_VIEW_NULL, out), -ENOENT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(has_a_fixed_value, setup, teardown),
                cmocka_unit_test_setup_teardown(counts_what_is_added, setup, teardown),
                cmocka_unit_test_setup_teardown(is_blind_to_times_and_hard_links, setup, teardown),
                cmocka_unit_test_setup_teardown(sees_what_counts, setup, teardown),
                cmocka_unit_test_setup_teardown(refuses_what_is_no_part_of_a_bundle, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
