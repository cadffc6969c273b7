#ifndef AGX_SERVER_STATEDIR_UV_H
#define AGX_SERVER_STATEDIR_UV_H
/*
 * The directory of one server: private to its user, locked while the server runs, removed at its end. Only the names the
 * server knows are ever removed (token, socket, lock), and the directory if nothing else is in it.
 */
#include <stdbool.h>

typedef struct agx_statedir {
        int fd; /* -1: none */
        int lock;
        char path[4096];
} agx_statedir;

enum {
        AGX_STATEDIR_E_FOREIGN = 1, /* not a directory of ours with mode 0700 */
        AGX_STATEDIR_E_LOCKED       /* another server runs in it */
};

/* Makes it if it is not there. 0, a condition, or a negative errno; deinit is safe afterwards in any case. */
int agx_statedir_init(agx_statedir *d, const char *path);
/* Without removing anything. */
void agx_statedir_deinit(agx_statedir *d);
void agx_statedir_remove(agx_statedir *d);

#endif
