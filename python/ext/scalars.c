/*
 * The writer goes over the value once, and once more if there are bytes in it that are worth a place of their own length. It
 * has no memo either: a str or bytes object that is there twice, and is to be one object again, is left to pickle.
 *
 * The reader is a stack machine for the dozen opcodes that such values need. It has no memo: what would be put there is
 * passed over, and an opcode that would take something from there is unknown to it, like all others; then, or at the
 * first oddity, it gives up and the caller asks the full reader, which finds the same or says what is wrong.
 */
#include "scalars.h"

#include "base/huge.h"
#include "large.h"

#include <string.h>

enum {
        LONGEST = 512, /* bytes of a pickle, but for those of bytes */
        STEPS = 512,   /* opcodes of one that is read */
        DEEPEST = 24,  /* values on the reader's stack, and str and bytes in what is written */
        STR_LENGTH = 255,
        SMALL_BYTES = 64, /* bytes that are written with the rest */
        NO_MARK = -1,
};

/* ---- writing ---- */

/* Writes into memory of its own. Bytes that do not fit there are only counted: then it is done again, into an object of the
 * length that is known by then. */
typedef struct writer {
        unsigned char *at, *end;
        size_t apart;     /* bytes of bytes that were only counted */
        PyObject *object; /* what is written into, the second time */
        PyObject *seen[DEEPEST];
        int n_seen;
        unsigned char bytes[LONGEST];
} writer;

static bool put(writer *w, const void *p, size_t n)
{
        if ((size_t)(w->end - w->at) < n)
                return false;
        memcpy(w->at, p, n);
        w->at += n;
        return true;
}

static bool put_op(writer *w, char op)
{
        return put(w, &op, 1);
}

static bool put_int(writer *w, PyObject *value)
{
        int overflow;
        long long n = PyLong_AsLongLongAndOverflow(value, &overflow);
        uint32_t bits = (uint32_t)n;
        unsigned char op[5] = {'J', (unsigned char)bits, (unsigned char)(bits >> 8), (unsigned char)(bits >> 16),
                               (unsigned char)(bits >> 24)};

        if (overflow || n < INT32_MIN || n > INT32_MAX)
                return false;
        if (n < 0 || n > 0xffff)
                return put(w, op, 5);
        op[0] = n > 0xff ? 'M' : 'K';
        return put(w, op, n > 0xff ? 3 : 2);
}

static bool put_float(writer *w, PyObject *value)
{
        double d = PyFloat_AsDouble(value);
        unsigned char op[9] = {'G'};
        uint64_t bits;

        memcpy(&bits, &d, sizeof(bits));
        for (int i = 0; i < 8; ++i)
                op[1 + i] = (unsigned char)(bits >> (56 - 8 * i));
        return put(w, op, sizeof(op));
}

/* Whether it comes for the first time. */
static bool is_new(writer *w, PyObject *value)
{
        for (int i = 0; i < w->n_seen; ++i)
                if (w->seen[i] == value)
                        return false;
        if (w->n_seen == DEEPEST)
                return false;
        w->seen[w->n_seen++] = value;
        return true;
}

static bool put_str(writer *w, PyObject *value)
{
        Py_ssize_t n;
        const char *text = PyUnicode_AsUTF8AndSize(value, &n);
        unsigned char op[2] = {0x8c, (unsigned char)n};

        /* Python has but one object of each str of a byte, as of b"" and "". */
        if (!text)
                PyErr_Clear(); /* a lone surrogate */
        return text && n <= STR_LENGTH && (n <= 1 || is_new(w, value)) && put(w, op, 2) && put(w, text, (size_t)n);
}

static size_t bytes_op(unsigned char op[9], size_t n)
{
        size_t width = n <= 0xff ? 1 : n <= 0xffffffff ? 4 : 8;

        op[0] = width == 1 ? 'C' : width == 4 ? 'B' : 0x8e;
        for (size_t i = 0; i < width; ++i)
                op[1 + i] = (unsigned char)((uint64_t)n >> (8 * i));
        return 1 + width;
}

