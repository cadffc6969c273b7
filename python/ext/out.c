/*
 * Everybody tries first without waiting, under the lock: mostly that is all. Who may wait and has to becomes the sender: it
 * takes what waits along and lets go of the lock. Meanwhile others leave small frames with it instead of waiting too,
 * until there is no room, or the sender has had to go on for others too often: then the next one queues, and takes over.
 *
 * Each piece of a long frame is sent as a frame is. Before the next one, somebody who queues has his turn.
 */
#include "out.h"

#include "proto/deframer.h"
#include "proto/limits.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ROUNDS_MAX = 4, PARTS_MAX = 5, PLACES = 3, HEADER = 4 };

typedef struct parts {
        struct iovec at[PARTS_MAX];
        size_t n, first;
} parts;

static void add(parts *p, const void *data, size_t n)
{
        if (n)
                p->at[p->n++] = (struct iovec){(void *)(uintptr_t)data, n};
}

static bool is_done(const parts *p)
{
        return p->first == p->n;
}

static void advance(parts *p, size_t n)
{
        while (!is_done(p) && n >= p->at[p->first].iov_len)
                n -= p->at[p->first++].iov_len;
        if (n) {
                p->at[p->first].iov_base = (char *)p->at[p->first].iov_base + n;
                p->at[p->first].iov_len -= n;
        }
}

/* A user's handler for SIGPIPE is none of our business, hence MSG_NOSIGNAL. With MSG_DONTWAIT some may be left. */
static int send_parts(int fd, parts *p, int flags)
{
        while (!is_done(p)) {
                struct msghdr message = {.msg_iov = p->at + p->first, .msg_iovlen = p->n - p->first};
                ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | flags);

                if (n < 0 && errno == EAGAIN && flags)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
                advance(p, n > 0 ? (size_t)n : 0);
        }
        return 0;
}

void agx_out_init(agx_out *o, size_t max, bool pieces)
{
        *o = (agx_out){.waiting = AGX_BUF_NULL(max), .pieces = pieces};
        pthread_mutex_init(&o->lock, NULL);
        pthread_cond_init(&o->done, NULL);
        pthread_cond_init(&o->apart, NULL);
}

void agx_out_deinit(agx_out *o)
{
        agx_buf_deinit(&o->waiting);
        pthread_cond_destroy(&o->done);
        pthread_cond_destroy(&o->apart);
        pthread_mutex_destroy(&o->lock);
}

/* Waits with what is left of the parts, and with nothing else. The lock is let go of meanwhile. */
static int send_rest(agx_out *o, int fd, parts *p)
{
        _cleanup_(agx_buf_deinitp) agx_buf taken = o->waiting; /* where the parts may lie */
        int r;

        o->waiting = AGX_BUF_NULL(taken.max);
        o->sending = true;
        pthread_mutex_unlock(&o->lock);
        r = send_parts(fd, p, 0);
        pthread_mutex_lock(&o->lock);
        o->sending = false;
        return r;
}

/* Part of a frame, where it lies. */
typedef struct run {
        agx_view at[PARTS_MAX - 1];
} run;

static int send_waiting_and(agx_out *o, int fd, const run *r)
{
        parts p = {.n = 0};
        int error;

        if (o->waiting.len)
                add(&p, o->waiting.data + o->waiting.head, o->waiting.len);
        for (size_t i = 0; r && i < PARTS_MAX - 1; ++i)
                add(&p, r->at[i].p, r->at[i].n);
        error = send_parts(fd, &p, MSG_DONTWAIT);
        if (!error && !is_done(&p))
                return send_rest(o, fd, &p);
        agx_buf_clear(&o->waiting);
        return error;
}

/* Whether the sender takes more than it has. */
static bool takes_more(const agx_out *o)
{
        return o->rounds < ROUNDS_MAX;
}

static void wait_in_turn(agx_out *o)
{
        if (!o->sending)
                return;
        ++o->queued;
        while (o->sending)
                pthread_cond_wait(&o->done, &o->lock);
        --o->queued;
        ++o->served;
        if (o->in_pieces)
                pthread_cond_broadcast(&o->apart);
}

