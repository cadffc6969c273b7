/*
 * The constructors of the providers' brains. Each takes keywords, all of them, named as in its table, which follows the
 * config struct in provider/.
 */
#include "brain.h"

#include "base/err.h"
#include "provider/apptainer.h"
#include "provider/cape.h"
#include "provider/docker.h"
#include "provider/uv.h"

/* ---- uv ---- */

#define FIELD(name, kind, config, member)                                                                              \
        {                                                                                                              \
                name, AGX_EXT_##kind, offsetof(config, member)                                                         \
        }

static const agx_ext_field uv_venv_fields[] = {
        FIELD("uv", VIEW, agx_uv_venv_config, uv),
        FIELD("venv", VIEW, agx_uv_venv_config, venv),
        FIELD("python", VIEW, agx_uv_venv_config, python),
        FIELD("project", VIEW, agx_uv_venv_config, project),
        FIELD("install", STRV, agx_uv_venv_config, install),
        FIELD("index_url", VIEW, agx_uv_venv_config, index_url),
        FIELD("extra_index_url", STRV, agx_uv_venv_config, extra_index_url),
        FIELD("constraints", VIEW, agx_uv_venv_config, constraints),
        FIELD("own", STRV, agx_uv_venv_config, own),
        FIELD("env", STRV, agx_uv_venv_config, env),
        {0},
};

PyDoc_STRVAR(uv_venv_doc,
             "uv_venv(*, uv, venv, python, project, install, index_url, extra_index_url, constraints, own, env)\n"
             "--\n\nThe brain that makes a virtual environment.");

static PyObject *uv_venv(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_uv_venv_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, uv_venv_fields, &config, &held)) {
                r = agx_uv_venv_new(&brain, &config);
                made = agx_ext_wrap_brain(module, brain, r, NULL);
        }
        agx_ext_held_release(&held);
        return made;
}

static const agx_ext_field uv_sandbox_fields[] = {
        FIELD("runtime", VIEW, agx_uv_sandbox_config, runtime),
        FIELD("python", VIEW, agx_uv_sandbox_config, python),
        FIELD("dir", VIEW, agx_uv_sandbox_config, dir),
        FIELD("cwd", VIEW, agx_uv_sandbox_config, cwd),
        FIELD("token_file", VIEW, agx_uv_sandbox_config, token_file),
        FIELD("socket", VIEW, agx_uv_sandbox_config, socket),
        FIELD("host", VIEW, agx_uv_sandbox_config, host),
        FIELD("ready", MS, agx_uv_sandbox_config, ready_ms),
        FIELD("lease", DOUBLE, agx_uv_sandbox_config, lease_s),
        FIELD("host_env", STRV, agx_uv_sandbox_config, host_env),
        FIELD("config_env", STRV, agx_uv_sandbox_config, config_env),
        {0},
};

PyDoc_STRVAR(uv_sandbox_doc,
             "uv_sandbox(*, runtime, python, dir, cwd, token_file, socket, host, ready, lease, host_env, config_env)\n"
             "--\n\nThe brain that starts one runtime server; ready and lease in seconds.");

static PyObject *uv_sandbox(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_uv_sandbox_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, uv_sandbox_fields, &config, &held)) {
                r = agx_uv_sandbox_new(&brain, &config);
                made = agx_ext_wrap_brain(module, brain, r, NULL);
        }
        agx_ext_held_release(&held);
        return made;
}

/* ---- docker ---- */

static const agx_ext_field docker_sandbox_fields[] = {
        FIELD("engine", VIEW, agx_docker_config, engine),
        FIELD("host_env", STRV, agx_docker_config, host_env),
        FIELD("id", VIEW, agx_docker_config, id),
        FIELD("dir", VIEW, agx_docker_config, dir),
        FIELD("nix", VIEW, agx_docker_config, nix),
        FIELD("image", VIEW, agx_docker_config, image),
        FIELD("platform", VIEW, agx_docker_config, platform),
        FIELD("network", VIEW, agx_docker_config, network),
        FIELD("publish_host", VIEW, agx_docker_config, publish_host),
        FIELD("ports", STRV, agx_docker_config, ports),
        FIELD("pull", VIEW, agx_docker_config, pull),
        FIELD("cpus", VIEW, agx_docker_config, cpus),
        FIELD("memory", VIEW, agx_docker_config, memory),
        FIELD("gpus", VIEW, agx_docker_config, gpus),
        FIELD("cap_add", STRV, agx_docker_config, cap_add),
        FIELD("run_args", STRV, agx_docker_config, run_args),
        FIELD("host_label", VIEW, agx_docker_config, host_label),
        FIELD("config_env", STRV, agx_docker_config, config_env),
        FIELD("lease", DOUBLE, agx_docker_config, lease_s),
        FIELD("ready", MS, agx_docker_config, ready_ms),
        FIELD("pids_limit", UNSIGNED, agx_docker_config, pids_limit),
        FIELD("no_new_privileges", BOOL, agx_docker_config, no_new_privileges),
        FIELD("read_only", BOOL, agx_docker_config, read_only),
        {0},
};

