/* agentix._core: what the parts of the extension share.
 *
 * The module keeps everything in its own state: no static variable holds an object, so several
 * interpreters may load it. A part is one file `<part>.c` with one entry, `agx_ext_add_<part>`,
 * which adds the part's types and functions to the module; to add a part, declare the entry here
 * and list it in module.c. A part that keeps objects adds its fields to `agx_ext_state` and one
 * line each to the traverse and clear functions in module.c. */
#ifndef AGX_EXT_STATE_H
#define AGX_EXT_STATE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "base/list.h"

typedef struct agx_ext_state agx_ext_state;

struct agx_ext_state {
        PyObject *error;  /* agentix._core.Error: a C-level failure that no other exception names */
        agx_list running; /* call.c: no object is kept by it */
};

/* The state of a module, and of the module that defines a heap type; neither can fail for ours. */
agx_ext_state *agx_ext_state_of(PyObject *module);

/* What a module has under a name, imported if need be. New reference, or NULL with an exception set. */
PyObject *agx_ext_take_from(const char *module, const char *name);

/* Takes the exception that was just raised, with its traceback. New reference, never NULL: None if there was none. */
PyObject *agx_ext_caught(void);

/* Entries of the parts: 0, or -1 with an exception set. */
int agx_ext_add_basics(PyObject *module);
int agx_ext_add_brain(PyObject *module);
int agx_ext_add_call(PyObject *module);
int agx_ext_add_channel(PyObject *module);
int agx_ext_add_client(PyObject *module);
int agx_ext_add_codec(PyObject *module);
int agx_ext_add_conduit(PyObject *module);
int agx_ext_add_provider(PyObject *module);
int agx_ext_add_scalars(PyObject *module);
int agx_ext_add_unpickle(PyObject *module);

#endif