static bool put_bytes(writer *w, PyObject *value)
{
        agx_view v = agx_view_of(PyBytes_AsString(value), (size_t)PyBytes_Size(value));
        unsigned char op[9];

        if ((v.n && !is_new(w, value)) || !put(w, op, bytes_op(op, v.n)))
                return false;
        if (!w->object && v.n > SMALL_BYTES) {
                w->apart += v.n;
                return true;
        }
        if ((size_t)(w->end - w->at) < v.n)
                return false;
        Py_INCREF(value); /* its owner may be another thread's meanwhile */
        agx_ext_copy(w->at, v);
        Py_DECREF(value);
        w->at += v.n;
        return true;
}

static bool put_plain(writer *w, PyObject *value)
{
        if (value == Py_None)
                return put_op(w, 'N');
        if (PyBool_Check(value))
                return put_op(w, value == Py_True ? '\x88' : '\x89');
        if (PyLong_CheckExact(value))
                return put_int(w, value);
        if (PyFloat_CheckExact(value))
                return put_float(w, value);
        if (PyBytes_CheckExact(value))
                return put_bytes(w, value);
        return PyUnicode_CheckExact(value) && put_str(w, value);
}

static bool put_tuple(writer *w, PyObject *tuple)
{
        static const char ops[] = {')', '\x85', '\x86', '\x87'};
        Py_ssize_t n = PyTuple_Size(tuple);

        if (n >= DEEPEST / 2 || (n > 3 && !put_op(w, '(')))
                return false;
        for (Py_ssize_t i = 0; i < n; ++i)
                if (!put_plain(w, PyTuple_GetItem(tuple, i)))
                        return false;
        return put_op(w, n > 3 ? 't' : ops[n]);
}

static bool put_dict(writer *w, PyObject *dict)
{
        Py_ssize_t at = 0, n = PyDict_Size(dict);
        PyObject *key, *value;

        if (n >= DEEPEST / 4 || !put_op(w, '}'))
                return false;
        if (n && !put_op(w, '('))
                return false;
        while (PyDict_Next(dict, &at, &key, &value))
                if (!put_plain(w, key) || !put_plain(w, value))
                        return false;
        return !n || put_op(w, 'u');
}

static bool put_call(writer *w, PyObject *args, PyObject *kwargs)
{
        return put_tuple(w, args) && put_dict(w, kwargs) && put_op(w, '\x86');
}

/* `kwargs` NULL: `value` alone. */
static bool put_all(writer *w, PyObject *value, PyObject *kwargs)
{
        bool ok = put(w, "\x80\x05", 2);

        if (kwargs)
                ok = ok && put_call(w, value, kwargs);
        else
                ok = ok && (PyTuple_CheckExact(value) ? put_tuple(w, value) : put_plain(w, value));
        return ok && put_op(w, '.');
}

/* The second time: nothing but memory may be different. */
static PyObject *write_apart(writer *w, PyObject *value, PyObject *kwargs)
{
        size_t n = (size_t)(w->at - w->bytes) + w->apart;
        bool ok;

        w->object = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
        if (!w->object)
                return NULL;
        w->at = (unsigned char *)PyBytes_AsString(w->object);
        w->end = w->at + n;
        w->n_seen = 0;
        agx_huge(w->at, n);
        ok = put_all(w, value, kwargs) && w->at == w->end;
        if (!ok)
                Py_CLEAR(w->object); /* somebody has changed it meanwhile */
        return w->object;
}

static PyObject *dump(PyObject *value, PyObject *kwargs)
{
        PyObject *bytes = NULL;
        writer w;

        w.at = w.bytes;
        w.end = w.bytes + sizeof(w.bytes);
        w.apart = 0;
        w.n_seen = 0;
        w.object = NULL;
        if (put_all(&w, value, kwargs))
                bytes = w.apart ? write_apart(&w, value, kwargs)
                                : PyBytes_FromStringAndSize((char *)w.bytes, w.at - w.bytes);
        if (!bytes)
                PyErr_Clear();
        return bytes;
}

