/*
 * The restricted decoder's machine: the objects, the stack and the memo of one load.
 *
 * src/wire/pickle.h reads opcodes; the files unpickle*.c give them a meaning:
 *   unpickle.c             agentix._core.restricted_loads(): the loop, and the table of one function per kind of opcode
 *   unpickle_plain.c       those of values without parts
 *   unpickle_ints.c        of integers
 *   unpickle_containers.c  of tuples, lists, dicts and sets
 *   unpickle_calls.c       of names, of what is done with them, and those that are refused
 *   unpickle_stack.c       stack, marks, memo, the globals this load has named
 *   unpickle_limits.c      memory, hash work, CPU time, chains: what a value may cost
 *   unpickle_gc.c          the garbage collector during a large load
 *   unpickle_globals.c     the table of (module, name) pairs and how one becomes an object
 *   unpickle_build.c       what REDUCE, NEWOBJ and BUILD mean for the standard types of the table
 *   unpickle_errors.c      exceptions as values
 *   unpickle_registered.c  classes the host has admitted
 *   unpickle_declared.c    classes that the called function's return annotation admits
 *   unpickle_numpy.c       arrays and scalars of plain dtypes
 *   unpickle_fail.c        every text of RestrictedUnpickleError
 *
 * Rules that keep it safe:
 *  - an object gets onto the stack only as a value written out in the stream, from the table, or from a builder;
 *  - nothing is called that the table does not list, and then by that row's builder, which checks the arguments;
 *  - lists, dicts and sets of exactly those types can only have been made by this load, so they may be filled;
 *  - rows of the table that stand for functions are capsules here and can only be the callable of a REDUCE.
 *
 * Functions return 0, or -1 (NULL) with an exception set, unless they say otherwise. References are borrowed unless a
 * comment says that one is taken over ("steals") or given ("new").
 */
#ifndef AGX_EXT_UNPICKLE_H
#define AGX_EXT_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "landed.h"
#include "proto/limits.h"
#include "state.h"
#include "wire/pickle.h"

typedef struct agx_unpickler agx_unpickler;
typedef struct agx_global agx_global;

/* Makes an object from a callable and an argument tuple. New reference. */
typedef PyObject *(*agx_reduce_fn)(agx_unpickler *u, PyObject *callable, PyObject *args);
/* Gives an object of this load its state. */
typedef int (*agx_build_fn)(agx_unpickler *u, PyObject *object, PyObject *state);
/* Appends the values from stack[from] on, or stores them as pairs, or adds them. */
typedef int (*agx_fill_fn)(agx_unpickler *u, PyObject *object, size_t from);

typedef enum agx_global_kind {
        AGX_GLOBAL_TYPE,     /* a class; must resolve to one */
        AGX_GLOBAL_CONSTANT, /* an object such as Ellipsis, a value by itself */
        AGX_GLOBAL_FUNCTION, /* stands for what its builder does; never resolved */
} agx_global_kind;

/* A row of the table. What is NULL is refused. */
struct agx_global {
        const char *module, *name; /* as streams spell it */
        const char *home, *attr;   /* where the object lives on this host */
        agx_global_kind kind;
        bool present; /* the home module is only looked up, not imported: it is not in the standard library */
        agx_reduce_fn reduce;
        agx_reduce_fn newobj;
        agx_build_fn build;
        agx_fill_fn append, setitem;
};

/* A global that this load has named, with the object it is and what its builders have found out about it. */
typedef struct agx_named {
        PyObject *object;
        const agx_global *row;
        PyObject *
                cached; /* owned; an admitted class's __setstate__, a declared one's plan, SafeUUID.unknown; NULL: none */
        bool learnt;    /* an admitted class: cached and is_enum are valid */
        bool is_enum;
} agx_named;

/* Per-object flags of the few objects that need them, by address. */
enum {
        AGX_FLAG_INSIDE = 1,  /* a chained container stored directly in another one */
        AGX_FLAG_AROUND = 2,  /* a chained container that directly holds another one */
        AGX_FLAG_COUNTED = 4, /* both of the above, and counted as such */
        AGX_FLAG_SHARED = 8,  /* made by a class's own __new__, and not ours alone */
        AGX_FLAG_WAITS = 16,  /* of a declared class, and without its fields */
};
typedef struct agx_flags {
        struct agx_flag {
                const void *object;
                unsigned bits;
        } * slots;
        size_t used, size;
} agx_flags;

