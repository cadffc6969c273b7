/*
 * The restricted loader under streams that know its opcodes, a few million a minute.
 *
 * A stream is either grown, opcode by opcode, with a rough idea of what lies on the stack, so that most get far; or it is
 * an honest pickle, cut at the opcodes and put together again with some left out, doubled, exchanged or changed. Each
 * must give a value or a RestrictedUnpickleError. What the quick reader of plain values takes, the loader must take too,
 * as the same value. run.py builds this file together with the loader, as an extension of the interpreter it runs in.
 */
#include <string.h>

#include "ext/scalars.h"
#include "ext/unpickle.h"

enum { STREAM_MAX = 4096, OPS_MAX = 48, CUTS_MAX = 512, INDEX_MAX = 8 };

typedef struct stream {
        unsigned char bytes[STREAM_MAX];
        size_t n;
        uint64_t random;
        int depth, marks[8], n_marks;
} stream;

typedef struct counts {
        unsigned long long made, values, quick;
} counts;

static uint64_t next_random(stream *s)
{
        s->random ^= s->random << 13;
        s->random ^= s->random >> 7;
        s->random ^= s->random << 17;
        return s->random;
}

static unsigned below(stream *s, unsigned n)
{
        return (unsigned)((next_random(s) >> 32) * n >> 32);
}

static void put(stream *s, const void *data, size_t n)
{
        if (STREAM_MAX - s->n < n)
                return;
        memcpy(s->bytes + s->n, data, n);
        s->n += n;
}

static void op(stream *s, int code)
{
        unsigned char c = (unsigned char)code;
        put(s, &c, 1);
}

static void text(stream *s, const char *value)
{
        op(s, 0x8c);
        op(s, (int)strlen(value));
        put(s, value, strlen(value));
}

/* --- growing --- */

static const char *const NAMES[][2] = {
        {"builtins", "set"},
        {"builtins", "frozenset"},
        {"builtins", "bytearray"},
        {"builtins", "bytes"},
        {"builtins", "complex"},
        {"builtins", "range"},
        {"builtins", "slice"},
        {"builtins", "list"},
        {"builtins", "dict"},
        {"builtins", "int"},
        {"builtins", "object"},
        {"builtins", "Ellipsis"},
        {"builtins", "ValueError"},
        {"builtins", "OSError"},
        {"builtins", "SyntaxError"},
        {"builtins", "UnicodeDecodeError"},
        {"builtins", "ImportError"},
        {"builtins", "StopIteration"},
        {"builtins", "ExceptionGroup"},
        {"builtins", "BaseExceptionGroup"},
        {"_codecs", "encode"},
        {"copyreg", "_reconstructor"},
        {"collections", "OrderedDict"},
        {"collections", "Counter"},
        {"collections", "deque"},
        {"collections", "defaultdict"},
        {"datetime", "date"},
        {"datetime", "time"},
        {"datetime", "datetime"},
        {"datetime", "timedelta"},
        {"datetime", "timezone"},
        {"decimal", "Decimal"},
        {"fractions", "Fraction"},
        {"uuid", "UUID"},
        {"pathlib", "PosixPath"},
        {"types", "SimpleNamespace"},
        {"numpy", "ndarray"},
        {"numpy", "dtype"},
        {"numpy._core.multiarray", "_reconstruct"},
        {"numpy._core.multiarray", "scalar"},
        {"numpy._core.numeric", "_frombuffer"},
        {"fuzzed", "Admitted"},
        {"fuzzed", "AdmittedList"},
        {"fuzzed", "AdmittedDict"},
        {"fuzzed", "Point"},
        {"fuzzed", "Frozen"},
        {"fuzzed", "Pair"},
        {"fuzzed", "Colour"},
        {"fuzzed", "Post"},
        {"os", "system"},
        {"builtins", "eval"},
        {"builtins", "getattr"},
        {"agentix", "RuntimeClient"},
};

enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

static const char *const TEXTS[] = {"",          "a",        "x",   "y",    "latin1", "C",      "F",  "f8",  "i4",
                                    "O8",        "M8",       "U3",  "1/3",  "1.5E9",  "|",      "<",  "int", "is_safe",
                                    "__class__", "__dict__", "NaN", "name", "args",   "fuzzed", "S1", "b",   "RED"};

static void grow_name(stream *s)
{
        unsigned i = below(s, N_NAMES);
        if (below(s, 4)) {
                text(s, NAMES[i][0]);
                text(s, NAMES[i][1]);
                op(s, 0x93);
        } else {
                op(s, 'c');
                put(s, NAMES[i][0], strlen(NAMES[i][0]));
                op(s, '\n');
                put(s, NAMES[i][1], strlen(NAMES[i][1]));
                op(s, '\n');
        }
        s->depth++;
}

