/*
 * agentix._core.restricted_loads(): decodes a pickle that nobody trusts.
 *
 * The reader gives one opcode at a time; a table maps its kind to a function here, which moves objects between stack,
 * memo and containers. None of them recurses, whatever the nesting of the data. The machine neither uses nor imports
 * the pickle module.
 */
#include <string.h>

#include "unpickle.h"

/* Rough sizes of containers, in bytes, for the memory account. */
enum {
        SIZE_LIST = 72,
        SIZE_DICT = 64,
        SIZE_SET = 232,
        SIZE_TUPLE = 56,
        SIZE_BYTEARRAY = 72,
        SIZE_NUMBER = 32,
        SIZE_TEXT = 64,
        LIST_FIRST = 32, /* the first items of a list */
        LIST_ITEM = 9,
        SET_FIRST = 4, /* so many lie in the set itself */
        SET_ITEM = 100,
        MIDDLING = 256,       /* bytes of an integer */
        COPY_ALONE = 1 << 20, /* bytes that are copied without the interpreter */
};

typedef int (*handler)(agx_unpickler *u);

/* --- plain values --- */

static int on_proto(agx_unpickler *u)
{
        (void)u;
        return 0;
}

static int on_none(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_None), 0);
}

static int on_true(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_True), 0);
}

static int on_false(agx_unpickler *u)
{
        return agx_unpickle_push(u, Py_NewRef(Py_False), 0);
}

static int on_int(agx_unpickler *u)
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

static int on_big_binary(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0 || agx_unpickle_step(u) < 0)
                return -1;
        return agx_unpickle_push(u, big_from_bytes(u->op.view[0]), 0);
}

/* A terminated copy of a short text. */
static char *terminated(agx_view view)
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

static int on_big_text(agx_unpickler *u)
{
        char *text = agx_unpickle_step(u) < 0 ? NULL : terminated(u->op.view[0]);
        PyObject *number = text ? PyLong_FromString(text, NULL, 10) : NULL;
        PyMem_Free(text);
        return agx_unpickle_push(u, number, 0);
}

static int on_float(agx_unpickler *u)
{
        if (agx_unpickle_charge(u, SIZE_NUMBER) < 0)
                return -1;
        return agx_unpickle_push(u, PyFloat_FromDouble(u->op.f), 0);
}

static int on_float_text(agx_unpickler *u)
{
        char *text = agx_unpickle_charge(u, SIZE_NUMBER) < 0 ? NULL : terminated(u->op.view[0]);
        double value = text ? PyOS_string_to_double(text, NULL, NULL) : -1.0;
        PyMem_Free(text);
        if (value == -1.0 && PyErr_Occurred())
                return -1;
        return agx_unpickle_push(u, PyFloat_FromDouble(value), 0);
}

/* Large data are copied while other threads run. */
static PyObject *large_bytes(const agx_view *v)
{
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)v->n);
        if (!bytes)
                return NULL;
        char *to = PyBytes_AsString(bytes);
        Py_BEGIN_ALLOW_THREADS;
        memcpy(to, v->p, v->n);
        Py_END_ALLOW_THREADS;
        return bytes;
}

static int on_bytes(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        PyObject *bytes = v->n >= COPY_ALONE ? large_bytes(v) : PyBytes_FromStringAndSize(v->p, (Py_ssize_t)v->n);
        return agx_unpickle_push(u, bytes, 0);
}

static int on_bytearray(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_BYTEARRAY) < 0)
                return -1;
        return agx_unpickle_push(u, PyByteArray_FromStringAndSize(v->p, (Py_ssize_t)v->n), 0);
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

