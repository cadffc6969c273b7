/*
 * numpy arrays and scalars of plain dtypes, for hosts that have imported numpy.
 *
 * Nothing is imported here: the classes come from numpy if it is in sys.modules. numpy's own rebuilding functions are
 * not called; an array is made by numpy.ndarray over bytes that are there, or by its __setstate__ after every size in
 * the state has been checked against the bytes. A dtype is made from a name of the list below and gets only a byte
 * order, and a unit if it is a time: what else a dtype's state can say (fields, object flags, item sizes) would let
 * its author read past the end of the data. Arrays of objects and of records are refused.
 */
#include <string.h>

#include "unpickle.h"

enum {
        SIZE_ARRAY = 200,
        SIZE_DIMENSION = 16,
        DIMENSIONS_MAX = 64,
        DTYPE_PARTS = 8,
        FLAG_UNICODE = 8,
        NAME_CHARS = 12, /* "V" and ten digits, terminated */
};
#define EXTENT_MAX ((uint64_t)1 << 40)

static const char *const NUMBERS[] = {"b1", "i1", "i2", "i4",  "i8", "u1",  "u2",  "u4", "u8",
                                      "f2", "f4", "f8", "f16", "c8", "c16", "c32", "m8", "M8"};

/* An attribute of numpy. New reference. */
static PyObject *numpy_attr(agx_unpickler *u, const char *attr)
{
        PyObject *name = PyUnicode_FromString("numpy");
        PyObject *module = name ? PyImport_GetModule(name) : NULL;
        Py_XDECREF(name);
        if (!module)
                return PyErr_Occurred() ? NULL : agx_unpickle_bad(u, "this host has not imported numpy");
        PyObject *object = PyObject_GetAttrString(module, attr);
        Py_DECREF(module);
        return object;
}

/* --- dtypes --- */

static bool is_sized(const char *name)
{
        if (!strchr("SUV", name[0]))
                return false;
        size_t digits = strspn(name + 1, "0123456789");
        return digits > 0 && digits < NAME_CHARS - 2 && name[1 + digits] == 0;
}

static bool is_plain(const char *name)
{
        for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
                if (strcmp(name, NUMBERS[i]) == 0)
                        return true;
        return name[0] && is_sized(name);
}

/* ("f8", False, True): a fresh copy, as the state that follows changes it in place. */
PyObject *agx_build_dtype(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const agx_global *row = u->subject->row;
        PyObject *name = agx_unpickle_arg(args, 0);
        const char *text = NULL;
        Py_ssize_t n = 0;
        if (PyTuple_Size(args) == 3 && PyUnicode_CheckExact(name))
                text = PyUnicode_AsUTF8AndSize(name, &n);
        if (!text || n != (Py_ssize_t)strlen(text) || !is_plain(text))
                return PyErr_Occurred() ? NULL
                                        : agx_unpickle_bad(u, "only of numbers, times, strings or raw bytes; what "
                                                              "holds objects travels as a list");
        if (agx_unpickle_charge(u, SIZE_ARRAY) < 0)
                return NULL;
        PyObject *dtype = PyObject_CallFunction(callable, "OOO", name, Py_False, Py_True);
        if (dtype && agx_unpickle_remember(u, (PyObject *)Py_TYPE(dtype), row) < 0)
                Py_CLEAR(dtype);
        return dtype;
}

static long small_int(PyObject *number, long otherwise)
{
        int overflow;
        long v = PyLong_CheckExact(number) ? PyLong_AsLongAndOverflow(number, &overflow) : otherwise;
        return v == -1 && PyErr_Occurred() ? otherwise : v;
}

static Py_ssize_t item_size(PyObject *dtype)
{
        PyObject *size = PyObject_GetAttrString(dtype, "itemsize");
        Py_ssize_t n = size ? PyLong_AsSsize_t(size) : -1;
        Py_XDECREF(size);
        return n;
}

static bool is_unit(PyObject *unit)
{
        static const char *const UNITS[] = {"Y",  "M",  "W",  "D",  "h",  "m",  "s",
                                            "ms", "us", "ns", "ps", "fs", "as", "generic"};
        char *text;
        Py_ssize_t n;
        if (!PyBytes_CheckExact(unit) || PyBytes_AsStringAndSize(unit, &text, &n) < 0)
                return false;
        for (size_t i = 0; i < sizeof UNITS / sizeof *UNITS; i++)
                if ((size_t)n == strlen(UNITS[i]) && memcmp(text, UNITS[i], (size_t)n) == 0)
                        return true;
        return false;
}

