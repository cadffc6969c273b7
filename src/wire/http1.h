#ifndef AGX_WIRE_HTTP1_H
#define AGX_WIRE_HTTP1_H
/*
 * HTTP/1.1 (RFC 9112) messages in, events out, for both roles, over llhttp in its strict mode.
 *
 * Feed bytes with agx_http1_next(): it takes what it needs off the front of `*in` and gives one event at a time, until
 * AGX_HTTP1_MORE says that the input is used up. After a request's AGX_HTTP1_END nothing more is taken until the next
 * call, so pipelined requests wait in `*in`. "More" is not an error. Any error is final for the connection.
 *
 * Refused although llhttp or its elders let it pass: two framings or two lengths, a repeated Transfer-Encoding, any coding
 * but "chunked" alone, bare CR or LF, obs-fold, space before the colon, more than one space in a request line, an HTTP/1.1
 * request without exactly one well-formed Host, versions other than 1.0 and 1.1, and whatever exceeds agx_http1_bounds.
 * Empty lines before a request are passed over. After a message that is not kept alive any further byte is an error: who
 * gets END of such a message should stop reading. Trailers are checked and dropped.
 *
 * The events and the verdict depend on the bytes alone, never on how they were cut.
 *
 * Lifetimes: views in a head live until the next message begins; a body view lies in the input and lives as long. Memory
 * follows the bytes of the head, is kept from message to message, and is nothing for a body.
 */
#include "base/buf.h"

typedef enum agx_http1_role {
        AGX_HTTP1_SERVER, /* reads requests */
        AGX_HTTP1_CLIENT  /* reads responses */
} agx_http1_role;

typedef struct agx_http1_bounds {
        size_t head_max;       /* bytes of start line and header fields, empty lines around them included */
        size_t headers_max;    /* header fields */
        size_t chunk_line_max; /* bytes of a chunk-size line */
        size_t trailer_max;    /* bytes of a trailer section */
        uint64_t body_max;     /* bytes of a body */
} agx_http1_bounds;

typedef struct agx_http1_field {
        agx_view name;  /* as sent; compare with agx_view_ieq */
        agx_view value; /* without the blanks around it */
} agx_http1_field;

typedef struct agx_http1_head {
        agx_view method; /* requests */
        agx_view target; /* requests */
        unsigned status; /* responses */
        bool http11;     /* false: HTTP/1.0 */
        bool keep_alive; /* whether another message may follow on the connection */
        bool chunked;
        bool has_length;
        uint64_t length;
        bool expect_continue; /* requests: "Expect: 100-continue" */
        bool upgrade;         /* an Upgrade the caller may honour: after END the rest of the input is not HTTP */
        const agx_http1_field *fields;
        size_t n_fields;
} agx_http1_head;

typedef enum agx_http1_kind {
        AGX_HTTP1_MORE, /* all input used, nothing to report */
        AGX_HTTP1_HEAD, /* ev.head is complete */
        AGX_HTTP1_BODY, /* ev.body: the next bytes of the body, chunking removed */
        AGX_HTTP1_END   /* the message is complete */
} agx_http1_kind;

typedef struct agx_http1_event {
        agx_http1_kind kind;
        const agx_http1_head *head; /* with HEAD; stays valid to END */
        agx_view body;
} agx_http1_event;

/* What agx_http1_next() returns besides 0 and -ENOMEM; each maps to a status a server answers before closing. */
enum {
        AGX_HTTP1_E_BAD = 1,   /* 400; also a chunk line or trailer beyond its bound */
        AGX_HTTP1_E_HEAD_SIZE, /* 431 */
        AGX_HTTP1_E_BODY_SIZE, /* 413: announced or actual; known before any byte of it is stored */
        AGX_HTTP1_E_VERSION    /* 505 */
};

typedef struct agx_http1 agx_http1;

int agx_http1_new(agx_http1 **parser, agx_http1_role role, const agx_http1_bounds *bounds);
void agx_http1_free(agx_http1 *parser);
AGX_DEFINE_CLEANUP_POINTER(agx_http1, agx_http1_free)
int agx_http1_next(agx_http1 *parser, agx_view *in, agx_http1_event *event);
/* The peer closed its side. 0: between messages, or it ended a body delimited by the close (then *event is END);
 * AGX_HTTP1_E_BAD: in the middle of one. */
int agx_http1_eof(agx_http1 *parser, agx_http1_event *event);
/* Clients: the next response answers a HEAD request or such and has no body. */
void agx_http1_expect_no_body(agx_http1 *parser);
/* A few words on the last error ("two lengths"), static. */
const char *agx_http1_reason(const agx_http1 *parser);

/* The field's value if it occurs exactly once, else an absent view; `*repeated` (may be NULL) tells the two apart. */
agx_view agx_http1_field_get(const agx_http1_head *head, agx_view name, bool *repeated);
/* Whether a comma-separated list field (all its lines) has `token`, ASCII case ignored. */
bool agx_http1_field_has_token(const agx_http1_head *head, agx_view name, agx_view token);

/* ---- writing ---- */

/* The standard phrase of a status ("Not Found"), or "Unknown". */
const char *agx_http1_phrase(unsigned status);
/* "HTTP/1.1 <status> <phrase>\r\n", then fields, then agx_http1_put_end(). Names and values are the caller's own words;
 * a CR, LF or NUL in them gives -EINVAL. Errors are those of agx_buf_append. */
int agx_http1_put_status(agx_buf *out, unsigned status);
int agx_http1_put_request(agx_buf *out, agx_view method, agx_view target);
int agx_http1_put_field(agx_buf *out, agx_view name, agx_view value);
int agx_http1_put_length(agx_buf *out, uint64_t length);
int agx_http1_put_end(agx_buf *out);

#endif
