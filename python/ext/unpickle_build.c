/*
 * What REDUCE, NEWOBJ and BUILD mean for the standard types.
 *
 * Each builder accepts the arguments that honest pickles of its type have, in any protocol and from any supported
 * Python, and nothing else. That rules out what makes these constructors dangerous in a stranger's hands: sizes taken
 * from a number (bytearray(2**33)), iteration over lazy things (list(range(10**9))), text that takes for ever to parse
 * (Fraction("1e99999999")). What a builder copies it charges for, as a stream can ask for the same copy again and
 * again.
 */
#include <string.h>

#include "unpickle.h"

enum {
        /* Rough sizes of what the charges are for, in bytes. */
        SIZE_DEQUE = 768,
        SIZE_ENTRY = 100, /* of a dict or set */
        SIZE_OBJECT = 200,
        SIZE_PATH = 400,
        UUID_BITS = 128,
};

/* --- helpers --- */

PyObject *agx_unpickle_arg(PyObject *args, Py_ssize_t i)
{
        return i < PyTuple_Size(args) ? PyTuple_GetItem(args, i) : NULL;
}

PyObject *agx_unpickle_bad(agx_unpickler *u, const char *what)
{
        agx_unpickle_fail_subject(u, what);
        return NULL;
}

static PyObject *call(agx_unpickler *u, PyObject *callable, PyObject *args, uint64_t charge)
{
        return agx_unpickle_charge(u, charge) < 0 ? NULL : PyObject_Call(callable, args, NULL);
}

/* The same for what copies that many bytes of its arguments. */
static PyObject *call_copying(agx_unpickler *u, PyObject *callable, PyObject *args, uint64_t copied)
{
        return agx_unpickle_copy(u, copied) < 0 ? NULL : call(u, callable, args, SIZE_OBJECT);
}

bool agx_unpickle_is_scalar(PyObject *object)
{
        return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
               PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || PyComplex_CheckExact(object);
}

bool agx_unpickle_is_dunder(PyObject *name)
{
        Py_ssize_t n = PyUnicode_GetLength(name);
        return n >= 4 && PyUnicode_ReadChar(name, 0) == '_' && PyUnicode_ReadChar(name, 1) == '_' &&
               PyUnicode_ReadChar(name, n - 1) == '_' && PyUnicode_ReadChar(name, n - 2) == '_';
}

int agx_unpickle_inherits(PyObject *type, PyTypeObject *base, const char *attr)
{
        PyObject *a = PyObject_GetAttrString(type, attr);
        PyObject *b = a ? PyObject_GetAttrString((PyObject *)base, attr) : NULL;
        int r = !b ? -1 : a == b;
        Py_XDECREF(a);
        Py_XDECREF(b);
        return r;
}

int agx_unpickle_set_dict(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (!PyDict_CheckExact(state))
                return agx_unpickle_fail_subject(u, "a state that is not a dict");
        if (agx_unpickle_charge_pairs(u, 0, (size_t)PyDict_Size(state)) < 0)
                return -1;
        PyObject *dict = PyObject_GenericGetDict(object, NULL), *key, *value;
        Py_ssize_t i = 0;
        int r = dict ? 0 : -1;
        while (r == 0 && PyDict_Next(state, &i, &key, &value))
                r = PyUnicode_CheckExact(key) ? PyDict_SetItem(dict, key, value)
                                              : agx_unpickle_fail_subject(u, "an attribute's name that is not a str");
        Py_XDECREF(dict);
        return r;
}

int agx_unpickle_set_pairs(agx_unpickler *u, PyObject *dict, size_t from)
{
        if (agx_unpickle_charge_pairs(u, PyDict_Size(dict), (u->n - from) / 2) < 0)
                return -1;
        for (size_t i = from; i + 1 < u->n; i += 2)
                if (agx_unpickle_key(u, u->stack[i]) < 0 || PyDict_SetItem(dict, u->stack[i], u->stack[i + 1]) < 0 ||
                    agx_unpickle_step(u) < 0)
                        return -1;
        return 0;
}

int agx_unpickle_add(agx_unpickler *u, PyObject *set, PyObject *item)
{
        if (agx_unpickle_key(u, item) < 0 || PySet_Add(set, item) < 0)
                return -1;
        return agx_unpickle_step(u);
}

