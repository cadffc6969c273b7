/* Where large bytes of a call come to lie: in the object that its target gets, while they are being received.
 *
 * A frame of which the beginning has come is looked at: if it is a call whose arguments are plain (scalars.h) but for large bytes,
 * near their end, it is taken out of the deframer. Then the bytes are read to where agx_land_place() says, and what it had
 * become by then is a call with its arguments decoded.
 *
 * One thread at a time uses it, with or without the interpreter. */
#ifndef AGX_EXT_LAND_H
#define AGX_EXT_LAND_H

#include "scalars.h"

#include "base/buf.h"
#include "proto/frame.h"

#include <sys/uio.h>

enum { AGX_LAND_TAIL = 512 /* bytes of a frame behind the large ones */ };

typedef struct agx_land {
        PyObject *bytes; /* NULL: no call is on its way here */
        char *data;
        size_t size, got; /* of `bytes` */
        size_t n_tail, got_tail;
        char tail[AGX_LAND_TAIL];
        agx_buf head;    /* the frame's payload with arguments of no bytes, then: */
        size_t n_head;   /* where the arguments begin there */
        unsigned looked; /* at which of the deframer's unfinished frames */
        agx_scalars_reader reader;
} agx_land;

void agx_land_init(agx_land *l);
/* With the interpreter. */
void agx_land_deinit(agx_land *l);

/* Looks at the frame that has begun, if it is long, once. Its bytes come to agx_land_put() from then on, if that is what it is. */
void agx_land_begin(agx_land *l, agx_deframer *d);
static inline bool agx_land_is_open(const agx_land *l)
{
        return l->bytes != NULL;
}

/* Where the next bytes come to lie, up to `max` of them; they may be read there before they are put. False: nowhere in particular. */
bool agx_land_place(const agx_land *l, size_t max, struct iovec *place);
void agx_land_put(agx_land *l, agx_view part);
/* True: all has come; the payload of the frame, with empty arguments. Valid until agx_land_begin(). */
bool agx_land_is_whole(const agx_land *l, agx_view *payload);
/* The arguments, decoded: (args, kwargs); or else, as bytes, their pickle. With the interpreter; NULL with an exception. */
PyObject *agx_land_take(agx_land *l);

#endif
