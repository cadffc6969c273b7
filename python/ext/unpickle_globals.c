/*
 * The table: what a returned value may name.
 *
 * Exact pairs, compared byte for byte; a dotted name is just a name that no row has. Rows are sorted by module, then
 * name. Several rows may mean one object: protocols 0 to 2 use the names of Python 2, and Python 3.13 pickles paths by
 * the private module their code lives in.
 *
 * A pair that no row and no admitted class matches is refused before anything is looked up; nothing the sender names
 * is ever imported. The modules of the table are the standard library's and are imported when one of their rows is
 * used; numpy's rows are found only where the host has imported numpy itself.
 */
#include <string.h>

#include "unpickle.h"

#define HERE(mod, cls, ...)                                                                                            \
        {                                                                                                              \
                .module = mod, .name = cls, .home = mod, .attr = cls, __VA_ARGS__                                      \
        }
#define ALIAS(mod, cls, real_mod, real_cls, ...)                                                                       \
        {                                                                                                              \
                .module = mod, .name = cls, .home = real_mod, .attr = real_cls, __VA_ARGS__                            \
        }
#define FUNCTION(mod, fn, ...)                                                                                         \
        {                                                                                                              \
                .module = mod, .name = fn, .kind = AGX_GLOBAL_FUNCTION, __VA_ARGS__                                    \
        }

/* Classes that are only values: a defaultdict's factory. */
#define PLAIN .reduce = NULL
#define EXCEPTION .reduce = agx_build_exception, .build = agx_build_exception_state
#define EXCEPTION_GROUP .reduce = agx_build_exception_group, .build = agx_build_exception_state
#define UUID_ROW .newobj = agx_build_uuid, .build = agx_build_uuid_state
#define NDARRAY .present = true, .build = agx_build_ndarray_state
#define RECONSTRUCT .present = true, .reduce = agx_build_ndarray
#define FROMBUFFER .present = true, .reduce = agx_build_ndarray_buffer
#define SCALAR .present = true, .reduce = agx_build_numpy_scalar
#define BUILTIN(cls, ...) HERE("builtins", cls, __VA_ARGS__)
#define BUILTIN_2(cls, ...) ALIAS("__builtin__", cls, "builtins", cls, __VA_ARGS__)
#define RAISED(cls) HERE("builtins", cls, EXCEPTION)
#define RAISED_2(cls) ALIAS("exceptions", cls, "builtins", cls, EXCEPTION)

