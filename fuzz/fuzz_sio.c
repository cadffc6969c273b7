/* Any messages as Socket.IO: no crash, no over-read, the announced number of attachments and no other; what was accepted,
 * written again, reads as the same packet; both roles of a connection take the same messages without harm. The input is
 * lines, each a text message, or a binary one if it begins with '~'. */
#include <stdint.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "support/sio_log.h"
#include "wire/sio.h"

enum { ARGS = 64 };

static const agx_sio_bounds bounds = {
        .packet_max = 300,
        .attachments_max = 5,
        .namespace_max = 20,
        .event_max = 20,
        .depth_max = 8,
        .namespaces_max = 3,
        .acks_max = 2,
};

static void must(bool holds)
{
        if (!holds)
                abort();
}

static size_t read_args(const agx_sio_packet *packet, agx_sio_arg *to)
{
        agx_sio_args args = agx_sio_args_on(packet);
        size_t n = 0;

        while (n < ARGS && agx_sio_args_next(&args, &to[n]))
                ++n;
        must(n == ARGS || agx_json_done(&args.json));
        return n;
}

static int write_packet(agx_buf *out, const agx_sio_packet *p, const agx_sio_arg *args, size_t n)
{
        switch (p->type) {
        case AGX_SIO_CONNECT:
                return agx_sio_put_connect(out, p->nsp, p->data);
        case AGX_SIO_DISCONNECT:
                return agx_sio_put_disconnect(out, p->nsp);
        case AGX_SIO_EVENT:
                return agx_sio_put_event(out, p->nsp, p->has_id ? &p->id : NULL, p->name, args, n);
        case AGX_SIO_ACK:
                return agx_sio_put_ack(out, p->nsp, p->id, args, n);
        default:
                return -1;
        }
}

/* A packet whose attachments are all arguments of their own can be written again. */
static void rewrite(const agx_sio_packet *packet)
{
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX), first = AGX_BUF_NULL(SIZE_MAX),
                                           second = AGX_BUF_NULL(SIZE_MAX);
        bool list = packet->type == AGX_SIO_EVENT || packet->type == AGX_SIO_ACK;
        agx_sio_bounds wide = bounds;
        agx_sio_arg args[ARGS];
        agx_sio_packet again;
        agx_sio_reader r;
        size_t n = list ? read_args(packet, args) : 0, binary = 0;
        int error;

        for (size_t i = 0; i < n; ++i)
                binary += args[i].binary;
        if (n == ARGS || binary != packet->n_attachments || write_packet(&out, packet, args, n))
                return;
        wide.packet_max = 4000; /* the same may be longer when it is written anew */
        agx_sio_reader_init(&r, &wide);
        error = agx_sio_packet_read(&r, false, agx_buf_view(&out), &again);
        for (size_t i = 0; i < n; ++i)
                if (args[i].binary) {
                        must(error == AGX_SIO_MORE);
                        error = agx_sio_packet_read(&r, true, args[i].v, &again);
                }
        must(error == 0);
        agx_sio_log_packet(&first, packet);
        agx_sio_log_packet(&second, &again);
        must(agx_view_eq(agx_buf_view(&first), agx_buf_view(&second)));
        agx_sio_reader_deinit(&r);
}

static void read_all(agx_view lines)
{
        agx_sio_reader r;
        agx_sio_packet packet;
        agx_view line;
        size_t owed = 0;
        int error = 0;

        agx_sio_reader_init(&r, &bounds);
        while (error <= AGX_SIO_MORE && agx_view_split(&lines, '\n', &line)) {
                bool binary = agx_view_starts(line, AGX_VIEW("~"));

                if (!binary && !agx_utf8_valid(line))
                        break; /* the layer below lets no such text through */
                error = agx_sio_packet_read(&r, binary, binary ? agx_view_from(line, 1) : line, &packet);
                must(error >= 0);
                owed = binary ? owed - 1 : error == AGX_SIO_MORE ? r.announced : 0;
                must(error == AGX_SIO_E_BAD || (owed == 0) == (error == 0));
                if (!error)
                        rewrite(&packet);
        }
        must((error == AGX_SIO_E_BAD) == (r.error != NULL));
        agx_sio_reader_deinit(&r);
}

static void connection(agx_sio_role role, agx_view lines)
{
        static const uint8_t seed[16] = {0};
        _cleanup_(agx_buf_deinitp) agx_buf out = AGX_BUF_NULL(SIZE_MAX);
        agx_sio_event event = {0};
        agx_sio *sio = NULL;
        agx_view line;
        int error = 0;

        must(agx_sio_new(&sio, role, &bounds, seed) == 0);
        if (role == AGX_SIO_CLIENT)
                must(agx_sio_connect(sio, AGX_VIEW("/"), AGX_VIEW_NULL, &out) == 0);
        while (!error && agx_view_split(&lines, '\n', &line)) {
                bool binary = agx_view_starts(line, AGX_VIEW("~"));

                error = agx_sio_read(sio, binary, binary ? agx_view_from(line, 1) : line, &event);
                if (!error && event.kind == AGX_SIO_JOIN)
                        must(agx_sio_accept(sio, event.packet.nsp, AGX_VIEW("{\"sid\":\"\"}"), &out) == 0);
                if (!error && event.kind == AGX_SIO_GOT)
                        must(agx_sio_joined(sio, event.packet.nsp));
                must(agx_sio_namespaces(sio) <= bounds.namespaces_max);
        }
        agx_sio_free(sio);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        agx_view in = agx_view_of(size ? data : (const uint8_t *)"", size);
        agx_buf log = AGX_BUF_NULL(SIZE_MAX);

        agx_sio_log(&log, &bounds, in); /* each message at a guard page */
        agx_buf_deinit(&log);
        read_all(in);
        connection(AGX_SIO_SERVER, in);
        connection(AGX_SIO_CLIENT, in);
        return 0;
}
