#ifndef AGX_CLI_UNPACKING_H
#define AGX_CLI_UNPACKING_H
/* Deploying to the cache as a command sees it: warnings and progress on standard error, an end by a signal. */
#include "bundle/cache.h"
#include "cli/command.h"

typedef int (*agx_cache_deploy_verb)(agx_cache *c, const char *tar, const agx_unpack_limits *limits,
                                     const agx_unpack_hooks *hooks, agx_deployed *d, agx_why *why);

/* Opens the cache at `dir` (NULL: where it usually is), making it if `make`; AGX_CACHE_E_NONE if it is not there. */
int agx_cli_open_cache(agx_cache *c, const char *dir, bool make, agx_why *why);
/* Runs agx_cache_deploy() or agx_cache_try(). */
int agx_cli_unpack(agx_cli *cli, agx_cache *c, const char *tar, agx_cache_deploy_verb verb, agx_deployed *d,
                   agx_why *why);

#endif
