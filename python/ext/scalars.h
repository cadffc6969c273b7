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

/* ---- large bytes, from where they lie ---- */

enum { AGX_SCALARS_APART = 256 << 10 /* bytes that are worth it */ };

typedef struct agx_scalars_apart {
        unsigned char before[16];
        size_t n_before;
        agx_view bytes; /* the value's own */
        agx_view after; /* static */
} agx_scalars_apart;

/* As agx_scalars_dump_call(), or if there are large bytes, a tuple of three: bytes before them, they, bytes behind them. */
PyObject *agx_scalars_dump_call_parts(PyObject *args, PyObject *kwargs);

/* The pickle of large bytes, in three parts, one after the other; false: it is another value. */
bool agx_scalars_dump_apart(PyObject *value, agx_scalars_apart *apart);

/* ---- and to where they are wanted ---- */

enum { AGX_SCALARS_DEEPEST = 24 /* values on a reader's stack */ };

typedef struct agx_scalars_reader {
        const unsigned char *at, *end;
        int steps;
        int n;    /* values on the stack */
        int mark; /* how many lay there at the mark, or -1 */
        PyObject *stack[AGX_SCALARS_DEEPEST];
} agx_scalars_reader;

/* Of a pickle of `total` bytes the first have come: up to within bytes, if this is true, which begin at `*from` and are `*n`
 * long, as they say, and do not end the pickle. Then it waits for them, until it is finished or dropped. */
bool agx_scalars_begin(agx_scalars_reader *r, agx_view begun, size_t total, size_t *from, size_t *n);
/* With these bytes, and with what comes behind them: as agx_scalars_load(). */
PyObject *agx_scalars_finish(agx_scalars_reader *r, PyObject *bytes, agx_view rest);
void agx_scalars_drop(agx_scalars_reader *r);

#endif
