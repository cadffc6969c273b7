/* The argv of `run`, slot by slot, and which values never get there. */
#include "oci/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const agx_strv none;

static agx_oci_run minimal(void)
{
        return (agx_oci_run){
                .engine = AGX_VIEW("/usr/bin/docker"),
                .name = AGX_VIEW("agentix-00000000"),
                .image = AGX_VIEW("alpine"),
                .entrypoint = "/start",
                .labels = &none,
                .cap_add = &none,
                .extra = &none,
                .host_proxies = true,
        };
}

static void expect_argv(const agx_oci_run *run, const char *const *expected)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        size_t n = 0;

        assert_null(agx_oci_run_check(run));
        agx_oci_run_argv(&argv, run);
        assert_int_equal(agx_strv_end(&argv), 0);
        for (; expected[n]; ++n) {
                assert_true(n < argv.count);
                assert_string_equal(argv.items[n], expected[n]);
        }
        assert_int_equal(argv.count, n);
}

static void test_a_plain_run(void **state)
{
        static const char *const expected[] = {"/usr/bin/docker",
                                               "run",
                                               "-d",
                                               "--name",
                                               "agentix-00000000",
                                               "--entrypoint",
                                               "/start",
                                               "--no-healthcheck",
                                               "--cap-drop",
                                               "ALL",
                                               "--",
                                               "alpine",
                                               NULL};
        agx_oci_run run = minimal();

        (void)state;
        expect_argv(&run, expected);
}

static void test_a_full_run(void **state)
{
        static const char *const expected[] = {"/usr/bin/docker",
                                               "run",
                                               "-d",
                                               "--name",
                                               "agentix-00000000",
                                               "--label",
                                               "a=1",
                                               "--label",
                                               "b=x y",
                                               "--platform",
                                               "linux/amd64",
                                               "--pull",
                                               "never",
                                               "--entrypoint",
                                               "/start",
                                               "--no-healthcheck",
                                               "--network",
                                               "mine",
                                               "--http-proxy=false",
                                               "-p",
                                               "127.0.0.1:9000:9000",
                                               "--mount",
                                               "type=bind,source=/b/nix,destination=/nix,readonly",
                                               "--mount",
                                               "type=bind,source=/s,destination=/run/s",
                                               "--env-file",
                                               "/d/env",
                                               "--security-opt",
                                               "no-new-privileges",
                                               "--cap-drop",
                                               "ALL",
                                               "--cap-add",
                                               "CHOWN",
                                               "--pids-limit",
                                               "4096",
                                               "--read-only",
                                               "--cpus",
                                               "4",
                                               "--memory",
                                               "16g",
                                               "--gpus",
                                               "2",
                                               "--shm-size=1g",
                                               "--",
                                               "alpine",
                                               NULL};
        _cleanup_(agx_strv_deinitp) agx_strv labels = AGX_STRV_NULL, caps = AGX_STRV_NULL, extra = AGX_STRV_NULL;
        agx_oci_run run = minimal();

        (void)state;
        agx_strv_add_str(&labels, "a=1");
        agx_strv_add_str(&labels, "b=x y");
        agx_strv_add_str(&caps, "CHOWN");
        agx_strv_add_str(&extra, "--shm-size=1g");
        run.labels = &labels;
        run.cap_add = &caps;
        run.extra = &extra;
        run.platform = AGX_VIEW("linux/amd64");
        run.pull = AGX_VIEW("never");
        run.network = AGX_VIEW("mine");
        run.publish_host = AGX_VIEW("127.0.0.1");
        run.port = 9000;
        run.mounts[0] = (agx_oci_mount){AGX_VIEW("/b/nix"), "/nix", false};
        run.mounts[1] = (agx_oci_mount){AGX_VIEW("/s"), "/run/s", true};
        run.mount_count = 2;
        run.env_file = AGX_VIEW("/d/env");
        run.no_new_privileges = run.read_only = true;
        run.pids_limit = 4096;
        run.cpus = AGX_VIEW("4");
        run.memory = AGX_VIEW("16g");
        run.gpus = AGX_VIEW("2");
        run.host_proxies = false;
        expect_argv(&run, expected);
}

static const char *published(const char *host)
{
        static char text[64];
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        agx_oci_run run = minimal();

        run.publish_host = agx_view_str(host);
        run.port = 80;
        agx_oci_run_argv(&argv, &run);
        for (size_t i = 0; i + 1 < argv.count; ++i)
                if (!strcmp(argv.items[i], "-p"))
                        memcpy(text, argv.items[i + 1], strlen(argv.items[i + 1]) + 1);
        return text;
}

static void test_how_a_port_is_published(void **state)
{
        (void)state;
        assert_string_equal(published("127.0.0.1"), "127.0.0.1:80:80");
        assert_string_equal(published(""), "80:80");
        assert_string_equal(published("::1"), "[::1]:80:80");
}

static void test_what_may_not_become_an_argument(void **state)
{
        static const char *const values[] = {"--privileged", "-v=/:/host", "linux/amd64 --privileged", "", "a\nb"};
        const struct {
                const char *name;
                size_t offset;
        } fields[] = {
                {"image", offsetof(agx_oci_run, image)},       {"name", offsetof(agx_oci_run, name)},
                {"platform", offsetof(agx_oci_run, platform)}, {"network", offsetof(agx_oci_run, network)},
                {"pull", offsetof(agx_oci_run, pull)},         {"cpus", offsetof(agx_oci_run, cpus)},
                {"memory", offsetof(agx_oci_run, memory)},     {"gpus", offsetof(agx_oci_run, gpus)},
                {"env_file", offsetof(agx_oci_run, env_file)},
        };

        (void)state;
        for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); ++f)
                for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); ++v) {
                        agx_oci_run run = minimal();
                        agx_view value = agx_view_str(values[v]);

                        memcpy((char *)&run + fields[f].offset, &value, sizeof(value));
                        assert_string_equal(agx_oci_run_check(&run), fields[f].name);
                }
}

static void test_lists_and_mounts_are_checked_too(void **state)
{
        _cleanup_(agx_strv_deinitp) agx_strv bad = AGX_STRV_NULL;
        agx_oci_run run = minimal();

        (void)state;
        agx_strv_add_str(&bad, "-x\n");
        run.cap_add = &bad;
        assert_string_equal(agx_oci_run_check(&run), "cap_add");
        run = minimal();
        run.labels = &bad;
        assert_string_equal(agx_oci_run_check(&run), "label");
        run = minimal();
        run.publish_host = AGX_VIEW("-p");
        assert_string_equal(agx_oci_run_check(&run), "publish_host");
        run = minimal();
        run.mounts[0] = (agx_oci_mount){AGX_VIEW("/a,source=/"), "/nix", false};
        run.mount_count = 1;
        assert_string_equal(agx_oci_run_check(&run), "mount");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_plain_run),
                cmocka_unit_test(test_a_full_run),
                cmocka_unit_test(test_how_a_port_is_published),
                cmocka_unit_test(test_what_may_not_become_an_argument),
                cmocka_unit_test(test_lists_and_mounts_are_checked_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
