/*
 * Every text of RestrictedUnpickleError.
 *
 * Two kinds: the value is *refused* (it asks for something that is not allowed; the text says how to allow it where
 * that is possible) or the stream is *malformed* (what, at which byte, at which opcode). Names and texts that come
 * from the stream are shown as ASCII with escapes and cut, so that they cannot forge lines of a log. The exception
 * class is looked up when it is first needed: a load that succeeds never imports it.
 */
#include <stdarg.h>

#include "unpickle.h"

#define HOW_TO_ADMIT                                                                                                   \
        "To put a class of your own on the allowlist: agentix.runtime.shared.safepickle.allow_type(Class). To "        \
        "unpickle anything from sandboxes you trust: AGENTIX_PICKLE_TRUST=1"

/* Names that honest values have and that stay off the allowlist: what to return instead. */
static const struct {
        const char *module, *name, *why;
} HINTS[] = {
        {"re", "_compile",
         "would compile a pattern on this host, whatever that costs; return the pattern's text and flags"},
        {"zoneinfo", "ZoneInfo._unpickle",
         "would read a file of this host; return a datetime of a fixed datetime.timezone"},
        {"builtins", "getattr",
         "could fetch anything; a bound method, or an Enum that pickles its members by name, "
         "cannot be returned"},
        {"pathlib", "WindowsPath", "exists on Windows only; return a PureWindowsPath"},
};

/* NULL: the usual words will do. */
static const char *hint(PyObject *module, PyObject *name)
{
        for (size_t i = 0; i < sizeof HINTS / sizeof *HINTS; i++)
                if (PyUnicode_CompareWithASCIIString(module, HINTS[i].module) == 0 &&
                    PyUnicode_CompareWithASCIIString(name, HINTS[i].name) == 0)
                        return HINTS[i].why;
        return NULL;
}

static PyObject *error_class(void)
{
        PyObject *module = PyImport_ImportModule("agentix._failures");
        if (!module)
                return NULL;
        PyObject *cls = PyObject_GetAttrString(module, "RestrictedUnpickleError");
        Py_DECREF(module);
        return cls;
}

static int fail(const char *format, ...)
{
        PyObject *cls = error_class();
        if (!cls)
                return -1;
        va_list args;
        va_start(args, format);
        PyErr_FormatV(cls, format, args);
        va_end(args);
        Py_DECREF(cls);
        return -1;
}

static const char *opcode_name(const agx_unpickler *u)
{
        const char *name = agx_pickle_opcode_name(u->op.code);
        return name ? name : "no opcode";
}

/* A text of the stream as it may be shown: ASCII, without quotes, cut. New reference. */
static PyObject *shown(PyObject *text)
{
        PyObject *start = PyUnicode_Check(text) ? PyUnicode_Substring(text, 0, AGX_VALUE_ERROR_CHARS + 1)
                                                : PyUnicode_FromString("?");
        PyObject *ascii = start ? PyObject_ASCII(start) : NULL;
        Py_XDECREF(start);
        if (!ascii)
                return NULL;
        Py_ssize_t n = PyUnicode_GetLength(ascii);
        bool cut = n > AGX_VALUE_ERROR_CHARS + 2;
        PyObject *inner = PyUnicode_Substring(ascii, 1, cut ? AGX_VALUE_ERROR_CHARS + 1 : n - 1);
        Py_DECREF(ascii);
        if (!inner || !cut)
                return inner;
        PyObject *text_cut = PyUnicode_FromFormat("%U...", inner);
        Py_DECREF(inner);
        return text_cut;
}

/* "module.Class" of a class, "?" if it does not say. New reference. */
static PyObject *class_name(PyObject *cls)
{
        PyObject *module = PyObject_GetAttrString(cls, "__module__");
        PyObject *name = module ? PyObject_GetAttrString(cls, "__qualname__") : NULL;
        PyObject *a = name ? shown(module) : NULL, *b = a ? shown(name) : NULL;
        PyObject *whole = b ? PyUnicode_FromFormat("%U.%U", a, b) : NULL;
        Py_XDECREF(module);
        Py_XDECREF(name);
        Py_XDECREF(a);
        Py_XDECREF(b);
        if (whole || PyErr_ExceptionMatches(PyExc_MemoryError))
                return whole;
        PyErr_Clear();
        return PyUnicode_FromString("?");
}

