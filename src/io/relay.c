/*
 * A pipe or terminal that polls writable takes at least one page, so pieces of that size never block there; a regular
 * file never blocks. Another writer on the same pipe could still take the room between poll and write; that is a
 * moment's wait for the reader, and the price for not changing flags on an open file that is not ours alone.
 */
#include "io/relay.h"

#include <poll.h>
#include <unistd.h>

enum { RELAY_PIECE = 4096, RELAY_RETRY_MS = 20, RELAY_TURN = 1 << 20 };

static bool writable(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

/* Writes one piece. False: the descriptor takes nothing just now. */
static bool write_piece(agx_relay *r)
{
        agx_view all = agx_buf_view(&r->waiting);
        agx_view piece = agx_view_first(all, RELAY_PIECE);
        ssize_t n;

        if (!writable(r->fd))
                return false;
        do
                n = write(r->fd, piece.p, piece.n);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return false;
        if (n < 0) {
                r->gone = errno == EPIPE || errno == EBADF;
                n = (ssize_t)piece.n; /* a full disk, say: these bytes are lost, later ones may fare better */
        }
        agx_buf_consume(&r->waiting, (size_t)n);
        return true;
}

static void report(agx_relay *r)
{
        if (r->dropped && r->waiting.len < r->waiting.max / 2 &&
            !agx_buf_printf(&r->waiting, "agentix-runtime: %llu lines of output dropped, their reader was too slow\n",
                            (unsigned long long)r->dropped))
                r->dropped = 0;
}

static void pump(agx_relay *r)
{
        size_t turn = 0;

        while (r->waiting.len && !r->gone && turn < RELAY_TURN && write_piece(r)) {
                turn += RELAY_PIECE;
                report(r);
        }
        if (r->gone)
                agx_buf_clear(&r->waiting);
}

static void on_flush(agx_flush *f)
{
        agx_relay *r = agx_container_of(f, agx_relay, flush);

        pump(r);
        if (r->waiting.len)
                agx_deadline_set(&r->retry, agx_loop_now(r->loop) + RELAY_RETRY_MS);
}

static void on_retry(agx_deadline *d)
{
        on_flush(&agx_container_of(d, agx_relay, retry)->flush);
}

void agx_relay_init(agx_relay *r, agx_loop *l, int fd, size_t max)
{
        *r = (agx_relay){.fd = fd, .loop = l, .waiting = AGX_BUF_NULL(max)};
        agx_flush_init(&r->flush, on_flush);
        agx_deadline_init(&r->retry, l, on_retry);
        uv_unref((uv_handle_t *)&r->retry.timer);
}

void agx_relay_line(agx_relay *r, agx_view prefix, agx_view line)
{
        uint8_t *place;
        size_t n = prefix.n + line.n + 1;

        if (r->gone)
                return;
        if (agx_buf_reserve(&r->waiting, n, &place)) {
                r->dropped++;
                r->dropped_total++;
                return;
        }
        if (prefix.n)
                memcpy(place, prefix.p, prefix.n);
        if (line.n)
                memcpy(place + prefix.n, line.p, line.n);
        place[n - 1] = '\n';
        agx_buf_commit(&r->waiting, n);
        if (r->retry.at == UINT64_MAX)
                agx_loop_flush_later(r->loop, &r->flush);
}

void agx_relay_close(agx_relay *r)
{
        pump(r);
        agx_flush_cancel(&r->flush);
        agx_deadline_close(&r->retry, NULL);
        agx_buf_deinit(&r->waiting);
        r->gone = true;
}
