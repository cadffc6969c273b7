#ifndef AGX_CLIENT_LANDING_H
#define AGX_CLIENT_LANDING_H
/*
 * Where large bytes of a reply come to lie: in memory of the shell's, which is the object that the caller gets.
 *
 * The first bytes of a reply are looked at once. If its value is a pickle that begins with little else before bytes (or a
 * bytearray) of AGX_LANDING_MIN and more, what comes of these goes to that memory, and the body keeps the rest: a reply whose
 * value is the same pickle with an opcode NEXT_BUFFER in the place of the bytes.
 *
 * The memory is never larger than twice what has come of the bytes and AGX_LANDING_ROOM: lengths are a stranger's word.
 */
#include "base/buf.h"

enum {
        AGX_LANDING_MIN = 256 << 10,
        AGX_LANDING_ROOM = 256 << 10,
        AGX_LANDING_OP = 9, /* an opcode and its length */
};

typedef enum agx_landing_kind { AGX_LANDING_BYTES, AGX_LANDING_BYTEARRAY } agx_landing_kind;

typedef struct agx_landing_memory {
        /* Memory for `n` bytes, where those that `object` (NULL: none yet) has stay the first ones; `*data`: where it is.
         * NULL: there is none, and `object` is gone. The first time it may also mean that such bytes are not to land. */
        void *(*resize)(void *object, agx_landing_kind kind, size_t n, char **data);
        void (*drop)(void *object);
} agx_landing_memory;

typedef struct agx_landing {
        const agx_landing_memory *memory;
        void *object; /* NULL: nothing lands here */
        char *data;
        size_t size, got, room;
        size_t at; /* where in the body the opcode NEXT_BUFFER is */
        agx_landing_kind kind;
        bool looked, failed; /* failed: there was no memory */
        size_t n_head;
        uint8_t head[AGX_LANDING_OP]; /* what it stands for, with the bytes behind it */
} agx_landing;

/* Large bytes of a value, which lie by themselves: the value then is a pickle in which an opcode NEXT_BUFFER stands for
 * them. */
typedef struct agx_client_landed {
        void *object; /* NULL: there are none */
        size_t size;
        size_t at; /* where in the value that opcode is */
        size_t n_head;
        uint8_t head[AGX_LANDING_OP]; /* the opcode and the length that it stands for */
} agx_client_landed;

/* Anything zeroed is one on which nothing lands. */
void agx_landing_empty(agx_landing *l);
static inline void agx_landing_drop(agx_landing *l)
{
        if (l->looked)
                agx_landing_empty(l);
}
/* Looks at the body that has begun, if there is enough of it, once; lowers its ceiling by what does not go into it. 0 or
 * -ENOMEM. */
int agx_landing_look(agx_landing *l, const agx_landing_memory *memory, agx_buf *body);
/* Takes from the front of `*bytes` what belongs here. 0 or -ENOMEM. */
int agx_landing_take(agx_landing *l, agx_view *bytes);
/* A place for the next `n` bytes, or fewer of them; 0: none. */
agx_view agx_landing_place(agx_landing *l, size_t n);
/* Bytes are awaited here. */
static inline bool agx_landing_is_open(const agx_landing *l)
{
        return l->object && l->got < l->size;
}

#endif
