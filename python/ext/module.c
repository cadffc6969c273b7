/* The extension module itself: multi-phase initialisation, its state, and the table of parts.
 *
 * Each part registers its own types and functions through one entry; this file knows their names
 * and nothing else about them. */

#include "state.h"

#include <stdlib.h>

#ifndef AGX_VERSION
#define AGX_VERSION "0"
#endif

typedef int (*add_part_fn)(PyObject *module);

static const add_part_fn parts[] = {
        agx_ext_add_basics, agx_ext_add_brain,   agx_ext_add_call,     agx_ext_add_channel, agx_ext_add_client,
        agx_ext_add_codec,  agx_ext_add_conduit, agx_ext_add_provider, agx_ext_add_scalars, agx_ext_add_unpickle,
};

PyObject *agx_ext_take_from(const char *module, const char *name)
{
        PyObject *m = PyImport_ImportModule(module);
        PyObject *found = m ? PyObject_GetAttrString(m, name) : NULL;

        Py_XDECREF(m);
        return found;
}

PyObject *agx_ext_caught(void)
{
        PyObject *type, *error, *traceback;

        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback && error)
                PyException_SetTraceback(error, traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
        return error ? error : Py_NewRef(Py_None);
}

agx_ext_state *agx_ext_state_of(PyObject *module)
{
        return PyModule_GetState(module);
}

static PyObject *has_environ(PyObject *module, PyObject *name)
{
        const char *text = PyUnicode_AsUTF8AndSize(name, NULL);

        (void)module;
        return text ? PyBool_FromLong(getenv(text) != NULL) : NULL;
}

static PyMethodDef basic_functions[] = {
        {"has_environ", has_environ, METH_O,
         "has_environ(name, /)\n--\n\nWhether a variable is set, at the price of a look: os.environ keeps the C "
         "library's copy up to date."},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_basics(PyObject *module)
{
        agx_ext_state *state = agx_ext_state_of(module);
        state->error = PyErr_NewExceptionWithDoc("agentix._core.Error", "A failure inside the C engine.", NULL, NULL);
        if (state->error == NULL || PyModule_AddObjectRef(module, "Error", state->error) < 0)
                return -1;
        if (PyModule_AddFunctions(module, basic_functions) < 0)
                return -1;
        return PyModule_AddStringConstant(module, "__version__", AGX_VERSION);
}

static int module_exec(PyObject *module)
{
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
                if (parts[i](module) < 0)
                        return -1;
        return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
        agx_ext_state *state = agx_ext_state_of(module);
        if (state != NULL)
                Py_VISIT(state->error);
        return 0;
}

static int module_clear(PyObject *module)
{
        agx_ext_state *state = agx_ext_state_of(module);
        if (state != NULL)
                Py_CLEAR(state->error);
        return 0;
}

static void module_free(void *module)
{
        module_clear(module);
}

static PyModuleDef_Slot module_slots[] = {
        {Py_mod_exec, (void *)module_exec},
        {0, NULL},
};

static struct PyModuleDef module_def = {
        PyModuleDef_HEAD_INIT,
        .m_name = "agentix._core",
        .m_doc = "The C engine of Agentix. Private: import from agentix instead.",
        .m_size = sizeof(agx_ext_state),
        .m_slots = module_slots,
        .m_traverse = module_traverse,
        .m_clear = module_clear,
        .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
        return PyModuleDef_Init(&module_def);
}