PyObject *agx_scalars_dump(PyObject *value)
{
        return dump(value, NULL);
}

PyObject *agx_scalars_dump_call(PyObject *args, PyObject *kwargs)
{
        return dump(args, kwargs);
}

/* ---- reading ---- */

typedef struct reader {
        const unsigned char *at, *end;
        int n;    /* values on the stack */
        int mark; /* how many lay there at the mark, or NO_MARK */
        PyObject *stack[DEEPEST];
} reader;

static bool push(reader *r, PyObject *value)
{
        if (!value || r->n == DEEPEST) {
                Py_XDECREF(value);
                return false;
        }
        r->stack[r->n++] = value;
        return true;
}

static const unsigned char *take(reader *r, size_t n)
{
        const unsigned char *p = r->at;

        if ((size_t)(r->end - p) < n)
                return NULL;
        r->at += n;
        return p;
}

static bool read_int(reader *r, size_t n)
{
        const unsigned char *p = take(r, n);
        uint32_t bits = 0;

        for (size_t i = 0; p && i < n; ++i)
                bits |= (uint32_t)p[i] << (8 * i);
        return p && push(r, PyLong_FromLong(n == 4 ? (long)(int32_t)bits : (long)bits));
}

static bool read_float(reader *r)
{
        const unsigned char *p = take(r, 8);
        uint64_t bits = 0;
        double d;

        for (size_t i = 0; p && i < 8; ++i)
                bits = bits << 8 | p[i];
        memcpy(&d, &bits, sizeof(d));
        return p && push(r, PyFloat_FromDouble(d));
}

static bool read_str(reader *r)
{
        const unsigned char *size = take(r, 1), *p = size ? take(r, *size) : NULL;

        return p && push(r, PyUnicode_DecodeUTF8((const char *)p, *size, NULL));
}

static bool read_bytes(reader *r, size_t width)
{
        const unsigned char *size = take(r, width), *p;
        uint64_t n = 0;

        for (size_t i = width; size && i > 0; --i)
                n = n << 8 | size[i - 1];
        p = size && n <= SIZE_MAX ? take(r, (size_t)n) : NULL;
        return p && push(r, agx_ext_bytes(agx_view_of(p, (size_t)n)));
}

static bool make_tuple(reader *r, int n)
{
        PyObject *tuple = n <= r->n && (r->mark == NO_MARK || r->n - n >= r->mark) ? PyTuple_New(n) : NULL;

        if (!tuple)
                return false;
        r->n -= n;
        for (int i = 0; i < n; ++i)
                PyTuple_SetItem(tuple, i, r->stack[r->n + i]);
        return push(r, tuple);
}

static bool set_mark(reader *r)
{
        if (r->mark != NO_MARK)
                return false;
        r->mark = r->n;
        return true;
}

static bool make_marked_tuple(reader *r)
{
        int n = r->n - r->mark;

        if (r->mark == NO_MARK)
                return false;
        r->mark = NO_MARK;
        return make_tuple(r, n);
}

/* Keys are str: nothing that a key's hash or comparison could run. */
static bool set_items(reader *r, int from)
{
        PyObject *dict = from > 0 && from <= r->n ? r->stack[from - 1] : NULL;
        bool ok = dict && PyDict_CheckExact(dict) && (r->n - from) % 2 == 0;

        for (int i = from; ok && i < r->n; i += 2)
                ok = PyUnicode_CheckExact(r->stack[i]) && !PyDict_SetItem(dict, r->stack[i], r->stack[i + 1]);
        while (ok && r->n > from)
                Py_DECREF(r->stack[--r->n]);
        return ok;
}

static bool set_marked_items(reader *r)
{
        int from = r->mark;

        r->mark = NO_MARK;
        return from != NO_MARK && set_items(r, from);
}