static int on_text(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (v->n > 1 && agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        PyObject *text = PyUnicode_DecodeUTF8(v->p, (Py_ssize_t)v->n, NULL);
        return push_text(u, text ? text : odd_text(v));
}

/* Escapes can spell surrogates, too. */
static int on_text_raw(agx_unpickler *u)
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

static int on_old_text(agx_unpickler *u)
{
        const agx_view *v = &u->op.view[0];
        if (agx_unpickle_charge(u, SIZE_TEXT) < 0)
                return -1;
        return push_text(u, PyUnicode_DecodeASCII(v->p, (Py_ssize_t)v->n, NULL));
}

static int on_old_quoted(agx_unpickler *u)
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

/* --- stack and memo --- */

static int on_mark(agx_unpickler *u)
{
        return agx_unpickle_mark(u);
}

/* POP also removes a mark that lies on top. */
static int on_pop(agx_unpickler *u)
{
        size_t from = 0;
        if (u->n_marks && u->n == u->fence)
                return agx_unpickle_unmark(u, &from);
        if (agx_unpickle_need(u, 1) < 0)
                return -1;
        agx_unpickle_cut(u, u->n - 1);
        return 0;
}

static int on_pop_mark(agx_unpickler *u)
{
        size_t from = 0;
        if (agx_unpickle_unmark(u, &from) < 0)
                return -1;
        agx_unpickle_cut(u, from);
        return 0;
}

static int on_dup(agx_unpickler *u)
{
        if (agx_unpickle_need(u, 1) < 0)
                return -1;
        return agx_unpickle_push(u, Py_NewRef(u->stack[u->n - 1]), u->nest[u->n - 1]);
}

static int on_put(agx_unpickler *u)
{
        return agx_unpickle_put(u, u->op.u);
}

static int on_memoize(agx_unpickler *u)
{
        return agx_unpickle_put(u, u->memo_used);
}

static int on_get(agx_unpickler *u)
{
        return agx_unpickle_get(u, u->op.u);
}

/* --- containers --- */

static int on_empty_list(agx_unpickler *u)
{
        return agx_unpickle_charge(u, SIZE_LIST) < 0 ? -1 : agx_unpickle_push(u, PyList_New(0), 0);
}

static int on_empty_tuple(agx_unpickler *u)
{
        return agx_unpickle_push(u, PyTuple_New(0), 0);
}

static int on_empty_dict(agx_unpickler *u)
{
        return agx_unpickle_charge(u, SIZE_DICT) < 0 ? -1 : agx_unpickle_push(u, PyDict_New(), 0);
}

static int on_empty_set(agx_unpickler *u)
{
        return agx_unpickle_charge(u, SIZE_SET) < 0 ? -1 : agx_unpickle_push(u, PySet_New(NULL), 0);
}

/* A tuple of everything from stack[from] on takes its place. */
static int make_tuple(agx_unpickler *u, size_t from)
{
        size_t n = u->n - from, nest = 0;
        if (agx_unpickle_values(u, from) < 0 || agx_unpickle_charge(u, SIZE_TUPLE + 8 * (uint64_t)n) < 0)
                return -1;
        PyObject *tuple = PyTuple_New((Py_ssize_t)n);
        if (!tuple)
                return -1;
        for (size_t i = 0; i < n; i++) {
                if (nest < u->nest[from + i])
                        nest = u->nest[from + i];
                PyTuple_SetItem(tuple, (Py_ssize_t)i, u->stack[from + i]); /* steals */
        }
        u->n = from;
        if (u->deepest < nest + 1)
                u->deepest = nest + 1;
        return agx_unpickle_push(u, tuple, nest + 1);
}

static int on_tuple(agx_unpickler *u)
{
        size_t from = 0;
        return agx_unpickle_unmark(u, &from) < 0 ? -1 : make_tuple(u, from);
}

static int on_tuple1(agx_unpickler *u)
{
        return agx_unpickle_need(u, 1) < 0 ? -1 : make_tuple(u, u->n - 1);
}

static int on_tuple2(agx_unpickler *u)
{
        return agx_unpickle_need(u, 2) < 0 ? -1 : make_tuple(u, u->n - 2);
}

static int on_tuple3(agx_unpickler *u)
{
        return agx_unpickle_need(u, 3) < 0 ? -1 : make_tuple(u, u->n - 3);
}

static int extend_list(agx_unpickler *u, PyObject *list, size_t from)
{
        const uint64_t first = PyList_Size(list) ? 0 : LIST_FIRST;
        if (agx_unpickle_charge(u, first + LIST_ITEM * (uint64_t)(u->n - from)) < 0)
                return -1;
        for (size_t i = from; i < u->n; i++)
                if (PyList_Append(list, u->stack[i]) < 0)
                        return -1;
        return 0;
}

/* What can be done to the object at @from - 1 with what lies above it, by exact type or by its row of the table. */
typedef enum filling { FILL_APPEND, FILL_SETITEM, FILL_ADD } filling;

static int fill_special(agx_unpickler *u, PyObject *object, size_t from, filling how)
{
        agx_named *named = agx_unpickle_find(u, Py_TYPE(object));
        agx_fill_fn fill = NULL;
        if (named && how != FILL_ADD)
                fill = how == FILL_APPEND ? named->row->append : named->row->setitem;
        u->subject = named;
        if (!fill)
                return agx_unpickle_fail_subject(u, "items for an object that takes none of this kind");
        return fill(u, object, from);
}

static int add_items(agx_unpickler *u, PyObject *set, size_t from)
{
        const uint64_t n = u->n - from;
        if (n + (uint64_t)PySet_Size(set) > SET_FIRST && agx_unpickle_charge(u, SET_ITEM * n) < 0)
                return -1;
        for (size_t i = from; i < u->n; i++)
                if (agx_unpickle_add(u, set, u->stack[i]) < 0)
                        return -1;
        return 0;
}

static int fill(agx_unpickler *u, size_t from, filling how)
{
        PyObject *object = u->stack[from - 1];
        int r;
        if (agx_unpickle_values(u, from) < 0)
                return -1;
        if (how == FILL_SETITEM && (u->n - from) % 2 != 0)
                return agx_unpickle_fail_malformed(u, "a key without a value");
        if (how == FILL_APPEND && PyList_CheckExact(object))
                r = extend_list(u, object, from);
        else if (how == FILL_SETITEM && PyDict_CheckExact(object))
                r = agx_unpickle_set_pairs(u, object, from);
        else if (how == FILL_ADD && Py_IS_TYPE(object, &PySet_Type))
                r = add_items(u, object, from);
        else
                r = fill_special(u, object, from, how);
        agx_unpickle_cut(u, from);
        return r;
}

/* The object to be filled lies right below the mark. */
static int fill_marked(agx_unpickler *u, filling how)
{
        size_t from = 0;
        if (agx_unpickle_unmark(u, &from) < 0)
                return -1;
        if (from <= u->fence)
                return agx_unpickle_fail_malformed(u, "a mark where a container was expected");
        return fill(u, from, how);
}

static int on_append(agx_unpickler *u)
{
        return agx_unpickle_need(u, 2) < 0 ? -1 : fill(u, u->n - 1, FILL_APPEND);
}

static int on_appends(agx_unpickler *u)
{
        return fill_marked(u, FILL_APPEND);
}

static int on_setitem(agx_unpickler *u)
{
        return agx_unpickle_need(u, 3) < 0 ? -1 : fill(u, u->n - 2, FILL_SETITEM);
}

static int on_setitems(agx_unpickler *u)
{
        return fill_marked(u, FILL_SETITEM);
}

static int on_additems(agx_unpickler *u)
{
        return fill_marked(u, FILL_ADD);
}

typedef PyObject *(*collect_fn)(agx_unpickler *u, size_t from);

static PyObject *collect_list(agx_unpickler *u, size_t from)
{
        PyObject *list = PyList_New(0);
        if (list && extend_list(u, list, from) < 0)
                Py_CLEAR(list);
        return list;
}

static PyObject *collect_dict(agx_unpickler *u, size_t from)
{
        if ((u->n - from) % 2 != 0) {
                agx_unpickle_fail_malformed(u, "a key without a value");
                return NULL;
        }
        PyObject *dict = PyDict_New();
        if (dict && agx_unpickle_set_pairs(u, dict, from) < 0)
                Py_CLEAR(dict);
        return dict;
}

static PyObject *collect_frozenset(agx_unpickler *u, size_t from)
{
        PyObject *set = PyFrozenSet_New(NULL);
        if (set && add_items(u, set, from) < 0)
                Py_CLEAR(set);
        return set;
}

/* Everything above the last mark becomes one container. Only tuples carry their nesting on. */
static int make_marked(agx_unpickler *u, collect_fn collect)
{
        size_t from = 0;
        if (agx_unpickle_unmark(u, &from) < 0 || agx_unpickle_values(u, from) < 0 ||
            agx_unpickle_charge(u, collect == collect_frozenset ? SIZE_SET : SIZE_LIST) < 0)
                return -1;
        PyObject *container = collect(u, from);
        agx_unpickle_cut(u, from);
        return agx_unpickle_push(u, container, 0);
}

static int on_list(agx_unpickler *u)
{
        return make_marked(u, collect_list);
}

static int on_dict(agx_unpickler *u)
{
        return make_marked(u, collect_dict);
}

static int on_frozenset(agx_unpickler *u)
{
        return make_marked(u, collect_frozenset);
}

/* --- names --- */

static int on_global(agx_unpickler *u)
{
        return agx_unpickle_global(u, u->op.view[0], u->op.view[1]);
}

static int text_view(agx_unpickler *u, PyObject *text, agx_view *view)
{
        Py_ssize_t n;
        if (!PyUnicode_CheckExact(text))
                return agx_unpickle_fail_malformed(u, "a global's name that is not a str");
        const char *utf8 = PyUnicode_AsUTF8AndSize(text, &n);
        if (!utf8)
                return -1;
        *view = agx_view_of(utf8, (size_t)n);
        return 0;
}

static int on_stack_global(agx_unpickler *u)
{
        agx_view module, name;
        if (agx_unpickle_need(u, 2) < 0 || text_view(u, u->stack[u->n - 2], &module) < 0 ||
            text_view(u, u->stack[u->n - 1], &name) < 0 || agx_unpickle_global(u, module, name) < 0)
                return -1;
        /* What was pushed takes the place of the two texts, which had to live until now. */
        PyObject *object = u->stack[--u->n];
        agx_unpickle_cut(u, u->n - 2);
        return agx_unpickle_push(u, object, 0);
}

/* Whether @item, the @i-th of a tuple, was the @i-th argument or the @i-th item of the first argument. */
static bool was_argument(PyObject *args, Py_ssize_t i, PyObject *item)
{
        PyObject *first = agx_unpickle_arg(args, 0);
        return agx_unpickle_arg(args, i) == item ||
               (first && PyTuple_CheckExact(first) && agx_unpickle_arg(first, i) == item);
}

/* How deep the tuples in a new object are. A class that derives from tuple may have taken its items from anywhere: then
 * they are as deep as any tuple of this load. */
static size_t nest_of_call(const agx_unpickler *u, PyObject *object, PyObject *args)
{
        if (!PyTuple_Check(object))
                return u->nest[u->n - 1];
        for (Py_ssize_t i = 0; i < PyTuple_Size(object); i++) {
                PyObject *item = PyTuple_GetItem(object, i);
                if (PyTuple_Check(item) && !was_argument(args, i, item))
                        return u->deepest + 1;
        }
        return u->nest[u->n - 1];
}

/* The callable and its arguments, the top two entries, become what the call gave. Steals @object. */
static int replace_call(agx_unpickler *u, PyObject *object)
{
        if (!object)
                return -1;
        size_t nest = nest_of_call(u, object, u->stack[u->n - 1]);
        if (u->deepest < nest)
                u->deepest = nest;
        agx_unpickle_cut(u, u->n - 2);
        return agx_unpickle_push(u, object, nest);
}

/* The row of the callable at stack[n - @depth], whose arguments are the tuple above it. */
static int subject_of_call(agx_unpickler *u, size_t depth)
{
        if (agx_unpickle_need(u, depth) < 0)
                return -1;
        u->subject = agx_unpickle_find(u, u->stack[u->n - depth]);
        if (!u->subject)
                return agx_unpickle_fail_malformed(u, "a call of something that is no class");
        if (!PyTuple_CheckExact(u->stack[u->n - depth + 1]))
                return agx_unpickle_fail_subject(u, "arguments that are not a tuple");
        return agx_unpickle_object_step(u);
}

static int on_reduce(agx_unpickler *u)
{
        if (subject_of_call(u, 2) < 0)
                return -1;
        agx_reduce_fn reduce = u->subject->row->reduce;
        if (!reduce)
                return agx_unpickle_fail_subject(u, "it may not be called");
        return replace_call(u, reduce(u, u->stack[u->n - 2], u->stack[u->n - 1]));
}

static int on_newobj(agx_unpickler *u)
{
        if (subject_of_call(u, 2) < 0)
                return -1;
        agx_reduce_fn newobj = u->subject->row->newobj;
        if (!newobj)
                return agx_unpickle_fail_subject(u, "its pickles do not use __new__");
        return replace_call(u, newobj(u, u->stack[u->n - 2], u->stack[u->n - 1]));
}

static int on_newobj_ex(agx_unpickler *u)
{
        if (subject_of_call(u, 3) < 0)
                return -1;
        if (u->subject->row != &agx_registered)
                return agx_unpickle_fail_subject(u, "its pickles do not use __new__ with keywords");
        if (agx_unpickle_values(u, u->n - 1) < 0)
                return -1;
        PyObject *object = agx_build_registered_ex(u, u->stack[u->n - 3], u->stack[u->n - 2], u->stack[u->n - 1]);
        if (object)
                agx_unpickle_cut(u, u->n - 1);
        return replace_call(u, object);
}

static int on_build(agx_unpickler *u)
{
        if (agx_unpickle_need(u, 2) < 0 || agx_unpickle_values(u, u->n - 1) < 0)
                return -1;
        PyObject *object = u->stack[u->n - 2], *state = u->stack[u->n - 1];
        u->subject = agx_unpickle_find(u, Py_TYPE(object));
        if (!u->subject || !u->subject->row->build)
                return agx_unpickle_fail_subject(u, "a state for an object that takes none");
        if (agx_unpickle_object_step(u) < 0 || u->subject->row->build(u, object, state) < 0)
                return -1;
        if (u->nest[u->n - 2] < u->nest[u->n - 1])
                u->nest[u->n - 2] = u->nest[u->n - 1];
        agx_unpickle_cut(u, u->n - 1);
        return 0;
}

/* --- refused --- */

static int on_inst(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "the old opcodes INST and OBJ call any class by name");
}

