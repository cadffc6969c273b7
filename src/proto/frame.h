#ifndef AGX_PROTO_FRAME_H
#define AGX_PROTO_FRAME_H
/*
 * Worker frames: u32 little-endian length, then a msgpack map with `type`.
 *
 * agx_deframer cuts a byte stream into payloads. agx_frame is a payload read into fields, or fields to be written.
 * A payload with length 0 stands for an empty map. A key counts as known in the kinds that have it, elsewhere it is passed
 * over; nil counts as absent (fields.h).
 */
#include "proto/deframer.h"
#include "proto/fault.h"

#define AGX_FRAME_MAP(X)                                                                                               \
        X(CALL, "call")                                                                                                \
        X(CANCEL, "cancel")                                                                                            \
        X(CREDIT, "credit")                                                                                            \
        X(SHUTDOWN, "shutdown")                                                                                        \
        X(CONDUIT, "conduit")                                                                                          \
        X(SIO_INBOUND, "sio_inbound")                                                                                  \
        X(SIO_FLOW, "sio_flow")                                                                                        \
        X(READY, "ready")                                                                                              \
        X(BOOT_ERROR, "boot_error")                                                                                    \
        X(RESULT, "result")                                                                                            \
        X(ERROR, "error")                                                                                              \
        X(ITEM, "item")                                                                                                \
        X(SIO_OPEN, "sio_open")                                                                                        \
        X(SIO_EMIT, "sio_emit")                                                                                        \
        X(PROC_START, "proc_start")                                                                                    \
        X(PROC_IN, "proc_in")                                                                                          \
        X(PROC_CREDIT, "proc_credit")                                                                                  \
        X(PROC_SIGNAL, "proc_signal")                                                                                  \
        X(PROC_END, "proc_end")                                                                                        \
        X(PROC_OUT, "proc_out")                                                                                        \
        X(PROC_EXIT, "proc_exit")                                                                                      \
        X(PROC_ERROR, "proc_error")

typedef enum agx_frame_kind {
        AGX_FRAME_UNKNOWN, /* a map with an unknown or missing type: log it and go on; .type_text says which */
#define X(name, text) AGX_FRAME_##name,
        AGX_FRAME_MAP(X)
#undef X
} agx_frame_kind;

typedef struct agx_frame {
        agx_frame_kind kind;
        agx_view type_text; /* as read; ignored when writing */
        agx_view call_id;
        agx_view callable;
        agx_view arguments;
        agx_view context; /* absent: no key */
        agx_view value;   /* absent in a RESULT: nil */
        agx_fault fault;  /* of ERROR, BOOT_ERROR and PROC_ERROR */
        bool has_stream;
        uint64_t stream; /* credit offered with a CALL */
        uint64_t seq;    /* of ITEM */
        uint64_t n; /* of CREDIT; of SIO_FLOW: 0 stop emitting, 1 go on; of PROC_*: bytes, or a signal; of READY: 1 if
                     * its like may be started as a spare */
        agx_view namespace_;
        agx_view event;
        agx_view data;
        uint64_t proc; /* of PROC_*, and what follows */
        uint64_t fd;
        uint64_t has_stdin, limit, timeout; /* of PROC_START */
        agx_view path, argv, env, cwd;
        uint64_t code, signal, out, err; /* of PROC_EXIT; PROC_ERROR: .code is an errno */
        agx_view cause;
        agx_view features; /* of READY: an array of str, as sent; absent: none */
        agx_buf *backing; /* never read or written: the buffer the views lie in, if a reader may take its memory over */
} agx_frame;

/* What a worker's READY may name: it reads frames that come in pieces, and sends such ones if it was asked to. */
#define AGX_FEATURE_PIECES "frames/1"

/* Views point into `payload`. 0 (kind may be UNKNOWN) or AGX_FRAME_E_MALFORMED. */
int agx_frame_parse(agx_view payload, agx_frame *frame);
bool agx_frame_has_feature(const agx_frame *frame, agx_view name);
/* Appends header and payload; on any error the buffer is as before. 0, AGX_FRAME_E_TOO_LARGE, AGX_FRAME_E_FULL, -ENOMEM.
 * A fault's texts are cut as agx_fault_put does. */
int agx_frame_put(agx_buf *out, const agx_frame *frame);
/* The same without the bytes of the last binary field (CALL: arguments, RESULT and ITEM: value, SIO_*, PROC_IN and
 * PROC_OUT: data), which the
 * caller sends right after from where they lie; the header counts them. Kinds without such a field are written whole. */
int agx_frame_put_head(agx_buf *out, const agx_frame *frame);

#endif
