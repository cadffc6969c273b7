#ifndef AGX_PROVIDER_APPTAINER_H
#define AGX_PROVIDER_APPTAINER_H
/*
 * The `apptainer` backend: a process of the user's that runs the bundle's runtime server inside an image (brain.h).
 *
 * agx_apptainer_image_new() fetches an image into a file; agx_apptainer_sandbox_new() starts one sandbox of it.
 */
#include "provider/brain.h"

/* Where things lie in the container. */
#define AGX_APPTAINER_BOOTSTRAP "/nix/runtime/bootstrap.sh"
#define AGX_APPTAINER_TOKEN "/run/agentix/token"
#define AGX_APPTAINER_ENV "/run/agentix/environ"
#define AGX_APPTAINER_SOCKET_DIR "/run/agentix/socket"

/* A setting that may not become an argument; `*bad` names it. */
enum { AGX_APPTAINER_E_SETTING = 1 };

typedef struct agx_apptainer_image {
        agx_view binary;
        const agx_strv *host_env;
        agx_view source; /* a URI: "docker://python:3.13-slim" */
        agx_view arch;   /* "amd64"; absent: the machine's own */
        agx_view target; /* the file to make; nothing is there yet */
} agx_apptainer_image;

/* RUN (WAIT RUN)... -> DONE with .path, or FAILED with .path to be removed. Copies what it needs; 0, -ENOMEM, -EINVAL
 * (NUL bytes) or AGX_APPTAINER_E_SETTING. */
int agx_apptainer_image_new(agx_brain **brain, const agx_apptainer_image *image, const char **bad);

typedef struct agx_apptainer_config {
        agx_view binary;
        const agx_strv *host_env;
        const agx_strv *flags; /* of `exec` */
        agx_view dir;   /* the sandbox's directory on the host, 0700, made by the shell: holds `token` and the directory
                         `socket`; the brain has `environ` written there */
        agx_view nix;   /* the bundle's nix directory */
        agx_view image; /* the file */
        agx_view cpus;
        agx_view memory;
        agx_view port; /* of loopback; absent: a Unix socket in `socket` */
        bool gpu;
        const agx_strv *config_env; /* what SandboxConfig.env says */
        double lease_s;             /* 0: none */
        uint64_t ready_ms;
} agx_apptainer_config;

/* As agx_apptainer_image_new(). */
int agx_apptainer_sandbox_new(agx_brain **brain, const agx_apptainer_config *config, const char **bad);

#endif
