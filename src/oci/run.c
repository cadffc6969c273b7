/*
 * The options stand in groups, one small function each. Nothing secret is among them: environments go by file.
 *
 * A health check of the image would probe a program that does not run here, and its entry point would take ours as an
 * argument: both are set aside.
 */
#include "oci/run.h"

#include "oci/word.h"

#include <string.h>

/* ---- checks ---- */

static bool all_words(const agx_strv *items)
{
        for (size_t i = 0; items && i < items->count; ++i)
                if (!agx_oci_word(agx_view_str(items->items[i])))
                        return false;
        return true;
}

static bool no_ends_of_lines(const agx_strv *items)
{
        for (size_t i = 0; items && i < items->count; ++i)
                if (strpbrk(items->items[i], "\r\n"))
                        return false;
        return true;
}

static const char *check_mounts(const agx_oci_run *run)
{
        for (unsigned i = 0; i < run->mount_count; ++i)
                if (!agx_oci_source(run->mounts[i].source))
                        return "mount";
        return NULL;
}

const char *agx_oci_run_check(const agx_oci_run *run)
{
        const struct {
                const char *name;
                agx_view value;
        } optional[] = {
                {"platform", run->platform}, {"network", run->network}, {"pull", run->pull},
                {"cpus", run->cpus},         {"memory", run->memory},   {"gpus", run->gpus},
        };

        if (!agx_oci_word(run->image))
                return "image";
        if (!agx_oci_name(run->name))
                return "name";
        for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); ++i)
                if (optional[i].value.p && !agx_oci_word(optional[i].value))
                        return optional[i].name;
        if (run->publish_host.n && !agx_oci_word(run->publish_host))
                return "publish_host";
        if (run->env_file.p && !agx_oci_source(run->env_file))
                return "env_file";
        if (!all_words(run->cap_add))
                return "cap_add";
        if (!no_ends_of_lines(run->labels))
                return "label";
        return check_mounts(run);
}

/* ---- the argv ---- */

static void add_pair(agx_strv *argv, const char *option, agx_view value)
{
        if (!value.p)
                return;
        agx_strv_add_str(argv, option);
        agx_strv_add(argv, value);
}

static void add_text(agx_strv *argv, const char *option, const char *value)
{
        add_pair(argv, option, agx_view_str(value));
}

static void add_all(agx_strv *argv, const char *option, const agx_strv *values)
{
        for (size_t i = 0; values && i < values->count; ++i)
                add_text(argv, option, values->items[i]);
}

static void add_port(agx_strv *argv, const agx_oci_run *run)
{
        bool v6 = run->publish_host.n && memchr(run->publish_host.p, ':', run->publish_host.n);

        if (!run->port)
                return;
        agx_strv_add(argv, AGX_VIEW("-p"));
        if (!run->publish_host.n)
                agx_strv_addf(argv, "%u:%u", run->port, run->port);
        else
                agx_strv_addf(argv, v6 ? "[%.*s]:%u:%u" : "%.*s:%u:%u", (int)run->publish_host.n, run->publish_host.p,
                              run->port, run->port);
}

static void add_mounts(agx_strv *argv, const agx_oci_run *run)
{
        for (unsigned i = 0; i < run->mount_count; ++i) {
                const agx_oci_mount *m = &run->mounts[i];

                agx_strv_add(argv, AGX_VIEW("--mount"));
                agx_strv_addf(argv, "type=bind,source=%.*s,destination=%s%s", (int)m->source.n, m->source.p, m->target,
                              m->writable ? "" : ",readonly");
        }
}

static void add_privileges(agx_strv *argv, const agx_oci_run *run)
{
        if (run->no_new_privileges)
                add_text(argv, "--security-opt", "no-new-privileges");
        add_text(argv, "--cap-drop", "ALL");
        add_all(argv, "--cap-add", run->cap_add);
        if (run->pids_limit) {
                agx_strv_add(argv, AGX_VIEW("--pids-limit"));
                agx_strv_addf(argv, "%u", run->pids_limit);
        }
        if (run->read_only)
                agx_strv_add(argv, AGX_VIEW("--read-only"));
}

static void add_resources(agx_strv *argv, const agx_oci_run *run)
{
        add_pair(argv, "--cpus", run->cpus);
        add_pair(argv, "--memory", run->memory);
        add_pair(argv, "--gpus", run->gpus);
}

void agx_oci_run_argv(agx_strv *argv, const agx_oci_run *run)
{
        agx_strv_add(argv, run->engine);
        agx_strv_add(argv, AGX_VIEW("run"));
        agx_strv_add(argv, AGX_VIEW("-d"));
        add_pair(argv, "--name", run->name);
        add_all(argv, "--label", run->labels);
        add_pair(argv, "--platform", run->platform);
        add_pair(argv, "--pull", run->pull);
        add_text(argv, "--entrypoint", run->entrypoint);
        agx_strv_add(argv, AGX_VIEW("--no-healthcheck"));
        add_pair(argv, "--network", run->network);
        if (!run->host_proxies)
                agx_strv_add(argv, AGX_VIEW("--http-proxy=false"));
        add_port(argv, run);
        add_mounts(argv, run);
        add_pair(argv, "--env-file", run->env_file);
        add_privileges(argv, run);
        add_resources(argv, run);
        for (size_t i = 0; run->extra && i < run->extra->count; ++i)
                agx_strv_add_str(argv, run->extra->items[i]);
        agx_strv_add(argv, AGX_VIEW("--"));
        agx_strv_add(argv, run->image);
}
