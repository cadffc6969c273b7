/* Finding an engine, its small commands, and its answers in the engines' own words. */
#include "oci/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_finding_it(void **state)
{
        char dir[] = "/tmp/agx-oci-XXXXXX", program[64], path[128];
        char *found = NULL;
        FILE *file;

        (void)state;
        assert_non_null(mkdtemp(dir));
        snprintf(program, sizeof(program), "%s/engine", dir);
        file = fopen(program, "w");
        assert_non_null(file);
        fclose(file);
        snprintf(path, sizeof(path), "/nowhere::%s:/bin", dir);
        assert_int_equal(agx_oci_find(AGX_VIEW("engine"), agx_view_str(path), &found), AGX_OCI_E_NOT_FOUND);
        assert_int_equal(chmod(program, 0700), 0);
        assert_int_equal(agx_oci_find(AGX_VIEW("engine"), agx_view_str(path), &found), 0);
        assert_string_equal(found, program);
        free(found);
        assert_int_equal(agx_oci_find(agx_view_str(program), AGX_VIEW_NULL, &found), 0);
        assert_string_equal(found, program);
        free(found);
        assert_int_equal(agx_oci_find(agx_view_str(dir), AGX_VIEW_NULL, &found), AGX_OCI_E_NOT_FOUND);
        assert_null(found);
        assert_int_equal(agx_oci_find(AGX_VIEW(""), agx_view_str(path), &found), AGX_OCI_E_NOT_FOUND);
        unlink(program);
        rmdir(dir);
}

static void test_which_one_it_is(void **state)
{
        (void)state;
        assert_true(agx_oci_is_podman(AGX_VIEW("podman")));
        assert_true(agx_oci_is_podman(AGX_VIEW("/opt/bin/podman-remote")));
        assert_false(agx_oci_is_podman(AGX_VIEW("/opt/podman/docker")));
        assert_false(agx_oci_is_podman(AGX_VIEW_NULL));
}

static void expect_command(void (*build)(agx_strv *, agx_view, agx_view), const char *engine, const char *expected)
{
        _cleanup_(agx_strv_deinitp) agx_strv argv = AGX_STRV_NULL;
        char line[1024] = "";

        build(&argv, agx_view_str(engine), AGX_VIEW("agentix-0"));
        assert_int_equal(agx_strv_end(&argv), 0);
        for (size_t i = 0; i < argv.count; ++i)
                snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s%s", i ? " " : "", argv.items[i]);
        assert_string_equal(line, expected);
}

static void test_small_commands(void **state)
{
        (void)state;
        expect_command(agx_oci_remove_argv, "docker", "docker rm -f -v agentix-0");
        expect_command(agx_oci_remove_argv, "podman", "podman rm -f -v -t 0 agentix-0");
        expect_command(agx_oci_logs_argv, "docker", "docker logs --tail 200 agentix-0");
        expect_command(agx_oci_look_argv, "docker",
                       "docker inspect --type container --format "
                       "agentix-container\t{{.State.Status}}\t{{.State.ExitCode}}\t{{.State.OOMKilled}}\t{{.Id}}\t"
                       "{{with .Config.Labels}}{{index . \"agentix.sandbox\"}}{{end}} -- agentix-0");
}

static void test_reading_a_state(void **state)
{
        agx_oci_state s;

        (void)state;
        assert_true(agx_oci_state_read(AGX_VIEW("WARNING: something\n"
                                                "agentix-container\trunning\t0\tfalse\tabc\tagentix-0\n"),
                                       &s));
        assert_true(s.running && !s.oom_killed && s.code == 0);
        assert_true(agx_view_eq(s.id, AGX_VIEW("abc")) && agx_view_eq(s.sandbox, AGX_VIEW("agentix-0")));
        assert_true(agx_oci_state_read(AGX_VIEW("agentix-container\texited\t137\ttrue\tabc\t\n"), &s));
        assert_true(!s.running && s.oom_killed && s.code == 137 && s.sandbox.n == 0);
        assert_false(agx_oci_state_read(AGX_VIEW(""), &s));
        assert_false(agx_oci_state_read(AGX_VIEW("Error: No such container: agentix-container\n"), &s));
        assert_false(agx_oci_state_read(AGX_VIEW("agentix-container\texited\tmany\ttrue\tabc\t\n"), &s));
        assert_false(agx_oci_state_read(AGX_VIEW("agentix-container\texited\t1\n"), &s));
}

