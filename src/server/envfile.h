#ifndef AGX_SERVER_ENVFILE_H
#define AGX_SERVER_ENVFILE_H
/*
 * Variables that an engine's own way of passing them could not carry (ends of lines in values, for one): AGENTIX_ENV_FILE
 * names a file of "name=value" and a NUL each, as in /proc/<pid>/environ. They are the environment of server and worker
 * as if they had been there from the start; AGENTIX_ENV_FILE itself is taken out.
 */
#include "base/view.h"

/* Sets them. 0, -EINVAL for what is no such list, or the error of setenv(). */
int agx_envfile_apply(agx_view content);
/* Reads the file that AGENTIX_ENV_FILE names, if it is set, and applies it. 0 or a negative errno. */
int agx_envfile_load(void);

#endif
