#ifndef AGX_OCI_ENGINE_H
#define AGX_OCI_ENGINE_H
/*
 * A container engine's command line: which program it is, its small commands, and what its answers mean.
 *
 * docker and podman take the same words; where they do not, agx_oci_is_podman() tells. Commands that ask print lines
 * beginning with a marker of ours, so that warnings of the engine in the same output do no harm. Names and ids given to
 * the argv builders must have passed agx_oci_name().
 */
#include "base/strv.h"

/* Finds `name` (a path, or a name to look for along `path`, as PATH) into `*found`, the caller's to free. 0, -ENOMEM,
 * or AGX_OCI_E_NOT_FOUND. */
enum { AGX_OCI_E_NOT_FOUND = 1 };
int agx_oci_find(agx_view name, agx_view path, char **found);

/* Whether the program is podman, by its file name: some of its options docker does not know. */
bool agx_oci_is_podman(agx_view engine);

/* ---- small commands ---- */

/* One container's state, for agx_oci_state_read(). */
void agx_oci_look_argv(agx_strv *argv, agx_view engine, agx_view name);
/* All sandboxes, running or not, for agx_oci_list_next(). */
void agx_oci_list_argv(agx_strv *argv, agx_view engine);
/* Removes a container with its anonymous volumes, running or not. */
void agx_oci_remove_argv(agx_strv *argv, agx_view engine, agx_view name);
/* Its last output. */
void agx_oci_logs_argv(agx_strv *argv, agx_view engine, agx_view name);

/* ---- answers ---- */

typedef struct agx_oci_state {
        agx_view status; /* created, running, exited, ... */
        bool running;
        bool oom_killed;
        int code;         /* once it has exited */
        agx_view id;      /* the container's */
        agx_view sandbox; /* the label's value; empty: not a sandbox of ours */
} agx_oci_state;

/* Reads what `look` printed; views point into it. False: no answer in it. */
bool agx_oci_state_read(agx_view output, agx_oci_state *state);

typedef struct agx_oci_row {
        agx_view name;
        bool running;
        bool exited;
        agx_view host; /* labels, as in labels.h */
        agx_view lease;
        agx_view sandbox;
} agx_oci_row;

/* Takes the next row from `*output`, passing over lines that are none. False at the end. */
bool agx_oci_list_next(agx_view *output, agx_oci_row *row);

typedef enum agx_oci_trouble {
        AGX_OCI_TROUBLE_OTHER,
        AGX_OCI_TROUBLE_TRANSIENT,    /* the registry hiccuped: worth another try */
        AGX_OCI_TROUBLE_PORT,         /* the port is taken: worth another one */
        AGX_OCI_TROUBLE_NAME,         /* another container has the name */
        AGX_OCI_TROUBLE_NO_CONTAINER, /* there is none of that name */
        AGX_OCI_TROUBLE_NO_DAEMON     /* the engine does not run */
} agx_oci_trouble;

/* What an engine's failure is about, by its words. */
agx_oci_trouble agx_oci_trouble_of(agx_view output);
/* Whether a `run` that is still going is pulling the image, by its words: no container exists yet. */
bool agx_oci_is_pulling(agx_view output);

#endif