static int on_ext(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "pickle extension opcodes name things by number");
}

static int on_persid(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "persistent ids name things outside the pickle");
}

static int on_buffer(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "out-of-band buffers lie outside the pickle");
}

static const handler HANDLERS[AGX_PICKLE_KINDS] = {
        [AGX_PICKLE_PROTO] = on_proto,
        [AGX_PICKLE_NONE] = on_none,
        [AGX_PICKLE_TRUE] = on_true,
        [AGX_PICKLE_FALSE] = on_false,
        [AGX_PICKLE_INT] = on_int,
        [AGX_PICKLE_BIG_BINARY] = on_big_binary,
        [AGX_PICKLE_BIG_TEXT] = on_big_text,
        [AGX_PICKLE_FLOAT] = on_float,
        [AGX_PICKLE_FLOAT_TEXT] = on_float_text,
        [AGX_PICKLE_BYTES] = on_bytes,
        [AGX_PICKLE_BYTEARRAY] = on_bytearray,
        [AGX_PICKLE_TEXT] = on_text,
        [AGX_PICKLE_TEXT_RAW] = on_text_raw,
        [AGX_PICKLE_OLD_TEXT] = on_old_text,
        [AGX_PICKLE_OLD_QUOTED] = on_old_quoted,
        [AGX_PICKLE_EMPTY_LIST] = on_empty_list,
        [AGX_PICKLE_EMPTY_TUPLE] = on_empty_tuple,
        [AGX_PICKLE_EMPTY_DICT] = on_empty_dict,
        [AGX_PICKLE_EMPTY_SET] = on_empty_set,
        [AGX_PICKLE_LIST] = on_list,
        [AGX_PICKLE_TUPLE] = on_tuple,
        [AGX_PICKLE_TUPLE1] = on_tuple1,
        [AGX_PICKLE_TUPLE2] = on_tuple2,
        [AGX_PICKLE_TUPLE3] = on_tuple3,
        [AGX_PICKLE_DICT] = on_dict,
        [AGX_PICKLE_FROZENSET] = on_frozenset,
        [AGX_PICKLE_APPEND] = on_append,
        [AGX_PICKLE_APPENDS] = on_appends,
        [AGX_PICKLE_SETITEM] = on_setitem,
        [AGX_PICKLE_SETITEMS] = on_setitems,
        [AGX_PICKLE_ADDITEMS] = on_additems,
        [AGX_PICKLE_MARK] = on_mark,
        [AGX_PICKLE_POP] = on_pop,
        [AGX_PICKLE_POP_MARK] = on_pop_mark,
        [AGX_PICKLE_DUP] = on_dup,
        [AGX_PICKLE_PUT] = on_put,
        [AGX_PICKLE_GET] = on_get,
        [AGX_PICKLE_MEMOIZE] = on_memoize,
        [AGX_PICKLE_GLOBAL] = on_global,
        [AGX_PICKLE_STACK_GLOBAL] = on_stack_global,
        [AGX_PICKLE_REDUCE] = on_reduce,
        [AGX_PICKLE_BUILD] = on_build,
        [AGX_PICKLE_NEWOBJ] = on_newobj,
        [AGX_PICKLE_NEWOBJ_EX] = on_newobj_ex,
        [AGX_PICKLE_INST] = on_inst,
        [AGX_PICKLE_OBJ] = on_inst,
        [AGX_PICKLE_EXT] = on_ext,
        [AGX_PICKLE_PERSID] = on_persid,
        [AGX_PICKLE_BUFFER] = on_buffer,
};

