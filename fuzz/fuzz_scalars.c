/* Any bytes as a pickle of plain values, with an interpreter inside: what the short cut reads, both the full readers read
 * alike, the restricted one of this extension and, as that did not refuse it, Python's own; and it survives being written
 * again. Objects come from malloc, so that a sanitizer sees each of them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "scalars.h"

#include <stdio.h>
#include <stdlib.h>

PyMODINIT_FUNC PyInit__core(void);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static PyObject *restricted_loads, *loads;

static void must(bool holds)
{
        if (holds)
                return;
        if (PyErr_Occurred())
                PyErr_Print();
        abort();
}

static PyObject *from_module(const char *module, const char *name)
{
        PyObject *m = PyImport_ImportModule(module), *found = m ? PyObject_GetAttrString(m, name) : NULL;

        Py_XDECREF(m);
        must(found);
        return found;
}

static void start(void)
{
        PyPreConfig before;
        PyConfig config;

        PyPreConfig_InitIsolatedConfig(&before);
        before.allocator = PYMEM_ALLOCATOR_MALLOC;
        before.utf8_mode = 1;
        must(!PyStatus_Exception(Py_PreInitialize(&before)));
        must(PyImport_AppendInittab("_core", PyInit__core) == 0);
        PyConfig_InitIsolatedConfig(&config);
        must(!PyStatus_Exception(PyConfig_SetBytesString(&config, &config.home, AGX_PYTHON_PREFIX)));
        must(!PyStatus_Exception(Py_InitializeFromConfig(&config)));
        PyConfig_Clear(&config);
        restricted_loads = from_module("_core", "restricted_loads");
        loads = from_module("_pickle", "loads");
}

/* Alike in type, too, and also where a value is not equal to itself. */
static void must_be_alike(PyObject *a, PyObject *b)
{
        PyObject *text_a = a ? PyObject_Repr(a) : NULL, *text_b = b ? PyObject_Repr(b) : NULL;

        must(text_a && text_b && PyUnicode_Compare(text_a, text_b) == 0);
        Py_DECREF(text_a);
        Py_DECREF(text_b);
}

static void check_readers(PyObject *value, PyObject *bytes)
{
        PyObject *readers[] = {restricted_loads, loads}; /* in this order: Python's own never sees what is refused */

        for (size_t i = 0; i < 2; ++i) {
                PyObject *other = PyObject_CallOneArg(readers[i], bytes);

                must_be_alike(value, other);
                Py_XDECREF(other);
        }
}

static void check_written(PyObject *value, PyObject *bytes)
{
        PyObject *again = agx_scalars_load(agx_view_of(PyBytes_AsString(bytes), (size_t)PyBytes_Size(bytes)));

        must_be_alike(value, again);
        check_readers(value, bytes);
        Py_DECREF(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        PyObject *value, *bytes, *written;

        if (!restricted_loads)
                start();
        value = agx_scalars_load(agx_view_of(data, size)); /* where it lies: a byte too far is noticed */
        must(!PyErr_Occurred());
        if (!value)
                return 0;
        bytes = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
        must(bytes);
        check_readers(value, bytes);
        Py_DECREF(bytes);
        written = agx_scalars_dump(value);
        must(!PyErr_Occurred());
        if (written)
                check_written(value, written);
        Py_XDECREF(written);
        Py_DECREF(value);
        return 0;
}
