/*
 * Exceptions as values: the builtin ones, which are written in C and keep what they are given.
 *
 * Their constructors take any arguments and run no code of the arguments' types, so type and args are kept as they
 * came. What is checked is what would hurt later: a traceback printer computes with the numbers of a SyntaxError, and
 * an OSError holds its file names outside of args, where a chain of them would be freed by recursion.
 *
 * Their state (add_note(), attributes) goes into the instance's own dict. Only the few attributes that have a place of
 * their own are set there, and nothing that links exceptions with one another or with tracebacks.
 */
#include "unpickle.h"

enum { SIZE_EXCEPTION = 160, FILENAME = 2, FILENAME_2 = 4, OSERROR_ARGS = 5, SYNTAX_PARTS = 6 };

static bool is_filename(agx_unpickler *u, PyObject *object)
{
        return agx_unpickle_is_scalar(object) || agx_unpickle_is(u, object, agx_build_path);
}

static bool good_os_error(agx_unpickler *u, PyObject *args)
{
        Py_ssize_t n = PyTuple_Size(args);
        if (n < 2 || n > OSERROR_ARGS)
                return true; /* kept in args alone */
        return (n <= FILENAME || is_filename(u, PyTuple_GetItem(args, FILENAME))) &&
               (n <= FILENAME_2 || is_filename(u, PyTuple_GetItem(args, FILENAME_2)));
}

/* (message, (filename, line, column, text, end line, end column)) */
static bool good_syntax_error(PyObject *args)
{
        PyObject *info = agx_unpickle_arg(args, 1);
        if (!info || PyTuple_Size(args) != 2)
                return true;
        if (!PyTuple_CheckExact(info) || PyTuple_Size(info) > SYNTAX_PARTS)
                return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(info); i++) {
                PyObject *part = PyTuple_GetItem(info, i);
                bool text = i == 0 || i == 3;
                if (part != Py_None && !(text ? PyUnicode_CheckExact(part) : PyLong_CheckExact(part)))
                        return false;
        }
        return true;
}

static bool is_a(PyObject *cls, PyObject *base)
{
        return PyType_IsSubtype((PyTypeObject *)cls, (PyTypeObject *)base);
}

PyObject *agx_build_exception(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const agx_global *row = u->subject->row;
        if (!is_a(callable, PyExc_BaseException))
                return agx_unpickle_bad(u, "it is not an exception class on this host");
        if (is_a(callable, PyExc_OSError) && !good_os_error(u, args))
                return agx_unpickle_bad(u, "a file name that is neither text, bytes, number nor path");
        if (is_a(callable, PyExc_SyntaxError) && !good_syntax_error(args))
                return agx_unpickle_bad(u, "a place in a source that is not one");
        if (agx_unpickle_charge(u, SIZE_EXCEPTION) < 0)
                return NULL;
        PyObject *error = PyObject_Call(callable, args, NULL);
        /* OSError(2, ...) gives a FileNotFoundError: that, too, may get a state. */
        if (error && agx_unpickle_remember(u, (PyObject *)Py_TYPE(error), row) < 0)
                Py_CLEAR(error);
        return error;
}

/* (message, [exceptions]): the constructor checks that they are exceptions. */
PyObject *agx_build_exception_group(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *message = agx_unpickle_arg(args, 0), *errors = agx_unpickle_arg(args, 1);
        if (PyTuple_Size(args) != 2 || !PyUnicode_CheckExact(message) ||
            !(PyList_CheckExact(errors) || PyTuple_CheckExact(errors)))
                return agx_unpickle_bad(u, "only from a message and a list of exceptions");
        if (agx_unpickle_charge(u, SIZE_EXCEPTION + 8 * (uint64_t)PySequence_Size(errors)) < 0)
                return NULL;
        return agx_build_exception(u, callable, args);
}

/* Fields that live in the object and not in its dict. */
static bool is_field(PyObject *object, PyObject *name)
{
        static const char *const FIELDS[] = {"name", "path", "name_from"};
        if (!PyErr_GivenExceptionMatches(object, PyExc_ImportError) &&
            !PyErr_GivenExceptionMatches(object, PyExc_AttributeError) &&
            !PyErr_GivenExceptionMatches(object, PyExc_NameError))
                return false;
        for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
                if (PyUnicode_CompareWithASCIIString(name, FIELDS[i]) == 0)
                        return true;
        return false;
}

/* __notes__ is what add_note() keeps: a list of str. */
static bool is_notes(PyObject *name, PyObject *value)
{
        if (PyUnicode_CompareWithASCIIString(name, "__notes__") != 0 || !PyList_CheckExact(value))
                return false;
        for (Py_ssize_t i = 0; i < PyList_Size(value); i++)
                if (!PyUnicode_CheckExact(PyList_GetItem(value, i)))
                        return false;
        return true;
}

static int set_attribute(agx_unpickler *u, PyObject *object, PyObject *dict, PyObject *name, PyObject *value)
{
        if (!PyUnicode_CheckExact(name))
                return agx_unpickle_fail_subject(u, "an attribute's name that is not a str");
        if (is_field(object, name)) {
                if (!agx_unpickle_is_scalar(value))
                        return agx_unpickle_fail_subject(u, "a name or path that is not text");
                return PyObject_GenericSetAttr(object, name, value);
        }
        if (PyUnicode_CompareWithASCIIString(name, "args") == 0)
                return 0; /* Python 3.12 repeats them in the state of an AttributeError */
        if (agx_unpickle_is_dunder(name) && !is_notes(name, value))
                return agx_unpickle_fail_subject(u, "a special attribute");
        return PyDict_SetItem(dict, name, value);
}

int agx_build_exception_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (!PyDict_CheckExact(state))
                return agx_unpickle_fail_subject(u, "a state that is not a dict");
        if (agx_unpickle_charge_pairs(u, 0, (size_t)PyDict_Size(state)) < 0)
                return -1;
        PyObject *dict = PyObject_GenericGetDict(object, NULL), *name, *value;
        Py_ssize_t i = 0;
        int r = dict ? 0 : -1;
        while (r == 0 && PyDict_Next(state, &i, &name, &value))
                r = set_attribute(u, object, dict, name, value);
        Py_XDECREF(dict);
        return r;
}
