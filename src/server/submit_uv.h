#ifndef AGX_SERVER_SUBMIT_UV_H
#define AGX_SERVER_SUBMIT_UV_H
/*
 * A call that came as a request of its own, over HTTP or the fast wire, is given to the table of calls; what comes of it
 * there is the same for both. What came on /rpc has answers of another kind: rpc.c.
 */
#include "server/server_uv.h"

typedef enum agx_submitted {
        AGX_SUBMITTED_WAITS,    /* the waiter is told, maybe was already: *waits says */
        AGX_SUBMITTED_ACCEPTED, /* say 202: its end is somebody else's to hear */
        AGX_SUBMITTED_ENDED,    /* *call has its result: answer with it, nobody else does any more */
        AGX_SUBMITTED_FAULT,    /* answer with *fault */
        AGX_SUBMITTED_NO_MEMORY /* say 503 */
} agx_submitted;

typedef struct agx_submission {
        const agx_call_request *request;
        agx_view session;
        agx_waiter *waiter;
        agx_call **waits; /* where the waiter looks for the call that it waits for */
} agx_submission;

agx_submitted agx_submit_uv(agx_server *s, const agx_submission *given, agx_call **call, agx_fault *fault);

#endif