static const agx_global TABLE[] = {
        BUILTIN_2("BaseExceptionGroup", EXCEPTION_GROUP),
        BUILTIN_2("BlockingIOError", EXCEPTION),
        BUILTIN_2("Ellipsis", .kind = AGX_GLOBAL_CONSTANT),
        BUILTIN_2("EncodingWarning", EXCEPTION),
        BUILTIN_2("ExceptionGroup", EXCEPTION_GROUP),
        BUILTIN_2("NotImplemented", .kind = AGX_GLOBAL_CONSTANT),
        BUILTIN_2("PythonFinalizationError", EXCEPTION),
        BUILTIN_2("RecursionError", EXCEPTION),
        BUILTIN_2("ResourceWarning", EXCEPTION),
        BUILTIN_2("StopAsyncIteration", EXCEPTION),
        BUILTIN_2("bool", PLAIN),
        BUILTIN_2("bytearray", .reduce = agx_build_bytearray),
        BUILTIN_2("bytes", .reduce = agx_build_bytes),
        BUILTIN_2("complex", .reduce = agx_build_complex),
        BUILTIN_2("dict", PLAIN),
        BUILTIN_2("float", PLAIN),
        BUILTIN_2("frozenset", .reduce = agx_build_set),
        BUILTIN_2("int", PLAIN),
        BUILTIN_2("list", PLAIN),
        ALIAS("__builtin__", "long", "builtins", "int", PLAIN),
        BUILTIN_2("object", PLAIN),
        BUILTIN_2("set", .reduce = agx_build_set),
        BUILTIN_2("slice", .reduce = agx_build_slice),
        BUILTIN_2("str", PLAIN),
        BUILTIN_2("tuple", PLAIN),
        ALIAS("__builtin__", "unicode", "builtins", "str", PLAIN),
        ALIAS("__builtin__", "xrange", "builtins", "range", .reduce = agx_build_range),
        FUNCTION("_codecs", "encode", .reduce = agx_build_latin1),
        RAISED("ArithmeticError"),
        RAISED("AssertionError"),
        RAISED("AttributeError"),
        RAISED("BaseException"),
        BUILTIN("BaseExceptionGroup", EXCEPTION_GROUP),
        RAISED("BlockingIOError"),
        RAISED("BrokenPipeError"),
        RAISED("BufferError"),
        RAISED("BytesWarning"),
        RAISED("ChildProcessError"),
        RAISED("ConnectionAbortedError"),
        RAISED("ConnectionError"),
        RAISED("ConnectionRefusedError"),
        RAISED("ConnectionResetError"),
        RAISED("DeprecationWarning"),
        RAISED("EOFError"),
        BUILTIN("Ellipsis", .kind = AGX_GLOBAL_CONSTANT),
        RAISED("EncodingWarning"),
        RAISED("Exception"),
        BUILTIN("ExceptionGroup", EXCEPTION_GROUP),
        RAISED("FileExistsError"),
        RAISED("FileNotFoundError"),
        RAISED("FloatingPointError"),
        RAISED("FutureWarning"),
        RAISED("GeneratorExit"),
        RAISED("ImportError"),
        RAISED("ImportWarning"),
        RAISED("IndentationError"),
        RAISED("IndexError"),
        RAISED("InterruptedError"),
        RAISED("IsADirectoryError"),
        RAISED("KeyError"),
        RAISED("KeyboardInterrupt"),
        RAISED("LookupError"),
        RAISED("MemoryError"),
        RAISED("ModuleNotFoundError"),
        RAISED("NameError"),
        RAISED("NotADirectoryError"),
        BUILTIN("NotImplemented", .kind = AGX_GLOBAL_CONSTANT),
        RAISED("NotImplementedError"),
        RAISED("OSError"),
        RAISED("OverflowError"),
        RAISED("PendingDeprecationWarning"),
        RAISED("PermissionError"),
        RAISED("ProcessLookupError"),
        RAISED("PythonFinalizationError"),
        RAISED("RecursionError"),
        RAISED("ReferenceError"),
        RAISED("ResourceWarning"),
        RAISED("RuntimeError"),
        RAISED("RuntimeWarning"),
        RAISED("StopAsyncIteration"),
        RAISED("StopIteration"),
        RAISED("SyntaxError"),
        RAISED("SyntaxWarning"),
        RAISED("SystemError"),
        RAISED("SystemExit"),
        RAISED("TabError"),
        RAISED("TimeoutError"),
        RAISED("TypeError"),
        RAISED("UnboundLocalError"),
        RAISED("UnicodeDecodeError"),
        RAISED("UnicodeEncodeError"),
        RAISED("UnicodeError"),
        RAISED("UnicodeTranslateError"),
        RAISED("UnicodeWarning"),
        RAISED("UserWarning"),
        RAISED("ValueError"),
        RAISED("Warning"),
        RAISED("ZeroDivisionError"),
        BUILTIN("bool", PLAIN),
        BUILTIN("bytearray", .reduce = agx_build_bytearray),
        BUILTIN("bytes", .reduce = agx_build_bytes),
        BUILTIN("complex", .reduce = agx_build_complex),
        BUILTIN("dict", PLAIN),
        BUILTIN("float", PLAIN),
        BUILTIN("frozenset", .reduce = agx_build_set),
        BUILTIN("int", PLAIN),
        BUILTIN("list", PLAIN),
        BUILTIN("object", PLAIN),
        BUILTIN("range", .reduce = agx_build_range),
        BUILTIN("set", .reduce = agx_build_set),
        BUILTIN("slice", .reduce = agx_build_slice),
        BUILTIN("str", PLAIN),
        BUILTIN("tuple", PLAIN),
        HERE("collections", "Counter", .reduce = agx_build_counter),
        HERE("collections", "OrderedDict", .reduce = agx_build_ordered_dict, .setitem = agx_fill_ordered_dict),
        HERE("collections", "defaultdict", .reduce = agx_build_defaultdict, .setitem = agx_fill_defaultdict),
        HERE("collections", "deque", .reduce = agx_build_deque, .append = agx_fill_deque),
        FUNCTION("copy_reg", "_reconstructor", .reduce = agx_build_reconstructor),
        FUNCTION("copyreg", "_reconstructor", .reduce = agx_build_reconstructor),
        HERE("datetime", "date", .reduce = agx_build_date),
        HERE("datetime", "datetime", .reduce = agx_build_datetime),
        HERE("datetime", "time", .reduce = agx_build_time),
        HERE("datetime", "timedelta", .reduce = agx_build_timedelta),
        HERE("datetime", "timezone", .reduce = agx_build_timezone),
        HERE("decimal", "Decimal", .reduce = agx_build_decimal),
        RAISED_2("ArithmeticError"),
        RAISED_2("AssertionError"),
        RAISED_2("AttributeError"),
        RAISED_2("BaseException"),
        RAISED_2("BufferError"),
        RAISED_2("BytesWarning"),
        RAISED_2("DeprecationWarning"),
        RAISED_2("EOFError"),
        RAISED_2("EnvironmentError"),
        RAISED_2("Exception"),
        RAISED_2("FloatingPointError"),
        RAISED_2("FutureWarning"),
        RAISED_2("GeneratorExit"),
        RAISED_2("IOError"),
        RAISED_2("ImportError"),
        RAISED_2("ImportWarning"),
        RAISED_2("IndentationError"),
        RAISED_2("IndexError"),
        RAISED_2("KeyError"),
        RAISED_2("KeyboardInterrupt"),
        RAISED_2("LookupError"),
        RAISED_2("MemoryError"),
        RAISED_2("NameError"),
        RAISED_2("NotImplementedError"),
        RAISED_2("OSError"),
        RAISED_2("OverflowError"),
        RAISED_2("PendingDeprecationWarning"),
        RAISED_2("ReferenceError"),
        RAISED_2("RuntimeError"),
        RAISED_2("RuntimeWarning"),
        ALIAS("exceptions", "StandardError", "builtins", "Exception", EXCEPTION),
        RAISED_2("StopIteration"),
        RAISED_2("SyntaxError"),
        RAISED_2("SyntaxWarning"),
        RAISED_2("SystemError"),
        RAISED_2("SystemExit"),
        RAISED_2("TabError"),
        RAISED_2("TypeError"),
        RAISED_2("UnboundLocalError"),
        RAISED_2("UnicodeDecodeError"),
        RAISED_2("UnicodeEncodeError"),
        RAISED_2("UnicodeError"),
        RAISED_2("UnicodeTranslateError"),
        RAISED_2("UnicodeWarning"),
        RAISED_2("UserWarning"),
        RAISED_2("ValueError"),
        RAISED_2("Warning"),
        RAISED_2("ZeroDivisionError"),
        HERE("fractions", "Fraction", .reduce = agx_build_fraction),
        HERE("numpy", "dtype", .present = true, .reduce = agx_build_dtype, .build = agx_build_dtype_state),
        HERE("numpy", "ndarray", NDARRAY),
        FUNCTION("numpy._core.multiarray", "_reconstruct", RECONSTRUCT),
        FUNCTION("numpy._core.multiarray", "scalar", SCALAR),
        FUNCTION("numpy._core.numeric", "_frombuffer", FROMBUFFER),
        FUNCTION("numpy.core.multiarray", "_reconstruct", RECONSTRUCT),
        FUNCTION("numpy.core.multiarray", "scalar", SCALAR),
        FUNCTION("numpy.core.numeric", "_frombuffer", FROMBUFFER),
        HERE("pathlib", "PosixPath", .reduce = agx_build_path),
        HERE("pathlib", "PurePosixPath", .reduce = agx_build_path),
        HERE("pathlib", "PureWindowsPath", .reduce = agx_build_path),
        ALIAS("pathlib._local", "PosixPath", "pathlib", "PosixPath", .reduce = agx_build_path),
        ALIAS("pathlib._local", "PurePosixPath", "pathlib", "PurePosixPath", .reduce = agx_build_path),
        ALIAS("pathlib._local", "PureWindowsPath", "pathlib", "PureWindowsPath", .reduce = agx_build_path),
        HERE("types", "SimpleNamespace", .reduce = agx_build_namespace, .build = agx_build_namespace_state),
        HERE("uuid", "UUID", UUID_ROW),
};

