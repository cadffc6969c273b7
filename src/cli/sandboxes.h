#ifndef AGX_CLI_SANDBOXES_H
#define AGX_CLI_SANDBOXES_H
/*
 * The sandboxes that container engines of this machine have, found by their labels (oci/labels.h), whoever started them. An
 * engine that is there but does not answer is warned of; that none answers is an error.
 */
#include "base/list.h"
#include "base/strv.h"
#include "cli/command.h"

typedef struct agx_sandbox {
        agx_list node;
        char *name;   /* the container's and the sandbox's */
        char *engine; /* the program */
        bool running;
        bool exited;
        bool host_alive; /* the process that started it is there, as far as we can see */
        char *lease;     /* as the label has it; may be empty */
} agx_sandbox;

typedef struct agx_sandboxes {
        agx_list list;
        agx_strv engines; /* that answered */
} agx_sandboxes;

/* Asks `engine`, or with NULL docker and podman, as far as they are on PATH. 0 or an exit code, and then it is said why. */
int agx_sandboxes_init(agx_sandboxes *s, agx_cli *cli, const char *engine);
void agx_sandboxes_deinit(agx_sandboxes *s);
AGX_DEFINE_CLEANUP(agx_sandboxes, agx_sandboxes_deinit)

/* NULL: there is none of that name. */
const agx_sandbox *agx_sandboxes_find(const agx_sandboxes *s, const char *name);
/* Has its engine remove it, running or not. The exit code; on failure it is said why. */
int agx_sandbox_remove(agx_cli *cli, const agx_sandbox *sandbox);

#endif
