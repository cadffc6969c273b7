/* Bytes that may be large: copied while other threads run, into large pages where there are any. */
#ifndef AGX_EXT_LARGE_H
#define AGX_EXT_LARGE_H

#include "state.h"

#include "base/view.h"

/* A copy, as bytes; NULL with an exception. The view must stay good while the interpreter lock is let go of. */
PyObject *agx_ext_bytes(agx_view v);
/* Copies; likewise. */
void agx_ext_copy(void *to, agx_view v);

#endif