static void grow_plain(stream *s)
{
        static const char SIMPLE[] = "N\x88\x89]})\x8f";
        static const unsigned char DATA[] = {0x07, 0xe4, 0x02, 0x1c, 0x0c, 0x1e, 0x0f, 0, 0, 7, 0x80, 0xff};
        unsigned char number[4] = {(unsigned char)below(s, 256), (unsigned char)below(s, 256), 0, 0};
        unsigned n;
        switch (below(s, 10)) {
        case 0:
                op(s, 'M');
                put(s, number, 2);
                break;
        case 1:
                op(s, 'K');
                op(s, (int)below(s, 4));
                break;
        case 2:
        case 3:
                text(s, TEXTS[below(s, sizeof TEXTS / sizeof *TEXTS)]);
                break;
        case 4:
                n = below(s, sizeof DATA + 1);
                op(s, 'C');
                op(s, (int)n);
                put(s, DATA, n);
                break;
        case 5:
                op(s, 'J');
                number[3] = (unsigned char)below(s, 256);
                put(s, number, 4);
                break;
        case 6:
                n = below(s, 12);
                op(s, 0x8a);
                op(s, (int)n);
                for (unsigned i = 0; i < n; i++)
                        op(s, (int)below(s, 256));
                break;
        case 7:
                op(s, 'G');
                for (unsigned i = 0; i < 8; i++)
                        op(s, (int)below(s, 256));
                break;
        default:
                op(s, SIMPLE[below(s, sizeof SIMPLE - 1)]);
        }
        s->depth++;
}

/* How many values lie above the last mark. */
static int above(const stream *s)
{
        return s->depth - (s->n_marks ? s->marks[s->n_marks - 1] : 0);
}

static void grow_marked(stream *s)
{
        static const char FILL[] = "eu\x90", MAKE[] = "tld\x91t1";
        int from = s->marks[--s->n_marks];
        bool fill = below(s, 2);
        op(s, fill ? FILL[below(s, 3)] : MAKE[below(s, 6)]);
        s->depth = from + !fill;
}

static void grow_build(stream *s)
{
        static const char TWO[] = "aRRR\x81\x81"
                                  "bb\x86",
                          THREE[] = "s\x87\x92";
        if (above(s) >= 3 && below(s, 5) == 0) {
                unsigned i = below(s, 3);
                op(s, THREE[i]);
                s->depth -= 2;
        } else {
                op(s, TWO[below(s, sizeof TWO - 1)]);
                s->depth--;
        }
}

static void grow_other(stream *s)
{
        switch (below(s, 8)) {
        case 0:
                op(s, '0');
                s->depth--;
                return;
        case 1:
                op(s, '2');
                s->depth++;
                return;
        case 2:
        case 3:
                op(s, 0x94);
                return;
        case 4:
                op(s, 'q');
                op(s, (int)below(s, INDEX_MAX));
                return;
        case 5:
                op(s, 'h');
                op(s, (int)below(s, INDEX_MAX));
                s->depth++;
                return;
        default:
                op(s, 0x85);
        }
}

static void grow(stream *s)
{
        unsigned ops = 4 + below(s, OPS_MAX - 4);
        s->depth = s->n_marks = 0;
        put(s, "\x80\x04", 2);
        for (unsigned i = 0; i < ops; i++) {
                unsigned choice = below(s, 16);
                if (below(s, 200) == 0)
                        op(s, (int)below(s, 256));
                else if (choice < 5 || above(s) == 0)
                        below(s, 3) ? grow_plain(s) : grow_name(s);
                else if (choice < 7)
                        grow_name(s);
                else if (choice < 11 && above(s) >= 2)
                        grow_build(s);
                else if (choice == 11 && s->n_marks < 8) {
                        op(s, '(');
                        s->marks[s->n_marks++] = s->depth;
                } else if (choice < 14 && s->n_marks)
                        grow_marked(s);
                else
                        grow_other(s);
        }
        while (s->n_marks)
                grow_marked(s);
        for (; s->depth > 1; s->depth--)
                op(s, below(s, 2) ? 0x86 : '0');
        op(s, '.');
}

/* --- changing an honest one --- */

typedef struct seed {
        const unsigned char *p;
        size_t n, cuts[CUTS_MAX], n_cuts; /* where each opcode begins, and the end */
} seed;

