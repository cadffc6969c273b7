/* Integers: those that fit a machine word, and longer ones in binary and in decimal form. */
#include <string.h>

#include "unpickle_ops.h"

enum {
        SIZE_NUMBER = 32, /* roughly, in bytes, for the memory account */
        SIZE_BIG = 64,
        MIDDLING = 256, /* bytes of an integer */
};

int agx_unpickle_on_int(agx_unpickler *u)
{
        const bool kept = u->op.i >= -5 && u->op.i <= 256; /* the interpreter has these already */
        if (!kept && agx_unpickle_charge(u, SIZE_NUMBER) < 0)
                return -1;
        return agx_unpickle_push(u, PyLong_FromLongLong(u->op.i), 0);
}

/* An integer of moderate size, by way of its hexadecimal text: linear in the length, and quicker than a call. */
static PyObject *middling_from_bytes(agx_view view)
{
        static const char DIGITS[] = "0123456789abcdef";
        const bool negative = view.p[view.n - 1] & 0x80;
        char text[2 * MIDDLING + 2], *end = text + 1 + 2 * view.n;
        unsigned carry = negative; /* a negative one is the complement of its magnitude, plus one */
        text[0] = negative ? '-' : '+';
        *end = 0;
        for (size_t i = 0; i < view.n; i++) {
                unsigned byte = (unsigned char)view.p[i];
                byte = negative ? (byte ^ 0xff) + carry : byte;
                carry = byte >> 8;
                *--end = DIGITS[byte & 15];
                *--end = DIGITS[byte >> 4 & 15];
        }
        /* Of the lowest negative number the magnitude needs no more bytes: 0x80 and zeros. */
        return PyLong_FromString(text, NULL, 16);
}

/* int.from_bytes(data, "little", signed=True): linear in the length. */
static PyObject *big_from_bytes(agx_view view)
{
        if (view.n <= MIDDLING)
                return middling_from_bytes(view);
        PyObject *method = PyObject_GetAttrString((PyObject *)&PyLong_Type, "from_bytes");
        PyObject *args = Py_BuildValue("(y#s)", view.p, (Py_ssize_t)view.n, "little");
        PyObject *kwargs = Py_BuildValue("{s:O}", "signed", Py_True);
        PyObject *number = method && args && kwargs ? PyObject_Call(method, args, kwargs) : NULL;
        Py_XDECREF(method);
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        return number;
}

int agx_unpickle_on_big_binary(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, SIZE_BIG) < 0 || agx_unpickle_step(u) < 0)
                return -1;
        return agx_unpickle_push(u, big_from_bytes(u->op.view[0]), 0);
}

/* A terminated copy of a short text. */
char *agx_unpickle_terminated(agx_view view)
{
        char *text = PyMem_Malloc(view.n + 1);
        if (!text) {
                PyErr_NoMemory();
                return NULL;
        }
        memcpy(text, view.p, view.n);
        text[view.n] = 0;
        return text;
}

int agx_unpickle_on_big_text(agx_unpickler *u)
{
        char *text = agx_unpickle_step(u) < 0 ? NULL : agx_unpickle_terminated(u->op.view[0]);
        PyObject *number = text ? PyLong_FromString(text, NULL, 10) : NULL;
        PyMem_Free(text);
        return agx_unpickle_push(u, number, 0);
}
