/*
 * What a returned value may cost.
 *
 * Memory is an estimate, added up before objects are made and never taken back: the stream can make many times its
 * own size (an empty set is one byte there and 232 here), copy a thing it made once, and drop what it made. An honest
 * list of empty lists is 45 times as large as its pickle, so objects cannot be held to a small multiple; bytes that are
 * copied can.
 *
 * CPU time is measured, because one cost cannot be foreseen: keys of a dict that all fall into the same place. The
 * hashes of numbers are public, so a sender can choose such keys; of strings and bytes they are salted. Every 64 steps
 * the clock is read; only when the wall clock says that the budget is gone is the thread's CPU clock asked, so that a
 * process that was stopped for an hour is not blamed for it. Growing a dict cannot take longer than filling it did:
 * the places a key tries in a larger table are, modulo the smaller one, those it tried there.
 *
 * A single key can also be dear: tuples do not keep their hash, so sharing makes a tree of 2^n out of n tuples. Keys
 * made of parts are walked before they are hashed, and every visit counts.
 *
 * deque and defaultdict free what they hold by recursion without a net, so a long chain of them would overflow the C
 * stack when the host lets go of the value. A chain of n has n - 2 that are both inside one and around another; those
 * are counted, whichever way round the chain was put together.
 */
#include <time.h>

#include "unpickle.h"

enum {
        UNIT_BYTES = 256, /* of a string or bytes: compared as fast as one small part */
        UNIT_BITS = 512,  /* of an integer */
        UNIT_OTHER = 4,   /* a datetime, a Decimal, ... */
};

/* --- memory --- */

int agx_unpickle_fail_memory(agx_unpickler *u)
{
        return agx_unpickle_fail_budget(u, "the objects would need too much memory for a pickle of this size");
}

int agx_unpickle_copy(agx_unpickler *u, uint64_t bytes)
{
        if (bytes > u->copy_left)
                return agx_unpickle_fail_budget(u, "the copies would need too much memory for a pickle of this size");
        u->copy_left -= bytes;
        return 0;
}

/* A dict's first table takes five items; further ones are two thirds full before they grow threefold. */
int agx_unpickle_charge_pairs(agx_unpickler *u, Py_ssize_t had, size_t n)
{
        enum { FIRST_TABLE = 192, FIRST_ITEMS = 5, ITEM = 80 };
        if (had)
                return agx_unpickle_charge(u, ITEM * (uint64_t)n);
        return agx_unpickle_charge(u, FIRST_TABLE + ITEM * (uint64_t)(n > FIRST_ITEMS ? n - FIRST_ITEMS : 0));
}

/* --- CPU time --- */

