#ifndef AGX_PROTO_CALLMSG_H
#define AGX_PROTO_CALLMSG_H
/*
 * The bodies of `POST /call`.
 *
 *   request  {call_id: str, callable: str, arguments: bin, context?: bin, stream?: int, acks?: [str]}
 *   200      {ok: true, value: bin} or {ok: false, error: {...}}
 *   202      {call_id: str}
 *   400      {ok: false, error: {type: "BadRequest", message}}
 *
 * How strictly maps are read is in fields.h: nil counts as absent, unknown keys are passed over, a known key twice or of
 * another type fails, str and bin are told apart.
 */
#include "proto/fault.h"

typedef struct agx_call_request {
        agx_view call_id;
        agx_view callable;  /* absent: missing or not a str */
        agx_view arguments; /* absent: missing or not a bin */
        agx_view context;
        bool has_stream;
        uint64_t stream;
        agx_view acks;    /* the msgpack array as sent, already checked; absent: none. Walk with agx_call_acks_next */
        agx_buf *backing; /* never read or written: the buffer the views lie in, if a reader may take its memory over */
} agx_call_request;

/* Views point into `body`. On failure `*why` says in a few static words what is wrong: the 400's message. */
bool agx_call_request_get(agx_view body, agx_call_request *request, const char **why);
/* `acks`: `n_acks` ids. */
void agx_call_request_put(agx_mp_writer *w, const agx_call_request *request, const agx_view *acks, size_t n_acks);

/* Walks the acks of a request: `*rest` starts as request.acks; false at the end. Non-strings are passed over. */
typedef struct agx_call_acks {
        agx_mp_reader reader;
        size_t left;
} agx_call_acks;
agx_call_acks agx_call_acks_of(agx_view acks);
bool agx_call_acks_next(agx_call_acks *acks, agx_view *id);

typedef struct agx_call_reply {
        bool accepted; /* the 202 form: only call_id */
        bool ok;
        agx_view call_id;
        agx_view value;  /* with ok */
        agx_fault fault; /* with !ok */
} agx_call_reply;

void agx_call_reply_put_value_head(agx_mp_writer *w, size_t value_bytes); /* {ok: true, value: <the bytes follow> } */
void agx_call_reply_put_fault(agx_mp_writer *w, const agx_fault *fault);
void agx_call_reply_put_fault_head(agx_mp_writer *w); /* {ok: false, error: <an encoded fault follows> } */
void agx_call_reply_put_accepted(agx_mp_writer *w, agx_view call_id);
/* Reads a 200 or 400 body (`accepted` false) or a 202 body (true). */
bool agx_call_reply_get(agx_view body, bool accepted, agx_call_reply *reply);

#endif
