/* A pickle of which large bytes lie by themselves: in an object that has been received into. */
#ifndef AGX_EXT_LANDED_H
#define AGX_EXT_LANDED_H

#include "state.h"

#include "base/view.h"

typedef struct agx_unpickle_landed {
        agx_view pickle;
        PyObject *object; /* borrowed: bytes, or a bytearray; NULL: there is none */
        size_t at;        /* an opcode NEXT_BUFFER in the pickle, which stands for it */
        uint8_t code;     /* the opcode that was there */
        size_t more;      /* bytes by which the pickle was longer */
} agx_unpickle_landed;

/* False: it is no such pickle. What it gives lives as long as `value`. */
bool client_value_parts(PyObject *value, agx_unpickle_landed *parts);

#endif
