#ifndef AGX_PROVIDER_CAPE_H
#define AGX_PROVIDER_CAPE_H
/*
 * The `cape` backend: a sandbox is one request to a capacity pool, made by the `cape` program (brain.h).
 *
 * agx_cape_sandbox_new() submits the request, finds out by `cape status` and `cape logs` where its runtime listens, and at
 * DELETE cancels it. A cancellation that the pool does not take leaves the brain where it was (DONE, .message says why),
 * so that DELETE may come again. agx_cape_command_new() asks or cancels a request that another process submitted.
 */
#include "provider/brain.h"

typedef struct agx_cape_config {
        agx_view binary;          /* the program's path */
        const agx_strv *host_env; /* its environment, CAPE_TOKEN in it */
        agx_view id;              /* the sandbox's; the task id */
        agx_view dir;             /* the sandbox's directory on this machine, 0700, made by the shell: holds `token` */
        agx_view token;           /* the runtime's */
        agx_view controller_url;
        agx_view pool;
        agx_view user;
        agx_view image;
        agx_view gpus;
        agx_view cpu_cores; /* absent: not said */
        agx_view memory_gb; /* absent: not said */
        agx_view isolation_policy;
        agx_view runtime_adapter; /* absent: not said */
        agx_view max_duration;
        agx_view bundle; /* as the nodes see it */
        const agx_strv *extra_binds;
        agx_view workspace_root;
        agx_view url_template; /* with {host} and {port} */
        agx_view port;
        agx_view meta; /* a directory that nodes and this machine share, the sandbox's own; absent: there is none */
        const agx_strv *config_env; /* what SandboxConfig.env says */
        double lease_s;             /* 0: none */
        uint64_t ready_ms;      /* from the submission to the marker, and again from there to the runtime's answer */
        unsigned failure_limit; /* of `cape status`, in a row */
} agx_cape_config;

/* A setting that cannot be given to the program; `*bad` names it. */
enum { AGX_CAPE_E_SETTING = 1 };

/* Copies what it needs. 0, -ENOMEM, -EINVAL (NUL bytes) or AGX_CAPE_E_SETTING. When DONE, .path is the request's id. */
int agx_cape_sandbox_new(agx_brain **brain, const agx_cape_config *config, const char **bad);

typedef enum agx_cape_command {
        AGX_CAPE_STATUS, /* DONE, .message: "running" or "exited"; GONE: the pool does not know it */
        AGX_CAPE_CANCEL, /* GONE, also if the pool does not know it */
        AGX_CAPE_COMMANDS
} agx_cape_command;

/* `request`: its id. FAILED says what the program said. Results as agx_cape_sandbox_new(). */
int agx_cape_command_new(agx_brain **brain, agx_cape_command command, agx_view binary, const agx_strv *host_env,
                         agx_view controller_url, agx_view request, const char **bad);

#endif
