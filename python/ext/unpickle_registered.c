/*
 * Classes the host has admitted.
 *
 * The host said that exactly this class may be rebuilt, so its own code may run, but only where its own pickles would
 * run it:
 *  - NEWOBJ calls its __new__; BUILD calls its __setstate__, or fills the instance's dict and slots;
 *  - REDUCE calls the class only if it says itself how it is pickled (an own __reduce__ or __reduce_ex__, as exceptions
 *    and sets have); for all others honest pickles never run the constructor;
 *  - an Enum is looked up by value, and is nobody's to change;
 *  - items go into a subclass of list or dict only past methods of its own: if it has any, they are refused.
 *
 * State is set on objects that this load alone holds. An object that __new__ took from somewhere else has further
 * references; it may be a value, but BUILD refuses it.
 */
#include "unpickle.h"

enum { SIZE_INSTANCE = 200, SIZE_ENTRY = 100 };

/* The class enum.Enum, if anybody has imported it; no member of an Enum can be admitted before. New reference. */
static PyObject *enum_class(void)
{
        PyObject *name = PyUnicode_FromString("enum");
        PyObject *module = name ? PyImport_GetModule(name) : NULL;
        PyObject *cls = module ? PyObject_GetAttrString(module, "Enum") : NULL;
        Py_XDECREF(name);
        Py_XDECREF(module);
        return cls;
}

/* The class's own __setstate__; none for an exception that has just the one all exceptions have, which follows a state
 * wherever it leads. New reference; NULL without exception if there is none. */
static PyObject *own_setstate(PyObject *cls)
{
        PyObject *set = PyObject_GetAttrString(cls, "__setstate__");
        if (!set && PyErr_ExceptionMatches(PyExc_AttributeError))
                PyErr_Clear();
        if (!set || !PyType_IsSubtype((PyTypeObject *)cls, (PyTypeObject *)PyExc_BaseException))
                return set;
        if (agx_unpickle_inherits(cls, (PyTypeObject *)PyExc_BaseException, "__setstate__"))
                Py_CLEAR(set);
        return set;
}

/* Finds out about a class when its first object is made or changed. */
static int learn(agx_named *named)
{
        if (named->learnt)
                return 0;
        PyObject *base = enum_class();
        if (!base && PyErr_Occurred())
                return -1;
        named->is_enum =
                base && PyType_Check(base) && PyType_IsSubtype((PyTypeObject *)named->object, (PyTypeObject *)base);
        Py_XDECREF(base);
        named->cached = own_setstate(named->object);
        if (PyErr_Occurred())
                return -1;
        named->learnt = true;
        return 0;
}

/* Whether an object may get a state later is decided now, while it is fresh. */
static PyObject *checked(agx_unpickler *u, PyObject *cls, PyObject *object)
{
        if (!object)
                return NULL;
        if ((PyObject *)Py_TYPE(object) != cls) {
                Py_DECREF(object);
                return agx_unpickle_bad(u, "it made an object of another class");
        }
        bool shared = Py_REFCNT(object) != 1;
        unsigned bits = agx_unpickle_flags(u, object);
        if ((shared || bits) && agx_unpickle_set_flags(u, object, shared ? AGX_FLAG_SHARED : 0) < 0)
                Py_CLEAR(object);
        return object;
}

static PyObject *new_registered_ex(agx_unpickler *u, PyObject *cls, PyObject *args, PyObject *kwargs)
{
        if (learn(u->subject) < 0)
                return NULL;
        if (u->subject->is_enum)
                return agx_unpickle_bad(u, "a member of an Enum cannot be made, only named");
        if (agx_unpickle_charge(u, SIZE_INSTANCE + 8 * (uint64_t)PyTuple_Size(args)) < 0)
                return NULL;
        newfunc make = (newfunc)PyType_GetSlot((PyTypeObject *)cls, Py_tp_new);
        if (!make)
                return agx_unpickle_bad(u, "it has no __new__");
        u->code_steps++;
        return checked(u, cls, make((PyTypeObject *)cls, args, kwargs));
}

static PyObject *new_registered(agx_unpickler *u, PyObject *cls, PyObject *args)
{
        return new_registered_ex(u, cls, args, NULL);
}

PyObject *agx_build_registered_ex(agx_unpickler *u, PyObject *callable, PyObject *args, PyObject *kwargs)
{
        if (!PyDict_CheckExact(kwargs))
                return agx_unpickle_bad(u, "keywords that are not a dict");
        return new_registered_ex(u, callable, args, kwargs);
}

/* 1 if a class has its own idea of how it is pickled, 0 if it leaves that to object. */
static int pickles_itself(PyObject *cls)
{
        int r = agx_unpickle_inherits(cls, &PyBaseObject_Type, "__reduce__");
        if (r > 0)
                r = agx_unpickle_inherits(cls, &PyBaseObject_Type, "__reduce_ex__");
        return r < 0 ? -1 : !r;
}

