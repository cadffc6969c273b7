#ifndef AGX_PROTO_RPC_H
#define AGX_PROTO_RPC_H
/*
 * The events on `/rpc`: what the one msgpack argument of each holds.
 *
 *   host -> runtime   call    {call_id: str, callable: str, arguments: bin, context?: bin, stream?: int}
 *                     cancel  {call_id: str, grace?: number}
 *                     resume  {call_ids: [str]}
 *                     ack     {call_id?: str, call_ids?: [str]}
 *                     credit  {call_id: str, n: int}
 *   runtime -> host   call:result {call_id: str, value: bin}
 *                     call:error  {call_id: str, error: {...}}
 *                     call:item   {call_id: str, seq: int, value: bin}
 *
 * How strictly maps are read is in fields.h, with this besides: a key counts as known only in the events that have it; a
 * call_id that is not a str counts as not given, and so does an empty one in what a host says; a grace that is not a number
 * from 0 up counts as not given.
 */
#include "proto/callmsg.h"

#define AGX_RPC_MAP(X)                                                                                                 \
        X(CALL, "call")                                                                                                \
        X(CANCEL, "cancel")                                                                                            \
        X(RESUME, "resume")                                                                                            \
        X(ACK, "ack")                                                                                                  \
        X(CREDIT, "credit")                                                                                            \
        X(RESULT, "call:result")                                                                                       \
        X(ERROR, "call:error")                                                                                         \
        X(ITEM, "call:item")

typedef enum agx_rpc_kind {
        AGX_RPC_UNKNOWN,
#define X(name, text) AGX_RPC_##name,
        AGX_RPC_MAP(X)
#undef X
} agx_rpc_kind;

/* The kind with this name, or AGX_RPC_UNKNOWN; the name of a kind, absent for AGX_RPC_UNKNOWN. */
agx_rpc_kind agx_rpc_kind_of(agx_view name);
agx_view agx_rpc_kind_text(agx_rpc_kind kind);

typedef struct agx_rpc_event {
        agx_rpc_kind kind;
        agx_view call_id; /* absent in an ACK: none */
        agx_view
                call_ids; /* of RESUME and ACK: the msgpack array as sent, already checked; walk with agx_call_acks_next */
        agx_view callable;  /* absent in a CALL: missing or not a str */
        agx_view arguments; /* absent in a CALL: missing or not a bin */
        agx_view context;
        bool has_stream;
        uint64_t stream;
        uint64_t seq;   /* of ITEM, from 0 */
        uint64_t n;     /* of CREDIT */
        bool has_grace; /* of CANCEL */
        double grace;   /* seconds */
        agx_view value; /* absent in a RESULT: nil */
        agx_fault fault;
} agx_rpc_event;

/* Reads the payload of an event of this kind; views point into it. On failure `*why` says in a few static words what is
 * wrong, and event->call_id still names the call if it could be made out, else it is absent. */
bool agx_rpc_event_get(agx_rpc_kind kind, agx_view payload, agx_rpc_event *event, const char **why);
/* The grace that counts: the one given, within its bound, or the default. */
uint64_t agx_rpc_grace_ms(const agx_rpc_event *event);

/* `ids`: the `n_ids` call_ids of a RESUME or an ACK; event->call_ids is not looked at. */
void agx_rpc_event_put(agx_mp_writer *w, const agx_rpc_event *event, const agx_view *ids, size_t n_ids);
/* A CALL, RESULT or ITEM without the bytes of its arguments or value, which the caller sends right after. */
void agx_rpc_event_put_head(agx_mp_writer *w, const agx_rpc_event *event);
/* {call_id, error: <an encoded fault follows> } */
void agx_rpc_event_put_fault_head(agx_mp_writer *w, agx_view call_id);

#endif
