/* agentix._core.Call, as the channel makes it and runs it. */
#ifndef AGX_EXT_CALL_H
#define AGX_EXT_CALL_H

#include "state.h"

#include "proto/frame.h"

typedef struct agx_ext_call {
        PyObject_HEAD
        PyObject *id;
        PyObject *target;
        PyObject *arguments; /* given back by who has decoded them */
        PyObject *context;
        PyObject *stream;     /* the credit that came with it, or None */
        PyObject *task;       /* the worker's own: what runs an async target */
        PyObject *cancelled;  /* NULL, or the exception class */
        unsigned long thread; /* where its sync target runs and may be interrupted; 0: nowhere */
        agx_list running;     /* while it does */
} agx_ext_call;

/* A text of a frame as str, or None where it is absent. NULL with an exception set. */
PyObject *agx_ext_call_text(agx_view v);
/* A new call with the fields of a `call` frame, but for the name of its target, which is given as an object; `type` is the
 * one that agx_ext_add_call() made. NULL with an exception set. */
PyObject *agx_ext_call_new(PyTypeObject *type, const agx_frame *frame, PyObject *target);
/* Calls `function`; until it returns, and no longer, it can be interrupted. `keywords` may be NULL. */
PyObject *agx_ext_call_run(agx_ext_call *call, PyObject *function, PyObject *positional, PyObject *keywords);
/* Around a call of the target by other means: false with the exception of a cancel that came first. */
bool agx_ext_call_enter(agx_ext_call *call);
void agx_ext_call_leave(agx_ext_call *call);
/* The task that runs it, for who cancels it. */
void agx_ext_call_set_task(agx_ext_call *call, PyObject *task);

#endif