/* (None or {}, (unit, count, 1, 1)) */
static bool is_time_unit(PyObject *part)
{
        if (!PyTuple_CheckExact(part) || PyTuple_Size(part) != 2)
                return false;
        PyObject *extra = PyTuple_GetItem(part, 0), *unit = PyTuple_GetItem(part, 1);
        if (extra != Py_None && !(PyDict_CheckExact(extra) && PyDict_Size(extra) == 0))
                return false;
        if (!PyTuple_CheckExact(unit) || PyTuple_Size(unit) != 4 || !is_unit(PyTuple_GetItem(unit, 0)))
                return false;
        long count = small_int(PyTuple_GetItem(unit, 1), 0);
        return count >= 1 && count <= INT32_MAX && small_int(PyTuple_GetItem(unit, 2), 0) == 1 &&
               small_int(PyTuple_GetItem(unit, 3), 0) == 1;
}

/* A text of one ASCII character out of @set. */
static bool is_one_of(PyObject *text, const char *set)
{
        if (!PyUnicode_CheckExact(text) || PyUnicode_GetLength(text) != 1)
                return false;
        Py_UCS4 c = PyUnicode_ReadChar(text, 0);
        return c > 0 && c < 128 && strchr(set, (int)c);
}

/* Whether a dtype is one of times. Such a one must get a unit, and no other may: numpy would follow a null pointer. */
static bool has_unit(PyObject *dtype)
{
        PyObject *kind = PyObject_GetAttrString(dtype, "kind");
        bool yes = kind && is_one_of(kind, "mM");
        Py_XDECREF(kind);
        return yes;
}

/* (version, byte order, None, None, None, item size, alignment, flags[, unit]) */
static bool good_state(PyObject *dtype, PyObject *state)
{
        if (!PyTuple_CheckExact(state))
                return false;
        Py_ssize_t n = PyTuple_Size(state), size = item_size(dtype);
        const bool timed = has_unit(dtype);
        if (n != DTYPE_PARTS + timed || (timed && !is_time_unit(PyTuple_GetItem(state, DTYPE_PARTS))))
                return false;
        long version = small_int(PyTuple_GetItem(state, 0), 0), given = small_int(PyTuple_GetItem(state, 5), -2);
        long alignment = small_int(PyTuple_GetItem(state, 6), -2), flags = small_int(PyTuple_GetItem(state, 7), -1);
        for (Py_ssize_t i = 2; i <= 4; i++)
                if (PyTuple_GetItem(state, i) != Py_None)
                        return false;
        bool native = given == -1 && alignment == -1;
        bool sized = given == size && (alignment == 1 || alignment == 4);
        return (timed ? version == 4 : version == 3 || version == 4) && is_one_of(PyTuple_GetItem(state, 1), "<>|=") &&
               (native || sized) && (flags == 0 || flags == FLAG_UNICODE);
}

static int set_state(PyObject *object, PyObject *state)
{
        PyObject *none = PyObject_CallMethod(object, "__setstate__", "(O)", state);
        Py_XDECREF(none);
        return none ? 0 : -1;
}

int agx_build_dtype_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (!good_state(object, state))
                return PyErr_Occurred() ? -1
                                        : agx_unpickle_fail_subject(u, "a state with more than a byte order or a unit");
        return set_state(object, state);
}

/* --- arrays --- */

static bool is_dtype(agx_unpickler *u, PyObject *object)
{
        return object && agx_unpickle_is(u, object, agx_build_dtype);
}

/* Whether an array of that shape fills exactly @bytes. */
static bool fits(PyObject *shape, Py_ssize_t size, uint64_t bytes)
{
        uint64_t total = (uint64_t)size, extent = 1;
        if (size < 0 || !PyTuple_CheckExact(shape) || PyTuple_Size(shape) > DIMENSIONS_MAX)
                return false;
        for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
                long n = small_int(PyTuple_GetItem(shape, i), -1);
                if (n < 0 || (uint64_t)n > EXTENT_MAX)
                        return false;
                if (n > 0 && extent > EXTENT_MAX / (uint64_t)n)
                        return false;
                extent *= n > 0 ? (uint64_t)n : 1;
                total = n > 0 && total > UINT64_MAX / (uint64_t)n ? UINT64_MAX : total * (uint64_t)n;
        }
        return total == bytes;
}

/* (ndarray, (0,), b"b"): an empty array, which a state follows. */
PyObject *agx_build_ndarray(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        (void)callable;
        PyObject *cls = agx_unpickle_arg(args, 0);
        agx_named *named = cls ? agx_unpickle_find(u, cls) : NULL;
        if (PyTuple_Size(args) != 3 || !named || named->row->build != agx_build_ndarray_state)
                return agx_unpickle_bad(u, "only for numpy.ndarray itself");
        return agx_unpickle_charge(u, SIZE_ARRAY) < 0 ? NULL : PyObject_CallFunction(cls, "(i)s", 0, "b");
}

