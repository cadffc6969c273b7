/* Values without parts, integers excepted: None, booleans, floats, bytes and text. */
#include <string.h>

#include "large.h"
#include "unpickle_ops.h"

enum {
        SIZE_NUMBER = 32, /* roughly, in bytes, for the memory account */
        SIZE_TEXT = 64,
        SIZE_BYTEARRAY = 72,
};

int agx_unpickle_on_proto(agx_unpickler *u)
{
        (void)u;
        return 0;
}

int agx_unpickle_on_none(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_None), 0);
}

int agx_unpickle_on_true(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_True), 0);
}

int agx_unpickle_on_false(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_False), 0);
}

int agx_unpickle_on_float(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, SIZE_NUMBER) < 0)
                return -1;
        return agx_unpickle_push(u, PyFloat_FromDouble(u->op.f), 0);
}

int agx_unpickle_on_float_text(agx_unpickler *u)
{
        char *text = agx_unpickle_charge(u, SIZE_NUMBER) < 0 ? NULL : agx_unpickle_terminated(u->op.view[0]);
        double value = text ? PyOS_string_to_double(text, NULL, NULL) : -1.0;
        PyMem_Free(text);
        if (value == -1.0 && PyErr_Occurred())
                return -1;
        return agx_unpickle_push(u, PyFloat_FromDouble(value), 0);
}

int agx_unpickle_on_bytes(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        return agx_unpickle_push(u, agx_ext_bytes(*v), 0);
}

int agx_unpickle_on_bytearray(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_BYTEARRAY) < 0)
                return -1;
        return agx_unpickle_push(u, PyByteArray_FromStringAndSize(v->p, (Py_ssize_t)v->n), 0);
}

int agx_unpickle_on_landed(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, PyBytes_CheckExact(u->landed.object) ? SIZE_TEXT : SIZE_BYTEARRAY) < 0)
                return -1;
        return agx_unpickle_push(u, Py_NewRef(u->landed.object), 0);
}

static int push_text(agx_unpickler *u, PyObject *text)
{
        if (text)
                return agx_unpickle_push(u, text, 0);
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError))
                return -1;
        PyErr_Clear();
        return agx_unpickle_fail_malformed(u, "a text that is not valid Unicode");
}

/* Whether the only surrogates in a text are those by which Python spells the bytes of a name that is not UTF-8, as
 * os.fsdecode() gives it: U+DC80 to U+DCFF. */
static bool only_escaped_bytes(PyObject *text)
{
        for (Py_ssize_t i = 0, n = PyUnicode_GetLength(text); i < n; i++) {
                Py_UCS4 c = PyUnicode_ReadChar(text, i);
                if (c >= 0xd800 && c <= 0xdfff && (c < 0xdc80 || c > 0xdcff))
                        return false;
        }
        return true;
}

/* A text with surrogates in it, which are written as if they were characters. */
static PyObject *odd_text(const agx_view *v)
{
        if (!PyErr_ExceptionMatches(PyExc_UnicodeError))
                return NULL;
        PyErr_Clear();
        PyObject *text = PyUnicode_DecodeUTF8(v->p, (Py_ssize_t)v->n, "surrogatepass");
        if (text && !only_escaped_bytes(text)) {
                Py_CLEAR(text);
                PyErr_SetString(PyExc_UnicodeError, "a lone surrogate");
        }
        return text;
}

int agx_unpickle_on_text(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (v->n > 1 && agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        PyObject *text = PyUnicode_DecodeUTF8(v->p, (Py_ssize_t)v->n, NULL);
        return push_text(u, text ? text : odd_text(v));
}

/* Escapes can spell surrogates, too. */
int agx_unpickle_on_text_raw(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        PyObject *text = PyUnicode_DecodeRawUnicodeEscape(v->p, (Py_ssize_t)v->n, NULL);
        PyObject *utf8 = text ? PyUnicode_AsUTF8String(text) : NULL;
        if (text && !utf8 && PyErr_ExceptionMatches(PyExc_UnicodeError) && only_escaped_bytes(text))
                PyErr_Clear();
        else if (!utf8)
                Py_CLEAR(text);
        Py_XDECREF(utf8);
        return push_text(u, text);
}

int agx_unpickle_on_old_text(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        return push_text(u, PyUnicode_DecodeASCII(v->p, (Py_ssize_t)v->n, NULL));
}

int agx_unpickle_on_old_quoted(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        PyObject *text = PyUnicode_DecodeASCII(v->p, (Py_ssize_t)v->n, NULL);
        if (text && memchr(v->p, '\\', v->n)) {
                Py_DECREF(text);
                return agx_unpickle_fail_opcode(u, "Python 2 strings with escapes are not decoded");
        }
        return push_text(u, text);
}