static void cut(seed *s)
{
        const agx_pickle_limits limits = {.int_bytes = STREAM_MAX, .int_digits = STREAM_MAX};
        agx_pickle reader;
        agx_pickle_op o;
        agx_pickle_init(&reader, s->p, s->n, limits);
        while (s->n_cuts + 1 < CUTS_MAX && agx_pickle_next(&reader, &o) == 0)
                s->cuts[s->n_cuts++] = o.pos;
        s->cuts[s->n_cuts] = s->n;
}

static void piece(stream *s, const seed *from, size_t i)
{
        put(s, from->p + from->cuts[i], from->cuts[i + 1] - from->cuts[i]);
}

static void change(stream *s, const seed *from, const seed *other)
{
        for (size_t i = 0; i < from->n_cuts; i++) {
                size_t before = s->n;
                switch (below(s, 40)) {
                case 0:
                        continue;
                case 1:
                        piece(s, from, i);
                        break;
                case 2:
                        piece(s, other, below(s, (unsigned)other->n_cuts));
                        continue;
                case 3:
                        piece(s, from, below(s, (unsigned)from->n_cuts));
                        continue;
                default:
                        break;
                }
                piece(s, from, i);
                if (below(s, 60) == 0 && s->n > before)
                        s->bytes[before + below(s, (unsigned)(s->n - before))] = (unsigned char)below(s, 256);
        }
}

/* --- running --- */

static int differs(PyObject *quick, PyObject *value)
{
        PyObject *a = PyObject_Repr(quick), *b = value ? PyObject_Repr(value) : NULL;
        int same = a && b ? PyObject_RichCompareBool(a, b, Py_EQ) : 0;
        Py_XDECREF(a);
        Py_XDECREF(b);
        return same != 1;
}

/* 0 if the loader did with a stream what it may. */
static int check(const stream *s, PyObject *extra, PyObject *declared, PyObject *refusal, counts *c)
{
        PyObject *quick = agx_scalars_load(agx_view_of(s->bytes, s->n));
        PyObject *value = agx_unpickle_load(s->bytes, s->n, extra, declared);
        int bad = value ? PyErr_Occurred() != NULL : !PyErr_ExceptionMatches(refusal);
        c->made++;
        c->values += value != NULL;
        c->quick += quick != NULL;
        if (quick && (!value || differs(quick, value)))
                bad = 1;
        if (!bad)
                PyErr_Clear();
        Py_XDECREF(quick);
        Py_XDECREF(value);
        return bad;
}

static PyObject *found(const stream *s)
{
        PyObject *type, *value, *traceback, *bytes = NULL;
        PyErr_Fetch(&type, &value, &traceback);
        bytes = PyBytes_FromStringAndSize((const char *)s->bytes, (Py_ssize_t)s->n);
        if (bytes)
                PyErr_Format(PyExc_AssertionError, "seed stream %R gave %R", bytes,
                             value  ? value
                             : type ? type
                                    : Py_None);
        Py_XDECREF(bytes);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
        return NULL;
}

static PyObject *run(PyObject *module, PyObject *args)
{
        unsigned long long executions, random;
        PyObject *seeds, *extra, *declared, *refusal;
        static seed cuts[256];
        (void)module;
        if (!PyArg_ParseTuple(args, "KKOOOO", &executions, &random, &seeds, &extra, &declared, &refusal))
                return NULL;
        Py_ssize_t n = PyList_Size(seeds);
        for (Py_ssize_t i = 0; i < n && i < 256; i++) {
                PyObject *each = PyList_GetItem(seeds, i);
                cuts[i] = (seed){.p = (unsigned char *)PyBytes_AsString(each), .n = (size_t)PyBytes_Size(each)};
                cut(&cuts[i]);
        }
        counts c = {0};
        for (unsigned long long i = 0; i < executions; i++) {
                stream s;
                s.n = 0;
                s.random = (random + i) * 0x9e3779b97f4a7c15u | 1;
                next_random(&s);
                if (n == 0 || below(&s, 3))
                        grow(&s);
                else
                        change(&s, &cuts[below(&s, (unsigned)n)], &cuts[below(&s, (unsigned)n)]);
                if (check(&s, extra, declared, refusal, &c))
                        return found(&s);
                if (i % 4096 == 0 && PyErr_CheckSignals() < 0)
                        return NULL;
        }
        return Py_BuildValue("(KKK)", c.made, c.values, c.quick);
}

static PyMethodDef METHODS[] = {
        {"run", run, METH_VARARGS, NULL},
        {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, .m_name = "machine", .m_size = -1, .m_methods = METHODS};

PyMODINIT_FUNC PyInit_machine(void);
PyMODINIT_FUNC PyInit_machine(void)
{
        return PyModule_Create(&MODULE);
}
