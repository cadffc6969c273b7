/*
 * The waiter stands before the worker is fed, or asked for: either may end the call at once, and then the waiter is told
 * before this returns.
 */
#include "server/submit_uv.h"

static void wait_for(const agx_submission *given, agx_call *call)
{
        call->waiter = given->waiter;
        *given->waits = call;
}

/* Its end is told here from now on. */
static agx_submitted take_end(agx_call *call)
{
        agx_waiter *other = call->waiter;

        if (call->items.next) /* a stream's end comes after its items, and those on the link */
                return AGX_SUBMITTED_ACCEPTED;
        if (other)
                other->forget(other, call);
        return AGX_SUBMITTED_ENDED;
}

static agx_submitted act(agx_server *s, const agx_submission *given, agx_submit verdict, agx_call *call)
{
        switch (verdict) {
        case AGX_SUBMIT_STARTED:
                wait_for(given, call);
                agx_server_worker_fed(s);
                return AGX_SUBMITTED_WAITS;
        case AGX_SUBMIT_HELD:
                wait_for(given, call);
                agx_supervisor_uv_wanted(&s->supervisor);
                return AGX_SUBMITTED_WAITS;
        case AGX_SUBMIT_OPEN:
                return AGX_SUBMITTED_ACCEPTED;
        case AGX_SUBMIT_ENDED:
                return take_end(call);
        case AGX_SUBMIT_FAULT:
                break;
        }
        return AGX_SUBMITTED_FAULT;
}

agx_submitted agx_submit_uv(agx_server *s, const agx_submission *given, agx_call **call, agx_fault *fault)
{
        agx_calls_worker worker;
        bool ready = agx_server_worker(s, &worker);
        agx_submit verdict;
        int r = agx_calls_submit(&s->calls, given->request, given->session, agx_loop_now(&s->loop),
                                 ready ? &worker : NULL, &verdict, call, fault);

        return r ? AGX_SUBMITTED_NO_MEMORY : act(s, given, verdict, *call);
}