/* --- the load --- */

enum { STEPS_PER_BREATH = 4096 };

/* Runs until STOP. A value that is decoded in a thread must not stop the host's event loop for as long as it takes. */
static int run(agx_unpickler *u)
{
        for (unsigned step = 1;; ++step) {
                if (step % STEPS_PER_BREATH == 0)
                        agx_unpickle_breathe(u);
                if (agx_pickle_next(&u->reader, &u->op))
                        return agx_unpickle_fail_stream(u);
                if (u->op.kind == AGX_PICKLE_STOP)
                        return 0;
                u->subject = NULL;
                if (HANDLERS[u->op.kind](u) < 0)
                        return -1;
        }
}

/* Exactly one value and no mark may be left. New reference. */
static PyObject *result(agx_unpickler *u)
{
        if (u->n_marks) {
                agx_unpickle_fail_malformed(u, "a mark is left over");
                return NULL;
        }
        if (u->n != 1) {
                agx_unpickle_fail_malformed(u, u->n ? "values are left over" : "there is no value");
                return NULL;
        }
        if (u->waiting) {
                agx_unpickle_fail_malformed(u, "an object never got its fields");
                return NULL;
        }
        return agx_unpickle_values(u, 0) < 0 ? NULL : Py_NewRef(u->stack[0]);
}