static uint64_t now_ns(clockid_t clock)
{
        struct timespec t;
        if (clock_gettime(clock, &t) != 0)
                return 0;
        return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int agx_unpickle_check_clock(agx_unpickler *u)
{
        const uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (!u->clock_ns) {
                u->clock_ns = now;
                u->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
                return 0;
        }
        const uint64_t budget =
                AGX_VALUE_CPU_BASE_NS + (uint64_t)AGX_VALUE_CPU_PER_BYTE_NS * agx_unpickle_place(u, u->reader.pos) +
                (uint64_t)AGX_VALUE_CPU_PER_KEY_NS * u->steps + (uint64_t)AGX_VALUE_CPU_PER_OBJECT_NS * u->objects +
                (uint64_t)AGX_VALUE_CPU_PER_CODE_NS * u->code_steps;
        if (now - u->clock_ns <= budget)
                return 0;
        if (now_ns(CLOCK_THREAD_CPUTIME_ID) - u->cpu_ns <= budget)
                return 0;
        return agx_unpickle_fail_budget(u, "decoding takes too long for a pickle of this size");
}

/* --- keys --- */

static int visit_part(agx_unpickler *u, PyObject *part, unsigned depth);

static int count_hash(agx_unpickler *u, uint64_t units)
{
        const uint64_t max =
                AGX_VALUE_HASH_BASE + (uint64_t)AGX_VALUE_HASH_PER_BYTE * agx_unpickle_place(u, u->reader.pos);
        u->hash_work += units;
        if (u->hash_work <= max)
                return 0;
        return agx_unpickle_fail_budget(u, "hashing the keys is too much work for a pickle of this size");
}

static int visit_int(agx_unpickler *u, PyObject *number)
{
        int overflow;
        (void)PyLong_AsLongLongAndOverflow(number, &overflow);
        if (!overflow)
                return count_hash(u, 1);
        PyObject *length = PyObject_CallMethod(number, "bit_length", NULL);
        if (!length)
                return -1;
        unsigned long long bits = PyLong_AsUnsignedLongLong(length);
        Py_DECREF(length);
        return count_hash(u, 1 + bits / UNIT_BITS);
}

static int visit_tuple(agx_unpickler *u, PyObject *tuple, unsigned depth)
{
        Py_ssize_t n = PyTuple_Size(tuple);
        if (count_hash(u, 1) < 0)
                return -1;
        for (Py_ssize_t i = 0; i < n; i++)
                if (visit_part(u, PyTuple_GetItem(tuple, i), depth + 1) < 0)
                        return -1;
        return 0;
}

static int visit_set(agx_unpickler *u, PyObject *set, unsigned depth)
{
        PyObject *iterator = PyObject_GetIter(set), *item;
        if (!iterator)
                return -1;
        int r = count_hash(u, 1);
        while (r == 0 && (item = PyIter_Next(iterator))) {
                r = visit_part(u, item, depth + 1);
                Py_DECREF(item);
        }
        Py_DECREF(iterator);
        return r < 0 || PyErr_Occurred() ? -1 : 0;
}

typedef struct referents {
        agx_unpickler *u;
        unsigned depth;
} referents;

static int visit_referent(PyObject *object, void *arg)
{
        const referents *r = arg;
        return PyType_Check(object) ? 0 : visit_part(r->u, object, r->depth);
}

/* An instance of an admitted class: its own __hash__ and __eq__ may go through everything it holds. */
static int visit_instance(agx_unpickler *u, PyObject *object, unsigned depth)
{
        PyTypeObject *type = Py_TYPE(object);
        traverseproc traverse = (traverseproc)PyType_GetSlot(type, Py_tp_traverse);
        if (count_hash(u, UNIT_OTHER) < 0)
                return -1;
        if (!traverse || PyType_GetSlot(type, Py_tp_hash) == PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash))
                return 0;
        referents r = {.u = u, .depth = depth + 1};
        return traverse(object, visit_referent, &r);
}

static int visit_part(agx_unpickler *u, PyObject *part, unsigned depth)
{
        if (depth > AGX_VALUE_NESTING)
                return agx_unpickle_fail_budget(u, "a key is nested too deep");
        if (PyUnicode_Check(part))
                return count_hash(u, 1 + (uint64_t)PyUnicode_GetLength(part) / UNIT_BYTES);
        if (PyBytes_Check(part))
                return count_hash(u, 1 + (uint64_t)PyBytes_Size(part) / UNIT_BYTES);
        if (PyLong_Check(part))
                return visit_int(u, part);
        if (PyFloat_CheckExact(part) || part == Py_None)
                return count_hash(u, 1);
        if (PyTuple_Check(part))
                return visit_tuple(u, part, depth);
        if (PyFrozenSet_Check(part))
                return visit_set(u, part, depth);
        return visit_instance(u, part, depth);
}

int agx_unpickle_visit_key(agx_unpickler *u, PyObject *key)
{
        return visit_part(u, key, 0);
}

/* --- chains --- */

static bool is_chained(const agx_unpickler *u, PyObject *object)
{
        return agx_unpickle_is(u, object, agx_build_deque) || agx_unpickle_is(u, object, agx_build_defaultdict);
}

static int add_flag(agx_unpickler *u, PyObject *object, unsigned flag)
{
        unsigned bits = agx_unpickle_flags(u, object) | flag;
        const unsigned both = AGX_FLAG_INSIDE | AGX_FLAG_AROUND;
        if ((bits & both) == both && !(bits & AGX_FLAG_COUNTED)) {
                bits |= AGX_FLAG_COUNTED;
                if (++u->chained > AGX_VALUE_CHAINED)
                        return agx_unpickle_fail_budget(u, "deques and defaultdicts are nested too deep");
        }
        return agx_unpickle_set_flags(u, object, bits);
}

int agx_unpickle_chain(agx_unpickler *u, PyObject *outer, PyObject *inner)
{
        if (!is_chained(u, inner))
                return 0;
        return add_flag(u, outer, AGX_FLAG_AROUND) < 0 ? -1 : add_flag(u, inner, AGX_FLAG_INSIDE);
}
