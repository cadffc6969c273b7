/*
 * The parser is a small machine of states, one function each, over two things: llhttp, which reads heads and the
 * framing of chunks, and a plain count of bytes for bodies whose length is known or that end with the connection.
 *
 * llhttp calls back; pulling is made of that by pausing it at the end of a head, of a chunk's size line and of a chunk.
 * So one run of it never passes more than one section, and the bytes of each section can be held against its bound
 * exactly: a run is given no more bytes than the section may still have. The same bytes therefore give the same events
 * and the same verdict however they are cut.
 *
 * After a head that announces no chunks llhttp is not resumed but reset when the next message begins.
 */
#include "wire/http1.h"
#include "base/err.h"
#include "base/list.h"
#include "wire/http1_head.h"

#include <llhttp.h>

typedef enum state {
        STATE_START, /* between messages */
        STATE_HEAD,
        STATE_FIXED,      /* a body of a known length */
        STATE_TO_EOF,     /* a body that ends with the connection */
        STATE_CHUNK_LINE, /* a chunk's size and extensions */
        STATE_CHUNK_DATA, /* a chunk's bytes and the line end behind them */
        STATE_TRAILER,    /* from the last chunk's line to the empty line */
        STATE_END,        /* the end is still to be told */
        STATE_FAILED
} state;

typedef enum step {
        STEP_MORE,  /* needs more input */
        STEP_AGAIN, /* the state has changed, go on */
        STEP_EVENT, /* *event says it */
        STEP_FAIL   /* parser->error says it */
} step;

struct agx_http1 {
        llhttp_t llhttp;
        agx_http1_bounds bounds;
        agx_http1_role role;
        state state;
        bool blank;        /* START: an empty line has begun */
        bool closed;       /* the last message said that none follows */
        bool version;      /* HEAD: the version is known to be ours */
        bool in_name;      /* HEAD: a field's name has begun */
        bool full;         /* HEAD: a name beyond the last allowed field has begun */
        bool protocol;     /* HEAD: the protocol's name has begun */
        size_t next;       /* HEAD: where the next word of a request line must begin */
        bool no_body;      /* the next final response has none */
        size_t used;       /* bytes of the current section */
        uint64_t body;     /* FIXED: bytes to come; chunks: bytes announced so far */
        const char *given; /* the first byte of this run of llhttp */
        agx_view data;     /* what llhttp called a body in this run */
        int error;
        const char *reason;
        agx_http1_store store;
};

/* ---- callbacks of llhttp ---- */

static agx_http1 *parser_of(llhttp_t *llhttp)
{
        return agx_container_of(llhttp, agx_http1, llhttp);
}

/* Turns an error of ours into one that stops llhttp. */
static int stop(agx_http1 *p, int error, const char *reason)
{
        p->error = error;
        p->reason = reason;
        return HPE_USER;
}

static int add(agx_http1 *p, agx_view *piece, const char *at, size_t n)
{
        int r = agx_http1_store_add(&p->store, piece, at, n);

        return r ? stop(p, r, "out of memory") : 0;
}

/* Where in the section a byte of this run is. */
static size_t offset_of(const agx_http1 *p, const char *at)
{
        return p->used + (size_t)(at - p->given);
}

/* llhttp passes over any number of spaces between the words of a request line; we insist on one. */
static bool in_place(const agx_http1 *p, const char *at)
{
        return offset_of(p, at) == p->next;
}

static int on_method(llhttp_t *llhttp, const char *at, size_t n)
{
        agx_http1 *p = parser_of(llhttp);

        p->next = offset_of(p, at) + n + 1;
        return add(p, &p->store.head.method, at, n);
}

static int on_url(llhttp_t *llhttp, const char *at, size_t n)
{
        agx_http1 *p = parser_of(llhttp);

        if (!p->store.head.target.p && !in_place(p, at))
                return stop(p, AGX_HTTP1_E_BAD, "more than a space before the target");
        p->next = offset_of(p, at) + n + 1;
        return add(p, &p->store.head.target, at, n);
}

/* llhttp speaks RTSP and ICE, too; of the three only HTTP begins with its letter. */
static int on_protocol(llhttp_t *llhttp, const char *at, size_t n)
{
        agx_http1 *p = parser_of(llhttp);

        if (!n || p->protocol)
                return 0;
        p->protocol = true;
        if (p->role == AGX_HTTP1_SERVER && !in_place(p, at))
                return stop(p, AGX_HTTP1_E_BAD, "more than a space before the version");
        return *at == 'H' ? 0 : stop(p, AGX_HTTP1_E_BAD, "not HTTP");
}

