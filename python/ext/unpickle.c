/*
 * agentix._core.restricted_loads(): decodes a pickle that nobody trusts.
 *
 * The reader gives one opcode at a time; a table maps its kind to a function here, which moves objects between stack,
 * memo and containers. None of them recurses, whatever the nesting of the data. The machine neither uses nor imports
 * the pickle module.
 */
#include "unpickle_ops.h"

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

static const agx_unpickle_op HANDLERS[AGX_PICKLE_KINDS] = {
        [AGX_PICKLE_PROTO] = agx_unpickle_on_proto,
        [AGX_PICKLE_NONE] = agx_unpickle_on_none,
        [AGX_PICKLE_TRUE] = agx_unpickle_on_true,
        [AGX_PICKLE_FALSE] = agx_unpickle_on_false,
        [AGX_PICKLE_INT] = agx_unpickle_on_int,
        [AGX_PICKLE_BIG_BINARY] = agx_unpickle_on_int,
        [AGX_PICKLE_BIG_TEXT] = agx_unpickle_on_big_text,
        [AGX_PICKLE_FLOAT] = agx_unpickle_on_float,
        [AGX_PICKLE_FLOAT_TEXT] = agx_unpickle_on_float_text,
        [AGX_PICKLE_BYTES] = agx_unpickle_on_bytes,
        [AGX_PICKLE_BYTEARRAY] = agx_unpickle_on_bytearray,
        [AGX_PICKLE_TEXT] = agx_unpickle_on_text,
        [AGX_PICKLE_TEXT_RAW] = agx_unpickle_on_text_raw,
        [AGX_PICKLE_OLD_TEXT] = agx_unpickle_on_old_text,
        [AGX_PICKLE_OLD_QUOTED] = agx_unpickle_on_old_quoted,
        [AGX_PICKLE_EMPTY_LIST] = agx_unpickle_on_empty_list,
        [AGX_PICKLE_EMPTY_TUPLE] = agx_unpickle_on_empty_tuple,
        [AGX_PICKLE_EMPTY_DICT] = agx_unpickle_on_empty_dict,
        [AGX_PICKLE_EMPTY_SET] = agx_unpickle_on_empty_set,
        [AGX_PICKLE_LIST] = agx_unpickle_on_list,
        [AGX_PICKLE_TUPLE] = agx_unpickle_on_tuple,
        [AGX_PICKLE_TUPLE1] = agx_unpickle_on_tuple1,
        [AGX_PICKLE_TUPLE2] = agx_unpickle_on_tuple2,
        [AGX_PICKLE_TUPLE3] = agx_unpickle_on_tuple3,
        [AGX_PICKLE_DICT] = agx_unpickle_on_dict,
        [AGX_PICKLE_FROZENSET] = agx_unpickle_on_frozenset,
        [AGX_PICKLE_APPEND] = agx_unpickle_on_append,
        [AGX_PICKLE_APPENDS] = agx_unpickle_on_appends,
        [AGX_PICKLE_SETITEM] = agx_unpickle_on_setitem,
        [AGX_PICKLE_SETITEMS] = agx_unpickle_on_setitems,
        [AGX_PICKLE_ADDITEMS] = agx_unpickle_on_additems,
        [AGX_PICKLE_MARK] = on_mark,
        [AGX_PICKLE_POP] = on_pop,
        [AGX_PICKLE_POP_MARK] = on_pop_mark,
        [AGX_PICKLE_DUP] = on_dup,
        [AGX_PICKLE_PUT] = on_put,
        [AGX_PICKLE_GET] = on_get,
        [AGX_PICKLE_MEMOIZE] = on_memoize,
        [AGX_PICKLE_GLOBAL] = agx_unpickle_on_global,
        [AGX_PICKLE_STACK_GLOBAL] = agx_unpickle_on_stack_global,
        [AGX_PICKLE_REDUCE] = agx_unpickle_on_reduce,
        [AGX_PICKLE_BUILD] = agx_unpickle_on_build,
        [AGX_PICKLE_NEWOBJ] = agx_unpickle_on_newobj,
        [AGX_PICKLE_NEWOBJ_EX] = agx_unpickle_on_newobj_ex,
        [AGX_PICKLE_INST] = agx_unpickle_on_inst,
        [AGX_PICKLE_OBJ] = agx_unpickle_on_inst,
        [AGX_PICKLE_EXT] = agx_unpickle_on_ext,
        [AGX_PICKLE_PERSID] = agx_unpickle_on_persid,
        [AGX_PICKLE_BUFFER] = agx_unpickle_on_buffer,
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

PyObject *agx_unpickle_load_landed(const agx_unpickle_landed *landed, PyObject *extra, PyObject *declared)
{
        const size_t len = landed->pickle.n + landed->more;
        const bool quiet = len >= AGX_VALUE_QUIET_BYTES;
        agx_unpickler u;
        if (quiet)
                agx_unpickle_gc_rest();
        agx_unpickle_init(&u, landed);
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

PyObject *agx_unpickle_load(const void *data, size_t len, PyObject *extra, PyObject *declared)
{
        return agx_unpickle_load_landed(&(agx_unpickle_landed){.pickle = agx_view_of(data, len)}, extra, declared);
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
        agx_unpickle_landed landed;
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
        if (PyBytes_CheckExact(args[0]))
                return agx_unpickle_load(PyBytes_AsString(args[0]), (size_t)PyBytes_Size(args[0]), extra, declared);
        if (agx_landed_parts(args[0], &landed))
                return agx_unpickle_load_landed(&landed, extra, declared);
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
