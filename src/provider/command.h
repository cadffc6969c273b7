#ifndef AGX_PROVIDER_COMMAND_H
#define AGX_PROVIDER_COMMAND_H
/*
 * The brain of one bounded command (brain.h): a backend's program is asked or told something about one of its sandboxes, and
 * its answer is read. What can be asked is a table of the backend's, a row (agx_command_kind) each.
 *
 *     RUN -> DONE, .message is the answer | GONE, there is no such thing (any more) | FAILED, .message says why
 */
#include "provider/brain.h"

typedef struct agx_command agx_command;

typedef struct agx_command_kind {
        const char *doing;         /* for error texts: "listing the sandboxes" */
        const char *not_started;   /* likewise: what could not be started */
        const char *not_answering; /* likewise: what did not answer in time */
        uint64_t timeout_ms;
        bool goes_on; /* when cancelled: what was begun is not left half done */
        /* Whether the output of a command that failed says that there is no such thing; NULL: none says so. */
        bool (*is_unknown)(agx_view output);
        /* Reads the output of one that succeeded, by one of the three verbs below; NULL: it is GONE. 0 or -ENOMEM. */
        int (*read)(agx_command *self, agx_view output);
} agx_command_kind;

struct agx_command {
        agx_brain brain;
        const agx_command_kind *kind;
        bool asked;
        agx_wish_kind end; /* DONE, GONE or FAILED once it is over; else RUN */
        agx_strv argv;
        agx_strv env;
        char *subject;
        char *message;
};

/* `argv` is taken over, whatever comes of it; `subject`, for .read to compare, and the environment are copied. 0, -ENOMEM or what
 * a vector's end gave. */
int agx_command_new(agx_brain **brain, const agx_command_kind *kind, agx_strv *argv, const agx_strv *env,
                    agx_view subject);

/* It ends with that answer. 0 or -ENOMEM. */
int agx_command_done(agx_command *self, agx_view answer);
int agx_command_gone(agx_command *self);
/* It fails, for these reasons. 0 or -ENOMEM. */
int agx_command_fail(agx_command *self, const char *what, agx_view detail);

#endif
