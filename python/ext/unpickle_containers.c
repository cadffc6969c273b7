/*
 * Tuples, lists, dicts and sets: made empty and filled, or made of all that lies above a mark. What is filled is of
 * exactly that type, or takes items by its row of the table.
 */
#include "unpickle_ops.h"

/* Rough sizes, in bytes, for the memory account. */
enum {
        SIZE_LIST = 72,
        SIZE_DICT = 64,
        SIZE_SET = 232,
        SIZE_TUPLE = 56,
        LIST_FIRST = 32, /* the first items of a list */
        LIST_ITEM = 9,
        SET_FIRST = 4, /* so many lie in the set itself */
        SET_ITEM = 100,
};

int agx_unpickle_on_empty_list(agx_unpickler *u)
{
        return agx_unpickle_charge(u, SIZE_LIST) < 0 ? -1 : agx_unpickle_push(u, PyList_New(0), 0);
}

int agx_unpickle_on_empty_tuple(agx_unpickler *u)
{
        return agx_unpickle_push(u, PyTuple_New(0), 0);
}

int agx_unpickle_on_empty_dict(agx_unpickler *u)
{
        return agx_unpickle_charge(u, SIZE_DICT) < 0 ? -1 : agx_unpickle_push(u, PyDict_New(), 0);
}

int agx_unpickle_on_empty_set(agx_unpickler *u)
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

int agx_unpickle_on_tuple(agx_unpickler *u)
{
        size_t from = 0;
        return agx_unpickle_unmark(u, &from) < 0 ? -1 : make_tuple(u, from);
}

int agx_unpickle_on_tuple1(agx_unpickler *u)
{
        return agx_unpickle_need(u, 1) < 0 ? -1 : make_tuple(u, u->n - 1);
}

int agx_unpickle_on_tuple2(agx_unpickler *u)
{
        return agx_unpickle_need(u, 2) < 0 ? -1 : make_tuple(u, u->n - 2);
}

int agx_unpickle_on_tuple3(agx_unpickler *u)
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

int agx_unpickle_on_append(agx_unpickler *u)
{
        return agx_unpickle_need(u, 2) < 0 ? -1 : fill(u, u->n - 1, FILL_APPEND);
}

int agx_unpickle_on_appends(agx_unpickler *u)
{
        return fill_marked(u, FILL_APPEND);
}

int agx_unpickle_on_setitem(agx_unpickler *u)
{
        return agx_unpickle_need(u, 3) < 0 ? -1 : fill(u, u->n - 2, FILL_SETITEM);
}

int agx_unpickle_on_setitems(agx_unpickler *u)
{
        return fill_marked(u, FILL_SETITEM);
}

int agx_unpickle_on_additems(agx_unpickler *u)
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

int agx_unpickle_on_list(agx_unpickler *u)
{
        return make_marked(u, collect_list);
}

int agx_unpickle_on_dict(agx_unpickler *u)
{
        return make_marked(u, collect_dict);
}

int agx_unpickle_on_frozenset(agx_unpickler *u)
{
        return make_marked(u, collect_frozenset);
}
