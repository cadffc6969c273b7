#ifndef AGX_WORKER_KEEPER_UV_H
#define AGX_WORKER_KEEPER_UV_H
/*
 * The keeper of one process tree: a small process of its own, this executable under another name, that starts a program,
 * inherits whatever that leaves behind, and ends all of it when it is told to, or when whoever started the keeper is gone.
 * So killing a tree never holds up the server, and each orphan is known to be this tree's.
 *
 *     argv   AGX_KEEPER_NAME, options ("group=NAME", "oom=N", "kill_ms=N"), "--", program, directory, argv of the program
 *     fds    0 to 2: the program's; 3: the control socket, a stream of agx_keeper_word; 4 and 5: the read ends of 1 and 2
 *
 * The program gets a session of its own, which has its pid, and the keeper's environment. When it has ended and the keeper
 * is left (AGX_KEEPER_LEAVE), the keeper reads and drops what is still written until nothing below it runs.
 */
#include <stdint.h>

#define AGX_KEEPER_NAME "agentix-keeper"

typedef enum agx_keeper_kind {
        /* To the server. */
        AGX_KEEPER_STARTED = 1, /* value: the program's pid */
        AGX_KEEPER_FAILED,      /* value: an errno; stage: what failed. It exits */
        AGX_KEEPER_EXITED,      /* value: the program's status, as waitpid gives it */
        AGX_KEEPER_LEFT,        /* after a kill: some of it could not be ended in time. It exits */
        /* From the server. */
        AGX_KEEPER_KILL,   /* end everybody, then exit */
        AGX_KEEPER_SIGNAL, /* value: sent to the program's group */
        AGX_KEEPER_LEAVE   /* nobody listens any more; what still runs may go on */
} agx_keeper_kind;

typedef enum agx_keeper_stage { AGX_KEEPER_FORK = 1, AGX_KEEPER_CHDIR, AGX_KEEPER_EXEC } agx_keeper_stage;

typedef struct agx_keeper_word {
        uint16_t kind;
        uint16_t stage;
        int32_t value;
} agx_keeper_word;

/* The keeper's main; its exit status is of no interest. */
int agx_keeper_main(int argc, char **argv);

#endif