static PyObject *reduce_registered(agx_unpickler *u, PyObject *cls, PyObject *args)
{
        if (learn(u->subject) < 0)
                return NULL;
        int callable = u->subject->is_enum ? 1 : pickles_itself(cls);
        if (callable <= 0)
                return callable < 0 ? NULL : agx_unpickle_bad(u, "its pickles do not call it");
        if (u->subject->is_enum && PyTuple_Size(args) != 1)
                return agx_unpickle_bad(u, "a member of an Enum is named by its value");
        if (agx_unpickle_charge(u, SIZE_INSTANCE + 8 * (uint64_t)PyTuple_Size(args)) < 0)
                return NULL;
        u->code_steps++;
        return checked(u, cls, PyObject_Call(cls, args, NULL));
}

/* --- state --- */

static int set_slots(agx_unpickler *u, PyObject *object, PyObject *slots)
{
        PyObject *name, *value;
        Py_ssize_t i = 0;
        while (PyDict_Next(slots, &i, &name, &value)) {
                if (!PyUnicode_CheckExact(name) || agx_unpickle_is_dunder(name))
                        return agx_unpickle_fail_subject(u, "a special attribute");
                if (PyObject_SetAttr(object, name, value) < 0)
                        return -1;
        }
        return 0;
}

/* The default form of state: a dict, or (dict or None, dict of slots). */
static int set_state(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (!PyTuple_CheckExact(state) || PyTuple_Size(state) != 2)
                return agx_unpickle_set_dict(u, object, state);
        PyObject *dict = PyTuple_GetItem(state, 0), *slots = PyTuple_GetItem(state, 1);
        if (dict != Py_None && agx_unpickle_set_dict(u, object, dict) < 0)
                return -1;
        if (slots == Py_None)
                return 0;
        if (!PyDict_CheckExact(slots))
                return agx_unpickle_fail_subject(u, "slots that are not a dict");
        return set_slots(u, object, slots);
}

static int build_registered(agx_unpickler *u, PyObject *object, PyObject *state)
{
        if (learn(u->subject) < 0)
                return -1;
        if (u->subject->is_enum)
                return agx_unpickle_fail_subject(u, "a member of an Enum cannot be changed");
        if (agx_unpickle_flags(u, object) & AGX_FLAG_SHARED)
                return agx_unpickle_fail_subject(u, "its __new__ gave an object that is in use elsewhere");
        if (u->subject->cached) {
                u->code_steps++;
                PyObject *none = PyObject_CallFunctionObjArgs(u->subject->cached, object, state, NULL);
                Py_XDECREF(none);
                return none ? 0 : -1;
        }
        return PyExceptionInstance_Check(object) ? agx_build_exception_state(u, object, state)
                                                 : set_state(u, object, state);
}

/* --- items --- */

/* Whether items may go into the object: if it is of @base and has just that class's method, and is ours alone. */
static int check_fill(agx_unpickler *u, PyObject *object, PyTypeObject *base, const char *method)
{
        PyTypeObject *cls = Py_TYPE(object);
        int r = PyType_IsSubtype(cls, base) ? agx_unpickle_inherits((PyObject *)cls, base, method) : 0;
        if (r < 0)
                return -1;
        if (r == 0)
                return agx_unpickle_fail_subject(u, "items only go into a list or dict without methods for that");
        if (agx_unpickle_flags(u, object) & AGX_FLAG_SHARED)
                return agx_unpickle_fail_subject(u, "its __new__ gave an object that is in use elsewhere");
        return 0;
}

static int append_registered(agx_unpickler *u, PyObject *object, size_t from)
{
        if (check_fill(u, object, &PyList_Type, "append") < 0 || check_fill(u, object, &PyList_Type, "extend") < 0)
                return -1;
        if (agx_unpickle_charge(u, 32 + 9 * (uint64_t)(u->n - from)) < 0)
                return -1;
        for (size_t i = from; i < u->n; i++)
                if (PyList_Append(object, u->stack[i]) < 0)
                        return -1;
        return 0;
}

/* A subclass of OrderedDict inherits another __setitem__, and needs it. */
static int setitem_registered(agx_unpickler *u, PyObject *object, size_t from)
{
        if (check_fill(u, object, &PyDict_Type, "__setitem__") < 0)
                return -1;
        return agx_unpickle_set_pairs(u, object, from);
}

const agx_global agx_registered = {
        .module = "?",
        .name = "?",
        .reduce = reduce_registered,
        .newobj = new_registered,
        .build = build_registered,
        .append = append_registered,
        .setitem = setitem_registered,
};
