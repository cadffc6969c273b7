/*
 * Pickle opcode reader: turns a complete pickle into one opcode after the other.
 *
 * This is the half of the restricted decoder that knows bytes and no Python: it classifies every opcode of the
 * protocols 0 to 5, cuts out its argument and checks everything that can be checked without objects. What an opcode
 * does is the caller's business.
 *
 * Invariants:
 *  - data[0 .. len) is borrowed and must stay in place while the reader and any view it gave are in use;
 *  - pos <= end <= len; nothing at or behind end is ever read, end being the end of the current frame or of the data;
 *  - a length is believed only if that many bytes are there;
 *  - after an error the reader stands still: every further call gives the same error;
 *  - the reader allocates nothing and has nothing to release.
 */
#ifndef AGX_WIRE_PICKLE_H
#define AGX_WIRE_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/view.h"

/* The newest protocol there is. */
#define AGX_PICKLE_PROTOCOL_MAX 5

typedef struct agx_pickle agx_pickle;
typedef struct agx_pickle_op agx_pickle_op;
typedef struct agx_pickle_limits agx_pickle_limits;

/* What an opcode asks for. Several opcodes that differ only in how they write their argument share a kind. */
typedef enum agx_pickle_kind {
        AGX_PICKLE_UNKNOWN = 0, /* not an opcode of any protocol; never returned */

        /* the stream itself */
        AGX_PICKLE_PROTO, /* u = protocol; only at the very start */
        AGX_PICKLE_FRAME, /* never returned, the reader follows frames itself */
        AGX_PICKLE_STOP,  /* the last byte of the data, or it would have been an error */

        /* values without content of their own */
        AGX_PICKLE_NONE,
        AGX_PICKLE_TRUE,
        AGX_PICKLE_FALSE,
        AGX_PICKLE_INT,        /* i */
        AGX_PICKLE_BIG_BINARY, /* view[0]: two's complement, little-endian, 9 bytes or more */
        AGX_PICKLE_BIG_TEXT,   /* view[0]: decimal digits, perhaps after a '-' */
        AGX_PICKLE_FLOAT,      /* f */
        AGX_PICKLE_FLOAT_TEXT, /* view[0]: characters a float literal is made of, or a name of infinity or not-a-number */
        AGX_PICKLE_BYTES,      /* view[0] */
        AGX_PICKLE_BYTEARRAY,  /* view[0] */
        AGX_PICKLE_TEXT,       /* view[0]: UTF-8, not checked */
        AGX_PICKLE_TEXT_RAW,   /* view[0]: raw-unicode-escape, not checked */
        AGX_PICKLE_OLD_TEXT,   /* view[0]: a Python 2 string, not checked */
        AGX_PICKLE_OLD_QUOTED, /* view[0]: a Python 2 string as a literal; the quotes are checked and cut off */

        /* containers */
        AGX_PICKLE_EMPTY_LIST,
        AGX_PICKLE_EMPTY_TUPLE,
        AGX_PICKLE_EMPTY_DICT,
        AGX_PICKLE_EMPTY_SET,
        AGX_PICKLE_LIST,
        AGX_PICKLE_TUPLE,
        AGX_PICKLE_TUPLE1,
        AGX_PICKLE_TUPLE2,
        AGX_PICKLE_TUPLE3,
        AGX_PICKLE_DICT,
        AGX_PICKLE_FROZENSET,
        AGX_PICKLE_APPEND,
        AGX_PICKLE_APPENDS,
        AGX_PICKLE_SETITEM,
        AGX_PICKLE_SETITEMS,
        AGX_PICKLE_ADDITEMS,

        /* stack and memo */
        AGX_PICKLE_MARK,
        AGX_PICKLE_POP,
        AGX_PICKLE_POP_MARK,
        AGX_PICKLE_DUP,
        AGX_PICKLE_PUT, /* u = index */
        AGX_PICKLE_GET, /* u = index */
        AGX_PICKLE_MEMOIZE,

        /* names and what is done with them */
        AGX_PICKLE_GLOBAL, /* view[0] = module, view[1] = name: UTF-8, not checked */
        AGX_PICKLE_STACK_GLOBAL,
        AGX_PICKLE_REDUCE,
        AGX_PICKLE_BUILD,
        AGX_PICKLE_NEWOBJ,
        AGX_PICKLE_NEWOBJ_EX,

        /* opcodes a restricted decoder has no use for; their arguments are not read */
        AGX_PICKLE_INST,
        AGX_PICKLE_OBJ,
        AGX_PICKLE_EXT,
        AGX_PICKLE_PERSID,
        AGX_PICKLE_BUFFER,

        AGX_PICKLE_KINDS
} agx_pickle_kind;