/* --- bytes --- */

static bool is_latin1_name(PyObject *object)
{
        return object && PyUnicode_CheckExact(object) &&
               (PyUnicode_CompareWithASCIIString(object, "latin1") == 0 ||
                PyUnicode_CompareWithASCIIString(object, "latin-1") == 0);
}

PyObject *agx_build_latin1(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        (void)callable;
        PyObject *text = agx_unpickle_arg(args, 0);
        if (PyTuple_Size(args) != 2 || !PyUnicode_CheckExact(text) || !is_latin1_name(agx_unpickle_arg(args, 1)))
                return agx_unpickle_bad(u, "only a str and 'latin1', as older protocols write bytes");
        if (agx_unpickle_copy(u, (uint64_t)PyUnicode_GetLength(text)) < 0 || agx_unpickle_charge(u, SIZE_OBJECT) < 0)
                return NULL;
        return PyUnicode_AsLatin1String(text);
}

PyObject *agx_build_bytes(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        if (PyTuple_Size(args) != 0)
                return agx_unpickle_bad(u, "only without arguments");
        return call(u, callable, args, 0);
}

PyObject *agx_build_bytearray(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *first = agx_unpickle_arg(args, 0);
        Py_ssize_t n = PyTuple_Size(args);
        if (n == 1 && PyBytes_CheckExact(first))
                return call_copying(u, callable, args, (uint64_t)PyBytes_Size(first));
        if (n == 2 && PyUnicode_CheckExact(first) && is_latin1_name(agx_unpickle_arg(args, 1)))
                return call_copying(u, callable, args, (uint64_t)PyUnicode_GetLength(first));
        return n == 0 ? call(u, callable, args, SIZE_OBJECT) : agx_unpickle_bad(u, "only from bytes");
}

/* --- numbers and the like --- */

PyObject *agx_build_complex(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *re = agx_unpickle_arg(args, 0), *im = agx_unpickle_arg(args, 1);
        if (PyTuple_Size(args) != 2 || !PyFloat_CheckExact(re) || !PyFloat_CheckExact(im))
                return agx_unpickle_bad(u, "only from two floats");
        return call(u, callable, args, 0);
}

PyObject *agx_build_range(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        Py_ssize_t n = PyTuple_Size(args);
        bool good = n >= 1 && n <= 3;
        for (Py_ssize_t i = 0; good && i < n; i++)
                good = PyLong_CheckExact(PyTuple_GetItem(args, i));
        return good ? call(u, callable, args, SIZE_OBJECT) : agx_unpickle_bad(u, "only from one to three integers");
}

/* A slice frees its parts by recursion, so they must have none themselves. */
PyObject *agx_build_slice(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        Py_ssize_t n = PyTuple_Size(args);
        bool good = n >= 1 && n <= 3;
        for (Py_ssize_t i = 0; good && i < n; i++)
                good = agx_unpickle_is_scalar(PyTuple_GetItem(args, i));
        return good ? call(u, callable, args, SIZE_OBJECT) : agx_unpickle_bad(u, "only from one to three plain values");
}

/* Skips up to @max digits and says how many there were; more than that is one more. */
static size_t skip_digits(const char **text, size_t max)
{
        size_t n = 0;
        while (n <= max && **text >= '0' && **text <= '9')
                (*text)++, n++;
        return n;
}

static bool is_name(const char *text, const char *name)
{
        size_t n = strlen(name);
        return strncmp(text, name, n) == 0 && strspn(text + n, "0123456789") == strlen(text + n);
}

/* As str() writes a Decimal: digits with a point, an exponent of at most 18 digits, or a name. */
static bool is_decimal(const char *text)
{
        text += *text == '-';
        if (strcmp(text, "Infinity") == 0 || is_name(text, "NaN") || is_name(text, "sNaN"))
                return true;
        size_t digits = skip_digits(&text, AGX_VALUE_DECIMAL_CHARS);
        if (*text == '.') {
                text++;
                digits += skip_digits(&text, AGX_VALUE_DECIMAL_CHARS);
        }
        if (digits == 0)
                return false;
        if (*text == 'E' || *text == 'e') {
                text++;
                text += *text == '+' || *text == '-';
                size_t exponent = skip_digits(&text, 18);
                if (exponent == 0 || exponent > 18)
                        return false;
        }
        return *text == 0;
}

