/* agentix._core.Brain, and how the constructors of brains read their keywords: a table of fields of a config struct. */
#ifndef AGX_EXT_BRAIN_H
#define AGX_EXT_BRAIN_H

#include "state.h"

#include "base/strv.h"
#include "provider/brain.h"

typedef enum agx_ext_kind {
        AGX_EXT_VIEW,     /* agx_view: str, bytes or os.PathLike; None: absent */
        AGX_EXT_STRV,     /* const agx_strv *: a sequence of those */
        AGX_EXT_MS,       /* uint64_t: seconds as a number */
        AGX_EXT_DOUBLE,   /* double */
        AGX_EXT_UNSIGNED, /* unsigned: 0 and up */
        AGX_EXT_BOOL      /* bool */
} agx_ext_kind;

typedef struct agx_ext_field {
        const char *name;
        agx_ext_kind kind;
        size_t offset; /* into the config struct */
} agx_ext_field;

enum { AGX_EXT_VECTORS_MAX = 8 };

/* What the views and vectors of a config point to; null-initialised, and released when the brain has its copies. */
typedef struct agx_ext_held {
        PyObject *texts;
        agx_strv vectors[AGX_EXT_VECTORS_MAX];
        size_t count;
} agx_ext_held;

/* Fills `config` from the keywords, each of which is needed; the table ends with a nameless row. 0, or -1 with an
 * exception set. `held` is to be released in both cases. */
int agx_ext_read_fields(PyObject *args, PyObject *kwargs, const agx_ext_field *fields, void *config,
                        agx_ext_held *held);
void agx_ext_held_release(agx_ext_held *held);

/* The Python object of a brain, which it takes over. `error`: what making it gave; `bad`: the setting that is to blame
 * if that was above 0. */
PyObject *agx_ext_wrap_brain(PyObject *module, agx_brain *brain, int error, const char *bad);

#endif
