#ifndef AGX_TEST_SIO_LOG_H
#define AGX_TEST_SIO_LOG_H
/*
 * What the Socket.IO reader makes of some messages, as one line of text. The messages are one text: lines, each a text
 * message, or a binary one if it begins with '~'. Each is read flush against an unreadable page and overwritten afterwards.
 *
 *     {event /ns 7 name (json) (~bytes)}   a packet: type, namespace, id if it has one, name, arguments
 *     {connect / (json)}                   or its data
 *     +                                    attachments are to come
 *     !                                    an error
 */
#include "wire/sio_packet.h"

void agx_sio_log(agx_buf *log, const agx_sio_bounds *bounds, agx_view lines);
void agx_sio_log_packet(agx_buf *log, const agx_sio_packet *packet);

#endif