enum { ROWS = sizeof TABLE / sizeof *TABLE };

/* Compares like strcmp() on terminated strings. */
static int compare(agx_view view, const char *text)
{
        size_t n = strlen(text), least = view.n < n ? view.n : n;
        int r = least ? memcmp(view.p, text, least) : 0;
        return r ? r : (view.n > n) - (view.n < n);
}

static const agx_global *find_row(agx_view module, agx_view name)
{
        size_t low = 0, high = ROWS;
        while (low < high) {
                size_t middle = low + (high - low) / 2;
                int r = compare(module, TABLE[middle].module);
                if (r == 0)
                        r = compare(name, TABLE[middle].name);
                if (r == 0)
                        return &TABLE[middle];
                if (r < 0)
                        high = middle;
                else
                        low = middle + 1;
        }
        return NULL;
}

/* The module that a row lives in. New reference; NULL without exception if it is not there. */
static PyObject *home_module(const agx_global *row)
{
        PyObject *name = PyUnicode_FromString(row->home);
        if (!name)
                return NULL;
        PyObject *module = PyImport_GetModule(name);
        if (!module && !PyErr_Occurred() && !row->present)
                module = PyImport_Import(name);
        Py_DECREF(name);
        return module;
}

static int fail_row(agx_unpickler *u, const agx_global *row, const char *why)
{
        PyObject *module = PyUnicode_FromString(row->module);
        PyObject *name = module ? PyUnicode_FromString(row->name) : NULL;
        if (name)
                agx_unpickle_fail_global(u, module, name, why);
        Py_XDECREF(module);
        Py_XDECREF(name);
        return -1;
}

