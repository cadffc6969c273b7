/* Words and numbers for a death, and the texts the kernel's counter is read from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/deathcause.h"

#include <errno.h>

#define EXITED(code) ((code) << 8)

static const struct {
        agx_death death;
        int returncode;
        const char *words;
} deaths[] = {
        {{.status = 9}, -9, "signal 9 (SIGKILL)"},
        {{.status = 11 | 0x80}, -11, "signal 11 (SIGSEGV)"}, /* with a core file */
        {{.status = 40}, -40, "signal 40"},
        {{.status = EXITED(7)}, 7, "exit code 7"},
        {{.status = EXITED(0)}, 0, "exit code 0"},
        {{.status = 9, .oom = true}, -9, "signal 9 (SIGKILL), out of memory (OOM) as the control group counts"},
        {{.status = 9, .fault = "it sent a malformed frame"}, -9, "it sent a malformed frame; signal 9 (SIGKILL)"},
        {{.status = EXITED(127), .exec_error = ENOENT}, 127, "it could not be executed: No such file or directory"},
};

static void deaths_are_told(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(deaths) / sizeof(deaths[0]); i++) {
                _cleanup_(agx_buf_deinitp) agx_buf text = AGX_BUF_NULL(1024);

                assert_int_equal(agx_death_returncode(&deaths[i].death), deaths[i].returncode);
                assert_int_equal(agx_death_describe(&deaths[i].death, &text), 0);
                assert_int_equal(text.len, strlen(deaths[i].words));
                assert_memory_equal(text.data, deaths[i].words, text.len);
        }
}

static const struct {
        const char *text;
        bool found;
        uint64_t count;
} counters[] = {
        {"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n", true, 2},
        {"oom_kill_disable 0\nunder_oom 0\noom_kill 17\n", true, 17},
        {"oom_kill 5", true, 5},
        {"oom_kill_disable 0\nunder_oom 0\n", false, 0},
        {"oom_kill x\n", false, 0},
        {"oom_kill \n", false, 0},
        {"", false, 0},
};

static void the_counter_is_read(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
                uint64_t count = 0;

                assert_int_equal(agx_death_oom_count(agx_view_str(counters[i].text), &count), counters[i].found);
                assert_int_equal(count, counters[i].count);
        }
        assert_false(agx_death_oom_count(AGX_VIEW_NULL, &(uint64_t){0}));
}

static const struct {
        const char *text;
        const char *path; /* NULL: none */
        int version;
} groups[] = {
        {"0::/user.slice/x\n", "/user.slice/x", 2},
        {"0::/\n", "/", 2},
        {"5:cpu,cpuacct:/a\n4:memory:/box/1\n0::/\n", "/box/1", 1},
        {"0::/\n4:hugetlb,memory,pids:/m\n", "/m", 1},
        {"3:memoryless:/x\n", NULL, 0},
        {"rubbish\n:::\n1\n", NULL, 0},
        {"0::/with:colon\n", "/with:colon", 2},
};

static void the_group_is_found(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
                agx_view path;
                int version;

                assert_int_equal(agx_death_memory_group(agx_view_str(groups[i].text), &path, &version),
                                 groups[i].path != NULL);
                assert_int_equal(version, groups[i].version);
                if (groups[i].path)
                        assert_true(agx_view_eq(path, agx_view_str(groups[i].path)));
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(deaths_are_told),
                cmocka_unit_test(the_counter_is_read),
                cmocka_unit_test(the_group_is_found),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
