#ifndef AGX_PROTO_FRAME_H
#define AGX_PROTO_FRAME_H
/*
 * Worker frames: u32 little-endian length, then a msgpack map with `type`.
 *
 * agx_deframer cuts a byte stream into payloads. agx_frame is a payload read into fields, or fields to be written.
 * A payload with length 0 stands for an empty map. A key counts as known in the kinds that have it, elsewhere it is passed
 * over; nil counts as absent (fields.h).
 */
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
        agx_buf *backing; /* never read or written: the buffer the views lie in, if a reader may take its memory over */
} agx_frame;

enum {
        AGX_FRAME_E_TOO_LARGE = 1, /* announces or would need more than AGX_MAX_MESSAGE */
        AGX_FRAME_E_MALFORMED, /* not a map, a mistyped or duplicate known key, a known type without its fields, bytes after it */
        AGX_FRAME_E_MORE, /* agx_deframer_next only: all input used */
        AGX_FRAME_E_FULL  /* agx_frame_put only: the buffer's own ceiling */
};

/* Views point into `payload`. 0 (kind may be UNKNOWN) or AGX_FRAME_E_MALFORMED. */
int agx_frame_parse(agx_view payload, agx_frame *frame);
/* Appends header and payload; on any error the buffer is as before. 0, AGX_FRAME_E_TOO_LARGE, AGX_FRAME_E_FULL, -ENOMEM.
 * A fault's texts are cut as agx_fault_put does. */
int agx_frame_put(agx_buf *out, const agx_frame *frame);
/* The same without the bytes of the last binary field (CALL: arguments, RESULT and ITEM: value, SIO_*, PROC_IN and
 * PROC_OUT: data), which the
 * caller sends right after from where they lie; the header counts them. Kinds without such a field are written whole. */
int agx_frame_put_head(agx_buf *out, const agx_frame *frame);

/*
 * The deframer. Lies over a stream: feed input, get payloads. A payload that lies whole in the input is given in
 * place; otherwise its bytes are gathered, and room grows with what came, not with what was announced.
 * A payload's view lives until the next call of any deframer verb, or as long as the input it lies in.
 */
typedef struct agx_deframer {
        agx_buf partial; /* header and payload bytes of an unfinished frame */
        bool emptied;    /* partial holds a payload that was given out */
        size_t max;
} agx_deframer;

void agx_deframer_init(agx_deframer *d, size_t max);
void agx_deframer_deinit(agx_deframer *d);
AGX_DEFINE_CLEANUP(agx_deframer, agx_deframer_deinit)
/* 0 with a payload, AGX_FRAME_E_MORE, AGX_FRAME_E_TOO_LARGE (before reading the body; final), -ENOMEM. */
int agx_deframer_next(agx_deframer *d, agx_view *in, agx_view *payload);
/* A place of its own for the next bytes of a large unfinished frame, never beyond its end: false if it is not in one. What
 * is read there is given to agx_deframer_next() as input like any other, and need not be moved. */
bool agx_deframer_place(agx_deframer *d, char **place, size_t *n);
/* The frame at hand, if it is not whole: its bytes so far, header included, and how many it will have, as it says. They live until
 * the next verb. */
bool agx_deframer_begun(const agx_deframer *d, agx_view *begun, size_t *total);
/* Forgets it: the caller reads the rest himself. */
void agx_deframer_drop(agx_deframer *d);
/* Whether the stream stands between frames, which is where an orderly end may come. */
bool agx_deframer_idle(const agx_deframer *d);

#endif
