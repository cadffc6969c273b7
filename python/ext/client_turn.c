/* One turn of a client: the brain's wishes are carried out, finished calls are handed out, a timer is set.
 *
 * Handing out resumes tasks, and those ask for further calls. What they ask for is gathered and sent together, as said
 * at next_most(). */
#include "client.h"

#include <time.h>

enum {
        GATHERED_MAX = 16,     /* calls that are sent together */
        GATHERED_US_MAX = 300, /* tasks that take longer, in all, are not worth waiting for */
};

static uint64_t now_us(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t client_now(void)
{
        return now_us() / 1000;
}

/* ---- the timer ---- */

void client_disarm(client_core *core)
{
        PyObject *r = NULL;

        if (!core->timer)
                return;
        if (!core->loop_is_dead)
                r = PyObject_CallMethodObjArgs(core->timer, core->s_cancel, NULL);
        if (!r)
                PyErr_Clear();
        Py_XDECREF(r);
        Py_CLEAR(core->timer);
}

/* Sees to it that on_timer comes in time. One that comes early costs less than one that is always moved. */
static void arm(client_core *core)
{
        uint64_t when = agx_client_timer(core->client), now;
        PyObject *method, *delay;

        if (when == UINT64_MAX || core->loop_is_dead || !core->loop || (core->timer && core->timer_ms <= when))
                return;
        client_disarm(core);
        now = client_now();
        method = PyObject_GetAttr(core->loop, core->s_call_later);
        delay = PyFloat_FromDouble(when > now ? (double)(when - now) / 1000.0 : 0.0);
        if (method && delay)
                core->timer = PyObject_CallMethodObjArgs(core->empty, core->s_run, method, delay, core->on_timer, NULL);
        if (!core->timer)
                PyErr_WriteUnraisable(core->loop);
        core->timer_ms = when;
        Py_XDECREF(method);
        Py_XDECREF(delay);
}

/* ---- wishes and finished calls ---- */

static bool carry_out(client_core *core, agx_client_wish wish)
{
        switch (wish.kind) {
        case AGX_CLIENT_WISH_NONE:
                return false;
        case AGX_CLIENT_WISH_OPEN:
                client_link_open(core, wish.conn);
                break;
        case AGX_CLIENT_WISH_WRITE:
                client_link_write(core, wish.conn);
                break;
        case AGX_CLIENT_WISH_CLOSE:
                client_link_close(core, wish.conn);
                break;
        }
        return true;
}

static int hand_out(client_core *core, agx_client_call *call, bool direct)
{
        client_pending *p = agx_client_call_user(call);
        int r;

        (void)core;
        Py_INCREF((PyObject *)p);
        client_pending_deliver(p, call);
        r = client_pending_wake(p, direct);
        Py_DECREF((PyObject *)p);
        return r;
}

/* A call that has something to be handed out: items, or its end, which comes after all of them. */
static agx_client_call *next_call(client_core *core, bool *items)
{
        agx_client_call *call = agx_client_next_streaming(core->client);

        *items = call != NULL;
        return call ? call : agx_client_next_done(core->client);
}

void client_carry_out(client_core *core)
{
        while (carry_out(core, agx_client_next_wish(core->client)))
                ;
}

/* Hands out what has come, `most` at once; returns whether there was something. */
static bool hand_out_some(client_core *core, bool direct, unsigned most, PyObject *caught[3])
{
        unsigned n = 0;

        for (; n < most; ++n) {
                bool items = false;
                agx_client_call *call = next_call(core, &items);

                if (!call)
                        break;
                if ((items ? client_items_hand_out : hand_out)(core, call, direct) < 0) {
                        for (int i = 0; i < 3; ++i)
                                Py_CLEAR(caught[i]);
                        PyErr_Fetch(&caught[0], &caught[1], &caught[2]);
                }
        }
        return n > 0;
}

/* What resumed tasks ask for is sent after they have run: after the first one, so that the peer has work, then after twice
 * as many each time. One that takes long holds up those before it only once. */
static unsigned next_most(unsigned most, uint64_t begun_us)
{
        if (now_us() - begun_us > GATHERED_US_MAX)
                return 1;
        return most < GATHERED_MAX ? 2 * most : most;
}

static int process(client_core *core, bool direct, bool all)
{
        PyObject *caught[3] = {NULL, NULL, NULL};
        unsigned most = 1;
        bool more;

        Py_INCREF((PyObject *)core);
        do {
                uint64_t begun_us = direct ? now_us() : 0;

                client_carry_out(core);
                client_side_hand_out(core);
                /* A task that is being resumed calls us: the callback that resumed it goes on with the rest. */
                more = (!core->resuming || all) && hand_out_some(core, direct, most, caught);
                if (direct)
                        most = next_most(most, begun_us);
        } while (more);
        arm(core);
        Py_DECREF((PyObject *)core);
        if (caught[0])
                PyErr_Restore(caught[0], caught[1], caught[2]);
        return caught[0] ? -1 : 0;
}

int client_process(client_core *core, bool direct)
{
        return process(core, direct, false);
}

int client_process_all(client_core *core)
{
        return process(core, false, true);
}
