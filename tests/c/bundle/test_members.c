/* The rules for members: tables of whole archives, each with what becomes of its last member. */
#include "bundle/members.h"

#include "support/guard.h"
#include "support/oom.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

enum { ROWS = 6 };

#define FILE_(n)                                                                                                       \
        {                                                                                                              \
                AGX_MEMBER_FILE, n, "", 0644, 1                                                                        \
        }
#define DIR_(n)                                                                                                        \
        {                                                                                                              \
                AGX_MEMBER_DIRECTORY, n, "", 0755, 0                                                                   \
        }
#define SYM(n, to)                                                                                                     \
        {                                                                                                              \
                AGX_MEMBER_SYMLINK, n, to, 0777, 0                                                                     \
        }
#define HARD(n, to)                                                                                                    \
        {                                                                                                              \
                AGX_MEMBER_HARDLINK, n, to, 0644, 0                                                                    \
        }
#define OTHER(n)                                                                                                       \
        {                                                                                                              \
                AGX_MEMBER_OTHER, n, "", 0644, 0                                                                       \
        }

typedef struct row_member {
        agx_member_type type;
        const char *name;
        const char *link;
        unsigned mode;
        uint64_t size;
} row_member;

typedef struct row {
        int expect; /* condition, or -1 - verdict kind */
        const char *path;
        row_member members[ROWS];
} row;

#define TAKE (-1 - AGX_VERDICT_TAKE)
#define OMIT (-1 - AGX_VERDICT_OMIT)
#define PASS (-1 - AGX_VERDICT_PASS)
#define MANIFEST (-1 - AGX_VERDICT_MANIFEST)

