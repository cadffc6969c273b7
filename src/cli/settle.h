#ifndef AGX_CLI_SETTLE_H
#define AGX_CLI_SETTLE_H
/* Where the line and the other sources of settings meet. */
#include "cli/opt.h"
#include "cli/settings.h"

/*
 * Gives every option that the line does not have the value of its setting, and has `s` know what the line said. The values
 * live as long as `s`. 0 or -ENOMEM.
 */
int agx_settle(const agx_opt_set *sets, agx_settings *s);

#endif
