#ifndef AGX_OCI_RUN_H
#define AGX_OCI_RUN_H
/*
 * `<engine> run` of one sandbox: what it needs, checked, as an argv.
 *
 * Views and vectors are borrowed for the length of the call; absent views and zeros leave an option out. Every value
 * has its own slot after a fixed option, the image comes last, after `--`. `extra` alone is the caller's own words.
 */
#include "base/strv.h"

typedef struct agx_oci_mount {
        agx_view source;
        const char *target;
        bool writable;
} agx_oci_mount;

enum { AGX_OCI_MOUNTS_MAX = 4 };

typedef struct agx_oci_run {
        agx_view engine; /* the program */
        agx_view name;
        agx_view image;
        agx_view platform;
        const char *entrypoint;
        agx_view network;
        agx_view publish_host; /* a literal address; empty: all of them */
        unsigned port;         /* published under the same number; 0: none is */
        agx_view pull;         /* missing, always, never */
        agx_view cpus;
        agx_view memory;
        agx_view gpus;
        agx_view env_file;
        const agx_strv *labels;  /* "name=value" */
        const agx_strv *cap_add; /* what is left of the capabilities; all others are dropped */
        const agx_strv *extra;
        agx_oci_mount mounts[AGX_OCI_MOUNTS_MAX];
        unsigned mount_count;
        unsigned pids_limit; /* 0: no limit */
        bool no_new_privileges;
        bool read_only;
        bool host_proxies; /* false for podman: do not let it copy the host's proxy variables into the container */
} agx_oci_run;

/* NULL, or the name of the first field that may not become an argument. */
const char *agx_oci_run_check(const agx_oci_run *run);
/* Appends the argv of a checked run; judge it by agx_strv_end(). */
void agx_oci_run_argv(agx_strv *argv, const agx_oci_run *run);

#endif