static bool step(reader *r, unsigned char op)
{
        switch (op) {
        case 0x94: /* MEMOIZE */
                return r->n > (r->mark == NO_MARK ? 0 : r->mark);
        case 'N':
                return push(r, Py_NewRef(Py_None));
        case 0x88:
                return push(r, Py_NewRef(Py_True));
        case 0x89:
                return push(r, Py_NewRef(Py_False));
        case 'K':
                return read_int(r, 1);
        case 'M':
                return read_int(r, 2);
        case 'J':
                return read_int(r, 4);
        case 'G':
                return read_float(r);
        case 0x8c:
                return read_str(r);
        case 'C':
                return read_bytes(r, 1);
        case 'B':
                return read_bytes(r, 4);
        case 0x8e:
                return read_bytes(r, 8);
        case ')':
                return push(r, PyTuple_New(0));
        case 0x85:
        case 0x86:
        case 0x87:
                return make_tuple(r, op - 0x84);
        case '(':
                return set_mark(r);
        case 't':
                return make_marked_tuple(r);
        case '}':
                return push(r, PyDict_New());
        case 's':
                return r->mark == NO_MARK && r->n >= 3 && set_items(r, r->n - 2);
        case 'u':
                return set_marked_items(r);
        default:
                return false;
        }
}

/* A frame that holds all the rest, as picklers write one; what is framed otherwise is for the full reader. */
static bool skip_frame(reader *r)
{
        uint64_t n = 0;
        const unsigned char *p;

        if (r->at == r->end || *r->at != 0x95)
                return true;
        r->at++;
        p = take(r, 8);
        for (int i = 7; p && i >= 0; --i)
                n = n << 8 | p[i];
        return p && n == (uint64_t)(r->end - r->at) + 1;
}

PyObject *agx_scalars_load(agx_view pickle)
{
        reader r = {.at = (const unsigned char *)pickle.p, .mark = NO_MARK};
        PyObject *value = NULL;
        int steps = 0;
        bool ok = pickle.n >= 4 && r.at[0] == 0x80 && (r.at[1] == 4 || r.at[1] == 5) && pickle.p[pickle.n - 1] == '.';

        if (!ok)
                return NULL;
        r.end = r.at + pickle.n - 1; /* the last opcode is STOP; one that comes before it is unknown to step() */
        r.at += 2;
        ok = skip_frame(&r);
        while (ok && r.at < r.end)
                ok = ++steps <= STEPS && step(&r, *r.at++);
        if (ok && r.n == 1 && r.mark == NO_MARK)
                value = r.stack[--r.n];
        while (r.n)
                Py_DECREF(r.stack[--r.n]);
        if (!value)
                PyErr_Clear();
        return value;
}

/* ---- for Python ---- */

static PyObject *dumps_call(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
        PyObject *bytes;

        (void)module;
        if (n != 2 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
                PyErr_SetString(PyExc_TypeError, "dumps_plain(args: tuple, kwargs: dict)");
                return NULL;
        }
        bytes = agx_scalars_dump_call(args[0], args[1]);
        return bytes ? bytes : Py_NewRef(Py_None);
}

static PyObject *loads_plain(PyObject *module, PyObject *data)
{
        PyObject *value;
        Py_ssize_t n;
        char *p;

        (void)module;
        if (PyBytes_AsStringAndSize(data, &p, &n) < 0)
                return NULL;
        value = agx_scalars_load(agx_view_of(p, (size_t)n));
        return value ? value : Py_NewRef(Py_NotImplemented);
}

static PyMethodDef functions[] = {
        {"dumps_plain", (PyCFunction)(void (*)(void))dumps_call, METH_FASTCALL,
         "dumps_plain(args, kwargs, /)\n--\n\nThe pickle of (args, kwargs) if they are as plain as most; else None."},
        {"loads_plain", loads_plain, METH_O,
         "loads_plain(data, /)\n--\n\nThe value of a pickle of None, bool, int, float, str, bytes and tuples of them; "
         "else "
         "NotImplemented."},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_scalars(PyObject *module)
{
        return PyModule_AddFunctions(module, functions);
}