enum { AGX_FIRST_SIZE = 32, AGX_SCRATCHES = 5 };

/* A function of C that takes its arguments without a tuple, which costs more than a number itself. */
typedef PyObject *(*agx_fast_function)(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names);

/* What integers of more than eight bytes are made with; looked up when the first one comes. */
typedef struct agx_big_ints {
        PyObject *from_bytes;   /* owned: int.from_bytes */
        agx_fast_function fast; /* what is behind it, or NULL */
        PyObject *self;
        PyObject *little; /* owned */
        struct {
                PyObject *object; /* owned: bytes that nobody else has, 16 and then twice as many each */
                char *bytes;
        } scratch[AGX_SCRATCHES];
} agx_big_ints;

struct agx_unpickler {
        agx_pickle reader;
        agx_pickle_op op;
        uint64_t breathed;  /* when, in us */
        PyObject *extra;    /* {(module, qualname): class} the host has admitted, or NULL */
        PyObject *declared; /* what gives {(module, qualname): plan or text} when it is called, or NULL */
        PyObject *plans;    /* owned: what it gave */
        size_t waiting;     /* objects with AGX_FLAG_WAITS */
        agx_unpickle_landed landed;

        PyObject **stack; /* owns its entries */
        uint16_t *nest;   /* beside it: how many tuples deep each entry is */
        size_t n, stack_size;
        size_t *marks;
        size_t n_marks, marks_size;
        size_t deepest; /* the largest nest of any tuple so far */
        size_t fence;   /* the last mark, or 0: nothing below it may be taken */

        PyObject **memo; /* owns its entries; NULL where nothing was put */
        uint16_t *memo_nest;
        size_t memo_used, memo_size;

        agx_named *named; /* owns the objects */
        size_t n_named, named_size;
        agx_named *subject; /* what the current REDUCE, NEWOBJ or BUILD is about, for error texts; may be NULL */
        bool functions;     /* a capsule has been on the stack */

        agx_flags flags;
        size_t chained;
        uint64_t memory_left, copy_left;
        uint64_t hash_work, steps, objects, code_steps;
        uint64_t clock_ns, cpu_ns; /* when the first clock check was made; 0: not yet */

        agx_big_ints big;

        /* The first of each, so that a small value needs no allocation; those from first_stack on are not cleared. */
        PyObject *first_memo[AGX_FIRST_SIZE];
        PyObject *first_stack[AGX_FIRST_SIZE];
        uint16_t first_nest[AGX_FIRST_SIZE], first_memo_nest[AGX_FIRST_SIZE];
        size_t first_marks[AGX_FIRST_SIZE];
};

/* --- unpickle_ints.c --- */

void agx_unpickle_big_deinit(agx_big_ints *b);

/* --- unpickle_stack.c --- */

/* Runs a whole load. New reference. Both of the last may be NULL. */
PyObject *agx_unpickle_load(const void *data, size_t len, PyObject *extra, PyObject *declared);
/* Likewise of a pickle of which large bytes lie by themselves. */
PyObject *agx_unpickle_load_landed(const agx_unpickle_landed *landed, PyObject *extra, PyObject *declared);

void agx_unpickle_init(agx_unpickler *u, const agx_unpickle_landed *landed);
/* Where something stands in the pickle as it was sent. */
static inline size_t agx_unpickle_place(const agx_unpickler *u, size_t pos)
{
        return pos > u->landed.at ? pos + u->landed.more : pos;
}
void agx_unpickle_deinit(agx_unpickler *u);

/* The rare cases of agx_unpickle_push(). */
int agx_unpickle_push_slow(agx_unpickler *u, PyObject *object, size_t nest);

/* Steals @object, also when it fails; NULL is an error already set. */
static inline int agx_unpickle_push(agx_unpickler *u, PyObject *object, size_t nest)
{
        if (!object || u->n == u->stack_size || nest > AGX_VALUE_NESTING)
                return agx_unpickle_push_slow(u, object, nest);
        u->stack[u->n] = object;
        u->nest[u->n++] = (uint16_t)nest;
        return 0;
}

