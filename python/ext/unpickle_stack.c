/*
 * The stores of one load: stack, marks, memo, named globals, flags.
 *
 * They lie in the machine itself at first, grow by doubling and never shrink; what they can grow to is bound by the pickle itself, as every entry costs at
 * least a byte of it. A memo index may be any number in the stream, so put() believes none above the number of bytes
 * read so far: writers count their entries, and an entry costs at least two bytes.
 */
#include <string.h>
#include <time.h>

#include "unpickle.h"

enum { RELEASES_PER_BREATH = 1 << 12, BREATH_APART_US = 5000, BREATH_NS = 50000 };

void agx_unpickle_init(agx_unpickler *u, const agx_unpickle_landed *landed)
{
        const size_t len = landed->pickle.n + landed->more;
        const agx_pickle_limits limits = {.int_bytes = AGX_VALUE_INT_BYTES, .int_digits = AGX_VALUE_INT_DIGITS};
        memset(u, 0, offsetof(agx_unpickler, first_stack));
        u->memory_left = AGX_VALUE_MEMORY_BASE + (uint64_t)AGX_VALUE_MEMORY_PER_BYTE * len;
        u->copy_left = AGX_VALUE_COPY_BASE + (uint64_t)AGX_VALUE_COPY_PER_BYTE * len;
        u->stack = u->first_stack;
        u->nest = u->first_nest;
        u->memo = u->first_memo;
        u->memo_nest = u->first_memo_nest;
        u->marks = u->first_marks;
        u->stack_size = u->memo_size = u->marks_size = AGX_FIRST_SIZE;
        u->landed = *landed;
        agx_pickle_init(&u->reader, landed->pickle.p, landed->pickle.n, limits);
}

static void release_array(void *array, const void *first)
{
        if (array != first)
                PyMem_Free(array);
}

/* From the first on: an object goes before those it holds, which the memo still keeps, so that no single one takes long. */
static void release(agx_unpickler *u, PyObject **objects, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                Py_XDECREF(objects[i]);
                if ((i + 1) % RELEASES_PER_BREATH == 0)
                        agx_unpickle_breathe(u);
        }
}

static void release_named(agx_named *named)
{
        Py_DECREF(named->object);
        Py_XDECREF(named->cached);
}

void agx_unpickle_deinit(agx_unpickler *u)
{
        agx_unpickle_cut(u, 0);
        release_array(u->stack, u->first_stack);
        release_array(u->nest, u->first_nest);
        release_array(u->marks, u->first_marks);
        release(u, u->memo, u->memo_size);
        release_array(u->memo, u->first_memo);
        release_array(u->memo_nest, u->first_memo_nest);
        for (size_t i = 0; i < u->n_named; i++)
                release_named(&u->named[i]);
        PyMem_Free(u->named);
        PyMem_Free(u->flags.slots);
        Py_XDECREF(u->plans);
        agx_unpickle_big_deinit(&u->big);
        memset(u, 0, offsetof(agx_unpickler, first_memo));
}

/* Resizes *array to @size elements; on failure the old one stays. */
static int resize(void *array, size_t size, size_t element)
{
        void *old, *fresh;
        memcpy(&old, array, sizeof old);
        fresh = size <= PTRDIFF_MAX / element ? PyMem_Realloc(old, size * element) : NULL;
        if (!fresh) {
                PyErr_NoMemory();
                return -1;
        }
        memcpy(array, &fresh, sizeof fresh);
        return 0;
}

/* Likewise where *array may be the @first one, which has AGX_FIRST_SIZE elements. */
static int resize_from(void *array, const void *first, size_t size, size_t element)
{
        void *old, *fresh = NULL;
        memcpy(&old, array, sizeof old);
        if (old != first)
                return resize(array, size, element);
        if (resize(&fresh, size, element) < 0)
                return -1;
        memcpy(fresh, first, AGX_FIRST_SIZE * element);
        memcpy(array, &fresh, sizeof fresh);
        return 0;
}

static uint64_t microseconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* What is half built belongs to its load alone, so nothing of it can change meanwhile. Whoever waits for the interpreter
 * must be given the time to wake: taken back at once it never changes hands, and each try sets the other's patience back. */
void agx_unpickle_breathe(agx_unpickler *u)
{
        if (microseconds() - u->breathed < BREATH_APART_US)
                return;
        Py_BEGIN_ALLOW_THREADS;
        nanosleep(&(struct timespec){.tv_nsec = BREATH_NS}, NULL);
        Py_END_ALLOW_THREADS;
        u->breathed = microseconds();
}

/* --- stack --- */

static int grow_stack(agx_unpickler *u)
{
        size_t size = 2 * u->stack_size;
        if (agx_unpickle_charge(u, (size - u->stack_size) * (sizeof *u->stack + sizeof *u->nest)) < 0)
                return -1;
        if (resize_from(&u->stack, u->first_stack, size, sizeof *u->stack) < 0 ||
            resize_from(&u->nest, u->first_nest, size, sizeof *u->nest) < 0)
                return -1;
        u->stack_size = size;
        return 0;
}

int agx_unpickle_push_slow(agx_unpickler *u, PyObject *object, size_t nest)
{
        if (!object)
                return -1;
        int r = nest > AGX_VALUE_NESTING ? agx_unpickle_fail_budget(u, "tuples are nested too deep") : 0;
        if (r == 0 && u->n == u->stack_size)
                r = grow_stack(u);
        if (r == 0)
                return agx_unpickle_push(u, object, nest);
        Py_DECREF(object);
        return r;
}

int agx_unpickle_need(agx_unpickler *u, size_t n)
{
        if (u->n - u->fence >= n)
                return 0;
        return agx_unpickle_fail_malformed(u, u->n >= n ? "a mark where a value was expected" : "the stack is empty");
}