static int on_version_complete(llhttp_t *llhttp)
{
        agx_http1 *p = parser_of(llhttp);

        if (llhttp->http_major != 1 || llhttp->http_minor > 1)
                return stop(p, AGX_HTTP1_E_VERSION, "an HTTP version other than 1.0 and 1.1");
        p->version = true;
        p->store.head.http11 = llhttp->http_minor == 1;
        return 0;
}

/* llhttp lets any byte but a line end into a phrase. */
static int on_status(llhttp_t *llhttp, const char *at, size_t n)
{
        for (size_t i = 0; i < n; ++i)
                if (((unsigned char)at[i] < ' ' && at[i] != '\t') || at[i] == 0x7f)
                        return stop(parser_of(llhttp), AGX_HTTP1_E_BAD, "a control character in the phrase");
        return 0;
}

/* A name beyond the bound is passed over until its colon, so that what is wrong in it is found however it is cut. */
static int on_header_field(llhttp_t *llhttp, const char *at, size_t n)
{
        agx_http1 *p = parser_of(llhttp);
        int r;

        if (p->state != STATE_HEAD || p->full)
                return 0;
        if (!p->in_name) {
                r = agx_http1_store_open_field(&p->store);
                if (r < 0)
                        return stop(p, r, "out of memory");
                p->full = r != 0;
                p->in_name = true;
        }
        return p->full ? 0 : add(p, &agx_http1_store_field(&p->store)->name, at, n);
}

static int on_header_field_complete(llhttp_t *llhttp)
{
        agx_http1 *p = parser_of(llhttp);

        if (p->state != STATE_HEAD)
                return 0;
        if (p->full)
                return stop(p, AGX_HTTP1_E_HEAD_SIZE, "too many header fields");
        p->in_name = false;
        return add(p, &agx_http1_store_field(&p->store)->value, NULL, 0);
}

static int on_header_value(llhttp_t *llhttp, const char *at, size_t n)
{
        agx_http1 *p = parser_of(llhttp);

        return p->state == STATE_HEAD ? add(p, &agx_http1_store_field(&p->store)->value, at, n) : 0;
}

static int on_body(llhttp_t *llhttp, const char *at, size_t n)
{
        parser_of(llhttp)->data = agx_view_of(at, n);
        return 0;
}

static int on_section_end(llhttp_t *llhttp)
{
        (void)llhttp;
        return HPE_PAUSED;
}

/* The last chunk has no data: its section goes on to the end of the trailer. */
static int on_chunk_complete(llhttp_t *llhttp)
{
        return parser_of(llhttp)->state == STATE_TRAILER ? 0 : HPE_PAUSED;
}

static const llhttp_settings_t settings = {
        .on_method = on_method,
        .on_url = on_url,
        .on_protocol = on_protocol,
        .on_status = on_status,
        .on_version_complete = on_version_complete,
        .on_header_field = on_header_field,
        .on_header_field_complete = on_header_field_complete,
        .on_header_value = on_header_value,
        .on_headers_complete = on_section_end,
        .on_chunk_header = on_section_end,
        .on_body = on_body,
        .on_chunk_complete = on_chunk_complete,
        .on_message_complete = on_section_end,
};

/* ---- helpers of the states ---- */

static step fail(agx_http1 *p, int error, const char *reason)
{
        p->state = STATE_FAILED;
        p->error = agx_trace(error);
        p->reason = reason;
        return STEP_FAIL;
}

static step go(agx_http1 *p, state next)
{
        p->state = next;
        p->used = 0;
        return STEP_AGAIN;
}

static step refused_by_llhttp(agx_http1 *p, llhttp_errno_t error)
{
        if (p->error)
                return fail(p, p->error, p->reason);
        if (error == HPE_PAUSED_H2_UPGRADE || (error == HPE_INVALID_VERSION && !p->version))
                return fail(p, AGX_HTTP1_E_VERSION, "an HTTP version other than 1.0 and 1.1");
        return fail(p, AGX_HTTP1_E_BAD, llhttp_get_error_reason(&p->llhttp));
}

/*
 * Runs llhttp over what the section may still have of `*in`. STEP_AGAIN: paused at the end of the section; STEP_MORE:
 * all given bytes are used up; STEP_FAIL.
 */