/* Fails unless @n entries lie above the last mark. */
int agx_unpickle_need(agx_unpickler *u, size_t n);
/* Gives up the interpreter for a moment, if that was not done just before. */
void agx_unpickle_breathe(agx_unpickler *u);
/* Drops everything from stack[from] on. */
void agx_unpickle_cut(agx_unpickler *u, size_t from);
int agx_unpickle_mark(agx_unpickler *u);
/* Removes the last mark and says where on the stack it was. */
int agx_unpickle_unmark(agx_unpickler *u, size_t *from);
int agx_unpickle_put(agx_unpickler *u, uint64_t index);
int agx_unpickle_get(agx_unpickler *u, uint64_t index);
/* Fails if a function of the table is among stack[from ..): it must not become part of a value. */
int agx_unpickle_values(agx_unpickler *u, size_t from);

/* Remembers that @object is what @row names. */
int agx_unpickle_remember(agx_unpickler *u, PyObject *object, const agx_global *row);
/* NULL without exception if this load has not named @object. Valid until the next global is named. */
agx_named *agx_unpickle_find(const agx_unpickler *u, const void *object);

/* The flags of an object; 0 if there are none. */
unsigned agx_unpickle_flags(const agx_unpickler *u, const void *object);
int agx_unpickle_set_flags(agx_unpickler *u, const void *object, unsigned bits);

/* --- unpickle_limits.c --- */

/* Says that there is no memory left for what is to be made. */
int agx_unpickle_fail_memory(agx_unpickler *u);

/* Accounts for @bytes of objects about to be made. */
static inline int agx_unpickle_charge(agx_unpickler *u, uint64_t bytes)
{
        if (bytes > u->memory_left)
                return agx_unpickle_fail_memory(u);
        u->memory_left -= bytes;
        return 0;
}

/* Accounts for @bytes about to be copied from an object of this load, which a stream can ask for again and again. */
int agx_unpickle_copy(agx_unpickler *u, uint64_t bytes);
/* Accounts for @n items that go into a dict, past the table it has from the first one on. */
int agx_unpickle_charge_pairs(agx_unpickler *u, Py_ssize_t had, size_t n);
/* Reads the clock and compares. */
int agx_unpickle_check_clock(agx_unpickler *u);
/* Accounts for hashing a key that has parts. */
int agx_unpickle_visit_key(agx_unpickler *u, PyObject *key);

enum { AGX_STEPS_PER_CHECK = 64 };

/* Counts a step that can take long; looks at the clock now and then. */
static inline int agx_unpickle_step(agx_unpickler *u)
{
        return ++u->steps % AGX_STEPS_PER_CHECK == 0 ? agx_unpickle_check_clock(u) : 0;
}

/* Counts a step that rebuilds an object. */
static inline int agx_unpickle_object_step(agx_unpickler *u)
{
        u->objects++;
        return agx_unpickle_step(u);
}

/* Counts a step that runs code of a class. */
static inline int agx_unpickle_code_step(agx_unpickler *u)
{
        u->code_steps++;
        return agx_unpickle_step(u);
}

/* Accounts for hashing @key, which may be of any type. */
static inline int agx_unpickle_key(agx_unpickler *u, PyObject *key)
{
        if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key) || PyBytes_CheckExact(key))
                return 0;
        return agx_unpickle_visit_key(u, key);
}

/* Accounts for a deque or defaultdict @outer that takes in @inner, of any type. */
int agx_unpickle_chain(agx_unpickler *u, PyObject *outer, PyObject *inner);

/* --- unpickle_gc.c --- */

/* Around a load of a pickle of @len bytes. Neither leaves an exception, nor may one be set. */
void agx_unpickle_gc_rest(void);
void agx_unpickle_gc_resume(size_t len);

/* --- unpickle_globals.c --- */

/* Pushes what (module, name) stands for, or refuses it. The names are UTF-8. */
int agx_unpickle_global(agx_unpickler *u, agx_view module, agx_view name);
/* Whether this load has named the type of @object by a row with that builder. */
bool agx_unpickle_is(const agx_unpickler *u, PyObject *object, agx_reduce_fn reduce);

/* --- builders, for the table --- */

