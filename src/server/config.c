/* Options first, then variables; an empty variable counts as not set. Numbers are strict: digits, in range. */
#include "server/config.h"
#include "base/view.h"
#include "proto/limits.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PORT_DEFAULT = 8000, FD_MAX = 1 << 20 };

typedef struct reader {
        agx_config *config;
        agx_config_get get;
        void *user;
        char *why;
        unsigned size;
} reader;

static bool complain(reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool complain(reader *r, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vsnprintf(r->why, r->size, format, ap);
        va_end(ap);
        return false;
}

/* ---- options ---- */

static bool option_value(int argc, char *const *argv, int *i, const char *name, const char **value)
{
        size_t n = strlen(name);

        if (strncmp(argv[*i], name, n) != 0)
                return false;
        if (argv[*i][n] == '=') {
                *value = argv[*i] + n + 1;
                return true;
        }
        if (argv[*i][n] || *i + 1 >= argc)
                return false;
        *value = argv[++*i];
        return true;
}

static bool read_options(reader *r, int argc, char *const *argv)
{
        agx_config *c = r->config;

        for (int i = 1; i < argc; i++) {
                if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
                        c->help = true;
                else if (!strcmp(argv[i], "--version"))
                        c->version = true;
                else if (!option_value(argc, argv, &i, "--python", &c->python) &&
                         !option_value(argc, argv, &i, "--state-dir", &c->state_dir))
                        return complain(r, "unknown or incomplete option: %s", argv[i]);
        }
        if (!c->help && !c->version && (!c->python || !*c->python))
                return complain(r, "--python is needed: the interpreter the worker runs in");
        return true;
}

/* ---- variables ---- */

static const char *variable(reader *r, const char *name)
{
        const char *value = r->get(name, r->user);

        return value && *value ? value : NULL;
}

static bool read_number(reader *r, const char *name, uint64_t max, uint64_t otherwise, uint64_t *number)
{
        const char *value = variable(r, name);

        *number = otherwise;
        if (!value || agx_view_u64(agx_view_str(value), max, number))
                return true;
        return complain(r, "%s must be a number from 0 to %llu, not \"%.64s\"", name, (unsigned long long)max, value);
}

static bool read_fd(reader *r, const char *name, int *fd)
{
        uint64_t number;

        if (!read_number(r, name, FD_MAX, FD_MAX + 1, &number))
                return false;
        *fd = number > FD_MAX ? -1 : (int)number;
        return *fd < 0 || *fd > 2 || complain(r, "%s must not be a standard descriptor", name);
}

/* Seconds, decimals allowed. */
static bool read_seconds(reader *r, const char *name, uint64_t *ms)
{
        const char *value = variable(r, name);
        agx_view rest = agx_view_str(value), whole, part = AGX_VIEW("");
        uint64_t seconds, thousandths = 0, unit = 100;

        *ms = UINT64_MAX;
        if (!value)
                return true;
        agx_view_split(&rest, '.', &whole);
        if (rest.p)
                part = rest;
        if (!agx_view_u64(whole, UINT32_MAX, &seconds) || (rest.p && !part.n))
                return complain(r, "%s must be a number of seconds, not \"%.64s\"", name, value);
        for (size_t i = 0; i < part.n; i++, unit /= 10) {
                if (part.p[i] < '0' || part.p[i] > '9')
                        return complain(r, "%s must be a number of seconds, not \"%.64s\"", name, value);
                thousandths += (uint64_t)(part.p[i] - '0') * unit;
        }
        *ms = seconds * 1000 + thousandths;
        return *ms > 0 || complain(r, "%s must be above zero", name);
}

static bool is_literal(const char *host)
{
        unsigned char address[sizeof(struct in6_addr)];

        return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

bool agx_config_is_loopback(const char *host)
{
        struct in_addr v4;
        struct in6_addr v6;

        if (inet_pton(AF_INET, host, &v4) == 1)
                return ntohl(v4.s_addr) >> 24 == 127;
        return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

static bool read_address(reader *r)
{
        agx_config *c = r->config;
        const char *host = variable(r, "AGENTIX_BIND_HOST");
        uint64_t port;

        c->bind_socket = variable(r, "AGENTIX_BIND_SOCKET");
        c->bind_host = host ? host : "127.0.0.1";
        if (!read_number(r, "AGENTIX_BIND_PORT", 65535, PORT_DEFAULT, &port))
                return false;
        c->bind_port = (unsigned)port;
        if (!is_literal(c->bind_host))
                return complain(r, "AGENTIX_BIND_HOST must be a literal address, not \"%.64s\"", c->bind_host);
        c->token_file = variable(r, "AGENTIX_TOKEN_FILE");
        if (!c->token_file && !c->bind_socket && !agx_config_is_loopback(c->bind_host))
                return complain(r, "listening on %.64s needs a token: set AGENTIX_TOKEN_FILE", c->bind_host);
        return true;
}

/* What is no positive number within reason means the default. */
static uint64_t read_items(reader *r, const char *name)
{
        const char *value = variable(r, name);
        uint64_t n;

        if (!value || !agx_view_u64(agx_view_str(value), AGX_STREAM_ITEMS_MAX, &n) || !n)
                return AGX_STREAM_ITEMS;
        return n;
}

static void read_logs(reader *r)
{
        agx_config *c = r->config;
        const char *dir = r->get("AGENTIX_LOG_DIR", r->user);

        c->log_dir = dir ? dir : "/tmp/agentix";
        c->log_context = variable(r, "AGENTIX_WORKER_LOG_CONTEXT");
        c->log_items = read_items(r, "AGENTIX_LOG_BUFFER");
        c->trace_items = read_items(r, "AGENTIX_TRACE_BUFFER");
}

bool agx_config_read(agx_config *c, int argc, char *const *argv, agx_config_get get, void *user,
                     char *why /* NOLINT(readability-non-const-parameter) */, unsigned size)
{
        reader r = {c, get, user, why, size};

        *c = (agx_config){.ready_fd = -1, .lifeline_fd = -1, .lease_ms = UINT64_MAX};
        if (!read_fd(&r, "AGENTIX_READY_FD", &c->ready_fd) || !read_options(&r, argc, argv))
                return false;
        if (c->help || c->version)
                return true;
        read_logs(&r);
        c->allowed_hosts = variable(&r, "AGENTIX_ALLOWED_HOSTS");
        c->allowed_origins = variable(&r, "AGENTIX_ALLOWED_ORIGINS");
        return read_fd(&r, "AGENTIX_LIFELINE_FD", &c->lifeline_fd) && read_seconds(&r, "AGENTIX_LEASE", &c->lease_ms) &&
               read_number(&r, "AGENTIX_SPARE_WORKERS", 1, 1, &c->spares) && read_address(&r);
}
