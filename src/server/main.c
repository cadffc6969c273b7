/*
 * agentix-runtime: reads what it is asked to do, makes the process fit for it, and runs the server. Whatever keeps it
 * from starting is told in one line, to the host that waits on the ready descriptor and on standard error.
 */
#include "base/cleanup.h"
#include "server/envfile.h"
#include "server/server_uv.h"
#include "server/statedir_uv.h"
#include "worker/keeper_uv.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

static const char help[] =
        "Usage: agentix-runtime --python PYTHON [--state-dir DIR]\n"
        "\n"
        "Runs calls in a sandbox: listens for them and hands them to a worker of PYTHON.\n"
        "\n"
        "Options:\n"
        "  --python PYTHON    interpreter the worker runs in; it must be able to import agentix\n"
        "  --state-dir DIR    private directory of this server; locked while it runs, removed at its end\n"
        "                     with all that is in it\n"
        "  --version          print the version\n"
        "  --help             print this\n"
        "\n"
        "Environment:\n"
        "  AGENTIX_BIND_HOST        literal address to listen on (127.0.0.1)\n"
        "  AGENTIX_BIND_PORT        port to listen on (8000); 0: any\n"
        "  AGENTIX_BIND_SOCKET      path of a Unix socket to listen on instead\n"
        "  AGENTIX_TOKEN_FILE       file with the token that calls must bear; needed off loopback\n"
        "  AGENTIX_ALLOWED_HOSTS    further names a request without a token may be addressed to\n"
        "  AGENTIX_ALLOWED_ORIGINS  origins of web pages that may call\n"
        "  AGENTIX_LEASE            seconds without an authenticated connection after which the server exits\n"
        "  AGENTIX_ENV_FILE         file of further variables, each \"name=value\" and a NUL\n"
        "  AGENTIX_LOG_DIR          directory of the durable logs; empty: none (/tmp/agentix, or\n"
        "                           /tmp/agentix-UID where that belongs to another user)\n"
        "  AGENTIX_LOG_BUFFER       records kept until a host has them (10000)\n"
        "  AGENTIX_TRACE_BUFFER     likewise of spans\n"
        "  AGENTIX_SPARE_WORKERS    0: none waits to succeed a worker that dies, which saves its memory (1)\n"
        "  AGENTIX_WORKER_LOG_CONTEXT  what the context of records is; {id}, {pid}, {uname}, {hostname} are filled in\n"
        "  AGENTIX_READY_FD         descriptor that gets one line when the server listens, or cannot\n"
        "  AGENTIX_LIFELINE_FD      descriptor whose end means that the host is gone\n"
        "\n"
        "SIGUSR1 asks for a line on standard error about the calls and connections it holds.\n";

static const char *from_environ(const char *name, void *user)
{
        (void)user;
        return getenv(name);
}

static int fail(const agx_config *config, const char *why)
{
        fprintf(stderr, "agentix-runtime: error: %s\n", why);
        if (config->ready_fd >= 0)
                dprintf(config->ready_fd, "failed %s\n", why);
        return 1;
}

/* Descriptors 0 to 2 must be open, or the next ones opened would take their places. */
static void fill_standard_fds(void)
{
        int fd;

        do
                fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        while (fd >= 0 && fd <= 2);
        if (fd > 2)
                close(fd);
}

static void set_cloexec(int fd)
{
        if (fd > 2)
                fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/* No core files, no tracing, as many descriptors as allowed. The worker gets the old limits back. */
static void harden(agx_config *config)
{
        struct rlimit limit;

#ifndef __SANITIZE_ADDRESS__
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* the leak check traces its own process */
#endif
        if (!getrlimit(RLIMIT_CORE, &limit)) {
                config->core_limit = limit.rlim_cur;
                limit.rlim_cur = 0;
                setrlimit(RLIMIT_CORE, &limit);
        }
        if (!getrlimit(RLIMIT_NOFILE, &limit)) {
                config->nofile_limit = limit.rlim_cur;
                limit.rlim_cur = limit.rlim_max;
                setrlimit(RLIMIT_NOFILE, &limit);
        }
        signal(SIGPIPE, SIG_IGN);
        set_cloexec(config->ready_fd);
        set_cloexec(config->lifeline_fd);
}

/* The interpreter's path, absolute and with its links: a virtual environment is found by them. NULL: no such program. */
static char *absolute(const char *program)
{
        const char *path = getenv("PATH");
        char *found = NULL;

        if (strchr(program, '/')) {
                _cleanup_(agx_freep) char *here = program[0] == '/' ? NULL : getcwd(NULL, 0);

                if (program[0] == '/')
                        return strdup(program);
                return here && asprintf(&found, "%s/%s", here, program) > 0 ? found : NULL;
        }
        while (path && *path) {
                size_t n = strcspn(path, ":");

                if (n && asprintf(&found, "%.*s/%s", (int)n, path, program) > 0) {
                        if (!access(found, X_OK))
                                return found;
                        free(found);
                }
                path += n + (path[n] == ':');
        }
        return NULL;
}

static int claim(agx_statedir *dir, const agx_config *config)
{
        static const char *const complaints[] = {
                [AGX_STATEDIR_E_FOREIGN] = "must be ours and have mode 0700",
                [AGX_STATEDIR_E_LOCKED] = "is in use by another server",
                [AGX_STATEDIR_E_USED] = "holds files that are not a sandbox's, and it would be removed with them",
        };
        char why[256];
        int r = config->state_dir ? agx_statedir_init(dir, config->state_dir) : 0;

        if (!r)
                return 0;
        snprintf(why, sizeof(why), "the state directory %s", r < 0 ? strerrordesc_np(-r) : complaints[r]);
        agx_statedir_deinit(dir);
        return fail(config, why);
}

/* The default place may be another user's already; then there is one of our own beside it. */
static void choose_log_dir(agx_config *config, char own[64])
{
        struct stat info;

        if (getenv("AGENTIX_LOG_DIR") || lstat(config->log_dir, &info) || info.st_uid == geteuid())
                return;
        snprintf(own, 64, "%.40s-%u", config->log_dir, (unsigned)geteuid());
        config->log_dir = own;
}

static int run(agx_config *config)
{
        agx_statedir dir = {.fd = -1, .lock = -1};
        _cleanup_(agx_freep) char *python = absolute(config->python);
        agx_server *server;
        int r;

        if (!python)
                return fail(config, "there is no program as --python names it");
        config->python = python;
        if (claim(&dir, config))
                return 1;
        server = calloc(1, sizeof(*server));
        r = server ? agx_server_run(server, config, environ, AGX_VERSION) : fail(config, "out of memory");
        free(server);
        agx_statedir_remove(&dir);
        return r ? 1 : 0;
}

int main(int argc, char **argv)
{
        char why[256], own_log_dir[64];
        agx_config config;
        int r;

        if (argc && !strcmp(argv[0], AGX_KEEPER_NAME))
                return agx_keeper_main(argc, argv);
        fill_standard_fds();
        r = agx_envfile_load();
        if (r) {
                fprintf(stderr, "agentix-runtime: error: the file that AGENTIX_ENV_FILE names: %s\n",
                        strerrordesc_np(-r));
                return 1;
        }
        if (!agx_config_read(&config, argc, argv, from_environ, NULL, why, sizeof(why)))
                return fail(&config, why);
        if (config.help)
                fputs(help, stdout);
        else if (config.version)
                puts("agentix-runtime " AGX_VERSION);
        if (config.help || config.version)
                return 0;
        harden(&config);
        choose_log_dir(&config, own_log_dir);
        return run(&config);
}