PyObject *agx_build_bytes(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_bytearray(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_latin1(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_set(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_complex(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_range(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_slice(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_ordered_dict(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_counter(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_deque(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_defaultdict(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_date(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_time(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_datetime(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_timedelta(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_timezone(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_decimal(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_fraction(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_path(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_uuid(agx_unpickler *u, PyObject *callable, PyObject *args);
int agx_build_uuid_state(agx_unpickler *u, PyObject *object, PyObject *state);
PyObject *agx_build_namespace(agx_unpickler *u, PyObject *callable, PyObject *args);
int agx_build_namespace_state(agx_unpickler *u, PyObject *object, PyObject *state);
/* copyreg._reconstructor, with which protocols 0 and 1 write what later ones write as NEWOBJ. */
PyObject *agx_build_reconstructor(agx_unpickler *u, PyObject *callable, PyObject *args);

int agx_fill_deque(agx_unpickler *u, PyObject *object, size_t from);
int agx_fill_ordered_dict(agx_unpickler *u, PyObject *object, size_t from);
int agx_fill_defaultdict(agx_unpickler *u, PyObject *object, size_t from);

PyObject *agx_build_exception(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_exception_group(agx_unpickler *u, PyObject *callable, PyObject *args);
int agx_build_exception_state(agx_unpickler *u, PyObject *object, PyObject *state);

/* Pushes a class that is declared, or refuses it. @key: (module, name). */
int agx_unpickle_push_declared(agx_unpickler *u, PyObject *module, PyObject *name, PyObject *key);

/* The row that stands for every class that is declared. */
extern const agx_global agx_declared;
/* The row that stands for every class the host has admitted. */
extern const agx_global agx_registered;
/* NEWOBJ_EX, which only admitted classes may use. */
PyObject *agx_build_registered_ex(agx_unpickler *u, PyObject *callable, PyObject *args, PyObject *kwargs);

PyObject *agx_build_ndarray(agx_unpickler *u, PyObject *callable, PyObject *args);
int agx_build_ndarray_state(agx_unpickler *u, PyObject *object, PyObject *state);
PyObject *agx_build_ndarray_buffer(agx_unpickler *u, PyObject *callable, PyObject *args);
PyObject *agx_build_dtype(agx_unpickler *u, PyObject *callable, PyObject *args);
int agx_build_dtype_state(agx_unpickler *u, PyObject *object, PyObject *state);
PyObject *agx_build_numpy_scalar(agx_unpickler *u, PyObject *callable, PyObject *args);

/* --- shared by builders --- */

/* None, bool, int, float, complex, str or bytes, of exactly that type. */
bool agx_unpickle_is_scalar(PyObject *object);
/* "__x__" */
bool agx_unpickle_is_dunder(PyObject *name);
/* 1 if @attr of @type is the very one that @base has, 0 if not. */
int agx_unpickle_inherits(PyObject *type, PyTypeObject *base, const char *attr);
/* Stores a state dict's items as attributes kept in the instance's own dict; no code of the class runs. */
int agx_unpickle_set_dict(agx_unpickler *u, PyObject *object, PyObject *state);
/* An argument tuple's item, or NULL without exception if there are fewer. */
PyObject *agx_unpickle_arg(PyObject *args, Py_ssize_t i);
/* agx_unpickle_fail_subject() where an object is expected. */
PyObject *agx_unpickle_bad(agx_unpickler *u, const char *what);
/* The pairs from stack[from] on go into a dict, or a subclass of dict without methods of its own. */
int agx_unpickle_set_pairs(agx_unpickler *u, PyObject *dict, size_t from);
/* Adds to a set, or to a frozenset that nobody has seen yet. */
int agx_unpickle_add(agx_unpickler *u, PyObject *set, PyObject *item);

/* --- unpickle_fail.c: all return -1 --- */

int agx_unpickle_fail_stream(agx_unpickler *u);                      /* what the reader found */
int agx_unpickle_fail_malformed(agx_unpickler *u, const char *what); /* a sequence of opcodes without meaning */
int agx_unpickle_fail_opcode(agx_unpickler *u, const char *why);     /* an opcode that is refused as such */
int agx_unpickle_fail_global(agx_unpickler *u, PyObject *module, PyObject *name,
                             const char *why);                     /* why: may be NULL */
int agx_unpickle_fail_subject(agx_unpickler *u, const char *what); /* about the current REDUCE, NEWOBJ or BUILD */
int agx_unpickle_fail_budget(agx_unpickler *u, const char *what);
/* Turns whatever exception is set into a RestrictedUnpickleError, MemoryError and non-Exceptions excepted. */
void agx_unpickle_fail_wrap(agx_unpickler *u);

#endif