PyDoc_STRVAR(docker_sandbox_doc,
             "docker_sandbox(**settings)\n--\n\n"
             "The brain of one container; the settings are those of provider/docker.h, ready and lease in seconds.");

static PyObject *docker_sandbox(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_docker_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, docker_sandbox_fields, &config, &held)) {
                r = agx_docker_sandbox_new(&brain, &config, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

typedef struct command_config {
        agx_view what;
        agx_view engine;
        const agx_strv *host_env;
        agx_view name;
} command_config;

static const agx_ext_field docker_command_fields[] = {
        FIELD("what", VIEW, command_config, what),
        FIELD("engine", VIEW, command_config, engine),
        FIELD("host_env", STRV, command_config, host_env),
        FIELD("name", VIEW, command_config, name),
        {0},
};

PyDoc_STRVAR(docker_command_doc, "docker_command(*, what, engine, host_env, name)\n--\n\n"
                                 "The brain of one command to an engine: look, list or remove.");

static PyObject *docker_command(PyObject *module, PyObject *args, PyObject *kwargs)
{
        static const char *const names[AGX_DOCKER_COMMANDS] = {"look", "list", "remove"};
        command_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = "what";
        PyObject *made = NULL;
        int r = AGX_DOCKER_E_SETTING;

        if (!agx_ext_read_fields(args, kwargs, docker_command_fields, &config, &held)) {
                for (int i = 0; i < AGX_DOCKER_COMMANDS; ++i)
                        if (agx_view_eq(config.what, agx_view_str(names[i])))
                                r = agx_docker_command_new(&brain, (agx_docker_command)i, config.engine,
                                                           config.host_env, config.name, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

/* ---- cape ---- */

static const agx_ext_field cape_sandbox_fields[] = {
        FIELD("binary", VIEW, agx_cape_config, binary),
        FIELD("host_env", STRV, agx_cape_config, host_env),
        FIELD("id", VIEW, agx_cape_config, id),
        FIELD("dir", VIEW, agx_cape_config, dir),
        FIELD("token", VIEW, agx_cape_config, token),
        FIELD("controller_url", VIEW, agx_cape_config, controller_url),
        FIELD("pool", VIEW, agx_cape_config, pool),
        FIELD("user", VIEW, agx_cape_config, user),
        FIELD("image", VIEW, agx_cape_config, image),
        FIELD("gpus", VIEW, agx_cape_config, gpus),
        FIELD("cpu_cores", VIEW, agx_cape_config, cpu_cores),
        FIELD("memory_gb", VIEW, agx_cape_config, memory_gb),
        FIELD("isolation_policy", VIEW, agx_cape_config, isolation_policy),
        FIELD("runtime_adapter", VIEW, agx_cape_config, runtime_adapter),
        FIELD("max_duration", VIEW, agx_cape_config, max_duration),
        FIELD("bundle", VIEW, agx_cape_config, bundle),
        FIELD("extra_binds", STRV, agx_cape_config, extra_binds),
        FIELD("workspace_root", VIEW, agx_cape_config, workspace_root),
        FIELD("url_template", VIEW, agx_cape_config, url_template),
        FIELD("port", VIEW, agx_cape_config, port),
        FIELD("meta", VIEW, agx_cape_config, meta),
        FIELD("config_env", STRV, agx_cape_config, config_env),
        FIELD("lease", DOUBLE, agx_cape_config, lease_s),
        FIELD("ready", MS, agx_cape_config, ready_ms),
        FIELD("failure_limit", UNSIGNED, agx_cape_config, failure_limit),
        {0},
};

PyDoc_STRVAR(
        cape_sandbox_doc,
        "cape_sandbox(**settings)\n--\n\n"
        "The brain of one request to a pool; the settings are those of provider/cape.h, ready and lease in seconds.");

static PyObject *cape_sandbox(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_cape_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, cape_sandbox_fields, &config, &held)) {
                r = agx_cape_sandbox_new(&brain, &config, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

typedef struct cape_command_config {
        agx_view what;
        agx_view binary;
        const agx_strv *host_env;
        agx_view controller_url;
        agx_view request;
} cape_command_config;

static const agx_ext_field cape_command_fields[] = {
        FIELD("what", VIEW, cape_command_config, what),
        FIELD("binary", VIEW, cape_command_config, binary),
        FIELD("host_env", STRV, cape_command_config, host_env),
        FIELD("controller_url", VIEW, cape_command_config, controller_url),
        FIELD("request", VIEW, cape_command_config, request),
        {0},
};

PyDoc_STRVAR(cape_command_doc, "cape_command(*, what, binary, host_env, controller_url, request)\n--\n\n"
                               "The brain of one call about a request: status or cancel.");

static PyObject *cape_command(PyObject *module, PyObject *args, PyObject *kwargs)
{
        static const char *const names[AGX_CAPE_COMMANDS] = {"status", "cancel"};
        cape_command_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = "what";
        PyObject *made = NULL;
        int r = AGX_CAPE_E_SETTING;

        if (!agx_ext_read_fields(args, kwargs, cape_command_fields, &config, &held)) {
                for (int i = 0; i < AGX_CAPE_COMMANDS; ++i)
                        if (agx_view_eq(config.what, agx_view_str(names[i])))
                                r = agx_cape_command_new(&brain, (agx_cape_command)i, config.binary, config.host_env,
                                                         config.controller_url, config.request, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

/* ---- apptainer ---- */

static const agx_ext_field apptainer_image_fields[] = {
        FIELD("binary", VIEW, agx_apptainer_image, binary), FIELD("host_env", STRV, agx_apptainer_image, host_env),
        FIELD("source", VIEW, agx_apptainer_image, source), FIELD("arch", VIEW, agx_apptainer_image, arch),
        FIELD("target", VIEW, agx_apptainer_image, target), {0},
};

PyDoc_STRVAR(apptainer_image_doc, "apptainer_image(*, binary, host_env, source, arch, target)\n--\n\n"
                                  "The brain that fetches an image into a file.");

static PyObject *apptainer_image(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_apptainer_image config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, apptainer_image_fields, &config, &held)) {
                r = agx_apptainer_image_new(&brain, &config, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

static const agx_ext_field apptainer_sandbox_fields[] = {
        FIELD("binary", VIEW, agx_apptainer_config, binary),
        FIELD("host_env", STRV, agx_apptainer_config, host_env),
        FIELD("flags", STRV, agx_apptainer_config, flags),
        FIELD("dir", VIEW, agx_apptainer_config, dir),
        FIELD("nix", VIEW, agx_apptainer_config, nix),
        FIELD("image", VIEW, agx_apptainer_config, image),
        FIELD("cpus", VIEW, agx_apptainer_config, cpus),
        FIELD("memory", VIEW, agx_apptainer_config, memory),
        FIELD("port", VIEW, agx_apptainer_config, port),
        FIELD("gpu", BOOL, agx_apptainer_config, gpu),
        FIELD("config_env", STRV, agx_apptainer_config, config_env),
        FIELD("lease", DOUBLE, agx_apptainer_config, lease_s),
        FIELD("ready", MS, agx_apptainer_config, ready_ms),
        {0},
};

PyDoc_STRVAR(apptainer_sandbox_doc,
             "apptainer_sandbox(**settings)\n--\n\n"
             "The brain of one sandbox; the settings are those of provider/apptainer.h, ready and lease in seconds.");

static PyObject *apptainer_sandbox(PyObject *module, PyObject *args, PyObject *kwargs)
{
        agx_apptainer_config config = {0};
        agx_ext_held held = {0};
        agx_brain *brain = NULL;
        const char *bad = NULL;
        PyObject *made = NULL;
        int r;

        if (!agx_ext_read_fields(args, kwargs, apptainer_sandbox_fields, &config, &held)) {
                r = agx_apptainer_sandbox_new(&brain, &config, &bad);
                made = agx_ext_wrap_brain(module, brain, r, bad);
        }
        agx_ext_held_release(&held);
        return made;
}

#define METHOD(name)                                                                                                   \
        {                                                                                                              \
#name, (PyCFunction)(void (*)(void))name, METH_VARARGS | METH_KEYWORDS, name##_doc                     \
        }

static PyMethodDef provider_functions[] = {
        METHOD(uv_venv),         METHOD(uv_sandbox),        METHOD(docker_sandbox),
        METHOD(docker_command),  METHOD(cape_sandbox),      METHOD(cape_command),
        METHOD(apptainer_image), METHOD(apptainer_sandbox), {NULL, NULL, 0, NULL},
};

int agx_ext_add_provider(PyObject *module)
{
        return PyModule_AddFunctions(module, provider_functions);
}
