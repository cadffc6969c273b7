#ifndef AGX_IO_CHILD_H
#define AGX_IO_CHILD_H
/*
 * One child process: started with exactly the descriptors it is to have, watched by its pidfd (by SIGCHLD where the
 * kernel has none), waited for by its own pid. Its death is what the kernel says, never the end of a pipe.
 *
 * The child runs in a session of its own, so its process group has its pid; it gets default signals, none blocked, and
 * SIGKILL when the process that started it dies. What becomes of failures after the fork is asked with
 * agx_child_exec_error() once the child is dead.
 */
#include "io/loop.h"

#include <sys/types.h>

typedef struct agx_child_spec {
        const char *path; /* executed as is, no search */
        char *const *argv;
        char *const *envp;
        int fds[6];            /* what becomes 0 to 5; -1: /dev/null for 0 to 2, above nothing, and nothing after it */
        int oom_score_add;     /* raised by so much, up to the kernel's most */
        uint64_t core_limit;   /* soft RLIMIT_CORE it gets */
        uint64_t nofile_limit; /* soft RLIMIT_NOFILE */
} agx_child_spec;

typedef struct agx_child agx_child;

struct agx_child {
        agx_list node; /* in the reaper */
        agx_loop *loop;
        pid_t pid;
        int pidfd;     /* -1: none, or given back */
        int exec_pipe; /* holds an errno if the exec failed */
        int exec_error;
        uv_poll_t watch;
        bool watching;
        bool dead;
        bool closing;
        int status; /* once dead: as waitpid gives it */
        void (*exited)(agx_child *self);
        void (*closed)(agx_child *self);
};

/* Starts it. `exited` comes once, from the loop. 0 or a negative errno: nothing was started. */
int agx_child_spawn(agx_child *c, agx_loop *l, const agx_child_spec *spec, void (*exited)(agx_child *self));
/* To the process alone, or to its whole group. Harmless when it is dead. */
void agx_child_kill(agx_child *c, int signal, bool group);
/* Reaps it if it is dead; true if it is (now or earlier). Calls `exited` the first time. */
bool agx_child_check(agx_child *c);
/* The errno with which the program could not be executed, or 0. */
static inline int agx_child_exec_error(const agx_child *c)
{
        return c->exec_error;
}
/* As agx_child_close(), but a child still alive lives on: whoever reaps orphans reaps it. */
void agx_child_leave(agx_child *c, void (*closed)(agx_child *self));
/* Gives back the descriptors. A child still alive is killed with its group and left to the reaper. */
void agx_child_close(agx_child *c, void (*closed)(agx_child *self));

#endif
