#ifndef AGX_PROVIDER_DOCKER_H
#define AGX_PROVIDER_DOCKER_H
/*
 * The `docker` and `podman` backends: a container that runs the bundle's runtime server (brain.h).
 *
 * agx_docker_sandbox_new() starts one and, at DELETE, removes it. agx_docker_command_new() asks or tells an engine about
 * a container that another process may have started.
 */
#include "provider/brain.h"

/* Where things lie in the container. */
#define AGX_DOCKER_BOOTSTRAP "/nix/runtime/bootstrap.sh"
#define AGX_DOCKER_TOKEN "/run/agentix/token"
#define AGX_DOCKER_ENV "/run/agentix/environ"
#define AGX_DOCKER_SOCKET_DIR "/run/agentix/socket"

typedef struct agx_docker_config {
        agx_view engine;          /* the program's path */
        const agx_strv *host_env; /* its environment */
        agx_view id;              /* the sandbox's, which is the container's name */
        agx_view dir; /* the sandbox's directory on the host, 0700, made by the shell: holds `token` and, for
                                  network "none", the directory `socket`; the brain has `env` and `environ` written there */
        agx_view nix; /* the bundle's nix directory */
        agx_view image;
        agx_view platform;     /* absent: the engine's own */
        agx_view network;      /* absent: the engine's own; "none" and "host" are special */
        agx_view publish_host; /* a literal address, or empty: all of them */
        const agx_strv *ports; /* candidates, one after the other as they turn out to be taken */
        agx_view pull;
        agx_view cpus;
        agx_view memory;
        agx_view gpus;
        const agx_strv *cap_add;
        const agx_strv *run_args;
        agx_view host_label;        /* labels.h */
        const agx_strv *config_env; /* what SandboxConfig.env says */
        double lease_s;             /* 0: none */
        uint64_t ready_ms;          /* from the container's start to the runtime's answer */
        unsigned pids_limit;        /* 0: none */
        bool no_new_privileges;
        bool read_only;
} agx_docker_config;

/* A setting that no engine may be given; `*bad` names it. */
enum { AGX_DOCKER_E_SETTING = 1 };

/* Copies what it needs. 0, -ENOMEM, -EINVAL (NUL bytes) or AGX_DOCKER_E_SETTING. */
int agx_docker_sandbox_new(agx_brain **brain, const agx_docker_config *config, const char **bad);

typedef enum agx_docker_command {
        AGX_DOCKER_LOOK, /* DONE, .message: "<status> <container id> <sandbox id>" of a sandbox; GONE: there is none */
        AGX_DOCKER_LIST, /* DONE, .message: a line "<id>\t<running|exited|other>\t<host label>" for each sandbox */
        AGX_DOCKER_REMOVE, /* GONE */
        AGX_DOCKER_COMMANDS
} agx_docker_command;

/* `name`: of the container, but for LIST. FAILED says what the engine said. Results as agx_docker_sandbox_new(). */
int agx_docker_command_new(agx_brain **brain, agx_docker_command command, agx_view engine, const agx_strv *host_env,
                           agx_view name, const char **bad);

#endif
