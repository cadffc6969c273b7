#ifndef AGX_PROVIDER_UV_H
#define AGX_PROVIDER_UV_H
/*
 * The `uv` backend: no container; a virtual environment made by uv, and `agentix-runtime` as a process of the host.
 *
 * Two brains (brain.h). agx_uv_venv_new() makes the environment: `uv venv`, then `uv pip install` of the project; a
 * provider does it once. agx_uv_sandbox_new() starts one runtime server in it.
 */
#include "provider/brain.h"

typedef struct agx_uv_venv_config {
        agx_view uv;             /* the uv binary */
        agx_view venv;           /* where to make the environment; nothing is there yet */
        agx_view python;         /* "3.12", or an interpreter's path */
        agx_view project;        /* a directory with a pyproject.toml; absent: none */
        const agx_strv *install; /* further requirements */
        agx_view index_url;      /* absent: uv's own choice */
        const agx_strv *extra_index_url;
        agx_view constraints; /* a file that says where our own distributions lie; absent: none */
        const agx_strv *own;  /* their names: where the project would take them from is passed over */
        const agx_strv *env;  /* uv's environment */
} agx_uv_venv_config;

/* Copies what it needs. 0, -ENOMEM or -EINVAL (NUL bytes). */
int agx_uv_venv_new(agx_brain **brain, const agx_uv_venv_config *config);

typedef struct agx_uv_sandbox_config {
        agx_view runtime; /* the agentix-runtime binary */
        agx_view python;  /* the environment's interpreter */
        agx_view dir;     /* the sandbox's own directory, 0700; made by the shell, removed by the server or the shell */
        agx_view cwd;     /* where server and worker stand */
        agx_view token_file; /* in dir */
        agx_view socket;     /* path of the Unix socket; absent: TCP on `host` */
        agx_view host;       /* a literal address */
        uint64_t ready_ms;   /* spawn to ready */
        double lease_s;      /* 0: none */
        const agx_strv *
                host_env; /* the host's environment, from which PATH, HOME, LANG, LC_*, TMPDIR, TZ and USER are taken */
        const agx_strv *config_env; /* what SandboxConfig.env says; wins */
} agx_uv_sandbox_config;

int agx_uv_sandbox_new(agx_brain **brain, const agx_uv_sandbox_config *config);

#endif