/* (version, shape, dtype, in Fortran's order, bytes) */
int agx_build_ndarray_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (!PyTuple_CheckExact(state) || PyTuple_Size(state) != 5)
                return agx_unpickle_fail_subject(u, "a state that is none of an array");
        PyObject *shape = PyTuple_GetItem(state, 1), *dtype = PyTuple_GetItem(state, 2),
                 *data = PyTuple_GetItem(state, 4);
        if (small_int(PyTuple_GetItem(state, 0), 0) != 1 || !is_dtype(u, dtype) ||
            !PyBool_Check(PyTuple_GetItem(state, 3)))
                return agx_unpickle_fail_subject(u, "a state that is none of an array");
        if (!PyBytes_CheckExact(data) || !fits(shape, item_size(dtype), (uint64_t)PyBytes_Size(data)))
                return PyErr_Occurred() ? -1 : agx_unpickle_fail_subject(u, "a shape that does not match its data");
        if (agx_unpickle_copy(u, (uint64_t)PyBytes_Size(data)) < 0 ||
            agx_unpickle_charge(u, SIZE_DIMENSION * (uint64_t)PyTuple_Size(shape)) < 0)
                return -1;
        return set_state(object, state);
}

static Py_ssize_t buffer_size(PyObject *buffer)
{
        if (buffer && PyBytes_CheckExact(buffer))
                return PyBytes_Size(buffer);
        return buffer && PyByteArray_CheckExact(buffer) ? PyByteArray_Size(buffer) : -1;
}

/* An array over @buffer, or a new one if there is nothing in it. */
static PyObject *array_over(agx_unpickler *u, PyObject *buffer, PyObject *dtype, PyObject *shape, const char *order)
{
        const uint64_t size = SIZE_ARRAY + SIZE_DIMENSION * (uint64_t)PyTuple_Size(shape);
        PyObject *cls = agx_unpickle_charge(u, size) < 0 ? NULL : numpy_attr(u, "ndarray");
        PyObject *array = !cls ? NULL
                          : buffer_size(buffer) == 0
                                  ? PyObject_CallFunction(cls, "OO", shape, dtype)
                                  : PyObject_CallFunction(cls, "OOOiOs", shape, dtype, buffer, 0, Py_None, order);
        Py_XDECREF(cls);
        return array;
}

/* (buffer, dtype, shape, "C" or "F"[, None]) */
PyObject *agx_build_ndarray_buffer(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        (void)callable;
        PyObject *buffer = agx_unpickle_arg(args, 0), *dtype = agx_unpickle_arg(args, 1);
        PyObject *shape = agx_unpickle_arg(args, 2), *order = agx_unpickle_arg(args, 3),
                 *axes = agx_unpickle_arg(args, 4);
        Py_ssize_t size = buffer_size(buffer);
        if (!order || PyTuple_Size(args) > 5 || size < 0 || !is_dtype(u, dtype) || !is_one_of(order, "CF") ||
            (axes && axes != Py_None))
                return agx_unpickle_bad(u, "only from bytes, a dtype, a shape and an order");
        if (!fits(shape, item_size(dtype), (uint64_t)size))
                return PyErr_Occurred() ? NULL : agx_unpickle_bad(u, "a shape that does not match its data");
        return array_over(u, buffer, dtype, shape, is_one_of(order, "C") ? "C" : "F");
}

/* (dtype, bytes): the one element of an array without dimensions. */
PyObject *agx_build_numpy_scalar(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        (void)callable;
        PyObject *dtype = agx_unpickle_arg(args, 0), *data = agx_unpickle_arg(args, 1);
        if (PyTuple_Size(args) != 2 || !is_dtype(u, dtype) || !PyBytes_CheckExact(data))
                return agx_unpickle_bad(u, "only from a dtype and bytes");
        Py_ssize_t size = item_size(dtype);
        if (size < 0 || size != PyBytes_Size(data))
                return PyErr_Occurred() ? NULL : agx_unpickle_bad(u, "data of another size than its dtype");
        if (size == 0) {
                PyObject *type = PyObject_GetAttrString(dtype, "type");
                PyObject *empty = type ? PyObject_CallFunction(type, "") : NULL;
                Py_XDECREF(type);
                return empty;
        }
        PyObject *none = PyTuple_New(0);
        PyObject *array = none ? array_over(u, data, dtype, none, "C") : NULL;
        PyObject *scalar = array ? PyObject_GetItem(array, none) : NULL;
        Py_XDECREF(none);
        Py_XDECREF(array);
        return scalar;
}