void agx_unpickle_cut(agx_unpickler *u, size_t from)
{
        while (u->n > from) {
                PyObject *object = u->stack[--u->n];
                Py_DECREF(object);
        }
}

int agx_unpickle_values(agx_unpickler *u, size_t from)
{
        if (!u->functions)
                return 0;
        for (size_t i = from; i < u->n; i++)
                if (PyCapsule_CheckExact(u->stack[i]))
                        return agx_unpickle_fail_malformed(u, "a function cannot be part of a value");
        return 0;
}

/* --- marks --- */

int agx_unpickle_mark(agx_unpickler *u)
{
        if (u->n_marks == AGX_VALUE_MARKS)
                return agx_unpickle_fail_budget(u, "too many open marks");
        if (u->n_marks == u->marks_size) {
                size_t size = 2 * u->marks_size;
                if (resize_from(&u->marks, u->first_marks, size, sizeof *u->marks) < 0)
                        return -1;
                u->marks_size = size;
        }
        u->marks[u->n_marks++] = u->fence = u->n;
        return 0;
}

int agx_unpickle_unmark(agx_unpickler *u, size_t *from)
{
        if (u->n_marks == 0)
                return agx_unpickle_fail_malformed(u, "no mark is set");
        *from = u->marks[--u->n_marks];
        u->fence = u->n_marks ? u->marks[u->n_marks - 1] : 0;
        return 0;
}

/* --- memo --- */

static int grow_memo(agx_unpickler *u, size_t least)
{
        size_t size = 2 * u->memo_size;
        if (size < least)
                size = least;
        if (agx_unpickle_charge(u, (size - u->memo_size) * (sizeof *u->memo + sizeof *u->memo_nest)) < 0)
                return -1;
        if (resize_from(&u->memo, u->first_memo, size, sizeof *u->memo) < 0 ||
            resize_from(&u->memo_nest, u->first_memo_nest, size, sizeof *u->memo_nest) < 0)
                return -1;
        memset(u->memo + u->memo_size, 0, (size - u->memo_size) * sizeof *u->memo);
        u->memo_size = size;
        return 0;
}

int agx_unpickle_put(agx_unpickler *u, uint64_t index)
{
        if (agx_unpickle_need(u, 1) < 0)
                return -1;
        if (index > agx_unpickle_place(u, u->reader.pos))
                return agx_unpickle_fail_malformed(u, "a memo index out of all proportion");
        if (index >= u->memo_size && grow_memo(u, (size_t)index + 1) < 0)
                return -1;
        PyObject *old = u->memo[index];
        u->memo[index] = Py_NewRef(u->stack[u->n - 1]);
        u->memo_nest[index] = u->nest[u->n - 1];
        if (!old)
                u->memo_used++;
        Py_XDECREF(old);
        return 0;
}

int agx_unpickle_get(agx_unpickler *u, uint64_t index)
{
        if (index >= u->memo_size || !u->memo[index])
                return agx_unpickle_fail_malformed(u, "a memo index that was never set");
        return agx_unpickle_push(u, Py_NewRef(u->memo[index]), u->memo_nest[index]);
}

/* --- named globals --- */

int agx_unpickle_remember(agx_unpickler *u, PyObject *object, const agx_global *row)
{
        if (agx_unpickle_find(u, object))
                return 0;
        if (u->n_named == u->named_size) {
                size_t size = u->named_size ? 2 * u->named_size : AGX_FIRST_SIZE;
                if (resize(&u->named, size, sizeof *u->named) < 0)
                        return -1;
                u->named_size = size;
        }
        u->subject = NULL;
        u->named[u->n_named++] = (agx_named){.object = Py_NewRef(object), .row = row};
        return 0;
}

agx_named *agx_unpickle_find(const agx_unpickler *u, const void *object)
{
        for (size_t i = 0; i < u->n_named; i++)
                if (u->named[i].object == object)
                        return &u->named[i];
        return NULL;
}

/* --- flags: an open-addressing table, at most half full --- */

static size_t flag_slot(const agx_flags *f, const void *object)
{
        uint64_t hash = (uint64_t)(uintptr_t)object * 0x9E3779B97F4A7C15u;
        size_t i = (size_t)(hash >> 32) & (f->size - 1);
        while (f->slots[i].object && f->slots[i].object != object)
                i = (i + 1) & (f->size - 1);
        return i;
}

static int grow_flags(agx_flags *f)
{
        agx_flags fresh = {.used = f->used, .size = f->size ? 2 * f->size : AGX_FIRST_SIZE};
        if (resize(&fresh.slots, fresh.size, sizeof *fresh.slots) < 0)
                return -1;
        memset(fresh.slots, 0, fresh.size * sizeof *fresh.slots);
        for (size_t i = 0; i < f->size; i++)
                if (f->slots[i].object)
                        fresh.slots[flag_slot(&fresh, f->slots[i].object)] = f->slots[i];
        PyMem_Free(f->slots);
        *f = fresh;
        return 0;
}

unsigned agx_unpickle_flags(const agx_unpickler *u, const void *object)
{
        return u->flags.size ? u->flags.slots[flag_slot(&u->flags, object)].bits : 0;
}

int agx_unpickle_set_flags(agx_unpickler *u, const void *object, unsigned bits)
{
        agx_flags *f = &u->flags;
        if (2 * f->used >= f->size &&
            (agx_unpickle_charge(u, (f->size + AGX_FIRST_SIZE) * sizeof *f->slots) < 0 || grow_flags(f) < 0))
                return -1;
        struct agx_flag *flag = &f->slots[flag_slot(f, object)];
        if (!flag->object)
                f->used++;
        *flag = (struct agx_flag){.object = object, .bits = bits};
        return 0;
}
