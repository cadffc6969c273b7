/* agentix._core.Call, as the channel makes it. */
#ifndef AGX_EXT_CALL_H
#define AGX_EXT_CALL_H

#include "state.h"

#include "proto/frame.h"

/* A new call with the fields of a `call` frame; `type` is the one that agx_ext_add_call() made. NULL with an exception set. */
PyObject *agx_ext_call_new(PyTypeObject *type, const agx_frame *frame);
/* Its id, borrowed. */
PyObject *agx_ext_call_id(PyObject *call);

#endif
