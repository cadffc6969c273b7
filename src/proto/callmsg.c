/*
 * The bodies of /call. A body that does not say which call it is about is refused as a whole; one that names its call
 * but lacks what is to be called is that call's own failure, so `callable` and `arguments` are read laxly.
 */
#include "proto/callmsg.h"
#include "proto/fields.h"
#include "proto/limits.h"

enum { CALL_ID, CALLABLE, ARGUMENTS, CONTEXT, STREAM, ACKS, REQUEST_ROWS };

static const agx_field request_rows[REQUEST_ROWS] = {
        [CALL_ID] = AGX_FIELD(agx_call_request, call_id, "call_id", STR, "a str"),
        [CALLABLE] = AGX_FIELD(agx_call_request, callable, "callable", LAX_STR, "a str"),
        [ARGUMENTS] = AGX_FIELD(agx_call_request, arguments, "arguments", LAX_BIN, "a bin"),
        [CONTEXT] = AGX_FIELD(agx_call_request, context, "context", BIN, "a bin"),
        [STREAM] = AGX_FIELD(agx_call_request, stream, "stream", UINT, "a non-negative int"),
        [ACKS] = AGX_FIELD(agx_call_request, acks, "acks", ARRAY, "an array"),
};

enum { OK, VALUE, ERROR, REPLY_ID, REPLY_ROWS };

static const agx_field reply_rows[REPLY_ROWS] = {
        [OK] = AGX_FIELD(agx_call_reply, ok, "ok", BOOL, "a bool"),
        [VALUE] = AGX_FIELD(agx_call_reply, value, "value", BIN, "a bin"),
        [ERROR] = AGX_FIELD(agx_call_reply, fault, "error", FAULT, "a map"),
        [REPLY_ID] = AGX_FIELD(agx_call_reply, call_id, "call_id", STR, "a str"),
};

static bool has(uint32_t present, int row)
{
        return present >> row & 1;
}

/* What is wrong with the request's fields, or NULL. */
static const char *complaint(const agx_call_request *request, uint32_t present)
{
        if (!has(present, CALL_ID))
                return "missing call_id";
        if (!request->call_id.n)
                return "call_id is empty";
        if (request->call_id.n > AGX_MAX_CALL_ID)
                return "call_id is too long";
        if (has(present, CALLABLE) && request->callable.n > AGX_MAX_CALLABLE)
                return "callable is too long";
        if (has(present, ACKS) && agx_call_acks_of(request->acks).left > AGX_MAX_ACKS)
                return "too many acks";
        return NULL;
}

bool agx_call_request_get(agx_view body, agx_call_request *request, const char **why)
{
        agx_mp_reader r = agx_mp_reader_on(body);
        agx_fields fields = {request_rows, REQUEST_ROWS, UINT32_MAX};
        uint32_t present;

        *request = (agx_call_request){.has_stream = false};
        if (!agx_fields_read(&r, fields, AGX_MAX_NESTING, request, &present)) {
                *why = r.error;
                return false;
        }
        request->has_stream = has(present, STREAM);
        *why = agx_mp_done(&r) ? complaint(request, present) : "bytes after the map";
        return !*why;
}

void agx_call_request_put(agx_mp_writer *w, const agx_call_request *request, const agx_view *acks, size_t n_acks)
{
        agx_mp_put_map(w, 1u + (request->callable.p != NULL) + (request->arguments.p != NULL) +
                                  (request->context.p != NULL) + request->has_stream + (n_acks > 0));
        agx_mp_put_str(w, AGX_VIEW("call_id"));
        agx_mp_put_str(w, request->call_id);
        if (request->callable.p) {
                agx_mp_put_str(w, AGX_VIEW("callable"));
                agx_mp_put_str(w, request->callable);
        }
        if (request->has_stream) {
                agx_mp_put_str(w, AGX_VIEW("stream"));
                agx_mp_put_uint(w, request->stream);
        }
        if (n_acks) {
                agx_mp_put_str(w, AGX_VIEW("acks"));
                agx_mp_put_array(w, n_acks);
                for (size_t i = 0; i < n_acks; ++i)
                        agx_mp_put_str(w, acks[i]);
        }
        if (request->context.p) {
                agx_mp_put_str(w, AGX_VIEW("context"));
                agx_mp_put_bin(w, request->context);
        }
        if (request->arguments.p) { /* last: what may be large is appended once the rest stands */
                agx_mp_put_str(w, AGX_VIEW("arguments"));
                agx_mp_put_bin(w, request->arguments);
        }
}

agx_call_acks agx_call_acks_of(agx_view acks)
{
        agx_call_acks walk = {.reader = agx_mp_reader_on(acks)};
        agx_mp_token t = {.kind = AGX_MP_END};

        if (acks.p)
                t = agx_mp_next(&walk.reader);
        walk.left = t.kind == AGX_MP_ARRAY ? t.count : 0;
        return walk;
}

bool agx_call_acks_next(agx_call_acks *acks, agx_view *id)
{
        while (acks->left) {
                agx_mp_reader start = acks->reader;
                agx_mp_token t = agx_mp_next(&acks->reader);

                --acks->left;
                if (t.kind == AGX_MP_STR) {
                        *id = t.v;
                        return true;
                }
                acks->reader = start;
                if (!agx_mp_skip(&acks->reader, AGX_MAX_NESTING))
                        acks->left = 0;
        }
        return false;
}

void agx_call_reply_put_value_head(agx_mp_writer *w, size_t value_bytes)
{
        agx_mp_put_map(w, 2);
        agx_mp_put_str(w, AGX_VIEW("ok"));
        agx_mp_put_bool(w, true);
        agx_mp_put_str(w, AGX_VIEW("value"));
        agx_mp_put_bin_head(w, value_bytes);
}

void agx_call_reply_put_fault_head(agx_mp_writer *w)
{
        agx_mp_put_map(w, 2);
        agx_mp_put_str(w, AGX_VIEW("ok"));
        agx_mp_put_bool(w, false);
        agx_mp_put_str(w, AGX_VIEW("error"));
}

void agx_call_reply_put_fault(agx_mp_writer *w, const agx_fault *fault)
{
        agx_call_reply_put_fault_head(w);
        agx_fault_put(w, fault);
}

void agx_call_reply_put_accepted(agx_mp_writer *w, agx_view call_id)
{
        agx_mp_put_map(w, 1);
        agx_mp_put_str(w, AGX_VIEW("call_id"));
        agx_mp_put_str(w, call_id);
}

bool agx_call_reply_get(agx_view body, bool accepted, agx_call_reply *reply)
{
        agx_mp_reader r = agx_mp_reader_on(body);
        agx_fields fields = {reply_rows, REPLY_ROWS, accepted ? 1u << REPLY_ID : 1u << OK | 1u << VALUE | 1u << ERROR};
        uint32_t present;

        *reply = (agx_call_reply){.accepted = accepted};
        if (!agx_fields_read(&r, fields, AGX_MAX_NESTING, reply, &present) || !agx_mp_done(&r))
                return false;
        if (accepted)
                return has(present, REPLY_ID);
        return has(present, OK) && has(present, reply->ok ? VALUE : ERROR);
}