/* What a row stands for on this host. New reference. */
static PyObject *resolve(agx_unpickler *u, const agx_global *row)
{
        if (row->kind == AGX_GLOBAL_FUNCTION)
                return PyCapsule_New((void *)(uintptr_t)row, "agentix.pickle.function", NULL);
        PyObject *module = home_module(row);
        if (!module) {
                if (!PyErr_Occurred())
                        fail_row(u, row, "is on the allowlist, but this host has not imported its module");
                return NULL;
        }
        PyObject *object = PyObject_GetAttrString(module, row->attr);
        Py_DECREF(module);
        if (!object) {
                if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
                        PyErr_Clear();
                        fail_row(u, row, "is on the allowlist, but this host's Python does not have it");
                }
                return NULL;
        }
        if (row->kind == AGX_GLOBAL_TYPE && !PyType_Check(object)) {
                Py_DECREF(object);
                fail_row(u, row, "is on the allowlist, but did not resolve to a type");
                return NULL;
        }
        return object;
}

/* What this load has already found for a row, or NULL: so the list of named globals stays as short as the table. */
static PyObject *known(const agx_unpickler *u, const agx_global *row)
{
        for (size_t i = 0; i < u->n_named; i++)
                if (u->named[i].row == row)
                        return u->named[i].object;
        return NULL;
}

static int push_row(agx_unpickler *u, const agx_global *row)
{
        PyObject *object = Py_XNewRef(known(u, row));
        if (object)
                return agx_unpickle_push(u, object, 0);
        object = resolve(u, row);
        if (!object)
                return -1;
        if (row->kind == AGX_GLOBAL_FUNCTION)
                u->functions = true;
        if (row->kind != AGX_GLOBAL_CONSTANT && agx_unpickle_remember(u, object, row) < 0) {
                Py_DECREF(object);
                return -1;
        }
        return agx_unpickle_push(u, object, 0);
}

/* A class the host has admitted, or a declared one, or a refusal. */
static int push_extra(agx_unpickler *u, PyObject *module, PyObject *name)
{
        PyObject *key = PyTuple_Pack(2, module, name);
        PyObject *cls = key && u->extra ? PyDict_GetItemWithError(u->extra, key) : NULL;
        int r = -1;

        if (!cls && !PyErr_Occurred())
                r = agx_unpickle_push_declared(u, module, name, key);
        else if (cls && !PyType_Check(cls))
                r = agx_unpickle_fail_global(u, module, name, "was admitted, but did not resolve to a type");
        else if (cls && agx_unpickle_remember(u, cls, &agx_registered) >= 0)
                r = agx_unpickle_push(u, Py_NewRef(cls), 0);
        Py_XDECREF(key);
        return r;
}

int agx_unpickle_global(agx_unpickler *u, agx_view module, agx_view name)
{
        const agx_global *row = find_row(module, name);
        if (row)
                return push_row(u, row);
        PyObject *a = PyUnicode_DecodeUTF8(module.p, (Py_ssize_t)module.n, NULL);
        PyObject *b = a ? PyUnicode_DecodeUTF8(name.p, (Py_ssize_t)name.n, NULL) : NULL;
        int r = b ? push_extra(u, a, b) : -1;
        Py_XDECREF(a);
        Py_XDECREF(b);
        return r;
}

bool agx_unpickle_is(const agx_unpickler *u, PyObject *object, agx_reduce_fn reduce)
{
        agx_named *named = agx_unpickle_find(u, Py_TYPE(object));
        return named && named->row->reduce == reduce;
}
