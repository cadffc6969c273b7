/* Pickles of a few plain values, written and read without the pickle module: most calls carry nothing else.
 *
 * Plain are None, bool, int of 32 bits, float, short str, bytes, and tuples of them; a call's keywords are a dict of them. What is
 * written is an ordinary pickle of protocol 5. What is read may come from any pickler, also one that nobody trusts: only
 * values of these types can come of it. */
#ifndef AGX_EXT_SCALARS_H
#define AGX_EXT_SCALARS_H

#include "state.h"

#include "base/view.h"

/* Both: bytes, or NULL without an exception if it is not so plain, too long, or there is no memory: ask the pickle module. */
PyObject *agx_scalars_dump(PyObject *value);
PyObject *agx_scalars_dump_call(PyObject *args, PyObject *kwargs);
/* The value, or NULL without an exception: ask somebody who knows all of pickle. */
PyObject *agx_scalars_load(agx_view pickle);

#endif