static step run(agx_http1 *p, agx_view *in, size_t section_max)
{
        agx_view given = agx_view_first(*in, section_max - p->used);
        llhttp_errno_t error;

        if (!given.n)
                return STEP_MORE;
        p->given = given.p;
        error = llhttp_execute(&p->llhttp, given.p, given.n);
        if (error == HPE_PAUSED) {
                given.n = (size_t)(llhttp_get_error_pos(&p->llhttp) - given.p);
                llhttp_resume(&p->llhttp);
        } else if (error != HPE_OK) {
                return refused_by_llhttp(p, error);
        }
        *in = agx_view_from(*in, given.n);
        p->used += given.n;
        return error == HPE_PAUSED ? STEP_AGAIN : STEP_MORE;
}

/* As run(); a section that does not end within its bound fails with `error`. */
static step run_bounded(agx_http1 *p, agx_view *in, size_t section_max, int error, const char *reason)
{
        step got = run(p, in, section_max);

        return got == STEP_MORE && p->used == section_max ? fail(p, error, reason) : got;
}

/* ---- states ---- */

static void begin(agx_http1 *p)
{
        llhttp_reset(&p->llhttp);
        agx_http1_store_clear(&p->store);
        p->version = p->protocol = p->in_name = p->full = false;
        p->body = 0;
        p->state = STATE_HEAD;
}

/* Empty lines before a request are passed over, as part of its head's bound; before a response there are none. */
static step read_start(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        (void)event;
        while (in->n) {
                char c = in->p[0];

                if (p->closed)
                        return fail(p, AGX_HTTP1_E_BAD, "bytes after the last message");
                if (c != '\r' && c != '\n' && !p->blank) {
                        begin(p);
                        return STEP_AGAIN;
                }
                if (p->role == AGX_HTTP1_CLIENT || (c == '\n') != p->blank)
                        return fail(p, AGX_HTTP1_E_BAD, "not the start of a message");
                if (++p->used == p->bounds.head_max)
                        return fail(p, AGX_HTTP1_E_HEAD_SIZE, "too many empty lines");
                p->blank = !p->blank;
                *in = agx_view_from(*in, 1);
        }
        return STEP_MORE;
}

/* Where the message goes on after its head: the rules of RFC 9112, section 6.3, in their order. */
static state state_after_head(agx_http1 *p)
{
        agx_http1_head *head = &p->store.head;
        bool interim = p->role == AGX_HTTP1_CLIENT && head->status < 200;
        bool bodiless = interim || (p->role == AGX_HTTP1_CLIENT && (head->status == 204 || head->status == 304));

        if (p->role == AGX_HTTP1_CLIENT && !interim) {
                bodiless |= p->no_body;
                p->no_body = false;
        }
        if (bodiless)
                return STATE_END;
        if (head->chunked)
                return STATE_CHUNK_LINE;
        if (head->has_length || p->role == AGX_HTTP1_SERVER)
                return head->length ? STATE_FIXED : STATE_END;
        head->keep_alive = false;
        return STATE_TO_EOF;
}

static step read_head(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        agx_http1_head *head = &p->store.head;
        const char *reason = "a malformed head";
        step got = run_bounded(p, in, p->bounds.head_max, AGX_HTTP1_E_HEAD_SIZE, "a head beyond its bound");
        int r;

        if (got != STEP_AGAIN)
                return got;
        for (size_t i = 0; i < head->n_fields; ++i)
                p->store.fields[i].value = agx_view_trim(p->store.fields[i].value);
        head->status = p->llhttp.status_code;
        r = p->version ? agx_http1_judge(head, p->role, &reason) : AGX_HTTP1_E_BAD;
        if (!r && head->chunked != !!(p->llhttp.flags & F_CHUNKED))
                r = AGX_HTTP1_E_BAD; /* never to go on in two minds */
        if (r)
                return fail(p, r, reason);
        go(p, state_after_head(p));
        p->body = head->length;
        if (p->state == STATE_FIXED && p->body > p->bounds.body_max)
                return fail(p, AGX_HTTP1_E_BODY_SIZE, "a body beyond its bound");
        if (p->state != STATE_FIXED)
                p->body = 0;
        event->kind = AGX_HTTP1_HEAD;
        event->head = head;
        return STEP_EVENT;
}

static step give_body(agx_http1_event *event, agx_view body)
{
        event->kind = AGX_HTTP1_BODY;
        event->body = body;
        return STEP_EVENT;
}

static step read_fixed(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        agx_view body = agx_view_first(*in, p->body < SIZE_MAX ? (size_t)p->body : SIZE_MAX);

        if (!body.n)
                return STEP_MORE;
        *in = agx_view_from(*in, body.n);
        p->body -= body.n;
        if (!p->body)
                go(p, STATE_END);
        return give_body(event, body);
}

