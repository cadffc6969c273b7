/* Integers: those that fit a machine word, and longer ones in binary and in decimal form. */
#include <limits.h>
#include <string.h>

#include "unpickle_ops.h"

enum {
        SIZE_NUMBER = 32, /* roughly, in bytes, for the memory account */
        SIZE_BIG = 64,
        RUN = 16,           /* integers */
        FIRST_SCRATCH = 16, /* bytes */
        MIDDLING = FIRST_SCRATCH << (AGX_SCRATCHES - 1),
};

/* The first is quicker, and takes as much wherever a long has 64 bits. */
#if LONG_MAX >= INT64_MAX
#define FROM_INT64 PyLong_FromLong
#else
#define FROM_INT64 PyLong_FromLongLong
#endif

static int push_int(agx_unpickler *u)
{
        const bool kept = u->op.i >= -5 && u->op.i <= 256; /* the interpreter has these already */
        if (!kept && agx_unpickle_charge(u, SIZE_NUMBER) < 0)
                return -1;
        return agx_unpickle_push(u, FROM_INT64(u->op.i), 0);
}

static agx_fast_function fast_of(PyObject *callable)
{
        const int kinds = METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL;
        if (!PyCFunction_Check(callable) || (PyCFunction_GetFlags(callable) & kinds) != (METH_FASTCALL | METH_KEYWORDS))
                return NULL;
        return (agx_fast_function)(void (*)(void))PyCFunction_GetFunction(callable);
}

static int find_from_bytes(agx_big_ints *b)
{
        b->little = PyUnicode_InternFromString("little");
        b->from_bytes = b->little ? PyObject_GetAttrString((PyObject *)&PyLong_Type, "from_bytes") : NULL;
        if (!b->from_bytes)
                return -1;
        b->fast = fast_of(b->from_bytes);
        b->self = b->fast ? PyCFunction_GetSelf(b->from_bytes) : NULL;
        return 0;
}

void agx_unpickle_big_deinit(agx_big_ints *b)
{
        if (!b->little)
                return;
        Py_DECREF(b->little);
        Py_XDECREF(b->from_bytes);
        for (size_t i = 0; i < AGX_SCRATCHES; i++)
                Py_XDECREF(b->scratch[i].object);
}

static int make_scratch(agx_big_ints *b, size_t i)
{
        b->scratch[i].object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)FIRST_SCRATCH << i);
        b->scratch[i].bytes = b->scratch[i].object ? PyBytes_AsString(b->scratch[i].object) : NULL;
        return b->scratch[i].bytes ? 0 : -1;
}

/* Nine bytes or more, and zeros up to @size, which is at least as much. */
static void copy_widened(char *to, agx_view view, size_t size)
{
        if (size == FIRST_SCRATCH) { /* nearly all of them: words that may overlap */
                memset(to + 8, 0, 8);
                memcpy(to, view.p, 8);
                memcpy(to + view.n - 8, view.p + view.n - 8, 8);
        } else {
                memcpy(to, view.p, view.n);
                memset(to + view.n, 0, size - view.n);
        }
}

/* From bytes of ours that are long enough, with the number in them: of a negative one the complement, which is not. */
static PyObject *middling_from_bytes(agx_big_ints *b, agx_view view)
{
        const bool negative = view.p[view.n - 1] & 0x80;
        size_t i = 0, size = FIRST_SCRATCH;
        for (; size < view.n; size *= 2)
                i++;
        if (!b->scratch[i].object && make_scratch(b, i) < 0)
                return NULL;
        copy_widened(b->scratch[i].bytes, view, size);
        for (size_t k = 0; negative && k < view.n; k++)
                b->scratch[i].bytes[k] = (char)~b->scratch[i].bytes[k];
        PyObject *args[2] = {b->scratch[i].object, b->little};
        PyObject *number = b->fast(b->self, args, 2, NULL);
        if (!number || !negative)
                return number;
        PyObject *inverted = PyNumber_Invert(number);
        Py_DECREF(number);
        return inverted;
}

/* int.from_bytes(data, "little", signed=True): linear in the length. */
static PyObject *big_from_bytes(agx_big_ints *b, agx_view view)
{
        if (!b->from_bytes && find_from_bytes(b) < 0)
                return NULL;
        if (b->fast && view.n <= MIDDLING)
                return middling_from_bytes(b, view);
        PyObject *args = Py_BuildValue("(y#O)", view.p, (Py_ssize_t)view.n, b->little);
        PyObject *kwargs = Py_BuildValue("{s:O}", "signed", Py_True);
        PyObject *number = args && kwargs ? PyObject_Call(b->from_bytes, args, kwargs) : NULL;
        Py_XDECREF(args);
        Py_XDECREF(kwargs);
        return number;
}

static int push_big(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, SIZE_BIG) < 0 || agx_unpickle_step(u) < 0)
                return -1;
        return agx_unpickle_push(u, big_from_bytes(&u->big, u->op.view[0]), 0);
}

/* This one and some of those that follow at once; the machine has other duties in between. */
int agx_unpickle_on_int(agx_unpickler *u)
{
        unsigned left = RUN;
        do {
                if ((u->op.kind == AGX_PICKLE_INT ? push_int(u) : push_big(u)) < 0)
                        return -1;
        } while (--left && agx_pickle_next_int(&u->reader, &u->op));
        return 0;
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
