#ifndef AGX_SERVER_STATEDIR_UV_H
#define AGX_SERVER_STATEDIR_UV_H
/*
 * The directory of one server: private to its user, locked while the server runs, removed at its end with all that
 * lies in it, the worker's own files included: what a sandbox left behind goes with it, even if its host was killed.
 */
#include <stdbool.h>

typedef struct agx_statedir {
        int fd; /* -1: none */
        int lock;
        char path[4096];
} agx_statedir;

enum {
        AGX_STATEDIR_E_FOREIGN = 1, /* not a directory of ours with mode 0700 */
        AGX_STATEDIR_E_LOCKED,      /* another server runs in it */
        AGX_STATEDIR_E_USED         /* it holds what is not a sandbox's: all of it would be removed in the end */
};

/* Makes it if it is not there. 0, a condition, or a negative errno; deinit is safe afterwards in any case. */
int agx_statedir_init(agx_statedir *d, const char *path);
/* Without removing anything. */
void agx_statedir_deinit(agx_statedir *d);
/* Links are removed, never followed; what lies on another file system stays, and so does what is nested too deep. */
void agx_statedir_remove(agx_statedir *d);

#endif
