/*
 * Names, and what is done with what they stand for: REDUCE, NEWOBJ and BUILD, each only as far as the table's row
 * allows; and the opcodes that are refused as such.
 */
#include "unpickle_ops.h"

/* --- names --- */

int agx_unpickle_on_global(agx_unpickler *u)
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

int agx_unpickle_on_stack_global(agx_unpickler *u)
{
        agx_view module = AGX_VIEW_NULL, name = AGX_VIEW_NULL;
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

int agx_unpickle_on_reduce(agx_unpickler *u)
{
        if (subject_of_call(u, 2) < 0)
                return -1;
        agx_reduce_fn reduce = u->subject->row->reduce;
        if (!reduce)
                return agx_unpickle_fail_subject(u, "it may not be called");
        return replace_call(u, reduce(u, u->stack[u->n - 2], u->stack[u->n - 1]));
}

int agx_unpickle_on_newobj(agx_unpickler *u)
{
        if (subject_of_call(u, 2) < 0)
                return -1;
        agx_reduce_fn newobj = u->subject->row->newobj;
        if (!newobj)
                return agx_unpickle_fail_subject(u, "its pickles do not use __new__");
        return replace_call(u, newobj(u, u->stack[u->n - 2], u->stack[u->n - 1]));
}

int agx_unpickle_on_newobj_ex(agx_unpickler *u)
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

int agx_unpickle_on_build(agx_unpickler *u)
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

int agx_unpickle_on_inst(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "the old opcodes INST and OBJ call any class by name");
}

int agx_unpickle_on_ext(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "pickle extension opcodes name things by number");
}

int agx_unpickle_on_persid(agx_unpickler *u)
{
        return agx_unpickle_fail_opcode(u, "persistent ids name things outside the pickle");
}

/* The one that stands for bytes that have landed is a value like any; it was no such opcode when it was sent. */
int agx_unpickle_on_buffer(agx_unpickler *u)
{
        if (u->landed.object && u->op.pos == u->landed.at) {
                u->op.code = u->landed.code;
                return agx_unpickle_on_landed(u);
        }
        return agx_unpickle_fail_opcode(u, "out-of-band buffers lie outside the pickle");
}
