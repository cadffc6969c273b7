#ifndef AGX_PROTO_FIELDS_H
#define AGX_PROTO_FIELDS_H
/*
 * Reading a msgpack map into a struct by a table: the one place that knows how strict we are.
 *
 * A known key with nil counts as absent. A known key twice, or with another type than the table says, is an error.
 * Keys that are not in the table, keys that are not str included, are passed over with their values. str and bin are
 * told apart. The caller zeroes the struct first and decides which fields must be there, from the mask it gets.
 */
#include "wire/msgpack.h"

typedef enum agx_field_kind {
        AGX_FIELD_STR,     /* agx_view */
        AGX_FIELD_BIN,     /* agx_view */
        AGX_FIELD_ARRAY,   /* agx_view: the array as sent */
        AGX_FIELD_BOOL,    /* bool */
        AGX_FIELD_UINT,    /* uint64_t */
        AGX_FIELD_INT,     /* int64_t */
        AGX_FIELD_FAULT,   /* agx_fault */
        AGX_FIELD_LAX_STR, /* as STR, but any other type counts as absent */
        AGX_FIELD_LAX_BIN,
        AGX_FIELD_LAX_NUMBER /* double: a float or an int; any other type counts as absent */
} agx_field_kind;

typedef struct agx_field {
        agx_view key;
        agx_field_kind kind;
        size_t offset;
        const char *wrong; /* the error texts */
        const char *twice;
} agx_field;

/* A row: the member of `type` that `key_` is read into. */
#define AGX_FIELD(type, member, key_, kind_, kind_text)                                                                \
        {                                                                                                              \
                .key = {"" key_, sizeof(key_) - 1}, .kind = AGX_FIELD_##kind_, .offset = offsetof(type, member),       \
                .wrong = key_ " is not " kind_text, .twice = key_ " occurs twice"                                      \
        }

typedef struct agx_fields {
        const agx_field *rows; /* at most 32 */
        size_t n;
        uint32_t known; /* the rows that count; the others' keys are passed over */
} agx_fields;

/* Reads the map that comes next, which may hold containers `depth` - 1 deep. `*present` gets a bit for each row that
 * has a value. False: r->error says why. */
bool agx_fields_read(agx_mp_reader *r, agx_fields fields, size_t depth, void *object, uint32_t *present);

#endif
