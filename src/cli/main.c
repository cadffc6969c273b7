/* agentix: the command line. Finds the command, runs it, and makes sure that what it printed has arrived. */
#include "cli/command.h"

#include <fcntl.h>

/* Descriptors 0 to 2 must be open, or files opened later would take their places and be printed into. */
static void fill_standard_fds(void)
{
        int fd;

        do
                fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        while (fd >= 0 && fd <= 2);
        if (fd > 2)
                close(fd);
}

int main(int argc, char **argv)
{
        agx_cli cli = {0};
        int code;

        fill_standard_fds();
        agx_say_init(&cli.say, stdout, stderr);
        code = agx_command_main(&cli, argc > 0 ? argc - 1 : 0, argv + (argc > 0));
        agx_settings_deinit(&cli.settings);
        return agx_say_end(&cli.say, code);
}
