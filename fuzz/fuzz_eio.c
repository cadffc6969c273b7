/* An Engine.IO session of either role between a hostile peer and a shell that follows the rules. The input is a script: a
 * first byte for role and transport, then steps, each a byte and, for what the peer sends, a length and bytes. No crash,
 * no over-read; a closed session gives nothing more; what is borrowed comes back; the queue's count returns to nothing. */
#include <stdint.h>
#include <stdlib.h>

#include "support/guard.h"
#include "wire/eio.h"

static const agx_eio_bounds bounds = {
        .message_max = 200,
        .queue_max = 400,
        .queue_packets = 20,
        .payload_packets = 3,
        .interval_ms = 1000,
        .timeout_ms = 500,
        .upgrade_ms = 300,
        .upgrade = true,
};

typedef struct play {
        agx_eio *e;
        agx_view script;
        uint64_t now;
        size_t borrowed;
} play;

static void must(bool holds)
{
        if (!holds)
                abort();
}

static uint8_t take_byte(play *p)
{
        uint8_t byte = p->script.n ? (uint8_t)p->script.p[0] : 0;

        if (p->script.n)
                p->script = agx_view_from(p->script, 1);
        return byte;
}

/* A piece of the script, flush against an unreadable page. */
static agx_view take_piece(play *p, uint8_t **guarded)
{
        size_t n = take_byte(p) % 100;
        agx_view piece = agx_view_first(p->script, n);

        p->script = agx_view_from(p->script, piece.n);
        *guarded = agx_guard_new(piece.p, piece.n);
        must(*guarded != NULL);
        return agx_view_of(*guarded, piece.n);
}

/* Reads every byte of what is shown. */
static void touch(agx_view v)
{
        static volatile char sink;

        for (size_t i = 0; i < v.n; ++i)
                sink = v.p[i];
        (void)sink;
}

static void check_event(const play *p, int r, const agx_eio_event *event)
{
        must(r == 0 || event->kind == AGX_EIO_NOTHING);
        must(r != AGX_EIO_E_BAD || agx_eio_is_closed(p->e));
        must(event->kind != AGX_EIO_CLOSED || agx_eio_is_closed(p->e));
        touch(event->data);
}

static void read_payload(play *p)
{
        uint8_t *guarded;
        agx_view piece = take_piece(p, &guarded), rest = piece;
        agx_eio_event event;

        if (agx_eio_over(p->e) == AGX_EIO_POLLING)
                while (rest.p)
                        check_event(p, agx_eio_payload_read(p->e, &rest, p->now, &event), &event);
        agx_guard_free(guarded, piece.n);
}

static void read_ws(play *p, bool binary)
{
        uint8_t *guarded;
        agx_view piece = take_piece(p, &guarded);
        agx_eio_event event;

        check_event(p, agx_eio_ws_read(p->e, binary, piece, p->now, &event), &event);
        agx_guard_free(guarded, piece.n);
}

static void send(play *p, bool binary)
{
        static const char bytes[200] = "bytes";
        size_t n = take_byte(p);
        agx_eio_message pair[2] = {{.binary = binary, .head = AGX_VIEW("head"), .body = agx_view_of(bytes, n % 200)},
                                   {.binary = true, .body = agx_view_of(bytes, n / 4), .user = p}};

        if (!agx_eio_send(p->e, pair, 2))
                ++p->borrowed;
}

static void write_payload(play *p)
{
        _cleanup_(agx_buf_deinitp) agx_buf body = AGX_BUF_NULL(1000);

        if (!agx_eio_payload_due(p->e))
                return;
        must(agx_eio_payload_write(p->e, &body) == 0);
        must(body.len > 0);
}

static void write_ws(play *p)
{
        agx_eio_frame frame;

        if (!agx_eio_ws_next(p->e, &frame))
                return;
        touch(frame.head);
        touch(frame.body);
        agx_eio_ws_sent(p->e);
}

static void tick(play *p)
{
        agx_eio_event event;

        p->now += take_byte(p) * 4u;
        agx_eio_tick(p->e, p->now, &event);
        must(agx_eio_timer(p->e) > p->now || agx_eio_timer(p->e) == UINT64_MAX || agx_eio_is_closed(p->e));
}

static void step(play *p)
{
        switch (take_byte(p) % 14) {
        case 0:
                read_payload(p);
                break;
        case 1:
                read_ws(p, false);
                break;
        case 2:
                read_ws(p, true);
                break;
        case 3:
                send(p, false);
                break;
        case 4:
                send(p, true);
                break;
        case 5:
                write_payload(p);
                break;
        case 6:
        case 7:
                write_ws(p);
                break;
        case 8:
                tick(p);
                break;
        case 9:
                if (agx_eio_over(p->e) == AGX_EIO_POLLING)
                        agx_eio_poll(p->e);
                break;
        case 10:
                agx_eio_posted(p->e);
                break;
        case 11:
                agx_eio_ws_opened(p->e, p->now);
                break;
        case 12:
                agx_eio_ws_lost(p->e);
                break;
        default:
                if (take_byte(p) == 'c')
                        agx_eio_close(p->e);
        }
}

static void count_done(play *p)
{
        void *user;

        while ((user = agx_eio_next_done(p->e))) {
                must(user == p && p->borrowed > 0);
                --p->borrowed;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        play p = {.script = agx_view_of(size ? data : (const uint8_t *)"", size)};
        uint8_t first = take_byte(&p);
        bool server = first & 1;

        must(agx_eio_new(&p.e, server ? AGX_EIO_SERVER : AGX_EIO_CLIENT, &bounds,
                         server ? AGX_VIEW("sid") : AGX_VIEW_NULL, first & 2 ? AGX_EIO_WEBSOCKET : AGX_EIO_POLLING,
                         0) == 0);
        while (p.script.n) {
                step(&p);
                count_done(&p);
        }
        agx_eio_lost(p.e, "over");
        count_done(&p);
        must(!p.borrowed && !agx_eio_queued(p.e));
        must(!agx_eio_ws_next(p.e, &(agx_eio_frame){0}));
        must(agx_eio_timer(p.e) == UINT64_MAX);
        agx_eio_free(p.e);
        return 0;
}
