/*
 * Classes that the return annotation of the called function admits.
 *
 * The host's own function names them, so the host knows them; but nobody has said that their code may run on data of the
 * sandbox's choice. So it does not, and a plan from python/agentix/_declared.py says what happens instead:
 *  - "fields": an object without any attribute, of a class that leaves __new__ to object; its state then sets exactly
 *    the declared fields, past the class's own __setattr__, and must name every one of them;
 *  - "items": a tuple of the class with as many items as it has fields, made by tuple's own __new__;
 *  - "enum": a member of an Enum, looked up by its value and never made;
 *  - "model": an object without any attribute, which the class's validation of the state then fills.
 *
 * What has no fields yet must not leave the load: each is counted when it is made and again when its state has come.
 */
#include "unpickle.h"

enum { SIZE_INSTANCE = 96, SIZE_FIELD = 16 };

typedef struct plan {
        char how; /* the first letter */
        PyObject *fields;
        Py_ssize_t needed; /* how many fields there must be; those without a value of their own may be absent */
        PyObject *make;
} plan;

/* The plan of the current subject; _declared.py made it. */
static int plan_of(agx_unpickler *u, plan *p)
{
        PyObject *tuple = u->subject->cached;
        const char *how = NULL;
        if (tuple && PyTuple_CheckExact(tuple) && PyTuple_Size(tuple) == 5)
                how = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(tuple, 0), NULL);
        if (!how)
                return agx_unpickle_fail_subject(u, "there is no plan for it");
        *p = (plan){
                .how = how[0],
                .fields = PyTuple_GetItem(tuple, 2),
                .needed = PyLong_AsSsize_t(PyTuple_GetItem(tuple, 3)),
                .make = PyTuple_GetItem(tuple, 4),
        };
        return 0;
}

/* An instance without a state. The class has no __new__ of its own, so it is laid out as object's heirs are. */
static PyObject *bare(agx_unpickler *u, PyObject *cls, const plan *p)
{
        newfunc make = (newfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_new);
        PyObject *none = PyTuple_New(0);
        PyObject *object = none ? make((PyTypeObject *)cls, none, NULL) : NULL;
        Py_XDECREF(none);
        bool waits = p->needed > 0;
        unsigned bits = object ? agx_unpickle_flags(u, object) : 0;
        if (object && (waits || bits) && agx_unpickle_set_flags(u, object, waits ? AGX_FLAG_WAITS : 0) < 0)
                Py_CLEAR(object);
        u->waiting += object && waits;
        return object;
}

static PyObject *make_items(agx_unpickler *u, PyObject *cls, PyObject *args, const plan *p)
{
        if (PyTuple_Size(args) != p->needed)
                return agx_unpickle_bad(u, "it has another number of fields");
        newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
        PyObject *one = PyTuple_Pack(1, args);
        PyObject *object = one ? make((PyTypeObject *)cls, one, NULL) : NULL;
        Py_XDECREF(one);
        return object;
}

static PyObject *new_declared(agx_unpickler *u, PyObject *cls, PyObject *args)
{
        plan p = {0};
        if (plan_of(u, &p) < 0)
                return NULL;
        if (agx_unpickle_charge(u, SIZE_INSTANCE + SIZE_FIELD * (uint64_t)PyDict_Size(p.fields)) < 0)
                return NULL;
        if (p.how == 'i')
                return make_items(u, cls, args, &p);
        if (p.how != 'f' && p.how != 'm')
                return agx_unpickle_bad(u, "a member of an Enum cannot be made, only named");
        if (PyTuple_Size(args) != 0)
                return agx_unpickle_bad(u, "its fields come by its state, not by arguments");
        return bare(u, cls, &p);
}

static PyObject *find_member(agx_unpickler *u, PyObject *cls, PyObject *args)
{
        plan p = {0};
        (void)cls;
        if (plan_of(u, &p) < 0)
                return NULL;
        if (p.how != 'e')
                return agx_unpickle_bad(u, "its pickles do not call it");
        if (PyTuple_Size(args) != 1)
                return agx_unpickle_bad(u, "a member of an Enum is named by its value");
        PyObject *value = PyTuple_GetItem(args, 0);
        if (agx_unpickle_key(u, value) < 0)
                return NULL;
        return agx_unpickle_code_step(u) < 0 ? NULL : PyObject_CallFunctionObjArgs(p.make, value, NULL);
}

/* --- state --- */

static int set_field(agx_unpickler *u, PyObject *object, PyObject *name, PyObject *value, const plan *p)
{
        PyObject *field = PyUnicode_CheckExact(name) ? PyDict_GetItemWithError(p->fields, name) : NULL;
        if (!field)
                return PyErr_Occurred() ? -1
                                        : agx_unpickle_fail_subject(u, "a state with more than its declared fields");
        return PyObject_GenericSetAttr(object, field, value);
}

/* Counts the fields that it sets. */
static int set_fields(agx_unpickler *u, PyObject *object, PyObject *state, const plan *p, Py_ssize_t *n)
{
        PyObject *name, *value;
        Py_ssize_t i = 0;
        if (!PyDict_CheckExact(state))
                return agx_unpickle_fail_subject(u, "a state that is not a dict");
        while (PyDict_Next(state, &i, &name, &value)) {
                if (set_field(u, object, name, value, p) < 0)
                        return -1;
                ++*n;
        }
        return 0;
}

