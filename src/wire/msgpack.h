#ifndef AGX_WIRE_MSGPACK_H
#define AGX_WIRE_MSGPACK_H
/*
 * msgpack, both ways, without trees.
 *
 * Writing appends to a buffer through msgpack-c's packing templates. The error is sticky: after the first failure the
 * verbs do nothing, and agx_mp_writer_end() tells; the buffer may then hold a part of the value, to be truncated by
 * who knows where it began. Reading is a cursor over bytes that are all there: each call gives
 * the next token; strings and binaries are views into the input and live as long as it. It allocates nothing, checks
 * every announced length or count against the bytes left (an element takes at least one), bounds nesting in
 * agx_mp_skip() by its argument, and insists on valid UTF-8 in str. Its error is sticky too.
 */
#include "base/buf.h"

/* ---- writer ---- */

typedef struct agx_mp_writer {
        agx_buf *out;
        int error; /* 0, AGX_BUF_E_FULL or -ENOMEM */
} agx_mp_writer;

agx_mp_writer agx_mp_writer_on(agx_buf *out);
void agx_mp_put_map(agx_mp_writer *w, size_t pairs);
void agx_mp_put_array(agx_mp_writer *w, size_t items);
void agx_mp_put_str(agx_mp_writer *w, agx_view v);
void agx_mp_put_bin(agx_mp_writer *w, agx_view v);
/* Only the head of a bin of `n` bytes: the caller sends the bytes themselves from elsewhere. */
void agx_mp_put_bin_head(agx_mp_writer *w, size_t n);
void agx_mp_put_int(agx_mp_writer *w, int64_t i);
void agx_mp_put_uint(agx_mp_writer *w, uint64_t u);
void agx_mp_put_float(agx_mp_writer *w, double d);
void agx_mp_put_bool(agx_mp_writer *w, bool b);
void agx_mp_put_nil(agx_mp_writer *w);
/* 0, AGX_BUF_E_FULL (the buffer's ceiling) or -ENOMEM. */
int agx_mp_writer_end(const agx_mp_writer *w);

/* ---- reader ---- */

typedef enum agx_mp_kind {
        AGX_MP_END,   /* no bytes left */
        AGX_MP_ERROR, /* malformed; sticky */
        AGX_MP_NIL,
        AGX_MP_BOOL,
        AGX_MP_INT,  /* negative: .i */
        AGX_MP_UINT, /* zero or positive: .u */
        AGX_MP_FLOAT,
        AGX_MP_STR,   /* .v */
        AGX_MP_BIN,   /* .v */
        AGX_MP_ARRAY, /* .count items follow */
        AGX_MP_MAP,   /* .count pairs follow */
        AGX_MP_EXT    /* .ext_type, .v */
} agx_mp_kind;

typedef struct agx_mp_token {
        agx_mp_kind kind;
        int8_t ext_type;
        union {
                bool b;
                int64_t i;
                uint64_t u;
                double d;
                size_t count;
                agx_view v;
        };
} agx_mp_token;

typedef struct agx_mp_reader {
        agx_view rest;
        const char *error; /* what is wrong, static text; NULL while all is well */
} agx_mp_reader;

agx_mp_reader agx_mp_reader_on(agx_view bytes);
agx_mp_token agx_mp_next(agx_mp_reader *r);
/* The deepest nesting that agx_mp_skip() can follow, whatever its argument. */
enum { AGX_MP_DEPTH_MAX = 128 };

/* Passes over one whole value, containers included, at most `depth` of them deep, without recursion. False on error,
 * which includes a value that is not there or not whole. */
bool agx_mp_skip(agx_mp_reader *r, size_t depth);
/* True when all bytes are used and no error came: a message followed by more bytes is malformed. */
bool agx_mp_done(const agx_mp_reader *r);

#endif