/* "3" or "-1/3". */
static bool is_fraction(const char *text)
{
        text += *text == '-';
        size_t n = skip_digits(&text, AGX_VALUE_INT_DIGITS);
        if (n == 0 || n > AGX_VALUE_INT_DIGITS)
                return false;
        if (*text == '/') {
                text++;
                n = skip_digits(&text, AGX_VALUE_INT_DIGITS);
        }
        return *text == 0 && n > 0 && n <= AGX_VALUE_INT_DIGITS;
}

/* The text of a single str argument without NUL inside, or NULL without exception. */
static const char *only_text(PyObject *args, Py_ssize_t max)
{
        Py_ssize_t n;
        PyObject *text = agx_unpickle_arg(args, 0);
        if (PyTuple_Size(args) != 1 || !PyUnicode_CheckExact(text) || PyUnicode_GetLength(text) > max)
                return NULL;
        const char *utf8 = PyUnicode_AsUTF8AndSize(text, &n);
        if (!utf8)
                PyErr_Clear();
        return utf8 && strlen(utf8) == (size_t)n ? utf8 : NULL;
}

PyObject *agx_build_decimal(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        const char *text = only_text(args, AGX_VALUE_DECIMAL_CHARS);
        if (!text || !is_decimal(text))
                return agx_unpickle_bad(u, "only from its own text, of bounded length");
        return call_copying(u, callable, args, strlen(text));
}

/* Sets *bytes to the size of an int of at most AGX_VALUE_INT_DIGITS decimal digits. 1 if it is one, 0 if not. */
static int is_bounded_int(PyObject *number, size_t *bytes)
{
        if (!number || !PyLong_CheckExact(number))
                return 0;
        PyObject *length = PyObject_CallMethod(number, "bit_length", NULL);
        if (!length)
                return -1;
        size_t bits = PyLong_AsSize_t(length);
        Py_DECREF(length);
        *bytes = bits / 8;
        return bits <= (size_t)AGX_VALUE_INT_DIGITS * 10 / 3;
}

PyObject *agx_build_fraction(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        size_t above = 0, below = 0;
        const char *text = only_text(args, 2 * AGX_VALUE_INT_DIGITS + 2);
        if (text && is_fraction(text))
                return call_copying(u, callable, args, strlen(text));
        int good = PyTuple_Size(args) == 2 ? is_bounded_int(PyTuple_GetItem(args, 0), &above) : 0;
        if (good > 0)
                good = is_bounded_int(PyTuple_GetItem(args, 1), &below);
        if (good < 0)
                return NULL;
        return good ? call_copying(u, callable, args, above + below)
                    : agx_unpickle_bad(u, "only from bounded integers");
}

/* --- sets and collections --- */

/* set and frozenset in protocols 0 to 3: one list. */
PyObject *agx_build_set(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *list = agx_unpickle_arg(args, 0);
        if (PyTuple_Size(args) != 1 || !PyList_CheckExact(list))
                return agx_unpickle_bad(u, "only from a list");
        Py_ssize_t n = PyList_Size(list);
        if (agx_unpickle_charge(u, SIZE_OBJECT + SIZE_ENTRY * (uint64_t)n) < 0)
                return NULL;
        bool frozen = callable == (PyObject *)&PyFrozenSet_Type;
        PyObject *set = frozen ? PyFrozenSet_New(NULL) : PySet_New(NULL);
        for (Py_ssize_t i = 0; set && i < n && i < PyList_Size(list); i++)
                if (agx_unpickle_add(u, set, PyList_GetItem(list, i)) < 0)
                        Py_CLEAR(set);
        return set;
}

PyObject *agx_build_ordered_dict(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        if (PyTuple_Size(args) != 0)
                return agx_unpickle_bad(u, "only without arguments");
        return call(u, callable, args, SIZE_OBJECT);
}

int agx_fill_ordered_dict(agx_unpickler *u, PyObject *object, size_t from)
{
        if (agx_unpickle_charge(u, SIZE_ENTRY * (uint64_t)(u->n - from)) < 0)
                return -1;
        for (size_t i = from; i + 1 < u->n; i += 2)
                if (agx_unpickle_key(u, u->stack[i]) < 0 ||
                    PyObject_SetItem(object, u->stack[i], u->stack[i + 1]) < 0 || agx_unpickle_step(u) < 0)
                        return -1;
        return 0;
}

