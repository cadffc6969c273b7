/* Programs run to their end: status, output, input, what cannot be started, and the jail. */
#include "bundle/run.h"

#include "bundle/records.h"
#include "bundle/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

static int shell(const char *script, agx_buf *out, agx_buf *err, agx_view input, int *status, agx_why *why)
{
        char sh[] = "sh", c[] = "-c", *text = strdup(script);
        int r = agx_run_wait(&(agx_run){.argv = (char *[]){sh, c, text, NULL}, .out = out, .err = err, .input = input},
                             status, why);

        free(text);
        return r;
}

static void tells_status_and_output(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1024), err = AGX_BUF_NULL(8);
        agx_why why = AGX_WHY_NULL;
        int status;

        (void)state;
        assert_int_equal(shell("cat; echo 0123456789 >&2; exit 7", &out, &err, AGX_VIEW("fed"), &status, &why), 0);
        assert_int_equal(status, 7);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("fed")));
        assert_true(agx_view_eq(agx_buf_view(&err), AGX_VIEW("3456789\n"))); /* the last of it */
        assert_int_equal(shell("kill -9 $$", &out, NULL, AGX_VIEW_NULL, &status, &why), 0);
        assert_int_equal(status, 137);
}

static void reads_nothing_unless_fed(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1024);
        agx_why why = AGX_WHY_NULL;
        int status;

        (void)state;
        assert_int_equal(shell("cat; echo end", &out, NULL, AGX_VIEW_NULL, &status, &why), 0);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("end\n")));
}

static void refuses_too_much_output(void **state)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1024);
        agx_why why = AGX_WHY_NULL;
        int status;

        (void)state;
        assert_int_equal(shell("exec yes", &out, NULL, AGX_VIEW_NULL, &status, &why), AGX_WHY_E_TOLD);
        assert_non_null(strstr(why.text, "too much"));
}

static void says_what_cannot_be_started(void **state)
{
        char gone[] = "/nonexistent/program";
        agx_why why = AGX_WHY_NULL;
        int status;

        (void)state;
        assert_int_equal(agx_run_wait(&(agx_run){.argv = (char *[]){gone, NULL}}, &status, &why), AGX_WHY_E_TOLD);
        assert_non_null(strstr(why.text, "No such file"));
        assert_null(agx_run_find("agx-no-such-program"));
}

static void jail_shows_another_nix(void **state)
{
        char base[] = "/tmp/agx-run-XXXXXX", path[64], root[64], nix[64];
        char sh[] = "sh", c[] = "-c", script[] = "cat /nix/file; echo new >/nix/made; test -d /proc/self";
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(1024);
        agx_jail jail = {.kind = AGX_JAIL_MACHINE, .root = root, .nix = nix};
        agx_why why = AGX_WHY_NULL;
        int status;

        (void)state;
        assert_non_null(mkdtemp(base));
        snprintf(root, sizeof(root), "%s/root", base);
        snprintf(nix, sizeof(nix), "%s/nix", base);
        snprintf(path, sizeof(path), "%s/nix/file", base);
        assert_int_equal(mkdir(root, 0755), 0);
        assert_int_equal(agx_tree_write(path, AGX_VIEW("ours"), 0644, &why), 0);
        assert_int_equal(agx_run_wait(&(agx_run){.argv = (char *[]){sh, c, script, NULL}, .jail = &jail, .out = &out},
                                      &status, &why),
                         0);
        assert_int_equal(status, 0);
        assert_true(agx_view_eq(agx_buf_view(&out), AGX_VIEW("ours")));
        snprintf(path, sizeof(path), "%s/nix/made", base);
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(agx_tree_remove(base, &why), 0);
}

static void removes_what_may_not_be_written(void **state)
{
        char base[] = "/tmp/agx-tree-XXXXXX", path[64];
        agx_why why = AGX_WHY_NULL;

        (void)state;
        assert_non_null(mkdtemp(base));
        snprintf(path, sizeof(path), "%s/a/b/file", base);
        assert_int_equal(agx_tree_write(path, AGX_VIEW(""), 0400, &why), 0);
        snprintf(path, sizeof(path), "%s/a/b", base);
        assert_int_equal(chmod(path, 0500), 0);
        assert_int_equal(agx_tree_remove(base, &why), 0);
        assert_int_not_equal(access(base, F_OK), 0);
        assert_int_equal(agx_tree_remove(base, &why), 0);
}

static void records_are_pairs(void **state)
{
        static const struct {
                const char *script;
                int want;
        } rows[] = {
                {"printf 'a\\0001\\0b\\0\\0'", 0},          {"printf ''", 0},
                {"printf 'a\\0001'", AGX_WHY_E_TOLD},       {"printf 'a\\0'", AGX_WHY_E_TOLD},
                {"printf 'error\\0no\\0'", AGX_WHY_E_TOLD}, {"exit 1", AGX_WHY_E_TOLD},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                _cleanup_(agx_records_deinitp) agx_records r = AGX_RECORDS_NULL;
                char sh[] = "sh", c[] = "-c", *text = strdup(rows[i].script);
                agx_why why = AGX_WHY_NULL;

                assert_int_equal(agx_records_ask(&r, (char *[]){sh, c, text, NULL}, &why), rows[i].want);
                free(text);
                if (!i)
                        assert_string_equal(agx_records_get(&r, "a"), "1");
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(tells_status_and_output), cmocka_unit_test(reads_nothing_unless_fed),
                cmocka_unit_test(refuses_too_much_output), cmocka_unit_test(says_what_cannot_be_started),
                cmocka_unit_test(jail_shows_another_nix),  cmocka_unit_test(removes_what_may_not_be_written),
                cmocka_unit_test(records_are_pairs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