static void test_reading_a_list(void **state)
{
        agx_view output = AGX_VIEW("agentix-container\ta\trunning\tboot:1:2\t900.000\ta\n"
                                   "level=warning msg=\"no matter\"\n"
                                   "agentix-container\tb\tUp 3 seconds\t\t\tb\n"
                                   "agentix-container\tc\tExited (3) 2 hours ago\tboot:1:2\t0\tc\n"
                                   "agentix-container\td\tcreated\tboot:1:2\t0\td\n");
        agx_oci_row row;

        (void)state;
        assert_true(agx_oci_list_next(&output, &row));
        assert_true(agx_view_eq(row.name, AGX_VIEW("a")) && row.running && !row.exited);
        assert_true(agx_view_eq(row.host, AGX_VIEW("boot:1:2")) && agx_view_eq(row.lease, AGX_VIEW("900.000")));
        assert_true(agx_oci_list_next(&output, &row));
        assert_true(agx_view_eq(row.sandbox, AGX_VIEW("b")) && row.running && !row.exited);
        assert_true(agx_oci_list_next(&output, &row) && !row.running && row.exited);
        assert_true(agx_oci_list_next(&output, &row) && !row.running && !row.exited);
        assert_false(agx_oci_list_next(&output, &row));
}

static void test_what_an_error_is_about(void **state)
{
        static const struct {
                agx_oci_trouble trouble;
                const char *output;
        } rows[] = {
                {AGX_OCI_TROUBLE_TRANSIENT,
                 "docker: error pulling image: received unexpected HTTP status: 502 Bad Gateway"},
                {AGX_OCI_TROUBLE_TRANSIENT, "docker: received unexpected HTTP status: 503 Service Unavailable."},
                {AGX_OCI_TROUBLE_TRANSIENT, "net/http: TLS handshake timeout"},
                {AGX_OCI_TROUBLE_OTHER, "docker: received unexpected HTTP status: 404 Not Found"},
                {AGX_OCI_TROUBLE_OTHER, "docker: Error response from daemon: pull access denied for nosuch, repository "
                                        "does not exist or may require 'docker login'"},
                {AGX_OCI_TROUBLE_OTHER, "docker: Error response from daemon: No such image: nosuch:latest"},
                {AGX_OCI_TROUBLE_OTHER, ""},
                {AGX_OCI_TROUBLE_PORT, "Bind for 127.0.0.1:18000 failed: port is already allocated."},
                {AGX_OCI_TROUBLE_PORT, "Error: cannot listen on the TCP port: listen tcp4 127.0.0.1:1: bind: address "
                                       "already in use"},
                {AGX_OCI_TROUBLE_NAME, "Conflict. The container name \"/agentix-0\" is already in use by container "
                                       "\"00\". You have to remove"},
                {AGX_OCI_TROUBLE_NAME, "Error: creating container storage: the container name \"a\" is already in use "
                                       "by 00. You have to remove that container: that name is already in use"},
                {AGX_OCI_TROUBLE_NO_CONTAINER, "Error response from daemon: No such container: nope"},
                {AGX_OCI_TROUBLE_NO_CONTAINER, "Error: no container with name or ID \"nope\" found: no such container"},
                {AGX_OCI_TROUBLE_NO_CONTAINER, "Error: inspecting object: no such container nope"},
                {AGX_OCI_TROUBLE_NO_DAEMON,
                 "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
                 "Is the docker daemon running?"},
        };

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i)
                if (agx_oci_trouble_of(agx_view_str(rows[i].output)) != rows[i].trouble)
                        fail_msg("row %zu: %s", i, rows[i].output);
}

static void test_whether_it_pulls(void **state)
{
        (void)state;
        assert_false(agx_oci_is_pulling(AGX_VIEW("")));
        assert_true(agx_oci_is_pulling(AGX_VIEW("Unable to find image 'a:latest' locally\nlatest: Pulling from a\n")));
        assert_false(agx_oci_is_pulling(AGX_VIEW("Unable to find image 'a:latest' locally\nlatest: Pulling from a\n"
                                                 "Status: Downloaded newer image for a:latest\n")));
        assert_true(agx_oci_is_pulling(AGX_VIEW("Trying to pull docker.io/a...\nGetting image source signatures\n")));
        assert_false(
                agx_oci_is_pulling(AGX_VIEW("Trying to pull docker.io/a...\nWriting manifest to image destination\n")));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_finding_it),       cmocka_unit_test(test_which_one_it_is),
                cmocka_unit_test(test_small_commands),   cmocka_unit_test(test_reading_a_state),
                cmocka_unit_test(test_reading_a_list),   cmocka_unit_test(test_what_an_error_is_about),
                cmocka_unit_test(test_whether_it_pulls),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