/* Conditions of agx_pickle_next(). */
enum {
        AGX_PICKLE_E_TRUNCATED = 1, /* the data, or the frame, ends inside an opcode or before STOP */
        AGX_PICKLE_E_OPCODE,        /* no such opcode */
        AGX_PICKLE_E_PROTOCOL,      /* a protocol above 5, or PROTO elsewhere than at the start */
        AGX_PICKLE_E_FRAME,         /* a frame inside a frame, or longer than the data */
        AGX_PICKLE_E_LENGTH,        /* a negative length */
        AGX_PICKLE_E_NUMBER,        /* text that is no number */
        AGX_PICKLE_E_DIGITS,        /* an integer with more digits, or more bytes, than the limits allow */
        AGX_PICKLE_E_QUOTES,        /* a Python 2 string literal without matching quotes */
        AGX_PICKLE_E_TRAILING,      /* something follows STOP */
        AGX_PICKLE_E_STOPPED,       /* next() after STOP */
};

struct agx_pickle_op {
        agx_pickle_kind kind;
        uint8_t code; /* the opcode's byte */
        size_t pos;   /* where that byte stands */
        union {
                int64_t i;
                uint64_t u;
                double f;
                agx_view view[2]; /* into the data given at init */
        };
};

struct agx_pickle_limits {
        size_t int_bytes;  /* longest integer in binary form */
        size_t int_digits; /* longest integer in decimal form */
};

struct agx_pickle {
        const uint8_t *data;
        size_t len;
        size_t pos;
        size_t end; /* of the current frame; len when there is none */
        agx_pickle_limits limits;
        size_t err_pos;
        int err;
        bool framed;
        bool stopped;
};

/* Starts at the first byte. @data may be NULL if @len is 0. */
void agx_pickle_init(agx_pickle *p, const void *data, size_t len, agx_pickle_limits limits);

/*
 * Reads one opcode into @op.
 * Returns 0, or one of AGX_PICKLE_E_*: the error is then kept, agx_pickle_err_pos() says where, and @op is undefined
 * but for its pos.
 */
int agx_pickle_next(agx_pickle *p, agx_pickle_op *op);

/* LONG1 at @b, with @left bytes to the end. The length of it all, or 0: it is not whole, or for the reader to refuse. */
static inline size_t agx_pickle_long1(const agx_pickle *p, agx_pickle_op *op, const uint8_t *b, size_t left)
{
        const size_t n = b[1];
        uint64_t v;

        if (n == 0 || n > left - 2 || n > p->limits.int_bytes)
                return 0;
        if (n > 8) {
                op->kind = AGX_PICKLE_BIG_BINARY;
                op->view[0] = agx_view_of(b + 2, n);
                return 2 + n;
        }
        v = b[1 + n] & 0x80 ? UINT64_MAX : 0;
        for (size_t i = n; i > 0; i--)
                v = v << 8 | b[1 + i];
        op->kind = AGX_PICKLE_INT;
        op->i = (int64_t)v;
        return 2 + n;
}

/*
 * Reads what comes in long runs without a detour: if an integer in binary form is next, not too near the end, @op is
 * what agx_pickle_next() would make of it. False: nothing was read, ask that one.
 */
static inline bool agx_pickle_next_int(agx_pickle *p, agx_pickle_op *op)
{
        enum { LONGEST = 5, LONG1 = 0x8a };
        const size_t left = p->end - p->pos;
        const uint8_t *b;
        size_t size;

        if (left < LONGEST)
                return false;
        b = p->data + p->pos;
        op->kind = AGX_PICKLE_INT;
        if (b[0] == 'K') {
                op->i = b[1];
                size = 2;
        } else if (b[0] == 'M') {
                op->i = b[1] | b[2] << 8;
                size = 3;
        } else if (b[0] == 'J') {
                op->i = (int32_t)((uint32_t)b[1] | (uint32_t)b[2] << 8 | (uint32_t)b[3] << 16 | (uint32_t)b[4] << 24);
                size = LONGEST;
        } else {
                size = b[0] == LONG1 ? agx_pickle_long1(p, op, b, left) : 0;
        }
        if (!size)
                return false;
        op->code = b[0];
        op->pos = p->pos;
        p->pos += size;
        return true;
}

/* The position of the opcode that could not be read. */
size_t agx_pickle_err_pos(const agx_pickle *p);

/* A few words for one of AGX_PICKLE_E_*, without position; never NULL. */
const char *agx_pickle_strerror(int err);

/* The documented name of an opcode's byte ("STACK_GLOBAL"), or NULL if there is no such opcode. */
const char *agx_pickle_opcode_name(uint8_t code);

/* How a byte is classified; AGX_PICKLE_UNKNOWN if it is no opcode. */
agx_pickle_kind agx_pickle_opcode_kind(uint8_t code);

#endif
