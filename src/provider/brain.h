#ifndef AGX_PROVIDER_BRAIN_H
#define AGX_PROVIDER_BRAIN_H
/*
 * What every local backend's brain looks like to the shell that drives it (asyncio in Python, libuv in C programs).
 *
 * The shell asks agx_brain_next() for the wish of the moment, carries it out, and reports what came of it with
 * agx_brain_event(); then it asks again. A brain spawns nothing, waits for nothing, and never blocks. The things a
 * wish points to belong to the brain and live until the next event.
 *
 *     materialise   RUN, RUN, ... -> DONE | FAILED
 *     sandbox       START -> (READY) DONE -> (DELETE) SIGNAL -> (EXITED) GONE;   at any moment FAILED
 *                   START -> PROBE -> (READY) DONE, if .bare
 *     container     RUN -> PROBE -> (READY) DONE -> (DELETE) RUN -> GONE;        at any moment RUN -> FAILED
 *
 * CANCEL may come at any moment: the brain then wishes for whatever undoes what was done, and ends in FAILED or GONE.
 */
#include "base/strv.h"

typedef enum agx_wish_kind {
        AGX_WISH_WAIT, /* nothing to do until an event; TIMER after .timeout_ms, if that is not 0 */
        AGX_WISH_RUN, /* write .files, run .argv with .env to its end, in .cwd; answer EXITED with code and output tail;
                      TIMER and CANCEL as above, with the output so far. While the next wish is WAIT it goes on; at any
                      other one the shell kills what still runs, with all its group */
        AGX_WISH_PROBE, /* ask the runtime at .url, which must prove to know the token in .token_file, until it answers:
                        READY; or TIMER with what was wrong with the last try; or EXITED, if what was started has ended
                        meanwhile */
        AGX_WISH_START, /* write .files, start .argv with .env in .cwd, with a ready and a lifeline descriptor (named in .env by
                        the shell); answer READY, EXITED or TIMER. If .bare: without those, and without an answer but
                        SPAWN_FAILED */
        AGX_WISH_SIGNAL, /* send .signal to what was started; then as WAIT */
        AGX_WISH_DONE,   /* .url and .token_file; stays until DELETE, CANCEL or EXITED */
        AGX_WISH_GONE,   /* the end: nothing is left but .path, which the shell removes */
        AGX_WISH_FAILED  /* the end: .message says why; the shell removes .path, if present */
} agx_wish_kind;

/* A file that a command reads: written anew, with that mode, before the command is run. */
typedef struct agx_wish_file {
        const char *path;
        unsigned mode;
        agx_view content;
} agx_wish_file;

typedef struct agx_wish {
        agx_wish_kind kind;
        const agx_strv *argv;
        const agx_strv *env;
        const agx_wish_file *files;
        size_t file_count;
        const char *cwd; /* NULL: wherever the shell is */
        const char *path;
        const char *url;
        const char *token_file;
        const char *message;
        int signal;
        bool bare;
        uint64_t timeout_ms;
} agx_wish;

typedef enum agx_event_kind {
        AGX_EVENT_EXITED,       /* .code: exit status, or the negated signal; .text: the last output */
        AGX_EVENT_SPAWN_FAILED, /* .text: why the program could not be started */
        AGX_EVENT_READY,        /* .text: the line from the ready descriptor */
        AGX_EVENT_TIMER,        /* .text: the last output, or what a probe met */
        AGX_EVENT_DELETE,
        AGX_EVENT_CANCEL /* .text: as with TIMER */
} agx_event_kind;

typedef struct agx_event {
        agx_event_kind kind;
        int code;
        agx_view text;
        uint64_t now_ms; /* on a clock that only goes forward */
} agx_event;

typedef struct agx_brain agx_brain;

/* A backend's side of it. A brain embeds agx_brain as its first member. */
typedef struct agx_brain_ops {
        const char *name;
        void (*next)(agx_brain *brain, agx_wish *wish);
        int (*event)(agx_brain *brain, const agx_event *event);
        void (*free)(agx_brain *brain);
} agx_brain_ops;

struct agx_brain {
        const agx_brain_ops *ops;
};

static inline void agx_brain_next(agx_brain *brain, agx_wish *wish)
{
        *wish = (agx_wish){0};
        brain->ops->next(brain, wish);
}

/* 0 or -ENOMEM. An event that does not fit the brain's state is passed over. */
static inline int agx_brain_event(agx_brain *brain, const agx_event *event)
{
        return brain->ops->event(brain, event);
}

static inline void agx_brain_free(agx_brain *brain)
{
        if (brain)
                brain->ops->free(brain);
}

AGX_DEFINE_CLEANUP_POINTER(agx_brain, agx_brain_free)

/* For brains: nothing to do but wait. */
static inline void agx_wish_wait(agx_wish *wish, uint64_t timeout_ms)
{
        wish->kind = AGX_WISH_WAIT;
        wish->timeout_ms = timeout_ms;
}

#endif
