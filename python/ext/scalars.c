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
        DEEPEST = AGX_SCALARS_DEEPEST,
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
        bool may_split;
        PyObject *split; /* large bytes that are left out, borrowed, */
        size_t at_split; /* and where */
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
        if (w->may_split && !w->split && v.n >= AGX_SCALARS_APART) {
                w->split = value;
                w->at_split = (size_t)(w->at - w->bytes);
                return true;
        }
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

static void begin_writing(writer *w)
{
        w->at = w->bytes;
        w->end = w->bytes + sizeof(w->bytes);
        w->apart = 0;
        w->n_seen = 0;
        w->object = NULL;
        w->may_split = false;
        w->split = NULL;
}

static PyObject *dump(PyObject *value, PyObject *kwargs)
{
        PyObject *bytes = NULL;
        writer w;

        begin_writing(&w);
        if (put_all(&w, value, kwargs))
                bytes = w.apart ? write_apart(&w, value, kwargs)
                                : PyBytes_FromStringAndSize((char *)w.bytes, w.at - w.bytes);
        if (!bytes)
                PyErr_Clear();
        return bytes;
}

bool agx_scalars_dump_apart(PyObject *value, agx_scalars_apart *apart)
{
        unsigned char op[9];
        size_t n;

        if (!PyBytes_CheckExact(value) || PyBytes_Size(value) < AGX_SCALARS_APART)
                return false;
        apart->bytes = agx_view_of(PyBytes_AsString(value), (size_t)PyBytes_Size(value));
        n = bytes_op(op, apart->bytes.n);
        memcpy(apart->before, "\x80\x05", 2);
        memcpy(apart->before + 2, op, n);
        apart->n_before = 2 + n;
        apart->after = AGX_VIEW(".");
        return true;
}

PyObject *agx_scalars_dump(PyObject *value)
{
        return dump(value, NULL);
}

PyObject *agx_scalars_dump_call(PyObject *args, PyObject *kwargs)
{
        return dump(args, kwargs);
}

/* In three parts, or NULL, perhaps with an exception. */
static PyObject *split_call(PyObject *args, PyObject *kwargs)
{
        PyObject *parts;
        writer w;

        begin_writing(&w);
        w.may_split = true;
        if (!put_all(&w, args, kwargs) || !w.split || w.apart)
                return NULL;
        Py_INCREF(w.split); /* as above */
        parts = Py_BuildValue("(y#Oy#)", w.bytes, (Py_ssize_t)w.at_split, w.split, w.bytes + w.at_split,
                              (Py_ssize_t)(w.at - w.bytes) - (Py_ssize_t)w.at_split);
        Py_DECREF(w.split);
        return parts;
}

PyObject *agx_scalars_dump_call_parts(PyObject *args, PyObject *kwargs)
{
        PyObject *parts = split_call(args, kwargs);

        if (parts)
                return parts;
        PyErr_Clear();
        return dump(args, kwargs);
}

/* ---- reading ---- */

typedef agx_scalars_reader reader;

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

static bool next_step(reader *r)
{
        return ++r->steps <= STEPS && step(r, *r->at++);
}

static bool has_begun_well(agx_view pickle)
{
        const unsigned char *p = (const unsigned char *)pickle.p;

        return pickle.n >= 4 && p[0] == 0x80 && (p[1] == 4 || p[1] == 5);
}

void agx_scalars_drop(reader *r)
{
        while (r->n)
                Py_DECREF(r->stack[--r->n]);
}

/* The value, if all is read and all was well. */
static PyObject *take_value(reader *r, bool ok)
{
        PyObject *value = ok && r->n == 1 && r->mark == NO_MARK ? r->stack[--r->n] : NULL;

        agx_scalars_drop(r);
        if (!value)
                PyErr_Clear();
        return value;
}

PyObject *agx_scalars_load(agx_view pickle)
{
        reader r = {.at = (const unsigned char *)pickle.p, .mark = NO_MARK};
        bool ok = has_begun_well(pickle) && pickle.p[pickle.n - 1] == '.';

        if (!ok)
                return NULL;
        r.end = r.at + pickle.n - 1; /* the last opcode is STOP; one that comes before it is unknown to step() */
        r.at += 2;
        ok = skip_frame(&r);
        while (ok && r.at < r.end)
                ok = next_step(&r);
        return take_value(&r, ok);
}

/* ---- reading while it comes ---- */

/* The length of the bytes that the next opcode is the head of, and how long that is; 0: it is another one. */
static size_t head_of_bytes(const reader *r, uint64_t *n)
{
        size_t width = *r->at == 'B' ? 4 : *r->at == 0x8e ? 8 : 0;

        *n = 0;
        if (!width || (size_t)(r->end - r->at) < 1 + width)
                return 0;
        for (size_t i = width; i > 0; --i)
                *n = *n << 8 | r->at[i];
        return 1 + width;
}

bool agx_scalars_begin(reader *r, agx_view begun, size_t total, size_t *from, size_t *n)
{
        const unsigned char *start = (const unsigned char *)begun.p;
        bool ok = has_begun_well(begun);

        *r = (reader){.at = start + 2, .end = start + begun.n, .mark = NO_MARK};
        while (ok && r->at < r->end) {
                uint64_t size;
                size_t head = head_of_bytes(r, &size);

                if (head && size > (size_t)(r->end - r->at) - head) { /* they are not all there: this is the place */
                        *from = (size_t)(r->at - start) + head;
                        *n = (size_t)size;
                        if (*from < total && size < total - *from)
                                return true;
                        break;
                }
                ok = next_step(r);
        }
        take_value(r, false);
        return false;
}

PyObject *agx_scalars_finish(reader *r, PyObject *bytes, agx_view rest)
{
        bool ok = rest.n && rest.p[rest.n - 1] == '.' && push(r, Py_NewRef(bytes));

        r->at = (const unsigned char *)rest.p;
        r->end = r->at + rest.n - 1;
        while (ok && r->at < r->end)
                ok = next_step(r);
        return take_value(r, ok);
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

static PyObject *dumps_parts(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
        PyObject *parts;

        (void)module;
        if (n != 2 || !PyTuple_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
                PyErr_SetString(PyExc_TypeError, "dumps_parts(args: tuple, kwargs: dict)");
                return NULL;
        }
        parts = agx_scalars_dump_call_parts(args[0], args[1]);
        return parts ? parts : Py_NewRef(Py_None);
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
        {"dumps_parts", (PyCFunction)(void (*)(void))dumps_parts, METH_FASTCALL,
         "dumps_parts(args, kwargs, /)\n--\n\nThe same, or three parts of it if there are large bytes in it: the "
         "second."},
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
