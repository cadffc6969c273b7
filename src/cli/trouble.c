/* A handler does nothing but remember; commands look when they have a moment. */
#include "cli/trouble.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

static volatile sig_atomic_t caught;

static void remember(int number)
{
        caught = number;
}

void agx_cli_catch_signals(void)
{
        static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction on = {.sa_handler = remember};

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                struct sigaction old;

                /* What our parent has us ignore (nohup) stays ignored. */
                if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN)
                        sigaction(numbers[i], &on, NULL);
        }
}

int agx_cli_signal(void)
{
        return caught;
}

bool agx_cli_stopped(void *unused)
{
        (void)unused;
        return caught != 0;
}

int agx_cli_trouble(agx_cli *cli, int r, const agx_why *why)
{
        agx_complaint complaint = {.kind = why->kind, .hint = why->hint[0] ? why->hint : NULL};

        if (r == -ENOMEM)
                return agx_say_no_memory(&cli->say);
        complaint.exit_code = caught ? AGX_EXIT_SIGNAL + caught : why->exit_code ? why->exit_code : AGX_EXIT_FAILURE;
        if (r < 0)
                return agx_say_error(&cli->say, &complaint, "%s", strerror(-r));
        return agx_say_error(&cli->say, &complaint, "%s", why->text);
}