PyObject *agx_unpickle_load(const void *data, size_t len, PyObject *extra, PyObject *declared)
{
        const bool quiet = len >= AGX_VALUE_QUIET_BYTES;
        agx_unpickler u;
        if (quiet)
                agx_unpickle_gc_rest();
        agx_unpickle_init(&u, data, len);
        u.extra = extra;
        u.declared = declared;
        PyObject *value = run(&u) < 0 ? NULL : result(&u);
        if (!value)
                agx_unpickle_fail_wrap(&u);
        /* Dropping what is left can run code of admitted classes; it must not see the exception. */
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        agx_unpickle_deinit(&u);
        if (quiet)
                agx_unpickle_gc_resume(len);
        PyErr_Restore(type, error, traceback);
        return value;
}

/* Sets *extra or *declared to a keyword's value. */
static int take_keyword(PyObject *name, PyObject *value, PyObject **extra, PyObject **declared)
{
        PyObject **to = PyUnicode_CompareWithASCIIString(name, "extra") == 0      ? extra
                        : PyUnicode_CompareWithASCIIString(name, "declared") == 0 ? declared
                                                                                  : NULL;
        if (!to) {
                PyErr_Format(PyExc_TypeError, "restricted_loads() has no keyword %R", name);
                return -1;
        }
        *to = value == Py_None ? NULL : value;
        return 0;
}

