#ifndef AGX_WIRE_JSON_H
#define AGX_WIRE_JSON_H
/*
 * JSON (RFC 8259), both ways, without trees.
 *
 * Reading is a cursor over bytes that are all there: each call gives the next token. It allocates nothing, does not
 * recurse, bounds nesting by an argument, and insists on the grammar: valid UTF-8, no bare control characters, no lone
 * surrogates, no comments, no commas before an end, nothing behind the value. Strings and numbers are views into the
 * input, as they are written there; agx_json_text() and agx_json_is() undo escapes. What a repeated key means is for
 * the caller to say. The error is sticky.
 *
 * Writing appends to a buffer and sets the commas. Its error is sticky too; the buffer may then hold a part of the value.
 */
#include "base/buf.h"

/* ---- reader ---- */

typedef enum agx_json_kind {
        AGX_JSON_END,   /* the value and all its bytes are passed */
        AGX_JSON_ERROR, /* malformed; sticky */
        AGX_JSON_NULL,
        AGX_JSON_BOOL,   /* .b */
        AGX_JSON_NUMBER, /* .v, as written */
        AGX_JSON_STRING, /* .v, what is between the quotes */
        AGX_JSON_KEY,    /* .v likewise; its value comes next */
        AGX_JSON_ARRAY,
        AGX_JSON_ARRAY_END,
        AGX_JSON_OBJECT,
        AGX_JSON_OBJECT_END
} agx_json_kind;

typedef struct agx_json_token {
        agx_json_kind kind;
        bool b;
        bool escaped; /* .v has escapes in it */
        agx_view v;
} agx_json_token;

enum { AGX_JSON_DEPTH_MAX = 64 };

typedef struct agx_json_reader {
        agx_view rest;
        const char *error; /* what is wrong, static text; NULL while all is well */
        uint64_t objects;  /* for each open level, whether it is an object */
        unsigned depth;    /* open levels */
        unsigned depth_max;
        int expect;
} agx_json_reader;

/* `depth_max`: arrays and objects inside one another, at most AGX_JSON_DEPTH_MAX. */
agx_json_reader agx_json_reader_on(agx_view bytes, unsigned depth_max);
agx_json_token agx_json_next(agx_json_reader *r);
/* Passes over one whole value and gives its bytes as they are; absent on error, or if no value comes next (an end). */
agx_view agx_json_skip(agx_json_reader *r);
/* True when the value and all bytes are passed and no error came. */
bool agx_json_done(agx_json_reader *r);

/* Whether a STRING or KEY says `text`. */
bool agx_json_is(const agx_json_token *token, agx_view text);
/* Appends what a STRING or KEY says. Errors are those of agx_buf_append. */
int agx_json_text(const agx_json_token *token, agx_buf *out);
/* A NUMBER that is a plain whole one in 0..max: no sign, fraction or exponent. */
bool agx_json_u64(const agx_json_token *token, uint64_t max, uint64_t *value);

/* ---- writer ---- */

typedef struct agx_json_writer {
        agx_buf *out;
        int error;  /* 0, AGX_BUF_E_FULL, -ENOMEM, or -EINVAL for a string that is not UTF-8 */
        bool comma; /* before the next item */
} agx_json_writer;

agx_json_writer agx_json_writer_on(agx_buf *out);
void agx_json_put_object(agx_json_writer *w);
void agx_json_put_object_end(agx_json_writer *w);
void agx_json_put_array(agx_json_writer *w);
void agx_json_put_array_end(agx_json_writer *w);
void agx_json_put_key(agx_json_writer *w, agx_view key);
void agx_json_put_string(agx_json_writer *w, agx_view text);
void agx_json_put_u64(agx_json_writer *w, uint64_t u);
void agx_json_put_bool(agx_json_writer *w, bool b);
void agx_json_put_null(agx_json_writer *w);
/* A value that is JSON already; it is not looked at. */
void agx_json_put_raw(agx_json_writer *w, agx_view json);
int agx_json_writer_end(const agx_json_writer *w);

#endif