static const row rows[] = {
        /* names */
        {TAKE, "nix/a", {FILE_("nix/a")}},
        {TAKE, "nix/a", {FILE_("./nix/a")}},
        {TAKE, "nix/a", {FILE_("././/nix//./a")}},
        {TAKE, "nix/a", {DIR_("nix/a/")}},
        {TAKE, "nix/b", {FILE_("nix/a/../b")}},
        {TAKE, "nix/b", {FILE_("x/../nix/b")}},
        {PASS, "", {DIR_("./")}},
        {PASS, "", {DIR_(".")}},
        {MANIFEST, "manifest.json", {FILE_("manifest.json")}},
        {MANIFEST, "manifest.json", {FILE_("./manifest.json")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("../agx80")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("/tmp/agx80")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("/nix/a")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("a/../../agx80")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("nix/../../agx80")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("..")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {SYM("nix", "/tmp")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {FILE_("nix")}},
        {AGX_MEMBERS_E_FOREIGN, NULL, {FILE_("etc/passwd")}},
        {AGX_MEMBERS_E_FOREIGN, NULL, {FILE_("nixx/a")}},
        {AGX_MEMBERS_E_FOREIGN, NULL, {FILE_("nix/../etc")}},
        {AGX_MEMBERS_E_FOREIGN, NULL, {SYM("x", "/tmp")}},
        {AGX_MEMBERS_E_FOREIGN, NULL, {FILE_("manifest.json/x")}},
        {AGX_MEMBERS_E_TYPE, NULL, {SYM("manifest.json", "nix/a")}},
        {AGX_MEMBERS_E_TYPE, NULL, {OTHER("nix/fifo")}},
        /* twice */
        {TAKE, "nix/d", {DIR_("nix/d"), DIR_("nix/d")}},
        {TAKE, "nix/d", {FILE_("nix/d/x"), DIR_("nix/d")}},
        {AGX_MEMBERS_E_TWICE, NULL, {FILE_("manifest.json"), FILE_("manifest.json")}},
        {AGX_MEMBERS_E_TWICE, NULL, {FILE_("nix/a"), FILE_("nix/a")}},
        {AGX_MEMBERS_E_TWICE, NULL, {DIR_("nix/d"), SYM("nix/d", "/nix/e")}},
        {AGX_MEMBERS_E_TWICE, NULL, {SYM("nix/d", "/nix/e"), DIR_("nix/d")}},
        {AGX_MEMBERS_E_TWICE, NULL, {SYM("nix/d", "/nix/e"), FILE_("nix/d")}},
        {AGX_MEMBERS_E_TWICE, NULL, {DIR_("nix/d"), FILE_("nix/d")}},
        {AGX_MEMBERS_E_TWICE, NULL, {FILE_("nix/a"), HARD("nix/a", "nix/a")}},
        /* parents */
        {AGX_MEMBERS_E_PARENT, NULL, {FILE_("nix/a"), FILE_("nix/a/b")}},
        {AGX_MEMBERS_E_PARENT, NULL, {DIR_("nix/d"), SYM("nix/l", "/nix/d"), FILE_("nix/l/x")}},
        {AGX_MEMBERS_E_PARENT, NULL, {SYM("nix/l", "d"), DIR_("nix/l/x")}},
        {AGX_MEMBERS_E_PARENT, NULL, {FILE_("nix/d/a"), SYM("nix/l", "d"), HARD("nix/l/x", "nix/d/a")}},
        /* symbolic links */
        {TAKE, "nix/l", {SYM("nix/l", "/nix/a")}},
        {TAKE, "nix/l", {SYM("nix/l", "a")}},
        {TAKE, "nix/d/l", {SYM("nix/d/l", "../a")}},
        {TAKE, "nix/l", {SYM("nix/l", "/nix")}},
        {OMIT, "nix/l", {SYM("nix/l", "/../nix/a")}},
        {OMIT, "nix/l", {SYM("nix/l", "/tmp")}},
        {OMIT, "nix/l", {SYM("nix/l", "/nixx")}},
        {OMIT, "nix/l", {SYM("nix/l", "/nix/../tmp")}},
        {OMIT, "nix/l", {SYM("nix/l", "..")}},
        {OMIT, "nix/l", {SYM("nix/l", "../..")}},
        {OMIT, "nix/d/l", {SYM("nix/d/l", "../../manifest.json")}},
        {OMIT, "nix/l", {SYM("nix/l", "/")}},
        {AGX_MEMBERS_E_UNSAFE, NULL, {SYM("nix/l", "")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/l", "/tmp"), FILE_("nix/l/agx80")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/l", "/tmp"), FILE_("nix/l/a/agx80")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/l", "/tmp"), DIR_("nix/l")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/l", "/tmp"), FILE_("nix/l")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/l", "/tmp"), SYM("nix/l", "a")}},
        {AGX_MEMBERS_E_OMITTED, NULL, {SYM("nix/x", "../.."), DIR_("nix/x/y")}},
        /* hard links */
        {TAKE, "nix/b", {FILE_("nix/a"), HARD("nix/b", "nix/a")}},
        {TAKE, "nix/b", {FILE_("nix/a"), HARD("nix/b", "./nix/a")}},
        {TAKE, "nix/c", {FILE_("nix/a"), HARD("nix/b", "nix/a"), HARD("nix/c", "nix/b")}},
        {AGX_MEMBERS_E_LINK, NULL, {HARD("nix/b", "../etc/passwd")}},
        {AGX_MEMBERS_E_LINK, NULL, {HARD("nix/b", "/etc/passwd")}},
        {AGX_MEMBERS_E_LINK, NULL, {HARD("nix/b", "manifest.json")}},
        {AGX_MEMBERS_E_LINK, NULL, {HARD("nix/b", "nix/../etc/passwd")}},
        {AGX_MEMBERS_E_LINK, NULL, {SYM("nix/l", "/etc"), HARD("nix/b", "nix/l/passwd")}},
        {AGX_MEMBERS_E_LINK, NULL, {SYM("nix/l", "/etc/passwd"), HARD("nix/b", "nix/l")}},
        {AGX_MEMBERS_E_LINK, NULL, {FILE_("nix/d/a"), SYM("nix/l", "d"), HARD("nix/b", "nix/l/a")}},
        {AGX_MEMBERS_E_LINK, NULL, {FILE_("nix/a"), SYM("nix/l", "a"), HARD("nix/b", "nix/l")}},
        {AGX_MEMBERS_E_LINK, NULL, {DIR_("nix/d"), HARD("nix/b", "nix/d")}},
        {AGX_MEMBERS_E_MISSING, NULL, {HARD("nix/b", "nix/a")}},
        {AGX_MEMBERS_E_MISSING, NULL, {HARD("nix/b", "nix/d/a")}},
        {AGX_MEMBERS_E_MISSING, NULL, {HARD("nix/b", "nix/b")}},
        /* bounds */
        {AGX_MEMBERS_E_DEEP, NULL, {FILE_("nix/1/2/3/4/5/6/7/8/9")}},
        {AGX_MEMBERS_E_MANY, NULL, {FILE_("nix/1/2/3/4/5/6/7"), FILE_("nix/a/b/c/d/e/f/g")}},
        {AGX_MEMBERS_E_BIG,
         NULL,
         {{AGX_MEMBER_FILE, "nix/a", "", 0644, 600}, {AGX_MEMBER_FILE, "nix/b", "", 0644, 401}}},
        {AGX_MEMBERS_E_BIG, NULL, {{AGX_MEMBER_FILE, "nix/a", "", 0644, UINT64_MAX}}},
};

static const agx_members_limits limits = {.bytes = 1000, .count = 12, .depth = 8};
static const uint8_t seed[16] = "0123456789abcde";

/* Judges with name and link flush against an unreadable page. */
static int judge(agx_members *m, const row_member *r, agx_verdict *v)
{
        size_t n = strlen(r->name), k = strlen(r->link);
        uint8_t *name = agx_guard_new(r->name, n), *link = agx_guard_new(r->link, k);
        agx_member member = {r->type, agx_view_of(name, n), agx_view_of(link, k), r->mode, r->size};
        int result = agx_members_judge(m, &member, v);

        agx_guard_free(name, n);
        agx_guard_free(link, k);
        return result;
}

static void judges_every_row(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                const row *r = &rows[i];
                agx_members m;
                agx_verdict v = {0};
                int result = 0;

                agx_members_init(&m, &limits, seed);
                for (size_t k = 0; k < ROWS && r->members[k].name; k++) {
                        if (result)
                                fail_msg("row %zu: member %zu gave %d", i, k - 1, result);
                        result = judge(&m, &r->members[k], &v);
                }
                if (result)
                        assert_non_null(agx_members_why(result));
                if (!result)
                        result = -1 - (int)v.kind;
                if (result != r->expect)
                        fail_msg("row %zu: got %d, not %d", i, result, r->expect);
                if (r->path && !agx_view_eq(v.path, agx_view_str(r->path)))
                        fail_msg("row %zu: path is %.*s", i, (int)v.path.n, v.path.p);
                agx_members_deinit(&m);
        }
}

static void keeps_no_special_bits(void **state)
{
        const row_member file = {AGX_MEMBER_FILE, "nix/a", "", 06755, 0},
                         directory = {AGX_MEMBER_DIRECTORY, "nix/d", "", 02050, 0},
                         blind = {AGX_MEMBER_FILE, "nix/b", "", 0, 0};
        agx_members m;
        agx_verdict v;

        (void)state;
        agx_members_init(&m, &limits, seed);
        assert_int_equal(judge(&m, &file, &v), 0);
        assert_int_equal(v.mode, 0755);
        assert_int_equal(judge(&m, &directory, &v), 0);
        assert_int_equal(v.mode, 0750);
        assert_int_equal(judge(&m, &blind, &v), 0);
        assert_int_equal(v.mode, 0400);
        agx_members_deinit(&m);
}

static void refuses_long_names(void **state)
{
        char name[5000];
        row_member r = FILE_(name);
        agx_members m;
        agx_verdict v;

        (void)state;
        agx_members_init(&m, &limits, seed);
        memset(name, 'a', sizeof(name));
        memcpy(name, "nix/", 4);
        name[4 + 255] = 0;
        assert_int_equal(judge(&m, &r, &v), 0);
        name[4 + 255] = 'a';
        name[4 + 256] = 0;
        assert_int_equal(judge(&m, &r, &v), AGX_MEMBERS_E_LONG);
        name[4 + 256] = 'a';
        for (size_t i = 4; i < sizeof(name); i += 100)
                name[i] = '/';
        name[4999] = 0;
        assert_int_equal(judge(&m, &r, &v), AGX_MEMBERS_E_LONG);
        agx_members_deinit(&m);
}

/* Links that go up after they went down: judged when all members are known. */
static void finds_crooked_links(void **state)
{
        static const struct {
                const char *away; /* the link that is found to lead away, or NULL */
                row_member members[ROWS];
        } trials[] = {
                {NULL, {DIR_("nix/a"), SYM("nix/l", "a/../b"), FILE_("nix/b")}},
                {NULL, {SYM("nix/l", "a/../b")}},
                {"nix/l", {DIR_("nix/d/e"), SYM("nix/a", "/nix"), SYM("nix/l", "a/../etc")}},
                {"nix/l", {SYM("nix/l", "d/a/../../etc"), SYM("nix/d/a", "/nix")}},
                {"nix/l", {SYM("nix/l", "/nix/d/a/../../x"), SYM("nix/d/a", "../../nix")}},
                {NULL, {SYM("nix/l", "a/../b"), SYM("nix/a", "d/e/f"), DIR_("nix/d/e/f")}},
                {NULL, {SYM("nix/l", "a/../b"), SYM("nix/a", "l")}},
                {"nix/l", {SYM("nix/a", "/tmp"), DIR_("nix/d"), SYM("nix/l", "d/../a/x")}},
                {NULL, {SYM("nix/l", "f/../../x/../nix/y"), FILE_("nix/f")}},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
                agx_members m;
                agx_verdict v;
                bool found;

                agx_members_init(&m, &limits, seed);
                for (size_t k = 0; k < ROWS && trials[i].members[k].name; k++)
                        assert_int_equal(judge(&m, &trials[i].members[k], &v), 0);
                found = agx_members_finish(&m, &v);
                if (found != (trials[i].away != NULL))
                        fail_msg("trial %zu: %s", i, found ? "leads away" : "stays");
                if (found) {
                        assert_true(agx_view_eq(v.path, agx_view_str(trials[i].away)));
                        assert_false(agx_members_has(&m, v.path));
                        assert_false(agx_members_finish(&m, &v));
                }
                agx_members_deinit(&m);
        }
}

static void knows_what_it_has(void **state)
{
        const row_member file = FILE_("nix/runtime/bootstrap.sh");
        agx_members m;
        agx_verdict v;

        (void)state;
        agx_members_init(&m, &limits, seed);
        assert_false(agx_members_has(&m, AGX_VIEW("nix/runtime/bootstrap.sh")));
        assert_int_equal(judge(&m, &file, &v), 0);
        assert_true(agx_members_has(&m, AGX_VIEW("nix/runtime/bootstrap.sh")));
        assert_false(agx_members_has(&m, AGX_VIEW("nix/runtime")));
        agx_members_deinit(&m);
}

static void survives_lack_of_memory(void **state)
{
        const row_member members[] = {FILE_("nix/a/b"), SYM("nix/l", "a/../b"), HARD("nix/h", "nix/a/b")};

        size_t n = 0;
        int r = 0;

        (void)state;
        do {
                agx_members m;
                agx_verdict v;

                agx_members_init(&m, &limits, seed);
                agx_oom_arm(++n);
                r = 0;
                for (size_t i = 0; !r && i < 3; i++) {
                        agx_member member = {members[i].type, agx_view_str(members[i].name),
                                             agx_view_str(members[i].link), 0644, 0};

                        r = agx_members_judge(&m, &member, &v);
                }
                assert_true(r == 0 || r == -ENOMEM);
                agx_members_deinit(&m);
        } while (agx_oom_disarm());
        assert_int_equal(r, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(judges_every_row),   cmocka_unit_test(keeps_no_special_bits),
                cmocka_unit_test(refuses_long_names), cmocka_unit_test(finds_crooked_links),
                cmocka_unit_test(knows_what_it_has),  cmocka_unit_test(survives_lack_of_memory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