/* The values of all fields in order, as dataclasses that are frozen and have slots write them. */
static int set_list(agx_unpickler *u, PyObject *object, PyObject *list, const plan *p)
{
        PyObject *name, *field;
        Py_ssize_t i = 0;
        if (PyList_Size(list) != PyDict_Size(p->fields))
                return agx_unpickle_fail_subject(u, "it has another number of fields");
        for (Py_ssize_t k = 0; k < PyList_Size(list) && PyDict_Next(p->fields, &i, &name, &field); k++)
                if (PyObject_GenericSetAttr(object, field, PyList_GetItem(list, k)) < 0)
                        return -1;
        return 0;
}

/* Whether the two have no key in common. */
static int apart(PyObject *one, PyObject *two)
{
        PyObject *key, *value;
        Py_ssize_t i = 0;
        int r = 0;
        while (r == 0 && PyDict_Next(one, &i, &key, &value))
                r = PyDict_Contains(two, key);
        return r < 0 ? -1 : !r;
}

/* A dict, or (dict or None, dict of slots). */
static int set_state(agx_unpickler *u, PyObject *object, PyObject *state, const plan *p)
{
        Py_ssize_t n = 0;
        if (PyTuple_CheckExact(state) && PyTuple_Size(state) == 2) {
                PyObject *dict = PyTuple_GetItem(state, 0), *slots = PyTuple_GetItem(state, 1);
                int good = dict == Py_None                                       ? 1
                           : PyDict_CheckExact(dict) && PyDict_CheckExact(slots) ? apart(dict, slots)
                                                                                 : 0;
                if (good <= 0)
                        return good < 0 ? -1 : agx_unpickle_fail_subject(u, "a state that is none of its fields");
                if (dict != Py_None && set_fields(u, object, dict, p, &n) < 0)
                        return -1;
                state = slots;
        }
        if (set_fields(u, object, state, p, &n) < 0)
                return -1;
        return n >= p->needed ? 0 : agx_unpickle_fail_subject(u, "a state without one of its fields");
}

static int fill_model(agx_unpickler *u, PyObject *object, PyObject *state, const plan *p)
{
        if (!PyDict_CheckExact(state))
                return agx_unpickle_fail_subject(u, "a state that is not a dict");
        if (agx_unpickle_charge(u, 2 * SIZE_INSTANCE) < 0 || agx_unpickle_code_step(u) < 0)
                return -1;
        PyObject *none = PyObject_CallFunctionObjArgs(p->make, object, state, NULL);
        Py_XDECREF(none);
        return none ? 0 : -1;
}

static int build_declared(agx_unpickler *u, PyObject *object, PyObject *state)
{
        plan p = {0};
        if (plan_of(u, &p) < 0)
                return -1;
        if (p.how != 'f' && p.how != 'm')
                return agx_unpickle_fail_subject(u, "it takes no state");
        bool waits = agx_unpickle_flags(u, object) & AGX_FLAG_WAITS;
        if (p.needed > 0 && !waits)
                return agx_unpickle_fail_subject(u, "a second state");
        int r = p.how == 'm'               ? fill_model(u, object, state, &p)
                : PyList_CheckExact(state) ? set_list(u, object, state, &p)
                                           : set_state(u, object, state, &p);
        if (r < 0 || !waits)
                return r;
        u->waiting--;
        return agx_unpickle_set_flags(u, object, 0);
}

const agx_global agx_declared = {
        .module = "?",
        .name = "?",
        .reduce = find_member,
        .newobj = new_declared,
        .build = build_declared,
};

/* The plan of a class, or why it has none, or NULL without exception. Borrowed: the dict lives as long as u does. */
static PyObject *declared_plan(agx_unpickler *u, PyObject *key)
{
        if (!u->declared)
                return NULL;
        if (!u->plans)
                u->plans = PyObject_CallNoArgs(u->declared);
        if (!u->plans)
                return NULL;
        return PyDict_CheckExact(u->plans) ? PyDict_GetItemWithError(u->plans, key) : NULL;
}

int agx_unpickle_push_declared(agx_unpickler *u, PyObject *module, PyObject *name, PyObject *key)
{
        PyObject *found = declared_plan(u, key);
        if (!found || !PyTuple_CheckExact(found)) {
                const char *why = found && PyUnicode_Check(found) ? PyUnicode_AsUTF8AndSize(found, NULL) : NULL;
                return PyErr_Occurred() ? -1 : agx_unpickle_fail_global(u, module, name, why);
        }
        PyObject *cls = PyTuple_GetItem(found, 1);
        if (!cls || !PyType_Check(cls))
                return agx_unpickle_fail_global(u, module, name, "is declared, but did not resolve to a type");
        if (agx_unpickle_remember(u, cls, &agx_declared) < 0)
                return -1;
        agx_named *named = agx_unpickle_find(u, cls);
        if (named->row == &agx_declared && !named->cached)
                named->cached = Py_NewRef(found);
        return agx_unpickle_push(u, Py_NewRef(cls), 0);
}