static step read_to_eof(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        uint64_t left = p->bounds.body_max - p->body;
        agx_view body = agx_view_first(*in, left < SIZE_MAX ? (size_t)left : SIZE_MAX);

        if (!in->n)
                return STEP_MORE;
        if (!body.n)
                return fail(p, AGX_HTTP1_E_BODY_SIZE, "a body beyond its bound");
        *in = agx_view_from(*in, body.n);
        p->body += body.n;
        return give_body(event, body);
}

static step read_chunk_line(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        step got = run_bounded(p, in, p->bounds.chunk_line_max, AGX_HTTP1_E_BAD, "a chunk line beyond its bound");
        uint64_t length = p->llhttp.content_length;

        (void)event;
        if (got != STEP_AGAIN)
                return got;
        if (!length)
                return go(p, STATE_TRAILER);
        if (length > p->bounds.body_max - p->body)
                return fail(p, AGX_HTTP1_E_BODY_SIZE, "a body beyond its bound");
        p->body += length;
        return go(p, STATE_CHUNK_DATA);
}

/* Data in front of an error is given out first; the error is the next answer. */
static step read_chunk_data(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        step got;

        p->data = AGX_VIEW_NULL;
        p->used = 0;
        got = run(p, in, SIZE_MAX);
        if (got == STEP_AGAIN)
                go(p, STATE_CHUNK_LINE);
        return p->data.n ? give_body(event, p->data) : got;
}

static step read_trailer(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        step got = run_bounded(p, in, p->bounds.trailer_max, AGX_HTTP1_E_BAD, "a trailer beyond its bound");

        (void)event;
        return got == STEP_AGAIN ? go(p, STATE_END) : got;
}

static step read_end(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        (void)in;
        p->closed = p->role == AGX_HTTP1_SERVER ? !p->store.head.keep_alive
                                                : !p->store.head.keep_alive && p->store.head.status >= 200;
        p->blank = false;
        go(p, STATE_START);
        event->kind = AGX_HTTP1_END;
        return STEP_EVENT;
}

static step read_failed(agx_http1 *p, agx_view *in, agx_http1_event *event)
{
        (void)p, (void)in, (void)event;
        return STEP_FAIL;
}

static step (*const states[])(agx_http1 *, agx_view *, agx_http1_event *) = {
        [STATE_START] = read_start,           [STATE_HEAD] = read_head,
        [STATE_FIXED] = read_fixed,           [STATE_TO_EOF] = read_to_eof,
        [STATE_CHUNK_LINE] = read_chunk_line, [STATE_CHUNK_DATA] = read_chunk_data,
        [STATE_TRAILER] = read_trailer,       [STATE_END] = read_end,
        [STATE_FAILED] = read_failed,
};

/* ---- lifecycle and verbs ---- */

int agx_http1_new(agx_http1 **parser, agx_http1_role role, const agx_http1_bounds *bounds)
{
        agx_http1 *p = calloc(1, sizeof(*p));

        if (!p)
                return agx_trace(-ENOMEM);
        llhttp_init(&p->llhttp, role == AGX_HTTP1_SERVER ? HTTP_REQUEST : HTTP_RESPONSE, &settings);
        agx_http1_store_init(&p->store, bounds->headers_max);
        p->bounds = *bounds;
        p->role = role;
        *parser = p;
        return 0;
}

void agx_http1_free(agx_http1 *parser)
{
        if (!parser)
                return;
        agx_http1_store_deinit(&parser->store);
        free(parser);
}

int agx_http1_next(agx_http1 *parser, agx_view *in, agx_http1_event *event)
{
        step got;

        *event = (agx_http1_event){.kind = AGX_HTTP1_MORE};
        do
                got = states[parser->state](parser, in, event);
        while (got == STEP_AGAIN);
        return got == STEP_FAIL ? parser->error : 0;
}

int agx_http1_eof(agx_http1 *parser, agx_http1_event *event)
{
        agx_view nothing = AGX_VIEW_NULL;

        *event = (agx_http1_event){.kind = AGX_HTTP1_MORE};
        if (parser->state == STATE_START)
                return 0;
        if (parser->state == STATE_TO_EOF || parser->state == STATE_END)
                read_end(parser, &nothing, event);
        else if (parser->state != STATE_FAILED)
                fail(parser, AGX_HTTP1_E_BAD, "the connection ended inside a message");
        return parser->state == STATE_FAILED ? parser->error : 0;
}

void agx_http1_expect_no_body(agx_http1 *parser)
{
        parser->no_body = true;
}

const char *agx_http1_reason(const agx_http1 *parser)
{
        return parser->reason ? parser->reason : "no error";
}