static PyObject *subject_name(const agx_unpickler *u)
{
        if (u->subject->row == &agx_registered || u->subject->row == &agx_declared)
                return class_name(u->subject->object);
        return PyUnicode_FromFormat("%s.%s", u->subject->row->module, u->subject->row->name);
}

int agx_unpickle_fail_stream(agx_unpickler *u)
{
        size_t pos = agx_unpickle_place(u, agx_pickle_err_pos(&u->reader));
        return fail("malformed pickle: %s (at byte %zu of %zu)", agx_pickle_strerror(u->reader.err), pos,
                    u->reader.len + u->landed.more);
}

int agx_unpickle_fail_malformed(agx_unpickler *u, const char *what)
{
        return fail("malformed pickle: %s (at byte %zu, %s)", what, agx_unpickle_place(u, u->op.pos), opcode_name(u));
}

int agx_unpickle_fail_opcode(agx_unpickler *u, const char *why)
{
        return fail("refused: %s (%s at byte %zu) and are never on the allowlist. " HOW_TO_ADMIT, why, opcode_name(u),
                    agx_unpickle_place(u, u->op.pos));
}

int agx_unpickle_fail_budget(agx_unpickler *u, const char *what)
{
        return fail("refused: %s (at byte %zu, %s)", what, agx_unpickle_place(u, u->op.pos), opcode_name(u));
}

int agx_unpickle_fail_global(agx_unpickler *u, PyObject *module, PyObject *name, const char *why)
{
        PyObject *a = shown(module), *b = a ? shown(name) : NULL;
        why = why ? why : hint(module, name);
        if (b)
                fail("refused: %U.%U %s (at byte %zu). " HOW_TO_ADMIT, a, b,
                     why ? why : "is not on the allowlist of what a sandbox may return",
                     agx_unpickle_place(u, u->op.pos));
        Py_XDECREF(a);
        Py_XDECREF(b);
        return -1;
}

int agx_unpickle_fail_subject(agx_unpickler *u, const char *what)
{
        if (!u->subject)
                return agx_unpickle_fail_malformed(u, what);
        PyObject *name = subject_name(u);
        if (name)
                fail("refused: %U is on the allowlist, but not like this: %s (at byte %zu, %s)", name, what,
                     agx_unpickle_place(u, u->op.pos), opcode_name(u));
        Py_XDECREF(name);
        return -1;
}

/* 1 if the exception may leave as it is, 0 if not, -1 with another one in its place. */
static int may_pass(PyObject *type)
{
        if (PyErr_GivenExceptionMatches(type, PyExc_MemoryError) || !PyErr_GivenExceptionMatches(type, PyExc_Exception))
                return 1;
        PyObject *cls = error_class();
        if (!cls)
                return -1;
        int ours = PyErr_GivenExceptionMatches(type, cls);
        Py_DECREF(cls);
        return ours;
}

static void fail_from(agx_unpickler *u, PyObject *cause)
{
        PyObject *text = PyObject_Str(cause);
        if (!text) {
                PyErr_Clear();
                text = PyUnicode_FromString("?");
        }
        PyObject *kind = text ? class_name((PyObject *)Py_TYPE(cause)) : NULL;
        PyObject *words = kind ? shown(text) : NULL;
        PyObject *name = words && u->subject ? subject_name(u) : PyUnicode_FromString("this value");
        if (words && name)
                fail("refused: %U cannot be rebuilt: %U: %U (at byte %zu, %s)", name, kind, words,
                     agx_unpickle_place(u, u->op.pos), opcode_name(u));
        Py_XDECREF(text);
        Py_XDECREF(kind);
        Py_XDECREF(words);
        Py_XDECREF(name);
}

/* Raises what fail_from() makes of @cause, and links the two. */
static void raise_from(agx_unpickler *u, PyObject *cause)
{
        PyObject *type, *value, *traceback;
        fail_from(u, cause);
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        if (value && PyExceptionInstance_Check(value))
                PyException_SetCause(value, Py_NewRef(cause)); /* steals */
        PyErr_Restore(type, value, traceback);
}

void agx_unpickle_fail_wrap(agx_unpickler *u)
{
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        int pass = may_pass(type);
        if (pass > 0) {
                PyErr_Restore(type, value, traceback);
                return;
        }
        if (pass == 0) {
                PyErr_NormalizeException(&type, &value, &traceback);
                if (traceback)
                        PyException_SetTraceback(value, traceback);
                raise_from(u, value);
        }
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
}
