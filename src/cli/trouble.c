/* Words are made here, at the edge; exit codes too, unless who failed knew better. */
#include "cli/trouble.h"

#include "bundle/run.h"

#include <errno.h>
#include <string.h>

void agx_cli_catch_signals(void)
{
        agx_run_catch_signals();
}

bool agx_cli_stopped(void *unused)
{
        (void)unused;
        return agx_run_signal() != 0;
}

int agx_cli_trouble(agx_cli *cli, int r, const agx_why *why)
{
        agx_complaint complaint = {.kind = why->kind, .hint = why->hint[0] ? why->hint : NULL};

        if (r == -ENOMEM)
                return agx_say_no_memory(&cli->say);
        complaint.exit_code = agx_run_signal() ? AGX_EXIT_SIGNAL + agx_run_signal()
                              : why->exit_code ? why->exit_code
                                               : AGX_EXIT_FAILURE;
        if (r < 0)
                return agx_say_error(&cli->say, &complaint, "%s", strerror(-r));
        return agx_say_error(&cli->say, &complaint, "%s", why->text);
}
