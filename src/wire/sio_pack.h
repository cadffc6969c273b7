#ifndef AGX_WIRE_SIO_PACK_H
#define AGX_WIRE_SIO_PACK_H
/*
 * An argument that came as JSON, as the msgpack that says the same: so whoever reads msgpack understands plain clients
 * too. Objects become maps, in the order of their keys, repeated ones included; whole numbers that fit into 64 bits ints,
 * any others floats; a placeholder becomes the bytes of its attachment, wherever it stands.
 */
#include "wire/sio_packet.h"

/* Appends to `out`. `json`: an argument of the packet, as agx_sio_args_next() gave it. 0, AGX_SIO_E_BAD for a number that
 * no float holds, AGX_BUF_E_FULL or -ENOMEM; `out` may then hold a part of it. */
int agx_sio_arg_pack(const agx_sio_packet *packet, agx_view json, agx_buf *out);

#endif