PyObject *agx_build_counter(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *counts = agx_unpickle_arg(args, 0);
        if (PyTuple_Size(args) != 1 || !PyDict_CheckExact(counts))
                return agx_unpickle_bad(u, "only from a dict");
        return call(u, callable, args, SIZE_OBJECT + SIZE_ENTRY * (uint64_t)PyDict_Size(counts));
}

/* () or ((), maxlen): items come by APPENDS. */
PyObject *agx_build_deque(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *items = agx_unpickle_arg(args, 0), *maxlen = agx_unpickle_arg(args, 1);
        Py_ssize_t n = PyTuple_Size(args);
        bool empty = items && ((PyTuple_CheckExact(items) && PyTuple_Size(items) == 0) ||
                               (PyList_CheckExact(items) && PyList_Size(items) == 0));
        if (n != 0 && !(n == 2 && empty && (maxlen == Py_None || PyLong_CheckExact(maxlen))))
                return agx_unpickle_bad(u, "only empty, with or without a maximum length");
        return call(u, callable, args, SIZE_DEQUE);
}

/* What `deque += list` does. */
int agx_fill_deque(agx_unpickler *u, PyObject *object, size_t from)
{
        if (agx_unpickle_charge(u, 9 * (uint64_t)(u->n - from)) < 0)
                return -1;
        PyObject *list = PyList_New((Py_ssize_t)(u->n - from));
        int r = list ? 0 : -1;
        for (size_t i = from; r == 0 && i < u->n; i++) {
                r = agx_unpickle_chain(u, object, u->stack[i]);
                PyList_SetItem(list, (Py_ssize_t)(i - from), Py_NewRef(u->stack[i])); /* steals */
        }
        PyObject *same = r == 0 ? PySequence_InPlaceConcat(object, list) : NULL;
        Py_XDECREF(list);
        Py_XDECREF(same);
        return same ? 0 : -1;
}

static bool is_factory(PyObject *object)
{
        PyTypeObject *const factories[] = {&PyList_Type,    &PyDict_Type,    &PySet_Type,   &PyFrozenSet_Type,
                                           &PyTuple_Type,   &PyLong_Type,    &PyBool_Type,  &PyFloat_Type,
                                           &PyComplex_Type, &PyUnicode_Type, &PyBytes_Type, &PyByteArray_Type};
        for (size_t i = 0; i < sizeof factories / sizeof *factories; i++)
                if (object == (PyObject *)factories[i])
                        return true;
        return object == Py_None;
}

PyObject *agx_build_defaultdict(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        PyObject *factory = agx_unpickle_arg(args, 0);
        if (PyTuple_Size(args) > 1 || (factory && !is_factory(factory)))
                return agx_unpickle_bad(u, "its factory can only be a builtin container or number type, str or bytes");
        return call(u, callable, args, SIZE_OBJECT);
}

int agx_fill_defaultdict(agx_unpickler *u, PyObject *object, size_t from)
{
        for (size_t i = from; i + 1 < u->n; i += 2)
                if (agx_unpickle_chain(u, object, u->stack[i + 1]) < 0)
                        return -1;
        return agx_unpickle_set_pairs(u, object, from);
}

/* --- paths, UUIDs, namespaces --- */

PyObject *agx_build_path(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        Py_ssize_t n = PyTuple_Size(args);
        uint64_t size = 0;
        for (Py_ssize_t i = 0; i < n; i++) {
                PyObject *part = PyTuple_GetItem(args, i);
                if (!PyUnicode_CheckExact(part))
                        return agx_unpickle_bad(u, "only from parts that are str");
                size += 4 * (uint64_t)PyUnicode_GetLength(part);
        }
        if (agx_unpickle_copy(u, size) < 0)
                return NULL;
        return call(u, callable, args, SIZE_PATH + SIZE_ENTRY * (uint64_t)n);
}

/* A UUID refuses setattr(), as its class promises it never changes; object's own way does not ask. */
static int set_field(PyObject *object, const char *name, PyObject *value)
{
        PyObject *key = PyUnicode_InternFromString(name);
        int r = key ? PyObject_GenericSetAttr(object, key, value) : -1;
        Py_XDECREF(key);
        return r;
}