/* Written out, as a small value is decoded in less time than the general way of taking keywords takes. */
static PyObject *restricted_loads(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
        PyObject *extra = NULL, *declared = NULL;
        Py_buffer view;
        (void)module;
        if (n != 1) {
                PyErr_Format(PyExc_TypeError, "restricted_loads() takes one positional argument, not %zd", n);
                return NULL;
        }
        for (Py_ssize_t i = 0; names && i < PyTuple_Size(names); i++)
                if (take_keyword(PyTuple_GetItem(names, i), args[1 + i], &extra, &declared) < 0)
                        return NULL;
        if (extra && !PyDict_CheckExact(extra)) {
                PyErr_SetString(PyExc_TypeError, "extra must be a dict or None");
                return NULL;
        }
        if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
                return NULL;
        PyObject *value = agx_unpickle_load(view.buf, (size_t)view.len, extra, declared);
        PyBuffer_Release(&view);
        return value;
}

static PyMethodDef METHODS[] = {
        {"restricted_loads", (PyCFunction)(void (*)(void))restricted_loads, METH_FASTCALL | METH_KEYWORDS,
         "restricted_loads(data, /, *, extra=None, declared=None)\n--\n\n"
         "Decode a pickle that names nothing but what the allowlist, extra, {(module, qualname): class}, and declared, "
         "called if need be for {(module, qualname): plan or reason}, admit."},
        {NULL, NULL, 0, NULL},
};

int agx_ext_add_unpickle(PyObject *module)
{
        return PyModule_AddFunctions(module, METHODS);
}
