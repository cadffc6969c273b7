/* Large values on their way to a caller, and objects of which the bytes have been received into them. */
#ifndef AGX_EXT_LANDED_H
#define AGX_EXT_LANDED_H

#include "state.h"

#include "client/landing.h"

/* Memory for large bytes of replies: bytes and bytearrays. With the interpreter. */
extern const agx_landing_memory agx_landed_memory;

/* The type Body, which is made once a module. */
PyObject *agx_landed_type(PyObject *module);
/* A Body of a value in `*bytes`, which is taken over, as `*landed` is (NULL: nothing has landed). NULL with an exception. */
PyObject *agx_landed_body(PyObject *type, agx_buf *bytes, agx_view value, const agx_client_landed *landed);

/* A pickle of which large bytes lie by themselves. */
typedef struct agx_unpickle_landed {
        agx_view pickle;
        PyObject *object; /* borrowed: bytes, or a bytearray; NULL: there is none */
        size_t at;        /* an opcode NEXT_BUFFER in the pickle, which stands for it */
        uint8_t code;     /* the opcode that was there */
        size_t more;      /* bytes by which the pickle was longer */
} agx_unpickle_landed;

/* False: it is no Body, or nothing of it has landed. What it gives lives as long as `value`. */
bool agx_landed_parts(PyObject *value, agx_unpickle_landed *parts);

#endif
