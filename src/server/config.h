#ifndef AGX_SERVER_CONFIG_H
#define AGX_SERVER_CONFIG_H
/*
 * What the command line and the environment ask for, read once and checked. A brain: it opens nothing; its strings are those
 * given to it.
 */
#include <stdbool.h>
#include <stdint.h>

typedef struct agx_config {
        bool help, version;
        const char *python;
        const char *state_dir; /* NULL: none */
        const char *bind_host;
        unsigned bind_port;
        const char *bind_socket; /* NULL: TCP */
        const char *token_file;  /* NULL: no token */
        const char *allowed_hosts;
        const char *allowed_origins;
        const char *log_dir;     /* "": no durable log */
        const char *log_context; /* a template, or NULL */
        uint64_t log_items, trace_items;
        uint64_t spares;   /* workers kept ready beside the one that works: 0 or 1 */
        uint64_t lease_ms; /* UINT64_MAX: none */
        int ready_fd;      /* -1: none */
        int lifeline_fd;
        uint64_t core_limit; /* soft limits the worker gets back, set by main */
        uint64_t nofile_limit;
} agx_config;

/* The value of a variable or NULL, as getenv. */
typedef const char *(*agx_config_get)(const char *name, void *user);

/* False: *why says what is wrong, in a buffer of `size` bytes. */
bool agx_config_read(agx_config *c, int argc, char *const *argv, agx_config_get get, void *user, char *why,
                     unsigned size);
/* A literal loopback address. */
bool agx_config_is_loopback(const char *host);

#endif