/* uuid.SafeUUID, or what it calls unknown. New reference. */
static PyObject *safe_uuid(const char *member)
{
        PyObject *module = PyImport_ImportModule("uuid");
        PyObject *cls = module ? PyObject_GetAttrString(module, "SafeUUID") : NULL;
        PyObject *found = cls && member ? PyObject_GetAttrString(cls, member) : Py_XNewRef(cls);
        Py_XDECREF(module);
        Py_XDECREF(cls);
        return found;
}

static int set_is_safe(PyObject *object, PyObject *value)
{
        PyObject *cls = safe_uuid(NULL);
        PyObject *member = cls ? PyObject_CallFunctionObjArgs(cls, value, NULL) : NULL;
        int r = member ? set_field(object, "is_safe", member) : -1;
        Py_XDECREF(cls);
        Py_XDECREF(member);
        return r;
}

/* A UUID of zero, so that it is whole even if no state follows. */
PyObject *agx_build_uuid(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        if (PyTuple_Size(args) != 0)
                return agx_unpickle_bad(u, "only without arguments");
        if (!u->subject->cached)
                u->subject->cached = safe_uuid("unknown");
        if (!u->subject->cached || agx_unpickle_charge(u, SIZE_OBJECT) < 0)
                return NULL;
        PyObject *object = PyObject_CallMethod((PyObject *)&PyBaseObject_Type, "__new__", "O", callable);
        PyObject *zero = object ? PyLong_FromLong(0) : NULL;
        if (object &&
            (!zero || set_field(object, "int", zero) < 0 || set_field(object, "is_safe", u->subject->cached) < 0))
                Py_CLEAR(object);
        Py_XDECREF(zero);
        return object;
}

/* 1 if 0 <= number < 2**128, 0 if not. */
static int is_uuid_int(PyObject *number)
{
        PyObject *zero = PyLong_FromLong(0), *length = NULL;
        int r = zero ? PyObject_RichCompareBool(number, zero, Py_GE) : -1;
        if (r > 0) {
                length = PyObject_CallMethod(number, "bit_length", NULL);
                r = length ? PyLong_AsSize_t(length) <= UUID_BITS : -1;
        }
        Py_XDECREF(zero);
        Py_XDECREF(length);
        return r;
}

int agx_build_uuid_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        PyObject *number = PyDict_CheckExact(state) ? PyDict_GetItemString(state, "int") : NULL;
        PyObject *safe = number ? PyDict_GetItemString(state, "is_safe") : NULL;
        if (!number || !PyLong_CheckExact(number) || PyDict_Size(state) != 1 + !!safe ||
            (safe && !agx_unpickle_is_scalar(safe)))
                return agx_unpickle_fail_subject(u, "its state is an int and perhaps is_safe");
        int good = is_uuid_int(number);
        if (good <= 0)
                return good < 0 ? -1 : agx_unpickle_fail_subject(u, "its int has 128 bits");
        return set_field(object, "int", number) < 0 ? -1 : safe ? set_is_safe(object, safe) : 0;
}

PyObject *agx_build_namespace(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        if (PyTuple_Size(args) != 0)
                return agx_unpickle_bad(u, "only without arguments");
        return call(u, callable, args, SIZE_OBJECT);
}

int agx_build_namespace_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        return agx_unpickle_set_dict(u, object, state);
}

/* --- protocols 0 and 1 --- */

PyObject *agx_build_reconstructor(agx_unpickler *u, PyObject *callable, PyObject *args)
{
        (void)callable;
        PyObject *cls = agx_unpickle_arg(args, 0);
        agx_named *named = cls ? agx_unpickle_find(u, cls) : NULL;
        if (PyTuple_Size(args) != 3 || PyTuple_GetItem(args, 1) != (PyObject *)&PyBaseObject_Type ||
            PyTuple_GetItem(args, 2) != Py_None || !named || !named->row->newobj)
                return agx_unpickle_bad(u, "only for a class on the allowlist that derives from nothing but object");
        PyObject *none = PyTuple_New(0);
        u->subject = named;
        PyObject *object = none ? named->row->newobj(u, cls, none) : NULL;
        Py_XDECREF(none);
        return object;
}