/* With the lock. */
static int send_in_turn(agx_out *o, int fd, const run *frame)
{
        int r;

        wait_in_turn(o);
        o->rounds = 0;
        r = send_waiting_and(o, fd, frame);
        for (; !r && o->waiting.len && !o->queued; ++o->rounds)
                r = send_waiting_and(o, fd, NULL);
        pthread_cond_signal(&o->done);
        return r;
}

/* ---- a frame in pieces ---- */

/* Whoever waits for his turn has it now. */
static void let_others(agx_out *o)
{
        unsigned served = o->served;

        while (o->queued && o->served == served)
                pthread_cond_wait(&o->apart, &o->lock);
}

/* The next piece, with `head` in front. */
static run next_piece(const agx_view frame[PLACES], uint64_t done, agx_view head, size_t n)
{
        run r = {.at = {head}};

        for (size_t i = 0; i < PLACES; ++i) {
                size_t skip = done < frame[i].n ? (size_t)done : frame[i].n;

                r.at[i + 1] = agx_view_first(agx_view_from(frame[i], skip), n);
                done -= skip;
                n -= r.at[i + 1].n;
        }
        return r;
}

/* `frame`: its payload. With the lock. */
static int send_in_pieces(agx_out *o, int fd, const agx_view frame[PLACES], uint64_t total)
{
        uint8_t head[AGX_PIECE_HEAD_MAX];
        uint64_t done = 0;
        uint32_t stream;
        int r = 0;

        while (o->in_pieces)
                pthread_cond_wait(&o->apart, &o->lock);
        o->in_pieces = true;
        o->stream = stream = o->stream + 1 ? o->stream + 1 : 1;
        while (!r && done < total) {
                size_t n, n_head = agx_piece_head(head, stream, total, done, &n);
                run piece = next_piece(frame, done, agx_view_of(head, n_head), n);

                r = send_in_turn(o, fd, &piece);
                done += n;
                if (!r)
                        let_others(o);
        }
        o->in_pieces = false;
        pthread_cond_broadcast(&o->apart);
        return r;
}

/* ---- verbs ---- */

static bool join(agx_out *o, agx_view head, agx_view value)
{
        return !value.n && o->sending && takes_more(o) && !agx_buf_append_view(&o->waiting, head);
}

int agx_out_send(agx_out *o, int fd, agx_view head, agx_view value, agx_view tail)
{
        size_t n = head.n + value.n + tail.n;
        int r = 0;

        pthread_mutex_lock(&o->lock);
        if (o->pieces && value.n && n > AGX_FAST_FRAME_MAX)
                r = send_in_pieces(o, fd, (agx_view[PLACES]){agx_view_from(head, HEADER), value, tail}, n - HEADER);
        else if (!join(o, head, value))
                r = send_in_turn(o, fd, &(run){.at = {head, value, tail}});
        pthread_mutex_unlock(&o->lock);
        return r;
}

bool agx_out_put(agx_out *o, agx_view frame)
{
        bool done;

        pthread_mutex_lock(&o->lock);
        done = (!o->sending || takes_more(o)) && !agx_buf_append_view(&o->waiting, frame);
        pthread_mutex_unlock(&o->lock);
        return done;
}

int agx_out_flush(agx_out *o, int fd, bool *rest)
{
        int r = 0;

        *rest = false;
        pthread_mutex_lock(&o->lock);
        if (o->waiting.len && !o->sending) {
                ssize_t n = send(fd, o->waiting.data + o->waiting.head, o->waiting.len, MSG_NOSIGNAL | MSG_DONTWAIT);

                r = n < 0 && errno != EAGAIN && errno != EINTR ? -errno : 0;
                agx_buf_consume(&o->waiting, n > 0 ? (size_t)n : 0);
                *rest = o->waiting.len;
        }
        pthread_mutex_unlock(&o->lock);
        return r;
}
