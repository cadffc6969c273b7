/* A loop around agx_sio_packet_read(). Failures of the log itself end the process. */
#include "support/sio_log.h"
#include "support/guard.h"

#include <stdlib.h>

static void must(int r)
{
        if (r)
                abort();
}

static void say(agx_buf *log, const char *before, agx_view text, const char *after)
{
        must(agx_buf_printf(log, "%s", before));
        must(agx_buf_append_view(log, text));
        must(agx_buf_printf(log, "%s", after));
}

void agx_sio_log_packet(agx_buf *log, const agx_sio_packet *packet)
{
        static const char *const types[] = {"connect", "disconnect", "event", "ack", "connect_error"};
        bool list = packet->type == AGX_SIO_EVENT || packet->type == AGX_SIO_ACK;
        agx_sio_args args;
        agx_sio_arg arg;

        must(agx_buf_printf(log, "{%s ", types[packet->type]));
        say(log, "", packet->nsp, "");
        if (packet->has_id)
                must(agx_buf_printf(log, " %llu", (unsigned long long)packet->id));
        if (packet->type == AGX_SIO_EVENT)
                say(log, " ", packet->name, "");
        if (!list && packet->data.p)
                say(log, " (", packet->data, ")");
        if (list)
                for (args = agx_sio_args_on(packet); agx_sio_args_next(&args, &arg);)
                        say(log, arg.binary ? " (~" : " (", arg.v, ")");
        must(agx_buf_printf(log, "}"));
}

/* False once the reader has given up. */
static bool read_one(agx_buf *log, agx_sio_reader *r, bool binary, agx_view message)
{
        agx_sio_packet packet;
        int error = agx_sio_packet_read(r, binary, message, &packet);

        if (!error)
                agx_sio_log_packet(log, &packet);
        else
                must(agx_buf_printf(log, "%s", error == AGX_SIO_MORE ? "+" : error == AGX_SIO_E_BAD ? "!" : "!mem"));
        return !error || error == AGX_SIO_MORE;
}

void agx_sio_log(agx_buf *log, const agx_sio_bounds *bounds, agx_view lines)
{
        agx_sio_reader r;
        agx_view line;
        bool going = true;

        agx_sio_reader_init(&r, bounds);
        while (going && agx_view_split(&lines, '\n', &line)) {
                bool binary = agx_view_starts(line, AGX_VIEW("~"));
                agx_view message = binary ? agx_view_from(line, 1) : line;
                uint8_t *guarded = agx_guard_new(message.p, message.n);

                if (!guarded)
                        abort();
                going = read_one(log, &r, binary, agx_view_of(guarded, message.n));
                if (message.n)
                        memset(guarded, 0xaa, message.n);
                agx_guard_free(guarded, message.n);
        }
        agx_sio_reader_deinit(&r);
}
