#ifndef AGX_PROTO_FAULT_H
#define AGX_PROTO_FAULT_H
/*
 * `error`, as it travels: {type, message, traceback, cancelled: bool, returncode: int|nil, reason?: str}.
 * A fault borrows all its texts; whoever gives it says how long they live.
 */
#include "wire/msgpack.h"

/* The types Agentix itself gives; a target's own exception uses its class name. */
#define AGX_FAULT_MAP(X)                                                                                               \
        X(BAD_REQUEST, "BadRequest")                                                                                   \
        X(KEY_ERROR, "KeyError")                                                                                       \
        X(CANCELLED, "Cancelled")                                                                                      \
        X(WORKER_DIED, "WorkerDied")                                                                                   \
        X(WORKER_BOOT, "WorkerBootError")                                                                              \
        X(RESULT_UNAVAILABLE, "ResultUnavailable")                                                                     \
        X(FRAME_TOO_LARGE, "FrameTooLarge")                                                                            \
        X(ARGUMENTS_DECODE, "ArgumentsDecodeError")                                                                    \
        X(RESULT_ENCODE, "ResultEncodeError")                                                                          \
        X(BUSY, "Busy")

typedef enum agx_fault_type {
#define X(name, text) AGX_FAULT_##name,
        AGX_FAULT_MAP(X)
#undef X
                AGX_FAULT__COUNT
} agx_fault_type;

agx_view agx_fault_type_text(agx_fault_type type);

typedef struct agx_fault {
        agx_view type;
        agx_view message;
        agx_view traceback; /* absent: nil */
        bool cancelled;
        bool has_returncode;
        int64_t returncode;
        agx_view reason; /* absent: the key is not sent; never_seen | dropped | instance_changed | not_taken */
} agx_fault;

/* The reason of a Busy by which nothing was begun or recorded: the call may be sent again as it was, under its id. */
#define AGX_FAULT_NOT_TAKEN AGX_VIEW("not_taken")
bool agx_fault_is_not_taken(const agx_fault *fault);

/* Texts above their bounds in limits.h are cut at a character border. */
void agx_fault_put(agx_mp_writer *w, const agx_fault *fault);
/* Reads one map. Unknown keys are passed over; a missing or mistyped `type` or `message`, or a duplicate key, is an
 * error (false). Texts above their bounds are cut. */
bool agx_fault_get(agx_mp_reader *r, agx_fault *fault);

#endif
